#include "text/chat/tool_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/key.h"
#include "text/chat/bare_value.h"
#include "text/chat/call_parts.h"
#include "text/chat/calls_begun.h"
#include "text/chat/tool_value.h"

static size_t length(const char *part)
{
    return part ? strlen(part) : 0;
}

/* ---- definitions ---- */

const struct json_value *tool_definition(const struct json_value *tool)
{
    const struct json_value *f = json_get(tool, "function");
    return json_is(f, JSON_OBJECT) ? f : tool;
}

const struct json_value *tool_find(const struct json_value *tools,
                                   const char *name, size_t n)
{
    for (size_t i = 0; json_is(tools, JSON_ARRAY) && i < tools->len; i++) {
        const struct json_value *t = tool_definition(&tools->items[i]);
        const struct json_value *own = json_get(t, "name");
        if (json_is(own, JSON_STRING) && own->len == n &&
            memcmp(own->str, name, n) == 0)
            return t;
    }
    return NULL;
}

/* ---- a block of calls ---- */

/* Calls that are being read. Functions that read them return 0, 1 with why set
 * if a call is bad, or -1 when out of memory. */
struct reading {
    struct tool_calls *c; /* gets the calls behind its own ones */
    const struct call_form *form;
    const struct json_value *tool; /* of the last call */
    struct tool_call *call;        /* the last call */
    size_t n;                      /* calls so far */
    bool no_call; /* the text is no call at all, although it begins as one */
    struct buf why;
};

static int call_refuse(struct reading *r, const char *text, struct span s)
{
    const int most = 60;
    int n = s.n < (size_t)most ? (int)s.n : most;
    return buf_printf(&r->why, text, n, s.p) ? -1 : 1;
}

static int call_refuse_all(struct reading *r, const char *text)
{
    return buf_puts(&r->why, text) ? -1 : 1;
}

/* Begin the next call. */
static int begin_named(struct reading *r, struct span name)
{
    struct tool_calls *c = r->c;
    r->tool = tool_find(c->tools, name.p, name.n);
    if (!r->tool)
        return call_refuse(r, "there is no tool \"%.*s\"", name);
    if (ARRAY_RESERVE(c->v, c->cap, c->n + r->n + 1, NULL))
        return -1;
    r->call = &c->v[c->n + r->n++];
    *r->call = (struct tool_call){.name = strndup(name.p, name.n)};
    return r->call->name ? 0 : -1;
}

static int read_object(struct reading *r, const struct json_value *v)
{
    const struct json_value *name = json_get(v, "name");
    const struct json_value *arguments = json_get(v, "arguments");
    int rc;
    if (!arguments)
        arguments = json_get(v, "parameters");
    if (!json_is(name, JSON_STRING)) {
        r->no_call = !r->form->open;
        return call_refuse_all(r, "it has no name");
    }
    if ((rc = begin_named(r, (struct span){name->str, name->len})) != 0)
        return rc;
    return json_is(arguments, JSON_OBJECT)
               ? json_dump_python(&r->call->arguments, arguments)
               : call_refuse_all(r, "its arguments are no object");
}

/* Parse JSON. *doc is NULL unless 0 is returned. */
static int parse_json(struct reading *r, struct span s, struct json_doc **doc)
{
    struct qwick_err e;
    *doc = NULL;
    if (!json_parse(doc, "JSON", s.p, s.n, QWICK_ERR_USAGE, &e))
        return 0;
    return e.code == QWICK_ERR_MEMORY ? -1 : call_refuse_all(r, e.msg);
}

static int read_objects(struct reading *r, struct span s)
{
    struct json_doc *doc;
    int rc = parse_json(r, s, &doc);
    if (rc)
        return rc;
    const struct json_value *v = json_root(doc);
    if (!json_is(v, JSON_ARRAY))
        rc = read_object(r, v);
    else if (!v->len)
        rc = call_refuse_all(r, "the list has no call");
    else
        for (size_t i = 0; i < v->len && !rc; i++)
            rc = read_object(r, &v->items[i]);
    json_free(doc);
    return rc;
}

/* Split "KEY" and the tag behind it off. Returns false if there is no tag. */
static bool split_key(const struct call_form *f, struct span s,
                      struct span *key, struct span *rest)
{
    const char *end = memchr(s.p, f->key_close[0], s.n);
    if (!end)
        return false;
    *key = (struct span){s.p, (size_t)(end - s.p)};
    *rest = span_after(s, key->n);
    return call_skip_part(rest, f->key_close);
}

/* One newline at each end of the value belongs to tags that are on lines of
 * their own. */
static struct span trim_value(const struct call_form *f, struct span value)
{
    if (f->lines && value.n && value.p[0] == '\n')
        value = span_after(value, 1);
    if (f->lines && value.n && value.p[value.n - 1] == '\n')
        value.n--;
    return value;
}

/* Split "VALUE</parameter>rest", where the rest is another parameter or the end
 * of the call: a value may hold a closing tag of its own. */
static bool split_value(const struct call_form *f, struct span s,
                        struct span *value, struct span *rest)
{
    size_t n = strlen(f->key_end);
    struct span at = s, behind;
    for (;;) {
        const char *end = memmem(at.p, at.n, f->key_end, n);
        if (!end)
            return false;
        at = span_after(at, (size_t)(end - at.p) + n);
        *rest = behind = span_trim_left(at);
        if (!span_begins(*rest, f->key_open) &&
            !call_skip_part(&behind, f->post))
            continue;
        *value = trim_value(f, (struct span){s.p, (size_t)(end - s.p)});
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
    struct buf *out = &r->call->arguments;
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

static int read_parameters(struct reading *r, struct span *at)
{
    const struct call_form *f = r->form;
    struct span keys[TOOL_MAX_PARAMETERS], key, value, rest, s = *at;
    size_t n = 0;
    int rc;
    if (buf_putc(&r->call->arguments, '{'))
        return -1;
    for (s = span_trim_left(s); span_begins(s, f->key_open); s = rest) {
        if (!split_key(f, span_after(s, strlen(f->key_open)), &key, &rest) ||
            !split_value(f, rest, &value, &rest))
            return call_refuse(r, "a parameter has no end: %.*s", s);
        if (has_key(keys, n, key))
            return call_refuse(r, "parameter \"%.*s\" occurs twice", key);
        if (n == TOOL_MAX_PARAMETERS)
            return call_refuse_all(r, "it has too many parameters");
        if ((rc = put_argument(r, n == 0, key, value)) != 0)
            return rc;
        keys[n++] = key;
    }
    *at = s;
    return buf_putc(&r->call->arguments, '}');
}

/* Follow the strings of JSON. Returns whether byte b is in one. */
static bool follow_string(bool *in_string, bool *escaped, char b)
{
    bool inside = *in_string;
    if (*escaped)
        *escaped = false;
    else if (inside && b == '\\')
        *escaped = true;
    else if (b == '"')
        *in_string = !inside;
    return inside;
}

/* Read the object at the start of *s as JSON. */
static int read_json_object(struct reading *r, struct span s)
{
    struct json_doc *doc;
    int rc = parse_json(r, s, &doc);
    if (rc)
        return rc;
    rc = json_is(json_root(doc), JSON_OBJECT)
             ? json_dump_python(&r->call->arguments, json_root(doc))
             : call_refuse_all(r, "its arguments are no object");
    json_free(doc);
    return rc;
}

static int read_bare(struct reading *r, struct span *s)
{
    struct buf json = {0};
    size_t used = 0;
    int rc = bare_value_to_json(&json, r->form->quote, s->p, s->n, &used);
    if (!rc)
        rc = read_json_object(r, (struct span){buf_text(&json), json.len});
    *s = span_after(*s, used);
    buf_free(&json);
    return rc;
}

/* The length of the object at the start of s; s.n: it has no end. */
static size_t object_length(struct span s)
{
    bool in_string = false, escaped = false;
    size_t depth = 0, i = 0;
    for (; i < s.n; i++) {
        if (follow_string(&in_string, &escaped, s.p[i]))
            continue;
        depth += s.p[i] == '{';
        if (s.p[i] == '}' && --depth == 0)
            return i + 1;
        if (!depth)
            break;
    }
    return s.n;
}

static int read_arguments(struct reading *r, struct span *s)
{
    if (r->form->kind == CALL_PARAMETERS)
        return read_parameters(r, s);
    *s = span_trim_left(*s);
    if (r->form->kind == CALL_BARE)
        return read_bare(r, s);
    size_t n = object_length(*s);
    int rc = read_json_object(r, (struct span){s->p, n});
    *s = span_after(*s, n);
    return rc;
}

static int expect(struct reading *r, struct span *s, const char *part)
{
    if (call_skip_part(s, part))
        return 0;
    part += strspn(part, "\n");
    return buf_printf(&r->why,
                      "\"%.*s\" is expected, not: ", (int)strcspn(part, "\n"),
                      part)
               ? -1
               : call_refuse(r, "%.*s", span_trim_left(*s));
}

/* Read calls with plain names: the whole block with its tags. */
static int read_named(struct reading *r, struct span s)
{
    const struct call_form *f = r->form;
    struct span next;
    int rc = expect(r, &s, f->begin);
    do {
        if (!rc && !(rc = expect(r, &s, f->pre)) &&
            !(rc = begin_named(r, call_split_name(f, &s)))) {
            call_skip_id(f, &s);
            rc = expect(r, &s, f->mid);
        }
        if (!rc && !(rc = read_arguments(r, &s)))
            rc = expect(r, &s, f->post);
        next = s;
    } while (!rc && call_skip_part(&next, f->pre));
    if (rc || (rc = expect(r, &s, f->end)) != 0)
        return rc;
    s = span_trim_left(s);
    return s.n ? call_refuse(r, "text follows the call: %.*s", s) : 0;
}

/* ---- the text around the calls ---- */

/* Move what is held to the text. */
static int text_release(struct tool_calls *c)
{
    struct span s = {c->held.data, c->held.len};
    if (c->after_call) {
        s = span_trim_left(s);
        if (s.n && c->text.len && buf_putc(&c->text, '\n'))
            return -1;
        if (s.n)
            c->after_call = false;
    }
    if (s.n && buf_append(&c->text, s.p, s.n))
        return -1;
    c->held.len = 0;
    c->matched = 0;
    c->in_call = false;
    return 0;
}

static int note_error(struct tool_calls *c, const char *why)
{
    size_t i = c->n + c->n_bad++;
    return c->error.len
               ? 0
               : buf_printf(&c->error, "tool call %zu: %s", i + 1, why);
}

/* ---- the end of a block ---- */

/* Keep the calls that were read. */
static void keep_calls(struct tool_calls *c, size_t n)
{
    calls_begun_drop(c);
    while (n--)
        c->v[c->n++].at = c->text.len;
    c->held.len = c->matched = 0;
    c->in_call = false;
    c->after_call = true;
}

/* The block that is held has ended. */
static int end_block(struct tool_calls *c)
{
    const struct call_form *f = c->own ? c->own : c->form;
    size_t open = length(f->open), close = length(f->close);
    struct span whole = {c->held.data + c->body - open,
                         c->held.len - c->body + open};
    struct span body = {whole.p + open, whole.n - open - close};
    struct reading r = {.c = c, .form = f};
    int rc =
        f->kind == CALL_OBJECT ? read_objects(&r, body) : read_named(&r, whole);
    if (rc == 0 && calls_begun_go_on(c, r.n)) {
        keep_calls(c, r.n);
    } else {
        tool_call_free(c->v + c->n, r.n);
        if (rc >= 0 && c->begun.n) { /* it cannot become text */
            c->cut = c->broken = true;
            rc = 0;
        }
        if (rc > 0)
            rc = (!r.no_call && note_error(c, r.why.data)) || text_release(c)
                     ? -1
                     : 0;
    }
    buf_free(&r.why);
    return rc;
}

/* Whether a closing tag at the end of held ends the block: it must not be
 * inside a parameter or a string. */
static bool may_end(const struct tool_calls *c)
{
    const struct call_form *f = c->own;
    if (f->kind == CALL_BARE)
        return !bare_value_in_string(f->quote, c->held.data + c->body,
                                     c->held.len - c->body);
    if (f->kind != CALL_PARAMETERS)
        return true;
    size_t n = c->held.len - strlen(f->close), n_last = strlen(f->last);
    while (n > c->body && span_is_space(c->held.data[n - 1]))
        n--;
    if (n - c->body >= n_last &&
        memcmp(c->held.data + n - n_last, f->last, n_last) == 0)
        return true;
    /* a call without parameters */
    return strncmp(f->post, f->last, n_last) != 0 &&
           !memmem(c->held.data + c->body, n - c->body, f->key_open,
                   strlen(f->key_open));
}

/* Count how much of a tag the bytes up to b match. Its first byte is only at
 * its start. */
static bool tag_match(struct tool_calls *c, const char *tag, char b)
{
    c->matched = b == tag[c->matched] ? c->matched + 1 : b == tag[0];
    return !tag[c->matched];
}

static int feed_call(struct tool_calls *c, char b)
{
    if (buf_putc(&c->held, b))
        return -1;
    if (!c->own && !span_is_space(b))
        c->own = call_form_of_byte(c->form, b);
    if (c->certain && c->own && calls_begun_feed(c, c->own, b))
        return -1;
    if (!c->form->close)
        return 0; /* it goes on to the end of the answer */
    if (c->own && c->own->kind != CALL_PARAMETERS &&
        c->own->kind != CALL_BARE &&
        follow_string(&c->in_string, &c->escaped, b)) {
        c->matched = 0;
        return 0;
    }
    if (!tag_match(c, c->form->close, b))
        return 0;
    c->matched = 0;
    return may_end(c) ? end_block(c) : 0;
}

static void begin_call(struct tool_calls *c, size_t body)
{
    c->in_call = true;
    c->body = body;
    c->matched = 0;
    c->own = NULL;
    c->in_string = c->escaped = false;
}

/* Compare the start of an answer with a text, without regard to white space.
 * Returns 1 if it begins with it, 0 if it may still do so, else -1. */
static int compare_start(struct span s, const char *text)
{
    for (; *text; text++) {
        s = span_trim_left(s);
        if (!s.n)
            return 0;
        if (s.p[0] != *text)
            return -1;
        s = span_after(s, 1);
    }
    return 1;
}

/* The answer may be a call as a whole, if it begins like one. */
static int feed_start(struct tool_calls *c, char b)
{
    if (buf_putc(&c->held, b))
        return -1;
    const struct span s = {c->held.data, c->held.len};
    int name = compare_start(s, "{\"name\":");
    int type = compare_start(s, "{\"type\":\"function\",");
    if (name > 0 || type > 0)
        begin_call(c, 0);
    c->decided = name && type;
    return c->decided && !c->in_call ? text_release(c) : 0;
}

/* Text is held as long as it may be the white space before a call or the
 * beginning of its tag. */
static int feed_text(struct tool_calls *c, char b)
{
    const char *open = c->form ? c->form->open : NULL;
    if (c->form && !open && !c->decided)
        return feed_start(c, b);
    if (c->matched && b != open[c->matched] && text_release(c))
        return -1;
    if (buf_putc(&c->held, b))
        return -1;
    if (open && (c->matched || b == open[0])) {
        if (++c->matched == strlen(open))
            begin_call(c, c->held.len);
        return 0;
    }
    return open && span_is_space(b) ? 0 : text_release(c);
}

int tool_calls_feed(struct tool_calls *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n && !c->broken; i++)
        if (c->in_call ? feed_call(c, s[i]) : feed_text(c, s[i]))
            return -1;
    return 0;
}

int tool_calls_end(struct tool_calls *c)
{
    if (c->broken)
        return 0;
    if (c->in_call && !c->form->close)
        return end_block(c);
    c->cut = c->in_call;
    if (c->in_call && note_error(c, "it is cut"))
        return -1;
    return text_release(c);
}

int tool_calls_end_without_cut(struct tool_calls *c, bool is_cut)
{
    const struct call_form *f = c->form;
    if (c->broken)
        return 0;
    bool begins_call =
        c->matched || (f && !f->open && !c->decided && c->held.len);
    c->cut = c->in_call ? f->close || is_cut : is_cut && begins_call;
    return c->cut ? 0 : tool_calls_end(c);
}

void tool_calls_keep(struct tool_calls *c, size_t n)
{
    if (c->n <= n)
        return;
    tool_call_free(c->v + n, c->n - n);
    c->n = n;
}

const char *tool_calls_id(const struct tool_calls *c, size_t i,
                          char out[TOOL_CALL_ID])
{
    struct key k = key_start("tool call");
    key_add_u64(&k, c->id);
    key_add_u64(&k, i);
    unsigned long long digits = key_u64(&k);
    if (c->form && c->form->short_ids)
        snprintf(out, TOOL_CALL_ID, "%09llx", digits >> 28);
    else
        snprintf(out, TOOL_CALL_ID, "%s_%016llx",
                 c->id_prefix ? c->id_prefix : "call", digits);
    return out;
}

void tool_calls_write_id(struct json_writer *w, const struct tool_calls *c,
                         size_t i)
{
    char id[TOOL_CALL_ID];
    jw_cstr(w, "id", tool_calls_id(c, i, id));
}

void tool_calls_write(struct json_writer *w, const char *key,
                      const struct tool_calls *c, size_t i)
{
    jw_object(w, key);
    tool_calls_write_id(w, c, i);
    jw_cstr(w, "type", "function");
    jw_object(w, "function");
    jw_cstr(w, "name", c->v[i].name);
    jw_string(w, "arguments", c->v[i].arguments.data, c->v[i].arguments.len);
    jw_end_object(w);
    jw_end_object(w);
}

void tool_calls_free(struct tool_calls *c)
{
    tool_call_free(c->v, c->n);
    free(c->v);
    buf_free(&c->text);
    buf_free(&c->error);
    buf_free(&c->held);
    calls_begun_drop(c);
    free(c->begun.v);
    *c = (struct tool_calls){0};
}
