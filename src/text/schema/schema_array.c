/* Arrays as nodes of a grammar. */
#include "text/schema/schema_int.h"
#include "text/grammar/dfa_text.h"

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
        const uint32_t parts[] = {
            i ? comma : GRAMMAR_EMPTY,
            schema_item_node(s, v, n, (size_t)i, NULL, 0, level), tail};
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

/* What the items of an array are that all differ: a list of values or, if texts
 * is not NULL, strings. */
struct different {
    struct value_list few;
    const struct dfa *texts;
};

/* Return the node of an array whose items are different. */
static uint32_t different_items(struct schema *s, const struct schema_array *a,
                                const struct different *d, int level)
{
    uint32_t *parts = schema_alloc(s, d->few.n, sizeof *parts);
    if (!parts)
        return GRAMMAR_NOTHING;
    for (size_t i = 0; i < d->few.n; i++)
        parts[i] = schema_literal(s, d->few.v[i], level + 1);
    const struct grammar_once once = {
        .parts = parts,
        .n = d->few.n,
        .other = d->texts ? schema_string_node(s, d->texts, TEXT_ESCAPE_ONE,
                                               TEXT_ANY_LENGTH)
                          : GRAMMAR_NOTHING,
        .differ = d->texts,
        .comma = schema_comma(s, level + 1),
        .min = (uint32_t)a->min,
        .max = a->max < 0 ? GRAMMAR_UNBOUNDED : (uint32_t)a->max};
    return schema_container(s, "[]", grammar_once(s->g, &once), a->min == 0,
                            level);
}

/* Set *d to the values of the items of an array. Returns 1; 0 if they cannot be
 * told apart; -1 with the error set. Strings can if each beginning of one goes
 * on to many: then the text never gets into a dead end. */
static int find_different(struct schema *s, struct schema_node *const *v,
                          size_t n, struct different *d)
{
    struct schema_node **item = schema_alloc(s, n, sizeof *item);
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *without;
    size_t n_item = item ? schema_item_of(v, n, 0, item) : 0;
    if (n_item == 0)
        return item ? 0 : -1;
    int rc = schema_few_values(s, item, n_item, MAX_UNIQUE, &d->few);
    if (rc)
        return rc;
    d->few.n = 0;
    rc = schema_only_strings(s, item, n_item, &d->texts);
    if (rc <= 0 || schema_unwritable(s, &without))
        return rc > 0 ? -1 : rc;
    if (without)
        d->texts = dfa_combine(d->texts, without, true, &at);
    return d->texts ? dfa_can_wait(d->texts, s->e) : -1;
}

/* Set *d to the values of items that all differ. Forget uniqueItems if it
 * refuses nothing else, or cannot be held. */
static int check_unique(struct schema *s, struct schema_node *const *v,
                        size_t n, struct schema_array *a, struct different *d)
{
    const struct schema_node *node = a->unique;
    bool differ = a->max >= 0 && a->max <= 1;
    if (!node)
        return 0;
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
    int rc = find_different(s, v, n, d);
    if (rc > 0)
        a->unique = node;
    return rc ? (rc < 0 ? -1 : 0)
              : schema_cannot_hold(s, node->at, "uniqueItems",
                                   "is only supported for at most %d values "
                                   "and for strings of any length",
                                   MAX_UNIQUE);
}

/* ---- arrays -------------------------------------------------------------- */

uint32_t schema_emit_array(struct schema *s, struct schema_node *const *v,
                           size_t n, int level)
{
    struct schema_array a = schema_array_of(v, n);
    struct different different = {0};
    if (a.max >= 0 && a.min > a.max)
        return GRAMMAR_NOTHING;
    if (!schema_has_room(s, level) || a.max == 0)
        return schema_container(s, "[]", GRAMMAR_NOTHING, a.min == 0, level);
    if (check_unique(s, v, n, &a, &different) || schema_check_contains(s, &a))
        return GRAMMAR_NOTHING;
    if (a.unique)
        return different_items(s, &a, &different, level);
    uint32_t some = a.contains ? schema_counted_items(s, v, n, &a, level)
                               : some_items(s, v, n, &a, level);
    return schema_container(s, "[]", some, a.min == 0, level);
}
