/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding, and what a token stands for: see tokenizer.h. Loading is in tokenizer_json.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"
#include "engine/metaspace.h"
#include "engine/nfc.h"
#include "engine/tokenizer_parts.h"
#include "engine/utf8.h"

/* One tokenizer_encode(). */
struct encoding {
	const struct tokenizer *t;
	bool plain;
	const char *text; /* what the spans are of */
	const struct tokenizer_span *span;
	size_t spans;
	bool moved;   /* normalising has changed the piece: nothing in it has a place in text */
	bool outside; /* and the piece touches a span */
	bool begun;   /* there was text or a token before */
	bool glued;   /* the text follows directly on an invalid byte, so that no space may come
		       between */
	struct pretokenizer_state *split;
	struct bpe_scratch scratch;
	struct bpe_ids ids;
	char *why;
};

int tokenizer_size(const struct tokenizer *t)
{
	return t->bpe.size;
}

bool tokenizer_has(const struct tokenizer *t, int id)
{
	return id >= 0 && id < t->bpe.size && t->bpe.piece[id].offset != BPE_NONE;
}

const char *tokenizer_piece(const struct tokenizer *t, int id, size_t *bytes)
{
	*bytes = 0;
	if (!tokenizer_has(t, id))
		return NULL;
	*bytes = t->bpe.piece[id].bytes;
	return t->bpe.bytes + t->bpe.piece[id].offset;
}

bool tokenizer_is_special(const struct tokenizer *t, int id)
{
	return tokenizer_has(t, id) && t->special[id];
}

int tokenizer_id(const struct tokenizer *t, const char *text)
{
	size_t bytes = strlen(text);

	for (int i = 0; i < t->added_n; i++)
		if (t->added[i].bytes == bytes && memcmp(t->added[i].content, text, bytes) == 0)
			return t->added[i].id;
	return -1;
}

static int no_memory(char *why)
{
	return fail(why, ENOMEM, "out of memory while encoding text");
}

static int emit_piece(void *ctx, const char *piece, size_t bytes)
{
	struct encoding *e = ctx;
	int rc = bpe_encode(&e->t->bpe, piece, bytes, &e->scratch, &e->ids);

	return rc == -ENOMEM ? no_memory(e->why) : rc;
}

/* The text with a space in front, allocated; NULL if there is no memory. */
static char *with_space(const char *text, size_t bytes)
{
	char *spaced = malloc(bytes + 1);

	if (spaced) {
		spaced[0] = ' ';
		memcpy(spaced + 1, text, bytes);
	}
	return spaced;
}

/* Text without any added tokens. */
static int encode_ordinary(struct encoding *e, const char *text, size_t bytes)
{
	enum prefix_space prefix = e->t->prefix_space;
	bool first = !e->begun;

	e->begun = true;
	if (prefix == PREFIX_NONE || (prefix == PREFIX_FIRST && !first) || e->glued ||
	    text[0] == ' ')
		return pretokenize(e->split, text, bytes, emit_piece, e, e->why);

	char *spaced = with_space(text, bytes);
	if (!spaced)
		return no_memory(e->why);
	int rc = pretokenize(e->split, spaced, bytes + 1, emit_piece, e, e->why);
	free(spaced);
	return rc;
}

/* Does a part of the text touch a span? */
static bool touches(const struct encoding *e, const char *part, size_t bytes)
{
	size_t from = (size_t)(part - e->text), low = 0, high = e->spans;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (e->span[middle].to <= from)
			low = middle + 1;
		else
			high = middle;
	}
	return low < e->spans && e->span[low].from < from + bytes;
}

/* Roles, calls and the like: special tokens, and all that are written as such tokens are. Others that
 * are not special are words and runs of spaces, which a text needs. */
static bool is_mark(const struct added_token *t)
{
	return t->special || (t->bytes > 1 && strchr("<[|", t->content[0]) &&
			      strchr(">]|", t->content[t->bytes - 1]));
}

/* 1: the token that was found at this place is ordinary text, since it touches a span; 0: it is not;
 * or an error. */
static int passed_over(const struct encoding *e, const struct added_set *set,
		       const struct added_token *found, const char *at, size_t bytes)
{
	if (e->spans == 0 || !is_mark(found))
		return 0;
	if (set == &e->t->raw || !e->moved)
		return touches(e, at, bytes);
	/* No known tokenizer has marks that it seeks in text that changes. */
	return e->outside ? fail(e->why, EINVAL,
				 "the text of a message is normalised together with the token "
				 "%.80s, from which it cannot be kept apart then",
				 found->content)
			  : 0;
}

/* Cuts the tokens of a set out of the text; what lies between them goes to `rest`. */
static int cut(struct encoding *e, const struct added_set *set, const char *text, size_t bytes,
	       int (*rest)(struct encoding *e, const char *text, size_t bytes))
{
	size_t done = 0, from = 0, at, start, end;
	const struct added_token *found;
	int rc = 0;

	while (rc == 0 &&
	       (found = added_find(set, text, bytes, from, e->plain, &at, &start, &end))) {
		/* White space from outside that it absorbs makes it none that came from there. */
		int over = passed_over(e, set, found, text + at, found->key_bytes);
		from = over > 0 ? at + found->key_bytes : end;
		if (over > 0)
			continue;
		rc = over;
		if (rc == 0 && start > done)
			rc = rest(e, text + done, start - done);
		e->glued = false;
		e->begun = true;
		if (rc == 0 && bpe_push(&e->ids, found->id) != 0)
			rc = no_memory(e->why);
		done = end;
	}
	if (rc == 0 && done < bytes)
		rc = rest(e, text + done, bytes - done);
	return rc;
}

static int encode_normalised(struct encoding *e, const char *text, size_t bytes)
{
	return cut(e, &e->t->normalized, text, bytes, encode_ordinary);
}

int tokenizer_normalise(const struct tokenizer *t, const char *text, size_t bytes, bool glued,
			char **out, size_t *out_bytes)
{
	size_t prepended = t->prepend && !glued;
	char *normal = NULL;

	*out = NULL;
	*out_bytes = bytes;
	if (t->nfc && nfc(text, bytes, &normal, &bytes) != 0)
		return -ENOMEM;
	if (normal)
		*out_bytes = bytes;
	*out = normal;
	if (!t->metaspace)
		return 0;
	*out = malloc(*out_bytes + 1);
	if (*out) {
		(*out)[0] = ' ';
		*out_bytes = prepended +
			     metaspace_unmap(normal ? normal : text, *out_bytes, *out + prepended);
	}
	free(normal);
	return *out ? 0 : -ENOMEM;
}

static int normalise(struct encoding *e, const char *text, size_t bytes)
{
	char *changed;
	size_t changed_bytes;

	e->outside = touches(e, text, bytes);
	if (tokenizer_normalise(e->t, text, bytes, e->glued, &changed, &changed_bytes) != 0)
		return no_memory(e->why);
	e->moved = changed && (changed_bytes != bytes || memcmp(changed, text, bytes) != 0);
	if (!e->moved) {
		free(changed);
		changed = NULL;
	}
	int rc = changed ? encode_normalised(e, changed, changed_bytes)
			 : encode_normalised(e, text, bytes);
	free(changed);
	return rc;
}

/* The bytes of valid UTF-8 that text begins with. */
static size_t valid_bytes(const char *text, size_t bytes)
{
	size_t n = 0;
	uint32_t cp;
	unsigned length;

	while (n < bytes && utf8_next(text + n, bytes - n, &cp, &length) == UTF8_CHAR)
		n += length;
	return n;
}

static int encode_bytes(struct encoding *e, const char *text, size_t bytes)
{
	int rc = 0;

	for (size_t at = 0; at < bytes && rc == 0;) {
		size_t valid = valid_bytes(text + at, bytes - at);
		if (valid)
			rc = cut(e, &e->t->raw, text + at, valid, normalise);
		at += valid;
		if (rc == 0 && at < bytes) {
			unsigned char byte = (unsigned char)text[at];
			if (e->t->bpe.byte_id[byte] < 0)
				return fail(e->why, EILSEQ,
					    "the text has a byte 0x%02X, which is no UTF-8 and for "
					    "which the vocabulary has no token",
					    byte);
			rc = emit_piece(e, text + at, 1);
			e->glued = e->begun = true;
			at++;
		}
	}
	return rc;
}

static int push_all(struct encoding *e, const struct bpe_ids *ids)
{
	for (size_t i = 0; i < ids->n; i++)
		if (bpe_push(&e->ids, ids->id[i]) != 0)
			return no_memory(e->why);
	return 0;
}

/* e: t, why, and what is to be recognised. */
static int encode(struct encoding *e, const char *text, size_t bytes, unsigned flags, int32_t **ids,
		  size_t *n)
{
	const struct tokenizer *t = e->t;
	char *why = e->why;
	int rc = 0;

	e->text = text;

	*ids = NULL;
	*n = 0;
	if (bytes > TOKENIZER_TEXT_MAX)
		return fail(why, EFBIG,
			    "the text has %zu bytes, more than the %u that can be encoded", bytes,
			    TOKENIZER_TEXT_MAX);
	e->split = pretokenizer_start(t->split);
	e->ids.id = malloc(sizeof(e->ids.id[0]));
	e->ids.room = 1;
	if (!e->split || !e->ids.id)
		rc = no_memory(why);
	if (rc == 0 && (flags & TOKENIZER_ADD_SPECIAL))
		rc = push_all(e, &t->before);
	if (rc == 0)
		rc = encode_bytes(e, text, bytes);
	if (rc == 0 && (flags & TOKENIZER_ADD_SPECIAL))
		rc = push_all(e, &t->after);
	pretokenizer_end(e->split);
	bpe_scratch_free(&e->scratch);
	if (rc != 0) {
		free(e->ids.id);
		return rc;
	}
	*ids = e->ids.id;
	*n = e->ids.n;
	return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags,
		     int32_t **ids, size_t *n, char *why)
{
	struct encoding e = { .t = t, .plain = flags & TOKENIZER_PLAIN, .why = why };

	return encode(&e, text, bytes, flags, ids, n);
}

int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t bytes,
			   const struct tokenizer_span *span, size_t spans, int32_t **ids,
			   size_t *n, char *why)
{
	struct encoding e = { .t = t, .span = span, .spans = spans, .why = why };

	return encode(&e, text, bytes, 0, ids, n);
}

void tokenizer_free(struct tokenizer *t)
{
	if (!t)
		return;
	for (int i = 0; i < t->added_n; i++) {
		if (t->added[i].key != t->added[i].content)
			free(t->added[i].key);
		free(t->added[i].content);
	}
	free(t->added);
	free(t->special);
	added_set_free(&t->raw);
	added_set_free(&t->normalized);
	pretokenizer_free(t->split);
	bpe_free(&t->bpe);
	free(t->before.id);
	free(t->after.id);
	free(t);
}
