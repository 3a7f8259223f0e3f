/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json -> struct model_config. Every integer gets bounds here, wide enough for any model
 * that may come and tight enough that products of two of them fit an int and of three an int64_t.
 */
#include "engine/config.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "engine/fail.h"
#include "engine/jsonread.h"

#define MAX_WIDTH     (1 << 18) /* hidden size, ranks, widths */
#define MAX_HEADS     (1 << 12)
#define MAX_HEAD_DIM  (1 << 12)
#define MAX_VOCAB     (1 << 24)
#define MAX_POSITIONS (1 << 26)
#define MAX_PRODUCT   (1 << 22) /* all heads together */

static const struct arch archs[] = {
	{
		.model_type = "glm_moe_dsa",
		.rope_interleave = true,
		.index_interleave = true,
		.scoring = SCORE_SIGMOID,
		.first_dense = 3,
		.routed_scale = 2.5,
		.norm_eps = 1e-5,
		.index_norm_eps = 1e-6f,
	},
};

const struct arch *arch_find(const char *model_type)
{
	for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++)
		if (strcmp(archs[i].model_type, model_type) == 0)
			return &archs[i];
	return NULL;
}

struct int_key {
	const char *key;
	int *to;
	int lo, hi;
	int64_t absent;
};

static int read_ints(const struct json_in *in, const struct int_key *k, size_t n, char *why)
{
	int r = 0;

	for (size_t i = 0; i < n && !r; i++)
		r = in_int32(in, k[i].key, k[i].lo, k[i].hi, k[i].absent, k[i].to, why);
	return r;
}

static int read_sizes(const struct json_in *in, struct model_config *c, int *shared, char *why)
{
	const struct int_key keys[] = {
		{ "vocab_size", &c->vocab, 1, MAX_VOCAB, JSON_REQUIRED },
		{ "hidden_size", &c->hidden, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "num_hidden_layers", &c->layers, 1, MODEL_MAX_LAYERS, JSON_REQUIRED },
		{ "num_nextn_predict_layers", &c->extra_layers, 0, MODEL_MAX_LAYERS, 0 },
		{ "max_position_embeddings", &c->max_positions, 1, MAX_POSITIONS, JSON_REQUIRED },
		{ "num_attention_heads", &c->heads, 1, MAX_HEADS, JSON_REQUIRED },
		{ "kv_lora_rank", &c->kv_lora, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "qk_nope_head_dim", &c->nope, 1, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "qk_rope_head_dim", &c->rope, 2, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "v_head_dim", &c->v_dim, 1, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "index_n_heads", &c->index_heads, 1, MAX_HEADS, JSON_REQUIRED },
		{ "index_head_dim", &c->index_dim, 2, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "index_topk", &c->index_topk, 1, MAX_POSITIONS, JSON_REQUIRED },
		{ "intermediate_size", &c->dense_width, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "moe_intermediate_size", &c->expert_width, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "num_experts_per_tok", &c->topk, 1, 256, JSON_REQUIRED },
		{ "n_shared_experts", shared, 0, 256, 1 },
		{ "n_group", &c->groups, 1, MODEL_MAX_EXPERTS, 1 },
		{ "topk_group", &c->groups_kept, 1, MODEL_MAX_EXPERTS, 1 },
	};

	if (!in_at(in, "q_lora_rank"))
		return fail(why, EINVAL,
			    "%s: \"q_lora_rank\" is null: queries without a low-rank step are not "
			    "supported",
			    in->where);
	int r = in_int32(in, "q_lora_rank", 1, MAX_WIDTH, JSON_REQUIRED, &c->q_lora, why);
	return r ? r : read_ints(in, keys, sizeof(keys) / sizeof(keys[0]), why);
}

/* rope_theta and the kind of rotation stand in rope_parameters (newer), or at the top with an
 * optional rope_scaling (older). */
static int read_rope(const struct json_in *in, struct model_config *c, char *why)
{
	const char *const places[] = { "rope_parameters", "rope_scaling" };
	struct json_in theta = *in;

	for (int i = 0; i < 2; i++) {
		const json_t *v = in_at(in, places[i]);
		if (!v)
			continue;
		if (!json_is_object(v))
			return fail(why, EINVAL, "%s: \"%s\" is not an object", in->where,
				    places[i]);
		const char *kind = json_string_value(json_object_get(v, "rope_type"));
		if (!kind)
			kind = json_string_value(json_object_get(v, "type"));
		if (kind && strcmp(kind, "default") != 0)
			return fail(why, EINVAL,
				    "%s: rope_type \"%s\" is not supported, only \"default\"",
				    in->where, kind);
		if (json_object_get(v, "rope_theta"))
			theta.obj = v;
	}
	int r = in_number(&theta, "rope_theta", 1, 1e15, NAN, &c->rope_theta, why);
	if (!r)
		r = in_bool(in, "rope_interleave", c->arch->rope_interleave, &c->rope_interleave,
			    why);
	if (!r)
		r = in_bool(in, "indexer_rope_interleave", c->arch->index_interleave,
			    &c->index_interleave, why);
	return r;
}

static int read_router(const struct json_in *in, struct model_config *c, char *why)
{
	double scale;
	int r = in_bool(in, "norm_topk_prob", true, &c->norm_topk, why);

	if (!r)
		r = in_number(in, "routed_scaling_factor", -1e6, 1e6, c->arch->routed_scale, &scale,
			      why);
	if (!r)
		r = in_int32(in, in_at(in, "n_routed_experts") ? "n_routed_experts" : "num_experts",
			     1, MODEL_MAX_EXPERTS, JSON_REQUIRED, &c->experts, why);
	if (r)
		return r;
	c->routed_scale = (float)scale;
	if (c->experts % c->groups || c->groups_kept > c->groups)
		return fail(why, EINVAL,
			    "%s: %d experts in %d groups of which %d are kept is impossible",
			    in->where, c->experts, c->groups, c->groups_kept);
	int per_group = c->experts / c->groups;
	if (c->groups > 1 && per_group < 2)
		return fail(why, EINVAL, "%s: groups of one expert are not supported", in->where);
	if (c->topk > c->groups_kept * per_group)
		return fail(why, EINVAL,
			    "%s: \"num_experts_per_tok\" is %d, but only %d experts are to be "
			    "chosen from",
			    in->where, c->topk, c->groups_kept * per_group);
	return 0;
}

/* Keys that must have the one value this engine computes. */
static int read_fixed(const struct json_in *in, struct model_config *c, char *why)
{
	const struct {
		const char *key, *want;
	} text[] = { { "hidden_act", "silu" },
		     { "scoring_func", "sigmoid" },
		     { "topk_method", "noaux_tc" } };
	const char *const off[] = { "attention_bias", "mlp_bias" };

	for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++) {
		const char *v;
		int r = in_text(in, text[i].key, text[i].want, &v, why);
		if (r)
			return r;
		if (strcmp(v, text[i].want) != 0)
			return fail(why, EINVAL, "%s: %s \"%s\" is not supported, only \"%s\"",
				    in->where, text[i].key, v, text[i].want);
	}
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		bool on;
		int r = in_bool(in, off[i], false, &on, why);
		if (r)
			return r;
		if (on)
			return fail(why, EINVAL, "%s: \"%s\" true is not supported", in->where,
				    off[i]);
	}
	c->scoring = c->arch->scoring;
	return 0;
}

/* A list with one of two words a layer; *there = false if the key is absent. */
static int read_words(const struct json_in *in, const char *key, const char *yes, const char *no,
		      int layers, bool *out, bool *there, char *why)
{
	const json_t *list = in_at(in, key);

	*there = list != NULL;
	if (!list)
		return 0;
	if (!json_is_array(list) || json_array_size(list) != (size_t)layers)
		return fail(why, EINVAL, "%s: \"%s\" is not a list of %d layers", in->where, key,
			    layers);
	for (int i = 0; i < layers; i++) {
		const char *word = json_string_value(json_array_get(list, (size_t)i));
		if (!word || (strcmp(word, yes) != 0 && strcmp(word, no) != 0))
			return fail(why, EINVAL,
				    "%s: \"%s\" has an entry that is neither \"%s\" nor \"%s\"",
				    in->where, key, yes, no);
		out[i] = strcmp(word, yes) == 0;
	}
	return 0;
}

static int read_sparse(const struct json_in *in, struct model_config *c, char *why)
{
	bool there;
	int first = 0, freq = 1;
	int r = read_words(in, "mlp_layer_types", "sparse", "dense", c->layers, c->sparse, &there,
			   why);

	if (r || there)
		return r;
	r = in_int32(in, "first_k_dense_replace", 0, MODEL_MAX_LAYERS, c->arch->first_dense, &first,
		     why);
	if (!r)
		r = in_int32(in, "moe_layer_freq", 1, MODEL_MAX_LAYERS, 1, &freq, why);
	for (int i = 0; i < c->layers && !r; i++)
		c->sparse[i] = i >= first && i % freq == 0;
	return r;
}

/* index_topk_pattern: a string, one letter a layer, F for full and S for shared. */
static int read_pattern(const struct json_in *in, struct model_config *c, bool *there, char *why)
{
	const json_t *v = in_at(in, "index_topk_pattern");
	const char *p = json_string_value(v);

	if (json_is_array(v)) /* some write the words instead */
		return read_words(in, "index_topk_pattern", "full", "shared", c->layers, c->full,
				  there, why);
	*there = v != NULL;
	if (!v)
		return 0;
	if (!p || strlen(p) != (size_t)c->layers || strspn(p, "FS") != (size_t)c->layers)
		return fail(why, EINVAL, "%s: \"index_topk_pattern\" is not %d letters F or S",
			    in->where, c->layers);
	for (int i = 0; i < c->layers; i++)
		c->full[i] = p[i] == 'F';
	return 0;
}

/* Which layers have an indexer. Presence of tensors decides nothing: some files carry unused ones.
 */
static int read_full(const struct json_in *in, struct model_config *c, char *why)
{
	bool there;
	int freq, offset;
	int r = read_words(in, "indexer_types", "full", "shared", c->layers, c->full, &there, why);

	if (!r && !there)
		r = read_pattern(in, c, &there, why);
	if (!r && !there) {
		r = in_int32(in, "index_topk_freq", 0, MODEL_MAX_LAYERS, 1, &freq, why);
		if (!r)
			r = in_int32(in, "index_skip_topk_offset", -MODEL_MAX_LAYERS,
				     MODEL_MAX_LAYERS, 2, &offset, why);
		for (int i = 0; i < c->layers && !r; i++) {
			int past = i - offset + 1;
			c->full[i] = freq < 2 || past <= 0 || past % freq == 0;
		}
	}
	if (!r && !c->full[0])
		r = fail(
			why, EINVAL,
			"%s: layer 0 has no indexer, and there is no layer before it to share with",
			in->where);
	return r;
}

/* What the bounds of single keys do not hold. */
static int check_products(const struct json_in *in, struct model_config *c, int shared, char *why)
{
	const struct {
		const char *what;
		int64_t value;
	} sizes[] = {
		{ "the query projection", (int64_t)c->heads * (c->nope + c->rope) },
		{ "the key and value projection", (int64_t)c->heads * (c->nope + c->v_dim) },
		{ "the indexer's query projection", (int64_t)c->index_heads * c->index_dim },
		{ "the attention's latents", (int64_t)c->heads * (c->kv_lora + c->rope) },
		{ "the shared experts", (int64_t)shared * c->expert_width },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i].value > MAX_PRODUCT)
			return fail(why, EINVAL,
				    "%s: %s would be %lld wide, which is not plausible", in->where,
				    sizes[i].what, (long long)sizes[i].value);
	if (c->rope % 2)
		return fail(why, EINVAL, "%s: \"qk_rope_head_dim\" is %d, which is odd", in->where,
			    c->rope);
	if (c->rope > c->index_dim)
		return fail(why, EINVAL,
			    "%s: \"index_head_dim\" %d is below \"qk_rope_head_dim\" %d", in->where,
			    c->index_dim, c->rope);
	if (c->layers + c->extra_layers > MODEL_MAX_LAYERS)
		return fail(why, EINVAL, "%s: more than %d layers", in->where, MODEL_MAX_LAYERS);
	c->shared_width = shared * c->expert_width;
	return 0;
}

int config_read(const json_t *config, const char *where, struct model_config *c, char *why)
{
	struct json_in in = { config, where };
	const char *type;
	double eps;
	int shared = 0;
	int r = in_text(&in, "model_type", NULL, &type, why);

	memset(c, 0, sizeof(*c));
	if (r)
		return r;
	c->arch = arch_find(type);
	if (!c->arch)
		return fail(why, EINVAL, "%s: models of type \"%s\" are not supported", where,
			    type);
	r = read_sizes(&in, c, &shared, why);
	if (!r)
		r = check_products(&in, c, shared, why);
	if (!r)
		r = read_fixed(&in, c, why);
	if (!r)
		r = read_rope(&in, c, why);
	if (!r)
		r = read_router(&in, c, why);
	if (!r)
		r = read_sparse(&in, c, why);
	if (!r)
		r = read_full(&in, c, why);
	for (int i = c->layers; i < c->layers + c->extra_layers && !r; i++)
		c->sparse[i] = c->full[i] = true;
	if (!r)
		r = in_bool(&in, "tie_word_embeddings", false, &c->tied, why);
	if (!r)
		r = in_number(&in, "rms_norm_eps", 0, 1, c->arch->norm_eps, &eps, why);
	c->norm_eps = r ? 0 : (float)eps;
	return r;
}
