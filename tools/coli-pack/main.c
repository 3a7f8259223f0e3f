/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-pack: a Hugging Face checkpoint, a container of Colibri's or a GGUF file becomes a store. This
 * file has the order of things: read and check everything (checkpoint.h), see how fast the drives
 * are (speeds.h), plan what will be written (plan.h), write it (pack.h).
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expertfs/fail.h"
#include "expertfs/gguf.h"
#include "tools/coli-pack/arguments.h"
#include "tools/coli-pack/gguf.h"
#include "tools/coli-pack/modeljson.h"
#include "tools/coli-pack/pack.h"
#include "tools/coli-pack/speeds.h"
#include "tools/coli-pack/table.h"

static volatile sig_atomic_t stop;

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

/* What a container of Colibri's loses, or does not. */
static void say_codes(const struct plan *p)
{
	const struct source *s = &p->anew;

	if (p->codes_kept)
		fprintf(stderr,
			"coli-pack: %" PRIu64 " matrices keep the integers of the container; their "
			"scales are rounded from 32 to 16 bits, by 0.05 %% at most (scales below "
			"0.00006: by 0.00000003 at most)\n",
			p->codes_kept);
	if (p->codes_anew)
		fprintf(stderr,
			"coli-pack: %" PRIu64 " matrices of the container are quantised a second "
			"time, %s for one: %d bits in groups of %d do not fit %d bits in groups of "
			"%d\n",
			p->codes_anew, s->tensor->name, s->form == SOURCE_INT8 ? 8 : 4,
			s->block_cols, p->anew_as.type == W_Q8 ? 8 : 4, p->anew_as.group);
}

static void say_missing(const struct checkpoint *ck, int missing)
{
	const char *s = missing == 1 ? "" : "s";

	if (missing && ck->colibri)
		fprintf(stderr,
			"coli-pack: the container has no tensors of %d MTP layer%s, or not the "
			"indexer, which Colibri's converter leaves out; packing without\n",
			missing, s);
	else if (missing)
		fprintf(stderr,
			"coli-pack: the checkpoint has no tensors of %d MTP layer%s that its "
			"config.json promises; packing without\n",
			missing, s);
}

static int pack_or_print(const struct arguments *a, const struct plan *p, struct output *o,
			 int missing, char *why)
{
	char *model_json = NULL;
	int err = modeljson_text(p, &model_json, why);

	if (err)
		return err;
	say_missing(p->ck, missing);
	say_codes(p);
	if (a->dry_run)
		table_print(stdout, p, o, strlen(model_json) + p->ck->tokenizer_bytes);
	else
		err = pack_store(p, o, model_json, a->restart, &stop, why);
	free(model_json);
	return err;
}

static int run(struct arguments *a, char *why)
{
	struct checkpoint *ck = NULL;
	struct plan *p = NULL;
	struct output *o = NULL;
	bool gguf = gguf_is(a->checkpoint);
	int missing = 0, err = 0;

	if (gguf && a->formats)
		err = fail(why, EINVAL,
			   "%s is a GGUF file, whose tensors are copied as they are: no --bits, "
			   "--dense-bits or --group-size",
			   a->checkpoint);
	err = err    ? err
	      : gguf ? gguf_ckpt_open(a->checkpoint, &ck, why)
		     : ckpt_open(a->checkpoint, &ck, &missing, why);

	err = err ? err : output_name(a->store, a->drive, a->drives, &o, why);
	err = err ? err : speeds_find(o, &a->spread, a->speed, a->restart, !a->dry_run, &stop, why);
	err = err ? err : plan_make(ck, &a->pack, &a->spread, &p, why);
	err = err ? err : pack_or_print(a, p, o, missing, why);
	plan_free(p);
	output_close(o);
	ckpt_close(ck);
	return err;
}

int main(int argc, char **argv)
{
	static struct arguments a;
	char why[WHY_MAX] = "failed without a reason";
	int rc = arguments_parse(argc, argv, &a);

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
