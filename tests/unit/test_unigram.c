/* Unigram: goldens of all forms that files have, the arrays of a GGUF file,
 * equality with the obvious algorithm, long words, hostile charsmaps, and files
 * that are refused. */
#include "test.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base64.h"
#include "base/buf.h"
#include "bpe_small.h"
#include "file/json.h"
#include "jsonl.h"
#include "text/bpe/bpe.h"
#include "text/bpe/bpe_unigram.h"

#define FOLDER "tests/golden/unigram/"

static struct buf original; /* tokenizer.json */
static struct map original_map, variants_map;
static struct json_doc *file, *variants;

static struct bpe *open_named(const char *name)
{
    const struct json_value *all = json_root(variants);
    for (size_t i = 0; i < all->len; i++)
        if (json_equals(json_get(&all->items[i], "name"), name))
            return open_replaced(&original,
                                 json_get(&all->items[i], "replace"));
    fail_msg("no variant %s", name);
    return NULL;
}

/* ---- goldens ------------------------------------------------------------- */

static void decode_all(struct bpe *b, struct ids r, struct buf *out)
{
    struct bpe_decoder d = {0};
    out->len = 0;
    for (size_t i = 0; i < r.n; i++)
        assert_int_equal(bpe_decode(b, &d, r.v[i], out), 0);
    assert_int_equal(bpe_decode_end(&d, out), 0);
    bpe_decoder_free(&d);
}

/* Check the lines of a variant whose text does not have `without`; returns
 * their number. */
static size_t check_lines(struct bpe *b, const char *name, const char *without)
{
    struct jsonl in = jsonl_open(FOLDER "ids.jsonl");
    struct buf out = {0};
    size_t n = 0;
    while (jsonl_next(&in)) {
        const struct json_value *text = json_get(in.root, "text");
        const struct json_value *decoded = json_get(in.root, "decoded");
        if (!json_equals(json_get(in.root, "variant"), name) ||
            (without && strstr(text->str, without)))
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
    assert_true(all->len >= 12);
    for (size_t i = 0; i < all->len; i++) {
        const char *name = json_get(&all->items[i], "name")->str;
        struct bpe *b = open_named(name);
        assert_true(check_lines(b, name, NULL) >= 30);
        bpe_close(b);
    }
}

static void the_frame(void **state)
{
    struct bpe *b = open_text(original.data, original.len);
    struct bpe_frame f;
    struct qwick_err e;
    assert_ok(bpe_get_frame(b, &f, &e), &e);
    assert_int_equal(f.n_before, 1);
    assert_int_equal(f.n_after, 1);
    assert_int_equal(f.before[0], 0);
    assert_int_equal(f.after[0], 2);
    assert_true(bpe_is_special(b, 0));
    bpe_close(b);
}

/* Text that is not searched for added tokens has none, and white space before
 * <mask> stays. Text that goes on gets no blank. */
static void plain_text(void **state)
{
    struct bpe *b = open_text(original.data, original.len);
    const char *text = "<s> <mask></s><unk><pad> \xEF\xBC\x9Cs\xEF\xBC\x9E";
    struct ids r = encode(b, text, strlen(text), false);
    struct buf out = {0};
    for (size_t i = 0; i < r.n; i++)
        assert_true(!bpe_is_special(b, r.v[i]) || r.v[i] == 3);
    free(r.v);
    r = (struct ids){0};
    const struct bpe_span all = {0, 3};
    struct qwick_err e;
    assert_ok(bpe_encode_spans(b, "the", 3, &all, 1, true, 0, &r.v, &r.n, &e),
              &e);
    struct bpe_decoder d = {.goes_on = true};
    for (size_t i = 0; i < r.n; i++)
        assert_int_equal(bpe_decode(b, &d, r.v[i], &out), 0);
    assert_int_equal(out.len, 3);
    assert_memory_equal(out.data, "the", 3);
    bpe_decoder_free(&d);
    free(r.v);
    buf_free(&out);
    bpe_close(b);
}

/* Bytes that are not UTF-8 are unknown, or have their own tokens. */
static void invalid_text(void **state)
{
    static const char text[] = "a\xFF\xFE\xC3\x28\xE2\x96\xF0\x90";
    struct bpe *b = open_named("bytes");
    struct ids r = encode(b, text, sizeof text - 1, true);
    struct buf out = {0};
    for (size_t i = 0; i < r.n; i++) {
        size_t n;
        const char *p = bpe_token(b, r.v[i], &n);
        assert_int_equal(buf_append(&out, p, n), 0);
    }
    assert_int_equal(out.len, sizeof text);
    assert_memory_equal(out.data + 1, text, sizeof text - 1);
    buf_free(&out);
    free(r.v);
    bpe_close(b);
    b = open_text(original.data, original.len);
    r = encode(b, "\xFF\xFE\xFF", 3, true);
    assert_int_equal(r.v[r.n - 1], 3);
    assert_int_equal(r.n, 2); /* a blank, and one token for the run */
    free(r.v);
    bpe_close(b);
}

/* The text of an added token that is no piece is what the file has. */
static void added_tokens(void **state)
{
    struct buf text = {0};
    put_replaced(&text, original.data, "\"added_tokens\":[",
                 "\"added_tokens\":[" ADDED(5000, "\xC3\xA9\xC4\x80") ",");
    struct bpe *b = open_text(text.data, text.len);
    struct ids r = encode(b, "\xC3\xA9\xC4\x80", 4, true);
    struct buf out = {0};
    assert_int_equal(r.n, 1);
    assert_int_equal(r.v[0], 5000);
    decode_all(b, r, &out);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "\xC3\xA9\xC4\x80", 4);
    buf_free(&out);
    buf_free(&text);
    free(r.v);
    bpe_close(b);
}

/* ---- GGUF ---------------------------------------------------------------- */

struct arrays {
    struct buf tokens, map;
    unsigned char kinds[1 << 11];
    float scores[1 << 11];
    size_t n;
    struct bpe_unigram_parts unigram;
};

static void add(struct arrays *a, enum bpe_kind kind, float score,
                const char *s, size_t n)
{
    uint64_t len = n;
    assert_true(a->n < sizeof a->kinds);
    assert_int_equal(buf_append(&a->tokens, &len, 8), 0);
    assert_int_equal(buf_append(&a->tokens, s, n), 0);
    a->kinds[a->n] = (unsigned char)kind;
    a->scores[a->n++] = score;
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
        .unigram = &a->unigram,
        .space_prefix = true,
        .before = -1,
        .after = -1};
}

static void read_map(struct buf *map)
{
    const struct json_value *list =
        json_get(json_get(json_root(file), "normalizer"), "normalizers");
    const struct json_value *text =
        json_get(&list->items[0], "precompiled_charsmap");
    assert_int_equal(base64_decode(map, text->str, text->len), 0);
}

/* The arrays that a converter writes for the file. */
static void read_arrays(struct arrays *a)
{
    const struct json_value *vocab =
        json_get(json_get(json_root(file), "model"), "vocab");
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < vocab->len; i++) {
        const struct json_value *piece = vocab->items[i].items;
        double score;
        assert_int_equal(json_double(&piece[1], &score), 0);
        add(a,
            i < 4 || i + 1 == vocab->len ? BPE_KIND_CONTROL : BPE_KIND_NORMAL,
            (float)score, piece->str, piece->len);
    }
    read_map(&a->map);
    a->unigram = (struct bpe_unigram_parts){"charsmap", a->map.data, a->map.len,
                                            true, 3};
}

static void free_arrays(struct arrays *a)
{
    buf_free(&a->tokens);
    buf_free(&a->map);
}

static void arrays_are_equal(void **state)
{
    struct arrays a;
    struct bpe *b;
    struct qwick_err e;
    read_arrays(&a);
    add(&a, BPE_KIND_UNUSED, -10000, "[PAD]", 5);
    struct bpe_parts p = parts_of(&a);
    assert_ok(bpe_open_parts(&b, &p, &e), &e);
    assert_false(bpe_has(b, (int32_t)a.n - 1));
    /* no key says that <mask> takes white space */
    assert_true(check_lines(b, "xlm-roberta", "<mask>") >= 25);
    bpe_close(b);
    /* without the map, blanks at the ends still go */
    a.unigram.n_map = 0;
    assert_ok(bpe_open_parts(&b, &p, &e), &e);
    struct ids one = encode(b, "the command", 11, true);
    struct ids two = encode(b, "  the   command ", 16, true);
    same_ids(one, two);
    free(one.v);
    free(two.v);
    bpe_close(b);
    free_arrays(&a);
}

static void broken_arrays(void **state)
{
    struct arrays a;
    char *longer = calloc(1, 1025 + 1);
    memset(longer, 'x', 1025);
    read_arrays(&a);
    add(&a, BPE_KIND_NORMAL, -1, longer, 1025);
    free(longer);
    struct bpe_parts p = parts_of(&a);
    refuses_parts(&p, "has 1025 bytes, 1024 are the most");
    a.n--;
    a.tokens.len -= 8 + 1025;
    p = parts_of(&a);
    a.scores[7] = NAN;
    refuses_parts(&p, "tokens: piece 7, \"");
    a.scores[7] = -INFINITY;
    refuses_parts(&p, "the score is -inf");
    a.scores[7] = -1;
    add(&a, BPE_KIND_ADDED, NAN, "<any>", 5); /* its score does not count */
    p = parts_of(&a);
    struct bpe *b;
    assert_int_equal(bpe_open_parts(&b, &p, NULL), 0);
    bpe_close(b);
    a.unigram.n_map = 9;
    refuses_parts(&p, "charsmap: a trie of 4096 bytes in a map of 9");
    a.unigram.n_map = a.map.len;
    add(&a, BPE_KIND_NORMAL, -1, "the", 3);
    add(&a, BPE_KIND_NORMAL, -1, "the", 3);
    p = parts_of(&a);
    refuses_parts(&p, "\"the\" has two ids");
    a.n--;
    add(&a, BPE_KIND_BYTE, -1, "<0x07>", 6);
    p = parts_of(&a);
    a.kinds[a.n - 2] = BPE_KIND_UNUSED;
    refuses_parts(&p, "no token for byte 0x00");
    free_arrays(&a);
}

/* ---- the obvious algorithm ----------------------------------------------- */

enum { MAX_PIECES = 40 };

struct random_pieces {
    char text[MAX_PIECES][24];
    double score[MAX_PIECES];
    size_t n;
};

/* Pieces of a few letters, of which many have equal scores. */
static void draw_pieces(struct random_pieces *r, const char *letters,
                        size_t n_letters)
{
    r->n = 1; /* 0 is <unk> */
    strcpy(r->text[0], "<unk>");
    r->score[0] = 0;
    size_t want = 3 + draw(MAX_PIECES - 3);
    for (size_t tries = 0; r->n < want && tries < 500; tries++) {
        char *s = r->text[r->n];
        size_t len = 1 + draw(draw(3) ? 4 : 20), i = 0;
        for (; i < len; i++)
            s[i] = letters[draw((uint32_t)n_letters)];
        s[i] = '\0';
        bool known = false;
        for (size_t k = 0; k < r->n; k++)
            known = known || strcmp(r->text[k], s) == 0;
        r->score[r->n] = draw(2) ? -(double)draw(4) : -draw(1000) / 7.0;
        r->n += !known;
    }
}

static struct bpe *open_pieces(const struct random_pieces *r)
{
    struct buf text = {0};
    struct bpe *b;
    assert_int_equal(
        buf_puts(&text,
                 "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":{"
                 "\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\","
                 "\"prepend_scheme\":\"never\"},\"post_processor\":null,"
                 "\"decoder\":null,\"model\":{\"unk_id\":0,\"vocab\":["),
        0);
    for (size_t i = 0; i < r->n; i++)
        assert_int_equal(buf_printf(&text, "%s[\"%s\",%.17g]", i ? "," : "",
                                    r->text[i], r->score[i]),
                         0);
    assert_int_equal(buf_puts(&text, "]}}"), 0);
    b = open_text(text.data, text.len);
    buf_free(&text);
    return b;
}

/* The best pieces by all pairs of places, as the definition says. */
static struct ids obvious(const struct random_pieces *r, const char *p,
                          size_t n)
{
    double least = 0, *best = malloc((n + 1) * sizeof *best);
    size_t *from = malloc((n + 1) * sizeof *from);
    int32_t *id = malloc((n + 1) * sizeof *id);
    for (size_t i = 0; i < r->n; i++)
        least = r->score[i] < least ? r->score[i] : least;
    for (size_t i = 0; i <= n; i++)
        id[i] = -1;
    best[0] = 0;
    for (size_t i = 0; i < n; i++) {
        bool single = false;
        /* each length is tried once: which piece first does not matter */
        for (size_t k = 1; k < r->n; k++) {
            size_t len = strlen(r->text[k]);
            if (len > n - i || memcmp(r->text[k], p + i, len) != 0)
                continue;
            single = single || len == 1;
            if (id[i + len] < 0 || best[i] + r->score[k] > best[i + len]) {
                best[i + len] = best[i] + r->score[k];
                from[i + len] = i;
                id[i + len] = (int32_t)k;
            }
        }
        if (!single &&
            (id[i + 1] < 0 || best[i] + (least - 10) > best[i + 1])) {
            best[i + 1] = best[i] + (least - 10);
            from[i + 1] = i;
            id[i + 1] = 0;
        }
    }
    struct ids out = {.v = malloc((n + 1) * sizeof *out.v)};
    for (size_t at = n; at > 0; at = from[at])
        if (id[at] || !out.n || out.v[out.n - 1])
            out.v[out.n++] = id[at];
    for (size_t i = 0; i < out.n / 2; i++) {
        int32_t swap = out.v[i];
        out.v[i] = out.v[out.n - 1 - i];
        out.v[out.n - 1 - i] = swap;
    }
    free(best);
    free(from);
    free(id);
    return out;
}

static void obvious_is_equal(void **state)
{
    static const size_t lengths[] = {1,   7,    40,   255,  256,
                                     257, 4096, 9000, 30000};
    for (size_t round = 0; round < 60; round++) {
        struct random_pieces r;
        const char *letters = "abcde";
        size_t n_letters = 1 + draw(4), n = lengths[draw(9)];
        draw_pieces(&r, letters, n_letters);
        struct bpe *b = open_pieces(&r);
        char *text = malloc(n);
        for (size_t i = 0; i < n; i++) /* one letter more is unknown */
            text[i] = letters[draw((uint32_t)n_letters + (draw(50) == 0))];
        struct ids have = encode(b, text, n, true);
        struct ids want = obvious(&r, text, n);
        same_ids(have, want);
        free(have.v);
        free(want.v);
        free(text);
        bpe_close(b);
    }
}

/* ---- long texts ---------------------------------------------------------- */

static double seconds_of(struct bpe *b, const char *text, size_t n)
{
    clock_t start = clock();
    struct ids r = encode(b, text, n, true);
    assert_true(r.n > 0);
    free(r.v);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* A word of 1 MiB takes about 4 times as long as one of 256 KiB. */
static void long_words(void **state)
{
    static const char *const words[] = {"a",
                                        "the",
                                        "\xE4\xB8\x80",
                                        "\xEF\xBC\xA1\xCC\x81",
                                        "\xCC\x81",
                                        "\xFF",
                                        " ",
                                        "\xF0\x9F\x91\xA9\xE2\x80\x8D"};
    struct bpe *b = open_named("whole");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct buf text = {0};
        while (text.len < 1 << 20)
            assert_int_equal(buf_puts(&text, words[i]), 0);
        double some = seconds_of(b, text.data, text.len / 4);
        double all = seconds_of(b, text.data, text.len);
        if (all > 12 * some + 0.5)
            fail_msg("word %zu: %.2f s, and %.2f s for a quarter", i, all,
                     some);
        buf_free(&text);
    }
    bpe_close(b);
}

/* ---- charsmaps ----------------------------------------------------------- */

static void apply_all(const struct charsmap *m)
{
    static const char text[] =
        "a e\xCC\x81 \xEF\xBD\xB6\xEF\xBE\x9E \xEF\xAC\x81 \xE2\x91\xA0\r\n\t"
        "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA9 \xFF\x80 \xC2\xA0 "
        "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB \xD8\x80"
        "b \xF0\x9D\x90\x80";
    struct buf out = {0};
    assert_int_equal(charsmap_apply(m, text, sizeof text, &out), 0);
    buf_free(&out);
}

static void hostile_charsmaps(void **state)
{
    struct buf map = {0};
    struct charsmap *m;
    struct qwick_err e;
    size_t refused = 0, accepted = 0;
    read_map(&map);
    for (size_t i = 0; i < map.len; i++)
        for (unsigned k = 0; k < 3; k++) {
            static const unsigned char flips[] = {0x01, 0x80, 0xFF};
            map.data[i] = (char)(map.data[i] ^ flips[k]);
            if (charsmap_open(&m, "f", "map", map.data, map.len, &e)) {
                assert_int_equal(e.code, QWICK_ERR_MODEL);
                assert_null(m);
                refused++;
            } else {
                apply_all(m);
                charsmap_free(m);
                accepted++;
            }
            map.data[i] = (char)(map.data[i] ^ flips[k]);
        }
    assert_true(refused > 1000 && accepted > 1000);
    for (size_t n = 0; n < map.len; n += 1 + n / 50) {
        char *cut = malloc(n + 1); /* of its size, to find reads beyond it */
        memcpy(cut, map.data, n);
        if (charsmap_open(&m, "f", "map", cut, n, &e) == 0) {
            apply_all(m);
            charsmap_free(m);
        }
        free(cut);
    }
    buf_free(&map);
}

/* A cluster is replaced by the shortest beginning of it that the map has. */
static void clusters(void **state)
{
    static const char *const t[][2] = {
        {"e\xCC\x81", "\xC3\xA9"},
        {"\xEF\xBC\xA5\xCC\x81", "E"},
        {"\xEF\xBC\xA5\xCC\x81\xCC\x81", "E\xCC\x81\xCC\x81"},
        {"x\xCC\x81", "x\xCC\x81"},
        {"\xEF\xAC\x81", "fi"},
        {"a\x01"
         "b",
         "ab"},
        {"\r\n", " "},
        {"", ""},
    };
    struct buf map = {0}, out = {0};
    struct charsmap *m;
    struct qwick_err e;
    read_map(&map);
    assert_ok(charsmap_open(&m, "f", "map", map.data, map.len, &e), &e);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        out.len = 0;
        assert_int_equal(charsmap_apply(m, t[i][0], strlen(t[i][0]), &out), 0);
        if (out.len != strlen(t[i][1]) ||
            (out.len && memcmp(out.data, t[i][1], out.len) != 0))
            fail_msg("\"%s\" becomes \"%s\"", t[i][0], buf_text(&out));
    }
    charsmap_free(m);
    buf_free(&map);
    buf_free(&out);
}

/* A map of 512 units with one text, "a"; its replacement is at `value` of
 * text[0..n_text). The field says that the trie has `size` bytes. Copied to
 * memory of its size, so that reads beyond it are found. */
enum { TRIE = 512 * 4 };
static int open_small_map(struct charsmap **m, uint32_t size, uint32_t value,
                          const char *text, size_t n_text)
{
    uint32_t units[512] = {0};
    units[0] = htole32(256u << 10);
    units[256 ^ 'a'] = htole32('a' | 1u << 8 | (256u ^ 'a' ^ 32u) << 10);
    units[32] = htole32(1u << 31 | value);
    /* NUL, which no text of a map has */
    units[256] = htole32(1u << 8 | (256u ^ 33u) << 10);
    units[33] = htole32(1u << 31);
    size_t n = 4 + TRIE + n_text;
    char *map = malloc(n);
    struct qwick_err e = {0};
    size = htole32(size);
    memcpy(map, &size, 4);
    memcpy(map + 4, units, TRIE);
    memcpy(map + 4 + TRIE, text, n_text);
    int rc = charsmap_open(m, "f", "map", map, n, &e);
    free(map);
    assert_int_equal(rc ? e.code : 0, rc ? QWICK_ERR_MODEL : 0);
    return rc;
}

static void becomes(struct charsmap *m, const char *text, size_t n,
                    const char *want, size_t n_want)
{
    struct buf out = {0};
    assert_int_equal(charsmap_apply(m, text, n, &out), 0);
    assert_int_equal(out.len, n_want);
    assert_memory_equal(buf_text(&out), want, n_want);
    charsmap_free(m);
    buf_free(&out);
}

static void bounds_of_charsmaps(void **state)
{
    static const char text[] = "\xC3\xA9";
    struct charsmap *m;
    assert_int_equal(open_small_map(&m, TRIE, 0, text, 3), 0);
    becomes(m, "a\0b", 3, "\xC3\xA9\0b", 4);
    /* at the end of the replacements: the empty one */
    assert_int_equal(open_small_map(&m, TRIE, 3, text, 3), 0);
    becomes(m, "ab", 2, "b", 1);
    assert_int_equal(open_small_map(&m, TRIE, 0, text, 0), 0);
    becomes(m, "ab", 2, "b", 1);
    assert_int_equal(open_small_map(&m, TRIE, 4, text, 3), -1);
    assert_int_equal(open_small_map(&m, TRIE, 1, text, 3),
                     -1); /* inside a character */
    assert_int_equal(open_small_map(&m, TRIE, 0, "\xC3", 1), -1);
    assert_int_equal(open_small_map(&m, TRIE + 2, 0, text, 3), -1);
    assert_int_equal(open_small_map(&m, TRIE + 4, 0, text, 3), -1);
    assert_int_equal(open_small_map(&m, 0, 0, text, 3), -1);
    /* the unit of "a" is not in the trie, but in the text after it */
    uint32_t units[355] = {htole32(100 * 4), htole32(256u << 10)};
    units[1 + 32] = htole32(1u << 31);
    units[1 + (256 ^ 'a')] = htole32('a' | 1u << 8 | (256u ^ 'a' ^ 32u) << 10);
    struct qwick_err e;
    assert_ok(charsmap_open(&m, "f", "map", units, sizeof units, &e), &e);
    becomes(m, "ab", 2, "ab", 2);
}

/* ---- small models -------------------------------------------------------- */

static struct bpe *open_small_model(const char *normalizer, const char *added,
                                    const char *pieces)
{
    struct buf text = {0};
    assert_int_equal(
        buf_printf(&text,
                   "{\"normalizer\":%s,\"added_tokens\":[%s],\"pre_tokenizer\":"
                   "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\","
                   "\"prepend_scheme\":\"never\"},\"model\":{\"type\":"
                   "\"Unigram\",\"unk_id\":0,\"vocab\":[%s]}}",
                   normalizer, added, pieces),
        0);
    struct bpe *b = open_text(text.data, text.len);
    buf_free(&text);
    return b;
}

#define OLDER(prefix)                                             \
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":" \
    "\"\xE2\x96\x81\",\"str_rep\":\"\xE2\x96\x81\",\"add_prefix_" \
    "space\":" prefix                                             \
    "},\"model\":{\"unk_id\":0,\"vocab\":[[\"?\",0],[\"a\",-1],"  \
    "[\"\xE2\x96\x81"                                             \
    "a\",-1]]}}"

static void small_models(void **state)
{
    /* an unknown character has the lowest score less 10 */
    struct bpe *b = open_small_model(
        "null", "", "[\"?\",0],[\"xb\",-2],[\"b\",9.5],[\"yb\",-2]");
    EXPECT(b, "xb", 1);
    bpe_close(b);
    b = open_small_model("null", "",
                         "[\"?\",0],[\"xb\",-2],[\"b\",10.5],[\"yb\",-2]");
    EXPECT(b, "xb", 0, 2);
    bpe_close(b);
    /* of scores above 0, too */
    b = open_small_model("null", "",
                         "[\"?\",20],[\"xb\",5],[\"b\",9.5],[\"yb\",6]");
    EXPECT(b, "xb", 1);
    bpe_close(b);
    b = open_small_model("null", "",
                         "[\"?\",20],[\"xb\",5],[\"b\",10.5],[\"yb\",6]");
    EXPECT(b, "xb", 0, 2);
    bpe_close(b);
    /* add_prefix_space, which older files have */
    b = open_text(OLDER("true"), sizeof OLDER("true") - 1);
    EXPECT(b, "a", 2);
    bpe_close(b);
    b = open_text(OLDER("false"), sizeof OLDER("false") - 1);
    EXPECT(b, "a", 1);
    bpe_close(b);
    /* Nmt drops some characters, and replaces others by blanks */
    b = open_small_model("{\"type\":\"Nmt\"}", "",
                         "[\"?\",0],[\"a\",-1],[\"\xE2\x96\x81\",-1]");
    EXPECT(b,
           "a\x01\x08\x0B\x0E\x1F\x7F\xC2\x8F\xC2\x9F"
           "a",
           1, 1);
    EXPECT(b,
           "a\xE2\x80\x8B"
           "a\xE2\x80\x8F"
           "a\xEF\xBB\xBF"
           "a\xE2\x80\x90",
           1, 2, 1, 2, 1, 2, 1, 0);
    bpe_close(b);
    /* without rows for the last piece, its text has none */
    b = open_small_model(
        "null",
        "{\"id\":2,\"content\":\"b\",\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
        "\"special\":false}",
        "[\"?\",0],[\"a\",-1],[\"b\",-1]");
    assert_int_equal(bpe_drop_from(b, 2), 0);
    EXPECT(b, "ab", 1, 0);
    bpe_close(b);
}

/* ---- broken files -------------------------------------------------------- */

static void broken_files(void **state)
{
    static const char *const t[][3] = {
        {"\"unk_id\":3", "\"unk_id\":null", "model.unk_id: null"},
        {"\"unk_id\":3", "\"unk_id\":999999", "model.unk_id: 999999"},
        {"\"unk_id\":3,", "", "model.unk_id: missing"},
        {"\"vocab\":[", "\"vocab\":[[\"a\",0],[\"b\",0],[\"c\",0]],\"x\":[",
         "model.unk_id: 3"},
        {"\"byte_fallback\":false", "\"byte_fallback\":true",
         "no token for byte 0x00"},
        {"\"byte_fallback\":false", "\"byte_fallback\":1",
         "model.byte_fallback: 1"},
        {"\"byte_fallback\":false", "\"dropout\":1",
         "model: unknown field \"dropout\""},
        {"[\"<pad>\",0]", "[\"<pad>\",1e999]", "piece 1 is not"},
        {"[\"<pad>\",0]", "[\"<pad>\",-]", "piece 1 is not"},
        {"[\"<pad>\",0]", "[\"<pad>\",01]", "piece 1 is not"},
        {"[\"<pad>\",0]", "[\"<pad>\",\"0\"]", "piece 1 is not"},
        {"[\"<pad>\",0]", "[\"<pad>\",0,0]", "piece 1 is not"},
        {"[\"<pad>\",0]", "[\"<pad>\"]", "piece 1 is not"},
        {"[\"<pad>\",0]", "[0,\"<pad>\"]", "piece 1 is not"},
        {"[\"<pad>\",0]", "{\"<pad>\":0}", "piece 1 is not"},
        {"[\"<pad>\",0]", "\"<pad>\"", "piece 1 is not"},
        {"[\"<pad>\",0]", "[\"<s>\",0]", "\"<s>\" has two ids, 0 and 1"},
        {"\"vocab\":[", "\"vocab\":[],\"x\":[", "model.unk_id: 3"},
        {"\"vocab\":[", "\"vocab\":{},\"x\":[", "model.vocab"},
        {"\"vocab\":[", "\"vocab\":[[\"a\",1]],\"vocab\":[",
         "repeated key \"vocab\""},
        {"\"type\":\"Unigram\"", "\"type\":\"BPE\"", "model.vocab"},
        {"\"type\":\"Precompiled\",\"precompiled_charsmap\":\"",
         "\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!",
         "precompiled_charsmap: is not base64"},
        {"\"precompiled_charsmap\":", "\"precompiled_charsmap\":null,\"x\":",
         "precompiled_charsmap: null"},
        {"\"normalizers\":[",
         "\"normalizers\":[{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
         "\"BAAAAAAAAAA=\"},",
         "two of type Precompiled"},
        {"\"Regex\":\" {2,}\"", "\"Regex\":\" {3,}\"", "normalizer: {"},
        {"{\"type\":\"Replace\"", "{\"type\":\"Lowercase\"", "normalizer: {"},
        {"\"split\":true}", "\"split\":1}", "Metaspace.split: 1"},
        {"\"prepend_scheme\":\"always\"", "\"prepend_scheme\":\"twice\"",
         "pre_tokenizer: {"},
        {"\"prepend_scheme\":\"always\"",
         "\"add_prefix_space\":false,\"prepend_scheme\":\"always\"",
         "pre_tokenizer: {"},
        {"\"replacement\":\"\xE2\x96\x81\"", "\"replacement\":\"_\"",
         "pre_tokenizer: {"},
        {"\"decoder\":{\"type\":\"Metaspace\"",
         "\"decoder\":{\"type\":\"WordPiece\"", "decoder: {"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf text = {0};
        struct bpe *b = (struct bpe *)&text;
        struct qwick_err e;
        put_replaced(&text, original.data, t[i][0], t[i][1]);
        if (bpe_open(&b, "test.json", text.data, text.len, &e) != -1)
            fail_msg("accepted: %s", t[i][1]);
        if (!strstr(e.msg, t[i][2]) || strncmp(e.msg, "test.json: ", 11) != 0)
            fail_msg("\"%s\" gives \"%s\"", t[i][1], e.msg);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        assert_null(b);
        buf_free(&text);
    }
}

/* Scores in all forms that JSON has. */
static void scores_are_read(void **state)
{
    static const char *const scores[] = {
        "-1",     "-1.0",    "-10e-1",
        "-0.1E1", "-0.1e+1", "-1.00000000000000000000",
        "-1 ",    "-1\n\t",  "-1000000000000000e-15"};
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) {
        struct buf text = {0};
        assert_int_equal(
            buf_printf(
                &text,
                "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
                "\"\xE2\x96\x81\"},\"model\":{\"unk_id\":0,\"vocab\":[ [ "
                "\"<unk>\" , 0 ] ,[\"a\",-0.5],\n[\"b\",-0.5],[\"ab\",%s]]}}",
                scores[i]),
            0);
        struct bpe *b = open_text(text.data, text.len);
        const struct unigram *u = b->own;
        assert_int_equal(u->n_scores, 4);
        assert_true(u->scores[1] == -0.5 && u->scores[3] == -1);
        bpe_close(b);
        buf_free(&text);
    }
}

static int setup(void **state)
{
    file = parse_file(FOLDER "tokenizer.json", &original_map);
    variants = parse_file(FOLDER "variants.json", &variants_map);
    return buf_append(&original, original_map.data, original_map.size);
}

static int teardown(void **state)
{
    json_free(file);
    json_free(variants);
    map_close(&original_map);
    map_close(&variants_map);
    buf_free(&original);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_are_equal),
        cmocka_unit_test(the_frame),
        cmocka_unit_test(plain_text),
        cmocka_unit_test(invalid_text),
        cmocka_unit_test(added_tokens),
        cmocka_unit_test(arrays_are_equal),
        cmocka_unit_test(broken_arrays),
        cmocka_unit_test(obvious_is_equal),
        cmocka_unit_test(long_words),
        cmocka_unit_test(hostile_charsmaps),
        cmocka_unit_test(clusters),
        cmocka_unit_test(bounds_of_charsmaps),
        cmocka_unit_test(small_models),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(scores_are_read),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
