/* Layers of attention and an MLP or experts, as a family's struct blocks and
 * the config describe them:
 *
 *   h = x + r * post(o_proj(attention(q, k, v of norm(x))))
 *   y = h + r * post(down_proj(act(gate_proj(norm(h))) * up_proj(norm(h))))
 *
 * Each norm, the norms and rotation of q and k, the biases and the residual
 * scale r may be absent. In recurrent layers, arch.recurrence takes the place of
 * attention. The contracts of arch.h hold. */
#ifndef MODEL_LAYER_H
#define MODEL_LAYER_H

#include <stddef.h>

#include "base/err.h"
#include "model/arch.h"
#include "model/names.h"

struct input;
struct layer;
struct matrix;

/* A weight of layer i. */
static inline struct weight_ref layer_weight(enum weight_id id, size_t i)
{
    return (struct weight_ref){.id = id, .layer = i};
}

/* Bind the norms of layer i, those of q and k excepted. */
int layer_bind_norms(struct model *m, struct layer *l, size_t i,
                     struct qwick_err *e);

/* Bind the norms, the projections, their biases and the sinks. */
int layer_bind_attention(struct model *m, struct layer *l, size_t i,
                         struct qwick_err *e);

/* Bind the experts of layer i, or its dense MLP with the d_ff of the layer. */
int layer_bind_mlp(struct model *m, struct layer *l, size_t i,
                   struct qwick_err *e);

/* Bind the convolution of recurrent layer i: *out [conv, channels], the
 * transpose of what files have. */
int layer_bind_conv(struct model *m, float **out, size_t i,
                    struct qwick_err *e);

/* arch.bind_layer */
int layer_bind(struct model *m, struct layer *l, size_t i, struct qwick_err *e);

/* arch.ahead */
void layer_ahead(struct worker *w, size_t i);

/* Do the work after attention: multiply attention's n results `in` by o_proj,
 * add the product to the residual stream, then apply the layer's MLP or its
 * experts. Ends with a barrier, at which threads prefetch the first weights of
 * layer `next`. */
void layer_finish(struct worker *w, const struct layer *l,
                  const struct matrix *o_proj, const struct input *in, size_t n,
                  size_t next);

/* arch.layer */
void layer_run(struct worker *w, size_t i, size_t n);

/* arch.layer_cost */
struct cost layer_cost(const struct model *m, size_t i, size_t pos, size_t n,
                       size_t n_kept);

/* Return the floating-point operations of layer i's MLP for n tokens, or of its
 * router and the tokens' experts. */
double layer_mlp_flops(const struct model *m, size_t i, size_t n);

/* The members of struct arch that layers of this kind share, and those of
 * families with Llama's layers and names. */
#define LAYER_FUNCTIONS                                                 \
    .bind_layer = layer_bind, .layer = layer_run, .ahead = layer_ahead, \
    .layer_cost = layer_cost
#define LLAMA_FAMILY                                  \
    .implies_heads = true,                            \
    .blocks = {.attn_norm = true, .mlp_norm = true},  \
    .names = names_llama, .gguf_names = &names_gguf, LAYER_FUNCTIONS

#endif
