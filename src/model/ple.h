/* Per-layer embeddings (Gemma 3n and 4): a second embedding gives each token a
 * vector for each layer. Its table has as many bytes as half of a small model,
 * and a pass reads one row of it for each token, so it stays in the file (see
 * weights_table). ple.c computes them (see pass.h). */
#ifndef MODEL_PLE_H
#define MODEL_PLE_H

#include <stddef.h>

#include "base/err.h"

struct model;

/* Bind the weights that all layers share, and those of layer i, if the config
 * has per-layer embeddings. Return 0, or -1 with *e set. */
int ple_bind(struct model *m, struct qwick_err *e);
int ple_bind_layer(struct model *m, size_t i, struct qwick_err *e);

#endif
