#include "text/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "text/chat/chat_known.h"

/* ---- strings with lengths, as Python's str methods see them ---- */

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){literal, sizeof(literal) - 1})

static struct str str_lstrip(struct str s)
{
    while (s.n && s.p[0] == '\n') {
        s.p++;
        s.n--;
    }
    return s;
}

static struct str str_rstrip(struct str s)
{
    while (s.n && s.p[s.n - 1] == '\n')
        s.n--;
    return s;
}

static bool str_starts(struct str s, struct str head)
{
    return s.n >= head.n && memcmp(s.p, head.p, head.n) == 0;
}

static bool str_ends(struct str s, struct str tail)
{
    return s.n >= tail.n && memcmp(s.p + s.n - tail.n, tail.p, tail.n) == 0;
}

/* s.split(sep)[0] */
static struct str str_before_first(struct str s, struct str sep)
{
    const char *at = memmem(s.p, s.n, sep.p, sep.n);
    return at ? (struct str){s.p, (size_t)(at - s.p)} : s;
}

/* s.split(sep)[-1]; sep must not overlap itself. */
static struct str str_after_last(struct str s, struct str sep)
{
    const char *at;
    while ((at = memmem(s.p, s.n, sep.p, sep.n))) {
        at += sep.n;
        s.n -= (size_t)(at - s.p);
        s.p = at;
    }
    return s;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

enum chat_known chat_recognise(const char *text, size_t n)
{
    while (n && is_space(text[0])) {
        text++;
        n--;
    }
    while (n && is_space(text[n - 1]))
        n--;
    if (!n)
        return CHAT_NONE;
    if (n == sizeof chat_known_qwen3 - 1 &&
        memcmp(text, chat_known_qwen3, n) == 0)
        return CHAT_QWEN3;
    return CHAT_UNKNOWN;
}

/* ---- output ---- */

struct render {
    struct chat_prompt *out;
    size_t pieces_cap;
    bool full; /* an append failed; the rest is skipped, told at the end */
    const struct json_value *messages;
    struct qwick_err *e;
};

/* The template's own text. */
static void emit_own(struct render *r, const char *literal)
{
    struct chat_prompt *out = r->out;
    size_t begin = out->text.len;
    if (r->full)
        return;
    if (buf_puts(&out->text, literal)) {
        r->full = true;
        return;
    }
    if (out->n_pieces && out->pieces[out->n_pieces - 1].end == begin) {
        out->pieces[out->n_pieces - 1].end = out->text.len;
        return;
    }
    if (ARRAY_RESERVE(out->pieces, r->pieces_cap, out->n_pieces + 1, NULL)) {
        r->full = true;
        return;
    }
    out->pieces[out->n_pieces++] = (struct bpe_span){begin, out->text.len};
}

/* Text that came from outside. */
static void emit_data(struct render *r, struct str s)
{
    if (!r->full && buf_append(&r->out->text, s.p, s.n))
        r->full = true;
}

static void emit_json(struct render *r, const struct json_value *v)
{
    if (!r->full && json_dump_python(&r->out->text, v))
        r->full = true;
}

/* ---- values ---- */

/* Python's bool(v), with a missing value (Jinja's undefined) false. */
static bool truthy(const struct json_value *v)
{
    double d;
    if (!v)
        return false;
    switch (v->type) {
    case JSON_NULL:
        return false;
    case JSON_BOOL:
        return v->boolean;
    case JSON_NUMBER:
        return json_double(v, &d) || d != 0; /* beyond double: not zero */
    case JSON_STRING:
    case JSON_ARRAY:
    case JSON_OBJECT:
        return v->len > 0;
    }
    return false;
}

static bool get_string(const struct json_value *v, const char *key,
                       struct str *out)
{
    const struct json_value *m = json_get(v, key);
    if (!json_is(m, JSON_STRING))
        return false;
    *out = (struct str){m->str, m->len};
    return true;
}

static bool role_is(const struct json_value *message, const char *role)
{
    return json_equals(json_get(message, "role"), role);
}

/* ---- the template, from its top to its bottom ---- */

static int render_system(struct render *r, const struct json_value *tools)
{
    const struct json_value *first = &r->messages->items[0];
    struct str content = STR("");
    bool has_system = role_is(first, "system");

    /* The template concatenates: anything but a string fails there too. */
    if (has_system && !get_string(first, "content", &content))
        return err_set(
            r->e, QWICK_ERR_USAGE,
            "chat: messages[0].content: must be a string in a system "
            "message, is %s",
            json_type_name(json_get(first, "content")));
    if (!truthy(tools)) {
        if (has_system) {
            emit_own(r, "<|im_start|>system\n");
            emit_data(r, content);
            emit_own(r, "<|im_end|>\n");
        }
        return 0;
    }
    emit_own(r, "<|im_start|>system\n");
    if (has_system) {
        emit_data(r, content);
        emit_own(r, "\n\n");
    }
    emit_own(r, "# Tools\n\n"
                "You may call one or more functions to assist with the user "
                "query.\n\n"
                "You are provided with function signatures within "
                "<tools></tools> XML tags:\n"
                "<tools>");
    for (size_t i = 0; i < tools->len; i++) {
        emit_own(r, "\n");
        emit_json(r, &tools->items[i]);
    }
    emit_own(r, "\n</tools>\n\n"
                "For each function call, return a json object with function "
                "name and arguments within <tool_call></tool_call> XML tags:\n"
                "<tool_call>\n"
                "{\"name\": <function-name>, \"arguments\": "
                "<args-json-object>}\n"
                "</tool_call><|im_end|>\n");
    return 0;
}

/* Index of the last message in which a user asks something (a user message
 * that is wholly a tool response is none); the last index if there is none.
 * Reasoning is kept only after it. */
static size_t find_last_query(const struct json_value *messages)
{
    for (size_t i = messages->len; i-- > 0;) {
        const struct json_value *m = &messages->items[i];
        struct str content;
        if (role_is(m, "user") && get_string(m, "content", &content) &&
            !(str_starts(content, STR("<tool_response>")) &&
              str_ends(content, STR("</tool_response>"))))
            return i;
    }
    return messages->len - 1;
}

/* {{ v }} of a value that is not a string: Python's str(v). */
static int render_name(struct render *r, size_t i_message, size_t i_call,
                       const struct json_value *v)
{
    if (!v)
        return 0; /* undefined prints nothing */
    switch (v->type) {
    case JSON_STRING:
        emit_data(r, (struct str){v->str, v->len});
        return 0;
    case JSON_NULL:
        emit_data(r, STR("None"));
        return 0;
    case JSON_BOOL:
        emit_data(r, v->boolean ? STR("True") : STR("False"));
        return 0;
    case JSON_NUMBER:
        emit_json(r, v);
        return 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    return err_set(
        r->e, QWICK_ERR_USAGE,
        "chat: messages[%zu].tool_calls[%zu]: name must be a string, "
        "is %s",
        i_message, i_call, json_type_name(v));
}

static int render_tool_calls(struct render *r, size_t i_message,
                             bool has_content)
{
    const struct json_value *calls =
        json_get(&r->messages->items[i_message], "tool_calls");
    if (!truthy(calls))
        return 0;
    if (calls->type != JSON_ARRAY)
        return err_set(
            r->e, QWICK_ERR_USAGE,
            "chat: messages[%zu].tool_calls: must be an array, is %s",
            i_message, json_type_name(calls));
    for (size_t i = 0; i < calls->len; i++) {
        const struct json_value *call = &calls->items[i];
        if (truthy(json_get(call, "function")))
            call = json_get(call, "function");
        const struct json_value *arguments = json_get(call, "arguments");
        if (call->type != JSON_OBJECT)
            return err_set(r->e, QWICK_ERR_USAGE,
                           "chat: messages[%zu].tool_calls[%zu]: must be an "
                           "object, is %s",
                           i_message, i, json_type_name(call));
        if (!arguments)
            return err_set(
                r->e, QWICK_ERR_USAGE,
                "chat: messages[%zu].tool_calls[%zu]: arguments must "
                "be a JSON value or a string, is missing",
                i_message, i);

        if (i > 0 || has_content)
            emit_own(r, "\n");
        emit_own(r, "<tool_call>\n{\"name\": \"");
        if (render_name(r, i_message, i, json_get(call, "name")))
            return -1;
        emit_own(r, "\", \"arguments\": ");
        if (arguments->type == JSON_STRING)
            emit_data(r, (struct str){arguments->str, arguments->len});
        else
            emit_json(r, arguments);
        emit_own(r, "}\n</tool_call>");
    }
    return 0;
}

static int render_assistant(struct render *r, size_t i, struct str content,
                            size_t last_query)
{
    const struct json_value *m = &r->messages->items[i];
    const struct str end_think = STR("</think>");
    struct str reasoning = STR("");

    if (!get_string(m, "reasoning_content", &reasoning) &&
        memmem(content.p, content.n, end_think.p, end_think.n)) {
        reasoning = str_rstrip(str_before_first(content, end_think));
        reasoning = str_lstrip(str_after_last(reasoning, STR("<think>")));
        content = str_lstrip(str_after_last(content, end_think));
    }
    emit_own(r, "<|im_start|>assistant\n");
    if (i > last_query && (i == r->messages->len - 1 || reasoning.n)) {
        emit_own(r, "<think>\n");
        emit_data(r, str_rstrip(str_lstrip(reasoning)));
        emit_own(r, "\n</think>\n\n");
        emit_data(r, str_lstrip(content));
    } else {
        emit_data(r, content);
    }
    /* The newline before the first call depends on the content before
     * its own newlines were removed. */
    if (render_tool_calls(r, i, content.n > 0))
        return -1;
    emit_own(r, "<|im_end|>\n");
    return 0;
}

/* Consecutive tool results share one user turn. */
static void render_tool(struct render *r, size_t i, struct str content)
{
    const struct json_value *m = r->messages->items;
    if (i == 0 || !role_is(&m[i - 1], "tool"))
        emit_own(r, "<|im_start|>user");
    emit_own(r, "\n<tool_response>\n");
    emit_data(r, content);
    emit_own(r, "\n</tool_response>");
    if (i == r->messages->len - 1 || !role_is(&m[i + 1], "tool"))
        emit_own(r, "<|im_end|>\n");
}

static int render_message(struct render *r, size_t i, size_t last_query)
{
    const struct json_value *m = &r->messages->items[i];
    struct str content;
    if (!get_string(m, "content", &content))
        content = STR("");

    if (role_is(m, "assistant"))
        return render_assistant(r, i, content, last_query);
    if (role_is(m, "tool")) {
        render_tool(r, i, content);
    } else if (role_is(m, "user") || (role_is(m, "system") && i > 0)) {
        emit_own(r, role_is(m, "user") ? "<|im_start|>user\n"
                                       : "<|im_start|>system\n");
        emit_data(r, content);
        emit_own(r, "<|im_end|>\n");
    }
    return 0;
}

/* Whether the last own <think> has no own </think> after it. */
static bool ends_in_think(const struct chat_prompt *p)
{
    const struct str open = STR("<think>"), close = STR("</think>");
    bool in_think = false;
    for (size_t i = 0; i < p->n_pieces; i++) {
        struct str s = {p->text.data + p->pieces[i].begin,
                        p->pieces[i].end - p->pieces[i].begin};
        for (; s.n; s.p++, s.n--) {
            if (str_starts(s, open))
                in_think = true;
            else if (str_starts(s, close))
                in_think = false;
        }
    }
    return in_think;
}

int chat_render(struct chat_prompt *out, const struct chat_source *in,
                struct qwick_err *e)
{
    const struct json_value *messages = &in->messages;
    struct render r = {.out = out, .messages = messages, .e = e};
    *out = (struct chat_prompt){0};

    if (render_system(&r, in->tools))
        return -1;
    size_t last_query = find_last_query(messages);
    for (size_t i = 0; i < messages->len; i++)
        if (render_message(&r, i, last_query))
            return -1;
    if (in->add_generation_prompt) {
        emit_own(&r, "<|im_start|>assistant\n");
        if (in->enable_thinking == CHAT_FALSE)
            emit_own(&r, "<think>\n\n</think>\n\n");
    }
    if (r.full)
        return err_oom(e, out->text.len);
    out->in_think = ends_in_think(out);
    return 0;
}

int chat_prompt_cut(struct chat_prompt *p, const char *s)
{
    const char *found =
        p->text.len ? memmem(p->text.data, p->text.len, s, strlen(s)) : NULL;
    size_t cut, n = 0;
    if (!found)
        return -1;
    cut = (size_t)(found - p->text.data) + strlen(s);
    p->text.len -= cut;
    memmove(p->text.data, p->text.data + cut, p->text.len + 1);
    for (size_t i = 0; i < p->n_pieces; i++) {
        struct bpe_span at = p->pieces[i];
        if (at.end > cut)
            p->pieces[n++] = (struct bpe_span){
                at.begin > cut ? at.begin - cut : 0, at.end - cut};
    }
    p->n_pieces = n;
    return 0;
}

void chat_prompt_free(struct chat_prompt *p)
{
    if (!p)
        return;
    buf_free(&p->text);
    free(p->pieces);
    *p = (struct chat_prompt){0};
}
