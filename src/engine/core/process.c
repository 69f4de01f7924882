/* The engine's part in what a program does to its own process. */
#include "base/par.h"
#include "engine/core/engine.h"
#include "model/model.h"

void qwick_engine_load_blas(const struct qwick_engine *eng, size_t n_tokens)
{
    const struct model *m = &eng->model;
    if (eng->weights)
        model_load_blas(m, n_tokens < m->chunk ? n_tokens : m->chunk);
}

struct call {
    void (*fn)(void *ctx);
    void *ctx;
};

static void call_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct call *c = ctx;
    (void)team;
    (void)tid;
    (void)n_threads;
    c->fn(c->ctx);
}

void qwick_engine_each_thread(const struct qwick_engine *eng,
                              void (*fn)(void *ctx), void *ctx)
{
    struct call c = {fn, ctx};
    par_run_rarely(eng->pool, call_body, &c);
}
