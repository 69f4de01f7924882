/* Keys and values of one sequence, in pages that are taken as tokens come and
 * shared between sequences with the same beginning.
 *
 * A page holds KV_BLOCK positions of all layers and KV heads:
 * [layer][kv head][keys, values]. Keys and values are a run each:
 * [position][head_dim] of the cache's dtype, followed in an int8 cache by f32
 * scales [position][kv_i8_groups(head_dim)].
 *
 * Layers differ in what they need of the past:
 *
 *   layer            memory                    back to n tokens (kv_truncate)
 *   attends to all   grows with the context    any n
 *   sliding window   pages that no later       n within KV_SLACK of the longest
 *                    token sees are released   context, or all the way to 0
 *
 * Releasing gives the window layers' part of a page back to the system and
 * keeps the page: other layers need theirs. A page that several sequences or a
 * cache of prefixes have stays whole. So appending, sharing at the full length
 * and adopting pages work for every layer. Cutting back, sharing less than the
 * full length, and caches of prefixes ask kv_usable first. */
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"

struct kv_page {
    size_t refs; /* sequences and caches of prefixes that have it; changed by
                    one thread at a time */
    unsigned char *data;
    bool released; /* keys and values of window layers are gone */
};

/* Positions beyond the window that stay: a sequence may drop so many tokens and
 * go on, as guesses that were wrong do. */
enum { KV_SLACK = 256 };

struct kv_cache {
    enum dtype dtype; /* DT_F16, DT_F32 or DT_I8 */
    size_t n_layers, n_kv_heads, head_dim;
    size_t run_bytes, page_bytes;
    struct kv_page **pages;
    size_t n_pages, cap_pages;
    size_t n;                          /* positions in use */
    const struct layer_config *layers; /* [n_layers], borrowed; NULL: no layer
                                          has a window */
    size_t window;    /* the largest of window layers; NO_WINDOW: none */
    size_t n_visited; /* pages that kv_release has looked at */
};

/* An empty cache for a model's layers. */
int kv_init(struct kv_cache *kv, enum dtype dtype, const struct config *c,
            struct qwick_err *e);
/* An empty cache with the shape of another one. */
struct kv_cache kv_like(const struct kv_cache *kv);
void kv_free(struct kv_cache *kv);

/* Make room for positions [0, n), those from kv->n on in pages of its own.
 * Called before a forward pass, never inside one. On failure the positions in
 * use are as they were. */
int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e);

/* Pages that it would allocate. */
size_t kv_missing_pages(const struct kv_cache *kv, size_t n);

/* The most positions up to n after which a sequence can go on: n, or 0 where
 * keys that the next token sees have been released. */
size_t kv_usable(const struct kv_cache *kv, size_t n);

/* Forget positions from kv_usable(kv, n) on. Pages are kept for reuse. */
void kv_truncate(struct kv_cache *kv, size_t n);

/* Release what no token from position kv->n - slack on sees. Does nothing
 * without window layers. kv_reserve calls it with KV_SLACK. */
void kv_release(struct kv_cache *kv, size_t slack);

/* Make dst's positions the first kv_usable(src, n) of src, n <= src->n, of the
 * same shape and dtype. Whole pages become shared, a page in part is copied. On
 * failure dst keeps what it had. */
int kv_share(struct kv_cache *dst, const struct kv_cache *src, size_t n,
             struct qwick_err *e);

/* Keep the first n_kept pages, all of whose positions are in use, and have
 * pages[0..n_pages) behind them, n positions in use in all: the last page may
 * be used in part. The caller's references to pages become the cache's. On
 * failure nothing has changed. */
int kv_adopt(struct kv_cache *kv, size_t n_kept, struct kv_page *const *pages,
             size_t n_pages, size_t n, struct qwick_err *e);

/* A page of kv's size that is all zeros, with one reference; NULL: no memory.
 */
struct kv_page *kv_page_new(const struct kv_cache *kv);
/* The same with the first `used` positions of `from`. */
struct kv_page *kv_page_copy(const struct kv_cache *kv,
                             const struct kv_page *from, size_t used);
/* Give a reference back. */
void kv_page_drop(const struct kv_cache *kv, struct kv_page *page);

/* Keys (values) of a block of KV_BLOCK positions: a run. */
static inline unsigned char *kv_keys(const struct kv_cache *kv, size_t block,
                                     size_t layer, size_t head)
{
    return kv->pages[block]->data +
           (layer * kv->n_kv_heads + head) * 2 * kv->run_bytes;
}

static inline unsigned char *kv_values(const struct kv_cache *kv, size_t block,
                                       size_t layer, size_t head)
{
    return kv_keys(kv, block, layer, head) + kv->run_bytes;
}

/* Round x f32 [head_dim] into position `slot` of a run. */
void kv_store(const struct kv_cache *kv, const struct kernels *k,
              unsigned char *run, size_t slot, const float *x);

/* Bytes of memory taken, shared pages included, released ones not. */
size_t kv_bytes(const struct kv_cache *kv);
/* Bytes that one position takes. */
size_t kv_position_bytes(const struct kv_cache *kv);

#endif
