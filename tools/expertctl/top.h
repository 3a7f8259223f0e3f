/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl top: what its parts share.
 *
 *	top.c         command line, the loop, keys
 *	top_data.c    the daemon's texts -> struct top_sample (hostile text is refused or cut)
 *	top_reader.c  a thread that fetches a sample now and then: a daemon that hangs stops no key
 *	top_history.c samples -> rates, and the rates of the last minutes
 *	top_views.c, top_map.c  rates and samples -> a canvas
 *	top_canvas.c  a grid of characters with styles; prints itself as plain text
 *	top_screen.c  the canvas on a terminal, with ncurses
 */
#ifndef EXPERTCTL_TOP_H
#define EXPERTCTL_TOP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "expertfs/fail.h"

/* -- top_data.c: one picture of the daemon ---------------------------------------------------------- */

#define TOP_NAME   128 /* bytes of mode, policy and the like */
#define TOP_DRIVES 257 /* STORE_DRIVES_MAX and the hot one */

/* Numbers that the daemon did not give are NAN. */
struct top_drive {
	unsigned number;
	char path[PATH_MAX], state[TOP_NAME], role[TOP_NAME];
	double bytes, speed, gb_per_s, queue[3], p50_ms, p99_ms, in_flight, errors, reads;
};

struct top_expert {
	unsigned layer, expert;
	double heat, uses, loads, last_use, load_ms;
	char state[16];
	bool pinned, held;
};

/* The text of .expertfs/map (expertfs/stats.h). Experts that are not there are '-'. */
struct top_map {
	double hottest;
	unsigned layers, experts; /* rows, and the longest row */
	unsigned *number;         /* of each layer */
	char *cell;               /* layers * experts */
};

enum top_parts { TOP_MAP = 1, TOP_HOTTEST = 2 }; /* besides stats.json, which is always read */

struct top_sample {
	int err; /* 0, or negative errno and a sentence, and nothing else is set */
	char why[WHY_MAX];
	double time; /* seconds of CLOCK_MONOTONIC, when it was taken */
	char store[PATH_MAX], mode[TOP_NAME], policy[TOP_NAME];
	double uptime;
	double budget, used, capacity, slots, mapped;
	double total, resident, held, loading, pinned;
	double opens, hits, misses, evictions, promotions, errors, bytes_read;
	double hit_rate, hit_rate_1m, p50_ms, p95_ms, p99_ms;
	double prefetch_loaded, prefetch_used, prefetch_wasted;
	unsigned drives, experts;
	struct top_drive *drive;
	struct top_expert *expert; /* hottest first */
	struct top_map map;
};

/* Reads and parses. parts: enum top_parts. Never fails but with s->err; top_sample_free() it. A daemon
 * without map or top (of another version) gives none: no error. */
void top_sample_take(struct top_sample *s, const char *mount, unsigned parts);
void top_sample_free(struct top_sample *s); /* an all-zero one is fine */

/* The parsers: text is zero-terminated. 0, -EBADMSG or -ENOMEM with the sentence. */
int top_parse_stats(struct top_sample *s, const char *text, size_t bytes, char *why);
int top_parse_map(struct top_map *m, const char *text, char *why);
int top_parse_hottest(struct top_sample *s, const char *text, char *why);

/* -- top_reader.c ------------------------------------------------------------------------------------ */

struct top_reader;
/* NULL: out of memory or threads. mount must live as long. */
struct top_reader *top_reader_start(const char *mount);
/* Asks for one sample; top_reader_fd() becomes readable when it is there. Asking again before that is
 * no second one. */
void top_reader_ask(struct top_reader *r, unsigned parts);
int top_reader_fd(const struct top_reader *r);
/* Takes the sample over into *s. False if there is none. */
bool top_reader_take(struct top_reader *r, struct top_sample *s);
/* Ends it. A thread that waits for a daemon that hangs is left behind: it ends with the process. */
void top_reader_stop(struct top_reader *r);

/* -- top_history.c ----------------------------------------------------------------------------------- */

#define TOP_HISTORY 600 /* intervals that are kept: more than a terminal has columns */

/* A ring of the last values; NAN where there was none. */
struct top_series {
	unsigned n, next;
	float value[TOP_HISTORY];
};
void top_series_add(struct top_series *s, double v);
/* back: 0 is the newest. NAN if there is none. */
double top_series_at(const struct top_series *s, unsigned back);

struct top_drive_rate {
	unsigned number;
	double bytes;      /* of the last sample */
	double rate, best; /* bytes/s now; the best so far */
	struct top_series rates;
};

struct top_history {
	bool begun;
	double time, uptime, opens, hits, evictions; /* of the last sample */
	double opens_rate, evictions_rate, hit_rate; /* of the last interval, NAN: not known */
	double bytes_rate;                           /* all drives */
	struct top_series hit_rates, bytes_rates;
	unsigned drives;
	struct top_drive_rate *drive; /* TOP_DRIVES; in order of appearance */
};

/* The first sample gives the averages since the mount, as vmstat does; later ones those of the time
 * between the two. After a restart of the daemon it begins anew, and so after a gap. */
void top_history_add(struct top_history *h, const struct top_sample *s);
void top_history_gap(struct top_history *h); /* the daemon did not answer */
const struct top_drive_rate *top_history_drive(const struct top_history *h, unsigned number);
bool top_history_init(struct top_history *h); /* false: out of memory */
void top_history_free(struct top_history *h);

/* -- top_canvas.c ------------------------------------------------------------------------------------ */

enum top_style {
	ST_PLAIN,
	ST_DIM,
	ST_BOLD,
	ST_TITLE,
	ST_GOOD,
	ST_WARN,
	ST_BAD,
	ST_BAR,
	/* The map on terminals of few colours: none in memory, some, most, pinned. */
	ST_COLD,
	ST_SOME,
	ST_MOST,
	ST_PIN,
	/* The map in 256 colours: the level as background. */
	ST_HEAT,
	STYLES = ST_HEAT + 10
};

struct top_cell {
	wchar_t ch;
	uint8_t style;
};

struct canvas {
	int rows, cols;
	int width;   /* columns that are laid out for: less than cols where long lines may be */
	bool utf8;   /* block characters may be used */
	bool plain;  /* goes to paper: styles are not seen */
	int colours; /* 0, 8 or 256 */
	struct top_cell *cell;
};

/* All blank. False: out of memory. */
bool canvas_init(struct canvas *c, int rows, int cols);
void canvas_free(struct canvas *c);
/* One character; outside of the canvas nothing happens. */
void canvas_put(struct canvas *c, int row, int col, enum top_style st, wchar_t ch);
/* Text in the locale's encoding, cut at column `end`. Control characters and what is wider than a
 * column become '?'. Returns the column behind it. */
__attribute__((format(printf, 6, 7))) int canvas_text(struct canvas *c, int row, int col, int end,
						      enum top_style st, const char *fmt, ...);
/* How much of `cells` columns: "[####....]" or its like in blocks. share in 0..1, NAN: empty. */
void canvas_bar(struct canvas *c, int row, int col, int cells, enum top_style st, double share);
/* The series as columns of a graph, newest at the right, `top` being the full height. */
void canvas_graph(struct canvas *c, int row, int col, int rows, int cols, enum top_style st,
		  const struct top_series *s, double top);
/* Prints the rows up to the last that is not blank, without styles. 0 or negative errno. */
int canvas_print(const struct canvas *c);

/* -- top_views.c, top_map.c --------------------------------------------------------------------------- */

enum top_view { VIEW_OVERVIEW, VIEW_DRIVES, VIEW_MAP, VIEW_HOTTEST, VIEWS };

struct top_state {
	const char *mount;
	double interval;
	enum top_view view;
	int scroll;            /* first line of a list */
	bool alive;            /* the last sample was one */
	char why[WHY_MAX];     /* else this */
	double gone;           /* seconds since the last good sample */
	struct top_sample now; /* the last good one; all zero before the first */
	struct top_history history;
};

/* The parts of a sample that the view shows. */
unsigned top_parts_of(const struct top_state *s);
/* Draws a frame; corrects s->scroll if it is beyond the end. A plain canvas has all views, one under
 * the other, and no keys. */
void top_draw(struct canvas *c, struct top_state *s);
/* Layers x experts into a box, several to a cell if need be; the title line on top is part of it.
 * Returns the row behind the last. */
int top_draw_map(struct canvas *c, int row, int col, int rows, int cols, const struct top_map *m);
/* What the characters mean, one line. */
void top_draw_legend(struct canvas *c, int row, int col, int end);
/* A file's path in so many columns: its end, which tells them apart. */
int top_draw_path(struct canvas *c, int row, int col, int end, enum top_style st, const char *path);

/* -- top_screen.c -------------------------------------------------------------------------------------- */

enum top_key {
	TK_NOTHING,
	TK_QUIT,
	TK_NEXT,
	TK_PREVIOUS,
	TK_LINE_UP,
	TK_LINE_DOWN,
	TK_PAGE_UP,
	TK_PAGE_DOWN,
	TK_FASTER,
	TK_SLOWER,
	TK_REDRAW,
	TK_VIEW /* + enum top_view */
};

/* Takes the terminal over; -ENOTTY: there is none, or it cannot move its cursor. It is given back by
 * screen_end(), which exit() calls if need be. */
int screen_begin(void);
void screen_end(void);
/* A canvas of the terminal's present size. */
bool screen_canvas(struct canvas *c);
void screen_show(const struct canvas *c);
/* The next key that was pressed; TK_NOTHING: none. */
int screen_key(void);

#endif
