/* SPDX-License-Identifier: Apache-2.0
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

#endif
