/* The keys and values of one sequence, and the state of its recurrent layers
 * (state.h). Keys and values are in pages, which the cache allocates as the
 * sequence grows and which sequences with the same beginning share.
 *
 * A page holds KV_BLOCK positions of all KV heads of the layers that have keys:
 * [layer][kv head][keys, values]. Keys and values are a run each, as the kind of
 * the cache lays it out (kv_kind.h). Layers may differ in their number of KV
 * heads and in head_dim.
 *
 * A sequence of an encoder is evaluated in one pass; kv_usable is 0 for it, and
 * its layers have equal heads.
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
 * Releasing a page gives the memory of its window layers back to the system.
 * The page itself stays, because the other layers need their part. A page that
 * several sequences share, or that a prefix cache holds, is not released, and
 * keeps_windows keeps all pages for a prefix cache that gets them later. So
 * appending, sharing at the full length and adopting pages work for every
 * layer. Before going back, sharing less than the full length, or storing pages
 * in a prefix cache, call kv_usable.
 *
 * With recurrent layers, kv_reserve gives every KV_SNAPSHOT_PAGES-th page a
 * snapshot. As the sequence grows, the distance doubles, so that the sequence
 * owns at most most_snapshots. The pass that fills a page writes its snapshot.
 * kv_snapshot adds one at the last whole page, for callers that know that other
 * sequences will begin there. */
#ifndef MODEL_KV_CACHE_H
#define MODEL_KV_CACHE_H

#include <stddef.h>

#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"
#include "model/kv_kind.h"
#include "model/state.h"

struct kv_page {
    size_t refs; /* sequences and prefix caches that hold it; changed by one
                    thread at a time */
    unsigned char *data;
    bool released; /* keys and values of window layers are gone */
    float *state;  /* a snapshot of the recurrent layers after the page's last
                      position, valid once the page is full; NULL: none */
};

/* Positions before the window that stay: a sequence can go back by this many
 * tokens, as it does after wrong guesses. */
enum { KV_SLACK = 256 };

/* KV_SNAPSHOT_PAGES: pages from one snapshot to the next in a short sequence.
 * KV_SNAPSHOTS: the most snapshots of a sequence, without those that it shares.
 * KV_SNAPSHOTS_FORWARD: the limit for a sequence that will not go back. A
 * snapshot of a model with 0.8B parameters takes 20 MB. */
enum { KV_SNAPSHOT_PAGES = 4, KV_SNAPSHOTS = 16, KV_SNAPSHOTS_FORWARD = 4 };

/* Most pages that may be marked for snapshots and are not full yet. */
enum { KV_REQUESTS = 4 };

/* Where a page has the keys and values that a layer reads. */
struct kv_layer {
    size_t at;        /* first byte: the run of keys of KV head 0 */
    size_t run_bytes; /* from a run to the next */
    size_t n_heads;   /* 0: the layer has no keys */
    size_t head_dim;
    bool shared; /* the place is that of an earlier layer, which counts it */
};

/* The layers of a page. Caches of one shape share it. */
struct kv_shape {
    size_t refs;              /* changed by one thread at a time */
    struct kv_layer layers[]; /* [n_layers] */
};

struct kv_cache {
    const struct kv_kind *kind;
    size_t n_layers; /* all layers of the model */
    struct kv_shape *shape;
    size_t page_bytes;
    struct kv_page **pages;
    size_t n_pages, cap_pages;
    size_t n;                          /* positions in use */
    const struct layer_config *layers; /* [n_layers], borrowed; NULL: all layers
                                          attend to all positions */
    size_t window;         /* the largest of window layers; NO_WINDOW: none */
    size_t n_visited;      /* pages that kv_release has visited */
    bool long_rope;        /* keys are rotated by the frequencies of long
                              sequences (rope.inv_freq_long). Set by the owner
                              of an empty cache */
    bool whole;            /* of an encoder: positions depend on later ones, so
                              that none can be kept or shared. All layers use
                              one place in a page, since each needs keys and
                              values only while it runs */
    bool keeps_windows;    /* kv_reserve releases no pages. Set by the owner */
    struct state state;    /* of the recurrent layers */
    size_t most_snapshots; /* the most that only this sequence has:
                              KV_SNAPSHOTS, unless the owner sets another
                              number */
    size_t snapshot_pages; /* from snapshot to snapshot */
    /* Pages that must get a snapshot: their numbers plus 1; 0: none. */
    size_t requested[KV_REQUESTS];
};

/* An empty cache for a model's layers. c->layers may be NULL, and where a layer
 * has no number of heads or no head_dim, it is that of c. QWICK_ERR_MODEL if no
 * layer has keys, or sizes overflow. On failure, kv_free does nothing. */
int kv_init(struct kv_cache *kv, const struct kv_kind *kind,
            const struct config *c, struct qwick_err *e);
/* An empty cache with the shape of another one. */
struct kv_cache kv_like(const struct kv_cache *kv);
void kv_free(struct kv_cache *kv);

/* Prepare for a forward pass up to position n: allocate pages for positions [0,
 * n), copy shared pages and a shared live state that the pass will write, and
 * choose the pages that get snapshots. Called before a forward pass, never
 * inside one. On failure the positions in use do not change. A snapshot that
 * does not fit in memory is left out. */
int kv_reserve(struct kv_cache *kv, size_t n, struct qwick_err *e);

/* Pages that kv_reserve would allocate. */
size_t kv_missing_pages(const struct kv_cache *kv, size_t n);
/* Bytes that kv_reserve would allocate at most: pages, the live state,
 * snapshots. SIZE_MAX if they overflow. */
size_t kv_missing_bytes(const struct kv_cache *kv, size_t n);

/* Record that a pass has computed n more positions. */
void kv_advance(struct kv_cache *kv, size_t n);

/* Record that a pass over n more positions was stopped midway. The sequence
 * keeps its positions, unless recurrent layers may have overwritten their
 * state, which is possible only if n > DELTA_BLOCK. Then the sequence goes back
 * to a snapshot or to 0. */
void kv_stop(struct kv_cache *kv, size_t n);

/* Return the largest length <= n to which the sequence can go back, n <= kv->n.
 * Layers that attend to all positions can go back to any length. With window
 * layers the result is n, or 0 if keys that the next token sees have been
 * released. With recurrent layers it is n if the live state has it, otherwise
 * the end of the last page before n with a snapshot, or 0. */
size_t kv_usable(const struct kv_cache *kv, size_t n);

/* Forget positions from kv_usable(kv, n) on. Pages are kept for reuse. */
void kv_truncate(struct kv_cache *kv, size_t n);

/* Return how many of the first n positions other sequences can share once kv
 * has them. If n is larger than kv->n, also mark the last page that ends there
 * or before for a snapshot, unless KV_REQUESTS others are marked and not full
 * yet. */
size_t kv_request_snapshot(struct kv_cache *kv, size_t n);

/* Give the last whole page a snapshot, so that sequences which share or adopt
 * the pages up to it can go on after them. Does nothing without recurrent
 * layers, if the page has a snapshot, if the live state does not hold the
 * page's end (because the sequence went back and has not grown since), or if
 * memory is short. */
void kv_snapshot(struct kv_cache *kv);

/* Release the keys and values that no token from position kv->n - slack on
 * sees. Does nothing without window layers. kv_reserve calls it with KV_SLACK,
 * unless keeps_windows is set. */
void kv_release(struct kv_cache *kv, size_t slack);

/* Make dst's positions the first kv_usable(src, n) of src, n <= src->n, of the
 * same shape and kind. Full pages become shared; a partly used last page is
 * copied. The live state is shared until the next kv_reserve. On failure dst
 * does not change. */
int kv_share(struct kv_cache *dst, const struct kv_cache *src, size_t n,
             struct qwick_err *e);

/* Keep the first n_kept pages, which must be full, and append
 * pages[0..n_pages). n positions are then in use; the last page may be used in
 * part. With recurrent layers, n must be the end of a page that carries a
 * snapshot, and n_pages at least 1. The cache takes over the caller's
 * references to pages. On failure nothing changes. */
int kv_adopt(struct kv_cache *kv, size_t n_kept, struct kv_page *const *pages,
             size_t n_pages, size_t n, struct qwick_err *e);

/* Return a page of kv's size, all zeros, without a snapshot, with one
 * reference; NULL: no memory. */
struct kv_page *kv_page_new(const struct kv_cache *kv);
/* Return a new page with the first `used` positions of `from` and one
 * reference; NULL: no memory. */
struct kv_page *kv_page_copy(const struct kv_cache *kv,
                             const struct kv_page *from, size_t used);
/* Give a reference back. */
void kv_page_drop(const struct kv_cache *kv, struct kv_page *page);

/* Return the run of keys (values) of a block of KV_BLOCK positions. The layer
 * must have keys. */
static inline unsigned char *kv_keys(const struct kv_cache *kv, size_t block,
                                     size_t layer, size_t head)
{
    const struct kv_layer *l = &kv->shape->layers[layer];
    return kv->pages[block]->data + l->at + 2 * head * l->run_bytes;
}

static inline unsigned char *kv_values(const struct kv_cache *kv, size_t block,
                                       size_t layer, size_t head)
{
    return kv_keys(kv, block, layer, head) + kv->shape->layers[layer].run_bytes;
}

/* Bytes of memory in use: the live state, and pages with their snapshots.
 * Shared pages count, released memory does not. */
size_t kv_bytes(const struct kv_cache *kv);
/* The sequence's share of kv_bytes: a page that n sequences and caches hold
 * counts 1/n. */
size_t kv_fair_bytes(const struct kv_cache *kv);
/* Bytes of one page, with its snapshot if it has one. */
size_t kv_page_bytes(const struct kv_cache *kv, const struct kv_page *page);
/* Bytes that one position takes in pages. */
size_t kv_position_bytes(const struct kv_cache *kv);
/* Bytes of keys and values that a pass over n >= 1 tokens after pos others
 * reads. Each counts once. */
double kv_read_bytes(const struct kv_cache *kv, size_t pos, size_t n);
/* Bytes that a sequence of n positions takes at most, in a cache of this shape:
 * pages, live state and snapshots. SIZE_MAX if they overflow. */
size_t kv_sequence_bytes(const struct kv_cache *kv, size_t n);

#endif
