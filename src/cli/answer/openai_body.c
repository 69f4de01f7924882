#include "cli/answer/openai_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- members of their own ---- */

/* A last message of the assistant is continued. */
static int body_messages(struct body_reader *x, const struct body_member *row,
                         const struct json_value *m)
{
    if (!json_is(m, JSON_ARRAY))
        return body_refuse(x, row->name, "must be an array, is %s",
                           json_type_name(m));
    if (!m->len)
        return body_refuse(x, row->name, "has no message");
    jw_value(x->w, row->name, m);
    jw_bool(x->w, "continue_final_message", true);
    return 0;
}

/* The newer of two names wins only if the values are equal. */
static int body_max_tokens(struct body_reader *x, const struct body_member *row,
                           const struct json_value *m)
{
    const struct json_value *old = json_member(x->body, "max_tokens");
    const struct json_value *new =
        json_member(x->body, "max_completion_tokens");
    if (old == m && new)
        return json_is(old, JSON_NUMBER) && json_is(new, JSON_NUMBER) &&
                       strcmp(old->str, new->str) == 0
                   ? 0
                   : body_refuse(x, row->name,
                                 "differs from max_completion_tokens");
    int64_t n;
    if (json_int(m, 1, INT32_MAX, &n)) /* the record has only the older name */
        return body_refuse(x, row->name, "must be an integer from 1 to %d",
                           INT32_MAX);
    jw_int(x->w, "max_tokens", n);
    return 0;
}

/* Only answers of text. */
static int body_modalities(struct body_reader *x, const struct body_member *row,
                           const struct json_value *m)
{
    return json_is(m, JSON_ARRAY) && m->len == 1 &&
                   json_equals(&m->items[0], "text")
               ? 0
               : body_refuse(x, row->name, "only [\"text\"] is supported");
}

/* A line of batch's output has one choice. */
static int body_n(struct body_reader *x, const struct body_member *row,
                  const struct json_value *m)
{
    static const struct body_member one = {"n", body_only, "1"};
    int64_t n;
    if (!x->warn)
        return body_only(x, &one, m);
    if (json_int(m, 1, OPENAI_MAX_N, &n))
        return body_refuse(x, row->name, "must be an integer from 1 to %d",
                           OPENAI_MAX_N);
    jw_int(x->w, row->name, n);
    return 0;
}

static int body_stream_options(struct body_reader *x,
                               const struct body_member *row,
                               const struct json_value *m)
{
    const struct json_value *usage = json_member(m, "include_usage");
    if (!json_is(m, JSON_OBJECT) || (usage && !json_is(usage, JSON_BOOL)))
        return body_refuse(x, row->name,
                           "must be an object with include_usage, true or "
                           "false");
    x->include_usage = usage && usage->boolean;
    return 0;
}

static int body_logprobs(struct body_reader *x, const struct body_member *row,
                         const struct json_value *m)
{
    const struct json_value *top = json_member(x->body, "top_logprobs");
    int64_t n = 0;
    if (!json_is(m, JSON_BOOL))
        return body_refuse(x, row->name, "must be true or false");
    if (top && json_int(top, 0, 20, &n))
        return body_refuse(x, "top_logprobs",
                           "must be an integer from 0 to 20");
    if (m->boolean)
        jw_int(x->w, row->name, n);
    return 0;
}

/* Clients send 0 beside logprobs: false. */
static int body_top(struct body_reader *x, const struct body_member *row,
                    const struct json_value *m)
{
    const struct json_value *on = json_member(x->body, "logprobs");
    int64_t n;
    if (x->warn && !json_int(m, 0, 0, &n))
        return 0;
    return json_is(on, JSON_BOOL) && on->boolean
               ? 0
               : body_refuse(x, row->name, "needs logprobs: true");
}

/* Only an explicit "strict": false lets go of keywords. */
static int body_strict(struct body_reader *x, const char *name,
                       const char *holder, const struct json_value *strict)
{
    if (strict && !json_is(strict, JSON_BOOL))
        return body_refuse(x, name, "%s.strict must be true or false", holder);
    if (strict && !strict->boolean)
        jw_bool(x->w, "schema_lenient", true);
    return 0;
}

int openai_put_format(struct body_reader *x, const char *name,
                      const struct json_value *type, const char *holder,
                      const struct json_value *v)
{
    const struct json_value *schema = json_get(v, "schema");
    if (json_equals(type, "text"))
        return 0;
    if (json_equals(type, "json_object")) {
        jw_object(x->w, "json_schema");
        jw_cstr(x->w, "type", "object");
        jw_end_object(x->w);
        return 0;
    }
    if (!json_equals(type, "json_schema"))
        return body_refuse(x, name,
                           "type must be \"text\", \"json_object\" or "
                           "\"json_schema\"");
    if (!json_is(schema, JSON_OBJECT))
        return body_refuse(x, name, "%s.schema must be an object", holder);
    jw_value(x->w, "json_schema", schema);
    return body_strict(x, name, holder, json_member(v, "strict"));
}

static int body_format(struct body_reader *x, const struct body_member *row,
                       const struct json_value *m)
{
    return openai_put_format(x, row->name, json_get(m, "type"), "json_schema",
                             json_get(m, "json_schema"));
}

/* Tools that are no functions run at their vendor. Without them the model can
 * still answer, unless the request forces one. */
static int body_tools(struct body_reader *x, const struct body_member *row,
                      const struct json_value *m)
{
    if (!x->warn || !json_is(m, JSON_ARRAY))
        return body_same(x, row, m);
    jw_array(x->w, row->name);
    for (size_t i = 0; i < m->len; i++) {
        const struct json_value *type = json_get(&m->items[i], "type");
        if (json_is(type, JSON_STRING) && !json_equals(type, "function"))
            request_warn_unknown(x->warn, type, x->number);
        else
            jw_value(x->w, NULL, &m->items[i]);
    }
    jw_end_array(x->w);
    return 0;
}

/* ---- variables of the template ---- */

/* The members that hold variables. The first one that has a name counts. */
static const struct json_value *body_args(const struct body_reader *x)
{
    const struct json_value *args =
        json_member(x->body, "chat_template_kwargs");
    return json_is(args, JSON_OBJECT) ? args : NULL;
}

/* Whether the model thinks. Effort "none" means that it does not. */
static void body_put_think(struct body_reader *x,
                           const struct json_value *effort)
{
    const struct json_value *think =
        json_member(body_args(x), "enable_thinking");
    if (think)
        jw_value(x->w, "think", think);
    else if (json_equals(effort, "none"))
        jw_bool(x->w, "think", false);
}

static void body_put_args(struct body_reader *x,
                          const struct json_value *effort)
{
    const struct json_value *args = body_args(x);
    if (effort &&
        (json_equals(effort, "none") || json_member(args, "reasoning_effort")))
        effort = NULL;
    jw_object(x->w, "template_args");
    if (effort)
        jw_value(x->w, "reasoning_effort", effort);
    for (size_t i = 0; args && i < args->len; i++)
        if (!json_equals(&args->keys[i], "enable_thinking")) {
            jw_key(x->w, args->keys[i].str, args->keys[i].len);
            jw_value(x->w, NULL, &args->items[i]);
        }
    jw_end_object(x->w);
}

void openai_put_effort(struct body_reader *x, const struct json_value *effort)
{
    body_put_think(x, effort);
    body_put_args(x, effort);
}

int body_template_args(struct body_reader *x, const struct body_member *row,
                       const struct json_value *m)
{
    return json_is(m, JSON_OBJECT)
               ? 0
               : body_refuse(x, row->name, "must be an object");
}

static int body_effort(struct body_reader *x, const struct body_member *row,
                       const struct json_value *m)
{
    return json_is(m, JSON_STRING)
               ? 0
               : body_refuse(x, row->name, "must be a string");
}

/* ---- the body ---- */

/* SERVE's contract; batch takes the same members. */
static const struct body_member members[] = {
    {"model", body_model, NULL},
    {"messages", body_messages, NULL},
    {"max_tokens", body_max_tokens, NULL},
    {"max_completion_tokens", body_max_tokens, NULL},
    {"temperature", body_same, NULL},
    {"top_p", body_same, NULL},
    {"seed", body_same, NULL},
    {"stop", body_stop, NULL},
    {"presence_penalty", body_same, NULL},
    {"frequency_penalty", body_same, NULL},
    {"logprobs", body_logprobs, NULL},
    {"top_logprobs", body_top, NULL},
    {"response_format", body_format, NULL},
    {"tools", body_tools, NULL},
    {"tool_choice", body_same, NULL},
    {"parallel_tool_calls", body_parallel, NULL},
    {"n", body_n, NULL},
    {"reasoning_effort", body_effort, NULL},
    {"stream", body_stream, NULL},
    {"stream_options", body_stream_options, NULL},
    {"store", body_nothing, NULL},
    {"user", body_nothing, NULL},
    {"metadata", body_nothing, NULL},
    {"prompt_cache_key", body_nothing, NULL},
    {"safety_identifier", body_nothing, NULL},
    {"service_tier", body_nothing, NULL},
    {"verbosity", body_nothing, NULL},
    {"logit_bias", body_same, NULL},
    {"modalities", body_modalities, NULL},
    {"audio", body_never, NULL},
    {"functions", body_never, "use tools"},
    {"function_call", body_never, "use tool_choice"},
    {"web_search_options", body_never, NULL},
    /* of other servers of this format */
    {"top_k", body_same, NULL},
    {"min_p", body_same, NULL},
    {"repetition_penalty", body_same, "repeat_penalty"},
    {"chat_template_kwargs", body_template_args, NULL},
    {"grammar", body_same, NULL},
    {"regex", body_same, NULL},
    {"choices", body_same, NULL},
    {"json_order", body_same, NULL},
    {"cache_prompt", body_nothing, NULL},
};

enum { N_MEMBERS = sizeof(members) / sizeof(*members) };

const char *openai_member_name(const char *name)
{
    if (strcmp(name, "json_schema") == 0)
        return "response_format";
    if (strcmp(name, "prompt_ids") == 0)
        return "prompt";
    if (strcmp(name, "think") == 0 || strcmp(name, "template_args") == 0)
        return "chat_template_kwargs";
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (members[i].put == body_same && members[i].to &&
            strcmp(members[i].to, name) == 0)
            return members[i].name;
    return name;
}

static bool body_is_one_of(const char *const *names,
                           const struct json_value *key)
{
    while (*names && !json_equals(key, *names))
        names++;
    return *names;
}

int openai_read_completion(struct body_reader *x, const char *const *others)
{
    static const char *const shared[] = {"model",
                                         "temperature",
                                         "top_p",
                                         "top_k",
                                         "min_p",
                                         "repetition_penalty",
                                         "presence_penalty",
                                         "frequency_penalty",
                                         "seed",
                                         "stop",
                                         "n",
                                         "stream",
                                         "stream_options",
                                         "logit_bias",
                                         "response_format",
                                         "grammar",
                                         "regex",
                                         "choices",
                                         "user",
                                         "metadata",
                                         "store",
                                         "prompt_cache_key",
                                         "cache_prompt",
                                         "service_tier",
                                         NULL};
    const struct json_value *body = x->body;
    for (size_t i = 0; i < body->len; i++) {
        const struct json_value *key = &body->keys[i];
        if (body_is_one_of(others, key))
            continue;
        if (body_is_one_of(shared, key)
                ? body_read_member(x, members, N_MEMBERS, key, &body->items[i])
                : body_unknown(x, key))
            return -1;
    }
    return 0;
}

int openai_read_body(struct body_reader *x)
{
    if (!json_member(x->body, "messages"))
        return body_refuse(x, "messages", "must be an array, is missing");
    if (body_read_members(x, members, N_MEMBERS))
        return -1;
    openai_put_effort(x, json_member(x->body, "reasoning_effort"));
    return 0;
}
