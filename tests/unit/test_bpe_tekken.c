/* Mistral's tekken.json: goldens, equality with the obvious algorithm on random
 * vocabularies, special tokens, and files that are refused. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "bpe_small.h"
#include "file/json.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"

#define FOLDER "tests/golden/tekken/"

static struct buf golden;

static struct bpe *open_tekken(const struct buf *text)
{
    struct bpe *b;
    struct qwick_err e;
    assert_ok(bpe_open_tekken(&b, "tekken.json", text->data, text->len, &e),
              &e);
    return b;
}

static void goldens_are_equal(void **state)
{
    struct bpe *b = open_tekken(&golden);
    struct jsonl in = jsonl_open(FOLDER "ids.jsonl");
    while (jsonl_next(&in)) {
        const struct json_value *text = json_get(in.root, "text");
        struct ids want = ids_of(json_get(in.root, "ids"));
        struct ids have = encode(b, text->str, text->len, true);
        struct buf out = {0};
        same_ids(have, want);
        decode(b, have, false, &out);
        assert_int_equal(out.len, text->len);
        assert_memory_equal(out.data, text->str, text->len);
        buf_free(&out);
        free(have.v);
        free(want.v);
    }
    assert_true(in.n_lines > 100);
    jsonl_close(&in);
    bpe_close(b);
}

/* ---- special tokens ----------------------------------------------------- */

static void special_tokens(void **state)
{
    struct bpe *b = open_tekken(&golden);
    struct bpe_frame f;
    struct qwick_err e;
    assert_ok(bpe_get_frame(b, &f, &e), &e);
    assert_int_equal(f.n_before, 1);
    assert_int_equal(f.n_after, 0);
    assert_int_equal(f.before[0], 1);
    assert_int_equal(bpe_added_id(b, "[/INST]"), 4);
    assert_int_equal(bpe_added_id(b, "<SPECIAL_23>"), 23);
    assert_true(bpe_is_special(b, 23));
    assert_false(bpe_is_special(b, 24));
    EXPECT(b, "[INST]a", 3, 24 + 'a');
    bpe_close(b);
    /* a file without a list has the tokens of old files */
    struct buf text = {0};
    const char *list = strstr(golden.data, ",\"special_tokens\"");
    assert_int_equal(
        buf_append(&text, golden.data, (size_t)(list - golden.data)), 0);
    assert_int_equal(buf_puts(&text, "}"), 0);
    b = open_tekken(&text);
    EXPECT(b, "<s>[TOOL_CONTENT]<SPECIAL_20>", 1, 19, 20);
    bpe_close(b);
    /* one that is not for control is text */
    text.len = 0;
    put_replaced(&text, golden.data, "\"[INST]\",\"is_control\":true",
                 "\"[inst]\",\"is_control\":false");
    b = open_tekken(&text);
    EXPECT(b, "[inst]", 3);
    assert_false(bpe_is_special(b, 3));
    bpe_close(b);
    buf_free(&text);
}

/* ---- random vocabularies ------------------------------------------------ */

static uint64_t draws;

static size_t below(size_t n)
{
    return (size_t)(rng_uniform(11, draws++) * (double)n);
}

/* Tokens by rank: bytes, then letters that are joined at random, so that many
 * have several pairs that make them, or none. */
struct vocab {
    char text[400][16];
    size_t n;
};

static size_t rank_in(const struct vocab *v, const char *p, size_t n)
{
    if (n == 1)
        return (unsigned char)*p;
    for (size_t i = 256; i < v->n; i++)
        if (strlen(v->text[i]) == n && memcmp(v->text[i], p, n) == 0)
            return i;
    return SIZE_MAX;
}

static void random_vocab(struct vocab *v)
{
    v->n = 256;
    while (v->n < 300) {
        char s[16] = "";
        size_t n = 2 + below(v->n < 262 ? 1 : 5);
        for (size_t i = 0; i < n; i++)
            s[i] = (char)('a' + below(3));
        s[n] = '\0';
        if (rank_in(v, s, n) == SIZE_MAX)
            strcpy(v->text[v->n++], s);
    }
}

static void put_vocab(const struct vocab *v, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopq"
                                 "rstuvwxyz0123456789+/";
    const char *rest = strstr(golden.data, "\"version\"");
    const char *pattern = strstr(golden.data, ",\"num_vocab_tokens\"");
    assert_int_equal(
        buf_append(out, golden.data, (size_t)(pattern - golden.data)), 0);
    assert_int_equal(buf_printf(out,
                                ",\"default_vocab_size\":%zu,"
                                "\"default_num_special_tokens\":0,",
                                v->n),
                     0);
    const char *items = strstr(rest, "[{");
    assert_int_equal(buf_append(out, rest, (size_t)(items - rest)), 0);
    for (size_t i = 0; i < v->n; i++) {
        char byte = (char)i;
        const char *p = i < 256 ? &byte : v->text[i];
        size_t n = i < 256 ? 1 : strlen(p);
        assert_int_equal(buf_printf(out, "%s{\"rank\":%zu,\"token_bytes\":\"",
                                    i ? "," : "[", i),
                         0);
        for (size_t k = 0; k < n; k += 3) {
            uint32_t word = 0;
            for (size_t j = 0; j < 3; j++)
                word = word << 8 | (k + j < n ? (unsigned char)p[k + j] : 0);
            for (size_t j = 0; j < 4; j++)
                assert_int_equal(
                    buf_putc(out, j > n - k
                                      ? '='
                                      : digits[word >> (18 - 6 * j) & 63]),
                    0);
        }
        assert_int_equal(buf_puts(out, "\"}"), 0);
    }
    assert_int_equal(buf_puts(out, "]}"), 0);
}

/* tiktoken: a whole word that is a token; else the leftmost of the pairs whose
 * token has the lowest rank, again and again. */
static struct ids merge_slowly(const struct vocab *v, const char *p, size_t n)
{
    size_t end[64], n_parts = n;
    struct ids r = {malloc((n + 1) * sizeof *r.v), 0};
    for (size_t i = 0; i < n; i++)
        end[i] = i + 1;
    if (rank_in(v, p, n) != SIZE_MAX) {
        n_parts = 1;
        end[0] = n;
    }
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            size_t begin = i ? end[i - 1] : 0;
            size_t rank = rank_in(v, p + begin, end[i + 1] - begin);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == SIZE_MAX)
            break;
        memmove(end + at, end + at + 1, (--n_parts - at) * sizeof *end);
    }
    for (size_t i = 0, begin = 0; i < n_parts; begin = end[i++])
        r.v[r.n++] = (int32_t)rank_in(v, p + begin, end[i] - begin);
    return r;
}

static void equal_to_tiktoken(void **state)
{
    static struct vocab v;
    for (size_t round = 0; round < 60; round++) {
        struct buf text = {0};
        random_vocab(&v);
        put_vocab(&v, &text);
        struct bpe *b = open_tekken(&text);
        for (size_t i = 0; i < 200; i++) {
            char word[64];
            size_t n = 1 + below(round % 2 ? 12 : 60);
            for (size_t k = 0; k < n; k++)
                word[k] = (char)('a' + below(3));
            struct ids want = merge_slowly(&v, word, n);
            struct ids have = encode(b, word, n, true);
            same_ids(have, want);
            free(have.v);
            free(want.v);
        }
        bpe_close(b);
        buf_free(&text);
    }
}

/* ---- what is refused ---------------------------------------------------- */

static void bad_files(void **state)
{
    static const char *const t[][3] = {
        {"{\"config\"", "{\"Config\"", "config.pattern: \"missing\""},
        {"\\\\p{N}|", "\\\\p{N}{1,3}|", "config.pattern: \""},
        {"\"default_vocab_size\":", "\"default_vocab_size\":-",
         "config.default_vocab_size: is not an integer from 0 to 2097151"},
        {"\"default_vocab_size\":", "\"default_vocab_size\":1",
         "vocab: must be an array of at least"},
        {"\"default_num_special_tokens\":24",
         "\"default_num_special_tokens\":240000",
         "config.default_num_special_tokens: is not an integer from 0 to 702"},
        {"\"default_num_special_tokens\":24",
         "\"default_num_special_tokens\":702", "no token for byte 0x00"},
        {"\"rank\":7,", "\"rank\":8,", "vocab: item 7: rank is not 7"},
        {"\"AA==\"", "\"AA=\"", "vocab: item 0: token_bytes is not base64"},
        {"\"AA==\"", "\"A===\"", "vocab: item 0: token_bytes is not base64"},
        {"\"AA==\"", "\"\"", "vocab: item 0: token_bytes is not base64"},
        {"\"AA==\"", "\"A-==\"", "vocab: item 0: token_bytes is not base64"},
        {"\"AA==\"", "null", "vocab: item 0: token_bytes is not base64"},
        {"\"AA==\"", "\"AQ==\"", "has two ids, 24 and 25"},
        {"\"AA==\"", "\"AAAA\"", "no token for byte 0x00"},
        {"\"special_tokens\":[", "\"special_tokens\":7,\"x\":[",
         "special_tokens: must be an array, is a number"},
        {"{\"rank\":3,\"token_str\"", "{\"rank\":2,\"token_str\"",
         "special_tokens: item 3: rank is not a new integer below 24"},
        {"{\"rank\":3,\"token_str\"", "{\"rank\":24,\"token_str\"",
         "special_tokens: item 3: rank is not a new integer below 24"},
        {"\"token_str\":\"[INST]\"", "\"token_str\":\"\"",
         "special_tokens: item 3: token_str is not a string or empty"},
        {"\"token_str\":\"[INST]\"", "\"token_str\":\"<s>\"",
         "\"<s>\" has id 3, but 1 in vocab"},
        {"\"vocab\":", "\"vocab\":x", "tekken.json"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf text = {0};
        struct bpe *b = (struct bpe *)&text;
        struct qwick_err e;
        put_replaced(&text, golden.data, t[i][0], t[i][1]);
        if (bpe_open_tekken(&b, "tekken.json", text.data, text.len, &e) != -1)
            fail_msg("accepted: %s", t[i][1]);
        if (!strstr(e.msg, t[i][2]) || strncmp(e.msg, "tekken.json: ", 13))
            fail_msg("\"%s\" gives \"%s\"", t[i][1], e.msg);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        assert_null(b);
        buf_free(&text);
    }
}

static int setup(void **state)
{
    struct map m;
    struct qwick_err e;
    assert_ok(map_open(&m, FOLDER "tekken.json", &e), &e);
    assert_int_equal(buf_append(&golden, m.data, m.size), 0);
    assert_int_equal(buf_putc(&golden, '\0'), 0);
    golden.len--;
    map_close(&m);
    return 0;
}

static int teardown(void **state)
{
    buf_free(&golden);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_equal),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(equal_to_tiktoken),
        cmocka_unit_test(bad_files),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
