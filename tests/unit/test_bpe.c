/* The tokenizer: goldens, the split pattern and merging compared with slow and
 * simple versions, spans, and refused files.
 *
 * Needs Qwen3's tokenizer.json: $QWICK_TEST_TOKENIZER is its directory, by
 * default where the Makefile unpacks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "base/utf8.h"
#include "file/json.h"
#include "file/map.h"
#include "random_text.h"
#include "text/bpe.h"
#include "text/bpe_load.h"
#include "text/split.h"
#include "text/unicode.h"

static struct bpe *qwen; /* Qwen3's tokenizer */
static struct buf qwen_text;

static void ok(int rc, const struct qwick_err *e)
{
    if (rc < 0)
        fail_msg("%s", e->msg);
}

static struct bpe *open_text(const char *text, size_t n)
{
    struct bpe *b;
    struct qwick_err e;
    ok(bpe_open(&b, "test.json", text, n, &e), &e);
    return b;
}

struct ids {
    int32_t *v;
    size_t n;
};

static struct ids encode(struct bpe *b, const char *s, size_t n, bool special)
{
    struct ids r = {0};
    struct qwick_err e;
    ok(bpe_encode(b, s, n, special, &r.v, &r.n, &e), &e);
    return r;
}

static void decode(struct bpe *b, struct ids r, bool skip_special,
                   struct buf *out)
{
    out->len = 0;
    assert_int_equal(buf_reserve(out, 1), 0);
    for (size_t i = 0; i < r.n; i++) {
        size_t n;
        const char *p = bpe_token(b, r.v[i], &n);
        if (skip_special && bpe_is_special(b, r.v[i]))
            continue;
        /* Ids without a token decode to an empty text, as in the reference. */
        assert_int_equal(p != NULL, bpe_has(b, r.v[i]));
        if (p)
            assert_int_equal(buf_append(out, p, n), 0);
    }
}

static void same_ids(struct ids a, struct ids b)
{
    assert_int_equal(a.n, b.n);
    if (a.n)
        assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
}

/* ---- goldens ---- */

/* Calls line(root) for every line of a JSONL file; returns their number. */
static size_t each_line(const char *path,
                        void (*line)(const struct json_value *))
{
    struct map m;
    struct qwick_err e;
    ok(map_open(&m, path, &e), &e);
    const char *p = (const char *)m.data, *end = p + m.size;
    size_t n = 0;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);
        if (len > 0) {
            struct json_doc *doc;
            ok(json_parse(&doc, path, p, len, QWICK_ERR_RUNTIME, &e), &e);
            line(json_root(doc));
            json_free(doc);
            n++;
        }
        p += len + 1;
    }
    map_close(&m);
    return n;
}

static struct ids golden_ids(const struct json_value *v)
{
    const struct json_value *list = json_get(v, "ids");
    assert_true(json_is(list, JSON_ARRAY));
    struct ids r = {calloc(list->len + 1, sizeof *r.v), list->len};
    assert_non_null(r.v);
    for (size_t i = 0; i < r.n; i++) {
        int64_t id;
        assert_int_equal(json_int(&list->items[i], 0, INT32_MAX, &id), 0);
        r.v[i] = (int32_t)id;
    }
    return r;
}

static size_t n_sensitive, n_sensitive_same;

static void encode_line(const struct json_value *v)
{
    const struct json_value *text = json_get(v, "text");
    const struct json_value *note = json_get(v, "note");
    struct ids want = golden_ids(v);
    struct ids have = encode(qwen, text->str, text->len, true);
    bool same =
        have.n == want.n &&
        (want.n == 0 || !memcmp(have.v, want.v, want.n * sizeof *want.v));
    if (!strncmp(note->str, "unicode-version-sensitive", 25)) {
        n_sensitive++;
        n_sensitive_same += same;
    } else if (!same) {
        fail_msg("%s: \"%s\" gives other ids", note->str, text->str);
    }
    free(want.v);
    free(have.v);
}

static void test_golden_encode(void **unused)
{
    (void)unused;
    size_t n = each_line("tests/golden/text/tokenizer.jsonl", encode_line);
    assert_true(n > 500);
    print_message("%zu lines equal; %zu of %zu that depend on the version of "
                  "Unicode are equal\n",
                  n - n_sensitive, n_sensitive_same, n_sensitive);
}

static void decode_line(const struct json_value *v)
{
    const struct json_value *hex = json_get(v, "bytes_hex");
    const struct json_value *text = json_get(v, "text");
    struct ids ids = golden_ids(v);
    struct buf bytes = {0}, have_hex = {0}, clean = {0};
    decode(qwen, ids, json_get(v, "skip_special")->boolean, &bytes);
    for (size_t i = 0; i < bytes.len; i++)
        assert_int_equal(
            buf_printf(&have_hex, "%02x", (unsigned char)bytes.data[i]), 0);
    assert_int_equal(have_hex.len, hex->len);
    assert_memory_equal(hex->len ? have_hex.data : "", hex->str, hex->len);
    assert_int_equal(utf8_sanitize(&clean, bytes.data, bytes.len), 0);
    assert_int_equal(clean.len, text->len);
    assert_memory_equal(text->len ? clean.data : "", text->str, text->len);
    free(ids.v);
    buf_free(&bytes);
    buf_free(&have_hex);
    buf_free(&clean);
}

static void test_golden_decode(void **unused)
{
    (void)unused;
    assert_true(each_line("tests/golden/text/decode.jsonl", decode_line) > 50);
}

/* ---- the split pattern ---- */

struct letter { /* a character for the slow matcher */
    uint32_t cp;
    enum uclass class;
    size_t len;
};

static bool crlf(const struct letter *l)
{
    return l->cp == '\r' || l->cp == '\n';
}

static bool fold(const struct letter *l, char c)
{
    return l->cp == (uint32_t)c || l->cp == (uint32_t)c - 32 ||
           (c == 's' && l->cp == 0x17F);
}

/* [\p{L}], or [\p{L}\p{M}] of Qwen3.5. */
static bool in_word(enum split split, const struct letter *l)
{
    return l->class == UC_LETTER ||
           (split == SPLIT_QWEN35 && unicode_is_mark(l->cp));
}

/* Match the pattern, alternative by alternative, like a backtracking engine.
 * Returns the number of characters matched at l[0..n). */
static size_t slow_match(enum split split, const struct letter *l, size_t n)
{
    static const char *const suffix[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    for (size_t k = 0; k < 7; k++) {
        size_t m = strlen(suffix[k]);
        if (l[0].cp == '\'' && n > m && fold(&l[1], suffix[k][0]) &&
            (m == 1 || fold(&l[2], suffix[k][1])))
            return m + 1;
    }
    for (size_t opt = 2; opt-- > 0;) { /* [^\r\n\p{L}\p{N}]?[\p{L}...]+ */
        if (opt &&
            (crlf(&l[0]) || l[0].class == UC_LETTER || l[0].class == UC_NUMBER))
            continue;
        size_t i = opt;
        while (i < n && in_word(split, &l[i]))
            i++;
        if (i > opt)
            return i;
    }
    if (l[0].class == UC_NUMBER)
        return 1;
    for (size_t opt = 2; opt-- > 0;) { /*  ?[^\s\p{L}\p{N}...]+[\r\n]* */
        if (opt && l[0].cp != ' ')
            continue;
        size_t i = opt;
        while (i < n && l[i].class == UC_OTHER && !in_word(split, &l[i]))
            i++;
        if (i == opt)
            continue;
        while (i < n && crlf(&l[i]))
            i++;
        return i;
    }
    size_t spaces = 0;
    while (spaces < n && l[spaces].class == UC_SPACE)
        spaces++;
    for (size_t k = spaces + 1; k-- > 0;) { /* \s*[\r\n]+ */
        size_t i = k;
        while (i < n && crlf(&l[i]))
            i++;
        if (i > k)
            return i;
    }
    for (size_t k = spaces; k > 0; k--) /* \s+(?!\S) */
        if (k == n || l[k].class == UC_SPACE)
            return k;
    assert_true(spaces > 0);
    return spaces; /* \s+ */
}

static void check_split(enum split split)
{
    static const uint32_t some[] = {
        ' ',   ' ',    ' ',    '\n',   '\r',   '\t',   'a',    'S',
        's',   't',    'l',    'r',    'e',    'v',    'm',    'D',
        '\'',  '\'',   '1',    '9',    '.',    '!',    '_',    0xE9,
        0xA0,  0x85,   0x3000, 0x4E2D, 0x17F,  0x2167, 0x301,  0x1F600,
        0x903, 0x20DD, 0x0B,   0,      0x200B, 0x2029, 0x1D7D8};
    struct buf b = {0};
    for (int round = 0; round < 50000; round++) {
        struct letter l[24];
        uint32_t n = 1 + draw(24), kinds = 1 + draw(sizeof some / sizeof *some);
        b.len = 0;
        for (uint32_t i = 0; i < n; i++) {
            l[i].cp = some[draw(kinds)];
            /* Sometimes a byte that is not UTF-8. It counts as a character that
             * is neither letter, number nor space. */
            if (draw(40) == 0) {
                l[i] = (struct letter){0xFFFFFF, UC_OTHER, 1};
                assert_int_equal(buf_putc(&b, '\xFF'), 0);
                continue;
            }
            size_t before = b.len;
            put(&b, l[i].cp);
            l[i].class = unicode_class(l[i].cp);
            l[i].len = b.len - before;
        }
        size_t at = 0;
        for (size_t i = 0; i < n;) {
            size_t k = slow_match(split, l + i, n - i), bytes = 0;
            for (; k > 0; k--)
                bytes += l[i++].len;
            assert_int_equal(split_next(split, b.data + at, b.len - at), bytes);
            at += bytes;
        }
        assert_int_equal(at, b.len);
    }
    buf_free(&b);
}

static void test_split(void **unused)
{
    (void)unused;
    check_split(SPLIT_QWEN2);
    check_split(SPLIT_QWEN35);
}

/* ---- small tokenizers ---- */

/* Append the character that stands for a byte, as in a JSON string. */
static void put_byte_char(struct buf *b, unsigned c)
{
    bool plain =
        (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c <= 0xAC) || c >= 0xAE;
    if (plain) {
        if (c == '"' || c == '\\')
            assert_int_equal(buf_putc(b, '\\'), 0);
        put(b, c);
        return;
    }
    uint32_t u = 0x100; /* 0x100 plus the number of earlier bytes that are not
                           plain */
    for (unsigned k = 0; k < c; k++)
        u += !((k >= 0x21 && k <= 0x7E) || (k >= 0xA1 && k <= 0xAC) ||
               k >= 0xAE);
    put(b, u);
}

#define PRE                                                                  \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","         \
    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"                 \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}"     \
    "\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}," \
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","   \
    "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]}"

#define PRE_QWEN35                                                          \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","        \
    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"                \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|\\\\p{N}|"           \
    " ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|" \
    "\\\\s+(?!\\\\S)|\\\\s+\"},"                                            \
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\","  \
    "\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":false}]}"

#define ADDED(id, content)                                               \
    "{\"id\":" #id ",\"content\":\"" content "\",\"single_word\":false," \
    "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"            \
    "\"special\":true}"

/* A small tokenizer: added tokens 1000 and 1001, merges he, ll, llo, hello. */
static void put_small(struct buf *b)
{
    assert_int_equal(
        buf_puts(
            b,
            "{\"version\":\"1.0\",\"truncation\":null,"
            "\"padding\":null,\"added_tokens\":[" ADDED(1000, "<x>") "," ADDED(
                1001,
                "<x>y") "],\"normalizer\":{\"type\":\"NFC\"},"
                        "\"pre_tokenizer\":" PRE ",\"post_processor\":null,"
                        "\"decoder\":{\"type\":\"ByteLevel\"},"
                        "\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                        "\"unk_token\":null,\"continuing_subword_prefix\":\"\","
                        "\"end_of_word_suffix\":null,\"fuse_unk\":false,"
                        "\"byte_fallback\":false,\"ignore_merges\":false,"
                        "\"vocab\":{"),
        0);
    for (unsigned c = 0; c < 256; c++) {
        assert_int_equal(buf_putc(b, '"'), 0);
        put_byte_char(b, c);
        assert_int_equal(buf_printf(b, "\":%u,", c), 0);
    }
    assert_int_equal(buf_puts(b,
                              "\"he\":300,\"ll\":301,\"llo\":302,\"hello\":303,"
                              "\"hellos\":304,\"\xE4\xB8\xAD\":305},"
                              "\"merges\":[[\"h\",\"e\"],[\"l\",\"l\"],"
                              "[\"ll\",\"o\"],[\"he\",\"llo\"]]}}"),
                     0);
}

/* Append text with the first `from` replaced by `to`. */
static void put_replaced(struct buf *b, const char *text, const char *from,
                         const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("not there: %s", from);
    assert_int_equal(buf_append(b, text, (size_t)(at - text)), 0);
    assert_int_equal(buf_puts(b, to), 0);
    assert_int_equal(buf_puts(b, at + strlen(from)), 0);
}

/* Append the small tokenizer with `from` replaced by `to`. */
static void put_changed(struct buf *b, const char *from, const char *to)
{
    struct buf small = {0};
    put_small(&small);
    put_replaced(b, small.data, from, to);
    buf_free(&small);
}

static struct bpe *open_changed(const char *from, const char *to)
{
    struct buf b = {0};
    put_changed(&b, from, to);
    struct bpe *t = open_text(b.data, b.len);
    buf_free(&b);
    return t;
}

static void expect_ids(struct bpe *b, const char *s, const int32_t *want,
                       size_t n)
{
    /* Encode twice: the second time from the cache. */
    for (int i = 0; i < 2; i++) {
        struct ids r = encode(b, s, strlen(s), true);
        same_ids(r, (struct ids){(int32_t *)want, n});
        free(r.v);
    }
}
#define EXPECT(b, s, ...)                            \
    expect_ids(b, s, (const int32_t[]){__VA_ARGS__}, \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* A merge of "q" with the first byte of U+0302, a mark that composes with no q:
 * it applies where the pattern has both in one word. */
static void test_marks(void **unused)
{
    (void)unused;
    struct buf small = {0}, more = {0}, merged = {0}, marks = {0};
    put_small(&small);
    put_replaced(&more, small.data, "\"hellos\":304",
                 "\"hellos\":304,\"q\xC3\x8C\":306");
    put_replaced(&merged, more.data, "\"merges\":[",
                 "\"merges\":[[\"q\",\"\xC3\x8C\"],");
    put_replaced(&marks, merged.data, PRE, PRE_QWEN35);
    struct bpe *qwen2 = open_text(merged.data, merged.len);
    struct bpe *qwen35 = open_text(marks.data, marks.len);
    EXPECT(qwen2, "q\xCC\x82", 'q', 0xCC, 0x82);
    EXPECT(qwen35, "q\xCC\x82", 306, 0x82);
    EXPECT(qwen35, "hello!\xCC\x82hello", 303, '!', 0xCC, 0x82, 303);
    bpe_close(qwen2);
    bpe_close(qwen35);
    buf_free(&small);
    buf_free(&more);
    buf_free(&merged);
    buf_free(&marks);
}

static void test_small(void **unused)
{
    (void)unused;
    struct bpe *b = open_changed("he", "he");
    size_t n;
    assert_int_equal(bpe_size(b), 1002);
    EXPECT(b, "hello", 303);
    EXPECT(b, "hell", 300, 301);
    EXPECT(b, "hellos", 303, 's');
    EXPECT(b, "llloo", 301, 'l', 'o', 'o');
    EXPECT(b, " hello<x>hello<x>yy", ' ', 303, 1000, 303, 1001, 'y');
    EXPECT(b, "<x", '<', 'x');
    EXPECT(b, "h", 'h');
    assert_true(bpe_has(b, 300) && bpe_has(b, 1001) && bpe_has(b, 0));
    assert_false(bpe_has(b, 299) || bpe_has(b, 999) || bpe_has(b, 1002) ||
                 bpe_has(b, -1) || bpe_has(b, INT32_MAX));
    assert_null(bpe_token(b, 299, &n));
    assert_int_equal(n, 0);
    assert_null(bpe_token(b, -1, &n));
    assert_string_equal("<x>", bpe_token(b, 1000, &n) ? "<x>" : "");
    assert_int_equal(n, 3);
    assert_memory_equal(bpe_token(b, 1000, &n), "<x>", 3);
    assert_memory_equal(bpe_token(b, ' ', &n), " ", 1);
    assert_int_equal(n, 1);
    /* A spelling with a character that stands for no byte does not change. */
    assert_memory_equal(bpe_token(b, 305, &n), "\xE4\xB8\xAD", 3);
    assert_int_equal(n, 3);
    assert_true(bpe_is_added(b, 1000) && bpe_is_special(b, 1001));
    assert_false(bpe_is_added(b, 300) || bpe_is_special(b, 300));
    assert_int_equal(bpe_added_id(b, "<x>"), 1000);
    assert_int_equal(bpe_added_id(b, "<x>y"), 1001);
    assert_int_equal(bpe_added_id(b, "<x"), -1);
    assert_int_equal(bpe_added_id(b, "<x>yy"), -1);
    assert_int_equal(bpe_added_id(b, ""), -1);
    bpe_close(b);

    /* Merges as lines, after the first line of merges.txt. */
    b = open_changed("[[\"h\",\"e\"],[\"l\",\"l\"],[\"ll\",\"o\"],"
                     "[\"he\",\"llo\"]]",
                     "[\"#version: 0.2\",\"h e\",\"l l\",\"ll o\",\"he llo\"]");
    EXPECT(b, "hello", 303);
    EXPECT(b, "hell", 300, 301);
    bpe_close(b);

    /* If a pair has two ranks, the later one counts. */
    b = open_changed("\"hellos\":304,\"\xE4\xB8\xAD\":305},\"merges\":["
                     "[\"h\",\"e\"]",
                     "\"el\":304},\"merges\":[[\"e\",\"l\"],[\"h\",\"e\"],"
                     "[\"e\",\"l\"]");
    EXPECT(b, "hel", 300, 'l');
    bpe_close(b);
    b = open_changed("\"hellos\":304,\"\xE4\xB8\xAD\":305},\"merges\":[",
                     "\"el\":304},\"merges\":[[\"e\",\"l\"],");
    EXPECT(b, "hel", 'h', 304);
    bpe_close(b);
    b = open_changed("\"merges\":[", "\"x\":null,\"merges\":[");
    EXPECT(b, "hello", 303);
    bpe_close(b);

    /* With ignore_merges, whole words come first. */
    b = open_changed("\"ignore_merges\":false", "\"ignore_merges\":true");
    EXPECT(b, "hellos", 304);
    EXPECT(b, "hello", 303);
    EXPECT(b, "hellohellos", 303, 303, 's');
    EXPECT(b, "\xE4\xB8\xAD", 0xE4, 0xB8, 0xAD); /* 305 spells no bytes */
    bpe_close(b);

    /* An added token that is also in the model keeps its id. */
    b = open_changed(ADDED(1000, "<x>"), ADDED(303, "hello"));
    EXPECT(b, "ohellos", 'o', 303, 's');
    assert_true(bpe_is_added(b, 303));
    bpe_close(b);

    /* No normalizer: no NFC. */
    b = open_changed("{\"type\":\"NFC\"}", "null");
    EXPECT(b, "e\xCC\x81", 'e', 0xCC, 0x81);
    bpe_close(b);
    b = open_changed("he", "he");
    EXPECT(b, "e\xCC\x81", 0xC3, 0xA9);
    bpe_close(b);
    static const char *const tolerated[][2] = {
        {"\"truncation\":null", "\"truncation\":{\"max_length\":3}"},
        {"\"padding\":null", "\"padding\":{\"pad_id\":3}"},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"ByteLevel\"}"},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"Sequence\",\"processors\":["
         "{\"type\":\"ByteLevel\"},{\"type\":\"TemplateProcessing\"}]}"},
        {"\"dropout\":null", "\"dropout\":0.0"},
        {"\"fuse_unk\":false,", ""},
        {"\"added_tokens\":[" ADDED(1000, "<x>") "," ADDED(1001, "<x>y") "],",
         ""},
    };
    for (size_t i = 0; i < sizeof tolerated / sizeof *tolerated; i++) {
        b = open_changed(tolerated[i][0], tolerated[i][1]);
        EXPECT(b, "hello", 303);
        bpe_close(b);
    }
    bpe_close(NULL);
}

/* model.merges before model.vocab, and model before everything else. */
static void test_order(void **unused)
{
    (void)unused;
    struct buf small = {0}, b = {0};
    put_small(&small);
    char *model = strstr(small.data, "\"model\":");
    char *vocab = strstr(small.data, "\"vocab\":");
    char *merges = strstr(small.data, ",\"merges\":");
    assert_true(model && vocab && merges);
    size_t end = small.len - 2; /* end of the array of merges */
    assert_int_equal(buf_puts(&b, "{\"model\":{\"type\":\"BPE\""), 0);
    assert_int_equal(
        buf_append(&b, merges, (size_t)(small.data + end - merges)), 0);
    assert_int_equal(buf_putc(&b, ','), 0);
    assert_int_equal(buf_append(&b, vocab, (size_t)(merges - vocab)), 0);
    assert_int_equal(buf_puts(&b, "},"), 0);
    assert_int_equal(
        buf_append(&b, small.data + 1, (size_t)(model - small.data) - 2), 0);
    assert_int_equal(buf_putc(&b, '}'), 0);
    struct bpe *t = open_text(b.data, b.len);
    EXPECT(t, "hello<x>", 303, 1000);
    bpe_close(t);
    buf_free(&small);
    buf_free(&b);
}

static void test_refused(void **unused)
{
    (void)unused;
    static const char *const t[][3] = {
        /* from, to, part of the message */
        {"{\"version\"", "[{\"version\"", "test.json: offset"},
        {"\"type\":\"BPE\"", "\"type\":\"Unigram\"",
         "model.type: \"Unigram\" is not supported (supported: BPE)"},
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
        {"\"pre_tokenizer\":", "\"pre_tokenizer\":null,\"p\":",
         "pre_tokenizer: null is not supported"},
        {"\"pre_tokenizer\":",
         "\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"p\":",
         "pre_tokenizer: {\"type\": \"Whitespace\"}"},
        {"{\"type\":\"Split\"", "{\"type\":\"Digits\"", "\"Digits\""},
        {"|\\\\p{N}|", "|\\\\p{N}{1,3}|", "\\\\p{N}{1,3}"},
        {"\"Regex\"", "\"String\"", "Split.pattern: {\"String\""},
        {"Isolated", "Removed", "Split.behavior: \"Removed\""},
        {"\"invert\":false", "\"invert\":true", "Split.invert: true"},
        {",\"invert\":false", "", "Split.invert: missing"},
        {"\"add_prefix_space\":false", "\"add_prefix_space\":true",
         "ByteLevel.add_prefix_space: true"},
        {"\"use_regex\":false", "\"use_regex\":true",
         "ByteLevel.use_regex: true"},
        {",\"use_regex\":false", "", "ByteLevel.use_regex: missing"},
        {"\"post_processor\":null",
         "\"post_processor\":{\"type\":\"BertProcessing\"}",
         "post_processor: {\"type\": \"BertProcessing\"}"},
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
        {"\"content\":\"<x>\"", "\"content\":\"<x>y\"", "is there twice"},
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
        {"\"lstrip\":false", "\"lstrip\":true", "lstrip is true"},
        {"\"rstrip\":false", "\"rstrip\":true", "rstrip is true"},
        {"\"normalized\":false", "\"normalized\":true", "normalized is true"},
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
static void test_truncated(void **unused)
{
    (void)unused;
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

static void test_long_token(void **unused)
{
    (void)unused;
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
            ok(rc, &e);
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
static void test_mutated(void **unused)
{
    (void)unused;
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

/* ---- merging against an obvious version ---- */

#define N_MERGES 400
struct slow {
    char token[4 + N_MERGES][24];
    size_t n_tokens;
    struct {
        char left[24], right[24];
    } merge[N_MERGES];
    size_t n_merges;
};

/* Random merges over a to d. Sometimes two merges give the same token. */
static void slow_fill(struct slow *s)
{
    memset(s, 0, sizeof *s);
    for (; s->n_tokens < 4; s->n_tokens++)
        s->token[s->n_tokens][0] = (char)('a' + s->n_tokens);
    while (s->n_merges < N_MERGES) {
        const char *l = s->token[draw((uint32_t)s->n_tokens)];
        const char *r = s->token[draw((uint32_t)s->n_tokens)];
        char both[48];
        if (strlen(l) + strlen(r) > 20)
            continue;
        snprintf(both, sizeof both, "%s%s", l, r);
        bool known = false, used = false;
        for (size_t i = 0; i < s->n_tokens; i++)
            known |= !strcmp(s->token[i], both);
        for (size_t i = 0; i < s->n_merges; i++)
            used |=
                !strcmp(s->merge[i].left, l) && !strcmp(s->merge[i].right, r);
        if (used || (known && draw(3)))
            continue;
        strcpy(s->merge[s->n_merges].left, l);
        strcpy(s->merge[s->n_merges++].right, r);
        if (!known)
            strcpy(s->token[s->n_tokens++], both);
    }
}

static struct bpe *slow_open(const struct slow *s)
{
    struct buf v = {0}, m = {0}, b = {0}, c = {0};
    /* Shuffle the ids: the tokenizer must not depend on their order. */
    for (size_t i = 4; i < s->n_tokens; i++)
        assert_int_equal(buf_printf(&v, "%s\"%s\":%zu", i > 4 ? "," : "",
                                    s->token[i], 1000 + i * 7919 % 10007),
                         0);
    for (size_t i = 0; i < s->n_merges; i++)
        assert_int_equal(buf_printf(&m, "%s[\"%s\",\"%s\"]", i ? "," : "",
                                    s->merge[i].left, s->merge[i].right),
                         0);
    assert_int_equal(buf_printf(&b, "%s},\"merges\":[%s]}}", v.data, m.data),
                     0);
    put_changed(&c, ADDED(1000, "<x>") "," ADDED(1001, "<x>y"), "");
    char *at = strstr(c.data, "\"he\":300");
    assert_non_null(at);
    c.len = (size_t)(at - c.data);
    assert_int_equal(buf_append(&c, b.data, b.len), 0);
    struct bpe *t = open_text(c.data, c.len);
    buf_free(&v);
    buf_free(&m);
    buf_free(&b);
    buf_free(&c);
    return t;
}

static size_t slow_rank(const struct slow *s, const char *word,
                        const size_t *cut, size_t i)
{
    for (size_t k = 0; k < s->n_merges; k++) {
        size_t l = strlen(s->merge[k].left), r = strlen(s->merge[k].right);
        if (l == cut[i + 1] - cut[i] && r == cut[i + 2] - cut[i + 1] &&
            !memcmp(word + cut[i], s->merge[k].left, l) &&
            !memcmp(word + cut[i + 1], s->merge[k].right, r))
            return k;
    }
    return SIZE_MAX;
}

/* Merge a word. cut[0..n] gets the borders of its parts. Returns the number of
 * parts. */
static size_t slow_merge(const struct slow *s, const char *word, size_t n,
                         size_t *cut)
{
    size_t *rank = calloc(n + 1, sizeof *rank);
    assert_non_null(rank);
    for (size_t i = 0; i <= n; i++)
        cut[i] = i;
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = slow_rank(s, word, cut, i);
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        }
        if (best == SIZE_MAX)
            break;
        memmove(cut + at + 1, cut + at + 2, (n - at - 1) * sizeof *cut);
        n--;
        memmove(rank + at, rank + at + 1, (n - at) * sizeof *rank);
        if (at + 1 < n)
            rank[at] = slow_rank(s, word, cut, at);
        if (at > 0)
            rank[at - 1] = slow_rank(s, word, cut, at - 1);
    }
    free(rank);
    return n;
}

static void check_word(const struct slow *s, struct bpe *b, const char *word,
                       size_t n)
{
    size_t *cut = calloc(n + 1, sizeof *cut);
    assert_non_null(cut);
    size_t parts = slow_merge(s, word, n, cut);
    for (int again = 0; again < 2; again++) {
        struct ids r = encode(b, word, n, false);
        assert_int_equal(r.n, parts);
        for (size_t i = 0; i < parts; i++) {
            size_t len;
            const char *p = bpe_token(b, r.v[i], &len);
            assert_int_equal(len, cut[i + 1] - cut[i]);
            assert_memory_equal(p, word + cut[i], len);
        }
        free(r.v);
    }
    free(cut);
}

static void test_merging(void **unused)
{
    (void)unused;
    static struct slow s;
    for (int kind = 0; kind < 4; kind++) {
        slow_fill(&s);
        struct bpe *b = slow_open(&s);
        char word[300];
        for (int round = 0; round < 1500; round++) {
            /* Around the lengths where the method changes, and far beyond. */
            uint32_t n = 1 + draw(round % 10 ? 60 : sizeof word - 1);
            uint32_t letters = 1 + draw(4);
            for (uint32_t i = 0; i < n; i++)
                word[i] = (char)('a' + draw(letters));
            /* Windows that are often too small, so that they grow. */
            static const size_t windows[] = {2, 8, 24, 100, BPE_WINDOW};
            b->window = windows[round % 5];
            check_word(&s, b, word, n);
        }
        bpe_close(b);
    }
}

/* Merge p[0..n) with the tokenizer's ranks: at each step, compare all pairs and
 * merge the lowest rank, the leftmost if equal. Returns the number of ids. */
static size_t obvious_merge(const struct bpe *b, const char *p, size_t n,
                            int32_t *ids)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)b->byte_id[(unsigned char)p[i]];
    for (;;) {
        uint32_t best = BPE_NO_RANK;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t rank = bpe_rank(b, (uint32_t)ids[i], (uint32_t)ids[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == BPE_NO_RANK)
            return n;
        ids[at] = (int32_t)bpe_made(b, best);
        n--;
        memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof *ids);
    }
}

/* Append a word of letters of one kind, which the pattern does not split. */
static void put_word(struct buf *b, size_t n, int kind)
{
    static const char *const sets[] = {
        "etaoinshrdlu",
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "a",
        "ab",
        "=-",
        "ACGT"};
    const char *set = sets[kind % 6];
    size_t n_set = strlen(set), period = kind < 6 ? n : 1 + draw(50);
    b->len = 0;
    for (size_t i = 0; i < n; i++)
        put(b, i < period ? (unsigned char)set[draw((uint32_t)n_set)]
                          : (unsigned char)b->data[i - period]);
}

/* Merging long words in windows, with Qwen3's merges, gives the same ids as the
 * simple way. Words too long for the simple way are compared with a single
 * window. */
static void test_windows(void **unused)
{
    (void)unused;
    struct buf b = {0};
    int32_t *want = malloc(2 * BPE_WINDOW * sizeof *want);
    assert_non_null(want);
    for (int round = 0; round < 60; round++) {
        static const size_t windows[] = {16, 40, 256, BPE_WINDOW};
        size_t n = round % 6 ? 1 + draw(1500) : 3 * BPE_WINDOW / 2 + draw(100);
        put_word(&b, n, round % 12);
        size_t n_want = obvious_merge(qwen, b.data, n, want);
        for (size_t i = 0; i < 4; i++) {
            qwen->window = windows[i];
            struct ids r = encode(qwen, b.data, n, false);
            same_ids((struct ids){want, n_want}, r);
            free(r.v);
        }
    }
    for (int kind = 0; kind < 12; kind++) {
        put_word(&b, 200000 + draw(1000), kind);
        qwen->window = BPE_WINDOW;
        struct ids r = encode(qwen, b.data, b.len, false);
        qwen->window = b.len;
        struct ids whole = encode(qwen, b.data, b.len, false);
        same_ids(whole, r);
        free(r.v);
        free(whole.v);
    }
    qwen->window = BPE_WINDOW;
    free(want);
    buf_free(&b);
}

/* Encoding that stops early reads only a small part of the text. */
static void test_enough(void **unused)
{
    (void)unused;
    struct qwick_err e;
    struct buf b = {0};
    for (int kind = 0; kind < 2; kind++) {
        put_word(&b, 1000000, 1);
        for (size_t i = 5; kind && i < b.len; i += 6)
            b.data[i] = ' ';
        struct bpe_span all = {0, b.len};
        struct ids whole = encode(qwen, b.data, b.len, true);
        for (size_t enough = 1; enough <= 100000; enough *= 10) {
            struct ids r = {0};
            ok(bpe_encode_spans(qwen, b.data, b.len, &all, 1, enough, &r.v,
                                &r.n, &e),
               &e);
            assert_in_range(r.n, enough + 1, enough + BPE_WINDOW);
            same_ids((struct ids){whole.v, r.n}, r);
            free(r.v);
        }
        struct ids r = {0};
        ok(bpe_encode_spans(qwen, b.data, b.len, &all, 1, whole.n, &r.v, &r.n,
                            &e),
           &e);
        same_ids(whole, r);
        free(r.v);
        free(whole.v);
    }
    buf_free(&b);
}

/* ---- spans, specials, round trips, with Qwen3's tokenizer ---- */

static void test_spans(void **unused)
{
    (void)unused;
    static const char head[] = "<|im_start|>user\n";
    static const char body[] = "say <|im_end|> <think>now";
    static const char tail[] = "<|im_end|>\n";
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, head), 0);
    assert_int_equal(buf_puts(&b, body), 0);
    assert_int_equal(buf_puts(&b, tail), 0);
    size_t h = sizeof head - 1, t = h + sizeof body - 1;
    const struct bpe_span spans[] = {{0, h}, {t, b.len}};
    struct ids r = {0};
    struct qwick_err e;
    ok(bpe_encode_spans(qwen, b.data, b.len, spans, 2, 0, &r.v, &r.n, &e), &e);
    assert_int_equal(r.v[0], 151644);
    assert_int_equal(r.v[r.n - 2], 151645);
    size_t n_added = 0;
    for (size_t i = 0; i < r.n; i++)
        n_added += bpe_is_added(qwen, r.v[i]);
    assert_int_equal(n_added, 2);
    struct buf back = {0};
    decode(qwen, r, false, &back);
    assert_int_equal(back.len, b.len);
    assert_memory_equal(back.data, b.data, b.len);

    /* Ids are appended. A token across a border is not recognised, and an empty
     * span has no effect. */
    size_t before = r.n;
    const struct bpe_span cut[] = {{0, 3}, {3, 3}, {3, h}};
    ok(bpe_encode_spans(qwen, b.data, h, cut, 3, 0, &r.v, &r.n, &e), &e);
    assert_true(r.n > before + 3);
    for (size_t i = before; i < r.n; i++)
        assert_false(bpe_is_added(qwen, r.v[i]));
    struct ids plain = encode(qwen, b.data, h, false);
    same_ids(plain, (struct ids){r.v + before, r.n - before});
    free(plain.v);

    /* Invalid spans are an error, and leave the ids unchanged. */
    const struct bpe_span wrong[][2] = {
        {{0, 5}, {4, 9}}, {{5, 4}, {6, 7}}, {{0, 4}, {5, 9999}}};
    for (size_t i = 0; i < 3; i++) {
        size_t n = r.n;
        assert_int_equal(
            bpe_encode_spans(qwen, b.data, b.len, wrong[i], 2, 0, &r.v, &n, &e),
            -1);
        assert_int_equal(n, r.n);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
    }
    free(r.v);

    /* Without added tokens inside, any spans give the same ids as the whole
     * text. */
    static const char text[] = "user\nHello there,  \n\n it's e\xCC\x81 1234";
    struct ids whole = encode(qwen, text, sizeof text - 1, true);
    for (size_t i = 0; i < sizeof text; i++) {
        const struct bpe_span two[] = {{0, i}, {i, sizeof text - 1}};
        struct ids parts = {0};
        ok(bpe_encode_spans(qwen, text, sizeof text - 1, two, 2, 0, &parts.v,
                            &parts.n, &e),
           &e);
        same_ids(whole, parts);
        free(parts.v);
    }
    free(whole.v);
    buf_free(&b);
    buf_free(&back);
}

static void test_qwen(void **unused)
{
    (void)unused;
    assert_int_equal(bpe_size(qwen), 151669);
    assert_int_equal(bpe_added_id(qwen, "<|im_end|>"), 151645);
    assert_int_equal(bpe_added_id(qwen, "</think>"), 151668);
    assert_true(bpe_is_special(qwen, 151645));
    assert_true(bpe_is_added(qwen, 151668));
    assert_false(bpe_is_special(qwen, 151668));
    size_t total = 0, longest = 0;
    for (int32_t id = 0; id < 151669; id++) {
        size_t n;
        assert_non_null(bpe_token(qwen, id, &n));
        total += n;
        longest = n > longest ? n : longest;
    }
    assert_int_equal(total, 976309);
    assert_int_equal(longest, 128);
    assert_false(bpe_has(qwen, 151669));
    struct ids r = encode(qwen, "a\0b<|im_end|>\0", 14, true);
    const int32_t want[] = {64, 188, 65, 151645, 188};
    same_ids(r, (struct ids){(int32_t *)want, 5});
    free(r.v);
    r = encode(qwen, "", 0, true);
    assert_int_equal(r.n, 0);
    free(r.v);
}

/* A fault at the very end of a large file, which two threads read. */
static void test_large_refused(void **unused)
{
    (void)unused;
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
    assert_int_equal(bpe_open(&b, "x", t->data, t->len, &e), -1);
    if (!strstr(e.msg, why))
        fail_msg("%s: %s", why, e.msg);
}

/* With the two large parts in any order, and with similar parts beside them,
 * one thread and two threads give the same tokenizer and the same message. */
static void test_large_order(void **unused)
{
    (void)unused;
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
    ok(bpe_open(&b, "x", t.data, t.len, &e), &e);
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

static void test_forms(void **unused)
{
    (void)unused;
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
static void test_fault_offsets(void **unused)
{
    (void)unused;
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
static void test_too_many(void **unused)
{
    (void)unused;
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
static void test_strings(void **unused)
{
    (void)unused;
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

/* Qwen3's file, read by two threads if there are two CPUs. */
static void test_qwen_tree(void **unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        assert_int_equal(open_checked(qwen_text.data, qwen_text.len), 0);
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

/* decode(encode(x)) is NFC(x), even with bytes that are not UTF-8. */
static void test_round_trip(void **unused)
{
    (void)unused;
    static const uint32_t limit[] = {0x80, 0x250, 0x3000, 0xD800, 0x110000};
    struct buf b = {0}, nfc = {0}, back = {0};
    for (int round = 0; round < 3000; round++) {
        b.len = nfc.len = 0;
        uint32_t n = draw(round % 20 ? 40 : 2000), top = limit[draw(5)];
        for (uint32_t i = 0; i < n; i++) {
            uint32_t cp = draw(4) ? draw(top) : draw(0x80);
            if (draw(30) == 0) {
                assert_int_equal(buf_putc(&b, (char)(0x80 + draw(0x80))), 0);
            } else if (cp < 0xD800 || cp > 0xDFFF) {
                put(&b, cp);
            }
        }
        assert_int_equal(buf_reserve(&b, 1), 0);
        assert_int_equal(unicode_nfc(&nfc, b.data, b.len, NULL), 0);
        /* A copy of exactly the text's size, so that reading beyond it is
         * detected. */
        char *copy = malloc(b.len + !b.len);
        assert_non_null(copy);
        memcpy(copy, b.data, b.len);
        struct ids r = encode(qwen, copy, b.len, round % 2);
        free(copy);
        decode(qwen, r, false, &back);
        assert_int_equal(back.len, nfc.len);
        assert_memory_equal(back.data, nfc.data, nfc.len);
        free(r.v);
    }
    buf_free(&b);
    buf_free(&nfc);
    buf_free(&back);
}

/* A tokenizer with a full cache gives the same ids as a new one. */
static void test_cache(void **unused)
{
    (void)unused;
    struct map m;
    struct qwick_err e;
    ok(map_open(&m, "models/demo/tokenizer.json", &e), &e);
    struct bpe *warm = open_text((const char *)m.data, m.size);
    assert_int_equal(bpe_added_id(warm, "<|endoftext|>"), 6135);
    struct bpe *fresh = NULL;
    struct buf b = {0};
    for (int round = 0; round < 4000; round++) {
        b.len = 0;
        uint32_t words = 1 + draw(20);
        for (uint32_t w = 0; w < words; w++) {
            uint32_t n = 1 + draw(draw(8) ? 9 : 45);
            put(&b, ' ');
            for (uint32_t i = 0; i < n; i++)
                put(&b, (unsigned char)"etaoinshrdlu"[draw(12)]);
        }
        struct ids r = encode(warm, b.data, b.len, true);
        if (round % 100 == 0) {
            bpe_close(fresh);
            fresh = open_text((const char *)m.data, m.size);
            struct ids want = encode(fresh, b.data, b.len, true);
            same_ids(r, want);
            free(want.v);
        }
        /* Also encode each word as a separate text. */
        size_t at = 0;
        for (size_t i = 0; i < b.len && round % 10 == 0;) {
            size_t k = split_next(SPLIT_QWEN2, b.data + i, b.len - i);
            struct ids one = encode(fresh, b.data + i, k, true);
            assert_true(at + one.n <= r.n);
            same_ids(one, (struct ids){r.v + at, one.n});
            at += one.n;
            i += k;
            free(one.v);
        }
        free(r.v);
    }
    bpe_close(warm);
    bpe_close(fresh);
    map_close(&m);
    buf_free(&b);
}

/* One word of a million bytes. With quadratic time this test would not end. */
static void test_long_words(void **unused)
{
    (void)unused;
    enum { N = 1000000 };
    struct buf b = {0}, back = {0};
    static const char *const kinds[] = {
        "a", "ab", "etaoinshrdlu", " ", "\n", "=", "\xCC\x81", "<", "<|im_"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t len = strlen(kinds[k]);
        b.len = 0;
        while (b.len < N) {
            const char *p = kinds[k];
            if (len == 12) /* random letters */
                assert_int_equal(buf_putc(&b, p[draw(12)]), 0);
            else
                assert_int_equal(buf_append(&b, p, len), 0);
        }
        struct ids r = encode(qwen, b.data, b.len, true);
        decode(qwen, r, false, &back);
        assert_int_equal(back.len, b.len);
        assert_memory_equal(back.data, b.data, b.len);
        free(r.v);
    }
    buf_free(&b);
    buf_free(&back);
}

static int setup(void **unused)
{
    (void)unused;
    const char *dir = getenv("QWICK_TEST_TOKENIZER");
    char path[4096];
    struct map m;
    struct qwick_err e;
    snprintf(path, sizeof path, "%s/tokenizer.json",
             dir ? dir : "build/testdata/qwen3-tokenizer");
    if (map_open(&m, path, &e) < 0 ||
        bpe_open(&qwen, path, (const char *)m.data, m.size, &e) < 0 ||
        buf_append(&qwen_text, m.data, m.size) < 0) {
        fprintf(stderr, "test_bpe: %s\n", e.msg);
        return -1;
    }
    map_close(&m);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    bpe_close(qwen);
    buf_free(&qwen_text);
    return 0;
}

int main(void)
{
    draw_state = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_encode),
        cmocka_unit_test(test_golden_decode),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_marks),
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
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_enough),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_qwen),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_long_words),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
