/* Plan: times, from the machine's limits and from short passes. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/flag.h"
#include "engine/tasks/plan.h"
#include "qwick_tools.h"

/* Milliseconds of the parts, about a second together. */
static const double BANDWIDTH_MS = 150, PEAK_MS = 100, PREFILL_MS = 400,
                    DECODE_MS = 300;

enum { MAX_STEPS = 64, MIN_STEPS = 4 };

/* Positions in the middle of the answer. */
static size_t middle(const struct qwick_plan *p)
{
    return p->n_prompt + p->n_answer / 2;
}

/* Bytes that the token after pos others reads. */
static double token_bytes(const struct qwick_engine *eng, size_t pos)
{
    return (double)eng->info.decode_bytes + qwick_forward_kv_bytes(eng, pos, 1);
}

/* The shortest times that the machine's limits allow. A prefill computes, and
 * reads the weights once for each chunk. */
static void from_limits(struct qwick_plan *p, const struct qwick_engine *eng)
{
    bool encoder = eng->model.config.bidirectional;
    size_t chunk = encoder ? p->n_prompt : eng->model.chunk;
    double chunks = (double)((p->n_prompt + chunk - 1) / chunk);
    double compute = qwick_forward_flops(eng, 0, p->n_prompt) / p->peak;
    /* many tokens together use all experts */
    size_t bytes = eng->info.n_experts && p->n_prompt > 1
                       ? eng->info.weight_bytes
                       : eng->info.decode_bytes;
    double read = chunks * (double)bytes / p->bandwidth;
    p->first_token_s = compute > read ? compute : read;
    if (!encoder)
        p->token_s = token_bytes(eng, middle(p)) / p->bandwidth;
    p->source = QWICK_PLAN_ROOFLINE;
}

/* Tokens of the longest prefill that the limits allow in half of its time. A
 * shorter one is less efficient than that of the plan. */
static size_t probe_tokens(const struct qwick_plan *p,
                           const struct qwick_engine *eng)
{
    double flops = p->peak * PREFILL_MS / 2e3;
    size_t n = p->n_prompt < eng->model.chunk ? p->n_prompt : eng->model.chunk;
    while (n > 1 && qwick_forward_flops(eng, 0, n) > flops)
        n /= 2;
    return n;
}

/* Passes are worth a try when the weights are in memory, and some fit the
 * time. */
static bool can_run(const struct qwick_plan *p)
{
    return p->resident_known && p->disk_bytes == 0 &&
           (double)p->resident_bytes >= 0.9 * (double)p->weight_bytes &&
           p->token_s * MIN_STEPS < DECODE_MS / 1e3;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Decode tokens after the prompt; *ms is the median time of one. */
static int time_steps(struct qwick_session *s, const volatile int *interrupt,
                      double *ms, struct qwick_err *e)
{
    double times[MAX_STEPS] = {0}, start = clock_ms(), at = start;
    size_t n = 0, left = s->limit - s->kv.n;
    *ms = 0;
    while (n < MAX_STEPS && n < left && at - start < DECODE_MS) {
        if (flag_is_set(interrupt))
            return err_set(e, QWICK_ERR_INTERRUPTED, "interrupted");
        if (qwick_session_decode(s, (int32_t)(n % 2), e))
            return -1;
        double now = clock_ms();
        times[n++] = now - at;
        at = now;
    }
    qsort(times, n, sizeof *times, by_value);
    *ms = n ? times[n / 2] : 0;
    return 0;
}

/* Time a prefill of n tokens from the beginning. */
static int time_prefill(struct qwick_session *s, const int32_t *ids, size_t n,
                        double *ms, struct qwick_err *e)
{
    double start = clock_ms();
    s->deadline_ms = start + PREFILL_MS;
    if (qwick_session_rollback(s, 0, e) || qwick_session_sync(s, ids, n, e))
        return -1;
    *ms = clock_ms() - start;
    s->deadline_ms = 0;
    return 0;
}

/* Run a pass of one token, some steps and a prefill, and scale their times to
 * those of the plan: the prefill by operations, a step by the bytes that it
 * reads. The first pass also maps the weights, which the plan's command does
 * once. */
static int time_passes(struct qwick_plan *p, const struct qwick_engine *eng,
                       struct qwick_session *s, const int32_t *ids, size_t n,
                       struct qwick_err *e)
{
    double first_ms, step_ms, prefill_ms;
    if (time_prefill(s, ids, 1, &first_ms, e))
        return -1;
    size_t pos = s->kv.n;
    if (time_steps(s, s->interrupt, &step_ms, e) ||
        time_prefill(s, ids, n, &prefill_ms, e))
        return -1;
    if (step_ms <= 0)
        return 0;
    double mapping = first_ms > step_ms ? first_ms - step_ms : 0;
    p->first_token_s = (mapping + prefill_ms *
                                      qwick_forward_flops(eng, 0, p->n_prompt) /
                                      qwick_forward_flops(eng, 0, n)) /
                       1e3;
    p->token_s = step_ms / 1e3 * token_bytes(eng, middle(p)) /
                 token_bytes(eng, pos);
    p->source = QWICK_PLAN_PASSES;
    return 0;
}

/* Evaluate n tokens with an encoder, after a pass of one that maps the weights,
 * and scale the time of both to that of the plan's text. */
static int time_text(struct qwick_plan *p, struct qwick_engine *eng,
                     struct qwick_session *s, const int32_t *ids, size_t n,
                     struct qwick_err *e)
{
    double at = clock_ms(), ms[2];
    const size_t sizes[2] = {1, n};
    for (int i = 0; i < 2; i++) {
        const struct qwick_step step = {s, ids, sizes[i], QWICK_ROWS_LAST};
        session_truncate(s, 0);
        if (qwick_engine_step(eng, &step, 1, QWICK_HIDDEN, e))
            return -1;
        ms[i] = clock_ms() - at;
        at += ms[i];
    }
    p->first_token_s = (ms[0] + ms[1] *
                                    qwick_forward_flops(eng, 0, p->n_prompt) /
                                    qwick_forward_flops(eng, 0, n)) /
                       1e3;
    p->source = QWICK_PLAN_PASSES;
    return 0;
}

static int run_passes(struct qwick_plan *p, struct qwick_engine *eng,
                      const volatile int *interrupt, struct qwick_err *e)
{
    size_t n = probe_tokens(p, eng), vocab_size = eng->info.vocab_size;
    struct qwick_session *s = NULL;
    int32_t *ids = malloc(n * sizeof *ids);
    if (!ids)
        return err_oom(e, n * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i + 1) * 7919 % vocab_size);
    int rc = session_create(&s, eng, p->n_ctx, e);
    if (!rc) {
        qwick_session_interrupt(s, interrupt);
        rc = eng->model.config.bidirectional
                 ? time_text(p, eng, s, ids, n, e)
                 : time_passes(p, eng, s, ids, n, e);
    }
    qwick_session_free(s);
    free(ids);
    return rc ? -1 : 0;
}

int plan_probe(struct qwick_plan *p, struct qwick_engine *eng,
               const volatile int *interrupt, struct qwick_err *e)
{
    struct qwick_err why;
    if (engine_memory_rate(eng, BANDWIDTH_MS, &p->bandwidth, &why))
        return 0;
    p->peak = qwick_bench_peak(eng, PEAK_MS);
    from_limits(p, eng);
    /* a deadline, or too little memory, leaves the times of the limits */
    if (can_run(p))
        (void)run_passes(p, eng, interrupt, &why);
    return flag_is_set(interrupt)
               ? err_set(e, QWICK_ERR_INTERRUPTED, "interrupted")
               : 0;
}
