/* SentencePiece's BPE, as GGUF files describe it (tokenizer.ggml.model
 * "llama"): each token has a score, and there is no list of merges. Two
 * neighbours merge if their bytes together are a token. The pair whose token
 * has the highest score merges first; among equal scores, the leftmost pair
 * (Kudo and Richardson 2018; bpe_model.cc there). A character that is in no
 * token stays, and becomes the tokens of its bytes.
 *
 * Spellings have U+2581 for a blank. Here tokens are stored with blanks, and
 * texts get blanks for U+2581. The results are equal, because neither form
 * distinguishes the two characters. */
#include <math.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/bpe/bpe_load.h"

static const char blank[] = "\xE2\x96\x81";
enum { BLANK = 3 }; /* its bytes */

/* Maximum length of a token in bytes. It bounds the time of a look-up. Trained
 * tokens have at most 16 characters, and runs of blanks 31. */
enum { MAX_PIECE = 1024 };

/* ---- reading ---- */

size_t bpe_copy_blanks(char *to, const char *p, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        bool is_blank = n - i >= BLANK && memcmp(p + i, blank, BLANK) == 0;
        to[len++] = is_blank ? ' ' : p[i];
        i += is_blank ? BLANK : 1;
    }
    return len;
}

/* A number that is lower for higher scores, neither 0 nor BPE_NO_RANK: the bits
 * of the float in their order, inverted. */
static uint32_t order_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~(bits | 1u << 31);
}

/* Add the token whose n bytes are at the end of l->vocab. p: in the file. */
static int put_token(struct bpe_load *l, uint32_t id, const char *p, size_t n,
               unsigned flags)
{
    if (bpe_vocab_put(l, n, id, p) < 0) {
        *l->e = l->fault.err;
        return -1;
    }
    l->b->tok[id].flags = (uint16_t)flags;
    return 0;
}

/* The token <0xHH> of a byte. */
static int put_byte(struct bpe_load *l, uint32_t id, const char *p, size_t n)
{
    struct bpe *b = l->b;
    int byte = bpe_fallback_byte(p, n);
    if (byte < 0)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: token %u, \"%s\", is of type byte, but is not "
                       "spelled <0x00> to <0xFF>",
                       l->name, l->vocab_name, (unsigned)id, ERR_SHOW(p, n));
    uint32_t other = b->byte_id[byte];
    if (other != BPE_NO_ID)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: byte 0x%02X has two ids, %u and %u", l->name,
                       l->vocab_name, (unsigned)byte, (unsigned)other,
                       (unsigned)id);
    b->byte_id[byte] = id;
    l->vocab.p[l->vocab.len] = (char)byte;
    return put_token(l, id, p, 1, BPE_HAS | BPE_FALLBACK);
}

/* A token that merges make. user: text that SentencePiece finds before it
 * merges anything. Converters write any score for it. */
static int put_piece(struct bpe_load *l, uint32_t id, const char *p, size_t n,
                     float score, bool user)
{
    struct bpe *b = l->b;
    if (!user && !isfinite(score))
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: token %u, \"%s\": the score is %f", l->name,
                       l->merges_name, (unsigned)id, ERR_SHOW(p, n),
                       (double)score);
    n = bpe_copy_blanks(l->vocab.p + l->vocab.len, p, n);
    b->order[id] = user ? 0 : order_of(score);
    b->longest = n > b->longest ? n : b->longest;
    return put_token(l, id, p, n, BPE_HAS | BPE_MODEL);
}

int bpe_piece_put(struct bpe_load *l, enum bpe_kind kind, uint32_t id,
                  const char *p, size_t n, float score)
{
    if (n > MAX_PIECE)
        return err_set(l->e, QWICK_ERR_MODEL,
                       "%s: %s: token %u has %zu bytes, must have from 1 to %d",
                       l->name, l->vocab_name, (unsigned)id, n, MAX_PIECE);
    return kind == BPE_KIND_BYTE
               ? put_byte(l, id, p, n)
               : put_piece(l, id, p, n, score, kind == BPE_KIND_ADDED);
}

bool bpe_piece_has_blank(const char *p, size_t n)
{
    return memmem(p, n, blank, BLANK) != NULL;
}

int bpe_pieces_begin(struct bpe_load *l, size_t n)
{
    struct bpe *b = l->b;
    b->byte_fallback = true;
    b->order = calloc(n + 1, sizeof *b->order);
    if (!b->order)
        return err_oom(l->e, n * sizeof *b->order);
    for (size_t c = 0; c < 256; c++)
        b->byte_id[c] = BPE_NO_ID;
    return 0;
}

int bpe_pieces_end(struct bpe_load *l)
{
    struct bpe *b = l->b;
    b->words = l->table;
    l->table = (struct hashmap){0};
    for (unsigned c = 0; c < 256; c++) {
        char s[1 + BPE_PAD] = {(char)c};
        if (b->byte_id[c] == BPE_NO_ID && c == '\t') /* see bpe_chars.c */
            b->byte_id[c] = bpe_piece_find(b, s, 1);
        if (b->byte_id[c] == BPE_NO_ID)
            return err_set(l->e, QWICK_ERR_MODEL,
                           "%s: %s: no token for byte 0x%02X (\"<0x%02X>\" of "
                           "type byte)",
                           l->name, l->vocab_name, c, c);
    }
    return 0;
}

/* ---- encoding ---- */

int bpe_pieces_text(const char *p, size_t n, bool prefix, struct buf *out)
{
    out->len = 0;
    if (n > SIZE_MAX - 1 - BPE_PAD || buf_reserve(out, n + 1 + BPE_PAD))
        return -1;
    if (prefix)
        out->data[out->len++] = ' ';
    out->len += bpe_copy_blanks(out->data + out->len, p, n);
    memset(out->data + out->len, 0, BPE_PAD);
    return 0;
}

uint32_t bpe_piece_find(const struct bpe *b, const char *p, size_t n)
{
    if (n > b->longest)
        return BPE_NO_ID;
    int32_t id = bpe_find(b, &b->words, bpe_hash(b->seed, p, n), p, n);
    return id >= 0 && (size_t)id < b->size ? (uint32_t)id : BPE_NO_ID;
}

uint32_t bpe_piece_rank(const struct bpe *b, const char *p, size_t n)
{
    uint32_t id = bpe_piece_find(b, p, n);
    return id == BPE_NO_ID ? BPE_NO_RANK : b->order[id];
}

uint32_t bpe_piece_first(const struct bpe *b, const char *p, size_t n,
                         size_t *len)
{
    size_t k = utf8_decode(p, n, NULL, NULL);
    *len = k ? k : 1;
    return bpe_piece_find(b, p, *len);
}
