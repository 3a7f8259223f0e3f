/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl top without a daemon and a terminal: its parsers on good and hostile text, rates, the map
 * in boxes of any size, and every view on canvases of any size.
 */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "tools/expertctl/top.h"

#include <cmocka.h> /* last: its fail() is a macro */

static const char stats[] =
	"{\"store\": \"/data/tale\", \"mode\": \"direct\", \"policy\": \"lru\", \"uptime_s\": 100,"
	" \"memory\": {\"budget\": 4096, \"used\": 1024, \"slots\": 7, \"evicted_but_mapped\": 5},"
	" \"experts\": {\"total\": 32, \"resident\": 8, \"pinned\": 1},"
	" \"opens\": 1000, \"hits\": 750, \"hit_rate\": 0.75, \"errors\": 0,"
	" \"load_ms\": {\"p50\": 1.5}, \"prefetch\": {\"loaded\": 4, \"used\": 3},"
	" \"drives\": [{\"number\": 0, \"path\": \"/a/x.shard\", \"role\": \"store\", \"state\": "
	"\"ok\","
	"  \"bytes_read\": 1e9, \"speed\": 5e8, \"queue\": {\"demand\": 1, \"prefetch\": 2,"
	"  \"promotion\": 4}, \"read_ms\": {\"p99\": 2}}, 7,"
	" {\"number\": 256, \"path\": \"/b/x.hot\", \"role\": \"hot\", \"state\": \"failing\"}]}";

static const char map[] = "# hottest 40.5\n003 0J9-\n012 aTK0A\n";

static const char hottest[] = "# expert heat uses loads last_use load_ms state pinned held\n"
			      "3/117 40.5 1000 3 1764446000 2.5 resident pinned held\n"
			      "78/2 0.25 1 1 0 0.000 cold - -\n";

static void parse(struct top_sample *s, const char *a, const char *b, const char *c)
{
	char why[WHY_MAX];

	*s = (struct top_sample){ 0 };
	assert_int_equal(top_parse_stats(s, a, strlen(a), why), 0);
	assert_int_equal(top_parse_map(&s->map, b, why), 0);
	assert_int_equal(top_parse_hottest(s, c, why), 0);
}

/* -- parsers ---------------------------------------------------------------------------------------- */

static void test_parse(void **state)
{
	struct top_sample s;

	(void)state;
	parse(&s, stats, map, hottest);
	assert_string_equal(s.store, "/data/tale");
	assert_true(s.budget == 4096 && s.used == 1024 && s.mapped == 5 && s.pinned == 1);
	assert_true(s.opens == 1000 && s.hits == 750 && s.p50_ms == 1.5 && s.prefetch_used == 3);
	assert_true(isnan(s.capacity) && isnan(s.p99_ms) && isnan(s.hit_rate_1m));
	assert_int_equal(s.drives, 3);
	assert_string_equal(s.drive[0].path, "/a/x.shard");
	assert_true(s.drive[0].queue[2] == 4 && s.drive[0].p99_ms == 2 && isnan(s.drive[0].p50_ms));
	assert_string_equal(s.drive[1].path, "-");
	assert_int_equal(s.drive[2].number, 256);
	assert_true(s.map.hottest == 40.5);
	assert_int_equal(s.map.layers, 2);
	assert_int_equal(s.map.experts, 5);
	assert_int_equal(s.map.number[1], 12);
	assert_memory_equal(s.map.cell, "0J9--aTK0A", 10);
	assert_int_equal(s.experts, 2);
	assert_int_equal(s.expert[0].layer, 3);
	assert_int_equal(s.expert[0].expert, 117);
	assert_true(s.expert[0].heat == 40.5 && s.expert[0].loads == 3);
	assert_true(s.expert[0].pinned && s.expert[0].held && !s.expert[1].pinned);
	assert_string_equal(s.expert[1].state, "cold");
	top_sample_free(&s);
}

static void test_refused(void **state)
{
	static const char *const no_stats[] = { "", "[]", "7", "null", "{\"hits\": 1", "\"x\"" };
	static const char *const no_map[] = { "x\n",    "\n",         "003\n",     "003x0\n",
					      "-1 0\n", "123456 0\n", "003 00\n\n" };
	static const char *const no_list[] = { "x\n", "3/4\n", "3 4 1 1 1 1 1 cold\n",
					       "3/4 1 2 3 4 5\n" };
	char why[WHY_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(no_stats) / sizeof(no_stats[0]); i++) {
		struct top_sample s = { 0 };
		assert_int_equal(top_parse_stats(&s, no_stats[i], strlen(no_stats[i]), why),
				 -EBADMSG);
		top_sample_free(&s);
	}
	for (size_t i = 0; i < sizeof(no_map) / sizeof(no_map[0]); i++) {
		struct top_map m;
		assert_int_equal(top_parse_map(&m, no_map[i], why), -EBADMSG);
		assert_null(m.cell);
	}
	for (size_t i = 0; i < sizeof(no_list) / sizeof(no_list[0]); i++) {
		struct top_sample s = { 0 };
		assert_int_equal(top_parse_hottest(&s, no_list[i], why), -EBADMSG);
		top_sample_free(&s);
	}
}

/* One long row and many short ones: a table that nobody has the memory for. */
static void test_map_too_large(void **state)
{
	enum { ROWS = 2000, WIDE = 20000 };
	char *text = malloc(WIDE + ROWS * 6 + 8), *p = text, why[WHY_MAX];
	struct top_map m;

	(void)state;
	assert_non_null(text);
	p += sprintf(p, "000 ");
	memset(p, '0', WIDE);
	p += WIDE;
	for (int i = 0; i < ROWS; i++)
		p += sprintf(p, "\n001 0");
	assert_int_equal(top_parse_map(&m, text, why), -EBADMSG);
	assert_null(m.cell);
	free(text);
}

static void test_many_drives(void **state)
{
	char *text = malloc(100000), *p = text, why[WHY_MAX];
	struct top_sample s = { 0 };

	(void)state;
	assert_non_null(text);
	p += sprintf(p, "{\"drives\": [{}");
	for (int i = 0; i < 1000; i++)
		p += sprintf(p, ",{\"number\": %d}", i);
	sprintf(p, "]}");
	assert_int_equal(top_parse_stats(&s, text, strlen(text), why), 0);
	assert_int_equal(s.drives, TOP_DRIVES);
	top_sample_free(&s);
	free(text);
}

/* -- rates ------------------------------------------------------------------------------------------ */

static void test_series(void **state)
{
	struct top_series s = { 0 };

	(void)state;
	assert_true(isnan(top_series_at(&s, 0)));
	for (int i = 0; i < 3 * TOP_HISTORY; i++) {
		top_series_add(&s, i);
		assert_true(top_series_at(&s, 0) == i);
	}
	assert_true(top_series_at(&s, TOP_HISTORY - 1) == 2 * TOP_HISTORY);
	assert_true(isnan(top_series_at(&s, TOP_HISTORY)));
}

static void test_rates(void **state)
{
	struct top_drive d = { .number = 5, .bytes = 1e9 }, e = { .number = 6, .bytes = 100 };
	struct top_sample s = { .time = 1000,
				.uptime = 100,
				.opens = 1000,
				.hits = 750,
				.evictions = 10,
				.drives = 1,
				.drive = &d };
	struct top_drive both[2];
	struct top_history h;

	(void)state;
	assert_true(top_history_init(&h));
	top_history_add(&h, &s); /* averages since the mount */
	assert_true(h.opens_rate == 10 && h.hit_rate == 0.75 && h.evictions_rate == 0.1);
	assert_true(h.bytes_rate == 1e7);
	assert_int_equal(h.hit_rates.n, 0);
	s.time += 2;
	s.uptime += 2;
	s.opens += 20;
	s.hits += 5;
	d.bytes += 4e6;
	top_history_add(&h, &s);
	assert_true(h.opens_rate == 10 && h.hit_rate == 0.25 && h.evictions_rate == 0);
	assert_true(top_history_drive(&h, 5)->rate == 2e6 && top_history_drive(&h, 5)->best == 2e6);
	assert_null(top_history_drive(&h, 6));
	assert_int_equal(h.hit_rates.n, 1);
	/* No opens: no rate of hits. Another drive came. */
	both[0] = d;
	both[1] = e;
	s.time += 1;
	s.uptime += 1;
	s.drive = both;
	s.drives = 2;
	top_history_add(&h, &s);
	assert_true(h.opens_rate == 0 && isnan(h.hit_rate) &&
		    isnan(top_history_drive(&h, 6)->rate));
	assert_true(isnan(top_series_at(&h.hit_rates, 0)) &&
		    top_series_at(&h.hit_rates, 1) == 0.25);
	/* The daemon was gone for a while, and another one came. */
	top_history_gap(&h);
	assert_int_equal(h.bytes_rates.n, 3);
	s.time += 5;
	s.uptime = 4;
	s.opens = 8;
	s.hits = 8;
	both[0].bytes = 0;
	top_history_add(&h, &s);
	assert_true(h.opens_rate == 2 && h.hit_rate == 1 && top_history_drive(&h, 5)->rate == 0);
	top_history_free(&h);
}

/* -- canvas ----------------------------------------------------------------------------------------- */

static wchar_t at(const struct canvas *c, int row, int col)
{
	return c->cell[row * c->cols + col].ch;
}

/* The row as ASCII, '?' for the rest, without blanks at the end. */
static const char *row_text(const struct canvas *c, int row)
{
	static char text[512];
	int n = 0;

	for (int x = 0; x < c->cols && x < 511; x++) {
		text[x] = at(c, row, x) < 128 ? (char)at(c, row, x) : '?';
		n = text[x] != ' ' ? x + 1 : n;
	}
	text[n] = '\0';
	return text;
}

static void test_text(void **state)
{
	struct canvas c = { .utf8 = true };

	(void)state;
	assert_true(canvas_init(&c, 4, 10));
	assert_int_equal(canvas_text(&c, 0, 8, 10, ST_PLAIN, "abc"), 10);
	assert_int_equal(canvas_text(&c, 1, 2, 5, ST_PLAIN, "ab"), 4);
	assert_int_equal(canvas_text(&c, 1, 4, 5, ST_BAD, "XYZ"), 5);
	canvas_text(&c, 9, 0, 10, ST_PLAIN, "nowhere");
	canvas_text(&c, -1, -5, 10, ST_PLAIN, "nowhere");
	canvas_text(&c, 2, -2, 10, ST_PLAIN, "abcd");
	canvas_text(&c, 3, 0, 10, ST_PLAIN, "\303\244\033[\377\346\227\245");
	assert_string_equal(row_text(&c, 0), "        ab");
	assert_string_equal(row_text(&c, 1), "  abX");
	assert_int_equal(c.cell[10 + 4].style, ST_BAD);
	assert_string_equal(row_text(&c, 2), "cd");
	assert_true(at(&c, 3, 0) == 0xe4);
	/* Escape, a byte that is no character, and a character of two columns. */
	assert_string_equal(row_text(&c, 3) + 1, "?[??");
	canvas_free(&c);
}

static void test_bar(void **state)
{
	struct canvas c = { .utf8 = false };

	(void)state;
	assert_true(canvas_init(&c, 5, 12));
	canvas_bar(&c, 0, 0, 12, ST_BAR, 0);
	canvas_bar(&c, 1, 0, 12, ST_BAR, 0.5);
	canvas_bar(&c, 2, 0, 12, ST_BAR, 7);
	canvas_bar(&c, 3, 0, 12, ST_BAR, NAN);
	canvas_bar(&c, 4, 0, 12, ST_BAR, -1);
	assert_string_equal(row_text(&c, 0), "[..........]");
	assert_string_equal(row_text(&c, 1), "[#####.....]");
	assert_string_equal(row_text(&c, 2), "[##########]");
	assert_string_equal(row_text(&c, 3), "[..........]");
	assert_string_equal(row_text(&c, 4), "[..........]");
	canvas_free(&c);
}

static void test_graph(void **state)
{
	struct canvas c = { .utf8 = false };
	struct top_series s = { 0 };

	(void)state;
	assert_true(canvas_init(&c, 2, 6));
	top_series_add(&s, 0.5);
	top_series_add(&s, NAN);
	top_series_add(&s, 0);
	top_series_add(&s, 0.001);
	top_series_add(&s, 1);
	canvas_graph(&c, 0, 0, 2, 6, ST_GOOD, &s, 1);
	assert_string_equal(row_text(&c, 0), "     #");
	assert_string_equal(row_text(&c, 1), " # _.#");
	canvas_free(&c);
}

/* -- the map ---------------------------------------------------------------------------------------- */

static void make_map(struct top_map *m, unsigned layers, unsigned experts)
{
	*m = (struct top_map){ .layers = layers, .experts = experts };
	m->number = calloc(layers, sizeof(*m->number));
	m->cell = malloc((size_t)layers * experts);
	assert_true(m->number && m->cell);
	memset(m->cell, '0', (size_t)layers * experts);
	for (unsigned l = 0; l < layers; l++)
		m->number[l] = l + 3;
}

static void free_map(struct top_map *m)
{
	free(m->number);
	free(m->cell);
}

/* The cells of a canvas that are not ch; the place of the last of them. */
static int count_not(const struct canvas *c, int row, int col, wchar_t ch, int *y, int *x)
{
	int n = 0;

	for (int r = row; r < c->rows; r++)
		for (int k = col; k < c->cols; k++)
			if (at(c, r, k) != ch && at(c, r, k) != L' ') {
				*y = r;
				*x = k;
				n++;
			}
	return n;
}

/* The full model in a small terminal: each expert is in one cell, the one where it belongs. */
static void test_map_bins(void **state)
{
	static const unsigned layers[] = { 0, 1, 40, 75 }, experts[] = { 0, 3, 200, 255 };
	struct canvas c = { .plain = true };
	struct top_map m;
	int y = 0, x = 0;

	(void)state;
	make_map(&m, 76, 256);
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			char *cell = &m.cell[layers[i] * 256 + experts[j]];
			assert_true(canvas_init(&c, 20, 78));
			*cell = '9';
			/* 19 rows: 4 layers each; 73 columns: 4 experts each. */
			assert_int_equal(top_draw_map(&c, 0, 0, 20, 78, &m), 20);
			assert_int_equal(count_not(&c, 1, 5, L'0', &y, &x), 1);
			assert_int_equal(y, 1 + (int)layers[i] / 4);
			assert_int_equal(x, 5 + (int)experts[j] / 4);
			/* The mean of 512 and fifteen times nothing is 32: 2^5. */
			assert_int_equal(at(&c, y, x), L'5');
			*cell = '0';
			canvas_free(&c);
		}
	free_map(&m);
}

static void test_map_cells(void **state)
{
	struct canvas c = { .plain = true };
	struct top_map m;

	(void)state;
	make_map(&m, 2, 6);
	memcpy(m.cell, "0Bc-T9", 6);
	memcpy(m.cell + 6, "0000AA", 6);
	assert_true(canvas_init(&c, 3, 11));
	top_draw_map(&c, 0, 0, 3, 11, &m);
	/* The rows are as wide as the map; what loads is not in memory yet. */
	assert_string_equal(row_text(&c, 1), "   3 0B2 T9");
	assert_string_equal(row_text(&c, 2), "   4 0000AA");
	canvas_free(&c);
	/* Two to a cell: in memory if half of them are. */
	assert_true(canvas_init(&c, 3, 8));
	top_draw_map(&c, 0, 0, 3, 8, &m);
	assert_string_equal(row_text(&c, 1), "   3 B2T");
	assert_string_equal(row_text(&c, 2), "   4 00A");
	canvas_free(&c);
	/* Room for more: up to three columns each. */
	assert_true(canvas_init(&c, 3, 60));
	top_draw_map(&c, 0, 0, 3, 60, &m);
	assert_string_equal(row_text(&c, 2), "   4 000000000000AAAAAA");
	canvas_free(&c);
	free_map(&m);
}

/* -- the views -------------------------------------------------------------------------------------- */

static bool shows(const struct canvas *c, const char *text)
{
	for (int y = 0; y < c->rows; y++)
		if (strstr(row_text(c, y), text))
			return true;
	return false;
}

static void begin(struct top_state *s)
{
	*s = (struct top_state){ .mount = "/mnt/experts", .interval = 1 };
	assert_true(top_history_init(&s->history));
}

static void end(struct top_state *s)
{
	top_sample_free(&s->now);
	top_history_free(&s->history);
}

static void test_views(void **state)
{
	static const char *const words[VIEWS][5] = {
		{ "1.00 KiB of 4.00 KiB, 7 slots", "8 of 32 in memory, 1 pinned", "75.0 %",
		  "hot failing", "3/117" },
		{ "/a/x.shard", "/b/x.hot", "7 B", "500.0 MB/s", "1 B demand" },
		{ "2 layers x 5 experts", "  12 ", "heat", "most", "pinned" },
		{ "3/117", "78/2", "40.5", "pinned, held", "cold" },
	};
	struct top_state s;

	(void)state;
	begin(&s);
	parse(&s.now, stats, map, hottest);
	s.alive = true;
	top_history_add(&s.history, &s.now);
	for (int v = 0; v < (int)VIEWS; v++) {
		struct canvas c = { .colours = 8 };
		s.view = (enum top_view)v;
		assert_true(canvas_init(&c, 24, 80));
		top_draw(&c, &s);
		assert_true(shows(&c, "expertfs  /mnt/experts ") &&
			    shows(&c, " direct, lru, up 1 min, every 1 s"));
		for (int i = 0; i < 5; i++)
			if (!shows(&c, words[v][i]))
				fail_msg("view %d does not show %s", v, words[v][i]);
		canvas_free(&c);
	}
	end(&s);
}

static void test_gone(void **state)
{
	struct canvas c = { 0 };
	struct top_state s;

	(void)state;
	begin(&s);
	snprintf(s.why, sizeof(s.why), "no store is mounted on it");
	assert_true(canvas_init(&c, 24, 80));
	top_draw(&c, &s);
	assert_true(shows(&c, "waiting: no store is mounted on it"));
	canvas_free(&c);
	/* What was last known stays to be seen. */
	parse(&s.now, stats, map, hottest);
	s.gone = 61;
	assert_true(canvas_init(&c, 24, 80));
	top_draw(&c, &s);
	assert_true(shows(&c, "waiting, gone for 1 min: no store is mounted"));
	assert_true(shows(&c, "8 of 32 in memory"));
	canvas_free(&c);
	end(&s);
}

static void test_scroll(void **state)
{
	char text[8192] = "", why[WHY_MAX];
	struct canvas c = { 0 };
	struct top_state s;

	(void)state;
	begin(&s);
	for (int i = 0; i < 100; i++)
		sprintf(text + strlen(text), "7/%d %d 1 1 1 1 cold - -\n", i, 1000 - i);
	parse(&s.now, stats, map, "");
	free(s.now.expert);
	assert_int_equal(top_parse_hottest(&s.now, text, why), 0);
	s.alive = true;
	s.view = VIEW_HOTTEST;
	s.scroll = 1000;
	assert_true(canvas_init(&c, 24, 80));
	top_draw(&c, &s);
	assert_true(shows(&c, " 100  7/99 ") && !shows(&c, " 7/0 "));
	assert_int_equal(s.scroll, 100 - 20);
	canvas_free(&c);
	s.scroll = -3;
	assert_true(canvas_init(&c, 24, 80));
	top_draw(&c, &s);
	assert_true(shows(&c, "   1  7/0 "));
	assert_int_equal(s.scroll, 0);
	canvas_free(&c);
	end(&s);
}

/* Texts with bytes changed at random, on canvases of any size and kind: nothing may break. */
static char *changed(const char *text, unsigned *x)
{
	static const char odd[] = "0-9aTz/#\n \"{}[],:.e+\\\377";
	char *copy = strdup(text);
	size_t n = strlen(text);

	assert_non_null(copy);
	for (int i = 0; i < 3; i++) {
		*x = *x * 1103515245u + 12345u;
		if (*x >> 30)
			copy[(*x >> 8) % n] = odd[(*x >> 4) % (sizeof(odd) - 1)];
	}
	return copy;
}

static void test_anything(void **state)
{
	unsigned x = 1, good = 0;
	char why[WHY_MAX];

	(void)state;
	for (int i = 0; i < 3000; i++) {
		char *a = changed(stats, &x), *b = changed(map, &x), *d = changed(hottest, &x);
		struct canvas c = { .utf8 = i & 1,
				    .plain = i % 7 == 0,
				    .colours = i & 2 ? 256 : 8 };
		struct top_state s;
		begin(&s);
		s.view = (enum top_view)(i % (int)VIEWS);
		s.scroll = i % 50 - 25;
		s.alive = top_parse_stats(&s.now, a, strlen(a), why) == 0;
		if (top_parse_map(&s.now.map, b, why) == 0)
			good++;
		top_parse_hottest(&s.now, d, why);
		if (s.alive)
			top_history_add(&s.history, &s.now);
		x = x * 1103515245u + 12345u;
		assert_true(canvas_init(&c, 1 + (int)(x >> 8) % 60, 1 + (int)(x >> 16) % 200));
		top_draw(&c, &s);
		canvas_free(&c);
		end(&s);
		free(a);
		free(b);
		free(d);
	}
	assert_true(good > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),         cmocka_unit_test(test_refused),
		cmocka_unit_test(test_map_too_large), cmocka_unit_test(test_many_drives),
		cmocka_unit_test(test_series),        cmocka_unit_test(test_rates),
		cmocka_unit_test(test_text),          cmocka_unit_test(test_bar),
		cmocka_unit_test(test_graph),         cmocka_unit_test(test_map_bins),
		cmocka_unit_test(test_map_cells),     cmocka_unit_test(test_views),
		cmocka_unit_test(test_gone),          cmocka_unit_test(test_scroll),
		cmocka_unit_test(test_anything),
	};

	/* Debian has C.UTF-8 without any locale installed. */
	if (!setlocale(LC_CTYPE, "C.UTF-8")) {
		puts("there is no locale C.UTF-8");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
