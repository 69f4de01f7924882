/* config.json and generation_config.json, in the spelling of Transformers 4
 * (rope_theta, rope_scaling, torch_dtype) and of 5 (rope_parameters, dtype,
 * layer_types). If a field that changes results is missing, the default that
 * transformers documents applies; without one it is an error. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/checkpoint.h"
#include "file/json.h"
#include "model/quant.h"

struct arch;

/* What a checkpoint is for, by the end of its architectures, of which the last
 * kind here counts. */
enum model_class {
    CLASS_NONE,       /* the file does not say */
    CLASS_LANGUAGE,   /* ForCausalLM, ForConditionalGeneration */
    CLASS_BARE,       /* Model, ForMaskedLM: hidden states, no head for
                         generation */
    CLASS_OTHER,      /* not known here */
    CLASS_CLASSIFIER, /* ForSequenceClassification: scores of labels */
};

enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_YARN,
    ROPE_LLAMA3,
    ROPE_LONGROPE,
    ROPE_PROPORTIONAL
};

enum {
    CONFIG_MAX_STOP_IDS = 64,
    CONFIG_MAX_ROPES = 2,
    CONFIG_MAX_FACTORS = 256
};

/* A rotary embedding that layers share. */
struct rope_config {
    enum rope_type type; /* rope_scaling | rope_parameters: rope_type */
    size_t n_rot;        /* elements of a head that rotate: the first ones */
    bool interleaved;    /* elements 2i and 2i + 1 rotate together; otherwise i
                            and i + n_rot / 2 */
    double theta;        /* rope_theta | rope_parameters.rope_theta */
    double factor;       /* .factor */
    double beta_fast;    /* .beta_fast */
    double beta_slow;    /* .beta_slow */
    double low_freq;     /* .low_freq_factor */
    double high_freq;    /* .high_freq_factor */
    double q_beta;       /* .llama_4_scaling_beta; 0: none. Queries at position
                            p are multiplied by
                            1 + q_beta * ln(1 + floor(p / original)) */
    double attention;    /* .attention_factor, or computed from mscale: a factor
                            of cos and sin */
    size_t original;     /* .original_max_position_embeddings */
    bool truncate;       /* .truncate */
    size_t n_turning;    /* of proportional: frequencies that are not 0, the
                            first ones, from partial_rotary_factor */
    /* [n_rot / 2] of longrope: divisors of the frequencies of sequences of at
       most `original` tokens, and of longer ones */
    float short_factor[CONFIG_MAX_FACTORS], long_factor[CONFIG_MAX_FACTORS];
};

/* The window of a layer that attends to all positions. */
#define NO_WINDOW SIZE_MAX

/* The rope of a layer that rotates nothing. */
#define NO_ROPE SIZE_MAX

/* The parameters of one layer. */
struct layer_config {
    size_t slot;       /* index among the layers of its kind: layers with
                          keys, or recurrent layers */
    size_t window;     /* positions that a token attends to, itself included */
    size_t rope;       /* index into config.ropes; NO_ROPE: none */
    size_t n_kv_heads; /* of keys and values */
    size_t head_dim;
    size_t kv_back;    /* 0: the layer has its own keys and values; otherwise
                          it reads those of layer i - kv_back, which has the
                          same window and the same heads */
    bool v_from_k;     /* values are the results of k_proj, before the norm and
                          the rotation of keys */
    float score_scale; /* of q . k */
    size_t d_ff;       /* rows of the dense MLP's gate_proj and up_proj; 0: the
                          layer has none */
    size_t expert_ff;  /* of one expert's; 0 without experts */
    size_t n_experts;  /* 0: one dense MLP */
    size_t n_active;   /* experts of each token; 0 without experts */
    size_t shared_ff;  /* rows of the shared expert's gate_proj; 0: none */
    bool recurrent;    /* Gated DeltaNet or a short convolution in place of
                          attention: the layer has no keys and values, but a
                          state */
};

/* The shape of all recurrent layers: Gated DeltaNet, or a short convolution,
 * whose state is only the tail of the convolution. */
struct delta_config {
    size_t n_k_heads; /* linear_num_key_heads; 0: the model has no such layer */
    size_t n_v_heads; /* linear_num_value_heads, a multiple of n_k_heads */
    size_t d_k;       /* linear_key_head_dim */
    size_t d_v;       /* linear_value_head_dim */
    size_t conv;      /* linear_conv_kernel_dim, conv_L_cache */
    size_t n_short;   /* channels of a short convolution; 0: the model has no
                         such layer */
};

/* Channels of the convolution: queries, keys, then values; or those of a short
 * one. */
static inline size_t delta_channels(const struct delta_config *d)
{
    return 2 * d->n_k_heads * d->d_k + d->n_v_heads * d->d_v + d->n_short;
}

struct config {
    const struct arch *arch; /* the family */
    char model_type[32];     /* model_type */
    enum model_class class;  /* architectures */
    char class_name[64];     /* the one that counts, cut and safe in messages */
    char own_code[64]; /* the first auto_map.AutoModel…, in the same form;
                          "": none */
    size_t vocab_size;       /* vocab_size */
    size_t d_model;          /* hidden_size */
    size_t d_ff;             /* intermediate_size */
    size_t n_layers;         /* num_hidden_layers */
    size_t n_heads;          /* num_attention_heads */
    size_t n_kv_heads;       /* num_key_value_heads: of layers without a number
                                of their own */
    size_t head_dim;         /* head_dim: likewise */
    size_t n_ctx_max;        /* max_position_embeddings */
    double rms_eps;          /* rms_norm_eps */
    float embed_scale;       /* factor of the embeddings before layer 0; 1
                                unless the family has another */
    float residual_scale;    /* of the results of attention and MLP before they
                                are added to the residual stream; 1 likewise */
    float logit_scale;       /* of logits; 1 likewise */
    struct rope_config ropes[CONFIG_MAX_ROPES];
    size_t n_ropes;
    bool tied_head; /* tie_word_embeddings; model_open clears it if there is
                       a head */
    size_t n_classes;    /* rows of a reranker's own head, 0 without one: 1, of
                            the log-odds of yes; or 2, of yes and no. model_open
                            sets it for CLASS_CLASSIFIER */
    size_t n_labels;     /* members of id2label, or num_labels; 0: not said */
    bool class_mean;     /* of an encoder: classes read the mean of all tokens'
                            states; otherwise the first token's */
    bool class_mean_assumed; /* the file does not say which */
    size_t yes_class;    /* which of them is yes */
    bool qkv_bias, o_bias, mlp_bias; /* attention_bias and the like */
    bool class_dense_bias; /* the layer before an encoder's classes has biases */
    bool norm_bias;   /* norms have biases (blocks.layer_norm); otherwise 0 */
    bool expert_bias; /* routers and experts have biases */
    float attn_cap;   /* attn_logit_softcapping c: a score s becomes
                         c * tanh(s / c); 0: none */
    float logit_cap;  /* final_logit_softcapping: logits likewise, after
                         their scale. Logits that become equal rank by id */
    size_t ple_dim;   /* hidden_size_per_layer_input: values of each token for
                         each layer; 0: none */
    size_t ple_vocab_size; /* vocab_size_per_layer_input: rows of their table,
                              at least vocab_size */
    bool bidirectional; /* a text encoder: each token attends to tokens before
                           and after it, within layer_config.window - 1
                           positions on both sides. Nothing is generated, and
                           a pass takes whole sequences */
    size_t n_positions;    /* rows of a table of positions that is added to the
                              embeddings, from the row of the first token on; 0:
                              none */
    size_t first_position; /* the row of the first token in the file's table */
    size_t n_types; /* type_vocab_size: rows of a table of the types of tokens
                       (struct span); 0: none */
    bool attention_gate; /* q_proj has a head of gates behind each head of
                            queries */
    size_t sliding_window; /* sliding_window where use_sliding_window, or 0 */
    bool select_bias;      /* use_expert_bias: the choice of experts adds
                              biases to their scores */
    float routed_scale;    /* routed_scaling_factor: of the weights of a token's
                              experts; 1 unless the family has another */
    bool norm_topk_prob;   /* norm_topk_prob: the weights of a token's experts
                              sum to 1 */
    struct delta_config delta;
    struct layer_config *layers;           /* [n_layers] */
    int32_t stop_ids[CONFIG_MAX_STOP_IDS]; /* eos_token_id of both files */
    size_t n_stop_ids;
    struct quant quant; /* quantization, quantization_config */

    /* generation_config.json */
    bool do_sample; /* false also when the file is absent */
    double temperature, top_p, min_p, repetition_penalty; /* 1, 1, 0, 1 */
    size_t top_k; /* 0: off; transformers' default is 50 */
    /* [n_suppress] ids that are never drawn: suppress_tokens, and bad_words_ids
       of one token; then [n_begin] ids that are not drawn first:
       begin_suppress_tokens */
    int32_t *suppress;
    size_t n_suppress, n_begin;
    size_t min_new_tokens; /* min_new_tokens: tokens before a stop id */
    size_t min_length;     /* min_length: those and the prompt's */
    /* The first field, with its value, that changes answers in a way that we do
       not have; empty if there is none. The second one counts only for drawn
       tokens. */
    char unsupported[160], unsupported_draw[160];
};

/* Return the family of a config.json, by model_type and text_config.model_type;
 * NULL if it is not known. *wrapped: its fields are in text_config. */
const struct arch *config_find_arch(const struct json_value *root,
                                    bool *wrapped);

/* Read and check both files, or a GGUF file's metadata. */
int config_load(struct config *c, const struct checkpoint *ck,
                struct qwick_err *e);
void config_free(struct config *c);

/* Whether some layer's scores are the products of queries and keys, without a
 * scale. They amplify roundings. */
bool config_unscaled(const struct config *c);

/* Set the slot of each layer: its index among the layers of its kind.
 * config_load calls it. */
void config_number_layers(struct config *c);

/* Add a stop id unless it is there already. -1 when the list is full. */
int config_add_stop(struct config *c, int32_t id);

/* "default", "linear", "yarn", "llama3", "longrope" or "proportional". */
const char *config_rope_name(const struct rope_config *r);

/* Compute the inverse frequencies [n_rot / 2] of a rotary embedding, with the
 * same float32 roundings as transformers (_compute_default_rope_parameters and
 * the functions beside it in modeling_rope_utils.py). is_long: with longrope,
 * those of sequences longer than the original length. */
void config_rope_frequencies(const struct rope_config *r, bool is_long,
                             float *inv_freq);

/* ---- for families -------------------------------------------------------- */

/* Larger than any real model, small enough that products of two fit size_t
 * and that a hostile file cannot ask for absurd tables. */
enum {
    MAX_DIM = 1 << 24,
    MAX_LAYERS = 1 << 14,
    MAX_VOCAB = 1 << 28,
    MAX_EXPERTS = 1 << 14
};

struct gguf;
struct section;

/* Read a GGUF file's metadata. c holds the defaults. */
int config_read_gguf(struct config *c, const struct gguf *g,
                     struct qwick_err *e);

/* Read eos_token_id. */
int config_read_stops(struct config *c, const struct section *s,
                      struct qwick_err *e);

/* Read the fields of generation_config.json: stop ids and sampling. */
int config_read_generation(struct config *c, const struct section *s,
                           struct qwick_err *e);

/* Read the fields that all families have: sizes, norms, stop ids. If a field is
 * not 0 in c, it holds the family's default in transformers; the other fields
 * are required. Allocates c->layers, each with a dense MLP of intermediate_size
 * and without a window. */
int config_read_common(struct config *c, const struct section *s,
                       struct qwick_err *e);

/* Set the heads of all layers to c->n_kv_heads and c->head_dim, and the scale of
 * their scores to the usual one, 1 / sqrt(head_dim). A family whose layers differ
 * sets those of other layers afterwards, with the checks of config_read_common:
 * n_heads is a multiple of each n_kv_heads, and n_heads * head_dim is at most
 * MAX_DIM. */
void config_set_heads(struct config *c);

/* Check that all of each head can be rotated. */
int config_check_head_dim(const struct config *c, const struct section *s,
                          struct qwick_err *e);

/* Read layer_types: full_attention, sliding_attention with c->sliding_window,
 * or the arch's recurrent layers with c->delta. */
int config_read_layer_types(struct config *c, const struct section *s,
                            struct qwick_err *e);

/* Read sliding_window, of which c->sliding_window holds the default (0: none),
 * and which layers have it: layer_types, or all but each pattern-th. */
int config_read_windows(struct config *c, const struct section *s,
                        size_t pattern, struct qwick_err *e);

/* Have an encoder's attention: in both directions, with half of each window on
 * either side. The layers' windows have been read. A GGUF file may say that it
 * is causal, which is an error. */
int config_set_bidirectional(struct config *c, const struct section *s,
                             struct qwick_err *e);

/* Read the fields of a family with Llama's attention: those of
 * config_read_common, one rotary embedding of whole heads, and the usual scale
 * of scores. All layers get them. */
int config_read_llama(struct config *c, const struct section *s,
                      struct qwick_err *e);

/* Read partial_rotary_factor, in rope_parameters or beside it: the part of a
 * head that rotates, `dflt` if it is in neither. Sets r->n_rot. */
int config_read_rotary(const struct config *c, struct rope_config *r,
                       double dflt, const struct section *s,
                       struct qwick_err *e);

/* Read rope_theta, and rope_parameters or rope_scaling. The caller has set
 * r->n_rot and c->n_ctx_max. */
int config_read_rope(const struct config *c, struct rope_config *r,
                     const struct section *s, struct qwick_err *e);

/* Read a rotary embedding for layers that attend to all positions and one for
 * layers with a window, and give each layer its own. In transformers 5, each
 * kind has an object in rope_parameters. In 4, rope_scaling belongs to the
 * first kind; full and sliding are the names of the fields with the bases. The
 * layers' windows have been read. */
enum { ROPE_FULL, ROPE_SLIDING };
int config_read_rope_kinds(struct config *c, const char *full,
                           const char *sliding, const struct section *s,
                           struct qwick_err *e);

/* Read one of several rotary embeddings. Its base is the field `theta` of s, or
 * rope_theta of the objects v5 or v4. v5 takes the place of rope_parameters in
 * config_read_rope, and v4 that of rope_scaling. An object whose v is NULL or
 * null is absent. r->theta holds the default base, or 0. */
int config_read_rope_of(const struct config *c, struct rope_config *r,
                        const struct section *s, const char *theta,
                        const struct section *v5, const struct section *v4,
                        struct qwick_err *e);

#endif
