/* Keys and values of one sequence, in pages taken as they are needed.
 *
 * A page holds KV_BLOCK positions of all layers and KV heads:
 * [layer][kv head][keys, values][position][head_dim] of the cache's dtype. */
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "kernel/kernel.h"

struct kv_cache {
    enum dtype dtype; /* DT_F16 or DT_F32 */
    size_t n_layers, n_kv_heads, head_dim;
    size_t page_bytes;
    unsigned char **pages;
    size_t n_pages, cap_pages;
    size_t n; /* positions in use */
};

int kv_init(struct kv_cache *kv, enum dtype dtype, size_t n_layers,
            size_t n_kv_heads, size_t head_dim, struct qwick_err *e);
void kv_free(struct kv_cache *kv);

/* Make room for positions [0, n). Called before a forward pass, never inside
 * one. On failure the cache is as it was. */
int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e);

/* Forget positions from n on. Pages are kept for reuse. */
void kv_truncate(struct kv_cache *kv, size_t n);

/* Keys (values) of a block of KV_BLOCK positions, [KV_BLOCK, head_dim]. */
static inline unsigned char *kv_keys(const struct kv_cache *kv, size_t block,
                                     size_t layer, size_t head)
{
    size_t run = KV_BLOCK * kv->head_dim * dtype_bytes(kv->dtype);
    return kv->pages[block] + (layer * kv->n_kv_heads + head) * 2 * run;
}

static inline unsigned char *kv_values(const struct kv_cache *kv, size_t block,
                                       size_t layer, size_t head)
{
    return kv_keys(kv, block, layer, head) +
           KV_BLOCK * kv->head_dim * dtype_bytes(kv->dtype);
}

/* Bytes of memory taken. */
size_t kv_bytes(const struct kv_cache *kv);
/* Bytes that one position takes. */
size_t kv_position_bytes(const struct kv_cache *kv);

#endif
