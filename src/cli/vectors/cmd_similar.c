#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/io/escape.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/io/term.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/settings.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/open_model.h"
#include "cli/sandbox/sandbox.h"
#include "cli/vectors/texts.h"
#include "file/json_writer.h"
#include "qwick_tools.h"

/* Most queries that share a read of the index, and most hits of them all. */
enum { GROUP_QUERIES = 256, GROUP_HITS = 1 << 20 };

struct query {
    size_t number; /* from 1 */
    char *id;      /* JSON, or NULL */
    char *error;   /* the reason for no results, or NULL */
    int32_t *ids;
    size_t n;
};

struct job {
    const struct opt_parsed *p;
    const struct args *a; /* of p */
    const char *dir;
    struct qwick_index *ix;
    const struct qwick_index_info *info; /* of ix */
    struct qwick_engine *eng;            /* NULL with --id */
    struct qwick_embedder *m;            /* NULL with --id */
    bool json, many; /* print JSON; there may be several queries */
    struct query group[GROUP_QUERIES];
    size_t n, max; /* queries in the group */
    struct qwick_embed_item items[GROUP_QUERIES];
    float *rows;                  /* [max, dim] */
    struct qwick_index_hit *hits; /* [max, top] */
    size_t top;
    size_t n_hits[GROUP_QUERIES];
    struct buf out;
    bool bad_records;
    size_t n_cut; /* queries that the model's limit has cut */
};

/* ---- output -------------------------------------------------------------- */

/* Append s as one line: its tabs, line ends and control bytes are escaped. */
static void put_escaped(struct buf *b, const char *s, size_t n)
{
    escape_letters(b, s, n, "\t\n\r\\", "tnr\\", true);
}

/* A terminal's lines do not wrap. Text is escaped for it here, since escapes
 * take columns. */
static void put_line(struct job *j, struct buf *line)
{
    struct buf shown = {0};
    size_t n = line->len, columns = term_columns(STDOUT_FILENO);
    const char *s = buf_text(line);
    if (out_is_tty() && !out_escape(&shown, s, n)) {
        s = buf_text(&shown);
        n = progress_fit(s, shown.len, columns);
    }
    buf_append(&j->out, s, n);
    buf_putc(&j->out, '\n');
    buf_free_part(&shown, &j->out);
}

/* The name of a query in a table: the id of its record, else its number. */
static void put_name(struct buf *b, const struct query *q)
{
    size_t n = q->id ? strlen(q->id) : 0;
    bool is_text = n > 1 && *q->id == '"';
    if (q->id) /* the bytes between the quotes are escaped as JSON is */
        buf_append(b, q->id + is_text, n - 2 * is_text);
    else
        buf_printf(b, "%zu", q->number);
    buf_putc(b, '\t');
}

static void put_row(struct job *j, const struct query *q, float score,
                    const struct qwick_index_row *row)
{
    struct buf line = {0};
    if (j->many)
        put_name(&line, q);
    if (!j->a->ids_only)
        buf_printf(&line, "%.6f\t", (double)score);
    put_escaped(&line, row->id, row->n_id);
    if (!j->a->ids_only) {
        buf_putc(&line, '\t');
        put_escaped(&line, row->text, row->n_text);
    }
    put_line(j, &line);
    buf_free_part(&line, &j->out);
}

static void begin_object(struct json_writer *w, const struct query *q)
{
    jw_uint(w, "query", q->number);
    if (q->id)
        jw_raw(w, "query_id", q->id, strlen(q->id));
}

static void put_object(struct job *j, const struct query *q, size_t rank,
                       float score, const struct qwick_index_row *row)
{
    struct json_writer w = jw_line(&j->out);
    struct buf digits = {0};
    if (buf_json_float(&digits, score))
        j->out.failed = true;
    begin_object(&w, q);
    jw_uint(&w, "rank", rank);
    jw_raw(&w, "score", digits.data, digits.len);
    buf_free(&digits);
    jw_string(&w, "id", row->id, row->n_id);
    jw_string(&w, "text", row->text, row->n_text);
    if (jw_end_line(&w))
        j->out.failed = true;
}

static void put_error(struct job *j, const struct query *q)
{
    struct json_writer w = jw_line(&j->out);
    begin_object(&w, q);
    jw_cstr(&w, "error", q->error);
    if (jw_end_line(&w))
        j->out.failed = true;
}

static int put_hits(struct job *j, size_t i)
{
    const struct query *q = &j->group[i];
    for (size_t k = 0; k < j->n_hits[i]; k++) {
        const struct qwick_index_hit *hit = &j->hits[i * j->top + k];
        struct qwick_index_row row;
        struct qwick_err e = {0};
        if (qwick_index_get_row(j->ix, hit->row, &row, &e))
            return msg_fail(&e);
        if (j->json)
            put_object(j, q, k + 1, hit->score, &row);
        else
            put_row(j, q, hit->score, &row);
    }
    return 0;
}

static int flush(struct job *j)
{
    if (j->out.failed)
        return msg_oom();
    if (j->out.len)
        progress_output(STDOUT_FILENO);
    int failed = j->out.len && out_write(j->out.data, j->out.len);
    j->out.len = 0;
    return failed ? (int)QWICK_ERR_RUNTIME : 0;
}

/* ---- search -------------------------------------------------------------- */

/* Find and print the results of the group. rows has n vectors, of the queries
 * without an error. skip: a row that is left out. */
static int search(struct job *j, size_t n, size_t skip)
{
    struct qwick_index_query q = qwick_index_query_defaults();
    struct qwick_index_times t;
    struct qwick_err e = {0};
    q.vectors = j->rows;
    q.n = n;
    q.top = j->top;
    q.skip = skip;
    q.threads = (int)j->a->threads;
    q.interrupt = signals_flag();
    if (opt_given(j->p, OPT_min_score))
        q.min_score = j->a->min_score;
    if (qwick_index_search(j->ix, j->eng, &q, j->hits, j->n_hits, &t, &e))
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    double bytes =
        (double)j->info->n_rows * (double)j->info->dim * (j->info->f16 ? 2 : 4);
    progress_clear();
    msg_note("search: reading %.2f ms, products %.2f ms, %.2f GB/s", t.read_ms,
             t.product_ms, t.product_ms > 0 ? bytes / t.product_ms / 1e6 : 0.0);
    return 0;
}

/* Give queries with an error no hits: move the hits of other queries to their
 * places. */
static void spread_hits(struct job *j, size_t n)
{
    for (size_t i = j->n; i-- > 0;) {
        if (j->group[i].error) {
            j->n_hits[i] = 0;
            continue;
        }
        j->n_hits[i] = j->n_hits[--n];
        memmove(j->hits + i * j->top, j->hits + n * j->top,
                j->n_hits[i] * sizeof *j->hits);
    }
}

static void clear_group(struct job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        free(j->group[i].id);
        free(j->group[i].error);
        free(j->group[i].ids);
        j->group[i] = (struct query){0};
    }
    j->n = 0;
}

static int put_group(struct job *j)
{
    int status = 0;
    for (size_t i = 0; i < j->n && !status; i++) {
        if (!j->group[i].error)
            status = put_hits(j, i);
        else if (j->json)
            put_error(j, &j->group[i]);
    }
    clear_group(j);
    return status ? status : flush(j);
}

static int similar_answer(struct job *j)
{
    struct qwick_err e = {0};
    size_t n = 0;
    double start = clock_ms();
    for (size_t i = 0; i < j->n; i++)
        if (!j->group[i].error) {
            j->items[n] = (struct qwick_embed_item){
                j->group[i].ids, j->group[i].n, j->rows + n * j->info->dim};
            n++;
        }
    if (qwick_embed(j->m, j->items, n, &e)) {
        progress_clear();
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    }
    if (n)
        msg_note("queries: %zu, vectors of them in %.2f ms", n,
                 clock_ms() - start);
    int status = n ? search(j, n, SIZE_MAX) : 0;
    if (status)
        return status;
    spread_hits(j, n);
    return put_group(j);
}

/* ---- queries ------------------------------------------------------------- */

/* Handle a query that has no vector. A line becomes {"error"} with JSON, else
 * a message; other queries were named by the user. */
static int bad_query(struct job *j, struct query *q, const char *where,
                     const struct qwick_err *e)
{
    struct buf text = {0};
    int status = 0;
    if (record_message(&text, where, e->msg))
        status = msg_oom();
    else if (texts_form(j->a) == TEXTS_WHOLE)
        status = msg_stop(e->code, "%s", text.data);
    else if (!j->json)
        msg_error("%s", text.data);
    q->error = buf_take(&text, NULL);
    j->bad_records = true;
    return status;
}

/* The prompt of a query: its record's task, else that of --instruct. */
static int read_prompt(const struct job *j, const struct texts_item *item,
                       struct qwick_embed_text *t, struct qwick_err *e)
{
    const struct json_value *own = json_get(item->value, "instruct");
    t->instruct = j->a->instruct;
    t->n_instruct = j->a->instruct ? strlen(j->a->instruct) : 0;
    if (json_is(own, JSON_STRING)) {
        t->instruct = own->str;
        t->n_instruct = own->len;
    } else if (json_is(own, JSON_NULL)) {
        t->instruct = NULL;
    } else if (own) {
        return err_usage(e, "instruct: not a string");
    }
    return 0;
}

static int similar_take(void *ctx, const struct texts_item *item)
{
    struct job *j = ctx;
    struct query *q = &j->group[j->n++];
    struct qwick_embed_text t = {.text = item->text,
                                 .n_text = item->n,
                                 .allow_special = j->a->allow_special,
                                 .truncate = j->a->truncate};
    struct qwick_err e = {0};
    size_t n_dropped = 0;
    q->number = item->number;
    if (item->id && !(q->id = strdup(item->id)))
        return msg_oom();
    int rc = item->error ? err_usage(&e, "%s", item->error)
                         : read_prompt(j, item, &t, &e);
    if (!rc)
        rc = qwick_embed_encode(j->m, &t, &q->ids, &q->n, &n_dropped, &e);
    if (rc && (e.code == QWICK_ERR_MEMORY || e.code == QWICK_ERR_MODEL))
        return msg_fail(&e); /* every query would fail */
    int status = rc ? bad_query(j, q, item->where, &e) : 0;
    if (n_dropped)
        progress_clear();
    j->n_cut += n_dropped && !j->a->truncate;
    if (n_dropped)
        msg_note("%s: the last %zu of %zu tokens are dropped", item->where,
                 n_dropped, q->n + n_dropped);
    if (!status && *signals_flag())
        status = QWICK_ERR_RUNTIME;
    return status || j->n < j->max ? status : similar_answer(j);
}

static int on_wait(void *ctx)
{
    return similar_answer(ctx);
}

/* ---- the verb ------------------------------------------------------------ */

static int similar_check(struct opt_parsed *p)
{
    if (!p->n_args)
        return opt_usage(p->verb, "no index; usage: qwick similar [OPTIONS] %s",
                         p->verb->args);
    /* the words after the index are queries */
    struct opt_parsed words = *p;
    words.args++;
    words.n_args--;
    words.n_plain -= words.n_plain > 0;
    if (p->a.id)
        return words.n_args
                   ? opt_usage(p->verb, "\"%s\": --id names the query already",
                               words.args[0])
               : out_check() ? (int)QWICK_ERR_RUNTIME
                             : -1;
    int r = texts_check(&words);
    p->a = words.a;
    p->n_args = words.n_args + 1;
    p->n_plain = words.n_plain + (p->n_plain > 0);
    return r >= 0 ? r : out_check() ? (int)QWICK_ERR_RUNTIME : -1;
}

static int open_rooms(struct job *j)
{
    size_t rows = j->info->n_rows - j->info->n_dead;
    j->top = (size_t)j->a->top < rows ? (size_t)j->a->top : rows;
    j->max = j->top ? GROUP_HITS / j->top : GROUP_QUERIES;
    j->max = j->max > GROUP_QUERIES ? GROUP_QUERIES : j->max ? j->max : 1;
    j->rows = calloc(j->max, j->info->dim * sizeof *j->rows);
    j->hits = calloc(j->max, (j->top + 1) * sizeof *j->hits);
    if (!j->rows || !j->hits)
        return msg_oom();
    if (!rows)
        msg_warn("%s: the index has no texts", j->dir);
    return 0;
}

/* Open the model of the index. That of a setting does not count. */
static int open_own_model(struct job *j, struct opt_parsed *p)
{
    const char *name = j->info->model;
    char *from = NULL;
    if (p->a.model && !opt_is_setting(p, OPT_model))
        return open_model(&j->eng, p, false);
    p->a.model = name;
    p->models.alias = NULL;
    p->models.is_name = name && *name != '/';
    if (name) {
        if (asprintf(&from, "%s: its model", j->dir) < 0)
            return msg_oom();
        if (settings_keep(p->settings, from))
            return msg_oom();
        p->models.alias = from;
    }
    return open_model(&j->eng, p, false);
}

static int open_embedder(struct job *j)
{
    struct qwick_embed_options o = {.size = sizeof(o),
                                    .n_ctx = (size_t)j->a->ctx,
                                    .max_batch = (size_t)j->a->max_batch,
                                    .dim = j->info->dim,
                                    .normalize = j->info->normalized,
                                    .prompt_name = j->a->prompt_name,
                                    .query = true,
                                    .interrupt = signals_flag()};
    struct qwick_index_info is = qwick_index_info_defaults();
    struct qwick_err e = {0};
    if (qwick_embedder_create(&j->m, j->eng, &o, &e) ||
        qwick_index_describe(&is, j->m, &e) ||
        qwick_index_check_model(j->ix, &is, &e))
        return msg_fail(&e);
    const char *warning = qwick_embed_suitability(j->eng);
    if (warning)
        msg_warn("%s: %s", qwick_engine_info(j->eng)->model, warning);
    return 0;
}

/* The neighbours of a text of the index. */
static int similar_by_id(struct job *j)
{
    const char *id = j->a->id;
    struct qwick_err e = {0};
    size_t row;
    int status = sandbox_load(j->p, NULL, 0);
    signals_catch();
    if (status)
        return status;
    if (qwick_index_find(j->ix, id, strlen(id), &row, &e))
        return msg_fail(&e);
    if (row == SIZE_MAX)
        return msg_failure("%s: has no text with the id \"%s\"", j->dir, id);
    if (qwick_index_get_vector(j->ix, row, j->rows, &e))
        return msg_fail(&e);
    j->group[j->n++].number = 1;
    if ((status = search(j, 1, row)) != 0)
        return status;
    return put_group(j);
}

static int similar_by_text(struct job *j, struct opt_parsed *p)
{
    struct opt_parsed words = *p;
    words.args++;
    words.n_args--;
    const struct texts t = {.p = &words, .take = similar_take, .wait = on_wait};
    int status = open_own_model(j, p);
    signals_catch();
    if (status || (status = open_embedder(j)) != 0 ||
        (status = sandbox_enter(p, j->eng, NULL, SIZE_MAX)) != 0)
        return status;
    words.a = p->a;
    progress_start("similar");
    if ((status = texts_run(&t, j)) != 0 || (status = similar_answer(j)) != 0)
        return status;
    if (j->n_cut)
        msg_warn("queries that were cut to the model's max_seq_length: %zu "
                 "(-v names them)",
                 j->n_cut);
    return j->bad_records ? (int)QWICK_ERR_RUNTIME : 0;
}

static int similar(struct job *j, struct opt_parsed *p)
{
    struct qwick_err e = {0};
    j->dir = p->args[0];
    /* before the sandbox: it names the model */
    if (qwick_index_open(&j->ix, j->dir, &e))
        return msg_fail(&e);
    j->info = qwick_index_get_info(j->ix);
    int status = open_rooms(j);
    if (status)
        return status;
    return p->a.id ? similar_by_id(j) : similar_by_text(j, p);
}

static int similar_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct job *j = calloc(1, sizeof *j);
    (void)eng; /* none: the index names the model */
    if (!j)
        return msg_oom();
    j->p = p;
    j->a = &p->a;
    j->json = p->a.json || p->a.jsonl;
    j->many =
        p->n_args > 2 || p->a.file.n > 1 || texts_form(&p->a) != TEXTS_WHOLE;
    int status = similar(j, p);
    progress_stop();
    clear_group(j);
    qwick_embedder_free(j->m);
    qwick_engine_close(j->eng);
    qwick_index_close(j->ix);
    buf_free(&j->out);
    free(j->rows);
    free(j->hits);
    free(j);
    return status;
}

const struct verb verb_similar = {
    .bit = V_SIMILAR,
    .name = "similar",
    .group = VERBS_DECIDE,
    .args = "DIR [QUERY...]",
    .summary = "texts of an index that are like a query",
    .about = "Print the texts in the index DIR, which embed --index made, that "
             "are most like\neach QUERY, each file of -f, or each line "
             "(--lines, --jsonl), the best first.\nA row has score, id and "
             "text, separated by tabs; of several queries, first the\nquery's "
             "number or id. The model is that of the index.",
    .examples = "  qwick similar notes.index \"free some disk space\"\n"
                "  qwick similar notes.index --id notes.txt:1 --top 3\n",
    .opens = OPENS_NOTHING,
    .check = similar_check,
    .run = similar_run,
};
