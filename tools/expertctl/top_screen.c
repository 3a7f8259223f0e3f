/* SPDX-License-Identifier: Apache-2.0
 *
 * A canvas on the terminal, and the keys that come from it: all that knows ncurses; see top.h.
 */
#include "tools/expertctl/top.h"

#include <errno.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NCURSES_NOMACROS
#define NCURSES_WIDECHAR 1
#include <ncurses.h>
#include <term.h>

#define FIRST_PAIR 1

static SCREEN *screen;
static int colours;

/* Does the terminal go to a place on the screen when it is told to? */
static bool can_move(void)
{
	int err = 0;
	const char *cup;
	bool can;

	if (setupterm(NULL, STDOUT_FILENO, &err) != OK)
		return false;
	cup = tigetstr("cup");
	can = cup != NULL && cup != (char *)-1;
	del_curterm(cur_term);
	return can;
}

/* A background from dark blue over red to yellow, and what can be read on it. */
static void heat_colours(void)
{
	static const short back[10] = { 233, 17, 18, 54, 90, 126, 161, 202, 214, 226 };

	for (int i = 0; i < 10; i++)
		init_pair((short)(FIRST_PAIR + ST_HEAT + i), i < 7 ? 231 : 16, back[i]);
}

/* no-color.org: any value that is not empty. */
static bool colour_wanted(void)
{
	const char *no = getenv("NO_COLOR");

	return (!no || !*no) && has_colors();
}

static void begin_colours(void)
{
	static const struct {
		enum top_style st;
		short front, back;
	} pairs[] = { { ST_GOOD, COLOR_GREEN, -1 },  { ST_WARN, COLOR_YELLOW, -1 },
		      { ST_BAD, COLOR_RED, -1 },     { ST_BAR, COLOR_CYAN, -1 },
		      { ST_COLD, COLOR_BLUE, -1 },   { ST_SOME, COLOR_CYAN, -1 },
		      { ST_MOST, COLOR_YELLOW, -1 }, { ST_PIN, COLOR_MAGENTA, -1 } };

	colours = 0;
	if (!colour_wanted() || start_color() != OK)
		return;
	use_default_colors();
	colours = COLORS >= 256 && COLOR_PAIRS > FIRST_PAIR + STYLES ? 256 : 8;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		init_pair((short)(FIRST_PAIR + (int)pairs[i].st), pairs[i].front, pairs[i].back);
	if (colours == 256)
		heat_colours();
}

int screen_begin(void)
{
	static bool registered;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !can_move())
		return -ENOTTY;
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return -ENOTTY;
	if (!registered && atexit(screen_end) != 0) {
		screen_end();
		return -ENOMEM;
	}
	registered = true;
	begin_colours();
	cbreak();
	noecho();
	nonl();
	curs_set(0);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	set_escdelay(25);
	return 0;
}

void screen_end(void)
{
	if (!screen)
		return;
	endwin();
	delscreen(screen);
	screen = NULL;
}

bool screen_canvas(struct canvas *c)
{
	c->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	c->colours = colours;
	c->plain = false;
	return canvas_init(c, LINES, COLS);
}

static attr_t attributes(enum top_style st)
{
	/* Without colours, what is in memory stands out by its weight. */
	switch (st) {
	case ST_DIM:
		return A_DIM;
	case ST_BOLD:
		return A_BOLD;
	case ST_TITLE:
		return A_REVERSE;
	case ST_BAD:
		return colours ? A_BOLD : A_REVERSE;
	case ST_MOST:
		return A_BOLD;
	case ST_PIN:
		return colours ? A_BOLD : A_REVERSE;
	case ST_SOME:
		return colours ? A_NORMAL : A_UNDERLINE;
	default:
		return A_NORMAL;
	}
}

static bool has_pair(enum top_style st)
{
	return colours && st >= ST_GOOD && (st < ST_HEAT || colours == 256);
}

void screen_show(const struct canvas *c)
{
	erase();
	for (int y = 0; y < c->rows; y++) {
		for (int x = 0; x < c->cols; x++) {
			const struct top_cell *cell =
				&c->cell[(size_t)y * (size_t)c->cols + (size_t)x];
			wchar_t text[2] = { cell->ch, 0 };
			short pair = has_pair(cell->style) ? (short)(FIRST_PAIR + cell->style) : 0;
			cchar_t ch;
			if (cell->ch == L' ' && cell->style == ST_PLAIN)
				continue;
			if (setcchar(&ch, text, attributes(cell->style), pair, NULL) == OK)
				mvadd_wch(y, x, &ch);
		}
	}
	refresh();
}

int screen_key(void)
{
	int ch = getch();

	switch (ch) {
	case ERR:
		return TK_NOTHING;
	case 'q':
	case 'Q':
		return TK_QUIT;
	case '\t':
	case KEY_RIGHT:
		return TK_NEXT;
	case KEY_BTAB:
	case KEY_LEFT:
		return TK_PREVIOUS;
	case KEY_UP:
		return TK_LINE_UP;
	case KEY_DOWN:
		return TK_LINE_DOWN;
	case KEY_PPAGE:
		return TK_PAGE_UP;
	case KEY_NPAGE:
		return TK_PAGE_DOWN;
	case '+':
	case '=':
		return TK_SLOWER;
	case '-':
		return TK_FASTER;
	default:
		return ch >= '1' && ch < '1' + (int)VIEWS ? TK_VIEW + ch - '1' : TK_REDRAW;
	}
}
