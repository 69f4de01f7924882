/* gemm_f32 for a few rows of A, as batches and short prompts have: too many
 * rows for matmul_f32 (k_f32_matmul.h), and too few to pay for packing panels
 * (k_f32_gemm.h). Included by k_avx2.c.
 *
 * A is transposed first, so that a vector holds one column of eight rows of A.
 * It is multiplied by one weight after the other, each broadcast to all lanes,
 * so no sum crosses lanes. Two such vectors share each broadcast: a single one
 * would need more loads than multiply-adds.
 *
 * Weights are widened into a block that stays in L1. While one block is
 * multiplied, the next one is widened. Its weights come from L2: prefetches run
 * a tile and a half ahead, in the order of memory.
 *
 * The level defines GEMM_SMALL_M, the maximum number of rows of A: a multiple
 * of 8. */
#ifndef KERNEL_X86_K_GEMM_SMALL_H
#define KERNEL_X86_K_GEMM_SMALL_H

#ifndef GEMM_SMALL_M
#error "define GEMM_SMALL_M, the most rows of A"
#endif

#include "kernel/x86/k_avx.h"

_Static_assert(GEMM_SMALL_M % 8 == 0, "whole vectors");

/* Rows of b in a tile, columns of a block, and columns of a step. */
enum { SMALL_NR = 12, SMALL_KC = 128, SMALL_STEP = 16 };

/* Widen 16 weights, in the order that is cheapest for the type: for bf16,
 * columns 0 to 3 and 8 to 11 come first. */
INLINE void small_widen16(float *out, const char *w, enum dtype type)
{
    __m256i h;

    if (type != DT_BF16) {
        _mm256_store_ps(out, load8_all(w, type));
        _mm256_store_ps(out + 8, load8_all(w + 8 * type_bytes(type), type));
        return;
    }
    h = _mm256_loadu_si256((const __m256i_u *)(const void *)w);
    _mm256_store_si256((__m256i *)(void *)out,
                       _mm256_unpacklo_epi16(_mm256_setzero_si256(), h));
    _mm256_store_si256((__m256i *)(void *)(out + 8),
                       _mm256_unpackhi_epi16(_mm256_setzero_si256(), h));
}

/* Load half i (0 or 1) of 16 columns of a, in the order of small_widen16. */
INLINE __m256 small_load(const float *a, size_t i, enum dtype type)
{
    if (type != DT_BF16)
        return _mm256_loadu_ps(a + 8 * i);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a + 4 * i)),
                                _mm_loadu_ps(a + 4 * i + 8), 1);
}

/* Load half i of the last n < 16 columns, in their own order, followed by
 * zeros. */
INLINE __m256 small_load_part(const char *p, size_t n, size_t i,
                              enum dtype type)
{
    const char *half = p + 8 * i * type_bytes(type);

    return n > 8 * i ? load8(half, n - 8 * i, type) : _mm256_setzero_ps();
}

/* Transpose m rows of a with k columns each: out[column][row]. Rows are filled
 * up with zeros to a multiple of 8, columns to whole steps. */
static void small_transpose(float *out, const float *a, size_t lda, size_t m,
                            size_t k, enum dtype type)
{
    const size_t lanes = (m + 7) / 8 * 8;

    for (size_t t = 0; t < m; t += 8) {
        for (size_t p = 0; p < k; p += SMALL_STEP) {
            const size_t n = k - p;

            UNROLL
            for (size_t i = 0; i < 2; i++) {
                __m256 v[8];

                for (size_t j = 0; j < 8; j++) {
                    const float *row = a + (t + j) * lda + p;

                    v[j] =
                        t + j >= m ? _mm256_setzero_ps()
                        : n >= SMALL_STEP
                            ? small_load(row, i, type)
                            : small_load_part((const char *)row, n, i, DT_F32);
                }
                store_transposed8(out + (p + 8 * i) * lanes + t, lanes, v, 8);
            }
        }
    }
}

/* A block of weights: `rows` rows, at most SMALL_NR, of n columns. */
struct small_block {
    const char *b;
    size_t rows, n;
};

/* Widen step s of a block. The last row is repeated in place of missing
 * rows. */
INLINE void small_widen(float *out, const struct small_block *w, size_t stride,
                        size_t s, enum dtype type)
{
    const size_t at = s * SMALL_STEP, bytes = type_bytes(type);

    UNROLL
    for (size_t r = 0; r < SMALL_NR; r++) {
        const char *row = w->b + (r < w->rows ? r : w->rows - 1) * stride;
        float *to = out + r * SMALL_KC + at;

        row += at * bytes;
        if (w->n - at >= SMALL_STEP) {
            small_widen16(to, row, type);
        } else {
            _mm256_store_ps(to, small_load_part(row, w->n - at, 0, type));
            _mm256_store_ps(to + 8, small_load_part(row, w->n - at, 1, type));
        }
    }
}

/* Transpose the sums of eight rows of a, of which m exist. Stores them in c if
 * `first`, otherwise adds them to c. */
INLINE void small_store(float *c, size_t ldc, const __m256 *sums, size_t rows,
                        size_t m, bool first)
{
    for (size_t r = 0; r < rows; r += 8) {
        const size_t n = rows - r < 8 ? rows - r : 8;
        const __m256i mask = first_lanes8(n);
        __m256 v[8];

        UNROLL
        for (size_t j = 0; j < 8; j++)
            v[j] = r + j < SMALL_NR ? sums[r + j] : _mm256_setzero_ps();
        transpose8(v);
        UNROLL
        for (size_t t = 0; t < 8; t++) {
            float *to = c + t * ldc + r;

            if (t >= m)
                continue;
            if (!first)
                v[t] = _mm256_add_ps(v[t], _mm256_maskload_ps(to, mask));
            _mm256_maskstore_ps(to, mask, v[t]);
        }
    }
}

/* Work that is interleaved with a product. */
struct small_beside {
    /* Prefetches: in each of `every` passes over a block, each step fetches its
       share of `lines` lines. The next line is at byte `at` of the current row.
       After `width` bytes of a row follows the next row. */
    const char *row;
    size_t at, width, stride, lines, every, due;
    /* Widening: the steps of the next block, from number `widened` on, go to
     * out. */
    struct small_block next;
    float *out;
    size_t widened;
};

INLINE void small_fetch(struct small_beside *o)
{
    for (o->due += o->lines; o->due >= o->every; o->due -= o->every) {
        _mm_prefetch(o->row + o->at, _MM_HINT_T1);
        o->at += 64;
        if (o->at >= o->width) {
            o->at = 0;
            o->row += o->stride;
        }
    }
}

INLINE void small_widen_step(struct small_beside *o, enum dtype type)
{
    if (o->widened * SMALL_STEP < o->next.n)
        small_widen(o->out, &o->next, o->stride, o->widened++, type);
}

/* Add the products of R rows of weights and V vectors of x to sums, for a block
 * of n columns. */
INLINE void small_multiply(__m256 *sums, const float *x, size_t lanes,
                           const float *w, size_t n, int R, int V, bool widen,
                           struct small_beside *o, enum dtype type)
{
    __m256 a[SMALL_NR][2];

    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < V; v++)
            a[r][v] = sums[v * SMALL_NR + r];
    }
    for (size_t k = 0; k < n; k += SMALL_STEP) {
        if (widen)
            small_widen_step(o, type);
        small_fetch(o);
        UNROLL_SOME
        for (size_t j = 0; j < SMALL_STEP; j++, x += lanes) {
            const __m256 x0 = _mm256_load_ps(x);
            const __m256 x1 =
                V == 2 ? _mm256_load_ps(x + 8) : _mm256_setzero_ps();

            UNROLL
            for (int r = 0; r < R; r++) {
                const __m256 wv = _mm256_broadcast_ss(w + r * SMALL_KC + k + j);

                a[r][0] = _mm256_fmadd_ps(wv, x0, a[r][0]);
                if (V == 2)
                    a[r][1] = _mm256_fmadd_ps(wv, x1, a[r][1]);
            }
        }
    }
    UNROLL
    for (int r = 0; r < R; r++) {
        UNROLL
        for (int v = 0; v < V; v++)
            sums[v * SMALL_NR + r] = a[r][v];
    }
}

/* Multiply m transposed rows of a, of k columns, by n rows of b. */
INLINE void small_rows(float *c, size_t ldc, const float *at, size_t m,
                       const char *b, size_t stride, size_t n, size_t k,
                       bool first, enum dtype type)
{
    const size_t vectors = (m + 7) / 8, lanes = 8 * vectors;
    const size_t bytes = type_bytes(type);
    _Alignas(64) float blocks[2][SMALL_NR * SMALL_KC];
    __m256 sums[GEMM_SMALL_M / 8 * SMALL_NR];
    struct small_block w = {b, n < SMALL_NR ? n : SMALL_NR,
                            k < SMALL_KC ? k : SMALL_KC};
    struct small_beside o = {
        .row = b + SMALL_NR * 3 / 2 * stride,
        .width = k * bytes,
        .stride = stride,
        .lines = SMALL_NR * SMALL_STEP * bytes / 64,
        .every = vectors,
        .next = w,
        .out = blocks[0],
    };
    size_t r = 0, p = 0;

    for (size_t s = 0; s * SMALL_STEP < w.n; s++)
        small_widen_step(&o, type);
    for (size_t i = 1; r < n; i++) {
        const float *block = blocks[(i + 1) % 2];
        size_t next_r = r, next_p = p + w.n;

        if (next_p == k) {
            next_p = 0;
            next_r += w.rows;
            o.next.rows = n - next_r < SMALL_NR ? n - next_r : SMALL_NR;
        }
        o.next.b = b + next_r * stride + next_p * bytes;
        o.next.n = next_r == n             ? 0
                   : k - next_p < SMALL_KC ? k - next_p
                                           : SMALL_KC;
        o.out = blocks[i % 2];
        o.widened = 0;
        if (p == 0)
            memset(sums, 0, sizeof sums);
        for (size_t v = 0; v < vectors; v += 2) {
            const float *x = at + p * lanes + 8 * v;

            if (v + 1 == vectors) {
                small_multiply(sums + v * SMALL_NR, x, lanes, block, w.n,
                               SMALL_NR, 1, v == 0, &o, type);
                continue;
            }
            for (size_t half = 0; half < SMALL_NR; half += SMALL_NR / 2)
                small_multiply(sums + v * SMALL_NR + half, x, lanes,
                               block + half * SMALL_KC, w.n, SMALL_NR / 2, 2,
                               v + half == 0, &o, type);
        }
        while (o.widened * SMALL_STEP < o.next.n)
            small_widen_step(&o, type);
        for (size_t v = 0; v < vectors && next_r != r; v++)
            small_store(c + 8 * v * ldc + r, ldc, sums + v * SMALL_NR, w.rows,
                        m - 8 * v, first);
        w = o.next;
        r = next_r;
        p = next_p;
    }
}

/* Compute C = A * B^T for m <= GEMM_SMALL_M. */
INLINE void gemm_small(float *c, size_t ldc, const float *a, size_t lda,
                       const char *b, size_t ldb, size_t m, size_t n, size_t k,
                       float *work, enum dtype type)
{
    const size_t bytes = type_bytes(type), lanes = (m + 7) / 8 * 8;
    const size_t most = KERNEL_WORK / lanes / SMALL_KC * SMALL_KC;
    const size_t parts = k > most ? (k + most - 1) / most : 1;
    /* parts of equal length, made of whole blocks */
    const size_t part =
        (k + parts * SMALL_KC - 1) / (parts * SMALL_KC) * SMALL_KC;

    for (size_t p = 0; p < k && n > 0; p += part) {
        const size_t kc = k - p < part ? k - p : part;

        small_transpose(work, a + p, lda, m, kc, type);
        small_rows(c, ldc, work, m, b + p * bytes, ldb * bytes, n, kc, p == 0,
                   type);
    }
}

#endif
