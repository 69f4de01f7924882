/* Checks of finished answers against the schemas of a constraint that does not
 * hold them exactly. */
#ifndef ENGINE_ANSWER_CHECK_H
#define ENGINE_ANSWER_CHECK_H

#include <stdbool.h>

#include "qwick.h"

struct answer_check;
struct call_form;

/* Make the check of a constraint that was compiled with these options. *out is
 * NULL if the constraint holds everything exactly: no schema is lenient. form:
 * of calls; NULL: there are no tools. Returns 0, or -1 with *e set. */
int answer_check_create(struct answer_check **out,
                        const struct qwick_constraint_options *o,
                        const struct call_form *form, struct qwick_err *e);
/* NULL is accepted. */
void answer_check_free(struct answer_check *c);

/* Set *valid to whether an answer satisfies the schemas. If it does not, *e
 * says why. Returns 0, or -1 with *e set if the check fails. Any number of
 * threads may check answers at the same time. */
int answer_check_run(const struct answer_check *c, const char *text, size_t n,
                     bool *valid, struct qwick_err *e);

#endif
