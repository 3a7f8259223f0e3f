/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of q8 and q4 weights with several rows of 8-bit activations by AMX (Sapphire Rapids and
 * later), whose one instruction does what takes 256 of VNNI's. Those of GGUF's blocks: kernel_tiles.h.
 *
 * A block's interleaved columns are what AMX wants of its second operand: 64 columns of 16 rows are a
 * tile of 16 lines, line k holding 4 columns of each row. They only have to be unpacked to bytes, some
 * columns at a time, for all activation rows. A tile of those lies as it is needed. The rest is as in
 * kernel_int8.c, to the bit.
 *
 * Tiles are configured and released in each call: that costs little beside the product of a block,
 * and a thread that is switched away takes 8 KiB less along.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/kernel_amx.h"

/* Bytes of weights to be asked for ahead of their use, into the second-level cache; a few lines before
 * each step, as no more can be under way: 16 rows times a matrix that comes from memory take 0.65 of
 * VNNI's time, and 0.75 if a chunk is asked for at once. */
#define AHEAD 4096

/* Columns that are unpacked at once. With their sums they are to stay in the nearest cache. */
#define CHUNK 256

#define LINE  64
#define LINES 16

/* What LDTILECFG loads: Intel's Software Developer's Manual, volume 1, chapter 18. */
struct tile_config {
	uint8_t palette, start_row, zero[14];
	uint16_t bytes_a_line[16];
	uint8_t lines[16];
};

#define GROUPS (CHUNK / 32) /* at most in a chunk */

struct chunk {
	_Alignas(64) uint8_t weights[CHUNK * WBLOCK];
	_Alignas(64) int32_t sums[GROUPS][LINES * WBLOCK]; /* of one activation tile */
	_Alignas(64) float scales[GROUPS][WBLOCK];
	const uint8_t *ahead; /* see AHEAD */
	int lines;
};

/* ARCH_REQ_XCOMP_PERM and the number of the tiles' state (Documentation/arch/x86/xstate.rst), which
 * old headers lack. */
#define REQUEST_STATE 0x1023
#define TILE_DATA     18

bool kernel_amx_usable(void)
{
	unsigned a, b, c, d;

	/* Tiles, with products of bytes and of bfloat16; AVX-512 with the latter. */
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || ~d & (1u << 22 | 1u << 24 | 1u << 25))
		return false;
	if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & 1u << 5))
		return false;
	return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

void kernel_amx_load(const struct kernel_amx_tile *tiles)
{
	struct tile_config t = { .palette = 1 };

	for (int i = 0; i < KERNEL_AMX_TILES; i++) {
		t.lines[i] = tiles[i].lines;
		t.bytes_a_line[i] = tiles[i].bytes_a_line;
	}
	/* gcc's header says that the instruction reads the first 8 bytes: the others might be left out. */
	__asm__ volatile("" ::"r"(&t) : "memory");
	_tile_loadconfig(&t);
}

void kernel_amx_configure(int rows, int last, int columns)
{
	const struct kernel_amx_tile sums = { (uint8_t)rows, LINE },
				     last_sums = { (uint8_t)last, LINE },
				     acts = { (uint8_t)rows, (uint8_t)columns },
				     last_acts = { (uint8_t)last, (uint8_t)columns },
				     weights = { (uint8_t)(columns / 4), LINE };

	kernel_amx_load((const struct kernel_amx_tile[]){ [SUMS_A0] = sums,
							  [SUMS_A1] = sums,
							  [SUMS_B0] = last_sums,
							  [SUMS_B1] = last_sums,
							  [ACTS_A] = acts,
							  [ACTS_B] = last_acts,
							  [WEIGHTS_0] = weights,
							  [WEIGHTS_1] = weights });
}

#define INLINE static inline __attribute__((always_inline))

/* Signed codes of `columns` columns. */
INLINE void unpack_q4(const uint8_t *w, int columns, uint8_t *to)
{
	const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);

	for (int i = 0; i < columns / 8; i++, w += LINE, to += 2 * LINE) {
		__m512i v = _mm512_loadu_si512(w);
		__m512i hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
		_mm512_store_si512(to, _mm512_sub_epi8(_mm512_and_si512(v, low), eight));
		_mm512_store_si512(to + LINE, _mm512_sub_epi8(hi, eight));
	}
}

INLINE void ask_for(struct chunk *c)
{
	for (int i = 0; i < c->lines; i++)
		__builtin_prefetch(c->ahead + i * LINE, 0, 2);
	c->ahead += c->lines * LINE;
}

/* The sums of a group of add_tile()'s. Numbers of tiles must be literals, hence no function. */
#define GROUP_SUMS(slot, acts, weights, i)                                                         \
	do {                                                                                       \
		ask_for(c);                                                                        \
		_tile_zero(slot);                                                                  \
		for (int k_ = 0; k_ < g; k_ += LINE) {                                             \
			_tile_loadd(weights, w + ((i)*g + k_) * WBLOCK, LINE);                     \
			_tile_loadd(acts, x + (size_t)(i)*step + k_, g);                           \
			_tile_dpbssd(slot, acts, weights);                                         \
		}                                                                                  \
	} while (0)

/* What n groups' sums add to rows of y, which they begin if `begin`. x_scale: of the first group. */
INLINE void add_sums(const struct chunk *c, int n, int rows, const float *x_scale, bool begin,
		     float *y, size_t ldy)
{
	for (int t = 0; t < rows; t++, x_scale++, y += ldy) {
		__m512 out = begin ? _mm512_setzero_ps() : _mm512_loadu_ps(y);
		for (int i = 0; i < n; i++) {
			__m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(c->sums[i] + t * WBLOCK));
			sum = _mm512_mul_ps(sum, _mm512_load_ps(c->scales[i]));
			out = _mm512_fmadd_ps(sum, _mm512_set1_ps(x_scale[i * rows]), out);
		}
		_mm512_storeu_ps(y, out);
	}
}

/* n groups of g columns, from number `first` on, of a block, times a tile. */
INLINE void add_tile(struct chunk *c, const uint8_t *w, int g, int first, int n,
		     const struct acts *a, bool last, float *y, size_t ldy)
{
	const size_t rows = (size_t)a->rows, at = (size_t)first * rows, step = rows * (size_t)g;
	const int8_t *x = a->codes + at * (size_t)g;

	kernel_amx_settle();
	if (last)
		KERNEL_AMX_SUMS(B, n, c->sums)
	else
		KERNEL_AMX_SUMS(A, n, c->sums)
	kernel_amx_settle();
	if (n == CHUNK / g && a->rows == ACTS_ROWS)
		add_sums(c, CHUNK / g, ACTS_ROWS, a->scale + at, first == 0, y, ldy);
	else
		add_sums(c, n, a->rows, a->scale + at, first == 0, y, ldy);
}

INLINE void multiply(enum wtype type, int g, const uint8_t *w, const uint16_t *scales,
		     const struct acts *a, int tiles, float *y, size_t ldy)
{
	const int groups = a->groups;
	struct chunk c;

	kernel_amx_configure(a->rows, a[tiles - 1].rows, g < LINE ? g : LINE);
	c.lines = (g * WBLOCK / LINE / (type == W_Q4 ? 2 : 1) + tiles - 1) / tiles;
	for (int first = 0, n; first < groups; first += n) {
		n = groups - first < CHUNK / g ? groups - first : CHUNK / g;
		const uint8_t *codes = type == W_Q4 ? c.weights : w;
		if (type == W_Q4)
			unpack_q4(w, n * g, c.weights);
		for (int i = 0; i < n; i++, scales += WBLOCK) {
			__m256i half = _mm256_loadu_si256((const __m256i *)(const void *)scales);
			_mm512_store_ps(c.scales[i], _mm512_cvtph_ps(half));
		}
		c.ahead = w + AHEAD;
		for (int t = 0; t < tiles; t++)
			add_tile(&c, codes, g, first, n, &a[t], t == tiles - 1,
				 y + (size_t)(t * ACTS_ROWS) * ldy, ldy);
		w += n * g * WBLOCK / (type == W_Q4 ? 2 : 1);
	}
	_tile_release();
}

void kernel_multiply_amx(const struct wmat *m, int block, const struct acts *a, int tiles, float *y,
			 size_t ldy)
{
	if (!m->fmt.group) {
		kernel_blocks_amx(m, block, a, tiles, y, ldy);
		return;
	}
	if (tiles == 1 && a->rows < KERNEL_AMX_FEW) {
		kernel_multiply_vnni(m, block, a, tiles, y, ldy);
		return;
	}
	size_t at = (size_t)block * WBLOCK;
	const uint8_t *w = (const uint8_t *)m->codes + at * wfmt_row_bytes(m->fmt, m->cols);
	const uint16_t *scales = m->scales + at * (size_t)a->groups;

#define GROUPS_OF(type, g)                                                                         \
	case g:                                                                                    \
		multiply(type, g, w, scales, a, tiles, y, ldy);                                    \
		break

	if (m->fmt.type == W_Q4) {
		switch (a->group) {
			GROUPS_OF(W_Q4, 32);
			GROUPS_OF(W_Q4, 64);
			GROUPS_OF(W_Q4, 128);
		}
	} else {
		switch (a->group) {
			GROUPS_OF(W_Q8, 32);
			GROUPS_OF(W_Q8, 64);
			GROUPS_OF(W_Q8, 128);
		}
	}
}
