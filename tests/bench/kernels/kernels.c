/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the matrix kernels are: `make bench-kernels`, or kernels [threads [MiB [formats|FILE]]].
 *
 * First the machine: a plain sum over the memory that holds the weights, and the same bytes as q4
 * matrices of an expert's size times one activation row, by turns, medians and the best of ROUNDS
 * (the best is what tells something on a machine that is busy). Then products with 16 and 128 rows,
 * of weights that come from memory, and of one block that stays in the first-level cache, which is
 * as fast as the kernel's inner loop goes. COLI_ENGINE_KERNEL names another kernel than the best.
 *
 * With "formats", only: each of GGUF's formats, of each one matrix at least.
 * With FILE, only: the same weights in anonymous huge pages, and in a file that is mapped, as dense.bin
 * is, with huge pages (if the file system has them) and with 4 KiB pages, by turns. FILE is made, and
 * is gone at the end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/clock.h"
#include "engine/compute.h"
#include "engine/limits.h"
#include "engine/machine.h"

#define ROUNDS 7
#define PAIRS  31 /* with FILE */
#define ROWS   2048
#define COLS   6144
#define MOST   128 /* activation rows */

struct bench {
	struct compute compute;
	int matrices;
	size_t room;       /* bytes of memory at base */
	size_t bytes, one; /* of all weights, of a matrix */
	char *base;
	struct wmat *m;
	float *x, *y;
};

static uint64_t sums[1024]; /* read at the end, so that no sum is left out */

static void sum_item(void *arg, int item, int thread)
{
	const struct bench *b = arg;

	sums[thread % 1024] += limits_sum(b->base + (size_t)item * b->one, b->one / 256 * 256);
}

static double run_sum(struct bench *b)
{
	double start = clock_seconds();

	pool_run(b->compute.pool, b->matrices, sum_item, b);
	return clock_seconds() - start;
}

/* All matrices times n rows. */
static double run_product(struct bench *b, int n)
{
	double start = clock_seconds();

	for (int i = 0; i < b->matrices; i++)
		matmul(&b->compute, &b->m[i], b->x, COLS, n, b->y, ROWS);
	return clock_seconds() - start;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Amounts of work a second: the median and the best. */
struct speed {
	double median, best;
};

static struct speed speed_of(double work, double *seconds)
{
	qsort(seconds, ROUNDS, sizeof(*seconds), by_size);
	return (struct speed){ work / seconds[ROUNDS / 2], work / seconds[0] };
}

static void vector_speed(struct bench *b)
{
	double sum[ROUNDS], product[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		sum[i] = run_sum(b);
		product[i] = run_product(b, 1);
	}
	struct speed read = speed_of((double)b->bytes * 1e-9, sum);
	struct speed got = speed_of((double)b->bytes * 1e-9, product);
	printf("%-8s 1 row     %6.2f GB/s of weights (best %.2f), a plain sum %.2f (best %.2f): "
	       "%.2f of it (%.2f)\n",
	       kernel()->isa, got.median, got.best, read.median, read.best,
	       got.median / read.median, got.best / read.best);
}

/* Multiply-adds of codes in a second, all threads together. */
static void matrix_speed(struct bench *b, int n)
{
	double product[ROUNDS], work = (double)b->matrices * ROWS * COLS * n;

	for (int i = 0; i < ROUNDS; i++)
		product[i] = run_product(b, n);
	struct speed got = speed_of(work * 1e-9, product);
	printf("%-8s %-3d rows  %6.1f Gmadd/s (best %.1f)\n", kernel()->isa, n, got.median,
	       got.best);
}

/* The weights once more, in a file that is read from its drive when it is mapped. -1 with errno. */
static int copy_to_file(const struct bench *b, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	size_t at = 0;

	if (fd < 0)
		return -1;
	unlink(path);
	while (at < b->bytes) {
		ssize_t n = write(fd, b->base + at, b->bytes - at);
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	if (at == b->bytes && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0)
		return fd;
	close(fd);
	return -1;
}

/* At an address that is a multiple of 2 MiB. NULL with errno. */
static char *map_file(int fd, size_t bytes, int advice)
{
	const size_t huge = (size_t)2 << 20;
	char *all = mmap(NULL, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (all == MAP_FAILED)
		return NULL;
	all += huge - (uintptr_t)all % huge;
	char *base = mmap(all, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	if (base == MAP_FAILED)
		return NULL;
	madvise(base, bytes, advice);
	return madvise(base, bytes, MADV_POPULATE_READ) == 0 ? base : NULL;
}

static void move_weights(struct bench *b, char *to)
{
	for (int i = 0; i < b->matrices; i++)
		if (wmat_bind(&b->m[i], b->m[i].fmt, ROWS, COLS, to + (size_t)i * b->one, b->one))
			abort();
}

static void print_ratio(const char *what, double *ratio)
{
	qsort(ratio, PAIRS, sizeof(*ratio), by_size);
	printf("%-8s 1 row, %s: %.3f times as long as in anonymous huge pages (quartiles %.3f and "
	       "%.3f)\n",
	       kernel()->isa, what, ratio[PAIRS / 2], ratio[PAIRS / 4], ratio[3 * PAIRS / 4]);
}

/* The machine's speed swings with what else it does: runs that follow each other tell more than
 * medians of each, so what counts is the median of their ratios. */
static int file_speed(struct bench *b, const char *path)
{
	double huge[PAIRS], small[PAIRS];
	int fd = copy_to_file(b, path);
	char *file = fd < 0 ? NULL : map_file(fd, b->bytes, MADV_HUGEPAGE);
	char *file4k = fd < 0 ? NULL : map_file(fd, b->bytes, MADV_NOHUGEPAGE);

	if (!file || !file4k) {
		perror(path);
		return 1;
	}
	for (int i = 0; i < PAIRS; i++) {
		move_weights(b, b->base);
		double base = run_product(b, 1);
		move_weights(b, file);
		huge[i] = run_product(b, 1) / base;
		move_weights(b, file4k);
		small[i] = run_product(b, 1) / base;
	}
	print_ratio("mapped file, huge pages", huge);
	print_ratio("mapped file, 4 KiB pages", small);
	return 0;
}

/* The same of each of GGUF's formats, laid over the same memory: q4's bytes are as good as any. */
static void format_speeds(struct bench *b)
{
	int matrices = b->matrices;

	for (int type = W_F16; type < WTYPES; type++) {
		const struct wfmt fmt = { (enum wtype)type, 0 };
		size_t one = wfmt_bytes(fmt, ROWS, COLS);
		double sum[ROUNDS], row[ROUNDS], many[ROUNDS];
		b->matrices = 0;
		for (size_t at = 0; at + one <= b->room && b->matrices < matrices; at += one)
			if (wmat_bind(&b->m[b->matrices++], fmt, ROWS, COLS, b->base + at, one))
				return;
		b->one = one;
		b->bytes = one * (size_t)b->matrices;
		for (int i = 0; i < ROUNDS; i++) {
			sum[i] = run_sum(b);
			row[i] = run_product(b, 1);
			many[i] = run_product(b, 16);
		}
		double madds = (double)b->matrices * ROWS * COLS * 1e-9;
		struct speed read = speed_of((double)b->bytes * 1e-9, sum);
		struct speed got = speed_of((double)b->bytes * 1e-9, row);
		struct speed all = speed_of(madds * 16, many);
		printf("%-8s %-7s 1 row %6.2f GB/s (best %.2f), %.2f of a plain sum (%.2f); 16 "
		       "rows "
		       "%6.1f Gmadd/s (best %.1f)\n",
		       kernel()->isa, wtype_name(fmt.type), got.median, got.best,
		       got.median / read.median, got.best / read.best, all.median, all.best);
	}
}

#define CACHE_COLS  1024 /* a block of 8 KiB, tiles of 16 KiB */
#define CACHE_LOOPS 2500

struct cached {
	struct wmat m;
	_Alignas(64) char codes[COMPUTE_TILES][32768];
	struct acts tile[COMPUTE_TILES];
};

static void cached_item(void *arg, int item, int thread)
{
	const struct cached *c = arg;
	float y[COMPUTE_TILES * ACTS_ROWS * WBLOCK];

	(void)item;
	for (int i = 0; i < CACHE_LOOPS; i++)
		kernel()->multiply(&c->m, 0, c->tile, COMPUTE_TILES, y, WBLOCK);
	sums[thread % 1024] += y[0] > 0;
}

static void cache_speed(struct bench *b)
{
	static struct cached c;
	double t[ROUNDS], work = (double)b->compute.threads * CACHE_LOOPS * WBLOCK * CACHE_COLS *
				 ACTS_ROWS * COMPUTE_TILES;

	/* The first block of a narrower matrix is laid over the first bytes of the memory. */
	c.m = (struct wmat){ b->m[0].fmt, WBLOCK, CACHE_COLS, b->base, b->m[0].scales };
	for (int i = 0; i < COMPUTE_TILES; i++) {
		acts_place(&c.tile[i], ACTS_ROWS, CACHE_COLS, c.m.fmt.group, c.codes[i]);
		kernel()->quantise(b->x, COLS, &c.tile[i]);
	}
	for (int i = 0; i < ROUNDS; i++) {
		double start = clock_seconds();
		pool_run(b->compute.pool, b->compute.threads, cached_item, &c);
		t[i] = clock_seconds() - start;
	}
	struct speed got = speed_of(work * 1e-9, t);
	printf("%-8s in cache  %6.1f Gmadd/s (best %.1f), %d rows\n", kernel()->isa, got.median,
	       got.best, COMPUTE_TILES * ACTS_ROWS);
}

static int set_up(struct bench *b, int threads, size_t mib)
{
	const struct wfmt fmt = { W_Q4, 64 }, largest = { W_F16, 0 };
	size_t least = wfmt_bytes(largest, ROWS, COLS);
	uint64_t seed = 1;

	b->one = wfmt_bytes(fmt, ROWS, COLS);
	b->matrices = (int)((mib << 20) / b->one);
	b->bytes = b->one * (size_t)b->matrices;
	b->room = mib << 20 > least ? mib << 20 : least;
	b->base = mmap(NULL, b->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	b->m = calloc((size_t)b->matrices, sizeof(*b->m));
	b->x = calloc((size_t)MOST * COLS, sizeof(float));
	b->y = calloc((size_t)MOST * ROWS, sizeof(float));
	if (b->base == MAP_FAILED || !b->m || !b->x || !b->y)
		return -1;
	/* As the daemon's hot store has it. */
	madvise(b->base, b->room, MADV_HUGEPAGE);
	for (size_t i = 0; i < b->room; i += 2) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		uint16_t v = (uint16_t)(seed >> 48);
		memcpy(b->base + i, &v, 2);
	}
	for (int i = 0; i < MOST * COLS; i++)
		b->x[i] = (float)(i * 37 % 101 - 50) * 0.01f;
	for (int i = 0; i < b->matrices; i++) {
		char *base = b->base + (size_t)i * b->one;
		size_t at = wfmt_scales_offset(fmt, ROWS, COLS);
		for (; at < b->one; at += 2)
			memcpy(base + at, &(uint16_t){ 0x2000 }, 2); /* 2^-7 */
		if (wmat_bind(&b->m[i], fmt, ROWS, COLS, base, b->one))
			return -1;
	}
	return compute_init(&b->compute, threads, COLS, NULL);
}

int main(int argc, char **argv)
{
	static struct bench b; /* with what it holds until the end */
	const char *asked = getenv("COLI_ENGINE_KERNEL");
	int threads = argc > 1 ? atoi(argv[1]) : machine_cores();
	int mib = argc > 2 ? atoi(argv[2]) : 1024;

	if (threads < 1 || threads > 1024 || mib < 8) {
		fprintf(stderr, "kernels: [threads [MiB of weights, 8 or more [formats|FILE]]]\n");
		return 2;
	}
	if (asked && strcmp(asked, kernel()->isa) != 0) {
		printf("%-8s this processor cannot run it\n", asked);
		return 0;
	}
	if (set_up(&b, threads, (size_t)mib)) {
		fprintf(stderr, "kernels: no memory for %d MiB of weights\n", mib);
		return 1;
	}
	if (argc > 3 && strcmp(argv[3], "formats") != 0)
		return file_speed(&b, argv[3]);
	if (argc > 3) {
		format_speeds(&b);
		return 0;
	}
	vector_speed(&b);
	matrix_speed(&b, 16);
	matrix_speed(&b, MOST);
	cache_speed(&b);
	uint64_t all = 0;
	for (int i = 0; i < 1024; i++)
		all += sums[i];
	return all == 0; /* never: but the sums have to be made */
}
