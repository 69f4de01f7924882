/* Text encoders of BERT's kind and ModernBERT, for make_model: the tensors and
 * config.json. */
#ifndef BENCH_MODEL_ENCODERS_H
#define BENCH_MODEL_ENCODERS_H

#include "model_families.h"

/* Rows of the table of positions that XLM-RoBERTa's tokens do not have. */
enum { XLMR_FIRST = 2 };

static inline bool is_xlmr(const struct shape *s)
{
    return strcmp(s->model_type, "xlm-roberta") == 0;
}

/* Weights and biases of a layer or a norm. */
static inline void plan_with_bias(struct plan *p, size_t layer,
                                  const char *module, size_t rows, size_t cols)
{
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", module);
    snprintf(bias, sizeof bias, "%s.bias", module);
    const struct part parts[] = {{bias, rows, 0, CENTRED_NORM},
                                 {weight, rows, cols, cols ? MATRIX : NORM}};
    plan_parts(p, p->dtype, layer, parts, 2);
}

static inline void plan_bert(struct plan *p, const struct shape *s,
                             size_t layer)
{
    const size_t d = s->d_model;
    plan_with_bias(p, layer, "attention.self.query", d, d);
    plan_with_bias(p, layer, "attention.self.key", d, d);
    plan_with_bias(p, layer, "attention.self.value", d, d);
    plan_with_bias(p, layer, "attention.output.dense", d, d);
    plan_with_bias(p, layer, "attention.output.LayerNorm", d, 0);
    plan_with_bias(p, layer, "intermediate.dense", s->d_ff, d);
    plan_with_bias(p, layer, "output.dense", d, s->d_ff);
    plan_with_bias(p, layer, "output.LayerNorm", d, 0);
}

static inline void plan_bert_outside(struct plan *p, const struct shape *s)
{
    const size_t d = s->d_model, first = is_xlmr(s) ? XLMR_FIRST : 0;
    plan_add(p, p->dtype, s->vocab_size, d,
             "embeddings.word_embeddings.weight");
    plan_add(p, p->dtype, s->n_ctx + first, d,
             "embeddings.position_embeddings.weight");
    plan_add(p, p->dtype, first ? 1 : 2, d,
             "embeddings.token_type_embeddings.weight");
    plan_add(p, p->dtype, d, 0, "embeddings.LayerNorm.weight");
    plan_add(p, p->dtype, d, 0, "embeddings.LayerNorm.bias");
    p->kinds[p->n - 1] = CENTRED_NORM;
    p->prefix = "encoder.";
    p->layers = "layer";
}

static inline void plan_modernbert(struct plan *p, const struct shape *s,
                                   size_t layer)
{
    const size_t d = s->d_model, ff = s->d_ff;
    const struct part parts[] = {{"attn.Wo.weight", d, d, MATRIX},
                                 {"attn.Wqkv.weight", 3 * d, d, MATRIX},
                                 {"mlp.Wi.weight", 2 * ff, d, MATRIX},
                                 {"mlp.Wo.weight", d, ff, MATRIX},
                                 {"mlp_norm.weight", d, 0, NORM},
                                 {"attn_norm.weight", d, 0, NORM}};
    plan_parts(p, p->dtype, layer, parts, layer ? 6 : 5);
}

static inline void plan_modernbert_outside(struct plan *p,
                                           const struct shape *s)
{
    p->prefix = "";
    plan_add(p, p->dtype, s->vocab_size, s->d_model,
             "embeddings.tok_embeddings.weight");
    plan_add(p, p->dtype, s->d_model, 0, "embeddings.norm.weight");
    plan_add(p, p->dtype, s->d_model, 0, "final_norm.weight");
}

/* The fields that both have. The last one has a comma behind it. */
static inline int config_encoder(struct buf *b, const struct shape *s,
                                 const char *dtype, size_t n_positions)
{
    return buf_printf(b,
                      "{\n"
                      "  \"architectures\": [\n    \"%s\"\n  ],\n"
                      "  \"hidden_size\": %zu,\n"
                      "  \"intermediate_size\": %zu,\n"
                      "  \"max_position_embeddings\": %zu,\n"
                      "  \"model_type\": \"%s\",\n"
                      "  \"num_attention_heads\": %zu,\n"
                      "  \"num_hidden_layers\": %zu,\n"
                      "  \"torch_dtype\": \"%s\",\n"
                      "  \"vocab_size\": %zu,\n",
                      s->class, s->d_model, s->d_ff, n_positions, s->model_type,
                      s->n_heads, s->n_layers, dtype, s->vocab_size);
}

static inline int config_bert(struct buf *b, const struct shape *s,
                              const char *dtype)
{
    const bool xlmr = is_xlmr(s);
    return config_encoder(b, s, dtype, s->n_ctx + (xlmr ? XLMR_FIRST : 0)) ||
           buf_printf(b,
                      "  \"hidden_act\": \"gelu\",\n"
                      "  \"layer_norm_eps\": %s,\n"
                      "  \"pad_token_id\": %d,\n"
                      "  \"position_embedding_type\": \"absolute\",\n"
                      "  \"type_vocab_size\": %d\n}",
                      xlmr ? "1e-05" : "1e-12", xlmr, xlmr ? 1 : 2);
}

static inline int config_modernbert(struct buf *b, const struct shape *s,
                                    const char *dtype)
{
    return config_encoder(b, s, dtype, s->n_ctx) ||
           buf_puts(b, "  \"global_attn_every_n_layers\": 3,\n"
                       "  \"global_rope_theta\": 160000.0,\n"
                       "  \"hidden_activation\": \"gelu\",\n"
                       "  \"local_attention\": 128,\n"
                       "  \"local_rope_theta\": 10000.0,\n"
                       "  \"norm_eps\": 1e-05\n}");
}

#endif
