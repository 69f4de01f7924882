/* Documents against a query: P(yes) as Qwen3-Reranker gives it. llama.cpp's
 * converter stores the head's rows for yes and no as a head of their own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/options.h"
#include "engine/tasks/embed.h"

/* The prompt of Qwen3-Reranker's model card. The middle is encoded separately
 * from the texts around it, and as plain text: no control tokens. */
static const char prefix_text[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements "
    "based on the Query and the Instruct provided. Note that the answer can "
    "only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n";
static const char suffix_text[] =
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
static const char default_instruct[] =
    "Given a web search query, retrieve relevant passages that answer the "
    "query";

struct ids {
    int32_t *v;
    size_t n;
};

struct qwick_reranker {
    struct qwick_engine *eng;
    struct states st;
    struct ids prefix, suffix;
    struct ids base;   /* what all prompts begin with */
    bool based;        /* it has been evaluated */
    struct buf middle; /* up to the document */
    size_t yes, no;    /* rows of the head */
    struct qwick_rerank_item *items; /* of qwick_rerank_begin */
};

/* ---- the prompt --------------------------------------------------------- */

static int encode(const struct qwick_engine *eng, const char *text, size_t n,
                  bool special, struct ids *out, struct qwick_err *e)
{
    return bpe_encode(eng->bpe, text, n, special, &out->v, &out->n, e);
}

static int need_added(const struct qwick_engine *eng, struct qwick_err *e)
{
    static const char *const names[] = {"<|im_start|>", "<|im_end|>", "<think>",
                                        "</think>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (bpe_added_id(eng->bpe, names[i]) < 0)
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: tokenizer.json: has no added token %s, which "
                           "the reranker's prompt needs",
                           checkpoint_dir(eng->ck), names[i]);
    return 0;
}

/* The id of a word that must be one token, with a row in the head. */
static int word_id(const struct qwick_engine *eng, const char *word, size_t *id,
                   struct qwick_err *e)
{
    struct ids ids = {0};
    int rc = encode(eng, word, strlen(word), false, &ids, e);
    if (rc == 0 && ids.n != 1)
        rc = err_set(e, QWICK_ERR_MODEL,
                     "%s: tokenizer.json: \"%s\" is %zu tokens, the "
                     "reranker's answer needs one",
                     checkpoint_dir(eng->ck), word, ids.n);
    if (rc == 0) {
        *id = (size_t)ids.v[0];
        if (*id >= eng->model.config.vocab_size)
            rc = err_set(e, QWICK_ERR_MODEL,
                         "%s: tokenizer.json: \"%s\" has id %zu, the "
                         "vocabulary has %zu",
                         checkpoint_dir(eng->ck), word, *id,
                         eng->model.config.vocab_size);
    }
    free(ids.v);
    return rc;
}

/* The rows of the head for both words, unless the reranker has a head of its
 * own. */
static int find_rows(struct qwick_reranker *r, struct qwick_err *e)
{
    const struct config *c = &r->eng->model.config;
    if (c->n_classes) {
        r->yes = c->yes_class;
        r->no = !c->yes_class;
        return 0;
    }
    return engine_need_head(r->eng, e) || word_id(r->eng, "yes", &r->yes, e) ||
                   word_id(r->eng, "no", &r->no, e)
               ? -1
               : 0;
}

/* Everything but the document. */
static int compose(struct qwick_reranker *r, const char *query, size_t n_query,
                   const struct qwick_rerank_options *o, struct qwick_err *e)
{
    struct buf *b = &r->middle;
    int bad = buf_puts(b, "<Instruct>: ");
    bad |= o->instruct ? buf_append(b, o->instruct, o->n_instruct)
                       : buf_puts(b, default_instruct);
    bad |= buf_puts(b, "\n<Query>: ");
    bad |= buf_append(b, query, n_query);
    bad |= buf_puts(b, "\n<Document>: ");
    if (bad)
        return err_oom(e, n_query);
    return encode(r->eng, prefix_text, strlen(prefix_text), true, &r->prefix,
                  e) ||
                   encode(r->eng, suffix_text, strlen(suffix_text), true,
                          &r->suffix, e)
               ? -1
               : 0;
}

/* The base is the prompt up to the blank before the document, because that
 * blank may become part of the document's first token. If a document changes
 * tokens even before that, the changed tokens are evaluated with the
 * document. */
static int encode_base(struct qwick_reranker *r, struct qwick_err *e)
{
    struct ids *base = &r->base;
    if (!(base->v = malloc(r->prefix.n * sizeof *base->v)))
        return err_oom(e, r->prefix.n * sizeof *base->v);
    memcpy(base->v, r->prefix.v, r->prefix.n * sizeof *base->v);
    base->n = r->prefix.n;
    if (encode(r->eng, r->middle.data, r->middle.len - 1, false, base, e))
        return -1;
    if (base->n + r->suffix.n < r->st.runs.n_ctx)
        return 0;
    return err_set(e, QWICK_ERR_CONTEXT,
                   "query: the prompt has %zu tokens without a document, the "
                   "context %zu",
                   base->n + r->suffix.n, r->st.runs.n_ctx);
}

int qwick_reranker_create(struct qwick_reranker **out, struct qwick_engine *eng,
                          const char *query, size_t n_query,
                          const struct qwick_rerank_options *given,
                          struct qwick_err *e)
{
    struct qwick_rerank_options all = qwick_rerank_defaults(), *o = &all;
    *out = NULL;
    if (options_read(o, sizeof *o, given, "rerank", e))
        return -1;
    struct qwick_reranker *r = calloc(1, sizeof *r);
    if (!r)
        return err_oom(e, sizeof *r);
    r->eng = eng;
    if (states_open(&r->st, eng, o->n_ctx, o->max_batch, e))
        goto fail;
    r->st.runs.progress = o->progress;
    r->st.runs.progress_ctx = o->progress_ctx;
    r->st.runs.interrupt = o->interrupt;
    engine_suitable_class(eng, false);
    if (engine_need_tokenizer(eng, e) || need_added(eng, e) ||
        find_rows(r, e) || compose(r, query, n_query, o, e) ||
        encode_base(r, e))
        goto fail;
    *out = r;
    return 0;
fail:
    qwick_reranker_free(r);
    return -1;
}

void qwick_reranker_free(struct qwick_reranker *r)
{
    if (!r)
        return;
    states_close(&r->st);
    buf_free(&r->middle);
    free(r->base.v);
    free(r->prefix.v);
    free(r->suffix.v);
    free(r);
}

int qwick_rerank_encode(const struct qwick_reranker *r, const char *document,
                        size_t n_document, int32_t **ids, size_t *n_ids,
                        size_t *n_dropped, struct qwick_err *e)
{
    struct buf text = {0};
    struct ids middle = {0};
    size_t around = r->prefix.n + r->suffix.n, limit = r->st.runs.n_ctx;
    size_t dropped = 0, at = 0;
    int rc = -1;
    *ids = NULL;
    *n_ids = 0;
    if (buf_append(&text, r->middle.data, r->middle.len) ||
        buf_append(&text, document, n_document)) {
        err_oom(e, r->middle.len + n_document);
        goto done;
    }
    if (encode(r->eng, text.data, text.len, false, &middle, e))
        goto done;
    if (middle.n > limit - around) { /* there is room: see encode_base */
        dropped = middle.n - (limit - around);
        middle.n -= dropped;
    }
    size_t total = around + middle.n;
    *ids = malloc(total * sizeof **ids);
    if (!*ids) {
        err_oom(e, total * sizeof **ids);
        goto done;
    }
    const struct ids *parts[] = {&r->prefix, &middle, &r->suffix};
    for (size_t i = 0; i < 3; i++) {
        memcpy(*ids + at, parts[i]->v, parts[i]->n * sizeof **ids);
        at += parts[i]->n;
    }
    *n_ids = total;
    if (n_dropped)
        *n_dropped = dropped;
    rc = 0;
done:
    buf_free(&text);
    free(middle.v);
    return rc;
}

/* ---- scores ------------------------------------------------------------- */

static struct states_item item_at(void *ctx, size_t i)
{
    const struct qwick_reranker *r = ctx;
    return (struct states_item){r->items[i].tokens, r->items[i].n};
}

/* One row of a matrix: what --exact computes for it among all the others. */
static float row_logit(const struct qwick_engine *eng, const struct matrix *w,
                       size_t row, const float *hidden)
{
    const struct model *m = &eng->model;
    float *work = eng->scratch->threads[0].work;
    float logit = 0;
    struct row_product p = {.w = w,
                            .row = row,
                            .n_rows = 1,
                            .n = 1,
                            .y = &logit,
                            .ldy = 1,
                            .work = work};
    w->ops->mul_f32(m->k, &p, hidden, w->cols);
    if (w == &m->head && m->config.logit_cap > 0)
        m->k->cap(&logit, m->config.logit_cap, 1);
    return logit;
}

/* The log-odds of yes: by the rows that the head has for both words, or by the
 * reranker's own head. */
static double log_odds(const struct qwick_reranker *r, const float *hidden)
{
    const struct qwick_engine *eng = r->eng;
    const struct config *c = &eng->model.config;
    const struct matrix *w =
        c->n_classes ? &eng->model.classes : &eng->model.head;
    double odds = row_logit(eng, w, r->yes, hidden);
    return c->n_classes == 1 ? odds
                             : odds - (double)row_logit(eng, w, r->no, hidden);
}

static int keep_score(void *ctx, size_t i, const float *hidden,
                      struct qwick_err *e)
{
    const struct qwick_reranker *r = ctx;
    double odds = log_odds(r, hidden);
    if (!isfinite(odds))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "logits: not finite: the weights hold NaN, infinities "
                       "or values too large");
    r->items[i].score = 1 / (1 + exp(-odds));
    return 0;
}

void qwick_rerank_begin(struct qwick_reranker *r,
                        struct qwick_rerank_item *items, size_t n)
{
    r->items = items;
    states_begin(&r->st, n, item_at, keep_score, r);
}

int qwick_rerank_step(struct qwick_reranker *r, bool *more, struct qwick_err *e)
{
    if (r->based)
        return states_step(&r->st, more, e);
    if (runs_base_step(&r->st.runs, r->base.v, r->base.n, more, e))
        return -1;
    r->based = !*more;
    *more = true;
    return 0;
}

int qwick_rerank(struct qwick_reranker *r, struct qwick_rerank_item *items,
                 size_t n, struct qwick_err *e)
{
    bool more = true;
    qwick_rerank_begin(r, items, n);
    while (more)
        if (qwick_rerank_step(r, &more, e)) {
            qwick_rerank_begin(r, NULL, 0);
            return -1;
        }
    return 0;
}
