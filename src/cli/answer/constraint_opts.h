/* Options that constrain the text of an answer. */
#ifndef CLI_CONSTRAINT_OPTS_H
#define CLI_CONSTRAINT_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Check the value of a constraint. Returns -1 to go on, or exit status 2 after
 * printing a message. */
int constraint_check(const struct opt_parsed *p);

/* Return whether an option sets a constraint. */
bool constraint_given(const struct opt_parsed *p);

/* Whether a value of --json-order, or NULL, means any order. */
bool constraint_any_order(const char *order);

/* Read the constraint of the options into *o, from its file if it is in one.
 * *data owns the text of a file and must be freed with free(); it may be NULL.
 * Call it only if constraint_given. Returns 0, or an exit status after printing
 * a message. */
int constraint_read(struct qwick_constraint_options *o, char **data,
                    const struct opt_parsed *p);

/* Compile a constraint and print what the library says about it. Returns 0, or
 * an exit status after printing a message. */
int constraint_open(struct qwick_constraint **out, struct qwick_engine *eng,
                    struct qwick_constraint_options *o);

/* Whether a finished answer satisfies a schema that is lenient. */
enum schema_verdict {
    SCHEMA_UNCHECKED, /* no schema is lenient */
    SCHEMA_VALID,
    SCHEMA_INVALID,
    SCHEMA_CUT /* not checked, because a cut document is not valid */
};

/* Set *verdict. If it is SCHEMA_INVALID, *e says why. c may be NULL. is_text:
 * see constraint_is_text; text may be cut. Returns 0, or -1 with *e set if the
 * check failed. */
int constraint_verdict(const struct qwick_constraint *c, bool is_text,
                       const struct qwick_result *r,
                       enum schema_verdict *verdict, struct qwick_err *e);

/* Whether answers under the constraint are text, which may end anywhere: text
 * without calls, and text with calls or without. */
bool constraint_is_text(enum qwick_constraint_kind kind);

/* Whether an answer that ended for this reason may be shorter than the
 * constraint demands. */
bool constraint_is_cut(enum qwick_constraint_kind kind, enum qwick_finish why);

#endif
