#include "engine/cache/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct node {
    struct node *parent;
    struct node **children; /* [n_children] of cap, sorted by tokens */
    size_t n_children, cap;
    struct node *newer, *older; /* list in order of last use */
    struct kv_page *page;
    size_t bytes; /* of the page, as counted */
    uint64_t walk; /* the last prefix_each_path that has counted it */
    bool written;  /* by prefix_each_path, with all pages before it */
    size_t n; /* tokens; only the end of a sequence has less than a page: then
                 the node has no children, and no sibling begins with its
                 tokens */
    int32_t tokens[KV_BLOCK];
};

struct prefix {
    struct kv_cache shape; /* empty; gives the size of pages */
    struct node *roots; /* [n_roots] */
    size_t n_roots;
    struct node *newest, *oldest;
    size_t bytes, max_bytes;
    uint64_t n_walks;
};

int prefix_create(struct prefix **out, const struct kv_cache *shape,
                  size_t max_bytes, size_t n_roots, struct qwick_err *e)
{
    struct prefix *p = *out = calloc(1, sizeof *p);
    if (!p)
        return err_oom(e, sizeof *p);
    p->roots = calloc(n_roots, sizeof *p->roots);
    if (!p->roots) {
        free(p);
        *out = NULL;
        return err_oom(e, n_roots * sizeof *p->roots);
    }
    p->n_roots = n_roots;
    p->max_bytes = max_bytes;
    p->shape = kv_like(shape);
    return 0;
}

/* ---- order of use ------------------------------------------------------- */

static void unlink_node(struct prefix *p, struct node *n)
{
    *(n->newer ? &n->newer->older : &p->newest) = n->older;
    *(n->older ? &n->older->newer : &p->oldest) = n->newer;
    n->newer = n->older = NULL;
}

static void link_newest(struct prefix *p, struct node *n)
{
    n->older = p->newest;
    n->newer = NULL;
    *(p->newest ? &p->newest->newer : &p->oldest) = n;
    p->newest = n;
}

/* Record a use of a node and its ancestors. The root's child becomes the
 * newest. So a node is always newer than its descendants, and the oldest node
 * is a leaf. */
static void touch(struct prefix *p, struct node *n)
{
    for (; n->parent; n = n->parent) {
        unlink_node(p, n);
        link_newest(p, n);
    }
}

/* ---- children ----------------------------------------------------------- */

static size_t common(const struct node *c, const int32_t *tokens, size_t n)
{
    size_t i = 0;
    while (i < n && i < c->n && c->tokens[i] == tokens[i])
        i++;
    return i;
}

/* The index of the first child whose tokens do not sort before tokens[0..n). */
static size_t place(const struct node *parent, const int32_t *tokens, size_t n)
{
    size_t low = 0, high = parent->n_children;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct node *c = parent->children[mid];
        size_t m = common(c, tokens, n);
        if (m < n && (m == c->n || c->tokens[m] < tokens[m]))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The child that shares the longest beginning with tokens[0..n), n <= KV_BLOCK;
 * NULL if no child has the first token. Children are sorted, so it is a
 * neighbour of the place where the tokens would be inserted. */
static struct node *best_child(const struct node *parent, const int32_t *tokens,
                               size_t n, size_t *length)
{
    size_t at = place(parent, tokens, n);
    struct node *best = NULL;
    *length = 0;
    for (size_t i = at ? at - 1 : 0; i <= at && i < parent->n_children; i++) {
        size_t m = common(parent->children[i], tokens, n);
        if (m > *length) {
            best = parent->children[i];
            *length = m;
        }
    }
    return best;
}

static size_t cost_of(const struct prefix *p, const struct kv_page *page)
{
    return p->shape.page_bytes +
           (page->state ? state_snapshot_bytes(&p->shape.state) : 0);
}

/* Count the bytes of a node's page, which may have got a snapshot since. */
static void count(struct prefix *p, struct node *c)
{
    size_t bytes = cost_of(p, c->page);
    p->bytes = p->bytes - c->bytes + bytes;
    c->bytes = bytes;
}

/* Extend a node's tokens to tokens[0..n), which begin with its present
 * tokens. */
static void fill(struct prefix *p, struct node *c, const int32_t *tokens,
                 size_t n, struct kv_page *page)
{
    page->refs++;
    if (c->page)
        kv_page_drop(&p->shape, c->page);
    c->page = page;
    c->written = false;
    count(p, c);
    memcpy(c->tokens, tokens, n * sizeof *tokens);
    c->n = n;
}

static struct node *add_child(struct prefix *p, struct node *parent,
                              const int32_t *tokens, size_t n_tokens,
                              struct kv_page *page)
{
    if (parent->n_children == parent->cap) {
        size_t cap = parent->cap ? 2 * parent->cap : 1;
        struct node **v = realloc(parent->children, cap * sizeof(*v));
        if (!v)
            return NULL;
        parent->children = v;
        parent->cap = cap;
    }
    struct node *n = malloc(sizeof *n);
    if (!n)
        return NULL;
    *n = (struct node){.parent = parent};
    fill(p, n, tokens, n_tokens, page);
    size_t at = place(parent, tokens, n_tokens);
    struct node **to = parent->children + at;
    memmove(to + 1, to, (parent->n_children++ - at) * sizeof(*to));
    *to = n;
    link_newest(p, n);
    return n;
}

static void drop_leaf(struct prefix *p, struct node *n)
{
    struct node *parent = n->parent;
    assert(!n->n_children);
    size_t at = place(parent, n->tokens, n->n);
    struct node **from = parent->children + at;
    memmove(from, from + 1, (--parent->n_children - at) * sizeof(*from));
    unlink_node(p, n);
    p->bytes -= n->bytes;
    kv_page_drop(&p->shape, n->page);
    free(n->children);
    free(n);
}

static bool recurrent(const struct prefix *p)
{
    return p->shape.state.n_layers != 0;
}

/* Whether a sequence can go on after all of a node's tokens. */
static bool is_end(const struct prefix *p, const struct node *n)
{
    return !recurrent(p) || (n->n == KV_BLOCK && n->page->state);
}

/* Also drops the nodes before it from which no sequence could go on. */
static void drop_oldest(struct prefix *p)
{
    struct node *n = p->oldest;
    do {
        struct node *parent = n->parent;
        drop_leaf(p, n);
        n = parent;
    } while (n->parent && !n->n_children && !is_end(p, n));
}

void prefix_free(struct prefix *p)
{
    if (!p)
        return;
    while (p->oldest)
        drop_oldest(p);
    kv_free(&p->shape);
    for (size_t i = 0; i < p->n_roots; i++)
        free(p->roots[i].children);
    free(p->roots);
    free(p);
}

size_t prefix_budget(const struct prefix *p)
{
    return p->max_bytes;
}

size_t prefix_bytes(const struct prefix *p)
{
    return p->bytes;
}

void prefix_shrink(struct prefix *p, size_t bytes)
{
    while (prefix_bytes(p) > bytes)
        drop_oldest(p);
}

/* ---- finding and keeping ------------------------------------------------ */

size_t prefix_match(struct prefix *p, size_t root, const int32_t *tokens,
                    size_t n, struct kv_page **pages, size_t *n_pages)
{
    struct node *at = &p->roots[root], *last = at;
    size_t done = 0, m = KV_BLOCK, n_found = 0, n_used = 0, used = 0;
    while (done < n && m == KV_BLOCK) {
        size_t left = n - done < KV_BLOCK ? n - done : KV_BLOCK;
        struct node *c = best_child(at, tokens + done, left, &m);
        if (!c)
            break;
        if (pages)
            pages[n_found] = c->page;
        n_found++;
        done += m;
        at = c;
        if (!recurrent(p) || (m == KV_BLOCK && is_end(p, c))) {
            n_used = n_found;
            used = done;
            last = c;
        }
    }
    for (size_t i = 0; pages && i < n_used; i++)
        pages[i]->refs++;
    if (pages) {
        *n_pages = n_used;
        touch(p, last);
    }
    return used;
}

size_t prefix_common(const struct prefix *p, size_t root,
                     const int32_t *tokens, size_t n)
{
    const struct node *at = &p->roots[root];
    size_t done = 0, m = KV_BLOCK;
    while (done < n && m == KV_BLOCK) {
        size_t left = n - done < KV_BLOCK ? n - done : KV_BLOCK;
        at = best_child(at, tokens + done, left, &m);
        done += m;
    }
    return done;
}

/* Return how many of the first n positions of kv to insert: no more pages than
 * fit the budget, and with recurrent layers none after the last snapshot. If no
 * page fits, sets *lacks to the bytes of the first ones, else to 0. */
static size_t worth_inserting(const struct prefix *p, const struct kv_cache *kv,
                              size_t n, size_t *lacks)
{
    size_t bytes = 0, end = 0;
    *lacks = 0;
    for (size_t i = 0; i * KV_BLOCK < n; i++) {
        const struct kv_page *page = kv->pages[i];
        size_t to = n - i * KV_BLOCK < KV_BLOCK ? n : (i + 1) * KV_BLOCK;
        if (size_add(bytes, cost_of(p, page), &bytes) ||
            (bytes > p->max_bytes && end))
            break;
        if (!recurrent(p) || (to % KV_BLOCK == 0 && page->state))
            end = to;
        if (end && bytes > p->max_bytes) {
            *lacks = bytes;
            return 0;
        }
    }
    return end;
}

size_t prefix_insert(struct prefix *p, size_t root, const int32_t *tokens,
                     size_t n, const struct kv_cache *kv)
{
    struct node *at = &p->roots[root];
    size_t m, lacks;
    n = worth_inserting(p, kv, n, &lacks);
    for (size_t i = 0; i * KV_BLOCK < n; i++) {
        const int32_t *t = tokens + i * KV_BLOCK;
        size_t left = n - i * KV_BLOCK < KV_BLOCK ? n - i * KV_BLOCK : KV_BLOCK;
        struct kv_page *page = kv->pages[i];
        struct node *c = best_child(at, t, left, &m);
        if ((!c || m < left) && page->released)
            break;
        if (c && m < left && m == c->n)
            fill(p, c, t, left, page);
        else if (!c || m < left)
            c = add_child(p, at, t, left, page);
        else if (page->state && !c->page->state)
            fill(p, c, t, left, page); /* the same keys, and a snapshot */
        if (!c)
            break;
        count(p, c);
        at = c;
    }
    touch(p, at);
    prefix_shrink(p, p->max_bytes);
    return lacks;
}

/* ---- walks over all ----------------------------------------------------- */

/* The pages of a path. */
struct path {
    int32_t *tokens; /* [n] */
    struct kv_cache kv;
    size_t n;
};

static int path_fill(struct path *out, struct prefix *p, const struct node *end,
                     struct qwick_err *e)
{
    size_t n_pages = 0;
    for (const struct node *c = end; c->parent; c = c->parent)
        n_pages++;
    *out = (struct path){.n = n_pages * KV_BLOCK, .kv = p->shape};
    out->tokens = malloc(out->n * sizeof *out->tokens);
    out->kv.pages = malloc(n_pages * sizeof(*out->kv.pages));
    if (!out->tokens || !out->kv.pages)
        return err_oom(e, out->n * sizeof *out->tokens);
    out->kv.n = out->n;
    out->kv.n_pages = out->kv.cap_pages = n_pages;
    for (const struct node *c = end; n_pages-- > 0; c = c->parent) {
        memcpy(out->tokens + n_pages * KV_BLOCK, c->tokens, sizeof c->tokens);
        out->kv.pages[n_pages] = c->page;
    }
    return 0;
}

/* Add the bytes of the pages of a path that this walk has not counted. */
static void path_count(struct prefix *p, struct node *end, size_t *bytes)
{
    for (struct node *c = end; c->parent; c = c->parent) {
        *bytes += c->walk == p->n_walks ? 0 : c->bytes;
        c->walk = p->n_walks;
    }
}

/* The index of the root above a node. */
static size_t root_of(const struct prefix *p, const struct node *n)
{
    while (n->parent)
        n = n->parent;
    return (size_t)(n - p->roots);
}

int prefix_each_path(struct prefix *p, size_t max_bytes, prefix_path_fn fn,
                     void *ctx, struct qwick_err *e)
{
    size_t bytes = 0;
    int rc = 0;
    p->n_walks++;
    for (struct node *leaf = p->newest; leaf && !rc; leaf = leaf->older) {
        struct node *end = leaf->n < KV_BLOCK ? leaf->parent : leaf;
        if (leaf->n_children || !end->parent)
            continue;
        path_count(p, end, &bytes);
        if (bytes > max_bytes)
            break;
        if (end->written)
            continue;
        struct path path;
        rc = path_fill(&path, p, end, e);
        if (!rc)
            rc = fn(ctx, root_of(p, end), path.tokens, path.n, &path.kv, e);
        free(path.tokens);
        free(path.kv.pages);
        for (struct node *c = end; !rc && c->parent; c = c->parent)
            c->written = true;
    }
    return rc < 0 ? -1 : 0;
}
