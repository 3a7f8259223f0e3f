/* SPDX-License-Identifier: Apache-2.0
 *
 * The lanes of kernel_lanes.h, which includes this and says what each of these does.
 * arm64 with SDOT: four vectors of four.
 */
#ifndef ENGINE_KERNEL_LANES_DOTPROD_H
#define ENGINE_KERNEL_LANES_DOTPROD_H

#include <arm_neon.h>

#define TILE        4
#define ABSORB_TILE 2
#define Q8_BIAS     0

struct codes {
	uint8x16_t v[4];
};

struct ints {
	int32x4_t v[4];
};

struct part {
	int32x4_t v[4];
};

struct floats {
	float32x4_t v[4];
};

INLINE struct codes load_codes(const uint8_t *p)
{
	return (struct codes){ { vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32),
				 vld1q_u8(p + 48) } };
}

INLINE struct codes low_nibbles(struct codes c)
{
	for (int i = 0; i < 4; i++)
		c.v[i] = vandq_u8(c.v[i], vdupq_n_u8(15));
	return c;
}

INLINE struct codes high_nibbles(struct codes c)
{
	for (int i = 0; i < 4; i++)
		c.v[i] = vshrq_n_u8(c.v[i], 4);
	return c;
}

INLINE struct codes ready_q8(struct codes c)
{
	return c;
}

INLINE struct ints all_ints(int32_t x)
{
	int32x4_t v = vdupq_n_s32(x);

	return (struct ints){ { v, v, v, v } };
}

INLINE struct ints add_ints(struct ints a, struct ints b)
{
	for (int i = 0; i < 4; i++)
		a.v[i] = vaddq_s32(a.v[i], b.v[i]);
	return a;
}

INLINE struct ints larger_bits(struct ints max, const float *x)
{
	for (int i = 0; i < 4; i++) {
		int32x4_t b = vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(x + 4 * i)));
		max.v[i] = vmaxq_s32(max.v[i], b);
	}
	return max;
}

INLINE int32_t max_of_ints(struct ints a)
{
	return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
}

INLINE struct ints put_codes(struct ints sum, const float *x, float inv, int8_t *codes)
{
	int16x4_t half[4];

	for (int i = 0; i < 4; i++) {
		int32x4_t c = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inv));
		sum.v[i] = vaddq_s32(sum.v[i], c);
		half[i] = vmovn_s32(c);
	}
	vst1_s8(codes, vmovn_s16(vcombine_s16(half[0], half[1])));
	vst1_s8(codes + 8, vmovn_s16(vcombine_s16(half[2], half[3])));
	return sum;
}

INLINE int32_t sum_of_ints(struct ints a)
{
	return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
}

INLINE struct part part_begin(struct ints sums)
{
	return (struct part){ { sums.v[0], sums.v[1], sums.v[2], sums.v[3] } };
}

/* Nibbles are below 16, so they may be taken as signed. */
INLINE struct part dot_q4(struct part p, struct codes w, const int8_t *x)
{
	int8x16_t v = vreinterpretq_s8_s32(vdupq_n_s32(four(x)));

	for (int i = 0; i < 4; i++)
		p.v[i] = vdotq_s32(p.v[i], vreinterpretq_s8_u8(w.v[i]), v);
	return p;
}

INLINE struct part dot_q8(struct part p, struct codes w, const int8_t *x)
{
	return dot_q4(p, w, x);
}

INLINE struct ints part_end(struct ints sums, struct part p)
{
	(void)sums;
	return (struct ints){ { p.v[0], p.v[1], p.v[2], p.v[3] } };
}

INLINE struct floats no_floats(void)
{
	float32x4_t v = vdupq_n_f32(0);

	return (struct floats){ { v, v, v, v } };
}

INLINE struct floats load_floats(const float *p)
{
	return (struct floats){ { vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8),
				  vld1q_f32(p + 12) } };
}

INLINE struct floats add_product(struct floats sum, struct floats a, struct floats b)
{
	for (int i = 0; i < 4; i++)
		sum.v[i] = vaddq_f32(sum.v[i], vmulq_f32(a.v[i], b.v[i]));
	return sum;
}

INLINE struct floats signed_floats(int8x16_t c)
{
	int16x8_t a = vmovl_s8(vget_low_s8(c)), b = vmovl_s8(vget_high_s8(c));

	return (struct floats){ { vcvtq_f32_s32(vmovl_s16(vget_low_s16(a))),
				  vcvtq_f32_s32(vmovl_s16(vget_high_s16(a))),
				  vcvtq_f32_s32(vmovl_s16(vget_low_s16(b))),
				  vcvtq_f32_s32(vmovl_s16(vget_high_s16(b))) } };
}

INLINE struct floats floats_q8(const uint8_t *p)
{
	return signed_floats(vreinterpretq_s8_u8(vld1q_u8(p)));
}

INLINE void floats_q4(const uint8_t *p, struct floats *lo, struct floats *hi)
{
	uint8x16_t c = vld1q_u8(p), eight = vdupq_n_u8(8);

	*lo = signed_floats(vreinterpretq_s8_u8(vsubq_u8(vandq_u8(c, vdupq_n_u8(15)), eight)));
	*hi = signed_floats(vreinterpretq_s8_u8(vsubq_u8(vshrq_n_u8(c, 4), eight)));
}

INLINE void add_four_rows(struct floats f, float *y)
{
	vst1q_f32(y, vaddq_f32(vaddq_f32(f.v[0], f.v[2]), vaddq_f32(f.v[1], f.v[3])));
}

INLINE struct floats load_scales(const uint16_t *p)
{
	struct floats f;

	for (int i = 0; i < 4; i++)
		f.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)));
	return f;
}

INLINE struct floats add_group(struct floats y, struct ints sums, struct floats weight_scale,
			       float x_scale)
{
	float32x4_t s = vdupq_n_f32(x_scale);

	for (int i = 0; i < 4; i++) {
		float32x4_t t = vmulq_f32(vcvtq_f32_s32(sums.v[i]), weight_scale.v[i]);
		y.v[i] = vfmaq_f32(y.v[i], t, s);
	}
	return y;
}

INLINE void store_floats(float *p, struct floats f)
{
	for (int i = 0; i < 4; i++)
		vst1q_f32(p + 4 * i, f.v[i]);
}

INLINE struct floats add_scaled(struct floats y, struct floats a, float x)
{
	float32x4_t s = vdupq_n_f32(x);

	for (int i = 0; i < 4; i++)
		y.v[i] = vfmaq_f32(y.v[i], a.v[i], s);
	return y;
}

INLINE void store_codes(uint8_t *p, struct codes c)
{
	for (int i = 0; i < 4; i++)
		vst1q_u8(p + 16 * i, c.v[i]);
}

INLINE uint32x4_t four_words(const uint8_t *p)
{
	return vreinterpretq_u32_u8(vld1q_u8(p));
}

INLINE uint8x16_t halves(uint32x4_t a, uint32x4_t b, bool high)
{
	uint64x2_t x = vreinterpretq_u64_u32(a), y = vreinterpretq_u64_u32(b);

	return vreinterpretq_u8_u64(high ? vzip2q_u64(x, y) : vzip1q_u64(x, y));
}

INLINE void load_rows(const uint8_t *p, size_t ld, struct codes *c)
{
	for (int i = 0; i < 4; i++, p += 4 * ld) {
		uint32x4_t r0 = four_words(p), r1 = four_words(p + ld);
		uint32x4_t r2 = four_words(p + 2 * ld), r3 = four_words(p + 3 * ld);
		uint32x4_t a = vzip1q_u32(r0, r1), b = vzip2q_u32(r0, r1);
		uint32x4_t d = vzip1q_u32(r2, r3), e = vzip2q_u32(r2, r3);
		c[0].v[i] = halves(a, d, false);
		c[1].v[i] = halves(a, d, true);
		c[2].v[i] = halves(b, e, false);
		c[3].v[i] = halves(b, e, true);
	}
}

INLINE struct codes look_up(const int8_t *table, struct codes c)
{
	uint8x16_t t = vreinterpretq_u8_s8(vld1q_s8(table));

	for (int i = 0; i < 4; i++)
		c.v[i] = vqtbl1q_u8(t, c.v[i]);
	return c;
}

INLINE struct codes bits(struct codes c, int shift, int mask)
{
	for (int i = 0; i < 4; i++)
		c.v[i] = vandq_u8(vshlq_u8(c.v[i], vdupq_n_s8((int8_t)-shift)),
				  vdupq_n_u8((uint8_t)mask));
	return c;
}

INLINE struct codes join(struct codes c, struct codes d, int shift)
{
	for (int i = 0; i < 4; i++)
		c.v[i] = vorrq_u8(c.v[i], vshlq_u8(d.v[i], vdupq_n_s8((int8_t)shift)));
	return c;
}

#endif
