/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of q8 and q4 weights with several rows of 8-bit activations by AMX (Sapphire Rapids and
 * later), whose one instruction does what takes 256 of VNNI's. Those of GGUF's blocks: kernel_tiles.h.
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

/* Bytes of weights to be asked for ahead of their use, into the second-level cache: 16 rows times a
 * matrix that comes from memory gain an eighth. */
#define AHEAD 4096

#define LINE  64
#define LINES 16

#define SLOTS KERNEL_AMX_SLOTS

/* What LDTILECFG loads: Intel's Software Developer's Manual, volume 1, chapter 18. */
struct tile_config {
	uint8_t palette, start_row, zero[14];
	uint16_t bytes_a_line[16];
	uint8_t lines[16];
};

struct scratch {
	_Alignas(64) uint8_t weights[SLOTS][128 * WBLOCK];
	_Alignas(64) int32_t sums[SLOTS][LINES * WBLOCK];
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

void kernel_amx_configure(int rows, int columns)
{
	struct tile_config t = { .palette = 1 };

	for (int i = 0; i < SLOTS; i++) {
		t.lines[i] = (uint8_t)rows;
		t.bytes_a_line[i] = LINE;
	}
	for (int i = ACTS_A; i <= ACTS_B; i++) {
		t.lines[i] = (uint8_t)rows;
		t.bytes_a_line[i] = (uint16_t)columns;
	}
	for (int i = WEIGHTS_A; i <= WEIGHTS_B; i++) {
		t.lines[i] = (uint8_t)(columns / 4);
		t.bytes_a_line[i] = LINE;
	}
	/* gcc's header says that the instruction reads the first 8 bytes: the others might be left out. */
	__asm__ volatile("" ::"r"(&t) : "memory");
	_tile_loadconfig(&t);
}

/* Signed codes of `columns` columns. */
static inline __attribute__((always_inline)) void unpack_q4(const uint8_t *w, int columns,
							    uint8_t *to)
{
	const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);

	for (int i = 0; i < columns / 8; i++, w += LINE, to += 2 * LINE) {
		__m512i v = _mm512_loadu_si512(w);
		__builtin_prefetch(w + AHEAD, 0, 2);
		__m512i hi = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
		_mm512_store_si512(to, _mm512_sub_epi8(_mm512_and_si512(v, low), eight));
		_mm512_store_si512(to + LINE, _mm512_sub_epi8(hi, eight));
	}
}

/* One group: all its columns into the sums of a slot. */
#define GROUP(slot, acts, weights, x, w, g)                                                        \
	do {                                                                                       \
		_tile_zero(slot);                                                                  \
		for (int c_ = 0; c_ < (g); c_ += LINE) {                                           \
			_tile_loadd(weights, (w) + (size_t)c_ * WBLOCK, LINE);                     \
			_tile_loadd(acts, (x) + c_, g);                                            \
			_tile_dpbssd(slot, acts, weights);                                         \
		}                                                                                  \
	} while (0)

/* What a product goes through. */
struct walk {
	const uint8_t *w; /* of the next group */
	const uint16_t *scales;
	const int8_t *x;
	const float *x_scales;
};

/* The next n groups, n 1 or SLOTS: sums of integers, then what they add to out. */
static inline __attribute__((always_inline)) void
groups(enum wtype type, int n, int g, int rows, struct walk *at, struct scratch *s, __m512 *out)
{
	const size_t w_step = (size_t)g * WBLOCK / (type == W_Q4 ? 2 : 1);
	const size_t x_step = (size_t)rows * (size_t)g;
	const uint8_t *w[SLOTS] = { NULL };

	for (int i = 0; i < n; i++) {
		w[i] = at->w + (size_t)i * w_step;
		if (type == W_Q4) {
			unpack_q4(w[i], g, s->weights[i]);
			w[i] = s->weights[i];
		}
	}
	kernel_amx_settle();
	GROUP(0, ACTS_A, WEIGHTS_A, at->x, w[0], g);
	if (n == SLOTS) {
		GROUP(1, ACTS_B, WEIGHTS_B, at->x + x_step, w[1], g);
		GROUP(2, ACTS_A, WEIGHTS_A, at->x + 2 * x_step, w[2], g);
		GROUP(3, ACTS_B, WEIGHTS_B, at->x + 3 * x_step, w[3], g);
	}
	_tile_stored(0, s->sums[0], LINE);
	if (n == SLOTS) {
		_tile_stored(1, s->sums[1], LINE);
		_tile_stored(2, s->sums[2], LINE);
		_tile_stored(3, s->sums[3], LINE);
	}
	kernel_amx_settle();
	for (int i = 0; i < n; i++) {
		__m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256(
			(const __m256i *)(const void *)(at->scales + (size_t)i * WBLOCK)));
		for (int t = 0; t < rows; t++) {
			__m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(s->sums[i] + t * WBLOCK));
			out[t] =
				_mm512_fmadd_ps(_mm512_mul_ps(sum, scale),
						_mm512_set1_ps(at->x_scales[i * rows + t]), out[t]);
		}
	}
	at->w += (size_t)n * w_step;
	at->scales += (size_t)n * WBLOCK;
	at->x += (size_t)n * x_step;
	at->x_scales += (size_t)n * (size_t)rows;
}

static inline __attribute__((always_inline)) void multiply(enum wtype type, struct walk at, int n,
							   int g, int rows, float *y, size_t ldy)
{
	struct scratch s;
	__m512 out[ACTS_ROWS];
	int i = 0;

	for (int t = 0; t < ACTS_ROWS; t++)
		out[t] = _mm512_setzero_ps();
	for (; i + SLOTS <= n; i += SLOTS)
		groups(type, SLOTS, g, rows, &at, &s, out);
	for (; i < n; i++)
		groups(type, 1, g, rows, &at, &s, out);
	for (int t = 0; t < rows; t++)
		_mm512_storeu_ps(y + (size_t)t * ldy, out[t]);
}

static inline __attribute__((always_inline)) void
any_size(enum wtype type, struct walk at, const struct acts *a, float *y, size_t ldy)
{
	if (a->rows == ACTS_ROWS)
		multiply(type, at, a->groups, a->group, ACTS_ROWS, y, ldy);
	else
		multiply(type, at, a->groups, a->group, a->rows, y, ldy);
}

void kernel_multiply_amx(const struct wmat *m, int block, const struct acts *a, float *y,
			 size_t ldy)
{
	if (!m->fmt.group) {
		kernel_blocks_amx(m, block, a, y, ldy);
		return;
	}
	if (a->rows < KERNEL_AMX_FEW) {
		kernel_multiply_vnni(m, block, a, y, ldy);
		return;
	}
	size_t row_bytes = wfmt_row_bytes(m->fmt, m->cols);
	struct walk at = { (const uint8_t *)m->codes + (size_t)block * WBLOCK * row_bytes,
			   m->scales + (size_t)block * WBLOCK * (size_t)a->groups, a->codes,
			   a->scale };
	kernel_amx_configure(a->rows, a->group < LINE ? a->group : LINE);
	/* Of a full tile all floats stay in registers; 64 is what coli-pack takes by itself. */
	if (m->fmt.type == W_Q8)
		any_size(W_Q8, at, a, y, ldy);
	else if (a->group == 64 && a->rows == ACTS_ROWS)
		multiply(W_Q4, at, a->groups, 64, ACTS_ROWS, y, ldy);
	else
		any_size(W_Q4, at, a, y, ldy);
	_tile_release();
}
