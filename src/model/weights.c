#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "kernel/kernel.h"

int weights_open(struct weights *w, const struct st_set *set, const char *path,
                 const struct kernels *k, bool exact, struct qwick_err *e)
{
    *w = (struct weights){.set = set, .path = path, .prefix = "model."};
    for (size_t i = 0; i < N_FORMATS; i++)
        formats[i]->fill(&w->ops[i], k, exact);
    /* Qwen3-Embedding's checkpoints were saved from the bare model. */
    if (!st_find(set, "model.embed_tokens.weight") &&
        st_find(set, "embed_tokens.weight"))
        w->prefix = "";
    w->used = calloc(st_count(set) + 1, sizeof *w->used);
    return w->used ? 0 : err_oom(e, st_count(set));
}

void weights_close(struct weights *w)
{
    for (size_t i = 0; i < w->n_vectors; i++)
        free(w->vectors[i]);
    free(w->vectors);
    free(w->matrices);
    free(w->used);
    w->vectors = NULL;
    w->matrices = NULL;
    w->used = NULL;
    w->n_vectors = w->n_matrices = 0;
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

int weights_need_float(const struct weights *w, const struct st_tensor *t,
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
void weights_use(struct weights *w, const struct st_tensor *t, size_t n_params,
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

static int bind(struct weights *w, struct matrix *out, const char *name,
                size_t rows, size_t cols, struct qwick_err *e)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        bool found = false;
        if (formats[i]->bind(w, out, name, rows, cols, &found, e))
            return -1;
        if (found) {
            out->format = formats[i];
            out->ops = &w->ops[i];
            if (ARRAY_RESERVE(w->matrices, w->cap_matrices, w->n_matrices + 1,
                              e))
                return -1;
            w->matrices[w->n_matrices++] = out;
            return 0;
        }
    }
    /* Missing, of another shape, or of a type that no format has. */
    const struct st_tensor *t = weights_find(w, name, rows, cols, "", e);
    return t ? weights_need_float(w, t, "weights", e) : -1;
}

const struct st_tensor *weights_find(struct weights *w, const char *name,
                                     size_t rows, size_t cols, const char *why,
                                     struct qwick_err *e)
{
    return find(w, name, rows, cols, false, why, e);
}

int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct qwick_err *e, const char *fmt, ...)
{
    char name[WEIGHTS_NAME_BYTES];
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
    char name[WEIGHTS_NAME_BYTES];
    va_list ap;
    va_start(ap, fmt);
    full_name(w, name, sizeof name, fmt, ap);
    va_end(ap);
    *out = NULL;
    const struct st_tensor *t = find(w, name, n, 0, true, "", e);
    if (!t || weights_need_float(w, t, "weights", e))
        return -1;
    weights_use(w, t, n, 0);
    if (ARRAY_RESERVE(w->vectors, w->cap_vectors, w->n_vectors + 1, e))
        return -1;
    float *v = malloc(n * sizeof *v);
    if (!v)
        return err_oom(e, n * sizeof *v);
    w->vectors[w->n_vectors++] = v;
    kernels_ref()->to_f32[t->dtype](v, t->data, n);
    *out = v;
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
