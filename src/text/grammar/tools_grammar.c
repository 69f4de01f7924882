#include "text/grammar/tools_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/chat/call_forms.h"
#include "text/chat/tool_calls.h"
#include "text/grammar/dfa.h"
#include "text/grammar/grammar_int.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_text.h"

/* ---- definitions ---- */

struct tool {
    const char *name; /* [n_name] without NUL */
    size_t n_name;
    const struct json_value *parameters; /* NULL: no arguments */
    bool lenient; /* see schema_options; "strict": false, or of the options */
};

/* Read definition i. Returns 0, or -1 after grammar_fail. */
static int read_tool(struct grammar *g, const struct json_value *list, size_t i,
                     bool lenient, struct tool *out)
{
    const struct json_value *t = tool_definition(&list->items[i]);
    const struct json_value *name = json_get(t, "name");
    if (!json_is(name, JSON_STRING) || !name->len ||
        strlen(name->str) != name->len) {
        grammar_fail(g, "tool %zu: name: must be a string, not empty", i + 1);
        return -1;
    }
    *out = (struct tool){name->str, name->len, json_get(t, "parameters"),
                         lenient || tool_is_lenient(t)};
    if (json_is(out->parameters, JSON_NULL))
        out->parameters = NULL;
    return 0;
}

bool tool_is_lenient(const struct json_value *definition)
{
    const struct json_value *strict = json_get(definition, "strict");
    return json_is(strict, JSON_BOOL) && !strict->boolean;
}

static bool same_name(const struct tool *a, const struct tool *b)
{
    return a->n_name == b->n_name && memcmp(a->name, b->name, a->n_name) == 0;
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

/* Return the node of a tool's arguments. */
static uint32_t arguments(struct grammar *g, const struct tool *t,
                          const struct call_form *form)
{
    struct buf where = {0};
    struct qwick_err why;
    uint32_t rule, node = GRAMMAR_NOTHING;
    bool plain = form->kind == CALL_PARAMETERS;
    if (!t->parameters)
        return part_node(g, plain ? NULL : "{}");
    if (buf_printf(&where,
                   "tool \"%s\": parameters: ", ERR_SHOW(t->name, t->n_name)))
        return grammar_oom(g, where.len);
    const struct schema_options o = {
        .spaced = true,
        .form = plain ? SCHEMA_PARAMETERS : SCHEMA_ARGUMENTS,
        .call = form,
        .lenient = t->lenient,
        .where = where.data,
    };
    if (!schema_compile_value(g, t->parameters, &o, &rule, &why))
        node = grammar_ref(g, rule);
    else if (why.code == QWICK_ERR_MEMORY)
        grammar_oom(g, 0);
    buf_free(&where);
    return node;
}

/* Write what stands before the arguments of a call. */
static int write_start(struct buf *b, const struct tool *t,
                       const struct call_form *form)
{
    return buf_puts(b, form->pre) ||
           (form->kind == CALL_OBJECT ? buf_json_string(b, t->name, t->n_name)
                                      : buf_append(b, t->name, t->n_name)) ||
           buf_puts(b, form->mid);
}

/* Return the node of a call. */
static uint32_t call(struct grammar *g, const struct tool *t,
                     const struct call_form *form)
{
    struct buf before = {0};
    char ends[3];
    uint32_t node = GRAMMAR_NOTHING;
    call_form_name_end(form, ends);
    for (size_t i = 0; form->kind != CALL_OBJECT && i < t->n_name; i++)
        if (strchr(ends, t->name[i]))
            return grammar_fail(g,
                                "the calls of this model cannot have the name "
                                "\"%s\": it has a \"%c\"",
                                ERR_SHOW(t->name, t->n_name), t->name[i]);
    if (write_start(&before, t, form)) {
        grammar_oom(g, before.len);
    } else {
        const uint32_t parts[] = {bytes(g, &before), arguments(g, t, form),
                                  part_node(g, form->post)};
        node = grammar_seq(g, parts, 3);
    }
    buf_free(&before);
    return node;
}

/* Refuse a name, and list the names that there are. */
static uint32_t no_such_tool(struct grammar *g, const char *name,
                             const struct tool *tools, size_t n)
{
    struct buf names = {0};
    int bad = 0;
    for (size_t i = 0; i < n && names.len < 400 && !bad; i++)
        bad = buf_printf(&names, "%s%s", i ? ", " : "",
                         ERR_SHOW(tools[i].name, tools[i].n_name));
    if (bad)
        grammar_oom(g, names.len);
    else
        grammar_fail(g, "there is no tool \"%s\"; the tools are: %s",
                     ERR_SHOW(name, strlen(name)), names.data);
    buf_free(&names);
    return GRAMMAR_NOTHING;
}

/* Return the node of a call of any tool, or of the one that is named. */
static uint32_t any_call(struct grammar *g, const struct json_value *list,
                         const struct tools_options *o, struct tool *tools,
                         uint32_t *nodes)
{
    bool found = false;
    for (size_t i = 0; i < list->len; i++) {
        if (read_tool(g, list, i, o->lenient, &tools[i]))
            return GRAMMAR_NOTHING;
        for (size_t k = 0; k < i; k++)
            if (same_name(&tools[i], &tools[k]))
                return grammar_fail(g, "tool %zu: there is another tool \"%s\"",
                                    i + 1,
                                    ERR_SHOW(tools[i].name, tools[i].n_name));
        found |= !o->tool || strcmp(tools[i].name, o->tool) == 0;
    }
    if (!found)
        return no_such_tool(g, o->tool, tools, list->len);
    for (size_t i = 0; i < list->len; i++)
        nodes[i] = !o->tool || strcmp(tools[i].name, o->tool) == 0
                       ? call(g, &tools[i], o->form)
                       : GRAMMAR_NOTHING;
    return grammar_alt(g, nodes, list->len);
}

static void compile(struct grammar *g, const struct json_value *list,
                    const struct tools_options *o, uint32_t *root)
{
    struct tool *tools = calloc(list->len, sizeof *tools);
    uint32_t *nodes = calloc(list->len, sizeof *nodes);
    if (!tools || !nodes) {
        grammar_oom(g, list->len * sizeof *tools);
    } else {
        uint32_t node = any_call(g, list, o, tools, nodes);
        if (!o->tool && o->form->open) {
            node = grammar_shared(g, "call", node);
            uint32_t more = grammar_seq2(g, part_node(g, o->form->sep), node);
            more = grammar_repeat(g, more, 0, GRAMMAR_UNBOUNDED);
            node = grammar_seq2(g, node, more);
        }
        const uint32_t parts[] = {part_node(g, o->form->begin), node,
                                  part_node(g, o->form->end)};
        node = grammar_seq(g, parts, 3);
        *root = grammar_new_rule(g, "calls", 5);
        grammar_define(g, *root, node);
    }
    free(tools);
    free(nodes);
}

int tools_compile(struct grammar *g, const char *text, size_t n,
                  const struct tools_options *o, uint32_t *root,
                  struct qwick_err *e)
{
    struct qwick_err why;
    struct json_doc *doc = NULL;
    *root = 0;
    if (n > TOOLS_MAX_BYTES)
        grammar_fail(g, "definitions of %zu bytes are larger than the limit %u",
                     n, TOOLS_MAX_BYTES);
    else if (!json_parse(&doc, "the tools", text, n, QWICK_ERR_USAGE, &why)) {
        const struct json_value *list = json_root(doc);
        if (!json_is(list, JSON_ARRAY) || !list->len)
            grammar_fail(g, "the tools must be an array, not empty");
        else if (list->len > TOOLS_MAX)
            grammar_fail(g, "%zu tools are more than the limit %d", list->len,
                         TOOLS_MAX);
        else
            compile(g, list, o, root);
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
