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

const struct arch arch_llama = {.model_type = "llama",
                                .gguf = "llama",
                                .gguf_interleaved = true,
                                .fixed = fixed_llama,
                                .read_config = read_config,
                                LLAMA_FAMILY};
