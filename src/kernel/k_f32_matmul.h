/* matmul_f32, over the SIMD shim: f32 products of few tokens, always summed in
 * the same order. Included by k_f32.h.
 *
 * The order of sums: element k of a row belongs to partial sum k % 32. Each
 * partial sum adds its elements in ascending order. Then vec_sum_chains adds up
 * the 32 partial sums. Tiling decides only which products are computed side by
 * side, never that order.
 *
 * A level may define
 *
 *   MATMUL_ROWS_BF16(y, w, w_bytes, x, n_rows, n, work)
 *
 * It multiplies all bf16 rows by one token, in the same order, and returns
 * false when it does not support the size. */
#ifndef KERNEL_K_F32_MATMUL_H
#define KERNEL_K_F32_MATMUL_H

#if !defined KERNEL || !defined VEC_LANES || !defined MATMUL_CHAINS
#error "include a SIMD shim first: kernel/simd.h lists what it must define"
#endif

/* Number of partial sums, and of the vectors that hold them. */
enum { PARTIAL_SUMS = 32, CHAINS = PARTIAL_SUMS / VEC_LANES };

_Static_assert(CHAINS % MATMUL_CHAINS == 0, "whole passes");

/* Multiply one row by one token. The row is read in one sequential sweep, which
 * gives the most bandwidth. */
INLINE void dot_row(float *y, const char *w, const float *x, size_t n,
                    enum dtype type)
{
    const size_t bytes = type_bytes(type);
    vec a[4][CHAINS];
    size_t k = 0;

    UNROLL
    for (int c = 0; c < CHAINS; c++)
        a[0][c] = vec_zero();
    for (; n - k >= PARTIAL_SUMS; k += PARTIAL_SUMS) {
        const char *p = w + k * bytes;

        sweep(p);
        if (type == DT_F32)
            sweep(p + 64);
        UNROLL
        for (size_t c = 0; c < CHAINS; c++)
            a[0][c] =
                vec_fma(vec_load_as(p + VEC_LANES * c * bytes, VEC_LANES, type),
                        vec_load(x + k + VEC_LANES * c, VEC_LANES), a[0][c]);
    }
    UNROLL
    for (int c = 0; c < CHAINS; c++, k += VEC_LANES)
        if (k < n)
            a[0][c] = vec_fma(vec_load_as(w + k * bytes, n - k, type),
                              vec_load(x + k, n - k), a[0][c]);
    vec_sum_chains(y, a, 1);
}

/* Multiply all rows by one token. */
INLINE void rows_by_one(float *y, const char *w, size_t w_bytes, const float *x,
                        size_t n_rows, size_t n, enum dtype type, float *work)
{
    (void)work;
#ifdef MATMUL_ROWS_BF16
    if (type == DT_BF16 && MATMUL_ROWS_BF16(y, w, w_bytes, x, n_rows, n, work))
        return;
#endif
    for (size_t r = 0; r < n_rows; r++)
        dot_row(y + r, w + r * w_bytes, x, n, type);
}

/* Add the products of R rows of w and T tokens of x to a[c][r][t]. Each of the
 * MATMUL_CHAINS chains c takes VEC_LANES columns: all of them if `whole`,
 * otherwise only the first n columns count. */
INLINE void tile_step(vec a[MATMUL_CHAINS][4][3], const char *w, size_t w_bytes,
                      const float *x, size_t ldx, size_t n, bool whole, int R,
                      int T, enum dtype type)
{
    UNROLL
    for (size_t c = 0; c < MATMUL_CHAINS; c++) {
        const size_t at = VEC_LANES * c, left = whole ? VEC_LANES : n - at;
        vec xv[3];

        if (!whole && at >= n)
            continue;
        UNROLL
        for (int t = 0; t < T; t++)
            xv[t] = vec_load(x + (size_t)t * ldx + at, left);
        UNROLL
        for (int r = 0; r < R; r++) {
            const vec wv = vec_load_as(
                w + (size_t)r * w_bytes + at * type_bytes(type), left, type);

            UNROLL
            for (int t = 0; t < T; t++)
                a[c][r][t] = vec_fma(wv, xv[t], a[c][r][t]);
        }
    }
}

/* Multiply R rows of w (4 or 1) by T tokens (1 to 3). Each pass takes
 * MATMUL_CHAINS chains through all columns, so that the accumulators fit the
 * registers. Later passes find their operands in the cache. next: the rows of
 * the next tile, which this one prefetches; or NULL. */
INLINE void tile(float *y, size_t ldy, const char *w, size_t w_bytes,
                 const float *x, size_t ldx, size_t n, int R, int T,
                 enum dtype type, const char *next)
{
    const size_t bytes = type_bytes(type), step = VEC_LANES * MATMUL_CHAINS;
    vec sums[3][4][CHAINS];

    for (size_t pass = 0; pass < CHAINS; pass += MATMUL_CHAINS) {
        vec a[MATMUL_CHAINS][4][3];
        size_t k = VEC_LANES * pass;

        UNROLL
        for (int c = 0; c < MATMUL_CHAINS; c++) {
            UNROLL
            for (int r = 0; r < R; r++) {
                UNROLL
                for (int t = 0; t < T; t++)
                    a[c][r][t] = vec_zero();
            }
        }
        for (; k + step <= n; k += PARTIAL_SUMS) {
            if (next) {
                UNROLL
                for (size_t i = 0; i < (size_t)R * step * bytes; i += 64)
                    prefetch_near(next + i);
                next += (size_t)R * step * bytes;
            }
            tile_step(a, w + k * bytes, w_bytes, x + k, ldx, step, true, R, T,
                      type);
        }
        if (k < n)
            tile_step(a, w + k * bytes, w_bytes, x + k, ldx, n - k, false, R, T,
                      type);
        UNROLL
        for (int t = 0; t < T; t++) {
            UNROLL
            for (int r = 0; r < R; r++) {
                UNROLL
                for (size_t c = 0; c < MATMUL_CHAINS; c++)
                    sums[t][r][pass + c] = a[c][r][t];
            }
        }
    }
    UNROLL
    for (int t = 0; t < T; t++)
        vec_sum_chains(y + (size_t)t * ldy, sums[t], R);
}

/* ---- tiles -------------------------------------------------------------- */

/* Bytes of a block of rows that is used more than once. For up to L1_MAX_TOKENS
 * tokens memory is the limit, and a block of BLOCK_L1 stays in L1. For more
 * tokens, a block of BLOCK_L2 stays in L2. */
enum { L1_MAX_TOKENS = 9, BLOCK_L1 = 16 << 10, BLOCK_L2 = 128 << 10 };

/* Multiply all rows by T tokens. */
INLINE void tile_rows(float *y, size_t ldy, const char *w, size_t w_bytes,
                      const float *x, size_t ldx, size_t n_rows, size_t n,
                      int T, enum dtype type, bool prefetch)
{
    size_t r = 0;

    for (; r + 4 <= n_rows; r += 4)
        tile(y + r, ldy, w + r * w_bytes, w_bytes, x, ldx, n, 4, T, type,
             prefetch ? w + (r + 4) * w_bytes : NULL);
    for (; r < n_rows; r++)
        tile(y + r, ldy, w + r * w_bytes, w_bytes, x, ldx, n, 1, T, type, NULL);
}

INLINE void matmul(float *y, size_t ldy, const char *w, size_t w_stride,
                   const float *x, size_t ldx, size_t n_rows, size_t n_cols,
                   size_t n_tokens, enum dtype type, float *work)
{
    const size_t w_bytes = w_stride * type_bytes(type);
    size_t block = n_rows;

    if (n_tokens > 3) {
        block = (n_tokens > L1_MAX_TOKENS ? BLOCK_L2 : BLOCK_L1) /
                (n_cols * type_bytes(type) + 1);
        block = block < 4 ? 4 : block & ~(size_t)3;
    }
    for (size_t r = 0; r < n_rows; r += block) {
        size_t nr = n_rows - r < block ? n_rows - r : block, t = 0;
        const char *wr = w + r * w_bytes;

        /* three tokens at a time; the last four as two and two */
        for (; n_tokens - t >= 3 && n_tokens - t != 4; t += 3) {
            if (t == 0)
                tile_rows(y + r, ldy, wr, w_bytes, x, ldx, nr, n_cols, 3, type,
                          true);
            else
                tile_rows(y + t * ldy + r, ldy, wr, w_bytes, x + t * ldx, ldx,
                          nr, n_cols, 3, type, false);
        }
        for (; n_tokens - t >= 2; t += 2)
            tile_rows(y + t * ldy + r, ldy, wr, w_bytes, x + t * ldx, ldx, nr,
                      n_cols, 2, type, t == 0);
        if (n_tokens - t == 1)
            rows_by_one(y + t * ldy + r, wr, w_bytes, x + t * ldx, nr, n_cols,
                        type, work);
    }
}

#define MATMUL(name, type)                                                    \
    static void KERNEL(matmul_f32_##name)(                                    \
        float *y, size_t ldy, const void *w, size_t w_stride, const float *x, \
        size_t ldx, size_t n_rows, size_t n_cols, size_t n_tokens,            \
        float *work)                                                          \
    {                                                                         \
        matmul(y, ldy, w, w_stride, x, ldx, n_rows, n_cols, n_tokens, type,   \
               work);                                                         \
    }

MATMUL(f32, DT_F32)
MATMUL(f16, DT_F16)
MATMUL(bf16, DT_BF16)

#endif
