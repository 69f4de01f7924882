/* Tokenizers with byte fallback: goldens, windows of long words, invalid
 * bytes, decoding by pieces, and files that are refused. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "file/json.h"
#include "file/map.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_int.h"

#define FOLDER "tests/golden/gemma-tokenizer/"

static struct bpe *gemma;
static struct buf gemma_text;

static struct ids encode(const char *s, size_t n)
{
    struct ids r = {0};
    struct qwick_err e;
    assert_ok(bpe_encode(gemma, s, n, true, &r.v, &r.n, &e), &e);
    return r;
}

static void decode(struct ids r, bool skip_special, struct buf *out)
{
    struct bpe_decoder d = {0};
    out->len = 0;
    for (size_t i = 0; i < r.n; i++)
        if (!skip_special || !bpe_is_special(gemma, r.v[i]))
            assert_int_equal(bpe_decode(gemma, &d, r.v[i], out), 0);
    assert_int_equal(bpe_decode_end(&d, out), 0);
    bpe_decoder_free(&d);
}

static void same_bytes(const struct buf *b, const char *s, size_t n)
{
    assert_int_equal(b->len, n);
    if (n)
        assert_memory_equal(b->data, s, n);
}

/* ---- goldens ------------------------------------------------------------ */

static size_t n_encoded, n_decoded;

static void check_line(const struct json_value *v)
{
    const struct json_value *text = json_get(v, "text"),
                            *skip = json_get(v, "skip_special");
    struct ids want = ids_of(json_get(v, "ids"));
    if (skip) {
        struct buf have = {0};
        decode(want, skip->boolean, &have);
        same_bytes(&have, text->str, text->len);
        buf_free(&have);
        n_decoded++;
    } else {
        struct ids have = encode(text->str, text->len);
        if (have.n != want.n ||
            (want.n && memcmp(have.v, want.v, want.n * sizeof *want.v) != 0))
            fail_msg("\"%s\" gives other ids", text->str);
        free(have.v);
        n_encoded++;
    }
    free(want.v);
}

static void goldens_are_equal(void **state)
{
    struct jsonl in = jsonl_open(FOLDER "visible.jsonl");
    while (jsonl_next(&in))
        check_line(in.root);
    jsonl_close(&in);
    print_message("%zu lines encoded, %zu decoded\n", n_encoded, n_decoded);
    assert_true(n_encoded > 150 && n_decoded > 100);
}

/* ---- long words --------------------------------------------------------- */

static uint64_t draws;

static size_t below(size_t n)
{
    return (size_t)(rng_uniform(7, draws++) * (double)n);
}

/* About n bytes of words, runs of characters, characters without a token, and
 * invalid bytes; without blanks unless `blanks`. */
static void make_text(struct buf *b, size_t n, bool blanks)
{
    static const char *const parts[] = {"the",
                                        "program",
                                        "configuration",
                                        "ing",
                                        "s.",
                                        "aaaa",
                                        "\n\n\n",
                                        "\xE2\x96\x81",
                                        "\xC3\xA9",
                                        "\xE6\x97\xA5",
                                        "xyz",
                                        "0123",
                                        "\t\t\t",
                                        "\xF0\x9F\x91\xA9",
                                        "\x80\xC3",
                                        "\xFF",
                                        "(){};",
                                        "\xE2\x96",
                                        "____",
                                        "environment"};
    b->len = 0;
    while (b->len < n) {
        assert_int_equal(
            buf_puts(b, parts[below(sizeof parts / sizeof *parts)]), 0);
        if (blanks && below(2))
            assert_int_equal(buf_puts(b, below(3) ? " " : "    "), 0);
    }
}

/* The obvious way: the first of the merges of lowest rank, again and again. */
static struct ids merge_slowly(const char *p, size_t n)
{
    struct ids r = {malloc((n + 1) * sizeof *r.v), 0};
    assert_non_null(r.v);
    for (size_t i = 0, len; i < n; i += len)
        r.v[r.n++] = (int32_t)bpe_first_char(gemma, p + i, n - i, &len);
    for (;;) {
        uint32_t best = BPE_NO_RANK;
        size_t at = 0;
        for (size_t i = 0; i + 1 < r.n; i++) {
            uint32_t rank =
                bpe_rank(gemma, (uint32_t)r.v[i], (uint32_t)r.v[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == BPE_NO_RANK)
            return r;
        r.v[at] = (int32_t)bpe_made(gemma, best);
        r.n--;
        memmove(r.v + at + 1, r.v + at + 2, (r.n - at - 1) * sizeof *r.v);
    }
}

static void windows_change_nothing(void **state)
{
    static const size_t windows[] = {16, 40, 256, BPE_WINDOW};
    struct buf b = {0};
    for (size_t round = 0; round < 40; round++) {
        make_text(&b, 20 + below(round < 20 ? 40 : 900), round % 2);
        struct ids want = merge_slowly(b.data, b.len);
        for (size_t i = 0; i < 4; i++) {
            struct ids have = {0};
            struct qwick_err e;
            gemma->window = windows[i];
            assert_ok(
                bpe_encode(gemma, b.data, b.len, false, &have.v, &have.n, &e),
                &e);
            assert_int_equal(have.n, want.n);
            assert_memory_equal(have.v, want.v, want.n * sizeof *want.v);
            free(have.v);
        }
        free(want.v);
    }
    gemma->window = BPE_WINDOW;
    buf_free(&b);
}

/* A window that ends inside a character would start it as bytes. */
static void windows_end_between_characters(void **state)
{
    /* a, U+00E9, U+65E5, U+1F469, two invalid bytes, b */
    static const char text[] = "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x91\xA9\x97\xE6"
                               "b";
    static const size_t start[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 12};
    for (size_t at = 0; at < sizeof start / sizeof *start; at++)
        assert_int_equal(bpe_char_start(text, sizeof text - 1, at), start[at]);
    assert_int_equal(bpe_char_start(text, 5, 5), 5);
}

/* Work grows with the text, not with its square: bytes that go through the heap
 * of one window are counted, and windows overlap by an eighth. */
static void a_megabyte_without_blanks_is_little_work(void **state)
{
    struct buf b = {0};
    for (int run = 0; run < 2; run++) {
        make_text(&b, 1 << 20, false);
        if (run) /* nothing but one character */
            memset(b.data, 'a', b.len);
        size_t before = gemma->n_merged;
        struct ids r = encode(b.data, b.len);
        size_t merged = gemma->n_merged - before;
        print_message("%zu bytes: %zu ids, %zu bytes merged\n", b.len, r.n,
                      merged);
        assert_true(merged < b.len + b.len / 4);
        free(r.v);
    }
    buf_free(&b);
}

/* ---- bytes -------------------------------------------------------------- */

/* Tokens of bytes alone give the bytes back one by one; together they are
 * text. */
static void bytes_without_a_character(void **state)
{
    struct buf out = {0};
    for (unsigned c = 0; c < 256; c++) {
        size_t n;
        const char *p = bpe_token(gemma, (int32_t)gemma->byte_id[c], &n);
        assert_int_equal(n, 1);
        assert_int_equal((unsigned char)*p, c);
    }
    struct ids r = encode("\xC3\x28", 2);
    assert_int_equal(r.n, 2);
    assert_int_equal(r.v[0], gemma->byte_id[0xC3]);
    free(r.v);
    /* held back until the run ends */
    struct bpe_decoder d = {0};
    static const unsigned char sun[] = {0xE6, 0x97, 0xA5};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(
            bpe_decode(gemma, &d, (int32_t)gemma->byte_id[sun[i]], &out), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(bpe_decode(gemma, &d, (int32_t)gemma->ascii_id['a'], &out),
                     0);
    same_bytes(&out,
               "\xE6\x97\xA5"
               "a",
               4);
    /* a run that ends within a character is none */
    out.len = 0;
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(
            bpe_decode(gemma, &d, (int32_t)gemma->byte_id[sun[i % 3]], &out),
            0);
    assert_int_equal(bpe_decode_end(&d, &out), 0);
    assert_int_equal(out.len, 5 * 3);
    assert_memory_equal(out.data, "\xEF\xBF\xBD\xEF\xBF\xBD", 6);
    bpe_decoder_free(&d);
    buf_free(&out);
}

static void text_comes_back(void **state)
{
    struct buf text = {0}, out = {0};
    for (size_t round = 0; round < 50; round++) {
        struct buf raw = {0};
        make_text(&raw, 300, true);
        text.len = 0;
        assert_int_equal(utf8_sanitize(&text, raw.data, raw.len), 0);
        /* U+2581 becomes a blank */
        for (char *p; (p = memmem(text.data, text.len, "\xE2\x96\x81", 3));) {
            *p = ' ';
            memmove(p + 1, p + 3, text.len - (size_t)(p + 3 - text.data));
            text.len -= 2;
        }
        struct ids r = encode(text.data, text.len);
        decode(r, false, &out);
        same_bytes(&out, text.data, text.len);
        free(r.v);
        buf_free(&raw);
    }
    buf_free(&text);
    buf_free(&out);
}

/* ---- what is refused ---------------------------------------------------- */

/* The tokenizer with the first `from` replaced by `to`. */
static void refuses(const char *from, const char *to, const char *says)
{
    struct buf b = {0};
    struct bpe *bad;
    struct qwick_err e;
    const char *at =
        memmem(gemma_text.data, gemma_text.len, from, strlen(from));
    if (!at)
        fail_msg("no %s in the file", from);
    size_t before = (size_t)(at - gemma_text.data);
    size_t behind = before + strlen(from);
    assert_int_equal(buf_append(&b, gemma_text.data, before), 0);
    assert_int_equal(buf_puts(&b, to), 0);
    assert_int_equal(
        buf_append(&b, gemma_text.data + behind, gemma_text.len - behind), 0);
    if (bpe_open(&bad, "bad.json", b.data, b.len, &e) == 0)
        fail_msg("%s: accepted", to);
    if (e.code != QWICK_ERR_MODEL || !strstr(e.msg, says) ||
        !strstr(e.msg, "bad.json"))
        fail_msg("expected %s in: %s", says, e.msg);
    assert_null(bad);
    buf_free(&b);
}

static void other_kinds_are_refused(void **state)
{
    refuses("\"type\":\"Replace\"", "\"type\":\"Prepend\"", "normalizer");
    refuses("\"content\":\"\xE2\x96\x81\"", "\"content\":\"_\"",
            "normalizer");
    refuses("\"byte_fallback\":true", "\"byte_fallback\":false", "unk_token");
    refuses("\"byte_fallback\":true", "\"byte_fallback\":1", "byte_fallback");
    refuses("\"ignore_merges\":false", "\"ignore_merges\":true",
            "ignore_merges");
    refuses("\"type\":\"Split\"", "\"type\":\"Whitespace\"", "pre_tokenizer");
    refuses("\"invert\":false", "\"invert\":true", "pre_tokenizer");
    refuses("\"ByteFallback\"", "\"Metaspace\"", "decoder");
    refuses("\"Fuse\"", "\"Strip\"", "decoder");
    refuses("\"<0x41>\":", "\"<0x4141>\":", "no token for byte 0x41");
    refuses("\"unk_token\":\"<unk>\"", "\"unk_token\":3", "unk_token");
}

/* A text model's embedding may end before the last added tokens. */
static void added_tokens_without_a_row_are_text(void **state)
{
    struct bpe *b;
    struct qwick_err e;
    struct ids r = {0};
    static const char text[] = "a<table>b[multimodal]c";
    assert_ok(bpe_open(&b, "t.json", gemma_text.data, gemma_text.len, &e), &e);
    size_t n = bpe_size(b);
    int32_t table = bpe_added_id(b, "<table>");
    assert_int_equal(bpe_added_id(b, "[multimodal]"), (int32_t)n - 1);
    assert_int_equal(bpe_drop_from(b, n), 0);
    assert_int_equal(bpe_size(b), n);
    assert_int_equal(bpe_drop_from(b, n - 1), 0);
    assert_int_equal(bpe_size(b), n - 1);
    assert_int_equal(bpe_added_id(b, "[multimodal]"), -1);
    assert_int_equal(bpe_added_id(b, "<table>"), table);
    assert_ok(bpe_encode(b, text, strlen(text), true, &r.v, &r.n, &e), &e);
    bool found = false;
    for (size_t i = 0; i < r.n; i++) {
        assert_true((size_t)r.v[i] < n - 1);
        found = found || r.v[i] == table;
    }
    assert_true(found);
    /* tokens of the vocabulary stay */
    assert_int_equal(bpe_drop_from(b, (size_t)table - 1), -1);
    assert_int_equal(bpe_added_id(b, "<table>"), table);
    free(r.v);
    bpe_close(b);
}

static int setup(void **state)
{
    struct qwick_err e;
    char *data;
    size_t n;
    assert_ok(map_read_all(FOLDER "tokenizer.json", 1 << 24, &data, &n, &e),
              &e);
    assert_int_equal(buf_append(&gemma_text, data, n), 0);
    free(data);
    assert_ok(
        bpe_open(&gemma, "tokenizer.json", gemma_text.data, gemma_text.len, &e),
        &e);
    return 0;
}

static int teardown(void **state)
{
    bpe_close(gemma);
    buf_free(&gemma_text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_equal),
        cmocka_unit_test(windows_change_nothing),
        cmocka_unit_test(windows_end_between_characters),
        cmocka_unit_test(a_megabyte_without_blanks_is_little_work),
        cmocka_unit_test(bytes_without_a_character),
        cmocka_unit_test(text_comes_back),
        cmocka_unit_test(other_kinds_are_refused),
        cmocka_unit_test(added_tokens_without_a_row_are_text),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
