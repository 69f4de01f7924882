#include "cli/bench/bench_charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/chart.h"
#include "cli/report/plot_text.h"
#include "cli/report/profile.h"
#include "cli/io/units.h"

enum { TIP = 256 };

static double max_of(double a, double b)
{
    return isfinite(b) && b > a ? b : a;
}

static double min_of(double a, double b)
{
    return isfinite(b) && b < a ? b : a;
}

void bench_series_name(const struct bench_model *m, const struct bench_line *l,
                        char out[BENCH_NAME])
{
    bench_line_name(l, out);
    size_t n = strlen(out);
    for (size_t i = 0; i < m->n_lines; i++)
        if (m->lines[i].threads != l->threads) {
            snprintf(out + n, BENCH_NAME - n, ", threads %d", l->threads);
            return;
        }
}

/* ---- the roofline ------------------------------------------------------- */

/* Operations per byte of a line, and operations per second. */
static double intensity(const struct bench_line *l)
{
    return l->bytes > 0 ? l->flops / l->bytes : NAN;
}

/* The rate is that of the bytes or that of the operations. */
static double achieved(const struct bench_line *l)
{
    return l->by_memory ? l->rate * intensity(l) : l->rate;
}

/* The limits at a number of threads: the largest that any line measured. */
static void limits_of(const struct bench_model *m, int threads, double *bw,
                      double *peak)
{
    *bw = *peak = 0;
    for (size_t i = 0; i < m->n_lines; i++)
        if (m->lines[i].threads == threads) {
            *bw = max_of(*bw, m->lines[i].bandwidth);
            *peak = max_of(*peak, m->lines[i].peak);
        }
}

/* Draw the roof of a number of threads: the slope of the bandwidth up to the
 * ridge, then the peak. */
static void put_roof(struct chart *c, const struct bench_model *m, int threads,
                     size_t style, const char *name)
{
    double bw, peak, x[3], y[3];
    limits_of(m, threads, &bw, &peak);
    if (!(bw > 0) || !(peak > 0))
        return;
    double ridge = fmin(fmax(peak / bw, c->x.lo), c->x.hi);
    x[0] = c->x.lo;
    x[1] = ridge;
    x[2] = c->x.hi;
    for (size_t i = 0; i < 3; i++)
        y[i] = fmin(bw * x[i], peak) / 1e9;
    /* a roof that begins below the frame begins where it enters it */
    if (y[0] < c->y.lo) {
        x[0] = c->y.lo * 1e9 / bw;
        y[0] = c->y.lo;
    }
    struct chart_style s = {.style = style, .name = name};
    chart_line(c, &s, x, y, 3);
}

/* The i-th number of threads; false: there are fewer. */
static bool threads_at(const struct bench_model *m, size_t i, int *out)
{
    size_t n = 0;
    for (size_t k = 0; k < m->n_lines; k++) {
        bool seen = false;
        for (size_t j = 0; j < k; j++)
            seen |= m->lines[j].threads == m->lines[k].threads;
        if (!seen && n++ == i) {
            *out = m->lines[k].threads;
            return true;
        }
    }
    return false;
}

static void put_points(struct chart *c, const struct bench_model *m)
{
    static const char *const names[] = {"prefill", "decode", "batch"};
    for (size_t i = 0; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        char name[BENCH_NAME], tip[TIP], rate[SCALE_TEXT], per[SCALE_TEXT];
        bench_series_name(m, l, name);
        scale_number(achieved(l) / 1e9, rate);
        scale_number(intensity(l), per);
        snprintf(tip, sizeof(tip),
                 "%s: %s billion operations a second, %s operations a byte, "
                 "%.1f%% of the limit",
                 name, rate, per, 100 * l->share);
        struct chart_style s = {.style = (size_t)l->test + 1,
                                .name = names[l->test]};
        chart_mark(c, &s, intensity(l), achieved(l) / 1e9, tip);
    }
}

void bench_roofline(struct html *h, const struct bench_model *m)
{
    struct chart c;
    struct chart_axes a = {
        .title = "Roofline",
        .about = "Operations per second against operations per byte, both "
                 "logarithmic: the slope of the memory bandwidth, the peak of "
                 "arithmetic, and a mark for each test. The tables have the "
                 "numbers.",
        .x = "operations per byte read",
        .y = "billion operations per second",
        .x_log = true,
        .y_log = true,
        .x_lo = INFINITY,
        .y_lo = INFINITY,
    };
    char names[CHART_SERIES][48];
    int threads;
    for (size_t i = 0; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        a.x_lo = min_of(a.x_lo, intensity(l) / 2);
        a.x_hi = max_of(a.x_hi, intensity(l) * 2);
        a.y_lo = min_of(a.y_lo, achieved(l) / 2e9);
        a.y_hi = max_of(a.y_hi, achieved(l) * 1.3 / 1e9);
    }
    for (size_t i = 0; threads_at(m, i, &threads); i++) {
        double bw, peak;
        limits_of(m, threads, &bw, &peak);
        a.y_hi = max_of(a.y_hi, peak * 1.3 / 1e9);
        a.x_hi = max_of(a.x_hi, bw > 0 ? 2 * peak / bw : 0);
    }
    chart_begin(&c, h, &a);
    for (size_t i = 0; i < 3 && threads_at(m, i, &threads); i++) {
        snprintf(names[i], sizeof(names[i]), "limit of %d %s", threads,
                 plural((uint64_t)threads, "thread", "threads"));
        put_roof(&c, m, threads, i ? i + 3 : 0, names[i]);
    }
    put_points(&c, m);
    chart_end(&c, "A mark on the line runs at the limit of this machine. Marks "
                  "above it come from caches, which are faster than the "
                  "memory.");
}

/* ---- decode against depth ----------------------------------------------- */

/* Collect the lines of one series, in the order of their depths. */
static size_t depth_series(const struct bench_model *m,
                           const struct bench_line *like, double *x, double *y)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_lines; i++) {
        const struct bench_line *l = &m->lines[i];
        if (l->test != like->test || l->batch != like->batch ||
            l->threads != like->threads)
            continue;
        size_t at = n++;
        for (; at && x[at - 1] > (double)l->n; at--) {
            x[at] = x[at - 1];
            y[at] = y[at - 1];
        }
        x[at] = (double)l->n;
        y[at] = l->tok_s;
    }
    return n;
}

static bool is_first(const struct bench_model *m, size_t i)
{
    const struct bench_line *l = &m->lines[i];
    for (size_t k = 0; k < i; k++)
        if (m->lines[k].test == l->test && m->lines[k].batch == l->batch &&
            m->lines[k].threads == l->threads)
            return false;
    return true;
}

static void put_depth_series(struct chart *c, const struct bench_model *m,
                             const struct bench_line *l, size_t style,
                             char name[BENCH_NAME])
{
    double *x = calloc(2 * m->n_lines, sizeof(*x));
    if (!x) {
        c->h->out.failed = true;
        return;
    }
    double *y = x + m->n_lines;
    size_t n = depth_series(m, l, x, y);
    if (l->test == BENCH_BATCH)
        snprintf(name, BENCH_NAME, "batch of %zu, threads %d", l->batch,
                 l->threads);
    else
        snprintf(name, BENCH_NAME, "decode, threads %d", l->threads);
    struct chart_style line = {.style = style}, mark = {style, .name = name};
    chart_line(c, &line, x, y, n);
    for (size_t i = 0; i < n; i++) {
        char tip[TIP], rate[SCALE_TEXT];
        scale_number(y[i], rate);
        snprintf(tip, sizeof(tip), "%s, depth %.0f: %s tokens/s", name, x[i],
                 rate);
        chart_mark(c, &mark, x[i], y[i], tip);
    }
    free(x);
}

/* The speed that the bandwidth allows one sequence at each depth. */
static void put_depth_limit(struct chart *c, const struct bench_model *m,
                            int threads, const char *name)
{
    double y[BENCH_DEPTHS], bw, peak;
    limits_of(m, threads, &bw, &peak);
    for (size_t i = 0; i < BENCH_DEPTHS; i++)
        y[i] = bw > 0 ? bw / m->depth_bytes[i] : NAN;
    struct chart_style s = {.style = 5, .dash = true, .name = name};
    chart_line(c, &s, m->depth, y, BENCH_DEPTHS);
}

void bench_depths(struct html *h, const struct bench_model *m)
{
    struct chart c;
    struct chart_axes a = {
        .title = "Decode speed against depth",
        .about = "Tokens per second against the tokens in the context: a line "
                 "for each number of sequences and threads, and the limit that "
                 "the memory bandwidth sets for one sequence. The tables have "
                 "the numbers.",
        .x = "tokens in the context",
        .y = "tokens per second",
        .x_hi = m->depth[BENCH_DEPTHS - 1],
        .x_tight = true,
    };
    char names[2 * CHART_SERIES][BENCH_NAME], limit[64];
    double bw, peak;
    int threads = 1;
    size_t style = 0;
    threads_at(m, 0, &threads);
    limits_of(m, threads, &bw, &peak);
    a.y_hi = max_of(a.y_hi, bw / m->depth_bytes[0]);
    for (size_t i = 0; i < m->n_lines; i++)
        if (m->lines[i].test != BENCH_PREFILL)
            a.y_hi = max_of(a.y_hi, m->lines[i].tok_s);
    chart_begin(&c, h, &a);
    snprintf(limit, sizeof(limit), "limit of one sequence, threads %d",
             threads);
    put_depth_limit(&c, m, threads, limit);
    for (size_t i = 0; i < m->n_lines && style < 2 * CHART_SERIES; i++)
        if (m->lines[i].test != BENCH_PREFILL && is_first(m, i)) {
            put_depth_series(&c, m, &m->lines[i], style, names[style]);
            style++;
        }
    chart_end(&c, NULL);
}

/* ---- times of steps ----------------------------------------------------- */

/* Draw each run, with the latest one in full strength. */
static void put_series(struct html *h, const struct bench_model *m,
                       const struct bench_line *l)
{
    char title[BENCH_NAME + 32], name[BENCH_NAME];
    double *x = calloc(m->gen, sizeof(*x));
    struct chart c;
    struct quantiles q;
    if (!x || quantiles_of(l->step_ms, l->n_steps, &q)) {
        free(x);
        h->out.failed = true;
        return;
    }
    for (size_t i = 0; i < m->gen; i++)
        x[i] = (double)(i + 1);
    bench_series_name(m, l, name);
    snprintf(title, sizeof(title), "Time of a step, %s", name);
    struct chart_axes a = {
        .title = title,
        .about = "Milliseconds of each decode step, a line for each run. The "
                 "table of percentiles has the numbers.",
        .x = "decode step",
        .y = "milliseconds",
        .x_lo = 1,
        .x_hi = (double)m->gen,
        .x_tight = true,
        .y_hi = q.most,
    };
    chart_begin(&c, h, &a);
    for (size_t k = 0; k < l->n_runs; k++) {
        bool last = k + 1 == l->n_runs;
        struct chart_style s = {.style = 0,
                                .thin = !last,
                                .name = last && k ? "last run" : NULL};
        chart_line(&c, &s, x, l->step_ms + k * m->gen, m->gen);
    }
    const double ends[] = {c.x.lo, c.x.hi}, median[] = {q.median, q.median};
    struct chart_style s = {.style = 1, .dash = true, .name = "median"};
    chart_line(&c, &s, ends, median, 2);
    chart_end(&c, NULL);
    free(x);
}

static void put_bins(struct html *h, const struct bench_model *m,
                     const struct bench_line *l)
{
    struct plot_bin bins[PLOT_BINS];
    size_t n = plot_bins(l->step_ms, l->n_steps, bins);
    char title[BENCH_NAME + 32], name[BENCH_NAME];
    struct chart c;
    struct chart_axes a = {
        .title = title,
        .about = "How many decode steps took how long: a histogram of the "
                 "steps of all runs. The table of percentiles has the numbers.",
        .x = "milliseconds, without the slowest 2%",
        .y = "steps",
    };
    if (n == 0) {
        h->out.failed = true;
        return;
    }
    /* the last bin holds the outliers, which would flatten the rest */
    double width = bins[0].hi - bins[0].lo, end = bins[0].lo + width * (double)n;
    for (size_t i = 0; i < n; i++)
        a.y_hi = max_of(a.y_hi, (double)bins[i].n);
    a.x_lo = bins[0].lo;
    a.x_hi = end;
    bench_series_name(m, l, name);
    snprintf(title, sizeof(title), "Distribution, %s", name);
    chart_begin(&c, h, &a);
    for (size_t i = 0; i < n; i++) {
        char tip[TIP], lo[SCALE_TEXT], hi[SCALE_TEXT];
        struct chart_style s = {.style = 0};
        scale_number(bins[i].lo, lo);
        scale_number(bins[i].hi, hi);
        snprintf(tip, sizeof(tip), "%s to %s ms: %zu steps", lo, hi, bins[i].n);
        chart_bar(&c, &s, bins[i].lo, fmin(bins[i].hi, end),
                  (double)bins[i].n, tip);
    }
    chart_end(&c, NULL);
}

/* Draw the percentiles of all lines in one chart. */
void bench_quantiles(struct html *h, const struct bench_model *m)
{
    enum { N = 101 };
    char names[2 * CHART_SERIES][BENCH_NAME];
    double x[N], y[N], least = INFINITY, most = 0;
    struct chart c;
    size_t style = 0;
    for (size_t i = 0; i < m->n_lines; i++)
        for (size_t k = 0; k < m->lines[i].n_steps; k++) {
            least = min_of(least, m->lines[i].step_ms[k]);
            most = max_of(most, m->lines[i].step_ms[k]);
        }
    struct chart_axes a = {
        .title = "Percentiles of a step's time",
        .about = "Milliseconds against percentiles: so many percent of the "
                 "decode steps took at most this time. A line for each test. "
                 "The table of percentiles has the numbers.",
        .x = "percentile",
        .y = "milliseconds, logarithmic",
        .x_hi = 100,
        .y_lo = least,
        .y_hi = most,
        .y_log = true,
    };
    chart_begin(&c, h, &a);
    for (size_t i = 0; i < m->n_lines && style < 2 * CHART_SERIES; i++) {
        const struct bench_line *l = &m->lines[i];
        if (!l->n_steps)
            continue;
        double *sorted = sorted_doubles(l->step_ms, l->n_steps);
        if (!sorted) {
            h->out.failed = true;
            return;
        }
        for (size_t k = 0; k < N; k++) {
            x[k] = (double)k;
            y[k] = quantile(sorted, l->n_steps, (double)k / (N - 1));
        }
        free(sorted);
        bench_series_name(m, l, names[style]);
        struct chart_style s = {.style = style, .name = names[style],
                                .dash = style >= CHART_SERIES};
        chart_line(&c, &s, x, y, N);
        style++;
    }
    chart_end(&c, NULL);
}

void bench_steps(struct html *h, const struct bench_model *m,
                 const struct bench_line *l)
{
    put_series(h, m, l);
    put_bins(h, m, l);
}
