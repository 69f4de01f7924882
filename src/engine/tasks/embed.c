/* Texts to vectors: prompts before texts, pooled states, Dense modules; cut and
 * normalised. */
#include "engine/core/options.h"
#include "engine/tasks/states.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "model/pooling.h"
#include "qwick_tools.h"
#include "text/unicode.h"

struct qwick_embedder {
    struct qwick_engine *eng;
    const struct pooling *pooling; /* the engine's */
    struct states st;
    const struct json_value *prompt; /* before each text; NULL: none */
    /* with pooling.include_prompt false: [n_prompt] the tokens of the prompt
       and those before it. The last one may differ before a text */
    int32_t *prompt_ids;
    size_t n_prompt;
    size_t n_text; /* most tokens of a text: n_ctx, or the model's own limit */
    bool cuts;     /* a text with more than n_text is cut in any case */
    size_t dim;
    bool normalize;
    const struct qwick_embed_item *items; /* of qwick_embed_begin */
};

/* ---- the model's side ---------------------------------------------------- */

static int open_pooling(struct qwick_engine *eng, struct qwick_err *e)
{
    struct pooling *p = calloc(1, sizeof *p);
    if (!p)
        return err_oom(e, sizeof *p);
    if (pooling_read(p, eng->ck, &eng->model.config, e) ||
        pooling_open(p, eng->ck, &eng->model, e)) {
        pooling_close(p);
        free(p);
        return -1;
    }
    if (!p->named)
        engine_warn(eng,
                    "%s: no file says how vectors are made of its tokens: the "
                    "mean of all tokens is taken",
                    checkpoint_dir(eng->ck));
    eng->pooling = p;
    return 0;
}

static int get_pooling(struct qwick_engine *eng, struct qwick_err *e)
{
    pthread_mutex_lock(&eng->pooling_lock);
    int rc = eng->pooling ? 0 : open_pooling(eng, e);
    pthread_mutex_unlock(&eng->pooling_lock);
    return rc;
}

/* Names of prompts for a message. */
static void list_prompts(const struct pooling *p, char *out, size_t n)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; p->prompts && i < p->prompts->len && len < n; i++) {
        const struct json_value *key = &p->prompts->keys[i];
        int k = snprintf(out + len, n - len, "%s%.60s", i ? ", " : "",
                         ERR_SHOW(key->str, key->len));
        len += k > 0 ? (size_t)k : 0;
    }
}

static int choose_prompt(struct qwick_embedder *m,
                         const struct qwick_embed_options *o,
                         struct qwick_err *e)
{
    char names[600];
    const char *name = o->prompt_name;
    if (!name && o->query && json_get(m->pooling->prompts, "query"))
        name = "query";
    m->prompt = name ? json_get(m->pooling->prompts, name) : m->pooling->prompt;
    if (m->prompt || !name)
        return 0;
    list_prompts(m->pooling, names, sizeof names);
    return err_set(e, QWICK_ERR_USAGE, "prompt name: \"%.60s\": %s%s",
                   ERR_SHOW(name, strlen(name)),
                   *names ? "the model's prompts are " : "the model has none",
                   names);
}

static int choose_dim(struct qwick_embedder *m, size_t dim, struct qwick_err *e)
{
    const struct pooling *p = m->pooling;
    bool known = p->n_dims == 0;
    if (dim > p->width)
        return err_set(e, QWICK_ERR_USAGE,
                       "dim: %zu asked for, the model's vectors have %zu", dim,
                       p->width);
    m->dim = dim                                             ? dim
             : p->truncate_dim && p->truncate_dim < p->width ? p->truncate_dim
                                                             : p->width;
    for (size_t i = 0; i < p->n_dims; i++)
        known = known || p->dims[i] == m->dim;
    if (m->dim == p->width || (known && p->n_dims) ||
        __atomic_exchange_n(&m->eng->told_dim, true, __ATOMIC_RELAXED))
        return 0;
    if (known)
        engine_note(m->eng,
                    "vectors are cut to %zu of %zu numbers; no file says "
                    "whether the model was trained for that",
                    m->dim, p->width);
    else
        engine_warn(m->eng,
                    "vectors are cut to %zu of %zu numbers, which is not one "
                    "of the lengths that the model was trained for",
                    m->dim, p->width);
    return 0;
}

static int measure_prompt(struct qwick_embedder *m, struct qwick_err *e);

static int open_embedder(struct qwick_embedder *m,
                         const struct qwick_embed_options *o,
                         struct qwick_err *e)
{
    const struct pooling *p = m->pooling = m->eng->pooling;
    m->normalize = o->normalize;
    if (choose_prompt(m, o, e) || choose_dim(m, o->dim, e) ||
        states_open(&m->st, m->eng, &p->modes, o->n_ctx, o->max_batch, e))
        return -1;
    m->st.runs.progress = o->progress;
    m->st.runs.progress_ctx = o->progress_ctx;
    m->st.runs.interrupt = o->interrupt;
    m->n_text = m->st.runs.n_ctx;
    m->cuts = !o->n_ctx && p->max_seq && p->max_seq < m->n_text;
    if (m->cuts)
        m->n_text = p->max_seq;
    return p->include_prompt || !m->prompt ? 0 : measure_prompt(m, e);
}

int qwick_embedder_create(struct qwick_embedder **out, struct qwick_engine *eng,
                          const struct qwick_embed_options *given,
                          struct qwick_err *e)
{
    struct qwick_embed_options all = qwick_embed_defaults(), *o = &all;
    *out = NULL;
    if (options_read(o, sizeof *o, given, "embed", e) ||
        engine_refuse_classifier(eng, e) || get_pooling(eng, e))
        return -1;
    struct qwick_embedder *m = calloc(1, sizeof *m);
    if (!m)
        return err_oom(e, sizeof *m);
    m->eng = eng;
    if (open_embedder(m, o, e)) {
        qwick_embedder_free(m);
        return -1;
    }
    engine_suitable_class(eng, true);
    *out = m;
    return 0;
}

void qwick_embedder_free(struct qwick_embedder *m)
{
    if (!m)
        return;
    states_close(&m->st);
    free(m->prompt_ids);
    free(m);
}

size_t qwick_embedder_dim(const struct qwick_embedder *m)
{
    return m->dim;
}

int qwick_engine_vectors(struct qwick_engine *eng, struct qwick_vector_info *o,
                         struct qwick_err *e)
{
    if (engine_refuse_classifier(eng, e) || get_pooling(eng, e))
        return -1;
    const struct pooling *p = eng->pooling;
    bool cut = p->truncate_dim && p->truncate_dim < p->width;
    *o = (struct qwick_vector_info){
        .n_dense = p->n_dense,
        .dim = p->width,
        .dims = p->dims,
        .n_dims = p->n_dims,
        .default_dim = cut ? p->truncate_dim : p->width,
        .max_tokens = p->max_seq,
        .n_prompts = p->prompts ? p->prompts->len : 0};
    for (size_t i = 0, n = 0; i < p->modes.n; i++) {
        int k = snprintf(o->pooling + n, sizeof o->pooling - n, "%s%s",
                         i ? "+" : "", pooling_mode_name(p->modes.v[i]));
        n += k > 0 && (size_t)k < sizeof o->pooling - n ? (size_t)k : 0;
    }
    for (size_t i = 0; i < o->n_prompts; i++)
        if (p->prompt == &p->prompts->items[i])
            o->default_prompt = p->prompts->keys[i].str;
    return 0;
}

const char *qwick_vector_prompt(const struct qwick_engine *eng, size_t i,
                                const char **text)
{
    *text = eng->pooling->prompts->items[i].str;
    return eng->pooling->prompts->keys[i].str;
}

static int model_identity(const struct qwick_embedder *m, uint64_t id[2],
                          struct qwick_err *e)
{
    if (qwick_engine_identity(m->eng, id, e))
        return -1;
    pooling_hash(m->pooling, id);
    return 0;
}

int qwick_index_describe(struct qwick_index_info *o,
                         const struct qwick_embedder *m, struct qwick_err *e)
{
    o->prompt = m->prompt ? m->prompt->str : "";
    o->dim = m->dim;
    o->normalized = m->normalize;
    return model_identity(m, o->model_hash, e);
}

int qwick_embedder_identity(const struct qwick_embedder *m, uint64_t id[2],
                            struct qwick_err *e)
{
    if (model_identity(m, id, e))
        return -1;
    for (size_t i = 0; i < 2 && m->n_prompt; i++)
        id[i] = hash_bytes(id[i], m->prompt_ids,
                           m->n_prompt * sizeof *m->prompt_ids);
    return 0;
}

/* ---- texts in ----------------------------------------------------------- */

static int append_lower(struct buf *out, const char *s, size_t n)
{
    int r = 0;
    for (size_t i = 0; i < n; i++) {
        char lower[UNICODE_MAX_CASE];
        if (((unsigned char)s[i] & 0xC0) != 0x80)
            r |= buf_append(out, lower, unicode_lower(s, n, i, lower));
    }
    return r;
}

/* Compose the text that the model reads. An instruct takes the place of the
 * prompt. */
static int compose(struct buf *out, const struct qwick_embedder *m,
                   const struct qwick_embed_text *t, struct qwick_err *e)
{
    struct buf text = {0};
    int r = 0;
    if (t->instruct) {
        r |= buf_puts(&text, "Instruct: ");
        r |= buf_append(&text, t->instruct, t->n_instruct);
        r |= buf_puts(&text, "\nQuery:");
    } else if (m->prompt) {
        r |= buf_append(&text, m->prompt->str, m->prompt->len);
    }
    r |= buf_append(&text, t->text, t->n_text);
    if (m->pooling->lower && text.len)
        r |= append_lower(out, text.data, text.len);
    else if (text.len)
        r |= buf_append(out, text.data, text.len);
    buf_free(&text);
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
static int cut(const struct qwick_embedder *m, bool may_cut, size_t n_frame,
               size_t *n, size_t *n_dropped, struct qwick_err *e)
{
    *n_dropped = 0;
    if (*n == 0)
        return err_set(e, QWICK_ERR_USAGE, "text: has no tokens");
    if (*n <= m->n_text)
        return 0;
    if (!may_cut || m->n_text <= n_frame)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "text: %zu tokens do not fit the context of %zu", *n,
                       m->n_text);
    *n_dropped = *n - m->n_text;
    *n = m->n_text;
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
    bool may_cut = t->truncate || (m->cuts && n_dropped);
    if (engine_need_tokenizer(m->eng, e) || compose(&text, m, t, e) ||
        bpe_encode(m->eng->bpe, text.data ? text.data : "", text.len,
                   t->allow_special, &v, &n, e) ||
        get_frame(m->eng, v, n, &f, e))
        goto done;
    total = n + f.n_before + f.n_after;
    if (cut(m, may_cut, f.n_before + f.n_after, &total, &dropped, e))
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

/* Find the tokens of the prompt: those that every text begins with. */
static int measure_prompt(struct qwick_embedder *m, struct qwick_err *e)
{
    const struct qwick_embed_text none = {.text = "", .truncate = true};
    struct bpe_frame f;
    if (!m->eng->bpe)
        return 0; /* all items are ids of whole sequences */
    if (bpe_get_frame(m->eng->bpe, &f, e) ||
        qwick_embed_encode(m, &none, &m->prompt_ids, &m->n_prompt, NULL, e))
        return -1;
    m->n_prompt -= f.n_after < m->n_prompt ? f.n_after : m->n_prompt;
    return 0;
}

/* ---- vectors out -------------------------------------------------------- */

static size_t prompt_tokens(const struct qwick_embedder *m,
                            const struct qwick_embed_item *item)
{
    return m->n_prompt && item->n >= m->n_prompt &&
                   !memcmp(item->tokens, m->prompt_ids,
                           (m->n_prompt - 1) * sizeof *item->tokens)
               ? m->n_prompt
               : 0;
}

static struct states_item item_at(void *ctx, size_t i)
{
    const struct qwick_embedder *m = ctx;
    const struct qwick_embed_item *item = &m->items[i];
    return (struct states_item){
        .tokens = item->tokens, .n = item->n, .n_skip = prompt_tokens(m, item)};
}

/* Cutting a vector of length 1 and normalising it again is the same as
 * normalising what is kept. A vector of zeros stays one. */
static int keep_vector(const struct qwick_embedder *m, float *out,
                       const float *x, struct qwick_err *e)
{
    double sum = 0;
    for (size_t k = 0; k < m->dim; k++)
        sum += (double)x[k] * (double)x[k];
    if (!isfinite(sum))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "embedding: not finite: the weights hold NaN, "
                       "infinities or values too large");
    double length = m->normalize && sum > 0 ? sqrt(sum) : 1;
    for (size_t k = 0; k < m->dim; k++)
        out[k] = (float)((double)x[k] / length);
    return 0;
}

static int keep_vectors(void *ctx, const size_t *items, size_t n,
                        const float *vectors, struct qwick_err *e)
{
    const struct qwick_embedder *m = ctx;
    const struct pooling *p = m->pooling;
    float *out = NULL;
    if (p->n_dense &&
        pooling_dense(p, &m->eng->model, m->eng->scratch, vectors, n, &out, e))
        return -1;
    const float *x = out ? out : vectors;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = keep_vector(m, m->items[items[i]].vector, x + i * p->width, e);
    free(out);
    return rc;
}

void qwick_embed_begin(struct qwick_embedder *m,
                       const struct qwick_embed_item *items, size_t n)
{
    m->items = items;
    states_begin(&m->st, n, item_at, keep_vectors, m);
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
