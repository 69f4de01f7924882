#include "text/chat/tool_value.h"

#include <string.h>

#include "text/schema/schema.h"

static const struct {
    unsigned type;
    const char *name, *wanted;
} types[] = {
    {TOOL_NULL, "null", "null"},
    {TOOL_BOOLEAN, "boolean", "a boolean"},
    {TOOL_INTEGER, "integer", "an integer"},
    {TOOL_NUMBER, "number", "a number"},
    {TOOL_ARRAY, "array", "an array"},
    {TOOL_OBJECT, "object", "an object"},
    {TOOL_STRING, "string", "a string"},
};

enum {
    N_TYPES = sizeof(types) / sizeof(*types),
    MAX_NESTING = 8,
    MAX_SCHEMAS = 1000 /* that are looked at for one value */
};

/* ---- the types of a schema ---- */

static unsigned type_named(const struct json_value *name)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (json_equals(name, types[i].name))
            return types[i].type;
    return 0;
}

static unsigned type_of_value(const struct json_value *v)
{
    switch (v->type) {
    case JSON_NULL:
        return TOOL_NULL;
    case JSON_BOOL:
        return TOOL_BOOLEAN;
    case JSON_NUMBER:
        return TOOL_NUMBER;
    case JSON_STRING:
        return TOOL_STRING;
    case JSON_ARRAY:
        return TOOL_ARRAY;
    case JSON_OBJECT:
        return TOOL_OBJECT;
    }
    return 0;
}

/* A search for types. */
struct search {
    const struct json_value *root;
    size_t left;  /* schemas that may still be looked at */
    size_t steps; /* of references */
};

static unsigned types_of(struct search *x, const struct json_value *schema,
                         int nesting);

/* The types of the schema that a "$ref" names. */
static unsigned types_of_ref(struct search *x, const struct json_value *ref,
                             int nesting)
{
    const struct json_value *v = NULL;
    if (!json_is(ref, JSON_STRING) || !ref->len || ref->str[0] != '#')
        return 0;
    if (ref->len == 1)
        v = x->root;
    else if (ref->str[1] == '/')
        v = schema_follow(x->root, ref->str + 1, ref->len - 1, &x->steps);
    return v ? types_of(x, v, nesting) : 0;
}

/* The types that all schemas of a list name, of those that name any. */
static unsigned types_of_all(struct search *x, const struct json_value *list,
                             int nesting)
{
    unsigned found = 0, one;
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++)
        if ((one = types_of(x, &list->items[i], nesting)) != 0)
            found = found ? found & one : one;
    return found;
}

/* The types that a schema names; 0: none. */
static unsigned types_of(struct search *x, const struct json_value *schema,
                         int nesting)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const struct json_value *type = json_get(schema, "type"), *list;
    unsigned found = 0;
    if (nesting > MAX_NESTING || x->left == 0)
        return 0;
    x->left--;
    if (json_is(type, JSON_STRING))
        return type_named(type);
    if (json_is(type, JSON_ARRAY)) {
        for (size_t i = 0; i < type->len; i++)
            found |= type_named(&type->items[i]);
        return found;
    }
    if (json_get(schema, "const"))
        return type_of_value(json_get(schema, "const"));
    list = json_get(schema, "enum");
    for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++)
        found |= type_of_value(&list->items[i]);
    if (!found)
        found = types_of_ref(x, json_get(schema, "$ref"), nesting + 1);
    if (!found)
        found = types_of_all(x, json_get(schema, "allOf"), nesting + 1);
    for (size_t k = 0; k < 2 && !found; k++) {
        list = json_get(schema, unions[k]);
        for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++)
            found |= types_of(x, &list->items[i], nesting + 1);
    }
    return found;
}

unsigned tool_value_types(const struct json_value *root,
                          const struct json_value *schema)
{
    struct search x = {root, MAX_SCHEMAS, 100 * MAX_SCHEMAS};
    unsigned found = types_of(&x, schema, 0);
    return found ? found : TOOL_ARRAY | TOOL_OBJECT | TOOL_STRING;
}

/* ---- the text as a value ---- */

struct value_span {
    const char *p;
    size_t n;
};

static bool word_is(struct value_span s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

static struct value_span trim(struct value_span s)
{
    while (s.n && memchr(" \t\r\n", s.p[0], 4)) {
        s.p++;
        s.n--;
    }
    while (s.n && memchr(" \t\r\n", s.p[s.n - 1], 4))
        s.n--;
    return s;
}

/* Whether a parsed value has one of the types. */
static bool fits(const struct json_value *v, unsigned wanted)
{
    if (v->type != JSON_NUMBER)
        return v->type != JSON_STRING && (type_of_value(v) & wanted);
    return (wanted & TOOL_NUMBER) ||
           ((wanted & TOOL_INTEGER) && strcspn(v->str, ".eE") == v->len);
}

/* Append the text as JSON if that has one of the types. Returns 0, 1 if it has
 * none, or -1 when out of memory. */
static int put_parsed(struct buf *out, struct value_span s, unsigned wanted)
{
    struct json_doc *doc;
    struct qwick_err e;
    /* how Python writes them */
    struct value_span text =
        word_is(s, "None")    ? (struct value_span){"null", 4}
        : word_is(s, "True")  ? (struct value_span){"true", 4}
        : word_is(s, "False") ? (struct value_span){"false", 5}
                              : s;
    if (json_parse(&doc, "value", text.p, text.n, QWICK_ERR_USAGE, &e))
        return e.code == QWICK_ERR_MEMORY ? -1 : 1;
    int rc = 1;
    if (fits(json_root(doc), wanted))
        rc = json_dump_python(out, json_root(doc));
    json_free(doc);
    return rc;
}

int tool_value_json(struct buf *out, unsigned any, const char *s, size_t n,
                    const char **wanted)
{
    if (any != TOOL_STRING) {
        int rc = put_parsed(out, trim((struct value_span){s, n}), any);
        if (rc <= 0)
            return rc;
    }
    if (any & TOOL_STRING)
        return buf_json_string(out, s, n);
    for (size_t i = N_TYPES; i-- > 0;)
        if (any & types[i].type)
            *wanted = types[i].wanted;
    return 1;
}
