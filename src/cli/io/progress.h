/* A progress line on stderr for long runs.
 *
 * It appears only if stderr is a terminal, TERM is set and not "dumb", and
 * --quiet is not given; otherwise all functions do nothing. It may appear
 * before the first output. Once output goes to a terminal, or to a pipe that
 * may lead to the same terminal, the line is erased and does not come back. The
 * line never wraps. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begin a run with this name. The line appears after one second, even if no
 * other function is called. */
void progress_start(const char *name);

/* Return whether progress is shown at all. */
bool progress_on(void);

/* Return whether the line is due for an update. Ask this before you compose a
 * costly text. */
bool progress_due(void);

/* Show "NAME: " followed by this text. */
void progress_show(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Announce that the next n items are evaluated jointly. `before` items are
 * done, n_free of them at no cost. `total` is the number of all items, 0 if
 * unknown. n 0: the items are tokens, which progress_step counts, and of which
 * there are about `total`. The tokens of a single item are shown instead of
 * it. */
void progress_items(const char *unit, uint64_t before, uint64_t n,
                    uint64_t total, uint64_t n_free);

/* A qwick_progress_fn; ctx is not used. done and total count the tokens of the
 * items that progress_items announced. Between two calls, the line's time goes
 * on. */
void progress_step(void *ctx, size_t done, size_t total);

/* Erase the line before a message is printed. The line may come back. */
void progress_clear(void);

/* Prepare for output to this descriptor. Call it before writing. */
void progress_output(int fd);

/* Erase the line for good. */
void progress_stop(void);

/* ---- how it looks ---- */

/* Write a text such as "17 of 200 texts, 35 s left" to out[n]. It is "17 texts"
 * if total is 0, and has no time if seconds_left is negative. The time is in
 * minutes from two minutes on, and in hours from two hours on. */
void progress_format(char *out, size_t n, const char *unit, uint64_t done,
                     uint64_t total, double seconds_left);

/* Estimate the seconds that are left, when `done` items, n_free of them at no
 * cost, have taken `seconds`. Negative: unknown. */
double progress_left(double seconds, uint64_t done, uint64_t n_free,
                     uint64_t total);

/* Return how many bytes of line[0..n) fit into `columns`, in whole characters.
 * A character that may be wide counts as two columns. */
size_t progress_fit(const char *line, size_t n, size_t columns);

#endif
