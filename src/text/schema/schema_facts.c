/* The demands that the schemas of a set make on one value together. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "text/schema/schema_int.h"
#include "text/schema/schema_number.h"

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

/* Numbers that are no integers. They have few digits, so that programs do not
 * read them as a double that is an integer. */
#define FRACTIONS                                                        \
    "-?(0|[1-9][0-9]{0,4})\\.[0-9]{0,9}[1-9]0{0,9}|-?[1-9][0-9]{5,9}\\." \
    "[0-9]{0,4}[1-9]0{0,9}"

/* Return the integers that are multiples as a node's multipleOf asks. */
static const struct dfa *multiples_of(struct schema *s,
                                      const struct schema_node *node,
                                      const struct dfa_place *at)
{
    struct schema_node *only = schema_make(s, node);
    struct number_form f;
    if (!only)
        return NULL;
    only->multiple_of = node->multiple_of;
    return schema_number_of(s, &only, 1, true, &f) ? NULL
                                                   : number_points(&f, at);
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
                                       unsigned types,
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
    if (p && !(types & T_INTEGER)) {
        if (!s->fractions && !(s->fractions = schema_regex(s, FRACTIONS)))
            return NULL;
        p = dfa_combine(p, s->fractions, false, &at);
    }
    for (size_t i = 0; p && i < n; i++) {
        if (!v[i]->not_multiple)
            continue;
        const struct dfa *no = multiples_of(s, v[i]->not_multiple, &at);
        if (!no && err.code == QWICK_ERR_USAGE) {
            if (schema_cannot_hold(s, v[i]->not_multiple->at, "multipleOf",
                                   "%s", err.msg))
                return NULL;
            err = (struct qwick_err){0};
            continue;
        }
        p = no ? dfa_combine(p, no, true, &at) : NULL;
    }
    if (!p)
        schema_refuse_err(s, n ? v[n - 1]->at : s->root, NULL, &err);
    return p;
}

/* ---- arrays -------------------------------------------------------------- */

/* Return the schema to which a schema refers that has only a $ref. */
static const struct schema_node *referred(const struct schema_node *node)
{
    while (node->plain && node->ref && node->all.n == 0)
        node = node->ref;
    return node;
}

/* Add what a node says about the items that an array contains. */
static void add_contains(const struct schema_node *node, struct schema_array *a)
{
    int64_t min = node->min_contains < 0 ? 1 : node->min_contains;
    size_t i = 0;
    if (!node->contains || (min == 0 && node->max_contains < 0))
        return;
    while (i < a->n_contains &&
           referred(a->counts[i].schema) != referred(node->contains))
        i++;
    if (i == MAX_CONTAINS) {
        a->again = node;
        return;
    }
    struct schema_contains *x = &a->counts[i];
    if (i == a->n_contains) {
        *x = (struct schema_contains){node->contains, 0, -1};
        a->n_contains++;
    }
    if (min > x->min)
        x->min = min;
    if (node->max_contains >= 0 &&
        (x->max < 0 || node->max_contains < x->max))
        x->max = node->max_contains;
    if (x->min > a->min)
        a->min = x->min;
    a->contains = node;
}

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
        if (v[i]->unique_items)
            a.unique = v[i];
        add_contains(v[i], &a);
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
    o->cap_members = most;
    o->members = schema_borrow(s, most, sizeof *o->members);
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
    bool others = node->pattern_props.n || node->additional;
    if (schema_step(s, node->props.n + (others ? o->n_members : 0)))
        return -1;
    for (size_t i = 0; others && i < o->n_members; i++)
        o->members[i].met = false;
    for (size_t i = 0; i < node->props.n; i++) {
        struct schema_member *m = find_member(o, &node->names[i]);
        add_schema(m, node->props.v[i]);
        m->met = true;
    }
    for (size_t k = others ? 0 : o->n_members; k < o->n_members; k++) {
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

/* The patterns of patternProperties of all nodes. */
struct patterns {
    const struct dfa **points;
    size_t *node; /* index of the node that has it */
    struct schema_node **schema;
    size_t n;
};

/* Names that match the same patterns: pattern i if met[i]. */
struct names {
    const struct dfa *points;
    bool *met;
};

static int list_patterns(struct schema *s, struct schema_node *const *v,
                         size_t n, struct patterns *p)
{
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += v[i]->pattern_props.n;
    p->points = schema_alloc(s, most, sizeof(struct dfa *));
    p->node = schema_alloc(s, most, sizeof *p->node);
    p->schema = schema_alloc(s, most, sizeof(struct schema_node *));
    if (!p->points || !p->node || !p->schema)
        return -1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i]->pattern_props.n; k++) {
            p->points[p->n] = v[i]->patterns_points[k];
            p->node[p->n] = i;
            p->schema[p->n++] = v[i]->pattern_props.v[k];
        }
    return 0;
}

/* The most combinations of patterns. */
static size_t most_names(const struct patterns *p)
{
    return p->n < 16 && 1u << p->n < MAX_EXTRAS ? 1u << p->n : MAX_EXTRAS;
}

static int compare_names(const void *a, const void *b)
{
    const struct json_value *x = *(const struct json_value *const *)a;
    const struct json_value *y = *(const struct json_value *const *)b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n ? memcmp(x->str, y->str, n) : 0;
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Make the names of a language that are not among x->v[0..n). */
static int make_others(struct schema *s, struct schema_others *x,
                       const struct dfa *all, const struct dfa_place *at)
{
    const char **words = schema_borrow(s, x->n, sizeof *words);
    size_t *lens = schema_borrow(s, x->n, sizeof *lens);
    if (!words || !lens)
        return -1;
    for (size_t i = 0; i < x->n; i++) {
        words[i] = x->v[i]->str;
        lens[i] = x->v[i]->len;
    }
    const struct dfa *named = dfa_words(words, lens, x->n, at);
    schema_give_back(s, words, x->n, sizeof *words);
    schema_give_back(s, lens, x->n, sizeof *lens);
    x->all = all;
    x->out = named ? dfa_combine(all, named, true, at) : NULL;
    return x->out ? 0 : -1;
}

/* Set *out to the names that no member has and that propertyNames admits. Many
 * sets have the same members. */
static int other_names(struct schema *s, const struct schema_object *o,
                       const struct dfa **out, const struct dfa_place *at)
{
    const struct dfa *all = o->names ? o->names : schema_any_text(s);
    const struct json_value **v;
    uint64_t hash = 0;
    *out = all;
    if (!all || o->n_members == 0)
        return all ? 0 : -1;
    if (!(v = schema_alloc(s, o->n_members, sizeof *v)))
        return -1;
    for (size_t i = 0; i < o->n_members; i++) {
        v[i] = o->members[i].name;
        hash += hash_bytes(1, v[i]->str, v[i]->len);
    }
    qsort(v, o->n_members, sizeof *v, compare_names);
    struct schema_others **first = &s->others[hash % SCHEMA_BUCKETS];
    for (struct schema_others *x = *first; x; x = x->next) {
        size_t i = x->hash == hash && x->n == o->n_members && x->all == all
                       ? 0
                       : SIZE_MAX;
        while (i < x->n && same_string(x->v[i], v[i]))
            i++;
        if (i != x->n)
            continue;
        *out = x->out;
        return 0;
    }
    struct schema_others *x = schema_alloc(s, 1, sizeof *x);
    if (!x)
        return -1;
    *x = (struct schema_others){
        .hash = hash, .v = v, .n = o->n_members, .next = *first};
    if (make_others(s, x, all, at))
        return -1;
    *first = x;
    *out = x->out;
    return 0;
}

/* Add the names that match pattern k, or that do not, as list[*n]. Names whose
 * member would have the schema false are left out. */
static int add_names(struct schema *s, const struct patterns *p,
                     const struct names *from, size_t k, bool met,
                     struct names *list, size_t *n, const struct dfa_place *at)
{
    struct names x = {schema_combine(s, from->points, p->points[k], !met, at),
                      schema_alloc(s, p->n, sizeof *x.met)};
    if (!x.points || !x.met)
        return -1;
    if (x.points->n_states == 0 || (met && p->schema[k]->never))
        return 0;
    if (*n == MAX_EXTRAS)
        return err_usage(at->e, "names can match more than %d combinations of "
                                "patterns",
                         MAX_EXTRAS);
    memcpy(x.met, from->met, p->n * sizeof *x.met);
    x.met[k] = met;
    list[(*n)++] = x;
    return 0;
}

/* Cut the names of list[0..*n) by one pattern after the other. */
static int cut_names(struct schema *s, const struct patterns *p,
                     struct names *list, size_t *n, const struct dfa_place *at)
{
    struct names *next = schema_alloc(s, most_names(p), sizeof *next);
    if (!next)
        return -1;
    for (size_t k = 0; k < p->n; k++) {
        size_t n_next = 0;
        for (size_t i = 0; i < *n; i++)
            if (add_names(s, p, &list[i], k, true, next, &n_next, at) ||
                add_names(s, p, &list[i], k, false, next, &n_next, at))
                return -1;
        memcpy(list, next, n_next * sizeof *next);
        *n = n_next;
    }
    return 0;
}

/* Add the members with some names, unless one of their schemas is false. */
static int add_extra(struct schema *s, struct schema_node *const *v, size_t n,
                     const struct patterns *p, const struct names *names,
                     struct schema_object *o)
{
    struct schema_extra *x = &o->extras[o->n_extras];
    x->names = names->points;
    x->n_all = 0;
    x->all = schema_alloc(s, n + p->n, sizeof *x->all);
    if (!x->all || schema_step(s, n + p->n))
        return -1;
    for (size_t i = 0, k = 0; i < n; i++) {
        bool met = false;
        for (; k < p->n && p->node[k] == i; k++)
            if (names->met[k]) {
                x->all[x->n_all++] = p->schema[k];
                met = true;
            }
        if (!met && v[i]->additional)
            x->all[x->n_all++] = v[i]->additional;
    }
    for (size_t i = 0; i < x->n_all; i++)
        if (x->all[i]->never)
            return 0;
    o->n_extras++;
    return 0;
}

/* Report patterns whose combinations are too many. Without them, any name has
 * any value. */
static int unheld_patterns(struct schema *s, struct schema_node *const *v,
                           size_t n, struct schema_object *o,
                           const struct dfa *others,
                           const struct qwick_err *err)
{
    size_t i = 0;
    while (i + 1 < n && !v[i]->pattern_props.n)
        i++;
    if (err->code != QWICK_ERR_USAGE)
        return schema_refuse_err(s, v[i]->at, "patternProperties", err);
    if (schema_cannot_hold(s, v[i]->at, "patternProperties", "%s", err->msg))
        return -1;
    o->extras[0] = (struct schema_extra){.names = others};
    o->n_extras = others->n_states > 0;
    return 0;
}

/* List the members that no schema names. */
static int list_extras(struct schema *s, struct schema_node *const *v, size_t n,
                       struct schema_object *o)
{
    struct qwick_err err = {0};
    struct dfa_place at = {&s->mem, &s->steps_left, &err};
    struct patterns p = {0};
    size_t n_list = 0;
    const struct dfa *others;
    if (list_patterns(s, v, n, &p))
        return -1;
    struct names *list = schema_alloc(s, most_names(&p), sizeof *list);
    if (!list || !(list[0].met = schema_alloc(s, p.n, sizeof *list->met)))
        return -1;
    if (other_names(s, o, &others, &at))
        return err.code ? schema_refuse_err(s, v[0]->at, NULL, &err) : -1;
    list[0].points = others;
    n_list = others->n_states > 0;
    int rc = cut_names(s, &p, list, &n_list, &at);
    if (rc && !err.code)
        return -1;
    o->extras = schema_alloc(s, n_list + 1, sizeof *o->extras);
    if (!o->extras)
        return -1;
    if (rc)
        return unheld_patterns(s, v, n, o, others, &err);
    for (size_t i = 0; i < n_list; i++)
        if (add_extra(s, v, n, &p, &list[i], o))
            return -1;
    return 0;
}

/* ---- names and their number ---------------------------------------------- */

/* Forbid the members whose names propertyNames does not admit. */
static int apply_prop_names(struct schema *s, struct schema_node *const *v,
                            size_t n, struct schema_object *o)
{
    size_t n_roots = 0;
    for (size_t i = 0; i < n; i++)
        n_roots += v[i]->prop_names != NULL;
    if (n_roots == 0)
        return 0;
    struct schema_node **roots = schema_alloc(s, n_roots, sizeof *roots);
    if (!roots)
        return -1;
    n_roots = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i]->prop_names)
            roots[n_roots++] = v[i]->prop_names;
    if (schema_texts_of(s, roots, n_roots, &o->names))
        return -1;
    for (size_t i = 0; i < o->n_members; i++)
        o->members[i].forbidden |= !dfa_match(
            o->names, o->members[i].name->str, o->members[i].name->len);
    return 0;
}

static void count_members(struct schema_node *const *v, size_t n,
                          struct schema_object *o)
{
    o->max = -1;
    for (size_t i = 0; i < n; i++) {
        if (v[i]->min_props > o->min) {
            o->min = v[i]->min_props;
            o->has_min = v[i]->at;
        }
        if (v[i]->max_props >= 0 &&
            (o->max < 0 || v[i]->max_props < o->max)) {
            o->max = v[i]->max_props;
            o->has_max = v[i]->at;
        }
    }
    for (size_t i = 0; i < o->n_members; i++)
        o->n_required += o->members[i].required;
}

bool schema_refuses_all(const struct schema_object *o)
{
    int64_t least = (int64_t)o->n_required > o->min ? (int64_t)o->n_required
                                                    : o->min;
    for (size_t i = 0; i < o->n_members; i++)
        if (o->members[i].required && o->members[i].forbidden)
            return true;
    return o->max >= 0 && least > o->max;
}

int schema_object_of(struct schema *s, struct schema_node *const *v, size_t n,
                     struct schema_object *out, bool extras)
{
    size_t most = most_schemas(v, n);
    *out = (struct schema_object){0};
    int rc = list_members(s, v, n, out);
    out->cap_all = out->n_members * most;
    out->all =
        rc ? NULL : schema_borrow(s, out->cap_all, sizeof *out->all);
    for (size_t i = 0; out->all && i < out->n_members; i++)
        out->members[i].all = out->all + i * most;
    rc = out->all ? 0 : -1;
    for (size_t k = 0; !rc && k < n; k++)
        rc = add_node(s, v[k], out);
    hashmap_free(&out->by_name);
    if (rc || apply_prop_names(s, v, n, out))
        return -1;
    count_members(v, n, out);
    return extras ? list_extras(s, v, n, out) : 0;
}

void schema_object_free(struct schema *s, struct schema_object *o)
{
    schema_give_back(s, o->members, o->cap_members, sizeof *o->members);
    schema_give_back(s, o->all, o->cap_all, sizeof *o->all);
}
