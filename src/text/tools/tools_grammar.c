#include "text/tools/tools_grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/chat/call_forms.h"
#include "text/chat/tool_calls.h"
#include "text/grammar/dfa.h"
#include "text/grammar/grammar_int.h"
#include "text/schema/schema.h"
#include "text/grammar/dfa_text.h"
#include "text/tools/tools_text.h"

/* Steps of all schemas. Those of calls that the model may leave out are compiled
 * twice. */
enum { MAX_TOOLS_WORK = 2 * SCHEMA_MAX_WORK };

/* ---- definitions ---- */

struct tool {
    const char *name; /* [n_name] without NUL; NULL: it cannot be called */
    size_t n_name;
    const struct json_value *parameters; /* NULL: no arguments */
    const struct json_value *strict;     /* a boolean, or NULL */
};

/* What the functions below share. */
struct calls {
    struct grammar *g;
    const struct tools_options *o;
    struct tool *tools;
    uint32_t *args; /* [n] nodes of the arguments of each tool */
    size_t n;
    size_t work; /* steps that all schemas may take together */
};

static bool is_strict(const struct tool *t)
{
    return t->strict && t->strict->boolean;
}

/* Whether a call that cannot be checked is no reason to fail. */
static bool may_go_on(const struct calls *c, const struct tool *t)
{
    return c->o->optional && !is_strict(t);
}

static void warn(const struct calls *c, const char *text)
{
    if (c->o->warn)
        c->o->warn(c->o->warn_ctx, text);
}

/* A tool cannot be called: leave it out, or fail. */
static void tool_refuse(struct calls *c, struct tool *t, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void tool_refuse(struct calls *c, struct tool *t, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (may_go_on(c, t))
        warn(c, msg);
    else
        grammar_fail(c->g, "%s", msg);
    t->name = NULL;
}

bool tool_is_lenient(const struct json_value *definition)
{
    const struct json_value *strict = json_get(definition, "strict");
    return json_is(strict, JSON_BOOL) && !strict->boolean;
}

static bool same_name(const struct tool *a, const struct tool *b)
{
    return a->name && b->name && a->n_name == b->n_name &&
           memcmp(a->name, b->name, a->n_name) == 0;
}

/* Read definition i. */
static void read_tool(struct calls *c, const struct json_value *list, size_t i)
{
    const struct json_value *v = tool_definition(&list->items[i]);
    struct tool *t = &c->tools[i];
    char ends[3];
    const struct json_value *name = json_get(v, "name");
    *t = (struct tool){.parameters = json_get(v, "parameters"),
                       .strict = json_get(v, "strict")};
    if (json_is(t->parameters, JSON_NULL))
        t->parameters = NULL;
    if (!json_is(t->strict, JSON_BOOL))
        t->strict = NULL;
    if (!json_is(name, JSON_STRING) || !name->len ||
        strlen(name->str) != name->len) {
        tool_refuse(c, t, "tool %zu: name: must be a string, not empty", i + 1);
        return;
    }
    t->name = name->str;
    t->n_name = name->len;
    for (size_t k = 0; k < i; k++)
        if (same_name(t, &c->tools[k])) {
            tool_refuse(c, t, "tool %zu: there is another tool \"%s\"", i + 1,
                        ERR_SHOW(t->name, t->n_name));
            return;
        }
    call_form_name_end(c->o->form, ends);
    if (c->o->form->kind == CALL_OBJECT ||
        (c->o->tool && strcmp(t->name, c->o->tool) != 0))
        return;
    for (size_t k = 0; t->name && k < t->n_name; k++)
        if (strchr(ends, name->str[k]))
            tool_refuse(c, t,
                        "the calls of this model cannot have the name "
                        "\"%s\": it has a \"%c\"",
                        ERR_SHOW(t->name, t->n_name), name->str[k]);
}

/* ---- calls ---- */

static uint32_t bytes(struct grammar *g, const struct buf *b)
{
    return grammar_bytes(g, b->data, b->len);
}

/* Return the node of a part of a form; NULL: nothing. */
static uint32_t part_node(struct grammar *g, const char *part)
{
    return part && *part ? grammar_bytes(g, part, strlen(part)) : GRAMMAR_EMPTY;
}

/* Return the node of arguments that satisfy a schema. */
static uint32_t schema_node(struct grammar *g, const struct json_value *schema,
                            const struct schema_options *o)
{
    uint32_t rule;
    struct qwick_err why;
    if (!schema_compile_value(g, schema, o, &rule, &why))
        return grammar_ref(g, rule);
    if (why.code == QWICK_ERR_MEMORY)
        grammar_oom(g, 0);
    return GRAMMAR_NOTHING;
}

/* Whether the schema of a tool can be held: compile it alone. Writes the reason
 * to *e if it cannot. */
static bool schema_is_held(const struct calls *c, const struct tool *t,
                           const struct schema_options *o, struct qwick_err *e)
{
    struct grammar *g;
    struct qwick_err why;
    struct schema_options alone = *o;
    alone.where = NULL;
    if (c->o->unchecked && !is_strict(t))
        return err_usage(e, "is too large") == 0;
    if (grammar_create(&g, "", e))
        return false;
    uint32_t root = grammar_new_rule(g, "arguments", 9);
    grammar_define(g, root, schema_node(g, t->parameters, &alone));
    bool held = !grammar_finish(g, root, &why);
    grammar_free(g);
    if (!held) /* the grammar has no name */
        err_set(e, why.code, "%s", why.msg + strspn(why.msg, ": "));
    return held;
}

/* Return the node of arguments that are not checked, in a form with parameters
 * with the tag that ends the call. */
static uint32_t any_arguments(struct calls *c, const struct schema_options *o)
{
    struct schema_options plain = *o;
    if (o->form != SCHEMA_BARE)
        plain.form = SCHEMA_ARGUMENTS;
    plain.work = NULL;
    return o->form == SCHEMA_PARAMETERS
               ? tools_text_to_tag(c->g, c->o->form->close)
               : schema_node(c->g, &schema_an_object, &plain);
}

static void warn_unchecked(const struct calls *c, const struct tool *t,
                           const char *why)
{
    struct qwick_err line;
    err_usage(&line, "tool \"%s\": its arguments are not checked: %s",
              ERR_SHOW(t->name, t->n_name), why);
    warn(c, line.msg);
}

/* Return the node of a tool's arguments, and of what stands after them. */
static uint32_t arguments(struct calls *c, const struct tool *t)
{
    struct grammar *g = c->g;
    const struct call_form *form = c->o->form;
    bool plain = form->kind == CALL_PARAMETERS, held = true;
    struct buf where = {0};
    struct qwick_err why = {0};
    uint32_t node, post = part_node(g, form->post);
    if (!t->parameters)
        return grammar_seq2(g, part_node(g, plain ? NULL : "{}"), post);
    if (buf_printf(&where,
                   "tool \"%s\": parameters: ", ERR_SHOW(t->name, t->n_name)))
        return grammar_oom(g, where.len);
    const struct schema_options o = {
        .spaced = form->kind != CALL_BARE,
        .form = plain                     ? SCHEMA_PARAMETERS
                : form->kind == CALL_BARE ? SCHEMA_BARE
                                          : SCHEMA_ARGUMENTS,
        .call = form,
        .lenient = !is_strict(t) &&
                   (c->o->lenient || c->o->optional || t->strict != NULL),
        .where = where.data,
        .work = &c->work,
    };
    if (c->o->optional)
        held = schema_is_held(c, t, &o, &why);
    if (!held && why.code == QWICK_ERR_MEMORY) {
        node = grammar_oom(g, 0);
    } else if (!held && is_strict(t)) {
        node = grammar_fail(g, "%s%s", where.data, why.msg);
    } else if (held) {
        node = grammar_seq2(g, schema_node(g, t->parameters, &o), post);
    } else {
        warn_unchecked(c, t, why.msg);
        node = any_arguments(c, &o);
        if (!plain)
            node = grammar_seq2(g, node, post);
    }
    buf_free(&where);
    return node;
}

/* Return the node of a call without its first `skip` bytes. */
static uint32_t call(struct calls *c, size_t i, size_t skip)
{
    const struct call_form *form = c->o->form;
    const struct tool *t = &c->tools[i];
    struct buf before = {0};
    uint32_t node;
    if (buf_puts(&before, form->pre + skip) ||
        (form->kind == CALL_OBJECT
             ? buf_json_string(&before, t->name, t->n_name)
             : buf_append(&before, t->name, t->n_name)) ||
        buf_puts(&before, form->mid))
        node = grammar_oom(c->g, before.len);
    else
        node = grammar_seq2(c->g, bytes(c->g, &before), c->args[i]);
    buf_free(&before);
    return node;
}

/* Return the node of a call of any tool, or of the one that is named, without
 * its first `skip` bytes. */
static uint32_t any_call(struct calls *c, size_t skip)
{
    struct grammar_list list = {0};
    uint32_t node = GRAMMAR_NOTHING;
    int bad = 0;
    for (size_t i = 0; i < c->n && !bad; i++)
        if (c->args[i] != GRAMMAR_NOTHING)
            bad = grammar_list_add(c->g, &list, call(c, i, skip));
    if (!bad)
        node = grammar_alt(c->g, list.v, list.n);
    free(list.v);
    return node;
}

/* Return the node of `first` and more calls. */
static uint32_t and_more(struct calls *c, uint32_t first)
{
    const struct call_form *form = c->o->form;
    uint32_t next = grammar_shared(c->g, "call", any_call(c, 0));
    uint32_t more = grammar_seq2(c->g, part_node(c->g, form->sep), next);
    return grammar_seq2(c->g, first,
                        grammar_repeat(c->g, more, 0, GRAMMAR_UNBOUNDED));
}

/* Return the node of calls, without their first `skip` bytes. */
static uint32_t block(struct calls *c, size_t skip, bool several)
{
    const struct call_form *form = c->o->form;
    const char *begin = form->begin;
    uint32_t node = any_call(c, begin ? 0 : skip);
    if (several)
        node = and_more(c, node);
    const uint32_t parts[] = {part_node(c->g, begin ? begin + skip : NULL),
                              node, part_node(c->g, form->end)};
    return grammar_seq(c->g, parts, 3);
}

/* Return the node of text with calls or without. Each call is checked from its
 * mark on. */
static uint32_t text_and_calls(struct calls *c, uint32_t root)
{
    const struct call_form *form = c->o->form;
    /* where each call has tags of its own, text may come between them */
    bool several = form->open && !form->single && (form->begin || !form->close);
    const uint32_t parts[] = {
        tools_text_to_mark(c->g, form),
        block(c, tools_mark_length(form), several),
        form->close ? grammar_ref(c->g, root) : GRAMMAR_EMPTY,
    };
    return grammar_alt2(c->g, tools_text_before(c->g, form),
                        grammar_seq(c->g, parts, 3));
}

/* Refuse a name, and list the names that there are. */
static void no_such_tool(struct calls *c)
{
    struct buf names = {0};
    int bad = 0;
    for (size_t i = 0; i < c->n && names.len < 400 && !bad; i++)
        bad = buf_printf(&names, "%s%s", i ? ", " : "",
                         ERR_SHOW(c->tools[i].name, c->tools[i].n_name));
    if (bad)
        grammar_oom(c->g, names.len);
    else
        grammar_fail(c->g, "there is no tool \"%s\"; the tools are: %s",
                     ERR_SHOW(c->o->tool, strlen(c->o->tool)), names.data);
    buf_free(&names);
}

/* Make the nodes of the arguments of each tool that may be called. */
static void all_arguments(struct calls *c, const struct json_value *list)
{
    const char *wanted = c->o->tool;
    bool any = !wanted;
    for (size_t i = 0; i < c->n; i++)
        read_tool(c, list, i);
    if (grammar_error(c->g, NULL))
        return;
    for (size_t i = 0; i < c->n; i++) {
        const struct tool *t = &c->tools[i];
        bool named = t->name && (!wanted || !strcmp(t->name, wanted));
        any |= named;
        c->args[i] = named ? grammar_shared(c->g, "arguments", arguments(c, t))
                           : GRAMMAR_NOTHING;
    }
    if (!any)
        no_such_tool(c);
}

static void compile(struct grammar *g, const struct json_value *list,
                    const struct tools_options *o, uint32_t root)
{
    struct calls c = {
        .g = g, .o = o, .n = list->len, .work = MAX_TOOLS_WORK};
    c.tools = calloc(c.n, sizeof *c.tools);
    c.args = calloc(c.n, sizeof *c.args);
    if (!c.tools || !c.args) {
        grammar_oom(g, c.n * sizeof *c.tools);
    } else {
        all_arguments(&c, list);
        grammar_define(
            g, root,
            o->optional
                ? text_and_calls(&c, root)
                : block(&c, 0, !o->tool && o->form->open && !o->form->single));
    }
    free(c.tools);
    free(c.args);
}

/* Whether a list has a number of tools that can be compiled. */
static bool can_compile(const struct json_value *list)
{
    return json_is(list, JSON_ARRAY) && list->len && list->len <= TOOLS_MAX;
}

static bool has_strict(const struct json_value *list)
{
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++) {
        const struct json_value *v = tool_definition(&list->items[i]);
        if (json_is(json_get(v, "strict"), JSON_BOOL) &&
            json_get(v, "strict")->boolean)
            return true;
    }
    return false;
}

int tools_compile(struct grammar *g, const char *text, size_t n,
                  const struct tools_options *o, uint32_t *root,
                  struct qwick_err *e)
{
    struct qwick_err why;
    struct json_doc *doc = NULL;
    *root = grammar_new_rule(g, "calls", 5);
    if (n > TOOLS_MAX_BYTES && !o->unchecked)
        grammar_fail(g, "definitions of %zu bytes are larger than the limit %u",
                     n, TOOLS_MAX_BYTES);
    else if (!json_parse(&doc, "the tools", text, n, QWICK_ERR_USAGE, &why)) {
        const struct json_value *list = json_root(doc);
        if (o->unchecked && !can_compile(list) && !has_strict(list))
            grammar_define(g, *root, tools_any_text(g));
        else if (!json_is(list, JSON_ARRAY) || !list->len)
            grammar_fail(g, "the tools must be an array, not empty");
        else if (list->len > TOOLS_MAX)
            grammar_fail(g, "%zu tools are more than the limit %d", list->len,
                         TOOLS_MAX);
        else
            compile(g, list, o, *root);
        json_free(doc);
    } else if (why.code == QWICK_ERR_USAGE)
        grammar_fail(g, "%s", why.msg);
    else
        grammar_oom(g, n);
    return grammar_error(g, e);
}

/* ---- texts without a call ---- */

enum { MAX_TAG = 40 }; /* characters */

/* The longest beginning of tag[0..n) that tag[0..k) and then c end with. */
static uint32_t next_match(const uint32_t *tag, uint32_t k, uint32_t c)
{
    for (uint32_t len = k + 1; len > 0; len--)
        if (tag[len - 1] == c &&
            !memcmp(tag, tag + (k + 1 - len), (len - 1) * sizeof *tag))
            return len;
    return 0;
}

/* Add the edges of a state for lo to hi, but not for surrogates. */
static int add_range(struct dfa_draft *d, uint32_t from, uint32_t lo,
                     uint32_t hi, uint32_t to, const struct dfa_place *at)
{
    if (lo < 0xD800 &&
        dfa_draft_edge(d, from, lo, hi < 0xD800 ? hi : 0xD7FF, to, at))
        return -1;
    return hi > 0xDFFF && dfa_draft_edge(d, from, lo > 0xE000 ? lo : 0xE000, hi,
                                         to, at)
               ? -1
               : 0;
}

/* Add the edges of state k, in which the last k characters begin the tag. */
static int add_matches(struct dfa_draft *d, const uint32_t *tag, uint32_t n,
                       uint32_t k, const struct dfa_place *at)
{
    uint32_t lo = 0;
    for (;;) {
        uint32_t c = UINT32_MAX; /* the next character of the tag from lo on */
        for (uint32_t i = 0; i < n; i++)
            if (tag[i] >= lo && tag[i] < c)
                c = tag[i];
        if (c == UINT32_MAX)
            return lo > DFA_LAST ? 0 : add_range(d, k, lo, DFA_LAST, 0, at);
        uint32_t to = next_match(tag, k, c);
        if ((c > lo && add_range(d, k, lo, c - 1, 0, at)) ||
            (to < n && add_range(d, k, c, c, to, at)))
            return -1;
        lo = c + 1;
    }
}

/* Texts without the tag. */
static int draft_no_tag(struct dfa_draft *d, const char *text,
                        const struct dfa_place *at)
{
    uint32_t tag[MAX_TAG], n = 0;
    for (size_t i = 0, size = strlen(text); i < size && n < MAX_TAG;)
        i += utf8_decode(text + i, size - i, &tag[n++], NULL);
    for (uint32_t k = 0; k < n; k++)
        if (dfa_draft_state(d, true, at) == UINT32_MAX)
            return -1;
    for (uint32_t k = 0; k < n; k++)
        if (add_matches(d, tag, n, k, at))
            return -1;
    return 0;
}

/* Texts in which "{" is not the first character after white space. */
static int draft_no_object(struct dfa_draft *d, const struct dfa_place *at)
{
    static const uint32_t blanks[] = {'\t', '\n', '\r', ' '};
    uint32_t lo = 0;
    if (dfa_draft_state(d, true, at) == UINT32_MAX ||
        dfa_draft_state(d, true, at) == UINT32_MAX ||
        add_range(d, 1, 0, DFA_LAST, 1, at))
        return -1;
    for (size_t i = 0; i < sizeof blanks / sizeof *blanks; i++) {
        if ((blanks[i] > lo && add_range(d, 0, lo, blanks[i] - 1, 1, at)) ||
            add_range(d, 0, blanks[i], blanks[i], 0, at))
            return -1;
        lo = blanks[i] + 1;
    }
    return add_range(d, 0, lo, '{' - 1, 1, at) ||
                   add_range(d, 0, '{' + 1, DFA_LAST, 1, at)
               ? -1
               : 0;
}

uint32_t tools_no_call(struct grammar *g, const struct call_form *form)
{
    struct arena mem = {0};
    size_t steps = 100000;
    struct qwick_err err = {0};
    const struct dfa_place at = {&mem, &steps, &err};
    struct dfa_draft d = {0};
    const struct dfa *p = NULL;
    uint32_t node = GRAMMAR_NOTHING;
    if (!(form->open ? draft_no_tag(&d, form->open, &at)
                     : draft_no_object(&d, &at)))
        p = dfa_finish(&d, &at);
    if (p)
        node = text_body(g, p, TEXT_ESCAPE_NONE, TEXT_ANY_LENGTH);
    else if (err.code == QWICK_ERR_USAGE)
        grammar_fail(g, "%s", err.msg);
    else
        grammar_oom(g, 0);
    dfa_draft_free(&d);
    arena_free(&mem);
    return node;
}
