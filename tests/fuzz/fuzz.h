/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzzers share: the input as a file in memory, for parsers that open paths; silence.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char fuzz_path[64];

static inline void fuzz_remove(void)
{
	unlink(fuzz_path);
}

/* The input and then zeros up to file_size, if that is more. The same file each time. */
static inline const char *fuzz_file(const uint8_t *data, size_t size, size_t file_size,
				    const char *end)
{
	int fd;

	if (!fuzz_path[0]) {
		snprintf(fuzz_path, sizeof(fuzz_path), "/dev/shm/fuzz.%ld%s", (long)getpid(), end);
		atexit(fuzz_remove);
	}
	fd = open(fuzz_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size ||
	    ftruncate(fd, (off_t)(size > file_size ? size : file_size)) != 0)
		abort();
	close(fd);
	return fuzz_path;
}

/* What is said to people goes nowhere from now on; libFuzzer and the sanitizers have their own way. */
static inline void fuzz_quiet(void)
{
	FILE *nowhere = fopen("/dev/null", "we");

	if (!nowhere)
		abort();
	stdout = stderr = nowhere;
}

#endif
