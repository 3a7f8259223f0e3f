/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions with an exponential in them, a vector at a time: part of kernel_isa.c, which alone
 * includes this.
 *
 * The exponential is that of Cephes (Moshier, expf): x = n ln 2 + r, a polynomial of degree 5 behind
 * 1 + r, times 2^n. It is within 2 units in the last place; results below the least normal number
 * are 0, those above 2^127.5 infinite. The C library's is exact to less than one, but takes one number at a time, which was a
 * tenth of the time of a prompt.
 */
#ifndef ENGINE_KERNEL_EXP_H
#define ENGINE_KERNEL_EXP_H

typedef int32_t ivec __attribute__((vector_size(VEC * sizeof(int32_t))));
typedef double dvec __attribute__((vector_size(VEC * sizeof(double))));

#define ALL(x) ((vec){ 0 } + (x))

/* Where mask (0 or -1) a, else b. What is no number is neither above nor below a limit, so it goes
 * through. */
INLINE vec choose(ivec mask, vec a, vec b)
{
	return (vec)(((ivec)a & mask) | ((ivec)b & ~mask));
}

INLINE vec exp_vec(vec x)
{
	const vec least = ALL(-87.33654f), most = ALL(88.37626f);
	const vec shift = ALL(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
	ivec nothing = x<least, infinite = x> most;

	x = choose(nothing, least, x);
	x = choose(infinite, most, x);
	vec n = x * 1.44269504f + shift;
	ivec power = ((ivec)n - (ivec)shift + 127) << 23;
	n -= shift;
	vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
	vec p = ALL(1.9875691500e-4f);
	p = p * r + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	p = choose(infinite, ALL(__builtin_inff()), p * (vec)power);
	return choose(nothing, ALL(0.0f), p);
}

/* VEC numbers, or the n that are left, the others 0. */
INLINE vec load_some(const float *p, int n)
{
	float all[VEC] = { 0 };

	if (n >= VEC)
		return load(p);
	memcpy(all, p, (size_t)n * sizeof(float));
	return load(all);
}

INLINE void store_some(float *p, int n, vec v)
{
	memcpy(p, &v, (size_t)(n < VEC ? n : VEC) * sizeof(float));
}

static void swiglu(float *gate, const float *up, int n)
{
	for (int i = 0; i < n; i += VEC) {
		vec g = load_some(gate + i, n - i), u = load_some(up + i, n - i);
		store_some(gate + i, n - i, g / (1.0f + exp_vec(-g)) * u);
	}
}

static void swiglu_clamped(float *gate, const float *up, int n, float limit)
{
	const vec most = ALL(limit), least = ALL(-limit);

	for (int i = 0; i < n; i += VEC) {
		vec g = load_some(gate + i, n - i), u = load_some(up + i, n - i);
		g = choose(g > most, most, g);
		u = choose(u > most, most, u);
		u = choose(u < least, least, u);
		store_some(gate + i, n - i, g / (1.0f + exp_vec(-1.702f * g)) * (u + 1.0f));
	}
}

static float largest_of(const float *x, int n)
{
	vec max = ALL(x[0]);
	float out = x[0];
	int i = 0;

	for (; i + VEC <= n; i += VEC) {
		vec v = load(x + i);
		max = choose(v > max, v, max);
	}
	for (int k = 0; k < VEC; k++)
		out = max[k] > out ? max[k] : out;
	for (; i < n; i++)
		out = x[i] > out ? x[i] : out;
	return out;
}

/* x = exp(x - max), and their sum. It is taken in doubles: a million keys would lose digits in a
 * float. Number i goes to sum i mod LANES, whatever the width of a vector. */
static double exponentials(float *x, int n, float max)
{
	dvec sum[SUMS] = { 0 };
	double all = 0;

	for (int i = 0, k = 0; i < n; i += VEC, k = (k + 1) % SUMS) {
		store_some(x + i, n - i, exp_vec(load_some(x + i, n - i) - max));
		sum[k] += __builtin_convertvector(load_some(x + i, n - i), dvec);
	}
	for (int i = 0; i < LANES; i++)
		all += sum[i / VEC][i % VEC];
	return all;
}

static void softmax(float *x, int n)
{
	double all = exponentials(x, n, largest_of(x, n));

	for (int i = 0; i < n; i++)
		x[i] *= (float)(1 / all);
}

static double softmax_part(float *x, int n, float *max, float *shrink)
{
	float before = *max, most = largest_of(x, n);

	*shrink = 1;
	if (most > before) {
		*max = most;
		*shrink = exp_vec(ALL(before - most))[0]; /* 0 in the first part */
	}
	return exponentials(x, n, *max);
}

#undef ALL

#endif
