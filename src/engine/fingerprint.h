/* Which model keys and values belong to. */
#ifndef ENGINE_FINGERPRINT_H
#define ENGINE_FINGERPRINT_H

#include <stdint.h>

#include "base/err.h"

/* model: two independent 64-bit hashes over every field of the configuration
 * that a forward pass reads, every tensor's name, dtype and shape, and 16
 * pieces of 256 bytes evenly spread over each tensor, its first and last bytes
 * among them. Training changes all weights, and merging an adapter all of the
 * matrices that it touches, so other weights show in the pieces. What it cannot
 * see is an edit of single rows between the pieces. Where a copy of the
 * checkpoint lies makes no difference.
 *
 * files: a hash of what identified the weights' files when they were mapped:
 * device, inode, size, time of modification and time of change. 0 when they are
 * built in. It differs for a copy, and after any rewriting in place, also one
 * with the old time put back. Caches, which only lose by being too careful,
 * want both equal. It cannot see an edit that the file system gives no new time
 * of change: one within the same tick of its clock, after the clock was set
 * back, or from another machine where times are not kept.
 *
 * Computed once an engine. -1: no memory. */
struct fingerprint {
    uint64_t model[2], files;
};
int engine_fingerprint(struct qwick_engine *eng, struct fingerprint *out,
                       struct qwick_err *e);

/* A hash of every byte of every tensor, for sessions whose files are not the
 * ones that they were saved with. Reads all weights on all threads, once an
 * engine: about what one decoded token costs. */
int engine_contents(struct qwick_engine *eng, uint64_t *out,
                    struct qwick_err *e);

/* QWICK_ERR_RUNTIME when a file was changed in place since it was mapped: then
 * nobody knows which weights keys and values were computed with. A file that
 * another one has replaced is fine, the mapping keeps the old one. */
int engine_check_unchanged(const struct qwick_engine *eng, struct qwick_err *e);

#endif
