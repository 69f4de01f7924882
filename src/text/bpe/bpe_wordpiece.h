/* WordPiece (Wu et al. 2016) as BERT and `tokenizers` do it.
 *
 * A text between added tokens is normalised (bpe_bert.c) and split at white
 * space and around punctuation. In a word, the longest token that it begins
 * with is taken first, then the longest token that the rest begins with, and so
 * on. Tokens that do not begin a word have a prefix in the vocabulary. A word
 * with a part that no token has becomes unk_token as a whole. */
#ifndef TEXT_BPE_WORDPIECE_H
#define TEXT_BPE_WORDPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/bpe/bpe_load.h"

/* ---- bpe_bert.c ---- */

/* A step of normalising is a set of these, applied in this order. */
enum {
    BERT_CLEAN = 1, /* drop controls and U+FFFD; white space becomes a blank */
    BERT_HAN = 2,   /* put blanks around Chinese characters */
    BERT_NFD = 4,
    BERT_STRIP = 8, /* drop non-spacing marks */
    BERT_LOWER = 16,
    BERT_NFC = 32,
    BERT_STRIP_ALL = 64 /* drop all marks */
};

/* Append what the step makes of p[0..n). A byte that is not valid UTF-8 counts
 * as U+FFFD. Returns -1 with *e set when out of memory. */
int bert_normalise(unsigned step, const char *p, size_t n, struct buf *out,
                   struct qwick_err *e);

/* The pre-tokenizers. */
enum bert_split {
    BERT_SPLIT,       /* BertPreTokenizer: words and single punctuation */
    BERT_SPLIT_SPACE, /* WhitespaceSplit: all between white space */
    BERT_SPLIT_WORD   /* Whitespace: \w+ and [^\w\s]+ */
};

/* Return the length of the part that p[0..n), n >= 1, begins with: as the split
 * says, or a run of white space. *space: whether it is white space. */
size_t bert_next(enum bert_split split, const char *p, size_t n, bool *space);

/* ---- bpe_wordpiece.c ---- */

enum {
    WORDPIECE_MAX_STEPS = 4,
    WORDPIECE_MAX_PREFIX = 63,
    WORDPIECE_MAX_CHARS = 1000 /* of a word; files have 100 */
};

/* bpe.own of a WordPiece tokenizer. */
struct wordpiece {
    uint8_t steps[WORDPIECE_MAX_STEPS]; /* [n_steps] */
    size_t n_steps;
    enum bert_split split;
    char prefix[WORDPIECE_MAX_PREFIX + 1]; /* of tokens inside a word */
    size_t n_prefix;
    size_t max_chars; /* a longer word is unknown */
    uint32_t unk;
    size_t longest; /* bytes of the longest token */

    /* Decoding: tokens with this prefix are parts of a word. */
    char joined[WORDPIECE_MAX_PREFIX + 1];
    size_t n_joined;
    bool joins;   /* false: all tokens are words */
    bool cleanup; /* no blank before punctuation and contractions */
};

extern const struct bpe_model bpe_wordpiece;

/* ---- bpe_wordpiece_load.c ---- */

/* Prepare the tokenizer for l->parts, whose vocabulary is indexed. */
int wordpiece_begin_parts(struct bpe_load *l);
/* Put the normal token p[0..n), n >= 1, of l->parts into the vocabulary.
 * Returns -1 with *l->e set. */
int wordpiece_put(struct bpe_load *l, uint32_t id, const char *p, size_t n);
/* Complete the tokenizer, as struct bpe_maker says. */
int wordpiece_end(struct bpe_load *l);

#endif
