/* JSON schemas (2020-12) as grammars: the texts of the grammar are JSON
 * documents that the schema admits.
 *
 * docs/structured-output.md lists the keywords, and the refused ones. */
#ifndef TEXT_SCHEMA_H
#define TEXT_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "file/json.h"

struct call_form;
struct grammar;

/* Limits. Beyond them a schema is refused, with the keyword and both numbers.
 */
#define SCHEMA_MAX_BYTES  (1u << 20)
#define SCHEMA_MAX_COUNT  (UINT32_MAX - 1) /* minLength, maxItems and so on */
#define SCHEMA_MAX_INDENT 16
#define SCHEMA_MAX_LEVELS 32 /* of nesting, with an indent */
#define SCHEMA_MAX_BLANKS 64 /* of one place, with SCHEMA_FREE */

/* An indent: none is prescribed. Where lines may break, there is nothing, one
 * blank, or a new line with at most SCHEMA_MAX_BLANKS blanks or tabs; after a
 * colon, there is one blank or none. */
#define SCHEMA_FREE (-1)

/* What is written. Arguments of a tool's call are an object. If the schema
 * lists properties at its outermost level and does not mention others, there
 * are no others. */
enum schema_form {
    SCHEMA_DOCUMENT,   /* a JSON document */
    SCHEMA_ARGUMENTS,  /* the arguments of a call, as a JSON object */
    SCHEMA_PARAMETERS, /* the arguments of a call, each between the tags of
                          a form (CALL_PARAMETERS in text/chat/call_forms.h).
                          tool_value_json (text/chat/tool_value.h) reads each
                          value as the schema admits it. Only properties that
                          the schema names are written. */
    SCHEMA_BARE /* the arguments of a call in a form of CALL_BARE. Names are
                   those that bare_value.h reads without quotes. */
};

struct schema_options {
    int indent;  /* spaces per level; 0: all in one line; SCHEMA_FREE */
    bool spaced; /* without an indent: one blank after each comma and colon, as
                    Python's json.dumps writes; else there is no white space */
    bool any_order; /* the members of an object come in any order; else in that
                       of the schema */
    enum schema_form form;
    const struct call_form *call; /* of SCHEMA_PARAMETERS, SCHEMA_BARE */
    bool lenient; /* do not refuse keywords that the grammar cannot hold: it
                     then has more texts, and a remark GRAMMAR_WEAKENED names
                     each (see schema_validator.h) */
    const char *where; /* begins messages after the grammar's name; NULL: "" */
    size_t *work; /* the steps that several schemas may take together, of which
                     this one takes some; NULL: only the limit of each */
};

/* The steps of one schema at most. */
#define SCHEMA_MAX_WORK 20000000u

/* The schema {"type": "object"}. */
extern const struct json_value schema_an_object;

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

/* The same for a schema that is a value of a larger document: its "$ref"s
 * begin at *schema. The value is borrowed during the call. */
int schema_compile_value(struct grammar *g, const struct json_value *schema,
                         const struct schema_options *o, uint32_t *root,
                         struct qwick_err *e);

/* Return the value below root that a JSON pointer, as in the "$ref" of a
 * schema after its "#", refers to; NULL: there is none, or memory ran out. p
 * begins with a slash. The work is counted in *steps: NULL is returned when
 * they are used up. */
const struct json_value *schema_follow(const struct json_value *root,
                                       const char *p, size_t n, size_t *steps);

#endif
