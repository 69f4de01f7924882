/* gemm_f32, over the SIMD shim: f32 products of many tokens, C = A * B^T,
 * blocked and packed as in Goto and van de Geijn (Anatomy of High-Performance
 * Matrix Multiplication, 2008). Included by k_f32.h.
 *
 * Weights (B) are widened while they are packed into panels of GEMM_NR rows.
 * The inner kernel keeps one panel in L1. Rows of A are read in place, in
 * blocks that fit L2.
 *
 * A level may define GEMM_SMALL_M, a number of rows of A, and a function that
 * multiplies up to that many rows, with the parameters of gemm below:
 *
 *   gemm_small(c, ldc, a, lda, b, ldb, m, n, k, work, type)
 *
 * k_f32_attn_tile.h also uses gemm_pack and gemm_micro. */
#ifndef KERNEL_K_F32_GEMM_H
#define KERNEL_K_F32_GEMM_H

#if !defined KERNEL || !defined VEC_LANES || !defined GEMM_MR || \
    !defined GEMM_MID
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

/* NR: rows of b in a panel. KC: columns of a and b in a block. NC: rows of b
 * that are packed at a time. MC: rows of a that are multiplied by the packed
 * rows at a time. */
enum {
    GEMM_NR = 2 * VEC_LANES,
    GEMM_KC = 256,
    GEMM_NC = GEMM_F32_ROWS,
    GEMM_MC = 48
};

_Static_assert(GEMM_MC % GEMM_MR == 0 && GEMM_NC % GEMM_NR == 0, "whole tiles");
_Static_assert(GEMM_NR % 8 == 0, "pack_8x8");
_Static_assert(GEMM_NC *GEMM_KC <= KERNEL_WORK, "the caller's memory");

/* Fetch the part of a row of c that gemm_micro adds to or overwrites. */
INLINE void gemm_fetch(const float *c, size_t nr)
{
    nr = nr < GEMM_NR ? nr : GEMM_NR;
    for (size_t j = 0; j < nr; j += 16)
        prefetch_near(c + j);
    prefetch_near(c + nr - 1);
}

/* Multiply R rows of a by a panel of kc columns, of which only the first nr
 * rows count. Adds to c, or overwrites c if `first`. */
INLINE void gemm_micro(float *c, size_t ldc, const float *a, size_t lda,
                       const float *panel, size_t kc, size_t nr, int R,
                       bool first)
{
    vec s[GEMM_MR][2];

    UNROLL
    for (int i = 0; i < R; i++) {
        s[i][0] = s[i][1] = vec_zero();
        gemm_fetch(c + (size_t)i * ldc, nr);
    }
    UNROLL_SOME
    for (size_t p = 0; p < kc; p++) {
        const vec b0 = vec_load(panel + p * GEMM_NR, VEC_LANES);
        const vec b1 = vec_load(panel + p * GEMM_NR + VEC_LANES, VEC_LANES);

        UNROLL
        for (int i = 0; i < R; i++) {
            const vec av = vec_set1(a[(size_t)i * lda + p]);

            s[i][0] = vec_fma(av, b0, s[i][0]);
            s[i][1] = vec_fma(av, b1, s[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < R; i++) {
        UNROLL
        for (size_t h = 0; h < 2; h++) {
            float *to = c + (size_t)i * ldc + VEC_LANES * h;

            if (nr <= VEC_LANES * h)
                continue;
            if (!first)
                s[i][h] += vec_load(to, nr - VEC_LANES * h);
            vec_store(to, s[i][h], nr - VEC_LANES * h);
        }
    }
}

/* Pack kc columns of nc rows of b into panels of GEMM_NR rows, with zeros
 * beyond nc: out[panel][column][GEMM_NR]. Rows of b are `stride` bytes
 * apart. */
INLINE void gemm_pack(float *out, const char *b, size_t stride, size_t nc,
                      size_t kc, enum dtype type)
{
    const size_t bytes = type_bytes(type);

    for (size_t j0 = 0; j0 < (nc + GEMM_NR - 1) / GEMM_NR * GEMM_NR; j0 += 8) {
        float *o = out + j0 / GEMM_NR * GEMM_NR * kc + j0 % GEMM_NR;
        const char *rows = b + j0 * stride;
        size_t p0 = 0;

        for (; type == DT_BF16 && j0 + 8 <= nc && kc - p0 >= 16; p0 += 16) {
            if (p0 % 32 == 0) {
                UNROLL
                for (size_t j = 0; j < 8; j++)
                    prefetch_near(rows + (8 + j) * stride + 2 * p0);
            }
            pack_8x16_bf16(o + p0 * GEMM_NR, GEMM_NR, rows + 2 * p0, stride);
        }
        for (; p0 < kc; p0 += 8)
            pack_8x8(o + p0 * GEMM_NR, GEMM_NR, rows + p0 * bytes, stride,
                     nc < j0 ? 0 : nc - j0, kc - p0, type);
    }
}

/* Multiply all groups of R rows of a, starting at row i, by one panel, which
 * stays in L1. Returns the first row that is left. */
INLINE size_t gemm_rows(float *c, size_t ldc, const float *a, size_t lda,
                        const float *panel, size_t i, size_t mc, size_t kc,
                        size_t nr, int R, bool first)
{
    for (; i + (size_t)R <= mc; i += (size_t)R)
        gemm_micro(c + i * ldc, ldc, a + i * lda, lda, panel, kc, nr, R, first);
    return i;
}

/* Multiply mc rows of a by nc packed rows of b. */
static void gemm_block(float *c, size_t ldc, const float *a, size_t lda,
                       const float *pack, size_t mc, size_t nc, size_t kc,
                       bool first)
{
    for (size_t j = 0; j < nc; j += GEMM_NR) {
        const float *panel = pack + j * kc;
        size_t i = 0;

        i = gemm_rows(c + j, ldc, a, lda, panel, i, mc, kc, nc - j, GEMM_MR,
                      first);
        i = gemm_rows(c + j, ldc, a, lda, panel, i, mc, kc, nc - j, GEMM_MID,
                      first);
        gemm_rows(c + j, ldc, a, lda, panel, i, mc, kc, nc - j, 1, first);
    }
}

INLINE void gemm(float *c, size_t ldc, const float *a, size_t lda,
                 const char *b, size_t ldb, size_t m, size_t n, size_t k,
                 float *work, enum dtype type)
{
    const size_t bytes = type_bytes(type);

    for (size_t i = 0; k == 0 && i < m; i++)
        memset(c + i * ldc, 0, n * sizeof *c);
#ifdef GEMM_SMALL_M
    if (m > 0 && m <= GEMM_SMALL_M) {
        gemm_small(c, ldc, a, lda, b, ldb, m, n, k, work, type);
        return;
    }
#endif
    for (size_t j0 = 0; j0 < n; j0 += GEMM_NC) {
        size_t nc = n - j0 < GEMM_NC ? n - j0 : GEMM_NC;

        for (size_t p0 = 0; p0 < k; p0 += GEMM_KC) {
            size_t kc = k - p0 < GEMM_KC ? k - p0 : GEMM_KC;

            gemm_pack(work, b + (j0 * ldb + p0) * bytes, ldb * bytes, nc, kc,
                      type);
            for (size_t i0 = 0; i0 < m; i0 += GEMM_MC) {
                size_t mc = m - i0 < GEMM_MC ? m - i0 : GEMM_MC;

                gemm_block(c + i0 * ldc + j0, ldc, a + i0 * lda + p0, lda, work,
                           mc, nc, kc, p0 == 0);
            }
        }
    }
}

#define GEMM(name, type)                                                 \
    static void KERNEL(gemm_f32_##name)(                                 \
        float *c, size_t ldc, const float *a, size_t lda, const void *b, \
        size_t ldb, size_t m, size_t n, size_t k, float *work)           \
    {                                                                    \
        gemm(c, ldc, a, lda, b, ldb, m, n, k, work, type);               \
    }

GEMM(f32, DT_F32)
GEMM(f16, DT_F16)
GEMM(bf16, DT_BF16)

#endif
