/* Names of modules in lists of config.json: a name; a glob, in which "*" stands
 * for any characters; or "re:" and a regular expression, which must match a
 * prefix of the name (re.match in Python, as compressed-tensors uses it). */
#ifndef MODEL_MODULE_PATTERN_H
#define MODEL_MODULE_PATTERN_H

#include <stdbool.h>

/* Whether the pattern matches the module's full name. Expressions have
 * alternatives, groups, classes, the escapes \d, \w and \s, and the quantifiers
 * *, + and ?. An expression with anything else, or one that takes too many
 * steps, matches nothing. Takes bounded time for any pattern. */
bool module_matches(const char *pattern, const char *module);

#endif
