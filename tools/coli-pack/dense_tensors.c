/* SPDX-License-Identifier: Apache-2.0
 *
 * The dense tensors of a checkpoint by name and shape: as transformers' model classes name them, the
 * MTP layer as in the vendors' files; which of them a model has says its configuration. Anything
 * else in the files, rotary tables for instance, is left.
 *
 * In dense.bin they lie in the order of use: embedding, layers, norm, head, MTP layers.
 */
#include <errno.h>
#include <stdio.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/tensors.h"
#include "tools/coli-pack/tied.h"

#define NAME_MAX_BYTES 128

struct adding {
	struct plan *plan;
	int layer;
	int err;
	char *why;
};

/* Matrices may be quantised, vectors and what decides between experts or keys may not. */
enum how { QUANTISED, PLAIN };

static void add(struct adding *a, const char *name, int dims, int64_t rows, int cols, enum how how)
{
	char full[NAME_MAX_BYTES];

	if (a->err)
		return;
	snprintf(full, sizeof(full), "model.layers.%d.%s", a->layer, name);
	a->err = plan_add(a->plan, full, dims, rows, cols, how == PLAIN, a->why);
}

static void add_matrix(struct adding *a, const char *name, int rows, int cols)
{
	add(a, name, 2, rows, cols, QUANTISED);
}

static void add_vector(struct adding *a, const char *name, int n)
{
	add(a, name, 1, 1, n, PLAIN);
}

static void add_if_present(struct adding *a, const char *name, int rows, int cols)
{
	char full[NAME_MAX_BYTES];

	snprintf(full, sizeof(full), "model.layers.%d.%s", a->layer, name);
	if (ckpt_find(a->plan->ck, full))
		add_matrix(a, name, rows, cols);
}

static void add_latent(struct adding *a, const struct model_config *c)
{
	int queries = c->heads * (c->nope + c->rope);

	if (c->q_lora) {
		add_matrix(a, "self_attn.q_a_proj.weight", c->q_lora, c->hidden);
		add_vector(a, "self_attn.q_a_layernorm.weight", c->q_lora);
		add_matrix(a, "self_attn.q_b_proj.weight", queries, c->q_lora);
	} else {
		add_matrix(a, "self_attn.q_proj.weight", queries, c->hidden);
	}
	add_matrix(a, "self_attn.kv_a_proj_with_mqa.weight", c->kv_lora + c->rope, c->hidden);
	add_vector(a, "self_attn.kv_a_layernorm.weight", c->kv_lora);
	add_matrix(a, "self_attn.kv_b_proj.weight", c->heads * (c->nope + c->v_dim), c->kv_lora);
	if (c->qkv_bias && c->q_lora)
		add_vector(a, "self_attn.q_a_proj.bias", c->q_lora);
	if (c->qkv_bias)
		add_vector(a, "self_attn.kv_a_proj_with_mqa.bias", c->kv_lora + c->rope);
}

static void add_grouped(struct adding *a, const struct model_config *c)
{
	int q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
	bool whole = c->qk_norm == QK_NORM_WHOLE;

	add_matrix(a, "self_attn.q_proj.weight", q, c->hidden);
	add_matrix(a, "self_attn.k_proj.weight", kv, c->hidden);
	add_matrix(a, "self_attn.v_proj.weight", kv, c->hidden);
	if (c->qkv_bias) {
		add_vector(a, "self_attn.q_proj.bias", q);
		add_vector(a, "self_attn.k_proj.bias", kv);
		add_vector(a, "self_attn.v_proj.bias", kv);
	}
	if (c->qk_norm != QK_NORM_NONE) {
		add_vector(a, "self_attn.q_norm.weight", whole ? q : c->head_dim);
		add_vector(a, "self_attn.k_norm.weight", whole ? kv : c->head_dim);
	}
	if (c->sinks)
		add_vector(a, "self_attn.sinks", c->heads);
}

static void add_attention(struct adding *a, const struct model_config *c)
{
	if (c->attention == ATTENTION_GROUPED)
		add_grouped(a, c);
	else
		add_latent(a, c);
	add_matrix(a, "self_attn.o_proj.weight", c->hidden, c->heads * c->v_dim);
	if (c->out_bias)
		add_vector(a, "self_attn.o_proj.bias", c->hidden);
}

/* By the schedule, not by presence: files may carry unused indexers on shared layers. */
static void add_indexer(struct adding *a, const struct model_config *c)
{
	if (!pack_has_indexer(&a->plan->ck->config, a->layer))
		return;
	add_matrix(a, "self_attn.indexer.wq_b.weight", c->index_heads * c->index_dim, c->q_lora);
	add_matrix(a, "self_attn.indexer.wk.weight", c->index_dim, c->hidden);
	add(a, "self_attn.indexer.weights_proj.weight", 2, c->index_heads, c->hidden, PLAIN);
	add_vector(a, "self_attn.indexer.k_norm.weight", c->index_dim);
	add_vector(a, "self_attn.indexer.k_norm.bias", c->index_dim);
}

static void add_ffn(struct adding *a, const struct model_config *c, const char *prefix, int width)
{
	const char *const names[] = { "gate", "up", "down" };
	char name[64];

	for (int m = GATE; m < MATRICES; m++) {
		snprintf(name, sizeof(name), "%s.%s_proj.weight", prefix, names[m]);
		add_matrix(a, name, m == DOWN ? c->hidden : width, m == DOWN ? width : c->hidden);
	}
}

/* gpt-oss has the biases of an expert's gate and up in one row, in turn. */
static void add_expert_bias(struct adding *a, const struct model_config *c, const char *from,
			    const char *to, int first, int step, int cols)
{
	const uint64_t shape[2] = { (uint64_t)c->experts, (uint64_t)(step * cols) };
	const struct source_part part = { .first = (uint64_t)first,
					  .row_step = shape[1],
					  .col_step = (uint64_t)step,
					  .rows = c->experts,
					  .cols = cols };
	char name[NAME_MAX_BYTES], full[NAME_MAX_BYTES];
	struct source src;

	if (a->err)
		return;
	snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%s", a->layer, from);
	snprintf(full, sizeof(full), "model.layers.%d.mlp.experts.%s", a->layer, to);
	a->err = source_part(a->plan->ck, name, shape, 2, &part, &src, a->why);
	if (!a->err)
		a->err = plan_add_source(a->plan, full, 2, &src, true, a->why);
}

/* The router's matrix, under the family's name or, from a model in transformers 5's memory, under
 * the one that all families have there. */
static void add_router_matrix(struct adding *a, const struct model_config *c)
{
	char name[NAME_MAX_BYTES], other[NAME_MAX_BYTES];
	struct source src;

	if (a->err)
		return;
	snprintf(name, sizeof(name), "model.layers.%d.%s.weight", a->layer, c->arch->router);
	snprintf(other, sizeof(other), "model.layers.%d.mlp.gate.weight", a->layer);
	bool known = ckpt_find(a->plan->ck, name) || !ckpt_find(a->plan->ck, other);
	a->err = source_whole(a->plan->ck, known ? name : other, 2, c->experts, c->hidden, &src,
			      a->why);
	if (!a->err)
		a->err = plan_add_source(a->plan, name, 2, &src, true, a->why);
}

static void add_router(struct adding *a, const struct model_config *c)
{
	char name[64];

	add_router_matrix(a, c);
	snprintf(name, sizeof(name), "%s.bias", c->arch->router);
	if (c->router_bias)
		add_vector(a, name, c->experts);
	snprintf(name, sizeof(name), "%s.e_score_correction_bias", c->arch->router);
	if (c->select_bias)
		add_vector(a, name, c->experts);
	if (c->expert_biases) {
		int width = c->expert_width;
		add_expert_bias(a, c, "gate_up_proj_bias", "gate_proj_bias", 0, 2, width);
		add_expert_bias(a, c, "gate_up_proj_bias", "up_proj_bias", 1, 2, width);
		add_expert_bias(a, c, "down_proj_bias", "down_proj_bias", 0, 1, c->hidden);
	}
}

static void add_mlp(struct adding *a, const struct model_config *c)
{
	if (!pack_is_sparse(&a->plan->ck->config, a->layer)) {
		add_ffn(a, c, "mlp", c->dense_width);
		return;
	}
	add_router(a, c);
	if (c->shared_width)
		add_ffn(a, c, c->arch->shared, c->shared_width);
	if (c->shared_gate)
		add(a, "mlp.shared_expert_gate.weight", 2, 1, c->hidden, PLAIN);
}

static void add_layer(struct adding *a, const struct model_config *c, int layer)
{
	a->layer = layer;
	if (layer >= c->layers) {
		add_vector(a, "enorm.weight", c->hidden);
		add_vector(a, "hnorm.weight", c->hidden);
		add_matrix(a, "eh_proj.weight", c->hidden, 2 * c->hidden);
		add_if_present(a, "embed_tokens.weight", c->vocab, c->hidden);
	}
	add_vector(a, "input_layernorm.weight", c->hidden);
	add_attention(a, c);
	add_indexer(a, c);
	add_vector(a, "post_attention_layernorm.weight", c->hidden);
	add_mlp(a, c);
	if (layer >= c->layers) {
		add_vector(a, "shared_head.norm.weight", c->hidden);
		add_if_present(a, "shared_head.head.weight", c->vocab, c->hidden);
	}
}

int tensors_plan_dense(struct plan *p, char *why)
{
	const struct model_config *c = &p->ck->config.model;
	struct adding a = { .plan = p, .why = why };
	struct source src;

	a.err = source_whole(p->ck, tied_embedding(p->ck), 2, c->vocab, c->hidden, &src, why);
	if (!a.err)
		a.err = plan_add_source(p, "model.embed_tokens.weight", 2, &src, false, why);
	for (int i = 0; i < c->layers; i++)
		add_layer(&a, c, i);
	if (!a.err)
		a.err = plan_add(p, "model.norm.weight", 1, 1, c->hidden, true, why);
	if (!a.err && !c->tied)
		a.err = plan_add(p, "lm_head.weight", 2, c->vocab, c->hidden, false, why);
	for (int i = c->layers; i < c->layers + p->ck->config.mtp_layers; i++)
		add_layer(&a, c, i);
	return a.err;
}
