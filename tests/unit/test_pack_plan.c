/* SPDX-License-Identifier: Apache-2.0
 *
 * What coli-pack plans for the two checkpoints of tests/data: types, sizes, order, and how experts
 * are dealt out; and the lines that say how far it is.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "expertfs/shard.h"
#include "tools/coli-pack/modeljson.h"
#include "tools/coli-pack/progress.h"

static char why[WHY_MAX];

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
	assert_int_equal(plan_make(ck, &o, 3, &p, why), 0);
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

	assert_int_equal(plan_make(ck, &o, 3, &p, why), 0);
	assert_int_equal(p->layouts, 1);
	for (uint32_t e = 0; e < p->experts; e++) {
		uint32_t d = p->place[e].drive;
		assert_int_equal(d, e % 3);
		assert_int_equal(p->place[e].offset, end[d]);
		end[d] += record_bytes(plan_layout_of(p, e)->bytes);
		assert_int_equal(end[d] % SHARD_ALIGN, 0);
	}
	for (int d = 0; d < 3; d++)
		assert_int_equal(p->shard_bytes[d], end[d]);
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

static void test_model_json(void **state)
{
	(void)state;
	const struct pack_options o = { .bits = 4, .dense_bits = 16, .group = 32 };
	struct plan *p;
	char *text;
	int missing;
	struct checkpoint *ck = open_data("tale-moe", &missing);

	assert_int_equal(plan_make(ck, &o, 1, &p, why), 0);
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
	check_config("{\"model_type\": \"glm_moe_dsa\"}", -EINVAL, "dense model");
	check_config("{\"model_type\": \"glm_moe_dsa\", \"n_routed_experts\": 0}", -EINVAL,
		     "dense model (no routed experts)");
	check_config("{\"model_type\": \"llama\"}", -EINVAL, "\"llama\" is a dense model");
	check_config("{\"model_type\": \"qwen3_moe\", \"num_experts\": 128}", -EINVAL,
		     "\"qwen3_moe\" is not supported; supported: glm_moe_dsa");
	check_config("{\"model_type\": \"mixtral\", \"num_local_experts\": 8}", -EINVAL,
		     "\"mixtral\" is not supported");
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
		cmocka_unit_test(test_model_json),    cmocka_unit_test(test_refused_configs),
		cmocka_unit_test(test_progress_text),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
