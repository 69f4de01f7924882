#include "cli/batch/batch_request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/answer/chat_input.h"
#include "cli/answer/gen_job.h"
#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/opt/verbs.h"
#include "file/json.h"
#include "text/chat/chat_values.h"

/* Name of the text in messages of the JSON reader and of chats. */
#define WHERE "record"

/* ---- numbers ---- */

/* The member, or NULL if it is absent or null. */
static const struct json_value *member(const struct json_value *v,
                                       const char *key)
{
    const struct json_value *m = json_get(v, key);
    return json_is(m, JSON_NULL) ? NULL : m;
}

/* An absent member leaves *out unchanged. */
static int get_int(const struct json_value *v, const char *key, int64_t min,
                   int64_t max, int64_t *out, struct qwick_err *e)
{
    const struct json_value *m = member(v, key);
    if (m && json_int(m, min, max, out))
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": %s: must be an integer from %lld to %lld", key,
                       (long long)min, (long long)max);
    return 0;
}

/* Read a member that overrules an option. It has the option's range.
 */
static int get_option_int(const struct json_value *v, const struct opt *o,
                          int64_t *out, struct qwick_err *e)
{
    return get_int(v, o->record, o->imin, o->imax, out, e);
}

static int get_option_number(const struct json_value *v, const struct opt *o,
                             double *out, struct qwick_err *e)
{
    const struct json_value *m = member(v, o->record);
    double x;
    if (!m)
        return 0;
    if (json_double(m, &x) || !(x >= o->min && x <= o->max))
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": %s: must be a number from %g to %g", o->record,
                       o->min, o->max);
    *out = x;
    return 0;
}

static int get_sampling(const struct json_value *v, const struct verb *verb,
                        struct sampling_wish *w, struct qwick_err *e)
{
    const struct {
        enum opt_id id;
        enum wish wish;
        float *to;
    } rows[] = {
        {OPT_temp, WISH_TEMP, &w->v.temperature},
        {OPT_top_p, WISH_TOP_P, &w->v.top_p},
        {OPT_min_p, WISH_MIN_P, &w->v.min_p},
        {OPT_repeat_penalty, WISH_REPEAT, &w->v.repeat_penalty},
        {OPT_presence_penalty, WISH_PRESENCE, &w->v.presence_penalty},
        {OPT_frequency_penalty, WISH_FREQUENCY, &w->v.frequency_penalty},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        double x = NAN;
        if (get_option_number(v, opt_row(verb, rows[i].id), &x, e))
            return -1;
        if (isnan(x))
            continue;
        *rows[i].to = (float)x;
        w->given |= rows[i].wish;
    }
    int64_t top_k = -1;
    if (get_option_int(v, opt_row(verb, OPT_top_k), &top_k, e))
        return -1;
    if (top_k >= 0) {
        w->v.top_k = (int)top_k;
        w->given |= WISH_TOP_K;
    }
    return 0;
}

/* ---- stop strings ---- */

static int add_stop(struct request *r, const struct json_value *v,
                    struct qwick_err *e)
{
    if (!json_is(v, JSON_STRING) || v->len == 0 || strlen(v->str) != v->len)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": stop: must be a string, or an array of "
                             "strings, not empty and without NUL");
    r->stop[r->n_stop] = strdup(v->str);
    if (!r->stop[r->n_stop])
        return err_oom(e, v->len);
    r->n_stop++;
    return 0;
}

static int get_stop(struct request *r, const struct json_value *v,
                    struct qwick_err *e)
{
    const struct json_value *m = member(v, "stop");
    if (!m)
        return 0;
    size_t n = json_is(m, JSON_ARRAY) ? m->len : 1;
    r->stop = calloc(n + 1, sizeof(*r->stop));
    if (!r->stop)
        return err_oom(e, n * sizeof(*r->stop));
    for (size_t i = 0; i < n; i++)
        if (add_stop(r, json_is(m, JSON_ARRAY) ? &m->items[i] : m, e))
            return -1;
    r->o.stop = (const char *const *)r->stop;
    r->o.n_stop = r->n_stop;
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
            return err_set(e, QWICK_ERR_USAGE,
                           WHERE ": choices: item %zu is no string", i);
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
    return err_set(e, QWICK_ERR_USAGE, "must be a string%s",
                   kind == QWICK_CONSTRAINT_CHOICES ? " or an array of strings"
                   : kind == QWICK_CONSTRAINT_JSON_SCHEMA ? " or an object"
                                                          : "");
}

/* Read the constraint of a record. o->name stays NULL if it has none. */
static int read_constraint(struct qwick_constraint_options *o, struct buf *text,
                           const struct json_value *v, struct qwick_err *e)
{
    static const struct {
        const char *key, *name;
        enum qwick_constraint_kind kind;
    } rows[] = {
        {"regex", WHERE ": regex", QWICK_CONSTRAINT_REGEX},
        {"choices", WHERE ": choices", QWICK_CONSTRAINT_CHOICES},
        {"grammar", WHERE ": grammar", QWICK_CONSTRAINT_GBNF},
        {"json_schema", WHERE ": json_schema", QWICK_CONSTRAINT_JSON_SCHEMA},
    };
    *o = qwick_constraint_defaults();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct json_value *m = member(v, rows[i].key);
        struct qwick_err why;
        if (!m)
            continue;
        if (o->name)
            return err_set(e, QWICK_ERR_USAGE, "%s: cannot be combined with %s",
                           o->name, rows[i].key);
        o->name = rows[i].name;
        o->kind = rows[i].kind;
        if (constraint_text(o->kind, m, text, &why))
            return err_set(e, why.code, "%s: %s", o->name, why.msg);
    }
    o->text = text->data ? text->data : "";
    o->n_text = text->len;
    return 0;
}

/* Read the record's choice of tools. *o is the record's constraint; with a
 * choice other than auto, it becomes that of the choice. */
static int read_choice(const struct request *r,
                       struct qwick_constraint_options *o, struct buf *text,
                       struct tool_choice *choice, const struct json_value *own,
                       struct qwick_err *e)
{
    struct qwick_err why;
    if (tool_choice_read(choice, own, &why))
        return err_set(e, why.code, WHERE ": %s", why.msg);
    if (choice->kind == CHOICE_AUTO ||
        (choice->kind == CHOICE_NONE && !r->tools))
        return 0;
    if (o->name)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: cannot be combined with tool_choice", o->name);
    if (!r->tools)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": tool_choice: there are no tools");
    if (tool_choice_constraint(choice, r->tools, text, o, e))
        return -1;
    o->name = WHERE ": tool_choice";
    return 0;
}

/* Set *o to the constraint of the options for a record without a choice and a
 * constraint of its own. o->name stays NULL if it is c->constraint. */
static int apply_choice(const struct request *r, const struct request_common *c,
                        struct qwick_constraint_options *o, struct buf *text,
                        struct qwick_err *e)
{
    if (c->choice.kind == CHOICE_AUTO || !r->tools ||
        r->tools == &c->tools.list)
        return 0;
    if (tool_choice_constraint(&c->choice, r->tools, text, o, e))
        return -1;
    o->name = WHERE ": --tool-choice";
    return 0;
}

/* Take the record's own constraint, or that of the options. */
static int get_constraint(struct request *r, struct request_common *c,
                          const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *own = member(v, "tool_choice");
    struct qwick_constraint_options o;
    struct tool_choice choice = {0};
    struct buf text = {0};
    int rc = read_constraint(&o, &text, v, e);
    /* the options' constraint for their own tools does not fit a record
       without tools */
    bool shared = c->constraint && (c->choice.kind == CHOICE_AUTO || r->tools);
    if (!rc && own) {
        rc = read_choice(r, &o, &text, &choice, own, e);
        shared &= c->choice.kind == CHOICE_AUTO;
    } else if (!rc && !o.name) {
        rc = apply_choice(r, c, &o, &text, e);
    }
    if (!rc && o.name)
        rc = constraint_cache_get(&c->constraints, c->eng, &o, &r->constraint,
                                  e);
    else if (!rc && shared) {
        r->constraint = c->constraint;
        r->constraint->n_users++;
    }
    buf_free(&text);
    tool_choice_free(&choice);
    if (r->constraint)
        r->o.constraint = r->constraint->constraint;
    return rc;
}

/* ---- thinking ---- */

static int get_think(const struct json_value *v, enum qwick_think *think,
                     struct qwick_err *e)
{
    const struct json_value *m = member(v, "think");
    if (!m)
        return 0;
    if (json_is(m, JSON_BOOL))
        *think = m->boolean ? QWICK_THINK_ON : QWICK_THINK_OFF;
    else if (json_equals(m, "on"))
        *think = QWICK_THINK_ON;
    else if (json_equals(m, "off"))
        *think = QWICK_THINK_OFF;
    else if (json_equals(m, "auto"))
        *think = QWICK_THINK_AUTO;
    else
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": think: must be true, false, \"on\", \"off\" or "
                             "\"auto\"");
    return 0;
}

/* ---- tools ---- */

/* Take the record's own tools, or those of the options. */
static int get_tools(struct request *r, const struct request_common *c,
                     const struct json_value *v, struct qwick_err *e)
{
    const struct json_value *own = member(v, "tools");
    bool ids = member(v, "prompt_ids");
    if (own && !json_is(own, JSON_ARRAY))
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": tools: must be an array, is %s",
                       json_type_name(own));
    if (own && own->len && (c->raw || ids))
        return err_set(e, QWICK_ERR_USAGE, WHERE ": tools: %s",
                       ids ? "cannot be combined with prompt_ids"
                           : "need a chat template");
    if (!own)
        own = &c->tools.list;
    if (own->len && !ids)
        r->tools = own;
    return 0;
}

static int add_tools(struct qwick_chat *chat, const struct request *r,
                     struct qwick_err *e)
{
    return r->tools ? tools_add(chat, r->tools, e) : 0;
}

/* ---- prompts ---- */

/* Take token ids from an array of numbers. */
static int take_ids(struct request *r, const struct request_common *c,
                    const struct json_value *v, struct qwick_err *e)
{
    int64_t vocab_size = (int64_t)qwick_engine_info(c->eng)->vocab_size, id;
    if (!json_is(v, JSON_ARRAY) || v->len == 0)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": prompt_ids: must be an array of token ids, not "
                             "empty");
    r->ids = malloc(v->len * sizeof(*r->ids));
    if (!r->ids)
        return err_oom(e, v->len * sizeof(*r->ids));
    for (size_t i = 0; i < v->len; i++) {
        if (json_int(&v->items[i], 0, vocab_size - 1, &id))
            return err_set(e, QWICK_ERR_USAGE,
                           WHERE
                           ": prompt_ids: item %zu is not a token id from 0 "
                           "to %lld",
                           i, (long long)vocab_size - 1);
        r->ids[r->n_ids++] = (int32_t)id;
    }
    r->o.in_think = !c->raw && gen_ids_in_think(c->eng, r->ids, r->n_ids);
    return 0;
}

/* The number of ids at which tokenizing may stop. It is computed from the
 * model's whole context; --ctx can only be smaller. */
static size_t enough(const struct request_common *c)
{
    return prompt_enough(qwick_engine_info(c->eng)->n_ctx_max);
}

static int encode_chat(struct request *r, const struct request_common *c,
                       const struct qwick_chat *chat, enum qwick_think think,
                       struct qwick_err *e)
{
    struct qwick_chat_options o = {.size = sizeof(o),
                                   .add_generation_prompt = true,
                                   .think = think,
                                   .enough = enough(c),
                                   .allow_special = c->allow_special};
    return qwick_chat_encode(chat, c->eng, &o, NULL, 0, &r->ids, &r->n_ids,
                             &r->o.in_think, e);
}

/* Take a text. The text of -f goes before it. */
static int take_text(struct request *r, const struct request_common *c,
                     const struct json_value *v, enum qwick_think think,
                     struct qwick_err *e)
{
    struct qwick_chat *chat = NULL;
    struct buf text = {0};
    int rc = -1;
    if (!json_is(v, JSON_STRING))
        return err_set(e, QWICK_ERR_USAGE, WHERE ": prompt: must be a string");
    if (c->before.len + v->len == 0)
        return err_set(e, QWICK_ERR_USAGE, WHERE ": prompt: is empty");
    if (buf_append(&text, c->before.data, c->before.len) ||
        (c->before.len && v->len && buf_puts(&text, "\n\n")) ||
        buf_append(&text, v->str, v->len)) {
        err_oom(e, c->before.len + v->len);
        goto done;
    }
    if (c->raw) {
        rc = qwick_tokenize_prompt(c->eng, text.data, text.len, true, enough(c),
                                   &r->ids, &r->n_ids, e);
        goto done;
    }
    if (!qwick_chat_create(&chat, e) &&
        !chat_input_texts(chat, c->system, c->n_system, text.data, text.len,
                          e) &&
        !add_tools(chat, r, e))
        rc = encode_chat(r, c, chat, think, e);
done:
    buf_free(&text);
    qwick_chat_free(chat);
    return rc;
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

/* Take the record's chat. -s becomes its system message if it has none.
 */
static int take_messages(struct request *r, const struct request_common *c,
                         const struct json_value *v, enum qwick_think *think,
                         struct qwick_err *e)
{
    struct chat_values values = chat_values_of(v);
    struct qwick_chat *chat;
    int rc = -1;
    values.add_generation_prompt = NULL; /* a request always has a generation
                                            prompt */
    if (c->before.len)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": messages: cannot be combined with --file");
    if (c->raw)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": messages: cannot be combined with --raw");
    if (!json_is(values.messages, JSON_ARRAY))
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": messages: must be an array");
    if (qwick_chat_create(&chat, e))
        return -1;
    if ((c->system && !has_system(values.messages) &&
         qwick_chat_add(chat, "system", c->system, c->n_system, e)) ||
        chat_add_values(chat, &values, e) || add_tools(chat, r, e) ||
        chat_input_check(chat, WHERE, e))
        goto done;
    *think = chat_input_think(chat, *think);
    rc = encode_chat(r, c, chat, *think, e);
done:
    qwick_chat_free(chat);
    return rc;
}

/* Set *think to the mode that selects the sampling defaults. */
static int get_prompt(struct request *r, const struct request_common *c,
                      const struct json_value *v, enum qwick_think *think,
                      struct qwick_err *e)
{
    const struct json_value *text = member(v, "prompt");
    const struct json_value *messages = member(v, "messages");
    const struct json_value *ids = member(v, "prompt_ids");
    int n = (text != NULL) + (messages != NULL) + (ids != NULL);
    if (!n && member(v, "custom_id") && member(v, "body"))
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": is of OpenAI's batch format, but the first "
                             "record is not; --input-format openai takes only "
                             "such records");
    if (n != 1)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": %s \"prompt\", \"messages\" and \"prompt_ids\"",
                       n ? "more than one of" : "has none of");
    r->o.split_thinking = !c->raw;
    if (ids || c->raw) /* no template that --think could change */
        *think = QWICK_THINK_AUTO;
    int rc = ids        ? take_ids(r, c, ids, e)
             : messages ? take_messages(r, c, v, think, e)
                        : take_text(r, c, text, *think, e);
    if (!rc && r->n_ids == 0)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": prompt: it has no tokens after normalization");
    return rc;
}

/* ---- the record ---- */

static int get_id(struct request *r, const struct json_value *v,
                  struct qwick_err *e)
{
    const struct json_value *id = member(v, "id");
    if (!id)
        return 0;
    if (!json_is(id, JSON_STRING) && !json_is(id, JSON_NUMBER))
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": id: must be a string or a number");
    if (json_is(id, JSON_STRING) ? buf_json_string(&r->id, id->str, id->len)
                                 : buf_append(&r->id, id->str, id->len))
        return err_oom(e, id->len);
    return 0;
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
static void tell_unknown(struct request_common *c, const struct json_value *v,
                         uint64_t line)
{
    for (size_t i = 0; i < v->len && c->name; i++) {
        struct buf key = {.max = 256};
        const struct json_value *k = &v->keys[i];
        if (!request_has_key(k) && !buf_json_string(&key, k->str, k->len) &&
            !(c->unknown.len &&
              memmem(c->unknown.data, c->unknown.len, key.data, key.len)) &&
            c->unknown.len < 4096 &&
            !buf_append(&c->unknown, key.data, key.len))
            msg_warn("%s: line %llu: %s is not an option, ignored", c->name,
                     (unsigned long long)line, key.data);
        buf_free(&key);
    }
}

static int get_budget(struct request *r, const struct request_common *c,
                      const struct json_value *v, struct qwick_err *e)
{
    int64_t n = -1;
    if (get_option_int(v, opt_row(c->p->verb, OPT_think_budget), &n, e))
        return -1;
    if (n < 0)
        return 0;
    if (c->raw)
        return err_set(e, QWICK_ERR_USAGE,
                       WHERE ": think_budget: cannot be combined with --raw");
    r->o.limit_thinking = true;
    r->o.think_budget = (size_t)n;
    return 0;
}

static int get_logprobs(struct request *r, const struct request_common *c,
                        const struct json_value *v, struct qwick_err *e)
{
    int64_t n = -1;
    if (get_int(v, "logprobs", 0, opt_row(c->p->verb, OPT_logprobs)->imax, &n,
                e))
        return -1;
    if (n < 0)
        return 0;
    r->own_logprobs = true;
    r->no_top = n == 0;
    r->o.logprobs = n ? (size_t)n : 1;
    return 0;
}

static int get_options(struct request *r, const struct request_common *c,
                       const struct json_value *v, struct sampling_wish *w,
                       struct qwick_err *e)
{
    const struct verb *verb = c->p->verb;
    int64_t max_tokens = c->p->a.max_tokens, seed = -1;
    if (get_budget(r, c, v, e) || get_logprobs(r, c, v, e) ||
        get_option_int(v, opt_row(verb, OPT_max_tokens), &max_tokens, e) ||
        get_option_int(v, opt_row(verb, OPT_seed), &seed, e) ||
        get_sampling(v, verb, w, e) || get_stop(r, v, e))
        return -1;
    r->o.max_tokens = (size_t)max_tokens;
    r->has_seed = seed >= 0;
    r->seed = r->has_seed ? (uint64_t)seed : 0;
    return 0;
}

int request_open(struct request *r, uint64_t line, const char *text, size_t n,
                 struct qwick_err *e)
{
    int64_t samples = 1;
    *r = (struct request){.line = line, .n = 1};
    if (json_parse(&r->doc, WHERE, text, n, QWICK_ERR_USAGE, e))
        return -1;
    const struct json_value *v = json_root(r->doc);
    if (!json_is(v, JSON_OBJECT))
        return err_set(e, QWICK_ERR_USAGE, WHERE ": is not an object");
    if (get_id(r, v, e) || get_int(v, "n", 1, REQUEST_MAX_N, &samples, e))
        return -1;
    r->n = (size_t)samples;
    return 0;
}

static int take(struct request *r, struct request_common *c,
                const struct json_value *v, struct qwick_err *e)
{
    struct sampling_wish w = answer_wish(c->p);
    enum qwick_think think = c->think;
    tell_unknown(c, v, r->line);
    r->o = qwick_generate_defaults();
    answer_options(&r->o, c->p);
    if (get_options(r, c, v, &w, e) || get_think(v, &think, e) ||
        get_tools(r, c, v, e) || get_constraint(r, c, v, e))
        return -1;
    double start = clock_ms();
    if (get_prompt(r, c, v, &think, e))
        return -1;
    r->tokenize_ms = clock_ms() - start;
    r->o.may_think = !member(v, "prompt_ids") && think != QWICK_THINK_OFF;
    if (enough(c) && r->n_ids > enough(c)) /* tokenizing stopped at this
                                              number */
        return prompt_too_long(r->n_ids, qwick_engine_info(c->eng)->n_ctx_max,
                               "", e);
    r->sampling = answer_sampling(c->eng, think == QWICK_THINK_OFF, &w);
    return 0;
}

int request_read(struct request *r, struct request_common *c,
                 struct qwick_err *e)
{
    int rc = take(r, c, json_root(r->doc), e);
    if (!rc && r->tools && r->tools != &c->tools.list)
        return 0; /* its tools are needed to read the answer */
    json_free(r->doc);
    r->doc = NULL;
    return rc;
}

void request_free(struct request *r)
{
    json_free(r->doc);
    constraint_cache_put(r->constraint);
    buf_free(&r->id);
    free(r->ids);
    for (size_t i = 0; i < r->n_stop; i++)
        free(r->stop[i]);
    free(r->stop);
    *r = (struct request){0};
}

struct qwick_generate_options request_options(const struct request *r,
                                              const struct request_common *c,
                                              size_t i,
                                              struct qwick_sampling *sampling)
{
    struct qwick_generate_options o = r->o;
    uint64_t seed = r->has_seed ? r->seed : answer_seed(c->seed, r->line);
    o.draft = c->draft;
    o.sampling = sampling;
    *sampling = r->sampling;
    sampling->seed = answer_seed(seed, i);
    return o;
}

/* ---- keys --------------------------------------------------------------- */

int request_run_key(struct request_common *c, struct qwick_engine *eng,
                    bool exact, size_t n_ctx, const char *form,
                    struct qwick_err *e)
{
    const struct qwick_info *info = qwick_engine_info(eng);
    struct key k = key_start("qwick batch 1");
    uint64_t id[2];
    if (qwick_engine_identity(eng, id, e))
        return -1;
    key_add_u64(&k, id[0]);
    key_add_u64(&k, id[1]);
    key_add_u64(&k, exact);
    key_add_text(&k, info->kv_dtype, strlen(info->kv_dtype));
    key_add_u64(&k, n_ctx);
    key_add_u64(&k, (uint64_t)c->p->a.logprobs);
    if (form)
        key_add_text(&k, form, strlen(form));
    c->run = k;
    c->draft_changes = c->draft && !exact;
    return c->draft_changes ? qwick_engine_identity(c->draft, c->draft_id, e)
                            : 0;
}

static void add_sampling(struct key *k, const struct request *r,
                         const struct request_common *c,
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
    bool given = r->has_seed || c->seeded;
    key_add_u64(k, given);
    key_add_u64(k, given ? s->seed : 0);
    if (c->draft_changes) {
        key_add_text(k, "draft", 5);
        key_add_u64(k, c->draft_id[0]);
        key_add_u64(k, c->draft_id[1]);
    }
}

uint64_t request_key(const struct request *r, const struct request_common *c,
                     size_t i)
{
    struct qwick_sampling sampling;
    struct qwick_generate_options o = request_options(r, c, i, &sampling);
    struct key k = c->run;
    key_add_ids(&k, r->ids, r->n_ids);
    add_sampling(&k, r, c, &sampling);
    key_add_u64(&k, i);
    key_add_u64(&k, o.max_tokens);
    key_add_u64(&k, o.n_stop);
    for (size_t j = 0; j < o.n_stop; j++)
        key_add_text(&k, o.stop[j], strlen(o.stop[j]));
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
    if (c->extract)
        key_add_text(&k, "code", 4);
    if (r->own_logprobs) {
        key_add_text(&k, "logprobs", 8);
        key_add_u64(&k, r->no_top ? 0 : r->o.logprobs);
    }
    return key_u64(&k);
}

uint64_t request_line_key(const struct request_common *c, const char *text,
                          size_t n)
{
    struct key k = c->run;
    key_add_text(&k, "line", 4);
    key_add_text(&k, text, n);
    return key_u64(&k);
}

uint64_t request_id_hash(const char *id, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)id[i]) * 0x100000001b3u;
    return h ? h : 1;
}
