/* BERT, RoBERTa and XLM-RoBERTa (BertModel, RobertaModel and XLMRobertaModel in
 * transformers), text encoders:
 *
 *   x = norm(embedding + position + type)
 *   h = norm(x + o_proj(attention(q, k, v of x)))
 *   y = norm(h + down_proj(gelu(up_proj(h))))
 *
 * with biases everywhere and without a rotation. The residual stream is the
 * result of the last norm (blocks.norm_replaces).
 *
 * RoBERTa counts positions from pad_token_id + 1 on, so that the table of
 * positions begins with rows that no token has. Converters to GGUF cut them off
 * and call all of these models "bert". */
#include "file/json.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/fixed.h"
#include "model/layer.h"
#include "model/names.h"
#include "model/section.h"

static const struct fixed_field fixed[] = {
    {"hidden_act", "\"gelu\""},
    {"position_embedding_type", "\"absolute\""},
    {"is_decoder", "false"},
    {"is_causal", "false"},
    {NULL, NULL}};

static int read_encoder(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    if (!section_is_gguf(s))
        c->rms_eps = 1e-12;
    if (config_read_common(c, s, e) || config_set_bidirectional(c, s, e) ||
        section_opt_size(s, "type_vocab_size", section_is_gguf(s) ? 0 : 2,
                         MAX_DIM, &c->n_types, e))
        return -1;
    c->qkv_bias = c->o_bias = c->mlp_bias = c->norm_bias = true;
    c->class_dense_bias = true;
    c->n_positions = c->n_ctx_max;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].rope = NO_ROPE;
    return 0;
}

static int read_roberta(struct config *c, const struct section *s,
                        struct qwick_err *e)
{
    static const char pad[] = "pad_token_id",
                      positions[] = "max_position_embeddings";
    int64_t id = 1; /* RobertaConfig's default */
    if (read_encoder(c, s, e))
        return -1;
    if (!section_absent(s, pad) &&
        json_int(json_get(s->v, pad), 0, INT32_MAX - 1, &id))
        return section_bad(s, pad, "a token id", e);
    c->first_position = (size_t)id + 1;
    if (c->first_position >= c->n_ctx_max)
        return section_bad(s, positions, "more than pad_token_id + 1", e);
    c->n_ctx_max -= c->first_position;
    c->n_positions = c->n_ctx_max;
    return 0;
}

static const struct names *const schemes[] = {&names_bert, &names_gguf_bert,
                                              NULL};
static const char *const own_fields[] = {"is_causal", NULL};
static const char *const gguf_keys[] = {".attention.causal", NULL};

#define BERT                                             \
    .eps = "layer_norm_eps", .implies_heads = true,      \
    .own_fields = own_fields, .gguf_keys = gguf_keys,    \
    .blocks = {.attn_norm = true,                        \
               .mlp_norm = true,                         \
               .layer_norm = true,                       \
               .embed_norm = true,                       \
               .norm_replaces = true,                    \
               .ungated = true,                          \
               .activation = ACTIVATION_GELU_ERF},       \
    .fixed = fixed, .names = schemes, LAYER_FUNCTIONS

const struct arch arch_bert = {.model_type = "bert",
                               .gguf = "bert",
                               .gguf_names = &names_gguf_bert,
                               .read_config = read_encoder,
                               BERT};

#define ROBERTA .gguf_as = &arch_bert, .read_config = read_roberta, BERT

const struct arch arch_xlm_roberta = {.model_type = "xlm-roberta", ROBERTA};
const struct arch arch_roberta = {.model_type = "roberta", ROBERTA};
const struct arch arch_camembert = {.model_type = "camembert", ROBERTA};
