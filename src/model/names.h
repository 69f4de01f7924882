/* Names of weights in files. A naming scheme is one table, struct names:
 * a pattern for each weight. A family lists the schemes that its checkpoints
 * use (arch.h). Code that binds weights knows their ids only, so a new scheme
 * needs a new table and no other change. */
#ifndef MODEL_NAMES_H
#define MODEL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

struct st_set;

enum weight_id {
    /* of the model */
    WEIGHT_EMBED,   /* [vocab_size, d_model] */
    WEIGHT_HEAD,    /* [vocab_size, d_model] */
    WEIGHT_NORM,    /* [d_model], before the head; with blocks.norm_replaces it
                       belongs to the layer that it ends */
    WEIGHT_CLASSES, /* [n_classes, d_model], a reranker's own head */
    WEIGHT_CLASS_BIAS, /* [n_classes] */
    /* of the layer before the classes */
    WEIGHT_CLASS_DENSE,      /* [d_model, d_model] */
    WEIGHT_CLASS_DENSE_BIAS, /* [d_model] */
    WEIGHT_CLASS_NORM,       /* [d_model] */
    /* of encoders, beside the embedding */
    WEIGHT_POSITIONS,  /* [positions, d_model] */
    WEIGHT_TYPES,      /* [n_types, d_model] */
    WEIGHT_EMBED_NORM, /* [d_model], of their sum */
    /* [n_rot / 2] divisors of the frequencies; or those of short sequences and
       of long ones (ROPE_LONGROPE) */
    WEIGHT_ROPE_FACTORS,
    WEIGHT_ROPE_SHORT,
    WEIGHT_ROPE_LONG,
    /* of per-layer embeddings (config.ple_dim) */
    WEIGHT_PLE_EMBED,      /* [vocab_size, n_layers * ple_dim] */
    WEIGHT_PLE_MODEL_PROJ, /* [n_layers * ple_dim, d_model] */
    WEIGHT_PLE_MODEL_NORM, /* [ple_dim], of its result for each layer */
    /* of a layer */
    WEIGHT_ATTN_NORM,      /* [d_model], before attention */
    WEIGHT_MLP_NORM,       /* [d_model], before the MLP */
    WEIGHT_ATTN_POST_NORM, /* [d_model], of attention's result */
    WEIGHT_MLP_POST_NORM,  /* [d_model], of the MLP's result */
    WEIGHT_LAYER_SCALE,    /* [1], of the residual stream after the layer */
    WEIGHT_PLE_GATE,       /* [ple_dim, d_model] */
    WEIGHT_PLE_PROJ,       /* [d_model, ple_dim] */
    WEIGHT_PLE_NORM,       /* [d_model], of its result */
    WEIGHT_Q_PROJ,
    WEIGHT_K_PROJ,
    WEIGHT_V_PROJ,
    WEIGHT_O_PROJ,
    WEIGHT_QKV_PROJ, /* the rows of the first three, in their order */
    WEIGHT_QKV_BIAS, /* likewise; or: */
    WEIGHT_Q_BIAS,
    WEIGHT_K_BIAS,
    WEIGHT_V_BIAS,
    WEIGHT_O_BIAS,
    WEIGHT_Q_NORM, /* [head_dim], or all heads' */
    WEIGHT_K_NORM, /* [head_dim], or all heads' */
    WEIGHT_SINKS,  /* [n_heads] */
    WEIGHT_GATE_PROJ,
    WEIGHT_UP_PROJ,
    WEIGHT_DOWN_PROJ,
    WEIGHT_GATE_UP_PROJ, /* the rows of the first two, in their order */
    WEIGHT_GATE_UP_BIAS, /* likewise; or: */
    WEIGHT_GATE_BIAS,
    WEIGHT_UP_BIAS,
    WEIGHT_DOWN_BIAS,
    /* of a mixture of experts: the router, and the experts in one of three
       layouts */
    WEIGHT_ROUTER, /* [n_experts, d_model] */
    /* one tensor for each expert */
    WEIGHT_EXPERT_GATE, /* [d_ff, d_model] */
    WEIGHT_EXPERT_UP,   /* [d_ff, d_model] */
    WEIGHT_EXPERT_DOWN, /* [d_model, d_ff] */
    /* all experts of a layer in one tensor */
    WEIGHT_EXPERTS_GATE,    /* [n_experts, d_ff, d_model] */
    WEIGHT_EXPERTS_UP,      /* [n_experts, d_ff, d_model] */
    WEIGHT_EXPERTS_GATE_UP, /* [n_experts, 2 * d_ff, d_model]: an expert's rows
                               of gate_proj, then its rows of up_proj, or by
                               turns (arch.alternate_experts) */
    WEIGHT_EXPERTS_DOWN,    /* [n_experts, d_model, d_ff] */
    WEIGHT_EXPERTS_GATE_BIAS,    /* [n_experts, d_ff] */
    WEIGHT_EXPERTS_UP_BIAS,      /* [n_experts, d_ff] */
    WEIGHT_EXPERTS_GATE_UP_BIAS, /* [n_experts, 2 * d_ff], in the order of the
                                    rows of WEIGHT_EXPERTS_GATE_UP */
    WEIGHT_EXPERTS_DOWN_BIAS,    /* [n_experts, d_model] */
    /* of experts beside a dense MLP (blocks.experts_beside) */
    WEIGHT_DENSE_POST_NORM,   /* [d_model], of the dense MLP's result */
    WEIGHT_EXPERTS_NORM,      /* [d_model], before the experts */
    WEIGHT_EXPERTS_POST_NORM, /* [d_model], of their result */
    WEIGHT_ROUTER_SCALE,      /* [d_model], of the router's input */
    WEIGHT_EXPERT_SCALES,     /* [n_experts], of each expert's result */
    WEIGHT_ROUTER_BIAS,       /* [n_experts] */
    WEIGHT_SELECT_BIAS,       /* [n_experts], see experts.select_bias */
    /* of the expert that all tokens share */
    WEIGHT_SHARED_GATE_PROJ, /* [shared_ff, d_model] */
    WEIGHT_SHARED_UP_PROJ,   /* [shared_ff, d_model] */
    WEIGHT_SHARED_DOWN_PROJ, /* [d_model, shared_ff] */
    WEIGHT_SHARED_GATE,      /* [1, d_model] or [d_model] */
    /* of Gated DeltaNet, see struct delta; a short convolution has three of
       them: QKV [3 * d_model, d_model], CONV and OUT */
    WEIGHT_DELTA_QKV,
    WEIGHT_DELTA_Z,
    WEIGHT_DELTA_B,
    WEIGHT_DELTA_A,
    WEIGHT_DELTA_QKVZ, /* packed, in place of QKV and Z */
    WEIGHT_DELTA_BA,   /* packed, in place of B and A */
    WEIGHT_DELTA_OUT,
    WEIGHT_DELTA_CONV,  /* [channels, 1, K], [channels, K, 1] or [channels, K]:
                           one order in memory */
    WEIGHT_DELTA_A_LOG, /* [n_v_heads], or: */
    WEIGHT_DELTA_DECAY, /* [n_v_heads] -exp(A_log) */
    WEIGHT_DELTA_DT_BIAS, /* [n_v_heads] */
    WEIGHT_DELTA_NORM,    /* [d_v] */
    N_WEIGHTS
};

enum {
    NAMES_MAX_PREFIXES = 4,
    NAMES_MAX_VARIANTS = 3,
    /* Bytes of a tensor's full name with its NUL. No name of a known family is
       as long. */
    NAMES_BYTES = 160
};

/* In a pattern, a leading '@' stands for the prefix, '#' for the number of the
 * layer and '*' for that of the expert. */
struct names {
    const char
        *config; /* where shapes are given, for messages: "config.json" */
    /* "model." and the like, with a dot. The one whose WEIGHT_EMBED is in the
       file applies to all names; the first one if there is none. Ends with
       NULL. */
    const char *prefixes[NAMES_MAX_PREFIXES + 1];
    /* Patterns of each weight, tried in order. NULL: the scheme has no such
       weight. */
    const char *of[N_WEIGHTS][NAMES_MAX_VARIANTS];
    /* A number that loading adds to each value of a vector: 1 for norms that
       are stored zero-centred (1 + w in transformers). */
    float plus[N_WEIGHTS];
    /* Value head j of Gated DeltaNet reads key head j % n_k_heads. If false,
       consecutive value heads read the same key head. */
    bool tiled;
    /* Returns whether the checkpoint follows the scheme; NULL: always. It tells
       schemes apart that use equal names for different values. */
    bool (*fits)(const struct st_set *set);
};

/* Which tensor of a model. */
struct weight_ref {
    enum weight_id id;
    size_t layer;  /* of weights that belong to a layer */
    size_t expert; /* of weights that belong to an expert */
};

/* The scheme of a checkpoint, and the prefix that it uses. */
struct naming {
    const struct names *names;
    const char *prefix; /* one of names->prefixes */
};

/* gpt-oss's name of the numbers of a matrix in MXFP4 ends so, in place of
 * ".weight" or of nothing. */
#define NAMES_BLOCKS "_blocks"

/* The weights of a norm may be called so, as in TensorFlow, and its biases so,
 * in place of ".weight" and ".bias". */
#define NAMES_GAMMA ".gamma"
#define NAMES_BETA  ".beta"

/* The name of the codes of a matrix of compressed-tensors ends so, in place of
 * ".weight". */
#define NAMES_PACKED ".weight_packed"

/* The name of the codes of a matrix in AWQ or GPTQ ends so, in place of
 * ".weight". */
#define NAMES_QWEIGHT ".qweight"

/* Return the length of a tensor's name without ".weight" or one of the names
 * above at its end. */
size_t names_module(const char *name);

/* Choose the first scheme that fits, and its first prefix whose embedding is in
 * the set. If none fits, choose the first scheme and its first prefix. schemes
 * ends with NULL. */
struct naming names_choose(const struct names *const *schemes,
                           const struct st_set *set);

/* Write a weight's name in variant v of a scheme to out [NAMES_BYTES]. If the
 * scheme lacks that variant, returns false with out empty. */
bool names_expand(char *out, const struct names *names, const char *prefix,
                  struct weight_ref ref, size_t v);

/* The names of models of Llama's and Qwen's shape on the Hugging Face hub, MLX
 * conversions and checkpoints with a vision model included. */
extern const struct names names_hub;

/* The same, where the norms of results are called after their place
 * (post_attention_layernorm, post_feedforward_layernorm) and halves have none
 * before them. */
extern const struct names names_hub_post;

/* The names of these models, and of Gemma, in GGUF files. In names_gguf_fused,
 * ffn_up has the rows of gate_proj, too. */
extern const struct names names_gguf, names_gguf_fused;

/* names_hub and names_gguf, NULL at the end. */
extern const struct names *const names_llama[];

/* The names of Seed-OSS and gpt-oss in GGUF files: their second norm has
 * another's name. */
extern const struct names names_gguf_oss;

/* The names of gpt-oss on the Hugging Face hub, MLX conversions included. */
extern const struct names names_gpt_oss;

/* The names of Gemma 2 and of Gemma 3's text models on the Hugging Face hub,
 * also in checkpoints with a vision model; and of Gemma. */
extern const struct names names_gemma, names_gemma1;

/* The names of Gemma 4's text models on the Hugging Face hub and of MLX
 * conversions, likewise. Their norms are not zero-centred. */
extern const struct names names_gemma4;

/* The names of Qwen3.5's text models, also in checkpoints with a vision model:
 * as transformers writes them, with zero-centred norms; as mlx-lm converts
 * them, which adds 1 to the norms and stores the convolution as [channels, K,
 * 1] (sanitize in its qwen3_5.py and qwen3_next.py); and in GGUF files. */
extern const struct names names_qwen35, names_qwen35_mlx, names_qwen35_gguf;

/* The names of Qwen3-Next's models, in the same three forms. */
extern const struct names names_qwen3next, names_qwen3next_mlx,
    names_qwen3next_gguf;

/* The names of LFM2's models: on the Hugging Face hub, MLX conversions included,
 * and in GGUF files. */
extern const struct names names_lfm2, names_lfm2_gguf;

/* The names of BERT, RoBERTa and XLM-RoBERTa on the Hugging Face hub and in GGUF
 * files, and those of ModernBERT on the hub. */
extern const struct names names_bert, names_gguf_bert, names_modernbert;

/* Whether the scheme has recurrent layers. */
static inline bool names_recurrent(const struct names *names)
{
    return names->of[WEIGHT_DELTA_CONV][0];
}

#endif
