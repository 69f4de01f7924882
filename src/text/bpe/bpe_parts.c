/* Make a tokenizer from the arrays that replace tokenizer.json in GGUF files.
 * Spellings and merges are stored as bpe_scan.c stores them, and a second
 * thread reads merges as there. */
#include <endian.h>
#include <stdlib.h>

#include "text/bpe/bpe_unigram.h"
#include "text/bpe/bpe_wordpiece.h"

/* Get the next string, and advance. */
static const char *next_string(struct bpe_strings *s, size_t *n)
{
    uint64_t len;
    memcpy(&len, s->p, 8);
    *n = (size_t)le64toh(len);
    const char *text = (const char *)s->p + 8;
    s->p += 8 + *n;
    s->n--;
    return text;
}

static enum bpe_kind kind_of(const struct bpe_parts *parts, size_t id)
{
    return parts->kinds ? (enum bpe_kind)parts->kinds[id] : BPE_KIND_NORMAL;
}

/* Whether encoding searches texts for the token. */
static bool is_added(const struct bpe_parts *parts, enum bpe_kind kind,
                     const char *text, size_t n)
{
    return kind == BPE_KIND_CONTROL ||
           (kind == BPE_KIND_ADDED && !((parts->scores || parts->characters) &&
                                        bpe_piece_has_blank(text, n)));
}

/* Put a token that has a score. SentencePiece finds added ones first, whatever
 * their scores are. */
static int put_scored(struct bpe_load *l, enum bpe_kind kind, uint32_t id,
                      const char *p, size_t n)
{
    float score = l->parts->scores[id];
    if (!l->parts->unigram)
        return bpe_piece_put(l, kind, id, p, n, score);
    memcpy(l->vocab.p + l->vocab.len, p, n);
    if (bpe_unigram_put(l, n, id, kind == BPE_KIND_ADDED ? 0 : (double)score,
                        p)) {
        *l->e = l->fault.err;
        return -1;
    }
    return 0;
}

/* Put the tokens of the vocabulary into the arena. */
static int read_tokens(struct bpe_load *l, const struct bpe_parts *parts)
{
    struct bpe_strings s = parts->tokens;
    if (s.n > BPE_MAX_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: %zu tokens, %d are the most", l->name,
                       l->vocab_name, s.n, BPE_MAX_ID);
    if (parts->scores && !parts->unigram && bpe_pieces_begin(l, s.n) < 0)
        return -1;
    for (size_t id = 0; id < parts->tokens.n; id++) {
        size_t n;
        const char *text = next_string(&s, &n);
        enum bpe_kind kind = kind_of(parts, id);
        if (kind == BPE_KIND_UNUSED)
            continue;
        if (n > BPE_MAX_TOKEN || n == 0)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: %s: token %zu has %zu bytes, must have from 1 "
                           "to %u",
                           l->name, l->vocab_name, id, n, BPE_MAX_TOKEN);
        if (parts->scores && kind != BPE_KIND_CONTROL &&
            put_scored(l, kind, (uint32_t)id, text, n))
            return -1;
        if (parts->wordpiece && kind == BPE_KIND_NORMAL &&
            wordpiece_put(l, (uint32_t)id, text, n))
            return -1;
        if (parts->wordpiece || parts->scores ||
            (kind != BPE_KIND_NORMAL &&
             !(parts->characters && kind != BPE_KIND_CONTROL)))
            continue;
        memcpy(l->vocab.p + l->vocab.len, text, n);
        if (bpe_vocab_put(l, n, (uint32_t)id, text) < 0) {
            *l->e = l->fault.err;
            return -1;
        }
    }
    return 0;
}

/* Store "LEFT RIGHT" as a record. Returns -1 after a fault, or if the other
 * thread has given up. */
static int read_merge(struct bpe_load *l, const char *s, size_t n)
{
    struct merges *m = &l->merges;
    /* parts are not empty, and spellings have no blanks */
    const char *blank = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
    size_t left = blank ? (size_t)(blank - s) : 0;
    size_t right = blank ? n - left - 1 : 0;
    if (right == 0 || memchr(blank + 1, ' ', right) || left > BPE_MAX_TOKEN ||
        right > BPE_MAX_TOKEN)
        return err_set(&m->fault.err, QWICK_ERR_MODEL,
                       "%s: %s: merge %zu (\"%s\"): must be two spellings "
                       "with a blank between them",
                       l->name, l->merges_name, m->n, ERR_SHOW(s, n));
    char *p = m->arena.p + m->arena.len;
    bpe_record_head(p, left, right);
    memcpy(p + HEAD, s, left);
    memcpy(p + HEAD + left, blank + 1, right);
    return bpe_merge_done(m, left, right);
}

/* bpe_merges_read for l->parts. */
static int read_ahead(struct bpe_load *l)
{
    struct bpe_strings s = l->parts->merges;
    int rc = 0;
    while (s.n > 0 && !rc) {
        size_t n;
        const char *text = next_string(&s, &n);
        rc = read_merge(l, text, n);
    }
    bpe_merges_done(&l->merges, !rc);
    return 0;
}

/* Finish with the merges, once the vocabulary is indexed. */
static int read_merges(struct bpe_load *l)
{
    struct merges *m = &l->merges;
    bool resolved = bpe_merges_join(l);
    if (m->ended != 1) {
        bpe_merges_reset(m);
        (void)read_ahead(l);
        if (m->ended != 1) {
            *l->e = m->fault.err;
            return -1;
        }
    }
    if (!resolved)
        bpe_resolve_all(l);
    if (l->rc < 0)
        *l->e = l->resolve_err;
    l->b->n_merges = m->n;
    return l->rc;
}

/* Whether an added token of Phi-3 takes the white space after it. */
static bool takes_space(const char *p, size_t n)
{
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strlen(others[i]) == n && memcmp(p, others[i], n) == 0)
            return false;
    return true;
}

static int add_tokens(struct bpe_load *l, const struct bpe_parts *parts)
{
    struct bpe_strings s = parts->tokens;
    struct bpe_listing t = {0};
    int rc = 0;
    for (size_t id = 0; id < parts->tokens.n && !rc; id++) {
        enum bpe_kind kind = kind_of(parts, id);
        struct bpe_listed a = {.file = l->name,
                               .list = l->added_name,
                               .item = id,
                               .id = (int32_t)id,
                               .special = kind == BPE_KIND_CONTROL};
        a.content = next_string(&s, &a.len);
        a.rstrip = parts->rstrip && takes_space(a.content, a.len);
        if (is_added(parts, kind, a.content, a.len))
            rc = bpe_list_token(l, &t, &a);
    }
    if (!rc)
        rc = bpe_place_tokens(l, &t, t.n);
    free(t.v);
    return rc;
}

static int add_frame(struct bpe_load *l, const struct bpe_parts *parts)
{
    struct bpe *b = l->b;
    const int32_t ids[] = {parts->before, parts->after};
    b->frame = malloc(sizeof ids);
    if (!b->frame)
        return err_oom(l->e, sizeof ids);
    for (size_t i = 0; i < 2; i++) {
        if (ids[i] < 0)
            continue;
        b->frame[b->n_before + b->n_after] = ids[i];
        *(i ? &b->n_after : &b->n_before) = 1;
    }
    return 0;
}

static int add_pair(struct bpe_load *l, const struct bpe_parts *parts)
{
    enum { MOST = 4 };
    struct bpe *b = l->b;
    size_t k = parts->n_between;
    if (!k || parts->before < 0 || parts->after < 0)
        return 0;
    b->pair_ids = malloc(MOST * sizeof *b->pair_ids);
    if (!b->pair_ids)
        return err_oom(l->e, MOST * sizeof *b->pair_ids);
    for (size_t i = 0; i < MOST; i++)
        b->pair_ids[i] = i ? parts->after : parts->before;
    b->pair = (struct bpe_pair){.before = b->pair_ids,
                                .between = b->pair_ids + 1,
                                .after = b->pair_ids + 1 + k,
                                .n_before = 1,
                                .n_between = k,
                                .n_after = 1,
                                .n_between_type0 = k,
                                .types = parts->pair_types};
    return 0;
}

/* Read the vocabulary and the merges. */
static int read_model(struct bpe_load *l, size_t n_bytes)
{
    const struct bpe_parts *parts = l->parts;
    if (parts->merges.n > BPE_MAX_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: %zu merges, %d are the most", l->name,
                       l->merges_name, parts->merges.n, BPE_MAX_ID);
    if (!parts->scores && !parts->wordpiece)
        bpe_merges_start(l, n_bytes, read_ahead);
    int rc = read_tokens(l, parts);
    if (!rc)
        rc = bpe_vocab_done(l, l->e);
    if (!rc && l->rc < 0) {
        *l->e = l->resolve_err;
        rc = -1;
    }
    if (rc) {
        bpe_merges_give_up(l);
        return -1;
    }
    bpe_merges_vocab_ready(l);
    return parts->scores || parts->wordpiece ? 0 : read_merges(l);
}

/* Find the tokens that are runs of newlines. */
static void find_newlines(const struct bpe_load *l)
{
    struct bpe *b = l->b;
    char s[BPE_NEWLINES + BPE_PAD] = {0};
    b->newlines_apart = true;
    for (size_t n = 0; n < BPE_NEWLINES; n++) {
        int32_t id = bpe_find(b, &l->table, bpe_hash(b->seed, s, n), s, n);
        b->newlines[n] = id < 0 ? BPE_NO_ID : (uint32_t)id;
        s[n] = '\n';
    }
}

/* Do the work of bpe_maker's functions for Unigram. */
static int begin_unigram(struct bpe_load *l)
{
    const struct bpe_parts *parts = l->parts;
    const struct bpe_unigram_parts *u = parts->unigram;
    bool bytes = false;
    for (size_t i = 0; i < parts->tokens.n; i++)
        bytes = bytes || kind_of(parts, i) == BPE_KIND_BYTE;
    return bpe_unigram_new(l, u->unk) ||
                   (u->n_map &&
                    bpe_unigram_add_map(l, u->map_name, u->map, u->n_map)) ||
                   (u->squeeze && bpe_unigram_add_squeeze(l)) ||
                   bpe_unigram_begin(l, bytes)
               ? -1
               : 0;
}

static int begin_model(struct bpe_load *l)
{
    return l->parts->wordpiece ? wordpiece_begin_parts(l)
           : l->parts->unigram ? begin_unigram(l)
           : l->parts->scores  ? 0
                               : bpe_find_bytes(l);
}

static int end_model(struct bpe_load *l)
{
    if (l->parts->wordpiece)
        return wordpiece_end(l);
    if (l->parts->unigram)
        return bpe_unigram_end(l);
    return (l->parts->scores && bpe_pieces_end(l)) || bpe_finish(l) ? -1 : 0;
}

/* bpe_open_parts with l, all zeros, which the caller frees. */
static int open_with(struct bpe_load *l, struct bpe **out,
                     const struct bpe_parts *parts, struct qwick_err *e)
{
    size_t n = parts->tokens.n_bytes + parts->merges.n_bytes;
    int rc = bpe_load_init(l, parts->name, n, e);
    l->parts = parts;
    l->vocab_name = l->added_name = parts->tokens_name;
    l->merges_name = parts->merges_name;
    if (!rc) {
        l->b->split = parts->split;
        l->b->ignore_merges = parts->ignore_merges;
    }
    if (!rc && parts->characters)
        l->b->byte_fallback = l->expect_fallback = true;
    if (rc || read_model(l, n) || begin_model(l) || add_tokens(l, parts) ||
        add_frame(l, parts) || add_pair(l, parts) || end_model(l))
        rc = -1;
    if (!rc && parts->characters)
        find_newlines(l);
    if (!rc) {
        l->b->nfc = parts->nfc;
        l->b->prefix = !parts->space_prefix ? BPE_PREFIX_NONE
                       : parts->unigram     ? BPE_PREFIX_ALWAYS
                                            : BPE_PREFIX_EACH;
        l->b->strip = parts->space_prefix;
    }
    return bpe_load_end(l, rc, out);
}

int bpe_open_parts(struct bpe **out, const struct bpe_parts *parts,
                   struct qwick_err *e)
{
    struct qwick_err unused;
    *out = NULL;
    struct bpe_load *l = bpe_load_new(e);
    if (!l)
        return -1;
    int rc = open_with(l, out, parts, e ? e : &unused);
    free(l);
    return rc;
}
