/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces as CSV tables, a row for each expert that a token chose (the route traces of
 * BigMoeOnEdge):
 *
 *	# model=... arch=... n_layer=48 n_expert=128 n_expert_used=6
 *	# layer=0 expert_bytes=3059712 dense_bytes=11953152
 *	turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
 *	0,1,27,0,0,49,0.221297,0,3059712
 *
 * Rows that follow each other with the same turn, phase, step and layer are one event. The header
 * says which column is which; layer and expert must be there, turn, phase (0: prompt) and step
 * may. Their `weight` is the router's, not a number of tokens: each row counts as one. The
 * comments are optional.
 *
 * A prompt stands there token by token, layer after layer. That is how these files are replayed,
 * so that results can be compared with others'; an engine that opens each expert once a layer for
 * the whole prompt (ours) asks for what join_prompt makes of them.
 */
#include "tools/cachesim/trace.h"

#include <errno.h>
#include <string.h>

#include "expertfs/fail.h"

enum { TURN, PHASE, STEP, LAYER, EXPERT, COLUMNS };

static const char *const names[COLUMNS] = { "turn", "phase", "step", "layer", "expert" };

/* A whole field or word that is a number: digits up to the end or one of `stops`. */
static bool number(const char *s, const char *stops, uint64_t *value)
{
	const char *p = s;

	*value = 0;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (*value > UINT32_MAX * UINT64_C(1000000))
			return false;
		*value = *value * 10 + (uint64_t)(*p - '0');
	}
	return p != s && (!*p || strchr(stops, *p));
}

/* "key=NUMBER" among the words of a comment. */
static bool word(const char *comment, const char *key, uint64_t *value)
{
	size_t length = strlen(key);

	for (const char *p = comment; (p = strstr(p, key)); p += length)
		if ((p == comment || p[-1] == ' ' || p[-1] == '#') && p[length] == '=')
			return number(p + length + 1, " \t\r", value);
	return false;
}

static int take_comment(struct trace *t, const char *comment, char *why)
{
	uint64_t a, b;

	if (word(comment, "n_layer", &a) && word(comment, "n_expert", &b))
		return trace_geometry(t, a, b, why);
	if (word(comment, "layer", &a) && word(comment, "expert_bytes", &b))
		return trace_layer_bytes(t, a, b, why);
	return 0;
}

static int take_header(struct trace_csv *csv, char *line, char *why)
{
	char *rest = line, *field;

	for (int c = 0; c < COLUMNS; c++)
		csv->column[c] = -1;
	for (int at = 0; (field = strsep(&rest, ",")); at++)
		for (int c = 0; c < COLUMNS; c++)
			if (strcmp(field, names[c]) == 0)
				csv->column[c] = at;
	if (csv->column[LAYER] < 0 || csv->column[EXPERT] < 0)
		return fail(why, EINVAL,
			    "this is neither a trace nor the header of a table with the columns "
			    "layer and expert");
	csv->header = true;
	return 0;
}

static int take_fields(const struct trace_csv *csv, char *line, uint64_t value[COLUMNS], char *why)
{
	char *rest = line, *field;
	unsigned found = 0;

	memset(value, 0, COLUMNS * sizeof(value[0]));
	for (int at = 0; (field = strsep(&rest, ",")); at++) {
		for (int c = 0; c < COLUMNS; c++) {
			if (csv->column[c] != at)
				continue;
			if (!number(field, "", &value[c]))
				return fail(why, EINVAL, "the %s is no number", names[c]);
			found |= 1u << c;
		}
	}
	for (int c = 0; c < COLUMNS; c++)
		if (csv->column[c] >= 0 && !(found & 1u << c))
			return fail(why, EINVAL, "the row has no %s", names[c]);
	return 0;
}

int trace_line_csv(struct trace *t, struct trace_csv *csv, const struct trace_options *opt,
		   char *line, char *why)
{
	uint64_t value[COLUMNS];
	int err;

	line[strcspn(line, "\r")] = '\0';
	if (line[0] == '#')
		return take_comment(t, line, why);
	if (!csv->header)
		return take_header(csv, line, why);
	err = take_fields(csv, line, value, why);
	if (err)
		return err;
	if (opt->join_prompt && csv->column[PHASE] >= 0 && value[PHASE] == 0)
		value[STEP] = 0;
	if (!csv->started || value[TURN] != csv->turn || value[PHASE] != csv->phase ||
	    value[STEP] != csv->step || value[LAYER] != csv->layer) {
		err = trace_event(t, t->events, why);
		csv->started = true;
		csv->turn = value[TURN];
		csv->phase = value[PHASE];
		csv->step = value[STEP];
		csv->layer = value[LAYER];
	}
	return err ? err : trace_use(t, value[LAYER], value[EXPERT], 1, why);
}
