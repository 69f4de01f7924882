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

/* ---- pairs --------------------------------------------------------------- */

#define AT(name, type) \
    "{\"SpecialToken\":{\"id\":\"" name "\",\"type_id\":" type "}}"
#define PLACE(id, type) \
    "{\"Sequence\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define PAIR(pair)                                                           \
    "{\"type\":\"TemplateProcessing\",\"single\":[" TEXT "],\"pair\":[" pair \
    "],\"special_tokens\":{" TOKEN("c", "6135") "," TOKEN("s", "6136") "}}"
#define FIXED(type)                                                     \
    "{\"type\":\"" type "\",\"sep\":[\"s\",6136],\"cls\":[\"c\",6135]," \
    "\"trim_offsets\":true,\"add_prefix_space\":false}"

/* want: the ids before, between and after, -1 after each group. */
static void check_pair(const char *post, const int32_t *want, size_t n_type0,
                       bool types)
{
    struct bpe *b = open_with(post);
    struct bpe_pair p;
    struct qwick_err e;
    assert_ok(bpe_get_pair(b, &p, &e), &e);
    const int32_t *ids[] = {p.before, p.between, p.after};
    const size_t n[] = {p.n_before, p.n_between, p.n_after};
    for (size_t group = 0; group < 3; group++, want++)
        for (size_t i = 0; *want >= 0 || i < n[group]; i++, want++) {
            assert_true(i < n[group]);
            assert_int_equal(ids[group][i], *want);
        }
    assert_int_equal(p.n_between_type0, n_type0);
    assert_int_equal(p.types, types);
    bpe_close(b);
}

static void pairs(void **state)
{
    const int32_t bert[] = {6135, -1, 6136, -1, 6136, -1};
    const int32_t roberta[] = {6135, -1, 6136, 6136, -1, 6136, -1};
    const int32_t one[] = {-1, 6136, -1, -1}, none[] = {-1, -1, -1};
    check_pair(FIXED("BertProcessing"), bert, 1, true);
    check_pair(FIXED("RobertaProcessing"), roberta, 2, false);
    check_pair(PAIR(AT("c", "0") "," PLACE("A", "0") "," AT("s", "0") "," PLACE(
                   "B", "1") "," AT("s", "1")),
               bert, 1, true);
    check_pair(PAIR(AT("c", "0") "," PLACE("A", "0") "," AT("s", "0") "," AT(
                   "s", "1") "," PLACE("B", "1") "," AT("s", "1")),
               roberta, 1, true);
    check_pair(PAIR(AT("c", "0") "," PLACE("A", "0") "," AT("s", "0") "," AT(
                   "s", "0") "," PLACE("B", "0") "," AT("s", "0")),
               roberta, 2, false);
    check_pair(PAIR(PLACE("A", "0") "," AT("s", "1") "," PLACE("B", "1")), one,
               0, true);
    check_pair(PAIR(PLACE("A", "0") "," PLACE("B", "1")), none, 0, true);
    /* the frame of one text */
    const int32_t cls[] = {6135}, sep[] = {6136};
    check(FIXED("BertProcessing"), cls, 1, sep, 1);
    check(FIXED("RobertaProcessing"), cls, 1, sep, 1);
}

/* A token between two texts must stay, though no frame of one text has it. */
static void pairs_keep_their_tokens(void **state)
{
    struct bpe *b =
        open_with(PAIR(PLACE("A", "0") "," AT("s", "0") "," PLACE("B", "0")));
    assert_int_equal(bpe_drop_from(b, 6136), -1);
    bpe_close(b);
    b = open_with(PAIR(PLACE("A", "0") "," PLACE("B", "0")));
    assert_int_equal(bpe_drop_from(b, 6136), 0);
    bpe_close(b);
}

static void no_pair(const char *post, const char *why)
{
    struct bpe *b = open_with(post);
    struct bpe_pair p;
    struct bpe_frame f;
    struct qwick_err e;
    assert_int_equal(bpe_get_frame(b, &f, NULL), 0);
    assert_int_equal(bpe_get_pair(b, &p, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_null(p.before);
    if (!strstr(e.msg, why))
        fail_msg("%s", e.msg);
    bpe_close(b);
}

static void other_pairs_are_refused(void **state)
{
    no_pair("null", "no frame for pairs");
    no_pair(BYTE_LEVEL, "no frame for pairs");
    no_pair(TEMPLATE("[" TEXT "]", EOS), "pair: has no place for the texts");
    no_pair(PAIR(PLACE("A", "0")), "no place for the texts");
    no_pair(PAIR(PLACE("B", "0") "," PLACE("A", "1")),
            "piece 0: texts that are not A and then B");
    no_pair(PAIR(PLACE("A", "0") "," PLACE("A", "1")), "piece 1: the text");
    no_pair(PAIR(PLACE("A", "0") "," PLACE("C", "1")), "not A or B");
    no_pair(PAIR(PLACE("A", "1") "," PLACE("B", "1")), "type_ids");
    no_pair(PAIR(PLACE("A", "0") "," PLACE("B", "2")), "type_ids");
    no_pair(PAIR(AT("c", "1") "," PLACE("A", "0") "," PLACE("B", "1")),
            "type_ids");
    no_pair(PAIR(PLACE("A", "0") "," PLACE("B", "1") "," AT("s", "0")),
            "type_ids");
    no_pair(PAIR(PLACE("A", "0") "," AT("s", "1") "," AT("s", "0") "," PLACE(
                "B", "1")),
            "type_ids");
    refused("{\"type\":\"BertProcessing\",\"sep\":[\"s\",6136]}",
            "cls or sep: an id that the tokenizer does not have");
    refused("{\"type\":\"BertProcessing\",\"sep\":[\"s\",99999],\"cls\":"
            "[\"c\",6135]}",
            "cls or sep");
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
        cmocka_unit_test(pairs),
        cmocka_unit_test(pairs_keep_their_tokens),
        cmocka_unit_test(other_pairs_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
