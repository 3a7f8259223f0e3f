/* SPDX-License-Identifier: Apache-2.0
 *
 * The smaller of two numbers.
 */
#ifndef ENGINE_MIN_H
#define ENGINE_MIN_H

static inline int min_int(int a, int b)
{
	return a < b ? a : b;
}

#endif
