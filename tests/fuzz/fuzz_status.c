/* SPDX-License-Identifier: Apache-2.0
 *
 * What a mount tells of itself, as the engine, expertctl and its top read it. The input is stats.json,
 * drives, map, top and usage, each a text up to a byte of zero.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_json.h"

#include <math.h>
#include <sys/stat.h>

#include "engine/mount.h"
#include "engine/residency.h"
#include "tools/expertctl/expertctl.h"
#include "tools/expertctl/top.h"

#define EXPERTS 16 /* of a layer, of a model that asks */

static char dir[64];
static struct top_state top = { .mount = dir, .interval = 1 };
static const char *const names[] = { "stats.json", "drives", "map", "top", "usage" };
#define NAMES (sizeof(names) / sizeof(names[0]))

static const char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/.expertfs/%s", dir, name);
	return path;
}

static void finish(void)
{
	for (size_t i = 0; i < NAMES; i++)
		unlink(path_of(names[i]));
	rmdir(path_of(""));
	rmdir(dir);
	top_sample_free(&top.now);
	top_history_free(&top.history);
}

static void start(void)
{
	fuzz_quiet();
	snprintf(dir, sizeof(dir), "/dev/shm/fuzz.%ld", (long)getpid());
	if (mkdir(dir, 0700) != 0 || mkdir(path_of(""), 0700) != 0 ||
	    !top_history_init(&top.history))
		abort();
	atexit(finish);
}

/* All of them: what the input has no text for is empty. */
static void put_files(const uint8_t *data, size_t size)
{
	for (size_t i = 0; i < NAMES; i++) {
		const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
		size_t n = zero && i + 1 < NAMES ? (size_t)(zero - data) : size;
		int fd = open(path_of(names[i]), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd < 0 || write(fd, data, n) != (ssize_t)n)
			abort();
		close(fd);
		data += n < size ? n + 1 : n;
		size -= n < size ? n + 1 : n;
	}
}

static void ask_as_engine(void)
{
	bool in_memory[EXPERTS];
	struct mount_stats s;
	char why[WHY_MAX];

	if (mount_stats(dir, &s, why) == 0 &&
	    (s.hits < -1 || s.experts < -1 || s.slots < -1 || !isfinite(s.drive_speed)))
		abort();
	for (int layer = 0; layer < 4; layer++)
		residency_read(dir, layer, in_memory, EXPERTS);
}

static void run(const struct ctl_command *c, const char *option)
{
	char *argv[] = { dir, (char *)(uintptr_t)option, NULL };

	c->run(argv);
}

/* All views, on a terminal of this size. */
static void draw(int rows, int cols, bool plain, int colours)
{
	struct canvas c = { .plain = plain, .utf8 = colours > 8, .colours = colours };

	if (!canvas_init(&c, rows, cols))
		abort();
	for (int v = 0; v < VIEWS; v++) {
		top.view = (enum top_view)v;
		top.scroll = 3;
		top_draw(&c, &top);
	}
	if (plain && canvas_print(&c) != 0)
		abort();
	canvas_free(&c);
}

/* A picture after that of the input before, a second later. */
static void watch(void)
{
	struct top_sample s;

	top_sample_take(&s, dir, TOP_MAP | TOP_HOTTEST);
	top.alive = s.err == 0;
	if (s.err) {
		snprintf(top.why, sizeof(top.why), "%s", s.why);
		top_history_gap(&top.history);
		top_sample_free(&s);
	} else {
		s.time = top.now.time + 1;
		top_history_add(&top.history, &s);
		top_sample_free(&top.now);
		top.now = s;
	}
	draw(24, 80, false, 256);
	draw(3, 9, false, 8);
	draw(120, 200, true, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!dir[0])
		start();
	put_files(data, size);
	ask_as_engine();
	run(&ctl_stats, NULL);
	run(&ctl_drives, NULL);
	run(&ctl_usage_table, "--export");
	run(&ctl_usage_table, NULL);
	watch();
	return 0;
}
