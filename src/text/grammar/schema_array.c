/* Arrays as nodes of a grammar. */
#include "text/grammar/schema_int.h"

static uint32_t item_node(struct schema *s, struct schema_node *const *v,
                          size_t n, size_t i, int level)
{
    struct schema_node **item = schema_alloc(s, n, sizeof *item);
    if (!item)
        return GRAMMAR_NOTHING;
    size_t n_item = schema_item_of(v, n, i, item);
    return schema_value_node(s, item, n_item, level + 1);
}

uint32_t schema_emit_array(struct schema *s, struct schema_node *const *v,
                           size_t n, int level)
{
    struct schema_array a = schema_array_of(v, n);
    uint32_t comma = schema_comma(s, level + 1), tail = GRAMMAR_EMPTY;
    int64_t fixed = (int64_t)(a.n_prefix ? a.n_prefix : 1);
    if (a.max >= 0 && fixed >= a.max)
        fixed = a.max;
    if (a.max >= 0 && a.min > a.max)
        return GRAMMAR_NOTHING;
    if (!schema_has_room(s, level) || fixed == 0)
        return schema_container(s, "[]", GRAMMAR_NOTHING, a.min == 0, level);
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
    return schema_container(s, "[]", tail, a.min == 0, level);
}
