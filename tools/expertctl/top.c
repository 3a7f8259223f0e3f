/* SPDX-License-Identifier: Apache-2.0
 *
 * expertctl top: a live view of a daemon in the terminal; see top.h for its parts. Where the terminal
 * cannot move its cursor, or there is none, it prints one frame after the other.
 */
#include "tools/expertctl/top.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/expertctl/expertctl.h"

#define PLAIN_COLS 80
/* A frame on paper has as many rows as it needs, up to this: all drives fit; paths may be longer than
 * the lines otherwise are. */
#define PLAIN_ROWS 640
#define PATH_COLS  320

static const double intervals[] = { 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60 };
#define INTERVALS (sizeof(intervals) / sizeof(intervals[0]))

static volatile sig_atomic_t ended;

static void on_signal(int sig)
{
	ended = sig;
}

static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	const struct sigaction act = { .sa_handler = on_signal };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &act, NULL);
}

static double seconds_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Takes a sample over into the state. */
static void accept_sample(struct top_state *s, struct top_sample *sample)
{
	s->alive = sample->err == 0;
	if (s->alive) {
		top_sample_free(&s->now);
		s->now = *sample;
		top_history_add(&s->history, &s->now);
		return;
	}
	memcpy(s->why, sample->why, sizeof(s->why));
	s->gone = sample->time - s->now.time;
	top_history_gap(&s->history);
	top_sample_free(sample);
}

/* -- on paper ----------------------------------------------------------------------------------------------
 */

static int paper_cols(void)
{
	struct winsize w;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40 && w.ws_col <= PATH_COLS
		       ? w.ws_col
		       : PLAIN_COLS;
}

static int print_frame(struct top_state *s, char *why)
{
	struct canvas c = { .plain = true, .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 };
	int err;

	if (!canvas_init(&c, PLAIN_ROWS, PATH_COLS))
		return fail(why, ENOMEM, "out of memory");
	c.width = paper_cols();
	top_draw(&c, s);
	err = canvas_print(&c);
	canvas_free(&c);
	return err ? fail(why, -err, "standard output: %s", strerror(-err)) : 0;
}

static void pause_for(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds,
			      .tv_nsec = (long)((seconds - floor(seconds)) * 1e9) };

	nanosleep(&t, NULL); /* a signal ends it */
}

/* One frame, or one each interval until a signal comes. A single one needs a daemon. */
static int run_plain(struct top_state *s, bool once, char *why)
{
	struct top_sample sample;
	int err = 0;

	for (bool first = true; !ended && !err; first = false) {
		top_sample_take(&sample, s->mount, TOP_MAP | TOP_HOTTEST);
		err = sample.err && (once || first) ? sample.err : 0;
		accept_sample(s, &sample);
		if (err)
			return fail(why, -err, "%s", s->why);
		if (!first)
			putchar('\n');
		if (s->alive)
			err = print_frame(s, why);
		else
			printf("waiting: %s\n", s->why);
		if (once)
			break;
		pause_for(s->interval);
	}
	return err;
}

/* -- on a terminal ----------------------------------------------------------------------------------------
 */

static void change_interval(struct top_state *s, bool slower)
{
	double next = s->interval;

	for (size_t i = 0; i < INTERVALS; i++) {
		size_t at = slower ? i : INTERVALS - 1 - i;
		if (slower ? intervals[at] > s->interval : intervals[at] < s->interval) {
			next = intervals[at];
			break;
		}
	}
	s->interval = next;
}

static void go_to(struct top_state *s, int view)
{
	s->view = (enum top_view)((view + (int)VIEWS) % (int)VIEWS);
	s->scroll = 0;
}

/* False: the end. */
static bool handle_key(struct top_state *s, int key, int page)
{
	switch (key) {
	case TK_QUIT:
		return false;
	case TK_NEXT:
		go_to(s, (int)s->view + 1);
		break;
	case TK_PREVIOUS:
		go_to(s, (int)s->view - 1);
		break;
	case TK_LINE_UP:
	case TK_LINE_DOWN:
		s->scroll += key == TK_LINE_UP ? -1 : 1;
		break;
	case TK_PAGE_UP:
	case TK_PAGE_DOWN:
		s->scroll += key == TK_PAGE_UP ? -page : page;
		break;
	case TK_FASTER:
	case TK_SLOWER:
		change_interval(s, key == TK_SLOWER);
		break;
	default:
		if (key >= TK_VIEW)
			go_to(s, key - TK_VIEW);
	}
	return true;
}

static int draw(struct top_state *s, int *rows, char *why)
{
	struct canvas c;

	if (!screen_canvas(&c))
		return fail(why, ENOMEM, "out of memory");
	top_draw(&c, s);
	screen_show(&c);
	*rows = c.rows;
	canvas_free(&c);
	return 0;
}

/* Waits for a key, a sample or the time of the next one; asks for that. */
static void wait_some(const struct top_state *s, struct top_reader *r, double *next)
{
	struct pollfd p[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
			       { .fd = top_reader_fd(r), .events = POLLIN } };
	double left = *next - seconds_now();

	if (left > 0)
		poll(p, 2, (int)ceil(left * 1e3)); /* a signal ends it, as of a new size */
	if (p[0].revents & (POLLHUP | POLLERR | POLLNVAL))
		ended = SIGHUP; /* the terminal has gone */
	if (seconds_now() >= *next) {
		top_reader_ask(r, top_parts_of(s));
		*next = seconds_now() + s->interval;
	}
}

static int loop(struct top_state *s, struct top_reader *r, char *why)
{
	double next = 0;
	int key, rows = 0, err = 0;

	while (!ended && !err) {
		enum top_view view = s->view;
		struct top_sample sample;
		wait_some(s, r, &next);
		if (top_reader_take(r, &sample))
			accept_sample(s, &sample);
		while ((key = screen_key()) != TK_NOTHING)
			if (!handle_key(s, key, rows / 2))
				return 0;
		if (view != s->view)
			next = 0; /* the new view's parts, at once */
		err = draw(s, &rows, why);
	}
	return err;
}

static int run_screen(struct top_state *s, char *why)
{
	struct top_reader *r = top_reader_start(s->mount);
	int err;

	if (!r) {
		screen_end();
		return fail(why, ENOMEM, "out of memory or threads");
	}
	err = loop(s, r, why);
	screen_end();
	top_reader_stop(r);
	return err;
}

/* -- the command ---------------------------------------------------------------------------------------------
 */

static int top(const char *mount, double interval, bool once)
{
	struct top_state *s = calloc(1, sizeof(*s));
	char why[WHY_MAX];
	int err;

	if (!s || !top_history_init(&s->history)) {
		free(s);
		fputs("expertctl: out of memory\n", stderr);
		return 1;
	}
	s->mount = mount;
	s->interval = interval;
	catch_signals();
	if (once || screen_begin() != 0)
		err = run_plain(s, once, why);
	else
		err = run_screen(s, why);
	top_sample_free(&s->now);
	top_history_free(&s->history);
	free(s);
	if (err)
		fprintf(stderr, "expertctl: %s\n", why);
	return err ? 1 : 0;
}

static bool parse_interval(const char *text, double *interval)
{
	char *end;

	*interval = strtod(text, &end);
	return end != text && *end == '\0' && *interval >= 0.05 && *interval <= 3600;
}

static int run(char **argv)
{
	const char *mount = CTL_DEFAULT_MOUNT;
	double interval = 1;
	bool once = false, operand = false;

	for (; *argv; argv++) {
		if (strcmp(*argv, "--once") == 0) {
			once = true;
		} else if (strcmp(*argv, "--interval") == 0) {
			if (!argv[1] || !parse_interval(*++argv, &interval))
				return ctl_usage("--interval takes seconds, 0.05 to 3600");
		} else if ((*argv)[0] == '-') {
			return ctl_usage("there is no option %s here", *argv);
		} else if (operand) {
			return ctl_usage("%s is one word too many", *argv);
		} else {
			mount = *argv;
			operand = true;
		}
	}
	setlocale(LC_CTYPE, "");
	return top(mount, interval, once);
}

const struct ctl_command ctl_top = {
	.name = "top",
	.usage = "[MOUNT] [--interval S] [--once]",
	.about = "watch the daemon in the terminal: drives, hit rate, hottest experts, the map of\n"
		 "layers and experts; --once: one frame as plain text",
	.run = run,
};
