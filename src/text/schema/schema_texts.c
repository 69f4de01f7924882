/* Which strings, and which few values, satisfy a set. */
#include <stdio.h>

#include "text/schema/schema_set.h"

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
                     ? schema_all_admit(s, items, n, &values[i])
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
                        const struct schema_choice *c, const struct dfa **out,
                        const struct dfa_place *at)
{
    static const struct dfa nothing = {0};
    const struct dfa *any = schema_any_text(s), *none = any;
    const struct dfa *twice = &nothing, *branch;
    for (size_t i = 0; any && i < c->branches->n; i++) {
        if (schema_collect_branches(s, items, n, c, &c->branches->v[i], 1))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = schema_copy_list(s);
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
    struct schema_choice c = schema_find_choice(s, items, n);
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
    if (schema_listed_values(v, n, &values, &n_values))
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
    uint32_t *list = schema_copy_list(s);
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
    int rc = schema_all_admit(s, items, n, value);
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

/* Set *out to the whole number below a limit; *has says whether there is a
 * limit that is not large. */
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
                        const struct schema_choice *c, int depth,
                        struct few *few)
{
    for (size_t i = 0; i < c->branches->n; i++) {
        if (schema_collect_branches(s, items, n, c, &c->branches->v[i], 1))
            return -1;
        size_t n_list = s->n_list;
        uint32_t *list = schema_copy_list(s);
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
    struct schema_choice c = schema_find_choice(s, items, n);
    const struct json_value *values;
    size_t n_values;
    int rc = 1;
    if (!v || schema_step(s, n + 1))
        return -1;
    bool listed = schema_listed_values(v, n, &values, &n_values);
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
    uint32_t *list = schema_copy_list(s);
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
    return schema_never_value(s, roots, n, MAX_DEPTH);
}
