#include "base/nodes.h"

#include <string.h>

/* Return the node with the fewest threads of those with room, the first one of
 * equals; nodes->n: none has room. */
static size_t least_loaded(const size_t *threads, const struct os_nodes *nodes,
                           bool cores)
{
    size_t best = nodes->n;
    for (size_t i = 0; i < nodes->n; i++) {
        const struct os_node *node = &nodes->nodes[i];
        if (threads[i] < (cores ? node->n_cores : node->n_cpus) &&
            (best == nodes->n || threads[i] < threads[best]))
            best = i;
    }
    return best;
}

bool nodes_plan(size_t *threads, const struct os_nodes *nodes, int n_threads)
{
    memset(threads, 0, nodes->n * sizeof *threads);
    for (int t = 0; t < n_threads; t++) {
        size_t i = least_loaded(threads, nodes, true);
        if (i == nodes->n)
            i = least_loaded(threads, nodes, false);
        if (i == nodes->n) {
            memset(threads, 0, nodes->n * sizeof *threads);
            return false;
        }
        threads[i]++;
    }
    return true;
}
