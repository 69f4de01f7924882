/* The tokens of a tokenizer as tries over their bytes, in the order of a
 * depth-first walk. Parts of a trie are made when they are first needed,
 * because most constraints need few of them. */
#ifndef ENGINE_TOKEN_TRIE_H
#define ENGINE_TOKEN_TRIE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct bpe;
struct byte_classes;
struct class_part;
struct token_list;

/* A node: the bytes from the root to it begin some token. */
struct trie_node {
    uint32_t skip;   /* the first node after this node's subtree */
    uint32_t rank;   /* where the tokens of the node begin in ids; those of its
                        subtree follow */
    uint16_t depth;  /* bytes from the root, at least 1 */
    uint16_t height; /* bytes after it, at most */
    uint32_t byte : 8;     /* the last of them */
    uint32_t n_equal : 24; /* tokens with exactly these bytes; a tokenizer may
                              have several */
};

/* The tokens of a trie that begin with one byte. */
struct trie_part {
    uint32_t from, to; /* its nodes; nodes[to].rank is where its ids end */
    uint32_t ids, n_ids;
    bool made; /* by token_trie_need, see there */
};

/* Several threads may use it. What is made stays as it is. */
struct token_trie {
    struct bpe *bpe;         /* borrowed */
    struct trie_node *nodes; /* of all tries, without the roots; parts have gaps
                                between them */
    int32_t *ids;            /* of all tries */
    size_t n_ids;            /* of all tries */
    size_t n_vocab;          /* ids are below */
    uint64_t *listed; /* [n_vocab / 64 + 1] bit i % 64 of word i / 64: id i has
                         a node in one of the tries */
    size_t max_depth;
    struct trie_part parts[256];        /* by the first byte, in order */
    const struct byte_classes *classes; /* class_trie.h */
    struct class_part *by_class[256];   /* the same tokens by the class of their
                                           first byte; see class_trie_need */
    unsigned kind;   /* 0: of plain tokens, 1: of the others, 2: of long ones */
    uint64_t *plain; /* see token_trie_plain */
    pthread_mutex_t *lock; /* held where parts are made */
    struct token_list *list;
    struct token_trie *next; /* more tokens, or NULL */
};

/* Tokens are in three tries. The first has plain tokens: they are whole
 * characters that any JSON string may hold, without control characters, quotes
 * and backslashes, and without U+2028 and U+2029, which the dot of a pattern
 * does not match. Often all of them are admitted. The second has the others.
 * The third has the tokens of more than SHORT_TOKEN bytes, which are few: texts
 * that differ only in a limit that is farther away admit the same tokens of the
 * other tries. */
#define SHORT_TOKEN 32

/* List the tokens with text whose ids are below n_vocab: without added tokens
 * except tags[0..n_tags), the tags of tool calls, which models write as one
 * token each, and without ids where blocked [n_vocab] is nonzero; NULL: none
 * is. Returns the first trie. */
int token_trie_create(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                      const unsigned char *blocked, const int32_t *tags,
                      size_t n_tags, struct qwick_err *e);
/* Takes the first trie. NULL is accepted. */
void token_trie_free(struct token_trie *t);

/* Make the part of a byte. */
int token_trie_make(struct token_trie *t, unsigned char byte,
                    struct qwick_err *e);

static inline bool token_trie_is_made(const struct token_trie *t,
                                      unsigned char byte)
{
    return __atomic_load_n(&t->parts[byte].made, __ATOMIC_ACQUIRE);
}

/* Make the part of a byte unless it is made. Before that, nothing else of the
 * part has a meaning. */
static inline int token_trie_need(struct token_trie *t, unsigned char byte,
                                  struct qwick_err *e)
{
    return token_trie_is_made(t, byte) ? 0 : token_trie_make(t, byte, e);
}

/* Return the plain tokens of at most so many characters, up to SHORT_TOKEN, as
 * bits like `listed`, or NULL with *e set. t: their trie. */
const uint64_t *token_trie_plain(struct token_trie *t, size_t chars,
                                 struct qwick_err *e);

/* Whether a token is in one of the tries. */
static inline bool token_trie_has(const struct token_trie *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->n_vocab &&
           (t->listed[id / 64] >> (id & 63) & 1);
}

#endif
