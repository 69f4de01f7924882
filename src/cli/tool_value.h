/* Values of tool calls that a model writes as plain text, as Qwen3-Coder does.
 * Their templates print strings and containers as they are, and numbers, true,
 * false and null as Python's str() does, so only the tool's JSON schema tells
 * the string "5" from the number 5. */
#ifndef CLI_TOOL_VALUE_H
#define CLI_TOOL_VALUE_H

#include <stddef.h>

#include "base/buf.h"
#include "file/json.h"

/* Append the text s[0..n) as JSON, in the type that the schema asks for
 * ("type", else the types of "const" and "enum", else those of "anyOf" and
 * "oneOf"). If it admits several types, the first that fits of null, boolean,
 * number, array and object, string. If it names no type, or is NULL, an array
 * or object, else a string.
 *
 * Returns 0. Returns 1 with *wanted set to the name of the type if the text
 * fits no type of the schema. Returns -1 when out of memory. */
int tool_value_json(struct buf *out, const struct json_value *schema,
                    const char *s, size_t n, const char **wanted);

#endif
