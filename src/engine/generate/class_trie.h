/* Tokens as a trie over classes of bytes. Where a grammar admits nearly any
 * text, it distinguishes only few classes of bytes: a quote, a backslash, any
 * letter. Most tokens are then equal as sequences of classes, so a walk over
 * classes is much shorter than a walk over bytes. The classes are the same for
 * all grammars: capital letters, small ones, control characters, and the
 * continuations of UTF-8 have few classes, and each other byte is one. */
#ifndef ENGINE_CLASS_TRIE_H
#define ENGINE_CLASS_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct token_trie;

struct byte_classes {
    uint64_t borders[4]; /* where a class begins: byte i is bit i % 64 of word
                            i / 64 */
    unsigned char class_of[256];
    size_t n;
};

void byte_classes_fill(struct byte_classes *c);

/* A node: all nodes of the token trie whose paths have these classes. Arrays
 * are in the order of a depth-first walk, and the part of a node ends where the
 * part of the next node begins. */
struct class_node {
    uint32_t skip;  /* the first node after this node's subtree */
    uint32_t ids;   /* where its tokens begin in ids */
    uint32_t nodes; /* where its nodes of the token trie begin in nodes */
    uint32_t bits;  /* 1 + its entry in bits; 0: its tokens are only in ids */
    uint16_t depth;
    uint16_t height; /* bytes after it, at most */
    uint8_t byte;    /* one of its last bytes */
};

/* The tokens whose first bytes have one class. */
struct class_part {
    struct class_node *v; /* [n + 1] the last one only ends the arrays */
    size_t n;
    int32_t *ids;
    uint32_t *nodes;
    uint64_t *bits; /* [n_bits, n_words] */
    size_t n_bits, n_words;
};

/* Return the part of a class, which is made when it is first needed, or NULL
 * with *e set. */
const struct class_part *
class_trie_need(struct token_trie *t, unsigned char class, struct qwick_err *e);
/* NULL is accepted. */
void class_part_free(struct class_part *c);

#endif
