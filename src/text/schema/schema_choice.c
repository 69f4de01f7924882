/* The choices of a set: anyOf, oneOf, and what is turned into them. */
#include <string.h>

#include "base/array.h"
#include "text/schema/schema_set.h"

enum { MAX_OVERLAPS = 4096 }; /* pairs of branches of a oneOf */

struct schema_choice schema_find_choice(const struct schema *s,
                                        const uint32_t *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct schema_node *node = s->nodes[items[i] / 4];
        if (node->any.n && !(items[i] & ANY_DONE))
            return (struct schema_choice){i, false, &node->any};
        if (node->one.n && !(items[i] & ONE_DONE))
            return (struct schema_choice){i, true, &node->one};
    }
    return (struct schema_choice){0};
}

/* Set *ways to the branches of a choice that a made node is when there is no
 * other choice; ways->v stays NULL if it is none. */
static int late_choice(struct schema *s, const uint32_t *items, size_t n,
                       struct schema_node *node, struct node_list *ways)
{
    if (node->unevaluated)
        return schema_unevaluated(s, items, n, node->unevaluated, ways);
    if (!node->some)
        return 0;
    struct schema_node **v = schema_nodes(s, items, n);
    return v ? schema_some_ways(s, v, n, node->some, ways) : -1;
}

int schema_next_choice(struct schema *s, const uint32_t *items, size_t n,
                       struct schema_choice *c)
{
    *c = schema_find_choice(s, items, n);
    for (size_t pass = 0; pass < 2 && !c->branches; pass++)
        for (size_t i = 0; i < n && !c->branches; i++) {
            struct schema_node *node = s->nodes[items[i] / 4];
            struct node_list *ways;
            if ((items[i] & ANY_DONE) ||
                !(pass == 0 ? node->unevaluated != NULL : node->some != NULL))
                continue;
            if (!(ways = schema_alloc(s, 1, sizeof *ways)) ||
                late_choice(s, items, n, node, ways))
                return -1;
            *c = (struct schema_choice){i, false, ways};
        }
    return 0;
}

/* Return whether all values of a set satisfy a node: its parts are in the set,
 * whose nodes have the current stamp. */
static bool is_implied(const struct schema *s, const struct schema_node *node,
                       unsigned types, int depth)
{
    if (node->stamp == s->stamp)
        return true;
    if (node == s->of_types[node->types])
        return !(types & ~node->types);
    if (!node->plain || node->derived.n || !node->rewritten || depth == 0)
        return false;
    for (size_t i = 0; i < node->all.n; i++)
        if (!is_implied(s, node->all.v[i], types, depth - 1))
            return false;
    return !node->ref || is_implied(s, node->ref, types, depth - 1);
}

static bool same_name(const struct json_value *a, const struct json_value *b)
{
    return a->len == b->len && memcmp(a->str, b->str, a->len) == 0;
}

/* Return 1 if a branch asks for a member whose value does not satisfy a schema,
 * and all objects of a set have such a one. -1 with the error set. */
static int has_opposite(struct schema *s, const uint32_t *items, size_t n,
                        const struct schema_node *branch)
{
    const struct schema_node *value =
        branch->made && branch->required.n == 1 && branch->props.n == 1
            ? branch->props.v[0]
            : NULL;
    struct schema_node **all;
    size_t n_all = 0;
    bool required = false;
    if (!value || !value->made || !value->negated || branch->all.n ||
        branch->any.n)
        return 0;
    if (schema_step(s, n) || !(all = schema_borrow(s, n + 1, sizeof *all)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct schema_node *node = s->nodes[items[i] / 4];
        for (size_t k = 0; k < node->required.n && !required; k++)
            required = same_name(node->required.v[k], branch->names);
        for (size_t k = 0; k < node->props.n; k++)
            if (same_name(&node->names[k], branch->names)) {
                all[n_all++] = node->props.v[k];
                break;
            }
    }
    all[n_all++] = value->negated;
    int rc = required ? schema_never_value(s, all, n_all, NEAR_DEPTH) : 0;
    schema_give_back(s, all, n + 1, sizeof *all);
    return rc;
}

int schema_settle(struct schema *s, uint32_t *items, size_t n)
{
    unsigned types = T_ALL;
    s->stamp++;
    for (size_t i = 0; i < n; i++) {
        s->nodes[items[i] / 4]->stamp = s->stamp;
        types &= s->nodes[items[i] / 4]->types;
    }
    for (size_t i = 0; i < n; i++) {
        const struct node_list *any = &s->nodes[items[i] / 4]->any;
        if (s->nodes[items[i] / 4]->prepared)
            continue; /* all branches count that the value satisfies */
        for (size_t k = 0; k < any->n && !(items[i] & ANY_DONE); k++)
            if (is_implied(s, any->v[k], types, NEAR_DEPTH))
                items[i] |= ANY_DONE;
    }
    for (size_t i = 0; types == T_OBJECT && i < n; i++) {
        const struct schema_node *node = s->nodes[items[i] / 4];
        for (size_t k = 0;
             node->made && k < node->any.n && !(items[i] & ANY_DONE); k++) {
            int rc = has_opposite(s, items, n, node->any.v[k]);
            if (rc < 0)
                return -1;
            if (rc)
                items[i] |= ANY_DONE;
        }
    }
    return 0;
}

int schema_collect_branches(struct schema *s, const uint32_t *items, size_t n,
                            const struct schema_choice *c,
                            struct schema_node *const *branches,
                            size_t n_branches)
{
    uint32_t *changed = schema_borrow(s, n, sizeof *changed);
    if (!changed)
        return -1;
    memcpy(changed, items, n * sizeof *items);
    changed[c->item] |= c->one ? ONE_DONE : ANY_DONE;
    int rc = schema_collect(s, changed, n, branches, n_branches);
    schema_give_back(s, changed, n, sizeof *changed);
    return rc;
}

/* Add branches i and k if a value may satisfy both. */
static int check_pair(struct schema *s, const uint32_t *items, size_t n,
                      const struct schema_choice *c, struct schema_overlap at,
                      struct schema_overlaps *out)
{
    struct schema_node *pair[] = {c->branches->v[at.i], c->branches->v[at.k]};
    if (schema_collect_branches(s, items, n, c, pair, 2))
        return -1;
    int never = schema_never_list(s, MAX_DEPTH);
    if (never)
        return never < 0 ? -1 : 0;
    if (out->n == MAX_OVERLAPS)
        return schema_cannot_hold(s, s->nodes[items[c->item] / 4]->at, "oneOf",
                                  "more than %d pairs of schemas may both "
                                  "admit a value; they should "
                                  "differ in type, in a const or enum, or in a "
                                  "required property (or "
                                  "use anyOf)",
                                  MAX_OVERLAPS)
                   ? -1
                   : 1;
    if (ARRAY_RESERVE(out->v, out->cap, out->n + 1, s->e))
        return -1;
    out->v[out->n++] = at;
    return 0;
}

int schema_find_overlaps(struct schema *s, const uint32_t *items, size_t n,
                         const struct schema_choice *c,
                         struct schema_overlaps *out)
{
    const struct node_list *list = c->branches;
    uint64_t *hash = schema_alloc(s, list->n, sizeof *hash);
    if (!hash)
        return -1;
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i]->constant &&
            schema_hash(s, list->v[i]->constant, &hash[i]))
            return -1;
    for (uint32_t i = 0; i < list->n; i++) {
        if (schema_step(s, list->n / 64))
            return -1;
        for (uint32_t k = i + 1; k < list->n; k++) {
            bool constants = list->v[i]->constant && list->v[k]->constant;
            if (constants && hash[i] != hash[k])
                continue;
            int rc =
                check_pair(s, items, n, c, (struct schema_overlap){i, k}, out);
            if (rc)
                return rc;
        }
    }
    return 0;
}

int schema_collect_branch(struct schema *s, const uint32_t *items, size_t n,
                          const struct schema_choice *c,
                          const struct schema_overlaps *overlaps, size_t i)
{
    const struct node_list *list = c->branches;
    if (overlaps->n == 0)
        return schema_collect_branches(s, items, n, c, &list->v[i], 1);
    struct schema_node **all = schema_alloc(s, list->n, sizeof *all);
    size_t n_all = 0;
    if (!all || schema_step(s, 1 + overlaps->n))
        return -1;
    all[n_all++] = list->v[i];
    for (size_t j = 0; j < overlaps->n; j++) {
        const struct schema_overlap *o = &overlaps->v[j];
        if (o->i != i && o->k != i)
            continue;
        all[n_all] = schema_opposite(s, list->v[o->i == i ? o->k : o->i]);
        if (!all[n_all++])
            return -1;
    }
    return schema_collect_branches(s, items, n, c, all, n_all);
}
