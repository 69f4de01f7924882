/* FP8 weights of safetensors in two forms. F8_E4M3 with scales in a tensor of
 * their own beside the elements: one scale for each block of rows and columns,
 * for each row, or for the whole matrix. An element is code * scale, also if
 * the scales' tensor is called inverse.
 *
 * Elements are used in place. Scales are few, so they are copied as f32.
 *
 * MLX's MXFP8 (Open Compute Project, Microscaling Formats 1.0): the same
 * numbers in NAME.weight U32 [.., rows, cols / 4], and one E8M0 scale for each
 * 32 of them in NAME.scales U8 [.., rows, cols / 32], where config.json's
 * quantization has mode mxfp8. Both arrays are used in place. */
#include <stdio.h>
#include <string.h>

#include "kernel/blocks.h"
#include "model/weights.h"

/* From so many tokens on, panels of bf16 weights are faster than rows in f32,
 * which decode needs no panel for. */
enum { BF16_MIN_TOKENS = 12 };

static size_t row_bytes(const struct matrix *w, size_t i)
{
    (void)i;
    return w->cols;
}

/* The matrix from a row on, as the kernels take it. */
static struct fp8 fp8_of(const struct matrix *w, size_t row)
{
    struct fp8 f = w->fp8;
    f.q = matrix_row(w, 0, row);
    f.q_stride = w->cols;
    f.first += row;
    if (w->format == &format_mxfp8) {
        f.mx = matrix_row(w, 1, row);
        f.mx_stride = w->cols / MX_GROUP;
    }
    return f;
}

static void to_f32(const struct kernels *k, float *out, const struct matrix *w,
                   size_t row, size_t n_rows)
{
    struct fp8 f = fp8_of(w, row);
    k->fp8_to_f32(out, &f, n_rows, w->cols);
}

static void mul_f32(const struct kernels *k, const struct row_product *p,
                    const float *x, size_t ldx)
{
    struct fp8 f = fp8_of(p->w, p->row);
    k->matmul_f32_fp8(p->y, p->ldy, &f, x, ldx, p->n_rows, p->w->cols, p->n,
                      p->work);
}

static void mul_bf16(const struct kernels *k, const struct row_product *p,
                     const uint16_t *x, size_t ldx)
{
    struct fp8 f = fp8_of(p->w, p->row);
    k->gemm_bf16_fp8(p->y, p->ldy, &f, x, ldx, p->n_rows, p->w->cols, p->n,
                     p->add, p->work);
}

static void fill(struct format_ops *ops, const struct kernels *k, bool exact)
{
    *ops = (struct format_ops){.to_f32 = to_f32, .mul_f32 = mul_f32};
    if (exact || !k->tune.bf16 || !k->gemm_bf16_fp8)
        return;
    ops->mul_bf16 = mul_bf16;
    ops->bf16_min_tokens = BF16_MIN_TOKENS;
}

/* Each matrix of a stack has its own blocks. */
static void view(struct matrix *out, const struct matrix *stack, size_t row)
{
    size_t blocks = (stack->each + stack->fp8.rows - 1) / stack->fp8.rows;
    out->fp8.scales += row / stack->each * blocks * stack->fp8.ld;
    out->fp8.first += row % stack->each;
}

static bool has_shape(const struct st_tensor *t, const size_t *dims,
                      size_t rank)
{
    return t->rank == rank && memcmp(t->shape, dims, rank * sizeof *dims) == 0;
}

/* Whether t has `each` numbers for each matrix, in this order. Dimensions of 1
 * at the end may be missing. */
static bool has_numbers(const struct st_tensor *t,
                        const struct matrix_shape *shape, size_t each)
{
    const size_t dims[] = {shape->stack, each, 1};
    const size_t *from = shape->stack ? dims : dims + 1;
    size_t rank = shape->stack ? 3 : 2;
    do
        if (has_shape(t, from, rank))
            return true;
    while (rank > 0 && from[--rank] == 1);
    return false;
}

/* How the scales of a matrix are shared follows from their shape. */
static int find_form(struct weights *w, struct fp8 *out,
                     const struct st_tensor *t,
                     const struct matrix_shape *shape, struct qwick_err *e)
{
    size_t rows = w->quant->block_rows, cols = w->quant->block_cols;
    struct matrix_shape want = {shape->stack, shape->rows, 1};
    char why[64] = " (a scale for each row)";
    if (rows) {
        want.rows = (shape->rows + rows - 1) / rows;
        want.cols = (shape->cols + cols - 1) / cols;
        snprintf(why, sizeof why, " (blocks of %zu x %zu)", rows, cols);
        const size_t dims[] = {want.stack, want.rows, want.cols};
        bool stacked = shape->stack > 0;
        *out = (struct fp8){.ld = want.cols, .rows = rows, .cols = cols};
        if (has_shape(t, stacked ? dims : dims + 1, stacked ? 3 : 2))
            return 0;
    }
    *out = (struct fp8){.ld = 1, .rows = 1, .cols = shape->cols};
    if (has_numbers(t, shape, shape->rows))
        return 0;
    out->rows = shape->rows;
    if (has_numbers(t, shape, 1))
        return 0;
    return weights_find(w, t->name, &want, why, e) ? 0 : -1;
}

/* The scales' tensor of the elements `name`. */
static const struct st_tensor *
find_scales(const struct weights *w, const char *name, struct qwick_err *e)
{
    static const char *const tails[] = {"_scale_inv", "_scale", "_scales_inv"};
    char scales[NAMES_BYTES + 16];
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        snprintf(scales, sizeof scales, "%s%s", name, tails[i]);
        const struct st_tensor *t = st_find(w->set, scales);
        if (t)
            return t;
    }
    err_set(e, QWICK_ERR_MODEL,
            "%s: tensor %s%s: missing, but %s has dtype F8_E4M3", w->path, name,
            tails[0], name);
    return NULL;
}

static int bind_scales(struct weights *w, struct matrix *out,
                       const struct st_tensor *t,
                       const struct matrix_shape *shape, struct qwick_err *e)
{
    if (weights_need_float(w, t, "scales", e) ||
        find_form(w, &out->fp8, t, shape, e))
        return -1;
    out->fp8.scales = weights_floats(w, t, e);
    weights_use(w, t, 0, out->bits);
    return out->fp8.scales ? 0 : -1;
}

static int bind(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e)
{
    struct matrix m;
    if (weights_bind_type(w, &m, name, shape, DT_F8_E4M3, 8, found, e))
        return -1;
    if (!*found)
        return 0;
    if (!w->quant || !w->quant->fp8)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: dtype F8_E4M3 is not supported without "
                       "a quantization_config of FP8 weights in config.json",
                       w->path, name);
    m.each = shape->rows;
    const struct st_tensor *scales = find_scales(w, name, e);
    if (!scales || bind_scales(w, &m, scales, shape, e))
        return -1;
    *out = m;
    return 0;
}

/* Products are those of floats: in bf16, or in f32. */
const struct format format_fp8 = {.name = "fp8",
                                  .shown = "FP8",
                                  .is_float = true,
                                  .n_arrays = 1,
                                  .row_bytes = row_bytes,
                                  .view = view,
                                  .fill = fill,
                                  .bind = bind};

/* ---- MXFP8 --------------------------------------------------------------- */

static size_t mx_row_bytes(const struct matrix *w, size_t i)
{
    return w->cols / (i ? MX_GROUP : 1);
}

static const struct st_tensor *mx_tensor(struct weights *w, const char *name,
                                         enum dtype type,
                                         const struct matrix_shape *shape,
                                         struct qwick_err *e)
{
    const struct st_tensor *t = weights_find(w, name, shape, " (MXFP8)", e);
    if (!t || t->dtype == type)
        return t;
    err_set(e, QWICK_ERR_MODEL,
            "%s: %s: tensor %s: dtype %s in the file, must be %s of MXFP8",
            w->path, t->file, name, dtype_name(t->dtype), dtype_name(type));
    return NULL;
}

static int mx_bind(struct weights *w, struct matrix *out, const char *name,
                   const struct matrix_shape *shape, bool *found,
                   struct qwick_err *e)
{
    char module[NAMES_BYTES], scales[NAMES_BYTES + 8];
    const size_t n = names_module(name);
    snprintf(module, sizeof module, "%.*s", (int)n, name);
    snprintf(scales, sizeof scales, "%s.scales", module);
    *found = name[n] && st_find(w->set, scales) && w->quant &&
             quant_find(w->quant, module).mode == QUANT_MXFP8;
    if (!*found)
        return 0;
    if (shape->cols % MX_GROUP)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: %zu columns by %s are not a multiple of "
                       "MXFP8's group of %d",
                       w->path, name, shape->cols, w->naming.names->config,
                       MX_GROUP);
    const struct matrix_shape words = {shape->stack, shape->rows,
                                       shape->cols / 4};
    const struct matrix_shape groups = {shape->stack, shape->rows,
                                        shape->cols / MX_GROUP};
    const struct st_tensor *q = mx_tensor(w, name, DT_U32, &words, e);
    const struct st_tensor *s =
        q ? mx_tensor(w, scales, DT_U8, &groups, e) : NULL;
    if (!s)
        return -1;
    *out = (struct matrix){.dtype = DT_F8_E4M3,
                           .rows = shape_rows(shape),
                           .cols = shape->cols,
                           .bits = 8,
                           .data = {q->data, s->data}};
    weights_use(w, q, out->rows * out->cols, 8);
    weights_use(w, s, 0, 8);
    return 0;
}

const struct format format_mxfp8 = {.name = "mxfp8",
                                    .shown = "MXFP8",
                                    .is_float = true,
                                    .n_arrays = 2,
                                    .row_bytes = mx_row_bytes,
                                    .fill = fill,
                                    .bind = mx_bind};
