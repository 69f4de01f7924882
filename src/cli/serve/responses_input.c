/* Input of /v1/responses: items become messages. */
#include "base/err.h"
#include "cli/serve/responses.h"

/* The state of reading items. */
struct input {
    struct body_reader *x;
    size_t i; /* index of the item */

    /* The answer that the last items are parts of: consecutive items of the
     * assistant are one message. */
    bool answer; /* there is one */
    struct buf text, thinking, calls;
};

/* Texts of a message are joined with these. */
static const char text_gap[] = "\n", thinking_gap[] = "\n\n";

/* ---- members of an item ---- */

static int input_refuse(struct input *in, const char *name, const char *what,
                        const struct json_value *v)
{
    return body_refuse(in->x, "input", "item %zu: %s: %s, is %s", in->i, name,
                       what, json_type_name(v));
}

/* Find the text of a part; NULL: it has none. */
static const struct json_value *part_text(const struct json_value *part)
{
    static const char *const types[] = {"input_text",   "output_text",
                                        "summary_text", "reasoning_text",
                                        "text",         "refusal"};
    enum { N_TYPES = sizeof(types) / sizeof(*types) };
    const struct json_value *type = json_get(part, "type");
    size_t i = 0;
    while (i < N_TYPES && !json_equals(type, types[i]))
        i++;
    return i < N_TYPES ? json_get(part, i + 1 < N_TYPES ? "text" : "refusal")
                       : NULL;
}

/* Append the texts of a member: a string, or a list of parts. */
static int input_texts(struct input *in, const char *name,
                       const struct json_value *v, const char *gap,
                       struct buf *out)
{
    bool list = json_is(v, JSON_ARRAY);
    if (!list && !json_is(v, JSON_STRING))
        return input_refuse(in, name, "must be a string or a list of parts", v);
    for (size_t k = 0; k < (list ? v->len : 1); k++) {
        const struct json_value *part = list ? &v->items[k] : NULL;
        const struct json_value *type = json_get(part, "type");
        const struct json_value *text = part ? part_text(part) : v;
        if (!text && json_is(type, JSON_STRING))
            return body_refuse(in->x, "input",
                               "item %zu: %s: parts of type \"%s\" are not "
                               "supported",
                               in->i, name, ERR_SHOW(type->str, type->len));
        if (!json_is(text, JSON_STRING))
            return input_refuse(in, name, "a part must have a type and a text",
                                text);
        if (out->len)
            buf_puts(out, gap);
        buf_append(out, text->str, text->len);
    }
    return 0;
}

/* Get a member that must be a string. Returns NULL after setting the error. */
static const struct json_value *
input_string(struct input *in, const struct json_value *item, const char *name)
{
    const struct json_value *v = json_get(item, name);
    if (json_is(v, JSON_STRING))
        return v;
    input_refuse(in, name, "must be a string", v);
    return NULL;
}

/* ---- items of an answer ---- */

/* Take the content, or else the summary: some clients keep only that. Beside a
 * content, the summary may be the work of another model. */
static int input_reasoning(struct input *in, const struct json_value *item)
{
    const struct json_value *content = json_member(item, "content");
    const struct json_value *summary = json_member(item, "summary");
    in->answer = true;
    if (content && !(json_is(content, JSON_ARRAY) && !content->len))
        return input_texts(in, "content", content, thinking_gap, &in->thinking);
    return summary ? input_texts(in, "summary", summary, thinking_gap,
                                 &in->thinking)
                   : 0;
}

/* A call of a function, or of a tool that takes a text as its "input". */
static int input_call(struct input *in, const struct json_value *item)
{
    bool custom = json_equals(json_get(item, "type"), "custom_tool_call");
    const char *what = custom ? "input" : "arguments";
    const struct json_value *id = input_string(in, item, "call_id"),
                            *name = id ? input_string(in, item, "name") : NULL,
                            *text = name ? input_string(in, item, what) : NULL;
    struct json_writer w = json_writer(&in->calls);
    struct buf flat = {0};
    if (!text)
        return -1;
    in->answer = true;
    responses_flat_name(&flat, json_member(item, "namespace"), name);
    jw_object(&w, NULL);
    jw_value(&w, "id", id);
    jw_cstr(&w, "type", "function");
    jw_object(&w, "function");
    jw_buf(&w, "name", &flat);
    if (custom) {
        jw_object(&w, "arguments");
        jw_value(&w, "input", text);
        jw_end_object(&w);
    } else {
        jw_string(&w, "arguments", text->len ? text->str : "{}",
                  text->len ? text->len : 2);
    }
    jw_end_object(&w);
    jw_end_object(&w);
    buf_free_part(&flat, &in->calls);
    return 0;
}

/* Write the answer whose items have been read. */
static void input_end_answer(struct input *in)
{
    struct json_writer *w = in->x->w;
    if (in->answer) {
        jw_object(w, NULL);
        jw_cstr(w, "role", "assistant");
        jw_buf(w, "content", &in->text);
        if (in->thinking.len)
            jw_buf(w, "reasoning_content", &in->thinking);
        if (in->calls.len) {
            jw_array(w, "tool_calls");
            jw_raw(w, NULL, in->calls.data, in->calls.len);
            jw_end_array(w);
        }
        jw_end_object(w);
    }
    w->failed |= in->text.failed || in->thinking.failed || in->calls.failed;
    buf_free(&in->text);
    buf_free(&in->thinking);
    buf_free(&in->calls);
    *in = (struct input){.x = in->x, .i = in->i};
}

/* ---- other items ---- */

/* Write a message with the texts of v. id: of the call, if the message is its
 * result; else NULL. */
static int input_put_message(struct input *in, const char *role,
                             const struct json_value *id, const char *name,
                             const struct json_value *v)
{
    struct json_writer *w = in->x->w;
    struct buf text = {0};
    int rc = input_texts(in, name, v, text_gap, &text);
    input_end_answer(in);
    jw_object(w, NULL);
    jw_cstr(w, "role", role);
    if (id)
        jw_value(w, "tool_call_id", id);
    jw_buf(w, "content", &text);
    jw_end_object(w);
    w->failed |= text.failed;
    buf_free(&text);
    return rc;
}

static int input_result(struct input *in, const struct json_value *item)
{
    const struct json_value *id = input_string(in, item, "call_id");
    return id ? input_put_message(in, "tool", id, "output",
                                  json_get(item, "output"))
              : -1;
}

static int input_message(struct input *in, const struct json_value *item)
{
    static const char *const roles[] = {"user", "system", "developer"};
    const struct json_value *role = json_get(item, "role");
    const struct json_value *content = json_get(item, "content");
    if (json_equals(role, "assistant")) {
        in->answer = true;
        return input_texts(in, "content", content, text_gap, &in->text);
    }
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (json_equals(role, roles[i]))
            return input_put_message(in, roles[i], NULL, "content", content);
    return body_refuse(in->x, "input",
                       "item %zu: role: must be \"user\", \"assistant\", "
                       "\"system\" or \"developer\"",
                       in->i);
}

static int input_reference(struct input *in, const struct json_value *item)
{
    (void)item;
    return body_refuse(in->x, "input",
                       "item %zu: item_reference: responses are not stored; "
                       "set \"store\" to false in the client",
                       in->i);
}

/* An item about a tool that ran on another server. */
static int input_nothing(struct input *in, const struct json_value *item)
{
    request_warn_unknown(in->x->warn, json_get(item, "type"), in->x->number);
    return 0;
}

/* ---- items ---- */

static const struct {
    const char *type;
    int (*read)(struct input *in, const struct json_value *item);
} item_types[] = {
    {"message", input_message},
    {"reasoning", input_reasoning},
    {"function_call", input_call},
    {"function_call_output", input_result},
    {"custom_tool_call", input_call},
    {"custom_tool_call_output", input_result},
    {"item_reference", input_reference},
    {"web_search_call", input_nothing},
    {"file_search_call", input_nothing},
    {"code_interpreter_call", input_nothing},
    {"image_generation_call", input_nothing},
    {"tool_search_call", input_nothing},
    {"tool_search_output", input_nothing},
    {"mcp_list_tools", input_nothing},
};

static int input_item(struct input *in, const struct json_value *item)
{
    const struct json_value *type = json_get(item, "type");
    if (!json_is(item, JSON_OBJECT))
        return body_refuse(in->x, "input", "item %zu: must be an object, is %s",
                           in->i, json_type_name(item));
    if (!type && json_get(item, "role"))
        return input_message(in, item);
    for (size_t i = 0; i < sizeof(item_types) / sizeof(*item_types); i++)
        if (json_equals(type, item_types[i].type))
            return item_types[i].read(in, item);
    if (!json_is(type, JSON_STRING))
        return input_refuse(in, "type", "must be a string", type);
    return body_refuse(in->x, "input",
                       "item %zu: items of type \"%s\" are not supported",
                       in->i, ERR_SHOW(type->str, type->len));
}

static int input_items(struct input *in, const struct json_value *input)
{
    if (!json_is(input, JSON_ARRAY))
        return body_refuse(in->x, "input",
                           "must be a string or an array of items, is %s",
                           json_type_name(input));
    if (!input->len)
        return body_refuse(in->x, "input", "has no item");
    for (in->i = 0; in->i < input->len; in->i++)
        if (input_item(in, &input->items[in->i]))
            return -1;
    return 0;
}

int responses_read_input(struct body_reader *x)
{
    const struct json_value *instructions =
        json_member(x->body, "instructions");
    const struct json_value *input = json_member(x->body, "input");
    struct input in = {.x = x};
    int rc = 0;
    jw_array(x->w, "messages");
    if (instructions)
        rc = input_put_message(&in, "system", NULL, "", instructions);
    if (!rc)
        rc = json_is(input, JSON_STRING)
                 ? input_put_message(&in, "user", NULL, "input", input)
                 : input_items(&in, input);
    input_end_answer(&in);
    jw_end_array(x->w);
    return rc;
}
