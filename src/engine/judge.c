#include "engine/judge.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/os.h"

/* Logits of a pass: enough rows to be worth a pass over the weights. */
enum { ROWS_BYTES = 64 << 20 };

/* Sessions are used again, unless their cache is worth giving back. */
enum { SPARE_BYTES = 16 << 20 };

int judge_limit(const struct qwick_engine *eng,
                const struct qwick_judge_options *o, size_t *n_ctx,
                struct qwick_err *e)
{
    size_t most = eng->model.config.n_ctx_max;
    if (!eng->weights)
        return err_set(e, QWICK_ERR_USAGE,
                       "%s: was opened for its tokenizer only",
                       checkpoint_name(eng->ck));
    if (o->n_ctx > most)
        return err_set(e, QWICK_ERR_CONTEXT,
                       "%s: context of %zu tokens asked for, the model's "
                       "maximum is %zu (max_position_embeddings)",
                       checkpoint_name(eng->ck), o->n_ctx, most);
    *n_ctx = o->n_ctx ? o->n_ctx : most;
    return 0;
}

struct judge_run *judge_queue(struct judge *j, struct qwick_err *e)
{
    struct judge_run *r = calloc(1, sizeof *r);
    if (!r) {
        err_oom(e, sizeof *r);
        return NULL;
    }
    r->next = j->queue;
    j->queue = r;
    return r;
}

int judge_log_sum(const struct judge *j, const float *logits, double *log_sum,
                  struct qwick_err *e)
{
    const struct kernels *k = j->eng->model.k;
    size_t n = j->eng->model.config.vocab_size;
    float max = k->max(logits, n);
    *log_sum = (double)max + log(k->exp_sum(NULL, logits, n, max, 1.0f));
    if (!isfinite(*log_sum))
        return err_set(e, QWICK_ERR_RUNTIME,
                       "logits: not finite: the weights hold NaN, infinities "
                       "or values too large");
    return 0;
}

double judge_logprob(const float *logits, double log_sum, int32_t id)
{
    /* the sum is rounded: the likeliest may come out a hair above */
    return fmin((double)logits[id] - log_sum, 0);
}

/* ---- sessions and runs -------------------------------------------------- */

static int give_session(struct judge *j, struct judge_run *r,
                        struct qwick_err *e)
{
    if (r->session)
        return 0;
    if (j->n_spare) {
        r->session = j->spare[--j->n_spare];
        return qwick_session_rollback(r->session, 0, e);
    }
    if (qwick_session_create(&r->session, j->eng, j->o->n_ctx, e))
        return -1;
    qwick_session_interrupt(r->session, j->o->interrupt);
    return 0;
}

static void free_run(struct judge *j, struct judge_run *r)
{
    if (r->session && j->n_spare < JUDGE_RUNS &&
        qwick_session_kv_bytes(r->session) <= SPARE_BYTES)
        j->spare[j->n_spare++] = r->session;
    else
        qwick_session_free(r->session);
    free(r->own);
    free(r);
}

/* Take up runs as long as there are places, and memory for their keys and
 * values; one always. */
static int fill(struct judge *j, bool *more, struct qwick_err *e)
{
    while (j->n_runs < JUDGE_RUNS) {
        if (!j->queue && *more && j->work->next(j, more, e))
            return -1;
        struct judge_run *r = j->queue;
        if (!r)
            return 0;
        if (j->n_runs && (j->kv_tokens >= j->kv_limit ||
                          r->kv_tokens > j->kv_limit - j->kv_tokens))
            return 0;
        if (give_session(j, r, e))
            return -1;
        j->queue = r->next;
        j->runs[j->n_runs++] = r;
        j->kv_tokens += r->kv_tokens;
    }
    return 0;
}

/* ---- passes ------------------------------------------------------------- */

/* The part of each run that goes into this pass: chunk tokens in all, and so
 * many rows. A step wants no rows or all, so a run whose first row is ahead
 * stops there. */
static size_t plan(struct judge *j)
{
    size_t room = j->eng->model.chunk, n_steps = 0;
    size_t rows =
        ROWS_BYTES / (j->eng->model.config.vocab_size * sizeof(float)) + 1;
    for (size_t i = 0; i < j->n_runs && room; i++) {
        struct judge_run *r = j->runs[i];
        bool want = r->at >= r->first;
        size_t n = want ? r->n - r->at : r->first - r->at;
        if (n > room)
            n = room;
        if (want && n > rows)
            n = rows;
        if (n == 0)
            continue;
        room -= n;
        rows -= want ? n : 0;
        j->steps[n_steps] = (struct qwick_step){.session = r->session,
                                                .tokens = r->tokens + r->at,
                                                .n = n,
                                                .want = want ? QWICK_WANT_ALL
                                                             : QWICK_WANT_NONE};
        j->who[n_steps++] = r;
    }
    return n_steps;
}

static int read_rows(struct judge *j, struct judge_run *r, struct qwick_err *e)
{
    size_t n, vocab_size = j->eng->model.config.vocab_size;
    const float *rows = qwick_session_rows(r->session, &n);
    for (size_t i = 0; i < n; i++)
        if (j->work->row(j, r, r->at + i, rows + i * vocab_size, e))
            return -1;
    return 0;
}

static int pass(struct judge *j, struct qwick_err *e)
{
    size_t n = plan(j), left = 0;
    if (qwick_engine_step(j->eng, j->steps, n, QWICK_LOGITS, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (j->steps[i].want == QWICK_WANT_ALL && read_rows(j, j->who[i], e))
            return -1;
        j->who[i]->at += j->steps[i].n;
    }
    if (j->o->progress)
        j->o->progress(j->o->progress_ctx, j->n_done, j->n_total);
    /* in place, keeping the order; on failure all are still in the list */
    for (size_t i = 0; i < j->n_runs; i++) {
        struct judge_run *r = j->runs[i];
        bool again = false;
        if (r->at < r->n)
            continue;
        if (j->work->done(j, r, &again, e))
            return -1;
        if (again)
            continue;
        j->kv_tokens -= r->kv_tokens;
        free_run(j, r);
        j->runs[i] = NULL;
    }
    for (size_t i = 0; i < j->n_runs; i++)
        if (j->runs[i])
            j->runs[left++] = j->runs[i];
    j->n_runs = left;
    return 0;
}

static void release(struct judge *j)
{
    for (size_t i = 0; i < j->n_runs; i++)
        if (j->runs[i])
            free_run(j, j->runs[i]);
    while (j->queue) {
        struct judge_run *r = j->queue;
        j->queue = r->next;
        free_run(j, r);
    }
    while (j->n_spare)
        qwick_session_free(j->spare[--j->n_spare]);
}

int judge_run_all(struct judge *j, struct qwick_err *e)
{
    size_t kv_bytes = j->eng->info.kv_token_bytes;
    size_t avail = os_available_memory();
    bool more = true;
    int rc = -1;
    /* half of what there is; whether one sequence fits alone is checked where
     * its pages are reserved */
    j->kv_limit = avail && kv_bytes ? avail / 2 / kv_bytes : SIZE_MAX;
    for (;;) {
        if (fill(j, &more, e))
            goto done;
        if (j->n_runs == 0)
            break;
        if (pass(j, e))
            goto done;
    }
    rc = 0;
done:
    release(j);
    return rc;
}
