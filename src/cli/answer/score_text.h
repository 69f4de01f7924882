/* A scored text and its output. Each token has a surprisal in bits, which is
 * spread over the token's bytes. */
#ifndef CLI_SCORE_TEXT_H
#define CLI_SCORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "file/json_writer.h"
#include "qwick.h"

enum score_unit { BY_TOKEN, BY_WORD, BY_LINE, BY_BYTE };

struct score_text {
    struct qwick_score_item item; /* context and text; owns its arrays */
    int32_t *ids;                 /* item.tokens */
    char *bytes;   /* bytes of the tokens, that is, the text after the
                      tokenizer's NFC */
    size_t *start; /* [n_tokens + 1] offset in bytes of each token */
    double *bits;  /* [n_tokens + 1] bits of all tokens before this one; set by
                      score_end */
    size_t n_tokens, n_bytes;
    size_t n_input; /* bytes of the text before NFC */
};

/* Prepare a text that follows n_context tokens, which are copied. A text that
 * follows none follows the token that goes before texts, if the model has one
 * and the text does not begin with it. before: see qwick_tokenize_after.
 * special: recognise added tokens in the
 * text. Returns 0, or -1 with *e set. */
int score_begin(struct score_text *t, const struct qwick_engine *eng,
                const int32_t *context, size_t n_context, int32_t before,
                const char *text, size_t n, bool special, struct qwick_err *e);
void score_free(struct score_text *t);

/* Compute t->bits, after t->item was scored. */
void score_end(struct score_text *t);

struct score_totals {
    size_t n_texts, n_tokens, n_scored, n_bytes, n_scored_bytes, n_windows;
    double logprob, bits;
};
void score_add(struct score_totals *sum, const struct score_text *t);

/* Append lines "offset<TAB>bits<TAB>text". Bits have six decimals and are
 * rounded so that they add up to the total. They are "-" if the text is not
 * scored. */
void score_put_tsv(struct buf *b, const struct score_text *t,
                   enum score_unit by);
/* Append the text with each token in the colour of its probability, and a
 * newline unless it ends with one. Control characters become \xNN. */
void score_put_heat(struct buf *b, const struct score_text *t);
/* Append lines "name<TAB>value", each preceded by prefix. */
void score_put_totals(struct buf *b, const struct score_totals *s,
                      const char *prefix);

/* Write the totals as members of an object. */
void score_put_json(struct json_writer *w, const struct score_totals *s);
/* Write the totals of one text. */
void score_put_text(struct json_writer *w, const struct score_text *t);
/* Write the member "units". */
void score_put_units(struct json_writer *w, const struct score_text *t,
                     enum score_unit by);

#endif
