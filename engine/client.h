/* SPDX-License-Identifier: Apache-2.0
 *
 * What subcommands that compute have in common: the model and its tokenizer, loading with a word on
 * memory, and a line on the terminal that tells how far it is.
 */
#ifndef ENGINE_CLIENT_H
#define ENGINE_CLIENT_H

#include "engine/engine.h"
#include "engine/options.h"
#include "engine/tokenizer.h"

/* A line that is written anew several times a second; on terminals only. */
struct status_line {
	bool on, shown;
	double begin, last;       /* clock_seconds() */
	const char *what;         /* of the work under way; NULL: none yet */
	double since, from;       /* when it began, and how much was done then */
	struct progress progress; /* give this to the engine */
};

void status_init(struct status_line *s);
/* Reports to the line directly; what: "prompt", "text". */
void status_report(void *s, const char *what, double done, double total);
void status_clear(struct status_line *s);

struct client {
	const char *mount; /* the caller's */
	struct modelfile *file;
	struct tokenizer *tokenizer;
	struct engine *engine;
	struct status_line status;
};

/* MOUNT's tokenizer alone. */
int client_tokenizer(const char *mount, struct tokenizer **out, char *why);
/* model.json and tokenizer. 0 or negative errno with the sentence; client_close() in any case. */
int client_describe(struct client *c, const char *mount, char *why);
/* The engine, its context and chunk chosen by engine_plan() where asked leaves them open; says on
 * stderr what it takes first unless quiet. What it reports goes to c->status.progress, which is in
 * use until client_close(). */
int client_load(struct client *c, const struct engine_options *asked,
		const struct engine_need *need, bool quiet, char *why);
void client_close(struct client *c);

/* The text of a file ("-": standard input). */
int read_text(const char *path, char **text, size_t *bytes, char *why);

#endif
