/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-pack: a Hugging Face checkpoint or a GGUF file becomes a store. This file has the order of things: read and
 * check everything (checkpoint.h), see how fast the drives are (speeds.h), plan what will be
 * written (plan.h), write it (pack.h).
 */
#include <errno.h>
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

static int pack_or_print(const struct arguments *a, const struct plan *p, struct output *o,
			 int missing, char *why)
{
	char *model_json = NULL;
	int err = modeljson_text(p, &model_json, why);

	if (err)
		return err;
	if (missing)
		fprintf(stderr,
			"coli-pack: the checkpoint has no tensors of %d MTP layer%s that its "
			"config.json promises; packing without\n",
			missing, missing == 1 ? "" : "s");
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
