/* Products of GGUF's blocks with more than TOKENS tokens in 512-bit vectors,
 * for k_blocks_avx512.c. That file includes k_blocks_avx.h and k_q8_avx512.h
 * first, because this file uses their functions.
 *
 * A panel is 64 rows by up to 256 columns, unpacked to signed bytes and
 * transposed: a 32-bit word has four columns of one row, and a vector has the
 * same four columns of 16 rows. The panel stays in L1 while it is multiplied by
 * all tokens, two or three at a time.
 *
 * vpdpbusd multiplies unsigned by signed bytes. Codes are signed here, so 128
 * is added to each activation, by inverting its highest bit. To make up for
 * that, the integer sums of a group begin with -128 times the sum of its codes,
 * which is computed once for each row. Subtracting the offset of codes
 * therefore costs nothing; the affine product needs one multiply-add for each
 * sum.
 *
 * Order of sums. There is one sum for each row and token. It takes the groups
 * in order. */
#ifndef KERNEL_X86_K_BLOCKS_PANEL_H
#define KERNEL_X86_K_BLOCKS_PANEL_H

#include "kernel/x86/k_tile512.h"

#if !defined KERNEL_X86_K_BLOCKS_AVX_H || !defined KERNEL_X86_K_Q8_AVX512_H
#error "include k_blocks_avx.h and k_q8_avx512.h first"
#endif

/* A panel has TILE_ROWS rows by P_COLS columns: 16 KiB of codes, and at most 8
 * KiB of scales and first sums. Tokens are taken P_SWEEP at a time, so that
 * their activations and sums stay in L2. */
enum { P_COLS = SUPER, P_SWEEP = 512 };

struct block_panel {
    _Alignas(64) int32_t codes[P_COLS / 4][TILE_ROWS]; /* [4 columns][row] */
    float scale[P_COLS / 16][TILE_ROWS];               /* [group][row] */
    /* [group][row]: -128 times the sum of the group's codes; and for types with
       mins, in place of that, the negative min */
    int32_t start[P_COLS / 16][TILE_ROWS];
    float min[P_COLS / 16][TILE_ROWS];
};

/* A panel before it is transposed. */
struct block_rows {
    _Alignas(64) int8_t codes[16][P_COLS];
    float scale[16][P_COLS / 16], min[16][P_COLS / 16];
};

_Static_assert(sizeof(struct block_panel) + sizeof(struct block_rows) <=
                   KERNEL_BLOCKS_WORK * sizeof(float),
               "the caller's memory");

/* Elements that share a scale. */
INLINE size_t group_of(enum dtype type)
{
    return has_halves(type) ? 16 : 32;
}

/* Unpack n runs of a row, a chunk, to signed codes and scales. The rest of
 * the panel is not written, and no sum uses it. */
INLINE void unpack_chunk(enum dtype type, struct block_rows *out, size_t i,
                         const unsigned char *p, size_t n)
{
    int8_t *codes = out->codes[i];
    const __m256i offset = _mm256_set1_epi8((char)offset_of(type));
    const struct scales s = chunk_scales(type, p, n);

    UNROLL
    for (size_t h = 0; h < 2; h++) {
        _mm256_storeu_ps(out->scale[i] + 8 * h, s.scale[h]);
        if (has_min(type))
            _mm256_storeu_ps(out->min[i] + 8 * h,
                             _mm256_xor_ps(s.min[h], _mm256_set1_ps(-0.0f)));
    }
    for (size_t r = 0; r < n; r++)
        _mm256_storeu_si256((__m256i_u *)(void *)(codes + RUN * r),
                            _mm256_sub_epi8(run_codes(type, p, r), offset));
}

/* Transpose the scales or mins of 16 rows. */
INLINE void turn_numbers(float *to, const float *from)
{
    __m512i v[16];

    UNROLL
    for (size_t i = 0; i < 16; i++)
        v[i] = _mm512_loadu_si512(from + i * (P_COLS / 16));
    transpose16(v);
    UNROLL
    for (size_t i = 0; i < 16; i++)
        _mm512_store_si512(to + i * TILE_ROWS, v[i]);
}

/* Transpose 16 rows to columns of the panel, from row r on. */
INLINE void turn_rows(enum dtype type, struct block_panel *m,
                      const struct block_rows *from, size_t r)
{
    __m512i v[16];

    UNROLL
    for (size_t c = 0; c < P_COLS; c += 64) {
        UNROLL
        for (size_t i = 0; i < 16; i++)
            v[i] = _mm512_load_si512(&from->codes[i][c]);
        transpose16(v);
        UNROLL
        for (size_t i = 0; i < 16; i++)
            _mm512_store_si512(&m->codes[c / 4 + i][r], v[i]);
    }
    turn_numbers(m->scale[0] + r, from->scale[0]);
    if (has_min(type))
        turn_numbers(m->min[0] + r, from->min[0]);
}

/* Compute the first sums of 16 rows, from row r on, for n groups. */
INLINE void start_sums(struct block_panel *m, size_t r, size_t n, size_t group)
{
    const __m512i by = _mm512_set1_epi8((char)128);

    for (size_t g = 0; g < n; g++) {
        __m512i sum = _mm512_setzero_si512();

        for (size_t i = 0; i < group / 4; i++)
            sum = _mm512_dpbusd_epi32(
                sum, by, _mm512_load_si512(&m->codes[g * group / 4 + i][r]));
        _mm512_store_si512(&m->start[g][r],
                           _mm512_sub_epi32(_mm512_setzero_si512(), sum));
    }
}

/* Unpack n runs, a chunk, of nr <= TILE_ROWS rows. Rows up to a multiple of 16
 * become zero. */
INLINE void fill_block_panel(enum dtype type, struct block_panel *m,
                             struct block_rows *rows, const unsigned char *w,
                             size_t w_stride, size_t nr, size_t n)
{
    for (size_t r = 0; r < nr; r += 16) {
        if (nr - r < 16)
            memset(rows, 0, sizeof *rows);
        for (size_t i = 0; i < 16 && r + i < nr; i++) {
            const unsigned char *p = w + (r + i) * w_stride;

            if (n == CHUNK_RUNS)
                unpack_chunk(type, rows, i, p, CHUNK_RUNS);
            else
                unpack_chunk(type, rows, i, p, n);
        }
        turn_rows(type, m, rows, r);
        if (!has_min(type))
            start_sums(m, r, n * RUN / group_of(type), group_of(type));
    }
}

/* Multiply one panel by T tokens. */
struct block_tile {
    const struct block_panel *panel;
    size_t n_runs;
    const int8_t *x;
    const float *x_scale, *x_sum;
    size_t ldq, ldg;
    struct tile_y out;
};

/* How a panel is multiplied. */
enum scaling {
    HALVES, /* groups of 16 */
    PAIRED, /* groups of 16, and 64 activations have one scale */
    PLAIN,  /* groups of 32 */
    MINS,   /* groups of 32 with mins; codes are not negative */
    N_SCALINGS
};

INLINE enum scaling scaling_of(enum dtype type, bool paired)
{
    return has_halves(type) ? (paired ? PAIRED : HALVES)
           : has_min(type)  ? MINS
                            : PLAIN;
}

INLINE bool in_halves(enum scaling scaling)
{
    return scaling == HALVES || scaling == PAIRED;
}

/* Compute the integer sums of a group. w is at its codes, start at its first
 * sums, x at its activations. */
INLINE void group_dots(sums d[TILE_TOKENS][TILE_VECTORS], const int32_t *w,
                       const int32_t *start, const int8_t *x, size_t ldq,
                       enum scaling scaling, int V, int T)
{
    const __m512i high = _mm512_set1_epi8((char)128);
    const int32_t *const end = w + (in_halves(scaling) ? 4 : 8) * TILE_ROWS;

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            d[t][v] = scaling == MINS ? no_sums()
                                      : (sums)_mm512_load_si512(start + 16 * v);
    }
    for (; w < end; w += TILE_ROWS, x += 4) {
        __m512i wv[TILE_VECTORS];

        UNROLL
        for (int v = 0; v < V; v++) {
            wv[v] = _mm512_load_si512(w + 16 * v);
            KEEP(wv[v]);
        }
        UNROLL
        for (int t = 0; t < T; t++) {
            int four;
            __m512i xv;

            memcpy(&four, x + (size_t)t * ldq, 4);
            xv = _mm512_set1_epi32(four);
            if (scaling != MINS)
                xv = _mm512_xor_si512(xv, high);
            UNROLL
            for (int v = 0; v < V; v++)
                d[t][v] = scaling == MINS ? dot4(d[t][v], wv[v], xv)
                                          : dot4(d[t][v], xv, wv[v]);
        }
    }
}

INLINE __m512 scaled(sums d, const float *scale)
{
    return _mm512_mul_ps(to_floats(d), _mm512_load_ps(scale));
}

INLINE void block_tile_run(const struct block_tile *s, enum scaling scaling,
                           int V, int T)
{
    const int32_t *w = s->panel->codes[0], *start = s->panel->start[0];
    const float *scale = s->panel->scale[0], *min = s->panel->min[0];
    const int8_t *x = s->x;
    const size_t runs =
        scaling == PAIRED ? 2 : 1; /* with one scale of activations */
    __m512 a[TILE_TOKENS][TILE_VECTORS];

    tile_load(a, s->out, V, T);
    FORGET(s);
    for (size_t g = 0; g < s->n_runs; g += runs) {
        sums d[TILE_TOKENS][TILE_VECTORS];

        UNROLL
        for (int t = 0; t < T; t++)
            _mm_prefetch((const char *)x + (size_t)(T + t) * s->ldq,
                         _MM_HINT_T0);
        group_dots(d, w, start, x, s->ldq, scaling, V, T);
        if (in_halves(scaling)) {
            __m512 f[TILE_TOKENS][TILE_VECTORS];

            UNROLL
            for (int t = 0; t < T; t++) {
                UNROLL
                for (int v = 0; v < V; v++) {
                    f[t][v] = scaled(d[t][v], scale + 16 * v);
                    KEEP(f[t][v]);
                }
            }
            for (size_t h = 1; h < 2 * runs; h++) {
                scale += TILE_ROWS;
                start += TILE_ROWS;
                group_dots(d, w + h * 4 * TILE_ROWS, start, x + 16 * h, s->ldq,
                           scaling, V, T);
                UNROLL
                for (int t = 0; t < T; t++) {
                    UNROLL
                    for (int v = 0; v < V; v++)
                        f[t][v] = _mm512_fmadd_ps(
                            to_floats(d[t][v]), _mm512_load_ps(scale + 16 * v),
                            f[t][v]);
                }
            }
            UNROLL
            for (int t = 0; t < T; t++) {
                const __m512 xs =
                    _mm512_set1_ps(s->x_scale[(size_t)t * s->ldg + g]);

                UNROLL
                for (int v = 0; v < V; v++)
                    a[t][v] = _mm512_fmadd_ps(f[t][v], xs, a[t][v]);
            }
        } else {
            UNROLL
            for (int t = 0; t < T; t++) {
                const size_t at = (size_t)t * s->ldg + g;
                const __m512 xs = _mm512_set1_ps(s->x_scale[at]);

                UNROLL
                for (int v = 0; v < V; v++) {
                    __m512 by =
                        _mm512_mul_ps(_mm512_load_ps(scale + 16 * v), xs);

                    a[t][v] = _mm512_fmadd_ps(to_floats(d[t][v]), by, a[t][v]);
                    if (scaling == MINS)
                        a[t][v] = _mm512_fmadd_ps(_mm512_load_ps(min + 16 * v),
                                                  _mm512_set1_ps(s->x_sum[at]),
                                                  a[t][v]);
                }
            }
        }
        w += runs * 8 * TILE_ROWS;
        x += runs * RUN;
        scale += TILE_ROWS;
        start += TILE_ROWS;
        min += TILE_ROWS;
        FORGET(s);
    }
    tile_store(a, s->out, V, T);
}

#define BLOCK_TILE(scaling, V, T)                                            \
    static void block_tile_##scaling##_##V##_##T(const struct block_tile *s) \
    {                                                                        \
        block_tile_run(s, scaling, V, T);                                    \
    }
#define BLOCK_TILES(scaling)       \
    EACH_3(BLOCK_TILE, scaling, 1) \
    EACH_3(BLOCK_TILE, scaling, 2) \
    EACH_3(BLOCK_TILE, scaling, 3) \
    EACH_3(BLOCK_TILE, scaling, 4)
#define BLOCK_TILE_TABLE(scaling)                                            \
    {                                                                        \
        ROW_3(block_tile_##scaling##_1), ROW_3(block_tile_##scaling##_2),    \
            ROW_3(block_tile_##scaling##_3), ROW_3(block_tile_##scaling##_4) \
    }

BLOCK_TILES(HALVES)
BLOCK_TILES(PAIRED)
BLOCK_TILES(PLAIN)
BLOCK_TILES(MINS)

/* block_tiles[scaling][vectors - 1][tokens - 1] */
static void (*const block_tiles[N_SCALINGS][TILE_VECTORS][TILE_TOKENS])(
    const struct block_tile *) = {[HALVES] = BLOCK_TILE_TABLE(HALVES),
                                  [PAIRED] = BLOCK_TILE_TABLE(PAIRED),
                                  [PLAIN] = BLOCK_TILE_TABLE(PLAIN),
                                  [MINS] = BLOCK_TILE_TABLE(MINS)};

/* Tokens of a tile. Groups of 16 keep one more vector for each sum. */
INLINE size_t tile_tokens(enum scaling scaling)
{
    return in_halves(scaling) ? 2 : TILE_TOKENS;
}

/* Multiply one panel by n tokens. For each tile it prefetches n_fetch lines of
 * the next panels' rows into L2, from `next` on. Returns the address after the
 * last prefetch. */
static const unsigned char *block_panel_run(struct block_tile s, size_t n,
                                            enum scaling scaling,
                                            const unsigned char *next,
                                            size_t n_fetch)
{
    const size_t most = tile_tokens(scaling);

    for (size_t t = 0; t < n; t += most) {
        const size_t T = n - t < most ? n - t : most;

        for (size_t i = 0; i < n_fetch; i++, next += 64)
            _mm_prefetch(next, _MM_HINT_T1);
        block_tiles[scaling][(s.out.nr - 1) / 16][T - 1](&s);
        s.x += most * s.ldq;
        s.x_scale += most * s.ldg;
        s.x_sum += most * s.ldg;
        s.out.y += most * s.out.ldy;
    }
    return next;
}

/* Multiply at most TILE_ROWS rows from row r on by n tokens from token t on. */
INLINE void block_panel_rows(enum dtype type, const struct product *p, size_t r,
                             size_t t, size_t n)
{
    struct block_panel *m =
        (struct block_panel *)(void *)(p->work + KERNEL_WORK);
    struct block_rows *rows = (struct block_rows *)(void *)(m + 1);
    const size_t n_cols = p->n_cols, w_stride = p->w_stride;
    const size_t nr = p->n_rows - r < TILE_ROWS ? p->n_rows - r : TILE_ROWS;
    const size_t n_tiles =
        (n_cols + P_COLS - 1) / P_COLS * ((n + TILE_TOKENS - 1) / TILE_TOKENS);
    const size_t n_fetch = (TILE_ROWS * w_stride / 64 + n_tiles) / n_tiles;
    const struct q8 *x = p->x;
    const unsigned char *w = p->w + r * w_stride;
    const unsigned char *next = w + TILE_ROWS * w_stride;

    for (size_t k = 0; k < n_cols; k += P_COLS) {
        const size_t n_runs = (n_cols - k < P_COLS ? n_cols - k : P_COLS) / RUN;
        const size_t g = t * x->ldg + k / RUN;
        const struct block_tile s = {.panel = m,
                                     .n_runs = n_runs,
                                     .x = x->q + t * x->ldq + k,
                                     .x_scale = x->scale + g,
                                     .x_sum = x->sum + g,
                                     .ldq = x->ldq,
                                     .ldg = x->ldg,
                                     .out = {.y = p->y + t * p->ldy + r,
                                             .ldy = p->ldy,
                                             .nr = nr,
                                             .resume = p->add || k > 0}};

        fill_block_panel(type, m, rows, w, w_stride, nr, n_runs);
        next =
            block_panel_run(s, n, scaling_of(type, x->paired), next, n_fetch);
        w += chunk_bytes(type, n_runs);
    }
}

/* Multiply by more than TOKENS tokens. The type must not be Q2_K, which has
 * mins for groups of 16. */
INLINE void many512(enum dtype type, const struct product *p)
{
    for (size_t t = 0; t < p->n_tokens; t += P_SWEEP)
        for (size_t r = 0; r < p->n_rows; r += TILE_ROWS)
            block_panel_rows(type, p, r, t,
                             p->n_tokens - t < P_SWEEP ? p->n_tokens - t
                                                       : P_SWEEP);
}

#endif
