/* The tokenizer from the arrays of a GGUF file: equal to the tokenizer from
 * tokenizer.json, for Qwen3 and for the demo model; and refused files.
 *
 * Needs Qwen3's tokenizer.json: $QWICK_TEST_TOKENIZER is its directory, by
 * default where the Makefile unpacks it. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpe_small.h"
#include "few_cpus.h"
#include "file/json.h"
#include "file/map.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"

enum { MAX_IDS = 1 << 18 };

/* The arrays that a converter writes. */
struct arrays {
    struct buf tokens, merges;
    unsigned char *kinds;
    size_t n, n_merges;
};

static void put_string(struct buf *b, const char *s, size_t n)
{
    uint64_t len = n;
    assert_int_equal(buf_append(b, &len, 8), 0);
    assert_int_equal(buf_append(b, s, n), 0);
}

/* Fill by_id with the spelling of each id; NULL: the id has no token. */
static void read_ids(const struct json_value *root, struct arrays *a,
                     const struct json_value **by_id)
{
    const struct json_value *vocab = json_get(json_get(root, "model"), "vocab");
    const struct json_value *added = json_get(root, "added_tokens");
    int64_t id;
    for (size_t i = 0; i < vocab->len; i++) {
        assert_int_equal(json_int(&vocab->items[i], 0, MAX_IDS - 1, &id), 0);
        by_id[id] = &vocab->keys[i];
        a->kinds[id] = BPE_KIND_NORMAL;
        a->n = (size_t)id + 1 > a->n ? (size_t)id + 1 : a->n;
    }
    for (size_t i = 0; i < added->len; i++) {
        const struct json_value *t = &added->items[i];
        assert_int_equal(json_int(json_get(t, "id"), 0, MAX_IDS - 1, &id), 0);
        by_id[id] = json_get(t, "content");
        a->kinds[id] =
            json_get(t, "special")->boolean ? BPE_KIND_CONTROL : BPE_KIND_ADDED;
        a->n = (size_t)id + 1 > a->n ? (size_t)id + 1 : a->n;
    }
}

static void read_arrays(const struct json_value *root, struct arrays *a)
{
    static const struct json_value *by_id[MAX_IDS];
    const struct json_value *merges =
        json_get(json_get(root, "model"), "merges");
    memset(by_id, 0, sizeof by_id);
    *a = (struct arrays){.kinds = malloc(MAX_IDS)};
    assert_non_null(a->kinds);
    memset(a->kinds, BPE_KIND_UNUSED, MAX_IDS);
    read_ids(root, a, by_id);
    a->n += 5; /* converters pad the vocabulary */
    for (size_t i = 0; i < a->n; i++)
        if (by_id[i])
            put_string(&a->tokens, by_id[i]->str, by_id[i]->len);
        else
            put_string(&a->tokens, "[PAD]", 5);
    a->n_merges = merges->len;
    for (size_t i = 0; i < merges->len; i++) {
        const struct json_value *m = &merges->items[i];
        struct buf both = {0};
        if (json_is(m, JSON_STRING)) {
            put_string(&a->merges, m->str, m->len);
            continue;
        }
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(
                buf_append(&both, m->items[k].str, m->items[k].len), 0);
            assert_int_equal(k ? 0 : buf_putc(&both, ' '), 0);
        }
        put_string(&a->merges, both.data, both.len);
        buf_free(&both);
    }
}

static void arrays_free(struct arrays *a)
{
    buf_free(&a->tokens);
    buf_free(&a->merges);
    free(a->kinds);
}

static struct bpe_parts parts_of(const struct arrays *a)
{
    return (struct bpe_parts){
        .name = "m.gguf",
        .tokens_name = "tokens",
        .merges_name = "merges",
        .tokens = {(const unsigned char *)a->tokens.data, a->n, a->tokens.len},
        .merges = {(const unsigned char *)a->merges.data, a->n_merges,
                   a->merges.len},
        .kinds = a->kinds,
        .nfc = true,
        .before = -1,
        .after = -1};
}

/* ---- equal to tokenizer.json's ------------------------------------------ */

static void same_encoding(struct bpe *a, struct bpe *b, const char *s, size_t n)
{
    for (int special = 0; special < 2; special++) {
        int32_t *x = NULL, *y = NULL;
        size_t nx = 0, ny = 0;
        assert_int_equal(bpe_encode(a, s, n, special, &x, &nx, NULL), 0);
        assert_int_equal(bpe_encode(b, s, n, special, &y, &ny, NULL), 0);
        assert_int_equal(nx, ny);
        if (nx)
            assert_memory_equal(x, y, nx * sizeof *x);
        free(x);
        free(y);
    }
}

static void same_tokens(struct bpe *a, struct bpe *b)
{
    struct bpe_start *starts = malloc(bpe_size(a) * sizeof *starts);
    assert_non_null(starts);
    assert_int_equal(bpe_size(a), bpe_size(b));
    bpe_find_starts(a, starts, bpe_size(a));
    for (int32_t id = 0; (size_t)id < bpe_size(a); id++) {
        size_t n, m;
        const char *s = bpe_token(a, id, &n), *t = bpe_token(b, id, &m);
        assert_int_equal(bpe_has(a, id), bpe_has(b, id));
        assert_int_equal(bpe_is_added(a, id), bpe_is_added(b, id));
        assert_int_equal(bpe_is_special(a, id), bpe_is_special(b, id));
        assert_int_equal(n, m);
        if (n)
            assert_memory_equal(s, t, n);
        assert_true(n ? starts[id].n >= n : starts[id].n == 0);
        if (n)
            assert_int_equal(starts[id].byte, *s > ' ' && *s < 0x7F ? *s : 0);
    }
    free(starts);
}

/* Encode the texts of the goldens with both, and compare the ids; with want_ids
 * also with the golden's ids. */
static size_t check_goldens(struct bpe *a, struct bpe *b, bool want_ids)
{
    struct jsonl in = jsonl_open("tests/golden/text/tokenizer.jsonl");
    while (jsonl_next(&in)) {
        const struct json_value *text = json_get(in.root, "text");
        const struct json_value *note = json_get(in.root, "note");
        same_encoding(a, b, text->str, text->len);
        bool sensitive =
            note && memmem(note->str, note->len, "unicode-version", 15);
        if (want_ids && !sensitive) {
            struct ids want = ids_of(json_get(in.root, "ids"));
            int32_t *got = NULL;
            size_t n_got = 0;
            assert_int_equal(
                bpe_encode(b, text->str, text->len, true, &got, &n_got, NULL),
                0);
            assert_int_equal(n_got, want.n);
            if (want.n)
                assert_memory_equal(got, want.v, want.n * sizeof *got);
            free(got);
            free(want.v);
        }
    }
    jsonl_close(&in);
    return in.n_lines;
}

/* The tokenizer gives the arrays back, byte for byte. */
static void exports_arrays(const struct bpe *b, const struct arrays *a)
{
    struct buf tokens = {0}, merges = {0}, one = {0};
    assert_null(bpe_export_lacks(b));
    for (size_t id = 0; id < a->n; id++) {
        enum bpe_kind kind;
        one.len = 0;
        assert_int_equal(bpe_export_token(b, id, &one, &kind), 0);
        assert_int_equal(kind, a->kinds[id]);
        if (kind == BPE_KIND_UNUSED)
            put_string(&tokens, "[PAD]", 5);
        else
            put_string(&tokens, one.data, one.len);
    }
    assert_int_equal(bpe_export_merges(b), a->n_merges);
    for (size_t rank = 0; rank < a->n_merges; rank++) {
        one.len = 0;
        assert_int_equal(bpe_export_merge(b, rank, &one), 0);
        put_string(&merges, one.data, one.len);
    }
    assert_int_equal(tokens.len, a->tokens.len);
    assert_memory_equal(tokens.data, a->tokens.data, tokens.len);
    assert_int_equal(merges.len, a->merges.len);
    assert_memory_equal(merges.data, a->merges.data, merges.len);
    buf_free(&tokens);
    buf_free(&merges);
    buf_free(&one);
}

/* two: with the second thread, where there are two CPUs. */
static void equal_to_json(const char *path, bool want_ids, bool two)
{
    struct map m;
    struct json_doc *doc = parse_file(path, &m);
    struct arrays a;
    struct bpe *by_json, *by_parts;
    struct qwick_err e;
    read_arrays(json_root(doc), &a);
    json_free(doc);
    struct bpe_parts parts = parts_of(&a);
    use_cpus(two);
    assert_ok(bpe_open(&by_json, path, (const char *)m.data, m.size, &e) ||
                  bpe_open_parts(&by_parts, &parts, &e),
              &e);
    map_close(&m);
    exports_arrays(by_json, &a);
    same_tokens(by_json, by_parts);
    /* now that same_tokens has turned spellings into bytes */
    exports_arrays(by_json, &a);
    exports_arrays(by_parts, &a);
    arrays_free(&a); /* the tokenizer keeps no reference to them */
    assert_true(check_goldens(by_json, by_parts, want_ids) > 500);
    bpe_close(by_json);
    bpe_close(by_parts);
}

static void equal_for_the_demo_model(void **state)
{
    equal_to_json("models/demo/tokenizer.json", false, false);
}

/* Large: a second thread reads the merges. */
static const char *qwen3_path(void)
{
    static char path[512];
    const char *dir = getenv("QWICK_TEST_TOKENIZER");
    snprintf(path, sizeof path, "%s/tokenizer.json",
             dir ? dir : "build/testdata/qwen3-tokenizer");
    return path;
}

static void equal_for_qwen3(void **state)
{
    equal_to_json(qwen3_path(), true, false);
}

static void equal_for_qwen3_with_two_threads(void **state)
{
    for (int i = 0; i < 3; i++)
        equal_to_json(qwen3_path(), true, true);
}

/* ---- a small tokenizer, and parts that are refused ---------------------- */

/* Make a small tokenizer: 256 tokens of one byte, "ab", "abc", a control token
 * and a user token. */
static void small(struct arrays *a)
{
    *a = (struct arrays){.kinds = calloc(MAX_IDS, 1)};
    unsigned next = 256;
    for (unsigned c = 0; c < 256; c++) {
        bool plain = (c >= 33 && c <= 126) || (c >= 161 && c != 173);
        unsigned u = plain ? c : next++;
        char s[2] = {(char)(0xC0 | u >> 6), (char)(0x80 | (u & 63))};
        if (u < 128)
            s[0] = (char)u;
        put_string(&a->tokens, s, u < 128 ? 1 : 2);
    }
    put_string(&a->tokens, "ab", 2);
    put_string(&a->tokens, "abc", 3);
    put_string(&a->tokens, "<|end|>", 7);
    put_string(&a->tokens, "<mine>", 6);
    a->n = 260;
    a->kinds[258] = BPE_KIND_CONTROL;
    a->kinds[259] = BPE_KIND_ADDED;
    put_string(&a->merges, "a b", 3);
    put_string(&a->merges, "ab c", 4);
    a->n_merges = 2;
}

static void frames_and_ids(void **state)
{
    struct arrays a;
    struct bpe *b;
    struct bpe_frame f;
    int32_t *ids = NULL;
    size_t n = 0;
    static const int32_t want[] = {257, 'd', 258, 259};
    small(&a);
    struct bpe_parts p = parts_of(&a);
    p.before = 259;
    p.after = 258;
    assert_int_equal(bpe_open_parts(&b, &p, NULL), 0);
    assert_int_equal(
        bpe_encode(b, "abcd<|end|><mine>", 17, true, &ids, &n, NULL), 0);
    assert_int_equal(n, 4);
    assert_memory_equal(ids, want, sizeof want);
    assert_int_equal(bpe_get_frame(b, &f, NULL), 0);
    assert_int_equal(f.n_before, 1);
    assert_int_equal(f.n_after, 1);
    assert_int_equal(f.before[0], 259);
    assert_int_equal(f.after[0], 258);
    assert_true(bpe_is_special(b, 258));
    assert_false(bpe_is_special(b, 259));
    bpe_close(b);
    p.before = -1;
    assert_int_equal(bpe_open_parts(&b, &p, NULL), 0);
    assert_int_equal(bpe_get_frame(b, &f, NULL), 0);
    assert_int_equal(f.n_before, 0);
    assert_int_equal(f.after[0], 258);
    bpe_close(b);
    free(ids);
    arrays_free(&a);
}

static void refuses(struct arrays *a, const char *word)
{
    struct bpe_parts p = parts_of(a);
    refuses_parts(&p, word);
    arrays_free(a);
}

static void add_merge(struct arrays *a, const char *s)
{
    put_string(&a->merges, s, strlen(s));
    a->n_merges++;
}

static void bad_arrays(void **state)
{
    struct arrays a;
    static const char *const merges[] = {"ab", "",   " ",     "a",
                                         "a ", " b", "a b c", "a  b"};
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        small(&a);
        add_merge(&a, merges[i]);
        refuses(&a, "merges: merge 2");
    }
    small(&a);
    add_merge(&a, "a zz");
    refuses(&a, "\"zz\" is not in the vocabulary");
    small(&a);
    add_merge(&a, "b c");
    refuses(&a, "\"bc\" is not in the vocabulary");
    small(&a);
    put_string(&a.tokens, "ab", 2);
    a.n++;
    refuses(&a, "tokens: \"ab\" has two ids, 256 and 260");
    small(&a);
    put_string(&a.tokens, "<|end|>", 7);
    a.kinds[a.n++] = BPE_KIND_CONTROL;
    refuses(&a, "tokens: \"<|end|>\" has id ");
    small(&a);
    put_string(&a.tokens, "ab", 2);
    a.kinds[a.n++] = BPE_KIND_CONTROL;
    refuses(&a, "tokens: \"ab\" has id 260, but 256 in tokens");
    small(&a);
    put_string(&a.tokens, "", 0);
    a.n++;
    refuses(&a, "tokens: token 260 has 0 bytes");
    small(&a);
    char *large = calloc(1, 70000);
    put_string(&a.tokens, large, 70000);
    free(large);
    a.n++;
    refuses(&a, "token 260 has 70000 bytes");
    small(&a);
    a.kinds['x'] = BPE_KIND_UNUSED;
    refuses(&a, "no token for byte 0x78");
    a = (struct arrays){.kinds = calloc(1, 1)};
    put_string(&a.tokens, "a", 1);
    a.n = 1;
    put_string(&a.merges, "", 0);
    refuses(&a, "no token for byte 0x00");
}

static void refuses_large(const struct arrays *a, const char *why)
{
    struct bpe_parts p = parts_of(a);
    for (int two = 0; two < 4; two++) {
        struct bpe *b;
        struct qwick_err e;
        use_cpus(two > 0);
        assert_int_equal(bpe_open_parts(&b, &p, &e), -1);
        assert_null(b);
        if (!strstr(e.msg, why))
            fail_msg("%s (wanted: %s)", e.msg, why);
    }
}

/* Faults in Qwen3's arrays, which two threads read: at the end of each array,
 * and in both, where the tokens come first. */
static void bad_large_arrays(void **state)
{
    struct map m;
    struct json_doc *doc = parse_file(qwen3_path(), &m);
    struct arrays a;
    struct bpe *b;
    char why[80];
    read_arrays(json_root(doc), &a);
    json_free(doc);
    map_close(&m);
    size_t n = a.n_merges, len = a.merges.len;

    add_merge(&a, "zzqqzz a");
    snprintf(why, sizeof why, "merges: merge %zu (\"zzqqzz\" \"a\"): \"zzq", n);
    refuses_large(&a, why);
    a.n_merges = n;
    a.merges.len = len;
    add_merge(&a, "ab");
    snprintf(why, sizeof why, "merges: merge %zu (\"ab\"): must be two", n);
    refuses_large(&a, why);
    /* before the fault there are merges that are resolved already */
    for (size_t i = 0; i < 2000; i++)
        add_merge(&a, "a b");
    refuses_large(&a, why);
    put_string(&a.tokens, "", 0);
    a.kinds[a.n++] = BPE_KIND_NORMAL;
    refuses_large(&a, "has 0 bytes");
    a.n--;
    /* more merges than tokens: the later rank of a pair counts */
    a.n_merges = n;
    a.merges.len = len;
    for (size_t i = 0; i < 3000; i++)
        add_merge(&a, "a b");
    for (int two = 0; two < 4; two++) {
        struct bpe_parts p = parts_of(&a);
        struct qwick_err e;
        use_cpus(two > 0);
        assert_ok(bpe_open_parts(&b, &p, &e), &e);
        assert_int_equal(bpe_export_merges(b), n + 3000);
        bpe_close(b);
    }
    arrays_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_for_the_demo_model),
        cmocka_unit_test(equal_for_qwen3),
        cmocka_unit_test(equal_for_qwen3_with_two_threads),
        cmocka_unit_test(frames_and_ids),
        cmocka_unit_test(bad_arrays),
        cmocka_unit_test(bad_large_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
