#include "model/kv_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buf.h"

int kv_init(struct kv_cache *kv, enum dtype dtype, size_t n_layers,
            size_t n_kv_heads, size_t head_dim, struct qwick_err *e)
{
    *kv = (struct kv_cache){.dtype = dtype,
                            .n_layers = n_layers,
                            .n_kv_heads = n_kv_heads,
                            .head_dim = head_dim};
    size_t position, run, n;
    bool bad = size_mul(head_dim, dtype_bytes(dtype), &position);
    if (dtype == DT_I8)
        bad |= size_add(position, kv_q8_groups(head_dim) * sizeof(float),
                        &position);
    if (bad || size_mul(position, KV_BLOCK, &run) || size_mul(run, 2, &n) ||
        size_mul(n, n_layers, &n) || size_mul(n, n_kv_heads, &n))
        return err_set(e, QWICK_ERR_MODEL,
                       "KV cache: %zu layers of %zu heads of %zu are too many",
                       n_layers, n_kv_heads, head_dim);
    kv->run_bytes = run;
    kv->page_bytes = n;
    return 0;
}

struct kv_page *kv_page_new(const struct kv_cache *kv)
{
    struct kv_page *page = malloc(sizeof *page);
    if (!page)
        return NULL;
    page->refs = 1;
    /* Fresh zero pages: only what tokens touch becomes resident. */
    page->data = mmap(NULL, kv->page_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page->data == MAP_FAILED) {
        free(page);
        return NULL;
    }
    return page;
}

void kv_page_drop(const struct kv_cache *kv, struct kv_page *page)
{
    if (--page->refs)
        return;
    munmap(page->data, kv->page_bytes);
    free(page);
}

void kv_free(struct kv_cache *kv)
{
    for (size_t i = 0; i < kv->n_pages; i++)
        kv_page_drop(kv, kv->pages[i]);
    free(kv->pages);
    *kv = (struct kv_cache){0};
}

static int no_memory(const struct kv_cache *kv, size_t n, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_MEMORY,
                   "out of memory: %zu bytes for the KV cache of %zu tokens",
                   (n / KV_BLOCK + 1) * kv->page_bytes, n);
}

static size_t pages_of(size_t n)
{
    return n / KV_BLOCK + (n % KV_BLOCK != 0);
}

size_t kv_missing_pages(const struct kv_cache *kv, size_t n)
{
    size_t want = pages_of(n), missing = 0;
    for (size_t i = kv->n / KV_BLOCK; i < want && i < kv->n_pages; i++)
        missing += kv->pages[i]->refs > 1;
    return missing + (want > kv->n_pages ? want - kv->n_pages : 0);
}

static int reserve_table(struct kv_cache *kv, size_t want, struct qwick_err *e)
{
    if (want <= kv->cap_pages)
        return 0;
    size_t cap = want + want / 2 + 8;
    struct kv_page **pages = realloc(kv->pages, cap * sizeof(*pages));
    if (!pages)
        return err_oom(e, cap * sizeof(*pages));
    kv->pages = pages;
    kv->cap_pages = cap;
    return 0;
}

struct kv_page *kv_page_copy(const struct kv_cache *kv,
                             const struct kv_page *from, size_t used)
{
    struct kv_page *page = kv_page_new(kv);
    if (!page || !used)
        return page;
    size_t runs = kv->page_bytes / kv->run_bytes;
    size_t row = kv->head_dim * dtype_bytes(kv->dtype);
    size_t scales = kv->run_bytes / KV_BLOCK - row;
    for (size_t i = 0; i < runs; i++) {
        size_t at = i * kv->run_bytes;
        memcpy(page->data + at, from->data + at, used * row);
        at += KV_BLOCK * row;
        memcpy(page->data + at, from->data + at, used * scales);
    }
    return page;
}

int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e)
{
    size_t want = pages_of(n);
    if (reserve_table(kv, want, e))
        return -1;
    while (kv->n_pages < want) {
        struct kv_page *page = kv_page_new(kv);
        if (!page)
            return no_memory(kv, n, e);
        kv->pages[kv->n_pages++] = page;
    }
    /* What will be written must not be another sequence's. */
    for (size_t i = kv->n / KV_BLOCK; i < want; i++) {
        if (kv->pages[i]->refs == 1)
            continue;
        size_t used = kv->n > i * KV_BLOCK ? kv->n - i * KV_BLOCK : 0;
        struct kv_page *page = kv_page_copy(kv, kv->pages[i], used);
        if (!page)
            return no_memory(kv, n, e);
        kv_page_drop(kv, kv->pages[i]);
        kv->pages[i] = page;
    }
    return 0;
}

void kv_truncate(struct kv_cache *kv, size_t n)
{
    if (n < kv->n)
        kv->n = n;
}

int kv_share(struct kv_cache *dst, const struct kv_cache *src, size_t n,
             struct qwick_err *e)
{
    size_t whole = n / KV_BLOCK, used = n % KV_BLOCK;
    size_t want = whole + (used != 0);
    struct kv_page *last = NULL;
    if (reserve_table(dst, want, e))
        return -1;
    if (used && !(last = kv_page_copy(src, src->pages[whole], used)))
        return no_memory(src, n, e);
    for (size_t i = 0; i < whole; i++)
        src->pages[i]->refs++;
    for (size_t i = 0; i < dst->n_pages; i++)
        kv_page_drop(dst, dst->pages[i]);
    if (whole)
        memcpy(dst->pages, src->pages, whole * sizeof(*dst->pages));
    if (last)
        dst->pages[whole] = last;
    dst->n_pages = want;
    dst->n = n;
    return 0;
}

int kv_adopt(struct kv_cache *kv, size_t n_kept, struct kv_page *const *pages,
             size_t n_pages, size_t n, struct qwick_err *e)
{
    if (reserve_table(kv, n_kept + n_pages, e))
        return -1;
    for (size_t i = n_kept; i < kv->n_pages; i++)
        kv_page_drop(kv, kv->pages[i]);
    for (size_t i = 0; i < n_pages; i++)
        kv->pages[n_kept + i] = pages[i];
    kv->n_pages = n_kept + n_pages;
    kv->n = n;
    return 0;
}

void kv_store(const struct kv_cache *kv, const struct kernels *k,
              unsigned char *run, size_t slot, const float *x)
{
    size_t d = kv->head_dim, row = d * dtype_bytes(kv->dtype);
    if (kv->dtype != DT_I8) {
        k->from_f32[kv->dtype](run + slot * row, x, d);
        return;
    }
    float *scales = (float *)(void *)(run + KV_BLOCK * row);
    k->to_kv_q8((int8_t *)run + slot * row, scales + slot * kv_q8_groups(d), x,
                d);
}

size_t kv_bytes(const struct kv_cache *kv)
{
    return kv->n_pages * kv->page_bytes;
}

size_t kv_position_bytes(const struct kv_cache *kv)
{
    return kv->page_bytes / KV_BLOCK;
}
