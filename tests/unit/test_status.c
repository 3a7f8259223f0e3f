/* SPDX-License-Identifier: Apache-2.0
 *
 * The line that tells how far long work is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/client.h"
#include "engine/clock.h"

/* What one report writes. ago: seconds since the work began, at `from`. */
static const char *said(const char *what, double ago, double from, double done, double total)
{
	static char text[256];
	struct status_line s;
	int saved = dup(STDERR_FILENO), ends[2];

	assert_int_equal(pipe(ends), 0);
	dup2(ends[1], STDERR_FILENO);
	status_init(&s);
	s.on = true;
	s.begin = s.since = clock_seconds() - ago;
	s.what = what;
	s.from = from;
	status_report(&s, what, done, total);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(ends[1]);
	ssize_t n = read(ends[0], text, sizeof(text) - 1);
	close(ends[0]);
	close(saved);
	text[n < 0 ? 0 : n] = 0;
	return text;
}

static void time_left(void **state)
{
	(void)state;
	assert_string_equal(said("prompt", 0.1, 0, 5, 10), "");
	assert_string_equal(said("prompt", 1, 0, 5, 10), "\rprompt 5 of 10 tokens (50 %)\033[K");
	assert_string_equal(said("prompt", 10, 0, 25, 100),
			    "\rprompt 25 of 100 tokens (25 %), 30 s left\033[K");
	/* What was there before this work says nothing of its speed. */
	assert_string_equal(said("prompt", 10, 80, 90, 100),
			    "\rprompt 90 of 100 tokens (90 %), 10 s left\033[K");
	assert_string_equal(said("prompt", 60, 0, 10, 100),
			    "\rprompt 10 of 100 tokens (10 %), 9 min left\033[K");
	assert_string_equal(said("text", 3600, 0, 10, 100),
			    "\rtext 10 of 100 tokens (10 %), 9.0 h left\033[K");
	assert_string_equal(said("prompt", 60, 0, 0, 100), "\rprompt 0 of 100 tokens (0 %)\033[K");
	assert_string_equal(said("loading", 5, 0, 5e9, 1e10),
			    "\rloading 5.0 of 10.0 GB, 5 s left\033[K");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
