/* `bench`: timing prefill, decode and batches beside this machine's limits. */
#ifndef CLI_BENCH_MEASURE_H
#define CLI_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "qwick.h"

enum bench_test { BENCH_PREFILL, BENCH_DECODE, BENCH_BATCH };

/* The two limits of the machine. */
struct bench_limit {
    double bandwidth; /* bytes a second; 0: not measured */
    double peak;      /* operations a second; 0: not measured */
};

/* One timed run. */
struct bench_run {
    double ms;
    struct bench_limit before, after; /* measured around the run */
    double weight_bytes;              /* bytes of weights that it read */
    double share;                     /* speed as a share of the limit, 0..1 */
};

/* One measured line. */
struct bench_line {
    enum bench_test test;
    size_t n;     /* tokens of the prompt, or depth */
    size_t batch; /* sequences */
    int threads;
    bool by_memory;     /* memory bandwidth is the limit, not arithmetic */
    double tok_s;       /* median */
    double spread;      /* (largest - smallest) / median */
    double rate, limit; /* medians, bytes or operations per second */
    double share, share_min, share_max; /* median, smallest, largest */
    double parts[QWICK_PARTS];          /* ms per pass */
    double sampling_ms;                 /* per token; NAN: not measured */
    bool has_parts;
};

struct bench_plan {
    size_t gen;     /* decode steps of a run */
    size_t reps;    /* timed runs */
    int64_t warmup; /* untimed runs before them */
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

/* Measure one line: prefill of n tokens, or decode steps at depth n in each of
 * `batch` sequences. Returns 0, or -1 with *e set. */
int bench_measure(struct bench *b, enum bench_test test, size_t n, size_t batch,
                  struct bench_line *line, struct qwick_err *e);

/* ---- bench_print.c ---- */

/* Each function below appends to o and returns 0, or -1 when memory ran out.
 * md: write Markdown. */

/* Write the line about the model and the head of the table. */
int bench_put_head(struct buf *o, const struct qwick_info *i, bool md);
/* Write a row of the table. */
int bench_put_line(struct buf *o, const struct bench_line *l, bool md);
/* Write a table of the parts of a line's time. */
int bench_put_parts(struct buf *o, const struct bench_line *l, bool md);
/* Write everything as one JSON object. */
int bench_put_json(struct buf *o, const struct qwick_info *i,
                   const struct bench_plan *plan,
                   const struct bench_line *lines, size_t n);
const char *bench_test_name(enum bench_test t);

#endif
