/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-pair encoding: the vocabulary and the merges of a tokenizer, and the merging.
 *
 * Everything here is raw bytes. In the file the bytes stand in an alphabet of printable characters
 * (GPT-2's table; tokenizers, pre_tokenizers/byte_level.rs), which bpe_unmap() undoes while
 * loading, or in that of metaspace.h.
 */
#ifndef ENGINE_BPE_H
#define ENGINE_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One more than the highest id that is accepted: real vocabularies have up to 262,144. */
#define BPE_IDS (1 << 22)

struct bpe_piece {
	uint32_t offset, bytes; /* in struct bpe.bytes; offset is BPE_NONE for undefined ids */
};
#define BPE_NONE UINT32_MAX

/* Two neighbours that become one token. A free slot of the table has rank BPE_NONE. */
struct bpe_merge {
	int32_t left, right, into;
	uint32_t rank; /* the lowest goes first */
};

struct bpe {
	int size;                /* highest defined id + 1 */
	struct bpe_piece *piece; /* by id */
	char *bytes;
	size_t bytes_used, bytes_room;
	int32_t *find; /* hash table of the tokens that text can become: ids, -1 for free slots */
	uint32_t find_mask;
	struct bpe_merge *merge; /* hash table */
	uint32_t merge_mask;
	int32_t byte_id[256]; /* the tokens of single bytes; -1 if there is none */
	bool by_char;         /* merging starts with characters; those that are no token, and bytes
				 that are no UTF-8, become tokens of single bytes ("byte_fallback") */
	bool ignore_merges;   /* a text that is a token becomes it, whether merges lead there or not
			       */
};

/* A growing list of ids. */
struct bpe_ids {
	int32_t *id;
	size_t n, room;
};

/* Working memory of bpe_encode(), kept from one piece to the next. Starts as { 0 }. */
struct bpe_scratch {
	struct bpe_symbol *symbol;
	size_t symbol_room;
	struct bpe_candidate *heap;
	size_t heap_n, heap_room;
};

/* From the file's alphabet to bytes, at most n of them, into out. False if s has a character
 * outside of the alphabet; then out holds nothing of use. */
bool bpe_unmap(const char *s, size_t n, char *out, size_t *out_bytes);

/* Room for ids 0..size-1 (at most BPE_IDS) and a number of merges. 0 or -ENOMEM. */
int bpe_init(struct bpe *b, int size, size_t merges);
void bpe_free(struct bpe *b);
/* Defines an id, or defines it anew. -ERANGE if id is not below size, -EFBIG above 2 GiB of bytes,
 * -ENOMEM. */
int bpe_define(struct bpe *b, int id, const char *bytes, size_t n);
/* Lets text become the defined token id. Of tokens with the same bytes the first that is given
 * stays. */
void bpe_reachable(struct bpe *b, int id);
/* With by_char: the defined token id is what a byte becomes. -EEXIST if the byte has another one. */
int bpe_fall_back(struct bpe *b, int byte, int id);
/* The reachable token of these bytes, or -1. */
int bpe_find(const struct bpe *b, const char *bytes, size_t n);
/* Adds a merge; the ids are defined. Of merges of the same pair the last stays, as in the
 * tokenizers library. Not more of them than bpe_init() was told. */
void bpe_add_merge(struct bpe *b, int left, int right, int into, uint32_t rank);

/* Appends the ids of one piece of text: starting with its bytes, or characters, the neighbours whose
 * merge has the lowest rank are joined, the leftmost of equals first, until there is none. All of its
 * bytes must be tokens. Time O(n log n), memory up to 100 bytes a byte. 0 or -ENOMEM. */
int bpe_encode(const struct bpe *b, const char *text, size_t n, struct bpe_scratch *scratch,
	       struct bpe_ids *ids);
void bpe_scratch_free(struct bpe_scratch *scratch);

/* 0 or -ENOMEM. */
int bpe_push(struct bpe_ids *ids, int32_t id);

#endif
