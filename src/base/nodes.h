/* The plan that spreads threads over memory nodes (NUMA). */
#ifndef BASE_NODES_H
#define BASE_NODES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/os.h"

/* Set threads[0..nodes->n) to the numbers of threads that the nodes get, of
 * n_threads in all. The numbers are equal as far as the nodes have free cores,
 * and after that as far as they have free CPUs. Returns false, with all numbers
 * 0, if there are more threads than CPUs: such threads must be able to move. */
bool nodes_plan(size_t *threads, const struct os_nodes *nodes, int n_threads);

#endif
