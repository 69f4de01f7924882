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

/* ---- merging ---- */

struct encoder {
    struct bpe *b;          /* not const: n_merged changes */
    struct bpe_word *cache; /* b's; NULL: another thread uses it */
    struct qwick_err *e;
    int32_t *ids;
    size_t n, cap;
    size_t enough;   /* stop when there are more ids */
    size_t n_parts;  /* since the clock was read */
    bool goes_on;    /* the text goes on after another */
    bool begins;     /* the part between added tokens begins the text */
    struct buf copy; /* of a piece, changed */
    /* The normal form of a part between added tokens, and its spans. */
    struct buf normal;
    struct bpe_span *inner; /* [n_inner] */
    size_t n_inner, cap_inner;

    /* Scratch of long words, [scratch_cap] each. */
    struct symbol *symbols;
    uint64_t *heap; /* twice as many: rank << 32 | position */
    size_t scratch_cap;
};

/* Free everything except the ids. */
static void encoder_free(struct encoder *c)
{
    buf_free(&c->copy);
    buf_free(&c->normal);
    free(c->inner);
    free(c->symbols);
    free(c->heap);
}

/* Fail when the thread's time is over (text/deadline.h). cost: 1 for a short
 * part of the text. The clock is read when 1,000 parts have been encoded. */
static int check_time(struct encoder *c, size_t cost)
{
    if ((c->n_parts += cost) < 1000)
        return 0;
    c->n_parts = 0;
    return text_check_deadline("text: tokenizing it", c->e);
}

/* Make room for n more ids. */
static int need(struct encoder *c, size_t n)
{
    if (c->cap - c->n >= n)
        return 0;
    size_t total;
    if (size_add(c->n, n, &total) < 0)
        return err_oom(c->e, SIZE_MAX);
    return ARRAY_RESERVE(c->ids, c->cap, total, c->e);
}

/* Words up to this many bytes find the next merge by comparing all pairs. */
#define SHORT_WORD 40

/* Fill id with the tokens of single characters (or bytes) of p[0..n); returns
 * their number, at most n. */
static size_t start_ids(const struct bpe *b, const char *p, size_t n,
                        uint32_t *id)
{
    size_t n_ids = 0;
    for (size_t i = 0, len = 1; i < n; i += len)
        id[n_ids++] = b->byte_fallback ? bpe_first_char(b, p + i, n - i, &len)
                                       : b->byte_id[(unsigned char)p[i]];
    return n_ids;
}

/* Merge a word of 1..SHORT_WORD bytes; returns the number of ids. */
static size_t merge_short(const struct bpe *b, const char *p, size_t n_bytes,
                          uint32_t *id)
{
    uint32_t rank[SHORT_WORD];
    size_t n = start_ids(b, p, n_bytes, id);
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = bpe_rank(b, id[i], id[i + 1]);
    while (n > 1) {
        uint32_t best = rank[0];
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (rank[i] < best) {
                best = rank[i];
                at = i;
            }
        }
        if (best == BPE_NO_RANK)
            break;
        id[at] = bpe_made(b, best);
        n--;
        for (size_t i = at + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i - 1] = rank[i];
        }
        if (at + 1 < n)
            rank[at] = bpe_rank(b, id[at], id[at + 1]);
        if (at > 0)
            rank[at - 1] = bpe_rank(b, id[at - 1], id[at]);
    }
    return n;
}

/* A part of a long word. The parts form a linked list in an array. rank: the
 * rank of the merge with the next symbol; a symbol that was merged into another
 * has no rank. */
struct symbol {
    uint32_t id, rank, prev, next;
};

static void heap_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t v = h[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && h[k + 1] < h[k])
            k++;
        if (v <= h[k])
            break;
        h[i] = h[k];
    }
    h[i] = v;
}

static void heap_push(uint64_t *h, size_t *n, uint64_t v)
{
    size_t i = (*n)++;
    for (; i > 0 && v < h[(i - 1) / 2]; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = v;
}

/* Return the rank of s[i] and its successor in p[0..end). */
static uint32_t rank_at(const struct bpe *b, const char *p,
                        const struct symbol *s, uint32_t i, uint32_t end)
{
    uint32_t next = s[i].next;
    if (next >= end)
        return BPE_NO_RANK;
    return b->order ? bpe_piece_rank(b, p + i, s[next].next - i)
                    : bpe_rank(b, s[i].id, s[next].id);
}

/* Compute the rank of s[i] and its successor, and push it to the heap if they
 * can merge. */
static void rate(const struct bpe *b, const char *p, struct symbol *s,
                 uint32_t i, uint32_t end, uint64_t *heap, size_t *n_heap)
{
    s[i].rank = rank_at(b, p, s, i, end);
    if (s[i].rank != BPE_NO_RANK)
        heap_push(heap, n_heap, (uint64_t)s[i].rank << 32 | i);
}

/* Make room in the scratch for words of n bytes. */
static int need_scratch(struct encoder *c, size_t n)
{
    if (n > INT32_MAX)
        return err_usage(c->e, "text: a word of %zu bytes is too long", n);
    if (n <= c->scratch_cap)
        return 0;
    size_t cap = n + n / 2;
    free(c->symbols);
    free(c->heap);
    c->scratch_cap = 0;
    c->symbols = malloc(cap * sizeof *c->symbols);
    /* There are n - 1 pairs at first. Each of at most n - 1 merges removes one
     * before it adds two. */
    c->heap = malloc(2 * cap * sizeof *c->heap);
    if (!c->symbols || !c->heap)
        return err_oom(c->e, cap * sizeof *c->symbols);
    c->scratch_cap = cap;
    return 0;
}

/* Return the token as which p[0..n) starts. *len: its bytes, 1 before. */
static uint32_t start_id(const struct bpe *b, const char *p, size_t n,
                         size_t *len)
{
    return b->order           ? bpe_piece_first(b, p, n, len)
           : b->byte_fallback ? bpe_first_char(b, p, n, len)
                              : b->byte_id[(unsigned char)*p];
}

/* Fill s with the characters (or bytes) of p[0..n) as a list. */
static void start_symbols(const struct bpe *b, const char *p, uint32_t n,
                          struct symbol *s)
{
    size_t len = 1;
    for (uint32_t i = 0, prev = UINT32_MAX; i < n; prev = i, i = s[i].next) {
        uint32_t id = start_id(b, p + i, n - i, &len);
        s[i] = (struct symbol){id, 0, prev, i + (uint32_t)len};
    }
}

/* Merge p[0..n) in O(n log n). Afterwards the tokens are a list in c->symbols
 * that begins with the first symbol. A symbol's index is the offset of its
 * token. */
static int merge_part(struct encoder *c, const char *p, size_t n)
{
    const struct bpe *b = c->b;
    if (need_scratch(c, n) < 0)
        return -1;
    __atomic_fetch_add(&c->b->n_merged, n, __ATOMIC_RELAXED);
    struct symbol *s = c->symbols;
    uint64_t *heap = c->heap;
    uint32_t end = (uint32_t)n;
    size_t n_heap = 0;
    start_symbols(b, p, end, s);
    for (uint32_t i = 0; i < end; i = s[i].next) {
        s[i].rank = rank_at(b, p, s, i, end);
        if (s[i].rank != BPE_NO_RANK)
            heap[n_heap++] = (uint64_t)s[i].rank << 32 | i;
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        heap_down(heap, n_heap, i);
    while (n_heap > 0) {
        uint32_t i = (uint32_t)heap[0], rank = (uint32_t)(heap[0] >> 32);
        heap[0] = heap[--n_heap];
        if (n_heap)
            heap_down(heap, n_heap, 0);
        if (s[i].rank != rank)
            continue; /* outdated: one of the symbols was merged since */
        uint32_t gone = s[i].next;
        s[i].next = s[gone].next;
        s[i].id = b->order ? bpe_piece_find(b, p + i, s[i].next - i)
                           : bpe_made(b, rank);
        s[gone].rank = BPE_NO_RANK;
        if (s[i].next < end)
            s[s[i].next].prev = i;
        rate(b, p, s, i, end, heap, &n_heap);
        if (i > 0)
            rate(b, p, s, s[i].prev, end, heap, &n_heap);
    }
    return 0;
}

/* Whether p[0..n) merges into exactly two tokens, the first of n_left bytes.
 * Returns 1, 0, or -1 on failure. */
static int stay_apart(struct encoder *c, const char *p, size_t n, size_t n_left)
{
    if (merge_part(c, p, n) < 0)
        return -1;
    const struct symbol *s = c->symbols;
    return s[0].next == n_left && s[n_left].next == n;
}

/* Append the ids of the tokens in c->symbols that end within the first `most`
 * of the n bytes of p. *end: the end of the last of them; *n_last: its length.
 * A character without a token has those of its bytes. */
static int take_tokens(struct encoder *c, const char *p, size_t n, size_t most,
                       size_t *end, size_t *n_last)
{
    const struct symbol *s = c->symbols;
    *end = *n_last = 0;
    for (size_t i = 0; i < n && s[i].next <= most; i = s[i].next) {
        *n_last = s[i].next - i;
        if (need(c, *n_last) < 0)
            return -1;
        for (size_t k = i; s[i].id == BPE_NO_ID && k < s[i].next; k++)
            c->ids[c->n++] = (int32_t)c->b->byte_id[(unsigned char)p[k]];
        if (s[i].id != BPE_NO_ID)
            c->ids[c->n++] = (int32_t)s[i].id;
        *end = s[i].next;
    }
    return 0;
}

/* Merge a long word in windows. The last tokens of a window are not used,
 * because their bytes might merge with the bytes after the window. The next
 * window begins after the last used token. So memory is limited to one window,
 * and time is linear.
 *
 * The result is exact if the bytes of any two neighbouring tokens, merged
 * alone, give the same two tokens. Proof: suppose a merge of the whole word
 * crosses a border between two of these tokens, and take the first such merge.
 * Before it, no merge crossed the outer borders of the two tokens, so their
 * bytes merged as if alone. The merge has the lowest rank in the whole word,
 * and is the leftmost of that rank. So it is also the next merge of the two
 * tokens alone, and these do not stay two tokens: a contradiction. Within a
 * window the condition holds by the same argument. Where two windows meet, we
 * test it. Returns 1, 0 if the window is too small, or -1 on failure. */
static int merge_windows(struct encoder *c, const char *p, size_t n,
                         size_t window)
{
    size_t at = 0, n_last = 0;
    while (at < n && c->n <= c->enough) {
        size_t len = n - at < window ? n - at : window;
        if (c->b->byte_fallback && at + len < n)
            len = bpe_char_start(p + at, n - at, len);
        size_t most = at + len < n ? len - len / 8 : len;
        size_t before = n_last, end;
        if (check_time(c, 1000))
            return -1;
        if (merge_part(c, p + at, len) < 0)
            return -1;
        size_t first = c->symbols[0].next;
        if (take_tokens(c, p + at, len, most, &end, &n_last) < 0)
            return -1;
        if (end == 0)
            return 0;
        if (at > 0) {
            int apart = stay_apart(c, p + at - before, before + first, before);
            if (apart <= 0)
                return apart;
        }
        at += end;
    }
    return 1;
}

/* Merge a word of any length and append its ids. */
static int merge_long(struct encoder *c, const char *p, size_t n)
{
    size_t start = c->n, window = c->b->window;
    int done;
    while ((done = merge_windows(c, p, n, window)) == 0) {
        c->n = start;
        window = window < n / 16 ? window * 16 : n;
    }
    return done < 0 ? -1 : 0;
}

/* ---- words ---- */

static int merge_word(struct encoder *c, const char *p, size_t n)
{
    if (n > SHORT_WORD || c->b->order)
        return merge_long(c, p, n);
    if (need(c, n) < 0)
        return -1;
    uint32_t id[SHORT_WORD];
    size_t n_ids = merge_short(c->b, p, n, id);
    for (size_t i = 0; i < n_ids; i++)
        c->ids[c->n++] = (int32_t)id[i];
    return 0;
}

/* Look up a whole word, for ignore_merges. Returns 1 with its id appended, 0 if
 * it is not a token, or -1. */
static int whole_word(struct encoder *c, const char *p, size_t n)
{
    const struct bpe *b = c->b;
    /* Copy the word, because we may not read the bytes after it. */
    struct buf padded = {0};
    if (buf_append(&padded, p, n) < 0 ||
        buf_append(&padded, "\0\0\0\0\0\0\0", BPE_PAD) < 0) {
        buf_free(&padded);
        return err_oom(c->e, n);
    }
    int32_t id = bpe_find(b, &b->words, bpe_hash(b->seed, padded.data, n),
                          padded.data, n);
    buf_free(&padded);
    if (id < 0)
        return 0;
    if (need(c, 1) < 0)
        return -1;
    c->ids[c->n++] = id;
    return 1;
}

int bpe_export_merges_make_all(struct bpe *b, bool *all, struct qwick_err *e)
{
    struct encoder c = {.b = b, .e = e, .enough = SIZE_MAX};
    int rc = 0;
    *all = true;
    for (int32_t id = 0; (size_t)id < b->size && *all && !rc; id++) {
        size_t n;
        const char *p = bpe_token(b, id, &n);
        c.n = 0;
        if ((b->tok[id].flags & (BPE_MODEL | BPE_RAW)) != BPE_MODEL)
            continue;
        rc = merge_word(&c, p, n);
        *all = c.n == 1 && c.ids[0] == id;
    }
    encoder_free(&c);
    free(c.ids);
    return rc;
}

static int merge_unseen(struct encoder *c, const char *p, size_t n)
{
    if (c->b->ignore_merges) {
        int found = whole_word(c, p, n);
        if (found)
            return found < 0 ? -1 : 0;
    }
    return merge_word(c, p, n);
}

#define WORD_BYTES sizeof((struct bpe_word *)0)->bytes
#define WORD_IDS   (sizeof((struct bpe_word *)0)->ids / sizeof(int32_t))

/* Encode one part of the split: take its ids from the cache, or merge it and
 * store them there. */
static int encode_word(struct encoder *c, const char *p, size_t n, size_t room)
{
    struct bpe *b = c->b;
    if (n == 1 && !b->ignore_merges && !b->byte_fallback) {
        if (need(c, 1) < 0)
            return -1;
        c->ids[c->n++] = (int32_t)b->byte_id[(unsigned char)*p];
        return 0;
    }
    if (n > WORD_BYTES || !c->cache)
        return merge_unseen(c, p, n);
    char copy[WORD_BYTES + BPE_PAD];
    if (room < n + BPE_PAD) {
        memset(copy, 0, sizeof copy);
        p = memcpy(copy, p, n);
    }
    struct bpe_word *w = &c->cache[bpe_hash(b->seed, p, n) % BPE_CACHE_WORDS];
    if (w->len == n && bpe_same(w->bytes, p, n)) {
        if (need(c, WORD_IDS) < 0)
            return -1;
        memcpy(c->ids + c->n, w->ids, sizeof w->ids);
        c->n += w->n_ids;
        return 0;
    }
    size_t at = c->n;
    if (merge_unseen(c, p, n) < 0)
        return -1;
    size_t n_ids = c->n - at;
    if (n_ids <= WORD_IDS) {
        w->len = (uint8_t)n;
        w->n_ids = (uint8_t)n_ids;
        memcpy(w->bytes, p, n);
        memcpy(w->ids, c->ids + at, n_ids * sizeof *w->ids);
    }
    return 0;
}

/* Whether a blank goes before a piece. begins: the piece begins the text.
 * normal: it is in the normal form. */
static bool wants_prefix(const struct encoder *c, const char *p, size_t n,
                         bool begins, bool normal)
{
    if (n == 0 || c->b->prefix == BPE_PREFIX_NONE || (begins && c->goes_on))
        return false;
    if (c->b->prefix == BPE_PREFIX_EACH)
        return !normal; /* the normal form has it */
    return (begins || c->b->prefix == BPE_PREFIX_ALWAYS) && *p != ' ' &&
           !(n >= 3 && memcmp(p, "\xE2\x96\x81", 3) == 0);
}

/* Bytes of a text that are normalised at a time. */
enum { NFC_BYTES = 1 << 20 };

/* Write the NFC form of p[0..n) to c->copy. */
static int normalise_piece(struct encoder *c, const char *p, size_t n)
{
    for (size_t at = 0, len; at < n; at += len) {
        len = unicode_nfc_part(p + at, n - at, NFC_BYTES);
        if (unicode_nfc(&c->copy, p + at, len, c->e) || check_time(c, 1000))
            return -1;
    }
    return 0;
}

/* Write the text that is split and merged to c->copy if it differs from
 * p[0..n). Returns 1 then, 0 if it is equal, or -1. */
static int change_piece(struct encoder *c, const char *p, size_t n, bool prefix)
{
    c->copy.len = 0;
    if (c->b->order)
        return bpe_pieces_text(p, n, prefix, &c->copy) ? err_oom(c->e, n) : 1;
    if (c->b->nfc)
        return unicode_is_nfc(p, n) ? 0 : normalise_piece(c, p, n) ? -1 : 1;
    if (!prefix)
        return 0;
    return buf_putc(&c->copy, ' ') || buf_append(&c->copy, p, n)
               ? err_oom(c->e, n)
               : 1;
}

/* The length of the part that p[0..n), n >= 1, begins with. */
static size_t next_part(const struct bpe *b, const char *p, size_t n)
{
    if (!b->byte_fallback)
        return split_next(b->split, p, n);
    size_t k = 1;
    while (b->newlines_apart && k < n && (p[k] == '\n') == (*p == '\n'))
        k++;
    return b->newlines_apart ? k : n;
}

/* Encode the text between added tokens. Ends early when there are enough ids.
 * begins, normal: see wants_prefix. */
static int encode_piece(struct encoder *c, const char *p, size_t n, bool begins,
                        bool normal)
{
    int changed =
        n ? change_piece(c, p, n, wants_prefix(c, p, n, begins, normal)) : 0;
    if (changed < 0)
        return -1;
    if (changed) {
        p = c->copy.data;
        n = c->copy.len;
    }
    for (size_t i = 0; i < n && c->n <= c->enough;) {
        size_t k = next_part(c->b, p + i, n - i);
        bool one = c->b->newlines_apart && p[i] == '\n' && k < BPE_NEWLINES &&
                   c->b->newlines[k] < c->b->size;
        if (check_time(c, 1) || (one && need(c, 1)))
            return -1;
        if (one)
            c->ids[c->n++] = (int32_t)c->b->newlines[k];
        else if (encode_word(c, p + i, k, n - i) < 0)
            return -1;
        i += k;
    }
    return 0;
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

static int encode_set(struct encoder *c, const struct source *t, int set);

/* Append the normal form of text[begin..end) to c->normal. found: it is a part
 * in which added tokens are recognised. */
static int add_normal(struct encoder *c, const char *text, size_t begin,
                      size_t end, bool found)
{
    struct bpe_span at = {c->normal.len, 0};
    bool begins = at.begin == 0 && !(c->begins && c->goes_on);
    if (bpe_normal_form(c->b, text + begin, end - begin, begins, &c->normal,
                        c->e))
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
static int encode_between(struct encoder *c, const struct source *t,
                          size_t begin, size_t end, size_t *span)
{
    if (c->b->sets[BPE_NORMALIZED].n == 0 || begin == end)
        return encode_piece(c, t->p + begin, end - begin, begin == 0, false);
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
static int encode_until(struct encoder *c, const struct source *t, int set,
                        size_t begin, size_t end, size_t *span)
{
    return set == BPE_PLAIN ? encode_between(c, t, begin, end, span)
                            : encode_piece(c, t->p + begin, end - begin,
                                           c->begins && begin == 0, true);
}

/* Encode a text in which the tokens of this set are recognised first. */
static int encode_set(struct encoder *c, const struct source *t, int set)
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
            if (encode_until(c, t, set, done, stop, &before) || need(c, 1) ||
                check_time(c, 1))
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
    struct encoder c = {.b = b,
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
    encoder_free(&c);
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
