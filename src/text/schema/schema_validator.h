/* Checks JSON documents against a schema, without a grammar. It knows all
 * keywords that the schema compiler reads, also those that a grammar cannot
 * hold. */
#ifndef TEXT_SCHEMA_VALIDATOR_H
#define TEXT_SCHEMA_VALIDATOR_H

#include <stddef.h>

#include "base/err.h"

struct json_value;
struct schema_options;
struct schema_validator;

/* Read a schema: a text, or a value of a larger document. The value is borrowed
 * until schema_validator_free. Of the options, which may be NULL, only `form`
 * and `where` count. Returns 0, or -1 with *e set as schema_compile sets it. */
int schema_validator_create(struct schema_validator **out, const char *text,
                            size_t n, const struct schema_options *o,
                            struct qwick_err *e);
int schema_validator_create_value(struct schema_validator **out,
                                  const struct json_value *schema,
                                  const struct schema_options *o,
                                  struct qwick_err *e);
/* NULL is accepted. */
void schema_validator_free(struct schema_validator *v);

/* Check a document. Returns 1 if it satisfies the schema; 0 if not, or if it is
 * no JSON, with the reason as the message of *e: "/tags violates
 * #/properties/tags/uniqueItems"; -1 with *e set on other errors. The work is
 * bounded. Any number of threads may check documents at the same time. */
int schema_validator_check(const struct schema_validator *v, const char *text,
                           size_t n, struct qwick_err *e);
int schema_validator_check_value(const struct schema_validator *v,
                                 const struct json_value *doc,
                                 struct qwick_err *e);

#endif
