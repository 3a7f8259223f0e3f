/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs of this folder share: a clock, the end on an error, and the two ways to use an
 * expert.
 */
#ifndef BENCH_STORAGE_H
#define BENCH_STORAGE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t bench_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

_Noreturn static inline void bench_quit(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* The file is opened, mapped, every page touched, unmapped and closed. Returns its bytes. */
static inline uint64_t use_mapped(const char *path)
{
	volatile unsigned char sum = 0;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) != 0)
		bench_quit(path);
	uint64_t n = (uint64_t)st.st_size;
	const unsigned char *p = mmap(NULL, n, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		bench_quit(path);
	for (uint64_t at = 0; at < n; at += 4096)
		sum = sum + p[at];
	munmap((void *)p, n);
	close(fd);
	return n;
}

/* The same with read(2) into buf, which has room for it. */
static inline uint64_t use_read(const char *path, char *buf, uint64_t room)
{
	uint64_t n = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		bench_quit(path);
	while ((got = read(fd, buf + n, room - n)) > 0)
		n += (uint64_t)got;
	if (got < 0)
		bench_quit(path);
	close(fd);
	return n;
}

#endif
