/* config.json of mixtures of experts, of gpt-oss and Qwen3.5, and fields that
 * must have one value in each family. test_config_gemma.c has Gemma's. */
#include "test.h"

#include <string.h>

#include "config_fixed.h"

/* A mixture of experts. */
static const struct member moe[] = {
    MEMBERS("qwen3_moe"),
    {"rope_theta", "1000000.0"},
    {"num_experts", "8"},
    {"num_experts_per_tok", "2"},
    {"moe_intermediate_size", "48"},
    {"norm_topk_prob", "true"},
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

static void fixed_fields(void **state)
{
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
    const struct fixed_family families[] = {
        {&arch_qwen3, v4, sizeof v4 / sizeof *v4},
        {&arch_qwen3moe, moe, sizeof moe / sizeof *moe},
        {&arch_qwen35, qwen35, sizeof qwen35 / sizeof *qwen35},
        {&arch_qwen35moe, qwen35moe, sizeof qwen35moe / sizeof *qwen35moe},
        {&arch_qwen3next, qwen3next, sizeof qwen3next / sizeof *qwen3next},
        {&arch_gpt_oss, gpt_oss, sizeof gpt_oss / sizeof *gpt_oss},
    };
    refuses_others_of(families, sizeof families / sizeof *families);
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
