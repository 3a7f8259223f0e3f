/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of the daemon. -o takes the same keys, so that /etc/fstab can give them.
 */
#ifndef EXPERTFS_OPTIONS_H
#define EXPERTFS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "expertfs/drive.h"
#include "expertfs/loader.h"

enum serve_mode { MODE_AUTO, MODE_PASSTHROUGH, MODE_DIRECT };

struct options {
	const char *store, *mountpoint;
	bool foreground, allow_other;
	bool degraded;   /* mount although experts have no copy on the drives that are there */
	uint64_t memory; /* bytes; UINT64_MAX: half of what is available */
	unsigned memory_percent; /* of what is available, if not 0 */
	enum serve_mode mode;
	enum drive_io io;
	enum verify verify;
	const char *policy;
	const char *hot_dir; /* NULL: none */
	uint64_t hot_dir_size;
	const char *state; /* of a GGUF file; NULL: beside it */
	bool no_warm;      /* do not fill the memory from the usage of last time */
};

/* Fills o from argv; strings point into argv. 0; 1 if --help or --version was answered; -EINVAL
 * with the sentence in why. argv's -o strings are cut apart in place. */
int options_parse(int argc, char **argv, struct options *o, char *why);

#endif
