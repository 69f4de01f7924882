/* stdout and stderr of the program. stdout is written with write(2): an answer
 * is out as soon as it is known, and every failure is seen. */
#ifndef CLI_OUT_H
#define CLI_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* Open what is missing of descriptors 0, 1, 2 so that files opened later do
 * not land there. Reading or writing such a descriptor still fails. */
void out_init(void);

/* Write all of p[0..n) to stdout, complete UTF-8 characters at a time. Where
 * stdout is a terminal, control characters other than newline and tab are shown
 * as \xNN, so that text from a model or a file cannot drive the terminal; to
 * files and pipes the bytes go as they are. A closed pipe ends the process by
 * SIGPIPE; another failure is reported once on stderr and returns -1. */
int out_write(const void *p, size_t n);

/* Whether stdout, or stderr, is a terminal. Asked for once, at the start. */
bool out_is_tty(void);
bool err_is_tty(void);

/* Whether escape sequences may go to stderr: it is a terminal that knows them
 * (TERM is not dumb or missing) and NO_COLOR is not set. */
bool err_has_colour(void);

/* Write text from a model to the terminal that stderr is, control characters
 * shown as \xNN. A failure is ignored: nobody could be told. */
void err_write_text(const char *s, size_t n);

/* Close stdout. Returns status, or 1 when closing failed (reported) while
 * status was 0. */
int out_close(int status);

/* Whether stdout can be written to at all; reports when not (-1). */
int out_check(void);

/* The same for any descriptor: EINTR and short writes handled. -1: errno. */
int fd_write(int fd, const void *p, size_t n);

/* ---- messages on stderr: "qwick: …\n", control bytes escaped ---- */

/* quiet: no warnings and no hints; verbose: notes. */
void msg_level(bool quiet, bool verbose);
bool msg_quiet(void);

void msg_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A notice that scripts see, too, unless -q: "qwick: note: …". */
void msg_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A word to the person at the terminal that stderr is, "qwick: note: …".
 * Scripts never see it. */
void msg_hint(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print *e; returns the exit status that belongs to it. */
int msg_fail(const struct qwick_err *e);

/* Report that memory ran out; returns 5. */
int msg_oom(void);

#endif
