/* EXAONE 4 (Exaone4ForCausalLM in transformers): norms of results in place of
 * norms before each half, and norms of queries and keys. If there is a window,
 * three of four layers have it, and the others have no rotary embedding. */
#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

/* sliding_window_pattern: a number, or as many letters. */
static int read_pattern(const struct section *s, size_t *out,
                        struct qwick_err *e)
{
    static const char key[] = "sliding_window_pattern";
    const struct json_value *v = json_get(s->v, key);
    if (json_is(v, JSON_STRING) && v->len > 0 && v->len <= MAX_LAYERS) {
        *out = v->len;
        return 0;
    }
    return section_opt_size(s, key, 4, MAX_LAYERS, out, e);
}

static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    size_t pattern;
    if (section_absent(s, "sliding_window"))
        return 0;
    if (section_size(s, "sliding_window", INT32_MAX, &c->sliding_window, e) ||
        read_pattern(s, &pattern, e))
        return -1;
    if (!section_absent(s, "layer_types")) {
        if (config_read_layer_types(c, s, e))
            return -1;
    } else {
        for (size_t i = 0; i < c->n_layers; i++)
            if ((i + 1) % pattern)
                c->layers[i].window = c->sliding_window;
    }
    for (size_t i = 0; i < c->n_layers; i++)
        if (c->layers[i].window == NO_WINDOW)
            c->layers[i].rope = NO_ROPE;
    return 0;
}

static bool gguf_rotates(const struct config *c, size_t i)
{
    return !c->sliding_window || c->layers[i].window != NO_WINDOW;
}

static int read_config(struct config *c, const struct section *s,
                       struct qwick_err *e)
{
    return config_read_llama(c, s, e) || read_windows(c, s, e) ? -1 : 0;
}

static const struct names *const schemes[] = {&names_hub_post, &names_gguf,
                                              NULL};

const struct arch arch_exaone4 = {.model_type = "exaone4",
                                  .gguf = "exaone4",
                                  .gguf_pattern = 4,
                                  .implies_heads = true,
                                  .blocks = {.attn_post_norm = true,
                                             .mlp_post_norm = true,
                                             .qk_norm = QK_NORM_HEAD},
                                  .fixed = fixed_llama,
                                  .names = schemes,
                                  .gguf_names = &names_gguf,
                                  .gguf_rotates = gguf_rotates,
                                  .read_config = read_config,
                                  LAYER_FUNCTIONS};
