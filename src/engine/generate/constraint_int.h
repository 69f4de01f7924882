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
    const struct token_trie *trie;
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
    char *name;
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
    /* memory of a walk */
    int32_t *found; /* [cap_found] ids that are not among bits */
    size_t n_found, cap_found;
    uint32_t *ends;
    size_t n_ends, cap_ends;
    unsigned char *suits; /* [cap_suits] of a state: whether it tells no bytes
                             of a class apart; 0: not known */
    size_t cap_suits;
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
    WALK_LIKE     /* over the trie, only where a state and another one lead to
                     different states */
};

/* Choose the walk for l->state in l->trie. *like: the other state. */
int walk_choose(struct qwick_constraint *c, const struct local *l,
                enum walk *kind, uint32_t *like, struct qwick_err *e);

/* Fill in l from its state and trie. */
int walk_bytes(struct qwick_constraint *c, struct local *l, bool ends,
               struct qwick_err *e);
int walk_classes(struct qwick_constraint *c, struct local *l, bool ends,
                 struct qwick_err *e);
/* like: of the other state, with bits and, if they are looked for, ends. */
int walk_like(struct qwick_constraint *c, struct local *l,
              const struct local *like, bool ends, struct qwick_err *e);

/* Collect in c->found and l->bits the tokens below a node of the trie that a
 * state admits after it, and in c->ends where the rule can end. */
int walk_below(struct qwick_constraint *c, struct local *l, size_t i,
               uint32_t state, bool ends, struct qwick_err *e);

#endif
