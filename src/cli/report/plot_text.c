#include "cli/report/plot_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/report/profile.h"

/* Characters by height; the first one is for the least value. */
static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
enum { LEVELS = sizeof(blocks) / sizeof(*blocks) };

/* The least value and the 98th percentile. */
static int value_limits(const double *v, size_t n, double *lo, double *hi)
{
    double *sorted = sorted_doubles(v, n);
    if (!sorted)
        return -1;
    *lo = sorted[0];
    *hi = quantile(sorted, n, 0.98);
    free(sorted);
    return 0;
}

static size_t level_of(double x, double lo, double hi)
{
    double share = hi > lo ? (x - lo) / (hi - lo) : 0;
    size_t i = (size_t)(fmin(fmax(share, 0), 1) * (LEVELS - 1) + 0.5);
    return i < LEVELS ? i : LEVELS - 1;
}

int plot_sparkline(struct buf *b, const double *v, size_t n, size_t columns,
                   bool utf8)
{
    size_t m = n < columns ? n : columns;
    double lo, hi;
    if (n == 0)
        return 0;
    if (value_limits(v, n, &lo, &hi))
        return -1;
    for (size_t i = 0; i < m; i++) {
        /* the first and the last value of a column: n * i does not overflow,
           because memory holds n doubles and columns are few */
        size_t begin = n * i / m, end = n * (i + 1) / m;
        double most = v[begin];
        for (size_t k = begin + 1; k < end; k++)
            most = fmax(most, v[k]);
        if (buf_puts(b, (utf8 ? blocks : ascii)[level_of(most, lo, hi)]))
            return -1;
    }
    return 0;
}

size_t plot_bins(const double *v, size_t n, struct plot_bin out[PLOT_BINS])
{
    double lo, hi;
    if (n == 0 || value_limits(v, n, &lo, &hi))
        return 0;
    size_t m = hi > lo ? PLOT_BINS : 1;
    for (size_t i = 0; i < m; i++)
        out[i] = (struct plot_bin){lo + (hi - lo) * (double)i / (double)m,
                                   lo + (hi - lo) * (double)(i + 1) / (double)m,
                                   0};
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k + 1 < m && v[i] >= out[k].hi)
            k++;
        out[k].n++;
        if (v[i] > out[m - 1].hi)
            out[m - 1].hi = v[i];
    }
    return m;
}

/* Append a bar of `width` cells, in eighths of a cell with UTF-8. */
static void put_bar(struct buf *b, double width, bool utf8)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    size_t eighths = (size_t)(width * 8 + 0.5);
    if (!utf8)
        eighths = (size_t)(width + 0.5) * 8;
    if (eighths == 0 && width > 0)
        eighths = utf8 ? 1 : 8; /* few is not none */
    for (size_t i = 0; i < eighths / 8; i++)
        buf_puts(b, utf8 ? "█" : "#");
    buf_puts(b, parts[eighths % 8]);
}

/* Decimals that tell edges apart which differ by step. */
static int decimals_of(double step)
{
    int d = step > 0 ? (int)ceil(-log10(step)) + 1 : 3;
    return d < 0 ? 0 : d > 6 ? 6 : d;
}

/* Append a line for each bin. */
static int plot_histogram(struct buf *b, const double *v, size_t n,
                          size_t columns, bool utf8)
{
    struct plot_bin bins[PLOT_BINS];
    size_t m = plot_bins(v, n, bins), most = 0;
    char head[64];
    if (m == 0)
        return n == 0 ? 0 : -1;
    for (size_t i = 0; i < m; i++)
        most = bins[i].n > most ? bins[i].n : most;
    int d = decimals_of(bins[0].hi - bins[0].lo);
    int edge = snprintf(head, sizeof(head), "%.*f", d, bins[m - 1].hi);
    int count = snprintf(head, sizeof(head), "%zu", most);
    /* "  EDGE to EDGE ms  COUNT  BAR" */
    size_t used = 2 * (size_t)edge + (size_t)count + 13;
    double room = used < columns ? (double)(columns - used) : 0;
    for (size_t i = 0; i < m; i++) {
        buf_printf(b, "  %*.*f to %*.*f ms  %*zu  ", edge, d, bins[i].lo, edge,
                   d, bins[i].hi, count, bins[i].n);
        put_bar(b, fmin(room, 40) * (double)bins[i].n / (double)most, utf8);
        buf_putc(b, '\n');
    }
    return b->failed ? -1 : 0;
}

int plot_times(struct buf *b, const char *name, const double *v, size_t n,
               size_t columns, bool utf8)
{
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < n; i++) {
        least = fmin(least, v[i]);
        most = fmax(most, v[i]);
    }
    if (n < 2) /* one time has no picture */
        return 0;
    return buf_printf(b, "%s: %zu times, %.3g to %.3g ms\n  ", name, n, least,
                      most) ||
                   plot_sparkline(b, v, n, columns > 2 ? columns - 2 : 1,
                                  utf8) ||
                   buf_putc(b, '\n') || plot_histogram(b, v, n, columns, utf8)
               ? -1
               : 0;
}
