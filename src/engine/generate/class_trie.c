#include "engine/generate/class_trie.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "engine/generate/token_trie.h"

/* Nodes with at least one token for this many words of bits have bits. */
enum { WORDS_AN_ID = 4 };

struct builder {
    struct class_trie *c;
    const struct token_trie *t;
    size_t n_classes;
    uint32_t *work; /* [n_nodes] nodes of the token trie, level above level */
    size_t n_work;
    size_t n_ids, n_nodes, cap;
    struct qwick_err *e;
};

/* Add a node for work[from, to). */
static int add_node(struct builder *b, size_t from, size_t to, size_t depth)
{
    struct class_trie *c = b->c;
    if (ARRAY_RESERVE(c->v, b->cap, c->n + 2, b->e))
        return -1;
    c->v[c->n] = (struct class_node){.ids = (uint32_t)b->n_ids,
                                     .nodes = (uint32_t)b->n_nodes,
                                     .depth = (uint16_t)depth,
                                     .byte = b->t->nodes[b->work[from]].byte};
    for (size_t i = from; i < to; i++) {
        const struct trie_node *node = &b->t->nodes[b->work[i]];
        if (c->v[c->n].height < node->height)
            c->v[c->n].height = node->height;
        c->nodes[b->n_nodes++] = b->work[i];
        for (size_t k = 0; k < node->n_equal; k++)
            c->ids[b->n_ids++] = b->t->ids[node->rank + k];
    }
    c->n++;
    return 0;
}

/* Put the nodes [from, to) of the token trie that are siblings, and those in
 * the same position below others, on top of the work, sorted by class. Counts
 * them by class. parents: work[from, to); from == to: the root. */
static void put_children(struct builder *b, size_t from, size_t to,
                         uint32_t *count)
{
    const struct trie_node *v = b->t->nodes;
    const unsigned char *class_of = b->c->class_of;
    uint32_t at[256], sum = 0;
    bool root = from == to;
    memset(count, 0, b->n_classes * sizeof *count);
    for (int fill = 0; fill < 2; fill++) {
        for (size_t i = from; i < to + root; i++) {
            size_t kid = root ? 0 : b->work[i] + 1u;
            size_t end = root ? b->t->n_nodes : v[b->work[i]].skip;
            for (; kid < end; kid = v[kid].skip)
                if (fill)
                    b->work[b->n_work + at[class_of[v[kid].byte]]++] =
                        (uint32_t)kid;
                else
                    count[class_of[v[kid].byte]]++;
        }
        for (size_t k = 0; !fill && k < b->n_classes; k++) {
            at[k] = sum;
            sum += count[k];
        }
    }
    b->n_work += sum;
}

/* Add the nodes below work[from, to). The recursion is as deep as the longest
 * token. */
static int add_below(struct builder *b, size_t from, size_t to, size_t depth)
{
    uint32_t count[256];
    size_t at = b->n_work, base = at;
    put_children(b, from, to, count);
    for (size_t k = 0; k < b->n_classes; k++) {
        size_t i = b->c->n;
        if (count[k] == 0)
            continue;
        if (add_node(b, at, at + count[k], depth + 1) ||
            add_below(b, at, at + count[k], depth + 1))
            return -1;
        b->c->v[i].skip = (uint32_t)b->c->n;
        at += count[k];
    }
    b->n_work = base;
    return 0;
}

/* Write the tokens of nodes that have many as bits. */
static int make_bits(struct builder *b)
{
    struct class_trie *c = b->c;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->v[i + 1].ids - c->v[i].ids > c->n_words / WORDS_AN_ID)
            c->v[i].bits = (uint32_t)++n;
    c->bits = calloc(n * c->n_words + 1, sizeof *c->bits);
    c->n_bits = n;
    if (!c->bits)
        return err_oom(b->e, n * c->n_words * sizeof *c->bits);
    for (size_t i = 0; i < c->n; i++) {
        uint64_t *bits = c->bits + (c->v[i].bits - 1u) * c->n_words;
        for (size_t k = c->v[i].ids; c->v[i].bits && k < c->v[i + 1].ids; k++)
            bits[c->ids[k] / 64] |= 1ull << (c->ids[k] & 63);
    }
    return 0;
}

/* Fill in the classes. */
static size_t make_classes(struct class_trie *c)
{
    /* continuations, with the limits of those after E0, ED, F0 and F4 */
    static const unsigned char borders[] = {0x80, 0x90, 0xA0, 0xC0};
    size_t n = 1;
    for (unsigned i = 1; i < 256; i++) {
        bool begins = i >= '\t' && i < 0x80 && !(i > 'A' && i <= 'Z') &&
                      !(i > 'a' && i <= 'z') && !(i > '\r' + 1 && i < ' ') &&
                      i != '\v' + 1;
        for (size_t k = 0; k < sizeof borders; k++)
            begins |= borders[k] == i || i > 0xC1;
        if (begins) {
            c->borders[i / 64] |= 1ull << (i & 63);
            n++;
        }
        c->class_of[i] = (unsigned char)(n - 1);
    }
    return n;
}

int class_trie_create(struct class_trie **out, const struct token_trie *t,
                      struct qwick_err *e)
{
    struct class_trie *c = calloc(1, sizeof *c);
    int rc = -1;
    *out = c;
    if (!c)
        return err_oom(e, sizeof *c);
    struct builder b = {.c = c, .t = t, .n_classes = make_classes(c), .e = e};
    c->n_words = t->n_vocab / 64 + 1;
    c->ids = malloc((t->n_ids + 1) * sizeof *c->ids);
    c->nodes = malloc((t->n_nodes + 1) * sizeof *c->nodes);
    b.work = malloc((t->n_nodes + 1) * sizeof *b.work);
    if (!c->ids || !c->nodes || !b.work)
        err_oom(e, t->n_nodes * sizeof *c->nodes);
    else if (!ARRAY_RESERVE(c->v, b.cap, 1, e) && !add_below(&b, 0, 0, 0)) {
        c->v[c->n] = (struct class_node){.ids = (uint32_t)b.n_ids,
                                         .nodes = (uint32_t)b.n_nodes,
                                         .skip = (uint32_t)c->n};
        rc = make_bits(&b);
    }
    free(b.work);
    return rc;
}

void class_trie_free(struct class_trie *c)
{
    if (!c)
        return;
    free(c->v);
    free(c->ids);
    free(c->nodes);
    free(c->bits);
    free(c);
}
