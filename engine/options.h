/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the command line that subcommands share, and how their errors are said.
 */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#define EXIT_USAGE 2

/* "coli-engine: sentence" to stderr; returns 1, the exit status. */
__attribute__((format(printf, 1, 2))) int say_error(const char *fmt, ...);
/* The same and where to read on; returns EXIT_USAGE. */
__attribute__((format(printf, 1, 2))) int say_usage(const char *fmt, ...);

/* For what getopt_long() could not use, with opterr = 0 and a ':' in front of the short options:
 * says which option is unknown or lacks its value. Returns EXIT_USAGE. */
int option_error(int code, char **argv);
/* Prints parts to stdout and ends the program. */
_Noreturn void print_help(const char *help, const char *more);

/* Values of options: 0, or EXIT_USAGE after a sentence that names the option. */
int option_int(const char *name, const char *text, int64_t lo, int64_t hi, int64_t *out);
int option_number(const char *name, const char *text, double lo, double hi, double *out);

/* "12G", "512M", "1.5g", "4096": binary units, as expertfs takes them. At least 1. */
int option_size(const char *name, const char *text, uint64_t *out);

/* Options of the engine that subcommands share. */
enum {
	OPT_HELP = 999,
	OPT_THREADS,
	OPT_CTX,
	OPT_KV,
	OPT_ACTIVATIONS,
	OPT_LOOKAHEAD,
	OPT_CHUNK,
	OPT_MEMORY,
	OPT_OWN
};

/* For a table of struct option. */
#define COMMON_OPTIONS                                                                             \
	{ "help", no_argument, NULL, OPT_HELP },                                                   \
		{ "threads", required_argument, NULL, OPT_THREADS },                               \
		{ "ctx", required_argument, NULL, OPT_CTX },                                       \
		{ "kv", required_argument, NULL, OPT_KV },                                         \
		{ "activations", required_argument, NULL, OPT_ACTIVATIONS },                       \
		{ "lookahead", required_argument, NULL, OPT_LOOKAHEAD },                           \
		{ "chunk", required_argument, NULL, OPT_CHUNK },                                   \
	{                                                                                          \
		"memory", required_argument, NULL, OPT_MEMORY                                      \
	}

/* For the --help of a subcommand. */
extern const char common_help[];

/* True if code is one of the above; then *status is 0 or EXIT_USAGE. What is not given stays 0. */
bool option_common(struct engine_options *o, int code, const char *text, int *status);

/* Token ids separated by white space or commas. *ids to be freed. 0 or negative errno. */
int parse_ids(const char *text, int32_t **ids, size_t *n, char *why);

#endif
