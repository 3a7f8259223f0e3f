/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer_load(): the file, the vocabulary, the merges and the added tokens of a tokenizer.json.
 *
 * The file may come from anywhere: every id, type and length is checked before use.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/metaspace.h"
#include "engine/tokenizer_json.h"
#include "engine/utf8.h"

/* The largest known file has 34 MB (262,144 tokens). */
#define FILE_MAX (256u << 20)

int tokenizer_refuse(const struct tokenizer_json *l, const char *fmt, ...)
{
	char sentence[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	return fail(l->why, EINVAL, "%s: %s", l->path, sentence);
}

static int no_memory(const struct tokenizer_json *l)
{
	return fail(l->why, ENOMEM, "%s: out of memory", l->path);
}

int tokenizer_flag(const struct tokenizer_json *l, const json_t *object, const char *name,
		   bool absent, bool *out)
{
	const json_t *value = json_object_get(object, name);

	*out = absent;
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_boolean(value))
		return tokenizer_refuse(l, "%s is neither true nor false", name);
	*out = json_is_true(value);
	return 0;
}

/* ---- the file ---- */

static int read_fd(const struct tokenizer_json *l, int fd, char **text, size_t *bytes)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return fail(l->why, errno, "%s: %s", l->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return tokenizer_refuse(l, "this is not a regular file");
	if (st.st_size > FILE_MAX)
		return tokenizer_refuse(l, "the file has %jd bytes, more than a tokenizer can have",
					(intmax_t)st.st_size);
	*text = malloc((size_t)st.st_size + 1);
	if (!*text)
		return no_memory(l);
	while (*bytes < (size_t)st.st_size) {
		ssize_t n = read(fd, *text + *bytes, (size_t)st.st_size - *bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(l->why, errno, "%s: %s", l->path, strerror(errno));
		if (n == 0)
			break;
		*bytes += (size_t)n;
	}
	return 0;
}

static int parse_file(struct tokenizer_json *l)
{
	json_error_t error;
	char *text = NULL;
	size_t bytes = 0;
	int fd = open(l->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return fail(l->why, errno, "%s: %s", l->path, strerror(errno));
	int rc = read_fd(l, fd, &text, &bytes);
	close(fd);
	if (rc == 0) {
		l->root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
		if (!l->root)
			rc = tokenizer_refuse(l, "line %d is no JSON: %s", error.line, error.text);
		else if (!json_is_object(l->root))
			rc = tokenizer_refuse(l, "the JSON is not an object");
	}
	free(text);
	return rc;
}

/* ---- ids ---- */

/* The id in a JSON value, or -1 if it is none. */
static int id_of(const json_t *value)
{
	json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;

	return id >= 0 && id < BPE_IDS ? (int)id : -1;
}

/* Checks all ids and finds the number of them, the highest and 1. */
static int count_ids(const struct tokenizer_json *l, json_t *vocab, const json_t *added, int *size)
{
	const char *token;
	json_t *value;

	*size = 0;
	json_object_foreach(vocab, token, value)
	{
		int id = id_of(value);
		if (id < 0)
			return tokenizer_refuse(l, "the token \"%.80s\" has no id from 0 to %d",
						token, BPE_IDS - 1);
		if (id >= *size)
			*size = id + 1;
	}
	for (size_t i = 0; i < json_array_size(added); i++) {
		int id = id_of(json_object_get(json_array_get(added, i), "id"));
		if (id < 0)
			return tokenizer_refuse(l, "added token number %zu has no id from 0 to %d",
						i, BPE_IDS - 1);
		if (id >= *size)
			*size = id + 1;
	}
	return 0;
}

/* ---- added tokens ---- */

static int read_added_token(const struct tokenizer_json *l, const json_t *item,
			    struct added_token *a)
{
	const json_t *content = json_object_get(item, "content");
	int rc;

	a->id = id_of(json_object_get(item, "id"));
	if (json_string_length(content) == 0)
		return tokenizer_refuse(l, "the added token with id %d has no content", a->id);
	rc = tokenizer_flag(l, item, "special", false, &a->special);
	if (rc == 0)
		rc = tokenizer_flag(l, item, "normalized", true, &a->normalized);
	if (rc == 0)
		rc = tokenizer_flag(l, item, "single_word", false, &a->single_word);
	if (rc == 0)
		rc = tokenizer_flag(l, item, "lstrip", false, &a->lstrip);
	if (rc == 0)
		rc = tokenizer_flag(l, item, "rstrip", false, &a->rstrip);
	if (rc != 0)
		return rc;
	/* In the library's normal form there are no spaces then to absorb. */
	if (a->normalized && (a->lstrip || a->rstrip) && l->t->metaspace)
		return tokenizer_refuse(
			l,
			"the added token with id %d absorbs the spaces of normalised "
			"text, which is not supported where U+2581 stands for them",
			a->id);
	a->bytes = a->key_bytes = json_string_length(content);
	a->content = a->key = strdup(json_string_value(content));
	if (!a->content)
		return no_memory(l);
	if (a->normalized) {
		char *key;
		size_t bytes;
		if (tokenizer_normalise(l->t, a->content, a->bytes, false, &key, &bytes) != 0)
			return no_memory(l);
		if (key) {
			a->key = key;
			a->key_bytes = bytes;
		}
	}
	return 0;
}

/* Defines one added token: neither its id nor its text may be another token's. */
static int define_added(const struct tokenizer_json *l, const struct added_token *a, json_t *seen,
			const json_t *vocab)
{
	const json_t *in_vocab = json_object_get(vocab, a->content);

	if (tokenizer_has(l->t, a->id))
		return tokenizer_refuse(l, "two added tokens have the id %d", a->id);
	if (json_object_get(seen, a->content))
		return tokenizer_refuse(l, "the added token \"%.80s\" is there twice", a->content);
	if (in_vocab && id_of(in_vocab) != a->id)
		return tokenizer_refuse(
			l, "the added token \"%.80s\" has the id %d, but %d in the vocabulary",
			a->content, a->id, id_of(in_vocab));
	if (json_object_set_new(seen, a->content, json_true()) != 0 ||
	    bpe_define(&l->t->bpe, a->id, a->content, a->bytes) != 0)
		return no_memory(l);
	l->t->special[a->id] = a->special;
	return 0;
}

static int read_added(struct tokenizer_json *l, const json_t *added, const json_t *vocab)
{
	struct tokenizer *t = l->t;
	size_t n = json_array_size(added);
	json_t *seen = json_object();
	int rc = 0;

	t->added = calloc(n + 1, sizeof(t->added[0]));
	t->special = calloc((size_t)t->bpe.size + 1, sizeof(t->special[0]));
	if (!seen || !t->added || !t->special) {
		json_decref(seen);
		return no_memory(l);
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct added_token *a = &t->added[t->added_n++];
		rc = read_added_token(l, json_array_get(added, i), a);
		if (rc == 0)
			rc = define_added(l, a, seen, vocab);
	}
	json_decref(seen);
	if (rc == 0 && (added_set_make(&t->raw, t->added, t->added_n, false) != 0 ||
			added_set_make(&t->normalized, t->added, t->added_n, true) != 0))
		rc = no_memory(l);
	return rc;
}

/* ---- vocabulary and merges ---- */

/* The bytes that text has for a token of the vocabulary. False if no text becomes the token: then
 * out holds nothing of use. */
static bool unmap(const struct tokenizer_json *l, const char *token, size_t bytes, char *out,
		  size_t *out_bytes)
{
	const struct tokenizer *t = l->t;

	if (!t->bpe.by_char)
		return bpe_unmap(token, bytes, out, out_bytes);
	/* Where U+2581 stands for spaces, a normal form has no U+0020 that a token could match. */
	if (metaspace_byte(token, bytes) >= 0 || (t->metaspace && memchr(token, ' ', bytes)))
		return false;
	if (t->metaspace) {
		*out_bytes = metaspace_unmap(token, bytes, out);
	} else {
		memcpy(out, token, bytes);
		*out_bytes = bytes;
	}
	return true;
}

/* A token "<0x41>". */
static int read_byte_token(struct tokenizer_json *l, const char *token, int byte, int id)
{
	char raw = (char)byte;

	if (bpe_define(&l->t->bpe, id, &raw, 1) != 0)
		return no_memory(l);
	if (bpe_fall_back(&l->t->bpe, byte, id) != 0)
		return tokenizer_refuse(l, "the token \"%.80s\" is there twice", token);
	return 0;
}

/* Special tokens are defined but not reachable: no text may become one by merging. Strings outside
 * of the alphabet stand for themselves and are reached by no merge either. */
static int read_token(struct tokenizer_json *l, const char *token, int id, char *scratch)
{
	struct bpe *b = &l->t->bpe;
	size_t bytes = strlen(token), raw_bytes;
	bool mapped = unmap(l, token, bytes, scratch, &raw_bytes);
	bool known = tokenizer_has(l->t, id);
	int byte = b->by_char ? metaspace_byte(token, bytes) : -1;
	int rc = 0;

	if (byte >= 0 && !known)
		return read_byte_token(l, token, byte, id);

	if (known) {
		struct bpe_piece p = b->piece[id];
		if (p.bytes != bytes || memcmp(b->bytes + p.offset, token, bytes) != 0)
			return tokenizer_refuse(
				l, "the token \"%.80s\" has the id %d, which is another token's",
				token, id);
		/* An added token is its literal text. The library merges other text into it as well
		 * if that is what the alphabet gives. */
		bool literal = mapped && raw_bytes == bytes && memcmp(scratch, token, bytes) == 0;
		if (mapped && !literal && !l->t->special[id])
			return tokenizer_refuse(l,
						"the added token \"%.80s\" is in the vocabulary, "
						"where it stands for other text, which is not "
						"supported",
						token);
		mapped = literal;
	} else {
		rc = mapped ? bpe_define(b, id, scratch, raw_bytes)
			    : bpe_define(b, id, token, bytes);
	}
	if (rc == -EFBIG)
		return tokenizer_refuse(l, "the tokens are longer than 2 GiB together");
	if (rc != 0)
		return no_memory(l);
	if (mapped && !l->t->special[id])
		bpe_reachable(b, id);
	return 0;
}

/* All bytes must have tokens; of byte-level vocabularies those that occur in UTF-8 suffice
 * (DeepSeek-V2 lacks the others). */
static int read_vocab(struct tokenizer_json *l, json_t *vocab, char *scratch)
{
	const char *token;
	json_t *value;

	json_object_foreach(vocab, token, value)
	{
		int rc = read_token(l, token, id_of(value), scratch);
		if (rc != 0)
			return rc;
	}
	for (int byte = 0; byte < 256; byte++)
		if (l->t->bpe.byte_id[byte] < 0 && (l->t->bpe.by_char || utf8_has_byte(byte)))
			return tokenizer_refuse(l,
						"the vocabulary has no token for the byte 0x%02X: "
						"only %s are supported",
						(unsigned)byte,
						l->t->bpe.by_char ? "whole sets of byte tokens"
								  : "byte-level tokenizers");
	return 0;
}

/* The two parts of a merge: "A B", or ["A", "B"]. The parts are no longer than the whole line. */
static bool merge_parts(const json_t *merge, const char **a, size_t *a_bytes, const char **b,
			size_t *b_bytes)
{
	if (json_is_string(merge)) {
		const char *line = json_string_value(merge);
		const char *space = line[0] ? strchr(line + 1, ' ') : NULL;
		if (!space)
			return false;
		*a = line;
		*a_bytes = (size_t)(space - line);
		*b = space + 1;
		*b_bytes = json_string_length(merge) - *a_bytes - 1;
		return *b_bytes > 0;
	}
	const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
	*a = json_string_value(left);
	*b = json_string_value(right);
	*a_bytes = json_string_length(left);
	*b_bytes = json_string_length(right);
	return json_array_size(merge) == 2 && *a_bytes > 0 && *b_bytes > 0;
}

/* Are A, B and AB in the vocabulary? scratch has room for AB and a zero. */
static bool all_known(const json_t *vocab, const char *a, size_t a_bytes, const char *b,
		      size_t b_bytes, char *scratch)
{
	memcpy(scratch, a, a_bytes);
	scratch[a_bytes] = '\0';
	bool known = json_object_get(vocab, scratch);
	memcpy(scratch, b, b_bytes);
	scratch[b_bytes] = '\0';
	known = known && json_object_get(vocab, scratch);
	memcpy(scratch, a, a_bytes);
	memcpy(scratch + a_bytes, b, b_bytes);
	scratch[a_bytes + b_bytes] = '\0';
	return known && json_object_get(vocab, scratch);
}

/* The member "ranks" is ours: a rank for each merge where some are equal, as they are between
 * SentencePiece's pieces of one score (expertfs/gguf_tokenizer.h writes it). */
static int merge_rank(const struct tokenizer_json *l, const json_t *ranks, size_t number,
		      uint32_t *rank)
{
	const json_t *value = json_array_get(ranks, number);
	json_int_t given = json_is_integer(value) ? json_integer_value(value) : -1;

	*rank = (uint32_t)number;
	if (!ranks)
		return 0;
	if (given < 0 || given >= INT32_MAX)
		return tokenizer_refuse(l, "merge number %zu has no rank", number);
	*rank = (uint32_t)given;
	return 0;
}

static int read_merge(struct tokenizer_json *l, const json_t *merge, size_t number, uint32_t rank,
		      const json_t *vocab, char *scratch)
{
	struct bpe *bpe = &l->t->bpe;
	const char *a, *b;
	size_t a_bytes, b_bytes, left_bytes, right_bytes;
	int left = -1, right = -1, into = -1;

	if (!merge_parts(merge, &a, &a_bytes, &b, &b_bytes))
		return tokenizer_refuse(l, "merge number %zu is not a pair of tokens", number);
	if (unmap(l, a, a_bytes, scratch, &left_bytes) &&
	    unmap(l, b, b_bytes, scratch + left_bytes, &right_bytes)) {
		left = bpe_find(bpe, scratch, left_bytes);
		right = bpe_find(bpe, scratch + left_bytes, right_bytes);
		into = bpe_find(bpe, scratch, left_bytes + right_bytes);
	}
	if (left >= 0 && right >= 0 && into >= 0) {
		bpe_add_merge(bpe, left, right, into, rank);
		return 0;
	}
	/* With by_char, merging may start with byte tokens, which no known model merges. */
	if (bpe->by_char && (metaspace_byte(a, a_bytes) >= 0 || metaspace_byte(b, b_bytes) >= 0))
		return tokenizer_refuse(l, "merge number %zu is one of byte tokens", number);
	/* A token that no text can become has no part in merging. */
	if (all_known(vocab, a, a_bytes, b, b_bytes, scratch))
		return 0;
	return tokenizer_refuse(
		l,
		"merge number %zu, \"%.80s\" and \"%.80s\", needs a token that is not "
		"in the vocabulary",
		number, a, b);
}

static size_t longest_string(json_t *vocab, const json_t *merges)
{
	size_t longest = 0;
	const char *token;
	json_t *value;

	json_object_foreach(vocab, token, value)
	{
		if (strlen(token) > longest)
			longest = strlen(token);
	}
	for (size_t i = 0; i < json_array_size(merges); i++) {
		const json_t *merge = json_array_get(merges, i);
		size_t bytes = json_string_length(merge) +
			       json_string_length(json_array_get(merge, 0)) +
			       json_string_length(json_array_get(merge, 1));
		if (bytes > longest)
			longest = bytes;
	}
	return longest;
}

/* ---- the model ---- */

/* What changes the algorithm: byte_fallback makes it one of characters; the rest no model uses. */
static int check_options(struct tokenizer_json *l, const json_t *model)
{
	static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
	const json_t *dropout = json_object_get(model, "dropout");
	bool fuse_unk;
	int rc = tokenizer_flag(l, model, "byte_fallback", false, &l->t->bpe.by_char);

	if (rc == 0)
		rc = tokenizer_flag(l, model, "fuse_unk", false, &fuse_unk);
	if (rc != 0)
		return rc;
	/* With all byte tokens there, nothing is ever unknown. */
	if (fuse_unk && !l->t->bpe.by_char)
		return tokenizer_refuse(l, "a model with fuse_unk is not supported");
	for (size_t i = 0; i < sizeof(affixes) / sizeof(affixes[0]); i++) {
		const json_t *value = json_object_get(model, affixes[i]);
		if (value && !json_is_null(value) &&
		    !(json_is_string(value) && !json_string_length(value)))
			return tokenizer_refuse(l, "a model with %s is not supported", affixes[i]);
	}
	if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
		return tokenizer_refuse(l, "a model with dropout is not supported");
	return 0;
}

static int check_model(struct tokenizer_json *l, const json_t *model)
{
	const char *type = tokenizer_step(model);

	if (!json_is_object(model))
		return tokenizer_refuse(l, "there is no model");
	/* Files of the first years do not name the type; a list of merges makes them BPE. */
	if (type[0] ? strcmp(type, "BPE") != 0 : json_object_get(model, "type") != NULL)
		return tokenizer_refuse(l, "the model type \"%.40s\" is not supported; only BPE is",
					type);
	if (!json_is_object(json_object_get(model, "vocab")))
		return tokenizer_refuse(l, "the model has no vocab");
	if (!json_is_array(json_object_get(model, "merges")))
		return tokenizer_refuse(l, "the model has no list of merges");
	return check_options(l, model);
}

static int read_model(struct tokenizer_json *l, const json_t *model, const json_t *added)
{
	json_t *vocab = json_object_get(model, "vocab");
	const json_t *merges = json_object_get(model, "merges");
	const json_t *ranks = json_object_get(model, "ranks");
	size_t n = json_array_size(merges);
	bool by_char = l->t->bpe.by_char;
	char *scratch;
	int size, rc = count_ids(l, vocab, added, &size);

	if (rc != 0)
		return rc;
	scratch = malloc(longest_string(vocab, merges) + 1);
	if (!scratch || bpe_init(&l->t->bpe, size, n) != 0)
		rc = no_memory(l);
	if (rc == 0)
		rc = tokenizer_flag(l, model, "ignore_merges", false, &l->t->bpe.ignore_merges);
	l->t->bpe.by_char = by_char;
	if (rc == 0)
		rc = read_added(l, added, vocab);
	if (rc == 0)
		rc = read_vocab(l, vocab, scratch);
	for (size_t i = 0; rc == 0 && i < n; i++) {
		uint32_t rank;
		rc = merge_rank(l, ranks, i, &rank);
		if (rc == 0)
			rc = read_merge(l, json_array_get(merges, i), i, rank, vocab, scratch);
	}
	free(scratch);
	return rc;
}

static int load(struct tokenizer_json *l)
{
	const json_t *model, *added;
	int rc = parse_file(l);

	if (rc != 0)
		return rc;
	model = json_object_get(l->root, "model");
	added = json_object_get(l->root, "added_tokens");
	rc = check_model(l, model);
	if (rc == 0 && added && !json_is_null(added) && !json_is_array(added))
		rc = tokenizer_refuse(l, "added_tokens is not a list");
	if (rc == 0)
		rc = tokenizer_read_pipeline(l);
	if (rc == 0)
		rc = read_model(l, model, added);
	return rc == 0 ? tokenizer_read_post_processor(l) : rc;
}

int tokenizer_load(const char *path, struct tokenizer **out, char *why)
{
	struct tokenizer_json l = { .path = path, .why = why };
	int rc;

	*out = NULL;
	l.t = calloc(1, sizeof(*l.t));
	rc = l.t ? load(&l) : no_memory(&l);
	json_decref(l.root);
	/* The JSON takes up to ten times what remains, in small parts that the C library would
	 * keep. */
	malloc_trim(0);
	if (rc != 0) {
		tokenizer_free(l.t);
		return rc;
	}
	*out = l.t;
	return 0;
}
