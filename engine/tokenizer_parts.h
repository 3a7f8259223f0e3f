/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of struct tokenizer, shared by tokenizer_json.c, which fills it, and tokenizer.c,
 * which uses it.
 */
#ifndef ENGINE_TOKENIZER_PARTS_H
#define ENGINE_TOKENIZER_PARTS_H

#include "engine/added_tokens.h"
#include "engine/bpe.h"
#include "engine/pretokenize.h"
#include "engine/tokenizer.h"

/* Which pieces of text get a space in front unless they start with one. */
enum prefix_space { PREFIX_NONE, PREFIX_FIRST, PREFIX_ALL };

struct tokenizer {
	struct bpe bpe;
	struct added_token *added;
	int added_n;
	uint8_t *special;                 /* by id: 1 for special added tokens */
	struct added_set raw, normalized; /* of added */
	/* What normalising does, in this order. */
	bool nfc;
	bool metaspace; /* U+2581 becomes a space; the vocabulary has it for spaces as well */
	bool prepend; /* with metaspace: a space in front of each piece, whatever it starts with */
	enum prefix_space prefix_space;
	struct pretokenizer *split;
	struct bpe_ids before, after; /* what TOKENIZER_ADD_SPECIAL puts around a text */
};

/* The normal form of valid UTF-8, allocated; *out is NULL if the text is that already. glued: it
 * follows on other text, so that nothing may be prepended. 0 or -ENOMEM. */
int tokenizer_normalise(const struct tokenizer *t, const char *text, size_t bytes, bool glued,
			char **out, size_t *out_bytes);

#endif
