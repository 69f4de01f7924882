/* Encoding and decoding with WordPiece. */
#include "text/bpe/bpe_wordpiece.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/utf8.h"

/* ---- encoding ---- */

static int wordpiece_normal(const struct bpe *b, const char *p, size_t n,
                            bool begins, struct buf *out, struct qwick_err *e)
{
    const struct wordpiece *w = b->own;
    struct buf text = {0};
    int rc = 0;
    (void)begins;
    if (w->n_steps == 0)
        return buf_append(out, p, n) ? err_oom(e, n) : 0;
    for (size_t i = 0; i < w->n_steps && !rc; i++) {
        struct buf next = {0};
        bool last = i + 1 == w->n_steps;
        rc = bert_normalise(w->steps[i], p, n, last ? out : &next, e);
        buf_free(&text);
        text = next;
        p = buf_text(&text);
        n = text.len;
    }
    buf_free(&text);
    return rc;
}

/* Bytes of a text that are normalised at a time. */
enum { NORMAL_BYTES = 1 << 20 };

/* Write the normal form of p[0..n) to c->copy, with BPE_PAD bytes after it. A
 * part ends before an ASCII character, because that changes nothing before
 * it. */
static int write_normal(struct bpe_encoder *c, const char *p, size_t n)
{
    c->copy.len = 0;
    for (size_t at = 0, end; at < n; at = end) {
        end = n - at > NORMAL_BYTES ? at + NORMAL_BYTES : n;
        while (end < n && (unsigned char)p[end] >= 0x80)
            end++;
        if (wordpiece_normal(c->b, p + at, end - at, false, &c->copy, c->e) ||
            bpe_check_time(c, 1000))
            return -1;
    }
    if (buf_reserve(&c->copy, BPE_PAD))
        return err_oom(c->e, n);
    memset(c->copy.data + c->copy.len, 0, BPE_PAD);
    return 0;
}

static bool is_inside(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

static size_t count_chars(const char *p, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += !is_inside(p[i]);
    return chars;
}

/* Return the longest token that p[0..n), n > least, begins with and that has
 * more than `least` bytes, or -1. *len: its bytes. BPE_PAD bytes after p[0..n)
 * must be readable. */
static int32_t longest_token(const struct bpe *b, const char *p, size_t n,
                             size_t least, size_t *len)
{
    const struct wordpiece *w = b->own;
    size_t k = n;
    if (k > w->longest)
        for (k = w->longest; k > least && is_inside(p[k]);)
            k--;
    while (k > least) {
        int32_t id = bpe_find(b, &b->words, bpe_hash(b->seed, p, k), p, k);
        if (id >= 0 && (size_t)id < b->size) {
            *len = k;
            return id;
        }
        for (k--; k > least && is_inside(p[k]);)
            k--;
    }
    return -1;
}

/* Append the ids of the word text[n_prefix .. n_prefix + n), n >= 1. The
 * prefix overwrites the bytes before a later part of the word. Returns whether all
 * of it has tokens, or -1. */
static int split_word(struct bpe_encoder *c, char *text, size_t n)
{
    const struct wordpiece *w = c->b->own;
    size_t at = w->n_prefix, end = at + n;
    while (at < end) {
        size_t before = at > w->n_prefix ? w->n_prefix : 0, len;
        char *part = text + at - before;
        memcpy(part, w->prefix, before);
        int32_t id = longest_token(c->b, part, end - at + before, before, &len);
        if (id < 0)
            return 0;
        if (bpe_need(c, 1))
            return -1;
        c->ids[c->n++] = id;
        at += len - before;
    }
    return 1;
}

/* Append the ids of a word. */
static int encode_word(struct bpe_encoder *c, const char *p, size_t n)
{
    const struct wordpiece *w = c->b->own;
    char text[WORDPIECE_MAX_PREFIX + 4 * WORDPIECE_MAX_CHARS + BPE_PAD];
    size_t begin = c->n, n_chars = count_chars(p, n);
    int found = 0;
    if (n_chars <= w->max_chars && n <= 4 * WORDPIECE_MAX_CHARS) {
        memcpy(text + w->n_prefix, p, n);
        memset(text + w->n_prefix + n, 0, BPE_PAD);
        found = split_word(c, text, n);
    }
    if (found < 0 || bpe_check_time(c, n_chars))
        return -1;
    if (found)
        return 0;
    c->n = begin;
    if (bpe_need(c, 1))
        return -1;
    c->ids[c->n++] = (int32_t)w->unk;
    return 0;
}

static int wordpiece_encode(struct bpe_encoder *c, const char *p, size_t n,
                            bool begins, bool normal)
{
    const struct wordpiece *w = c->b->own;
    size_t room = n;
    (void)begins;
    if (!normal) {
        if (write_normal(c, p, n))
            return -1;
        p = c->copy.data;
        n = c->copy.len;
        room = n + BPE_PAD;
    }
    for (size_t i = 0; i < n && c->n <= c->enough;) {
        bool space;
        size_t k = bert_next(w->split, p + i, n - i, &space);
        if (bpe_check_time(c, 1) ||
            (!space && bpe_encode_cached(c, p + i, k, room - i, encode_word)))
            return -1;
        i += k;
    }
    return 0;
}

/* ---- decoding ---- */

/* Replace all of `from` in text by `to`, which is not longer. */
static void replace_all(struct buf *text, const char *from, const char *to)
{
    size_t n_from = strlen(from), n_to = strlen(to);
    size_t at = 0;
    char *hit;
    while ((hit = memmem(text->data + at, text->len - at, from, n_from))) {
        size_t begin = (size_t)(hit - text->data), end = begin + n_from;
        memmove(hit + n_to, text->data + end, text->len - end);
        memcpy(hit, to, n_to);
        text->len -= n_from - n_to;
        at = begin + n_to;
    }
}

/* Take out what transformers calls tokenization spaces. */
static void clean_up(struct buf *text)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        replace_all(text, pairs[i][0], pairs[i][1]);
}

static int wordpiece_decode(const struct bpe *b, struct bpe_decoder *d,
                            int32_t id, const char *p, size_t n,
                            struct buf *out)
{
    const struct wordpiece *w = b->own;
    struct buf text = {0};
    bool joined = d->goes_on && w->joins && n >= w->n_joined &&
                  memcmp(p, w->joined, w->n_joined) == 0;
    size_t cut = joined ? w->n_joined : 0;
    (void)id;
    int rc = (d->goes_on && !joined && buf_putc(&text, ' ')) ||
             buf_append(&text, p + cut, n - cut);
    d->goes_on = true;
    if (!rc && w->cleanup && text.len)
        clean_up(&text);
    rc = rc || buf_append(out, buf_text(&text), text.len);
    buf_free(&text);
    return rc ? -1 : 0;
}

static void wordpiece_free(struct bpe *b)
{
    free(b->own);
}

const struct bpe_model bpe_wordpiece = {.encode = wordpiece_encode,
                                        .normal_form = wordpiece_normal,
                                        .decode = wordpiece_decode,
                                        .free = wordpiece_free,
                                        .lacks = "a model of type WordPiece"};
