/* Kernels for quantized weights on every 64-bit ARM CPU: widening, products in
 * f32, rounding of activations, and integer products that add pairs of byte
 * products in words. */
#define KERNEL(name) k_##name##_neon
#define DOTPROD      0
#define I8MM         0

#include "kernel/arm/k_int8_affine.h"

#include "kernel/arm/k_int8_blocks.h"

/* ---- widening ----------------------------------------------------------- */

/* Widen 16 codes to out: code * scale, rounded, plus add, which is NULL for
 * none. */
INLINE void widen16(float *out, int16x8_t low, int16x8_t high, float scale,
                    const float *add)
{
    const int16x4_t v[4] = {vget_low_s16(low), vget_high_s16(low),
                            vget_low_s16(high), vget_high_s16(high)};

    UNROLL
    for (int i = 0; i < 4; i++) {
        float32x4_t f = vmulq_n_f32(vcvtq_f32_s32(vmovl_s16(v[i])), scale);

        if (add)
            f = vaddq_f32(f, vdupq_n_f32(*add));
        vst1q_f32(out + 4 * i, f);
    }
}

INLINE void widen_codes(float *out, const unsigned char *p, size_t n,
                        const float *scale, const float *bias, size_t group,
                        int bits)
{
    const int16x8_t plus = vdupq_n_s16(width_bits(bits) == 8 ? 128 : 0);

    for (size_t k = 0; k < n; k += 16, p += 2 * width_bits(bits)) {
        const int8x16_t q = signed16(p, bits);

        widen16(out + k, vaddq_s16(vmovl_s8(vget_low_s8(q)), plus),
                vaddq_s16(vmovl_high_s8(q), plus), scale[k / group],
                bits == E2M1 ? NULL : &bias[k / group]);
    }
}

/* Widen columns [from, from + n) of row r. from and n are multiples of the
 * group. */
static void widen_row(float *out, const struct affine *w, size_t r, size_t from,
                      size_t n)
{
    enum { GROUPS = 64 };
    float scale[GROUPS], bias[GROUPS];

    for (size_t k = 0, nk; k < n; k += nk, out += nk) {
        const size_t most = GROUPS * w->group, g0 = (from + k) / w->group;

        nk = n - k < most ? n - k : most;
        for (size_t g = 0; g < nk / w->group; g += 4) {
            const size_t left = nk / w->group - g;
            const float32x4_t s = affine_scales(w, r, g0 + g, left);

            vst1q_f32(scale + g, s);
            vst1q_f32(bias + g, affine_biases(w, r, g0 + g, left, s));
        }
        WITH_BITS(code_width(w),
                  widen_codes(out,
                              w->q + r * w->q_stride +
                                  (from + k) * width_bits(BITS) / 8,
                              nk, scale, bias, w->group, BITS));
    }
}

static void k_affine_to_f32_neon(float *out, const struct affine *w,
                                 size_t n_rows, size_t n_cols)
{
    for (size_t r = 0; r < n_rows; r++)
        widen_row(out + r * n_cols, w, r, 0, n_cols);
}

INLINE void widen_blocks(enum dtype type, float *out, const unsigned char *p,
                         size_t n)
{
    const int8x16_t offset = vdupq_n_s8((int8_t)offset_of(type));

    for (size_t c = 0, nr; c < n / RUN; c += nr, p += runs_bytes(type, nr)) {
        float scale[2 * CHUNK_RUNS], min[2 * CHUNK_RUNS] = {0};

        nr = n / RUN - c < CHUNK_RUNS ? n / RUN - c : CHUNK_RUNS;
        chunk_scales(type, scale, min, p, nr);
        for (size_t r = 0; r < nr; r++) {
            int8x16_t v[2];

            run_codes(type, v, p, r);
            for (size_t h = 0; h < 2; h++, out += 16) {
                const size_t g = has_halves(type) ? 2 * r + h : r;
                const int8x16_t q = vsubq_s8(v[h], offset);
                const float add = -min[g];

                widen16(out, vmovl_s8(vget_low_s8(q)), vmovl_high_s8(q),
                        scale[g], has_min(type) ? &add : NULL);
            }
        }
    }
}

#define WIDEN(name, TYPE)                                                   \
    static void k_##name##_to_f32_neon(float *out, const void *p, size_t n) \
    {                                                                       \
        widen_blocks(TYPE, out, p, n);                                      \
    }
#define ENTER_WIDEN(name, TYPE) \
    k->blocks_to_f32[TYPE - DT_BLOCKS] = k_##name##_to_f32_neon;

EACH_BLOCK_TYPE(WIDEN)

/* ---- products in f32 ---------------------------------------------------- */

/* Order of sums: runs of WIDE_COLS columns are added one after another. Within
 * a run the order is that of the dense product. */
enum { WIDE_COLS = 1024, WIDE_ROWS = 32, WIDE_SMALL_M = 4, WIDE_TOKENS = 64 };

/* Layout of the caller's work memory. The dense product in f32 does not use
 * it. */
struct wide {
    float rows[WIDE_ROWS * WIDE_COLS];
    float more[WIDE_TOKENS * WIDE_ROWS]; /* sums of all runs but the first */
};

_Static_assert(sizeof(struct wide) <= KERNEL_WORK * sizeof(float),
               "the caller's memory");

/* Multiply columns [k, k + nk) of nr rows from r on, and add the products to y
 * unless k is 0. */
static void wide_run(float *y, size_t ldy, const struct affine *w, size_t r,
                     size_t nr, size_t k, size_t nk, const float *x, size_t ldx,
                     size_t n_tokens, struct wide *m)
{
    const struct kernels *neon = kernels_get(ISA_NEON);
    size_t nt;

    for (size_t i = 0; i < nr; i++)
        widen_row(m->rows + i * nk, w, r + i, k, nk);
    if (k == 0) {
        neon->matmul_f32[DT_F32](y, ldy, m->rows, nk, x, ldx, nr, nk, n_tokens,
                                 NULL);
        return;
    }
    for (size_t t = 0; t < n_tokens; t += nt) {
        nt = n_tokens - t < WIDE_TOKENS ? n_tokens - t : WIDE_TOKENS;
        neon->matmul_f32[DT_F32](m->more, nr, m->rows, nk, x + t * ldx + k, ldx,
                                 nr, nk, nt, NULL);
        for (size_t i = 0; i < nt * nr; i++)
            y[(t + i / nr) * ldy + i % nr] += m->more[i];
    }
}

static void k_matmul_f32_affine_neon(float *y, size_t ldy,
                                     const struct affine *w, const float *x,
                                     size_t ldx, size_t n_rows, size_t n_cols,
                                     size_t n_tokens, float *work)
{
    /* rows of a block: it stays in L1 for a few tokens, in L2 for many */
    const size_t block = n_tokens > 8 ? WIDE_ROWS : WIDE_SMALL_M;
    size_t nr, nk;

    for (size_t r = 0; r < n_rows; r += nr) {
        size_t k = 0;

        nr = n_rows - r < block ? n_rows - r : block;
        do {
            nk = n_cols - k < WIDE_COLS ? n_cols - k : WIDE_COLS;
            wide_run(y + r, ldy, w, r, nr, k, nk, x, ldx, n_tokens,
                     (struct wide *)(void *)work);
            k += nk;
        } while (k < n_cols);
    }
}

/* ---- rounding to int8 --------------------------------------------------- */

/* Values beyond the limits become the limits, and NaN 0. fmin and fmax would
 * keep NaN; the conversion makes it 0. */
INLINE int32x4_t round4(const float *x, float by)
{
    float32x4_t v = vmulq_n_f32(vld1q_f32(x), by);

    v = vmaxq_f32(vminq_f32(v, vdupq_n_f32(127)), vdupq_n_f32(-127));
    return vcvtnq_s32_f32(v);
}

/* The largest magnitude of n values, a multiple of 16. */
INLINE float largest(const float *x, size_t n)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
    uint32x4_t m[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    uint32_t top;
    float f;

    /* as integers: NaN are the largest, so that none is lost */
    for (size_t i = 0; i < n; i += 4)
        m[i / 4 % 2] = vmaxq_u32(
            m[i / 4 % 2],
            vandq_u32(magnitude, vreinterpretq_u32_f32(vld1q_f32(x + i))));
    top = vmaxvq_u32(vmaxq_u32(m[0], m[1]));
    memcpy(&f, &top, sizeof f);
    return f;
}

/* Round one group of n values, a multiple of 16, whose largest magnitude, or
 * that of the group paired with it, is top. Sets its scale, and scale times the
 * sum of the rounded values. */
INLINE void round_group(int8_t *q, float *scale, float *sum, const float *x,
                        size_t n, float top)
{
    const float by = top > 0 ? 127 / top : 0;
    int32x4_t total = vdupq_n_s32(0);

    for (size_t i = 0; i < n; i += 16) {
        int32x4_t v[4];
        int16x8_t low, high;

        UNROLL
        for (size_t j = 0; j < 4; j++) {
            v[j] = round4(x + i + 4 * j, by);
            total = vaddq_s32(total, v[j]);
        }
        low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
        high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
        vst1q_s8(q + i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    }
    *scale = top / 127;
    *sum = *scale * (float)vaddvq_s32(total);
}

#include "kernel/k_round_q8.h"

void k_int8_neon_init(struct kernels *k)
{
    k->affine_to_f32 = k_affine_to_f32_neon;
    k->matmul_f32_affine = k_matmul_f32_affine_neon;
    k->to_q8 = k_to_q8_neon;
    k->to_kv_i8 = k_to_kv_i8_neon;
    enter_int8(k);
    EACH_BLOCK_TYPE(ENTER_WIDEN)
}
