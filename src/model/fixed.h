/* Fields of config.json that must have one value, because the model computes
 * nothing else. A field that is missing or null has that value. */
#ifndef MODEL_FIXED_H
#define MODEL_FIXED_H

#include "base/err.h"

struct section;

struct fixed_field {
    const char *path; /* names with dots between: "rope_parameters.factor" */
    const char
        *expected; /* JSON: a string, a number, true or false; "null":
                      no value; "{}": an object or array without members */
};

/* Fields of families with Llama's MLP and rotary embedding: rows of a table. */
#define FIXED_LLAMA                                             \
    {"hidden_act", "\"silu\""}, {"partial_rotary_factor", "1"}, \
        {"rope_parameters.partial_rotary_factor", "1"},         \
    {                                                           \
        "rope_scaling.partial_rotary_factor", "1"               \
    }

extern const struct fixed_field fixed_llama[]; /* these */

/* Fields of any family. Ends with path NULL, as all these tables do. */
extern const struct fixed_field fixed_common[];

/* QWICK_ERR_MODEL with the field and both values if a field of s has another
 * value than the table says. except: rows that do not count, NULL at the end;
 * or NULL. */
int fixed_check(const struct section *s, const struct fixed_field *table,
                const char *const *except, struct qwick_err *e);

#endif
