#include "text/lark/lark.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "text/grammar/grammar_int.h"
#include "text/lark/lark_int.h"
#include "text/schema/schema.h"

/* Groups inside groups. The parser recurses once for each. */
enum { MAX_GROUPS = 200 };

/* Schemas in one grammar: each takes time of its own. */
enum { MAX_SCHEMAS = 100 };

/* ---- reading ---- */

struct lark_place lark_place(struct lark *x, const char *at)
{
    struct lark_place *seen = &x->seen;
    if (!seen->at || at < seen->at)
        *seen = (struct lark_place){x->text, 1, 1};
    for (; seen->at < at; seen->at++) {
        char c = *seen->at;
        seen->column = c == '\n' ? 1 : seen->column + ((c & 0xC0) != 0x80);
        seen->line += c == '\n';
    }
    return *seen;
}

uint32_t lark_fail(struct lark *x, const char *at, const char *fmt, ...)
{
    char msg[sizeof x->g->err.msg];
    struct lark_place place = lark_place(x, at);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (x->module)
        return grammar_fail(x->g, "%s: %s", x->module, msg);
    return grammar_fail(x->g, "line %zu, column %zu: %s", place.line,
                        place.column, msg);
}

static bool failed(const struct lark *x)
{
    return x->g->err.code != QWICK_OK;
}

static bool lark_peek(const struct lark *x, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(x->end - x->p) >= n && memcmp(x->p, s, n) == 0;
}

static bool lark_skip(struct lark *x, const char *s)
{
    if (!lark_peek(x, s))
        return false;
    x->p += strlen(s);
    return true;
}

static void skip_line(struct lark *x)
{
    while (x->p < x->end && *x->p != '\n')
        x->p++;
}

/* Skip blanks and comments; with `lines`, also line ends. */
static void skip_space(struct lark *x, bool lines)
{
    while (x->p < x->end) {
        if (*x->p == '#' || lark_peek(x, "//"))
            skip_line(x);
        else if (*x->p == ' ' || *x->p == '\t' || *x->p == '\r' ||
                 *x->p == '\f' || (*x->p == '\n' && lines))
            x->p++;
        else
            return;
    }
}

/* Skip the space before the next part of an expression. A line may break in
 * groups and before "|". */
static void skip_to_part(struct lark *x)
{
    skip_space(x, x->depth > 0);
    const char *line_end = x->p;
    skip_space(x, true);
    if (x->depth == 0 && !lark_peek(x, "|"))
        x->p = line_end;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

/* Read a name. Returns its length; 0: there is none. */
static size_t read_name(struct lark *x, const char **from)
{
    *from = x->p;
    if (x->p < x->end && *x->p >= '0' && *x->p <= '9')
        return 0;
    while (x->p < x->end && is_name_char(*x->p))
        x->p++;
    return (size_t)(x->p - *from);
}

/* Terminals have names in upper case. */
static bool is_terminal(const char *name, size_t n)
{
    size_t i = 0;
    while (i < n && name[i] == '_')
        i++;
    return i < n && name[i] >= 'A' && name[i] <= 'Z';
}

/* Return a reference to a rule or a terminal, which is looked for at the end.
 */
static uint32_t refer(struct lark *x, const char *name, size_t n)
{
    if (x->module)
        return grammar_ref(x->g, lark_common(x, name, n));
    uint32_t rule = grammar_rule(x->g, name, n);
    if (ARRAY_RESERVE(x->uses, x->cap_uses, x->n_uses + 1, NULL))
        return grammar_oom(x->g, x->n_uses * sizeof *x->uses);
    x->uses[x->n_uses++] = (struct lark_use){rule, name, n};
    return grammar_ref(x->g, rule);
}

/* ---- items ---- */

/* What is ignored may follow a terminal of a rule. */
static uint32_t then_ignored(struct lark *x, uint32_t node)
{
    return x->in_terminal || !x->ignores
               ? node
               : grammar_seq2(x->g, node, grammar_ref(x->g, x->ignored));
}

static uint32_t group(struct lark *x, const char *close)
{
    const char *open = x->p - 1;
    if (x->depth == MAX_GROUPS)
        return lark_fail(x, open, "groups are nested too deeply");
    x->depth++;
    skip_space(x, true);
    uint32_t node = lark_expression(x, GRAMMAR_NOTHING);
    x->depth--;
    if (!failed(x) && !lark_skip(x, close))
        return lark_fail(x, open, "the group has no \"%s\"", close);
    return *close == ')' ? node : grammar_repeat(x->g, node, 0, 1);
}

static uint32_t name_item(struct lark *x)
{
    const char *name;
    size_t n = read_name(x, &name);
    bool terminal = is_terminal(name, n);
    if (x->in_terminal && !terminal)
        return lark_fail(x, name, "a terminal cannot refer to the rule \"%s\"",
                         ERR_SHOW(name, n));
    if (lark_peek(x, "{") &&
        !(x->end - x->p > 1 && strchr(" ,0123456789", x->p[1])))
        return lark_fail(x, name, "templates are not supported");
    uint32_t node = refer(x, name, n);
    return terminal ? then_ignored(x, node) : node;
}

/* Return the end of the JSON object at p. */
static const char *object_end(const char *p, const char *end)
{
    size_t depth = 0;
    for (bool in_string = false; p < end; p++) {
        if (in_string && *p == '\\' && end - p > 1)
            p++;
        else if (*p == '"')
            in_string = !in_string;
        else if (!in_string && (*p == '{' || *p == '['))
            depth++;
        else if (!in_string && (*p == '}' || *p == ']') && --depth == 0)
            return p + 1;
    }
    return NULL;
}

/* %json SCHEMA */
static uint32_t json_item(struct lark *x, const char *at)
{
    struct qwick_err why;
    uint32_t rule;
    skip_space(x, true);
    const char *schema = x->p, *end = object_end(schema, x->end);
    if (x->in_terminal)
        return lark_fail(x, at, "a terminal cannot have %%json");
    if (!lark_peek(x, "{") || !end)
        return lark_fail(x, at, "expected a JSON object after %%json");
    if (x->n_schemas++ == MAX_SCHEMAS)
        return lark_fail(x, at, "more than %d schemas are not supported",
                         MAX_SCHEMAS);
    x->p = end;
    struct grammar *g = x->g;
    struct lark_place place = lark_place(x, at);
    struct qwick_err where;
    err_usage(&where, "line %zu, column %zu: ", place.line, place.column);
    const struct schema_options o = {.where = where.msg, .work = &x->work};
    if (!schema_compile(g, schema, (size_t)(end - schema), &o, &rule, &why))
        return then_ignored(x, grammar_ref(g, rule));
    return why.code == QWICK_ERR_MEMORY ? grammar_oom(g, 0) : GRAMMAR_NOTHING;
}

/* A token: "<[ID]>" or its text, which begins with "<". */
static uint32_t token_item(struct lark *x)
{
    const char *from = x->p;
    struct lark_place place = lark_place(x, from);
    struct qwick_err at;
    if (x->in_terminal)
        return lark_fail(x, from, "a terminal cannot have a token");
    while (x->p < x->end && *x->p != '>' && *x->p != '\n')
        x->p++;
    if (!lark_skip(x, ">"))
        return lark_fail(x, from, "the token has no \">\"");
    err_usage(&at, "line %zu, column %zu: ", place.line, place.column);
    return grammar_token(x->g, at.msg, from, (size_t)(x->p - from), false);
}

/* Read an item without its repetition. *is_item: false if there is none. */
static uint32_t read_item(struct lark *x, bool *is_item)
{
    const char *at = x->p;
    *is_item = true;
    if (lark_skip(x, "("))
        return group(x, ")");
    if (lark_skip(x, "["))
        return group(x, "]");
    if (lark_peek(x, "\""))
        return then_ignored(x, lark_string(x));
    if (lark_peek(x, "/"))
        return then_ignored(x, lark_regex(x));
    if (lark_skip(x, "%json"))
        return json_item(x, at);
    if (lark_peek(x, "%"))
        return lark_fail(x, at,
                         "of the directives, only %%json is supported "
                         "in a rule");
    if (lark_peek(x, "<"))
        return then_ignored(x, token_item(x));
    if (lark_peek(x, "&") || lark_peek(x, "~"))
        return lark_fail(x, at, "the operator \"%c\" is not supported", *at);
    if (x->p < x->end && is_name_char(*x->p) && (*x->p < '0' || *x->p > '9'))
        return name_item(x);
    *is_item = false;
    return GRAMMAR_NOTHING;
}

/* ---- repetitions ---- */

static bool read_number(struct lark *x, uint32_t *v)
{
    const char *at = x->p;
    int found = grammar_read_count(&x->p, x->end, v);
    if (found < 0)
        lark_fail(x, at, "the number of repetitions is too large");
    return found != 0;
}

/* Read "N" or "N..M" after "~". */
static void read_tilde(struct lark *x, uint32_t *min, uint32_t *max)
{
    skip_space(x, false);
    if (!read_number(x, min))
        lark_fail(x, x->p, "expected a number after \"~\"");
    *max = *min;
    skip_space(x, false);
    if (!lark_skip(x, ".."))
        return;
    skip_space(x, false);
    if (!read_number(x, max))
        lark_fail(x, x->p, "expected a number after \"..\"");
}

/* Read "N}", "N,}", ",M}" or "N,M}" after "{". */
static void read_braces(struct lark *x, uint32_t *min, uint32_t *max)
{
    skip_space(x, false);
    *min = 0;
    bool has_min = read_number(x, min), has_max = false;
    *max = *min;
    skip_space(x, false);
    if (lark_skip(x, ",")) {
        skip_space(x, false);
        has_max = read_number(x, max);
        if (!has_max)
            *max = GRAMMAR_UNBOUNDED;
        skip_space(x, false);
    }
    if (!failed(x) && ((!has_min && !has_max) || !lark_skip(x, "}")))
        lark_fail(x, x->p, "expected a number of repetitions and \"}\"");
}

static uint32_t read_repeats(struct lark *x, uint32_t node)
{
    while (!failed(x)) {
        const char *at = x->p;
        uint32_t min = 0, max = GRAMMAR_UNBOUNDED;
        skip_space(x, x->depth > 0);
        if (lark_skip(x, "+"))
            min = 1;
        else if (lark_skip(x, "?"))
            max = 1;
        else if (lark_skip(x, "~"))
            read_tilde(x, &min, &max);
        else if (lark_skip(x, "{"))
            read_braces(x, &min, &max);
        else if (!lark_skip(x, "*")) {
            x->p = at;
            break;
        }
        if (!failed(x) && max < min)
            lark_fail(x, at, "the repetition has a maximum below its minimum");
        node = grammar_repeat(x->g, node, min, max);
    }
    return node;
}

/* ---- expressions ---- */

/* "-> NAME" after an alternative has no effect. */
static void skip_alias(struct lark *x)
{
    const char *name;
    if (!lark_skip(x, "->"))
        return;
    skip_space(x, false);
    if (read_name(x, &name) == 0)
        lark_fail(x, x->p, "expected a name after \"->\"");
    skip_to_part(x);
}

/* Read one alternative into l. */
static void read_sequence(struct lark *x, struct grammar_list *l)
{
    bool more = true;
    while (!failed(x)) {
        uint32_t part = read_item(x, &more);
        if (!more || failed(x) ||
            grammar_list_add(x->g, l, read_repeats(x, part)))
            break;
        skip_to_part(x);
    }
    if (!failed(x))
        skip_alias(x);
}

static bool next_alternative(struct lark *x)
{
    if (!lark_skip(x, "|"))
        return false;
    skip_space(x, true);
    return true;
}

/* Alternatives. If the rule `self` begins one, what comes after it goes to
 * tails: A: A "b" | "c" is A: "c" "b"*. */
static void read_alternatives(struct lark *x, uint32_t self,
                              struct grammar_list *heads,
                              struct grammar_list *tails)
{
    skip_to_part(x);
    do {
        struct grammar_list l = {0};
        read_sequence(x, &l);
        bool own = l.n && self != GRAMMAR_NOTHING && l.v[0] == self;
        if (!failed(x))
            grammar_list_add(x->g, own ? tails : heads,
                             grammar_seq(x->g, l.v + own, l.n - own));
        free(l.v);
    } while (!failed(x) && next_alternative(x));
}

uint32_t lark_expression(struct lark *x, uint32_t self)
{
    struct grammar_list heads = {0}, tails = {0};
    struct grammar *g = x->g;
    read_alternatives(x, self, &heads, &tails);
    uint32_t node = grammar_alt(g, heads.v, heads.n);
    if (tails.n)
        node = grammar_seq2(g, node,
                            grammar_repeat(g, grammar_alt(g, tails.v, tails.n),
                                           0, GRAMMAR_UNBOUNDED));
    free(heads.v);
    free(tails.v);
    return failed(x) ? GRAMMAR_NOTHING : node;
}

/* ---- statements ---- */

/* Define a rule or terminal that must not have been defined. */
static void define(struct lark *x, const char *at, size_t n, uint32_t rule,
                   uint32_t node)
{
    if (failed(x))
        return;
    if (grammar_is_defined(x->g, rule))
        lark_fail(x, at, "\"%s\" is defined twice", ERR_SHOW(at, n));
    else
        grammar_define(x->g, rule, node);
}

/* What may stand between the name of a definition and its ":". */
static void skip_priority(struct lark *x)
{
    uint32_t ignored;
    if (lark_peek(x, "{"))
        lark_fail(x, x->p, "templates are not supported");
    else if (lark_peek(x, "["))
        lark_fail(x, x->p, "attributes of rules are not supported");
    else if (lark_skip(x, ".")) {
        lark_skip(x, "-");
        if (!read_number(x, &ignored))
            lark_fail(x, x->p, "expected a priority");
    }
}

static void read_definition(struct lark *x)
{
    const char *name;
    while (lark_skip(x, "?") || lark_skip(x, "!"))
        ;
    size_t n = read_name(x, &name);
    if (n == 0) {
        lark_fail(x, x->p, "expected a rule, a terminal or a directive");
        return;
    }
    skip_priority(x);
    skip_space(x, false);
    if (failed(x) || !lark_skip(x, ":")) {
        lark_fail(x, x->p, "expected \":\" after the name");
        return;
    }
    uint32_t rule = grammar_rule(x->g, name, n);
    x->in_terminal = is_terminal(name, n);
    define(x, name, n, rule,
           lark_expression(x, x->in_terminal ? GRAMMAR_NOTHING
                                             : grammar_ref(x->g, rule)));
    x->in_terminal = false;
}

static void read_ignore(struct lark *x)
{
    x->in_terminal = true;
    uint32_t node = lark_expression(x, GRAMMAR_NOTHING);
    x->in_terminal = false;
    if (!failed(x))
        grammar_list_add(x->g, &x->ignored_nodes, node);
}

/* Import one name; its alias may follow. */
static void import_name(struct lark *x)
{
    const char *name, *alias;
    size_t n = read_name(x, &name), n_alias = n;
    if (n == 0) {
        lark_fail(x, x->p, "expected the name of a terminal of \"common\"");
        return;
    }
    alias = name;
    skip_space(x, false);
    if (lark_skip(x, "->")) {
        skip_space(x, false);
        n_alias = read_name(x, &alias);
        if (!is_terminal(alias, n_alias))
            lark_fail(x, alias, "expected the name of a terminal");
    }
    if (!failed(x))
        define(x, alias, n_alias, grammar_rule(x->g, alias, n_alias),
               grammar_ref(x->g, lark_common(x, name, n)));
}

/* "common.NAME", "common.NAME -> ALIAS" or "common (NAME, NAME)" */
static void read_import(struct lark *x)
{
    if (!lark_skip(x, "common")) {
        lark_fail(x, x->p, "only terminals of \"common\" can be imported");
        return;
    }
    skip_space(x, false);
    if (lark_skip(x, ".")) {
        import_name(x);
        return;
    }
    if (!lark_skip(x, "("))
        lark_fail(x, x->p, "expected \".\" or \"(\" after \"common\"");
    do {
        skip_space(x, true);
        import_name(x);
        skip_space(x, true);
    } while (!failed(x) && lark_skip(x, ","));
    if (!failed(x) && !lark_skip(x, ")"))
        lark_fail(x, x->p, "expected \")\"");
}

static void read_directive(struct lark *x)
{
    const char *at = x->p++, *name;
    size_t n = read_name(x, &name);
    skip_space(x, false);
    if (n == 6 && !memcmp(name, "ignore", n))
        read_ignore(x);
    else if (n == 6 && !memcmp(name, "import", n))
        read_import(x);
    else if (n != 10 || memcmp(name, "llguidance", n) || !lark_skip(x, "{}"))
        lark_fail(x, at, "the directive \"%%%s\" is not supported",
                  ERR_SHOW(name, n));
}

static void read_statement(struct lark *x)
{
    if (lark_peek(x, "%"))
        read_directive(x);
    else
        read_definition(x);
    if (failed(x))
        return;
    skip_space(x, false);
    if (x->p < x->end && *x->p != '\n')
        lark_fail(x, x->p, "expected an item or the end of the line");
}

/* The first name that is used and not defined. */
static void check_names(struct lark *x)
{
    for (size_t i = 0; i < x->n_uses && !failed(x); i++)
        if (!grammar_is_defined(x->g, x->uses[i].rule))
            lark_fail(x, x->uses[i].name, "\"%s\" is not defined",
                      ERR_SHOW(x->uses[i].name, x->uses[i].n));
}

uint32_t lark_compile(struct grammar *g, const char *text, size_t n)
{
    struct lark x = {.g = g,
                     .text = text,
                     .p = text,
                     .end = text + n,
                     .work = SCHEMA_MAX_WORK};
    x.ignores = memmem(text, n, "%ignore", 7) != NULL;
    x.ignored = grammar_new_rule(g, "%ignore", 7);
    size_t valid = utf8_valid(text, n);
    if (valid < n)
        lark_fail(&x, text + valid, "is not valid UTF-8");
    for (skip_space(&x, true); !failed(&x) && x.p < x.end; skip_space(&x, true))
        read_statement(&x);
    uint32_t start = grammar_rule(g, "start", 5);
    if (!failed(&x) && !grammar_is_defined(g, start))
        grammar_fail(g, "has no rule \"start\"");
    check_names(&x);
    if (!failed(&x))
        grammar_define(
            g, x.ignored,
            grammar_repeat(g,
                           grammar_alt(g, x.ignored_nodes.v, x.ignored_nodes.n),
                           0, GRAMMAR_UNBOUNDED));
    free(x.ignored_nodes.v);
    free(x.uses);
    return start;
}
