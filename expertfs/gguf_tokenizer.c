/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer.json from GGUF metadata: see gguf_tokenizer.h.
 */
#include "expertfs/gguf_tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf_pre.h"

/* Rows of the embedding that readers take, and bytes of a piece that is cut in every way: real
 * vocabularies have up to 262,144 and 93. */
#define TOKENS_MAX (1 << 22)
#define PIECE_MAX  512

/* Bytes of the text. Pieces that are made up can be cut in so many ways that some megabytes of them
 * would become gigabytes of merges. A quarter of what the engine reads. */
#define TEXT_MAX (64 << 20)

enum token_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct writer {
	const struct gguf_tokenizer *g;
	const struct gguf_pre *pre; /* NULL for SentencePiece */
	json_t *ids;                /* of what is in the vocabulary, by text */
	FILE *out;
	char *why;
};

static int no_memory(const struct writer *w)
{
	return fail(w->why, ENOMEM, "out of memory for tokenizer.json");
}

static int refuse_text(const struct writer *w, const char *what, size_t number)
{
	return fail(w->why, EINVAL, "%s number %zu of the tokenizer is no UTF-8 text", what,
		    number);
}

/* A string of the file in quotes. what and number name it if it is no text. */
static int put(const struct writer *w, struct gguf_tokenizer_text s, const char *what,
	       size_t number)
{
	json_t *v = memchr(s.at, 0, s.bytes) ? NULL : json_stringn(s.at, s.bytes);

	if (!v)
		return refuse_text(w, what, number);
	if (ftello(w->out) > TEXT_MAX) {
		json_decref(v);
		return fail(w->why, EINVAL, "tokenizer.json would be longer than %d MiB",
			    TEXT_MAX >> 20);
	}
	int bad = json_dumpf(v, w->out, JSON_ENCODE_ANY);
	json_decref(v);
	return bad ? no_memory(w) : 0;
}

/* The same of a constant. */
static int put_constant(const struct writer *w, const char *s)
{
	return put(w, (struct gguf_tokenizer_text){ s, strlen(s) }, "text", 0);
}

/* What SentencePiece has for a space. */
#define SPACE "\xE2\x96\x81"

/* A user-defined token of SentencePiece with spaces, such as a run of them, is a piece like others: text
 * that holds spaces is never its literal text, but is merged into it. */
static bool is_piece(const struct gguf_tokenizer *g, size_t id)
{
	return strcmp(g->model, "llama") == 0 &&
	       memmem(g->token[id].at, g->token[id].bytes, SPACE, strlen(SPACE));
}

static enum token_type type_of(const struct gguf_tokenizer *g, size_t id)
{
	if (!g->type)
		return NORMAL;
	if (g->type[id] == USER_DEFINED && is_piece(g, id))
		return NORMAL;
	return g->type[id] >= NORMAL && g->type[id] <= BYTE ? (enum token_type)g->type[id] : UNUSED;
}

static bool is_added(enum token_type type)
{
	return type == UNKNOWN || type == CONTROL || type == USER_DEFINED;
}

/* ---- vocabulary ---- */

static const char *added_flags(enum token_type type)
{
	return type == USER_DEFINED ? ", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
				      "false, \"normalized\": false, \"special\": false}"
				    : ", \"single_word\": false, \"lstrip\": false, \"rstrip\": "
				      "false, \"normalized\": false, \"special\": true}";
}

/* A token whose text (key, with a NUL) no lower id has. */
static int put_token(const struct writer *w, size_t id, bool added, const char *key)
{
	int rc;

	if (added)
		fprintf(w->out, "{\"id\": %zu, \"content\": ", id);
	rc = put(w, w->g->token[id], "token", id);
	if (added)
		fputs(added_flags(type_of(w->g, id)), w->out);
	else
		fprintf(w->out, ": %zu", id);
	if (rc == 0 && json_object_set_new(w->ids, key, json_integer((json_int_t)id)) != 0)
		rc = no_memory(w);
	return rc;
}

/* Every token by its text, except unused ones and those that a lower id has already: readers know
 * one id for a text. */
static int put_tokens(const struct writer *w, bool added)
{
	const char *comma = "";
	int rc = 0;

	for (size_t id = 0; rc == 0 && id < w->g->tokens; id++) {
		struct gguf_tokenizer_text s = w->g->token[id];
		enum token_type type = type_of(w->g, id);
		if (type == UNUSED || is_added(type) != added || !s.bytes)
			continue;
		char *key = strndup(s.at, s.bytes);
		if (!key)
			return no_memory(w);
		if (strlen(key) != s.bytes) {
			rc = refuse_text(w, "token", id);
		} else if (!json_object_get(w->ids, key)) {
			fputs(comma, w->out);
			comma = ",\n";
			rc = put_token(w, id, added, key);
		}
		free(key);
	}
	return rc;
}

/* ---- merges of SentencePiece ---- */

struct piece {
	size_t id;
	float score;
};

static int by_score(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* The id of a piece that merging may start from or lead to, or -1. At most PIECE_MAX bytes. */
static json_int_t piece_id(const struct writer *w, const char *s, size_t n)
{
	char key[PIECE_MAX + 1];

	memcpy(key, s, n);
	key[n] = '\0';
	const json_t *id = json_object_get(w->ids, key);
	return id && type_of(w->g, (size_t)json_integer_value(id)) == NORMAL
		       ? json_integer_value(id)
		       : -1;
}

static size_t char_bytes(const char *s)
{
	unsigned char lead = (unsigned char)*s;

	return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* SentencePiece starts from all characters, the library only from those that are pieces. No known
 * vocabulary has a piece with a character that is none. */
static int check_characters(const struct writer *w, const struct piece *p)
{
	struct gguf_tokenizer_text s = w->g->token[p->id];

	for (size_t i = 0; i < s.bytes; i += char_bytes(s.at + i))
		if (piece_id(w, s.at + i, char_bytes(s.at + i)) < 0)
			return fail(w->why, EINVAL,
				    "token number %zu of the tokenizer has a character that is no "
				    "token itself, which is not supported",
				    p->id);
	return 0;
}

/* Each way to cut the piece in two. ranks: only their ranks. *comma comes in front of the next. */
static int put_cuts(const struct writer *w, const struct piece *p, size_t rank, bool ranks,
		    const char **comma)
{
	struct gguf_tokenizer_text s = w->g->token[p->id];
	int rc = 0;

	for (size_t i = char_bytes(s.at); rc == 0 && i < s.bytes; i += char_bytes(s.at + i)) {
		if (piece_id(w, s.at, i) < 0 || piece_id(w, s.at + i, s.bytes - i) < 0)
			continue;
		fputs(*comma, w->out);
		*comma = ranks ? ", " : ",\n";
		if (ranks) {
			fprintf(w->out, "%zu", rank);
			continue;
		}
		fputc('[', w->out);
		rc = put(w, (struct gguf_tokenizer_text){ s.at, i }, "token", p->id);
		fputs(", ", w->out);
		if (rc == 0)
			rc = put(w, (struct gguf_tokenizer_text){ s.at + i, s.bytes - i }, "token",
				 p->id);
		fputc(']', w->out);
	}
	return rc;
}

static int put_all_cuts(const struct writer *w, const struct piece *piece, size_t n, bool ranks)
{
	const char *comma = "";
	size_t rank = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < n; i++) {
		rank += i > 0 && piece[i].score != piece[i - 1].score;
		rc = put_cuts(w, &piece[i], rank, ranks, &comma);
	}
	return rc;
}

/* The normal tokens with their scores; *n of them. */
static int list_pieces(const struct writer *w, struct piece *piece, size_t *n)
{
	const struct gguf_tokenizer *g = w->g;

	for (size_t id = 0; id < g->tokens; id++) {
		if (type_of(g, id) != NORMAL || !g->token[id].bytes)
			continue;
		if (!isfinite(g->score[id]))
			return fail(w->why, EINVAL,
				    "token number %zu of the tokenizer has no score", id);
		if (g->token[id].bytes > PIECE_MAX)
			return fail(w->why, EINVAL,
				    "token number %zu of the tokenizer has %zu bytes, more than %d",
				    id, g->token[id].bytes, PIECE_MAX);
		/* Not those that share a text with a lower id. */
		if (piece_id(w, g->token[id].at, g->token[id].bytes) == (json_int_t)id)
			piece[(*n)++] = (struct piece){ id, g->score[id] };
	}
	return 0;
}

static int put_scored_merges(const struct writer *w)
{
	struct piece *piece = calloc(w->g->tokens, sizeof(*piece));
	size_t n = 0;

	if (!piece)
		return no_memory(w);
	int rc = list_pieces(w, piece, &n);
	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = check_characters(w, &piece[i]);
	if (rc == 0) {
		qsort(piece, n, sizeof(*piece), by_score);
		rc = put_all_cuts(w, piece, n, false);
		fputs("],\n\"ranks\": [", w->out);
	}
	if (rc == 0)
		rc = put_all_cuts(w, piece, n, true);
	free(piece);
	return rc;
}

static int put_listed_merges(const struct writer *w)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < w->g->merges; i++) {
		fputs(i ? ",\n" : "", w->out);
		rc = put(w, w->g->merge[i], "merge", i);
	}
	return rc;
}

/* ---- around the model ---- */

static int put_splits(const struct writer *w)
{
	int rc = 0;

	fputs("\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n", w->out);
	for (int i = 0; rc == 0 && i < GGUF_PRE_STEPS && w->pre->step[i]; i++) {
		fputs("{\"type\": \"Split\", \"pattern\": {\"Regex\": ", w->out);
		rc = put_constant(w, w->pre->step[i]);
		fputs("}, \"behavior\": \"Isolated\", \"invert\": false},\n", w->out);
	}
	fputs("{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
	      "\"use_regex\": false}]},\n"
	      "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
	      "\"trim_offsets\": true, \"use_regex\": true},\n",
	      w->out);
	return rc;
}

/* U+2581 as JSON may spell it. */
#define SPACE_MARK "\"\\u2581\""

static int put_steps(const struct writer *w)
{
	if (w->pre) {
		fprintf(w->out, "\"normalizer\": %s,\n",
			w->pre->nfc ? "{\"type\": \"NFC\"}" : "null");
		return put_splits(w);
	}
	fprintf(w->out,
		"\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [%s"
		"{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": " SPACE_MARK
		"}]},\n\"pre_tokenizer\": null,\n"
		"\"decoder\": {\"type\": \"Sequence\", \"decoders\": ["
		"{\"type\": \"Replace\", \"pattern\": {\"String\": " SPACE_MARK
		"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}%s]},\n",
		w->g->add_space_prefix == 0 ? ""
					    : "{\"type\": \"Prepend\", \"prepend\": " SPACE_MARK
					      "}, ",
		w->g->add_space_prefix == 0
			? ""
			: ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}");
	return 0;
}

static int check_id(const struct writer *w, const char *what, int64_t id)
{
	if (id < 0 || (uint64_t)id >= w->g->tokens || !w->g->token[id].bytes ||
	    type_of(w->g, (size_t)id) == UNUSED)
		return fail(w->why, EINVAL,
			    "the tokenizer's %s token is to be added, but there is none", what);
	return 0;
}

static int put_special_item(const struct writer *w, int64_t id)
{
	fputs("{\"SpecialToken\": {\"id\": ", w->out);
	int rc = put(w, w->g->token[id], "token", (size_t)id);
	fputs(", \"type_id\": 0}}", w->out);
	return rc;
}

static int put_special_ids(const struct writer *w, int64_t id)
{
	int rc = put(w, w->g->token[id], "token", (size_t)id);

	fputs(": {\"id\": ", w->out);
	if (rc == 0)
		rc = put(w, w->g->token[id], "token", (size_t)id);
	fprintf(w->out, ", \"ids\": [%lld], \"tokens\": [", (long long)id);
	if (rc == 0)
		rc = put(w, w->g->token[id], "token", (size_t)id);
	fputs("]}", w->out);
	return rc;
}

/* What is put around a text that stands for itself. */
static int put_post_processor(const struct writer *w)
{
	const struct gguf_tokenizer *g = w->g;
	bool bos_default = !w->pre || w->pre->add_bos;
	bool bos = g->add_bos == GGUF_TOKENIZER_ABSENT ? bos_default : g->add_bos;
	bool eos = g->add_eos == 1;
	int rc = 0;

	if (w->pre && w->pre->no_bos)
		bos = false;
	if (!bos && !eos) {
		fputs("\"post_processor\": null,\n", w->out);
		return 0;
	}
	if (bos)
		rc = check_id(w, "beginning", g->bos);
	if (rc == 0 && eos)
		rc = check_id(w, "end", g->eos);
	if (rc != 0)
		return rc;
	fputs("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [", w->out);
	if (bos)
		rc = put_special_item(w, g->bos);
	fprintf(w->out, "%s{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}%s", bos ? ", " : "",
		eos ? ", " : "");
	if (rc == 0 && eos)
		rc = put_special_item(w, g->eos);
	fputs("],\n\"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
	      "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {",
	      w->out);
	if (rc == 0 && bos)
		rc = put_special_ids(w, g->bos);
	if (rc == 0 && eos && !(bos && g->bos == g->eos)) {
		fputs(bos ? ", " : "", w->out);
		rc = put_special_ids(w, g->eos);
	}
	fputs("}},\n", w->out);
	return rc;
}

static int put_model(const struct writer *w)
{
	int rc;

	fprintf(w->out,
		"\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
		"\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
		"\"fuse_unk\": false, \"byte_fallback\": %s, \"ignore_merges\": %s,\n\"vocab\": {",
		w->pre ? "false" : "true", w->pre && w->pre->ignore_merges ? "true" : "false");
	rc = put_tokens(w, false);
	fputs("},\n\"merges\": [", w->out);
	if (rc == 0)
		rc = w->pre ? put_listed_merges(w) : put_scored_merges(w);
	fputs("]}", w->out);
	return rc;
}

static int put_file(const struct writer *w)
{
	int rc;

	fputs("{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
	      "\"added_tokens\": [",
	      w->out);
	rc = put_tokens(w, true);
	fputs("],\n", w->out);
	if (rc == 0)
		rc = put_steps(w);
	if (rc == 0)
		rc = put_post_processor(w);
	if (rc == 0)
		rc = put_model(w);
	fputs("}\n", w->out);
	return rc;
}

/* What kind it is, and whether the arrays are there. */
static int check(struct writer *w)
{
	const struct gguf_tokenizer *g = w->g;

	if (g->tokens == 0 || g->tokens > TOKENS_MAX)
		return fail(w->why, EINVAL, "the tokenizer has %zu tokens, not 1 to %d", g->tokens,
			    TOKENS_MAX);
	if (strcmp(g->model, "llama") == 0) {
		if (!g->score || !g->type)
			return fail(w->why, EINVAL, "the tokenizer has no %s",
				    g->score ? "types of tokens" : "scores");
		return 0;
	}
	if (strcmp(g->model, "gpt2") != 0)
		return fail(w->why, EINVAL,
			    "the tokenizer model \"%.40s\" is not supported; gpt2 and llama are",
			    g->model);
	w->pre = gguf_pre_find(g->pre ? g->pre : "default");
	if (!w->pre)
		return fail(w->why, EINVAL, "the tokenizer's way to split, \"%.40s\", is not known",
			    g->pre);
	if (!g->merges)
		return fail(w->why, EINVAL, "the tokenizer has no merges");
	return 0;
}

int gguf_tokenizer_json(const struct gguf_tokenizer *g, char **json, size_t *bytes, char *why)
{
	struct writer w = { .g = g, .why = why };
	int rc = check(&w);

	*json = NULL;
	if (rc != 0)
		return rc;
	w.ids = json_object();
	w.out = open_memstream(json, bytes);
	if (!w.ids || !w.out) {
		json_decref(w.ids);
		if (w.out)
			fclose(w.out);
		rc = no_memory(&w);
	} else {
		rc = put_file(&w);
		bool bad = ferror(w.out);
		if ((fclose(w.out) != 0 || bad) && rc == 0)
			rc = no_memory(&w);
		json_decref(w.ids);
	}
	if (rc != 0) {
		free(*json);
		*json = NULL;
	}
	return rc;
}
