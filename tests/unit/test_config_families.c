/* config.json of mixtures of experts, of Gemma, gpt-oss and Qwen3.5, and fields
 * that must have one value in each family. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_file.h"
#include "file/map.h"
#include "model/arch.h"
#include "model/fixed.h"

/* A mixture of experts. */
static const struct member moe[] = {
    MEMBERS("qwen3_moe"),
    {"rope_theta", "1000000.0"},
    {"num_experts", "8"},
    {"num_experts_per_tok", "2"},
    {"moe_intermediate_size", "48"},
    {"norm_topk_prob", "true"},
};
/* Gemma 2 as its 2B model has it, smaller. */
static const struct member gemma2[] = {
    {"model_type", "\"gemma2\""},
    {"architectures", "[\"Gemma2ForCausalLM\"]"},
    {"attention_bias", "false"},
    {"attn_logit_softcapping", "50.0"},
    {"final_logit_softcapping", "30.0"},
    {"head_dim", "256"},
    {"hidden_act", "\"gelu_pytorch_tanh\""},
    {"hidden_activation", "\"gelu_pytorch_tanh\""},
    {"hidden_size", "1024"},
    {"intermediate_size", "2048"},
    {"max_position_embeddings", "8192"},
    {"num_attention_heads", "4"},
    {"num_hidden_layers", "5"},
    {"num_key_value_heads", "2"},
    {"query_pre_attn_scalar", "144"},
    {"rms_norm_eps", "1e-06"},
    {"rope_theta", "10000.0"},
    {"sliding_window", "4096"},
    {"vocab_size", "300"},
};

/* Gemma as its 2B model has it, smaller. */
static const struct member gemma1[] = {
    {"model_type", "\"gemma\""},
    {"head_dim", "256"},
    {"hidden_act", "\"gelu\""},
    {"hidden_activation", "null"},
    {"hidden_size", "1024"},
    {"intermediate_size", "2048"},
    {"max_position_embeddings", "8192"},
    {"num_attention_heads", "4"},
    {"num_hidden_layers", "2"},
    {"num_key_value_heads", "1"},
    {"rms_norm_eps", "1e-06"},
    {"rope_scaling", "null"},
    {"rope_theta", "10000.0"},
    {"vocab_size", "300"},
};

/* Gemma 3 as its 1B model has it, smaller. */
static const struct member gemma[] = {
    {"model_type", "\"gemma3_text\""},
    {"hidden_activation", "\"gelu_pytorch_tanh\""},
    {"vocab_size", "320"},
    {"hidden_size", "64"},
    {"intermediate_size", "160"},
    {"num_hidden_layers", "7"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "1"},
    {"head_dim", "16"},
    {"max_position_embeddings", "2048"},
    {"rms_norm_eps", "1e-06"},
    {"eos_token_id", "[1, 106]"},
    {"attn_logit_softcapping", "null"},
    {"final_logit_softcapping", "null"},
    {"query_pre_attn_scalar", "25"},
    {"rope_theta", "1000000"},
    {"rope_local_base_freq", "10000"},
    {"rope_scaling", "null"},
    {"sliding_window", "512"},
    {"sliding_window_pattern", "3"},
};
/* Qwen3.5 as transformers 5 writes it. */
static const struct member qwen35[] = {
    {"model_type", "\"qwen3_5_text\""},
    {"hidden_act", "\"silu\""},
    {"vocab_size", "320"},
    {"hidden_size", "64"},
    {"intermediate_size", "160"},
    {"num_hidden_layers", "5"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "2"},
    {"head_dim", "32"},
    {"max_position_embeddings", "4096"},
    {"rms_norm_eps", "1e-06"},
    {"tie_word_embeddings", "true"},
    {"attention_bias", "false"},
    {"eos_token_id", "1"},
    {"full_attention_interval", "4"},
    {"linear_conv_kernel_dim", "4"},
    {"linear_key_head_dim", "16"},
    {"linear_value_head_dim", "24"},
    {"linear_num_key_heads", "2"},
    {"linear_num_value_heads", "6"},
    {"rope_parameters",
     "{\"mrope_interleaved\": true, \"mrope_section\": [2, 1, 1], "
     "\"partial_rotary_factor\": 0.25, \"rope_theta\": 10000000, "
     "\"rope_type\": \"default\"}"},
};

/* gpt-oss as released, smaller. */
static const struct member gpt_oss[] = {
    {"model_type", "\"gpt_oss\""},
    {"attention_bias", "true"},
    {"hidden_act", "\"silu\""},
    {"vocab_size", "320"},
    {"hidden_size", "72"},
    {"intermediate_size", "80"},
    {"num_hidden_layers", "5"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "2"},
    {"head_dim", "64"},
    {"max_position_embeddings", "131072"},
    {"initial_context_length", "4096"},
    {"rms_norm_eps", "1e-05"},
    {"eos_token_id", "2"},
    {"num_local_experts", "8"},
    {"num_experts_per_tok", "4"},
    {"experts_per_token", "4"},
    {"sliding_window", "128"},
    {"swiglu_limit", "7.0"},
    {"layer_types",
     "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", "
     "\"full_attention\", \"sliding_attention\"]"},
    {"rope_theta", "150000"},
    {"rope_scaling",
     "{\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, "
     "\"original_max_position_embeddings\": 4096, \"rope_type\": \"yarn\", "
     "\"truncate\": false}"},
    {"tie_word_embeddings", "false"},
    {"output_router_logits", "false"},
};

static void experts(void **state)
{
    WRITE(moe, {"use_cache", "true"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3_moe");
    assert_true(c.norm_topk_prob);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(c.layers[i].n_experts, 8);
        assert_int_equal(c.layers[i].n_active, 2);
        assert_int_equal(c.layers[i].expert_ff, 48);
    }
    config_free(&c);
    /* every second layer, except the last one of these */
    WRITE(moe, {"decoder_sparse_step", "2"});
    c = loads();
    assert_int_equal(c.layers[0].n_experts, 0);
    assert_int_equal(c.layers[0].d_ff, 160);
    assert_int_equal(c.layers[1].n_experts, 8);
    assert_int_equal(c.layers[2].n_experts, 0);
    config_free(&c);
    WRITE(moe, {"mlp_only_layers", "[2, 0]"});
    c = loads();
    assert_int_equal(c.layers[0].n_active, 0);
    assert_int_equal(c.layers[1].n_active, 2);
    assert_int_equal(c.layers[2].d_ff, 160);
    config_free(&c);
    /* the default of transformers, and its other name for the number */
    WRITE(moe, {"norm_topk_prob", NULL}, {"num_experts", NULL},
          {"num_local_experts", "8"}, {"mlp_only_layers", "null"});
    c = loads();
    assert_false(c.norm_topk_prob);
    assert_int_equal(c.layers[2].n_experts, 8);
    config_free(&c);
    /* without experts the model is dense */
    WRITE(moe, {"num_experts", "0"}, {"num_experts_per_tok", NULL});
    c = loads();
    assert_int_equal(c.layers[0].n_experts, 0);
    config_free(&c);
}

static void broken_experts(void **state)
{
    static const char *const sizes[] = {"num_experts_per_tok",
                                        "moe_intermediate_size"};
    static const char *const no_size[] = {
        NULL,  "null", "-1",        "0",     "1.5",
        "[8]", "true", "100000000", "\"8\"", "9223372036854775808"};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof no_size / sizeof *no_size; k++) {
            REFUSES(sizes[i], "an integer from 1 to", moe,
                    {sizes[i], no_size[k]});
        }
    for (size_t k = 0; k < sizeof no_size / sizeof *no_size; k++) {
        if (k == 3) /* 0 */
            continue;
        REFUSES("num_experts", "an integer from 0 to 16384", moe,
                {"num_experts", no_size[k]});
        if (k < 2) /* absent */
            continue;
        REFUSES("decoder_sparse_step", "an integer from 1 to", moe,
                {"decoder_sparse_step", k == 7 ? "2147483648" : no_size[k]});
        REFUSES("norm_topk_prob", "true or false", moe,
                {"norm_topk_prob", k == 6 ? "1" : no_size[k]});
    }
    REFUSES("decoder_sparse_step", "an integer from 1 to", moe,
            {"decoder_sparse_step", "0"});
    REFUSES("num_experts_per_tok", "from 1 to 8, is 9", moe,
            {"num_experts_per_tok", "9"});
    REFUSES("num_local_experts", "8, as num_experts, is 9", moe,
            {"num_local_experts", "9"});
    REFUSES("mlp_only_layers", "a list of layers", moe,
            {"mlp_only_layers", "1"});
    REFUSES("mlp_only_layers[1]", "from 0 to 2, is 3", moe,
            {"mlp_only_layers", "[0, 3]"});
    REFUSES("mlp_only_layers[0]", "is \"0\"", moe,
            {"mlp_only_layers", "[\"0\"]"});
}

static void gemma_fields(void **state)
{
    WRITE(gemma, {"use_cache", "true"});
    struct config a = loads(), b;
    assert_string_equal(a.model_type, "gemma3_text");
    assert_true(a.tied_head);
    assert_true(a.embed_scale == 8);
    assert_int_equal(a.n_ropes, 2);
    for (size_t i = 0; i < 7; i++) {
        bool full = i == 2 || i == 5;
        assert_true(a.layers[i].window == (full ? NO_WINDOW : 512));
        assert_true(a.layers[i].score_scale == 0.2f);
        const struct rope_config *r = &a.ropes[a.layers[i].rope];
        assert_true(r->theta == (full ? 1e6 : 1e4));
        assert_int_equal(r->n_rot, 16);
    }
    /* as transformers 5 writes it, and with transformers' defaults */
    WRITE(gemma, {"sliding_window_pattern", NULL},
          {"_sliding_window_pattern", "3"}, {"rope_theta", NULL},
          {"rope_local_base_freq", NULL}, {"rope_scaling", NULL},
          {"rope_parameters",
           "{\"full_attention\": {\"rope_theta\": 1000000, \"rope_type\": "
           "\"default\"}, \"sliding_attention\": {\"rope_theta\": 10000}}"});
    b = loads();
    same(&a, &b);
    config_free(&b);
    WRITE(gemma, {"rope_theta", NULL}, {"rope_local_base_freq", NULL},
          {"tie_word_embeddings", "true"}, {"rms_norm_eps", NULL},
          {"hidden_activation", NULL}, {"use_bidirectional_attention", "false"},
          {"layer_types", "[\"sliding_attention\", \"sliding_attention\", "
                          "\"full_attention\", \"sliding_attention\", "
                          "\"sliding_attention\", \"full_attention\", "
                          "\"sliding_attention\"]"});
    b = loads();
    same(&a, &b);
    config_free(&a);
    config_free(&b);
    /* only layers that attend to all are scaled */
    WRITE(gemma,
          {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 8.0}"});
    a = loads();
    assert_int_equal(a.ropes[a.layers[2].rope].type, ROPE_LINEAR);
    assert_true(a.ropes[a.layers[2].rope].factor == 8);
    assert_int_equal(a.ropes[a.layers[0].rope].type, ROPE_DEFAULT);
    config_free(&a);
}

/* Released checkpoints with a vision model leave out what transformers has a
 * default for. */
static void wrapped_fields(void **state)
{
    static const struct member wrapped[] = {
        {"model_type", "\"gemma3\""},
        {"eos_token_id", "[1, 106]"},
        {"quantization", "{\"group_size\": 64, \"bits\": 4}"},
        {"vision_config", "{\"hidden_size\": 1152}"},
        {"text_config",
         "{\"hidden_size\": 2560, \"intermediate_size\": 10240, "
         "\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, "
         "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
         "\"sliding_window\": 1024}"},
    };
    WRITE(wrapped, {"mm_tokens_per_image", "256"});
    struct config c = loads();
    assert_string_equal(c.model_type, "gemma3_text");
    assert_int_equal(c.d_model, 2560);
    assert_int_equal(c.vocab_size, 262208);
    assert_int_equal(c.n_heads, 8);
    assert_int_equal(c.n_kv_heads, 4);
    assert_int_equal(c.head_dim, 256);
    assert_int_equal(c.n_ctx_max, 131072);
    assert_true(c.layers[0].score_scale == 1.0f / 16);
    assert_true(c.layers[0].window == 1024);
    assert_true(c.layers[5].window == NO_WINDOW);
    assert_true(c.ropes[c.layers[5].rope].factor == 8);
    assert_true(c.ropes[c.layers[5].rope].theta == 1e6);
    assert_true(c.tied_head);
    assert_int_equal(c.n_stop_ids, 2);
    assert_int_equal(c.quant.all.bits, 4);
    config_free(&c);
    REFUSES("text_config", "an object, is an array", wrapped,
            {"text_config", "[]"});
    REFUSES("text_config", "missing", wrapped, {"text_config", NULL});
    REFUSES("text_config.model_type", "is \"gemma2\"", wrapped,
            {"text_config", "{\"model_type\": \"gemma2\"}"});
    REFUSES("text_config.hidden_size", "is 0", wrapped,
            {"text_config", "{\"hidden_size\": 0}"});
}

static void gemma2_fields(void **state)
{
    struct config c;
    WRITE(gemma2, {"use_cache", "true"});
    c = loads();
    assert_true(c.attn_cap == 50 && c.logit_cap == 30);
    assert_true(c.embed_scale == 32);
    assert_true(c.layers[4].score_scale == 1.0f / 12);
    assert_int_equal(c.n_ropes, 1);
    for (size_t i = 0; i < 5; i++)
        assert_true(c.layers[i].window == (i % 2 ? NO_WINDOW : 4096));
    config_free(&c);
    /* missing fields have the defaults of Gemma2Config, null is no cap */
    WRITE(gemma2, {"attn_logit_softcapping", NULL},
          {"final_logit_softcapping", "null"}, {"query_pre_attn_scalar", NULL},
          {"sliding_window", NULL}, {"rope_theta", NULL}, {"head_dim", NULL});
    c = loads();
    assert_true(c.attn_cap == 50 && c.logit_cap == 0);
    assert_true(c.layers[0].score_scale == 1.0f / 16);
    assert_true(c.layers[0].window == 4096 && c.ropes[0].theta == 10000);
    assert_true(c.tied_head);
    config_free(&c);
    WRITE(gemma1, {"use_cache", "true"});
    c = loads();
    assert_true(c.attn_cap == 0 && c.logit_cap == 0 && c.embed_scale == 32);
    assert_true(c.layers[1].score_scale == 1.0f / 16);
    assert_true(c.layers[0].window == NO_WINDOW);
    config_free(&c);
    REFUSES("attn_logit_softcapping", "is 0", gemma2,
            {"attn_logit_softcapping", "0"});
    REFUSES("final_logit_softcapping", "is \"30\"", gemma2,
            {"final_logit_softcapping", "\"30\""});
    REFUSES("hidden_activation", "must be \"gelu_pytorch_tanh\"", gemma2,
            {"hidden_activation", "\"gelu\""});
    REFUSES("attn_logit_softcapping", "must be null", gemma1,
            {"attn_logit_softcapping", "50.0"});
    REFUSES("final_logit_softcapping", "must be null", gemma1,
            {"final_logit_softcapping", "30.0"});
    REFUSES("hidden_act", "is \"silu\"", gemma1, {"hidden_act", "\"silu\""});
}

static void broken_gemma(void **state)
{
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"final_logit_softcapping", "30.0", "must be null"},
        {"attn_logit_softcapping", "50.0", "must be null"},
        {"use_bidirectional_attention", "true", "must be false"},
        {"use_bidirectional_attention", "1", "true or false"},
        {"hidden_activation", "\"gelu\"", "is \"gelu\""},
        {"query_pre_attn_scalar", "0", "is 0"},
        {"query_pre_attn_scalar", "\"256\"", "a number"},
        {"sliding_window", "0", "is 0"},
        {"sliding_window_pattern", "0", "is 0"},
        {"layer_types", "[\"sliding_attention\"]", "has 1"},
        {"layer_types", "6", "a list of 7"},
        {"head_dim", "15", "must be even"},
        {"rms_norm_eps", "0", "is 0"},
        {"vocab_size", "-1", "is -1"},
        {"tie_word_embeddings", "1", "true or false"},
        {"rope_scaling", "8", "an object or null"},
        {"rope_local_base_freq", "0", "is 0"},
        {"rope_parameters", "[]", "an object"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        REFUSES(rows[i].key, rows[i].says, gemma, {rows[i].key, rows[i].value});
    }
    REFUSES("rope_scaling.rope_type", "dynamic", gemma,
            {"rope_scaling", "{\"rope_type\": \"dynamic\"}"});
    REFUSES("rope_parameters.full_attention", "missing", gemma,
            {"rope_parameters", "{\"rope_theta\": 10000}"});
    REFUSES("rope_parameters.sliding_attention.rope_type", "dynamic", gemma,
            {"rope_parameters",
             "{\"full_attention\": {}, \"sliding_attention\": "
             "{\"rope_type\": \"dynamic\"}}"});
    REFUSES("rope_parameters.full_attention.rope_theta", "is 5", gemma,
            {"rope_parameters", "{\"full_attention\": {\"rope_theta\": 5}, "
                                "\"sliding_attention\": {}}"});
}

static void gpt_oss_fields(void **state)
{
    WRITE(gpt_oss, {"use_cache", "true"});
    struct config a = loads(), b;
    const struct rope_config *r = &a.ropes[0];
    assert_true(a.qkv_bias && a.o_bias && a.expert_bias && !a.mlp_bias);
    assert_int_equal(a.head_dim, 64);
    assert_int_equal(r->type, ROPE_YARN);
    assert_int_equal(r->n_rot, 64);
    assert_int_equal(r->original, 4096);
    assert_true(r->theta == 150000 && r->factor == 32 && !r->truncate);
    for (size_t i = 0; i < 5; i++) {
        assert_true(a.layers[i].window == (i % 2 ? NO_WINDOW : 128));
        assert_int_equal(a.layers[i].n_experts, 8);
        assert_int_equal(a.layers[i].n_active, 4);
        assert_int_equal(a.layers[i].expert_ff, 80);
        assert_int_equal(a.layers[i].d_ff, 0);
    }
    /* as transformers 5 writes it, and with transformers' defaults */
    WRITE(gpt_oss, {"rope_theta", NULL}, {"rope_scaling", NULL},
          {"initial_context_length", NULL}, {"swiglu_limit", NULL},
          {"experts_per_token", "null"},
          {"rope_parameters",
           "{\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 32.0, "
           "\"original_max_position_embeddings\": 4096, \"rope_type\": "
           "\"yarn\", \"rope_theta\": 150000.0, \"truncate\": false}"});
    b = loads();
    same(&a, &b);
    config_free(&b);
    WRITE(gpt_oss, {"layer_types", NULL}, {"sliding_window", NULL},
          {"attention_bias", NULL}, {"rope_theta", NULL});
    b = loads();
    same(&a, &b);
    config_free(&a);
    config_free(&b);
    WRITE(gpt_oss, {"attention_bias", "false"},
          {"rope_scaling", "{\"rope_type\": \"default\"}"});
    a = loads();
    assert_true(!a.qkv_bias && !a.o_bias && a.expert_bias);
    assert_int_equal(a.ropes[0].type, ROPE_DEFAULT);
    config_free(&a);
}

static void broken_gpt_oss(void **state)
{
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"sliding_window", "null", "an integer from 1"},
        {"sliding_window", "0", "is 0"},
        {"layer_types", "[\"sliding_attention\"]", "has 1"},
        {"layer_types", "3", "a list of 5"},
        {"swiglu_limit", "8.0", "must be 7"},
        {"swiglu_limit", "\"7\"", "must be 7"},
        {"num_local_experts", "0", "an integer from 1"},
        {"num_experts_per_tok", "9", "from 1 to 8, is 9"},
        {"experts_per_token", "2", "4, as num_experts_per_tok, is 2"},
        {"initial_context_length", "8192",
         "4096, as original_max_position_embeddings, is 8192"},
        {"attention_bias", "1", "true or false"},
        {"rope_scaling", NULL, "an object"},
        {"rope_scaling", "null", "an object"},
        {"head_dim", "63", "must be even"},
        {"head_dim", NULL, "missing"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        REFUSES(rows[i].key, rows[i].says, gpt_oss,
                {rows[i].key, rows[i].value});
    }
}

/* ---- fields that must have one value ---- */

/* A value that a row of arch.fixed refuses. */
static const char *other_value(const char *want)
{
    return strcmp(want, "true") == 0    ? "false"
           : strcmp(want, "false") == 0 ? "true"
           : strcmp(want, "null") == 0  ? "30.5"
           : strcmp(want, "{}") == 0    ? "{\"1\": {\"x\": 2}}"
           : want[0] == '"'             ? "\"other\""
                                        : "2";
}

/* The path a.b with a value as a member a: {"b": value}. *key: a. */
static const char *nest(char *out, size_t n, char *key, const char *path,
                        const char *value)
{
    size_t at = 0, depth = 0;
    const char *dot = strchr(path, '.');
    snprintf(key, 64, "%.*s", (int)(dot ? dot - path : 63), path);
    out[0] = '\0';
    for (; dot; dot = strchr(dot + 1, '.'), depth++) {
        const char *end = strchr(dot + 1, '.');
        int len = end ? (int)(end - dot - 1) : 63;
        at += (size_t)snprintf(out + at, n - at, "{\"%.*s\": ", len, dot + 1);
    }
    at += (size_t)snprintf(out + at, n - at, "%s", value);
    for (; depth; depth--)
        at += (size_t)snprintf(out + at, n - at, "}");
    return out;
}

static void refuses_others(const struct member *base, size_t n_base,
                           const struct fixed_field *table, const char *doc)
{
    for (; table->path; table++) {
        char key[64], text[256];
        const char *last = strrchr(table->path, '.');
        const char *other = other_value(table->expected);
        struct member change = {
            key, nest(text, sizeof text, key, table->path, other)};
        write_config(base, n_base, &change, 1);
        refuses("config.json", table->path, "must be");
        refuses("config.json",
                strcmp(table->expected, "{}") == 0 ? "empty" : table->expected,
                other[0] == '{' ? "is an object" : other);
        if (!strstr(doc, last ? last + 1 : table->path))
            fail_msg("docs/config-fields.md lacks %s", table->path);
        if (last)
            continue;
        /* the value that changes nothing, and none */
        change.value = table->expected;
        write_config(base, n_base, &change, 1);
        struct config c = loads();
        config_free(&c);
        change.value = "null";
        write_config(base, n_base, &change, 1);
        c = loads();
        config_free(&c);
    }
}

static void fixed_fields(void **state)
{
    char *doc;
    size_t n;
    struct qwick_err e;
    /* as transformers writes a mixture, without the other name of num_experts
     */
    static struct member qwen35moe[sizeof qwen35 / sizeof *qwen35 + 4];
    memcpy(qwen35moe, qwen35, sizeof qwen35);
    struct member *more = qwen35moe + sizeof qwen35 / sizeof *qwen35;
    qwen35moe[0].value = "\"qwen3_5_moe_text\"";
    more[0] = (struct member){"num_experts", "8"};
    more[1] = (struct member){"num_experts_per_tok", "2"};
    more[2] = (struct member){"moe_intermediate_size", "48"};
    more[3] = (struct member){"shared_expert_intermediate_size", "40"};
    static struct member qwen3next[sizeof qwen35moe / sizeof *qwen35moe];
    memcpy(qwen3next, qwen35moe, sizeof qwen3next);
    qwen3next[0].value = "\"qwen3_next\"";
    const struct {
        const struct arch *arch;
        const struct member *base;
        size_t n;
    } families[] = {
        {&arch_qwen3, v4, sizeof v4 / sizeof *v4},
        {&arch_qwen3moe, moe, sizeof moe / sizeof *moe},
        {&arch_gemma1, gemma1, sizeof gemma1 / sizeof *gemma1},
        {&arch_gemma2, gemma2, sizeof gemma2 / sizeof *gemma2},
        {&arch_gemma3, gemma, sizeof gemma / sizeof *gemma},
        {&arch_qwen35, qwen35, sizeof qwen35 / sizeof *qwen35},
        {&arch_qwen35moe, qwen35moe, sizeof qwen35moe / sizeof *qwen35moe},
        {&arch_qwen3next, qwen3next, sizeof qwen3next / sizeof *qwen3next},
        {&arch_gpt_oss, gpt_oss, sizeof gpt_oss / sizeof *gpt_oss},
    };
    assert_ok(map_read_all("docs/config-fields.md", 1 << 20, &doc, &n, &e), &e);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        refuses_others(families[i].base, families[i].n, fixed_common, doc);
        refuses_others(families[i].base, families[i].n, families[i].arch->fixed,
                       doc);
    }
    free(doc);
    REFUSES("is_causal", "true or false", v4, {"is_causal", "1"});
}

/* The classes that an architecture may belong to; the last kind counts. */
static void architectures(void **state)
{
    static const struct {
        const char *value;
        enum model_class class;
        const char *name;
    } rows[] = {
        {NULL, CLASS_NONE, ""},
        {"null", CLASS_NONE, ""},
        {"[]", CLASS_NONE, ""},
        {"[\"Qwen3ForCausalLM\"]", CLASS_LANGUAGE, "Qwen3ForCausalLM"},
        {"[\"Qwen3_5ForConditionalGeneration\"]", CLASS_LANGUAGE,
         "Qwen3_5ForConditionalGeneration"},
        {"[\"Qwen3Model\"]", CLASS_BARE, "Qwen3Model"},
        {"[\"Model\"]", CLASS_BARE, "Model"},
        {"[\"\"]", CLASS_OTHER, ""},
        {"[\"Qwen3ForTokenClassification\"]", CLASS_OTHER,
         "Qwen3ForTokenClassification"},
        {"[\"Qwen3ForSequenceClassification\"]", CLASS_CLASSIFIER,
         "Qwen3ForSequenceClassification"},
        {"[\"A\\u001b\", \"BForCausalLM\"]", CLASS_OTHER, "A\\x1b"},
        {"[\"BForSequenceClassification\", \"A\"]", CLASS_CLASSIFIER,
         "BForSequenceClassification"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        WRITE(v4, {"architectures", rows[i].value});
        struct config c = loads();
        assert_int_equal(c.class, rows[i].class);
        assert_string_equal(c.class_name, rows[i].name);
        config_free(&c);
    }
    static const char *const bad[] = {"1", "\"Qwen3ForCausalLM\"", "{}", "[1]",
                                      "[null]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSES("architectures", "a list of names", v4,
                {"architectures", bad[i]});
    }
    WRITE(v4,
          {"auto_map", "{\"AutoConfig\": \"a.B\", \"AutoModelForCausalLM\": "
                       "\"m.C\"}"});
    struct config c = loads();
    assert_string_equal(c.own_code, "auto_map.AutoModelForCausalLM");
    config_free(&c);
    WRITE(v4, {"auto_map", "{\"AutoTokenizer\": [\"a.B\", null]}"});
    c = loads();
    assert_string_equal(c.own_code, "");
    config_free(&c);
}

/* transformers' Qwen3-MoE has windows in all layers or in none. */
static void windows_of_experts(void **state)
{
    WRITE(moe, {"use_sliding_window", "true"}, {"sliding_window", "7"},
          {"max_window_layers", "0"});
    struct config c = loads();
    assert_int_equal(c.layers[0].window, 7);
    config_free(&c);
    REFUSES("max_window_layers", "must be 0", moe,
            {"use_sliding_window", "true"}, {"sliding_window", "7"},
            {"max_window_layers", "1"});
    REFUSES("layer_types", "sliding_attention in all layers", moe,
            {"use_sliding_window", "true"}, {"sliding_window", "7"},
            {"layer_types", "[\"sliding_attention\", \"full_attention\", "
                            "\"sliding_attention\"]"});
    /* Qwen3Config's default, where the file leaves it out */
    WRITE(v4, {"use_sliding_window", "true"}, {"sliding_window", NULL},
          {"max_window_layers", "0"});
    c = loads();
    assert_int_equal(c.layers[0].window, 4096);
    config_free(&c);
}

static void qwen35_fields(void **state)
{
    WRITE(qwen35, {"attn_output_gate", "true"}, {"mtp_num_hidden_layers", "1"});
    struct config a = loads(), b;
    assert_string_equal(a.model_type, "qwen3_5_text");
    assert_int_equal(a.delta.n_k_heads, 2);
    assert_int_equal(a.delta.n_v_heads, 6);
    assert_int_equal(a.delta.d_k, 16);
    assert_int_equal(a.delta.d_v, 24);
    assert_int_equal(a.delta.conv, 4);
    assert_int_equal(delta_channels(&a.delta), 2 * 2 * 16 + 6 * 24);
    assert_true(a.attention_gate);
    assert_int_equal(a.n_ropes, 1);
    assert_int_equal(a.ropes[0].n_rot, 8);
    assert_true(a.ropes[0].theta == 1e7);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(a.layers[i].recurrent, i != 3);
        assert_true(a.layers[i].window == NO_WINDOW);
        assert_int_equal(a.layers[i].n_experts, 0);
    }
    /* the other spellings of layers and of the rotary embedding */
    WRITE(qwen35,
          {"layer_types",
           "[\"linear_attention\", \"linear_attention\", "
           "\"linear_attention\", \"full_attention\", \"linear_attention\"]"},
          {"full_attention_interval", NULL}, {"partial_rotary_factor", "0.25"},
          {"rope_parameters", NULL}, {"rope_theta", "1e7"});
    b = loads();
    same(&a, &b);
    assert_int_equal(b.ropes[0].n_rot, 8);
    config_free(&a);
    config_free(&b);
    WRITE(qwen35, {"rope_parameters", "{\"rope_theta\": 1e7}"},
          {"full_attention_interval", NULL});
    a = loads(); /* transformers' defaults */
    assert_int_equal(a.ropes[0].n_rot, 8);
    assert_false(a.layers[3].recurrent);
    config_free(&a);
    /* nothing recurrent: no state */
    WRITE(qwen35, {"full_attention_interval", "1"});
    a = loads();
    assert_int_equal(a.delta.n_k_heads, 0);
    config_free(&a);
}

#define QWEN35_MOE                                                       \
    {"model_type", "\"qwen3_5_moe_text\""}, {"intermediate_size", NULL}, \
        {"num_experts", "8"}, {"num_experts_per_tok", "2"},              \
    {                                                                    \
        "moe_intermediate_size", "48"                                    \
    }

static void qwen35_experts(void **state)
{
    WRITE(qwen35, QWEN35_MOE, {"shared_expert_intermediate_size", "40"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3_5_moe_text");
    assert_true(c.norm_topk_prob);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(c.layers[i].n_experts, 8);
        assert_int_equal(c.layers[i].n_active, 2);
        assert_int_equal(c.layers[i].expert_ff, 48);
        assert_int_equal(c.layers[i].shared_ff, 40);
    }
    config_free(&c);
    REFUSES("shared_expert_intermediate_size", "missing", qwen35, QWEN35_MOE);
}

#define QWEN3_NEXT                                                 \
    {"model_type", "\"qwen3_next\""}, {"intermediate_size", NULL}, \
        {"num_experts", "8"}, {"num_experts_per_tok", "2"},        \
        {"moe_intermediate_size", "48"},                           \
    {                                                              \
        "shared_expert_intermediate_size", "40"                    \
    }

static void qwen3next_fields(void **state)
{
    WRITE(qwen35, QWEN3_NEXT, {"mlp_only_layers", "[1]"},
          {"norm_topk_prob", "null"}, {"layer_types", "null"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3_next");
    assert_true(c.norm_topk_prob); /* transformers' defaults */
    assert_int_equal(c.layers[1].n_experts, 0);
    assert_int_equal(c.layers[1].d_ff, 5632);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(c.layers[i].recurrent, i != 3);
        assert_int_equal(c.layers[i].shared_ff, i == 1 ? 0 : 40);
    }
    config_free(&c);
    WRITE(qwen35, QWEN3_NEXT, {"norm_topk_prob", "false"});
    c = loads();
    assert_false(c.norm_topk_prob);
    config_free(&c);
    REFUSES("norm_topk_prob", "true or false", qwen35, QWEN3_NEXT,
            {"norm_topk_prob", "1"});
    REFUSES("num_experts", "missing", qwen35, {"model_type", "\"qwen3_next\""});
}

/* The released form: text_config leaves what the whole says. */
static void wrapped_qwen35(void **state)
{
    static const char text[] =
        "{\"model_type\": \"qwen3_5_text\", \"vocab_size\": 320, "
        "\"hidden_size\": 64, \"intermediate_size\": 160, "
        "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 32, "
        "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-06, "
        "\"eos_token_id\": 1, \"linear_conv_kernel_dim\": 4, "
        "\"linear_key_head_dim\": 16, \"linear_value_head_dim\": 16, "
        "\"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, "
        "\"rope_parameters\": {\"rope_theta\": 1e7}}";
    static const struct member wrapped[] = {
        {"model_type", "\"qwen3_5\""},
        {"text_config", text},
        {"vision_config", "{\"depth\": 27}"},
    };
    WRITE(wrapped, {"tie_word_embeddings", "true"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3_5_text");
    assert_true(c.tied_head);
    config_free(&c);
    WRITE(wrapped, {"tie_word_embeddings", "false"});
    c = loads();
    assert_false(c.tied_head);
    config_free(&c);
    REFUSES("text_config.tie_word_embeddings", "missing", wrapped,
            {"image_token_id", "300"});
    REFUSES("text_config.model_type", "\"qwen3_5_moe_text\"", wrapped,
            {"model_type", "\"qwen3_5_moe\""});
}

static void broken_qwen35(void **state)
{
    static const struct {
        const char *key, *value, *says;
    } rows[] = {
        {"linear_num_key_heads", "0", "is 0"},
        {"linear_num_key_heads", NULL, "missing"},
        {"linear_num_value_heads", "5", "is not a multiple of"},
        {"linear_num_value_heads", "16777216", "is over"},
        {"linear_key_head_dim", "16777216", "is over"},
        {"linear_value_head_dim", "\"16\"", "\"16\""},
        {"linear_conv_kernel_dim", "1", "at least 2, is 1"},
        {"linear_conv_kernel_dim", "33", "from 1 to 32"},
        {"attn_output_gate", "false", "must be true"},
        {"hidden_act", "\"gelu\"", "is \"gelu\""},
        {"full_attention_interval", "0", "is 0"},
        {"layer_types", "[\"linear_attention\"]", "has 1"},
        {"layer_types",
         "[\"linear_attention\", \"linear_attention\", "
         "\"linear_attention\", \"sliding_attention\", \"full_attention\"]",
         "no sliding_window is in use"},
        {"full_attention_interval", "6", "none of 5 layers"},
        {"partial_rotary_factor", "0.5", "is 0.5, but"},
        {"head_dim", "28", "a part of head_dim, 28,"},
        {"head_dim", "7", "a part of head_dim, 7,"},
        {"rope_parameters", "[]", "an object"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        REFUSES("", rows[i].says, qwen35, {rows[i].key, rows[i].value});
    }
    REFUSES("rope_parameters.partial_rotary_factor", "is 2", qwen35,
            {"rope_parameters", "{\"rope_theta\": 1e7, "
                                "\"partial_rotary_factor\": 2}"});
    /* other families have no such layers */
    REFUSES("layer_types[0]", "\"linear_attention\"", v5,
            {"layer_types", "[\"linear_attention\", \"full_attention\", "
                            "\"full_attention\"]"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(experts, fresh),
        cmocka_unit_test_setup(broken_experts, fresh),
        cmocka_unit_test_setup(gemma_fields, fresh),
        cmocka_unit_test_setup(gemma2_fields, fresh),
        cmocka_unit_test_setup(wrapped_fields, fresh),
        cmocka_unit_test_setup(broken_gemma, fresh),
        cmocka_unit_test_setup(gpt_oss_fields, fresh),
        cmocka_unit_test_setup(broken_gpt_oss, fresh),
        cmocka_unit_test_setup(fixed_fields, fresh),
        cmocka_unit_test_setup(architectures, fresh),
        cmocka_unit_test_setup(windows_of_experts, fresh),
        cmocka_unit_test_setup(qwen35_fields, fresh),
        cmocka_unit_test_setup(qwen35_experts, fresh),
        cmocka_unit_test_setup(qwen3next_fields, fresh),
        cmocka_unit_test_setup(wrapped_qwen35, fresh),
        cmocka_unit_test_setup(broken_qwen35, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
