/* One line on a terminal's stderr that says how far a long run is.
 *
 * It needs a stderr that is a terminal and can erase (TERM is set and not
 * "dumb"), and no --quiet; elsewhere all of this does nothing. Before the first
 * byte of output it may stand there whatever stdout is. Where output goes to a
 * terminal or a pipe, the line is erased then and does not come back: a pipe
 * may lead to the same terminal. The line never wraps. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run of this name begins. The line appears after a second, also when nothing
 * calls us meanwhile. */
void progress_start(const char *name);

/* Whether anything would be shown. */
bool progress_on(void);

/* Whether it is time for a new line, for callers whose line costs something to
 * make. */
bool progress_due(void);

/* "NAME: " and this. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Now n items come that are worked on together, after `before` others, of
 * `total` in all (0: nobody knows). n 0: the items are the tokens that
 * progress_step tells of. Of those before, n_free have cost no time. */
void progress_items(const char *unit, uint64_t before, uint64_t n,
                    uint64_t total, uint64_t n_free);

/* A qwick_progress_fn, ctx unused: tokens done and to do of these items. */
void progress_step(void *ctx, size_t done, size_t total);

/* Erase the line; it may come back. Call it before a message. */
void progress_clear(void);

/* Output begins, or goes on, on this descriptor. */
void progress_output(int fd);

/* Erase it for good. */
void progress_stop(void);

/* ---- how it looks ---- */

/* "17 of 200 texts", "17 texts" when total is 0; then ", 35 s left", in
 * minutes from two of them on, in hours from two of them on, nothing when left
 * is negative. Into out[n]. */
void progress_format(char *out, size_t n, const char *unit, uint64_t done,
                     uint64_t total, double seconds_left);

/* Seconds that the rest of total takes if it goes on like this; n_free of done
 * have taken no time. Negative: nobody knows. */
double progress_left(double seconds, uint64_t done, uint64_t n_free,
                     uint64_t total);

/* Bytes of the longest beginning of line[0..n) that takes at most so many
 * columns, whole characters only. A character that may be wide counts as two.
 */
size_t progress_fit(const char *line, size_t n, size_t columns);

/* Columns of the terminal of a descriptor: as it says, else as $COLUMNS says,
 * else 80. */
size_t progress_columns(int fd);

#endif
