/* Records of a batch: turn lines into requests, and results into lines. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "cli/answer/answer_log.h"
#include "cli/answer/answer_opts.h"
#include "cli/batch/batch_job.h"
#include "cli/batch/batch_key.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

/* The output may hold back this many answers per sequence of a full batch.
 * While one long answer runs, the batch can finish so many others. */
enum { WAITING_A_SEQUENCE = 64 };

/* Maximum number of errors that are printed because lines have no place for
 * them; further errors are only counted. */
enum { SHOWN_ERRORS = 20 };

/* One sample of a record. The scheduler knows it as the tag of a request. */
struct sample {
    struct sample *prev, *next; /* in the list j->samples */
    struct batch_job *j;
    struct request *r;
    size_t index;
    uint64_t place;
    struct buf columns; /* see struct batch_line */
    struct buf logprobs;
    struct code_block block; /* with --extract: of the finished answer */
    struct tool_calls calls; /* of the finished answer, if it has tools */
    enum schema_verdict schema;
    bool oom; /* memory ran out while collecting logprobs or the block */
};

/* ---- ids ---- */

struct batch_id {
    uint64_t hash;
    uint64_t line; /* of the first record with this id */
};

/* Make room for one more id. */
static int ids_grow(struct id_set *s, struct qwick_err *e)
{
    if (ARRAY_RESERVE(s->v, s->cap, s->n + 1, e) ||
        hashmap_init(&s->map, s->cap, s->cap, e))
        return -1;
    for (size_t i = 0; i < s->n; i++)
        hashmap_put(&s->map, s->v[i].hash, (uint32_t)i);
    return 0;
}

static int ids_note(struct batch_job *j, const struct request *r,
                    struct qwick_err *e)
{
    struct id_set *s = &j->ids;
    uint64_t h = r->id_hash;
    if (!h)
        return 0;
    if (s->n == s->cap && ids_grow(s, e))
        return -1;
    uint32_t at = hashmap_slot(&s->map, h), i;
    do
        i = hashmap_next(&s->map, h, &at);
    while (i != HASHMAP_NONE && s->v[i].hash != h);
    if (i == HASHMAP_NONE) {
        hashmap_put(&s->map, h, (uint32_t)s->n);
        s->v[s->n++] = (struct batch_id){h, r->line};
    } else if (++s->n_repeated <= BATCH_SHOWN_IDS) {
        progress_clear();
        msg_warn("%s: line %llu: id %s was on line %llu as well", j->in.name,
                 (unsigned long long)r->line, r->id.data,
                 (unsigned long long)s->v[i].line);
    }
    return 0;
}

/* ---- lines out ---- */

/* Print an error that the line of the answer has no place for. */
static void batch_print_error(struct batch_job *j, const struct batch_line *l,
                              const struct qwick_err *why)
{
    if (!j->form->prints_errors || ++j->n_printed > SHOWN_ERRORS)
        return;
    progress_clear();
    msg_error("%s: line %llu: %s", j->in.name, (unsigned long long)l->line,
              why->msg);
}

/* Put the line of an answer, or if why is not NULL of an error, at its place.
 * l: what identifies it; its key is set here. */
static int batch_put_line(struct batch_job *j, struct batch_line *l,
                          uint64_t key, uint64_t place,
                          const struct batch_answer *a,
                          const struct qwick_err *why, struct qwick_err *e)
{
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    batch_key_write(l->key, batch_run_key(j), key);
    j->n_done++;
    if (why) {
        j->n_errors++;
        batch_print_error(j, l, why);
        j->form->error(&w, l, why);
    } else {
        j->form->answer(&w, l, a);
    }
    int rc = jw_end_line(&w) ? err_oom(e, b.len) : 0;
    if (!rc && j->form->ends_nul)
        b.data[b.len - 1] = 0; /* in place of the newline */
    if (!rc)
        rc = batch_out_put(&j->out, place, &b, e);
    buf_free(&b);
    return rc;
}

uint32_t batch_run_key(const struct batch_job *j)
{
    uint64_t h = key_u64(&j->run);
    return (uint32_t)(h ^ h >> 32);
}

/* Output the line of a record that the model does not answer: an error for all
 * its samples, or if why is NULL, the empty answer to a blank line. */
static int batch_put_at_once(struct batch_job *j, const struct request *r,
                             const struct source_record *rec,
                             const struct qwick_err *why, struct qwick_err *e)
{
    const struct qwick_result empty = {.finish = QWICK_FINISH_STOP};
    const struct batch_answer a = {
        .a = {.r = &empty, .info = qwick_engine_info(j->g.eng)},
        .skipped = true};
    struct batch_line l = {
        .line = r->line, .id = &r->id, .columns = &j->columns};
    uint64_t place, key = batch_key_of_line(j, rec->text, rec->n);
    bool found;
    j->n_samples++;
    if (batch_out_reuse(&j->out, r->line, 0, r->id_hash, key, &found, e)) {
        /* for lack of memory we do not know the record's own key */
        if (why && why->code == QWICK_ERR_MEMORY)
            *e = *why;
        return -1;
    }
    if (found) {
        j->n_skipped++;
        return 0;
    }
    j->n_answered++;
    return batch_out_place(&j->out, &place, e) ||
                   batch_put_line(j, &l, key, place, &a, why, e)
               ? -1
               : 0;
}

/* ---- samples ---- */

static void request_release(struct request *r)
{
    if (--r->n_open > 0)
        return;
    request_free(r);
    free(r);
}

static void sample_free(struct sample *s)
{
    struct request *r = s->r;
    if (s->next)
        s->next->prev = s->prev;
    if (s->prev)
        s->prev->next = s->next;
    else
        s->j->samples = s->next;
    buf_free(&s->columns);
    buf_free(&s->logprobs);
    code_block_free(&s->block);
    tool_calls_free(&s->calls);
    free(s);
    request_release(r);
}

void batch_drop(struct batch_job *j)
{
    while (j->samples)
        sample_free(j->samples);
}

/* Collect the items of the log-probabilities. */
static int sample_token(void *ctx, const struct qwick_token_event *ev)
{
    struct sample *s = ctx;
    struct qwick_token_event shown = *ev;
    if (s->r->no_top)
        shown.n_top = 0;
    s->oom = s->j->form->token(&s->logprobs, s->j->g.eng, &shown) != 0;
    return s->oom;
}

/* ---- finished answers ---- */

/* Whether the answer falls short of the record's constraint, of its tools or of
 * --extract. */
static bool sample_is_broken(const struct sample *s,
                             const struct qwick_result *r)
{
    return (s->r->constraint &&
            constraint_is_cut(s->r->constraint->kind, r->finish)) ||
           s->calls.error.len ||
           (s->j->a->extract && (s->block.state != CODE_BLOCK_CLOSED ||
                                 code_block_is_empty(&s->block)));
}

/* Read the code block and the tool calls of a finished answer. Returns 0, or -1
 * when out of memory. */
static int sample_read_parts(struct sample *s, const struct qwick_result *r)
{
    request_begin_calls(s->r, s->index, &s->calls);
    if (s->j->a->extract &&
        (code_block_feed(&s->block, r->text, r->n_text) ||
         code_block_end(&s->block, !answer_is_cut(r->finish))))
        return -1;
    if (!s->r->tools)
        return 0;
    if (tool_calls_feed(&s->calls, r->text, r->n_text) ||
        tool_calls_end(&s->calls))
        return -1;
    if (s->r->one_call)
        tool_calls_keep(&s->calls, 1);
    return 0;
}

/* Check a finished answer against a schema that is lenient, and whether -0 can
 * tell its end. Returns true, with *e set, if the line is an error. */
static bool sample_is_invalid(struct sample *s, const struct qwick_result *r,
                              struct qwick_err *e)
{
    const struct constraint_ref *c = s->r->constraint;
    if (s->j->form->ends_nul && r->n_text && memchr(r->text, 0, r->n_text)) {
        err_set(e, QWICK_ERR_RUNTIME,
                "the answer has a NUL, which ends an answer with --null");
        return true;
    }
    return constraint_verdict(s->r->o.constraint,
                              c && constraint_is_text(c->kind), r, &s->schema,
                              e) ||
           s->schema == SCHEMA_INVALID;
}

/* End a sample with its answer, or if why is not NULL, with an error. */
static int sample_finish(struct sample *s, const struct qwick_result *r,
                         const struct qwick_err *why, struct qwick_err *e)
{
    struct batch_job *j = s->j;
    struct request *q = s->r;
    struct batch_answer a = {
        .a = {.r = r,
              .info = qwick_engine_info(j->g.eng),
              .tokenize_ms = q->tokenize_ms,
              .show_forced = q->o.limit_thinking,
              .logprobs = q->o.logprobs ? &s->logprobs : NULL,
              .block = j->a->extract ? &s->block : NULL,
              .calls = q->tools ? &s->calls : NULL,
              .schema = s->schema},
        .incomplete = !why && sample_is_broken(s, r),
    };
    struct batch_line l = {.line = q->line,
                           .id = &q->id,
                           .index = q->n > 1 ? &s->index : NULL,
                           .columns = &s->columns};
    if (--q->n_todo == 0)
        j->n_answered++;
    int rc = s->oom ? err_oom(e, s->logprobs.len)
                    : batch_put_line(j, &l, batch_key_of_sample(q, j, s->index),
                                     s->place, &a, why, e);
    sample_free(s);
    return rc;
}

/* Count an answer once: as broken, else as cut or empty. A text that is empty
 * because -n is reached is an empty one. */
static void sample_count(struct batch_job *j, const struct sample *s,
                         const struct qwick_result *r)
{
    const struct constraint_ref *c = s->r->constraint;
    /* an empty text that a constraint admits is an answer */
    bool admits = c && !constraint_is_text(c->kind) &&
                  !constraint_is_cut(c->kind, r->finish);
    j->n_ended[r->finish]++;
    if (sample_is_broken(s, r))
        j->n_broken++;
    else if (answer_is_empty(r) && !admits &&
             (!answer_is_cut(r->finish) || r->finish == QWICK_FINISH_LENGTH))
        j->n_empty++;
    else if (answer_is_cut(r->finish))
        j->n_cut[r->finish]++;
}

/* Log an answer. The options of the run are logged, and the sampling of the
 * record. */
static void sample_log(const struct sample *s, const struct qwick_result *r)
{
    struct gen_job *g = &s->j->g;
    const struct request *q = s->r;
    struct qwick_sampling sampling;
    struct log_row row = {0};
    if (!g->log)
        return;
    (void)request_options(q, s->index, &sampling);
    row.model = log_text(qwick_engine_info(g->eng)->model);
    row.prompt = (struct log_text){q->asked.data, q->asked.len};
    row.system = (struct log_text){q->system.data, q->system.len};
    row.messages = q->n_messages;
    answer_log_result(&row, r);
    answer_log_add(g, &row, &sampling);
}

int batch_done(void *ctx, void *tag, struct qwick_result *r,
               const struct qwick_err *why)
{
    struct batch_job *j = ctx;
    struct sample *s = tag;
    struct qwick_err invalid;
    if (!why && sample_read_parts(s, r))
        s->oom = true;
    if (!why && sample_is_invalid(s, r, &invalid))
        why = &invalid;
    if (!why) {
        sample_count(j, s, r);
        sample_log(s, r);
    }
    return sample_finish(s, r, why, &j->fatal);
}

/* ---- records ---- */

/* Queue sample i of a record. */
static int sample_add(struct batch_job *j, struct request *r, size_t i,
                      struct qwick_err *e)
{
    struct qwick_sampling sampling;
    struct qwick_generate_options o = request_options(r, i, &sampling);
    struct qwick_err why;
    struct sample *s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e, sizeof(*s));
    *s = (struct sample){
        .next = j->samples, .j = j, .r = r, .index = i, .columns = j->columns};
    j->columns = (struct buf){0};
    if (s->next)
        s->next->prev = s;
    j->samples = s;
    if (o.logprobs && j->form->token) {
        o.on_token = sample_token;
        o.on_token_ctx = s;
    }
    r->n_open++;
    if (batch_out_place(&j->out, &s->place, e)) {
        sample_free(s);
        return -1;
    }
    if (!qwick_batch_add(j->batch, r->ids, r->n_ids, &o, s, &why))
        return 0;
    return sample_finish(s, NULL, &why, e);
}

/* For each sample in order: output the answer that an earlier run held, or
 * queue the sample. */
static int samples_add(struct batch_job *j, struct request *r,
                       struct qwick_err *e)
{
    bool found;
    r->n_todo = r->n;
    for (size_t i = 0; i < r->n; i++) {
        j->n_samples++;
        if (batch_out_reuse(&j->out, r->line, i, r->id_hash,
                            batch_key_of_sample(r, j, i), &found, e) ||
            (!found && sample_add(j, r, i, e)))
            return -1;
        if (found && --r->n_todo == 0)
            j->n_skipped++;
    }
    return 0;
}

/* Refuse a record whose answers have no place in the form of the output. */
static int batch_check_form(const struct batch_job *j, const struct request *r,
                            struct qwick_err *e)
{
    if (r->n > j->form->max_samples)
        return record_fault(e, "n: must be 1 for %s", j->form->name);
    if (r->tools && j->form->no_tools)
        return record_fault(e, "tools: calls have no place in %s",
                            j->form->name);
    return 0;
}

/* Read an opened record and queue its samples. Takes ownership of r. */
static int batch_add_record(struct batch_job *j, struct request *r,
                            const struct source_record *rec,
                            struct qwick_err *e)
{
    struct qwick_err why;
    int rc;
    r->n_open = 1; /* our own reference, until this function returns */
    if (ids_note(j, r, e))
        rc = -1;
    else if (request_read(r, &why) || batch_check_form(j, r, &why))
        rc = batch_put_at_once(j, r, rec, &why, e);
    else
        rc = samples_add(j, r, e);
    request_release(r);
    return rc;
}

/* Warn once if the requests name another model than the one that runs. */
static void batch_compare_model(struct batch_job *j)
{
    const char *named = j->source.openai.model;
    const char *runs = qwick_engine_info(j->g.eng)->model;
    if (!named || j->compared)
        return;
    j->compared = true;
    if (strcmp(named, runs) == 0 ||
        (j->a->model && strcmp(named, j->a->model) == 0))
        return;
    progress_clear();
    msg_warn("%s: the requests name the model %s, and %s answers them",
             j->in.name, named, runs);
}

/* Open a record: set its id, the number of its line and of its samples. */
static int batch_open_record(struct batch_job *j, struct request *r,
                             const struct source_record *rec,
                             struct qwick_err *e)
{
    const char *json;
    size_t n;
    int bad = source_translate(&j->source, rec, &json, &n, e);
    batch_compare_model(j);
    if (!bad)
        return request_open(r, &j->c, rec->line, json, n, e);
    *r = (struct request){.line = rec->line, .n = 1};
    if (n && request_open(r, &j->c, rec->line, json, n, NULL))
        r->n = 1; /* the first error counts */
    return -1;
}

static int batch_take_record(struct batch_job *j,
                             const struct source_record *rec,
                             struct qwick_err *e)
{
    struct qwick_err why;
    if (j->n_records++ % j->n_shards != j->shard)
        return 0;
    struct request *r = calloc(1, sizeof(*r));
    j->columns.len = 0;
    if (!r || (j->form->columns && source_put_columns(&j->source, rec, csv_put,
                                                      0, ',', &j->columns))) {
        free(r);
        return err_oom(e, sizeof(*r));
    }
    r->line = rec->line;
    if (!rec->blank && !batch_open_record(j, r, rec, &why))
        return batch_add_record(j, r, rec, e);
    int rc = batch_put_at_once(j, r, rec, rec->blank ? NULL : &why, e);
    request_free(r);
    free(r);
    return rc;
}

/* Read enough records to fill the next passes, but not more than the output can
 * hold back. With by_number, read exactly the records of the next pass: how
 * many wait beyond it would depend on how fast the input arrives. */
bool batch_wants_more(const struct batch_job *j)
{
    size_t max = (size_t)j->a->max_batch;
    struct qwick_batch_stats s = qwick_batch_get_stats(j->batch);
    size_t n = s.n_waiting + (j->by_number ? s.n_live : 0);
    return !j->at_end && n < max && j->out.n_slots < WAITING_A_SEQUENCE * max;
}

int batch_feed(struct batch_job *j, int timeout_ms, bool *got,
               struct qwick_err *e)
{
    *got = false;
    while (batch_wants_more(j)) {
        struct source_record rec;
        switch (source_next(&j->source, *got ? 0 : timeout_ms, &rec, e)) {
        case LINES_GOT:
            *got = true;
            if (batch_take_record(j, &rec, e))
                return -1;
            break;
        case LINES_WAIT:
            return 0;
        case LINES_END:
            j->at_end = true;
            break;
        case LINES_FAILED:
            return -1;
        }
    }
    return 0;
}
