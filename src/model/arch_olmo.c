/* OLMo 2 and 3 (Olmo2ForCausalLM and Olmo3ForCausalLM in transformers): norms
 * of results in place of norms before each half, and norms of all of a token's
 * queries and keys. OLMo 3 has windows in three of four layers, and scales the
 * rotary embedding of the others only. */
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static int read_olmo2(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    return config_read_llama(c, s, e);
}

/* layer_types; else every fourth layer attends to all positions. */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    enum { WINDOW = 4096, PATTERN = 4 }; /* Olmo3Config's */
    if (section_opt_size(s, "sliding_window", WINDOW, INT32_MAX,
                         &c->sliding_window, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    for (size_t i = 0; i < c->n_layers; i++)
        if ((i + 1) % PATTERN)
            c->layers[i].window = c->sliding_window;
    return 0;
}

static int read_olmo3(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    return config_read_common(c, s, e) || config_check_head_dim(c, s, e) ||
                   read_windows(c, s, e) ||
                   config_read_rope_kinds(c, "rope_theta", "rope_theta", s, e)
               ? -1
               : 0;
}

/* In GGUF files OLMo 3 is an OLMo 2 with windows. */
static int read_gguf(struct config *c, const struct section *s,
                     struct qwick_err *e)
{
    return (section_absent(s, "sliding_window") ? read_olmo2 : read_olmo3)(c, s,
                                                                           e);
}

static int read_config_olmo2(struct config *c, const struct section *s,
                             struct qwick_err *e)
{
    return (section_is_gguf(s) ? read_gguf : read_olmo2)(c, s, e);
}

static const struct names *const schemes[] = {&names_hub_post, &names_gguf,
                                              NULL};

#define OLMO                                                     \
    .implies_heads = true,                                       \
    .blocks = {.attn_post_norm = true,                           \
               .mlp_post_norm = true,                            \
               .qk_norm = QK_NORM_ROW},                          \
    .fixed = fixed_llama, .names = schemes, .gguf_names = &names_gguf, \
    LAYER_FUNCTIONS

const struct arch arch_olmo2 = {.model_type = "olmo2",
                                .gguf = "olmo2",
                                .gguf_pattern = 4,
                                .read_config = read_config_olmo2,
                                OLMO};

const struct arch arch_olmo3 = {
    .model_type = "olmo3",
    .gguf_as = &arch_olmo2,
    .read_config = read_olmo3,
    OLMO};
