/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast the drives are, for the plan: as --speeds says, as an interrupted pack has found, or
 * measured (expertfs/probe.h).
 */
#ifndef COLI_PACK_SPEEDS_H
#define COLI_PACK_SPEEDS_H

#include <signal.h>

#include "tools/coli-pack/output.h"

/* Two measurements of one drive differ by a tenth; drives that differ no more are taken as equal. */
#define SPEEDS_ALIKE 10

/* Fills in s->speeds_from and speed[s->drives] unless they are given. What an earlier run has
 * written to pack.state stands, since a resumed pack must place experts as it did; with `fresh`
 * nobody asks for that. Measures only if may_measure; drives that cannot be measured, or may not be,
 * are taken as equally fast, and the first is said on stderr. 0; -EINTR if *stop was set; or
 * negative errno with the sentence in why. */
int speeds_find(const struct output *o, struct spread *s, uint64_t *speed, bool fresh,
		bool may_measure, const volatile sig_atomic_t *stop, char *why);

/* Gives drives that differ by 1/SPEEDS_ALIKE at most (from the fastest of them) their mean. */
void speeds_even_out(uint64_t *speed, uint32_t n);

#endif
