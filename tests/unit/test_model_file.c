/* SPDX-License-Identifier: Apache-2.0
 *
 * model.json: what it says is what is read, defaults are those of the family, and nothing that it
 * could say gets past the checks. Each hostile case is the good file with one piece of text
 * exchanged.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/modelfile.h"
#include "tests/unit/tiny_model.h"

static char *good; /* a model.json that loads */

static char *exchange(const char *text, const char *from, const char *to)
{
	const char *at = strstr(text, from);

	if (!at)
		fail_msg("the good file does not hold %s", from);
	char *out = malloc(strlen(text) + strlen(to) + 1);
	sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	return out;
}

static int parse(const char *text, struct modelfile **m, char *why)
{
	why[0] = 0;
	return modelfile_parse(text, strlen(text), "DIR", "DIR/model.json", m, why);
}

static void refused(const char *from, const char *to, const char *words)
{
	struct modelfile *m;
	char why[1024], *text = exchange(good, from, to);
	int r = parse(text, &m, why);

	if (r != -EINVAL || m || !strstr(why, words) || !strstr(why, "DIR/model.json"))
		fail_msg("%s -> %s: result %d, \"%s\"", from, to, r, why);
	free(text);
}

static struct modelfile *accepted(const char *from, const char *to)
{
	struct modelfile *m;
	char why[1024], *text = exchange(good, from, to);

	if (parse(text, &m, why))
		fail_msg("%s -> %s: %s", from, to, why);
	free(text);
	return m;
}

static int read_good(void **state)
{
	struct tiny t;
	char path[512];

	(void)state;
	tiny_make(&t, (struct wfmt){ W_Q4, 64 }, 1);
	snprintf(path, sizeof(path), "%s/model.json", t.dir);
	FILE *f = fopen(path, "r");
	good = calloc(1, 1 << 17);
	size_t n = f && good ? fread(good, 1, (1 << 17) - 1, f) : 0;
	if (f)
		fclose(f);
	tiny_remove(&t);
	return n ? 0 : -1;
}

static int free_good(void **state)
{
	(void)state;
	free(good);
	return 0;
}

static void says_what_is_there(void **state)
{
	struct modelfile *m = accepted("\"tiny\"", "\"tiny\"");
	const struct model_config *c = &m->config;

	(void)state;
	assert_int_equal(m->dense_files, 1);
	assert_string_equal(m->dense_file[0].name, "dense.bin");
	assert_true(m->eos_count == 1 && m->eos[0] == 0);
	assert_true(c->vocab == 67 && c->hidden == 40 && c->layers == 4 && c->max_positions == 64);
	assert_true(c->heads == 3 && c->q_lora == 24 && c->kv_lora == 16 && c->nope == 12 &&
		    c->rope == 8 && c->v_dim == 10);
	assert_true(c->index_heads == 5 && c->index_dim == 16 && c->index_topk == 7);
	assert_true(c->experts == 20 && c->topk == 3 && c->groups == 4 && c->groups_kept == 2);
	assert_true(c->expert_width == 20 && c->shared_width == 40 && c->dense_width == 48);
	assert_true(c->rope_theta == 10000 && c->routed_scale == 1.5f);
	/* Not in the file: the family's. */
	assert_true(c->rope_interleave && c->index_interleave && c->norm_topk && !c->tied);
	assert_true(c->norm_eps == 1e-5f && c->arch->index_norm_eps == 1e-6f);
	assert_true(!c->sparse[0] && c->sparse[1] && c->sparse[3]);
	assert_true(c->full[0] && !c->full[1] && c->full[2] && !c->full[3]);
	assert_null(m->layer_layout[0]);
	assert_true(m->layer_layout[1] == m->layer_layout[3]);
	assert_true(m->largest_expert == m->layer_layout[1]->bytes);
	assert_int_equal(m->layer_layout[2]->matrix[EXPERT_DOWN].rows, 40);
	const struct tensor *t = modelfile_tensor(m, "model.layers.2.self_attn.q_a_proj.weight");
	assert_true(t && t->rows == 24 && t->cols == 40 && t->fmt.type == W_Q4 &&
		    t->fmt.group == 64);
	assert_null(modelfile_tensor(m, "model.layers.2.self_attn.q_a_proj"));
	modelfile_free(m);
}

/* The last matrix begins at one of four places of its block, the farthest of which ends with the
 * file. */
static void skewed_to_the_end(void **state)
{
	struct modelfile *m = accepted("\"tiny\"", "\"tiny\"");
	const struct expert_layout l = *m->layer_layout[1];
	const struct tensor down = l.matrix[EXPERT_DOWN];
	char from[100], to[200], why[1024];

	(void)state;
	modelfile_free(m);
	snprintf(from, sizeof(from), "\"shape\": [40, 20], \"offset\": %d,", (int)down.offset);
	char *moved =
		exchange(good, from, "\"shape\": [40, 20], \"skew\": 1024, \"offset\": 40960,");
	snprintf(from, sizeof(from), "\"bytes\": %d, \"matrices\"", (int)l.bytes);
	for (int missing = 0; missing < 2; missing++) {
		snprintf(to, sizeof(to), "\"bytes\": %d, \"matrices\"",
			 40960 + 3072 + (int)down.bytes - missing);
		char *text = exchange(moved, from, to);
		assert_int_equal(parse(text, &m, why), missing ? -EINVAL : 0);
		free(text);
		if (missing) {
			assert_non_null(strstr(why, "leads out of the file"));
			continue;
		}
		assert_int_equal(expert_matrix_offset(&m->layer_layout[1]->matrix[EXPERT_DOWN], 3),
				 40960 + 3072);
		modelfile_free(m);
	}
	free(moved);
}

static void both_spellings(void **state)
{
	struct modelfile *m;

	(void)state;
	m = accepted("\"rope_theta\": 10000",
		     "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5e6}");
	assert_true(m->config.rope_theta == 5e6);
	modelfile_free(m);
	m = accepted("\"rope_theta\": 10000", "\"rope_scaling\": null, \"rope_theta\": 777.0");
	assert_true(m->config.rope_theta == 777);
	modelfile_free(m);
	m = accepted("\"first_k_dense_replace\": 1",
		     "\"mlp_layer_types\": [\"dense\", \"sparse\", \"sparse\", \"dense\"]");
	assert_true(m->config.sparse[2] && !m->config.sparse[3]);
	modelfile_free(m);
	m = accepted("\"first_k_dense_replace\": 1",
		     "\"first_k_dense_replace\": 1, \"moe_layer_freq\": 2");
	assert_true(!m->config.sparse[1] && m->config.sparse[2] && !m->config.sparse[3]);
	modelfile_free(m);
	m = accepted("\"n_routed_experts\"", "\"num_experts\"");
	assert_int_equal(m->config.experts, 20);
	modelfile_free(m);
	m = accepted(
		"\"hidden_size\": 40",
		"\"hidden_size\": 40.0, \"rms_norm_eps\": 1e-6, \"tie_word_embeddings\": true");
	assert_true(m->config.norm_eps == 1e-6f && m->config.tied);
	modelfile_free(m);
	m = accepted("\"hidden_size\": 40",
		     "\"hidden_size\": 40, \"rope_interleave\": false, "
		     "\"indexer_rope_interleave\": false, \"norm_topk_prob\": false");
	assert_true(!m->config.rope_interleave && !m->config.index_interleave &&
		    !m->config.norm_topk);
	modelfile_free(m);
	m = accepted("\"n_shared_experts\": 2", "\"n_shared_experts\": 0");
	assert_int_equal(m->config.shared_width, 0);
	modelfile_free(m);
}

#define TYPES "\"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]"

static void check_full(const char *to, const char *letters)
{
	struct modelfile *m = accepted(TYPES, to);

	for (int i = 0; i < 4; i++)
		assert_int_equal(m->config.full[i], letters[i] == 'F');
	modelfile_free(m);
}

static void schedule_of_the_indexer(void **state)
{
	(void)state;
	check_full("\"x\": 0", "FFFF");
	check_full(
		"\"indexer_types\": null, \"index_topk_pattern\": \"FSSF\", \"index_topk_freq\": 2",
		"FSSF");
	check_full(TYPES ", \"index_topk_pattern\": \"FFFF\"", "FSFS"); /* the list goes first */
	check_full("\"index_topk_freq\": 2", "FFSF"); /* offset 2: max(i - 1, 0) mod 2 */
	check_full("\"index_topk_freq\": 4, \"index_skip_topk_offset\": 3", "FFFS");
	check_full("\"index_topk_freq\": 3, \"index_skip_topk_offset\": 1", "FSSF");
	refused(TYPES, "\"index_topk_pattern\": \"SFFF\"", "layer 0 has no indexer");
	refused(TYPES, "\"index_topk_pattern\": \"FSS\"", "not 4 letters");
	refused(TYPES, "\"index_topk_pattern\": \"FXSF\"", "not 4 letters");
	refused(TYPES, "\"index_topk_pattern\": 5", "not 4 letters");
	refused(TYPES, "\"indexer_types\": [\"full\"]", "list of 4 layers");
	refused(TYPES, "\"indexer_types\": [\"full\", \"full\", \"full\", \"half\"]", "neither");
}

/* GLM-5.2: full layers 0, 1, 2, 6, 10, ..., 74. */
static void schedule_of_glm_5_2(void **state)
{
	char text[4096], why[1024];
	struct model_config c;
	int full = 0;

	(void)state;
	snprintf(text, sizeof(text),
		 "{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 154880, \"hidden_size\": 6144, "
		 "\"num_hidden_layers\": 78, \"num_nextn_predict_layers\": 1, "
		 "\"max_position_embeddings\": 1048576, "
		 "\"num_attention_heads\": 64, \"q_lora_rank\": 2048, \"kv_lora_rank\": 512, "
		 "\"qk_nope_head_dim\": 192, "
		 "\"qk_rope_head_dim\": 64, \"v_head_dim\": 256, \"head_dim\": 192, "
		 "\"index_n_heads\": 32, "
		 "\"index_head_dim\": 128, \"index_topk\": 2048, \"intermediate_size\": 12288, "
		 "\"moe_intermediate_size\": 2048, \"num_experts_per_tok\": 8, "
		 "\"n_routed_experts\": 256, "
		 "\"n_shared_experts\": 1, \"n_group\": 1, \"topk_group\": 1, "
		 "\"first_k_dense_replace\": 3, "
		 "\"moe_layer_freq\": 1, \"index_topk_freq\": 4, \"index_skip_topk_offset\": 3, "
		 "\"index_topk_pattern\": null, \"scoring_func\": \"sigmoid\", \"topk_method\": "
		 "\"noaux_tc\", "
		 "\"hidden_act\": \"silu\", \"attention_bias\": false, \"rms_norm_eps\": 1e-5, "
		 "\"rope_parameters\": {\"rope_theta\": 8000000, \"rope_type\": \"default\"}}");
	json_t *config = json_loads(text, 0, NULL);
	assert_int_equal(config_read(config, "config", &c, why), 0);
	for (int i = 0; i < 78; i++) {
		assert_int_equal(c.full[i], i < 3 || (i - 2) % 4 == 0);
		assert_int_equal(c.sparse[i], i >= 3);
		full += c.full[i];
	}
	assert_int_equal(full, 21);
	assert_true(c.rope_theta == 8e6 && c.routed_scale == 2.5f && c.rope == 64 &&
		    c.extra_layers == 1);
	json_decref(config);
}

static void other_kinds_of_model(void **state)
{
	(void)state;
	refused("\"model_type\": \"glm_moe_dsa\"", "\"model_type\": \"llama\"",
		"models of type \"llama\" are not supported");
	refused("\"q_lora_rank\": 24", "\"q_lora_rank\": null", "without a low-rank step");
	refused("\"rope_theta\": 10000",
		"\"rope_theta\": 1e4, \"rope_scaling\": {\"type\": \"longrope\"}",
		"\"longrope\" is not supported");
	refused("\"rope_theta\": 10000",
		"\"rope_parameters\": {\"rope_type\": \"su\", \"rope_theta\": 1e4}",
		"\"su\" is not supported");
	refused("\"hidden_size\": 40", "\"hidden_size\": 40, \"hidden_act\": \"gelu\"",
		"\"gelu\" is not supported");
	refused("\"hidden_size\": 40", "\"hidden_size\": 40, \"scoring_func\": \"softmax\"",
		"\"softmax\" is not supported");
	refused("\"hidden_size\": 40", "\"hidden_size\": 40, \"mlp_bias\": true", "mlp_bias");
	refused("\"format\": \"expertfs-model\"", "\"format\": \"gguf\"", "not an expertfs model");
	refused("\"version\": 2", "\"version\": 1", "pack the model anew");
	refused("\"version\": 2", "\"version\": 3", "is of format version 3");
}

static void numbers_out_of_bounds(void **state)
{
	(void)state;
	refused("\"hidden_size\": 40", "\"hidden_size\": -40", "\"hidden_size\" is -40");
	refused("\"hidden_size\": 40", "\"hidden_size\": 0", "\"hidden_size\" is 0");
	refused("\"hidden_size\": 40", "\"hidden_size\": 4000000000",
		"\"hidden_size\" is 4000000000");
	refused("\"hidden_size\": 40", "\"hidden_size\": 40.5", "not an integer");
	refused("\"hidden_size\": 40", "\"hidden_size\": \"40\"", "not an integer");
	refused("\"hidden_size\": 40", "\"hidden_size\": 48",
		"48"); /* the experts' shapes say 40 */
	refused("\"vocab_size\": 67", "\"x\": 67", "\"vocab_size\" is missing");
	refused("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 100000", "num_hidden_layers");
	refused("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5", "list of 5 layers");
	refused("\"index_n_heads\": 5, \"index_head_dim\": 16",
		"\"index_n_heads\": 4096, \"index_head_dim\": 2048", "which is not plausible");
	refused("\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 7", "odd");
	refused("\"qk_rope_head_dim\": 8", "\"qk_rope_head_dim\": 18", "index_head_dim");
	refused("\"kv_lora_rank\": 16", "\"kv_lora_rank\": 300000", "kv_lora_rank");
	refused("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 11", "only 10 experts");
	refused("\"num_experts_per_tok\": 3", "\"num_experts_per_tok\": 0", "num_experts_per_tok");
	refused("\"n_group\": 4", "\"n_group\": 3", "impossible");
	refused("\"n_group\": 4", "\"n_group\": 20", "groups of one expert");
	refused("\"topk_group\": 2", "\"topk_group\": 5", "impossible");
	refused("\"n_routed_experts\": 20", "\"n_routed_experts\": 24", "20 experts a layer");
	refused("\"rope_theta\": 10000", "\"rope_theta\": 0", "rope_theta");
	refused("\"rope_theta\": 10000", "\"x\": 0", "\"rope_theta\" is missing");
	refused("\"routed_scaling_factor\": 1.5", "\"routed_scaling_factor\": \"much\"",
		"not a number");
	refused("\"eos_token_ids\": [0]", "\"eos_token_ids\": [67]", "end token");
	refused("\"eos_token_ids\": [0]", "\"eos_token_ids\": [-1]", "end token");
	refused("\"eos_token_ids\": [0]", "\"eos_token_ids\": 0", "no array");
}

static void tensors_that_lie(void **state)
{
	(void)state;
	refused("\"file\": \"dense.bin\"", "\"file\": \"../dense.bin\"", "not a plain file name");
	refused("\"file\": \"dense.bin\"", "\"file\": \"..\"", "not a plain file name");
	refused("\"file\": \"dense.bin\"", "\"file\": \"\"", "not a plain file name");
	refused("\"type\": \"q4\"", "\"type\": \"q5\"", "type \"q5\" is unknown");
	refused("\"type\": \"q4\", \"group\": 64", "\"type\": \"q4\", \"group\": 48", "48");
	refused("\"type\": \"q4\", \"group\": 64", "\"type\": \"q4\"", "\"group\" is missing");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [67, 140], \"offset\": 0",
		"67 x 140");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [67, 40, 1], \"offset\": 0",
		"3 dimensions");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [], \"offset\": 0",
		"0 dimensions");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [-67, 40], \"offset\": 0",
		"impossible");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [4294967363, 40], \"offset\": 0",
		"impossible");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [67, 40], \"offset\": 32",
		"not aligned");
	refused("\"shape\": [67, 40], \"offset\": 0",
		"\"shape\": [67, 40], \"offset\": 4611686018427387840", "offset");
	refused("\"shape\": [67, 40], \"offset\": 0", "\"shape\": [67, 40], \"offset\": -64",
		"offset");
	refused("\"lm_head.weight\"", "\"model.norm.weight\"", "there twice");
	refused("\"name\": \"model.norm.weight\"", "\"name\": 7", "not a string");
	refused("\"tensors\": [{", "\"tensors\": [7, {", "");
	refused("\"tensors\": [", "\"tensors\": null, \"x\": [", "no array \"tensors\"");
}

static void layouts_that_lie(void **state)
{
	(void)state;
	refused("\"layers\": [1, 2, 3, 4]", "\"layers\": [1, 2, 4]", "layer 3 should have experts");
	refused("\"layers\": [1, 2, 3, 4]", "\"layers\": [1, 2, 3, 3]", "in two layouts");
	refused("\"layers\": [1, 2, 3, 4]", "\"layers\": [1, 2, 3, 100000]", "impossible layer");
	refused("\"layers\": [1, 2, 3, 4]", "\"layers\": [1, 2, 3, \"4\"]", "impossible layer");
	refused("\"name\": \"up\"", "\"name\": \"gate\"", "there twice");
	refused("\"name\": \"up\"", "\"name\": \"side\"", "unknown");
	refused("\"shape\": [20, 40], \"offset\": 0", "\"shape\": [40, 20], \"offset\": 0", "");
	refused("\"count\": 20", "\"count\": 21", "21 experts");
	refused("\"layers\": [1, 2, 3, 4], \"bytes\": ",
		"\"layers\": [1, 2, 3, 4], \"bytes\": 64, \"x\": ", "beyond the file's 64");
	refused("\"layers\": [1, 2, 3, 4], \"bytes\": ",
		"\"layers\": [1, 2, 3, 4], \"bytes\": 68719476737, \"x\": ",
		"\"bytes\" is 68719476737");
	refused("\"experts\": {", "\"x\": {", "no object \"experts\"");
}

/* Tensors that lie in the same bytes: as a sum, more than 64 bits hold. */
static void sums_that_wrap(void **state)
{
	char *text = exchange(good, "], \"bytes\": ", "], \"bytes\": 1152921504606846976, \"x\": ");
	char list[64 * 160] = "\"tensors\": [", why[1024];
	struct modelfile *m;

	(void)state;
	for (int i = 0; i < 64; i++)
		snprintf(
			list + strlen(list), 160,
			"{\"name\": \"x%d\", \"type\": \"f32\", \"shape\": [268435456, 268435456], "
			"\"offset\": 0, \"bytes\": 288230376151711744}, ",
			i);
	char *many = exchange(text, "\"tensors\": [", list);
	assert_int_equal(parse(many, &m, why), -EINVAL);
	if (!strstr(why, "impossibly many bytes"))
		fail_msg("%s", why);
	free(many);
	free(text);
}

/* Every beginning of the file, and every byte of it exchanged for a few others: no crash, and what
 * loads has passed the checks. */
static void damaged_text_never_crashes(void **state)
{
	size_t n = strlen(good);
	char why[1024], *text = malloc(n + 1);
	struct modelfile *m;

	(void)state;
	for (size_t i = 0; i < n - 2; i += 7)
		assert_int_equal(modelfile_parse(good, i, "DIR", "DIR/model.json", &m, why),
				 -EINVAL);
	for (size_t i = 0; i < n; i += 3) {
		memcpy(text, good, n + 1);
		text[i] = "9-\"{}[]e,x"[i % 10];
		if (modelfile_parse(text, n, "DIR", "DIR/model.json", &m, why) == 0)
			modelfile_free(m);
	}
	free(text);
}

static void no_such_place(void **state)
{
	struct modelfile *m;
	char why[1024];

	(void)state;
	assert_int_equal(modelfile_load("/nowhere/at-all", &m, why), -ENOENT);
	assert_string_equal(why, "/nowhere/at-all holds no model.json: is expertfs mounted there?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(says_what_is_there),
		cmocka_unit_test(skewed_to_the_end),
		cmocka_unit_test(both_spellings),
		cmocka_unit_test(schedule_of_the_indexer),
		cmocka_unit_test(schedule_of_glm_5_2),
		cmocka_unit_test(other_kinds_of_model),
		cmocka_unit_test(numbers_out_of_bounds),
		cmocka_unit_test(tensors_that_lie),
		cmocka_unit_test(layouts_that_lie),
		cmocka_unit_test(sums_that_wrap),
		cmocka_unit_test(damaged_text_never_crashes),
		cmocka_unit_test(no_such_place),
	};

	return cmocka_run_group_tests(tests, read_good, free_good);
}
