/* SPDX-License-Identifier: Apache-2.0
 *
 * A GGUF file as a store: each expert's file, read whole and in pieces, against the bytes that
 * model.json says it is made of; what lies in the folder beside; what is no such model.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/catalog.h"
#include "expertfs/gguf_experts.h"
#include "expertfs/gguf_model.h"
#include "expertfs/gguf_store.h"
#include "expertfs/loader.h"
#include "tests/unit/made_gguf.h"

#define EXPERTS 7
#define PARTS   2

static char dir[300], path[PARTS][400], why[WHY_MAX];
static struct made_gguf m;

static void run(const char *format, const char *arg)
{
	char command[600];

	snprintf(command, sizeof(command), format, arg);
	assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c,concurrency-mt-unsafe) */
}

static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(dir, sizeof(dir), "%s/test_gguf_store.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	for (int i = 0; i < PARTS; i++)
		snprintf(path[i], sizeof(path[i]), "%s/m-%05d-of-%05d.gguf", dir, i + 1, PARTS);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	run("rm -rf '%s'", dir);
	return 0;
}

static void begin(int part, uint64_t tensors, uint32_t all)
{
	gg_begin(&m, tensors, part == 0 ? 4 : 3);
	gg_key_text(&m, "general.architecture", "strange");
	gg_key_u16(&m, "split.no", (uint16_t)part);
	gg_key_u16(&m, "split.count", PARTS);
	if (part == 0)
		gg_key_u32(&m, "split.tensors.count", all);
}

/* Three layers: strides that are no multiple of a block; gate and up in one; strides of whole
 * blocks. The second file has half of the first layer and all of the last; its end is the end of a
 * slice. */
static void make_model(void)
{
	begin(0, 7, 12);
	gg_tensor(&m, "token_embd.weight", 0, 64, 3, 0);
	gg_tensor(&m, "blk.1.ffn_gate_exps.weight", 2, 64, 32, EXPERTS);
	gg_tensor(&m, "blk.1.ffn_gate_inp.weight", 0, 64, EXPERTS, 0);
	gg_tensor(&m, "blk.1.ffn_up_exps.weight", 2, 64, 32, EXPERTS);
	gg_tensor(&m, "blk.2.ffn_gate_up_exps.weight", 39, 64, 2 * 36, EXPERTS);
	gg_tensor(&m, "blk.2.ffn_gate_inp.weight", 0, 64, EXPERTS, 0);
	gg_tensor(&m, "blk.2.ffn_down_exps.weight", 0, 36, 64, EXPERTS);
	assert_int_equal(gg_write(&m, path[0]), 0);
	begin(1, 5, 12);
	gg_tensor(&m, "output_norm.weight", 0, 64, 0, 0);
	gg_tensor(&m, "blk.1.ffn_down_exps.weight", 8, 32, 64, EXPERTS);
	gg_tensor(&m, "blk.10.ffn_gate_exps.weight", 0, 64, 32, EXPERTS);
	gg_tensor(&m, "blk.10.ffn_up_exps.weight", 0, 64, 32, EXPERTS);
	gg_tensor(&m, "blk.10.ffn_down_exps.weight", 6, 32, 64, EXPERTS);
	assert_int_equal(gg_write(&m, path[1]), 0);
}

struct opened {
	struct store *store;
	struct drive *drive[STORE_DRIVES_MAX + 1];
	struct loader loader;
	int lock;
};

static void open_model(struct opened *o)
{
	*o = (struct opened){ .lock = -1 };
	int err = gguf_store_open(path[0], NULL, &o->store, &o->lock, why);
	if (err)
		print_message("%s\n", why);
	assert_int_equal(err, 0);
	for (uint32_t i = 0; i < o->store->drives; i++)
		assert_int_equal(
			drive_open(o->store->drive[i].path, DRIVE_IO_AUTO, &o->drive[i], why), 0);
	o->loader = (struct loader){ .store = o->store,
				     .drive = o->drive,
				     .buffers = read_buffers_new(o->store->max_expert_bytes),
				     .verify = VERIFY_ALWAYS };
}

static void close_model(struct opened *o)
{
	for (uint32_t i = 0; i < o->store->drives; i++)
		drive_close(o->drive[i]);
	read_buffers_free(o->loader.buffers);
	store_close(o->store);
	close(o->lock);
}

static json_t *model_json(void)
{
	char name[500];

	snprintf(name, sizeof(name), "%s.expertfs/model.json", path[0]);
	json_t *root = json_load_file(name, 0, NULL);
	assert_non_null(root);
	return root;
}

static uint64_t number(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

/* What expert e of a layer should be: of each matrix the bytes of its stack (or half of it). */
static void expect_expert(const struct gguf *g, const json_t *layout, unsigned layer, unsigned e,
			  const uint8_t *data)
{
	uint64_t bytes = number(layout, "bytes");
	uint8_t *want = calloc(1, bytes);
	char name[64];
	size_t i;
	json_t *matrix;

	assert_non_null(want);
	json_array_foreach(json_object_get(layout, "matrices"), i, matrix)
	{
		const char *which = json_string_value(json_object_get(matrix, "name"));
		uint64_t offset = number(matrix, "offset"), skew = number(matrix, "skew");
		uint64_t n = number(matrix, "bytes");
		snprintf(name, sizeof(name), "blk.%u.ffn_%s_exps.weight", layer, which);
		const struct gguf_tensor *t = gguf_tensor(g, name);
		uint64_t from = t ? t->offset + e * gguf_slice_bytes(t) : 0;
		if (!t) {
			snprintf(name, sizeof(name), "blk.%u.ffn_gate_up_exps.weight", layer);
			t = gguf_tensor(g, name);
			from = t ? t->offset + e * gguf_slice_bytes(t) : 0;
			from += strcmp(which, "up") == 0 ? n : 0;
		}
		if (!t) {
			snprintf(name, sizeof(name), "blk.%u.ffn_%s.%u.weight", layer, which, e);
			t = gguf_tensor(g, name);
			from = t ? t->offset : 0;
		}
		assert_non_null(t);
		if (skew)
			offset = offset / 4096 * 4096 + (offset + skew * e) % 4096;
		assert_true(offset + n <= bytes);
		for (uint64_t at = 0; at < n; at++)
			want[offset + at] = gg_byte(from + at);
	}
	assert_memory_equal(data, want, bytes);
	free(want);
}

static void keep(void *arg, const char *data, ssize_t n)
{
	char **to = arg;

	assert_true(n > 0);
	memcpy(*to, data, (size_t)n);
	*to += n;
}

static void expert_is_right(struct opened *o, const struct gguf *g, const json_t *layout,
			    unsigned layer, unsigned e)
{
	static const struct urgency now = { DRIVE_DEMAND };
	uint32_t index = store_index(o->store, layer, e);
	uint64_t bytes = o->store->expert[index].bytes, room = shard_round_up(bytes);
	unsigned copy = 9;
	uint8_t *data = aligned_alloc(4096, room), *pieces = malloc(bytes);
	char *to = (char *)pieces;

	assert_int_equal(bytes, number(layout, "bytes"));
	assert_non_null(data);
	memset(data, 0xee, room);
	assert_int_equal(load_expert(&o->loader, index, &now, data, why), 0);
	expect_expert(g, layout, layer, e, data);
	assert_int_equal(prove_expert(&o->loader, index, &copy, why), 0);
	for (uint64_t at = 0, n = 1; at < bytes; at += n, n = n % 5000 * 3 + 1)
		read_expert(&o->loader, index, copy, at, n < bytes - at ? n : bytes - at, keep,
			    &to);
	assert_int_equal(to - (char *)pieces, bytes);
	assert_memory_equal(pieces, data, bytes);
	free(data);
	free(pieces);
}

static void every_expert_is_right(size_t layers)
{
	struct opened o;
	struct gguf *g;
	size_t i, k, seen = 0;
	json_t *layout, *layer;

	open_model(&o);
	assert_int_equal(gguf_open(path[0], &g, why), 0);
	json_t *root = model_json(), *experts = json_object_get(root, "experts");
	assert_int_equal(number(experts, "count"), EXPERTS);
	json_array_foreach(json_object_get(experts, "layouts"), i, layout)
		json_array_foreach(json_object_get(layout, "layers"), k,
				   layer) for (unsigned e = 0; e < EXPERTS; e++, seen++)
			expert_is_right(&o, g, layout, (unsigned)json_integer_value(layer), e);
	assert_int_equal(seen, layers * EXPERTS);
	assert_int_equal(o.store->experts, seen);
	json_decref(root);
	gguf_close(g);
	close_model(&o);
}

static void every_expert(void **state)
{
	(void)state;
	make_model();
	every_expert_is_right(3);
}

static void nothing_comes(void *arg, const char *data, ssize_t n)
{
	(void)data;
	*(ssize_t *)arg = n;
}

/* Its experts are none any more once somebody has written to it; those of the other file are. */
static void a_file_that_is_written_to(void **state)
{
	static const struct urgency now = { DRIVE_DEMAND };
	struct opened o;
	unsigned copy;
	uint8_t *data;
	ssize_t n = 0;

	(void)state;
	make_model();
	open_model(&o);
	uint32_t there = store_index(o.store, 2, 3), gone = store_index(o.store, 10, 3);
	data = aligned_alloc(4096, shard_round_up(o.store->max_expert_bytes));
	assert_non_null(data);
	assert_int_equal(load_expert(&o.loader, gone, &now, data, why), 0);
	usleep(20000); /* the clock of file times is a slow one */
	int fd = open(path[1], O_RDWR);
	assert_int_equal(pread(fd, data, 1, 5000), 1);
	assert_int_equal(pwrite(fd, data, 1, 5000), 1);
	close(fd);
	assert_int_equal(load_expert(&o.loader, gone, &now, data, why), -EIO);
	assert_non_null(strstr(why, "m-00002-of-00002.gguf was written to while it was mounted"));
	assert_int_equal(prove_expert(&o.loader, gone, &copy, why), -EIO);
	read_expert(&o.loader, gone, 0, 0, 4096, nothing_comes, &n);
	assert_int_equal(n, -EIO);
	assert_int_equal(load_expert(&o.loader, there, &now, data, why), 0);
	assert_int_equal(truncate(path[0], 4096), 0);
	assert_int_equal(load_expert(&o.loader, there, &now, data, why), -EIO);
	free(data);
	close_model(&o);
}

static void own(unsigned layer, const char *which, unsigned e, uint32_t type, uint64_t cols,
		uint64_t rows)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.ffn_%s.%u.weight", layer, which, e);
	gg_tensor(&m, name, type, cols, rows, 0);
}

/* Each matrix a tensor: at distances that are no multiple of a block, one expert after the other;
 * and whole blocks in any order, over two files. */
static void tensors_of_their_own(void **state)
{
	static const unsigned order[EXPERTS] = { 3, 0, 6, 5, 1, 2, 4 };

	(void)state;
	begin(0, 3 * EXPERTS + 1, 6 * EXPERTS + 2);
	for (unsigned e = 0; e < EXPERTS; e++) {
		own(1, "gate", e, 39, 64, 36);
		own(1, "down", e, 0, 36, 64);
		own(1, "up", e, 39, 64, 36);
	}
	gg_tensor(&m, "token_embd.weight", 0, 64, 3, 0);
	assert_int_equal(gg_write(&m, path[0]), 0);
	begin(1, 3 * EXPERTS + 1, 6 * EXPERTS + 2);
	gg_tensor(&m, "output_norm.weight", 0, 64, 0, 0);
	for (unsigned i = 0; i < EXPERTS; i++)
		own(2, "down", order[i], 0, 32, 64);
	for (unsigned i = 0; i < EXPERTS; i++) {
		own(2, "up", order[EXPERTS - 1 - i], 0, 64, 32);
		own(2, "gate", order[i], 0, 64, 32);
	}
	assert_int_equal(gg_write(&m, path[1]), 0);
	every_expert_is_right(2);
}

/* Dense tensors lie where model.json says, in the files that the links lead to. */
static void dense_tensors(void **state)
{
	struct opened o;
	char name[600];
	size_t i, n = 0;
	json_t *t;

	(void)state;
	make_model();
	open_model(&o);
	json_t *root = model_json(), *dense = json_object_get(root, "dense");
	assert_string_equal(json_string_value(json_object_get(dense, "file")), "dense.bin");
	json_array_foreach(json_object_get(dense, "tensors"), i, t)
	{
		uint8_t bytes[64 * 4];
		uint64_t at = number(t, "offset");
		snprintf(name, sizeof(name), "%s.expertfs/%s", path[0],
			 number(t, "part") ? "dense-00002.bin" : "dense.bin");
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, bytes, sizeof(bytes), (off_t)at), sizeof(bytes));
		for (size_t k = 0; k < sizeof(bytes); k++)
			assert_int_equal(bytes[k], gg_byte(at + k));
		close(fd);
		n++;
		if (number(t, "part"))
			assert_string_equal(json_string_value(json_object_get(t, "name")),
					    "model.norm.weight");
	}
	assert_int_equal(n, 4);
	assert_int_equal(o.store->files, STORE_FILES + 1);
	json_decref(root);
	close_model(&o);
}

/* Usage stays as long as the file does, and no longer. */
static void catalog_goes_with_the_file(void **state)
{
	const struct usage_row row = { .layer = 1, .expert = 2, .heat = 3, .uses = 4 };
	const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	uint8_t id[STORE_ID_SIZE];
	struct catalog *c;
	struct opened o;
	char folder[500], *value;

	(void)state;
	make_model();
	snprintf(folder, sizeof(folder), "%s.expertfs", path[0]);
	for (int i = 0; i < 3; i++) {
		open_model(&o);
		if (i == 1)
			assert_memory_equal(id, o.store->id, sizeof(id));
		if (i == 2)
			assert_memory_not_equal(id, o.store->id, sizeof(id));
		memcpy(id, o.store->id, sizeof(id));
		assert_int_equal(catalog_open(folder, &c, why), 0);
		assert_int_equal(catalog_meta_get(c, "mine", &value, why), i == 1 ? 0 : -ENOENT);
		if (i == 1)
			free(value);
		assert_int_equal(catalog_usage_put(c, &row, why), 0);
		assert_int_equal(catalog_meta_put(c, "mine", "1", why), 0);
		catalog_close(c);
		close_model(&o);
		if (i == 1)
			assert_int_equal(utimensat(AT_FDCWD, path[1], times, 0), 0);
	}
}

static void refuse(const char *sentence)
{
	struct store *s;
	char file[400];
	int lock;

	snprintf(file, sizeof(file), "%s/one.gguf", dir);
	assert_int_equal(gg_write(&m, file), 0);
	assert_int_equal(gguf_store_open(file, NULL, &s, &lock, why), -EINVAL);
	assert_int_equal(lock, -1);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not hold \"%s\"", why, sentence);
}

static void begin_one(const char *arch, uint64_t tensors)
{
	gg_begin(&m, tensors, 1);
	gg_key_text(&m, "general.architecture", arch);
}

static void no_such_models(void **state)
{
	(void)state;
	begin_one("llama", 0);
	refuse("is a vocabulary without tensors");
	begin_one("llama", 1);
	gg_tensor(&m, "blk.0.ffn_gate.weight", 0, 64, 64, 0);
	refuse("is a dense model (llama): it has no experts to mount");
	begin_one("a", 2);
	gg_tensor(&m, "blk.0.ffn_gate_exps.weight", 0, 64, 32, 4);
	gg_tensor(&m, "blk.0.ffn_up_exps.weight", 0, 64, 32, 4);
	refuse("layer 0 has not just the stacks");
	begin_one("a", 3);
	gg_tensor(&m, "blk.0.ffn_gate_exps.weight", 0, 64, 32, 4);
	gg_tensor(&m, "blk.0.ffn_up_exps.weight", 0, 64, 32, 4);
	gg_tensor(&m, "blk.0.ffn_down_exps.weight", 0, 32, 64, 5);
	refuse("blk.0.ffn_gate_exps.weight has not 5 experts");
	begin_one("a", 3);
	gg_tensor(&m, "blk.0.ffn_gate_exps.weight", 0, 64, 32, 4);
	gg_tensor(&m, "blk.0.ffn_up_exps.weight", 0, 64, 32, 4);
	gg_tensor(&m, "blk.0.ffn_down_exps.weight", 0, 64, 64, 4);
	refuse("the shapes of the experts of layer 0 do not fit together");
	begin_one("a", 2);
	gg_tensor(&m, "blk.0.ffn_gate_up_exps.weight", 0, 64, 33, 4);
	gg_tensor(&m, "blk.0.ffn_down_exps.weight", 0, 16, 64, 4);
	refuse("has an odd number of rows");
	begin_one("a", 1);
	gg_tensor(&m, "blk.0.ffn_gate_exps.weight", 0, 64, 32, 0);
	refuse("is no stack of matrices");
	begin_one("glm-dsa", 2);
	gg_tensor(&m, "blk.0.ffn_gate_up_exps.weight", 0, 64, 32, 4);
	gg_tensor(&m, "blk.0.ffn_down_exps.weight", 0, 16, 64, 4);
	refuse("glm-dsa.block_count is missing");
}

/* Three experts of one layer as tensors of their own; `bad` of them is another than it should be. */
static void refuse_own(const char *bad, uint32_t type, uint64_t cols, uint64_t rows,
		       const char *sentence)
{
	static const char *const which[] = { "gate", "up", "down" };
	char name[32];

	begin_one("a", 9);
	for (unsigned e = 0; e < 3; e++)
		for (int k = 0; k < 3; k++) {
			snprintf(name, sizeof(name), "%s.%u", which[k], e);
			if (strcmp(name, bad) == 0)
				own(0, which[k], e, type, cols, rows);
			else
				own(0, which[k], e, 0, k == 2 ? 32 : 64, k == 2 ? 64 : 32);
		}
	refuse(sentence);
}

static void no_such_experts(void **state)
{
	(void)state;
	refuse_own("up.1", 1, 64, 32,
		   "blk.0.ffn_up.1.weight has not the type and shape of blk.0.ffn_up.0");
	refuse_own("gate.2", 0, 64, 40, "blk.0.ffn_gate.2.weight has not the type and shape");
	refuse_own("down.2", 0, 32, 0, "blk.0.ffn_down.2.weight is no matrix");
	begin_one("a", 1);
	gg_tensor(&m, "blk.0.ffn_gate.0.weight", 0, 64, 64, 0);
	refuse("layer 0 has 1 tensors of experts");
	/* The third expert of gate is called the fourth; and as high as numbers go. */
	for (unsigned e = 3; e <= 65535; e += 65532) {
		begin_one("a", 9);
		for (unsigned i = 0; i < 3; i++) {
			own(0, "gate", i == 2 ? e : i, 0, 64, 32);
			own(0, "up", i, 0, 64, 32);
			own(0, "down", i, 0, 32, 64);
		}
		refuse("there is no blk.0.ffn_gate.2.weight");
	}
	begin_one("a", 6);
	for (unsigned e = 0; e < 2; e++) {
		own(0, "gate", e, 0, 64, 32);
		own(0, "up", e, 0, 64, 32);
		own(0, "down", e, 0, 64, 32);
	}
	refuse("the shapes of the experts of layer 0 do not fit together");
	begin_one("a", 4);
	own(0, "gate", 0, 0, 64, 32);
	own(0, "up", 0, 0, 64, 32);
	own(0, "down", 0, 0, 32, 64);
	gg_tensor(&m, "blk.0.ffn_down_exps.weight", 0, 32, 64, 1);
	refuse("layer 0 has experts both in stacks and as tensors of their own");
	/* The second lies whole blocks behind the first, the third 32 bytes farther. */
	begin_one("a", 10);
	for (unsigned e = 0; e < 3; e++) {
		if (e == 2)
			gg_tensor(&m, "blk.0.ffn_gate_inp.weight", 0, 8, 0, 0);
		own(0, "gate", e, 0, 64, 32);
		own(0, "up", e, 0, 64, 32);
		own(0, "down", e, 0, 32, 64);
	}
	refuse("blk.0.ffn_gate.2.weight lies at an odd place");
	/* Not a number that an expert can have: a tensor like any other. */
	begin_one("a", 1);
	own(0, "gate", 65536, 0, 64, 32);
	refuse("is a dense model (a)");
	begin_one("a", 1);
	gg_tensor(&m, "blk.0.ffn_gate.00.weight", 0, 64, 32, 0);
	refuse("is a dense model (a)");
}

/* As long as its header says, but empty: stacks of i8 matrices, of so many layers. */
static void refuse_sparse(uint32_t layers, uint64_t side, uint64_t experts, const char *sentence)
{
	static const char *const which[] = { "gate", "up", "down" };
	char file[400], name[64];
	struct store *s;
	int lock;

	begin_one("a", 3 * (uint64_t)layers);
	for (uint32_t l = 0; l < layers; l++)
		for (int k = 0; k < 3; k++) {
			snprintf(name, sizeof(name), "blk.%u.ffn_%s_exps.weight", l, which[k]);
			gg_tensor(&m, name, 24, side, side, experts);
		}
	uint64_t data = m.data;
	m.data = 0;
	snprintf(file, sizeof(file), "%s/sparse.gguf", dir);
	assert_int_equal(gg_write(&m, file), 0);
	assert_int_equal(truncate(file, (off_t)(gg_data_start(&m) + data)), 0);
	assert_int_equal(gguf_store_open(file, NULL, &s, &lock, why), -EINVAL);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not hold \"%s\"", why, sentence);
	unlink(file);
}

/* A file costs its author nothing by being long. */
static void too_much_of_it(void **state)
{
	(void)state;
	refuse_sparse(17, 1, 65536, "has 1114112 experts, more than 1048576");
	refuse_sparse(1, 1 << 18, 4,
		      "an expert of layer 0 has 206158442496 bytes, more than 68719476736");
}

/* Real geometries (spec gguf-and-quants.md, 4.1): slices of whole blocks are packed densely, and no
 * expert is more than a block a matrix larger than its slices. */
static void real_sizes(void **state)
{
	struct gguf g = { .tensors = 3 };
	struct gguf_part part = { .path = (char *)(uintptr_t) "x" };
	struct gguf_tensor t[3] = { { .name = (char *)(uintptr_t) "blk.3.ffn_down_exps.weight" },
				    { .name = (char *)(uintptr_t) "blk.3.ffn_gate_exps.weight" },
				    { .name = (char *)(uintptr_t) "blk.3.ffn_up_exps.weight" } };
	static const struct {
		uint32_t down, up;
		uint64_t hidden, width, experts, slices;
	} models[] = { { 14, 12, 2048, 768, 128, 3059712 },
		       { 12, 12, 2048, 768, 128, 2654208 },
		       { 39, 39, 2880, 2880, 128, 13219200 },
		       { 12, 12, 6144, 2048, 256, 21233664 } };

	(void)state;
	g.part = &part;
	g.tensor = t;
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		struct gguf_experts x;
		uint64_t at = 4096 + 32, sum = 0;
		for (int k = 0; k < 3; k++) {
			t[k].type = gguf_type_find(k == 0 ? models[i].down : models[i].up);
			t[k].dims = 3;
			t[k].dim[0] = k == 0 ? models[i].width : models[i].hidden;
			t[k].dim[1] = k == 0 ? models[i].hidden : models[i].width;
			t[k].dim[2] = models[i].experts;
			t[k].bytes = t[k].dim[0] / t[k].type->elements * t[k].type->bytes *
				     t[k].dim[1] * t[k].dim[2];
			t[k].offset = at;
			at += (t[k].bytes + 31) / 32 * 32;
		}
		assert_int_equal(gguf_experts_find(&g, &x, why), 0);
		assert_int_equal(x.layers, 1);
		assert_int_equal(x.layer[0].layer, 3);
		for (int k = 0; k < GGUF_MATRICES; k++)
			sum += x.layer[0].matrix[k].bytes;
		assert_int_equal(sum, models[i].slices);
		assert_true(x.layer[0].bytes >= sum && x.layer[0].bytes <= sum + 3 * 2 * 4096);
		gguf_experts_free(&x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_expert),
		cmocka_unit_test(dense_tensors),
		cmocka_unit_test(no_such_models),
		cmocka_unit_test(catalog_goes_with_the_file),
		cmocka_unit_test(real_sizes),
		cmocka_unit_test(tensors_of_their_own),
		cmocka_unit_test(no_such_experts),
		cmocka_unit_test(too_much_of_it),
		cmocka_unit_test(a_file_that_is_written_to),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
