/* The ids that tokenizer.json's post_processor adds around a text. Each test
 * uses the demo model's tokenizer with another post_processor. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/map.h"
#include "text/bpe/bpe.h"

static struct map demo;

/* Open the demo model's file with `post` in place of its post_processor. */
static struct bpe *open_with(const char *post)
{
    static const char key[] = "\"post_processor\": ", next[] = "\"decoder\":";
    struct buf b = {0};
    struct bpe *bpe;
    struct qwick_err e;
    const char *text = (const char *)demo.data, *end = text + demo.size;
    const char *at = memmem(text, demo.size, key, strlen(key));
    assert_non_null(at);
    at += strlen(key);
    const char *rest = memmem(at, (size_t)(end - at), next, strlen(next));
    assert_non_null(rest);
    assert_int_equal(buf_append(&b, text, (size_t)(at - text)), 0);
    assert_int_equal(buf_puts(&b, post), 0);
    assert_int_equal(buf_puts(&b, ",\n  "), 0);
    assert_int_equal(buf_append(&b, rest, (size_t)(end - rest)), 0);
    assert_ok(bpe_open(&bpe, "test.json", b.data, b.len, &e), &e);
    buf_free(&b);
    return bpe;
}

#define SPECIAL(name) "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":0}}"
#define TEXT          "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define TOKEN(name, ids) \
    "\"" name "\":{\"id\":\"" name "\",\"ids\":[" ids "],\"tokens\":[]}"
#define TEMPLATE(single, tokens)                          \
    "{\"type\":\"TemplateProcessing\",\"single\":" single \
    ",\"pair\":[],\"special_tokens\":{" tokens "}}"
#define BYTE_LEVEL                                                         \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":" \
    "false,\"use_regex\":false}"
#define EOS TOKEN("<|endoftext|>", "6135")

static void check(const char *post, const int32_t *before, size_t n_before,
                  const int32_t *after, size_t n_after)
{
    struct bpe *b = open_with(post);
    struct bpe_frame f;
    struct qwick_err e;
    assert_ok(bpe_get_frame(b, &f, &e), &e);
    assert_int_equal(f.n_before, n_before);
    assert_int_equal(f.n_after, n_after);
    if (n_before)
        assert_memory_equal(f.before, before, n_before * sizeof *before);
    if (n_after)
        assert_memory_equal(f.after, after, n_after * sizeof *after);
    /* encoding never adds ids */
    int32_t *ids = NULL;
    size_t n = 0;
    assert_int_equal(bpe_encode(b, "no", 2, true, &ids, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], 673);
    free(ids);
    bpe_close(b);
}

static void nothing_is_added(void **state)
{
    check("null", NULL, 0, NULL, 0);
    check(BYTE_LEVEL, NULL, 0, NULL, 0);
    check("{\"type\":\"Sequence\",\"processors\":[]}", NULL, 0, NULL, 0);
    check(TEMPLATE("[" TEXT "]", ""), NULL, 0, NULL, 0);
}

static void templates_add_tokens(void **state)
{
    const int32_t one[] = {6135}, two[] = {6136, 6137};
    check(TEMPLATE("[" TEXT "," SPECIAL("<|endoftext|>") "]", EOS), NULL, 0,
          one, 1);
    /* the post_processor of Qwen3-Embedding */
    check("{\"type\":\"Sequence\",\"processors\":[" BYTE_LEVEL
          "," TEMPLATE("[" TEXT "," SPECIAL("<|endoftext|>") "]", EOS) "]}",
          NULL, 0, one, 1);
    check(TEMPLATE("[" SPECIAL("x") "," TEXT "," SPECIAL("<|endoftext|>") "]",
                   EOS "," TOKEN("x", "6136,6137")),
          two, 2, one, 1);
}

static void refused(const char *post, const char *why)
{
    struct bpe *b = open_with(post); /* everything else still works */
    struct bpe_frame f;
    struct qwick_err e;
    assert_int_equal(bpe_get_frame(b, &f, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (!strstr(e.msg, why) ||
        strncmp(e.msg, "test.json: post_processor: ", 27) != 0)
        fail_msg("%s", e.msg);
    assert_int_equal(f.n_before + f.n_after, 0);
    bpe_close(b);
}

static void other_templates_are_refused(void **state)
{
    const char *again = TEMPLATE("[" TEXT "]", EOS);
    char twice[512];
    snprintf(twice, sizeof twice,
             "{\"type\":\"Sequence\",\"processors\":[%s,%s]}", again, again);
    refused(twice, "2 of type TemplateProcessing");
    refused(TEMPLATE("3", EOS), "not an array");
    refused(TEMPLATE("[]", EOS), "no place for the text");
    refused(TEMPLATE("[" SPECIAL("<|endoftext|>") "]", EOS),
            "no place for the text");
    refused(TEMPLATE("[" TEXT "," TEXT "]", EOS), "piece 1: the text twice");
    refused(TEMPLATE("[{\"Sequence\":{\"id\":\"B\"}}]", EOS),
            "piece 0: a sequence that is not A");
    refused(TEMPLATE("[" TEXT ",7]", EOS),
            "piece 1: a piece that is not a Sequence");
    refused(TEMPLATE("[" TEXT ",{\"SpecialToken\":{}}]", EOS), "without an id");
    refused(TEMPLATE("[" TEXT "," SPECIAL("x") "]", EOS),
            "special_tokens does not have");
    refused(TEMPLATE("[" TEXT "," SPECIAL("x") "]", TOKEN("x", "-1")),
            "an id that the tokenizer does not have");
    refused(TEMPLATE("[" TEXT "," SPECIAL("x") "]", TOKEN("x", "9999999999")),
            "an id that the tokenizer does not have");
    refused(TEMPLATE("[" TEXT "," SPECIAL("x") "]", TOKEN("x", "6144")),
            "an id that the tokenizer does not have");
    refused(TEMPLATE("[" TEXT "," SPECIAL("x") "]", TOKEN("x", "1.5")),
            "an id that the tokenizer does not have");
    char many[64 * 4 * 2 + 256] =
        "{\"type\":\"TemplateProcessing\",\"single\":"
        "[" TEXT "," SPECIAL("x") "],"
                                  "\"special_tokens\":{\"x\":{\"ids\":[1";
    for (int i = 0; i < 64; i++)
        strcat(many, ",1");
    strcat(many, "]}}}");
    refused(many, "too many tokens");
}

static int setup(void **state)
{
    return map_open(&demo, "models/demo/tokenizer.json", NULL);
}

static int teardown(void **state)
{
    map_close(&demo);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_added),
        cmocka_unit_test(templates_add_tokens),
        cmocka_unit_test(other_templates_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
