/* Tokenizers that put a blank before a text, in all the forms that files give
 * them, and added tokens that take white space: goldens, texts that go on, and
 * equality with the arrays of a GGUF file. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "bpe_small.h"
#include "file/json.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_int.h"

#define FOLDER "tests/golden/gemma-tokenizer/"

static struct buf original;
static struct map variants_map;
static struct json_doc *variants;

/* Open the tokenizer with the changes of a variant. */
static struct bpe *open_variant(const struct json_value *v)
{
    return open_replaced(&original, json_get(v, "replace"));
}

static struct bpe *open_named(const char *name)
{
    const struct json_value *all = json_root(variants);
    for (size_t i = 0; i < all->len; i++)
        if (json_equals(json_get(&all->items[i], "name"), name))
            return open_variant(&all->items[i]);
    fail_msg("no variant %s", name);
    return NULL;
}

/* Decode in a decoder's state, which is freed. */
static void decode_from(struct bpe *b, struct bpe_decoder d, struct ids r,
                        bool skip_special, struct buf *out)
{
    out->len = 0;
    assert_int_equal(buf_reserve(out, 1), 0);
    for (size_t i = 0; i < r.n; i++)
        if (!skip_special || !bpe_is_special(b, r.v[i]))
            assert_int_equal(bpe_decode(b, &d, r.v[i], out), 0);
    assert_int_equal(bpe_decode_end(&d, out), 0);
    bpe_decoder_free(&d);
}

static void same_text(const struct buf *have, const struct json_value *want)
{
    if (have->len != want->len || memcmp(have->data, want->str, want->len) != 0)
        fail_msg("\"%.*s\", not \"%s\"", (int)have->len, have->data, want->str);
}

static void check_line(struct bpe *b, const struct json_value *v, bool decodes)
{
    const struct json_value *text = json_get(v, "text");
    struct ids want = ids_of(json_get(v, "ids"));
    struct ids have = encode(b, text->str, text->len, true);
    struct buf out = {0};
    if (have.n != want.n ||
        (want.n && memcmp(have.v, want.v, want.n * sizeof *want.v) != 0))
        fail_msg("%s: \"%s\" gives other ids", json_get(v, "variant")->str,
                 text->str);
    decode_from(b, (struct bpe_decoder){0}, want, false, &out);
    if (decodes)
        same_text(&out, json_get(v, "decoded"));
    decode_from(b, (struct bpe_decoder){0}, want, true, &out);
    if (decodes)
        same_text(&out, json_get(v, "without_special"));
    buf_free(&out);
    free(have.v);
    free(want.v);
}

/* Check all lines of a variant; returns their number. */
static size_t check_variant(struct bpe *b, const char *name)
{
    struct jsonl in = jsonl_open(FOLDER "variants.jsonl");
    size_t n = 0;
    while (jsonl_next(&in))
        if (json_equals(json_get(in.root, "variant"), name)) {
            check_line(b, in.root, true);
            n++;
        }
    jsonl_close(&in);
    return n;
}

static void goldens_are_equal(void **state)
{
    const struct json_value *all = json_root(variants);
    assert_true(all->len >= 8);
    for (size_t i = 0; i < all->len; i++) {
        struct bpe *b = open_variant(&all->items[i]);
        const char *name = json_get(&all->items[i], "name")->str;
        assert_true(check_variant(b, name) >= 40);
        assert_int_equal(bpe_added_id(b, "<bos>"), 2);
        assert_int_equal(bpe_added_id(b, "<table>"), 3470);
        assert_int_equal(bpe_added_id(b, "the"), -1);
        bpe_close(b);
    }
}

/* ---- GGUF --------------------------------------------------------------- */

static void put_string(struct buf *out, const struct buf *s)
{
    uint64_t n = s->len;
    assert_int_equal(buf_append(out, &n, 8), 0);
    if (s->len)
        assert_int_equal(buf_append(out, s->data, s->len), 0);
}

/* Scores that fall with the rank of the merge that makes a token first. */
static float *scores_of(const struct bpe *b)
{
    float *v = malloc(bpe_size(b) * sizeof *v);
    for (size_t i = 0; i < bpe_size(b); i++)
        v[i] = -1e9f;
    for (size_t i = b->n_merges; i-- > 0;)
        v[bpe_made(b, (uint32_t)i)] = -(float)i;
    return v;
}

/* Close b, and open the arrays that hold it: scores, or merges of
 * characters. */
static struct bpe *through_parts(struct bpe *b, bool scores)
{
    size_t n = bpe_size(b), n_merges = scores ? 0 : bpe_export_merges(b);
    struct buf tokens = {0}, merges = {0}, s = {0};
    unsigned char *kinds = malloc(n);
    float *v = NULL;
    struct qwick_err e;
    for (size_t i = 0; i < n; i++) {
        enum bpe_kind kind;
        s.len = 0;
        assert_int_equal(bpe_export_token(b, i, &s, &kind), 0);
        kinds[i] = (unsigned char)kind;
        put_string(&tokens, &s);
    }
    for (size_t i = 0; i < n_merges; i++) {
        s.len = 0;
        assert_int_equal(bpe_export_merge(b, i, &s), 0);
        put_string(&merges, &s);
    }
    if (scores)
        v = scores_of(b);
    const struct bpe_parts parts = {
        .name = "m.gguf",
        .tokens_name = "tokens",
        .merges_name = "merges",
        .tokens = {(const unsigned char *)tokens.data, n, tokens.len},
        .merges = {(const unsigned char *)merges.data, n_merges, merges.len},
        .kinds = kinds,
        .scores = v,
        .characters = !scores,
        .space_prefix = bpe_export_prefix(b),
        .before = -1,
        .after = -1};
    struct bpe *out;
    assert_ok(bpe_open_parts(&out, &parts, &e), &e);
    bpe_close(b);
    buf_free(&tokens);
    buf_free(&merges);
    buf_free(&s);
    free(kinds);
    free(v);
    return out;
}

static void arrays_are_equal(void **state)
{
    static const char *const names[] = {"prepend", "tab"};
    for (size_t i = 0; i < 2; i++) {
        struct bpe *b = through_parts(open_named(names[i]), true);
        assert_true(check_variant(b, names[i]) >= 40);
        bpe_close(b);
    }
    struct bpe *b = through_parts(open_named("tab"), false);
    assert_true(check_variant(b, "tab") >= 40);
    bpe_close(b);
}

/* The arrays have normalized tokens as the file has them, as llama.cpp's
 * converter writes them, not their normal forms. */
static void export_has_texts(void **state)
{
    struct bpe *b = open_named("prepend-normalized");
    struct buf text = {0};
    size_t n = 0;
    for (size_t i = 0; i < b->n_added; i++) {
        enum bpe_kind kind;
        if (!b->added[i].normalized)
            continue;
        text.len = 0;
        assert_int_equal(bpe_export_token(b, b->added[i].id, &text, &kind), 0);
        assert_true(kind == BPE_KIND_ADDED || kind == BPE_KIND_CONTROL);
        assert_null(memmem(text.data, text.len, "\xE2\x96\x81", 3));
        assert_int_equal(buf_putc(&text, 0), 0);
        assert_int_equal(bpe_added_id(b, text.data), (int32_t)b->added[i].id);
        n++;
    }
    assert_true(n > 0);
    buf_free(&text);
    bpe_close(b);
}

/* Gemma 4: a run of newlines is a part, and one token if there is one. */
static void runs_of_newlines(void **state)
{
    struct bpe *b =
        through_parts(open_text(original.data, original.len), false);
    struct ids r = encode(b, "the\n\n\nthe", 9, true);
    bool found = false;
    for (size_t i = 0; i < r.n; i++)
        found = found || (uint32_t)r.v[i] == b->newlines[3];
    assert_true(b->newlines[3] == BPE_NO_ID || found);
    assert_true(b->newlines[1] != BPE_NO_ID && b->newlines[0] == BPE_NO_ID);
    free(r.v);
    /* invented tokens: a merge across newlines never applies */
    b->newlines[2] = 7;
    EXPECT(b, "\n\n", 7);
    bpe_close(b);
}

/* ---- texts that go on --------------------------------------------------- */

static struct ids encode_on(struct bpe *b, const char *text, bool goes_on)
{
    const struct bpe_span all = {0, strlen(text)};
    struct ids r = {0};
    struct qwick_err e;
    assert_ok(
        bpe_encode_spans(b, text, all.end, &all, 1, goes_on, 0, &r.v, &r.n, &e),
        &e);
    return r;
}

static void texts_go_on(void **state)
{
    static const char *const names[] = {"prepend", "prepend-normalized",
                                        "metaspace-first", "metaspace-always"};
    for (size_t i = 0; i < 4; i++) {
        struct bpe *b = open_named(names[i]);
        struct buf out = {0};
        struct ids begins = encode_on(b, "the", false);
        struct ids on = encode_on(b, "the", true);
        assert_int_equal(begins.v[0], 404);
        assert_int_not_equal(on.v[0], begins.v[0]);
        /* a blank is dropped only at the start of a text */
        decode_from(b, (struct bpe_decoder){0}, begins, false, &out);
        assert_memory_equal(out.data, "the", 3);
        decode_from(b, (struct bpe_decoder){.goes_on = true}, begins, false,
                    &out);
        assert_memory_equal(out.data, " the", 4);
        bool first = i == 2;
        assert_int_equal(bpe_goes_on(b, 2), first);
        assert_true(bpe_goes_on(b, on.v[0]));
        free(begins.v);
        free(on.v);
        buf_free(&out);
        bpe_close(b);
    }
}

/* A run of bytes may begin a text, and a blank may be one of them. */
static void bytes_begin_a_text(void **state)
{
    struct bpe *b = open_named("prepend");
    struct buf out = {0};
    int32_t ids[] = {(int32_t)b->byte_id[' '], (int32_t)b->byte_id['a'],
                     (int32_t)b->byte_id[0x80]};
    decode_from(b, (struct bpe_decoder){0}, (struct ids){ids, 2}, false, &out);
    assert_int_equal(out.len, 1);
    assert_int_equal(out.data[0], 'a');
    decode_from(b, (struct bpe_decoder){0}, (struct ids){ids, 3}, false, &out);
    assert_int_equal(out.len, 9); /* three of U+FFFD */
    buf_free(&out);
    bpe_close(b);
}

/* White space outside the spans goes with a token inside. */
static void tokens_take_space_outside_of_spans(void **state)
{
    struct bpe *b = open_named("prepend-strip");
    static const char text[] = "<start_of_turn> \n<start_of_turn>the";
    const struct bpe_span spans[] = {{0, 15}, {16, 32}};
    struct ids r = {0};
    struct qwick_err e;
    assert_ok(bpe_encode_spans(b, text, sizeof text - 1, spans, 2, false, 0,
                               &r.v, &r.n, &e),
              &e);
    same_ids(r, (struct ids){(int32_t[]){11, 11, 404}, 3});
    free(r.v);
    bpe_close(b);
}

/* ---- what is refused ---------------------------------------------------- */

static void refuses(const char *name, const char *from, const char *to,
                    const char *says)
{
    const struct json_value *all = json_root(variants);
    for (size_t i = 0; i < all->len; i++) {
        const struct json_value *v = &all->items[i];
        if (!json_equals(json_get(v, "name"), name))
            continue;
        const struct json_value *changes = json_get(v, "replace");
        struct buf text = {0}, changed = {0};
        struct bpe *b;
        struct qwick_err e;
        put_replaced(&text, original.data, changes->items[0].items[0].str,
                     changes->items[0].items[1].str);
        assert_int_equal(buf_putc(&text, '\0'), 0);
        put_replaced(&changed, text.data, from, to);
        assert_int_equal(
            bpe_open(&b, "bad.json", changed.data, changed.len, &e), -1);
        if (!strstr(e.msg, says) || strncmp(e.msg, "bad.json: ", 10) != 0)
            fail_msg("expected %s in: %s", says, e.msg);
        buf_free(&text);
        buf_free(&changed);
        return;
    }
}

static void other_forms_are_refused(void **state)
{
    refuses("prepend", "\"prepend\":\"\xE2\x96\x81\"", "\"prepend\":\"_\"",
            "normalizer");
    refuses("metaspace-first", "\"split\":false", "\"split\":true",
            "pre_tokenizer: Metaspace.split: true is not supported "
            "(supported: false)");
    refuses("metaspace-first", ",\"split\":false", "",
            "pre_tokenizer: Metaspace.split: missing");
    refuses("metaspace-first", "\"first\"", "\"second\"", "prepend_scheme");
    refuses("metaspace-first", "\"replacement\":\"\xE2\x96\x81\"",
            "\"replacement\":\"_\"", "replacement");
    refuses("metaspace-first", "\"Metaspace\"", "\"Whitespace\"", "normalizer");
    refuses("prepend", "\"pre_tokenizer\":null",
            "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
            "\"\xE2\x96\x81\",\"split\":false}",
            "null, with Prepend");
    refuses("prepend", "{\"type\":\"Fuse\"}",
            "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
            "\"start\":2,\"stop\":0}",
            "decoder");
}

static int setup(void **state)
{
    struct map m;
    struct qwick_err e;
    assert_ok(map_open(&m, FOLDER "tokenizer.json", &e), &e);
    assert_int_equal(buf_append(&original, m.data, m.size), 0);
    assert_int_equal(buf_putc(&original, '\0'), 0);
    original.len--;
    map_close(&m);
    variants = parse_file(FOLDER "variants.json", &variants_map);
    return 0;
}

static int teardown(void **state)
{
    json_free(variants);
    map_close(&variants_map);
    buf_free(&original);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_equal),
        cmocka_unit_test(arrays_are_equal),
        cmocka_unit_test(export_has_texts),
        cmocka_unit_test(runs_of_newlines),
        cmocka_unit_test(texts_go_on),
        cmocka_unit_test(bytes_begin_a_text),
        cmocka_unit_test(tokens_take_space_outside_of_spans),
        cmocka_unit_test(other_forms_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
