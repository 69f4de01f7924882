/* Nondeterministic automata for regular expressions (Thompson's construction).
 * An expression has one alphabet: classes of characters that no part of it
 * tells apart. So an edge reads a class, or a set of classes, and never a
 * range. */
#ifndef TEXT_NFA_H
#define TEXT_NFA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/grammar/dfa.h"
#include "text/grammar/grammar_int.h"

#define NFA_NONE UINT32_MAX

/* Code points lo to hi, which belong to one class; NFA_NONE: no part reads
 * them. */
struct nfa_interval {
    uint32_t lo, hi, class_of;
};

/* The characters of one node: sets[] has a row of n_classes for each. */
struct nfa_symbol {
    const struct grammar_range *ranges; /* NULL: one character */
    size_t n;
    uint32_t one, class_of; /* the character and its class */
};

/* A lookahead, and its automata: one for each kind of character before it,
 * made when it is first needed. They accept the texts that may follow. */
struct nfa_look {
    uint32_t node;
    const struct dfa *after[3];
};

struct nfa_alphabet {
    const struct grammar *g;
    const struct dfa_place *at;
    bool *seen;          /* [nodes of g] */
    uint32_t *symbol_of; /* [nodes of g] of classes */
    struct nfa_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct hashmap by_char; /* of symbols of one character */
    size_t cap_map;
    struct nfa_interval *intervals;
    size_t n_intervals;
    uint32_t n_classes;
    uint32_t *sample;    /* [n_classes] a character of each class */
    unsigned char *sets; /* [n_symbols, n_classes] */
    uint32_t any, words; /* symbols: all characters, those of \w */
    bool has_start, has_words, has_looks; /* what the expression asks for */
    struct nfa_look *looks;
    size_t n_looks, cap_looks;
};

enum nfa_kind {
    NFA_SKIP,   /* reads nothing */
    NFA_READ,   /* reads a character of the symbol `what` */
    NFA_ASSERT, /* reads nothing, where the assertion `what` holds */
    NFA_LOOK    /* reads nothing, where the lookahead `what` holds */
};

struct nfa_edge {
    uint32_t from, to;
    uint32_t kind, what;
};

/* State 0 is the start, state 1 the end. */
struct nfa {
    const struct nfa_alphabet *x;
    struct nfa_edge *edges; /* of each state one after the other */
    size_t n_edges, cap_edges;
    uint32_t n_states;
    uint32_t *first; /* [n_states + 1] */
};

/* Find the alphabet of a node and of all nodes inside. On failure, which sets
 * the error, the alphabet can only be freed. */
int nfa_alphabet(struct nfa_alphabet *x, const struct grammar *g, uint32_t node,
                 const struct dfa_place *at);
void nfa_alphabet_free(struct nfa_alphabet *x);

static inline bool nfa_reads(const struct nfa_alphabet *x, uint32_t symbol,
                             uint32_t class_of)
{
    return x->sets[(size_t)symbol * x->n_classes + class_of];
}

/* Make the automaton of a node whose alphabet is known. with_rest: any text may
 * follow the node's. */
int nfa_create(struct nfa *a, const struct nfa_alphabet *x, uint32_t node,
               bool with_rest);
void nfa_free(struct nfa *a);

#endif
