#include "text/grammar/tools_grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/json.h"
#include "text/grammar/grammar_int.h"
#include "text/grammar/dfa.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_text.h"
#include "text/chat/tool_value.h"

/* ---- the form of calls ---- */

static size_t skip_blanks(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && memchr(" \t\r\n", s[i], 4))
        i++;
    return i;
}

int tools_form_of(enum tools_form *out, const char *prompt, size_t n)
{
    static const char tag[] = TOOL_OPEN_CALL, function[] = TOOL_OPEN_FUNCTION;
    const size_t n_function = sizeof function - 1;
    const char *p = prompt, *end = prompt + n;
    int found = -1;
    /* the last one counts: a call comes after the instructions */
    while ((p = memmem(p, (size_t)(end - p), tag, sizeof tag - 1)) != NULL) {
        p += sizeof tag - 1;
        p += skip_blanks(p, (size_t)(end - p));
        size_t left = (size_t)(end - p);
        bool xml = left >= n_function && memcmp(p, function, n_function) == 0;
        if (!xml && (!left || *p != '{'))
            continue;
        *out = xml ? TOOLS_XML : TOOLS_JSON;
        found = 0;
    }
    return found;
}

/* ---- definitions ---- */

struct tool {
    const char *name; /* [n_name] without NUL */
    size_t n_name;
    const struct json_value *parameters; /* NULL: no arguments */
};

/* Read definition i. Returns 0, or -1 after grammar_fail. */
static int read_tool(struct grammar *g, const struct json_value *list, size_t i,
                     struct tool *out)
{
    const struct json_value *t = &list->items[i];
    if (json_is(json_get(t, "function"), JSON_OBJECT))
        t = json_get(t, "function");
    const struct json_value *name = json_get(t, "name");
    if (!json_is(name, JSON_STRING) || !name->len ||
        strlen(name->str) != name->len) {
        grammar_fail(g, "tool %zu: name: must be a string, not empty", i + 1);
        return -1;
    }
    *out = (struct tool){name->str, name->len, json_get(t, "parameters")};
    if (json_is(out->parameters, JSON_NULL))
        out->parameters = NULL;
    return 0;
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

/* Return the node of a tool's arguments. */
static uint32_t arguments(struct grammar *g, const struct tool *t,
                          enum tools_form form)
{
    struct buf where = {0};
    uint32_t rule, node = GRAMMAR_NOTHING;
    bool xml = form == TOOLS_XML;
    if (!t->parameters)
        return xml ? GRAMMAR_EMPTY : grammar_bytes(g, "{}", 2);
    if (buf_printf(&where,
                   "tool \"%s\": parameters: ", ERR_SHOW(t->name, t->n_name)))
        return grammar_oom(g, where.len);
    const struct schema_options o = {
        .spaced = true,
        .form = xml ? SCHEMA_PARAMETERS : SCHEMA_ARGUMENTS,
        .where = where.data,
    };
    if (!schema_compile_value(g, t->parameters, &o, &rule, NULL))
        node = grammar_ref(g, rule);
    else
        grammar_oom(g, 0); /* has no effect if the schema was refused */
    buf_free(&where);
    return node;
}

/* Write what stands before and after the arguments of a call. */
static int frame(struct buf *before, struct buf *after, const struct tool *t,
                 enum tools_form form)
{
    if (form == TOOLS_XML)
        return buf_puts(before, TOOL_OPEN_CALL "\n" TOOL_OPEN_FUNCTION) ||
               buf_append(before, t->name, t->n_name) ||
               buf_puts(before, ">\n") ||
               buf_puts(after, TOOL_CLOSE_FUNCTION "\n" TOOL_CLOSE_CALL);
    return buf_puts(before, TOOL_OPEN_CALL "\n{\"name\": ") ||
           buf_json_string(before, t->name, t->n_name) ||
           buf_puts(before, ", \"arguments\": ") ||
           buf_puts(after, "}\n" TOOL_CLOSE_CALL);
}

/* Return the node of a call. */
static uint32_t call(struct grammar *g, const struct tool *t,
                     enum tools_form form)
{
    struct buf before = {0}, after = {0};
    uint32_t node = GRAMMAR_NOTHING;
    if (form == TOOLS_XML && memchr(t->name, '>', t->n_name))
        return grammar_fail(g,
                            "the calls of this model cannot have the name "
                            "\"%s\": it has a \">\"",
                            ERR_SHOW(t->name, t->n_name));
    if (frame(&before, &after, t, form)) {
        grammar_oom(g, before.len);
    } else {
        const uint32_t parts[] = {bytes(g, &before), arguments(g, t, form),
                                  bytes(g, &after)};
        node = grammar_seq(g, parts, 3);
    }
    buf_free(&before);
    buf_free(&after);
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
        if (read_tool(g, list, i, &tools[i]))
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
        if (!o->tool) {
            node = grammar_shared(g, "call", node);
            uint32_t more = grammar_seq2(g, grammar_bytes(g, "\n", 1), node);
            more = grammar_repeat(g, more, 0, GRAMMAR_UNBOUNDED);
            node = grammar_seq2(g, node, more);
        }
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

/* Make an automaton. In state k, the last k characters begin the tag. All
 * characters of the tag are "<" or above it, and "<" is only the first one. */
static int draft_no_call(struct dfa_draft *d, const struct dfa_place *at)
{
    static const char tag[] = TOOL_OPEN_CALL;
    const uint32_t n = sizeof tag - 1;
    for (uint32_t k = 0; k < n; k++)
        if (dfa_draft_state(d, true, at) == UINT32_MAX)
            return -1;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t c = (unsigned char)tag[k];
        if (dfa_draft_edge(d, k, 0, '<' - 1, 0, at) ||
            dfa_draft_edge(d, k, '<', '<', 1, at) ||
            (c > '<' + 1 && dfa_draft_edge(d, k, '<' + 1, c - 1, 0, at)) ||
            (k > 0 && k + 1 < n && dfa_draft_edge(d, k, c, c, k + 1, at)) ||
            dfa_draft_edge(d, k, c + 1, 0xD7FF, 0, at) ||
            dfa_draft_edge(d, k, 0xE000, DFA_LAST, 0, at))
            return -1;
    }
    return 0;
}

uint32_t tools_no_call(struct grammar *g)
{
    struct arena mem = {0};
    size_t steps = 100000;
    struct qwick_err err = {0};
    const struct dfa_place at = {&mem, &steps, &err};
    struct dfa_draft d = {0};
    const struct dfa *p = NULL;
    uint32_t node = GRAMMAR_NOTHING;
    if (!draft_no_call(&d, &at))
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
