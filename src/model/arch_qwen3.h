/* Functions that the Qwen3 families share. Other families with the same
 * attention use some of them. The contracts of arch.h hold. */
#ifndef MODEL_ARCH_QWEN3_H
#define MODEL_ARCH_QWEN3_H

#include <stddef.h>

#include "base/err.h"
#include "model/arch.h"

struct input;
struct layer;
struct matrix;

/* Rows of arch.fixed. The last two are of released files, with the values that
 * change nothing. */
#define QWEN3_FIXED                                                         \
    {"hidden_act", "\"silu\""}, {"partial_rotary_factor", "1"},             \
        {"rope_parameters.partial_rotary_factor", "1"},                     \
        {"rope_scaling.partial_rotary_factor", "1"}, {"qkv_bias", "false"}, \
    {                                                                       \
        "use_qk_norm", "true"                                               \
    }

/* Read all fields of a dense Qwen3. */
int qwen3_read_config(struct config *c, const struct section *s,
                      struct qwick_err *e);

/* Bind both norms of layer i: the one before attention and the one before the
 * MLP. */
int qwen3_bind_norms(struct model *m, struct layer *l, size_t i,
                     struct qwick_err *e);

/* Bind the projections, the biases and all norms of layer i. */
int qwen3_bind_attention(struct model *m, struct layer *l, size_t i,
                         struct qwick_err *e);

/* Bind the dense MLP of layer i, with the d_ff of the layer. */
int qwen3_bind_mlp(struct model *m, struct layer *l, size_t i,
                   struct qwick_err *e);

void qwen3_ahead(struct worker *w, size_t i);

/* Do the work after attention: multiply attention's n results `in` by o_proj,
 * add the product to the residual stream, then apply the layer's MLP or its
 * experts. Ends with a barrier, at which threads prefetch the first weights of
 * layer `next`. */
void qwen3_finish(struct worker *w, const struct layer *l,
                  const struct matrix *o_proj, const struct input *in, size_t n,
                  size_t next);

/* arch.layer, with an MLP or a mixture of experts. */
void qwen3_layer(struct worker *w, size_t i, size_t n);

/* arch.layer_cost, with an MLP or a mixture of experts. */
struct cost qwen3_layer_cost(const struct model *m, size_t i, size_t pos,
                             size_t n, size_t n_kept);

/* Return the floating-point operations of layer i's MLP for n tokens, or of its
 * router and the tokens' experts. */
double qwen3_mlp_flops(const struct model *m, size_t i, size_t n);

#endif
