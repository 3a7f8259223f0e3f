/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json -> struct model_config. Every integer gets bounds here, wide enough for any model
 * that may come and tight enough that the sizes of arrays made of them fit 64 bits. Products that are
 * made as an int are checked (check_width()) or made of small ones.
 */
#include "engine/config.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "engine/config_parts.h"
#include "engine/fail.h"

#define MAX_WIDTH    (1 << 18) /* hidden size, ranks, widths */
#define MAX_HEADS    (1 << 12)
#define MAX_HEAD_DIM (1 << 12)
#define MAX_VOCAB    (1 << 24)
#define MAX_PRODUCT  (1 << 22) /* all heads together */

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

#define READ_INTS(in, keys, why) read_ints(in, keys, sizeof(keys) / sizeof((keys)[0]), why)

static int read_sizes(const struct json_in *in, struct model_config *c, char *why)
{
	const struct int_key keys[] = {
		{ "vocab_size", &c->vocab, 1, MAX_VOCAB, JSON_REQUIRED },
		{ "hidden_size", &c->hidden, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "num_hidden_layers", &c->layers, 1, MODEL_MAX_LAYERS, JSON_REQUIRED },
		{ "num_nextn_predict_layers", &c->extra_layers, 0, MODEL_MAX_LAYERS, 0 },
		{ "max_position_embeddings", &c->max_positions, 1, MAX_POSITIONS, JSON_REQUIRED },
		{ "num_attention_heads", &c->heads, 1, MAX_HEADS, JSON_REQUIRED },
		{ "num_experts_per_tok", &c->topk, 1, 256, JSON_REQUIRED },
		{ c->arch->expert_width_key, &c->expert_width, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "intermediate_size", &c->dense_width, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "n_group", &c->groups, 1, MODEL_MAX_EXPERTS, 1 },
		{ "topk_group", &c->groups_kept, 1, MODEL_MAX_EXPERTS, 1 },
	};
	int r = READ_INTS(in, keys, why);

	if (!r && c->layers + c->extra_layers > MODEL_MAX_LAYERS)
		r = fail(why, EINVAL, "%s: more than %d layers", in->where, MODEL_MAX_LAYERS);
	return r;
}

static int check_width(const struct json_in *in, const char *what, int64_t width, char *why)
{
	if (width <= MAX_PRODUCT)
		return 0;
	return fail(why, EINVAL, "%s: %s would be %lld wide, which is not plausible", in->where,
		    what, (long long)width);
}

static int read_indexer(const struct json_in *in, struct model_config *c, char *why)
{
	const struct int_key keys[] = {
		{ "index_n_heads", &c->index_heads, 1, MAX_HEADS, JSON_REQUIRED },
		{ "index_head_dim", &c->index_dim, 2, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "index_topk", &c->index_topk, 1, MAX_POSITIONS, JSON_REQUIRED },
	};
	int r = READ_INTS(in, keys, why);

	if (!r)
		r = in_bool(in, "indexer_rope_interleave", false, &c->index_interleave, why);
	if (!r && !c->q_lora)
		r = fail(why, EINVAL,
			 "%s: \"q_lora_rank\" is null: an indexer without a low-rank step of the "
			 "queries is not supported",
			 in->where);
	if (!r && c->rope > c->index_dim)
		r = fail(why, EINVAL, "%s: \"index_head_dim\" %d is below \"qk_rope_head_dim\" %d",
			 in->where, c->index_dim, c->rope);
	return r ? r
		 : check_width(in, "the indexer's query projection",
			       (int64_t)c->index_heads * c->index_dim, why);
}

static int read_latent(const struct json_in *in, struct model_config *c, char *why)
{
	const struct int_key keys[] = {
		{ "q_lora_rank", &c->q_lora, 1, MAX_WIDTH,
		  json_object_get(in->obj, "q_lora_rank") ? 0 : JSON_REQUIRED },
		{ "kv_lora_rank", &c->kv_lora, 1, MAX_WIDTH, JSON_REQUIRED },
		{ "qk_nope_head_dim", &c->nope, 1, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "qk_rope_head_dim", &c->rope, 2, MAX_HEAD_DIM, JSON_REQUIRED },
		{ "v_head_dim", &c->v_dim, 1, MAX_HEAD_DIM, JSON_REQUIRED },
	};
	int r = READ_INTS(in, keys, why);

	if (!r)
		r = check_width(in, "the query projection", (int64_t)c->heads * (c->nope + c->rope),
				why);
	if (!r)
		r = check_width(in, "the key and value projection",
				(int64_t)c->heads * (c->nope + c->v_dim), why);
	if (!r)
		r = check_width(in, "the attention's latents",
				(int64_t)c->heads * (c->kv_lora + c->rope), why);
	if (!r && c->rope % 2)
		r = fail(why, EINVAL, "%s: \"qk_rope_head_dim\" is %d, which is odd", in->where,
			 c->rope);
	c->index_topk = c->max_positions;
	if (!r && c->arch->indexer)
		r = read_indexer(in, c, why);
	return r ? r : config_read_rope(in, c->nope + c->rope, c, why);
}

/* How many numbers of a head turn: all, or a part of them. */
static int read_rotated(const struct json_in *in, struct model_config *c, char *why)
{
	struct json_in rope;
	double part;
	int r = config_find_rope(in, &rope, why);

	if (!r)
		r = in_number(rope.obj && in_at(&rope, "partial_rotary_factor") ? &rope : in,
			      "partial_rotary_factor", 0, 1, 1, &part, why);
	if (r)
		return r;
	c->rope = (int)(c->head_dim * part);
	if (c->rope < 2 || c->rope % 2)
		r = fail(why, EINVAL, "%s: %d numbers of a head of %d turn, which is not even",
			 in->where, c->rope, c->head_dim);
	return r;
}

static int read_qk_norm(const struct json_in *in, struct model_config *c, char *why)
{
	bool on = true;
	int r = 0;

	if (c->arch->qk_norm_key)
		r = in_bool(in, c->arch->qk_norm_key, false, &on, why);
	c->qk_norm = on ? c->arch->qk_norm : QK_NORM_NONE;
	return r;
}

static int read_grouped(const struct json_in *in, struct model_config *c, char *why)
{
	const struct int_key keys[] = {
		{ "num_key_value_heads", &c->kv_heads, 1, MAX_HEADS, c->heads },
		{ "head_dim", &c->head_dim, 1, MAX_HEAD_DIM, c->hidden / c->heads },
	};
	double clip;
	int r = READ_INTS(in, keys, why);

	if (!r)
		r = check_width(in, "the query projection", (int64_t)c->heads * c->head_dim, why);
	if (!r && (c->heads % c->kv_heads || !c->head_dim))
		r = fail(why, EINVAL,
			 "%s: %d heads of %d numbers cannot share %d heads of keys and values",
			 in->where, c->heads, c->head_dim, c->kv_heads);
	if (!r)
		r = read_rotated(in, c, why);
	if (!r)
		r = read_qk_norm(in, c, why);
	if (!r)
		r = in_number(in, "clip_qkv", 0, 1e30, 0, &clip, why);
	if (r)
		return r;
	c->clip_qkv = (float)clip;
	c->v_dim = c->head_dim;
	c->sinks = c->arch->sinks;
	c->index_topk = c->max_positions;
	return config_read_rope(in, c->head_dim, c, why);
}

static int read_attention(const struct json_in *in, struct model_config *c, char *why)
{
	const struct arch *a = c->arch;
	int r = 0;

	c->attention = a->attention;
	if (a->bias_key)
		r = in_bool(in, a->bias_key, false, &c->qkv_bias, why);
	if (r)
		return r;
	c->out_bias = c->qkv_bias && a->out_bias;
	return a->attention == ATTENTION_LATENT ? read_latent(in, c, why)
						: read_grouped(in, c, why);
}

/* Families differ in what they call it; the last name is that of all defaults (arch.c). */
static int read_experts(const struct json_in *in, struct model_config *c, char *why)
{
	const char *const keys[] = { "n_routed_experts", "num_local_experts", "num_experts" };
	size_t i = 0;

	while (i < 2 && !in_at(in, keys[i]))
		i++;
	return in_int32(in, keys[i], 1, MODEL_MAX_EXPERTS, JSON_REQUIRED, &c->experts, why);
}

static int check_groups(const struct json_in *in, const struct model_config *c, char *why)
{
	if (c->experts % c->groups || c->groups_kept > c->groups)
		return fail(why, EINVAL,
			    "%s: %d experts in %d groups of which %d are kept is impossible",
			    in->where, c->experts, c->groups, c->groups_kept);
	int per_group = c->experts / c->groups;
	if (c->groups > 1 && per_group < 2 && c->group_score == GROUP_TWO_LARGEST)
		return fail(why, EINVAL, "%s: groups of one expert are not supported", in->where);
	if (c->topk > c->groups_kept * per_group)
		return fail(why, EINVAL,
			    "%s: \"num_experts_per_tok\" is %d, but only %d experts are to be "
			    "chosen from",
			    in->where, c->topk, c->groups_kept * per_group);
	return 0;
}

/* How the best experts are found: among all, or in the best groups. */
static int read_method(const struct json_in *in, struct model_config *c, char *why)
{
	bool noaux = c->arch->select_bias;
	const char *method;
	int r = in_text(in, "topk_method", noaux ? "noaux_tc" : "greedy", &method, why);

	if (r)
		return r;
	if (strcmp(method, "greedy") == 0 && !noaux)
		c->groups = c->groups_kept = 1;
	else if (strcmp(method, noaux ? "noaux_tc" : "group_limited_greedy") != 0)
		return fail(why, EINVAL, "%s: topk_method \"%s\" is not supported for %s",
			    in->where, method, c->arch->model_type);
	return check_groups(in, c, why);
}

static int read_router(const struct json_in *in, struct model_config *c, char *why)
{
	double scale;
	int r = in_bool(in, "norm_topk_prob", false, &c->norm_topk, why);

	if (!r)
		r = in_number(in, "routed_scaling_factor", -1e6, 1e6, 1, &scale, why);
	if (!r)
		r = read_experts(in, c, why);
	if (r)
		return r;
	if (config_own_class(in, c))
		c->norm_topk = false;
	c->scoring = c->arch->scoring;
	c->group_score = c->arch->group_score;
	c->select_bias = c->arch->select_bias;
	c->router_bias = c->arch->router_bias;
	c->routed_scale = c->arch->scale_if_raw && c->norm_topk ? 1 : (float)scale;
	return read_method(in, c, why);
}

static int read_ffn(const struct json_in *in, struct model_config *c, char *why)
{
	double limit;
	int shared = 0;
	int r = in_number(in, "swiglu_limit", 0, 1e30, 0, &limit, why);

	if (!r && c->arch->shared_gate)
		r = in_int32(in, "shared_expert_intermediate_size", 1, MAX_WIDTH, JSON_REQUIRED,
			     &c->shared_width, why);
	else if (!r && c->arch->shared)
		r = in_int32(in, "n_shared_experts", 0, 256, 0, &shared, why);
	if (!r)
		r = check_width(in, "the shared experts", (int64_t)shared * c->expert_width, why);
	if (r)
		return r;
	if (!c->arch->shared_gate)
		c->shared_width = shared * c->expert_width;
	c->shared_gate = c->arch->shared_gate;
	c->expert_biases = c->arch->expert_biases;
	c->act_limit = (float)limit;
	return 0;
}

/* Keys that must have the one value this engine computes. */
static int check_fixed(const struct json_in *in, const struct model_config *c, char *why)
{
	const struct {
		const char *key, *want;
	} text[] = { { "hidden_act", "silu" }, { "scoring_func", c->arch->scoring_name } };
	/* Biases that no family has; attention_bias where the family has another switch. */
	const char *const off[] = { "mlp_bias", c->arch->bias_key ? "mlp_bias" : "attention_bias" };

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
	return 0;
}

/* No dense layer: its width, which some configurations give all the same, costs no memory. */
static void drop_dense_width(struct model_config *c)
{
	for (int i = 0; i < c->layers; i++)
		if (!c->sparse[i])
			return;
	c->dense_width = 0;
}

static int read_all(const struct json_in *in, struct model_config *c, char *why)
{
	double eps;
	int r = read_sizes(in, c, why);

	if (!r)
		r = check_fixed(in, c, why);
	if (!r)
		r = read_attention(in, c, why);
	if (!r)
		r = read_router(in, c, why);
	if (!r)
		r = read_ffn(in, c, why);
	if (!r)
		r = config_read_layers(in, c, why);
	if (!r)
		r = in_bool(in, "tie_word_embeddings", false, &c->tied, why);
	if (!r)
		r = in_number(in, "rms_norm_eps", 0, 1, NAN, &eps, why);
	if (r)
		return r;
	c->norm_eps = (float)eps;
	c->lora_norm_eps = c->arch->lora_norm_eps != 0 ? c->arch->lora_norm_eps : c->norm_eps;
	drop_dense_width(c);
	return 0;
}

/* The configuration with the family's defaults for what it lacks. A null says "none" and stays; of
 * rotations it says nothing, and neither does {}, as in transformers 5. NULL: no memory. */
static json_t *complete(const json_t *config, const struct arch *arch)
{
	json_t *all = json_copy((json_t *)(uintptr_t)config), *defaults, *scaling;

	defaults = json_loads(arch->defaults, 0, NULL);
	scaling = json_object_get(all, "rope_scaling");
	if (json_is_null(scaling) || (json_is_object(scaling) && !json_object_size(scaling)))
		json_object_del(all, "rope_scaling");
	/* Two spellings of one thing. */
	if (json_is_object(json_object_get(all, "rope_parameters")))
		json_object_del(defaults, "rope_scaling");
	int r = json_object_update_missing(all, defaults);
	json_decref(defaults);
	if (!r)
		return all;
	json_decref(all);
	return NULL;
}

int config_read(const json_t *config, const char *where, struct model_config *c, char *why)
{
	struct json_in in = { config, where };
	char names[ARCH_NAMES];
	const char *type;
	int r = in_text(&in, "model_type", NULL, &type, why);

	memset(c, 0, sizeof(*c));
	if (r)
		return r;
	c->arch = arch_find(type);
	if (!c->arch)
		return fail(why, EINVAL,
			    "%s: models of type \"%.100s\" are not supported; supported: %s", where,
			    type, arch_names(names));
	json_t *all = complete(config, c->arch);
	if (!all)
		return fail(why, ENOMEM, "%s: no memory", where);
	in.obj = all;
	r = read_all(&in, c, why);
	json_decref(all);
	return r;
}
