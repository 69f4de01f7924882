/* The members of a constraint and a matcher, for constraint.c and
 * constraint_mask.c. */
#ifndef ENGINE_CONSTRAINT_INT_H
#define ENGINE_CONSTRAINT_INT_H

#include "base/hashmap.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "text/grammar/automaton.h"

/* The tokens that a state admits inside its rule. */
struct local {
    uint32_t state;
    uint32_t n_ids;
    uint64_t *bits; /* [words], or NULL: ids */
    int32_t *ids;   /* [n_ids] */
    uint32_t *ends; /* [n_ends] nodes of the trie where the rule can end; NULL:
                       not looked for yet */
    size_t n_ends;
    bool used; /* since masks were last dropped */
};

struct qwick_constraint {
    struct automaton *a;
    struct token_trie *trie;
    struct answer_check *check; /* NULL: none */
    char *name;
    bool free;       /* see constraint_set_free */
    int32_t *tokens; /* [n_tokens] that the grammar names */
    size_t n_tokens;
    uint64_t *known; /* [n_words] ids that the tokenizer has; NULL: n_tokens is
                        0 */
    uint64_t *foreign; /* [n_words] ids whose bytes have the one that begins
                          tokens in the grammar */
    size_t tidy_bytes; /* TIDY_BYTES, or the limit of a test */
    size_t mask_bytes; /* CONSTRAINT_MASK_BYTES, or the limit of a test */
    size_t n_words;
    uint32_t *stack; /* [max_depth + 1] states of a walk, by depth */
    struct local *locals;
    size_t n_locals, cap_locals;
    struct hashmap by_state; /* of locals */
    size_t local_bytes;
    struct matcher *matchers; /* list */
    int32_t *quoted;          /* [n_quoted] tokens with quotes, those with three
                                 or more first; NULL: not looked for yet */
    size_t n_quoted, n_quoted_more; /* n_quoted_more: with three or more */
    /* memory of a walk */
    int32_t *found; /* [n_ids] */
    size_t n_found;
    uint32_t *ends;
    size_t n_ends, cap_ends;
    uint32_t *suits; /* [cap_suits] of a walk over classes: what is known of a
                        state, see suits_known */
    size_t cap_suits;
    uint32_t walk; /* number of the walk */
};

struct matcher {
    struct qwick_constraint *c;
    struct matcher *next, **prev; /* in c->matchers */
    uint32_t state;
    uint32_t held;  /* another state that tidying keeps */
    uint64_t *mask; /* [n_words] */
    size_t n_bits;
    bool has_mask; /* mask is that of state */
};

/* Set mask [n_words] to the tokens that a state admits. Keeps results that
 * later masks can use, in at most CONSTRAINT_MASK_BYTES. Makes states. */
int constraint_mask(struct qwick_constraint *c, uint32_t state, uint64_t *mask,
                    struct qwick_err *e);

/* Take over the tokens that a grammar names. */
int constraint_take_tokens(struct qwick_constraint *c, const struct grammar *g,
                           struct qwick_err *e);

/* Add to a mask the ids that a state admits as tokens, not as texts. */
int constraint_add_tokens(struct qwick_constraint *c, uint32_t state,
                          uint64_t *mask, struct qwick_err *e);

/* Return the state after a token as such, not as a text. */
uint32_t constraint_advance_token(struct qwick_constraint *c, uint32_t state,
                                  int32_t id);

/* Return the state after a token; AUTOMATON_DEAD if there is none. */
uint32_t constraint_advance(struct qwick_constraint *c, uint32_t state,
                            int32_t id);

/* Drop the results that are kept for masks. */
void constraint_drop_masks(struct qwick_constraint *c);

#endif
