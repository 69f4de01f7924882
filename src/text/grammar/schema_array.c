/* Arrays as nodes of a grammar. */
#include "text/grammar/schema_int.h"

/* The most values of items that all differ. */
enum { MAX_UNIQUE = 1000 };

uint32_t schema_item_node(struct schema *s, struct schema_node *const *v,
                          size_t n, size_t i, struct schema_node *const *also,
                          size_t n_also, int level)
{
    struct schema_node **item = schema_alloc(s, n + n_also, sizeof *item);
    if (!item)
        return GRAMMAR_NOTHING;
    size_t n_item = schema_item_of(v, n, i, item);
    for (size_t k = 0; k < n_also; k++)
        item[n_item++] = also[k];
    return schema_value_node(s, item, n_item, level + 1);
}

/* Return the node of the items of an array that has at least one, and more than
 * items 0..fixed may have. */
static uint32_t some_items(struct schema *s, struct schema_node *const *v,
                           size_t n, const struct schema_array *a, int level)
{
    uint32_t comma = schema_comma(s, level + 1), tail = GRAMMAR_EMPTY;
    int64_t fixed = (int64_t)(a->n_prefix ? a->n_prefix : 1);
    if (a->max >= 0 && fixed >= a->max)
        fixed = a->max;
    if (a->max < 0 || a->max > fixed) {
        uint32_t rest = schema_item_node(s, v, n, (size_t)fixed, NULL, 0, level);
        tail = grammar_repeat(s->g, grammar_seq2(s->g, comma, rest),
                              a->min > fixed ? (uint32_t)(a->min - fixed) : 0,
                              a->max < 0 ? GRAMMAR_UNBOUNDED
                                         : (uint32_t)(a->max - fixed));
    }
    for (int64_t i = fixed; i-- > 0;) {
        const uint32_t parts[] = {i ? comma : GRAMMAR_EMPTY,
                                  schema_item_node(s, v, n, (size_t)i, NULL, 0, level),
                                  tail};
        tail = grammar_seq(s->g, parts, 3);
        if (i > 0 && i >= a->min)
            tail = grammar_repeat(s->g, tail, 0, 1);
    }
    return tail;
}

/* ---- uniqueItems --------------------------------------------------------- */

/* Set *differ to whether the items of an array with prefixItems cannot be
 * equal. */
static int items_differ(struct schema *s, struct schema_node *const *v,
                        size_t n, const struct schema_array *a, bool *differ)
{
    size_t most = a->n_prefix + 1; /* more items have one schema */
    struct schema_node **all = schema_alloc(s, 2 * n, sizeof *all);
    if (!all)
        return -1;
    size_t n_all = schema_item_of(v, n, a->n_prefix, all);
    int rc = n_all ? schema_disjoint(s, all, n_all) : 0;
    bool rest = rc == 0 && (a->max < 0 || a->max > (int64_t)a->n_prefix);
    if (!rest)
        most--;
    *differ = !rest || a->max == (int64_t)most;
    for (size_t i = 0; rc >= 0 && *differ && i < most; i++)
        for (size_t k = i + 1; rc >= 0 && *differ && k < most; k++) {
            n_all = schema_item_of(v, n, i, all);
            n_all += schema_item_of(v, n, k, all + n_all);
            rc = n_all ? schema_disjoint(s, all, n_all) : 0;
            *differ = rc > 0;
        }
    return rc < 0 ? -1 : 0;
}

/* Return the node of an array whose items are different values of a list. */
static uint32_t different_items(struct schema *s, const struct schema_array *a,
                                const struct value_list *list, int level)
{
    uint32_t *parts = schema_alloc(s, list->n, sizeof *parts);
    if (!parts)
        return GRAMMAR_NOTHING;
    for (size_t i = 0; i < list->n; i++)
        parts[i] = schema_literal(s, list->v[i], level + 1);
    const struct grammar_once once = {.parts = parts,
                                      .n = list->n,
                                      .other = GRAMMAR_NOTHING,
                                      .comma = schema_comma(s, level + 1),
                                      .min = (uint32_t)a->min,
                                      .max = a->max < 0 ? GRAMMAR_UNBOUNDED
                                                        : (uint32_t)a->max};
    return schema_container(s, "[]", grammar_once(s->g, &once), a->min == 0,
                            level);
}

/* Set *few to the values of items that all differ. Leave it empty and forget
 * uniqueItems if it refuses nothing else, or cannot be held. */
static int check_unique(struct schema *s, struct schema_node *const *v,
                        size_t n, struct schema_array *a,
                        struct value_list *few)
{
    const struct schema_node *node = a->unique;
    struct schema_node **item = schema_alloc(s, n, sizeof *item);
    bool differ = a->max >= 0 && a->max <= 1;
    size_t n_item;
    int rc;
    if (!node || !item)
        return item ? 0 : -1;
    a->unique = NULL;
    if (!differ && a->n_prefix && items_differ(s, v, n, a, &differ))
        return -1;
    if (differ)
        return 0;
    if (a->contains)
        return schema_cannot_hold(s, node->at, "uniqueItems",
                                  "is not supported beside contains");
    if (a->n_prefix)
        return schema_cannot_hold(s, node->at, "uniqueItems",
                                  "is not supported beside prefixItems that "
                                  "may be equal");
    n_item = schema_item_of(v, n, 0, item);
    rc = n_item ? schema_few_values(s, item, n_item, MAX_UNIQUE, few) : 0;
    if (rc < 0)
        return -1;
    if (rc == 0)
        return schema_cannot_hold(s, node->at, "uniqueItems",
                                  "is not supported for items with more than "
                                  "%d values",
                                  MAX_UNIQUE);
    a->unique = node;
    return 0;
}

/* ---- arrays -------------------------------------------------------------- */

uint32_t schema_emit_array(struct schema *s, struct schema_node *const *v,
                           size_t n, int level)
{
    struct schema_array a = schema_array_of(v, n);
    struct value_list few = {0};
    if (a.max >= 0 && a.min > a.max)
        return GRAMMAR_NOTHING;
    if (!schema_has_room(s, level) || a.max == 0)
        return schema_container(s, "[]", GRAMMAR_NOTHING, a.min == 0, level);
    if (check_unique(s, v, n, &a, &few) || schema_check_contains(s, &a))
        return GRAMMAR_NOTHING;
    if (a.unique)
        return different_items(s, &a, &few, level);
    uint32_t some = a.contains ? schema_counted_items(s, v, n, &a, level)
                               : some_items(s, v, n, &a, level);
    return schema_container(s, "[]", some, a.min == 0, level);
}
