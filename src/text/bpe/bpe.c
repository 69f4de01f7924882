#include "text/bpe/bpe.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "text/bpe/bpe_int.h"
#include "text/deadline.h"
#include "text/split.h"
#include "text/unicode.h"

/* ---- look-ups ---- */

size_t bpe_size(const struct bpe *b)
{
    return b->size;
}

static unsigned flags_of(const struct bpe *b, int32_t id)
{
    return id >= 0 && (size_t)id < b->size ? bpe_flags(b, (size_t)id) : 0;
}

static void unspell_locked(struct bpe *b, struct bpe_tok *t)
{
    pthread_mutex_lock(&b->spell_lock);
    if (t->flags & BPE_SPELLED)
        bpe_unspell(b, t);
    pthread_mutex_unlock(&b->spell_lock);
}

const char *bpe_token(struct bpe *b, int32_t id, size_t *n)
{
    *n = 0;
    unsigned flags = flags_of(b, id);
    if (!flags)
        return NULL;
    struct bpe_tok *t = &b->tok[id];
    if (flags & BPE_SPELLED)
        unspell_locked(b, t);
    *n = t->len;
    return b->arena + t->off;
}

/* The first byte of a token if it is printable ASCII, whatever follows; else
 * 0. */
static unsigned char plain_first(const struct bpe *b, const struct bpe_tok *t)
{
    const char *p = b->arena + t->off;
    int byte = (unsigned char)*p;
    if (b->byte_fallback && *p == '<' && (t->flags & BPE_SPELLED)) {
        byte = bpe_fallback_byte(p, t->len);
        byte = byte < 0 ? '<' : byte;
    }
    return byte > ' ' && byte < 0x7F ? (unsigned char)byte : 0;
}

void bpe_find_starts(struct bpe *b, struct bpe_start *out, size_t n)
{
    pthread_mutex_lock(&b->spell_lock);
    for (size_t i = 0; i < n; i++) {
        const struct bpe_tok *t = i < b->size ? &b->tok[i] : NULL;
        out[i] = (struct bpe_start){0};
        if (!t || !t->flags || !t->len)
            continue;
        out[i].n = t->len;
        out[i].byte = plain_first(b, t);
        out[i].added = (t->flags & BPE_ADDED) != 0;
    }
    pthread_mutex_unlock(&b->spell_lock);
}

void bpe_first_bytes(struct bpe *b, const int32_t *ids, size_t n,
                    unsigned char *out)
{
    pthread_mutex_lock(&b->spell_lock);
    for (size_t i = 0; i < n; i++) {
        struct bpe_tok *t = &b->tok[ids[i]];
        const char *p = b->arena + t->off;
        int byte = -1;
        if (t->flags & BPE_SPELLED)
            byte = b->byte_fallback ? bpe_chars_first(p, t->len)
                                    : alphabet_first(&b->alphabet, p, t->len);
        if (byte < 0 && (t->flags & BPE_SPELLED))
            bpe_unspell(b, t);
        out[i] = byte < 0 ? (unsigned char)*p : (unsigned char)byte;
    }
    pthread_mutex_unlock(&b->spell_lock);
}

bool bpe_has(const struct bpe *b, int32_t id)
{
    return flags_of(b, id) != 0;
}

bool bpe_is_added(const struct bpe *b, int32_t id)
{
    return (flags_of(b, id) & BPE_ADDED) != 0;
}

bool bpe_is_special(const struct bpe *b, int32_t id)
{
    return (flags_of(b, id) & BPE_SPECIAL) != 0;
}

bool bpe_goes_on(const struct bpe *b, int32_t before)
{
    return !bpe_is_added(b, before) || b->prefix == BPE_PREFIX_FIRST;
}

/* The longest token of a set at the start of p[0..n), n >= 1, or NULL. The
 * tokens that agree with the first bytes are a range of the sorted array. It is
 * narrowed byte by byte. */
static const struct bpe_added *match_added(const struct bpe_set *set,
                                           const char *p, size_t n)
{
    const struct bpe_added *best = NULL, *a = set->v;
    size_t lo = set->at[(unsigned char)*p];
    size_t hi = set->at[(unsigned char)*p + 1];
    for (size_t i = 1; lo < hi; i++) {
        if (a[lo].len == i)
            best = &a[lo++];
        if (i == n)
            break;
        unsigned char c = (unsigned char)p[i];
        size_t end[2]; /* lower bounds of c and of c + 1 at byte i */
        for (unsigned k = 0; k < 2; k++) {
            size_t x = lo, y = hi;
            while (x < y) {
                size_t mid = x + (y - x) / 2;
                if ((unsigned char)a[mid].content[i] < c + k)
                    x = mid + 1;
                else
                    y = mid;
            }
            end[k] = x;
        }
        lo = end[0];
        hi = end[1];
    }
    return best;
}

/* ---- encoding ---- */

void bpe_encoder_free(struct bpe_encoder *c)
{
    buf_free(&c->copy);
    buf_free(&c->normal);
    free(c->inner);
    free(c->symbols);
    free(c->heap);
}

int bpe_check_time(struct bpe_encoder *c, size_t cost)
{
    if ((c->n_parts += cost) < 1000)
        return 0;
    c->n_parts = 0;
    return text_check_deadline("text: tokenizing it", c->e);
}

int bpe_need(struct bpe_encoder *c, size_t n)
{
    if (c->cap - c->n >= n)
        return 0;
    size_t total;
    if (size_add(c->n, n, &total) < 0)
        return err_oom(c->e, SIZE_MAX);
    return ARRAY_RESERVE(c->ids, c->cap, total, c->e);
}

/* ---- added tokens ---- */

/* A text, and the parts of it in which added tokens are recognised. */
struct source {
    const char *p;
    size_t n;
    const struct bpe_span *spans;
    size_t n_spans;
};

/* The first position in [i, end) where a token of the set may start. */
static size_t next_start(const struct bpe_set *set, const char *text, size_t i,
                         size_t end)
{
    if (set->n == 0)
        return end;
    unsigned char first = (unsigned char)set->v[0].content[0];
    if (set->at[first + 1] == set->n) {
        const char *p = memchr(text + i, first, end - i);
        return p ? (size_t)(p - text) : end;
    }
    for (; i < end; i++) {
        unsigned char c = (unsigned char)text[i];
        if (set->at[c] < set->at[c + 1])
            break;
    }
    return i;
}

static int encode_set(struct bpe_encoder *c, const struct source *t, int set);

/* Append the normal form of text[begin..end) to c->normal. found: it is a part
 * in which added tokens are recognised. */
static int add_normal(struct bpe_encoder *c, const char *text, size_t begin,
                      size_t end, bool found)
{
    struct bpe_span at = {c->normal.len, 0};
    bool begins = at.begin == 0 && !(c->begins && c->goes_on);
    if (c->b->model->normal_form(c->b, text + begin, end - begin, begins,
                                 &c->normal, c->e))
        return -1;
    at.end = c->normal.len;
    if (!found)
        return 0;
    if (ARRAY_RESERVE(c->inner, c->cap_inner, c->n_inner + 1, c->e))
        return -1;
    c->inner[c->n_inner++] = at;
    return 0;
}

/* Encode the part [begin, end) of a text between added tokens: normalized
 * tokens are searched in its normal form. What is inside and what is outside of
 * the text's spans is normalised separately, so that text outside cannot change
 * a token. *span: the first span that ends after begin. */
static int encode_between(struct bpe_encoder *c, const struct source *t,
                          size_t begin, size_t end, size_t *span)
{
    if (c->b->sets[BPE_NORMALIZED].n == 0 || begin == end)
        return c->b->model->encode(c, t->p + begin, end - begin, begin == 0,
                                   false);
    c->begins = begin == 0;
    size_t k = *span, i = begin;
    c->normal.len = c->n_inner = 0;
    while (k < t->n_spans && t->spans[k].end <= begin)
        k++;
    *span = k;
    for (; k < t->n_spans && t->spans[k].begin < end; k++) {
        size_t from = t->spans[k].begin > i ? t->spans[k].begin : i;
        size_t to = t->spans[k].end < end ? t->spans[k].end : end;
        if (add_normal(c, t->p, i, from, false) ||
            add_normal(c, t->p, from, to, true))
            return -1;
        i = to;
    }
    if (add_normal(c, t->p, i, end, false))
        return -1;
    const struct source normal = {c->normal.data, c->normal.len, c->inner,
                                  c->n_inner};
    return encode_set(c, &normal, BPE_NORMALIZED);
}

/* The bytes of white space after position i of a text. */
static size_t spaces_after(const struct source *t, size_t i)
{
    size_t at = i, len;
    uint32_t c;
    while (at < t->n && (len = utf8_decode(t->p + at, t->n - at, &c, NULL)) &&
           unicode_class(c) == UC_SPACE)
        at += len;
    return at - i;
}

/* The bytes of white space before position i, from `from` on. */
static size_t spaces_before(const struct source *t, size_t from, size_t i)
{
    size_t at = i, len = 0;
    uint32_t c;
    do {
        at -= len;
        for (len = 1; len <= 4 && len <= at - from; len++)
            if (utf8_decode(t->p + at - len, len, &c, NULL) == len)
                break;
    } while (len <= 4 && len <= at - from && unicode_class(c) == UC_SPACE);
    return i - at;
}

/* Encode the part [begin, end) of a text, in which there are no tokens of this
 * set. *span: see encode_between. */
static int encode_until(struct bpe_encoder *c, const struct source *t, int set,
                        size_t begin, size_t end, size_t *span)
{
    return set == BPE_PLAIN
               ? encode_between(c, t, begin, end, span)
               : c->b->model->encode(c, t->p + begin, end - begin,
                                     c->begins && begin == 0, true);
}

/* Encode a text in which the tokens of this set are recognised first. */
static int encode_set(struct bpe_encoder *c, const struct source *t, int set)
{
    const struct bpe_set *tokens = &c->b->sets[set];
    size_t done = 0;   /* text[0..done) is encoded */
    size_t before = 0; /* the first span that ends after done, or one before */
    for (size_t k = 0; k < t->n_spans; k++) {
        size_t i = t->spans[k].begin, end = t->spans[k].end;
        i = i < done ? done : i; /* a token has taken the space after it */
        while (i < end && (i = next_start(tokens, t->p, i, end)) < end) {
            const struct bpe_added *a = match_added(tokens, t->p + i, end - i);
            if (!a) {
                i++;
                continue;
            }
            size_t stop = i - (a->lstrip ? spaces_before(t, done, i) : 0);
            if (encode_until(c, t, set, done, stop, &before) ||
                bpe_need(c, 1) || bpe_check_time(c, 1))
                return -1;
            if (c->n > c->enough)
                return 0;
            c->ids[c->n++] = (int32_t)a->id;
            done = i + a->len;
            done += a->rstrip ? spaces_after(t, done) : 0;
            i = done;
        }
    }
    return encode_until(c, t, set, done, t->n, &before);
}

static int check_spans(const struct source *t, struct qwick_err *e)
{
    size_t last = 0; /* end of the previous span */
    for (size_t k = 0; k < t->n_spans; k++) {
        const struct bpe_span *s = &t->spans[k];
        if (s->end > t->n || s->begin > s->end || s->begin < last)
            return err_usage(
                e, "text: part %zu, bytes %zu to %zu, is not within %zu to %zu",
                k, s->begin, s->end, last, t->n);
        last = s->end;
    }
    return 0;
}

int bpe_encode_spans(struct bpe *b, const char *text, size_t n,
                     const struct bpe_span *spans, size_t n_spans, bool goes_on,
                     size_t enough, int32_t **ids, size_t *n_ids,
                     struct qwick_err *e)
{
    struct bpe_encoder c = {.b = b,
                            .e = e,
                            .goes_on = goes_on,
                            .ids = *ids,
                            .n = *n_ids,
                            .cap = *n_ids,
                            .enough = enough ? enough : SIZE_MAX};
    const struct source t = {text, n, spans, n_spans};
    if (!__atomic_exchange_n(&b->cache_used, 1, __ATOMIC_ACQUIRE))
        c.cache = b->cache;
    int rc = check_spans(&t, e) || encode_set(&c, &t, BPE_PLAIN) ? -1 : 0;
    if (c.cache)
        __atomic_store_n(&b->cache_used, 0, __ATOMIC_RELEASE);
    bpe_encoder_free(&c);
    *ids = c.ids;
    if (rc == 0)
        *n_ids = c.n;
    return rc;
}

int bpe_encode(struct bpe *b, const char *text, size_t n, bool special,
               int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    struct bpe_span all = {0, n};
    return bpe_encode_spans(b, text, n, &all, special ? 1 : 0, false, 0, ids,
                            n_ids, e);
}
