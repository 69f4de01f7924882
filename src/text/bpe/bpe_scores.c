/* SentencePiece's scores for a tokenizer with byte_fallback, which GGUF files
 * have in place of merges.
 *
 * SentencePiece merges two neighbours whenever their characters together are a
 * token. The pair whose token has the highest score goes first; of equal
 * scores, the leftmost pair. So scores give the results of the merges of
 * tokenizer.json if
 *   - each way to split a token into two tokens is a merge, and
 *   - all merges that make one token follow one another.
 * transformers writes such merges when it converts a SentencePiece model. Runs
 * such as "aa" and "aaa" may have one score in the model; then transformers may
 * interleave their merges.
 *
 * Only pieces count here: tokens that are made by merging, and characters. A
 * text is searched for all other tokens before anything merges. */
#include <stdlib.h>

#include "base/utf8.h"
#include "text/bpe/bpe_int.h"

/* Maximum length of a piece in GGUF files, see bpe_pieces.c. */
enum { MAX_PIECE = 1024 };

struct scorer {
    const struct bpe *b;
    const char *name;   /* of tokenizer.json, for messages */
    struct buf text;    /* spellings, one after another */
    size_t *at;         /* [size + 1] where they begin in text */
    bool *piece;        /* [size] */
    struct hashmap ids; /* from spelling to id, of pieces */
    uint32_t *ranks;    /* [n] the merges that count */
    size_t n;
    size_t *last; /* [size] one past the last of ranks that makes a token; 0:
                     none */
    float *score; /* [size] */
    struct qwick_err *e;
};

static const char *spelling(const struct scorer *s, size_t id, size_t *n)
{
    *n = s->at[id + 1] - s->at[id];
    return s->text.data + s->at[id];
}

static const char *blame(const struct scorer *s, size_t id, char *out)
{
    size_t n;
    const char *p = spelling(s, id, &n);
    return err_show(out, p, n);
}

static int err_token(const struct scorer *s, size_t id, const char *why)
{
    char shown[ERR_SHOWN];
    return err_set(s->e, QWICK_ERR_MODEL,
                   "%s: model.vocab: token %zu, \"%s\", %s, which cannot be "
                   "written to a GGUF file",
                   s->name, id, blame(s, id, shown), why);
}

static int err_merge(const struct scorer *s, size_t left, size_t right,
                     const char *why)
{
    char a[ERR_SHOWN], b[ERR_SHOWN];
    return err_set(s->e, QWICK_ERR_MODEL,
                   "%s: model.merges: \"%s\" and \"%s\": %s: a GGUF file has "
                   "scores in place of merges",
                   s->name, blame(s, left, a), blame(s, right, b), why);
}

/* ---- pieces ---------------------------------------------------------------
 */

static int read_spellings(struct scorer *s)
{
    size_t n = s->b->size;
    for (size_t id = 0; id < n; id++) {
        enum bpe_kind kind;
        s->at[id] = s->text.len;
        if (bpe_export_token(s->b, id, &s->text, &kind))
            return err_oom(s->e, s->text.len);
        s->piece[id] = kind == BPE_KIND_NORMAL;
        s->at[id + 1] = s->text.len;
        if (kind == BPE_KIND_ADDED &&
            bpe_piece_has_blank(s->text.data + s->at[id],
                                s->text.len - s->at[id]))
            return err_token(s, id, "has U+2581 and nothing makes it");
    }
    return buf_append(&s->text, (char[BPE_PAD]){0}, BPE_PAD)
               ? err_oom(s->e, s->text.len)
               : 0;
}

static int index_pieces(struct scorer *s)
{
    size_t n = s->b->size, len;
    if (hashmap_init(&s->ids, n, n, s->e))
        return -1;
    for (size_t id = 0; id < n; id++) {
        const char *p = spelling(s, id, &len);
        if (!s->piece[id])
            continue;
        if (len > MAX_PIECE)
            return err_token(s, id, "has more than 1024 bytes");
        if (memchr(p, ' ', len))
            return err_token(s, id, "has a blank");
        hashmap_put(&s->ids, bpe_hash(s->b->seed, p, len), (uint32_t)id);
    }
    return 0;
}

/* Return the piece p[0..n), or BPE_NO_ID. p[0..n) is in s->text. */
static uint32_t scores_find(const struct scorer *s, const char *p, size_t n)
{
    uint64_t h = bpe_hash(s->b->seed, p, n);
    uint32_t at = hashmap_slot(&s->ids, h), id;
    while ((id = hashmap_next(&s->ids, h, &at)) != HASHMAP_NONE) {
        size_t len;
        const char *q = spelling(s, id, &len);
        if (len == n && memcmp(p, q, n) == 0)
            return id;
    }
    return BPE_NO_ID;
}

/* Bytes of the first character. */
static size_t first_char(const char *p, size_t n)
{
    size_t len = utf8_decode(p, n, NULL, NULL);
    return len ? len : 1;
}

/* Check that each split of the piece into two pieces is a merge, and that its
 * characters are pieces: bpe_words.c turns other characters into bytes, but
 * SentencePiece merges them. */
static int check_splits(const struct scorer *s, uint32_t id)
{
    size_t n, len;
    const char *p = spelling(s, id, &n);
    for (size_t at = 0; at < n; at += len) {
        len = first_char(p + at, n - at);
        if (scores_find(s, p + at, len) == BPE_NO_ID)
            return err_token(s, id, "has a character that is no token");
        uint32_t left = at ? scores_find(s, p, at) : BPE_NO_ID;
        uint32_t right = at ? scores_find(s, p + at, n - at) : BPE_NO_ID;
        if (left == BPE_NO_ID || right == BPE_NO_ID)
            continue;
        uint32_t rank = bpe_rank(s->b, left, right);
        if (rank == BPE_NO_RANK || bpe_made(s->b, rank) != id)
            return err_merge(s, left, right,
                             "are no merge, but make a token together");
    }
    return 0;
}

/* ---- scores ---------------------------------------------------------------
 */

static uint32_t left_of(const struct bpe *b, uint32_t rank)
{
    return (uint32_t)(b->merges[rank] >> 2 * BPE_ID_BITS);
}

static uint32_t right_of(const struct bpe *b, uint32_t rank)
{
    return (uint32_t)(b->merges[rank] >> BPE_ID_BITS) & BPE_MAX_ID;
}

/* Find the merges of pieces. */
static int read_ranks(struct scorer *s)
{
    const struct bpe *b = s->b;
    for (uint32_t rank = 0; rank < b->n_merges; rank++) {
        uint32_t left = left_of(b, rank), right = right_of(b, rank);
        uint32_t made = bpe_made(b, rank);
        if (bpe_is_byte(b, left) || bpe_is_byte(b, right))
            return err_merge(s, left, right, "merge bytes");
        if (!s->piece[left] || !s->piece[right] || !s->piece[made])
            continue;
        s->ranks[s->n++] = rank;
        s->last[made] = s->n;
    }
    return 0;
}

/* Whether a token is one character, repeated. */
static bool is_run(const struct scorer *s, uint32_t id)
{
    size_t n;
    const char *p = spelling(s, id, &n);
    size_t len = first_char(p, n);
    for (size_t i = len; i < n; i += len)
        if (n - i < len || memcmp(p, p + i, len) != 0)
            return false;
    return true;
}

/* Give one score to the tokens that merges [begin, end) of ranks make. Several
 * tokens must be runs that grow from the left, because equal scores make them
 * grow so: a merge with a longer left part goes first. */
static int score_merges(struct scorer *s, size_t begin, size_t end,
                        size_t n_tokens, float score)
{
    size_t before = SIZE_MAX, n;
    for (size_t i = begin; i < end; i++) {
        uint32_t rank = s->ranks[i], left = left_of(s->b, rank);
        uint32_t made = bpe_made(s->b, rank);
        (void)spelling(s, left, &n);
        if (n_tokens > 1 && (!is_run(s, made) || n > before))
            return err_merge(s, left, right_of(s->b, rank),
                             "merges that make one token do not follow one "
                             "another");
        before = n;
        s->score[made] = score;
    }
    return 0;
}

/* Give scores that fall from 0 in the order of the ranks. */
static int score_all(struct scorer *s)
{
    float score = 0;
    for (size_t begin = 0, end; begin < s->n; begin = end) {
        size_t n_tokens = 0;
        end = begin + 1;
        for (size_t i = begin; i < end; i++) {
            size_t last = s->last[bpe_made(s->b, s->ranks[i])];
            n_tokens += last == i + 1;
            end = last > end ? last : end;
        }
        if (score_merges(s, begin, end, n_tokens, score))
            return -1;
        score -= 1;
    }
    /* pieces that no merge makes */
    for (uint32_t id = 0; id < s->b->size; id++)
        if (s->piece[id] && s->last[id] == 0) {
            s->score[id] = score;
            score -= 1;
        }
    return 0;
}

static int make_scores(struct scorer *s)
{
    if (read_spellings(s) || index_pieces(s))
        return -1;
    for (uint32_t id = 0; id < s->b->size; id++)
        if (s->piece[id] && check_splits(s, id))
            return -1;
    return read_ranks(s) || score_all(s) ? -1 : 0;
}

int bpe_export_scores(const struct bpe *b, const char *name, float **out,
                      struct qwick_err *e)
{
    struct scorer s = {.b = b, .name = name, .e = e};
    s.at = calloc(b->size + 1, sizeof *s.at);
    s.piece = calloc(b->size + 1, sizeof *s.piece);
    s.last = calloc(b->size + 1, sizeof *s.last);
    s.ranks = calloc(b->n_merges + 1, sizeof *s.ranks);
    *out = s.score = calloc(b->size + 1, sizeof *s.score);
    int rc = s.at && s.piece && s.last && s.ranks && s.score
                 ? make_scores(&s)
                 : err_oom(e, (b->size + 1) * sizeof *s.at);
    free(s.at);
    free(s.piece);
    free(s.last);
    free(s.ranks);
    hashmap_free(&s.ids);
    buf_free(&s.text);
    if (rc) {
        free(s.score);
        *out = NULL;
    }
    return rc;
}
