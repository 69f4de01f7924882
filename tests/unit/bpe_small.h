/* Qwen3's tokenizer, a small tokenizer, and calls of them.
 *
 * Qwen3's tokenizer.json is in $QWICK_TEST_TOKENIZER, by default where the
 * Makefile unpacks it. */
#ifndef TEST_BPE_SMALL_H
#define TEST_BPE_SMALL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/map.h"
#include "jsonl.h"
#include "random_text.h"
#include "test.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_load.h"

static struct bpe *qwen; /* Qwen3's tokenizer */
static struct buf qwen_text;

static inline struct bpe *open_text(const char *text, size_t n)
{
    struct bpe *b;
    struct qwick_err e;
    assert_ok(bpe_open(&b, "test.json", text, n, &e), &e);
    return b;
}

static inline struct ids encode(struct bpe *b, const char *s, size_t n,
                                bool special)
{
    struct ids r = {0};
    struct qwick_err e;
    assert_ok(bpe_encode(b, s, n, special, &r.v, &r.n, &e), &e);
    return r;
}

static inline void decode(struct bpe *b, struct ids r, bool skip_special,
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

static inline void same_ids(struct ids a, struct ids b)
{
    assert_int_equal(a.n, b.n);
    if (a.n)
        assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
}

/* The arrays of a GGUF file are refused, by a message with the word. */
static inline void refuses_parts(const struct bpe_parts *p, const char *word)
{
    struct bpe *b;
    struct qwick_err e;
    assert_int_equal(bpe_open_parts(&b, p, &e), -1);
    assert_null(b);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    if (strncmp(e.msg, "m.gguf: ", 8) != 0 || !strstr(e.msg, word))
        fail_msg("%s (wanted: %s)", e.msg, word);
}

/* Map a JSON file, and parse it. */
static inline struct json_doc *parse_file(const char *path, struct map *m)
{
    struct qwick_err e;
    struct json_doc *doc = NULL;
    assert_ok(map_open(m, path, &e), &e);
    assert_ok(json_parse(&doc, path, (const char *)m->data, m->size,
                         QWICK_ERR_MODEL, &e),
              &e);
    return doc;
}

static inline int qwen_setup(void **state)
{
    const char *dir = getenv("QWICK_TEST_TOKENIZER");
    char path[4096];
    struct map m;
    struct qwick_err e;
    snprintf(path, sizeof path, "%s/tokenizer.json",
             dir ? dir : "build/testdata/qwen3-tokenizer");
    if (map_open(&m, path, &e) < 0 ||
        bpe_open(&qwen, path, (const char *)m.data, m.size, &e) < 0 ||
        buf_append(&qwen_text, m.data, m.size) < 0) {
        fprintf(stderr, "tokenizer: %s\n", e.msg);
        return -1;
    }
    map_close(&m);
    return 0;
}

static inline int qwen_teardown(void **state)
{
    bpe_close(qwen);
    buf_free(&qwen_text);
    return 0;
}

/* Append the character that stands for a byte, as in a JSON string. */
static inline void put_byte_char(struct buf *b, unsigned c)
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
static inline void put_small(struct buf *b)
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
static inline void put_replaced(struct buf *b, const char *text,
                                const char *from, const char *to)
{
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("not there: %s", from);
    assert_int_equal(buf_append(b, text, (size_t)(at - text)), 0);
    assert_int_equal(buf_puts(b, to), 0);
    assert_int_equal(buf_puts(b, at + strlen(from)), 0);
}

/* Open a tokenizer.json with pairs of texts and their replacements. */
static inline struct bpe *open_replaced(const struct buf *original,
                                        const struct json_value *changes)
{
    struct buf text = {0};
    assert_int_equal(buf_append(&text, original->data, original->len + 1), 0);
    for (size_t i = 0; i < changes->len; i++) {
        const struct json_value *c = &changes->items[i];
        struct buf next = {0};
        put_replaced(&next, text.data, c->items[0].str, c->items[1].str);
        assert_int_equal(buf_putc(&next, '\0'), 0);
        buf_free(&text);
        text = next;
    }
    struct bpe *b = open_text(text.data, text.len - 1);
    buf_free(&text);
    return b;
}

/* Append the small tokenizer with `from` replaced by `to`. */
static inline void put_changed(struct buf *b, const char *from, const char *to)
{
    struct buf small = {0};
    put_small(&small);
    put_replaced(b, small.data, from, to);
    buf_free(&small);
}

static inline struct bpe *open_changed(const char *from, const char *to)
{
    struct buf b = {0};
    put_changed(&b, from, to);
    struct bpe *t = open_text(b.data, b.len);
    buf_free(&b);
    return t;
}

static inline void expect_ids(struct bpe *b, const char *s, const int32_t *want,
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

#endif
