/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations that say more than the model has: keys of other families. Copies of small
 * checkpoints of tests/data are changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h" /* before cmocka.h, which has a macro of that name */
#include <cmocka.h>

#include "tools/coli-pack/checkpoint.h"
#include "tools/coli-pack/textfile.h"

static char why[WHY_MAX];
static char dir[256];

static void copy(const char *family, const char *name)
{
	const char *data = getenv("TEST_DATA");
	char from[512], to[512], *text = NULL;
	size_t n = 0;

	snprintf(from, sizeof(from), "%s/families/%s/%s", data ? data : "tests/data", family, name);
	snprintf(to, sizeof(to), "%s/%s", dir, name);
	if (text_load(from, 64u << 20, &text, &n, why) || text_save(to, text, n, why))
		fail_msg("%s", why);
	free(text);
}

static void make_copy(const char *family)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/config-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(dir));
	copy(family, "config.json");
	copy(family, "tokenizer.json");
	copy(family, "model.safetensors");
}

static void remove_copy(void)
{
	const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors" };
	char path[512];

	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

/* Puts what is in `more` into config.json, or below `under` in it. */
static void change_config(const char *under, const char *more)
{
	char path[512];
	json_t *root, *add = json_loads(more, 0, NULL);

	snprintf(path, sizeof(path), "%s/config.json", dir);
	root = json_load_file(path, 0, NULL);
	assert_non_null(root);
	assert_non_null(add);
	json_object_update(under ? json_object_get(root, under) : root, add);
	assert_int_equal(json_dump_file(root, path, 0), 0);
	json_decref(add);
	json_decref(root);
}

static struct checkpoint *open_copy(void)
{
	struct checkpoint *ck = NULL;
	int missing;

	if (ckpt_open(dir, &ck, &missing, why))
		fail_msg("%s", why);
	return ck;
}

/* As the engine will read it out of model.json. */
static struct model_config read_again(const struct checkpoint *ck)
{
	json_t *root = json_loads(ck->config_text, 0, NULL);
	struct model_config c;

	assert_non_null(root);
	if (config_read(root, "config", &c, why))
		fail_msg("%s", why);
	json_decref(root);
	return c;
}

/* Nothing but what the family has counts. */
static void check_foreign(const char *family, const char *under, const char *more)
{
	make_copy(family);
	struct checkpoint *plain = open_copy();
	change_config(under, more);
	struct checkpoint *ck = open_copy();
	struct model_config c = read_again(ck);
	assert_memory_equal(&ck->config.model, &plain->config.model, sizeof(c));
	assert_memory_equal(&c, &plain->config.model, sizeof(c));
	ckpt_close(ck);
	ckpt_close(plain);
	remove_copy();
}

static void keys_of_other_families(void **state)
{
	(void)state;
	check_foreign(
		"qwen3_moe", NULL,
		"{\"clip_qkv\": 0.5, \"routed_scaling_factor\": 2.5, \"rope_interleave\": true, "
		"\"n_group\": 2, \"topk_group\": 1, \"topk_method\": \"noaux_tc\", "
		"\"scoring_func\": \"sigmoid\", \"first_k_dense_replace\": 1, "
		"\"moe_layer_freq\": 2, \"partial_rotary_factor\": 0.5}");
	check_foreign("qwen3_moe", "rope_parameters", "{\"partial_rotary_factor\": 0.5}");
	check_foreign("mixtral", NULL,
		      "{\"norm_topk_prob\": false, \"decoder_sparse_step\": 2, "
		      "\"mlp_only_layers\": [0]}");
	check_foreign("glm4_moe", NULL,
		      "{\"decoder_sparse_step\": 2, \"mlp_only_layers\": [2], \"clip_qkv\": 1.0}");
}

/* And what it has does. */
static void keys_of_the_family(void **state)
{
	(void)state;
	make_copy("glm4_moe");
	change_config(NULL, "{\"partial_rotary_factor\": 0.25, \"routed_scaling_factor\": 3.0}");
	struct checkpoint *ck = open_copy();
	assert_int_equal(ck->config.model.rope, 4);
	assert_true(ck->config.model.routed_scale == 3);
	ckpt_close(ck);
	remove_copy();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_of_other_families),
		cmocka_unit_test(keys_of_the_family),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
