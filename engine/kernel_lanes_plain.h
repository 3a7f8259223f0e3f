/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of kernel_lanes.h, which includes this and says what each of these does.
 * Plain C, in vectors of 16 bytes where the processor has them.
 */
#ifndef ENGINE_KERNEL_LANES_PLAIN_H
#define ENGINE_KERNEL_LANES_PLAIN_H

#define TILE        1
#define ABSORB_TILE 1
#define Q8_BIAS     0

struct codes {
	uint8_t v[4 * WBLOCK];
};

struct ints {
	int32_t v[WBLOCK];
};

/* Vectors of 16 bytes, which every processor with vectors has: 4 codes of 4 rows. */
typedef int16_t shorts __attribute__((vector_size(16)));
typedef int32_t longs __attribute__((vector_size(16)));

struct part {
	shorts v[WBLOCK / 4]; /* two sums a row: even and odd products fall together */
};

struct floats {
	float v[WBLOCK];
};

INLINE struct codes load_codes(const uint8_t *p)
{
	struct codes c;

	memcpy(c.v, p, sizeof(c.v));
	return c;
}

INLINE struct codes low_nibbles(struct codes c)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] &= 15;
	return c;
}

INLINE struct codes high_nibbles(struct codes c)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] >>= 4;
	return c;
}

INLINE struct codes ready_q8(struct codes c)
{
	return c;
}

INLINE struct ints all_ints(int32_t x)
{
	struct ints s;

	for (int r = 0; r < WBLOCK; r++)
		s.v[r] = x;
	return s;
}

INLINE struct ints add_ints(struct ints a, struct ints b)
{
	for (int r = 0; r < WBLOCK; r++)
		a.v[r] += b.v[r];
	return a;
}

INLINE struct ints larger_bits(struct ints max, const float *x)
{
	int32_t b[WBLOCK];

	memcpy(b, x, sizeof(b));
	for (int i = 0; i < WBLOCK; i++) {
		b[i] &= 0x7fffffff;
		max.v[i] = b[i] > max.v[i] ? b[i] : max.v[i];
	}
	return max;
}

INLINE int32_t max_of_ints(struct ints a)
{
	for (int i = 1; i < WBLOCK; i++)
		a.v[0] = a.v[i] > a.v[0] ? a.v[i] : a.v[0];
	return a.v[0];
}

/* Below 2^22 adding and taking off 1.5 * 2^23 rounds to the nearest integer. */
INLINE struct ints put_codes(struct ints sum, const float *x, float inv, int8_t *codes)
{
	for (int i = 0; i < WBLOCK; i++) {
		int32_t c = (int32_t)(x[i] * inv + 0x1.8p23f - 0x1.8p23f);
		codes[i] = (int8_t)c;
		sum.v[i] += c;
	}
	return sum;
}

INLINE int32_t sum_of_ints(struct ints a)
{
	for (int i = 1; i < WBLOCK; i++)
		a.v[0] += a.v[i];
	return a.v[0];
}

INLINE struct part part_begin(struct ints sums)
{
	(void)sums;
	return (struct part){ { { 0 } } };
}

/* The low byte of each 16 bits is an even column, the high one an odd one. */
INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	const shorts even = { x[0], x[2], x[0], x[2], x[0], x[2], x[0], x[2] };
	const shorts odd = { x[1], x[3], x[1], x[3], x[1], x[3], x[1], x[3] };

	for (int i = 0; i < WBLOCK / 4; i++) {
		shorts v;
		memcpy(&v, w.v + 16 * i, sizeof(v));
		p.v[i] += (v << 8 >> 8) * even + (v >> 8) * odd;
	}
	return p;
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	return dot_q4(p, w, x);
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	for (int i = 0; i < WBLOCK / 4; i++) {
		longs sum, v = (longs)p.v[i];
		memcpy(&sum, sums.v + 4 * i, sizeof(sum));
		sum += (v << 16 >> 16) + (v >> 16);
		memcpy(sums.v + 4 * i, &sum, sizeof(sum));
	}
	return sums;
}

INLINE struct floats no_floats(void)
{
	return (struct floats){ { 0 } };
}

INLINE struct floats load_floats(const float *p)
{
	struct floats f;

	memcpy(f.v, p, sizeof(f.v));
	return f;
}

INLINE struct floats add_product(struct floats sum, struct floats a, struct floats b)
{
	for (int i = 0; i < 16; i++)
		sum.v[i] = sum.v[i] + a.v[i] * b.v[i];
	return sum;
}

INLINE struct floats floats_q8(const uint8_t *p)
{
	struct floats f;

	for (int i = 0; i < 16; i++)
		f.v[i] = (int8_t)p[i];
	return f;
}

INLINE void floats_q4(const uint8_t *p, struct floats *lo, struct floats *hi)
{
	for (int i = 0; i < 16; i++) {
		lo->v[i] = (float)((p[i] & 15) - 8);
		hi->v[i] = (float)((p[i] >> 4) - 8);
	}
}

INLINE void add_four_rows(struct floats f, float *y)
{
	for (int j = 0; j < 4; j++)
		y[j] = (f.v[j] + f.v[8 + j]) + (f.v[4 + j] + f.v[12 + j]);
}

INLINE struct floats load_scales(const uint16_t *p)
{
	struct floats f;

	for (int r = 0; r < WBLOCK; r++)
		f.v[r] = half_to_float(p[r]);
	return f;
}

INLINE struct floats add_group(struct floats y, struct ints sums, struct floats weight_scale,
			       float x_scale)
{
	for (int r = 0; r < WBLOCK; r++)
		y.v[r] = fmaf((float)sums.v[r] * weight_scale.v[r], x_scale, y.v[r]);
	return y;
}

INLINE void store_floats(float *p, struct floats f)
{
	memcpy(p, f.v, sizeof(f.v));
}

INLINE struct floats add_scaled(struct floats y, struct floats a, float x)
{
	for (int r = 0; r < WBLOCK; r++)
		y.v[r] = fmaf(a.v[r], x, y.v[r]);
	return y;
}

INLINE void store_codes(uint8_t *p, struct codes c)
{
	memcpy(p, c.v, sizeof(c.v));
}

INLINE void load_rows(const uint8_t *p, size_t ld, struct codes *c)
{
	for (int r = 0; r < WBLOCK; r++, p += ld)
		for (int k = 0; k < 4; k++)
			memcpy(c[k].v + 4 * r, p + 4 * k, 4);
}

INLINE struct codes look_up(const int8_t *table, struct codes c)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] = (uint8_t)table[c.v[i]];
	return c;
}

INLINE struct codes bits(struct codes c, int shift, int mask)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] = (uint8_t)(c.v[i] >> shift & mask);
	return c;
}

INLINE struct codes join(struct codes c, struct codes d, int shift)
{
	for (int i = 0; i < 4 * WBLOCK; i++)
		c.v[i] = (uint8_t)(c.v[i] | d.v[i] << shift);
	return c;
}

#endif
