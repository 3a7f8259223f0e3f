/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that subcommands share.
 */
#include "engine/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fail.h"

const char common_help[] =
	"  --threads N     threads that compute (default: the physical cores this process may "
	"use)\n"
	"  --ctx N         tokens the context holds\n"
	"  --kv f32|bf16   how the key-value cache is kept (default f32)\n"
	"  --activations 8|32  bits of what is multiplied with weights of 8 bits and fewer\n"
	"                  (default 8; 32 is slower)\n"
	"  --lookahead auto|on|off  tell the daemon early which experts the next layer will want "
	"(default auto:\n"
	"                  while tokens come faster with it)\n"
	"  --chunk N       tokens of a prompt that go through a layer together (default: what "
	"memory allows)\n"
	"  --memory SIZE   memory the program may take (12G): chunk and context are chosen by it\n";

static void say(const char *fmt, va_list ap, const char *more)
{
	fputs("coli-engine: ", stderr);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "%s\n", more);
}

int say_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, "");
	va_end(ap);
	return EXIT_FAILURE;
}

int say_usage(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(fmt, ap, " (coli-engine --help tells more)");
	va_end(ap);
	return EXIT_USAGE;
}

int option_error(int code, char **argv)
{
	/* The last word that getopt is done with, which is not yet that of a letter among others. */
	const char *word = argv[optind - 1], *value = strchr(word, '=');

	if (code == ':')
		return say_usage("%s needs a value", word);
	if (optopt && value && strncmp(word, "--", 2) == 0)
		return say_usage("%.*s takes no value", (int)(value - word), word);
	if (optopt > 0 && optopt < 256)
		return say_usage("there is no option -%c", optopt);
	return say_usage("there is no option %s", word);
}

_Noreturn void print_help(const char *help, const char *more)
{
	bool ok = printf("%s%s", help, more) > 0 && fflush(stdout) == 0;

	exit(ok ? EXIT_SUCCESS : say_error("standard output cannot be written to"));
}

int option_int(const char *name, const char *text, int64_t lo, int64_t hi, int64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoll(text, &end, 10);
	if (end == text || *end || errno || *out < lo || *out > hi)
		return say_usage("%s takes a number from %" PRId64 " to %" PRId64 ", not \"%s\"",
				 name, lo, hi, text);
	return 0;
}

int option_number(const char *name, const char *text, double lo, double hi, double *out)
{
	char *end;

	*out = strtod(text, &end);
	if (end == text || *end || !(*out >= lo && *out <= hi))
		return say_usage("%s takes a number from %g to %g, not \"%s\"", name, lo, hi, text);
	return 0;
}

int option_size(const char *name, const char *text, uint64_t *out)
{
	static const char units[] = "kmgt";
	char number[32], *end;
	size_t n = strspn(text, "0123456789.");
	const char *suffix = text + n, *unit;
	double v = 0;

	number[0] = 0;
	if (n < sizeof(number)) {
		memcpy(number, text, n);
		number[n] = 0;
	}
	v = strtod(number, &end);
	if (*end || end == number)
		v = 0;
	if (*suffix && (unit = strchr(units, tolower((unsigned char)*suffix)))) {
		v *= (double)((uint64_t)1 << (10 * (unit - units + 1)));
		suffix++;
		suffix += *suffix == 'i' && suffix[1];
	}
	suffix += *suffix == 'B' || *suffix == 'b';
	if (*suffix || !(v >= 1 && v < 0x1p63))
		return say_usage("%s takes a size like 12G or 512M, not \"%s\"", name, text);
	*out = (uint64_t)v;
	return 0;
}

static int parse_lookahead(const char *text, enum lookahead_mode *mode)
{
	for (int m = LOOKAHEAD_AUTO; m <= LOOKAHEAD_OFF; m++)
		if (strcmp(text, lookahead_mode_name((enum lookahead_mode)m)) == 0) {
			*mode = (enum lookahead_mode)m;
			return 0;
		}
	return say_usage("--lookahead takes auto, on or off, not \"%s\"", text);
}

static int common(struct engine_options *o, int code, const char *text)
{
	int64_t n = 0;
	int r;

	switch (code) {
	case OPT_THREADS:
		r = option_int("--threads", text, 1, 4096, &n);
		o->threads = (int)n;
		return r;
	case OPT_CTX:
		r = option_int("--ctx", text, 1, INT_MAX, &n);
		o->ctx = (int)n;
		return r;
	case OPT_CHUNK:
		r = option_int("--chunk", text, 1, 1 << 20, &n);
		o->chunk = (int)n;
		return r;
	case OPT_MEMORY:
		return option_size("--memory", text, &o->memory);
	case OPT_ACTIVATIONS:
		o->float_activations = strcmp(text, "32") == 0;
		if (!o->float_activations && strcmp(text, "8") != 0)
			return say_usage("--activations takes 8 or 32, not \"%s\"", text);
		return 0;
	case OPT_LOOKAHEAD:
		return parse_lookahead(text, &o->lookahead);
	default:
		o->kv = strcmp(text, "bf16") == 0 ? KV_BF16 : KV_F32;
		if (strcmp(text, "f32") != 0 && strcmp(text, "bf16") != 0)
			return say_usage("--kv takes f32 or bf16, not \"%s\"", text);
		return 0;
	}
}

bool option_common(struct engine_options *o, int code, const char *text, int *status)
{
	if (code < OPT_THREADS || code > OPT_MEMORY)
		return false;
	*status = common(o, code, text);
	return true;
}

int parse_ids(const char *text, int32_t **ids, size_t *n, char *why)
{
	/* An id and its separator take two characters at least. */
	*ids = malloc((strlen(text) / 2 + 1) * sizeof(**ids));
	*n = 0;
	if (!*ids)
		return fail(why, ENOMEM, "no memory for the list of token ids");
	for (;;) {
		char *end;
		while (isspace((unsigned char)*text) || *text == ',')
			text++;
		if (!*text)
			return 0;
		long long id = strtoll(text, &end, 10);
		bool apart = !*end || isspace((unsigned char)*end) || *end == ',';
		if (end == text || !apart || id < 0 || id > INT32_MAX) {
			free(*ids);
			*ids = NULL;
			return fail(why, EINVAL, "\"%.*s\" is not a token id",
				    (int)strcspn(text, " \t\n,"), text);
		}
		(*ids)[(*n)++] = (int32_t)id;
		text = end;
	}
}
