/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel table this processor can run. The tables themselves are kernel_isa.c and
 * kernel_int8.c:
 *
 *	plain     any processor
 *	avx2      x86-64-v3: Haswell (2013), Zen (2017) and later
 *	avxvnni   Alder Lake, Zen 5 and later: the same, with VNNI's 8-bit products of 256 bits
 *	avx512    Skylake-X: what avx2 has, of 512 bits
 *	vnni      Cascade Lake, Ice Lake, Zen 4 and later: VNNI's products of 512 bits
 *	amx       Sapphire Rapids and later: the same, but prompts by kernel_amx.c
 *	dotprod   arm64 with SDOT: ARMv8.4, most of ARMv8.2
 */
#include "engine/kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>

#include "engine/kernel_amx.h"
#endif

extern const struct kernel_table kernel_plain;
#ifdef __x86_64__
extern const struct kernel_table kernel_avx2, kernel_avxvnni, kernel_avx512, kernel_vnni;
static struct kernel_table kernel_amx;
#elif defined(__aarch64__)
extern const struct kernel_table kernel_dotprod;
#endif

static const struct kernel_table *usable[7];
static const struct kernel_table *best;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#ifdef __x86_64__
static int find(int n)
{
	unsigned a, b, f, d;

	__builtin_cpu_init();
	/* clang 14 does not know f16c, bit 29, by name. */
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
	    !__get_cpuid(1, &a, &b, &f, &d) || !(f & 1u << 29))
		return n;
	usable[n++] = &kernel_avx2;
	if (__get_cpuid_count(7, 1, &a, &b, &f, &d) && a & 1u << 4)
		usable[n++] = &kernel_avxvnni;
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
		return n;
	usable[n++] = &kernel_avx512;
	if (!__builtin_cpu_supports("avx512vnni"))
		return n;
	usable[n++] = &kernel_vnni;
	if (!kernel_amx_usable())
		return n;
	kernel_amx = kernel_vnni;
	kernel_amx.isa = "amx";
	kernel_amx.multiply = kernel_multiply_amx;
	kernel_amx.mix_many = kernel_mix_amx;
	usable[n++] = &kernel_amx;
	return n;
}
#elif defined(__aarch64__)
static int find(int n)
{
	if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP)
		usable[n++] = &kernel_dotprod;
	return n;
}
#else
static int find(int n)
{
	return n;
}
#endif

static void choose(void)
{
	const char *name = getenv("COLI_ENGINE_KERNEL");
	const struct kernel_table *k;
	int n;

	usable[0] = &kernel_plain;
	n = find(1);
	k = usable[n - 1];
	for (int i = 0; name && i < n; i++)
		if (strcmp(usable[i]->isa, name) == 0)
			k = usable[i];
	__atomic_store_n(&best, k, __ATOMIC_RELEASE);
}

/* Asked for by every small product: a call of pthread_once() each was a hundredth of a prompt. */
const struct kernel_table *kernel(void)
{
	const struct kernel_table *k = __atomic_load_n(&best, __ATOMIC_ACQUIRE);

	if (k)
		return k;
	pthread_once(&once, choose);
	return best;
}

const struct kernel_table *const *kernel_tables(void)
{
	pthread_once(&once, choose);
	return usable;
}

static size_t up(size_t n, size_t a)
{
	return (n + a - 1) / a * a;
}

int wfmt_acts_group(struct wfmt f)
{
	if (f.group)
		return f.group;
	return f.type >= W_Q8_0 ? 32 : 0;
}

size_t acts_bytes(int rows, int max_cols)
{
	/* Widest with groups of 128, most groups with those of 32. */
	size_t n = (size_t)rows, cols = up((size_t)max_cols, 128);

	return up(n * cols, 64) + 3 * up(n * (cols / 32) * sizeof(float), 64);
}

void acts_place(struct acts *a, int rows, int cols, int group, void *buf)
{
	int groups = (cols + group - 1) / group;
	size_t all = (size_t)rows * (size_t)groups, each = up(all * sizeof(float), 64);
	char *p = (char *)buf + up(all * (size_t)group, 64);

	*a = (struct acts){ rows, cols, group, groups, buf, NULL, NULL, NULL };
	a->scale = (float *)(void *)p;
	a->bias = (int32_t *)(void *)(p + each);
	a->half = (int32_t *)(void *)(p + 2 * each);
}

void acts_set_row(struct acts *a, int row, const struct acts *one)
{
	const size_t g = (size_t)a->group;
	size_t to = (size_t)row;

	for (size_t i = 0; i < (size_t)a->groups; i++, to += (size_t)a->rows) {
		memcpy(a->codes + to * g, one->codes + i * g, g);
		a->scale[to] = one->scale[i];
		a->bias[to] = one->bias[i];
		a->half[to] = one->half[i];
	}
}
