#include "model/kv_cache.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/buf.h"

int kv_init(struct kv_cache *kv, enum dtype dtype, size_t n_layers,
            size_t n_kv_heads, size_t head_dim, struct qwick_err *e)
{
    *kv = (struct kv_cache){.dtype = dtype,
                            .n_layers = n_layers,
                            .n_kv_heads = n_kv_heads,
                            .head_dim = head_dim};
    size_t n = 2 * KV_BLOCK * dtype_bytes(dtype);
    if (size_mul(n, n_layers, &n) || size_mul(n, n_kv_heads, &n) ||
        size_mul(n, head_dim, &n))
        return err_set(e, QWICK_ERR_MODEL,
                       "KV cache: %zu layers of %zu heads of %zu are too many",
                       n_layers, n_kv_heads, head_dim);
    kv->page_bytes = n;
    return 0;
}

void kv_free(struct kv_cache *kv)
{
    for (size_t i = 0; i < kv->n_pages; i++)
        munmap(kv->pages[i], kv->page_bytes);
    free(kv->pages);
    *kv = (struct kv_cache){0};
}

int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e)
{
    size_t want = n / KV_BLOCK + (n % KV_BLOCK != 0);
    if (want > kv->cap_pages) {
        size_t cap = want + want / 2 + 8;
        unsigned char **pages = realloc(kv->pages, cap * sizeof *pages);
        if (!pages)
            return err_oom(e, cap * sizeof *pages);
        kv->pages = pages;
        kv->cap_pages = cap;
    }
    while (kv->n_pages < want) {
        /* Fresh zero pages: only what tokens touch becomes resident. */
        void *p = mmap(NULL, kv->page_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return err_set(e, QWICK_ERR_MEMORY,
                           "out of memory: KV cache for %zu tokens: %zu bytes",
                           n, want * kv->page_bytes);
        kv->pages[kv->n_pages++] = p;
    }
    return 0;
}

void kv_truncate(struct kv_cache *kv, size_t n)
{
    if (n < kv->n)
        kv->n = n;
}

size_t kv_bytes(const struct kv_cache *kv)
{
    return kv->n_pages * kv->page_bytes;
}

size_t kv_position_bytes(const struct kv_cache *kv)
{
    return kv->page_bytes / KV_BLOCK;
}
