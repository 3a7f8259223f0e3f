/* SPDX-License-Identifier: Apache-2.0
 *
 * The format of our own traces: who asked for which experts, a line for each event. The daemon
 * writes it, cachesim reads it. Only the text of a line is made and understood here; files are the
 * callers'.
 *
 *	expertfs-trace 1 16 64          version, layers, experts a layer: the first line
 *	size 3 3059712                  an expert of layer 3 has so many bytes
 *	1718 3 17 4*12 60               time, layer, the experts: 12 tokens chose 4, one the others
 *	# anything                      a comment, anywhere; so is an empty line
 *
 * Times are microseconds of any monotonic clock and do not decrease. Numbers are decimal; words
 * are separated by one or more spaces or tabs. Sizes come before the first event; a layer without one
 * has no experts. If no layer has one, those that are asked for have experts of one byte.
 */
#ifndef CACHEPOLICY_TRACE_H
#define CACHEPOLICY_TRACE_H

#include "cachepolicy/policy.h"

enum cp_trace_kind { CP_TRACE_HEAD, CP_TRACE_SIZE, CP_TRACE_EVENT, CP_TRACE_COMMENT };

struct cp_trace_line {
	enum cp_trace_kind kind;
	uint32_t layers, experts; /* head */
	uint32_t layer;           /* size */
	uint64_t bytes;
	uint64_t time; /* event */
	size_t n;      /* of its uses */
};

/* Understands a line (without its newline). The uses of an event go into uses[], which has room
 * for so many: a line of n characters has n / 2 at most. 0, -EINVAL (not of this format, or a
 * number out of range), or -ENOSPC (no room). Keys are checked for 16 bits a part, not against the
 * head.
 */
int cp_trace_parse(const char *line, struct cp_use *uses, size_t room, struct cp_trace_line *out);

/* Write a line with its newline and return its length, or -ENOSPC. The uses of an event are all of
 * one layer, and one at least (-EINVAL). */
int cp_trace_head(char *buf, size_t size, uint32_t layers, uint32_t experts);
int cp_trace_size(char *buf, size_t size, uint32_t layer, uint64_t bytes);
int cp_trace_event(char *buf, size_t size, uint64_t time, const struct cp_use *uses, size_t n);

#endif
