/* Texts to vectors: the last token's hidden state, cut and normalised. */
#include "engine/tasks/embed.h"
#include "engine/core/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "model/pooling.h"

struct qwick_embedder {
    struct qwick_engine *eng;
    struct states st;
    size_t dim;
    bool normalize;
    const struct qwick_embed_item *items; /* of qwick_embed_begin */
};

/* Check the files about pooling, once: later the program may have given up the
 * right to open files. */
static int check_pooling(struct qwick_engine *eng, struct qwick_err *e)
{
    struct pooling pooling;
    if (eng->checked_pooling)
        return 0;
    if (pooling_read(&pooling, eng->ck, e))
        return -1;
    eng->checked_pooling = true;
    if (*pooling.prompt)
        engine_warn(eng,
                    "%s: config_sentence_transformers.json: "
                    "default_prompt_name: \"%s\": texts do not get this prompt",
                    checkpoint_dir(eng->ck), pooling.prompt);
    return 0;
}

int qwick_embedder_create(struct qwick_embedder **out, struct qwick_engine *eng,
                          const struct qwick_embed_options *given,
                          struct qwick_err *e)
{
    struct qwick_embed_options all = qwick_embed_defaults(), *o = &all;
    size_t d_model = eng->model.config.d_model;
    *out = NULL;
    if (options_read(o, sizeof *o, given, "embed", e) ||
        engine_refuse_classifier(eng, e) || check_pooling(eng, e))
        return -1;
    if (o->dim > d_model)
        return err_set(e, QWICK_ERR_USAGE,
                       "dim: %zu asked for, the model's vectors have %zu",
                       o->dim, d_model);
    struct qwick_embedder *m = calloc(1, sizeof *m);
    if (!m)
        return err_oom(e, sizeof *m);
    m->eng = eng;
    m->dim = o->dim ? o->dim : d_model;
    m->normalize = o->normalize;
    if (states_open(&m->st, eng, o->n_ctx, o->max_batch, e)) {
        qwick_embedder_free(m);
        return -1;
    }
    engine_suitable_class(eng, true);
    m->st.runs.progress = o->progress;
    m->st.runs.progress_ctx = o->progress_ctx;
    m->st.runs.interrupt = o->interrupt;
    *out = m;
    return 0;
}

void qwick_embedder_free(struct qwick_embedder *m)
{
    if (!m)
        return;
    states_close(&m->st);
    free(m);
}

size_t qwick_embedder_dim(const struct qwick_embedder *m)
{
    return m->dim;
}

/* ---- texts in ----------------------------------------------------------- */

/* Compose the text that the model reads. */
static int compose(struct buf *out, const struct qwick_embed_text *t,
                   struct qwick_err *e)
{
    int r = 0;
    if (t->instruct) {
        r |= buf_puts(out, "Instruct: ");
        r |= buf_append(out, t->instruct, t->n_instruct);
        r |= buf_puts(out, "\nQuery:");
    }
    r |= buf_append(out, t->text, t->n_text);
    return r ? err_oom(e, t->n_instruct + t->n_text) : 0;
}

/* Get the tokens around a text. The engine's own first token is one of them,
 * unless the text begins with it. */
static int get_frame(const struct qwick_engine *eng, const int32_t *v, size_t n,
                     struct bpe_frame *f, struct qwick_err *e)
{
    if (bpe_get_frame(eng->bpe, f, e))
        return -1;
    if (f->n_before == 0 && eng->bos_id >= 0) {
        f->before = &eng->bos_id;
        f->n_before = 1;
    }
    if (f->n_before == 1 && n && v[0] == f->before[0])
        f->n_before = 0;
    return 0;
}

/* Drop the end of a text of n tokens (with n_frame of the post-processor's)
 * that is too long. */
static int cut(const struct qwick_embedder *m, const struct qwick_embed_text *t,
               size_t n_frame, size_t *n, size_t *n_dropped,
               struct qwick_err *e)
{
    size_t limit = m->st.runs.n_ctx;
    *n_dropped = 0;
    if (*n == 0)
        return err_set(e, QWICK_ERR_USAGE, "text: has no tokens");
    if (*n <= limit)
        return 0;
    if (!t->truncate || limit <= n_frame)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "text: %zu tokens do not fit the context of %zu", *n,
                       limit);
    *n_dropped = *n - limit;
    *n = limit;
    return 0;
}

int qwick_embed_encode(const struct qwick_embedder *m,
                       const struct qwick_embed_text *t, int32_t **ids,
                       size_t *n_ids, size_t *n_dropped, struct qwick_err *e)
{
    struct bpe_frame f;
    struct buf text = {0};
    int32_t *v = NULL;
    size_t n = 0, total, dropped;
    int rc = -1;
    *ids = NULL;
    *n_ids = 0;
    if (engine_need_tokenizer(m->eng, e) || compose(&text, t, e) ||
        bpe_encode(m->eng->bpe, text.data ? text.data : "", text.len,
                   t->allow_special, &v, &n, e) ||
        get_frame(m->eng, v, n, &f, e))
        goto done;
    total = n + f.n_before + f.n_after;
    if (cut(m, t, f.n_before + f.n_after, &total, &dropped, e))
        goto done;
    n -= dropped;
    *ids = malloc(total * sizeof **ids);
    if (!*ids) {
        err_oom(e, total * sizeof **ids);
        goto done;
    }
    if (f.n_before)
        memcpy(*ids, f.before, f.n_before * sizeof **ids);
    if (n)
        memcpy(*ids + f.n_before, v, n * sizeof **ids);
    if (f.n_after)
        memcpy(*ids + f.n_before + n, f.after, f.n_after * sizeof **ids);
    *n_ids = total;
    if (n_dropped)
        *n_dropped = dropped;
    rc = 0;
done:
    buf_free(&text);
    free(v);
    return rc;
}

/* ---- vectors out -------------------------------------------------------- */

static struct states_item item_at(void *ctx, size_t i)
{
    const struct qwick_embedder *m = ctx;
    return (struct states_item){m->items[i].tokens, m->items[i].n};
}

/* Cutting a vector of length 1 and normalising it again is the same as
 * normalising what is kept. A vector of zeros stays one. */
static int keep_vector(void *ctx, size_t i, const float *hidden,
                       struct qwick_err *e)
{
    const struct qwick_embedder *m = ctx;
    float *out = m->items[i].vector;
    double sum = 0;
    for (size_t k = 0; k < m->dim; k++)
        sum += (double)hidden[k] * (double)hidden[k];
    if (!isfinite(sum))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "embedding: not finite: the weights hold NaN, "
                       "infinities or values too large");
    double length = m->normalize && sum > 0 ? sqrt(sum) : 1;
    for (size_t k = 0; k < m->dim; k++)
        out[k] = (float)((double)hidden[k] / length);
    return 0;
}

void qwick_embed_begin(struct qwick_embedder *m,
                       const struct qwick_embed_item *items, size_t n)
{
    m->items = items;
    states_begin(&m->st, n, item_at, keep_vector, m);
}

int qwick_embed_step(struct qwick_embedder *m, bool *more, struct qwick_err *e)
{
    return states_step(&m->st, more, e);
}

int qwick_embed(struct qwick_embedder *m, const struct qwick_embed_item *items,
                size_t n, struct qwick_err *e)
{
    bool more = true;
    qwick_embed_begin(m, items, n);
    while (more)
        if (qwick_embed_step(m, &more, e)) {
            qwick_embed_begin(m, NULL, 0);
            return -1;
        }
    return 0;
}
