/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-engine eval: how well the model foretells a text.
 *
 * The text is cut into consecutive windows of --ctx tokens. In each, every token but the first is
 * predicted from those before it in the window; the loss is the mean of -ln p over all of them.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/client.h"
#include "engine/clock.h"
#include "engine/commands.h"
#include "engine/fail.h"

#define DEFAULT_WINDOW 2048

static const char help[] = "usage: coli-engine eval MOUNT -f FILE [options]\n"
			   "Loss and perplexity of a text, in consecutive windows of --ctx tokens "
			   "(default: 2048, or as many\n"
			   "as the model can); every token of a window but its first is predicted. "
			   "No tokens are added.\n\n"
			   "  -f FILE         the text; - is standard input\n"
			   "  --json          print one JSON object: tokens, predicted, nll (nats "
			   "a token), ppl, windows\n"
			   "  -q, --quiet     no words on memory\n";

enum { OPT_JSON = OPT_OWN };

struct eval {
	const char *mount, *file;
	struct engine_options options;
	bool json, quiet;
	struct client client;
	/* Of the window under way. */
	const int32_t *ids;
	int n;
	/* Of all. */
	double sum;
	size_t predicted, windows, done, total;
};

static int parse_option(struct eval *e, int code, const char *text, char **argv)
{
	int status = 0;

	if (option_common(&e->options, code, text, &status))
		return status;
	switch (code) {
	case OPT_HELP:
		print_help(help, common_help);
	case 'f':
		e->file = text;
		return 0;
	case 'q':
		e->quiet = true;
		return 0;
	case OPT_JSON:
		e->json = true;
		return 0;
	default:
		return option_error(code, argv);
	}
}

static int parse(struct eval *e, int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, OPT_JSON },
						 { "quiet", no_argument, NULL, 'q' },
						 COMMON_OPTIONS,
						 { NULL, 0, NULL, 0 } };
	int code, status = 0;

	opterr = 0;
	while (!status && (code = getopt_long(argc, argv, ":f:q", options, NULL)) != -1)
		status = parse_option(e, code, optarg, argv);
	if (status)
		return status;
	if (optind != argc - 1)
		return say_usage("eval takes one MOUNT");
	if (!e->file)
		return say_usage("eval needs a text: -f FILE");
	e->mount = argv[optind];
	return 0;
}

static double log_sum_exp(const float *x, int n)
{
	double max = x[0], sum = 0;

	for (int i = 1; i < n; i++)
		max = x[i] > max ? x[i] : max;
	for (int i = 0; i < n; i++)
		sum += exp(x[i] - max);
	return max + log(sum);
}

static void on_rows(void *arg, int first, int count, const float *logits)
{
	struct eval *e = arg;
	int vocab = e->client.file->config.vocab;

	for (int i = 0; i < count && first + i + 1 < e->n; i++) {
		const float *row = logits + (size_t)i * (size_t)vocab;
		e->sum += log_sum_exp(row, vocab) - (double)row[e->ids[first + i + 1]];
		e->predicted++;
	}
}

/* Progress of one window, told as progress of the whole text. */
static void on_progress(void *arg, const char *what, double done, double total)
{
	struct eval *e = arg;

	if (strcmp(what, "prompt") == 0)
		status_report(&e->client.status, "text", (double)e->done + done, (double)e->total);
	else
		status_report(&e->client.status, what, done, total);
}

static int windows(struct eval *e, const int32_t *ids, int ctx, char *why)
{
	while (e->done < e->total) {
		size_t left = e->total - e->done;
		e->n = left < (size_t)ctx ? (int)left : ctx;
		e->ids = ids + e->done;
		if (e->n >= 2) {
			engine_reset(e->client.engine);
			int r = engine_feed_rows(e->client.engine, e->ids, e->n, on_rows, e, why);
			if (r)
				return r;
			e->windows++;
		}
		e->done += (size_t)e->n;
	}
	return 0;
}

static int report(const struct eval *e, double seconds, char *why)
{
	double nll = e->sum / (double)e->predicted, ppl = exp(nll);
	int ok;

	if (e->json) {
		/* JSON has no infinity. */
		json_t *o =
			json_pack("{s:I, s:I, s:I, s:f, s:o, s:f}", "tokens", (json_int_t)e->total,
				  "predicted", (json_int_t)e->predicted, "windows",
				  (json_int_t)e->windows, "nll", nll, "ppl",
				  isfinite(ppl) ? json_real(ppl) : json_null(), "seconds", seconds);
		char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
		json_decref(o);
		if (!text)
			return fail(why, ENOMEM, "no memory for the report");
		ok = puts(text) >= 0;
		free(text);
	} else {
		ok = printf("%zu tokens predicted in %zu windows of up to %d: %.4f nats a token, "
			    "perplexity %.3f (%.1f s)\n",
			    e->predicted, e->windows, engine_ctx(e->client.engine), nll, ppl,
			    seconds) >= 0;
	}
	return ok && fflush(stdout) == 0 ? 0
					 : fail(why, EIO, "standard output cannot be written to");
}

static int evaluate(struct eval *e, const int32_t *ids, char *why)
{
	int max = e->client.file->config.max_positions;
	int ctx = e->options.ctx ? e->options.ctx : max < DEFAULT_WINDOW ? max : DEFAULT_WINDOW;
	double begin = clock_seconds();

	if (e->total < 2 || ctx < 2)
		return fail(why, EINVAL,
			    "%s has %zu tokens in windows of %d: there is nothing to predict",
			    e->file, e->total, ctx);
	e->client.status.progress = (struct progress){ on_progress, e };
	/* The windows decide the result: no memory may shorten them. */
	const struct engine_need need = { ctx, ctx, ctx };
	e->options.ctx = ctx;
	int r = client_load(&e->client, &e->options, &need, e->quiet || e->json, why);
	if (!r)
		r = windows(e, ids, ctx, why);
	status_clear(&e->client.status);
	return r ? r : report(e, clock_seconds() - begin, why);
}

int cmd_eval(int argc, char **argv)
{
	struct eval e = { 0 };
	char why[WHY_MAX] = "", *text = NULL;
	int32_t *ids = NULL;
	size_t bytes = 0;

	int status = parse(&e, argc, argv);
	if (status)
		return status;
	int r = client_describe(&e.client, e.mount, why);
	if (!r)
		r = read_text(e.file, &text, &bytes, why);
	if (!r)
		r = tokenizer_encode(e.client.tokenizer, text, bytes, 0, &ids, &e.total, why);
	if (!r)
		r = evaluate(&e, ids, why);
	client_close(&e.client);
	free(ids);
	free(text);
	return r ? say_error("%s", why) : 0;
}
