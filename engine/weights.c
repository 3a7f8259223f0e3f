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

static void bind_kv_b(struct binder *b, const struct model_config *c, struct attention_weights *a)
{
	char buf[128];

	if (!modelfile_tensor(b->dense->file,
			      full_name(b, "self_attn.k_b_proj.weight", buf, sizeof(buf)))) {
		matrix(b, "self_attn.kv_b_proj.weight", c->heads * (c->nope + c->v_dim), c->kv_lora,
		       &a->kv_b);
		return;
	}
	matrix(b, "self_attn.k_b_proj.weight", c->heads * c->kv_lora, c->nope, &a->k_b);
	matrix(b, "self_attn.v_b_proj.weight", c->heads * c->v_dim, c->kv_lora, &a->v_b);
}

static void bind_attention(struct binder *b, const struct model_config *c,
			   struct attention_weights *a)
{
	matrix(b, "self_attn.q_a_proj.weight", c->q_lora, c->hidden, &a->q_a);
	vector(b, "self_attn.q_a_layernorm.weight", c->q_lora, &a->q_norm);
	matrix(b, "self_attn.q_b_proj.weight", c->heads * (c->nope + c->rope), c->q_lora, &a->q_b);
	matrix(b, "self_attn.kv_a_proj_with_mqa.weight", c->kv_lora + c->rope, c->hidden, &a->kv_a);
	vector(b, "self_attn.kv_a_layernorm.weight", c->kv_lora, &a->kv_norm);
	bind_kv_b(b, c, a);
	matrix(b, "self_attn.o_proj.weight", c->hidden, c->heads * c->v_dim, &a->out);
	if (!c->full[b->layer])
		return;
	matrix(b, "self_attn.indexer.wq_b.weight", c->index_heads * c->index_dim, c->q_lora,
	       &a->index_q);
	matrix(b, "self_attn.indexer.wk.weight", c->index_dim, c->hidden, &a->index_k);
	matrix(b, "self_attn.indexer.weights_proj.weight", c->index_heads, c->hidden, &a->index_w);
	vector(b, "self_attn.indexer.k_norm.weight", c->index_dim, &a->index_norm_w);
	vector(b, "self_attn.indexer.k_norm.bias", c->index_dim, &a->index_norm_b);
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
	bind_ffn(b, "mlp.shared_experts", c->hidden, c->shared_width, &l->ffn);
	matrix(b, "mlp.gate.weight", c->experts, c->hidden, &l->router);
	vector(b, "mlp.gate.e_score_correction_bias", c->experts, &l->router_bias);
}

int weights_bind(struct weights *w, const struct dense *d, char *why)
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
	const int cols[] = { c->hidden, c->q_lora,      c->kv_lora,      c->heads * c->v_dim,
			     c->nope,   c->dense_width, c->expert_width, c->shared_width };
	int max = 0;

	for (size_t i = 0; i < sizeof(cols) / sizeof(cols[0]); i++)
		max = cols[i] > max ? cols[i] : max;
	return max;
}
