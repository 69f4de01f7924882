#include "model/kv_cache.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"

/* Bytes of what a layer reads in a page. */
static size_t layer_bytes(const struct kv_layer *l)
{
    return 2 * l->n_heads * l->run_bytes;
}

/* Place layer i at the end of a page. -1: overflow. */
static int place_layer(struct kv_cache *kv, const struct config *c, size_t i)
{
    const struct layer_config none = {0},
                              *from = c->layers ? &c->layers[i] : &none;
    struct kv_layer *l = &kv->shape->layers[i];
    size_t position, n;
    l->at = kv->page_bytes;
    if (from->recurrent)
        return 0;
    size_t back = kv->whole ? i : from->kv_back;
    if (back) {
        *l = l[-(ptrdiff_t)back];
        l->shared = true;
        return 0;
    }
    l->n_heads = from->n_kv_heads ? from->n_kv_heads : c->n_kv_heads;
    l->head_dim = from->head_dim ? from->head_dim : c->head_dim;
    bool bad = size_mul(l->head_dim, kv->kind->bits, &position) ||
               size_add(kv_kind_elements(kv->kind, l->head_dim),
                        kv_kind_scales(kv->kind, l->head_dim), &position);
    return bad || size_mul(position, KV_BLOCK, &l->run_bytes) ||
                   size_mul(l->run_bytes, 2, &n) ||
                   size_mul(n, l->n_heads, &n) ||
                   size_add(kv->page_bytes, n, &kv->page_bytes)
               ? -1
               : 0;
}

static int place_layers(struct kv_cache *kv, const struct config *c,
                        struct qwick_err *e)
{
    size_t n = sizeof(struct kv_shape) + c->n_layers * sizeof(struct kv_layer);
    if (!(kv->shape = calloc(1, n)))
        return err_oom(e, n);
    kv->shape->refs = 1;
    for (size_t i = 0; i < c->n_layers; i++) {
        const struct kv_layer *l = &kv->shape->layers[i];
        if (place_layer(kv, c, i) == 0)
            continue;
        err_set(e, QWICK_ERR_MODEL,
                "KV cache: %zu layers, one of %zu heads of %zu, are too many",
                kv->n_layers, l->n_heads, l->head_dim);
        kv_free(kv);
        return -1;
    }
    return 0;
}

int kv_init(struct kv_cache *kv, const struct kv_kind *kind,
            const struct config *c, struct qwick_err *e)
{
    *kv = (struct kv_cache){.kind = kind,
                            .n_layers = c->n_layers,
                            .whole = c->bidirectional,
                            .window = NO_WINDOW,
                            .most_snapshots = KV_SNAPSHOTS,
                            .snapshot_pages = KV_SNAPSHOT_PAGES};
    if (state_init(&kv->state, c, e))
        return -1;
    if (kv->n_layers == kv->state.n_layers)
        return err_set(e, QWICK_ERR_MODEL,
                       "KV cache: none of %zu layers has keys and values",
                       kv->n_layers);
    if (place_layers(kv, c, e))
        return -1;
    if (kv->state.n_layers)
        kv->layers = c->layers;
    for (size_t i = 0; c->layers && !kv->whole && i < c->n_layers; i++) {
        size_t window = c->layers[i].window;
        if (window == NO_WINDOW || c->layers[i].recurrent)
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
    like.shape->refs++;
    like.pages = NULL;
    like.n_pages = like.cap_pages = like.n = like.n_visited = 0;
    like.state.live = NULL;
    like.state.first = 0;
    like.snapshot_pages = KV_SNAPSHOT_PAGES;
    memset(like.requested, 0, sizeof like.requested);
    return like;
}

struct kv_page *kv_page_new(const struct kv_cache *kv)
{
    struct kv_page *page = malloc(sizeof *page);
    if (!page)
        return NULL;
    page->refs = 1;
    page->released = false;
    page->state = NULL;
    /* Fresh zero pages: memory becomes resident only where tokens are
     * written. */
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
    state_snapshot_free(&kv->state, page->state);
    munmap(page->data, kv->page_bytes);
    free(page);
}

void kv_free(struct kv_cache *kv)
{
    for (size_t i = 0; i < kv->n_pages; i++)
        kv_page_drop(kv, kv->pages[i]);
    free(kv->pages);
    state_free(&kv->state);
    if (kv->shape && --kv->shape->refs == 0)
        free(kv->shape);
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
    size_t needed = pages_of(n), missing = 0;
    for (size_t i = kv->n / KV_BLOCK; i < needed && i < kv->n_pages; i++)
        missing += kv->pages[i]->refs > 1;
    return missing + (needed > kv->n_pages ? needed - kv->n_pages : 0);
}

static int reserve_table(struct kv_cache *kv, size_t needed,
                         struct qwick_err *e)
{
    if (needed <= kv->cap_pages)
        return 0;
    size_t cap = needed + needed / 2 + 8;
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
    for (size_t i = 0; i < kv->n_layers; i++) {
        const struct kv_layer *l = &kv->shape->layers[i];
        if (l->shared)
            continue;
        size_t row = kv_kind_elements(kv->kind, l->head_dim);
        size_t scales = kv_kind_scales(kv->kind, l->head_dim);
        for (size_t run = 0; run < 2 * l->n_heads; run++) {
            size_t at = l->at + run * l->run_bytes;
            memcpy(page->data + at, from->data + at, used * row);
            at += KV_BLOCK * row;
            memcpy(page->data + at, from->data + at, used * scales);
        }
    }
    page->released = from->released;
    return page;
}

static bool has_windows(const struct kv_cache *kv)
{
    return kv->window != NO_WINDOW;
}

/* Whether window layers can go on after n positions. */
static bool windows_whole(const struct kv_cache *kv, size_t n)
{
    size_t first = n >= kv->window ? n + 1 - kv->window : 0;
    for (size_t i = first / KV_BLOCK; has_windows(kv) && i < pages_of(n); i++)
        if (kv->pages[i]->released)
            return false;
    return true;
}

size_t kv_usable(const struct kv_cache *kv, size_t n)
{
    if (kv->whole)
        return 0;
    if (!state_holds(&kv->state, kv->n, n)) {
        size_t page = n / KV_BLOCK;
        while (page && !kv->pages[page - 1]->state)
            page--;
        n = page * KV_BLOCK;
    }
    return windows_whole(kv, n) ? n : 0;
}

/* Whether the layer has keys and values of its own that may be released. */
static bool has_window(const struct kv_cache *kv, size_t layer)
{
    const struct layer_config *l = &kv->layers[layer];
    return !l->recurrent && !kv->shape->layers[layer].shared &&
           l->window != NO_WINDOW;
}

/* The window layers' part of a page, by runs of such layers. Whole pages of the
 * system are given back, so neighbours keep theirs. */
static void release_page(const struct kv_cache *kv, struct kv_page *page)
{
    const struct kv_layer *layers = kv->shape->layers;
    size_t system = (size_t)sysconf(_SC_PAGESIZE), end;
    for (size_t i = 0; i < kv->n_layers; i = end) {
        end = i + 1;
        if (!has_window(kv, i))
            continue;
        while (end < kv->n_layers && has_window(kv, end))
            end++;
        size_t next = layers[end - 1].at + layer_bytes(&layers[end - 1]);
        size_t from = (layers[i].at + system - 1) / system * system;
        size_t to = next / system * system;
        if (from < to)
            (void)madvise(page->data + from, to - from, MADV_DONTNEED);
    }
    page->released = true;
}

void kv_release(struct kv_cache *kv, size_t slack)
{
    size_t end_pos = kv->n + 1; /* windows end before it, or later */
    if (!has_windows(kv) || end_pos < slack || end_pos - slack < kv->window)
        return;
    size_t end = (end_pos - slack - kv->window) / KV_BLOCK;
    for (; kv->n_visited < end; kv->n_visited++) {
        struct kv_page *page = kv->pages[kv->n_visited];
        if (page->refs == 1 && !page->released)
            release_page(kv, page);
    }
}

/* ---- snapshots ---------------------------------------------------------- */

static bool is_requested(const struct kv_cache *kv, size_t page)
{
    for (size_t i = 0; i < KV_REQUESTS; i++)
        if (kv->requested[i] == page + 1)
            return true;
    return false;
}

/* Whether kv_reserve would have to allocate the page's snapshot. */
static bool lacks_snapshot(const struct kv_cache *kv, size_t page)
{
    return ((page + 1) % kv->snapshot_pages == 0 || is_requested(kv, page)) &&
           (page >= kv->n_pages || !kv->pages[page]->state ||
            kv->pages[page]->refs > 1);
}

static size_t count_lacking(const struct kv_cache *kv, size_t end)
{
    size_t n = 0;
    for (size_t i = kv->n / KV_BLOCK; i < end; i++)
        n += lacks_snapshot(kv, i);
    return n;
}

/* Snapshots that no other sequence or cache has. */
static size_t count_own(const struct kv_cache *kv)
{
    size_t n = 0;
    for (size_t i = 0; i < kv->n_pages; i++)
        n += kv->pages[i]->refs == 1 && kv->pages[i]->state;
    return n;
}

/* Choose which of the pages up to `end` that are not full get a snapshot. If
 * there are too many, drop every second snapshot that only this sequence has,
 * and the snapshots that kv_snapshot added. */
static void choose_snapshots(struct kv_cache *kv, size_t end)
{
    if (!kv->state.n_layers)
        return;
    for (bool more = true;
         more && count_own(kv) + count_lacking(kv, end) > kv->most_snapshots;) {
        more = kv->snapshot_pages <= end;
        kv->snapshot_pages *= more ? 2 : 1;
        for (size_t i = 0; i < kv->n_pages; i++) {
            struct kv_page *page = kv->pages[i];
            if (page->refs > 1 || (i + 1) % kv->snapshot_pages == 0 ||
                is_requested(kv, i))
                continue;
            state_snapshot_free(&kv->state, page->state);
            page->state = NULL;
        }
    }
    for (size_t i = kv->n / KV_BLOCK; i < end; i++)
        if (lacks_snapshot(kv, i))
            kv->pages[i]->state = state_snapshot_new(&kv->state);
}

size_t kv_request_snapshot(struct kv_cache *kv, size_t n)
{
    size_t page = n / KV_BLOCK, step = kv->snapshot_pages;
    if (!kv->state.n_layers)
        return kv->whole ? 0 : n;
    if (n <= kv->n)
        return kv_usable(kv, n);
    bool found = page == 0 || is_requested(kv, page - 1);
    for (size_t i = 0; i < KV_REQUESTS && !found; i++)
        if ((found = kv->requested[i] <= kv->n / KV_BLOCK))
            kv->requested[i] = page;
    size_t last = page / step * step;
    for (size_t i = 0; i < KV_REQUESTS; i++)
        if (kv->requested[i] <= page && kv->requested[i] > last)
            last = kv->requested[i];
    return last * KV_BLOCK;
}

void kv_snapshot(struct kv_cache *kv)
{
    size_t n = kv->n / KV_BLOCK * KV_BLOCK;
    if (!kv->state.n_layers || n == 0 || !state_holds(&kv->state, kv->n, n))
        return;
    struct kv_page *page = kv->pages[n / KV_BLOCK - 1];
    if (page->state || !(page->state = state_snapshot_new(&kv->state)))
        return;
    state_save(&kv->state, n / DELTA_BLOCK, page->state);
}

/* ---- positions ---------------------------------------------------------- */

/* The sequence's state for a pass: the live one, or that of a snapshot. */
static int prepare_state(struct kv_cache *kv, struct qwick_err *e)
{
    bool held = state_holds(&kv->state, kv->n, kv->n);
    const float *snapshot =
        held ? NULL : kv->pages[kv->n / KV_BLOCK - 1]->state;
    return state_prepare(&kv->state, kv->n, snapshot, e);
}

int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e)
{
    size_t needed = pages_of(n);
    if (!kv->keeps_windows)
        kv_release(kv, KV_SLACK);
    if (reserve_table(kv, needed, e) || prepare_state(kv, e))
        return -1;
    while (kv->n_pages < needed) {
        struct kv_page *page = kv_page_new(kv);
        if (!page)
            return no_memory(kv, n, e);
        kv->pages[kv->n_pages++] = page;
    }
    /* The pass will write to these pages, so no other sequence may share
     * them. */
    for (size_t i = kv->n / KV_BLOCK; i < needed; i++) {
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
    choose_snapshots(kv, needed);
    return 0;
}

void kv_advance(struct kv_cache *kv, size_t n)
{
    kv->n += n;
    state_advance(&kv->state, kv->n);
}

/* Have the first n positions, n of kv_usable. */
static void go_back(struct kv_cache *kv, size_t n)
{
    state_go_back(&kv->state, kv->n, n);
    if (n == 0)
        kv->snapshot_pages = KV_SNAPSHOT_PAGES;
    kv->n = n;
    if (kv->n_visited > n / KV_BLOCK)
        kv->n_visited = n / KV_BLOCK;
}

void kv_stop(struct kv_cache *kv, size_t n)
{
    if (!state_stop(&kv->state, kv->n, kv->n + n))
        go_back(kv, kv_usable(kv, kv->n));
}

void kv_truncate(struct kv_cache *kv, size_t n)
{
    if (n < kv->n)
        go_back(kv, kv_usable(kv, n));
}

int kv_share(struct kv_cache *dst, const struct kv_cache *src, size_t n,
             struct qwick_err *e)
{
    n = kv_usable(src, n);
    size_t whole = n / KV_BLOCK, used = n % KV_BLOCK;
    size_t needed = whole + (used != 0);
    struct kv_page *last = NULL;
    if (reserve_table(dst, needed, e))
        return -1;
    if (used && !(last = kv_page_copy(src, src->pages[whole], used)))
        return no_memory(src, n, e);
    state_share(&dst->state, &src->state, src->n, n);
    dst->snapshot_pages = src->snapshot_pages;
    for (size_t i = 0; i < whole; i++)
        src->pages[i]->refs++;
    for (size_t i = 0; i < dst->n_pages; i++)
        kv_page_drop(dst, dst->pages[i]);
    if (whole)
        memcpy(dst->pages, src->pages, whole * sizeof(*dst->pages));
    if (last)
        dst->pages[whole] = last;
    dst->n_pages = needed;
    dst->n = n;
    dst->long_rope = src->long_rope;
    dst->n_visited = 0;
    return 0;
}

int kv_adopt(struct kv_cache *kv, size_t n_kept, struct kv_page *const *pages,
             size_t n_pages, size_t n, struct qwick_err *e)
{
    if (reserve_table(kv, n_kept + n_pages, e))
        return -1;
    if (kv->state.n_layers) {
        assert(n == (n_kept + n_pages) * KV_BLOCK && pages[n_pages - 1]->state);
        kv->state.first = STATE_NONE;
    }
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

/* ---- bytes -------------------------------------------------------------- */

size_t kv_page_bytes(const struct kv_cache *kv, const struct kv_page *page)
{
    size_t bytes = kv->page_bytes;
    if (page->released)
        for (size_t i = 0; i < kv->n_layers; i++)
            if (has_window(kv, i))
                bytes -= layer_bytes(&kv->shape->layers[i]);
    return bytes + (page->state ? state_snapshot_bytes(&kv->state) : 0);
}

size_t kv_bytes(const struct kv_cache *kv)
{
    size_t bytes = kv->state.live ? state_live_bytes(&kv->state) : 0;
    for (size_t i = 0; i < kv->n_pages; i++)
        bytes += kv_page_bytes(kv, kv->pages[i]);
    return bytes;
}

size_t kv_fair_bytes(const struct kv_cache *kv)
{
    const struct state *s = &kv->state;
    size_t bytes = s->live ? state_live_bytes(s) / s->live->refs : 0;
    for (size_t i = 0; i < kv->n_pages; i++)
        bytes += kv_page_bytes(kv, kv->pages[i]) / kv->pages[i]->refs;
    return bytes;
}

size_t kv_position_bytes(const struct kv_cache *kv)
{
    return kv->page_bytes / KV_BLOCK;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

double kv_read_bytes(const struct kv_cache *kv, size_t pos, size_t n)
{
    double bytes = 0;
    for (size_t i = 0; i < kv->n_layers; i++) {
        size_t window = kv->layers ? kv->layers[i].window : NO_WINDOW;
        double positions = (double)(least(pos, window - 1) + n);
        bytes += positions * (double)layer_bytes(&kv->shape->layers[i]);
    }
    return bytes / KV_BLOCK;
}

/* SIZE_MAX: overflow. */
static size_t bytes_of(const struct kv_cache *kv, size_t n_pages,
                       size_t n_snapshots, size_t more)
{
    size_t sum, n;
    return size_mul(n_pages, kv->page_bytes, &sum) ||
                   size_mul(n_snapshots, state_snapshot_bytes(&kv->state),
                            &n) ||
                   size_add(sum, n, &sum) || size_add(sum, more, &sum)
               ? SIZE_MAX
               : sum;
}

size_t kv_missing_bytes(const struct kv_cache *kv, size_t n)
{
    size_t lacking = 0;
    if (kv->state.n_layers) {
        size_t most = kv->most_snapshots, own = least(count_own(kv), most);
        lacking = least(count_lacking(kv, pages_of(n)), most - own);
    }
    return bytes_of(kv, kv_missing_pages(kv, n), lacking,
                    state_missing_bytes(&kv->state));
}

size_t kv_sequence_bytes(const struct kv_cache *kv, size_t n)
{
    size_t pages = pages_of(n);
    return bytes_of(kv, pages,
                    least(pages / KV_SNAPSHOT_PAGES, kv->most_snapshots),
                    state_live_bytes(&kv->state));
}
