#include "cli/tool_value.h"

#include <string.h>

/* Types of JSON schemas, as bits, in the order in which they are tried. */
enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INTEGER = 4,
    TYPE_NUMBER = 8,
    TYPE_ARRAY = 16,
    TYPE_OBJECT = 32,
    TYPE_STRING = 64
};

static const struct {
    unsigned type;
    const char *name, *wanted;
} types[] = {
    {TYPE_NULL, "null", "null"},
    {TYPE_BOOLEAN, "boolean", "a boolean"},
    {TYPE_INTEGER, "integer", "an integer"},
    {TYPE_NUMBER, "number", "a number"},
    {TYPE_ARRAY, "array", "an array"},
    {TYPE_OBJECT, "object", "an object"},
    {TYPE_STRING, "string", "a string"},
};

enum { N_TYPES = sizeof(types) / sizeof(*types), MAX_NESTING = 8 };

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
        return TYPE_NULL;
    case JSON_BOOL:
        return TYPE_BOOLEAN;
    case JSON_NUMBER:
        return TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        return TYPE_OBJECT;
    }
    return 0;
}

/* The types that a schema names; 0: none. */
static unsigned types_of(const struct json_value *schema, int nesting)
{
    static const char *const unions[] = {"anyOf", "oneOf"};
    const struct json_value *type = json_get(schema, "type"), *list;
    unsigned found = 0;
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
    for (size_t k = 0; k < 2 && !found && nesting < MAX_NESTING; k++) {
        list = json_get(schema, unions[k]);
        for (size_t i = 0; json_is(list, JSON_ARRAY) && i < list->len; i++)
            found |= types_of(&list->items[i], nesting + 1);
    }
    return found;
}

/* ---- the text as a value ---- */

struct value_span {
    const char *p;
    size_t n;
};

static bool is(struct value_span s, const char *text)
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
    return (wanted & TYPE_NUMBER) ||
           ((wanted & TYPE_INTEGER) && strcspn(v->str, ".eE") == v->len);
}

/* Append the text as JSON if that has one of the types. Returns 0, 1 if it has
 * none, or -1 when out of memory. */
static int put_parsed(struct buf *out, struct value_span s, unsigned wanted)
{
    struct json_doc *doc;
    struct qwick_err e;
    /* how Python writes them */
    struct value_span text = is(s, "None")    ? (struct value_span){"null", 4}
                             : is(s, "True")  ? (struct value_span){"true", 4}
                             : is(s, "False") ? (struct value_span){"false", 5}
                                              : s;
    if (json_parse(&doc, "value", text.p, text.n, QWICK_ERR_USAGE, &e))
        return e.code == QWICK_ERR_MEMORY ? -1 : 1;
    int rc = 1;
    if (fits(json_root(doc), wanted))
        rc = json_dump_python(out, json_root(doc));
    json_free(doc);
    return rc;
}

int tool_value_json(struct buf *out, const struct json_value *schema,
                    const char *s, size_t n, const char **wanted)
{
    unsigned any = types_of(schema, 0);
    if (!any)
        any = TYPE_ARRAY | TYPE_OBJECT | TYPE_STRING;
    if (any != TYPE_STRING) {
        int rc = put_parsed(out, trim((struct value_span){s, n}), any);
        if (rc <= 0)
            return rc;
    }
    if (any & TYPE_STRING)
        return buf_json_string(out, s, n);
    for (size_t i = N_TYPES; i-- > 0;)
        if (any & types[i].type)
            *wanted = types[i].wanted;
    return 1;
}
