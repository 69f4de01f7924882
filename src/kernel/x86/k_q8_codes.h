/* Functions that read quantized weights in 256-bit vectors: they unpack codes
 * of 2 to 8 bits to bytes, and widen scales and biases to f32. Weights are in
 * mapped files, so these functions read no byte beyond the codes and numbers
 * that they return. */
#ifndef KERNEL_X86_K_Q8_CODES_H
#define KERNEL_X86_K_Q8_CODES_H

#include <string.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/x86/k_avx.h"

/* A unit is the 64 codes that are unpacked at a time. UNIT_BYTES: its packed
 * size. */
enum { UNIT = 64 };

#define UNIT_BYTES(bits) (width_bits(bits) * UNIT / 8)

INLINE __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i_u *)p);
}

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i_u *)p);
}

/* ---- codes -------------------------------------------------------------- */

/* How to turn 32 codes of 5 or 6 bits into bytes. Two codes go to each 16-bit
 * word. Each code lies within two neighbouring bytes of the stream. For each
 * code, a shuffle moves these two bytes into a word, and a multiplication moves
 * the code within the word: the high half of the product has the first code in
 * the low byte, the low half of another product has the second code in the high
 * byte. Each half of the vector holds 16 bytes of the stream. The upper half
 * begins at byte `upper` of the stream. */
struct windows {
    unsigned char low[32], high[32]; /* shuffles */
    uint16_t down[16], up[16];       /* factors */
};

#define ZB 0x80 /* a shuffle index that gives a zero byte */

static const struct windows windows5 = {
    {ZB, 0, 1, 2, 2, 3, 3, 4,  ZB, 5,  6,  7,  7,  8,  8,  9,
     ZB, 6, 7, 8, 8, 9, 9, 10, ZB, 11, 12, 13, 13, 14, 14, 15},
    {0, 1, 1, 2, 3, 4,  4,  ZB, 5,  6,  6,  7,  8,  9,  9,  ZB,
     6, 7, 7, 8, 9, 10, 10, ZB, 11, 12, 12, 13, 14, 15, 15, ZB},
    {1 << 8, 1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 14, 1 << 12, 1 << 10,
     1 << 8, 1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 14, 1 << 12, 1 << 10},
    {1 << 3, 1 << 1, 1 << 7, 1 << 5, 1 << 3, 1 << 1, 1 << 7, 1 << 5, 1 << 3,
     1 << 1, 1 << 7, 1 << 5, 1 << 3, 1 << 1, 1 << 7, 1 << 5}};

static const struct windows windows6 = {
    {ZB, 0, 1, 2, ZB, 3, 4, 5, ZB, 6,  7,  8,  ZB, 9,  10, 11,
     ZB, 4, 5, 6, ZB, 7, 8, 9, ZB, 10, 11, 12, ZB, 13, 14, 15},
    {0, 1, 2, ZB, 3, 4, 5, ZB, 6,  7,  8,  ZB, 9,  10, 11, ZB,
     4, 5, 6, ZB, 7, 8, 9, ZB, 10, 11, 12, ZB, 13, 14, 15, ZB},
    {1 << 8, 1 << 12, 1 << 8, 1 << 12, 1 << 8, 1 << 12, 1 << 8, 1 << 12, 1 << 8,
     1 << 12, 1 << 8, 1 << 12, 1 << 8, 1 << 12, 1 << 8, 1 << 12},
    {1 << 2, 1 << 6, 1 << 2, 1 << 6, 1 << 2, 1 << 6, 1 << 2, 1 << 6, 1 << 2,
     1 << 6, 1 << 2, 1 << 6, 1 << 2, 1 << 6, 1 << 2, 1 << 6}};

#undef ZB

/* Unpack 32 codes to bytes. The bits of a byte above its code may belong to
 * neighbouring codes. */
INLINE __m256i windows32(const unsigned char *p, const struct windows *w,
                         size_t upper)
{
    __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(p)),
                                        load16(p + upper), 1);
    __m256i low = _mm256_mulhi_epu16(_mm256_shuffle_epi8(v, load32(w->low)),
                                     load32(w->down));
    __m256i high = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, load32(w->high)),
                                      load32(w->up));

    return _mm256_blendv_epi8(low, high, _mm256_set1_epi16((short)0xff00));
}

/* Unpack a unit to bytes, in the order that is cheapest for the width:
 *   5, 6, 8 bits  in the order of the stream; SIGNED plus 128
 *   3, 4 bits     codes 0, 2, 4, …, then 1, 3, 5, …; the same of E2M1, as
 *                 e2m1_codes has them
 *   2 bits        codes 0, 4, 8, …; 2, 6, …; 1, 5, …; 3, 7, … */
INLINE void unit_codes(__m256i v[2], const unsigned char *p, int bits)
{
    const int low = (int)width_bits(bits);
    const __m256i mask = _mm256_set1_epi8((char)((1 << low) - 1));
    __m256i both;

    switch (bits) {
    case 8:
        v[0] = load32(p);
        v[1] = load32(p + 32);
        return;
    case SIGNED:
        v[0] = _mm256_xor_si256(load32(p), _mm256_set1_epi8((char)0x80));
        v[1] = _mm256_xor_si256(load32(p + 32), _mm256_set1_epi8((char)0x80));
        return;
    case 6:
        v[0] = _mm256_and_si256(windows32(p, &windows6, 8), mask);
        v[1] = _mm256_and_si256(windows32(p + 24, &windows6, 8), mask);
        return;
    case 5:
        v[0] = _mm256_and_si256(windows32(p, &windows5, 4), mask);
        v[1] = _mm256_and_si256(windows32(p + 20, &windows5, 4), mask);
        return;
    case 4:
    case E2M1:
        both = load32(p);
        break;
    case 3:
        both = windows32(p, &windows6, 8);
        break;
    default:
        both = _mm256_srlv_epi64(_mm256_broadcastsi128_si256(load16(p)),
                                 _mm256_setr_epi64x(0, 0, 4, 4));
        break;
    }
    v[0] = _mm256_and_si256(both, mask);
    v[1] = _mm256_and_si256(_mm256_srli_epi16(both, low), mask);
    if (bits == E2M1) {
        const __m256i codes = _mm256_broadcastsi128_si256(load16(e2m1_codes));

        v[0] = _mm256_shuffle_epi8(codes, v[0]);
        v[1] = _mm256_shuffle_epi8(codes, v[1]);
    }
}

/* Take bytes alternately from the lower and the upper half of v. */
INLINE __m256i interleave_halves(__m256i v)
{
    __m128i a = _mm256_castsi256_si128(v), b = _mm256_extracti128_si256(v, 1);

    return _mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_unpacklo_epi8(a, b)),
        _mm_unpackhi_epi8(a, b), 1);
}

/* Unpack a unit to bytes in the order of the stream. */
INLINE void unit_codes_in_order(__m256i v[2], const unsigned char *p, int bits)
{
    __m256i low, high;

    unit_codes(v, p, bits);
    if (bits > 4)
        return;
    if (bits == 2) {
        v[0] = interleave_halves(v[0]);
        v[1] = interleave_halves(v[1]);
    }
    low = _mm256_unpacklo_epi8(v[0], v[1]);
    high = _mm256_unpackhi_epi8(v[0], v[1]);
    v[0] = _mm256_permute2x128_si256(low, high, 0x20);
    v[1] = _mm256_permute2x128_si256(low, high, 0x31);
}

/* Move the bytes of even index to the lower half, and the bytes of odd index to
 * the upper half. */
INLINE __m256i split_pairs(__m256i v)
{
    const __m256i pairs =
        _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,
                         0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);

    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, pairs), 0xd8);
}

/* Move a unit of bytes from the order of the stream to the order of
 * unit_codes. */
INLINE void unit_order(__m256i v[2], int bits)
{
    __m256i a, b;

    if (bits > 4)
        return;
    a = split_pairs(v[0]);
    b = split_pairs(v[1]);
    v[0] = _mm256_permute2x128_si256(a, b, 0x20);
    v[1] = _mm256_permute2x128_si256(a, b, 0x31);
    if (bits == 2) {
        v[0] = split_pairs(v[0]);
        v[1] = split_pairs(v[1]);
    }
}

/* Copy the last 32 codes of a row, which are half a unit, to room, followed by
 * zeros. Returns room, which has 64 bytes. */
INLINE const unsigned char *half_unit(unsigned char *room,
                                      const unsigned char *p, int bits)
{
    memset(room, 0, UNIT);
    memcpy(room, p, UNIT_BYTES(bits) / 2);
    return room;
}

/* ---- scales and biases -------------------------------------------------- */

/* Load eight bytes, widened to 32 bits. */
INLINE __m256i eight_bytes(const void *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i_u *)p));
}

/* Load eight numbers of the type, widened to f32; of U8, which are E8M0, their
 * halves. */
INLINE __m256 eight_numbers(const void *p, enum dtype type)
{
    if (type == DT_F32)
        return _mm256_castsi256_ps(load32(p));
    if (type == DT_U8)
        return e8m0_halves(eight_bytes(p));
    if (type == DT_F8_E4M3)
        return widen_fp8(_mm_loadl_epi64((const __m128i_u *)p));
    if (type == DT_F16)
        return _mm256_cvtph_ps(load16(p));
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
}

/* Load the first n < 8 numbers. The other lanes have finite numbers. */
static __attribute__((noinline)) __m256 some_numbers(const unsigned char *p,
                                                     size_t n, enum dtype type)
{
    unsigned char some[32] = {0};

    memcpy(some, p, n * type_bytes(type));
    return eight_numbers(some, type);
}

/* Load the first n of at most eight numbers, as some_numbers. */
INLINE __m256 numbers(const unsigned char *p, size_t n, enum dtype type)
{
    return n >= 8 ? eight_numbers(p, type) : some_numbers(p, n, type);
}

/* Return scales times the first n of at most eight zero points, negated. */
INLINE __m256 zero_biases(const unsigned char *p, size_t n, __m256 scales)
{
    unsigned char some[8] = {0};

    if (n < 8)
        memcpy(some, p, n);
    return _mm256_mul_ps(
        scales, _mm256_cvtepi32_ps(_mm256_sub_epi32(
                    _mm256_setzero_si256(), eight_bytes(n < 8 ? some : p))));
}

/* The scales and biases of a row from some group on. */
struct row_numbers {
    const unsigned char *scales, *biases;
    size_t s_bytes, b_bytes; /* of a number */
    enum dtype s_type, b_type;
    int zero; /* struct affine's, and by */
    float by;
};

INLINE struct row_numbers numbers_at(const struct affine *w, size_t r, size_t g)
{
    const size_t s_bytes = type_bytes(w->s_type);
    const size_t b_bytes = type_bytes(w->b_type);

    return (struct row_numbers){w->scales + r * w->s_stride + g * s_bytes,
                                w->biases + r * w->b_stride + g * b_bytes,
                                s_bytes,
                                b_bytes,
                                w->s_type,
                                w->b_type,
                                w->zero,
                                w->by};
}

/* Load the scales of the first n of at most eight groups from group g on. */
INLINE __m256 group_scales(const struct row_numbers *w, size_t g, size_t n)
{
    const __m256 v = numbers(w->scales + g * w->s_bytes, n, w->s_type);

    return w->s_type == DT_F8_E4M3 ? _mm256_mul_ps(v, _mm256_set1_ps(w->by))
                                   : v;
}

/* Do the work of group_scales for biases. scales: its result. */
INLINE __m256 group_biases(const struct row_numbers *w, size_t g, size_t n,
                           __m256 scales)
{
    const unsigned char *p = w->biases + g * w->b_bytes;

    if (w->zero)
        return _mm256_mul_ps(scales, _mm256_set1_ps(-(float)w->zero));
    return w->b_type == DT_U8 ? zero_biases(p, n, scales)
                              : numbers(p, n, w->b_type);
}

#endif
