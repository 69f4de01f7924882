/* GLM-4-0414 (Glm4ForCausalLM in transformers): Llama with norms of the results
 * of both halves, too, biases of q, k and v, fused gate_proj and up_proj, and a
 * rotary embedding of half of a head in which neighbours rotate together. */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {{"hidden_act", "\"silu\""},
                                           {NULL, NULL}};

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (config_read_common(c, s, e) ||
        config_read_rotary(c, &c->ropes[0], 0.5, s, e) ||
        config_read_rope(c, &c->ropes[0], s, e))
        return -1;
    c->n_ropes = 1;
    c->o_bias = false;
    return 0;
}

static const struct names *const schemes[] = {&names_hub, &names_gguf_fused,
                                              NULL};

const struct arch arch_glm4 = {.model_type = "glm4",
                               .gguf = "glm4",
                               .partial_rotary = true,
                               .interleaved = true,
                               .gguf_interleaved = true,
                               .implies_heads = true,
                               .blocks = {.attn_norm = true,
                                          .mlp_norm = true,
                                          .attn_post_norm = true,
                                          .mlp_post_norm = true},
                               .fixed = fixed,
                               .names = schemes,
                               .gguf_names = &names_gguf_fused,
                               .read_config = read_config,
                               LAYER_FUNCTIONS};
