/* SPDX-License-Identifier: Apache-2.0
 *
 * Presets, and model.json made from sizes. See geometry.h.
 */
#include "tests/bench/engine/geometry.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config.h"
#include "engine/fail.h"
#include "engine/modelfile.h"

const char *const size_key[SIZES] = {
	[SIZE_VOCAB] = "vocab_size",
	[SIZE_HIDDEN] = "hidden_size",
	[SIZE_LAYERS] = "num_hidden_layers",
	[SIZE_FIRST_DENSE] = "first_k_dense_replace",
	[SIZE_POSITIONS] = "max_position_embeddings",
	[SIZE_HEADS] = "num_attention_heads",
	[SIZE_Q_LORA] = "q_lora_rank",
	[SIZE_KV_LORA] = "kv_lora_rank",
	[SIZE_NOPE] = "qk_nope_head_dim",
	[SIZE_ROPE] = "qk_rope_head_dim",
	[SIZE_V_DIM] = "v_head_dim",
	[SIZE_INDEX_HEADS] = "index_n_heads",
	[SIZE_INDEX_DIM] = "index_head_dim",
	[SIZE_INDEX_TOPK] = "index_topk",
	[SIZE_INDEX_FREQ] = "index_topk_freq",
	[SIZE_INDEX_OFFSET] = "index_skip_topk_offset",
	[SIZE_DENSE_WIDTH] = "intermediate_size",
	[SIZE_EXPERT_WIDTH] = "moe_intermediate_size",
	[SIZE_EXPERTS] = "n_routed_experts",
	[SIZE_CHOSEN] = "num_experts_per_tok",
	[SIZE_SHARED] = "n_shared_experts",
};

const struct geometry presets[] = {
	/* Qwen3-30B-A3B's sizes. Its attention (32 heads of 128, 4 of keys and values: 18.9 million
	 * weights a layer) becomes a latent one of 19.0 million; an indexer adds 0.3 on average. */
	{ .name = "30b-a3b",
	  .about = "Qwen3-30B-A3B's sizes: 48 layers of 128 experts of 2.4 MiB, 16 GB in all",
	  .size = { [SIZE_VOCAB] = 151936,   [SIZE_HIDDEN] = 2048,      [SIZE_LAYERS] = 48,
		    [SIZE_FIRST_DENSE] = 0,  [SIZE_POSITIONS] = 40960,  [SIZE_HEADS] = 32,
		    [SIZE_Q_LORA] = 1024,    [SIZE_KV_LORA] = 512,      [SIZE_NOPE] = 64,
		    [SIZE_ROPE] = 64,        [SIZE_V_DIM] = 128,        [SIZE_INDEX_HEADS] = 8,
		    [SIZE_INDEX_DIM] = 128,  [SIZE_INDEX_TOPK] = 2048,  [SIZE_INDEX_FREQ] = 4,
		    [SIZE_INDEX_OFFSET] = 3, [SIZE_DENSE_WIDTH] = 6144, [SIZE_EXPERT_WIDTH] = 768,
		    [SIZE_EXPERTS] = 128,    [SIZE_CHOSEN] = 8,         [SIZE_SHARED] = 0 } },
	{ .name = "glm-5.2",
	  .about = "GLM-5.2's sizes without its MTP layer: 75 layers of 256 experts of 19.1 MiB",
	  .size = { [SIZE_VOCAB] = 154880,   [SIZE_HIDDEN] = 6144,       [SIZE_LAYERS] = 78,
		    [SIZE_FIRST_DENSE] = 3,  [SIZE_POSITIONS] = 1048576, [SIZE_HEADS] = 64,
		    [SIZE_Q_LORA] = 2048,    [SIZE_KV_LORA] = 512,       [SIZE_NOPE] = 192,
		    [SIZE_ROPE] = 64,        [SIZE_V_DIM] = 256,         [SIZE_INDEX_HEADS] = 32,
		    [SIZE_INDEX_DIM] = 128,  [SIZE_INDEX_TOPK] = 2048,   [SIZE_INDEX_FREQ] = 4,
		    [SIZE_INDEX_OFFSET] = 3, [SIZE_DENSE_WIDTH] = 12288, [SIZE_EXPERT_WIDTH] = 2048,
		    [SIZE_EXPERTS] = 256,    [SIZE_CHOSEN] = 8,          [SIZE_SHARED] = 1 },
	  .distinct = 1024 },
};
const size_t preset_count = sizeof(presets) / sizeof(presets[0]);

static const struct wfmt q4 = { W_Q4, 64 }, q8 = { W_Q8, 64 }, f32 = { W_F32, 0 };

/* Entries of the table of dense tensors, and where the next one lies. */
struct table {
	FILE *f;
	int layer; /* -1: of none */
	uint64_t bytes;
};

/* rows 0: a vector. */
static void put_entry(struct table *t, const char *name, struct wfmt fmt, int rows, int cols)
{
	uint64_t bytes = wfmt_bytes(fmt, rows ? rows : 1, cols);

	fprintf(t->f, "%s\n{\"name\": \"", t->bytes ? "," : "");
	if (t->layer >= 0)
		fprintf(t->f, "model.layers.%d.", t->layer);
	fprintf(t->f, "%s\", \"type\": \"%s\", ", name, wtype_name(fmt.type));
	if (fmt.group)
		fprintf(t->f, "\"group\": %d, ", fmt.group);
	if (rows)
		fprintf(t->f, "\"shape\": [%d, %d], ", rows, cols);
	else
		fprintf(t->f, "\"shape\": [%d], ", cols);
	fprintf(t->f, "\"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", t->bytes, bytes);
	t->bytes += bytes;
}

static void put_matrix(struct table *t, const char *name, int rows, int cols)
{
	put_entry(t, name, q8, rows, cols);
}

static void put_vector(struct table *t, const char *name, int n)
{
	put_entry(t, name, f32, 0, n);
}

static void put_ffn(struct table *t, const char *prefix, int hidden, int width)
{
	static const char *const part[] = { "gate", "up", "down" };
	char name[64];

	for (int i = 0; width && i < 3; i++) {
		snprintf(name, sizeof(name), "%s.%s_proj.weight", prefix, part[i]);
		put_matrix(t, name, i == 2 ? hidden : width, i == 2 ? width : hidden);
	}
}

static void put_attention(struct table *t, const struct model_config *c)
{
	put_matrix(t, "self_attn.q_a_proj.weight", c->q_lora, c->hidden);
	put_vector(t, "self_attn.q_a_layernorm.weight", c->q_lora);
	put_matrix(t, "self_attn.q_b_proj.weight", c->heads * (c->nope + c->rope), c->q_lora);
	put_matrix(t, "self_attn.kv_a_proj_with_mqa.weight", c->kv_lora + c->rope, c->hidden);
	put_vector(t, "self_attn.kv_a_layernorm.weight", c->kv_lora);
	put_matrix(t, "self_attn.kv_b_proj.weight", c->heads * (c->nope + c->v_dim), c->kv_lora);
	put_matrix(t, "self_attn.o_proj.weight", c->hidden, c->heads * c->v_dim);
	if (!c->full[t->layer])
		return;
	put_matrix(t, "self_attn.indexer.wq_b.weight", c->index_heads * c->index_dim, c->q_lora);
	put_matrix(t, "self_attn.indexer.wk.weight", c->index_dim, c->hidden);
	put_entry(t, "self_attn.indexer.weights_proj.weight", f32, c->index_heads, c->hidden);
	put_vector(t, "self_attn.indexer.k_norm.weight", c->index_dim);
	put_vector(t, "self_attn.indexer.k_norm.bias", c->index_dim);
}

static void put_layer(struct table *t, const struct model_config *c)
{
	put_vector(t, "input_layernorm.weight", c->hidden);
	put_attention(t, c);
	put_vector(t, "post_attention_layernorm.weight", c->hidden);
	if (!c->sparse[t->layer]) {
		put_ffn(t, "mlp", c->hidden, c->dense_width);
		return;
	}
	put_entry(t, "mlp.gate.weight", f32, c->experts, c->hidden);
	put_vector(t, "mlp.gate.e_score_correction_bias", c->experts);
	put_ffn(t, "mlp.shared_experts", c->hidden, c->shared_width);
}

/* In the order of use, as coli-pack has them. Returns the bytes of dense.bin. */
static uint64_t put_tensors(FILE *f, const struct model_config *c)
{
	struct table t = { .f = f, .layer = -1 };

	put_matrix(&t, "model.embed_tokens.weight", c->vocab, c->hidden);
	for (t.layer = 0; t.layer < c->layers; t.layer++)
		put_layer(&t, c);
	t.layer = -1;
	put_vector(&t, "model.norm.weight", c->hidden);
	put_matrix(&t, "lm_head.weight", c->vocab, c->hidden);
	return t.bytes;
}

static void put_layout(FILE *f, const struct model_config *c)
{
	uint64_t up = wfmt_bytes(q4, c->expert_width, c->hidden);
	uint64_t down = wfmt_bytes(q4, c->hidden, c->expert_width);
	const char *comma = "";

	fprintf(f, "{\"layers\": [");
	for (int i = 0; i < c->layers; i++)
		if (c->sparse[i]) {
			fprintf(f, "%s%d", comma, i);
			comma = ", ";
		}
	fprintf(f, "], \"bytes\": %" PRIu64 ", \"matrices\": [", 2 * up + down);
	static const char *const name[] = { "gate", "up", "down" };
	for (uint64_t i = 0; i < 3; i++)
		fprintf(f,
			"%s\n{\"name\": \"%s\", \"type\": \"q4\", \"group\": %d, \"shape\": [%d, "
			"%d], \"offset\": %" PRIu64 ", \"bytes\": %" PRIu64 "}",
			i ? "," : "", name[i], q4.group, i == 2 ? c->hidden : c->expert_width,
			i == 2 ? c->expert_width : c->hidden, i * up, i == 2 ? down : up);
	fputs("]}", f);
}

static json_t *make_config(const struct geometry *g)
{
	json_t *o = json_pack("{s:s, s:s, s:f, s:b, s:f}", "model_type", "glm_moe_dsa",
			      "hidden_act", "silu", "rope_theta", 8e6, "tie_word_embeddings", 0,
			      "routed_scaling_factor", 2.5);

	for (int i = 0; o && i < SIZES; i++)
		json_object_set_new(o, size_key[i], json_integer(g->size[i]));
	return o;
}

/* What the formats pad is not filled here. */
static int check_sizes(const struct model_config *c, char *why)
{
	const int sizes[] = { c->vocab, c->hidden, c->q_lora,      c->kv_lora,      c->rope,
			      c->nope,  c->v_dim,  c->dense_width, c->expert_width, c->index_dim };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		if (sizes[i] % 64)
			return fail(why, EINVAL,
				    "%d is not a multiple of 64: widths, ranks and the vocabulary "
				    "have to be",
				    sizes[i]);
	return 0;
}

static int put_model(FILE *f, const struct geometry *g, json_t *config, char *why)
{
	static struct model_config c;
	char *table = NULL;
	size_t size;
	int r = config_read(config, g->name, &c, why);

	if (!r)
		r = check_sizes(&c, why);
	if (r)
		return r;
	FILE *t = open_memstream(&table, &size);
	if (!t)
		return fail(why, ENOMEM, "no memory for model.json");
	uint64_t dense = put_tensors(t, &c);
	int bad = ferror(t);
	if (fclose(t) != 0 || bad) {
		free(table);
		return fail(why, ENOMEM, "no memory for model.json");
	}
	fprintf(f,
		"{\n\"format\": \"expertfs-model\", \"version\": %d,\n"
		"\"architecture\": \"glm_moe_dsa\", \"name\": \"random %s\",\n\"config\": ",
		MODEL_VERSION, g->name);
	json_dumpf(config, f, JSON_INDENT(1));
	fprintf(f,
		",\n\"eos_token_ids\": [],\n\"dense\": {\"file\": \"dense.bin\", \"bytes\": "
		"%" PRIu64 ", \"tensors\": [%s\n]},\n\"experts\": {\"count\": %d, \"layouts\": [\n",
		dense, table, c.experts);
	put_layout(f, &c);
	fputs("\n]}\n}\n", f);
	free(table);
	return 0;
}

int geometry_model_json(const struct geometry *g, char **text, char *why)
{
	size_t size;
	json_t *config = make_config(g);
	FILE *f = config ? open_memstream(text, &size) : NULL;
	int r = f ? put_model(f, g, config, why) : fail(why, ENOMEM, "no memory for model.json");

	json_decref(config);
	if (!f)
		return r;
	int bad = ferror(f);
	if ((fclose(f) != 0 || bad) && !r)
		r = fail(why, ENOMEM, "no memory for model.json");
	if (r)
		free(*text);
	return r;
}

/* The character that stands for a byte in byte-level vocabularies: printable ones of Latin-1 for
 * themselves, the others from U+0100 on (GPT-2's table). */
static void put_byte(FILE *f, int byte)
{
	bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
	int before = byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67;
	int c = plain ? byte : 256 + before;

	if (c >= 128)
		fprintf(f, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 63));
	else
		fprintf(f, "%s%c", c == '"' || c == '\\' ? "\\" : "", c);
}

int geometry_tokenizer_json(const struct geometry *g, char **text, char *why)
{
	size_t size;
	FILE *f = open_memstream(text, &size);

	if (!f)
		return fail(why, ENOMEM, "no memory for tokenizer.json");
	fputs("{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null,\n"
	      "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
	      "\"trim_offsets\": true, \"use_regex\": true},\n"
	      "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\", "
	      "\"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},\n"
	      "\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {",
	      f);
	for (int i = 0; i < g->size[SIZE_VOCAB]; i++) {
		fputs(i ? ",\n\"" : "\n\"", f);
		if (i < 256)
			put_byte(f, i);
		else
			fprintf(f, "<%d>", i);
		fprintf(f, "\": %d", i);
	}
	fputs("\n}}}\n", f);
	int bad = ferror(f);
	if (fclose(f) == 0 && !bad)
		return 0;
	free(*text);
	return fail(why, ENOMEM, "no memory for tokenizer.json");
}
