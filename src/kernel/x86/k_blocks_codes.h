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

/* Return the bytes of a chunk of n runs. NVFP4 has two runs in a block, so
 * there n is even. */
INLINE size_t chunk_bytes(enum dtype type, size_t n)
{
#define BYTES(name, TYPE) [TYPE - DT_BLOCKS] = sizeof(struct name),
    static const size_t bytes[DT_N_BLOCKS] = {EACH_BLOCK_TYPE(BYTES)};
#undef BYTES

    return bytes[type - DT_BLOCKS] * (is_super(type)     ? 1
                                      : type == DT_NVFP4 ? n / 2
                                                         : n);
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
    return type == DT_Q2_K || type == DT_Q3_K || type == DT_Q6_K ||
           type == DT_NVFP4 || type == DT_IQ2_XS || type == DT_IQ2_S ||
           type == DT_IQ1_M;
}

/* Return whether codes are signed bytes. */
INLINE bool is_signed(enum dtype type)
{
    return type == DT_Q8_0 || type == DT_IQ4_NL || type == DT_IQ4_XS;
}

/* Return the number to subtract from an unsigned code to get its integer. */
INLINE int offset_of(enum dtype type)
{
    return type == DT_Q4_0                          ? 8
           : type == DT_Q5_0                        ? 16
           : type == DT_Q3_K                        ? 4
           : type == DT_Q6_K                        ? 32
           : type == DT_MXFP4 || type == DT_NVFP4   ? E2M1_OFFSET
           : type >= DT_IQ3_XXS && type <= DT_IQ2_S ? IQ_OFFSET
           : type == DT_IQ1_S || type == DT_IQ1_M   ? IQ1_OFFSET
           : type == DT_TQ1_0 || type == DT_TQ2_0   ? 1
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

/* The 16 bytes of run r of NVFP4: the low nibbles of eight bytes, then their
 * high nibbles. */
INLINE __m256i nvfp4_codes(const struct nvfp4 *b, size_t r)
{
    const __m128i v = load16(b[r / 2].q + r % 2 * 16), low = _mm_set1_epi8(15);
    const __m128i a = _mm_and_si128(v, low),
                  h = _mm_and_si128(_mm_srli_epi16(v, 4), low);

    return e2m1_codes_of(_mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_unpacklo_epi64(a, h)),
        _mm_unpackhi_epi64(a, h), 1));
}

/* Negate magnitudes g where m is all ones, and add IQ_OFFSET. */
INLINE __m256i iq_codes(__m256i g, __m256i m)
{
    return _mm256_add_epi8(_mm256_sub_epi8(_mm256_xor_si256(g, m), m),
                           _mm256_set1_epi8(IQ_OFFSET));
}

/* Load numbers of a table of 64 bits. */
INLINE __m256i four_of(const uint64_t *table, size_t a, size_t b, size_t c,
                       size_t d)
{
    return _mm256_setr_epi64x((long long)table[a], (long long)table[b],
                              (long long)table[c], (long long)table[d]);
}

/* The masks of four times seven signs. */
INLINE __m256i four_minus(uint32_t s)
{
    return four_of(iq_minus, s & 127, s >> 7 & 127, s >> 14 & 127,
                   s >> 21 & 127);
}

INLINE __m256i iq2_xxs_codes(const struct iq2_xxs *b, size_t r)
{
    const unsigned char *q = b->q + 8 * r;

    return iq_codes(four_of(iq2_xxs_grid, q[0], q[1], q[2], q[3]),
                    four_minus(load_u32(q + 4)));
}

INLINE __m256i iq2_xs_codes(const struct iq2_xs *b, size_t r)
{
    uint16_t q[4];

    memcpy(q, b->q + 8 * r, 8);
    return iq_codes(
        four_of(iq2_xs_grid, q[0] & 511, q[1] & 511, q[2] & 511, q[3] & 511),
        four_of(iq_minus, q[0] >> 9, q[1] >> 9, q[2] >> 9, q[3] >> 9));
}

INLINE __m256i iq2_s_codes(const struct iq2_s *b, size_t r)
{
    return iq_codes(four_of(iq2_s_grid, iq2_s_index(b, r, 0),
                            iq2_s_index(b, r, 1), iq2_s_index(b, r, 2),
                            iq2_s_index(b, r, 3)),
                    spread_bits(b->signs + 4 * r, -1));
}

INLINE __m256i iq3_xxs_codes(const struct iq3_xxs *b, size_t r)
{
    const unsigned char *q = b->q + 8 * r;
    int g[8];

    UNROLL
    for (size_t l = 0; l < 8; l++)
        g[l] = (int)iq3_xxs_grid[q[l]];
    return iq_codes(
        _mm256_setr_epi32(g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]),
        four_minus(load_u32(b->s + 4 * r)));
}

INLINE __m256i iq3_s_codes(const struct iq3_s *b, size_t r)
{
    int g[8];

    UNROLL
    for (size_t l = 0; l < 8; l++)
        g[l] = (int)iq3_s_grid[iq3_s_index(b, r, l)];
    return iq_codes(
        _mm256_setr_epi32(g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7]),
        spread_bits(b->signs + 4 * r, -1));
}

/* Unpack a run of a type without vectors of its own. */
static inline __m256i scalar_codes(enum dtype type, const void *p, size_t r)
{
    uint8_t codes[RUN];

    if (type == DT_IQ1_S)
        iq1_s_codes(codes, p, r);
    else if (type == DT_IQ1_M)
        iq1_m_codes(codes, p, r);
    else
        tq1_0_codes(codes, p, r);
    return load32(codes);
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
    case DT_IQ4_XS: {
        const struct iq4_xs *b = (const struct iq4_xs *)(const void *)p;

        return iq4_codes(nibbles(b->q + 16 * r));
    }
    case DT_NVFP4:
        return nvfp4_codes((const void *)p, r);
    case DT_IQ2_XXS:
        return iq2_xxs_codes((const void *)p, r);
    case DT_IQ2_XS:
        return iq2_xs_codes((const void *)p, r);
    case DT_IQ2_S:
        return iq2_s_codes((const void *)p, r);
    case DT_IQ3_XXS:
        return iq3_xxs_codes((const void *)p, r);
    case DT_IQ3_S:
        return iq3_s_codes((const void *)p, r);
    case DT_TQ2_0: {
        const struct tq2_0 *b = (const struct tq2_0 *)(const void *)p;

        return bits_at(load32(b->q + r / 4 * 32), r % 4 * 2, 3);
    }
    default:
        return scalar_codes(type, p, r);
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

/* Load the scales of n <= 8 runs of NVFP4. An E4M3 number is an f16 number with
 * a smaller exponent: 2^8 times less, of which half is left. */
INLINE void nvfp4_scales(struct scales *s, const struct nvfp4 *b, size_t n)
{
    unsigned char d[16] = {0};
    __m128i v;

    for (size_t i = 0; i < n / 2; i++)
        memcpy(d + 4 * i, b[i].d, 4);
    v = load16(d);
    v = _mm_andnot_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(0x7f)),
                         _mm_and_si128(v, _mm_set1_epi8(0x7f)));
    UNROLL
    for (int i = 0; i < 2; i++, v = _mm_srli_si128(v, 8))
        s->scale[i] = _mm256_mul_ps(
            _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(v), 7)),
            _mm256_set1_ps(128));
}

/* Multiply d, at p and divided by `by`, by 2 s + 1 for each byte s. */
INLINE __m256 odd_scales(const unsigned char p[2], float by, __m128i s)
{
    const __m256 d = _mm256_mul_ps(one_half(p), _mm256_set1_ps(1 / by));

    return _mm256_mul_ps(
        d, floats_u8(_mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1))));
}

/* Unpack eight bytes to 16 nibbles. */
INLINE __m128i sixteen_nibbles(const unsigned char *p)
{
    const __m128i v = _mm_loadl_epi64((const void *)p), low = _mm_set1_epi8(15);

    return _mm_unpacklo_epi8(_mm_and_si128(v, low),
                             _mm_and_si128(_mm_srli_epi16(v, 4), low));
}

/* Multiply d / by by 2 s + 1, where s are the highest four bits of eight
 * numbers of 32 bits. */
INLINE __m256 top_scales(const unsigned char p[2], float by, __m256i v)
{
    const __m256 d = _mm256_mul_ps(one_half(p), _mm256_set1_ps(1 / by));

    v = _mm256_slli_epi32(_mm256_srli_epi32(v, 28), 1);
    return _mm256_mul_ps(
        d, _mm256_cvtepi32_ps(_mm256_or_si256(v, _mm256_set1_epi32(1))));
}

/* Set the scales of a type IQ3, IQ2 or IQ1. */
INLINE void iq_scales(struct scales *s, enum dtype type, const unsigned char *p)
{
    switch (type) {
    case DT_IQ2_XXS: {
        const struct iq2_xxs *b = (const void *)p;
        /* the odd numbers of 32 bits */
        const __m256 v = _mm256_shuffle_ps((__m256)load32(b->q),
                                           (__m256)load32(b->q + 32), 0xdd);

        s->scale[0] =
            top_scales(b->d, 8, _mm256_permute4x64_epi64((__m256i)v, 0xd8));
        break;
    }
    case DT_IQ3_XXS: {
        const struct iq3_xxs *b = (const void *)p;

        s->scale[0] = top_scales(b->d, 4, load32(b->s));
        break;
    }
    case DT_IQ3_S: {
        const struct iq3_s *b = (const void *)p;
        unsigned char sc[8] = {0};

        memcpy(sc, b->sc, 4);
        s->scale[0] = odd_scales(b->d, 1, sixteen_nibbles(sc));
        break;
    }
    case DT_IQ1_S: {
        const struct iq1_s *b = (const void *)p;
        unsigned char sc[16] = {0};

        for (size_t r = 0; r < 8; r++)
            sc[r] = b->h[2 * r + 1] >> 4 & 7;
        s->scale[0] = odd_scales(b->d, 8, load16(sc));
        break;
    }
    case DT_IQ1_M: {
        const struct iq1_m *b = (const void *)p;
        const uint16_t d = iq1_m_d(b);
        const __m256 all =
            _mm256_mul_ps(one_half((const void *)&d), _mm256_set1_ps(0.125f));
        uint8_t sc[16];

        iq1_m_scales(sc, b);
        s->scale[0] = _mm256_mul_ps(all, floats_u8(load16(sc)));
        s->scale[1] =
            _mm256_mul_ps(all, floats_u8(_mm_srli_si128(load16(sc), 8)));
        break;
    }
    default: {
        const unsigned char *sc = type == DT_IQ2_XS
                                      ? ((const struct iq2_xs *)p)->sc
                                      : ((const struct iq2_s *)p)->sc;
        const __m128i v = sixteen_nibbles(sc);

        s->scale[0] = odd_scales(p, 8, v);
        s->scale[1] = odd_scales(p, 8, _mm_srli_si128(v, 8));
    }
    }
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
    case DT_NVFP4:
        nvfp4_scales(&s, (const void *)p, n);
        break;
    case DT_TQ1_0:
        s.scale[0] = one_half(((const struct tq1_0 *)p)->d);
        break;
    case DT_TQ2_0:
        s.scale[0] = one_half(((const struct tq2_0 *)p)->d);
        break;
    case DT_IQ3_XXS:
    case DT_IQ3_S:
    case DT_IQ2_XXS:
    case DT_IQ2_XS:
    case DT_IQ2_S:
    case DT_IQ1_S:
    case DT_IQ1_M:
        iq_scales(&s, type, p);
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
