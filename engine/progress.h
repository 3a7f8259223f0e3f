/* SPDX-License-Identifier: Apache-2.0
 *
 * How long work reports how far it is: a function of the caller's, which may be NULL. Called by the
 * thread that called the engine, between steps; it must not call back into the engine.
 */
#ifndef ENGINE_PROGRESS_H
#define ENGINE_PROGRESS_H

struct progress {
	/* what: "loading", "prompt", ...; done and total in that work's own units. */
	void (*report)(void *arg, const char *what, double done, double total);
	void *arg;
};

static inline void progress_report(const struct progress *p, const char *what, double done,
				   double total)
{
	if (p && p->report)
		p->report(p->arg, what, done, total);
}

#endif
