/* SPDX-License-Identifier: Apache-2.0
 *
 * What coli-pack plans for the two checkpoints of tests/data: types, sizes, order, and which experts
 * get a copy more; and the lines that say how far it is. (Where they lie: test_pack_placement.c.)
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/shard.h"
#include "tools/coli-pack/modeljson.h"
#include "tools/coli-pack/progress.h"

static char why[WHY_MAX];
static const uint64_t equal[3] = { 1, 1, 1 };
static const struct spread spread = { .replicas = 1, .drives = 3, .speed = equal };
static const struct spread one = { .replicas = 1, .drives = 1, .speed = equal };

static struct checkpoint *open_data(const char *name, int *missing)
{
	const char *data = getenv("TEST_DATA");
	struct checkpoint *ck = NULL;
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", data ? data : "tests/data", name);
	if (ckpt_open(path, &ck, missing, why) != 0)
		fail_msg("%s", why);
	return ck;
}

static const struct plan_dense *find(const struct plan *p, const char *name)
{
	for (size_t i = 0; i < p->dense_count; i++)
		if (strcmp(p->dense[i].name, name) == 0)
			return &p->dense[i];
	return NULL;
}

static void check_type(const struct plan *p, const char *name, enum wtype type, int group)
{
	const struct plan_dense *d = find(p, name);

	if (!d) {
		fail_msg("%s is not planned", name);
		return;
	}
	assert_int_equal(d->fmt.type, type);
	assert_int_equal(d->fmt.group, group);
}

/* 6 layers, the first dense, and an MTP layer; full indexers on layers 0, 1, 2 and MTP. */
static void test_tale_moe(void **state)
{
	(void)state;
	const struct pack_options o = { .bits = 4, .dense_bits = 8, .group = 64 };
	struct plan *p;
	int missing;
	struct checkpoint *ck = open_data("tale-moe", &missing);

	assert_int_equal(missing, 0);
	assert_int_equal(ck->config.mtp_layers, 1);
	assert_int_equal(plan_make(ck, &o, &spread, &p, why), 0);
	assert_int_equal(p->layouts, 2);
	assert_int_equal(p->layers, 6);
	assert_int_equal(p->experts, 6 * 64);
	/* 64 x 256 weights: half a byte each, and 2 bytes for 64; three such matrices. */
	assert_int_equal(p->layout[0].bytes, 3 * (64 * 256 / 2 + 64 * 256 / 64 * 2));
	assert_int_equal(p->layout[1].bytes, 3 * (64 * 256 + 64 * 256 / 64 * 2));
	assert_int_equal(plan_layout_of(p, 5 * 64 - 1)->bytes, p->layout[0].bytes);
	assert_int_equal(plan_layout_of(p, 5 * 64)->bytes, p->layout[1].bytes);
	assert_int_equal(plan_layer_of(p, 5 * 64)->layer, 6);
	check_type(p, "model.embed_tokens.weight", W_Q8, 64);
	check_type(p, "model.layers.6.eh_proj.weight", W_Q8, 64);
	check_type(p, "model.layers.3.mlp.shared_experts.up_proj.weight", W_Q8, 64);
	check_type(p, "model.layers.3.mlp.gate.weight", W_F32, 0);
	check_type(p, "model.layers.3.mlp.gate.e_score_correction_bias", W_F32, 0);
	check_type(p, "model.layers.2.self_attn.indexer.weights_proj.weight", W_F32, 0);
	check_type(p, "model.layers.2.self_attn.indexer.k_norm.bias", W_F32, 0);
	assert_null(find(p, "model.layers.3.self_attn.indexer.wk.weight"));
	assert_non_null(find(p, "model.layers.6.self_attn.indexer.wk.weight"));
	assert_null(find(p, "model.layers.6.shared_head.head.weight"));
	plan_free(p);
	ckpt_close(ck);
}

static void test_places(void **state)
{
	(void)state;
	const struct pack_options o = { .bits = 32, .dense_bits = 32, .group = 64 };
	uint64_t end[3] = { SHARD_ALIGN, SHARD_ALIGN, SHARD_ALIGN }, dense = 0, source = 0;
	struct plan *p;
	int missing;
	struct checkpoint *ck = open_data("glm-s", &missing);

	assert_int_equal(plan_make(ck, &o, &spread, &p, why), 0);
	assert_int_equal(p->layouts, 1);
	assert_int_equal(p->place.experts, p->experts);
	for (uint32_t i = 0; i < placement_parts(&p->place); i++) {
		const struct part *x = &p->place.part[i];
		assert_int_equal(x->offset, end[x->drive]);
		end[x->drive] += record_bytes(x->bytes);
		assert_int_equal(end[x->drive] % SHARD_ALIGN, 0);
	}
	for (int d = 0; d < 3; d++)
		assert_int_equal(p->place.shard_bytes[d], end[d]);
	for (size_t i = 0; i < p->dense_count; i++) {
		assert_int_equal(p->dense[i].offset, dense);
		assert_int_equal(dense % 64, 0);
		dense += p->dense[i].bytes;
	}
	assert_int_equal(p->dense_bytes, dense);
	/* This checkpoint holds nothing that is not packed. */
	for (size_t i = 0; i < ck->files; i++)
		for (size_t j = 0; j < ck->file[i].tensors; j++)
			source += ck->file[i].tensor[j].bytes;
	assert_int_equal(p->source_bytes, source);
	plan_free(p);
	ckpt_close(ck);
}

/* A file of usage in $TMPDIR; removed by the caller. */
static char *write_usage(const char *text)
{
	static char path[512];
	const char *tmp = getenv("TMPDIR");

	snprintf(path, sizeof(path), "%s/test_pack_plan.XXXXXX", tmp ? tmp : "/tmp");
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	return path;
}

#define HEAD "layer,expert,heat,uses,loads,last_use,load_ns\n"
#define REST ",1,1,1700000000,5000\n"

/* The hottest that fit get a copy more, on other drives. */
static void test_hot(void **state)
{
	(void)state;
	const struct pack_options o = { .bits = 4, .dense_bits = 8, .group = 64 };
	struct spread s = spread;
	struct plan *p;
	int missing;
	struct checkpoint *ck = open_data("tale-moe", &missing);

	s.usage = write_usage(HEAD "1,0,2.5" REST "1,1,0" REST "5,63,3e2" REST "3,7,2.5" REST
				   "2,2,1" REST);
	s.hot_bytes = 3 * 26112 + 26111;
	assert_int_equal(plan_make(ck, &o, &s, &p, why), 0);
	assert_int_equal(p->hot, 3);
	assert_true(p->usage_check != 0);
	for (uint32_t e = 0; e < p->experts; e++) {
		bool hot = e == 0 || e == 4 * 64 + 63 || e == 2 * 64 + 7;
		uint32_t from = p->place.start[e], to = p->place.start[e + 1];
		assert_int_equal(to - from, hot ? 2 : 1);
		if (hot) {
			assert_int_equal(p->place.part[to - 1].copy, 1);
			assert_int_not_equal(p->place.part[from].drive,
					     p->place.part[to - 1].drive);
		}
	}
	plan_free(p);
	/* Those without heat are not hot, whatever room there is. */
	s.hot_bytes = 1ull << 40;
	assert_int_equal(plan_make(ck, &o, &s, &p, why), 0);
	assert_int_equal(p->hot, 4);
	plan_free(p);
	unlink(s.usage);
	ckpt_close(ck);
}

static void test_refused_usage(void **state)
{
	(void)state;
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "is empty" },
		{ "layer,expert\n", "its first line is not" },
		{ "layer,expert,heat,uses,loads,last_use,load_nse\n", "its first line is not" },
		{ HEAD "1\n", "line 2" },
		{ HEAD "1,-2,3" REST, "line 2" },
		{ HEAD "1,2,hot" REST, "heat" },
		{ HEAD "1,2,nan" REST, "heat" },
		{ HEAD "1,2,-1" REST, "heat" },
		{ HEAD "0,2,1" REST, "no expert 0/2" },
		{ HEAD "1,64,1" REST, "no expert 1/64" },
		{ HEAD "1,99999999999999999999,1" REST, "no expert 1/" },
		{ HEAD "1,2,1" REST "1,2,2" REST, "line 3: expert 1/2 comes twice" },
	};
	const struct pack_options o = { .bits = 4, .dense_bits = 8, .group = 64 };
	struct plan *p;
	int missing;
	struct checkpoint *ck = open_data("tale-moe", &missing);

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct spread s = spread;
		s.usage = write_usage(bad[i].text);
		s.hot_bytes = 1;
		assert_int_equal(plan_make(ck, &o, &s, &p, why), -EINVAL);
		if (!strstr(why, bad[i].says) || !strstr(why, s.usage))
			fail_msg("\"%s\" does not say \"%s\"", why, bad[i].says);
		unlink(s.usage);
	}
	ckpt_close(ck);
}

static void test_model_json(void **state)
{
	(void)state;
	const struct pack_options o = { .bits = 4, .dense_bits = 16, .group = 32 };
	struct plan *p;
	char *text;
	int missing;
	struct checkpoint *ck = open_data("tale-moe", &missing);

	assert_int_equal(plan_make(ck, &o, &one, &p, why), 0);
	assert_int_equal(modeljson_text(p, &text, why), 0);
	json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(root);
	assert_non_null(strstr(text, ck->config_text));
	assert_string_equal(json_string_value(json_object_get(root, "name")), "tale-moe");
	const json_t *dense = json_object_get(root, "dense");
	assert_int_equal(json_array_size(json_object_get(dense, "tensors")), p->dense_count);
	assert_int_equal(json_integer_value(json_object_get(dense, "bytes")), p->dense_bytes);
	json_decref(root);
	free(text);
	plan_free(p);
	ckpt_close(ck);
}

static void check_config(const char *text, int want, const char *says)
{
	struct pack_config c;
	json_t *root = json_loads(text, 0, NULL);

	assert_non_null(root);
	assert_int_equal(pack_config_parse(root, "THE FILE", &c, why), want);
	if (!strstr(why, says) || !strstr(why, "THE FILE"))
		fail_msg("\"%s\" does not say \"%s\"", why, says);
	json_decref(root);
}

static void test_refused_configs(void **state)
{
	(void)state;
	check_config("{}", -EINVAL, "model_type is missing");
	check_config("{\"model_type\": 7}", -EINVAL, "model_type is missing");
	check_config("{\"model_type\": \"glm_moe_dsa\"}", -EINVAL, "\"vocab_size\" is missing");
	check_config("{\"model_type\": \"glm_moe_dsa\", \"n_routed_experts\": 0}", -EINVAL,
		     "dense model (no routed experts)");
	check_config("{\"model_type\": \"llama\"}", -EINVAL, "\"llama\" is a dense model");
	check_config("{\"model_type\": \"phimoe\", \"num_experts\": 128}", -EINVAL,
		     "\"phimoe\" is not supported; supported: glm_moe_dsa, deepseek_v3, ");
	check_config("{\"model_type\": \"granitemoe\", \"num_local_experts\": 8}", -EINVAL,
		     "\"granitemoe\" is not supported");
}

static void test_progress_text(void **state)
{
	(void)state;
	struct pack_progress p = {
		.total = 4ull << 30, .done = 3ull << 30, .earlier = 1ull << 30, .started = 1000
	};
	char line[160];

	/* 2 GiB in 8192 s are 256 KiB/s; the last one then takes 4096 s. */
	pack_progress_text(&p, 1000 + 8192000000000ull, line, sizeof(line));
	assert_string_equal(line, " 75.0 %  3.00 GiB of 4.00 GiB, 256 KiB/s, 1:08:16 left");
	pack_progress_text(&p, 1000, line, sizeof(line));
	assert_string_equal(line, " 75.0 %  3.00 GiB of 4.00 GiB, 0 B/s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tale_moe),      cmocka_unit_test(test_places),
		cmocka_unit_test(test_hot),           cmocka_unit_test(test_refused_usage),
		cmocka_unit_test(test_model_json),    cmocka_unit_test(test_refused_configs),
		cmocka_unit_test(test_progress_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
