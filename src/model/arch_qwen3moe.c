/* Qwen3-MoE (Qwen3MoeForCausalLM in transformers): Qwen3 with a mixture of
 * experts in place of the MLP, in all layers or some. There is no shared
 * expert. */
#include "model/arch.h"
#include "model/arch_qwen3.h"
#include "model/model.h"
#include "model/moe.h"
#include "model/pass.h"
#include "model/section.h"

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    return qwen3_read_config(c, s, e) || experts_read_config(c, s, e) ? -1 : 0;
}

static int bind_layer(struct model *m, struct layer *l, size_t i,
                      struct qwick_err *e)
{
    if (qwen3_bind_attention(m, l, i, e))
        return -1;
    return m->config.layers[i].n_experts ? experts_bind(m, &l->experts, i, e)
                                         : qwen3_bind_mlp(m, l, i, e);
}

static const struct names *const schemes[] = {&names_hub, &names_gguf, NULL};

static void layer(struct worker *w, size_t i, size_t n)
{
    const struct layer *l = &w->p->m->layers[i];
    struct input in = pass_attention(w, i, l->input_norm, n);
    if (*w->p->stop || n == 0)
        return;
    if (l->experts.n) {
        pass_ahead_experts(w, &l->experts, n);
        qwen3_output(w, l, &in, n);
        pass_experts(w, &l->experts, l->post_norm, n, i + 1);
    } else {
        pass_ahead_gated(w, &l->mlp, n);
        qwen3_output(w, l, &in, n);
        qwen3_mlp(w, l, n, i + 1);
    }
}

/* A token passes the router and its own experts. */
static struct cost layer_cost(const struct model *m, size_t i, size_t pos,
                              size_t n, size_t n_kept)
{
    const struct layer_config *l = &m->config.layers[i];
    double d = (double)m->config.d_model, ff = (double)l->d_ff;
    double mlps = l->n_experts ? (double)l->n_active : 1;
    struct cost c = qwen3_attention_cost(m, i, pos, n, n_kept);
    c.flops += (double)n_kept * 2 * d * (3 * mlps * ff + (double)l->n_experts);
    return c;
}

const struct arch arch_qwen3moe = {.model_type = "qwen3_moe",
                                   .gguf = "qwen3moe",
                                   .names = schemes,
                                   .read_config = read_config,
                                   .bind_layer = bind_layer,
                                   .layer = layer,
                                   .ahead = qwen3_ahead,
                                   .layer_cost = layer_cost};
