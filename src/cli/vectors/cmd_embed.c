#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/key.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/records.h"
#include "cli/io/signals.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "cli/opt/verbs.h"
#include "cli/sandbox/sandbox.h"
#include "cli/vectors/embed_html.h"
#include "cli/vectors/embed_index.h"
#include "cli/vectors/embed_pending.h"
#include "cli/vectors/texts.h"
#include "cli/vectors/vectors.h"
#include "file/json_writer.h"
#include "file/save.h"
#include "qwick.h"

/* Most texts and tokens of a group, which is answered at once. */
enum { GROUP_TEXTS = 256, GROUP_TOKENS = 1 << 16 };

struct text {
    char *id;    /* JSON, or NULL */
    char *error; /* why there is no vector, or NULL */
    char *name;  /* with --html: of its point */
    char *row_id, *row_text; /* with --index: [n_row_id], [n_row_text] */
    size_t n_row_id, n_row_text;
    int32_t *ids;
    size_t n, n_dropped;
    struct key key; /* hash of the ids */
    bool stored;    /* an earlier run has the vector */
};

struct job {
    const struct opt_parsed *p;
    const struct args *a; /* of p */
    struct texts texts;   /* the input */
    struct qwick_engine *eng;
    struct qwick_embedder *m;
    struct vectors out;
    struct embed_pending pending;
    struct text group[GROUP_TEXTS];
    size_t n, n_tokens;
    uint64_t n_done, n_total; /* numbers of texts; total 0: unknown */
    uint64_t n_stored;        /* number of done texts whose vectors an earlier
                                 run stored */
    float *rows;              /* [GROUP_TEXTS, dim] */
    struct qwick_embed_item items[GROUP_TEXTS];
    struct buf line;
    bool bad_records;
    uint64_t n_cut;       /* texts that the model's limit has cut */
    struct embed_map map; /* with --html */
    struct embed_index index;
};

/* ---- answers ------------------------------------------------------------ */

static int put_json(struct job *j, const struct text *r, const float *row)
{
    struct buf *b = &j->line;
    b->len = 0;
    struct json_writer w = jw_line(b);
    if (r->id)
        jw_raw(&w, "id", r->id, strlen(r->id));
    if (r->error) {
        jw_cstr(&w, "error", r->error);
    } else {
        jw_floats(&w, "embedding", row, j->out.dim);
        jw_uint(&w, "tokens", r->n);
        if (r->n_dropped)
            jw_uint(&w, "dropped_tokens", r->n_dropped);
    }
    return jw_end_line(&w) ? msg_oom() : vectors_line(&j->out, b->data, b->len);
}

static void clear_group(struct job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        free(j->group[i].id);
        free(j->group[i].error);
        free(j->group[i].name);
        free(j->group[i].row_id);
        free(j->group[i].row_text);
        free(j->group[i].ids);
        j->group[i] = (struct text){0};
    }
    j->n = j->n_tokens = 0;
}

/* Fetch the vectors that an earlier run stored. The other texts become items,
 * *n of them. A row that is not computed yet begins with a NaN, which no vector
 * contains. */
static void embed_plan(struct job *j, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < j->n; i++) {
        struct text *r = &j->group[i];
        float *row = j->rows + i * j->out.dim;
        if (r->error)
            continue;
        r->key = key_start("text");
        key_add_ids(&r->key, r->ids, r->n);
        r->stored = embed_pending_get(&j->pending, &r->key, row);
        j->n_stored += r->stored;
        if (r->stored)
            continue;
        row[0] = NAN;
        j->items[(*n)++] = (struct qwick_embed_item){r->ids, r->n, row};
    }
}

/* Store the computed vectors. After an interruption some are missing. */
static void embed_store(struct job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        const struct text *r = &j->group[i];
        const float *row = j->rows + i * j->out.dim;
        if (!r->error && !r->stored && !isnan(row[0]))
            embed_pending_put(&j->pending, &r->key, row);
    }
    embed_pending_flush(&j->pending);
}

/* With --html: add the group's vectors to the map. */
static int embed_add_points(struct job *j)
{
    struct qwick_err e;
    for (size_t i = 0; i < j->n; i++) {
        struct text *r = &j->group[i];
        char *name = r->name;
        r->name = NULL;
        if (!name)
            continue;
        if (r->error)
            free(name);
        else if (embed_map_add(&j->map, j->rows + i * j->out.dim, name, &e))
            return msg_fail(&e);
    }
    return 0;
}

/* The row of a text in the index. */
static struct qwick_index_row index_row(const struct text *r)
{
    return (struct qwick_index_row){r->row_id, r->row_text, r->n_row_id,
                                    r->n_row_text};
}

/* With --index: add the group's vectors. After an interruption some are
 * missing. */
static int embed_add_rows(struct job *j)
{
    int status = 0;
    for (size_t i = 0; i < j->n && !status; i++) {
        const struct text *r = &j->group[i];
        const float *row = j->rows + i * j->out.dim;
        const struct qwick_index_row to = index_row(r);
        if (!r->error && !isnan(row[0]))
            status = embed_index_put(&j->index, &to, row);
    }
    return status ? status : embed_index_commit(&j->index, *signals_flag());
}

static int embed_put(struct job *j)
{
    int status = 0;
    for (size_t i = 0; i < j->n && !status; i++) {
        const struct text *r = &j->group[i];
        const float *row = r->error ? NULL : j->rows + i * j->out.dim;
        status = j->out.format == VECTORS_JSONL ? put_json(j, r, row)
                                                : vectors_put(&j->out, row);
    }
    return status;
}

/* Embed the group and write its vectors in order. */
static int embed_answer(struct job *j)
{
    struct qwick_err e = {0};
    size_t n;
    int status = 0;
    embed_plan(j, &n);
    progress_items("texts", j->n_done, j->n, j->n_total, j->n_stored);
    int failed = qwick_embed(j->m, j->items, n, &e);
    progress_clear();
    j->n_done += j->n;
    embed_store(j);
    if (j->index.ix && (!failed || *signals_flag()))
        status = embed_add_rows(j);
    if (failed && !status)
        return *signals_flag() ? (int)QWICK_ERR_RUNTIME : msg_fail(&e);
    if (!status && !j->index.ix)
        status = embed_put(j);
    if (!status)
        status = embed_add_points(j);
    clear_group(j);
    return status;
}

/* ---- texts -------------------------------------------------------------- */

/* Handle a line that has no vector. In JSON lines it becomes {"error"}. Other
 * formats cannot leave a gap, since later vectors would be misplaced: there the
 * run fails. It also fails on a text that is not a line, because the user named
 * it. */
static int bad_record(struct job *j, struct text *r, const char *where,
                      const struct qwick_err *e)
{
    struct buf text = {0};
    bool line = j->a->lines || j->a->jsonl;
    int status = 0;
    if (record_message(&text, where, e->msg)) {
        status = msg_oom();
    } else if (line && j->index.ix) {
        /* no vector is misplaced: an index has ids */
        progress_clear();
        msg_error("%s", text.data);
        r->error = buf_take(&text, NULL);
        j->bad_records = true;
    } else if (!line || j->out.format != VECTORS_JSONL) {
        status = msg_stop(line && e->code == QWICK_ERR_USAGE ? QWICK_ERR_RUNTIME
                                                             : e->code,
                          "%s", text.data);
    } else {
        r->error = buf_take(&text, NULL);
        j->bad_records = true;
    }
    buf_free(&text);
    return status;
}

/* Read "instruct" of an object. */
static int read_object(const struct job *j, const struct json_value *v,
                       struct qwick_embed_text *t, struct qwick_err *e)
{
    const struct json_value *instruct = json_get(v, "instruct");
    if (instruct && j->index.ix)
        return err_usage(e, "instruct: all texts of an index have the prompt "
                            "of --instruct, or none");
    if (json_is(instruct, JSON_STRING)) {
        t->instruct = instruct->str;
        t->n_instruct = instruct->len;
    } else if (json_is(instruct, JSON_NULL)) {
        t->instruct = NULL; /* a document among queries */
    } else if (instruct) {
        return err_usage(e, "instruct: not a string");
    }
    return 0;
}

/* With --index: keep the id and the text. *has: the index has them, so that no
 * vector is needed. */
static int take_row(struct job *j, struct text *r,
                    const struct texts_item *item, bool *has)
{
    struct buf id = {0}, text = {0};
    *has = false;
    if (!j->index.ix || !item->text)
        return 0;
    int bad = embed_index_id(&id, item) | buf_reserve(&id, 0) |
              buf_append(&text, item->text, item->n) | buf_reserve(&text, 0);
    r->row_id = buf_take(&id, &r->n_row_id);
    r->row_text = buf_take(&text, &r->n_row_text);
    const struct qwick_index_row row = index_row(r);
    return bad ? msg_oom() : embed_index_has(&j->index, &row, has);
}

/* Forget the last text of the group, which needs no vector. */
static int embed_skip(struct job *j)
{
    struct text *r = &j->group[--j->n];
    free(r->id);
    free(r->row_id);
    free(r->row_text);
    *r = (struct text){0};
    j->n_done++;
    j->n_stored++;
    return *signals_flag() ? (int)QWICK_ERR_RUNTIME : 0;
}

static int too_many_points(void)
{
    return msg_refuse("--html: more than %d texts, which no map shows",
                      EMBED_MAP_MAX);
}

/* Get the ids of a text. */
static int embed_encode(struct job *j, struct text *r,
                        const struct texts_item *item, struct qwick_err *e)
{
    struct qwick_embed_text t = {
        .text = item->text,
        .n_text = item->n,
        .instruct = j->a->instruct,
        .n_instruct = j->a->instruct ? strlen(j->a->instruct) : 0,
        .allow_special = j->a->allow_special,
        .truncate = j->a->truncate};
    if (item->error)
        return err_usage(e, "%s", item->error);
    if (item->is_ids && j->index.ix)
        return err_usage(e, "prompt_ids: an index needs the text");
    if (item->is_ids)
        return texts_ids(&j->texts, item, &r->ids, &r->n, NULL, e);
    return (item->value && read_object(j, item->value, &t, e)) ||
                   qwick_embed_encode(j->m, &t, &r->ids, &r->n, &r->n_dropped,
                                      e)
               ? -1
               : 0;
}

/* Say that a text lost its end. */
static void embed_report_cut(struct job *j, const struct text *r,
                             const char *where)
{
    progress_clear();
    msg_note("%s: the last %zu of %zu tokens are dropped", where, r->n_dropped,
             r->n + r->n_dropped);
    j->n_cut += !j->a->truncate;
}

static int embed_take(void *ctx, const struct texts_item *item)
{
    struct job *j = ctx;
    if (j->a->html && item->number > EMBED_MAP_MAX)
        return too_many_points();
    struct text *r = &j->group[j->n++];
    struct qwick_err e = {0};
    bool has;
    if ((item->id && !(r->id = strdup(item->id))) ||
        (j->a->html && item->text && !(r->name = embed_map_name(item))))
        return msg_oom();
    int status = take_row(j, r, item, &has);
    if (status || has)
        return status ? status : embed_skip(j);
    int rc = embed_encode(j, r, item, &e);
    if (rc && (e.code == QWICK_ERR_MEMORY || e.code == QWICK_ERR_MODEL))
        return msg_fail(&e); /* every text would fail */
    if (rc && (status = bad_record(j, r, item->where, &e)) != 0)
        return status;
    if (r->n_dropped)
        embed_report_cut(j, r, item->where);
    j->n_tokens += r->n;
    if (*signals_flag())
        return QWICK_ERR_RUNTIME;
    return j->n == GROUP_TEXTS || j->n_tokens >= GROUP_TOKENS ? embed_answer(j)
                                                              : 0;
}

/* No input is available: answer the lines read so far, for a program that
 * writes line by line and waits for answers. */
static int on_wait(void *ctx)
{
    struct job *j = ctx;
    int status = embed_answer(j);
    if (status || j->index.ix)
        return status ? status : embed_index_commit(&j->index, true);
    return vectors_flush(&j->out);
}

/* ---- the verb ----------------------------------------------------------- */

static int embed_check(struct opt_parsed *p)
{
    struct args *a = &p->a;
    enum vectors_format format = vectors_format(a->format);
    int r = texts_check(p);
    if (r >= 0)
        return r;
    if (a->output && strcmp(a->output, "-") == 0)
        a->output = NULL; /* standard output */
    if (a->html && a->output && strcmp(a->html, a->output) == 0)
        return opt_usage(p->verb, "--html: is the file of --output");
    if (a->index)
        return (r = embed_index_make_dir(a->index)) ? r : -1;
    if (a->redo && !a->output)
        return opt_usage(p->verb, "--redo: has no effect without --output");
    return (format == VECTORS_F32 || format == VECTORS_NPY) && !a->output &&
                   isatty(STDOUT_FILENO)
               ? opt_usage(p->verb,
                           "--format %s: standard output is a terminal; "
                           "--output names a file",
                           a->format)
               : -1;
}

/* Close the pending file: remove it if the output is complete, else say that it
 * stays for the next run. */
static void end_pending(struct job *j, bool done)
{
    size_t n = embed_pending_close(&j->pending, done);
    if (!n)
        return;
    /* print the note on a terminal even without -v: the user pressed Ctrl-C */
    if (isatty(STDERR_FILENO) && !msg_quiet())
        msg_level(false, true);
    msg_note("%s.pending: %zu vectors; the same command goes on from there",
             j->a->output, n);
}

/* Hash everything except the text that a vector depends on. */
static int run_key(struct job *j, struct key *k, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(j->eng);
    uint64_t id[2];
    if (qwick_embedder_identity(j->m, id, e))
        return -1;
    *k = key_start("qwick embed 1");
    key_add_u64(k, id[0]);
    key_add_u64(k, id[1]);
    key_add_u64(k, j->a->exact);
    key_add_text(k, info->kv_dtype, strlen(info->kv_dtype));
    key_add_u64(k, j->a->no_normalize);
    return 0;
}

/* Open the output and the pending file of an earlier run. */
static int open_output(struct job *j, size_t dim)
{
    struct qwick_err e = {0};
    struct key k;
    if (j->a->index) {
        j->out.dim = dim;
        return embed_index_open(&j->index, j->p, j->m);
    }
    int status =
        vectors_open(&j->out, vectors_format(j->a->format), j->a->output, dim);
    if (status || !j->a->output)
        return status;
    if (run_key(j, &k, &e))
        return msg_fail(&e);
    return embed_pending_open(&j->pending, j->a->output, &k, dim, j->a->redo);
}

static int open_all(struct job *j)
{
    struct qwick_err e = {0};
    struct qwick_embed_options o = {.size = sizeof(o),
                                    .n_ctx = (size_t)j->a->ctx,
                                    .max_batch = (size_t)j->a->max_batch,
                                    .dim = (size_t)j->a->dim,
                                    .normalize = !j->a->no_normalize,
                                    .progress = progress_step,
                                    .interrupt = signals_flag(),
                                    .prompt_name = j->a->prompt_name};
    int32_t *ids = NULL;
    size_t n;
    int status;
    /* a checkpoint without a tokenizer fails here, not at every line */
    if (!j->a->prompt_ids && qwick_tokenize(j->eng, "", 0, false, &ids, &n, &e))
        return msg_fail(&e);
    free(ids);
    if (qwick_embedder_create(&j->m, j->eng, &o, &e))
        return msg_fail(&e);
    size_t dim = j->map.dim = qwick_embedder_dim(j->m);
    j->rows = calloc(GROUP_TEXTS, dim * sizeof *j->rows);
    if (!j->rows)
        return msg_oom();
    signals_catch();
    if ((status = open_output(j, dim)) != 0)
        return status;
    const char *warning = qwick_embed_suitability(j->eng);
    if (warning)
        msg_warn("%s: %s", qwick_engine_info(j->eng)->model, warning);
    return sandbox_enter(j->p, j->eng, NULL, SIZE_MAX);
}

/* Check --html before any work. */
static int check_map(const struct job *j)
{
    const struct texts t = {.p = j->p};
    struct qwick_err e;
    if (!j->a->html)
        return 0;
    if (texts_total(&t) > EMBED_MAP_MAX)
        return too_many_points();
    return msg_result(save_check(j->a->html, &e), &e);
}

static void warn_cut(const struct job *j)
{
    if (j->n_cut)
        msg_warn("texts that were cut to the model's max_seq_length: %" PRIu64
                 " (-v names them)",
                 j->n_cut);
}

static int embed(struct job *j)
{
    int status = check_map(j);
    if (status || (status = open_all(j)) != 0)
        return status;
    /* no reader waits for a file, or for NPY, which is written at the end */
    bool live = !j->a->output && j->out.format != VECTORS_NPY;
    j->texts = (struct texts){.p = j->p,
                              .take = embed_take,
                              .wait = live ? on_wait : NULL,
                              .ids_of = qwick_engine_info(j->eng)};
    progress_start("embed");
    if (progress_on())
        j->n_total = texts_total(&j->texts);
    progress_items("texts", 0, 0, j->n_total, 0);
    if ((status = texts_run(&j->texts, j)) != 0 ||
        (status = embed_answer(j)) != 0)
        return status;
    if (j->index.ix) {
        warn_cut(j);
        return embed_index_commit(&j->index, true);
    }
    if ((status = vectors_close(&j->out)) != 0)
        return status;
    end_pending(j, true);
    if (j->a->html &&
        (status = embed_map_write(&j->map, j->eng, j->a->html)) != 0)
        return status;
    warn_cut(j);
    return 0;
}

static int embed_run(struct opt_parsed *p, struct qwick_engine *eng)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return msg_oom();
    j->p = p;
    j->a = &p->a;
    j->eng = eng;
    j->out.file.fd = j->pending.fd = -1;
    int status = embed(j);
    progress_stop();
    end_pending(j, false);
    if (*signals_flag())
        (void)embed_index_commit(&j->index, true); /* the next run goes on */
    if (!status || *signals_flag())
        embed_index_report(&j->index);
    embed_index_close(&j->index);
    if (!status && j->bad_records)
        status = QWICK_ERR_RUNTIME;
    clear_group(j);
    vectors_abort(&j->out);
    qwick_embedder_free(j->m);
    embed_map_free(&j->map);
    buf_free(&j->line);
    free(j->rows);
    free(j);
    return status;
}

const struct verb verb_embed = {
    .bit = V_EMBED,
    .name = "embed",
    .group = VERBS_DECIDE,
    .args = "[TEXT...]",
    .summary = "texts to vectors (EmbeddingGemma, BERT, Qwen3-Embedding)",
    .about = "Print a vector for each TEXT, each file of -f, or standard "
             "input; with --lines\nor --jsonl, for each line. The vector is "
             "made as the files of\nsentence-transformers or the GGUF file "
             "say, and scaled to length 1.\nWith --index, keep texts and "
             "vectors for qwick similar.",
    .examples =
        "  qwick embed \"list files\" \"show disk usage\"\n"
        "  qwick embed --lines -i notes.txt --format npy -o notes.npy\n"
        "  qwick embed --lines -i notes.txt --index notes.index\n",
    .opens = OPENS_MODEL,
    .check = embed_check,
    .run = embed_run,
};
