/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary position embedding.
 */
#include "engine/rope.h"

#include <math.h>

void rope_angles(float *cs, int d, double theta, int position)
{
	for (int i = 0; i < d / 2; i++) {
		double angle = position * pow(theta, -2.0 * i / d);
		cs[2 * i] = (float)cos(angle);
		cs[2 * i + 1] = (float)sin(angle);
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
