/* SPDX-License-Identifier: Apache-2.0
 *
 * What the daemon tells of itself, made of figures by hand: stats.json and the metrics say the same,
 * paths of any bytes do no harm, and map and list of the hottest are what stats.h says.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/figures.h"
#include "expertfs/stats.h"

#include <cmocka.h> /* last: its fail() is a macro */

/* Every figure another number: what is mixed up is seen. */
static void fill(const struct figure *table, void *base, unsigned first)
{
	for (const struct figure *f = table; f->member; f++, first++) {
		uint64_t count = f->type == BOOL ? 1 : 1000000000000000000u + first;
		double real = first + 0.25;
		if (f->type == COUNT || f->type == BOOL)
			memcpy((char *)base + f->offset, &count, sizeof(count));
		else
			memcpy((char *)base + f->offset, &real, sizeof(real));
	}
}

static void make(struct fs_figures *f, struct drive_figures d[2])
{
	*f = (struct fs_figures){ .store = "/s\n\"\\\303\244", .mode = "direct", .io = "threads" };
	snprintf(f->hot.spec, sizeof(f->hot.spec), "lfru:weight=0.3");
	fill(fs_figure_table, f, 1);
	f->drives = 2;
	f->drive = d;
	d[0] = (struct drive_figures){ .number = 0, .path = "/a", .role = "store", .state = "ok" };
	d[1] = (struct drive_figures){
		.number = 256, .path = "\"\\\n,}", .role = "hot", .state = "failing"
	};
	fill(drive_figure_table, &d[0], 100);
	fill(drive_figure_table, &d[1], 200);
}

static const json_t *member(const json_t *o, const char *path)
{
	const char *dot = strchr(path, '.');
	char outer[64];

	if (!dot)
		return json_object_get(o, path);
	snprintf(outer, sizeof(outer), "%.*s", (int)(dot - path), path);
	return json_object_get(json_object_get(o, outer), dot + 1);
}

static void check_json(const struct figure *table, const void *base, const json_t *o)
{
	for (const struct figure *f = table; f->member; f++) {
		const json_t *v = member(o, f->member);
		if (f->type == COUNT)
			assert_int_equal(json_integer_value(v), figure_count(f, base));
		else if (f->type == BOOL)
			assert_true(json_is_boolean(v) &&
				    json_is_true(v) == (figure_count(f, base) != 0));
		else
			assert_true(json_is_real(v) && json_real_value(v) == figure_value(f, base));
	}
}

static void test_json(void **state)
{
	struct fs_figures f;
	struct drive_figures d[2];
	const json_t *drives;
	json_t *o;
	char *text;

	(void)state;
	make(&f, d);
	text = figures_json(&f);
	assert_non_null(text);
	o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	free(text);
	assert_non_null(o);
	assert_int_equal(json_integer_value(json_object_get(o, "version")), 1);
	assert_string_equal(json_string_value(json_object_get(o, "store")), f.store);
	assert_string_equal(json_string_value(json_object_get(o, "policy")), "lfru:weight=0.3");
	check_json(fs_figure_table, &f, o);
	drives = json_object_get(o, "drives");
	assert_int_equal(json_array_size(drives), 2);
	for (size_t i = 0; i < 2; i++) {
		const json_t *drive = json_array_get(drives, i);
		check_json(drive_figure_table, &d[i], drive);
		assert_int_equal(json_integer_value(json_object_get(drive, "number")), d[i].number);
		assert_string_equal(json_string_value(json_object_get(drive, "path")), d[i].path);
		assert_string_equal(json_string_value(json_object_get(drive, "state")), d[i].state);
	}
	json_decref(o);
}

/* The line of this text that begins like that; its value. */
static const char *sample(const char *text, const char *start)
{
	const char *at = strstr(text, start);

	while (at && at > text && at[-1] != '\n')
		at = strstr(at + 1, start);
	if (!at)
		fail_msg("no line %s", start);
	return at + strlen(start);
}

static void check_metrics(const struct figure *table, const void *base, const char *labels,
			  const char *text)
{
	static const double unit[] = { [REAL] = 1, [MS] = 1e-3, [GB] = 1e9 };
	char start[256];

	for (const struct figure *f = table; f->member; f++) {
		bool any = *labels || f->label;
		const char *value;
		snprintf(start, sizeof(start), "expertfs_%s%s%s%s%s%s ", f->metric, any ? "{" : "",
			 labels, *labels && f->label ? "," : "", f->label ? f->label : "",
			 any ? "}" : "");
		value = sample(text, start);
		if (f->type == COUNT || f->type == BOOL)
			assert_true(strtoull(value, NULL, 10) == figure_count(f, base));
		else
			assert_float_equal(strtod(value, NULL) / unit[f->type],
					   figure_value(f, base), 1e-9);
	}
}

static void test_metrics(void **state)
{
	struct fs_figures f;
	struct drive_figures d[2];
	char *text;

	(void)state;
	make(&f, d);
	text = figures_metrics(&f);
	assert_non_null(text);
	check_metrics(fs_figure_table, &f, "", text);
	check_metrics(drive_figure_table, &d[0], "drive=\"0\",path=\"/a\"", text);
	check_metrics(drive_figure_table, &d[1], "drive=\"256\",path=\"\\\"\\\\\\n,}\"", text);
	sample(text, "expertfs_info{version=\"" EXPERTFS_VERSION
		     "\",store=\"/s\\n\\\"\\\\\303\244\",mode=\"direct\",io=\"threads\","
		     "policy=\"lfru:weight=0.3\"} 1\n");
	sample(text, "expertfs_drive_state{drive=\"256\",path=\"\\\"\\\\\\n,}\",role=\"hot\","
		     "state=\"failing\"} 1\n");
	free(text);
}

/* Names are what Prometheus and the table's own rules ask for. */
static void check_names(const struct figure *table)
{
	for (const struct figure *f = table; f->member; f++) {
		size_t n = strlen(f->metric);
		bool total = n > 6 && strcmp(f->metric + n - 6, "_total") == 0;
		assert_true(total == (f->kind == COUNTER));
		assert_int_equal(strspn(f->metric, "abcdefghijklmnopqrstuvwxyz0123456789_"), n);
		assert_true((f->kind == SUMMARY) ==
			    (f->label && strncmp(f->label, "quantile=", 9) == 0));
		/* Those that share a name follow each other, and the first has the help. */
		if (f > table && strcmp(f->metric, f[-1].metric) == 0)
			assert_true(!*f->help && f->kind == f[-1].kind);
		else
			assert_true(*f->help != '\0');
		for (const struct figure *g = table; g < f; g++)
			assert_string_not_equal(f->member, g->member);
		for (const struct figure *g = table; g + 1 < f; g++)
			if (strcmp(f->metric, g->metric) == 0)
				assert_string_equal(f->metric, f[-1].metric);
	}
}

static void test_names(void **state)
{
	(void)state;
	check_names(fs_figure_table);
	check_names(drive_figure_table);
}

/* -- map and top ------------------------------------------------------------------------------------ */

static void test_map(void **state)
{
	struct store_expert e[] = {
		{ .layer = 3, .expert = 0 },    { .layer = 3, .expert = 1 },
		{ .layer = 3, .expert = 4 },    { .layer = 4, .expert = 2 },
		{ .layer = 1000, .expert = 0 }, { .layer = 1000, .expert = 1 },
		{ .layer = 1000, .expert = 2 }, { .layer = 1000, .expert = 3 }
	};
	struct hot_info info[] = { { .heat = 64, .state = HOT_RESIDENT },
				   { .heat = 33, .state = HOT_COLD },
				   { .heat = 32, .state = HOT_LOADING },
				   { .heat = 0, .state = HOT_RESIDENT, .pinned = true },
				   { .heat = 1e-9, .state = HOT_COLD },
				   { .heat = 64, .state = HOT_RESIDENT, .pinned = true },
				   { .heat = 0.25001, .state = HOT_COLD, .pinned = true },
				   { .heat = 16.5, .state = HOT_COLD } };
	struct store s = { .experts = 8, .expert = e };
	char *text;

	(void)state;
	text = map_text(&s, info);
	/* More than half of 64: 9; more than a quarter: 8; more than 64/2^8: 2. */
	assert_string_equal(text, "# hottest 64\n003 J9--i\n004 --K\n1000 1T28\n");
	free(text);
	for (int i = 0; i < 8; i++)
		info[i].heat = 0;
	text = map_text(&s, info);
	assert_string_equal(text, "# hottest 0\n003 A0--a\n004 --K\n1000 0K00\n");
	free(text);
	s.experts = 0;
	text = map_text(&s, info);
	assert_string_equal(text, "# hottest 0\n");
	free(text);
}

static void test_top(void **state)
{
	enum { N = 1000, SHOWN = 20 };
	static struct store_expert e[N];
	static struct hot_info info[N];
	struct store s = { .experts = N, .expert = e };
	char *text, *line, *save;
	double last = 1e9;
	int lines = 0;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		e[i] = (struct store_expert){ .layer = (uint16_t)(i / 100),
					      .expert = (uint16_t)(i % 100) };
		info[i].heat = i % 2 ? 0 : (i * 7919u) % 10007u;
		info[i].uses = i;
	}
	text = top_text(&s, info, SHOWN);
	line = strtok_r(text, "\n", &save);
	assert_string_equal(line, "# expert heat uses loads last_use load_ms state pinned held");
	while ((line = strtok_r(NULL, "\n", &save)) != NULL) {
		unsigned layer, expert, hotter = 0;
		double heat;
		assert_int_equal(sscanf(line, "%u/%u %lf", &layer, &expert, &heat), 3);
		assert_true(heat <= last && heat == info[layer * 100 + expert].heat);
		for (unsigned i = 0; i < N; i++)
			hotter += info[i].heat > heat;
		assert_true(hotter <= (unsigned)lines);
		last = heat;
		lines++;
	}
	assert_int_equal(lines, SHOWN);
	free(text);
	/* Fewer that were used than asked for. */
	memset(info, 0, sizeof(info));
	info[117] = (struct hot_info){ .heat = 2.5,
				       .uses = 3,
				       .loads = 1,
				       .last_use = 1764446000,
				       .load_ns = 2500000,
				       .state = HOT_RESIDENT,
				       .pinned = true,
				       .held = true };
	text = top_text(&s, info, SHOWN);
	assert_string_equal(text, "# expert heat uses loads last_use load_ms state pinned held\n"
				  "1/17 2.5 3 1 1764446000 2.500 resident pinned held\n");
	free(text);
	text = top_text(&s, info, 0);
	assert_string_equal(text, "# expert heat uses loads last_use load_ms state pinned held\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_json),  cmocka_unit_test(test_metrics),
		cmocka_unit_test(test_names), cmocka_unit_test(test_map),
		cmocka_unit_test(test_top),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
