#include "model/names.h"

#include <stdio.h>
#include <string.h>

#include "file/tensors.h"

#define LAYER "@layers.#."
#define ATTN  LAYER "self_attn."
#define MLP   LAYER "mlp."

/* The weights whose names are the same in all families of the hub. */
#define HUB_COMMON                                                         \
    [WEIGHT_EMBED] = {"@embed_tokens.weight"},                             \
    [WEIGHT_NORM] = {"@norm.weight"}, [WEIGHT_CLASSES] = {"score.weight"}, \
    [WEIGHT_ATTN_NORM] = {LAYER "input_layernorm.weight"},                 \
    [WEIGHT_Q_PROJ] = {ATTN "q_proj.weight"},                              \
    [WEIGHT_K_PROJ] = {ATTN "k_proj.weight"},                              \
    [WEIGHT_V_PROJ] = {ATTN "v_proj.weight"},                              \
    [WEIGHT_O_PROJ] = {ATTN "o_proj.weight"},                              \
    [WEIGHT_QKV_PROJ] = {ATTN "qkv_proj.weight"},                          \
    [WEIGHT_Q_BIAS] = {ATTN "q_proj.bias"},                                \
    [WEIGHT_K_BIAS] = {ATTN "k_proj.bias"},                                \
    [WEIGHT_V_BIAS] = {ATTN "v_proj.bias"},                                \
    [WEIGHT_O_BIAS] = {ATTN "o_proj.bias"},                                \
    [WEIGHT_Q_NORM] = {ATTN "q_norm.weight"},                              \
    [WEIGHT_K_NORM] = {ATTN "k_norm.weight"},                              \
    [WEIGHT_SINKS] = {ATTN "sinks"},                                       \
    [WEIGHT_GATE_PROJ] = {MLP "gate_proj.weight"},                         \
    [WEIGHT_UP_PROJ] = {MLP "up_proj.weight"},                             \
    [WEIGHT_DOWN_PROJ] = {MLP "down_proj.weight"},                         \
    [WEIGHT_GATE_UP_PROJ] = {MLP "gate_up_proj.weight"},                   \
    [WEIGHT_GATE_BIAS] = {MLP "gate_proj.bias"},                           \
    [WEIGHT_UP_BIAS] = {MLP "up_proj.bias"},                               \
    [WEIGHT_DOWN_BIAS] = {MLP "down_proj.bias"}

#define SPARSE LAYER "block_sparse_moe."

/* The weights of a mixture of experts. mlx-lm stacks experts; transformers 5
 * fuses them, without ".weight". Mixtral has names of its own. */
#define HUB_EXPERTS                                                 \
    [WEIGHT_ROUTER] = {MLP "gate.weight", SPARSE "gate.weight"},    \
    [WEIGHT_EXPERT_GATE] = {MLP "experts.*.gate_proj.weight",       \
                            SPARSE "experts.*.w1.weight"},          \
    [WEIGHT_EXPERT_UP] = {MLP "experts.*.up_proj.weight",           \
                          SPARSE "experts.*.w3.weight"},            \
    [WEIGHT_EXPERT_DOWN] = {MLP "experts.*.down_proj.weight",       \
                            SPARSE "experts.*.w2.weight"},          \
    [WEIGHT_EXPERTS_GATE] = {MLP "switch_mlp.gate_proj.weight",     \
                             SPARSE "switch_mlp.gate_proj.weight"}, \
    [WEIGHT_EXPERTS_UP] = {MLP "switch_mlp.up_proj.weight",         \
                           SPARSE "switch_mlp.up_proj.weight"},     \
    [WEIGHT_EXPERTS_GATE_UP] = {MLP "experts.gate_up_proj"},        \
    [WEIGHT_EXPERTS_DOWN] = {MLP "switch_mlp.down_proj.weight",     \
                             SPARSE "switch_mlp.down_proj.weight",  \
                             MLP "experts.down_proj"}

/* Those of gpt-oss. */
#define GPT_OSS_EXPERTS                                                \
    [WEIGHT_ROUTER] = {MLP "router.weight"},                           \
    [WEIGHT_ROUTER_BIAS] = {MLP "router.bias"},                        \
    [WEIGHT_EXPERTS_GATE] = {MLP "experts.gate_proj.weight"},          \
    [WEIGHT_EXPERTS_UP] = {MLP "experts.up_proj.weight"},              \
    [WEIGHT_EXPERTS_GATE_UP] = {MLP "experts.gate_up_proj"},           \
    [WEIGHT_EXPERTS_DOWN] = {MLP "experts.down_proj.weight",           \
                             MLP "experts.down_proj"},                 \
    [WEIGHT_EXPERTS_GATE_BIAS] = {MLP "experts.gate_proj.bias"},       \
    [WEIGHT_EXPERTS_UP_BIAS] = {MLP "experts.up_proj.bias"},           \
    [WEIGHT_EXPERTS_GATE_UP_BIAS] = {MLP "experts.gate_up_proj_bias"}, \
    [WEIGHT_EXPERTS_DOWN_BIAS] = {MLP "experts.down_proj.bias",        \
                                  MLP "experts.down_proj_bias"}

#define HUB_SHARED                                                      \
    [WEIGHT_SHARED_GATE_PROJ] = {MLP "shared_expert.gate_proj.weight"}, \
    [WEIGHT_SHARED_UP_PROJ] = {MLP "shared_expert.up_proj.weight"},     \
    [WEIGHT_SHARED_DOWN_PROJ] = {MLP "shared_expert.down_proj.weight"}, \
    [WEIGHT_SHARED_GATE] = {MLP "shared_expert_gate.weight"}

/* In checkpoints with a vision model, transformers 4 and 5 write different
 * prefixes. A bare model's has none, as that of Qwen3-Embedding. */
#define HUB_PREFIXES                                                         \
    {                                                                        \
        "model.", "language_model.model.", "model.language_model.", "", NULL \
    }
#define HUB_HEAD \
    [WEIGHT_HEAD] = {"lm_head.weight", "language_model.lm_head.weight"}

/* GLM-4 has norms of results beside those of Llama. */
const struct names names_hub = {
    .config = "config.json",
    .prefixes = HUB_PREFIXES,
    .of = {
        HUB_COMMON, HUB_EXPERTS, HUB_SHARED,
        HUB_HEAD, [WEIGHT_MLP_NORM] = {LAYER "post_attention_layernorm.weight"},
        [WEIGHT_ATTN_POST_NORM] = {LAYER "post_self_attn_layernorm.weight"},
        [WEIGHT_MLP_POST_NORM] = {LAYER "post_mlp_layernorm.weight"}}};

const struct names names_gpt_oss = {
    .config = "config.json",
    .prefixes = HUB_PREFIXES,
    .of = {HUB_COMMON, HUB_HEAD, GPT_OSS_EXPERTS,
           [WEIGHT_MLP_NORM] = {LAYER "post_attention_layernorm.weight"}}};

const struct names names_hub_post = {
    .config = "config.json",
    .prefixes = HUB_PREFIXES,
    .of = {
        HUB_COMMON, HUB_HEAD,
        [WEIGHT_ATTN_POST_NORM] = {LAYER "post_attention_layernorm.weight"},
        [WEIGHT_MLP_POST_NORM] = {LAYER "post_feedforward_layernorm.weight"}}};

#define GEMMA                                                                \
    HUB_COMMON, HUB_HEAD,                                                    \
        [WEIGHT_ATTN_POST_NORM] = {LAYER "post_attention_layernorm.weight"}, \
        [WEIGHT_MLP_NORM] = {LAYER "pre_feedforward_layernorm.weight"},      \
        [WEIGHT_MLP_POST_NORM] = {LAYER "post_feedforward_layernorm.weight"}

const struct names names_gemma = {.config = "config.json",
                                  .prefixes = HUB_PREFIXES,
                                  .of = {GEMMA},
                                  .plus = {[WEIGHT_NORM] = 1,
                                           [WEIGHT_ATTN_NORM] = 1,
                                           [WEIGHT_ATTN_POST_NORM] = 1,
                                           [WEIGHT_MLP_NORM] = 1,
                                           [WEIGHT_MLP_POST_NORM] = 1,
                                           [WEIGHT_Q_NORM] = 1,
                                           [WEIGHT_K_NORM] = 1}};

const struct names names_gemma1 = {
    .config = "config.json",
    .prefixes = HUB_PREFIXES,
    .of = {HUB_COMMON, HUB_HEAD,
           [WEIGHT_MLP_NORM] = {LAYER "post_attention_layernorm.weight"}},
    .plus = {[WEIGHT_NORM] = 1, [WEIGHT_ATTN_NORM] = 1, [WEIGHT_MLP_NORM] = 1}};

const struct names names_gemma4 = {
    .config = "config.json",
    .prefixes = HUB_PREFIXES,
    .of = {
        GEMMA, [WEIGHT_LAYER_SCALE] = {LAYER "layer_scalar"},
        [WEIGHT_PLE_EMBED] = {"@embed_tokens_per_layer.weight"},
        [WEIGHT_PLE_MODEL_PROJ] = {"@per_layer_model_projection.weight"},
        [WEIGHT_PLE_MODEL_NORM] = {"@per_layer_projection_norm.weight"},
        [WEIGHT_PLE_GATE] = {LAYER "per_layer_input_gate.weight"},
        [WEIGHT_PLE_PROJ] = {LAYER "per_layer_projection.weight"},
        [WEIGHT_PLE_NORM] = {LAYER "post_per_layer_input_norm.weight"},
        [WEIGHT_ROUTER] = {LAYER "router.proj.weight"},
        [WEIGHT_ROUTER_SCALE] = {LAYER "router.scale"},
        [WEIGHT_EXPERT_SCALES] = {LAYER "router.per_expert_scale"},
        [WEIGHT_DENSE_POST_NORM] = {LAYER
                                    "post_feedforward_layernorm_1.weight"},
        [WEIGHT_EXPERTS_NORM] = {LAYER "pre_feedforward_layernorm_2.weight"},
        [WEIGHT_EXPERTS_POST_NORM] = {LAYER
                                      "post_feedforward_layernorm_2.weight"},
        [WEIGHT_EXPERTS_GATE] = {LAYER "experts.switch_glu.gate_proj.weight"},
        [WEIGHT_EXPERTS_UP] = {LAYER "experts.switch_glu.up_proj.weight"},
        [WEIGHT_EXPERTS_GATE_UP] = {LAYER "experts.gate_up_proj"},
        [WEIGHT_EXPERTS_DOWN] = {LAYER "experts.switch_glu.down_proj.weight",
                                 LAYER "experts.down_proj"}}};

#define LINEAR LAYER "linear_attn."

/* Weights of Qwen3.5 and Qwen3-Next. */
#define QWEN35_COMMON                                                  \
    HUB_COMMON, HUB_EXPERTS, HUB_SHARED, HUB_HEAD,                     \
        [WEIGHT_MLP_NORM] = {LAYER "post_attention_layernorm.weight"}, \
        [WEIGHT_DELTA_OUT] = {LINEAR "out_proj.weight"},               \
        [WEIGHT_DELTA_CONV] = {LINEAR "conv1d.weight"},                \
        [WEIGHT_DELTA_A_LOG] = {LINEAR "A_log"},                       \
        [WEIGHT_DELTA_DT_BIAS] = {LINEAR "dt_bias"},                   \
        [WEIGHT_DELTA_NORM] = {LINEAR "norm.weight"}

#define QWEN35                                                         \
    QWEN35_COMMON, [WEIGHT_DELTA_QKV] = {LINEAR "in_proj_qkv.weight"}, \
                   [WEIGHT_DELTA_Z] = {LINEAR "in_proj_z.weight"},     \
                   [WEIGHT_DELTA_B] = {LINEAR "in_proj_b.weight"},     \
                   [WEIGHT_DELTA_A] = {LINEAR "in_proj_a.weight"}

#define QWEN3NEXT                                                        \
    QWEN35_COMMON, [WEIGHT_DELTA_QKVZ] = {LINEAR "in_proj_qkvz.weight"}, \
                   [WEIGHT_DELTA_BA] = {LINEAR "in_proj_ba.weight"}

#define QWEN35_PLUS                                                       \
    {                                                                     \
        [WEIGHT_NORM] = 1, [WEIGHT_ATTN_NORM] = 1, [WEIGHT_MLP_NORM] = 1, \
        [WEIGHT_Q_NORM] = 1, [WEIGHT_K_NORM] = 1                          \
    }

const struct names names_qwen35 = {.config = "config.json",
                                   .prefixes = HUB_PREFIXES,
                                   .of = {QWEN35},
                                   .plus = QWEN35_PLUS};

const struct names names_qwen3next = {.config = "config.json",
                                      .prefixes = HUB_PREFIXES,
                                      .of = {QWEN3NEXT},
                                      .plus = QWEN35_PLUS};

/* A convolution [channels, K, 1] is mlx-lm's. K is at least 2 (arch_qwen35.c),
 * so that no shape is both. */
static bool fits_mlx(const struct st_set *set)
{
    static const char conv[] = ".conv1d.weight";
    for (size_t i = 0; i < st_count(set); i++) {
        const struct st_tensor *t = st_at(set, i);
        size_t n = sizeof conv - 1;
        if (t->name_len > n && t->rank == 3 &&
            memcmp(t->name + t->name_len - n, conv, n) == 0)
            return t->shape[2] == 1;
    }
    return false;
}

const struct names names_qwen35_mlx = {.config = "config.json",
                                       .prefixes = HUB_PREFIXES,
                                       .of = {QWEN35},
                                       .fits = fits_mlx};

const struct names names_qwen3next_mlx = {.config = "config.json",
                                          .prefixes = HUB_PREFIXES,
                                          .of = {QWEN3NEXT},
                                          .fits = fits_mlx};

#define ENCODER  "@encoder.layer.#."
#define SELF     ENCODER "attention.self."
#define ATTENDED ENCODER "attention.output."

/* Files of the first converters have the names of TensorFlow's norms. */
const struct names names_bert = {
    .config = "config.json",
    .prefixes = {"bert.", "roberta.", "", NULL},
    .of = {
        [WEIGHT_EMBED] = {"@embeddings.word_embeddings.weight"},
        [WEIGHT_POSITIONS] = {"@embeddings.position_embeddings.weight"},
        [WEIGHT_TYPES] = {"@embeddings.token_type_embeddings.weight"},
        [WEIGHT_EMBED_NORM] = {"@embeddings.LayerNorm.weight",
                               "@embeddings.LayerNorm" NAMES_GAMMA},
        [WEIGHT_Q_PROJ] = {SELF "query.weight"},
        [WEIGHT_K_PROJ] = {SELF "key.weight"},
        [WEIGHT_V_PROJ] = {SELF "value.weight"},
        [WEIGHT_O_PROJ] = {ATTENDED "dense.weight"},
        [WEIGHT_Q_BIAS] = {SELF "query.bias"},
        [WEIGHT_K_BIAS] = {SELF "key.bias"},
        [WEIGHT_V_BIAS] = {SELF "value.bias"},
        [WEIGHT_O_BIAS] = {ATTENDED "dense.bias"},
        [WEIGHT_MLP_NORM] = {ATTENDED "LayerNorm.weight",
                             ATTENDED "LayerNorm" NAMES_GAMMA},
        [WEIGHT_GATE_PROJ] = {ENCODER "intermediate.dense.weight"},
        [WEIGHT_GATE_BIAS] = {ENCODER "intermediate.dense.bias"},
        [WEIGHT_DOWN_PROJ] = {ENCODER "output.dense.weight"},
        [WEIGHT_DOWN_BIAS] = {ENCODER "output.dense.bias"},
        [WEIGHT_NORM] = {ENCODER "output.LayerNorm.weight",
                         ENCODER "output.LayerNorm" NAMES_GAMMA},
        [WEIGHT_CLASS_DENSE] = {"classifier.dense.weight",
                                "@pooler.dense.weight"},
        [WEIGHT_CLASS_DENSE_BIAS] = {"classifier.dense.bias",
                                     "@pooler.dense.bias"},
        [WEIGHT_CLASSES] = {"classifier.out_proj.weight", "classifier.weight"},
        [WEIGHT_CLASS_BIAS] = {"classifier.out_proj.bias",
                               "classifier.bias"}}};

const struct names names_modernbert = {
    .config = "config.json",
    .prefixes = {"model.", "", NULL},
    .of = {[WEIGHT_EMBED] = {"@embeddings.tok_embeddings.weight"},
           [WEIGHT_EMBED_NORM] = {"@embeddings.norm.weight"},
           [WEIGHT_NORM] = {"@final_norm.weight"},
           [WEIGHT_ATTN_NORM] = {LAYER "attn_norm.weight"},
           [WEIGHT_QKV_PROJ] = {LAYER "attn.Wqkv.weight"},
           [WEIGHT_QKV_BIAS] = {LAYER "attn.Wqkv.bias"},
           [WEIGHT_O_PROJ] = {LAYER "attn.Wo.weight"},
           [WEIGHT_O_BIAS] = {LAYER "attn.Wo.bias"},
           [WEIGHT_MLP_NORM] = {LAYER "mlp_norm.weight"},
           [WEIGHT_GATE_UP_PROJ] = {LAYER "mlp.Wi.weight"},
           [WEIGHT_GATE_UP_BIAS] = {LAYER "mlp.Wi.bias"},
           [WEIGHT_DOWN_PROJ] = {LAYER "mlp.Wo.weight"},
           [WEIGHT_DOWN_BIAS] = {LAYER "mlp.Wo.bias"},
           [WEIGHT_CLASS_DENSE] = {"head.dense.weight"},
           [WEIGHT_CLASS_DENSE_BIAS] = {"head.dense.bias"},
           [WEIGHT_CLASS_NORM] = {"head.norm.weight"},
           [WEIGHT_CLASSES] = {"classifier.weight"},
           [WEIGHT_CLASS_BIAS] = {"classifier.bias"}}};

#define BLOCK "blk.#."

/* Those of encoders, too. */
#define GGUF_BASE                                                              \
    [WEIGHT_EMBED] = {"token_embd.weight"}, [WEIGHT_HEAD] = {"output.weight"}, \
    [WEIGHT_EMBED_NORM] = {"token_embd_norm.weight"},                          \
    [WEIGHT_CLASS_BIAS] = {"cls.output.bias"},                                 \
    [WEIGHT_CLASS_DENSE] = {"cls.weight"},                                     \
    [WEIGHT_CLASS_DENSE_BIAS] = {"cls.bias"},                                  \
    [WEIGHT_CLASS_NORM] = {"cls.norm.weight"},                                 \
    [WEIGHT_ROPE_FACTORS] = {"rope_freqs.weight"},                             \
    [WEIGHT_ROPE_SHORT] = {"rope_factors_short.weight"},                       \
    [WEIGHT_ROPE_LONG] = {"rope_factors_long.weight"},                         \
    [WEIGHT_CLASSES] = {"cls.output.weight"},                                  \
    [WEIGHT_ATTN_NORM] = {BLOCK "attn_norm.weight"},                           \
    [WEIGHT_Q_PROJ] = {BLOCK "attn_q.weight"},                                 \
    [WEIGHT_K_PROJ] = {BLOCK "attn_k.weight"},                                 \
    [WEIGHT_V_PROJ] = {BLOCK "attn_v.weight"},                                 \
    [WEIGHT_O_PROJ] = {BLOCK "attn_output.weight"},                            \
    [WEIGHT_Q_BIAS] = {BLOCK "attn_q.bias"},                                   \
    [WEIGHT_K_BIAS] = {BLOCK "attn_k.bias"},                                   \
    [WEIGHT_V_BIAS] = {BLOCK "attn_v.bias"},                                   \
    [WEIGHT_O_BIAS] = {BLOCK "attn_output.bias"},                              \
    [WEIGHT_Q_NORM] = {BLOCK "attn_q_norm.weight"},                            \
    [WEIGHT_K_NORM] = {BLOCK "attn_k_norm.weight"},                            \
    [WEIGHT_SINKS] = {BLOCK "attn_sinks.weight"},                              \
    [WEIGHT_DOWN_PROJ] = {BLOCK "ffn_down.weight"},                            \
    [WEIGHT_DOWN_BIAS] = {BLOCK "ffn_down.bias"},                              \
    [WEIGHT_ROUTER] = {BLOCK "ffn_gate_inp.weight"},                           \
    [WEIGHT_EXPERTS_GATE] = {BLOCK "ffn_gate_exps.weight"},                    \
    [WEIGHT_EXPERTS_UP] = {BLOCK "ffn_up_exps.weight"},                        \
    [WEIGHT_EXPERTS_GATE_UP] = {BLOCK "ffn_gate_up_exps.weight"},              \
    [WEIGHT_EXPERTS_DOWN] = {BLOCK "ffn_down_exps.weight"},                    \
    [WEIGHT_ROUTER_BIAS] = {BLOCK "ffn_gate_inp.bias"},                        \
    [WEIGHT_EXPERTS_GATE_BIAS] = {BLOCK "ffn_gate_exps.bias"},                 \
    [WEIGHT_EXPERTS_UP_BIAS] = {BLOCK "ffn_up_exps.bias"},                     \
    [WEIGHT_EXPERTS_DOWN_BIAS] = {BLOCK "ffn_down_exps.bias"}

#define GGUF_COMMON                                   \
    GGUF_BASE, [WEIGHT_NORM] = {"output_norm.weight"}, \
               [WEIGHT_GATE_BIAS] = {BLOCK "ffn_gate.bias"}, \
               [WEIGHT_UP_BIAS] = {BLOCK "ffn_up.bias"}

#define GGUF_GATE_UP                                                     \
    [WEIGHT_GATE_PROJ] = {BLOCK "ffn_gate.weight"}, [WEIGHT_UP_PROJ] = { \
                                                        BLOCK "ffn_up.weight"}

#define GGUF_SHARED                                              \
    [WEIGHT_SHARED_GATE_PROJ] = {BLOCK "ffn_gate_shexp.weight"}, \
    [WEIGHT_SHARED_UP_PROJ] = {BLOCK "ffn_up_shexp.weight"},     \
    [WEIGHT_SHARED_DOWN_PROJ] = {BLOCK "ffn_down_shexp.weight"}, \
    [WEIGHT_SHARED_GATE] = {BLOCK "ffn_gate_inp_shexp.weight"}

#define GGUF_NORMS                                                  \
    [WEIGHT_MLP_NORM] = {BLOCK "ffn_norm.weight"},                  \
    [WEIGHT_ATTN_POST_NORM] = {BLOCK "post_attention_norm.weight"}, \
    [WEIGHT_MLP_POST_NORM] = {BLOCK "post_ffw_norm.weight"}

#define GGUF_GEMMA4                                              \
    [WEIGHT_PLE_EMBED] = {"per_layer_token_embd.weight"},        \
    [WEIGHT_PLE_MODEL_PROJ] = {"per_layer_model_proj.weight"},   \
    [WEIGHT_PLE_MODEL_NORM] = {"per_layer_proj_norm.weight"},    \
    [WEIGHT_LAYER_SCALE] = {BLOCK "layer_output_scale.weight"},  \
    [WEIGHT_PLE_GATE] = {BLOCK "inp_gate.weight"},               \
    [WEIGHT_PLE_PROJ] = {BLOCK "proj.weight"},                   \
    [WEIGHT_PLE_NORM] = {BLOCK "post_norm.weight"},              \
    [WEIGHT_ROUTER_SCALE] = {BLOCK "ffn_gate_inp.scale"},        \
    [WEIGHT_EXPERT_SCALES] = {BLOCK "ffn_down_exps.scale"},      \
    [WEIGHT_DENSE_POST_NORM] = {BLOCK "post_ffw_norm_1.weight"}, \
    [WEIGHT_EXPERTS_NORM] = {BLOCK "pre_ffw_norm_2.weight"},     \
    [WEIGHT_EXPERTS_POST_NORM] = {BLOCK "post_ffw_norm_2.weight"}

/* Converters add 1 to zero-centred norms, so `plus` is 0 for all. */
const struct names names_gguf = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .of = {GGUF_COMMON, GGUF_GATE_UP, GGUF_SHARED, GGUF_NORMS, GGUF_GEMMA4}};

const struct names *const names_llama[] = {&names_hub, &names_gguf, NULL};

const struct names names_gguf_oss = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .of = {GGUF_COMMON, GGUF_GATE_UP,
           [WEIGHT_MLP_NORM] = {BLOCK "post_attention_norm.weight"}}};

const struct names names_gguf_fused = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .of = {GGUF_COMMON,
           GGUF_NORMS, [WEIGHT_QKV_PROJ] = {BLOCK "attn_qkv.weight"},
           [WEIGHT_QKV_BIAS] = {BLOCK "attn_qkv.bias"},
           [WEIGHT_GATE_UP_PROJ] = {BLOCK "ffn_up.weight"},
           [WEIGHT_GATE_UP_BIAS] = {BLOCK "ffn_up.bias"}}};

const struct names names_gguf_bert = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .of = {GGUF_BASE,
           [WEIGHT_POSITIONS] = {"position_embd.weight"},
           [WEIGHT_TYPES] = {"token_types.weight"},
           [WEIGHT_NORM] = {BLOCK "layer_output_norm.weight"},
           [WEIGHT_MLP_NORM] = {BLOCK "attn_output_norm.weight"},
           [WEIGHT_GATE_PROJ] = {BLOCK "ffn_up.weight"},
           [WEIGHT_GATE_BIAS] = {BLOCK "ffn_up.bias"}}};

#define QWEN35_GGUF                                                            \
    GGUF_COMMON, GGUF_GATE_UP,                                                 \
        GGUF_SHARED, [WEIGHT_MLP_NORM] = {BLOCK "post_attention_norm.weight"}, \
                     [WEIGHT_DELTA_QKV] = {BLOCK "attn_qkv.weight"},           \
                     [WEIGHT_DELTA_Z] = {BLOCK "attn_gate.weight"},            \
                     [WEIGHT_DELTA_OUT] = {BLOCK "ssm_out.weight"},            \
                     [WEIGHT_DELTA_CONV] = {BLOCK "ssm_conv1d.weight"},        \
                     [WEIGHT_DELTA_DECAY] = {BLOCK "ssm_a"},                   \
                     [WEIGHT_DELTA_DT_BIAS] = {BLOCK "ssm_dt.bias",            \
                                               BLOCK "ssm_dt"},                \
                     [WEIGHT_DELTA_NORM] = {BLOCK "ssm_norm.weight"}

const struct names names_qwen35_gguf = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .tiled = true,
    .of = {QWEN35_GGUF, [WEIGHT_DELTA_B] = {BLOCK "ssm_beta.weight"},
           [WEIGHT_DELTA_A] = {BLOCK "ssm_alpha.weight"}}};

/* Files of older converters have the packed ssm_in. */
const struct names names_qwen3next_gguf = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .of = {QWEN35_GGUF, [WEIGHT_DELTA_QKVZ] = {BLOCK "ssm_in.weight"},
           [WEIGHT_DELTA_BA] = {BLOCK "ssm_ba.weight"}}};

#define SHORT LAYER "conv."
#define FEED  LAYER "feed_forward."

/* mlx-lm stacks the experts of LFM2-MoE, and calls the dense MLP's matrices as
 * theirs; transformers may fuse experts, without ".weight". */
const struct names names_lfm2 = {
    .config = "config.json",
    .prefixes = HUB_PREFIXES,
    .of = {
        HUB_HEAD,
        [WEIGHT_EMBED] = {"@embed_tokens.weight"},
        [WEIGHT_NORM] = {"@embedding_norm.weight"},
        [WEIGHT_ATTN_NORM] = {LAYER "operator_norm.weight"},
        [WEIGHT_MLP_NORM] = {LAYER "ffn_norm.weight"},
        [WEIGHT_Q_PROJ] = {ATTN "q_proj.weight"},
        [WEIGHT_K_PROJ] = {ATTN "k_proj.weight"},
        [WEIGHT_V_PROJ] = {ATTN "v_proj.weight"},
        [WEIGHT_O_PROJ] = {ATTN "out_proj.weight"},
        [WEIGHT_Q_NORM] = {ATTN "q_layernorm.weight"},
        [WEIGHT_K_NORM] = {ATTN "k_layernorm.weight"},
        [WEIGHT_GATE_PROJ] = {FEED "w1.weight", FEED "gate_proj.weight"},
        [WEIGHT_UP_PROJ] = {FEED "w3.weight", FEED "up_proj.weight"},
        [WEIGHT_DOWN_PROJ] = {FEED "w2.weight", FEED "down_proj.weight"},
        [WEIGHT_ROUTER] = {FEED "gate.weight"},
        [WEIGHT_SELECT_BIAS] = {FEED "expert_bias"},
        [WEIGHT_EXPERT_GATE] = {FEED "experts.*.w1.weight"},
        [WEIGHT_EXPERT_UP] = {FEED "experts.*.w3.weight"},
        [WEIGHT_EXPERT_DOWN] = {FEED "experts.*.w2.weight"},
        [WEIGHT_EXPERTS_GATE] = {FEED "switch_mlp.gate_proj.weight"},
        [WEIGHT_EXPERTS_UP] = {FEED "switch_mlp.up_proj.weight"},
        [WEIGHT_EXPERTS_GATE_UP] = {FEED "experts.gate_up_proj"},
        [WEIGHT_EXPERTS_DOWN] = {FEED "switch_mlp.down_proj.weight",
                                 FEED "experts.down_proj"},
        [WEIGHT_DELTA_QKV] = {SHORT "in_proj.weight"},
        [WEIGHT_DELTA_CONV] = {SHORT "conv.weight"},
        [WEIGHT_DELTA_OUT] = {SHORT "out_proj.weight"}}};

/* The last norm has an embedding's name. */
const struct names names_lfm2_gguf = {
    .config = "its metadata",
    .prefixes = {"", NULL},
    .of = {GGUF_BASE, GGUF_GATE_UP,
           [WEIGHT_NORM] = {"token_embd_norm.weight"},
           [WEIGHT_MLP_NORM] = {BLOCK "ffn_norm.weight"},
           [WEIGHT_SELECT_BIAS] = {BLOCK "exp_probs_b.bias"},
           [WEIGHT_DELTA_QKV] = {BLOCK "shortconv.in_proj.weight"},
           [WEIGHT_DELTA_CONV] = {BLOCK "shortconv.conv.weight"},
           [WEIGHT_DELTA_OUT] = {BLOCK "shortconv.out_proj.weight"}}};

bool names_expand(char *out, const struct names *names, const char *prefix,
                  struct weight_ref ref, size_t v)
{
    const char *pattern = v < NAMES_MAX_VARIANTS ? names->of[ref.id][v] : NULL;
    size_t at = 0;
    out[0] = '\0';
    if (!pattern)
        return false;
    for (const char *p = pattern; *p && at < NAMES_BYTES; p++) {
        int n;
        if (*p == '@')
            n = snprintf(out + at, NAMES_BYTES - at, "%s", prefix);
        else if (*p == '#' || *p == '*')
            n = snprintf(out + at, NAMES_BYTES - at, "%zu",
                         *p == '#' ? ref.layer : ref.expert);
        else
            n = snprintf(out + at, NAMES_BYTES - at, "%c", *p);
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

size_t names_module(const char *name)
{
    static const char *const tails[] = {".weight", NAMES_GAMMA, NAMES_BLOCKS,
                                        NAMES_PACKED, NAMES_QWEIGHT};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t tail = strlen(tails[i]);
        if (n > tail && strcmp(name + n - tail, tails[i]) == 0)
            return n - tail;
    }
    return n;
}

struct naming names_choose(const struct names *const *schemes,
                           const struct st_set *set)
{
    const struct weight_ref embed = {.id = WEIGHT_EMBED};
    char name[NAMES_BYTES];
    for (size_t i = 0; schemes[i]; i++) {
        if (schemes[i]->fits && !schemes[i]->fits(set))
            continue;
        for (size_t j = 0; schemes[i]->prefixes[j]; j++) {
            names_expand(name, schemes[i], schemes[i]->prefixes[j], embed, 0);
            if (st_find(set, name))
                return (struct naming){schemes[i], schemes[i]->prefixes[j]};
        }
    }
    return (struct naming){schemes[0], schemes[0]->prefixes[0]};
}
