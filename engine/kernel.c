/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel table this processor can run. The tables themselves are kernel_isa.c.
 */
#include "engine/kernel.h"

#include <pthread.h>

extern const struct kernel_table kernel_plain;
#ifdef __x86_64__
extern const struct kernel_table kernel_avx2, kernel_avx512;
#endif

static const struct kernel_table *usable[4];
static const struct kernel_table *best;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
	int n = 0;

	usable[n++] = &kernel_plain;
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		usable[n++] = &kernel_avx2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("fma"))
		usable[n++] = &kernel_avx512;
#endif
	best = usable[n - 1];
}

const struct kernel_table *kernel(void)
{
	pthread_once(&once, choose);
	return best;
}

const struct kernel_table *const *kernel_tables(void)
{
	pthread_once(&once, choose);
	return usable;
}
