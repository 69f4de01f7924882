/* --profile-timing: how the time of an answer is spent. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <stddef.h>

#include "base/buf.h"
#include "cli/json_writer.h"
#include "qwick.h"

/* Unknown values are NAN, for example in an answer of one token. */
struct profile {
    size_t n_runs;               /* answers that were timed */
    size_t n_steps;              /* tokens after the first, of all runs */
    double prefill_ms, total_ms; /* medians of the runs */
    double median_ms, p95_ms, p99_ms;
    double kernel_tok_s;     /* 1000 / median */
    double end_to_end_tok_s; /* tokens / (prefill and decode) */
    double sampling_share;   /* sampling's share of decode time, 0..1 */
    double tokens_per_pass;  /* of lookup; NAN without it */
    double bytes_per_token;  /* bytes of weights and KV cache at the mean
                                context; with lookup, bytes of a pass divided by
                                its tokens */
    double gb_s;             /* bytes_per_token / median time of a token; with
                                lookup the mean, since times differ */
    double bandwidth_gb_s;   /* measured */
    double bandwidth_percent;
};

/* Compute the profile of n_runs >= 1 answers to one prompt. bandwidth: bytes
 * per second, <= 0 if unknown. Returns 0, or -1 when memory ran out. */
int profile_make(struct profile *p, const struct qwick_result *runs,
                 size_t n_runs, const struct qwick_engine *eng,
                 double bandwidth);

/* Write the profile as a JSON object. */
void profile_json(struct json_writer *w, const char *key,
                  const struct profile *p);
/* Append the profile as a table. Returns -1 when memory ran out. */
int profile_table(struct buf *b, const struct profile *p,
                  const struct qwick_result *r);

/* The q-quantile of the sorted v[0..n), interpolated between neighbours as
 * NumPy does by default. NAN for n = 0. */
double quantile(const double *v, size_t n, double q);
void sort_doubles(double *v, size_t n);

#endif
