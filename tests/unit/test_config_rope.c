/* config.json: the rotary embedding and its frequencies, and sliding windows.
 */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_file.h"

/* ---- rotary embedding ---- */

static void theta_is_the_same_everywhere(void **state)
{
    REFUSES("rope_theta", "10000", v5, {"rope_theta", "10000"});
    WRITE(v5, {"rope_theta", "1000000"});
    struct config c = loads();
    assert_true(c.ropes[0].theta == 1e6);
    config_free(&c);
    WRITE(v5, {"rope_parameters", "{\"rope_type\": \"default\"}"},
          {"rope_theta", "5e6"});
    c = loads();
    assert_true(c.ropes[0].theta == 5e6);
    config_free(&c);
    REFUSES("rope_theta", "missing", v5,
            {"rope_parameters", "{\"rope_type\": \"default\"}"});
    REFUSES("rope_parameters.rope_theta", "0", v5,
            {"rope_parameters", "{\"rope_type\": \"default\", "
                                "\"rope_theta\": 0}"});
    REFUSES("rope_scaling.rope_theta", "7", v4,
            {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 2, "
                             "\"rope_theta\": 7}"});
}

/* transformers 4 reads only rope_scaling, and 5 prefers it. If a user adds YaRN
 * to a file of version 5, it must not be ignored. */
static void two_kinds_of_rope_are_a_conflict(void **state)
{
    static const char yarn[] = "{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                               "\"original_max_position_embeddings\": 512}";
    REFUSES("rope_scaling", "rope_parameters", v5, {"rope_scaling", yarn});
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
    float inv[64], plain[64];
    struct config c = yarn_config("null");
    config_rope_frequencies(&c.ropes[0], false, plain);
    for (int i = 0; i < 64; i++)
        near((double)plain[i], pow(1e6, -i / 64.0), 1e-6);
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"yarn\", \"factor\": 4.0, "
                    "\"original_max_position_embeddings\": 32768}");
    near(c.ropes[0].attention, 1.138629, 5e-7);
    assert_int_equal(c.ropes[0].original, 32768);
    config_rope_frequencies(&c.ropes[0], false, inv);
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
    config_rope_frequencies(&c.ropes[0], false, inv);
    double low = 128 * log(32768 / (32 * 2 * M_PI)) / (2 * log(1e6));
    double high = 128 * log(32768 / (2 * M_PI)) / (2 * log(1e6));
    for (int i = 0; i < 64; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        double want = pow(1e6, -i / 64.0);
        near((double)inv[i], want / 4 * ramp + want * (1 - ramp), 1e-6);
    }
    config_free(&c);
    c = yarn_config("{\"rope_type\": \"linear\", \"factor\": 8}");
    config_rope_frequencies(&c.ropes[0], false, inv);
    assert_true(c.ropes[0].attention == 1);
    for (int i = 0; i < 64; i++)
        assert_true(inv[i] == plain[i] / 8);
    config_free(&c);
}

static void yarn_fields_are_checked(void **state)
{
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
        REFUSES("rope_scaling.", rows[i].key, v4,
                {"rope_scaling", rows[i].json});
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
            config_rope_frequencies(&c.ropes[0], false, inv);
            for (int k = 0; k < 8; k++)
                assert_true(inv[k] > 0 && inv[k] <= 1);
            config_free(&c);
        }
    }
}

/* ---- sliding windows ---- */

static void windows_are_where_the_config_says(void **state)
{
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
    REFUSES("layer_types[0]", "sliding_window", v5,
            {"layer_types", "[\"sliding_attention\", \"full_attention\", "
                            "\"full_attention\"]"});
    static const char *const bad[] = {"0", "-1", "\"4\"", "1.5", "4294967297"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        REFUSES("sliding_window", bad[i], v4, {"use_sliding_window", "true"},
                {"sliding_window", bad[i]});
    }
    REFUSES("max_window_layers", "missing", v4, {"use_sliding_window", "true"},
            {"sliding_window", "128"}, {"max_window_layers", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(theta_is_the_same_everywhere, fresh),
        cmocka_unit_test_setup(two_kinds_of_rope_are_a_conflict, fresh),
        cmocka_unit_test_setup(yarn_has_the_published_values, fresh),
        cmocka_unit_test_setup(yarn_fields_are_checked, fresh),
        cmocka_unit_test_setup(windows_are_where_the_config_says, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
