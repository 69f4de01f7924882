/* Identifies the model that keys and values were computed with. */
#ifndef ENGINE_FINGERPRINT_H
#define ENGINE_FINGERPRINT_H

#include <stdint.h>

#include "base/err.h"

/* model: two independent 64-bit hashes over every field of the configuration
 * that a forward pass reads, every tensor's name, dtype and shape, and 16
 * pieces of 256 bytes of each tensor. The pieces are evenly spread; the first
 * and the last bytes belong to them. Training changes all weights, and merging
 * an adapter changes every weight of the matrices that it touches, so the
 * pieces show both. The hashes miss an edit of single rows between the pieces.
 * A copy of the checkpoint has the same hashes.
 *
 * files: a hash of the device, inode, size, modification time and change time
 * that the weights' files had when they were mapped. 0 for built-in weights. It
 * differs for a copy, and after a file was rewritten in place, even if the old
 * modification time was restored. Caches require that both model and files are
 * equal: a cache that is too careful only loses time. The hash misses an edit
 * that gets no new change time from the file system: an edit within the same
 * tick of the clock, after the clock was set back, or from another machine that
 * does not keep times.
 *
 * Both are computed once per engine. -1: out of memory. */
struct fingerprint {
    uint64_t model[2], files;
};
int engine_fingerprint(struct qwick_engine *eng, struct fingerprint *out,
                       struct qwick_err *e);

/* A hash of every byte of every tensor. A saved session needs it when the files
 * are not the same ones as at the save. Reads all weights on all threads, once
 * per engine; this takes about as long as one decoded token. */
int engine_contents(struct qwick_engine *eng, uint64_t *out,
                    struct qwick_err *e);

/* QWICK_ERR_RUNTIME if a file was changed in place since it was mapped: then we
 * do not know which weights the keys and values were computed with. A file that
 * was replaced by another is fine, because the mapping keeps the old one. */
int engine_check_unchanged(const struct qwick_engine *eng, struct qwick_err *e);

#endif
