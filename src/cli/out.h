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

/* Write all of p[0..n) to stdout. A closed pipe ends the process by SIGPIPE;
 * another failure is reported once on stderr and returns -1. */
int out_write(const void *p, size_t n);

/* Close stdout. Returns status, or 1 when closing failed (reported) while
 * status was 0. */
int out_close(int status);

/* Whether stdout can be written to at all; reports when not (-1). */
int out_check(void);

/* The same for any descriptor: EINTR and short writes handled. -1: errno. */
int fd_write(int fd, const void *p, size_t n);

/* ---- messages on stderr: "qwick: …\n", control bytes escaped ---- */

/* quiet: no warnings; verbose: notes. */
void msg_level(bool quiet, bool verbose);
bool msg_quiet(void);

void msg_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void msg_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Print *e; returns the exit status that belongs to it. */
int msg_fail(const struct qwick_err *e);

/* Report that memory ran out; returns 5. */
int msg_oom(void);

#endif
