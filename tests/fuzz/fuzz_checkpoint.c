/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint folders, from the configuration to the plan of what is packed, and model.json, which the
 * engine reads. The input is config.json, the header of a safetensors file and tokenizer_config.json,
 * each a text up to a byte of zero; the tensors themselves are zeros.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_json.h"

#include <string.h>
#include <sys/stat.h>

#include "engine/modelfile.h"
#include "expertfs/fail.h"
#include "tools/coli-pack/modeljson.h"

#define DATA_MAX ((json_int_t)1 << 30)
#define ROW_MAX  ((size_t)1 << 20) /* of those that are read here */

static char dir[64];
static const char *const names[] = { "config.json", "model.safetensors", "tokenizer_config.json",
				     "tokenizer.json" };
#define NAMES (sizeof(names) / sizeof(names[0]))

static void remove_folder(void)
{
	char path[128];

	for (size_t i = 0; i < NAMES; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

static void put(const char *name, const void *head, size_t head_size, const void *text, size_t size,
		off_t file_size)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, head, head_size) != (ssize_t)head_size ||
	    write(fd, text, size) != (ssize_t)size || (file_size && ftruncate(fd, file_size) != 0))
		abort();
	close(fd);
}

static void make_folder(void)
{
	snprintf(dir, sizeof(dir), "/dev/shm/fuzz.%ld", (long)getpid());
	if (mkdir(dir, 0700) != 0)
		abort();
	atexit(remove_folder);
	put("tokenizer.json", NULL, 0, "{}", 2, 0);
}

/* How long the tensors would be, so that the file is. */
static off_t data_size(const char *header, size_t size)
{
	json_t *root = json_loadb(header, size, 0, NULL), *entry;
	json_int_t end = 0;
	const char *name;

	json_object_foreach(root, name, entry)
	{
		json_int_t to = json_integer_value(
			json_array_get(json_object_get(entry, "data_offsets"), 1));
		end = to > end && to <= DATA_MAX ? to : end;
	}
	json_decref(root);
	return (off_t)end;
}

static void put_tensors(const char *header, size_t size)
{
	uint64_t bytes = size;

	put("model.safetensors", &bytes, sizeof(bytes), header, size,
	    (off_t)(sizeof(bytes) + size) + data_size(header, size));
}

/* What was planned must be there: the last row can be read. */
static void read_last(const struct source *s)
{
	size_t bytes = source_row_bytes(s), scales = source_scales(s, s->rows - 1, 1);
	char why[WHY_MAX];

	if (bytes > ROW_MAX || scales > ROW_MAX)
		return;
	char *buf = malloc(bytes);
	float *scale = malloc(scales * sizeof(*scale)), *row = malloc((size_t)s->cols * 4);
	if (!buf || !scale || !row || source_read(s, s->rows - 1, 1, buf, scale, why) != 0)
		abort();
	source_row(s, s->rows - 1, s->rows - 1, buf, scale, row);
	free(buf);
	free(scale);
	free(row);
}

static void check_plan(const struct plan *p)
{
	struct modelfile *m;
	struct source s;
	char why[WHY_MAX], *text;

	for (size_t i = 0; i < p->dense_count; i++)
		read_last(&p->dense[i].src);
	for (int k = 0; k < MATRICES && p->experts; k++) {
		if (plan_expert_source(p, p->experts - 1, k, &s, why) != 0)
			abort();
		read_last(&s);
	}
	if (modeljson_text(p, &text, why) != 0)
		return;
	if (modelfile_parse(text, strlen(text), "fuzz", "fuzz", &m, why) == 0)
		modelfile_free(m);
	free(text);
}

static void plan(const struct checkpoint *ck, int bits, int dense_bits, bool keep)
{
	static const uint64_t speed = 1;
	const struct spread one = { .replicas = 1, .drives = 1, .speed = &speed };
	const struct pack_options o = {
		.bits = bits, .keep = keep, .dense_bits = dense_bits, .group = 32
	};
	char why[WHY_MAX];
	struct plan *p;

	if (plan_make(ck, &o, &one, &p, why) != 0)
		return;
	check_plan(p);
	plan_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *part[3] = { (const char *)data, "", "" };
	size_t n[3] = { size, 0, 0 };
	struct checkpoint *ck;
	char why[WHY_MAX];
	int missing;

	if (!dir[0])
		make_folder();
	for (int i = 0; i < 2; i++) {
		const char *zero = n[i] ? memchr(part[i], 0, n[i]) : NULL;
		if (!zero)
			break;
		part[i + 1] = zero + 1;
		n[i + 1] = n[i] - (size_t)(zero + 1 - part[i]);
		n[i] = (size_t)(zero - part[i]);
	}
	put("config.json", NULL, 0, part[0], n[0], 0);
	put_tensors(part[1], n[1]);
	put("tokenizer_config.json", NULL, 0, n[2] ? part[2] : "{}", n[2] ? n[2] : 2, 0);
	if (ckpt_open(dir, &ck, &missing, why) != 0)
		return 0;
	plan(ck, 4, 8, true);
	plan(ck, 16, 32, false);
	ckpt_close(ck);
	return 0;
}
