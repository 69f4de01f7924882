#include "model/kv_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"

int kv_init(struct kv_cache *kv, enum dtype dtype, const struct config *c,
            struct qwick_err *e)
{
    *kv = (struct kv_cache){.dtype = dtype,
                            .n_layers = c->n_layers,
                            .n_kv_heads = c->n_kv_heads,
                            .head_dim = c->head_dim,
                            .window = NO_WINDOW};
    size_t position, run, n;
    bool bad = size_mul(kv->head_dim, dtype_bytes(dtype), &position);
    if (dtype == DT_I8)
        bad |= size_add(position, kv_i8_groups(kv->head_dim) * sizeof(float),
                        &position);
    if (bad || size_mul(position, KV_BLOCK, &run) || size_mul(run, 2, &n) ||
        size_mul(n, kv->n_layers, &n) || size_mul(n, kv->n_kv_heads, &n))
        return err_set(e, QWICK_ERR_MODEL,
                       "KV cache: %zu layers of %zu heads of %zu are too many",
                       kv->n_layers, kv->n_kv_heads, kv->head_dim);
    kv->run_bytes = run;
    kv->page_bytes = n;
    for (size_t i = 0; c->layers && i < c->n_layers; i++) {
        size_t window = c->layers[i].window;
        if (window == NO_WINDOW)
            continue;
        kv->layers = c->layers;
        if (kv->window == NO_WINDOW || window > kv->window)
            kv->window = window;
    }
    return 0;
}

struct kv_cache kv_like(const struct kv_cache *kv)
{
    struct kv_cache like = *kv;
    like.pages = NULL;
    like.n_pages = like.cap_pages = like.n = like.n_visited = 0;
    return like;
}

struct kv_page *kv_page_new(const struct kv_cache *kv)
{
    struct kv_page *page = malloc(sizeof *page);
    if (!page)
        return NULL;
    page->refs = 1;
    page->released = false;
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
    page->released = from->released;
    return page;
}

size_t kv_usable(const struct kv_cache *kv, size_t n)
{
    if (!kv->layers)
        return n;
    size_t first = n >= kv->window ? n + 1 - kv->window : 0;
    for (size_t i = first / KV_BLOCK; i < pages_of(n); i++)
        if (kv->pages[i]->released)
            return 0;
    return n;
}

/* The window layers' part of a page, by runs of such layers. Whole pages of the
 * system are given back, so neighbours keep theirs. */
static void release_page(const struct kv_cache *kv, struct kv_page *page)
{
    size_t bytes = kv->page_bytes / kv->n_layers, end;
    size_t system = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < kv->n_layers; i = end) {
        end = i + 1;
        if (kv->layers[i].window == NO_WINDOW)
            continue;
        while (end < kv->n_layers && kv->layers[end].window != NO_WINDOW)
            end++;
        size_t from = (i * bytes + system - 1) / system * system;
        size_t to = end * bytes / system * system;
        if (from < to)
            (void)madvise(page->data + from, to - from, MADV_DONTNEED);
    }
    page->released = true;
}

void kv_release(struct kv_cache *kv, size_t slack)
{
    size_t unseen = kv->n + 1; /* the positions before it, less a window */
    if (!kv->layers || unseen < slack || unseen - slack < kv->window)
        return;
    size_t end = (unseen - slack - kv->window) / KV_BLOCK;
    for (; kv->n_visited < end; kv->n_visited++) {
        struct kv_page *page = kv->pages[kv->n_visited];
        if (page->refs == 1 && !page->released)
            release_page(kv, page);
    }
}

int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e)
{
    size_t want = pages_of(n);
    kv_release(kv, KV_SLACK);
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
        if (kv->pages[i]->refs == 1) {
            /* one that was cut off fills again from its first position */
            if (i * KV_BLOCK >= kv->n)
                kv->pages[i]->released = false;
            continue;
        }
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
    if (n >= kv->n)
        return;
    kv->n = kv_usable(kv, n);
    if (kv->n_visited > kv->n / KV_BLOCK)
        kv->n_visited = kv->n / KV_BLOCK;
}

int kv_share(struct kv_cache *dst, const struct kv_cache *src, size_t n,
             struct qwick_err *e)
{
    n = kv_usable(src, n);
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
    dst->n_visited = 0;
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
    if (kv->n_visited > n_kept)
        kv->n_visited = n_kept;
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
    k->to_kv_i8((int8_t *)run + slot * row, scales + slot * kv_i8_groups(d), x,
                d);
}

size_t kv_bytes(const struct kv_cache *kv)
{
    size_t windows = 0, gone = 0;
    for (size_t i = 0; kv->layers && i < kv->n_layers; i++)
        windows += kv->layers[i].window != NO_WINDOW;
    for (size_t i = 0; windows && i < kv->n_pages; i++)
        gone += kv->pages[i]->released;
    return kv->n_pages * kv->page_bytes -
           gone * (kv->page_bytes / kv->n_layers * windows);
}

size_t kv_position_bytes(const struct kv_cache *kv)
{
    return kv->page_bytes / KV_BLOCK;
}
