/* Sets of schemas that one value must satisfy together: their nodes, and their
 * rules. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "text/schema/schema_set.h"

/* ---- collecting ---------------------------------------------------------- */

static int walk_push(struct schema *s, size_t *n, struct schema_node *node,
                     bool self)
{
    if (ARRAY_RESERVE(s->stack, s->cap_stack, *n + 1, s->e))
        return -1;
    s->stack[(*n)++] = (struct walk){node, self};
    return 0;
}

static int set_append(struct schema *s, uint32_t item)
{
    if (ARRAY_RESERVE(s->list, s->cap_list, s->n_list + 1, s->e))
        return -1;
    s->list[s->n_list++] = item;
    return 0;
}

/* Push the parts of a node, the last one first: itself, its $ref and its allOf,
 * in the order of the text, and what schema_rewrite makes of it. */
static int push_parts(struct schema *s, size_t *n, struct schema_node *node)
{
    if (schema_rewrite(s, node))
        return -1;
    for (size_t i = node->derived.n; i-- > 0;)
        if (walk_push(s, n, node->derived.v[i], false))
            return -1;
    size_t order[] = {node->self_order, node->ref_order, node->all_order};
    for (size_t left = 3; left > 0; left--) {
        size_t last = 0;
        for (size_t i = 1; i < 3; i++)
            if (order[last] == SIZE_MAX ||
                (order[i] != SIZE_MAX && order[i] > order[last]))
                last = i;
        order[last] = SIZE_MAX; /* done */
        if (last == 0 && !node->plain && walk_push(s, n, node, true))
            return -1;
        if (last == 1 && node->ref && walk_push(s, n, node->ref, false))
            return -1;
        for (size_t i = node->all.n; last == 2 && i-- > 0;)
            if (walk_push(s, n, node->all.v[i], false))
                return -1;
    }
    return schema_step(s, 1 + node->all.n + node->derived.n);
}

int schema_collect(struct schema *s, const uint32_t *old, size_t n_old,
                   struct schema_node *const *roots, size_t n)
{
    size_t n_stack = 0;
    s->n_list = 0;
    s->stamp++;
    for (size_t i = 0; i < n_old; i++) {
        s->nodes[old[i] / 4]->stamp = s->stamp;
        if (set_append(s, old[i]))
            return -1;
    }
    for (size_t i = n; i-- > 0;)
        if (walk_push(s, &n_stack, roots[i], false))
            return -1;
    while (n_stack > 0) {
        struct walk at = s->stack[--n_stack];
        if (at.self) {
            if (set_append(s, 4 * at.node->id))
                return -1;
        } else if (at.node->stamp != s->stamp) {
            at.node->stamp = s->stamp;
            if (push_parts(s, &n_stack, at.node))
                return -1;
        }
    }
    return schema_step(s, 1 + n_old + n);
}

uint32_t *schema_copy_list(struct schema *s)
{
    uint32_t *copy = schema_alloc(s, s->n_list, sizeof *copy);
    if (copy && s->n_list)
        memcpy(copy, s->list, s->n_list * sizeof *copy);
    return copy;
}

const struct schema_set *schema_set_of(struct schema *s, int level)
{
    uint64_t h =
        hash_bytes((uint64_t)level, s->list, s->n_list * sizeof *s->list);
    uint32_t at = hashmap_slot(&s->by_items, h), i;
    while ((i = hashmap_next(&s->by_items, h, &at)) != HASHMAP_NONE) {
        const struct schema_set *set = &s->sets[i];
        if (set->level == level && set->n == s->n_list &&
            (set->n == 0 ||
             memcmp(set->items, s->list, set->n * sizeof *set->items) == 0))
            return set;
    }
    if (s->n_sets == MAX_SETS) {
        s->exhausted = true;
        err_usage(s->e, "the schema has more than %d combinations of schemas",
                  MAX_SETS);
        return NULL;
    }
    uint32_t *items = schema_copy_list(s);
    if (!items || ARRAY_RESERVE(s->sets, s->cap_sets, s->n_sets + 1, s->e))
        return NULL;
    s->sets[s->n_sets] =
        (struct schema_set){.items = items,
                            .n = s->n_list,
                            .level = level,
                            .rule = grammar_new_rule(s->g, "value", 5)};
    hashmap_put(&s->by_items, h, (uint32_t)s->n_sets);
    return &s->sets[s->n_sets++];
}

uint32_t schema_value_node(struct schema *s, struct schema_node *const *roots,
                           size_t n, int level)
{
    if (schema_collect(s, NULL, 0, roots, n))
        return GRAMMAR_NOTHING;
    const struct schema_set *set = schema_set_of(s, s->indent ? level : 0);
    return set ? grammar_ref(s->g, set->rule) : GRAMMAR_NOTHING;
}

struct schema_node **schema_nodes(struct schema *s, const uint32_t *items,
                                  size_t n)
{
    struct schema_node **v = schema_alloc(s, n, sizeof *v);
    for (size_t i = 0; v && i < n; i++)
        v[i] = s->nodes[items[i] / 4];
    return v;
}

/* ---- values of enum and const -------------------------------------------- */

bool schema_listed_values(struct schema_node *const *v, size_t n,
                          const struct json_value **values, size_t *n_values)
{
    for (size_t i = 0; i < n; i++) {
        const struct json_value *list = v[i]->enumeration;
        *values = v[i]->constant ? v[i]->constant : list ? list->items : NULL;
        *n_values = v[i]->constant ? 1 : list ? list->len : 0;
        if (v[i]->constant || list)
            return true;
    }
    return false;
}

int schema_all_admit(struct schema *s, const uint32_t *items, size_t n,
                     const struct json_value *value)
{
    for (size_t i = 0; i < n; i++) {
        int rc =
            schema_admits(s, s->nodes[items[i] / 4], !(items[i] & ANY_DONE),
                          !(items[i] & ONE_DONE), value);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

static int define_values(struct schema *s, const uint32_t *items, size_t n,
                         int level, const struct json_value *values,
                         size_t n_values, uint32_t *node)
{
    uint32_t *nodes = schema_alloc(s, n_values, sizeof *nodes);
    if (!nodes)
        return -1;
    for (size_t i = 0; i < n_values; i++) {
        int rc = schema_all_admit(s, items, n, &values[i]);
        if (rc < 0)
            return -1;
        if (rc)
            nodes[i] = level < 0 ? schema_text_literal(s, &values[i], level)
                                 : schema_literal(s, &values[i], level);
    }
    *node = grammar_alt(s->g, nodes, n_values);
    return s->e->code ? -1 : 0;
}

/* Set *node to the node of the values of a branch. Constants need no rule. */
static int define_branch(struct schema *s, uint32_t *items, size_t n, int level,
                         uint32_t *node)
{
    struct schema_node **v = schema_nodes(s, items, n);
    const struct json_value *values;
    size_t n_values;
    if (!v)
        return -1;
    if (schema_listed_values(v, n, &values, &n_values))
        return define_values(s, items, n, level, values, n_values, node);
    if (schema_settle(s, items, n) || schema_collect(s, items, n, NULL, 0))
        return -1;
    const struct schema_set *set = schema_set_of(s, level);
    *node = set ? grammar_ref(s->g, set->rule) : GRAMMAR_NOTHING;
    return set ? 0 : -1;
}

static int define_branches(struct schema *s, const struct schema_set *set,
                           const struct schema_choice *c,
                           const struct schema_overlaps *overlaps,
                           uint32_t *node)
{
    size_t n = c->branches->n;
    const uint32_t *items = set->items;
    size_t n_items = set->n;
    int level = set->level;
    uint32_t *nodes = schema_alloc(s, n, sizeof *nodes);
    if (!nodes)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (schema_collect_branch(s, items, n_items, c, overlaps, i))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = schema_copy_list(s);
        bool made = false;
        for (size_t k = 0; list && k < n_list && !made; k++)
            made = s->nodes[list[k] / 4]->made;
        int never =
            list ? schema_never(s, list, n_list, made ? NEAR_DEPTH : 0) : -1;
        if (never < 0 ||
            (!never && define_branch(s, list, n_list, level, &nodes[i])))
            return -1;
    }
    *node = grammar_alt(s->g, nodes, n);
    return 0;
}

static int define_choice(struct schema *s, const struct schema_set *set,
                         const struct schema_choice *c, uint32_t *node)
{
    struct schema_overlaps overlaps = {0};
    int rc = 0;
    if (c->one)
        rc = schema_find_overlaps(s, set->items, set->n, c, &overlaps);
    if (rc == 0 && s->simple && overlaps.n > 0)
        rc = schema_cannot_hold(s, s->nodes[set->items[c->item] / 4]->at,
                                "oneOf", "has too many combinations")
                 ? -1
                 : 1;
    if (rc > 0)
        overlaps.n = 0;
    if (rc >= 0)
        rc = define_branches(s, set, c, &overlaps, node);
    free(overlaps.v);
    return rc;
}

int schema_define(struct schema *s, const struct schema_set *set,
                  uint32_t *node)
{
    struct schema_node **v = schema_nodes(s, set->items, set->n);
    struct schema_choice c;
    const struct json_value *values;
    size_t n_values;
    int level = set->level;
    *node = GRAMMAR_NOTHING;
    if (!v)
        return -1;
    for (size_t i = 0; i < set->n; i++)
        if (v[i]->never)
            return 0;
    if (schema_listed_values(v, set->n, &values, &n_values))
        return define_values(s, set->items, set->n, level, values, n_values,
                             node);
    if (schema_next_choice(s, set->items, set->n, &c))
        return -1;
    if (c.branches)
        return define_choice(s, set, &c, node);
    *node = schema_emit(s, v, set->n, level);
    return s->e->code ? -1 : 0;
}
