/* The splits of byte-level tokenizers, by tokenizer.json and by GGUF files:
 * goldens of the Rust library `tokenizers` (tests/golden/splits). */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "bpe_small.h"
#include "engine/core/open_gguf.h"
#include "file/gguf.h"
#include "gguf_build.h"
#include "tempdir.h"

#define FOLDER "tests/golden/splits/"

static struct map base_map;
static struct json_doc *base; /* tokenizer.json */

/* Replace `"name":WAS` of text by the member of kind with this name. */
static void set_member(struct buf *text, const struct json_value *kind,
                       const char *name, const char *was)
{
    struct buf from = {0}, to = {0}, out = {0};
    assert_int_equal(buf_printf(&from, "\"%s\":%s", name, was), 0);
    assert_int_equal(buf_printf(&to, "\"%s\":", name), 0);
    assert_int_equal(json_dump_python(&to, json_get(kind, name)), 0);
    assert_int_equal(buf_putc(&to, '\0'), 0);
    assert_int_equal(buf_putc(text, '\0'), 0);
    put_replaced(&out, text->data, from.data, to.data);
    buf_free(&from);
    buf_free(&to);
    buf_free(text);
    *text = out;
}

/* The tokenizer as tokenizer.json with the kind's members. */
static struct bpe *open_json(const struct json_value *kind)
{
    struct buf text = {0};
    assert_int_equal(buf_append(&text, base_map.data, base_map.size), 0);
    set_member(&text, kind, "normalizer", "null");
    set_member(&text, kind, "pre_tokenizer", "null");
    set_member(&text, kind, "ignore_merges", "false");
    struct bpe *b = open_text(text.data, text.len);
    buf_free(&text);
    return b;
}

static void gb_json_string(struct gguf_build *g, const struct json_value *v)
{
    gb_text(&g->keys, v->str, v->len);
}

/* The keys that say which token goes before a text. */
enum bos { BOS_ID, ADD_BOS_FALSE, ADD_BOS_TRUE, NO_BOS_KEYS };

/* Write the tokenizer as a GGUF file with this pre-tokenizer. */
static const char *write_gguf(const char *pre, enum bos bos)
{
    struct gguf_build g = GGUF_BUILD;
    const struct json_value *root = json_root(base);
    const struct json_value *model = json_get(root, "model");
    const struct json_value *vocab = json_get(model, "vocab");
    const struct json_value *merges = json_get(model, "merges");
    const struct json_value *added = json_get(root, "added_tokens");
    gb_string(&g, "tokenizer.ggml.model", "gpt2");
    gb_string(&g, "tokenizer.ggml.pre", pre);
    gb_array(&g, "tokenizer.ggml.tokens", GGUF_STRING, vocab->len + added->len);
    for (size_t i = 0; i < vocab->len; i++) /* the file has them by id */
        gb_json_string(&g, &vocab->keys[i]);
    for (size_t i = 0; i < added->len; i++)
        gb_json_string(&g, json_get(&added->items[i], "content"));
    gb_array(&g, "tokenizer.ggml.token_type", GGUF_I32,
             vocab->len + added->len);
    for (size_t i = 0; i < vocab->len + added->len; i++)
        gb_u32(&g.keys, i < vocab->len ? 1 : 3); /* normal, control */
    gb_array(&g, "tokenizer.ggml.merges", GGUF_STRING, merges->len);
    for (size_t i = 0; i < merges->len; i++) {
        const struct json_value *m = merges->items[i].items;
        struct buf both = {0};
        assert_int_equal(buf_printf(&both, "%s %s", m[0].str, m[1].str), 0);
        gb_text(&g.keys, both.data, both.len);
        buf_free(&both);
    }
    if (bos == ADD_BOS_FALSE || bos == ADD_BOS_TRUE)
        gb_bool(&g, "tokenizer.ggml.add_bos_token", bos == ADD_BOS_TRUE);
    if (bos != NO_BOS_KEYS)
        gb_uint(&g, "tokenizer.ggml.bos_token_id", (uint32_t)vocab->len);
    struct buf file = gb_done(&g);
    const char *path = temp_path("m.gguf");
    put_file(path, file.data, file.len);
    buf_free(&file);
    return path;
}

static struct bpe *open_gguf_file(const char *path)
{
    struct gguf *g;
    struct bpe *b;
    struct qwick_err e;
    assert_ok(gguf_open(&g, path, &e), &e);
    assert_ok(open_gguf_tokenizer(&b, g, &e), &e);
    assert_non_null(b);
    gguf_close(g);
    return b;
}

/* Compare the ids of all texts with those of the k-th kind. */
static void check_ids(struct bpe *b, const char *name, size_t k)
{
    struct jsonl in = jsonl_open(FOLDER "ids.jsonl");
    while (jsonl_next(&in)) {
        const struct json_value *text = json_get(in.root, "text");
        struct ids want = ids_of(&json_get(in.root, "ids")->items[k]);
        struct ids got = encode(b, text->str, text->len, true);
        if (got.n != want.n ||
            (got.n && memcmp(got.v, want.v, got.n * sizeof *got.v)))
            fail_msg("%s: \"%s\": %zu ids, must be %zu", name, text->str, got.n,
                     want.n);
        free(got.v);
        free(want.v);
    }
    assert_true(in.n_lines >= 100);
    jsonl_close(&in);
    bpe_close(b);
}

static void test_goldens(void **state)
{
    struct jsonl in = jsonl_open(FOLDER "splits.jsonl");
    while (jsonl_next(&in)) {
        const char *name = json_get(in.root, "name")->str;
        const struct json_value *pre = json_get(in.root, "pre");
        size_t k = in.n_lines - 1;
        check_ids(open_json(in.root), name, k);
        if (json_is(pre, JSON_STRING))
            check_ids(open_gguf_file(write_gguf(pre->str, BOS_ID)), pre->str,
                      k);
    }
    assert_true(in.n_lines >= N_SPLITS);
    jsonl_close(&in);
}

/* ---- other names, and the first token ---- */

/* The splitting that a name stands for, and the name that quantize writes for
 * it. */
static void test_names(void **state)
{
    static const char *const t[][2] = {
        {"deepseek-r1-qwen", "qwen2"},
        {"megrez", "stablelm2"},
        {"llama3", "llama-bpe"},
        {"lfm2", "llama-bpe"},
        {"glm4", "dbrx"},
        {"llama4", "gpt-4o"},
        {"hunyuan-dense", "deepseek-v3"},
        {"refact", "smollm"},
        {"exaone", "smollm"},
        {"mellum", "gpt-2"},
        {"qwen35", "qwen35"},
        {"seed-coder", "seed-coder"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct bpe *b = open_gguf_file(write_gguf(t[i][0], BOS_ID));
        struct bpe_parts parts = {0};
        size_t n = 0;
        bpe_export_splitting(b, &parts);
        const char *name = open_gguf_pre(&parts, &n);
        if (!name || n != strlen(t[i][1]) || memcmp(name, t[i][1], n) != 0)
            fail_msg("%s: written as %.*s", t[i][0], (int)n, name ? name : "");
        bpe_close(b);
    }
    struct bpe_parts none = {.split = SPLIT_TEKKEN, .nfc = true};
    size_t n;
    assert_null(open_gguf_pre(&none, &n));
}

/* Of the small tokenizer, "hellos" and one more token are made by no merge. */
static void test_merges_make_all(void **state)
{
    static const char gone[] = ",\"hellos\":304,\"\xE4\xB8\xAD\":305";
    struct bpe *b = open_changed("\"ignore_merges\":false",
                                 "\"ignore_merges\":true");
    bool all;
    assert_int_equal(bpe_export_merges_make_all(b, &all, NULL), 0);
    assert_false(all);
    bpe_close(b);
    b = open_changed(gone, "");
    assert_int_equal(bpe_export_merges_make_all(b, &all, NULL), 0);
    assert_true(all);
    bpe_close(b);
}

static void test_refused(void **state)
{
    static const char *const names[] = {"default", "llama", "qwen2 ", "",
                                        "qwen2 deepseek-r1-qwen"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf *g;
        struct bpe *b;
        struct qwick_err e;
        char want[64];
        assert_ok(gguf_open(&g, write_gguf(names[i], BOS_ID), &e), &e);
        assert_int_equal(open_gguf_tokenizer(&b, g, &e), -1);
        assert_null(b);
        snprintf(want, sizeof want, "\"%s\" is not supported (qwen2 ",
                 names[i]);
        if (!strstr(e.msg, want) || !strstr(e.msg, "mellum seed-coder are)"))
            fail_msg("%s (wanted: %s)", e.msg, want);
        gguf_close(g);
    }
}

/* add_bos_token decides; without it the pre-tokenizer does. */
static void test_bos(void **state)
{
    static const struct {
        const char *pre;
        enum bos keys;
        size_t n_before;
    } t[] = {{"llama-bpe", BOS_ID, 1},       {"llama-bpe", ADD_BOS_FALSE, 0},
             {"llama-bpe", ADD_BOS_TRUE, 1}, {"llama-bpe", NO_BOS_KEYS, 0},
             {"pixtral", BOS_ID, 1},         {"tekken", BOS_ID, 1},
             {"tekken", ADD_BOS_FALSE, 0},   {"dbrx", BOS_ID, 0},
             {"dbrx", ADD_BOS_TRUE, 1},      {"gpt-4o", BOS_ID, 0},
             {"qwen2", BOS_ID, 0},           {"qwen2", ADD_BOS_TRUE, 1}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct bpe *b = open_gguf_file(write_gguf(t[i].pre, t[i].keys));
        struct bpe_frame f;
        assert_int_equal(bpe_get_frame(b, &f, NULL), 0);
        assert_int_equal(f.n_before, t[i].n_before);
        assert_int_equal(f.n_after, 0);
        if (f.n_before)
            assert_int_equal(f.before[0], bpe_added_id(b, "<|start|>"));
        bpe_close(b);
    }
}

static int setup(void **state)
{
    base = parse_file(FOLDER "tokenizer.json", &base_map);
    return temp_setup(state);
}

static int teardown(void **state)
{
    json_free(base);
    map_close(&base_map);
    return temp_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_goldens, fresh),
        cmocka_unit_test_setup(test_names, fresh),
        cmocka_unit_test(test_merges_make_all),
        cmocka_unit_test_setup(test_refused, fresh),
        cmocka_unit_test_setup(test_bos, fresh),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
