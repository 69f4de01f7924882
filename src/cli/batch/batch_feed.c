/* Records of a batch: turn lines into requests, and results into lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/answer_json.h"
#include "cli/batch/batch_job.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

/* The output may hold back this many answers per sequence of a full batch.
 * While one long answer runs, the batch can finish so many others. */
enum { WAITING_A_SEQUENCE = 64 };

/* One sample of a record. The scheduler knows it as the tag of a request. */
struct sample {
    struct sample *prev, *next; /* in the list j->samples */
    struct batch_job *j;
    struct request *r;
    size_t index;
    uint64_t place;
    struct buf logprobs;
    struct code_block block; /* with --extract: of the finished answer */
    struct tool_calls calls; /* of the finished answer, if it has tools */
    bool oom; /* memory ran out while collecting logprobs or the block */
};

/* ---- ids ---- */

static struct id_entry *id_slot(const struct id_set *s, uint64_t hash)
{
    size_t i = (size_t)(hash * 0x9E3779B97F4A7C15u) & (s->cap - 1);
    while (s->v[i].hash && s->v[i].hash != hash)
        i = (i + 1) & (s->cap - 1);
    return &s->v[i];
}

static int id_grow(struct id_set *s, struct qwick_err *e)
{
    struct id_set more = {.cap = s->cap ? 2 * s->cap : 1024, .n = s->n};
    more.n_repeated = s->n_repeated;
    more.v = calloc(more.cap, sizeof(*more.v));
    if (!more.v)
        return err_oom(e, more.cap * sizeof(*more.v));
    for (size_t i = 0; i < s->cap; i++)
        if (s->v[i].hash)
            *id_slot(&more, s->v[i].hash) = s->v[i];
    free(s->v);
    *s = more;
    return 0;
}

static int note_id(struct batch_job *j, const struct request *r, uint64_t hash,
                   struct qwick_err *e)
{
    struct id_set *s = &j->ids;
    if (!hash)
        return 0;
    if (2 * s->n >= s->cap && id_grow(s, e))
        return -1;
    struct id_entry *slot = id_slot(s, hash);
    if (!slot->hash) {
        *slot = (struct id_entry){hash, r->line};
        s->n++;
        return 0;
    }
    if (++s->n_repeated <= BATCH_TOLD_IDS) {
        progress_clear();
        msg_warn("%s: line %llu: id %s was on line %llu as well", j->in.name,
                 (unsigned long long)r->line, r->id.data,
                 (unsigned long long)slot->line);
    }
    return 0;
}

/* ---- lines out ---- */

/* Set what identifies a line. index: number of the sample; NULL if the record
 * has one sample. */
static void set_line(struct batch_line *l, const struct batch_job *j,
                     const struct request *r, const size_t *index, uint64_t key)
{
    *l = (struct batch_line){.line = r->line, .id = &r->id, .index = index};
    snprintf(l->key, sizeof(l->key), "%08x-%016llx", batch_run_key(j),
             (unsigned long long)key);
}

/* Print an error that the line of the answer has no place for. */
static void tell_error(struct batch_job *j, const struct request *r,
                       const struct qwick_err *why)
{
    if (!j->form->tells_errors || ++j->n_told > BATCH_TOLD_ERRORS)
        return;
    progress_clear();
    msg_error("%s: line %llu: %s", j->in.name, (unsigned long long)r->line,
              why->msg);
}

/* Whether a constraint says what the whole answer is. */
static bool has_whole(const struct request *r)
{
    return r->constraint && r->constraint->kind != QWICK_CONSTRAINT_NO_CALL;
}

/* Whether the answer falls short of the record's constraint, of its tools or of
 * --extract. */
static bool is_broken(const struct sample *s, const struct qwick_result *r)
{
    return (s->r->constraint &&
            constraint_is_cut(s->r->constraint->kind, r->finish)) ||
           s->calls.error.len ||
           (s->j->a->extract && (s->block.state != CODE_BLOCK_CLOSED ||
                                 code_block_is_empty(&s->block)));
}

/* Read the code block and the tool calls of a finished answer. Returns 0, or -1
 * when out of memory. */
static int read_parts(struct sample *s, const struct qwick_result *r)
{
    struct key k = key_start("answer");
    key_add_ids(&k, s->r->ids, s->r->n_ids);
    key_add_u64(&k, r->seed);
    s->calls.id = key_u64(&k);
    s->calls.tools = s->r->tools;
    if (s->j->a->extract &&
        (code_block_feed(&s->block, r->text, r->n_text) ||
         code_block_end(&s->block, !answer_is_cut(r->finish))))
        return -1;
    return s->r->tools && (tool_calls_feed(&s->calls, r->text, r->n_text) ||
                           tool_calls_end(&s->calls))
               ? -1
               : 0;
}

static void put_answer(struct json_writer *w, const struct batch_line *l,
                       const struct sample *s, const struct qwick_result *r)
{
    struct batch_answer a = {
        .a = {.r = r,
              .info = qwick_engine_info(s->j->eng),
              .tokenize_ms = s->r->tokenize_ms,
              .show_forced = s->r->o.limit_thinking,
              .logprobs = s->r->o.logprobs ? &s->logprobs : NULL,
              .block = s->j->a->extract ? &s->block : NULL,
              .calls = s->r->tools ? &s->calls : NULL},
        .incomplete = is_broken(s, r),
    };
    s->j->form->answer(w, l, &a);
}

/* End the line and put it at its place. */
static int put_line(struct batch_job *j, uint64_t place, struct json_writer *w,
                    struct qwick_err *e)
{
    int r = jw_end_line(w) ? err_oom(e, w->out->len)
                           : batch_out_put(&j->out, place, w->out, e);
    buf_free(w->out);
    return r;
}

uint32_t batch_run_key(const struct batch_job *j)
{
    uint64_t h = key_u64(&j->common.run);
    return (uint32_t)(h ^ h >> 32);
}

/* Look for an earlier run's answer to sample i: *there. Output it if it was
 * held. */
static int find_answer(struct batch_job *j, const struct request *r, size_t i,
                       uint64_t key, bool *there, struct qwick_err *e)
{
    enum batch_out_found found;
    struct answered *held;
    if (batch_out_find(&j->out, r->line, i,
                       request_id_hash(r->id.data, r->id.len), key, &found,
                       &held, e))
        return -1;
    *there = found != FOUND_NONE;
    return found == FOUND_HELD ? batch_out_put_held(&j->out, held, e) : 0;
}

/* Output the line of a record that the model does not answer: an error for all
 * its samples, or if why is NULL, the empty answer to a blank line. */
static int put_at_once(struct batch_job *j, const struct request *r,
                       const struct batch_record *rec,
                       const struct qwick_err *why, struct qwick_err *e)
{
    const struct qwick_result empty = {.finish = QWICK_FINISH_STOP};
    const struct batch_answer a = {
        .a = {.r = &empty, .info = qwick_engine_info(j->eng)}, .skipped = true};
    struct buf b = {0};
    struct batch_line l;
    uint64_t place, key = request_line_key(&j->common, rec->text, rec->n);
    bool there;
    j->n_samples++;
    if (find_answer(j, r, 0, key, &there, e)) {
        /* for lack of memory we do not know the record's own key */
        if (why && why->code == QWICK_ERR_MEMORY)
            *e = *why;
        return -1;
    }
    if (there) {
        j->n_skipped++;
        return 0;
    }
    j->n_errors += why != NULL;
    j->n_answered++;
    j->n_done++;
    if (batch_out_place(&j->out, &place, e))
        return -1;
    struct json_writer w = json_writer(&b);
    set_line(&l, j, r, NULL, key);
    if (why) {
        tell_error(j, r, why);
        j->form->error(&w, &l, why);
    } else {
        j->form->answer(&w, &l, &a);
    }
    return put_line(j, place, &w, e);
}

/* ---- requests ---- */

static void release(struct request *r)
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
    buf_free(&s->logprobs);
    code_block_free(&s->block);
    tool_calls_free(&s->calls);
    free(s);
    release(r);
}

void batch_drop(struct batch_job *j)
{
    while (j->samples)
        sample_free(j->samples);
}

/* Collect the items of the log-probabilities. */
static int on_token(void *ctx, const struct qwick_token_event *ev)
{
    struct sample *s = ctx;
    struct qwick_token_event shown = *ev;
    if (s->r->no_top)
        shown.n_top = 0;
    s->oom = s->j->form->token(&s->logprobs, s->j->eng, &shown) != 0;
    return s->oom;
}

static int finish_record(struct batch_job *j, const struct sample *s,
                         const struct qwick_result *r,
                         const struct qwick_err *why, struct qwick_err *e)
{
    struct buf b = {0};
    struct batch_line l;
    set_line(&l, j, s->r, s->r->n > 1 ? &s->index : NULL,
             request_key(s->r, &j->common, s->index));
    struct json_writer w = json_writer(&b);
    w.failed |= s->oom;
    if (why)
        j->n_errors++;
    j->n_done++;
    if (--s->r->n_todo == 0)
        j->n_answered++;
    if (why) {
        tell_error(j, s->r, why);
        j->form->error(&w, &l, why);
    } else {
        put_answer(&w, &l, s, r);
    }
    return put_line(j, s->place, &w, e);
}

/* Count an answer once: as broken, else as cut or empty. A text that is empty
 * because -n is reached is an empty one. */
static void count_ending(struct batch_job *j, const struct sample *s,
                         const struct qwick_result *r)
{
    /* an empty text that a constraint admits is an answer */
    bool empty = answer_is_empty(r) &&
                 (!has_whole(s->r) ||
                  constraint_is_cut(s->r->constraint->kind, r->finish));
    j->n_ended[r->finish]++;
    if (is_broken(s, r))
        j->n_broken++;
    else if (empty &&
             (!answer_is_cut(r->finish) || r->finish == QWICK_FINISH_LENGTH))
        j->n_empty++;
    else if (answer_is_cut(r->finish))
        j->n_cut[r->finish]++;
    else
        return;
    j->n_incomplete++;
}

int batch_done(void *ctx, void *tag, struct qwick_result *r,
               const struct qwick_err *why)
{
    struct batch_job *j = ctx;
    struct sample *s = tag;
    if (!why && read_parts(s, r))
        s->oom = true;
    if (!why)
        count_ending(j, s, r);
    int rc = finish_record(j, s, r, why, &j->fatal);
    sample_free(s);
    return rc;
}

/* Queue sample i of a record. */
static int add_sample(struct batch_job *j, struct request *r, size_t i,
                      struct qwick_err *e)
{
    struct qwick_sampling sampling;
    struct qwick_generate_options o =
        request_options(r, &j->common, i, &sampling);
    struct qwick_err why;
    struct sample *s = calloc(1, sizeof(*s));
    if (!s)
        return err_oom(e, sizeof(*s));
    *s = (struct sample){.next = j->samples, .j = j, .r = r, .index = i};
    if (s->next)
        s->next->prev = s;
    j->samples = s;
    if (o.logprobs && j->form->token) {
        o.on_token = on_token;
        o.on_token_ctx = s;
    }
    r->n_open++;
    if (batch_out_place(&j->out, &s->place, e)) {
        sample_free(s);
        return -1;
    }
    if (!qwick_batch_add(j->batch, r->ids, r->n_ids, &o, s, &why))
        return 0;
    int rc = finish_record(j, s, NULL, &why, e);
    sample_free(s);
    return rc;
}

/* For each sample in order: output the answer that an earlier run held, or
 * queue the sample. */
static int add_samples(struct batch_job *j, struct request *r,
                       struct qwick_err *e)
{
    bool there;
    r->n_todo = r->n;
    for (size_t i = 0; i < r->n; i++) {
        uint64_t key = request_key(r, &j->common, i);
        j->n_samples++;
        if (find_answer(j, r, i, key, &there, e) ||
            (!there && add_sample(j, r, i, e)))
            return -1;
        if (there && --r->n_todo == 0)
            j->n_skipped++;
    }
    return 0;
}

/* Refuse a record whose answers have no place in the form of the output. */
static int check_form(const struct batch_job *j, const struct request *r,
                      struct qwick_err *e)
{
    if (r->n > j->form->max_samples)
        return err_set(e, QWICK_ERR_USAGE, "record: n: must be 1 for %s",
                       j->form->name);
    if (r->tools && j->form->no_tools)
        return err_set(e, QWICK_ERR_USAGE,
                       "record: tools: calls have no place in %s",
                       j->form->name);
    return 0;
}

/* Read an opened record and queue its samples. Takes ownership of r. */
static int add_record(struct batch_job *j, struct request *r,
                      const struct batch_record *rec, struct qwick_err *e)
{
    struct qwick_err why;
    int rc;
    r->n_open = 1; /* our own reference, until this function returns */
    if (note_id(j, r, request_id_hash(r->id.data, r->id.len), e))
        rc = -1;
    else if (request_read(r, &j->common, &why) || check_form(j, r, &why))
        rc = put_at_once(j, r, rec, &why, e);
    else
        rc = add_samples(j, r, e);
    release(r);
    return rc;
}

/* Warn once if the requests name another model than the one that runs. */
static void compare_model(struct batch_job *j)
{
    const char *named = j->source.openai.model;
    const char *runs = qwick_engine_info(j->eng)->model;
    if (!named || j->told_model)
        return;
    j->told_model = true;
    if (strcmp(named, runs) == 0 ||
        (j->a->model && strcmp(named, j->a->model) == 0))
        return;
    progress_clear();
    msg_warn("%s: the requests name the model %s, and %s answers them",
             j->in.name, named, runs);
}

/* Open a record: set its id, the number of its line and of its samples. */
static int open_record(struct batch_job *j, struct request *r,
                       const struct batch_record *rec, struct qwick_err *e)
{
    const char *json;
    size_t n;
    int bad = source_translate(&j->source, rec, &json, &n, e);
    compare_model(j);
    if (!bad)
        return request_open(r, rec->line, json, n, e);
    *r = (struct request){.line = rec->line, .n = 1};
    if (n && request_open(r, rec->line, json, n, NULL))
        r->n = 1; /* the first error counts */
    return -1;
}

static int one_record(struct batch_job *j, const struct batch_record *rec,
                      struct qwick_err *e)
{
    struct qwick_err why;
    if (j->n_records++ % j->n_shards != j->shard)
        return 0;
    struct request *r = calloc(1, sizeof(*r));
    if (!r)
        return err_oom(e, sizeof(*r));
    r->line = rec->line;
    if (!rec->blank && !open_record(j, r, rec, &why))
        return add_record(j, r, rec, e);
    int rc = put_at_once(j, r, rec, rec->blank ? NULL : &why, e);
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
    return !j->at_end && n < max &&
           batch_out_open_places(&j->out) < WAITING_A_SEQUENCE * max;
}

int batch_feed(struct batch_job *j, int timeout_ms, bool *got,
               struct qwick_err *e)
{
    *got = false;
    while (batch_wants_more(j)) {
        struct batch_record rec;
        switch (source_next(&j->source, *got ? 0 : timeout_ms, &rec, e)) {
        case LINES_GOT:
            *got = true;
            if (one_record(j, &rec, e))
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
