#include "text/chat/tool_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/key.h"
#include "text/chat/tool_value.h"

/* Length of a tag, which is a literal. */
#define LEN(tag) (sizeof(tag) - 1)

struct span {
    const char *p;
    size_t n;
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static struct span after(struct span s, size_t n)
{
    return (struct span){s.p + n, s.n - n};
}

static struct span trim_left(struct span s)
{
    while (s.n && is_space(s.p[0]))
        s = after(s, 1);
    return s;
}

static bool begins(struct span s, const char *tag, size_t n)
{
    return s.n >= n && memcmp(s.p, tag, n) == 0;
}

#define BEGINS(s, tag) begins(s, tag, LEN(tag))

/* ---- definitions ---- */

const struct json_value *tool_find(const struct json_value *tools,
                                   const char *name, size_t n)
{
    for (size_t i = 0; json_is(tools, JSON_ARRAY) && i < tools->len; i++) {
        const struct json_value *t = &tools->items[i];
        if (json_is(json_get(t, "function"), JSON_OBJECT))
            t = json_get(t, "function");
        const struct json_value *own = json_get(t, "name");
        if (json_is(own, JSON_STRING) && own->len == n &&
            memcmp(own->str, name, n) == 0)
            return t;
    }
    return NULL;
}

/* ---- one call ---- */

/* A call that is being read. Functions that read it return 0, 1 with why set if
 * the call is bad, or -1 when out of memory. */
struct reading {
    const struct json_value *tools;
    const struct json_value *tool; /* of the call, when its name is known */
    struct tool_call call;
    struct buf why;
};

static int call_refuse(struct reading *r, const char *text, struct span s)
{
    const int most = 60;
    int n = s.n < (size_t)most ? (int)s.n : most;
    return buf_printf(&r->why, text, n, s.p) ? -1 : 1;
}

static int take_name(struct reading *r, struct span name)
{
    r->tool = tool_find(r->tools, name.p, name.n);
    if (!r->tool)
        return call_refuse(r, "there is no tool \"%.*s\"", name);
    r->call.name = strndup(name.p, name.n);
    return r->call.name ? 0 : -1;
}

static int read_json(struct reading *r, struct span s)
{
    struct json_doc *doc;
    struct qwick_err e;
    if (json_parse(&doc, "JSON", s.p, s.n, QWICK_ERR_USAGE, &e)) {
        if (e.code == QWICK_ERR_MEMORY)
            return -1;
        return buf_puts(&r->why, e.msg) ? -1 : 1;
    }
    const struct json_value *v = json_root(doc);
    const struct json_value *name = json_get(v, "name");
    const struct json_value *arguments = json_get(v, "arguments");
    int rc;
    if (!json_is(name, JSON_STRING))
        rc = call_refuse(r, "it has no name%.*s", (struct span){"", 0});
    else if ((rc = take_name(r, (struct span){name->str, name->len})) != 0)
        ;
    else if (!json_is(arguments, JSON_OBJECT))
        rc = call_refuse(r, "its arguments are no object%.*s",
                         (struct span){"", 0});
    else
        rc = json_dump_python(&r->call.arguments, arguments);
    json_free(doc);
    return rc;
}

/* Split "KEY>rest" of a tag. Returns false if there is no ">". */
static bool split_tag(struct span s, struct span *key, struct span *rest)
{
    const char *end = memchr(s.p, '>', s.n);
    if (!end)
        return false;
    *key = (struct span){s.p, (size_t)(end - s.p)};
    *rest = after(s, key->n + 1);
    return true;
}

/* Split "VALUE</parameter>rest", where the rest is another parameter or the end
 * of the function: a value may hold a closing tag of its own. One newline at
 * each end of the value belongs to the tags. */
static bool split_value(struct span s, struct span *value, struct span *rest)
{
    struct span at = s;
    for (;;) {
        const char *end =
            memmem(at.p, at.n, TOOL_CLOSE_PARAMETER, LEN(TOOL_CLOSE_PARAMETER));
        if (!end)
            return false;
        at = after(at, (size_t)(end - at.p) + LEN(TOOL_CLOSE_PARAMETER));
        *rest = trim_left(at);
        if (!BEGINS(*rest, TOOL_OPEN_PARAMETER) &&
            !BEGINS(*rest, TOOL_CLOSE_FUNCTION))
            continue;
        *value = (struct span){s.p, (size_t)(end - s.p)};
        if (value->n && value->p[0] == '\n')
            *value = after(*value, 1);
        if (value->n && value->p[value->n - 1] == '\n')
            value->n--;
        return true;
    }
}

/* Whether the arguments so far have this key. */
static bool has_key(const struct span *keys, size_t n, struct span key)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i].n == key.n && memcmp(keys[i].p, key.p, key.n) == 0)
            return true;
    return false;
}

static int put_argument(struct reading *r, bool first, struct span key,
                        struct span value)
{
    struct buf *out = &r->call.arguments;
    const struct json_value *schema = json_get(r->tool, "parameters");
    const struct json_value *properties = json_get(schema, "properties");
    const char *wanted;
    if ((!first && buf_puts(out, ", ")) || buf_json_string(out, key.p, key.n) ||
        buf_puts(out, ": "))
        return -1;
    unsigned types =
        tool_value_types(schema, json_get_n(properties, key.p, key.n));
    int rc = tool_value_json(out, types, value.p, value.n, &wanted);
    if (rc <= 0)
        return rc;
    return call_refuse(r, "parameter \"%.*s\"", key) < 0 ||
                   buf_printf(&r->why, ": must be %s", wanted)
               ? -1
               : 1;
}

static int read_parameters(struct reading *r, struct span s)
{
    struct span keys[TOOL_MAX_PARAMETERS], key, value, rest;
    size_t n = 0;
    int rc;
    for (s = trim_left(s); BEGINS(s, TOOL_OPEN_PARAMETER); s = rest) {
        if (!split_tag(after(s, LEN(TOOL_OPEN_PARAMETER)), &key, &rest) ||
            !split_value(rest, &value, &rest))
            return call_refuse(r, "a parameter has no end: %.*s", s);
        if (has_key(keys, n, key))
            return call_refuse(r, "parameter \"%.*s\" occurs twice", key);
        if (n == TOOL_MAX_PARAMETERS)
            return call_refuse(r, "it has too many parameters%.*s",
                               (struct span){"", 0});
        if ((rc = put_argument(r, n == 0, key, value)) != 0)
            return rc;
        keys[n++] = key;
    }
    if (!BEGINS(s, TOOL_CLOSE_FUNCTION))
        return call_refuse(r, "a parameter is expected, not: %.*s", s);
    s = trim_left(after(s, LEN(TOOL_CLOSE_FUNCTION)));
    return s.n ? call_refuse(r, "text follows the function: %.*s", s) : 0;
}

static int read_xml(struct reading *r, struct span s)
{
    struct span name;
    int rc;
    s = trim_left(s);
    if (!BEGINS(s, TOOL_OPEN_FUNCTION) ||
        !split_tag(after(s, LEN(TOOL_OPEN_FUNCTION)), &name, &s))
        return call_refuse(r, "<function=NAME> is expected, not: %.*s", s);
    if ((rc = take_name(r, name)) != 0)
        return rc;
    if (buf_putc(&r->call.arguments, '{') || (rc = read_parameters(r, s)) < 0)
        return -1;
    return rc ? rc : buf_putc(&r->call.arguments, '}');
}

/* ---- the text around the calls ---- */

/* Move what is held to the text. */
static int text_release(struct tool_calls *c)
{
    struct span s = {c->held.data, c->held.len};
    if (c->after_call) {
        s = trim_left(s);
        if (s.n && c->text.len && buf_putc(&c->text, '\n'))
            return -1;
        if (s.n)
            c->after_call = false;
    }
    if (s.n && buf_append(&c->text, s.p, s.n))
        return -1;
    c->held.len = 0;
    c->matched = c->body = 0;
    return 0;
}

static int note_error(struct tool_calls *c, const char *why)
{
    size_t i = c->n + c->n_bad++;
    return c->error.len
               ? 0
               : buf_printf(&c->error, "tool call %zu: %s", i + 1, why);
}

static int add_call(struct tool_calls *c, struct tool_call *call)
{
    if (ARRAY_RESERVE(c->v, c->cap, c->n + 1, NULL))
        return -1;
    c->v[c->n++] = *call;
    *call = (struct tool_call){0};
    c->held.len = c->matched = c->body = 0;
    c->after_call = true;
    return 0;
}

/* The call that is held has ended. */
static int end_call(struct tool_calls *c)
{
    struct span s = {c->held.data + c->body,
                     c->held.len - c->body - LEN(TOOL_CLOSE_CALL)};
    struct reading r = {.tools = c->tools};
    int rc = c->form == CALL_JSON ? read_json(&r, s) : read_xml(&r, s);
    if (rc == 0)
        rc = add_call(c, &r.call);
    else if (rc > 0)
        rc = note_error(c, r.why.data) || text_release(c) ? -1 : 0;
    free(r.call.name);
    buf_free(&r.call.arguments);
    buf_free(&r.why);
    return rc;
}

/* Whether a closing tag at the end of held ends the call. */
static bool may_end(const struct tool_calls *c)
{
    size_t n = c->held.len - LEN(TOOL_CLOSE_CALL);
    if (c->form != CALL_XML)
        return true;
    while (n > c->body && is_space(c->held.data[n - 1]))
        n--;
    return n - c->body >= LEN(TOOL_CLOSE_FUNCTION) &&
           memcmp(c->held.data + n - LEN(TOOL_CLOSE_FUNCTION),
                  TOOL_CLOSE_FUNCTION, LEN(TOOL_CLOSE_FUNCTION)) == 0;
}

/* Follow the strings of JSON. Returns whether byte b is in one. */
static bool follow_string(struct tool_calls *c, char b)
{
    bool inside = c->in_string;
    if (c->escaped)
        c->escaped = false;
    else if (inside && b == '\\')
        c->escaped = true;
    else if (b == '"')
        c->in_string = !inside;
    return inside;
}

/* Count how much of a tag the bytes up to b match. "<" is only at the start of
 * a tag. */
static bool tag_match(struct tool_calls *c, const char *tag, char b)
{
    c->matched = b == tag[c->matched] ? c->matched + 1 : b == '<';
    return !tag[c->matched];
}

static int feed_call(struct tool_calls *c, char b)
{
    if (buf_putc(&c->held, b))
        return -1;
    if (c->form == CALL_UNKNOWN && !is_space(b))
        c->form = b == '{' ? CALL_JSON : b == '<' ? CALL_XML : CALL_OTHER;
    if (c->form == CALL_JSON && follow_string(c, b)) {
        c->matched = 0;
        return 0;
    }
    if (!tag_match(c, TOOL_CLOSE_CALL, b))
        return 0;
    c->matched = 0;
    return may_end(c) ? end_call(c) : 0;
}

static void begin_call(struct tool_calls *c)
{
    c->body = c->held.len;
    c->matched = 0;
    c->form = CALL_UNKNOWN;
    c->in_string = c->escaped = false;
}

/* Text is held as long as it may be the white space before a call or the
 * beginning of its tag. */
static int feed_text(struct tool_calls *c, char b)
{
    if (c->matched && b != TOOL_OPEN_CALL[c->matched] && text_release(c))
        return -1;
    if (buf_putc(&c->held, b))
        return -1;
    if (c->matched || b == '<') {
        if (++c->matched == LEN(TOOL_OPEN_CALL))
            begin_call(c);
        return 0;
    }
    return is_space(b) ? 0 : text_release(c);
}

int tool_calls_feed(struct tool_calls *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c->body ? feed_call(c, s[i]) : feed_text(c, s[i]))
            return -1;
    return 0;
}

int tool_calls_end(struct tool_calls *c)
{
    if (c->body && note_error(c, "it is cut"))
        return -1;
    return text_release(c);
}

void tool_calls_write(struct json_writer *w, const char *key,
                      const struct tool_calls *c, size_t i)
{
    struct key k = key_start("tool call");
    char id[32];
    key_add_u64(&k, c->id);
    key_add_u64(&k, i);
    int n = snprintf(id, sizeof(id), "call_%016llx",
                     (unsigned long long)key_u64(&k));
    jw_object(w, key);
    jw_string(w, "id", id, (size_t)n);
    jw_cstr(w, "type", "function");
    jw_object(w, "function");
    jw_cstr(w, "name", c->v[i].name);
    jw_string(w, "arguments", c->v[i].arguments.data, c->v[i].arguments.len);
    jw_end_object(w);
    jw_end_object(w);
}

void tool_calls_free(struct tool_calls *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->v[i].name);
        buf_free(&c->v[i].arguments);
    }
    free(c->v);
    buf_free(&c->text);
    buf_free(&c->error);
    buf_free(&c->held);
    *c = (struct tool_calls){0};
}
