/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts that move while they are read: plans are fair, minimal and the same after an interruption;
 * readers see the right bytes at every moment; the space of old records comes back; whatever is cut
 * off, the store is whole.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "expertfs/respread.h"
#include "expertfs/respread_move.h"
#include "expertfs/respread_plan.h"
#include "expertfs/yield.h"
#include "tests/unit/made_store.h"

#include <cmocka.h> /* last: its fail() is a macro */

static char why[WHY_MAX];

/* -- helpers ------------------------------------------------------------------------------------ */

/* Words like 3/17 and 3/0-15; select.c needs a hot store and has a test of its own. */
static int pick_words(void *arg, const char *words, void (*each)(void *, uint32_t), void *each_arg,
		      char *sentence)
{
	const struct store *s = arg;
	char copy[256], *save;

	snprintf(copy, sizeof(copy), "%s", words);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		unsigned layer, first, last;
		int n = sscanf(w, "%u/%u-%u", &layer, &first, &last);
		for (unsigned e = first; n >= 2 && e <= (n == 3 ? last : first); e++) {
			const struct store_expert *x = store_find(s, layer, e);
			n = x ? n : 0;
			if (x)
				each(each_arg, (uint32_t)(x - s->expert));
		}
		if (n < 2) {
			snprintf(sentence, WHY_MAX, "%s: no expert", w);
			return -ENOENT;
		}
	}
	return 0;
}

/* Drive 0 and 1 are as fast as each other, the third is twice as fast. */
static uint64_t known_speed(const char *path)
{
	return strstr(path, "/d2") ? 200 : 100;
}

static struct respread *start(struct made *m)
{
	const struct respread_config cfg = { .store = m->store,
					     .loader = &m->loader,
					     .io = DRIVE_IO_AUTO,
					     .lock = -1,
					     .select = pick_words,
					     .select_arg = m->store,
					     .speed = known_speed,
					     .batch = 5 };
	struct respread *r = NULL;

	if (respread_start(&cfg, &r, why) != 0)
		fail_msg("%s", why);
	return r;
}

/* Until the last task is not under way any more. */
static enum respread_state finish(struct respread *r, struct respread_status *st)
{
	do {
		char *text = respread_text(r, NULL); /* may be asked for at any moment */
		assert_non_null(text);
		assert_non_null(strstr(text, "\"drives\""));
		free(text);
		sleep_ms(2);
		respread_status(r, st);
	} while (st->id && (st->state == RESPREAD_QUEUED || st->state == RESPREAD_RUNNING));
	return st->state;
}

static void command(struct respread *r, const char *line)
{
	if (respread_command(r, line, why) != 0)
		fail_msg("%s: %s", line, why);
}

static void must_be_done(struct respread *r, const char *line)
{
	struct respread_status st;

	command(r, line);
	if (finish(r, &st) != RESPREAD_DONE)
		fail_msg("%s: state %d: %s", line, st.state, st.error);
}

static char *folder(struct made *m, unsigned drive, const char *verb)
{
	static char line[PATH_MAX];
	char path[PATH_MAX - 16];

	snprintf(path, sizeof(path), "%s/d%u", m->root, drive);
	mkdir(path, 0777);
	snprintf(line, sizeof(line), "%s %s", verb, path);
	return line;
}

/* Bytes of experts on a drive. */
static uint64_t load_of(const struct store *s, uint32_t drive)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->experts; i++)
		for (uint32_t x = 0; x < s->expert[i].packed->n; x++)
			if (s->expert[i].packed->x[x].drive == drive)
				bytes += s->expert[i].packed->x[x].length;
	return bytes;
}

/* Bytes that a shard takes on the disk. */
static uint64_t disk_bytes(struct made *m, unsigned drive)
{
	char path[PATH_MAX];
	struct stat st;

	made_path(m, drive, path);
	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void assert_copies_apart(const struct store *s)
{
	for (uint32_t i = 0; i < s->experts; i++) {
		const struct extent_list *l = s->expert[i].packed;
		for (uint32_t x = 0; x < l->n; x++)
			for (uint32_t y = 0; y < x; y++)
				if (l->x[x].drive == l->x[y].drive)
					assert_int_equal(l->x[x].copy, l->x[y].copy);
	}
}

/* The store as another process would find it now: all experts right, nothing missing. */
static void assert_whole_on_disk(struct made *m)
{
	struct made other = *m;

	made_open(&other);
	assert_int_equal(other.store->lost, 0);
	if (!made_all_right(&other, why))
		fail_msg("%s", why);
	made_close(&other);
}

/* -- plans -------------------------------------------------------------------------------------- */

/* Two drives, and a third as fast as both together: it gets half, from both alike, of each layer. */
static void a_new_drive_gets_its_share(void **state)
{
	struct made m = {
		.layers = 4, .experts = 32, .drives = 2, .parts = 1, .copies = 1, .bytes = 20000
	};
	struct spread_job job = { .kind = SPREAD_ADD, .drive = 2, .speed = { 100, 100, 200 } };
	struct spread_plan p;
	unsigned layer[4] = { 0 }, from[2] = { 0 };

	(void)state;
	made_make(&m);
	made_open(&m);
	assert_false(spread_is_striped(m.store));
	assert_int_equal(spread_plan_make(m.store, &job, &p, why), 0);
	assert_int_equal(p.n, 64);
	assert_int_equal(p.bytes, 64 * 20000);
	assert_int_equal(p.needed[2], 64 * record_bytes(20000));
	for (uint32_t i = 0; i < p.n; i++) {
		const struct store_expert *e = &m.store->expert[p.step[i].index];
		assert_int_equal(p.step[i].to, 2);
		layer[e->layer]++;
		from[e->packed->x[0].drive]++;
	}
	for (int l = 0; l < 4; l++)
		assert_int_equal(layer[l], 16);
	assert_int_equal(from[0], 32);
	assert_int_equal(from[1], 32);
	spread_plan_free(&p);
	made_close(&m);
	made_remove(&m);
}

/* Carries out only the arithmetic: as if the step had been done. */
static void pretend(struct store *s, const struct spread_job *job, const struct spread_step *step)
{
	static uint64_t end = 1 << 30;
	struct extent_list *l = spread_step_list(s, job, step);

	for (uint32_t i = 0; i < l->n; i++) {
		if (l->x[i].offset == 0) {
			l->x[i].offset = end;
			end += shard_round_up(l->x[i].length) + SHARD_ALIGN;
		}
	}
	store_drop(s, store_set_packed(s, step->index, l));
}

/* Interrupted after each step and planned anew: the same steps, none twice; none when it is done. */
static void plans_go_on(const struct made *geometry, const struct spread_job *job)
{
	struct made m = *geometry;
	struct spread_plan all, rest;

	made_make(&m);
	made_open(&m);
	m.store->drives = 4;
	assert_int_equal(spread_plan_make(m.store, job, &all, why), 0);
	assert_true(all.n > 0);
	for (uint32_t i = 0; i < all.n; i++) {
		pretend(m.store, job, &all.step[i]);
		assert_int_equal(spread_plan_make(m.store, job, &rest, why), 0);
		if (rest.n != all.n - i - 1)
			fail_msg("%u steps are left after %u of %u", rest.n, i + 1, all.n);
		if (rest.n && job->kind == SPREAD_ADD)
			assert_memory_equal(rest.step, &all.step[i + 1], sizeof(*rest.step));
		spread_plan_free(&rest);
	}
	assert_copies_apart(m.store);
	spread_plan_free(&all);
	made_close(&m);
	made_remove(&m);
}

static void a_plan_goes_on_where_it_was(void **state)
{
	static const struct made whole = {
		.layers = 3, .experts = 11, .drives = 3, .parts = 1, .copies = 1, .bytes = 9000
	};
	static const struct made twice = {
		.layers = 3, .experts = 11, .drives = 3, .parts = 1, .copies = 2, .bytes = 9000
	};
	static const struct made cut = {
		.layers = 2, .experts = 9, .drives = 3, .parts = 3, .copies = 1, .bytes = 400001
	};
	static const struct made cut_twice = {
		.layers = 2, .experts = 8, .drives = 4, .parts = 2, .copies = 2, .bytes = 400001
	};
	static const struct made small = {
		.layers = 2, .experts = 9, .drives = 3, .parts = 2, .copies = 1, .bytes = 70000
	};
	struct spread_job add = { .kind = SPREAD_ADD, .drive = 3, .speed = { 3, 1, 2, 2 } };
	struct spread_job five = { .kind = SPREAD_ADD, .drive = 4, .speed = { 3, 1, 2, 2, 2 } };
	struct spread_job leave = { .kind = SPREAD_REMOVE, .drive = 1, .speed = { 3, 0, 2 } };
	struct spread_job leave4 = { .kind = SPREAD_REMOVE, .drive = 1, .speed = { 3, 0, 2, 2 } };

	(void)state;
	plans_go_on(&whole, &add);
	plans_go_on(&twice, &add);
	plans_go_on(&whole, &leave);
	plans_go_on(&twice, &leave);
	add.striped = five.striped = leave.striped = leave4.striped = true;
	plans_go_on(&cut, &add);
	plans_go_on(&small, &add);
	plans_go_on(&cut_twice, &five);
	plans_go_on(&cut, &leave);
	plans_go_on(&cut_twice, &leave4);
}

/* Every byte once, on 4 KiB, no part too short, in proportion to speed. */
static void cuts_are_fair(void **state)
{
	struct made m = {
		.layers = 1, .experts = 8, .drives = 2, .parts = 2, .copies = 1, .bytes = 1000001
	};
	struct spread_job job = {
		.kind = SPREAD_ADD, .drive = 2, .striped = true, .speed = { 100, 100, 200 }
	};
	struct spread_plan p;
	bool first[3] = { false };

	(void)state;
	made_make(&m);
	made_open(&m);
	assert_true(spread_is_striped(m.store));
	assert_int_equal(spread_plan_make(m.store, &job, &p, why), 0);
	assert_int_equal(p.n, 8);
	for (uint32_t i = 0; i < p.n; i++) {
		struct extent_list *l = spread_step_list(m.store, &job, &p.step[i]);
		uint64_t at = 0;
		assert_int_equal(l->n, 3);
		for (uint32_t x = 0; x < l->n; x++) {
			uint64_t want = l->x[x].drive == 2 ? 500000 : 250000;
			assert_int_equal(l->x[x].expert_offset, at);
			assert_int_equal(at % SHARD_ALIGN, 0);
			assert_in_range(l->x[x].length, want - SHARD_ALIGN, want + SHARD_ALIGN);
			at += l->x[x].length;
		}
		first[l->x[0].drive] = true;
		assert_int_equal(at, m.bytes);
		store_drop(m.store, l);
	}
	assert_true(first[0] + first[1] + first[2] >= 2);
	spread_plan_free(&p);
	made_close(&m);
	made_remove(&m);
}

static void shared_bytes_are_not_moved(void **state)
{
	struct made m = {
		.layers = 1, .experts = 4, .drives = 2, .parts = 1, .copies = 1, .bytes = 9000
	};
	struct spread_job job = { .kind = SPREAD_REMOVE, .drive = 1, .speed = { 1 } };
	struct spread_plan p;

	(void)state;
	made_make(&m);
	made_open(&m);
	m.store->expert[2].packed->x[0] = m.store->expert[0].packed->x[0];
	assert_int_equal(spread_plan_make(m.store, &job, &p, why), -EINVAL);
	assert_non_null(strstr(why, "share bytes"));
	made_close(&m);
	made_remove(&m);
}

/* -- the real thing, with readers --------------------------------------------------------------- */

struct readers {
	struct made *m;
	pthread_t thread[3];
	_Atomic bool stop;
	_Atomic unsigned reads;
	_Atomic unsigned seed;
	char why[WHY_MAX];
};

static void *read_always(void *arg)
{
	struct readers *r = arg;
	uint8_t *buf = aligned_alloc(SHARD_ALIGN, shard_round_up(r->m->bytes));
	unsigned seed = ++r->seed;
	char sentence[WHY_MAX];

	while (!r->stop) {
		uint32_t index = (uint32_t)rand_r(&seed) % r->m->store->experts;
		if (!made_right(r->m, index, buf, sentence)) {
			snprintf(r->why, sizeof(r->why), "%s", sentence);
			break;
		}
		r->reads++;
	}
	free(buf);
	return NULL;
}

static void readers_start(struct readers *r, struct made *m)
{
	*r = (struct readers){ .m = m };
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&r->thread[i], NULL, read_always, r), 0);
}

static void readers_stop(struct readers *r)
{
	r->stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(r->thread[i], NULL);
	if (r->why[0])
		fail_msg("a reader: %s", r->why);
	assert_true(r->reads > 0);
}

/* add, move and remove of all kinds of stores, while it is read; the old drive can go. */
static void experts_move_while_they_are_read(void **state)
{
	static const struct made kinds[] = {
		{ .layers = 3,
		  .experts = 40,
		  .drives = 2,
		  .parts = 1,
		  .copies = 1,
		  .bytes = 100001 },
		{ .layers = 3,
		  .experts = 20,
		  .drives = 2,
		  .parts = 2,
		  .copies = 1,
		  .bytes = 300001 },
		{ .layers = 3,
		  .experts = 20,
		  .drives = 2,
		  .parts = 1,
		  .copies = 2,
		  .bytes = 100001 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct made m = kinds[i];
		struct readers readers;
		struct respread *r;
		char path[PATH_MAX];
		uint64_t all, before;

		made_make(&m);
		made_open(&m);
		all = m.bytes * m.layers * m.experts * m.copies;
		r = start(&m);
		readers_start(&readers, &m);
		before = disk_bytes(&m, 0);
		must_be_done(r, folder(&m, 2, "add"));
		assert_in_range(load_of(m.store, 2), all * 45 / 100, all * 55 / 100);
		assert_true(disk_bytes(&m, 0) < before * 7 / 10);
		assert_copies_apart(m.store);
		must_be_done(r, "move 0 1/0-9 2/3 2/3");
		for (unsigned e = 0; e < 10; e++) {
			const struct extent_list *l = store_find(m.store, 1, e)->packed;
			bool there = false;
			for (uint32_t x = 0; x < l->n; x++)
				there |= l->x[x].drive == 0 && l->x[x].length == m.bytes;
			assert_true(there);
		}
		must_be_done(r, folder(&m, 1, "remove"));
		assert_int_equal(load_of(m.store, 1), 0);
		made_path(&m, 1, path);
		assert_int_equal(access(path, F_OK), -1);
		assert_null(m.loader.drive[1]);
		assert_copies_apart(m.store);
		readers_stop(&readers);
		respread_stop(r);
		if (!made_all_right(&m, why))
			fail_msg("%s", why);
		made_close(&m);
		assert_whole_on_disk(&m);
		made_remove(&m);
	}
}

static void what_cannot_be_is_refused(void **state)
{
	static const struct {
		const char *line, *sentence;
		int err;
	} lines[] = {
		{ "", "one of add DIR", -EINVAL },
		{ "split 3", "one of add DIR", -EINVAL },
		{ "add", "absolute path", -EINVAL },
		{ "add here", "absolute path", -EINVAL },
		{ "add equal", "absolute path", -EINVAL },
		{ "remove equal 5", "5: the store has no such drive", -ENOENT },
		{ "remove", "which drive", -EINVAL },
		{ "remove 7", "no such drive", -ENOENT },
		{ "remove /nowhere", "no such drive", -ENOENT },
		{ "move", "to which drive", -EINVAL },
		{ "move 0", "which experts", -EINVAL },
		{ "move 0 9/9", "no expert", -ENOENT },
		{ "move 300 0/0", "no such drive", -ENOENT },
		{ "continue", "nothing has stopped", -EINVAL },
	};
	struct made m = {
		.layers = 1, .experts = 4, .drives = 1, .parts = 1, .copies = 1, .bytes = 9000
	};
	struct respread_status st;
	struct respread *r;
	char path[PATH_MAX];

	(void)state;
	made_make(&m);
	made_open(&m);
	r = start(&m);
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		assert_int_equal(respread_command(r, lines[i].line, why), lines[i].err);
		if (!strstr(why, lines[i].sentence))
			fail_msg("%s: %s", lines[i].line, why);
	}
	command(r, "remove 0");
	assert_int_equal(finish(r, &st), RESPREAD_REFUSED);
	assert_non_null(strstr(st.error, "last drive"));
	command(r, "add /nowhere/at/all");
	assert_int_equal(finish(r, &st), RESPREAD_REFUSED);
	assert_non_null(strstr(st.error, "/nowhere/at/all: No such"));
	command(r, folder(&m, 0, "add"));
	assert_int_equal(finish(r, &st), RESPREAD_REFUSED);
	assert_non_null(strstr(st.error, "is drive 0 already"));
	/* A file that has the name already is not touched. */
	folder(&m, 1, "add");
	made_path(&m, 1, path);
	FILE *f = fopen(path, "w");
	fputs("precious", f);
	fclose(f);
	command(r, folder(&m, 1, "add"));
	assert_int_equal(finish(r, &st), RESPREAD_REFUSED);
	assert_non_null(strstr(st.error, "exists already"));
	respread_stop(r);
	made_close(&m);
	assert_whole_on_disk(&m);
	made_remove(&m);
}

/* -- interruptions ------------------------------------------------------------------------------ */

/* Stopped in the middle and started again, many times: it goes on, and nothing is moved twice. */
static void a_task_goes_on_after_a_restart(void **state)
{
	struct made m = {
		.layers = 3, .experts = 50, .drives = 2, .parts = 1, .copies = 1, .bytes = 200001
	};
	struct respread_status st = { 0 };
	uint32_t moved = 0;
	int runs = 0;

	(void)state;
	made_make(&m);
	made_open(&m);
	struct respread *r = start(&m);
	command(r, folder(&m, 2, "add"));
	do {
		for (int i = 0; i < 20000; i++) {
			respread_status(r, &st);
			if (st.experts_done || st.state == RESPREAD_DONE)
				break;
			sleep_ms(1);
		}
		respread_stop(r);
		moved += st.experts_done;
		made_close(&m);
		assert_whole_on_disk(&m);
		made_open(&m);
		r = start(&m);
		assert_true(++runs < 60);
		respread_status(r, &st); /* what is to go on; nothing any more in the end */
	} while (st.id);
	assert_true(runs > 3);
	assert_true(moved <= 75);
	assert_int_equal(load_of(m.store, 2), 75 * m.bytes);
	respread_stop(r);
	made_close(&m);
	made_remove(&m);
}

/* A process that moves is killed at a random moment, again and again. */
static void a_killed_move_loses_nothing(void **state)
{
	struct made m = {
		.layers = 2, .experts = 40, .drives = 2, .parts = 2, .copies = 1, .bytes = 400001
	};
	static const char *const verbs[] = { "add", "remove" };
	unsigned seed = 7, killed = 0;

	(void)state;
	if (MADE_NO_FORK)
		skip();
	made_make(&m);
	for (int round = 0; round < 12; round++) {
		pid_t pid = fork();
		int status;
		assert_true(pid >= 0);
		if (pid == 0) {
			struct respread_status st;
			struct respread *r;
			made_open(&m);
			r = start(&m);
			respread_status(r, &st);
			if (st.id == 0)
				respread_command(
					r, folder(&m, 2, verbs[m.store->drive[2].path != NULL]),
					why);
			finish(r, &st);
			_exit(0);
		}
		sleep_ms(20 + (unsigned)rand_r(&seed) % 150);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		killed += WIFSIGNALED(status);
		assert_whole_on_disk(&m);
	}
	assert_true(killed > 2);
	/* Undisturbed it comes to its end. */
	made_open(&m);
	struct respread *r = start(&m);
	struct respread_status st;
	finish(r, &st);
	if (!m.store->drive[2].path)
		must_be_done(r, folder(&m, 2, "add"));
	must_be_done(r, folder(&m, 2, "remove"));
	respread_stop(r);
	made_close(&m);
	assert_whole_on_disk(&m);
	/* Nothing is left lying: the shards hold what the experts need. */
	assert_true(disk_bytes(&m, 0) + disk_bytes(&m, 1) <
		    m.bytes * m.layers * m.experts * 110 / 100);
	made_remove(&m);
}

/* Damage in the only copy: this expert stays, the others go, and the task says so. */
static void an_unreadable_expert_stops_the_end_only(void **state)
{
	struct made m = {
		.layers = 1, .experts = 8, .drives = 2, .parts = 1, .copies = 1, .bytes = 100001
	};
	struct respread_status st;
	struct respread *r;
	char path[PATH_MAX];
	int fd;

	(void)state;
	made_make(&m);
	made_path(&m, 1, path);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "damage", 6, 50000), 6);
	close(fd);
	made_open(&m);
	r = start(&m);
	command(r, "remove 1");
	assert_int_equal(finish(r, &st), RESPREAD_STOPPED);
	assert_non_null(strstr(st.error, "1 of the experts could not be read"));
	assert_int_equal(st.experts_done, 3);
	assert_int_equal(load_of(m.store, 1), m.bytes);
	assert_int_equal(respread_command(r, "move 0 0/0", why), -EBUSY);
	command(r, "continue");
	assert_int_equal(finish(r, &st), RESPREAD_STOPPED);
	command(r, "cancel");
	assert_int_equal(finish(r, &st), RESPREAD_CANCELLED);
	must_be_done(r, "move 1 0/0");
	respread_stop(r);
	made_close(&m);
	made_remove(&m);
}

/* A drive that takes no more: the task stops, the store is whole, and with room it goes on. */
static void a_full_drive_stops_the_task(void **state)
{
	struct made m = {
		.layers = 2, .experts = 20, .drives = 2, .parts = 1, .copies = 1, .bytes = 100001
	};
	struct respread_status st;
	struct respread *r;
	struct rlimit limit;
	struct stat shard;
	char path[PATH_MAX];

	(void)state;
	made_make(&m);
	made_open(&m);
	made_path(&m, 1, path);
	assert_int_equal(stat(path, &shard), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	signal(SIGXFSZ, SIG_IGN);
	/* Room for two batches, and some of the third. */
	limit.rlim_cur = (rlim_t)shard.st_size + 12 * record_bytes(m.bytes);
	setrlimit(RLIMIT_FSIZE, &limit);
	r = start(&m);
	command(r, "remove 0");
	assert_int_equal(finish(r, &st), RESPREAD_STOPPED);
	assert_non_null(strstr(st.error, "File too large"));
	assert_int_equal(st.experts_done, 10);
	assert_int_equal(load_of(m.store, 0), 10 * m.bytes);
	if (!made_all_right(&m, why))
		fail_msg("%s", why);
	assert_int_equal(stat(path, &shard), 0);
	assert_int_equal(shard.st_size, m.store->drive[1].bytes);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_FSIZE, &limit);
	command(r, "continue");
	assert_int_equal(finish(r, &st), RESPREAD_DONE);
	assert_int_equal(load_of(m.store, 0), 0);
	respread_stop(r);
	made_close(&m);
	assert_whole_on_disk(&m);
	made_remove(&m);
}

/* Beforehand: what is not there is said in bytes, and nothing is begun. */
static void room_is_asked_for_first(void **state)
{
	struct made m = {
		.layers = 1, .experts = 4, .drives = 2, .parts = 1, .copies = 1, .bytes = 9000
	};
	struct respread_status st;
	struct respread *r;

	(void)state;
	made_make(&m);
	made_open(&m);
	/* As if they were larger than any drive. */
	for (uint32_t i = 0; i < m.store->experts; i++)
		m.store->expert[i].bytes = m.store->expert[i].packed->x[0].length = 1ull << 50;
	for (uint32_t i = 0; i < m.store->experts; i++)
		m.store->expert[i].packed->x[0].offset = (uint64_t)(i + 1) << 51;
	r = start(&m);
	command(r, "remove 1");
	assert_int_equal(finish(r, &st), RESPREAD_REFUSED);
	assert_non_null(strstr(st.error, "needs 2"));
	assert_non_null(strstr(st.error, "free"));
	respread_stop(r);
	made_close(&m);
	assert_whole_on_disk(&m);
	made_remove(&m);
}

/* A drive that is lost: with a second copy of all it may go, and the copies are made again. */
static void a_lost_drive_can_leave(void **state)
{
	struct made m = {
		.layers = 2, .experts = 12, .drives = 3, .parts = 1, .copies = 2, .bytes = 50001
	};
	struct made single = m;
	struct respread_status st;
	struct respread *r;
	char path[PATH_MAX];

	(void)state;
	made_make(&m);
	made_path(&m, 1, path);
	unlink(path);
	made_open(&m);
	assert_true(m.store->drive[1].missing);
	r = start(&m);
	must_be_done(r, "remove 1");
	assert_copies_apart(m.store);
	for (uint32_t i = 0; i < m.store->experts; i++)
		assert_int_equal(m.store->expert[i].packed->n, 2);
	/* Down to one drive: a copy less each. */
	must_be_done(r, "remove 0");
	for (uint32_t i = 0; i < m.store->experts; i++)
		assert_int_equal(m.store->expert[i].packed->n, 1);
	respread_stop(r);
	made_close(&m);
	assert_whole_on_disk(&m);
	made_remove(&m);
	single.copies = 1;
	made_make(&single);
	made_path(&single, 1, path);
	unlink(path);
	made_open(&single);
	r = start(&single);
	command(r, "remove 1");
	assert_int_equal(finish(r, &st), RESPREAD_REFUSED);
	assert_non_null(strstr(st.error, "8 experts have no copy"));
	respread_stop(r);
	made_close(&single);
	made_remove(&single);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_drive_gets_its_share),
		cmocka_unit_test(a_plan_goes_on_where_it_was),
		cmocka_unit_test(cuts_are_fair),
		cmocka_unit_test(shared_bytes_are_not_moved),
		cmocka_unit_test(experts_move_while_they_are_read),
		cmocka_unit_test(what_cannot_be_is_refused),
		cmocka_unit_test(a_task_goes_on_after_a_restart),
		cmocka_unit_test(a_killed_move_loses_nothing),
		cmocka_unit_test(an_unreadable_expert_stops_the_end_only),
		cmocka_unit_test(a_full_drive_stops_the_task),
		cmocka_unit_test(room_is_asked_for_first),
		cmocka_unit_test(a_lost_drive_can_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
