/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of layers and experts in any box: where it has more of them than there is room for, several
 * share a cell, which has the mean heat of them.
 *
 * A cell says two things: how hot, and how much of it is in memory. On paper it is a character of the
 * daemon's own map (digits: not in memory, letters: in memory). On a terminal without 256 colours
 * the heat is the character and the residency the style; with them the heat is the background.
 */
#include "tools/expertctl/top.h"

#include <math.h>
#include <stdio.h>
#include <wchar.h>

#define NUMBER_COLS 5 /* "  76 " at the left */
#define WIDEST      3 /* columns an expert takes where there is room */

struct bin {
	int level;   /* of their mean heat; -1: no expert here */
	double heat; /* the sum of them, in units of level 0 */
	unsigned experts, resident, pinned;
};

static void add(struct bin *b, char ch)
{
	int level;

	if (ch == '-')
		return;
	level = ch <= '9' ? ch - '0' : ch >= 'a' ? ch - 'a' : ch >= 'K' ? ch - 'K' : ch - 'A';
	b->heat += level ? ldexp(1, level) : 0;
	b->experts++;
	b->resident += ch >= 'A' && ch <= 'T';
	b->pinned += ch >= 'K' && ch <= 'T';
}

static struct bin bin_of(const struct top_map *m, unsigned layer, unsigned layers, unsigned expert,
			 unsigned experts)
{
	struct bin b = { .level = -1 };

	for (unsigned l = layer; l < layer + layers && l < m->layers; l++)
		for (unsigned e = expert; e < expert + experts && e < m->experts; e++)
			add(&b, m->cell[(size_t)l * m->experts + e]);
	if (b.experts)
		b.level = b.heat > 0 ? (int)fmax(1, lround(log2(b.heat / b.experts))) : 0;
	return b;
}

static wchar_t level_char(const struct canvas *c, int level)
{
	static const wchar_t ascii[] = L".,:-=+*#%@", blocks[] = L"·░░░▒▒▒▓▓█";

	return c->utf8 ? blocks[level] : ascii[level];
}

/* How much of a cell is in memory. */
enum residency { NONE, SOME, MOST, PINNED };

static enum residency residency(const struct bin *b)
{
	return b->resident == 0               ? NONE
	       : b->resident * 2 < b->experts ? SOME
	       : b->pinned * 2 < b->experts   ? MOST
					      : PINNED;
}

static void draw_bin(struct canvas *c, int row, int col, int wide, const struct bin *b)
{
	static const wchar_t paper[] = {
		[NONE] = L'0', [SOME] = L'0', [MOST] = L'A', [PINNED] = L'K'
	};
	static const wchar_t ascii[] = L" .o^", marks[] = L" ·•^";
	enum residency r = residency(b);

	for (int i = 0; i < wide && b->level >= 0; i++) {
		if (c->plain)
			canvas_put(c, row, col + i, ST_PLAIN, paper[r] + b->level);
		else if (c->colours >= 256)
			canvas_put(c, row, col + i, ST_HEAT + (unsigned)b->level,
				   c->utf8 ? marks[r] : ascii[r]);
		else
			canvas_put(c, row, col + i, ST_COLD + (unsigned)r, level_char(c, b->level));
	}
}

static unsigned per_cell(unsigned n, int room)
{
	unsigned cells = room > 0 ? (unsigned)room : 1;

	return n ? (n + cells - 1) / cells : 1;
}

static void draw_title(struct canvas *c, int row, int col, int end, const struct top_map *m,
		       unsigned layers, unsigned experts)
{
	int at = canvas_text(c, row, col, end, ST_BOLD, "%u layers x %u experts", m->layers,
			     m->experts);

	if (layers > 1 || experts > 1)
		canvas_text(c, row, at, end, ST_DIM, ", a cell is %u x %u", layers, experts);
}

int top_draw_map(struct canvas *c, int row, int col, int rows, int cols, const struct top_map *m)
{
	int room = cols - NUMBER_COLS, wide, y = 1;
	unsigned layers = per_cell(m->layers, rows - 1), experts = per_cell(m->experts, room);

	if (m->layers == 0 || m->experts == 0) {
		canvas_text(c, row, col, col + cols, ST_DIM, "the daemon gives no map");
		return row + 1;
	}
	wide = room / (int)((m->experts + experts - 1) / experts);
	wide = wide > WIDEST ? WIDEST : wide;
	draw_title(c, row, col, col + cols, m, layers, experts);
	for (unsigned l = 0; l < m->layers && y < rows; l += layers, y++) {
		int x = col + NUMBER_COLS;
		canvas_text(c, row + y, col, col + NUMBER_COLS, ST_DIM, "%4u", m->number[l]);
		for (unsigned e = 0; e < m->experts && x + wide <= col + cols;
		     e += experts, x += wide) {
			struct bin b = bin_of(m, l, layers, e, experts);
			draw_bin(c, row + y, x, wide, &b);
		}
	}
	return row + y;
}

/* One sample of each level, then of each residency. */
void top_draw_legend(struct canvas *c, int row, int col, int end)
{
	static const struct {
		struct bin bin;
		const char *words;
	} what[] = { { { 4, 16, 1, 0, 0 }, "cold" },
		     { { 4, 32, 2, 1, 0 }, "some in memory" },
		     { { 4, 16, 1, 1, 0 }, "most" },
		     { { 4, 16, 1, 1, 1 }, "pinned" } };
	int at = canvas_text(c, row, col, end, ST_DIM, "heat ");

	for (int level = 0; level < 10 && at < end; level++) {
		struct bin b = { .level = level, .experts = 1 };
		draw_bin(c, row, at++, 1, &b);
	}
	if (c->plain) {
		canvas_text(c, row, at, end, ST_DIM, "   in memory ABCDEFGHIJ   pinned KLMNOPQRST");
		return;
	}
	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]) && at + 4 < end; i++) {
		draw_bin(c, row, at + 3, 1, &what[i].bin);
		at = canvas_text(c, row, at + 5, end, ST_DIM, "%s", what[i].words);
	}
}
