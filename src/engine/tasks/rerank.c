/* Documents against a query. Qwen3-Reranker answers yes or no after a prompt;
 * llama.cpp's converter stores the head's rows for both words as a head of
 * their own. A cross-encoder reads the pair of query and document, and has one
 * label. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/core/options.h"
#include "engine/tasks/states.h"

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
    struct ids base;   /* what all prompts begin with; a cross-encoder has
                          none */
    bool based;        /* it has been evaluated */
    struct buf middle; /* up to the document */
    size_t n_type0;    /* tokens of the first segment of a pair, see struct
                          span */
    size_t yes, no;    /* rows of the head */
    bool has_query;
    bool raw;     /* scores are log-odds */
    float *state; /* [d_model] work memory of a cross-encoder */
    /* of qwick_rerank_begin */
    struct qwick_rerank_item *items;
    const size_t *n_first; /* or NULL */
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
    return engine_need_head(r->eng, e) || engine_need_tokenizer(r->eng, e) ||
                   word_id(r->eng, "yes", &r->yes, e) ||
                   word_id(r->eng, "no", &r->no, e)
               ? -1
               : 0;
}

static int append_ids(struct ids *to, const int32_t *v, size_t n,
                      struct qwick_err *e)
{
    int32_t *all = realloc(to->v, (to->n + n + 1) * sizeof *all);
    if (!all)
        return err_oom(e, (to->n + n + 1) * sizeof *all);
    if (n)
        memcpy(all + to->n, v, n * sizeof *all);
    to->v = all;
    to->n += n;
    return 0;
}

/* Everything but the document, of a cross-encoder. */
static int compose_pair(struct qwick_reranker *r, const char *query,
                        size_t n_query, struct qwick_err *e)
{
    struct bpe_pair f;
    struct ids text = {0};
    if (bpe_get_pair(r->eng->bpe, &f, e) ||
        encode(r->eng, query, n_query, false, &text, e))
        return -1;
    int rc = append_ids(&r->prefix, f.before, f.n_before, e) ||
             append_ids(&r->prefix, text.v, text.n, e) ||
             append_ids(&r->prefix, f.between, f.n_between, e) ||
             append_ids(&r->suffix, f.after, f.n_after, e);
    free(text.v);
    if (f.types)
        r->n_type0 = f.n_before + text.n + f.n_between_type0;
    return rc ? -1 : 0;
}

/* Everything but the document, of Qwen3-Reranker. */
static int compose_prompt(struct qwick_reranker *r, const char *query,
                          size_t n_query, const struct qwick_rerank_options *o,
                          struct qwick_err *e)
{
    struct buf *b = &r->middle;
    if (need_added(r->eng, e))
        return -1;
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
    if (!r->middle.len)
        return 0;
    if (!(base->v = malloc(r->prefix.n * sizeof *base->v)))
        return err_oom(e, r->prefix.n * sizeof *base->v);
    memcpy(base->v, r->prefix.v, r->prefix.n * sizeof *base->v);
    base->n = r->prefix.n;
    return encode(r->eng, r->middle.data, r->middle.len - 1, false, base, e);
}

/* Check that there is room for a document. */
static int check_room(const struct qwick_reranker *r, struct qwick_err *e)
{
    size_t n = (r->base.n ? r->base.n : r->prefix.n) + r->suffix.n;
    return n < r->st.runs.n_ctx
               ? 0
               : err_set(e, QWICK_ERR_CONTEXT,
                         "query: the prompt has %zu tokens without a document, "
                         "the context %zu",
                         n, r->st.runs.n_ctx);
}

static int compose(struct qwick_reranker *r, const char *query, size_t n_query,
                   const struct qwick_rerank_options *o, struct qwick_err *e)
{
    bool pair = r->eng->model.config.bidirectional;
    r->based = !query || pair;
    r->has_query = query != NULL;
    if (pair && o->instruct)
        return err_set(e, QWICK_ERR_USAGE,
                       "instruct: %s reads pairs of a query and a document, "
                       "which have no place for it",
                       checkpoint_name(r->eng->ck));
    if (!query)
        return 0;
    if (engine_need_tokenizer(r->eng, e))
        return -1;
    return (pair ? compose_pair(r, query, n_query, e)
                 : compose_prompt(r, query, n_query, o, e)) ||
                   encode_base(r, e) || check_room(r, e)
               ? -1
               : 0;
}

/* The states that scores are made of. */
static int open_states(struct qwick_reranker *r,
                       const struct qwick_rerank_options *o,
                       struct qwick_err *e)
{
    const struct config *c = &r->eng->model.config;
    const struct pooling_modes modes = {{!c->bidirectional ? POOLING_LAST
                                         : c->class_mean   ? POOLING_MEAN
                                                           : POOLING_CLS},
                                        1};
    if (c->bidirectional && !c->n_classes)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: is a text encoder without a classifier, which only "
                       "embed can use",
                       checkpoint_dir(r->eng->ck));
    if (states_open(&r->st, r->eng, &modes, o->n_ctx, o->max_batch, e))
        return -1;
    r->st.runs.progress = o->progress;
    r->st.runs.progress_ctx = o->progress_ctx;
    r->st.runs.interrupt = o->interrupt;
    r->raw = o->raw_scores;
    r->state = malloc(c->d_model * sizeof *r->state);
    return r->state ? 0 : err_oom(e, c->d_model * sizeof *r->state);
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
    if (open_states(r, o, e))
        goto fail;
    engine_suitable_class(eng, false);
    if (compose(r, query, n_query, o, e) || find_rows(r, e))
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
    free(r->state);
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
    if (!r->has_query)
        return err_set(e, QWICK_ERR_USAGE, "reranker: has no query");
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
    size_t n_first = r->n_first ? r->n_first[i] : QWICK_RERANK_OWN;
    return (struct states_item){
        .tokens = r->items[i].tokens,
        .n = r->items[i].n,
        .n_type0 = n_first == QWICK_RERANK_OWN ? r->n_type0 : n_first};
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

/* The logit of a class. */
static double class_logit(const struct qwick_engine *eng, size_t row,
                          const float *state)
{
    const float *bias = eng->model.class_bias;
    return (double)row_logit(eng, &eng->model.classes, row, state) +
           (bias ? (double)bias[row] : 0);
}

/* The log-odds of yes: by the rows that the head has for both words, or by the
 * reranker's own head. */
static double log_odds(const struct qwick_reranker *r, const float *hidden)
{
    const struct qwick_engine *eng = r->eng;
    const struct model *m = &eng->model;
    if (!m->config.n_classes)
        return (double)row_logit(eng, &m->head, r->yes, hidden) -
               (double)row_logit(eng, &m->head, r->no, hidden);
    memcpy(r->state, hidden, m->config.d_model * sizeof *r->state);
    model_class_input(m, eng->scratch, r->state);
    double odds = class_logit(eng, r->yes, r->state);
    return m->config.n_classes == 1 ? odds
                                    : odds - class_logit(eng, r->no, r->state);
}

static int keep_scores(void *ctx, const size_t *items, size_t n,
                       const float *states, struct qwick_err *e)
{
    const struct qwick_reranker *r = ctx;
    for (size_t i = 0; i < n; i++) {
        double odds = log_odds(r, states + i * r->st.width);
        if (!isfinite(odds))
            return err_set(e, QWICK_ERR_RUNTIME,
                           "logits: not finite: the weights hold NaN, "
                           "infinities or values too large");
        r->items[items[i]].score = r->raw ? odds : 1 / (1 + exp(-odds));
    }
    return 0;
}

void qwick_rerank_begin_pairs(struct qwick_reranker *r,
                              struct qwick_rerank_item *items,
                              const size_t *n_first, size_t n)
{
    r->items = items;
    r->n_first = n_first;
    states_begin(&r->st, n, item_at, keep_scores, r);
}

void qwick_rerank_begin(struct qwick_reranker *r,
                        struct qwick_rerank_item *items, size_t n)
{
    qwick_rerank_begin_pairs(r, items, NULL, n);
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
