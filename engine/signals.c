/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a program whose mapped file went away, or that is told to end.
 */
#include "engine/signals.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char sentence[4400]; /* written before the handler is set, only read in it */

static void on_sigbus(int sig)
{
	(void)sig;
	ssize_t n = write(STDERR_FILENO, sentence, strlen(sentence));
	(void)n; /* nothing else could be done about it */
	_exit(1);
}

void signals_catch_sigbus(const char *mount)
{
	struct sigaction act = { .sa_handler = on_sigbus };

	snprintf(sentence, sizeof(sentence),
		 "coli-engine: a file of %s ended or could not be read while it was in use: was it "
		 "cut short, or did "
		 "its drive or daemon fail?\n",
		 mount);
	sigemptyset(&act.sa_mask);
	sigaction(SIGBUS, &act, NULL);
}

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	if (interrupted) /* by the other one: as usual, as soon as this returns */
		raise(sig);
	interrupted = sig;
}

void signals_remember_interrupt(void)
{
	/* Back to the default after the first; no call of the system is to fail for it. */
	struct sigaction act = { .sa_handler = on_interrupt,
				 .sa_flags = SA_RESETHAND | SA_RESTART };
	const int which[] = { SIGINT, SIGTERM };

	sigemptyset(&act.sa_mask);
	for (int i = 0; i < 2; i++) {
		struct sigaction old;
		/* Who started us may have them ignored: so be it. */
		if (sigaction(which[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(which[i], &act, NULL);
	}
}

int signals_interrupted(void)
{
	return interrupted;
}
