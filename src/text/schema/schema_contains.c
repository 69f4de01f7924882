/* Arrays with contains: items that are counted.
 *
 * The state of an array is how many items of each contains were counted, up to
 * its limit: maxContains, or minContains where there is no maximum. The kind of
 * an item says for which of them it counts, as a number of bits. Where there is
 * a maximum, other items must not satisfy the schema; where there is none, they
 * need not. */
#include "text/schema/schema_int.h"

/* The most rules for the items of one array. */
enum { MAX_COUNTED = 20000 };

struct counted {
    const struct schema_array *a;
    size_t n; /* items from this one on have one schema */
    size_t n_states, n_kinds;
    bool before; /* a comma is before the current item */
    uint32_t comma;
    uint32_t item[1 << MAX_CONTAINS]; /* [n_kinds] the current item */
};

static size_t limit_of(const struct schema_contains *x)
{
    return (size_t)(x->max >= 0 ? x->max : x->min);
}

/* Set the nodes of item i. */
static int set_items(struct schema *s, struct schema_node *const *v, size_t n,
                     size_t i, int level, struct counted *c)
{
    struct schema_node *also[MAX_CONTAINS];
    c->before = i > 0;
    for (size_t kind = 0; kind < c->n_kinds; kind++) {
        size_t n_also = 0;
        for (size_t j = 0; j < c->a->n_contains; j++) {
            const struct schema_contains *x = &c->a->counts[j];
            if (kind >> j & 1)
                also[n_also++] = x->schema;
            else if (x->max >= 0 &&
                     !(also[n_also++] = schema_opposite(s, x->schema)))
                return -1;
        }
        c->item[kind] = schema_item_node(s, v, n, i, also, n_also, level);
    }
    return 0;
}

/* Return the state after an item of a kind, or SIZE_MAX if it is one too many.
 * Items that need not be counted any more are not. */
static size_t state_after(const struct counted *c, size_t state, size_t kind)
{
    size_t step = 1, next = state;
    for (size_t j = 0; j < c->a->n_contains; j++) {
        size_t limit = limit_of(&c->a->counts[j]);
        if (kind >> j & 1) {
            if (state / step % (limit + 1) == limit)
                return SIZE_MAX;
            next += step;
        }
        step *= limit + 1;
    }
    return next;
}

/* Return whether all minima are met. */
static bool may_end(const struct counted *c, size_t state)
{
    for (size_t j = 0; j < c->a->n_contains; j++) {
        size_t limit = limit_of(&c->a->counts[j]);
        if ((int64_t)(state % (limit + 1)) < c->a->counts[j].min)
            return false;
        state /= limit + 1;
    }
    return true;
}

/* Return the node of an item of a kind and what follows. */
static uint32_t item_then(struct schema *s, const struct counted *c,
                          size_t kind, uint32_t next)
{
    const uint32_t parts[] = {c->before ? c->comma : GRAMMAR_EMPTY,
                              c->item[kind], next};
    return grammar_seq(s->g, parts, 3);
}

/* Return the node of the current item, of any kind from `first` on, and what
 * follows. node: that by the state. */
static uint32_t any_item(struct schema *s, const struct counted *c,
                         size_t state, size_t first, const uint32_t *node)
{
    uint32_t nodes[1 << MAX_CONTAINS];
    size_t n = 0;
    for (size_t kind = first; kind < c->n_kinds; kind++) {
        size_t next = state_after(c, state, kind);
        if (next != SIZE_MAX)
            nodes[n++] = item_then(s, c, kind, node[next]);
    }
    return grammar_alt(s->g, nodes, n);
}

/* Return the node of what follows the items 0..n-1. node: that of the states
 * with more items. */
static uint32_t items_after(struct schema *s, const struct counted *c,
                            size_t state, const uint32_t *node)
{
    uint32_t end = may_end(c, state) ? GRAMMAR_EMPTY : GRAMMAR_NOTHING;
    if (c->a->max >= 0)
        return end;
    uint32_t others = grammar_repeat(s->g, item_then(s, c, 0, GRAMMAR_EMPTY), 0,
                                     GRAMMAR_UNBOUNDED);
    return grammar_shared(
        s->g, "items",
        grammar_seq2(s->g, others,
                     grammar_alt2(s->g, end, any_item(s, c, state, 1, node))));
}

/* Return the node of the items from item i on. node: those of the items after
 * it. */
static uint32_t items_from(struct schema *s, const struct counted *c, size_t i,
                           size_t state, const uint32_t *node)
{
    bool end = i > 0 && (int64_t)i >= c->a->min && may_end(c, state);
    return grammar_shared(s->g, "items",
                          grammar_alt2(s->g,
                                       end ? GRAMMAR_EMPTY : GRAMMAR_NOTHING,
                                       any_item(s, c, state, 0, node)));
}

/* Set the numbers of items, states and kinds. Returns false if there are too
 * many. */
static bool count_states(const struct schema_array *a, struct counted *c)
{
    int64_t n = (int64_t)a->n_prefix > a->min ? (int64_t)a->n_prefix : a->min;
    size_t rules = 1;
    if (a->max >= 0 || n == 0)
        n = a->max >= 0 ? a->max : 1;
    if (n >= MAX_COUNTED)
        return false;
    *c = (struct counted){.a = a,
                          .n = (size_t)n,
                          .n_states = 1,
                          .n_kinds = (size_t)1 << a->n_contains};
    for (size_t j = 0; j < a->n_contains; j++) {
        size_t limit = limit_of(&a->counts[j]);
        if (limit >= MAX_COUNTED || c->n_states * (limit + 1) > MAX_COUNTED)
            return false;
        c->n_states *= limit + 1;
    }
    rules = c->n_states * c->n_kinds / 2;
    return c->n * rules <= MAX_COUNTED;
}

int schema_check_contains(struct schema *s, struct schema_array *a)
{
    struct counted c;
    const struct schema_node *node = a->contains;
    if (a->again && schema_cannot_hold(s, a->again->at, "contains",
                                       "is not supported beside %d other ones",
                                       MAX_CONTAINS))
        return -1;
    if (!node || count_states(a, &c))
        return 0;
    a->contains = NULL;
    return schema_cannot_hold(s, node->at, "contains",
                              "needs more than %d states", MAX_COUNTED);
}

uint32_t schema_counted_items(struct schema *s, struct schema_node *const *v,
                              size_t n, const struct schema_array *a, int level)
{
    struct counted c;
    count_states(a, &c);
    c.comma = schema_comma(s, level + 1);
    uint32_t *node = schema_alloc(s, c.n_states, sizeof *node);
    if (!node || schema_step(s, (c.n + 1) * c.n_states * c.n_kinds) ||
        set_items(s, v, n, c.n, level, &c))
        return GRAMMAR_NOTHING;
    for (size_t k = c.n_states; k-- > 0;)
        node[k] = items_after(s, &c, k, node);
    for (size_t i = c.n; i-- > 0;) {
        if (set_items(s, v, n, i, level, &c))
            return GRAMMAR_NOTHING;
        /* states with more items come later, and still have the nodes of the
           items after this one */
        for (size_t k = 0; k < c.n_states; k++)
            node[k] = items_from(s, &c, i, k, node);
    }
    return node[0];
}
