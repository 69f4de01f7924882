/* config.json of Gemma, Gemma 2, 3 and 4. */
#include "test.h"

#include <string.h>

#include "config_fixed.h"

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

/* Gemma 4 as released, smaller. */
static const struct member gemma4[] = {
    {"model_type", "\"gemma4_text\""},
    {"vocab_size", "320"},
    {"hidden_size", "64"},
    {"intermediate_size", "96"},
    {"num_hidden_layers", "6"},
    {"num_attention_heads", "4"},
    {"num_key_value_heads", "2"},
    {"num_global_key_value_heads", "1"},
    {"head_dim", "16"},
    {"global_head_dim", "32"},
    {"attention_k_eq_v", "true"},
    {"hidden_size_per_layer_input", "0"},
    {"num_kv_shared_layers", "0"},
    {"layer_types",
     "[\"sliding_attention\", \"sliding_attention\", \"full_attention\", "
     "\"sliding_attention\", \"sliding_attention\", \"full_attention\"]"},
};

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

/* Kinds of layers, in both spellings, with transformers' rotary defaults. */
static void gemma4_fields(void **state)
{
    WRITE(gemma4, {"num_global_key_value_heads", "1"});
    struct config a = loads(), b;
    for (size_t i = 0; i < 6; i++) {
        const struct layer_config *l = &a.layers[i];
        bool full = i % 3 == 2;
        assert_true(l->window == (full ? NO_WINDOW : 512));
        assert_int_equal(l->head_dim, full ? 32 : 16);
        assert_int_equal(l->n_kv_heads, full ? 1 : 2);
        assert_int_equal(l->v_from_k, full);
        assert_int_equal(l->kv_back, 0);
        assert_true(l->score_scale == 1);
        assert_int_equal(a.ropes[l->rope].n_rot, l->head_dim);
        assert_int_equal(a.ropes[l->rope].type,
                         full ? ROPE_PROPORTIONAL : ROPE_DEFAULT);
    }
    assert_int_equal(a.ropes[ROPE_FULL].n_turning, 4);
    WRITE(gemma4, {"global_head_dim", NULL},
          {"num_global_key_value_heads", NULL}, {"layer_types", NULL},
          {"per_layer_config",
           "{\"5\": {\"head_dim\": 32, \"num_key_value_heads\": 1}}"});
    b = loads();
    assert_int_equal(b.layers[2].window, 512);
    assert_int_equal(b.layers[2].head_dim, 16);
    assert_int_equal(b.layers[5].head_dim, 32);
    assert_int_equal(b.layers[5].n_kv_heads, 1);
    assert_true(b.layers[5].v_from_k);
    config_free(&b);
    WRITE(gemma4, {"num_kv_shared_layers", "3"},
          {"use_double_wide_mlp", "true"});
    b = loads();
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(b.layers[i].kv_back, i < 3 ? 0 : i == 3 ? 2 : 3);
        assert_int_equal(b.layers[i].d_ff, i < 3 ? 96 : 192);
    }
    config_free(&a);
    config_free(&b);
}

static void broken_gemma4(void **state)
{
    REFUSES("num_kv_shared_layers", "layer 2 needs", gemma4,
            {"num_kv_shared_layers", "4"});
    REFUSES("num_kv_shared_layers", "from 0 to 5", gemma4,
            {"num_kv_shared_layers", "6"});
    REFUSES("per_layer_config.1.rope_theta", "in one layer", gemma4,
            {"per_layer_config", "{\"1\": {\"rope_theta\": 7}}"});
    REFUSES("per_layer_config.6", "from 0 to 5", gemma4,
            {"per_layer_config", "{\"6\": {\"head_dim\": 32}}"});
    REFUSES("head_dim of layer 1", "is 32, but 16", gemma4,
            {"per_layer_config", "{\"1\": {\"head_dim\": 32}}"});
    REFUSES("num_attention_heads", "KV heads of layer 2, 3", gemma4,
            {"num_global_key_value_heads", "3"});
    REFUSES("use_bidirectional_attention", "\"all\"", gemma4,
            {"use_bidirectional_attention", "\"all\""});
    REFUSES("vocab_size_per_layer_input", "320", gemma4,
            {"hidden_size_per_layer_input", "16"},
            {"vocab_size_per_layer_input", "300"});
    REFUSES("attention_bias", "is true", gemma4, {"attention_bias", "true"});
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

static void fixed_fields(void **state)
{
    const struct fixed_family families[] = {
        {&arch_gemma1, gemma1, sizeof gemma1 / sizeof *gemma1},
        {&arch_gemma2, gemma2, sizeof gemma2 / sizeof *gemma2},
        {&arch_gemma3, gemma, sizeof gemma / sizeof *gemma},
        {&arch_gemma4, gemma4, sizeof gemma4 / sizeof *gemma4},
    };
    refuses_others_of(families, sizeof families / sizeof *families);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gemma_fields, fresh),
        cmocka_unit_test_setup(gemma2_fields, fresh),
        cmocka_unit_test_setup(gemma4_fields, fresh),
        cmocka_unit_test_setup(broken_gemma4, fresh),
        cmocka_unit_test_setup(wrapped_fields, fresh),
        cmocka_unit_test_setup(broken_gemma, fresh),
        cmocka_unit_test_setup(fixed_fields, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
