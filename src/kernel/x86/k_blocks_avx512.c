/* Products of GGUF's blocks for AVX-512 with VNNI. With few tokens, some types
 * have kernels in 512-bit vectors; with many, all types but Q2_K do
 * (k_blocks_panel.h). All other products come from k_blocks_avx.h.
 *
 * The kernels for few tokens multiply one row at a time by up to TOKENS tokens,
 * with lanes along the row. A row is cut into parts; each type has a size of
 * parts that suits its scales. The kernels first put the activations of each
 * part in the order of the part's codes, because that is cheaper than to put
 * the codes of each row in order. Codes are unsigned. For most types, the
 * kernels subtract the offset of a code as a min: the offset times the scale,
 * times the sum of the activations.
 *
 * Order of sums. A row has two vectors of sums and a vector of mins. Each takes
 * the row in order. */
#include <immintrin.h>

#define KERNEL(name) k_##name##_avx512
#define LEVEL        ISA_AVX512

static inline __attribute__((always_inline)) __m256i
add_fours(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_dpbusd_epi32(sum, w, x);
}

#include "kernel/x86/k_blocks_avx.h"
#include "kernel/x86/k_q8_avx512.h"

/* ---- what the kernels of all types share -------------------------------- */

/* Blocks straddle cache lines, so their loads wait for L2 more often than loads
 * of aligned codes. Lines that were prefetched into L2 are prefetched again,
 * into L1, when the sweep is NEAR_BYTES away from them. This pays for the types
 * whose codes take many instructions: 5% for Q4_K, 2% for Q6_K; without it Q8_0
 * is faster by 4%. */
enum { NEAR_BYTES = 1024 };

/* How to read rows (struct core_choices), as constants of a function. */
struct sweep_far {
    size_t ahead;
    bool to_l2;
    bool once; /* q8_0_once */
};

/* Prefetch for bytes [from, to) of a part at p. */
INLINE void sweep_bytes(const unsigned char *p, size_t from, size_t to,
                        struct sweep_far far)
{
    const unsigned char *ahead = p + far.ahead, *near = p + NEAR_BYTES;

    /* otherwise gcc 12 keeps the address of each line, in vector registers */
    __asm__("" : "+r"(ahead), "+r"(near));
    UNROLL
    for (size_t l = 0; l < 3; l++) {
        const size_t line = 64 * ((from + 63) / 64 + l);

        if (line < to)
            sweep_by(ahead + line, 0, far.to_l2);
        if (line < to && far.to_l2)
            sweep_by(near + line, 0, false);
    }
}

/* Sums of a row for each token. */
struct row_sums {
    __m512 min[TOKENS], a[TOKENS], b[TOKENS];
};

/* The activations of token t, of which those of token 0 are at x. */
#define x_of(x, t, ldx) \
    ((const __typeof__(*(x)) *)((const char *)(x) + (size_t)(t) * (ldx)))

#include "kernel/x86/k_blocks_batch512.h"
#include "kernel/x86/k_blocks_fours.h"
#include "kernel/x86/k_blocks_nvfp4.h"
#include "kernel/x86/k_blocks_panel.h"
#include "kernel/x86/k_blocks_stream.h"
#include "kernel/x86/k_blocks_super.h"

/* ---- types -------------------------------------------------------------- */

/* If the type is a constant, these functions are one call. */

/* Whether k_blocks_fours.h multiplies the type. */
INLINE bool in_fours(enum dtype type)
{
    return type == DT_Q5_0 || type == DT_MXFP4;
}

/* Return the runs of a whole part. */
INLINE size_t part_runs(enum dtype type)
{
    return in_fours(type)                       ? FOURS_BLOCKS
           : type == DT_Q4_K || type == DT_Q5_K ? K_RUNS
           : type == DT_Q6_K                    ? CHUNK_RUNS
           : type == DT_NVFP4                   ? NV_RUNS
                                                : PART_BLOCKS;
}

/* Return the bytes of a part's arranged activations, a multiple of 64. */
INLINE size_t part_bytes(enum dtype type)
{
    return in_fours(type)                       ? sizeof(struct fours_x)
           : type == DT_Q4_K || type == DT_Q5_K ? sizeof(struct k_x)
           : type == DT_Q6_K                    ? sizeof(struct q6_k_x)
           : type == DT_NVFP4                   ? sizeof(struct nvfp4_x)
                                                : stream_bytes(type);
}

/* Arrange the activations of one token for a part of n runs, which are at q,
 * scale and sum (struct q8). The rest of the part becomes zero. */
INLINE void arrange_part(enum dtype type, void *out, const int8_t *q,
                         const float *scale, const float *sum, size_t n)
{
    if (in_fours(type))
        fours_arrange(type, out, q, scale, sum, n);
    else if (type == DT_Q4_K || type == DT_Q5_K)
        k_arrange(type, out, q, scale, sum, n);
    else if (type == DT_Q6_K)
        q6_k_arrange(out, q, scale);
    else if (type == DT_NVFP4)
        nvfp4_arrange(out, q, scale, n);
    else
        stream_arrange(type, out, q, scale, sum, n);
}

/* Add the products of a part of n runs at p and T tokens to s. The activations
 * of token t are at x + t * ldx. Reads no byte beyond the part. */
INLINE void add_part(enum dtype type, struct row_sums *s,
                     const unsigned char *p, const char *x, size_t ldx,
                     size_t n, int T, struct sweep_far far)
{
    const void *w = p, *arranged = x;

    if (in_fours(type))
        fours_add(type, s, p, arranged, ldx, n, T, far);
    else if (type == DT_Q4_K || type == DT_Q5_K)
        k_add(type, s, p, arranged, ldx, n, T, far);
    else if (type == DT_Q6_K)
        q6_k_add(s, w, arranged, ldx, T, far);
    else if (type == DT_NVFP4)
        nvfp4_add(s, p, arranged, ldx, n, T, far);
    else
        stream_add(type, s, p, x, ldx, n, T, far);
}

/* ---- rows --------------------------------------------------------------- */

/* Multiply a row of n runs by T tokens. */
INLINE void row512(enum dtype type, float *y, size_t ldy,
                   const unsigned char *w, const char *x, size_t ldx, size_t n,
                   bool add, int T, struct sweep_far far)
{
    const size_t part = part_runs(type);
    struct row_sums s;

    UNROLL
    for (int t = 0; t < T; t++)
        s.min[t] = s.a[t] = s.b[t] = _mm512_setzero_ps();
    for (; n >= part; n -= part) {
        add_part(type, &s, w, x, ldx, part, T, far);
        w += runs_bytes(type, part);
        x += part_bytes(type);
    }
    if (n > 0)
        add_part(type, &s, w, x, ldx, n, T, far);
    UNROLL
    for (int t = 0; t < T; t++) {
        float *to = y + (size_t)t * ldy;
        const __m512 all =
            _mm512_sub_ps(_mm512_add_ps(s.a[t], s.b[t]), s.min[t]);

        *to = sum_lanes(fold16(all)) + (add ? *to : 0);
    }
}

INLINE void rows512(enum dtype type, float *y, size_t ldy,
                    const unsigned char *w, size_t w_stride, size_t n_rows,
                    const char *x, size_t ldx, size_t n, bool add, int T)
{
    const size_t ahead = kernel_core.sweep_ahead;
    const bool once = type == DT_Q8_0 && T == 1 && kernel_core.q8_0_once;

    WITH_FLAG(to_l2, kernel_core.sweep_l2,
              WITH_FLAG(load_once, once,
                        for (size_t r = 0; r < n_rows; r++) row512(
                            type, y + r, ldy, w + r * w_stride, x, ldx, n, add,
                            T, (struct sweep_far){ahead, to_l2, load_once})));
}

/* ---- kernels ------------------------------------------------------------ */

/* Multiply all rows by T <= TOKENS tokens. */
INLINE void small_m512(enum dtype type, float *y, size_t ldy,
                       const unsigned char *w, size_t w_stride,
                       const struct q8 *x, size_t n_rows, size_t n_cols,
                       bool add, int T, float *work)
{
    const size_t part = part_runs(type), bytes = part_bytes(type);
    const size_t ldx = SEGMENT / RUN / part * bytes;
    char *out = (char *)work;
    size_t n;

    for (size_t c = 0; c < n_cols / RUN; c += n) {
        n = n_cols / RUN - c;
        n = n < SEGMENT / RUN ? n : SEGMENT / RUN;
        for (size_t t = 0; t < (size_t)T; t++)
            for (size_t r = 0; r < n; r += part) {
                const size_t g = t * x->ldg + c + r;

                arrange_part(type, out + t * ldx + r / part * bytes,
                             x->q + t * x->ldq + (c + r) * RUN, x->scale + g,
                             x->sum + g, n - r < part ? n - r : part);
            }
        rows512(type, y, ldy, w, w_stride, n_rows, out, ldx, n, add || c > 0,
                T);
        w += runs_bytes(type, n);
    }
}

/* Q6_K has the most bytes of arranged activations for a column. */
_Static_assert(TOKENS *SEGMENT / SUPER * sizeof(struct q6_k_x) <=
                       KERNEL_WORK * sizeof(float) &&
                   STREAM_SCALES + 64 * 2 * WORDS_Q4_0 <=
                       PART_BLOCKS * RUN / SUPER * sizeof(struct q6_k_x),
               "the caller's memory");

/* Multiply all rows by 1 to TOKENS tokens. The arguments are not in a struct,
 * so that gcc keeps more of them in registers. */
typedef void small_m_fn(float *y, size_t ldy, const void *w, size_t w_stride,
                        const struct q8 *x, size_t n_rows, size_t n_cols,
                        size_t n_tokens, bool add, float *work);

/* Multiply all rows by more than TOKENS tokens, row by row: by a part of the
 * tokens at a time, while some rows stay in L2. */
static void parts512(small_m_fn *multiply, const struct product *p)
{
    const size_t w_stride = p->w_stride;
    const size_t block = w_stride < ROWS_BYTES ? ROWS_BYTES / w_stride : 1;

    for (size_t r = 0, nr; r < p->n_rows; r += nr) {
        struct q8 part = *p->x;

        nr = p->n_rows - r < block ? p->n_rows - r : block;
        for (size_t t = 0, T; t < p->n_tokens; t += T) {
            const size_t left = p->n_tokens - t;
            const size_t parts = (left + TOKENS - 1) / TOKENS;

            T = (left + parts - 1) / parts;
            multiply(p->y + t * p->ldy + r, p->ldy, p->w + r * w_stride,
                     w_stride, &part, nr, p->n_cols, T, p->add, p->work);
            part.q += T * part.ldq;
            part.scale += T * part.ldg;
            part.sum += T * part.ldg;
        }
    }
}

/* Multiply by the registers of k_blocks_batch512.h. The last rows use panels,
 * which give the same bits. */
INLINE void batch512(enum dtype type, const struct product *p)
{
    const size_t done = blocks_batch(type, p);
    struct product rest = *p;

    rest.w += done * p->w_stride;
    rest.y += done;
    rest.n_rows -= done;
    many512(type, &rest);
}

/* multiply: small_m512 for the type. */
INLINE void gemm512(enum dtype type, const struct product *p,
                    small_m_fn *multiply)
{
    if (p->n_tokens == 0)
        return;
    if (p->n_tokens <= TOKENS)
        multiply(p->y, p->ldy, p->w, p->w_stride, p->x, p->n_rows, p->n_cols,
                 p->n_tokens, p->add, p->work);
    else if (blocks_batch_takes(type, p))
        batch512(type, p);
    else if (p->n_tokens < kernel_core.blocks_panels_min)
        parts512(multiply, p);
    else
        many512(type, p);
}

#define GEMM512(name, TYPE)                                                    \
    static void small_m_##name##_avx512(                                       \
        float *y, size_t ldy, const void *w, size_t w_stride,                  \
        const struct q8 *x, size_t n_rows, size_t n_cols, size_t n_tokens,     \
        bool add, float *work)                                                 \
    {                                                                          \
        WITH_TOKENS(n_tokens, small_m512(TYPE, y, ldy, w, w_stride, x, n_rows, \
                                         n_cols, add, T, work));               \
    }                                                                          \
    GEMM_BY(name, gemm512(TYPE, &p, small_m_##name##_avx512))

GEMM512(q8_0, DT_Q8_0)
GEMM512(q4_0, DT_Q4_0)
GEMM512(q5_0, DT_Q5_0)
GEMM512(mxfp4, DT_MXFP4)
GEMM512(nvfp4, DT_NVFP4)
GEMM512(q4_k, DT_Q4_K)
GEMM512(q5_k, DT_Q5_K)
GEMM512(q6_k, DT_Q6_K)

INLINE void gemm_panels512(enum dtype type, const struct product *p)
{
    if (p->n_tokens <= TOKENS)
        small_m_dots(type, p);
    else
        many512(type, p);
}

#define GEMM_PANELS512(name, TYPE) GEMM_BY(name, gemm_panels512(TYPE, &p))

GEMM_PANELS512(q4_1, DT_Q4_1)
GEMM_PANELS512(q5_1, DT_Q5_1)
GEMM_PANELS512(iq4_nl, DT_IQ4_NL)
GEMM_PANELS512(q3_k, DT_Q3_K)
GEMM_PANELS512(iq4_xs, DT_IQ4_XS)
GEMM_PANELS512(iq3_xxs, DT_IQ3_XXS)
GEMM_PANELS512(iq3_s, DT_IQ3_S)
GEMM_PANELS512(iq2_xxs, DT_IQ2_XXS)
GEMM_PANELS512(iq2_xs, DT_IQ2_XS)
GEMM_PANELS512(iq2_s, DT_IQ2_S)
GEMM_PANELS512(iq1_s, DT_IQ1_S)
GEMM_PANELS512(iq1_m, DT_IQ1_M)
GEMM_PANELS512(tq1_0, DT_TQ1_0)
GEMM_PANELS512(tq2_0, DT_TQ2_0)
GEMM(q2_k, DT_Q2_K)

void k_blocks_avx512_init(struct kernels *k)
{
    EACH_BLOCK_TYPE(ENTER_GEMM)
}
