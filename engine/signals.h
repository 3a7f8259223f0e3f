/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals that the program does not just die of.
 *
 * A page of a mapped file that cannot be had (the file was cut short, its drive failed, its daemon
 * died) arrives as SIGBUS. There is no way back into the computation, so the program says so and
 * ends.
 */
#ifndef ENGINE_SIGNALS_H
#define ENGINE_SIGNALS_H

/* From now on SIGBUS prints "coli-engine: ..." with the name of the mount and exits with status 1.
 */
void signals_catch_sigbus(const char *mount);

/* From now on the first Ctrl-C (SIGINT) or SIGTERM is only remembered, so that what was done can be
 * kept; a second one ends the program as usual. */
void signals_remember_interrupt(void);
/* Which of them came; 0: none. */
int signals_interrupted(void);

#endif
