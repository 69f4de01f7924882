/* NVFP4 in safetensors: E2M1 numbers of 4 bits, the first of two in the low
 * half of a byte, and one E4M3 scale for each 16 elements of a row; in two of
 * three layouts, one more scale for the matrix:
 *
 *   compressed-tensors   NAME.weight_packed U8 [rows, cols / 2],
 *                        NAME.weight_scale F8_E4M3 [rows, cols / 16],
 *                        NAME.weight_global_scale F32 [1], which divides
 *   ModelOpt             NAME.weight, NAME.weight_scale as above,
 *                        NAME.weight_scale_2 F32, which multiplies
 *   MLX                  NAME.weight U32 [.., rows, cols / 8], NAME.scales U8
 * [.., rows, cols / 16], where config.json's quantization has mode nvfp4
 *
 * Affine weights have the same kernels. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel/blocks.h"
#include "model/format_affine.h"
#include "model/quant_stored.h"
#include "model/weights.h"

enum { NUMBERS, SCALES, GROUP = 16, UNIT = 32 };

static size_t row_bytes(const struct matrix *w, size_t i)
{
    return w->cols / (i == NUMBERS ? 2 : GROUP);
}

/* How a layout stores a matrix. */
static const struct layout {
    const char *numbers, *scales;
    enum dtype type, scales_type; /* type: of numbers */
    size_t per_word;
    const char *global; /* NULL: there is none */
    bool divides;       /* global does */
} layouts[] = {{".weight_packed", ".weight_scale", DT_U8, DT_F8_E4M3, 2,
                ".weight_global_scale", true},
               {".weight", ".weight_scale", DT_U8, DT_F8_E4M3, 2,
                ".weight_scale_2", false},
               {".weight", ".scales", DT_U32, DT_U8, 8, NULL, false}};

enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* Whether config.json or the name of a scale says that a matrix is ModelOpt's.
 */
static bool is_stored(const struct weights *w, const char *scales)
{
    return st_find(w->set, scales) || (w->quant && w->quant->stored.groups);
}

/* The layout of a matrix, if it is one of these. */
static const struct layout *find_layout(const struct weights *w,
                                        const char *name, const char *module)
{
    const struct st_tensor *t = st_find(w->set, name);
    for (size_t i = 0; i < N_LAYOUTS && t; i++) {
        const struct layout *l = &layouts[i];
        if (strcmp(name + strlen(module), l->numbers) != 0)
            continue;
        char scales[NAMES_BYTES + 32];
        snprintf(scales, sizeof scales, "%s%s", module, l->scales);
        if (l->global
                ? t->dtype == l->type && (l->divides || is_stored(w, scales))
                : st_find(w->set, scales) && w->quant &&
                      quant_find(w->quant, module).mode == QUANT_NVFP4)
            return l;
    }
    return NULL;
}

/* The tensor NAME + tail of this type and shape. */
static const struct st_tensor *need_tensor(struct weights *w,
                                           const char *module, const char *tail,
                                           enum dtype type,
                                           const struct matrix_shape *shape,
                                           struct qwick_err *e)
{
    char name[NAMES_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", module, tail);
    const struct st_tensor *t = weights_find(w, name, shape, " (NVFP4)", e);
    if (!t || t->dtype == type)
        return t;
    err_set(e, QWICK_ERR_MODEL,
            "%s: %s: tensor %s: dtype %s in the file, must be %s of NVFP4",
            w->path, t->file, name, dtype_name(t->dtype), dtype_name(type));
    return NULL;
}

/* The scale of the whole matrix, which is one number. */
static int read_global(struct weights *w, const char *module,
                       const struct layout *l, float *out, struct qwick_err *e)
{
    char name[NAMES_BYTES + 32];
    snprintf(name, sizeof name, "%s%s", module, l->global);
    const struct st_tensor *t = st_find(w->set, name);
    float v = 1;
    if (!t)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: missing, but %s%s holds NVFP4", w->path,
                       name, module, l->numbers);
    if (t->dtype != DT_F32 || t->n_bytes != sizeof v)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: must be one number of type F32, is "
                       "%zu bytes of %s",
                       w->path, t->file, name, t->n_bytes,
                       dtype_name(t->dtype));
    weights_use(w, t, 0, 4);
    if (!w->sizes_only)
        memcpy(&v, t->data, sizeof v);
    *out = l->divides ? 1 / v : v;
    return v != 0 && isfinite(v) && isfinite(*out)
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: %s: tensor %s: must be a number other than 0, is "
                         "%g",
                         w->path, t->file, name, (double)v);
}

static int bind(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e)
{
    char module[NAMES_BYTES];
    snprintf(module, sizeof module, "%.*s", (int)names_module(name), name);
    const struct layout *l = find_layout(w, name, module);
    float global = 1;
    *found = l != NULL;
    if (!l)
        return 0;
    /* ModelOpt may describe itself in a file of its own; the tensors suffice */
    if (l->global && (l->divides || (w->quant && w->quant->key)) &&
        !quant_stored_find(w->quant, module, STORED_NVFP4, w->path, name, e))
        return -1;
    if (shape->cols % UNIT)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: %zu columns by %s are not a multiple of "
                       "%d, which NVFP4 needs",
                       w->path, name, shape->cols, w->naming.names->config,
                       UNIT);
    if (l->global && shape->stack)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: a stack of %zu matrices in NVFP4 is not "
                       "supported",
                       w->path, name, shape->stack);
    const struct matrix_shape codes = {shape->stack, shape->rows,
                                       shape->cols / l->per_word};
    const struct matrix_shape groups = {shape->stack, shape->rows,
                                        shape->cols / GROUP};
    const struct st_tensor *numbers =
        need_tensor(w, module, l->numbers, l->type, &codes, e);
    const struct st_tensor *scales =
        numbers ? need_tensor(w, module, l->scales, l->scales_type, &groups, e)
                : NULL;
    if (!scales || (l->global && read_global(w, module, l, &global, e)))
        return -1;
    *out = (struct matrix){.dtype = DT_F8_E4M3,
                           .codes = AFFINE_E2M1,
                           .zero = E2M1_OFFSET,
                           .by = global / 2, /* codes are doubled */
                           .rows = shape_rows(shape),
                           .cols = shape->cols,
                           .bits = 4,
                           .group = GROUP,
                           .data = {numbers->data, scales->data}};
    weights_use(w, numbers, out->rows * out->cols, out->bits);
    weights_use(w, scales, 0, out->bits);
    return 0;
}

const struct format format_nvfp4_split = {.name = "nvfp4",
                                          .shown = "NVFP4",
                                          .steps = true,
                                          .n_arrays = 2,
                                          .row_bytes = row_bytes,
                                          .fill = affine_fill,
                                          .bind = bind};
