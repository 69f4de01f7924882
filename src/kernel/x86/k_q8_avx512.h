/* Functions that read quantized weights in AVX-512 vectors: they unpack codes
 * and widen scales and biases. Also integer sums of products. For
 * k_q8_avx512.c, k_q8_amx.c and k_amx.c. */
#ifndef KERNEL_X86_K_Q8_AVX512_H
#define KERNEL_X86_K_Q8_AVX512_H

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/x86/k_avx.h"
#include "kernel/x86/k_zmm.h"

/* Load the numbers that m selects, with zeros in the other lanes; of U8, which
 * are E8M0, their halves. */
INLINE __m512 load_numbers(const unsigned char *p, __mmask16 m, enum dtype type)
{
    __m256i h;

    if (type == DT_F32)
        return _mm512_maskz_loadu_ps(m, p);
    if (type == DT_U8)
        return _mm512_maskz_mov_ps(m,
                                   e8m0_halves512(_mm_maskz_loadu_epi8(m, p)));
    h = _mm256_maskz_loadu_epi16(m, p);
    if (type == DT_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* A row of weights from some column on. */
struct row {
    const unsigned char *q, *scales, *biases;
    enum dtype s_type, b_type;
    int zero; /* struct affine's, and by */
    float by;
};

INLINE struct row row_at(const struct affine *w, size_t r, size_t k)
{
    const size_t g = k / w->group;

    return (struct row){w->q + r * w->q_stride + k * (size_t)w->bits / 8,
                        w->scales + r * w->s_stride + g * type_bytes(w->s_type),
                        w->biases + r * w->b_stride + g * type_bytes(w->b_type),
                        w->s_type,
                        w->b_type,
                        w->zero,
                        w->by};
}

/* Load the FP8 numbers that m selects, times `by`, with zeros in the other
 * lanes. */
INLINE __m512 load_fp8(const unsigned char *p, __mmask16 m, float by)
{
    const __m256i top = _mm256_set1_epi16(0x3f80);
    __m256i h =
        _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_maskz_loadu_epi8(m, p)), 7);
    const __mmask16 nan =
        _mm256_cmpeq_epi16_mask(_mm256_and_si256(h, top), top);

    h = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80));
    h = _mm256_mask_blend_epi16(nan, h, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(by * FP8_UNIT));
}

/* Load the scales of the groups that m selects of the next 16, with zeros in
 * the other lanes. */
INLINE __m512 load_scales(const struct row *w, __mmask16 m)
{
    return w->s_type == DT_F8_E4M3 ? load_fp8(w->scales, m, w->by)
                                   : load_numbers(w->scales, m, w->s_type);
}

/* The place of a size of groups in tables. */
INLINE size_t group_index(size_t group)
{
    return group == 16 ? 3 : group / 64;
}

/* Do the work of load_scales for biases. scales: its result. */
INLINE __m512 load_biases(const struct row *w, __mmask16 m, __m512 scales)
{
    __m512i zeros;

    if (w->zero)
        return _mm512_mul_ps(scales, _mm512_set1_ps(-(float)w->zero));
    if (w->b_type != DT_U8)
        return load_numbers(w->biases, m, w->b_type);
    zeros = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, w->biases));
    return _mm512_mul_ps(scales, _mm512_cvtepi32_ps(_mm512_sub_epi32(
                                     _mm512_setzero_si512(), zeros)));
}

/* Move on by 16 groups. */
INLINE void next_numbers(struct row *w)
{
    w->scales += 16 * type_bytes(w->s_type);
    w->biases += 16 * type_bytes(w->b_type);
}

/* ---- codes -------------------------------------------------------------- */

/* The words of the stream that go to 128-bit lane i, which unpacks codes 16 i
 * to 16 i + 15. */
#define LANE_WORDS(b, i)                                                   \
    (b) * (i), (b) * (i) + 1, (b) * (i) + 2, (b) * (i) + 3, (b) * (i) + 4, \
        (b) * (i) + 5, ((b) * (i) + 6) & 31, ((b) * (i) + 7) & 31
#define STREAM_WORDS(b)                                                        \
    {                                                                          \
        LANE_WORDS(b, 0), LANE_WORDS(b, 1), LANE_WORDS(b, 2), LANE_WORDS(b, 3) \
    }
/* For each pair of codes in a lane: the two bytes that contain the pair, and
 * the position of its first bit in them. This position plus 2 * bits is at most
 * 16. */
#define PAIR(b, j) (b) * (j) / 4, (b) * (j) / 4 + 1
#define PAIRS(b)                                                    \
    {                                                               \
        PAIR(b, 0), PAIR(b, 1), PAIR(b, 2), PAIR(b, 3), PAIR(b, 4), \
            PAIR(b, 5), PAIR(b, 6), PAIR(b, 7)                      \
    }
#define PAIR_SHIFTS(b)                                                         \
    {                                                                          \
        0, (b)*2 % 8, (b)*4 % 8, (b)*6 % 8, 0, (b)*2 % 8, (b)*4 % 8, (b)*6 % 8 \
    }

struct odd_width {
    _Alignas(64) uint16_t words[32];
    _Alignas(16) uint8_t bytes[16];
    _Alignas(16) uint16_t shifts[8];
};

static const struct odd_width odd_widths[] = {
    {STREAM_WORDS(3), PAIRS(3), PAIR_SHIFTS(3)},
    {STREAM_WORDS(5), PAIRS(5), PAIR_SHIFTS(5)},
    {STREAM_WORDS(6), PAIRS(6), PAIR_SHIFTS(6)}};

/* Unpack codes of 3, 5 or 6 bits. Each lane receives the bytes of its 16 codes,
 * and each word of a lane the bytes of two codes. The first code stays in the
 * lower byte of the word; the second code moves to the upper byte. */
INLINE __m512i unpack_odd(__m512i v, int bits)
{
    const struct odd_width *c = &odd_widths[bits == 3 ? 0 : bits - 4];
    const int mask = (1 << bits) - 1;
    __m512i at, shift;

    at = _mm512_broadcast_i32x4(_mm_load_si128((const void *)c->bytes));
    shift = _mm512_broadcast_i32x4(_mm_load_si128((const void *)c->shifts));
    v = _mm512_permutexvar_epi16(_mm512_load_si512(c->words), v);
    v = _mm512_srlv_epi16(_mm512_shuffle_epi8(v, at), shift);
    /* (v & first) | (moved & second) */
    return _mm512_ternarylogic_epi32(
        _mm512_and_si512(v, _mm512_set1_epi16((short)mask)),
        _mm512_slli_epi16(v, 8 - bits), _mm512_set1_epi16((short)(mask << 8)),
        0xf8);
}

/* Look up codes of 4 bits. */
INLINE __m512i e2m1_bytes(__m512i v)
{
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)e2m1_codes)), v);
}

/* Turn signed bytes into codes. */
INLINE __m512i unsign(__m512i v)
{
    return _mm512_xor_si512(v, _mm512_set1_epi8((char)0x80));
}

/* Unpack 64 codes to bytes, in order; of E2M1, as e2m1_codes has them. half:
 * only the first 32 codes exist; nothing is read for the other bytes, which
 * products multiply by 0. */
INLINE __m512i unpack(const unsigned char *p, int bits, bool half)
{
    if (bits == 8 || bits == SIGNED) {
        const __m512i v =
            half ? _mm512_maskz_loadu_epi64(0x0f, p) : _mm512_loadu_si512(p);

        return bits == SIGNED ? unsign(v) : v;
    }
    if (bits == 4 || bits == E2M1) {
        __m256i v = half ? _mm256_maskz_loadu_epi64(0x03, p)
                         : _mm256_loadu_si256((const void *)p);
        __m512i w = _mm512_cvtepu8_epi16(v);

        /* (w | w << 4) & mask */
        w = _mm512_ternarylogic_epi32(w, _mm512_slli_epi16(w, 4),
                                      _mm512_set1_epi8(0x0f), 0xa8);
        return bits == E2M1 ? e2m1_bytes(w) : w;
    }
    if (bits == 2) {
        __m128i v = half ? _mm_loadl_epi64((const void *)p)
                         : _mm_loadu_si128((const void *)p);
        __m512i w = _mm512_cvtepu8_epi32(v);

        /* move codes 2 and 3 to the upper word, then 1 and 3 to the odd
         * bytes */
        w = _mm512_or_si512(w, _mm512_slli_epi32(w, 12));
        return _mm512_ternarylogic_epi32(w, _mm512_slli_epi32(w, 6),
                                         _mm512_set1_epi8(0x03), 0xa8);
    }
    return unpack_odd(_mm512_maskz_loadu_epi32(
                          (__mmask16)((1u << (half ? bits : 2 * bits)) - 1), p),
                      bits);
}

/* Widen 16 codes, with the rounding of affine_to_f32: the product is rounded,
 * then the sum. Numbers of E2M1 are exact, and have no bias. */
INLINE __m512 widen_codes(__m128i codes, float scale, float bias, int bits)
{
    const __m512i c = _mm512_cvtepu8_epi32(codes);

    if (bits == E2M1)
        return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(
                                 c, _mm512_set1_epi32(E2M1_OFFSET))),
                             _mm512_set1_ps(scale));
    return _mm512_add_ps(
        _mm512_mul_ps(_mm512_cvtepi32_ps(c), _mm512_set1_ps(scale)),
        _mm512_set1_ps(bias));
}

/* ---- integer sums ------------------------------------------------------- */

/* A vector of int. We do not use __m512i for it, whose lanes are long long,
 * because gcc 12 copies accumulators whose type changes in a loop. */
typedef int sums __attribute__((vector_size(64)));

INLINE sums no_sums(void)
{
    return (sums)_mm512_setzero_si512();
}

/* Add the products of four codes and four integers of x to each lane. */
INLINE sums dot4(sums a, __m512i codes, __m512i x)
{
    return (sums)_mm512_dpbusd_epi32((__m512i)a, codes, x);
}

INLINE __m512 to_floats(sums a)
{
    return _mm512_cvtepi32_ps((__m512i)a);
}

#endif
