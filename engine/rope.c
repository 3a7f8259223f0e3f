/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embedding.
 */
#include "engine/rope.h"

#include <math.h>

/* 0 below lo, 1 above hi. */
static double ramp(double x, double lo, double hi)
{
	return fmin(fmax((x - lo) / (hi - lo), 0), 1);
}

/* How much of pair i, of plain frequency f, is slowed down by the factor: 0 to 1. */
static double slowed(const struct rope_scaling *s, int i, double f)
{
	switch (s->kind) {
	case ROPE_LINEAR:
		return 1;
	case ROPE_YARN:
		return ramp(i, s->low, s->high);
	case ROPE_LLAMA3: /* turns that the pair makes within the length */
		return 1 - ramp(s->length * f / (2 * M_PI), s->low, s->high);
	case ROPE_PLAIN:
	case ROPE_DYNAMIC:
		break;
	}
	return 0;
}

void rope_angles(float *cs, int d, double theta, const struct rope_scaling *s, int position)
{
	double amplitude = s->amplitude != 0 ? s->amplitude : 1;

	for (int i = 0; i < d / 2; i++) {
		double f = pow(theta, -2.0 * i / d), slow = slowed(s, i, f);
		if (slow > 0)
			f = f * (1 - slow) + f / s->factor * slow;
		cs[2 * i] = (float)(amplitude * cos(position * f));
		cs[2 * i + 1] = (float)(amplitude * sin(position * f));
	}
}

void rope_turn(float *x, const float *cs, int d, bool interleave)
{
	int step = interleave ? 2 : 1, other = interleave ? 1 : d / 2;

	for (int i = 0; i < d / 2; i++) {
		float a = x[i * step], b = x[i * step + other];
		x[i * step] = a * cs[2 * i] - b * cs[2 * i + 1];
		x[i * step + other] = a * cs[2 * i + 1] + b * cs[2 * i];
	}
}
