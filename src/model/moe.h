/* Mixtures of experts: the parts that all families share. moe.c computes them
 * (see pass.h), moe_bind.c reads their fields of config.json and binds their
 * weights. */
#ifndef MODEL_MOE_H
#define MODEL_MOE_H

#include <stddef.h>

#include "base/err.h"

struct config;
struct experts;
struct model;
struct section;

/* num_experts (or num_local_experts), num_experts_per_tok,
 * moe_intermediate_size, norm_topk_prob, decoder_sparse_step, mlp_only_layers
 * (Qwen3MoeConfig in transformers): sets d_ff, n_experts and n_active of the
 * layers that have experts. Layer i has experts unless it is in mlp_only_layers
 * or i + 1 is not a multiple of decoder_sparse_step. config_read_common has
 * been called. d_ff: rows of an expert's gate_proj where moe_intermediate_size is
 * missing; 0: an error. Returns 0, or -1 with *e set. */
int experts_read_config(struct config *c, const struct section *s, size_t d_ff,
                        struct qwick_err *e);

/* Let the first n layers have no experts, but a dense MLP of
 * intermediate_size. */
void experts_leave_dense(struct config *c, size_t n);

/* shared_expert_intermediate_size: sets shared_ff of the layers that have
 * experts. */
int experts_read_shared(struct config *c, const struct section *s,
                        struct qwick_err *e);

/* Bind router and experts of a layer that has them, the shared one included, in
 * the layout that the checkpoint has: one tensor for each expert, experts
 * stacked by role, or stacked with gate_proj and up_proj fused. A role's
 * matrices must have one format. Returns 0, or -1 with *e set. */
int experts_bind(struct model *m, struct experts *x, size_t layer,
                 struct qwick_err *e);

#endif
