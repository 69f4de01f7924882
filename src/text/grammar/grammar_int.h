/* The members of a grammar, for grammar.c, grammar_check.c and the readers of
 * its nodes. */
#ifndef TEXT_GRAMMAR_INT_H
#define TEXT_GRAMMAR_INT_H

#include "base/buf.h"
#include "base/hashmap.h"
#include "text/grammar/dfa.h"
#include "text/grammar/grammar.h"

enum node_type {
    NODE_NOTHING,
    NODE_EMPTY,
    NODE_BYTES,  /* payload: the bytes */
    NODE_CLASS,  /* payload: struct grammar_range [], ascending, with gaps
                    between them, no surrogates */
    NODE_SEQ,    /* payload: nodes */
    NODE_ALT,    /* payload: nodes */
    NODE_REPEAT, /* payload: node, min, max */
    NODE_REF,    /* payload: rule */
    NODE_DFA,    /* payload: struct dfa_draft_edge []; state 0 is the start */
    /* of grammar_once, without a text; payload: index in onces, part */
    NODE_FREE, /* the part may come next */
    NODE_TAKE, /* the part has been read; part n: `other` */
    NODE_DONE, /* there are enough parts */
    NODE_NEED, /* payload: nodes, a number: matches the empty text, but no text
                  at all unless this number of its nodes match some text */
    /* inside of regular expressions only, for dfa_of_node: */
    NODE_ASSERT, /* payload: an assertion */
    NODE_LOOK    /* payload: node, 1 if its texts must not follow, else 0 */
};

/* What NODE_FREE and so on refer to. */
struct once {
    uint32_t n;        /* parts without `other` */
    uint32_t min, max; /* see struct grammar_once */
    uint32_t n_required;
    uint32_t required; /* offset in data: a byte for each part */
    bool differ;
};

/* Places in a text. \b: characters of \w and others, or an end, meet there. */
enum { ASSERT_START, ASSERT_END, ASSERT_WORD, ASSERT_NO_WORD };

/* Repetitions up to this number are copies, longer ones are counted. */
enum { MAX_COPIES = 31 };

/* A node. Its payload is at data + off in the grammar. Nodes in a payload have
 * lower numbers. */
struct node {
    uint8_t type;
    uint16_t depth;
    uint32_t off, len; /* bytes of the payload */
};

/* In the edges of NODE_DFA: bytes lo to hi lead from one state to another; or,
 * with a lo of these, hi is a number, and the edge reads nothing. The edges
 * without a byte form no loop. An automaton with DFA_COUNT or DFA_COUNT_UP
 * counts characters: both come before each one, and DFA_LEAVE before the end.
 */
enum {
    DFA_END = 0x100, /* the text may end in the state `from` */
    DFA_SKIP,        /* only leads to another state */
    DFA_COUNT,       /* see OP_COUNT */
    DFA_COUNT_UP,
    DFA_LEAVE
};

#define NO_NODE UINT32_MAX

struct rule {
    uint32_t node; /* NO_NODE: not defined yet */
    uint32_t name; /* offset in names */
    uint32_t n_name;
};

struct grammar {
    char *name;
    struct node *nodes;
    size_t n_nodes, cap_nodes;
    struct hashmap by_content; /* of nodes */
    struct rule *rules;
    size_t n_rules, cap_rules;
    struct hashmap by_name; /* of rules that grammar_rule made */
    struct once *onces;
    size_t n_onces, cap_onces;
    struct buf data, names;
    uint64_t seed;
    struct qwick_err err; /* the first error; QWICK_OK: none */
    struct {
        struct buf lines;
        size_t n; /* also of lines that were left out */
    } remarks[GRAMMAR_N_REMARKS];
    /* see grammar_set_tokens; find NULL: there are none */
    size_t n_ids;
    grammar_find_fn find;
    void *find_ctx;
    const int32_t *ends; /* [n_ends] */
    size_t n_ends;
    int32_t *tokens; /* [n_tokens] that the grammar names */
    size_t n_tokens, cap_tokens;
    bool done; /* grammar_finish succeeded */
    uint32_t root;
    /* from grammar_finish, [n_nodes] */
    unsigned char *productive, *nullable;
    uint32_t *order; /* [n_order] the rules that the root reaches; if texts of
                        rule A can begin with rule B, A comes before B */
    size_t n_order;
};

static inline const void *node_data(const struct grammar *g,
                                    const struct node *v)
{
    return g->data.data + v->off;
}

/* The nodes of NODE_SEQ and NODE_ALT, or the first numbers of the others. */
static inline const uint32_t *node_kids(const struct grammar *g,
                                        const struct node *v)
{
    return node_data(g, v);
}

/* Whether a repetition is counted, unless its part may be empty. */
static inline bool node_is_counted(const struct grammar *g,
                                   const struct node *v)
{
    const uint32_t *p = node_data(g, v); /* node, min, max */
    return v->type == NODE_REPEAT &&
           (p[2] == GRAMMAR_UNBOUNDED ? p[1] : p[2]) > MAX_COPIES;
}

static inline size_t node_n_kids(const struct node *v)
{
    return v->len / sizeof(uint32_t);
}

/* Add a node, or find an equal one. n_kids nodes at the start of the payload
 * count for its depth. */
uint32_t grammar_node(struct grammar *g, enum node_type type, const void *p,
                      size_t n_bytes, size_t n_kids);

/* Set *e to the problems. Returns 0 if there are none, else -1. */
int grammar_problems(const struct grammar *g, struct qwick_err *e);

/* Fail because memory ran out. */
uint32_t grammar_oom(struct grammar *g, size_t n_bytes);

/* ---- for parsers of grammars ---- */

/* A growing list: the parts of a sequence, or its alternatives. Zeros: empty.
 */
struct grammar_list {
    uint32_t *v;
    size_t n, cap;
};

/* The ranges of a class while it is read. */
struct grammar_ranges {
    struct grammar_range *v;
    size_t n, cap;
};

/* Return -1 after grammar_oom. */
int grammar_list_add(struct grammar *g, struct grammar_list *l, uint32_t node);
int grammar_ranges_add(struct grammar *g, struct grammar_ranges *l, uint32_t lo,
                       uint32_t hi);

/* Read the number at *p, which counts repetitions, and move *p behind it. 1: it
 * was read, 0: there is none, -1: it is above GRAMMAR_MAX_REPEAT. */
int grammar_read_count(const char **p, const char *end, uint32_t *v);

/* Write the ranges to out, sorted, with ranges that touch joined; with negated,
 * write the code points outside of them. Leaves out surrogates. out has room
 * for 2 * n + 3 ranges. Returns their number. */
size_t ranges_normalise(struct grammar_range *out,
                        const struct grammar_range *in, size_t n, bool negated);

#endif
