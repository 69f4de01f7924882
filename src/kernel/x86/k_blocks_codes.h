/* Functions that read GGUF's blocks (kernel/blocks.h) in 256-bit vectors. A run
 * is 32 elements; a chunk is up to eight runs: one superblock, or eight blocks
 * of 32. Weights are in mapped files, so these functions read no byte beyond a
 * chunk. */
#ifndef KERNEL_X86_K_BLOCKS_CODES_H
#define KERNEL_X86_K_BLOCKS_CODES_H

#include <string.h>

#include "kernel/blocks.h"
#include "kernel/kernel.h"
#include "kernel/x86/k_avx.h"

enum { RUN = 32, CHUNK_RUNS = SUPER / RUN };

/* If the type is a constant, the compiler knows the results of these
 * functions. */

INLINE bool is_super(enum dtype type)
{
    return type >= DT_Q2_K;
}

/* Return the bytes of a chunk of n runs. */
INLINE size_t chunk_bytes(enum dtype type, size_t n)
{
    static const size_t bytes[DT_N_BLOCKS] = {
        sizeof(struct q4_0),  sizeof(struct q4_1), sizeof(struct q5_0),
        sizeof(struct q5_1),  sizeof(struct q8_0), sizeof(struct iq4_nl),
        sizeof(struct mxfp4), sizeof(struct q2_k), sizeof(struct q3_k),
        sizeof(struct q4_k),  sizeof(struct q5_k), sizeof(struct q6_k),
        sizeof(struct iq4_xs)};

    return bytes[type - DT_BLOCKS] * (is_super(type) ? 1 : n);
}

/* Return the bytes of n runs of a row. For superblocks, n must be a multiple of
 * CHUNK_RUNS. */
INLINE size_t runs_bytes(enum dtype type, size_t n)
{
    return is_super(type) ? n / CHUNK_RUNS * chunk_bytes(type, CHUNK_RUNS)
                          : chunk_bytes(type, n);
}

/* Return whether each group of 16 elements has a scale of its own. */
INLINE bool has_halves(enum dtype type)
{
    return type == DT_Q2_K || type == DT_Q3_K || type == DT_Q6_K;
}

/* Return whether codes are signed bytes. */
INLINE bool is_signed(enum dtype type)
{
    return type == DT_Q8_0 || type == DT_IQ4_NL || type == DT_IQ4_XS;
}

/* Return the number to subtract from an unsigned code to get its integer. */
INLINE int offset_of(enum dtype type)
{
    return type == DT_Q4_0    ? 8
           : type == DT_Q5_0  ? 16
           : type == DT_Q3_K  ? 4
           : type == DT_Q6_K  ? 32
           : type == DT_MXFP4 ? E2M1_OFFSET
                              : 0;
}

/* Return whether a min is subtracted from each element. */
INLINE bool has_min(enum dtype type)
{
    return type == DT_Q4_1 || type == DT_Q5_1 || type == DT_Q2_K ||
           type == DT_Q4_K || type == DT_Q5_K;
}

INLINE __m128i load16(const void *p)
{
    return _mm_loadu_si128((const __m128i_u *)p);
}

INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i_u *)p);
}

/* ---- codes -------------------------------------------------------------- */

/* Unpack the 32 nibbles of 16 bytes, the low nibbles first. */
INLINE __m256i nibbles(const unsigned char *q)
{
    __m128i v = load16(q);

    return _mm256_and_si256(_mm256_inserti128_si256(_mm256_castsi128_si256(v),
                                                    _mm_srli_epi16(v, 4), 1),
                            _mm256_set1_epi8(15));
}

/* Set byte k to `to` if bit k of h is set, otherwise to 0. */
INLINE __m256i spread_bits(const unsigned char h[4], char to)
{
    const __m256i which =
        _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101,
                           0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    int word;
    __m256i v;

    memcpy(&word, h, 4);
    v = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(word), which),
                         bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(v, bit), _mm256_set1_epi8(to));
}

INLINE __m256i iq4_codes(__m256i v)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(iq4_values)),
                               v);
}

INLINE __m256i e2m1_codes_of(__m256i v)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load16(e2m1_codes)),
                               v);
}

/* Compute (v >> n) & mask in each byte. */
INLINE __m256i bits_at(__m256i v, size_t n, char mask)
{
    return _mm256_and_si256(_mm256_srl_epi16(v, _mm_cvtsi32_si128((int)n)),
                            _mm256_set1_epi8(mask));
}

/* Unpack the codes of run r of a chunk. */
INLINE __m256i run_codes(enum dtype type, const unsigned char *p, size_t r)
{
    switch (type) {
    case DT_Q4_0:
        return nibbles(((const struct q4_0 *)(const void *)p)[r].q);
    case DT_Q4_1:
        return nibbles(((const struct q4_1 *)(const void *)p)[r].q);
    case DT_IQ4_NL:
        return iq4_codes(
            nibbles(((const struct iq4_nl *)(const void *)p)[r].q));
    case DT_MXFP4:
        return e2m1_codes_of(
            nibbles(((const struct mxfp4 *)(const void *)p)[r].q));
    case DT_Q8_0:
        return load32(((const struct q8_0 *)(const void *)p)[r].q);
    case DT_Q5_0: {
        const struct q5_0 *b = (const struct q5_0 *)(const void *)p + r;

        return _mm256_or_si256(nibbles(b->q), spread_bits(b->h, 16));
    }
    case DT_Q5_1: {
        const struct q5_1 *b = (const struct q5_1 *)(const void *)p + r;

        return _mm256_or_si256(nibbles(b->q), spread_bits(b->h, 16));
    }
    case DT_Q2_K: {
        const struct q2_k *b = (const struct q2_k *)(const void *)p;

        return bits_at(load32(b->q + r / 4 * 32), r % 4 * 2, 3);
    }
    case DT_Q3_K: {
        const struct q3_k *b = (const struct q3_k *)(const void *)p;

        return _mm256_or_si256(
            bits_at(load32(b->q + r / 4 * 32), r % 4 * 2, 3),
            _mm256_slli_epi16(bits_at(load32(b->h), r, 1), 2));
    }
    case DT_Q4_K: {
        const struct q4_k *b = (const struct q4_k *)(const void *)p;

        return bits_at(load32(b->q + r / 2 * 32), r % 2 * 4, 15);
    }
    case DT_Q5_K: {
        const struct q5_k *b = (const struct q5_k *)(const void *)p;

        return _mm256_or_si256(
            bits_at(load32(b->q + r / 2 * 32), r % 2 * 4, 15),
            _mm256_slli_epi16(bits_at(load32(b->h), r, 1), 4));
    }
    case DT_Q6_K: {
        const struct q6_k *b = (const struct q6_k *)(const void *)p;
        const unsigned char *l = b->l + r / 4 * 64 + r % 2 * 32;

        return _mm256_or_si256(
            bits_at(load32(l), r % 4 / 2 * 4, 15),
            _mm256_slli_epi16(bits_at(load32(b->h + r / 4 * 32), r % 4 * 2, 3),
                              4));
    }
    default: {
        const struct iq4_xs *b = (const struct iq4_xs *)(const void *)p;

        return iq4_codes(nibbles(b->q + 16 * r));
    }
    }
}

/* ---- scales ------------------------------------------------------------- */

/* The scales and mins of a chunk. A type with one scale for each run uses [0]
 * only. A type with one for each group of 16 has the first eight groups in [0]
 * and the others in [1]. Runs that the chunk lacks have 0. */
struct scales {
    __m256 scale[2], min[2];
};

INLINE __m256 one_half(const unsigned char p[2])
{
    uint16_t h;

    memcpy(&h, p, 2);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

/* Load n <= 8 halves, `stride` bytes apart, widened to f32. */
INLINE __m256 halves(const unsigned char *p, size_t stride, size_t n)
{
    uint16_t h[8] = {0};

    for (size_t i = 0; i < n; i++)
        memcpy(h + i, p + i * stride, 2);
    return _mm256_cvtph_ps(load16(h));
}

/* Load n <= 8 numbers of E8M0, `stride` bytes apart, and halve them. */
INLINE __m256 scales_e8m0(const unsigned char *p, size_t stride, size_t n)
{
    unsigned char e[8] = {0};
    long long all;

    for (size_t i = 0; i < n; i++)
        e[i] = p[i * stride];
    memcpy(&all, e, 8);
    return _mm256_and_ps(
        e8m0_halves(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(all))),
        _mm256_castsi256_ps(first_lanes8(n)));
}

INLINE __m256 floats_u8(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
}

INLINE __m256 floats_i8(__m128i bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

/* Do the work of k_scales_mins in words of four bytes. */
INLINE void k_scales(struct scales *s, const unsigned char *d,
                     const unsigned char *dmin, const unsigned char sc[12])
{
    const uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, two = 0x03030303;
    uint32_t w[3];
    uint64_t scales, mins;

    memcpy(w, sc, 12);
    scales =
        (uint64_t)((w[2] & four) | (w[0] >> 6 & two) << 4) << 32 | (w[0] & six);
    mins = (uint64_t)((w[2] >> 4 & four) | (w[1] >> 6 & two) << 4) << 32 |
           (w[1] & six);
    s->scale[0] = _mm256_mul_ps(
        one_half(d), floats_u8(_mm_cvtsi64_si128((long long)scales)));
    s->min[0] = _mm256_mul_ps(one_half(dmin),
                              floats_u8(_mm_cvtsi64_si128((long long)mins)));
}

/* Do the work of q3_k_scales in words of four bytes. */
INLINE __m128i q3_k_bytes(const unsigned char sc[12])
{
    const uint32_t four = 0x0f0f0f0f, two = 0x03030303;
    uint32_t w[3];

    memcpy(w, sc, 12);
    return _mm_sub_epi8(
        _mm_setr_epi32((int)((w[0] & four) | (w[2] & two) << 4),
                       (int)((w[1] & four) | (w[2] >> 2 & two) << 4),
                       (int)((w[0] >> 4 & four) | (w[2] >> 4 & two) << 4),
                       (int)((w[1] >> 4 & four) | (w[2] >> 6 & two) << 4)),
        _mm_set1_epi8(32));
}

/* Do the work of iq4_xs_scales, and return floats. */
INLINE __m256 iq4_xs_floats(const struct iq4_xs *b)
{
    const __m256i at = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const uint32_t four = 0x0f0f0f0f;
    uint32_t low;
    uint16_t high;
    __m128i nibble;
    __m256i two;

    memcpy(&low, b->sl, 4);
    memcpy(&high, b->sh, 2);
    nibble = _mm_unpacklo_epi8(_mm_cvtsi32_si128((int)(low & four)),
                               _mm_cvtsi32_si128((int)(low >> 4 & four)));
    two = _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(high), at),
                           _mm256_set1_epi32(3));
    return _mm256_cvtepi32_ps(
        _mm256_sub_epi32(_mm256_or_si256(_mm256_cvtepu8_epi32(nibble),
                                         _mm256_slli_epi32(two, 4)),
                         _mm256_set1_epi32(32)));
}

/* Return the scales and mins of a chunk of n runs. */
INLINE struct scales chunk_scales(enum dtype type, const unsigned char *p,
                                  size_t n)
{
    const __m256 zero = _mm256_setzero_ps();
    const size_t stride = chunk_bytes(type, 1);
    struct scales s = {{zero, zero}, {zero, zero}};

    switch (type) {
    case DT_Q4_K: {
        const struct q4_k *b = (const struct q4_k *)(const void *)p;

        k_scales(&s, b->d, b->dmin, b->sc);
        break;
    }
    case DT_Q5_K: {
        const struct q5_k *b = (const struct q5_k *)(const void *)p;

        k_scales(&s, b->d, b->dmin, b->sc);
        break;
    }
    case DT_Q2_K: {
        const struct q2_k *b = (const struct q2_k *)(const void *)p;
        const __m128i v = load16(b->sc), low = _mm_set1_epi8(15);
        const __m128i a = _mm_and_si128(v, low),
                      m = _mm_and_si128(_mm_srli_epi16(v, 4), low);

        s.scale[0] = _mm256_mul_ps(one_half(b->d), floats_u8(a));
        s.scale[1] =
            _mm256_mul_ps(one_half(b->d), floats_u8(_mm_srli_si128(a, 8)));
        s.min[0] = _mm256_mul_ps(one_half(b->dmin), floats_u8(m));
        s.min[1] =
            _mm256_mul_ps(one_half(b->dmin), floats_u8(_mm_srli_si128(m, 8)));
        break;
    }
    case DT_Q3_K: {
        const struct q3_k *b = (const struct q3_k *)(const void *)p;
        const __m128i v = q3_k_bytes(b->sc);

        s.scale[0] = _mm256_mul_ps(one_half(b->d), floats_i8(v));
        s.scale[1] =
            _mm256_mul_ps(one_half(b->d), floats_i8(_mm_srli_si128(v, 8)));
        break;
    }
    case DT_Q6_K: {
        const struct q6_k *b = (const struct q6_k *)(const void *)p;
        const __m128i v = load16(b->sc);

        s.scale[0] = _mm256_mul_ps(one_half(b->d), floats_i8(v));
        s.scale[1] =
            _mm256_mul_ps(one_half(b->d), floats_i8(_mm_srli_si128(v, 8)));
        break;
    }
    case DT_IQ4_XS: {
        const struct iq4_xs *b = (const struct iq4_xs *)(const void *)p;

        s.scale[0] = _mm256_mul_ps(one_half(b->d), iq4_xs_floats(b));
        break;
    }
    case DT_MXFP4:
        s.scale[0] = scales_e8m0(p, stride, n);
        break;
    default:
        s.scale[0] = halves(p, stride, n);
        if (type == DT_Q4_1 || type == DT_Q5_1)
            s.min[0] =
                _mm256_xor_ps(halves(p + 2, stride, n), _mm256_set1_ps(-0.0f));
        break;
    }
    return s;
}

/* Adapt the mins to codes from which offset_of was not subtracted: add the
 * scale times the offset. */
INLINE void add_offset(struct scales *s, enum dtype type)
{
    const __m256 o = _mm256_set1_ps((float)offset_of(type));

    if (offset_of(type) == 0)
        return;
    s->min[0] = _mm256_fmadd_ps(o, s->scale[0], s->min[0]);
    s->min[1] = _mm256_fmadd_ps(o, s->scale[1], s->min[1]);
}

#endif
