/* The reference kernels: plain C that follows the papers, without fast-math.
 * Sums are in double and rounded once at the end; exponentials come from libm,
 * in double. So a difference to a vector kernel is the vector kernel's
 * error. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel/kernel.h"

/* ---- element types ----------------------------------------------------- */

static float f32_from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t f32_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static float load_f32(const unsigned char *p)
{
    float f;

    memcpy(&f, p, sizeof f);
    return f;
}

static float load_bf16(const unsigned char *p)
{
    uint16_t h;

    memcpy(&h, p, sizeof h);
    return f32_from_bits((uint32_t)h << 16);
}

/* IEEE 754 binary16. Signalling NaN become quiet, like with vcvtph2ps. */
static float load_f16(const unsigned char *p)
{
    uint16_t h;
    uint32_t sign, exponent, fraction;

    memcpy(&h, p, sizeof h);
    sign = (uint32_t)(h & 0x8000) << 16;
    exponent = h >> 10 & 31;
    fraction = h & 0x3ff;
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000 | fraction << 13 |
                             (fraction ? 0x00400000 : 0));
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-24f; /* zero and subnormals, exact */

        return sign ? -f : f;
    }
    return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t bf16_round(float f)
{
    uint32_t u = f32_bits(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x0040);
    /* half a unit in the last place, one less if that place is even */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static uint16_t f16_round(float f)
{
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000, fraction, rest, half;
    int shift, exponent;

    u &= 0x7fffffff;
    if (u > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x477ff000) /* 65520: half a unit above the largest f16 */
        return (uint16_t)(sign | 0x7c00);
    exponent = (int)(u >> 23) - 112;
    fraction = u & 0x7fffff;
    shift = 13;
    if (exponent <= 0) { /* subnormal: the leading one becomes explicit */
        if (exponent < -10)
            return (uint16_t)sign;
        fraction |= 0x800000;
        shift = 14 - exponent;
        exponent = 0;
    }
    half = (uint32_t)1 << (shift - 1);
    rest = fraction & (2 * half - 1);
    fraction >>= shift;
    fraction += (uint32_t)exponent << 10;
    /* a carry out of the fraction correctly increments the exponent */
    if (rest > half || (rest == half && (fraction & 1)))
        fraction++;
    return (uint16_t)(sign | fraction);
}

/* ---- conversions ------------------------------------------------------- */

static void k_to_f32_f32_ref(float *out, const void *in, size_t n)
{
    memmove(out, in, n * sizeof *out);
}

static void k_to_f32_f16_ref(float *out, const void *in, size_t n)
{
    const unsigned char *p = in;

    for (size_t i = 0; i < n; i++)
        out[i] = load_f16(p + 2 * i);
}

static void k_to_f32_bf16_ref(float *out, const void *in, size_t n)
{
    const unsigned char *p = in;

    for (size_t i = 0; i < n; i++)
        out[i] = load_bf16(p + 2 * i);
}

static void k_from_f32_f32_ref(void *out, const float *in, size_t n)
{
    memmove(out, in, n * sizeof *in);
}

static void k_from_f32_f16_ref(void *out, const float *in, size_t n)
{
    unsigned char *p = out;

    for (size_t i = 0; i < n; i++) {
        uint16_t h = f16_round(in[i]);

        memcpy(p + 2 * i, &h, sizeof h);
    }
}

static void k_from_f32_bf16_ref(void *out, const float *in, size_t n)
{
    unsigned char *p = out;

    for (size_t i = 0; i < n; i++) {
        uint16_t h = bf16_round(in[i]);

        memcpy(p + 2 * i, &h, sizeof h);
    }
}

/* ---- products ---------------------------------------------------------- */

/* One product for each type. The types differ only in loading elements. */
#define MATMUL_REF(type, bytes)                                               \
    static void k_matmul_f32_##type##_ref(                                    \
        float *y, size_t ldy, const void *w, size_t w_stride, const float *x, \
        size_t ldx, size_t n_rows, size_t n_cols, size_t n_tokens,            \
        float *work)                                                          \
    {                                                                         \
        (void)work;                                                           \
        for (size_t r = 0; r < n_rows; r++) {                                 \
            const unsigned char *wr =                                         \
                (const unsigned char *)w + r * w_stride * (bytes);            \
                                                                              \
            for (size_t t = 0; t < n_tokens; t++) {                           \
                double sum = 0;                                               \
                                                                              \
                for (size_t k = 0; k < n_cols; k++)                           \
                    sum += (double)load_##type(wr + k * (bytes)) *            \
                           (double)x[t * ldx + k];                            \
                y[t * ldy + r] = (float)sum;                                  \
            }                                                                 \
        }                                                                     \
    }

MATMUL_REF(f32, 4)
MATMUL_REF(f16, 2)
MATMUL_REF(bf16, 2)

static void k_gemm_bf16_ref(float *y, size_t ldy, const void *w,
                            size_t w_stride, const void *x, size_t ldx,
                            size_t n_rows, size_t n_cols, size_t n_tokens,
                            bool add, float *work)
{
    (void)work;
    for (size_t t = 0; t < n_tokens; t++) {
        const unsigned char *xt = (const unsigned char *)x + t * ldx * 2;

        for (size_t r = 0; r < n_rows; r++) {
            const unsigned char *wr =
                (const unsigned char *)w + r * w_stride * 2;
            double sum = add ? (double)y[t * ldy + r] : 0;

            for (size_t k = 0; k < n_cols; k++)
                sum += (double)load_bf16(wr + 2 * k) *
                       (double)load_bf16(xt + 2 * k);
            y[t * ldy + r] = (float)sum;
        }
    }
}

#define GEMM_F32(name)                                                    \
    static void k_gemm_f32_##name##_ref(                                  \
        float *c, size_t ldc, const float *a, size_t lda, const void *b,  \
        size_t ldb, size_t m, size_t n, size_t k, float *work)            \
    {                                                                     \
        k_matmul_f32_##name##_ref(c, ldc, b, ldb, a, lda, n, k, m, work); \
    }

GEMM_F32(f32)
GEMM_F32(f16)
GEMM_F32(bf16)

/* ---- element-wise ------------------------------------------------------ */

static void k_rmsnorm_ref(float *out, const float *x, const float *w,
                          size_t n_rows, size_t d, float eps)
{
    for (size_t r = 0; r < n_rows; r++) {
        double sum = 0, inv;

        for (size_t i = 0; i < d; i++)
            sum += (double)x[r * d + i] * (double)x[r * d + i];
        inv = 1 / sqrt(sum / (double)d + (double)eps);
        for (size_t i = 0; i < d; i++)
            out[r * d + i] =
                (float)((double)w[i] * ((double)x[r * d + i] * inv));
    }
}

static void k_layernorm_ref(float *out, const float *x, const float *wb,
                            size_t n_rows, size_t d, float eps)
{
    for (size_t r = 0; r < n_rows; r++) {
        double mean = 0, var = 0, inv;

        for (size_t i = 0; i < d; i++)
            mean += (double)x[r * d + i] / (double)d;
        for (size_t i = 0; i < d; i++)
            var += ((double)x[r * d + i] - mean) *
                   ((double)x[r * d + i] - mean) / (double)d;
        inv = 1 / sqrt(var + (double)eps);
        for (size_t i = 0; i < d; i++)
            out[r * d + i] =
                (float)((double)wb[i] * (((double)x[r * d + i] - mean) * inv) +
                        (double)wb[d + i]);
    }
}

static void k_rope_ref(float *x, size_t n_rows, size_t d, const float *cos,
                       const float *sin)
{
    size_t h = d / 2;

    for (size_t r = 0; r < n_rows; r++, x += d)
        for (size_t i = 0; i < h; i++) {
            double c = (double)cos[i], s = (double)sin[i];
            double a = (double)x[i], b = (double)x[i + h];

            x[i] = (float)(a * c - b * s);
            x[i + h] = (float)(b * c + a * s);
        }
}

static void k_rope_pairs_ref(float *x, size_t n_rows, size_t d,
                             const float *cos, const float *sin)
{
    for (size_t r = 0; r < n_rows; r++, x += d)
        for (size_t i = 0; i < d / 2; i++) {
            double c = (double)cos[i], s = (double)sin[i];
            double a = (double)x[2 * i], b = (double)x[2 * i + 1];

            x[2 * i] = (float)(a * c - b * s);
            x[2 * i + 1] = (float)(b * c + a * s);
        }
}

static void k_swiglu_ref(float *out, const float *gate, const float *up,
                         size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double z = (double)gate[i];

        out[i] = (float)(z / (1 + exp(-z)) * (double)up[i]);
    }
}

static void k_geglu_ref(float *out, const float *gate, const float *up,
                        size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double z = (double)gate[i];
        double u = GELU_SCALE * (z + GELU_CUBE * z * z * z);

        out[i] = (float)(z / (1 + exp(-2 * u)) * (double)up[i]);
    }
}

static void k_geglu_erf_ref(float *out, const float *gate, const float *up,
                            size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double z = (double)gate[i];

        out[i] =
            (float)(z * erfc(-z * M_SQRT1_2) / 2 * (up ? (double)up[i] : 1));
    }
}

/* x unless it is beyond a limit. NaN stays. */
static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static void k_clamped_swiglu_ref(float *out, const float *gate, const float *up,
                                 size_t n)
{
    const double most = CLAMPED_LIMIT;

    for (size_t i = 0; i < n; i++) {
        double g = clamp((double)gate[i], -INFINITY, most);
        double u = clamp((double)up[i], -most, most);

        out[i] = (float)(g / (1 + exp(-CLAMPED_ALPHA * g)) * (u + 1));
    }
}

static void k_glu_ref(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)((double)up[i] / (1 + exp(-(double)gate[i])));
}

static void k_add_ref(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void k_mul_ref(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= y[i];
}

static void k_scale_ref(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= a;
}

static void k_cap_ref(float *x, float c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = isfinite(x[i])
                   ? (float)((double)c * tanh((double)x[i] / (double)c))
                   : NAN;
}

/* ---- softmax ----------------------------------------------------------- */

static float k_max_ref(const float *x, size_t n)
{
    float m = -INFINITY;

    for (size_t i = 0; i < n; i++)
        if (x[i] > m)
            m = x[i];
    return m;
}

static double k_exp_sum_ref(float *out, const float *x, size_t n, float shift,
                            float scale)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++) {
        /* -INFINITY times a scale of 0 would be NaN */
        float e = x[i] == -INFINITY
                      ? 0
                      : (float)exp((double)((x[i] - shift) * scale));

        sum += (double)e;
        if (out)
            out[i] = e;
    }
    return sum;
}

/* If all scores so far are -INFINITY, use 0 as the maximum: then their weights
 * are exp(-INFINITY) = 0 and not exp(NaN). A NaN among the scores reaches l and
 * acc. */
#define ATTN_BLOCK_REF(type, bytes)                                            \
    static void k_attn_block_##type##_ref(const struct attn_rows *rows,        \
                                          const void *k, const void *v,        \
                                          size_t head_dim, float *scratch)     \
    {                                                                          \
        const unsigned char *kp = k, *vp = v;                                  \
        float *score = scratch;                                                \
                                                                               \
        for (size_t i = 0; i < rows->n; i++) {                                 \
            const float *q = rows->q + i * rows->ldq;                          \
            float *acc = rows->acc + i * head_dim;                             \
            float m = rows->m[i], shift, keep;                                 \
            double sum = 0;                                                    \
            int lo = rows->lo[i], hi = rows->hi[i];                            \
                                                                               \
            if (lo >= hi)                                                      \
                continue;                                                      \
            for (int j = lo; j < hi; j++) {                                    \
                double dot = 0;                                                \
                                                                               \
                for (size_t d = 0; d < head_dim; d++)                          \
                    dot += (double)q[d] *                                      \
                           (double)load_##type(                                \
                               kp + ((size_t)j * head_dim + d) * (bytes));     \
                score[j] = (float)dot;                                         \
                if (rows->cap > 0)                                             \
                    k_cap_ref(score + j, rows->cap, 1);                        \
                if (score[j] > m)                                              \
                    m = score[j];                                              \
            }                                                                  \
            shift = m == -INFINITY ? 0 : m;                                    \
            keep = (float)exp((double)(rows->m[i] - shift));                   \
            for (int j = lo; j < hi; j++) {                                    \
                score[j] = (float)exp((double)(score[j] - shift));             \
                sum += (double)score[j];                                       \
            }                                                                  \
            rows->m[i] = m;                                                    \
            rows->l[i] = (float)((double)rows->l[i] * (double)keep + sum);     \
            for (size_t d = 0; d < head_dim; d++) {                            \
                double a = (double)acc[d] * (double)keep;                      \
                                                                               \
                for (int j = lo; j < hi; j++)                                  \
                    a += (double)score[j] *                                    \
                         (double)load_##type(vp + ((size_t)j * head_dim + d) * \
                                                      (bytes));                \
                acc[d] = (float)a;                                             \
            }                                                                  \
        }                                                                      \
    }

ATTN_BLOCK_REF(f32, 4)
ATTN_BLOCK_REF(f16, 2)
ATTN_BLOCK_REF(bf16, 2)

static void widen_q8(float *out, const unsigned char *block, size_t d)
{
    const unsigned char *scales = block + KV_BLOCK * d;
    const size_t groups = kv_i8_groups(d);

    for (size_t j = 0; j < KV_BLOCK; j++)
        for (size_t i = 0; i < d; i++) {
            int8_t q = (int8_t)block[j * d + i];
            size_t at = j * groups + i / KV_I8_GROUP;

            out[j * d + i] = (float)q * load_f32(scales + 4 * at);
        }
}

static void k_attn_tile_i8_ref(const struct attn_rows *rows, const void *k,
                               const void *v, size_t head_dim, float *scratch)
{
    size_t n = KV_BLOCK * head_dim;

    widen_q8(scratch, k, head_dim);
    widen_q8(scratch + n, v, head_dim);
    k_attn_block_f32_ref(rows, scratch, scratch + n, head_dim, scratch + 2 * n);
}

/* Round a query row as attn_block says. */
static void round_query(float *out, const float *q, size_t d)
{
    float top = 0;
    bool finite = true;
    int e = -112;

    for (size_t i = 0; i < d; i++) {
        finite = finite && isfinite(q[i]);
        top = fmaxf(top, fabsf(q[i]));
    }
    if (finite && top >= 0x1p-112f)
        e = ilogbf(top);
    for (size_t i = 0; i < d; i++)
        out[i] = finite ? ldexpf(rintf(ldexpf(q[i], 13 - e)), e - 13) : NAN;
}

static void k_attn_block_i8_ref(const struct attn_rows *rows, const void *k,
                                const void *v, size_t head_dim, float *scratch)
{
    size_t n = KV_BLOCK * head_dim;
    float *q = scratch + 2 * n, *score = q + head_dim;

    widen_q8(scratch, k, head_dim);
    widen_q8(scratch + n, v, head_dim);
    for (size_t i = 0; i < rows->n; i++) {
        const struct attn_rows one = {.q = q,
                                      .n = 1,
                                      .cap = rows->cap,
                                      .lo = rows->lo + i,
                                      .hi = rows->hi + i,
                                      .m = rows->m + i,
                                      .l = rows->l + i,
                                      .acc = rows->acc + i * head_dim};

        round_query(q, rows->q + i * rows->ldq, head_dim);
        k_attn_block_f32_ref(&one, scratch, scratch + n, head_dim, score);
    }
}

/* ---- measuring --------------------------------------------------------- */

static unsigned long long k_read_sum_ref(const void *p, size_t n, bool to_l2)
{
    const unsigned char *c = p;
    uint64_t sum[4] = {0}, u[4];
    size_t i = 0;
    (void)to_l2;

    for (; n - i >= sizeof u; i += sizeof u) {
        memcpy(u, c + i, sizeof u);
        for (size_t j = 0; j < 4; j++)
            sum[j] += u[j];
    }
    memset(u, 0, sizeof u);
    memcpy(u, c + i, n - i); /* the last word is padded with zeros */
    for (size_t j = 0; j < 4; j++)
        sum[j] += u[j];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static double k_peak_flops_ref(size_t reps, float *sink)
{
    enum { CHAINS = 32, STEPS = 156250 }; /* 2 * CHAINS * STEPS = 1e7 */
    float a[CHAINS], mul = 0.999f, sum = 0;

    for (size_t i = 0; i < CHAINS; i++)
        a[i] = (float)i;
    for (size_t r = 0; r < reps; r++)
        for (size_t s = 0; s < STEPS; s++)
            for (size_t i = 0; i < CHAINS; i++)
                a[i] = a[i] * mul + 0.001f;
    for (size_t i = 0; i < CHAINS; i++)
        sum += a[i];
    *sink = sum;
    return 2.0 * CHAINS * STEPS * (double)reps;
}

void k_ref_init(struct kernels *k)
{
    k->matmul_f32[DT_F32] = k_matmul_f32_f32_ref;
    k->matmul_f32[DT_F16] = k_matmul_f32_f16_ref;
    k->matmul_f32[DT_BF16] = k_matmul_f32_bf16_ref;
    k->to_f32[DT_F32] = k_to_f32_f32_ref;
    k->to_f32[DT_F16] = k_to_f32_f16_ref;
    k->to_f32[DT_BF16] = k_to_f32_bf16_ref;
    k->from_f32[DT_F32] = k_from_f32_f32_ref;
    k->from_f32[DT_F16] = k_from_f32_f16_ref;
    k->from_f32[DT_BF16] = k_from_f32_bf16_ref;
    k->rmsnorm = k_rmsnorm_ref;
    k->layernorm = k_layernorm_ref;
    k->rope = k_rope_ref;
    k->rope_pairs = k_rope_pairs_ref;
    k->swiglu = k_swiglu_ref;
    k->geglu = k_geglu_ref;
    k->geglu_erf = k_geglu_erf_ref;
    k->clamped_swiglu = k_clamped_swiglu_ref;
    k->glu = k_glu_ref;
    k->add = k_add_ref;
    k->mul = k_mul_ref;
    k->scale = k_scale_ref;
    k->cap = k_cap_ref;
    k->attn_block[DT_F32] = k_attn_block_f32_ref;
    k->attn_block[DT_F16] = k_attn_block_f16_ref;
    k->attn_block[DT_BF16] = k_attn_block_bf16_ref;
    k->attn_block[KV_I8] = k_attn_block_i8_ref;
    for (int i = 0; i < DT_N_FLOAT; i++)
        k->attn_tile[i] = k->attn_block[i];
    k->attn_tile[KV_I8] = k_attn_tile_i8_ref;
    k->max = k_max_ref;
    k->exp_sum = k_exp_sum_ref;
    k->gemm_bf16 = k_gemm_bf16_ref;
    k->gemm_f32[DT_F32] = k_gemm_f32_f32_ref;
    k->gemm_f32[DT_F16] = k_gemm_f32_f16_ref;
    k->gemm_f32[DT_BF16] = k_gemm_f32_bf16_ref;
    k->read_sum = k_read_sum_ref;
    k->peak_flops = k_peak_flops_ref;
}
