/* SPDX-License-Identifier: Apache-2.0
 *
 * How positions are stretched beyond the length a model was first trained with: the keys of
 * rope.scaling as "rope_scaling" of config.json. Source: llama.cpp, conversion/base.py and
 * deepseek.py, src/llama-model.cpp.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_arch.h"

/* Corrections that no file of these architectures has but with the value that changes nothing. llama.cpp
 * heeds the first of them without a scaling as well. */
static int check_factors(const struct gguf *g, char *why)
{
	static const char *const keys[] = { "%s.rope.scaling.attn_factor",
					    "%s.rope.scaling.yarn_attn_factor",
					    "%s.rope.scaling.yarn_ext_factor" };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		double v = 1;
		int err = gguf_float(g, keys[i], &v, why);
		if (err && err != -ENOENT)
			return err;
		if (v != 1)
			return fail(why, EINVAL, "%s: %s%s %g is not supported, only 1",
				    g->part[0].path, g->arch, keys[i] + 2, v);
	}
	return 0;
}

/* Float key `gguf` as `hf`, if it is there. */
static int take(const struct gguf *g, const char *gguf, json_t *rope, const char *hf, char *why)
{
	double v;
	int err = gguf_float(g, gguf, &v, why);

	if (err)
		return err == -ENOENT ? 0 : err;
	return gguf_put(rope, hf, json_real(v), why);
}

/* DeepSeek's files have a tenth of mscale_all_dim, and leave out mscale, which is the same in all of
 * its models. */
static int take_mscale(const struct gguf *g, const struct gguf_arch *a, json_t *rope, char *why)
{
	double tenth = 0;
	int err = gguf_float(g, "%s.rope.scaling.yarn_log_multiplier", &tenth, why);

	if (err && err != -ENOENT)
		return err;
	if (tenth == 0)
		return 0;
	if (!a->latent)
		return fail(why, EINVAL, "%s: %s.rope.scaling.yarn_log_multiplier is not supported",
			    g->part[0].path, g->arch);
	err = gguf_put(rope, "mscale", json_real(10 * tenth), why);
	return err ? err : gguf_put(rope, "mscale_all_dim", json_real(10 * tenth), why);
}

static int yarn(const struct gguf *g, const struct gguf_arch *a, json_t *rope, char *why)
{
	bool truncate = a->yarn_truncate;
	int err = gguf_bool(g, "%s.rope.scaling.yarn_truncate", &truncate, why);

	if (err && err != -ENOENT)
		return err;
	err = gguf_put(rope, "truncate", json_boolean(truncate), why);
	err = err ? err : take(g, "%s.rope.scaling.yarn_beta_fast", rope, "beta_fast", why);
	err = err ? err : take(g, "%s.rope.scaling.yarn_beta_slow", rope, "beta_slow", why);
	if (!err)
		err = gguf_take_int(g, "%s.rope.scaling.original_context_length", rope,
				    "original_max_position_embeddings", -1, why);
	return err ? err : take_mscale(g, a, rope, why);
}

/* Without a type it is linear; without a factor it is none. */
static int kind_of(const struct gguf *g, double *factor, const char **kind, char *why)
{
	static const char *const kinds[] = { "none", "linear", "yarn" };
	struct gguf_text t = { "linear", 6 };
	int err = gguf_string(g, "%s.rope.scaling.type", &t, why);

	if (!err || err == -ENOENT)
		err = gguf_float(g, "%s.rope.scaling.factor", factor, why);
	if (err == -ENOENT) /* as files of 2023 have it */
		err = gguf_float(g, "%s.rope.scale_linear", factor, why);
	if (err && err != -ENOENT)
		return err;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (t.bytes == strlen(kinds[i]) && memcmp(t.at, kinds[i], t.bytes) == 0) {
			bool plain = i == 0 || *factor == 0 || (i == 1 && *factor == 1);
			*kind = plain ? NULL : kinds[i];
			return 0;
		}
	return fail(why, EINVAL,
		    "%s: rope.scaling.type \"%.*s\" is not supported, only none, linear and yarn",
		    g->part[0].path, t.bytes < 100 ? (int)t.bytes : 100, t.at);
}

int gguf_rope(const struct gguf *g, const struct gguf_arch *a, json_t *config, char *why)
{
	const char *kind = NULL;
	double factor = 0;
	int err = check_factors(g, why);

	err = err ? err : kind_of(g, &factor, &kind, why);
	if (err)
		return err;
	if (!kind) /* which keeps the engine from the family's default */
		return gguf_put(config, "rope_scaling", json_pack("{s:s}", "type", "default"), why);
	json_t *rope = json_pack("{s:s, s:f}", "type", kind, "factor", factor);
	err = gguf_put(config, "rope_scaling", rope, why);
	return err || strcmp(kind, "yarn") != 0 ? err : yarn(g, a, rope, why);
}
