/* How sentence-transformers makes a vector of a text with this checkpoint: the
 * modules that modules.json lists. The embedder has those of Qwen3-Embedding:
 * the model, the last token's state, and scaling to length 1. */
#ifndef MODEL_POOLING_H
#define MODEL_POOLING_H

#include <stdbool.h>

#include "base/err.h"

struct checkpoint;

struct pooling {
    bool found;      /* modules.json is there */
    char prompt[64]; /* name of a prompt that texts get by default, safe in
                        messages; "": none */
};

/* Read modules.json and the files that belong to it. QWICK_ERR_MODEL, with the
 * file, the module and the value, if they ask for anything else: another
 * pooling, more modules, other weights, or texts in lower case. A checkpoint
 * without modules.json, or with an empty one, asks for nothing. */
int pooling_read(struct pooling *p, const struct checkpoint *ck,
                 struct qwick_err *e);

#endif
