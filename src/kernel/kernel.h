/* Compute kernels: one table of functions for each level. A level is a set of
 * CPU instructions. The tables are filled once.
 *
 * All kernels are serial. They accept any n and any alignment unless stated
 * otherwise, allocate nothing and cannot fail. Several threads may call them at
 * the same time on different outputs and work memory. They suit threads with
 * small stacks: a frame has at most 32 KiB; the caller provides larger memory.
 *
 * The scalar kernels of ref/ are the reference. The kernels of all other levels
 * agree with them within bounds that follow from the arithmetic
 * (tests/unit/check_*.c).
 *
 * Fixed order of sums. Kernels that promise it always add up in the same order:
 * on one level, the result for one row of weights and one token (or one query)
 * has the same bits, however many rows, tokens or queries are in the call. The
 * engine's --exact mode depends on that. Products with bf16 or int8 activations
 * promise less; --exact does not use them. */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "base/dtype.h"
#include "kernel/cores.h"

/* Positions in a block of keys or values, which is one page of the cache. */
#define KV_BLOCK 64

/* Positions in a block of a Gated DeltaNet layer. A cache page has a whole
 * number of such blocks. */
#define DELTA_BLOCK 32

/* Query rows for one call of an attention kernel. A row is one head of one
 * token. Row i attends to positions [lo[i], hi[i]) of the block; to none if
 * lo[i] >= hi[i]. Causality, sliding windows and partly filled blocks are
 * expressed that way. */
struct attn_rows {
    const float *q;      /* f32, row i at q + i * ldq: [head_dim], already
                            multiplied by the score scale */
    const uint16_t *q16; /* bf16, for attn_blocks_bf16, which does not read q */
    size_t ldq;          /* elements from row to row, in q or q16 */
    size_t n;            /* rows */
    float cap;           /* of scores, see kernels.cap; 0: none */
    const int *lo, *hi;  /* [n], 0 <= lo, hi <= KV_BLOCK */
    float *m;         /* [n] running maximum of scores; starts at -INFINITY */
    float *l;         /* [n] running sum of exp(score - m); starts at 0 */
    float *acc;       /* row i at acc + i * head_dim: running sum of
                         exp(score - m) * v */
    const void *next; /* keys of the next call, to prefetch; NULL: the keys that
                         follow the values in memory */
};

/* One value head of a Gated DeltaNet layer, and positions [from, to) of one of
 * its blocks (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464). q and k are
 * normalised, and q has been multiplied by the scale of the scores. With
 *
 *   D[t, i] = g[i + 1] + ... + g[t]    S_0 = s    G[t] = g[0] + ... + g[t]
 *
 * the recurrence of the paper is, within a block,
 *
 *   u[t] = beta[t] (v[t] - exp(G[t]) S_0^T k[t]
 *                   - sum over i < t of exp(D[t, i]) (k[i] . k[t]) u[i])
 *   o[t] = exp(G[t]) S_0^T q[t]
 *          + sum over i <= t of exp(D[t, i]) (k[i] . q[t]) u[i]
 *
 * Indices of g, k and u count from the block's start; those of all other arrays
 * count from position `from`. */
struct delta_head {
    size_t d_k, d_v;
    size_t from, to;   /* 0 <= from < to <= DELTA_BLOCK */
    const float *s;    /* [d_k, d_v] state at the block's start */
    const float *k;    /* [to, d_k] keys */
    const float *q;    /* [to - from, d_k] queries */
    const float *kk;   /* [to - from, DELTA_BLOCK] k[t] . k[i], for i < t */
    const float *qk;   /* [to - from, DELTA_BLOCK] q[t] . k[i], for i <= t */
    const float *v;    /* [to - from, d_v] values */
    const float *g;    /* [to] logarithm of the decay, <= 0 */
    const float *beta; /* [to - from] */
    float *u;          /* [to, d_v] writes to the state: rows before `from` are
                          read, the others computed */
    float *o;          /* [to - from, d_v] results */
};

/* Rows of a matrix whose weights are quantized in groups of consecutive
 * elements of a row (MLX's affine mode, mlx.core.quantize):
 *
 *   w[r, k] = q[r, k] * scales[r, k / group] + biases[r, k / group]
 *
 * The codes q are unsigned. The codes of a row form one stream of bits, least
 * significant bit first: element k has bits [k * bits, (k + 1) * bits). n_cols
 * is a multiple of group. Scales may be negative. No pointer needs
 * alignment.
 *
 * Biases are stored, or follow from zero points z: -z * scales[r, k / group],
 * rounded to f32. That is exact if a scale has at most 16 bits.
 *
 * Codes may also be E2M1 numbers of 4 bits, in two formats (blocks.h):
 *
 *   w[r, k] = (e2m1_codes[q[r, k]] - E2M1_OFFSET) * s
 *   MXFP4  (Open Compute Project, Microscaling Formats 1.0) groups of 32,
 *          s_type U8, s = e8m0_half(scales[r, k / 32])
 *   NVFP4  groups of 16, s_type F8_E4M3, s = scales[r, k / 16] * by; n_cols is
 *          a multiple of 32
 *
 * Integer products with weights of 2^120 or more may overflow. */
enum affine_codes {
    AFFINE_UNSIGNED,
    AFFINE_SIGNED, /* 8 bits, q is this integer plus 128 */
    AFFINE_E2M1    /* zero is E2M1_OFFSET */
};

struct affine {
    enum affine_codes codes;
    const unsigned char *q;      /* row r at q + r * q_stride */
    size_t q_stride;             /* bytes: n_cols * bits / 8 */
    const unsigned char *scales; /* row r at scales + r * s_stride */
    size_t s_stride;             /* bytes */
    enum dtype s_type;           /* F32, F16 or BF16; U8: MXFP4; F8_E4M3:
                                    NVFP4 */
    float by;                    /* NVFP4: half of the matrix's scale */
    const unsigned char *biases; /* row r at biases + r * b_stride */
    size_t b_stride;             /* bytes */
    enum dtype b_type;           /* F32, F16 or BF16; U8: zero points */
    int zero;     /* not 0: the zero point of all groups; then the three members
                     above are those of scales */
    int bits;     /* 2, 3, 4, 5, 6 or 8 */
    size_t group; /* 32, 64 or 128; NVFP4: 16 */
};

/* Rows of a matrix of FP8 numbers, E4M3FN: a sign, four bits of exponent with
 * bias 7, three bits of fraction; no infinities, and NaN has all other bits set
 * (Micikevicius et al. 2022, arXiv 2209.05433). A block of rows and columns has
 * one scale:
 *
 *   w[r, k] = q[r, k] * scales[(first + r) / rows * ld + k / cols]
 *
 * In MXFP8 (Open Compute Project, Microscaling Formats 1.0), 32 elements of a
 * row have an E8M0 scale, and n_cols is a multiple of 32:
 *
 *   w[r, k] = q[r, k] * 2 * e8m0_half(mx[r, k / 32])
 *
 * No pointer needs alignment, except that of f32. */
struct fp8 {
    const unsigned char *q;  /* row r at q + r * q_stride */
    size_t q_stride;         /* bytes */
    const unsigned char *mx; /* row r at mx + r * mx_stride; NULL: not MXFP8.
                                Then the members below have the scales. */
    size_t mx_stride;
    const float *scales;
    size_t ld;    /* scales from one row of blocks to the next */
    size_t rows;  /* of a block */
    size_t cols;  /* of a block: a multiple of 32, or at least n_cols */
    size_t first; /* rows of the first block that come before row 0 */
};

/* Return the scales of row r, one for each block of columns. */
static inline const float *fp8_scales(const struct fp8 *w, size_t r)
{
    return w->scales + (w->first + r) / w->rows * w->ld;
}

/* Activations rounded to int8 in groups of equal size: x[t, k] is about q[t *
 * ldq + k] * scale[t * ldg + k / group], |q| <= 127. The caller owns the
 * memory. */
struct q8 {
    int8_t *q;    /* 64-byte aligned; kernels may read whole cache lines, so
                     elements from n_cols to ldq are 0 */
    float *scale; /* largest magnitude of the group / 127 */
    float *sum;   /* scale * sum of the group's q; products multiply a group's
                     bias by it */
    size_t ldq;   /* bytes from token to token, a multiple of 64 */
    size_t ldg;   /* groups from token to token */
    size_t group; /* elements: 16, 32, 64 or 128 */
    bool paired;   /* groups 2 i and 2 i + 1 have one scale, which stands twice;
                     a last group may be alone. Some products are faster then.
                     Otherwise each group has a scale of its own. */
};

/* Return the number of elements that to_q8 must round together: parts of a row
 * begin at multiples of it. */
static inline size_t q8_unit(const struct q8 *x)
{
    return x->paired ? 2 * x->group : x->group;
}

/* Constants of GELU's tanh form (see geglu): sqrt(2 / pi), and the factor of
 * z^3. */
#define GELU_SCALE 0.79788456080286535588
#define GELU_CUBE  0.044715

/* Constants of clamped_swiglu: the limit of its operands, and the factor in the
 * exponential. */
#define CLAMPED_LIMIT 7
#define CLAMPED_ALPHA 1.702

/* How a block stores keys or values: elements of a float type, or int8 with
 * scales as attn_block says. */
enum kv_form {
    KV_F32 = DT_F32,
    KV_F16 = DT_F16,
    KV_BF16 = DT_BF16,
    KV_I8,
    KV_N_FORMS
};

/* Elements of keys or values in an int8 cache that share a scale, and in a cache
 * of 4 bits. */
#define KV_I8_GROUP 32

/* The numbers that the codes 0 to 15 of a 4-bit cache stand for, in units of
 * scale / 128. They are Lloyd's quantizer (1982) for groups of KV_I8_GROUP
 * independent normal numbers, each divided by the one with the largest
 * magnitude and multiplied by -127: rotated keys and values are nearly normal.
 * Their error is 6% less than that of 16 equal steps. */
#define KV_Q4_CODES \
    -127, -100, -80, -63, -48, -34, -22, -9, 3, 15, 27, 40, 55, 70, 89, 111

/* Choices between kernels that do the same work, per level. They follow from the
 * level and from the record of the core (cores.h). Callers read these; they
 * never ask for the level. */
struct kernel_tuning {
    bool bf16;                 /* with bf16 weights, products and long attention
                                  are faster in bf16 than in f32 */
    size_t bf16_min_tokens;    /* minimum number of tokens for bf16 */
    /* with quantized weights that both kinds of products take, minimum number of
     * tokens for bf16: affine weights, and weights in blocks */
    size_t affine_bf16_min_tokens, blocks_bf16_min_tokens;
    bool bf16_pairs;           /* bf16 is also faster with few tokens if each
                                  activation is the sum of two bf16 numbers */
    bool blas;                 /* OpenBLAS is faster than gemm_f32 in large
                                  products */
    size_t blas_min_tokens;    /* minimum number of tokens for OpenBLAS */
    double blas_min_flops;     /* minimum number of operations for OpenBLAS */
    const char *blas_coretype; /* OPENBLAS_CORETYPE to load it with; NULL: let
                                  the library detect the CPU */
    bool gemm_f32;             /* gemm_f32 is faster than matmul_f32 with many
                                  tokens */
    size_t gemm_f32_min_tokens; /* minimum number of tokens for gemm_f32 */
    /* below this number of tokens, gemm_f32 is faster only if the last group of
     * 8 tokens has at least 4 */
    size_t gemm_f32_any_tokens;
    size_t attn_tile_rows; /* maximum query rows of a tile in long
                              prefills */
    double row_cost; /* cost of one more token in a short pass, as a multiple of
                        AVX-512's; 0: as much as another pass */
};

struct kernels {
    enum isa level;   /* for src/kernel and its tests only */
    const char *name; /* name of the level: "avx2" */
    struct kernel_tuning tune;

    /* Multiply weights by tokens:
     *   y[t * ldy + r] = sum over k of w[r, k] * x[t * ldx + k]
     * in f32 and with a fixed order of sums. For decode and short prompts, and
     * for all products of --exact.
     *   w  [n_rows, n_cols] of the dtype, row-major, w_stride elements from row
     *      to row
     *   x  f32 [n_tokens, n_cols], ldx elements from token to token
     *   y  f32 [n_tokens, n_rows], ldy elements from token to token; overlaps
     *      neither w nor x
     *   work  floats [KERNEL_WORK], 64-byte aligned, overwritten; all products
     *      take it */
    void (*matmul_f32[DT_N_FLOAT])(float *y, size_t ldy, const void *w,
                                   size_t w_stride, const float *x, size_t ldx,
                                   size_t n_rows, size_t n_cols,
                                   size_t n_tokens, float *work);

    /* Widen n values to f32, exactly. in and out do not overlap. */
    void (*to_f32[DT_N_FLOAT])(float *out, const void *in, size_t n);
    /* Round n values to the type, ties to even; F32 copies. NaN stays NaN.
       Values too large for F16 become infinite. in and out do not overlap. */
    void (*from_f32[DT_N_FLOAT])(void *out, const float *in, size_t n);

    /* RMS-normalise each row, then scale it by w (Qwen3RMSNorm in
     * transformers): out = w * x / sqrt(mean(x^2) + eps).
     *   out, x  f32 [n_rows, d], row-major; out may be x     w  f32 [d] */
    void (*rmsnorm)(float *out, const float *x, const float *w, size_t n_rows,
                    size_t d, float eps);

    /* Normalise each row to mean 0 and variance 1, then scale it by w and add b
     * (LayerNorm, Ba et al. 2016): out = w * (x - m) / sqrt(v + eps) + b, with
     * the mean m and the variance v of the row.
     *   out, x  f32 [n_rows, d], row-major; out may be x
     *   wb      f32 [2 * d]: w, then b */
    void (*layernorm)(float *out, const float *x, const float *wb,
                      size_t n_rows, size_t d, float eps);

    /* Rotate n_rows heads of one position in place (rotary embeddings, Su et
     * al. 2021; rotate_half in transformers pairs elements i and i + h,
     * h = d / 2):
     *   x[i] = x[i] cos[i] - x[i + h] sin[i]
     *   x[i + h] = x[i + h] cos[i] + x[i] sin[i]
     *   x  f32 [n_rows, d]     cos, sin  f32 [d / 2] of the position */
    void (*rope)(float *x, size_t n_rows, size_t d, const float *cos,
                 const float *sin);
    /* The same for files whose rows are in the order in which neighbours, 2i and
     * 2i + 1, rotate together (rotate_half of GLM in transformers; converters
     * to GGUF permute rows into it). */
    void (*rope_pairs)(float *x, size_t n_rows, size_t d, const float *cos,
                       const float *sin);

    /* Compute out = silu(gate) * up with silu(z) = z / (1 + exp(-z)), n
     * elements each. out may be gate or up. */
    void (*swiglu)(float *out, const float *gate, const float *up, size_t n);

    /* Compute out = gelu(gate) * up, n elements each. out may be gate or up.
     * GELU has its tanh form (Hendrycks and Gimpel 2016; gelu_pytorch_tanh in
     * transformers):
     *   u = sqrt(2 / pi) (z + 0.044715 z^3)
     *   gelu(z) = z / 2 (1 + tanh(u)) = z / (1 + exp(-2 u)) */
    void (*geglu)(float *out, const float *gate, const float *up, size_t n);

    /* The same with the exact GELU ("gelu" in transformers): gelu(z) = z Phi(z),
     * Phi(z) = erfc(-z / sqrt(2)) / 2. up may be NULL: ones. */
    void (*geglu_erf)(float *out, const float *gate, const float *up, size_t n);

    /* Compute the activation of gpt-oss's experts (GptOssExperts in
     * transformers), n elements each. out may be gate or up.
     *   g = min(gate, 7)      u = min(max(up, -7), 7)
     *   out = g / (1 + exp(-1.702 g)) * (u + 1)
     * NaN stays NaN, and a gate of -infinity gives it. */
    void (*clamped_swiglu)(float *out, const float *gate, const float *up,
                           size_t n);

    /* Compute out = sigmoid(gate) * up, n elements each (gated linear units,
     * Dauphin et al. 2017). out may be gate or up. */
    void (*glu)(float *out, const float *gate, const float *up, size_t n);

    /* Compute x += y, n elements. */
    void (*add)(float *x, const float *y, size_t n);
    /* Compute x *= y, n elements. */
    void (*mul)(float *x, const float *y, size_t n);
    /* Compute x *= a, n elements. */
    void (*scale)(float *x, float a, size_t n);
    /* Compute x = c tanh(x / c), n elements; 0 < c < INFINITY. Gemma 2 caps
     * scores and logits so (attn_logit_softcapping in transformers). NaN and
     * infinities become NaN: a cap hides neither. */
    void (*cap)(float *x, float c, size_t n);

    /* Add one block of keys and values to the running softmax of the rows
     * (online softmax, Milakov and Gimelshein 2018; FlashAttention, Dao et al.
     * 2022).
     *   k, v     [KV_BLOCK, head_dim] of the form's type, contiguous. Positions
     *            outside of a row's [lo, hi) do not affect it: they may hold
     *            anything, NaN too.
     *            KV_I8: int8 [KV_BLOCK, head_dim], followed by f32 scales
     *            [KV_BLOCK, kv_i8_groups(head_dim)]. Element i of position j is
     *            k[j, i] * scale[j, i / KV_I8_GROUP].
     *   scratch  floats [attn_scratch(n, head_dim)], 64-byte aligned
     * With KV_I8, the elements of a query are rounded to multiples of
     * 2^(e - 13), ties to even, with 2^e <= the largest magnitude < 2^(e + 1),
     * and e = -112 if that is less than 2^-112. If a query has an element that
     * is not finite, all its scores are NaN. */
    void (*attn_block[KV_N_FORMS])(const struct attn_rows *rows, const void *k,
                                   const void *v, size_t head_dim,
                                   float *scratch);

    /* Do the work of attn_block for several blocks, with both products in bf16:
     * queries, keys, values and exponentials are rounded to bf16, sums are f32.
     * For prefill, with hundreds of rows. NULL if bf16 is not faster. Reads
     * rows->q16, not rows->q. If a row's m is -INFINITY, its acc may hold
     * anything.
     *   rows     0 <= lo, hi <= n_blocks * KV_BLOCK
     *   k, v     [n_blocks] pointers to consecutive blocks, each as in
     *            attn_block; 1 <= n_blocks <= ATTN_BF16_BLOCKS
     *   scratch  floats [attn_bf16_scratch(n, head_dim)], 64-byte aligned; for
     *            KV_I8 [attn_bf16_i8_scratch(n, head_dim)]
     * With KV_I8, the result has the same bits as KV_BF16 on blocks that are
     * widened to f32 and rounded to bf16. */
    void (*attn_blocks_bf16[KV_N_FORMS])(const struct attn_rows *rows,
                                         const void *const *k,
                                         const void *const *v, size_t n_blocks,
                                         size_t head_dim, float *scratch);

    /* Do the work of attn_block for the many rows of prefill, without a fixed
     * order of sums. Exponentials below exp(-87) may be 0. A row's result
     * depends on other rows only if some values are not finite. With KV_I8,
     * queries are not rounded, and the result has the same bits as KV_F32 on
     * the block widened to f32.
     *   scratch  floats [attn_tile_scratch(n, head_dim)], 64-byte aligned */
    void (*attn_tile[KV_N_FORMS])(const struct attn_rows *rows, const void *k,
                                  const void *v, size_t head_dim,
                                  float *scratch);

    /* Round n values to int8, ties to even, in groups of KV_I8_GROUP elements;
     * the last group may be shorter. A group's scale is its largest magnitude /
     * 127, so it is 0 for a group of zeros.
     *   q  [n]     scales  f32 [kv_i8_groups(n)] */
    void (*to_kv_i8)(int8_t *q, float *scales, const float *x, size_t n);

    /* Round a group that to_kv_i8 has rounded to the codes of KV_Q4_CODES. The
     * scale may be negative: of both signs, we take the one with the smaller
     * error. For the codes c of the group q, both as integers, the scale is
     * that of the least squares error, by * sum(q c) / sum(c c).
     *   codes  [(n + 1) / 2]: of elements 2 i and 2 i + 1 in the low and the
     *          high half of byte i; a missing one is 0
     *   scale  f16: 128 times what codes are multiplied by
     *   q, by  int8 [n] of at least -127, 1 <= n <= KV_I8_GROUP, and their
     *          scale */
    void (*kv_i8_to_q4)(unsigned char *codes, uint16_t *scale, const int8_t *q,
                        float by, size_t n);

    /* Expand a 4-bit block of keys or values, exactly, to one that attn_block
     * takes with KV_I8.
     *   out, block  64-byte aligned; do not overlap
     *   block       codes [KV_BLOCK, kv_q4_bytes(head_dim)], followed by f16
     *               scales [KV_BLOCK, kv_i8_groups(head_dim)] */
    void (*kv_q4_to_i8)(void *out, const void *block, size_t head_dim);

    /* Multiply parts of each row by the Hadamard matrix of order m, over
     * sqrt(m) (Sylvester 1867; fast Walsh-Hadamard transform, Fino and Algazi
     * 1976), in place. A part has m elements, the largest power of two that
     * divides d. The matrix is orthonormal and its own inverse.
     *   x  f32 [n_rows, d], row-major */
    void (*hadamard)(float *x, size_t n_rows, size_t d);

    /* Divide each row by its length, then multiply it by `scale` (l2norm in
     * transformers): out = scale * x / sqrt(sum(x^2) + eps).
     *   out, x  f32 [n_rows, d], row-major; out may be x */
    void (*l2norm)(float *out, const float *x, size_t n_rows, size_t d,
                   float eps, float scale);

    /* Convolve each channel with its own taps, then apply silu (causal_conv1d
     * in transformers):
     *   out[t, c] = silu(sum over j < n_taps of w[j, c] * x[t + j][c])
     * with a fixed order of sums.
     *   x    [n_tokens + n_taps - 1] pointers to rows f32 [n_channels]; row
     *        t + n_taps - 1 belongs to token t
     *   w    f32 [n_taps, n_channels], ldw floats from tap to tap
     *   out  f32 [n_tokens, n_channels], ldo floats from token to token; does
     *        not overlap x */
    void (*conv_silu)(float *out, size_t ldo, const float *const *x,
                      const float *w, size_t ldw, size_t n_channels,
                      size_t n_taps, size_t n_tokens);

    /* Convolve each channel with its own taps, then multiply by a gate:
     *   out[t, c] = gate[t, c] * sum over j < n_taps of w[j, c] * x[t + j][c]
     * with a fixed order of sums. As conv_silu, with
     *   gate  f32 [n_tokens, n_channels], ldg floats from token to token; may
     *         be out */
    void (*conv_gated)(float *out, size_t ldo, const float *gate, size_t ldg,
                       const float *const *x, const float *w, size_t ldw,
                       size_t n_channels, size_t n_taps, size_t n_tokens);

    /* Compute u and o of a Gated DeltaNet head for the positions [from, to) of
     * a block, with a fixed order of sums: each row of u and o has the same
     * bits, in however many calls a block is computed. D is a sum of its terms
     * alone, so it loses nothing after a long decay; exponentials below
     * exp(-87) may be 0.
     *   scratch  floats [delta_scratch(to - from, d_v)], 64-byte aligned */
    void (*delta_rows)(const struct delta_head *h, float *scratch);

    /* Compute the state at the end of a block whose u is complete:
     *   next = exp(G[to - 1]) s
     *          + sum over i < to of exp(D[to - 1, i]) k[i] u[i]^T
     * Reads d_k, d_v, to, s, k, g and u of h.
     *   next  f32 [d_k, d_v]; must not be s */
    void (*delta_state)(float *next, const struct delta_head *h);

    /* Return the largest of n >= 1 values. NaN are skipped; the result is
     * -INFINITY if all are NaN. */
    float (*max)(const float *x, size_t n);

    /* Compute out[i] = exp((x[i] - shift) * scale) for n values, 0 where x[i]
     * is -INFINITY. Returns their sum in double, with a fixed order of sums.
     * out may be x, or NULL to get only the sum. */
    double (*exp_sum)(float *out, const float *x, size_t n, float shift,
                      float scale);

    /* Compute C[m, n] = A[m, k] * B[n, k]^T in f32, for prefill and batches
     * where BLAS is absent or slower. All rows of A and B have the same order
     * of sums. It may depend on k, and on m up to GEMM_F32_SMALL_M. Blocked as
     * in Goto and van de Geijn 2008.
     *   a  f32 [m, k], c  f32 [m, n], row-major, lda and ldc floats from row to
     *      row; fastest if a row has an odd number of cache lines
     *   b  [n, k] of the dtype, the weights, ldb elements from row to row;
     *      multiples of GEMM_F32_ROWS rows are the fastest */
    void (*gemm_f32[DT_N_FLOAT])(float *c, size_t ldc, const float *a,
                                 size_t lda, const void *b, size_t ldb,
                                 size_t m, size_t n, size_t k, float *work);

    /* Multiply weights by tokens in bf16:
     *   y[t * ldy + r] = sum over k of w[r, k] * x[t * ldx + k]
     * with products of bf16 and sums in f32. With add, this is added to the old
     * y[t * ldy + r]. NULL on vector levels without a bf16 instruction.
     *   w  bf16 as in matmul_f32     y  as in matmul_f32
     *   x  bf16 [n_tokens, n_cols], ldx elements from token to token;
     *      gemm_bf16_ldx(n_cols) is the fastest
     * Subnormal operands, products and sums may count as 0. A value may depend
     * on n_tokens and n_cols, never on other rows or tokens. With few tokens, w
     * is read once, in order. With hundreds of tokens, multiples of
     * GEMM_BF16_ROWS rows are the fastest. */
    void (*gemm_bf16)(float *y, size_t ldy, const void *w, size_t w_stride,
                      const void *x, size_t ldx, size_t n_rows, size_t n_cols,
                      size_t n_tokens, bool add, float *work);

    /* Widen quantized rows to out, f32 [n_rows, n_cols]: q * scale is rounded,
     * then the sum with the bias is rounded. All levels give the same bits. */
    void (*affine_to_f32)(float *out, const struct affine *w, size_t n_rows,
                          size_t n_cols);

    /* Do the work of matmul_f32 for quantized weights, in f32 and with a fixed
     * order of sums. */
    void (*matmul_f32_affine)(float *y, size_t ldy, const struct affine *w,
                              const float *x, size_t ldx, size_t n_rows,
                              size_t n_cols, size_t n_tokens, float *work);

    /* Round activations for gemm_q8_affine and gemm_q8_blocks, ties to even,
     * into the memory of out, whose ldq, ldg, group and paired are set. A group
     * of zeros has scale 0, a group with NaN has scale NaN, and one with an
     * infinity has an infinite scale, so that products with it are not finite.
     *   x  f32 [n_tokens, n_cols], n_cols a multiple of out->group */
    void (*to_q8)(const struct q8 *out, const float *x, size_t ldx,
                  size_t n_cols, size_t n_tokens);

    /* Multiply quantized weights by int8 activations:
     *   y[t * ldy + r] = sum over groups g of
     *       scales[r, g] * x.scale[t, g] * (sum of q[r, k] * x.q[t, k] in g)
     *       + biases[r, g] * x.sum[t, g]
     * With add, this is added to the old y[t * ldy + r]. Integer sums within a
     * group are exact, sums over groups are f32. x->group == w->group. A value
     * may depend on n_tokens, never on the rows in the call. With one token, w
     * is read once, in order. With hundreds of tokens, multiples of
     * GEMM_Q8_ROWS rows are the fastest. */
    void (*gemm_q8_affine)(float *y, size_t ldy, const struct affine *w,
                           const struct q8 *x, size_t n_rows, size_t n_cols,
                           size_t n_tokens, bool add, float *work);

    /* Do the work of gemm_bf16 for quantized weights, which are widened and
     * rounded to bf16. NULL unless bf16 products are faster than integer ones
     * with many tokens (amx). */
    void (*gemm_bf16_affine)(float *y, size_t ldy, const struct affine *w,
                             const void *x, size_t ldx, size_t n_rows,
                             size_t n_cols, size_t n_tokens, bool add,
                             float *work);

    /* Widen n elements in GGUF's blocks (blocks.h) to f32; n is a multiple of
     * the elements of a block. Entry i of the array is for type DT_BLOCKS + i.
     * All levels give the same bits. */
    void (*blocks_to_f32[DT_N_BLOCKS])(float *out, const void *blocks,
                                       size_t n);

    /* Multiply weights in blocks by int8 activations:
     *   y[t * ldy + r] = sum over k of
     *       w[r, k] * x.scale[t, k / 32] * x.q[t, k]
     * With add, this is added to the old y[t * ldy + r]. Integer sums of 16
     * elements are exact, all other sums are f32. x->group is 32. A value may
     * depend on n_tokens, never on the rows in the call.
     *   w  [n_rows, n_cols] in blocks, w_stride bytes from row to row; n_cols
     *      is a multiple of the elements of a block
     *   work  floats [KERNEL_WORK + KERNEL_BLOCKS_WORK] */
    void (*gemm_q8_blocks[DT_N_BLOCKS])(float *y, size_t ldy, const void *w,
                                        size_t w_stride, const struct q8 *x,
                                        size_t n_rows, size_t n_cols,
                                        size_t n_tokens, bool add, float *work);

    /* Multiply weights in blocks by bf16 activations, as gemm_bf16 would after
     * blocks_to_f32 and from_f32[DT_BF16]. NULL on levels where gemm_q8_blocks
     * is faster for any number of tokens. Parameters as in gemm_q8_blocks, and:
     *   x  [n_tokens, n_cols] bf16, ldx elements from token to token, as in
     *      gemm_bf16 */
    void (*gemm_bf16_blocks[DT_N_BLOCKS])(float *y, size_t ldy, const void *w,
                                          size_t w_stride, const void *x,
                                          size_t ldx, size_t n_rows,
                                          size_t n_cols, size_t n_tokens,
                                          bool add, float *work);

    /* Widen rows of FP8 to out, f32 [n_rows, n_cols]: the product with the scale
     * is rounded. All levels give the same bits. */
    void (*fp8_to_f32)(float *out, const struct fp8 *w, size_t n_rows,
                       size_t n_cols);

    /* Do the work of matmul_f32 for FP8 weights, in f32 and with a fixed order
     * of sums. Levels with vectors multiply each activation, or in matrices with
     * one scale for each row each result, by the scale. */
    void (*matmul_f32_fp8)(float *y, size_t ldy, const struct fp8 *w,
                           const float *x, size_t ldx, size_t n_rows,
                           size_t n_cols, size_t n_tokens, float *work);

    /* Do the work of gemm_bf16 for FP8 weights. The codes are exact in bf16, and
     * the sums of a block's columns are multiplied by their scale in f32. NULL
     * if gemm_bf16 is. */
    void (*gemm_bf16_fp8)(float *y, size_t ldy, const struct fp8 *w,
                          const void *x, size_t ldx, size_t n_rows,
                          size_t n_cols, size_t n_tokens, bool add,
                          float *work);

    /* Return the sum of n bytes as 64-bit words, the last one padded with
     * zeros. This measures read bandwidth. Kernels with vectors prefetch
     * sweep_ahead bytes ahead into L2, or into L1: which is faster depends on
     * the core, so a limit takes the faster of both. */
    unsigned long long (*read_sum)(const void *p, size_t n, bool to_l2);
    /* Run f32 multiply-adds on registers only and return the number of
     * operations: about 1e7 * reps, two for each multiply-add. *sink receives a
     * value, so that the compiler cannot remove the work. */
    double (*peak_flops)(size_t reps, float *sink);
    /* Do the work of peak_flops with the multiply-adds of gemm_bf16. NULL on
     * levels without such an instruction. */
    double (*peak_bf16)(size_t reps, float *sink);
    /* Do the work of peak_flops with the multiply-adds of gemm_q8_affine in
     * long prefills. */
    double (*peak_q8)(size_t reps, float *sink);
};

/* The choices in use. Kernels read them; kernels_choose alone writes them. */
extern struct core_choices kernel_core;

/* Rows of weights that gemm_bf16 multiplies at a time. */
#define GEMM_BF16_ROWS 64

/* ROWS: rows of B that gemm_f32 packs at a time. SMALL_M: maximum number of
 * rows of A for which gemm_f32 may use another kernel. */
#define GEMM_F32_ROWS    512
#define GEMM_F32_SMALL_M 48

/* KERNEL_WORK: floats of the work memory of products. Products of blocks need
 * KERNEL_BLOCKS_WORK more floats after it, where they expand rows for another
 * product. */
#define KERNEL_WORK        (128u * 1024)
#define KERNEL_BLOCKS_WORK (36u * 1024)

/* Rows of weights that gemm_q8_affine multiplies at a time by many tokens. */
#define GEMM_Q8_ROWS 64

/* Return the fastest ldx for gemm_bf16: an odd number of cache lines, so that
 * tokens spread over all sets of a cache. */
static inline size_t gemm_bf16_ldx(size_t n_cols)
{
    return (((n_cols + 31) / 32) | 1) * 32;
}

/* Floats of scratch for attn_block. */
static inline size_t attn_scratch(size_t n_rows, size_t head_dim)
{
    /* space for: a block of keys and one of values as f32, and a query; or the
     * weights and the int16 queries of a few rows; and the scores of the
     * rows */
    return KV_BLOCK * (head_dim * 2 + 16) + head_dim + n_rows * KV_BLOCK + 64;
}

/* Maximum number of rows that attn_tile processes at a time. */
#define ATTN_TILE_BATCH 48

/* Floats of scratch for attn_tile. */
static inline size_t attn_tile_scratch(size_t n_rows, size_t head_dim)
{
    /* space for: scores of a batch of rows; keys and values, both as f32 and as
     * panels; the scratch of attn_block */
    return KV_BLOCK * (ATTN_TILE_BATCH + 2 * (2 * head_dim + 16)) +
           attn_scratch(n_rows, 0);
}

/* BLOCKS: maximum number of blocks in a call of attn_blocks_bf16. BATCH:
 * maximum number of rows that it processes at a time. */
#define ATTN_BF16_BLOCKS 2
#define ATTN_BF16_BATCH  64

/* Floats of scratch for attn_blocks_bf16. */
static inline size_t attn_bf16_scratch(size_t n_rows, size_t head_dim)
{
    /* space for: keys and values as panels of bf16; for each row of a batch,
     * its scores, 16 lanes of their maximum, and two numbers; for each row of
     * the call, its exponentials in bf16, and two numbers */
    size_t d = (head_dim + 63) / 64 * 64;

    return ATTN_BF16_BLOCKS * KV_BLOCK * d +
           ATTN_BF16_BATCH * (KV_BLOCK + 16 + 2) +
           n_rows * (ATTN_BF16_BLOCKS * KV_BLOCK / 2 + 2);
}

/* Floats of scratch for attn_blocks_bf16[KV_I8]. */
static inline size_t attn_bf16_i8_scratch(size_t n_rows, size_t head_dim)
{
    /* space for: keys and values in bf16; the scratch of attn_blocks_bf16 */
    return ATTN_BF16_BLOCKS * KV_BLOCK * head_dim +
           attn_bf16_scratch(n_rows, head_dim);
}

/* Floats of scratch for delta_rows. */
static inline size_t delta_scratch(size_t n_tokens, size_t d_v)
{
    /* space for: the products of the state with keys and queries; weights of u
     * in both sums, of one token */
    return 2 * n_tokens * (d_v + 15) + 2 * DELTA_BLOCK;
}

/* Return the number of scales of one position of keys or values in an int8
 * cache. */
static inline size_t kv_i8_groups(size_t head_dim)
{
    return (head_dim + KV_I8_GROUP - 1) / KV_I8_GROUP;
}

/* Return the bytes of the codes of one position of keys or values in a 4-bit
 * cache. */
static inline size_t kv_q4_bytes(size_t head_dim)
{
    return (head_dim + 1) / 2;
}

/* Return the bytes of an int8 block of keys or values. */
static inline size_t kv_i8_block(size_t head_dim)
{
    return KV_BLOCK * (head_dim + kv_i8_groups(head_dim) * sizeof(float));
}

/* Return the table of a level; NULL if the CPU lacks the level. If a level has
 * no kernel of its own for some work, its table has the kernel of a lower level
 * or the reference. Tables live as long as the process. Any thread may call
 * this. */
const struct kernels *kernels_get(enum isa level);

/* Return the table of the best level of this CPU, or of the reference. */
const struct kernels *kernels_best(void);
const struct kernels *kernels_ref(void);

/* Return the table of the level with this name. If no level has this name,
 * returns NULL and sets *known to false. If the CPU lacks the level, returns
 * NULL and sets *known to true. */
const struct kernels *kernels_named(const char *name, bool *known);

/* Return the name of level i = 0, 1, … of those that this CPU has, from "ref"
 * upwards. NULL when there is no level i. */
const char *kernels_level(size_t i);

/* Return the names of all levels for messages, "ref, avx2, …": a constant
 * string. */
const char *kernels_names(void);

/* Return the record of this CPU's core, or of an unknown core of its vendor
 * (core_is_unknown). Its choices are in use until kernels_choose is called. */
const struct core *kernels_core(void);

/* Return whether kernels of this table depend on a choice. */
bool kernels_use(const struct kernels *k, const struct core_knob *knob);

/* Use other choices in all tables. Each value must be within the limits of its
 * knob. While this runs, no other thread may run kernels or read a table. */
void kernels_choose(const struct core_choices *c);

/* Replace the reference kernels in a table by the kernels of a level of this
 * CPU. x86/k_cpu_x86.c implements it and k_cpu_tuning for x86,
 * arm/k_cpu_arm.c for ARM, k_cpu_other.c for CPUs without kernels of their
 * own. */
void k_cpu_init(struct kernels *k, enum isa level);
/* Return the choices of a level between kernels that do the same work. */
struct kernel_tuning k_cpu_tuning(enum isa level, const struct core_choices *c);

/* Each of these functions enters the kernels of one file into the table. */
void k_ref_init(struct kernels *k);
void k_avx2_init(struct kernels *k);
void k_avx512_init(struct kernels *k);
void k_avx512bf16_init(struct kernels *k);
void k_attn_avx512bf16_init(struct kernels *k);
void k_amx_init(struct kernels *k);
void k_attn_amx_init(struct kernels *k);
void k_delta_ref_init(struct kernels *k);
void k_q8_ref_init(struct kernels *k);
void k_kv_q4_ref_init(struct kernels *k);
void k_blocks_ref_init(struct kernels *k);
void k_fp8_ref_init(struct kernels *k);
void k_q8_avx2_init(struct kernels *k);
void k_kv_q4_avx2_init(struct kernels *k);
void k_kv_q4_avx512_init(struct kernels *k);
void k_q8_avxvnni_init(struct kernels *k);
void k_q8_avx512_init(struct kernels *k);
void k_q8_amx_init(struct kernels *k);
void k_blocks_avx2_init(struct kernels *k);
void k_blocks_avxvnni_init(struct kernels *k);
void k_blocks_avx512_init(struct kernels *k);
void k_blocks_vbmi_init(struct kernels *k); /* if cpu_has_vbmi() */
void k_neon_init(struct kernels *k);
void k_int8_neon_init(struct kernels *k);
void k_int8_dotprod_init(struct kernels *k);
void k_int8_i8mm_init(struct kernels *k);
void k_bf16_init(struct kernels *k);

#endif
