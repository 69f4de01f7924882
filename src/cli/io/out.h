/* stdout and stderr of the program. stdout is written with write(2), so that an
 * answer appears at once and every failure is noticed. */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Open descriptors 0, 1 and 2 if they are closed, so that later files do not
 * get these numbers. Reading or writing such a descriptor still fails.
 */
void out_init(void);

/* Write all of p[0..n) to stdout, in complete UTF-8 characters. If stdout is a
 * terminal, characters that escape_needs (escape.h) names, other than newline
 * and tab, are shown as \xNN, so that text from a model or a file cannot control
 * the terminal. Files and pipes get the bytes unchanged. A closed pipe ends the
 * process by SIGPIPE. Any other failure is reported once on stderr. Returns 0,
 * or -1 on failure. */
int out_write(const void *p, size_t n);

/* As out_write, for tables and lists with names of files or models, which get
 * more escapes. */
int out_write_names(const void *p, size_t n);

/* Write text with escape sequences of our own to stdout, unchanged. Text from a
 * model or a file in it must have gone through out_escape. Returns and fails as
 * out_write. */
int out_write_styled(const void *p, size_t n);

/* Print what b holds with one of these functions, unless memory ran out before
 * it was complete, and free it. Returns 0, or an exit status after printing a
 * message. */
int out_print(struct buf *b, int (*write)(const void *, size_t));

/* Append s[0..n) with the escapes of out_write. Returns 0, or -1 when out of
 * memory. */
int out_escape(struct buf *out, const char *s, size_t n);

/* Return whether stdout or stderr is a terminal. Checked only once. */
bool out_is_tty(void);
bool err_is_tty(void);

/* Write text from a model to stderr, which must be a terminal, with the escapes
 * of out_write. Failures are ignored: there is no place to report them. */
void err_write_text(const char *s, size_t n);

/* Close stdout. Returns status. If status is 0 and closing fails, prints a
 * message and returns 1. */
int out_close(int status);

/* Check whether stdout can be written to. Returns 0, or -1 after printing a
 * message. */
int out_check(void);

/* Write all of p[0..n) to a descriptor, also after EINTR and short writes.
 * Returns 0, or -1 with errno set. */
int fd_write(int fd, const void *p, size_t n);

/* ---- messages on stderr: "qwick: …\n", escaped as names are ---- */

/* Set what is printed. quiet: no warnings, notices and hints. verbose:
 * notes. */
void msg_level(bool quiet, bool verbose);
bool msg_quiet(void);

/* What a message is, and when it is printed. On a terminal, lines of warnings and
 * notes end between words. */
enum msg_kind {
    MSG_ERROR,   /* always */
    MSG_WARNING, /* unless quiet */
    MSG_NOTICE,  /* unless quiet: "qwick: note: …" */
    MSG_HINT,    /* as a notice, if stderr is a terminal */
    MSG_NOTE,    /* if verbose */
    MSG_PLAIN    /* always, without "qwick: ", and newlines stay */
};

void msg_say(enum msg_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define msg_error(...)  msg_say(MSG_ERROR, __VA_ARGS__)
#define msg_warn(...)   msg_say(MSG_WARNING, __VA_ARGS__)
#define msg_notice(...) msg_say(MSG_NOTICE, __VA_ARGS__)
#define msg_hint(...)   msg_say(MSG_HINT, __VA_ARGS__)
#define msg_note(...)   msg_say(MSG_NOTE, __VA_ARGS__)

/* Print an error. Returns `code`, its exit status. */
int msg_stop(enum qwick_err_code code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define msg_failure(...) msg_stop(QWICK_ERR_RUNTIME, __VA_ARGS__)
#define msg_refuse(...)  msg_stop(QWICK_ERR_USAGE, __VA_ARGS__)
/* Print "PATH: WHAT: " and the reason in errno. Returns exit status 1. */
int msg_errno(const char *path, const char *what);
/* Print a mistake in the command line, with "(see qwick VERB --help)". verb
 * NULL: none, for "(see qwick --help)". Returns exit status 2. */
int msg_usage(const char *verb, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Print *e. Returns the exit status for it. */
int msg_fail(const struct qwick_err *e);
/* Call msg_fail if something failed, else return 0. */
static inline int msg_result(int failed, const struct qwick_err *e)
{
    return failed ? msg_fail(e) : 0;
}

/* Print that memory ran out. Returns exit status 5. */
int msg_oom(void);

#endif
