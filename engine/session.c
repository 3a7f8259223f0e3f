/* SPDX-License-Identifier: Apache-2.0
 *
 * A context in a file that is appended to, and cut where the context has left it.
 */
#include "engine/session.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/bytes.h"
#include "engine/fail.h"

static const char magic[8] = { 'C', 'O', 'L', 'I', 'K', 'V', '1', '\n' };

struct head {
	char magic[8];
	uint32_t kv, activations, layers, zero;
	uint64_t row_bytes, model, zeros[2], check;
};

struct block {
	uint64_t check;
	uint32_t first, count, tie, zero;
	uint64_t bytes;
};

_Static_assert(sizeof(struct head) == 64 && sizeof(struct block) == 32, "the format");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format");

/* The end of a block, or of the head. */
struct mark {
	int keep;            /* tokens that the file has up to here and does not take back later */
	uint64_t end, chain; /* bytes of the file; checksum of the block */
};

struct kv_session {
	char *path;
	int fd;
	const struct modelfile *file;
	struct head head; /* of the file, or of the one that will be written */
	uint64_t size;    /* of the file */
	uint64_t good;    /* bytes of it that hold; 0: not even a head */
	uint64_t chain;   /* checksum of the last block that holds, or of the head */
	/* What the file says. */
	int32_t *ids;
	int n, room, first_tie;
	/* Where it may be cut, keep and end ascending. The last one is s->good. */
	struct mark *mark;
	int marks, marks_room;
	/* And the context. */
	struct engine *e;
	int same;      /* so many tokens are known to be the same in both */
	bool to_prove; /* token proof_at was not yet compared with the file's */
	int proof_at;
	char *proof, *again; /* its row in the file; room for another */
	bool other;          /* it was not the same */
	int per_block;       /* tokens of a block at most */
	char *buf;           /* a block */
};

static size_t block_room(size_t row_bytes, int *tokens)
{
	size_t one = sizeof(int32_t) + row_bytes;

	*tokens = one < SESSION_BLOCK ? (int)(SESSION_BLOCK / one) : 1;
	return sizeof(struct block) + (size_t)*tokens * one;
}

size_t kv_session_bytes(size_t row_bytes, int ctx)
{
	int tokens;

	/* A mark for each token, if each was saved on its own. */
	return block_room(row_bytes, &tokens) + 2 * row_bytes +
	       (size_t)ctx * (sizeof(int32_t) + sizeof(struct mark));
}

/* pwrite() of all n bytes. */
static int write_all(int fd, const void *from, size_t n, uint64_t at)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = pwrite(fd, (const char *)from + done, n - done, (off_t)(at + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENOSPC;
		done += (size_t)got;
	}
	return 0;
}

static int cannot_read(const struct kv_session *s, int r, char *why)
{
	return fail(why, -r, "the session %s cannot be read: %s", s->path, strerror(-r));
}

static uint64_t head_check(const struct head *h)
{
	return XXH3_64bits(h, offsetof(struct head, check));
}

static void describe(struct kv_session *s, const struct engine_options *o)
{
	memcpy(s->head.magic, magic, sizeof(magic));
	s->head.kv = o->kv == KV_BF16;
	s->head.activations = o->float_activations ? 32 : 8;
	s->head.model = s->file->hash;
}

/* The file's head against what this run's would be. */
static int compare_heads(struct kv_session *s, const struct head *h, char *why)
{
	if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->check != head_check(h))
		return fail(why, EINVAL,
			    "%s is no session of coli-engine, or its beginning is damaged",
			    s->path);
	if (h->model != s->head.model)
		return fail(why, EINVAL, "the session %s belongs to another model than that in %s",
			    s->path, s->file->dir);
	if (h->kv != s->head.kv)
		return fail(why, EINVAL, "the session %s was made with --kv %s", s->path,
			    h->kv ? "bf16" : "f32");
	if (h->activations != s->head.activations)
		return fail(why, EINVAL, "the session %s was made with --activations %u", s->path,
			    h->activations);
	s->head = *h;
	s->good = sizeof(*h);
	s->chain = h->check;
	return 0;
}

static int read_head(struct kv_session *s, char *why)
{
	struct head h = { 0 };
	struct stat st;

	if (fstat(s->fd, &st) != 0)
		return cannot_read(s, -errno, why);
	if (!S_ISREG(st.st_mode))
		return fail(why, EINVAL, "%s is not a plain file", s->path);
	s->size = (uint64_t)st.st_size;
	size_t n = s->size < sizeof(h) ? (size_t)s->size : sizeof(h);
	int r = read_at(s->fd, &h, n, 0);
	if (r)
		return cannot_read(s, r, why);
	/* Killed while it wrote the head: as good as empty. */
	if (n < sizeof(h) && memcmp(&h, magic, n < sizeof(magic) ? n : sizeof(magic)) == 0)
		return 0;
	return compare_heads(s, &h, why);
}

int kv_session_open(const char *path, const struct modelfile *file, const struct engine_options *o,
		    struct kv_session **out, char *why)
{
	struct kv_session *s = calloc(1, sizeof(*s));

	*out = NULL;
	if (!s || !(s->path = strdup(path))) {
		free(s);
		return fail(why, ENOMEM, "no memory for the session %s", path);
	}
	s->file = file;
	s->first_tie = INT_MAX;
	s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
	int r = 0;
	if (s->fd < 0)
		r = fail(why, errno, "the session %s cannot be opened: %s", path, strerror(errno));
	else if (flock(s->fd, LOCK_EX | LOCK_NB) != 0)
		r = errno == EWOULDBLOCK
			    ? fail(why, EBUSY, "the session %s is in use by another process", path)
			    : fail(why, errno, "the session %s cannot be locked: %s", path,
				   strerror(errno));
	if (!r) {
		describe(s, o);
		r = read_head(s, why);
	}
	if (r)
		kv_session_close(s);
	else
		*out = s;
	return r;
}

void kv_session_close(struct kv_session *s)
{
	if (!s)
		return;
	if (s->fd >= 0)
		close(s->fd);
	free(s->path);
	free(s->ids);
	free(s->mark);
	free(s->proof);
	free(s->buf);
	free(s);
}

/* -- Where it may be cut ------------------------------------------------------------------------ */

/* Room for another. */
static int make_room_for_mark(struct kv_session *s)
{
	if (s->marks < s->marks_room)
		return 0;
	int room = 2 * s->marks_room + 64;
	struct mark *more = realloc(s->mark, (size_t)room * sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->mark = more;
	s->marks_room = room;
	return 0;
}

/* A block, or the head, ends at s->good; the context has s->n tokens there, of which the first `first`
 * are from before. So no end before it keeps more than these; and of those that keep as many, the
 * first one does. There is room. */
static void set_mark(struct kv_session *s, int first)
{
	int n = s->marks;

	while (n > 1 && s->mark[n - 2].keep >= first)
		n--;
	if (n > 0 && s->mark[n - 1].keep > first)
		s->mark[n - 1].keep = first;
	s->mark[n] = (struct mark){ s->n, s->good, s->chain };
	s->marks = n + 1;
}

/* What comes next follows the first end that keeps what context and file share, s->same tokens;
 * append() cuts off the rest. Tokens that are in the file behind those are taken back by the block that
 * comes next. */
static void cut_back(struct kv_session *s)
{
	while (s->marks > 1 && s->mark[s->marks - 2].keep >= s->same)
		s->marks--;
	s->good = s->mark[s->marks - 1].end;
	s->chain = s->mark[s->marks - 1].chain;
	s->n = s->same;
}

/* -- Reading -------------------------------------------------------------------------------------- */

/* The block at s->good, into s->buf. 1, or 0 if there is none that holds, or negative errno. */
static int read_block(struct kv_session *s)
{
	struct block *b = (struct block *)(void *)s->buf;
	uint64_t left = s->size - s->good, max = (uint64_t)s->file->config.max_positions;
	uint64_t one = sizeof(int32_t) + s->head.row_bytes;

	if (left < sizeof(*b))
		return 0;
	int r = read_at(s->fd, b, sizeof(*b), s->good);
	if (r)
		return r;
	if (b->count < 1 || b->count > (uint32_t)s->per_block || b->first > (uint32_t)s->n ||
	    (uint64_t)b->first + b->count > max || b->tie > INT_MAX || b->zero ||
	    b->bytes != b->count * one || b->bytes > left - sizeof(*b))
		return 0;
	r = read_at(s->fd, b + 1, (size_t)b->bytes, s->good + sizeof(*b));
	if (r)
		return r;
	size_t n = sizeof(*b) + (size_t)b->bytes - sizeof(b->check);
	return XXH3_64bits_withSeed(s->buf + sizeof(b->check), n, s->chain) == b->check;
}

static int make_room(struct kv_session *s, int n)
{
	if (n <= s->room)
		return 0;
	int room = n > INT_MAX / 2 ? INT_MAX : 2 * n;
	int32_t *more = realloc(s->ids, (size_t)room * sizeof(*more));
	if (!more)
		return -ENOMEM;
	s->ids = more;
	s->room = room;
	return 0;
}

/* The block in s->buf is in the file, up to s->good: what it says is what is known. */
static void take_block(struct kv_session *s)
{
	const struct block *b = (const struct block *)(const void *)s->buf;

	memcpy(s->ids + b->first, b + 1, b->count * sizeof(*s->ids));
	s->n = (int)(b->first + b->count);
	s->first_tie = (int)b->tie;
	s->chain = b->check;
	set_mark(s, (int)b->first);
}

/* The rows of a block that was read go to their places in the context at once: how much of the file
 * is the prompt's is seen at the end, and rows behind that are written over before anything reads
 * them. */
static void put_rows(struct kv_session *s)
{
	const struct block *b = (const struct block *)(const void *)s->buf;
	int first = (int)b->first, count = (int)b->count, fit = engine_ctx(s->e) - first;
	const int32_t *ids = (const int32_t *)(const void *)(b + 1);

	if (fit > 0)
		engine_put_rows(s->e, first, fit < count ? fit : count, count, ids + count);
}

static int read_blocks(struct kv_session *s, char *why)
{
	const struct block *b = (const struct block *)(const void *)s->buf;
	int r;

	set_mark(s, 0);
	while ((r = read_block(s)) == 1) {
		if (make_room(s, (int)(b->first + b->count)) || make_room_for_mark(s))
			return fail(why, ENOMEM, "no memory for the tokens of the session %s",
				    s->path);
		s->good += sizeof(*b) + b->bytes;
		take_block(s);
		put_rows(s);
	}
	return r ? cannot_read(s, r, why) : 0;
}

/* Memory, and whether rows are of this run's kind. */
static int prepare(struct kv_session *s, struct engine *e, char *why)
{
	struct engine_row row = engine_row(e);
	size_t room = block_room(row.bytes, &s->per_block);

	s->e = e;
	if (s->good && (s->head.row_bytes != row.bytes || s->head.layers != (uint32_t)row.layers))
		return fail(
			why, EINVAL,
			"the session %s keeps %llu bytes of %u layers a token, this run %zu of %d",
			s->path, (unsigned long long)s->head.row_bytes, s->head.layers, row.bytes,
			row.layers);
	s->head.row_bytes = row.bytes;
	s->head.layers = (uint32_t)row.layers;
	s->head.check = head_check(&s->head);
	s->buf = malloc(room);
	s->proof = malloc(2 * row.bytes);
	if (!s->buf || !s->proof || make_room_for_mark(s))
		return fail(why, ENOMEM, "no memory for %zu bytes of the session %s", room,
			    s->path);
	s->again = s->proof + row.bytes;
	return 0;
}

int kv_session_restore(struct kv_session *s, struct engine *e, const int32_t *prompt, int n,
		       char *why)
{
	int common = 0, vocab = s->file->config.vocab, r = prepare(s, e, why);

	if (!r && s->good)
		r = read_blocks(s, why);
	if (r)
		return r;
	/* What is no token must reach engine_feed(), which refuses it. */
	while (common < n && common < s->n && s->ids[common] == prompt[common] &&
	       prompt[common] >= 0 && prompt[common] < vocab)
		common++;
	s->same = common > 0 ? common - 1 : 0;
	engine_resume(e, prompt, s->same, s->first_tie);
	/* Rows behind a tie may be computed anew for another length, and differ. */
	s->to_prove = common > 0 && s->same < s->first_tie;
	if (s->to_prove)
		engine_get_rows(e, s->same, 1, s->proof);
	s->proof_at = s->same;
	return 0;
}

uint64_t kv_session_torn(const struct kv_session *s)
{
	return s->size - s->good;
}

/* -- Writing -------------------------------------------------------------------------------------- */

static int prove(struct kv_session *s, char *why)
{
	if (s->to_prove && engine_position(s->e) > s->proof_at) {
		engine_get_rows(s->e, s->proof_at, 1, s->again);
		s->other = memcmp(s->proof, s->again, s->head.row_bytes) != 0;
		s->to_prove = false;
	}
	if (!s->other)
		return 0;
	return fail(
		why, ESTALE,
		"the session %s was computed with other experts, or on a processor or by a version "
		"of coli-engine that rounds otherwise: what it holds is not what this run computes",
		s->path);
}

/* bytes at the end of what is good. A write that fails takes back what it did. */
static int append(struct kv_session *s, const void *from, size_t bytes, char *why)
{
	char text[BYTES_TEXT];
	int r = 0;

	if (s->size != s->good && ftruncate(s->fd, (off_t)s->good) != 0)
		r = -errno;
	if (!r) {
		s->size = s->good;
		r = write_all(s->fd, from, bytes, s->good);
	}
	if (!r) {
		s->size = s->good += bytes;
		return 0;
	}
	if (ftruncate(s->fd, (off_t)s->good) != 0)
		s->size = s->good + bytes; /* the next start leaves it out */
	return fail(why, -r, "%s cannot be appended to the session %s: %s", bytes_text(bytes, text),
		    s->path, strerror(-r));
}

/* The context's tokens first .. first + count - 1. */
static int append_block(struct kv_session *s, int first, int count, char *why)
{
	struct block *b = (struct block *)(void *)s->buf;
	int32_t *ids = (int32_t *)(void *)(b + 1);

	if (make_room(s, first + count) || make_room_for_mark(s))
		return fail(why, ENOMEM, "no memory for the tokens of the session %s", s->path);
	*b = (struct block){ .first = (uint32_t)first,
			     .count = (uint32_t)count,
			     .tie = (uint32_t)engine_first_tie(s->e),
			     .bytes = (uint64_t)count * (sizeof(*ids) + s->head.row_bytes) };
	memcpy(ids, engine_ids(s->e) + first, (size_t)count * sizeof(*ids));
	engine_get_rows(s->e, first, count, ids + count);
	size_t all = sizeof(*b) + (size_t)b->bytes;
	b->check =
		XXH3_64bits_withSeed(s->buf + sizeof(b->check), all - sizeof(b->check), s->chain);
	int r = append(s, b, all, why);
	if (r)
		return r;
	take_block(s);
	s->same = s->n;
	return 0;
}

static int append_head(struct kv_session *s, char *why)
{
	int r = append(s, &s->head, sizeof(s->head), why);

	if (r)
		return r;
	s->chain = s->head.check;
	set_mark(s, 0);
	return 0;
}

int kv_session_save(struct kv_session *s, bool sync, char *why)
{
	const int32_t *ids = engine_ids(s->e);
	int settled = engine_settled(s->e), r = prove(s, why);

	if (r)
		return r;
	while (s->same < settled && s->same < s->n && ids[s->same] == s->ids[s->same])
		s->same++;
	if (s->same < settled && !s->good)
		r = append_head(s, why);
	else if (s->same < settled)
		cut_back(s);
	while (!r && s->same < settled) {
		int count = settled - s->same;
		r = append_block(s, s->same, count < s->per_block ? count : s->per_block, why);
	}
	if (!r && sync && fdatasync(s->fd) != 0)
		r = fail(why, errno, "the session %s cannot be written to its drive: %s", s->path,
			 strerror(errno));
	return r;
}
