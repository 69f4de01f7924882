/* The tokenizer: goldens, merging compared with slow and simple versions, spans
 * and round trips. test_bpe_load.c has the reading of tokenizer.json. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "bpe_small.h"
#include "file/json.h"
#include "text/bpe/bpe_int.h"
#include "text/split.h"
#include "text/unicode.h"

/* ---- goldens ---- */

static size_t n_sensitive, n_sensitive_same;

static void encode_line(const struct json_value *v)
{
    const struct json_value *text = json_get(v, "text");
    const struct json_value *note = json_get(v, "note");
    struct ids want = ids_of(json_get(v, "ids"));
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

static void test_golden_encode(void **state)
{
    size_t n_lines =
        jsonl_each("tests/golden/text/tokenizer.jsonl", encode_line);
    assert_true(n_lines > 500);
    print_message("%zu lines equal; %zu of %zu that depend on the version of "
                  "Unicode are equal\n",
                  n_lines - n_sensitive, n_sensitive_same, n_sensitive);
}

static void decode_line(const struct json_value *v)
{
    const struct json_value *hex = json_get(v, "bytes_hex");
    const struct json_value *text = json_get(v, "text");
    struct ids ids = ids_of(json_get(v, "ids"));
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

static void test_golden_decode(void **state)
{
    assert_true(jsonl_each("tests/golden/text/decode.jsonl", decode_line) > 50);
}

/* ---- the small tokenizer ---- */

/* A merge of "q" with the first byte of U+0302, a mark that composes with no q:
 * it applies where the pattern has both in one word. */
static void test_marks(void **state)
{
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

/* How tokens begin is known before they are spelled out. */
static void test_starts(void **state)
{
    /* C4 A0 is a blank, unless a character after it stands for no byte */
    struct bpe *b =
        open_changed("\"\xE4\xB8\xAD\":305",
                     "\"\xE4\xB8\xAD\":305,\"\xC4\xA0hi\":306,"
                     "\"\xC4\xA0h\xE4\xB8\xAD\":307,\"h\xC4\xA0\xC5\x84\":308,"
                     "\"\xC3\xA9\xC4\xA0\":309,\"\xC2\xAD\":310");
    struct bpe_start v[1003];
    unsigned char first;
    bpe_find_starts(b, v, 1003);
    for (int32_t id = 0; id < 1003; id++) {
        size_t n;
        if (v[id].n)
            bpe_first_bytes(b, &id, 1, &first);
        const char *p = bpe_token(b, id, &n);
        assert_true(n ? v[id].n >= n : v[id].n == 0);
        assert_int_equal(v[id].added, bpe_is_added(b, id));
        if (!n)
            continue;
        assert_int_equal(first, (unsigned char)*p);
        assert_int_equal(v[id].byte, *p > ' ' && *p < 0x7F ? *p : 0);
    }
    int32_t ids[] = {306, 307, 309};
    unsigned char bytes[3];
    bpe_first_bytes(b, ids, 3, bytes);
    assert_int_equal(bytes[0], ' ');
    assert_int_equal(bytes[1], 0xC4);
    assert_int_equal(bytes[2], 0xE9);
    bpe_close(b);
}

static size_t put_char(char *out, unsigned c)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(n == 1 ? c : n == 2 ? 0xC0 | c : 0xE0 | c);
    return n;
}

/* Characters that stand for no byte are found in any place of a spelling. */
static void test_alphabet(void **state)
{
    struct alphabet a;
    alphabet_fill(&a);
    for (size_t before = 0; before < 10; before++)
        for (unsigned c = 0; c < 0x900; c++) {
            char s[64], spelled[64];
            memset(s, 0xEE, sizeof s);
            size_t n = put_char(s, 0xE4);
            for (size_t i = 0; i < before; i++)
                n += put_char(s + n, i % 3 ? 0x143 : 'a');
            n += put_char(s + n, c);
            n += c % 2 ? put_char(s + n, 0xA1) : 0;
            memcpy(spelled, s, sizeof s);
            struct bpe_tok t = {.len = (uint16_t)n, .flags = BPE_SPELLED};
            alphabet_bytes(&a, s, &t);
            assert_int_equal(alphabet_first(&a, spelled, n),
                             t.flags & BPE_RAW ? -1 : (unsigned char)s[0]);
        }
}

static void test_small(void **state)
{
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
        {"{\"type\":\"NFC\"}", "{\"type\":\"Sequence\",\"normalizers\":[]}"},
        {"{\"type\":\"NFC\"}",
         "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}"},
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
static void test_order(void **state)
{
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

static void test_merging(void **state)
{
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
static void test_windows(void **state)
{
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
static void test_enough(void **state)
{
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
            assert_ok(bpe_encode_spans(qwen, b.data, b.len, &all, 1, false,
                                       enough, &r.v, &r.n, &e),
                      &e);
            assert_in_range(r.n, enough + 1, enough + BPE_WINDOW);
            same_ids((struct ids){whole.v, r.n}, r);
            free(r.v);
        }
        struct ids r = {0};
        assert_ok(bpe_encode_spans(qwen, b.data, b.len, &all, 1, false, whole.n,
                                   &r.v, &r.n, &e),
                  &e);
        same_ids(whole, r);
        free(r.v);
        free(whole.v);
    }
    buf_free(&b);
}

/* ---- spans, specials, round trips, with Qwen3's tokenizer ---- */

static void test_spans(void **state)
{
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
    assert_ok(bpe_encode_spans(qwen, b.data, b.len, spans, 2, false, 0, &r.v,
                               &r.n, &e),
              &e);
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
    assert_ok(
        bpe_encode_spans(qwen, b.data, h, cut, 3, false, 0, &r.v, &r.n, &e),
        &e);
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
        assert_int_equal(bpe_encode_spans(qwen, b.data, b.len, wrong[i], 2,
                                          false, 0, &r.v, &n, &e),
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
        assert_ok(bpe_encode_spans(qwen, text, sizeof text - 1, two, 2, false,
                                   0, &parts.v, &parts.n, &e),
                  &e);
        same_ids(whole, parts);
        free(parts.v);
    }
    free(whole.v);
    buf_free(&b);
    buf_free(&back);
}

static void test_qwen(void **state)
{
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

/* Decode the ids to this text, and free them. */
static void decodes_to(struct ids r, const struct buf *text)
{
    struct buf back = {0};
    decode(qwen, r, false, &back);
    assert_int_equal(back.len, text->len);
    assert_memory_equal(back.data, text->data, text->len);
    buf_free(&back);
    free(r.v);
}

/* decode(encode(x)) is NFC(x), even with bytes that are not UTF-8. */
static void test_round_trip(void **state)
{
    static const uint32_t limit[] = {0x80, 0x250, 0x3000, 0xD800, 0x110000};
    struct buf b = {0}, nfc = {0};
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
        decodes_to(r, &nfc);
    }
    buf_free(&b);
    buf_free(&nfc);
}

/* A tokenizer with a full cache gives the same ids as a new one. */
static void test_cache(void **state)
{
    struct map m;
    struct qwick_err e;
    assert_ok(map_open(&m, "models/demo/tokenizer.json", &e), &e);
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
static void test_long_words(void **state)
{
    enum { N = 1000000 };
    struct buf b = {0};
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
        decodes_to(r, &b);
    }
    buf_free(&b);
}

int main(void)
{
    draw_state = 7;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_encode),
        cmocka_unit_test(test_golden_decode),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_alphabet),
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_merging),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_enough),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_qwen),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cache),
        cmocka_unit_test(test_long_words),
    };
    return cmocka_run_group_tests(tests, qwen_setup, qwen_teardown);
}
