/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions on a tiny random model: what is computed from a restored context is bit for bit what a
 * fresh one gives, wherever the prompt leaves the session; a file that was cut at any byte, or has
 * any byte of it changed, restores to what is before; where a prompt leaves the session the file is cut,
 * and at no byte of what is written then is anything lost that both share; what is not this run's is
 * refused and left as it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "engine/session.h"
#include "tests/unit/tiny_model.h"

#define TOKENS 50
#define WHY    1024
#define HEAD   64
#define BLOCK  32 /* bytes of a block in front of its token ids */
/* f32, width 24, 4 layers, and keys of 16 on two of them. */
#define ROW ((size_t)(4 * 24 + 2 * 16) * 4)

/* Random models whose indexers have no tie in the prompts here; and whose first one is at token 15. */
#define NO_TIES    11
#define TIED_AT_15 70

#define F32 ((struct wfmt){ W_F32, 0 })

struct made {
	struct tiny tiny;
	struct modelfile *file;
	char path[300];
	struct engine_options options;
	struct engine *e;
	/* A session, in whose bytes a test meddles: of make_three_blocks(). */
	char *data;
	size_t n;
};

static int32_t ids[TOKENS];

static void make(struct made *m, struct wfmt fmt, uint64_t seed)
{
	char why[WHY] = "";

	*m = (struct made){ .options = { .threads = 1, .ctx = TINY_CTX } };
	tiny_make(&m->tiny, fmt, seed);
	if (modelfile_load(m->tiny.dir, &m->file, why))
		fail_msg("%s", why);
	snprintf(m->path, sizeof(m->path), "%s/session", m->tiny.dir);
	for (int i = 0; i < TOKENS; i++)
		ids[i] = (i * 29 + i * i) % TINY_VOCAB;
}

static void drop(struct made *m)
{
	free(m->data);
	engine_close(m->e);
	modelfile_free(m->file);
	tiny_remove(&m->tiny);
}

/* With the options that m has now. */
static void open_engine(struct made *m)
{
	char why[WHY] = "";

	engine_close(m->e);
	if (engine_open(m->file, &m->options, &m->e, why))
		fail_msg("%s", why);
}

static void make_opened(struct made *m, struct wfmt fmt, uint64_t seed)
{
	make(m, fmt, seed);
	open_engine(m);
}

static struct kv_session *open_session(const struct made *m)
{
	char why[WHY] = "";
	struct kv_session *s;

	if (kv_session_open(m->path, m->file, &m->options, &s, why))
		fail_msg("%s", why);
	return s;
}

static void feed(const struct made *m, const int32_t *tokens, int n)
{
	char why[WHY] = "";

	if (engine_feed(m->e, tokens, n, why))
		fail_msg("%s", why);
}

static void save(struct kv_session *s)
{
	char why[WHY] = "";

	if (kv_session_save(s, false, why))
		fail_msg("%s", why);
}

static void restore(const struct made *m, struct kv_session *s, const int32_t *prompt, int n)
{
	char why[WHY] = "";

	if (kv_session_restore(s, m->e, prompt, n, why))
		fail_msg("%s", why);
}

static char *read_file(const char *path, size_t *n)
{
	char *data;

	if (read_whole(path, 1 << 24, &data, n))
		fail_msg("%s cannot be read", path);
	return data;
}

static void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* The prompt through a session: restores `want` tokens, saves in pieces of 7; then the logits must be
 * those of a fresh context. */
static void continue_session(const struct made *m, const int32_t *prompt, int n, int want)
{
	float got[TINY_VOCAB], fresh[TINY_VOCAB];
	char why[WHY] = "";
	struct kv_session *s = open_session(m);

	restore(m, s, prompt, n);
	assert_int_equal(engine_position(m->e), want);
	for (int at = want, k; at < n; at += k) {
		k = n - at < 7 ? n - at : 7;
		feed(m, prompt + at, k);
		save(s);
	}
	kv_session_close(s);
	assert_int_equal(engine_logits(m->e, got, why), 0);
	engine_reset(m->e);
	feed(m, prompt, n);
	assert_int_equal(engine_logits(m->e, fresh, why), 0);
	assert_memory_equal(got, fresh, sizeof(got));
}

/* The first tokens of ids, then others. */
static const int32_t *leaving(int common)
{
	static int32_t other[TOKENS];

	for (int i = 0; i < TOKENS; i++)
		other[i] = i < common ? ids[i] : (ids[i] + 1 + i % 3) % TINY_VOCAB;
	return other;
}

static void check_prompts(struct wfmt fmt, uint64_t seed, enum kv_type kv, bool floats)
{
	struct made m;

	make(&m, fmt, seed);
	m.options.kv = kv;
	m.options.float_activations = floats;
	open_engine(&m);
	continue_session(&m, ids, 20, 0);
	continue_session(&m, ids, 20, 19);         /* the same */
	continue_session(&m, ids, 40, 19);         /* longer */
	continue_session(&m, ids, 12, 11);         /* shorter: takes nothing back */
	continue_session(&m, ids, 50, 39);         /* ... as is seen here */
	continue_session(&m, leaving(25), 45, 24); /* leaves it in the middle */
	continue_session(&m, leaving(25), 50, 44);
	continue_session(&m, ids, 50, 24);       /* and back */
	continue_session(&m, leaving(0), 30, 0); /* nothing in common */
	continue_session(&m, ids, 1, 0);
	continue_session(&m, leaving(0), 30, 0);
	drop(&m);
}

static void continues_as_a_fresh_run(void **state)
{
	(void)state;
	check_prompts(F32, NO_TIES, KV_F32, false);
	check_prompts((struct wfmt){ W_Q4, 32 }, NO_TIES, KV_F32, true);
	check_prompts((struct wfmt){ W_Q8, 64 }, NO_TIES, KV_BF16, false);
}

/* What a tie decided is not kept: it may be decided otherwise in a longer context. */
static void ties(void **state)
{
	struct made m;

	(void)state;
	make_opened(&m, F32, TIED_AT_15);
	continue_session(&m, ids, 30, 0);
	assert_int_equal(engine_first_tie(m.e), 15);
	assert_int_equal(engine_settled(m.e), 15);
	continue_session(&m, ids, 40, 14);
	continue_session(&m, leaving(25), 50, 14);
	continue_session(&m, leaving(6), 50, 5);
	drop(&m);
}

/* A smaller context than that the session was made with. */
static void of_a_longer_context(void **state)
{
	struct made m;

	(void)state;
	make_opened(&m, F32, NO_TIES);
	continue_session(&m, ids, 50, 0);
	m.options.ctx = 30;
	open_engine(&m);
	continue_session(&m, ids, 30, 29);
	continue_session(&m, leaving(20), 30, 19);
	drop(&m);
}

/* A file of three blocks of 10, 9 and 1 tokens. */
#define WHOLE 20
static const size_t block_at[] = { HEAD, HEAD + BLOCK + 10 * (4 + ROW),
				   HEAD + 2 * BLOCK + 19 * (4 + ROW),
				   HEAD + 3 * BLOCK + 20 * (4 + ROW) };
static const int block_tokens[] = { 0, 10, 19, 20 };

static void make_three_blocks(struct made *m)
{
	make_opened(m, F32, NO_TIES);
	struct kv_session *s = open_session(m);
	restore(m, s, ids, WHOLE);
	for (int i = 0; i < 3; i++) {
		feed(m, ids + block_tokens[i], block_tokens[i + 1] - block_tokens[i]);
		/* Nothing here is tied, so that all is saved at once. */
		assert_int_equal(engine_settled(m->e), block_tokens[i + 1]);
		save(s);
	}
	kv_session_close(s);
	m->data = read_file(m->path, &m->n);
	assert_int_equal(m->n, block_at[3]);
}

/* A session of this file restores so many tokens, says what it left out, and can be continued. */
static void restores(const struct made *m, int tokens, size_t torn, bool go_on)
{
	struct kv_session *s = open_session(m);
	struct stat st;

	restore(m, s, ids, TOKENS);
	assert_int_equal(engine_position(m->e), tokens ? tokens - 1 : 0);
	assert_int_equal(kv_session_torn(s), torn);
	kv_session_close(s);
	if (!go_on)
		return;
	continue_session(m, ids, 30, tokens ? tokens - 1 : 0);
	assert_int_equal(stat(m->path, &st), 0);
	continue_session(m, ids, 40, 29);
}

/* The number of whole blocks below a size. */
static int blocks_below(size_t size)
{
	int n = 0;

	while (n < 3 && block_at[n + 1] <= size)
		n++;
	return n;
}

static void cut_at_any_byte(void **state)
{
	struct made m;

	(void)state;
	make_three_blocks(&m);
	for (size_t size = 0; size <= m.n; size++) {
		/* Byte by byte through the head and the last two blocks. */
		if (size > HEAD + 100 && size < block_at[1] - 100)
			continue;
		int whole = blocks_below(size);
		write_file(m.path, m.data, size);
		restores(&m, block_tokens[whole], size < HEAD ? size : size - block_at[whole],
			 size % 61 == 0 || size == m.n);
	}
	drop(&m);
}

static size_t size_of(const struct made *m)
{
	struct stat st;

	assert_int_equal(stat(m->path, &st), 0);
	return (size_t)st.st_size;
}

/* So many tokens of the prompt are in the file. */
static void holds(const struct made *m, const int32_t *prompt, int tokens)
{
	struct kv_session *s = open_session(m);

	restore(m, s, prompt, TOKENS);
	assert_int_equal(engine_position(m->e), tokens ? tokens - 1 : 0);
	kv_session_close(s);
}

/* The file of three blocks is left after `common` tokens by a prompt with two more: what stays are the
 * first `whole` of its blocks, then comes one of two tokens. It is written in one piece, so that a
 * process that is killed leaves a beginning of the file, if it has cut it. */
static void leave(const struct made *m, int common, int whole)
{
	const int32_t *other = leaving(common);
	size_t n, kept = block_at[whole];

	write_file(m->path, m->data, m->n);
	struct kv_session *s = open_session(m);
	restore(m, s, other, common + 2);
	feed(m, other + engine_position(m->e), common + 2 - engine_position(m->e));
	assert_int_equal(engine_settled(m->e), common + 2);
	assert_int_equal(size_of(m), m->n); /* not before there is something to write */
	save(s);
	kv_session_close(s);
	char *left = read_file(m->path, &n);
	assert_int_equal(n, kept + BLOCK + 2 * (4 + ROW));
	assert_memory_equal(left, m->data, kept);
	for (size_t size = kept; size <= n; size += size + 97 < n ? 97 : 1) {
		write_file(m->path, left, size);
		holds(m, other, size < n ? common : common + 2);
		if (size % 61 == 0 || size == n)
			continue_session(m, other, 30, size < n ? common - !!common : common + 1);
	}
	/* Nor is more lost of what was there than the blocks that it has left. */
	write_file(m->path, left, n - 1);
	holds(m, ids, block_tokens[whole]);
	write_file(m->path, left, n);
	holds(m, ids, common);
	free(left);
}

static void cut_where_it_is_left(void **state)
{
	struct made m;

	(void)state;
	make_three_blocks(&m);
	leave(&m, 0, 0);
	leave(&m, 6, 1);
	leave(&m, 10, 1);
	leave(&m, 12, 2);
	leave(&m, 19, 2);
	leave(&m, 20, 3);
	drop(&m);
}

/* What should be in a file: its blocks, and the context that they lead to. */
struct book {
	int blocks, first[200], end[200]; /* tokens */
	int n;
	int32_t ids[TOKENS];
};

/* A block is written. Where it leaves the context, the blocks behind the first one that leads to all
 * that is shared are gone. */
static void enter(struct book *b, int first, int end)
{
	int stay = b->blocks;

	for (int i = b->blocks; i >= 0 && first < b->n; i--) {
		int keep = i ? b->end[i - 1] : 0;
		for (int k = i; k < b->blocks; k++)
			keep = b->first[k] < keep ? b->first[k] : keep;
		stay = keep >= first ? i : stay;
	}
	b->first[stay] = first;
	b->end[stay] = end;
	b->blocks = stay + 1;
	b->n = end;
}

/* continue_session() that leaves the file with just these blocks. */
static void continue_book(const struct made *m, struct book *b, const int32_t *prompt, int n)
{
	size_t size = HEAD;
	int shared = 0;

	while (shared < n && shared < b->n && prompt[shared] == b->ids[shared])
		shared++;
	int want = shared ? shared - 1 : 0;
	for (int at = want, k, done = shared; at < n; at += k) {
		k = n - at < 7 ? n - at : 7;
		if (at + k > done)
			enter(b, done, at + k);
		done = at + k > done ? at + k : done;
	}
	if (b->n == n)
		memcpy(b->ids, prompt, (size_t)n * sizeof(*prompt));
	continue_session(m, prompt, n, want);
	for (int i = 0; i < b->blocks; i++)
		size += BLOCK + (size_t)(b->end[i] - b->first[i]) * (4 + ROW);
	assert_int_equal(size_of(m), size);
}

/* Left again and again, earlier and later than before. */
static void left_many_times(void **state)
{
	static struct book b;
	struct made m;
	int most = 0;

	(void)state;
	make_opened(&m, F32, NO_TIES);
	for (int i = 0; i < 60; i++) {
		int common = i * i * 7 % 31, n = common + 1 + i * 5 % 19;
		continue_book(&m, &b, i % 4 ? leaving(common) : ids, n);
		most = b.blocks > most ? b.blocks : most;
	}
	assert_true(most > 5);
	continue_book(&m, &b, leaving(0), 30);
	continue_book(&m, &b, ids, 7);
	assert_int_equal(size_of(&m), HEAD + BLOCK + 7 * (4 + ROW));
	drop(&m);
}

static void refused(const struct made *m, int err, const char *words)
{
	char why[WHY] = "";
	struct kv_session *s;
	size_t before, after;
	char *was = read_file(m->path, &before);

	assert_int_equal(kv_session_open(m->path, m->file, &m->options, &s, why), -err);
	assert_null(s);
	if (!strstr(why, words))
		fail_msg("\"%s\" does not say \"%s\"", why, words);
	char *is = read_file(m->path, &after);
	assert_int_equal(before, after);
	assert_memory_equal(was, is, before);
	free(was);
	free(is);
}

static void any_byte_changed(void **state)
{
	struct made m;

	(void)state;
	make_three_blocks(&m);
	for (size_t at = 0; at < m.n; at++) {
		if (at > HEAD + 100 && at < block_at[1] - 100)
			continue;
		int whole = blocks_below(at);
		m.data[at] ^= (char)(1 << at % 8);
		write_file(m.path, m.data, m.n);
		if (at < HEAD)
			refused(&m, EINVAL, "is no session");
		else
			restores(&m, block_tokens[whole], m.n - block_at[whole], at % 61 == 0);
		m.data[at] ^= (char)(1 << at % 8);
	}
	drop(&m);
}

/* The session as it is in memory, the checksum of its last block made to hold. */
static void write_sealed(const struct made *m)
{
	char *last = m->data + block_at[2];
	uint64_t chain, check;

	memcpy(&chain, m->data + block_at[1], 8);
	check = XXH3_64bits_withSeed(last + 8, m->n - block_at[2] - 8, chain);
	memcpy(last, &check, 8);
	write_file(m->path, m->data, m->n);
}

/* Numbers that no session has, under checksums that hold. */
static void hostile_numbers(void **state)
{
	static const struct {
		int at; /* in the last block, which is one token */
		uint32_t value;
	} cases[] = { { 8, 20 },          { 8, UINT32_MAX },  { 8, INT32_MAX },
		      { 12, 0 },          { 12, 2 },          { 12, UINT32_MAX },
		      { 12, 1 << 30 },    { 16, UINT32_MAX }, { 16, 1u << 31 },
		      { 20, 1 },          { 24, 0 },          { 24, 4 + ROW - 1 },
		      { 24, UINT32_MAX }, { 28, 1 },          { 28, UINT32_MAX } };
	struct made m;

	(void)state;
	make_three_blocks(&m);
	char *last = m.data + block_at[2], *was = malloc(m.n);
	assert_non_null(was);
	memcpy(was, m.data, m.n);
	for (size_t i = 0; i <= sizeof(cases) / sizeof(cases[0]); i++) {
		bool none = i == sizeof(cases) / sizeof(cases[0]); /* that the check is ours */
		memcpy(m.data, was, m.n);
		if (!none)
			memcpy(last + cases[i].at, &cases[i].value, 4);
		write_sealed(&m);
		restores(&m, none ? 20 : 19, none ? 0 : m.n - block_at[2], true);
	}
	/* A token that is none: whoever asks for it is told so by the engine. */
	int32_t prompt[WHOLE + 1], bad = TINY_VOCAB;
	char why[WHY] = "";
	memcpy(m.data, was, m.n);
	memcpy(last + BLOCK, &bad, 4);
	write_sealed(&m);
	memcpy(prompt, ids, sizeof(prompt));
	prompt[19] = bad;
	struct kv_session *s = open_session(&m);
	restore(&m, s, prompt, WHOLE + 1);
	assert_int_equal(engine_position(m.e), 18);
	assert_int_equal(engine_feed(m.e, prompt + 18, 3, why), -EINVAL);
	kv_session_close(s);
	free(was);
	drop(&m);
}

static void of_another_run(void **state)
{
	struct made m, other;
	size_t n, after;
	char *data, why[WHY] = "";
	struct kv_session *s, *second;

	(void)state;
	make_opened(&m, (struct wfmt){ W_Q4, 32 }, NO_TIES);
	continue_session(&m, ids, 20, 0);
	data = read_file(m.path, &n);
	m.options.kv = KV_BF16;
	refused(&m, EINVAL, "was made with --kv f32");
	m.options.kv = KV_F32;
	m.options.float_activations = true;
	refused(&m, EINVAL, "was made with --activations 8");
	m.options.float_activations = false;

	s = open_session(&m);
	assert_int_equal(kv_session_open(m.path, m.file, &m.options, &second, why), -EBUSY);
	assert_non_null(strstr(why, "in use by another process"));
	kv_session_close(s);

	make(&other, (struct wfmt){ W_Q8, 32 }, NO_TIES); /* another model.json */
	write_file(other.path, data, n);
	refused(&other, EINVAL, "belongs to another model");
	drop(&other);

	/* The same model.json, other weights. */
	make_opened(&other, (struct wfmt){ W_Q4, 32 }, NO_TIES + 1);
	write_file(other.path, data, n);
	s = open_session(&other);
	restore(&other, s, ids, 30);
	assert_int_equal(engine_position(other.e), 19);
	feed(&other, ids + 19, 11);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kv_session_save(s, true, why), -ESTALE);
		assert_non_null(strstr(why, "is not what this run computes"));
	}
	kv_session_close(s);
	char *is = read_file(other.path, &after);
	assert_int_equal(n, after);
	assert_memory_equal(data, is, n);
	free(is);
	free(data);
	drop(&other);
	drop(&m);
}

static void no_session_at_all(void **state)
{
	struct made m;
	char why[WHY] = "";
	struct kv_session *s;

	(void)state;
	make(&m, F32, NO_TIES);
	write_file(m.path, "Dear diary", 10);
	refused(&m, EINVAL, "is no session of coli-engine");
	unlink(m.path);
	assert_int_equal(mkfifo(m.path, 0600), 0);
	assert_int_equal(kv_session_open(m.path, m.file, &m.options, &s, why), -EINVAL);
	assert_non_null(strstr(why, "is not a plain file"));
	unlink(m.path);
	snprintf(m.path, sizeof(m.path), "%s/nowhere/s", m.tiny.dir);
	assert_int_equal(kv_session_open(m.path, m.file, &m.options, &s, why), -ENOENT);
	assert_non_null(strstr(why, "nowhere/s cannot be opened: No such file"));
	drop(&m);
}

/* A drive without room: the error is told, and what was there is as good as before. */
static void no_room_to_write(void **state)
{
	struct made m;
	struct rlimit was, little;
	char why[WHY] = "";

	(void)state;
	make_opened(&m, F32, NO_TIES);
	continue_session(&m, ids, 14, 0);
	struct kv_session *s = open_session(&m);
	struct stat before, after;
	assert_int_equal(stat(m.path, &before), 0);
	restore(&m, s, ids, 30);
	feed(&m, ids + 13, 17);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	little = was;
	little.rlim_cur = (rlim_t)before.st_size + 1000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	assert_int_equal(kv_session_save(s, false, why), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_non_null(strstr(why, "cannot be appended to the session"));
	assert_int_equal(stat(m.path, &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	save(s); /* there is room again */
	kv_session_close(s);
	continue_session(&m, ids, 40, 29);
	drop(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(continues_as_a_fresh_run), cmocka_unit_test(ties),
		cmocka_unit_test(of_a_longer_context),      cmocka_unit_test(cut_at_any_byte),
		cmocka_unit_test(cut_where_it_is_left),     cmocka_unit_test(left_many_times),
		cmocka_unit_test(any_byte_changed),         cmocka_unit_test(hostile_numbers),
		cmocka_unit_test(of_another_run),           cmocka_unit_test(no_session_at_all),
		cmocka_unit_test(no_room_to_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
