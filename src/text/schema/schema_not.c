/* The opposite of a schema: the values that do not satisfy it.
 *
 * A value satisfies a schema if it satisfies all of its keywords. So it
 * satisfies the opposite if one keyword fails: the opposite is a choice with
 * one branch or more for each keyword. A keyword that is about one type fails
 * only for values of this type. Opposites of schemas inside are not expanded
 * here, see schema_rewrite.c. */
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/hash.h"
#include "text/schema/schema_int.h"

enum {
    MAX_BRANCHES = 12, /* oneOf */
    MAX_PARTS = 64,    /* items or members of a constant */
    NUMBERS = T_INTEGER | T_NUMBER
};

/* The branches of an opposite. */
struct opposite {
    struct schema *s;
    struct schema_node *of;
    struct node_list out;
    size_t cap;
    bool dropped; /* a keyword cannot be held, and the compiler goes on */
};

/* ---- branches ------------------------------------------------------------ */

/* Append a branch. Returns -1 if it is NULL. */
static int put_branch(struct opposite *o, struct schema_node *node)
{
    if (!node)
        return -1;
    if (o->out.n == o->cap) {
        size_t cap = 2 * o->cap + 8;
        struct schema_node **v = schema_alloc(o->s, cap, sizeof *v);
        if (!v)
            return -1;
        if (o->out.n)
            memcpy(v, o->out.v, o->out.n * sizeof *v);
        o->out.v = v;
        o->cap = cap;
    }
    o->out.v[o->out.n++] = node;
    return 0;
}

/* Append the values of some types. Equal branches are one node, see
 * schema_settle. */
static int types_branch(struct opposite *o, unsigned types)
{
    struct schema_node **node = &o->s->of_types[types];
    if (!*node && (*node = schema_make(o->s, o->of)))
        (*node)->types = types;
    return put_branch(o, *node);
}

/* Append and return a branch for values of some types. */
static struct schema_node *new_branch(struct opposite *o, unsigned types)
{
    struct schema_node *node = schema_make(o->s, o->of);
    if (node)
        node->types = types;
    return put_branch(o, node) ? NULL : node;
}

static int drop(struct opposite *o, const char *keyword)
{
    o->dropped = true;
    return schema_cannot_hold(o->s, o->of->at, keyword,
                              "its opposite, for not, oneOf or if, is not "
                              "supported");
}

/* Whether a schema admits all values, as far as a look at it tells. */
static bool admits_all(const struct schema_node *x)
{
    return x->plain && !x->ref && !x->all.n;
}

struct schema_node *schema_opposite(struct schema *s, struct schema_node *node)
{
    if (node->made && node->negated)
        return node->negated;
    if (node->never)
        return schema_always(s);
    if (admits_all(node))
        return schema_none(s);
    if (node->opposite)
        return node->opposite;
    struct schema_node *no = schema_make(s, node);
    if (!no)
        return NULL;
    no->negated = node;
    no->rewritten = false;
    return node->opposite = no;
}

/* ---- values -------------------------------------------------------------- */

/* Return the schema of one value. */
static struct schema_node *constant(struct opposite *o,
                                    const struct json_value *v)
{
    struct schema_node *node = schema_make(o->s, o->of);
    if (node)
        node->constant = v;
    return node;
}

/* Return a schema of arrays of i + 1 items or more, whose item i satisfies
 * `item`. */
static struct schema_node *item_branch(struct opposite *o, size_t i,
                                       struct schema_node *item)
{
    struct schema_node *node = item ? new_branch(o, T_ARRAY) : NULL;
    struct schema_node *any = schema_always(o->s);
    if (!node || !any ||
        !(node->prefix.v = schema_alloc(o->s, i + 1, sizeof item)))
        return NULL;
    while (node->prefix.n < i)
        node->prefix.v[node->prefix.n++] = any;
    node->prefix.v[node->prefix.n++] = item;
    node->min_items = (int64_t)i + 1;
    return node;
}

static int deny_length(struct opposite *o, size_t len)
{
    struct schema_node *more = new_branch(o, T_ARRAY);
    if (!more)
        return -1;
    more->min_items = (int64_t)len + 1;
    if (len > 0) {
        struct schema_node *less = new_branch(o, T_ARRAY);
        if (!less)
            return -1;
        less->max_items = (int64_t)len - 1;
    }
    return 0;
}

static int deny_array(struct opposite *o, const struct json_value *v)
{
    for (size_t i = 0; i < v->len; i++) {
        struct schema_node *c = constant(o, &v->items[i]);
        if (!c || !item_branch(o, i, schema_opposite(o->s, c)))
            return -1;
    }
    return deny_length(o, v->len);
}

/* Append: the object has a member with a name of a language, whose value
 * satisfies a schema. */
static int some_branch(struct opposite *o, const struct dfa *names,
                       struct schema_node *value)
{
    struct schema_some *some = schema_alloc(o->s, 1, sizeof *some);
    struct schema_node *node = value ? new_branch(o, T_OBJECT) : NULL;
    if (!some || !node || !names)
        return -1;
    *some = (struct schema_some){.names = names, .value = value};
    node->some = some;
    return 0;
}

/* Return the names that are not among names[0..n). */
static const struct dfa *names_without(struct schema *s,
                                       const struct json_value *names, size_t n)
{
    struct dfa_place at = {&s->mem, &s->steps_left, s->e};
    const char **words = schema_alloc(s, n, sizeof *words);
    size_t *lens = schema_alloc(s, n, sizeof *lens);
    const struct dfa *any = schema_any_text(s);
    if (!words || !lens || n == 0)
        return n == 0 && words && lens ? any : NULL;
    for (size_t i = 0; i < n; i++) {
        words[i] = names[i].str;
        lens[i] = names[i].len;
    }
    const struct dfa *p = any ? dfa_words(words, lens, n, &at) : NULL;
    return p ? dfa_combine(any, p, true, &at) : NULL;
}

static int deny_member(struct opposite *o, const struct json_value *name,
                       struct schema_node *value)
{
    struct schema_node *no = value ? schema_opposite(o->s, value) : NULL;
    return no ? put_branch(o, schema_make_member(o->s, o->of, name, true, no))
              : -1;
}

/* Append: the object has no member of this name. Equal branches are one node,
 * see schema_settle. */
static int deny_required(struct opposite *o, const struct json_value *name)
{
    struct schema *s = o->s;
    uint64_t h = hash_bytes(0, name->str, name->len);
    uint32_t at, i;
    if (!s->by_missing.slots &&
        hashmap_init(&s->by_missing, MAX_NODES, MAX_NODES, s->e))
        return -1;
    at = hashmap_slot(&s->by_missing, h);
    while ((i = hashmap_next(&s->by_missing, h, &at)) != HASHMAP_NONE)
        if (s->nodes[i]->names->len == name->len &&
            memcmp(s->nodes[i]->names->str, name->str, name->len) == 0)
            return put_branch(o, s->nodes[i]);
    struct schema_node *node =
        schema_make_member(s, o->of, name, false, schema_none(s));
    if (!node)
        return -1;
    node->types = T_OBJECT;
    hashmap_put(&s->by_missing, h, node->id);
    return put_branch(o, node);
}

static int deny_object(struct opposite *o, const struct json_value *v)
{
    for (size_t i = 0; i < v->len; i++)
        if (deny_required(o, &v->keys[i]) ||
            deny_member(o, &v->keys[i], constant(o, &v->items[i])))
            return -1;
    return some_branch(o, names_without(o->s, v->keys, v->len),
                       schema_always(o->s));
}

/* Append the values that differ from a constant array or object. */
static int deny_container(struct opposite *o, const struct json_value *v)
{
    unsigned type = v->type == JSON_ARRAY ? T_ARRAY : T_OBJECT;
    if (v->len > MAX_PARTS)
        return drop(o, o->of->constant ? "const" : "enum");
    if (types_branch(o, T_ALL & ~type))
        return -1;
    return type == T_ARRAY ? deny_array(o, v) : deny_object(o, v);
}

/* Append the values that are none of values[0..n). */
static int deny_values(struct opposite *o, const struct json_value *values,
                       size_t n)
{
    struct schema_node *node;
    if (n == 1 && values->type >= JSON_ARRAY)
        return deny_container(o, values);
    if (!(node = new_branch(o, T_ALL)) ||
        !(node->excluded.v = schema_alloc(o->s, n, sizeof values)) ||
        !(node->all.v = schema_alloc(o->s, n, sizeof node)))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (values[i].type < JSON_ARRAY) {
            node->excluded.v[node->excluded.n++] = &values[i];
            continue;
        }
        struct schema_node *c = constant(o, &values[i]);
        struct schema_node *no = c ? schema_opposite(o->s, c) : NULL;
        if (!no)
            return -1;
        node->all.v[node->all.n++] = no;
    }
    return 0;
}

/* Append the values that `excluded` names. */
static int deny_excluded(struct opposite *o)
{
    const struct value_list *x = &o->of->excluded;
    for (size_t i = 0; i < x->n; i++)
        if (put_branch(o, constant(o, x->v[i])))
            return -1;
    return 0;
}

/* ---- combinations -------------------------------------------------------- */

/* Append a branch that satisfies no schema of a list. */
static int deny_list(struct opposite *o, const struct node_list *list)
{
    struct schema_node *node = new_branch(o, T_ALL);
    if (!node || !(node->all.v = schema_alloc(o->s, list->n, sizeof node)))
        return -1;
    node->plain = true;
    for (; node->all.n < list->n; node->all.n++)
        if (!(node->all.v[node->all.n] =
                  schema_opposite(o->s, list->v[node->all.n])))
            return -1;
    return 0;
}

static int deny_one(struct opposite *o)
{
    const struct node_list *one = &o->of->one;
    if (one->n > MAX_BRANCHES)
        return drop(o, "oneOf");
    for (size_t i = 0; i < one->n; i++)
        for (size_t k = i + 1; k < one->n; k++)
            if (put_branch(o,
                           schema_make_all(o->s, o->of, one->v[i], one->v[k])))
                return -1;
    return deny_list(o, one);
}

static int deny_part(struct opposite *o, struct schema_node *part)
{
    return put_branch(o, schema_opposite(o->s, part));
}

static int deny_if(struct opposite *o)
{
    struct schema_node *x = o->of, *no = schema_opposite(o->s, x->condition);
    struct schema_node *part;
    if (!no)
        return -1;
    if (x->then &&
        (!(part = schema_opposite(o->s, x->then)) ||
         put_branch(o, schema_make_all(o->s, x, x->condition, part))))
        return -1;
    if (x->otherwise && (!(part = schema_opposite(o->s, x->otherwise)) ||
                         put_branch(o, schema_make_all(o->s, x, no, part))))
        return -1;
    return 0;
}

static int deny_combinations(struct opposite *o)
{
    struct schema_node *x = o->of;
    if ((x->ref && deny_part(o, x->ref)) ||
        (x->any.n && deny_list(o, &x->any)) || (x->one.n && deny_one(o)) ||
        (x->negated && put_branch(o, x->negated)) ||
        (x->condition && deny_if(o)))
        return -1;
    for (size_t i = 0; i < x->all.n; i++)
        if (deny_part(o, x->all.v[i]))
            return -1;
    return 0;
}

/* ---- numbers and strings ------------------------------------------------- */

/* Set *out to the double next to a bound; see schema_next_double. */
static int next_double(struct schema *s, const struct decimal *d, bool above,
                       struct decimal **out)
{
    struct buf b = {0};
    int rc = 0;
    if ((d->negative && buf_putc(&b, '-')) ||
        (d->n_whole ? buf_append(&b, d->whole, d->n_whole)
                    : buf_putc(&b, '0')) ||
        (d->n_frac &&
         (buf_putc(&b, '.') || buf_append(&b, d->frac, d->n_frac))) ||
        buf_putc(&b, '\0'))
        rc = err_oom(s->e, d->n_whole + d->n_frac);
    struct json_value v = {
        .type = JSON_NUMBER, .str = b.data, .len = b.len ? b.len - 1 : 0};
    if (!rc)
        rc = schema_next_double(s, &v, above, out);
    buf_free(&b);
    return rc;
}

static int deny_bounds(struct opposite *o)
{
    const struct schema_node *x = o->of;
    struct schema_node *node;
    if (x->above) {
        if (!(node = new_branch(o, NUMBERS)))
            return -1;
        node->max = x->above;
    }
    if (x->below) {
        if (!(node = new_branch(o, NUMBERS)))
            return -1;
        node->min = x->below;
    }
    if (x->min) {
        if (!(node = new_branch(o, NUMBERS)) ||
            next_double(o->s, x->min, false, &node->below_next))
            return -1;
        node->below = x->min;
    }
    if (x->max) {
        if (!(node = new_branch(o, NUMBERS)) ||
            next_double(o->s, x->max, true, &node->above_next))
            return -1;
        node->above = x->max;
    }
    return 0;
}

static int deny_number(struct opposite *o)
{
    struct schema_node *node;
    if (deny_bounds(o))
        return -1;
    if (!o->of->multiple_of.m)
        return 0;
    if (o->of->multiple_of.e < 0 && (o->of->types & T_NUMBER))
        return drop(o, "multipleOf");
    if (o->of->types & T_NUMBER && types_branch(o, T_NUMBER))
        return -1;
    if (!(node = new_branch(o, T_INTEGER)))
        return -1;
    node->not_multiple = o->of;
    return 0;
}

static int deny_string(struct opposite *o)
{
    const struct schema_node *x = o->of;
    struct schema_node *node;
    if (x->format && drop(o, "format"))
        return -1;
    if (x->min_length > 0) {
        if (!(node = new_branch(o, T_STRING)))
            return -1;
        node->max_length = x->min_length - 1;
    }
    if (x->max_length >= 0) {
        if (!(node = new_branch(o, T_STRING)))
            return -1;
        node->min_length = x->max_length + 1;
    }
    if (x->pattern_dfa) {
        if (!(node = new_branch(o, T_STRING)))
            return -1;
        node->not_pattern = x->pattern_dfa;
    }
    return 0;
}

/* ---- arrays and objects -------------------------------------------------- */

static int deny_items(struct opposite *o)
{
    const struct schema_node *x = o->of;
    struct schema_node *node;
    for (size_t i = 0; i < x->prefix.n; i++)
        if (!admits_all(x->prefix.v[i]) &&
            !item_branch(o, i, schema_opposite(o->s, x->prefix.v[i])))
            return -1;
    if (!x->items || admits_all(x->items))
        return 0;
    if (!x->items->never && x->prefix.n)
        return drop(o, "items");
    if (!(node = new_branch(o, T_ARRAY)))
        return -1;
    if (x->items->never)
        node->min_items = (int64_t)x->prefix.n + 1;
    else
        node->contains = schema_opposite(o->s, x->items);
    return node->contains || x->items->never ? 0 : -1;
}

static int deny_contains(struct opposite *o)
{
    struct schema_node *x = o->of, *node;
    int64_t min = x->min_contains < 0 ? 1 : x->min_contains;
    if (min > 0) {
        if (!(node = new_branch(o, T_ARRAY)))
            return -1;
        node->contains = x->contains;
        node->min_contains = 0;
        node->max_contains = min - 1;
        if (min == 1) {
            node->contains = NULL;
            node->items = schema_opposite(o->s, x->contains);
        }
    }
    if (x->max_contains >= 0) {
        if (!(node = new_branch(o, T_ARRAY)))
            return -1;
        node->contains = x->contains;
        node->min_contains = x->max_contains + 1;
    }
    return o->s->e->code ? -1 : 0;
}

static int deny_array_keywords(struct opposite *o)
{
    const struct schema_node *x = o->of;
    struct schema_node *node;
    if (deny_items(o) || (x->contains && deny_contains(o)) ||
        (x->unique_items && drop(o, "uniqueItems")) ||
        (x->other_items && drop(o, "unevaluatedItems")))
        return -1;
    if (x->min_items > 0) {
        if (!(node = new_branch(o, T_ARRAY)))
            return -1;
        node->max_items = x->min_items - 1;
    }
    if (x->max_items >= 0) {
        if (!(node = new_branch(o, T_ARRAY)))
            return -1;
        node->min_items = x->max_items + 1;
    }
    return 0;
}

static int deny_additional(struct opposite *o)
{
    const struct schema_node *x = o->of;
    struct dfa_place at = {&o->s->mem, &o->s->steps_left, o->s->e};
    if (!x->additional || admits_all(x->additional))
        return 0;
    const struct dfa *p = names_without(o->s, x->names, x->props.n);
    for (size_t i = 0; p && i < x->pattern_props.n; i++)
        p = dfa_combine(p, x->patterns_points[i], true, &at);
    return some_branch(o, p, schema_opposite(o->s, x->additional));
}

static int deny_dependent(struct opposite *o)
{
    const struct schema_node *x = o->of;
    const struct json_value *d = x->dependent;
    for (size_t i = 0; d && i < d->len; i++)
        for (size_t k = 0; k < d->items[i].len; k++) {
            struct schema_node *with = schema_make_member(
                o->s, x, &d->keys[i], true, schema_always(o->s));
            struct schema_node *without = schema_make_member(
                o->s, x, &d->items[i].items[k], false, schema_none(o->s));
            if (put_branch(o, schema_make_all(o->s, x, with, without)))
                return -1;
        }
    for (size_t i = 0; i < x->dependents.n; i++) {
        struct schema_node *with = schema_make_member(
            o->s, x, &x->dependent_names[i], true, schema_always(o->s));
        struct schema_node *no = schema_opposite(o->s, x->dependents.v[i]);
        if (put_branch(o, schema_make_all(o->s, x, with, no)))
            return -1;
    }
    return 0;
}

static int deny_members(struct opposite *o)
{
    const struct schema_node *x = o->of;
    for (size_t i = 0; i < x->required.n; i++)
        if (deny_required(o, x->required.v[i]))
            return -1;
    for (size_t i = 0; i < x->props.n; i++)
        if (!admits_all(x->props.v[i]) &&
            deny_member(o, &x->names[i], x->props.v[i]))
            return -1;
    for (size_t i = 0; i < x->pattern_props.n; i++)
        if (!admits_all(x->pattern_props.v[i]) &&
            some_branch(o, x->patterns_points[i],
                        schema_opposite(o->s, x->pattern_props.v[i])))
            return -1;
    return deny_additional(o);
}

/* Append: the object has a member whose name does not satisfy propertyNames. */
static int deny_names(struct opposite *o)
{
    struct schema_some *some = schema_alloc(o->s, 1, sizeof *some);
    struct schema_node *any = schema_always(o->s), *node;
    if (!some || !any || !(node = new_branch(o, T_OBJECT)))
        return -1;
    *some = (struct schema_some){.value = any, .unnamed = o->of->prop_names};
    node->some = some;
    return 0;
}

static int deny_counts(struct opposite *o)
{
    const struct schema_node *x = o->of;
    struct schema_node *node;
    if (x->min_props > 0) {
        if (!(node = new_branch(o, T_OBJECT)))
            return -1;
        node->max_props = x->min_props - 1;
    }
    if (x->max_props >= 0) {
        if (!(node = new_branch(o, T_OBJECT)))
            return -1;
        node->min_props = x->max_props + 1;
    }
    return 0;
}

static int deny_object_keywords(struct opposite *o)
{
    const struct schema_node *x = o->of;
    if (deny_counts(o) || (x->prop_names && deny_names(o)) ||
        (x->other_props && drop(o, "unevaluatedProperties")))
        return -1;
    return deny_members(o) || deny_dependent(o) ? -1 : 0;
}

/* ---- all keywords -------------------------------------------------------- */

/* Append the values that fail the keywords which are about any type. */
static int deny_any_type(struct opposite *o)
{
    struct schema_node *x = o->of;
    const struct json_value *list = x->enumeration;
    if (x->types != T_ALL && types_branch(o, T_ALL & ~x->types))
        return -1;
    if ((list && deny_values(o, list->items, list->len)) ||
        (x->constant && deny_values(o, x->constant, 1)))
        return -1;
    return deny_excluded(o) || deny_combinations(o) ? -1 : 0;
}

int schema_not(struct schema *s, struct schema_node *node,
               struct node_list *out)
{
    struct opposite o = {.s = s, .of = node};
    int rc = 0;
    *out = (struct node_list){0};
    if (node->weak)
        return schema_step(s, 1) ? -1 : 1;
    if (node->never)
        rc = put_branch(&o, schema_always(s));
    else if (deny_any_type(&o) ||
             ((node->types & NUMBERS) && deny_number(&o)) ||
             ((node->types & T_STRING) && deny_string(&o)) ||
             ((node->types & T_ARRAY) && deny_array_keywords(&o)) ||
             ((node->types & T_OBJECT) && deny_object_keywords(&o)))
        rc = -1;
    *out = o.out;
    return rc || schema_step(s, 1 + o.out.n) ? -1 : o.dropped;
}
