/* What the families of Qwen3 share: everything but the MLP. Other families with
 * the same attention take parts of it. The contracts of arch.h hold. */
#ifndef MODEL_ARCH_QWEN3_H
#define MODEL_ARCH_QWEN3_H

#include <stddef.h>

#include "base/err.h"
#include "model/arch.h"

struct input;
struct layer;

/* Everything that a dense Qwen3 has. */
int qwen3_read_config(struct config *c, const struct section *s,
                      struct qwick_err *e);

/* Projections, biases and all norms of layer i. */
int qwen3_bind_attention(struct model *m, struct layer *l, size_t i,
                         struct qwick_err *e);

/* The dense MLP of layer i, with d_ff as the layer has it. */
int qwen3_bind_mlp(struct model *m, struct layer *l, size_t i,
                   struct qwick_err *e);

void qwen3_ahead(struct worker *w, size_t i);

/* Add o_proj of the n results of attention, `in`, to the residual stream. Ends
 * with a barrier. */
void qwen3_output(struct worker *w, const struct layer *l,
                  const struct input *in, size_t n);

/* Add the dense MLP of n tokens to the residual stream. Ends with a barrier, at
 * which layer `next` is fetched ahead. */
void qwen3_mlp(struct worker *w, const struct layer *l, size_t n, size_t next);

/* arch.layer_cost. */
struct cost qwen3_layer_cost(const struct model *m, size_t i, size_t pos,
                             size_t n, size_t n_kept);

/* The same without the MLP. */
struct cost qwen3_attention_cost(const struct model *m, size_t i, size_t pos,
                                 size_t n, size_t n_kept);

#endif
