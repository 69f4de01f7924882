/* Sets of schemas that one value must satisfy together: their nodes, their
 * choices, and whether any value satisfies them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "text/schema/schema_int.h"
#include "text/schema/schema_number.h"

enum {
    ANY_DONE = 1,
    ONE_DONE = 2,
    MAX_OVERLAPS = 4096 /* pairs of branches of a oneOf */
};

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

/* Return a copy of s->list, or NULL with the error set. */
static uint32_t *copy_list(struct schema *s)
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
    uint32_t *items = copy_list(s);
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

static int never_value(struct schema *s, struct schema_node *const *v, size_t n,
                       int depth);

/* schema_never for s->list. */
static int never_list(struct schema *s, int depth)
{
    size_t n = s->n_list;
    uint32_t *list = schema_borrow(s, n, sizeof *list);
    if (!list)
        return -1;
    if (n)
        memcpy(list, s->list, n * sizeof *list);
    int never = schema_never(s, list, n, depth);
    schema_give_back(s, list, n, sizeof *list);
    return never;
}

/* The nodes of items[0..n), or NULL with the error set. */
static struct schema_node **schema_nodes(struct schema *s,
                                         const uint32_t *items, size_t n)
{
    struct schema_node **v = schema_alloc(s, n, sizeof *v);
    for (size_t i = 0; v && i < n; i++)
        v[i] = s->nodes[items[i] / 4];
    return v;
}

/* ---- choices ------------------------------------------------------------- */

/* An anyOf or oneOf that is not replaced by a branch yet. */
struct choice {
    size_t item; /* index in the set */
    bool one;
    const struct node_list *branches; /* NULL: there is none */
};

static struct choice find_choice(const struct schema *s, const uint32_t *items,
                                 size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct schema_node *node = s->nodes[items[i] / 4];
        if (node->any.n && !(items[i] & ANY_DONE))
            return (struct choice){i, false, &node->any};
        if (node->one.n && !(items[i] & ONE_DONE))
            return (struct choice){i, true, &node->one};
    }
    return (struct choice){0};
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

/* Set *c to the next choice of a set. When there is no other one, unevaluated…
 * are choices, and then a member that may have any of many names. */
static int next_choice(struct schema *s, const uint32_t *items, size_t n,
                       struct choice *c)
{
    *c = find_choice(s, items, n);
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
            *c = (struct choice){i, false, ways};
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
    int rc = required ? never_value(s, all, n_all, NEAR_DEPTH) : 0;
    schema_give_back(s, all, n + 1, sizeof *all);
    return rc;
}

/* Mark choices of which the set implies a branch as done: all values of the set
 * satisfy them. */
static int settle(struct schema *s, uint32_t *items, size_t n)
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

/* Collect a set with branches of a choice in its place. */
static int collect_branches(struct schema *s, const uint32_t *items, size_t n,
                            const struct choice *c,
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

/* Two branches of a oneOf that a value may satisfy together. */
struct overlap {
    uint32_t i, k;
};

struct overlaps {
    struct overlap *v;
    size_t n, cap;
};

/* Add branches i and k if a value may satisfy both. */
static int check_pair(struct schema *s, const uint32_t *items, size_t n,
                      const struct choice *c, struct overlap at,
                      struct overlaps *out)
{
    struct schema_node *pair[] = {c->branches->v[at.i], c->branches->v[at.k]};
    if (collect_branches(s, items, n, c, pair, 2))
        return -1;
    int never = never_list(s, MAX_DEPTH);
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

/* Find the branches of a oneOf that a value may satisfy together. Constants
 * with different hashes differ. Returns 1 if they are too many, and the oneOf
 * counts as an anyOf. */
static int find_overlaps(struct schema *s, const uint32_t *items, size_t n,
                         const struct choice *c, struct overlaps *out)
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
            int rc = check_pair(s, items, n, c, (struct overlap){i, k}, out);
            if (rc)
                return rc;
        }
    }
    return 0;
}

/* Collect a set with branch i of a choice in its place and, for a oneOf, the
 * opposites of the branches that may admit the same value. */
static int collect_branch(struct schema *s, const uint32_t *items, size_t n,
                          const struct choice *c,
                          const struct overlaps *overlaps, size_t i)
{
    const struct node_list *list = c->branches;
    if (overlaps->n == 0)
        return collect_branches(s, items, n, c, &list->v[i], 1);
    struct schema_node **all = schema_alloc(s, list->n, sizeof *all);
    size_t n_all = 0;
    if (!all || schema_step(s, 1 + overlaps->n))
        return -1;
    all[n_all++] = list->v[i];
    for (size_t j = 0; j < overlaps->n; j++) {
        const struct overlap *o = &overlaps->v[j];
        if (o->i != i && o->k != i)
            continue;
        all[n_all] = schema_opposite(s, list->v[o->i == i ? o->k : o->i]);
        if (!all[n_all++])
            return -1;
    }
    return collect_branches(s, items, n, c, all, n_all);
}

/* ---- values of enum and const -------------------------------------------- */

/* Find the list of values, of an enum or const, that contains all values of a
 * set. Returns false if the set has no such list. */
static bool listed_values(struct schema_node *const *v, size_t n,
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

/* Return 1 if a value satisfies a set: each item by itself, because the schemas
 * to which it refers are items, too. */
static int all_admit(struct schema *s, const uint32_t *items, size_t n,
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
        int rc = all_admit(s, items, n, &values[i]);
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
static int define_branch(struct schema *s, uint32_t *items, size_t n,
                         int level, uint32_t *node)
{
    struct schema_node **v = schema_nodes(s, items, n);
    const struct json_value *values;
    size_t n_values;
    if (!v)
        return -1;
    if (listed_values(v, n, &values, &n_values))
        return define_values(s, items, n, level, values, n_values, node);
    if (settle(s, items, n) || schema_collect(s, items, n, NULL, 0))
        return -1;
    const struct schema_set *set = schema_set_of(s, level);
    *node = set ? grammar_ref(s->g, set->rule) : GRAMMAR_NOTHING;
    return set ? 0 : -1;
}

static int define_branches(struct schema *s, const struct schema_set *set,
                           const struct choice *c,
                           const struct overlaps *overlaps, uint32_t *node)
{
    size_t n = c->branches->n;
    const uint32_t *items = set->items;
    size_t n_items = set->n;
    int level = set->level;
    uint32_t *nodes = schema_alloc(s, n, sizeof *nodes);
    if (!nodes)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (collect_branch(s, items, n_items, c, overlaps, i))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = copy_list(s);
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
                         const struct choice *c, uint32_t *node)
{
    struct overlaps overlaps = {0};
    int rc = 0;
    if (c->one)
        rc = find_overlaps(s, set->items, set->n, c, &overlaps);
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
    struct choice c;
    const struct json_value *values;
    size_t n_values;
    int level = set->level;
    *node = GRAMMAR_NOTHING;
    if (!v)
        return -1;
    for (size_t i = 0; i < set->n; i++)
        if (v[i]->never)
            return 0;
    if (listed_values(v, set->n, &values, &n_values))
        return define_values(s, set->items, set->n, level, values, n_values,
                             node);
    if (next_choice(s, set->items, set->n, &c))
        return -1;
    if (c.branches)
        return define_choice(s, set, &c, node);
    *node = schema_emit(s, v, set->n, level);
    return s->e->code ? -1 : 0;
}

/* ---- sets that nothing satisfies ----------------------------------------- */

static int empty_because(struct schema *s, const struct schema_node *node,
                         const char *reason)
{
    s->culprit = node;
    s->reason = reason;
    return 1;
}

static int never_number(struct schema *s, struct schema_node *const *v,
                        size_t n, unsigned types)
{
    struct number_form f;
    bool some = types & T_INTEGER;
    if (schema_number_of(s, v, n, !(types & T_NUMBER), &f))
        return -1;
    for (size_t i = 0; i < n; i++)
        some &= !v[i]->not_multiple;
    if (f.n_limits < 2 && some)
        return 0;
    const struct dfa *p = schema_number_points(s, v, n, types, &f);
    if (!p)
        return -1;
    return p->n_states == 0
               ? empty_because(s, v[n - 1], "no number is inside the limits")
               : 0;
}

static int never_string(struct schema *s, struct schema_node *const *v,
                        size_t n)
{
    struct schema_string x;
    if (schema_string_of(s, v, n, NULL, &x))
        return -1;
    return x.points->n_states == 0
               ? empty_because(s, v[n - 1], "no string satisfies it")
               : 0;
}

static int never_value(struct schema *s, struct schema_node *const *v, size_t n,
                       int depth)
{
    return schema_collect(s, NULL, 0, v, n) ? -1 : never_list(s, depth);
}

/* Return 1 if an array must contain an item that has no value. */
static int never_contains(struct schema *s, struct schema_node *const *v,
                          size_t n, const struct schema_array *a,
                          struct schema_node **item, int depth)
{
    for (size_t i = 0; i < a->n_contains; i++) {
        const struct schema_contains *x = &a->counts[i];
        if (x->max >= 0 && x->min > x->max)
            return empty_because(s, v[n - 1],
                                 "minContains is above maxContains");
        if (depth == 0 || a->n_prefix || x->min == 0)
            continue;
        size_t k = schema_item_of(v, n, 0, item);
        item[k++] = x->schema;
        int rc = never_value(s, item, k, depth - 1);
        if (rc)
            return rc;
    }
    return 0;
}

static int never_array(struct schema *s, struct schema_node *const *v, size_t n,
                       int depth)
{
    struct schema_array a = schema_array_of(v, n);
    if (a.max >= 0 && a.min > a.max)
        return empty_because(s, v[n - 1], "minItems is above maxItems");
    struct schema_node **item = schema_borrow(s, n + 1, sizeof *item);
    if (!item)
        return -1;
    int rc = never_contains(s, v, n, &a, item, depth);
    for (size_t i = 0;
         !rc && depth > 0 && (int64_t)i < a.min && i <= a.n_prefix; i++) {
        size_t k = schema_item_of(v, n, i, item);
        rc = k ? never_value(s, item, k, depth - 1) : 0;
    }
    schema_give_back(s, item, n + 1, sizeof *item);
    return rc;
}

/* Return 1 if a required member of an object has no value. */
static int never_member(struct schema *s, const struct schema_object *o,
                        int depth)
{
    int rc = 0;
    for (size_t i = 0; i < o->n_members && !rc; i++) {
        const struct schema_member *m = &o->members[i];
        if (m->required && m->n_all > 0)
            rc = never_value(s, m->all, m->n_all, depth);
    }
    return rc;
}

static int never_object(struct schema *s, struct schema_node *const *v,
                        size_t n, int depth)
{
    struct schema_object o;
    int rc = schema_object_of(s, v, n, &o, false);
    if (!rc && schema_refuses_all(&o))
        rc = empty_because(s, v[n - 1],
                           "a required property is forbidden, or there are "
                           "too many properties");
    if (!rc && depth > 0)
        rc = never_member(s, &o, depth - 1);
    schema_object_free(s, &o);
    return rc;
}

static bool excludes(struct schema_node *const *v, size_t n,
                     enum json_type type, bool boolean)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i]->excluded.n; k++) {
            const struct json_value *x = v[i]->excluded.v[k];
            if (x->type == type && x->boolean == boolean)
                return true;
        }
    return false;
}

/* Return whether the values of one type are excluded. */
static int never_type(struct schema *s, struct schema_node *const *v, size_t n,
                      unsigned type, int depth)
{
    switch (type) {
    case T_NULL:
        return excludes(v, n, JSON_NULL, false);
    case T_BOOLEAN:
        return excludes(v, n, JSON_BOOL, false) &&
               excludes(v, n, JSON_BOOL, true);
    case T_INTEGER:
        return never_number(s, v, n, T_INTEGER);
    case T_NUMBER:
        return never_number(s, v, n,
                            schema_types(v, n) & (T_INTEGER | T_NUMBER));
    case T_STRING:
        return never_string(s, v, n);
    case T_ARRAY:
        return never_array(s, v, n, depth);
    default:
        return never_object(s, v, n, depth);
    }
}

/* Return 1 if all branches of a set's first choice are empty. */
static int never_choice(struct schema *s, const uint32_t *items, size_t n,
                        int depth)
{
    struct choice c = find_choice(s, items, n);
    for (size_t i = 0; c.branches && i < c.branches->n; i++) {
        if (collect_branches(s, items, n, &c, &c.branches->v[i], 1))
            return -1;
        int never = never_list(s, depth);
        if (never <= 0)
            return never;
    }
    return c.branches != NULL;
}

static int never_set(struct schema *s, struct schema_node *const *v,
                     const uint32_t *items, size_t n, int depth)
{
    const struct json_value *values;
    size_t n_values;
    if (schema_step(s, n + 1))
        return -1;
    for (size_t i = 0; i < n; i++)
        if (v[i]->never)
            return empty_because(s, v[i], "it is false");
    bool listed = listed_values(v, n, &values, &n_values);
    for (size_t i = 0; listed && i < n_values; i++) {
        int rc = all_admit(s, items, n, &values[i]);
        if (rc)
            return rc < 0 ? -1 : 0;
    }
    if (listed)
        return empty_because(s, v[n - 1], "no value of its enum or const fits");
    if (n == 0)
        return 0;
    unsigned types = schema_types(v, n);
    bool some = false;
    if (types == 0)
        return empty_because(s, v[n - 1], "no type is left");
    for (unsigned type = 1; type <= T_OBJECT && !some; type <<= 1) {
        int rc = types & type ? never_type(s, v, n, type, depth) : 1;
        if (rc < 0)
            return -1;
        some = rc == 0;
    }
    if (!some)
        return 1;
    return depth > 0 ? never_choice(s, items, n, depth - 1) : 0;
}

int schema_never(struct schema *s, const uint32_t *items, size_t n, int depth)
{
    struct schema_node **v = schema_borrow(s, n, sizeof *v);
    if (!v)
        return -1;
    for (size_t i = 0; i < n; i++)
        v[i] = s->nodes[items[i] / 4];
    int never = never_set(s, v, items, n, depth);
    schema_give_back(s, v, n, sizeof *v);
    return never;
}

/* ---- the strings of a set ------------------------------------------------ */

static int set_texts(struct schema *s, const uint32_t *items, size_t n,
                     const struct dfa **out, const struct dfa_place *at);

/* Set *out to those values of an enum or const that are strings of a set. */
static int listed_texts(struct schema *s, const uint32_t *items, size_t n,
                        const struct json_value *values, size_t n_values,
                        const struct dfa **out, const struct dfa_place *at)
{
    const char **words = schema_alloc(s, n_values, sizeof *words);
    size_t *lens = schema_alloc(s, n_values, sizeof *lens), n_words = 0;
    if (!words || !lens)
        return -1;
    for (size_t i = 0; i < n_values; i++) {
        int rc = values[i].type == JSON_STRING
                     ? all_admit(s, items, n, &values[i])
                     : 0;
        if (rc < 0)
            return -1;
        if (rc) {
            words[n_words] = values[i].str;
            lens[n_words++] = values[i].len;
        }
    }
    *out = dfa_words(words, lens, n_words, at);
    return *out ? 0 : -1;
}

/* Add the strings of one branch of a choice: those of no branch before it are
 * taken from *none. With oneOf, *twice are those of two branches. */
static int add_texts(struct schema *s, bool one, const struct dfa *branch,
                     const struct dfa **none, const struct dfa **twice,
                     const struct dfa_place *at)
{
    const struct dfa *any = schema_any_text(s), *again, *others;
    if (!any)
        return -1;
    if (one) { /* branch - none are in an earlier branch, too */
        again = dfa_combine(branch, *none, true, at);
        others = again ? dfa_combine(any, *twice, true, at) : NULL;
        others = others ? dfa_combine(others, again, true, at) : NULL;
        *twice = others ? dfa_combine(any, others, true, at) : NULL;
    }
    *none = dfa_combine(*none, branch, true, at);
    return *none && *twice ? 0 : -1;
}

static int choice_texts(struct schema *s, const uint32_t *items, size_t n,
                        const struct choice *c, const struct dfa **out,
                        const struct dfa_place *at)
{
    static const struct dfa nothing = {0};
    const struct dfa *any = schema_any_text(s), *none = any;
    const struct dfa *twice = &nothing, *branch;
    for (size_t i = 0; any && i < c->branches->n; i++) {
        if (collect_branches(s, items, n, c, &c->branches->v[i], 1))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = copy_list(s);
        if (!list || set_texts(s, list, n_list, &branch, at) ||
            add_texts(s, c->one, branch, &none, &twice, at))
            return -1;
    }
    *out = any ? dfa_combine(any, none, true, at) : NULL;
    *out = *out ? dfa_combine(*out, twice, true, at) : NULL;
    return *out ? 0 : -1;
}

/* Set *out to the strings of a set. */
static int set_texts(struct schema *s, const uint32_t *items, size_t n,
                     const struct dfa **out, const struct dfa_place *at)
{
    static const struct dfa nothing = {0};
    struct schema_node **v = schema_nodes(s, items, n);
    struct choice c = find_choice(s, items, n);
    const struct json_value *values;
    size_t n_values;
    struct schema_string x;
    if (!v || schema_step(s, n + 1))
        return -1;
    *out = &nothing;
    if (!(schema_types(v, n) & T_STRING))
        return 0;
    for (size_t i = 0; i < n; i++)
        if (v[i]->never)
            return 0;
    if (listed_values(v, n, &values, &n_values))
        return listed_texts(s, items, n, values, n_values, out, at);
    if (c.branches)
        return choice_texts(s, items, n, &c, out, at);
    if (schema_string_of(s, v, n, NULL, &x))
        return -1;
    *out = x.points;
    if (x.length.min > 0 || x.length.max >= 0) {
        const struct dfa *p = dfa_length(x.length.min, x.length.max, at);
        *out = p ? dfa_combine(x.points, p, false, at) : NULL;
    }
    return *out ? 0 : -1;
}

int schema_texts_of(struct schema *s, struct schema_node *const *roots,
                    size_t n, const struct dfa **out)
{
    struct qwick_err err = {0};
    struct dfa_place at = {&s->mem, &s->steps_left, &err};
    if (schema_collect(s, NULL, 0, roots, n))
        return -1;
    size_t n_list = s->n_list;
    uint32_t *list = copy_list(s);
    if (list && !set_texts(s, list, n_list, out, &at))
        return 0;
    return err.code ? schema_refuse_err(s, roots[0]->at, NULL, &err) : -1;
}

/* ---- sets with few values ------------------------------------------------ */

/* Values that are collected. */
struct few {
    struct value_list list;
    uint64_t *hash; /* [most] */
    size_t most;
};

/* Add a value of a set, unless there is an equal one. Returns 1; 0 if there are
 * too many; -1 with the error set. */
static int add_value(struct schema *s, const uint32_t *items, size_t n,
                     const struct json_value *value, struct few *few)
{
    struct value_list *list = &few->list;
    uint64_t hash;
    int rc = all_admit(s, items, n, value);
    if (rc <= 0)
        return rc < 0 ? -1 : 1;
    if (schema_hash(s, value, &hash) || schema_step(s, list->n / 8))
        return -1;
    for (size_t i = 0; i < list->n; i++) {
        rc = few->hash[i] == hash ? schema_equal(s, list->v[i], value) : 0;
        if (rc)
            return rc < 0 ? -1 : 1;
    }
    if (list->n == few->most)
        return 0;
    few->hash[list->n] = hash;
    list->v[list->n++] = value;
    return 1;
}

/* Set *out to the whole number below a limit; *has says whether there is a limit
 * that is not large. */
static void small_limit(const struct decimal *a, int64_t *out, bool *has)
{
    if (!a || a->n_whole > 9)
        return;
    *out = 0;
    for (size_t i = 0; i < a->n_whole; i++)
        *out = *out * 10 + (a->whole[i] - '0');
    if (a->negative)
        *out = -*out - 1;
    *has = true;
}

/* Add the integers between the limits of a set. */
static int add_integers(struct schema *s, const uint32_t *items, size_t n,
                        struct few *few)
{
    bool from = false, to = false;
    int64_t lo = 0, hi = 0;
    for (size_t i = 0; i < n; i++) {
        const struct schema_node *v = s->nodes[items[i] / 4];
        small_limit(v->min ? v->min : v->above, &lo, &from);
        small_limit(v->max ? v->max : v->below, &hi, &to);
    }
    if (!from || !to || hi - lo > (int64_t)few->most)
        return 0;
    for (; lo <= hi + 1; lo++) {
        struct json_value *value = schema_alloc(s, 1, sizeof *value);
        char *text = schema_alloc(s, 16, 1);
        if (!value || !text)
            return -1;
        int len = snprintf(text, 16, "%d", (int)lo);
        *value = (struct json_value){
            .type = JSON_NUMBER, .str = text, .len = (size_t)len};
        int rc = add_value(s, items, n, value, few);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

static int add_set(struct schema *s, const uint32_t *items, size_t n, int depth,
                   struct few *few);

static int add_branches(struct schema *s, const uint32_t *items, size_t n,
                        const struct choice *c, int depth, struct few *few)
{
    for (size_t i = 0; i < c->branches->n; i++) {
        if (collect_branches(s, items, n, c, &c->branches->v[i], 1))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = copy_list(s);
        int rc = list ? add_set(s, list, n_list, depth - 1, few) : -1;
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* Add the values of a set. Returns 1; 0 if they are too many; -1 with the error
 * set. */
static int add_set(struct schema *s, const uint32_t *items, size_t n, int depth,
                   struct few *few)
{
    static const struct json_value plain[] = {
        {.type = JSON_NULL},
        {.type = JSON_BOOL, .boolean = true},
        {.type = JSON_BOOL},
    };
    struct schema_node **v = schema_nodes(s, items, n);
    struct choice c = find_choice(s, items, n);
    const struct json_value *values;
    size_t n_values;
    int rc = 1;
    if (!v || schema_step(s, n + 1))
        return -1;
    bool listed = listed_values(v, n, &values, &n_values);
    unsigned types = schema_types(v, n);
    for (size_t i = 0; i < n; i++)
        if (v[i]->never || !types)
            return 1;
    if (!listed && c.branches)
        return depth > 0 ? add_branches(s, items, n, &c, depth, few) : 0;
    if (!listed && (types & ~(unsigned)(T_NULL | T_BOOLEAN | T_INTEGER)))
        return 0;
    if (!listed) {
        values = plain;
        n_values = 3;
    }
    for (size_t i = 0; rc > 0 && i < n_values; i++)
        rc = add_value(s, items, n, &values[i], few);
    return rc > 0 && !listed && (types & T_INTEGER)
               ? add_integers(s, items, n, few)
               : rc;
}

int schema_few_values(struct schema *s, struct schema_node *const *roots,
                      size_t n, size_t most, struct value_list *out)
{
    struct few all = {.most = most}, few = {.most = most};
    if (schema_collect(s, NULL, 0, roots, n))
        return -1;
    size_t n_list = s->n_list;
    uint32_t *list = copy_list(s);
    all.list.v = schema_alloc(s, most, sizeof(struct json_value *));
    few.list.v = schema_alloc(s, most, sizeof(struct json_value *));
    all.hash = schema_alloc(s, most, sizeof *all.hash);
    few.hash = schema_alloc(s, most, sizeof *few.hash);
    if (!list || !all.list.v || !few.list.v || !all.hash || !few.hash)
        return -1;
    int rc = add_set(s, list, n_list, MAX_DEPTH, &all);
    /* a branch of oneOf has values that another one has, too */
    for (size_t i = 0; rc > 0 && i < all.list.n; i++)
        rc = add_value(s, list, n_list, all.list.v[i], &few);
    *out = few.list;
    return rc;
}

int schema_only_strings(struct schema *s, struct schema_node *const *roots,
                        size_t n, const struct dfa **out)
{
    if (schema_collect(s, NULL, 0, roots, n))
        return -1;
    struct schema_node **v = schema_nodes(s, s->list, s->n_list);
    if (!v)
        return -1;
    if (schema_types(v, s->n_list) & ~(unsigned)T_STRING)
        return 0;
    return schema_texts_of(s, roots, n, out) ? -1 : 1;
}

int schema_disjoint(struct schema *s, struct schema_node *const *roots,
                    size_t n)
{
    return never_value(s, roots, n, MAX_DEPTH);
}
