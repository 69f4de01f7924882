/* Measurements of `bench`: it times prefill, decode and batches, and compares
 * them with this machine's limits. */
#ifndef CLI_BENCH_MEASURE_H
#define CLI_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "qwick.h"

enum bench_test { BENCH_PREFILL, BENCH_DECODE, BENCH_BATCH };

/* The two limits of a machine. */
struct bench_limit {
    double bandwidth; /* bytes per second; 0: not measured */
    double peak;      /* operations per second; 0: not measured */
};

/* One timed run. */
struct bench_run {
    double ms;
    struct bench_limit before, after; /* measured before and after the run */
    double weight_bytes;              /* bytes of weights that it read */
    double share;                     /* speed as a fraction of the limit,
                                         0..1 */
};

/* The measurements of one line of the table. */
struct bench_line {
    enum bench_test test;
    size_t n;     /* prefill: tokens of the prompt; otherwise the depth */
    size_t batch; /* sequences */
    int threads;
    bool by_memory;     /* memory bandwidth is the limit, not arithmetic */
    double tok_s;       /* median */
    double spread;      /* (largest - smallest) / median */
    double rate, limit; /* medians, in bytes or operations per second */
    double share, share_min, share_max; /* median, smallest and largest share */
    double parts[QWICK_PARTS];          /* ms per pass */
    double sampling_ms;                 /* per token; NAN: not measured */
    bool has_parts;
};

struct bench_plan {
    size_t gen;     /* decode steps in a run */
    size_t reps;    /* timed runs */
    int64_t warmup; /* untimed runs before the timed ones */
    bool parts;
};

struct bench {
    struct qwick_engine *eng;
    const struct bench_plan *plan;
    int32_t *tokens;        /* valid ids, enough for every measurement */
    struct bench_run *runs; /* [reps] */
    double *sorted;         /* [reps] */
    /* Called before run i = 1..n; may be NULL. */
    void (*on_run)(const struct bench_line *line, size_t i, size_t n);
};

/* Measure one line. Prefill: a prompt of n tokens. Decode and batch: decode
 * steps at depth n (tokens in the context) in each of `batch` sequences.
 * Returns 0, or -1 with *e set. */
int bench_measure(struct bench *b, enum bench_test test, size_t n, size_t batch,
                  struct bench_line *line, struct qwick_err *e);

/* ---- bench_print.c ---- */

/* Each function below appends to o and returns 0, or -1 when out of memory. md:
 * write Markdown. */

/* Write the line about the model and the head of the table. */
int bench_put_head(struct buf *o, const struct qwick_info *i, bool md);
/* Write a row of the table. */
int bench_put_line(struct buf *o, const struct bench_line *l, bool md);
/* Write a table of the parts of a pass and their times. */
int bench_put_parts(struct buf *o, const struct bench_line *l, bool md);
/* Write all lines as one JSON object. */
int bench_put_json(struct buf *o, const struct qwick_info *i,
                   const struct bench_plan *plan,
                   const struct bench_line *lines, size_t n);
const char *bench_test_name(enum bench_test t);

#endif
