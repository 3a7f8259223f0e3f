/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a store of random bytes, for tests of the daemon that need no model: experts of any size,
 * whole or striped over several drives, with replicas.
 *
 *	make_store STORE LAYERS EXPERTS BYTES [DRIVES [PARTS [COPIES]]]
 *
 * Expert e of layer l is the same for each call (a counter-based generator), and is written to
 * STORE.plain/experts/LLL/EEE as well, so that a mount can be compared with cmp. Drives beyond the
 * first are folders STORE.drive1, STORE.drive2, ...
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"

#define DRIVES_MAX 16

struct maker {
	const char *store;
	unsigned layers, experts, drives, parts, copies;
	uint64_t bytes;
	FILE *shard[DRIVES_MAX];
	char shard_path[DRIVES_MAX][PATH_MAX];
	uint64_t at[DRIVES_MAX];
	uint8_t id[STORE_ID_SIZE];
	struct catalog *catalog;
	char why[WHY_MAX];
};

static void quit(const char *what)
{
	fprintf(stderr, "make_store: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void quit_why(const struct maker *m)
{
	fprintf(stderr, "make_store: %s\n", m->why);
	exit(1);
}

/* splitmix64 of the position: any byte of any expert without the ones before it. */
static void fill_random(uint64_t *words, uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t z = (seed << 32) + (i + 1) * 0x9e3779b97f4a7c15u;
		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
		words[i] = z ^ (z >> 31);
	}
}

static void write_all(FILE *f, const void *data, size_t n)
{
	if (fwrite(data, 1, n, f) != n)
		quit("write");
}

static void make_folder(const char *path)
{
	if (mkdir(path, 0777) != 0 && errno != EEXIST)
		quit(path);
}

static void open_shards(struct maker *m)
{
	for (unsigned d = 0; d < m->drives; d++) {
		char dir[PATH_MAX - 16], block[SHARD_ALIGN] = { 0 };
		struct shard_head h = { .drive = d, .drives = m->drives };
		if (d == 0)
			snprintf(dir, sizeof(dir), "%s", m->store);
		else
			snprintf(dir, sizeof(dir), "%s.drive%u", m->store, d);
		make_folder(dir);
		snprintf(m->shard_path[d], PATH_MAX, "%s/test.shard", dir);
		m->shard[d] = fopen(m->shard_path[d], "w");
		if (!m->shard[d])
			quit(m->shard_path[d]);
		memcpy(h.store_id, m->id, STORE_ID_SIZE);
		shard_head_seal(&h);
		memcpy(block, &h, sizeof(h));
		write_all(m->shard[d], block, sizeof(block));
		m->at[d] = SHARD_ALIGN;
	}
}

static void write_part(struct maker *m, unsigned layer, unsigned expert, unsigned copy,
		       unsigned part, const char *data, uint64_t offset, uint64_t length)
{
	static const char zeros[SHARD_ALIGN];
	unsigned d = (expert + part + copy) % m->drives;
	struct record_head h = { .layer = layer,
				 .expert = expert,
				 .part = part,
				 .parts = m->parts,
				 .copy = copy,
				 .expert_bytes = m->bytes,
				 .part_offset = offset,
				 .part_bytes = length,
				 .payload_check = payload_check(data + offset, length) };
	struct extent x = { .offset = m->at[d] + SHARD_ALIGN,
			    .length = length,
			    .expert_offset = offset,
			    .check = h.payload_check,
			    .drive = (uint16_t)d,
			    .copy = (uint16_t)copy };
	char block[SHARD_ALIGN] = { 0 };

	memcpy(h.store_id, m->id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(block, &h, sizeof(h));
	write_all(m->shard[d], block, sizeof(block));
	write_all(m->shard[d], data + offset, length);
	write_all(m->shard[d], zeros, shard_round_up(length) - length);
	m->at[d] += record_bytes(length);
	if (catalog_add_extent(m->catalog, layer, expert, m->bytes, part, &x, m->why) != 0)
		quit_why(m);
}

static void write_expert(struct maker *m, unsigned layer, unsigned expert, char *data)
{
	uint64_t cut = shard_round_up((m->bytes + m->parts - 1) / m->parts);
	char path[PATH_MAX];
	FILE *f;

	fill_random((uint64_t *)(void *)data, (m->bytes + 7) / 8, (uint64_t)layer << 16 | expert);
	snprintf(path, sizeof(path), "%s.plain/experts/%03u/%03u", m->store, layer, expert);
	f = fopen(path, "w");
	if (!f)
		quit(path);
	write_all(f, data, m->bytes);
	if (fclose(f) != 0)
		quit(path);
	for (unsigned copy = 0; copy < m->copies; copy++) {
		uint64_t at = 0;
		for (unsigned part = 0; part < m->parts; part++) {
			uint64_t n =
				m->bytes - at < cut || part + 1 == m->parts ? m->bytes - at : cut;
			write_part(m, layer, expert, copy, part, data, at, n);
			at += n;
		}
	}
}

static void write_experts(struct maker *m)
{
	char path[PATH_MAX], *data = malloc(m->bytes + 8);

	if (!data)
		quit("memory");
	snprintf(path, sizeof(path), "%s.plain", m->store);
	make_folder(path);
	snprintf(path, sizeof(path), "%s.plain/experts", m->store);
	make_folder(path);
	for (unsigned l = 0; l < m->layers; l++) {
		snprintf(path, sizeof(path), "%s.plain/experts/%03u", m->store, l);
		make_folder(path);
		for (unsigned e = 0; e < m->experts; e++)
			write_expert(m, l, e, data);
	}
	free(data);
}

static void write_files(const struct maker *m)
{
	static const char *const names[] = { "model.json", "tokenizer.json", "dense.bin" };
	char path[PATH_MAX];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", m->store, names[i]);
		FILE *f = fopen(path, "w");
		if (!f || fprintf(f, "{\"test\": \"%s\"}\n", names[i]) < 0 || fclose(f) != 0)
			quit(path);
	}
}

int main(int argc, char **argv)
{
	struct maker m = { .drives = 1, .parts = 1, .copies = 1, .id = "test store" };
	char path[PATH_MAX], real[PATH_MAX];

	if (argc < 5) {
		fputs("usage: make_store STORE LAYERS EXPERTS BYTES [DRIVES [PARTS [COPIES]]]\n",
		      stderr);
		return 2;
	}
	m.store = argv[1];
	m.layers = (unsigned)atoi(argv[2]);
	m.experts = (unsigned)atoi(argv[3]);
	m.bytes = strtoull(argv[4], NULL, 10);
	m.drives = argc > 5 ? (unsigned)atoi(argv[5]) : 1;
	m.parts = argc > 6 ? (unsigned)atoi(argv[6]) : 1;
	m.copies = argc > 7 ? (unsigned)atoi(argv[7]) : 1;
	if (m.drives < 1 || m.drives > DRIVES_MAX)
		return 2;
	make_folder(m.store);
	open_shards(&m);
	snprintf(path, sizeof(path), "%s/catalog.db", m.store);
	if (catalog_create(path, m.id, &m.catalog, m.why) != 0)
		quit_why(&m);
	write_experts(&m);
	for (unsigned d = 0; d < m.drives; d++) {
		if (fclose(m.shard[d]) != 0 || !realpath(m.shard_path[d], real))
			quit(m.shard_path[d]);
		if (catalog_add_drive(m.catalog, d, d ? real : "test.shard", m.at[d], m.why) != 0)
			quit_why(&m);
	}
	if (catalog_finish(m.catalog, m.why) != 0)
		quit_why(&m);
	write_files(&m);
	return 0;
}
