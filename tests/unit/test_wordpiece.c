/* WordPiece: goldens of all forms that files have, hostile texts, the arrays of
 * a GGUF file, vocab.txt, pairs of texts, and files that are refused. */
#include "test.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "bpe_small.h"
#include "file/json.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"

#define FOLDER "tests/golden/wordpiece/"

static struct buf original; /* tokenizer.json */
static struct map original_map, variants_map;
static struct json_doc *file, *variants;

static void decode_all(struct bpe *b, struct ids r, struct buf *out)
{
    struct bpe_decoder d = {0};
    out->len = 0;
    for (size_t i = 0; i < r.n; i++)
        assert_int_equal(bpe_decode(b, &d, r.v[i], out), 0);
    assert_int_equal(bpe_decode_end(&d, out), 0);
    bpe_decoder_free(&d);
}

static void same(struct bpe *a, struct bpe *b, const char *text, size_t n)
{
    struct ids x = encode(a, text, n, true), y = encode(b, text, n, true);
    same_ids(x, y);
    free(x.v);
    free(y.v);
}

/* ---- goldens ------------------------------------------------------------- */

static size_t check_lines(struct bpe *b, const char *name)
{
    struct jsonl in = jsonl_open(FOLDER "ids.jsonl");
    struct buf out = {0};
    size_t n = 0;
    while (jsonl_next(&in)) {
        const struct json_value *text = json_get(in.root, "text");
        const struct json_value *decoded = json_get(in.root, "decoded");
        if (!json_equals(json_get(in.root, "variant"), name))
            continue;
        struct ids want = ids_of(json_get(in.root, "ids"));
        struct ids have = encode(b, text->str, text->len, true);
        if (have.n != want.n ||
            (want.n && memcmp(have.v, want.v, want.n * sizeof *want.v) != 0))
            fail_msg("%s: \"%s\" gives other ids", name, text->str);
        decode_all(b, want, &out);
        if (out.len != decoded->len ||
            (out.len && memcmp(out.data, decoded->str, out.len) != 0))
            fail_msg("%s: \"%s\" decodes to \"%s\"", name, text->str,
                     buf_text(&out));
        free(have.v);
        free(want.v);
        n++;
    }
    jsonl_close(&in);
    buf_free(&out);
    return n;
}

static void goldens_are_equal(void **state)
{
    const struct json_value *all = json_root(variants);
    assert_true(all->len >= 11);
    for (size_t i = 0; i < all->len; i++) {
        const char *name = json_get(&all->items[i], "name")->str;
        struct bpe *b =
            open_replaced(&original, json_get(&all->items[i], "replace"));
        assert_true(check_lines(b, name) >= 90);
        bpe_close(b);
    }
}

/* ---- texts --------------------------------------------------------------- */

/* Each byte that is not UTF-8 counts as U+FFFD, which is dropped. */
static void invalid_text(void **state)
{
    static const char bad[] = "th\xFF"
                              "e\xC3 \xE2\x96the\xF0\x90",
                      good[] = "the the";
    struct bpe *b = open_text(original.data, original.len);
    struct ids x = encode(b, bad, sizeof bad - 1, true);
    struct ids y = encode(b, good, sizeof good - 1, true);
    same_ids(x, y);
    free(x.v);
    free(y.v);
    /* embedded zeros are dropped, too */
    same(b, b, "\0\0", 2);
    x = encode(b, "t\0he", 4, true);
    y = encode(b, "the", 3, true);
    same_ids(x, y);
    free(x.v);
    free(y.v);
    bpe_close(b);
}

/* Text that is not searched for added tokens has none. */
static void plain_text(void **state)
{
    static const char text[] =
        "[CLS] caf\xC3\xA9 [SEP] \xE4\xB8\xAD\xE5\x9B\xBD";
    struct bpe *b = open_text(original.data, original.len);
    struct ids r = encode(b, text, sizeof text - 1, false);
    for (size_t i = 0; i < r.n; i++)
        assert_true(r.v[i] == 1 || !bpe_is_added(b, r.v[i]));
    free(r.v);
    bpe_close(b);
}

/* The cache of words changes nothing, and the encoder stops early. */
static void again_and_enough(void **state)
{
    static const char text[] = "the command the commands xyzzy the";
    struct bpe *b = open_text(original.data, original.len);
    struct bpe_span all = {0, sizeof text - 1};
    struct ids first = encode(b, text, sizeof text - 1, true), few = {0};
    for (int i = 0; i < 3; i++)
        same(b, b, text, sizeof text - 1);
    struct ids again = encode(b, text, sizeof text - 1, true);
    same_ids(first, again);
    assert_int_equal(bpe_encode_spans(b, text, sizeof text - 1, &all, 1, false,
                                      2, &few.v, &few.n, NULL),
                     0);
    assert_true(few.n > 2 && few.n < first.n);
    assert_memory_equal(few.v, first.v, few.n * sizeof *few.v);
    free(first.v);
    free(again.v);
    free(few.v);
    bpe_close(b);
}

static void edges(void **state)
{
    static const char json[] =
        "{\"added_tokens\":[{\"id\":5,\"content\":\"zz\",\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":"
        "false}],\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":"
        "true,"
        "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":"
        "true},"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{"
        "\"type\":"
        "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true},\"model\":{\"type\":"
        "\"WordPiece\",\"unk_token\":\"?\",\"continuing_subword_prefix\":\"##"
        "\","
        "\"max_input_chars_per_word\":100,\"vocab\":{\"?\":0,\"defgh\":1,\"##"
        "b\":2,"
        "\"~\":3,\"e\":4,\"zz\":5}}}";
    struct bpe *b = open_text(json, sizeof json - 1);
    struct buf text = {0};
    /* the longest token, with more after it */
    EXPECT(b, "defgh defghb defghx", 1, 1, 2, 0);
    EXPECT(b, "e~e", 4, 3, 4);
    EXPECT(b, "e\xE9\xBF\xBF" "e e\xEA\x80\x80" "e", 4, 0, 4, 0); /* U+9FFF */
    /* a token inside a word that begins a text keeps its prefix */
    decode_all(b, (struct ids){(int32_t[]){2, 4, 2}, 3}, &text);
    assert_int_equal(text.len, 6);
    assert_memory_equal(text.data, "##b eb", 6);
    /* a text is normalised in parts of 1 MiB, which do not cut a character */
    text.len = 0;
    while (text.len < (1 << 20) - 1)
        assert_int_equal(buf_putc(&text, ' '), 0);
    assert_int_equal(buf_puts(&text, "\xC3\xA9 e") || buf_putc(&text, 0), 0);
    EXPECT(b, text.data, 4, 4);
    /* without rows for the last token, its text has none */
    EXPECT(b, "zz", 5);
    bpe_close(b);
    b = open_text(json, sizeof json - 1);
    assert_int_equal(bpe_drop_from(b, 5), 0);
    EXPECT(b, "zz", 0);
    buf_free(&text);
    bpe_close(b);
}

static double seconds_of(struct bpe *b, const char *text, size_t n)
{
    clock_t start = clock();
    struct ids r = encode(b, text, n, true);
    free(r.v);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* A text of 1 MiB takes about 4 times as long as one of 256 KiB. */
static void long_texts(void **state)
{
    static const char *const parts[] = {"a",
                                        "the",
                                        "a ",
                                        "\xE4\xB8\x80",
                                        "\xEA\xB0\x81",
                                        "\xCC\x81",
                                        "\xFF",
                                        ".",
                                        "\xE3\x80\xAE\xF0\x9D\x85\xA5",
                                        "\xCC\x81\xCC\xA7"};
    struct bpe *b = open_text(original.data, original.len);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct buf text = {0};
        while (text.len < 1 << 20)
            assert_int_equal(buf_puts(&text, parts[i]), 0);
        double quarter = seconds_of(b, text.data, text.len / 4);
        double whole = seconds_of(b, text.data, text.len);
        if (whole > 0.2 && whole > 8 * quarter)
            fail_msg("%zu: %g s, and %g s for a quarter", i, whole, quarter);
        buf_free(&text);
    }
    bpe_close(b);
}

/* ---- other containers ---------------------------------------------------- */

/* The tokens of the original's vocabulary by id; *n: their number. */
static const struct json_value **tokens_by_id(size_t *n)
{
    const struct json_value *vocab =
        json_get(json_get(json_root(file), "model"), "vocab");
    const struct json_value **out = calloc(vocab->len, sizeof *out);
    *n = vocab->len;
    for (size_t i = 0; i < vocab->len; i++) {
        int64_t id;
        assert_int_equal(
            json_int(&vocab->items[i], 0, (int64_t)vocab->len - 1, &id), 0);
        out[id] = &vocab->keys[i];
    }
    return out;
}

static void put_string(struct buf *out, const char *p, size_t n)
{
    uint64_t len = htole64(n);
    assert_int_equal(buf_append(out, &len, 8) || buf_append(out, p, n), 0);
}

/* The arrays of a GGUF file with the tokens of the original's vocabulary. kinds
 * has room for them. */
static struct bpe_parts parts_of(const struct bpe_wordpiece_parts *w,
                                 struct buf *strings, unsigned char *kinds)
{
    size_t n;
    const struct json_value **tokens = tokens_by_id(&n);
    for (size_t i = 0; i < n; i++) {
        const struct json_value *k = tokens[i];
        struct buf token = {0};
        bool inside = k->len > 2 && memcmp(k->str, "##", 2) == 0;
        kinds[i] = i < 5 ? BPE_KIND_CONTROL : BPE_KIND_NORMAL;
        if (!inside && i >= 5)
            assert_int_equal(buf_puts(&token, "\xE2\x96\x81"), 0);
        assert_int_equal(buf_puts(&token, inside ? k->str + 2 : k->str), 0);
        put_string(strings, token.data, token.len);
        buf_free(&token);
    }
    free(tokens);
    return (struct bpe_parts){
        .name = "m.gguf",
        .tokens_name = "tokens",
        .tokens = {(const unsigned char *)strings->data, n, strings->len},
        .kinds = kinds,
        .wordpiece = w,
        .before = 2,
        .after = 3,
        .n_between = 1,
        .pair_types = true};
}

static void check_pair(struct bpe *b)
{
    struct bpe_frame f;
    struct bpe_pair p;
    struct qwick_err e;
    assert_ok(bpe_get_frame(b, &f, &e) || bpe_get_pair(b, &p, &e), &e);
    assert_int_equal(f.n_before, 1);
    assert_int_equal(f.n_after, 1);
    assert_int_equal(f.before[0], 2);
    assert_int_equal(f.after[0], 3);
    assert_int_equal(p.n_before, 1);
    assert_int_equal(p.n_between, 1);
    assert_int_equal(p.n_after, 1);
    assert_int_equal(p.before[0], 2);
    assert_int_equal(p.between[0], 3);
    assert_int_equal(p.after[0], 3);
    assert_int_equal(p.n_between_type0, 1);
    assert_true(p.types);
}

/* Both have the original's ids, except for its three tokens that no other
 * container has. */
static void check_lines_of(struct bpe *b)
{
    struct bpe *want = open_text(original.data, original.len);
    struct jsonl in = jsonl_open(FOLDER "ids.jsonl");
    while (jsonl_next(&in)) {
        const struct json_value *ids = json_get(in.root, "ids");
        const struct json_value *text = json_get(in.root, "text");
        bool other = !json_equals(json_get(in.root, "variant"), "uncased");
        for (size_t i = 0; i < ids->len; i++) {
            int64_t id;
            other = other || json_int(&ids->items[i], 0, 904, &id);
        }
        if (!other)
            same(want, b, text->str, text->len);
    }
    jsonl_close(&in);
    bpe_close(want);
}

static void arrays(void **state)
{
    struct bpe_wordpiece_parts w = {.unk = 1};
    struct buf strings = {0};
    unsigned char kinds[1000];
    struct bpe_parts parts = parts_of(&w, &strings, kinds);
    struct bpe *b;
    struct qwick_err e;
    assert_ok(bpe_open_parts(&b, &parts, &e), &e);
    check_lines_of(b);
    check_pair(b);
    assert_non_null(bpe_export_lacks(b));
    bpe_close(b);
    parts.before = -1;
    assert_ok(bpe_open_parts(&b, &parts, &e), &e);
    struct bpe_pair p;
    assert_int_equal(bpe_get_pair(b, &p, NULL), -1);
    bpe_close(b);
    kinds[1] = BPE_KIND_UNUSED;
    refuses_parts(&parts, "unknown");
    kinds[1] = BPE_KIND_CONTROL;
    w.unk = 5000;
    refuses_parts(&parts, "unknown");
    buf_free(&strings);
}

/* U+2581 alone is that character inside a word, as converters write ##U+2581,
 * and two of them begin a word. */
static void array_of_marks(void **state)
{
    static const char mark[] = "\xE2\x96\x81", twice[] = "\xE2\x96\x81"
                                                        "\xE2\x96\x81";
    struct bpe_wordpiece_parts w = {.unk = 1};
    struct buf strings = {0};
    unsigned char kinds[1000];
    struct bpe_parts parts = parts_of(&w, &strings, kinds);
    int32_t n = (int32_t)parts.tokens.n;
    struct bpe *b;
    struct qwick_err e;
    put_string(&strings, mark, 3);
    put_string(&strings, twice, 6);
    kinds[n] = kinds[n + 1] = BPE_KIND_NORMAL;
    parts.tokens = (struct bpe_strings){(const unsigned char *)strings.data,
                                        (size_t)n + 2, strings.len};
    assert_ok(bpe_open_parts(&b, &parts, &e), &e);
    EXPECT(b, mark, n + 1);
    EXPECT(b, twice, n + 1, n);
    bpe_close(b);
    buf_free(&strings);
}

static void vocab_txt(void **state)
{
    static const char classes[] =
        "{\"tokenizer_class\":\"BertTokenizer\",\"do_lower_case\":true,"
        "\"strip_accents\":null,\"tokenize_chinese_chars\":true}";
    struct buf text = {0};
    struct bpe *b;
    struct qwick_err e;
    struct json_doc *config;
    size_t n;
    const struct json_value **tokens = tokens_by_id(&n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_append(&text, tokens[i]->str, tokens[i]->len) ||
                             buf_puts(&text, i % 2 ? "\n" : "\r\n"),
                         0);
    free(tokens);
    assert_ok(json_parse(&config, "config", classes, sizeof classes - 1,
                         QWICK_ERR_MODEL, &e),
              &e);
    struct bpe_beside beside = {.config = {"config", json_root(config)}};
    assert_ok(bpe_open_vocab(&b, "vocab.txt", text.data, text.len, &beside, &e),
              &e);
    check_lines_of(b);
    check_pair(b);
    bpe_close(b);
    json_free(config);

    static const char *const bad[][2] = {
        {"{\"tokenizer_class\":\"PhobertTokenizer\"}", "PhobertTokenizer"},
        {"{\"do_basic_tokenize\":false}", "do_basic_tokenize"},
        {"{\"cls_token\":\"<s>\"}", "has no line \"<s>\" (cls_token)"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_ok(json_parse(&config, "config", bad[i][0], strlen(bad[i][0]),
                             QWICK_ERR_MODEL, &e),
                  &e);
        beside.config.root = json_root(config);
        assert_int_equal(
            bpe_open_vocab(&b, "vocab.txt", text.data, text.len, &beside, &e),
            -1);
        assert_null(b);
        if (!strstr(e.msg, bad[i][1]))
            fail_msg("%s", e.msg);
        json_free(config);
    }
    beside.config.root = NULL;
    assert_int_equal(bpe_open_vocab(&b, "vocab.txt", "", 0, &beside, &e), -1);
    /* without other files texts are in lower case */
    assert_ok(bpe_open_vocab(&b, "vocab.txt", text.data, text.len, &beside, &e),
              &e);
    check_lines_of(b);
    bpe_close(b);
    /* special_tokens_map.json wins */
    static const char map[] = "{\"cls_token\":{\"content\":\"[SEP]\"}}",
                      cls[] = "{\"cls_token\":\"[CLS]\"}";
    struct json_doc *other;
    struct bpe_frame f;
    assert_ok(
        json_parse(&config, "config", cls, sizeof cls - 1, QWICK_ERR_MODEL,
                   &e) ||
            json_parse(&other, "map", map, sizeof map - 1, QWICK_ERR_MODEL, &e),
        &e);
    beside.config = (struct bpe_beside_file){"config", json_root(config)};
    beside.map = (struct bpe_beside_file){"map", json_root(other)};
    assert_ok(
        bpe_open_vocab(&b, "vocab.txt", text.data, text.len, &beside, &e) ||
            bpe_get_frame(b, &f, &e),
        &e);
    assert_int_equal(f.before[0], 3);
    bpe_close(b);
    json_free(config);
    json_free(other);
    buf_free(&text);
}

/* ---- files --------------------------------------------------------------- */

static void the_frame(void **state)
{
    struct bpe *b = open_text(original.data, original.len);
    check_pair(b);
    bpe_close(b);
}

static void refused(const char *from, const char *to, const char *why)
{
    const char *at = strstr(original.data, from);
    struct buf text = {0};
    struct bpe *b;
    struct qwick_err e;
    assert_non_null(at);
    assert_int_equal(
        buf_append(&text, original.data, (size_t)(at - original.data)) ||
            buf_puts(&text, to) || buf_puts(&text, at + strlen(from)),
        0);
    assert_int_equal(bpe_open(&b, "test.json", text.data, text.len, &e), -1);
    assert_null(b);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (!strstr(e.msg, why))
        fail_msg("%s (wanted: %s)", e.msg, why);
    buf_free(&text);
}

static void other_files_are_refused(void **state)
{
    refused("\"clean_text\":true", "\"clean_text\":1",
            "BertNormalizer.clean_text: 1 is not supported");
    refused("\"lowercase\":true", "\"x\":true", "lowercase: missing");
    refused("\"strip_accents\":null", "\"strip_accents\":0", "strip_accents");
    refused("\"type\":\"BertNormalizer\"", "\"type\":\"Nmt\"", "normalizer: ");
    refused("{\"type\":\"BertPreTokenizer\"}", "{\"type\":\"Digits\"}",
            "pre_tokenizer: ");
    refused("{\"type\":\"BertPreTokenizer\"}",
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
            "\"Whitespace\"},{\"type\":\"Punctuation\"}]}",
            "pre_tokenizer: ");
    refused("{\"type\":\"BertPreTokenizer\"}",
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
            "\"WhitespaceSplit\"},{\"type\":\"Punctuation\",\"behavior\":"
            "\"Removed\"}]}",
            "pre_tokenizer: ");
    refused("{\"type\":\"BertPreTokenizer\"}", "null", "pre_tokenizer: ");
    refused("\"decoder\":{\"type\":\"WordPiece\"",
            "\"decoder\":{\"type\":\"CTC\"", "decoder: ");
    refused("\"prefix\":\"##\"", "\"prefix\":7", "decoder: WordPiece.prefix");
    refused("\"cleanup\":true", "\"cleanup\":null", "WordPiece.cleanup");
    refused("\"unk_token\":\"[UNK]\"", "\"unk_token\":null", "unk_token");
    refused("\"unk_token\":\"[UNK]\"", "\"unk_token\":\"[X]\"",
            "model.unk_token: \"[X]\" is not in the vocabulary");
    refused("\"continuing_subword_prefix\":\"##\"",
            "\"continuing_subword_prefix\":\"################################"
            "################################\"",
            "63 bytes");
    refused("\"max_input_chars_per_word\":100",
            "\"max_input_chars_per_word\":1001", "1 to 1000");
    refused("\"max_input_chars_per_word\":100",
            "\"max_input_chars_per_word\":0", "1 to 1000");
    refused("\"max_input_chars_per_word\":100",
            "\"max_input_chars_per_word\":100,\"y\":1", "unknown field \"y\"");
    refused("\"vocab\":{", "\"vocab\":[],\"v\":{", "model.vocab");
    refused("\"type\":\"WordPiece\",\"unk", "\"type\":\"WordLevel\",\"unk",
            "supported: BPE, WordPiece");
    refused("\"content\":\"Caf\xC3\xA9\"", "\"content\":\"\xCC\x81\"",
            "is empty");
}

/* Files with a change anywhere open or are refused, and what opens works. */
static void changed_files(void **state)
{
    char *text = malloc(original.len + 1);
    size_t n_open = 0;
    for (size_t round = 0; round < 3000; round++) {
        struct bpe *b;
        struct qwick_err e;
        size_t n = round % 3 ? original.len : draw((uint32_t)original.len);
        memcpy(text, original.data, n);
        for (size_t i = 0; i <= round % 4 && n; i++)
            text[draw((uint32_t)n)] = "\"{}[]:,0a\xFF"[draw(10)];
        if (bpe_open(&b, "test.json", text, n, &e))
            continue;
        n_open++;
        same(b, b, "Caf\xC3\xA9 the [CLS] \xE4\xB8\xAD", 18);
        bpe_close(b);
    }
    assert_true(n_open > 100);
    free(text);
}

static int setup(void **state)
{
    file = parse_file(FOLDER "tokenizer.json", &original_map);
    variants = parse_file(FOLDER "variants.json", &variants_map);
    return buf_append(&original, original_map.data, original_map.size);
}

static int teardown(void **state)
{
    buf_free(&original);
    json_free(file);
    json_free(variants);
    map_close(&original_map);
    map_close(&variants_map);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_equal),
        cmocka_unit_test(invalid_text),
        cmocka_unit_test(plain_text),
        cmocka_unit_test(again_and_enough),
        cmocka_unit_test(edges),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(arrays),
        cmocka_unit_test(array_of_marks),
        cmocka_unit_test(vocab_txt),
        cmocka_unit_test(the_frame),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(changed_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
