/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what differs from layer to layer: experts or a dense feed-forward, an indexer of one's own,
 * a window.
 */
#include <errno.h>
#include <string.h>

#include "engine/config_parts.h"
#include "engine/fail.h"

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

/* Qwen: layers that are dense all the same. */
static int read_mlp_only(const struct json_in *in, struct model_config *c, char *why)
{
	const json_t *list = in_at(in, "mlp_only_layers");

	if (list && !json_is_array(list))
		return fail(why, EINVAL, "%s: \"mlp_only_layers\" is not a list", in->where);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);
		json_int_t n = json_integer_value(v);
		if (!json_is_integer(v))
			return fail(why, EINVAL,
				    "%s: \"mlp_only_layers\" has an entry that is no number of a "
				    "layer",
				    in->where);
		if (n >= 0 && n < c->layers)
			c->sparse[n] = false;
	}
	return 0;
}

static int read_sparse(const struct json_in *in, struct model_config *c, char *why)
{
	bool there;
	int first, freq, step;
	int r = read_words(in, "mlp_layer_types", "sparse", "dense", c->layers, c->sparse, &there,
			   why);

	if (r || there)
		return r;
	r = in_int32(in, "first_k_dense_replace", 0, MODEL_MAX_LAYERS, 0, &first, why);
	if (!r)
		r = in_int32(in, "moe_layer_freq", 1, MODEL_MAX_LAYERS, 1, &freq, why);
	if (!r)
		r = in_int32(in, "decoder_sparse_step", 1, MODEL_MAX_LAYERS, 1, &step, why);
	for (int i = 0; i < c->layers && !r; i++)
		c->sparse[i] = i >= first && i % freq == 0 && (i + 1) % step == 0;
	return r ? r : read_mlp_only(in, c, why);
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

/* No window, but layers that are to have one: in transformers these see nothing at all. */
static int check_no_window(const struct json_in *in, struct model_config *c, bool on, char *why)
{
	bool lost = on && c->arch->window == WINDOW_ALL && in_at(in, "sliding_window"), there;
	int r = 0;

	if (c->arch->window == WINDOW_BY_LAYER)
		r = read_words(in, "layer_types", "sliding_attention", "full_attention", c->layers,
			       c->windowed, &there, why);
	for (int i = 0; i < c->layers; i++)
		lost |= c->windowed[i];
	return r || !lost ? r
			  : fail(why, EINVAL,
				 "%s: layers are to have a window, but \"sliding_window\" is %s",
				 in->where, on ? "0 or missing" : "switched off");
}

/* Layers that see the last "sliding_window" tokens only. */
static int read_window(const struct json_in *in, struct model_config *c, char *why)
{
	bool on = true, there = false;
	int until, r = 0;

	if (c->arch->window_key)
		r = in_bool(in, c->arch->window_key, false, &on, why);
	if (!r)
		r = in_int32(in, "sliding_window", 0, MAX_POSITIONS, 0, &c->window, why);
	if (!r && (!on || !c->window)) {
		c->window = 0;
		return check_no_window(in, c, on, why);
	}
	/* The first configurations of Mixtral-8x7B have 4,096, which the model does not use. */
	if (strcmp(c->arch->model_type, "mixtral") == 0 && c->window == 4096)
		c->window = 0;
	if (r || !c->window)
		return r;
	if (c->arch->window == WINDOW_BY_LAYER)
		r = read_words(in, "layer_types", "sliding_attention", "full_attention", c->layers,
			       c->windowed, &there, why);
	if (!r)
		r = in_int32(in, "max_window_layers", 0, MODEL_MAX_LAYERS, MODEL_MAX_LAYERS, &until,
			     why);
	for (int i = 0; !r && !there && i < c->layers; i++)
		c->windowed[i] = c->arch->window == WINDOW_ALL || (i % 2 == 0 && i < until);
	return r;
}

int config_read_layers(const struct json_in *in, struct model_config *c, char *why)
{
	int r = read_sparse(in, c, why);

	for (int i = c->layers; i < c->layers + c->extra_layers; i++) {
		c->sparse[i] = true;
		c->full[i] = c->arch->indexer;
	}
	if (!r && c->arch->indexer)
		r = read_full(in, c, why);
	if (!r && c->arch->window != WINDOW_NEVER)
		r = read_window(in, c, why);
	return r;
}
