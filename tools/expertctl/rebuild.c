/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl rebuild: makes a store's catalog.db anew from its shards.
 */
#include "tools/expertctl/expertctl.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/rebuild.h"
#include "tools/expertctl/progress.h"

#define DRIVES_MAX STORE_DRIVES_MAX

static atomic_int interrupted; /* read by the threads that hash */

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

static void say(void *arg, const char *line)
{
	ctl_progress_clear(arg);
	fprintf(stderr, "expertctl: %s\n", line);
}

static bool progress(void *arg, uint64_t done, uint64_t total)
{
	ctl_progress_show(arg, done, total);
	return !interrupted;
}

static int rebuild(const char *store, struct rebuild_options *o)
{
	const struct sigaction act = { .sa_handler = on_signal };
	struct rebuild_report r = { 0 };
	struct ctl_progress p;
	char why[WHY_MAX];
	int err;

	sigaction(SIGINT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, &act, NULL);
	ctl_progress_begin(&p, "rebuild");
	o->say = say;
	o->progress = progress;
	o->arg = &p;
	err = rebuild_catalog(store, o, &r, why);
	ctl_progress_clear(&p);
	if (err) {
		fprintf(stderr, "expertctl: %s\n", why);
		return 1;
	}
	printf("%s: a new catalog of %" PRIu32 " experts on %" PRIu32 " drive%s, from %" PRIu64
	       " records",
	       store, r.experts, r.drives, r.drives == 1 ? "" : "s", r.records);
	if (r.bad)
		printf(", %" PRIu64 " of them bad", r.bad);
	if (r.missing)
		printf("; %" PRIu32 " experts are missing", r.missing);
	printf("; the usage of %" PRIu64 " was kept\n", r.usage);
	return fflush(stdout) == 0 ? 0 : 1;
}

static int run(char **argv)
{
	static const char *drive[DRIVES_MAX];
	struct rebuild_options o = { .drive = drive, .prove = true };
	const char *store = NULL;

	for (; *argv; argv++) {
		if (strcmp(*argv, "--partial") == 0) {
			o.partial = true;
		} else if (strcmp(*argv, "--quick") == 0) {
			o.prove = false;
		} else if (strcmp(*argv, "--drive") == 0) {
			if (!*++argv)
				return ctl_usage("--drive needs a shard or a folder");
			if (o.drives == DRIVES_MAX)
				return ctl_usage("more than %d drives", DRIVES_MAX);
			drive[o.drives++] = *argv;
		} else if ((*argv)[0] == '-') {
			return ctl_usage("there is no option %s here", *argv);
		} else if (store) {
			return ctl_usage("%s is one word too many", *argv);
		} else {
			store = *argv;
		}
	}
	return store ? rebuild(store, &o) : ctl_usage("rebuild needs a STORE");
}

const struct ctl_command ctl_rebuild = {
	.name = "rebuild",
	.usage = "STORE [--drive PATH]... [--quick] [--partial]",
	.about = "make a lost or damaged catalog.db anew from the shards, which are all read and\n"
		 "proved (--quick: only their heads); --drive: where a shard is that is not where\n"
		 "it was; --partial: go on without what is not there",
	.run = run,
};
