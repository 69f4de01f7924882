#include "cli/bench/bench_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "cli/report/profile.h"
#include "qwick_tools.h"

/* On shared hosts the limits vary. If one changed by more than a tenth during a
 * run, time the run again. */
enum { MAX_ATTEMPTS = 4, BANDWIDTH_MS = 100, PEAK_MS = 40 };
/* The sequences of a batch begin this many tokens apart. */
enum { STRIDE = 31 };
#define MAX_DRIFT 0.1

/* ---- limits ------------------------------------------------------------- */

static struct bench_limit measure_limit(struct bench *b, enum bench_test test)
{
    struct bench_limit l = {0};
    if (test != BENCH_PREFILL)
        qwick_bench_bandwidth(b->eng, BANDWIDTH_MS, &l.bandwidth, NULL);
    if (test != BENCH_DECODE)
        l.peak = qwick_bench_peak(b->eng, PEAK_MS);
    return l;
}

static double relative_change(double a, double b)
{
    return a > 0 && b > 0 ? fabs(a - b) / fmax(a, b) : 0;
}

static double drift(const struct bench_run *r)
{
    return fmax(relative_change(r->before.bandwidth, r->after.bandwidth),
                relative_change(r->before.peak, r->after.peak));
}

/* Work of one run: bytes read, operations, tokens. */
struct work {
    double bytes, flops, tokens;
};

static struct work work_of(const struct bench *b, const struct bench_line *l,
                           const struct bench_run *r)
{
    double gen = (double)b->plan->gen, batch = (double)l->batch;
    if (l->test == BENCH_PREFILL)
        return (struct work){
            .bytes =
                r->weight_bytes + qwick_forward_kv_bytes(b->eng, 0, l->n),
            .flops = qwick_forward_flops(b->eng, 0, l->n),
            .tokens = (double)l->n};
    /* a step reads each weight that it needs once, and each cache up to its own
       position */
    size_t mean = l->n + b->plan->gen / 2;
    double flops = qwick_forward_flops(b->eng, mean, 1);
    double kv_bytes = qwick_forward_kv_bytes(b->eng, mean, 1);
    return (struct work){.bytes = r->weight_bytes + gen * batch * kv_bytes,
                         .flops = gen * batch * flops,
                         .tokens = gen * batch};
}

/* The least time in seconds that the limits allow for the work. */
static double least_seconds(const struct work *w, const struct bench_run *r,
                            bool *by_memory)
{
    double memory = r->bandwidth > 0 ? w->bytes / r->bandwidth : 0;
    double arithmetic = r->peak > 0 ? w->flops / r->peak : 0;
    *by_memory = memory >= arithmetic;
    return fmax(memory, arithmetic);
}

/* ---- one run ------------------------------------------------------------ */

static int time_prefill(struct bench *b, struct qwick_session *s, size_t n,
                        double *ms, struct qwick_err *e)
{
    if (qwick_session_rollback(s, 0, e))
        return -1;
    double t = clock_ms();
    if (qwick_session_sync(s, b->tokens, n, e))
        return -1;
    *ms = clock_ms() - t;
    return 0;
}

/* Evaluate one token in each sequence of a batch. Sequences take different
 * tokens, which choose different experts. */
static int step_batch(struct bench *b, struct qwick_session **s,
                      const struct bench_line *l, size_t j,
                      struct qwick_step *steps, struct qwick_err *e)
{
    size_t range = l->n + b->plan->gen;
    for (size_t i = 0; i < l->batch; i++)
        steps[i] = (struct qwick_step){
            s[i], b->tokens + (l->n + j + STRIDE * i) % range, 1,
            QWICK_ROWS_LAST};
    return qwick_engine_step(b->eng, steps, l->batch, QWICK_LOGITS, e);
}

/* Time decode steps. Each reads the clock, which takes less than a
 * microsecond. */
static int time_steps(struct bench *b, struct qwick_session **s,
                      const struct bench_line *l, struct bench_run *r,
                      struct qwick_err *e)
{
    struct qwick_step *steps = malloc(l->batch * sizeof(*steps));
    int rc = steps ? 0 : err_oom(e, l->batch * sizeof(*steps));
    for (size_t i = 0; i < l->batch && !rc; i++)
        rc = qwick_session_rollback(s[i], l->n, e);
    double t = clock_ms(), last = t;
    for (size_t j = 0; j < b->plan->gen && !rc; j++) {
        rc = l->test == BENCH_DECODE
                 ? qwick_session_decode(s[0], b->tokens[l->n + j], e)
                 : step_batch(b, s, l, j, steps, e);
        double now = clock_ms();
        r->step_ms[j] = now - last;
        last = now;
    }
    r->ms = last - t;
    free(steps);
    return rc;
}

static int time_run(struct bench *b, struct qwick_session **s,
                    const struct bench_line *l, struct bench_run *r,
                    struct qwick_err *e)
{
    return l->test == BENCH_PREFILL ? time_prefill(b, s[0], l->n, &r->ms, e)
                                    : time_steps(b, s, l, r, e);
}

/* ---- parts -------------------------------------------------------------- */

/* Time the sampler per token, with Qwen3's recommended values for thinking. */
static int time_sampling(struct bench *b, struct qwick_session *s, size_t n,
                         double *ms, struct qwick_err *e)
{
    struct qwick_result r;
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_sampling sampling = qwick_sampling_neutral();
    sampling.temperature = 0.6f;
    sampling.top_p = 0.95f;
    sampling.top_k = 20;
    sampling.seed = 1;
    o.sampling = &sampling;
    o.max_tokens = b->plan->gen + 1;
    o.ignore_eos = true;
    o.profile = true;
    o.split_thinking = false;
    int rc = qwick_generate(s, b->tokens, n, &o, &r, e);
    if (!rc) {
        sort_doubles(r.sample_ms, r.n_per_token);
        *ms = quantile(r.sample_ms, r.n_per_token, 0.5);
    }
    qwick_result_free(&r);
    return rc;
}

/* Measure the parts of a pass: one more run with timers, averaged over its
 * passes. */
static int measure_parts(struct bench *b, struct qwick_session **s,
                         struct bench_line *l, struct qwick_err *e)
{
    double passes = l->test == BENCH_PREFILL ? 1 : (double)b->plan->gen;
    qwick_session_profile(s[0], l->parts);
    int rc = time_run(b, s, l, &b->attempt, e);
    qwick_session_profile(s[0], NULL);
    for (size_t i = 0; i < QWICK_PROFILE_PARTS; i++)
        l->parts[i] /= passes;
    l->has_parts = true;
    if (rc || l->test != BENCH_DECODE)
        return rc;
    return time_sampling(b, s[0], l->n, &l->sampling_ms, e);
}

/* ---- lines -------------------------------------------------------------- */

/* The median of a member of the runs. b->sorted has them in order. */
static double median_of(struct bench *b, size_t offset)
{
    size_t n = b->plan->reps;
    for (size_t i = 0; i < n; i++)
        b->sorted[i] = *(const double *)((const char *)&b->runs[i] + offset);
    sort_doubles(b->sorted, n);
    return quantile(b->sorted, n, 0.5);
}

#define MEDIAN_OF(b, member) median_of(b, offsetof(struct bench_run, member))

/* Copy the times of the runs and of their steps. */
static int keep_times(const struct bench *b, struct bench_line *l,
                      struct qwick_err *e)
{
    size_t n = b->plan->reps, gen = b->plan->gen;
    l->run_ms = calloc(n, sizeof(*l->run_ms));
    l->n_runs = n;
    if (l->test != BENCH_PREFILL) {
        l->n_steps = n * gen;
        l->step_ms = calloc(l->n_steps, sizeof(*l->step_ms));
    }
    if (!l->run_ms || (l->n_steps && !l->step_ms))
        return err_oom(e, n * gen * sizeof(*l->step_ms));
    for (size_t i = 0; i < n; i++) {
        l->run_ms[i] = b->runs[i].ms;
        if (l->step_ms)
            memcpy(l->step_ms + i * gen, b->runs[i].step_ms,
                   gen * sizeof(*l->step_ms));
    }
    return 0;
}

void bench_line_free(struct bench_line *l)
{
    free(l->run_ms);
    free(l->step_ms);
    l->run_ms = l->step_ms = NULL;
}

static void summarise(struct bench *b, struct bench_line *l)
{
    size_t n = b->plan->reps;
    struct work w = {0}; /* work of the last run */
    for (size_t i = 0; i < n; i++) {
        struct bench_run *r = &b->runs[i];
        w = work_of(b, l, r);
        r->bandwidth = 0.5 * (r->before.bandwidth + r->after.bandwidth);
        r->peak = 0.5 * (r->before.peak + r->after.peak);
        r->share = least_seconds(&w, r, &l->by_memory) / (r->ms / 1e3);
    }
    double ms = MEDIAN_OF(b, ms);
    l->tok_s = 1e3 * w.tokens / ms;
    l->spread = (b->sorted[n - 1] - b->sorted[0]) / ms;
    l->share = MEDIAN_OF(b, share);
    l->share_min = b->sorted[0];
    l->share_max = b->sorted[n - 1];
    l->bandwidth = MEDIAN_OF(b, bandwidth);
    l->peak = MEDIAN_OF(b, peak);
    l->limit = l->by_memory ? l->bandwidth : l->peak;
    l->bytes = w.bytes;
    l->flops = w.flops;
    l->rate = 1e3 * (l->by_memory ? w.bytes : w.flops) / ms;
}

/* Time a run, and measure the limits before and after it. Of several attempts
 * keep the one with the smallest drift. */
static int measure_run(struct bench *b, struct qwick_session **s,
                       const struct bench_line *l, struct bench_run *best,
                       struct qwick_err *e)
{
    struct bench_limit before = measure_limit(b, l->test);
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        struct bench_run *r = &b->attempt;
        double read = qwick_engine_weight_bytes(b->eng);
        r->before = before;
        if (time_run(b, s, l, r, e))
            return -1;
        r->weight_bytes = qwick_engine_weight_bytes(b->eng) - read;
        r->after = before = measure_limit(b, l->test);
        if (attempt == 0 || drift(r) < drift(best)) {
            struct bench_run swap = *best; /* each keeps one array of steps */
            *best = *r;
            *r = swap;
        }
        if (drift(best) <= MAX_DRIFT)
            break;
    }
    return 0;
}

static void report_run(const struct bench *b, const struct bench_line *l)
{
    if (b->on_run)
        b->on_run(b->on_run_ctx, l);
}

static int measure_line(struct bench *b, struct qwick_session **s,
                        struct bench_line *l, struct qwick_err *e)
{
    for (int64_t i = 0; i < b->plan->warmup; i++) {
        report_run(b, l);
        if (time_run(b, s, l, &b->attempt, e))
            return -1;
    }
    for (size_t i = 0; i < b->plan->reps; i++) {
        report_run(b, l);
        if (measure_run(b, s, l, &b->runs[i], e))
            return -1;
    }
    summarise(b, l);
    if (keep_times(b, l, e))
        return -1;
    return b->plan->parts ? measure_parts(b, s, l, e) : 0;
}

int bench_open(struct bench *b, size_t reps, size_t gen)
{
    bool bad;
    b->runs = calloc(reps, sizeof(*b->runs));
    b->sorted = calloc(reps, sizeof(*b->sorted));
    b->attempt.step_ms = calloc(gen, sizeof(double));
    bad = !b->runs || !b->sorted || !b->attempt.step_ms;
    for (size_t i = 0; i < reps && !bad; i++)
        bad = !(b->runs[i].step_ms = calloc(gen, sizeof(double)));
    return bad ? -1 : 0;
}

void bench_close(struct bench *b, size_t reps)
{
    for (size_t i = 0; i < reps && b->runs; i++)
        free(b->runs[i].step_ms);
    free(b->attempt.step_ms);
    free(b->runs);
    free(b->sorted);
    b->runs = NULL;
    b->sorted = b->attempt.step_ms = NULL;
}

const char *bench_test_name(enum bench_test t)
{
    return t == BENCH_PREFILL  ? "prefill"
           : t == BENCH_DECODE ? "decode"
                               : "batch";
}

void bench_line_name(const struct bench_line *l, char out[BENCH_NAME])
{
    if (l->test == BENCH_PREFILL)
        snprintf(out, BENCH_NAME, "prefill of %zu", l->n);
    else if (l->test == BENCH_DECODE)
        snprintf(out, BENCH_NAME, "decode at depth %zu", l->n);
    else
        snprintf(out, BENCH_NAME, "batch of %zu at depth %zu", l->batch, l->n);
}

int bench_measure(struct bench *b, enum bench_test test, size_t n, size_t batch,
                  struct bench_line *line, struct qwick_err *e)
{
    struct qwick_session **s = calloc(batch, sizeof(*s));
    int rc = -1;
    *line = (struct bench_line){.test = test,
                                .n = n,
                                .batch = batch,
                                .threads = qwick_engine_info(b->eng)->threads,
                                .sampling_ms = NAN};
    if (!s)
        return err_oom(e, batch * sizeof(void *));
    if (qwick_session_create(&s[0], b->eng, 0, e))
        goto done;
    if (test != BENCH_PREFILL && qwick_session_sync(s[0], b->tokens, n, e))
        goto done;
    for (size_t i = 1; i < batch; i++) {
        /* each session needs its own KV cache in memory, as in a real batch */
        if (qwick_session_create(&s[i], b->eng, 0, e) ||
            qwick_session_sync(s[i], b->tokens, n, e))
            goto done;
    }
    rc = measure_line(b, s, line, e);
done:
    for (size_t i = 0; i < batch; i++)
        qwick_session_free(s[i]);
    free(s);
    return rc;
}
