#include "cli/batch/batch_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/gen_job.h"
#include "cli/batch/batch_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/opt/verbs.h"
#include "file/json.h"
#include "text/chat/chat_values.h"

/* ---- options ---- */

static int record_int(const struct json_value *m, const char *key, int64_t min,
                      int64_t max, int64_t *out, struct qwick_err *e)
{
    if (json_int(m, min, max, out))
        return record_fault(e, "%s: must be an integer from %lld to %lld", key,
                            (long long)min, (long long)max);
    return 0;
}

static int record_number(const struct json_value *m, const struct opt *o,
                         double *out, struct qwick_err *e)
{
    double x;
    if (json_double(m, &x) || !(x >= o->min && x <= o->max))
        return record_fault(e, "%s: must be a number from %g to %g", o->record,
                            o->min, o->max);
    *out = x;
    return 0;
}

static int record_think(const struct json_value *m, const char **think,
                        struct qwick_err *e)
{
    if (json_is(m, JSON_BOOL))
        *think = m->boolean ? "on" : "off";
    else if (json_equals(m, "on") || json_equals(m, "off") ||
             json_equals(m, "auto"))
        *think = m->str;
    else
        return record_fault(
            e, "think: must be true, false, \"on\", \"off\" or \"auto\"");
    return 0;
}

/* Read one stop string, or an array of them. They stay in the record's doc. */
static int record_stop(struct request *r, const struct json_value *m,
                       struct strings *stop, struct qwick_err *e)
{
    const struct json_value *v = json_is(m, JSON_ARRAY) ? m->items : m;
    size_t n = json_is(m, JSON_ARRAY) ? m->len : 1;
    r->stop = calloc(n + 1, sizeof(*r->stop));
    if (!r->stop)
        return err_oom(e, n * sizeof(*r->stop));
    for (size_t i = 0; i < n; i++) {
        if (!json_is(&v[i], JSON_STRING) || v[i].len == 0 ||
            strlen(v[i].str) != v[i].len)
            return record_fault(e, "stop: must be a string, or an array of "
                                   "strings, not empty and without NUL");
        r->stop[i] = v[i].str;
    }
    *stop = (struct strings){r->stop, n};
    return 0;
}

/* Set an option to the value of a member. Texts and files are tools and
 * constraints, which are read later. */
static int record_option(struct request *r, struct opt_parsed *own,
                         const struct opt *o, const struct json_value *m,
                         struct qwick_err *e)
{
    void *to = opt_value_at(own, o);
    int64_t min = o->id == OPT_logprobs ? 0 : o->imin; /* only those drawn */
    own->sources[o->id] = (struct opt_source){.rank = OPT_LINE};
    switch (o->type) {
    case OPT_INT:
        return record_int(m, o->record, min, o->imax, to, e);
    case OPT_NUMBER:
        return record_number(m, o, to, e);
    case OPT_TEXTS:
        return record_stop(r, m, to, e);
    case OPT_CHOICE:
        return record_think(m, to, e);
    default:
        return 0;
    }
}

/* Set the options of a record in *own, which begins as those of the command
 * line. */
static int record_options(struct request *r, const struct batch_job *j,
                          struct opt_parsed *own, const struct json_value *v,
                          struct qwick_err *e)
{
    for (const struct opt *o = NULL; (o = opt_next(own->verb, o));) {
        const struct json_value *m =
            o->record ? json_member(v, o->record) : NULL;
        if (m && record_option(r, own, o, m, e))
            return -1;
    }
    if (j->raw && json_member(v, "think_budget"))
        return record_fault(e, "think_budget: cannot be combined with --raw");
    if (json_member(v, "temperature"))
        own->a.greedy = false;
    r->o = qwick_generate_defaults();
    answer_options(&r->o, own);
    r->own_logprobs = json_member(v, "logprobs");
    r->no_top = r->own_logprobs && r->o.logprobs == 0;
    if (r->no_top)
        r->o.logprobs = 1;
    r->has_seed = json_member(v, "seed");
    r->seed =
        r->has_seed ? (uint64_t)own->a.seed : answer_seed(j->seed, r->line);
    return 0;
}

/* ---- constraints ---- */

/* Append the texts of an array as --choices takes them. */
static int join_choices(const struct json_value *v, struct buf *out,
                        struct qwick_err *e)
{
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *text = &v->items[i];
        if (!json_is(text, JSON_STRING))
            return record_fault(e, "choices: item %zu is no string", i);
        bool bad = i && buf_putc(out, ',');
        for (size_t k = 0; k < text->len && !bad; k++)
            bad = ((text->str[k] == ',' || text->str[k] == '\\') &&
                   buf_putc(out, '\\')) ||
                  buf_putc(out, text->str[k]);
        if (bad)
            return err_oom(e, out->len);
    }
    return 0;
}

/* Append the text of a constraint. */
static int constraint_text(enum qwick_constraint_kind kind,
                           const struct json_value *v, struct buf *out,
                           struct qwick_err *e)
{
    if (json_is(v, JSON_STRING))
        return buf_append(out, v->str, v->len) ? err_oom(e, v->len) : 0;
    if (kind == QWICK_CONSTRAINT_CHOICES && json_is(v, JSON_ARRAY))
        return join_choices(v, out, e);
    if (kind == QWICK_CONSTRAINT_JSON_SCHEMA &&
        (json_is(v, JSON_OBJECT) || json_is(v, JSON_BOOL)))
        return json_dump_python(out, v) ? err_oom(e, out->len) : 0;
    return err_usage(e, "must be a string%s",
                     kind == QWICK_CONSTRAINT_CHOICES
                         ? " or an array of strings"
                     : kind == QWICK_CONSTRAINT_JSON_SCHEMA ? " or an object"
                                                            : "");
}

/* Read the constraint of a record. o->name stays NULL if it has none. */
static int record_own_constraint(struct qwick_constraint_options *o,
                                 struct buf *text, const struct json_value *v,
                                 struct qwick_err *e)
{
    static const struct {
        const char *key, *name;
        enum qwick_constraint_kind kind;
    } rows[] = {
        {"regex", RECORD ": regex", QWICK_CONSTRAINT_REGEX},
        {"choices", RECORD ": choices", QWICK_CONSTRAINT_CHOICES},
        {"grammar", RECORD ": grammar", QWICK_CONSTRAINT_GBNF},
        {"json_schema", RECORD ": json_schema", QWICK_CONSTRAINT_JSON_SCHEMA},
    };
    *o = qwick_constraint_defaults();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct json_value *m = json_member(v, rows[i].key);
        struct qwick_err why;
        if (!m)
            continue;
        if (o->name)
            return err_usage(e, "%s: cannot be combined with %s", o->name,
                             rows[i].key);
        o->name = rows[i].name;
        o->kind = rows[i].kind;
        if (constraint_text(o->kind, m, text, &why))
            return err_set(e, why.code, "%s: %s", o->name, why.msg);
    }
    o->text = buf_text(text);
    o->n_text = text->len;
    return 0;
}

/* Set *o to the constraint of a choice of tools. */
static int choice_constraint(const struct request *r,
                             const struct tool_choice *c, const char *name,
                             struct qwick_constraint_options *o,
                             struct buf *text, struct qwick_err *e)
{
    if (o->name)
        return err_usage(e, "%s: cannot be combined with tool_choice", o->name);
    if (!r->tools)
        return record_fault(e, "tool_choice: there are no tools");
    if (tool_choice_constraint(c, r->tools, text, o, e))
        return -1;
    o->name = name;
    return 0;
}

/* Take the record's own constraint, or that of the options. A choice of tools
 * is one; that of the options has no effect on a record with a constraint of
 * its own, and none on one without tools. */
static int record_constraint(struct request *r, struct batch_job *j,
                             const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *own = json_member(v, "tool_choice");
    struct qwick_constraint_options o;
    struct tool_choice choice = {0};
    struct buf text = {0};
    struct qwick_err why;
    int rc = record_own_constraint(&o, &text, v, e);
    if (!rc && own && tool_choice_read(&choice, own, &why))
        rc = err_set(e, why.code, RECORD ": %s", why.msg);
    if (!rc && own && choice.kind != CHOICE_AUTO &&
        (choice.kind != CHOICE_NONE || r->tools))
        rc =
            choice_constraint(r, &choice, RECORD ": tool_choice", &o, &text, e);
    else if (!rc && !own && !o.name && r->tools &&
             j->g.choice.kind != CHOICE_AUTO)
        rc = choice_constraint(r, &j->g.choice, RECORD ": --tool-choice", &o,
                               &text, e);
    if (!rc && o.name) {
        rc = constraint_cache_get(&j->constraints, j->g.eng, &o, &r->constraint,
                                  e);
    } else if (!rc && j->constraint && j->g.choice.kind == CHOICE_AUTO) {
        r->constraint = j->constraint;
        r->constraint->n_users++;
    }
    buf_free(&text);
    tool_choice_free(&choice);
    if (r->constraint)
        r->o.constraint = r->constraint->constraint;
    return rc;
}

/* ---- tools ---- */

/* Take the record's own tools, or those of the options. */
static int record_tools(struct request *r, const struct batch_job *j,
                        const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *own = json_member(v, "tools");
    bool ids = json_member(v, "prompt_ids");
    if (own && !json_is(own, JSON_ARRAY))
        return record_fault(e, "tools: must be an array, is %s",
                            json_type_name(own));
    if (own && own->len && (j->raw || ids))
        return record_fault(e, "tools: %s",
                            ids ? "cannot be combined with prompt_ids"
                                : "need a chat template");
    if (!own)
        own = &j->g.tools.list;
    if (own->len && !ids)
        r->tools = own;
    return 0;
}

/* ---- prompts ---- */

/* Take token ids from an array of numbers. */
static int record_ids(struct request *r, const struct batch_job *j,
                      const struct json_value *v, struct qwick_err *e)
{
    int64_t vocab_size = (int64_t)qwick_engine_info(j->g.eng)->vocab_size, id;
    if (!json_is(v, JSON_ARRAY) || v->len == 0)
        return record_fault(
            e, "prompt_ids: must be an array of token ids, not empty");
    r->ids = malloc(v->len * sizeof(*r->ids));
    if (!r->ids)
        return err_oom(e, v->len * sizeof(*r->ids));
    for (size_t i = 0; i < v->len; i++) {
        if (json_int(&v->items[i], 0, vocab_size - 1, &id))
            return record_fault(
                e, "prompt_ids: item %zu is not a token id from 0 to %lld", i,
                (long long)vocab_size - 1);
        r->ids[r->n_ids++] = (int32_t)id;
    }
    r->o.in_think = !j->raw && gen_ids_in_think(j->g.eng, r->ids, r->n_ids);
    return 0;
}

/* The number of ids at which tokenizing may stop. It is computed from the
 * model's whole context; --ctx can only be smaller. */
static size_t record_enough(const struct batch_job *j)
{
    return prompt_enough(qwick_engine_info(j->g.eng)->n_ctx_max);
}

/* Append a text, with the text of -f before it. */
static int record_text(const struct batch_job *j, const struct json_value *v,
                       struct buf *text, struct qwick_err *e)
{
    if (!json_is(v, JSON_STRING))
        return record_fault(e, "prompt: must be a string");
    if (j->g.text.len + v->len == 0)
        return record_fault(e, "prompt: is empty");
    if (buf_append(text, j->g.text.data, j->g.text.len) ||
        (j->g.text.len && v->len && buf_puts(text, "\n\n")) ||
        buf_append(text, v->str, v->len))
        return err_oom(e, j->g.text.len + v->len);
    return 0;
}

static bool has_system(const struct json_value *messages)
{
    for (size_t i = 0; i < messages->len; i++) {
        const struct json_value *role = json_get(&messages->items[i], "role");
        if (json_equals(role, "system") || json_equals(role, "developer"))
            return true;
    }
    return false;
}

/* Append the record's messages. -s becomes the system message if they have
 * none. */
static int add_messages(struct qwick_chat *chat, const struct batch_job *j,
                        const struct json_value *v, struct qwick_err *e)
{
    struct chat_values values = chat_values_of(v);
    values.add_generation_prompt = NULL; /* a request always has a generation
                                            prompt */
    if (j->g.text.len || j->raw)
        return record_fault(e, "messages: cannot be combined with --%s",
                            j->g.text.len ? "file" : "raw");
    if (!json_is(values.messages, JSON_ARRAY))
        return record_fault(e, "messages: must be an array");
    if (j->g.system.data && !has_system(values.messages) &&
        qwick_chat_add(chat, "system", j->g.system.data, j->g.system.len, e))
        return -1;
    return chat_add_values(chat, &values, e);
}

/* Take the record's chat, or if the record is NULL, one with the text. */
static int record_chat(struct request *r, const struct batch_job *j,
                       const struct json_value *record, const struct buf *text,
                       enum qwick_think *think, struct qwick_err *e)
{
    struct qwick_chat_options o = {.size = sizeof(o),
                                   .add_generation_prompt = true,
                                   .enough = record_enough(j),
                                   .allow_special = j->a->allow_special};
    struct qwick_chat *chat;
    if (qwick_chat_create(&chat, e))
        return -1;
    int rc = record ? add_messages(chat, j, record, e)
                    : chat_input_texts(chat, j->g.system.data, j->g.system.len,
                                       text->data, text->len, e);
    if (!rc && r->tools)
        rc = tools_add(chat, r->tools, e);
    if (!rc)
        rc = chat_input_check(chat, RECORD, e);
    o.think = *think = chat_input_think(chat, *think);
    if (!rc)
        rc = qwick_chat_encode(chat, j->g.eng, &o, NULL, 0, &r->ids, &r->n_ids,
                               &r->o.in_think, e);
    qwick_chat_free(chat);
    return rc;
}

/* Set *think to the mode that selects the sampling defaults. */
static int record_prompt(struct request *r, const struct batch_job *j,
                         const struct json_value *v, enum qwick_think *think,
                         struct qwick_err *e)
{
    const struct json_value *prompt = json_member(v, "prompt");
    const struct json_value *messages = json_member(v, "messages");
    const struct json_value *ids = json_member(v, "prompt_ids");
    int n = (prompt != NULL) + (messages != NULL) + (ids != NULL), rc = 0;
    struct buf text = {0};
    if (!n && json_member(v, "custom_id") && json_member(v, "body"))
        return record_fault(
            e, "is of OpenAI's batch format, but the first record is not; "
               "--input-format openai takes only such records");
    if (n != 1)
        return record_fault(e, "%s \"prompt\", \"messages\" and \"prompt_ids\"",
                            n ? "more than one of" : "has none of");
    r->o.split_thinking = !j->raw;
    if (ids || j->raw) /* no template that --think could change */
        *think = QWICK_THINK_AUTO;
    if (prompt)
        rc = record_text(j, prompt, &text, e);
    if (!rc)
        rc =
            ids ? record_ids(r, j, ids, e)
            : prompt && j->raw
                ? qwick_tokenize_prompt(j->g.eng, text.data, text.len, true,
                                        record_enough(j), &r->ids, &r->n_ids, e)
                : record_chat(r, j, prompt ? NULL : v, &text, think, e);
    buf_free(&text);
    if (!rc && r->n_ids == 0)
        return record_fault(e, "prompt: it has no tokens after normalization");
    if (!rc && record_enough(j) &&
        r->n_ids > record_enough(j)) /* tokenizing stopped there */
        return prompt_too_long(r->n_ids, qwick_engine_info(j->g.eng)->n_ctx_max,
                               "", e);
    return rc;
}

/* ---- the record ---- */

int request_id(struct buf *out, const struct json_value *id)
{
    if (json_is(id, JSON_STRING))
        return buf_json_string(out, id->str, id->len);
    return json_is(id, JSON_NUMBER) ? buf_append(out, id->str, id->len) : 0;
}

uint64_t request_id_hash(const struct buf *id)
{
    struct key k = key_start("id");
    key_add(&k, id->data, id->len);
    uint64_t h = key_u64(&k);
    return id->len == 0 ? 0 : h ? h : 1;
}

bool request_has_key(const struct json_value *name)
{
    static const char *const keys[] = {
        "id", "prompt", "messages", "prompt_ids", "enable_thinking", "n"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (json_equals(name, keys[i]))
            return true;
    for (const struct opt *o = NULL; (o = opt_next(&verb_batch, o));)
        if (o->record && json_equals(name, o->record))
            return true;
    return false;
}

/* Warn about unknown keys: they may be data for other programs, or misspelt
 * options. Warn once per key, and remember at most 4 KiB of keys. */
static void record_warn_unknown(struct batch_job *j, const struct json_value *v,
                                uint64_t line)
{
    for (size_t i = 0; i < v->len; i++) {
        struct buf key = {.max = 256};
        const struct json_value *k = &v->keys[i];
        if (!request_has_key(k) && !buf_json_string(&key, k->str, k->len) &&
            !(j->unknown.len &&
              memmem(j->unknown.data, j->unknown.len, key.data, key.len)) &&
            j->unknown.len < 4096 &&
            !buf_append(&j->unknown, key.data, key.len))
            msg_warn("%s: line %llu: %s is not an option, ignored", j->in.name,
                     (unsigned long long)line, key.data);
        buf_free(&key);
    }
}

int request_open(struct request *r, uint64_t line, const char *text, size_t n,
                 struct qwick_err *e)
{
    int64_t samples = 1;
    *r = (struct request){.line = line, .n = 1};
    if (json_parse(&r->doc, RECORD, text, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *v = json_root(r->doc);
    const struct json_value *id = json_member(v, "id"),
                            *m = json_member(v, "n");
    if (!json_is(v, JSON_OBJECT))
        return record_fault(e, "is not an object");
    if (id && !json_is(id, JSON_STRING) && !json_is(id, JSON_NUMBER))
        return record_fault(e, "id: must be a string or a number");
    if (request_id(&r->id, id))
        return err_oom(e, id->len);
    r->id_hash = request_id_hash(&r->id);
    if (m && record_int(m, "n", 1, REQUEST_MAX_N, &samples, e))
        return -1;
    r->n = (size_t)samples;
    return 0;
}

static int record_read(struct request *r, struct batch_job *j,
                       const struct json_value *v, struct qwick_err *e)
{
    struct opt_parsed own = *j->g.p;
    record_warn_unknown(j, v, r->line);
    if (record_options(r, j, &own, v, e) || record_tools(r, j, v, e) ||
        record_constraint(r, j, v, e))
        return -1;
    enum qwick_think think = answer_think(&own.a);
    double start = clock_ms();
    if (record_prompt(r, j, v, &think, e))
        return -1;
    r->tokenize_ms = clock_ms() - start;
    r->o.may_think = !json_member(v, "prompt_ids") && think != QWICK_THINK_OFF;
    r->sampling = answer_sampling(&own, j->g.eng, think == QWICK_THINK_OFF);
    return 0;
}

int request_read(struct request *r, struct batch_job *j, struct qwick_err *e)
{
    int rc = record_read(r, j, json_root(r->doc), e);
    /* its tools are needed to read the answer */
    if (rc || (!r->stop && (!r->tools || r->tools == &j->g.tools.list))) {
        json_free(r->doc);
        r->doc = NULL;
    }
    return rc;
}

void request_free(struct request *r)
{
    json_free(r->doc);
    constraint_cache_put(r->constraint);
    buf_free(&r->id);
    free(r->ids);
    free(r->stop);
    *r = (struct request){0};
}

struct qwick_generate_options request_options(const struct request *r,
                                              const struct batch_job *j,
                                              size_t i,
                                              struct qwick_sampling *sampling)
{
    struct qwick_generate_options o = r->o;
    o.draft = j->g.draft;
    o.sampling = sampling;
    *sampling = r->sampling;
    sampling->seed = answer_seed(r->seed, i);
    return o;
}

/* ---- keys --------------------------------------------------------------- */

/* Whether a draft model changes sampled answers, so that it is in their keys.
 */
static bool draft_changes(const struct batch_job *j)
{
    return j->g.draft && !j->a->exact;
}

int request_run_key(struct batch_job *j, struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(j->g.eng);
    uint64_t id[2];
    if (qwick_engine_identity(j->g.eng, id, e) ||
        (draft_changes(j) && qwick_engine_identity(j->g.draft, j->draft_id, e)))
        return -1;
    j->run = key_start("qwick batch 1");
    key_add_u64(&j->run, id[0]);
    key_add_u64(&j->run, id[1]);
    key_add_u64(&j->run, j->a->exact);
    key_add_text(&j->run, info->kv_dtype, strlen(info->kv_dtype));
    key_add_u64(&j->run, j->a->ctx ? (uint64_t)j->a->ctx : info->n_ctx_max);
    key_add_u64(&j->run, (uint64_t)j->a->logprobs);
    if (j->form != &form_jsonl)
        key_add_text(&j->run, j->form->name, strlen(j->form->name));
    return 0;
}

static void key_add_sampling(struct key *k, const struct request *r,
                             const struct batch_job *j,
                             const struct qwick_sampling *s)
{
    key_add_float(k, s->repeat_penalty);
    key_add_float(k, s->presence_penalty);
    key_add_float(k, s->frequency_penalty);
    key_add_float(k, s->temperature);
    if (s->temperature == 0)
        return;
    key_add_u64(k, (uint64_t)s->top_k);
    key_add_float(k, s->top_p);
    key_add_float(k, s->min_p);
    bool given = r->has_seed || opt_given(j->g.p, OPT_seed);
    key_add_u64(k, given);
    key_add_u64(k, given ? s->seed : 0);
    if (draft_changes(j)) {
        key_add_text(k, "draft", 5);
        key_add_u64(k, j->draft_id[0]);
        key_add_u64(k, j->draft_id[1]);
    }
}

uint64_t request_key(const struct request *r, const struct batch_job *j,
                     size_t i)
{
    struct qwick_sampling sampling;
    struct qwick_generate_options o = request_options(r, j, i, &sampling);
    struct key k = j->run;
    key_add_ids(&k, r->ids, r->n_ids);
    key_add_sampling(&k, r, j, &sampling);
    key_add_u64(&k, i);
    key_add_u64(&k, o.max_tokens);
    key_add_u64(&k, o.n_stop);
    for (const char *const *t = o.stop; t < o.stop + o.n_stop; t++)
        key_add_text(&k, *t, strlen(*t));
    key_add_u64(&k, o.ignore_eos);
    key_add_u64(&k, o.in_think);
    key_add_u64(&k, !o.split_thinking);
    key_add_u64(&k, o.loop_guard);
    if (o.limit_thinking) {
        key_add_text(&k, "think budget", 12);
        key_add_u64(&k, o.think_budget);
    }
    if (r->constraint)
        constraint_add_key(&k, r->constraint);
    if (j->a->extract)
        key_add_text(&k, "code", 4);
    if (r->own_logprobs) {
        key_add_text(&k, "logprobs", 8);
        key_add_u64(&k, r->no_top ? 0 : r->o.logprobs);
    }
    return key_u64(&k);
}

uint64_t request_line_key(const struct batch_job *j, const char *text, size_t n)
{
    struct key k = j->run;
    key_add_text(&k, "line", 4);
    key_add_text(&k, text, n);
    return key_u64(&k);
}
