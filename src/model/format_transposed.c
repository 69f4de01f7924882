/* AWQ and GPTQ (transposed.h). Products take repacked copies (repack.c); what is
 * here reads the tensors in place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/tensors.h"
#include "model/transposed.h"
#include "model/weights.h"

/* ---- elements ------------------------------------------------------------ */

static size_t row_bytes(const struct matrix *w, size_t i)
{
    (void)i;
    return w->cols / 8 * (size_t)w->bits;
}

/* The code that has bits [bit, bit + bits) of a run of words, which are `step`
 * words apart. */
static unsigned code_in(const struct st_tensor *t, size_t first, size_t step,
                        size_t bit, int bits)
{
    size_t i = first + bit / 32 * step, shift = bit % 32;
    uint64_t v = transposed_word(t, i);
    if (shift + (size_t)bits > 32)
        v |= (uint64_t)transposed_word(t, i + step) << 32;
    return (unsigned)(v >> shift) & ((1u << bits) - 1);
}

static unsigned code_at(const struct transposed *t, size_t row, size_t col)
{
    if (t->awq)
        return transposed_word(t->codes, col * (t->rows / 8) + row / 8) >>
                   4 * transposed_awq_place[row % 8] &
               15;
    return code_in(t->codes, row, t->rows, col * (size_t)t->bits, t->bits);
}

int transposed_zero(const struct transposed *t, size_t g, size_t row)
{
    if (!t->zeros)
        return 1 << (t->bits - 1);
    if (t->awq)
        return (int)(transposed_word(t->zeros, g * (t->rows / 8) + row / 8) >>
                         4 * transposed_awq_place[row % 8] &
                     15);
    size_t words = t->rows / 32 * (size_t)t->bits +
                   t->rows % 32 * (size_t)t->bits / 32;
    return (int)code_in(t->zeros, g * words, 1, row * (size_t)t->bits,
                        t->bits) +
           t->zero_plus;
}

/* In the order of the matrix's columns. */
static void to_f32(const struct kernels *k, float *out, const struct matrix *w,
                   size_t row, size_t n_rows)
{
    const struct transposed *t = w->stored;
    const enum dtype type = t->scales->dtype;
    row += w->first;
    for (size_t r = row; r < row + n_rows; r++, out += w->cols) {
        size_t last = SIZE_MAX;
        float scale = 0, zero = 0;
        for (size_t c = 0; c < w->cols; c++) {
            size_t g = t->g_idx ? transposed_word(t->g_idx, c) : c / t->group;
            if (g != last) {
                k->to_f32[type](&scale,
                                t->scales->data + (g * t->rows + r) *
                                                      dtype_bytes(type),
                                1);
                zero = (float)transposed_zero(t, g, r);
                last = g;
            }
            out[c] = ((float)code_at(t, r, c) - zero) * scale;
        }
    }
}

bool transposed_in_order(const struct transposed *t)
{
    for (size_t c = 1; t->g_idx && c < t->cols; c++)
        if (transposed_word(t->g_idx, c - 1) > transposed_word(t->g_idx, c))
            return false;
    return true;
}

static bool row_codes(const struct kernels *k, const struct matrix *w,
                      size_t row, unsigned char *codes, float *scales,
                      float *biases)
{
    const struct transposed *t = w->stored;
    const enum dtype type = t->scales->dtype;
    row += w->first;
    if (!transposed_in_order(t))
        return false;
    for (size_t c = 0; codes && c < t->cols; c++)
        codes[c] = (unsigned char)code_at(t, row, c);
    for (size_t g = 0; g < t->cols / t->group; g++) {
        k->to_f32[type](scales + g,
                        t->scales->data +
                            (g * t->rows + row) * dtype_bytes(type),
                        1);
        biases[g] = -(float)transposed_zero(t, g, row) * scales[g];
    }
    return true;
}

static void view(struct matrix *out, const struct matrix *stack, size_t row)
{
    out->first = stack->first + row;
}

static void fill(struct format_ops *ops, const struct kernels *k, bool exact)
{
    (void)k, (void)exact;
    *ops = (struct format_ops){.to_f32 = to_f32};
}

/* ---- binding ------------------------------------------------------------- */

/* One tensor of a module. */
static const struct st_tensor *
find_part(struct weights *w, const char *module, const char *tail,
          const size_t *dims, size_t rank, const char *why, struct qwick_err *e)
{
    char name[NAMES_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", module, tail);
    return weights_find_dims(w, name, dims, rank, why, e);
}

static int need_words(const struct weights *w, const struct st_tensor *t,
                      struct qwick_err *e)
{
    return !t || t->dtype == DT_I32 || t->dtype == DT_U32
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: %s: tensor %s: dtype %s in the file, must be I32",
                         w->path, t->file, t->name, dtype_name(t->dtype));
}

static bool has_part(const struct weights *w, const char *module,
                     const char *tail)
{
    char name[NAMES_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", module, tail);
    return st_find(w->set, name);
}

/* Each group must have as many columns as the others. */
static int check_groups(const struct weights *w, const struct transposed *t,
                        struct qwick_err *e)
{
    size_t groups = t->cols / t->group;
    size_t *n = calloc(groups, sizeof *n);
    int rc = n ? 0 : err_oom(e, groups * sizeof *n);
    for (size_t c = 0; c < t->cols && !rc; c++) {
        uint32_t g = transposed_word(t->g_idx, c);
        if (g >= groups)
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: %s: tensor %s: column %zu has group %lld, of %zu "
                         "groups",
                         w->path, t->g_idx->file, t->g_idx->name, c,
                         (long long)(int32_t)g, groups);
        else
            n[g]++;
    }
    for (size_t g = 0; g < groups && !rc; g++)
        if (n[g] != t->group)
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: %s: tensor %s: group %zu has %zu columns, but "
                         "group_size is %zu",
                         w->path, t->g_idx->file, t->g_idx->name, g, n[g],
                         t->group);
    free(n);
    return rc;
}

/* The numbers of rows and columns that fill words. */
static int check_shape(const struct weights *w, const struct transposed *t,
                       const char *name, size_t stack, struct qwick_err *e)
{
    size_t unit = t->awq ? 8 : t->bits == 3 ? 32 : 32 / (size_t)t->bits;
    if (stack)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: a stack of matrices is not supported in "
                       "AWQ or GPTQ",
                       w->path, name);
    if (t->cols % t->group || t->cols % 32)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: %zu columns by %s are not a multiple of "
                       "%s.group_size, %zu",
                       w->path, name, t->cols, w->naming.names->config,
                       w->quant->key, t->group);
    if (t->rows % unit)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: %zu rows by %s are not a multiple of "
                       "%zu, as packed zero points need",
                       w->path, name, t->rows, w->naming.names->config, unit);
    return 0;
}

/* Find the tensors of a module. */
static int find_parts(struct weights *w, struct transposed *t,
                      const char *module, struct qwick_err *e)
{
    const struct quant_transposed *q = &w->quant->transposed;
    size_t bits = (size_t)t->bits, groups = t->cols / t->group;
    size_t packed_rows = t->rows / 32 * bits + t->rows % 32 * bits / 32;
    const size_t codes[] = {t->awq ? t->cols : t->cols / 32 * bits,
                            t->awq ? packed_rows : t->rows},
                 zeros[] = {groups, packed_rows}, scales[] = {groups, t->rows};
    char why[48];
    snprintf(why, sizeof why, " (%d bits, group %zu)", t->bits, t->group);
    t->codes = find_part(w, module, NAMES_QWEIGHT, codes, 2, why, e);
    if (!t->codes || need_words(w, t->codes, e))
        return -1;
    t->scales = find_part(w, module, ".scales", scales, 2, why, e);
    if (!t->scales || weights_need_float(w, t->scales, "scales", e))
        return -1;
    if (!q->symmetric || has_part(w, module, ".qzeros")) {
        t->zeros = find_part(w, module, ".qzeros", zeros, 2, why, e);
        if (!t->zeros || need_words(w, t->zeros, e))
            return -1;
    }
    if (t->awq || (!q->any_order && !has_part(w, module, ".g_idx")))
        return 0;
    t->g_idx = find_part(w, module, ".g_idx", &t->cols, 1, "", e);
    return t->g_idx && !need_words(w, t->g_idx, e) ? 0 : -1;
}

bool transposed_shape(const struct quant *q, const struct st_tensor *t,
                      struct matrix_shape *out)
{
    const struct quant_transposed *p = &q->transposed;
    if (p->form == TRANSPOSED_NONE || t->rank != 2 ||
        (t->dtype != DT_I32 && t->dtype != DT_U32))
        return false;
    bool awq = p->form == TRANSPOSED_AWQ;
    *out = (struct matrix_shape){
        .rows = awq ? t->shape[1] * 8 : t->shape[1],
        .cols = awq ? t->shape[0] : t->shape[0] * 32 / (size_t)p->bits};
    return true;
}

static int need_config(const struct weights *w, const char *name,
                       struct qwick_err *e)
{
    return w->quant && w->quant->transposed.form != TRANSPOSED_NONE
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: means weights in AWQ or GPTQ, but "
                         "config.json has no quantization_config of these",
                         w->path, name);
}

static int bind(struct weights *w, struct matrix *out, const char *name,
                const struct matrix_shape *shape, bool *found,
                struct qwick_err *e)
{
    char module[NAMES_BYTES];
    snprintf(module, sizeof module, "%.*s", (int)names_module(name), name);
    *found = has_part(w, module, NAMES_QWEIGHT);
    if (!*found)
        return 0;
    if (need_config(w, name, e))
        return -1;
    const struct quant_transposed *q = &w->quant->transposed;
    struct transposed *t = weights_block(w, sizeof *t, e);
    if (!t)
        return -1;
    *t = (struct transposed){.awq = q->form == TRANSPOSED_AWQ,
                             .bits = q->bits,
                             .rows = shape->rows,
                             .cols = shape->cols,
                             .group = q->group ? q->group : shape->cols,
                             .zero_plus = q->zero_plus};
    if (check_shape(w, t, name, shape->stack, e) ||
        find_parts(w, t, module, e) ||
        (t->g_idx && !w->sizes_only && check_groups(w, t, e)))
        return -1;
    const struct st_tensor *rest[] = {t->scales, t->zeros, t->g_idx};
    weights_use(w, t->codes, t->rows * t->cols, t->bits);
    for (size_t i = 0; i < 3; i++)
        if (rest[i])
            weights_use(w, rest[i], 0, t->bits);
    *out = (struct matrix){.rows = t->rows,
                           .cols = t->cols,
                           .bits = t->bits,
                           .group = t->group,
                           .dtype = t->scales->dtype,
                           .data = {t->codes->data},
                           .stored = t};
    return 0;
}

const struct format format_transposed = {.name = "AWQ or GPTQ",
                                         .n_arrays = 1,
                                         .row_bytes = row_bytes,
                                         .view = view,
                                         .fill = fill,
                                         .bind = bind,
                                         .repack = transposed_repack,
                                         .codes = row_codes};
