/* How qwick log prints answers. */
#ifndef CLI_LOG_PRINT_H
#define CLI_LOG_PRINT_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/store/log_db.h"

/* Append s[0..n) as one line that takes at most `columns` of a terminal: white
 * space becomes a blank, and what is cut ends in "...". */
void log_put_line(struct buf *out, const char *s, size_t n, size_t columns);

/* Append "2026-11-22 10:30" for a time of the log, in local time. */
void log_put_time(struct buf *out, const char *time);

/* Callbacks of log_db_each, which write to stdout. They return an exit status,
 * after a message. ctx is an int, which gets that status, too. */
int log_print_row(void *ctx, const struct log_row *row);   /* a short line */
int log_print_whole(void *ctx, const struct log_row *row); /* all of it */
int log_print_json(void *ctx, const struct log_row *row);

#endif
