/* --profile-timing: what one answer's time was spent on. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/json_writer.h"
#include "qwick.h"

/* NAN where there is nothing to say (an answer of one token, no bandwidth). */
struct profile {
    size_t n_runs;               /* answers that were timed */
    size_t n_steps;              /* tokens after the first, of all runs */
    double prefill_ms, total_ms; /* medians of the runs */
    double median_ms, p95_ms, p99_ms;
    double kernel_tok_s;     /* 1000 / median */
    double end_to_end_tok_s; /* tokens / (prefill and decode) */
    double sampling_share;   /* of these tokens' time, 0..1 */
    double tokens_per_pass;  /* with lookup, else NAN */
    double bytes_per_token;  /* weights, and KV at the mean context; a pass's,
                                by its tokens */
    double gb_s;             /* bytes_per_token / median; with lookup, as bytes
                                and times of tokens differ, / mean */
    double bandwidth_gb_s;   /* measured */
    double bandwidth_percent;
};

/* The profile of n_runs >= 1 answers to one prompt. bandwidth in bytes a
 * second,
 * <= 0 when unknown. 0, or -1: out of memory. */
int profile_make(struct profile *p, const struct qwick_result *runs,
                 size_t n_runs, const struct qwick_info *info,
                 double bandwidth);

/* As a JSON object. */
void profile_json(struct json_writer *w, const char *key,
                  const struct profile *p);
/* As a table of lines; -1: out of memory. */
int profile_table(struct buf *b, const struct profile *p,
                  const struct qwick_result *r);

/* The value below which a share q of v[0..n) lies, interpolated between
 * neighbours (NumPy's default); v must be sorted. NAN for n = 0. */
double quantile(const double *v, size_t n, double q);
void sort_doubles(double *v, size_t n);

#endif
