/* Products of quantized weights with more than a few tokens, in 512-bit vectors
 * of integers. A panel, which is up to 64 rows by some columns, is unpacked to
 * bytes and transposed, so that each lane has a row of its own. Tiles of sums
 * then multiply the panel by up to three tokens at a time.
 *
 * Order of sums: one sum for each row and token takes the groups in order. */
#ifndef KERNEL_X86_K_Q8_MANY512_H
#define KERNEL_X86_K_Q8_MANY512_H

#include "kernel/x86/k_q8_panel.h"
#include "kernel/x86/k_tile512.h"

/* A panel has the rows of a tile by COLS columns: 16 KiB of codes. Scales and
 * biases of NUMBERS groups are packed together, up to 8 KiB. Both stay in L1
 * for SWEEP tokens, and their part of y stays in L2. */
enum { COLS = 256, NUMBERS = 16, SWEEP = 512 };

_Static_assert((int)PANEL_ROWS == (int)TILE_ROWS,
               "a tile has the rows of a panel");

struct panel {
    _Alignas(64) uint32_t codes[PANEL_ROWS * COLS / 4]; /* [4 columns][row] */
    float scales[PANEL_ROWS * NUMBERS];                 /* [group][row] */
    float biases[PANEL_ROWS * NUMBERS];
};

_Static_assert(sizeof(struct panel) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Transpose bytes / 4 words of at most 16 rows of codes of 4 bits, then unpack
 * them to `to`. */
INLINE void split_rows(uint32_t *to, const unsigned char *from, size_t stride,
                       size_t nr, size_t bytes, int bits)
{
    const __m512i mask = _mm512_set1_epi8(0x0f);
    const __mmask64 m = ~(__mmask64)0 >> (64 - bytes);
    __m512i v[16];

    UNROLL
    for (size_t i = 0; i < 16; i++)
        v[i] = i >= nr       ? _mm512_setzero_si512()
               : bytes == 64 ? _mm512_loadu_si512(from + i * stride)
                             : _mm512_maskz_loadu_epi8(m, from + i * stride);
    transpose16(v);
    UNROLL
    for (size_t i = 0; i < 16; i++) {
        __m512i even = _mm512_and_si512(v[i], mask);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi16(v[i], 4), mask);

        _mm512_store_si512(to, bits == E2M1 ? e2m1_bytes(even) : even);
        _mm512_store_si512(to + PANEL_ROWS,
                           bits == E2M1 ? e2m1_bytes(odd) : odd);
        to += 2 * PANEL_ROWS;
    }
}

/* Do the work of panel_codes_4, but of each eight columns take those of even
 * index first. Codes are transposed before they are unpacked, with half as many
 * shuffles. */
INLINE void panel_codes_split(uint32_t *out, const struct affine *w, size_t r,
                              size_t k, size_t nr, size_t nk, int bits)
{
    for (size_t r0 = 0; r0 < nr; r0 += 16)
        for (size_t k0 = 0; k0 < nk; k0 += 128) {
            const unsigned char *from = row_at(w, r + r0, k + k0).q;
            uint32_t *to = out + k0 / 4 * PANEL_ROWS + r0;

            if (nr - r0 >= 16 && nk - k0 >= 128)
                split_rows(to, from, w->q_stride, 16, 64, bits);
            else
                split_rows(to, from, w->q_stride, nr - r0,
                           nk - k0 < 128 ? (nk - k0) / 2 : 64, bits);
        }
}

#define PANEL_CODES_SPLIT(bits)                                            \
    static void panel_codes_split_##bits(uint32_t *out,                    \
                                         const struct affine *w, size_t r, \
                                         size_t k, size_t nr, size_t nk)   \
    {                                                                      \
        panel_codes_split(out, w, r, k, nr, nk, bits);                     \
    }

PANEL_CODES_SPLIT(4)
PANEL_CODES_SPLIT(E2M1)

/* Prefetches of the next rows: some lines for each group of all tiles, until
 * none is left. The number is constant, because a loop whose length varies is
 * mispredicted. */
struct fetch {
    const unsigned char *next;
    size_t lines, left;
};

INLINE void fetch_lines(struct fetch *f)
{
    const size_t n = f->lines < f->left ? f->lines : f->left;

    for (size_t i = 0; i < n; i++, f->next += 64)
        _mm_prefetch(f->next, _MM_HINT_T1);
    f->left -= n;
}

/* Multiply one panel by T tokens. */
struct tile {
    const uint32_t *codes;
    const float *scales, *biases;
    size_t n_groups, group;
    const int8_t *x;
    const float *x_scale, *x_sum;
    size_t ldq, ldg;
    struct tile_y out;
    struct fetch *fetch;
};

/* Compute the integer sums of one group, for V vectors of rows and T tokens. */
INLINE void tile_dots(sums d[TILE_TOKENS][TILE_VECTORS], const uint32_t *w,
                      const int8_t *x, size_t ldq, size_t n_quads, int V, int T)
{
    const uint32_t *const end = w + n_quads * PANEL_ROWS;

    UNROLL
    for (int t = 0; t < T; t++) {
        UNROLL
        for (int v = 0; v < V; v++)
            d[t][v] = no_sums();
    }
    for (; w < end; w += PANEL_ROWS, x += 4) {
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
            UNROLL
            for (int v = 0; v < V; v++)
                d[t][v] = dot4(d[t][v], wv[v], xv);
        }
    }
}

INLINE void tile_run(const struct tile *s, int V, int T)
{
    const uint32_t *w = s->codes;
    const float *scales = s->scales, *biases = s->biases;
    const int8_t *x = s->x;
    struct fetch f = *s->fetch;
    __m512 a[TILE_TOKENS][TILE_VECTORS];

    tile_load(a, s->out, V, T);
    FORGET(s);
    for (size_t g = 0; g < s->n_groups; g++) {
        sums d[TILE_TOKENS][TILE_VECTORS];

        fetch_lines(&f);
        UNROLL
        for (int t = 0; t < T; t++)
            _mm_prefetch((const char *)x + (size_t)(TILE_TOKENS + t) * s->ldq,
                         _MM_HINT_T0);
        tile_dots(d, w, x, s->ldq, s->group / 4, V, T);
        w += s->group / 4 * PANEL_ROWS;
        x += s->group;
        UNROLL
        for (int t = 0; t < T; t++) {
            const size_t at = (size_t)t * s->ldg + g;
            const __m512 scale = _mm512_set1_ps(s->x_scale[at]);
            const __m512 sum = _mm512_set1_ps(s->x_sum[at]);

            UNROLL
            for (int v = 0; v < V; v++) {
                __m512 by =
                    _mm512_mul_ps(_mm512_load_ps(scales + 16 * v), scale);

                a[t][v] = _mm512_fmadd_ps(to_floats(d[t][v]), by, a[t][v]);
                a[t][v] = _mm512_fmadd_ps(_mm512_load_ps(biases + 16 * v), sum,
                                          a[t][v]);
            }
        }
        scales += PANEL_ROWS;
        biases += PANEL_ROWS;
        FORGET(s);
    }
    tile_store(a, s->out, V, T);
    *s->fetch = f;
}

#define TILE(V, T)                                   \
    static void tile_##V##_##T(const struct tile *s) \
    {                                                \
        tile_run(s, V, T);                           \
    }

EACH_3(TILE, 1)
EACH_3(TILE, 2)
EACH_3(TILE, 3)
EACH_3(TILE, 4)

static void (*const tiles[TILE_VECTORS][TILE_TOKENS])(const struct tile *) = {
    ROW_3(tile_1), ROW_3(tile_2), ROW_3(tile_3), ROW_3(tile_4)};

/* Multiply one panel by n tokens, in tiles whose numbers of tokens differ by at
 * most one: a tile of one token loads nearly as much as one of two. */
static void panel_run(struct tile s, size_t n)
{
    const size_t n_tiles = (n + TILE_TOKENS - 1) / TILE_TOKENS;
    size_t large = n - n / n_tiles * n_tiles;

    for (size_t left = n; left > 0;) {
        const size_t T = n / n_tiles + (large > 0);

        large -= large > 0;
        left -= T;
        tiles[(s.out.nr - 1) / 16][T - 1](&s);
        s.x += T * s.ldq;
        s.x_scale += T * s.ldg;
        s.x_sum += T * s.ldg;
        s.out.y += T * s.out.ldy;
    }
}

/* Multiply NUMBERS groups of at most PANEL_ROWS rows by n tokens, from column
 * k0 on. split: x is in the order of panel_codes_split. */
static void many_groups(struct tile s, const struct affine *w, size_t r,
                        size_t k0, size_t nk, size_t n, bool split,
                        struct panel *p)
{
    panel_numbers(p->scales, p->biases, w, r, k0, s.out.nr, nk / w->group);
    s.scales = p->scales;
    s.biases = p->biases;
    for (size_t k = 0; k < nk; k += COLS) {
        const size_t cols = nk - k < COLS ? nk - k : COLS;

        (!split ? panel_unpackers[code_width(w)]
         : code_width(w) == E2M1
             ? panel_codes_split_E2M1
             : panel_codes_split_4)(p->codes, w, r, k0 + k, s.out.nr, cols);
        s.n_groups = cols / w->group;
        panel_run(s, n);
        s.x += cols;
        s.x_scale += s.n_groups;
        s.x_sum += s.n_groups;
        s.scales += s.n_groups * PANEL_ROWS;
        s.biases += s.n_groups * PANEL_ROWS;
        s.out.resume = true;
    }
}

/* Prefetch the scales or biases of the rows after r that are PANEL_ROWS rows
 * and NUMBERS groups. */
INLINE void fetch_numbers(const unsigned char *p, size_t stride, size_t bytes)
{
    const size_t all = (PANEL_ROWS - 1) * stride + bytes;

    if (stride <= 64)
        for (size_t i = 0; i < all; i += 64)
            _mm_prefetch(p + i, _MM_HINT_T1);
    else
        for (size_t i = 0; i < PANEL_ROWS; i++)
            _mm_prefetch(p + i * stride, _MM_HINT_T1);
}

/* Multiply at most PANEL_ROWS rows by n tokens. x begins with the first of
 * them. */
static void many_rows(float *y, size_t ldy, const struct affine *w, size_t r,
                      size_t nr, const struct q8 *x, size_t n, size_t n_cols,
                      bool add, bool split, struct panel *p)
{
    const size_t span = NUMBERS * w->group;
    const size_t lines = PANEL_ROWS * w->q_stride / 64;
    const size_t n_groups =
        n_cols / w->group * ((n + TILE_TOKENS - 1) / TILE_TOKENS);
    struct fetch fetch = {.next = row_at(w, r + PANEL_ROWS, 0).q,
                          .lines = (lines + n_groups - 1) / n_groups,
                          .left = lines};

    for (size_t k = 0; k < n_cols; k += span) {
        const size_t nk = n_cols - k < span ? n_cols - k : span;
        const struct row next = row_at(w, r + PANEL_ROWS, k);
        const size_t g = k / w->group;
        const struct tile s = {
            .group = w->group,
            .codes = p->codes,
            .x = x->q + k,
            .x_scale = x->scale + g,
            .x_sum = x->sum + g,
            .ldq = x->ldq,
            .ldg = x->ldg,
            .out = {.y = y + r, .ldy = ldy, .nr = nr, .resume = add || k > 0},
            .fetch = &fetch};

        fetch_numbers(next.scales, w->s_stride,
                      NUMBERS * type_bytes(w->s_type));
        fetch_numbers(next.biases, w->b_stride,
                      NUMBERS * type_bytes(w->b_type));
        many_groups(s, w, r, k, nk, n, split, p);
    }
}

/* Rearrange the activations of n tokens for panel_codes_split. ld is a multiple
 * of 64 and at least n_cols. */
static void split_tokens(int8_t *out, size_t ld, const struct q8 *x,
                         size_t n_cols, size_t n)
{
    const __m512i parted = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));

    for (size_t t = 0; t < n; t++)
        for (size_t k = 0; k < n_cols; k += 64)
            _mm512_store_si512(
                out + t * ld + k,
                _mm512_shuffle_epi8(_mm512_load_si512(x->q + t * x->ldq + k),
                                    parted));
}

static void q8_many(float *y, size_t ldy, const struct affine *w,
                    const struct q8 *x, size_t n_rows, size_t n_cols,
                    size_t n_tokens, bool add, float *work)
{
    /* an odd number of lines, so that tokens spread over all sets of L1 */
    const size_t ld = ((n_cols + 63) / 64 | 1) * 64;
    struct panel *p = (struct panel *)(void *)work;
    int8_t *copy = (int8_t *)(p + 1);
    const bool split =
        w->bits == 4 &&
        n_tokens <= (KERNEL_WORK * sizeof *work - sizeof *p) / ld;
    struct q8 part = *x;

    if (split) {
        split_tokens(copy, ld, x, n_cols, n_tokens);
        part.q = copy;
        part.ldq = ld;
    }
    for (size_t t = 0; t < n_tokens; t += SWEEP) {
        for (size_t r = 0; r < n_rows; r += PANEL_ROWS)
            many_rows(y + t * ldy, ldy, w, r,
                      n_rows - r < PANEL_ROWS ? n_rows - r : PANEL_ROWS, &part,
                      n_tokens - t < SWEEP ? n_tokens - t : SWEEP, n_cols, add,
                      split, p);
        part.q += SWEEP * part.ldq;
        part.scale += SWEEP * part.ldg;
        part.sum += SWEEP * part.ldg;
    }
}

#endif
