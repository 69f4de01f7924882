/* The data of a tokenizer of any type. bpe_load.c builds it. bpe.c, which finds
 * added tokens, and the type's model (struct bpe_model) use it: merges
 * (bpe_words.c), Unigram (bpe_unigram.h), WordPiece (bpe_wordpiece.h). */
#ifndef TEXT_BPE_INT_H
#define TEXT_BPE_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "base/hashmap.h"
#include "text/bpe/bpe.h"

/* ---- tokens ---- */

/* Maximum id, so that three ids fit a 64-bit word. It is ten times the size of
 * real vocabularies, and limits the memory that a hostile file can request. */
#define BPE_ID_BITS 21
#define BPE_MAX_ID  ((1 << BPE_ID_BITS) - 1)
/* Maximum length of a token in bytes; the longest token of Qwen3 has 128. */
#define BPE_MAX_TOKEN 65535u

enum {
    BPE_HAS = 1,       /* the id exists */
    BPE_MODEL = 2,     /* in the vocabulary of the BPE model */
    BPE_ADDED = 4,     /* in added_tokens; it may also have BPE_MODEL */
    BPE_SPECIAL = 8,   /* added and flagged special */
    BPE_RAW = 16,      /* has a character that stands for no byte; see
                          alphabet_bytes */
    BPE_SPELLED = 32,  /* still spelled; see struct bpe_tok */
    BPE_FALLBACK = 64, /* spelled <0xHH>, with byte_fallback; set when
                          BPE_SPELLED is cleared */
    BPE_NORMAL = 128,  /* added and searched in the normal form of a text */
    BPE_LSTRIP = 256,  /* added; takes the white space before it */
    BPE_RSTRIP = 512   /* added; takes the white space after it */
};

/* A token. Its bytes are arena[off, off + len). At first these hold the
 * spelling of the file, in which characters stand for bytes. They are replaced
 * by the token's bytes when the token is first needed, because most processes
 * need few tokens. The thread that does this holds spell_lock and clears
 * BPE_SPELLED last (bpe_unspell). Other threads read off and len only after
 * they have seen the flag cleared (bpe_flags). */
struct bpe_tok {
    uint32_t off;
    uint16_t len, flags;
};

/* Number of readable bytes after each string of the arena. */
#define BPE_PAD 8

/* ---- bytes written as characters (GPT-2) ----
 *
 * Bytes that are printable in Latin-1 are written as themselves. The other 68
 * bytes, in order, are written as the characters from U+0100 on. */
#define ALPHABET_CHARS 0x200
struct alphabet {
    uint16_t char_of[256];
    int16_t byte_of[ALPHABET_CHARS]; /* -1: not a byte */
};

void alphabet_fill(struct alphabet *a);

/* Append the spelling of p[0..n). -1: out of memory. */
int alphabet_spell(const struct alphabet *a, const char *p, size_t n,
                   struct buf *out);

/* Replace a token's spelling by its bytes, in place, and clear BPE_SPELLED. A
 * token with a character that stands for no byte keeps its spelling, as in
 * `tokenizers`, and gets BPE_RAW. */
void alphabet_bytes(const struct alphabet *a, char *arena, struct bpe_tok *t);

/* Return the first byte of a token from its spelling, or -1 if that takes to
 * read it as a whole. */
int alphabet_first(const struct alphabet *a, const char *spelled, size_t n);

/* ---- characters (bpe_chars.c) ---- */

/* Do the work of alphabet_bytes for a tokenizer with byte_fallback: U+2581
 * becomes a blank, and <0xHH> the byte. */
void bpe_chars_bytes(char *arena, struct bpe_tok *t);

/* Do the work of alphabet_first for a tokenizer with byte_fallback. */
int bpe_chars_first(const char *spelled, size_t n);

/* Return the byte that the spelling <0xHH> stands for, or -1 for others. */
int bpe_fallback_byte(const char *p, size_t n);

/* A character of 0x80 or above and its token. */
struct bpe_char {
    uint32_t c, id;
};

/* Return the token of the first character of p[0..n), n >= 1, or of its first
 * byte if the character has no token. *len: its bytes. */
uint32_t bpe_first_char(const struct bpe *b, const char *p, size_t n,
                        size_t *len);

/* Return the last position up to `at` in p[0..n) that is not inside a
 * character. */
size_t bpe_char_start(const char *p, size_t n, size_t at);

/* Return whether the token stands for a single byte, with byte_fallback. */
bool bpe_is_byte(const struct bpe *b, uint32_t id);

/* ---- SentencePiece (bpe_pieces.c) ---- */

#define BPE_NO_ID UINT32_MAX

/* Make the text whose parts are merged: p[0..n) with blanks for U+2581, and a
 * blank before it if `prefix`. BPE_PAD bytes after it are readable. Replaces
 * *out. Returns -1 when out of memory. */
int bpe_pieces_text(const char *p, size_t n, bool prefix, struct buf *out);

/* Return whether a spelling stands for a text with blanks. Such a token is
 * found by merging, not as an added token. */
bool bpe_piece_has_blank(const char *p, size_t n);

/* Copy p[0..n) with blanks for U+2581; returns the new length. `to` may be
 * p. */
size_t bpe_copy_blanks(char *to, const char *p, size_t n);

/* Return the token p[0..n) that merges make, or BPE_NO_ID; its order, or
 * BPE_NO_RANK. BPE_PAD bytes after p[0..n) must be readable. */
uint32_t bpe_piece_find(const struct bpe *b, const char *p, size_t n);
uint32_t bpe_piece_rank(const struct bpe *b, const char *p, size_t n);

/* Return the token of the first character of p[0..n), n >= 1, or BPE_NO_ID.
 * *len: the bytes of the character; 1 if there is none. */
uint32_t bpe_piece_first(const struct bpe *b, const char *p, size_t n,
                         size_t *len);

/* ---- hashes ---- */

static inline uint64_t bpe_load64(const char *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

/* Return the first n <= 8 bytes of p as a word, with zeros above. Reads 8
 * bytes. */
static inline uint64_t bpe_load_part(const char *p, size_t n)
{
    return n == 0 ? 0 : bpe_load64(p) << (8 * (8 - n)) >> (8 * (8 - n));
}

/* Hash 8 more bytes. h: the hash of the bytes before them, first the seed. */
static inline uint64_t bpe_hash_next(uint64_t seed, uint64_t h, const char *p)
{
    return hash_mix(h ^ bpe_load64(p), 0x9FB21C651E98DF25u ^ seed);
}

/* Return the hash of a text of n bytes from that of those before the last n_last
 * <= 8 bytes, p. */
static inline uint64_t bpe_hash_last(uint64_t seed, uint64_t h, const char *p,
                                     size_t n_last, size_t n)
{
    return hash_mix(h ^ bpe_load_part(p, n_last),
                    (0xD1B54A32D192ED03u ^ seed) + n);
}

/* Return a hash of p[0..n). BPE_PAD bytes after it must be readable. seed must
 * be random, so that nobody can craft a file with collisions. */
static inline uint64_t bpe_hash(uint64_t seed, const char *p, size_t n)
{
    uint64_t h = seed;
    size_t left = n;
    for (; left > 8; p += 8, left -= 8)
        h = bpe_hash_next(seed, h, p);
    return bpe_hash_last(seed, h, p, left, n);
}

/* Return two ids in one word; bpe_hash_pair returns the hash of this word. */
static inline uint64_t bpe_pair(uint32_t left, uint32_t right)
{
    return (uint64_t)left << BPE_ID_BITS | right;
}

static inline uint64_t bpe_hash_pair(uint64_t seed, uint64_t pair)
{
    return hash_mix(pair ^ seed, 0xD1B54A32D192ED03u);
}

/* Return whether p[0..n) equals q[0..n). BPE_PAD bytes after both must be
 * readable. */
static inline bool bpe_same(const char *p, const char *q, size_t n)
{
    for (; n > 8; p += 8, q += 8, n -= 8)
        if (bpe_load64(p) != bpe_load64(q))
            return false;
    return bpe_load_part(p, n) == bpe_load_part(q, n);
}

/* ---- the tokenizer ---- */

struct bpe_word; /* entry of the word cache, in bpe_words.c */

struct bpe_added {
    const char *content; /* in arena; the normal form, if normalized */
    size_t len;          /* not 0 */
    const char *text;    /* in arena; as the file has it */
    size_t n_text;
    uint32_t id;
    bool normalized, lstrip, rstrip;
};

/* Added tokens, sorted by content, bytewise. The tokens with first byte c are
 * v[at[c] .. at[c + 1]). Encoding searches text for the content; decoding gives
 * the token's bytes. */
struct bpe_set {
    const struct bpe_added *v;
    size_t n;
    size_t at[257];
};
enum { BPE_PLAIN, BPE_NORMALIZED, BPE_N_SETS };

/* Limit of the newlines of a token that is found without merging; Gemma 4 has
 * up to 31. */
enum { BPE_NEWLINES = 64 };

/* Where encoding puts a blank before a text (U+2581 in `tokenizers`). */
enum bpe_prefix {
    BPE_PREFIX_NONE,
    BPE_PREFIX_EACH,   /* at the start, and after each added token: the
                          normalizer Prepend, and SentencePiece */
    BPE_PREFIX_ALWAYS, /* likewise, unless a blank is there: Metaspace with
                          prepend_scheme always */
    BPE_PREFIX_FIRST   /* at the start, unless a blank or an added token is
                          there: Metaspace with prepend_scheme first */
};

struct bpe {
    const struct bpe_model *model;
    void *own; /* data of the model, if it is not BPE */
    uint64_t seed;
    char *arena;
    struct bpe_tok *tok; /* [size] */
    size_t size;
    struct alphabet alphabet;
    uint32_t byte_id[256]; /* ids of the tokens that are single bytes */

    /* with byte_fallback and without scores: the tokens of single
     * characters */
    bool byte_fallback;
    uint32_t ascii_id[128]; /* of ASCII; a blank has the id of U+2581 */
    struct bpe_char *chars; /* [n_chars] of other characters, ascending */
    size_t n_chars;

    uint64_t *merges; /* [n_merges], by rank: left id, right id, merged id */
    size_t n_merges;
    struct hashmap pairs; /* from (left, right) to rank */

    enum split split;
    bool nfc; /* normalise text */
    bool ignore_merges;
    struct hashmap words; /* from bytes to id, of tokens of the vocabulary; only
                             with ignore_merges or scores */

    /* With scores (bpe_pieces.c), and then n_merges is 0: the token of the
     * lowest order merges first. */
    uint32_t *order; /* [size]; 0: text that is recognised as a whole */
    size_t longest;  /* bytes of the longest token in words */

    /* Runs of newlines are parts of their own, and one that is a token is not
       merged. Tokens of 0 to BPE_NEWLINES - 1 newlines, or BPE_NO_ID. */
    bool newlines_apart;
    uint32_t newlines[BPE_NEWLINES];

    enum bpe_prefix prefix;
    bool strip; /* decoding drops one blank at the start of a text */

    /* Added tokens: first those that are searched in a text as it is, then
     * those that are searched in its normal form. */
    struct bpe_added *added;
    size_t n_added;
    size_t n_beside; /* tokens that files beside tokenizer.json add or make
                        special */
    struct bpe_set sets[BPE_N_SETS];

    int32_t *frame; /* [n_before + n_after] ids of the post-processor */
    size_t n_before, n_after;
    char *no_frame; /* why there is no frame, or NULL */
    int32_t *pair_ids;    /* of the post-processor for pairs, or NULL */
    struct bpe_pair pair; /* in pair_ids */
    char *no_pair;        /* why there is no pair though there is a frame, or
                             NULL */

    struct bpe_word *cache; /* [BPE_CACHE_WORDS], changed by the call of
                               bpe_encode_spans that has set cache_used */
    int cache_used;         /* atomic */
    pthread_mutex_t spell_lock;
    size_t window;          /* bytes of a long word that are merged at a time */
    size_t n_merged;        /* bytes of all windows so far, for tests; atomic */
};

/* Bytes of a window, so that its symbols and its heap fit an L2 cache. */
#define BPE_WINDOW 4096

/* Number of entries in the word cache, which is direct-mapped. An entry has 64
 * bytes. */
#define BPE_CACHE_WORDS 8192u
struct bpe_word {
    uint8_t len, n_ids; /* len 0: empty */
    char bytes[30];
    int32_t ids[8];
};

/* ---- encoding ---- */

/* A text while it is encoded. */
struct symbol;
struct bpe_encoder {
    struct bpe *b;          /* not const: n_merged changes */
    struct bpe_word *cache; /* b's; NULL: another thread uses it */
    struct qwick_err *e;
    int32_t *ids;
    size_t n, cap;
    size_t enough;   /* stop when there are more ids */
    size_t n_parts;  /* since the clock was read */
    bool goes_on;    /* the text goes on after another */
    bool begins;     /* the part between added tokens begins the text */
    struct buf copy; /* of a piece, changed: for the model */
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
void bpe_encoder_free(struct bpe_encoder *c);

/* Fail when the thread's time is over (text/deadline.h). cost: 1 for a short
 * part of the text. The clock is read when 1,000 parts have been encoded. */
int bpe_check_time(struct bpe_encoder *c, size_t cost);

/* Make room for n more ids. */
int bpe_need(struct bpe_encoder *c, size_t n);

/* ---- models ---- */

/* What tokenizers do in different ways. Added tokens, their ids, frames and
 * files are common to all. */
struct bpe_model {
    /* Append the ids of p[0..n), which lies between added tokens. Check the
     * time, and end early when there are more than c->enough ids. begins: the
     * piece begins the text. normal: it is in the normal form. */
    int (*encode)(struct bpe_encoder *c, const char *p, size_t n, bool begins,
                  bool normal);
    /* Append the text in which normalized added tokens are searched, the normal
     * form of p[0..n). begins: see encode; unless a text goes on after another.
     * Returns -1 with *e set when out of memory. */
    int (*normal_form)(const struct bpe *b, const char *p, size_t n,
                       bool begins, struct buf *out, struct qwick_err *e);
    /* Do the work of bpe_decode for a token with the text p[0..n). */
    int (*decode)(const struct bpe *b, struct bpe_decoder *d, int32_t id,
                  const char *p, size_t n, struct buf *out);
    /* Free b->own. NULL: there is none. */
    void (*free)(struct bpe *b);
    /* The kind, if struct bpe_parts cannot say it, for messages. */
    const char *lacks;
};

extern const struct bpe_model bpe_merging; /* BPE; bpe_words.c */

/* Do the work of `decode` for tokens whose texts follow one another. */
int bpe_decode_piece(const struct bpe *b, struct bpe_decoder *d, int32_t id,
                     const char *p, size_t n, struct buf *out);

/* ---- small parts ---- */

/* Return the flags of an id below size. */
static inline unsigned bpe_flags(const struct bpe *b, size_t id)
{
    return __atomic_load_n(&b->tok[id].flags, __ATOMIC_ACQUIRE);
}

/* Replace the spelling of a BPE_SPELLED token by its bytes. Once the tokenizer
 * is open, the caller holds spell_lock. */
static inline void bpe_unspell(struct bpe *b, struct bpe_tok *t)
{
    struct bpe_tok out = *t;
    if (b->byte_fallback)
        bpe_chars_bytes(b->arena, &out);
    else
        alphabet_bytes(&b->alphabet, b->arena, &out);
    t->len = out.len;
    __atomic_store_n(&t->flags, out.flags, __ATOMIC_RELEASE);
}

#define BPE_NO_RANK UINT32_MAX

/* Return the rank of the merge of left and right, or BPE_NO_RANK if they do not
 * merge. */
static inline uint32_t bpe_rank(const struct bpe *b, uint32_t left,
                                uint32_t right)
{
    uint64_t pair = bpe_pair(left, right);
    uint64_t h = bpe_hash_pair(b->seed, pair);
    uint32_t at = hashmap_slot(&b->pairs, h), rank;
    while ((rank = hashmap_next(&b->pairs, h, &at)) != HASHMAP_NONE)
        if (b->merges[rank] >> BPE_ID_BITS == pair)
            return rank;
    return BPE_NO_RANK;
}

/* Return the id that the merge of this rank gives. */
static inline uint32_t bpe_made(const struct bpe *b, uint32_t rank)
{
    return (uint32_t)b->merges[rank] & BPE_MAX_ID;
}

/* Return the id of p[0..n) in a table of strings, or -1. h is its bpe_hash.
 * BPE_PAD bytes after p[0..n) must be readable. */
static inline int32_t bpe_find(const struct bpe *b, const struct hashmap *t,
                               uint64_t h, const char *p, size_t n)
{
    uint32_t at = hashmap_slot(t, h), id;
    while ((id = hashmap_next(t, h, &at)) != HASHMAP_NONE) {
        const struct bpe_tok *k = &b->tok[id];
        if (k->len == n && bpe_same(b->arena + k->off, p, n))
            return (int32_t)id;
    }
    return -1;
}

/* Append the ids of the word p[0..n), n >= 1: take them from the cache, or
 * encode the word and store them there. room: bytes that are readable from p
 * on. */
static inline int
bpe_encode_cached(struct bpe_encoder *c, const char *p, size_t n, size_t room,
                  int (*encode)(struct bpe_encoder *c, const char *p, size_t n))
{
    enum {
        WORD_BYTES = sizeof c->cache->bytes,
        WORD_IDS = sizeof c->cache->ids / sizeof *c->cache->ids
    };
    if (n > WORD_BYTES || !c->cache)
        return encode(c, p, n);
    char copy[WORD_BYTES + BPE_PAD];
    if (room < n + BPE_PAD) {
        memset(copy, 0, sizeof copy);
        p = memcpy(copy, p, n);
    }
    struct bpe_word *w =
        &c->cache[bpe_hash(c->b->seed, p, n) % BPE_CACHE_WORDS];
    if (w->len == n && bpe_same(w->bytes, p, n)) {
        if (bpe_need(c, WORD_IDS) < 0)
            return -1;
        memcpy(c->ids + c->n, w->ids, sizeof w->ids);
        c->n += w->n_ids;
        return 0;
    }
    size_t at = c->n;
    if (encode(c, p, n) < 0)
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

#endif
