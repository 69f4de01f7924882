/* Whether a schema admits a value: all keywords of its node.
 *
 * unevaluatedItems and unevaluatedProperties depend on the items or members
 * that other keywords evaluated, also in the schemas that a node names for the
 * same value. So each of these keywords has marks, one for each part of the
 * value. A schema whose failure decides nothing (a branch of anyOf, the value
 * of if) gets marks of its own, which count only if it admits the value. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hashmap.h"
#include "base/utf8.h"
#include "text/schema/schema_int.h"
#include "text/schema/schema_number.h"

/* Levels of references and combinations inside each other. */
enum { MAX_NESTING = 2000 };

/* Marks that nobody reads. */
#define NO_MARKS SIZE_MAX

/* Which schemas for the same value are checked, too. */
enum { WITH_ANY = 1, WITH_ONE = 2, WITH_PARTS = 4, WITH_ALL = 7 };

struct check {
    struct schema *s;
    bool *marks; /* a stack; schemas name theirs by the offset */
    size_t n_marks, cap_marks;
    size_t quiet; /* above 0: a failure here is not the failure of the whole */
    int depth;
    struct schema_failure *failure; /* NULL: nobody asks */
};

static int valid(struct check *c, struct schema_node *node,
                 const struct json_value *v, size_t seen);

/* ---- failures and marks -------------------------------------------------- */

/* Note the first failure that decides. Returns 0. */
static int fails(struct check *c, const struct schema_node *node,
                 const char *keyword, const struct json_value *v)
{
    if (c->failure && !c->quiet && !c->failure->node)
        *c->failure = (struct schema_failure){node, keyword, v};
    return 0;
}

/* Push n marks, all false. Returns their offset, NO_MARKS with the error
 * set. */
static size_t push_marks(struct check *c, size_t n)
{
    size_t at = c->n_marks;
    if (schema_step(c->s, n / 16) ||
        ARRAY_RESERVE(c->marks, c->cap_marks, at + n + 1, c->s->e))
        return NO_MARKS;
    memset(c->marks + at, 0, n * sizeof *c->marks);
    c->n_marks = at + n;
    return at;
}

static void set_mark(struct check *c, size_t seen, size_t i)
{
    if (seen != NO_MARKS)
        c->marks[seen + i] = true;
}

static size_t count_parts(const struct json_value *v)
{
    return v->type == JSON_ARRAY || v->type == JSON_OBJECT ? v->len : 0;
}

/* Check a schema whose failure alone decides nothing. */
static int valid_branch(struct check *c, struct schema_node *node,
                        const struct json_value *v, size_t seen)
{
    size_t before = c->n_marks, own = NO_MARKS;
    if (seen != NO_MARKS && (own = push_marks(c, count_parts(v))) == NO_MARKS)
        return -1;
    c->quiet++;
    int rc = valid(c, node, v, own);
    c->quiet--;
    for (size_t i = 0; rc > 0 && own != NO_MARKS && i < count_parts(v); i++)
        c->marks[seen + i] |= c->marks[own + i];
    c->n_marks = before;
    return rc;
}

/* ---- values of one type -------------------------------------------------- */

/* Return 1 if v equals one of the values. */
static int is_among(struct schema *s, const struct json_value *v,
                    const struct json_value *values, size_t n)
{
    if (v >= values && v < values + n)
        return 1; /* it is one of them */
    for (size_t i = 0; i < n; i++) {
        int rc = schema_equal(s, v, &values[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* Return the keyword that a number does not satisfy. */
static const char *number_keyword(const struct schema_node *node,
                                  const struct decimal *d)
{
    if (node->min && decimal_compare(d, node->min) < 0)
        return "minimum";
    if (node->max && decimal_compare(d, node->max) > 0)
        return "maximum";
    if ((node->above && decimal_compare(d, node->above) <= 0) ||
        (node->above_next && decimal_compare(d, node->above_next) < 0))
        return "exclusiveMinimum";
    if ((node->below && decimal_compare(d, node->below) >= 0) ||
        (node->below_next && decimal_compare(d, node->below_next) > 0))
        return "exclusiveMaximum";
    return "multipleOf";
}

static int valid_number(struct check *c, const struct schema_node *node,
                        const struct json_value *v)
{
    struct schema_node bare = *node, *limited = &bare;
    struct number_form f;
    struct decimal d;
    if (!node->min && !node->max && !node->above && !node->below &&
        !node->multiple_of.m)
        return 1;
    bare.excluded.n = 0; /* see valid_itself */
    if (schema_number_of(c->s, &limited, 1, false, &f) ||
        schema_read_number(c->s, v, &d))
        return -1;
    return number_fits(&f, &d) ? 1
                               : fails(c, node, number_keyword(node, &d), v);
}

static int valid_pattern(struct check *c, const struct schema_node *node,
                         const struct json_value *v)
{
    int rc = 1;
    if (node->pattern_dfa)
        rc = dfa_match(node->pattern_dfa, v->str, v->len);
    else if (node->pattern)
        rc = schema_pattern_matches(c->s, node->pattern, v->str, v->len);
    return rc == 0 ? fails(c, node, "pattern", v) : rc;
}

static int valid_string(struct check *c, const struct schema_node *node,
                        const struct json_value *v)
{
    int64_t length = 0;
    if (schema_step(c->s, 1 + v->len / 8))
        return -1;
    for (size_t i = 0; i < v->len; length++)
        i += utf8_decode(v->str + i, v->len - i, NULL, NULL);
    if (length < node->min_length)
        return fails(c, node, "minLength", v);
    if (node->max_length >= 0 && length > node->max_length)
        return fails(c, node, "maxLength", v);
    int rc = valid_pattern(c, node, v);
    if (rc <= 0)
        return rc;
    if (!node->format)
        return 1;
    const struct dfa *p = schema_format_points(c->s, node->format);
    if (!p)
        return -1;
    int64_t most = schema_format_most(node->format);
    bool fits = most < 0 || length <= most;
    return fits && dfa_match(p, v->str, v->len) ? 1
                                                : fails(c, node, "format", v);
}

/* ---- arrays -------------------------------------------------------------- */

/* Return 1 if no two items are equal. */
static int are_unique(struct schema *s, const struct json_value *v)
{
    struct hashmap map = {0};
    uint64_t *hash = malloc((v->len + 1) * sizeof *hash);
    int rc = 1;
    if (!hash)
        rc = err_oom(s->e, v->len * sizeof *hash);
    else if (hashmap_init(&map, v->len, v->len, s->e))
        rc = -1;
    for (size_t i = 0; i < v->len && rc > 0; i++) {
        if (schema_hash(s, &v->items[i], &hash[i])) {
            rc = -1;
            break;
        }
        uint32_t at = hashmap_slot(&map, hash[i]), k;
        while (rc > 0 &&
               (k = hashmap_next(&map, hash[i], &at)) != HASHMAP_NONE) {
            int same = hash[k] == hash[i]
                           ? schema_equal(s, &v->items[k], &v->items[i])
                           : 0;
            rc = same < 0 ? -1 : !same;
        }
        hashmap_put(&map, hash[i], (uint32_t)i);
    }
    hashmap_free(&map);
    free(hash);
    return rc;
}

/* contains, with minContains and maxContains. */
static int valid_contains(struct check *c, const struct schema_node *node,
                          const struct json_value *v, size_t seen)
{
    int64_t count = 0, min = node->min_contains < 0 ? 1 : node->min_contains;
    for (size_t i = 0; i < v->len; i++) {
        int rc = valid_branch(c, node->contains, &v->items[i], NO_MARKS);
        if (rc < 0)
            return -1;
        if (rc > 0)
            set_mark(c, seen, i);
        count += rc;
    }
    if (count < min)
        return fails(c, node,
                     node->min_contains < 0 ? "contains" : "minContains", v);
    if (node->max_contains >= 0 && count > node->max_contains)
        return fails(c, node, "maxContains", v);
    return 1;
}

static int valid_array(struct check *c, const struct schema_node *node,
                       const struct json_value *v, size_t seen)
{
    if ((int64_t)v->len < node->min_items)
        return fails(c, node, "minItems", v);
    if (node->max_items >= 0 && (int64_t)v->len > node->max_items)
        return fails(c, node, "maxItems", v);
    for (size_t i = 0; i < v->len; i++) {
        struct schema_node *item =
            i < node->prefix.n ? node->prefix.v[i] : node->items;
        int rc = item ? valid(c, item, &v->items[i], NO_MARKS) : 1;
        if (rc <= 0)
            return rc;
        if (item)
            set_mark(c, seen, i);
    }
    if (node->unique_items) {
        int rc = are_unique(c->s, v);
        if (rc <= 0)
            return rc < 0 ? -1 : fails(c, node, "uniqueItems", v);
    }
    return node->contains ? valid_contains(c, node, v, seen) : 1;
}

/* ---- objects ------------------------------------------------------------- */

/* Return the index of a member, or v->len. */
static size_t member_index(const struct json_value *v,
                           const struct json_value *name)
{
    const struct json_value *m = json_get_n(v, name->str, name->len);
    return m ? (size_t)(m - v->items) : v->len;
}

/* properties, patternProperties and additionalProperties. met: marks of the
 * members to which one of the first two applies. */
static int valid_members(struct check *c, const struct schema_node *node,
                         const struct json_value *v, size_t met, size_t seen)
{
    int rc = 1;
    for (size_t k = 0; k < node->props.n && rc > 0; k++) {
        size_t i = member_index(v, &node->names[k]);
        if (i == v->len)
            continue;
        set_mark(c, met, i);
        rc = valid(c, node->props.v[k], &v->items[i], NO_MARKS);
    }
    for (size_t i = 0; i < v->len && rc > 0; i++) {
        for (size_t k = 0; k < node->pattern_props.n && rc > 0; k++)
            if (dfa_match(node->patterns_points[k], v->keys[i].str,
                          v->keys[i].len)) {
                set_mark(c, met, i);
                rc = valid(c, node->pattern_props.v[k], &v->items[i], NO_MARKS);
            }
        if (!c->marks[met + i] && node->additional) {
            set_mark(c, met, i);
            rc = rc > 0 ? valid(c, node->additional, &v->items[i], NO_MARKS)
                        : rc;
        }
        if (c->marks[met + i])
            set_mark(c, seen, i);
    }
    return rc;
}

/* propertyNames. */
static int valid_names(struct check *c, const struct schema_node *node,
                       const struct json_value *v)
{
    for (size_t i = 0; i < v->len; i++) {
        int rc = valid_branch(c, node->prop_names, &v->keys[i], NO_MARKS);
        if (rc <= 0)
            return rc < 0 ? -1 : fails(c, node, "propertyNames", v);
    }
    return 1;
}

/* required and dependentRequired. */
static int valid_required(struct check *c, const struct schema_node *node,
                          const struct json_value *v)
{
    for (size_t i = 0; i < node->required.n; i++)
        if (member_index(v, node->required.v[i]) == v->len)
            return fails(c, node, "required", v);
    for (size_t i = 0; node->dependent && i < node->dependent->len; i++) {
        const struct json_value *list = &node->dependent->items[i];
        if (member_index(v, &node->dependent->keys[i]) == v->len)
            continue;
        for (size_t k = 0; k < list->len; k++)
            if (member_index(v, &list->items[k]) == v->len)
                return fails(c, node, "dependentRequired", v);
    }
    return 1;
}

static int valid_object(struct check *c, const struct schema_node *node,
                        const struct json_value *v, size_t seen)
{
    size_t before = c->n_marks;
    size_t work = node->props.n + node->required.n +
                  (node->dependent ? node->dependent->len : 0);
    if (schema_step(c->s, 1 + v->len + work * (1 + v->len / 16)))
        return -1;
    if ((int64_t)v->len < node->min_props)
        return fails(c, node, "minProperties", v);
    if (node->max_props >= 0 && (int64_t)v->len > node->max_props)
        return fails(c, node, "maxProperties", v);
    int rc = valid_required(c, node, v);
    if (rc > 0 && node->prop_names)
        rc = valid_names(c, node, v);
    if (rc <= 0 ||
        (!node->props.n && !node->pattern_props.n && !node->additional))
        return rc;
    size_t met = push_marks(c, v->len);
    rc = met == NO_MARKS ? -1 : valid_members(c, node, v, met, seen);
    c->n_marks = before;
    return rc;
}

/* ---- schemas ------------------------------------------------------------- */

/* Check whether an object has a member that a made schema asks for. */
static int valid_some(struct check *c, const struct schema_some *some,
                      const struct json_value *v)
{
    int rc = 0;
    for (size_t i = 0; v->type == JSON_OBJECT && i < v->len && !rc; i++) {
        const struct json_value *name = &v->keys[i];
        int other = some->unnamed
                      ? valid_branch(c, some->unnamed, name, NO_MARKS)
                      : !dfa_match(some->names, name->str, name->len);
        if (other < 0)
            return -1;
        if (!other)
            rc = valid_branch(c, some->value, &v->items[i], NO_MARKS);
    }
    return rc;
}

/* Check what only schemas that schema_not makes have. */
static int valid_made(struct check *c, const struct schema_node *node,
                      const struct json_value *v)
{
    if (node->not_pattern && v->type == JSON_STRING)
        return !dfa_match(node->not_pattern, v->str, v->len);
    if (node->not_multiple && v->type == JSON_NUMBER) {
        struct schema_node only = {
            .at = node->at, .multiple_of = node->not_multiple->multiple_of};
        int rc = valid_number(c, &only, v);
        return rc < 0 ? rc : !rc;
    }
    if (node->some)
        return valid_some(c, node->some, v);
    return node->others ? valid_some(c, node->others, v) : 1;
}

/* Check the keywords of a node that do not name other schemas for the same
 * value. */
static int valid_itself(struct check *c, const struct schema_node *node,
                        const struct json_value *v, size_t seen)
{
    unsigned type = schema_type_of(c->s, v);
    int rc = 1;
    if (type == 0)
        return -1;
    if (node->never)
        return fails(c, node, NULL, v);
    if (!(node->types & type))
        return fails(c, node, "type", v);
    if (node->enumeration)
        rc =
            is_among(c->s, v, node->enumeration->items, node->enumeration->len);
    if (rc == 0)
        return fails(c, node, "enum", v);
    if (rc > 0 && node->constant)
        rc = schema_equal(c->s, v, node->constant);
    if (rc == 0)
        return fails(c, node, "const", v);
    for (size_t i = 0; i < node->excluded.n && rc > 0; i++) {
        rc = schema_equal(c->s, v, node->excluded.v[i]);
        rc = rc < 0 ? rc : !rc;
    }
    if (rc == 0)
        return fails(c, node, "not", v);
    if (rc > 0 && node->made)
        rc = valid_made(c, node, v);
    if (rc <= 0)
        return rc;
    switch (v->type) {
    case JSON_NUMBER:
        return valid_number(c, node, v);
    case JSON_STRING:
        return valid_string(c, node, v);
    case JSON_ARRAY:
        return valid_array(c, node, v, seen);
    case JSON_OBJECT:
        return valid_object(c, node, v, seen);
    default:
        return 1;
    }
}

/* Count the schemas of a list that admit a value. Stop after `enough` of them,
 * unless marks are wanted from all. */
static int count_admitting(struct check *c, const struct node_list *list,
                           const struct json_value *v, int enough, size_t seen)
{
    int count = 0;
    for (size_t i = 0;
         i < list->n && (count < enough || (enough == 1 && seen != NO_MARKS));
         i++) {
        int rc = valid_branch(c, list->v[i], v, seen);
        if (rc < 0)
            return -1;
        count += rc;
    }
    return count;
}

/* anyOf, oneOf and not. */
static int valid_choices(struct check *c, const struct schema_node *node,
                         unsigned with, const struct json_value *v, size_t seen)
{
    int n = 1;
    if ((with & WITH_ANY) && node->any.n)
        n = count_admitting(c, &node->any, v, 1, seen);
    if (n <= 0)
        return n < 0 ? -1 : fails(c, node, "anyOf", v);
    n = 1;
    if ((with & WITH_ONE) && node->one.n)
        n = count_admitting(c, &node->one, v, 2, seen);
    if (n != 1)
        return n < 0 ? -1 : fails(c, node, "oneOf", v);
    n = node->negated ? valid_branch(c, node->negated, v, NO_MARKS) : 0;
    if (n != 0)
        return n < 0 ? -1 : fails(c, node, "not", v);
    return 1;
}

/* if, then, else, and dependentSchemas. */
static int valid_conditions(struct check *c, const struct schema_node *node,
                            const struct json_value *v, size_t seen)
{
    int rc = 1;
    if (node->condition) {
        int holds = valid_branch(c, node->condition, v, seen);
        struct schema_node *next = holds > 0 ? node->then : node->otherwise;
        rc = holds < 0 ? -1 : next ? valid(c, next, v, seen) : 1;
    }
    for (size_t i = 0;
         v->type == JSON_OBJECT && i < node->dependents.n && rc > 0; i++)
        if (member_index(v, &node->dependent_names[i]) < v->len)
            rc = valid(c, node->dependents.v[i], v, seen);
    return rc;
}

/* Check the parts of a value that are not marked against unevaluatedItems or
 * unevaluatedProperties, and mark them. */
static int valid_others(struct check *c, const struct schema_node *node,
                        const struct json_value *v, size_t seen)
{
    struct schema_node *others =
        v->type == JSON_ARRAY ? node->other_items : node->other_props;
    for (size_t i = 0; i < v->len; i++) {
        if (c->marks[seen + i])
            continue;
        int rc = valid(c, others, &v->items[i], NO_MARKS);
        if (rc <= 0)
            return rc;
        set_mark(c, seen, i);
    }
    return 1;
}

/* Check a node, and the schemas for the same value that `with` names. */
static int valid_node(struct check *c, struct schema_node *node, unsigned with,
                      const struct json_value *v, size_t seen)
{
    size_t before = c->n_marks, own = seen;
    bool others = (v->type == JSON_ARRAY && node->other_items) ||
                  (v->type == JSON_OBJECT && node->other_props);
    if (schema_step(c->s, 1 + node->excluded.n / 16))
        return -1;
    if (others) {
        with = WITH_ALL; /* their marks count */
        if ((own = push_marks(c, v->len)) == NO_MARKS)
            return -1;
    }
    int rc = valid_itself(c, node, v, own);
    if (rc > 0 && (with & WITH_PARTS) && node->ref)
        rc = valid(c, node->ref, v, own);
    for (size_t i = 0; (with & WITH_PARTS) && i < node->all.n && rc > 0; i++)
        rc = valid(c, node->all.v[i], v, own);
    if (rc > 0)
        rc = valid_choices(c, node, with, v, own);
    if (rc > 0)
        rc = valid_conditions(c, node, v, own);
    if (rc > 0 && others)
        rc = valid_others(c, node, v, own);
    for (size_t i = 0; rc > 0 && others && i < v->len; i++)
        set_mark(c, seen, i);
    c->n_marks = before;
    return rc;
}

static int valid(struct check *c, struct schema_node *node,
                 const struct json_value *v, size_t seen)
{
    if (c->depth == MAX_NESTING)
        return schema_refuse(c->s, node->at, NULL,
                             "schemas refer to each other through more than "
                             "%d levels",
                             MAX_NESTING);
    c->depth++;
    int rc = valid_node(c, node, WITH_ALL, v, seen);
    c->depth--;
    return rc;
}

int schema_admits(struct schema *s, struct schema_node *node, bool any,
                  bool one, const struct json_value *v)
{
    struct check c = {.s = s};
    unsigned with = (any ? WITH_ANY : 0) | (one ? WITH_ONE : 0);
    int rc = valid_node(&c, node, with, v, NO_MARKS);
    free(c.marks);
    return rc;
}

int schema_satisfies(struct schema *s, struct schema_node *node,
                     const struct json_value *v, struct schema_failure *failure)
{
    struct check c = {.s = s, .failure = failure};
    if (failure)
        *failure = (struct schema_failure){0};
    int rc = valid(&c, node, v, NO_MARKS);
    free(c.marks);
    return rc;
}
