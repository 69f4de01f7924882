/* Prefill's product in f32, C = A * B^T, without BLAS: blocked and packed as
 * Goto and van de Geijn do (Anatomy of High-Performance Matrix Multiplication,
 * 2008), for k_avx2.c and k_avx512.c.
 *
 * Weights (b) are widened on their way to panels of GEMM_NR rows, of which the
 * inner kernel keeps one in L1; rows of a are read where they are, as many at a
 * time as L2 keeps.
 *
 * Included once, after k_avx.h and
 *
 *   GEMM_MR, _MID   rows of a that meet a panel at a time, and the rest's
 *   GEMM_NR         rows of b in a panel
 *   GEMM_FEW        rows of a up to which k_sgemm_few.h is taken; may be
 *                   undefined
 *   load8(p, type), load8_part(p, n, type)
 *                   eight elements from any address, widened; or the first n,
 *                   zeros above
 *   gemm_micro(c, ldc, a, lda, panel, kc, nr, R, first)
 *                   R rows of a by one panel, of which nr rows count; added to
 *                   c unless first
 */
#ifndef KERNEL_K_SGEMM_H
#define KERNEL_K_SGEMM_H

/* Columns of a and b, rows of b that are packed, and rows of a that meet them
 * at a time. */
enum { GEMM_KC = 256, GEMM_NC = SGEMM_ROWS, GEMM_MC = 48 };

_Static_assert(GEMM_MC % GEMM_MR == 0 && GEMM_NC % GEMM_NR == 0, "whole tiles");
_Static_assert(GEMM_NC *GEMM_KC <= KERNEL_WORK, "the caller's memory");

INLINE void gemm_micro(float *c, size_t ldc, const float *a, size_t lda,
                       const float *panel, size_t kc, size_t nr, int R,
                       bool first);

/* Fetch what gemm_micro adds to or overwrites of a row of c. */
INLINE void gemm_fetch(const float *c, size_t nr)
{
    nr = nr < GEMM_NR ? nr : GEMM_NR;
    for (size_t j = 0; j < nr; j += 16)
        _mm_prefetch((const char *)(c + j), _MM_HINT_T0);
    _mm_prefetch((const char *)(c + nr - 1), _MM_HINT_T0);
}

/* Eight rows of b, 16 columns, from p on: out[k * GEMM_NR + row]. Pairs of bf16
 * are transposed as they are and widened behind it. */
INLINE void gemm_pack_pairs(float *out, const char *b, size_t stride)
{
    const __m256 high = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000));
    __m256 v[8];

    UNROLL
    for (size_t j = 0; j < 8; j++)
        v[j] = load8(b + j * stride, DT_F32);
    transpose8(v);
    UNROLL
    for (size_t p = 0; p < 8; p++) {
        __m256i even = _mm256_slli_epi32(_mm256_castps_si256(v[p]), 16);

        _mm256_store_ps(out + 2 * p * GEMM_NR, _mm256_castsi256_ps(even));
        _mm256_store_ps(out + (2 * p + 1) * GEMM_NR, _mm256_and_ps(v[p], high));
    }
}

/* nc rows of b, stride bytes apart, kc columns of each, to panels of GEMM_NR
 * rows, zeros beyond nc: out[panel][column][GEMM_NR]. */
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
                    _mm_prefetch(rows + (8 + j) * stride + 2 * p0, _MM_HINT_T0);
            }
            gemm_pack_pairs(o + p0 * GEMM_NR, rows + 2 * p0, stride);
        }
        for (; p0 < kc; p0 += 8) {
            size_t np = kc - p0 < 8 ? kc - p0 : 8;
            __m256 v[8];

            UNROLL
            for (size_t j = 0; j < 8; j++) {
                const char *at = rows + j * stride + p0 * bytes;

                v[j] = j0 + j >= nc ? _mm256_setzero_ps()
                       : np == 8    ? load8(at, type)
                                    : load8_part(at, np, type);
            }
            store_transposed8(o + p0 * GEMM_NR, GEMM_NR, v, np);
        }
    }
}

/* R rows of a by all panels from row i on, as long as there are so many; the
 * panel stays in L1 meanwhile. Returns the first row that is left. */
INLINE size_t gemm_rows(float *c, size_t ldc, const float *a, size_t lda,
                        const float *panel, size_t i, size_t mc, size_t kc,
                        size_t nr, int R, bool first)
{
    for (; i + (size_t)R <= mc; i += (size_t)R)
        gemm_micro(c + i * ldc, ldc, a + i * lda, lda, panel, kc, nr, R, first);
    return i;
}

/* mc rows of a by packed rows of b. */
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

#ifdef GEMM_FEW
#include "kernel/x86/k_sgemm_few.h"
#endif

INLINE void sgemm_nt(float *c, size_t ldc, const float *a, size_t lda,
                     const char *b, size_t ldb, size_t m, size_t n, size_t k,
                     float *work, enum dtype type)
{
    const size_t bytes = type_bytes(type);

    for (size_t i = 0; k == 0 && i < m; i++)
        memset(c + i * ldc, 0, n * sizeof *c);
#ifdef GEMM_FEW
    if (m > 0 && m <= GEMM_FEW) {
        sgemm_few(c, ldc, a, lda, b, ldb, m, n, k, work, type);
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

#define SGEMM_NT(name, type)                                             \
    static void KERNEL(sgemm_nt_##name)(                                 \
        float *c, size_t ldc, const float *a, size_t lda, const void *b, \
        size_t ldb, size_t m, size_t n, size_t k, float *work)           \
    {                                                                    \
        sgemm_nt(c, ldc, a, lda, b, ldb, m, n, k, work, type);           \
    }

SGEMM_NT(f32, DT_F32)
SGEMM_NT(f16, DT_F16)
SGEMM_NT(bf16, DT_BF16)

#endif
