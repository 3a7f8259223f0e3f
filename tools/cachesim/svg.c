/* SPDX-License-Identifier: Apache-2.0
 *
 * The plot of cachesim: hit rate over capacity as SVG, a panel for each trace below the other.
 *
 * Capacities stand where their logarithm puts them, since small caches are where policies differ;
 * the ticks are the capacities that were replayed. Lines differ in colour and in dashes, so that
 * they can be told apart in grey; the legend is sorted by the mean hit rate, as the eye meets
 * them.
 */
#include "tools/cachesim/output.h"

#include <math.h>
#include <stdlib.h>

#include "expertfs/size.h"

enum { WIDTH = 960, PANEL = 520, LEFT = 70, RIGHT = 250, TOP = 50, BOTTOM = 60 };
enum { PLOT_WIDTH = WIDTH - LEFT - RIGHT, PLOT_HEIGHT = PANEL - TOP - BOTTOM };
enum { LEGEND_LINE = 19 };

static const char *const colours[] = {
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d",
	"#a50026", "#4d4d4d", "#b2df3a", "#8c6d31", "#1b7837", "#f781bf",
};
static const char *const dashes[] = { "none", "7 3", "2 2", "9 3 2 3" };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

struct panel {
	const struct grid *g;
	size_t t;
	double least, most; /* logarithms of the capacities at the left and the right end */
};

static void put_xml(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '<' || *s == '&' || *s == '>' || *s == '"')
			fprintf(f, "&#%d;", *s);
		else
			fputc((unsigned char)*s < 32 ? '?' : *s, f);
	}
}

static double capacity_of(const struct panel *p, size_t c)
{
	return (double)p->g->capacity[p->t * p->g->capacities + c];
}

static double x_of(const struct panel *p, size_t c)
{
	double range = p->most - p->least;

	if (range <= 0)
		return LEFT + PLOT_WIDTH / 2.0;
	return LEFT + PLOT_WIDTH * (log(fmax(capacity_of(p, c), 1)) - p->least) / range;
}

static double y_of(double rate)
{
	return TOP + PLOT_HEIGHT * (1 - rate);
}

static const struct result *results_of(const struct panel *p, size_t policy)
{
	const struct grid *g = p->g;

	return policy == g->policies ? &g->belady[p->t * g->capacities]
				     : &g->result[(p->t * g->policies + policy) * g->capacities];
}

static const char *name_of(const struct panel *p, size_t policy)
{
	return policy == p->g->policies ? "Belady's MIN" : p->g->policy[policy];
}

static void put_style(FILE *f, const struct panel *p, size_t policy)
{
	if (policy == p->g->policies)
		fputs("stroke=\"#000\" stroke-width=\"1.5\" stroke-dasharray=\"3 4\"", f);
	else
		fprintf(f, "stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"",
			colours[policy % COUNT(colours)], dashes[policy % COUNT(dashes)]);
}

static void put_axes(FILE *f, const struct panel *p, const size_t *by_capacity)
{
	uint64_t total = trace_total(p->g->trace[p->t]);
	double last = -HUGE_VAL;
	char size[16], percent[16];

	fprintf(f, "<text x=\"%d\" y=\"28\" font-size=\"16\" font-weight=\"bold\">", LEFT);
	put_xml(f, p->g->trace[p->t]->name);
	fputs("</text>\n", f);
	for (int rate = 0; rate <= 100; rate += 20) {
		double y = y_of(rate / 100.0);

		fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
			LEFT, LEFT + PLOT_WIDTH, y, y);
		fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d %%</text>\n", LEFT - 8,
			y + 4, rate);
	}
	for (size_t k = 0; k < p->g->capacities; k++) {
		size_t c = by_capacity[k];
		double x = x_of(p, c);

		fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#ddd\"/>\n",
			x, x, TOP, TOP + PLOT_HEIGHT);
		/* Labels that would run into each other are left out. */
		if (fabs(x - last) < 62)
			continue;
		last = x;
		fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s %%</text>\n", x,
			TOP + PLOT_HEIGHT + 18,
			percent_text((uint64_t)capacity_of(p, c), total, percent));
		if (p->g->trace[p->t]->sized)
			fprintf(f,
				"<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#666\" "
				"font-size=\"10\">%s</text>\n",
				x, TOP + PLOT_HEIGHT + 32,
				size_text((uint64_t)capacity_of(p, c), size));
	}
	fprintf(f,
		"<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">capacity, share of all experts' "
		"bytes</text>\n",
		LEFT + PLOT_WIDTH / 2, PANEL - 8);
	fprintf(f,
		"<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">uses that "
		"hit</text>\n",
		TOP + PLOT_HEIGHT / 2);
}

static void put_line(FILE *f, const struct panel *p, size_t policy, const size_t *by_capacity)
{
	const struct result *r = results_of(p, policy);

	fputs("<polyline fill=\"none\" stroke-linejoin=\"round\" ", f);
	put_style(f, p, policy);
	fputs(" points=\"", f);
	for (size_t k = 0; k < p->g->capacities; k++)
		fprintf(f, "%s%.1f,%.1f", k ? " " : "", x_of(p, by_capacity[k]),
			y_of(result_hit_rate(&r[by_capacity[k]])));
	fputs("\"/>\n", f);
	/* A single point has no line. */
	for (size_t c = 0; c < p->g->capacities; c++)
		fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", x_of(p, c),
			y_of(result_hit_rate(&r[c])),
			policy == p->g->policies ? "#000" : colours[policy % COUNT(colours)]);
}

static double mean_of(const struct panel *p, size_t policy)
{
	double sum = 0;

	for (size_t c = 0; c < p->g->capacities; c++)
		sum += result_hit_rate(&results_of(p, policy)[c]);
	return sum / (double)p->g->capacities;
}

static void put_legend(FILE *f, const struct panel *p, size_t place, size_t policy)
{
	double y = TOP + 8 + (double)place * LEGEND_LINE;
	int x = LEFT + PLOT_WIDTH + 20;

	fprintf(f, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" ", x, x + 30, y, y);
	put_style(f, p, policy);
	fprintf(f, "/>\n<text x=\"%d\" y=\"%.1f\">", x + 38, y + 4);
	put_xml(f, name_of(p, policy));
	fprintf(f, "  <tspan fill=\"#666\">%.1f %%</tspan></text>\n", 100 * mean_of(p, policy));
}

/* The numbers 0 to n - 1 in order of their key, the smallest first. */
static void sort_by(size_t *order, const double *key, size_t n)
{
	for (size_t k = 0; k < n; k++) {
		size_t at = k;

		for (; at && key[order[at - 1]] > key[k]; at--)
			order[at] = order[at - 1];
		order[at] = k;
	}
}

static void put_panel(FILE *f, struct panel *p, size_t *order, double *key)
{
	size_t lines = p->g->policies + 1;

	p->least = HUGE_VAL;
	p->most = -HUGE_VAL;
	for (size_t c = 0; c < p->g->capacities; c++) {
		key[c] = capacity_of(p, c);
		p->least = fmin(p->least, log(fmax(key[c], 1)));
		p->most = fmax(p->most, log(fmax(key[c], 1)));
	}
	sort_by(order, key, p->g->capacities);
	put_axes(f, p, order);
	for (size_t k = 0; k < lines; k++)
		put_line(f, p, k, order);
	for (size_t k = 0; k < lines; k++)
		key[k] = -mean_of(p, k);
	sort_by(order, key, lines);
	for (size_t k = 0; k < lines; k++)
		put_legend(f, p, k, order[k]);
}

void output_svg(FILE *f, const struct grid *g)
{
	size_t most = g->capacities > g->policies + 1 ? g->capacities : g->policies + 1;
	size_t *order = calloc(most, sizeof(*order));
	double *key = calloc(most, sizeof(*key));
	/* A legend longer than a panel makes all panels higher. */
	size_t legend = TOP + (g->policies + 2) * LEGEND_LINE;
	size_t height = legend > PANEL ? legend : PANEL;

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
		"viewBox=\"0 0 %d %zu\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		WIDTH, height * g->traces, WIDTH, height * g->traces);
	for (size_t t = 0; order && key && t < g->traces; t++) {
		struct panel p = { .g = g, .t = t };

		fprintf(f, "<g transform=\"translate(0 %zu)\">\n", t * height);
		put_panel(f, &p, order, key);
		fputs("</g>\n", f);
	}
	fputs("</svg>\n", f);
	free(order);
	free(key);
}
