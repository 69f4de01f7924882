/* Bodies of /v1/responses. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "cli/answer/openai_body.h"
#include "cli/serve/responses.h"

/* ---- tools ---- */

int responses_flat_name(struct buf *out, const struct json_value *space,
                        const struct json_value *name)
{
    size_t n = json_is(space, JSON_STRING) ? space->len : 0, skip = 0;
    if (n) {
        while (n && space->str[n - 1] == '_')
            n--;
        skip = strspn(name->str, "_");
        buf_append(out, space->str, n);
        buf_puts(out, "__");
    }
    buf_append(out, name->str + skip, name->len - skip);
    return out->failed ? -1 : 0;
}

/* Remember how a function of a namespace is called. */
static int tool_remember(struct responses *o, struct body_reader *x,
                         const struct buf *flat, const struct json_value *space,
                         const struct json_value *name)
{
    if (ARRAY_RESERVE(o->tools, o->cap_tools, o->n_tools + 1, x->e))
        return -1;
    struct response_tool *t = &o->tools[o->n_tools++];
    /* a name with NUL is refused with the record */
    *t = (struct response_tool){.flat = strdup(buf_text(flat)),
                                .space = strdup(space->str),
                                .name = strdup(name->str)};
    return t->flat && t->space && t->name ? 0 : err_oom(x->e, flat->len);
}

/* Write a function in the form of chat completions, with the members that have
 * an effect. space: its namespace; NULL: none. */
static int tool_put(struct responses *o, struct body_reader *x,
                    const struct json_value *tool,
                    const struct json_value *space)
{
    static const char *const same[] = {"description", "parameters"};
    const struct json_value *name = json_get(tool, "name");
    const struct json_value *strict = json_member(tool, "strict");
    struct buf flat = {0};
    int rc = 0;
    if (!json_is(name, JSON_STRING))
        return body_refuse(x, "tools", "name: must be a string, is %s",
                           json_type_name(name));
    if (responses_flat_name(&flat, space, name))
        rc = err_oom(x->e, flat.len);
    else if (space)
        rc = tool_remember(o, x, &flat, space, name);
    jw_object(x->w, NULL);
    jw_cstr(x->w, "type", "function");
    jw_object(x->w, "function");
    jw_buf(x->w, "name", &flat);
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        const struct json_value *m = json_member(tool, same[i]);
        if (m)
            jw_value(x->w, same[i], m);
    }
    if (strict && !(json_is(strict, JSON_BOOL) && !strict->boolean))
        jw_value(x->w, "strict", strict);
    jw_end_object(x->w);
    jw_end_object(x->w);
    buf_free(&flat);
    return rc;
}

/* Read a tool or a namespace. Tools that are not functions run at their vendor,
 * or take texts that no schema describes: return 1 for these. */
static int tool_read(struct responses *o, struct body_reader *x,
                     const struct json_value *tool,
                     const struct json_value *space)
{
    const struct json_value *type = json_get(tool, "type");
    const struct json_value *tools = json_get(tool, "tools");
    const struct json_value *name = json_get(tool, "name");
    int rc = 0;
    if (!json_is(type, JSON_STRING))
        return body_refuse(x, "tools", "type: must be a string, is %s",
                           json_type_name(type));
    if (json_equals(type, "function"))
        return tool_put(o, x, tool, space);
    if (space || !json_equals(type, "namespace")) {
        request_warn_unknown(x->warn, type, x->number);
        return 1;
    }
    if (!json_is(name, JSON_STRING) || !json_is(tools, JSON_ARRAY))
        return body_refuse(x, "tools",
                           "a namespace must have a name and tools");
    for (size_t i = 0; i < tools->len && rc >= 0; i++)
        rc = tool_read(o, x, &tools->items[i], name);
    return rc < 0 ? -1 : 0;
}

static int responses_tools(struct responses *o, struct body_reader *x)
{
    const struct json_value *tools = json_member(x->body, "tools");
    struct json_writer echo = json_writer(&o->echo);
    int rc = 0;
    jw_array(&echo, "tools");
    if (tools && !json_is(tools, JSON_ARRAY))
        return body_refuse(x, "tools", "must be an array, is %s",
                           json_type_name(tools));
    if (tools)
        jw_array(x->w, "tools");
    for (size_t i = 0; tools && i < tools->len && rc >= 0; i++) {
        rc = tool_read(o, x, &tools->items[i], NULL);
        if (rc == 0)
            jw_value(&echo, NULL, &tools->items[i]);
    }
    if (tools)
        jw_end_array(x->w);
    jw_end_array(&echo);
    return rc < 0 ? -1 : 0;
}

/* The name and the namespace stand beside "type" here. */
static int responses_choice(struct body_reader *x,
                            const struct body_member *row,
                            const struct json_value *m)
{
    const struct json_value *name = json_get(m, "name");
    struct buf flat = {0};
    if (json_is(m, JSON_STRING))
        return body_same(x, row, m);
    if (!json_equals(json_get(m, "type"), "function") ||
        !json_is(name, JSON_STRING))
        return body_refuse(x, row->name,
                           "must be \"auto\", \"none\", \"required\" or "
                           "{\"type\": \"function\", \"name\": NAME}");
    responses_flat_name(&flat, json_member(m, "namespace"), name);
    jw_object(x->w, row->name);
    jw_cstr(x->w, "type", "function");
    jw_object(x->w, "function");
    jw_buf(x->w, "name", &flat);
    jw_end_object(x->w);
    jw_end_object(x->w);
    x->w->failed |= flat.failed;
    buf_free(&flat);
    return 0;
}

/* ---- members of their own ---- */

static int responses_instructions(struct body_reader *x,
                                  const struct body_member *row,
                                  const struct json_value *m)
{
    return json_is(m, JSON_STRING)
               ? 0
               : body_refuse(x, row->name, "must be a string, is %s",
                             json_type_name(m));
}

static int responses_length(struct body_reader *x,
                            const struct body_member *row,
                            const struct json_value *m)
{
    int64_t n;
    if (json_int(m, 1, INT32_MAX, &n))
        return body_refuse(x, row->name, "must be an integer from 1 to %d",
                           INT32_MAX);
    jw_int(x->w, "max_tokens", n);
    return 0;
}

static int responses_text(struct body_reader *x, const struct body_member *row,
                          const struct json_value *m)
{
    const struct json_value *format = json_member(m, "format");
    if (!json_is(m, JSON_OBJECT))
        return body_refuse(x, row->name, "must be an object, is %s",
                           json_type_name(m));
    return format ? openai_put_format(x, row->name, json_get(format, "type"),
                                      "format", format)
                  : 0;
}

/* The members of "reasoning" are strings. */
static int responses_reasoning(struct body_reader *x,
                               const struct body_member *row,
                               const struct json_value *m)
{
    static const char *const names[] = {"effort", "summary",
                                        "generate_summary"};
    if (!json_is(m, JSON_OBJECT))
        return body_refuse(x, row->name, "must be an object, is %s",
                           json_type_name(m));
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const struct json_value *v = json_member(m, names[i]);
        if (v && !json_is(v, JSON_STRING))
            return body_refuse(x, row->name, "%s: must be a string, is %s",
                               names[i], json_type_name(v));
    }
    return 0;
}

static int responses_top(struct body_reader *x, const struct body_member *row,
                         const struct json_value *m)
{
    int64_t n;
    return json_int(m, 0, 20, &n) ? body_refuse(x, row->name,
                                                "must be an integer from 0 "
                                                "to 20")
                                  : 0;
}

/* Answers have a copy of it, so it has OpenAI's limits. */
static int responses_metadata(struct body_reader *x,
                              const struct body_member *row,
                              const struct json_value *m)
{
    bool good = json_is(m, JSON_OBJECT) && m->len <= 16;
    for (size_t i = 0; good && i < m->len; i++)
        good = json_is(&m->items[i], JSON_STRING) && m->items[i].len <= 2048 &&
               m->keys[i].len <= 256;
    return good ? 0
                : body_refuse(x, row->name,
                              "must be an object of at most 16 short strings");
}

/* ---- the body ---- */

static const struct body_member members[] = {
    {"model", body_model, NULL},
    {"input", body_nothing, NULL}, /* responses_read_input */
    {"instructions", responses_instructions, NULL},
    {"tools", body_nothing, NULL}, /* responses_tools */
    {"tool_choice", responses_choice, NULL},
    {"parallel_tool_calls", body_parallel, NULL},
    {"text", responses_text, NULL},
    {"max_output_tokens", responses_length, NULL},
    {"temperature", body_same, NULL},
    {"top_p", body_same, NULL},
    {"reasoning", responses_reasoning, NULL},
    {"top_logprobs", responses_top, NULL},
    {"include", body_nothing, NULL}, /* put_logprobs */
    {"stream", body_stream, NULL},
    {"metadata", responses_metadata, NULL},
    {"background", body_only, "false"},
    {"previous_response_id", body_never,
     "responses are not stored: send the whole conversation as input"},
    {"conversation", body_never,
     "responses are not stored: send the whole conversation as input"},
    {"prompt", body_never, "use instructions and input"},
    {"stream_options", body_nothing, NULL},
    {"store", body_nothing, NULL},
    {"truncation", body_nothing, NULL}, /* a prompt is never cut */
    {"user", body_nothing, NULL},
    {"prompt_cache_key", body_nothing, NULL},
    {"prompt_cache_options", body_nothing, NULL},
    {"prompt_cache_retention", body_nothing, NULL},
    {"safety_identifier", body_nothing, NULL},
    {"service_tier", body_nothing, NULL},
    {"client_metadata", body_nothing, NULL},
    {"context_management", body_nothing, NULL},
    {"max_tool_calls", body_nothing, NULL}, /* for the vendor's tools */
    /* as in chat completions */
    {"seed", body_same, NULL},
    {"top_k", body_same, NULL},
    {"min_p", body_same, NULL},
    {"presence_penalty", body_same, NULL},
    {"frequency_penalty", body_same, NULL},
    {"repetition_penalty", body_same, "repeat_penalty"},
    {"logit_bias", body_same, NULL},
    {"chat_template_kwargs", body_template_args, NULL},
    {"grammar", body_same, NULL},
    {"regex", body_same, NULL},
    {"choices", body_same, NULL},
    {"json_order", body_same, NULL},
};

enum { N_MEMBERS = sizeof(members) / sizeof(*members) };

const char *responses_member_name(const char *name)
{
    static const char *const names[][2] = {
        {"messages", "input"},
        {"max_tokens", "max_output_tokens"},
        {"json_schema", "text"},
        {"schema_lenient", "text"},
        {"logprobs", "top_logprobs"},
        {"think", "reasoning"},
        {"template_args", "chat_template_kwargs"},
        {"repeat_penalty", "repetition_penalty"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

/* Log-probabilities are asked for by "include", or by their number. */
static int put_logprobs(struct body_reader *x)
{
    const struct json_value *include = json_member(x->body, "include");
    const struct json_value *top = json_member(x->body, "top_logprobs");
    int64_t n = 0;
    bool wanted = top && !json_int(top, 1, 20, &n);
    if (include && !json_is(include, JSON_ARRAY))
        return body_refuse(x, "include", "must be an array, is %s",
                           json_type_name(include));
    for (size_t i = 0; include && i < include->len; i++)
        wanted |=
            json_equals(&include->items[i], "message.output_text.logprobs");
    if (wanted)
        jw_int(x->w, "logprobs", n);
    return 0;
}

/* Write the members that a response copies from its request: the request's
 * value, or the default of the row. */
static void put_echo(struct responses *o, const struct body_reader *x)
{
    static const char *const rows[][2] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"top_logprobs", "0"},
    };
    const struct json_value *reasoning = json_member(x->body, "reasoning");
    const struct json_value *effort = json_member(reasoning, "effort");
    const struct json_value *summary = json_member(reasoning, "summary");
    struct json_writer w = json_writer(&o->echo);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct json_value *v = json_member(x->body, rows[i][0]);
        if (v)
            jw_value(&w, rows[i][0], v);
        else
            jw_raw(&w, rows[i][0], rows[i][1], strlen(rows[i][1]));
    }
    jw_object(&w, "reasoning");
    jw_cstr(&w, "effort", effort ? effort->str : NULL);
    jw_cstr(&w, "summary", summary ? summary->str : NULL);
    jw_end_object(&w);
    o->summary = summary || json_member(reasoning, "generate_summary");
}

int responses_read_body(struct responses *o, struct body_reader *x)
{
    if (!json_member(x->body, "input"))
        return body_refuse(x, "input",
                           "must be a string or an array of items, is missing");
    if (body_read_members(x, members, N_MEMBERS) || put_logprobs(x) ||
        responses_tools(o, x) || responses_read_input(x))
        return -1;
    openai_put_effort(x,
                      json_member(json_member(x->body, "reasoning"), "effort"));
    put_echo(o, x);
    return o->echo.failed ? err_oom(x->e, o->echo.len) : 0;
}

void responses_free(struct responses *o)
{
    for (size_t i = 0; o && i < o->n_tools; i++) {
        free(o->tools[i].flat);
        free(o->tools[i].space);
        free(o->tools[i].name);
    }
    if (o) {
        free(o->tools);
        buf_free(&o->echo);
        buf_free(&o->output);
        buf_free(&o->logprobs);
    }
    free(o);
}
