/* Embeddings in the form of OpenAI's API, and ranking in that of Jina's and
 * Cohere's. */
#include <math.h>
#include <stdlib.h>

#include "base/base64.h"
#include "cli/io/out.h"
#include "cli/serve/body.h"
#include "cli/serve/endpoints.h"

int embeddings_open(struct serve *s)
{
    const struct qwick_info *info = qwick_engine_info(s->g.eng);
    struct qwick_embedder *m;
    struct qwick_err e;
    if (!s->embeds && !s->a->embeddings)
        return 0;
    if (qwick_embedder_create(&m, s->g.eng, NULL, &e))
        return msg_fail(&e);
    qwick_embedder_free(m);
    if (!s->embeds)
        msg_warn("%s: %s", info->model, qwick_embed_suitability(s->g.eng));
    return 0;
}

/* Set *e to an error of the library about item i of a member. What the model
 * lacks is no fault of the item. Returns -1. */
static int item_fault(struct serve_error *e, const char *name, size_t i,
                      const struct qwick_err *why)
{
    struct qwick_err full = *why;
    if (why->code != QWICK_ERR_MODEL)
        err_set(&full, why->code, "%s: item %zu: %s", name, i, why->msg);
    return body_fault(e, name, &full);
}

/* Count and write the usage of a call that generates nothing. */
static void put_usage(const struct serve_call *c, struct json_writer *w,
                      size_t n_tokens)
{
    metric_add(&c->s->metrics.v[METRIC_PROMPT_TOKENS], n_tokens);
    jw_object(w, "usage");
    jw_uint(w, "prompt_tokens", n_tokens);
    jw_uint(w, "total_tokens", n_tokens);
    jw_end_object(w);
}

/* ---- embeddings ---- */

struct embeddings {
    struct qwick_embedder *m;
    struct qwick_embed_item *items; /* [n], which own their tokens */
    float *rows; /* [n, dim]; a row that is not computed yet begins with a
                    NaN, which no vector contains */
    size_t n, dim;
    size_t n_tokens;  /* of all items */
    size_t n_written; /* vectors that are in json */
    bool base64;
    struct buf json; /* the answer */
    struct json_writer w;
};

static int embeddings_format(struct embeddings *t, const struct json_value *v,
                             struct serve_error *e)
{
    const struct json_value *m = json_member(v, "encoding_format");
    t->base64 = json_equals(m, "base64");
    return !m || t->base64 || json_equals(m, "float")
               ? 0
               : serve_refuse(e, "encoding_format",
                              "encoding_format: must be \"float\" or "
                              "\"base64\"");
}

/* Token ids are taken as they are: nothing is put around them. */
static int embeddings_ids(const struct serve_call *c,
                          const struct body_inputs *in, size_t i, int32_t **ids,
                          size_t *n, struct serve_error *e)
{
    const struct qwick_info *info = qwick_engine_info(c->s->g.eng);
    struct qwick_err why;
    if (body_ids(in, i, info->vocab_size, ids, n, e))
        return -1;
    if (*n <= c->s->n_ctx)
        return 0;
    free(*ids);
    *ids = NULL;
    err_set(&why, QWICK_ERR_CONTEXT, "%zu tokens do not fit the context of %zu",
            *n, c->s->n_ctx);
    return item_fault(e, in->name, i, &why);
}

static int embeddings_encode(struct serve_call *c, const struct body_inputs *in,
                             size_t i, struct serve_error *e)
{
    struct embeddings *t = c->state;
    const struct json_value *v = &in->items[i];
    const struct qwick_embed_text text = {.text = v->str, .n_text = v->len};
    struct qwick_err why;
    int32_t *ids;
    size_t n;
    if (json_is(v, JSON_ARRAY)) {
        if (embeddings_ids(c, in, i, &ids, &n, e))
            return -1;
    } else if (qwick_embed_encode(t->m, &text, &ids, &n, NULL, &why)) {
        return item_fault(e, in->name, i, &why);
    }
    float *row = t->rows + i * t->dim;
    row[0] = NAN;
    t->items[t->n++] = (struct qwick_embed_item){ids, n, row};
    t->n_tokens += n;
    return 0;
}

static int embeddings_read(struct serve_call *c, const struct json_value *v,
                           struct serve_error *e)
{
    struct embeddings *t = c->state;
    struct qwick_engine *eng = c->s->g.eng;
    struct body_inputs in;
    struct qwick_err why;
    int64_t dim = 0;
    const struct json_value *prompt = json_member(v, "prompt_name");
    if (prompt && !json_is(prompt, JSON_STRING))
        return serve_refuse(e, "prompt_name", "prompt_name: must be a string");
    if (embeddings_format(t, v, e) ||
        body_int(v, "dimensions", 1, INT32_MAX, &dim, e) ||
        body_inputs(v, "input", &in, e))
        return -1;
    const struct qwick_embed_options o = {.size = sizeof(o),
                                          .n_ctx = (size_t)c->s->a->ctx,
                                          .dim = (size_t)dim,
                                          .normalize = true,
                                          .progress = slice_layer,
                                          .progress_ctx = c->s,
                                          .interrupt = slice_interrupt(c),
                                          .prompt_name =
                                              prompt ? prompt->str : NULL};
    if (qwick_embedder_create(&t->m, eng, &o, &why))
        return body_fault(e,
                          why.code != QWICK_ERR_USAGE ? NULL
                          : dim                       ? "dimensions"
                                                      : "prompt_name",
                          &why);
    t->dim = qwick_embedder_dim(t->m);
    t->items = calloc(in.n, sizeof(*t->items));
    t->rows = calloc(in.n, t->dim * sizeof(*t->rows));
    if (!t->items || !t->rows) {
        err_oom(&why, in.n * t->dim * sizeof(*t->rows));
        return body_fault(e, NULL, &why);
    }
    for (size_t i = 0; i < in.n; i++)
        if (embeddings_encode(c, &in, i, e))
            return -1;
    return 0;
}

int embeddings_prepare(struct serve_call *c, struct serve_error *e)
{
    static const char *const names[] = {
        "input", "model", "encoding_format", "dimensions", "prompt_name",
        "user",  NULL};
    struct json_doc *doc = NULL;
    if (qwick_engine_info(c->s->g.eng)->is_classifier)
        return serve_refuse(e, "model",
                            "the model gives no vectors: POST /v1/rerank "
                            "scores documents");
    if (!c->s->embeds && !c->s->a->embeddings)
        return serve_refuse(e, "model",
                            "the model is not made for embeddings; with "
                            "--embeddings, qwick serve gives them anyway");
    if (!body_state(c, sizeof(struct embeddings), e))
        return -1;
    int rc = body_read(c, names, &doc, e);
    if (!rc)
        rc = embeddings_read(c, json_root(doc), e);
    json_free(doc);
    return rc;
}

int embeddings_start(struct serve_call *c, struct serve_error *e)
{
    struct embeddings *t = c->state;
    (void)e;
    qwick_embed_begin(t->m, t->items, t->n);
    t->w = json_writer(&t->json);
    jw_object(&t->w, NULL);
    jw_cstr(&t->w, "object", "list");
    jw_array(&t->w, "data");
    return 1;
}

/* Write the vectors that are ready, in order. They are written between passes,
 * because thousands of numbers take a while. */
static void embeddings_write(struct embeddings *t)
{
    struct json_writer *w = &t->w;
    for (; t->n_written < t->n; t->n_written++) {
        const float *row = t->rows + t->n_written * t->dim;
        struct buf text = {0};
        if (isnan(row[0]))
            return;
        jw_object(w, NULL);
        jw_cstr(w, "object", "embedding");
        jw_uint(w, "index", t->n_written);
        if (t->base64) {
            base64_append(&text, row, t->dim * sizeof(*row));
            jw_buf(w, "embedding", &text);
            buf_free_part(&text, &t->json);
        } else {
            jw_floats(w, "embedding", row, t->dim);
        }
        jw_end_object(w);
    }
}

int embeddings_slice(struct serve_call *c, struct serve_error *e)
{
    struct embeddings *t = c->state;
    struct qwick_err why;
    bool more;
    if (qwick_embed_step(t->m, &more, &why))
        return slice_fault(e, &why);
    embeddings_write(t);
    if (more)
        return 1;
    jw_end_array(&t->w);
    jw_cstr(&t->w, "model", serve_id(c->s, c->lora));
    put_usage(c, &t->w, t->n_tokens);
    jw_end_object(&t->w);
    struct buf json = t->json;
    t->json = (struct buf){0};
    serve_reply(c, &json);
    return 0;
}

void embeddings_free(struct serve_call *c)
{
    struct embeddings *t = c->state;
    qwick_embedder_free(t->m);
    for (size_t i = 0; i < t->n; i++)
        free((void *)t->items[i].tokens);
    free(t->items);
    free(t->rows);
    buf_free(&t->json);
    free(t);
}

/* ---- rerank ---- */

struct ranking {
    struct json_doc *doc;               /* of the body */
    const struct json_value *documents; /* an array of its */
    bool returns_documents;
    size_t n_top; /* results in the answer */
    struct qwick_reranker *r;
    struct qwick_rerank_item *items; /* [n], which own their tokens */
    size_t n, n_tokens;
};

/* Return the text of a document, which is a string, or an object with the
 * string "text". NULL: it is neither. */
static const struct json_value *document_text(const struct json_value *v)
{
    const struct json_value *text =
        json_is(v, JSON_STRING) ? v : json_get(v, "text");
    return json_is(text, JSON_STRING) ? text : NULL;
}

static int rerank_encode(struct ranking *t, size_t i, struct serve_error *e)
{
    const struct json_value *text = document_text(&t->documents->items[i]);
    struct qwick_err why;
    int32_t *ids;
    size_t n, n_dropped;
    if (!text)
        return serve_refuse(e, "documents",
                            "documents: item %zu must be a string, or an "
                            "object with the string \"text\"",
                            i);
    if (qwick_rerank_encode(t->r, text->str, text->len, &ids, &n, &n_dropped,
                            &why))
        return item_fault(e, "documents", i, &why);
    t->items[t->n++] = (struct qwick_rerank_item){.tokens = ids, .n = n};
    t->n_tokens += n;
    if (!n_dropped)
        return 0;
    err_set(&why, QWICK_ERR_CONTEXT,
            "%zu tokens, the query included, do not fit the context of %zu",
            n + n_dropped, n);
    return item_fault(e, "documents", i, &why);
}

static int rerank_query(struct serve_call *c, const struct json_value *v,
                        struct serve_error *e)
{
    struct ranking *t = c->state;
    const struct json_value *query = json_member(v, "query");
    bool raw = false;
    if (body_bool(v, "raw_scores", &raw, e))
        return -1;
    const struct qwick_rerank_options o = {.size = sizeof(o),
                                           .n_ctx = (size_t)c->s->a->ctx,
                                           .progress = slice_layer,
                                           .progress_ctx = c->s,
                                           .interrupt = slice_interrupt(c),
                                           .raw_scores = raw};
    struct qwick_err why;
    if (!json_is(query, JSON_STRING) || !query->len)
        return serve_refuse(e, "query",
                            "query: must be a string, and not empty");
    return qwick_reranker_create(&t->r, c->s->g.eng, query->str, query->len, &o,
                                 &why)
               ? body_fault(e, "query", &why)
               : 0;
}

static int rerank_read(struct serve_call *c, const struct json_value *v,
                       struct serve_error *e)
{
    struct ranking *t = c->state;
    struct qwick_err why;
    int64_t top = BODY_MAX_INPUTS;
    t->documents = json_member(v, "documents");
    if (!json_is(t->documents, JSON_ARRAY) || !t->documents->len ||
        t->documents->len > BODY_MAX_INPUTS)
        return serve_refuse(e, "documents",
                            "documents: must be an array of 1 to %d documents",
                            BODY_MAX_INPUTS);
    size_t n = t->documents->len;
    if (body_int(v, "top_n", 1, INT32_MAX, &top, e) ||
        body_bool(v, "return_documents", &t->returns_documents, e) ||
        rerank_query(c, v, e))
        return -1;
    t->n_top = (size_t)top < n ? (size_t)top : n;
    t->items = calloc(n, sizeof(*t->items));
    if (!t->items) {
        err_oom(&why, n * sizeof(*t->items));
        return body_fault(e, NULL, &why);
    }
    for (size_t i = 0; i < n; i++)
        if (rerank_encode(t, i, e))
            return -1;
    return 0;
}

int rerank_prepare(struct serve_call *c, struct serve_error *e)
{
    static const char *const names[] = {
        "query", "documents",  "top_n", "return_documents",
        "model", "raw_scores", NULL};
    struct ranking *t = body_state(c, sizeof(*t), e);
    struct serve *s = c->s;
    if (s->rerank_warning)
        msg_warn("%s: %s", s->id, s->rerank_warning);
    s->rerank_warning = NULL;
    return !t || body_read(c, names, &t->doc, e) ||
                   rerank_read(c, json_root(t->doc), e)
               ? -1
               : 0;
}

int rerank_start(struct serve_call *c, struct serve_error *e)
{
    struct ranking *t = c->state;
    (void)e;
    qwick_rerank_begin(t->r, t->items, t->n);
    return 1;
}

struct rank {
    size_t index;
    double score;
};

/* Best first; equal scores in the order of the documents. */
static int by_score(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void rerank_write(const struct serve_call *c, const struct rank *ranks,
                         struct buf *out)
{
    const struct ranking *t = c->state;
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    jw_cstr(&w, "model", serve_id(c->s, c->lora));
    jw_array(&w, "results");
    for (size_t i = 0; i < t->n_top; i++) {
        size_t k = ranks[i].index;
        const struct json_value *text = document_text(&t->documents->items[k]);
        jw_object(&w, NULL);
        jw_uint(&w, "index", k);
        jw_double(&w, "relevance_score", ranks[i].score);
        if (t->returns_documents) {
            jw_object(&w, "document");
            jw_string(&w, "text", text->str, text->len);
            jw_end_object(&w);
        }
        jw_end_object(&w);
    }
    jw_end_array(&w);
    put_usage(c, &w, t->n_tokens);
    jw_end_object(&w);
}

int rerank_slice(struct serve_call *c, struct serve_error *e)
{
    struct ranking *t = c->state;
    struct buf out = {0};
    struct qwick_err why;
    bool more;
    if (qwick_rerank_step(t->r, &more, &why))
        return slice_fault(e, &why);
    if (more)
        return 1;
    struct rank *ranks = calloc(t->n, sizeof(*ranks));
    if (!ranks) {
        err_oom(&why, t->n * sizeof(*ranks));
        return body_fault(e, NULL, &why);
    }
    for (size_t i = 0; i < t->n; i++)
        ranks[i] = (struct rank){i, t->items[i].score};
    qsort(ranks, t->n, sizeof(*ranks), by_score);
    rerank_write(c, ranks, &out);
    free(ranks);
    serve_reply(c, &out);
    return 0;
}

void rerank_free(struct serve_call *c)
{
    struct ranking *t = c->state;
    qwick_reranker_free(t->r);
    for (size_t i = 0; i < t->n; i++)
        free((void *)t->items[i].tokens);
    free(t->items);
    json_free(t->doc);
    free(t);
}
