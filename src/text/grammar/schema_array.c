/* Arrays as nodes of a grammar. */
#include "text/grammar/schema_int.h"

/* The most rules for the items of an array of which some are counted. */
enum { MAX_COUNTED = 20000 };

/* The most values of items that all differ. */
enum { MAX_UNIQUE = 1000 };

/* Return the node of item i. also: another schema that it satisfies, or
 * NULL. */
static uint32_t item_node(struct schema *s, struct schema_node *const *v,
                          size_t n, size_t i, struct schema_node *also,
                          int level)
{
    struct schema_node **item = schema_alloc(s, n + 1, sizeof *item);
    if (!item)
        return GRAMMAR_NOTHING;
    size_t n_item = schema_item_of(v, n, i, item);
    if (also)
        item[n_item++] = also;
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
        uint32_t rest = item_node(s, v, n, (size_t)fixed, NULL, level);
        tail = grammar_repeat(s->g, grammar_seq2(s->g, comma, rest),
                              a->min > fixed ? (uint32_t)(a->min - fixed) : 0,
                              a->max < 0 ? GRAMMAR_UNBOUNDED
                                         : (uint32_t)(a->max - fixed));
    }
    for (int64_t i = fixed; i-- > 0;) {
        const uint32_t parts[] = {i ? comma : GRAMMAR_EMPTY,
                                  item_node(s, v, n, (size_t)i, NULL, level),
                                  tail};
        tail = grammar_seq(s->g, parts, 3);
        if (i > 0 && i >= a->min)
            tail = grammar_repeat(s->g, tail, 0, 1);
    }
    return tail;
}

/* ---- contains ------------------------------------------------------------ */

/* An array of which some items are counted. */
struct counted {
    const struct schema_array *a;
    size_t n;    /* items from this one on have one schema */
    size_t cap;  /* counts above do not matter, or are too many */
    bool before; /* a comma is before the current item */
    uint32_t comma;
    uint32_t some, other; /* an item that counts, and one that need not */
};

/* Set the nodes of item i. */
static void set_items(struct schema *s, struct schema_node *const *v, size_t n,
                      size_t i, int level, struct counted *c)
{
    c->before = i > 0;
    c->some = item_node(s, v, n, i, c->a->contains->contains, level);
    c->other = item_node(s, v, n, i, NULL, level);
}

/* Return the node of one item and what follows. */
static uint32_t item_then(struct schema *s, const struct counted *c,
                          uint32_t item, uint32_t next)
{
    const uint32_t parts[] = {c->before ? c->comma : GRAMMAR_EMPTY, item, next};
    return grammar_seq(s->g, parts, 3);
}

/* Return the node of what follows the items 0..n-1, of which k are counted.
 * more: that for k + 1. */
static uint32_t items_after(struct schema *s, const struct counted *c, size_t k,
                            uint32_t more)
{
    uint32_t end =
        (int64_t)k >= c->a->min_contains ? GRAMMAR_EMPTY : GRAMMAR_NOTHING;
    if (c->a->max >= 0)
        return end;
    uint32_t some =
        k < c->cap ? item_then(s, c, c->some, more) : GRAMMAR_NOTHING;
    uint32_t others = grammar_repeat(
        s->g, item_then(s, c, c->other, GRAMMAR_EMPTY), 0, GRAMMAR_UNBOUNDED);
    return grammar_shared(
        s->g, "items",
        grammar_seq2(s->g, others, grammar_alt2(s->g, end, some)));
}

/* Return the node of the items from item i on. node: those of the items after
 * it, by the number of counted ones. */
static uint32_t items_from(struct schema *s, const struct counted *c, size_t i,
                           size_t k, const uint32_t *node)
{
    bool may_end =
        i > 0 && (int64_t)i >= c->a->min && (int64_t)k >= c->a->min_contains;
    const uint32_t nodes[] = {may_end ? GRAMMAR_EMPTY : GRAMMAR_NOTHING,
                              item_then(s, c, c->other, node[k]),
                              k < c->cap ? item_then(s, c, c->some, node[k + 1])
                                         : GRAMMAR_NOTHING};
    return grammar_shared(s->g, "items", grammar_alt(s->g, nodes, 3));
}

/* Return the node of the items of an array with contains: one rule for each
 * item and number of counted ones before it. */
static uint32_t counted_items(struct schema *s, struct schema_node *const *v,
                              size_t n, struct counted *c, int level)
{
    uint32_t *node = schema_alloc(s, c->cap + 2, sizeof *node);
    if (!node || schema_step(s, (c->n + 1) * (c->cap + 1)))
        return GRAMMAR_NOTHING;
    set_items(s, v, n, c->n, level, c);
    for (size_t k = c->cap + 1; k-- > 0;)
        node[k] = items_after(s, c, k, node[k + 1]);
    for (size_t i = c->n; i-- > 0;) {
        set_items(s, v, n, i, level, c);
        for (size_t k = 0; k <= i && k <= c->cap; k++)
            node[k] = items_from(s, c, i, k, node);
    }
    return node[0];
}

/* Report what cannot be held of contains, and forget it. */
static int check_contains(struct schema *s, struct schema_array *a,
                          struct counted *c)
{
    const struct schema_node *node = a->contains;
    if (!node)
        return 0;
    if (a->again && schema_cannot_hold(s, a->again->at, "contains",
                                       "is not supported beside another one"))
        return -1;
    if (a->max_contains >= 0) {
        a->max_contains = -1;
        if (schema_cannot_hold(s, node->at, "maxContains", "is not supported"))
            return -1;
    }
    int64_t n = (int64_t)a->n_prefix > a->min ? (int64_t)a->n_prefix : a->min;
    if (a->max >= 0 || n == 0)
        n = a->max >= 0 ? a->max : 1;
    c->n = (size_t)n;
    c->cap = (size_t)(a->max_contains >= 0 ? a->max_contains : a->min_contains);
    if (c->cap == 0 && a->max_contains < 0)
        a->contains = NULL;
    if (n < MAX_COUNTED && (size_t)n * (c->cap + 1) <= MAX_COUNTED)
        return 0;
    a->contains = NULL;
    return schema_cannot_hold(s, node->at, "contains",
                              "needs too many states for %lld items",
                              (long long)n);
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
    struct counted c = {.a = &a, .comma = schema_comma(s, level + 1)};
    struct value_list few = {0};
    if (a.max >= 0 && a.min > a.max)
        return GRAMMAR_NOTHING;
    if (!schema_has_room(s, level) || a.max == 0)
        return schema_container(s, "[]", GRAMMAR_NOTHING, a.min == 0, level);
    if (check_unique(s, v, n, &a, &few) || check_contains(s, &a, &c))
        return GRAMMAR_NOTHING;
    if (a.unique)
        return different_items(s, &a, &few, level);
    uint32_t some = a.contains ? counted_items(s, v, n, &c, level)
                               : some_items(s, v, n, &a, level);
    return schema_container(s, "[]", some, a.min == 0, level);
}
