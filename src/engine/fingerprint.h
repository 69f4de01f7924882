/* Which model keys and values belong to. */
#ifndef ENGINE_FINGERPRINT_H
#define ENGINE_FINGERPRINT_H

#include <stdint.h>

#include "base/err.h"

/* model: two independent 64-bit hashes over every field of the configuration
 * that a forward pass reads, every tensor's name, dtype and shape, and 16
 * pieces of 256 bytes evenly spread over each tensor, its first and last bytes
 * among them. Training changes all weights, and merging an adapter all of the
 * matrices that it touches, so other weights show in the pieces; reading
 * everything would take longer than the prefill that is to be saved. What it
 * cannot see is an edit of single rows between the pieces. Where a copy of the
 * checkpoint lies makes no difference.
 *
 * files: a hash of the sizes and modification times of the weights' files, 0
 * when they are built in. It sees any rewriting of a checkpoint in place, and
 * is for caches, which only lose by being too careful.
 *
 * Computed once an engine. -1: no memory. */
struct fingerprint {
    uint64_t model[2], files;
};
int engine_fingerprint(struct qwick_engine *eng, struct fingerprint *out,
                       struct qwick_err *e);

#endif
