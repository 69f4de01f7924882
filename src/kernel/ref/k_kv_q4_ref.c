/* The reference kernels of a 4-bit cache: codes of groups, and the rotation of
 * keys and values. */
#include <math.h>
#include <string.h>

#include "kernel/kernel.h"

static const int8_t numbers[16] = {KV_Q4_CODES};

/* Return the code nearest to u. Of two, the lower. */
static unsigned nearest(int u)
{
    unsigned code = 0;

    while (code < 15 && 2 * u > numbers[code] + numbers[code + 1])
        code++;
    return code;
}

/* How well the codes of sign * q fit: the sums of sign q c and of c c. */
struct fit {
    int sign;
    int64_t qc, cc;
};

static struct fit fit_of(const int8_t *q, int sign, size_t n)
{
    struct fit f = {.sign = sign};

    for (size_t i = 0; i < n; i++) {
        int u = sign * q[i], c = numbers[nearest(u)];

        f.qc += (int64_t)u * c;
        f.cc += (int64_t)c * c;
    }
    return f;
}

/* The error with the best scale is sum(q q) - qc^2 / cc. */
static void k_kv_i8_to_q4_ref(unsigned char *codes, uint16_t *scale,
                              const int8_t *q, float by, size_t n)
{
    const struct fit plus = fit_of(q, 1, n), minus = fit_of(q, -1, n);
    const struct fit f =
        minus.qc * minus.qc * plus.cc > plus.qc * plus.qc * minus.cc ? minus
                                                                     : plus;
    const float s = (float)f.sign * (by * 128 * ((float)f.qc / (float)f.cc));

    memset(codes, 0, kv_q4_bytes(n));
    for (size_t i = 0; i < n; i++)
        codes[i / 2] |=
            (unsigned char)(nearest(f.sign * q[i]) << (i % 2 ? 4 : 0));
    kernels_get(ISA_REF)->from_f32[DT_F16](scale, &s, 1);
}

static void k_kv_q4_to_i8_ref(void *out, const void *block, size_t head_dim)
{
    const size_t bytes = kv_q4_bytes(head_dim),
                 n = KV_BLOCK * kv_i8_groups(head_dim);
    const unsigned char *codes = block;
    float *scales = (float *)(void *)((char *)out + KV_BLOCK * head_dim);
    int8_t *q = out;

    for (size_t j = 0; j < KV_BLOCK; j++)
        for (size_t i = 0; i < head_dim; i++) {
            unsigned both = codes[j * bytes + i / 2];

            q[j * head_dim + i] = numbers[i % 2 ? both >> 4 : both & 15];
        }
    kernels_get(ISA_REF)->to_f32[DT_F16](scales, codes + KV_BLOCK * bytes, n);
    for (size_t i = 0; i < n; i++)
        scales[i] *= 0x1p-7f;
}

static void k_hadamard_ref(float *x, size_t n_rows, size_t d)
{
    const size_t part = d & (~d + 1);
    const float scale = 1 / sqrtf((float)part);

    for (float *row = x; row < x + n_rows * d; row += part) {
        for (size_t h = 1; h < part; h *= 2)
            for (size_t i = 0; i < part; i++)
                if (!(i & h)) {
                    float a = row[i], b = row[i + h];

                    row[i] = a + b;
                    row[i + h] = a - b;
                }
        for (size_t i = 0; i < part; i++)
            row[i] *= scale;
    }
}

void k_kv_q4_ref_init(struct kernels *k)
{
    k->kv_i8_to_q4 = k_kv_i8_to_q4_ref;
    k->kv_q4_to_i8 = k_kv_q4_to_i8_ref;
    k->hadamard = k_hadamard_ref;
}
