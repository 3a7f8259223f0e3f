/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is run: model.json is the input, its files are numbers without meaning. Whatever the
 * configuration says, the tokens of a prompt fed at once and one by one give the same logits, with
 * guesses between them or without. Where tensors lie is made to fit their shapes first: whether that
 * is checked, fuzz_model sees.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_json.h"

#include <errno.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "engine/fail.h"

/* Of models that are small enough to be run many times. */
#define LAYERS       9
#define EXPERTS      32
#define DENSE_BYTES  ((uint64_t)4 << 20)
#define EXPERT_BYTES ((uint64_t)128 << 10)
#define VOCAB        4096
#define MEMORY       ((uint64_t)64 << 20)

#define PROMPT  20
#define GUESSES 2

static char dir[64];
static uint64_t expert_bytes[LAYERS], dense_bytes;

/* Each byte is the upper one of a small number in float32, bfloat16 and float16. */
static void put(const char *path, uint64_t bytes)
{
	uint8_t *data = malloc(bytes);
	uint32_t x = 1;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || !data)
		abort();
	for (uint64_t i = 0; i < bytes; i++) {
		x = x * 1664525 + 1013904223;
		data[i] = (uint8_t)((x >> 31 << 7) + 0x2c + (x >> 16) % 20);
	}
	if (write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	close(fd);
	free(data);
}

static const char *name(const char *form, int layer, int expert)
{
	static char path[128];
	size_t n = (size_t)snprintf(path, sizeof(path), "%s/", dir);

	snprintf(path + n, sizeof(path) - n, form, layer, expert);
	return path;
}

static void remove_folder(void)
{
	for (int l = 0; l < LAYERS; l++) {
		for (int e = 0; e < EXPERTS; e++)
			unlink(name("experts/%03d/%03d", l, e));
		rmdir(name("experts/%03d", l, 0));
		unlink(name("layer-%d", l, 0));
	}
	rmdir(name("experts", 0, 0));
	unlink(name("dense.bin", 0, 0));
	rmdir(dir);
}

/* The experts of a layer are one file. */
static void make_folder(void)
{
	char target[64];

	snprintf(dir, sizeof(dir), "/dev/shm/fuzz.%ld", (long)getpid());
	if (mkdir(dir, 0700) != 0 || mkdir(name("experts", 0, 0), 0700) != 0)
		abort();
	for (int l = 0; l < LAYERS; l++) {
		snprintf(target, sizeof(target), "../../layer-%d", l);
		if (mkdir(name("experts/%03d", l, 0), 0700) != 0)
			abort();
		for (int e = 0; e < EXPERTS; e++)
			if (symlink(target, name("experts/%03d/%03d", l, e)) != 0)
				abort();
	}
	atexit(remove_folder);
}

/* The tensors of a list one behind the other from 0 on; where the last one ends. */
static json_int_t lay_out(json_t *list)
{
	json_int_t at = 0;
	json_t *t;
	size_t i;

	json_array_foreach(list, i, t)
	{
		const char *type = json_string_value(json_object_get(t, "type"));
		const json_t *shape = json_object_get(t, "shape");
		size_t dims = json_array_size(shape);
		json_int_t rows = dims == 2 ? json_integer_value(json_array_get(shape, 0)) : 1;
		json_int_t cols = json_integer_value(json_array_get(shape, dims - 1));
		struct wfmt f = { W_F32, (int)json_integer_value(json_object_get(t, "group")) };
		if (!type || wtype_parse(type, &f.type) != 0 || rows < 1 || cols < 1 ||
		    rows > 1 << 16 || cols > 1 << 16 || cols % wtype_block(f.type) ||
		    ((f.type == W_Q8 || f.type == W_Q4) && f.group != 32 && f.group != 64 &&
		     f.group != 128))
			continue;
		json_int_t bytes = (json_int_t)wfmt_bytes(f, rows, (int)cols);
		json_object_set_new(t, "offset", json_integer(at));
		json_object_set_new(t, "bytes", json_integer(bytes));
		at += (bytes + 63) / 64 * 64;
	}
	return at;
}

/* The text of the model, to be freed; NULL if it is none. */
static char *fitting(const uint8_t *data, size_t size)
{
	json_t *root = json_loadb((const char *)data, size, 0, NULL), *layout;
	json_t *dense = json_object_get(root, "dense");
	size_t i;

	json_object_set_new(dense, "bytes",
			    json_integer(lay_out(json_object_get(dense, "tensors"))));
	json_array_foreach(json_object_get(json_object_get(root, "experts"), "layouts"), i, layout)
		json_object_set_new(layout, "bytes",
				    json_integer(lay_out(json_object_get(layout, "matrices"))));
	char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	return text;
}

static bool small(const struct modelfile *m)
{
	const struct model_config *c = &m->config;

	return c->layers + c->extra_layers <= LAYERS && c->experts <= EXPERTS &&
	       c->vocab <= VOCAB && m->dense_files == 1 &&
	       strcmp(m->dense_file[0].name, "dense.bin") == 0 &&
	       m->dense_file[0].bytes <= DENSE_BYTES && m->largest_expert <= EXPERT_BYTES;
}

static void make_files(const struct modelfile *m)
{
	if (dense_bytes != m->dense_file[0].bytes)
		put(name("dense.bin", 0, 0), dense_bytes = m->dense_file[0].bytes);
	for (int l = 0; l < LAYERS; l++) {
		const struct expert_layout *x = m->layer_layout[l];
		if (x && expert_bytes[l] != x->bytes)
			put(name("layer-%d", l, 0), expert_bytes[l] = x->bytes);
	}
}

/* Token n of the prompt comes next: guessed at, and wrong. False if that failed. */
static bool guess(struct engine *e, const int32_t *prompt, int n, int vocab)
{
	int32_t ids[1 + GUESSES] = { prompt[n] };
	float *logits = malloc((size_t)vocab * sizeof(*logits));
	const float *all;
	char why[WHY_MAX];
	int rows;

	for (int i = 0; i < GUESSES; i++)
		ids[1 + i] = (prompt[n] + 1 + i) % vocab;
	if (!logits)
		abort();
	engine_draft(e, ids[0], logits, why); /* may come to what is no number */
	bool done = engine_feed_drafts(e, ids, 1 + GUESSES, &all, &rows, why) == 0;
	if (done)
		engine_keep(e, 1);
	free(logits);
	return done;
}

/* The prompt token by token; drafts: as a program that guesses. */
static bool feed(struct engine *e, const int32_t *prompt, int n, int vocab, bool drafts)
{
	char why[WHY_MAX];

	for (int i = 0; i < n; i++) {
		bool room =
			drafts && i % 3 == 1 && engine_ctx(e) - i > GUESSES && engine_may_draft(e);
		if (room ? !guess(e, prompt, i, vocab) : engine_feed(e, prompt + i, 1, why) != 0)
			return false;
	}
	return true;
}

static void run(struct engine *e, int vocab, bool drafts)
{
	int32_t prompt[PROMPT];
	int n = engine_ctx(e) < PROMPT ? engine_ctx(e) : PROMPT;
	size_t bytes = (size_t)vocab * sizeof(float);
	float *once = malloc(bytes), *singly = malloc(bytes);
	char why[WHY_MAX];

	for (int i = 0; i < n; i++)
		prompt[i] = (i * 29 + i * i) % vocab;
	if (!once || !singly)
		abort();
	if (engine_feed(e, prompt, n, why) == 0 && engine_logits(e, once, why) == 0) {
		engine_reset(e);
		if (!feed(e, prompt, n, vocab, drafts) || engine_logits(e, singly, why) != 0 ||
		    memcmp(once, singly, bytes) != 0)
			abort();
	}
	free(once);
	free(singly);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct engine_options o = { .threads = 1, .chunk = 7, .session = true };
	struct engine_memory memory;
	struct modelfile *m;
	struct engine *e;
	char why[WHY_MAX];

	if (!dir[0])
		make_folder();
	char *text = fitting(data, size);
	int err = text ? modelfile_parse(text, strlen(text), dir, "fuzz", &m, why) : -EINVAL;
	free(text);
	if (err)
		return 0;
	if (small(m)) {
		make_files(m);
		o.ctx = m->config.max_positions < 2 * PROMPT ? m->config.max_positions : 2 * PROMPT;
		o.kv = size % 2 ? KV_BF16 : KV_F32;
		o.float_activations = size % 3 == 0;
		o.draft = engine_can_draft(m) ? GUESSES : 0;
		if (engine_memory(m, &o, &memory, why) == 0 && memory.total <= MEMORY &&
		    engine_open(m, &o, &e, why) == 0) {
			run(e, m->config.vocab, o.draft > 0);
			engine_close(e);
		}
	}
	modelfile_free(m);
	return 0;
}
