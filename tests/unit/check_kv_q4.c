/* The kernels of a 4-bit cache: codes of groups and their expansion against the
 * reference and against the numbers they came from; the Hadamard transform
 * against its matrix. check_table.h has the options. */
#include "check_table.h"

static const int8_t numbers[16] = {KV_Q4_CODES};

static const size_t dims[] = {1,  2,  3,   16,  31,  32,  33,  40, 48,
                              64, 80, 96,  112, 127, 128, 130, 255, 256,
                              512, 576};
enum { N_DIMS = sizeof dims / sizeof *dims };

static float from_f16(uint16_t h)
{
    float f;

    ref->to_f32[DT_F16](&f, &h, 1);
    return f;
}

/* ---- codes -------------------------------------------------------------- */

/* The numbers that codes stand for. */
static void expand_group(double *out, const unsigned char *codes,
                         uint16_t scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (double)from_f16(scale) / 128 *
                 numbers[i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
}

/* The largest distance of an integer up to 127 from the nearest code. */
static int widest_gap(void)
{
    int most = 127 - numbers[15];

    for (int i = 0; i < 15; i++) {
        int half = (numbers[i + 1] - numbers[i] + 1) / 2;

        most = half > most ? half : most;
    }
    return most;
}

/* The error of a group is at most that of its nearest codes with the scale `by`
 * and the sign of which -127 is a code; and f16 rounds the scale, which moves
 * numbers of up to 127 units by 127 * 2^-11 or less of a unit. */
static void group_near(const char *what, const int8_t *q, float by,
                       const unsigned char *codes, uint16_t scale, size_t n)
{
    double got[KV_I8_GROUP], error = 0, most = widest_gap() + 0.0625;

    expand_group(got, codes, scale, n);
    for (size_t i = 0; i < n; i++)
        error += pow(got[i] / (double)by - q[i], 2);
    if (error > (double)n * most * most)
        fail_msg("%s: error %g of %zu elements", what, sqrt(error), n);
}

/* Fill a group as to_kv_i8 does: the largest magnitude is 127, or all are 0. */
static void fill_group(int8_t *q, size_t n, size_t kind)
{
    for (size_t i = 0; i < n; i++)
        q[i] = kind == 0   ? 0
               : kind == 1 ? (int8_t)(below(2) ? 127 : -127)
               : kind == 2 ? (int8_t)((int)below(5) - 2)
                           : (int8_t)((int)below(255) - 127);
    if (kind)
        q[below(n)] = below(2) ? 127 : -127;
}

static void check_codes(const struct kernels *k, enum dtype type)
{
    static const float scales[] = {1, 1e-3f, 3e-5f, 100};

    (void)type;
    for (size_t c = 0; c < 40 * KV_I8_GROUP; c++) {
        const size_t n = 1 + c % KV_I8_GROUP, kind = below(4);
        struct area q = area_new(n, below(3));
        struct area codes = area_new(kv_q4_bytes(n), below(3));
        struct area scale = area_new(2, 2 * below(3));
        unsigned char want[KV_I8_GROUP / 2];
        const float by = scales[below(4)];
        uint16_t want_scale;
        char what[64];

        snprintf(what, sizeof what, "%zu elements, kind %zu", n, kind);
        fill_group(q.p, n, kind);
        area_keep(&q);
        k->kv_i8_to_q4(codes.p, scale.p, q.p, by, n);
        ref->kv_i8_to_q4(want, &want_scale, q.p, by, n);
        area_same(&q, what);
        area_check(&codes, what);
        area_check(&scale, what);
        if (memcmp(want, codes.p, kv_q4_bytes(n)) ||
            memcmp(&want_scale, scale.p, 2))
            fail_msg("%s: other codes than the reference", what);
        group_near(what, q.p, by, codes.p, want_scale, n);
        if (n % 2 && *((unsigned char *)codes.p + n / 2) > 15)
            fail_msg("%s: the missing code is not 0", what);
        area_free(&q);
        area_free(&codes);
        area_free(&scale);
    }
}

/* A scale that is not finite spoils its group, and zeros stay zeros. */
static void check_scales(const struct kernels *k, enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, 1e30f};
    int8_t q[KV_I8_GROUP] = {0};
    unsigned char codes[KV_I8_GROUP / 2];
    uint16_t scale;

    (void)type;
    k->kv_i8_to_q4(codes, &scale, q, 0, KV_I8_GROUP);
    if (from_f16(scale) != 0)
        fail_msg("zeros have the scale %g", (double)from_f16(scale));
    fill_group(q, KV_I8_GROUP, 3);
    for (size_t i = 0; i < 3; i++) {
        k->kv_i8_to_q4(codes, &scale, q, bad[i], KV_I8_GROUP);
        if (isfinite(from_f16(scale)))
            fail_msg("the scale %g became finite", (double)bad[i]);
    }
}

/* ---- expanding ---------------------------------------------------------- */

static void check_expand(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t c = 0; c < 3 * N_DIMS; c++) {
        const size_t d = dims[c % N_DIMS], groups = kv_i8_groups(d);
        const size_t bytes = KV_BLOCK * (kv_q4_bytes(d) + 2 * groups);
        struct area in = area_new(bytes, 0), out = area_new(kv_i8_block(d), 0);
        unsigned char *p = in.p, *want = must(malloc(kv_i8_block(d)));
        uint16_t *scales = (uint16_t *)(void *)(p + KV_BLOCK * kv_q4_bytes(d));

        for (size_t i = 0; i < bytes; i++)
            p[i] = (unsigned char)below(256);
        for (size_t i = 0; i < KV_BLOCK * groups; i++)
            scales[i] &= 0xbfff; /* finite */
        area_keep(&in);
        k->kv_q4_to_i8(out.p, in.p, d);
        ref->kv_q4_to_i8(want, in.p, d);
        area_same(&in, "kv_q4_to_i8");
        area_check(&out, "kv_q4_to_i8");
        if (memcmp(want, out.p, kv_i8_block(d)))
            fail_msg("head_dim %zu: another block than the reference", d);
        free(want);
        area_free(&in);
        area_free(&out);
    }
}

/* ---- the Hadamard transform --------------------------------------------- */

static size_t part_of(size_t d)
{
    return d & (~d + 1);
}

/* Row i of the matrix has the sign of the parity of i & j in column j. A sum of
 * m terms in log2(m) steps, and the scale: errors of up to log2(m) + 2 units of
 * the sum of magnitudes. */
static void near_matrix(const float *got, const float *x, size_t d)
{
    const size_t m = part_of(d);

    for (size_t i = 0; i < d; i++) {
        const float *part = x + i / m * m;
        double sum = 0, size = 0;

        for (size_t j = 0; j < m; j++) {
            double v = (double)part[j] / sqrt((double)m);

            sum += __builtin_parityll(i % m & j) ? -v : v;
            size += fabs(v);
        }
        near("hadamard", i, d, (double)got[i], sum,
             (log2((double)m) + 2) * U * size);
    }
}

static double norm_of(const float *x, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* The matrix is orthonormal and its own inverse, up to the same errors: of each
 * element, of at most m times the mean magnitude, so of sqrt(m) norms. */
static void check_hadamard(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t c = 0; c < 4 * N_DIMS; c++) {
        const size_t d = dims[c % N_DIMS], n = 1 + below(4);
        struct area x = area_new(4 * n * d, 4 * below(3));
        float *from = must(malloc(4 * n * d)), *want = must(malloc(4 * n * d));
        const enum kind kind = below(2) ? NORMAL : ONE_HUGE;
        double bound = (2 * log2((double)part_of(d)) + 4) * U;

        fill(from, n * d, kind, 1000);
        memcpy(x.p, from, 4 * n * d);
        memcpy(want, from, 4 * n * d);
        k->hadamard(x.p, n, d);
        ref->hadamard(want, n, d);
        area_check(&x, "hadamard");
        same_bits("hadamard", want, x.p, n * d);
        for (size_t r = 0; r < n; r++)
            near_matrix((float *)x.p + r * d, from + r * d, d);
        near("norm", 0, d, norm_of(x.p, n * d), norm_of(from, n * d),
             bound * norm_of(from, n * d));
        k->hadamard(x.p, n, d);
        for (size_t i = 0; i < n * d; i++)
            near("inverse", i, d, (double)((float *)x.p)[i], (double)from[i],
                 bound * sqrt((double)part_of(d)) * norm_of(from, n * d));
        free(from);
        free(want);
        area_free(&x);
    }
}

/* ---- benches ------------------------------------------------------------ */

enum { BENCH_DIM = 128 };

static void bench_expand(const struct kernels *k, enum dtype type)
{
    struct area in = area_new(KV_BLOCK * (BENCH_DIM / 2 + 8), 0);
    struct area out = area_new(kv_i8_block(BENCH_DIM), 0);
    double ms;

    (void)type;
    memset(in.p, 0x35, KV_BLOCK * (BENCH_DIM / 2 + 8));
    TIME(ms, k->kv_q4_to_i8(out.p, in.p, BENCH_DIM));
    bench_line(benched, "64 x 128", ms, (double)kv_i8_block(BENCH_DIM), "GB/s");
    area_free(&in);
    area_free(&out);
}

static void bench_codes(const struct kernels *k, enum dtype type)
{
    unsigned char codes[KV_I8_GROUP / 2];
    int8_t q[KV_I8_GROUP];
    uint16_t scale;
    double ms;

    (void)type;
    fill_group(q, KV_I8_GROUP, 3);
    TIME(ms, k->kv_i8_to_q4(codes, &scale, q, 1, KV_I8_GROUP));
    bench_line(benched, "32", ms, KV_I8_GROUP, "GB/s");
}

static void bench_hadamard(const struct kernels *k, enum dtype type)
{
    float x[16 * BENCH_DIM];
    double ms;

    (void)type;
    fill(x, 16 * BENCH_DIM, NORMAL, 1);
    TIME(ms, k->hadamard(x, 16, BENCH_DIM));
    bench_line(benched, "16 x 128", ms, sizeof x, "GB/s");
}

static const struct check_row rows[] = {
    {"kv_i8_to_q4", DT_F32, DT_F32, check_codes, bench_codes},
    {"kv_i8_to_q4_scales", DT_F32, DT_F32, check_scales, NULL},
    {"kv_q4_to_i8", DT_F32, DT_F32, check_expand, bench_expand},
    {"hadamard", DT_F32, DT_F32, check_hadamard, bench_hadamard},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "a cache of 4 bits", rows,
                      sizeof rows / sizeof *rows, NULL, 0);
}
