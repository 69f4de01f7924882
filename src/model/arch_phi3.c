/* Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (Phi3ForCausalLM in transformers): Llama
 * with fused projections, a window in all layers if there is one, and a rotary
 * embedding of a part of a head whose frequencies depend on the length of the
 * sequence (longrope). */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {
    {"hidden_act", "\"silu\""}, {"attention_bias", "false"}, {NULL, NULL}};

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    struct rope_config *r = &c->ropes[0];
    if (config_read_common(c, s, e) || config_read_rotary(c, r, 1, s, e) ||
        section_opt_size(s, "original_max_position_embeddings", 4096, INT32_MAX,
                         &r->original, e) ||
        config_read_rope(c, r, s, e))
        return -1;
    c->n_ropes = 1;
    if (!section_absent(s, "sliding_window") &&
        section_size(s, "sliding_window", INT32_MAX, &c->sliding_window, e))
        return -1;
    for (size_t i = 0; c->sliding_window && i < c->n_layers; i++)
        c->layers[i].window = c->sliding_window;
    return 0;
}

static const struct names *const schemes[] = {&names_hub, &names_gguf_fused,
                                              NULL};

const struct arch arch_phi3 = {.model_type = "phi3",
                               .gguf = "phi3",
                               .gguf_pattern = SIZE_MAX, /* all layers */
                               .partial_rotary = true,
                               .implies_heads = true,
                               .blocks = {.attn_norm = true, .mlp_norm = true},
                               .fixed = fixed,
                               .names = schemes,
                               .gguf_names = &names_gguf_fused,
                               .read_config = read_config,
                               LAYER_FUNCTIONS};
