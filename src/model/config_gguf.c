/* A GGUF file's metadata as the config.json that it was made from: each family
 * reads that, wherever it comes from. Errors name the file's own keys. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/gguf.h"
#include "model/arch.h"
#include "model/config.h"
#include "model/config_gguf_keys.h"
#include "model/names.h"
#include "model/section.h"
#include "model/unsupported.h"

static const char in_scaling[] = "rope_scaling.";

/* Keys that begin with "." follow the name of the architecture. The values of
 * some fields follow from several keys: see put_computed. */
static const struct section_name names[] = {
    {"model_type", "general.architecture"},
    {"vocab_size", ".vocab_size"},
    {"hidden_size", ".embedding_length"},
    {"intermediate_size", ".feed_forward_length"},
    {"num_hidden_layers", ".block_count"},
    {"num_attention_heads", ".attention.head_count"},
    {"num_key_value_heads", ".attention.head_count_kv"},
    {"head_dim", ".attention.key_length"},
    {"num_kv_shared_layers", ".attention.shared_kv_layers"},
    {"hidden_size_per_layer_input", ".embedding_length_per_layer_input"},
    {"max_position_embeddings", ".context_length"},
    {"rms_norm_eps", ".attention.layer_norm_rms_epsilon"},
    {"layer_norm_eps", ".attention.layer_norm_epsilon"},
    {"norm_eps", ".attention.layer_norm_rms_epsilon"},
    {"is_causal", ".attention.causal"},
    {"rope_theta", ".rope.freq_base"},
    {"rope_local_base_freq", ".rope.freq_base_swa"},
    {"ollama.rope_theta", ".rope.global.freq_base"},
    {"ollama.rope_local_base_freq", ".rope.local.freq_base"},
    {"ollama.mm_tokens_per_image", ".mm.tokens_per_image"},
    {"sliding_window", ".attention.sliding_window"},
    {"final_logit_softcapping", ".final_logit_softcapping"},
    {"attn_logit_softcapping", ".attn_logit_softcapping"},
    {"attention_multiplier", ".attention.scale"},
    {"embedding_multiplier", ".embedding_scale"},
    {"residual_multiplier", ".residual_scale"},
    {"logits_scaling", ".logit_scale"},
    {"num_experts", ".expert_count"},
    {"num_experts_per_tok", ".expert_used_count"},
    {"moe_intermediate_size", ".expert_feed_forward_length"},
    {"shared_expert_intermediate_size", ".expert_shared_feed_forward_length"},
    {"full_attention_interval", ".full_attention_interval"},
    {"partial_rotary_factor", ".rope.dimension_count"},
    {"expert_gating_func", ".expert_gating_func"},
    {"conv_L_cache", ".shortconv.l_cache"},
    {"num_dense_layers", ".leading_dense_block_count"},
    {"routed_scaling_factor", ".expert_weights_scale"},
    {"linear_conv_kernel_dim", ".ssm.conv_kernel"},
    {"linear_key_head_dim", ".ssm.state_size"},
    {"linear_num_key_heads", ".ssm.group_count"},
    {"linear_num_value_heads", ".ssm.time_step_rank"},
    {"linear_value_head_dim", ".ssm.inner_size"},
    {"temperature", "general.sampling.temp"},
    {"top_k", "general.sampling.top_k"},
    {"top_p", "general.sampling.top_p"},
    {"min_p", "general.sampling.min_p"},
    {"repetition_penalty", "general.sampling.penalty_repeat"},
    {"rope_scaling.rope_type", ".rope.scaling.type"},
    {"rope_scaling.factor", ".rope.scaling.factor"},
    {"rope_scaling.original_max_position_embeddings",
     ".rope.scaling.original_context_length"},
    {"rope_scaling.attention_factor", ".rope.scaling.attn_factor"},
    {"rope_scaling.beta_fast", ".rope.scaling.yarn_beta_fast"},
    {"rope_scaling.beta_slow", ".rope.scaling.yarn_beta_slow"},
    {"rope_scaling.mscale_all_dim", ".rope.scaling.yarn_log_multiplier"},
    {"rope_scaling.llama_4_scaling_beta", ".attention.temperature_scale"},
    {NULL, NULL},
};

static const char window_key[] = ".attention.sliding_window",
                  pattern_key[] = ".attention.sliding_window_pattern";

/* Sets of ids that end an answer. */
static const char *const stop_keys[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};

/* Fields whose values are not those of the keys. */
static const char *const computed[] = {"model_type", "num_hidden_layers",
                                       "partial_rotary_factor",
                                       "linear_value_head_dim"};

struct writer {
    const struct gguf *g;
    const char *arch;
    struct gguf_keys keys;
    struct buf out;
    bool bad; /* an append failed */
};

/* The entry of a row's key; NULL when it is missing. */
static const struct gguf_value *entry(const struct writer *w, const char *key)
{
    return gguf_keys_find(&w->keys, key);
}

/* The integer of a row's key, 0 when it is missing or no integer. */
static uint64_t integer(const struct writer *w, const char *key)
{
    return gguf_keys_int(&w->keys, key);
}

/* The decimal with six digits behind the point that was rounded to this f32, if
 * there is one: 0.6 and 1e-6, not 0.60000002 and 9.9999999e-7. */
static double decimal(double v)
{
    double d = round(v * 1e6) / 1e6;
    return (double)(float)d == v ? d : v;
}

/* A scalar as JSON, or what an array has for all layers. What JSON has no value
 * for becomes a string, which the reader of the field refuses with the
 * value. */
static void put_value(struct writer *w, const struct gguf_value *v)
{
    struct buf *b = &w->out;
    char text[64];
    int64_t n;
    switch (v->type) {
    case GGUF_STRING:
        w->bad |= buf_json_string(b, (const char *)v->data, v->n_bytes);
        return;
    case GGUF_ARRAY: /* put_layers writes what differs */
        snprintf(text, sizeof text, "an array of %zu", v->n);
        if (w->keys.layered && v->n)
            n = gguf_int_at(v, 0);
        w->bad |= w->keys.layered || gguf_keys_shared(&w->keys, v, &n)
                      ? buf_printf(b, "%lld", (long long)n)
                      : buf_json_cstr(b, text);
        return;
    case GGUF_BOOL:
        w->bad |= buf_puts(b, v->u ? "true" : "false");
        return;
    case GGUF_F32:
    case GGUF_F64:
        w->bad |= isfinite(v->f) ? buf_json_double(b, decimal(v->f))
                                 : buf_json_cstr(b, "not finite");
        return;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        w->bad |= buf_printf(b, "%lld", (long long)v->i);
        return;
    default:
        w->bad |= buf_printf(b, "%llu", (unsigned long long)v->u);
        return;
    }
}

static void put_name(struct writer *w, const char *field)
{
    char last = w->out.len ? w->out.data[w->out.len - 1] : '{';
    w->bad |= last == '{' ? 0 : buf_putc(&w->out, ',');
    w->bad |= buf_json_cstr(&w->out, field);
    w->bad |= buf_putc(&w->out, ':');
}

static void put_size(struct writer *w, const char *field, size_t n)
{
    put_name(w, field);
    w->bad |= buf_printf(&w->out, "%zu", n);
}

static void put_bool(struct writer *w, const char *field, bool v)
{
    put_name(w, field);
    w->bad |= buf_puts(&w->out, v ? "true" : "false");
}

static bool is_computed(const char *field)
{
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        if (strcmp(field, computed[i]) == 0)
            return true;
    return false;
}

/* Whether the file says "none" of a row by the number 0. */
static bool is_none(const struct gguf_value *v, const char *field)
{
    static const char *const fields[] = {
        "sliding_window", "final_logit_softcapping", "attn_logit_softcapping"};
    bool zero = v->type != GGUF_STRING && v->type != GGUF_ARRAY && !v->u &&
                !v->i && v->f == 0;
    for (size_t i = 0; zero && i < sizeof fields / sizeof *fields; i++)
        if (strcmp(field, fields[i]) == 0)
            return true;
    return false;
}

/* The rows whose fields are in an object ("" or in_scaling), where the file has
 * their keys. */
static void put_rows(struct writer *w, const char *in)
{
    size_t n = strlen(in);
    for (size_t i = 0; names[i].field; i++) {
        const char *field = names[i].field;
        bool inner = strncmp(field, in_scaling, strlen(in_scaling)) == 0;
        const struct gguf_value *v = entry(w, names[i].key);
        if (!v || inner != (n > 0) || is_computed(field))
            continue;
        put_name(w, field + n);
        if (is_none(v, field))
            w->bad |= buf_puts(&w->out, "null");
        else
            put_value(w, v);
    }
}

/* Without a key, all heads together are as wide as the model. 0: not known. */
static uint64_t head_dim_of(const struct writer *w)
{
    uint64_t heads = integer(w, ".attention.head_count");
    return entry(w, ".attention.key_length")
               ? integer(w, ".attention.key_length")
           : heads ? integer(w, ".embedding_length") / heads
                   : 0;
}

/* Fields that follow from several keys. check_computed refuses what makes no
 * sense. */
static void put_computed(struct writer *w, bool partial_rotary)
{
    uint64_t heads = integer(w, ".ssm.time_step_rank");
    uint64_t head_dim = head_dim_of(w);
    const struct gguf_value *layers = entry(w, ".block_count");
    uint64_t extra = integer(w, ".nextn_predict_layers");
    if (layers && extra) { /* of multi-token prediction */
        put_size(w, "num_hidden_layers", integer(w, ".block_count") - extra);
    } else if (layers) {
        put_name(w, "num_hidden_layers");
        put_value(w, layers);
    }
    if (heads && entry(w, ".ssm.inner_size"))
        put_size(w, "linear_value_head_dim",
                 integer(w, ".ssm.inner_size") / heads);
    if (partial_rotary && head_dim && entry(w, ".rope.dimension_count")) {
        put_name(w, "partial_rotary_factor");
        w->bad |= buf_json_double(&w->out,
                                  (double)integer(w, ".rope.dimension_count") /
                                      (double)head_dim);
    }
}

/* Write the number of rows of a table, if the file has it. */
static void put_table(struct writer *w, const char *field, const char *name)
{
    const struct st_tensor *t = st_find(gguf_tensors(w->g), name);
    if (t && t->rank == 2)
        put_size(w, field, t->shape[0]);
}

/* Write the fields that may have no key in the metadata. They follow from the
 * tensors and from other keys. */
static void put_implied(struct writer *w, const struct arch *a)
{
    const struct st_set *set = gguf_tensors(w->g);
    if (!entry(w, ".vocab_size"))
        put_table(w, "vocab_size", "token_embd.weight");
    const struct gguf_value *heads = entry(w, ".attention.head_count");
    if (heads && !entry(w, ".attention.head_count_kv")) {
        put_name(w, "num_key_value_heads");
        put_value(w, heads);
    }
    put_table(w, "type_vocab_size", "token_types.weight");
    put_bool(w, "tie_word_embeddings", !st_find(set, "output.weight"));
    put_bool(w, "do_sample", entry(w, "general.sampling.temp") != NULL);
    put_bool(w, "norm_topk_prob", !a->gguf_plain_topk);
}

/* The divisors of longrope are tensors. */
static void put_factors(struct writer *w, const char *field, const char *name)
{
    const struct st_tensor *t = st_find(gguf_tensors(w->g), name);
    size_t n = t && t->dtype == DT_F32 && t->rank == 1 ? t->shape[0] : 0;
    put_name(w, field);
    w->bad |= buf_putc(&w->out, '[');
    for (size_t i = 0; i < n && i <= CONFIG_MAX_FACTORS; i++) {
        float v;
        memcpy(&v, t->data + i * sizeof v, sizeof v);
        w->bad |= i ? buf_putc(&w->out, ',') : 0;
        w->bad |= isfinite(v) ? buf_json_double(&w->out, (double)v)
                              : buf_puts(&w->out, "null");
    }
    w->bad |= buf_putc(&w->out, ']');
}

static void put_longrope(struct writer *w)
{
    put_name(w, "rope_scaling");
    w->bad |= buf_puts(&w->out, "{\"type\":\"longrope\"");
    put_rows(w, in_scaling);
    put_factors(w, "short_factor", "rope_factors_short.weight");
    put_factors(w, "long_factor", "rope_factors_long.weight");
    w->bad |= buf_putc(&w->out, '}');
}

static void put_scaling(struct writer *w, const struct arch *a)
{
    if (st_find(gguf_tensors(w->g), "rope_factors_long.weight")) {
        put_longrope(w);
        return;
    }
    const struct gguf_value *type = entry(w, ".rope.scaling.type");
    if (!type || (type->type == GGUF_STRING && type->n_bytes == 4 &&
                  memcmp(type->data, "none", 4) == 0))
        return;
    put_name(w, "rope_scaling");
    w->bad |= buf_putc(&w->out, '{');
    put_rows(w, in_scaling);
    put_bool(w, "truncate", !a->gguf_untruncated);
    w->bad |= buf_putc(&w->out, '}');
}

/* Whether the pattern, which may be NULL, is a number or has a flag for each of
 * n layers. */
static bool is_pattern(const struct gguf_value *v, uint64_t n)
{
    if (!v || v->type != GGUF_ARRAY)
        return !v || (v->type != GGUF_STRING && v->type != GGUF_F32 &&
                      v->type != GGUF_F64);
    return v->n == n && (v->element == GGUF_BOOL || v->element == GGUF_U32 ||
                         v->element == GGUF_I32);
}

/* Whether layer i has a window: by the pattern's flags; or each layer has one
 * but one of each period. Of period 0 all have. */
static bool has_window(const struct writer *w, const struct gguf_value *pattern,
                       uint64_t period, uint64_t i)
{
    uint64_t full = w->keys.full_first ? 0 : period - 1;
    if (pattern && pattern->type == GGUF_ARRAY)
        return gguf_int_at(pattern, (size_t)i) != 0;
    return period == 0 || i % period != full;
}

/* Which layers have a window, in the words of transformers 5. dflt: the period
 * of a file without a pattern, 0: an error. */
static int put_windows(struct writer *w, size_t dflt, struct qwick_err *e)
{
    const struct gguf_value *pattern = entry(w, pattern_key);
    uint64_t n_layers = integer(w, ".block_count");
    uint64_t window = integer(w, window_key);
    uint64_t period = pattern ? integer(w, pattern_key) : dflt;
    if (!window || !n_layers || n_layers > MAX_LAYERS)
        return 0; /* no windows, or the number of layers will be refused */
    if (!pattern && !dflt)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s%s: %llu, but %s%s is missing", gguf_path(w->g),
                       w->arch, window_key, (unsigned long long)window, w->arch,
                       pattern_key);
    if (!is_pattern(pattern, n_layers))
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s%s: must be an integer, or an array of bool as "
                       "long as block_count, %llu",
                       gguf_path(w->g), w->arch, pattern_key,
                       (unsigned long long)n_layers);
    put_bool(w, "use_sliding_window", true);
    put_name(w, "layer_types");
    for (uint64_t i = 0; i < n_layers; i++) {
        w->bad |= buf_putc(&w->out, i ? ',' : '[');
        w->bad |= buf_json_cstr(&w->out, has_window(w, pattern, period, i)
                                             ? "sliding_attention"
                                             : "full_attention");
    }
    w->bad |= buf_putc(&w->out, ']');
    return 0;
}

/* What may differ between layers, in the words of transformers 5. */
static void put_layers(struct writer *w)
{
    const struct gguf_value *pattern = entry(w, pattern_key);
    uint64_t n = integer(w, ".block_count");
    bool windows = integer(w, window_key) && pattern,
         two = entry(w, ".attention.key_length_swa");
    if (!w->keys.layered || n > MAX_LAYERS)
        return;
    put_name(w, "per_layer_config");
    w->bad |= buf_putc(&w->out, '{');
    for (size_t i = 0; i < n; i++) {
        const char *head_dim =
            two && windows && has_window(w, pattern, integer(w, pattern_key), i)
                ? ".attention.key_length_swa"
                : ".attention.key_length";
        const char *const keys[][2] = {
            {"head_dim", head_dim},
            {"num_key_value_heads", ".attention.head_count_kv"},
            {"intermediate_size", ".feed_forward_length"}};
        char text[64];
        snprintf(text, sizeof text, "%zu", i);
        put_name(w, text);
        w->bad |= buf_putc(&w->out, '{');
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
            int64_t v;
            if (!gguf_keys_at(&w->keys, keys[j][1], i, &v))
                continue;
            put_name(w, keys[j][0]);
            w->bad |= buf_printf(&w->out, "%lld", (long long)v);
        }
        snprintf(text, sizeof text, "blk.%zu.attn_v.weight", i);
        put_bool(w, "attention_k_eq_v", !st_find(gguf_tensors(w->g), text));
        w->bad |= buf_putc(&w->out, '}');
    }
    w->bad |= buf_putc(&w->out, '}');
}

/* The recurrent layers, if the file lists them. Without a list
 * full_attention_interval counts. */
static void put_recurrent(struct writer *w, const struct arch *a)
{
    uint64_t n = integer(w, ".block_count");
    uint64_t extra = integer(w, ".nextn_predict_layers");
    if (!w->keys.hybrid || !gguf_keys_lists_recurrent(&w->keys) ||
        n > MAX_LAYERS || extra > n)
        return;
    put_name(w, "layer_types");
    w->bad |= buf_putc(&w->out, '[');
    for (uint64_t i = 0; i < n - extra; i++) {
        w->bad |= i ? buf_putc(&w->out, ',') : 0;
        w->bad |= buf_json_cstr(&w->out, gguf_keys_recurrent(&w->keys, i)
                                             ? a->recurrence->layer_type
                                             : "full_attention");
    }
    w->bad |= buf_putc(&w->out, ']');
}

static void put_stop_ids(struct writer *w)
{
    bool first = true;
    put_name(w, "eos_token_id");
    w->bad |= buf_putc(&w->out, '[');
    for (size_t i = 0; i < sizeof stop_keys / sizeof *stop_keys; i++) {
        const struct gguf_value *v = gguf_find(w->g, stop_keys[i]);
        if (!v)
            continue;
        w->bad |= first ? 0 : buf_putc(&w->out, ',');
        put_value(w, v);
        first = false;
    }
    w->bad |= buf_putc(&w->out, ']');
}

/* An error unless the value of key equals that of the key `length`, where the
 * file has both. */
static int check_head_dim(const struct writer *w, const char *key,
                          const char *length, struct qwick_err *e)
{
    uint64_t expected = integer(w, length), n = integer(w, key);
    if (!entry(w, key) || !expected || n == expected)
        return 0; /* of key_length 0 its reader complains */
    return err_set(e, QWICK_ERR_MODEL, "%s: %s%s: %llu, must equal %s, %llu",
                   gguf_path(w->g), w->arch, key, (unsigned long long)n,
                   length + 1, (unsigned long long)expected);
}

/* Heads of layers with a window, which put_layers writes without the key. */
static int check_window_heads(const struct writer *w, const char *key,
                              struct qwick_err *e)
{
    const struct gguf_value *v = entry(w, key);
    uint64_t n = integer(w, key);
    if (!v || (n && n % 2 == 0 && n <= MAX_DIM))
        return 0;
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s%s: must be an even integer from 2 to %d, is of type "
                   "%s, %llu",
                   gguf_path(w->g), w->arch, key, MAX_DIM,
                   gguf_type_name(v->type), (unsigned long long)n);
}

/* All lengths of a head are one, of each kind of layers. */
static int check_head_dims(const struct writer *w, bool partial_rotary,
                           struct qwick_err *e)
{
    static const char key[] = ".attention.key_length",
                      key_swa[] = ".attention.key_length_swa";
    if (check_head_dim(w, ".attention.value_length", key, e) ||
        (!partial_rotary && check_head_dim(w, ".rope.dimension_count", key, e)))
        return -1;
    return w->keys.layered &&
                   (check_window_heads(w, key_swa, e) ||
                    check_head_dim(w, ".attention.value_length_swa", key_swa,
                                   e) ||
                    check_head_dim(w, ".rope.dimension_count_swa", key_swa, e))
               ? -1
               : 0;
}

/* An error unless what put_computed computes exists. */
static int check_computed(const struct writer *w, struct qwick_err *e)
{
    uint64_t layers = integer(w, ".block_count");
    uint64_t extra = integer(w, ".nextn_predict_layers");
    uint64_t inner = integer(w, ".ssm.inner_size");
    uint64_t heads = integer(w, ".ssm.time_step_rank");
    if (extra && extra >= layers)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s.nextn_predict_layers: %llu, must be less than "
                       "block_count, %llu",
                       gguf_path(w->g), w->arch, (unsigned long long)extra,
                       (unsigned long long)layers);
    if (heads && inner % heads)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: %s.ssm.inner_size: %llu, must be a multiple of "
                       "ssm.time_step_rank, %llu",
                       gguf_path(w->g), w->arch, (unsigned long long)inner,
                       (unsigned long long)heads);
    return 0;
}

/* An error unless the file says how many rows the embedding has. */
static int check_embedding(const struct writer *w, struct qwick_err *e)
{
    static const char name[] = "token_embd.weight";
    const struct st_tensor *t = st_find(gguf_tensors(w->g), name);
    if (entry(w, ".vocab_size") || (t && t->rank == 2))
        return 0;
    return t ? err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor %s: must have 2 dimensions, has %zu",
                       gguf_path(w->g), name, t->rank)
             : err_set(e, QWICK_ERR_MODEL, "%s: tensor %s: missing",
                       gguf_path(w->g), name);
}

/* An error unless the ids that end an answer are integers. */
static int check_stop_ids(const struct writer *w, struct qwick_err *e)
{
    for (size_t i = 0; i < sizeof stop_keys / sizeof *stop_keys; i++) {
        const struct gguf_value *v = gguf_find(w->g, stop_keys[i]);
        if (v && (v->type == GGUF_STRING || v->type == GGUF_ARRAY ||
                  v->type == GGUF_F32 || v->type == GGUF_F64 ||
                  v->u > INT32_MAX || v->i < 0 || v->i > INT32_MAX))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: %s: must be a token id, is of type %s, %lld",
                           gguf_path(w->g), stop_keys[i],
                           gguf_type_name(v->type),
                           v->u ? (long long)v->u : (long long)v->i);
    }
    return 0;
}

/* Values that change results and that no family reads. */
static int check_others(const struct writer *w, bool partial_rotary,
                        struct qwick_err *e)
{
    enum { MOST_POOLING = 4 }; /* see pooling_gguf */
    uint64_t pooling = integer(w, ".pooling_type");
    if (check_embedding(w, e) || check_stop_ids(w, e) || check_computed(w, e) ||
        check_head_dims(w, partial_rotary, e))
        return -1;
    return pooling <= MOST_POOLING
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: %s.pooling_type: %llu is not supported (0 to %d "
                         "are)",
                         gguf_path(w->g), w->arch, (unsigned long long)pooling,
                         MOST_POOLING);
}

/* The classes of an encoder. llama.cpp's converter drops the layer before them
 * from BertForSequenceClassification, and with it the right scores. */
static int check_classifier(const struct config *c, const struct writer *w,
                            struct qwick_err *e)
{
    static const char dense[] = "cls.weight";
    if (c->n_classes != 1)
        return err_set(e, QWICK_ERR_MODEL,
                       "%s: tensor cls.output.weight: has %zu rows: 1 label is "
                       "supported",
                       gguf_path(w->g), c->n_classes);
    return st_find(gguf_tensors(w->g), dense)
               ? 0
               : err_set(e, QWICK_ERR_MODEL,
                         "%s: tensor %s: missing: the converter has left out "
                         "the layer before the classifier; use the checkpoint "
                         "in safetensors",
                         gguf_path(w->g), dense);
}

/* A reranker's own head, with its labels: "yes" and "no", or one of any name.
 * The head of the language model may then be missing, which looks as if it were
 * tied. */
static int read_classes(struct config *c, const struct writer *w,
                        struct qwick_err *e)
{
    static const char tensor[] = "cls.output.weight";
    static const char *const others[] = {"cls.weight", "cls.output.bias"};
    static const char labels_key[] = ".classifier.output_labels";
    const struct st_set *set = gguf_tensors(w->g);
    const struct st_tensor *t = st_find(set, tensor);
    const struct gguf_value *labels = entry(w, labels_key);
    if (!t)
        return 0;
    c->n_classes = t->rank == 2 ? t->shape[0] : 0;
    if (c->bidirectional)
        return check_classifier(c, w, e);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (st_find(set, others[i]))
            return err_set(e, QWICK_ERR_MODEL,
                           "%s: tensor %s: is not supported beside %s",
                           gguf_path(w->g), others[i], tensor);
    if (c->n_classes == 1)
        return 0;
    if (c->n_classes == 2 && labels && labels->type == GGUF_ARRAY &&
        labels->element == GGUF_STRING && labels->n == 2) {
        static const char yes_no[] = "\3\0\0\0\0\0\0\0yes"
                                     "\2\0\0\0\0\0\0\0no",
                          no_yes[] = "\2\0\0\0\0\0\0\0no"
                                     "\3\0\0\0\0\0\0\0yes";
        size_t n = sizeof yes_no - 1;
        bool fits = labels->n_bytes == n;
        bool yes_first = fits && !memcmp(labels->data, yes_no, n);
        c->yes_class = yes_first ? 0 : 1;
        if (yes_first || (fits && !memcmp(labels->data, no_yes, n)))
            return 0;
    }
    return err_set(e, QWICK_ERR_MODEL,
                   "%s: %s: has %zu rows, must have 1, or 2 that %s%s calls "
                   "\"yes\" and \"no\"",
                   gguf_path(w->g), tensor, c->n_classes, w->arch, labels_key);
}

static const struct arch *find_arch(const struct gguf *g, struct qwick_err *e)
{
    static const char key[] = "general.architecture";
    bool found;
    const struct gguf_value *v = gguf_need(g, key, GGUF_STRING, 0, &found, e);
    if (!v) {
        if (!found)
            err_set(e, QWICK_ERR_MODEL, "%s: %s: missing", gguf_path(g), key);
        return NULL;
    }
    const struct arch *a = arch_find_gguf((const char *)v->data, v->n_bytes);
    if (!a) {
        char why[160];
        unsupported_describe(why, sizeof why, (const char *)v->data,
                             v->n_bytes);
        err_set(e, QWICK_ERR_MODEL, "%s: %s: %s", gguf_path(g), key, why);
    }
    return a;
}

/* Whether some layer has a tensor of this name. */
static bool in_some_layer(const struct config *c, const struct gguf *g,
                          const char *tail)
{
    char name[64];
    for (size_t i = 0; i < c->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%zu.%s", i, tail);
        if (st_find(gguf_tensors(g), name))
            return true;
    }
    return false;
}

/* No key says which products have biases. */
static int set_biases(struct config *c, const struct gguf *g)
{
    c->qkv_bias = in_some_layer(c, g, "attn_qkv.bias") ||
                  in_some_layer(c, g, "attn_q.bias") ||
                  in_some_layer(c, g, "attn_k.bias") ||
                  in_some_layer(c, g, "attn_v.bias");
    c->o_bias = in_some_layer(c, g, "attn_output.bias");
    c->mlp_bias = in_some_layer(c, g, "ffn_down.bias");
    c->select_bias = in_some_layer(c, g, "exp_probs_b.bias");
    c->norm_bias |= st_find(gguf_tensors(g), "token_embd_norm.bias") != NULL;
    c->class_dense_bias |= st_find(gguf_tensors(g), "cls.bias") != NULL;
    return 0;
}

int config_read_gguf(struct config *c, const struct gguf *g,
                     struct qwick_err *e)
{
    c->arch = find_arch(g, e);
    if (!c->arch)
        return -1;
    snprintf(c->model_type, sizeof c->model_type, "%s", c->arch->model_type);
    struct writer w = {.g = g,
                       .arch = c->arch->gguf,
                       .keys = {.g = g,
                                .arch = c->arch->gguf,
                                .hybrid = names_recurrent(c->arch->gguf_names),
                                .tiled = c->arch->gguf_names->tiled,
                                .layered = c->arch->gguf_layered,
                                .full_first = c->arch->gguf_full_first,
                                .own = c->arch->gguf_keys}};
    if (gguf_keys_check(&w.keys, names, e))
        return -1;
    struct json_doc *doc = NULL;
    bool partial = c->arch->partial_rotary;
    w.bad |= buf_putc(&w.out, '{');
    put_rows(&w, "");
    put_computed(&w, partial);
    put_implied(&w, c->arch);
    put_scaling(&w, c->arch);
    put_stop_ids(&w);
    put_recurrent(&w, c->arch);
    put_layers(&w);
    int rc = put_windows(&w, c->arch->gguf_pattern, e);
    w.bad |= buf_putc(&w.out, '}');
    if (!rc)
        rc = w.bad ? err_oom(e, w.out.len) : check_others(&w, partial, e);
    if (!rc)
        rc = json_parse(&doc, gguf_path(g), w.out.data, w.out.len,
                        QWICK_ERR_MODEL, e);
    if (!rc) {
        struct section s = {.v = json_root(doc),
                            .path = gguf_path(g),
                            .in = "",
                            .names = names,
                            .prefix = c->arch->gguf};
        rc = c->arch->read_config(c, &s, e) || set_biases(c, g) ||
                     config_read_generation(c, &s, e) || read_classes(c, &w, e)
                 ? -1
                 : 0;
    }
    json_free(doc);
    buf_free(&w.out);
    return rc;
}
