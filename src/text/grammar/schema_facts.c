/* The demands that the schemas of a set make on one value together. */
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "text/grammar/schema_int.h"
#include "text/grammar/schema_number.h"

unsigned schema_types(struct schema_node *const *v, size_t n)
{
    unsigned types = T_ALL;
    for (size_t i = 0; i < n; i++)
        types &= v[i]->types;
    return types;
}

/* ---- numbers ------------------------------------------------------------- */

int schema_next_double(struct schema *s, const struct json_value *v, bool above,
                       struct decimal **out)
{
    struct buf text = {0};
    double d;
    int rc = 0;
    if (json_double(v, &d) || d == 0)
        return 0;
    struct decimal *next = schema_alloc(s, 1, sizeof *next);
    if (!next)
        return -1;
    if (buf_json_double(&text, nextafter(d, above ? HUGE_VAL : -HUGE_VAL)))
        rc = err_oom(s->e, 64);
    else if (decimal_read(next, text.data, text.len, &s->mem) == 0)
        *out = next;
    buf_free(&text);
    return rc;
}

static int add_limit(struct schema *s, const struct schema_node *node,
                     struct number_limit *limits, struct number_form *f,
                     int kind, const struct decimal *value)
{
    if (!value)
        return 0;
    if (f->n_limits == NUMBER_MAX_LIMITS)
        return schema_refuse(s, node->at, NULL,
                             "more than %d limits for one number",
                             NUMBER_MAX_LIMITS);
    limits[f->n_limits].kind = kind;
    limits[f->n_limits++].value = *value;
    return 0;
}

/* Exclude one number. If it has a fraction, also exclude the numbers that
 * programs read as the same double. */
static int add_not(struct schema *s, const struct schema_node *node,
                   struct number_limit *limits, struct number_form *f,
                   const struct json_value *v)
{
    struct decimal d, *low = NULL, *high = NULL;
    int rc = decimal_read(&d, v->str, v->len, &s->mem);
    if (rc < 0)
        return err_oom(s->e, v->len);
    if (rc > 0)
        return schema_refuse(s, node->at, "not", "%s has too many digits",
                             ERR_SHOW(v->str, v->len));
    if (!f->integer && (schema_next_double(s, v, false, &low) ||
                        schema_next_double(s, v, true, &high)))
        return -1;
    if (!low || !high)
        return add_limit(s, node, limits, f, NUMBER_NOT, &d);
    if (add_limit(s, node, limits, f, NUMBER_OUTSIDE, low))
        return -1;
    return add_limit(s, node, limits, f, NUMBER_AT_LEAST, high);
}

static int add_excluded(struct schema *s, const struct schema_node *node,
                        struct number_limit *limits, struct number_form *f)
{
    for (size_t i = 0; i < node->excluded.n; i++)
        if (node->excluded.v[i]->type == JSON_NUMBER &&
            add_not(s, node, limits, f, node->excluded.v[i]))
            return -1;
    return 0;
}

/* Let numbers also be multiples of a node's number. Multiples of integers are
 * written as integers. */
static int add_multiple(struct schema *s, const struct schema_node *node,
                        struct number_form *f, bool integer)
{
    struct multiple k;
    if (multiple_common(&k, f->multiple, node->multiple_of, integer))
        return schema_cannot_hold(s, node->at, "multipleOf",
                                  "the common multiples of it and other "
                                  "numbers have too many digits");
    f->integer |= k.e >= 0;
    f->multiple = k.m == 1 && k.e == 0 ? (struct multiple){0, 0} : k;
    return 0;
}

int schema_number_of(struct schema *s, struct schema_node *const *v, size_t n,
                     bool integer, struct number_form *out)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += 6 + 2 * v[i]->excluded.n; /* see below */
    if (most > NUMBER_MAX_LIMITS)
        most = NUMBER_MAX_LIMITS;
    struct number_limit *limits = schema_alloc(s, most, sizeof *limits);
    *out = (struct number_form){.integer = integer, .limits = limits};
    if (!limits)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (add_limit(s, v[i], limits, out, NUMBER_AT_LEAST, v[i]->min) ||
            add_limit(s, v[i], limits, out, NUMBER_ABOVE, v[i]->above) ||
            add_limit(s, v[i], limits, out, NUMBER_AT_MOST, v[i]->max) ||
            add_limit(s, v[i], limits, out, NUMBER_BELOW, v[i]->below) ||
            add_excluded(s, v[i], limits, out))
            return -1;
        if (!integer &&
            (add_limit(s, v[i], limits, out, NUMBER_AT_LEAST,
                       v[i]->above_next) ||
             add_limit(s, v[i], limits, out, NUMBER_AT_MOST, v[i]->below_next)))
            return -1;
        if (v[i]->multiple_of.m && add_multiple(s, v[i], out, integer))
            return -1;
    }
    return 0;
}

/* Return the first schema with a multipleOf. */
static const struct json_value *multiple_at(struct schema_node *const *v,
                                            size_t n)
{
    size_t i = 0;
    while (i + 1 < n && !v[i]->multiple_of.m)
        i++;
    return v[i]->at;
}

const struct dfa *schema_number_points(struct schema *s,
                                       struct schema_node *const *v, size_t n,
                                       struct number_form *f)
{
    struct qwick_err err = {0};
    struct dfa_place at = {&s->mem, &s->steps_left, &err};
    const struct dfa *p = number_points(f, &at);
    if (!p && f->multiple.m && err.code == QWICK_ERR_USAGE) {
        if (schema_cannot_hold(s, multiple_at(v, n), "multipleOf", "%s",
                               err.msg))
            return NULL;
        f->multiple.m = 0;
        err = (struct qwick_err){0};
        p = number_points(f, &at);
    }
    if (!p)
        schema_refuse_err(s, n ? v[n - 1]->at : s->root, NULL, &err);
    return p;
}

/* ---- arrays -------------------------------------------------------------- */

struct schema_array schema_array_of(struct schema_node *const *v, size_t n)
{
    struct schema_array a = {.max = -1};
    for (size_t i = 0; i < n; i++) {
        if (v[i]->min_items > a.min)
            a.min = v[i]->min_items;
        if (v[i]->max_items >= 0 && (a.max < 0 || v[i]->max_items < a.max))
            a.max = v[i]->max_items;
        if (v[i]->prefix.n > a.n_prefix)
            a.n_prefix = v[i]->prefix.n;
    }
    return a;
}

size_t schema_item_of(struct schema_node *const *v, size_t n, size_t i,
                      struct schema_node **out)
{
    size_t n_out = 0;
    for (size_t k = 0; k < n; k++) {
        if (i < v[k]->prefix.n)
            out[n_out++] = v[k]->prefix.v[i];
        else if (v[k]->items)
            out[n_out++] = v[k]->items;
    }
    return n_out;
}

/* ---- objects ------------------------------------------------------------- */

static bool same_string(const struct json_value *a, const struct json_value *b)
{
    return a->len == b->len && memcmp(a->str, b->str, a->len) == 0;
}

/* Return the member with a name, or NULL. */
static struct schema_member *find_member(const struct schema_object *o,
                                         const struct json_value *name)
{
    uint64_t h = hash_bytes(0, name->str, name->len);
    uint32_t at = hashmap_slot(&o->by_name, h), i;
    while ((i = hashmap_next(&o->by_name, h, &at)) != HASHMAP_NONE)
        if (same_string(o->members[i].name, name))
            return &o->members[i];
    return NULL;
}

/* Return the member with a name, which is added if it is new. */
static struct schema_member *member_of(struct schema_object *o,
                                       const struct json_value *name)
{
    struct schema_member *m = find_member(o, name);
    if (m)
        return m;
    hashmap_put(&o->by_name, hash_bytes(0, name->str, name->len),
                (uint32_t)o->n_members);
    o->members[o->n_members] = (struct schema_member){.name = name};
    return &o->members[o->n_members++];
}

static int list_members(struct schema *s, struct schema_node *const *v,
                        size_t n, struct schema_object *o)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += v[i]->props.n + v[i]->required.n;
    o->members = schema_alloc(s, most, sizeof *o->members);
    if (!o->members || schema_step(s, most) ||
        hashmap_init(&o->by_name, most, most, s->e))
        return -1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i]->props.n; k++)
            member_of(o, &v[i]->names[k]);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i]->required.n; k++)
            member_of(o, v[i]->required.v[k])->required = true;
    return 0;
}

static void add_schema(struct schema_member *m, struct schema_node *node)
{
    m->all[m->n_all++] = node;
    m->forbidden |= node->never;
}

/* Add the demands of a node on the members. */
static int add_node(struct schema *s, const struct schema_node *node,
                    struct schema_object *o)
{
    if (schema_step(s, node->props.n + o->n_members))
        return -1;
    for (size_t i = 0; i < o->n_members; i++)
        o->members[i].met = false;
    for (size_t i = 0; i < node->props.n; i++) {
        struct schema_member *m = find_member(o, &node->names[i]);
        add_schema(m, node->props.v[i]);
        m->met = true;
    }
    for (size_t k = 0; k < o->n_members; k++) {
        struct schema_member *m = &o->members[k];
        for (size_t i = 0; i < node->pattern_props.n; i++)
            if (dfa_match(node->patterns_points[i], m->name->str,
                             m->name->len)) {
                add_schema(m, node->pattern_props.v[i]);
                m->met = true;
            }
        if (!m->met && node->additional)
            add_schema(m, node->additional);
    }
    return 0;
}

/* Return how many schemas of a node can apply to one member. */
static size_t most_schemas(struct schema_node *const *v, size_t n)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i]->props.n || v[i]->pattern_props.n || v[i]->additional)
            most += 1 + v[i]->pattern_props.n;
    return most;
}

/* ---- members that no schema names ---------------------------------------- */

/* The patterns of patternProperties of all nodes. A set of them is a number of
 * bits. */
struct patterns {
    const struct dfa *points[MAX_PATTERNS];
    size_t node[MAX_PATTERNS]; /* index of the node that has it */
    struct schema_node *schema[MAX_PATTERNS];
    size_t n;
};

static int list_patterns(struct schema *s, struct schema_node *const *v,
                         size_t n, struct patterns *p)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i]->pattern_props.n; k++) {
            if (p->n == MAX_PATTERNS)
                return schema_refuse(s, v[i]->at, "patternProperties",
                                     "more than %d patterns for one object",
                                     MAX_PATTERNS);
            p->points[p->n] = v[i]->patterns_points[k];
            p->node[p->n] = i;
            p->schema[p->n++] = v[i]->pattern_props.v[k];
        }
    return 0;
}

/* Collect the schemas for names that match the patterns of `mask` and no
 * others. Returns false if one of them is false. */
static bool schemas_of_mask(struct schema_node *const *v, size_t n,
                            const struct patterns *p, unsigned mask,
                            struct schema_extra *x)
{
    x->n_all = 0;
    for (size_t i = 0; i < n; i++) {
        bool met = false;
        for (size_t k = 0; k < p->n; k++)
            if (p->node[k] == i && (mask >> k & 1)) {
                x->all[x->n_all++] = p->schema[k];
                met = true;
            }
        if (!met && v[i]->additional)
            x->all[x->n_all++] = v[i]->additional;
    }
    for (size_t i = 0; i < x->n_all; i++)
        if (x->all[i]->never)
            return false;
    return true;
}

/* Return the automaton of the names that no member has. */
static const struct dfa *other_names(struct schema *s,
                                        const struct schema_object *o,
                                        const struct dfa_place *at)
{
    const struct dfa *any = schema_any_text(s);
    if (!any || o->n_members == 0)
        return any;
    const char **words = schema_alloc(s, o->n_members, sizeof *words);
    size_t *lens = schema_alloc(s, o->n_members, sizeof *lens);
    if (!words || !lens)
        return NULL;
    for (size_t i = 0; i < o->n_members; i++) {
        words[i] = o->members[i].name->str;
        lens[i] = o->members[i].name->len;
    }
    const struct dfa *named = dfa_words(words, lens, o->n_members, at);
    return named ? dfa_combine(any, named, true, at) : NULL;
}

/* Add the extras for names that match the patterns of `mask`. */
static int add_extra(struct schema *s, struct schema_node *const *v, size_t n,
                     const struct patterns *p, unsigned mask,
                     struct schema_object *o)
{
    struct schema_extra *x = &o->extras[o->n_extras];
    struct qwick_err err = {0};
    struct dfa_place at = {&s->mem, &s->steps_left, &err};
    x->all = schema_alloc(s, n * (1 + MAX_PATTERNS), sizeof *x->all);
    if (!x->all)
        return -1;
    if (!schemas_of_mask(v, n, p, mask, x))
        return 0;
    x->names = other_names(s, o, &at);
    for (size_t k = 0; k < p->n && x->names; k++)
        x->names =
            dfa_combine(x->names, p->points[k], !(mask >> k & 1), &at);
    if (!x->names)
        return err.code ? schema_refuse_err(s, v[0]->at, NULL, &err) : -1;
    o->n_extras += x->names->n_states > 0;
    return 0;
}

int schema_object_of(struct schema *s, struct schema_node *const *v, size_t n,
                     struct schema_object *out, bool extras)
{
    struct patterns p = {0};
    size_t most = most_schemas(v, n);
    *out = (struct schema_object){0};
    int rc = list_patterns(s, v, n, &p) || list_members(s, v, n, out) ? -1 : 0;
    struct schema_node **all =
        rc ? NULL : schema_alloc(s, out->n_members * most, sizeof *all);
    for (size_t i = 0; all && i < out->n_members; i++)
        out->members[i].all = all + i * most;
    rc = all ? 0 : -1;
    for (size_t k = 0; !rc && k < n; k++)
        rc = add_node(s, v[k], out);
    for (unsigned mask = 0; !rc && extras && mask < 1u << p.n; mask++)
        rc = add_extra(s, v, n, &p, mask, out);
    hashmap_free(&out->by_name);
    return rc;
}
