/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads how positions turn queries and keys.
 *
 * The numbers stand in "rope_parameters" (transformers 5), or in "rope_scaling" with "rope_theta"
 * beside it (before). Sources: transformers modeling_rope_utils; the scale of scores: DeepSeek-V2's
 * and V3's model code.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "engine/config_parts.h"
#include "engine/fail.h"

/* YaRN's attention temperature for a context stretched by `factor`. */
static double mscale(double factor, double m)
{
	return factor > 1 ? 0.1 * m * log(factor) + 1 : 1;
}

/* The pair of d that makes `turns` turns within `length` positions. */
static double pair_of(double turns, double length, int d, double theta)
{
	return d * log(length / (turns * 2 * M_PI)) / (2 * log(theta));
}

static int read_yarn(const struct json_in *in, struct model_config *c, char *why)
{
	struct rope_scaling *s = &c->rope_scaling;
	double fast, slow, m, all;
	bool truncate;
	int r = in_number(in, "beta_fast", 1e-3, 1e6, 32, &fast, why);

	if (!r)
		r = in_number(in, "beta_slow", 1e-3, 1e6, 1, &slow, why);
	if (!r) /* transformers takes a null for false */
		r = in_bool(in, "truncate", !json_object_get(in->obj, "truncate"), &truncate, why);
	if (!r)
		r = in_number(in, "mscale", 0, 1e3, 0, &m, why);
	if (!r)
		r = in_number(in, "mscale_all_dim", 0, 1e3, 0, &all, why);
	if (r)
		return r;
	s->low = pair_of(fast, s->length, c->rope, c->rope_theta);
	s->high = pair_of(slow, s->length, c->rope, c->rope_theta);
	if (truncate) {
		s->low = floor(s->low);
		s->high = ceil(s->high);
	}
	s->low = fmax(s->low, 0);
	s->high = fmin(s->high, c->rope - 1);
	if (s->low == s->high)
		s->high += 0.001;
	s->amplitude = m != 0 && all != 0 ? mscale(s->factor, m) / mscale(s->factor, all)
					  : mscale(s->factor, 1);
	return in_number(in, "attention_factor", 1e-6, 1e6, s->amplitude, &s->amplitude, why);
}

static int read_llama3(const struct json_in *in, struct rope_scaling *s, char *why)
{
	int r = in_number(in, "low_freq_factor", 1e-6, 1e6, NAN, &s->low, why);

	if (!r)
		r = in_number(in, "high_freq_factor", 1e-6, 1e6, NAN, &s->high, why);
	if (!r && s->low >= s->high)
		r = fail(why, EINVAL, "%s: \"high_freq_factor\" is not above \"low_freq_factor\"",
			 in->where);
	return r;
}

static int find_kind(const struct json_in *in, enum rope_kind *kind, char *why)
{
	static const struct {
		const char *name;
		enum rope_kind kind;
	} kinds[] = {
		{ "default", ROPE_PLAIN }, { "linear", ROPE_LINEAR },   { "yarn", ROPE_YARN },
		{ "llama3", ROPE_LLAMA3 }, { "dynamic", ROPE_DYNAMIC },
	};
	const char *name;
	int r = in_text(in, in_at(in, "rope_type") ? "rope_type" : "type", "default", &name, why);

	for (size_t i = 0; !r && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strcmp(kinds[i].name, name) == 0) {
			*kind = kinds[i].kind;
			return 0;
		}
	return r ? r
		 : fail(why, EINVAL,
			"%s: rope_type \"%s\" is not supported, only \"default\", \"linear\", "
			"\"yarn\", \"llama3\" and \"dynamic\"",
			in->where, name);
}

/* in: the object with the scaling; top: the configuration. */
static int read_scaling(const struct json_in *in, const struct json_in *top, struct model_config *c,
			char *why)
{
	struct rope_scaling *s = &c->rope_scaling;
	double length = c->max_positions;
	int r = find_kind(in, &s->kind, why);

	if (r || s->kind == ROPE_PLAIN)
		return r;
	r = in_number(in, "original_max_position_embeddings", 1, MAX_POSITIONS, length, &s->length,
		      why);
	if (!r) /* some write it beside the object; that goes first */
		r = in_number(top, "original_max_position_embeddings", 1, MAX_POSITIONS, s->length,
			      &s->length, why);
	if (!r)
		r = in_number(in, "factor", 1e-3, 1e6,
			      s->kind == ROPE_YARN ? length / s->length : NAN, &s->factor, why);
	if (!r && s->kind == ROPE_YARN)
		r = read_yarn(in, c, why);
	if (!r && s->kind == ROPE_LLAMA3)
		r = read_llama3(in, s, why);
	return r;
}

int config_find_rope(const struct json_in *in, struct json_in *out, char *why)
{
	/* Where both stand, transformers 5 takes the former. */
	const char *key = in_at(in, "rope_scaling") ? "rope_scaling" : "rope_parameters", *name;
	json_t *value;

	*out = (struct json_in){ in_at(in, key), in->where };
	if (out->obj && !json_is_object(out->obj))
		return fail(why, EINVAL, "%s: \"%s\" is not an object", in->where, key);
	json_object_foreach(
		(json_t *)(uintptr_t)out->obj, name,
		value) if (json_is_object(value)) return fail(why, EINVAL,
							      "%s: \"%s\" says how layers of type "
							      "\"%.100s\" turn: one "
							      "rotation for each type of layer is "
							      "not supported",
							      in->where, key, name);
	return 0;
}

bool config_own_class(const struct json_in *in, const struct model_config *c)
{
	return c->arch->two_codes && in_at(in, "rope_parameters") && !in_at(in, "rope_scaling");
}

/* DeepSeek's latent attention counts the stretching a second time, in the scores. */
static int read_score_scale(const struct json_in *in, const struct json_in *rope, int key_dim,
			    struct model_config *c, char *why)
{
	double all = 0;
	int r = 0;

	c->score_scale = 1.0f / sqrtf((float)key_dim);
	if (c->attention != ATTENTION_LATENT || c->rope_scaling.kind == ROPE_PLAIN)
		return 0;
	if (!config_own_class(in, c))
		r = in_number(rope, "mscale_all_dim", 0, 1e3, 0, &all, why);
	if (!r && all != 0)
		c->score_scale *= (float)pow(mscale(c->rope_scaling.factor, all), 2);
	return r;
}

int config_read_rope(const struct json_in *in, int key_dim, struct model_config *c, char *why)
{
	struct json_in rope;
	int r = config_find_rope(in, &rope, why);

	if (!r)
		r = in_number(rope.obj && in_at(&rope, "rope_theta") ? &rope : in, "rope_theta", 1,
			      1e15, NAN, &c->rope_theta, why);
	if (!r)
		r = in_bool(in, "rope_interleave", false, &c->rope_interleave, why);
	if (!r && rope.obj)
		r = read_scaling(&rope, in, c, why);
	return r ? r : read_score_scale(in, &rope, key_dim, c, why);
}
