/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of q8 and q4 weights with several rows of 8-bit activations by AMX (Sapphire Rapids and
 * later), whose one instruction does what takes 256 of VNNI's.
 *
 * A block's interleaved columns are what AMX wants of its second operand: 64 columns of 16 rows are a
 * tile of 16 lines, line k holding 4 columns of each row. They only have to be unpacked to bytes. A
 * tile of activations lies as it is needed. The rest is as in kernel_int8.c, to the bit.
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

/* Rows below which VNNI is as fast. */
#define FEW 4

#define LINE  64
#define LINES 16

/* Tile numbers, which must be literals. */
#define SUMS    0
#define ACTS    1
#define WEIGHTS 2

/* What LDTILECFG loads: Intel's Software Developer's Manual, volume 1, chapter 18. */
struct tile_config {
	uint8_t palette, start_row, zero[14];
	uint16_t bytes_a_line[16];
	uint8_t lines[16];
};

struct scratch {
	_Alignas(64) uint8_t weights[LINES * LINE];
	_Alignas(64) int32_t sums[LINES * WBLOCK];
};

/* ARCH_REQ_XCOMP_PERM and the number of the tiles' state (Documentation/arch/x86/xstate.rst), which
 * old headers lack. */
#define REQUEST_STATE 0x1023
#define TILE_DATA     18

bool kernel_amx_usable(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & 1u << 24) || !(d & 1u << 25))
		return false;
	return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

static void configure(int rows, int columns)
{
	struct tile_config t = { .palette = 1 };

	t.lines[SUMS] = (uint8_t)rows;
	t.bytes_a_line[SUMS] = LINE;
	t.lines[ACTS] = (uint8_t)rows;
	t.bytes_a_line[ACTS] = (uint16_t)columns;
	t.lines[WEIGHTS] = (uint8_t)(columns / 4);
	t.bytes_a_line[WEIGHTS] = LINE;
	_tile_loadconfig(&t);
}

/* Signed codes of `columns` columns. */
static inline __attribute__((always_inline)) void unpack_q4(const uint8_t *w, int columns,
							    uint8_t *to)
{
	const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);

	for (int i = 0; i < columns / 8; i++, w += LINE, to += 2 * LINE) {
		__m512i v = _mm512_loadu_si512(w);
		__m512i hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
		_mm512_store_si512(to, _mm512_sub_epi8(_mm512_and_si512(v, low), eight));
		_mm512_store_si512(to + LINE, _mm512_sub_epi8(hi, eight));
	}
}

/* The compiler does not know what memory the tile instructions read and write. */
static inline void settle_memory(void)
{
	__asm__ volatile("" ::: "memory");
}

/* The sums of one group into s->sums: [rows][16 rows of the block]. */
static inline __attribute__((always_inline)) void
group_sums(enum wtype type, const uint8_t *w, const int8_t *x, int g, struct scratch *s)
{
	int columns = g < LINE ? g : LINE;

	_tile_zero(SUMS);
	for (int c = 0; c < g; c += LINE) {
		if (type == W_Q4) {
			unpack_q4(w + (size_t)c * WBLOCK / 2, columns, s->weights);
			settle_memory();
			_tile_loadd(WEIGHTS, s->weights, LINE);
		} else {
			_tile_loadd(WEIGHTS, w + (size_t)c * WBLOCK, LINE);
		}
		_tile_loadd(ACTS, x + c, g);
		_tile_dpbssd(SUMS, ACTS, WEIGHTS);
	}
	_tile_stored(SUMS, s->sums, LINE);
	settle_memory();
}

static inline __attribute__((always_inline)) void multiply(enum wtype type, const uint8_t *w,
							   const uint16_t *scales,
							   const struct acts *a, int rows, float *y,
							   size_t ldy)
{
	const int g = a->group;
	struct scratch s;
	__m512 out[ACTS_ROWS];

	for (int t = 0; t < ACTS_ROWS; t++)
		out[t] = _mm512_setzero_ps();
	for (int i = 0; i < a->groups; i++) {
		const float *x_scale = a->scale + (size_t)i * (size_t)rows;
		__m512 w_scale =
			_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)scales));
		group_sums(type, w, a->codes + (size_t)i * (size_t)rows * (size_t)g, g, &s);
		for (int t = 0; t < rows; t++) {
			__m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(s.sums + t * WBLOCK));
			out[t] = _mm512_fmadd_ps(_mm512_mul_ps(sum, w_scale),
						 _mm512_set1_ps(x_scale[t]), out[t]);
		}
		w += (size_t)g * WBLOCK / (type == W_Q4 ? 2 : 1);
		scales += WBLOCK;
	}
	for (int t = 0; t < rows; t++)
		_mm512_storeu_ps(y + (size_t)t * ldy, out[t]);
}

void kernel_multiply_amx(const struct wmat *m, int block, const struct acts *a, float *y,
			 size_t ldy)
{
	size_t row_bytes = wfmt_row_bytes(m->fmt, m->cols);
	const uint8_t *w = (const uint8_t *)m->codes + (size_t)block * WBLOCK * row_bytes;
	const uint16_t *scales = m->scales + (size_t)block * WBLOCK * (size_t)a->groups;

	if (a->rows < FEW) {
		kernel_multiply_vnni(m, block, a, y, ldy);
		return;
	}
	configure(a->rows, a->group < LINE ? a->group : LINE);
	/* Of a full tile all floats stay in registers. */
	if (m->fmt.type == W_Q4 && a->rows == ACTS_ROWS)
		multiply(W_Q4, w, scales, a, ACTS_ROWS, y, ldy);
	else if (m->fmt.type == W_Q4)
		multiply(W_Q4, w, scales, a, a->rows, y, ldy);
	else if (a->rows == ACTS_ROWS)
		multiply(W_Q8, w, scales, a, ACTS_ROWS, y, ldy);
	else
		multiply(W_Q8, w, scales, a, a->rows, y, ldy);
	_tile_release();
}
