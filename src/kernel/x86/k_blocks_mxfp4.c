/* Products of rows of MXFP4 with up to TOKENS tokens, for CPUs with AVX-512 and
 * byte permutations (VBMI). The results have the same bits as those of
 * k_blocks_fours.h, with fewer instructions: one permutation collects the codes
 * of four blocks, and one their scales. Tables of 64 bytes need no mask for
 * nibbles.
 *
 * A part of a row has 16 blocks, whose scales fill a vector. A step has four
 * blocks: 68 bytes. Its codes fill two vectors, one of the low nibbles and one
 * of the high ones, with a block in each quarter. So both have the same scales,
 * and their integer sums are added. Of the two vectors of sums, one is for even
 * and one for odd steps. */
#include <immintrin.h>

#include "kernel/x86/k_blocks_grid.h"

enum {
    BLOCK = sizeof(struct mxfp4),
    STEPS = 4, /* of a part */
    STEP_BLOCKS = 4,
    STEP_BYTES = STEP_BLOCKS * BLOCK,
    PART_BLOCKS = STEPS * STEP_BLOCKS,
    PART_BYTES = PART_BLOCKS * BLOCK
};

/* Activations of one token for a part: the scales of its blocks, their mins,
 * and the codes of all steps, those of low nibbles first. */
struct part_x {
    float scale[PART_BLOCKS], min[PART_BLOCKS];
    int8_t q[PART_BLOCKS * MX_GROUP];
};

_Static_assert(TOKENS *SEGMENT / MX_GROUP / PART_BLOCKS *
                       sizeof(struct part_x) <=
                   KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Arrange the activations of one token for a part of n blocks. The rest of the
 * part becomes zero. */
static void arrange(struct part_x *out, const int8_t *q, const float *scale,
                    const float *sum, size_t n)
{
    if (n < PART_BLOCKS)
        memset(out, 0, sizeof *out);
    for (size_t b = 0; b < n; b++, q += MX_GROUP) {
        int8_t *to = out->q + b / STEP_BLOCKS * 128 + b % STEP_BLOCKS * 16;

        out->scale[b] = scale[b];
        out->min[b] = sum[b] * (float)E2M1_OFFSET;
        memcpy(to, q, 16);
        memcpy(to + 64, q + 16, 16);
    }
}

/* ---- rows --------------------------------------------------------------- */

/* For each byte of a step's codes, in blocks' order, its place in the step. The
 * last four are beyond the vector, and come apart. */
#define FROM4(at) at, at + 1, at + 2, at + 3
#define FROM(b) \
    FROM4(b + 1), FROM4(b + 5), FROM4(b + 9), FROM4((b + 13) % 64)
_Alignas(64) static const unsigned char places[64] = {
    FROM(0), FROM(BLOCK), FROM(2 * BLOCK), FROM(3 * BLOCK)};

/* Return the codes of the step at p, whose first bytes are in v. */
INLINE __m512i step_codes(const unsigned char *p, __m512i v)
{
    const __m512i order = _mm512_load_si512(places);
    int last;

    memcpy(&last, p + STEP_BYTES - 4, 4);
    return _mm512_mask_set1_epi32(_mm512_permutexvar_epi8(order, v), 0x8000,
                                  last);
}

/* The scales of a part's blocks from its steps' first 64 bytes. */
INLINE __m512 part_scales(const __m512i v[STEPS])
{
    const __m512i at = _mm512_set1_epi32(
        BLOCK << 8 | 2 * BLOCK << 16 | 3 * BLOCK << 24);
    __m512i e = _mm512_permutexvar_epi8(at, v[0]);

    UNROLL
    for (int i = 1; i < STEPS; i++)
        e = _mm512_mask_permutexvar_epi8(e, 0xfull << 4 * i, at, v[i]);
    return e8m0_halves512(_mm512_castsi512_si128(e));
}

/* Add the products of a part at p and T tokens. The activations of token t are
 * ldx * t parts after those of token 0. */
INLINE void part_add(__m512 a[TOKENS], __m512 b[TOKENS], __m512 min[TOKENS],
                     const unsigned char *p, const struct part_x *x, size_t ldx,
                     int T, size_t ahead, bool to_l2)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_loadu_si128((const void *)e2m1_codes));
    __m512 scale, f[TOKENS];
    __m512i v[STEPS];

    UNROLL
    for (int i = 0; i < STEPS; i++)
        v[i] = _mm512_loadu_si512(p + STEP_BYTES * i);
    scale = part_scales(v);
    UNROLL
    for (int t = 0; t < T; t++) {
        const struct part_x *xt = x + (size_t)t * ldx;

        f[t] = _mm512_mul_ps(scale, _mm512_load_ps(xt->scale));
        min[t] = _mm512_fmadd_ps(scale, _mm512_load_ps(xt->min), min[t]);
    }
    UNROLL
    for (int i = 0; i < STEPS; i++) {
        const __m512i lanes = _mm512_add_epi32(
            _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
            _mm512_set1_epi32(STEP_BLOCKS * i));
        const __m512i q = step_codes(p + STEP_BYTES * i, v[i]);
        /* a permutation looks at six bits, and the table repeats */
        const __m512i low = _mm512_permutexvar_epi8(q, table);
        const __m512i high =
            _mm512_permutexvar_epi8(_mm512_srli_epi16(q, 4), table);

        sweep_by(p + 64 * i, ahead, to_l2);
        if (i == STEPS - 1)
            sweep_by(p + 64 * STEPS, ahead, to_l2);
        UNROLL
        for (int t = 0; t < T; t++) {
            const int8_t *xq = x[(size_t)t * ldx].q + 128 * i;
            __m512 *to = i % 2 ? &b[t] : &a[t];
            __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low,
                                              _mm512_load_si512(xq));

            sum = _mm512_dpbusd_epi32(sum, high, _mm512_load_si512(xq + 64));
            *to = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum),
                                  _mm512_permutexvar_ps(lanes, f[t]), *to);
        }
    }
}

/* Multiply a row of n blocks by T tokens. */
INLINE void row(float *y, size_t ldy, const unsigned char *w,
                const struct part_x *x, size_t ldx, size_t n, bool add, int T,
                bool to_l2)
{
    const size_t ahead = kernel_core.sweep_ahead;
    __m512 a[TOKENS], b[TOKENS], min[TOKENS];

    UNROLL
    for (int t = 0; t < T; t++)
        a[t] = b[t] = min[t] = _mm512_setzero_ps();
    for (; n >= PART_BLOCKS; n -= PART_BLOCKS, w += PART_BYTES, x++)
        part_add(a, b, min, w, x, ldx, T, ahead, to_l2);
    if (n > 0) {
        unsigned char copy[PART_BYTES] = {0};

        memcpy(copy, w, n * BLOCK);
        part_add(a, b, min, copy, x, ldx, T, 0, to_l2);
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = y + (size_t)t * ldy;

        *to = sum_lanes(fold16(
                  _mm512_sub_ps(_mm512_add_ps(a[t], b[t]), min[t]))) +
              (add ? *to : 0);
    }
}

INLINE void rows(float *y, size_t ldy, const unsigned char *w, size_t w_stride,
                 size_t n_rows, const struct part_x *x, size_t ldx, size_t n,
                 bool add, int T)
{
    WITH_FLAG(to_l2, kernel_core.sweep_l2,
              for (size_t r = 0; r < n_rows; r++) row(
                  y + r, ldy, w + r * w_stride, x, ldx, n, add, T, to_l2));
}

/* Multiply all rows by T tokens. */
INLINE void small_m(float *y, size_t ldy, const unsigned char *w,
                    size_t w_stride, const struct q8 *x, size_t n_rows,
                    size_t n_cols, bool add, int T, float *work)
{
    const size_t ldx = SEGMENT / MX_GROUP / PART_BLOCKS;
    struct part_x *out = (void *)work;
    size_t n;

    for (size_t c = 0; c < n_cols / MX_GROUP; c += n, w += n * BLOCK) {
        n = n_cols / MX_GROUP - c;
        n = n < SEGMENT / MX_GROUP ? n : SEGMENT / MX_GROUP;
        for (size_t t = 0; t < (size_t)T; t++)
            for (size_t i = 0; i < n; i += PART_BLOCKS) {
                const size_t g = t * x->ldg + c + i;

                arrange(out + t * ldx + i / PART_BLOCKS,
                        x->q + t * x->ldq + (c + i) * MX_GROUP, x->scale + g,
                        x->sum + g, n - i < PART_BLOCKS ? n - i : PART_BLOCKS);
            }
        rows(y, ldy, w, w_stride, n_rows, out, ldx, n, add || c > 0, T);
    }
}

static void k_gemm_q8_mxfp4_vbmi(float *y, size_t ldy, const void *w,
                                 size_t w_stride, const struct q8 *x,
                                 size_t n_rows, size_t n_cols, size_t n_tokens,
                                 bool add, float *work)
{
    if (n_tokens > TOKENS)
        kernels_get(ISA_AVX512)
            ->gemm_q8_blocks[DT_MXFP4 - DT_BLOCKS](y, ldy, w, w_stride, x,
                                                   n_rows, n_cols, n_tokens,
                                                   add, work);
    else if (n_tokens > 0)
        WITH_TOKENS(n_tokens, small_m(y, ldy, w, w_stride, x, n_rows, n_cols,
                                      add, T, work));
}

void k_blocks_mxfp4_init(struct kernels *k)
{
    k->gemm_q8_blocks[DT_MXFP4 - DT_BLOCKS] = k_gemm_q8_mxfp4_vbmi;
}
