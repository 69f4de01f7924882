/* SentencePiece's BPE from the arrays of a GGUF file. It equals the
 * tokenizer.json with the same vocabulary, and a simple algorithm on
 * vocabularies where merging by scores differs from merging by pairs. Broken
 * arrays are refused. */
#include "test.h"
#include <math.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "bpe_small.h"
#include "file/json.h"
#include "file/map.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_int.h"

#define FOLDER "tests/golden/gemma-tokenizer/"

enum { MAX_IDS = 1 << 13 };

/* The arrays that a converter writes. */
struct arrays {
    struct buf tokens;
    unsigned char kinds[MAX_IDS];
    float scores[MAX_IDS];
    size_t n;
};

static void add_n(struct arrays *a, enum bpe_kind kind, float score,
                  const char *s, size_t n)
{
    uint64_t len = n;
    assert_true(a->n < MAX_IDS);
    assert_int_equal(buf_append(&a->tokens, &len, 8), 0);
    assert_int_equal(buf_append(&a->tokens, s, n), 0);
    a->kinds[a->n] = (unsigned char)kind;
    a->scores[a->n++] = score;
}

static void add(struct arrays *a, enum bpe_kind kind, float score,
                const char *s)
{
    add_n(a, kind, score, s, strlen(s));
}

/* The tokens <0x00> to <0xFF>, which get the ids 0 to 255. */
static void add_bytes(struct arrays *a)
{
    for (unsigned c = 0; c < 256; c++) {
        char s[8];
        snprintf(s, sizeof s, "<0x%02X>", c);
        add(a, BPE_KIND_BYTE, 0, s);
    }
}

static struct bpe_parts parts_of(const struct arrays *a)
{
    return (struct bpe_parts){
        .name = "m.gguf",
        .tokens_name = "tokens",
        .merges_name = "scores",
        .tokens = {(const unsigned char *)a->tokens.data, a->n, a->tokens.len},
        .kinds = a->kinds,
        .scores = a->scores,
        .before = -1,
        .after = -1};
}

/* Open, and free the arrays: the tokenizer keeps no reference to them. */
static struct bpe *open_arrays(struct arrays *a, bool space_prefix)
{
    struct bpe *b;
    struct qwick_err e;
    struct bpe_parts p = parts_of(a);
    p.space_prefix = space_prefix;
    assert_ok(bpe_open_parts(&b, &p, &e), &e);
    buf_free(&a->tokens);
    memset(a, 0, sizeof *a);
    return b;
}

static void assert_ids(struct ids have, struct ids want, const char *what)
{
    if (have.n != want.n ||
        (want.n && memcmp(have.v, want.v, want.n * sizeof *want.v) != 0))
        fail_msg("\"%s\" gives other ids", what);
}

/* ---- the golden tokenizer ------------------------------------------------ */

static int32_t id_of(const struct json_value *v)
{
    int64_t id;
    assert_int_equal(json_int(v, 0, MAX_IDS - 1, &id), 0);
    return (int32_t)id;
}

/* A merged token has minus its rank as score, as in Gemma's files. */
static void read_golden(const struct json_value *root, struct arrays *a)
{
    static const struct json_value *by_id[MAX_IDS];
    static float scores[MAX_IDS];
    static unsigned char kinds[MAX_IDS];
    const struct json_value *model = json_get(root, "model");
    const struct json_value *vocab = json_get(model, "vocab");
    const struct json_value *added = json_get(root, "added_tokens");
    const struct json_value *merges = json_get(model, "merges");
    size_t n = 0;
    for (size_t i = 0; i < vocab->len; i++) {
        int32_t id = id_of(&vocab->items[i]);
        by_id[id] = &vocab->keys[i];
        bool byte =
            bpe_fallback_byte(vocab->keys[i].str, vocab->keys[i].len) >= 0;
        kinds[id] = byte ? BPE_KIND_BYTE : BPE_KIND_NORMAL;
        scores[id] = -1e9f;
        n = (size_t)id >= n ? (size_t)id + 1 : n;
    }
    for (size_t i = 0; i < added->len; i++) {
        int32_t id = id_of(json_get(&added->items[i], "id"));
        by_id[id] = json_get(&added->items[i], "content");
        kinds[id] = json_get(&added->items[i], "special")->boolean
                        ? BPE_KIND_CONTROL
                        : BPE_KIND_ADDED;
        n = (size_t)id >= n ? (size_t)id + 1 : n;
    }
    for (size_t i = merges->len; i-- > 0;) {
        const struct json_value *m = &merges->items[i];
        char both[512];
        int len = snprintf(both, sizeof both, "%s%s", m->items[0].str,
                           m->items[1].str);
        assert_true(len > 0 && (size_t)len < sizeof both);
        const struct json_value *made = json_get_n(vocab, both, (size_t)len);
        assert_non_null(made);
        scores[id_of(made)] = -(float)i;
    }
    for (size_t i = 0; i < n; i++) {
        assert_non_null(by_id[i]);
        add_n(a, kinds[i], scores[i], by_id[i]->str, by_id[i]->len);
    }
}

static struct bpe *open_golden(void)
{
    static struct arrays a;
    struct map m;
    struct json_doc *doc = parse_file(FOLDER "tokenizer.json", &m);
    read_golden(json_root(doc), &a);
    json_free(doc);
    map_close(&m);
    return open_arrays(&a, false);
}

static void check_decode(struct bpe *b, struct ids r, bool skip_special,
                         const struct json_value *text)
{
    struct bpe_decoder d = {0};
    struct buf out = {0};
    for (size_t i = 0; i < r.n; i++)
        if (!skip_special || !bpe_is_special(b, r.v[i]))
            assert_int_equal(bpe_decode(b, &d, r.v[i], &out), 0);
    assert_int_equal(bpe_decode_end(&d, &out), 0);
    assert_int_equal(out.len, text->len);
    if (out.len)
        assert_memory_equal(out.data, text->str, out.len);
    bpe_decoder_free(&d);
    buf_free(&out);
}

static void goldens_are_equal(void **state)
{
    struct bpe *b = open_golden();
    struct jsonl in = jsonl_open(FOLDER "visible.jsonl");
    size_t n_encoded = 0, n_decoded = 0;
    while (jsonl_next(&in)) {
        const struct json_value *root = in.root;
        const struct json_value *text = json_get(root, "text");
        const struct json_value *skip = json_get(root, "skip_special");
        struct ids want = ids_of(json_get(root, "ids"));
        if (skip) {
            check_decode(b, want, skip->boolean, text);
            n_decoded++;
        } else {
            struct ids have = encode(b, text->str, text->len, true);
            assert_ids(have, want, text->str);
            free(have.v);
            n_encoded++;
        }
        free(want.v);
    }
    jsonl_close(&in);
    print_message("%zu lines encoded, %zu decoded\n", n_encoded, n_decoded);
    assert_true(n_encoded > 150 && n_decoded > 100);
    bpe_close(b);
}

/* ---- the obvious algorithm ----------------------------------------------- */

static uint64_t draws;

static size_t below(size_t n)
{
    return (size_t)(rng_uniform(11, draws++) * (double)n);
}

/* A vocabulary in which many tokens can be made in several ways, with few
 * different scores, so that many are equal. */
static void random_vocabulary(struct arrays *a)
{
    static const char *const chars[] = {"a", "b", "c", "\xC3\xA9",
                                        "\xE2\x96\x81"};
    char all[200][32];
    size_t n = 0;
    add_bytes(a);
    /* U+00E9 is not a token by itself, but other tokens contain it */
    for (size_t i = 0; i < 5; i++)
        if (i != 3)
            add(a, BPE_KIND_NORMAL, -9, strcpy(all[n++], chars[i]));
    while (n < 200) {
        char s[32] = "";
        for (size_t len = 2 + below(4); len > 0; len--)
            strcat(s, chars[below(5)]);
        bool known = false;
        for (size_t i = 0; i < n; i++)
            known |= strcmp(all[i], s) == 0;
        if (!known)
            add(a, below(20) ? BPE_KIND_NORMAL : BPE_KIND_ADDED,
                -(float)below(12), strcpy(all[n++], s));
    }
}

/* The leftmost of the pairs whose token comes first, again and again. p has
 * blanks for U+2581, and BPE_PAD bytes after it. */
static struct ids merge_slowly(struct bpe *b, const char *p, size_t n)
{
    size_t *at = malloc((n + 2) * sizeof *at), k = 0;
    struct ids r = {malloc((n + 1) * sizeof *r.v), 0};
    for (size_t i = 0; i < n;) {
        size_t len = utf8_decode(p + i, n - i, NULL, NULL);
        at[k++] = i;
        i += len ? len : 1;
    }
    at[k] = n;
    for (;;) {
        uint32_t best = BPE_NO_RANK;
        size_t where = 0;
        for (size_t i = 0; i + 1 < k; i++) {
            uint32_t id = bpe_piece_find(b, p + at[i], at[i + 2] - at[i]);
            if (id != BPE_NO_ID && b->order[id] < best) {
                best = b->order[id];
                where = i;
            }
        }
        if (best == BPE_NO_RANK)
            break;
        memmove(at + where + 1, at + where + 2, (k - where - 1) * sizeof *at);
        k--;
    }
    for (size_t i = 0; i < k; i++) {
        uint32_t id = bpe_piece_find(b, p + at[i], at[i + 1] - at[i]);
        for (size_t j = at[i]; id == BPE_NO_ID && j < at[i + 1]; j++)
            r.v[r.n++] = (int32_t)(unsigned char)p[j];
        if (id != BPE_NO_ID)
            r.v[r.n++] = (int32_t)id;
    }
    free(at);
    return r;
}

static void windows_change_nothing(void **state)
{
    static struct arrays a;
    static const char *const parts[] = {"a",  "b",        "c",   "ab",
                                        "aa", "\xC3\xA9", " ",   "\xE2\x96\x81",
                                        "d",  "\xFF",     "\xC3"};
    static const size_t windows[] = {16, 40, 256, BPE_WINDOW};
    for (size_t round = 0; round < 60; round++) {
        struct buf text = {0}, copy = {0};
        random_vocabulary(&a);
        struct bpe *b = open_arrays(&a, false);
        for (size_t n = 5 + below(round % 2 ? 40 : 900); text.len < n;)
            assert_int_equal(
                buf_puts(&text, parts[below(sizeof parts / sizeof *parts)]), 0);
        assert_int_equal(bpe_pieces_text(text.data, text.len,
                                         b->prefix == BPE_PREFIX_EACH, &copy),
                         0);
        struct ids want = merge_slowly(b, copy.data, copy.len);
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
            b->window = windows[i];
            struct ids have = encode(b, text.data, text.len, false);
            assert_ids(have, want, text.data);
            free(have.v);
        }
        free(want.v);
        buf_free(&text);
        buf_free(&copy);
        bpe_close(b);
    }
}

/* As in test_bpe_chars.c: bytes that go through the heap are counted. */
static void a_megabyte_without_blanks_is_little_work(void **state)
{
    struct bpe *b = open_golden();
    struct buf text = {0};
    for (int run = 0; run < 2; run++) {
        static const char *const parts[] = {"configuration", "ing",  "\t\t",
                                            "\xE6\x97\xA5",  "0123", "(){"};
        text.len = 0;
        while (text.len < 1 << 20)
            assert_int_equal(buf_puts(&text, run ? "a" : parts[below(6)]), 0);
        size_t before = b->n_merged;
        struct ids r = encode(b, text.data, text.len, false);
        assert_true(b->n_merged - before < text.len + text.len / 4);
        free(r.v);
    }
    buf_free(&text);
    bpe_close(b);
}

/* ---- kinds of tokens ----------------------------------------------------- */

static void expect(struct bpe *b, const char *text, bool special,
                   const int32_t *want, size_t n)
{
    struct ids have = encode(b, text, strlen(text), special);
    assert_ids(have, (struct ids){(int32_t *)(uintptr_t)want, n}, text);
    free(have.v);
}

#define EXPECT_IDS(b, text, special, ...)                    \
    expect(b, text, special, (const int32_t[]){__VA_ARGS__}, \
           sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t))

enum { A = 256, B, BLANK, AB, BOS, RUN, TAG, BLANK_A, OPEN, N_SMALL };

static void small(struct arrays *a)
{
    add_bytes(a);
    add(a, BPE_KIND_NORMAL, -5, "a");
    add(a, BPE_KIND_NORMAL, -6, "b");
    add(a, BPE_KIND_NORMAL, -7, "\xE2\x96\x81");
    add(a, BPE_KIND_NORMAL, -2, "ab");
    add(a, BPE_KIND_CONTROL, 0, "<bos>");
    add(a, BPE_KIND_ADDED, -1000, "\xE2\x96\x81\xE2\x96\x81");
    add(a, BPE_KIND_ADDED, -1000, "[b]");
    add(a, BPE_KIND_NORMAL, -1,
        "\xE2\x96\x81"
        "a");
    add(a, BPE_KIND_NORMAL, -8, "[");
}

static void kinds_of_tokens(void **state)
{
    static struct arrays a;
    size_t n;
    small(&a);
    struct bpe *b = open_arrays(&a, false);
    assert_int_equal(bpe_size(b), N_SMALL);
    EXPECT_IDS(b, " ab", false, BLANK_A, B);
    /* a run of blanks goes before tokens of any score */
    EXPECT_IDS(b, "  ab", false, RUN, AB);
    EXPECT_IDS(b, "\xE2\x96\x81 ab", false, RUN, AB);
    /* added tokens are found in a text where that is allowed, others never */
    EXPECT_IDS(b, "a<bos>b[b]", true, A, BOS, B, TAG);
    EXPECT_IDS(b, "[b]", false, OPEN, B, ']');
    EXPECT_IDS(b, "<bos>", false, '<', B, 'o', 's', '>');
    EXPECT_IDS(b, "<0x41>", true, '<', '0', 'x', '4', '1', '>');
    EXPECT_IDS(b, "\xE2\x82\xAC", false, 0xE2, 0x82, 0xAC);
    assert_true(bpe_is_special(b, BOS));
    assert_true(bpe_is_added(b, TAG) && !bpe_is_special(b, TAG));
    assert_memory_equal(bpe_token(b, RUN, &n), "  ", 2);
    assert_int_equal(n, 2);
    assert_memory_equal(bpe_token(b, 'x', &n), "x", 1);
    bpe_close(b);

    small(&a);
    b = open_arrays(&a, true);
    EXPECT_IDS(b, "ab<bos>b", true, BLANK_A, B, BOS, BLANK, B);
    expect(b, "", true, NULL, 0);
    EXPECT_IDS(b, "<bos>", true, BOS);
    bpe_close(b);
}

/* ---- refused --------------------------------------------------------------
 */

static void refuses(struct arrays *a, const char *word)
{
    struct bpe_parts p = parts_of(a);
    refuses_parts(&p, word);
    buf_free(&a->tokens);
    memset(a, 0, sizeof *a);
}

static void bad_arrays(void **state)
{
    static struct arrays a;
    static const struct {
        enum bpe_kind kind;
        float score;
        const char *text, *error;
    } rows[] = {
        {BPE_KIND_NORMAL, NAN, "x", "scores: token 265, \"x\": the score is"},
        {BPE_KIND_NORMAL, INFINITY, "x", "the score is inf"},
        {BPE_KIND_NORMAL, -INFINITY, "x", "the score is -inf"},
        {BPE_KIND_NORMAL, 0, "", "token 265 has 0 bytes"},
        {BPE_KIND_NORMAL, 0, "ab", "tokens: \"ab\" has two ids, 259 and 265"},
        {BPE_KIND_NORMAL, 0, " a", "tokens: \" a\" has two ids, 263 and 265"},
        {BPE_KIND_ADDED, 0, "[b]", "tokens: \"[b]\" has two ids, 262 and 265"},
        {BPE_KIND_CONTROL, 0, "ab", "tokens: \"ab\" has id 265, but 259"},
        {BPE_KIND_CONTROL, 0, "<bos>", "tokens: \"<bos>\" has id "},
        {BPE_KIND_BYTE, 0, "<0x41>", "byte 0x41 has two ids, 65 and 265"},
        {BPE_KIND_BYTE, 0, "A", "\"A\", is of type byte, but"},
        {BPE_KIND_BYTE, 0, "<0x4G>", "\"<0x4G>\", is of type byte, but"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        small(&a);
        add(&a, rows[i].kind, rows[i].score, rows[i].text);
        refuses(&a, rows[i].error);
    }
    small(&a);
    a.kinds[0x78] = BPE_KIND_UNUSED;
    refuses(&a, "tokens: no token for byte 0x78");
    small(&a);
    a.kinds[0x78] = BPE_KIND_NORMAL;
    refuses(&a, "tokens: no token for byte 0x78");
    refuses(&a, "tokens: no token for byte 0x00");
    char *large = calloc(1, 1025);
    small(&a);
    add_n(&a, BPE_KIND_ADDED, 0, large, 1025);
    refuses(&a, "token 265 has 1025 bytes, must have from 1 to 1024");
    free(large);
    /* scores that nothing reads */
    small(&a);
    add(&a, BPE_KIND_CONTROL, NAN, "<x>");
    add(&a, BPE_KIND_ADDED, -INFINITY, "<y>");
    bpe_close(open_arrays(&a, false));
}

/* Encode all sorts of bytes, and look at each id. */
static void use(struct bpe *b)
{
    char text[300];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(below(2) ? "ab <0x41>[b]\xE2\x96\x81"[below(15)]
                                  : (int)below(256));
    for (int special = 0; special < 2; special++) {
        struct ids r = encode(b, text, sizeof text, special);
        struct bpe_decoder d = {0};
        struct buf out = {0};
        for (size_t i = 0; i < r.n; i++) {
            assert_true(bpe_has(b, r.v[i]));
            assert_int_equal(bpe_decode(b, &d, r.v[i], &out), 0);
        }
        assert_int_equal(bpe_decode_end(&d, &out), 0);
        bpe_decoder_free(&d);
        buf_free(&out);
        free(r.v);
    }
    for (int32_t id = -1; (size_t)id + 1 < bpe_size(b) + 2; id++) {
        size_t n;
        assert_true((bpe_token(b, id, &n) != NULL) == bpe_has(b, id));
    }
}

/* Changed arrays are refused with a message, or make a tokenizer that works. */
static void changed_arrays(void **state)
{
    static struct arrays a;
    static const float scores[] = {0, -0.0f, 1e38f, -1e38f, 1e-45f, -1};
    size_t n_open = 0;
    for (size_t round = 0; round < 3000; round++) {
        struct bpe *b;
        struct qwick_err e = {0};
        small(&a);
        for (size_t k = 1 + below(3); k > 0; k--) {
            /* choose other tokens than bytes more often */
            size_t i = below(4) ? A + below(N_SMALL - A) : below(A);
            a.kinds[i] = (unsigned char)below(5);
            a.scores[i] = scores[below(sizeof scores / sizeof *scores)];
        }
        /* a byte of a token of one byte, behind its length */
        char *p = a.tokens.data + 256 * 14 + 8;
        assert_int_equal(*p, 'a');
        if (below(2))
            *p = (char)below(256);
        struct bpe_parts parts = parts_of(&a);
        parts.space_prefix = below(2);
        if (bpe_open_parts(&b, &parts, &e) == 0) {
            n_open++;
            use(b);
            bpe_close(b);
        } else {
            assert_int_equal(e.code, QWICK_ERR_MODEL);
            assert_int_equal(strncmp(e.msg, "m.gguf: ", 8), 0);
        }
        buf_free(&a.tokens);
        memset(&a, 0, sizeof a);
    }
    print_message("%zu of 3000 open\n", n_open);
    assert_true(n_open > 300 && n_open < 2900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_equal),
        cmocka_unit_test(windows_change_nothing),
        cmocka_unit_test(a_megabyte_without_blanks_is_little_work),
        cmocka_unit_test(kinds_of_tokens),
        cmocka_unit_test(bad_arrays),
        cmocka_unit_test(changed_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
