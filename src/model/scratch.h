/* Memory that a forward pass works in. */
#ifndef MODEL_SCRATCH_H
#define MODEL_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

/* In passes of up to this many tokens, every thread normalises (and rounds) all
 * tokens for itself, which costs less than a barrier. */
#define SCRATCH_PRIVATE_TOKENS 4

/* Query rows (heads of one group times tokens) in a tile of attention, which
 * reads keys and values once. Tiles are larger where keys and values are packed
 * first (see also kernel_tuning.attn_tile_rows). */
#define ATTN_TILE_ROWS   64
#define ATTN_PACKED_ROWS 256

/* Positions in a segment of the softmax. Each segment is summed separately, by
 * any thread, and the segments are merged in order. */
#define ATTN_SEGMENT 1024

/* Floats in a panel of weight rows widened to f32; small enough for a core's L2
 * cache. */
#define PANEL_FLOATS (160u * 1024)

/* Results of gate_proj and up_proj that a thread keeps in its cache until it
 * combines them: of GATED_ROWS rows at a time, or of a whole group of quantized
 * weights; of more rows when there are few tokens. */
#define GATED_ROWS   64
#define GATED_FLOATS (GATED_ROWS * 512)

/* Results of products with pairs of bf16 numbers that a thread keeps in its
 * cache until it has added both halves. */
#define SCRATCH_PAIRS_FLOATS (64u * 512)

/* Rows of activations that a thread puts into another order at a time. */
#define SCRATCH_ORDERED_TOKENS 8

/* Results of adapters that a thread keeps in its cache until it has added
 * them. */
#define SCRATCH_LORA_FLOATS 8192

/* Rows of activations that a thread gathers at a time: enough for all tokens of
 * an expert in a pass of the default length. */
#define SCRATCH_GATHER_ROWS 512

/* The experts of each token of a pass. */
struct choice {
    uint32_t *expert; /* [tokens, n_active] most likely first */
    float *weight;    /* [tokens, n_active] */
};

/* A pass's tokens, sorted by expert. A slot is one token at one of its
 * experts; slots are in ascending order of expert, then of token. */
struct routing {
    uint32_t *first;  /* [n_experts + 1] slots [first[e], first[e + 1]) belong
                         to expert e */
    uint32_t *active; /* [n_experts] experts that have slots, ascending */
    size_t n_active;
    uint32_t *token; /* [slots] */
    float *weight;   /* [slots] */
};

/* State of a running softmax for some query rows. */
struct softmax {
    float *m, *l; /* [rows] */
    float *acc;   /* [rows, head_dim of the layer] */
};

/* Memory of one thread for a key head of Gated DeltaNet and DELTA_BLOCK
 * tokens. */
struct delta_scratch {
    float *q, *k;   /* [DELTA_BLOCK, d_k] */
    float *kk, *qk; /* [DELTA_BLOCK, DELTA_BLOCK] */
    float *v, *o;   /* [DELTA_BLOCK, d_v] of one value head */
    float *work;    /* [delta_scratch] of delta_rows */
};

/* Tokens [first, last) of the pass, of one span, whose query rows go through
 * attention together; results from row `out` on. */
struct attn_tile {
    uint32_t span, first, last, out;
};

/* The tiles of a pass in layers with this number of KV heads. */
struct attn_plan {
    size_t n_kv_heads; /* 0: the layer has no attention, and no tiles */
    bool kept;         /* of layers after last_stored: tokens count among those
                          that are kept */
    size_t n;
    struct attn_tile *tiles; /* [cap] */
};

/* Of one thread. All 64-byte aligned. */
struct thread_scratch {
    float *xn;      /* [SCRATCH_PRIVATE_TOKENS, d_model] normalised */
    uint16_t *xn16; /* the same, rows gemm_bf16_ldx apart */
    struct q8 x8;   /* [SCRATCH_PRIVATE_TOKENS, widest input] */
    float *ordered; /* [SCRATCH_ORDERED_TOKENS, longest row] activations in the
                       order of a matrix's columns */
    float *panel;   /* [panel_rows, longest row] weights as f32 */
    float *work;    /* [KERNEL_WORK + KERNEL_BLOCKS_WORK] */
    float *attn;    /* work memory of attn_block for a tile */
    unsigned char *expanded; /* [2 * ATTN_BF16_BLOCKS] blocks of a cache whose
                                kind expands them */
    struct softmax part, total; /* [the most rows of a tile] */
    int *lo, *hi;               /* the same */
    float *gate, *up;           /* [GATED_FLOATS] */
    float *lora_y; /* [SCRATCH_LORA_FLOATS] of models with adapters */
    /* where products take activations as pairs of bf16 numbers: */
    uint16_t *pairs; /* [2 * precise_tokens, widest input] */
    float *pairs_y;  /* [SCRATCH_PAIRS_FLOATS, or the widest input] */
    /* of models with experts: */
    struct choice choice;       /* [SCRATCH_PRIVATE_TOKENS, n_active] */
    struct routing routing;     /* of the layer */
    float *rows;                /* [SCRATCH_GATHER_ROWS, d_model] gathered */
    uint16_t *rows16;           /* the same in bf16 */
    struct q8 rows8;            /* and in int8 */
    struct delta_scratch delta; /* empty without Gated DeltaNet */
    /* of models with per-layer embeddings: */
    float *ple;      /* [n_layers * ple_dim] */
    float *ple_gate; /* [SCRATCH_PRIVATE_TOKENS, ple_dim] */
};

/* Floats from row to row of the inputs and results of products: an odd number
 * of cache lines, which spreads a column over all sets of a cache. */
static inline size_t scratch_ld(size_t n_cols)
{
    return (((n_cols + 15) / 16) | 1) * 16;
}

/* Cosines and sines of the tokens' positions, for one rotary embedding. */
struct angles {
    float *cos, *sin; /* [cap, n_rot / 2] */
};

struct scratch {
    size_t cap;          /* tokens that the buffers hold */
    size_t cap_segments; /* of positions, in `split` */
    /* rows scratch_ld apart: */
    float *x;         /* [cap, d_model] residual stream */
    float *proj;      /* [cap, d_model] of o_proj and down_proj */
    /* of the layer with the most: */
    float *q;         /* [cap, n_heads * head_dim], twice as wide with gates */
    float *k, *v;     /* [cap, n_kv_heads * head_dim] */
    float *xn;        /* [cap, d_model] normalised */
    float *attn;      /* [cap, n_heads * head_dim], or the results of Gated
                         DeltaNet [cap, n_v_heads * d_v] */
    float *gate, *up; /* [cap, d_ff] of dense layers and shared experts; gate
                         also [cap, ple_dim] */
    float *ple;       /* [cap, n_layers * ple_dim] */
    /* of Gated DeltaNet layers, before the convolution: the products with
       delta.inputs, [cap, rows of the matrix] */
    float *delta[DELTA_INPUTS];
    /* contiguous: */
    float *qr;      /* q by [kv head][token][head of the group] */
    uint16_t *qr16; /* the same in bf16 */
    struct angles angles[CONFIG_MAX_ROPES];
    /* bf16, rows gemm_bf16_ldx apart; NULL where the level cannot use them */
    uint16_t *xn16, *attn16, *gate16;
    struct q8 xn8, attn8, gate8; /* NULL inside without quantized weights */
    /* of models with adapters: f * (A x) of the layer's matrices, in f32 and
       bf16; and the runs of tokens with one adapter */
    float *lora;      /* [cap, loras.cols], rows lora_ld apart */
    uint16_t *lora16, *lora16_rest; /* likewise, as sums of two numbers */
    size_t lora_ld;
    struct lora_run *lora_runs; /* [2 * cap] */
    /* of models with experts: */
    float *router;           /* [cap, n_experts] scores, then probabilities */
    float *shared_weight;    /* [cap] of the shared expert's results */
    struct choice choice;    /* [cap, n_active] */
    float *expert_gate;      /* [slots, d_ff of an expert] */
    uint16_t *expert_gate16; /* the same in bf16, or as pairs: [2 * slots, …] */
    struct q8 expert_gate8; /* and in int8 */
    /* of each token: its position, span, and index among those kept after the
     * keys of layer last_stored */
    size_t *pos;
    uint32_t *span, *kept;
    uint32_t *token; /* of each kept one */
    struct attn_plan *plans; /* [n_plans] one of each number of KV heads before
                                and after layer last_stored */
    size_t n_plans;
    struct attn_plan last; /* of layer last_stored */
    struct softmax split;  /* [cap_segments, n_heads] where heads are few */
    void *shared;          /* the allocation behind the above */
    int n_threads;
    struct thread_scratch *threads;
    void *private;
    double weight_bytes; /* of weights that all passes so far have read */
};

int scratch_create(struct scratch **out, const struct model *m,
                   struct qwick_err *e);
void scratch_free(struct scratch *s);

/* Make room for passes of n tokens over caches of up to n_ctx positions. On
 * failure s is as before. */
int scratch_reserve(struct scratch *s, const struct model *m, size_t n,
                    size_t n_ctx, struct qwick_err *e);

/* Compute the bytes that a scratch takes at most for passes of n tokens over
 * caches of up to n_ctx positions. Only QWICK_ERR_MEMORY can fail. */
int scratch_predict(size_t *bytes, const struct model *m, size_t n,
                    size_t n_ctx, struct qwick_err *e);

/* Rows of a weight matrix that fit a panel, at least 16. */
size_t scratch_panel_rows(size_t n_cols);

/* Return how many tokens' rows of one KV head, or KV heads of one token, are in
 * a tile that is not packed. At least one: a group of query heads may have more
 * rows than a tile aims at. */
static inline size_t scratch_tile_groups(size_t group)
{
    return group < ATTN_TILE_ROWS ? ATTN_TILE_ROWS / group : 1;
}

/* Return the most rows of a packed tile, whole groups. */
static inline size_t scratch_packed_rows(const struct model *m, size_t group)
{
    size_t rows = m->k->tune.attn_tile_rows;
    return rows < group ? group : rows / group * group;
}

/* Whether a decode step's attention with these KV heads may also be split by
 * positions. */
static inline bool scratch_splits_heads(const struct model *m,
                                        size_t n_kv_heads)
{
    return m->n_threads > 1 && n_kv_heads < 2 * (size_t)m->n_threads;
}

/* Whether that of some layer may. */
bool scratch_splits(const struct model *m);

#endif
