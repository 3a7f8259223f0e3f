/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-engine tokenize: text, or the messages of a chat, to token ids; and back.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_request.h"
#include "engine/client.h"
#include "engine/commands.h"
#include "engine/fail.h"

static const char help[] =
	"usage: coli-engine tokenize MOUNT [--plain | --decode | --chat | --chat-text]\n"
	"Text on stdin, its token ids on one line of stdout.\n\n"
	"  --plain         the text of special tokens is ordinary text\n"
	"  --decode        token ids on stdin, the bytes they stand for on stdout\n"
	"  --chat          JSON on stdin, a list of messages or {\"messages\": [...], ...};\n"
	"                  token ids of what the model's chat template makes of them\n"
	"  --chat-text     the same as text\n"
	"  --chat-format F the form of this family, whatever the model's template is\n";

static void print_ids(const int32_t *ids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
	putchar('\n');
}

static int encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags,
		  char *why)
{
	int32_t *ids;
	size_t n;
	int r = tokenizer_encode(t, text, bytes, flags, &ids, &n, why);

	if (r)
		return r;
	print_ids(ids, n);
	free(ids);
	return 0;
}

/* t: NULL for the text itself. */
static int print_chat(const struct tokenizer *t, const struct chat_text *text, char *why)
{
	int32_t *ids;
	size_t n;

	if (!t) {
		fwrite(text->text, 1, text->bytes, stdout);
		return 0;
	}
	int r = chat_encode(t, text, &ids, &n, why);
	if (r)
		return r;
	print_ids(ids, n);
	free(ids);
	return 0;
}

static int render(const struct tokenizer *t, const char *mount, const char *format,
		  const char *json, size_t bytes, char *why)
{
	struct chat_text text;
	struct chat *chat;
	json_t *request;
	int r = chat_request_parse(json, bytes, "standard input", &request, why);

	if (r)
		return r;
	r = chat_request_render(mount, format, request, &chat, &text, why);
	if (!r) {
		r = print_chat(t, &text, why);
		chat_text_free(&text);
		chat_free(chat);
	}
	json_decref(request);
	return r;
}

static int decode(const struct tokenizer *t, const char *text, size_t bytes, char *why)
{
	int32_t *ids;
	size_t n, piece_bytes;
	int r;

	if (memchr(text, 0, bytes))
		return fail(why, EINVAL, "standard input holds a zero byte, no list of token ids");
	r = parse_ids(text, &ids, &n, why);
	for (size_t i = 0; i < n && !r; i++) {
		const char *piece = tokenizer_piece(t, ids[i], &piece_bytes);
		if (!piece)
			r = fail(why, EINVAL, "token %d is not defined", ids[i]);
		else
			fwrite(piece, 1, piece_bytes, stdout);
	}
	free(ids);
	return r;
}

int cmd_tokenize(int argc, char **argv)
{
	static const struct option options[] = { { "help", no_argument, NULL, OPT_HELP },
						 { "plain", no_argument, NULL, 'P' },
						 { "decode", no_argument, NULL, 'd' },
						 { "chat", no_argument, NULL, 'c' },
						 { "chat-text", no_argument, NULL, 't' },
						 { "chat-format", required_argument, NULL, 'f' },
						 { NULL, 0, NULL, 0 } };
	struct tokenizer *t = NULL;
	char why[WHY_MAX] = "", *text = NULL;
	const char *format = NULL;
	size_t bytes = 0;
	int code, mode = 0, modes = 0;

	opterr = 0;
	while ((code = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (code == OPT_HELP)
			print_help(help, "");
		if (!strchr("Pdctf", code))
			return option_error(code, argv);
		if (code == 'f') {
			format = optarg;
			continue;
		}
		modes += mode != code;
		mode = code;
	}
	bool chat = mode == 'c' || mode == 't';
	if (optind != argc - 1 || modes > 1 || (format && !chat))
		return say_usage("tokenize takes one MOUNT, one of --plain, --decode, --chat and "
				 "--chat-text, and --chat-format with the last two");
	int r = mode == 't' ? 0 : client_tokenizer(argv[optind], &t, why);
	if (!r)
		r = read_text("-", &text, &bytes, why);
	if (!r && chat)
		r = render(t, argv[optind], format, text, bytes, why);
	else if (!r)
		r = mode == 'd' ? decode(t, text, bytes, why)
				: encode(t, text, bytes, mode == 'P' ? TOKENIZER_PLAIN : 0, why);
	if (!r && (fflush(stdout) != 0 || ferror(stdout)))
		r = fail(why, EIO, "standard output cannot be written to");
	tokenizer_free(t);
	free(text);
	return r ? say_error("%s", why) : 0;
}
