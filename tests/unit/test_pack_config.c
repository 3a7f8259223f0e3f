/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations that say something else than the model has: keys of other families, and tied
 * embeddings where the tensors are not. Copies of small checkpoints of tests/data are changed.
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

#include "tools/coli-pack/plan.h"
#include "tools/coli-pack/textfile.h"

#define EMBEDDING "model.embed_tokens.weight"
#define HEAD      "lm_head.weight"

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
	check_foreign("deepseek_v2", NULL, "{\"rope_interleave\": false}");
	check_foreign("gpt_oss", NULL,
		      "{\"swiglu_limit\": 2.0, \"swiglu_alpha\": 1.0, \"max_window_layers\": 1}");
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

static const struct plan_dense *find(const struct plan *p, const char *name)
{
	for (size_t i = 0; i < p->dense_count; i++)
		if (strcmp(p->dense[i].name, name) == 0)
			return &p->dense[i];
	return NULL;
}

/* The tensors that embedding and head (NULL: none) are made of. */
static void check_head(const struct checkpoint *ck, const char *embedding, const char *head)
{
	static const uint64_t speed[1] = { 1 };
	const struct spread one = { .replicas = 1, .drives = 1, .speed = speed };
	const struct pack_options o = { .bits = 16, .dense_bits = 16, .group = 32 };
	struct plan *p = NULL;

	if (plan_make(ck, &o, &one, &p, why))
		fail_msg("%s", why);
	assert_string_equal(find(p, EMBEDDING)->src.tensor->name, embedding);
	if (head)
		assert_string_equal(find(p, HEAD)->src.tensor->name, head);
	else
		assert_null(find(p, HEAD));
	assert_int_equal(read_again(ck).tied, !head);
	plan_free(p);
}

/* tie_word_embeddings is true, but there are a matrix of the one and a matrix of the other. */
static void two_matrices(void **state)
{
	struct checkpoint *ck;

	(void)state;
	make_copy("qwen3_moe");
	change_config(NULL, "{\"tie_word_embeddings\": true}");
	ck = open_copy();
	check_head(ck, EMBEDDING, HEAD);

	const struct st_tensor *from = ckpt_find(ck, EMBEDDING), *to = ckpt_find(ck, HEAD);
	char *bytes = malloc(from->bytes), path[512];
	FILE *f;
	assert_non_null(bytes);
	assert_int_equal(pread(from->file->fd, bytes, from->bytes, (off_t)from->offset),
			 from->bytes);
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	f = fopen(path, "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, (long)to->offset, SEEK_SET), 0);
	assert_int_equal(fwrite(bytes, 1, from->bytes, f), from->bytes);
	assert_int_equal(fclose(f), 0);
	free(bytes);
	ckpt_close(ck);

	ck = open_copy();
	check_head(ck, EMBEDDING, NULL);
	ckpt_close(ck);
	remove_copy();
}

/* One matrix, under the head's name. */
static void named_as_head(void **state)
{
	char path[512], *text = NULL, *at;
	size_t n = 0;

	(void)state;
	make_copy("qwen3_switched");
	snprintf(path, sizeof(path), "%s/model.safetensors", dir);
	assert_int_equal(text_load(path, 64u << 20, &text, &n, why), 0);
	at = memmem(text, n, "\"" EMBEDDING "\"", strlen(EMBEDDING) + 2);
	assert_non_null(at);
	memset(at, ' ', strlen(EMBEDDING) + 2);
	memcpy(at, "\"" HEAD "\"", strlen(HEAD) + 2);
	assert_int_equal(text_save(path, text, n, why), 0);
	free(text);
	struct checkpoint *ck = open_copy();
	check_head(ck, HEAD, NULL);
	ckpt_close(ck);
	remove_copy();
}

static void a_family_without_a_name_has_no_keys(void **state)
{
	json_t *root = json_loads("{\"model_type\": \"\", \"norm_topk_prob\": true}", 0, NULL);

	(void)state;
	assert_non_null(root);
	assert_true(pack_config_own(root));
	assert_null(json_object_get(root, "norm_topk_prob"));
	json_decref(root);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_family_without_a_name_has_no_keys),
		cmocka_unit_test(keys_of_other_families),
		cmocka_unit_test(keys_of_the_family),
		cmocka_unit_test(two_matrices),
		cmocka_unit_test(named_as_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
