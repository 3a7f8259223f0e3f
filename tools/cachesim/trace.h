/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace in memory: who asked for which experts, layer event by layer event. Read from a file of
 * one of three formats (read.c tells them apart) or made by synthetic.c.
 */
#ifndef CACHESIM_TRACE_H
#define CACHESIM_TRACE_H

#include "cachepolicy/policy.h"

#include <stdio.h>

/* More than any model has, and little enough for a table a policy. */
#define TRACE_MAX_EXPERTS (1u << 20) /* layers times experts a layer */
#define TRACE_MAX_USES    (1u << 28)

struct trace {
	char *name;               /* of the file, or the synthetic spec */
	uint32_t layers, experts; /* geometry; while reading: as far as it was declared, or 0 */
	uint64_t *bytes;          /* of an expert, for each layer; 0: the layer has none */
	bool sized;               /* the trace says so; else 1 in each layer that is used */
	struct cp_use *uses;      /* each expert once an event, weights added up */
	size_t *ends;             /* of each event, in uses[] */
	uint64_t *times;
	size_t events, n_uses;
	uint64_t passes; /* over the layers: the events of the layer that has most; tokens */

	/* While reading. */
	size_t uses_room, events_room;
	uint32_t most_layer, most_expert;
	uint32_t *place; /* of each expert in uses[], if it is in the event that is being read */
	bool open;
};

/* The trace begins empty, with no geometry. 0 or -ENOMEM. */
int trace_new(const char *name, struct trace **out, char *why);
void trace_free(struct trace *t); /* NULL is fine */

/* Building one: a new event, its uses (all of one layer), and in the end the checks and the sums.
 * -EINVAL for what is out of range or too much, -ENOMEM. An event without uses is dropped. */
int trace_event(struct trace *t, uint64_t time, char *why);
int trace_use(struct trace *t, uint64_t layer, uint64_t expert, uint32_t weight, char *why);
int trace_geometry(struct trace *t, uint64_t layers, uint64_t experts, char *why);
int trace_layer_bytes(struct trace *t, uint64_t layer, uint64_t bytes, char *why);
void trace_forget_head(struct trace *t); /* geometry and sizes, before the first event */
int trace_finish(struct trace *t, char *why);

/* Bytes of all experts. */
uint64_t trace_total(const struct trace *t);

static inline uint64_t trace_bytes_of(const struct trace *t, cp_key key)
{
	return t->bytes[key >> 16];
}

struct trace_options {
	bool join_prompt; /* CSV: rows in a row of one layer and phase 0 are one event */
};

/* Reads a file whole. -errno with the sentence, which names the file and the line. */
int trace_read(const char *path, const struct trace_options *opt, struct trace **out, char *why);

/* Writes it in our own format (cachepolicy/trace.h). 0 or -errno. */
int trace_write(const struct trace *t, const char *path, char *why);

/* The three formats, one line at a time; state is theirs and starts zeroed. */
struct trace_csv {
	bool header, started;
	int column[5]; /* of turn, phase, step, layer, expert; -1: not there */
	uint64_t turn, phase, step, layer;
};

int trace_line_own(struct trace *t, const char *line, struct cp_use *uses, size_t room, char *why);
int trace_line_csv(struct trace *t, struct trace_csv *csv, const struct trace_options *opt,
		   char *line, char *why);
int trace_line_json(struct trace *t, const char *line, char *why);

#endif
