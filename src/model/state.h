/* The state of the recurrent layers (Gated DeltaNet) of one sequence, a part of
 * its struct kv_cache.
 *
 * Keys and values grow with the sequence, and a sequence can drop any number of
 * them. The state of a recurrent layer has a fixed size, and each position
 * changes all of it. So a layer writes it only once in DELTA_BLOCK positions.
 * Block b is the positions b * DELTA_BLOCK up to (b + 1) * DELTA_BLOCK, in
 * absolute terms, and has
 *
 *   a start  S and the tail of the convolution before the block's first
 *            position
 *   a log    what the layer needs of each position of the block to compute the
 *            state after it from the start
 *
 * The live state holds two blocks, a ring: block b is in half b % 2. These are
 * the block that the next position is in, and the one before it. So a sequence
 * can drop DELTA_BLOCK positions without any work: it does not read the log's
 * rows after the last position that stays. Going back further needs a snapshot:
 * a copy of the starts of all layers at the end of a page (KV_BLOCK positions,
 * a multiple of DELTA_BLOCK), which the page carries. The positions after the
 * snapshot must be computed again.
 *
 * Blocks begin at fixed positions. So a layer computes the same sums if the
 * positions come in one pass, in several, one by one, or again from a
 * snapshot. */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernel/kernel.h"
#include "model/config.h"

struct kv_cache;

_Static_assert(KV_BLOCK % DELTA_BLOCK == 0, "a page ends where a block ends");

/* Two halves. Sequences that are equal up to some position may share one until
 * one of them goes on. */
struct state_live {
    size_t refs; /* sequences that have it; changed by one thread at a time */
    _Alignas(64) float data[];
};

/* state.first when the live state holds nothing: a snapshot must be loaded
 * before the sequence goes on. */
#define STATE_NONE SIZE_MAX

struct state {
    struct delta_config delta;
    size_t n_layers; /* recurrent ones; 0: all functions do nothing */
    /* Floats, all multiples of a cache line. A start is [layer] of
     * [v head] of S, then the tail. A log is [layer] of qkv, then k by heads,
     * u by heads, g by heads. A half is a start, then a log. */
    size_t s_floats, start_floats, log_floats, half_floats;
    struct state_live *live; /* NULL: none yet */
    size_t first; /* the first block that the live state holds, or STATE_NONE */
};

/* Set the shapes, without a live state. QWICK_ERR_MODEL if sizes overflow. */
int state_init(struct state *s, const struct config *c, struct qwick_err *e);

/* Drop the live state. */
void state_free(struct state *s);

/* Prepare a sequence of n positions for a pass: give it a live state of its
 * own, a copy if it shared one. If the live state holds nothing, load the
 * snapshot, which is the start of block n / DELTA_BLOCK. If n is 0, the
 * snapshot may be NULL, because a layer zeroes the start of block 0 when it
 * computes position 0. Returns 0, or -1 with QWICK_ERR_MEMORY and the state
 * unchanged. */
int state_prepare(struct state *s, size_t n, const float *snapshot,
                  struct qwick_err *e);

/* Whether a sequence of n positions can go back to `to` positions without a
 * snapshot, to <= n: the live state has the state after them, or `to` is 0. */
bool state_holds(const struct state *s, size_t n, size_t to);

/* Record that the layers have computed the sequence up to n positions. */
void state_advance(struct state *s, size_t n);

/* Record that a pass over positions [n, end) was stopped: some layers have
 * computed them and some have not. Returns whether every layer still has the
 * state after n positions. If not, the live state holds nothing from now on. */
bool state_stop(struct state *s, size_t n, size_t end);

/* Record that a sequence of n positions went back to its first `to` positions.
 * If the live state does not have the state after them, it holds nothing from
 * now on. */
void state_go_back(struct state *s, size_t n, size_t to);

/* Make dst the state after the first `to` positions of src, a sequence of n,
 * without a copy. dst can go back to the same positions as src. If src does not
 * have that state, dst holds nothing. */
void state_share(struct state *dst, const struct state *src, size_t n,
                 size_t to);

/* Bytes of a live state, of a snapshot, and of the output of state_pack; 0
 * without recurrent layers. */
size_t state_live_bytes(const struct state *s);
size_t state_snapshot_bytes(const struct state *s);
size_t state_packed_bytes(const struct state *s);
/* Bytes that state_prepare would allocate. */
size_t state_missing_bytes(const struct state *s);

/* Allocate a snapshot: the start of a block, for all layers. Its values are
 * undefined. NULL: no memory. */
float *state_snapshot_new(const struct state *s);
void state_snapshot_free(const struct state *s, float *snapshot);

/* Copy the start of block b, which the live state holds, to a snapshot. */
void state_save(const struct state *s, size_t block, float *snapshot);

/* Write the block of position n of a sequence of n positions to packed. The
 * live state must have it. Rows of its log that are not in use become zeros. */
void state_pack(const struct state *s, size_t n, float *packed);

/* Give the sequence a live state of its own that holds the block of position n,
 * and return where that block is, for the caller to fill in the form of
 * state_pack. NULL: no memory, and *e is set. */
float *state_unpack(struct state *s, size_t n, struct qwick_err *e);

/* ---- for layers ----------------------------------------------------------
 *
 * The arrays of a recurrent layer, where `layer` counts all layers of the
 * model. All are 64-byte aligned. kv_reserve prepares them for a pass,
 * during which they do not move. Threads may read and
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
/* f32 [DELTA_BLOCK][d_v]: the vectors that the delta rule adds to a value
 * head's state, one for each position of the block. */
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
