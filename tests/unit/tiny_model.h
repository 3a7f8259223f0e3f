/* SPDX-License-Identifier: Apache-2.0
 *
 * A tiny random model for unit tests: model.json, dense.bin and expert files in a folder under
 * $TMPDIR, of one weight format. Small odd sizes, so that nothing divides evenly; index_topk is
 * small, so that sparse attention begins after a few tokens. An MTP layer is behind the last one.
 */
#ifndef TESTS_TINY_MODEL_H
#define TESTS_TINY_MODEL_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/quant.h"

#define TINY_VOCAB   67
#define TINY_HIDDEN  40
#define TINY_LAYERS  4
#define TINY_EXPERTS 20
#define TINY_TOPK    3
#define TINY_WIDTH   20
#define TINY_CTX     64
#define TINY_MTP     TINY_LAYERS /* the MTP layer's number */

#define TINY_CONFIG                                                                                \
	"{\"model_type\": \"glm_moe_dsa\", \"vocab_size\": 67, \"hidden_size\": 40, "              \
	"\"num_hidden_layers\": 4, \"num_nextn_predict_layers\": 1, \"max_position_embeddings\": " \
	"64, \"num_attention_heads\": 3, "                                                         \
	"\"q_lora_rank\": 24, \"kv_lora_rank\": 16, \"qk_nope_head_dim\": 12, "                    \
	"\"qk_rope_head_dim\": 8, \"v_head_dim\": 10, \"index_n_heads\": 5, "                      \
	"\"index_head_dim\": 16, \"index_topk\": 7, \"intermediate_size\": 48, "                   \
	"\"moe_intermediate_size\": 20, \"num_experts_per_tok\": 3, \"n_routed_experts\": 20, "    \
	"\"n_group\": 4, \"topk_group\": 2, \"n_shared_experts\": 2, "                             \
	"\"first_k_dense_replace\": 1, \"rope_theta\": 10000, \"routed_scaling_factor\": 1.5, "    \
	"\"indexer_types\": [\"full\", \"shared\", \"full\", \"shared\"]}"

struct tiny {
	char dir[256];
	struct wfmt fmt;
	uint64_t seed;
	FILE *dense, *json;
	size_t offset;
	int tensors;
	bool own; /* the MTP layer gets an embedding and a head of its own */
};

static inline float tiny_random(struct tiny *t)
{
	t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(t->seed >> 32) * 0x1p-31f;
}

/* Random weights of about 1/sqrt(cols), quantised, into buf (zeroed); returns the bytes. */
static inline size_t tiny_matrix(struct tiny *t, struct wfmt fmt, int rows, int cols, float scale,
				 float add, char *buf)
{
	size_t bytes = wfmt_bytes(fmt, rows, cols);
	float row[256];

	assert(cols <= 256);
	memset(buf, 0, bytes);
	char *scales = buf + wfmt_scales_offset(fmt, rows, cols);
	for (int r = 0; r < rows; r++) {
		for (int i = 0; i < cols; i++)
			row[i] = add + tiny_random(t) * scale;
		int bad = quant_row(fmt, row, cols, r, buf, (uint16_t *)(void *)scales);
		assert(bad == 0);
		(void)bad;
	}
	return bytes;
}

/* The same as a matrix; returns its memory, which is the caller's to free. */
static inline char *tiny_wmat(struct tiny *t, struct wfmt fmt, int rows, int cols, struct wmat *m)
{
	size_t bytes = wfmt_bytes(fmt, rows, cols);
	/* Kernels ask for what lies behind. */
	char *buf = aligned_alloc(64, (bytes + 63) / 64 * 64 + 4096);

	assert(buf);
	tiny_matrix(t, fmt, rows, cols, 0.4f, 0, buf);
	int bad = wmat_bind(m, fmt, rows, cols, buf, bytes);
	assert(bad == 0);
	(void)bad;
	return buf;
}

static inline const char *tiny_type(struct wfmt fmt, char *buf)
{
	if (fmt.group)
		sprintf(buf, "\"type\": \"%s\", \"group\": %d", wtype_name(fmt.type), fmt.group);
	else
		sprintf(buf, "\"type\": \"%s\"", wtype_name(fmt.type));
	return buf;
}

/* rows 0: a vector. */
static inline void tiny_dense(struct tiny *t, int layer, const char *name, int rows, int cols,
			      float scale, float add)
{
	static char buf[1 << 18];
	struct wfmt fmt = t->fmt;
	char type[64], shape[32], full[128];

	if (!rows || strstr(name, "gate.weight") || strstr(name, "weights_proj"))
		fmt = (struct wfmt){ W_F32, 0 };
	if (rows)
		sprintf(shape, "[%d, %d]", rows, cols);
	else
		sprintf(shape, "[%d]", cols);
	if (layer < 0)
		sprintf(full, "%s", name);
	else
		sprintf(full, "model.layers.%d.%s", layer, name);
	size_t bytes = tiny_matrix(t, fmt, rows ? rows : 1, cols, scale, add, buf);
	fwrite(buf, 1, bytes, t->dense);
	fprintf(t->json, "%s{\"name\": \"%s\", %s, \"shape\": %s, \"offset\": %zu, \"bytes\": %zu}",
		t->tensors++ ? ", " : "", full, tiny_type(fmt, type), shape, t->offset, bytes);
	t->offset += bytes;
}

static inline void tiny_layer(struct tiny *t, int layer)
{
	const int heads = 3, q = 24, kv = 16, nope = 12, rope = 8, v = 10, h = TINY_HIDDEN;

	tiny_dense(t, layer, "input_layernorm.weight", 0, h, 0.5f, 1);
	tiny_dense(t, layer, "post_attention_layernorm.weight", 0, h, 0.5f, 1);
	tiny_dense(t, layer, "self_attn.q_a_proj.weight", q, h, 0.3f, 0);
	tiny_dense(t, layer, "self_attn.q_a_layernorm.weight", 0, q, 0.5f, 1);
	tiny_dense(t, layer, "self_attn.q_b_proj.weight", heads * (nope + rope), q, 0.5f, 0);
	tiny_dense(t, layer, "self_attn.kv_a_proj_with_mqa.weight", kv + rope, h, 0.3f, 0);
	tiny_dense(t, layer, "self_attn.kv_a_layernorm.weight", 0, kv, 0.5f, 1);
	tiny_dense(t, layer, "self_attn.kv_b_proj.weight", heads * (nope + v), kv, 0.5f, 0);
	tiny_dense(t, layer, "self_attn.o_proj.weight", h, heads * v, 0.4f, 0);
	if (layer % 2 == 0) {
		tiny_dense(t, layer, "self_attn.indexer.wq_b.weight", 5 * 16, q, 0.4f, 0);
		tiny_dense(t, layer, "self_attn.indexer.wk.weight", 16, h, 0.3f, 0);
		tiny_dense(t, layer, "self_attn.indexer.weights_proj.weight", 5, h, 0.3f, 0);
		tiny_dense(t, layer, "self_attn.indexer.k_norm.weight", 0, 16, 0.5f, 1);
		tiny_dense(t, layer, "self_attn.indexer.k_norm.bias", 0, 16, 0.2f, 0);
	}
	if (layer == 0) {
		tiny_dense(t, layer, "mlp.gate_proj.weight", 48, h, 0.3f, 0);
		tiny_dense(t, layer, "mlp.up_proj.weight", 48, h, 0.3f, 0);
		tiny_dense(t, layer, "mlp.down_proj.weight", h, 48, 0.3f, 0);
		return;
	}
	tiny_dense(t, layer, "mlp.gate.weight", TINY_EXPERTS, h, 0.3f, 0);
	tiny_dense(t, layer, "mlp.gate.e_score_correction_bias", 0, TINY_EXPERTS, 0.05f, 0);
	tiny_dense(t, layer, "mlp.shared_experts.gate_proj.weight", 2 * TINY_WIDTH, h, 0.3f, 0);
	tiny_dense(t, layer, "mlp.shared_experts.up_proj.weight", 2 * TINY_WIDTH, h, 0.3f, 0);
	tiny_dense(t, layer, "mlp.shared_experts.down_proj.weight", h, 2 * TINY_WIDTH, 0.3f, 0);
}

static inline size_t tiny_expert_bytes(struct wfmt fmt, size_t *up, size_t *down)
{
	*up = wfmt_bytes(fmt, TINY_WIDTH, TINY_HIDDEN);
	*down = 2 * *up;
	return *down + wfmt_bytes(fmt, TINY_HIDDEN, TINY_WIDTH);
}

static inline void tiny_experts(struct tiny *t)
{
	static char buf[1 << 16];
	char path[512], type[64];
	size_t up, down, all = tiny_expert_bytes(t->fmt, &up, &down);

	for (int layer = 1; layer <= TINY_MTP; layer++) {
		snprintf(path, sizeof(path), "%s/experts/%03d", t->dir, layer);
		mkdir(path, 0777);
		for (int e = 0; e < TINY_EXPERTS; e++) {
			tiny_matrix(t, t->fmt, TINY_WIDTH, TINY_HIDDEN, 0.4f, 0, buf);
			tiny_matrix(t, t->fmt, TINY_WIDTH, TINY_HIDDEN, 0.4f, 0, buf + up);
			tiny_matrix(t, t->fmt, TINY_HIDDEN, TINY_WIDTH, 0.4f, 0, buf + down);
			snprintf(path, sizeof(path), "%s/experts/%03d/%03d", t->dir, layer, e);
			FILE *f = fopen(path, "w");
			assert(f);
			fwrite(buf, 1, all, f);
			fclose(f);
		}
	}
	tiny_type(t->fmt, type);
	fprintf(t->json,
		"\"experts\": {\"count\": 20, \"layouts\": [{\"layers\": [1, 2, 3, 4], \"bytes\": "
		"%zu, \"matrices\": ["
		"{\"name\": \"gate\", %s, \"shape\": [20, 40], \"offset\": 0, \"bytes\": %zu}, "
		"{\"name\": \"up\", %s, \"shape\": [20, 40], \"offset\": %zu, \"bytes\": %zu}, "
		"{\"name\": \"down\", %s, \"shape\": [40, 20], \"offset\": %zu, \"bytes\": "
		"%zu}]}]}",
		all, type, up, type, up, up, type, down, all - down);
}

static inline void tiny_mtp(struct tiny *t)
{
	tiny_layer(t, TINY_MTP);
	tiny_dense(t, TINY_MTP, "enorm.weight", 0, TINY_HIDDEN, 0.5f, 1);
	tiny_dense(t, TINY_MTP, "hnorm.weight", 0, TINY_HIDDEN, 0.5f, 1);
	tiny_dense(t, TINY_MTP, "eh_proj.weight", TINY_HIDDEN, 2 * TINY_HIDDEN, 0.3f, 0);
	tiny_dense(t, TINY_MTP, "shared_head.norm.weight", 0, TINY_HIDDEN, 0.5f, 1);
	if (!t->own)
		return;
	tiny_dense(t, TINY_MTP, "embed_tokens.weight", TINY_VOCAB, TINY_HIDDEN, 1, 0);
	tiny_dense(t, TINY_MTP, "shared_head.head.weight", TINY_VOCAB, TINY_HIDDEN, 0.5f, 0);
}

static inline void tiny_make_as(struct tiny *t, struct wfmt fmt, uint64_t seed, bool own)
{
	const char *tmp = getenv("TMPDIR");
	char path[512];

	*t = (struct tiny){ .fmt = fmt, .seed = seed, .own = own };
	snprintf(t->dir, sizeof(t->dir), "%s/tiny-model.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(t->dir))
		abort();
	snprintf(path, sizeof(path), "%s/experts", t->dir);
	mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/dense.bin", t->dir);
	t->dense = fopen(path, "w");
	snprintf(path, sizeof(path), "%s/model.json", t->dir);
	t->json = fopen(path, "w");
	assert(t->dense && t->json);
	fprintf(t->json,
		"{\"format\": \"expertfs-model\", \"version\": 2, \"architecture\": "
		"\"glm_moe_dsa\", "
		"\"name\": \"tiny\", \"config\": %s, \"eos_token_ids\": [0], \"dense\": {\"file\": "
		"\"dense.bin\", \"tensors\": [",
		TINY_CONFIG);
	tiny_dense(t, -1, "model.embed_tokens.weight", TINY_VOCAB, TINY_HIDDEN, 1, 0);
	tiny_dense(t, -1, "model.norm.weight", 0, TINY_HIDDEN, 0.5f, 1);
	tiny_dense(t, -1, "lm_head.weight", TINY_VOCAB, TINY_HIDDEN, 0.5f, 0);
	for (int i = 0; i < TINY_LAYERS; i++)
		tiny_layer(t, i);
	tiny_mtp(t);
	fprintf(t->json, "], \"bytes\": %zu}, ", t->offset);
	tiny_experts(t);
	fprintf(t->json, "}\n");
	fclose(t->json);
	fclose(t->dense);
}

/* Makes the folder. The same seed makes the same model. Remove it with tiny_remove(). */
static inline void tiny_make(struct tiny *t, struct wfmt fmt, uint64_t seed)
{
	tiny_make_as(t, fmt, seed, false);
}

static inline void tiny_remove(struct tiny *t)
{
	char command[512];

	snprintf(command, sizeof(command), "rm -rf '%s'", t->dir);
	if (system(command) != 0)
		fprintf(stderr, "cannot remove %s\n", t->dir);
}

#endif
