/* Deterministic finite automata over code points. The schema compiler uses them
 * for strings (patterns, formats, lengths, excluded values) and, with bytes as
 * code points, for numbers. Unlike nodes of a grammar, they have intersection,
 * difference and a matcher. */
#ifndef TEXT_DFA_H
#define TEXT_DFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

#define DFA_MAX_STATES 20000u
#define DFA_MAX_EDGES  10u        /* for each of the states it may have */
#define DFA_MAX_WORDS  (1u << 20) /* bytes of words */
#define DFA_LAST       0x10FFFFu

struct dfa_edge {
    uint32_t lo, hi; /* code points, hi included; no surrogates */
    uint32_t to;
};

/* An automaton. State 0 is the start. From every state an accepting state can
 * be reached; an automaton that accepts nothing has n_states 0. */
struct dfa {
    uint32_t n_states;
    uint32_t *first;           /* [n_states + 1] the first edge of each state */
    struct dfa_edge *edges; /* of each state: ascending, not overlapping */
    bool *accept;              /* [n_states] */
};

/* The memory of automata, and the steps that may still be spent on them. The
 * caller puts the place in the schema before the text of an error. */
struct dfa_place {
    struct arena *mem;
    size_t *steps_left;
    struct qwick_err *e;
};

/* ---- automata that are being built ---- */

struct dfa_draft_edge {
    uint32_t from, lo, hi, to;
};

/* A draft. A struct of all zeros is empty; its arrays are malloc'ed. */
struct dfa_draft {
    bool *accept;
    size_t n_states, cap_states;
    struct dfa_draft_edge *edges;
    size_t n_edges, cap_edges;
    size_t max_states; /* 0: DFA_MAX_STATES */
};

/* Add a state or an edge. dfa_draft_state returns its number, or UINT32_MAX
 * with the error set; dfa_draft_edge returns 0 or -1. Both fail beyond the
 * limits. */
uint32_t dfa_draft_state(struct dfa_draft *d, bool accept,
                            const struct dfa_place *at);
int dfa_draft_edge(struct dfa_draft *d, uint32_t from, uint32_t lo,
                      uint32_t hi, uint32_t to, const struct dfa_place *at);
void dfa_draft_free(struct dfa_draft *d);

/* Sort edges by their states, and those of a state by their lowest code points.
 */
int dfa_sort_edges(struct dfa_draft_edge *v, size_t n, struct qwick_err *e);

/* Turn a draft, whose states have no two edges for a code point, into the
 * smallest automaton for its language. State 0 of the draft is the start. (Very
 * large automata keep equivalent states.) Returns NULL with the error set. */
const struct dfa *dfa_finish(struct dfa_draft *d,
                                   const struct dfa_place *at);

/* ---- languages ---- */

/* All texts. */
const struct dfa *dfa_any(const struct dfa_place *at);

/* The texts of min to max code points; max < 0: no maximum. */
const struct dfa *dfa_length(int64_t min, int64_t max,
                                   const struct dfa_place *at);

/* The n texts words[i][0..lens[i]), valid UTF-8. */
const struct dfa *dfa_words(const char *const *words, const size_t *lens,
                                  size_t n, const struct dfa_place *at);

/* The texts of a node that regex_parse made. */
struct grammar;
const struct dfa *dfa_of_node(const struct grammar *g, uint32_t node,
                                    const struct dfa_place *at);

/* The texts of a that are (with minus: are not) texts of b. */
const struct dfa *dfa_combine(const struct dfa *a,
                                    const struct dfa *b, bool minus,
                                    const struct dfa_place *at);

/* Return how many more code points each state needs at least to accept:
 * [n_states], malloc'ed. NULL with the error set. */
int64_t *dfa_distances(const struct dfa *p, struct qwick_err *e);

/* Return 1 if in every state a text can be made longer by one code point
 * without getting farther from its end; 0 if not; -1 with the error set. Then
 * some text has any length from the shortest one on. */
int dfa_can_wait(const struct dfa *p, struct qwick_err *e);

/* If the texts of p are those of a much smaller automaton with *min to *max
 * characters, as of [a-z]{1,500}, return that automaton. Else return p, with
 * *min 0 and *max -1, no maximum. NULL with the error set. */
const struct dfa *dfa_fold(const struct dfa *p, int64_t *min, int64_t *max,
                           const struct dfa_place *at);

/* Take n steps of the budget. Returns -1 with the error set when it is used up.
 */
int dfa_steps(const struct dfa_place *at, size_t n);

/* Return whether the automaton accepts s[0..n), valid UTF-8. */
bool dfa_match(const struct dfa *p, const char *s, size_t n);

#endif
