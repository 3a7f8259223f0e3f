/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's texts as numbers; see top.h. A daemon of another version may have written them, or
 * anybody: what is missing is NAN, what makes no sense is refused, every count is bounded.
 */
#include "tools/expertctl/top.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/expertctl/mountfile.h"

#define LAYERS_MAX  65536u
#define CELLS_MAX   (16u << 20)
#define HOTTEST_MAX 1024u

/* -- stats.json ----------------------------------------------------------------------------------------
 */

/* The number at a path of at most two names. */
static double number(const json_t *o, const char *outer, const char *inner)
{
	const json_t *v = json_object_get(o, outer);

	if (inner)
		v = json_object_get(v, inner);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

static void string(const json_t *o, const char *name, char *buf, size_t size)
{
	const char *text = json_string_value(json_object_get(o, name));

	snprintf(buf, size, "%s", text ? text : "-");
}

static void parse_drive(const json_t *o, struct top_drive *d)
{
	static const char *const classes[] = { "demand", "prefetch", "promotion" };
	double n = number(o, "number", NULL);

	d->number = n >= 0 && n < TOP_DRIVES ? (unsigned)n : TOP_DRIVES;
	string(o, "path", d->path, sizeof(d->path));
	string(o, "state", d->state, sizeof(d->state));
	string(o, "role", d->role, sizeof(d->role));
	d->bytes = number(o, "bytes_read", NULL);
	d->speed = number(o, "speed", NULL);
	d->gb_per_s = number(o, "gb_per_s", NULL);
	for (int i = 0; i < 3; i++)
		d->queue[i] = number(o, "queue", classes[i]);
	d->p50_ms = number(o, "read_ms", "p50");
	d->p99_ms = number(o, "read_ms", "p99");
	d->in_flight = number(o, "in_flight", NULL);
	d->errors = number(o, "errors", NULL);
	d->reads = number(o, "reads", NULL);
}

static void parse_totals(struct top_sample *s, const json_t *o)
{
	const struct {
		double *to;
		const char *outer, *inner;
	} fields[] = {
		{ &s->uptime, "uptime_s", NULL },
		{ &s->budget, "memory", "budget" },
		{ &s->used, "memory", "used" },
		{ &s->capacity, "memory", "capacity" },
		{ &s->slots, "memory", "slots" },
		{ &s->mapped, "memory", "evicted_but_mapped" },
		{ &s->total, "experts", "total" },
		{ &s->resident, "experts", "resident" },
		{ &s->held, "experts", "held" },
		{ &s->loading, "experts", "loading" },
		{ &s->pinned, "experts", "pinned" },
		{ &s->opens, "opens", NULL },
		{ &s->hits, "hits", NULL },
		{ &s->misses, "misses", NULL },
		{ &s->evictions, "evictions", NULL },
		{ &s->promotions, "promotions", NULL },
		{ &s->errors, "errors", NULL },
		{ &s->bytes_read, "bytes_read", NULL },
		{ &s->hit_rate, "hit_rate", NULL },
		{ &s->hit_rate_1m, "hit_rate_1m", NULL },
		{ &s->p50_ms, "load_ms", "p50" },
		{ &s->p95_ms, "load_ms", "p95" },
		{ &s->p99_ms, "load_ms", "p99" },
		{ &s->prefetch_loaded, "prefetch", "loaded" },
		{ &s->prefetch_used, "prefetch", "used" },
		{ &s->prefetch_wasted, "prefetch", "wasted" },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		*fields[i].to = number(o, fields[i].outer, fields[i].inner);
	string(o, "store", s->store, sizeof(s->store));
	string(o, "mode", s->mode, sizeof(s->mode));
	string(o, "policy", s->policy, sizeof(s->policy));
}

int top_parse_stats(struct top_sample *s, const char *text, size_t bytes, char *why)
{
	json_error_t where;
	/* As reals, an integer of any size is no error. */
	json_t *root = json_loadb(text, bytes, JSON_DECODE_INT_AS_REAL, &where);
	const json_t *drives = json_object_get(root, "drives");
	size_t n = json_array_size(drives);
	int err = 0;

	if (!json_is_object(root)) {
		err = fail(why, EBADMSG, "stats.json is not a JSON object (line %d)", where.line);
		json_decref(root);
		return err;
	}
	parse_totals(s, root);
	if (n > TOP_DRIVES)
		n = TOP_DRIVES;
	s->drive = calloc(n ? n : 1, sizeof(*s->drive));
	if (!s->drive)
		err = fail(why, ENOMEM, "out of memory");
	for (; !err && s->drives < n; s->drives++)
		parse_drive(json_array_get(drives, s->drives), &s->drive[s->drives]);
	json_decref(root);
	return err;
}

/* -- map ------------------------------------------------------------------------------------------------
 */

static bool is_cell(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'j') || (c >= 'A' && c <= 'T');
}

/* Counts the layers and the longest row. False if a line is no row. */
static bool measure_map(struct top_map *m, const char *text)
{
	for (const char *line = text; *line;) {
		size_t digits = strspn(line, "0123456789"), length = strcspn(line, "\n");
		size_t cells = length - digits - 1;
		if (*line != '#') {
			if (digits == 0 || digits > 5 || line[digits] != ' ' ||
			    cells >= CELLS_MAX || m->layers == LAYERS_MAX)
				return false;
			m->layers++;
			m->experts = cells > m->experts ? (unsigned)cells : m->experts;
		}
		line += length + (line[length] == '\n');
	}
	return (uint64_t)m->layers * m->experts <= CELLS_MAX;
}

static void fill_map(struct top_map *m, const char *text)
{
	unsigned layer = 0;

	memset(m->cell, '-', (size_t)m->layers * m->experts);
	for (const char *line = text; *line;) {
		size_t length = strcspn(line, "\n");
		if (*line != '#') {
			const char *cells = strchr(line, ' ') + 1;
			m->number[layer] = (unsigned)strtoul(line, NULL, 10);
			for (unsigned e = 0; cells + e < line + length; e++)
				if (is_cell(cells[e]))
					m->cell[(size_t)layer * m->experts + e] = cells[e];
			layer++;
		} else if (strncmp(line, "# hottest ", 10) == 0) {
			m->hottest = strtod(line + 10, NULL);
		}
		line += length + (line[length] == '\n');
	}
}

int top_parse_map(struct top_map *m, const char *text, char *why)
{
	*m = (struct top_map){ .hottest = NAN };
	if (!measure_map(m, text)) {
		*m = (struct top_map){ 0 };
		return fail(why, EBADMSG, ".expertfs/map is not a map of experts");
	}
	m->number = calloc(m->layers + 1u, sizeof(*m->number));
	m->cell = malloc((size_t)m->layers * m->experts + 1);
	if (!m->number || !m->cell)
		return fail(why, ENOMEM, "out of memory");
	fill_map(m, text);
	return 0;
}

/* -- top ------------------------------------------------------------------------------------------------
 */

static bool parse_expert(struct top_expert *e, const char *line)
{
	char pinned[16] = "", held[16] = "";

	*e = (struct top_expert){ 0 };
	if (sscanf(line, "%5u/%5u %lf %lf %lf %lf %lf %15s %15s %15s", &e->layer, &e->expert,
		   &e->heat, &e->uses, &e->loads, &e->last_use, &e->load_ms, e->state, pinned,
		   held) < 8)
		return false;
	e->pinned = strcmp(pinned, "pinned") == 0;
	e->held = strcmp(held, "held") == 0;
	return true;
}

int top_parse_hottest(struct top_sample *s, const char *text, char *why)
{
	char line[512];

	s->expert = calloc(HOTTEST_MAX, sizeof(*s->expert));
	if (!s->expert)
		return fail(why, ENOMEM, "out of memory");
	while (*text && s->experts < HOTTEST_MAX) {
		size_t length = strcspn(text, "\n");
		/* sscanf() would look for the end of all the text each time. */
		snprintf(line, sizeof(line), "%.*s", (int)(length < 500 ? length : 500), text);
		if (*line && *line != '#' && !parse_expert(&s->expert[s->experts++], line))
			return fail(why, EBADMSG, ".expertfs/top is not a list of experts");
		text += length + (text[length] == '\n');
	}
	return 0;
}

/* -- all -------------------------------------------------------------------------------------------------
 */

static int read_stats(struct top_sample *s, const char *mount)
{
	char *text = NULL;
	size_t bytes;
	int err = mountfile_read(mount, "stats.json", &text, &bytes, s->why);

	err = err ? err : top_parse_stats(s, text, bytes, s->why);
	free(text);
	return err;
}

/* One of the files that an older daemon may not have. */
static int read_part(struct top_sample *s, const char *mount, const char *name)
{
	char *text = NULL;
	size_t bytes;
	int err = mountfile_read(mount, name, &text, &bytes, s->why);

	if (err == 0 && strcmp(name, "map") == 0)
		err = top_parse_map(&s->map, text, s->why);
	else if (err == 0)
		err = top_parse_hottest(s, text, s->why);
	free(text);
	return err == -ENOENT ? 0 : err;
}

void top_sample_take(struct top_sample *s, const char *mount, unsigned parts)
{
	struct timespec t;

	*s = (struct top_sample){ 0 };
	clock_gettime(CLOCK_MONOTONIC, &t);
	s->time = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
	s->err = read_stats(s, mount);
	if (s->err == 0 && (parts & TOP_MAP))
		s->err = read_part(s, mount, "map");
	if (s->err == 0 && (parts & TOP_HOTTEST))
		s->err = read_part(s, mount, "top");
}

void top_sample_free(struct top_sample *s)
{
	free(s->drive);
	free(s->expert);
	free(s->map.number);
	free(s->map.cell);
	*s = (struct top_sample){ 0 };
}
