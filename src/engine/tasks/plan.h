/* Times of a plan; see qwick_plan_make. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include "engine/core/engine.h"
#include "qwick_tools.h"

/* Measure the machine, and the model if that is quick enough, and set the times
 * of p, whose other members are set. Takes about a second. Returns 0, or -1
 * with QWICK_ERR_INTERRUPTED. Without memory for the measurement the times stay
 * 0. */
int plan_probe(struct qwick_plan *p, struct qwick_engine *eng,
               const volatile int *interrupt, struct qwick_err *e);

#endif
