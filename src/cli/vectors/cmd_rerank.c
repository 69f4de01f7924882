#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/opt/common.h"
#include "cli/io/json_writer.h"
#include "cli/opt/opt.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/sandbox/sandbox.h"
#include "cli/io/signals.h"
#include "cli/vectors/texts.h"
#include "cli/opt/verbs.h"
#include "qwick.h"

struct args {
    struct common_args c;
    const char *query, *instruct;
    struct opt_texts files;
    bool in_order;
    int64_t top, max_batch;
    double threshold;
};

#define ARG(field) offsetof(struct args, field)

static const struct opt opts[] = {
    {.type = OPT_HEADING, .help = "Query and documents"},
    {.name = "query",
     .letter = 'q',
     .letter_late = true,
     .type = OPT_TEXT,
     .arg = "QUERY",
     .help = "question that the documents should answer",
     .offset = ARG(query)},
    {.name = "instruct",
     .type = OPT_TEXT,
     .arg = "TASK",
     .def = "Given a web search query, retrieve relevant passages that answer "
            "the query",
     .help = "what relevant means",
     .offset = ARG(instruct)},
    {.name = "file",
     .letter = 'f',
     .type = OPT_TEXTS,
     .access = OPT_READS,
     .arg = "FILE",
     .help = "a document from FILE, in place of arguments; repeatable, - is "
             "stdin",
     .offset = ARG(files)},
    OPT_ROWS_INPUT,
    {.name = "lines",
     .type = OPT_FLAG,
     .help = "each line of the input is a document",
     .offset = COMMON(lines)},
    {.name = "jsonl",
     .type = OPT_FLAG,
     .help = "each line is an object {\"text\",\"id\"}; \"id\" is optional; "
             "lines of {\"id\",\"index\",\"score\",...} out",
     .offset = COMMON(jsonl)},

    {.type = OPT_HEADING, .help = "Output"},
    {.name = "top",
     .type = OPT_INT,
     .arg = "N",
     .imin = 1,
     .imax = INT32_MAX,
     .def = "all",
     .help = "print only the N best documents",
     .offset = ARG(top)},
    {.name = "threshold",
     .type = OPT_NUMBER,
     .arg = "P",
     .min = 0,
     .max = 1,
     .def = "0",
     .help = "print only documents with at least this score",
     .offset = ARG(threshold)},
    {.name = "in-order",
     .type = OPT_FLAG,
     .help = "print documents in input order, not the best first",
     .offset = ARG(in_order)},
    {.name = "json",
     .type = OPT_FLAG,
     .help = "print one JSON object instead of a table",
     .offset = COMMON(json)},

    OPT_ROWS_EVALUATE,
    OPT_ROWS_MAX_BATCH(ARG(max_batch), "64",
                       "most documents to evaluate together"),
    OPT_ROWS_SANDBOX,
    OPT_ROWS_BASIC, /* after the verb, -q is --query, not --quiet */
};

/* Most documents and tokens of a group, which is scored at once. */
enum { GROUP_DOCS = 256, GROUP_TOKENS = 1 << 16 };

struct doc {
    size_t number; /* from 1 */
    char *id;      /* JSON, or NULL */
    char *file;    /* name of the file that is the document, or NULL */
    char *text;    /* NULL with file */
    size_t n_text;
    char *error; /* why there is no score, as a JSON string; or NULL */
    int32_t *ids;
    size_t n_tokens, n_dropped;
    double score;
};

struct job {
    const struct verb *verb;
    struct opt_parsed p;
    struct args a;
    enum texts_form form;
    struct qwick_engine *eng;
    struct qwick_reranker *r;
    struct doc *docs; /* [n_docs] documents that are not written yet */
    size_t n_docs, cap_docs;
    size_t n_cut; /* documents that lost their ends */
    size_t n_scored;          /* docs[0..n_scored) have a score or an error */
    size_t n_tokens;          /* tokens of the documents after n_scored */
    uint64_t n_done, n_total; /* numbers of documents; total 0: unknown */
    struct qwick_rerank_item items[GROUP_DOCS];
    struct buf out;
    bool bad_records;
    bool has_names; /* rows have names of files instead of texts */
};

/* ---- output ------------------------------------------------------------- */

/* Write a field of a table: tab, newline, carriage return and backslash become
 * \t, \n, \r and \\, other control bytes become \xNN. */
static int put_field(struct buf *b, const char *s, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n && !bad; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '\t')
            bad = buf_puts(b, "\\t");
        else if (c == '\n')
            bad = buf_puts(b, "\\n");
        else if (c == '\r')
            bad = buf_puts(b, "\\r");
        else if (c == '\\')
            bad = buf_puts(b, "\\\\");
        else if (c < 0x20 || c == 0x7f)
            bad = buf_printf(b, "\\x%02x", c);
        else
            bad = buf_putc(b, s[i]);
    }
    return bad;
}

static int put_row(struct buf *b, const struct doc *d)
{
    int bad = buf_printf(b, "%.6f\t", d->score);
    if (d->file)
        bad |= put_field(b, d->file, strlen(d->file));
    else
        bad |= buf_printf(b, "%zu\t", d->number);
    if (!d->file)
        bad |= put_field(b, d->text, d->n_text);
    return bad | buf_putc(b, '\n');
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

/* Best first; documents without a score last; equal scores in input order. */
static int by_score(const void *a, const void *b)
{
    const struct doc *x = a, *y = b;
    if (!x->error != !y->error)
        return x->error ? 1 : -1;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int by_number(const void *a, const void *b)
{
    const struct doc *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool worse(const struct job *j, const struct doc *d)
{
    return !d->error && d->score < j->a.threshold;
}

/* Sort docs. Documents beyond --top get the score -1, which is below any
 * threshold. */
static void arrange(struct job *j)
{
    bool by_top = j->a.top && (size_t)j->a.top < j->n_docs;
    if (!j->n_docs)
        return;
    if (by_top || !j->a.in_order)
        qsort(j->docs, j->n_docs, sizeof *j->docs, by_score);
    for (size_t i = by_top ? (size_t)j->a.top : j->n_docs; i < j->n_docs; i++)
        if (!j->docs[i].error)
            j->docs[i].score = -1;
    if (by_top && j->a.in_order)
        qsort(j->docs, j->n_docs, sizeof *j->docs, by_number);
}

static void put_objects(struct job *j, struct json_writer *w)
{
    for (size_t i = 0; i < j->n_docs; i++) {
        if (worse(j, &j->docs[i]))
            continue;
        put_object(w, &j->docs[i]);
        if (j->a.c.jsonl)
            jw_newline(w);
    }
}

/* Write documents as rows or as JSON lines. */
static int put_docs(struct job *j)
{
    struct json_writer w = json_writer(&j->out);
    int bad = 0;
    if (j->a.c.jsonl)
        put_objects(j, &w);
    for (size_t i = 0; !j->a.c.jsonl && i < j->n_docs && !bad; i++)
        if (!worse(j, &j->docs[i]))
            bad |= put_row(&j->out, &j->docs[i]);
    return jw_status(&w) || bad ? msg_oom() : 0;
}

static int put_one_object(struct job *j)
{
    struct json_writer w = json_writer(&j->out);
    jw_object(&w, NULL);
    jw_cstr(&w, "model", qwick_engine_info(j->eng)->model);
    jw_cstr(&w, "query", j->a.query);
    jw_array(&w, "results");
    put_objects(j, &w);
    jw_end_array(&w);
    jw_end_object(&w);
    jw_newline(&w);
    return jw_status(&w) ? msg_oom() : 0;
}

static int put_all(struct job *j)
{
    arrange(j);
    int status = j->a.c.json ? put_one_object(j) : put_docs(j);
    return status ? status : flush(j);
}

/* ---- scores ------------------------------------------------------------- */

/* Whether documents are written as soon as they have their scores. */
static bool streams(const struct job *j)
{
    return j->a.in_order && !j->a.top && !j->a.c.json;
}

/* Score the documents that were added since the last call. */
static int answer(struct job *j)
{
    struct qwick_err e = {0};
    size_t n = 0;
    for (size_t i = j->n_scored; i < j->n_docs; i++) {
        if (j->docs[i].error)
            continue;
        j->items[n] = (struct qwick_rerank_item){.tokens = j->docs[i].ids,
                                                 .n = j->docs[i].n_tokens};
        n++;
    }
    size_t n_group = j->n_docs - j->n_scored;
    progress_items("documents", j->n_done, n_group, j->n_total, 0);
    int failed = qwick_rerank(j->r, j->items, n, &e);
    progress_clear();
    j->n_done += n_group;
    if (failed)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    n = 0;
    for (; j->n_scored < j->n_docs; j->n_scored++) {
        struct doc *d = &j->docs[j->n_scored];
        if (!d->error)
            d->score = j->items[n++].score;
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
static int bad_record(struct job *j, struct doc *d, const char *msg)
{
    d->error = strdup(msg);
    if (!d->error)
        return msg_oom();
    j->bad_records = true;
    return 0;
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
    if (j->n_docs == j->cap_docs) {
        size_t cap = j->cap_docs ? 2 * j->cap_docs : GROUP_DOCS, bytes;
        struct doc *docs = NULL;
        if (size_mul(cap, sizeof *docs, &bytes) == 0)
            docs = realloc(j->docs, bytes);
        if (!docs)
            return NULL;
        j->docs = docs;
        j->cap_docs = cap;
    }
    struct doc *d = &j->docs[j->n_docs++];
    *d = (struct doc){0};
    return d;
}

static int take(void *ctx, const struct texts_item *item)
{
    struct job *j = ctx;
    struct doc *d = new_doc(j);
    struct qwick_err e = {0};
    if (!d || copy_doc(d, item))
        return msg_oom();
    j->has_names = j->has_names || d->file;
    if (item->error) {
        int status = bad_record(j, d, item->error);
        if (status)
            return status;
    } else if (qwick_rerank_encode(j->r, item->text, item->n, &d->ids,
                                   &d->n_tokens, &d->n_dropped, &e)) {
        return msg_fail(&e);
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
               ? answer(j)
               : 0;
}

static int on_wait(void *ctx)
{
    return answer(ctx);
}

/* ---- the verb ----------------------------------------------------------- */

static int open_reranker(struct job *j, const char *warning)
{
    struct qwick_err e = {0};
    const char *instruct = j->a.instruct;
    struct qwick_rerank_options o = {.size = sizeof(o),
                                     .instruct = instruct,
                                     .n_instruct =
                                         instruct ? strlen(instruct) : 0,
                                     .n_ctx = (size_t)j->a.c.ctx,
                                     .max_batch = (size_t)j->a.max_batch,
                                     .progress = progress_step,
                                     .interrupt = signals_flag()};
    struct buf query = {0};
    int status = 0;
    signals_catch();
    if (utf8_sanitize(&query, j->a.query, strlen(j->a.query)) ||
        buf_reserve(&query, 0))
        status = msg_oom();
    else if (qwick_reranker_create(&j->r, j->eng, query.data, query.len, &o,
                                   &e)) {
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

static int rerank(struct job *j)
{
    int status = texts_form(&j->p, &j->a.c, &j->form);
    if (status >= 0)
        return status;
    if (!j->a.query || !*j->a.query)
        return opt_usage(j->verb, "no --query; usage: qwick rerank -q QUERY "
                                  "[OPTIONS] [DOCUMENT...]");
    if (out_check())
        return QWICK_ERR_RUNTIME; /* fail before the work, not after it */
    const struct texts t = {.verb = j->verb,
                            .form = j->form,
                            .args = j->p.args,
                            .n_args = j->p.n_args,
                            .files = texts_files(j->form, &j->a.c, &j->a.files),
                            .take = take,
                            .wait = streams(j) ? on_wait : NULL};
    if ((status = common_open(&j->eng, &j->a.c, false)) != 0)
        return status;
    const char *warning = qwick_rerank_suitability(j->eng); /* reads a file */
    if ((status = sandbox_enter(&j->p, &j->a.c, j->eng, NULL, SIZE_MAX)) != 0)
        return status;
    progress_start("rerank");
    if (progress_on())
        j->n_total = texts_total(&t);
    progress_items("documents", 0, 0, j->n_total, 0);
    if ((status = open_reranker(j, warning)) != 0)
        return status;
    if ((status = texts_run(&t, j)) != 0 || (status = answer(j)) != 0)
        return status;
    if (!streams(j) && (status = put_all(j)) != 0)
        return status;
    progress_clear();
    if (j->n_cut)
        msg_warn("documents that do not fit the context and were scored without "
                 "their ends: %zu (-v names them)",
                 j->n_cut);
    return j->bad_records ? (int)QWICK_ERR_RUNTIME : 0;
}

static int run(const struct verb *v, int argc, char **argv)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return msg_oom();
    j->verb = v;
    int status = opt_parse(&j->p, v, argc, argv, &j->a);
    if (status < 0)
        status = common_check(&j->p, &j->a.c);
    if (status < 0)
        status = rerank(j);
    progress_stop();
    free_docs(j);
    free(j->docs);
    qwick_reranker_free(j->r);
    qwick_engine_close(j->eng);
    buf_free(&j->out);
    opt_free(&j->p, &j->a);
    free(j);
    return status;
}

const struct verb verb_rerank = {
    .name = "rerank",
    .args = "-q QUERY [DOCUMENT...]",
    .summary = "documents by relevance (Qwen3-Reranker)",
    .about = "Print how likely each DOCUMENT, each file of -f, or each line "
             "(--lines,\n--jsonl) answers the query, the best first. A row has "
             "score, number and text,\nor score and name of a file, separated "
             "by tabs.",
    .examples =
        "  qwick rerank -q \"list files\" \"ls -l\" \"du -sh\" \"rm -r\"\n"
        "  qwick rerank -q \"list files\" --lines -i notes.txt --top 3\n",
    OPT_TABLE(opts),
    .run = run,
};
