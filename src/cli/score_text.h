/* A scored text: its tokens' surprisal laid over its bytes, and how that is
 * printed. */
#ifndef CLI_SCORE_TEXT_H
#define CLI_SCORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/json_writer.h"
#include "qwick.h"

enum score_unit { BY_TOKEN, BY_WORD, BY_LINE, BY_BYTE };

struct score_text {
    struct qwick_score_item item; /* context and text; owns its arrays */
    int32_t *ids;                 /* item.tokens */
    char *bytes;   /* of the text's tokens: NFC, where the tokenizer makes it */
    size_t *start; /* [n_tokens + 1] each token's first byte */
    double *bits;  /* [n_tokens + 1] of the tokens before it, after score_end */
    size_t n_tokens, n_bytes;
    size_t n_input; /* bytes of the text as it was */
};

/* A text after n_context tokens that are copied. special: added tokens are
 * recognised in it. */
int score_begin(struct score_text *t, const struct qwick_engine *eng,
                const int32_t *context, size_t n_context, const char *text,
                size_t n, bool special, struct qwick_err *e);
void score_free(struct score_text *t);

/* Once its item has been scored. */
void score_end(struct score_text *t);

struct score_totals {
    size_t n_texts, n_tokens, n_scored, n_bytes, n_scored_bytes, n_windows;
    double logprob, bits;
};
void score_add(struct score_totals *sum, const struct score_text *t);

/* Append lines; -1: out of memory. */
/* Lines "offset<TAB>bits<TAB>text": bits to a millionth, rounded so that they
 * add up to the total's; "-" for what is not scored. */
int score_put_tsv(struct buf *b, const struct score_text *t,
                  enum score_unit by);
/* Lines "name<TAB>value", each behind prefix. */
int score_put_totals(struct buf *b, const struct score_totals *s,
                     const char *prefix);

/* The totals as members of an object. */
void score_put_json(struct json_writer *w, const struct score_totals *s);
/* The member "units". */
void score_put_units(struct json_writer *w, const struct score_text *t,
                     enum score_unit by);

#endif
