#include "engine/generate/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/generate/class_trie.h"
#include "text/bpe/bpe.h"

/* Longer tokens are left out: shorter ones spell the same text. */
enum { MAX_TOKEN = 1024 };

enum { N_TRIES = 3 };

/* What the tries share. Tokens are first listed by their first bytes only: at
 * once those that begin with printable ASCII, and the rest when one of it is
 * needed. A token of n bytes has at most n nodes, so each byte has a range of
 * nodes from the beginning; memory that is never written is never used. */
struct token_list {
    struct token_trie tries[N_TRIES];
    struct byte_classes classes;
    pthread_mutex_t lock;
    uint32_t ids[256], n_ids[256]; /* the tokens of a byte in the ids */
    uint32_t nodes[256];           /* where their nodes begin */
    bool parted[256];         /* the tokens of a byte are parted into tries */
    struct bpe_start *starts; /* [n_vocab] without bytes: not listed */
    uint32_t rest, n_rest;    /* the rest in the ids, and */
    uint32_t rest_nodes;      /* where its nodes begin */
    bool rest_listed;
    unsigned char *chars; /* [n_vocab] see plain_chars; of parted tokens */
};

/* A token while tokens are sorted. key: its first bytes, so that most
 * comparisons read nothing else. */
struct entry {
    uint64_t key;
    const unsigned char *p;
    size_t n;
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
        if (len == 0 || cp < ' ' || cp == '"' || cp == '\\' || cp == 0x7F ||
            cp == 0x2028 || cp == 0x2029)
            return 0;
    }
    return chars;
}

/* ---- tokens by their first bytes ---- */

/* Give each byte room for its n_ids tokens in the ids, from `at` on, and for
 * n_nodes nodes and the ends of its tries, from *node on. Bytes without nodes
 * stay as they are. */
static void place_bytes(struct token_list *l, const uint32_t *n_nodes,
                        uint32_t at, uint32_t *node)
{
    for (size_t i = 0; i < 256; i++) {
        if (!n_nodes[i])
            continue;
        l->ids[i] = at;
        l->nodes[i] = *node;
        at += l->n_ids[i];
        *node += n_nodes[i] + N_TRIES;
    }
}

/* Whether the tokens of a byte are listed at once (see bpe_start). */
static bool is_first(unsigned char byte)
{
    return byte > ' ' && byte < 0x7F;
}

/* List the tokens that begin with other bytes than printable ASCII. */
static int list_rest(struct token_list *l, struct qwick_err *e)
{
    struct token_trie *t = l->tries;
    uint32_t at[256], n_nodes[256] = {0}, node = l->rest_nodes;
    size_t n = l->n_rest;
    if (l->rest_listed)
        return 0;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    unsigned char *bytes = malloc(n + 1);
    if (!ids || !bytes) {
        free(ids);
        free(bytes);
        return err_oom(e, n * sizeof *ids);
    }
    memcpy(ids, t->ids + l->rest, n * sizeof *ids);
    bpe_first_bytes(t->bpe, ids, n, bytes);
    for (size_t i = 0; i < n; i++) {
        l->n_ids[bytes[i]]++;
        n_nodes[bytes[i]] += l->starts[ids[i]].n;
    }
    place_bytes(l, n_nodes, l->rest, &node);
    memcpy(at, l->ids, sizeof at);
    for (size_t i = 0; i < n; i++)
        t->ids[at[bytes[i]]++] = ids[i];
    free(ids);
    free(bytes);
    l->rest_listed = true;
    return 0;
}

/* ---- parts ---- */

/* Part the tokens of a byte into the tries, in order. */
static int part_tokens(struct token_list *l, unsigned char byte,
                       struct qwick_err *e)
{
    struct token_trie *t = l->tries;
    if (l->parted[byte])
        return 0;
    if (!is_first(byte) && list_rest(l, e))
        return -1;
    int32_t *ids = t->ids + l->ids[byte];
    size_t n = l->n_ids[byte], len;
    l->parted[byte] = n == 0;
    for (size_t k = 0; n == 0 && k < N_TRIES; k++)
        __atomic_store_n(&t[k].parts[byte].made, true, __ATOMIC_RELEASE);
    if (n == 0)
        return 0;
    int32_t *copy = malloc((n + 1) * sizeof *copy);
    unsigned char *trie = malloc(n + 1);
    if (!copy || !trie) {
        free(copy);
        free(trie);
        return err_oom(e, n * sizeof *copy);
    }
    memcpy(copy, ids, n * sizeof *copy);
    uint32_t n_nodes[N_TRIES] = {1, 1, 1}; /* with one that ends the ranks */
    for (size_t i = 0; i < n; i++) {
        const char *p = bpe_token(t->bpe, copy[i], &len);
        unsigned char chars = 0;
        if (len <= SHORT_TOKEN)
            chars = plain_chars((const unsigned char *)p, len);
        l->chars[copy[i]] = chars;
        trie[i] = len > SHORT_TOKEN ? 2 : !chars;
        n_nodes[trie[i]] += (uint32_t)len;
    }
    uint32_t at = l->ids[byte], node = l->nodes[byte];
    for (unsigned k = 0; k < N_TRIES; k++) {
        struct trie_part *part = &t[k].parts[byte];
        part->from = part->to = node;
        part->ids = at;
        for (size_t i = 0; i < n; i++)
            if (trie[i] == k)
                t->ids[at++] = copy[i];
        part->n_ids = at - part->ids;
        node += n_nodes[k];
    }
    free(copy);
    free(trie);
    l->parted[byte] = true;
    return 0;
}

static size_t in_common(const struct entry *a, const struct entry *b)
{
    size_t n = a->n < b->n ? a->n : b->n, i = 0;
    while (i < n && a->p[i] == b->p[i])
        i++;
    return i;
}

/* Close the open nodes deeper than depth: set the ends of their subtrees,
 * before node end. */
static size_t close_nodes(struct trie_node *nodes, uint32_t end,
                          const uint32_t *open, size_t n_open, size_t depth)
{
    while (n_open > depth) {
        struct trie_node *node = &nodes[open[--n_open]], *above;
        node->skip = end;
        above = n_open ? &nodes[open[n_open - 1]] : node;
        if (n_open && above->height <= node->height)
            above->height = node->height + 1;
    }
    return n_open;
}

/* Add the nodes of the sorted tokens v[0..n) of a part. */
static void add_nodes(struct token_trie *t, struct trie_part *part,
                      const struct entry *v, size_t n)
{
    uint32_t open[MAX_TOKEN]; /* nodes from the root to the last one */
    size_t n_open = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t rank = part->ids + (uint32_t)i;
        n_open = close_nodes(t->nodes, part->to, open, n_open,
                             i ? in_common(&v[i - 1], &v[i]) : 0);
        for (; n_open < v[i].n; n_open++) {
            open[n_open] = part->to;
            t->nodes[part->to++] =
                (struct trie_node){.rank = rank,
                                   .depth = (uint16_t)(n_open + 1),
                                   .byte = v[i].p[n_open]};
        }
        t->nodes[open[n_open - 1]].n_equal++;
        t->ids[rank] = v[i].id;
    }
    close_nodes(t->nodes, part->to, open, n_open, 0);
    t->nodes[part->to] = (struct trie_node){.rank = part->ids + part->n_ids};
}

/* Fewer tokens are sorted by qsort only. */
enum { MANY_TOKENS = 128 };

/* Sort tokens of one first byte: by the three bytes after it, and then those
 * that have these in common. Returns v or other, memory for as many. */
static struct entry *sort_entries(struct entry *v, struct entry *other,
                                  size_t n)
{
    unsigned same = n < MANY_TOKENS ? 56 : 32; /* bits that may differ */
    for (unsigned shift = same; shift < 56; shift += 8) {
        uint32_t at[257] = {0};
        struct entry *from = v;
        for (size_t i = 0; i < n; i++)
            at[(from[i].key >> shift & 0xff) + 1]++;
        for (size_t k = 0; k < 256; k++)
            at[k + 1] += at[k];
        for (size_t i = 0; i < n; i++)
            other[at[from[i].key >> shift & 0xff]++] = from[i];
        v = other;
        other = from;
    }
    for (size_t i = 0, to; i < n; i = to) {
        to = i + 1;
        while (to < n && v[to].key >> same == v[i].key >> same)
            to++;
        if (to - i > 1)
            qsort(v + i, to - i, sizeof *v, compare);
    }
    return v;
}

static int make_part(struct token_trie *t, struct trie_part *part,
                     struct qwick_err *e)
{
    size_t n = part->n_ids, n_bytes = n * sizeof(struct entry);
    struct entry *v = malloc(2 * n_bytes + 1);
    if (!v)
        return err_oom(e, 2 * n_bytes);
    for (size_t i = 0; i < n; i++) {
        v[i].id = t->ids[part->ids + i];
        v[i].p = (const unsigned char *)bpe_token(t->bpe, v[i].id, &v[i].n);
        v[i].key = first_bytes(v[i].p, v[i].n);
    }
    add_nodes(t, part, sort_entries(v, v + n, n), n);
    free(v);
    __atomic_store_n(&part->made, true, __ATOMIC_RELEASE);
    return 0;
}

int token_trie_make(struct token_trie *t, unsigned char byte,
                    struct qwick_err *e)
{
    struct trie_part *part = &t->parts[byte];
    pthread_mutex_lock(t->lock);
    int rc =
        part_tokens(t->list, byte, e) || (!part->made && make_part(t, part, e));
    pthread_mutex_unlock(t->lock);
    return rc ? -1 : 0;
}

/* ---- plain tokens ---- */

static int list_plain(struct token_trie *t, struct qwick_err *e)
{
    size_t n_words = t->n_vocab / 64 + 1;
    for (unsigned byte = 0; byte < 256; byte++)
        if (part_tokens(t->list, (unsigned char)byte, e))
            return -1;
    uint64_t *plain = calloc((SHORT_TOKEN + 1) * n_words, sizeof *plain);
    if (!plain)
        return err_oom(e, n_words * sizeof *plain);
    for (size_t id = 0; id < t->n_vocab; id++)
        if (t->list->chars[id])
            plain[t->list->chars[id] * n_words + id / 64] |= 1ull << (id & 63);
    for (size_t k = n_words; k < (SHORT_TOKEN + 1) * n_words; k++)
        plain[k] |= plain[k - n_words];
    __atomic_store_n(&t->plain, plain, __ATOMIC_RELEASE);
    return 0;
}

const uint64_t *token_trie_plain(struct token_trie *t, size_t chars,
                                 struct qwick_err *e)
{
    const uint64_t *plain = __atomic_load_n(&t->plain, __ATOMIC_ACQUIRE);
    if (!plain) {
        pthread_mutex_lock(t->lock);
        int rc = t->plain ? 0 : list_plain(t, e);
        plain = rc ? NULL : t->plain;
        pthread_mutex_unlock(t->lock);
    }
    return plain ? plain + chars * (t->n_vocab / 64 + 1) : NULL;
}

/* ---- the list ---- */

static bool is_tag(int32_t id, const int32_t *tags, size_t n_tags)
{
    for (size_t i = 0; i < n_tags; i++)
        if (tags[i] == id)
            return true;
    return false;
}

/* The bytes of a token that is listed, or at least as many; exactly as many of
 * a long token. 0: it is not listed. */
static size_t listed_size(const struct token_trie *t, size_t id,
                          struct bpe_start start, const int32_t *tags,
                          size_t n_tags)
{
    size_t n = start.n;
    if (n > SHORT_TOKEN)
        bpe_token(t->bpe, (int32_t)id, &n);
    return n > MAX_TOKEN || (start.added && !is_tag((int32_t)id, tags, n_tags))
               ? 0
               : n;
}

/* Choose the tokens that are listed, and count them and their nodes by their
 * first bytes. */
static void choose_tokens(struct token_list *l, const unsigned char *blocked,
                          const int32_t *tags, size_t n_tags, uint32_t *n_nodes)
{
    struct token_trie *t = l->tries;
    size_t max[2] = {0};
    for (size_t i = 0; i < t->n_vocab; i++) {
        struct bpe_start *start = &l->starts[i];
        size_t n =
            blocked && blocked[i] ? 0 : listed_size(t, i, *start, tags, n_tags);
        start->n = (uint16_t)n;
        t->listed[i / 64] |= (uint64_t)(n > 0) << (i & 63);
        l->n_ids[start->byte] += n > 0;
        n_nodes[start->byte] += (uint32_t)n;
        max[n > SHORT_TOKEN] =
            max[n > SHORT_TOKEN] < n ? n : max[n > SHORT_TOKEN];
    }
    for (size_t k = 0; k < N_TRIES; k++)
        l->tries[k].max_depth = max[k == 2];
}

/* List the tokens by their first bytes, the rest behind the others. n_nodes: as
 * choose_tokens counted them. Returns the nodes that all may need. */
static size_t list_tokens(struct token_list *l, uint32_t *n_nodes)
{
    struct token_trie *t = l->tries;
    uint32_t at[256], node = 0;
    size_t rest_nodes = n_nodes[0] + 256 * N_TRIES;
    l->n_rest = l->n_ids[0];
    l->n_ids[0] = n_nodes[0] = 0;
    place_bytes(l, n_nodes, 0, &node);
    l->rest_nodes = node;
    for (size_t i = 0; i < 256; i++)
        l->rest += l->n_ids[i];
    memcpy(at, l->ids, sizeof at);
    at[0] = l->rest;
    for (size_t i = 0; i < t->n_vocab; i++)
        if (l->starts[i].n)
            t->ids[at[l->starts[i].byte]++] = (int32_t)i;
    t->n_ids = l->rest + l->n_rest;
    return node + rest_nodes;
}

static int alloc_list(struct token_list *l, struct qwick_err *e)
{
    struct token_trie *t = l->tries;
    size_t n = t->n_vocab;
    t->ids = malloc((n + 1) * sizeof *t->ids);
    t->listed = calloc(n / 64 + 1, sizeof *t->listed);
    l->starts = malloc((n + 1) * sizeof *l->starts);
    l->chars = calloc(n + 1, 1);
    return t->ids && t->listed && l->starts && l->chars
               ? 0
               : err_oom(e, n * sizeof *l->starts);
}

/* Give the other tries what they share with the first one. */
static void share_list(struct token_list *l)
{
    for (unsigned k = N_TRIES; k-- > 0;) {
        struct token_trie *t = &l->tries[k], *first = l->tries;
        t->bpe = first->bpe;
        t->nodes = first->nodes;
        t->ids = first->ids;
        t->n_ids = first->n_ids;
        t->n_vocab = first->n_vocab;
        t->listed = first->listed;
        t->kind = k;
        t->next = k + 1 < N_TRIES ? t + 1 : NULL;
        t->classes = &l->classes;
        t->lock = &l->lock;
        t->list = l;
    }
}

int token_trie_create(struct token_trie **out, struct bpe *bpe, size_t n_vocab,
                      const unsigned char *blocked, const int32_t *tags,
                      size_t n_tags, struct qwick_err *e)
{
    struct token_list *l = calloc(1, sizeof *l);
    uint32_t n_nodes[256] = {0};
    *out = NULL;
    if (!l)
        return err_oom(e, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    byte_classes_fill(&l->classes);
    struct token_trie *t = l->tries;
    t->bpe = bpe;
    t->n_vocab = n_vocab;
    int rc = alloc_list(l, e);
    if (!rc) {
        bpe_find_starts(bpe, l->starts, n_vocab);
        choose_tokens(l, blocked, tags, n_tags, n_nodes);
        size_t n_bytes = list_tokens(l, n_nodes) * sizeof *t->nodes;
        t->nodes = malloc(n_bytes);
        rc = t->nodes ? 0 : err_oom(e, n_bytes);
    }
    share_list(l);
    if (rc)
        token_trie_free(t);
    else
        *out = t;
    return rc;
}

void token_trie_free(struct token_trie *t)
{
    if (!t)
        return;
    struct token_list *l = t->list;
    for (size_t k = 0; k < N_TRIES; k++)
        for (size_t i = 0; i < 256; i++)
            class_part_free(l->tries[k].by_class[i]);
    pthread_mutex_destroy(&l->lock);
    free(l->chars);
    free(l->starts);
    free(t->plain);
    free(t->nodes);
    free(t->ids);
    free(t->listed);
    free(l);
}
