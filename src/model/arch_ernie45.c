/* ERNIE 4.5's dense models (Ernie4_5ForCausalLM in transformers): Llama with a
 * rotary embedding in which neighbours rotate together. */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    bool bias;
    c->tied_head = true; /* Ernie4_5Config's default */
    if (config_read_llama(c, s, e) ||
        section_opt_bool(s, "use_bias", false, &bias, e))
        return -1;
    c->qkv_bias = c->o_bias = c->mlp_bias = bias;
    return 0;
}

const struct arch arch_ernie45 = {.model_type = "ernie4_5",
                                  .gguf = "ernie4_5",
                                  .interleaved = true,
                                  .gguf_interleaved = true,
                                  .fixed = fixed_llama,
                                  .read_config = read_config,
                                  LLAMA_FAMILY};
