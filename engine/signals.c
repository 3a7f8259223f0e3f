/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a program whose mapped file went away.
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
