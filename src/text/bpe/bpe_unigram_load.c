/* Reading tokenizers of type Unigram. */
#include "text/bpe/bpe_unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/base64.h"

/* Maximum length of a piece in bytes; it bounds the time of encoding. Trained
 * pieces have up to 16 characters. */
enum { MAX_PIECE = 1024 };

/* What is subtracted from the lowest score for an unknown character. */
#define UNK_PENALTY 10

/* ---- pieces ---- */

int bpe_unigram_put(struct bpe_load *l, size_t n, uint32_t id, double score,
                    const char *p)
{
    char *s = l->vocab.p + l->vocab.len;
    l->fault.at = p;
    if (n > MAX_PIECE)
        return err_set(&l->fault.err, QWICK_ERR_MODEL,
                       "%s: %s: piece %u has %zu bytes, %d are the most",
                       l->name, l->vocab_name, (unsigned)id, n, MAX_PIECE);
    if (!isfinite(score))
        return err_set(&l->fault.err, QWICK_ERR_MODEL,
                       "%s: %s: piece %u, \"%s\": the score is %f", l->name,
                       l->vocab_name, (unsigned)id, ERR_SHOW(s, n), score);
    if (ARRAY_RESERVE(l->scores, l->scores_cap, id + 1, &l->fault.err))
        return -1;
    if (memchr(s, '\xE2', n))
        n = bpe_copy_blanks(s, s, n);
    if (bpe_vocab_put(l, n, id, p))
        return -1;
    while (l->n_scores < id)
        l->scores[l->n_scores++] = 0; /* an id without a piece */
    l->scores[id] = score;
    l->n_scores = id + 1;
    l->b->tok[id].flags = BPE_HAS | BPE_MODEL;
    l->b->longest = n > l->b->longest ? n : l->b->longest;
    return 0;
}

/* The pieces <0x00> to <0xFF>, which stand for bytes, and are not found in
 * texts. */
static int find_bytes(struct bpe_load *l)
{
    struct bpe *b = l->b;
    for (unsigned c = 0; c < 256; c++) {
        char s[8 + BPE_PAD] = {0};
        size_t n = (size_t)snprintf(s, sizeof s, "<0x%02X>", c);
        int32_t id = bpe_find(b, &l->table, bpe_hash(b->seed, s, n), s, n);
        if (id < 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: %s: no token for byte 0x%02X (\"%s\")", l->name,
                           l->vocab_name, c, s);
        b->byte_id[c] = (uint32_t)id;
    }
    for (unsigned c = 0; c < 256; c++) {
        struct bpe_tok *t = &b->tok[b->byte_id[c]];
        b->arena[t->off] = (char)c;
        t->len = 1;
        t->flags = BPE_HAS | BPE_FALLBACK;
    }
    return 0;
}

int bpe_unigram_new(struct bpe_load *l, int64_t unk)
{
    struct unigram *u = calloc(1, sizeof *u);
    l->b->model = &bpe_unigram;
    l->b->own = u;
    if (!u)
        return err_oom(l->e, sizeof *u);
    u->unk = (uint32_t)unk;
    return 0;
}

int bpe_unigram_begin(struct bpe_load *l, bool bytes)
{
    struct unigram *u = l->b->own;
    double least = INFINITY;
    for (size_t id = 0; id < l->n_scores; id++)
        if (id < l->b->size && l->b->tok[id].flags & BPE_MODEL &&
            l->scores[id] < least)
            least = l->scores[id];
    u->bytes = bytes;
    u->unk_score = least - UNK_PENALTY;
    u->scores = l->scores;
    u->n_scores = l->n_scores;
    l->scores = NULL;
    return bytes ? find_bytes(l) : 0;
}

int bpe_unigram_end(struct bpe_load *l)
{
    for (size_t i = 0; i < l->b->size; i++) /* added tokens */
        l->b->tok[i].flags &= (uint16_t)~BPE_SPELLED;
    l->b->words = l->table;
    l->table = (struct hashmap){0};
    return bpe_finish(l);
}

/* ---- the normalizer ---- */

static int add_step(const struct bpe_load *l, struct unigram_step step)
{
    struct unigram *u = l->b->own;
    if (u->n_steps == UNIGRAM_MAX_STEPS)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: normalizer: more than %d of them", l->name,
                       UNIGRAM_MAX_STEPS);
    u->steps[u->n_steps++] = step;
    return 0;
}

int bpe_unigram_add_map(const struct bpe_load *l, const char *field,
                        const void *p, size_t n)
{
    struct unigram *u = l->b->own;
    if (u->map)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: normalizer: two of type Precompiled are not "
                       "supported",
                       l->name);
    return charsmap_open(&u->map, l->name, field, p, n, l->e) ||
                   add_step(l, (struct unigram_step){.kind = UNIGRAM_CHARSMAP})
               ? -1
               : 0;
}

int bpe_unigram_add_squeeze(const struct bpe_load *l)
{
    return add_step(l, (struct unigram_step){.kind = UNIGRAM_STRIP,
                                             .left = true,
                                             .right = true}) ||
                   add_step(l, (struct unigram_step){.kind = UNIGRAM_SQUEEZE})
               ? -1
               : 0;
}

static int add_precompiled(const struct bpe_load *l, const struct json_value *v)
{
    static const char field[] = "normalizer: precompiled_charsmap";
    const struct json_value *text = json_get(v, "precompiled_charsmap");
    struct buf map = {0};
    if (!json_is(text, JSON_STRING))
        return bpe_refuse(l, field, text, "a string");
    int rc = base64_decode(&map, text->str, text->len);
    if (rc)
        rc = rc < 0 ? err_oom(l->e, text->len)
                    : err_set(l->e, QWICK_ERR_MODEL, "%s: %s: is not base64",
                              l->name, field);
    else
        rc = bpe_unigram_add_map(l, field, buf_text(&map), map.len);
    buf_free(&map);
    return rc;
}

static int add_strip(const struct bpe_load *l, const struct json_value *v)
{
    const struct json_value *left = json_get(v, "strip_left");
    const struct json_value *right = json_get(v, "strip_right");
    if (!json_is(left, JSON_BOOL) || !json_is(right, JSON_BOOL))
        return bpe_refuse(l, "normalizer", v,
                          "Strip with strip_left and strip_right");
    return add_step(l, (struct unigram_step){.kind = UNIGRAM_STRIP,
                                             .left = left->boolean,
                                             .right = right->boolean});
}

#define BLANK "\xE2\x96\x81"

static int add_squeeze(const struct bpe_load *l, const struct json_value *v)
{
    const struct json_value *to = json_get(v, "content");
    bool marks = json_equals(to, BLANK);
    if (!json_equals(json_get(json_get(v, "pattern"), "Regex"), " {2,}") ||
        (!marks && !json_equals(to, " ")))
        return bpe_refuse(l, "normalizer", v,
                          "Replace of \" {2,}\" by \" \" or \"" BLANK "\"");
    return add_step(
        l, (struct unigram_step){.kind = UNIGRAM_SQUEEZE, .marks = marks});
}

static int check_normalizer(const struct bpe_load *l,
                            const struct json_value *v)
{
    static const struct {
        const char *type;
        enum unigram_step_kind kind;
    } plain[] = {
        {"NFC", UNIGRAM_NFC}, {"NFKC", UNIGRAM_NFKC}, {"Nmt", UNIGRAM_NMT}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (bpe_is_type(v, plain[i].type))
            return add_step(l, (struct unigram_step){.kind = plain[i].kind});
    return bpe_is_type(v, "Precompiled") ? add_precompiled(l, v)
           : bpe_is_type(v, "Strip")     ? add_strip(l, v)
           : bpe_is_type(v, "Replace")   ? add_squeeze(l, v)
                                         : bpe_refuse(l, "normalizer", v,
                                                      "null, Precompiled, "
                                                        "Strip, Replace, NFC, "
                                                        "NFKC, Nmt, Sequence of "
                                                        "these");
}

/* ---- the rest of the file ---- */

static int check_model(struct bpe_load *l, const struct json_value *v)
{
    static const char *const known[] = {"type", "unk_id", "vocab",
                                        "byte_fallback"};
    const struct json_value *x = json_get(v, "unk_id");
    int64_t unk;
    if (!l->has_pieces)
        return bpe_refuse(l, "model.vocab", json_get(v, "vocab"),
                          "an array of pieces with scores");
    if (json_int(x, 0, (int64_t)l->n_scores - 1, &unk))
        return bpe_refuse(l, "model.unk_id", x, "the id of a piece");
    if (bpe_unigram_new(l, unk))
        return -1;
    x = json_get(v, "byte_fallback");
    if (!bpe_is_null(x) && !json_is(x, JSON_BOOL))
        return bpe_refuse(l, "model.byte_fallback", x, "true, false");
    l->expect_fallback = x && bpe_is_bool(x, true);
    return bpe_check_fields(l, v, known, sizeof known / sizeof *known);
}

static int check_pre_tokenizer(struct bpe_load *l, const struct json_value *v)
{
    struct unigram *u = l->b->own;
    const struct json_value *list = json_get(v, "pretokenizers");
    bool sequence = bpe_is_type(v, "Sequence") && json_is(list, JSON_ARRAY);
    u->by_space = sequence && list->len == 2 &&
                  bpe_is_type(&list->items[0], "WhitespaceSplit");
    if (sequence && list->len == 1U + u->by_space)
        v = &list->items[u->by_space];
    const struct json_value *split = json_get(v, "split");
    if (!bpe_is_type(v, "Metaspace"))
        return bpe_refuse(l, "pre_tokenizer", v,
                          "Metaspace, Sequence of WhitespaceSplit and "
                          "Metaspace");
    if (!bpe_is_null(split) && !json_is(split, JSON_BOOL))
        return bpe_refuse(l, "pre_tokenizer: Metaspace.split", split,
                          "true, false");
    u->whole = split && bpe_is_bool(split, false);
    return bpe_check_metaspace(l, "pre_tokenizer", v, &l->b->prefix);
}

static int check_decoder(const struct bpe_load *l, const struct json_value *v)
{
    enum bpe_prefix prefix;
    if (bpe_is_null(v) || bpe_is_type(v, "ByteFallback") ||
        bpe_is_type(v, "Fuse"))
        return 0;
    if (!bpe_is_type(v, "Metaspace"))
        return bpe_refuse(l, "decoder", v,
                          "null, Metaspace, Sequence of Metaspace, "
                          "ByteFallback and Fuse");
    if (bpe_check_metaspace(l, "decoder", v, &prefix))
        return -1;
    l->b->strip = prefix != BPE_PREFIX_NONE;
    return 0;
}

static int unigram_check(struct bpe_load *l, const struct json_value *root)
{
    const struct json_value *normalizer = json_get(root, "normalizer");
    const struct json_value *pre = json_get(root, "pre_tokenizer");
    if (check_model(l, json_get(root, "model")))
        return -1;
    if (!bpe_is_null(normalizer) &&
        bpe_check_each(l, normalizer, "normalizers", check_normalizer))
        return -1;
    return check_pre_tokenizer(l, pre) ||
                   bpe_check_each(l, json_get(root, "decoder"), "decoders",
                                  check_decoder)
               ? -1
               : 0;
}

static int unigram_begin(struct bpe_load *l, const struct json_value *root)
{
    (void)root;
    return bpe_unigram_begin(l, l->expect_fallback);
}

const struct bpe_maker bpe_maker_unigram = {"Unigram", "unk_id", unigram_check,
                                            unigram_begin, bpe_unigram_end};
