/* stdout and stderr of the program. We write stdout with write(2): an answer
 * appears at once, and every failure is seen. */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Open descriptors 0, 1 and 2 if they are closed, so that later files do not
 * get these numbers. Reading or writing such a descriptor still fails.
 */
void out_init(void);

/* Write all of p[0..n) to stdout, complete UTF-8 characters at a time. If
 * stdout is a terminal, control characters other than newline and tab are shown
 * as \xNN, so that text from a model or a file cannot control the terminal.
 * Files and pipes get the bytes unchanged. A closed pipe ends the process by
 * SIGPIPE; another failure is reported once on stderr and returns -1. */
int out_write(const void *p, size_t n);

/* Whether stdout or stderr is a terminal. Checked once. */
bool out_is_tty(void);
bool err_is_tty(void);

/* Whether stderr may get escape sequences: it is a terminal, TERM is set and
 * not "dumb", and NO_COLOR is not set. */
bool err_has_colour(void);

/* Write text from a model to stderr, which is a terminal; control characters
 * are shown as \xNN. Failures are ignored: there is nowhere to report them. */
void err_write_text(const char *s, size_t n);

/* Close stdout. Returns status; if status is 0 and closing failed, reports it
 * and returns 1. */
int out_close(int status);

/* Whether stdout can be written to. Returns 0, or -1 with the message printed.
 */
int out_check(void);

/* Write all of p[0..n) to a descriptor, through EINTR and short writes. Returns
 * 0, or -1 with errno set. */
int fd_write(int fd, const void *p, size_t n);

/* ---- messages on stderr: "qwick: …\n", control bytes escaped ---- */

/* quiet: print no warnings, notices and hints. verbose: print notes. */
void msg_level(bool quiet, bool verbose);
bool msg_quiet(void);

void msg_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Print "qwick: note: …", even if stderr is not a terminal. */
void msg_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Print "qwick: note: …" if stderr is a terminal. */
void msg_hint(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print *e. Returns its exit status. */
int msg_fail(const struct qwick_err *e);

/* Print that memory ran out. Returns exit status 5. */
int msg_oom(void);

#endif
