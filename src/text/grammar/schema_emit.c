/* Sets of schemas as nodes of a grammar, one alternative for each type. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/grammar/schema.h"
#include "text/grammar/schema_int.h"
#include "text/grammar/schema_number.h"
#include "text/grammar/schema_text.h"

/* If at most this many optional properties come before the first required one,
 * an object repeats the rest of its properties for each possible first one. */
enum { MAX_REPEATED_RESTS = 2 };

static uint32_t text(struct schema *s, const char *bytes)
{
    return grammar_bytes(s->g, bytes, strlen(bytes));
}

int schema_newline(const struct schema *s, struct buf *b, int level)
{
    static const char spaces[SCHEMA_MAX_INDENT + 1] = "                ";
    if (s->indent == 0)
        return 0;
    int rc = buf_putc(b, '\n');
    for (int i = 0; rc == 0 && i < level; i++)
        rc = buf_append(b, spaces, (size_t)s->indent);
    return rc ? err_oom(s->e, (size_t)level) : 0;
}

uint32_t schema_space(struct schema *s)
{
    if (s->space)
        return s->space;
    const uint32_t blanks[] = {
        grammar_repeat(s->g, text(s, " "), 0, SCHEMA_MAX_BLANKS),
        grammar_repeat(s->g, text(s, "\t"), 1, SCHEMA_MAX_BLANKS)};
    const uint32_t nodes[] = {
        GRAMMAR_EMPTY, text(s, " "),
        grammar_seq2(s->g, text(s, "\n"), grammar_alt(s->g, blanks, 2))};
    return s->space =
               grammar_shared(s->g, "space", grammar_alt(s->g, nodes, 3));
}

uint32_t schema_colon(struct schema *s)
{
    return s->free_space ? grammar_alt2(s->g, text(s, ":"), text(s, ": "))
                         : text(s, s->indent || s->spaced ? ": " : ":");
}

/* Return the node of `before`, a new line at a level, and `after`. */
static uint32_t line(struct schema *s, const char *before, int level,
                     const char *after)
{
    struct buf b = {0};
    uint32_t node = GRAMMAR_NOTHING;
    if (s->free_space) {
        const uint32_t parts[] = {text(s, before), schema_space(s),
                                  text(s, after)};
        return grammar_seq(s->g, parts, 3);
    }
    if (buf_puts(&b, before) == 0 && schema_newline(s, &b, level) == 0 &&
        buf_puts(&b, after) == 0)
        node = grammar_bytes(s->g, b.data, b.len);
    else
        err_oom(s->e, b.len);
    buf_free(&b);
    return node;
}

/* Return the node of what separates members and items. */
static uint32_t next_line(struct schema *s, int level)
{
    return line(s, s->spaced && !s->indent ? ", " : ",", level, "");
}

/* ---- strings ------------------------------------------------------------- */

uint32_t schema_emit_word(struct schema *s, const char *word, size_t n)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *p = dfa_words(&word, &n, 1, &at);
    return p ? text_string(s->g, p, TEXT_ESCAPE_SOME, TEXT_ANY_LENGTH)
             : GRAMMAR_NOTHING;
}

/* Set *without to the texts that no string has, or to NULL. */
static int unwritable(struct schema *s, const struct dfa **without)
{
    bool tags = s->form == SCHEMA_PARAMETERS;
    *without = tags ? schema_unreadable(s, 0) : NULL;
    return tags && !*without ? -1 : 0;
}

static uint32_t emit_string(struct schema *s, struct schema_node *const *v,
                            size_t n)
{
    const struct dfa *without;
    struct schema_string x;
    if (unwritable(s, &without) || schema_string_of(s, v, n, without, &x))
        return GRAMMAR_NOTHING;
    bool any = x.free_form && x.length.min == 0 && x.length.max < 0;
    if (any && s->string)
        return s->string;
    uint32_t node =
        text_string(s->g, x.points,
                    x.free_form ? TEXT_ESCAPE_ALL : TEXT_ESCAPE_SOME, x.length);
    if (any)
        node = s->string = grammar_shared(s->g, "string", node);
    return node;
}

/* ---- numbers, true, false, null ------------------------------------------ */

static uint32_t emit_number(struct schema *s, struct schema_node *const *v,
                            size_t n, bool integer)
{
    struct number_form f;
    struct qwick_err err = {0};
    struct dfa_place at = {&s->mem, &s->steps_left, &err};
    if (schema_number_of(s, v, n, integer, &f))
        return GRAMMAR_NOTHING;
    bool simple = f.n_limits == 0 && !f.multiple_of;
    uint32_t *shared = f.integer ? &s->integer : &s->number;
    if (simple && *shared)
        return *shared;
    const struct dfa *p = number_points(&f, &at);
    if (!p) {
        schema_refuse_err(s, n ? v[n - 1]->at : s->root,
                          f.multiple_of ? "multipleOf" : NULL, &err);
        return GRAMMAR_NOTHING;
    }
    uint32_t node = text_plain(s->g, p);
    if (simple)
        node = *shared =
            grammar_shared(s->g, f.integer ? "integer" : "number", node);
    return node;
}

static bool is_excluded(struct schema_node *const *v, size_t n,
                        enum json_type type, bool boolean)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i]->excluded.n; k++)
            if (v[i]->excluded.v[k]->type == type &&
                v[i]->excluded.v[k]->boolean == boolean)
                return true;
    return false;
}

static uint32_t emit_constants(struct schema *s, struct schema_node *const *v,
                               size_t n, unsigned types)
{
    uint32_t nodes[3] = {0};
    if ((types & T_NULL) && !is_excluded(v, n, JSON_NULL, false))
        nodes[0] = text(s, "null");
    if ((types & T_BOOLEAN) && !is_excluded(v, n, JSON_BOOL, true))
        nodes[1] = text(s, "true");
    if ((types & T_BOOLEAN) && !is_excluded(v, n, JSON_BOOL, false))
        nodes[2] = text(s, "false");
    return grammar_alt(s->g, nodes, 3);
}

/* ---- arrays -------------------------------------------------------------- */

/* Return the node of an array or object. It admits brackets around `some` and,
 * if may_be_empty, empty brackets. some: a node of one part or more, or
 * GRAMMAR_NOTHING if no part can be written. */
static uint32_t container(struct schema *s, const char *brackets, uint32_t some,
                          bool may_be_empty, int level)
{
    const char open[] = {brackets[0], '\0'}, close[] = {brackets[1], '\0'};
    const uint32_t parts[] = {line(s, open, level + 1, ""), some,
                              line(s, "", level, close)};
    return grammar_alt2(s->g, grammar_seq(s->g, parts, 3),
                        may_be_empty ? text(s, brackets) : GRAMMAR_NOTHING);
}

/* Whether values inside a value at this level may be written: with an indent,
 * each level needs rules of its own. */
static bool has_room(const struct schema *s, int level)
{
    return s->indent == 0 || level < SCHEMA_MAX_LEVELS;
}

static uint32_t item_node(struct schema *s, struct schema_node *const *v,
                          size_t n, size_t i, int level)
{
    struct schema_node **item = schema_alloc(s, n, sizeof *item);
    if (!item)
        return GRAMMAR_NOTHING;
    size_t n_item = schema_item_of(v, n, i, item);
    return schema_value_node(s, item, n_item, level + 1);
}

static uint32_t emit_array(struct schema *s, struct schema_node *const *v,
                           size_t n, int level)
{
    struct schema_array a = schema_array_of(v, n);
    uint32_t comma = next_line(s, level + 1), tail = GRAMMAR_EMPTY;
    int64_t fixed = (int64_t)(a.n_prefix ? a.n_prefix : 1);
    if (a.max >= 0 && fixed >= a.max)
        fixed = a.max;
    if (a.max >= 0 && a.min > a.max)
        return GRAMMAR_NOTHING;
    if (!has_room(s, level) || fixed == 0)
        return container(s, "[]", GRAMMAR_NOTHING, a.min == 0, level);
    if (a.max < 0 || a.max > fixed) {
        uint32_t rest = item_node(s, v, n, (size_t)fixed, level);
        tail = grammar_repeat(s->g, grammar_seq2(s->g, comma, rest),
                              a.min > fixed ? (uint32_t)(a.min - fixed) : 0,
                              a.max < 0 ? GRAMMAR_UNBOUNDED
                                        : (uint32_t)(a.max - fixed));
    }
    for (int64_t i = fixed; i-- > 0;) {
        const uint32_t parts[] = {i ? comma : GRAMMAR_EMPTY,
                                  item_node(s, v, n, (size_t)i, level), tail};
        tail = grammar_seq(s->g, parts, 3);
        if (i > 0 && i >= a.min)
            tail = grammar_repeat(s->g, tail, 0, 1);
    }
    return container(s, "[]", tail, a.min == 0, level);
}

/* ---- objects ------------------------------------------------------------- */

/* The nodes of an object's members: each member without a comma, and with a
 * comma before it. */
struct members {
    uint32_t *plain, *follow;
    bool *required;
    size_t n;
    size_t first_required; /* n: none */
    uint32_t extra;        /* a member that no schema names */
    uint32_t more;         /* ("," extra)* */
};

static uint32_t member_node(struct schema *s, uint32_t name,
                            struct schema_node *const *all, size_t n, int level)
{
    const uint32_t parts[] = {name, schema_colon(s),
                              schema_value_node(s, all, n, level + 1)};
    return grammar_seq(s->g, parts, 3);
}

/* The names of members that no schema names, with their quotes. Without a
 * limit, a model that draws words at random would hardly ever end a name. */
static uint32_t name_node(struct schema *s, const struct dfa *names)
{
    const struct text_length length = {0, MAX_NAME};
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *without;
    if (names == s->any_text && s->name)
        return s->name;
    if (unwritable(s, &without))
        return GRAMMAR_NOTHING;
    const struct dfa *p =
        without ? dfa_combine(names, without, true, &at) : names;
    if (!p)
        return GRAMMAR_NOTHING;
    uint32_t node = grammar_shared(
        s->g, "name", text_string(s->g, p, TEXT_ESCAPE_SOME, length));
    if (names == s->any_text)
        s->name = node;
    return node;
}

static int list_nodes(struct schema *s, const struct schema_object *o,
                      struct members *m, int level)
{
    uint32_t comma = next_line(s, level + 1);
    m->plain = schema_alloc(s, o->n_members, sizeof *m->plain);
    m->follow = schema_alloc(s, o->n_members, sizeof *m->follow);
    m->required = schema_alloc(s, o->n_members, sizeof *m->required);
    if (!m->plain || !m->follow || !m->required)
        return -1;
    for (size_t i = 0; i < o->n_members; i++) {
        const struct schema_member *from = &o->members[i];
        if (from->forbidden)
            continue;
        struct json_value key = *from->name;
        m->plain[m->n] = member_node(s, schema_literal(s, &key, 0), from->all,
                                     from->n_all, level);
        m->follow[m->n] = grammar_seq2(s->g, comma, m->plain[m->n]);
        m->required[m->n++] = from->required;
    }
    for (size_t i = 0; i < o->n_extras; i++) {
        const struct schema_extra *x = &o->extras[i];
        uint32_t name = name_node(s, x->names);
        m->extra = grammar_alt2(s->g, m->extra,
                                member_node(s, name, x->all, x->n_all, level));
    }
    m->more = grammar_repeat(s->g, grammar_seq2(s->g, comma, m->extra), 0,
                             GRAMMAR_UNBOUNDED);
    while (m->first_required < m->n && !m->required[m->first_required])
        m->first_required++;
    return s->e->code ? -1 : 0;
}

/* Return the node of the members from i on, which follow another member. */
static uint32_t rest_from(struct schema *s, const struct members *m, size_t i)
{
    uint32_t *parts = schema_alloc(s, m->n - i + 1, sizeof *parts);
    size_t n = 0;
    if (!parts)
        return GRAMMAR_NOTHING;
    for (; i < m->n; i++)
        parts[n++] = m->required[i] ? m->follow[i]
                                    : grammar_repeat(s->g, m->follow[i], 0, 1);
    parts[n++] = m->more;
    return grammar_seq(s->g, parts, n);
}

/* Return the node of at least one member. Any optional member can be the first
 * unless a required one comes before it. If there are many members, rules share
 * the parts that follow the first one. */
static uint32_t some_members(struct schema *s, const struct members *m)
{
    size_t last = m->first_required < m->n ? m->first_required + 1 : m->n;
    uint32_t *firsts = schema_alloc(s, last + 1, sizeof *firsts);
    uint32_t rest = rest_from(s, m, last);
    bool share = m->first_required > MAX_REPEATED_RESTS;
    size_t n = 0;
    if (!firsts)
        return GRAMMAR_NOTHING;
    if (m->first_required == m->n)
        firsts[n++] = grammar_seq2(s->g, m->extra, m->more);
    for (size_t i = last; i-- > 0;) {
        if (share)
            rest = grammar_shared(s->g, "members", rest);
        firsts[n++] = grammar_seq2(s->g, m->plain[i], rest);
        uint32_t follow = m->required[i]
                              ? m->follow[i]
                              : grammar_repeat(s->g, m->follow[i], 0, 1);
        if (i > 0)
            rest = grammar_seq2(s->g, follow, rest);
    }
    return grammar_alt(s->g, firsts, n);
}

static uint32_t emit_object(struct schema *s, struct schema_node *const *v,
                            size_t n, int level)
{
    struct schema_object o;
    struct members m = {.extra = GRAMMAR_NOTHING};
    bool room = has_room(s, level);
    if (schema_object_of(s, v, n, &o, room))
        return GRAMMAR_NOTHING;
    bool may_be_empty = true;
    for (size_t i = 0; i < o.n_members; i++) {
        if (o.members[i].required && o.members[i].forbidden)
            return GRAMMAR_NOTHING;
        may_be_empty &= !o.members[i].required;
    }
    if (!room)
        return container(s, "{}", GRAMMAR_NOTHING, may_be_empty, level);
    if (list_nodes(s, &o, &m, level))
        return GRAMMAR_NOTHING;
    return container(s, "{}", some_members(s, &m), may_be_empty, level);
}

/* ---- all types ----------------------------------------------------------- */

uint32_t schema_emit(struct schema *s, struct schema_node *const *v, size_t n,
                     int level)
{
    unsigned types = schema_types(v, n);
    bool parameter = level <= LEVEL_TEXT;
    if (level == LEVEL_PARAMETERS)
        return types & T_OBJECT ? schema_emit_parameters(s, v, n)
                                : GRAMMAR_NOTHING;
    if (parameter)
        types = schema_text_types(types, level);
    uint32_t nodes[5] = {emit_constants(s, v, n, types)};
    if (types & (T_INTEGER | T_NUMBER))
        nodes[1] = emit_number(s, v, n, !(types & T_NUMBER));
    if (types & T_STRING)
        nodes[2] =
            parameter ? schema_emit_text(s, v, n, level) : emit_string(s, v, n);
    if (types & T_ARRAY)
        nodes[3] = emit_array(s, v, n, parameter ? 0 : level);
    if (types & T_OBJECT)
        nodes[4] = emit_object(s, v, n, parameter ? 0 : level);
    return grammar_alt(s->g, nodes, 5);
}
