/* unevaluatedItems and unevaluatedProperties.
 *
 * Which items and members are evaluated depends on the branches of choices that
 * the value satisfies. When a set has no choice left, they are the branches
 * whose schemas are in the set. Then unevaluatedProperties is an
 * additionalProperties beside the properties and patternProperties of all
 * schemas that count, and unevaluatedItems an items after the longest
 * prefixItems. So each is a choice with one branch, which is made for the set.
 *
 * A value may satisfy several branches of an anyOf, and all of them count. So
 * such an anyOf gets one branch for each combination of its branches that
 * evaluate something. */
#include <string.h>

#include "text/schema/schema_int.h"

enum { MAX_COMBINED = 6 }; /* branches of an anyOf that are combined */

/* ---- combinations of anyOf ----------------------------------------------- */

/* The keyword that is held. */
struct keyword_at {
    struct schema *s;
    const struct schema_node *node;
    const char *keyword;
};

/* Whether a schema may evaluate an item or a member; the walk counts as one
 * visit to each schema. */
static bool evaluates(struct schema *s, struct schema_node *node)
{
    struct schema_node *part;
    if (node->visit == s->visits)
        return false;
    node->visit = s->visits;
    if (node->props.n || node->pattern_props.n || node->additional ||
        node->other_props || node->prefix.n || node->items || node->contains ||
        node->other_items)
        return true;
    for (size_t i = 0; (part = schema_same_value(node, i, false)) != NULL; i++)
        if (evaluates(s, part))
            return true;
    return false;
}

/* Return a schema that satisfies the branches with a bit in `bits`. */
static struct schema_node *
combination(struct schema *s, const struct node_list *list, unsigned bits)
{
    struct schema_node *node = schema_make(s, list->v[0]);
    if (!node || !(node->all.v = schema_alloc(s, list->n, sizeof node)))
        return NULL;
    node->plain = true;
    for (size_t i = 0; i < list->n; i++)
        if (bits >> i & 1)
            node->all.v[node->all.n++] = list->v[i];
    return node;
}

/* Replace the branches of an anyOf by their combinations. Returns 1 if they are
 * too many. */
static int combine(const struct keyword_at *k, struct schema_node *node)
{
    struct schema *s = k->s;
    size_t n = node->any.n, most = n + ((size_t)1 << MAX_COMBINED);
    struct node_list some = {schema_alloc(s, n, sizeof node), 0};
    struct node_list out = {schema_alloc(s, most, sizeof node), 0};
    if (!some.v || !out.v || schema_step(s, most))
        return -1;
    for (size_t i = 0; i < n; i++) {
        s->visits++;
        struct node_list *to = evaluates(s, node->any.v[i]) ? &some : &out;
        to->v[to->n++] = node->any.v[i];
    }
    if (some.n > MAX_COMBINED)
        return schema_cannot_hold(s, k->node->at, k->keyword,
                                  "depends on an anyOf of more than %d schemas "
                                  "with properties or items",
                                  MAX_COMBINED)
                   ? -1
                   : 1;
    for (unsigned bits = 1; bits < 1u << some.n; bits++)
        if (!(out.v[out.n++] = combination(s, &some, bits)))
            return -1;
    node->any = out;
    return 0;
}

/* Prepare the schemas for the same value. Returns 1 if it is not known what they
 * evaluate. */
static int prepare(const struct keyword_at *k, struct schema_node *node)
{
    struct schema_node *part;
    if (node->prepared || node->weak || node->unclear)
        return node->weak || node->unclear;
    if (schema_step(k->s, 1))
        return -1;
    if (node->condition && !node->then && !node->otherwise && node->rewritten &&
        node != k->node) {
        node->unclear = true;
        return schema_cannot_hold(k->s, k->node->at, k->keyword,
                                  "depends on an if that is compiled before")
                   ? -1
                   : 1;
    }
    node->prepared = true;
    for (size_t i = 0; (part = schema_same_value(node, i, false)) != NULL; i++) {
        int rc = prepare(k, part);
        if (rc < 0)
            return -1;
        node->unclear |= rc > 0;
    }
    int rc = node->any.n > 1 ? combine(k, node) : 0;
    node->unclear |= rc > 0;
    return rc < 0 ? -1 : node->unclear;
}

/* ---- what is evaluated --------------------------------------------------- */

/* What the schemas of a set evaluate, beside those of one keyword. */
struct evaluated {
    struct schema *s;
    const struct schema_node *of; /* the schema of the keyword */
    bool all_items, all_props;
    size_t n_prefix;
    struct node_list names, contains; /* schemas with properties or patterns,
                                         and with contains */
};

/* Return whether all parts of a schema are in the set, whose nodes have the
 * current stamp. */
static bool is_present(const struct schema *s, const struct schema_node *node)
{
    if (!node->plain)
        return node->stamp == s->stamp;
    for (size_t i = 0; i < node->all.n; i++)
        if (!is_present(s, node->all.v[i]))
            return false;
    return !node->ref || is_present(s, node->ref);
}

static int add_node(struct schema *s, struct node_list *list,
                    struct schema_node *node)
{
    if (!list->v && !(list->v = schema_alloc(s, s->n_nodes, sizeof node)))
        return -1;
    list->v[list->n++] = node;
    return 0;
}

static int visit(struct evaluated *x, struct schema_node *node);

/* Visit the branches of a choice that are in the set. */
static int visit_list(struct evaluated *x, const struct node_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (is_present(x->s, list->v[i]) && visit(x, list->v[i]))
            return -1;
    return 0;
}

static int visit_if(struct evaluated *x, const struct schema_node *node)
{
    bool holds = is_present(x->s, node->condition);
    struct schema_node *next = holds ? node->then : node->otherwise;
    if (holds && visit(x, node->condition))
        return -1;
    return next ? visit(x, next) : 0;
}

static int visit_itself(struct evaluated *x, struct schema_node *node)
{
    x->all_props |= node->additional || (node != x->of && node->other_props);
    x->all_items |= node->items || (node != x->of && node->other_items);
    if (node->prefix.n > x->n_prefix)
        x->n_prefix = node->prefix.n;
    if ((node->props.n || node->pattern_props.n) &&
        add_node(x->s, &x->names, node))
        return -1;
    return node->contains ? add_node(x->s, &x->contains, node->contains) : 0;
}

static int visit(struct evaluated *x, struct schema_node *node)
{
    if (node->visit == x->s->visits)
        return 0;
    node->visit = x->s->visits;
    if (schema_step(x->s, 1) || visit_itself(x, node))
        return -1;
    for (size_t i = 0; i < node->all.n; i++)
        if (visit(x, node->all.v[i]))
            return -1;
    if ((node->ref && visit(x, node->ref)) || visit_list(x, &node->any) ||
        visit_list(x, &node->one) || visit_list(x, &node->dependents))
        return -1;
    return node->condition ? visit_if(x, node) : 0;
}

/* ---- nodes --------------------------------------------------------------- */

/* Return additionalProperties for the members that are not evaluated. */
static struct schema_node *other_members(const struct evaluated *x)
{
    struct schema *s = x->s;
    struct schema_node *node = schema_make(s, x->of), *any = schema_always(s);
    size_t n_names = 0, n_patterns = 0;
    for (size_t i = 0; i < x->names.n; i++) {
        n_names += x->names.v[i]->props.n;
        n_patterns += x->names.v[i]->pattern_props.n;
    }
    struct json_value *names = schema_alloc(s, n_names, sizeof *names);
    const struct dfa **points = schema_alloc(s, n_patterns, sizeof *points);
    if (!node || !any || !names || !points ||
        !(node->props.v = schema_alloc(s, n_names, sizeof any)) ||
        !(node->pattern_props.v = schema_alloc(s, n_patterns, sizeof any)))
        return NULL;
    for (size_t i = 0; i < x->names.n; i++) {
        const struct schema_node *from = x->names.v[i];
        for (size_t k = 0; k < from->props.n; k++) {
            names[node->props.n] = from->names[k];
            node->props.v[node->props.n++] = any;
        }
        for (size_t k = 0; k < from->pattern_props.n; k++) {
            points[node->pattern_props.n] = from->patterns_points[k];
            node->pattern_props.v[node->pattern_props.n++] = any;
        }
    }
    node->names = names;
    node->patterns_points = points;
    node->additional = x->of->other_props;
    return node;
}

/* Return items for the items that are not evaluated. An item that satisfies a
 * contains is evaluated. */
static struct schema_node *other_items(const struct evaluated *x)
{
    struct schema *s = x->s;
    struct schema_node *node = schema_make(s, x->of), *any = schema_always(s);
    struct node_list ways = {schema_alloc(s, x->contains.n + 1, sizeof any), 0};
    if (!node || !any || !ways.v ||
        !(node->prefix.v = schema_alloc(s, x->n_prefix, sizeof any)))
        return NULL;
    while (node->prefix.n < x->n_prefix)
        node->prefix.v[node->prefix.n++] = any;
    for (size_t i = 0; i < x->contains.n; i++)
        ways.v[ways.n++] = x->contains.v[i];
    ways.v[ways.n++] = x->of->other_items;
    node->items = schema_make_any(s, x->of, &ways);
    return node->items ? node : NULL;
}

int schema_unevaluated(struct schema *s, const uint32_t *items, size_t n,
                       struct schema_node *of, struct node_list *out)
{
    struct evaluated x = {.s = s, .of = of};
    s->stamp++;
    s->visits++;
    for (size_t i = 0; i < n; i++)
        s->nodes[items[i] / 4]->stamp = s->stamp;
    if (visit(&x, of) || !(out->v = schema_alloc(s, 1, sizeof of)))
        return -1;
    struct schema_node *a =
        of->other_props && !x.all_props ? other_members(&x) : schema_always(s);
    struct schema_node *b =
        of->other_items && !x.all_items ? other_items(&x) : schema_always(s);
    out->n = 1;
    out->v[0] = schema_make_all(s, of, a, b);
    return out->v[0] ? 0 : -1;
}

struct schema_node *schema_derive_unevaluated(struct schema *s,
                                              struct schema_node *of)
{
    const struct keyword_at k = {
        s, of, of->other_props ? "unevaluatedProperties" : "unevaluatedItems"};
    struct schema_node *node = schema_make(s, of);
    int rc = node ? prepare(&k, of) : -1;
    if (rc > 0 && schema_cannot_hold(s, of->at, k.keyword,
                                     "depends on a keyword that cannot be "
                                     "held"))
        rc = -1;
    if (rc)
        return rc < 0 ? NULL : schema_always(s);
    node->unevaluated = of;
    return node;
}
