/* SPDX-License-Identifier: Apache-2.0
 *
 * The recording of traces: that a replay sees the events which the policy saw, and that a trace
 * which had to end early says so and is whole as far as it goes.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cachepolicy/policy.h"
#include "expertfs/clock.h"
#include "expertfs/tracer.h"
#include "tools/cachesim/trace.h"

#include "expertfs/fail.h"

#include <cmocka.h> /* last: its fail() is a macro */

enum { LAYERS = 5, EXPERTS = 40, WITH_EXPERTS = 3 };

static char dir[200], path[256];
static char why[WHY_MAX];
static struct tracer *t;

/* Layers 0 and 3 have no experts, and layer 4 has two sizes. */
static const uint16_t layers[WITH_EXPERTS] = { 1, 2, 4 };
static struct store_expert experts[WITH_EXPERTS * EXPERTS];
static const struct store store = { .experts = WITH_EXPERTS * EXPERTS,
				    .layers_end = LAYERS,
				    .experts_per_layer = EXPERTS,
				    .expert = experts };

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "%s/tracer.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/trace", dir);
	for (unsigned i = 0; i < WITH_EXPERTS * EXPERTS; i++)
		experts[i] = (struct store_expert){ .layer = layers[i / EXPERTS],
						    .expert = (uint16_t)(i % EXPERTS),
						    .bytes = i == 100 ? 2000 : 1000 };
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(dir);
}

static int fresh(void **state)
{
	(void)state;
	unlink(path);
	assert_int_equal(tracer_start(path, getuid(), getgid(), &store, &t, why), 0);
	return 0;
}

static struct trace *read_back(void)
{
	struct trace_options none = { .join_prompt = false };
	struct trace *trace = NULL;
	int err = trace_read(path, &none, &trace, why);

	if (err)
		print_error("%s\n", why);
	assert_int_equal(err, 0);
	return trace;
}

/* The last line of the file, without the blanks at its end. */
static const char *last_line(void)
{
	static char line[1024];
	FILE *f = fopen(path, "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		;
	fclose(f);
	assert_true(strlen(line) > 1 && line[strlen(line) - 1] == '\n');
	for (size_t n = strlen(line); n && (line[n - 1] == ' ' || line[n - 1] == '\n'); n--)
		line[n - 1] = '\0';
	return line;
}

static const char *status(void)
{
	static char line[600];

	tracer_status(t, line, sizeof(line));
	return line;
}

/* Open k of a sequence: events of four experts each, layer after layer. */
static void open_next(uint64_t k)
{
	tracer_open(t, k * 1000, layers[k / 4 % WITH_EXPERTS], (unsigned)(k % EXPERTS));
}

/* Waits, for at most ten seconds, until the status holds these words. */
static void wait_for(const char *words)
{
	for (int k = 0; k < 1000 && !strstr(status(), words); k++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	assert_non_null(strstr(status(), words));
}

static void what_is_in_the_file(void **state)
{
	static const char want[] = "expertfs-trace 1 5 40\n"
				   "size 1 1000\n"
				   "size 2 1000\n"
				   "size 4 2000\n"
				   "0 1 7 3\n"    /* one layer, one event */
				   "4 2 3\n"      /* another layer */
				   "5 2 3 39 0\n" /* asked for again: the next event; time stands */
				   "1000006 4 12\n"
				   "1000007 1 1\n"
				   "# complete: 5 events, 8 opens";
	static const struct {
		uint64_t time;
		unsigned layer, expert;
	} opens[] = { { 7000000900, 1, 7 },  { 7000003900, 1, 3 },  { 7000005000, 2, 3 },
		      { 7000005950, 2, 3 },  { 7000005000, 2, 39 }, { 7000005960, 2, 0 },
		      { 8000007000, 4, 12 }, { 8000008000, 1, 1 } };
	char got[1024] = "";
	FILE *f;

	(void)state;
	for (size_t k = 0; k < sizeof(opens) / sizeof(opens[0]); k++)
		tracer_open(t, opens[k].time, opens[k].layer, opens[k].expert);
	assert_int_equal(tracer_stop(t, why), 0);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_true(fread(got, 1, sizeof(got) - 1, f) > sizeof(want));
	fclose(f);
	assert_memory_equal(got, want, sizeof(want) - 1);
	assert_int_equal(strspn(got + sizeof(want) - 1, " "), strlen(got) - sizeof(want));
}

/* xorshift64*: the same sequence everywhere. */
static unsigned rnd(unsigned below)
{
	static uint64_t x = 1;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	return (unsigned)((x * 2685821657736338717ull) >> 33) % below;
}

/* A cache is told with cp_open() what the tracer is told. Its count of events and the trace's must
 * agree, and so must the hits of a replay of whole events where everything fits. */
static void the_events_of_cp_open(void **state)
{
	struct cp_config cfg = { .capacity = 1 << 20, .layers = LAYERS, .experts = EXPERTS };
	struct cp_cache *c;
	struct cp_stats s;
	struct trace *trace;
	uint64_t now = 0;

	(void)state;
	assert_int_equal(cp_create_spec("lru", &cfg, &c), 0);
	for (unsigned k = 0; k < 30000; k++) {
		unsigned layer = layers[(rnd(4) ? k / 8 : rnd(100)) % WITH_EXPERTS];
		struct cp_use use = { cp_key_of(layer, rnd(EXPERTS)), 1 };

		now += rnd(3000);
		cp_open(c, now, use);
		tracer_open(t, now, layer, use.key & 0xffff);
	}
	cp_stats(c, &s);
	cp_destroy(c);
	assert_int_equal(tracer_stop(t, why), 0);
	trace = read_back();
	assert_int_equal(trace->events, s.events);
	assert_int_equal(trace->n_uses, s.uses);
	assert_int_equal(trace->n_uses, 30000);
	for (size_t k = 0; k < trace->n_uses; k++)
		assert_int_equal(trace->uses[k].weight, 1);
	trace_free(trace);
}

/* Written while it goes on; a daemon that is killed leaves a trace that can be read. */
static void killed(void **state)
{
	struct trace *trace;
	char want[300];

	(void)state;
	assert_string_equal(last_line(), "# not ended: recording began and wrote no event");
	for (unsigned k = 0; k < 100; k++)
		open_next(k);
	wait_for("24 events");
	snprintf(want, sizeof(want), "on %s 24 events", path);
	assert_string_equal(status(), want);
	assert_string_equal(last_line(),
			    "# not ended: recording went on after 24 events, 96 opens");
	trace = read_back();
	assert_int_equal(trace->events, 24);
	trace_free(trace);
	assert_int_equal(tracer_stop(t, why), 0);
	assert_string_equal(last_line(), "# complete: 25 events, 100 opens");
}

/* Faster than any thread can write: what came before the hole is there, nothing after it. */
static void too_fast(void **state)
{
	unsigned long long events = 0, opens = 0;
	struct trace *trace;

	(void)state;
	for (unsigned k = 0; k < 50000000 && !strstr(status(), "broken"); k++)
		for (unsigned j = 0; j < 100000; j++, k++)
			open_next(k);
	wait_for("broken off");
	tracer_open(t, 0, 1, 1);
	assert_int_equal(tracer_stop(t, why), -EOVERFLOW);
	assert_non_null(strstr(why, path));
	assert_int_equal(sscanf(last_line(), "# cut short after %llu events, %llu opens: experts",
				&events, &opens),
			 2);
	trace = read_back();
	assert_true(events > 1000);
	assert_int_equal(trace->events, events);
	assert_int_equal(trace->n_uses, opens);
	for (size_t e = 0; e + 1 < trace->events; e++)
		assert_int_equal(trace->uses[e * 4].key,
				 cp_key_of(layers[e % WITH_EXPERTS], (unsigned)(e * 4) % EXPERTS));
	trace_free(trace);
}

/* The drive takes no more: a limit on the size of files does to write() what a full drive does, a
 * part of what was given and then an error. */
static void drive_full(void **state)
{
	struct rlimit before, limit;
	unsigned long long events = 0;
	struct trace *trace;
	struct stat st;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_IGN);
	for (uint64_t k = 0; k < 20000; k++)
		open_next(k);
	wait_for("4999 events");
	assert_int_equal(stat(path, &st), 0);
	limit = before;
	limit.rlim_cur = (rlim_t)st.st_size + 5000;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (uint64_t k = 20000; k < 40000; k++)
		open_next(k);
	wait_for("broken off");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(tracer_stop(t, why), -EFBIG);
	assert_int_equal(sscanf(last_line(), "# cut short after %llu events", &events), 1);
	assert_non_null(strstr(last_line(), strerror(EFBIG)));
	trace = read_back();
	assert_int_equal(events, 4999);
	assert_int_equal(trace->events, events);
	assert_int_equal(trace->passes, 1667);
	trace_free(trace);
}

static void refusals(void **state)
{
	struct tracer *none = NULL;
	char deep[300];
	struct stat st;

	(void)state;
	assert_int_equal(tracer_stop(t, why), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(tracer_start(path, getuid(), getgid(), &store, &none, why), -EEXIST);
	assert_non_null(strstr(why, path));
	assert_int_equal(tracer_start("trace", getuid(), getgid(), &store, &none, why), -EINVAL);
	snprintf(deep, sizeof(deep), "%s/none/trace", dir);
	assert_int_equal(tracer_start(deep, getuid(), getgid(), &store, &none, why), -ENOENT);
	assert_non_null(strstr(why, deep));
	assert_null(none);
	assert_int_equal(tracer_stop(NULL, why), 0);
}

/* A daemon of root makes the file as him who asked for it. */
static void whose_file(void **state)
{
	struct tracer *none = NULL;
	char other[64];
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(tracer_stop(t, why), 0);
	assert_int_equal(unlink(path), 0);
	if (getuid() != 0) {
		assert_int_equal(tracer_start(path, 0, 0, &store, &none, why), -EPERM);
		return;
	}
	/* This way the folders above need not let him in. */
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	snprintf(other, sizeof(other), "/proc/self/fd/%d/trace", fd);
	assert_int_equal(tracer_start(other, 65534, 65534, &store, &none, why), -EACCES);
	assert_int_equal(stat(path, &st), -1);
	assert_int_equal(chmod(dir, 0777), 0);
	assert_int_equal(tracer_start(other, 65534, 65534, &store, &t, why), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_uid == 65534 && st.st_gid == 65534);
	assert_int_equal(tracer_stop(t, why), 0);
	assert_int_equal(chmod(dir, 0700), 0);
	assert_int_equal(unlink(path), 0);
	close(fd);
	/* And the thread has its own rights again. */
	assert_int_equal(tracer_start(path, 0, 0, &store, &t, why), 0);
	assert_int_equal(tracer_stop(t, why), 0);
}

/* It is called under the hot store's lock. */
static void costs_little(void **state)
{
	enum { OPENS = 60000 };
	uint64_t best = UINT64_MAX;

	(void)state;
	for (int round = 0; round < 3; round++) {
		uint64_t start = clock_ns(), spent;
		char words[40];

		for (uint64_t k = 0; k < OPENS; k++)
			open_next(k);
		spent = clock_ns() - start;
		best = spent < best ? spent : best;
		snprintf(words, sizeof(words), " %d events", (round + 1) * OPENS / 4 - 1);
		wait_for(words);
	}
	print_message("%.1f ns an open\n", (double)best / OPENS);
	assert_true(best / OPENS < 1000); /* 5 on an idle machine */
	assert_int_equal(tracer_stop(t, why), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(what_is_in_the_file, fresh),
		cmocka_unit_test_setup(the_events_of_cp_open, fresh),
		cmocka_unit_test_setup(killed, fresh),
		cmocka_unit_test_setup(too_fast, fresh),
		cmocka_unit_test_setup(drive_full, fresh),
		cmocka_unit_test_setup(refusals, fresh),
		cmocka_unit_test_setup(whose_file, fresh),
		cmocka_unit_test_setup(costs_little, fresh),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
