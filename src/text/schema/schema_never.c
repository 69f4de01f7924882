/* Sets that nothing satisfies. */
#include <string.h>

#include "text/schema/schema_number.h"
#include "text/schema/schema_set.h"

int schema_never_list(struct schema *s, int depth)
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

int schema_never_value(struct schema *s, struct schema_node *const *v, size_t n,
                       int depth)
{
    return schema_collect(s, NULL, 0, v, n) ? -1 : schema_never_list(s, depth);
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
        int rc = schema_never_value(s, item, k, depth - 1);
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
        rc = k ? schema_never_value(s, item, k, depth - 1) : 0;
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
            rc = schema_never_value(s, m->all, m->n_all, depth);
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
    struct schema_choice c = schema_find_choice(s, items, n);
    for (size_t i = 0; c.branches && i < c.branches->n; i++) {
        if (schema_collect_branches(s, items, n, &c, &c.branches->v[i], 1))
            return -1;
        int never = schema_never_list(s, depth);
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
    bool listed = schema_listed_values(v, n, &values, &n_values);
    for (size_t i = 0; listed && i < n_values; i++) {
        int rc = schema_all_admit(s, items, n, &values[i]);
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
