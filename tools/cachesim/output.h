/* SPDX-License-Identifier: Apache-2.0
 *
 * What cachesim says of a grid that has run: a table for people, CSV for programs, a plot.
 */
#ifndef CACHESIM_OUTPUT_H
#define CACHESIM_OUTPUT_H

#include "tools/cachesim/replay.h"

void output_table(FILE *f, const struct grid *g);
/* Columns: trace, policy, capacity (bytes), events, uses, hits, hit_rate, byte_hit_rate,
 * misses_per_token; rates from 0 to 1. */
void output_csv(FILE *f, const struct grid *g);
/* Hit rate over capacity, a panel for each trace, a line for each policy, Belady's MIN dashed. */
void output_svg(FILE *f, const struct grid *g);

/* What a capacity in percent of total comes to: whole bytes. */
uint64_t percent_bytes(double percent, uint64_t total);
/* The shortest percentage of total that is this capacity, as the command line counts: "5" for 51 of
 * 1024. Writes into buf (at least 16 bytes) and returns it. */
const char *percent_text(uint64_t capacity, uint64_t total, char *buf);

#endif
