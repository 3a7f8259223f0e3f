/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing, reading and comparing pack.state. See state.h.
 */
#include "tools/coli-pack/state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/xxh3.h"
#include "tools/coli-pack/textfile.h"

#define STATE_MAX (64u << 20)

static int no_memory(char *why)
{
	return fail(why, ENOMEM, "out of memory");
}

static void print_sum(FILE *f, const char *what, const char *text, size_t bytes)
{
	fprintf(f, "%s %zu bytes %016" PRIx64 "\n", what, bytes,
		(uint64_t)XXH3_64bits(text, bytes));
}

static const char *const speeds_names[] = {
	[SPEEDS_EQUAL] = "equal", [SPEEDS_MEASURED] = "measured", [SPEEDS_GIVEN] = "given"
};

static void print_spread(FILE *f, const struct plan *p)
{
	const struct spread *s = &p->spread;

	fprintf(f, "layout %s\nreplicas %u\n", s->layout == LAYOUT_WHOLE ? "whole" : "stripe",
		s->replicas);
	if (s->hot_bytes)
		fprintf(f, "replicate-hot %" PRIu64 " usage %016" PRIx64 "\n", s->hot_bytes,
			p->usage_check);
	fprintf(f, "speeds %s", speeds_names[s->speeds_from]);
	for (uint32_t i = 0; i < s->drives; i++)
		fprintf(f, " %" PRIu64, s->speed[i]);
	fputc('\n', f);
}

static bool keeps_mxfp4(const struct plan *p)
{
	for (int i = 0; i < p->layers && p->options.keep; i++)
		if (p->layer[i].form == EXPERTS_MXFP4)
			return true;
	return false;
}

char *state_identity(const struct plan *p, const struct output *o, const char *model_json)
{
	const struct checkpoint *ck = p->ck;
	char *text = NULL;
	size_t bytes;
	FILE *f = open_memstream(&text, &bytes);

	if (!f)
		return NULL;
	fprintf(f, "bits %d%s\ndense-bits %d\ngroup-size %d\n", p->options.bits,
		keeps_mxfp4(p) ? ", MXFP4 as it is" : "", p->options.dense_bits, p->options.group);
	print_spread(f, p);
	fprintf(f, "checkpoint %s\n", ck->name);
	print_sum(f, "model.json", model_json, strlen(model_json));
	print_sum(f, "tokenizer.json", ck->tokenizer_text, ck->tokenizer_bytes);
	for (size_t i = 0; i < ck->files; i++) {
		const struct st_file *s = &ck->file[i];
		fprintf(f, "file %s %" PRIu64 " bytes %lld.%09ld header %016" PRIx64 "\n",
			strrchr(s->path, '/') + 1, s->bytes, (long long)s->mtime.tv_sec,
			s->mtime.tv_nsec, s->header_check);
	}
	for (uint32_t i = 0; i < o->drives; i++)
		fprintf(f, "shard %s\n", o->shard[i].path);
	bool bad = ferror(f);
	if (fclose(f) != 0 || bad) {
		free(text);
		return NULL;
	}
	return text;
}

int state_init(struct state *s, const struct output *o, char *identity, char *why)
{
	*s = (struct state){ .identity = identity, .drives = o->drives };
	memcpy(s->store_id, o->store_id, STORE_ID_SIZE);
	s->durable = calloc(o->drives, sizeof(*s->durable));
	return s->durable && identity ? 0 : no_memory(why);
}

void state_free(struct state *s)
{
	free(s->identity);
	free(s->durable);
	*s = (struct state){ 0 };
}

static char *to_text(const struct state *s)
{
	char *text = NULL;
	size_t bytes;
	char id[2 * STORE_ID_SIZE + 1];
	FILE *f = open_memstream(&text, &bytes);

	if (!f)
		return NULL;
	id_to_hex(s->store_id, id);
	fprintf(f, "coli-pack 1\nstore_id %s\ndense %" PRIu64 "\ndurable", id, s->dense);
	for (uint32_t i = 0; i < s->drives; i++)
		fprintf(f, " %" PRIu64, s->durable[i]);
	fprintf(f, "\n--\n%s", s->identity);
	bool bad = ferror(f);
	if (fclose(f) != 0 || bad) {
		free(text);
		return NULL;
	}
	return text;
}

int state_save(const struct state *s, int dir_fd, const char *dir, char *why)
{
	char *path = text_format("%s/" STATE_NEW, dir), *text = to_text(s);
	int err = path && text ? text_save(path, text, strlen(text), why) : no_memory(why);

	if (err == 0 && renameat(dir_fd, STATE_NEW, dir_fd, STATE_NAME) != 0)
		err = fail(why, errno, "cannot rename %s: %s", path, strerror(errno));
	free(path);
	free(text);
	return err;
}

/* The rest of the line at text. */
static bool parse_id(const char *text, uint8_t id[STORE_ID_SIZE])
{
	char hex[2 * STORE_ID_SIZE + 1];

	snprintf(hex, sizeof(hex), "%.*s", 2 * STORE_ID_SIZE, text);
	return id_from_hex(hex, id) == 0 && text[2 * STORE_ID_SIZE] == '\n';
}

/* "NAME value\n" -> the value, with *at moved behind the line; NULL if the line is another. */
static const char *take_line(const char **at, const char *name)
{
	const char *end = strchr(*at, '\n'), *value = *at + strlen(name);

	if (!end || strncmp(*at, name, strlen(name)) != 0)
		return NULL;
	*at = end + 1;
	return value;
}

/* A number of digits only; moves *at behind it. */
static bool take_number(const char **at, uint64_t *out)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*out = strtoull(*at, &end, 10);
	*at = end;
	return true;
}

static int parse(struct state *s, const char *text)
{
	const char *at = text;
	const char *magic = take_line(&at, "coli-pack 1");
	const char *id = magic ? take_line(&at, "store_id ") : NULL;
	const char *dense = id ? take_line(&at, "dense ") : NULL;
	const char *durable = dense ? take_line(&at, "durable ") : NULL;
	const char *end = durable ? take_line(&at, "--") : NULL;

	if (!end || *magic != '\n' || *end != '\n' || !parse_id(id, s->store_id) ||
	    !take_number(&dense, &s->dense) || *dense != '\n')
		return -EINVAL;
	for (bool more = true; more; durable++) {
		uint64_t *room = reallocarray(s->durable, s->drives + 1, sizeof(*room));
		if (!room)
			return -ENOMEM;
		s->durable = room;
		if (!take_number(&durable, &room[s->drives++]))
			return -EINVAL;
		more = *durable == ' ';
		if (!more && *durable != '\n')
			return -EINVAL;
	}
	s->identity = strdup(at);
	return s->identity ? 0 : -ENOMEM;
}

int state_load(struct state *s, const char *dir, char *why)
{
	char *path = text_format("%s/" STATE_NAME, dir), *text = NULL;
	size_t bytes;
	int err = path ? text_load(path, STATE_MAX, &text, &bytes, why) : no_memory(why);

	*s = (struct state){ 0 };
	if (err == 0 && text && (err = parse(s, text)) != 0) {
		fail(why, -err, "%s is damaged", path);
		state_free(s);
	}
	free(path);
	free(text);
	return err;
}

bool state_differs(const char *a, const char *b, char buf[2][128])
{
	while (*a && *b) {
		size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
		if (n != m || memcmp(a, b, n) != 0)
			break;
		a += n + (a[n] != '\0');
		b += m + (b[m] != '\0');
	}
	snprintf(buf[0], sizeof(buf[0]), "%.*s", (int)strcspn(a, "\n"), a);
	snprintf(buf[1], sizeof(buf[1]), "%.*s", (int)strcspn(b, "\n"), b);
	return *a || *b;
}

static bool parse_speeds(const char *at, uint64_t *speed, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (*at++ != ' ' || !take_number(&at, &speed[i]) || speed[i] == 0)
			return false;
	return *at == '\n';
}

bool state_speeds(const char *identity, enum speeds_from *from, uint64_t *speed, uint32_t n)
{
	static const char start[] = "speeds ";

	for (const char *line = identity; *line;) {
		size_t length = strcspn(line, "\n");
		const char *at = line + sizeof(start) - 1;
		for (int i = SPEEDS_EQUAL; i <= SPEEDS_GIVEN; i++) {
			size_t name = strlen(speeds_names[i]);
			if (strncmp(line, start, sizeof(start) - 1) == 0 &&
			    strncmp(at, speeds_names[i], name) == 0) {
				*from = (enum speeds_from)i;
				return parse_speeds(at + name, speed, n);
			}
		}
		line += length + (line[length] != '\0');
	}
	return false;
}

char *state_shard_path(const char *identity, uint32_t i)
{
	static const char start[] = "shard /";

	for (const char *line = identity; *line;) {
		size_t n = strcspn(line, "\n");
		if (strncmp(line, start, sizeof(start) - 1) == 0 && i-- == 0)
			return strndup(line + sizeof(start) - 2, n - (sizeof(start) - 2));
		line += n + (line[n] != '\0');
	}
	return NULL;
}
