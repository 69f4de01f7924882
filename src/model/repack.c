/* Repacking AWQ and GPTQ (transposed.h) to the affine format.
 *
 * Threads take tiles of TILE rows, so that they read whole cache lines of the
 * tensors, and walk their columns by strips. A strip is first made with the
 * rows of a tile side by side, so that all steps are vector operations. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/par.h"
#include "file/map.h"
#include "model/transposed.h"
#include "model/weights.h"

enum { TILE = 128, STRIP = 256, WORDS = STRIP / 4 };

/* The arrays of the affine format. */
enum { CODES, SCALES, ZEROS };

/* One matrix; all threads share it. */
struct repack_job {
    const struct transposed *t;
    const uint32_t *order; /* of columns, or NULL */
    size_t group;          /* of the result: divides t->group */
    unsigned char *out[3];
};

/* Words of a strip's columns, for each row of a tile. */
struct tile {
    _Alignas(64) uint32_t word[WORDS + 1][TILE];
    _Alignas(64) uint32_t from[2][TILE];
};

typedef uint32_t lanes __attribute__((vector_size(16), may_alias));
enum { LANE_WORDS = 4 };

/* Add the codes of n rows, `mask` of the words from, shifted by down, to column
 * `col` of the strip. Rows that the tile does not have are computed as
 * well, and not written. */
static inline void add_codes(struct tile *tile, size_t at, size_t n, size_t col,
                             int bits, const uint32_t *from, int down)
{
    const uint32_t mask = (1u << bits) - 1;
    size_t bit = col * (size_t)bits;
    int up = (int)(bit % 32);
    lanes *to = (lanes *)(tile->word[bit / 32] + at);
    const lanes *in = (const lanes *)from;
    for (size_t r = 0; r < n / LANE_WORDS; r++)
        to[r] |= (in[r] >> down & mask) << up;
    to += TILE / LANE_WORDS;
    for (size_t r = 0; up + bits > 32 && r < n / LANE_WORDS; r++)
        to[r] |= (in[r] >> down & mask) >> (32 - up);
}

/* Row 8 i + j of the tile goes to row i of the j-th eighth. */
static void read_awq(const struct repack_job *job, struct tile *tile,
                     size_t row, size_t n_rows, size_t col, size_t n_cols)
{
    const struct transposed *t = job->t;
    size_t n = n_rows / 8;
    for (size_t c = 0; c < n_cols; c++) {
        memcpy(tile->from[0],
               t->codes->data + ((col + c) * (t->rows / 8) + row / 8) * 4,
               n * 4);
        for (size_t j = 0; j < 8; j++)
            add_codes(tile, j * (TILE / 8), TILE / 8, c, t->bits, tile->from[0],
                      4 * transposed_awq_place[j]);
    }
}

/* Words of n_rows rows from a row of the tensor on. */
static void read_words(const struct transposed *t, uint32_t *out, size_t word,
                       size_t row, size_t n_rows)
{
    memcpy(out, t->codes->data + (word * t->rows + row) * 4, n_rows * 4);
}

static void read_gptq(const struct repack_job *job, struct tile *tile,
                      size_t row, size_t n_rows, size_t col, size_t n_cols)
{
    const struct transposed *t = job->t;
    size_t bits = (size_t)t->bits;
    if (!job->order) { /* whole words */
        for (size_t i = 0; i < n_cols / 32 * bits; i++)
            read_words(t, tile->word[i], col / 32 * bits + i, row, n_rows);
        return;
    }
    for (size_t c = 0; c < n_cols; c++) {
        size_t bit = job->order[col + c] * bits, down = bit % 32;
        read_words(t, tile->from[0], bit / 32, row, n_rows);
        if (down + bits > 32) {
            read_words(t, tile->from[1], bit / 32 + 1, row, n_rows);
            for (size_t r = 0; r < n_rows; r++)
                tile->from[0][r] = tile->from[0][r] >> down |
                                   tile->from[1][r] << (32 - down);
            down = 0;
        }
        add_codes(tile, 0, TILE, c, t->bits, tile->from[0], (int)down);
    }
}

static void write_strip(const struct repack_job *job, const struct tile *tile,
                        size_t row, size_t n_rows, size_t col, size_t n_cols)
{
    const struct transposed *t = job->t;
    size_t bits = (size_t)t->bits, words = n_cols / 32 * bits;
    for (size_t r = 0; r < n_rows; r++) {
        size_t at = t->awq ? r % 8 * (TILE / 8) + r / 8 : r;
        unsigned char *to = job->out[CODES] +
                            ((row + r) * (t->cols / 32) + col / 32) * bits * 4;
        for (size_t i = 0; i < words; i++)
            memcpy(to + 4 * i, &tile->word[i][at], 4);
    }
}

/* Scales and zero points of a tile. */
static void write_numbers(const struct repack_job *job, size_t row,
                          size_t n_rows)
{
    const struct transposed *t = job->t;
    size_t bytes = dtype_bytes(t->scales->dtype);
    size_t groups = t->cols / job->group, each = t->group / job->group;
    for (size_t r = row; r < row + n_rows; r++)
        for (size_t g = 0; g < groups; g++) {
            size_t from = g / each;
            memcpy(job->out[SCALES] + (r * groups + g) * bytes,
                   t->scales->data + (from * t->rows + r) * bytes, bytes);
            job->out[ZEROS][r * groups + g] =
                (unsigned char)transposed_zero(t, from, r);
        }
}

/* Read the tensor in order before tiles walk through it. */
static void read_ahead(const struct st_tensor *t, int tid, int n_threads)
{
    enum { PAGE = 4096 };
    size_t begin, end;
    par_split(t->n_bytes, PAGE, tid, n_threads, &begin, &end);
    if (begin < end)
        (void)os_read_mapping(t->data + begin, end - begin);
}

static void repack_body(void *ctx, struct par_team *team, int tid,
                        int n_threads)
{
    const struct repack_job *job = ctx;
    const struct transposed *t = job->t;
    struct tile tile = {.from = {{0}}};
    size_t begin, end;
    read_ahead(t->codes, tid, n_threads);
    par_barrier(team, tid);
    while (par_next(team, t->rows, TILE, &begin, &end)) {
        for (size_t c = 0; c < t->cols; c += STRIP) {
            size_t n = t->cols - c < STRIP ? t->cols - c : STRIP;
            memset(tile.word, 0, sizeof tile.word);
            (t->awq ? read_awq : read_gptq)(job, &tile, begin, end - begin, c,
                                            n);
            write_strip(job, &tile, begin, end - begin, c, n);
        }
        write_numbers(job, begin, end - begin);
    }
}

/* The columns sorted by their groups; within a group, their order stays. NULL:
 * they are sorted already. */
static int find_order(struct weights *w, const struct transposed *t,
                      const uint32_t **out, struct qwick_err *e)
{
    size_t groups = t->cols / t->group, bytes;
    *out = NULL;
    if (transposed_in_order(t))
        return 0;
    if (size_mul(t->cols, sizeof(uint32_t), &bytes))
        return err_oom(e, SIZE_MAX);
    uint32_t *order = malloc(bytes);
    size_t *next = malloc(groups * sizeof *next);
    if (!order || !next) {
        free(order);
        free(next);
        return err_oom(e, bytes);
    }
    for (size_t g = 0; g < groups; g++)
        next[g] = g * t->group;
    for (size_t c = 0; c < t->cols; c++)
        order[next[transposed_word(t->g_idx, c)]++] = (uint32_t)c;
    free(next);
    *out = weights_order(w, order, t->cols, e);
    return *out ? 0 : -1;
}

/* Zero points of the affine format have a byte. */
static int check_zeros(const struct weights *w, const struct transposed *t,
                       struct qwick_err *e)
{
    size_t groups = t->cols / t->group;
    for (size_t g = 0; t->zero_plus && t->bits == 8 && g < groups; g++)
        for (size_t r = 0; r < t->rows; r++)
            if (transposed_zero(t, g, r) > UINT8_MAX)
                return err_set(e, QWICK_ERR_MODEL,
                               "%s: %s: tensor %s: zero point %d of row %zu in "
                               "group %zu, at most 255 is supported",
                               w->path, t->zeros->file, t->zeros->name,
                               transposed_zero(t, g, r), r, g);
    return 0;
}

static int repack_values(struct weights *w, const struct transposed *t,
                         struct matrix *m, struct qwick_err *e)
{
    struct repack_job job = {.t = t, .group = m->group};
    if (check_zeros(w, t, e) || find_order(w, t, &job.order, e))
        return -1;
    m->order = job.order;
    for (size_t i = 0; i < format_affine.n_arrays; i++) {
        job.out[i] = weights_copy(w, m->rows * format_affine.row_bytes(m, i),
                                  e);
        if (!job.out[i])
            return -1;
        m->data[i] = job.out[i];
    }
    par_run(w->pool, repack_body, &job);
    return 0;
}

int transposed_repack(struct weights *w, struct matrix *m, struct qwick_err *e)
{
    const struct transposed *t = m->stored;
    const struct st_tensor *const all[] = {t->codes, t->scales, t->zeros,
                                           t->g_idx};
    double start = clock_ms();
    m->group = t->group % 128 == 0 ? 128 : t->group % 64 == 0 ? 64 : 32;
    m->bias_dtype = DT_U8;
    m->stored = NULL;
    for (size_t i = 0; i < format_affine.n_arrays; i++)
        m->data[i] = t->codes->data; /* as many values as costs need */
    if (!w->sizes_only && repack_values(w, t, m, e))
        return -1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i])
            continue;
        weights_use_copy(w, all[i]);
        if (!w->sizes_only)
            weights_drop_pages(w, all[i]->data, all[i]->n_bytes);
    }
    w->repack_ms += clock_ms() - start;
    return 0;
}
