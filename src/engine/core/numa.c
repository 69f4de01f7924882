#include "engine/core/numa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/nodes.h"
#include "base/par.h"
#include "engine/core/engine.h"

/* Tell on which nodes the threads are: "8 on node 0, 8 on node 1". */
static void note_threads(const struct qwick_engine *eng, const size_t *threads)
{
    char list[256] = "";
    for (size_t i = 0; i < eng->nodes.n; i++) {
        size_t at = strlen(list);
        (void)snprintf(list + at, sizeof list - at, "%s%zu on node %d",
                       at ? ", " : "", threads[i], eng->nodes.nodes[i].id);
    }
    engine_note(eng, "numa: %d threads on %zu memory nodes: %s",
                eng->model.n_threads, eng->nodes.n, list);
}

static int bind_threads(struct qwick_engine *eng, bool preload,
                        struct qwick_err *e)
{
    size_t n = eng->nodes.n, cpus = 0, *threads = calloc(n, sizeof *threads);
    if (!threads)
        return err_oom(e, n * sizeof *threads);
    for (size_t i = 0; i < n; i++)
        cpus += eng->nodes.nodes[i].n_cpus;
    if (!nodes_plan(threads, &eng->nodes, eng->model.n_threads))
        engine_warn(eng, "numa: %d threads on %zu CPUs are not bound",
                    eng->model.n_threads, cpus);
    else if (!par_bind(eng->pool, &eng->nodes, threads))
        engine_warn(eng, "numa: some threads cannot be bound");
    else
        note_threads(eng, threads);
    if (!preload)
        engine_note(eng, "numa: without preload, weights are on the nodes "
                         "where the page cache has them");
    free(threads);
    return 0;
}

int numa_open(struct qwick_engine *eng, const struct qwick_engine_options *o,
              struct qwick_err *e)
{
    if (o->numa != QWICK_NUMA_OFF && o->numa != QWICK_NUMA_INTERLEAVE &&
        o->numa != QWICK_NUMA_BIND)
        return err_set(e, QWICK_ERR_USAGE, "numa: %d: is no mode",
                       (int)o->numa);
    if (o->numa == QWICK_NUMA_OFF || o->tokenizer_only)
        return 0;
    if (o->numa == QWICK_NUMA_INTERLEAVE && !o->preload) {
        engine_warn(eng, "numa: interleave has no effect without preload");
        return 0;
    }
    if (os_nodes_read(&eng->nodes, NULL, NULL, 0))
        return err_oom(e, sizeof eng->nodes);
    if (eng->nodes.n == 1) {
        engine_warn(eng, "numa: has no effect, all CPUs that can be used are "
                         "on one memory node");
        return 0;
    }
    if (o->numa == QWICK_NUMA_BIND)
        return bind_threads(eng, o->preload, e);
    eng->spread = true;
    return 0;
}

int numa_preload(struct qwick_engine *eng, struct qwick_err *e)
{
    int why;
    if (model_preload(&eng->model, eng->spread ? &eng->nodes : NULL, &why, e))
        return -1;
    if (why)
        engine_warn(eng, "numa: weights are not spread over the memory nodes: "
                         "%s",
                    strerror(why));
    else if (eng->spread)
        engine_note(eng, "numa: weights are spread over %zu memory nodes",
                    eng->nodes.n);
    return 0;
}
