/* How functions report a failure. struct qwick_err is public, so an error
 * reaches the library's caller without a conversion. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "qwick.h"

/* Set *e with no kind, unless e is NULL, and return -1, so that a failing function ends in
 * `return err_set(e, QWICK_ERR_MODEL, "%s: …", …)`. A long message is cut at a
 * character boundary. */
int err_set(struct qwick_err *e, enum qwick_err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Set *e to QWICK_ERR_USAGE, as err_set does. */
#define err_usage(e, ...) err_set((e), QWICK_ERR_USAGE, __VA_ARGS__)

/* Set *e to QWICK_ERR_MODEL and QWICK_KIND_INCOMPLETE, as err_set does, and ask
 * at the end of the message whether a download is incomplete. */
int err_incomplete(struct qwick_err *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define ERR_INCOMPLETE_HINT "incomplete download?"

/* Report a failed allocation of n_bytes bytes, as err_set does. */
int err_oom(struct qwick_err *e, size_t n_bytes);

/* Set *e to QWICK_ERR_RUNTIME, as err_set does: "PATH: WHAT: " and the reason
 * in errno. */
int err_errno(struct qwick_err *e, const char *path, const char *what);

/* `make analyse` defines this. Analysers read one file at a time, so they do not
 * see that these functions return -1, and take each failure for a success. */
#ifdef ERR_FOR_ANALYSERS
#define err_set(...)        (err_set(__VA_ARGS__), -1)
#define err_incomplete(...) (err_incomplete(__VA_ARGS__), -1)
#define err_oom(e, n)       (err_oom((e), (n)), -1)
#define err_errno(e, ...)   (err_errno((e), __VA_ARGS__), -1)
#endif

/* Return the message without the name of its subject, usually a path: "why" of
 * "NAME: why", and "FILE: why" of "NAME/FILE: why". The whole message if it does
 * not begin with the name. */
const char *err_without_name(const struct qwick_err *e, const char *name);

/* Write text from a file to out in a form that is safe in a message: long text
 * is cut between characters and ends in "...", invalid UTF-8 becomes U+FFFD,
 * and control characters become \xNN. Returns out. */
enum { ERR_SHOWN = 200 };
const char *err_show(char out[ERR_SHOWN], const char *s, size_t n);

/* Call err_show with a buffer of its own. For an argument of err_set. */
#define ERR_SHOW(s, n) err_show((char[ERR_SHOWN]){""}, (s), (n))

#endif
