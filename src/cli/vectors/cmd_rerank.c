#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "cli/answer/answer_json.h"
#include "cli/io/escape.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/sandbox.h"
#include "cli/vectors/texts.h"
#include "file/json_writer.h"
#include "qwick.h"

/* Most documents and tokens of a group, which is scored at once. */
enum { GROUP_DOCS = 256, GROUP_TOKENS = 1 << 16 };

struct doc {
    size_t number; /* from 1 */
    char *id;      /* JSON, or NULL */
    char *file;    /* name of the file that is the document, or NULL */
    char *text;    /* NULL with file */
    size_t n_text;
    bool is_ids; /* there is no text, only ids */
    char *error; /* why there is no score, as a JSON string; or NULL */
    int32_t *ids;
    size_t n_tokens, n_dropped;
    size_t n_first; /* with is_ids, see texts_ids */
    double score;
    bool below_top; /* not one of the best */
};

struct job {
    const struct opt_parsed *p;
    const struct args *a; /* of p */
    struct texts texts;   /* the input */
    struct qwick_engine *eng;
    struct qwick_reranker *r;
    struct doc *docs; /* [n_docs] documents that are not written yet */
    size_t n_docs, cap_docs;
    size_t n_cut;             /* documents that lost their ends */
    size_t n_scored;          /* docs[0..n_scored) have a score or an error */
    size_t n_tokens;          /* tokens of the documents after n_scored */
    uint64_t n_done, n_total; /* numbers of documents; total 0: unknown */
    struct qwick_rerank_item items[GROUP_DOCS];
    size_t n_first[GROUP_DOCS]; /* of items */
    struct buf out;
    bool bad_records;
    bool has_names; /* rows have names of files instead of texts */
};

/* ---- output ------------------------------------------------------------- */

/* Write a row of the table: backslashes and control bytes become \\, \t, \n, \r
 * and \xNN. */
static void put_row(struct buf *b, const struct doc *d)
{
    buf_printf(b, "%.6f\t", d->score);
    if (!d->file)
        buf_printf(b, "%zu\t", d->number);
    escape_letters(b, d->file ? d->file : d->text,
                   d->file ? strlen(d->file) : d->n_text, "\t\n\r\\", "tnr\\",
                   true);
    buf_putc(b, '\n');
}

static void put_object(struct json_writer *w, const struct doc *d)
{
    jw_object(w, NULL);
    if (d->id)
        jw_raw(w, "id", d->id, strlen(d->id));
    jw_uint(w, "index", d->number);
    if (d->error) {
        jw_cstr(w, "error", d->error);
        jw_end_object(w);
        return;
    }
    jw_double(w, "score", d->score);
    jw_uint(w, "tokens", d->n_tokens);
    if (d->n_dropped)
        jw_uint(w, "dropped_tokens", d->n_dropped);
    if (d->file)
        jw_cstr(w, "file", d->file);
    else if (d->is_ids)
        json_ids(w, "prompt_ids", d->ids, d->n_tokens);
    else
        jw_string(w, "text", d->text, d->n_text);
    jw_end_object(w);
}

static void free_docs(struct job *j)
{
    for (size_t i = 0; i < j->n_docs; i++) {
        free(j->docs[i].id);
        free(j->docs[i].file);
        free(j->docs[i].text);
        free(j->docs[i].error);
        free(j->docs[i].ids);
    }
    j->n_docs = j->n_scored = 0;
}

static int flush(struct job *j)
{
    int status = 0;
    if (j->out.len)
        progress_output(STDOUT_FILENO);
    if (j->out.len &&
        (j->has_names ? out_write_names : out_write)(j->out.data, j->out.len))
        status = QWICK_ERR_RUNTIME;
    j->out.len = 0;
    return status;
}

static int by_number(const void *a, const void *b)
{
    const struct doc *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Best first; documents without a score last; equal scores in input order. */
static int by_score(const void *a, const void *b)
{
    const struct doc *x = a, *y = b;
    if (!x->error != !y->error)
        return x->error ? 1 : -1;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return by_number(a, b);
}

static bool worse(const struct job *j, const struct doc *d)
{
    return d->below_top || (!d->error && opt_given(j->p, OPT_threshold) &&
                            d->score < j->a->threshold);
}

/* Sort docs, and mark those beyond --top. */
static void arrange(struct job *j)
{
    bool by_top = j->a->top && (size_t)j->a->top < j->n_docs;
    if (!j->n_docs)
        return;
    if (by_top || !j->a->in_order)
        qsort(j->docs, j->n_docs, sizeof *j->docs, by_score);
    for (size_t i = by_top ? (size_t)j->a->top : j->n_docs; i < j->n_docs; i++)
        j->docs[i].below_top = !j->docs[i].error;
    if (by_top && j->a->in_order)
        qsort(j->docs, j->n_docs, sizeof *j->docs, by_number);
}

static void put_objects(struct job *j, struct json_writer *w)
{
    for (size_t i = 0; i < j->n_docs; i++) {
        if (worse(j, &j->docs[i]))
            continue;
        put_object(w, &j->docs[i]);
        if (j->a->jsonl)
            jw_end_line(w);
    }
}

/* Write documents as rows or as JSON lines. */
static int put_docs(struct job *j)
{
    struct json_writer w = json_writer(&j->out);
    if (j->a->jsonl)
        put_objects(j, &w);
    for (size_t i = 0; !j->a->jsonl && i < j->n_docs; i++)
        if (!worse(j, &j->docs[i]))
            put_row(&j->out, &j->docs[i]);
    return jw_status(&w) || j->out.failed ? msg_oom() : 0;
}

static int put_one_object(struct job *j)
{
    struct json_writer w = jw_line(&j->out);
    jw_cstr(&w, "model", qwick_engine_info(j->eng)->model);
    if (j->a->query)
        jw_cstr(&w, "query", j->a->query);
    jw_array(&w, "results");
    put_objects(j, &w);
    return jw_end_line(&w) ? msg_oom() : 0;
}

static int put_all(struct job *j)
{
    arrange(j);
    int status = j->a->json ? put_one_object(j) : put_docs(j);
    return status ? status : flush(j);
}

/* ---- scores ------------------------------------------------------------- */

/* Whether documents are written as soon as they have their scores. */
static bool streams(const struct job *j)
{
    return j->a->in_order && !j->a->top && !j->a->json;
}

static int rerank_items(struct job *j, size_t n, struct qwick_err *e)
{
    bool more = true;
    qwick_rerank_begin_pairs(j->r, j->items, j->n_first, n);
    while (more)
        if (qwick_rerank_step(j->r, &more, e))
            return -1;
    return 0;
}

/* Score the documents that were added since the last call. */
static int rerank_answer(struct job *j)
{
    struct qwick_err e = {0};
    size_t n = 0;
    for (size_t i = j->n_scored; i < j->n_docs; i++) {
        if (j->docs[i].error)
            continue;
        j->items[n] = (struct qwick_rerank_item){.tokens = j->docs[i].ids,
                                                 .n = j->docs[i].n_tokens};
        j->n_first[n++] =
            j->docs[i].is_ids ? j->docs[i].n_first : QWICK_RERANK_OWN;
    }
    size_t n_group = j->n_docs - j->n_scored;
    progress_items("documents", j->n_done, n_group, j->n_total, 0);
    int failed = rerank_items(j, n, &e);
    progress_clear();
    j->n_done += n_group;
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    n = 0;
    for (; j->n_scored < j->n_docs; j->n_scored++) {
        struct doc *d = &j->docs[j->n_scored];
        if (!d->error)
            d->score = j->items[n++].score;
        if (d->is_ids)
            continue;
        free(d->ids);
        d->ids = NULL;
    }
    j->n_tokens = 0;
    if (!streams(j))
        return 0;
    int status = put_docs(j);
    free_docs(j);
    return status ? status : flush(j);
}

/* ---- documents ---------------------------------------------------------- */

/* Handle a line that is not a document: JSON lines get an error in its
 * place. */
static int bad_record(struct job *j, struct doc *d, const char *where,
                      const char *msg)
{
    struct buf text = {0};
    if (record_message(&text, where, msg) || buf_reserve(&text, 0))
        return msg_oom();
    d->error = buf_take(&text, NULL);
    j->bad_records = true;
    return 0;
}

/* Get the ids of a document. */
static int rerank_encode(struct job *j, struct doc *d,
                         const struct texts_item *item, struct qwick_err *e)
{
    if (item->error)
        return err_usage(e, "%s", item->error);
    return item->is_ids
               ? texts_ids(&j->texts, item, &d->ids, &d->n_tokens, &d->n_first,
                           e)
               : qwick_rerank_encode(j->r, item->text, item->n, &d->ids,
                                     &d->n_tokens, &d->n_dropped, e);
}

static int copy_doc(struct doc *d, const struct texts_item *item)
{
    d->number = item->number;
    if (item->id && !(d->id = strdup(item->id)))
        return -1;
    if (item->file)
        return (d->file = strdup(item->file)) ? 0 : -1;
    if (!item->text)
        return 0;
    d->text = malloc(item->n + 1);
    if (!d->text)
        return -1;
    memcpy(d->text, item->text, item->n);
    d->n_text = item->n;
    return 0;
}

static struct doc *new_doc(struct job *j)
{
    if (ARRAY_RESERVE(j->docs, j->cap_docs, j->n_docs + 1, NULL))
        return NULL;
    struct doc *d = &j->docs[j->n_docs++];
    *d = (struct doc){0};
    return d;
}

static int no_query(const struct opt_parsed *p)
{
    return opt_usage(p->verb, "no --query; usage: qwick rerank -q QUERY "
                              "[OPTIONS] [DOCUMENT...]");
}

static int rerank_take(void *ctx, const struct texts_item *item)
{
    struct job *j = ctx;
    struct doc *d = new_doc(j);
    struct qwick_err e = {0};
    if (!d || copy_doc(d, item))
        return msg_oom();
    j->has_names = j->has_names || d->file;
    d->is_ids = item->is_ids;
    if (!item->error && !item->is_ids && !j->a->query)
        return no_query(j->p);
    if (rerank_encode(j, d, item, &e)) {
        bool own = item->error || (item->is_ids && item->value);
        int status = own ? bad_record(j, d, item->where, e.msg) : msg_fail(&e);
        if (status)
            return status;
    }
    if (d->n_dropped)
        progress_clear();
    if (d->n_dropped)
        msg_note("%s: the last %zu tokens of the document do not fit the "
                 "context and are dropped",
                 item->where, d->n_dropped);
    j->n_cut += d->n_dropped != 0;
    j->n_tokens += d->n_tokens;
    if (*signals_flag())
        return QWICK_ERR_RUNTIME;
    return j->n_docs - j->n_scored == GROUP_DOCS || j->n_tokens >= GROUP_TOKENS
               ? rerank_answer(j)
               : 0;
}

static int on_wait(void *ctx)
{
    return rerank_answer(ctx);
}

/* ---- the verb ----------------------------------------------------------- */

static int open_reranker(struct job *j, const char *warning)
{
    struct qwick_err e = {0};
    const char *instruct = j->a->instruct;
    struct qwick_rerank_options o = {.size = sizeof(o),
                                     .instruct = instruct,
                                     .n_instruct =
                                         instruct ? strlen(instruct) : 0,
                                     .n_ctx = (size_t)j->a->ctx,
                                     .max_batch = (size_t)j->a->max_batch,
                                     .progress = progress_step,
                                     .interrupt = signals_flag(),
                                     .raw_scores = j->a->raw_scores};
    struct buf query = {0};
    const char *q = j->a->query;
    int status = 0;
    signals_catch();
    if ((q && utf8_sanitize(&query, q, strlen(q))) || buf_reserve(&query, 0))
        status = msg_oom();
    else if (qwick_reranker_create(&j->r, j->eng, q ? query.data : NULL,
                                   query.len, &o, &e)) {
        progress_clear();
        status = *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    }
    buf_free(&query);
    if (warning && !status) {
        progress_clear();
        msg_warn("%s: %s", qwick_engine_info(j->eng)->model, warning);
    }
    return status;
}

static int rerank_check(struct opt_parsed *p)
{
    int r = texts_check(p);
    if (r >= 0)
        return r;
    if (!p->a.raw_scores && !(p->a.threshold >= 0 && p->a.threshold <= 1))
        return opt_usage(p->verb,
                         "--threshold: must be from 0 to 1 without "
                         "--raw-scores, is %g",
                         p->a.threshold);
    /* objects may have prompt_ids */
    if (p->a.query ? !*p->a.query : !p->a.prompt_ids && !p->a.jsonl)
        return no_query(p);
    return out_check() ? (int)QWICK_ERR_RUNTIME
                       : -1; /* fail before the work, not after it */
}

static int rerank(struct job *j)
{
    j->texts = (struct texts){.p = j->p,
                              .take = rerank_take,
                              .wait = streams(j) ? on_wait : NULL,
                              .ids_of = qwick_engine_info(j->eng)};
    const char *warning = qwick_rerank_suitability(j->eng); /* reads a file */
    int status = sandbox_enter(j->p, j->eng, NULL, SIZE_MAX);
    if (status)
        return status;
    progress_start("rerank");
    if (progress_on())
        j->n_total = texts_total(&j->texts);
    progress_items("documents", 0, 0, j->n_total, 0);
    if ((status = open_reranker(j, warning)) != 0)
        return status;
    if ((status = texts_run(&j->texts, j)) != 0 ||
        (status = rerank_answer(j)) != 0)
        return status;
    if (!streams(j) && (status = put_all(j)) != 0)
        return status;
    progress_clear();
    if (j->n_cut)
        msg_warn(
            "documents that do not fit the context and were scored without "
            "their ends: %zu (-v names them)",
            j->n_cut);
    return j->bad_records ? (int)QWICK_ERR_RUNTIME : 0;
}

static int rerank_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return msg_oom();
    j->p = p;
    j->a = &p->a;
    j->eng = eng;
    int status = rerank(j);
    progress_stop();
    free_docs(j);
    free(j->docs);
    qwick_reranker_free(j->r);
    buf_free(&j->out);
    free(j);
    return status;
}

const struct verb verb_rerank = {
    .bit = V_RERANK,
    .name = "rerank",
    .group = VERBS_DECIDE,
    .args = "-q QUERY [DOCUMENT...]",
    .summary = "documents by relevance (cross-encoders, Qwen3-Reranker)",
    .about = "Print how likely each DOCUMENT, each file of -f, or each line "
             "(--lines,\n--jsonl) answers the query, the best first. A row has "
             "score, number and text,\nor score and name of a file, separated "
             "by tabs.",
    .examples =
        "  qwick rerank -q \"list files\" \"ls -l\" \"du -sh\" \"rm -r\"\n"
        "  qwick rerank -q \"list files\" --lines -i notes.txt --top 3\n",
    .opens = OPENS_MODEL,
    .check = rerank_check,
    .run = rerank_run,
};
