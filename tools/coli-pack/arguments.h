/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of coli-pack.
 */
#ifndef COLI_PACK_ARGUMENTS_H
#define COLI_PACK_ARGUMENTS_H

#include "expertfs/store.h"
#include "tools/coli-pack/plan.h"

struct arguments {
	struct pack_options pack;
	struct spread spread; /* spread.speed is to point to speed[] */
	uint64_t speed[STORE_DRIVES_MAX];
	char *drive[STORE_DRIVES_MAX];
	uint32_t drives; /* --drive options */
	bool dry_run, restart;
	bool formats; /* --bits or the like was given */
	const char *checkpoint, *store;
};

/* 0: go on; -1: done (--help), all is well; 2: a usage error, which has been said. */
int arguments_parse(int argc, char **argv, struct arguments *a);

#endif
