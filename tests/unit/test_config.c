/* config.json and generation_config.json of Qwen3: both spellings, every field
 * broken in every way, and the values derived from them. test_config_families.c
 * has other families, test_config_rope.c the rotary embedding. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config_file.h"

/* ---- good files ---- */

static void values_are_read(void **state)
{
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
    assert_true(c.qkv_bias && c.o_bias);
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
            REFUSES(sizes[i], broken[k] ? "must be" : "is missing", v4,
                    {sizes[i], broken[k]});
        }
    }
    static const char *const floats[] = {"rms_norm_eps", "rope_theta"};
    static const char *const no_float[] = {
        NULL,       "null",  "0",      "0.0",  "-0.0", "-1e-6",
        "\"1e-6\"", "1e400", "-1e400", "true", "[]"};
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof no_float / sizeof *no_float; k++) {
            REFUSES(floats[i], "must be", v4, {floats[i], no_float[k]});
        }
    }
    static const char *const flags[] = {"tie_word_embeddings", "attention_bias",
                                        "use_sliding_window"};
    static const char *const no_flag[] = {"0", "1", "\"true\"", "[]", "{}"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < 5; k++) {
            REFUSES(flags[i], "true or false", v4, {flags[i], no_flag[k]});
        }
    }
    REFUSES("tie_word_embeddings", "missing", v4,
            {"tie_word_embeddings", NULL});
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    REFUSES("model_type", "mamba2", v4, {"model_type", "\"mamba2\""});
    REFUSES("model_type", "\"mixture\" is not supported; qwick(1)", v4,
            {"model_type", "\"mixture\""});
    REFUSES("model_type",
            "\"deepseek_v3\" is not supported (latent attention): use Qwen3-30B-A3B",
            v4, {"model_type", "\"deepseek_v3\""});
    REFUSES("model_type", "3", v4, {"model_type", "3"});
    REFUSES("model_type", "missing", v4, {"model_type", NULL});
    REFUSES("hidden_act", "gelu", v4, {"hidden_act", "\"gelu\""});
    REFUSES("rope_scaling.rope_type", "dynamic", v4,
            {"rope_scaling", "{\"rope_type\": \"dynamic\", \"factor\": 8}"});
    REFUSES("rope_scaling.type", "dynamic", v4,
            {"rope_scaling", "{\"type\": \"dynamic\", \"factor\": 8}"});
    REFUSES("rope_scaling.type", "missing", v4,
            {"rope_scaling", "{\"factor\": 8}"});
    REFUSES("rope_scaling", "yarn", v4, {"rope_scaling", "\"yarn\""});
    REFUSES("rope_parameters.rope_type", "dynamic", v5,
            {"rope_parameters",
             "{\"rope_theta\": 1e6, \"rope_type\": \"dynamic\"}"});
    REFUSES("rope_parameters", "an array", v5, {"rope_parameters", "[]"});
    REFUSES("layer_types[1]", "linear_attention", v5,
            {"layer_types", "[\"full_attention\", \"linear_attention\", "
                            "\"full_attention\"]"});
    REFUSES("layer_types", "has 1", v5,
            {"layer_types", "[\"full_attention\"]"});
    REFUSES("layer_types", "list", v5, {"layer_types", "\"full_attention\""});
    REFUSES("layer_types[1]", "null", v5,
            {"layer_types", "[\"full_attention\", null, 3]"});
    REFUSES(
        "quantization_config", "hqq", v4,
        {"quantization_config", "{\"quant_method\": \"hqq\", \"bits\": 4}"});
    REFUSES("quantization.bits", "7", v4,
            {"quantization", "{\"group_size\": 64, \"bits\": 7}"});
    REFUSES("quantization_config", "an object", v4,
            {"quantization_config", "true"});
}

static void encoders_of_other_families_are_refused(void **state)
{
    static const struct {
        const char *type, *what;
    } rows[] = {
        {"\"nomic_bert\"", "(an encoder with rotary embeddings): use gte"},
        {"\"new\"", "(an encoder with rotary embeddings): use gte-modernbert"},
        {"\"jina_bert_v2\"", "(an encoder with ALiBi): use gte-modernbert"},
        {"\"distilbert\"", "(another kind of encoder): use bge-base-en-v1.5"},
        {"\"mpnet\"", "(another kind of encoder): use bge-base-en-v1.5"},
        {"\"t5\"", "(an encoder and a decoder): use Qwen3-8B"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        REFUSES(rows[i].type, rows[i].what, v4, {"model_type", rows[i].type});
    }
}

static void shapes_that_cannot_be(void **state)
{
    REFUSES("num_attention_heads", "5", v4, {"num_attention_heads", "5"});
    REFUSES("num_key_value_heads", "8", v4, {"num_key_value_heads", "8"});
    REFUSES("head_dim", "15", v4, {"head_dim", "15"});
    REFUSES("head_dim", "16777216", v4, {"num_attention_heads", "16777216"},
            {"head_dim", "16777216"}, {"num_key_value_heads", "1"});
    /* odd but valid: one head; head_dim is not a quotient of hidden_size */
    WRITE(v4, {"num_attention_heads", "1"}, {"num_key_value_heads", "1"},
          {"head_dim", "2"});
    struct config c = loads();
    config_free(&c);
}

static void files_that_are_none(void **state)
{
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
    REFUSES("hidden_size", "", v4, {"hidden_size", "64, \"hidden_size\": 128"});
    REFUSES("rope_theta", "", v5,
            {"rope_parameters", "{\"rope_theta\": 1e6, \"rope_type\": "
                                "\"default\", \"rope_theta\": 1e4}"});
    WRITE(v4, {"model_type", "\"qwen3\\u0000\""}); /* whole length counts */
    refuses("config.json", "model_type", "qwen3");
    /* a long value is cut between characters: 39 bytes, not 40 */
    REFUSES("model_type", "\xAC\xE2\x82\xAC\"", v4,
            {"model_type", "\"\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                           "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                           "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                           "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC"
                           "\xE2\x82\xAC\xE2\x82\xAC\""});
}

/* ---- generation_config.json and stop ids ---- */

static void put_generation(const char *json)
{
    temp_write("generation_config.json", json, strlen(json));
}

static void generation_defaults_are_read(void **state)
{
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

/* Ids beyond the vocabulary and stop ids among the bad words do not count. */
static void rules_of_answers_are_read(void **state)
{
    WRITE(v4, {"eos_token_id", "1"});
    put_generation("{\"suppress_tokens\": [5, 2147483647, -1, 6], "
                   "\"begin_suppress_tokens\": 4, "
                   "\"bad_words_ids\": [[7], [1]], \"min_length\": 9, "
                   "\"min_new_tokens\": 3, \"num_beams\": 1}");
    struct config c = loads();
    static const int32_t want[] = {5, 6, 7, 4};
    assert_int_equal(c.n_suppress, 3);
    assert_int_equal(c.n_begin, 1);
    assert_memory_equal(c.suppress, want, sizeof want);
    assert_true(c.min_length == 9 && c.min_new_tokens == 3);
    assert_string_equal(c.unsupported, "");
    assert_string_equal(c.unsupported_draw, "");
    config_free(&c);
    /* the first of the table */
    put_generation("{\"num_beams\": 2, \"no_repeat_ngram_size\": 4, "
                   "\"typical_p\": 0.5}");
    c = loads();
    assert_string_equal(c.unsupported,
                        "no_repeat_ngram_size: 4 is not supported");
    assert_string_equal(c.unsupported_draw, "typical_p: 0.5 is not supported");
    config_free(&c);
}

static void broken_generation_config(void **state)
{
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
        {"{\"repetition_penalty\": 101}", "repetition_penalty"},
        {"{\"temperature\": 101}", "temperature"},
        {"{\"suppress_tokens\": \"1\"}", "suppress_tokens"},
        {"{\"suppress_tokens\": [1.5]}", "suppress_tokens"},
        {"{\"begin_suppress_tokens\": [{}]}", "begin_suppress_tokens"},
        {"{\"bad_words_ids\": 1}", "bad_words_ids"},
        {"{\"bad_words_ids\": [1]}", "bad_words_ids"},
        {"{\"bad_words_ids\": [[]]}", "bad_words_ids"},
        {"{\"min_new_tokens\": 1.0}", "min_new_tokens"},
        {"{\"min_length\": -2}", "min_length"},
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
        cmocka_unit_test_setup(what_is_not_supported_is_refused_by_name, fresh),
        cmocka_unit_test_setup(encoders_of_other_families_are_refused, fresh),
        cmocka_unit_test_setup(shapes_that_cannot_be, fresh),
        cmocka_unit_test_setup(files_that_are_none, fresh),
        cmocka_unit_test_setup(generation_defaults_are_read, fresh),
        cmocka_unit_test_setup(rules_of_answers_are_read, fresh),
        cmocka_unit_test_setup(broken_generation_config, fresh),
        cmocka_unit_test_setup(stop_ids_are_a_union, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
