/* GGUF's blocks (kernel/blocks.h): a row is a run of blocks, and a matrix one
 * array of rows. The types differ in their kernels alone. A tensor NAME.scale
 * may multiply the elements of NAME.weight: F32 [1], or one number for each
 * matrix of a stack (the second scale of NVFP4). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/names.h"
#include "model/weights.h"

/* Elements whose activations share a scale. */
enum { GROUP = 32 };

/* Rows and columns that are widened to f32 at a time: a few rows for few
 * tokens, so that they stay in L1, more for many. One order of sums: runs of
 * WIDE_COLS columns are added one after another, each in the order of the
 * product of floats. */
enum { WIDE_COLS = 1024, WIDE_ROWS = 32, WIDE_SMALL_M = 4, WIDE_TOKENS = 64 };

/* Behind the memory that the product of floats works in. */
struct wide {
    float rows[WIDE_ROWS * WIDE_COLS];
    float more[WIDE_TOKENS * WIDE_ROWS]; /* sums of all runs but the first */
};

_Static_assert(sizeof(struct wide) <= KERNEL_BLOCKS_WORK * sizeof(float),
               "the caller's memory");

static struct wide *wide_of(const struct row_product *p)
{
    return (struct wide *)(void *)(p->work + KERNEL_WORK);
}

static size_t row_bytes(const struct matrix *w, size_t i)
{
    (void)i;
    return w->cols / dtype_block(w->dtype) * dtype_bytes(w->dtype);
}

/* Columns [from, from + n) of a row; from is a multiple of the block. */
static void widen(const struct kernels *k, float *out, const struct matrix *w,
                  size_t row, size_t from, size_t n)
{
    size_t skip = from / dtype_block(w->dtype) * dtype_bytes(w->dtype);
    k->blocks_to_f32[w->dtype - DT_BLOCKS](out, matrix_row(w, 0, row) + skip,
                                           n);
}

static void to_f32(const struct kernels *k, float *out, const struct matrix *w,
                   size_t row, size_t n_rows)
{
    k->blocks_to_f32[w->dtype - DT_BLOCKS](out, matrix_row(w, 0, row),
                                           n_rows * w->cols);
    for (size_t r = 0; w->factors && r < n_rows; r++)
        k->scale(out + r * w->cols, w->factors[(row + r) / w->each], w->cols);
}

/* What multiplies the results of a product; its rows belong to one matrix. */
static float factor(const struct row_product *p)
{
    return p->w->factors ? p->w->factors[p->row / p->w->each] : 1;
}

static void scale_results(const struct kernels *k, const struct row_product *p,
                          float by)
{
    for (size_t t = 0; by != 1 && t < p->n; t++)
        k->scale(p->y + t * p->ldy, by, p->n_rows);
}

/* Columns [from, from + n) of the rows [row, row + n_rows). */
static void widen_rows(const struct kernels *k, float *out,
                       const struct matrix *w, size_t row, size_t n_rows,
                       size_t from, size_t n)
{
    for (size_t r = 0; r < n_rows; r++)
        widen(k, out + r * n, w, row + r, from, n);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* y[t, r] += products of the widened columns [from, from + n) of n_rows. */
static void add_run(const struct kernels *k, const struct row_product *p,
                    struct wide *m, const float *x, size_t ldx, size_t r,
                    size_t n_rows, size_t from, size_t n)
{
    for (size_t t = 0; t < p->n; t += WIDE_TOKENS) {
        size_t n_tokens = least(p->n - t, WIDE_TOKENS);
        k->matmul_f32[DT_F32](m->more, n_rows, m->rows, n, x + t * ldx + from,
                              ldx, n_rows, n, n_tokens, p->work);
        for (size_t i = 0; i < n_tokens; i++)
            k->add(p->y + (t + i) * p->ldy + r, m->more + i * n_rows, n_rows);
    }
}

static void mul_f32(const struct kernels *k, const struct row_product *p,
                    const float *x, size_t ldx)
{
    const struct matrix *w = p->w;
    struct wide *m = wide_of(p);
    size_t block = p->n > 8 ? WIDE_ROWS : WIDE_SMALL_M;
    for (size_t r = 0; r < p->n_rows; r += block) {
        size_t n_rows = least(p->n_rows - r, block);
        size_t n = least(w->cols, WIDE_COLS);
        widen_rows(k, m->rows, w, p->row + r, n_rows, 0, n);
        k->matmul_f32[DT_F32](p->y + r, p->ldy, m->rows, n, x, ldx, n_rows, n,
                              p->n, p->work);
        for (size_t from = n; from < w->cols; from += n) {
            n = least(w->cols - from, WIDE_COLS);
            widen_rows(k, m->rows, w, p->row + r, n_rows, from, n);
            add_run(k, p, m, x, ldx, r, n_rows, from, n);
        }
    }
    scale_results(k, p, factor(p));
}

/* Before and after a product that adds to y: y / factor + product, times the
 * factor. */
static void begin_product(const struct kernels *k, const struct row_product *p)
{
    if (p->add)
        scale_results(k, p, 1 / factor(p));
}

static void mul_bf16(const struct kernels *k, const struct row_product *p,
                     const uint16_t *x, size_t ldx)
{
    const struct matrix *w = p->w;
    begin_product(k, p);
    k->gemm_bf16_blocks[w->dtype - DT_BLOCKS](
        p->y, p->ldy, matrix_row(w, 0, p->row), row_bytes(w, 0), x, ldx,
        p->n_rows, w->cols, p->n, p->add, p->work);
    scale_results(k, p, factor(p));
}

static void mul_i8(const struct kernels *k, const struct row_product *p,
                   const struct q8 *x)
{
    const struct matrix *w = p->w;
    begin_product(k, p);
    k->gemm_q8_blocks[w->dtype - DT_BLOCKS](
        p->y, p->ldy, matrix_row(w, 0, p->row), row_bytes(w, 0), x, p->n_rows,
        w->cols, p->n, p->add, p->work);
    scale_results(k, p, factor(p));
}

static void view(struct matrix *out, const struct matrix *stack, size_t row)
{
    if (stack->factors)
        out->factors = stack->factors + row / stack->each;
}

static void fill(struct format_ops *ops, const struct kernels *k, bool exact)
{
    *ops = (struct format_ops){.to_f32 = to_f32, .mul_f32 = mul_f32};
    if (exact)
        return;
    ops->mul_i8 = mul_i8;
    if (k->gemm_bf16_blocks[0]) { /* all types or none */
        ops->mul_bf16 = mul_bf16;
        ops->bf16_min_tokens = k->tune.blocks_bf16_min_tokens;
    }
}

/* Whether a scale is for 16 elements. Sums of 16 elements take more arithmetic
 * than sums of 32. One scale for 64 activations, as MLX's groups of 64 have it,
 * saves some of it again. The products of Q2_K, which also has such groups,
 * gain nothing. */
static bool has_short_groups(enum dtype type)
{
    return type == DT_Q3_K || type == DT_Q6_K || type == DT_NVFP4 ||
           type == DT_IQ2_XS || type == DT_IQ2_S || type == DT_IQ1_M;
}

/* Products divide by the factor and multiply by it, so neither may overflow. */
static bool is_usable(float by)
{
    return fabsf(by) >= 0x1p-64f && fabsf(by) <= 0x1p64f;
}

/* Bind NAME.scale, if the file has it. */
static int bind_by(struct weights *w, struct matrix *out, const char *name,
                   const struct matrix_shape *shape, struct qwick_err *e)
{
    const size_t n = shape->stack ? shape->stack : 1;
    char scale[NAMES_BYTES];
    int len = snprintf(scale, sizeof scale, "%.*s.scale",
                       (int)names_module(name), name);
    if (len < 0 || (size_t)len >= sizeof scale || !st_find(w->set, scale))
        return 0;
    const struct st_tensor *t = weights_find_dims(w, scale, &n, 1, "", e);
    if (!t)
        return -1;
    if (t->dtype != DT_F32)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s in the file, must be F32",
                       w->path, t->file, scale, dtype_name(t->dtype));
    out->factors = (const float *)(const void *)t->data;
    out->each = shape->rows;
    for (size_t i = 0; i < n; i++)
        if (!is_usable(out->factors[i]))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: tensor %s: element %zu is %g, must have a "
                           "magnitude from 2^-64 to 2^64",
                           w->path, t->file, scale, i, (double)out->factors[i]);
    weights_use(w, t, 0, out->bits);
    return 0;
}

static int bind_type(struct weights *w, struct matrix *out, const char *name,
                     const struct matrix_shape *shape, enum dtype type,
                     int bits, bool *found, struct qwick_err *e)
{
    if (weights_bind_type(w, out, name, shape, type, bits, found, e))
        return -1;
    if (*found) {
        out->group = GROUP;
        out->paired = has_short_groups(type);
        return bind_by(w, out, name, shape, e);
    }
    return 0;
}

#define BLOCKS(NAME, TYPE, BITS)                                               \
    static int bind_##NAME(struct weights *w, struct matrix *out,              \
                           const char *name, const struct matrix_shape *shape, \
                           bool *found, struct qwick_err *e)                   \
    {                                                                          \
        return bind_type(w, out, name, shape, TYPE, BITS, found, e);           \
    }                                                                          \
    const struct format format_##NAME = {.name = #NAME,                        \
                                         .n_arrays = 1,                        \
                                         .row_bytes = row_bytes,               \
                                         .view = view,                         \
                                         .fill = fill,                         \
                                         .bind = bind_##NAME}

BLOCKS(q4_0, DT_Q4_0, 4);
BLOCKS(q4_1, DT_Q4_1, 4);
BLOCKS(q5_0, DT_Q5_0, 5);
BLOCKS(q5_1, DT_Q5_1, 5);
BLOCKS(q8_0, DT_Q8_0, 8);
BLOCKS(iq4_nl, DT_IQ4_NL, 4);
BLOCKS(mxfp4, DT_MXFP4, 4);
BLOCKS(nvfp4, DT_NVFP4, 4);
BLOCKS(q2_k, DT_Q2_K, 2);
BLOCKS(q3_k, DT_Q3_K, 3);
BLOCKS(q4_k, DT_Q4_K, 4);
BLOCKS(q5_k, DT_Q5_K, 5);
BLOCKS(q6_k, DT_Q6_K, 6);
BLOCKS(iq4_xs, DT_IQ4_XS, 4);
BLOCKS(iq3_xxs, DT_IQ3_XXS, 3);
BLOCKS(iq3_s, DT_IQ3_S, 3);
BLOCKS(iq2_xxs, DT_IQ2_XXS, 2);
BLOCKS(iq2_xs, DT_IQ2_XS, 2);
BLOCKS(iq2_s, DT_IQ2_S, 2);
BLOCKS(iq1_s, DT_IQ1_S, 1);
BLOCKS(iq1_m, DT_IQ1_M, 1);
BLOCKS(tq1_0, DT_TQ1_0, 2);
BLOCKS(tq2_0, DT_TQ2_0, 2);
