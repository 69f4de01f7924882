/* Arguments of calls as Gemma 4 writes them: an object as JSON has it, but the
 * names of its members are plain, and a string is plain text between two
 * quotes, which are one token:
 *
 *     {city:<|"|>Bern<|"|>,days:[1,2],at:{hour:7},wet:true} */
#ifndef TEXT_BARE_VALUE_H
#define TEXT_BARE_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Append the object at the start of s[0..n) as JSON. *used is set to its
 * length; n: it has no end. A value that is nothing known is copied, so that a
 * parser of JSON refuses it. Returns 0, or -1 when out of memory. */
int bare_value_to_json(struct buf *out, const char *quote, const char *s,
                       size_t n, size_t *used);

/* Whether the end of s[0..n) is inside of a string. */
bool bare_value_in_string(const char *quote, const char *s, size_t n);

#endif
