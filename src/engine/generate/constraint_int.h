/* The members of a constraint and a matcher, for constraint.c and
 * constraint_mask.c. */
#ifndef ENGINE_CONSTRAINT_INT_H
#define ENGINE_CONSTRAINT_INT_H

#include "base/hashmap.h"
#include "engine/generate/constraint.h"
#include "engine/generate/token_trie.h"
#include "text/grammar/automaton.h"

/* The tokens of a trie that a state admits inside its rule. */
struct local {
    struct token_trie *trie;
    uint32_t state;
    uint32_t n_ids;
    uint64_t *bits; /* [n_words], or NULL: ids */
    int32_t *ids;   /* [n_ids] */
    uint32_t *ends; /* [n_ends] nodes of the trie where the rule can end and
                       tokens go on, in order; NULL: not looked for yet */
    size_t n_ends;
    bool used; /* since masks were last dropped */
};

struct qwick_constraint {
    struct automaton *a;
    struct token_trie *trie;
    struct answer_check *check; /* NULL: none */
    char *name;
    bool free;       /* see constraint_set_free */
    bool calls;      /* see constraint_set_calls */
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
    uint32_t *others; /* [max_depth + 1] of the state to which it compares */
    struct local *locals;
    size_t n_locals, cap_locals;
    struct hashmap by_state; /* of locals */
    size_t local_bytes;
    struct matcher *matchers; /* list */
    int32_t *quoted;          /* [n_quoted] tokens with quotes, those with three
                                 or more first; NULL: not looked for yet */
    size_t n_quoted, n_quoted_more; /* n_quoted_more: with three or more */
    /* memory of a walk */
    int32_t *found; /* [cap_found] ids that are not among bits */
    size_t n_found, cap_found;
    uint32_t *ends;
    size_t n_ends, cap_ends;
    struct state_note *notes; /* [cap_notes] by state */
    size_t cap_notes;
    uint32_t *reached; /* [n_reached] lists of states, each after its length */
    size_t n_reached, cap_reached;
};

/* What is known of a state; all zeros: nothing. */
struct state_note {
    uint32_t alike; /* 1 + automaton_alike for 0 bytes; 0: not known */
    uint32_t room;  /* automaton_room */
    uint32_t reach; /* 1 + where `reached` has the states to which plain
                       characters lead; 0: not known */
    unsigned char suits; /* 2: it tells no bytes of a class apart, 1: it does */
    unsigned char uniform; /* 2: all plain characters lead to the same state, 1:
                              they do not */
    unsigned char visits;  /* by walks over plain tokens, while it is not known
                              how safe the state is */
    unsigned char safe;    /* 1 + plain_is_safe's n for which it is known; 0: not
                              asked */
    unsigned char unsafe;  /* the least n for which it is not; 0: not known */
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

/* ---- walks ---- */

/* Whether the work for this mask is within its limit, and the automaton has not
 * failed. */
int walk_check(const struct qwick_constraint *c, struct qwick_err *e);

enum walk {
    WALK_BYTES,   /* over the trie */
    WALK_CLASSES, /* over the trie of classes; where a state tells bytes of a
                     class apart, over bytes from there on */
    WALK_PLAIN,   /* none: plain tokens of at most `chars` characters are
                     admitted */
    WALK_LIKE     /* over the trie, only where the state and another one lead to
                     different states */
};

struct walk_plan {
    enum walk kind;
    size_t chars;  /* of WALK_PLAIN */
    uint32_t like; /* of WALK_LIKE: the other state */
};

/* Return what is noted of a state, or NULL with *e set. */
struct state_note *walk_note(struct qwick_constraint *c, uint32_t state,
                             struct qwick_err *e);

/* Replace a state by one that is alike for n more bytes. */
int walk_alike(struct qwick_constraint *c, uint32_t *state, size_t n,
               struct qwick_err *e);

/* Choose the walk for l->state in l->trie. */
int walk_choose(struct qwick_constraint *c, const struct local *l, bool ends,
                struct walk_plan *plan, struct qwick_err *e);

/* Fill in l from its state and trie. like: of the other state of WALK_LIKE,
 * with ends if they are looked for. */
int walk_run(struct qwick_constraint *c, struct local *l,
             const struct walk_plan *plan, const struct local *like, bool ends,
             struct qwick_err *e);

/* Collect in c->found and l->bits the tokens below a node of the trie that a
 * state admits after it, and in c->ends where the rule can end. */
int walk_below(struct qwick_constraint *c, struct local *l, size_t i,
               uint32_t state, bool ends, struct qwick_err *e);

/* ---- plain tokens, constraint_plain.c ---- */

/* These return 1, 0, or -1 with *e set. */

/* Whether a state is uniform: all plain characters lead to the same state.
 * Then it is, too, after other numbers of repetitions, but for the last one. */
int plain_is_uniform(struct qwick_constraint *c, uint32_t state,
                     struct qwick_err *e);

/* Whether all plain tokens are admitted because each state that they reach
 * admits all plain characters, and accepts nothing if `ends`. */
int plain_is_closed(struct qwick_constraint *c, uint32_t state, bool ends,
                    struct qwick_err *e);

/* Whether a state admits all texts of at most n <= PLAIN_SAFE plain characters,
 * and accepts none of them. */
enum { PLAIN_SAFE = 4 };
int plain_is_safe(struct qwick_constraint *c, uint32_t state, size_t n,
                  struct qwick_err *e);

/* Find the most characters that plain tokens may have. Then all plain tokens of
 * at most so many are admitted. 0: the state tells plain characters apart, or
 * the rule can end between them. Returns 0 or -1. */
int plain_count(struct qwick_constraint *c, uint32_t state, bool ends,
                size_t *n, struct qwick_err *e);

#endif
