/* What the families of Qwen3 share. Other families with the same attention take
 * parts of it. The contracts of arch.h hold. */
#ifndef MODEL_ARCH_QWEN3_H
#define MODEL_ARCH_QWEN3_H

#include <stddef.h>

#include "base/err.h"
#include "model/arch.h"

struct input;
struct layer;
struct matrix;

/* Everything that a dense Qwen3 has. */
int qwen3_read_config(struct config *c, const struct section *s,
                      struct qwick_err *e);

/* Both norms of layer i: the one before attention and the one before the MLP.
 */
int qwen3_bind_norms(struct model *m, struct layer *l, size_t i,
                     struct qwick_err *e);

/* Projections, biases and all norms of layer i. */
int qwen3_bind_attention(struct model *m, struct layer *l, size_t i,
                         struct qwick_err *e);

/* The dense MLP of layer i, with d_ff as the layer has it. */
int qwen3_bind_mlp(struct model *m, struct layer *l, size_t i,
                   struct qwick_err *e);

void qwen3_ahead(struct worker *w, size_t i);

/* All that follows attention: add the product of o_proj and its n results,
 * `in`, to the residual stream, then the layer's MLP or its experts. Ends with
 * a barrier, at which layer `next` is fetched ahead. */
void qwen3_finish(struct worker *w, const struct layer *l,
                  const struct matrix *o_proj, const struct input *in, size_t n,
                  size_t next);

/* arch.layer, with an MLP or a mixture of experts. */
void qwen3_layer(struct worker *w, size_t i, size_t n);

/* arch.layer_cost, with an MLP or a mixture of experts. */
struct cost qwen3_layer_cost(const struct model *m, size_t i, size_t pos,
                             size_t n, size_t n_kept);

/* Floating-point operations of the MLP of layer i, or of its router and the
 * experts of each token, for n tokens. */
double qwen3_mlp_flops(const struct model *m, size_t i, size_t n);

/* The cost of a layer without the MLP. */
struct cost qwen3_attention_cost(const struct model *m, size_t i, size_t pos,
                                 size_t n, size_t n_kept);

#endif
