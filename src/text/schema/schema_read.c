/* Schemas from their text: the keywords, which of them are refused, and loops
 * of references. */
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/word_distance.h"
#include "text/schema/schema.h"
#include "text/schema/schema_int.h"

/* Reads a keyword's value into a node. */
typedef int (*keyword_fn)(struct schema *s, struct schema_node *node,
                          const char *key, const struct json_value *v);

/* ---- helpers ------------------------------------------------------------- */

static int wrong_type(struct schema *s, const struct schema_node *node,
                      const char *key, const char *wanted,
                      const struct json_value *v)
{
    return schema_refuse(s, node->at, key, "%s expected, not %s", wanted,
                         json_type_name(v));
}

static enum schema_draft draft_of(const struct schema *s,
                                  const struct schema_node *node)
{
    return s->resources[node->resource].draft;
}

static int read_count(struct schema *s, struct schema_node *node,
                      const char *key, const struct json_value *v, int64_t *out)
{
    struct decimal d;
    int rc =
        v->type == JSON_NUMBER ? decimal_read(&d, v->str, v->len, &s->mem) : 1;
    if (rc < 0)
        return err_oom(s->e, v->len);
    if (rc > 0 || d.negative || !decimal_is_integer(&d))
        return schema_refuse(s, node->at, key, "a count expected, not %s",
                             v->type == JSON_NUMBER ? ERR_SHOW(v->str, v->len)
                                                    : json_type_name(v));
    *out = d.n_whole > 10 ? INT64_MAX : 0;
    for (size_t i = 0; i < d.n_whole && d.n_whole <= 10; i++)
        *out = *out * 10 + (d.whole[i] - '0');
    if (*out > SCHEMA_MAX_COUNT)
        return schema_refuse(s, node->at, key, "%s is more than the limit %u",
                             ERR_SHOW(v->str, v->len), SCHEMA_MAX_COUNT);
    return 0;
}

/* Read the schemas of an array or an object. */
static int read_list(struct schema *s, struct schema_node *node,
                     const char *key, const struct json_value *v,
                     enum json_type type, struct node_list *out)
{
    if (v->type != type)
        return wrong_type(s, node, key,
                          type == JSON_ARRAY ? "an array" : "an object", v);
    out->v = schema_alloc(s, v->len, sizeof(struct schema_node *));
    if (!out->v)
        return -1;
    for (out->n = 0; out->n < v->len; out->n++)
        if (!(out->v[out->n] =
                  schema_node_of(s, &v->items[out->n], node->resource)))
            return -1;
    return 0;
}

/* ---- keywords ------------------------------------------------------------ */

static unsigned type_named(const struct json_value *v)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"null", T_NULL},       {"boolean", T_BOOLEAN},
                 {"integer", T_INTEGER}, {"number", T_INTEGER | T_NUMBER},
                 {"string", T_STRING},   {"array", T_ARRAY},
                 {"object", T_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_equals(v, types[i].name))
            return types[i].type;
    return 0;
}

static int parse_types(struct schema *s, struct schema_node *node,
                       const char *key, const struct json_value *v,
                       unsigned *out)
{
    const struct json_value *list = v->type == JSON_ARRAY ? v->items : v;
    size_t n = v->type == JSON_ARRAY ? v->len : 1;
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned type = type_named(&list[i]);
        if (!type && list[i].type == JSON_STRING)
            return schema_refuse(s, node->at, key, "no type \"%s\"",
                                 ERR_SHOW(list[i].str, list[i].len));
        if (!type)
            return wrong_type(s, node, key, "the name of a type", &list[i]);
        *out |= type;
    }
    return 0;
}

static int read_type(struct schema *s, struct schema_node *node,
                     const char *key, const struct json_value *v)
{
    return parse_types(s, node, key, v, &node->types);
}

static int read_enum(struct schema *s, struct schema_node *node,
                     const char *key, const struct json_value *v)
{
    if (v->type != JSON_ARRAY)
        return wrong_type(s, node, key, "an array", v);
    node->enumeration = v;
    return 0;
}

static int read_const(struct schema *s, struct schema_node *node,
                      const char *key, const struct json_value *v)
{
    (void)s;
    (void)key;
    node->constant = v;
    return 0;
}

/* Return whether all values of a list, or one value, are null, booleans,
 * numbers and strings. */
static bool are_scalars(const struct json_value *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i].type == JSON_ARRAY || v[i].type == JSON_OBJECT)
            return false;
    return true;
}

/* Read not. If it is only a const or enum, exclude its values; arrays and
 * objects cannot be excluded, for them see schema_not.c. */
static int read_not(struct schema *s, struct schema_node *node, const char *key,
                    const struct json_value *v)
{
    const struct json_value *values = json_get(v, "enum");
    const struct json_value *value =
        schema_draft_has(draft_of(s, node), "const") ? json_get(v, "const")
                                                     : NULL;
    if (v->type == JSON_BOOL) {
        node->never = v->boolean;
        return 0;
    }
    if (values && values->type != JSON_ARRAY)
        return wrong_type(s, node, key, "an array", values);
    const struct json_value *list = value ? value : values ? values->items : v;
    size_t n = values ? values->len : 1;
    if (v->type != JSON_OBJECT || v->len != 1 || !are_scalars(list, n)) {
        node->negated = schema_node_of(s, v, node->resource);
        return node->negated ? 0 : -1;
    }
    node->excluded.v = schema_alloc(s, n, sizeof v);
    if (!node->excluded.v)
        return -1;
    for (size_t i = 0; i < n; i++)
        node->excluded.v[node->excluded.n++] = &list[i];
    return 0;
}

static int read_schemas(struct schema *s, struct schema_node *node,
                        const char *key, const struct json_value *v)
{
    struct node_list *list = strcmp(key, "allOf") == 0   ? &node->all
                             : strcmp(key, "anyOf") == 0 ? &node->any
                                                         : &node->one;
    if (v->type == JSON_ARRAY && v->len == 0)
        return schema_refuse(s, node->at, key, "is empty");
    return read_list(s, node, key, v, JSON_ARRAY, list);
}

static int read_ref(struct schema *s, struct schema_node *node, const char *key,
                    const struct json_value *v)
{
    if (v->type != JSON_STRING)
        return wrong_type(s, node, key, "a string", v);
    uint32_t in = node->resource;
    const struct json_value *target = schema_resolve(s, node->at, key, v, &in);
    struct schema_node *to = target ? schema_node_of(s, target, in) : NULL;
    if (!to)
        return s->e->code ? -1 : 0;
    if (node->ref)
        return schema_cannot_hold(s, node->at, key,
                                  "cannot be combined with another reference");
    node->ref = to;
    return 0;
}

static bool is_true(const struct schema_node *node, const char *key)
{
    const struct json_value *v = json_get(node->at, key);
    return json_is(v, JSON_BOOL) && v->boolean;
}

static int read_bound(struct schema *s, struct schema_node *node,
                      const char *key, const struct json_value *v)
{
    struct decimal *d = schema_alloc(s, 1, sizeof *d);
    if (!d)
        return -1;
    if (v->type == JSON_BOOL && strncmp(key, "exclusive", 9) == 0)
        return 0; /* of draft 4: minimum or maximum looks for it */
    if (v->type != JSON_NUMBER)
        return wrong_type(s, node, key, "a number", v);
    int rc = decimal_read(d, v->str, v->len, &s->mem);
    if (rc < 0)
        return err_oom(s->e, v->len);
    if (rc > 0)
        return schema_refuse(s, node->at, key, "%s has more than %d digits",
                             ERR_SHOW(v->str, v->len), DECIMAL_MAX_DIGITS);
    if (strcmp(key, "minimum") == 0 && !is_true(node, "exclusiveMinimum"))
        node->min = d;
    else if (strcmp(key, "maximum") == 0 && !is_true(node, "exclusiveMaximum"))
        node->max = d;
    else if (strcmp(key, "minimum") == 0 ||
             strcmp(key, "exclusiveMinimum") == 0)
        node->above = d;
    else
        node->below = d;
    if (node->above == d)
        return schema_next_double(s, v, true, &node->above_next);
    if (node->below == d)
        return schema_next_double(s, v, false, &node->below_next);
    return 0;
}

static int read_multiple(struct schema *s, struct schema_node *node,
                         const char *key, const struct json_value *v)
{
    struct decimal d;
    struct multiple k;
    if (v->type != JSON_NUMBER)
        return wrong_type(s, node, key, "a number", v);
    int rc = decimal_read(&d, v->str, v->len, &s->mem);
    if (rc < 0)
        return err_oom(s->e, v->len);
    if (rc == 0 && (d.negative || decimal_is_zero(&d)))
        return schema_refuse(s, node->at, key,
                             "a number above 0 expected, "
                             "not %s",
                             ERR_SHOW(v->str, v->len));
    if (rc > 0 || multiple_of_decimal(&k, &d))
        return schema_cannot_hold(s, node->at, key, "%s has too many digits",
                                  ERR_SHOW(v->str, v->len));
    node->multiple_of = k;
    return 0;
}

static int read_counts(struct schema *s, struct schema_node *node,
                       const char *key, const struct json_value *v)
{
    const struct {
        const char *name;
        int64_t *out;
    } counts[] = {{"minLength", &node->min_length},
                  {"maxLength", &node->max_length},
                  {"minItems", &node->min_items},
                  {"maxItems", &node->max_items},
                  {"minProperties", &node->min_props},
                  {"maxProperties", &node->max_props},
                  {"minContains", &node->min_contains},
                  {"maxContains", &node->max_contains}};
    size_t i = 0;
    while (strcmp(counts[i].name, key) != 0)
        i++;
    return read_count(s, node, key, v, counts[i].out);
}

static int read_pattern(struct schema *s, struct schema_node *node,
                        const char *key, const struct json_value *v)
{
    if (v->type != JSON_STRING)
        return wrong_type(s, node, key, "a string", v);
    struct qwick_err e = {0};
    node->pattern = v;
    node->pattern_dfa = schema_pattern(s, v, &e);
    if (e.code == QWICK_ERR_USAGE)
        return schema_cannot_hold(s, node->at, key, "%s", e.msg);
    return node->pattern_dfa ? 0 : schema_refuse_err(s, node->at, key, &e);
}

static int read_format(struct schema *s, struct schema_node *node,
                       const char *key, const struct json_value *v)
{
    if (v->type != JSON_STRING)
        return wrong_type(s, node, key, "a string", v);
    node->format = schema_format_find(v);
    if (!node->format)
        grammar_remark(s->g, GRAMMAR_IGNORED, "format \"%s\"",
                       ERR_SHOW(v->str, v->len));
    return 0;
}

static int read_prefix(struct schema *s, struct schema_node *node,
                       const char *key, const struct json_value *v)
{
    if (v->type == JSON_ARRAY && v->len > MAX_PREFIX)
        return schema_refuse(s, node->at, key,
                             "%zu schemas are more than the limit %d", v->len,
                             MAX_PREFIX);
    return read_list(s, node, key, v, JSON_ARRAY, &node->prefix);
}

/* Until draft 2019-09, an array is what prefixItems is today, and
 * additionalItems is what items is beside it. */
static int read_items(struct schema *s, struct schema_node *node,
                      const char *key, const struct json_value *v)
{
    bool is_array = v->type == JSON_ARRAY;
    const struct json_value *rest =
        is_array ? json_get(node->at, "additionalItems") : v;
    if (is_array && draft_of(s, node) == DRAFT_2020 &&
        json_get(node->at, "prefixItems"))
        return schema_refuse(s, node->at, key,
                             "an array cannot be combined with prefixItems");
    if (rest && !(node->items = schema_node_of(s, rest, node->resource)))
        return -1;
    return is_array ? read_prefix(s, node, key, v) : 0;
}

static int read_other_items(struct schema *s, struct schema_node *node,
                            const char *key, const struct json_value *v)
{
    (void)v;
    if (!json_is(json_get(node->at, "items"), JSON_ARRAY))
        grammar_remark(s->g, GRAMMAR_IGNORED, "%s", key);
    return 0;
}

static int read_properties(struct schema *s, struct schema_node *node,
                           const char *key, const struct json_value *v)
{
    node->names = v->keys;
    return read_list(s, node, key, v, JSON_OBJECT, &node->props);
}

static int read_patterns(struct schema *s, struct schema_node *node,
                         const char *key, const struct json_value *v)
{
    node->patterns = v->keys;
    if (read_list(s, node, key, v, JSON_OBJECT, &node->pattern_props))
        return -1;
    node->patterns_points =
        schema_alloc(s, v->len, sizeof *node->patterns_points);
    if (!node->patterns_points)
        return -1;
    for (size_t i = 0; i < v->len; i++) {
        struct qwick_err e = {0};
        node->patterns_points[i] = schema_pattern(s, &v->keys[i], &e);
        if (!node->patterns_points[i])
            return schema_refuse_err(s, node->at, key, &e);
    }
    return 0;
}

/* Read a keyword whose value is one schema. */
static int read_part(struct schema *s, struct schema_node *node,
                     const char *key, const struct json_value *v)
{
    const struct {
        const char *name;
        struct schema_node **out;
    } parts[] = {{"additionalProperties", &node->additional},
                 {"if", &node->condition},
                 {"then", &node->then},
                 {"else", &node->otherwise},
                 {"contains", &node->contains},
                 {"propertyNames", &node->prop_names},
                 {"unevaluatedItems", &node->other_items},
                 {"unevaluatedProperties", &node->other_props}};
    size_t i = 0;
    while (strcmp(parts[i].name, key) != 0)
        i++;
    *parts[i].out = schema_node_of(s, v, node->resource);
    return *parts[i].out ? 0 : -1;
}

static int read_dependents(struct schema *s, struct schema_node *node,
                           const char *key, const struct json_value *v)
{
    node->dependent_names = v->keys;
    return read_list(s, node, key, v, JSON_OBJECT, &node->dependents);
}

static int read_dependent(struct schema *s, struct schema_node *node,
                          const char *key, const struct json_value *v)
{
    if (v->type != JSON_OBJECT)
        return wrong_type(s, node, key, "an object", v);
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *list = &v->items[i];
        if (list->type != JSON_ARRAY)
            return wrong_type(s, node, key, "an array", list);
        for (size_t k = 0; k < list->len; k++)
            if (list->items[k].type != JSON_STRING)
                return wrong_type(s, node, key, "a string", &list->items[k]);
    }
    node->dependent = v;
    return 0;
}

/* Of draft 7 and before: arrays are what dependentRequired has today, and
 * schemas are what dependentSchemas has. */
static int read_dependencies(struct schema *s, struct schema_node *node,
                             const char *key, const struct json_value *v)
{
    struct json_value *lists = schema_alloc(s, 1, sizeof *lists);
    struct json_value *keys = schema_alloc(s, v->len, sizeof *keys);
    struct json_value *items = schema_alloc(s, v->len, sizeof *items);
    struct json_value *names = schema_alloc(s, v->len, sizeof *names);
    struct node_list *to = &node->dependents;
    if (v->type != JSON_OBJECT)
        return wrong_type(s, node, key, "an object", v);
    if (json_get(node->at, "dependentRequired") ||
        json_get(node->at, "dependentSchemas"))
        return schema_cannot_hold(s, node->at, key,
                                  "cannot be combined with dependentRequired "
                                  "and dependentSchemas");
    to->v = schema_alloc(s, v->len, sizeof *to->v);
    if (!lists || !keys || !items || !names || !to->v)
        return -1;
    *lists = (struct json_value){JSON_OBJECT, .keys = keys, .items = items};
    for (size_t i = 0; i < v->len; i++) {
        const struct json_value *part = &v->items[i];
        if (part->type == JSON_ARRAY) {
            keys[lists->len] = v->keys[i];
            items[lists->len++] = *part;
        } else {
            names[to->n] = v->keys[i];
            if (!(to->v[to->n] = schema_node_of(s, part, node->resource)))
                return -1;
            to->n++;
        }
    }
    node->dependent_names = names;
    return read_dependent(s, node, key, lists);
}

static int read_required(struct schema *s, struct schema_node *node,
                         const char *key, const struct json_value *v)
{
    if (v->type != JSON_ARRAY)
        return wrong_type(s, node, key, "an array", v);
    node->required.v = schema_alloc(s, v->len, sizeof v);
    if (!node->required.v)
        return -1;
    for (size_t i = 0; i < v->len; i++) {
        if (v->items[i].type != JSON_STRING)
            return wrong_type(s, node, key, "a string", &v->items[i]);
        node->required.v[node->required.n++] = &v->items[i];
    }
    return 0;
}

static int read_unique(struct schema *s, struct schema_node *node,
                       const char *key, const struct json_value *v)
{
    if (v->type != JSON_BOOL)
        return wrong_type(s, node, key, "true or false", v);
    node->unique_items = v->boolean;
    return 0;
}

static int ignore(struct schema *s, struct schema_node *node, const char *key,
                  const struct json_value *v)
{
    (void)s;
    (void)node;
    (void)key;
    (void)v;
    return 0;
}

static int read_name(struct schema *s, struct schema_node *node,
                     const char *key, const struct json_value *v)
{
    return v->type == JSON_STRING ? 0 : wrong_type(s, node, key, "a string", v);
}

/* Of draft 4, see schema_id_of. Elsewhere it warns, as it seems to name
 * something. */
static int read_old_id(struct schema *s, struct schema_node *node,
                       const char *key, const struct json_value *v)
{
    return ignore(s, node, key, v);
}

/* Keywords that are not in the table have no effect, see read_unknown. */
static const struct keyword {
    const char *name;
    keyword_fn read;
    enum schema_parts parts;
} keywords[] = {
    {"type", read_type, 0},
    {"properties", read_properties, PARTS_MAP},
    {"required", read_required, 0},
    {"items", read_items, PARTS_ONE},
    {"enum", read_enum, 0},
    {"const", read_const, 0},
    {"$ref", read_ref, 0},
    {"anyOf", read_schemas, PARTS_LIST},
    {"oneOf", read_schemas, PARTS_LIST},
    {"allOf", read_schemas, PARTS_LIST},
    {"not", read_not, PARTS_ONE},
    {"additionalProperties", read_part, PARTS_ONE},
    {"patternProperties", read_patterns, PARTS_MAP},
    {"prefixItems", read_prefix, PARTS_LIST},
    {"minItems", read_counts, 0},
    {"maxItems", read_counts, 0},
    {"minLength", read_counts, 0},
    {"maxLength", read_counts, 0},
    {"pattern", read_pattern, 0},
    {"format", read_format, 0},
    {"minimum", read_bound, 0},
    {"maximum", read_bound, 0},
    {"exclusiveMinimum", read_bound, 0},
    {"exclusiveMaximum", read_bound, 0},
    {"multipleOf", read_multiple, 0},
    {"uniqueItems", read_unique, 0},
    {"minProperties", read_counts, 0},
    {"maxProperties", read_counts, 0},
    {"contains", read_part, PARTS_ONE},
    {"minContains", read_counts, 0},
    {"maxContains", read_counts, 0},
    {"propertyNames", read_part, PARTS_ONE},
    {"if", read_part, PARTS_ONE},
    {"then", read_part, PARTS_ONE},
    {"else", read_part, PARTS_ONE},
    {"dependentRequired", read_dependent, 0},
    {"dependentSchemas", read_dependents, PARTS_MAP},
    {"unevaluatedItems", read_part, PARTS_ONE},
    {"unevaluatedProperties", read_part, PARTS_ONE},
    {"title", ignore, 0},
    {"description", ignore, 0},
    {"default", ignore, 0},
    {"example", ignore, 0},
    {"examples", ignore, 0},
    {"deprecated", ignore, 0},
    {"readOnly", ignore, 0},
    {"writeOnly", ignore, 0},
    {"contentMediaType", ignore, 0},
    {"contentEncoding", ignore, 0},
    {"contentSchema", ignore, PARTS_ONE},
    {"definitions", ignore, PARTS_MAP},
    {"$defs", ignore, PARTS_MAP},
    {"$schema", ignore, 0},
    {"$id", read_name, 0},
    {"$anchor", read_name, 0},
    {"$dynamicAnchor", read_name, 0},
    {"id", read_old_id, 0},
    {"$dynamicRef", read_ref, 0},
    {"$recursiveRef", read_ref, 0},
    {"$recursiveAnchor", ignore, 0},
    {"additionalItems", read_other_items, PARTS_ONE},
    {"dependencies", read_dependencies, PARTS_MAP},
    {"$comment", ignore, 0},
    {"$vocabulary", ignore, 0},
    {"discriminator", ignore, 0}, /* of OpenAPI: which branch to try */
};

static const struct keyword *find_keyword(const struct json_value *key)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_equals(key, keywords[i].name))
            return &keywords[i];
    return NULL;
}

enum schema_parts schema_parts_of(const struct json_value *keyword)
{
    const struct keyword *k = find_keyword(keyword);
    return k ? k->parts : PARTS_NONE;
}

/* Whether a keyword says nothing about values. */
static bool is_annotation(const struct keyword *k)
{
    return k->read == ignore || k->read == read_name || k->read == read_old_id;
}

/* Whether a name may be a typing error of a keyword that says something about
 * values: 1 edit for 5 letters or more, 2 for 9 or more. People put a "_"
 * before a keyword to switch it off. */
static bool is_misspelt(const char *name, const struct keyword *k)
{
    size_t n = strlen(k->name) - (*k->name == '$'), len = strlen(name);
    size_t most = n >= 9 ? 2 : n >= 5 ? 1 : 0;
    return most && *name != '_' && !is_annotation(k) && len + most >= n &&
           len <= n + most && word_distance(name, k->name) <= most;
}

/* Read a keyword that the draft does not have: an annotation, which warns, or a
 * typing error. */
static int read_unknown(struct schema *s, struct schema_node *node,
                        const struct json_value *key, const struct keyword *k)
{
    if (key->len > 2 && memcmp(key->str, "x-", 2) == 0)
        return 0;
    if (k && k->read != ignore)
        grammar_remark(s->g, GRAMMAR_IGNORED, "%s (not in draft %s)", k->name,
                       schema_draft_name(draft_of(s, node)));
    if (k)
        return 0;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (is_misspelt(key->str, &keywords[i]))
            return schema_refuse(s, node->at, key->str,
                                 "is no keyword, did you mean %s?",
                                 keywords[i].name);
    grammar_remark(s->g, GRAMMAR_IGNORED, "%s", ERR_SHOW(key->str, key->len));
    return schema_step(s, 1);
}

/* ---- nodes --------------------------------------------------------------- */

/* Note the places of the keywords that decide the order of properties. */
static void note_order(struct schema_node *node, const struct json_value *key,
                       size_t i)
{
    if (json_equals(key, "properties"))
        node->self_order = i;
    else if (json_equals(key, "$ref"))
        node->ref_order = i;
    else if (json_equals(key, "allOf"))
        node->all_order = i;
}

/* Note that a keyword beside "$ref" has no effect. */
static void note_hidden(struct schema *s, const struct keyword *k)
{
    if (k && !is_annotation(k))
        grammar_remark(s->g, GRAMMAR_IGNORED, "%s beside $ref", k->name);
}

static int read_node(struct schema *s, struct schema_node *node)
{
    const struct json_value *at = node->at;
    node->plain = true;
    if (at->type == JSON_BOOL) {
        node->never = !at->boolean;
        node->plain = at->boolean;
        return 0;
    }
    if (at->type != JSON_OBJECT) {
        schema_refuse(s, at, NULL,
                      "a schema must be an object, true or false, not %s",
                      json_type_name(at));
        return schema_go_on(s);
    }
    const struct json_value *only = schema_only_ref(at, draft_of(s, node));
    size_t n_reports = s->n_reports;
    node->self_order = at->len;
    for (size_t i = 0; i < at->len; i++) {
        const struct json_value *key = &at->keys[i];
        const struct keyword *k = find_keyword(key);
        bool known = k && schema_draft_has(draft_of(s, node), k->name);
        if (only && only != &at->items[i]) {
            note_hidden(s, k);
            continue;
        }
        if ((known ? k->read(s, node, k->name, &at->items[i])
                   : read_unknown(s, node, key, k)) &&
            schema_go_on(s))
            return -1;
        if (!known)
            continue;
        note_order(node, key, i);
        if (!is_annotation(k) && k->read != read_ref &&
            !json_equals(key, "allOf"))
            node->plain = false;
    }
    node->weak = s->n_reports > n_reports;
    return schema_step(s, at->len);
}

struct schema_node *schema_new_node(struct schema *s,
                                    const struct json_value *at)
{
    if (s->n_nodes == MAX_NODES) {
        schema_refuse(s, at, NULL, "the schema has more than %d schemas in it",
                      MAX_NODES);
        return NULL;
    }
    struct schema_node *node = schema_alloc(s, 1, sizeof *node);
    if (!node || ARRAY_RESERVE(s->nodes, s->cap_nodes, s->n_nodes + 1, s->e))
        return NULL;
    node->at = at;
    node->id = (uint32_t)s->n_nodes;
    node->types = T_ALL;
    node->max_length = node->max_items = node->max_props = -1;
    node->min_contains = node->max_contains = -1;
    s->nodes[s->n_nodes++] = node;
    return node;
}

struct schema_node *schema_node_of(struct schema *s,
                                   const struct json_value *at, uint32_t outer)
{
    uint64_t h = hash_mix((uint64_t)(uintptr_t)at, 0x9e3779b97f4a7c15u);
    uint32_t slot = hashmap_slot(&s->by_place, h), i;
    outer = schema_resource_at(s, at, outer);
    while ((i = hashmap_next(&s->by_place, h, &slot)) != HASHMAP_NONE)
        if (s->nodes[i]->at == at && s->nodes[i]->outer == outer)
            return s->nodes[i];
    uint32_t resource = schema_resource_in(s, at, outer);
    struct schema_node *node =
        resource == UINT32_MAX ? NULL : schema_new_node(s, at);
    if (!node)
        return NULL;
    node->outer = outer;
    node->resource = resource;
    hashmap_put(&s->by_place, h, node->id);
    return node;
}

/* ---- loops --------------------------------------------------------------- */

struct schema_node *schema_same_value(const struct schema_node *node, size_t i,
                                      bool negated)
{
    struct schema_node *const one[] = {negated ? node->negated : NULL,
                                       node->ref, node->condition, node->then,
                                       node->otherwise};
    const struct node_list *lists[] = {&node->all, &node->any, &node->one,
                                       &node->dependents};
    for (size_t k = 0; k < sizeof one / sizeof *one; k++)
        if (one[k] && i-- == 0)
            return one[k];
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        if (i < lists[k]->n)
            return lists[k]->v[i];
        i -= lists[k]->n;
    }
    return NULL;
}

/* Refuse a schema that refers to itself for the same value, because it does not
 * define which values it admits. Walks from one node, with a stack of its
 * own. */
static int find_loop(struct schema *s, struct schema_node *start,
                     struct schema_node **path, size_t *next)
{
    enum { NEW, OPEN, DONE };
    size_t n = 0;
    if (start->color != NEW)
        return 0;
    start->color = OPEN;
    path[0] = start;
    next[0] = 0;
    for (n = 1; n > 0;) {
        struct schema_node *to =
            schema_same_value(path[n - 1], next[n - 1]++, true);
        if (!to) {
            path[--n]->color = DONE;
        } else if (to->color == OPEN) {
            return schema_refuse(s, path[n - 1]->at, NULL,
                                 "refers to itself without going into an item "
                                 "or a property");
        } else if (to->color == NEW) {
            to->color = OPEN;
            path[n] = to;
            next[n++] = 0;
        }
    }
    return 0;
}

int schema_read_all(struct schema *s)
{
    for (size_t i = 0; i < s->n_nodes; i++)
        if (read_node(s, s->nodes[i]))
            return -1;
    if (s->bad)
        return -1;
    struct schema_node **path = schema_alloc(s, s->n_nodes + 1, sizeof *path);
    size_t *next = schema_alloc(s, s->n_nodes + 1, sizeof *next);
    if (!path || !next)
        return -1;
    for (size_t i = 0; i < s->n_nodes; i++)
        if (find_loop(s, s->nodes[i], path, next))
            return -1;
    return 0;
}
