/* One line on stderr that says how far a long run is.
 *
 * It appears only if stderr is a terminal, TERM is set and not "dumb", and
 * --quiet is not given; otherwise all functions do nothing. It may appear
 * before the first output. Once output goes to a terminal or to a pipe, which
 * may lead to the same terminal, the line is erased and does not come back. It
 * never wraps. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run of this name begins. The line appears after a second, even if no
 * function is called in between. */
void progress_start(const char *name);

/* Whether anything would be shown. */
bool progress_on(void);

/* Whether the line is due for an update. For callers whose text costs time. */
bool progress_due(void);

/* Show "NAME: " and this text. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The next n items are evaluated together. `before` items are done, n_free of
 * them at no cost; `total` is the number of all items, 0 if it is unknown. n 0:
 * the items are tokens, which progress_step counts. */
void progress_items(const char *unit, uint64_t before, uint64_t n,
                    uint64_t total, uint64_t n_free);

/* A qwick_progress_fn without ctx: tokens done and to do of these items. */
void progress_step(void *ctx, size_t done, size_t total);

/* Erase the line before a message. It may come back. */
void progress_clear(void);

/* Output is about to go to this descriptor. */
void progress_output(int fd);

/* Erase it for good. */
void progress_stop(void);

/* ---- how it looks ---- */

/* Write "17 of 200 texts, 35 s left" to out[n]: "17 texts" if total is 0, and
 * without the time if seconds_left is negative. From two minutes on the time is
 * in minutes, from two hours on in hours. */
void progress_format(char *out, size_t n, const char *unit, uint64_t done,
                     uint64_t total, double seconds_left);

/* Estimate the seconds that are left: `done` items, n_free of them at no cost,
 * have taken `seconds`. Negative: unknown. */
double progress_left(double seconds, uint64_t done, uint64_t n_free,
                     uint64_t total);

/* The bytes of line[0..n) that fit into `columns`, whole characters only. A
 * character that may be wide counts as two columns. */
size_t progress_fit(const char *line, size_t n, size_t columns);

/* The columns of a descriptor's terminal: what it says, else $COLUMNS, else 80.
 */
size_t progress_columns(int fd);

#endif
