/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to token ids and back: the byte-level BPE tokenizers of GLM, Qwen, Llama-3, DeepSeek,
 * gpt-oss, OLMoE and GPT-2, and the SentencePiece-style ones of Mixtral and Llama-2, read from the
 * tokenizer.json of a Hugging Face checkpoint.
 *
 * What encode does, piece by piece (the ids are those of the Hugging Face tokenizers library with
 * add_special_tokens=False):
 *
 *	bytes that are no UTF-8 are set aside                            utf8.h
 *	added tokens are cut out of the text                             added_tokens.h
 *	the rest is normalised (Qwen: NFC; Mixtral: a space in front)    nfc.h, metaspace.h
 *	split by the regular expressions of the file      pretokenize.h, regex_dialect.h
 *	and merged, pair by pair, into tokens                            bpe.h
 *
 * A loaded tokenizer is never changed: any number of threads may use it at once.
 */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer; /* opaque */

/* Longest text of one tokenizer_encode(), in bytes. */
#define TOKENIZER_TEXT_MAX (1u << 30)

/* Reads a tokenizer.json. What the engine cannot reproduce exactly (another kind of model,
 * normaliser, pre-tokenizer or splitting behaviour) is refused, so a file that loads gives the
 * right ids. 0, or negative errno with the sentence in why: -EINVAL for what the file says, else of
 * open and read. Free with tokenizer_free(). */
int tokenizer_load(const char *path, struct tokenizer **out, char *why);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

/* The highest id that is defined, plus 1. Ids below it may be undefined. */
int tokenizer_size(const struct tokenizer *t);
bool tokenizer_has(const struct tokenizer *t, int id);

enum {
	/* The text of special added tokens is ordinary text: for what users write, so that they
	 * cannot inject control tokens. Added tokens that are not special are still recognised. */
	TOKENIZER_PLAIN = 1,
	/* Adds what the file's post_processor puts around a text, such as a beginning-of-text
	   token. */
	TOKENIZER_ADD_SPECIAL = 2,
};

/* Any bytes are fine as text: those that are no valid UTF-8 become one token each. The concatenated
 * pieces of the ids are the bytes of the text again (for files with NFC: of its valid parts in NFC;
 * for files with add_prefix_space, Prepend or Metaspace: with the spaces that this adds, and for
 * the last two with a space for U+2581).
 * *ids: n of them, to be freed with free(), not NULL even if n is 0. 0 or negative errno and why:
 * -EFBIG above TOKENIZER_TEXT_MAX, -ENOMEM, -ELOOP if a regular expression of the file took too
 * many steps, -EILSEQ for a byte that is no UTF-8 if the vocabulary has no token for it (those of
 * DeepSeek-V2 lack 13 bytes). */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags,
		     int32_t **ids, size_t *n, char *why);

/* Bytes from..to of a text. */
struct tokenizer_span {
	size_t from, to;
};

/* The same for a text of which parts came from outside, the spans, which are in ascending order and
 * not empty. A mark that touches one is ordinary text: special tokens are marks, and so are those
 * that are written like them, in <>, [] or ||, such as DeepSeek's <｜User｜> or Qwen's <tool_call>,
 * which are not marked special. -EINVAL if a mark is sought in normalised text, normalising has
 * changed that, and it touches a span. */
int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t bytes,
			   const struct tokenizer_span *span, size_t spans, int32_t **ids,
			   size_t *n, char *why);

/* The raw bytes that a token stands for; of an added token its literal text. They need not be whole
 * UTF-8 characters, and may contain any byte. Owned by t. NULL for undefined ids. */
const char *tokenizer_piece(const struct tokenizer *t, int id, size_t *bytes);
/* True for added tokens that are marked special: usually not shown. */
bool tokenizer_is_special(const struct tokenizer *t, int id);
/* The id of an added token, special or not, by its text; -1 if there is none. */
int tokenizer_id(const struct tokenizer *t, const char *text);

#endif
