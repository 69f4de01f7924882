#include "cli/answer/answer_log.h"

#include <string.h>

#include "cli/answer/chat_input.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "file/json_writer.h"

int answer_log_check(struct opt_parsed *p)
{
    enum opt_rank rank = p->sources[OPT_log].rank;
    bool one_verb =
        rank == OPT_LINE || rank == OPT_PRESET || rank == OPT_CONFIG_VERB;
    if (p->verb->bit == V_GENERATE || !p->a.log.on || p->a.log.file || one_verb)
        return -1;
    return opt_no_effect(p, OPT_log, OPT_NONE,
                         "in chat and batch, unless it is all");
}

void answer_log_open(struct gen_job *j)
{
    struct buf path = {0};
    struct qwick_err e;
    if (!j->p->a.log.on)
        return;
    if (state_need_path(&path, STATE_LOG, "--log", &e) ||
        log_db_create(&j->log, path.data, LOG_MAX_BYTES, &e)) {
        msg_warn("the answer is not logged: %s", e.msg);
        j->p->a.log.on = false;
    }
    buf_free(&path);
}

/* ---- rows ---- */

void answer_log_result(struct log_row *row, const struct qwick_result *r)
{
    row->finish_reason = log_text(qwick_finish_name(r->finish));
    row->prompt_tokens = (int64_t)r->n_prompt;
    row->cached_tokens = (int64_t)r->n_cached;
    row->completion_tokens = (int64_t)r->n_tokens;
    row->seed = (int64_t)r->seed;
    row->prefill_ms = r->prefill_ms;
    row->total_ms = r->total_ms;
    row->answer = (struct log_text){r->text, r->n_text};
    row->thinking = (struct log_text){r->thinking, r->n_thinking};
}

void answer_log_chat(struct log_row *row, const struct qwick_chat *c)
{
    struct qwick_message m;
    size_t i;
    row->messages = (int64_t)qwick_chat_length(c);
    if (chat_input_last_user(c, &i, &m))
        row->prompt = (struct log_text){m.content, m.n_content};
    if (!qwick_chat_at(c, 0, &m, NULL) && m.n_role == strlen("system") &&
        memcmp(m.role, "system", m.n_role) == 0)
        row->system = (struct log_text){m.content, m.n_content};
}

/* ---- options ---- */

/* Options that have a column, or that change no answer. */
static bool is_left_out(const struct opt *o)
{
    return o->id == OPT_log || o->id == OPT_no_log || o->id == OPT_prompt ||
           o->id == OPT_system || o->id == OPT_conversation ||
           o->id == OPT_seed || o->verbs == V_ALL;
}

static void put_option(struct json_writer *w, const struct opt *o,
                       const union opt_value *v)
{
    switch (o->type) {
    case OPT_FLAG:
        jw_bool(w, o->name, v->flag);
        break;
    case OPT_INT:
    case OPT_SIZE:
        jw_int(w, o->name, v->integer);
        break;
    case OPT_NUMBER:
        jw_double(w, o->name, v->number);
        break;
    case OPT_TEXT:
    case OPT_FILE:
    case OPT_CHOICE:
        jw_cstr(w, o->name, v->text);
        break;
    case OPT_TEXTS:
    case OPT_FILES:
        jw_array(w, o->name);
        for (size_t i = 0; i < v->texts.n; i++)
            jw_cstr(w, NULL, v->texts.v[i]);
        jw_end_array(w);
        break;
    case OPT_INTS:
        jw_array(w, o->name);
        for (size_t i = 0; i < v->ints.n; i++)
            jw_int(w, NULL, v->ints.v[i]);
        jw_end_array(w);
        break;
    case OPT_FLAG_FILE:
        if (v->flag_file.file)
            jw_cstr(w, o->name, v->flag_file.file);
        else
            jw_bool(w, o->name, v->flag_file.on);
        break;
    case OPT_HEADING:
        break;
    }
}

static void put_float(struct json_writer *w, const char *key, float v)
{
    struct buf b = {0};
    if (buf_json_float(&b, v))
        w->failed = true;
    else
        jw_raw(w, key, b.data, b.len);
    buf_free(&b);
}

/* Write the options that are set, and the sampling that they and the model
 * make. */
static int put_options(struct buf *out, const struct opt_parsed *p,
                       const struct qwick_sampling *s)
{
    struct json_writer w = json_writer(out);
    jw_object(&w, NULL);
    for (const struct opt *o = NULL; (o = opt_next(p->verb, o));)
        if (opt_given(p, o->id) && !is_left_out(o))
            put_option(&w, o, opt_value_at(p, o));
    if (s) {
        jw_object(&w, "sampling");
        put_float(&w, "temperature", s->temperature);
        if (s->temperature > 0) {
            jw_int(&w, "top_k", s->top_k);
            put_float(&w, "top_p", s->top_p);
            put_float(&w, "min_p", s->min_p);
        }
        put_float(&w, "repeat_penalty", s->repeat_penalty);
        put_float(&w, "presence_penalty", s->presence_penalty);
        put_float(&w, "frequency_penalty", s->frequency_penalty);
        jw_end_object(&w);
    }
    jw_end_object(&w);
    return jw_status(&w);
}

void answer_log_add(struct gen_job *j, struct log_row *row,
                    const struct qwick_sampling *sampling)
{
    struct buf options = {0};
    struct qwick_err e;
    if (!j->log)
        return;
    row->verb = log_text(j->p->verb->name);
    row->conversation = log_text(j->p->a.conversation);
    int rc =
        put_options(&options, j->p, sampling) ? err_oom(&e, options.len) : 0;
    row->options = (struct log_text){options.data, options.len};
    if (rc || log_db_add(j->log, row, &e)) {
        msg_warn("the answer is not logged: %s", e.msg);
        log_db_close(j->log);
        j->log = NULL;
        j->p->a.log.on = false;
    }
    buf_free(&options);
}

void answer_log_job(struct gen_job *j, const struct qwick_sampling *sampling,
                    const struct qwick_result *r)
{
    struct log_row row = {.model = log_text(qwick_engine_info(j->eng)->model)};
    if (!j->log)
        return;
    answer_log_result(&row, r);
    if (j->mode == MODE_CHAT)
        answer_log_chat(&row, j->chat);
    else if (j->mode == MODE_IDS)
        row.prompt = log_text(j->p->a.prompt_ids);
    else
        row.prompt = (struct log_text){buf_text(&j->text), j->text.len};
    answer_log_add(j, &row, sampling);
}
