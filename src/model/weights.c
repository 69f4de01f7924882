#include "model/weights.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "kernel/kernel.h"

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

static const struct st_tensor *find(struct weights *w, const char *name,
                                    size_t rows, size_t cols, bool vector,
                                    struct qwick_err *e)
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
                "config.json",
                w->path, t->file, name, got, want);
        return NULL;
    }
    if (t->dtype >= DT_N_FLOAT) {
        err_set(e, QWICK_ERR_MODEL,
                "%s: %s: tensor %s: dtype %s is not supported for weights "
                "(BF16, F16 and F32 are)",
                w->path, t->file, name, dtype_name(t->dtype));
        return NULL;
    }
    size_t i = (size_t)(t - st_at(w->set, 0));
    if (!w->used[i]) {
        w->used[i] = true;
        w->n_params += rows * (vector ? 1 : cols);
        w->n_bytes += t->n_bytes;
    }
    return t;
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
    const struct st_tensor *t = find(w, name, rows, cols, false, e);
    if (!t)
        return -1;
    *out = (struct matrix){t->dtype, rows, cols, t->data};
    return 0;
}

int weights_matrix(struct weights *w, struct matrix *out, size_t rows,
                   size_t cols, struct qwick_err *e, const char *fmt, ...)
{
    char name[160];
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
    char name[160];
    va_list ap;
    va_start(ap, fmt);
    full_name(w, name, sizeof name, fmt, ap);
    va_end(ap);
    *out = NULL;
    const struct st_tensor *t = find(w, name, n, 0, true, e);
    if (!t)
        return -1;
    *out = malloc(n * sizeof **out);
    if (!*out)
        return err_oom(e, n * sizeof **out);
    kernels_get(ISA_REF)->to_f32[t->dtype](*out, t->data, n);
    return 0;
}
