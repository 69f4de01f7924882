/* Unigram: SentencePiece's language model of single pieces (Kudo 2018), as in
 * `tokenizers`. A word becomes the pieces whose scores, logarithms of
 * probabilities, have the largest sum. Spellings have U+2581 for a blank; here
 * pieces are stored with blanks, and words get blanks for U+2581.
 *
 * Text between added tokens is normalised, and split into words that begin with
 * a blank (Metaspace). Pieces that are special tokens are not found in words:
 * a text that is not searched for added tokens gets none. */
#ifndef TEXT_BPE_UNIGRAM_H
#define TEXT_BPE_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/bpe/bpe_load.h"
#include "text/bpe/charsmap.h"

/* A step of the normalizer. */
enum unigram_step_kind {
    UNIGRAM_CHARSMAP,
    UNIGRAM_NFC,
    UNIGRAM_NFKC,
    UNIGRAM_NMT,     /* drops control characters, and makes blanks of others */
    UNIGRAM_STRIP,   /* drops white space at the ends */
    UNIGRAM_SQUEEZE, /* replaces runs of two or more blanks */
    UNIGRAM_N_KINDS
};
struct unigram_step {
    enum unigram_step_kind kind;
    bool left, right; /* STRIP: at these ends */
    bool marks;       /* SQUEEZE: by U+2581; otherwise by one blank */
};
enum { UNIGRAM_MAX_STEPS = 16 };

/* The data of the model, in b->own. The prefix of words is b->prefix. */
struct unigram {
    double *scores; /* [n_scores] by id */
    size_t n_scores;
    double unk_score; /* of a character that is not a piece */
    uint32_t unk;     /* the token of a run of such characters */
    bool bytes;       /* such a character has the tokens of its bytes */
    bool whole;       /* a text between added tokens is one word */
    bool by_space;    /* white space ends words, and belongs to none */
    struct charsmap *map;
    struct unigram_step steps[UNIGRAM_MAX_STEPS];
    size_t n_steps;
};

extern const struct bpe_model bpe_unigram;

/* ---- bpe_unigram_load.c ---- */

/* Add the piece whose n bytes are spelled at the end of l->vocab. p: after it
 * in the file. Returns -1 with l->fault set. */
int bpe_unigram_put(struct bpe_load *l, size_t n, uint32_t id, double score,
                    const char *p);

/* Give the pieces that have been put to b->own. bytes: a character that is not
 * a piece has the tokens of its bytes. Call this when the vocabulary is
 * indexed, and before tokens are added. */
int bpe_unigram_begin(struct bpe_load *l, bool bytes);

/* Set b->model and b->own. unk: the token of unknown characters. */
int bpe_unigram_new(struct bpe_load *l, int64_t unk);

/* Add the map p[0..n) to the normalizer. field: its place in the file. */
int bpe_unigram_add_map(const struct bpe_load *l, const char *field,
                        const void *p, size_t n);

/* Let the normalizer drop blanks at the ends, and make one of several. */
int bpe_unigram_add_squeeze(const struct bpe_load *l);

/* Complete the tokenizer, when added tokens have their rows. */
int bpe_unigram_end(struct bpe_load *l);

#endif
