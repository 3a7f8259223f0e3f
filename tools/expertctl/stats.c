/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl stats: the daemon's stats.json for people. The file is what the daemon of another
 * version may have written, or what anybody put there: a member that is missing or of another kind
 * is shown as "-".
 */
#include "tools/expertctl/expertctl.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "expertfs/size.h"
#include "tools/expertctl/mountfile.h"

#define STATS_FILE ".expertfs/stats.json"
#define BAR_CELLS  20
#define CELL       48 /* bytes of room for a number as text */

/* -- values as text ------------------------------------------------------------------------------
 */

/* The member, or the member of the member (inner may be NULL), if it is a number that counts
 * something. */
static bool number(const json_t *o, const char *name, const char *inner, double *v)
{
	const json_t *m = json_object_get(o, name);

	if (inner)
		m = json_object_get(m, inner);
	*v = json_number_value(m);
	return json_is_number(m) && *v >= 0 && *v < 0x1p63;
}

/* The number times a factor, with so many decimals. */
static const char *decimal(const json_t *o, const char *name, const char *inner, double factor,
			   int decimals, char *buf)
{
	double v;

	if (!number(o, name, inner, &v))
		return "-";
	snprintf(buf, CELL, "%.*f", decimals, v * factor);
	return buf;
}

static const char *count(const json_t *o, const char *name, const char *inner, char *buf)
{
	return decimal(o, name, inner, 1, 0, buf);
}

static const char *size(const json_t *o, const char *name, const char *inner, char *buf)
{
	double v;

	return number(o, name, inner, &v) ? size_text((uint64_t)v, buf) : "-";
}

/* A string, cut to PATH_MAX and without what would move the terminal's cursor. */
static const char *plain(const json_t *o, const char *name, char *buf)
{
	const char *text = json_string_value(json_object_get(o, name));

	if (!text)
		return "-";
	snprintf(buf, PATH_MAX, "%s", text);
	for (char *p = buf; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	return buf;
}

static const char *duration(const json_t *o, const char *name, char *buf)
{
	double v;
	uint64_t s;

	if (!number(o, name, NULL, &v))
		return "-";
	s = (uint64_t)v;
	if (s < 60)
		snprintf(buf, CELL, "%.1f s", v);
	else if (s < 3600)
		snprintf(buf, CELL, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		snprintf(buf, CELL, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(buf, CELL, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return buf;
}

/* -- the table ------------------------------------------------------------------------------------
 */

__attribute__((format(printf, 2, 3))) static void row(const char *name, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	printf("\n%-10s ", name);
	vprintf(fmt, ap);
	va_end(ap);
}

/* More of the same row: a count that not every daemon gives, said if it is there and not zero. */
static void also(const json_t *root, const char *name, const char *inner, const char *words)
{
	double v;

	if (number(root, name, inner, &v) && v > 0)
		printf(", %.0f %s", v, words);
}

/* How full the budget is, as a picture: for people only. */
static const char *bar(const json_t *root, char *buf)
{
	double used, budget;
	int full;

	buf[0] = '\0';
	if (!isatty(STDOUT_FILENO) || !number(root, "memory", "used", &used) ||
	    !number(root, "memory", "budget", &budget) || budget <= 0)
		return buf;
	full = used < budget ? (int)(used / budget * BAR_CELLS) : BAR_CELLS;
	snprintf(buf, CELL, "  [%.*s%.*s]", full, "####################", BAR_CELLS - full,
		 "....................");
	return buf;
}

static void show_memory(const json_t *root)
{
	const json_t *huge = json_object_get(json_object_get(root, "memory"), "huge_pages");
	char a[CELL], b[CELL], c[CELL];
	double held, full, now;

	row("memory", "%s of %s%s", size(root, "memory", "used", a),
	    size(root, "memory", "budget", b), bar(root, c));
	row("hot store", "%s, %s slots%s; fixed costs %s", size(root, "memory", "capacity", a),
	    count(root, "memory", "slots", b), json_is_true(huge) ? " of huge pages" : "",
	    size(root, "memory", "fixed", c));
	if (number(root, "memory", "hot_store", &full) &&
	    number(root, "memory", "capacity", &now) && now < full)
		row("", "less than the %s it may have: the machine is short of memory",
		    size(root, "memory", "hot_store", a));
	if (number(root, "memory", "evicted_but_mapped", &held) && held > 0)
		row("", "%s evicted, but still held by readers",
		    size(root, "memory", "evicted_but_mapped", a));
}

static void show_use(const json_t *root)
{
	char a[CELL], b[CELL], c[CELL];
	double minute, opens = 1;

	row("experts", "%s of %s resident", count(root, "experts", "resident", a),
	    count(root, "experts", "total", b));
	also(root, "experts", "held", "held by readers");
	also(root, "experts", "pinned", "pinned");
	also(root, "experts", "loading", "being loaded");
	row("hit rate", "%s %%: %s hits, %s misses", decimal(root, "hit_rate", NULL, 100, 1, a),
	    count(root, "hits", NULL, b), count(root, "misses", NULL, c));
	also(root, "unkept", NULL, "of them not kept");
	/* Without opens there is no rate, whatever the number says. */
	number(root, "opens_1m", NULL, &opens);
	if (number(root, "hit_rate_1m", NULL, &minute) && opens > 0)
		printf("; %.1f %% in the last minute", minute * 100);
	row("opens", "%s", count(root, "opens", NULL, a));
	also(root, "opens_1m", NULL, "in the last minute");
}

/* What the daemon does of itself. */
static void show_work(const json_t *root)
{
	char a[CELL], b[CELL], c[CELL], d[CELL];
	double slots, errors;

	row("prefetch", "%s loaded of %s asked, %s used, %s wasted",
	    count(root, "prefetch", "loaded", a), count(root, "prefetch", "asked", b),
	    count(root, "prefetch", "used", c), count(root, "prefetch", "wasted", d));
	row("evictions", "%s", count(root, "evictions", NULL, a));
	if (number(root, "hot_dir", "slots", &slots) && slots > 0) {
		row("hot drive", "%s of %.0f experts, %s", count(root, "hot_dir", "experts", a),
		    slots, size(root, "hot_dir", "bytes", b));
		also(root, "promotions", NULL, "copied there");
		also(root, "demotions", NULL, "forgotten");
		also(root, "hot_dir", "errors", "failed");
	}
	if (json_is_false(json_object_get(json_object_get(root, "usage"), "recording")))
		row("usage", "not recorded");
	else if (number(root, "usage", "errors", &errors) && errors > 0)
		row("usage", "%.0f times it could not be written to the catalog", errors);
}

/* All classes together. */
static const char *queued(const json_t *drive, char *buf)
{
	static const char *const classes[] = { "demand", "prefetch", "promotion" };
	double sum = 0, v;

	for (int i = 0; i < 3; i++) {
		if (!number(drive, "queue", classes[i], &v))
			return "-";
		sum += v;
	}
	return sum < 0x1p63 ? size_text((uint64_t)sum, buf) : "-";
}

/* What it gives when it has enough to do; "-" also if that is not known yet. */
static const char *speed(const json_t *drive, char *buf)
{
	double v;

	return number(drive, "speed", NULL, &v) && v > 0
		       ? decimal(drive, "speed", NULL, 1e-9, 2, buf)
		       : "-";
}

/* One line a drive; the paths come last, since they are the only column of any length. */
static void show_drives(const json_t *drives)
{
	char n[CELL], read[CELL], reads[CELL], errors[CELL], flight[CELL], queue[CELL], rate[CELL],
		can[CELL], p50[CELL], p99[CELL], state[PATH_MAX], path[PATH_MAX];
	const json_t *d;
	size_t i;

	if (json_array_size(drives) == 0)
		return;
	printf("\n%3s %-8s %9s %10s %6s %9s %9s %6s %6s %8s %8s  %s\n", "no.", "state", "read",
	       "reads", "errors", "in flight", "queued", "GB/s", "speed", "p50 ms", "p99 ms",
	       "drive");
	json_array_foreach(drives, i, d)
	{
		printf("%3s %-8s %9s %10s %6s %9s %9s %6s %6s %8s %8s  %s\n",
		       count(d, "number", NULL, n), plain(d, "state", state),
		       size(d, "bytes_read", NULL, read), count(d, "reads", NULL, reads),
		       count(d, "errors", NULL, errors), count(d, "in_flight", NULL, flight),
		       queued(d, queue), decimal(d, "gb_per_s", NULL, 1, 2, rate), speed(d, can),
		       decimal(d, "read_ms", "p50", 1, 2, p50),
		       decimal(d, "read_ms", "p99", 1, 2, p99), plain(d, "path", path));
	}
}

static void show(const json_t *root)
{
	char a[CELL], b[CELL], c[CELL], text[PATH_MAX], mode[PATH_MAX];

	printf("%-10s %s", "store", plain(root, "store", text));
	row("mode", "%s, drives read with %s", plain(root, "mode", mode), plain(root, "io", text));
	row("policy", "%s", plain(root, "policy", text));
	row("uptime", "%s", duration(root, "uptime_s", a));
	show_memory(root);
	show_use(root);
	show_work(root);
	row("read", "%s", size(root, "bytes_read", NULL, a));
	row("load", "p50 %s ms, p95 %s ms, p99 %s ms", decimal(root, "load_ms", "p50", 1, 2, a),
	    decimal(root, "load_ms", "p95", 1, 2, b), decimal(root, "load_ms", "p99", 1, 2, c));
	row("errors", "%s", count(root, "errors", NULL, a));
	putchar('\n');
	show_drives(json_object_get(root, "drives"));
}

static int show_text(const char *mount, const char *text, size_t bytes, char *why)
{
	json_error_t where;
	/* As reals, an integer of any size is no error. */
	json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &where);

	if (!root)
		return fail(why, EBADMSG, "%s/%s is not valid JSON in line %d, column %d", mount,
			    STATS_FILE, where.line, where.column);
	if (!json_is_object(root)) {
		json_decref(root);
		return fail(why, EBADMSG, "%s/%s is not a JSON object", mount, STATS_FILE);
	}
	show(root);
	json_decref(root);
	return 0;
}

static int stats(const char *mount, bool json)
{
	char why[WHY_MAX], *text = NULL;
	size_t bytes = 0;
	int err = mountfile_read(mount, "stats.json", &text, &bytes, why);

	if (err == 0 && json)
		fwrite(text, 1, bytes, stdout);
	else if (err == 0)
		err = show_text(mount, text, bytes, why);
	free(text);
	if (err == 0 && (fflush(stdout) != 0 || ferror(stdout)))
		err = fail(why, errno, "standard output: %s", strerror(errno));
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

static int run(char **argv)
{
	const char *mount = CTL_DEFAULT_MOUNT;
	bool json = false;
	int n, status = ctl_split(argv, &mount, 1, &n, "--json", &json);

	return status ? status : stats(mount, json);
}

const struct ctl_command ctl_stats = {
	.name = "stats",
	.usage = "[MOUNT] [--json]",
	.about = "show what the daemon of MOUNT holds and does: mode, memory, hit rate, experts,\n"
		 "drives; --json: its stats.json as it is",
	.run = run,
};
