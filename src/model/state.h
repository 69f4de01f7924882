/* The state of the recurrent layers (Gated DeltaNet) of one sequence, a part of
 * its struct kv_cache.
 *
 * Keys and values grow with the sequence and any number of them can be dropped.
 * The state of a recurrent layer has a fixed size, and each position changes
 * all of it. So a layer writes it only once in DELTA_BLOCK positions. Block b
 * is the positions b * DELTA_BLOCK up to (b + 1) * DELTA_BLOCK, in absolute
 * terms, and has
 *
 *   a start  S and the tail of the convolution before the block's first
 *            position
 *   a log    what the layer needs of each position of the block to compute the
 *            state after it from the start
 *
 * The live state holds two blocks, a ring: block b is in half b % 2. These are
 * the block that the next position is in, and the one before it. So a sequence
 * can drop DELTA_BLOCK positions for nothing: the log's rows after the last
 * position that stays are not read. Going back further needs a snapshot: a copy
 * of the starts of all layers at the end of a page (KV_BLOCK positions, a
 * multiple of DELTA_BLOCK), which the page carries. The positions after the
 * snapshot must be computed again.
 *
 * Blocks begin at fixed positions. So a layer computes the same sums however
 * the positions come: in one pass, in several, one by one, or again from a
 * snapshot. */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"

struct kv_cache;

_Static_assert(KV_BLOCK % DELTA_BLOCK == 0, "a page ends where a block ends");

struct state {
    struct delta_config delta;
    size_t n_layers; /* recurrent ones; 0: all functions do nothing */
    /* Floats, all multiples of a cache line. A start is [layer] of
     * [v head] of S, then the tail. A log is [layer] of qkv, then k by heads,
     * u by heads, g by heads. A half is a start, then a log. */
    size_t s_floats, start_floats, log_floats, half_floats;
    float *live;  /* two halves; NULL: not allocated yet */
    size_t first; /* the first block that the live state holds */
};

/* Set the shapes, without memory for a live state. QWICK_ERR_MODEL if sizes
 * overflow. */
int state_init(struct state *s, const struct config *c, struct qwick_err *e);

/* Allocate the live state unless it is there already. Its contents are
 * undefined, and it holds block 0: a layer itself zeroes the start of block 0
 * when it computes position 0. QWICK_ERR_MEMORY. */
int state_reserve(struct state *s, struct qwick_err *e);

/* Free the live state. */
void state_free(struct state *s);

/* Whether the live state of a sequence of n positions holds the state after its
 * first `to` positions, to <= n. */
bool state_holds(const struct state *s, size_t n, size_t to);

/* The sequence grew to n positions, which the layers have computed. */
void state_advance(struct state *s, size_t n);

/* A pass over positions [n, end) was stopped: some layers have computed them
 * and some have not. Returns whether the state after n positions is still there
 * in every layer. If not, the live state holds nothing until state_load, or
 * until the caller sets `first` to 0 to begin again. */
bool state_stop(struct state *s, size_t n, size_t end);

/* Make dst's live state, which has been reserved, the state of src after its
 * first n positions, which src holds. dst can go back as far as src can. */
void state_copy(struct state *dst, const struct state *src, size_t n);

/* Bytes of a live state and of a snapshot; 0 without recurrent layers. */
size_t state_live_bytes(const struct state *s);
size_t state_snapshot_bytes(const struct state *s);

/* A snapshot: the start of a block, for all layers. NULL: no memory. What it
 * holds is undefined. */
float *state_snapshot_new(const struct state *s);
void state_snapshot_free(const struct state *s, float *snapshot);

/* Copy the start of block b, which the live state holds, to a snapshot. */
void state_save(const struct state *s, size_t block, float *snapshot);

/* Make the snapshot the start of block b. The live state, which has been
 * reserved, then holds the state after b * DELTA_BLOCK positions and no earlier
 * ones. */
void state_load(struct state *s, size_t block, const float *snapshot);

/* ---- for layers ----------------------------------------------------------
 *
 * The arrays of a recurrent layer, where `layer` counts all layers of the
 * model. All are 64-byte aligned. They are where they are until the cache is
 * reserved, truncated, shared into or freed (kv_cache.h). Threads may read and
 * write different arrays at the same time. */

/* f32 [d_k][d_v]: the state of a value head before the block. */
float *state_s(const struct kv_cache *kv, size_t block, size_t layer,
               size_t v_head);
/* f32 [conv - 1][channels]: the rows that enter the convolution, before the
 * block, in order of positions; zeros before position 0. */
float *state_tail(const struct kv_cache *kv, size_t block, size_t layer);
/* f32 [DELTA_BLOCK][channels]: the block's rows that enter the convolution. */
float *state_qkv(const struct kv_cache *kv, size_t block, size_t layer);
/* f32 [DELTA_BLOCK][d_k]: the block's keys of a key head, normalised. */
float *state_k(const struct kv_cache *kv, size_t block, size_t layer,
               size_t k_head);
/* f32 [DELTA_BLOCK][d_v]: what the block's positions add to a value head's
 * state, by the delta rule. */
float *state_u(const struct kv_cache *kv, size_t block, size_t layer,
               size_t v_head);
/* f32 [DELTA_BLOCK]: the block's logarithms of a value head's decay. */
float *state_g(const struct kv_cache *kv, size_t block, size_t layer,
               size_t v_head);

/* The snapshot that a page of the cache carries, of the start of block
 * (page + 1) * KV_BLOCK / DELTA_BLOCK, in the forms of state_s and state_tail.
 * NULL if the page carries none. The layer that computes the page's last
 * position writes it. */
float *state_snapshot_s(const struct kv_cache *kv, size_t page, size_t layer,
                        size_t v_head);
float *state_snapshot_tail(const struct kv_cache *kv, size_t page,
                           size_t layer);

#endif
