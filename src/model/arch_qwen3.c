/* Dense Qwen3 (Qwen3ForCausalLM in transformers), and the text model of
 * Qwen3-VL, which has the same layers. */
#include "model/arch_qwen3.h"
#include "file/json.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {QWEN3_FIXED, {NULL, NULL}};

/* Which layers attend through a window (Qwen3Config: layer_types, else the
 * layers from max_window_layers on). */
static int read_windows(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    enum { WINDOW = 4096 }; /* Qwen3Config's, where the field is missing */
    bool use;
    int64_t first;
    if (section_opt_bool(s, "use_sliding_window", false, &use, e))
        return -1;
    bool none = json_is(json_get(s->v, "sliding_window"), JSON_NULL);
    if (use && !none &&
        section_opt_size(s, "sliding_window", WINDOW, INT32_MAX,
                         &c->sliding_window, e))
        return -1;
    if (!section_absent(s, "layer_types"))
        return config_read_layer_types(c, s, e);
    if (!c->sliding_window)
        return 0;
    if (json_int(json_get(s->v, "max_window_layers"), 0, INT32_MAX, &first))
        return section_bad(s, "max_window_layers", "an integer from 0", e);
    for (size_t i = (size_t)first; i < c->n_layers; i++)
        c->layers[i].window = c->sliding_window;
    return 0;
}

int qwen3_read_config(struct config *c, const struct section *s,
                      struct qwick_err *e)
{
    return config_read_llama(c, s, e) || read_windows(c, s, e) ? -1 : 0;
}

static const struct names *const schemes[] = {&names_hub, &names_gguf, NULL};

const struct arch arch_qwen3 = {.model_type = "qwen3",
                                .gguf = "qwen3",
                                .blocks = QWEN3_BLOCKS,
                                .fixed = fixed,
                                .names = schemes,
                                .gguf_names = &names_gguf,
                                .read_config = qwen3_read_config,
                                LAYER_FUNCTIONS};

const struct arch arch_qwen3vl = {.model_type = "qwen3_vl_text",
                                  .wrapped = "qwen3_vl",
                                  .gguf = "qwen3vl",
                                  .blocks = QWEN3_BLOCKS,
                                  .fixed = fixed,
                                  .names = schemes,
                                  .gguf_names = &names_gguf,
                                  .read_config = qwen3_read_config,
                                  LAYER_FUNCTIONS};
