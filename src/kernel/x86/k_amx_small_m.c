/* Products of bf16 weights and few tokens for AMX. Each weight is used once, so
 * the limit is memory bandwidth, and the order of memory accesses matters.
 *
 * Loading tiles whose rows are far apart is the worst order: it gets two thirds
 * of the bandwidth of a sequential read. So weights move in three stages.
 * Blocks of SIDE rows are prefetched into L2 in the order of memory, one block
 * ahead. From L2, chunks of RUN lines of each row are copied to L1, tile by
 * tile. While a chunk is copied, the previous one is multiplied: a tile of
 * weights by up to MOST_TILES tiles of tokens. Tokens are packed beforehand and
 * stay in L2.
 *
 * Order of sums: each row and token has one accumulator that takes all columns
 * packed at once, 32 at a time; of these, the even columns and the odd columns
 * are summed first. */
#include <string.h>

#include "kernel/x86/k_amx_pack.h"

enum {
    MOST_TILES = AMX_SMALL_M_MAX / SIDE, /* tiles of tokens */
    RUN = 8,
    RUN_BYTES = RUN * LINE,
    CHUNK_COLS = RUN * DEPTH,
    CHUNK_BYTES = RUN * TILE_BYTES,
    X_BYTES = 256 << 10, /* memory for packed tokens: a part of L2 */
    HELD = 16,           /* blocks whose sums are stored in y together */
    NARROW = SIDE / 2    /* tokens of half a tile */
};

/* The memory of a call. All parts are 64-byte aligned. */
struct memory {
    char packed[X_BYTES]; /* tokens */
    char chunks[2][CHUNK_BYTES];
    float held[HELD * MOST_TILES * SIDE * SIDE];
};

_Static_assert(sizeof(struct memory) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

struct small_m {
    float *y;
    size_t ldy;
    const char *w;
    size_t w_bytes; /* from row to row */
    const char *x;  /* packed [DEPTH][tile of tokens][pair][token] */
    size_t n_rows, n_cols, n_tokens;
    bool add;
    struct memory *memory;
};

/* ---- moving weights ----------------------------------------------------- */

/* Runs of RUN lines to prefetch, in the order of memory. */
struct fetch {
    const char *at;
    size_t step; /* RUN_BYTES; 0 if there is nothing to fetch */
    size_t run;  /* number of the current run in its row */
    size_t runs; /* of a row */
    size_t gap;  /* bytes from the last run of a row to the next row */
};

/* One chunk to copy. */
struct copy {
    char *to; /* [line][row], tile by tile; NULL: nothing to copy */
    const char *at;
    size_t stride;
    size_t rows;
};

/* Copy row r of a chunk, and prefetch an equal number of lines. The loop is not
 * unrolled: otherwise too many lines are outstanding, which costs a tenth of
 * the bandwidth. */
INLINE void copy_row(struct copy *c, size_t r, struct fetch *f)
{
    char *to = c->to + r * LINE;

#pragma GCC unroll 1
    for (size_t l = 0; l < RUN; l++) {
        sweep_by(f->at, l * LINE, true);
        _mm512_store_si512(to + l * TILE_BYTES,
                           _mm512_loadu_si512(c->at + l * LINE));
    }
    if (r + 1 < c->rows)
        c->at += c->stride; /* for missing rows, copy the last row again */
    f->at += f->step;
    if (++f->run == f->runs) {
        f->run = 0;
        f->at += f->gap;
    }
}

/* ---- products ----------------------------------------------------------- */

static void configure(size_t rows, bool narrow)
{
    const int columns = narrow ? SIDE : 2 * SIDE;
    struct tile_config c = {.palette = 1};

    for (int i = 0; i < MOST_TILES; i++)
        tile_shape(&c, i, (int)rows, columns);
    tile_shape(&c, 4, (int)rows, DEPTH);
    tile_shape(&c, 6, SIDE, columns);
    tile_shape(&c, 7, SIDE, columns);
    TILE_CONFIGURE(c);
}

/* Bytes of packed tokens for each DEPTH. */
INLINE size_t depth_bytes(int tiles, bool narrow)
{
    return narrow ? TILE_BYTES / 2 : (size_t)tiles * TILE_BYTES;
}

/* Multiply one tile of weights by all tokens. tmm0 to 3: sums; 4: weights; 6
 * and 7: tokens, loaded past L1 if they are too many for it. */
INLINE void multiply_tile(const char *w, const char *x, int tiles, bool narrow)
{
    TILE_LOAD(4, w, LINE);
    if (tiles > 1)
        TILE_STREAM(6, x, LINE);
    else
        TILE_LOAD(6, x, narrow ? LINE / 2 : LINE);
    TILE_DOT(0, 4, 6);
    if (tiles > 1) {
        TILE_STREAM(7, x + TILE_BYTES, LINE);
        TILE_DOT(1, 4, 7);
    }
    if (tiles > 2) {
        TILE_STREAM(6, x + 2 * TILE_BYTES, LINE);
        TILE_DOT(2, 4, 6);
    }
    if (tiles > 3) {
        TILE_STREAM(7, x + 3 * TILE_BYTES, LINE);
        TILE_DOT(3, 4, 7);
    }
}

/* Multiply one chunk, and copy another one meanwhile. */
INLINE void chunk_run(const char *w, const char *x, int tiles, bool narrow,
                      struct copy *copy, struct fetch *fetch)
{
    for (size_t d = 0; d < RUN; d++) {
        multiply_tile(w + d * TILE_BYTES, x, tiles, narrow);
        x += depth_bytes(tiles, narrow);
        for (size_t r = 0; copy->to && r < SIDE / RUN; r++)
            copy_row(copy, d * (SIDE / RUN) + r, fetch);
    }
}

/* Multiply the last nk < CHUNK_COLS columns of a block. */
INLINE void ragged_run(const char *w, size_t stride, size_t rows, size_t nk,
                       const char *x, int tiles, bool narrow)
{
    _Alignas(64) char tile[TILE_BYTES];

    for (size_t k = 0; k < nk; k += DEPTH) {
        for (size_t r = 0; r < rows; r++)
            _mm512_store_si512(tile + r * LINE,
                               load_columns(w + r * stride + k * 2, nk - k));
        multiply_tile(tile, x, tiles, narrow);
        x += depth_bytes(tiles, narrow);
    }
}

INLINE void zero_sums(int tiles)
{
    TILE_ZERO(0);
    if (tiles > 1)
        TILE_ZERO(1);
    if (tiles > 2)
        TILE_ZERO(2);
    if (tiles > 3)
        TILE_ZERO(3);
}

/* [tile of tokens][row][SIDE tokens] */
INLINE void hold_sums(float *to, int tiles)
{
    TILE_STORE(0, to, LINE);
    if (tiles > 1)
        TILE_STORE(1, to + SIDE * SIDE, LINE);
    if (tiles > 2)
        TILE_STORE(2, to + 2 * SIDE * SIDE, LINE);
    if (tiles > 3)
        TILE_STORE(3, to + 3 * SIDE * SIDE, LINE);
}

/* Transpose the held sums of `rows` rows and store them in y. */
static void turn_sums(const struct small_m *p, float *y, const float *from,
                      size_t rows)
{
    const __mmask16 in = first_lanes(rows);

    for (size_t t0 = 0; t0 < p->n_tokens; t0 += SIDE, from += SIDE * SIDE) {
        __m512i v[SIDE];

        UNROLL
        for (size_t i = 0; i < SIDE; i++)
            v[i] = _mm512_load_si512(from + i * SIDE);
        transpose16(v);
        for (size_t i = 0; i < at_most(p->n_tokens - t0, SIDE); i++) {
            float *to = y + (t0 + i) * p->ldy;
            __m512 sum = (__m512)v[i];

            if (p->add)
                sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(in, to));
            _mm512_mask_storeu_ps(to, in, sum);
        }
    }
}

INLINE void small_m_run(const struct small_m *p, int tiles, bool narrow)
{
    char(*const chunks)[CHUNK_BYTES] = p->memory->chunks;
    float *const held = p->memory->held;
    const size_t stride = p->w_bytes, n_chunks = p->n_cols / CHUNK_COLS;
    const size_t ragged = p->n_cols % CHUNK_COLS;
    const size_t x_bytes = depth_bytes(tiles, narrow);
    const size_t block_floats = (size_t)tiles * SIDE * SIDE;
    struct fetch none = {.at = chunks[0]};
    struct copy first = {.to = chunks[0],
                         .at = p->w,
                         .stride = stride,
                         .rows = at_most(p->n_rows, SIDE)};
    size_t now = 0;

    /* narrow tiles leave gaps that turn_sums also reads */
    memset(held, 0, sizeof p->memory->held);
    for (size_t r = 0; r < SIDE && n_chunks; r++)
        copy_row(&first, r, &none);
    for (size_t r = 0; r < p->n_rows; r += SIDE) {
        const size_t rows = at_most(p->n_rows - r, SIDE);
        const size_t later = at_most(p->n_rows - r - rows, SIDE);
        const size_t slot = r / SIDE % HELD;
        const char *w = p->w + r * stride, *next = w + SIDE * stride;
        struct fetch fetch = none;

        if (later) {
            fetch.at = next;
            fetch.step = RUN_BYTES;
            fetch.runs = n_chunks;
            fetch.gap = stride - n_chunks * RUN_BYTES;
        }
        if (r == 0 || rows < SIDE)
            configure(rows, narrow);
        zero_sums(tiles);
        for (size_t c = 0; c < n_chunks; c++, now ^= 1) {
            struct copy copy = {.stride = stride};

            if (c + 1 < n_chunks) {
                copy.to = chunks[!now];
                copy.at = w + (c + 1) * RUN_BYTES;
                copy.rows = rows;
            } else if (later) {
                copy.to = chunks[!now];
                copy.at = next;
                copy.rows = later;
            }
            chunk_run(chunks[now], p->x + c * RUN * x_bytes, tiles, narrow,
                      &copy, &fetch);
        }
        ragged_run(w + n_chunks * RUN_BYTES, stride, rows, ragged,
                   p->x + n_chunks * RUN * x_bytes, tiles, narrow);
        hold_sums(held + slot * block_floats, tiles);
        if (slot + 1 < HELD && later)
            continue;
        for (size_t s = 0; s <= slot; s++) {
            const size_t at = r - (slot - s) * SIDE;

            turn_sums(p, p->y + at, held + s * block_floats, p->n_rows - at);
        }
    }
    TILE_RELEASE();
}

#define SMALL_M(name, tiles, narrow)          \
    static void name(const struct small_m *p) \
    {                                         \
        small_m_run(p, tiles, narrow);        \
    }

SMALL_M(small_m_narrow, 1, true)
SMALL_M(small_m_1, 1, false)
SMALL_M(small_m_2, 2, false)
SMALL_M(small_m_3, 3, false)
SMALL_M(small_m_4, 4, false)

/* ---- tokens ------------------------------------------------------------- */

/* Pack n tokens of nk columns to [DEPTH][tile][pair][token]. */
static void pack_tokens(char *out, const char *x, size_t stride, size_t n,
                        size_t nk)
{
    for (size_t k = 0; k < nk; k += DEPTH)
        for (size_t t = 0; t < n; t += SIDE, out += TILE_BYTES)
            pack_some(out, x + t * stride + k * 2, stride, n - t, nk - k);
}

/* pack_tokens for one tile of NARROW tokens. */
static void pack_narrow(char *out, const char *x, size_t stride, size_t n,
                        size_t nk)
{
    enum { HALF = LINE / 2 };
    _Alignas(64) char tile[TILE_BYTES];

    for (size_t k = 0; k < nk; k += DEPTH) {
        pack_some(tile, x + k * 2, stride, n, nk - k);
        for (size_t i = 0; i < SIDE; i++, out += HALF)
            memcpy(out, tile + i * LINE, HALF);
    }
}

/* Prefetch the first block of weights into L2. */
static void fetch_first(const struct small_m *p)
{
    for (size_t r = 0; r < at_most(p->n_rows, SIDE); r++)
        for (size_t i = 0; i < p->n_cols * 2; i += LINE)
            sweep_by(p->w + r * p->w_bytes, i, true);
}

void k_gemm_bf16_small_m_amx(float *y, size_t ldy, const void *w,
                             size_t w_stride, const void *x, size_t ldx,
                             size_t n_rows, size_t n_cols, size_t n_tokens,
                             bool add, float *work)
{
    static void (*const run[])(const struct small_m *) = {
        NULL, small_m_1, small_m_2, small_m_3, small_m_4};
    struct memory *memory = (struct memory *)(void *)work;
    const bool narrow = n_tokens <= NARROW;
    const size_t tiles = (n_tokens + SIDE - 1) / SIDE;
    const size_t most = X_BYTES / TILE_BYTES / tiles * DEPTH;
    const size_t cols = most / CHUNK_COLS * CHUNK_COLS;

    for (size_t k = 0; n_rows > 0 && k < n_cols; k += cols) {
        const struct small_m p = {.y = y,
                                  .ldy = ldy,
                                  .w = (const char *)w + k * 2,
                                  .w_bytes = w_stride * 2,
                                  .x = memory->packed,
                                  .n_rows = n_rows,
                                  .n_cols = at_most(n_cols - k, cols),
                                  .n_tokens = n_tokens,
                                  .add = add || k > 0,
                                  .memory = memory};

        fetch_first(&p);
        (narrow ? pack_narrow : pack_tokens)(memory->packed,
                                             (const char *)x + k * 2, ldx * 2,
                                             n_tokens, p.n_cols);
        (narrow ? small_m_narrow : run[tiles])(&p);
    }
}
