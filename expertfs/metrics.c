/* SPDX-License-Identifier: Apache-2.0
 *
 * .expertfs/metrics: the daemon's figures in the text format of Prometheus, version 0.0.4
 * (prometheus.io/docs/instrumenting/exposition_formats): for each metric a HELP and a TYPE line,
 * then all its samples. Base units are seconds and bytes; names of counters end in _total.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/figures.h"
#include "expertfs/stats.h"

static void head(FILE *out, const char *metric, const char *help, enum figure_kind kind)
{
	static const char *const kinds[] = { "gauge", "counter", "summary" };

	fprintf(out, "# HELP expertfs_%s %s\n# TYPE expertfs_%s %s\n", metric, help, metric,
		kinds[kind]);
}

/* name="text", with the three characters escaped that the format asks for. */
static void label(FILE *out, const char *name, const char *text)
{
	fprintf(out, "%s=\"", name);
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '\\' || *text == '"')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
	fputc('"', out);
}

static void value(FILE *out, const struct figure *f, const void *base)
{
	double v = figure_value(f, base);

	if (f->type == COUNT || f->type == BOOL)
		fprintf(out, " %llu\n", (unsigned long long)figure_count(f, base));
	else
		fprintf(out, " %.9g\n", f->type == MS ? v * 1e-3 : f->type == GB ? v * 1e9 : v);
}

static bool begins_metric(const struct figure *table, const struct figure *f)
{
	return f == table || strcmp(f->metric, f[-1].metric) != 0;
}

static void info(FILE *out, const struct fs_figures *f)
{
	head(out, "info", "How the daemon runs; always 1.", GAUGE);
	fputs("expertfs_info{", out);
	label(out, "version", EXPERTFS_VERSION);
	fputc(',', out);
	label(out, "store", f->store);
	fputc(',', out);
	label(out, "mode", f->mode);
	fputc(',', out);
	label(out, "io", f->io);
	fputc(',', out);
	label(out, "policy", f->hot.spec);
	fputs("} 1\n", out);
}

static void totals(FILE *out, const struct fs_figures *figures)
{
	for (const struct figure *f = fs_figure_table; f->member; f++) {
		if (begins_metric(fs_figure_table, f))
			head(out, f->metric, f->help, f->kind);
		fprintf(out, "expertfs_%s", f->metric);
		if (f->label)
			fprintf(out, "{%s}", f->label);
		value(out, f, figures);
	}
}

static void drive_labels(FILE *out, const struct drive_figures *d)
{
	fprintf(out, "{drive=\"%llu\",", (unsigned long long)d->number);
	label(out, "path", d->path);
}

static void drive_states(FILE *out, const struct fs_figures *f)
{
	head(out, "drive_state", "The state that a drive is in, as a label; always 1.", GAUGE);
	for (uint32_t i = 0; i < f->drives; i++) {
		fputs("expertfs_drive_state", out);
		drive_labels(out, &f->drive[i]);
		fprintf(out, ",role=\"%s\",state=\"%s\"} 1\n", f->drive[i].role, f->drive[i].state);
	}
}

/* All drives of one metric, then those of the next: the samples of a metric lie together. */
static void drives(FILE *out, const struct fs_figures *figures)
{
	const struct figure *f = drive_figure_table, *end;

	drive_states(out, figures);
	for (; f->member; f = end) {
		head(out, f->metric, f->help, f->kind);
		for (end = f + 1; end->member && !begins_metric(drive_figure_table, end);)
			end++;
		for (uint32_t i = 0; i < figures->drives; i++)
			for (const struct figure *one = f; one < end; one++) {
				fprintf(out, "expertfs_%s", one->metric);
				drive_labels(out, &figures->drive[i]);
				fprintf(out, "%s%s}", one->label ? "," : "",
					one->label ? one->label : "");
				value(out, one, &figures->drive[i]);
			}
	}
}

char *figures_metrics(const struct fs_figures *f)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	bool failed;

	if (!out)
		return NULL;
	info(out, f);
	totals(out, f);
	if (f->drives)
		drives(out, f);
	failed = ferror(out) != 0;
	if (fclose(out) != 0 || failed) {
		free(text);
		return NULL;
	}
	return text;
}

char *fs_metrics_text(const struct fs *fs)
{
	struct fs_figures f;
	char *text;

	if (fs_figures_take(fs, &f) != 0)
		return NULL;
	text = figures_metrics(&f);
	fs_figures_free(&f);
	return text;
}
