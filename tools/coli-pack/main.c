/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-pack: a Hugging Face checkpoint becomes a store. This file has the options and the order:
 * read and check everything (checkpoint.h), plan what will be written (plan.h), write it (pack.h).
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expertfs/fail.h"
#include "tools/coli-pack/modeljson.h"
#include "tools/coli-pack/pack.h"
#include "tools/coli-pack/table.h"

#define MAX_DRIVES 256

static volatile sig_atomic_t stop;

struct arguments {
	struct pack_options pack;
	char *drive[MAX_DRIVES];
	uint32_t drives;
	bool dry_run, restart;
	const char *checkpoint, *store;
};

static void usage(FILE *f)
{
	fputs("usage: coli-pack [options] CHECKPOINT STORE\n"
	      "Makes a store for expertfs from a Hugging Face checkpoint folder.\n"
	      "\n"
	      "  --bits 4|8|16|32         of the experts' weights (4); the MTP layer has at least "
	      "8\n"
	      "  --dense-bits 8|16|32     of all other matrices (8)\n"
	      "  --group-size 32|64|128   weights that share a scale, with 4 and 8 bits (64)\n"
	      "  --drive DIR              put experts there; several: dealt out among them\n"
	      "  --restart                begin anew instead of resuming an interrupted pack\n"
	      "  --dry-run                only print what would be written\n"
	      "  --help, --version\n",
	      f);
}

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

/* The first Ctrl-C ends the pack at the next expert, a second one at once. */
static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction ignored, a = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (sigaction(signals[i], NULL, &ignored) == 0 && ignored.sa_handler != SIG_IGN)
			sigaction(signals[i], &a, NULL);
}

/* What comes from files may hold anything; a terminal gets one line of plain text. */
static void say(const char *sentence)
{
	fputs("coli-pack: ", stderr);
	for (; *sentence; sentence++)
		fputc((unsigned char)*sentence < 32 || *sentence == 127 ? '?' : *sentence, stderr);
	fputc('\n', stderr);
}

static int choose(const char *option, const char *text, const int *values, int *out)
{
	for (; *values; values++) {
		char is[16];
		snprintf(is, sizeof(is), "%d", *values);
		if (strcmp(is, text) == 0) {
			*out = *values;
			return 0;
		}
	}
	fprintf(stderr, "coli-pack: %s is not a value for --%s; see --help\n", text, option);
	return 2;
}

enum { BITS = 1, DENSE_BITS, GROUP_SIZE, DRIVE, RESTART, DRY_RUN, HELP, SHOW_VERSION };

static const struct option options[] = {
	{ "bits", required_argument, NULL, BITS },
	{ "dense-bits", required_argument, NULL, DENSE_BITS },
	{ "group-size", required_argument, NULL, GROUP_SIZE },
	{ "drive", required_argument, NULL, DRIVE },
	{ "restart", no_argument, NULL, RESTART },
	{ "dry-run", no_argument, NULL, DRY_RUN },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, SHOW_VERSION },
	{ NULL, 0, NULL, 0 },
};

/* 0: go on; -1: done, all is well; 2: a usage error, which has been said. */
static int take_option(struct arguments *a, int option)
{
	switch (option) {
	case BITS:
		return choose("bits", optarg, (const int[]){ 4, 8, 16, 32, 0 }, &a->pack.bits);
	case DENSE_BITS:
		return choose("dense-bits", optarg, (const int[]){ 8, 16, 32, 0 },
			      &a->pack.dense_bits);
	case GROUP_SIZE:
		return choose("group-size", optarg, (const int[]){ 32, 64, 128, 0 },
			      &a->pack.group);
	case DRIVE:
		if (a->drives == MAX_DRIVES) {
			fprintf(stderr, "coli-pack: more than %d drives\n", MAX_DRIVES);
			return 2;
		}
		a->drive[a->drives++] = optarg;
		return 0;
	case RESTART:
		a->restart = true;
		return 0;
	case DRY_RUN:
		a->dry_run = true;
		return 0;
	case HELP:
		usage(stdout);
		return -1;
	case SHOW_VERSION:
		puts("coli-pack " EXPERTFS_VERSION);
		return -1;
	default: /* getopt has said it */
		return 2;
	}
}

static int parse_arguments(int argc, char **argv, struct arguments *a)
{
	int option, rc;

	*a = (struct arguments){ .pack = { .bits = 4, .dense_bits = 8, .group = 64 } };
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		rc = take_option(a, option);
		if (rc)
			return rc;
	}
	if (argc - optind != 2) {
		fputs("coli-pack: two folders are needed, CHECKPOINT and STORE; see --help\n",
		      stderr);
		return 2;
	}
	a->checkpoint = argv[optind];
	a->store = argv[optind + 1];
	return 0;
}

static int run(const struct arguments *a, char *why)
{
	struct checkpoint *ck = NULL;
	struct plan *p = NULL;
	struct output *o = NULL;
	char *model_json = NULL;
	int missing = 0, err = ckpt_open(a->checkpoint, &ck, &missing, why);

	err = err ? err : output_name(a->store, (char *const *)a->drive, a->drives, &o, why);
	err = err ? err : plan_make(ck, &a->pack, o->drives, &p, why);
	err = err ? err : modeljson_text(p, &model_json, why);
	if (err == 0 && missing)
		fprintf(stderr,
			"coli-pack: the checkpoint has no tensors of %d MTP layer%s that its "
			"config.json promises; packing without\n",
			missing, missing == 1 ? "" : "s");
	if (err == 0 && a->dry_run)
		table_print(stdout, p, o, strlen(model_json) + ck->tokenizer_bytes);
	else if (err == 0)
		err = pack_store(p, o, model_json, a->restart, &stop, why);
	free(model_json);
	plan_free(p);
	output_close(o);
	ckpt_close(ck);
	return err;
}

int main(int argc, char **argv)
{
	struct arguments a;
	char why[WHY_MAX] = "failed without a reason";
	int rc = parse_arguments(argc, argv, &a);

	if (rc)
		return rc < 0 ? 0 : rc;
	catch_signals();
	rc = run(&a, why);
	if (rc == -EINTR)
		say("interrupted; the same command resumes");
	else if (rc)
		say(why);
	if (fflush(stdout) != 0 && rc == 0) {
		say("cannot write to standard output");
		return 1;
	}
	return rc ? 1 : 0;
}
