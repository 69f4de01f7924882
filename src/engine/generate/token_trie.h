/* The tokens of a tokenizer as a trie over their bytes, in the order of a
 * depth-first walk. */
#ifndef ENGINE_TOKEN_TRIE_H
#define ENGINE_TOKEN_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct bpe;
struct class_trie;

/* A node: the bytes from the root to it begin some token. */
struct trie_node {
    uint32_t skip;   /* the first node after this node's subtree */
    uint32_t rank;   /* tokens before this node in the order of the walk; the
                        tokens of the node follow */
    uint16_t depth;  /* bytes from the root, at least 1 */
    uint16_t height; /* bytes after it, at most */
    uint8_t byte;    /* the last of them */
    uint8_t n_equal; /* tokens with exactly these bytes; a tokenizer may have
                        several */
};

/* Never changes, so that constraints of several threads may use it. */
struct token_trie {
    struct bpe *bpe;         /* borrowed */
    struct trie_node *nodes; /* [n_nodes] without the root */
    size_t n_nodes;
    int32_t *ids; /* [n_ids] in the order of the walk */
    size_t n_ids;
    size_t n_vocab;   /* ids are below */
    uint64_t *listed; /* only of the first trie: [n_vocab / 64 + 1] bit i % 64
                         of word i / 64: id i has a node in one of the tries */
    size_t max_depth;
    struct class_trie *classes; /* the same tokens */
    uint64_t *plain; /* [SHORT_TOKEN + 1, n_vocab / 64 + 1] only of plain
                        tokens: ids of those of at most so many characters, as
                        in listed; else NULL */
    struct token_trie *next; /* more tokens, or NULL */
};

/* Tokens are in three tries. The first has plain tokens: they are whole
 * characters that any JSON string may hold, without control characters, quotes
 * and backslashes. Often all of them are admitted. The second has the others.
 * The third has the tokens of more than SHORT_TOKEN bytes, which are few: texts
 * that differ only in a limit that is farther away admit the same tokens of the
 * other tries. */
#define SHORT_TOKEN 32

/* Build the tries of the tokens with text whose ids are below n_vocab: without
 * added tokens except tags[0..n_tags), the tags of tool calls, which models
 * write as one token each, and without ids where blocked [n_vocab] is nonzero;
 * NULL: none is. */
int token_trie_create(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                      const unsigned char *blocked, const int32_t *tags,
                      size_t n_tags, struct qwick_err *e);
void token_trie_free(struct token_trie *t);

/* Whether a token is in one of the tries, of which t is the first. */
static inline bool token_trie_has(const struct token_trie *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_vocab &&
           (t->listed[id / 64] >> (id & 63) & 1);
}

#endif
