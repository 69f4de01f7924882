/* The profile of --profile-timing: it shows how an answer spends its time. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <stddef.h>

#include "base/buf.h"
#include "file/json_writer.h"
#include "qwick.h"

/* A profile. Values that are unknown are NAN, for example for an answer of one
 * token. */
struct profile {
    size_t n_runs;               /* answers that were timed */
    size_t n_steps;              /* tokens of all runs, without the first token
                                    of each run */
    double prefill_ms, total_ms; /* medians over the runs */
    double median_ms, p95_ms, p99_ms;
    double kernel_tok_s;     /* 1000 / median */
    double end_to_end_tok_s; /* tokens / (prefill and decode time) */
    double sampling_share;   /* fraction of the decode time spent in sampling,
                                0..1 */
    double constraint_share; /* the same for the masks of a constraint; NAN
                                without one */
    double tokens_per_pass;  /* with guesses or forced tokens; NAN without */
    double draft_ms;         /* time of the draft model in the first run; NAN
                                without one */
    double bytes_per_token;  /* bytes of weights and KV cache at the mean
                                context; with guesses, the bytes of a pass
                                divided by its tokens. Without those of a draft
                                model */
    double gb_s;             /* bytes_per_token / median time of a token; with
                                guesses the mean time, because times differ */
    double bandwidth_gb_s;   /* measured bandwidth of the machine */
    double bandwidth_percent; /* NAN if in_cache */
    bool in_cache;            /* the weights lie in the CPU's cache, so that the
                                 memory's bandwidth does not limit them */
    /* The start: see struct qwick_info. */
    double load_ms, load_tokenizer_ms, load_weights_ms, first_read_ms;
    size_t first_faults;
};

/* Compute the profile of n_runs >= 1 answers to the same prompt. bandwidth:
 * bytes per second, <= 0 if unknown. Returns 0, or -1 when out of memory. */
int profile_make(struct profile *p, const struct qwick_result *runs,
                 size_t n_runs, const struct qwick_engine *eng,
                 double bandwidth);

/* Write the profile as a JSON object. */
void profile_json(struct json_writer *w, const char *key,
                  const struct profile *p);
/* Append the profile as a table. */
void profile_table(struct buf *b, const struct profile *p,
                   const struct qwick_result *r);

/* Return the q-quantile of the sorted v[0..n), interpolated between neighbours
 * as NumPy does by default. NAN for n = 0. */
double quantile(const double *v, size_t n, double q);
void sort_doubles(double *v, size_t n);
/* A sorted copy of v[0..n), malloc'ed. NULL: out of memory. */
double *sorted_doubles(const double *v, size_t n);

/* Quantiles of v[0..n), n >= 1, in any order. Returns 0, or -1 when out of
 * memory. */
struct quantiles {
    double least, median, p95, p99, most;
};
int quantiles_of(const double *v, size_t n, struct quantiles *out);

#endif
