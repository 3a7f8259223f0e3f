/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl usage: how much each expert is used, from a running daemon (MOUNT/.expertfs/usage) or
 * from a store's catalog.db; as a table of the hottest, or all of it as CSV.
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "expertfs/catalog.h"
#include "expertfs/fail.h"
#include "expertfs/storelock.h"
#include "tools/expertctl/mountfile.h"

#define HEAD      "layer,expert,heat,uses,loads,last_use,load_ns"
#define HEAD_LIVE HEAD ",state"
#define TOP       20
#define STATE_MAX 12

struct row {
	struct usage_row u;
	char state[STATE_MAX]; /* "" from a catalog */
};

struct table {
	struct row *row;
	size_t n, room;
	bool live; /* from a mount */
	char *why;
};

static int add(struct table *t, const struct row *r)
{
	if (t->n == t->room) {
		size_t room = t->room ? 2 * t->room : 1024;
		struct row *grown = realloc(t->row, room * sizeof(*grown));
		if (!grown)
			return fail(t->why, ENOMEM, "out of memory");
		t->row = grown;
		t->room = room;
	}
	t->row[t->n++] = *r;
	return 0;
}

/* -- reading --------------------------------------------------------------------------------------
 */

/* A line of the daemon's file. False: it is none. */
static bool parse(const char *line, struct row *r)
{
	unsigned layer, expert;
	uint64_t *const u[] = { &r->u.uses, &r->u.loads, &r->u.last_use, &r->u.load_ns };
	int end = 0;

	*r = (struct row){ 0 };
	if (sscanf(line, "%5u,%5u,%lf,%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%11[a-z]%n",
		   &layer, &expert, &r->u.heat, u[0], u[1], u[2], u[3], r->state, &end) != 8)
		return false;
	r->u.layer = (uint16_t)layer;
	r->u.expert = (uint16_t)expert;
	return line[end] == '\0' && layer <= UINT16_MAX && expert <= UINT16_MAX &&
	       isfinite(r->u.heat);
}

static int from_mount(struct table *t, const char *mount)
{
	char *text = NULL;
	size_t bytes = 0, n = 0;
	int err = mountfile_read(mount, "usage", &text, &bytes, t->why);

	t->live = true;
	for (char *line = text, *next; !err && *line; line = next) {
		struct row r;
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = '\0';
		if (n++ == 0 ? strcmp(line, HEAD_LIVE) != 0 : !parse(line, &r))
			err = fail(t->why, EBADMSG,
				   "%s/.expertfs/usage, line %zu, is not that of a daemon of this "
				   "version",
				   mount, n);
		else if (n > 1)
			err = add(t, &r);
	}
	free(text);
	return err;
}

static int add_usage(void *arg, const struct usage_row *u)
{
	return add(arg, &(struct row){ .u = *u });
}

static int from_store(struct table *t, const char *store)
{
	struct catalog *c = NULL;
	int err = catalog_open_read(store, &c, t->why);

	err = err ? err : catalog_usage_each(c, add_usage, t, t->why);
	catalog_close(c);
	return err;
}

/* -- writing --------------------------------------------------------------------------------------
 */

static int hotter(const void *a, const void *b)
{
	const struct usage_row *x = &((const struct row *)a)->u, *y = &((const struct row *)b)->u;

	if (x->heat != y->heat)
		return x->heat < y->heat ? 1 : -1;
	if (x->uses != y->uses)
		return x->uses < y->uses ? 1 : -1;
	return x->layer != y->layer ? x->layer - y->layer : x->expert - y->expert;
}

static const char *when(uint64_t seconds, char buf[32])
{
	time_t t = (time_t)seconds;
	struct tm tm;

	if (seconds == 0 || seconds > INT64_MAX / 2 || !localtime_r(&t, &tm) ||
	    strftime(buf, 32, "%Y-%m-%d %H:%M:%S", &tm) == 0)
		return "never";
	return buf;
}

static void show(struct table *t, size_t top)
{
	size_t shown = 0;
	char buf[32];

	if (t->n)
		qsort(t->row, t->n, sizeof(*t->row), hotter);
	printf("%9s %12s %12s %10s %10s  %-19s%s\n", "expert", "heat", "uses", "loads", "load ms",
	       "last use", t->live ? "  state" : "");
	for (; shown < top && shown < t->n && t->row[shown].u.uses > 0; shown++) {
		const struct row *r = &t->row[shown];
		char name[16];
		snprintf(name, sizeof(name), "%u/%u", r->u.layer, r->u.expert);
		printf("%9s %12.4g %12" PRIu64 " %10" PRIu64 " %10.2f  %-19s%s%s\n", name,
		       r->u.heat, r->u.uses, r->u.loads, (double)r->u.load_ns / 1e6,
		       when(r->u.last_use, buf), t->live ? "  " : "", r->state);
	}
	if (shown == 0)
		puts("no expert was used yet");
}

static void put_csv(FILE *f, const struct table *t)
{
	fputs(HEAD "\n", f);
	for (size_t i = 0; i < t->n; i++) {
		const struct usage_row *u = &t->row[i].u;
		fprintf(f, "%u,%u,%.9g,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", u->layer,
			u->expert, u->heat, u->uses, u->loads, u->last_use, u->load_ns);
	}
}

/* file NULL: standard output. */
static int export_csv(const struct table *t, const char *file)
{
	FILE *f = file ? fopen(file, "we") : stdout;
	int err = 0;

	if (!f)
		return fail(t->why, errno, "%s: %s", file, strerror(errno));
	put_csv(f, t);
	if (fflush(f) != 0 || ferror(f))
		err = fail(t->why, errno, "%s: %s", file ? file : "standard output",
			   strerror(errno));
	if (file && fclose(f) != 0 && !err)
		err = fail(t->why, errno, "%s: %s", file, strerror(errno));
	return err;
}

/* -- forgetting -----------------------------------------------------------------------------------
 */

/* Only while no daemon records: it would write again what it has in memory. */
static int reset(const char *store, char *why)
{
	struct catalog *c = NULL;
	int lock, err;

	if (!mountfile_is_store(store))
		return fail(
			why, EINVAL,
			"--reset is for a store that no daemon is recording for, and %s is none",
			store);
	err = store_lock(store, STORE_RECORDED, &lock, why);
	if (err)
		return err;
	err = catalog_open(store, &c, why);
	err = err ? err : catalog_usage_clear(c, why);
	catalog_close(c);
	close(lock);
	return err;
}

/* -- the command line -----------------------------------------------------------------------------
 */

static bool is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

struct wanted {
	const char *path, *file;
	bool export, reset;
	size_t top;
};

static int usage(const struct wanted *w)
{
	char why[WHY_MAX];
	struct table t = { .why = why };
	int err;

	if (w->reset) {
		err = reset(w->path, why);
	} else {
		err = mountfile_is_store(w->path) ? from_store(&t, w->path)
						  : from_mount(&t, w->path);
		if (!err && w->export)
			err = export_csv(&t, w->file);
		else if (!err)
			show(&t, w->top);
		free(t.row);
	}
	if (!err && (fflush(stdout) != 0 || ferror(stdout)))
		err = fail(why, errno, "standard output: %s", strerror(errno));
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

static int run(char **argv)
{
	struct wanted w = { .top = TOP };
	char *end;

	for (; *argv; argv++) {
		if (strcmp(*argv, "--export") == 0) {
			w.export = true;
			if (argv[1] && (argv[1][0] != '-' || !argv[1][1]))
				w.file = *++argv;
			if (w.file && strcmp(w.file, "-") == 0)
				w.file = NULL;
		} else if (strcmp(*argv, "--top") == 0) {
			if (!argv[1] || argv[1][0] < '0' || argv[1][0] > '9')
				return ctl_usage("--top needs a number");
			w.top = strtoul(*++argv, &end, 10);
			if (*end)
				return ctl_usage("--top %s: not a number", *argv);
		} else if (strcmp(*argv, "--reset") == 0) {
			w.reset = true;
		} else if ((*argv)[0] == '-') {
			return ctl_usage("there is no option %s here", *argv);
		} else if (w.path) {
			return ctl_usage("%s is one word too many", *argv);
		} else {
			w.path = *argv;
		}
	}
	if (w.reset && (w.export || !w.path))
		return ctl_usage("--reset needs a STORE, and goes alone");
	if (w.file && is_folder(w.file))
		return ctl_usage("%s is a folder; the MOUNT or STORE goes before --export", w.file);
	if (!w.path)
		w.path = CTL_DEFAULT_MOUNT;
	return usage(&w);
}

const struct ctl_command ctl_usage_table = {
	.name = "usage",
	.usage = "[MOUNT|STORE] [--top N] [--export [FILE]] [--reset]",
	.about = "show the hottest experts; --export: the usage of all as CSV, which coli-pack\n"
		 "takes with --usage; --reset: forget what a STORE that is not mounted knows",
	.run = run,
};
