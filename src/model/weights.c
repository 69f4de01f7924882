#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kernel/kernel.h"

/* Of a tensor's full name; no name that is asked for comes near. */
enum { NAME_BYTES = 160 };

int weights_open(struct weights *w, const struct st_set *set, const char *path,
                 struct qwick_err *e)
{
    *w = (struct weights){.set = set, .path = path, .prefix = "model."};
    /* Qwen3-Embedding's checkpoints were saved from the bare model. */
    if (!st_find(set, "model.embed_tokens.weight") &&
        st_find(set, "embed_tokens.weight"))
        w->prefix = "";
    w->used = calloc(st_count(set) + 1, sizeof *w->used);
    return w->used ? 0 : err_oom(e, st_count(set));
}

void weights_close(struct weights *w)
{
    free(w->used);
    w->used = NULL;
}

static void shape_text(const struct st_tensor *t, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < t->rank && at < n; i++) {
        int len =
            snprintf(out + at, n - at, "%s%zu", i ? ", " : "", t->shape[i]);
        at += len > 0 ? (size_t)len : 0;
    }
}

/* The tensor, if it has this shape: [rows] or [rows, cols]. why ends the error
 * about another one: "", or the parameters that the shape follows from. */
static const struct st_tensor *find(struct weights *w, const char *name,
                                    size_t rows, size_t cols, bool vector,
                                    const char *why, struct qwick_err *e)
{
    const struct st_tensor *t = st_find(w->set, name);
    if (!t) {
        err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: missing", w->path, name);
        return NULL;
    }
    bool fits =
        vector ? t->rank == 1 && t->shape[0] == rows
               : t->rank == 2 && t->shape[0] == rows && t->shape[1] == cols;
    if (!fits) {
        char got[128], want[64];
        shape_text(t, got, sizeof got);
        if (vector)
            snprintf(want, sizeof want, "%zu", rows);
        else
            snprintf(want, sizeof want, "%zu, %zu", rows, cols);
        err_set(e, QWICK_ERR_MODEL,
                "%s: %s: tensor %s: shape [%s] in the file, [%s] by "
                "config.json%s",
                w->path, t->file, name, got, want, why);
        return NULL;
    }
    return t;
}

static int need_float(const struct weights *w, const struct st_tensor *t,
                      const char *what, struct qwick_err *e)
{
    return t->dtype < DT_N_FLOAT
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: %s: tensor %s: dtype %s is not supported for %s "
                         "(BF16, F16 and F32 are)",
                         w->path, t->file, t->name, dtype_name(t->dtype), what);
}

/* Count a tensor once. The sums cannot wrap: what is mapped has less than 2^48
 * bytes, and a byte holds four parameters at most. */
static void use(struct weights *w, const struct st_tensor *t, size_t n_params,
                int bits)
{
    size_t i = (size_t)(t - st_at(w->set, 0));
    if (w->used[i])
        return;
    w->used[i] = true;
    w->n_params += n_params;
    w->params_by_bits[bits] += n_params;
    w->n_bytes += t->n_bytes;
}

static void full_name(const struct weights *w, char *out, size_t n,
                      const char *fmt, va_list ap)
{
    int at = snprintf(out, n, "%s", w->prefix);
    vsnprintf(out + at, n - (size_t)at, fmt, ap);
}

static int bind_dense(struct weights *w, struct matrix *out, const char *name,
                      size_t rows, size_t cols, struct qwick_err *e)
{
    const struct st_tensor *t = find(w, name, rows, cols, false, "", e);
    if (!t || need_float(w, t, "weights", e))
        return -1;
    use(w, t, rows * cols, 0);
    *out = (struct matrix){
        .dtype = t->dtype, .rows = rows, .cols = cols, .data = t->data};
    return 0;
}

/* The parameters of a module whose scales are in the file. */
static int quant_params(const struct weights *w, const struct st_tensor *scales,
                        const char *module, size_t cols, struct quant_params *p,
                        struct qwick_err *e)
{
    if (!w->quant || !w->quant->key)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: means quantized weights, but "
                       "config.json has no \"quantization\"",
                       w->path, scales->file, scales->name);
    *p = quant_find(w->quant, module);
    if (!p->bits)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: means quantized weights, but "
                       "config.json has %s.%s: false",
                       w->path, scales->file, scales->name, w->quant->key,
                       module);
    if (cols % p->group)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s.weight: %zu columns by config.json are "
                       "no multiple of its %s.group_size, %zu",
                       w->path, module, cols, w->quant->key, p->group);
    return 0;
}

/* Scales and biases: one float dtype, a column a group. */
static int bind_groups(struct weights *w, struct matrix *out,
                       const char *scales_name, const char *biases_name,
                       const char *why, struct qwick_err *e)
{
    size_t n = out->cols / out->group;
    const struct st_tensor *scales =
        find(w, scales_name, out->rows, n, false, why, e);
    const struct st_tensor *biases =
        scales ? find(w, biases_name, out->rows, n, false, why, e) : NULL;
    if (!biases || need_float(w, scales, "scales", e))
        return -1;
    if (biases->dtype != scales->dtype)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s, but that of %s is %s",
                       w->path, biases->file, biases_name,
                       dtype_name(biases->dtype), scales_name,
                       dtype_name(scales->dtype));
    out->dtype = scales->dtype;
    out->scales = scales->data;
    out->biases = biases->data;
    use(w, scales, 0, out->bits);
    use(w, biases, 0, out->bits);
    return 0;
}

static int bind_packed(struct weights *w, struct matrix *out, const char *name,
                       const char *scales_name, const char *biases_name,
                       size_t rows, size_t cols, struct quant_params p,
                       struct qwick_err *e)
{
    char why[48];
    size_t packed;
    snprintf(why, sizeof why, " (%d bits, group %zu)", p.bits, p.group);
    if (size_mul(cols / 32, (size_t)p.bits, &packed))
        return err_oom(e, SIZE_MAX);
    const struct st_tensor *t = st_find(w->set, name);
    if (t && t->dtype != DT_U32)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s: tensor %s: dtype %s in the file, U32 is what "
                       "goes with %s",
                       w->path, t->file, name, dtype_name(t->dtype),
                       scales_name);
    t = find(w, name, rows, packed, false, why, e);
    if (!t)
        return -1;
    struct matrix m = {.rows = rows,
                       .cols = cols,
                       .data = t->data,
                       .bits = p.bits,
                       .group = p.group};
    if (bind_groups(w, &m, scales_name, biases_name, why, e))
        return -1;
    use(w, t, rows * cols, p.bits);
    *out = m;
    return 0;
}

static int bind(struct weights *w, struct matrix *out, const char *name,
                size_t rows, size_t cols, struct qwick_err *e)
{
    char module[NAME_BYTES], scales[NAME_BYTES + 8], biases[NAME_BYTES + 8];
    size_t n = strlen(name), tail = strlen(".weight");
    if (n <= tail || strcmp(name + n - tail, ".weight") != 0)
        return bind_dense(w, out, name, rows, cols, e);
    snprintf(module, sizeof module, "%.*s", (int)(n - tail), name);
    snprintf(scales, sizeof scales, "%s.scales", module);
    snprintf(biases, sizeof biases, "%s.biases", module);
    const struct st_tensor *s = st_find(w->set, scales);
    if (!s) {
        /* MLX's rule: without scales it is dense, whatever config.json says. */
        const struct st_tensor *t = st_find(w->set, name);
        if (t && t->dtype == DT_U32)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: tensor %s: missing, but %s has dtype U32, as "
                           "packed weights have",
                           w->path, scales, name);
        return bind_dense(w, out, name, rows, cols, e);
    }
    struct quant_params p = {0};
    if (quant_params(w, s, module, cols, &p, e))
        return -1;
    return bind_packed(w, out, name, scales, biases, rows, cols, p, e);
}

int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct qwick_err *e, const char *fmt, ...)
{
    char name[NAME_BYTES];
    va_list ap;
    va_start(ap, fmt);
    full_name(w, name, sizeof name, fmt, ap);
    va_end(ap);
    return bind(w, out, name, rows, cols, e);
}

int weights_head(struct weights *w, struct matrix *out, size_t rows,
                 size_t cols, struct qwick_err *e)
{
    return bind(w, out, "lm_head.weight", rows, cols, e);
}

int weights_vector(struct weights *w, float **out, size_t n,
                   struct qwick_err *e, const char *fmt, ...)
{
    char name[NAME_BYTES];
    va_list ap;
    va_start(ap, fmt);
    full_name(w, name, sizeof name, fmt, ap);
    va_end(ap);
    *out = NULL;
    const struct st_tensor *t = find(w, name, n, 0, true, "", e);
    if (!t || need_float(w, t, "weights", e))
        return -1;
    use(w, t, n, 0);
    *out = malloc(n * sizeof **out);
    if (!*out)
        return err_oom(e, n * sizeof **out);
    kernels_ref()->to_f32[t->dtype](*out, t->data, n);
    return 0;
}

const char *weights_storage(struct weights *w, const struct matrix *m)
{
    size_t at = 0;
    for (int bits = 2; bits <= 8; bits++)
        if (w->params_by_bits[bits])
            at += (size_t)snprintf(w->storage + at, sizeof w->storage - at,
                                   "%s%d", at ? "/" : "", bits);
    if (!at)
        return dtype_name(m->dtype);
    snprintf(w->storage + at, sizeof w->storage - at, "-bit (group %zu)",
             w->quant->all.group);
    return w->storage;
}
