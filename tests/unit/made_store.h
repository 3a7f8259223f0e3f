/* SPDX-License-Identifier: Apache-2.0
 *
 * A store of made-up bytes in a temporary folder, for tests: any number of drives (folders), parts
 * and copies; and an opened one with its drives and its loader.
 */
#ifndef MADE_STORE_H
#define MADE_STORE_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/loader.h"
#include "expertfs/shard.h"

/* ThreadSanitizer allows no threads in a child of a process with threads. */
#if defined(__SANITIZE_THREAD__)
#define MADE_NO_FORK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MADE_NO_FORK 1
#endif
#endif
#ifndef MADE_NO_FORK
#define MADE_NO_FORK 0
#endif

struct made {
	char root[200]; /* the temporary folder; the store is root/s, the drives root/d0, ... */
	char dir[240];
	unsigned layers, experts, drives, parts, copies;
	uint64_t bytes;
	/* open */
	struct store *store;
	struct drive *drive[STORE_DRIVES_MAX + 1];
	struct loader loader;
};

static inline void made_check(bool good, const char *what)
{
	if (good)
		return;
	perror(what);
	abort();
}

/* Byte `at` of an expert. */
static inline uint8_t made_byte(unsigned layer, unsigned expert, uint64_t at)
{
	uint64_t z =
		((uint64_t)layer << 40 ^ (uint64_t)expert << 20 ^ (at >> 3)) * 0x9e3779b97f4a7c15u;

	z ^= z >> 29;
	z *= 0xbf58476d1ce4e5b9u;
	return (uint8_t)(z >> (8 * (at & 7)));
}

static inline void made_fill(unsigned layer, unsigned expert, uint8_t *data, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		data[i] = made_byte(layer, expert, i);
}

static inline void made_path(const struct made *m, unsigned drive, char *path)
{
	snprintf(path, PATH_MAX, "%s/d%u/test.shard", m->root, drive);
}

/* A record of bytes first..first+n at the end of fd; where its payload lies. */
static uint64_t made_record(int fd, const struct record_head *head, const uint8_t *data)
{
	static const uint8_t zeros[SHARD_ALIGN];
	uint8_t block[SHARD_ALIGN] = { 0 };
	struct record_head h = *head;
	off_t at = lseek(fd, 0, SEEK_END);
	uint64_t pad = shard_round_up(h.part_bytes) - h.part_bytes;

	h.payload_check = payload_check(data + h.part_offset, h.part_bytes);
	memcpy(h.store_id, "made", 4);
	record_head_seal(&h);
	memcpy(block, &h, sizeof(h));
	made_check(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block), "write");
	made_check(write(fd, data + h.part_offset, h.part_bytes) == (ssize_t)h.part_bytes, "write");
	made_check(write(fd, zeros, pad) == (ssize_t)pad, "write");
	return (uint64_t)at + SHARD_ALIGN;
}

static void made_expert(const struct made *m, struct catalog *c, const int *fd, unsigned layer,
			unsigned expert, uint8_t *data)
{
	uint64_t cut = shard_round_up((m->bytes + m->parts - 1) / m->parts);
	char why[WHY_MAX];

	if (m->drives == 0)
		abort();
	made_fill(layer, expert, data, m->bytes);
	for (unsigned copy = 0; copy < m->copies; copy++) {
		for (unsigned part = 0; part < m->parts; part++) {
			uint64_t first = part * cut;
			uint64_t n = part + 1 == m->parts ? m->bytes - first : cut;
			unsigned drive = (expert + copy * m->parts + part) % m->drives;
			struct record_head h = { .layer = layer,
						 .expert = expert,
						 .part = part,
						 .parts = m->parts,
						 .copy = copy,
						 .expert_bytes = m->bytes,
						 .part_offset = first,
						 .part_bytes = n };
			struct extent x = { .offset = made_record(fd[drive], &h, data),
					    .length = n,
					    .expert_offset = first,
					    .check = payload_check(data + first, n),
					    .drive = (uint16_t)drive,
					    .copy = (uint16_t)copy };
			made_check(catalog_add_extent(c, layer, expert, m->bytes, part, &x, why) ==
					   0,
				   why);
		}
	}
}

static int made_shard(const struct made *m, unsigned drive)
{
	struct shard_head h = { .drive = drive, .drives = m->drives };
	uint8_t block[SHARD_ALIGN] = { 0 };
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/d%u", m->root, drive);
	mkdir(path, 0777);
	made_path(m, drive, path);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
	made_check(fd >= 0, path);
	memcpy(h.store_id, "made", 4);
	shard_head_seal(&h);
	memcpy(block, &h, sizeof(h));
	made_check(write(fd, block, sizeof(block)) == (ssize_t)sizeof(block), path);
	return fd;
}

/* The files; m's geometry is set. */
static inline void made_make(struct made *m)
{
	static const char *const files[] = { "model.json", "tokenizer.json", "dense.bin" };
	uint8_t id[STORE_ID_SIZE] = "made", *data = calloc(1, m->bytes);
	const char *tmp = getenv("TMPDIR");
	char path[PATH_MAX], why[WHY_MAX];
	struct catalog *c;
	int fd[16] = { 0 };

	made_check(m->drives > 0 && m->drives <= 16 && m->parts > 0, "geometry");
	snprintf(m->root, sizeof(m->root), "%s/made.XXXXXX", tmp ? tmp : "/tmp");
	made_check(mkdtemp(m->root) != NULL && data, m->root);
	snprintf(m->dir, sizeof(m->dir), "%s/s", m->root);
	mkdir(m->dir, 0777);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", m->dir, files[i]);
		close(open(path, O_WRONLY | O_CREAT, 0666));
	}
	snprintf(path, sizeof(path), "%s/catalog.db", m->dir);
	made_check(catalog_create(path, id, &c, why) == 0, "catalog");
	for (unsigned d = 0; d < m->drives; d++)
		fd[d] = made_shard(m, d);
	for (unsigned l = 0; l < m->layers; l++)
		for (unsigned e = 0; e < m->experts; e++)
			made_expert(m, c, fd, l, e, data);
	for (unsigned d = 0; d < m->drives; d++) {
		made_path(m, d, path);
		made_check(catalog_add_drive(c, d, path, (uint64_t)lseek(fd[d], 0, SEEK_END),
					     why) == 0,
			   path);
		close(fd[d]);
	}
	made_check(catalog_finish(c, why) == 0, why);
	free(data);
}

/* Opens store and drives, as the daemon does. */
static inline void made_open(struct made *m)
{
	char why[WHY_MAX];

	if (store_open(m->dir, &m->store, why) != 0) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	for (uint32_t d = 0; d < m->store->drives; d++)
		if (m->store->drive[d].path && !m->store->drive[d].missing)
			made_check(drive_open(m->store->drive[d].path, DRIVE_IO_AUTO, &m->drive[d],
					      why) == 0,
				   why);
	m->loader = (struct loader){ .store = m->store,
				     .drive = m->drive,
				     .buffers = read_buffers_new(m->store->max_expert_bytes) };
	made_check(m->loader.buffers != NULL, "buffers");
}

static inline void made_close(struct made *m)
{
	for (uint32_t d = 0; d <= STORE_DRIVES_MAX; d++) {
		drive_close(m->drive[d]);
		m->drive[d] = NULL;
	}
	store_close(m->store);
	m->store = NULL;
	read_buffers_free(m->loader.buffers);
}

static inline void made_remove(struct made *m)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), "rm -rf '%s'", m->root);
	made_check(system(command) == 0, m->root);
}

/* True if the expert's bytes come, and are right. buf: bytes rounded up to 4 KiB, on 4 KiB. */
static inline bool made_right(struct made *m, uint32_t index, uint8_t *buf, char *why)
{
	static const struct urgency demand = { DRIVE_DEMAND };
	const struct store_expert *e = &m->store->expert[index];

	if (load_expert(&m->loader, index, &demand, buf, why) != 0)
		return false;
	for (uint64_t i = 0; i < e->bytes; i++) {
		if (buf[i] != made_byte(e->layer, e->expert, i)) {
			snprintf(why, WHY_MAX, "expert %u/%u: byte %llu is wrong", e->layer,
				 e->expert, (unsigned long long)i);
			return false;
		}
	}
	return true;
}

static inline bool made_all_right(struct made *m, char *why)
{
	uint8_t *buf = aligned_alloc(SHARD_ALIGN, shard_round_up(m->store->max_expert_bytes));
	bool right = buf != NULL;

	for (uint32_t i = 0; i < m->store->experts && right; i++)
		right = made_right(m, i, buf, why);
	free(buf);
	return right;
}

#endif
