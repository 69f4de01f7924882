/* Compute kernels: one table of functions, filled once by level. All are
 * serial, work on any n and any alignment, allocate nothing and cannot fail.
 * They fit threads with small stacks: a frame has at most 32 KiB, what is
 * larger is the caller's memory.
 * k_ref.c is the truth; k_<isa>.c must agree with it within bounds derived from
 * the arithmetic (tests/check_kernels.c).
 *
 * One order of sums. On one level, what a kernel computes for one row of
 * weights and one token (or one query) is the same bit by bit whatever the
 * number of rows, tokens or queries in the call. The engine's --exact mode
 * rests on that. Products in bf16 and int8, which it does not use, promise
 * less. */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/dtype.h"

/* Positions of keys and values in one KV block (a page of the cache). */
#define KV_BLOCK 64

/* Query rows that meet one KV block in attn_block. Row i belongs to some head
 * and token; it attends to positions [lo[i], hi[i]) of the block, none when
 * lo[i] >= hi[i] (causality, sliding windows and partly filled blocks). */
struct attn_rows {
    const float *q; /* row i at q + i * ldq: f32 [head_dim], scaled already */
    const uint16_t
        *q16; /* the same in bf16, for attn_blocks_bf16 instead of q */
    size_t ldq;
    size_t n;           /* rows */
    const int *lo, *hi; /* [n], 0 <= lo, hi <= KV_BLOCK */
    float *m;   /* [n] running maximum of scores, -INFINITY at the start */
    float *l;   /* [n] running sum of exp(score - m), 0 at the start */
    float *acc; /* row i at acc + i * head_dim: sum of exp(score - m) * v */
    const void *next; /* keys of the call that follows, to be fetched ahead;
                         NULL: what lies behind these values */
};

/* Rows of a matrix whose weights are quantized by groups of consecutive
 * elements of a row (MLX's affine mode, mlx.core.quantize):
 *
 *   w[r, k] = q[r, k] * scales[r, k / group] + biases[r, k / group]
 *
 * q is unsigned; a row is one stream of bits, least significant first, so that
 * element k has bits [k * bits, (k + 1) * bits) of it. n_cols is a multiple of
 * group. Scales may be negative. Nothing is aligned. */
struct affine {
    const unsigned char *q;               /* row r at q + r * q_stride */
    size_t q_stride;                      /* bytes: n_cols * bits / 8 */
    const unsigned char *scales, *biases; /* row r at + r * sb_stride */
    size_t sb_stride;                     /* bytes */
    enum dtype sb_type;                   /* F32, F16 or BF16, of both */
    int bits;                             /* 2, 3, 4, 5, 6 or 8 */
    size_t group;                         /* 32, 64 or 128 */
};

/* Activations rounded to int8 by the same groups: x[t, k] is about
 * q[t * ldq + k] * scale[t * ldg + k / group], |q| <= 127. */
struct q8 {
    int8_t *q;    /* 64-byte aligned, ldq a multiple of 64: whole lines may be
                     read, what lies behind n_cols is 0 */
    float *scale; /* largest magnitude of the group / 127 */
    float *sum;   /* scale * sum of the group's q: what biases multiply */
    size_t ldq, ldg;
    size_t group;
};

/* Elements of keys or values that share a scale in an int8 cache. */
#define KV_Q8_GROUP 32

/* Which way of computing is the fastest, as it was measured: the one record of
 * what a level and a CPU's make ask for. A caller asks this record and never
 * which level it runs on. */
struct kernel_tuning {
    bool bf16; /* products and long attention in bf16 pay, where weights are */
    size_t bf16_min_tokens;
    bool blas; /* OpenBLAS outruns sgemm_nt, for passes of so much work: */
    size_t blas_min_tokens;
    double blas_min_flops;
    const char *blas_coretype; /* the OPENBLAS_CORETYPE to load it with; NULL:
                                  as it finds out by itself */
    bool sgemm; /* sgemm_nt outruns matmul from so many tokens on */
    size_t sgemm_min_tokens;
    size_t sgemm_any_tokens; /* fewer: only if few are missing to eights */
    size_t attn_tile_rows;   /* most query rows of a tile of long prefills */
    double row_cost; /* of one token more in a short pass, against AVX-512's;
                        0: as much as a pass of its own */
};

struct kernels {
    enum isa level; /* for kernel/ and its tests */
    const char *name;
    struct kernel_tuning tune;

    /* y[t * ldy + r] = sum over k of w[r, k] * x[t * ldx + k], f32 arithmetic.
     *   w  [n_rows, n_cols] of the dtype, row-major, rows w_stride elements
     *      apart, any alignment
     *   x  f32 [n_tokens, n_cols], rows ldx apart
     *   y  f32, n_rows values a token, tokens ldy apart
     *   work  as of all products: [KERNEL_WORK], 64-byte aligned, overwritten
     * Skinny products: decode, short prompts, and all of --exact. */
    void (*matmul[DT_N_FLOAT])(float *y, size_t ldy, const void *w,
                               size_t w_stride, const float *x, size_t ldx,
                               size_t n_rows, size_t n_cols, size_t n_tokens,
                               float *work);

    /* Widen n stored values to f32, exactly. */
    void (*to_f32[DT_N_FLOAT])(float *out, const void *in, size_t n);
    /* Round n values to the type, to nearest even; f32 copies. NaN stays NaN,
     * f16 overflows to infinity. */
    void (*from_f32[DT_N_FLOAT])(void *out, const float *in, size_t n);

    /* RMS-normalise each row and scale by w (Qwen3RMSNorm in transformers):
     * out = w * x / sqrt(mean(x^2) + eps).
     *   out, x  f32 [n_rows, d], row-major, may alias     w  f32 [d] */
    void (*rmsnorm)(float *out, const float *x, const float *w, size_t n_rows,
                    size_t d, float eps);

    /* Rotate n_rows heads in place (rotate_half; Su et al. 2021, NeoX pairs i
     * and i + d/2): x[i] = x[i] cos[i] - x[i+h] sin[i],
     * x[i+h] = x[i+h] cos[i] + x[i] sin[i], h = d / 2.
     *   x  f32 [n_rows, d]     cos, sin  f32 [d / 2] of one position */
    void (*rope)(float *x, size_t n_rows, size_t d, const float *cos,
                 const float *sin);

    /* out = silu(gate) * up, silu(z) = z / (1 + exp(-z)). May alias. */
    void (*swiglu)(float *out, const float *gate, const float *up, size_t n);

    /* x += y */
    void (*add)(float *x, const float *y, size_t n);
    /* x *= a */
    void (*scale)(float *x, float a, size_t n);

    /* Fold one KV block into the running softmax of the rows (online softmax,
     * Milakov and Gimelshein 2018; FlashAttention, Dao et al. 2022).
     *   k, v     [KV_BLOCK, head_dim] of the dtype (F32 or F16), contiguous;
     *            positions outside [lo, hi) are never read into a result, they
     *            may hold anything
     *   scratch  f32 [attn_scratch(n, head_dim)], 64-byte aligned */
    void (*attn_block[DT_N_FLOAT])(const struct attn_rows *rows, const void *k,
                                   const void *v, size_t head_dim,
                                   float *scratch);

    /* The same for 1 <= n_blocks <= ATTN_BF16_BLOCKS blocks that follow each
     * other (0 <= lo, hi <= n_blocks * KV_BLOCK) and with both products in bf16
     * (queries, keys, values and exponentials rounded to it, sums in f32), for
     * prefill's tiles of hundreds of rows; NULL below avx512bf16. Reads
     * rows->q16, not q; acc may hold anything where m is -INFINITY.
     *   k, v     of each block, as above
     *   scratch  f32 [attn_bf16_scratch(n, head_dim)], 64-byte aligned */
    void (*attn_blocks_bf16[DT_N_FLOAT])(const struct attn_rows *rows,
                                         const void *const *k,
                                         const void *const *v, size_t n_blocks,
                                         size_t head_dim, float *scratch);

    /* attn_block on an int8 cache: k and v are int8 [KV_BLOCK, head_dim] with
     * f32 scales [KV_BLOCK, kv_q8_groups(head_dim)] behind them; element i of
     * position j is k[j, i] * scale[j, i / KV_Q8_GROUP]. */
    void (*attn_block_q8)(const struct attn_rows *rows, const void *k,
                          const void *v, size_t head_dim, float *scratch);

    /* attn_block for prefill's tiles of many rows: any order of sums,
     * exponentials below exp(-87) may be 0, keys and values are packed before
     * use. What it computes for a row depends on the others only where values
     * are not finite. attn_tile_q8 is to attn_block_q8 what this is to
     * attn_block: the same bits as from the widened block.
     *   scratch  f32 [attn_tile_scratch(n, head_dim)], 64-byte aligned */
    void (*attn_tile[DT_N_FLOAT])(const struct attn_rows *rows, const void *k,
                                  const void *v, size_t head_dim,
                                  float *scratch);
    void (*attn_tile_q8)(const struct attn_rows *rows, const void *k,
                         const void *v, size_t head_dim, float *scratch);

    /* Round n values to int8 by groups of KV_Q8_GROUP (the last may be short),
     * to nearest even: scale = largest magnitude / 127, 0 for a group of
     * zeros. */
    void (*to_kv_q8)(int8_t *q, float *scales, const float *x, size_t n);

    /* Largest value of x[0..n), n >= 1; NaN are skipped (all NaN: -INFINITY).
     */
    float (*max)(const float *x, size_t n);

    /* out[i] = exp((x[i] - shift) * scale) and their sum in double, in one
     * fixed order; out may alias x or be NULL. x = -INFINITY gives 0. */
    double (*exp_sum)(float *out, const float *x, size_t n, float shift,
                      float scale);

    /* C[m, n] = A[m, k] * B[n, k]^T in f32: prefill and batches where there is
     * no BLAS or it is slower. Any order of sums, the same for every row of A
     * and B; it may depend on k and, up to SGEMM_FEW, on m.
     *   a     f32, c f32, row-major, rows lda and ldc floats apart; an odd
     *         number of cache lines is the fastest
     *   b     weights of the table's type, rows ldb elements apart, widened on
     *         their way; rows in multiples of SGEMM_ROWS are the fastest
     * Blocked as in Goto and van de Geijn 2008. */
    void (*sgemm_nt[DT_N_FLOAT])(float *c, size_t ldc, const float *a,
                                 size_t lda, const void *b, size_t ldb,
                                 size_t m, size_t n, size_t k, float *work);

    /* y[t * ldy + r] = sum over k of w[r, k] * x[t * ldx + k], added to what y
     * holds if add: f32 sums of products of bf16. Prefill on avx512bf16; the
     * levels from AVX2 on that lack the instruction have NULL.
     *   w  bf16 as in matmul; x bf16 [n_tokens, n_cols], any alignment, rows
     *      ldx apart, gemm_bf16_ldx(n_cols) being the fastest
     *   y  as in matmul
     * Subnormal operands, products and sums may count as 0. A row's value may
     * depend on n_tokens and n_cols, never on the other rows or tokens. Few
     * tokens stream w once; for hundreds, rows in multiples of GEMM_BF16_ROWS
     * are the fastest. */
    void (*gemm_bf16)(float *y, size_t ldy, const void *w, size_t w_stride,
                      const void *x, size_t ldx, size_t n_rows, size_t n_cols,
                      size_t n_tokens, bool add, float *work);

    /* Widen quantized rows: out f32 [n_rows, n_cols], q * scale rounded, then
     * + bias rounded, the same bits at every level. */
    void (*affine_to_f32)(float *out, const struct affine *w, size_t n_rows,
                          size_t n_cols);

    /* matmul on quantized weights: f32 arithmetic, one order of sums, x f32.
     * All of --exact. */
    void (*matmul_affine)(float *y, size_t ldy, const struct affine *w,
                          const float *x, size_t ldx, size_t n_rows,
                          size_t n_cols, size_t n_tokens, float *work);

    /* Round activations for matmul_q8, to nearest even, into rows of out whose
     * group is set. x f32 [n_tokens, n_cols]; n_cols a multiple of group. A
     * group of zeros has scale 0. */
    void (*to_q8)(const struct q8 *out, const float *x, size_t ldx,
                  size_t n_cols, size_t n_tokens);

    /* The product in integers: y[t * ldy + r] (added to what y holds if add) =
     * sum over groups g of
     *   scales[r, g] * x.scale[t, g] * sum of q[r, k] * x.q[t, k] in g
     *   + biases[r, g] * x.sum[t, g]
     * with exact integer sums and f32 ones over groups. x.group == w.group.
     * For one token it streams w once; for hundreds it is a blocked product,
     * fastest with rows in multiples of MATMUL_Q8_ROWS. What it computes for
     * one row and token may depend on n_tokens (single: decode; more), never on
     * the rows in the call. */
    void (*matmul_q8)(float *y, size_t ldy, const struct affine *w,
                      const struct q8 *x, size_t n_rows, size_t n_cols,
                      size_t n_tokens, bool add, float *work);

    /* gemm_bf16 on quantized weights, which are widened and rounded to bf16 on
     * the way: prefill where such products outrun integer ones by far (amx);
     * NULL elsewhere. */
    void (*gemm_bf16_affine)(float *y, size_t ldy, const struct affine *w,
                             const void *x, size_t ldx, size_t n_rows,
                             size_t n_cols, size_t n_tokens, bool add,
                             float *work);

    /* Sum of n bytes as 64-bit words, for measuring read bandwidth. */
    unsigned long long (*read_sum)(const void *p, size_t n);
    /* Run multiply-adds on registers only; returns floating-point operations
     * done (a multiply-add is two), about 1e7 * reps of them. *sink receives a
     * value so that nothing is optimised away. */
    double (*peak_flops)(size_t reps, float *sink);
    /* The same of gemm_bf16's multiply-adds; NULL but on avx512bf16. */
    double (*peak_bf16)(size_t reps, float *sink);
    /* The same of matmul_q8's multiply-adds of long prefills. */
    double (*peak_q8)(size_t reps, float *sink);
};

/* How a sweep over weights that are in memory fetches ahead: how far, in bytes
 * (the hardware's own prefetchers stop at each page), and how near. Set with
 * the tables. */
struct kernel_sweep {
    size_t ahead;
    bool to_l2; /* and not to L1 */
};
extern struct kernel_sweep kernel_sweep;

/* Rows of weights that gemm_bf16 takes at a time. */
#define GEMM_BF16_ROWS 64

/* Rows of b that sgemm_nt packs at a time, and rows of a that may be few to it.
 */
#define SGEMM_ROWS 512
#define SGEMM_FEW  48

/* Floats that a product works in. */
#define KERNEL_WORK (128u * 1024)

/* Rows of weights that matmul_q8 takes at a time for many tokens. */
#define MATMUL_Q8_ROWS 64

/* An odd number of cache lines from token to token: they spread over all sets
 * of a cache. */
static inline size_t gemm_bf16_ldx(size_t n_cols)
{
    return (((n_cols + 31) / 32) | 1) * 32;
}

static inline size_t attn_scratch(size_t n_rows, size_t head_dim)
{
    /* one block of keys or values as f32, and the rows' scores */
    return KV_BLOCK * head_dim * 2 + n_rows * KV_BLOCK + 64;
}

/* For attn_tile. */
#define ATTN_TILE_BATCH 48
static inline size_t attn_tile_scratch(size_t n_rows, size_t head_dim)
{
    /* scores of some rows, keys and values as f32 and as panels; or
     * attn_block's */
    return KV_BLOCK * (ATTN_TILE_BATCH + 2 * (2 * head_dim + 16)) +
           attn_scratch(n_rows, 0);
}

/* Blocks and rows that attn_blocks_bf16 takes at a time, at most. */
#define ATTN_BF16_BLOCKS 2
#define ATTN_BF16_BATCH  64

/* For attn_blocks_bf16. */
static inline size_t attn_bf16_scratch(size_t n_rows, size_t head_dim)
{
    /* keys and values as panels of bf16; of a batch of rows the scores, 16
     * lanes of their maxima, and two numbers; of all rows the exponentials in
     * bf16, and two numbers */
    size_t d = (head_dim + 63) / 64 * 64;

    return ATTN_BF16_BLOCKS * KV_BLOCK * d +
           ATTN_BF16_BATCH * (KV_BLOCK + 16 + 2) +
           n_rows * (ATTN_BF16_BLOCKS * KV_BLOCK / 2 + 2);
}

static inline size_t kv_q8_groups(size_t head_dim)
{
    return (head_dim + KV_Q8_GROUP - 1) / KV_Q8_GROUP;
}

/* The table for a level; NULL when the CPU lacks it. k_ref's rows stand where a
 * level has no kernel of its own. */
const struct kernels *kernels_get(enum isa level);

/* The best table for this CPU, and the scalar reference's. */
const struct kernels *kernels_best(void);
const struct kernels *kernels_ref(void);

/* The table of the level called name. NULL: the CPU lacks it, or, with *known
 * false, there is no such level. */
const struct kernels *kernels_named(const char *name, bool *known);

/* The names of all levels, "ref, avx2, …". */
const char *kernels_names(void);

/* Used by k_dispatch.c: overwrite what the level brings. */
void k_ref_init(struct kernels *k);
void k_avx2_init(struct kernels *k);
void k_avx512_init(struct kernels *k);
void k_avx512bf16_init(struct kernels *k);
void k_attn_avx512bf16_init(struct kernels *k);
void k_amx_init(struct kernels *k);
void k_attn_amx_init(struct kernels *k);
void k_q8_ref_init(struct kernels *k);
void k_q8_avx2_init(struct kernels *k);
void k_q8_avxvnni_init(struct kernels *k);
void k_q8_avx512_init(struct kernels *k);

#endif
