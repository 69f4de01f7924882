/* The metrics of GET /metrics, in Prometheus' text format 0.0.4. The rows are
 * in metrics.c: name, type, help. Names are those of vLLM, with the prefix
 * qwick_, where vLLM has the metric, and those of Prometheus' libraries for the
 * process.
 *
 * Any thread may call all functions: numbers are atomic, and each is right by
 * itself. */
#ifndef CLI_SERVE_METRICS_H
#define CLI_SERVE_METRICS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "qwick.h"

enum metric {
    /* counters */
    METRIC_PROMPT_TOKENS,
    METRIC_GENERATION_TOKENS,
    METRIC_CACHE_QUERIES,
    METRIC_CACHE_HITS,
    METRIC_PREEMPTIONS,
    /* current values; shares and seconds are set in millionths */
    METRIC_RUNNING,
    METRIC_WAITING,
    METRIC_KV_BYTES,
    METRIC_KV_USAGE,
    METRIC_CONNECTIONS,
    METRIC_MEMORY,
    METRIC_CPU,
    METRIC_STARTED,
    N_METRICS
};

/* Histograms of times. */
enum metric_time {
    METRIC_FIRST_TOKEN, /* from a request's last byte */
    METRIC_INTER_TOKEN, /* between two tokens of an answer */
    METRIC_PER_TOKEN,   /* the mean of an answer's */
    METRIC_END_TO_END,
    METRIC_EVENT_DELAY, /* from an event to its write */
    N_METRIC_TIMES
};

/* How answers end. */
enum metric_end {
    METRIC_STOP,
    METRIC_LENGTH,
    METRIC_ABORT,
    METRIC_ERROR,
    N_METRIC_ENDS
};

enum {
    METRICS_BUCKETS = 22,   /* without +Inf */
    METRICS_STATUSES = 20,  /* statuses that have counters */
    METRICS_ENDPOINTS = 40, /* and one for requests without */
    METRICS_GONE = 499      /* the status of an answer that nobody read */
};

typedef _Atomic uint64_t metric_number;

struct metrics {
    metric_number v[N_METRICS];
    metric_number ends[N_METRIC_ENDS];
    metric_number requests[METRICS_ENDPOINTS + 1][METRICS_STATUSES];
    struct metric_histogram {
        metric_number buckets[METRICS_BUCKETS + 1]; /* not cumulative */
        metric_number ns;                           /* their sum */
    } times[N_METRIC_TIMES];
};

static inline void metric_add(metric_number *n, uint64_t k)
{
    atomic_fetch_add_explicit(n, k, memory_order_relaxed);
}

static inline void metric_set(metric_number *n, uint64_t k)
{
    atomic_store_explicit(n, k, memory_order_relaxed);
}

void metrics_time(struct metrics *m, enum metric_time which, double ms);
/* An answer has ended. */
void metrics_end(struct metrics *m, enum qwick_finish f);
/* A request has been answered. endpoint: its number; METRICS_ENDPOINTS: none.
 */
void metrics_request(struct metrics *m, size_t endpoint, int status);

/* Append the text. path: returns the path of endpoint i, NULL if there is
 * none. */
extern const char metrics_type[]; /* its Content-Type */
void metrics_text(struct buf *out, const struct metrics *m, const char *model,
                  const char *(*path)(size_t i));

#endif
