/* SPDX-License-Identifier: Apache-2.0
 *
 * The table and the CSV file of cachesim. The plot is in svg.c.
 */
#include "tools/cachesim/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/size.h"

/* Names come from the command line: a terminal gets plain text. */
static void put_plain(FILE *f, const char *s)
{
	for (; *s; s++)
		fputc((unsigned char)*s < 32 || *s == 127 ? '?' : *s, f);
}

static void table_head(FILE *f, const struct trace *t)
{
	char size[16];

	put_plain(f, t->name);
	fprintf(f, ": %u layers of %u experts%s%s, %zu events, %zu uses, %" PRIu64 " tokens\n",
		t->layers, t->experts, t->sized ? ", in all " : "",
		t->sized ? size_text(trace_total(t), size) : "", t->events, t->n_uses, t->passes);
}

/* Whole percents are multiplied first: 29 / 100 * 100 is less than 29. */
uint64_t percent_bytes(double percent, uint64_t total)
{
	return (uint64_t)floor(percent * (double)total / 100);
}

const char *percent_text(uint64_t capacity, uint64_t total, char *buf)
{
	double percent = 100 * (double)capacity / (double)total;

	for (int digits = 0; digits <= 2; digits++) {
		snprintf(buf, 16, "%.*f", digits, percent);
		if (percent_bytes(strtod(buf, NULL), total) == capacity)
			break;
	}
	return buf;
}

static int name_width(const struct grid *g)
{
	size_t width = 16;

	for (size_t p = 0; p < g->policies; p++)
		if (strlen(g->policy[p]) > width)
			width = strlen(g->policy[p]);
	return (int)width;
}

static void table_row(FILE *f, int width, const char *policy, const struct result *r,
		      const struct result *most, const struct trace *t)
{
	fprintf(f, "  %-*s %8.2f %8.2f %14.2f", width, policy, 100 * result_hit_rate(r),
		100 * result_byte_hit_rate(r), result_misses_per_token(r, t));
	if (most->hits)
		fprintf(f, " %10.1f\n", 100 * (double)r->hits / (double)most->hits);
	else
		fprintf(f, " %10s\n", "-");
}

void output_table(FILE *f, const struct grid *g)
{
	int width = name_width(g);

	for (size_t t = 0; t < g->traces; t++) {
		table_head(f, g->trace[t]);
		for (size_t c = 0; c < g->capacities; c++) {
			const struct result *bound = &g->belady[t * g->capacities + c];
			uint64_t total = trace_total(g->trace[t]);
			char size[16], percent[16];

			fputs("\n  capacity ", f);
			if (g->trace[t]->sized)
				fprintf(f, "%s, ", size_text(bound->capacity, size));
			fprintf(f, "%s %% of the experts\n",
				percent_text(bound->capacity, total, percent));
			fprintf(f, "  %-*s %8s %8s %14s %10s\n", width, "policy", "hits %",
				"bytes %", "misses/token", "of MIN's %");
			for (size_t p = 0; p < g->policies; p++)
				table_row(f, width, g->policy[p],
					  &g->result[(t * g->policies + p) * g->capacities + c],
					  bound, g->trace[t]);
			table_row(f, width, "(Belady's MIN)", bound, bound, g->trace[t]);
		}
		if (t + 1 < g->traces)
			fputc('\n', f);
	}
}

/* A field as RFC 4180 has it: in quotes if it must be. */
static void csv_field(FILE *f, const char *s)
{
	bool quote = s[strcspn(s, ",\"\r\n")] != '\0';

	if (quote)
		fputc('"', f);
	for (; *s; s++) {
		if (*s == '"')
			fputc('"', f);
		fputc(*s, f);
	}
	if (quote)
		fputc('"', f);
}

void output_csv(FILE *f, const struct grid *g)
{
	const struct result *r = g->result;

	fputs("trace,policy,capacity,events,uses,hits,hit_rate,byte_hit_rate,misses_per_token\n",
	      f);
	for (size_t t = 0; t < g->traces; t++) {
		for (size_t p = 0; p < g->policies; p++) {
			for (size_t c = 0; c < g->capacities; c++, r++) {
				csv_field(f, g->trace[t]->name);
				fputc(',', f);
				csv_field(f, g->policy[p]);
				fprintf(f,
					",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
					",%.6f,%.6f,%.4f\n",
					r->capacity, r->events, r->uses, r->hits,
					result_hit_rate(r), result_byte_hit_rate(r),
					result_misses_per_token(r, g->trace[t]));
			}
		}
	}
}
