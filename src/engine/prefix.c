#include "engine/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *parent, *child, *sibling;
    struct node *newer, *older; /* by last use */
    struct kv_page *page;
    int32_t tokens[KV_BLOCK];
};

struct prefix {
    struct kv_cache shape; /* of no positions: sizes, and the pages' owner */
    struct node root;
    struct node *newest, *oldest;
    size_t n_nodes, max_bytes;
};

int prefix_create(struct prefix **out, const struct kv_cache *shape,
                  size_t max_bytes, struct qwick_err *e)
{
    struct prefix *p = *out = calloc(1, sizeof *p);
    if (!p)
        return err_oom(e, sizeof *p);
    p->max_bytes = max_bytes;
    return kv_init(&p->shape, shape->dtype, shape->n_layers, shape->n_kv_heads,
                   shape->head_dim, e);
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

/* A node and its ancestors were used: the root's child becomes the newest. A
 * node is thereby always newer than its descendants, and the oldest of all has
 * none. */
static void touch(struct prefix *p, struct node *n)
{
    for (; n != &p->root; n = n->parent) {
        unlink_node(p, n);
        link_newest(p, n);
    }
}

static void drop_oldest(struct prefix *p)
{
    struct node *n = p->oldest, **at = &n->parent->child;
    assert(!n->child);
    while (*at != n)
        at = &(*at)->sibling;
    *at = n->sibling;
    unlink_node(p, n);
    kv_page_drop(&p->shape, n->page);
    free(n);
    p->n_nodes--;
}

void prefix_free(struct prefix *p)
{
    if (!p)
        return;
    while (p->oldest)
        drop_oldest(p);
    free(p);
}

size_t prefix_bytes(const struct prefix *p)
{
    return p->n_nodes * p->shape.page_bytes;
}

/* ---- finding and keeping ------------------------------------------------ */

static size_t common(const int32_t *a, const int32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The child that agrees longest with tokens[0..n), n <= KV_BLOCK; NULL when
 * none has even the first token. */
static struct node *best_child(const struct node *parent, const int32_t *tokens,
                               size_t n, size_t *length)
{
    struct node *best = NULL;
    *length = 0;
    for (struct node *c = parent->child; c && *length < n; c = c->sibling) {
        size_t m = common(c->tokens, tokens, n);
        if (m > *length) {
            best = c;
            *length = m;
        }
    }
    return best;
}

size_t prefix_match(struct prefix *p, const int32_t *tokens, size_t n,
                    struct kv_page **pages, size_t *n_pages)
{
    struct node *at = &p->root;
    size_t done = 0, m = KV_BLOCK;
    *n_pages = 0;
    while (done < n && m == KV_BLOCK) {
        size_t left = n - done < KV_BLOCK ? n - done : KV_BLOCK;
        struct node *c = best_child(at, tokens + done, left, &m);
        if (!c)
            break;
        c->page->refs++;
        pages[(*n_pages)++] = c->page;
        done += m;
        at = c;
    }
    touch(p, at);
    return done;
}

static struct node *add_child(struct prefix *p, struct node *parent,
                              const int32_t *tokens, struct kv_page *page)
{
    struct node *n = malloc(sizeof *n);
    if (!n)
        return NULL;
    *n =
        (struct node){.parent = parent, .sibling = parent->child, .page = page};
    memcpy(n->tokens, tokens, sizeof n->tokens);
    parent->child = n;
    page->refs++;
    link_newest(p, n);
    p->n_nodes++;
    return n;
}

void prefix_insert(struct prefix *p, const int32_t *tokens,
                   const struct kv_cache *kv)
{
    size_t whole = kv->n / KV_BLOCK;
    size_t most = p->max_bytes / p->shape.page_bytes, m;
    struct node *at = &p->root;
    if (whole > most)
        whole = most;
    for (size_t i = 0; i < whole; i++) {
        struct node *c = best_child(at, tokens + i * KV_BLOCK, KV_BLOCK, &m);
        if (!c || m < KV_BLOCK)
            c = add_child(p, at, tokens + i * KV_BLOCK, kv->pages[i]);
        if (!c)
            break;
        at = c;
    }
    touch(p, at);
    while (p->n_nodes > most)
        drop_oldest(p);
}
