/* JSON schemas (2020-12) as grammars: the texts of the grammar are JSON
 * documents that the schema admits.
 *
 * docs/structured-output.md lists the keywords, and the refused ones. */
#ifndef TEXT_SCHEMA_H
#define TEXT_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grammar;

/* Limits. Beyond them a schema is refused, with the keyword and both numbers.
 */
#define SCHEMA_MAX_BYTES  (1u << 20)
#define SCHEMA_MAX_COUNT  65536 /* minLength, maxLength, minItems, maxItems */
#define SCHEMA_MAX_INDENT 16
#define SCHEMA_MAX_LEVELS 32 /* of nesting, with an indent */

struct schema_options {
    int indent; /* spaces per level; 0: compact, without any white space */
};

/* Add the documents of the schema text[0..n) to g, and set *root to their rule,
 * for grammar_finish. o may be NULL for the defaults.
 *
 * Returns 0, or -1 with *e set: QWICK_ERR_USAGE for a text that is not JSON, a
 * schema that is refused, and one that admits nothing; QWICK_ERR_MEMORY. The
 * message begins with the grammar's name and has the place in the schema as a
 * JSON pointer: "NAME: #/properties/a/not: …". */
int schema_compile(struct grammar *g, const char *text, size_t n,
                   const struct schema_options *o, uint32_t *root,
                   struct qwick_err *e);

#endif
