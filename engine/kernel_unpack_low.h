/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of GGUF's formats of one to three bits (ggml_grid.h and ggml.c draw them) of 16 rows, unpacked as
 * kernel_unpack.h says; for kernel_blocks.c, which alone includes this.
 *
 * Places in a grid are looked up row by row, with the function that ggml.c has too: there is one for each 8
 * codes in a table of kilobytes. Their codes go where a vector of 16 rows has them, and are taken from there
 * if they are multiplied at once. (Gathers of AVX-512 do IQ2_XXS in half the time, measured; they would be
 * a second way to read each format.)
 */
#ifndef ENGINE_KERNEL_UNPACK_LOW_H
#define ENGINE_KERNEL_UNPACK_LOW_H

#include "engine/kernel_unpack.h"

#include "engine/ggml_grid.h"

INLINE void grid_rows(grid_unpack *unpack, const uint8_t *p, size_t ld, int size,
		      struct unpacked *u)
{
	for (size_t r = 0; r < WBLOCK; r++) {
		ask_for(u, size);
		unpack(p + r * ld, (struct grid_block){ u->codes + 4 * r, u->scale[0] + r,
							(size_t)4 * WBLOCK, WBLOCK });
	}
}

/* What has been stored, with the only activation row. */
INLINE void take_stored(struct shape s, struct unpacked *u)
{
	for (int first = 0; s.one_row && first < CHUNK; first += 16) {
		struct codes c[4];
		for (int k = 0; k < 4; k++)
			c[k] = load_codes(u->codes + (first + 4 * k) * WBLOCK);
		put(s, u, first, c);
	}
}

/* The rows are looked up in a function of their own: what is done with them is no matter to it. */
#define GRID(name, size)                                                                           \
	static __attribute__((noinline)) void name##_rows(const uint8_t *p, size_t ld,             \
							  struct unpacked *u)                      \
	{                                                                                          \
		grid_rows(grid_##name, p, ld, size, u);                                            \
	}                                                                                          \
	INLINE void name(struct shape s, const uint8_t *p, size_t ld, int groups,                  \
			 struct unpacked *u)                                                       \
	{                                                                                          \
		(void)groups;                                                                      \
		name##_rows(p, ld, u);                                                             \
		take_stored(s, u);                                                                 \
	}

GRID(iq1_s, 50)
GRID(iq1_m, 56)
GRID(iq2_xxs, 66)
GRID(iq2_xs, 74)
GRID(iq2_s, 82)
GRID(iq3_xxs, 98)
GRID(iq3_s, 110)

/* A block's only scale. */
INLINE void one_scale(struct floats d, struct unpacked *u)
{
	for (int g = 0; g < GROUPS; g++)
		store_floats(u->scale[g], d);
}

/* The next ternary digit of each byte, which is taken off it: bytes are fractions, even and odd ones apart,
 * and three times one is a digit and what is behind it. */
INLINE struct codes next_digits(numbers *even, numbers *odd)
{
	numbers e = *even * 3, o = *odd * 3, digits;

	*even = e & 0x00ff00ff;
	*odd = o & 0x00ff00ff;
	digits = (e >> 8 & 0x00ff00ff) | (o & 0xff00ff00);
	return load_codes((const uint8_t *)&digits);
}

/* Five times 16 columns, `step` apart, that share 16 bytes. */
INLINE void tq1_0_part(struct shape s, const uint8_t *p, size_t ld, int first, int step,
		       struct unpacked *u)
{
	numbers w, even[4], odd[4];
	struct codes c[4];

	take_rows(u, p, ld, c);
	for (int k = 0; k < 4; k++) {
		store_codes((uint8_t *)&w, c[k]);
		even[k] = w & 0x00ff00ff;
		odd[k] = w >> 8 & 0x00ff00ff;
	}
	for (int n = 0; n < 5; n++) {
		for (int k = 0; k < 4; k++)
			c[k] = next_digits(&even[k], &odd[k]);
		put(s, u, first + n * step, c);
	}
}

INLINE void tq1_0(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	numbers w, even, odd;
	struct codes c[4];

	(void)groups;
	/* At 52, but bytes behind the matrix may not be there to be read. */
	one_scale(half_floats(take_words(u, p + 50, ld), 1), u);
	tq1_0_part(s, p, ld, 0, 32, u);
	tq1_0_part(s, p + 16, ld, 16, 32, u);
	tq1_0_part(s, p + 32, ld, 160, 16, u);
	store_codes((uint8_t *)&w, take_words(u, p + 48, ld));
	even = w & 0x00ff00ff;
	odd = w >> 8 & 0x00ff00ff;
	for (int n = 0; n < 4; n++)
		c[n] = next_digits(&even, &odd);
	put(s, u, 240, c);
}

INLINE void tq2_0(struct shape s, const uint8_t *p, size_t ld, int groups, struct unpacked *u)
{
	(void)groups;
	one_scale(half_floats(take_words(u, p + 62, ld), 1), u);
	two_bits(s, p, ld, u);
}

#endif
