/* SPDX-License-Identifier: Apache-2.0
 *
 * A model, its tokenizer and its engine on behalf of a subcommand.
 */
#include "engine/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/bytes.h"
#include "engine/clock.h"
#include "engine/fail.h"
#include "engine/signals.h"

#define SHOW_AFTER 0.7 /* seconds: what is quicker needs no line */
#define SHOW_EVERY 0.2
#define LEFT_AFTER 2.0 /* seconds of work before its speed is taken for its speed */
#define SMALL_LOAD 1e9 /* bytes: loading less is not reported */

void status_init(struct status_line *s)
{
	*s = (struct status_line){ .on = isatty(STDERR_FILENO) == 1, .begin = clock_seconds() };
	s->progress.report = status_report;
	s->progress.arg = s;
}

/* What is left at the speed so far. */
static void say_left(const struct status_line *s, double t, double done, double total)
{
	double left = (total - done) * (t - s->since) / (done - s->from);

	if (t - s->since < LEFT_AFTER || !(done > s->from))
		return;
	if (left < 100)
		fprintf(stderr, ", %.0f s left", left);
	else if (left < 6000)
		fprintf(stderr, ", %.0f min left", left / 60);
	else
		fprintf(stderr, ", %.1f h left", left / 3600);
}

void status_report(void *arg, const char *what, double done, double total)
{
	struct status_line *s = arg;
	double t = clock_seconds();
	bool bytes = strcmp(what, "loading") == 0;

	if (!s->what || strcmp(s->what, what) != 0) {
		s->what = what;
		s->since = t;
		s->from = done;
	}
	if (!s->on || t - s->begin < SHOW_AFTER || t - s->last < SHOW_EVERY ||
	    (bytes && total < SMALL_LOAD))
		return;
	if (bytes)
		fprintf(stderr, "\r%s %.1f of %.1f GB", what, done / 1e9, total / 1e9);
	else
		fprintf(stderr, "\r%s %.0f of %.0f tokens (%.0f %%)", what, done, total,
			100 * done / total);
	say_left(s, t, done, total);
	fputs("\033[K", stderr);
	s->last = t;
	s->shown = true;
}

void status_clear(struct status_line *s)
{
	if (s->shown)
		fputs("\r\033[K", stderr);
	s->shown = false;
}

int client_tokenizer(const char *mount, struct tokenizer **out, char *why)
{
	char path[4096];

	*out = NULL;
	if (snprintf(path, sizeof(path), "%s/tokenizer.json", mount) >= (int)sizeof(path))
		return fail(why, ENAMETOOLONG, "the name of the mount is too long");
	if (access(path, R_OK) == 0)
		return tokenizer_load(path, out, why);
	if (errno == ENOENT || errno == ENOTDIR)
		return fail(why, ENOENT, "%s holds no tokenizer.json: is expertfs mounted there?",
			    mount);
	return mount_fail(why, errno, mount, "the tokenizer", path);
}

int client_describe(struct client *c, const char *mount, char *why)
{
	*c = (struct client){ .mount = mount };
	status_init(&c->status);
	signals_catch_sigbus(mount);
	int r = modelfile_load(mount, &c->file, why);
	return r ? r : client_tokenizer(mount, &c->tokenizer, why);
}

static void say_memory(const struct client *c, const struct engine_memory *m,
		       const struct engine_options *o, const struct engine_need *need)
{
	char dense[BYTES_TEXT], kv[BYTES_TEXT], buffers[BYTES_TEXT], room[BYTES_TEXT];

	fprintf(stderr,
		"%s: %s for the dense tensors, %s for a context of %d tokens, %s for buffers (%d "
		"tokens of a prompt at a time); %s are available (%s)\n",
		c->mount, bytes_text(m->dense, dense), bytes_text(m->kv, kv), o->ctx,
		bytes_text(m->buffers, buffers), o->chunk, bytes_text(m->available, room),
		m->limit);
	if (o->ctx < need->wanted)
		fprintf(stderr,
			"%s: %d tokens were asked for, the prompt's among them: no more than "
			"%d fit\n",
			c->mount, need->wanted, o->ctx);
}

int client_load(struct client *c, const struct engine_options *asked,
		const struct engine_need *need, bool quiet, char *why)
{
	struct engine_options options;
	struct engine_memory m;
	int r = engine_plan(c->file, asked, need, &options, why);

	options.progress = &c->status.progress;
	if (!r)
		r = engine_memory(c->file, &options, &m, why);
	if (r)
		return r;
	if (!quiet)
		say_memory(c, &m, &options, need);
	r = engine_open(c->file, &options, &c->engine, why);
	status_clear(&c->status);
	return r;
}

void client_close(struct client *c)
{
	engine_close(c->engine);
	tokenizer_free(c->tokenizer);
	modelfile_free(c->file);
}

int read_text(const char *path, char **text, size_t *bytes, char *why)
{
	bool in = strcmp(path, "-") == 0;
	int r = in ? read_descriptor(STDIN_FILENO, TOKENIZER_TEXT_MAX, text, bytes)
		   : read_whole(path, TOKENIZER_TEXT_MAX, text, bytes);

	if (r == -EFBIG)
		return fail(why, EFBIG, "%s has more than %u bytes", in ? "standard input" : path,
			    TOKENIZER_TEXT_MAX);
	if (r)
		return fail(why, -r, "%s cannot be read: %s", in ? "standard input" : path,
			    strerror(-r));
	return 0;
}
