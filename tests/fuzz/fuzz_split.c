/* SPDX-License-Identifier: Apache-2.0
 *
 * GGUF models of several files, read as one and mounted. The input is a byte, which says how the files
 * are named and which of them are there, and their headers, one behind the other: each begins where
 * the magic stands. What the headers say of the set is as it comes.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_gguf.h"

#include <sys/stat.h>

#include "expertfs/gguf_store.h"

#define FILES 4

static char dir[64];
static char name[FILES][128]; /* of the files that are there */

static void remove_files(void)
{
	for (int i = 0; i < FILES; i++) {
		if (name[i][0])
			unlink(name[i]);
		name[i][0] = 0;
	}
}

static void remove_folder(void)
{
	static const char *const made[] = {
		"model.json",      "tokenizer.json",  "dense.bin",
		"dense-00002.bin", "dense-00003.bin", "dense-00004.bin",
		"catalog.db",      "catalog.db-wal",  "catalog.db-shm"
	};
	char path[128];

	remove_files();
	for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++) {
		snprintf(path, sizeof(path), "%s/state/%s", dir, made[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/state", dir);
	rmdir(path);
	rmdir(dir);
}

static void put(const char *path, const uint8_t *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size ||
	    ftruncate(fd, (off_t)(size > FUZZ_GGUF_BYTES ? size : FUZZ_GGUF_BYTES)) != 0)
		abort();
	close(fd);
}

/* The next file's header: to the next magic, or all if it is the last one. */
static size_t next_header(const uint8_t *data, size_t size, bool last)
{
	const uint8_t *end = last || size < 4 ? NULL : memmem(data + 4, size - 4, "GGUF", 4);

	return end ? (size_t)(end - data) : size;
}

/* Two bits of `how` are how many files the names speak of, the others who is missing, or the same
 * as the one before. */
static void put_files(uint8_t how, const uint8_t *data, size_t size)
{
	int count = 1 + how % FILES;

	for (int i = 0; i < count; i++) {
		size_t n = next_header(data, size, i + 1 == count);
		bool missing = i > 0 && how >> (1 + i) & 1, same = i > 0 && how >> (4 + i) & 1;
		snprintf(name[i], sizeof(name[i]), "%s/m-%05d-of-%05d.gguf", dir, i + 1, count);
		if (same && symlink(name[i - 1], name[i]) != 0)
			abort();
		if (!same && !missing)
			put(name[i], data, n);
		if (!same) {
			data += n;
			size -= n;
		}
	}
}

/* As the daemon does it, with what it learned of others that had the name before. */
static void mount(const char *path)
{
	char state[80], why[WHY_MAX];
	struct store *s;
	int lock;

	snprintf(state, sizeof(state), "%s/state", dir);
	if (gguf_store_open(path, state, &s, &lock, why) != 0)
		return;
	for (uint32_t i = 0; i < s->experts; i++)
		for (uint32_t k = 0; k < s->expert[i].packed->n; k++) {
			const struct extent *x = &s->expert[i].packed->x[k];
			if (x->drive >= s->drives || x->offset > s->drive[x->drive].bytes ||
			    x->length > s->drive[x->drive].bytes - x->offset)
				abort();
		}
	store_close(s);
	close(lock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!dir[0]) {
		fuzz_quiet();
		snprintf(dir, sizeof(dir), "/dev/shm/fuzz.%ld", (long)getpid());
		if (mkdir(dir, 0700) != 0)
			abort();
		atexit(remove_folder);
	}
	if (size == 0)
		return 0;
	put_files(data[0], data + 1, size - 1);
	if (fuzz_gguf(name[0]))
		mount(name[0]);
	remove_files();
	return 0;
}
