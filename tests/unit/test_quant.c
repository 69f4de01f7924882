/* Checkpoints in MLX's affine format: valid and invalid config.json, the
 * tensors that it requires, and every way in which the two can differ. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engines.h"
#include "file/safetensors.h"
#include "model/config.h"
#include "model/module_pattern.h"
#include "model/weights.h"
#include "qwick_tools.h"
#include "tempdir.h"
#include "tensors_file.h"

/* Every row length is a multiple of the largest group. */
enum { VOCAB = 20, D = 128, FF = 256, HEADS = 4, KV = 2, HEAD = 32 };
enum { Q_DIM = HEADS * HEAD, KV_DIM = KV * HEAD };
enum { MAX_TENSORS = 64, NAME = 80 };

/* ---- config.json ---- */

/* quantization: members to add to config.json, or "". */
static void write_config(bool tied, const char *quantization)
{
    struct buf b = {0};
    assert_int_equal(
        buf_printf(
            &b,
            "{\"model_type\": \"qwen3\", \"vocab_size\": %d, \"hidden_size\": "
            "%d, \"intermediate_size\": %d, \"num_hidden_layers\": 1, "
            "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
            "\"head_dim\": %d, \"max_position_embeddings\": 64, "
            "\"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, "
            "\"tie_word_embeddings\": %s%s%s}",
            VOCAB, D, FF, HEADS, KV, HEAD, tied ? "true" : "false",
            *quantization ? ", " : "", quantization),
        0);
    temp_write("config.json", b.data, b.len);
    buf_free(&b);
}

static void write_params(bool tied, int bits, size_t group)
{
    char text[80];
    snprintf(text, sizeof text,
             "\"quantization\": {\"group_size\": %zu, \"bits\": %d}", group,
             bits);
    write_config(tied, text);
}

static int load(struct config *c, struct qwick_err *e)
{
    struct checkpoint *ck;
    *e = (struct qwick_err){0};
    assert_int_equal(checkpoint_open(&ck, temp_dir, e), 0);
    int rc = config_load(c, ck, e);
    checkpoint_close(ck);
    return rc;
}

static struct config loads(const char *quantization)
{
    struct config c;
    struct qwick_err e;
    write_config(true, quantization);
    assert_ok(load(&c, &e), &e);
    return c;
}

static void has_words(const struct qwick_err *e, const char *a, const char *b,
                      const char *c)
{
    if (e->code != QWICK_ERR_MODEL || !strstr(e->msg, a) ||
        !strstr(e->msg, b) || !strstr(e->msg, c) || strchr(e->msg, '\n'))
        fail_msg("expected %s, %s, %s in: %s", a, b, c, e->msg);
}

static void config_refuses(const char *quantization, const char *a,
                           const char *b)
{
    struct config c;
    struct qwick_err e;
    write_config(true, quantization);
    if (!load(&c, &e))
        fail_msg("accepted: %s", quantization);
    has_words(&e, "config.json", a, b);
    assert_null(c.quant.v);
    assert_null(c.quant.names);
}

static void is_params(struct quant_params p, int bits, size_t group)
{
    assert_int_equal(p.bits, bits);
    assert_int_equal(p.group, group);
}

static void parameters_are_read(void **state)
{
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    static const char *const keys[] = {"quantization", "quantization_config"};
    static const char *const tails[] = {"", ", \"mode\": \"affine\"",
                                        ", \"mode\": null, \"x\": null, "
                                        "\"quant_method\": null"};
    for (size_t i = 0; i < 6; i++) {
        for (size_t group = 32; group <= 128; group *= 2) {
            char text[160];
            snprintf(text, sizeof text,
                     "\"%s\": {\"group_size\": %zu, \"bits\": %d%s}",
                     keys[i % 2], group, bits[i], tails[i % 3]);
            struct config c = loads(text);
            is_params(c.quant.all, bits[i], group);
            assert_int_equal(c.quant.n, 0);
            assert_string_equal(c.quant.key, keys[i % 2]);
            is_params(quant_find(&c.quant, "lm_head"), bits[i], group);
            config_free(&c);
            config_free(&c);
        }
    }
    struct config c = loads("");
    is_params(c.quant.all, 0, 0);
    assert_null(c.quant.key);
    config_free(&c);
    c = loads("\"quantization\": null, \"quantization_config\": null");
    assert_null(c.quant.key);
    is_params(quant_find(&c.quant, "lm_head"), 0, 0);
    config_free(&c);
}

/* MLX's mode mxfp4 has one width and one group; a module with parameters of its
 * own is affine unless they say otherwise. gpt-oss's object has no parameters.
 */
static void mxfp4_is_a_mode(void **state)
{
    struct config c =
        loads("\"quantization\": {\"group_size\": 32, \"bits\": 4, \"mode\": "
              "\"mxfp4\", \"a\": {\"group_size\": 64, \"bits\": 8}, \"b\": "
              "{\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\"}}");
    is_params(c.quant.all, 4, 32);
    assert_int_equal(c.quant.all.mode, QUANT_MXFP4);
    is_params(quant_find(&c.quant, "a"), 8, 64);
    assert_int_equal(quant_find(&c.quant, "a").mode, QUANT_AFFINE);
    assert_int_equal(quant_find(&c.quant, "b").mode, QUANT_MXFP4);
    config_free(&c);
    c = loads("\"quantization_config\": {\"quant_method\": \"mxfp4\", "
              "\"modules_to_not_convert\": [\"lm_head\"]}");
    is_params(c.quant.all, 0, 0);
    assert_string_equal(c.quant.key, "quantization_config");
    config_free(&c);
    config_refuses("\"quantization\": {\"group_size\": 64, \"bits\": 4, "
                   "\"mode\": \"mxfp4\"}",
                   "quantization.group_size", "32, as mode is mxfp4");
    config_refuses("\"quantization\": {\"group_size\": 32, \"bits\": 8, "
                   "\"mode\": \"mxfp4\"}",
                   "quantization.bits", "4, as mode is mxfp4");
    config_refuses("\"quantization\": {\"group_size\": 32, \"bits\": 4, "
                   "\"mode\": \"mxfp4\"}, \"quantization_config\": "
                   "{\"group_size\": 32, \"bits\": 4}",
                   "MXFP4", "4 bits in groups of 32");
}

static void modules_have_their_own(void **state)
{
    struct config c = loads(
        "\"quantization\": {\"model.layers.1\": {\"bits\": 2, \"group_size\": "
        "32}, \"group_size\": 64, \"lm_head\": {\"group_size\": 128, \"bits\": "
        "8, \"mode\": \"affine\"}, \"bits\": 4, \"a.b\": false, \"a.b.c\": "
        "true, \"a\\u0000b\": {\"bits\": 3, \"group_size\": 32}, "
        "\"model.layers.10\": {\"bits\": 6, \"group_size\": 32}}");
    const struct quant *q = &c.quant;
    is_params(q->all, 4, 64);
    assert_int_equal(q->n, 6);
    is_params(quant_find(q, "model.layers.1"), 2, 32);
    is_params(quant_find(q, "model.layers.10"), 6, 32);
    is_params(quant_find(q, "model.layers.100"), 4, 64);
    is_params(quant_find(q, "model.layers."), 4, 64);
    is_params(quant_find(q, "lm_head"), 8, 128);
    is_params(quant_find(q, "a.b"), 0, 0);
    is_params(quant_find(q, "a.b.c"), 4, 64);
    /* the whole name counts, not only the part before its NUL */
    is_params(quant_find(q, "a"), 4, 64);
    is_params(quant_find(q, ""), 4, 64);
    for (size_t i = 0; i < q->n; i++)
        if (q->v[i].len == 3 && !memcmp(q->v[i].module, "a\0b", 3))
            is_params(q->v[i].params, 3, 32);
    config_free(&c);
    /* many overrides, in linear time */
    enum { MANY = 100000 };
    struct buf b = {0};
    buf_puts(&b, "\"quantization\": {\"bits\": 4, \"group_size\": 64");
    for (int i = 0; i < MANY; i++)
        assert_int_equal(buf_printf(&b, ", \"m.%d\": %s", (i * 7919) % MANY,
                                    i % 2 ? "true" : "false"),
                         0);
    buf_puts(&b, "}");
    c = loads(b.data);
    assert_int_equal(c.quant.n, MANY);
    is_params(quant_find(&c.quant, "m.0"), 0, 0);
    is_params(quant_find(&c.quant, "m.7919"), 4, 64);
    config_free(&c);
    buf_free(&b);
}

static void values_out_of_range(void **state)
{
    static const char *const groups[] = {
        "0",      "16",   "31",         "33",     "63", "256",
        "-64",    "64.0", "6.4e1",      "\"64\"", "[]", "true",
        "{}",     "-1",   "4294967328", "1e400",  "96", "18446744073709551680",
        "999999", "null"};
    static const char *const bits[] = {
        "0",     "1",     "7",  "9",    "16",   "32", "-4",        "4.0",
        "\"4\"", "false", "[]", "null", "1e99", "{}", "4294967300"};
    char text[160];
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        snprintf(text, sizeof text,
                 "\"quantization\": {\"group_size\": %s, \"bits\": 4}",
                 groups[i]);
        config_refuses(text, "quantization.group_size: must be 32, 64 or 128",
                       strpbrk(groups[i], "[{\"") ? "" : groups[i]);
    }
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        snprintf(text, sizeof text,
                 "\"quantization_config\": {\"group_size\": 64, \"bits\": %s}",
                 bits[i]);
        config_refuses(text,
                       "quantization_config.bits: must be 2, 3, 4, 5, 6 "
                       "or 8, is ",
                       strpbrk(bits[i], "[{\"") ? "" : bits[i]);
    }
    config_refuses("\"quantization\": {\"bits\": 4}", "quantization.group_size",
                   "missing");
    config_refuses("\"quantization\": {\"group_size\": 64}",
                   "quantization.bits", "missing");
    static const char *const others[] = {"true", "4", "\"4bit\"", "[]"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "\"quantization\": %s", others[i]);
        config_refuses(text, "quantization", "an object");
    }
}

/* The string `value` between these parts of config.json is refused. */
static void value_refused(const char *before, const char *value,
                          const char *after, const char *field)
{
    char text[200];
    snprintf(text, sizeof text, "%s\"%s\"%s", before, value, after);
    config_refuses(text, field, value);
}

static void other_systems_are_refused_by_name(void **state)
{
    static const char *const methods[] = {
        "marlin",     "gptq_v2", "eetq", "bitsandbytes", "compressed-tensors",
        "fbgemm_fp8", "aqlm",    "hqq",  "modelopt",     "auto-round",
        "finegrained"};
    static const char *const modes[] = {"mxfp6", "nvfp8", "other"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        value_refused("\"quantization_config\": {\"quant_method\": ",
                      methods[i], ", \"bits\": 4, \"group_size\": 128}",
                      "quantization_config.quant_method");
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        value_refused("\"quantization\": {\"group_size\": 32, \"bits\": 4, "
                      "\"mode\": ",
                      modes[i], "}", "quantization.mode");
        value_refused("\"quantization\": {\"group_size\": 32, \"bits\": 4, "
                      "\"lm_head\": {\"bits\": 8, \"group_size\": 32, "
                      "\"mode\": ",
                      modes[i], "}}", "quantization.lm_head.mode");
    }
    config_refuses("\"quantization\": {\"mode\": 4, \"bits\": 4, "
                   "\"group_size\": 64}",
                   "quantization.mode", "4");
    /* also next to MLX's own object */
    config_refuses("\"quantization\": {\"bits\": 4, \"group_size\": 64}, "
                   "\"quantization_config\": {\"quant_method\": \"fp8\"}",
                   "quantization_config.quant_method", "fp8");
}

#define COMPRESSED                                                         \
    "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", " \
    "\"format\": \"float-quantized\", "
#define GROUP COMPRESSED "\"config_groups\": {\"g\": {\"weights\": "

static void fp8_forms(void **state)
{
    static const struct {
        const char *json;
        size_t rows, cols;
    } rows[] = {
        {"\"quantization_config\": {\"quant_method\": \"fp8\"}", 0, 0},
        {"\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": "
         "\"e4m3\", \"activation_scheme\": \"static\", \"weight_block_size\": "
         "null}",
         0, 0},
        {"\"quantization_config\": {\"quant_method\": \"fp8\", "
         "\"weight_block_size\": [100, 64], \"modules_to_not_convert\": [1]}",
         100, 64},
        {GROUP "{\"strategy\": \"channel\"}}}}", 0, 0},
        {GROUP "{\"strategy\": \"tensor\", \"num_bits\": 8}}}, \"ignore\": "
               "[\"re:.*mlp\"], \"kv_cache_scheme\": {\"num_bits\": 8}}",
         0, 0},
        {GROUP "{\"strategy\": \"block\", \"block_structure\": [128, 128]}}}}",
         128, 128},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config c = loads(rows[i].json);
        assert_true(c.quant.fp8);
        assert_int_equal(c.quant.all.bits, 0);
        assert_int_equal(c.quant.block_rows, rows[i].rows);
        assert_int_equal(c.quant.block_cols, rows[i].cols);
        config_free(&c);
    }
}

static void fp8_fields_are_checked(void **state)
{
    static const struct {
        const char *json, *field, *value;
    } rows[] = {
        {"\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": "
         "\"e5m2\"}",
         "quantization_config.fmt", "e5m2"},
        {"\"quantization_config\": {\"quant_method\": \"fp8\", "
         "\"weight_block_size\": [128, 48]}",
         "quantization_config.weight_block_size", "an array"},
        {"\"quantization_config\": {\"quant_method\": \"fp8\", "
         "\"weight_block_size\": 128}",
         "quantization_config.weight_block_size", "128"},
        {"\"quantization\": {\"quant_method\": \"fp8\"}, "
         "\"quantization_config\": {\"bits\": 4, \"group_size\": 64}",
         "quantization.quant_method", "fp8"},
        {GROUP "{\"strategy\": \"group\"}}}}",
         "config_groups.g.weights.strategy", "group"},
        {GROUP "{\"num_bits\": 4, \"strategy\": \"tensor\"}}}}",
         "config_groups.g.weights.num_bits", "4"},
        {GROUP "{\"type\": \"int\", \"strategy\": \"tensor\"}}}}",
         "config_groups.g.weights.type", "int"},
        {GROUP "{\"symmetric\": false, \"strategy\": \"tensor\"}}}}",
         "config_groups.g.weights.symmetric", "false"},
        {COMPRESSED "\"config_groups\": []}",
         "quantization_config.config_groups", "an array"},
        {COMPRESSED "\"config_groups\": {}, \"transform_config\": {\"a\": 1}}",
         "quantization_config.transform_config", "an object"},
        {COMPRESSED "\"config_groups\": {}, \"sparsity_config\": {\"format\": "
                    "\"sparse-24\"}}",
         "quantization_config.sparsity_config.format", "sparse-24"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        config_refuses(rows[i].json, rows[i].field, rows[i].value);
}

static void module_patterns(void **state)
{
    static const char m[] = "model.layers.11.mlp.gate_proj";
    static const struct {
        const char *pattern;
        bool matches;
    } rows[] = {
        {"model.layers.11.mlp.gate_proj", true},
        {"model.layers.1.mlp.gate_proj", false},
        {"lm_head", false},
        {"*mlp*", true},
        {"model.*.gate_proj", true},
        {"*gate", false},
        /* a prefix suffices, from the first character on */
        {"re:model", true},
        {"re:layers", false},
        {"re:.*gate$", false},
        {"re:.*gate_proj$", true},
        {"re:^model\\.layers\\.\\d+\\.mlp\\.(up|gate)_proj$", true},
        {"re:model\\.layers\\.\\d\\.mlp", false},
        {"re:(?:model|other)[.]layers[.][0-9]+[.]", true},
        {"re:.*[^g]ate_proj", false},
        {"re:(model|layers|[.]|\\d)*mlp", true},
        {"re:(me)?del|x", false},
        {"re:x|(mo)?(del)+", true},
        /* not known, or not an expression */
        {"re:(?!model)", false},
        {"re:(?=model).*", false},
        {"re:(model", false},
        {"re:[a", false},
        {"re:*", false},
        {"re:a{2}", false},
        {"re:\\", false},
        {"", false},
        {"re:", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (module_matches(rows[i].pattern, m) != rows[i].matches)
            fail_msg("%s", rows[i].pattern);
    /* bounded time and depth */
    char deep[4000] = "re:", stars[400] = "re:";
    for (size_t i = 3; i + 1 < sizeof deep; i++)
        deep[i] = '(';
    assert_false(module_matches(deep, m));
    for (int i = 0; i < 60; i++)
        strcat(stars, "(.*)*");
    strcat(stars, "!");
    assert_false(module_matches(stars, m));
}

#define WEIGHTS4(more) \
    "{\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", " more "}"

/* The group of a module: by its name, by a pattern, then by its class. */
static void groups_of_modules(void **state)
{
    struct config c = loads(
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
        "\"format\": \"pack-quantized\", \"ignore\": [\"lm_head\", "
        "\"re:.*router\"], \"config_groups\": {"
        "\"a\": {\"targets\": [\"Linear\"], \"weights\": " WEIGHTS4(
            "\"group_size\": 64") "}, "
                                  "\"b\": {\"targets\": [\"re:.*down_proj\"], "
                                  "\"weights\": " WEIGHTS4(
                                      "\"group_size\": 128, \"symmetric\": "
                                      "false, \"actorder\": "
                                      "\"weight\"") "}, "
                                                    "\"c\": {\"targets\": "
                                                    "[\"m.up_proj\"], "
                                                    "\"format\": "
                                                    "\"int-quantized\", "
                                                    "\"weights\": "
                                                    "{\"strategy\": "
                                                    "\"channel\"}}}}");
    const struct quant *q = &c.quant;
    struct qwick_err e;
    const struct stored_group *g =
        quant_stored_find(q, "m.q_proj", STORED_PACKED, "PATH", "T", &e);
    assert_non_null(g);
    assert_int_equal(g->bits, 4);
    assert_int_equal(g->group, 64);
    assert_true(g->symmetric);
    g = quant_stored_find(q, "m.down_proj", STORED_PACKED, "PATH", "T", &e);
    assert_non_null(g);
    assert_int_equal(g->group, 128);
    assert_false(g->symmetric);
    g = quant_stored_find(q, "m.up_proj", STORED_INT8, "PATH", "T", &e);
    assert_non_null(g);
    assert_int_equal(g->group, 0);
    assert_null(
        quant_stored_find(q, "m.up_proj", STORED_PACKED, "PATH", "T", &e));
    has_words(&e, "PATH: tensor T: means pack-quantized", "config_groups.c",
              "int8");
    assert_null(
        quant_stored_find(q, "m.router", STORED_PACKED, "PATH", "T", &e));
    has_words(&e, "PATH", "ignore", "re:.*router");
    config_free(&c);
}

static void broken_overrides(void **state)
{
    static const struct {
        const char *json, *a, *b;
    } rows[] = {
        {"\"lm_head\": 8", "quantization.lm_head", "8"},
        {"\"lm_head\": \"8\"", "quantization.lm_head", "\"8\""},
        {"\"lm_head\": []", "quantization.lm_head", "an array"},
        {"\"lm_head\": {}", "quantization.lm_head.group_size", "missing"},
        {"\"lm_head\": {\"bits\": 8}", "lm_head.group_size", "missing"},
        {"\"lm_head\": {\"group_size\": 64}", "lm_head.bits", "missing"},
        {"\"lm_head\": {\"group_size\": 48, \"bits\": 8}", "lm_head.group_size",
         "48"},
        {"\"lm_head\": {\"group_size\": 64, \"bits\": 7}", "lm_head.bits", "7"},
        {"\"lm_head\": {\"group_size\": 64, \"bits\": 8, \"sym\": 1}",
         "quantization.lm_head.sym", "not known"},
        {"\"lm_head\": {\"group_size\": 64, \"bits\": 8, \"quant_method\": "
         "\"awq\"}",
         "lm_head.quant_method", "awq"},
        {"\"desc_act\": false", "quantization.desc_act", "not known"},
        {"\"load_in_4bit\": true", "quantization.load_in_4bit", "not known"},
        {"\"linear_class\": \"x\"", "quantization.linear_class", "\"x\""},
    };
    char text[240];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text,
                 "\"quantization\": {\"group_size\": 64, \"bits\": 4, %s}",
                 rows[i].json);
        config_refuses(text, rows[i].a, rows[i].b);
    }
    config_refuses("\"quantization\": {\"group_size\": 64, \"bits\": 4, "
                   "\"a.b\": true, \"a.b\": false}",
                   "a.b", "");
    /* a very long name is cut */
    struct buf b = {0};
    buf_puts(&b, "\"quantization\": {\"group_size\": 64, \"bits\": 4, \"m.");
    for (int i = 0; i < 500; i++)
        buf_puts(&b, "\xC3\xA9");
    buf_puts(&b, "\": 3}");
    config_refuses(b.data, "quantization.m.\xC3\xA9", "\xA9: is 3");
    buf_free(&b);
}

static void two_objects_agree_or_not(void **state)
{
#define BOTH(a, b) "\"quantization\": {" a "}, \"quantization_config\": {" b "}"
#define Q4         "\"group_size\": 64, \"bits\": 4"
    static const char *const good[] = {
        BOTH(Q4, "\"bits\": 4, \"mode\": \"affine\", \"group_size\": 64"),
        BOTH(Q4 ", \"a.b\": false, \"lm_head\": {\"bits\": 8, \"group_size\": "
                "32}",
             "\"lm_head\": {\"group_size\": 32, \"bits\": 8}, \"a.b\": "
             "false, " Q4),
        /* in one object only, but it repeats the default */
        BOTH(Q4 ", \"a.b\": true", Q4),
        BOTH(Q4, Q4 ", \"a.b\": {\"bits\": 4, \"group_size\": 64}"),
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct config c = loads(good[i]);
        is_params(c.quant.all, 4, 64);
        config_free(&c);
    }
    config_refuses(BOTH(Q4, "\"group_size\": 64, \"bits\": 8"),
                   "quantization: has 4 bits in groups of 64",
                   "quantization_config has 8 bits in groups of 64");
    config_refuses(BOTH(Q4, "\"group_size\": 32, \"bits\": 4"), "groups of 64",
                   "groups of 32");
    config_refuses(BOTH(Q4 ", \"a.b\": false", Q4), "has dense for a.b",
                   "has 4 bits");
    config_refuses(BOTH(Q4, Q4 ", \"a.b\": false"), "has 4 bits", "has dense");
    config_refuses(
        BOTH(Q4 ", \"a.a\": false, \"a.b\": {\"bits\": 2, \"group_size\": 32}",
             Q4 ", \"a.b\": {\"bits\": 3, \"group_size\": 32}, \"a.a\": "
                "false"),
        "2 bits in groups of 32 for a.b", "3 bits in groups of 32");
    config_refuses(BOTH(Q4, "\"bits\": 4"), "quantization_config.group_size",
                   "missing");
#undef BOTH
#undef Q4
}

/* ---- tensors ---- */

static unsigned char zeros[FF * D * 4];

struct list {
    struct st_out_tensor t[MAX_TENSORS];
    char names[MAX_TENSORS][NAME];
    size_t n, n_names; /* n_names: also counts dropped tensors, whose names stay
                          used */
};

static void put(struct list *l, const char *name, enum dtype dtype, size_t rows,
                size_t cols)
{
    struct st_out_tensor *t = &l->t[l->n];
    assert_true(l->n_names < MAX_TENSORS);
    char *copy = l->names[l->n_names++];
    snprintf(copy, NAME, "%s", name);
    *t = (struct st_out_tensor){.name = copy,
                                .dtype = dtype,
                                .rank = cols ? 2 : 1,
                                .shape = {rows, cols},
                                .data = zeros};
    l->n++;
}

/* Add a module's weight; if bits > 0, also its scales and biases. */
static void put_module(struct list *l, const char *module, size_t rows,
                       size_t cols, int bits, size_t group, enum dtype dtype)
{
    char name[NAME];
    snprintf(name, sizeof name, "%.60s.weight", module);
    put(l, name, bits ? DT_U32 : dtype, rows,
        bits ? cols / 32 * (size_t)bits : cols);
    if (!bits)
        return;
    snprintf(name, sizeof name, "%.60s.scales", module);
    put(l, name, dtype, rows, cols / group);
    snprintf(name, sizeof name, "%.60s.biases", module);
    put(l, name, dtype, rows, cols / group);
}

static const struct {
    const char *name;
    size_t rows, cols;
} modules[] = {
    {"embed_tokens", VOCAB, D},
    {"layers.0.self_attn.q_proj", Q_DIM, D},
    {"layers.0.self_attn.k_proj", KV_DIM, D},
    {"layers.0.self_attn.v_proj", KV_DIM, D},
    {"layers.0.self_attn.o_proj", D, Q_DIM},
    {"layers.0.mlp.gate_proj", FF, D},
    {"layers.0.mlp.up_proj", FF, D},
    {"layers.0.mlp.down_proj", D, FF},
};
enum {
    N_MODULES = sizeof modules / sizeof *modules,
    N_EMBED = VOCAB * D,
    N_MATRICES = N_EMBED + 2 * D * Q_DIM + 2 * D * KV_DIM + 3 * D * FF,
    N_NORMS = 3 * D + 2 * HEAD
};

/* One layer with a tied head. */
static struct list *layer(const char *prefix, int bits, size_t group,
                          enum dtype dtype)
{
    static const struct {
        const char *name;
        size_t n;
    } norms[] = {
        {"norm.weight", D},
        {"layers.0.input_layernorm.weight", D},
        {"layers.0.post_attention_layernorm.weight", D},
        {"layers.0.self_attn.q_norm.weight", HEAD},
        {"layers.0.self_attn.k_norm.weight", HEAD},
    };
    static struct list l;
    char name[NAME];
    l.n = l.n_names = 0;
    for (size_t i = 0; i < N_MODULES; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, modules[i].name);
        put_module(&l, name, modules[i].rows, modules[i].cols, bits, group,
                   dtype);
    }
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        snprintf(name, sizeof name, "%s%s", prefix, norms[i].name);
        put(&l, name, dtype, norms[i].n, 0);
    }
    return &l;
}

static struct list *q4(void)
{
    return layer("model.", 4, 64, DT_BF16);
}

static struct st_out_tensor *tensor(struct list *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->t[i].name, name))
            return &l->t[i];
    fail_msg("no %s", name);
    return NULL;
}

static void drop(struct list *l, const char *name)
{
    *tensor(l, name) = l->t[l->n - 1];
    l->n--;
}

static void write_weights(const struct list *l)
{
    temp_put_tensors("model.safetensors", l->t, l->n);
}

static size_t list_bytes(const struct list *l)
{
    size_t sum = 0;
    for (size_t i = 0; i < l->n; i++) {
        size_t n = dtype_bytes(l->t[i].dtype);
        for (size_t k = 0; k < l->t[i].rank; k++)
            n *= l->t[i].shape[k];
        sum += n;
    }
    return sum;
}

/* Check that the checkpoint opens, and run it: all logits are zero. */
static void opens(const struct list *l, size_t n_params, int bits,
                  const char *storage)
{
    struct qwick_tensor t;
    struct qwick_engine *eng = engine_with(.model = temp_dir, .threads = 1);
    const struct qwick_info *info = qwick_engine_info(eng);
    assert_int_equal(info->n_params, n_params);
    assert_int_equal(info->weight_bytes, list_bytes(l));
    assert_int_equal(info->quant_bits, bits);
    assert_string_equal(info->weights_dtype, storage);
    size_t sum = 0, n = 0;
    for (int i = 0; i <= 8; i++)
        sum += info->params_by_bits[i];
    assert_int_equal(sum, n_params);
    for (; !qwick_tensor_at(eng, n, &t, NULL); n++)
        if (!t.used)
            fail_msg("%s is not used", t.name);
    assert_int_equal(n, l->n);
    logits_are_zero(eng);
    qwick_engine_close(eng);
}

static void refuses(const char *a, const char *b, const char *c)
{
    struct qwick_err e = open_refused(temp_dir);
    has_words(&e, a, b, c);
    assert_non_null(strstr(e.msg, temp_dir));
}

static void every_width_group_and_type(void **state)
{
    static const int bits[] = {2, 3, 4, 5, 6, 8};
    for (size_t i = 0; i < 6; i++) {
        for (size_t g = 0; g < 3; g++) {
            char want[32];
            size_t group = (size_t)32 << g;
            enum dtype dtype = (enum dtype)((i + g) % DT_N_FLOAT);
            bool tied = (i + g) % 2;
            struct list *l = layer("model.", bits[i], group, dtype);
            if (!tied)
                put_module(l, "lm_head", VOCAB, D, bits[i], group, dtype);
            write_params(tied, bits[i], group);
            write_weights(l);
            snprintf(want, sizeof want, "%d-bit (group %zu)", bits[i], group);
            opens(l, N_MATRICES + N_NORMS + (tied ? 0 : N_EMBED), bits[i],
                  want);
        }
    }
    /* scales of another type than the norms; then different types for each
     * module */
    struct list *l = q4();
    enum dtype t = DT_F32;
    for (size_t i = 0; i < N_MODULES; i++, t = (enum dtype)((t + 1) % 3))
        l->t[3 * i + 1].dtype = l->t[3 * i + 2].dtype = t;
    write_params(true, 4, 64);
    write_weights(l);
    opens(l, N_MATRICES + N_NORMS, 4, "4-bit (group 64)");
}

static void widths_may_be_mixed(void **state)
{
    struct list *l = q4();
    drop(l, "model.layers.0.mlp.gate_proj.weight");
    drop(l, "model.layers.0.mlp.gate_proj.scales");
    drop(l, "model.layers.0.mlp.gate_proj.biases");
    put_module(l, "model.layers.0.mlp.gate_proj", FF, D, 0, 0, DT_F16);
    put_module(l, "lm_head", VOCAB, D, 8, 32, DT_BF16);
    write_config(false, "\"quantization\": {\"group_size\": 64, \"bits\": 4, "
                        "\"model.layers.0.mlp.gate_proj\": false, \"lm_head\": "
                        "{\"group_size\": 32, \"bits\": 8}, "
                        "\"model.layers.0.mlp.up_proj\": true}");
    write_weights(l);
    opens(l, N_MATRICES + N_NORMS + N_EMBED, 4, "4/8-bit (group 64)");
    struct qwick_engine *eng = engine_with(.model = temp_dir, .threads = 1);
    const struct qwick_info *info = qwick_engine_info(eng);
    assert_int_equal(info->quant_group, 64);
    assert_int_equal(info->quant_overrides, 3);
    assert_int_equal(info->params_by_bits[8], N_EMBED);
    assert_int_equal(info->params_by_bits[4], N_MATRICES - FF * D);
    assert_int_equal(info->params_by_bits[0], FF * D + N_NORMS);
    qwick_engine_close(eng);
    /* the embedding differs from the rest */
    l = layer("model.", 6, 128, DT_F16);
    drop(l, "model.embed_tokens.weight");
    drop(l, "model.embed_tokens.scales");
    drop(l, "model.embed_tokens.biases");
    put_module(l, "model.embed_tokens", VOCAB, D, 3, 32, DT_F32);
    write_config(true, "\"quantization\": {\"group_size\": 128, \"bits\": 6, "
                       "\"model.embed_tokens\": {\"bits\": 3, "
                       "\"group_size\": 32}}");
    write_weights(l);
    opens(l, N_MATRICES + N_NORMS, 6, "3/6-bit (group 128)");
    /* names of the bare model */
    l = layer("", 5, 64, DT_BF16);
    put_module(l, "lm_head", VOCAB, D, 0, 0, DT_BF16);
    drop(l, "layers.0.mlp.up_proj.weight");
    drop(l, "layers.0.mlp.up_proj.scales");
    drop(l, "layers.0.mlp.up_proj.biases");
    put_module(l, "layers.0.mlp.up_proj", FF, D, 2, 32, DT_BF16);
    write_config(false, "\"quantization\": {\"group_size\": 64, \"bits\": 5, "
                        "\"layers.0.mlp.up_proj\": {\"group_size\": 32, "
                        "\"bits\": 2}, \"lm_head\": false}");
    write_weights(l);
    opens(l, N_MATRICES + N_NORMS + N_EMBED, 5, "2/5-bit (group 64)");
}

static void without_scales_a_module_is_dense(void **state)
{
    /* the overrides of config.json for it do not matter */
    static const char *const says[] = {
        "", ", \"lm_head\": true",
        ", \"lm_head\": {\"group_size\": 64, \"bits\": 8}",
        ", \"lm_head\": false"};
    for (size_t i = 0; i < 4; i++) {
        char text[200];
        struct list *l = q4();
        put_module(l, "lm_head", VOCAB, D, 0, 0, DT_F32);
        snprintf(text, sizeof text,
                 "\"quantization\": {\"group_size\": 64, \"bits\": 4%s}",
                 says[i]);
        write_config(false, text);
        write_weights(l);
        opens(l, N_MATRICES + N_NORMS + N_EMBED, 4, "4-bit (group 64)");
        /* but it must have the full shape */
        tensor(l, "lm_head.weight")->shape[1] = D / 8;
        write_weights(l);
        refuses("lm_head.weight", "[20, 16]", "[20, 128]");
    }
    struct list *l = layer("model.", 0, 0, DT_BF16);
    write_params(true, 4, 64);
    write_weights(l);
    opens(l, N_MATRICES + N_NORMS, 0, "BF16");
}

static void parts_of_a_module_in_different_shards(void **state)
{
    static const char *const files[] = {"a.safetensors", "b.safetensors",
                                        "c.safetensors"};
    struct list *l = q4();
    struct buf index = {0};
    buf_puts(&index, "{\"weight_map\": {");
    for (size_t shard = 0; shard < 3; shard++) {
        struct st_out_tensor t[MAX_TENSORS];
        size_t n = 0;
        for (size_t i = shard; i < l->n; i += 3) {
            t[n++] = l->t[i];
            assert_int_equal(buf_printf(&index, "%s\"%s\": \"%s\"",
                                        index.len > 20 ? ", " : "",
                                        l->t[i].name, files[shard]),
                             0);
        }
        temp_put_tensors(files[shard], t, n);
    }
    buf_puts(&index, "}}");
    temp_write("model.safetensors.index.json", index.data, index.len);
    buf_free(&index);
    write_params(true, 4, 64);
    opens(l, N_MATRICES + N_NORMS, 4, "4-bit (group 64)");
    write_params(true, 8, 64);
    refuses("a.safetensors", "embed_tokens.weight", "8 bits");
}

static void config_and_file_differ(void **state)
{
    write_weights(q4());
    write_config(true, "");
    refuses("tensor model.embed_tokens.scales", "model.safetensors",
            "config.json has no \"quantization\"");
    write_params(true, 8, 64);
    refuses("tensor model.embed_tokens.weight", "[20, 16] in the file",
            "[20, 32] by config.json (8 bits, group 64)");
    write_params(true, 3, 64);
    refuses("tensor model.embed_tokens.weight", "[20, 16]", "[20, 12]");
    write_params(true, 4, 32);
    refuses("tensor model.embed_tokens.scales", "[20, 2] in the file",
            "[20, 4] by config.json (4 bits, group 32)");
    write_params(true, 4, 128);
    refuses("tensor model.embed_tokens.scales", "[20, 2]", "[20, 1]");
    write_config(true, "\"quantization\": {\"group_size\": 64, \"bits\": 4, "
                       "\"model.layers.0.mlp.up_proj\": false}");
    refuses("tensor model.layers.0.mlp.up_proj.scales", "quantized",
            "quantization.model.layers.0.mlp.up_proj: false");
    write_config(true, "\"quantization_config\": {\"group_size\": 64, "
                       "\"bits\": 4, \"model.layers.0.mlp.down_proj\": "
                       "{\"group_size\": 64, \"bits\": 6}}");
    refuses("tensor model.layers.0.mlp.down_proj.weight", "[128, 32]",
            "[128, 48] by config.json (6 bits, group 64)");
    /* an override for the bare name applies to no module here */
    write_config(true, "\"quantization\": {\"group_size\": 64, \"bits\": 8, "
                       "\"embed_tokens\": {\"group_size\": 64, \"bits\": 4}}");
    refuses("embed_tokens.weight", "[20, 16]", "[20, 32]");
}

static void broken_parts(void **state)
{
#define M "model.layers.0.self_attn.k_proj"
    write_params(true, 4, 64);
    struct list *l = q4();
    drop(l, M ".biases");
    write_weights(l);
    refuses("tensor " M ".biases", "missing", "");
    l = q4();
    drop(l, M ".scales");
    write_weights(l);
    refuses("tensor " M ".scales", "missing", M ".weight has dtype U32");
    drop(l, M ".biases");
    write_weights(l);
    refuses("tensor " M ".scales", "missing", M ".weight has dtype U32");
    l = q4();
    drop(l, M ".weight");
    write_weights(l);
    refuses("tensor " M ".weight", "missing", "");
    for (int type = 0; type < DT_BLOCKS; type++) {
        const char *name = dtype_name((enum dtype)type);
        l = q4();
        if (type != DT_U32) {
            tensor(l, M ".weight")->dtype = (enum dtype)type;
            write_weights(l);
            refuses("tensor " M ".weight", name, "U32");
        }
        l = q4();
        if (type != DT_BF16) {
            tensor(l, M ".biases")->dtype = (enum dtype)type;
            write_weights(l);
            refuses("tensor " M ".biases", name, "BF16");
        }
        tensor(l, M ".biases")->dtype = (enum dtype)type;
        tensor(l, M ".scales")->dtype = (enum dtype)type;
        if (type >= DT_N_FLOAT) {
            write_weights(l);
            refuses("tensor " M ".scales", name, "not supported for scales");
        }
    }
    static const char *const parts[] = {M ".weight", M ".scales", M ".biases"};
    for (size_t i = 0; i < 3; i++) {
        for (size_t dim = 0; dim < 2; dim++) {
            for (int by = -1; by <= 1; by += 2) {
                l = q4();
                tensor(l, parts[i])->shape[dim] += (size_t)by;
                write_weights(l);
                refuses(parts[i], "in the file", "(4 bits, group 64)");
            }
        }
        l = q4();
        struct st_out_tensor *t = tensor(l, parts[i]);
        t->shape[2] = t->shape[1];
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
        t->rank = 3;
        write_weights(l);
        refuses(parts[i], "[1, ", "(4 bits, group 64)");
        t->rank = 1;
        write_weights(l);
        refuses(parts[i], "[1] in the file", "(4 bits, group 64)");
        t->rank = 0;
        write_weights(l);
        refuses(parts[i], "[] in the file", "(4 bits, group 64)");
        t->rank = 2;
        t->shape[0] = 0;
        write_weights(l);
        refuses(parts[i], "[0, ", "(4 bits, group 64)");
    }
    /* norms cannot be packed */
    l = q4();
    tensor(l, "model.norm.weight")->dtype = DT_U32;
    write_weights(l);
    refuses("model.norm.weight", "U32", "not supported");
    /* tensors that are not used may have any type and shape */
    l = q4();
    put(l, "model.norm.scales", DT_U8, 3, 3);
    put(l, "lm_head.scales", DT_U8, 3, 3);
    write_weights(l);
    struct qwick_engine *eng = engine_with(.model = temp_dir, .threads = 1);
    assert_int_equal(qwick_engine_info(eng)->n_params, N_MATRICES + N_NORMS);
    qwick_engine_close(eng);
#undef M
}

/* ---- the binding itself ---- */

static void matrices_borrow_from_the_mapping(void **state)
{
    enum { ROWS = 3, COLS = 96 };
    static unsigned char q[ROWS * COLS * 5 / 8], s[ROWS * 3 * 2],
        b[ROWS * 3 * 2];
    for (size_t i = 0; i < sizeof q; i++)
        q[i] = (unsigned char)(i * 37);
    for (size_t i = 0; i < sizeof s; i++) {
        s[i] = (unsigned char)(i + 1);
        b[i] = (unsigned char)(i + 101);
    }
    const struct st_out_tensor t[] = {
        {"model.x.scales", DT_F16, 2, {ROWS, 3}, s},
        {"model.x.weight", DT_U32, 2, {ROWS, COLS / 32 * 5}, q},
        {"model.x.biases", DT_F16, 2, {ROWS, 3}, b},
        {"model.x.d", DT_F32, 2, {ROWS, 1}, q},
    };
    struct quant quant = {.all = {5, 32}, .key = "quantization"};
    struct st_set *set;
    struct weights w;
    struct matrix m;
    struct qwick_err e;
    const struct names names = {
        .prefixes = {"model.", NULL},
        .of = {[WEIGHT_EMBED] = {"@x.weight"}, [WEIGHT_HEAD] = {"@x.d"}}};
    const struct names *const schemes[] = {&names, NULL};
    const struct weight_ref x = {.id = WEIGHT_EMBED}, d = {.id = WEIGHT_HEAD};
    temp_put_tensors("x.safetensors", t, 4);
    assert_int_equal(st_open_file(&set, temp_path("x.safetensors"), NULL), 0);
    assert_int_equal(
        weights_open(&w, set, "PATH", schemes, kernels_ref(), true, NULL), 0);
    /* a module is quantized only if config.json says so */
    assert_int_equal(weights_matrix(&w, &m, ROWS, COLS, x, &e), -1);
    has_words(&e, "PATH: ", "model.x.scales", "no \"quantization\"");
    w.quant = &quant;
    for (int twice = 0; twice < 2; twice++) {
        assert_ok(weights_matrix(&w, &m, ROWS, COLS, x, &e), &e);
        assert_int_equal(w.n_params, ROWS * COLS);
        assert_int_equal(w.params_by_bits[5], ROWS * COLS);
        assert_int_equal(w.n_bytes, sizeof q + sizeof s + sizeof b);
    }
    assert_ptr_equal(m.data[0], st_find(set, "model.x.weight")->data);
    assert_ptr_equal(m.data[1], st_find(set, "model.x.scales")->data);
    assert_ptr_equal(m.data[2], st_find(set, "model.x.biases")->data);
    assert_int_equal(m.dtype, DT_F16);
    assert_int_equal(m.bits, 5);
    assert_int_equal(m.group, 32);
    struct affine a = matrix_affine(&m, 2);
    assert_int_equal(a.q_stride, COLS * 5 / 8);
    assert_int_equal(a.s_stride, 6);
    assert_int_equal(a.b_stride, 6);
    assert_memory_equal(a.q, q + 2 * COLS * 5 / 8, COLS * 5 / 8);
    assert_memory_equal(a.scales, s + 12, 6);
    assert_memory_equal(a.biases, b + 12, 6);
    assert_int_equal(a.s_type, DT_F16);
    assert_int_equal(a.b_type, DT_F16);
    /* rows that are not whole groups, and a number of columns that overflows */
    quant.all.group = 64;
    assert_int_equal(weights_matrix(&w, &m, ROWS, COLS, x, &e), -1);
    has_words(&e, "model.x.weight", "96 columns", "group_size, 64");
    assert_int_equal(weights_matrix(&w, &m, ROWS, SIZE_MAX - 63, x, &e), -1);
    /* a tensor that is not a module's weight is never quantized */
    assert_int_equal(weights_matrix(&w, &m, ROWS, 1, d, &e), 0);
    assert_int_equal(m.bits, 0);
    assert_string_equal(weights_storage(&w, &m), "5-bit (group 64)");
    weights_close(&w);
    st_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(parameters_are_read, fresh),
        cmocka_unit_test_setup(mxfp4_is_a_mode, fresh),
        cmocka_unit_test_setup(modules_have_their_own, fresh),
        cmocka_unit_test_setup(values_out_of_range, fresh),
        cmocka_unit_test_setup(other_systems_are_refused_by_name, fresh),
        cmocka_unit_test_setup(fp8_forms, fresh),
        cmocka_unit_test_setup(fp8_fields_are_checked, fresh),
        cmocka_unit_test_setup(module_patterns, fresh),
        cmocka_unit_test_setup(groups_of_modules, fresh),
        cmocka_unit_test_setup(broken_overrides, fresh),
        cmocka_unit_test_setup(two_objects_agree_or_not, fresh),
        cmocka_unit_test_setup(every_width_group_and_type, fresh),
        cmocka_unit_test_setup(widths_may_be_mixed, fresh),
        cmocka_unit_test_setup(without_scales_a_module_is_dense, fresh),
        cmocka_unit_test_setup(parts_of_a_module_in_different_shards, fresh),
        cmocka_unit_test_setup(config_and_file_differ, fresh),
        cmocka_unit_test_setup(broken_parts, fresh),
        cmocka_unit_test_setup(matrices_borrow_from_the_mapping, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
