/* SPDX-License-Identifier: Apache-2.0
 *
 * expertfs/gguf.h: good files, split sets, and what each kind of lie is answered with; files cut at
 * every length, and with bytes changed at random (under ASan this is where a bad bound shows).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "tests/unit/made_gguf.h"

static char dir[400], path[512], why[WHY_MAX];
static struct made_gguf m;

static int set_up(void **state)
{
	(void)state;
	const char *tmp = getenv("TMPDIR");
	snprintf(dir, sizeof(dir), "%s/test_gguf.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/m.gguf", dir);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

static void put(const void *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)n), 0);
	assert_int_equal(pwrite(fd, bytes, n, 0), n);
	close(fd);
}

/* A file with something of everything. */
static void make_good(void)
{
	gg_begin(&m, 3, 8);
	gg_key_text(&m, "general.architecture", "tiny");
	gg_key_u32(&m, "tiny.block_count", 2);
	gg_key_u16(&m, "tiny.small", 65535);
	gg_key_f32(&m, "tiny.eps", 0.5f);
	gg_key_bool(&m, "tiny.norm", 1);
	gg_key_array(&m, "tiny.words", GGUF_STRING, 2);
	gg_text(&m, "full");
	gg_text(&m, "");
	gg_key_array(&m, "tiny.numbers", GGUF_I32, 2);
	gg_u32(&m, (uint32_t)-5);
	gg_u32(&m, 7);
	gg_text(&m, "tiny.far");
	gg_u32(&m, GGUF_U64);
	gg_u64(&m, UINT64_MAX);
	gg_tensor(&m, "stack", 12, 256, 3, 4);
	gg_tensor(&m, "vector", 0, 5, 0, 0);
	gg_tensor(&m, "matrix", 8, 64, 2, 0);
}

static struct gguf *open_good(void)
{
	struct gguf *g = NULL;
	int err = gguf_open(path, &g, why);

	if (err)
		print_message("%s\n", why);
	assert_int_equal(err, 0);
	return g;
}

static void reads_everything(void **state)
{
	const struct gguf_key *k;
	const struct gguf_tensor *t;
	struct gguf_text text;
	size_t at = 0;
	int64_t n;
	double d;
	bool b;

	(void)state;
	make_good();
	assert_int_equal(gg_write(&m, path), 0);
	assert_true(gguf_is(path));
	struct gguf *g = open_good();
	assert_string_equal(g->arch, "tiny");
	assert_int_equal(gguf_int(g, "%s.block_count", 0, 9, &n, why), 0);
	assert_int_equal(n, 2);
	assert_int_equal(gguf_int(g, "tiny.small", 0, 65535, &n, why), 0);
	assert_int_equal(n, 65535);
	assert_int_equal(gguf_int(g, "%s.small", 0, 9, &n, why), -EINVAL);
	assert_int_equal(gguf_int(g, "%s.far", 0, INT64_MAX, &n, why), -EINVAL);
	assert_int_equal(gguf_int(g, "%s.nothing", 0, 9, &n, why), -ENOENT);
	assert_int_equal(gguf_int(g, "%s.eps", 0, 9, &n, why), -EINVAL);
	assert_int_equal(gguf_float(g, "%s.eps", &d, why), 0);
	assert_true(d == 0.5);
	assert_int_equal(gguf_bool(g, "%s.norm", &b, why), 0);
	assert_true(b);
	assert_int_equal(gguf_string(g, "general.architecture", &text, why), 0);
	assert_int_equal(text.bytes, 4);
	assert_int_equal(gguf_array(g, "%s.words", GGUF_STRING, &k, why), 0);
	text = gguf_array_next(g, k, &at);
	assert_true(text.bytes == 4 && memcmp(text.at, "full", 4) == 0);
	assert_int_equal(gguf_array_next(g, k, &at).bytes, 0);
	assert_int_equal(gguf_array(g, "%s.words", GGUF_I64, &k, why), -EINVAL);
	assert_int_equal(gguf_array(g, "%s.numbers", GGUF_I64, &k, why), 0);
	assert_int_equal(gguf_array_int(g, k, 0), -5);
	assert_int_equal(gguf_array_int(g, k, 1), 7);
	t = gguf_tensor(g, "stack");
	assert_non_null(t);
	assert_string_equal(t->type->name, "q4_k");
	assert_int_equal(t->offset, gg_data_start(&m));
	assert_int_equal(t->bytes, 144 * 12);
	assert_int_equal(gguf_slice_bytes(t), 144 * 3);
	t = gguf_tensor(g, "matrix");
	assert_int_equal(t->offset, gg_data_start(&m) + 144 * 12 + 32);
	assert_null(gguf_tensor(g, "nothing"));
	gguf_close(g);
}

static void cut_anywhere(void **state)
{
	struct gguf *g = NULL;

	(void)state;
	make_good();
	m.n = gg_data_start(&m) + m.data;
	for (size_t n = 0; n < m.n; n++) {
		put(m.bytes, n);
		if (gguf_open(path, &g, why) == 0) {
			/* All that may be cut are zeros behind the last tensor. */
			assert_true(n >= m.n - 31);
			gguf_close(g);
		}
	}
}

static void changed_anywhere(void **state)
{
	uint64_t rng = 1;
	struct gguf *g = NULL;
	size_t header;

	(void)state;
	make_good();
	header = m.n;
	m.n = gg_data_start(&m) + m.data;
	for (int i = 0; i < 20000; i++) {
		uint8_t saved[4];
		size_t at[4];
		for (int j = 0; j < 4; j++) {
			rng = rng * 6364136223846793005u + 1442695040888963407u;
			at[j] = (rng >> 33) % header;
			saved[j] = m.bytes[at[j]];
			m.bytes[at[j]] = (uint8_t)(rng >> 25) & 0x80 ? 0xff : (uint8_t)(rng >> 20);
		}
		put(m.bytes, m.n);
		if (gguf_open(path, &g, why) == 0)
			gguf_close(g);
		for (int j = 3; j >= 0; j--)
			m.bytes[at[j]] = saved[j];
	}
}

static void refuse(const char *sentence)
{
	struct gguf *g = NULL;

	assert_int_equal(gg_write(&m, path), 0);
	assert_int_equal(gguf_open(path, &g, why), -EINVAL);
	if (!strstr(why, sentence))
		fail_msg("\"%s\" does not hold \"%s\"", why, sentence);
}

/* A file with one tensor, whose entry the caller appends. */
static void begin_one(void)
{
	gg_begin(&m, 1, 1);
	gg_key_text(&m, "general.architecture", "tiny");
}

static void tell_lies_of_tensors(void **state)
{
	(void)state;
	begin_one();
	gg_tensor(&m, "w", 12, 128, 2, 0);
	refuse("not whole blocks of 256");
	begin_one();
	gg_text(&m, "w");
	gg_u32(&m, 5);
	refuse("5 dimensions");
	begin_one();
	gg_text(&m, "w");
	gg_u32(&m, 1);
	gg_u64(&m, 0);
	refuse("dimensions of w are impossible");
	begin_one();
	gg_text(&m, "w");
	gg_u32(&m, 3);
	for (int i = 0; i < 3; i++)
		gg_u64(&m, (uint64_t)1 << 31);
	gg_u32(&m, 0);
	gg_u64(&m, 0);
	refuse("more bytes than the file");
	begin_one();
	gg_text(&m, "w");
	gg_u32(&m, 1);
	gg_u64(&m, 32);
	gg_u32(&m, 99);
	gg_u64(&m, 0);
	refuse("w is of type 99, which is unknown (a repacked type of ik_llama.cpp?)");
	begin_one();
	m.data = 16;
	gg_tensor(&m, "w", 0, 32, 0, 0);
	refuse("does not lie on 32 bytes");
	begin_one();
	gg_tensor(&m, "w", 0, 32, 0, 0);
	m.data = 64;
	refuse("cut off");
	begin_one();
	gg_tensor(&m, "a \" b", 0, 32, 0, 0);
	refuse("other characters");
	gg_begin(&m, 2, 1);
	gg_key_text(&m, "general.architecture", "tiny");
	gg_tensor(&m, "w", 0, 32, 0, 0);
	m.data = 32;
	gg_tensor(&m, "v", 0, 32, 0, 0);
	refuse("overlap");
	gg_begin(&m, 2, 1);
	gg_key_text(&m, "general.architecture", "tiny");
	gg_tensor(&m, "w", 0, 32, 0, 0);
	gg_tensor(&m, "w", 0, 32, 0, 0);
	refuse("the tensor w is there twice");
}

static void tell_lies_of_keys(void **state)
{
	(void)state;
	gg_begin(&m, 0, 1);
	m.bytes[4] = 1;
	refuse("of version 1");
	gg_begin(&m, 0, 1);
	m.bytes[4] = 0;
	m.bytes[7] = 3;
	refuse("big-endian");
	gg_begin(&m, UINT64_MAX, 0);
	refuse("number of tensors");
	gg_begin(&m, 0, UINT64_MAX / 2);
	refuse("number of keys");
	gg_begin(&m, 0, 0);
	refuse("general.architecture is missing");
	gg_begin(&m, 0, 1);
	gg_key_text(&m, "general.architecture", "a b");
	refuse("is not a name");
	gg_begin(&m, 0, 2);
	gg_key_text(&m, "general.architecture", "tiny");
	gg_key_text(&m, "general.architecture", "tiny");
	refuse("is there twice");
	gg_begin(&m, 0, 1);
	gg_key_array(&m, "a", GGUF_STRING, (uint64_t)1 << 40);
	refuse("it ends within its header");
	gg_begin(&m, 0, 1);
	gg_key_array(&m, "a", GGUF_ARRAY, 1);
	refuse("of an unknown type");
	gg_begin(&m, 0, 1);
	gg_key_bool(&m, "a", 2);
	gg_u64(&m, 0);
	refuse("neither true nor false");
	gg_begin(&m, 0, 2);
	gg_key_text(&m, "general.architecture", "tiny");
	gg_key_u32(&m, "general.alignment", 24);
	refuse("not a power of two");
	put("version https://git-lfs.github.com/spec/v1\n", 43);
	struct gguf *g = NULL;
	assert_int_equal(gguf_open(path, &g, why), -EINVAL);
	assert_non_null(strstr(why, "Git LFS"));
	assert_int_equal(gguf_open(dir, &g, why), -EINVAL);
}

/* A file of 300 MiB, empty behind what there is of its header; the length of a name says where that
 * would go on. */
static void long_headers(void **state)
{
	static const struct {
		uint64_t length;
		const char *sentence;
	} cases[] = {
		{ 280u << 20, "its header does not end within 256 MiB" },
		{ 400u << 20, "it ends within its header" },
	};
	struct gguf *g = NULL;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		gg_begin(&m, 1, 1);
		gg_text(&m, "general.architecture");
		gg_u32(&m, GGUF_STRING);
		gg_u64(&m, cases[i].length);
		put(m.bytes, m.n);
		assert_int_equal(truncate(path, 300 << 20), 0);
		assert_int_equal(gguf_open(path, &g, why), -EINVAL);
		if (!strstr(why, cases[i].sentence))
			fail_msg("\"%s\" does not hold \"%s\"", why, cases[i].sentence);
	}
}

static uint32_t first_align; /* 0: says nothing */

static void write_part(int no, int count, int says_no, int says_total, const char *tensor)
{
	char name[512];

	gg_begin(&m, 1, no ? 2 : first_align ? 5 : 4);
	if (no == 0 && first_align)
		gg_key_u32(&m, "general.alignment", first_align);
	if (no == 0)
		gg_key_text(&m, "general.architecture", "tiny");
	gg_key_u16(&m, "split.no", (uint16_t)says_no);
	gg_key_u16(&m, "split.count", (uint16_t)count);
	if (no == 0)
		gg_key_u32(&m, "split.tensors.count", (uint32_t)says_total);
	gg_tensor(&m, tensor, 0, 8, 0, 0);
	snprintf(name, sizeof(name), "%s/s-%05d-of-%05d.gguf", dir, no + 1, count);
	assert_int_equal(gg_write(&m, name), 0);
}

static int open_set(const char *name, struct gguf **g)
{
	char full[512];

	snprintf(full, sizeof(full), "%s/%s", dir, name);
	return gguf_open(full, g, why);
}

static void split_sets(void **state)
{
	const char *first = "s-00001-of-00003.gguf";
	struct gguf *g = NULL;
	char name[512];

	(void)state;
	write_part(0, 3, 0, 3, "a");
	write_part(1, 3, 1, 3, "c");
	assert_int_equal(open_set(first, &g), -ENOENT);
	assert_non_null(strstr(why, "s-00003-of-00003.gguf"));
	write_part(2, 3, 2, 3, "b");
	assert_int_equal(open_set(first, &g), 0);
	assert_int_equal(g->parts, 3);
	assert_int_equal(g->tensors, 3);
	assert_int_equal(gguf_tensor(g, "b")->part, 2);
	assert_int_equal(gguf_tensor(g, "c")->part, 1);
	gguf_close(g);
	assert_int_equal(open_set("s-00002-of-00003.gguf", &g), -EINVAL);
	assert_non_null(strstr(why, "is file 2 of 3: name the first one"));
	write_part(2, 3, 1, 3, "b");
	assert_int_equal(open_set(first, &g), -EINVAL);
	assert_non_null(strstr(why, "should be file 3 of 3"));
	write_part(2, 3, 2, 3, "a");
	assert_int_equal(open_set(first, &g), -EINVAL);
	assert_non_null(strstr(why, "the tensor a is there twice"));
	write_part(2, 3, 2, 3, "b");
	write_part(0, 3, 0, 4, "a");
	assert_int_equal(open_set(first, &g), -EINVAL);
	assert_non_null(strstr(why, "have 3 tensors and should have 4"));
	first_align = 8;
	write_part(0, 3, 0, 3, "a");
	assert_int_equal(open_set(first, &g), -EINVAL);
	assert_non_null(
		strstr(why, "s-00002-of-00003.gguf: general.alignment is missing, and 8 in"));
	first_align = 0;
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s/s-%05d-of-00003.gguf", dir, i + 1);
		unlink(name);
	}
}

/* The type's own arithmetic against the sizes that traces of real models name (spec
 * gguf-and-quants.md, 4.1): bytes of an expert of Qwen3-30B-A3B and of gpt-oss-120b. */
static void real_experts(void **state)
{
	const struct gguf_type *q4 = gguf_type_find(12), *q6 = gguf_type_find(14),
			       *mx = gguf_type_find(39);
	uint64_t gate = 2048 / q4->elements * q4->bytes * 768,
		 down4 = 768 / q4->elements * q4->bytes * 2048,
		 down6 = 768 / q6->elements * q6->bytes * 2048;

	(void)state;
	assert_int_equal(2 * gate + down6, 3059712);
	assert_int_equal(2 * gate + down4, 2654208);
	assert_int_equal(3 * (2880 / mx->elements * mx->bytes * 2880), 13219200);
	assert_null(gguf_type_find(4));
	assert_null(gguf_type_find(36));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_everything),  cmocka_unit_test(cut_anywhere),
		cmocka_unit_test(changed_anywhere),  cmocka_unit_test(tell_lies_of_tensors),
		cmocka_unit_test(tell_lies_of_keys), cmocka_unit_test(split_sets),
		cmocka_unit_test(real_experts),      cmocka_unit_test(long_headers),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
