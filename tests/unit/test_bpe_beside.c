/* Added tokens: those of other files than tokenizer.json, normalized ones, and
 * repeated ones. What `tokenizers` and transformers do is in their sources:
 * added_vocabulary.rs and tokenization_utils_base.py. */
#include "test.h"

#include "bpe_small.h"
#include "file/json.h"

/* The small tokenizer has the ids 0 to 255, 300 to 305, and the added tokens
 * <x> (1000) and <x>y (1001). */

#define TOKEN(id, content, more) \
    "\"" id "\":{\"content\":\"" content "\"" more "}"
#define DECODER(tokens) "{\"added_tokens_decoder\":{" tokens "}}"

static struct json_doc *read_json(const char *text,
                                  struct bpe_beside_file *file)
{
    struct json_doc *doc = NULL;
    struct qwick_err e;
    if (!text)
        return NULL;
    assert_ok(
        json_parse(&doc, file->path, text, strlen(text), QWICK_ERR_MODEL, &e),
        &e);
    file->root = json_root(doc);
    return doc;
}

/* Open the small tokenizer, with `from` replaced by `to`, and other files. */
static int open_beside(struct bpe **out, const char *from, const char *to,
                       const char *config, const char *map, const char *added,
                       struct qwick_err *e)
{
    struct bpe_beside beside = {
        {"config.json", NULL}, {"map.json", NULL}, {"added.json", NULL}};
    struct json_doc *docs[] = {read_json(config, &beside.config),
                               read_json(map, &beside.map),
                               read_json(added, &beside.added)};
    struct buf b = {0};
    put_changed(&b, from, to);
    int rc = bpe_open_beside(out, "test.json", b.data, b.len, &beside, e);
    buf_free(&b);
    for (size_t i = 0; i < 3; i++)
        json_free(docs[i]);
    return rc;
}

static struct bpe *opened(const char *config, const char *map,
                          const char *added)
{
    struct bpe *b;
    struct qwick_err e;
    assert_ok(open_beside(&b, "he", "he", config, map, added, &e), &e);
    return b;
}

static void decoder_adds_tokens(void **state)
{
    /* not in the order of their ids; <x> is there already; "hellos" is a token
     * of the vocabulary, which no merge makes */
    struct bpe *b = opened(
        DECODER(TOKEN("1003", "<b>", ",\"special\":true") "," TOKEN(
            "1002", "<a>",
            "") "," TOKEN("304", "hellos",
                          ",\"special\":true") "," TOKEN("1000", "<x>",
                                                         ",\"special\":true")),
        NULL, NULL);
    EXPECT(b, "<a>hello<b>hellos<x>", 1002, 303, 1003, 304, 1000);
    assert_int_equal(bpe_size(b), 1004);
    assert_int_equal(bpe_n_beside(b), 3);
    assert_true(bpe_is_added(b, 1002) && !bpe_is_special(b, 1002));
    assert_true(bpe_is_special(b, 1003) && bpe_is_special(b, 304));
    size_t n;
    const char *text = bpe_token(b, 1003, &n);
    assert_true(n == 3 && memcmp(text, "<b>", 3) == 0);
    bpe_close(b);
    /* a flag can be added to a token of tokenizer.json, but not taken away */
    b = opened(DECODER(TOKEN("1000", "<x>", ",\"special\":false")), NULL, NULL);
    assert_true(bpe_is_special(b, 1000));
    bpe_close(b);
}

/* Tokens that have names are special, and may be without an id. */
static void names_add_tokens(void **state)
{
    struct bpe *b =
        opened("{\"eos_token\":\"<x>\",\"pad_token\":{\"content\":\"<p>\"},"
               "\"unk_token\":null,\"bos_token\":\"\",\"mask_token\":\"hello\","
               "\"sep_token\":\"<p>\",\"other_token\":\"<o>\","
               "\"additional_special_tokens\":[\"<q>\",\"<x>\",\"<p>\"],"
               "\"extra_special_tokens\":{\"image_token\":\"<r>\"}}",
               NULL, NULL);
    EXPECT(b, "<p><q><r>hello<x>", 1002, 1003, 1004, 303, 1000);
    assert_int_equal(bpe_added_id(b, "<o>"), -1);
    for (int32_t id = 1002; id < 1005; id++)
        assert_true(bpe_is_special(b, id));
    assert_true(bpe_is_special(b, 303));
    bpe_close(b);
    /* the names of the other file win, the lists of both count */
    b = opened("{\"pad_token\":\"<p>\","
               "\"additional_special_tokens\":[\"<q>\"]}",
               "{\"pad_token\":\"<m>\","
               "\"additional_special_tokens\":[\"<n>\"]}",
               "{\"<z>\":1003,\"<m>\":1002}");
    EXPECT(b, "<m><z><n><q>", 1002, 1003, 1004, 1005);
    assert_int_equal(bpe_added_id(b, "<p>"), -1);
    assert_true(bpe_is_special(b, 1002) && !bpe_is_special(b, 1003));
    bpe_close(b);
}

static void conflicts_are_refused(void **state)
{
    static const char *const t[][2] = {
        {DECODER(TOKEN("1000", "<a>", "")),
         "config.json: added_tokens_decoder: id 1000 is shared by \"<x>\" and "
         "\"<a>\""},
        {DECODER(TOKEN("300", "<a>", "")), "id 300 is shared by \"he\" and"},
        {DECODER(TOKEN("1002", "<x>", "")),
         "\"<x>\" has id 1002, but 1000 in added_tokens"},
        {DECODER(TOKEN("1002", "hello", "")),
         "\"hello\" has id 1002, but 303 in model.vocab"},
        {DECODER(TOKEN("1003", "<a>", "")),
         "\"<a>\" has id 1003, but 1002 is the next free id after test.json"},
        {DECODER(TOKEN("1002", "<a>", "") "," TOKEN("1003", "<a>", "")),
         "\"<a>\" has id 1003, but 1002 in"},
        {DECODER(TOKEN("1002", "<a>", "") "," TOKEN("01002", "<b>", "")),
         "id 1002 is shared by"},
        {DECODER(TOKEN("-1", "<a>", "")), "id \"-1\" is not an integer from"},
        {DECODER(TOKEN("", "<a>", "")), "id \"\" is not an integer from"},
        {DECODER(TOKEN("99999999999", "<a>", "")),
         "id \"99999999999\" is not an integer from 0 to 2097151"},
        {DECODER(TOKEN("1002", "", "")),
         "item 0: content is not a string or empty"},
        {DECODER("\"1002\":7"), "item 0: content is not a string or empty"},
        {DECODER(TOKEN("1002", "<a>", ",\"single_word\":true")),
         "item 0, \"<a>\": single_word is true (supported: false)"},
        {DECODER(TOKEN("1002", "<a>", ",\"special\":1")),
         "item 0, \"<a>\": special is not a boolean"},
        {"{\"added_tokens_decoder\":[]}", "must be an object, is an array"},
        {"{\"added_tokens_decoder\":null}", "must be an object, is null"},
        {"{\"eos_token\":7}",
         "config.json: eos_token: must be a string or an object, is a number"},
        {"{\"eos_token\":{\"content\":\"<x>\",\"rstrip\":1}}",
         "eos_token: item 0, \"<x>\": rstrip is not a boolean"},
    };
    struct bpe *b;
    struct qwick_err e;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(open_beside(&b, "he", "he", t[i][0], NULL, NULL, &e),
                         -1);
        if (!strstr(e.msg, t[i][1]))
            fail_msg("%s gives \"%s\"", t[i][0], e.msg);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
    }
    static const char *const added[][2] = {
        {"{\"<a>\":-1}", "added.json: \"<a>\": must be a text with an id"},
        {"{\"<a>\":\"1002\"}", "added.json: \"<a>\": must be a text with"},
        {"{\"\":1002}", "added.json: \"\": must be a text with an id from 0"},
        {"{\"<a>\":1000}", "added.json: added tokens: id 1000 is shared by"},
        {"{\"<x>\":7}", "\"<x>\" has id 7, but 1000 in added_tokens"},
    };
    for (size_t i = 0; i < sizeof added / sizeof *added; i++) {
        assert_int_equal(
            open_beside(&b, "he", "he", NULL, NULL, added[i][0], &e), -1);
        if (!strstr(e.msg, added[i][1]))
            fail_msg("%s gives \"%s\"", added[i][0], e.msg);
    }
    /* no id is left */
    assert_int_equal(open_beside(&b, "\"id\":1001", "\"id\":2097151",
                                 "{\"pad_token\":\"<a>\"}", NULL, NULL, &e),
                     -1);
    assert_non_null(strstr(e.msg, "would have id 2097152, but 2097151 is"));
}

/* Normalized tokens are searched after the others, in the normal form. */
static void normalized_tokens(void **state)
{
    struct bpe *b =
        opened(DECODER(TOKEN("1002", "yhe", "") "," TOKEN(
                   "1003", "\\u00e9l",
                   "") "," TOKEN("1004", "<x", "") "," TOKEN("122", "z", "")),
               NULL, NULL);
    EXPECT(b, "yhello", 1002, 302);
    /* <x>y is found first, and takes the y */
    EXPECT(b, "<x>yhe", 1001, 300);
    EXPECT(b, "<x<x>", 1004, 1000);
    EXPECT(b, "\xC3\xA9l", 1003);
    EXPECT(b, "e\xCC\x81l", 1003);
    /* the last character composes with what follows */
    EXPECT(b, "z\xCC\x8C", 0xC5, 0xBE);
    EXPECT(b, "zz", 122, 122);
    bpe_close(b);
    /* without a normalizer the text stays as it is */
    struct qwick_err e;
    assert_ok(open_beside(&b, "{\"type\":\"NFC\"}", "null",
                          DECODER(TOKEN("122", "z", "")), NULL, NULL, &e),
              &e);
    EXPECT(b, "z\xCC\x8C", 122, 0xCC, 0x8C);
    bpe_close(b);
    /* two tokens with one normal form */
    assert_int_equal(
        open_beside(&b, "he", "he",
                    DECODER(TOKEN("1002", "\\u00e9-",
                                  "") "," TOKEN("1003", "e\\u0301-", "")),
                    NULL, NULL, &e),
        -1);
    if (!strstr(e.msg, "is the normal form of two ids, 100"))
        fail_msg("%s", e.msg);
}

/* Added tokens count only inside spans, normalized ones as well. */
static void spans_limit_normalized_tokens(void **state)
{
    struct bpe *b = opened(
        DECODER(TOKEN("1002", "<t>", "") "," TOKEN("1003", "\\u017e", "")),
        NULL, NULL);
    static const char text[] = "<t>a<t>z\xCC\x8C<x><t>z\xCC\x8C";
    const struct bpe_span spans[] = {{0, 3}, {8, 13}, {13, 16}, {16, 19}};
    static const int32_t want[] = {1002, 'a',  '<',  't',  '>',
                                   0xC5, 0xBE, 1000, 1002, 1003};
    int32_t *ids = NULL;
    size_t n = 0;
    struct qwick_err e;
    assert_ok(bpe_encode_spans(b, text, sizeof text - 1, spans, 4, false, 0,
                               &ids, &n, &e),
              &e);
    same_ids((struct ids){ids, n}, (struct ids){(int32_t *)want, 10});
    free(ids);
    bpe_close(b);
}

static void repeated_tokens(void **state)
{
    struct bpe *b = open_changed(ADDED(1000, "<x>"),
                                 ADDED(1000, "<x>") "," ADDED(1000, "<x>"));
    EXPECT(b, "<x>he", 1000, 300);
    bpe_close(b);
    b = open_changed(ADDED(1000, "<x>"),
                     ADDED(303, "hello") "," ADDED(303, "hello"));
    EXPECT(b, "hello", 303);
    bpe_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoder_adds_tokens),
        cmocka_unit_test(names_add_tokens),
        cmocka_unit_test(conflicts_are_refused),
        cmocka_unit_test(normalized_tokens),
        cmocka_unit_test(spans_limit_normalized_tokens),
        cmocka_unit_test(repeated_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
