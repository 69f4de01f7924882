/* An engine on a machine with several memory nodes. */
#ifndef ENGINE_NUMA_H
#define ENGINE_NUMA_H

#include "base/err.h"
#include "qwick.h"

/* Do what the options say about memory nodes: read the nodes and bind the
 * threads of the pool. Warns if that has no effect. Call it when the pool
 * exists. Returns 0, or -1 with *e set. */
int numa_open(struct qwick_engine *eng, const struct qwick_engine_options *o,
              struct qwick_err *e);

/* Copy the weights (model_preload), with pages from the right nodes. */
int numa_preload(struct qwick_engine *eng, struct qwick_err *e);

#endif
