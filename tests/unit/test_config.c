/* config.json and generation_config.json: both spellings, every field broken in
 * every way, and the values derived from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "file/checkpoint.h"
#include "model/config.h"
#include "tempdir.h"

/* ---- making files ---- */

struct member {
    const char *key, *value; /* value: JSON; NULL: the member is left out */
};

#define COMMON MEMBERS("qwen3")
#define MEMBERS(TYPE)                                                \
    {"architectures", "[\"Qwen3ForCausalLM\"]"},                     \
        {"model_type", "\"" TYPE "\""}, {"hidden_act", "\"silu\""},  \
        {"vocab_size", "320"}, {"hidden_size", "64"},                \
        {"intermediate_size", "160"}, {"num_hidden_layers", "3"},    \
        {"num_attention_heads", "4"}, {"num_key_value_heads", "2"},  \
        {"head_dim", "16"}, {"max_position_embeddings", "2048"},     \
        {"rms_norm_eps", "1e-06"}, {"tie_word_embeddings", "true"},  \
        {"attention_bias", "false"}, {"eos_token_id", "1"},          \
        {"sliding_window", "null"}, {"use_sliding_window", "false"}, \
    {                                                                \
        "max_window_layers", "28"                                    \
    }

static const struct member v4[] = {
    COMMON,
    {"torch_dtype", "\"bfloat16\""},
    {"rope_theta", "1000000.0"},
    {"rope_scaling", "null"},
};
static const struct member v5[] = {
    COMMON,
    {"dtype", "\"bfloat16\""},
    {"layer_types",
     "[\"full_attention\", \"full_attention\", \"full_attention\"]"},
    {"rope_parameters",
     "{\"rope_theta\": 1000000.0, \"rope_type\": \"default\"}"},
};
/* A mixture of experts. */
static const struct member moe[] = {
    MEMBERS("qwen3_moe"),
    {"rope_theta", "1000000.0"},
    {"num_experts", "8"},
    {"num_experts_per_tok", "2"},
    {"moe_intermediate_size", "48"},
    {"norm_topk_prob", "true"},
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
enum { N_V4 = sizeof v4 / sizeof *v4, N_V5 = sizeof v5 / sizeof *v5 };

static void put_member(struct buf *b, const char *key, const char *value)
{
    assert_int_equal(
        buf_printf(b, "%s\n  \"%s\": %s", b->len > 1 ? "," : "", key, value),
        0);
}

/* Write config.json from a list of members with changes. */
static void write_config(const struct member *base, size_t n,
                         const struct member *change, size_t n_changes)
{
    struct buf b = {0};
    assert_int_equal(buf_putc(&b, '{'), 0);
    for (size_t i = 0; i < n; i++) {
        bool changed = false;
        for (size_t k = 0; k < n_changes; k++)
            changed |= !strcmp(change[k].key, base[i].key);
        if (!changed)
            put_member(&b, base[i].key, base[i].value);
    }
    for (size_t k = 0; k < n_changes; k++)
        if (change[k].value)
            put_member(&b, change[k].key, change[k].value);
    assert_int_equal(buf_puts(&b, "\n}\n"), 0);
    temp_write("config.json", b.data, b.len);
    buf_free(&b);
}

#define WRITE(base, ...)                                        \
    write_config(base, sizeof base / sizeof *base,              \
                 (const struct member[]){__VA_ARGS__},          \
                 sizeof((const struct member[]){__VA_ARGS__}) / \
                     sizeof(struct member))

static int load(struct config *c, struct qwick_err *e)
{
    struct checkpoint *ck;
    *e = (struct qwick_err){0};
    assert_int_equal(checkpoint_open(&ck, temp_dir, e), 0);
    int rc = config_load(c, ck, e);
    checkpoint_close(ck);
    return rc;
}

static struct config loads(void)
{
    struct config c;
    struct qwick_err e;
    if (load(&c, &e))
        fail_msg("%s", e.msg);
    return c;
}

/* Check that config_load fails with code MODEL, and that the message has all of
 * the words. */
static void refuses(const char *file, const char *a, const char *b)
{
    struct config c;
    struct qwick_err e;
    if (!load(&c, &e))
        fail_msg("accepted: %s %s %s", file, a, b);
    if (e.code != QWICK_ERR_MODEL || !strstr(e.msg, file) ||
        !strstr(e.msg, a) || !strstr(e.msg, b) || strchr(e.msg, '\n'))
        fail_msg("expected %s, %s, %s in: %s", file, a, b, e.msg);
    assert_null(c.layers);
    assert_null(c.quant.v);
}

static int fresh(void **state)
{
    (void)state;
    temp_clear();
    return 0;
}

/* ---- good files ---- */

static void same(const struct config *a, const struct config *b)
{
#define SAME(f) assert_true(a->f == b->f)
    assert_string_equal(a->model_type, b->model_type);
    SAME(vocab_size);
    SAME(d_model);
    SAME(d_ff);
    SAME(n_layers);
    SAME(n_heads);
    SAME(n_kv_heads);
    SAME(head_dim);
    SAME(n_ctx_max);
    SAME(rms_eps);
    SAME(arch);
    SAME(n_ropes);
    for (size_t i = 0; i < a->n_ropes; i++) {
        SAME(ropes[i].type);
        SAME(ropes[i].n_rot);
        SAME(ropes[i].theta);
        SAME(ropes[i].factor);
        SAME(ropes[i].beta_fast);
        SAME(ropes[i].beta_slow);
        SAME(ropes[i].attention);
        SAME(ropes[i].original);
        SAME(ropes[i].truncate);
    }
    SAME(tied_head);
    SAME(attention_bias);
    SAME(sliding_window);
    SAME(n_stop_ids);
    SAME(do_sample);
    SAME(temperature);
    SAME(top_p);
    SAME(min_p);
    SAME(repetition_penalty);
    for (size_t i = 0; i < a->n_layers; i++) {
        SAME(layers[i].window);
        SAME(layers[i].rope);
        SAME(layers[i].score_scale);
    }
    assert_memory_equal(a->stop_ids, b->stop_ids,
                        a->n_stop_ids * sizeof *a->stop_ids);
}

static void values_are_read(void **state)
{
    (void)state;
    WRITE(v4, {"tie_word_embeddings", "false"}, {"attention_bias", "true"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3");
    assert_int_equal(c.vocab_size, 320);
    assert_int_equal(c.d_model, 64);
    assert_int_equal(c.d_ff, 160);
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.n_heads, 4);
    assert_int_equal(c.n_kv_heads, 2);
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.n_ctx_max, 2048);
    assert_true(c.rms_eps == 1e-6);
    assert_true(c.ropes[0].theta == 1e6);
    assert_int_equal(c.ropes[0].type, ROPE_DEFAULT);
    assert_true(c.ropes[0].attention == 1);
    assert_false(c.tied_head);
    assert_true(c.attention_bias);
    assert_int_equal(c.sliding_window, 0);
    assert_int_equal(c.n_stop_ids, 1);
    assert_int_equal(c.stop_ids[0], 1);
    assert_false(c.do_sample);
    assert_true(c.temperature == 1 && c.top_p == 1 && c.min_p == 0 &&
                c.repetition_penalty == 1);
    for (int i = 0; i < 3; i++)
        assert_true(c.layers[i].window == NO_WINDOW && c.layers[i].rope == 0 &&
                    c.layers[i].score_scale == 0.25f);
    config_free(&c);
    config_free(&c);
}

static void both_spellings_are_equal(void **state)
{
    (void)state;
    static const struct {
        struct member old[3], new[3];
    } rows[] = {
        {{{"rope_theta", "1e6"}}, {{"dtype", "\"bfloat16\""}}},
        {{{"rope_theta", "10000"}},
         {{"rope_parameters",
           "{\"rope_type\": \"default\", \"rope_theta\": 1e4}"}}},
        {{{"rope_scaling", "{\"type\": \"linear\", \"factor\": 8.0}"}},
         {{"rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 8, "
                              "\"rope_theta\": 1000000}"}}},
        {{{"rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                           "\"original_max_position_embeddings\": 512}"}},
         {{"rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                              "\"rope_theta\": 1e6, "
                              "\"original_max_position_embeddings\": 512}"}}},
        {{{"use_sliding_window", "true"},
          {"sliding_window", "32"},
          {"max_window_layers", "1"}},
         {{"use_sliding_window", "true"},
          {"sliding_window", "32"},
          {"layer_types", "[\"full_attention\", \"sliding_attention\", "
                          "\"sliding_attention\"]"}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n_old = 0, n_new = 0;
        while (n_old < 3 && rows[i].old[n_old].key)
            n_old++;
        while (n_new < 3 && rows[i].new[n_new].key)
            n_new++;
        write_config(v4, N_V4, rows[i].old, n_old);
        struct config a = loads();
        write_config(v5, N_V5, rows[i].new, n_new);
        struct config b = loads();
        same(&a, &b);
        config_free(&a);
        config_free(&b);
    }
    /* unknown members are ignored; a byte order mark is accepted */
    WRITE(v5, {"use_cache", "true"}, {"x", "[{\"y\": null}]"},
          {"hidden_act", NULL}, {"attention_bias", NULL},
          {"use_sliding_window", NULL}, {"max_window_layers", NULL},
          {"rope_scaling", "null"});
    struct config c = loads();
    config_free(&c);
    static const char bom[] = "\xEF\xBB\xBF";
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, bom), 0);
    FILE *f = fopen(temp_path("config.json"), "rb");
    char text[4096];
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_int_equal(buf_append(&b, text, n), 0);
    temp_write("config.json", b.data, b.len);
    buf_free(&b);
    c = loads();
    config_free(&c);
}

/* ---- broken fields ---- */

static void required_fields(void **state)
{
    (void)state;
    static const char *const sizes[] = {"vocab_size",
                                        "hidden_size",
                                        "intermediate_size",
                                        "num_hidden_layers",
                                        "num_attention_heads",
                                        "num_key_value_heads",
                                        "head_dim",
                                        "max_position_embeddings"};
    static const char *const broken[] = {
        NULL,
        "null",
        "0",
        "-1",
        "-64",
        "\"64\"",
        "64.5",
        "64.0",
        "6.4e1",
        "true",
        "[64]",
        "{}",
        "4294967360",
        "18446744073709551680",
        "-18446744073709551552",
        "340282366920938463463374607431768211520",
        "1e400",
        "9223372036854775807",
        "9223372036854775808"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t k = 0; k < sizeof broken / sizeof *broken; k++) {
            WRITE(v4, {sizes[i], broken[k]});
            refuses("config.json", sizes[i],
                    broken[k] ? "must be" : "is missing");
        }
    }
    static const char *const floats[] = {"rms_norm_eps", "rope_theta"};
    static const char *const no_float[] = {
        NULL,       "null",  "0",      "0.0",  "-0.0", "-1e-6",
        "\"1e-6\"", "1e400", "-1e400", "true", "[]"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof no_float / sizeof *no_float; k++) {
            WRITE(v4, {floats[i], no_float[k]});
            refuses("config.json", floats[i], "must be");
        }
    }
    static const char *const flags[] = {"tie_word_embeddings", "attention_bias",
                                        "use_sliding_window"};
    static const char *const no_flag[] = {"0", "1", "\"true\"", "[]", "{}"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 5; k++) {
            WRITE(v4, {flags[i], no_flag[k]});
            refuses("config.json", flags[i], "true or false");
        }
    }
    WRITE(v4, {"tie_word_embeddings", NULL});
    refuses("config.json", "tie_word_embeddings", "missing");
}

static void experts(void **state)
{
    (void)state;
    WRITE(moe, {"use_cache", "true"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3_moe");
    assert_true(c.norm_topk_prob);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(c.layers[i].n_experts, 8);
        assert_int_equal(c.layers[i].n_active, 2);
        assert_int_equal(c.layers[i].d_ff, 48);
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
    (void)state;
    static const char *const sizes[] = {"num_experts_per_tok",
                                        "moe_intermediate_size"};
    static const char *const no_size[] = {
        NULL,  "null", "-1",        "0",     "1.5",
        "[8]", "true", "100000000", "\"8\"", "9223372036854775808"};
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof no_size / sizeof *no_size; k++) {
            WRITE(moe, {sizes[i], no_size[k]});
            refuses("config.json", sizes[i], "an integer from 1 to");
        }
    for (size_t k = 0; k < sizeof no_size / sizeof *no_size; k++) {
        if (k == 3) /* 0 */
            continue;
        WRITE(moe, {"num_experts", no_size[k]});
        refuses("config.json", "num_experts", "an integer from 0 to 16384");
        if (k < 2) /* absent */
            continue;
        WRITE(moe, {"decoder_sparse_step", k == 7 ? "2147483648" : no_size[k]});
        refuses("config.json", "decoder_sparse_step", "an integer from 1 to");
        WRITE(moe, {"norm_topk_prob", k == 6 ? "1" : no_size[k]});
        refuses("config.json", "norm_topk_prob", "true or false");
    }
    WRITE(moe, {"decoder_sparse_step", "0"});
    refuses("config.json", "decoder_sparse_step", "an integer from 1 to");
    WRITE(moe, {"num_experts_per_tok", "9"});
    refuses("config.json", "num_experts_per_tok", "from 1 to 8, is 9");
    WRITE(moe, {"num_local_experts", "9"});
    refuses("config.json", "num_local_experts", "8, as num_experts, is 9");
    WRITE(moe, {"mlp_only_layers", "1"});
    refuses("config.json", "mlp_only_layers", "a list of layers");
    WRITE(moe, {"mlp_only_layers", "[0, 3]"});
    refuses("config.json", "mlp_only_layers[1]", "from 0 to 2, is 3");
    WRITE(moe, {"mlp_only_layers", "[\"0\"]"});
    refuses("config.json", "mlp_only_layers[0]", "is \"0\"");
}

static void gemma_fields(void **state)
{
    (void)state;
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
    (void)state;
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
    WRITE(wrapped, {"text_config", "[]"});
    refuses("config.json", "text_config", "an object, is an array");
    WRITE(wrapped, {"text_config", NULL});
    refuses("config.json", "text_config", "missing");
    WRITE(wrapped, {"text_config", "{\"model_type\": \"gemma2\"}"});
    refuses("config.json", "text_config.model_type", "is \"gemma2\"");
    WRITE(wrapped, {"text_config", "{\"hidden_size\": 0}"});
    refuses("config.json", "text_config.hidden_size", "is 0");
}

static void broken_gemma(void **state)
{
    (void)state;
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
        WRITE(gemma, {rows[i].key, rows[i].value});
        refuses("config.json", rows[i].key, rows[i].says);
    }
    WRITE(gemma, {"rope_scaling", "{\"rope_type\": \"llama3\"}"});
    refuses("config.json", "rope_scaling.rope_type", "llama3");
    WRITE(gemma, {"rope_parameters", "{\"rope_theta\": 10000}"});
    refuses("config.json", "rope_parameters.full_attention", "missing");
    WRITE(gemma,
          {"rope_parameters", "{\"full_attention\": {}, \"sliding_attention\": "
                              "{\"rope_type\": \"dynamic\"}}"});
    refuses("config.json", "rope_parameters.sliding_attention.rope_type",
            "dynamic");
    WRITE(gemma,
          {"rope_parameters", "{\"full_attention\": {\"rope_theta\": 5}, "
                              "\"sliding_attention\": {}}"});
    refuses("config.json", "rope_parameters.full_attention.rope_theta", "is 5");
}

static void qwen35_fields(void **state)
{
    (void)state;
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
    (void)state;
    WRITE(qwen35, QWEN35_MOE, {"shared_expert_intermediate_size", "40"});
    struct config c = loads();
    assert_string_equal(c.model_type, "qwen3_5_moe_text");
    assert_true(c.norm_topk_prob);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(c.layers[i].n_experts, 8);
        assert_int_equal(c.layers[i].n_active, 2);
        assert_int_equal(c.layers[i].d_ff, 48);
        assert_int_equal(c.layers[i].shared_ff, 40);
    }
    config_free(&c);
    WRITE(qwen35, QWEN35_MOE);
    refuses("config.json", "shared_expert_intermediate_size", "missing");
}

/* The released form: text_config leaves what the whole says. */
static void wrapped_qwen35(void **state)
{
    (void)state;
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
    WRITE(wrapped, {"image_token_id", "300"});
    refuses("config.json", "text_config.tie_word_embeddings", "missing");
    WRITE(wrapped, {"model_type", "\"qwen3_5_moe\""});
    refuses("config.json", "text_config.model_type", "\"qwen3_5_moe_text\"");
}

static void broken_qwen35(void **state)
{
    (void)state;
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
        WRITE(qwen35, {rows[i].key, rows[i].value});
        refuses("config.json", "", rows[i].says);
    }
    WRITE(qwen35, {"rope_parameters", "{\"rope_theta\": 1e7, "
                                      "\"partial_rotary_factor\": 2}"});
    refuses("config.json", "rope_parameters.partial_rotary_factor", "is 2");
    /* other families have no such layers */
    WRITE(v5, {"layer_types", "[\"linear_attention\", \"full_attention\", "
                              "\"full_attention\"]"});
    refuses("config.json", "layer_types[0]", "\"linear_attention\"");
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    WRITE(v4, {"model_type", "\"llama\""});
    refuses("config.json", "model_type", "llama");
    WRITE(v4, {"model_type", "\"qwen2_moe\""});
    refuses("config.json", "\"qwen3\", \"qwen3_moe\"", "\"qwen2_moe\"");
    WRITE(v4, {"model_type", "3"});
    refuses("config.json", "model_type", "3");
    WRITE(v4, {"model_type", NULL});
    refuses("config.json", "model_type", "missing");
    WRITE(v4, {"hidden_act", "\"gelu\""});
    refuses("config.json", "hidden_act", "gelu");
    WRITE(v4, {"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}"});
    refuses("config.json", "rope_scaling.rope_type", "llama3");
    WRITE(v4, {"rope_scaling", "{\"type\": \"dynamic\", \"factor\": 8}"});
    refuses("config.json", "rope_scaling.type", "dynamic");
    WRITE(v4, {"rope_scaling", "{\"factor\": 8}"});
    refuses("config.json", "rope_scaling.type", "missing");
    WRITE(v4, {"rope_scaling", "\"yarn\""});
    refuses("config.json", "rope_scaling", "yarn");
    WRITE(v5, {"rope_parameters",
               "{\"rope_theta\": 1e6, \"rope_type\": \"longrope\"}"});
    refuses("config.json", "rope_parameters.rope_type", "longrope");
    WRITE(v5, {"rope_parameters", "[]"});
    refuses("config.json", "rope_parameters", "an array");
    WRITE(v5, {"layer_types", "[\"full_attention\", \"linear_attention\", "
                              "\"full_attention\"]"});
    refuses("config.json", "layer_types[1]", "linear_attention");
    WRITE(v5, {"layer_types", "[\"full_attention\"]"});
    refuses("config.json", "layer_types", "has 1");
    WRITE(v5, {"layer_types", "\"full_attention\""});
    refuses("config.json", "layer_types", "list");
    WRITE(v5, {"layer_types", "[\"full_attention\", null, 3]"});
    refuses("config.json", "layer_types[1]", "null");
    WRITE(v4,
          {"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 4}"});
    refuses("config.json", "quantization_config", "gptq");
    WRITE(v4, {"quantization", "{\"group_size\": 64, \"bits\": 7}"});
    refuses("config.json", "quantization.bits", "7");
    WRITE(v4, {"quantization_config", "true"});
    refuses("config.json", "quantization_config", "an object");
}

static void shapes_that_cannot_be(void **state)
{
    (void)state;
    WRITE(v4, {"num_attention_heads", "5"});
    refuses("config.json", "num_attention_heads", "5");
    WRITE(v4, {"num_key_value_heads", "8"});
    refuses("config.json", "num_key_value_heads", "8");
    WRITE(v4, {"head_dim", "15"});
    refuses("config.json", "head_dim", "15");
    WRITE(v4, {"num_attention_heads", "16777216"}, {"head_dim", "16777216"},
          {"num_key_value_heads", "1"});
    refuses("config.json", "head_dim", "16777216");
    /* odd but valid: one head; head_dim is not a quotient of hidden_size */
    WRITE(v4, {"num_attention_heads", "1"}, {"num_key_value_heads", "1"},
          {"head_dim", "2"});
    struct config c = loads();
    config_free(&c);
}

static void files_that_are_none(void **state)
{
    (void)state;
    static const char *const text[] = {
        "",
        " ",
        "[]",
        "null",
        "3",
        "{",
        "{\"a\":1,}",
        "{} x",
        "{}{}",
        "//\n{}",
        "{'a':1}",
        "\xFF\xFE{\0}\0",
        "{\"a\": 1, \"a\": 2}",
    };
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        temp_write("config.json", text[i], strlen(text[i]));
        refuses("config.json", "", "");
    }
    temp_remove("config.json");
    refuses("config.json", "no such file", "");
    /* a repeated key, the second one after all others */
    WRITE(v4, {"hidden_size", "64, \"hidden_size\": 128"});
    refuses("config.json", "hidden_size", "");
    WRITE(v5, {"rope_parameters", "{\"rope_theta\": 1e6, \"rope_type\": "
                                  "\"default\", \"rope_theta\": 1e4}"});
    refuses("config.json", "rope_theta", "");
    WRITE(v4, {"model_type", "\"qwen3\\u0000\""}); /* whole length counts */
    refuses("config.json", "model_type", "qwen3");
    /* a long value is cut between characters: 39 bytes, not 40 */
    WRITE(v4, {"model_type", "\"\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                             "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                             "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                             "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                             "\xE2\x82\xAC\xE2\x82\xAC\""});
    refuses("config.json", "model_type", "\xAC\xE2\x82\xAC\"");
}

/* ---- rotary embedding ---- */

static void theta_is_the_same_everywhere(void **state)
{
    (void)state;
    WRITE(v5, {"rope_theta", "10000"});
    refuses("config.json", "rope_theta", "10000");
    WRITE(v5, {"rope_theta", "1000000"});
    struct config c = loads();
    assert_true(c.ropes[0].theta == 1e6);
    config_free(&c);
    WRITE(v5, {"rope_parameters", "{\"rope_type\": \"default\"}"},
          {"rope_theta", "5e6"});
    c = loads();
    assert_true(c.ropes[0].theta == 5e6);
    config_free(&c);
    WRITE(v5, {"rope_parameters", "{\"rope_type\": \"default\"}"});
    refuses("config.json", "rope_theta", "missing");
    WRITE(v5, {"rope_parameters", "{\"rope_type\": \"default\", "
                                  "\"rope_theta\": 0}"});
    refuses("config.json", "rope_parameters.rope_theta", "0");
    WRITE(v4, {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2, "
                               "\"rope_theta\": 7}"});
    refuses("config.json", "rope_scaling.rope_theta", "7");
}

/* transformers 4 reads only rope_scaling, and 5 prefers it. If a user adds YaRN
 * to a file of version 5, it must not be ignored. */
static void two_kinds_of_rope_are_a_conflict(void **state)
{
    (void)state;
    static const char yarn[] = "{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                               "\"original_max_position_embeddings\": 512}";
    WRITE(v5, {"rope_scaling", yarn});
    refuses("config.json", "rope_scaling", "rope_parameters");
    WRITE(v5, {"rope_scaling", yarn},
          {"rope_parameters", "{\"rope_type\": \"yarn\", \"factor\": 4, "
                              "\"original_max_position_embeddings\": 512, "
                              "\"rope_theta\": 1e6}"});
    struct config c = loads();
    assert_int_equal(c.ropes[0].type, ROPE_YARN);
    config_free(&c);
    WRITE(v5, {"rope_scaling", yarn},
          {"rope_parameters", "{\"rope_theta\": 1e6}"});
    c = loads();
    assert_int_equal(c.ropes[0].type, ROPE_YARN);
    assert_true(c.ropes[0].factor == 4);
    config_free(&c);
    WRITE(v5, {"rope_scaling", "{\"rope_type\": \"default\"}"});
    c = loads();
    assert_int_equal(c.ropes[0].type, ROPE_DEFAULT);
    config_free(&c);
}

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fabs(want)))
        fail_msg("%.9g instead of %.9g", got, want);
}

static struct config yarn_config(const char *scaling)
{
    WRITE(v4, {"head_dim", "128"}, {"max_position_embeddings", "40960"},
          {"rope_scaling", scaling});
    return loads();
}

static void yarn_has_the_published_values(void **state)
{
    (void)state;
    float inv[64], plain[64];
    struct config c = yarn_config("null");
    config_rope_frequencies(&c.ropes[0], plain);
    for (int i = 0; i < 64; i++)
        near((double)plain[i], pow(1e6, -i / 64.0), 1e-6);
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                    "\"original_max_position_embeddings\": 32768}");
    near(c.ropes[0].attention, 1.138629, 5e-7);
    assert_int_equal(c.ropes[0].original, 32768);
    config_rope_frequencies(&c.ropes[0], inv);
    near((double)inv[0], 1.0, 0);
    near((double)inv[23], 6.978306e-3, 2e-7);
    near((double)inv[30], 1.064361e-3, 2e-7);
    near((double)inv[40], 4.445699e-5, 2e-7);
    near((double)inv[63], 3.102344e-7, 2e-7);
    /* low 23, high 40 */
    for (int i = 0; i < 64; i++) {
        if (i <= 23)
            assert_true(inv[i] == plain[i]);
        else if (i >= 40)
            assert_true(inv[i] == plain[i] / 4);
        else
            assert_true(inv[i] < plain[i] && inv[i] > plain[i] / 4);
    }
    config_free(&c);
    c = yarn_config("{\"type\": \"yarn\", \"factor\": 2.0, "
                    "\"original_max_position_embeddings\": 32768}");
    near(c.ropes[0].attention, 1.069315, 5e-7);
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 1.0}");
    assert_true(c.ropes[0].attention == 1);
    assert_int_equal(c.ropes[0].original, 40960); /* max_position_embeddings */
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                    "\"attention_factor\": 0.9}");
    assert_true(c.ropes[0].attention == 0.9);
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 40, \"mscale\": "
                    "1.0, \"mscale_all_dim\": 0.5}");
    near(c.ropes[0].attention, (0.1 * log(40) + 1) / (0.05 * log(40) + 1),
         1e-12);
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 40, "
                    "\"mscale\": 1.0}");
    near(c.ropes[0].attention, 0.1 * log(40) + 1, 1e-12);
    config_free(&c);
    /* without truncation the ramp begins and ends between whole dimensions */
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 4.0, \"truncate\": "
                    "false, \"original_max_position_embeddings\": 32768}");
    config_rope_frequencies(&c.ropes[0], inv);
    double low = 128 * log(32768 / (32 * 2 * M_PI)) / (2 * log(1e6));
    double high = 128 * log(32768 / (2 * M_PI)) / (2 * log(1e6));
    for (int i = 0; i < 64; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        double want = pow(1e6, -i / 64.0);
        near((double)inv[i], want / 4 * ramp + want * (1 - ramp), 1e-6);
    }
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"linear\", \"factor\": 8}");
    config_rope_frequencies(&c.ropes[0], inv);
    assert_true(c.ropes[0].attention == 1);
    for (int i = 0; i < 64; i++)
        assert_true(inv[i] == plain[i] / 8);
    config_free(&c);
}

static void yarn_fields_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *json, *key;
    } rows[] = {
        {"{\"rope_type\": \"yarn\"}", "factor"},
        {"{\"rope_type\": \"linear\"}", "factor"},
        {"{\"rope_type\": \"yarn\", \"factor\": 0}", "factor"},
        {"{\"rope_type\": \"yarn\", \"factor\": \"4\"}", "factor"},
        {"{\"rope_type\": \"yarn\", \"factor\": 1e400}", "factor"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 0}",
         "original_max_position_embeddings"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, "
         "\"original_max_position_embeddings\": 4294967297}",
         "original_max_position_embeddings"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": -1}",
         "beta_fast"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_slow\": \"1\"}",
         "beta_slow"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": 1}",
         "truncate"},
        {"{\"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 0}",
         "attention_factor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        WRITE(v4, {"rope_scaling", rows[i].json});
        refuses("config.json", "rope_scaling.", rows[i].key);
    }
    /* frequencies stay finite for odd but valid values */
    static const char *const odd[] = {
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0}",
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_slow\": 0}",
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 1}",
        "{\"rope_type\": \"yarn\", \"factor\": 1e6, "
        "\"original_max_position_embeddings\": 1}",
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        for (int t = 0; t < 2; t++) {
            float inv[8];
            WRITE(v4, {"rope_scaling", odd[i]},
                  {"rope_theta", t ? "1" : "10000"});
            struct config c = loads();
            config_rope_frequencies(&c.ropes[0], inv);
            for (int k = 0; k < 8; k++)
                assert_true(inv[k] > 0 && inv[k] <= 1);
            config_free(&c);
        }
    }
}

/* ---- sliding windows ---- */

static void windows_are_where_the_config_says(void **state)
{
    (void)state;
    WRITE(v4, {"sliding_window", "128"}); /* use_sliding_window false */
    struct config c = loads();
    assert_int_equal(c.sliding_window, 0);
    assert_true(c.layers[2].window == NO_WINDOW);
    config_free(&c);
    WRITE(v4, {"use_sliding_window", "true"}); /* sliding_window null */
    c = loads();
    assert_int_equal(c.sliding_window, 0);
    config_free(&c);
    for (int first = 0; first < 5; first++) {
        char text[16];
        snprintf(text, sizeof text, "%d", first);
        WRITE(v4, {"use_sliding_window", "true"}, {"sliding_window", "128"},
              {"max_window_layers", text});
        c = loads();
        assert_int_equal(c.sliding_window, 128);
        for (int i = 0; i < 3; i++)
            assert_true(c.layers[i].window == (i >= first ? 128 : NO_WINDOW));
        config_free(&c);
    }
    /* an explicit list wins over max_window_layers */
    WRITE(v5, {"use_sliding_window", "true"}, {"sliding_window", "128"},
          {"max_window_layers", "0"},
          {"layer_types", "[\"sliding_attention\", \"full_attention\", "
                          "\"sliding_attention\"]"});
    c = loads();
    assert_true(c.layers[0].window == 128 && c.layers[1].window == NO_WINDOW &&
                c.layers[2].window == 128);
    config_free(&c);
    WRITE(v5, {"layer_types", "[\"sliding_attention\", \"full_attention\", "
                              "\"full_attention\"]"});
    refuses("config.json", "layer_types[0]", "sliding_window");
    static const char *const bad[] = {"0", "-1", "\"4\"", "1.5", "4294967297"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        WRITE(v4, {"use_sliding_window", "true"}, {"sliding_window", bad[i]});
        refuses("config.json", "sliding_window", bad[i]);
    }
    WRITE(v4, {"use_sliding_window", "true"}, {"sliding_window", "128"},
          {"max_window_layers", NULL});
    refuses("config.json", "max_window_layers", "missing");
}

/* ---- generation_config.json and stop ids ---- */

static void put_generation(const char *json)
{
    temp_write("generation_config.json", json, strlen(json));
}

static void generation_defaults_are_read(void **state)
{
    (void)state;
    WRITE(v4, {"eos_token_id", "1"});
    put_generation("{}");
    struct config c = loads();
    assert_false(c.do_sample);
    assert_int_equal(c.top_k, 50); /* transformers' default */
    config_free(&c);
    put_generation("{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20,"
                   " \"top_p\": 0.95, \"min_p\": 0.1, "
                   "\"repetition_penalty\": 1.05, \"pad_token_id\": 7}");
    c = loads();
    assert_true(c.do_sample);
    assert_true(c.temperature == 0.6 && c.top_p == 0.95 && c.min_p == 0.1 &&
                c.repetition_penalty == 1.05);
    assert_int_equal(c.top_k, 20);
    config_free(&c);
    put_generation("{\"do_sample\": null, \"temperature\": null, \"top_k\": 0,"
                   " \"top_p\": null, \"eos_token_id\": null}");
    c = loads();
    assert_false(c.do_sample);
    assert_int_equal(c.top_k, 0);
    assert_int_equal(c.n_stop_ids, 1);
    config_free(&c);
}

static void broken_generation_config(void **state)
{
    (void)state;
    WRITE(v4, {"eos_token_id", "1"});
    static const struct {
        const char *json, *key;
    } rows[] = {
        {"", ""},
        {"{", ""},
        {"[]", "object"},
        {"{\"do_sample\": 1}", "do_sample"},
        {"{\"temperature\": -0.1}", "temperature"},
        {"{\"temperature\": \"0.6\"}", "temperature"},
        {"{\"temperature\": 1e400}", "temperature"},
        {"{\"temperature\": NaN}", ""},
        {"{\"top_p\": 1.5}", "top_p"},
        {"{\"top_p\": -1}", "top_p"},
        {"{\"top_k\": -1}", "top_k"},
        {"{\"top_k\": 20.0}", "top_k"},
        {"{\"top_k\": 4294967316}", "top_k"},
        {"{\"min_p\": 2}", "min_p"},
        {"{\"repetition_penalty\": 0}", "repetition_penalty"},
        {"{\"repetition_penalty\": -1}", "repetition_penalty"},
        {"{\"eos_token_id\": \"1\"}", "eos_token_id"},
        {"{\"eos_token_id\": -1}", "eos_token_id"},
        {"{\"eos_token_id\": [1, 2.5]}", "eos_token_id"},
        {"{\"eos_token_id\": [1, null]}", "eos_token_id"},
        {"{\"eos_token_id\": 4294967297}", "eos_token_id"},
        {"{\"eos_token_id\": {}}", "eos_token_id"},
        {"{\"top_k\": 20, \"top_k\": 30}", "top_k"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_generation(rows[i].json);
        refuses("generation_config.json", rows[i].key, "");
    }
    temp_remove("generation_config.json");
    assert_int_equal(mkdir(temp_path("generation_config.json"), 0700), 0);
    refuses("generation_config.json", "", "");
    assert_int_equal(rmdir(temp_path("generation_config.json")), 0);
}

static void stop_ids_are_a_union(void **state)
{
    (void)state;
    WRITE(v4, {"eos_token_id", "[5, 3, 5]"});
    put_generation("{\"eos_token_id\": [3, 9]}");
    struct config c = loads();
    static const int32_t want[] = {5, 3, 9};
    assert_int_equal(c.n_stop_ids, 3);
    assert_memory_equal(c.stop_ids, want, sizeof want);
    assert_int_equal(config_add_stop(&c, 9), 0);
    assert_int_equal(c.n_stop_ids, 3);
    for (int32_t id = 100; c.n_stop_ids < CONFIG_MAX_STOP_IDS; id++)
        assert_int_equal(config_add_stop(&c, id), 0);
    assert_int_equal(config_add_stop(&c, 99), -1);
    assert_int_equal(config_add_stop(&c, 5), 0);
    config_free(&c);
    WRITE(v4, {"eos_token_id", NULL});
    put_generation("{\"eos_token_id\": 4}");
    c = loads();
    assert_int_equal(c.n_stop_ids, 1);
    assert_int_equal(c.stop_ids[0], 4);
    config_free(&c);
    WRITE(v4, {"eos_token_id", "[]"});
    put_generation("{}");
    c = loads();
    assert_int_equal(c.n_stop_ids, 0);
    config_free(&c);
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, "{\"eos_token_id\": [0"), 0);
    for (int i = 1; i < 100; i++)
        assert_int_equal(buf_printf(&b, ", %d", i), 0);
    assert_int_equal(buf_puts(&b, "]}"), 0);
    put_generation(b.data);
    buf_free(&b);
    refuses("generation_config.json", "eos_token_id", "64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(values_are_read, fresh),
        cmocka_unit_test_setup(both_spellings_are_equal, fresh),
        cmocka_unit_test_setup(required_fields, fresh),
        cmocka_unit_test_setup(experts, fresh),
        cmocka_unit_test_setup(broken_experts, fresh),
        cmocka_unit_test_setup(gemma_fields, fresh),
        cmocka_unit_test_setup(wrapped_fields, fresh),
        cmocka_unit_test_setup(broken_gemma, fresh),
        cmocka_unit_test_setup(qwen35_fields, fresh),
        cmocka_unit_test_setup(qwen35_experts, fresh),
        cmocka_unit_test_setup(wrapped_qwen35, fresh),
        cmocka_unit_test_setup(broken_qwen35, fresh),
        cmocka_unit_test_setup(what_is_not_supported_is_refused_by_name, fresh),
        cmocka_unit_test_setup(shapes_that_cannot_be, fresh),
        cmocka_unit_test_setup(files_that_are_none, fresh),
        cmocka_unit_test_setup(theta_is_the_same_everywhere, fresh),
        cmocka_unit_test_setup(two_kinds_of_rope_are_a_conflict, fresh),
        cmocka_unit_test_setup(yarn_has_the_published_values, fresh),
        cmocka_unit_test_setup(yarn_fields_are_checked, fresh),
        cmocka_unit_test_setup(windows_are_where_the_config_says, fresh),
        cmocka_unit_test_setup(generation_defaults_are_read, fresh),
        cmocka_unit_test_setup(broken_generation_config, fresh),
        cmocka_unit_test_setup(stop_ids_are_a_union, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
