/* SPDX-License-Identifier: Apache-2.0
 *
 * How long one use of a file takes.
 *
 *	use map|read FILE TIMES		prints the median in microseconds
 */
#include "tests/bench/storage/bench.h"

static int compare(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

int main(int argc, char **argv)
{
	uint64_t *took, room = 0;
	size_t times = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	struct stat st;
	char *buf = NULL;

	if (times < 1 || times > 1000000 ||
	    (strcmp(argv[1], "map") != 0 && strcmp(argv[1], "read") != 0)) {
		fputs("usage: use map|read FILE TIMES\n", stderr);
		return 2;
	}
	took = calloc(times, sizeof(*took));
	if (stat(argv[2], &st) != 0)
		bench_quit(argv[2]);
	room = (uint64_t)st.st_size;
	buf = calloc(1, room);
	if (!took || !buf)
		bench_quit("memory");
	memset(buf, 1, room); /* touched before the clock runs */
	for (size_t i = 0; i < times; i++) {
		uint64_t start = bench_ns();
		uint64_t n = argv[1][0] == 'm' ? use_mapped(argv[2]) : use_read(argv[2], buf, room);
		took[i] = bench_ns() - start;
		if (n != room)
			bench_quit("too few bytes");
	}
	qsort(took, times, sizeof(*took), compare);
	size_t middle = times / 2;
	printf("%.1f\n", (double)took[middle] / 1e3);
	free(buf);
	free(took);
	return 0;
}
