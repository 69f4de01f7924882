/* Bodies of Messages: the members beside the conversation. */
#include <string.h>

#include "cli/answer/request.h"
#include "cli/serve/messages.h"

/* ---- tools ---- */

static int put_tool(struct body_reader *x, const struct json_value *tool,
                    size_t i)
{
    static const char *const same[] = {"name", "description"};
    const struct json_value *schema = json_member(tool, "input_schema");
    const struct json_value *strict = json_member(tool, "strict");
    if (!json_is(json_get(tool, "name"), JSON_STRING))
        return body_refuse(x, "tools",
                           "tool %zu: name: must be a string, is %s", i + 1,
                           json_type_name(json_get(tool, "name")));
    if (!json_is(schema, JSON_OBJECT))
        return body_refuse(x, "tools",
                           "tool %zu: input_schema: must be an object, is %s",
                           i + 1, json_type_name(schema));
    jw_object(x->w, NULL);
    jw_cstr(x->w, "type", "function");
    jw_object(x->w, "function");
    for (size_t k = 0; k < sizeof(same) / sizeof(*same); k++) {
        const struct json_value *m = json_member(tool, same[k]);
        if (m)
            jw_value(x->w, same[k], m);
    }
    jw_value(x->w, "parameters", schema);
    if (strict)
        jw_value(x->w, "strict", strict);
    jw_end_object(x->w);
    jw_end_object(x->w);
    return 0;
}

/* Tools that run at the vendor have a type and no schema, and are left out: the
 * model can answer without them, unless the request forces one. */
static int messages_tools(struct body_reader *x, const struct body_member *row,
                          const struct json_value *m)
{
    if (!json_is(m, JSON_ARRAY))
        return body_refuse(x, row->name, "must be an array, is %s",
                           json_type_name(m));
    jw_array(x->w, row->name);
    for (size_t i = 0; i < m->len; i++) {
        const struct json_value *tool = &m->items[i];
        const struct json_value *type = json_get(tool, "type");
        if (json_is(type, JSON_STRING) && !json_equals(type, "custom") &&
            !json_member(tool, "input_schema"))
            request_warn_unknown(x->warn, type, x->number);
        else if (put_tool(x, tool, i))
            return -1;
    }
    jw_end_array(x->w);
    return 0;
}

static int messages_choice(struct body_reader *x, const struct body_member *row,
                           const struct json_value *m)
{
    static const char *const names[][2] = {{"auto", "auto"},
                                           {"any", "required"},
                                           {"none", "none"},
                                           {"tool", NULL}};
    enum { N = sizeof(names) / sizeof(*names) };
    const struct json_value *type = json_get(m, "type");
    const struct json_value *name = json_get(m, "name");
    const struct json_value *one = json_member(m, "disable_parallel_tool_use");
    size_t i = 0;
    while (i < N && !json_equals(type, names[i][0]))
        i++;
    if (i == N || (!names[i][1] && !json_is(name, JSON_STRING)))
        return body_refuse(x, row->name,
                           "type: must be \"auto\", \"any\", \"none\", or "
                           "\"tool\" with a name");
    if (one && !json_is(one, JSON_BOOL))
        return body_refuse(x, row->name,
                           "disable_parallel_tool_use: must be true or false");
    if (one)
        jw_bool(x->w, "parallel_tool_calls", !one->boolean);
    if (names[i][1]) {
        jw_cstr(x->w, row->name, names[i][1]);
        return 0;
    }
    jw_object(x->w, row->name);
    jw_cstr(x->w, "type", "function");
    jw_object(x->w, "function");
    jw_value(x->w, "name", name);
    jw_end_object(x->w);
    jw_end_object(x->w);
    return 0;
}

/* ---- thinking ---- */

/* Return the value of "think" of the record: NULL after refusing the body. */
static const char *thinking_mode(struct body_reader *x,
                                 const struct json_value *m)
{
    static const char *const names[][2] = {
        {"enabled", "on"}, {"adaptive", "auto"}, {"disabled", "off"}};
    if (!m)
        return "off";
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (json_equals(json_get(m, "type"), names[i][0]))
            return names[i][1];
    body_refuse(x, "thinking",
                "type: must be \"enabled\", \"adaptive\" or \"disabled\"");
    return NULL;
}

static int put_budget(struct body_reader *x, const struct json_value *m,
                      bool has_budget)
{
    int64_t n;
    if (!m)
        return 0;
    if (json_int(m, 0, INT32_MAX, &n))
        return body_refuse(x, "thinking",
                           "budget_tokens: must be an integer from 0 to %d",
                           INT32_MAX);
    if (has_budget)
        jw_int(x->w, "think_budget", n);
    return 0;
}

/* Efforts of templates end at "high". */
static int put_effort(struct body_reader *x, bool thinks)
{
    const struct json_value *m =
        json_member(json_member(x->body, "output_config"), "effort");
    bool most = json_equals(m, "xhigh") || json_equals(m, "max");
    if (m && !json_is(m, JSON_STRING))
        return body_refuse(x, "output_config", "effort: must be a string");
    jw_object(x->w, "template_args");
    if (m && thinks)
        jw_cstr(x->w, "reasoning_effort", most ? "high" : m->str);
    jw_end_object(x->w);
    return 0;
}

/* Whether the answer goes on from a last message of the assistant. The thinking
 * of that message has ended. */
static bool ends_with_answer(const struct json_value *messages)
{
    return json_is(messages, JSON_ARRAY) && messages->len &&
           json_equals(json_get(&messages->items[messages->len - 1], "role"),
                       "assistant");
}

static int put_thinking(struct body_reader *x, bool has_budget)
{
    const struct json_value *m = json_member(x->body, "thinking");
    const char *mode = thinking_mode(x, m);
    if (!mode)
        return -1;
    bool on = strcmp(mode, "on") == 0;
    if (on && ends_with_answer(json_member(x->body, "messages")))
        return body_refuse(x, "thinking",
                           "cannot be enabled when the last message is the "
                           "assistant's");
    jw_cstr(x->w, "think", mode);
    return (on && put_budget(x, json_member(m, "budget_tokens"), has_budget)) ||
                   put_effort(x, strcmp(mode, "off") != 0)
               ? -1
               : 0;
}

/* ---- the form of the answer ---- */

static int put_format(struct body_reader *x)
{
    const struct json_value *config = json_member(x->body, "output_config");
    const struct json_value *old = json_member(x->body, "output_format");
    const struct json_value *m = json_member(config, "format");
    const char *name = m ? "output_config" : "output_format";
    if (config && !json_is(config, JSON_OBJECT))
        return body_refuse(x, "output_config", "must be an object, is %s",
                           json_type_name(config));
    if (m && old)
        return body_refuse(x, "output_format",
                           "cannot be combined with output_config.format");
    if (!m)
        m = old;
    if (!m)
        return 0;
    if (!json_equals(json_get(m, "type"), "json_schema") ||
        !json_is(json_get(m, "schema"), JSON_OBJECT))
        return body_refuse(x, name,
                           "the format must be {\"type\": \"json_schema\", "
                           "\"schema\": an object}");
    jw_value(x->w, "json_schema", json_get(m, "schema"));
    return 0;
}

/* ---- the body ---- */

static int messages_length(struct body_reader *x, const struct body_member *row,
                           const struct json_value *m)
{
    int64_t n;
    if (json_int(m, 0, INT32_MAX, &n))
        return body_refuse(x, row->name, "must be an integer from 0 to %d",
                           INT32_MAX);
    /* 0: generate one token, so that the prompt is evaluated, and drop it */
    jw_int(x->w, row->name, n ? n : 1);
    return 0;
}

/* Some clients always send a list of servers; an empty one is allowed. */
static int messages_servers(struct body_reader *x,
                            const struct body_member *row,
                            const struct json_value *m)
{
    return json_is(m, JSON_ARRAY) && !m->len ? 0 : body_never(x, row, m);
}

/* messages_read_body itself reads "messages", "system", "thinking",
 * "output_config" and "output_format". */
static const struct body_member members[] = {
    {"model", body_model, NULL},
    {"messages", body_nothing, NULL},
    {"system", body_nothing, NULL},
    {"thinking", body_nothing, NULL},
    {"output_config", body_nothing, NULL},
    {"output_format", body_nothing, NULL},
    {"max_tokens", messages_length, NULL},
    {"temperature", body_same, NULL},
    {"top_p", body_same, NULL},
    {"top_k", body_same, NULL},
    {"stop_sequences", body_stop, "stop"},
    {"tools", messages_tools, NULL},
    {"tool_choice", messages_choice, NULL},
    {"stream", body_stream, NULL},
    {"container", body_never, NULL},
    {"mcp_servers", messages_servers, NULL},
    {"cache_control", body_nothing, NULL},
    {"context_management", body_nothing, NULL},
    {"inference_geo", body_nothing, NULL},
    {"metadata", body_nothing, NULL},
    {"service_tier", body_nothing, NULL},
    {"speed", body_nothing, NULL},
    {"user_profile_id", body_nothing, NULL},
};

enum { N_MEMBERS = sizeof(members) / sizeof(*members) };

const char *messages_member_name(const char *name)
{
    static const char *const names[][2] = {
        {"stop", "stop_sequences"},
        {"json_schema", "output_config"},
        {"template_args", "output_config"},
        {"think", "thinking"},
        {"think_budget", "thinking"},
        {"parallel_tool_calls", "tool_choice"},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

int messages_read_body(struct body_reader *x, bool counts, bool has_budget)
{
    if (!counts && !json_member(x->body, "max_tokens"))
        return body_refuse(x, "max_tokens", "must be an integer, is missing");
    if (body_read_members(x, members, N_MEMBERS) || put_format(x) ||
        put_thinking(x, has_budget) || messages_put_turns(x))
        return -1;
    jw_bool(x->w, "continue_final_message", true);
    return 0;
}
