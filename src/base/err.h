/* The one way to report a failure. struct qwick_err is public, so that an error
 * reaches the library's caller without conversions. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "qwick.h"

/* Set *e, unless e is NULL, and return -1, so that a failing function ends in
 * `return err_set(e, QWICK_ERR_MODEL, "%s: …", …)`. A long message is cut at a
 * character boundary. */
int err_set(struct qwick_err *e, enum qwick_err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* err_set for a failed allocation of n bytes. */
int err_oom(struct qwick_err *e, size_t n_bytes);

/* Make a text from a file fit for a message. A long text is cut between
 * characters and ends in "..."; invalid UTF-8 becomes U+FFFD, control
 * characters become \xNN. Returns out. */
enum { ERR_SHOWN = 200 };
const char *err_show(char out[ERR_SHOWN], const char *s, size_t n);

/* err_show with its own buffer, for an argument of err_set. */
#define ERR_SHOW(s, n) err_show((char[ERR_SHOWN]){""}, (s), (n))

#endif
