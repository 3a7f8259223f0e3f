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

struct tokenizer {
	struct bpe bpe;
	struct added_token *added;
	int added_n;
	uint8_t *special;                 /* by id: 1 for special added tokens */
	struct added_set raw, normalized; /* of added */
	bool nfc;
	bool prefix_space; /* a piece of text that does not start with a space gets one */
	struct pretokenizer *split;
	struct bpe_ids before, after; /* what TOKENIZER_ADD_SPECIAL puts around a text */
};

#endif
