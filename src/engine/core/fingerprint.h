/* Identifies the model that keys and values were computed with. */
#ifndef ENGINE_FINGERPRINT_H
#define ENGINE_FINGERPRINT_H

#include <stdint.h>

#include "base/err.h"

/* `model` holds two independent 64-bit hashes over every field of the
 * configuration that a forward pass reads; every tensor's name, dtype and
 * shape; and 16 pieces of 256 bytes of each tensor. The pieces are evenly
 * spread and include the first and the last bytes. Training changes all
 * weights, and merging an adapter changes every weight of the matrices that it
 * touches, so the pieces show both. The hashes miss an edit of single rows
 * between the pieces. A copy of the checkpoint has the same hashes.
 *
 * `files` is a hash of the device, inode, size, modification time and change
 * time that the weights' files had when they were mapped. It is 0 for built-in
 * weights. It differs for a copy, and after a file was rewritten in place, even
 * if the old modification time was restored. Caches require that both model and
 * files are equal: a cache that refuses too much only loses time. This hash
 * misses an edit for which the file system sets no new change time: an edit
 * within the same tick of the clock, after the clock was set back, or from
 * another machine that does not keep times.
 *
 * engine_fingerprint computes both once per engine and writes them to *out. With
 * an adapter (lora: adapter + 1, or 0), `model` covers all bytes of its tensors,
 * too. It fails only when out of memory. */
struct fingerprint {
    uint64_t model[2], files;
};
int engine_fingerprint(struct qwick_engine *eng, size_t lora,
                       struct fingerprint *out, struct qwick_err *e);

/* Write a hash of every byte of every tensor to *out. A saved session needs it
 * if the weights' files are not the ones that were open when it was saved.
 * Reads all weights on all threads, once per engine; this takes about as long
 * as decoding one token. */
int engine_contents(struct qwick_engine *eng, uint64_t *out,
                    struct qwick_err *e);

/* Return -1 with QWICK_ERR_RUNTIME if a file was changed in place since it was
 * mapped: then we do not know which weights the keys and values were computed
 * with. A file that was replaced by another file is fine, because the mapping
 * keeps the old one. */
int engine_check_unchanged(const struct qwick_engine *eng, struct qwick_err *e);

#endif
