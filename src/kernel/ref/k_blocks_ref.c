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

static void run_nvfp4(struct run *run, const unsigned char *row, size_t i)
{
    const struct nvfp4 *b = (const void *)(row + i / 2 * sizeof *b);
    const unsigned char *q = b->q + i % 2 * 16;

    run->has_min = false;
    for (size_t g = 0; g < 2; g++)
        run->scale[g] = ue4m3_half(b->d[i % 2 * 2 + g]);
    for (int k = 0; k < RUN; k++)
        run->code[k] =
            e2m1_codes[q[k / 16 * 8 + k % 8] >> (k % 16 / 8 * 4) & 15] -
            E2M1_OFFSET;
}

/* Set eight codes to the bytes of a grid point, with signs. */
static void eight(int *code, uint64_t grid, unsigned signs)
{
    for (int k = 0; k < 8; k++) {
        const int g = (int)(grid >> (8 * k) & 255);

        code[k] = signs >> k & 1 ? -g : g;
    }
}

/* Nibble i of scales, times 2, plus 1. */
static float odd_scale(const unsigned char *sc, size_t i)
{
    return (float)((sc[i / 2] >> (i % 2 * 4) & 15) * 2 + 1);
}

static void run_iq2_xxs(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq2_xxs *b = (const void *)(row + i / 8 * sizeof *b);
    const unsigned char *q = b->q + i % 8 * 8;
    const uint32_t s = load_u32(q + 4);

    one_scale(run, half_at(b->d) / 8 * (float)((s >> 28) * 2 + 1));
    for (size_t l = 0; l < 4; l++)
        eight(run->code + 8 * l, iq2_xxs_grid[q[l]], iq_signs(s >> (7 * l)));
}

/* The scales of run r of iq2_xs and iq2_s. */
static void iq2_scales(struct run *run, const unsigned char *d,
                       const unsigned char *sc, size_t r)
{
    run->has_min = false;
    for (size_t g = 0; g < 2; g++)
        run->scale[g] = half_at(d) / 8 * odd_scale(sc, 2 * r + g);
}

static void run_iq2_xs(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq2_xs *b = (const void *)(row + i / 8 * sizeof *b);

    iq2_scales(run, b->d, b->sc, i % 8);
    for (size_t l = 0; l < 4; l++) {
        const unsigned q = load_u16(b->q + i % 8 * 8 + 2 * l);

        eight(run->code + 8 * l, iq2_xs_grid[q & 511], iq_signs(q >> 9));
    }
}

static void run_iq2_s(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq2_s *b = (const void *)(row + i / 8 * sizeof *b);

    iq2_scales(run, b->d, b->sc, i % 8);
    for (size_t l = 0; l < 4; l++)
        eight(run->code + 8 * l, iq2_s_grid[iq2_s_index(b, i % 8, l)],
              b->signs[i % 8 * 4 + l]);
}

static void run_iq3_xxs(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq3_xxs *b = (const void *)(row + i / 8 * sizeof *b);
    const unsigned char *q = b->q + i % 8 * 8;
    const uint32_t s = load_u32(b->s + i % 8 * 4);

    one_scale(run, half_at(b->d) / 4 * (float)((s >> 28) * 2 + 1));
    for (size_t l = 0; l < 4; l++)
        eight(run->code + 8 * l,
              iq3_xxs_grid[q[2 * l]] | (uint64_t)iq3_xxs_grid[q[2 * l + 1]]
                                           << 32,
              iq_signs(s >> (7 * l)));
}

static void run_iq3_s(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq3_s *b = (const void *)(row + i / 8 * sizeof *b);
    const size_t r = i % 8;

    one_scale(run, half_at(b->d) * odd_scale(b->sc, r));
    for (size_t l = 0; l < 4; l++)
        eight(run->code + 8 * l,
              iq3_s_grid[iq3_s_index(b, r, 2 * l)] |
                  (uint64_t)iq3_s_grid[iq3_s_index(b, r, 2 * l + 1)] << 32,
              b->signs[4 * r + l]);
}

/* Set the codes to unsigned codes minus an offset. */
static void offset_codes(struct run *run, const uint8_t *codes, int offset)
{
    for (int k = 0; k < RUN; k++)
        run->code[k] = codes[k] - offset;
}

static void run_iq1_s(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq1_s *b = (const void *)(row + i / 8 * sizeof *b);
    const unsigned h = load_u16(b->h + i % 8 * 2);
    uint8_t codes[RUN];

    one_scale(run, half_at(b->d) / 8 * (float)((h >> 12 & 7) * 2 + 1));
    iq1_s_codes(codes, b, i % 8);
    offset_codes(run, codes, IQ1_OFFSET);
}

static void run_iq1_m(struct run *run, const unsigned char *row, size_t i)
{
    const struct iq1_m *b = (const void *)(row + i / 8 * sizeof *b);
    const uint16_t d = iq1_m_d(b);
    uint8_t codes[RUN], scales[16];

    iq1_m_scales(scales, b);
    run->has_min = false;
    for (size_t g = 0; g < 2; g++)
        run->scale[g] = half_at((const unsigned char *)&d) / 8 *
                        (float)scales[i % 8 * 2 + g];
    iq1_m_codes(codes, b, i % 8);
    offset_codes(run, codes, IQ1_OFFSET);
}

static void run_tq1_0(struct run *run, const unsigned char *row, size_t i)
{
    const struct tq1_0 *b = (const void *)(row + i / 8 * sizeof *b);
    uint8_t codes[RUN];

    one_scale(run, half_at(b->d));
    tq1_0_codes(codes, b, i % 8);
    offset_codes(run, codes, 1);
}

static void run_tq2_0(struct run *run, const unsigned char *row, size_t i)
{
    const struct tq2_0 *b = (const void *)(row + i / 8 * sizeof *b);

    one_scale(run, half_at(b->d));
    for (int k = 0; k < RUN; k++)
        run->code[k] = two_bits(b->q, i % 8, k) - 1;
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
                struct run run = {0};

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
