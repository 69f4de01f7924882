/* `bench --tune`: all variants of each choice between kernels. */
#ifndef CLI_BENCH_TUNE_H
#define CLI_BENCH_TUNE_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/report/machine.h"
#include "qwick.h"

/* Measure and print a table with a line for each variant, and a row for the
 * table of cores (kernel/cores.h); with json, one object. A choice
 * of the row differs from the choice in use only if a variant was clearly
 * faster. Returns an exit status. */
int bench_tune(struct qwick_engine *eng, size_t reps, bool json,
               const struct machine *machine);

#endif
