/* Making config.json files and reading them. */
#ifndef TEST_CONFIG_FILE_H
#define TEST_CONFIG_FILE_H

#include <string.h>

#include "base/buf.h"
#include "file/checkpoint.h"
#include "model/config.h"
#include "tempdir.h"

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

/* The spellings of transformers 4 and 5. */
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
enum { N_V4 = sizeof v4 / sizeof *v4, N_V5 = sizeof v5 / sizeof *v5 };

static inline void put_member(struct buf *b, const char *key, const char *value)
{
    assert_int_equal(
        buf_printf(b, "%s\n  \"%s\": %s", b->len > 1 ? "," : "", key, value),
        0);
}

/* Write config.json from a list of members with changes. */
static inline void write_config(const struct member *base, size_t n,
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

static inline int load(struct config *c, struct qwick_err *e)
{
    struct checkpoint *ck;
    *e = (struct qwick_err){0};
    assert_int_equal(checkpoint_open(&ck, temp_dir, e), 0);
    int rc = config_load(c, ck, e);
    checkpoint_close(ck);
    return rc;
}

static inline struct config loads(void)
{
    struct config c;
    struct qwick_err e;
    assert_ok(load(&c, &e), &e);
    return c;
}

/* Check that config_load fails with code MODEL, and that the message has all of
 * the words. */
static inline void refuses(const char *file, const char *a, const char *b)
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

/* WRITE, and refuses of that file. */
#define REFUSES(a, b, base, ...)          \
    do {                                  \
        WRITE(base, __VA_ARGS__);         \
        refuses("config.json", (a), (b)); \
    } while (0)

/* Check that two configs are equal. */
static inline void same(const struct config *a, const struct config *b)
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
    SAME(qkv_bias);
    SAME(o_bias);
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

#endif
