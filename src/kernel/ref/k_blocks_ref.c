/* The reference kernels for GGUF's blocks: plain C, with one function for each
 * type that unpacks a run of 32 elements. */
#include "kernel/blocks.h"
#include "kernel/kernel.h"

enum { RUN = 32 };

/* An unpacked run of 32 elements: element k is code[k] * scale[k / 16], minus
 * min[k / 16] if has_min. */
struct run {
    int code[RUN];
    float scale[2], min[2];
    bool has_min;
};

typedef void run_fn(struct run *run, const unsigned char *row, size_t i);

static float half_at(const unsigned char *p)
{
    float f;

    kernels_get(ISA_REF)->to_f32[DT_F16](&f, p, 1);
    return f;
}

static void one_scale(struct run *run, float scale)
{
    run->scale[0] = run->scale[1] = scale;
    run->has_min = false;
}

static void one_min(struct run *run, float min)
{
    run->min[0] = run->min[1] = min;
    run->has_min = true;
}

/* Nibble k of a run. The low nibbles come first. */
static int nibble(const unsigned char *q, int k)
{
    return k < 16 ? q[k] & 15 : q[k - 16] >> 4;
}

static int bit(const unsigned char *h, int k)
{
    return h[k / 8] >> k % 8 & 1;
}

static void run_q4_0(struct run *run, const unsigned char *row, size_t i)
{
    const struct q4_0 *b = (const void *)(row + i * sizeof *b);

    one_scale(run, half_at(b->d));
    for (int k = 0; k < RUN; k++)
        run->code[k] = nibble(b->q, k) - 8;
}

static void run_q4_1(struct run *run, const unsigned char *row, size_t i)
{
    const struct q4_1 *b = (const void *)(row + i * sizeof *b);

    one_scale(run, half_at(b->d));
    one_min(run, -half_at(b->m));
    for (int k = 0; k < RUN; k++)
        run->code[k] = nibble(b->q, k);
}

static void run_q5_0(struct run *run, const unsigned char *row, size_t i)
{
    const struct q5_0 *b = (const void *)(row + i * sizeof *b);

    one_scale(run, half_at(b->d));
    for (int k = 0; k < RUN; k++)
        run->code[k] = (nibble(b->q, k) | bit(b->h, k) << 4) - 16;
}

static void run_q5_1(struct run *run, const unsigned char *row, size_t i)
{
    const struct q5_1 *b = (const void *)(row + i * sizeof *b);

    one_scale(run, half_at(b->d));
    one_min(run, -half_at(b->m));
    for (int k = 0; k < RUN; k++)
        run->code[k] = nibble(b->q, k) | bit(b->h, k) << 4;
}

static void run_q8_0(struct run *run, const unsigned char *row, size_t i)
{
    const struct q8_0 *b = (const void *)(row + i * sizeof *b);

    one_scale(run, half_at(b->d));
    for (int k = 0; k < RUN; k++)
        run->code[k] = b->q[k];
}

static void run_iq4_nl(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq4_nl *b = (const void *)(row + i * sizeof *b);

    one_scale(run, half_at(b->d));
    for (int k = 0; k < RUN; k++)
        run->code[k] = iq4_values[nibble(b->q, k)];
}

static void run_mxfp4(struct run *run, const unsigned char *row, size_t i)
{
    const struct mxfp4 *b = (const void *)(row + i * sizeof *b);

    one_scale(run, e8m0_half(b->e));
    for (int k = 0; k < RUN; k++)
        run->code[k] = e2m1_codes[nibble(b->q, k)] - E2M1_OFFSET;
}

/* The two bits of element k in run r of a superblock. */
static int two_bits(const unsigned char *q, size_t r, int k)
{
    return q[r / 4 * 32 + (size_t)k] >> (r % 4 * 2) & 3;
}

static void run_q2_k(struct run *run, const unsigned char *row, size_t i)
{
    const struct q2_k *b = (const void *)(row + i / 8 * sizeof *b);
    const size_t r = i % 8;

    run->has_min = true;
    for (size_t g = 0; g < 2; g++) {
        run->scale[g] = half_at(b->d) * (float)(b->sc[2 * r + g] & 15);
        run->min[g] = half_at(b->dmin) * (float)(b->sc[2 * r + g] >> 4);
    }
    for (int k = 0; k < RUN; k++)
        run->code[k] = two_bits(b->q, r, k);
}

static void run_q3_k(struct run *run, const unsigned char *row, size_t i)
{
    const struct q3_k *b = (const void *)(row + i / 8 * sizeof *b);
    const size_t r = i % 8;
    int8_t scales[16];

    q3_k_scales(scales, b->sc);
    run->has_min = false;
    for (size_t g = 0; g < 2; g++)
        run->scale[g] = half_at(b->d) * (float)scales[2 * r + g];
    for (int k = 0; k < RUN; k++)
        run->code[k] = two_bits(b->q, r, k) - (b->h[k] >> r & 1 ? 0 : 4);
}

/* Set the scale and the min of run r of q4_k and q5_k. */
static void k_run(struct run *run, const unsigned char *d,
                  const unsigned char *dmin, const unsigned char *sc, size_t r)
{
    uint8_t scales[8], mins[8];

    k_scales_mins(scales, mins, sc);
    one_scale(run, half_at(d) * (float)scales[r]);
    one_min(run, half_at(dmin) * (float)mins[r]);
}

static void run_q4_k(struct run *run, const unsigned char *row, size_t i)
{
    const struct q4_k *b = (const void *)(row + i / 8 * sizeof *b);
    const size_t r = i % 8;

    k_run(run, b->d, b->dmin, b->sc, r);
    for (size_t k = 0; k < RUN; k++)
        run->code[k] = b->q[r / 2 * 32 + k] >> (r % 2 * 4) & 15;
}

static void run_q5_k(struct run *run, const unsigned char *row, size_t i)
{
    const struct q5_k *b = (const void *)(row + i / 8 * sizeof *b);
    const size_t r = i % 8;

    k_run(run, b->d, b->dmin, b->sc, r);
    for (size_t k = 0; k < RUN; k++)
        run->code[k] = (b->q[r / 2 * 32 + k] >> (r % 2 * 4) & 15) |
                       (b->h[k] >> r & 1) << 4;
}

static void run_q6_k(struct run *run, const unsigned char *row, size_t i)
{
    const struct q6_k *b = (const void *)(row + i / 8 * sizeof *b);
    const size_t half = i % 8 / 4, r = i % 4;

    run->has_min = false;
    for (size_t g = 0; g < 2; g++)
        run->scale[g] = half_at(b->d) * (float)b->sc[i % 8 * 2 + g];
    for (size_t k = 0; k < RUN; k++) {
        int low = b->l[half * 64 + r % 2 * 32 + k] >> (r / 2 * 4) & 15;
        int high = b->h[half * 32 + k] >> (r * 2) & 3;

        run->code[k] = (low | high << 4) - 32;
    }
}

static void run_iq4_xs(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq4_xs *b = (const void *)(row + i / 8 * sizeof *b);
    int8_t scales[8];

    iq4_xs_scales(scales, b);
    one_scale(run, half_at(b->d) * (float)scales[i % 8]);
    for (int k = 0; k < RUN; k++)
        run->code[k] = iq4_values[nibble(b->q + i % 8 * 16, k)];
}

/* ---- kernels ------------------------------------------------------------- */

static void to_f32(float *out, const void *blocks, size_t n, run_fn *take)
{
    for (size_t i = 0; i < n / RUN; i++) {
        struct run run = {0};

        take(&run, blocks, i);
        for (size_t k = 0; k < RUN; k++) {
            float product = (float)run.code[k] * run.scale[k / 16];

            out[i * RUN + k] =
                run.has_min ? product - run.min[k / 16] : product;
        }
    }
}

static void gemm_q8(float *y, size_t ldy, const unsigned char *w,
                    size_t w_stride, const struct q8 *x, size_t n_rows,
                    size_t n_cols, size_t n_tokens, bool add, run_fn *take)
{
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t r = 0; r < n_rows; r++) {
            double sum = add ? (double)y[t * ldy + r] : 0;

            for (size_t i = 0; i < n_cols / RUN; i++) {
                const int8_t *q = x->q + t * x->ldq + i * RUN;
                double scale = (double)x->scale[t * x->ldg + i];
                struct run run;

                take(&run, w + r * w_stride, i);
                for (int g = 0; g < 2; g++) {
                    long dot = 0, total = 0;

                    for (int k = 16 * g; k < 16 * g + 16; k++) {
                        dot += (long)run.code[k] * q[k];
                        total += q[k];
                    }
                    sum += scale * (double)run.scale[g] * (double)dot;
                    if (run.has_min)
                        sum -= scale * (double)run.min[g] * (double)total;
                }
            }
            y[t * ldy + r] = (float)sum;
        }
}

#define KERNELS(name, TYPE)                                                    \
    static void k_##name##_to_f32_ref(float *out, const void *blocks,          \
                                      size_t n)                                \
    {                                                                          \
        to_f32(out, blocks, n, run_##name);                                    \
    }                                                                          \
    static void k_gemm_q8_##name##_ref(float *y, size_t ldy, const void *w,    \
                                       size_t w_stride, const struct q8 *x,    \
                                       size_t n_rows, size_t n_cols,           \
                                       size_t n_tokens, bool add, float *work) \
    {                                                                          \
        (void)work;                                                            \
        gemm_q8(y, ldy, w, w_stride, x, n_rows, n_cols, n_tokens, add,         \
                run_##name);                                                   \
    }

EACH_BLOCK_TYPE(KERNELS)

void k_blocks_ref_init(struct kernels *k)
{
#define ENTER(name, TYPE)                                       \
    k->blocks_to_f32[TYPE - DT_BLOCKS] = k_##name##_to_f32_ref; \
    k->gemm_q8_blocks[TYPE - DT_BLOCKS] = k_gemm_q8_##name##_ref;
    EACH_BLOCK_TYPE(ENTER)
}
