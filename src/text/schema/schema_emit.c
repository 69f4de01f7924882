/* Sets of schemas as nodes of a grammar, one alternative for each type. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/chat/call_forms.h"
#include "text/grammar/dfa_text.h"
#include "text/schema/schema.h"
#include "text/schema/schema_int.h"
#include "text/schema/schema_number.h"

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

uint32_t schema_comma(struct schema *s, int level)
{
    return line(s, s->spaced && !s->indent ? ", " : ",", level, "");
}

/* ---- strings ------------------------------------------------------------- */

uint32_t schema_string_node(struct schema *s, const struct dfa *p,
                            enum text_escapes escapes,
                            struct text_length length)
{
    if (s->form != SCHEMA_BARE)
        return text_string(s->g, p, escapes, length);
    const uint32_t parts[] = {text(s, s->call->quote),
                              text_body(s->g, p, TEXT_ESCAPE_NONE, length),
                              text(s, s->call->quote)};
    return grammar_seq(s->g, parts, 3);
}

uint32_t schema_emit_word(struct schema *s, const char *word, size_t n)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *p = dfa_words(&word, &n, 1, &at);
    return p ? schema_string_node(s, p, TEXT_ESCAPE_SOME, TEXT_ANY_LENGTH)
             : GRAMMAR_NOTHING;
}

int schema_unwritable(struct schema *s, const struct dfa **without)
{
    bool tags = s->form == SCHEMA_PARAMETERS || s->form == SCHEMA_BARE;
    *without = tags ? schema_unreadable(s, 0) : NULL;
    return tags && !*without ? -1 : 0;
}

static uint32_t emit_string(struct schema *s, struct schema_node *const *v,
                            size_t n)
{
    const struct dfa *without;
    struct schema_string x;
    if (schema_unwritable(s, &without) || schema_string_of(s, v, n, without, &x))
        return GRAMMAR_NOTHING;
    bool any = x.free_form && x.length.min == 0 && x.length.max < 0;
    if (any && s->string)
        return s->string;
    uint32_t node = schema_string_node(
        s, x.points, x.free_form ? TEXT_ESCAPE_ALL : TEXT_ESCAPE_SOME,
        x.length);
    if (any)
        node = s->string = grammar_shared(s->g, "string", node);
    return node;
}

/* ---- numbers, true, false, null ------------------------------------------ */

static uint32_t emit_number(struct schema *s, struct schema_node *const *v,
                            size_t n, unsigned types)
{
    struct number_form f;
    if (schema_number_of(s, v, n, !(types & T_NUMBER), &f))
        return GRAMMAR_NOTHING;
    bool simple = f.n_limits == 0 && !f.multiple.m && (types & T_INTEGER);
    for (size_t i = 0; i < n; i++)
        simple &= !v[i]->not_multiple;
    uint32_t *shared = f.integer ? &s->integer : &s->number;
    if (simple && *shared)
        return *shared;
    const struct dfa *p = schema_number_points(s, v, n, types, &f);
    if (!p)
        return GRAMMAR_NOTHING;
    uint32_t node = text_body(s->g, p, TEXT_ESCAPE_NONE,
                              (struct text_length){0, number_length(&f)});
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

/* ---- arrays and objects ---------------------------------------------- */

uint32_t schema_container(struct schema *s, const char *brackets, uint32_t some,
                          bool may_be_empty, int level)
{
    const char open[] = {brackets[0], '\0'}, close[] = {brackets[1], '\0'};
    const uint32_t parts[] = {line(s, open, level + 1, ""), some,
                              line(s, "", level, close)};
    return grammar_alt2(s->g, grammar_seq(s->g, parts, 3),
                        may_be_empty ? text(s, brackets) : GRAMMAR_NOTHING);
}

bool schema_has_room(const struct schema *s, int level)
{
    return s->indent == 0 || level < SCHEMA_MAX_LEVELS;
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
        nodes[1] = emit_number(s, v, n, types);
    if (types & T_STRING)
        nodes[2] =
            parameter ? schema_emit_text(s, v, n, level) : emit_string(s, v, n);
    if (types & T_ARRAY)
        nodes[3] = schema_emit_array(s, v, n, parameter ? 0 : level);
    if (types & T_OBJECT)
        nodes[4] = schema_emit_object(s, v, n, parameter ? 0 : level);
    return grammar_alt(s->g, nodes, 5);
}
