/* SPDX-License-Identifier: Apache-2.0
 *
 * What --dry-run prints: the plan as a table; and how it is spread over the drives.
 */
#ifndef COLI_PACK_TABLE_H
#define COLI_PACK_TABLE_H

#include <stdio.h>

#include "tools/coli-pack/output.h"

/* other_bytes: model.json and tokenizer.json. */
void table_print(FILE *f, const struct plan *p, const struct output *o, uint64_t other_bytes);

/* A line a drive: its speed, and what it gets. For --dry-run and at the start of a pack. */
void table_drives(FILE *f, const struct plan *p, const struct output *o);

#endif
