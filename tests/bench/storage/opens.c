/* SPDX-License-Identifier: Apache-2.0
 *
 * How many files can be opened (and closed) in a second.
 *
 *	opens THREADS SECONDS FILE...		prints opens per second
 */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/bench/storage/bench.h"

#define THREADS_MAX 64

static char **files;
static size_t count;
static atomic_bool stop;
static atomic_uint_fast64_t opens;

/* Each thread has its own start and step in the list, so that they seldom meet on one file. */
static void *opener(void *arg)
{
	size_t at = (size_t)(uintptr_t)arg * 7919;
	uint64_t n = 0;

	for (; !atomic_load_explicit(&stop, memory_order_relaxed); n++, at++) {
		const char *path = files[at % count];
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			bench_quit(path);
		close(fd);
	}
	atomic_fetch_add(&opens, n);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS_MAX];
	unsigned long n = argc > 3 ? strtoul(argv[1], NULL, 10) : 0;
	double seconds = argc > 3 ? strtod(argv[2], NULL) : 0;
	uint64_t start;

	if (n < 1 || n > THREADS_MAX || !(seconds > 0 && seconds < 3600)) {
		fputs("usage: opens THREADS SECONDS FILE...\n", stderr);
		return 2;
	}
	files = argv + 3;
	count = (size_t)argc - 3;
	start = bench_ns();
	for (unsigned long i = 0; i < n; i++)
		if (pthread_create(&thread[i], NULL, opener, (void *)(uintptr_t)i) != 0)
			bench_quit("threads");
	usleep((useconds_t)(seconds * 1e6));
	atomic_store(&stop, 1);
	for (unsigned long i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	printf("%.0f\n", (double)opens / ((double)(bench_ns() - start) / 1e9));
	return 0;
}
