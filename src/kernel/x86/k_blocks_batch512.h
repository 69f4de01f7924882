/* Products of Q8_0 and Q4_K with a batch of tokens, for k_blocks_avx512.c.
 * Panels (k_blocks_panel.h) store unpacked codes and load them again for each
 * tile of tokens. With few tokens that takes longer than the products. Here 16
 * rows by 32 bytes are transposed in registers while the block before them is
 * multiplied; scales are unpacked for 16 rows at once.
 *
 * Codes are unsigned in products, so 128 is added to those of Q8_0. To make up
 * for that, the integer sums of a run begin with -128 times the sum of its
 * activations.
 *
 * Order of sums. There is one sum for each row and token. It takes the runs in
 * order. */
#ifndef KERNEL_X86_K_BLOCKS_BATCH512_H
#define KERNEL_X86_K_BLOCKS_BATCH512_H

#include "kernel/x86/k_batch512.h"

#if !defined KERNEL_X86_K_BLOCKS_AVX_H
#error "include k_blocks_avx.h first"
#endif

/* Tokens of a tile. */
enum { BB_LEAST = 4, BB_TILE = 8 };

/* Activations and scales of a product. The tokens of a tile follow each
 * other. */
struct blocks_batch {
    const struct product *p;
    size_t n_runs;
    float *scale, *min; /* [run][BATCH_ROWS] */
    float *x_scale;     /* [run][token] */
    union {             /* of a run's activations: [run][token] */
        float sum;
        int32_t start;
    } * x_sum;
    int8_t *x; /* [column / 4][token][4] */
};

/* Multiply BATCH_ROWS rows by T tokens. */
struct blocks_tile {
    const unsigned char *w;
    size_t w_stride, n_runs;
    const float *scale, *min, *x_scale;
    const void *x_sum;
    const int8_t *x;
    float *y;
    size_t ldy;
    bool add;
    const unsigned char *next; /* lines to prefetch */
    size_t n_fetch;            /* for each block */
};

/* Return the codes that follow those at p, of block b of a row. */
INLINE const unsigned char *next_codes(enum dtype type, const unsigned char *p,
                                       size_t b)
{
    if (type == DT_Q8_0)
        return p + 34;
    return p + (b % 4 == 3 ? 48 : 32);
}

/* Scale the sums of a run. */
INLINE void blocks_scale(enum dtype type, __m512 a[BB_TILE], sums d[BATCH_TILE],
                         const float *scale, const float *min,
                         const float *x_scale, const float *x_sum, int T)
{
    const __m512 s = _mm512_load_ps(scale), m = _mm512_load_ps(min);

    UNROLL
    for (int t = 0; t < T; t++) {
        const __m512 by = _mm512_mul_ps(s, _mm512_set1_ps(x_scale[t]));

        a[t] = _mm512_fmadd_ps(to_floats(d[t]), by, a[t]);
        if (type == DT_Q4_K)
            a[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(x_sum[t]), a[t]);
    }
}

INLINE void blocks_tile_run(enum dtype type, const struct blocks_tile *s, int T)
{
    const __m512i mask = _mm512_set1_epi8(0x0f);
    const size_t stride = s->w_stride, halves = type == DT_Q4_K ? 2 : 1;
    const size_t n_blocks = s->n_runs / halves;
    const unsigned char *q = s->w + (type == DT_Q4_K ? 16 : 2);
    const unsigned char *fetch = s->next;
    const float *scale = s->scale, *min = s->min;
    const float *x_scale = s->x_scale, *x_sum = s->x_sum;
    const int8_t *x = s->x;
    __m512 a[BB_TILE];
    __m512i v[8], next[8];

    UNROLL
    for (int part = 0; part < 8; part++)
        batch_part(next, q, stride, part);
    UNROLL
    for (int t = 0; t < T; t++)
        a[t] = _mm512_maskz_loadu_ps(s->add ? 0xffff : 0,
                                     s->y + (size_t)t * s->ldy);
    for (size_t b = 0; b < n_blocks; b++) {
        for (size_t i = 0; i < s->n_fetch; i++, fetch += 64)
            _mm_prefetch(fetch, _MM_HINT_T1);
        if (b + 1 < n_blocks)
            q = next_codes(type, q, b);
        UNROLL
        for (int c = 0; c < 8; c++)
            v[c] = next[c];
        UNROLL
        for (size_t h = 0; h < halves; h++) {
            sums d[BATCH_TILE];

            UNROLL
            for (int t = 0; t < T; t++) {
                int32_t start;

                memcpy(&start, x_sum + t, sizeof start);
                d[t] = type == DT_Q4_K ? no_sums()
                                       : (sums)_mm512_set1_epi32(start);
            }
            UNROLL
            for (int c = 0; c < 8; c++, x += 4 * T) {
                if (h == halves - 1) {
                    batch_part(next, q, stride, c);
                    PIN(next[c]);
                }
                batch_dots(d,
                           type == DT_Q8_0 ? unsign(v[c])
                           : h == 0        ? _mm512_and_si512(v[c], mask)
                                           : _mm512_and_si512(
                                                 _mm512_srli_epi16(v[c], 4), mask),
                           x, T);
            }
            blocks_scale(type, a, d, scale, min, x_scale, x_sum, T);
            scale += BATCH_ROWS;
            min += BATCH_ROWS;
            x_scale += T;
            x_sum += T;
        }
    }
    UNROLL
    for (int t = 0; t < T; t++)
        _mm512_storeu_ps(s->y + (size_t)t * s->ldy, a[t]);
}

#define BLOCKS_TILE(T)                                            \
    static void blocks_tile_q8_0_##T(const struct blocks_tile *s) \
    {                                                             \
        blocks_tile_run(DT_Q8_0, s, T);                           \
    }                                                             \
    static void blocks_tile_q4_k_##T(const struct blocks_tile *s) \
    {                                                             \
        blocks_tile_run(DT_Q4_K, s, T);                           \
    }

BLOCKS_TILE(4)
BLOCKS_TILE(5)
BLOCKS_TILE(6)
BLOCKS_TILE(7)
BLOCKS_TILE(8)

#define BLOCKS_TILE_FNS(T)                         \
    {                                              \
        blocks_tile_q8_0_##T, blocks_tile_q4_k_##T \
    }

/* [tokens - BB_LEAST][is Q4_K] */
static void (*const blocks_tiles[BB_TILE - BB_LEAST + 1][2])(
    const struct blocks_tile *) = {BLOCKS_TILE_FNS(4), BLOCKS_TILE_FNS(5),
                                   BLOCKS_TILE_FNS(6), BLOCKS_TILE_FNS(7),
                                   BLOCKS_TILE_FNS(8)};

/* ---- scales ------------------------------------------------------------- */

/* Widen the scales of 16 rows of Q8_0. */
static void q8_0_numbers(const struct blocks_batch *b, const unsigned char *w)
{
    const size_t n = b->n_runs, stride = b->p->w_stride;
    uint16_t *bits = (uint16_t *)(void *)b->min; /* [run][BATCH_ROWS] */

    for (size_t i = 0; i < BATCH_ROWS; i++)
        for (size_t r = 0; r < n; r++)
            memcpy(bits + r * BATCH_ROWS + i, w + i * stride + r * 34, 2);
    for (size_t r = 0; r < n; r++)
        _mm512_store_ps(b->scale + r * BATCH_ROWS,
                        _mm512_cvtph_ps(_mm256_load_si256(
                            (const void *)(bits + r * BATCH_ROWS))));
}

/* The low halves of 16 words as f16. */
INLINE __m512 low_halves(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* Transpose the first four words of 16 rows. */
INLINE void turn_heads(__m512i head[4], const unsigned char *w, size_t stride)
{
    __m512i s[4], pair[4];

    UNROLL
    for (size_t i = 0; i < 4; i++) {
        const unsigned char *p = w + i * stride;

        s[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)p));
        s[i] = _mm512_inserti32x4(
            s[i], _mm_loadu_si128((const void *)(p + 4 * stride)), 1);
        s[i] = _mm512_inserti32x4(
            s[i], _mm_loadu_si128((const void *)(p + 8 * stride)), 2);
        s[i] = _mm512_inserti32x4(
            s[i], _mm_loadu_si128((const void *)(p + 12 * stride)), 3);
    }
    pair[0] = _mm512_unpacklo_epi32(s[0], s[1]);
    pair[1] = _mm512_unpacklo_epi32(s[2], s[3]);
    pair[2] = _mm512_unpackhi_epi32(s[0], s[1]);
    pair[3] = _mm512_unpackhi_epi32(s[2], s[3]);
    head[0] = _mm512_unpacklo_epi64(pair[0], pair[1]);
    head[1] = _mm512_unpackhi_epi64(pair[0], pair[1]);
    head[2] = _mm512_unpacklo_epi64(pair[2], pair[3]);
    head[3] = _mm512_unpackhi_epi64(pair[2], pair[3]);
}

/* Compute the scales and mins of 16 rows of Q4_K, as get_scale_min_k4 of ggml
 * unpacks them. */
static void q4_k_numbers(const struct blocks_batch *b, const unsigned char *w)
{
    const __m512i low = _mm512_set1_epi32(15), six = _mm512_set1_epi32(63);
    const __m512i top = _mm512_set1_epi32(0x30);
    float *scale = b->scale, *min = b->min;

    for (size_t r = 0; r < b->n_runs; r += 8, w += 144) {
        __m512i h[4], s[8], m[8];
        __m512 by, less;

        turn_heads(h, w, b->p->w_stride);
        by = low_halves(h[0]);
        less = _mm512_sub_ps(_mm512_setzero_ps(),
                             low_halves(_mm512_srli_epi32(h[0], 16)));
        UNROLL
        for (unsigned i = 0; i < 4; i++) {
            s[i] = _mm512_and_si512(_mm512_srli_epi32(h[1], 8 * i), six);
            m[i] = _mm512_and_si512(_mm512_srli_epi32(h[2], 8 * i), six);
            s[4 + i] = _mm512_or_si512(
                _mm512_and_si512(_mm512_srli_epi32(h[3], 8 * i), low),
                _mm512_and_si512(_mm512_srli_epi32(h[1], 8 * i + 2), top));
            m[4 + i] = _mm512_or_si512(
                _mm512_and_si512(_mm512_srli_epi32(h[3], 8 * i + 4), low),
                _mm512_and_si512(_mm512_srli_epi32(h[2], 8 * i + 2), top));
        }
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            _mm512_store_ps(scale, _mm512_mul_ps(by, _mm512_cvtepi32_ps(s[i])));
            _mm512_store_ps(min, _mm512_mul_ps(less, _mm512_cvtepi32_ps(m[i])));
            scale += BATCH_ROWS;
            min += BATCH_ROWS;
        }
    }
}

/* ---- the product -------------------------------------------------------- */

INLINE size_t blocks_tile_count(size_t n)
{
    return (n + BB_TILE - 1) / BB_TILE;
}

/* Arrange the activations of n tokens from token t on. */
static void blocks_arrange(const struct blocks_batch *b, enum dtype type,
                           size_t t, size_t n)
{
    const struct q8 *x = b->p->x;
    const size_t runs = b->n_runs, at = t * runs;

    batch_words(b->x + at * RUN, x->q + t * x->ldq, x->ldq, runs * RUN / 4, n,
                false);
    batch_words(b->x_scale + at, x->scale + t * x->ldg, 4 * x->ldg, runs, n,
                false);
    if (type == DT_Q4_K) {
        batch_words(b->x_sum + at, x->sum + t * x->ldg, 4 * x->ldg, runs, n,
                    false);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < runs; r++) {
            const __m256i q = _mm256_loadu_si256(
                (const void *)(x->q + (t + i) * x->ldq + r * RUN));
            const __m256i by = _mm256_set1_epi8((char)128);
            const __m256i four =
                _mm256_dpbusd_epi32(_mm256_setzero_si256(), by, q);

            b->x_sum[at + r * n + i].start =
                -_mm512_reduce_add_epi32(_mm512_zextsi256_si512(four));
        }
}

/* Multiply BATCH_ROWS rows from row r on. */
static void blocks_batch_rows(const struct blocks_batch *b, enum dtype type,
                              size_t r)
{
    const struct product *p = b->p;
    const size_t tiles = blocks_tile_count(p->n_tokens);
    const unsigned char *w = p->w + r * p->w_stride;
    const unsigned char *next = w + BATCH_ROWS * p->w_stride;
    const size_t blocks = b->n_runs / (type == DT_Q4_K ? 2 : 1);
    const size_t lines = (BATCH_ROWS * p->w_stride + 63) / 64;
    const size_t n_fetch = (lines + blocks * tiles - 1) / (blocks * tiles);

    if (type == DT_Q4_K)
        q4_k_numbers(b, w);
    else
        q8_0_numbers(b, w);
    for (size_t i = 0, t = 0; i < tiles; i++) {
        const size_t T = p->n_tokens / tiles + (i < p->n_tokens % tiles);
        const size_t at = t * b->n_runs;
        const struct blocks_tile s = {.w = w,
                                      .w_stride = p->w_stride,
                                      .n_runs = b->n_runs,
                                      .scale = b->scale,
                                      .min = b->min,
                                      .x_scale = b->x_scale + at,
                                      .x_sum = b->x_sum + at,
                                      .x = b->x + at * RUN,
                                      .y = p->y + t * p->ldy + r,
                                      .ldy = p->ldy,
                                      .add = p->add,
                                      .next = next,
                                      .n_fetch = n_fetch};

        blocks_tiles[T - BB_LEAST][type == DT_Q4_K](&s);
        next += blocks * n_fetch * 64;
        t += T;
    }
}

/* Bytes of memory for n_runs runs and n tokens. */
INLINE size_t blocks_batch_bytes(size_t n_runs, size_t n)
{
    return n_runs *
           (2 * BATCH_ROWS * sizeof(float) + n * (RUN + 2 * sizeof(float)));
}

/* Whether blocks_batch multiplies a product by whole blocks of rows. */
INLINE bool blocks_batch_takes(enum dtype type, const struct product *p)
{
    return (type == DT_Q8_0 || type == DT_Q4_K) && p->n_tokens > TOKENS &&
           p->n_tokens <= kernel_core.blocks_batch_max && p->n_cols > 0 &&
           blocks_batch_bytes(p->n_cols / RUN, p->n_tokens) <=
               (KERNEL_WORK + KERNEL_BLOCKS_WORK) * sizeof(float);
}

/* Multiply the rows up to a multiple of BATCH_ROWS. Returns their number. */
INLINE size_t blocks_batch(enum dtype type, const struct product *p)
{
    const size_t runs = p->n_cols / RUN, n = p->n_tokens;
    const size_t tiles = blocks_tile_count(n);
    struct blocks_batch b = {.p = p, .n_runs = runs, .scale = p->work};
    size_t r = 0;

    b.min = b.scale + runs * BATCH_ROWS;
    b.x_scale = b.min + runs * BATCH_ROWS;
    b.x_sum = (void *)(b.x_scale + runs * n);
    b.x = (int8_t *)(void *)(b.x_sum + runs * n);
    for (size_t i = 0, t = 0; i < tiles; i++) {
        const size_t T = n / tiles + (i < n % tiles);

        blocks_arrange(&b, type, t, T);
        t += T;
    }
    for (; p->n_rows - r >= BATCH_ROWS; r += BATCH_ROWS)
        blocks_batch_rows(&b, type, r);
    return r;
}

#endif
