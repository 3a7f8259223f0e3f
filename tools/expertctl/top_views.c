/* SPDX-License-Identifier: Apache-2.0
 *
 * The views of top, drawn onto a canvas of any size from 80 x 24 on (less is clipped): an overview,
 * the drives, the map, the hottest experts. On a plain canvas all of them, one under the other.
 */
#include "tools/expertctl/top.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "expertfs/size.h"

#define NAME_COLS     12 /* of the words at the left */
#define BAR_COLS      16
#define DRIVE_BAR     12
#define GRAPH_ROWS    3
#define DRIVES_SHOWN  4 /* in the overview of a small terminal */
#define HOTTEST_COLS  32
#define PLAIN_MAP     26 /* rows on paper */
#define PLAIN_HOTTEST 20

static const char *const view_names[VIEWS] = { "Overview", "Drives", "Map", "Hottest" };

#define CELL 32

/* Numbers that are not known are "-". */
static const char *count_text(double v, char *buf)
{
	if (v >= 1e7)
		snprintf(buf, CELL, "%.3g", v);
	else if (v >= 0)
		snprintf(buf, CELL, "%.0f", v);
	else
		snprintf(buf, CELL, "-");
	return buf;
}

static const char *bytes_text(double v, char *buf)
{
	return v >= 0 && v < 0x1p63 ? size_text((uint64_t)v, buf) : "-";
}

/* "1.20 GB/s": what drives are sold by. */
static const char *rate_text(double v, char *buf)
{
	if (v >= 1e9)
		snprintf(buf, CELL, "%.2f GB/s", v * 1e-9);
	else if (v >= 1e6)
		snprintf(buf, CELL, "%.1f MB/s", v * 1e-6);
	else if (v >= 0)
		snprintf(buf, CELL, "%.0f kB/s", v * 1e-3);
	else
		snprintf(buf, CELL, "-");
	return buf;
}

static const char *percent_text(double share, char *buf)
{
	if (share >= 0)
		snprintf(buf, CELL, "%.1f %%", share * 100);
	else
		snprintf(buf, CELL, "-");
	return buf;
}

static const char *ms_text(double ms, char *buf)
{
	if (ms >= 1000)
		snprintf(buf, CELL, "%.2f s", ms * 1e-3);
	else if (ms >= 0)
		snprintf(buf, CELL, "%.2f ms", ms);
	else
		snprintf(buf, CELL, "-");
	return buf;
}

static const char *time_text(double seconds, char *buf)
{
	uint64_t s = seconds >= 0 && seconds < 1e12 ? (uint64_t)seconds : 0;

	if (s < 60)
		snprintf(buf, CELL, "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(buf, CELL, "%" PRIu64 " min", s / 60);
	else if (s < 86400)
		snprintf(buf, CELL, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(buf, CELL, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return buf;
}

/* -- the frame -------------------------------------------------------------------------------------------
 */

static void draw_title(struct canvas *c, const struct top_state *s)
{
	char age[CELL], right[2 * TOP_NAME + 64];
	int at;

	for (int x = 0; x < c->width; x++)
		canvas_put(c, 0, x, ST_TITLE, L' ');
	snprintf(right, sizeof(right), "%.60s, %.60s, up %s, every %g s ", s->now.mode,
		 s->now.policy, time_text(s->now.uptime, age), s->interval);
	if (!s->now.store[0])
		right[0] = '\0';
	at = canvas_text(c, 0, 1, c->width, ST_TITLE, "expertfs");
	at = top_draw_path(c, 0, at + 2, c->width - (int)strlen(right) - 1, ST_TITLE, s->mount);
	canvas_text(c, 0,
		    c->width - (int)strlen(right) > at ? c->width - (int)strlen(right) : at + 1,
		    c->width, ST_TITLE, "%s", right);
}

static void draw_tabs(struct canvas *c, const struct top_state *s)
{
	int at = 1;

	for (int v = 0; v < (int)VIEWS; v++)
		at = canvas_text(c, 1, at, c->cols, v == (int)s->view ? ST_TITLE : ST_DIM,
				 " %d %s ", v + 1, view_names[v]);
	canvas_text(c, c->rows - 1, 1, c->cols, ST_DIM,
		    "q quit   Tab, arrows: view   up, down: scroll   +/- interval");
}

/* What is said instead of the tabs while there is no daemon. */
static void draw_gone(struct canvas *c, const struct top_state *s)
{
	char age[CELL];

	for (int x = 0; x < c->cols; x++)
		canvas_put(c, 1, x, ST_BAD, L' ');
	/* why names the mount. */
	if (s->now.store[0])
		canvas_text(c, 1, 1, c->cols, ST_BAD, "waiting, gone for %s: %s",
			    time_text(s->gone, age), s->why);
	else
		canvas_text(c, 1, 1, c->cols, ST_BAD, "waiting: %s", s->why);
}

int top_draw_path(struct canvas *c, int row, int col, int end, enum top_style st, const char *path)
{
	size_t n = strlen(path), room = end > col ? (size_t)(end - col) : 0;

	if (n <= room)
		return canvas_text(c, row, col, end, st, "%s", path);
	if (room < 4)
		return col;
	path += n - (room - 2);
	while ((*path & 0xc0) == 0x80) /* the middle of a character */
		path++;
	return canvas_text(c, row, col, end, st, "..%s", path);
}

/* -- the overview ------------------------------------------------------------------------------------------
 */

static double share_of(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

static int bar_line(struct canvas *c, int row, const char *name, enum top_style st, double share)
{
	canvas_text(c, row, 1, NAME_COLS, ST_BOLD, "%s", name);
	canvas_bar(c, row, NAME_COLS, BAR_COLS, st, share);
	return NAME_COLS + BAR_COLS + 1;
}

/* ", 3 held" for what is not zero. */
static int also(struct canvas *c, int row, int at, double v, const char *words)
{
	char a[CELL];

	return v > 0 ? canvas_text(c, row, at, c->cols, ST_PLAIN, ", %s %s", count_text(v, a),
				   words)
		     : at;
}

static void draw_memory(struct canvas *c, int row, const struct top_sample *n)
{
	char a[CELL], b[CELL], d[CELL];
	int at = bar_line(c, row, "memory", ST_BAR, share_of(n->used, n->budget));

	at = canvas_text(c, row, at, c->cols, ST_PLAIN, "%s of %s, %s slots",
			 bytes_text(n->used, a), bytes_text(n->budget, b), count_text(n->slots, d));
	/* Evicted, but a reader has it mapped: it is still there. */
	if (n->mapped > 0)
		canvas_text(c, row, at, c->cols, ST_WARN, ", %s mapped", bytes_text(n->mapped, a));
}

static void draw_experts(struct canvas *c, int row, const struct top_sample *n)
{
	char a[CELL], b[CELL];
	int at = bar_line(c, row, "experts", ST_BAR, share_of(n->resident, n->total));

	at = canvas_text(c, row, at, c->cols, ST_PLAIN, "%s of %s in memory",
			 count_text(n->resident, a), count_text(n->total, b));
	at = also(c, row, at, n->held, "held");
	at = also(c, row, at, n->loading, "loading");
	also(c, row, at, n->pinned, "pinned");
}

static void draw_hits(struct canvas *c, int row, const struct top_state *s)
{
	char a[CELL], b[CELL], d[CELL], e[CELL];
	double now = s->history.hit_rate;
	int at = bar_line(c, row, "hits", ST_GOOD, isnan(now) ? s->now.hit_rate_1m : now);

	canvas_text(c, row, at, c->cols, ST_PLAIN, "%s (1 min %s, all %s), %s opens/s",
		    percent_text(now, a), percent_text(s->now.hit_rate_1m, b),
		    percent_text(s->now.hit_rate, d), count_text(s->history.opens_rate, e));
}

static void draw_loads(struct canvas *c, int row, const struct top_state *s)
{
	const struct top_sample *n = &s->now;
	char a[CELL], b[CELL], d[CELL], e[CELL];
	int at = NAME_COLS;

	canvas_text(c, row, 1, at, ST_BOLD, "loads");
	at = canvas_text(c, row, at, c->cols, ST_PLAIN, "p50 %s, p95 %s, p99 %s; %s evictions/s",
			 ms_text(n->p50_ms, a), ms_text(n->p95_ms, b), ms_text(n->p99_ms, d),
			 count_text(s->history.evictions_rate, e));
	if (n->prefetch_loaded > 0)
		canvas_text(c, row, at, c->cols, ST_PLAIN, "; prefetch %.0f %%",
			    n->prefetch_used / n->prefetch_loaded * 100);
}

static void draw_graph(struct canvas *c, int row, int rows, const struct top_state *s)
{
	static const char *const axis[] = { "hit rate", "over", "time" };

	for (int i = 0; i < 3 && i < rows; i++)
		canvas_text(c, row + i, 1, NAME_COLS, i ? ST_DIM : ST_BOLD, "%s", axis[i]);
	canvas_graph(c, row, NAME_COLS, rows, c->cols - NAME_COLS - 1, ST_GOOD,
		     &s->history.hit_rates, 1);
}

/* The row behind it. */
static int draw_summary(struct canvas *c, int row, const struct top_state *s)
{
	char a[CELL];

	draw_memory(c, row++, &s->now);
	draw_experts(c, row++, &s->now);
	draw_hits(c, row++, s);
	draw_loads(c, row++, s);
	if (s->now.errors > 0) {
		canvas_text(c, row, 1, NAME_COLS, ST_BAD, "errors");
		canvas_text(c, row++, NAME_COLS, c->cols, ST_BAD, "%s opens failed",
			    count_text(s->now.errors, a));
	}
	return row;
}

/* -- drives ------------------------------------------------------------------------------------------------
 */

static void draw_drives_head(struct canvas *c, int row)
{
	canvas_text(c, row, 1, c->cols, ST_BOLD, "%-*s %10s %10s %9s %8s %6s%s",
		    NAME_COLS + DRIVE_BAR - 1, "drive", "reads", "can do", "queued", "p99",
		    "errors", c->plain ? "" : "  path");
}

/* Bytes a second that it gives when it has enough to do, as far as is known. */
static double drive_best(const struct top_drive *d, const struct top_drive_rate *r)
{
	return d->speed > 0       ? d->speed
	       : r && r->best > 0 ? r->best
	       : d->gb_per_s > 0  ? d->gb_per_s * 1e9
				  : NAN;
}

static void draw_drive(struct canvas *c, int row, const struct top_drive *d,
		       const struct top_drive_rate *r)
{
	bool well = strcmp(d->state, "ok") == 0 || strcmp(d->state, "-") == 0;
	double now = r ? r->rate : NAN, best = drive_best(d, r);
	char a[CELL], b[CELL], q[CELL], p[CELL], e[CELL];
	int at = NAME_COLS + DRIVE_BAR;

	canvas_text(c, row, 1, NAME_COLS, well ? ST_PLAIN : ST_BAD, "%s %s",
		    strcmp(d->role, "hot") == 0 ? "hot" : count_text(d->number, a),
		    well ? "" : d->state);
	canvas_bar(c, row, NAME_COLS, DRIVE_BAR, ST_BAR, share_of(now, best));
	at = canvas_text(c, row, at, c->cols, ST_PLAIN, " %10s %10s %9s %8s", rate_text(now, a),
			 rate_text(best, b), bytes_text(d->queue[0] + d->queue[1] + d->queue[2], q),
			 ms_text(d->p99_ms, p));
	at = canvas_text(c, row, at, c->cols, d->errors > 0 ? ST_BAD : ST_PLAIN, " %6s",
			 count_text(d->errors, e));
	if (!c->plain)
		top_draw_path(c, row, at + 2, c->cols, ST_DIM, d->path);
}

/* As many as there is room for; the row behind them. On paper the path has a line of its own. */
static int draw_drives(struct canvas *c, int row, int most, const struct top_state *s)
{
	int n = (int)s->now.drives, i;

	draw_drives_head(c, row++);
	for (i = 0; i < n && i < most; i++) {
		const struct top_drive *d = &s->now.drive[i];
		draw_drive(c, row++, d, top_history_drive(&s->history, d->number));
		if (c->plain)
			top_draw_path(c, row++, NAME_COLS, c->cols, ST_DIM, d->path);
	}
	if (i < n)
		canvas_text(c, row++, NAME_COLS, c->cols, ST_DIM, "and %d more", n - i);
	return row;
}

/* What has been read, and what waits, by class. */
static void draw_drive_work(struct canvas *c, int row, const struct top_drive *d)
{
	static const char *const classes[] = { "demand", "prefetch", "promotion" };
	char a[CELL], b[CELL], e[CELL];
	int at = canvas_text(c, row, NAME_COLS, c->cols, ST_PLAIN, "%s in %s reads, p50 %s",
			     bytes_text(d->bytes, a), count_text(d->reads, b),
			     ms_text(d->p50_ms, e));

	for (int q = 0; q < 3; q++)
		if (d->queue[q] > 0)
			at = canvas_text(c, row, at, c->cols, ST_PLAIN, "; %s %s",
					 bytes_text(d->queue[q], a), classes[q]);
}

#define DRIVE_ROWS 5 /* each has in the drives view, with a blank one */

/* Each drive with its path, its queue by class and its reads over time. */
static void draw_drives_view(struct canvas *c, int row, int end, struct top_state *s)
{
	int n = (int)s->now.drives, fit = (end - row) / DRIVE_ROWS;

	s->scroll = s->scroll > n - fit ? n - fit : s->scroll;
	s->scroll = s->scroll < 0 ? 0 : s->scroll;
	draw_drives_head(c, row++);
	for (int i = s->scroll; i < n && row < end; i++, row += DRIVE_ROWS) {
		const struct top_drive *d = &s->now.drive[i];
		const struct top_drive_rate *r = top_history_drive(&s->history, d->number);
		draw_drive(c, row, d, r);
		top_draw_path(c, row + 1, NAME_COLS, c->cols, ST_DIM, d->path);
		draw_drive_work(c, row + 2, d);
		if (r)
			canvas_graph(c, row + 3, NAME_COLS, 1, c->cols - NAME_COLS - 1, ST_BAR,
				     &r->rates, drive_best(d, r));
	}
}

/* -- the hottest experts --------------------------------------------------------------------------------------
 */

static enum top_style state_style(const struct top_expert *e)
{
	return e->pinned ? ST_PIN : strcmp(e->state, "resident") == 0 ? ST_GOOD : ST_DIM;
}

static const char *state_text(const struct top_expert *e)
{
	return e->pinned ? "pinned" : strcmp(e->state, "resident") == 0 ? "memory" : e->state;
}

/* The few columns of the overview. */
static void draw_hottest_short(struct canvas *c, int row, int rows, int col,
			       const struct top_state *s)
{
	char name[CELL], uses[CELL];

	canvas_text(c, row, col, c->cols, ST_BOLD, "%-10s %7s %6s %s", "hottest", "uses", "heat",
		    "");
	for (int i = 0; i < (int)s->now.experts && i < rows - 1; i++) {
		const struct top_expert *e = &s->now.expert[i];
		int at;
		snprintf(name, sizeof(name), "%u/%u", e->layer, e->expert);
		at = canvas_text(c, row + 1 + i, col, c->cols, ST_PLAIN, "%-10s %7s %6.3g ", name,
				 count_text(e->uses, uses), e->heat);
		canvas_text(c, row + 1 + i, at, c->cols, state_style(e), "%s", state_text(e));
	}
}

static void draw_hottest_line(struct canvas *c, int row, int place, const struct top_expert *e)
{
	char name[CELL], uses[CELL], loads[CELL], load[CELL], ago[CELL] = "-";
	double now = (double)time(NULL);
	int at;

	snprintf(name, sizeof(name), "%u/%u", e->layer, e->expert);
	if (e->last_use > 0)
		time_text(now > e->last_use ? now - e->last_use : 0, ago);
	at = canvas_text(c, row, 1, c->cols, ST_PLAIN, "%4d  %-10s %8.4g %9s %7s %9s %10s  ", place,
			 name, e->heat, count_text(e->uses, uses), count_text(e->loads, loads),
			 ms_text(e->load_ms > 0 ? e->load_ms : NAN, load), ago);
	canvas_text(c, row, at, c->cols, state_style(e), "%s%s", state_text(e),
		    e->held ? ", held" : "");
}

static int draw_hottest(struct canvas *c, int row, int end, struct top_state *s)
{
	int n = (int)s->now.experts, fit = end - row - 1;

	s->scroll = s->scroll > n - fit ? n - fit : s->scroll;
	s->scroll = s->scroll < 0 ? 0 : s->scroll;
	canvas_text(c, row++, 1, c->cols, ST_BOLD, "%4s  %-10s %8s %9s %7s %9s %10s  %s", "",
		    "expert", "heat", "uses", "loads", "last load", "used, ago", "state");
	if (n == 0)
		canvas_text(c, row, 1, c->cols, ST_DIM, "no expert was used yet");
	for (int i = s->scroll; i < n && row < end; i++)
		draw_hottest_line(c, row++, i + 1, &s->now.expert[i]);
	return row;
}

/* -- all of it -----------------------------------------------------------------------------------------------
 */

static void draw_overview(struct canvas *c, int row, int end, const struct top_state *s)
{
	int times = c->rows >= 40 ? 2 : 1, hottest = c->cols - HOTTEST_COLS;

	row = draw_summary(c, row, s);
	draw_graph(c, row, times * GRAPH_ROWS, s);
	row = draw_drives(c, row + times * GRAPH_ROWS, times * DRIVES_SHOWN, s) + 1;
	top_draw_map(c, row, 1, end - row, hottest - 3, &s->now.map);
	draw_hottest_short(c, row, end - row, hottest, s);
}

/* On paper: all there is. */
static void draw_all(struct canvas *c, struct top_state *s)
{
	int row = draw_summary(c, 1, s) + 1, experts = (int)s->now.experts;

	row = draw_drives(c, row, TOP_DRIVES, s) + 1;
	row = draw_hottest(c, row, row + 1 + (experts > PLAIN_HOTTEST ? PLAIN_HOTTEST : experts),
			   s) +
	      1;
	row = top_draw_map(c, row, 1, PLAIN_MAP, c->width - 1, &s->now.map);
	if (s->now.map.layers > 0)
		top_draw_legend(c, row, 6, c->width);
}

unsigned top_parts_of(const struct top_state *s)
{
	static const unsigned parts[VIEWS] = { [VIEW_OVERVIEW] = TOP_MAP | TOP_HOTTEST,
					       [VIEW_DRIVES] = 0,
					       [VIEW_MAP] = TOP_MAP,
					       [VIEW_HOTTEST] = TOP_HOTTEST };

	return parts[s->view];
}

void top_draw(struct canvas *c, struct top_state *s)
{
	int end = c->rows - 1;

	draw_title(c, s);
	if (c->plain) {
		draw_all(c, s);
		return;
	}
	draw_tabs(c, s);
	if (!s->alive)
		draw_gone(c, s);
	if (!s->now.store[0])
		return;
	switch (s->view) {
	case VIEW_DRIVES:
		draw_drives_view(c, 3, end, s);
		break;
	case VIEW_MAP:
		top_draw_map(c, 2, 1, end - 3, c->cols - 2, &s->now.map);
		top_draw_legend(c, end - 1, 1, c->cols);
		break;
	case VIEW_HOTTEST:
		draw_hottest(c, 2, end, s);
		break;
	default:
		draw_overview(c, 2, end, s);
	}
}
