/* SPDX-License-Identifier: Apache-2.0
 *
 * Four numbers at once, for the policy `expert`, which goes over all experts of a layer at each
 * event: as vectors of the compiler (GCC and Clang have them for every processor), since loops
 * with a choice in them are not made into such by themselves. Logarithm and exponential are as
 * exact as a guess needs them: polynomials through the Chebyshev nodes of the interval that is left
 * when the exponent is taken off.
 */
#ifndef CACHEPOLICY_EXPERT_LANES_H
#define CACHEPOLICY_EXPERT_LANES_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#define LANES 4

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t lane_bits __attribute__((vector_size(LANES * sizeof(int32_t))));

/* Arrays are as long as a multiple of LANES. */
static inline uint32_t whole_lanes(uint32_t n)
{
	return (n + LANES - 1) / LANES * LANES;
}

static inline lanes lanes_load(const float *from)
{
	lanes v;

	memcpy(&v, from, sizeof(v));
	return v;
}

static inline void lanes_store(float *to, lanes v)
{
	memcpy(to, &v, sizeof(v));
}

static inline lanes lanes_all(float x)
{
	return (lanes){ x, x, x, x };
}

/* In each lane a if the condition holds there (all bits set), else b. */
static inline lanes lanes_choose(lane_bits condition, lanes a, lanes b)
{
	return (lanes)(((lane_bits)a & condition) | ((lane_bits)b & ~condition));
}

/* Without the care of fmaxf() for NaN, which there is none of. */
static inline lanes lanes_larger(lanes a, lanes b)
{
#ifdef __SSE__
	return _mm_max_ps(a, b);
#else
	return lanes_choose(a > b, a, b);
#endif
}

static inline lanes lanes_smaller(lanes a, lanes b)
{
#ifdef __SSE__
	return _mm_min_ps(a, b);
#else
	return lanes_choose(a < b, a, b);
#endif
}

static inline float lanes_sum(lanes v)
{
	return v[0] + v[1] + v[2] + v[3];
}

static inline float lanes_least(lanes v)
{
	float a = v[0] < v[1] ? v[0] : v[1], b = v[2] < v[3] ? v[2] : v[3];

	return a < b ? a : b;
}

/* The number without its exponent: from 1 to 2; and the exponent, as large as it is stored. */
static inline lanes lanes_mantissa(lanes x)
{
	return (lanes)(((lane_bits)x & 0x7fffff) | 0x3f800000);
}

static inline lanes lanes_exponent(lanes x)
{
	return __builtin_convertvector((lane_bits)x >> 23, lanes);
}

/* Natural logarithm of normal positive numbers, within 0.005. */
static inline lanes lanes_rough_log(lanes x)
{
	lanes m = lanes_mantissa(x);

	return 0.6931472f * lanes_exponent(x) + ((-0.23203034f * m + 1.3822611f) * m - 89.175549f);
}

/* The same within 0.0001. */
static inline lanes lanes_log(lanes x)
{
	lanes m = lanes_mantissa(x), p = -0.05437094f * m + 0.43393244f;

	p = p * m - 1.4405922f;
	p = p * m + 2.7928365f;
	return 0.6931472f * (lanes_exponent(x) - 127) + (p * m - 1.7317264f);
}

/* e to the x, within 0.00012 of it, for x from -87 to 87. */
static inline lanes lanes_exp(lanes x)
{
	lanes t = x * 1.4426950f + 127, f, p;
	lane_bits power = __builtin_convertvector(t, lane_bits);

	f = t - __builtin_convertvector(power, lanes);
	p = 0.078967257f * f + 0.22469316f;
	p = p * f + 0.69632477f;
	p = p * f + 0.99990029f;
	return (lanes)(power << 23) * p;
}

/* The probability of log odds from -87 to 87. */
static inline lanes lanes_chance(lanes odds)
{
	return 1 / (1 + lanes_exp(-odds));
}

#endif
