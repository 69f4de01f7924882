#include "engine/generate/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "engine/generate/class_trie.h"
#include "text/bpe/bpe.h"

/* Longer tokens are left out: shorter ones spell the same text. */
enum { MAX_TOKEN = 1024 };

/* A token while tokens are sorted. key: its first bytes, so that most
 * comparisons read nothing else. */
struct entry {
    uint64_t key;
    const unsigned char *p;
    uint16_t n;
    unsigned char chars; /* see plain_chars */
    unsigned char trie;  /* 0 to 2 */
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

/* Return the number of characters of a plain token, or 0. */
static unsigned char plain_chars(const unsigned char *p, size_t n)
{
    unsigned char chars = 0;
    for (size_t i = 0, len, bad; i < n; i += len, chars++) {
        uint32_t cp;
        len = utf8_decode((const char *)p + i, n - i, &cp, &bad);
        if (len == 0 || cp < ' ' || cp == '"' || cp == '\\' || cp == 0x7F)
            return 0;
    }
    return chars;
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
        const unsigned char *bytes = (const unsigned char *)p;
        out[m] = (struct entry){.p = bytes,
                                .n = (uint16_t)n,
                                .id = id,
                                .key = first_bytes(bytes, n)};
        if (n <= SHORT_TOKEN)
            out[m].chars = plain_chars(bytes, n);
        out[m].trie = n > SHORT_TOKEN ? 2 : !out[m].chars;
        m++;
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
    while (n_open > depth) {
        struct trie_node *node = &t->nodes[open[--n_open]];
        node->skip = (uint32_t)t->n_nodes;
        if (n_open && t->nodes[open[n_open - 1]].height <= node->height)
            t->nodes[open[n_open - 1]].height = node->height + 1;
    }
    return n_open;
}

/* Add the tokens of trie k. */
static int add_tokens(struct token_trie *t, const struct entry *v, size_t n,
                      unsigned k, uint64_t *listed, struct qwick_err *e)
{
    uint32_t open[MAX_TOKEN]; /* nodes from the root to the last one */
    const struct entry *before = NULL;
    size_t n_open = 0, cap = 0;
    for (size_t i = 0; i < n; before = &v[i++]) {
        while (i < n && v[i].trie != k)
            i++;
        if (i == n)
            break;
        n_open =
            close_nodes(t, open, n_open, before ? in_common(before, &v[i]) : 0);
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
        listed[v[i].id / 64] |= 1ull << (v[i].id & 63);
        if (v[i].n > t->max_depth)
            t->max_depth = v[i].n;
    }
    close_nodes(t, open, n_open, 0);
    return 0;
}

static int list_plain(struct token_trie *t, const struct entry *v, size_t n,
                      struct qwick_err *e)
{
    size_t n_words = t->n_vocab / 64 + 1;
    t->plain = calloc((SHORT_TOKEN + 1) * n_words, sizeof *t->plain);
    if (!t->plain)
        return err_oom(e, n_words * sizeof *t->plain);
    for (size_t i = 0; i < n; i++)
        if (v[i].trie == 0)
            t->plain[v[i].chars * n_words + (size_t)v[i].id / 64] |=
                1ull << (v[i].id & 63);
    for (size_t k = n_words; k < (SHORT_TOKEN + 1) * n_words; k++)
        t->plain[k] |= t->plain[k - n_words];
    return 0;
}

/* Make trie k and those after it. */
static int make_tries(struct token_trie **out, const struct token_trie *like,
                      const struct entry *v, size_t n, unsigned k,
                      uint64_t *listed, struct qwick_err *e)
{
    size_t n_ids = 0;
    struct token_trie *t = malloc(sizeof *t);
    *out = t;
    if (!t)
        return err_oom(e, sizeof *t);
    *t = *like;
    for (size_t i = 0; i < n; i++)
        n_ids += v[i].trie == k;
    t->ids = malloc((n_ids + 1) * sizeof *t->ids);
    if (!t->ids)
        return err_oom(e, n_ids * sizeof *t->ids);
    if (add_tokens(t, v, n, k, listed, e) ||
        class_trie_create(&t->classes, t, e) ||
        (k == 0 && list_plain(t, v, n, e)))
        return -1;
    return k < 2 ? make_tries(&t->next, like, v, n, k + 1, listed, e) : 0;
}

int token_trie_create(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                      const unsigned char *blocked, const int32_t *tags,
                      size_t n_tags, struct qwick_err *e)
{
    size_t n_bytes = n_vocab * sizeof(struct entry);
    const struct token_trie like = {.bpe = bpe, .n_vocab = n_vocab};
    struct entry *v = malloc(n_bytes + 1);
    uint64_t *listed = calloc(n_vocab / 64 + 1, sizeof *listed);
    int rc = -1;
    *out = NULL;
    if (!v || !listed) {
        err_oom(e, n_bytes);
    } else {
        size_t n = list_tokens(bpe, n_vocab, blocked, tags, n_tags, v);
        rc = make_tries(out, &like, v, n, 0, listed, e);
    }
    free(v);
    if (rc) {
        token_trie_free(*out);
        *out = NULL;
        free(listed);
    } else {
        (*out)->listed = listed;
    }
    return rc;
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    token_trie_free(t->next);
    class_trie_free(t->classes);
    free(t->plain);
    free(t->nodes);
    free(t->ids);
    free(t->listed);
    free(t);
}
