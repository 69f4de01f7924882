#include "engine/generate/class_trie.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "engine/generate/token_trie.h"

/* Nodes with at least one token for this many words of bits have bits. */
enum { WORDS_AN_ID = 4 };

/* So many are sorted by insertion. */
enum { FEW_KIDS = 16 };

struct kid {
    uint32_t node;
    unsigned char class;
};

struct builder {
    struct class_part *c;
    const struct token_trie *t;
    const unsigned char *class_of;
    uint32_t *work; /* nodes of the token trie, level above level */
    size_t n_work;
    struct kid *kids; /* children while they are sorted by class */
    size_t n_ids, n_nodes, cap;
    struct qwick_err *e;
};

/* Add a node for work[from, to). */
static int add_node(struct builder *b, size_t from, size_t to, size_t depth)
{
    struct class_part *c = b->c;
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

/* Sort the first n kids by class, stably, to the top of the work. */
static void sort_kids(struct builder *b, size_t n)
{
    uint32_t at[257], *work = b->work + b->n_work;
    if (n > FEW_KIDS)
        memset(at, 0, sizeof at);
    for (size_t i = 0; i < n && n <= FEW_KIDS; i++) {
        size_t k = i;
        struct kid kid = b->kids[i];
        for (; k > 0 && b->kids[k - 1].class > kid.class; k--)
            b->kids[k] = b->kids[k - 1];
        b->kids[k] = kid;
    }
    for (size_t i = 0; i < n && n > FEW_KIDS; i++)
        at[b->kids[i].class + 1u]++;
    for (size_t k = 0; k < b->t->classes->n && n > FEW_KIDS; k++)
        at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++)
        work[n > FEW_KIDS ? at[b->kids[i].class]++ : i] = b->kids[i].node;
    b->n_work += n;
}

/* Put the children of work[from, to) on top of the work, sorted by class. */
static void put_children(struct builder *b, size_t from, size_t to)
{
    const struct trie_node *v = b->t->nodes;
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        size_t kid = b->work[i] + 1u, end = v[b->work[i]].skip;
        for (; kid < end; kid = v[kid].skip)
            b->kids[n++] =
                (struct kid){(uint32_t)kid, b->class_of[v[kid].byte]};
    }
    if (n)
        sort_kids(b, n);
}

/* Return the end of the nodes in work[from, to) that have the first one's
 * class. */
static size_t same_class(const struct builder *b, size_t from, size_t to)
{
    const struct trie_node *v = b->t->nodes;
    size_t i = from + 1;
    while (i < to && b->class_of[v[b->work[i]].byte] ==
                         b->class_of[v[b->work[from]].byte])
        i++;
    return i;
}

/* Add a node for work[from, to) and those below. The recursion is as deep as
 * the longest token. */
static int add_nodes(struct builder *b, size_t from, size_t to, size_t depth)
{
    size_t base = b->n_work, at = base, i = b->c->n;
    if (add_node(b, from, to, depth))
        return -1;
    put_children(b, from, to);
    for (size_t end = b->n_work, next; at < end; at = next) {
        next = same_class(b, at, end);
        if (add_nodes(b, at, next, depth + 1))
            return -1;
    }
    b->c->v[i].skip = (uint32_t)b->c->n;
    b->n_work = base;
    return 0;
}

/* Write the tokens of nodes that have many as bits. */
static int make_bits(struct builder *b)
{
    struct class_part *c = b->c;
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

void byte_classes_fill(struct byte_classes *c)
{
    /* continuations, with the limits of those after E0, ED, F0 and F4 */
    static const unsigned char borders[] = {0x80, 0x90, 0xA0, 0xC0};
    *c = (struct byte_classes){.n = 1};
    for (unsigned i = 1; i < 256; i++) {
        bool begins = i >= '\t' && i < 0x80 && !(i > 'A' && i <= 'Z') &&
                      !(i > 'a' && i <= 'z') && !(i > '\r' + 1 && i < ' ') &&
                      i != '\v' + 1;
        for (size_t k = 0; k < sizeof borders; k++)
            begins |= borders[k] == i || i > 0xC1;
        if (begins) {
            c->borders[i / 64] |= 1ull << (i & 63);
            c->n++;
        }
        c->class_of[i] = (unsigned char)(c->n - 1);
    }
}

/* Fill in a part from n_nodes nodes with n_ids tokens, of which the first
 * n_work are in b->work. */
static int fill_part(struct builder *b, size_t n_ids, size_t n_nodes)
{
    struct class_part *c = b->c;
    c->n_words = b->t->n_vocab / 64 + 1;
    c->ids = malloc((n_ids + 1) * sizeof *c->ids);
    c->nodes = malloc((n_nodes + 1) * sizeof *c->nodes);
    b->kids = malloc((n_nodes + 1) * sizeof *b->kids);
    if (!c->ids || !c->nodes || !b->kids)
        return err_oom(b->e, n_nodes * sizeof *c->nodes);
    if (ARRAY_RESERVE(c->v, b->cap, 1, b->e) ||
        (b->n_work && add_nodes(b, 0, b->n_work, 1)))
        return -1;
    c->v[c->n] = (struct class_node){.ids = (uint32_t)b->n_ids,
                                     .nodes = (uint32_t)b->n_nodes,
                                     .skip = (uint32_t)c->n};
    return make_bits(b);
}

static struct class_part *make_part(struct token_trie *t, unsigned char class,
                                    struct qwick_err *e)
{
    const struct byte_classes *classes = t->classes;
    struct builder b = {.t = t, .class_of = classes->class_of, .e = e};
    size_t n_ids = 0, n_nodes = 0;
    for (unsigned i = 0; i < 256; i++)
        if (classes->class_of[i] == class) {
            n_ids += t->parts[i].n_ids;
            n_nodes += t->parts[i].to - t->parts[i].from;
        }
    b.c = calloc(1, sizeof *b.c);
    b.work = malloc((n_nodes + 1) * sizeof *b.work);
    for (unsigned i = 0; i < 256 && b.work; i++)
        if (classes->class_of[i] == class && t->parts[i].n_ids)
            b.work[b.n_work++] = t->parts[i].from;
    int rc = b.c && b.work ? fill_part(&b, n_ids, n_nodes)
                           : err_oom(e, n_nodes * sizeof *b.work);
    free(b.work);
    free(b.kids);
    if (rc) {
        class_part_free(b.c);
        return NULL;
    }
    return b.c;
}

const struct class_part *
class_trie_need(struct token_trie *t, unsigned char class, struct qwick_err *e)
{
    struct class_part *c =
        __atomic_load_n(&t->by_class[class], __ATOMIC_ACQUIRE);
    if (c)
        return c;
    for (unsigned i = 0; i < 256; i++)
        if (t->classes->class_of[i] == class &&
            token_trie_need(t, (unsigned char)i, e))
            return NULL;
    pthread_mutex_lock(t->lock);
    c = t->by_class[class];
    if (!c && (c = make_part(t, class, e)) != NULL)
        __atomic_store_n(&t->by_class[class], c, __ATOMIC_RELEASE);
    pthread_mutex_unlock(t->lock);
    return c;
}

void class_part_free(struct class_part *c)
{
    if (!c)
        return;
    free(c->v);
    free(c->ids);
    free(c->nodes);
    free(c->bits);
    free(c);
}
