#include "engine/generate/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "engine/generate/class_trie.h"
#include "text/bpe/bpe.h"

/* Longer tokens are left out: shorter ones spell the same text. */
enum { MAX_TOKEN = 1024 };

/* A token while tokens are sorted. key: its first bytes, so that most
 * comparisons read nothing else. */
struct entry {
    uint64_t key;
    const unsigned char *p;
    uint32_t n;
    int32_t id;
};

static uint64_t first_bytes(const unsigned char *p, size_t n)
{
    uint64_t key = 0;
    for (size_t i = 0; i < 8; i++)
        key = key << 8 | (i < n ? p[i] : 0);
    return key;
}

static int compare(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (c)
        return c;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static bool is_tag(int32_t id, const int32_t *tags, size_t n_tags)
{
    for (size_t i = 0; i < n_tags; i++)
        if (tags[i] == id)
            return true;
    return false;
}

static size_t list_tokens(struct bpe *bpe, size_t n_vocab,
                          const unsigned char *blocked, const int32_t *tags,
                          size_t n_tags, struct entry *out)
{
    size_t m = 0, n;
    for (size_t i = 0; i < n_vocab; i++) {
        int32_t id = (int32_t)i;
        if ((blocked && blocked[i]) || !bpe_has(bpe, id) ||
            (bpe_is_added(bpe, id) && !is_tag(id, tags, n_tags)))
            continue;
        const char *p = bpe_token(bpe, id, &n);
        if (!p || n == 0 || n > MAX_TOKEN)
            continue;
        out[m++] =
            (struct entry){.p = (const unsigned char *)p,
                           .n = (uint32_t)n,
                           .id = id,
                           .key = first_bytes((const unsigned char *)p, n)};
    }
    qsort(out, m, sizeof *out, compare);
    return m;
}

static size_t in_common(const struct entry *a, const struct entry *b)
{
    size_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->p[i] == b->p[i])
        i++;
    return i;
}

/* Close the open nodes deeper than depth: set the ends of their subtrees. */
static size_t close_nodes(struct token_trie *t, const uint32_t *open,
                          size_t n_open, size_t depth)
{
    while (n_open > depth)
        t->nodes[open[--n_open]].skip = (uint32_t)t->n_nodes;
    return n_open;
}

static int add_tokens(struct token_trie *t, const struct entry *v, size_t n,
                      struct qwick_err *e)
{
    uint32_t open[MAX_TOKEN]; /* nodes from the root to the last one */
    size_t n_open = 0, cap = 0;
    for (size_t i = 0; i < n; i++) {
        n_open =
            close_nodes(t, open, n_open, i ? in_common(&v[i - 1], &v[i]) : 0);
        if (ARRAY_RESERVE(t->nodes, cap, t->n_nodes + v[i].n, e))
            return -1;
        for (; n_open < v[i].n; n_open++) {
            open[n_open] = (uint32_t)t->n_nodes;
            t->nodes[t->n_nodes++] =
                (struct trie_node){.rank = (uint32_t)t->n_ids,
                                   .depth = (uint16_t)(n_open + 1),
                                   .byte = v[i].p[n_open]};
        }
        struct trie_node *last = &t->nodes[open[n_open - 1]];
        if (last->n_equal == UINT8_MAX)
            continue; /* the others of equal bytes are as good */
        last->n_equal++;
        t->ids[t->n_ids++] = v[i].id;
        t->listed[v[i].id / 64] |= 1ull << (v[i].id & 63);
        if (v[i].n > t->max_depth)
            t->max_depth = v[i].n;
    }
    close_nodes(t, open, n_open, 0);
    return 0;
}

int token_trie_create(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                      const unsigned char *blocked, const int32_t *tags,
                      size_t n_tags, struct qwick_err *e)
{
    size_t n_bytes = n_vocab * sizeof(struct entry);
    struct token_trie *t = calloc(1, sizeof *t);
    struct entry *v = malloc(n_bytes + 1);
    *out = NULL;
    if (t) {
        pthread_mutex_init(&t->lock, NULL);
        t->ids = malloc((n_vocab + 1) * sizeof *t->ids);
        t->listed = calloc(n_vocab / 64 + 1, sizeof *t->listed);
    }
    if (!t || !v || !t->ids || !t->listed) {
        err_oom(e, n_bytes);
        goto fail;
    }
    t->bpe = bpe;
    t->n_vocab = n_vocab;
    if (add_tokens(t, v, list_tokens(bpe, n_vocab, blocked, tags, n_tags, v),
                   e))
        goto fail;
    free(v);
    *out = t;
    return 0;
fail:
    free(v);
    token_trie_free(t);
    return -1;
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_classes; i++)
        class_trie_drop(t->classes[i]);
    pthread_mutex_destroy(&t->lock);
    free(t->nodes);
    free(t->ids);
    free(t->listed);
    free(t);
}
