/* MXFP4 in safetensors: E2M1 numbers of 4 bits, and one E8M0 scale for each 32
 * elements of a row (Open Compute Project, Microscaling Formats 1.0). Array 0
 * holds the numbers, the first of two in the low half of a byte; array 1 holds
 * the scales. Two layouts have these bytes:
 *
 *   gpt-oss   NAME_blocks U8 [.., rows, cols / 32, 16], NAME_scales U8 [.., rows,
 *             cols / 32]
 *   MLX       NAME.weight U32 [.., rows, cols / 8], NAME.scales U8 [.., rows,
 *             cols / 32], where config.json's quantization has mode mxfp4
 *
 * The kernels are those of affine weights. */
#include <stdio.h>
#include <string.h>

#include "kernel/blocks.h"
#include "model/format_affine.h"
#include "model/weights.h"

enum { NUMBERS, SCALES, GROUP = 32, BLOCK_BYTES = GROUP / 2 };

static size_t row_bytes(const struct matrix *w, size_t i)
{
    return w->cols / (i == NUMBERS ? 2 : GROUP);
}

/* The names of the two tensors, and how the shape of the first one ends: in
 * some dimensions in place of the columns. */
struct layout {
    char numbers[NAMES_BYTES + 8], scales[NAMES_BYTES + 8];
    enum dtype dtype; /* of numbers */
    size_t cols[2], n_cols;
};

/* Whether the checkpoint has the matrix in one of the layouts. */
static bool find_layout(const struct weights *w, const char *name, size_t cols,
                        struct layout *l)
{
    size_t n = names_module(name);
    bool blocks = strcmp(name + n, NAMES_BLOCKS) == 0;
    char module[NAMES_BYTES];
    snprintf(module, sizeof module, "%.*s", (int)n, name);
    snprintf(l->numbers, sizeof l->numbers, "%s", name);
    snprintf(l->scales, sizeof l->scales, "%s%s", module,
             blocks ? "_scales" : ".scales");
    if (blocks) {
        l->dtype = DT_U8;
        l->cols[0] = cols / GROUP;
        l->cols[1] = BLOCK_BYTES;
        l->n_cols = 2;
        return st_find(w->set, l->numbers);
    }
    l->dtype = DT_U32;
    l->cols[0] = cols / 8;
    l->n_cols = 1;
    return name[n] && st_find(w->set, l->scales) && w->quant &&
           quant_find(w->quant, module).mode == QUANT_MXFP4;
}

/* The tensor of this type and shape: `stack` if it is not 0, rows, and the n
 * numbers of cols. */
static const struct st_tensor *find_part(struct weights *w, const char *name,
                                         enum dtype dtype,
                                         const struct matrix_shape *shape,
                                         const size_t *cols, size_t n,
                                         struct qwick_err *e)
{
    size_t dims[4] = {shape->stack, shape->rows}, *from = dims + !shape->stack;
    memcpy(dims + 2, cols, n * sizeof *cols);
    const struct st_tensor *t = weights_find_dims(
        w, name, from, (size_t)(dims + 2 - from) + n, " (MXFP4)", e);
    if (t && t->dtype != dtype) {
        err_set(e, QWICK_ERR_MODEL,
                "%s: %s: tensor %s: dtype %s in the file, must be %s of MXFP4",
                w->path, t->file, name, dtype_name(t->dtype),
                dtype_name(dtype));
        return NULL;
    }
    return t;
}

static int bind(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e)
{
    struct layout l;
    *found = find_layout(w, name, shape->cols, &l);
    if (!*found)
        return 0;
    if (shape->cols % GROUP)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: %zu columns by %s are not a multiple of "
                       "MXFP4's group of %d",
                       w->path, name, shape->cols, w->naming.names->config,
                       GROUP);
    const size_t groups = shape->cols / GROUP;
    const struct st_tensor *numbers =
        find_part(w, l.numbers, l.dtype, shape, l.cols, l.n_cols, e);
    const struct st_tensor *scales =
        numbers ? find_part(w, l.scales, DT_U8, shape, &groups, 1, e) : NULL;
    if (!scales)
        return -1;
    *out = (struct matrix){.dtype = DT_MXFP4,
                           .rows = shape_rows(shape),
                           .cols = shape->cols,
                           .codes = AFFINE_E2M1,
                           .zero = E2M1_OFFSET,
                           .bits = 4,
                           .group = GROUP,
                           .data = {numbers->data, scales->data}};
    weights_use(w, numbers, out->rows * out->cols, out->bits);
    weights_use(w, scales, 0, out->bits);
    return 0;
}

const struct format format_mxfp4_split = {.name = "mxfp4",
                                          .steps = true,
                                          .n_arrays = 2,
                                          .row_bytes = row_bytes,
                                          .fill = affine_fill,
                                          .bind = bind};
