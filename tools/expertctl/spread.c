/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl add-drive, remove-drive, move: a line to MOUNT/.expertfs/drives, and then the progress
 * that the daemon reports there. The daemon does it alone: whoever looks on may go away.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "tools/expertctl/expertctl.h"
#include "tools/expertctl/mountfile.h"
#include "tools/expertctl/progress.h"

#define MAX_WORDS 4096
#define LOOK_NS   100000000 /* between two looks */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* The words of the command line, sorted out. */
struct words {
	const char *mount, *to;
	const char *word[MAX_WORDS];
	int n;
	bool no_wait, equal;
};

static int sort_out(char **argv, const char *name, bool has_to, struct words *w)
{
	bool options = true;

	*w = (struct words){ .mount = CTL_DEFAULT_MOUNT };
	for (; *argv; argv++) {
		if (options && strcmp(*argv, "--") == 0)
			options = false;
		else if (options && strcmp(*argv, "--no-wait") == 0)
			w->no_wait = true;
		else if (options && !has_to && strcmp(*argv, "--equal") == 0)
			w->equal = true;
		else if (options && has_to && strcmp(*argv, "--to") == 0 && argv[1])
			w->to = *++argv;
		else if (options && has_to && strncmp(*argv, "--to=", 5) == 0)
			w->to = *argv + 5;
		else if (options && (*argv)[0] == '-')
			return ctl_usage("%s: there is no option %s, or its value is missing", name,
					 *argv);
		else if (w->n == MAX_WORDS)
			return ctl_usage("%s: too many words", name);
		else
			w->word[w->n++] = *argv;
	}
	return 0;
}

static void take_mount(struct words *w)
{
	w->mount = w->word[0];
	w->n--;
	memmove(w->word, w->word + 1, (size_t)w->n * sizeof(w->word[0]));
}

/* -- the daemon's side -------------------------------------------------------------------------- */

struct task {
	json_int_t id;
	char state[32], error[WHY_MAX];
	json_int_t experts_done, experts_total, bytes_done, bytes_total;
};

static json_int_t integer(const json_t *o, const char *name)
{
	return json_integer_value(json_object_get(o, name));
}

static void copy_text(const json_t *o, const char *name, char *buf, size_t size)
{
	const char *text = json_string_value(json_object_get(o, name));

	snprintf(buf, size, "%s", text ? text : "");
}

/* The newest task of this command (NULL: of any) into *t; id 0 if there is none. */
static int find_task(const char *mount, const char *line, struct task *t, char *why)
{
	char *text = NULL;
	const json_t *o;
	json_t *root;
	size_t bytes, i;
	int err = mountfile_read(mount, "drives", &text, &bytes, why);

	*t = (struct task){ 0 };
	if (err)
		return err;
	root = json_loadb(text, bytes, 0, NULL);
	free(text);
	json_array_foreach(json_object_get(root, "tasks"), i, o)
	{
		const char *command = json_string_value(json_object_get(o, "command"));
		if (integer(o, "id") < t->id || (line && (!command || strcmp(command, line) != 0)))
			continue;
		t->id = integer(o, "id");
		t->experts_done = integer(o, "experts_done");
		t->experts_total = integer(o, "experts_total");
		t->bytes_done = integer(o, "bytes_done");
		t->bytes_total = integer(o, "bytes_total");
		copy_text(o, "state", t->state, sizeof(t->state));
		copy_text(o, "error", t->error, sizeof(t->error));
	}
	json_decref(root);
	return 0;
}

static bool is_under_way(const struct task *t)
{
	return strcmp(t->state, "queued") == 0 || strcmp(t->state, "running") == 0;
}

/* Until the task after `before` is not under way any more. */
static int follow(const char *mount, const char *name, const char *line, json_int_t before,
		  char *why)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	struct sigaction old, act = { .sa_handler = on_interrupt };
	struct ctl_progress p;
	struct task t;
	int err;

	sigaction(SIGINT, &act, &old);
	ctl_progress_begin(&p, name);
	while ((err = find_task(mount, line, &t, why)) == 0 && t.id > before && is_under_way(&t) &&
	       !interrupted) {
		ctl_progress_show(&p, (uint64_t)t.bytes_done, (uint64_t)t.bytes_total);
		nanosleep(&look, NULL);
	}
	ctl_progress_clear(&p);
	sigaction(SIGINT, &old, NULL);
	if (err)
		return err;
	if (t.id <= before)
		return fail(why, ECANCELED,
			    "the daemon of %s was started anew meanwhile; if the "
			    "move was interrupted it goes on: see expertctl drives",
			    mount);
	if (is_under_way(&t))
		return fail(why, EINTR,
			    "it goes on in the daemon; expertctl drives shows how far it "
			    "is, expertctl drives cancel ends it");
	if (strcmp(t.state, "stopped") == 0)
		return fail(why, EIO, "%s; it has stopped: expertctl drives continue, or cancel",
			    t.error);
	if (strcmp(t.state, "done") != 0)
		return fail(why, ECANCELED, "%s", t.error[0] ? t.error : t.state);
	printf("%" JSON_INTEGER_FORMAT " experts moved\n", t.experts_done);
	return 0;
}

static int command(const struct words *w, const char *name, const char *line)
{
	char why[WHY_MAX], *with_end;
	struct task before = { 0 };
	int err;

	if (asprintf(&with_end, "%s\n", line) < 0)
		return 1;
	err = find_task(w->mount, NULL, &before, why);
	err = err ? err : mountfile_write(w->mount, "drives", with_end, why);
	if (!err && !w->no_wait)
		err = follow(w->mount, name, line, before.id, why);
	free(with_end);
	if (err)
		fprintf(stderr, "expertctl: %s: %s\n", name, why);
	return err ? 1 : 0;
}

/* -- the commands ------------------------------------------------------------------------------- */

/* The daemon has a working directory of its own. */
static int with_path(struct words *w, const char *name, const char *verb, const char *path)
{
	char *line, *real = realpath(path, NULL);
	int status;

	if (!real && strcmp(verb, "add") == 0) {
		fprintf(stderr, "expertctl: %s: %s: %s\n", name, path, strerror(errno));
		return 1;
	}
	if (asprintf(&line, "%s %s%s", verb, w->equal ? "equal " : "", real ? real : path) < 0)
		line = NULL;
	free(real);
	status = line ? command(w, name, line) : 1;
	free(line);
	return status;
}

static int run_add(char **argv)
{
	struct words w;
	int status = sort_out(argv, "add-drive", false, &w);

	if (status)
		return status;
	if (w.n == 2)
		take_mount(&w);
	if (w.n != 1)
		return ctl_usage("add-drive needs the folder on the new drive");
	return with_path(&w, "add-drive", "add", w.word[0]);
}

static int run_remove(char **argv)
{
	struct words w;
	char line[48], *end;
	int status = sort_out(argv, "remove-drive", false, &w);
	unsigned long n;

	if (status)
		return status;
	if (w.n == 2)
		take_mount(&w);
	if (w.n != 1 || !w.word[0][0])
		return ctl_usage("remove-drive needs the number or the path of the drive");
	n = strtoul(w.word[0], &end, 10);
	if (*end || w.word[0][0] == '-')
		return with_path(&w, "remove-drive", "remove", w.word[0]);
	snprintf(line, sizeof(line), "remove %s%lu", w.equal ? "equal " : "", n);
	return command(&w, "remove-drive", line);
}

/* "move N word word ..." */
static char *move_line(const struct words *w)
{
	char *line = NULL;
	size_t bytes;
	FILE *f = open_memstream(&line, &bytes);

	if (!f)
		return NULL;
	fprintf(f, "move %s", w->to);
	for (int i = 0; i < w->n; i++)
		fprintf(f, " %s", w->word[i]);
	if (fclose(f) == 0)
		return line;
	free(line);
	return NULL;
}

static int run_move(char **argv)
{
	struct words w;
	char *line;
	int status = sort_out(argv, "move", true, &w);

	if (status)
		return status;
	if (w.n > 0 && mountfile_is_mount(w.word[0]))
		take_mount(&w);
	if (!w.to || w.n == 0)
		return ctl_usage("move needs experts and --to N");
	line = move_line(&w);
	status = line ? command(&w, "move", line) : 1;
	free(line);
	return status;
}

const struct ctl_command ctl_add_drive = {
	.name = "add-drive",
	.usage = "[MOUNT] DIR [--equal] [--no-wait]",
	.about = "give the store one more drive and its share of the experts, while it is mounted\n"
		 "--equal: the drives are equally fast, do not measure; --no-wait: do not look on",
	.run = run_add,
};

const struct ctl_command ctl_remove_drive = {
	.name = "remove-drive",
	.usage = "[MOUNT] N|PATH [--equal] [--no-wait]",
	.about = "copy what lies on a drive to the others, then take it out of the store",
	.run = run_remove,
};

const struct ctl_command ctl_move = {
	.name = "move",
	.usage = "[MOUNT] EXPERTS... --to N [--no-wait]",
	.about = "move experts to drive N: 3/117, 3/0-15, top 4G",
	.run = run_move,
};
