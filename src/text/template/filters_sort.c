/* Filters that order values by a key. */
#include <string.h>

#include "text/template/interp.h"

/* ---- attributes by path ---- */

/* "0" and the like index lists. */
static struct value path_key(const struct str *part)
{
    int64_t n = 0;
    for (size_t i = 0; i < part->n; i++) {
        if (part->p[i] < '0' || part->p[i] > '9' || n > INT32_MAX)
            return value_str(part);
        n = n * 10 + (part->p[i] - '0');
    }
    if (!part->n)
        return value_str(part);
    return (struct value){.type = V_INT, .outside = part->outside, .i = n};
}

static int get_path(struct rt *rt, const struct getter *g,
                    const struct str *path, struct value *v)
{
    const struct str dot = {.p = ".", .n = 1, .n_chars = 1};
    for (size_t at = 0; at <= path->n;) {
        size_t end = str_find(path, &dot, at);
        end = end == SIZE_MAX ? path->n : end;
        const struct str *part = str_sub(rt, path, at, end);
        struct value of = *v;
        if (!part || get_item(rt, of, path_key(part), v))
            return -1;
        if (v->type == V_UNDEFINED && g->fallback.type != V_ABSENT &&
            g->fallback.type != V_NONE)
            *v = g->fallback;
        at = end + 1;
    }
    return 0;
}

int get_key(struct rt *rt, const struct getter *g, struct value item,
            struct value *out)
{
    *out = item;
    if (g->attribute.type == V_STR) {
        if (get_path(rt, g, g->attribute.s, out))
            return -1;
    } else if (g->attribute.type == V_INT) {
        if (get_item(rt, item, g->attribute, out))
            return -1;
    } else if (g->attribute.type != V_ABSENT && g->attribute.type != V_NONE) {
        return rt_fail(rt,
                       "an attribute must be a string or an integer, is a "
                       "%s",
                       value_type_name(g->attribute));
    }
    if (g->ignore_case && out->type == V_STR) {
        const struct str *s;
        if (str_case(rt, out->s, CASE_LOWER, &s))
            return -1;
        *out = value_str(s);
    }
    return 0;
}

/* ---- sorting ---- */

struct sort_item {
    struct value key, v;
};

/* The key of one item. In a list, keys that are equal need no order. */
static int sort_key(struct rt *rt, const struct getter *g, struct value item,
                    struct value *out)
{
    const struct str comma = {.p = ",", .n = 1, .n_chars = 1};
    if (!g->listed)
        return get_key(rt, g, item, out);
    struct seq *parts = seq_new(rt, 1), *keys = seq_new(rt, 1);
    if (!keys || !parts)
        return -1;
    if (g->attribute.type == V_STR
            ? str_split(rt, g->attribute.s, &comma, -1, false, &parts)
            : seq_add(rt, parts, g->attribute))
        return -1;
    for (size_t i = 0; i < parts->n; i++) {
        struct getter one = *g;
        struct value key;
        one.attribute = parts->v[i];
        if (get_key(rt, &one, item, &key) || seq_add(rt, keys, key))
            return -1;
    }
    *out = value_seq(V_LIST, keys);
    return 0;
}

/* Merge v[0..mid) and v[mid..n) through tmp; stable. Descending order keeps
 * equal items in their order too. */
static int merge(struct rt *rt, struct sort_item *v, size_t mid, size_t n,
                 bool reverse, struct sort_item *tmp)
{
    size_t i = 0, j = mid, k = 0;
    while (i < mid && j < n) {
        int order;
        bool unordered;
        if (value_compare(rt, v[j].key, v[i].key, &order, &unordered) ||
            rt_steps(rt, 1))
            return -1;
        bool right = !unordered && (reverse ? order > 0 : order < 0);
        tmp[k++] = right ? v[j++] : v[i++];
    }
    memcpy(tmp + k, v + i, (mid - i) * sizeof *v);
    memcpy(v, tmp, (k + mid - i) * sizeof *v);
    return 0;
}

static int sort_items(struct rt *rt, struct sort_item *v, size_t n,
                      bool reverse)
{
    struct sort_item *tmp = rt_alloc_n(rt, n, sizeof *tmp);
    if (!tmp)
        return -1;
    for (size_t width = 1; width < n; width *= 2)
        for (size_t at = 0; at + width < n; at += 2 * width) {
            size_t len = n - at < 2 * width ? n - at : 2 * width;
            if (merge(rt, v + at, width, len, reverse, tmp))
                return -1;
        }
    return 0;
}

static int sort_by(struct rt *rt, const struct seq *items,
                   const struct getter *g, bool reverse, struct sort_item **out)
{
    struct sort_item *v = rt_alloc_n(rt, items->n, sizeof *v);
    if (!v)
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        v[i].v = items->v[i];
        if (sort_key(rt, g, items->v[i], &v[i].key))
            return -1;
    }
    *out = v;
    return sort_items(rt, v, items->n, reverse);
}

static int sorted_list(struct rt *rt, const struct seq *items,
                       const struct getter *g, bool reverse, struct value *out)
{
    struct sort_item *v;
    struct seq *s = seq_new(rt, items->n);
    if (!s || sort_by(rt, items, g, reverse, &v))
        return -1;
    for (size_t i = 0; i < items->n; i++)
        if (seq_add(rt, s, v[i].v))
            return -1;
    *out = value_seq(V_LIST, s);
    return 0;
}

static int f_sort(struct rt *rt, const struct args *a, struct value *out)
{
    const struct seq *items;
    struct getter g = {.attribute = a->v[2],
                       .ignore_case = !value_truth(a->v[1]),
                       .listed = true};
    if (value_items(rt, a->self, &items))
        return -1;
    return sorted_list(rt, items, &g, value_truth(a->v[0]), out);
}

static int f_dictsort(struct rt *rt, const struct args *a, struct value *out)
{
    const struct str *by = str_literal(rt, "key");
    struct seq *items;
    if (!by || arg_str(rt, a->v[1], "dictsort: by", &by))
        return -1;
    if (!str_is(by, "key") && !str_is(by, "value"))
        return rt_fail(rt, "dictsort sorts by 'key' or 'value'");
    if (a->self.type != V_DICT)
        return rt_fail(rt, "dictsort: a %s is not a dict",
                       value_type_name(a->self));
    struct getter g = {.attribute = value_int(str_is(by, "value")),
                       .ignore_case = !value_truth(a->v[0])};
    if (dict_view(rt, a->self.d, DICT_ITEMS, &items))
        return -1;
    return sorted_list(rt, items, &g, value_truth(a->v[2]), out);
}

static int f_groupby(struct rt *rt, const struct args *a, struct value *out)
{
    struct getter g = {.attribute = a->v[0],
                       .fallback = a->v[1],
                       .ignore_case = !value_truth(a->v[2])};
    const struct seq *items;
    struct sort_item *v;
    struct seq *groups = seq_new(rt, 0), *members = NULL;
    if (!groups || value_items(rt, a->self, &items) ||
        sort_by(rt, items, &g, false, &v))
        return -1;
    for (size_t i = 0; i < items->n; i++) {
        bool same = false;
        if (i && value_equal(rt, v[i].key, v[i - 1].key, &same))
            return -1;
        if (!same) {
            struct seq *pair = seq_new(rt, 2);
            struct value key;
            struct getter exact = g;
            exact.ignore_case = false;
            members = seq_new(rt, 0);
            if (!pair || !members || get_key(rt, &exact, v[i].v, &key) ||
                seq_add(rt, pair, key) ||
                seq_add(rt, pair, value_seq(V_LIST, members)) ||
                seq_add(rt, groups, value_seq(V_TUPLE, pair)))
                return -1;
            pair->what = "group"; /* has .grouper and .list */
        }
        if (seq_add(rt, members, v[i].v))
            return -1;
    }
    *out = value_seq(V_LIST, groups);
    return 0;
}

static int f_extreme(struct rt *rt, const struct args *a, struct value *out)
{
    struct getter g = {.attribute = a->v[1],
                       .ignore_case = !value_truth(a->v[0])};
    const struct seq *items;
    struct value best, key;
    if (value_items(rt, a->self, &items))
        return -1;
    *out = value_undefined(NULL);
    for (size_t i = 0; i < items->n; i++) {
        int order = 0;
        bool unordered = false;
        if (get_key(rt, &g, items->v[i], &key) ||
            (i && value_compare(rt, key, best, &order, &unordered)) ||
            rt_steps(rt, 1))
            return -1;
        if (i == 0 ||
            (!unordered && (a->row->tag > 0 ? order > 0 : order < 0))) {
            best = key;
            *out = items->v[i];
        }
    }
    return 0;
}

const struct builtin filters_sort[] = {
    {"dictsort", "case_sensitive? by? reverse?", f_dictsort, 0, true},
    {"groupby", "attribute default? case_sensitive?", f_groupby, 0, true},
    {"max", "case_sensitive? attribute?", f_extreme, 1, true},
    {"min", "case_sensitive? attribute?", f_extreme, -1, true},
    {"sort", "reverse? case_sensitive? attribute?", f_sort, 0, true},
};
const size_t n_filters_sort = sizeof filters_sort / sizeof *filters_sort;
