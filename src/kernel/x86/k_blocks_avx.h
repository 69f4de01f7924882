/* Products of GGUF's blocks and int8 activations in 256-bit vectors, for
 * k_blocks_avx2.c, k_blocks_avxvnni.c and k_blocks_avx512.c. Each of these
 * files first defines:
 *
 *   KERNEL(name)        the level's name of a kernel
 *   LEVEL               the level whose gemm_q8_affine long prefills use
 *   add_fours(s, w, x)  s + products of unsigned and signed bytes, four of
 *                       them added in each 32-bit lane
 *
 * A run is 32 elements. With few tokens, each row is multiplied with lanes
 * along the row: the integer sums of a run become floats and are scaled. With
 * many tokens, rows are expanded to bytes first. Types with one scale for each
 * run then use the affine product, with codes of 8 bits and with scales and
 * biases in f32. Types with a scale for each group of 16 elements multiply a
 * panel of rows, with lanes across rows. */
#ifndef KERNEL_X86_K_BLOCKS_AVX_H
#define KERNEL_X86_K_BLOCKS_AVX_H

#if !defined KERNEL || !defined LEVEL
#error "define KERNEL(name) and LEVEL first"
#endif

#include "kernel/x86/k_blocks_codes.h"

enum {
    /* tokens by which a row is multiplied at once */
    TOKENS = 4,
    /* from these numbers of tokens on, rows are expanded: of types with scales
       for 16 elements, and of other types. The products of expanded rows are
       slow without VNNI (k_q8_avx.h). */
    MANY_HALVES = 6,
    MANY_TOKENS = LEVEL == ISA_AVX2 ? 33 : 13,
    /* the others are expanded WIDE_ROWS rows and WIDE_COLS columns at a time */
    WIDE_ROWS = GEMM_Q8_ROWS,
    WIDE_COLS = 1024,
    /* with fewer tokens, rows are cut into segments of this many columns; the
       caller's memory holds the sums of each group of 16 activations */
    SEGMENT = 16384,
    /* bytes of rows that stay in L2 for all tokens; used for more than TOKENS
       tokens */
    ROWS_BYTES = 256 << 10
};

_Static_assert(MANY_HALVES *SEGMENT / 16 <= KERNEL_WORK, "the caller's memory");

/* A product of all rows: the arguments of gemm_q8_blocks. */
struct product {
    float *y;
    size_t ldy;
    const unsigned char *w;
    size_t w_stride;
    const struct q8 *x;
    size_t n_rows, n_cols, n_tokens;
    bool add;
    float *work;
};

/* ---- a few tokens ------------------------------------------------------- */

/* Activations of some tokens, starting at a column. */
struct tokens {
    const int8_t *q;
    const float *scale, *sum; /* for each group of 32 */
    const float *halves;      /* sums of each group of 16 */
    size_t ldq, ldg, ldh;
};

INLINE __m256i dot_run(enum dtype type, __m256i w, __m256i x)
{
    const __m256i zero = _mm256_setzero_si256();

    return is_signed(type)
               ? add_fours(zero, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
               : add_fours(zero, w, x);
}

/* Load the first n <= 8 floats, with zeros in the other lanes. */
INLINE __m256 first8(const float *p, size_t n)
{
    return n == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first_lanes8(n));
}

/* Subtract the mins times the sums of activations from acc. */
INLINE __m256 add_mins(enum dtype type, __m256 acc, const struct scales *s,
                       const float *sum, const float *half, size_t n)
{
    if (has_halves(type)) {
        acc = _mm256_fnmadd_ps(s->min[0], _mm256_loadu_ps(half), acc);
        return _mm256_fnmadd_ps(s->min[1], _mm256_loadu_ps(half + 8), acc);
    }
    return _mm256_fnmadd_ps(s->min[0], first8(sum, n), acc);
}

/* Return the scales of the weights of run r, each in the lanes of its sums. */
INLINE __m256 lane_scales(const struct scales *s, size_t r)
{
    const __m256i pair = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);

    return _mm256_permutevar8x32_ps(
        s->scale[r / 4],
        _mm256_add_epi32(pair, _mm256_set1_epi32((int)(r % 4 * 2))));
}

/* Add the products of run r of a chunk at p and T tokens to acc[t]. xs holds
 * the scales of the tokens. If the type has one scale for each run, they are
 * already multiplied by the scales of the weights. */
INLINE void run_dots(enum dtype type, __m256 *acc, const unsigned char *p,
                     const struct scales *s, float xs[TOKENS][CHUNK_RUNS],
                     const struct tokens *x, size_t c, size_t r, int T)
{
    const __m256i w = run_codes(type, p, r);
    const __m256 pair =
        has_halves(type) ? lane_scales(s, r) : _mm256_setzero_ps();

    UNROLL
    for (int t = 0; t < T; t++) {
        const __m256i q = load32(x->q + (size_t)t * x->ldq + RUN * (c + r));
        __m256 scale = _mm256_broadcast_ss(&xs[t][r]);

        if (has_halves(type))
            scale = _mm256_mul_ps(scale, pair);
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_run(type, w, q)), scale,
                                 acc[t]);
    }
}

/* Add the products of a chunk of n runs at p and T tokens, starting at column
 * 32 c, to acc[0][t] and acc[1][t]. Runs go to the two accumulators in turn, so
 * that consecutive runs need not wait for each other. */
INLINE void chunk_dots(enum dtype type, __m256 acc[2][TOKENS],
                       const unsigned char *p, size_t n, const struct tokens *x,
                       size_t c, int T)
{
    struct scales s = chunk_scales(type, p, n);
    float xs[TOKENS][CHUNK_RUNS];

    add_offset(&s, type);
    UNROLL
    for (int t = 0; t < T; t++) {
        const size_t g = (size_t)t * x->ldg + c;
        __m256 scale = first8(x->scale + g, n);

        if (!has_halves(type))
            scale = _mm256_mul_ps(scale, s.scale[0]);
        _mm256_storeu_ps(xs[t], scale);
        if (has_min(type) || offset_of(type))
            acc[0][t] = add_mins(type, acc[0][t], &s, x->sum + g,
                                 x->halves + (size_t)t * x->ldh + 2 * c, n);
    }
    if (n == CHUNK_RUNS) {
        UNROLL
        for (size_t r = 0; r < CHUNK_RUNS; r++)
            run_dots(type, acc[r % 2], p, &s, xs, x, c, r, T);
    } else {
        for (size_t r = 0; r < n; r++)
            run_dots(type, acc[0], p, &s, xs, x, c, r, T);
    }
}

/* Multiply a row of n_runs runs by T tokens. */
INLINE void row_dots(enum dtype type, float *y, size_t ldy,
                     const unsigned char *w, const struct tokens *x,
                     size_t n_runs, bool add, int T)
{
    __m256 acc[2][TOKENS];

    UNROLL
    for (int t = 0; t < T; t++)
        acc[0][t] = acc[1][t] = _mm256_setzero_ps();
    for (size_t c = 0; c < n_runs; c += CHUNK_RUNS) {
        const size_t n = n_runs - c < CHUNK_RUNS ? n_runs - c : CHUNK_RUNS;
        const size_t bytes = chunk_bytes(type, n);

        for (size_t i = 0; i < bytes; i += 64)
            sweep(w + i);
        if (n == CHUNK_RUNS)
            chunk_dots(type, acc, w, CHUNK_RUNS, x, c, T);
        else
            chunk_dots(type, acc, w, n, x, c, T);
        w += bytes;
    }
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = y + (size_t)t * ldy;

        *to = sum_lanes(_mm256_add_ps(acc[0][t], acc[1][t])) + (add ? *to : 0);
    }
}

/* Multiply n_rows rows by T tokens. */
INLINE void rows_dots(enum dtype type, float *y, size_t ldy,
                      const unsigned char *w, size_t w_stride, size_t n_rows,
                      const struct tokens *x, size_t n_runs, bool add, int T)
{
    for (size_t r = 0; r < n_rows; r++)
        row_dots(type, y + r, ldy, w + r * w_stride, x, n_runs, add, T);
}

/* Write the sum of each group of 16 activations, times its scale, to out, for
 * n_runs runs of one token. */
static void sum_halves(float *out, const int8_t *q, const float *scale,
                       size_t n_runs)
{
    const __m256i ones = _mm256_set1_epi8(1);

    for (size_t r = 0; r < n_runs; r++) {
        /* multiply x by 1 and add: pairs, then fours, then eights */
        __m256i v =
            _mm256_madd_epi16(_mm256_maddubs_epi16(ones, load32(q + RUN * r)),
                              _mm256_set1_epi16(1));

        v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0x4e));
        v = _mm256_add_epi32(v, _mm256_shuffle_epi32(v, 0xb1));
        out[2 * r] =
            scale[r] * (float)_mm_cvtsi128_si32(_mm256_castsi256_si128(v));
        out[2 * r + 1] =
            scale[r] * (float)_mm_cvtsi128_si32(_mm256_extracti128_si256(v, 1));
    }
}

/* Multiply rows that stay in L2 by n tokens. */
INLINE void block_dots(enum dtype type, float *y, size_t ldy,
                       const unsigned char *w, size_t w_stride, size_t n_rows,
                       const struct tokens *x, size_t n_runs, size_t n,
                       bool add)
{
    struct tokens at = *x;

    for (; n >= TOKENS; n -= TOKENS) {
        rows_dots(type, y, ldy, w, w_stride, n_rows, &at, n_runs, add, TOKENS);
        y += TOKENS * ldy;
        at.q += TOKENS * at.ldq;
        at.scale += TOKENS * at.ldg;
        at.sum += TOKENS * at.ldg;
        at.halves += TOKENS * at.ldh;
    }
    if (n > 0)
        WITH_TOKENS(n, rows_dots(type, y, ldy, w, w_stride, n_rows, &at, n_runs,
                                 add, T));
}

/* Multiply by fewer tokens than MANY_HALVES or MANY_TOKENS. */
INLINE void small_m_dots(enum dtype type, const struct product *p)
{
    const size_t n = p->n_tokens;
    const unsigned char *w = p->w;
    size_t cols;

    for (size_t k = 0; k < p->n_cols; k += cols) {
        cols = p->n_cols - k < SEGMENT ? p->n_cols - k : SEGMENT;
        const size_t n_runs = cols / RUN;
        const size_t bytes = runs_bytes(type, n_runs);
        const struct tokens at = {.q = p->x->q + k,
                                  .scale = p->x->scale + k / RUN,
                                  .sum = p->x->sum + k / RUN,
                                  .halves = p->work,
                                  .ldq = p->x->ldq,
                                  .ldg = p->x->ldg,
                                  .ldh = 2 * n_runs};
        const size_t block = n <= TOKENS          ? p->n_rows
                             : ROWS_BYTES > bytes ? ROWS_BYTES / bytes
                                                  : 1;

        for (size_t i = 0; has_halves(type) && i < n; i++)
            sum_halves(p->work + i * at.ldh, at.q + i * at.ldq,
                       at.scale + i * at.ldg, n_runs);
        for (size_t r = 0, nr; r < p->n_rows; r += nr) {
            nr = p->n_rows - r < block ? p->n_rows - r : block;
            block_dots(type, p->y + r, p->ldy, w + r * p->w_stride, p->w_stride,
                       nr, &at, n_runs, n, p->add || k > 0);
        }
        w += bytes;
    }
}

/* ---- many tokens -------------------------------------------------------- */

/* Expanded rows. They lie after the work memory of the affine product. */
struct wide {
    _Alignas(64) unsigned char codes[WIDE_ROWS * WIDE_COLS];
    float scale[WIDE_ROWS * WIDE_COLS / RUN], bias[WIDE_ROWS * WIDE_COLS / RUN];
};

_Static_assert(sizeof(struct wide) <= KERNEL_BLOCKS_WORK * sizeof(float),
               "the caller's memory");

/* Rows by which prefetches of rows that are expanded are ahead. */
enum { EXPAND_AHEAD = 4 };

/* Expand n_runs runs of a row to unsigned codes, with a scale and a bias for
 * each run. next: a row that is expanded a little later. */
INLINE void expand_row(enum dtype type, unsigned char *codes, float *scale,
                       float *bias, const unsigned char *w,
                       const unsigned char *next, size_t n_runs)
{
    for (size_t c = 0; c < n_runs; c += CHUNK_RUNS) {
        const size_t n = n_runs - c < CHUNK_RUNS ? n_runs - c : CHUNK_RUNS;
        const size_t bytes = chunk_bytes(type, n);

        for (size_t i = 0; i < bytes; i += 64)
            _mm_prefetch((const char *)next + i, _MM_HINT_T0);
        next += bytes;
        struct scales s = chunk_scales(type, w, n);
        __m256 min;

        add_offset(&s, type);
        min = is_signed(type) ? _mm256_mul_ps(_mm256_set1_ps(128), s.scale[0])
                              : s.min[0];
        min = _mm256_xor_ps(min, _mm256_set1_ps(-0.0f));
        if (n == CHUNK_RUNS) {
            _mm256_storeu_ps(scale + c, s.scale[0]);
            _mm256_storeu_ps(bias + c, min);
        } else {
            _mm256_maskstore_ps(scale + c, first_lanes8(n), s.scale[0]);
            _mm256_maskstore_ps(bias + c, first_lanes8(n), min);
        }
        for (size_t r = 0; r < n; r++) {
            __m256i v = run_codes(type, w, r);

            if (is_signed(type))
                v = _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80));
            _mm256_storeu_si256((__m256i_u *)(void *)(codes + RUN * (c + r)),
                                v);
        }
        w += bytes;
    }
}

INLINE void many_dots(enum dtype type, const struct product *p)
{
    struct wide *m = (struct wide *)(void *)(p->work + KERNEL_WORK);
    const size_t w_stride = p->w_stride;
    size_t nr, cols;

    for (size_t r = 0; r < p->n_rows; r += nr) {
        const unsigned char *from = p->w + r * w_stride;

        nr = p->n_rows - r < WIDE_ROWS ? p->n_rows - r : WIDE_ROWS;
        for (size_t k = 0; k < p->n_cols; k += cols) {
            cols = p->n_cols - k < WIDE_COLS ? p->n_cols - k : WIDE_COLS;
            const size_t n = cols / RUN;
            const struct affine a = {.q = m->codes,
                                     .q_stride = cols,
                                     .scales = (unsigned char *)m->scale,
                                     .s_stride = n * sizeof(float),
                                     .s_type = DT_F32,
                                     .biases = (unsigned char *)m->bias,
                                     .b_stride = n * sizeof(float),
                                     .b_type = DT_F32,
                                     .bits = 8,
                                     .group = RUN};
            struct q8 at = *p->x;

            for (size_t i = 0; i < nr; i++)
                expand_row(type, m->codes + i * cols, m->scale + i * n,
                           m->bias + i * n, from + i * w_stride,
                           from + (i + EXPAND_AHEAD) * w_stride, n);
            at.q += k;
            at.scale += k / RUN;
            at.sum += k / RUN;
            kernels_get(LEVEL)->gemm_q8_affine(p->y + r, p->ldy, &a, &at, nr,
                                               cols, p->n_tokens,
                                               p->add || k > 0, p->work);
            from += runs_bytes(type, n);
        }
    }
}

/* ---- many tokens, scales for 16 elements -------------------------------- */

/* ROWS: rows of a panel, one in each lane. COLS: its columns. GROUPS: its
 * groups of 16 columns. */
enum { PANEL_ROWS = 8, PANEL_COLS = 1024, PANEL_GROUPS = PANEL_COLS / 16 };

/* A panel of expanded rows. It lies after the sums of activations in the work
 * memory. */
struct panel {
    /* in the order of the rows */
    _Alignas(64) unsigned char row_codes[PANEL_ROWS][PANEL_COLS];
    float row_scale[PANEL_ROWS][PANEL_GROUPS];
    float row_min[PANEL_ROWS][PANEL_GROUPS];
    /* transposed: each word of codes has four columns of one row */
    float codes[PANEL_COLS / 4][PANEL_ROWS];
    float scale[PANEL_GROUPS][PANEL_ROWS], min[PANEL_GROUPS][PANEL_ROWS];
};

_Static_assert(sizeof(struct panel) <= KERNEL_BLOCKS_WORK * sizeof(float),
               "the caller's memory");

/* Transpose: to[i][r] = from[r][i] for i < n words; n is a multiple of 8. */
INLINE void turn(float (*to)[PANEL_ROWS], const float *from, size_t stride,
                 size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        __m256 v[8];

        UNROLL
        for (size_t r = 0; r < 8; r++)
            v[r] = _mm256_loadu_ps(from + r * stride + i);
        store_transposed8(to[i], PANEL_ROWS, v, 8);
    }
}

/* Expand n_cols columns of n_rows <= PANEL_ROWS rows; missing rows become
 * zeros. */
INLINE void fill_panel(enum dtype type, struct panel *m, const unsigned char *w,
                       size_t w_stride, size_t n_rows, size_t n_cols)
{
    const size_t bytes = chunk_bytes(type, CHUNK_RUNS);

    for (size_t r = 0; r < n_rows; r++)
        for (size_t c = 0; c < n_cols / SUPER; c++) {
            const unsigned char *p = w + r * w_stride + c * bytes;
            const char *next = (const char *)p + PANEL_ROWS * w_stride;
            struct scales s = chunk_scales(type, p, CHUNK_RUNS);

            /* the next panel, which is filled after this one is used */
            for (size_t i = 0; i < bytes; i += 64)
                _mm_prefetch(next + i, _MM_HINT_T1);
            add_offset(&s, type);
            UNROLL
            for (size_t i = 0; i < 2; i++) {
                const size_t g = 16 * c + 8 * i;

                _mm256_storeu_ps(&m->row_scale[r][g], s.scale[i]);
                _mm256_storeu_ps(&m->row_min[r][g], s.min[i]);
            }
            for (size_t i = 0; i < CHUNK_RUNS; i++)
                _mm256_storeu_si256(
                    (__m256i_u *)(void *)&m->row_codes[r][SUPER * c + RUN * i],
                    run_codes(type, p, i));
        }
    if (n_rows < PANEL_ROWS) {
        const size_t missing = PANEL_ROWS - n_rows;

        memset(m->row_codes[n_rows], 0, missing * sizeof m->row_codes[0]);
        memset(m->row_scale[n_rows], 0, missing * sizeof m->row_scale[0]);
        memset(m->row_min[n_rows], 0, missing * sizeof m->row_min[0]);
    }
    turn(m->codes, (const float *)(const void *)m->row_codes, PANEL_COLS / 4,
         n_cols / 4);
    turn(m->scale, m->row_scale[0], PANEL_GROUPS, n_cols / 16);
    turn(m->min, m->row_min[0], PANEL_GROUPS, n_cols / 16);
}

INLINE __m256i four_bytes(const int8_t *q)
{
    int word;

    memcpy(&word, q, 4);
    return _mm256_set1_epi32(word);
}

/* Compute acc[t] = products of the n groups of a panel and T tokens. */
INLINE void panel_dots(__m256 *acc, const struct panel *m,
                       const struct tokens *x, size_t n, int T)
{
    UNROLL
    for (int t = 0; t < T; t++)
        acc[t] = _mm256_setzero_ps();
    for (size_t g = 0; g < n; g++) {
        const __m256 scale = _mm256_load_ps(m->scale[g]),
                     min = _mm256_load_ps(m->min[g]);
        __m256i dot[TOKENS];

        UNROLL
        for (int t = 0; t < T; t++)
            dot[t] = _mm256_setzero_si256();
        UNROLL
        for (size_t j = 0; j < 4; j++) {
            const __m256i w = load32(m->codes[4 * g + j]);

            UNROLL
            for (int t = 0; t < T; t++)
                dot[t] = add_fours(
                    dot[t], w,
                    four_bytes(x->q + (size_t)t * x->ldq + 16 * g + 4 * j));
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            const float *half = x->halves + (size_t)t * x->ldh + g;
            const float *xs = x->scale + (size_t)t * x->ldg + g / 2;

            acc[t] = _mm256_fmadd_ps(
                _mm256_mul_ps(_mm256_cvtepi32_ps(dot[t]), scale),
                _mm256_broadcast_ss(xs), acc[t]);
            acc[t] = _mm256_fnmadd_ps(min, _mm256_broadcast_ss(half), acc[t]);
        }
    }
}

/* Store the products of a panel of n_rows and T tokens in y[t, r], or add them
 * to y if add. */
INLINE void panel_tile(float *y, size_t ldy, const struct panel *m,
                       const struct tokens *x, size_t n, size_t n_rows,
                       bool add, int T)
{
    const __m256i rows = first_lanes8(n_rows);
    __m256 acc[TOKENS];

    panel_dots(acc, m, x, n, T);
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = y + (size_t)t * ldy;

        if (add)
            acc[t] = _mm256_add_ps(acc[t], _mm256_maskload_ps(to, rows));
        _mm256_maskstore_ps(to, rows, acc[t]);
    }
}

/* Multiply a panel by n_tokens tokens. */
static void panel_many(float *y, size_t ldy, const struct panel *m,
                       const struct tokens *x, size_t n, size_t n_rows,
                       size_t n_tokens, bool add)
{
    struct tokens at = *x;

    for (size_t t = 0, T; t < n_tokens; t += T) {
        float *yt = y + t * ldy;

        T = n_tokens - t < TOKENS ? 1 : TOKENS;
        if (T == 1)
            panel_tile(yt, ldy, m, &at, n, n_rows, add, 1);
        else
            panel_tile(yt, ldy, m, &at, n, n_rows, add, TOKENS);
        at.q += T * at.ldq;
        at.scale += T * at.ldg;
        at.halves += T * at.ldh;
    }
}

/* Multiply all rows by n tokens, starting at token t. The caller's memory must
 * have room for the sums of their activations. */
INLINE void many_halves(enum dtype type, const struct product *p, size_t t,
                        size_t n)
{
    struct panel *m = (struct panel *)(void *)(p->work + KERNEL_WORK);
    const struct q8 *x = p->x;
    const unsigned char *w = p->w;
    size_t cols, nr;

    for (size_t k = 0; k < p->n_cols; k += cols) {
        cols = p->n_cols - k < PANEL_COLS ? p->n_cols - k : PANEL_COLS;
        const size_t g = t * x->ldg + k / RUN;
        const struct tokens at = {.q = x->q + t * x->ldq + k,
                                  .scale = x->scale + g,
                                  .halves = p->work,
                                  .ldq = x->ldq,
                                  .ldg = x->ldg,
                                  .ldh = PANEL_GROUPS};

        for (size_t i = 0; i < n; i++)
            sum_halves(p->work + i * at.ldh, at.q + i * at.ldq,
                       at.scale + i * at.ldg, cols / RUN);
        for (size_t r = 0; r < p->n_rows; r += nr) {
            nr = p->n_rows - r < PANEL_ROWS ? p->n_rows - r : PANEL_ROWS;
            fill_panel(type, m, w + r * p->w_stride, p->w_stride, nr, cols);
            panel_many(p->y + t * p->ldy + r, p->ldy, m, &at, cols / 16, nr, n,
                       p->add || k > 0);
        }
        w += runs_bytes(type, cols / RUN);
    }
}

/* ---- kernels ------------------------------------------------------------ */

INLINE void gemm(enum dtype type, const struct product *p)
{
    const size_t most = KERNEL_WORK / PANEL_GROUPS;

    if (p->n_tokens < (size_t)(has_halves(type) ? MANY_HALVES : MANY_TOKENS)) {
        small_m_dots(type, p);
        return;
    }
    if (!has_halves(type)) {
        many_dots(type, p);
        return;
    }
    for (size_t t = 0, n; t < p->n_tokens; t += n) {
        n = p->n_tokens - t < most ? p->n_tokens - t : most;
        many_halves(type, p, t, n);
    }
}

/* Define gemm_q8_blocks of a type as a call of `multiply` with the product
 * p. */
#define GEMM_BY(name, multiply)                                                \
    static void KERNEL(gemm_q8_##name)(float *y, size_t ldy, const void *w,    \
                                       size_t w_stride, const struct q8 *x,    \
                                       size_t n_rows, size_t n_cols,           \
                                       size_t n_tokens, bool add, float *work) \
    {                                                                          \
        const struct product p = {.y = y,                                      \
                                  .ldy = ldy,                                  \
                                  .w = w,                                      \
                                  .w_stride = w_stride,                        \
                                  .x = x,                                      \
                                  .n_rows = n_rows,                            \
                                  .n_cols = n_cols,                            \
                                  .n_tokens = n_tokens,                        \
                                  .add = add,                                  \
                                  .work = work};                               \
                                                                               \
        multiply;                                                              \
    }
#define GEMM(name, TYPE) GEMM_BY(name, gemm(TYPE, &p))

/* Enter a kernel that GEMM_BY defined into the table k. */
#define ENTER_GEMM(name, TYPE) \
    k->gemm_q8_blocks[TYPE - DT_BLOCKS] = KERNEL(gemm_q8_##name);

#endif
