/* SPDX-License-Identifier: Apache-2.0
 *
 * The alphabet of SentencePiece-style vocabularies (Llama-2, Mixtral): a space stands there as
 * U+2581, and the tokens of single bytes as "<0x41>". Source: tokenizers, normalizers/replace.rs,
 * pre_tokenizers/metaspace.rs, models/bpe/model.rs (byte_fallback).
 *
 * As with byte-level vocabularies (bpe.h), everything behind the loading is raw bytes, with spaces
 * for spaces. So text that has the character U+2581 itself is the same as text with spaces, as it
 * is for these tokenizers.
 */
#ifndef ENGINE_METASPACE_H
#define ENGINE_METASPACE_H

#include <stdbool.h>
#include <stddef.h>

#define METASPACE       "\xE2\x96\x81"
#define METASPACE_BYTES 3

/* Copies n bytes with each U+2581 made a space into out, which has room for n and may be s. Returns
 * how many there are. */
size_t metaspace_unmap(const char *s, size_t n, char *out);

/* The byte that "<0x41>" stands for; -1 if s is no such token. */
int metaspace_byte(const char *s, size_t n);

#endif
