/* Products of GGUF's blocks for AVX-512 with VNNI. With few tokens, the types
 * of FEW512 have kernels in 512-bit vectors. All other products come from
 * k_blocks_avx.h.
 *
 * These kernels multiply one row at a time by up to TOKENS tokens, with lanes
 * along the row. A part of a row has 16 scales, which fill a vector: 16 blocks
 * of 32 elements, or one or two superblocks. A step has 128 columns of a part.
 * The codes of a step fill two vectors, a and b. The kernels first put the
 * activations in the order of these codes, because that is cheaper than to put
 * the codes of each row in order. Codes are unsigned. The kernels subtract the
 * offset of a code as a min: the offset times the scale, times the sum of the
 * activations.
 *
 * Order of sums. A row has two vectors of sums, for a and b or for even and odd
 * steps, and a vector of mins. Each takes the parts of the row in order. */
#include <immintrin.h>

#define KERNEL(name) k_##name##_avx512
#define LEVEL        ISA_AVX512

static inline __attribute__((always_inline)) __m256i
add_fours(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_dpbusd_epi32(sum, w, x);
}

#include "kernel/x86/k_blocks_avx.h"
#include "kernel/x86/k_q8_avx512.h"

/* Blocks straddle cache lines, so their loads wait for L2 more often than loads
 * of aligned codes. Lines that were prefetched into L2 are prefetched again,
 * into L1, when the sweep is NEAR_BYTES away from them. */
enum { STEP = 128, PART_SCALES = 16, NEAR_BYTES = 1024 };

/* Sums of a row for each token (see above). */
struct row_sums {
    __m512 min[TOKENS], a[TOKENS], b[TOKENS];
};

/* Add all sums of a row for token t. */
INLINE float row_sum(const struct row_sums *s, int t)
{
    return sum_lanes(
        fold16(_mm512_sub_ps(_mm512_add_ps(s->a[t], s->b[t]), s->min[t])));
}

#include "kernel/x86/k_blocks_stream.h"

/* Return the columns that share a scale. */
INLINE size_t scale_cols(enum dtype type)
{
    return has_halves(type) ? 16 : RUN;
}

/* Return the columns of a whole part. */
INLINE size_t part_cols(enum dtype type)
{
    return PART_SCALES * scale_cols(type);
}

/* ---- activations -------------------------------------------------------- */

/* Order of 16-byte pieces of activations in a step. */
INLINE __m512i piece_order(enum dtype type, int b)
{
    /* nibbles of four blocks: the first halves of the blocks, then the second
     * halves */
    if (type == DT_Q5_0)
        return b ? _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15)
                 : _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
    /* nibbles of 64 bytes: runs 0 and 2, then runs 1 and 3 */
    if (type == DT_Q4_K || type == DT_Q5_K)
        return b ? _mm512_setr_epi64(4, 5, 6, 7, 12, 13, 14, 15)
                 : _mm512_setr_epi64(0, 1, 2, 3, 8, 9, 10, 11);
    return b ? _mm512_setr_epi64(8, 9, 10, 11, 12, 13, 14, 15)
             : _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
}

/* Copy the activations of n columns of one token in the order of codes, padded
 * with zeros to a whole step. q is padded to a multiple of 64. */
INLINE void arrange(enum dtype type, int8_t *out, const int8_t *q, size_t n)
{
    for (size_t k = 0; k < n; k += STEP) {
        const __m512i lo = _mm512_load_si512(q + k);
        const __m512i hi =
            n - k > 64 ? _mm512_load_si512(q + k + 64) : _mm512_setzero_si512();

        _mm512_store_si512(
            out + k, _mm512_permutex2var_epi64(lo, piece_order(type, 0), hi));
        _mm512_store_si512(out + k + 64, _mm512_permutex2var_epi64(
                                             lo, piece_order(type, 1), hi));
    }
}

/* ---- scales ------------------------------------------------------------- */

/* Load the f16 numbers of n <= 16 blocks, `stride` bytes apart, widened to
 * f32, with zeros in the other lanes. */
INLINE __m512 block_scales(const unsigned char *p, size_t stride, size_t n)
{
    _Alignas(32) uint16_t h[16] = {0};

    if (n == PART_SCALES) {
        UNROLL
        for (size_t i = 0; i < PART_SCALES; i++)
            memcpy(h + i, p + i * stride, 2);
        return _mm512_cvtph_ps(_mm256_setr_epi16(
            (short)h[0], (short)h[1], (short)h[2], (short)h[3], (short)h[4],
            (short)h[5], (short)h[6], (short)h[7], (short)h[8], (short)h[9],
            (short)h[10], (short)h[11], (short)h[12], (short)h[13],
            (short)h[14], (short)h[15]));
    }
    for (size_t i = 0; i < n; i++)
        memcpy(h + i, p + i * stride, 2);
    return _mm512_cvtph_ps(_mm256_load_si256((const void *)h));
}

/* Compute the scales and mins of one or two superblocks of Q4_K or Q5_K. Both
 * begin with d, dmin and sc. */
INLINE void k_scales512(__m512 *scale, __m512 *min, const unsigned char *p,
                        size_t bytes, bool two)
{
    /* bytes of sc follow four other bytes; low six or four bits of scales 0 to
     * 3, scales 4 to 7, mins 0 to 3, mins 4 to 7 */
    const __m256i low_at = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m256i low_mask = _mm256_broadcastsi128_si256(
        _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m256i low_shift =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0, 0, 4));
    const __m256i high_at = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        -1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    __m256i v = _mm256_castsi128_si256(load16(p)), low, high;

    v = two ? _mm256_inserti128_si256(v, load16(p + bytes), 1)
            : _mm256_inserti128_si256(v, _mm_setzero_si128(), 1);
    low = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_shuffle_epi8(v, low_at), low_shift), low_mask);
    high =
        _mm256_and_si256(_mm256_srli_epi16(_mm256_shuffle_epi8(v, high_at), 2),
                         _mm256_set1_epi8(0x30));
    /* scales of both, then mins of both */
    low = _mm256_permute4x64_epi64(_mm256_or_si256(low, high), 0xd8);
    *scale = _mm512_mul_ps(
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(low))),
        _mm512_cvtph_ps(_mm256_shuffle_epi8(v, _mm256_set1_epi16(0x0100))));
    *min = _mm512_mul_ps(
        _mm512_cvtepi32_ps(
            _mm512_cvtepu8_epi32(_mm256_extracti128_si256(low, 1))),
        _mm512_cvtph_ps(_mm256_shuffle_epi8(v, _mm256_set1_epi16(0x0302))));
}

/* Compute the scales and mins of a part with n scales at p. */
INLINE void part_scales(enum dtype type, __m512 *scale, __m512 *min,
                        const unsigned char *p, size_t n)
{
    if (type == DT_Q4_K || type == DT_Q5_K) {
        k_scales512(scale, min, p, chunk_bytes(type, CHUNK_RUNS),
                    n == PART_SCALES);
        /* b has the high nibbles of Q4_K in place, 16 times as large */
        if (type == DT_Q4_K)
            *scale =
                _mm512_mul_ps(*scale, _mm512_setr4_ps(1, 0.0625f, 1, 0.0625f));
        return;
    }
    if (type == DT_Q6_K) {
        const struct q6_k *b = (const struct q6_k *)(const void *)p;
        uint16_t d;

        memcpy(&d, b->d, 2);
        *scale = _mm512_mul_ps(
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(b->sc))),
            _mm512_cvtph_ps(_mm256_set1_epi16((short)d)));
    } else {
        *scale = block_scales(p, chunk_bytes(type, 1), n);
    }
    *min = _mm512_mul_ps(*scale, _mm512_set1_ps((float)offset_of(type)));
}

/* For each lane of the sums of vector a or b of a step: its scale. */
INLINE __m512i scale_lanes(enum dtype type, size_t step, int b)
{
    const __m512i fours =
        _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i eights = _mm512_srli_epi32(fours, 1);
    const int first = (int)(step * STEP / scale_cols(type));

    if (type == DT_Q5_0)
        return _mm512_add_epi32(fours, _mm512_set1_epi32(first));
    if (type == DT_Q6_K)
        return _mm512_add_epi32(fours, _mm512_set1_epi32(first + 4 * b));
    return _mm512_add_epi32(_mm512_slli_epi32(eights, 1),
                            _mm512_set1_epi32(first + b));
}

/* ---- codes -------------------------------------------------------------- */

/* Shift words to the right by n bits, or with a negative n to the left by
 * -n. */
INLINE __m512i shift(__m512i v, int n)
{
    return n > 0   ? _mm512_srli_epi16(v, n)
           : n < 0 ? _mm512_slli_epi16(v, -n)
                   : v;
}

/* Compute shift(v, n) & mask in each byte. */
INLINE __m512i shifted(__m512i v, int n, int mask)
{
    return _mm512_and_si512(shift(v, n), _mm512_set1_epi8((char)mask));
}

/* Compute a | (shift(v, n) & mask) in each byte. */
INLINE __m512i or_bits(__m512i a, __m512i v, int n, int mask)
{
    return _mm512_ternarylogic_epi32(a, shift(v, n),
                                     _mm512_set1_epi8((char)mask), 0xf8);
}

/* Load 32 bytes twice; the upper half is shifted right by n bits. */
INLINE __m512i high_bits(const unsigned char *h, int n)
{
    return _mm512_srlv_epi64(_mm512_broadcast_i64x4(load32(h)),
                             _mm512_setr_epi64(0, 0, 0, 0, n, n, n, n));
}

/* Load the 16 bytes at p of each of four blocks. */
INLINE __m512i four_blocks(const unsigned char *p, size_t stride)
{
    __m512i v = _mm512_castsi128_si512(load16(p));

    v = _mm512_inserti32x4(v, load16(p + stride), 1);
    v = _mm512_inserti32x4(v, load16(p + 2 * stride), 2);
    return _mm512_inserti32x4(v, load16(p + 3 * stride), 3);
}

/* Add 16 to the codes of four blocks whose bits at h are set: 16 bits for each
 * block. */
INLINE __m512i add_bits(__m512i codes, const unsigned char *h, size_t stride)
{
    uint16_t bits[4];
    __mmask64 m = 0;

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        memcpy(bits + i, h + i * stride, 2);
        m |= (__mmask64)bits[i] << (16 * i);
    }
    return _mm512_mask_add_epi8(codes, m, codes, _mm512_set1_epi8(16));
}

/* Unpack the codes of a step of a part at p. */
INLINE void step_codes(enum dtype type, __m512i *a, __m512i *b,
                       const unsigned char *p, size_t step)
{
    const size_t half = step / 2; /* superblock of Q4_K and Q5_K */
    const int j = (int)(step % 2);

    if (type == DT_Q5_0) {
        const struct q5_0 *w = (const struct q5_0 *)(const void *)p + 4 * step;
        const __m512i v = four_blocks(w->q, sizeof *w);

        *a = add_bits(shifted(v, 0, 15), w->h, sizeof *w);
        *b = add_bits(shifted(v, 4, 15), w->h + 2, sizeof *w);
    } else if (type == DT_Q4_K) {
        const struct q4_k *w = (const struct q4_k *)(const void *)p + half;
        const __m512i v = _mm512_loadu_si512(w->q + 64 * j);

        *a = shifted(v, 0, 15);
        *b = shifted(v, 0, 0xf0); /* part_scales makes up for it */
    } else if (type == DT_Q5_K) {
        const struct q5_k *w = (const struct q5_k *)(const void *)p + half;
        const __m512i v = _mm512_loadu_si512(w->q + 64 * j);
        const __m512i h = high_bits(w->h, 2);

        *a = or_bits(shifted(v, 0, 15), h, 4 * j - 4, 16);
        *b = or_bits(shifted(v, 4, 15), h, 4 * j - 3, 16);
    } else { /* Q6_K */
        const struct q6_k *w = (const struct q6_k *)(const void *)p;
        const __m512i v = _mm512_loadu_si512(w->l + 64 * step);
        const __m512i h = high_bits(w->h + 32 * step, 2);

        *a = or_bits(shifted(v, 0, 15), h, -4, 0x30);
        *b = or_bits(shifted(v, 4, 15), h, 0, 0x30);
    }
}

/* ---- rows --------------------------------------------------------------- */

/* Activations of some tokens from a column on. q is in the order of codes. sum
 * has the sums of the columns that share a scale, times their scales. */
struct arranged {
    const int8_t *q;
    const float *scale, *sum;
    size_t ldq, ldg, lds;
};

/* Add the products of codes a and b of a step and T tokens. q is at the step's
 * activations of the first token; f[t] has the scales of the part. */
INLINE void add_step(enum dtype type, struct row_sums *s, __m512i a, __m512i b,
                     const int8_t *q, size_t ldq, const __m512 *f, size_t step,
                     int T)
{
    UNROLL
    for (int t = 0; t < T; t++) {
        const int8_t *x = q + (size_t)t * ldq;
        const __m512i xa = _mm512_load_si512(x);
        const __m512i xb = _mm512_load_si512(x + 64);
        const sums da = dot4(no_sums(), a, xa);
        const __m512 fa =
            _mm512_permutexvar_ps(scale_lanes(type, step, 0), f[t]);

        if (type == DT_Q5_0 && step % 2) {
            s->b[t] = _mm512_fmadd_ps(to_floats(dot4(da, b, xb)), fa, s->b[t]);
        } else if (type == DT_Q5_0) {
            s->a[t] = _mm512_fmadd_ps(to_floats(dot4(da, b, xb)), fa, s->a[t]);
        } else {
            const __m512 fb =
                _mm512_permutexvar_ps(scale_lanes(type, step, 1), f[t]);

            s->a[t] = _mm512_fmadd_ps(to_floats(da), fa, s->a[t]);
            s->b[t] =
                _mm512_fmadd_ps(to_floats(dot4(no_sums(), b, xb)), fb, s->b[t]);
        }
    }
}

/* Unpack the last n < 4 blocks of a row, which are at p. */
INLINE void last_codes(enum dtype type, __m512i *a, __m512i *b,
                       const unsigned char *p, size_t n)
{
    unsigned char four[4 * sizeof(struct q5_0)] = {0};

    memcpy(four, p, chunk_bytes(type, n));
    step_codes(type, a, b, four, 0);
}

/* Add the products of the part from column k on, which has n columns. */
INLINE void add_part(enum dtype type, struct row_sums *s,
                     const unsigned char *p, const struct arranged *x, size_t k,
                     size_t n, int T, size_t ahead, bool to_l2)
{
    const size_t cols = scale_cols(type);
    const size_t step_bytes =
        runs_bytes(type, part_cols(type) / RUN) * STEP / part_cols(type);
    const __mmask16 m = first_lanes(n / cols);
    const int8_t *q = x->q + k;
    const unsigned char *far = p + ahead, *near = p + NEAR_BYTES;
    __m512 scale, min, f[TOKENS];

    /* otherwise gcc 12 keeps the address of each line, in vector registers */
    __asm__("" : "+r"(far), "+r"(near));
    part_scales(type, &scale, &min, p, n / cols);
    UNROLL
    for (int t = 0; t < T; t++) {
        const float *xs = x->scale + (size_t)t * x->ldg + k / RUN;
        const float *sum = x->sum + (size_t)t * x->lds + k / cols;

        if (cols == RUN)
            f[t] = _mm512_mul_ps(scale, _mm512_maskz_loadu_ps(m, xs));
        else /* each scale of activations belongs to two lanes */
            f[t] = _mm512_mul_ps(
                scale, _mm512_permutexvar_ps(
                           _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5,
                                             6, 6, 7, 7),
                           _mm512_castps256_ps512(_mm256_loadu_ps(xs))));
        s->min[t] =
            _mm512_fmadd_ps(min, _mm512_maskz_loadu_ps(m, sum), s->min[t]);
    }
    UNROLL
    for (size_t i = 0; i < part_cols(type) / STEP; i++) {
        const size_t left = n - i * STEP;
        __m512i a, b;

        if (n != part_cols(type) && i * STEP >= n)
            break;
        UNROLL
        for (size_t l = 0; l < 3; l++) { /* lines that begin in this step */
            const size_t line = 64 * ((i * step_bytes + 63) / 64 + l);

            if (line < (i + 1) * step_bytes)
                sweep_by(far + line, 0, to_l2);
            if (line < (i + 1) * step_bytes && to_l2)
                sweep_by(near + line, 0, false);
        }
        if (!is_super(type) && n != part_cols(type) && left < STEP)
            last_codes(type, &a, &b, p + i * step_bytes, left / RUN);
        else
            step_codes(type, &a, &b, p, i);
        add_step(type, s, a, b, q + i * STEP, x->ldq, f, i, T);
    }
}

/* Multiply a row of n columns by T tokens. */
INLINE void row512(enum dtype type, float *y, size_t ldy,
                   const unsigned char *w, const struct arranged *x, size_t n,
                   bool add, int T, size_t ahead, bool to_l2)
{
    const size_t part = part_cols(type);
    struct row_sums s;
    size_t k = 0;

    UNROLL
    for (int t = 0; t < T; t++)
        s.min[t] = s.a[t] = s.b[t] = _mm512_setzero_ps();
    for (; n - k >= part; k += part, w += runs_bytes(type, part / RUN))
        add_part(type, &s, w, x, k, part, T, ahead, to_l2);
    if (k < n)
        add_part(type, &s, w, x, k, n - k, T, ahead, to_l2);
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = y + (size_t)t * ldy;

        *to = row_sum(&s, t) + (add ? *to : 0);
    }
}

INLINE void rows512(enum dtype type, float *y, size_t ldy,
                    const unsigned char *w, size_t w_stride, size_t n_rows,
                    const struct arranged *x, size_t n, bool add, int T)
{
    const size_t ahead = kernel_sweep.ahead;

    if (kernel_sweep.to_l2)
        for (size_t r = 0; r < n_rows; r++)
            row512(type, y + r, ldy, w + r * w_stride, x, n, add, T, ahead,
                   true);
    else
        for (size_t r = 0; r < n_rows; r++)
            row512(type, y + r, ldy, w + r * w_stride, x, n, add, T, ahead,
                   false);
}

/* ---- kernels ------------------------------------------------------------ */

/* Arranged activations, and after them the sums of groups of 16. */
_Static_assert(TOKENS *(SEGMENT + SEGMENT / 16 * sizeof(float)) <=
                   KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Multiply all rows by T <= TOKENS tokens. */
INLINE void few512(enum dtype type, float *y, size_t ldy,
                   const unsigned char *w, size_t w_stride, const struct q8 *x,
                   size_t n_rows, size_t n_cols, bool add, int T, float *work)
{
    int8_t *q = (int8_t *)work;
    float *half = work + TOKENS * SEGMENT / sizeof *work;
    size_t cols;

    for (size_t k = 0; k < n_cols; k += cols) {
        cols = n_cols - k < SEGMENT ? n_cols - k : SEGMENT;
        const struct arranged at = {
            .q = q,
            .scale = x->scale + k / RUN,
            .sum = has_halves(type) ? half : x->sum + k / RUN,
            .ldq = SEGMENT,
            .ldg = x->ldg,
            .lds = has_halves(type) ? SEGMENT / 16 : x->ldg};

        for (size_t t = 0; t < (size_t)T; t++) {
            const int8_t *from = x->q + t * x->ldq + k;

            arrange(type, q + t * SEGMENT, from, cols);
            if (has_halves(type))
                sum_halves(half + t * at.lds, from, at.scale + t * at.ldg,
                           cols / RUN);
        }
        rows512(type, y, ldy, w, w_stride, n_rows, &at, cols, add || k > 0, T);
        w += runs_bytes(type, cols / RUN);
    }
}

#define FEW512(name, TYPE, few)                                                \
    static void k_gemm_q8_##name##_512(float *y, size_t ldy, const void *w,    \
                                       size_t w_stride, const struct q8 *x,    \
                                       size_t n_rows, size_t n_cols,           \
                                       size_t n_tokens, bool add, float *work) \
    {                                                                          \
        if (n_tokens == 1)                                                     \
            few(TYPE, y, ldy, w, w_stride, x, n_rows, n_cols, add, 1, work);   \
        else if (n_tokens == 2)                                                \
            few(TYPE, y, ldy, w, w_stride, x, n_rows, n_cols, add, 2, work);   \
        else if (n_tokens == 3)                                                \
            few(TYPE, y, ldy, w, w_stride, x, n_rows, n_cols, add, 3, work);   \
        else if (n_tokens == 4)                                                \
            few(TYPE, y, ldy, w, w_stride, x, n_rows, n_cols, add, 4, work);   \
        else                                                                   \
            k_gemm_q8_##name##_avx512(y, ldy, w, w_stride, x, n_rows, n_cols,  \
                                      n_tokens, add, work);                    \
    }

FEW512(q8_0, DT_Q8_0, stream_few)
FEW512(q4_0, DT_Q4_0, stream_few)
FEW512(q5_0, DT_Q5_0, few512)
FEW512(q4_k, DT_Q4_K, few512)
FEW512(q5_k, DT_Q5_K, few512)
FEW512(q6_k, DT_Q6_K, few512)

void k_blocks_avx512_init(struct kernels *k)
{
    enter_products(k);
    k->gemm_q8_blocks[DT_Q8_0 - DT_BLOCKS] = k_gemm_q8_q8_0_512;
    k->gemm_q8_blocks[DT_Q4_0 - DT_BLOCKS] = k_gemm_q8_q4_0_512;
    k->gemm_q8_blocks[DT_Q5_0 - DT_BLOCKS] = k_gemm_q8_q5_0_512;
    k->gemm_q8_blocks[DT_Q4_K - DT_BLOCKS] = k_gemm_q8_q4_k_512;
    k->gemm_q8_blocks[DT_Q5_K - DT_BLOCKS] = k_gemm_q8_q5_k_512;
    k->gemm_q8_blocks[DT_Q6_K - DT_BLOCKS] = k_gemm_q8_q6_k_512;
}
