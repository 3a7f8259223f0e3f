/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the command line. See arguments.h.
 */
#include "tools/coli-pack/arguments.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "expertfs/size.h"

static void usage(FILE *f)
{
	fputs("usage: coli-pack [options] CHECKPOINT STORE\n"
	      "Makes a store for expertfs from a Hugging Face checkpoint folder, also one of\n"
	      "Colibri's containers, or from a GGUF file (of a split model the first one), whose\n"
	      "tensors are copied as they are.\n"
	      "\n"
	      "  --bits 4|8|16|32         of the experts' weights (4; MXFP4 is kept as it is);\n"
	      "                           the MTP layer has at least 8\n"
	      "  --dense-bits 8|16|32     of all other matrices (8)\n"
	      "  --group-size 32|64|128   weights that share a scale, with 4 and 8 bits (64)\n"
	      "  --drive DIR              put experts there; several: spread over them\n"
	      "  --layout stripe|whole    cut each expert over all drives (stripe), or put each on "
	      "one\n"
	      "  --speeds SIZE,SIZE,...   of the drives, a second, instead of measuring them\n"
	      "  --replicas N             copies of each expert, on different drives (1)\n"
	      "  --replicate-hot SIZE     one more copy of the hottest experts, so much at most\n"
	      "  --usage FILE             which are hot: of `expertctl usage --export`\n"
	      "  --restart                begin anew instead of resuming an interrupted pack\n"
	      "  --dry-run                only print what would be written\n"
	      "  --help, --version\n",
	      f);
}

__attribute__((format(printf, 1, 2))) static int wrong(const char *fmt, ...)
{
	va_list ap;

	fputs("coli-pack: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return 2;
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
	return wrong("%s is not a value for --%s; see --help", text, option);
}

static int take_drive(struct arguments *a, char *text)
{
	if (a->drives == STORE_DRIVES_MAX)
		return wrong("more than %d drives", STORE_DRIVES_MAX);
	a->drive[a->drives++] = text;
	return 0;
}

static int take_layout(struct arguments *a, const char *text)
{
	if (strcmp(text, "whole") != 0 && strcmp(text, "stripe") != 0)
		return wrong("%s is not a value for --layout; see --help", text);
	a->spread.layout = *text == 'w' ? LAYOUT_WHOLE : LAYOUT_STRIPE;
	return 0;
}

/* "500M,1G". How many there must be is known when all options are. */
static int take_speeds(struct arguments *a, const char *text)
{
	char one[32];

	a->spread.speeds_from = SPEEDS_GIVEN;
	a->spread.drives = 0;
	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");
		snprintf(one, sizeof(one), "%.*s", (int)n, at);
		if (a->spread.drives == STORE_DRIVES_MAX)
			return wrong("--speeds names more than %d drives", STORE_DRIVES_MAX);
		uint64_t *speed = &a->speed[a->spread.drives++];
		if (n >= sizeof(one) || size_parse(one, speed) != 0 || *speed == 0)
			return wrong("--speeds %s: \"%.*s\" is not a speed; it takes sizes such as "
				     "500M,1.5G, one a drive",
				     text, (int)n, at);
		at += n;
		if (!*at)
			return 0;
	}
}

static int take_replicas(struct arguments *a, const char *text)
{
	unsigned n = 0;

	for (const char *p = text; *p; p++) {
		if (*p < '0' || *p > '9' || n > COPIES_MAX)
			return wrong("%s is not a value for --replicas; see --help", text);
		n = 10 * n + (unsigned)(*p - '0');
	}
	if (n == 0 || n > COPIES_MAX)
		return wrong("--replicas takes 1 to %d, not %s", COPIES_MAX, text);
	a->spread.replicas = n;
	return 0;
}

static int take_hot(struct arguments *a, const char *text)
{
	if (size_parse(text, &a->spread.hot_bytes) != 0 || a->spread.hot_bytes == 0)
		return wrong("--replicate-hot %s: not a size such as 20G", text);
	return 0;
}

enum {
	BITS = 1,
	DENSE_BITS,
	GROUP_SIZE,
	DRIVE,
	LAYOUT,
	SPEEDS,
	REPLICAS,
	REPLICATE_HOT,
	USAGE,
	RESTART,
	DRY_RUN,
	HELP,
	SHOW_VERSION
};

static const struct option options[] = {
	{ "bits", required_argument, NULL, BITS },
	{ "dense-bits", required_argument, NULL, DENSE_BITS },
	{ "group-size", required_argument, NULL, GROUP_SIZE },
	{ "drive", required_argument, NULL, DRIVE },
	{ "layout", required_argument, NULL, LAYOUT },
	{ "speeds", required_argument, NULL, SPEEDS },
	{ "replicas", required_argument, NULL, REPLICAS },
	{ "replicate-hot", required_argument, NULL, REPLICATE_HOT },
	{ "usage", required_argument, NULL, USAGE },
	{ "restart", no_argument, NULL, RESTART },
	{ "dry-run", no_argument, NULL, DRY_RUN },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, SHOW_VERSION },
	{ NULL, 0, NULL, 0 },
};

static int take_option(struct arguments *a, int option)
{
	a->formats = a->formats || option == BITS || option == DENSE_BITS || option == GROUP_SIZE;
	switch (option) {
	case BITS:
		a->pack.keep = false;
		return choose("bits", optarg, (const int[]){ 4, 8, 16, 32, 0 }, &a->pack.bits);
	case DENSE_BITS:
		return choose("dense-bits", optarg, (const int[]){ 8, 16, 32, 0 },
			      &a->pack.dense_bits);
	case GROUP_SIZE:
		return choose("group-size", optarg, (const int[]){ 32, 64, 128, 0 },
			      &a->pack.group);
	case DRIVE:
		return take_drive(a, optarg);
	case LAYOUT:
		return take_layout(a, optarg);
	case SPEEDS:
		return take_speeds(a, optarg);
	case REPLICAS:
		return take_replicas(a, optarg);
	case REPLICATE_HOT:
		return take_hot(a, optarg);
	case USAGE:
		a->spread.usage = optarg;
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

/* Do the options for several drives fit together? */
static int check_spread(struct arguments *a)
{
	struct spread *s = &a->spread;
	uint32_t drives = a->drives ? a->drives : 1;
	unsigned copies = s->replicas + (s->hot_bytes > 0);

	if (s->hot_bytes && !s->usage)
		return wrong("--replicate-hot needs --usage FILE: which experts are hot is known "
			     "only from the use of an earlier store (expertctl usage --export)");
	if (s->usage && !s->hot_bytes)
		return wrong("--usage is of use with --replicate-hot SIZE only");
	if (copies > drives)
		return wrong("%u copies of an expert need %u drives, and there %s %u", copies,
			     copies, drives == 1 ? "is" : "are", drives);
	if (copies > COPIES_MAX)
		return wrong("more than %d copies of an expert", COPIES_MAX);
	if (s->speeds_from == SPEEDS_GIVEN && s->drives != drives)
		return wrong("--speeds names %u drive%s, and there %s %u", s->drives,
			     s->drives == 1 ? "" : "s", drives == 1 ? "is" : "are", drives);
	s->drives = drives;
	return 0;
}

int arguments_parse(int argc, char **argv, struct arguments *a)
{
	int option, rc;

	*a = (struct arguments){ .pack = { .bits = 4, .keep = true, .dense_bits = 8, .group = 64 },
				 .spread = { .replicas = 1 } };
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		rc = take_option(a, option);
		if (rc)
			return rc;
	}
	if (argc - optind != 2)
		return wrong("two folders are needed, CHECKPOINT and STORE; see --help");
	a->checkpoint = argv[optind];
	a->store = argv[optind + 1];
	return check_spread(a);
}
