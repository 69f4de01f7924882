/* config.json and generation_config.json, in the spelling of Transformers 4
 * (rope_theta, rope_scaling, torch_dtype) and of 5 (rope_parameters, dtype,
 * layer_types). A field that changes results is never defaulted silently: it is
 * there, or transformers' own documented default applies, or it is an error. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/checkpoint.h"
#include "model/quant.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_YARN };

#define CONFIG_MAX_STOP_IDS 64

struct config {
    char model_type[32];   /* model_type */
    size_t vocab_size;     /* vocab_size */
    size_t d_model;        /* hidden_size */
    size_t d_ff;           /* intermediate_size */
    size_t n_layers;       /* num_hidden_layers */
    size_t n_heads;        /* num_attention_heads */
    size_t n_kv_heads;     /* num_key_value_heads */
    size_t head_dim;       /* head_dim */
    size_t n_ctx_max;      /* max_position_embeddings */
    double rms_eps;        /* rms_norm_eps */
    double rope_theta;     /* rope_theta | rope_parameters.rope_theta */
    enum rope_type rope;   /* rope_scaling | rope_parameters: rope_type */
    double rope_factor;    /* .factor */
    double rope_beta_fast; /* .beta_fast */
    double rope_beta_slow; /* .beta_slow */
    double rope_attention; /* .attention_factor, or what follows from mscale:
                              cos and sin are multiplied by it */
    size_t rope_original;  /* .original_max_position_embeddings */
    bool rope_truncate;    /* .truncate */
    bool tied_head;        /* tie_word_embeddings */
    bool attention_bias;   /* attention_bias */
    size_t sliding_window; /* sliding_window where use_sliding_window, or 0 */
    bool *layer_slides;    /* [n_layers]: layer uses the window */
    int32_t stop_ids[CONFIG_MAX_STOP_IDS]; /* eos_token_id of both files */
    size_t n_stop_ids;
    struct quant quant; /* quantization, quantization_config */

    /* generation_config.json */
    bool do_sample; /* false also when the file is absent */
    double temperature, top_p, min_p, repetition_penalty; /* 1, 1, 0, 1 */
    size_t top_k; /* 0: off; transformers' default is 50 */
};

/* Read and check both files. */
int config_load(struct config *c, const struct checkpoint *ck,
                struct qwick_err *e);
void config_free(struct config *c);

/* Add a stop id unless it is there already. -1 when the list is full. */
int config_add_stop(struct config *c, int32_t id);

/* Inverse frequencies [head_dim / 2] of rotary embedding, in float32 steps as
 * transformers computes them (_compute_default_rope_parameters,
 * _compute_yarn_parameters in modeling_rope_utils.py). */
void config_rope_frequencies(const struct config *c, float *inv_freq);

#endif
