/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-engine run: continues a prompt.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/bytes.h"
#include "engine/client.h"
#include "engine/commands.h"
#include "engine/fail.h"
#include "engine/generate.h"
#include "engine/prompt.h"
#include "engine/report.h"
#include "engine/session.h"
#include "engine/signals.h"
#include "engine/utf8.h"

static const char help[] =
	"usage: coli-engine run MOUNT (-p TEXT | -f FILE | --prompt-ids \"1 2 3\" | --messages "
	"FILE) [options]\n"
	"Continues a prompt with the model under MOUNT, and streams the text to stdout.\n\n"
	"  -p TEXT         the prompt, as it is: nothing is added, special tokens in it are "
	"recognised\n"
	"  -f FILE         the prompt from a file; - is standard input\n"
	"  --prompt-ids S  the prompt as token ids\n"
	"  --chat          what -p or -f gives is what a user says: the model's chat template goes "
	"round it, and the\n"
	"                  run ends with the answer\n"
	"  --system TEXT   with --chat: what the system says before\n"
	"  --messages FILE a conversation to go on with, as JSON that tokenize --chat takes\n"
	"  --chat-format F for --chat and --messages: the form of this family, whatever the "
	"model's "
	"template is\n"
	"  -n N            tokens to make at most (default 256)\n"
	"  --temp T        temperature (default 0: always the most likely token)\n"
	"  --top-p P       draw from the most likely tokens that together have probability P "
	"(default 1)\n"
	"  --top-k K       draw from the K most likely tokens (default 0: all)\n"
	"  --seed S        seed of the draws (default: one is drawn and reported)\n"
	"  --draft D       guess D tokens ahead with the model's MTP layer, up to 15, and check "
	"them at once; changes no\n"
	"                  token. auto (default): as many as are measured to be faster; off: none\n"
	"  --session FILE  keep the context in FILE: a prompt that begins like the one in it "
	"computes "
	"only\n"
	"                  what is new\n"
	"  --json          print one JSON object instead of the text\n"
	"  --logits        with --json: the logits after the prompt\n"
	"  --profile       where the time went, and what limited the run\n"
	"  -q, --quiet     no words on memory and speed\n";

enum {
	OPT_PROMPT_IDS = OPT_OWN,
	OPT_CHAT,
	OPT_SYSTEM,
	OPT_MESSAGES,
	OPT_CHAT_FORMAT,
	OPT_TEMP,
	OPT_TOP_P,
	OPT_TOP_K,
	OPT_SEED,
	OPT_DRAFT,
	OPT_SESSION,
	OPT_JSON,
	OPT_LOGITS,
	OPT_PROFILE
};

struct run {
	/* Options. */
	const char *mount, *session_file;
	struct prompt_source source;
	struct engine_options options;
	struct sampler_options sampling;
	int n, draft; /* draft: DRAFT_AUTO, or how many */
	bool seed_given, temp_given, json, logits, quiet;
	/* State. */
	struct client client;
	struct kv_session *session;
	const struct generation *g; /* while it runs */
	bool interrupted;           /* by a signal, before its end */
	struct prompt prompt;
	int32_t *eos; /* tokens that end the run */
	int eos_n;
	struct utf8_stream stream;
	char *out; /* the text made so far, raw bytes */
	size_t out_bytes, out_room;
};

static int parse_draft(const char *text, int *out)
{
	int64_t v = strcmp(text, "auto") == 0 ? DRAFT_AUTO : 0;
	int status = 0;

	if (!v && strcmp(text, "off") != 0)
		status = option_int("--draft, if it is neither auto nor off,", text, 1,
				    ENGINE_DRAFT_MAX, &v);
	*out = (int)v;
	return status;
}

/* What the prompt is. */
static bool option_source(struct prompt_source *s, int code, const char *text)
{
	switch (code) {
	case 'p':
		s->text = text;
		break;
	case 'f':
		s->file = text;
		break;
	case OPT_PROMPT_IDS:
		s->ids = text;
		break;
	case OPT_CHAT:
		s->chat = true;
		break;
	case OPT_SYSTEM:
		s->system = text;
		break;
	case OPT_MESSAGES:
		s->messages = text;
		break;
	case OPT_CHAT_FORMAT:
		s->format = text;
		break;
	default:
		return false;
	}
	return true;
}

static int parse_option(struct run *r, int code, const char *text, char **argv)
{
	int64_t v = 0;
	int status = 0;

	if (option_common(&r->options, code, text, &status) ||
	    option_source(&r->source, code, text))
		return status;
	switch (code) {
	case OPT_HELP:
		print_help(help, common_help);
	case 'n':
		status = option_int("-n", text, 0, 1 << 30, &v);
		r->n = (int)v;
		return status;
	case OPT_TEMP:
		r->temp_given = true;
		return option_number("--temp", text, 0, 1000, &r->sampling.temperature);
	case OPT_TOP_P:
		return option_number("--top-p", text, 0, 1, &r->sampling.top_p);
	case OPT_TOP_K:
		status = option_int("--top-k", text, 0, INT_MAX, &v);
		r->sampling.top_k = (int)v;
		return status;
	case OPT_SEED:
		status = option_int("--seed", text, 0, INT64_MAX, &v);
		r->sampling.seed = (uint64_t)v;
		r->seed_given = true;
		return status;
	case OPT_DRAFT:
		return parse_draft(text, &r->draft);
	case OPT_SESSION:
		r->session_file = text;
		return 0;
	case OPT_JSON:
		r->json = true;
		return 0;
	case OPT_LOGITS:
		r->logits = true;
		return 0;
	case OPT_PROFILE:
		r->options.profile = true;
		return 0;
	case 'q':
		r->quiet = true;
		return 0;
	default:
		return option_error(code, argv);
	}
}

/* Nothing is taken that then does nothing. */
static int check_together(const struct run *r)
{
	if (r->logits && !r->json)
		return say_usage("--logits is for --json");
	if (r->options.profile && r->quiet && !r->json)
		return say_usage("--profile is not for --quiet, unless there is --json");
	/* Who names a temperature of 0 knows what comes; one that was forgotten is another matter. */
	if (!r->temp_given && (r->sampling.top_k || r->sampling.top_p < 1))
		return say_usage("--top-k and --top-p are for a --temp, which is 0 unless given");
	return 0;
}

static int check_source(const struct prompt_source *s)
{
	if (!!s->text + !!s->file + !!s->ids + !!s->messages != 1)
		return say_usage("run takes one of -p, -f, --prompt-ids and --messages");
	if (s->chat && !s->text && !s->file)
		return say_usage("--chat is for -p and -f");
	if (s->system && !s->chat)
		return say_usage("--system is for --chat");
	if (s->format && !s->chat && !s->messages)
		return say_usage("--chat-format is for --chat and --messages");
	return 0;
}

/* 0: go on; else the status to exit with. */
static int parse(struct run *r, int argc, char **argv)
{
	static const struct option options[] = {
		{ "prompt-ids", required_argument, NULL, OPT_PROMPT_IDS },
		{ "chat", no_argument, NULL, OPT_CHAT },
		{ "system", required_argument, NULL, OPT_SYSTEM },
		{ "messages", required_argument, NULL, OPT_MESSAGES },
		{ "chat-format", required_argument, NULL, OPT_CHAT_FORMAT },
		{ "temp", required_argument, NULL, OPT_TEMP },
		{ "top-p", required_argument, NULL, OPT_TOP_P },
		{ "top-k", required_argument, NULL, OPT_TOP_K },
		{ "seed", required_argument, NULL, OPT_SEED },
		{ "draft", required_argument, NULL, OPT_DRAFT },
		{ "session", required_argument, NULL, OPT_SESSION },
		{ "json", no_argument, NULL, OPT_JSON },
		{ "logits", no_argument, NULL, OPT_LOGITS },
		{ "profile", no_argument, NULL, OPT_PROFILE },
		{ "quiet", no_argument, NULL, 'q' },
		COMMON_OPTIONS,
		{ NULL, 0, NULL, 0 }
	};
	int code, status = 0;

	opterr = 0;
	while (!status && (code = getopt_long(argc, argv, ":p:f:n:q", options, NULL)) != -1)
		status = parse_option(r, code, optarg, argv);
	if (status)
		return status;
	if (optind != argc - 1)
		return say_usage("run takes one MOUNT");
	r->mount = argv[optind];
	status = check_together(r);
	return status ? status : check_source(&r->source);
}

/* The model's end tokens, and those of the conversation. */
static int find_eos(struct run *r, char *why)
{
	const struct modelfile *m = r->client.file;
	size_t own = (size_t)m->eos_count, more = (size_t)r->prompt.ends_n;

	r->eos = malloc((own + more + 1) * sizeof(*r->eos));
	if (!r->eos)
		return fail(why, ENOMEM, "no memory for the list of end tokens");
	memcpy(r->eos, m->eos, own * sizeof(*r->eos));
	memcpy(r->eos + own, r->prompt.ends, more * sizeof(*r->eos));
	r->eos_n = (int)(own + more);
	return 0;
}

/* What the run needs of a context; or a sentence with the numbers if the prompt is too long for the
 * one asked for, or for the model. */
static int find_need(const struct run *r, struct engine_need *need, char *why)
{
	int max = r->client.file->config.max_positions, ctx = r->options.ctx ? r->options.ctx : max;
	size_t prompt_n = r->prompt.n, wanted = prompt_n + (size_t)r->n;

	if (ctx > max)
		return fail(why, ERANGE, "--ctx %d is more than the %d tokens of the model", ctx,
			    max);
	if (prompt_n > (size_t)ctx)
		return fail(why, ERANGE, "the prompt has %zu tokens, but the context holds %d%s",
			    prompt_n, ctx, ctx == max ? ", as many as the model can" : " (--ctx)");
	*need = (struct engine_need){ .least = (int)prompt_n,
				      .wanted = wanted < (size_t)ctx ? (int)wanted : ctx,
				      .feed = (int)prompt_n };
	return 0;
}

/* Most guesses at once, for the engine. Without an MTP layer there is nothing to choose from: auto
 * is off then, and the report says why. */
static int choose_draft(struct run *r, char *why)
{
	bool can = engine_can_draft(r->client.file);

	if (r->draft > 0 && !can)
		return fail(why, EINVAL, "%s has no MTP layer to guess tokens with (--draft)",
			    r->mount);
	r->options.draft = r->draft == DRAFT_AUTO ? (can ? DRAFT_AUTO_MOST : 0) : r->draft;
	return 0;
}

static int append(struct run *r, const char *piece, size_t bytes, char *why)
{
	if (r->out_bytes + bytes > r->out_room) {
		size_t room = 2 * (r->out_bytes + bytes) + 256;
		char *more = realloc(r->out, room);
		if (!more)
			return fail(why, ENOMEM, "no memory for the text");
		r->out = more;
		r->out_room = room;
	}
	memcpy(r->out + r->out_bytes, piece, bytes);
	r->out_bytes += bytes;
	return 0;
}

static int write_out(const char *text, size_t bytes, char *why)
{
	if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
		return fail(why, EIO, "the text cannot be written to standard output");
	return 0;
}

/* A token was made: its text is kept, and shown unless the end is to be JSON. */
static int on_token(void *arg, int32_t id, char *why)
{
	struct run *r = arg;
	size_t bytes = 0;
	const char *piece = tokenizer_piece(r->client.tokenizer, id, &bytes);

	status_clear(&r->client.status);
	if (!piece || tokenizer_is_special(r->client.tokenizer, id) || generation_ends(r->g, id))
		return 0;
	int err = append(r, piece, bytes, why);
	if (err || r->json)
		return err;
	char *shown = malloc(UTF8_STREAM_ROOM(bytes));
	if (!shown)
		return fail(why, ENOMEM, "no memory for the text");
	err = write_out(shown, utf8_stream_push(&r->stream, piece, bytes, shown), why);
	free(shown);
	return err;
}

static int finish_text(struct run *r, char *why)
{
	char rest[4];
	size_t n = utf8_stream_flush(&r->stream, rest);

	if (isatty(STDOUT_FILENO))
		rest[n++] = '\n';
	return write_out(rest, n, why);
}

static int new_sampler(struct run *r, struct sampler **out, char *why)
{
	int vocab = r->client.file->config.vocab, count = 0;
	bool *allowed = malloc((size_t)vocab * sizeof(*allowed));

	*out = NULL;
	if (!allowed)
		return fail(why, ENOMEM, "no memory to sample from %d tokens", vocab);
	for (int i = 0; i < vocab; i++)
		count += allowed[i] = tokenizer_has(r->client.tokenizer, i);
	if (r->sampling.temperature > 0 && !r->seed_given) {
		if (getrandom(&r->sampling.seed, sizeof(r->sampling.seed), 0) < 0)
			r->sampling.seed = (uint64_t)getpid();
		r->sampling.seed >>= 11; /* every JSON reader holds 53 bits exactly */
	}
	int err = count ? sampler_new(&r->sampling, allowed, vocab, out, why)
			: fail(why, EINVAL,
			       "%s/tokenizer.json defines no token of the model's vocabulary",
			       r->mount);
	free(allowed);
	return err;
}

/* -1: not known, or counted by another daemon. */
static int64_t grown(int64_t before, int64_t after)
{
	return before >= 0 && after >= before ? after - before : -1;
}

/* What the daemon has counted since `before`. Its end must not spoil a finished run. */
static void count_since(const struct run *r, const struct mount_stats *before,
			struct run_report *out)
{
	struct mount_stats after;

	out->hits = out->misses = -1;
	out->guess = (struct guess_counts){ -1, -1, -1 };
	if (mount_stats(r->mount, &after, NULL) != 0)
		return;
	out->hits = grown(before->hits, after.hits);
	out->misses = grown(before->misses, after.misses);
	out->guess.loaded = grown(before->prefetch_loaded, after.prefetch_loaded);
	out->guess.used = grown(before->prefetch_used, after.prefetch_used);
	out->guess.wasted = grown(before->prefetch_wasted, after.prefetch_wasted);
}

static int find_limits(struct run *r, const struct generation *g, struct limits *limits,
		       struct profile_report *out, char *why)
{
	*out = (struct profile_report){ .profile = engine_profile(r->client.engine),
					.limits = limits };
	out->tokens[PROFILE_PROMPT] = g->prompt_done - g->restored;
	/* The first token comes of the prompt. */
	out->tokens[PROFILE_DECODE] = g->made > 0 ? g->made - 1 : 0;
	return engine_limits(r->client.engine, limits, why);
}

static int report(struct run *r, struct generation *g, const struct mount_stats *before, char *why)
{
	struct engine_stats stats;
	struct profile_report profile;
	struct limits limits;
	struct run_report rep = {
		.g = g,
		.stats = &stats,
		.mode = engine_mode(r->client.engine),
		.seeded = r->sampling.temperature > 0,
		.seed = r->sampling.seed,
		.text = r->out ? r->out : "",
		.text_bytes = r->out_bytes,
		.vocab = r->client.file->config.vocab,
		.can_draft = engine_can_draft(r->client.file),
	};
	int err = 0;

	engine_get_stats(r->client.engine, &stats);
	count_since(r, before, &rep);
	if (r->options.profile) {
		err = find_limits(r, g, &limits, &profile, why);
		rep.profile = &profile;
	}
	if (err)
		return err;
	if (r->json)
		return report_json(&rep, why);
	err = finish_text(r, why);
	if (!err && !r->quiet)
		report_lines(&rep);
	return err;
}

/* A session feeds its prompt in pieces; to a person it is one. */
static void on_progress(void *arg, const char *what, double done, double total)
{
	struct run *r = arg;

	if (r->g && strcmp(what, "prompt") == 0)
		status_report(&r->client.status, what, r->g->prompt_done + done, r->g->prompt_n);
	else
		status_report(&r->client.status, what, done, total);
}

/* Before anything is loaded: a session that is not for this run is refused at once. */
static int open_session(struct run *r, char *why)
{
	r->options.session = r->session_file != NULL;
	if (!r->session_file)
		return 0;
	return kv_session_open(r->session_file, r->client.file, &r->options, &r->session, why);
}

static int restore_session(struct run *r, char *why)
{
	char text[BYTES_TEXT];
	int err;

	if (!r->session)
		return 0;
	err = kv_session_restore(r->session, r->client.engine, r->prompt.ids, (int)r->prompt.n,
				 why);
	if (err)
		return err;
	signals_remember_interrupt();
	if (r->quiet || r->json)
		return 0;
	if (kv_session_torn(r->session))
		fprintf(stderr,
			"session: the last %s of %s were not written whole or are damaged, and "
			"are left out\n",
			bytes_text(kv_session_torn(r->session), text), r->session_file);
	fprintf(stderr, "session: %d of %zu prompt tokens restored\n",
		engine_position(r->client.engine), r->prompt.n);
	return 0;
}

static bool was_interrupted(void)
{
	return signals_interrupted() != 0;
}

static int run(struct run *r, char *why)
{
	struct sampler *sampler = NULL;
	struct mount_stats before;
	struct engine_need need;
	int err = client_describe(&r->client, r->mount, why);

	if (!err)
		err = prompt_read(&r->source, r->mount, r->client.tokenizer, &r->prompt, why);
	if (!err)
		err = find_eos(r, why);
	if (!err)
		err = find_need(r, &need, why);
	if (!err)
		err = choose_draft(r, why);
	if (!err)
		err = open_session(r, why);
	r->client.status.progress = (struct progress){ on_progress, r };
	if (!err)
		err = client_load(&r->client, &r->options, &need, r->quiet || r->json, why);
	if (!err)
		err = new_sampler(r, &sampler, why);
	if (!err)
		err = mount_stats(r->mount, &before, why);
	if (!err)
		err = restore_session(r, why);
	if (!err) {
		struct generation g = { .prompt = r->prompt.ids,
					.prompt_n = (int)r->prompt.n,
					.n = r->n,
					.eos = r->eos,
					.eos_n = r->eos_n,
					.want_logits = r->logits,
					.draft = r->draft,
					.draft_max = r->options.draft,
					.token = on_token,
					.arg = r,
					.session = r->session,
					.interrupted = was_interrupted };
		r->g = &g;
		err = generate(r->client.engine, sampler, r->client.file->config.vocab, &g, why);
		status_clear(&r->client.status);
		r->interrupted = g.stop == STOP_INTERRUPTED;
		if (!err)
			err = report(r, &g, &before, why);
		generation_free(&g);
		r->g = NULL;
	}
	sampler_free(sampler);
	return err;
}

int cmd_run(int argc, char **argv)
{
	struct run r = { .n = 256, .draft = DRAFT_AUTO, .sampling = { .top_p = 1 } };
	char why[WHY_MAX] = "";

	int status = parse(&r, argc, argv);
	if (status)
		return status;
	int err = run(&r, why);
	status_clear(&r.client.status);
	kv_session_close(r.session);
	client_close(&r.client);
	free(r.prompt.ids);
	free(r.eos);
	free(r.out);
	if (err)
		return say_error("%s", why);
	return r.interrupted ? 128 + signals_interrupted() : 0;
}
