/* Encoding with merges: text between added tokens is split into words, and each
 * word is merged by rank, or by the scores of the merged tokens. */
#include <stdlib.h>

#include "base/buf.h"
#include "text/bpe/bpe_int.h"
#include "text/split.h"
#include "text/unicode.h"

/* ---- merging ---- */

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
static int need_scratch(struct bpe_encoder *c, size_t n)
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
static int merge_part(struct bpe_encoder *c, const char *p, size_t n)
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
static int stay_apart(struct bpe_encoder *c, const char *p, size_t n,
                      size_t n_left)
{
    if (merge_part(c, p, n) < 0)
        return -1;
    const struct symbol *s = c->symbols;
    return s[0].next == n_left && s[n_left].next == n;
}

/* Append the ids of the tokens in c->symbols that end within the first `most`
 * of the n bytes of p. *end: the end of the last of them; *n_last: its length.
 * A character without a token has the tokens of its bytes. */
static int take_tokens(struct bpe_encoder *c, const char *p, size_t n,
                       size_t most, size_t *end, size_t *n_last)
{
    const struct symbol *s = c->symbols;
    *end = *n_last = 0;
    for (size_t i = 0; i < n && s[i].next <= most; i = s[i].next) {
        *n_last = s[i].next - i;
        if (bpe_need(c, *n_last) < 0)
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
static int merge_windows(struct bpe_encoder *c, const char *p, size_t n,
                         size_t window)
{
    size_t at = 0, n_last = 0;
    while (at < n && c->n <= c->enough) {
        size_t len = n - at < window ? n - at : window;
        if (c->b->byte_fallback && at + len < n)
            len = bpe_char_start(p + at, n - at, len);
        size_t most = at + len < n ? len - len / 8 : len;
        size_t before = n_last, end;
        if (bpe_check_time(c, 1000))
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
static int merge_long(struct bpe_encoder *c, const char *p, size_t n)
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

static int merge_word(struct bpe_encoder *c, const char *p, size_t n)
{
    if (n > SHORT_WORD || c->b->order)
        return merge_long(c, p, n);
    if (bpe_need(c, n) < 0)
        return -1;
    uint32_t id[SHORT_WORD];
    size_t n_ids = merge_short(c->b, p, n, id);
    for (size_t i = 0; i < n_ids; i++)
        c->ids[c->n++] = (int32_t)id[i];
    return 0;
}

/* Look up a whole word, for ignore_merges. Returns 1 with its id appended, 0 if
 * it is not a token, or -1. */
static int whole_word(struct bpe_encoder *c, const char *p, size_t n)
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
    if (bpe_need(c, 1) < 0)
        return -1;
    c->ids[c->n++] = id;
    return 1;
}

int bpe_export_merges_make_all(struct bpe *b, bool *all, struct qwick_err *e)
{
    struct bpe_encoder c = {.b = b, .e = e, .enough = SIZE_MAX};
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
    bpe_encoder_free(&c);
    free(c.ids);
    return rc;
}

static int merge_unseen(struct bpe_encoder *c, const char *p, size_t n)
{
    if (c->b->ignore_merges) {
        int found = whole_word(c, p, n);
        if (found)
            return found < 0 ? -1 : 0;
    }
    return merge_word(c, p, n);
}

/* Encode one part of the split. room: bytes that are readable from p on. */
static int encode_word(struct bpe_encoder *c, const char *p, size_t n,
                       size_t room)
{
    struct bpe *b = c->b;
    if (n > 1 || b->ignore_merges || b->byte_fallback)
        return bpe_encode_cached(c, p, n, room, merge_unseen);
    if (bpe_need(c, 1) < 0)
        return -1;
    c->ids[c->n++] = (int32_t)b->byte_id[(unsigned char)*p];
    return 0;
}

/* Whether a blank goes before a piece. begins: the piece begins the text.
 * normal: it is in the normal form. */
static bool wants_prefix(const struct bpe_encoder *c, const char *p, size_t n,
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
static int normalise_piece(struct bpe_encoder *c, const char *p, size_t n)
{
    for (size_t at = 0, len; at < n; at += len) {
        len = unicode_nfc_part(p + at, n - at, NFC_BYTES);
        if (unicode_nfc(&c->copy, p + at, len, c->e) || bpe_check_time(c, 1000))
            return -1;
    }
    return 0;
}

/* Write the text that is split and merged to c->copy if it differs from
 * p[0..n). Returns 1 then, 0 if it is equal, or -1. */
static int change_piece(struct bpe_encoder *c, const char *p, size_t n,
                        bool prefix)
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

/* Encode text between added tokens. Ends early when there are enough ids.
 * begins, normal: see wants_prefix. */
static int encode_piece(struct bpe_encoder *c, const char *p, size_t n,
                        bool begins, bool normal)
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
        if (bpe_check_time(c, 1) || (one && bpe_need(c, 1)))
            return -1;
        if (one)
            c->ids[c->n++] = (int32_t)c->b->newlines[k];
        else if (encode_word(c, p + i, k, n - i) < 0)
            return -1;
        i += k;
    }
    return 0;
}

/* ---- normal forms ---- */

static int normal_form(const struct bpe *b, const char *p, size_t n,
                       bool begins, struct buf *out, struct qwick_err *e)
{
    if (b->nfc)
        return unicode_nfc(out, p, n, e);
    int rc = begins && n && b->prefix == BPE_PREFIX_EACH
                 ? buf_puts(out, "\xE2\x96\x81")
                 : 0;
    if (!b->byte_fallback && !rc)
        rc = buf_append(out, p, n);
    for (size_t i = 0; b->byte_fallback && i < n && !rc; i++)
        rc = p[i] == ' ' ? buf_puts(out, "\xE2\x96\x81") : buf_putc(out, p[i]);
    return rc ? err_oom(e, n) : 0;
}

const struct bpe_model bpe_merging = {.encode = encode_piece,
                                      .normal_form = normal_form,
                                      .decode = bpe_decode_piece};
