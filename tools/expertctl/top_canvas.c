/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of characters with styles: what the views draw on, and the terminal and plain text show;
 * see top.h. Everything is clipped, so a view may be drawn into any size.
 */
#include "tools/expertctl/top.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

bool canvas_init(struct canvas *c, int rows, int cols)
{
	size_t n = (size_t)(rows > 0 ? rows : 1) * (size_t)(cols > 0 ? cols : 1);

	c->rows = rows;
	c->cols = c->width = cols;
	c->cell = malloc(n * sizeof(*c->cell));
	for (size_t i = 0; c->cell && i < n; i++)
		c->cell[i] = (struct top_cell){ L' ', ST_PLAIN };
	return c->cell != NULL;
}

void canvas_free(struct canvas *c)
{
	free(c->cell);
	c->cell = NULL;
}

void canvas_put(struct canvas *c, int row, int col, enum top_style st, wchar_t ch)
{
	if (row >= 0 && row < c->rows && col >= 0 && col < c->cols)
		c->cell[(size_t)row * (size_t)c->cols + (size_t)col] =
			(struct top_cell){ ch, (uint8_t)st };
}

int canvas_text(struct canvas *c, int row, int col, int end, enum top_style st, const char *fmt,
		...)
{
	char text[PATH_MAX + 256];
	mbstate_t state = { 0 };
	va_list ap;
	size_t left;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	left = strlen(text);
	for (const char *p = text; left > 0 && col < end; col++) {
		wchar_t ch;
		size_t n = mbrtowc(&ch, p, left, &state);
		if (n == 0 || n > left) { /* not a character, or the text was cut inside of one */
			state = (mbstate_t){ 0 };
			n = 1;
			ch = L'?';
		}
		canvas_put(c, row, col, st, wcwidth(ch) == 1 ? ch : L'?');
		p += n;
		left -= n;
	}
	return col;
}

void canvas_bar(struct canvas *c, int row, int col, int cells, enum top_style st, double share)
{
	static const wchar_t eighths[] = L" ▏▎▍▌▋▊▉█";
	double full = share > 0 ? fmin(share, 1) * (cells - 2) : 0; /* false for NAN */

	canvas_put(c, row, col, ST_DIM, L'[');
	for (int i = 0; i < cells - 2; i++) {
		double part = full - i;
		if (c->utf8 && part > 0.0625)
			canvas_put(c, row, col + 1 + i, st,
				   eighths[(int)lround(fmin(part, 1) * 8)]);
		else if (!c->utf8 && part >= 0.5)
			canvas_put(c, row, col + 1 + i, st, L'#');
		else
			canvas_put(c, row, col + 1 + i, ST_DIM, c->utf8 ? L' ' : L'.');
	}
	canvas_put(c, row, col + cells - 1, ST_DIM, L']');
}

void canvas_graph(struct canvas *c, int row, int col, int rows, int cols, enum top_style st,
		  const struct top_series *s, double top)
{
	static const wchar_t blocks[] = L" ▁▂▃▄▅▆▇█", ascii[] = L" .:#";
	const wchar_t *steps = c->utf8 ? blocks : ascii;
	int per_row = c->utf8 ? 8 : 3;

	for (int x = 0; x < cols; x++) {
		double v = top_series_at(s, (unsigned)(cols - 1 - x));
		/* What is not nothing is seen. */
		int units = v > 0 && top > 0
				    ? (int)fmax(1, lround(fmin(v / top, 1) * rows * per_row))
				    : 0;
		for (int y = 0; y < rows; y++) {
			int here = units - (rows - 1 - y) * per_row;
			here = here < 0 ? 0 : here > per_row ? per_row : here;
			if (y == rows - 1 && here == 0 && !isnan(v))
				canvas_put(c, row + y, col + x, ST_DIM, c->utf8 ? L'▁' : L'_');
			else
				canvas_put(c, row + y, col + x, st, steps[here]);
		}
	}
}

/* The column behind the last one of the row that is not blank. */
static int row_end(const struct canvas *c, int row)
{
	int end = c->cols;

	while (end > 0 && c->cell[(size_t)row * (size_t)c->cols + (size_t)end - 1].ch == L' ')
		end--;
	return end;
}

int canvas_print(const struct canvas *c)
{
	int last = c->rows;

	while (last > 0 && row_end(c, last - 1) == 0)
		last--;
	for (int y = 0; y < last; y++) {
		mbstate_t state = { 0 };
		for (int x = 0, end = row_end(c, y); x < end; x++) {
			char bytes[MB_LEN_MAX];
			size_t n = wcrtomb(
				bytes, c->cell[(size_t)y * (size_t)c->cols + (size_t)x].ch, &state);
			if (n == (size_t)-1)
				fputc('?', stdout);
			else
				fwrite(bytes, 1, n, stdout);
		}
		fputc('\n', stdout);
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? 0 : -errno;
}
