/* Reading tokenizer.json: held against the JSON tree of the whole file, in any
 * order and form, by one thread and by two; and files that must be refused. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "bpe_small.h"
#include "few_cpus.h"
#include "file/json.h"

/* ---- broken files ---- */

static void test_refused(void **state)
{
    static const char *const t[][3] = {
        /* from, to, part of the message */
        {"{\"version\"", "[{\"version\"", "test.json: offset"},
        {"\"type\":\"BPE\"", "\"type\":\"WordLevel\"",
         "model.type: \"WordLevel\" is not supported (supported: BPE, "
         "WordPiece, Unigram)"},
        {"\"type\":\"BPE\",", "", "model.type: missing"},
        {"\"dropout\":null", "\"dropout\":0.1", "model.dropout: 0.1"},
        {"\"unk_token\":null", "\"unk_token\":\"<unk>\"",
         "model.unk_token: \"<unk>\""},
        {"prefix\":\"\"", "prefix\":\"##\"",
         "model.continuing_subword_prefix: \"##\""},
        {"suffix\":null", "suffix\":\"</w>\"",
         "model.end_of_word_suffix: \"</w>\""},
        {"\"fuse_unk\":false", "\"fuse_unk\":true", "model.fuse_unk: true"},
        {"\"byte_fallback\":false", "\"byte_fallback\":true", "normalizer: {"},
        {"\"ignore_merges\":false", "\"ignore_merges\":1",
         "model.ignore_merges: 1"},
        {"\"dropout\":null", "\"magic\":7", "model: unknown field \"magic\""},
        {"\"vocab\":", "\"vocab\":[],\"v\":", "model.vocab: []"},
        {"\"merges\":", "\"merges\":{},\"m\":", "model.merges: {}"},
        {"\"merges\":", "\"m\":", "model.merges: missing"},
        {"\"model\":", "\"m\":", "model: missing"},
        {"\"model\":", "\"model\":3,\"m\":", "model: 3"},
        {"\"merges\":", "\"merges\":[],\"merges\":", "repeated key \"merges\""},
        {"\"merges\":", "\"vocab\":{},\"merges\":", "repeated key \"vocab\""},
        {"\"padding\":", "\"version\":\"2\",\"padding\":", "version"},

        {"\"he\":300", "\"he\":-1",
         "\"he\": id -1 is not an integer from 0 to"},
        {"\"he\":300", "\"he\":2147483648", "\"he\": id 2147483648 is no"},
        {"\"he\":300", "\"he\":18446744073709551916", "is not an integer"},
        {"\"he\":300", "\"he\":3e2", "id 3e2 is not an integer"},
        {"\"he\":300", "\"he\":300.0", "id 300.0 is not an integer"},
        {"\"he\":300", "\"he\":\"300\"", "\"he\": its id is a string"},
        {"\"he\":300", "\"he\":null", "\"he\": its id is null"},
        {"\"he\":300", "\"he\":true", "\"he\": its id is true"},
        {"\"he\":300", "\"he\":[300]", "\"he\": its id is an array"},
        {"\"he\":300", "\"he\":{}", "\"he\": its id is an object"},
        {"\"he\":300", "\"he\":301", "id 301 is shared by \"he\" and \"ll\""},
        {"\"he\":300", "\"he\":300,\"he\":299", "\"he\" has two ids, 299 and"},
        {"\"A\":65,", "", "no token for byte 0x41 (\"A\")"},
        {"\"\xC4\xA0\":32,", "", "no token for byte 0x20"},

        {"[\"ll\",\"o\"]", "[\"zz\",\"o\"]",
         "merge 2 (\"zz\" \"o\"): \"zz\" is not in the vocabulary"},
        {"[\"ll\",\"o\"]", "[\"ll\",\"zz\"]",
         "merge 2 (\"ll\" \"zz\"): \"zz\" is not in the vocabulary"},
        {"[\"ll\",\"o\"]", "[\"l\",\"o\"]",
         "merge 2 (\"l\" \"o\"): \"lo\" is not in the vocabulary"},
        {"[\"ll\",\"o\"]", "[\"ll\"]", "merge 2 has fewer than two parts"},
        {"[\"ll\",\"o\"]", "[\"l\",\"l\",\"o\"]",
         "merge 2 has more than two parts"},
        {"[\"ll\",\"o\"]", "[\"ll\",\"\"]", "merge 2 has an empty part"},
        {"[\"ll\",\"o\"]", "[\"ll\",1]", "merge 2 is a number"},
        {"[\"ll\",\"o\"]", "[\"ll\",[\"o\"]]", "merge 2 is an array"},
        {"[\"ll\",\"o\"]", "{}", "merge 2 is an object"},
        {"[\"ll\",\"o\"]", "null", "merge 2 is null"},
        {"[\"ll\",\"o\"]", "\"llo\"", "merge 2, \"llo\", is not two parts"},
        {"[\"ll\",\"o\"]", "\"l l o\"", "merge 2, \"l l o\", is not two parts"},
        {"[\"ll\",\"o\"]", "\"ll \"", "merge 2, \"ll \", is not two parts"},

        {"{\"type\":\"NFC\"}", "{\"type\":\"NFKC\"}",
         "normalizer: {\"type\": \"NFKC\"} is not supported"},
        {"{\"type\":\"NFC\"}", "\"NFC\"", "normalizer: \"NFC\""},
        {"{\"type\":\"NFC\"}",
         "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
         "{\"type\":\"NFD\"}]}",
         "normalizer: {\"type\": \"NFD\"} is not supported"},
        {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\"}",
         "normalizer: {\"type\": \"Sequence\"}"},
        {"\"pre_tokenizer\":", "\"pre_tokenizer\":null,\"p\":",
         "pre_tokenizer: null is not supported"},
        {"\"pre_tokenizer\":",
         "\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"p\":",
         "pre_tokenizer: {\"type\": \"Whitespace\"}"},
        {"{\"type\":\"Split\"", "{\"type\":\"Digits\"", "\"Digits\""},
        {"|\\\\p{N}|", "|\\\\p{N}{1,4}|", "\\\\p{N}{1,4}"},
        {"\"Regex\"", "\"String\"", "Split.pattern: {\"String\""},
        {"Isolated", "Contiguous", "Split.behavior: \"Contiguous\""},
        {"Isolated", "Removed", "Split.invert: false"},
        {"\"invert\":false", "\"invert\":true", "Split.invert: true"},
        {",\"invert\":false", "", "Split.invert: missing"},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true",
         "ByteLevel.add_prefix_space: true"},
        {"\"use_regex\":false", "\"use_regex\":true",
         "pre_tokenizer.pretokenizers: [{"},
        {",\"use_regex\":false", "", "pre_tokenizer.pretokenizers: [{"},
        {"\"pretokenizers\":[", "\"pretokenizers\":[],\"p\":[",
         "pre_tokenizer: {\"type\": \"Sequence\""},
        {"\"pretokenizers\":[", "\"pretokenizers\":[7,", "pre_tokenizer: 7"},
        {"\"pretokenizers\":[",
         "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Removed\","
         "\"invert\":true},",
         "Split.behavior: \"Removed\" is not supported (supported: Isolated)"},
        {"{\"type\":\"Split\"",
         "{\"type\":\"Digits\",\"individual_digits\":false},"
         "{\"type\":\"Split\"",
         "pre_tokenizer.pretokenizers: [{\"type\": \"Digits\""},
        {"\"pre_tokenizer\":",
         "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false,"
         "\"add_prefix_space\":false},\"p\":",
         "pre_tokenizer.pretokenizers: []"},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"Processing\"}",
         "post_processor: {\"type\": \"Processing\"}"},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[7]}",
         "post_processor: 7"},
        {"{\"type\":\"ByteLevel\"},", "{\"type\":\"WordPiece\"},",
         "decoder: {\"type\": \"WordPiece\"}"},
        {"\"decoder\":", "\"decoder\":null,\"d\":", "decoder: null"},

        {"\"added_tokens\":[", "\"added_tokens\":3,\"a\":[",
         "added_tokens: not an array"},
        {"\"added_tokens\":[", "\"added_tokens\":[3,",
         "item 0: content is not a string"},
        {"\"content\":\"<x>\"", "\"content\":\"\"", "item 0: content"},
        {"\"content\":\"<x>\"", "\"content\":\"<x>y\"",
         "\"<x>y\" has id 1001, but 1000 in added_tokens"},
        {"\"id\":1000", "\"id\":1001", "id 1001 is shared by"},
        {"\"id\":1000", "\"id\":300", "id 300 is shared by \"he\" and"},
        {"\"id\":1000", "\"id\":-4",
         "item 0, \"<x>\": id -4 is not an integer"},
        {"\"id\":1000", "\"id\":4294967297", "id 4294967297 is not an integer"},
        {"\"id\":1000,", "", "id missing is not an integer"},
        {ADDED(1000, "<x>"), ADDED(1000, "hello"),
         "\"hello\" has id 1000, but 303 in model.vocab"},
        {"\"single_word\":false", "\"single_word\":true",
         "item 0, \"<x>\": single_word is true (supported: false)"},
        {"\"lstrip\":false", "\"lstrip\":1", "lstrip is not a boolean"},
        {"\"rstrip\":false,", "", "rstrip is missing"},
        {"\"normalized\":false", "\"normalized\":1",
         "normalized is not a boolean"},
        {"\"normalized\":false,", "", "normalized is missing"},
        {"\"special\":true", "\"special\":1", "special is not a boolean"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf b = {0};
        struct qwick_err e = {0};
        struct bpe *out = (struct bpe *)&e;
        put_changed(&b, t[i][0], t[i][1]);
        if (bpe_open(&out, "test.json", b.data, b.len, &e) != -1)
            fail_msg("accepted: %s", t[i][1]);
        if (!strstr(e.msg, t[i][2]) || strncmp(e.msg, "test.json: ", 11))
            fail_msg("\"%s\" gives \"%s\"", t[i][1], e.msg);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        assert_null(out);
        assert_int_equal(bpe_open(&out, "test.json", b.data, b.len, NULL), -1);
        buf_free(&b);
    }
    struct bpe *out;
    assert_int_equal(bpe_open(&out, "x", "", 0, NULL), -1);
    assert_int_equal(bpe_open(&out, "x", "[]", 2, NULL), -1);
    assert_int_equal(bpe_open(&out, "x", "{}", 2, NULL), -1);
}

/* A file cut off anywhere gives an error, and does not crash. */
static void test_truncated(void **state)
{
    struct buf b = {0};
    put_small(&b);
    for (size_t n = 0; n < b.len; n += 1 + n % 7) {
        struct bpe *out;
        /* A copy of exactly this size, so that reading beyond it is detected.
         */
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, b.data, n);
        assert_int_equal(bpe_open(&out, "x", copy, n, NULL), -1);
        free(copy);
    }
    buf_free(&b);
}

static void test_long_token(void **state)
{
    static const size_t lengths[] = {128, 300, 65535, 65536, 8000000};
    for (size_t i = 0; i < 5; i++) {
        struct buf key = {0}, b = {0};
        assert_int_equal(buf_puts(&key, "\"dropout\":null,\"vocab\":{\""), 0);
        for (size_t k = 0; k < lengths[i]; k++)
            assert_int_equal(buf_putc(&key, 'q'), 0);
        assert_int_equal(buf_puts(&key, "\":306,"), 0);
        put_changed(&b, "\"vocab\":{", key.data + 15);
        struct bpe *out;
        struct qwick_err e;
        int rc = bpe_open(&out, "x", b.data, b.len, &e);
        if (lengths[i] > 65535) {
            assert_int_equal(rc, -1);
            assert_non_null(strstr(e.msg, "more than 65535"));
        } else {
            size_t n;
            assert_ok(rc, &e);
            assert_non_null(bpe_token(out, 306, &n));
            assert_int_equal(n, lengths[i]);
        }
        bpe_close(out);
        buf_free(&key);
        buf_free(&b);
    }
}

/* ---- reading, held against the tree of the whole file ---- */

static bool is_version(const struct json_value *v)
{
    return json_is(v, JSON_STRING) && v->len >= 8 &&
           memcmp(v->str, "#version", 8) == 0;
}

/* The parts of a merge, pair or line. */
static bool merge_parts(const struct json_value *v, struct json_value part[2])
{
    if (json_is(v, JSON_ARRAY)) {
        if (v->len != 2 || !json_is(&v->items[0], JSON_STRING) ||
            !json_is(&v->items[1], JSON_STRING))
            return false;
        part[0] = v->items[0];
        part[1] = v->items[1];
    } else {
        const char *gap =
            json_is(v, JSON_STRING) ? memchr(v->str, ' ', v->len) : NULL;
        if (!gap)
            return false;
        size_t n = (size_t)(gap - v->str);
        part[0] = (struct json_value){.str = v->str, .len = n};
        part[1] = (struct json_value){.str = gap + 1, .len = v->len - n - 1};
        if (memchr(gap + 1, ' ', part[1].len))
            return false;
    }
    return part[0].len > 0 && part[1].len > 0 &&
           part[0].len + part[1].len <= BPE_MAX_TOKEN;
}

/* Whether vocabulary and merges are valid. */
static bool is_sound(const struct json_value *vocab,
                     const struct json_value *merges)
{
    if (!json_is(vocab, JSON_OBJECT) || !json_is(merges, JSON_ARRAY))
        return false;
    char *used = calloc(BPE_MAX_ID + 1, 1);
    assert_non_null(used);
    bool sound = true;
    for (size_t i = 0; i < vocab->len; i++) {
        int64_t id;
        sound = sound && vocab->keys[i].len <= BPE_MAX_TOKEN &&
                json_int(&vocab->items[i], 0, BPE_MAX_ID, &id) == 0 &&
                !used[id] && strcmp(vocab->items[i].str, "-0") != 0;
        if (sound)
            used[id] = 1;
    }
    free(used);
    for (size_t i = 0; sound && i < merges->len; i++) {
        struct json_value part[2];
        if (is_version(&merges->items[i]))
            continue;
        sound = merge_parts(&merges->items[i], part);
        if (!sound)
            break;
        struct buf made = {0};
        assert_int_equal(buf_append(&made, part[0].str, part[0].len), 0);
        assert_int_equal(buf_append(&made, part[1].str, part[1].len), 0);
        sound = json_get_n(vocab, part[0].str, part[0].len) &&
                json_get_n(vocab, part[1].str, part[1].len) &&
                json_get_n(vocab, made.data, made.len);
        buf_free(&made);
    }
    return sound;
}

/* Check that the token's spelling is s[0..n). It is kept until the token is
 * first used. */
static void expect_spelling(const struct bpe *b, uint64_t id, const char *s,
                            size_t n)
{
    const struct bpe_tok *t = &b->tok[id];
    assert_true(id < b->size && (t->flags & BPE_MODEL));
    if (!(t->flags & BPE_SPELLED))
        return;
    assert_int_equal(t->len, n);
    assert_memory_equal(b->arena + t->off, s, n);
}

/* Check that the tokenizer has exactly the vocabulary and the merges of the
 * tree. */
static void expect_tree(const struct bpe *b, const struct json_value *model)
{
    const struct json_value *vocab = json_get(model, "vocab");
    const struct json_value *merges = json_get(model, "merges");
    size_t n = 0;
    for (size_t id = 0; id < b->size; id++)
        n += (b->tok[id].flags & BPE_MODEL) != 0;
    assert_int_equal(n, vocab->len);
    for (size_t i = 0; i < vocab->len; i++) {
        int64_t id;
        assert_int_equal(json_int(&vocab->items[i], 0, BPE_MAX_ID, &id), 0);
        expect_spelling(b, (uint64_t)id, vocab->keys[i].str,
                        vocab->keys[i].len);
    }
    n = 0;
    for (size_t i = 0; i < merges->len; i++) {
        struct json_value part[2];
        if (is_version(&merges->items[i]))
            continue;
        assert_true(merge_parts(&merges->items[i], part));
        uint64_t row = b->merges[n++], pair = row >> BPE_ID_BITS;
        expect_spelling(b, pair >> BPE_ID_BITS, part[0].str, part[0].len);
        expect_spelling(b, pair & BPE_MAX_ID, part[1].str, part[1].len);
        assert_int_equal(b->tok[row & BPE_MAX_ID].len,
                         part[0].len + part[1].len);
    }
    assert_int_equal(b->n_merges, n);
}

/* If the message names an offset, check that it is the parser's message. */
static void expect_message(const char *text, size_t n, const char *msg)
{
    struct json_doc *doc;
    struct qwick_err e;
    if (strncmp(msg, "x: offset", 9) != 0)
        return;
    assert_int_equal(json_parse(&doc, "x", text, n, QWICK_ERR_MODEL, &e), -1);
    /* The parser reports a repeated key when its object ends, after other
     * faults. */
    if (!strstr(msg, "repeated key") && !strstr(e.msg, "repeated key"))
        assert_string_equal(msg, e.msg);
}

/* Open the file. If that succeeds, check that it is JSON and that the tokenizer
 * agrees with it; if not, check that the reason is right. Returns the result of
 * bpe_open. */
static int open_checked(const char *text, size_t n)
{
    struct bpe *b;
    struct json_doc *doc;
    struct qwick_err e, unused;
    /* A copy of exactly this size, so that reading beyond it is detected. */
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    int rc = bpe_open(&b, "x", copy, n, &e);
    int rc_json = json_parse(&doc, "x", copy, n, QWICK_ERR_MODEL, &unused);
    const struct json_value *model =
        rc_json == 0 ? json_get(json_root(doc), "model") : NULL;
    if (rc == 0) {
        assert_int_equal(rc_json, 0);
        expect_tree(b, model);
    } else {
        expect_message(copy, n, e.msg);
    }
    if (rc < 0 && n < 1 << 20 &&
        is_sound(json_get(model, "vocab"), json_get(model, "merges"))) {
        static const char *const wrong[] = {
            "x: offset",       "x: not JSON", "x: model.merges: merge",
            "x: model: token", "id is",       "not an integer",
            "shared"};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
            if (strstr(e.msg, wrong[i]) && !strstr(e.msg, "added_tokens"))
                fail_msg("refused without a reason: %s", e.msg);
    }
    json_free(doc);
    bpe_close(b);
    free(copy);
    return rc;
}

/* With any byte changed, removed or doubled, a file is accepted or refused, and
 * nothing else happens. A tokenizer that opens can encode. */
static void test_mutated(void **state)
{
    struct buf small = {0};
    size_t n_open = 0;
    put_small(&small);
    for (int round = 0; round < 4000; round++) {
        char *copy = malloc(small.len + 1);
        assert_non_null(copy);
        size_t at = draw((uint32_t)small.len), n = small.len;
        /* Half of the changes are after the tokens of the 256 bytes, where they
         * have more effects. */
        if (round % 2)
            at = small.len - 1 - draw(200);
        memcpy(copy, small.data, n);
        switch (draw(3)) {
        case 0:
            copy[at] = "\"[]{},:0129-elh \\\xC4\xFF"[draw(20)];
            break;
        case 1:
            memmove(copy + at, copy + at + 1, --n - at);
            break;
        default:
            memmove(copy + at + 1, copy + at, n++ - at);
            break;
        }
        struct bpe *b;
        struct qwick_err e = {0};
        int rc = bpe_open(&b, "x", copy, n, &e);
        assert_int_equal(open_checked(copy, n), rc);
        if (rc == 0) {
            struct ids r = encode(b, "hello <x>\xE4\xB8\xAD", 12, true);
            assert_true(r.n > 0);
            free(r.v);
            bpe_close(b);
            n_open++;
        } else {
            assert_true(e.code == QWICK_ERR_MODEL && e.msg[0]);
        }
        free(copy);
    }
    assert_true(n_open > 50);
    buf_free(&small);
}

/* ---- large files, which two threads read ---- */

/* A fault at the very end of a large file, which two threads read. */
static void test_large_refused(void **state)
{
    use_cpus(true);
    size_t quote = qwen_text.len;
    while (quote > 0 && qwen_text.data[quote - 1] != '"')
        quote--;
    assert_true(quote > 10000000);
    quote--;
    struct bpe *b;
    struct qwick_err e;
    /* In the middle of the last merge. */
    assert_int_equal(bpe_open(&b, "x", qwen_text.data, quote, &e), -1);
    assert_non_null(strstr(e.msg, "x: offset"));
    struct buf t = {0};
    assert_int_equal(buf_append(&t, qwen_text.data, quote), 0);
    assert_int_equal(buf_puts(&t, "zzqqzz"), 0);
    assert_int_equal(
        buf_append(&t, qwen_text.data + quote, qwen_text.len - quote), 0);
    assert_int_equal(bpe_open(&b, "x", t.data, t.len, &e), -1);
    assert_non_null(strstr(e.msg, "x: model.merges: merge 151386 ("));
    assert_non_null(strstr(e.msg, "zzqqzz\" is not in the vocabulary"));
    buf_free(&t);
}

/* Offset of s in Qwen3's file. */
static size_t in_qwen(const char *s)
{
    const char *at = strstr(qwen_text.data, s);
    assert_non_null(at);
    return (size_t)(at - qwen_text.data);
}

static void put_part(struct buf *t, size_t from, size_t to)
{
    assert_int_equal(buf_append(t, qwen_text.data + from, to - from), 0);
}

/* Check that Qwen3's file with [from, to) replaced is refused for this
 * reason. */
static void refused(struct buf *t, size_t from, size_t to, const char *with,
                    const char *why)
{
    struct bpe *b;
    struct qwick_err e;
    t->len = 0;
    put_part(t, 0, from);
    assert_int_equal(buf_puts(t, with), 0);
    put_part(t, to, qwen_text.len);
    for (int two = 0; two < 2; two++) {
        use_cpus(two);
        assert_int_equal(bpe_open(&b, "x", t->data, t->len, &e), -1);
        if (!strstr(e.msg, why))
            fail_msg("%s: %s", why, e.msg);
    }
}

/* With the two large parts in any order, and with similar parts beside them,
 * one thread and two threads give the same tokenizer and the same message. */
static void test_large_order(void **state)
{
    size_t vocab = in_qwen("\"vocab\": {"), merges = in_qwen("\"merges\": [");
    size_t end = qwen_text.len;
    while (qwen_text.data[end - 1] != ']')
        end--;
    struct bpe *b;
    struct qwick_err e;
    struct buf t = {0};
    put_part(&t, 0, vocab);
    put_part(&t, merges, end);
    assert_int_equal(buf_puts(&t, ","), 0);
    put_part(&t, vocab, merges);
    while (t.data[t.len - 1] != ',')
        t.len--;
    t.len--;
    put_part(&t, end, qwen_text.len);
    use_cpus(true);
    assert_ok(bpe_open(&b, "x", t.data, t.len, &e), &e);
    static const char text[] = "user\nHello there,  \n\n it's 1234 merges";
    struct ids want = encode(qwen, text, sizeof text - 1, true);
    struct ids got = encode(b, text, sizeof text - 1, true);
    same_ids(want, got);
    free(want.v);
    free(got.v);
    bpe_close(b);

    /* a second array of merges; an array outside the model; a fault after the
     * merges; a fault in the vocabulary */
    refused(&t, end, end, ", \"merges\" : []",
            "x: model: repeated key \"merges\"");
    refused(&t, vocab, vocab, "\"extra\": {\"merges\": [[1]]},", "extra");
    refused(&t, end, end, ", \"unk_token\": \"\\ud800\"", "lone surrogate");
    size_t brace = merges;
    while (qwen_text.data[brace - 1] != '}')
        brace--;
    refused(&t, brace - 1, merges, ", \"merges\": 0}, ", "id 0 is shared by");
    buf_free(&t);
}

/* ---- forms of JSON ---- */

static int read_changed(const char *from, const char *to)
{
    struct buf b = {0};
    put_changed(&b, from, to);
    int rc = open_checked(b.data, b.len);
    buf_free(&b);
    return rc;
}

static void test_forms(void **state)
{
    static const char *const good[][2] = {
        {"\"he\":300,", "\"he\" : 300 ,\n\t "},
        {"\"vocab\":{", "\"vocab\" : {\r\n  "},
        {"305},", "305 }\n,"},
        {"\"hellos\":304", "\"hellos\":304,\"\\\"\\\\z\":309"},
        {"\"hellos\":304", "\"\":304"},
        {"\"hellos\":304", "\"hellos\":2097151"},
        {"[[\"h\",\"e\"],[\"l\",\"l\"],[\"ll\",\"o\"],[\"he\",\"llo\"]]",
         "[ [\n\"h\" ,\"e\"] , [\"l\", \"l\" ]\n]"},
        {"[[\"h\",\"e\"],[\"l\",\"l\"],[\"ll\",\"o\"],[\"he\",\"llo\"]]",
         "[\"h e\",\"l l\" , \"ll o\" ]"},
        {"[[\"h\",\"e\"],[\"l\",\"l\"]", "[[\"h\",\"e\"],[\"h\",\"e\"]"},
        {"\"version\"", "\"v\\n\":\"\\ud83d\\ude00\",\"version\""},
        {"\"e\"],", "\"e\"],\"l l\","},
        {"\"he\":300", "\"\\u0068e\":300"},
        {"\"hellos\":304", "\"hell\\/os\":304"},
        {"\"vocab\":{", "\"voc\\u0061b\":{"},
        {"[[\"h\",\"e\"]", "[[\"h\",\"\\u0065\"]"},
        {"[[\"h\",\"e\"],[\"l\",\"l\"],[\"ll\",\"o\"],[\"he\",\"llo\"]]",
         "[\"#version: 0.2\",\"h e\"]"},
        {"[[\"h\",\"e\"],[\"l\",\"l\"],[\"ll\",\"o\"],[\"he\",\"llo\"]]", "[]"},
        {"[[\"h\",\"e\"]", "[\"h e\""},
        {"{\"version\"", "{\"x\":{\"vocab\":{\"a\":1}},\"version\""},
        {"{\"version\"", "{\"x\":{\"merges\":[[\"h\",\"e\"]]},\"version\""},
        {"{\"version\"",
         "{\"x\":[{\"]\":\"}\\\"\"},[-1.5e3,null]],\"version\""},
        {"{\"version\"", "\xEF\xBB\xBF {\"version\""},
        {"\"model\"", "\"m\\u006Fdel\""},
        {"\"merges\"", "\"\\u006derg\\u0065s\""},
        {"\"hellos\":304", "\"\\b\\f\\n\\r\\t\\/\\u0000\\uD83D\\uDE00\":304"},
        {"\"hellos\":304", "\"\\u00e9\\u4E2D\":304"},
    };
    static const char *const wrong[][2] = {
        {"\"he\":300", "\"he\":0300"},
        {"\"he\":300", "\"he\":30.0"},
        {"\"he\":300", "\"he\":2097152"},
        {"\"he\":300", "\"he\":"},
        {"\"he\":300", "\"he\":300e0"},
        {"\"he\":300", "\"he\"300"},
        {"\"he\":300", "\"he\":301"},
        {"\"he\":300", "\"ll\":300"},
        {"\"he\":300,", "\"he\":300"},
        {"\"he\":300,", "\"he\":300,,"},
        {"305},", "305,},"},
        {"305},", "305],"},
        {"305},", "305}"},
        {"\"e\"],", "\"e\"]"},
        {"\"e\"],", "\"e\",],"},
        {"\"e\"],", "\"e\",\"l\"],"},
        {"\"e\"],", "\"\"],"},
        {"[\"h\",", "[\"\","},
        {"[\"h\",", "[\"h\""},
        {"[\"h\",", "[\"he\","},
        {"\"llo\"]]", "\"llo\"],]"},
        {"\"llo\"]]", "\"llo\"]}"},
        {"\"llo\"]]", "\"llo\"]"},
        {"\"llo\"]]", "\"llo\"]],"},
        {"\"llo\"]]", "\"llo\"]],\"vocab\":{}"},
        {"\"merges\":[", "\"merges\":[],\"merges\":["},
        {"[\"h\",\"e\"]", "[\"h\",\"h\"]"},
        {"\"hellos\":304,\"\xE4\xB8\xAD\":305},\"merges\":[",
         "\"\":304},\"merges\":[[\"\",\"h\"],"},
        {"{\"version\"", "{\"version\":01,\"version\""},
        {"\"hellos\":304", "\"\\ud83d\":304"},
        {"\"hellos\":304", "\"\\ud83d\\u0041\":304"},
        {"\"hellos\":304", "\"\\ude00\":304"},
        {"\"hellos\":304", "\"\\u12g4\":304"},
        {"\"hellos\":304", "\"\\x\":304"},
        {"\"hellos\":304", "\"hellos\":304 304"},
        {"\"hellos\":304", "\"hellos\":nul"},
        {"\"hellos\":304", "\"hellos\":-"},
        {"[\"h\",\"e\"]", "[\"h\" \"e\"]"},
        {"[\"h\",\"e\"]", "[\"h\",\"e\"]]"},
        {"[\"h\",\"e\"],", "[\"h\",\"e\"],,"},
        {"\"decoder\":{", "\"decoder\":{]"},
        {"\"decoder\":{", "\"decoder\":[{"},
        {"\"decoder\":{", "\"decoder\"{"},
    };
    /* a vocabulary and merges outside the model */
    struct buf small = {0}, moved = {0};
    put_small(&small);
    size_t own = (size_t)(strstr(small.data, "\"vocab\":{") - small.data);
    assert_int_equal(buf_puts(&moved, "{\"x\":{"), 0);
    assert_int_equal(buf_append(&moved, small.data + own, small.len - own - 1),
                     0);
    assert_int_equal(buf_puts(&moved, ","), 0);
    assert_int_equal(buf_append(&moved, small.data + 1, own - 1), 0);
    assert_int_equal(buf_puts(&moved, "\"vocab\":\"\",\"merges\":\"\"}}"), 0);
    assert_int_equal(open_checked(moved.data, moved.len), -1);
    buf_free(&small);
    buf_free(&moved);

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (read_changed(good[i][0], good[i][1]) != 0)
            fail_msg("refused: %s", good[i][1]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (read_changed(wrong[i][0], wrong[i][1]) == 0)
            fail_msg("accepted: %s", wrong[i][1]);
}

/* Messages about faults around vocabulary and merges have offsets in the
 * file. */
static void test_fault_offsets(void **state)
{
    static const char *const t[][2] = {
        {"\"padding\":null", "\"padding\":nu"},
        {"\"merges\":", "\"unk\":\"\xFF\",\"merges\":"},
        {"\"llo\"]]", "\"llo\"]],\"z\":\"\\uD800\""},
        {"\"llo\"]]", "\"llo\"]],\"z\":1,\"z\":2"},
        {"\"llo\"]]}", "\"llo\"]]}}"},
        {"\"llo\"]]}", "\"llo\"]]"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf b = {0};
        struct bpe *out;
        struct json_doc *doc;
        struct qwick_err e = {0}, want = {0};
        put_changed(&b, t[i][0], t[i][1]);
        assert_int_equal(bpe_open(&out, "x", b.data, b.len, &e), -1);
        assert_int_equal(
            json_parse(&doc, "x", b.data, b.len, QWICK_ERR_MODEL, &want), -1);
        assert_string_equal(e.msg, want.msg);
        buf_free(&b);
    }
}

/* The number of merges is limited to the number of possible tokens. */
static void test_too_many(void **state)
{
    for (size_t n = BPE_MAX_ID; n <= BPE_MAX_ID + 1; n++) {
        struct buf merges = {0}, b = {0};
        assert_int_equal(buf_puts(&merges, "\"merges\":["), 0);
        for (size_t i = 4; i < n; i++)
            assert_int_equal(buf_puts(&merges, "[\"h\",\"e\"],"), 0);
        put_changed(&b, "\"merges\":[", merges.data);
        struct bpe *out;
        struct qwick_err e = {0};
        assert_int_equal(bpe_open(&out, "x", b.data, b.len, &e),
                         n > BPE_MAX_ID ? -1 : 0);
        if (n > BPE_MAX_ID)
            assert_string_equal(e.msg, "x: model.merges: too many");
        else
            EXPECT(out, "hello", 303);
        bpe_close(out);
        buf_free(&merges);
        buf_free(&b);
    }
}

/* Strings of characters of every length, quotes, and bytes that are not UTF-8,
 * as tokens and in merges, at all alignments to words of eight bytes. */
static void test_strings(void **state)
{
    static const char *const good[] = {"h",        "z",
                                       "\xC4\xA0", "\xC3\xA9",
                                       "\xC5\xBF", "\xE4\xB8\xAD",
                                       "\\\"",     "\\\\",
                                       "\x7F",     "\xF0\x9F\x98\x80"};
    static const char *const bad[] = {
        "\xC4",     "\xA0", "\xC0\xA0",     "\xC1\xBF",
        "\x01",     "\x1F", "\xED\xA0\x80", "\xF5\x80\x80\x80",
        "\xE4\xB8", "\n",   "\xFF"};
    size_t n_good = 0, n_bad = 0;
    for (int round = 0; round < 3000; round++) {
        struct buf key = {0}, entry = {0}, pair = {0}, half = {0}, whole = {0};
        size_t n = 1 + draw(round % 2 ? 24 : 5), at = draw((uint32_t)n);
        /* one kind or mixed: otherwise long runs of two-byte characters are
         * rare */
        uint32_t one = draw(10);
        bool mixed = draw(2), spoilt = draw(4) == 0;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(buf_puts(&key, good[mixed ? draw(10) : one]), 0);
            if (spoilt && i == at)
                assert_int_equal(buf_puts(&key, bad[draw(11)]), 0);
        }
        assert_int_equal(buf_printf(&entry,
                                    "\"vocab\":{\"%shh\":400,\"%shhh\":401,",
                                    key.data, key.data),
                         0);
        assert_int_equal(
            buf_printf(&pair, "\"merges\":[[\"%shh\",\"h\"],", key.data), 0);
        put_changed(&half, "\"vocab\":{", entry.data);
        put_replaced(&whole, half.data, "\"merges\":[", pair.data);
        assert_int_equal(open_checked(whole.data, whole.len), spoilt ? -1 : 0);
        n_good += !spoilt;
        n_bad += spoilt;
        buf_free(&key);
        buf_free(&entry);
        buf_free(&pair);
        buf_free(&half);
        buf_free(&whole);
    }
    assert_true(n_good > 1000 && n_bad > 300);
}

/* Qwen3's file, read by one thread, and by two if there are two CPUs. */
static void test_qwen_tree(void **state)
{
    for (int i = 0; i < 3; i++) {
        use_cpus(i > 0);
        assert_int_equal(open_checked(qwen_text.data, qwen_text.len), 0);
    }
    /* the last merge: with an unknown part, cut off, and with three parts */
    size_t quote = qwen_text.len;
    while (qwen_text.data[quote - 1] != '"')
        quote--;
    static const char *const with[] = {"zzqqzz\"", "", "\", \"a\""};
    for (size_t i = 0; i < 3; i++) {
        struct buf t = {0};
        put_part(&t, 0, quote - 1);
        assert_int_equal(buf_puts(&t, with[i]), 0);
        put_part(&t, quote, qwen_text.len);
        assert_int_equal(open_checked(t.data, t.len), -1);
        buf_free(&t);
    }
}

int main(void)
{
    draw_state = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_mutated),
        cmocka_unit_test(test_large_refused),
        cmocka_unit_test(test_large_order),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_fault_offsets),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_qwen_tree),
        cmocka_unit_test(test_long_token),
    };
    return cmocka_run_group_tests(tests, qwen_setup, qwen_teardown);
}
