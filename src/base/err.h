/* The one way to report a failure. struct qwick_err is public, so that what
 * happens deep down reaches the caller without conversions. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "qwick.h"

/* Set *e (NULL: nothing to set) and return -1, so that a failing function ends
 * in `return err_set(e, QWICK_ERR_MODEL, "%s: …", …)`. Long messages are cut
 * at a character boundary. */
int err_set(struct qwick_err *e, enum qwick_err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed allocation of n bytes. */
int err_oom(struct qwick_err *e, size_t n_bytes);

#endif
