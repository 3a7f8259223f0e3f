/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast files come when several are asked for at once.
 *
 *	readers THREADS map|read FILE...	prints bytes and seconds
 *
 * Each thread takes the next file of the list, uses all of it, and takes the next.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/bench/storage/bench.h"

#define THREADS_MAX 64
#define FILE_MAX    (256u << 20)

static char **files;
static size_t count;
static int mapped;
static atomic_size_t next_file;
static atomic_uint_fast64_t bytes;

static void *reader(void *arg)
{
	char *buf = mapped ? NULL : malloc(FILE_MAX);

	(void)arg;
	if (!mapped && !buf)
		bench_quit("memory");
	for (size_t i; (i = atomic_fetch_add(&next_file, 1)) < count;)
		atomic_fetch_add(&bytes,
				 mapped ? use_mapped(files[i]) : use_read(files[i], buf, FILE_MAX));
	free(buf);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS_MAX];
	unsigned long n = argc > 3 ? strtoul(argv[1], NULL, 10) : 0;
	uint64_t start;

	if (n < 1 || n > THREADS_MAX ||
	    (strcmp(argv[2], "map") != 0 && strcmp(argv[2], "read") != 0)) {
		fputs("usage: readers THREADS map|read FILE...\n", stderr);
		return 2;
	}
	mapped = argv[2][0] == 'm';
	files = argv + 3;
	count = (size_t)argc - 3;
	start = bench_ns();
	for (unsigned long i = 0; i < n; i++)
		if (pthread_create(&thread[i], NULL, reader, NULL) != 0)
			bench_quit("threads");
	for (unsigned long i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	printf("%llu %.6f\n", (unsigned long long)bytes, (double)(bench_ns() - start) / 1e9);
	return 0;
}
