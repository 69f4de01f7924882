/* Schemas that are made of others.
 *
 * The compiler works on sets of schemas that a value satisfies together, and
 * on choices among sets (schema_set.c). Keywords that say more than that are
 * rewritten into schemas of these two forms. They are made when a set first
 * collects the node, and once for each node, so recursion ends: what is inside
 * an item or a member waits until its own set is compiled.
 *
 *   not S                 the opposite of S, see schema_not.c
 *   if S then T else U    (S and T) or ({not: S} and U)
 *   dependentRequired     the name is forbidden, or the others are required
 *   dependentSchemas      the name is forbidden, or it is required and S holds
 *   oneOf                 a branch, and the opposites of the other branches
 *                         that may admit the same value (schema_set.c)
 *
 *   unevaluated…          see schema_unevaluated.c
 *
 * `derived` of a node lists them. They come after the node's own parts, so
 * properties that only they name are written last.
 *
 * Some opposites ask for a member of an object with any of many names: `some`.
 * When a set has no other choice left, its members are known. Then `some` is a
 * choice, too: one of the members that the set names, or another one. */
#include <string.h>

#include "text/schema/schema_int.h"

/* ---- nodes --------------------------------------------------------------- */

struct schema_node *schema_make(struct schema *s,
                                const struct schema_node *from)
{
    struct schema_node *node = schema_new_node(s, from ? from->at : s->root);
    if (node)
        node->made = node->rewritten = true;
    return node;
}

struct schema_node *schema_always(struct schema *s)
{
    if (!s->always && (s->always = schema_make(s, NULL)))
        s->always->plain = true;
    return s->always;
}

struct schema_node *schema_none(struct schema *s)
{
    if (!s->none && (s->none = schema_make(s, NULL)))
        s->none->never = true;
    return s->none;
}

struct schema_node *schema_make_any(struct schema *s,
                                    const struct schema_node *from,
                                    const struct node_list *list)
{
    struct schema_node *node;
    if (list->n < 2)
        return list->n ? list->v[0] : schema_none(s);
    if ((node = schema_make(s, from)))
        node->any = *list;
    return node;
}

struct schema_node *schema_make_all(struct schema *s,
                                    const struct schema_node *from,
                                    struct schema_node *a,
                                    struct schema_node *b)
{
    struct schema_node *node = a && b ? schema_make(s, from) : NULL;
    if (!node || !(node->all.v = schema_alloc(s, 2, sizeof a)))
        return NULL;
    node->plain = true;
    node->all.v[node->all.n++] = a;
    node->all.v[node->all.n++] = b;
    return node;
}

struct schema_node *schema_make_member(struct schema *s,
                                       const struct schema_node *from,
                                       const struct json_value *name,
                                       bool required, struct schema_node *value)
{
    struct schema_node *node = value ? schema_make(s, from) : NULL;
    if (!node || !(node->props.v = schema_alloc(s, 1, sizeof value)) ||
        !(node->required.v = schema_alloc(s, 1, sizeof name)))
        return NULL;
    if (required) {
        node->types = T_OBJECT;
        node->required.v[node->required.n++] = name;
    }
    if (value != s->always) {
        node->names = name;
        node->props.v[node->props.n++] = value;
    }
    return node;
}

/* Append a node to a list that has room. Returns -1 if it is NULL. */
static int put_node(struct node_list *list, struct schema_node *node)
{
    if (node)
        list->v[list->n++] = node;
    return node ? 0 : -1;
}

/* Let a node also satisfy one of two schemas. */
static int derive_either(struct schema *s, struct schema_node *node,
                         struct schema_node *a, struct schema_node *b)
{
    struct node_list ways = {schema_alloc(s, 2, sizeof a), 0};
    return !ways.v || put_node(&ways, a) || put_node(&ways, b)
               ? -1
               : put_node(&node->derived, schema_make_any(s, node, &ways));
}

/* ---- keywords ------------------------------------------------------------ */

/* Name the properties of a schema, so that their order does not depend on the
 * branch that its opposite takes. */
static int derive_names(struct schema *s, struct schema_node *node,
                        const struct schema_node *from)
{
    const struct json_value *value = from->constant;
    bool object = value && value->type == JSON_OBJECT;
    size_t n = object ? value->len : from->props.n;
    if (n == 0)
        return 0;
    struct schema_node *names = schema_make(s, from), *any = schema_always(s);
    if (!names || !any || !(names->props.v = schema_alloc(s, n, sizeof any)))
        return -1;
    names->names = object ? value->keys : from->names;
    while (names->props.n < n)
        names->props.v[names->props.n++] = any;
    return put_node(&node->derived, names);
}

static int derive_not(struct schema *s, struct schema_node *node)
{
    struct node_list ways;
    int rc = schema_not(s, node->negated, &ways);
    if (rc)
        return rc < 0 ? -1 : 0;
    if (s->simple && ways.n > 1)
        return schema_cannot_hold(s, node->at, node->made ? NULL : "not",
                                  "has too many combinations");
    if (derive_names(s, node, node->negated))
        return -1;
    return put_node(&node->derived, schema_make_any(s, node->negated, &ways));
}

static int derive_if(struct schema *s, struct schema_node *node)
{
    struct schema_node *yes = node->condition;
    if (s->simple)
        return schema_cannot_hold(s, node->at, "if",
                                  "has too many combinations");
    struct schema_node *no = schema_opposite(s, node->condition);
    if (no && node->then)
        yes = schema_make_all(s, node, yes, node->then);
    if (no && node->otherwise)
        no = schema_make_all(s, node, no, node->otherwise);
    return derive_either(s, node, yes, no);
}

/* Let a node also satisfy: the object has no member `name`, or `then` holds. */
static int derive_dependent(struct schema *s, struct schema_node *node,
                            const struct json_value *name,
                            struct schema_node *then)
{
    struct schema_node *without =
        schema_make_member(s, node, name, false, schema_none(s));
    return derive_either(s, node, without, then);
}

static int derive_required(struct schema *s, struct schema_node *node,
                           const struct json_value *name,
                           const struct json_value *list)
{
    struct schema_node *then = schema_make(s, node);
    if (list->len == 0)
        return 0;
    if (!then || !(then->required.v = schema_alloc(s, list->len, sizeof list)))
        return -1;
    for (size_t i = 0; i < list->len; i++)
        then->required.v[then->required.n++] = &list->items[i];
    return derive_dependent(s, node, name, then);
}

static int derive_schema(struct schema *s, struct schema_node *node,
                         const struct json_value *name,
                         struct schema_node *schema)
{
    struct schema_node *with =
        schema_make_member(s, node, name, true, schema_always(s));
    return derive_dependent(s, node, name,
                            schema_make_all(s, node, with, schema));
}

int schema_rewrite(struct schema *s, struct schema_node *node)
{
    size_t n_required = node->dependent ? node->dependent->len : 0;
    size_t most = 4 + n_required + node->dependents.n;
    bool others = node->other_items || node->other_props;
    int rc = 0;
    if (node->rewritten)
        return 0;
    node->rewritten = true;
    if (most == 4 && !node->negated && !node->condition && !others)
        return 0;
    if (!(node->derived.v = schema_alloc(s, most, sizeof node)))
        return -1;
    if (others)
        rc = put_node(&node->derived, schema_derive_unevaluated(s, node));
    if (!rc && node->negated)
        rc = derive_not(s, node);
    if (!rc && node->condition &&
        (node->then || node->otherwise || node->prepared))
        rc = derive_if(s, node);
    for (size_t i = 0; !rc && i < n_required; i++)
        rc = derive_required(s, node, &node->dependent->keys[i],
                             &node->dependent->items[i]);
    for (size_t i = 0; !rc && i < node->dependents.n; i++)
        rc = derive_schema(s, node, &node->dependent_names[i],
                           node->dependents.v[i]);
    return rc;
}

/* ---- members with one of many names -------------------------------------- */

/* Return whether a member that no schema names can have a name that `some` asks
 * for; -1 with the error set. */
static int some_other(struct schema *s, const struct schema_object *o,
                      const struct schema_some *some)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    for (size_t i = 0; i < o->n_extras; i++) {
        const struct dfa *p =
            dfa_combine(o->extras[i].names, some->names, false, &at);
        if (!p || p->n_states > 0)
            return p ? 1 : -1;
    }
    return 0;
}

/* Make the names that `some` asks for. */
static int name_some(struct schema *s, struct schema_some *some)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const struct dfa *any = schema_any_text(s), *p;
    if (!any || schema_texts_of(s, &some->unnamed, 1, &p))
        return -1;
    some->names = dfa_combine(any, p, true, &at);
    return some->names ? 0 : -1;
}

int schema_some_ways(struct schema *s, struct schema_node *const *v, size_t n,
                     struct schema_some *some, struct node_list *out)
{
    struct schema_object o;
    if (!some->names && name_some(s, some))
        return -1;
    if (schema_object_of(s, v, n, &o, true))
        return -1;
    int other = some_other(s, &o, some);
    *out =
        (struct node_list){schema_alloc(s, o.n_members + 1, sizeof *out->v), 0};
    if (other < 0 || !out->v)
        return -1;
    for (size_t i = 0; i < o.n_members; i++) {
        const struct schema_member *m = &o.members[i];
        if (!m->forbidden &&
            dfa_match(some->names, m->name->str, m->name->len) &&
            put_node(out,
                     schema_make_member(s, NULL, m->name, true, some->value)))
            return -1;
    }
    if (other && put_node(out, schema_make(s, NULL)))
        return -1;
    if (other)
        out->v[out->n - 1]->others = some;
    return 0;
}
