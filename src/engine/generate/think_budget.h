/* Limits the thinking of an answer. When an answer has as many thinking tokens
 * as its budget allows, a sentence and the token that closes the think block
 * are forced into it: they take the place of drawn tokens, and the model reads
 * them as its own. The sentence is the one that Qwen documents for thinking
 * budgets. */
#ifndef ENGINE_THINK_BUDGET_H
#define ENGINE_THINK_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct qwick_engine;

/* A struct of all zeros has no budget. think_budget_free accepts it. */
struct think_budget {
    int32_t open, close; /* ids that open and close a think block; open -1:
                            think_budget_open says so */
    int32_t *ids;        /* [n_ids] the forced tokens, which close the block;
                            NULL: no budget */
    size_t n_ids;
    size_t n_label; /* tokens of the label that begins a block: they are no
                       thinking */
    size_t left;   /* thinking tokens until the budget is used up */
    bool thinking; /* a think block is open */
    bool due;      /* the next token is ids[at] */
    size_t at;
};

/* Begin an answer with a budget of n thinking tokens. in_think: the prompt ends
 * in an open think block. answers: where answers are messages (channels.h), the
 * header of the answer is forced as well. QWICK_ERR_USAGE if the model has no
 * token that closes a think block. */
int think_budget_begin(struct think_budget *b, const struct qwick_engine *eng,
                       size_t n, bool in_think, bool answers,
                       struct qwick_err *e);
void think_budget_free(struct think_budget *b);

/* A think block has been opened by more than one token. */
void think_budget_open(struct think_budget *b);

/* Count a token of the answer, drawn or forced. Returns whether it is the last
 * forced token: then the answer must not open another think block. */
bool think_budget_accept(struct think_budget *b, int32_t id);

/* Write the forced tokens that come next to ids, at most max. Returns how many
 * it wrote: 0 while tokens are drawn. */
size_t think_budget_forced(const struct think_budget *b, int32_t *ids,
                           size_t max);

#endif
