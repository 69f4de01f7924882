/* The kinds of KV cache: how keys and values are stored, one row each. */
#ifndef MODEL_KV_KIND_H
#define MODEL_KV_KIND_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/kernel.h"
#include "qwick.h"

/* A run of KV_BLOCK positions of the keys or values of a head is
 * [position][elements of a head], followed by [position][scales of groups of
 * KV_I8_GROUP elements]. Runs are 64-byte aligned. */
struct kv_kind {
    const char *name;   /* in --kv, in reports and in files */
    size_t bits;        /* of an element */
    size_t scale_bytes; /* 0: no scales */
    enum kv_form form;  /* of the blocks that attention's kernels read */
    bool rotates;       /* keys, values and queries of a head are multiplied by
                           kernels' `hadamard`, and so are attention's results.
                           Scores stay the same but for rounding */

    /* Round x f32 [d] into position `slot` of a run. */
    void (*store)(const struct kv_kind *kind, const struct kernels *k,
                  unsigned char *run, size_t slot, const float *x, size_t d);
    /* Expand a run to a block of `form`, both 64-byte aligned. NULL: a run is
     * such a block. */
    void (*expand)(const struct kernels *k, void *out, const void *run,
                   size_t d);
};

/* Return a kind; NULL for QWICK_KV_DEFAULT and for numbers that are none. */
const struct kv_kind *kv_kind(enum qwick_kv kv);

/* Return the bytes of one position's elements, of heads of d elements. */
static inline size_t kv_kind_elements(const struct kv_kind *kind, size_t d)
{
    return (d * kind->bits + 7) / 8;
}

/* Return the bytes of one position's scales. */
static inline size_t kv_kind_scales(const struct kv_kind *kind, size_t d)
{
    return kv_i8_groups(d) * kind->scale_bytes;
}

#endif
