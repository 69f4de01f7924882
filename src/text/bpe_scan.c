/* The vocabulary and the merges of tokenizer.json straight from its text.
 *
 * They are nearly all of the file, and whoever writes it writes every entry
 * alike: strings with no escapes but \" and \\, plain integers, the same white
 * space each time. Just that is read here, in much less time than a parser
 * takes. Whatever is written in another way, or is wrong, is left to the
 * parser, so that what is accepted, and what messages say, is its business
 * alone. Where there is a second CPU, a second thread reads the merges, while
 * this one reads the vocabulary and indexes it; then both resolve merges. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "base/os.h"
#include "base/rng.h"
#include "text/bpe_load.h"

/* Below so many bytes a thread costs more than it gives. */
enum { MIN_BYTES = 1 << 20 };

/* ---- text ---------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && is_space(*p))
        p++;
    return p;
}

/* The first c behind white space, or NULL when something else is there. */
static const char *expect(const char *p, const char *end, char c)
{
    p = skip_space(p, end);
    return p < end && *p == c ? p : NULL;
}

/* ONES * c: c in every byte. HIGH: the highest bit of every byte, in which the
 * functions below answer. */
#define ONES 0x0101010101010101u
#define HIGH 0x8080808080808080u

/* Bytes that are c, or below c <= 0x80: right up to the lowest such byte; what
 * is above it may be wrong, as the subtraction borrows. */
static inline uint64_t bytes_below(uint64_t w, unsigned char c)
{
    return (w - ONES * c) & ~w & HIGH;
}

static inline uint64_t bytes_equal(uint64_t w, unsigned char c)
{
    return bytes_below(w ^ ONES * c, 1);
}

/* The rest of a string, byte by byte. */
static const char *copy_slowly(const char *p, const char *end, char *out,
                               char *at, size_t *n)
{
    while (p < end && *p != '"') {
        size_t k = 1;
        if ((unsigned char)*p < 0x20)
            return NULL;
        if (*p == '\\') {
            if (++p == end || (*p != '"' && *p != '\\'))
                return NULL;
        } else if ((k = utf8_decode(p, (size_t)(end - p), NULL, NULL)) == 0) {
            return NULL;
        }
        for (; k > 0; k--)
            *at++ = *p++;
    }
    *n = (size_t)(at - out);
    return p < end ? p : NULL;
}

/* Copy a string that begins at p, behind its quote, to out and set *n to its
 * length. Returns where its closing quote is, or NULL. Nothing is written 8
 * bytes or more behind the copy, nor more than up to end. Eight bytes at once,
 * as long as they are ASCII and characters of two bytes, which is how bytes
 * are spelled. */
static inline const char *copy_string(const char *p, const char *end, char *out,
                                      size_t *n)
{
    char *at = out;
    uint64_t open = 0; /* the high bit of byte 0 is to be of a second byte */
    while (end - p >= 8) {
        uint64_t w = bpe_load64(p);
        uint64_t stop =
            bytes_equal(w, '"') | bytes_equal(w, '\\') | bytes_below(w, ' ');
        stop &= -stop;
        uint64_t high = w & HIGH & (stop - 1); /* all of it without a stop */
        uint64_t lead = high & w << 1, second = high & ~(w << 1);
        /* 110xxxxx, and not one of the two that would be overlong */
        uint64_t no_lead = w << 2 | ~(w << 3 | w << 4 | w << 5 | w << 6);
        if ((second ^ (lead << 8 | open)) | (lead & no_lead))
            break;
        memcpy(at, &w, 8);
        if (stop) {
            int k = __builtin_ctzll(stop) / 8;
            p += k;
            at += k;
            open = 0;
            if (*p != '"')
                break;
            *n = (size_t)(at - out);
            return p;
        }
        open = lead >> 63 << 7;
        p += 8;
        at += 8;
    }
    if (open) { /* from the character's first byte on */
        p--;
        at--;
    }
    return copy_slowly(p, end, out, at, n);
}

/* What stood between two strings. It has been checked where it was met first;
 * after that it is only compared. */
struct between {
    uint64_t word[4], mask[4];
    size_t n; /* 0: none */
};

static void learn(struct between *b, const char *from, const char *to)
{
    size_t n = (size_t)(to - from);
    *b = (struct between){.n = n <= sizeof b->word ? n : 0};
    memcpy(b->word, from, b->n);
    memset(b->mask, 0xFF, b->n);
}

static inline bool again(const struct between *b, const char *p,
                         const char *end)
{
    uint64_t differ = 0;
    if (b->n == 0 || (size_t)(end - p) < sizeof b->word)
        return false;
    for (size_t i = 0; i < 4; i++)
        differ |= (bpe_load64(p + 8 * i) ^ b->word[i]) & b->mask[i];
    return differ == 0;
}

/* Offset of the bracket of a value whose key is probably this one, with its
 * quotes; 0: none. A token of the vocabulary may be spelt so, but has no
 * bracket. */
static size_t find_value(const char *text, size_t n, const char *key,
                         char bracket)
{
    const char *p = text, *end = text + n;
    size_t k = strlen(key);
    while ((p = memmem(p, (size_t)(end - p), key, k)) != NULL) {
        p += k;
        const char *at = expect(p, end, ':');
        if (at && (at = expect(at + 1, end, bracket)) != NULL)
            return (size_t)(at - text);
    }
    return 0;
}

/* ---- vocabulary ---------------------------------------------------------- */

/* The object at text[at]; the offset behind it, or 0. */
static size_t scan_vocab(struct bpe_load *l, const char *text, size_t n,
                         size_t at)
{
    const char *end = text + n, *p = expect(text + at + 1, end, '"');
    struct between entries = {.n = 0};
    while (p) { /* at the quote of an entry */
        size_t length;
        p = copy_string(p + 1, end, l->vocab.p + l->vocab.len, &length);
        if (!p || !(p = expect(p + 1, end, ':')))
            return 0;
        p = skip_space(p + 1, end);
        uint32_t id = 0;
        const char *digits = p;
        for (; p < end && p - digits < 8 && *p >= '0' && *p <= '9'; p++)
            id = id * 10 + (uint32_t)(*p - '0');
        if (p == digits || (*digits == '0' && p - digits > 1) ||
            id > BPE_MAX_ID || length > BPE_MAX_TOKEN ||
            bpe_vocab_put(l, length, id) < 0)
            return 0;
        if (again(&entries, p, end)) {
            p += entries.n - 1;
            continue;
        }
        const char *gap = p;
        if (expect(p, end, '}'))
            return (size_t)(expect(p, end, '}') + 1 - text);
        p = expect(p, end, ',');
        p = p ? expect(p + 1, end, '"') : NULL;
        if (p)
            learn(&entries, gap, p + 1);
    }
    return 0;
}

/* ---- merges -------------------------------------------------------------- */

/* A record is complete. -1: the other thread has given up, or there are too
 * many. The other thread may read BPE_PAD bytes behind what it works on; these
 * must be complete too, so that publishing lags behind. */
static int record_done(struct merges *m, size_t left, size_t right)
{
    m->arena.len += HEAD + left + right;
    if (++m->n % CHUNK_MERGES)
        return 0;
    size_t c = m->n / CHUNK_MERGES;
    if (c == MAX_CHUNKS)
        return -1;
    m->start[c] = m->arena.len;
    __atomic_store_n(&m->published, c - 1, __ATOMIC_RELEASE);
    return __atomic_load_n(&m->ended, __ATOMIC_RELAXED) ? -1 : 0;
}

/* Pairs of strings, from the bracket of the first one on. Returns where the
 * array's bracket is, or NULL. */
static const char *scan_pairs(struct merges *m, const char *p, const char *end)
{
    struct between parts = {.n = 0}, pairs = {.n = 0};
    p = expect(p + 1, end, '"');
    while (p) { /* at the first quote of a pair */
        char *r = m->arena.p + m->arena.len;
        size_t left, right;
        p = copy_string(p + 1, end, r + HEAD, &left);
        if (!p)
            break;
        const char *gap = ++p;
        if (again(&parts, p, end)) {
            p += parts.n - 1;
        } else {
            p = expect(p, end, ',');
            p = p ? expect(p + 1, end, '"') : NULL;
            if (!p)
                break;
            learn(&parts, gap, p + 1);
        }
        p = copy_string(p + 1, end, r + HEAD + left, &right);
        if (!p || left == 0 || right == 0 || left > BPE_MAX_TOKEN ||
            right > BPE_MAX_TOKEN - left)
            break;
        bpe_record_head(r, left, right);
        if (record_done(m, left, right) < 0)
            break;
        gap = ++p;
        if (again(&pairs, p, end)) {
            p += pairs.n - 1;
            continue;
        }
        p = expect(p, end, ']');
        if (p && expect(p + 1, end, ']'))
            return expect(p + 1, end, ']');
        p = p ? expect(p + 1, end, ',') : NULL;
        p = p ? expect(p + 1, end, '[') : NULL;
        p = p ? expect(p + 1, end, '"') : NULL;
        if (p)
            learn(&pairs, gap, p + 1);
    }
    return NULL;
}

/* The same for lines "left right", from the quote of the first one on. */
static const char *scan_lines(struct merges *m, const char *p, const char *end)
{
    struct between lines = {.n = 0};
    while (p) {
        char *r = m->arena.p + m->arena.len, *s = r + HEAD;
        size_t n;
        p = copy_string(p + 1, end, s, &n);
        if (!p || n > BPE_MAX_TOKEN)
            break;
        char *space = memchr(s, ' ', n);
        size_t left = space ? (size_t)(space - s) : 0;
        size_t right = space ? n - left - 1 : 0;
        if (left == 0 || right == 0 || memchr(space + 1, ' ', right) ||
            (n >= 8 && !memcmp(s, "#version", 8)))
            break;
        memmove(space, space + 1, right);
        bpe_record_head(r, left, right);
        if (record_done(m, left, right) < 0)
            break;
        const char *gap = ++p;
        if (again(&lines, p, end)) {
            p += lines.n - 1;
            continue;
        }
        if (expect(p, end, ']'))
            return expect(p, end, ']');
        p = expect(p, end, ',');
        p = p ? expect(p + 1, end, '"') : NULL;
        if (p)
            learn(&lines, gap, p + 1);
    }
    return NULL;
}

static void scan_merges(struct merges *m)
{
    const char *end = m->text + m->n_text, *p = NULL;
    int running = 0;
    m->begin = find_value(m->text, m->n_text, "\"merges\"", '[');
    if (m->begin) {
        const char *first = m->text + m->begin + 1;
        p = expect(first, end, '[');
        p = p ? scan_pairs(m, p, end)
              : scan_lines(m, expect(first, end, '"'), end);
    }
    m->end = p ? (size_t)(p + 1 - m->text) : 0;
    size_t chunks = (m->n + CHUNK_MERGES - 1) / CHUNK_MERGES;
    m->start[chunks] = m->arena.len;
    __atomic_store_n(&m->published, chunks, __ATOMIC_RELEASE);
    __atomic_compare_exchange_n(&m->ended, &running, p ? 1 : -1, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* The second thread: read the merges, then help to resolve them. */
static void *merges_thread(void *ctx)
{
    struct bpe_load *l = ctx;
    struct merges *m = &l->merges;
    scan_merges(m);
    while (__atomic_load_n(&m->ended, __ATOMIC_RELAXED) == 1 &&
           !__atomic_load_n(&m->indexed, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){0, 20000}, NULL);
    if (__atomic_load_n(&m->indexed, __ATOMIC_ACQUIRE))
        bpe_resolve_chunks(l);
    return NULL;
}

static int start_thread(struct bpe_load *l)
{
    sigset_t all, old;
    /* Signals are for the program's own threads. */
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &old))
        return -1;
    int rc = pthread_create(&l->merges.thread, NULL, merges_thread, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? -1 : 0;
}

/* ---- both, and the rest -------------------------------------------------- */

/* Both parts; returns where the vocabulary ends, or 0. */
static size_t scan_parts(struct bpe_load *l, const char *text, size_t n,
                         size_t vocab)
{
    struct merges *m = &l->merges;
    m->text = text;
    m->n_text = n;
    bool two = n >= MIN_BYTES && os_cpus() > 1 && start_thread(l) == 0;
    size_t end = scan_vocab(l, text, n, vocab);
    if (!two)
        scan_merges(m);
    if (end && bpe_vocab_done(l) == 0 && l->rc == 0) {
        __atomic_store_n(&m->indexed, true, __ATOMIC_RELEASE);
        bpe_resolve_chunks(l);
    } else {
        __atomic_store_n(&m->ended, -1, __ATOMIC_RELAXED);
    }
    if (two)
        pthread_join(m->thread, NULL);
    l->b->n_merges = m->n;
    return m->ended == 1 && m->begin >= end ? end : 0;
}

/* The parts are the model's, if a mark in their places is found there. It must
 * be one that the file cannot have. */
static int check_places(const struct json_doc *doc, const char *mark)
{
    const struct json_value *model = json_get(json_root(doc), "model");
    return json_equals(json_get(model, "vocab"), mark) &&
                   json_equals(json_get(model, "merges"), mark)
               ? 0
               : -1;
}

/* What is left of the file, with marks in place of both. */
static int parse_rest(struct bpe_load *l, const char *text, size_t n,
                      const size_t vocab[2], struct json_doc **rest)
{
    const struct merges *m = &l->merges;
    struct buf b = {0};
    char mark[32];
    snprintf(mark, sizeof mark, "%016llx",
             (unsigned long long)rng_random_seed());
    int rc = -1;
    if (buf_append(&b, text, vocab[0]) == 0 &&
        buf_printf(&b, "\"%s\"", mark) == 0 &&
        buf_append(&b, text + vocab[1], m->begin - vocab[1]) == 0 &&
        buf_printf(&b, "\"%s\"", mark) == 0 &&
        buf_append(&b, text + m->end, n - m->end) == 0 &&
        json_parse(rest, l->name, b.data, b.len, QWICK_ERR_MODEL, l->e) == 0)
        rc = check_places(*rest, mark);
    buf_free(&b);
    return rc;
}

int bpe_scan(struct bpe_load *l, const char *text, size_t n,
             struct json_doc **rest)
{
    size_t vocab[2] = {find_value(text, n, "\"vocab\"", '{'), 0};
    *rest = NULL;
    vocab[1] = vocab[0] ? scan_parts(l, text, n, vocab[0]) : 0;
    if (!vocab[1])
        return err_set(l->e, QWICK_ERR_MODEL, "%s: not in the plain form",
                       l->name);
    l->has_vocab = l->has_merges = true;
    return parse_rest(l, text, n, vocab, rest);
}
