/* Pictures of times in characters: a sparkline and a histogram. */
#ifndef CLI_PLOT_TEXT_H
#define CLI_PLOT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Append one line with the values v[0..n) in order: at most `columns` (>= 1)
 * characters, each for an equal number of values, of which it shows the
 * largest. The lowest character stands for the least value, the highest for
 * the 98th percentile and above, so that one outlier does not flatten the rest.
 * utf8: use block elements, not ASCII. No newline. Returns 0, or -1 when out
 * of memory. */
int plot_sparkline(struct buf *b, const double *v, size_t n, size_t columns,
                   bool utf8);

/* A bin counts the values from lo to below hi; the last one has all above. */
struct plot_bin {
    double lo, hi;
    size_t n;
};

/* Divide the values into at most PLOT_BINS bins of equal width between their
 * minimum and their 98th percentile; the last bin has all above. Values that
 * are all equal get one bin. Returns the number of bins; 0 for n = 0, or when
 * out of memory. */
enum { PLOT_BINS = 8 };
size_t plot_bins(const double *v, size_t n, struct plot_bin out[PLOT_BINS]);

/* Append a sparkline and a histogram of times in ms under a line with this name,
 * each line indented by two blanks and of at most `columns` characters. Returns
 * 0, or -1 when out of memory. */
int plot_times(struct buf *b, const char *name, const double *v, size_t n,
               size_t columns, bool utf8);

#endif
