/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of traces. The first character that is no comment tells the format: '{' begins JSON lines,
 * "expertfs-trace" our own, anything else is the header of a CSV table.
 *
 * A file may hold anything: lines are bounded, and what they say is checked in trace.c.
 */
#include "tools/cachesim/trace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cachepolicy/trace.h"
#include "expertfs/fail.h"

#define MAX_LINE  (1u << 20)
#define MAX_EVENT (MAX_LINE / 2)

enum format { UNKNOWN, OWN, CSV, JSON };

struct reader {
	struct trace *trace;
	const struct trace_options *opt;
	enum format format;
	struct trace_csv csv;
	char *line;
	struct cp_use *uses;
	size_t number; /* of the line, from 1 */
};

int trace_line_own(struct trace *t, const char *line, struct cp_use *uses, size_t room, char *why)
{
	struct cp_trace_line l;
	int err = cp_trace_parse(line, uses, room, &l);

	if (err)
		return fail(why, -err, "this is no line of an expertfs trace");
	switch (l.kind) {
	case CP_TRACE_HEAD:
		return trace_geometry(t, l.layers, l.experts, why);
	case CP_TRACE_SIZE:
		return trace_layer_bytes(t, l.layer, l.bytes, why);
	case CP_TRACE_EVENT:
		break;
	case CP_TRACE_COMMENT:
		return 0;
	}
	if (t->events && l.time < t->times[t->events - 1])
		return fail(why, EINVAL, "the time goes back");
	err = trace_event(t, l.time, why);
	for (size_t k = 0; !err && k < l.n; k++)
		err = trace_use(t, uses[k].key >> 16, uses[k].key & 0xffff, uses[k].weight, why);
	return err;
}

static int take_line(struct reader *r, char *why)
{
	char *start = r->line + strspn(r->line, " \t\r");

	if (!*start)
		return 0;
	if (r->format == UNKNOWN && *start != '#') {
		if (*start == '{') {
			r->format = JSON;
		} else if (strncmp(start, "expertfs-trace", 14) == 0) {
			r->format = OWN;
			trace_forget_head(r->trace); /* to us a comment says nothing */
		} else {
			r->format = CSV;
		}
	}
	switch (r->format) {
	case OWN:
		return trace_line_own(r->trace, r->line, r->uses, MAX_EVENT, why);
	case JSON:
		return trace_line_json(r->trace, r->line, why);
	case UNKNOWN: /* comments before the header: the CSV files keep their sizes there */
	case CSV:
		break;
	}
	return trace_line_csv(r->trace, &r->csv, r->opt, start, why);
}

/* The next line without its newline. False at the end, on an error of the file, and on one in the
 * line: that is in *err with its sentence. */
static bool next_line(struct reader *r, FILE *f, int *err, char *why)
{
	size_t n = 0;
	int c;

	r->number++;
	while ((c = getc_unlocked(f)) != EOF && c != '\n') {
		if (c == 0)
			*err = fail(why, EINVAL, "the line holds a zero");
		else if (n == MAX_LINE - 1)
			*err = fail(why, EINVAL, "the line is longer than %u bytes", MAX_LINE);
		if (*err)
			return false;
		r->line[n++] = (char)c;
	}
	r->line[n] = '\0';
	return (n || c == '\n') && !ferror(f);
}

static int read_lines(struct reader *r, FILE *f, char *why)
{
	int err = 0;

	while (!err && next_line(r, f, &err, why))
		err = take_line(r, why);
	return err;
}

static int read_open(struct reader *r, FILE *f, const char *path, char *why)
{
	char what[WHY_MAX];
	int err = read_lines(r, f, what);

	if (err)
		return fail(why, -err, "%s:%zu: %s", path, r->number, what);
	if (ferror(f))
		return fail(why, errno, "%s: cannot be read: %s", path, strerror(errno));
	err = trace_finish(r->trace, what);
	return err ? fail(why, -err, "%s: %s", path, what) : 0;
}

int trace_read(const char *path, const struct trace_options *opt, struct trace **out, char *why)
{
	struct reader r = { .opt = opt,
			    .line = malloc(MAX_LINE),
			    .uses = malloc(MAX_EVENT * sizeof(struct cp_use)) };
	FILE *f = NULL;
	int err;

	if (r.line && r.uses && (f = fopen(path, "re"))) {
		err = trace_new(path, &r.trace, why);
		if (!err)
			err = read_open(&r, f, path, why);
		fclose(f);
	} else {
		err = fail(why, errno, "%s: %s", path, strerror(errno));
	}
	free(r.line);
	free(r.uses);
	if (err)
		trace_free(r.trace);
	else
		*out = r.trace;
	return err;
}

static int write_events(const struct trace *t, FILE *f)
{
	char *line = malloc(MAX_LINE);
	size_t start = 0;
	int n = line ? cp_trace_head(line, MAX_LINE, t->layers, t->experts) : -ENOMEM;

	if (n >= 0)
		fputs(line, f);
	for (uint32_t layer = 0; n >= 0 && t->sized && layer < t->layers; layer++) {
		if (!t->bytes[layer])
			continue;
		n = cp_trace_size(line, MAX_LINE, layer, t->bytes[layer]);
		if (n >= 0)
			fputs(line, f);
	}
	for (size_t e = 0; n >= 0 && e < t->events; e++) {
		n = cp_trace_event(line, MAX_LINE, t->times[e], &t->uses[start],
				   t->ends[e] - start);
		if (n >= 0)
			fputs(line, f);
		start = t->ends[e];
	}
	free(line);
	return n < 0 ? n : 0;
}

int trace_write(const struct trace *t, const char *path, char *why)
{
	FILE *f = fopen(path, "we");
	int err;

	if (!f)
		return fail(why, errno, "%s: %s", path, strerror(errno));
	err = write_events(t, f);
	if (!err && ferror(f))
		err = -EIO;
	if (fclose(f) != 0 && !err)
		err = -errno;
	return err ? fail(why, -err, "%s: cannot be written: %s", path, strerror(-err)) : 0;
}
