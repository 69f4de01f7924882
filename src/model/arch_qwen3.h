/* What the Qwen families share. The contracts of arch.h hold. */
#ifndef MODEL_ARCH_QWEN3_H
#define MODEL_ARCH_QWEN3_H

#include "base/err.h"
#include "model/arch.h"

/* Rows of arch.fixed. The last two are of released files, with the values that
 * change nothing. */
#define QWEN3_FIXED                     \
    FIXED_LLAMA, {"qkv_bias", "false"}, \
    {                                   \
        "use_qk_norm", "true"           \
    }

#define QWEN3_BLOCKS                                                 \
    {                                                                \
        .attn_norm = true, .mlp_norm = true, .qk_norm = QK_NORM_HEAD \
    }

/* Read all fields of a dense Qwen3, or of a dense Qwen2: windows are those of
 * layer_types, else of the layers from max_window_layers on. */
int qwen3_read_config(struct config *c, const struct section *s,
                      struct qwick_err *e);

#endif
