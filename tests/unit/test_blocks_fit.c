/* Rounding to GGUF's blocks: Q8_0 against ggml's formula, the other types
 * against the error of llama.cpp's quantizer, and inputs at the edges. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "file/gguf.h"
#include "kernel/blocks.h"
#include "model/blocks_fit.h"

static const enum dtype types[] = {DT_Q8_0,   DT_Q4_0, DT_Q5_0, DT_Q5_1,
                                   DT_IQ4_NL, DT_Q2_K, DT_Q3_K, DT_Q4_K,
                                   DT_Q5_K,   DT_Q6_K};
enum { N_TYPES = sizeof types / sizeof *types, N = 8 * SUPER };

static const struct kernels *k;

static float *floats(size_t n)
{
    float *x = aligned_alloc(64, (n * sizeof *x + 63) & ~(size_t)63);
    assert_non_null(x);
    return x;
}

static size_t block_bytes(enum dtype type, size_t n)
{
    return n / dtype_block(type) * dtype_bytes(type);
}

/* x as the blocks of this type hold it, malloc'ed. */
static float *round_trip(enum dtype type, const float *x, size_t n,
                         unsigned char *blocks)
{
    size_t bad;
    float *got = floats(n);
    assert_int_equal(blocks_fit(type, k, blocks, x, n, &bad), 0);
    k->blocks_to_f32[type - DT_BLOCKS](got, blocks, n);
    return got;
}

static double rms(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

/* Sums of uniform numbers: bell-shaped, like weights. */
static void fill(float *x, size_t n, float scale, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        float v = -2;
        for (size_t j = 0; j < 4; j++)
            v += (float)rng_uniform(seed, 4 * i + j);
        x[i] = scale * v;
    }
}

/* The widened tensor, malloc'ed. */
static float *widen(const struct st_tensor *t, size_t *n)
{
    *n = t->n_bytes / dtype_bytes(t->dtype) * dtype_block(t->dtype);
    float *x = floats(*n);
    if (t->dtype < DT_N_FLOAT)
        k->to_f32[t->dtype](x, t->data, *n);
    else
        k->blocks_to_f32[t->dtype - DT_BLOCKS](x, t->data, *n);
    return x;
}

/* No tensor may have a larger error than llama.cpp's quantizer has against the
 * same source. The bounds are the search's own errors here, rounded up. Without
 * least squares for d and dmin, Q4_K reaches 0.994. */
static void no_worse_than_llama(void **state)
{
    static const struct {
        const char *name;
        double most;
    } files[] = {{"Q4_0", 0.95},    {"Q5_0", 0.95},   {"Q5_1", 0.93},
                 {"IQ4_NL", 0.98},  {"Q2_K", 0.9},    {"Q3_K_S", 0.96},
                 {"Q4_K_S", 0.993}, {"Q5_K_S", 0.97}, {"Q6_K", 0.97}};
    struct gguf *src, *want;
    assert_int_equal(
        gguf_open(&src, "tests/golden/gguf/tiny-dense-F16.gguf", NULL), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[96];
        double worst = 0;
        snprintf(path, sizeof path, "tests/golden/gguf/tiny-dense-%s.gguf",
                 files[i].name);
        assert_int_equal(gguf_open(&want, path, NULL), 0);
        struct st_set *set = gguf_tensors(want);
        for (size_t j = 0; j < st_count(set); j++) {
            const struct st_tensor *t = st_at(set, j);
            if (t->dtype < DT_BLOCKS)
                continue;
            size_t n, n_want;
            float *x = widen(st_find(gguf_tensors(src), t->name), &n);
            float *theirs = widen(t, &n_want);
            assert_int_equal(n, n_want);
            unsigned char *blocks = malloc(t->n_bytes);
            float *ours = round_trip(t->dtype, x, n, blocks);
            double ratio = rms(ours, x, n) / rms(theirs, x, n);
            worst = ratio > worst ? ratio : worst;
            free(ours);
            free(blocks);
            free(theirs);
            free(x);
        }
        printf("%-8s error, times llama.cpp's: at most %.4f\n", files[i].name,
               worst);
        assert_true(worst <= files[i].most);
        gguf_close(want);
    }
    gguf_close(src);
}

/* ggml's formula, written down once more. */
static void q8_0_is_the_reference(void **state)
{
    unsigned char blocks[N / 32 * sizeof(struct q8_0)];
    float *x = floats(N);
    size_t bad;
    fill(x, N, 0.03f, 7);
    x[5] = x[4]; /* a tie for the farthest */
    assert_int_equal(blocks_fit(DT_Q8_0, k, blocks, x, N, &bad), 0);
    for (size_t i = 0; i < N / 32; i++) {
        struct q8_0 b;
        float most = 0;
        uint16_t d;
        memcpy(&b, blocks + i * sizeof b, sizeof b);
        for (size_t j = 0; j < 32; j++)
            most = fmaxf(most, fabsf(x[i * 32 + j]));
        float scale = most / 127, inverse = 1 / scale;
        k->from_f32[DT_F16](&d, &scale, 1);
        assert_memory_equal(b.d, &d, sizeof d);
        for (size_t j = 0; j < 32; j++)
            assert_int_equal(b.q[j], lroundf(x[i * 32 + j] * inverse));
    }
    free(x);
}

/* The search of a type with one scale of evenly spaced codes finds the scale of
 * values that the type holds. */
static bool keeps(enum dtype type)
{
    return type == DT_Q8_0 || type == DT_Q4_0 || type == DT_Q5_0;
}

/* Values that a type can hold. Other searches may end at another d or m, so
 * there the bound is that rounding again changes less than rounding did. */
static void values_of_blocks_are_kept(void **state)
{
    for (size_t i = 0; i < N_TYPES; i++) {
        unsigned char blocks[N * 2], again[N * 2];
        float *x = floats(N);
        fill(x, N, 0.02f, 11 + i);
        float *once = round_trip(types[i], x, N, blocks);
        float *twice = round_trip(types[i], once, N, again);
        double error = rms(once, x, N), more = rms(twice, once, N);
        printf("%-5s error of rounding %.2e, of rounding again %.2e\n",
               dtype_name(types[i]), error, more);
        if (types[i] == DT_Q8_0) /* d is exact here */
            assert_memory_equal(blocks, again, block_bytes(types[i], N));
        assert_true(keeps(types[i]) ? more == 0 : more < error);
        free(twice);
        free(once);
        free(x);
    }
}

static void zeros_stay_zeros(void **state)
{
    float *x = floats(SUPER);
    memset(x, 0, SUPER * sizeof *x);
    for (size_t i = 0; i < N_TYPES; i++) {
        unsigned char blocks[2 * SUPER];
        float *got = round_trip(types[i], x, SUPER, blocks);
        for (size_t j = 0; j < SUPER; j++)
            assert_true(got[j] == 0);
        free(got);
    }
    free(x);
}

/* Blocks of one value, of positive or negative values only, and with one
 * outlier: the error is at most half a step of the range that the codes must
 * cover. A scale of six or eight bits and an f16 d add at most as much. */
static void odd_distributions(void **state)
{
    static const struct {
        int steps; /* of the range; of IQ4_NL: as of the widest step */
        bool mins;
    } forms[] = {{255, false}, {15, false}, {31, false}, {31, true},
                 {10, false},  {3, true},   {7, false},  {15, true},
                 {31, true},   {63, false}};
    float *x = floats(SUPER);
    for (size_t i = 0; i < N_TYPES; i++)
        for (int kind = 0; kind < 5; kind++) {
            unsigned char blocks[2 * SUPER];
            fill(x, SUPER, 0.01f, 31 + i);
            float low = 0, high = 0;
            for (size_t j = 0; j < SUPER; j++) {
                x[j] = kind == 0   ? 0.37f
                       : kind == 1 ? -0.37f
                       : kind == 2 ? fabsf(x[j])
                       : kind == 3 ? -fabsf(x[j])
                                   : x[j];
                if (kind == 4 && j == 100)
                    x[j] = 3;
                low = fminf(low, x[j]);
                high = fmaxf(high, x[j]);
            }
            float *got = round_trip(types[i], x, SUPER, blocks);
            /* without mins the codes reach as far to the other side */
            float range = forms[i].mins ? high - low : 2 * fmaxf(high, -low);
            for (size_t j = 0; j < SUPER; j++)
                if (!(fabsf(got[j] - x[j]) <= range / (float)forms[i].steps))
                    fail_msg("%s, kind %d: %g becomes %g", dtype_name(types[i]),
                             kind, (double)x[j], (double)got[j]);
            free(got);
        }
    free(x);
}

/* As large as an f16 scale allows, far too large, and far too small. */
static void huge_and_tiny_values(void **state)
{
    float *x = floats(SUPER);
    for (size_t i = 0; i < N_TYPES; i++) {
        unsigned char blocks[2 * SUPER];
        size_t bad = 0;
        /* m of Q5_1 is as large as the values */
        fill(x, SUPER, types[i] == DT_Q5_1 ? 3e4f : 2e5f, 3 + i);
        free(round_trip(types[i], x, SUPER, blocks));
        fill(x, SUPER, FLT_MIN, 3 + i); /* many are subnormal */
        float *got = round_trip(types[i], x, SUPER, blocks);
        for (size_t j = 0; j < SUPER; j++)
            assert_true(fabsf(got[j]) < 1e-6f);
        free(got);
        /* 1e-7: f16 scales are subnormal here, with few bits */
        fill(x, SUPER, 1e-6f, 3 + i);
        got = round_trip(types[i], x, SUPER, blocks);
        assert_true(rms(got, x, SUPER) <= rms(x, (float[SUPER]){0}, SUPER));
        free(got);
        memset(x, 0, SUPER * sizeof *x);
        x[40] = FLT_MAX;
        assert_int_equal(blocks_fit(types[i], k, blocks, x, SUPER, &bad), -1);
        assert_int_equal(bad, dtype_block(types[i]) == 32 ? 32 : 0);
    }
    free(x);
}

static void numbers_that_are_none(void **state)
{
    const float none[] = {NAN, -NAN, INFINITY, -INFINITY};
    float *x = floats(2 * SUPER);
    for (size_t i = 0; i < N_TYPES; i++)
        for (size_t j = 0; j < 4; j++) {
            unsigned char blocks[4 * SUPER];
            size_t bad = 0;
            fill(x, 2 * SUPER, 1, 5);
            x[SUPER + 33] = none[j];
            assert_int_equal(
                blocks_fit(types[i], k, blocks, x, 2 * SUPER, &bad), -1);
            assert_int_equal(bad,
                             SUPER + (dtype_block(types[i]) == 32 ? 32 : 0));
        }
    free(x);
}

static void types_that_it_has(void **state)
{
    size_t n = 0;
    for (int t = 0; t < DT_COUNT; t++)
        n += blocks_fit_has((enum dtype)t);
    assert_int_equal(n, N_TYPES);
    for (size_t i = 0; i < N_TYPES; i++)
        assert_true(blocks_fit_has(types[i]));
}

int main(void)
{
    k = kernels_best();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_worse_than_llama),
        cmocka_unit_test(q8_0_is_the_reference),
        cmocka_unit_test(values_of_blocks_are_kept),
        cmocka_unit_test(zeros_stay_zeros),
        cmocka_unit_test(odd_distributions),
        cmocka_unit_test(huge_and_tiny_values),
        cmocka_unit_test(numbers_that_are_none),
        cmocka_unit_test(types_that_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
