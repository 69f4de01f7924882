/* `bench`: timing prefill, decode and batches beside this machine's limits. */
#ifndef CLI_BENCH_MEASURE_H
#define CLI_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "qwick.h"

enum bench_test { BENCH_PREFILL, BENCH_DECODE, BENCH_BATCH };

/* What a step can be limited by. */
struct bench_limit {
    double bandwidth; /* bytes a second; 0: not measured */
    double peak;      /* operations a second; 0: not measured */
};

/* One timed run. */
struct bench_run {
    double ms;
    struct bench_limit before, after;
    double share; /* of the slower limit, 1 is all of it */
};

/* One measured line. */
struct bench_line {
    enum bench_test test;
    size_t n;     /* tokens of the prompt, or depth */
    size_t batch; /* sequences */
    int threads;
    bool by_memory;     /* the slower limit is the memory's */
    double tok_s;       /* median */
    double spread;      /* (largest - smallest) / median */
    double rate, limit; /* medians: bytes or operations a second */
    double share, share_min, share_max; /* median, least and largest */
    double parts[QWICK_PARTS];          /* ms a pass */
    double sampling_ms;                 /* a token; NAN: not asked for */
    bool has_parts;
};

struct bench_plan {
    size_t gen;     /* decode steps of a run */
    size_t reps;    /* timed runs */
    int64_t warmup; /* runs before them */
    bool parts;
};

struct bench {
    struct qwick_engine *eng;
    const struct bench_plan *plan;
    int32_t *tokens;        /* valid ids, as many as any measurement needs */
    struct bench_run *runs; /* [reps] */
    double *sorted;         /* [reps] */
    /* Called before each run, from 1; NULL: nothing is. */
    void (*on_run)(const struct bench_line *line, size_t i, size_t n);
};

/* Measure one line: a prompt of n tokens, or decode steps behind n tokens of
 * context in each of `batch` sequences. */
int bench_measure(struct bench *b, enum bench_test test, size_t n, size_t batch,
                  struct bench_line *line, struct qwick_err *e);

/* ---- bench_print.c ---- */

/* The model's line; the head of a table. */
int bench_put_head(struct buf *o, const struct qwick_info *i, bool md);
int bench_put_line(struct buf *o, const struct bench_line *l, bool md);
/* Where a line's time went. */
int bench_put_parts(struct buf *o, const struct bench_line *l, bool md);
/* All as one JSON object. */
int bench_put_json(struct buf *o, const struct qwick_info *i,
                   const struct bench_plan *plan,
                   const struct bench_line *lines, size_t n);
const char *bench_test_name(enum bench_test t);

#endif
