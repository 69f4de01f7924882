/* Keys and values of one sequence, in pages that are taken as tokens come and
 * shared between sequences with the same beginning, and the state of its
 * recurrent layers (state.h).
 *
 * A page holds KV_BLOCK positions of all KV heads of the layers that have keys:
 * [layer][kv head][keys, values]. Keys and values are a run each:
 * [position][head_dim] of the cache's dtype, followed in an int8 cache by f32
 * scales [position][kv_i8_groups(head_dim)].
 *
 * Layers differ in the part of the past that they need:
 *
 *   layer            memory                    back to n tokens (kv_truncate)
 *   attends to all   grows with the context    any n
 *   sliding window   pages that no later       n within KV_SLACK of the longest
 *                    token sees are released   context, or all the way to 0
 *   recurrent        a state of fixed size,    n within DELTA_BLOCK of the
 *                    and snapshots of it that  context's end, the end of a
 *                    pages carry               page with a snapshot, or 0
 *
 * Releasing gives the window layers' part of a page back to the system and
 * keeps the page: other layers need theirs. A page that several sequences or a
 * cache of prefixes have stays whole. So appending, sharing at the full length
 * and adopting pages work for every layer. Cutting back, sharing less than the
 * full length, and caches of prefixes ask kv_usable first.
 *
 * With recurrent layers, kv_reserve gives some of the pages a snapshot: every
 * KV_SNAPSHOT_PAGES-th, and fewer of them as the sequence grows, so that it
 * owns at most most_snapshots. The pass that fills the page writes it.
 * kv_snapshot adds one at the last whole page, for those who know that other
 * sequences will begin there. */
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"
#include "model/state.h"

struct kv_page {
    size_t refs; /* sequences and caches of prefixes that have it; changed by
                    one thread at a time */
    unsigned char *data;
    bool released; /* keys and values of window layers are gone */
    float *state;  /* a snapshot of the recurrent layers after the page's last
                      position, of use once the page is full; NULL: none */
};

/* Positions beyond the window that stay: a sequence may drop so many tokens and
 * go on, as guesses that were wrong do. */
enum { KV_SLACK = 256 };

/* Pages from snapshot to snapshot in a short sequence, and how many snapshots a
 * sequence has at most, those not counted that it shares with others; a
 * sequence that will not go back needs fewer. A model of 0.8B parameters has
 * snapshots of 20 MB. */
enum { KV_SNAPSHOT_PAGES = 4, KV_SNAPSHOTS = 16, KV_FEW_SNAPSHOTS = 4 };

struct kv_cache {
    enum dtype dtype;    /* DT_F16, DT_F32 or DT_I8 */
    size_t n_layers;     /* all layers of the model */
    size_t n_key_layers; /* layers with keys and values */
    size_t n_kv_heads, head_dim;
    size_t run_bytes, page_bytes;
    struct kv_page **pages;
    size_t n_pages, cap_pages;
    size_t n;                          /* positions in use */
    const struct layer_config *layers; /* [n_layers], borrowed; NULL: all layers
                                          attend to all positions */
    size_t window;         /* the largest of window layers; NO_WINDOW: none */
    size_t n_visited;      /* pages that kv_release has looked at */
    struct state state;    /* of the recurrent layers */
    size_t most_snapshots; /* of its own; KV_SNAPSHOTS unless the owner sets
                              another number */
    size_t snapshot_pages; /* from snapshot to snapshot */
    size_t wanted_page; /* gets one in any case; its number plus 1, 0: none */
};

/* An empty cache for a model's layers. QWICK_ERR_MODEL if no layer has keys, or
 * sizes overflow. */
int kv_init(struct kv_cache *kv, enum dtype dtype, const struct config *c,
            struct qwick_err *e);
/* An empty cache with the shape of another one. */
struct kv_cache kv_like(const struct kv_cache *kv);
void kv_free(struct kv_cache *kv);

/* Make room for positions [0, n), those from kv->n on in pages of its own, have
 * a live state of its own, and choose the pages that get snapshots. Called
 * before a forward pass, never inside one. On failure the positions in use are
 * as they were. A snapshot that does not fit memory is left out. */
int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e);

/* Pages that it would allocate. */
size_t kv_missing_pages(const struct kv_cache *kv, size_t n);
/* Bytes that it would allocate at most: pages, the live state, snapshots.
 * SIZE_MAX if they overflow. */
size_t kv_missing_bytes(const struct kv_cache *kv, size_t n);

/* A pass has computed n more positions. */
void kv_advance(struct kv_cache *kv, size_t n);

/* A pass over n more positions was stopped in between. The sequence keeps its
 * positions, unless recurrent layers may have overwritten the state after them,
 * which needs n > DELTA_BLOCK. Then it goes back to a snapshot or to 0. */
void kv_stop(struct kv_cache *kv, size_t n);

/* The most positions up to n after which a sequence can go on, n <= kv->n. All
 * layers that attend to all positions can go on after n. With a window it is n,
 * or 0 where keys that the next token sees have been released. With recurrent
 * layers it is n where the live state holds it, otherwise the end of the last
 * page up to n that has a snapshot, or 0. */
size_t kv_usable(const struct kv_cache *kv, size_t n);

/* Forget positions from kv_usable(kv, n) on. Pages are kept for reuse. */
void kv_truncate(struct kv_cache *kv, size_t n);

/* Return after how many of its first n positions, n <= kv->n or positions yet
 * to come, other sequences can go on once kv has them. For positions to come,
 * also have the page that ends there get a snapshot, unless another page was
 * asked for before and is not full yet. */
size_t kv_want_snapshot(struct kv_cache *kv, size_t n);

/* Give the last whole page a snapshot, so that sequences which share or adopt
 * the pages up to it can go on after them. Does nothing without recurrent
 * layers, if the page has one, if the live state does not hold the page's end
 * (because the sequence went back and has not grown since), and if memory is
 * short. */
void kv_snapshot(struct kv_cache *kv);

/* Release what no token from position kv->n - slack on sees. Does nothing
 * without window layers. kv_reserve calls it with KV_SLACK. */
void kv_release(struct kv_cache *kv, size_t slack);

/* Make dst's positions the first kv_usable(src, n) of src, n <= src->n, of the
 * same shape and dtype. Whole pages become shared, a page in part is copied.
 * The live state becomes shared, too, until kv_reserve. On failure dst keeps
 * what it had. */
int kv_share(struct kv_cache *dst, const struct kv_cache *src, size_t n,
             struct qwick_err *e);

/* Keep the first n_kept pages, all of whose positions are in use, and have
 * pages[0..n_pages) behind them, n positions in use in all: the last page may
 * be used in part. With recurrent layers, n must be the end of a page that
 * carries a snapshot, and n_pages at least 1. The caller's references to pages
 * become the cache's. On failure nothing has changed. */
int kv_adopt(struct kv_cache *kv, size_t n_kept, struct kv_page *const *pages,
             size_t n_pages, size_t n, struct qwick_err *e);

/* A page of kv's size that is all zeros, without a snapshot, with one
 * reference; NULL: no memory. */
struct kv_page *kv_page_new(const struct kv_cache *kv);
/* A new page with the first `used` positions of `from`, one reference; NULL: no
 * memory. */
struct kv_page *kv_page_copy(const struct kv_cache *kv,
                             const struct kv_page *from, size_t used);
/* Give a reference back. */
void kv_page_drop(const struct kv_cache *kv, struct kv_page *page);

/* Keys (values) of a block of KV_BLOCK positions: a run. The layer must have
 * keys. */
static inline unsigned char *kv_keys(const struct kv_cache *kv, size_t block,
                                     size_t layer, size_t head)
{
    size_t slot = kv->layers ? kv->layers[layer].slot : layer;
    return kv->pages[block]->data +
           (slot * kv->n_kv_heads + head) * 2 * kv->run_bytes;
}

static inline unsigned char *kv_values(const struct kv_cache *kv, size_t block,
                                       size_t layer, size_t head)
{
    return kv_keys(kv, block, layer, head) + kv->run_bytes;
}

/* Round x f32 [head_dim] into position `slot` of a run. */
void kv_store(const struct kv_cache *kv, const struct kernels *k,
              unsigned char *run, size_t slot, const float *x);

/* Bytes of memory taken: the live state, and pages with their snapshots, shared
 * ones included, released ones not. */
size_t kv_bytes(const struct kv_cache *kv);
/* The sequence's share of them: what n sequences and caches have counts 1/n. */
size_t kv_fair_bytes(const struct kv_cache *kv);
/* Bytes of one page, with its snapshot if it has one. */
size_t kv_page_bytes(const struct kv_cache *kv, const struct kv_page *page);
/* Bytes that one position takes in pages. */
size_t kv_position_bytes(const struct kv_cache *kv);
/* Bytes that a sequence of n positions takes at most, in a cache of this shape:
 * pages, live state and snapshots. SIZE_MAX if they overflow. */
size_t kv_sequence_bytes(const struct kv_cache *kv, size_t n);

#endif
