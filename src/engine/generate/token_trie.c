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

/* Add the tokens of at most SHORT_TOKEN bytes, or the longer ones. */
static int add_tokens(struct token_trie *t, const struct entry *v, size_t n,
                      bool longer, struct qwick_err *e)
{
    uint32_t open[MAX_TOKEN]; /* nodes from the root to the last one */
    const struct entry *before = NULL;
    size_t n_open = 0, cap = 0;
    for (size_t i = 0; i < n; before = &v[i++]) {
        while (i < n && (v[i].n > SHORT_TOKEN) != longer)
            i++;
        if (i == n)
            break;
        n_open = close_nodes(t, open, n_open,
                             before ? in_common(before, &v[i]) : 0);
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

/* Make the trie of v[0..n) and then, unless it is that one, the trie of longer
 * tokens. */
static int make_trie(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                     const struct entry *v, size_t n, bool longer,
                     struct qwick_err *e)
{
    struct token_trie *t = calloc(1, sizeof *t);
    *out = t;
    if (!t)
        return err_oom(e, sizeof *t);
    t->ids = malloc((n_vocab + 1) * sizeof *t->ids);
    t->listed = calloc(n_vocab / 64 + 1, sizeof *t->listed);
    t->bpe = bpe;
    t->n_vocab = n_vocab;
    if (!t->ids || !t->listed)
        return err_oom(e, n_vocab * sizeof *t->ids);
    if (add_tokens(t, v, n, longer, e) || class_trie_create(&t->classes, t, e))
        return -1;
    return longer ? 0 : make_trie(&t->longer, bpe, n_vocab, v, n, true, e);
}

int token_trie_create(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                      const unsigned char *blocked, const int32_t *tags,
                      size_t n_tags, struct qwick_err *e)
{
    size_t n_bytes = n_vocab * sizeof(struct entry);
    struct entry *v = malloc(n_bytes + 1);
    *out = NULL;
    if (!v)
        return err_oom(e, n_bytes);
    size_t n = list_tokens(bpe, n_vocab, blocked, tags, n_tags, v);
    int rc = make_trie(out, bpe, n_vocab, v, n, false, e);
    free(v);
    if (rc) {
        token_trie_free(*out);
        *out = NULL;
    }
    return rc;
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    token_trie_free(t->longer);
    class_trie_free(t->classes);
    free(t->nodes);
    free(t->ids);
    free(t->listed);
    free(t);
}
