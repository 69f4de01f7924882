/* Measurements of `bench`: it times prefill, decode and batches, and compares
 * them with this machine's limits. */
#ifndef CLI_BENCH_MEASURE_H
#define CLI_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "qwick_tools.h"

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
    double bandwidth, peak;           /* their means */
    double weight_bytes;              /* bytes of weights that it read */
    double *step_ms;                  /* [gen] of decode and batch; it keeps
                                         its memory from run to run */
    double share;                     /* speed as a fraction of the limit,
                                         0..1 */
};

/* A row of a file of --compare. */
struct bench_was {
    double tok_s, share; /* as in struct bench_line */
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
    double parts[QWICK_PROFILE_PARTS];          /* ms per pass */
    double sampling_ms;                 /* per token; NAN: not measured */
    bool has_parts;
    double bytes, flops;    /* work of one run */
    double bandwidth, peak; /* medians of the limits; 0: not measured */
    double *run_ms;         /* [n_runs] in the order of the runs; owned */
    size_t n_runs;
    double *step_ms; /* [n_steps] of all runs, in order; NULL: prefill. Owned */
    size_t n_steps;
    struct bench_was was; /* with --compare */
};
void bench_line_free(struct bench_line *l);

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
    struct bench_run attempt;
    double *sorted; /* [reps] */
    /* Called before each run of a line; may be NULL. */
    void (*on_run)(void *ctx, const struct bench_line *line);
    void *on_run_ctx;
};

/* Measure one line. Prefill: a prompt of n tokens. Decode and batch: decode
 * steps at depth n (tokens in the context) in each of `batch` sequences.
 * Returns 0, or -1 with *e set. */
int bench_measure(struct bench *b, enum bench_test test, size_t n, size_t batch,
                  struct bench_line *line, struct qwick_err *e);

/* Allocate and free what bench_measure needs besides the engine and the
 * tokens, for `reps` runs of at most `gen` steps. bench_open returns 0, or -1
 * when out of memory; call bench_close in both cases. */
int bench_open(struct bench *b, size_t reps, size_t gen);
void bench_close(struct bench *b, size_t reps);

const char *bench_test_name(enum bench_test t);

/* Write the name of a line to out: "decode at depth 16", "batch of 8 at depth
 * 16" or "prefill of 512". */
enum { BENCH_NAME = 96 };
void bench_line_name(const struct bench_line *l, char out[BENCH_NAME]);

#endif
