/* SPDX-License-Identifier: Apache-2.0
 *
 * coli-engine tokenize: text to token ids and back.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/client.h"
#include "engine/commands.h"
#include "engine/fail.h"

static const char help[] =
	"usage: coli-engine tokenize MOUNT [--plain | --decode]\n"
	"Text on stdin, its token ids on one line of stdout.\n\n"
	"  --plain         the text of special tokens is ordinary text\n"
	"  --decode        token ids on stdin, the bytes they stand for on stdout\n";

static int encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags,
		  char *why)
{
	int32_t *ids;
	size_t n;
	int r = tokenizer_encode(t, text, bytes, flags, &ids, &n, why);

	if (r)
		return r;
	for (size_t i = 0; i < n; i++)
		printf(i ? " %d" : "%d", ids[i]);
	putchar('\n');
	free(ids);
	return 0;
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
						 { NULL, 0, NULL, 0 } };
	struct tokenizer *t = NULL;
	char why[WHY_MAX] = "", *text = NULL;
	bool plain = false, back = false;
	size_t bytes = 0;
	int code;

	opterr = 0;
	while ((code = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (code == OPT_HELP)
			print_help(help, "");
		if (code != 'P' && code != 'd')
			return option_error(code, argv);
		plain |= code == 'P';
		back |= code == 'd';
	}
	if (optind != argc - 1 || (plain && back))
		return say_usage("tokenize takes one MOUNT, and one of --plain and --decode");
	int r = client_tokenizer(argv[optind], &t, why);
	if (!r)
		r = read_text("-", &text, &bytes, why);
	if (!r)
		r = back ? decode(t, text, bytes, why)
			 : encode(t, text, bytes, plain ? TOKENIZER_PLAIN : 0, why);
	if (!r && (fflush(stdout) != 0 || ferror(stdout)))
		r = fail(why, EIO, "standard output cannot be written to");
	tokenizer_free(t);
	free(text);
	return r ? say_error("%s", why) : 0;
}
