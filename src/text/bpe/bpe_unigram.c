/* Encoding with Unigram. */
#include "text/bpe/bpe_unigram.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "text/unicode.h"

/* ---- the normalizer ---- */

static size_t char_at(const char *p, size_t n, uint32_t *c)
{
    size_t len = utf8_decode(p, n, c, NULL);
    if (len == 0)
        *c = 0xFFFFFFFF;
    return len ? len : 1;
}

/* Append p[0..n) as SentencePiece's rule "nmt" leaves it. */
static int nmt(const char *p, size_t n, struct buf *out)
{
    int rc = 0;
    for (size_t i = 0, len; i < n && !rc; i += len) {
        uint32_t c;
        len = char_at(p + i, n - i, &c);
        if ((c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
            c == 0x7F || c == 0x8F || c == 0x9F)
            continue;
        bool blank = c == '\t' || c == '\n' || c == '\f' || c == '\r' ||
                     c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
                     c == 0xFFFD;
        rc = blank ? buf_putc(out, ' ') : buf_append(out, p + i, len);
    }
    return rc;
}

static bool is_space(const char *p, size_t n, size_t *len)
{
    uint32_t c;
    *len = char_at(p, n, &c);
    return unicode_class(c) == UC_SPACE;
}

/* Append p[0..n) without white space at the ends. */
static int strip(const struct unigram_step *s, const char *p, size_t n,
                 struct buf *out)
{
    size_t begin = 0, end = 0, len;
    while (s->left && begin < n && is_space(p + begin, n - begin, &len))
        begin += len;
    for (size_t i = begin; i < n; i += len)
        if (!is_space(p + i, n - i, &len) || !s->right)
            end = i + len;
    return end > begin ? buf_append(out, p + begin, end - begin) : 0;
}

static int squeeze(const struct unigram_step *s, const char *p, size_t n,
                   struct buf *out)
{
    int rc = 0;
    for (size_t i = 0, k; i < n && !rc; i += k) {
        for (k = 0; i + k < n && p[i + k] == ' ';)
            k++;
        rc = k == 0   ? buf_putc(out, p[i + k++])
             : k == 1 ? buf_putc(out, ' ')
                      : buf_puts(out, s->marks ? "\xE2\x96\x81" : " ");
    }
    return rc;
}

static int take_step(const struct unigram *u, const struct unigram_step *s,
                     const char *p, size_t n, struct buf *out,
                     struct qwick_err *e)
{
    if (s->kind == UNIGRAM_NFC)
        return unicode_nfc(out, p, n, e);
    if (s->kind == UNIGRAM_NFKC)
        return unicode_nfkc(out, p, n, e);
    int rc = s->kind == UNIGRAM_CHARSMAP ? charsmap_apply(u->map, p, n, out)
             : s->kind == UNIGRAM_NMT    ? nmt(p, n, out)
             : s->kind == UNIGRAM_STRIP  ? strip(s, p, n, out)
                                         : squeeze(s, p, n, out);
    return rc ? err_oom(e, n) : 0;
}

/* Append the normal form of p[0..n). */
static int unigram_normal_form(const struct bpe *b, const char *p, size_t n,
                               bool begins, struct buf *out,
                               struct qwick_err *e)
{
    const struct unigram *u = b->own;
    struct buf a = {0}, last = {0};
    int rc = u->n_steps ? 0 : buf_append(out, p, n) ? err_oom(e, n) : 0;
    (void)begins;
    for (size_t i = 0; i < u->n_steps && !rc; i++) {
        bool ends = i + 1 == u->n_steps;
        struct buf *to = ends ? out : &a;
        rc = take_step(u, &u->steps[i], i ? buf_text(&last) : p,
                       i ? last.len : n, to, e);
        if (!ends) {
            struct buf swap = last;
            last = a;
            a = swap;
            a.len = 0;
        }
    }
    buf_free(&a);
    buf_free(&last);
    return rc;
}

/* ---- the best pieces ----
 *
 * Viterbi's algorithm. A place of the lattice is an offset in the text. Its
 * best path comes from the piece that ends there, and has a score. */

struct place {
    double score;
    uint32_t id;  /* of the piece that ends here */
    uint16_t len; /* its bytes; 0: no path ends here yet */
    uint16_t k;   /* bytes of the character that begins here; later, of the
                     piece on the best path */
};

/* Bytes of a text for which there is a lattice on the stack. */
enum { SHORT = 256 };

/* Starts at a time in a long text. Memory is bounded by them, unless no place
 * is on all paths for longer. */
enum { WINDOW = 4096 };

/* Prepare the places of p[0..limit], of n bytes. */
static void clear_places(struct place *v, const char *p, size_t limit, size_t n)
{
    for (size_t i = 0, k; i <= limit; i += k) {
        k = i < n ? utf8_decode(p + i, n - i, NULL, NULL) : 0;
        k = k ? k : 1;
        for (size_t at = 0; at < k && i + at <= limit; at++)
            v[i + at] = (struct place){.k = (uint16_t)k};
    }
}

/* Let a path with a piece of m bytes end at v[m], if it is the best one. */
static void extend(struct place *v, size_t m, uint32_t id, double score)
{
    struct place *to = &v[m];
    double sum = v->score + score;
    if (to->len && !(sum > to->score))
        return;
    to->score = sum;
    to->id = id;
    to->len = (uint16_t)m;
}

/* Extend the path that ends at v by each piece that p[0..most) begins with.
 * Returns the bytes of the longest one. */
static size_t extend_all(const struct bpe *b, struct place *v, const char *p,
                         size_t most)
{
    const struct unigram *u = b->own;
    uint64_t h = b->seed;
    size_t hashed = 0, longest = 0;
    bool single = false;
    for (size_t m = v->k; m <= most; m += v[m].k) {
        for (; m - hashed > 8; hashed += 8)
            h = bpe_hash_next(b->seed, h, p + hashed);
        int32_t id = bpe_find(
            b, &b->words, bpe_hash_last(b->seed, h, p + hashed, m - hashed, m),
            p, m);
        if (id >= 0 && (size_t)id < b->size &&
            !(b->tok[id].flags & BPE_SPECIAL)) {
            extend(v, m, (uint32_t)id, u->scores[id]);
            single = single || m == v->k;
            longest = m;
        }
        if (m == most)
            break;
    }
    if (!single) {
        extend(v, v->k, u->unk, u->unk_score);
        longest = longest > v->k ? longest : v->k;
    }
    return longest;
}

/* Find the best paths to all places of p[0..len), of n bytes; v[0].score is
 * set. *cut becomes the last place up to len that all paths have. */
static int find_paths(struct bpe_encoder *c, struct place *v, const char *p,
                      size_t len, size_t n, size_t *cut)
{
    const struct bpe *b = c->b;
    size_t reach = 0; /* where the pieces so far end */
    size_t next_check = WINDOW;
    for (size_t i = 0; i < len; i += v[i].k) {
        if (i >= reach)
            *cut = i;
        size_t most = n - i < b->longest ? n - i : b->longest;
        size_t m = extend_all(b, v + i, p + i, most);
        reach = i + m > reach ? i + m : reach;
        if (i >= next_check) {
            if (bpe_check_time(c, 1000))
                return -1;
            next_check = i + WINDOW;
        }
    }
    if (len >= reach)
        *cut = len;
    return 0;
}

/* Append the ids of the best path to v[cut]. *unknown: the last token is
 * u->unk, which stands for the whole run. */
static int take_path(struct bpe_encoder *c, struct place *v, const char *p,
                     size_t cut, bool *unknown)
{
    const struct unigram *u = c->b->own;
    size_t n = 0;
    for (size_t at = cut; at > 0; n++) {
        size_t len = v[at].len;
        v[at - len].k = (uint16_t)len;
        at -= len;
    }
    if (bpe_need(c, u->bytes ? cut : n))
        return -1;
    for (size_t at = 0, k; at < cut; at += k) {
        k = v[at].k;
        uint32_t id = v[at + k].id;
        bool is_unknown = id == u->unk;
        if (!is_unknown || (!u->bytes && !*unknown))
            c->ids[c->n++] = (int32_t)id;
        for (size_t i = 0; is_unknown && u->bytes && i < k; i++)
            c->ids[c->n++] = (int32_t)c->b->byte_id[(unsigned char)p[at + i]];
        *unknown = is_unknown;
    }
    return 0;
}

/* Append the ids of a word in windows. Each ends at a place that all paths
 * have, so that the result is that of the whole; its score goes on, too, since
 * the order of additions decides between equal scores. v has `room` places. */
static int encode_windows(struct bpe_encoder *c, const char *p, size_t n,
                          struct place *v, size_t room, struct place **heap)
{
    size_t window = WINDOW, longest = c->b->longest;
    double score = 0;
    bool unknown = false;
    for (size_t at = 0, cut; at < n && c->n <= c->enough;) {
        size_t left = n - at;
        size_t len =
            left <= window ? left : bpe_char_start(p + at, left, window);
        size_t limit = left - len < longest ? left : len + longest, bytes;
        if (limit >= room) {
            if (size_mul(limit + 1, sizeof *v, &bytes))
                return err_oom(c->e, limit);
            free(*heap);
            v = *heap = malloc(bytes);
            room = limit + 1;
            if (!v)
                return err_oom(c->e, bytes);
        }
        cut = 0;
        clear_places(v, p + at, limit, left);
        v[0].score = score;
        if (find_paths(c, v, p + at, len, left, &cut) || bpe_check_time(c, 1))
            return -1;
        if (cut == 0) {
            window *= 4;
            continue;
        }
        score = v[cut].score;
        if (take_path(c, v, p + at, cut, &unknown))
            return -1;
        at += cut;
    }
    return 0;
}

static int unigram_word(struct bpe_encoder *c, const char *p, size_t n)
{
    struct place small[SHORT], *heap = NULL;
    int rc = encode_windows(c, p, n, small, SHORT, &heap);
    free(heap);
    return rc;
}

/* ---- words ---- */

/* Encode the words of p[0..n), which is normalised. prefix: a blank goes before
 * it, unless one is there. */
static int encode_words(struct bpe_encoder *c, const char *p, size_t n,
                        bool prefix)
{
    const struct unigram *u = c->b->own;
    prefix =
        prefix && n > 0 && *p != ' ' && !bpe_piece_has_blank(p, n < 3 ? n : 3);
    if (bpe_pieces_text(p, n, prefix, &c->copy))
        return err_oom(c->e, n);
    const char *s = c->copy.data;
    n = c->copy.len;
    for (size_t i = 0, k; i < n && c->n <= c->enough; i += k) {
        const char *blank = u->whole ? NULL : memchr(s + i + 1, ' ', n - i - 1);
        k = blank ? (size_t)(blank - s) - i : n - i;
        if (bpe_check_time(c, 1) ||
            bpe_encode_cached(c, s + i, k, n - i + BPE_PAD, unigram_word))
            return -1;
    }
    return 0;
}

/* Encode p[0..n), which is normalised. begins: it begins the text. */
static int encode_normal(struct bpe_encoder *c, const char *p, size_t n,
                         bool begins)
{
    const struct bpe *b = c->b;
    const struct unigram *u = b->own;
    bool first = begins && !c->goes_on;
    bool rest = b->prefix == BPE_PREFIX_ALWAYS;
    size_t i = 0, k = 0, len;
    first = begins ? first && b->prefix != BPE_PREFIX_NONE : rest;
    if (!u->by_space)
        return encode_words(c, p, n, first);
    for (; i < n && c->n <= c->enough; i += k) {
        while (i < n && is_space(p + i, n - i, &len))
            i += len;
        for (k = 0; i + k < n && !is_space(p + i + k, n - i - k, &len);)
            k += len;
        if (k && encode_words(c, p + i, k, i ? rest : first))
            return -1;
    }
    return 0;
}

static int unigram_encode(struct bpe_encoder *c, const char *p, size_t n,
                          bool begins, bool normal)
{
    struct buf form = {0};
    if (n == 0)
        return 0;
    if (normal)
        return encode_normal(c, p, n, begins);
    int rc = unigram_normal_form(c->b, p, n, begins, &form, c->e);
    if (!rc)
        rc = encode_normal(c, buf_text(&form), form.len, begins);
    buf_free(&form);
    return rc;
}

static void unigram_free(struct bpe *b)
{
    struct unigram *u = b->own;
    if (!u)
        return;
    charsmap_free(u->map);
    free(u->scores);
    free(u);
}

const struct bpe_model bpe_unigram = {.encode = unigram_encode,
                                      .normal_form = unigram_normal_form,
                                      .decode = bpe_decode_piece,
                                      .free = unigram_free,
                                      .lacks = "a model of type Unigram"};
