/* Memory that a forward pass works in. */
#ifndef MODEL_SCRATCH_H
#define MODEL_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

/* Passes of up to this many tokens normalise on every thread for itself, which
 * costs less than the barrier that it saves. */
#define SCRATCH_PRIVATE_TOKENS 2

/* Query rows (heads of one group times tokens) that share a pass over the
 * keys and values. */
#define ATTN_TILE_ROWS 64

/* Floats of one converted panel of weight rows: stays in a core's L2 cache. */
#define PANEL_FLOATS (160u * 1024)

/* Rows of gate_proj and up_proj, and tokens, whose products a thread keeps in
 * its cache until they are one. */
#define GATED_ROWS   64
#define GATED_TOKENS 512

/* Of one thread. All 64-byte aligned. */
struct thread_scratch {
    float *xn;        /* [SCRATCH_PRIVATE_TOKENS, d_model] normalised */
    float *panel;     /* [panel_rows, longest row] weights as f32 */
    float *head;      /* [head_dim] one key before it is rounded */
    float *attn;      /* attn_scratch() of a tile */
    float *m, *l;     /* [tile rows] */
    float *acc;       /* [tile rows, head_dim] */
    int *lo, *hi;     /* [tile rows] */
    float *gate, *up; /* [GATED_TOKENS, GATED_ROWS] */
};

struct scratch {
    size_t cap;       /* tokens that the buffers hold */
    float *x;         /* [cap, d_model] residual stream */
    float *xn;        /* [cap, d_model] normalised */
    float *proj;      /* [cap, d_model] of o_proj and down_proj */
    float *q;         /* [cap, n_heads * head_dim] */
    float *qr;        /* the same by [kv head][token][head of the group] */
    float *k, *v;     /* [cap, n_kv_heads * head_dim] */
    float *attn;      /* [cap, n_heads * head_dim] */
    float *gate, *up; /* [cap, d_ff] */
    float *cos, *sin; /* [cap, head_dim / 2] */
    /* bf16, rows gemm_bf16_ldx apart; NULL where the level cannot use them */
    uint16_t *xn16, *attn16, *gate16;
    void *shared;     /* the allocation behind the above */
    size_t tile_rows; /* a whole number of groups */
    int n_threads;
    struct thread_scratch *threads;
    void *private;
};

int scratch_create(struct scratch **out, const struct model *m,
                   struct qwick_err *e);
void scratch_free(struct scratch *s);

/* Make room for passes of n tokens. On failure s is as before. */
int scratch_reserve(struct scratch *s, const struct model *m, size_t n,
                    struct qwick_err *e);

/* Rows of a weight matrix that fit a panel, at least 16. */
size_t scratch_panel_rows(size_t n_cols);

#endif
