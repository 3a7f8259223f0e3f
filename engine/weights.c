/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense tensors by their Hugging Face names.
 */
#include "engine/weights.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"

/* Binds one tensor after the other; after the first error it does nothing any more. */
struct binder {
	const struct dense *dense;
	int layer, err;
	char *why;
};

static const char *full_name(const struct binder *b, const char *name, char *buf, size_t room)
{
	if (b->layer < 0)
		return name;
	snprintf(buf, room, "model.layers.%d.%s", b->layer, name);
	return buf;
}

static void matrix(struct binder *b, const char *name, int rows, int cols, struct wmat *out)
{
	char buf[128];

	if (!b->err)
		b->err = dense_matrix(b->dense, full_name(b, name, buf, sizeof(buf)), rows, cols,
				      out, b->why);
}

static void vector(struct binder *b, const char *name, int n, const float **out)
{
	char buf[128];

	if (!b->err)
		b->err = dense_vector(b->dense, full_name(b, name, buf, sizeof(buf)), n, out,
				      b->why);
}

static void bind_ffn(struct binder *b, const char *prefix, int hidden, int width,
		     struct ffn_weights *f)
{
	char name[64];

	f->width = width;
	if (!width)
		return;
	snprintf(name, sizeof(name), "%s.gate_proj.weight", prefix);
	matrix(b, name, width, hidden, &f->gate);
	snprintf(name, sizeof(name), "%s.up_proj.weight", prefix);
	matrix(b, name, width, hidden, &f->up);
	snprintf(name, sizeof(name), "%s.down_proj.weight", prefix);
	matrix(b, name, hidden, width, &f->down);
}

static bool has_tensor(const struct modelfile *m, int layer, const char *name)
{
	const struct binder b = { .layer = layer };
	char buf[128];

	return modelfile_tensor(m, full_name(&b, name, buf, sizeof(buf))) != NULL;
}

static void bind_kv_b(struct binder *b, const struct model_config *c, struct attention_weights *a)
{
	if (!has_tensor(b->dense->file, b->layer, "self_attn.k_b_proj.weight")) {
		matrix(b, "self_attn.kv_b_proj.weight", c->heads * (c->nope + c->v_dim), c->kv_lora,
		       &a->kv_b);
		return;
	}
	matrix(b, "self_attn.k_b_proj.weight", c->heads * c->kv_lora, c->nope, &a->k_b);
	matrix(b, "self_attn.v_b_proj.weight", c->heads * c->v_dim, c->kv_lora, &a->v_b);
}

static void bind_latent(struct binder *b, const struct model_config *c, struct attention_weights *a)
{
	int queries = c->heads * (c->nope + c->rope);

	if (c->q_lora) {
		matrix(b, "self_attn.q_a_proj.weight", c->q_lora, c->hidden, &a->q_a);
		vector(b, "self_attn.q_a_layernorm.weight", c->q_lora, &a->q_norm);
		matrix(b, "self_attn.q_b_proj.weight", queries, c->q_lora, &a->q_b);
	} else {
		matrix(b, "self_attn.q_proj.weight", queries, c->hidden, &a->q);
	}
	matrix(b, "self_attn.kv_a_proj_with_mqa.weight", c->kv_lora + c->rope, c->hidden, &a->kv_a);
	vector(b, "self_attn.kv_a_layernorm.weight", c->kv_lora, &a->kv_norm);
	bind_kv_b(b, c, a);
	if (c->qkv_bias && c->q_lora)
		vector(b, "self_attn.q_a_proj.bias", c->q_lora, &a->q_a_bias);
	if (c->qkv_bias)
		vector(b, "self_attn.kv_a_proj_with_mqa.bias", c->kv_lora + c->rope, &a->kv_a_bias);
	if (!c->full[b->layer])
		return;
	matrix(b, "self_attn.indexer.wq_b.weight", c->index_heads * c->index_dim, c->q_lora,
	       &a->index_q);
	matrix(b, "self_attn.indexer.wk.weight", c->index_dim, c->hidden, &a->index_k);
	matrix(b, "self_attn.indexer.weights_proj.weight", c->index_heads, c->hidden, &a->index_w);
	vector(b, "self_attn.indexer.k_norm.weight", c->index_dim, &a->index_norm_w);
	vector(b, "self_attn.indexer.k_norm.bias", c->index_dim, &a->index_norm_b);
}

static void bind_grouped(struct binder *b, const struct model_config *c,
			 struct attention_weights *a)
{
	int q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
	bool whole = c->qk_norm == QK_NORM_WHOLE;

	matrix(b, "self_attn.q_proj.weight", q, c->hidden, &a->q);
	matrix(b, "self_attn.k_proj.weight", kv, c->hidden, &a->k);
	matrix(b, "self_attn.v_proj.weight", kv, c->hidden, &a->v);
	if (c->qkv_bias) {
		vector(b, "self_attn.q_proj.bias", q, &a->q_bias);
		vector(b, "self_attn.k_proj.bias", kv, &a->k_bias);
		vector(b, "self_attn.v_proj.bias", kv, &a->v_bias);
	}
	if (c->qk_norm != QK_NORM_NONE) {
		vector(b, "self_attn.q_norm.weight", whole ? q : c->head_dim, &a->q_norm);
		vector(b, "self_attn.k_norm.weight", whole ? kv : c->head_dim, &a->k_norm);
	}
	if (c->sinks)
		vector(b, "self_attn.sinks", c->heads, &a->sinks);
}

static void bind_attention(struct binder *b, const struct model_config *c,
			   struct attention_weights *a)
{
	if (c->attention == ATTENTION_GROUPED)
		bind_grouped(b, c, a);
	else
		bind_latent(b, c, a);
	matrix(b, "self_attn.o_proj.weight", c->hidden, c->heads * c->v_dim, &a->out);
	if (c->out_bias)
		vector(b, "self_attn.o_proj.bias", c->hidden, &a->out_bias);
}

/* What a layer of experts has beside them. */
static void bind_router(struct binder *b, const struct model_config *c, struct layer_weights *l)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.weight", c->arch->router);
	matrix(b, name, c->experts, c->hidden, &l->router);
	snprintf(name, sizeof(name), "%s.bias", c->arch->router);
	if (c->router_bias)
		vector(b, name, c->experts, &l->logit_bias);
	snprintf(name, sizeof(name), "%s.e_score_correction_bias", c->arch->router);
	if (c->select_bias)
		vector(b, name, c->experts, &l->router_bias);
	if (c->expert_biases) {
		matrix(b, "mlp.experts.gate_proj_bias", c->experts, c->expert_width, &l->gate_bias);
		matrix(b, "mlp.experts.up_proj_bias", c->experts, c->expert_width, &l->up_bias);
		matrix(b, "mlp.experts.down_proj_bias", c->experts, c->hidden, &l->down_bias);
	}
	if (c->shared_gate)
		matrix(b, "mlp.shared_expert_gate.weight", 1, c->hidden, &l->shared_gate);
}

static void bind_layer(struct binder *b, const struct model_config *c, struct layer_weights *l)
{
	vector(b, "input_layernorm.weight", c->hidden, &l->attention_norm);
	vector(b, "post_attention_layernorm.weight", c->hidden, &l->ffn_norm);
	bind_attention(b, c, &l->attention);
	if (!c->sparse[b->layer]) {
		bind_ffn(b, "mlp", c->hidden, c->dense_width, &l->ffn);
		return;
	}
	bind_ffn(b, c->arch->shared, c->hidden, c->shared_width, &l->ffn);
	bind_router(b, c, l);
}

#define MTP_JOIN "eh_proj.weight"

bool weights_have_mtp(const struct modelfile *m)
{
	const struct model_config *c = &m->config;

	return c->extra_layers && m->layer_layout[c->layers] && has_tensor(m, c->layers, MTP_JOIN);
}

/* Some checkpoints give it an embedding and a head of its own. */
static void bind_mtp(struct binder *b, const struct weights *w, struct mtp_weights *t)
{
	const struct modelfile *m = b->dense->file;
	const struct model_config *c = &m->config;

	b->layer = c->layers;
	bind_layer(b, c, &t->layer);
	vector(b, "enorm.weight", c->hidden, &t->embed_norm);
	vector(b, "hnorm.weight", c->hidden, &t->hidden_norm);
	matrix(b, MTP_JOIN, c->hidden, 2 * c->hidden, &t->join);
	vector(b, "shared_head.norm.weight", c->hidden, &t->norm);
	t->embed = w->embed;
	t->head = w->head;
	if (has_tensor(m, b->layer, "embed_tokens.weight"))
		matrix(b, "embed_tokens.weight", c->vocab, c->hidden, &t->embed);
	if (has_tensor(m, b->layer, "shared_head.head.weight"))
		matrix(b, "shared_head.head.weight", c->vocab, c->hidden, &t->head);
}

int weights_bind(struct weights *w, const struct dense *d, bool mtp, char *why)
{
	const struct model_config *c = &d->file->config;
	struct binder b = { d, -1, 0, why };

	memset(w, 0, sizeof(*w));
	w->layer = calloc((size_t)c->layers, sizeof(*w->layer));
	if (!w->layer)
		return fail(why, ENOMEM, "no memory for the table of %d layers", c->layers);
	matrix(&b, "model.embed_tokens.weight", c->vocab, c->hidden, &w->embed);
	vector(&b, "model.norm.weight", c->hidden, &w->norm);
	if (c->tied)
		w->head = w->embed;
	else
		matrix(&b, "lm_head.weight", c->vocab, c->hidden, &w->head);
	for (b.layer = 0; b.layer < c->layers && !b.err; b.layer++)
		bind_layer(&b, c, &w->layer[b.layer]);
	if (mtp)
		bind_mtp(&b, w, &w->mtp);
	if (b.err)
		weights_free(w);
	return b.err;
}

void weights_free(struct weights *w)
{
	free(w->layer);
	w->layer = NULL;
}

int weights_max_cols(const struct model_config *c)
{
	const int cols[] = {
		c->hidden,           c->q_lora,       c->kv_lora,
		c->heads * c->v_dim, c->nope,         c->dense_width,
		c->expert_width,     c->shared_width, c->extra_layers ? 2 * c->hidden : 0
	};
	int max = 0;

	for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++)
		max = cols[i] > max ? cols[i] : max;
	return max;
}
