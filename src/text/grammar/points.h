/* Deterministic finite automata over code points. The schema compiler uses them
 * for strings (patterns, formats, lengths, excluded values) and, with bytes as
 * code points, for numbers. Unlike nodes of a grammar, they have intersection,
 * difference and a matcher. */
#ifndef TEXT_POINTS_H
#define TEXT_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

#define POINTS_MAX_STATES 20000u
#define POINTS_MAX_EDGES  10u        /* for each of the states it may have */
#define POINTS_MAX_WORDS  (1u << 20) /* bytes of words */
#define POINTS_LAST       0x10FFFFu

struct points_edge {
    uint32_t lo, hi; /* code points, hi included; no surrogates */
    uint32_t to;
};

/* An automaton. State 0 is the start. From every state an accepting state can
 * be reached; an automaton that accepts nothing has n_states 0. */
struct points {
    uint32_t n_states;
    uint32_t *first;           /* [n_states + 1] the first edge of each state */
    struct points_edge *edges; /* of each state: ascending, not overlapping */
    bool *accept;              /* [n_states] */
};

/* The memory of automata, and the steps that may still be spent on them. The
 * caller puts the place in the schema before the text of an error. */
struct points_place {
    struct arena *mem;
    size_t *steps_left;
    struct qwick_err *e;
};

/* ---- automata that are being built ---- */

struct points_draft_edge {
    uint32_t from, lo, hi, to;
};

/* A draft. A struct of all zeros is empty; its arrays are malloc'ed. */
struct points_draft {
    bool *accept;
    size_t n_states, cap_states;
    struct points_draft_edge *edges;
    size_t n_edges, cap_edges;
    size_t max_states; /* 0: POINTS_MAX_STATES */
};

/* Add a state or an edge. points_draft_state returns its number, or UINT32_MAX
 * with the error set; points_draft_edge returns 0 or -1. Both fail beyond the
 * limits. */
uint32_t points_draft_state(struct points_draft *d, bool accept,
                            const struct points_place *at);
int points_draft_edge(struct points_draft *d, uint32_t from, uint32_t lo,
                      uint32_t hi, uint32_t to, const struct points_place *at);
void points_draft_free(struct points_draft *d);

/* Turn a draft, whose states have no two edges for a code point, into the
 * smallest automaton for its language. State 0 of the draft is the start. (Very
 * large automata keep equivalent states.) Returns NULL with the error set. */
const struct points *points_finish(struct points_draft *d,
                                   const struct points_place *at);

/* ---- languages ---- */

/* All texts. */
const struct points *points_any(const struct points_place *at);

/* The texts of min to max code points; max < 0: no maximum. */
const struct points *points_length(int64_t min, int64_t max,
                                   const struct points_place *at);

/* The n texts words[i][0..lens[i]), valid UTF-8. */
const struct points *points_words(const char *const *words, const size_t *lens,
                                  size_t n, const struct points_place *at);

/* The texts of a node of a grammar. The node has no references, like the nodes
 * that regex_compile makes with classes of its own. */
struct grammar;
const struct points *points_of_node(const struct grammar *g, uint32_t node,
                                    const struct points_place *at);

/* The texts of a that are (with minus: are not) texts of b. */
const struct points *points_combine(const struct points *a,
                                    const struct points *b, bool minus,
                                    const struct points_place *at);

/* Return how many more code points each state needs at least to accept:
 * [n_states], malloc'ed. NULL with the error set. */
int64_t *points_distances(const struct points *p, struct qwick_err *e);

/* Return 1 if in every state a text can be made longer by one code point
 * without getting farther from its end; 0 if not; -1 with the error set. Then
 * some text has any length from the shortest one on. */
int points_can_wait(const struct points *p, struct qwick_err *e);

/* Take n steps of the budget. Returns -1 with the error set when it is used up.
 */
int points_steps(const struct points_place *at, size_t n);

/* Return whether the automaton accepts s[0..n), valid UTF-8. */
bool points_match(const struct points *p, const char *s, size_t n);

#endif
