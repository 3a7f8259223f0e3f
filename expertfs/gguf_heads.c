/* SPDX-License-Identifier: Apache-2.0
 *
 * The sizes of attention: heads of either kind, and the indexers that choose keys. Source: llama.cpp,
 * conversion/ and src/llama-hparams.cpp.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_arch.h"

#define LONG_CONTEXT 1048576 /* of GLM-5.2, whose layers share indexers; GLM-5 has fewer */

/* Widths of heads. Files with kv_b cut in two have key_length of the latent form, and the real one
 * as key_length_mla. */
int gguf_latent_heads(const struct gguf *g, json_t *config, char *why)
{
	int64_t k, v, rope = gguf_int_of(config, "qk_rope_head_dim");
	int err = gguf_int(g, "%s.attention.key_length_mla", 1, INT32_MAX, &k, why);

	if (err == -ENOENT)
		err = gguf_int(g, "%s.attention.key_length", 1, INT32_MAX, &k, why);
	if (err)
		return err == -ENOENT ? gguf_missing(g, "attention.key_length", why) : err;
	err = gguf_int(g, "%s.attention.value_length_mla", 1, INT32_MAX, &v, why);
	if (err == -ENOENT)
		err = gguf_int(g, "%s.attention.value_length", 1, INT32_MAX, &v, why);
	if (err == -ENOENT)
		err = gguf_missing(g, "attention.value_length", why);
	if (!err && k <= rope)
		err = fail(why, EINVAL,
			   "%s: keys of %" PRId64 " numbers with %" PRId64 " rotated ones",
			   g->part[0].path, k, rope);
	err = err ? err : gguf_put(config, "qk_nope_head_dim", json_integer(k - rope), why);
	return err ? err : gguf_put(config, "v_head_dim", json_integer(v), why);
}

/* The part of a head's `dim` numbers that the engine takes for `rope` of them: it multiplies and
 * drops what is behind the point. */
static double part_of(int64_t rope, int64_t dim)
{
	double part = (double)rope / (double)dim;

	return (int64_t)((double)dim * part) < rope ? nextafter(part, 1) : part;
}

int gguf_grouped_heads(const struct gguf *g, json_t *config, char *why)
{
	int64_t heads = gguf_int_of(config, "num_attention_heads"), dim, rope, v;
	int err;

	if (heads < 1)
		return gguf_missing(g, "attention.head_count", why);
	err = gguf_take_int(g, "%s.attention.head_count_kv", config, "num_key_value_heads", heads,
			    why);
	if (!err)
		err = gguf_take_int(g, "%s.attention.key_length", config, "head_dim",
				    gguf_int_of(config, "hidden_size") / heads, why);
	if (err)
		return err;
	dim = v = rope = gguf_int_of(config, "head_dim");
	err = gguf_int(g, "%s.attention.value_length", 1, INT32_MAX, &v, why);
	if (!err || err == -ENOENT)
		err = gguf_int(g, "%s.rope.dimension_count", 1, INT32_MAX, &rope, why);
	if (err && err != -ENOENT)
		return err;
	if (dim < 1 || v != dim || rope > dim)
		return fail(why, EINVAL,
			    "%s: heads of %" PRId64 " numbers, %" PRId64
			    " of them rotated, with values of %" PRId64 " are not supported",
			    g->part[0].path, dim, rope, v);
	return gguf_put(config, "partial_rotary_factor", json_real(part_of(rope, dim)), why);
}

/* Which layers have an indexer of their own: a list of true and false, 1 and 0, or "full" and
 * "shared". Without it all have one, but of the models with the long context (as llama.cpp tells
 * them apart), whose schedule is known. */
int gguf_indexers(const struct gguf *g, json_t *config, char *why)
{
	const char key[] = "%s.attention.indexer.types";
	int64_t layers = gguf_int_of(config, "num_hidden_layers");
	const struct gguf_key *k;
	struct gguf_text t = { 0 };
	size_t at = 0;
	bool words = gguf_array(g, key, GGUF_STRING, &k, NULL) == 0;
	int err = words ? 0 : gguf_array(g, key, GGUF_I64, &k, why);

	if (err == -ENOENT) {
		if (gguf_int_of(config, "max_position_embeddings") < LONG_CONTEXT)
			return 0;
		err = gguf_put(config, "index_topk_freq", json_integer(4), why);
		return err ? err : gguf_put(config, "index_skip_topk_offset", json_integer(3), why);
	}
	if (!err && k->count < (uint64_t)layers)
		err = fail(why, EINVAL, "%s: %s has %" PRIu64 " entries for %" PRId64 " layers",
			   g->part[0].path, k->name, k->count, layers);
	if (err)
		return err;
	json_t *list = json_array();
	for (int64_t i = 0; i < layers; i++) {
		if (words)
			t = gguf_array_next(g, k, &at);
		bool full = words ? t.bytes == 4 && memcmp(t.at, "full", 4) == 0
				  : gguf_array_int(g, k, (uint64_t)i) != 0;
		json_array_append_new(list, json_string(full ? "full" : "shared"));
	}
	return gguf_put(config, "indexer_types", list, why);
}
