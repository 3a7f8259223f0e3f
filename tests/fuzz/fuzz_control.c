/* SPDX-License-Identifier: Apache-2.0
 *
 * What is written to the files in .expertfs/, obeyed by the parts of a daemon on a small store, with
 * everything but the mount. The input is texts with bytes of one between: the name of a file in the
 * first line, what is written to it in those after. Whatever was ordered, all experts have their bytes,
 * and what the daemon tells of itself is what expertctl understands.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <jansson.h>
#include <string.h>

#include "expertfs/control.h"
#include "expertfs/fs.h"
#include "expertfs/respread.h"
#include "expertfs/select.h"
#include "expertfs/usage.h"
#include "expertfs/yield.h"
#include "tests/unit/made_store.h"
#include "tools/expertctl/top.h"

#define POLICY   "lfru"
#define CAPACITY (8 * SHARD_ALIGN) /* four experts of two blocks */
#define HELD     5                 /* a reader has this one open: evictions meet it */
#define TEXT_MAX 65536

static struct made made;
static struct fs fs;
static _Atomic bool opened;

/* -- the daemon --------------------------------------------------------------------------------- */

static void on_open(void *who, const struct hot_open *o)
{
	(void)who;
	if (o->err || !o->kept)
		abort();
	opened = true;
}

static int select_for_move(void *arg, const char *words, void (*each)(void *, uint32_t),
			   void *each_arg, char *why)
{
	(void)arg;
	return select_experts(fs.store, fs.hot, words, each, each_arg, why);
}

static uint64_t known_speed(const char *path)
{
	return strstr(path, "/d2") ? 200 : 100;
}

static void start_parts(void)
{
	const struct hotstore_config hc = { .loader = &fs.loader,
					    .policy = POLICY,
					    .source = fs.source,
					    .capacity = CAPACITY,
					    .fuse_fd = -1,
					    .opened = on_open };
	const struct usage_config uc = { .store = fs.store, .hot = NULL, .no_warm_start = true };
	const struct respread_config rc = { .store = fs.store,
					    .loader = &fs.loader,
					    .io = DRIVE_IO_AUTO,
					    .lock = -1,
					    .select = select_for_move,
					    .speed = known_speed,
					    .batch = 3 };
	struct usage_config with_hot = uc;
	char why[WHY_MAX];

	made_check(hotstore_create(&hc, &fs.hot, why) == 0, why);
	with_hot.hot = fs.hot;
	made_check(usage_start(&with_hot, &fs.usage, why) == 0, why);
	made_check(respread_start(&rc, &fs.respread, why) == 0, why);
	opened = false;
	hotstore_open(fs.hot, HELD, NULL);
	while (!opened)
		sleep_ms(1);
}

static void start(void)
{
	char path[PATH_MAX];

	made = (struct made){
		.layers = 3, .experts = 6, .drives = 2, .parts = 1, .copies = 1, .bytes = 5000
	};
	made_make(&made);
	made_open(&made);
	for (int i = 2; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/d%d", made.root, i);
		made_check(mkdir(path, 0700) == 0, path);
	}
	snprintf(path, sizeof(path), "%s/t", made.root);
	made_check(mkdir(path, 0700) == 0, path);
	fs = (struct fs){ .store = made.store,
			  .drive = made.drive,
			  .loader = made.loader,
			  .source = backing_source_open(made.bytes, 64),
			  .policy = POLICY };
	made_check(fs.source != NULL, "memory");
	pthread_mutex_init(&fs.trace_lock, NULL);
	start_parts();
}

static void stop(void)
{
	control_stop_trace(&fs);
	respread_stop(fs.respread);
	usage_stop(fs.usage);
	hotstore_release(fs.hot, HELD, true);
	hotstore_destroy(fs.hot);
	backing_source_close(fs.source);
	pthread_mutex_destroy(&fs.trace_lock);
	made_close(&made);
	made_remove(&made);
}

/* -- the orders --------------------------------------------------------------------------------- */

/* Paths are kept within the folder: "$" is its name, and there is no other way to begin one or to go
 * up from it. */
static size_t tame(const char *text, size_t n, char *out, const char *folder)
{
	size_t at = 0;

	for (size_t i = 0; i < n && at + PATH_MAX < TEXT_MAX; i++) {
		bool begins = i == 0 || strchr(" \t\n", text[i - 1]);
		if (text[i] == '$')
			at += (size_t)sprintf(out + at, "%s", folder);
		else if ((text[i] == '/' && begins) ||
			 (text[i] == '.' && i > 0 && text[i - 1] == '.'))
			out[at++] = '_';
		else
			out[at++] = text[i];
	}
	return at;
}

static const struct control_file *find_file(const char *name, size_t n)
{
	const struct control_file *f;

	for (uint32_t i = 0; (f = control_file(i)) != NULL; i++)
		if (strlen(f->name) == n && memcmp(f->name, name, n) == 0)
			return control_file_takes_lines(f) ? f : NULL;
	return NULL;
}

static void write_to(const struct control_file *f, const char *text, size_t n)
{
	static char tamed[TEXT_MAX];
	const struct control_caller who = { geteuid(), getegid() };
	struct control *c = control_open(f, &fs);
	char folder[PATH_MAX], said[64];

	snprintf(folder, sizeof(folder), "%s%s", made.root,
		 strcmp(f->name, "trace") == 0 ? "/t" : "");
	n = tame(text, n, tamed, folder);
	if (!c)
		abort();
	if (control_write(c, &fs, &who, tamed, n) != 0 && control_read(c, said, 64, 0) == 0)
		abort(); /* an error without a sentence */
	control_close(c, &fs);
}

/* -- afterwards --------------------------------------------------------------------------------- */

static void read_file(const char *name, void (*check)(const char *text))
{
	const struct control_file *f;
	char *text;

	for (uint32_t i = 0; (f = control_file(i)) != NULL; i++) {
		if (strcmp(f->name, name) != 0)
			continue;
		text = f->read(&fs);
		if (!text)
			abort();
		check(text);
		free(text);
	}
}

static void check_stats(const char *text)
{
	struct top_sample s = { 0 };
	char why[WHY_MAX];

	if (top_parse_stats(&s, text, strlen(text), why) != 0 || s.total != fs.store->experts)
		abort();
	top_sample_free(&s);
}

static void check_map(const char *text)
{
	struct top_map m;
	char why[WHY_MAX];

	if (top_parse_map(&m, text, why) != 0 || m.layers != made.layers ||
	    m.experts != made.experts)
		abort();
	free(m.number);
	free(m.cell);
}

static void check_top(const char *text)
{
	struct top_sample s = { 0 };
	char why[WHY_MAX];

	if (top_parse_hottest(&s, text, why) != 0)
		abort();
	top_sample_free(&s);
}

static void check_drives(const char *text)
{
	json_t *root = json_loads(text, 0, NULL);

	if (!json_is_array(json_object_get(root, "drives")))
		abort();
	json_decref(root);
}

static void check_any(const char *text)
{
	(void)text;
}

static void check_memory(void)
{
	struct hotstore_stats h;

	hotstore_stats(fs.hot, &h);
	if (h.policy.used > CAPACITY || h.pinned_bytes > CAPACITY / 4 * 3)
		abort();
}

static void wait_for_loads(void)
{
	struct hotstore_stats h;

	for (;;) {
		hotstore_stats(fs.hot, &h);
		if (h.loading == 0)
			return;
		sleep_ms(1);
	}
}

/* Ends what moves. True if there was something. */
static bool wait_for_moves(void)
{
	struct respread_status st;
	char why[WHY_MAX];

	for (;;) {
		respread_status(fs.respread, &st);
		if (st.id == 0 || st.state >= RESPREAD_DONE)
			return st.id > 0;
		if (st.state == RESPREAD_STOPPED)
			respread_command(fs.respread, "cancel", why);
		sleep_ms(1);
	}
}

static void remove_traces(void)
{
	char path[PATH_MAX + 512], folder[PATH_MAX];
	const struct dirent *e;

	snprintf(folder, sizeof(folder), "%s/t", made.root);
	DIR *d = opendir(folder);
	while (d && (e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
}

/* As it was, for the next input; anew if experts have moved. */
static void reset(void)
{
	bool moved = wait_for_moves();
	char why[WHY_MAX];

	if (!made_all_right(&made, why))
		abort();
	if (moved) {
		stop();
		start();
		return;
	}
	control_stop_trace(&fs);
	remove_traces();
	for (uint32_t i = 0; i < fs.store->experts; i++) {
		hotstore_unpin(fs.hot, i);
		hotstore_evict(fs.hot, i);
	}
	if (hotstore_set_policy(fs.hot, POLICY) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data, *end = text + size, *next, *line;
	const struct control_file *f;

	if (!fs.hot) {
		setenv("TMPDIR", "/dev/shm", 1);
		fuzz_quiet();
		start();
		atexit(stop);
	}
	for (; text < end; text = next) {
		next = memchr(text, 1, (size_t)(end - text));
		size_t n = (size_t)((next ? next : end) - text);
		line = memchr(text, '\n', n);
		f = line ? find_file(text, (size_t)(line - text)) : NULL;
		if (f)
			write_to(f, line + 1, n - (size_t)(line + 1 - text));
		next = next ? next + 1 : end;
	}
	wait_for_loads();
	check_memory();
	read_file("stats.json", check_stats);
	read_file("metrics", check_any);
	read_file("map", check_map);
	read_file("top", check_top);
	read_file("drives", check_drives);
	reset();
	return 0;
}
