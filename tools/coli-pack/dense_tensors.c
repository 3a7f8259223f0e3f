/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a glm_moe_dsa checkpoint by name and shape (transformers' glm_moe_dsa; the MTP
 * layer as in the vendor's files). Anything else in the files, rotary tables for instance, is left.
 *
 * In dense.bin they lie in the order of use: embedding, layers, norm, head, MTP layers.
 */
#include <errno.h>
#include <stdio.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/plan.h"

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

static void add_attention(struct adding *a, const struct model_config *c)
{
	add_matrix(a, "self_attn.q_a_proj.weight", c->q_lora, c->hidden);
	add_vector(a, "self_attn.q_a_layernorm.weight", c->q_lora);
	add_matrix(a, "self_attn.q_b_proj.weight", c->heads * (c->nope + c->rope), c->q_lora);
	add_matrix(a, "self_attn.kv_a_proj_with_mqa.weight", c->kv_lora + c->rope, c->hidden);
	add_vector(a, "self_attn.kv_a_layernorm.weight", c->kv_lora);
	add_matrix(a, "self_attn.kv_b_proj.weight", c->heads * (c->nope + c->v_dim), c->kv_lora);
	add_matrix(a, "self_attn.o_proj.weight", c->hidden, c->heads * c->v_dim);
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

static void add_ffn(struct adding *a, const struct model_config *c)
{
	int shared = c->shared_width;

	if (!pack_is_sparse(&a->plan->ck->config, a->layer)) {
		add_matrix(a, "mlp.gate_proj.weight", c->dense_width, c->hidden);
		add_matrix(a, "mlp.up_proj.weight", c->dense_width, c->hidden);
		add_matrix(a, "mlp.down_proj.weight", c->hidden, c->dense_width);
		return;
	}
	add(a, "mlp.gate.weight", 2, c->experts, c->hidden, PLAIN);
	add_vector(a, "mlp.gate.e_score_correction_bias", c->experts);
	if (shared) {
		add_matrix(a, "mlp.shared_experts.gate_proj.weight", shared, c->hidden);
		add_matrix(a, "mlp.shared_experts.up_proj.weight", shared, c->hidden);
		add_matrix(a, "mlp.shared_experts.down_proj.weight", c->hidden, shared);
	}
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
	add_ffn(a, c);
	if (layer >= c->layers) {
		add_vector(a, "shared_head.norm.weight", c->hidden);
		add_if_present(a, "shared_head.head.weight", c->vocab, c->hidden);
	}
}

int glm_plan_dense(struct plan *p, char *why)
{
	const struct model_config *c = &p->ck->config.model;
	struct adding a = { .plan = p, .why = why };

	a.err = plan_add(p, "model.embed_tokens.weight", 2, c->vocab, c->hidden, false, why);
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

bool glm_is_fused(const struct checkpoint *ck, int layer)
{
	char name[NAME_MAX_BYTES];

	snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.gate_up_proj", layer);
	return ckpt_find(ck, name) != NULL;
}

int glm_expert_source(const struct checkpoint *ck, int layer, bool fused, int e, int matrix,
		      struct source *s, char *why)
{
	const struct model_config *c = &ck->config.model;
	int rows = matrix == DOWN ? c->hidden : c->expert_width;
	int cols = matrix == DOWN ? c->expert_width : c->hidden;
	char name[NAME_MAX_BYTES];

	if (!fused) {
		snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.%s_proj.weight", layer,
			 e, plan_matrix_name[matrix]);
		return source_whole(ck, name, 2, rows, cols, s, why);
	}
	/* transformers 5 keeps the experts of a layer in two tensors; the gate's rows come first.
	 */
	snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%s", layer,
		 matrix == DOWN ? "down_proj" : "gate_up_proj");
	return source_slice(ck, name, c->experts, e, matrix == DOWN ? rows : 2 * rows,
			    matrix == UP ? rows : 0, rows, cols, s, why);
}
