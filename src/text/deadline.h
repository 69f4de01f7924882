/* The time at which work on texts must end, for each thread: a server sets it
 * before it reads a stranger's request, which may take many calls. It is a
 * variable of the thread, so that it also bounds work deep inside a call. */
#ifndef TEXT_DEADLINE_H
#define TEXT_DEADLINE_H

#include "base/err.h"

/* Let the calling thread's work end when clock_ms reaches ms; 0: never, as at
 * first. */
void text_set_deadline(double ms);

/* Return 0; or, when the time has passed, -1 with QWICK_ERR_USAGE. what: the
 * work, for the message. Reads the clock if there is a deadline. */
int text_check_deadline(const char *what, struct qwick_err *e);

#endif
