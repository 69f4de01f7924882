/* Runs a grammar over bytes. A state holds everything that is known about the
 * text so far: the set of places in the grammar that the text may have reached,
 * each with the rules that are still open there. So ambiguous grammars need no
 * backtracking, and recursion may be as deep as memory allows.
 *
 * A state is a number. It is made when the text first reaches it; a transition
 * that was taken before is one look-up. The stack of a place is a frame: the
 * set of places to return to when the current rule ends, each with a frame of
 * its own (the graph-structured stack of Tomita 1986, with equal frames
 * shared). A call at the end of a rule needs no frame (tail call), so a list
 * whose rule ends with itself does not make the stack grow.
 *
 * A place may have a number: the count of a repetition or, with parts in any
 * order (grammar_once), the number of the set of parts that were there. A part
 * is checked before its first byte and added after its last one. So the set is
 * no part of the places inside of the part, unless they return to it: values
 * have the same masks whatever came before.
 *
 * From every state some text leads to a state that accepts.
 *
 * Memory is bounded: automaton_tidy drops all states that the caller does not
 * name. Without it, new states fail when AUTOMATON_MAX_MEMORY is used up. */
#ifndef TEXT_AUTOMATON_H
#define TEXT_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct grammar;
struct automaton;

/* The state after a byte that the grammar does not admit. */
#define AUTOMATON_DEAD 0u

/* Limits of an automaton. */
#define AUTOMATON_MAX_CODE   (1u << 22)  /* instructions of the whole grammar */
#define AUTOMATON_MAX_PLACES (1u << 18)  /* places of one state */
#define AUTOMATON_MAX_MEMORY (40u << 20) /* bytes of states and frames */

/* Compile a grammar that grammar_finish accepted. The automaton does not need
 * the grammar afterwards. QWICK_ERR_USAGE if it is too large, also if the text
 * has too many places where it begins. */
int automaton_create(struct automaton **out, const struct grammar *g,
                     struct qwick_err *e);
void automaton_free(struct automaton *a);

/* The state before the first byte. */
uint32_t automaton_start(const struct automaton *a);

/* Return the state after one more byte, AUTOMATON_DEAD if there is none.
 * On failure returns AUTOMATON_DEAD, and automaton_error says why. */
uint32_t automaton_advance(struct automaton *a, uint32_t state,
                           unsigned char byte);

/* Make the states after all bytes, in less time than byte by byte. On failure
 * automaton_error says why. */
void automaton_fill(struct automaton *a, uint32_t state);

/* Return the state of a text that two states can have: it admits what either
 * admits. On failure returns AUTOMATON_DEAD, and automaton_error says why. */
uint32_t automaton_union(struct automaton *a, uint32_t s, uint32_t t);

/* The transitions that are already known, for loops over many bytes. Pointers
 * are valid until a state is made or the automaton is tidied. */
struct automaton_table {
    const uint32_t *next; /* [n_states, n_classes] the state after a byte, plus
                             1; 0: ask automaton_advance */
    const unsigned char *accepts;  /* [n_states] automaton_accepts */
    const unsigned char *class_of; /* [256] */
    size_t n_classes;
    bool counted; /* whether automaton_alike may return another state */
};
struct automaton_table automaton_known(const struct automaton *a);

/* Whether the text may end in this state. */
bool automaton_accepts(const struct automaton *a, uint32_t state);

/* Whether no byte may follow in this state. */
bool automaton_is_final(const struct automaton *a, uint32_t state);

/* Write the bytes that a state admits to bytes[256], nonzero for each. */
void automaton_bytes(struct automaton *a, uint32_t state,
                     unsigned char bytes[256]);

/* The first failure since the automaton was made: out of memory, a state with
 * more than AUTOMATON_MAX_PLACES places, or states that need more than
 * AUTOMATON_MAX_MEMORY (QWICK_ERR_RUNTIME). Returns 0 if there was none. */
int automaton_error(const struct automaton *a, struct qwick_err *e);

/* ---- parts of a state ---- */

/* A state is the union of groups: the places that share a frame. Which bytes a
 * group admits before it leaves its rule depends on the places alone. */
struct automaton_group {
    uint32_t local; /* the state of the same places in a text that ends with
                       the rule: it accepts where the rule can end */
    uint32_t after; /* the state after the end of the rule */
};

/* Return the number of groups of a state, and write group i to *out. On failure
 * automaton_error says why. */
size_t automaton_groups(const struct automaton *a, uint32_t state);
void automaton_group(struct automaton *a, uint32_t state, size_t i,
                     struct automaton_group *out);

/* Return a state that admits the same texts of at most n bytes, and accepts the
 * same ones. States that differ only in the number of repetitions that are
 * left, when that is large, give the same state. On failure automaton_error
 * says why. */
uint32_t automaton_alike(struct automaton *a, uint32_t state, size_t n);

/* Return the largest n for which automaton_alike gives the same state as for 0.
 */
uint32_t automaton_room(const struct automaton *a, uint32_t state);

/* Parts whose texts differ (grammar_once). Return a state that admits the texts
 * of this one and those in which the current text, or a later one, equals an
 * earlier text; the state itself if there are none. */
uint32_t automaton_plain(struct automaton *a, uint32_t state);

/* Whether the grammar has such parts. */
bool automaton_has_texts(const struct automaton *a);

/* Append to *out the texts whose end must not come next, each after its length
 * as a uint32_t: earlier ones, without what the current text has of them.
 * Returns -1 when out of memory. */
struct buf;
int automaton_repeats(const struct automaton *a, uint32_t state,
                      struct buf *out);

/* Add to borders[4] the bytes that a state tells apart from the byte before
 * them: byte i is bit i % 64 of word i / 64. */
void automaton_add_borders(const struct automaton *a, uint32_t state,
                           uint64_t borders[4]);

/* ---- memory ---- */

/* Bytes of states and frames. */
size_t automaton_bytes_used(const struct automaton *a);

/* The places that were visited to make states, since the last reset: a measure
 * of time. */
size_t automaton_work(const struct automaton *a);
void automaton_reset_work(struct automaton *a);

/* Drop all states except states[0..n), which get new numbers. */
int automaton_tidy(struct automaton *a, uint32_t *states, size_t n,
                   struct qwick_err *e);

#endif
