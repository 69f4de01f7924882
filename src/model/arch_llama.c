/* Llama (LlamaForCausalLM in transformers) and what has its shape: Llama 2 and
 * 3, SmolLM2, Yi, TinyLlama, Falcon 3. In GGUF files the architecture "llama"
 * also names Mistral and Mixtral, which have the same layers. */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/moe.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {FIXED_LLAMA, {NULL, NULL}};

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    if (config_read_llama(c, s, e) ||
        section_opt_bool(s, "mlp_bias", false, &c->mlp_bias, e))
        return -1;
    if (!section_is_gguf(s) || section_absent(s, "num_experts"))
        return 0;
    return experts_read_config(c, s, c->d_ff, e);
}

static const struct names *const schemes[] = {&names_hub, &names_gguf, NULL};

const struct arch arch_llama = {.model_type = "llama",
                                .gguf = "llama",
                                .gguf_interleaved = true,
                                .implies_heads = true,
                                .blocks = {.attn_norm = true, .mlp_norm = true},
                                .fixed = fixed,
                                .names = schemes,
                                .gguf_names = &names_gguf,
                                .read_config = read_config,
                                LAYER_FUNCTIONS};
