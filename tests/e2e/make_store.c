/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a store of random bytes, for tests of the daemon that need no model: experts of any size,
 * whole or striped over several drives, with replicas.
 *
 *	make_store [OPTION...] STORE LAYERS EXPERTS BYTES [DRIVES [PARTS [COPIES]]]
 *	    --first-layer L   layers are L, L+1, ... (default 0)
 *	    --share N         only N different experts are written, the others have the same extents:
 *	                      a store of any number of experts on little disk. Its shards do not tell
 *	                      which experts there are, so it cannot be rebuilt from them
 *	    --no-plain        no plain folder
 *
 * Expert e of layer l is the same for each call (a counter-based generator), and lies in
 * STORE.plain/experts/LLL/EEE as well, so that a mount can be compared with cmp. Drives beyond the
 * first are folders STORE.drive1, STORE.drive2, ...
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdbool.h>
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
	unsigned first_layer, layers, experts, drives, parts, copies;
	unsigned share; /* different experts that are written */
	bool plain;
	uint64_t bytes;
	struct extent *extent; /* of the written experts: copies * parts each */
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

static struct extent write_part(struct maker *m, const struct record_head *head, const char *data)
{
	static const char zeros[SHARD_ALIGN];
	unsigned d = (head->expert + head->part + head->copy) % m->drives;
	struct record_head h = *head;
	struct extent x = { .offset = m->at[d] + SHARD_ALIGN,
			    .length = h.part_bytes,
			    .expert_offset = h.part_offset,
			    .check = payload_check(data + h.part_offset, h.part_bytes),
			    .drive = (uint16_t)d,
			    .copy = (uint16_t)h.copy };
	char block[SHARD_ALIGN] = { 0 };

	h.payload_check = x.check;
	memcpy(h.store_id, m->id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(block, &h, sizeof(h));
	write_all(m->shard[d], block, sizeof(block));
	write_all(m->shard[d], data + h.part_offset, h.part_bytes);
	write_all(m->shard[d], zeros, shard_round_up(h.part_bytes) - h.part_bytes);
	m->at[d] += record_bytes(h.part_bytes);
	return x;
}

/* All copies of one expert into the shards, and where they lie into x. */
static void write_expert(struct maker *m, unsigned layer, unsigned expert, const char *data,
			 struct extent *x)
{
	uint64_t cut = shard_round_up((m->bytes + m->parts - 1) / m->parts);

	for (unsigned copy = 0; copy < m->copies; copy++) {
		uint64_t at = 0;
		for (unsigned part = 0; part < m->parts; part++) {
			uint64_t left = m->bytes - at;
			struct record_head h = { .layer = layer,
						 .expert = expert,
						 .part = part,
						 .parts = m->parts,
						 .copy = copy,
						 .expert_bytes = m->bytes,
						 .part_offset = at };
			h.part_bytes = left < cut || part + 1 == m->parts ? left : cut;
			at += h.part_bytes;
			*x++ = write_part(m, &h, data);
		}
	}
}

/* The path of flat expert number i in the plain folder. */
static void plain_path(const struct maker *m, unsigned i, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s.plain/experts/%03u/%03u", m->store,
		 m->first_layer + i / m->experts, i % m->experts);
}

static void write_plain(const struct maker *m, unsigned i, const char *data)
{
	char path[PATH_MAX];
	FILE *f;

	plain_path(m, i, path);
	f = fopen(path, "w");
	if (!f)
		quit(path);
	write_all(f, data, m->bytes);
	if (fclose(f) != 0)
		quit(path);
}

static void link_plain(const struct maker *m, unsigned i)
{
	char from[PATH_MAX], to[PATH_MAX];

	plain_path(m, i % m->share, from);
	plain_path(m, i, to);
	if ((unlink(to) != 0 && errno != ENOENT) || link(from, to) != 0)
		quit(to);
}

static void make_plain_folders(const struct maker *m)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s.plain", m->store);
	make_folder(path);
	snprintf(path, sizeof(path), "%s.plain/experts", m->store);
	make_folder(path);
	for (unsigned l = 0; l < m->layers; l++) {
		snprintf(path, sizeof(path), "%s.plain/experts/%03u", m->store, m->first_layer + l);
		make_folder(path);
	}
}

/* Expert number i: its bytes, if it is one of those that are written, and its rows. */
static void make_expert(struct maker *m, unsigned i, char *data)
{
	unsigned layer = m->first_layer + i / m->experts, expert = i % m->experts;
	struct extent *x = m->extent + (size_t)(i % m->share) * m->copies * m->parts;

	if (i < m->share) {
		fill_random((uint64_t *)(void *)data, (m->bytes + 7) / 8,
			    (uint64_t)layer << 16 | expert);
		write_expert(m, layer, expert, data, x);
		if (m->plain)
			write_plain(m, i, data);
	} else if (m->plain) {
		link_plain(m, i);
	}
	for (unsigned n = 0; n < m->copies * m->parts; n++, x++)
		if (catalog_add_extent(m->catalog, layer, expert, m->bytes, n % m->parts, x,
				       m->why) != 0)
			quit_why(m);
}

static void write_experts(struct maker *m)
{
	unsigned all = m->layers * m->experts;
	char *data = malloc(m->bytes + 8);

	if (m->share == 0 || m->share > all)
		m->share = all;
	m->extent = calloc((size_t)m->share * m->copies * m->parts, sizeof(*m->extent));
	if (!data || !m->extent)
		quit("memory");
	if (m->plain)
		make_plain_folders(m);
	for (unsigned i = 0; i < all; i++)
		make_expert(m, i, data);
	free(m->extent);
	free(data);
}

/* The drives' rows in the catalog, and the list of them beside it. */
static void close_shards(struct maker *m)
{
	char real[DRIVES_MAX][PATH_MAX];
	const char *paths[DRIVES_MAX];

	for (unsigned d = 0; d < m->drives; d++) {
		if (fclose(m->shard[d]) != 0 || !realpath(m->shard_path[d], real[d]))
			quit(m->shard_path[d]);
		paths[d] = d ? real[d] : "test.shard";
		if (catalog_add_drive(m->catalog, d, paths[d], m->at[d], m->why) != 0)
			quit_why(m);
	}
	if (store_write_shards(m->store, paths, m->drives, m->why) != 0)
		quit_why(m);
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

static bool parse(struct maker *m, int argc, char **argv)
{
	static const struct option longs[] = { { "first-layer", required_argument, NULL, 'l' },
					       { "share", required_argument, NULL, 's' },
					       { "no-plain", no_argument, NULL, 'p' },
					       { 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		if (c == 'l')
			m->first_layer = (unsigned)atoi(optarg);
		else if (c == 's')
			m->share = (unsigned)atoi(optarg);
		else if (c == 'p')
			m->plain = false;
		else
			return false;
	}
	argv += optind - 1;
	argc -= optind - 1;
	if (argc < 5 || argc > 8)
		return false;
	m->store = argv[1];
	m->layers = (unsigned)atoi(argv[2]);
	m->experts = (unsigned)atoi(argv[3]);
	m->bytes = strtoull(argv[4], NULL, 10);
	m->drives = argc > 5 ? (unsigned)atoi(argv[5]) : 1;
	m->parts = argc > 6 ? (unsigned)atoi(argv[6]) : 1;
	m->copies = argc > 7 ? (unsigned)atoi(argv[7]) : 1;
	return m->layers && m->experts && m->bytes && m->parts && m->copies && m->drives &&
	       m->drives <= DRIVES_MAX;
}

int main(int argc, char **argv)
{
	struct maker m = { .plain = true, .id = "test store" };
	char path[PATH_MAX];

	if (!parse(&m, argc, argv)) {
		fputs("usage: make_store [--first-layer L] [--share N] [--no-plain] STORE LAYERS "
		      "EXPERTS BYTES [DRIVES [PARTS [COPIES]]]\n",
		      stderr);
		return 2;
	}
	make_folder(m.store);
	open_shards(&m);
	snprintf(path, sizeof(path), "%s/catalog.db", m.store);
	if (catalog_create(path, m.id, &m.catalog, m.why) != 0)
		quit_why(&m);
	write_experts(&m);
	close_shards(&m);
	if (catalog_finish(m.catalog, m.why) != 0)
		quit_why(&m);
	write_files(&m);
	return 0;
}
