#include "cli/answer/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/key.h"
#include "base/rng.h"
#include "cli/answer/answer_log.h"
#include "cli/answer/chat_input.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/opt/verbs.h"
#include "file/json.h"
#include "text/chat/chat_values.h"

/* Most names of unknown members that are remembered. */
enum { MAX_UNKNOWN = 64 };

/* Bytes of the name of a member in a message. */
enum { REQUEST_LABEL = REQUEST_FAULT + 16 };

/* ---- what requests share ---- */

void request_context_init(struct request_context *c, struct gen_job *g)
{
    *c = (struct request_context){.g = g};
    constraint_cache_init(&c->constraints);
}

/* Compile the constraint of the options, if there is one. */
static int context_open_constraint(struct request_context *c)
{
    struct qwick_constraint_options o;
    struct qwick_err e;
    char *text;
    struct constraint_ref *r = NULL;
    int status = gen_read_constraint(c->g, &o, &text);
    if (!status && o.name)
        status = msg_result(
            constraint_cache_get(&c->constraints, c->g->eng, &o, &r, &e), &e);
    if (!status && o.kind == QWICK_CONSTRAINT_TOOLS_AUTO)
        constraint_cache_put(r); /* for records that have these tools */
    else
        c->constraint = r;
    free(text);
    return status;
}

int request_context_open(struct request_context *c)
{
    struct opt_parsed *p = c->g->p;
    c->raw = c->g->mode == MODE_RAW;
    c->seed = opt_given(p, OPT_seed) ? (uint64_t)p->a.seed : rng_random_seed();
    return context_open_constraint(c);
}

void request_context_free(struct request_context *c)
{
    constraint_cache_free(&c->constraints);
    buf_free(&c->unknown);
}

/* ---- errors ---- */

/* The name of a member in the input. */
static const char *member_name(const struct request_context *c,
                               const char *name)
{
    return c->member_name ? c->member_name(name) : name;
}

static void request_set_fault(struct request *r, const char *name)
{
    snprintf(r->fault, sizeof(r->fault), "%s", member_name(r->c, name));
}

/* Write the name of a member in messages to out. Returns out. */
static const char *member_label(const struct request_context *c,
                                const char *name, char out[REQUEST_LABEL])
{
    snprintf(out, REQUEST_LABEL, "%s%s%s", c->name ? c->name : "",
             c->name ? ": " : "", member_name(c, name));
    return out;
}

/* Note that a member is at fault, and set *e to a message about it. Returns
 * -1. */
__attribute__((format(printf, 4, 5))) static int
request_fault(struct request *r, struct qwick_err *e, const char *name,
              const char *fmt, ...)
{
    char label[REQUEST_LABEL], why[sizeof(e->msg)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    request_set_fault(r, name);
    return err_usage(e, "%s: %s", member_label(r->c, name, label), why);
}

/* ---- options ---- */

static int record_int(struct request *r, const struct json_value *m,
                      const char *key, int64_t min, int64_t max, int64_t *out,
                      struct qwick_err *e)
{
    if (json_int(m, min, max, out))
        return request_fault(r, e, key, "must be an integer from %lld to %lld",
                             (long long)min, (long long)max);
    return 0;
}

static int record_number(struct request *r, const struct json_value *m,
                         const struct opt *o, double *out, struct qwick_err *e)
{
    double x;
    if (json_double(m, &x) || !(x >= o->min && x <= o->max))
        return request_fault(r, e, o->record, "must be a number from %g to %g",
                             o->min, o->max);
    *out = x;
    return 0;
}

static int record_bool(struct request *r, const struct json_value *m,
                       const char *key, bool *out, struct qwick_err *e)
{
    if (!json_is(m, JSON_BOOL))
        return request_fault(r, e, key, "must be true or false, is %s",
                             json_type_name(m));
    *out = m->boolean;
    return 0;
}

/* Read a member that a record may lack. */
static int record_switch(struct request *r, const struct json_value *v,
                         const char *key, bool normal, bool *out,
                         struct qwick_err *e)
{
    const struct json_value *m = json_member(v, key);
    *out = normal;
    return m ? record_bool(r, m, key, out, e) : 0;
}

static int record_think(struct request *r, const struct json_value *m,
                        const char **think, struct qwick_err *e)
{
    if (json_is(m, JSON_BOOL))
        *think = m->boolean ? "on" : "off";
    else if (json_equals(m, "on") || json_equals(m, "off") ||
             json_equals(m, "auto"))
        *think = m->str;
    else
        return request_fault(
            r, e, "think", "must be true, false, \"on\", \"off\" or \"auto\"");
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
            return request_fault(r, e, "stop",
                                 "must be a string, or an array of strings, "
                                 "not empty and without NUL");
        r->stop[i] = v[i].str;
    }
    *stop = (struct strings){r->stop, n};
    return 0;
}

/* Read an object with numbers by token ids, as decimal strings. */
static int record_bias(struct request *r, const struct json_value *m,
                       struct qwick_err *e)
{
    int64_t vocab_size = (int64_t)qwick_engine_info(r->c->g->eng)->vocab_size;
    if (!json_is(m, JSON_OBJECT))
        return request_fault(r, e, "logit_bias", "must be an object, is %s",
                             json_type_name(m));
    r->bias = calloc(m->len + 1, sizeof(*r->bias));
    if (!r->bias)
        return err_oom(e, m->len * sizeof(*r->bias));
    for (size_t i = 0; i < m->len; i++) {
        const struct json_value *name = &m->keys[i];
        int64_t id;
        double x;
        if (name->len == 0 || strspn(name->str, "0123456789") != name->len ||
            opt_int(name->str, &id) || id >= vocab_size)
            return request_fault(r, e, "logit_bias",
                                 "\"%s\" is not a token id from 0 to %lld",
                                 ERR_SHOW(name->str, name->len),
                                 (long long)vocab_size - 1);
        if (json_double(&m->items[i], &x) ||
            !(x >= -QWICK_BIAS_MAX && x <= QWICK_BIAS_MAX))
            return request_fault(r, e, "logit_bias",
                                 "%s: must be a number from %g to %g",
                                 name->str, -QWICK_BIAS_MAX, QWICK_BIAS_MAX);
        r->bias[i] = (struct qwick_bias){.id = (int32_t)id, .bias = (float)x};
    }
    r->o.bias = r->bias;
    r->o.n_bias = m->len;
    return 0;
}

/* Set an option to the value of a member. Texts and files are tools and
 * constraints, which are read later, with the order of members. */
static int record_option(struct request *r, struct opt_parsed *own,
                         const struct opt *o, const struct json_value *m,
                         struct qwick_err *e)
{
    void *to = opt_value_at(own, o);
    int64_t min = o->id == OPT_logprobs ? 0 : o->imin; /* only those drawn */
    own->sources[o->id] = (struct opt_source){.rank = OPT_LINE};
    switch (o->type) {
    case OPT_INT:
        return record_int(r, m, o->record, min, o->imax, to, e);
    case OPT_NUMBER:
        return record_number(r, m, o, to, e);
    case OPT_TEXTS:
        return record_stop(r, m, to, e);
    case OPT_CHOICE:
        return o->id == OPT_think ? record_think(r, m, to, e) : 0;
    case OPT_FLAG:
        return record_bool(r, m, o->record, to, e);
    default:
        return 0;
    }
}

/* Set the options of a record in *own, which begins as those of the command
 * line. */
static int record_options(struct request *r, struct opt_parsed *own,
                          const struct json_value *v, struct qwick_err *e)
{
    const struct request_context *c = r->c;
    /* the verb may lack options whose members its requests have */
    for (const struct opt *o = NULL; (o = opt_next(&verb_batch, o));) {
        const struct json_value *m =
            o->record ? json_member(v, o->record) : NULL;
        if (m && record_option(r, own, o, m, e))
            return -1;
    }
    if (r->raw && json_member(v, "think_budget"))
        return request_fault(r, e, "think_budget",
                             "cannot be combined with --raw");
    if (json_member(v, "temperature"))
        own->a.greedy = false;
    r->o = qwick_generate_defaults();
    answer_options(&r->o, own);
    const struct json_value *bias = json_member(v, "logit_bias");
    if (bias && record_bias(r, bias, e))
        return -1;
    r->own_logprobs = json_member(v, "logprobs");
    r->no_top = r->own_logprobs && r->o.logprobs == 0;
    if (r->no_top)
        r->o.logprobs = 1;
    r->has_seed = json_member(v, "seed");
    r->seed =
        r->has_seed ? (uint64_t)own->a.seed : answer_seed(c->seed, r->line);
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
            return err_usage(e, "item %zu is no string", i);
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

/* Read the order of the members of a record's JSON. */
static int record_order(struct request *r, struct qwick_constraint_options *o,
                        const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *m = json_member(v, "json_order");
    const char *order = r->c->g->p->a.json_order;
    if (m && o->kind != QWICK_CONSTRAINT_JSON_SCHEMA)
        return request_fault(r, e, "json_order", "has no effect without %s",
                             member_name(r->c, "json_schema"));
    if (m && !json_equals(m, "schema") && !json_equals(m, "any"))
        return request_fault(r, e, "json_order",
                             "must be \"schema\" or \"any\"");
    if (o->kind == QWICK_CONSTRAINT_JSON_SCHEMA)
        o->json_any_order = constraint_any_order(m ? m->str : order);
    return 0;
}

/* Let go of keywords of the record's schema, or of its tools' schemas. */
static int record_lenient(struct request *r, struct qwick_constraint_options *o,
                          const char *own, const struct json_value *v,
                          bool lenient, struct qwick_err *e)
{
    const struct json_value *m = json_member(v, "schema_lenient");
    bool schema = own && o->kind == QWICK_CONSTRAINT_JSON_SCHEMA;
    o->lenient = lenient;
    if (!m || !m->boolean || schema || r->tools)
        return 0;
    return request_fault(r, e, "schema_lenient",
                         "has no effect without %s or %s of its own",
                         member_name(r->c, "json_schema"),
                         member_name(r->c, "tools"));
}

/* Read the constraint of a record. *own is the member that has it; NULL: there
 * is none. */
static int record_own_constraint(struct request *r,
                                 struct qwick_constraint_options *o,
                                 const char **own, struct buf *text,
                                 const struct json_value *v,
                                 struct qwick_err *e)
{
    static const struct {
        const char *key;
        enum qwick_constraint_kind kind;
    } rows[] = {
        {"regex", QWICK_CONSTRAINT_REGEX},
        {"choices", QWICK_CONSTRAINT_CHOICES},
        {"grammar", QWICK_CONSTRAINT_GBNF},
        {"json_schema", QWICK_CONSTRAINT_JSON_SCHEMA},
    };
    *o = qwick_constraint_defaults();
    *own = NULL;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct json_value *m = json_member(v, rows[i].key);
        struct qwick_err why;
        if (!m)
            continue;
        if (*own)
            return request_fault(r, e, *own, "cannot be combined with %s",
                                 member_name(r->c, rows[i].key));
        *own = rows[i].key;
        o->kind = rows[i].kind;
        if (constraint_text(o->kind, m, text, &why))
            return why.code == QWICK_ERR_USAGE
                       ? request_fault(r, e, *own, "%s", why.msg)
                       : err_set(e, why.code, "%s", why.msg);
    }
    o->text = buf_text(text);
    o->n_text = text->len;
    return record_order(r, o, v, e);
}

/* Set *o to the constraint of a choice of tools, which the member *own, or
 * "--tool-choice", makes. */
static int choice_constraint(struct request *r, const struct tool_choice *c,
                             const char *name,
                             struct qwick_constraint_options *o,
                             const char **own, struct buf *text,
                             struct qwick_err *e)
{
    if (*own)
        return request_fault(r, e, *own, "cannot be combined with tool_choice");
    if (!r->tools)
        return request_fault(r, e, "tool_choice", "there are no tools");
    request_set_fault(r, "tool_choice");
    if (tool_choice_constraint(c, r->tools, text, o, e))
        return -1;
    *own = name;
    return 0;
}

/* Take the constraint of *o, or that of the options. */
static int request_constrain(struct request *r,
                             struct qwick_constraint_options *o,
                             const char *own, struct qwick_err *e)
{
    struct request_context *c = r->c;
    char label[REQUEST_LABEL];
    if (own) {
        request_set_fault(r, own);
        o->name = member_label(c, own, label);
        if (constraint_cache_get(&c->constraints, c->g->eng, o, &r->constraint,
                                 e))
            return -1;
    } else if (c->constraint && c->g->choice.kind == CHOICE_AUTO) {
        r->constraint = constraint_cache_share(c->constraint);
    }
    if (r->constraint)
        r->o.constraint = r->constraint->constraint;
    return 0;
}

/* Whether the calls of a record are checked that the model may leave out. */
static bool record_checks_calls(const struct request *r)
{
    const struct request_context *c = r->c;
    bool other = c->constraint && c->g->choice.kind == CHOICE_AUTO;
    return r->tools && !other && !r->o.ignore_eos && !r->raw &&
           qwick_engine_info(c->g->eng)->call_form;
}

/* Take the record's own constraint, or that of the options. A choice of tools
 * is one; that of the options has no effect on a record with a constraint of
 * its own, and none on one without tools. */
static int record_constraint(struct request *r, const struct json_value *v,
                             bool lenient, struct qwick_err *e)
{
    const struct tool_choice *given = &r->c->g->choice;
    const struct json_value *m = json_member(v, "tool_choice");
    struct qwick_constraint_options o;
    struct tool_choice choice = {0};
    struct buf text = {0};
    struct qwick_err why;
    const char *own;
    int rc = record_own_constraint(r, &o, &own, &text, v, e);
    if (!rc && m && tool_choice_read(&choice, m, &why)) {
        request_set_fault(r, "tool_choice");
        rc = r->c->name ? err_set(e, why.code, "%s: %s", r->c->name, why.msg)
                        : err_set(e, why.code, "%s", why.msg);
    }
    if (!rc && m && choice.kind != CHOICE_AUTO &&
        (choice.kind != CHOICE_NONE || r->tools))
        rc = choice_constraint(r, &choice, "tool_choice", &o, &own, &text, e);
    else if (!rc && !m && !own && r->tools && given->kind != CHOICE_AUTO)
        rc = choice_constraint(r, given, "--tool-choice", &o, &own, &text, e);
    else if (!rc && !own && choice.kind == CHOICE_AUTO &&
             record_checks_calls(r))
        rc = choice_constraint(
            r, &choice, r->tools == &r->c->g->tools.list ? "--tools" : "tools",
            &o, &own, &text, e);
    if (!rc)
        rc = record_lenient(r, &o, own, v, lenient, e);
    if (!rc)
        rc = request_constrain(r, &o, own, e);
    buf_free(&text);
    tool_choice_free(&choice);
    return rc;
}

/* ---- tools ---- */

/* Take the record's own tools, or those of the options. */
static int record_tools(struct request *r, const struct json_value *v,
                        struct qwick_err *e)
{
    const struct request_context *c = r->c;
    const struct json_value *own = json_member(v, "tools");
    bool ids = json_member(v, "prompt_ids"), parallel;
    if (own && !json_is(own, JSON_ARRAY))
        return request_fault(r, e, "tools", "must be an array, is %s",
                             json_type_name(own));
    if (own && own->len && (r->raw || ids))
        return request_fault(r, e, "tools", "%s",
                             ids ? "cannot be combined with prompt_ids"
                                 : "need a chat template");
    if (record_switch(r, v, "parallel_tool_calls", true, &parallel, e))
        return -1;
    r->one_call = !parallel;
    if (!own)
        own = &c->g->tools.list;
    if (own->len && !ids)
        r->tools = own;
    return 0;
}

/* ---- prompts ---- */

/* Take token ids from an array of numbers. */
static int record_ids(struct request *r, const struct json_value *v,
                      struct qwick_err *e)
{
    const struct request_context *c = r->c;
    int64_t vocab_size = (int64_t)qwick_engine_info(c->g->eng)->vocab_size, id;
    if (!json_is(v, JSON_ARRAY) || v->len == 0)
        return request_fault(r, e, "prompt_ids",
                             "must be an array of token ids, not empty");
    r->ids = malloc(v->len * sizeof(*r->ids));
    if (!r->ids)
        return err_oom(e, v->len * sizeof(*r->ids));
    for (size_t i = 0; i < v->len; i++) {
        if (json_int(&v->items[i], 0, vocab_size - 1, &id))
            return request_fault(r, e, "prompt_ids",
                                 "item %zu is not a token id from 0 to %lld", i,
                                 (long long)vocab_size - 1);
        r->ids[r->n_ids++] = (int32_t)id;
    }
    r->o.in_think = !r->raw && gen_ids_in_think(c->g->eng, r->ids, r->n_ids);
    return 0;
}

/* The number of ids at which tokenizing may stop. It is computed from the
 * model's whole context; --ctx can only be smaller. */
static size_t record_enough(const struct request_context *c)
{
    return prompt_enough(qwick_engine_info(c->g->eng)->n_ctx_max);
}

/* Append a text, with the text of -f before it. */
static int record_text(struct request *r, const struct json_value *v,
                       struct buf *text, struct qwick_err *e)
{
    const struct buf *before = &r->c->g->text;
    if (!json_is(v, JSON_STRING))
        return request_fault(r, e, "prompt", "must be a string");
    if (before->len + v->len == 0)
        return request_fault(r, e, "prompt", "is empty");
    if (buf_append(text, before->data, before->len) ||
        (before->len && v->len && buf_puts(text, "\n\n")) ||
        buf_append(text, v->str, v->len))
        return err_oom(e, before->len + v->len);
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

/* Give the chat the record's variables of the template. */
static int add_template_args(struct request *r, struct qwick_chat *chat,
                             const struct json_value *v, struct qwick_err *e)
{
    static const struct json_value none = {.type = JSON_ARRAY};
    const struct chat_values values = {
        .messages = &none, .template_args = json_member(v, "template_args")};
    if (!chat_add_values(chat, &values, e))
        return 0;
    request_set_fault(r, "template_args");
    return -1;
}

/* Append the record's messages. -s becomes the system message if they have
 * none. */
static int add_messages(struct request *r, struct qwick_chat *chat,
                        const struct json_value *v, struct qwick_err *e)
{
    const struct gen_job *g = r->c->g;
    struct chat_values values = chat_values_of(v);
    values.add_generation_prompt = NULL; /* a request always has a generation
                                            prompt */
    if (g->text.len || r->raw)
        return request_fault(r, e, "messages", "cannot be combined with --%s",
                             g->text.len ? "file" : "raw");
    if (!json_is(values.messages, JSON_ARRAY))
        return request_fault(r, e, "messages", "must be an array");
    if (g->system.data && !has_system(values.messages) &&
        qwick_chat_add(chat, "system", g->system.data, g->system.len, e))
        return -1;
    return add_template_args(r, chat, v, e) || chat_add_values(chat, &values, e)
               ? -1
               : 0;
}

/* Take the last message off the chat and set *text, which stays valid, to its
 * text, if the answer shall go on with it: a message of the assistant without
 * calls. */
static int take_final_message(struct request *r, struct qwick_chat *chat,
                              const struct json_value *record, struct buf *text,
                              struct qwick_err *e)
{
    const struct json_value *m = json_member(record, "messages");
    struct qwick_message last;
    bool goes_on;
    if (record_switch(r, record, "continue_final_message", false, &goes_on, e))
        return -1;
    if (!goes_on || !m->len)
        return 0;
    size_t i = qwick_chat_length(chat) - 1;
    m = &m->items[m->len - 1];
    if (!json_equals(json_get(m, "role"), "assistant") ||
        json_member(m, "tool_calls") || json_member(m, "function_call"))
        return 0;
    if (qwick_chat_at(chat, i, &last, e))
        return -1;
    if (buf_append(text, last.content ? last.content : "", last.n_content))
        return err_oom(e, last.n_content);
    return qwick_chat_rollback(chat, i, e);
}

static int encode_chat(struct request *r, const struct qwick_chat *chat,
                       const struct buf *prefill, enum qwick_think *think,
                       struct qwick_err *e)
{
    const struct gen_job *g = r->c->g;
    struct qwick_chat_options o = {.size = sizeof(o),
                                   .add_generation_prompt = true,
                                   .enough = record_enough(r->c),
                                   .allow_special = g->p->a.allow_special,
                                   .think = *think,
                                   .max_bytes = r->c->render_bytes};
    r->o.prefilled = prefill->len;
    int rc = qwick_chat_encode(chat, g->eng, &o, prefill->data, prefill->len,
                               &r->ids, &r->n_ids, &r->o.in_think, e);
    if (rc || !prefill->len || !r->o.in_think || *think != QWICK_THINK_AUTO)
        return rc;
    /* the message that goes on is not thinking */
    free(r->ids);
    o.think = *think = QWICK_THINK_OFF;
    return qwick_chat_encode(chat, g->eng, &o, prefill->data, prefill->len,
                             &r->ids, &r->n_ids, &r->o.in_think, e);
}

/* Keep the texts of a chat for the log. */
static int keep_chat(struct request *r, const struct qwick_chat *chat,
                     struct qwick_err *e)
{
    struct log_row row = {0};
    answer_log_chat(&row, chat);
    r->n_messages = row.messages;
    bool bad = buf_append(&r->asked, row.prompt.s, row.prompt.n) ||
               (row.system.s &&
                buf_append(&r->system, row.system.s, row.system.n));
    return bad ? err_oom(e, row.prompt.n + row.system.n) : 0;
}

/* Keep a prompt without a chat for the log: a text, or the ids. */
static int keep_plain(struct request *r, const struct buf *text,
                      struct qwick_err *e)
{
    buf_append(&r->asked, text->data, text->len);
    for (size_t i = 0; i < r->n_ids && !text->len; i++)
        buf_printf(&r->asked, "%s%d", i ? "," : "", (int)r->ids[i]);
    return r->asked.failed ? err_oom(e, r->asked.len) : 0;
}

/* Take the record's chat, or if the record is NULL, one with the text. */
static int record_chat(struct request *r, const struct json_value *record,
                       const struct buf *text, enum qwick_think *think,
                       struct qwick_err *e)
{
    const struct request_context *c = r->c;
    const struct buf *system = &c->g->system;
    struct buf prefill = {0};
    struct qwick_chat *chat;
    if (qwick_chat_create(&chat, e))
        return -1;
    int rc = record ? add_messages(r, chat, record, e)
                    : chat_input_texts(chat, system->data, system->len,
                                       text->data, text->len, e);
    if (!rc && r->tools)
        rc = tools_add(chat, r->tools, e);
    if (!rc)
        rc = chat_input_check(chat, c->name ? RECORD ": " : "", e);
    if (!rc && record)
        rc = take_final_message(r, chat, record, &prefill, e);
    *think = chat_input_think(chat, *think);
    if (!rc)
        rc = encode_chat(r, chat, &prefill, think, e);
    if (!rc && c->g->log)
        rc = keep_chat(r, chat, e);
    buf_free(&prefill);
    qwick_chat_free(chat);
    return rc;
}

/* Set *think to the mode that selects the sampling defaults. */
static int record_prompt(struct request *r, const struct json_value *v,
                         enum qwick_think *think, struct qwick_err *e)
{
    const struct request_context *c = r->c;
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
    request_set_fault(r, prompt ? "prompt" : ids ? "prompt_ids" : "messages");
    r->o.split_thinking = !r->raw;
    if (ids || r->raw) /* no template that --think could change */
        *think = QWICK_THINK_AUTO;
    if (prompt)
        rc = record_text(r, prompt, &text, e);
    if (!rc)
        rc =
            ids ? record_ids(r, ids, e)
            : prompt && r->raw
                ? qwick_tokenize_prompt(c->g->eng, text.data, text.len, true,
                                        record_enough(c), &r->ids, &r->n_ids, e)
                : record_chat(r, prompt ? NULL : v, &text, think, e);
    if (!rc && c->g->log && !r->n_messages)
        rc = keep_plain(r, &text, e);
    buf_free(&text);
    if (!rc && r->n_ids == 0)
        return request_fault(r, e, "prompt",
                             "it has no tokens after normalization");
    if (!rc && record_enough(c) &&
        r->n_ids > record_enough(c)) /* tokenizing stopped there */
        return prompt_too_long(r->n_ids,
                               qwick_engine_info(c->g->eng)->n_ctx_max, "", e);
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
        "id",
        "prompt",
        "messages",
        "prompt_ids",
        "enable_thinking",
        "logit_bias",
        "n",
        "template_args",
        "continue_final_message",
        "parallel_tool_calls",
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (json_equals(name, keys[i]))
            return true;
    for (const struct opt *o = NULL; (o = opt_next(&verb_batch, o));)
        if (o->record && json_equals(name, o->record))
            return true;
    return false;
}

void request_warn_unknown(struct request_context *c,
                          const struct json_value *name, uint64_t number)
{
    struct buf key = {.max = 256};
    if (!buf_json_string(&key, name->str, name->len) &&
        !(c->unknown.len &&
          memmem(c->unknown.data, c->unknown.len, key.data, key.len)) &&
        c->n_unknown < MAX_UNKNOWN &&
        !buf_append(&c->unknown, key.data, key.len)) {
        c->n_unknown++;
        msg_warn("%s: %s %llu: %s is not an option, ignored", c->input, c->unit,
                 (unsigned long long)number, key.data);
    }
    buf_free(&key);
}

int request_open(struct request *r, struct request_context *c, uint64_t line,
                 const char *text, size_t n, struct qwick_err *e)
{
    int64_t samples = 1;
    *r = (struct request){.c = c, .line = line, .n = 1, .raw = c->raw};
    if (json_parse_within(&r->doc, RECORD, text, n, c->json_bytes,
                          QWICK_ERR_USAGE, e))
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
    if (m && record_int(r, m, "n", 1, REQUEST_MAX_N, &samples, e))
        return -1;
    r->n = (size_t)samples;
    return 0;
}

static int record_read(struct request *r, const struct json_value *v,
                       struct qwick_err *e)
{
    struct request_context *c = r->c;
    struct opt_parsed own = *c->g->p;
    for (size_t i = 0; i < v->len; i++)
        if (!request_has_key(&v->keys[i]))
            request_warn_unknown(c, &v->keys[i], r->line);
    if (record_options(r, &own, v, e) || record_tools(r, v, e) ||
        record_constraint(r, v, own.a.schema_lenient, e))
        return -1;
    enum qwick_think think = answer_think(&own.a);
    double start = clock_ms();
    if (record_prompt(r, v, &think, e))
        return -1;
    r->tokenize_ms = clock_ms() - start;
    if (r->o.prefilled && r->constraint &&
        r->constraint->kind == QWICK_CONSTRAINT_TOOLS_AUTO) {
        constraint_cache_put(r->constraint); /* a call may have begun */
        r->constraint = NULL;
        r->o.constraint = NULL;
    }
    r->o.may_think = !json_member(v, "prompt_ids") && !r->o.prefilled &&
                     think != QWICK_THINK_OFF;
    r->sampling = answer_sampling(&own, c->g->eng, think == QWICK_THINK_OFF);
    return 0;
}

int request_read(struct request *r, struct qwick_err *e)
{
    int rc = record_read(r, json_root(r->doc), e);
    /* its tools are needed to read the answer */
    if (rc || (!r->stop && (!r->tools || r->tools == &r->c->g->tools.list))) {
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
    buf_free(&r->asked);
    buf_free(&r->system);
    free(r->ids);
    free(r->stop);
    free(r->bias);
    *r = (struct request){0};
}

struct qwick_generate_options request_options(const struct request *r, size_t i,
                                              struct qwick_sampling *sampling)
{
    struct qwick_generate_options o = r->o;
    o.draft = r->c->g->draft;
    o.sampling = sampling;
    *sampling = r->sampling;
    sampling->seed = answer_seed(r->seed, i);
    return o;
}

void request_begin_calls(const struct request *r, size_t i,
                         struct tool_calls *out)
{
    struct key k = key_start("answer");
    key_add_ids(&k, r->ids, r->n_ids);
    key_add_u64(&k, answer_seed(r->seed, i));
    const char *form = qwick_engine_info(r->c->g->eng)->call_form;
    *out = (struct tool_calls){
        .tools = r->tools, .form = call_form_named(form), .id = key_u64(&k)};
}
