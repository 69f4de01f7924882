/* The charts of `bench --html`. */
#ifndef CLI_BENCH_CHARTS_H
#define CLI_BENCH_CHARTS_H

#include "cli/bench/bench_report.h"
#include "cli/report/html.h"

/* Write the name of a line as a series to out, with its threads if the model's
 * lines have several numbers of them. */
void bench_series_name(const struct bench_model *m, const struct bench_line *l,
                       char out[BENCH_NAME]);

/* The limits of the machine, and a mark for each line. */
void bench_roofline(struct html *h, const struct bench_model *m);
/* Decode speed against the tokens in the context. */
void bench_depths(struct html *h, const struct bench_model *m);
/* The times of steps against percentiles, a curve for each line. */
void bench_quantiles(struct html *h, const struct bench_model *m);
/* The times of a line's steps in their order, and their histogram. */
void bench_steps(struct html *h, const struct bench_model *m,
                 const struct bench_line *l);

#endif
