/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a model of random weights with the sizes of a real one, to measure speed with.
 *
 *	make_model --preset NAME [--plain] [--distinct N] [--CONFIG_KEY N]... DIR
 *
 * DIR becomes a store with one shard, as coli-pack would write it, or with --plain the plain folder
 * that coli-engine reads without a daemon. Both hold the same bytes. --distinct N: only N different
 * experts are written, expert number i (counted over all layers) has the bytes of number i modulo N:
 * extents of the catalog then name the same record, or files are hard links. The daemon reads each
 * such expert from the drive like any other, since it goes by the catalog; its shard does not tell
 * which experts there are, so such a store cannot be rebuilt from it. N is the number of experts of a
 * layer or more, so that a layer never has one twice.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/fail.h"
#include "engine/modelfile.h"
#include "expertfs/catalog.h"
#include "expertfs/disk.h"
#include "tests/bench/engine/fill.h"
#include "tests/bench/engine/geometry.h"

#define PATH_BYTES 4096
#define SHARD_NAME "model.shard"

static const uint8_t store_id[STORE_ID_SIZE] = "random weights";

struct maker {
	struct geometry g;
	const char *dir;
	bool plain;
	struct modelfile *file;
	/* Experts are counted over all layers that have some. */
	int *layer; /* of the model, of each of these layers */
	uint32_t experts, distinct;
	char *record; /* head and payload; on 4 KiB */
	struct extent *extent;
	struct catalog *catalog;
	int shard;
	uint64_t at; /* end of the shard */
};

static int path_fail(char *why, const char *path, int err)
{
	fail(why, err, "%s: %s", path, strerror(err));
	return -EIO; /* which error it was stands in why, and nobody else asks */
}

static int write_text(const struct maker *m, const char *name, const char *text, char *why)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/%s", m->dir, name);
	FILE *f = fopen(path, "w");
	if (!f)
		return path_fail(why, path, errno);
	int bad = fputs(text, f) < 0;
	if (fclose(f) != 0 || bad)
		return path_fail(why, path, errno);
	return 0;
}

static int write_texts(struct maker *m, char *why)
{
	char *text;
	int r = geometry_tokenizer_json(&m->g, &text, why);

	if (r)
		return r;
	r = write_text(m, "tokenizer.json", text, why);
	free(text);
	if (!r)
		r = geometry_model_json(&m->g, &text, why);
	if (r)
		return r;
	r = write_text(m, "model.json", text, why);
	if (!r) /* checks all of it, and gives the offsets that are written to */
		r = modelfile_parse(text, strlen(text), m->dir, "model.json", &m->file, why);
	free(text);
	return r;
}

/* A new file of so many bytes, mapped. */
static int map_new(const char *path, uint64_t bytes, char **base, char *why)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	if (fd < 0)
		return path_fail(why, path, errno);
	/* A full disk is an error here, and not a signal when a page is written. */
	int err = posix_fallocate(fd, 0, (off_t)bytes);
	if (!err) {
		*base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (*base == MAP_FAILED)
			err = errno;
	}
	close(fd);
	return err ? path_fail(why, path, err) : 0;
}

static int write_dense(const struct maker *m, char *why)
{
	char path[PATH_BYTES], *base;

	snprintf(path, sizeof(path), "%s/dense.bin", m->dir);
	int r = map_new(path, m->file->dense_bytes, &base, why);
	if (r)
		return r;
	for (size_t i = 0; i < m->file->tensors; i++)
		fill_tensor(&m->file->tensor[i], UINT32_MAX - i, base + m->file->tensor[i].offset);
	munmap(base, m->file->dense_bytes);
	return 0;
}

static int layer_of(const struct maker *m, uint32_t i)
{
	return m->layer[i / (uint32_t)m->g.size[SIZE_EXPERTS]];
}

static uint32_t number_of(const struct maker *m, uint32_t i)
{
	return i % (uint32_t)m->g.size[SIZE_EXPERTS];
}

static const struct expert_layout *layout_of(const struct maker *m, uint32_t i)
{
	return m->file->layer_layout[layer_of(m, i)];
}

static void fill_expert(const struct maker *m, uint32_t i, char *to)
{
	const struct expert_layout *l = layout_of(m, i);

	for (uint64_t k = 0; k < EXPERT_MATRICES; k++)
		fill_tensor(&l->matrix[k], EXPERT_MATRICES * (uint64_t)i + k,
			    to + l->matrix[k].offset);
}

static void plain_path(const struct maker *m, uint32_t i, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%s/experts/%03d/%03u", m->dir, layer_of(m, i), number_of(m, i));
}

static int make_folder(const char *path, char *why)
{
	return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : path_fail(why, path, errno);
}

static int write_plain(const struct maker *m, uint32_t i, char *why)
{
	char path[PATH_BYTES], first[PATH_BYTES], *base;
	uint64_t bytes = layout_of(m, i)->bytes;

	plain_path(m, i, path);
	if (i >= m->distinct) {
		plain_path(m, i % m->distinct, first);
		return link(first, path) == 0 ? 0 : path_fail(why, path, errno);
	}
	int r = map_new(path, bytes, &base, why);
	if (r)
		return r;
	fill_expert(m, i, base);
	munmap(base, bytes);
	return 0;
}

static int write_folder(const struct maker *m, char *why)
{
	char path[PATH_BYTES];
	int r;

	snprintf(path, sizeof(path), "%s/experts", m->dir);
	r = make_folder(path, why);
	for (uint32_t i = 0; i < m->experts && !r; i++) {
		if (number_of(m, i) == 0) {
			snprintf(path, sizeof(path), "%s/experts/%03d", m->dir, layer_of(m, i));
			r = make_folder(path, why);
		}
		if (!r)
			r = write_plain(m, i, why);
	}
	return r;
}

/* Writes the record of expert i behind the last one. */
static int write_record(struct maker *m, uint32_t i, char *why)
{
	uint64_t bytes = layout_of(m, i)->bytes;
	char *payload = m->record + SHARD_ALIGN;
	struct record_head h = { .layer = (uint32_t)layer_of(m, i),
				 .expert = number_of(m, i),
				 .parts = 1,
				 .expert_bytes = bytes,
				 .part_bytes = bytes };

	fill_expert(m, i, payload);
	memset(payload + bytes, 0, shard_round_up(bytes) - bytes);
	h.payload_check = payload_check(payload, bytes);
	memcpy(h.store_id, store_id, STORE_ID_SIZE);
	record_head_seal(&h);
	memcpy(m->record, &h, sizeof(h));
	m->extent[i] = (struct extent){ .offset = m->at + SHARD_ALIGN,
					.length = bytes,
					.check = h.payload_check };
	int r = direct_write(m->shard, m->record, record_bytes(bytes), m->at, NULL);
	if (r)
		return path_fail(why, SHARD_NAME, -r);
	m->at += record_bytes(bytes);
	return 0;
}

static int write_experts(struct maker *m, char *why)
{
	struct shard_head head = { .drives = 1 };
	int r;

	memcpy(head.store_id, store_id, STORE_ID_SIZE);
	shard_head_seal(&head);
	memset(m->record, 0, SHARD_ALIGN);
	memcpy(m->record, &head, sizeof(head));
	r = direct_write(m->shard, m->record, SHARD_ALIGN, 0, NULL);
	if (r)
		return path_fail(why, SHARD_NAME, -r);
	memset(m->record, 0, SHARD_ALIGN);
	m->at = SHARD_ALIGN;
	for (uint32_t i = 0; i < m->experts && !r; i++) {
		if (i < m->distinct)
			r = write_record(m, i, why);
		if (!r)
			r = catalog_add_extent(m->catalog, (unsigned)layer_of(m, i),
					       number_of(m, i), layout_of(m, i)->bytes, 0,
					       &m->extent[i % m->distinct], why);
	}
	if (!r && fsync(m->shard) != 0)
		r = path_fail(why, SHARD_NAME, errno);
	return r;
}

static int open_store(struct maker *m, char *why)
{
	char path[PATH_BYTES];
	bool direct;

	snprintf(path, sizeof(path), "%s/" SHARD_NAME, m->dir);
	m->shard = direct_open(path, O_RDWR | O_CREAT | O_TRUNC, &direct);
	if (m->shard < 0)
		return path_fail(why, path, -m->shard);
	snprintf(path, sizeof(path), "%s/catalog.db", m->dir);
	if (unlink(path) != 0 && errno != ENOENT)
		return path_fail(why, path, errno);
	m->record = aligned_alloc(SHARD_ALIGN, record_bytes(m->file->largest_expert));
	m->extent = calloc(m->distinct, sizeof(*m->extent));
	if (!m->record || !m->extent)
		return fail(why, ENOMEM, "no memory");
	struct catalog *c = NULL;
	int r = catalog_create(path, store_id, &c, why);
	m->catalog = c;
	return r;
}

static int write_store(struct maker *m, char *why)
{
	const char *shards[] = { SHARD_NAME };
	int r = open_store(m, why);

	if (!r)
		r = write_experts(m, why);
	if (!r)
		r = catalog_add_drive(m->catalog, 0, SHARD_NAME, m->at, why);
	if (!r)
		r = store_write_shards(m->dir, shards, 1, why);
	if (r) {
		catalog_abandon(m->catalog);
	} else {
		r = catalog_finish(m->catalog, why);
	}
	free(m->record);
	free(m->extent);
	if (m->shard >= 0)
		close(m->shard);
	return r;
}

static int count_experts(struct maker *m, char *why)
{
	const struct model_config *c = &m->file->config;
	uint32_t n = 0;

	m->layer = calloc((size_t)c->layers, sizeof(*m->layer));
	if (!m->layer)
		return fail(why, ENOMEM, "no memory");
	for (int i = 0; i < c->layers; i++)
		if (c->sparse[i])
			m->layer[n++] = i;
	m->experts = n * (uint32_t)c->experts;
	m->distinct = (uint32_t)m->g.distinct;
	if (!m->distinct || m->distinct > m->experts)
		m->distinct = m->experts;
	if (!n || m->distinct < (uint32_t)c->experts) {
		fail(why, EINVAL, "%u experts are too few for layers of %d", m->distinct,
		     c->experts);
		return -EINVAL;
	}
	return 0;
}

static int make(struct maker *m, char *why)
{
	int r = make_folder(m->dir, why);

	if (!r)
		r = write_texts(m, why);
	if (!r)
		r = count_experts(m, why);
	if (!r)
		r = write_dense(m, why);
	if (!r)
		r = m->plain ? write_folder(m, why) : write_store(m, why);
	modelfile_free(m->file);
	free(m->layer);
	return r;
}

static void usage(FILE *f)
{
	fputs("usage: make_model --preset NAME [--plain] [--distinct N] [--CONFIG_KEY N]... DIR\n"
	      "Writes a model of random weights: a store, or with --plain a plain folder.\n\n",
	      f);
	for (size_t i = 0; i < preset_count; i++)
		fprintf(f, "  --preset %-12s%s\n", presets[i].name, presets[i].about);
	fputs("  --distinct N         only N different experts are written, the others share "
	      "their bytes\n\n"
	      "Sizes that are to differ from the preset's, by their names in config.json:\n",
	      f);
	for (int i = 0; i < SIZES; i++)
		fprintf(f, "  --%s N\n", size_key[i]);
}

enum { OPT_HELP = 256, OPT_PRESET, OPT_PLAIN, OPT_DISTINCT, OPT_SIZE };

static bool take_preset(struct maker *m, const char *name)
{
	for (size_t i = 0; i < preset_count; i++)
		if (strcmp(presets[i].name, name) == 0) {
			m->g = presets[i];
			return true;
		}
	return false;
}

static bool take_number(const char *text, int *to)
{
	char *end;
	long v = strtol(text, &end, 10);

	*to = (int)v;
	return end != text && !*end && v >= 0 && v < 1 << 28;
}

static bool parse(struct maker *m, int argc, char **argv)
{
	struct option options[OPT_SIZE - OPT_HELP + SIZES + 1] = {
		{ "help", no_argument, NULL, OPT_HELP },
		{ "preset", required_argument, NULL, OPT_PRESET },
		{ "plain", no_argument, NULL, OPT_PLAIN },
		{ "distinct", required_argument, NULL, OPT_DISTINCT },
	};
	bool ok = true;
	int code;

	for (int i = 0; i < SIZES; i++)
		options[OPT_SIZE - OPT_HELP + i] =
			(struct option){ size_key[i], required_argument, NULL, OPT_SIZE + i };
	while (ok && (code = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (code == OPT_HELP) {
			usage(stdout);
			exit(0);
		} else if (code == OPT_PRESET) {
			ok = take_preset(m, optarg);
		} else if (code == OPT_PLAIN) {
			m->plain = true;
		} else if (code == OPT_DISTINCT) {
			ok = take_number(optarg, &m->g.distinct);
		} else {
			ok = code >= OPT_SIZE && m->g.name &&
			     take_number(optarg, &m->g.size[code - OPT_SIZE]);
		}
	}
	m->dir = argv[optind];
	return ok && m->g.name && optind == argc - 1;
}

int main(int argc, char **argv)
{
	struct maker m = { .shard = -1 };
	char why[WHY_MAX] = "";

	if (!parse(&m, argc, argv)) {
		usage(stderr);
		return 2;
	}
	if (make(&m, why) == 0)
		return 0;
	fprintf(stderr, "make_model: %s\n", why);
	return 1;
}
