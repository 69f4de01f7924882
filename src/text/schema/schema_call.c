/* The arguments of a tool's call as parameters with plain texts, as Qwen3-Coder
 * writes them. Only the schema tells the string "5" from the number 5, so each
 * text must be one that tool_value_json reads as the value that is meant. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/chat/call_forms.h"
#include "text/chat/tool_value.h"
#include "text/schema/schema_int.h"
#include "text/grammar/dfa_text.h"

static unsigned reader_types(int level)
{
    return (unsigned)(LEVEL_TEXT - level);
}

unsigned schema_text_types(unsigned types, int level)
{
    static const struct {
        unsigned ours, theirs;
    } rows[] = {
        {T_NULL, TOOL_NULL},     {T_BOOLEAN, TOOL_BOOLEAN},
        {T_NUMBER, TOOL_NUMBER}, {T_INTEGER, TOOL_NUMBER | TOOL_INTEGER},
        {T_STRING, TOOL_STRING}, {T_ARRAY, TOOL_ARRAY},
        {T_OBJECT, TOOL_OBJECT},
    };
    unsigned read = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (reader_types(level) & rows[i].theirs)
            read |= rows[i].ours;
    return types & read;
}

bool schema_has_tag(const struct schema *s, const char *text, size_t n)
{
    const char *const tags[] = {s->call->key_end, s->call->last,
                                s->call->quote};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (tags[i] && memmem(text, n, tags[i], strlen(tags[i])))
            return true;
    return false;
}

uint32_t schema_emit_text(struct schema *s, struct schema_node *const *v,
                          size_t n, int level)
{
    const struct dfa *bad = schema_unreadable(s, reader_types(level));
    struct schema_string x;
    if (!bad || schema_string_of(s, v, n, bad, &x))
        return GRAMMAR_NOTHING;
    return grammar_shared(
        s->g, "text", text_body(s->g, x.points, TEXT_ESCAPE_NONE, x.length));
}

uint32_t schema_text_literal(struct schema *s, const struct json_value *v,
                             int level)
{
    unsigned reads = reader_types(level);
    if (level == LEVEL_PARAMETERS) {
        schema_refuse(s, v, NULL,
                      "const and enum of all arguments together are not "
                      "supported for the calls of this model");
        return GRAMMAR_NOTHING;
    }
    if (v->type == JSON_STRING) {
        const struct dfa *bad = schema_unreadable(s, reads);
        if (!bad || !(reads & TOOL_STRING) || dfa_match(bad, v->str, v->len))
            return GRAMMAR_NOTHING;
        return grammar_bytes(s->g, v->str, v->len);
    }
    if (!schema_text_types(schema_type_of(s, v), level))
        return GRAMMAR_NOTHING;
    /* an integer may be written with a fraction or an exponent */
    if (v->type == JSON_NUMBER && !(reads & TOOL_NUMBER) &&
        strcspn(v->str, ".eE") != v->len)
        return GRAMMAR_NOTHING;
    return schema_literal(s, v, 0);
}

/* Return the node of a parameter's value. The tool's reader looks for its
 * schema among the properties of the outermost level. */
static uint32_t parameter_text(struct schema *s, const struct schema_member *m)
{
    const struct json_value *props = json_get(s->root, "properties");
    unsigned reads = tool_value_types(
        s->root, json_get_n(props, m->name->str, m->name->len));
    if (schema_collect(s, NULL, 0, m->all, m->n_all))
        return GRAMMAR_NOTHING;
    const struct schema_set *set = schema_set_of(s, LEVEL_TEXT - (int)reads);
    return set ? grammar_ref(s->g, set->rule) : GRAMMAR_NOTHING;
}

static uint32_t parameter(struct schema *s, const struct schema_member *m)
{
    const struct call_form *f = s->call;
    const char *line = f->lines ? "\n" : "";
    struct buf open = {0}, close = {0};
    uint32_t node = GRAMMAR_NOTHING;
    if (memchr(m->name->str, f->key_close[0], m->name->len)) {
        schema_refuse(s, m->name, NULL,
                      "the calls of this model cannot have the parameter "
                      "\"%s\": its name has a \"%c\"",
                      ERR_SHOW(m->name->str, m->name->len), f->key_close[0]);
        return node;
    }
    if (buf_puts(&open, f->key_open) ||
        buf_append(&open, m->name->str, m->name->len) ||
        buf_printf(&open, "%s%s", f->key_close, line) ||
        buf_printf(&close, "%s%s\n", line, f->key_end)) {
        err_oom(s->e, m->name->len);
    } else {
        const uint32_t parts[] = {grammar_bytes(s->g, open.data, open.len),
                                  parameter_text(s, m),
                                  grammar_bytes(s->g, close.data, close.len)};
        node = grammar_seq(s->g, parts, 3);
    }
    buf_free(&open);
    buf_free(&close);
    return node;
}

static int list_parameters(struct schema *s, const struct schema_object *o,
                           struct schema_members *m)
{
    m->plain = m->follow = schema_alloc(s, o->n_members, sizeof *m->plain);
    m->required = schema_alloc(s, o->n_members, sizeof *m->required);
    if (!m->plain || !m->required)
        return -1;
    for (size_t i = 0; i < o->n_members; i++) {
        if (o->members[i].forbidden)
            continue;
        m->plain[m->n] = parameter(s, &o->members[i]);
        m->required[m->n++] = o->members[i].required;
        if (s->e->code)
            return -1;
    }
    return 0;
}

uint32_t schema_emit_parameters(struct schema *s, struct schema_node *const *v,
                                size_t n)
{
    struct schema_object o;
    struct schema_members m = {.extra = GRAMMAR_NOTHING};
    if (schema_object_of(s, v, n, &o, false))
        return GRAMMAR_NOTHING;
    for (size_t i = 0; i < n; i++)
        if (v[i]->others)
            return GRAMMAR_NOTHING;
    if (o.n_members > TOOL_MAX_PARAMETERS) {
        schema_refuse(s, s->root, NULL,
                      "%zu properties are more than the %d parameters that a "
                      "call can have",
                      o.n_members, TOOL_MAX_PARAMETERS);
        return GRAMMAR_NOTHING;
    }
    if (schema_refuses_all(&o) || list_parameters(s, &o, &m))
        return GRAMMAR_NOTHING;
    if (schema_counts_members(&o, &m) || o.min > (int64_t)o.n_required)
        return schema_counted_members(s, &o, &m, true);
    for (size_t i = 0; i < m.n; i++)
        if (!m.required[i])
            m.plain[i] = grammar_repeat(s->g, m.plain[i], 0, 1);
    return grammar_seq(s->g, m.plain, m.n);
}
