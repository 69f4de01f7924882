/* Values of tool calls that a model writes as plain text, as Qwen3-Coder does.
 * Their templates print strings and containers as they are, and numbers, true,
 * false and null as Python's str() does, so only the tool's JSON schema tells
 * the string "5" from the number 5. */
#ifndef TEXT_TOOL_VALUE_H
#define TEXT_TOOL_VALUE_H

#include <stddef.h>

#include "base/buf.h"
#include "file/json.h"

/* Types of values, as bits, in the order in which they are tried. */
enum {
    TOOL_NULL = 1,
    TOOL_BOOLEAN = 2,
    TOOL_INTEGER = 4,
    TOOL_NUMBER = 8,
    TOOL_ARRAY = 16,
    TOOL_OBJECT = 32,
    TOOL_STRING = 64
};

/* Return the types that a schema asks for: "type", else the types of "const"
 * and "enum", else those of "$ref", "allOf", "anyOf" and "oneOf". If it names
 * none, or is NULL: array, object and string. root: where the schema's
 * references begin. */
unsigned tool_value_types(const struct json_value *root,
                          const struct json_value *schema);

/* Append the text s[0..n) as JSON, as the first type that fits of null,
 * boolean, number, array and object, string.
 *
 * Returns 0. Returns 1 with *wanted set to the name of a type if the text fits
 * none of the types. Returns -1 when out of memory. */
int tool_value_json(struct buf *out, unsigned types, const char *s, size_t n,
                    const char **wanted);

#endif
