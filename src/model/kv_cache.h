/* Keys and values of one sequence, in pages taken as they are needed and shared
 * between sequences that begin alike.
 *
 * A page holds KV_BLOCK positions of all layers and KV heads:
 * [layer][kv head][keys, values], each a run: [position][head_dim] of the
 * cache's dtype, and behind it, in an int8 cache, f32 scales
 * [position][kv_q8_groups(head_dim)]. */
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "kernel/kernel.h"

struct kv_page {
    size_t refs; /* sequences and caches of prefixes that have it; changed by
                    one thread at a time */
    unsigned char *data;
};

struct kv_cache {
    enum dtype dtype; /* DT_F16, DT_F32 or DT_I8 */
    size_t n_layers, n_kv_heads, head_dim;
    size_t run_bytes, page_bytes;
    struct kv_page **pages;
    size_t n_pages, cap_pages;
    size_t n; /* positions in use */
};

int kv_init(struct kv_cache *kv, enum dtype dtype, size_t n_layers,
            size_t n_kv_heads, size_t head_dim, struct qwick_err *e);
void kv_free(struct kv_cache *kv);

/* Make room for positions [0, n), those from kv->n on in pages of its own.
 * Called before a forward pass, never inside one. On failure the positions in
 * use are as they were. */
int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e);

/* Pages that it would allocate. */
size_t kv_missing_pages(const struct kv_cache *kv, size_t n);

/* Forget positions from n on. Pages are kept for reuse. */
void kv_truncate(struct kv_cache *kv, size_t n);

/* Make dst's positions the first n of src, n <= src->n, of the same shape and
 * dtype. Whole pages become shared, a page in part is copied. On failure dst
 * keeps what it had. */
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

/* Bytes of memory taken, shared pages included. */
size_t kv_bytes(const struct kv_cache *kv);
/* Bytes that one position takes. */
size_t kv_position_bytes(const struct kv_cache *kv);

#endif
