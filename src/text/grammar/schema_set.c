/* Sets of schemas that one value must satisfy together: their nodes, their
 * choices, and whether any value satisfies them. */
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "text/grammar/schema_int.h"
#include "text/grammar/schema_number.h"

enum { ANY_DONE = 1, ONE_DONE = 2 };

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
 * in the order of the text. */
static int push_parts(struct schema *s, size_t *n, struct schema_node *node)
{
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
    return schema_step(s, 1 + node->all.n);
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

/* Collect a set with branches of a choice in its place. */
static int collect_branches(struct schema *s, const uint32_t *items, size_t n,
                            const struct choice *c,
                            struct schema_node *const *branches,
                            size_t n_branches)
{
    uint32_t *changed = schema_alloc(s, n, sizeof *changed);
    if (!changed)
        return -1;
    memcpy(changed, items, n * sizeof *items);
    changed[c->item] |= c->one ? ONE_DONE : ANY_DONE;
    return schema_collect(s, changed, n, branches, n_branches);
}

/* Refuse a oneOf if a value may satisfy its branches i and k together. */
static int check_pair(struct schema *s, const uint32_t *items, size_t n,
                      const struct choice *c, size_t i, size_t k)
{
    struct schema_node *pair[] = {c->branches->v[i], c->branches->v[k]};
    if (collect_branches(s, items, n, c, pair, 2))
        return -1;
    size_t n_list = s->n_list;
    uint32_t *both = copy_list(s);
    int never = both ? schema_never(s, both, n_list, MAX_DEPTH) : -1;
    if (never != 0)
        return never < 0 ? -1 : 0;
    return schema_refuse(s, s->nodes[items[c->item] / 4]->at, "oneOf",
                         "the schemas %zu and %zu may both admit a value; they "
                         "must differ in type, in a const or enum, or in a "
                         "required property (or use anyOf)",
                         i, k);
}

/* Refuse a oneOf with two branches that a value may satisfy together. Constants
 * with different hashes differ. */
static int check_disjoint(struct schema *s, const uint32_t *items, size_t n,
                          const struct choice *c)
{
    const struct node_list *list = c->branches;
    uint64_t *hash = schema_alloc(s, list->n, sizeof *hash);
    if (!hash)
        return -1;
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i]->constant &&
            schema_hash(s, list->v[i]->constant, &hash[i]))
            return -1;
    for (size_t i = 0; i < list->n; i++) {
        if (schema_step(s, list->n / 64))
            return -1;
        for (size_t k = i + 1; k < list->n; k++) {
            bool constants = list->v[i]->constant && list->v[k]->constant;
            if ((!constants || hash[i] == hash[k]) &&
                check_pair(s, items, n, c, i, k))
                return -1;
        }
    }
    return 0;
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
static int define_branch(struct schema *s, const uint32_t *items, size_t n,
                         int level, uint32_t *node)
{
    struct schema_node **v = schema_nodes(s, items, n);
    const struct json_value *values;
    size_t n_values;
    if (!v)
        return -1;
    if (listed_values(v, n, &values, &n_values))
        return define_values(s, items, n, level, values, n_values, node);
    if (schema_collect(s, items, n, NULL, 0))
        return -1;
    const struct schema_set *set = schema_set_of(s, level);
    *node = set ? grammar_ref(s->g, set->rule) : GRAMMAR_NOTHING;
    return set ? 0 : -1;
}

static int define_choice(struct schema *s, const struct schema_set *set,
                         const struct choice *c, uint32_t *node)
{
    size_t n = c->branches->n;
    const uint32_t *items = set->items;
    size_t n_items = set->n;
    int level = set->level;
    uint32_t *nodes = schema_alloc(s, n, sizeof *nodes);
    if (!nodes || (c->one && check_disjoint(s, items, n_items, c)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (collect_branches(s, items, n_items, c, &c->branches->v[i], 1))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = copy_list(s);
        int never = list ? schema_never(s, list, n_list, 0) : -1;
        if (never < 0 ||
            (!never && define_branch(s, list, n_list, level, &nodes[i])))
            return -1;
    }
    *node = grammar_alt(s->g, nodes, n);
    return 0;
}

int schema_define(struct schema *s, const struct schema_set *set,
                  uint32_t *node)
{
    struct choice c = find_choice(s, set->items, set->n);
    struct schema_node **v = schema_nodes(s, set->items, set->n);
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
                        size_t n, bool integer)
{
    struct number_form f;
    if (schema_number_of(s, v, n, integer, &f))
        return -1;
    if (f.n_limits < 2)
        return 0;
    const struct dfa *p = schema_number_points(s, v, n, &f);
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
    if (schema_collect(s, NULL, 0, v, n))
        return -1;
    size_t n_list = s->n_list;
    uint32_t *list = copy_list(s);
    return list ? schema_never(s, list, n_list, depth) : -1;
}

static int never_array(struct schema *s, struct schema_node *const *v, size_t n,
                       int depth)
{
    struct schema_array a = schema_array_of(v, n);
    struct schema_node **item = schema_alloc(s, 2 * n, sizeof *item);
    if (!item)
        return -1;
    if (a.max >= 0 && a.min > a.max)
        return empty_because(s, v[n - 1], "minItems is above maxItems");
    for (size_t i = 0; depth > 0 && (int64_t)i < a.min && i <= a.n_prefix;
         i++) {
        size_t k = schema_item_of(v, n, i, item);
        int rc = k ? never_value(s, item, k, depth - 1) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

static int never_object(struct schema *s, struct schema_node *const *v,
                        size_t n, int depth)
{
    struct schema_object o;
    if (schema_object_of(s, v, n, &o, false))
        return -1;
    for (size_t i = 0; i < o.n_members; i++) {
        const struct schema_member *m = &o.members[i];
        if (!m->required)
            continue;
        if (m->forbidden)
            return empty_because(s, v[n - 1],
                                 "a required property is forbidden");
        int rc = depth > 0 && m->n_all > 0
                     ? never_value(s, m->all, m->n_all, depth - 1)
                     : 0;
        if (rc)
            return rc;
    }
    return 0;
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
        return never_number(s, v, n, true);
    case T_NUMBER:
        return never_number(s, v, n, false);
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
        size_t n_list = s->n_list;
        uint32_t *list = copy_list(s);
        int never = list ? schema_never(s, list, n_list, depth) : -1;
        if (never <= 0)
            return never;
    }
    return c.branches != NULL;
}

int schema_never(struct schema *s, const uint32_t *items, size_t n, int depth)
{
    struct schema_node **v = schema_nodes(s, items, n);
    const struct json_value *values;
    size_t n_values;
    if (!v || schema_step(s, n + 1))
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
