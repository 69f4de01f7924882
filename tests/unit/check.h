/* Shared by the kernel checks: random data, guarded memory, comparisons. Each
 * program that includes it sets ref and seed at its start.
 *
 * Bounds. u = 2^-24 is half a unit in the last place of f32. A sum of products
 * whose longest path passes through d additions is off by at most about
 * d u sum |a b| (Higham 2002, section 3.1; a fused product rounds with its
 * addition). If a result or an operand may be subnormal, each rounding adds
 * 2^-149. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include "test.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/rng.h"
#include "kernel/kernel.h"

#define U    0x1p-24
#define TINY 0x1p-149

static uint64_t seed = 1, draws;
static const struct kernels *ref;

/* ---- random numbers and data ------------------------------------------- */

static __attribute__((unused)) double uniform(void)
{
    return rng_uniform(seed, draws++);
}

static __attribute__((unused)) size_t below(size_t n)
{
    return (size_t)(uniform() * (double)n);
}

enum kind { NORMAL, ZEROS, ONE_HUGE, SUBNORMAL, MIXED, N_KINDS };

static const char *const kind_names[N_KINDS] = {
    "normal", "zeros", "one huge", "subnormal", "mixed magnitudes"};

/* huge: the value to use as a huge one, chosen so that no type overflows. */
static __attribute__((unused)) void fill(float *x, size_t n, enum kind kind,
                                         float huge)
{
    for (size_t i = 0; i < n; i++) {
        double v = uniform() + uniform() + uniform() + uniform() - 2;

        if (kind == ZEROS)
            v = 0;
        else if (kind == SUBNORMAL)
            v *= 1e-40;
        else if (kind == MIXED)
            v *= exp2(20 * uniform() - 10);
        x[i] = (float)v;
    }
    if (kind == ONE_HUGE && n)
        x[below(n)] = huge;
}

/* Sizes around each vector length, each unrolling, and a model's sizes. */
static const size_t big_sizes[] = {127,  128,  129,  1023, 1024,
                                   1025, 3071, 3072, 3073};

enum { N_SMALL = 67, N_SIZES = N_SMALL + sizeof big_sizes / sizeof *big_sizes };

static __attribute__((unused)) size_t size_at(size_t i)
{
    return i < N_SMALL ? i + 1 : big_sizes[i - N_SMALL];
}

/* ---- memory with guards ------------------------------------------------- */

enum { GUARD = 256 };

struct area {
    unsigned char *base, *copy;
    size_t bytes;
    void *p;
};

static __attribute__((unused)) void *must(void *p)
{
    if (!p)
        fail_msg("out of memory");
    return p;
}

/* Work memory of products, [KERNEL_WORK] floats, followed by an inaccessible
 * page. At first it holds NaN of all types; later, the data of the last
 * product. */
static __attribute__((unused)) float *product_work(void)
{
    static unsigned char *work;
    const size_t bytes = KERNEL_WORK * sizeof(float), page = 65536;

    if (!work) {
        work = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (work == MAP_FAILED || mprotect(work + bytes, page, PROT_NONE))
            fail_msg("no memory with a guard page");
        memset(work, 0xff, bytes);
    }
    return (float *)(void *)work;
}

/* Allocate `bytes` bytes between guards, starting `offset` bytes after a
 * multiple of 64. Unwritten values are NaN in all types. */
static __attribute__((unused)) struct area area_new(size_t bytes, size_t offset)
{
    struct area a = {.bytes = bytes};
    size_t total = (GUARD + offset + bytes + GUARD + 63) & ~(size_t)63;

    a.base = must(aligned_alloc(64, total));
    memset(a.base, 0xff, total);
    a.p = a.base + GUARD + offset;
    return a;
}

static __attribute__((unused)) void area_check(const struct area *a,
                                               const char *what)
{
    const unsigned char *p = a->p;

    for (size_t i = 1; i <= GUARD; i++)
        if (p[-(ptrdiff_t)i] != 0xff)
            fail_msg("%s: wrote %zu bytes before its output", what, i);
    for (size_t i = 0; i < GUARD - 64; i++)
        if (p[a->bytes + i] != 0xff)
            fail_msg("%s: wrote %zu bytes behind its output", what, i + 1);
}

/* Copy an input, to check later that it did not change. */
static __attribute__((unused)) void area_keep(struct area *a)
{
    free(a->copy);
    a->copy = must(malloc(a->bytes + 1));
    memcpy(a->copy, a->p, a->bytes);
}

static __attribute__((unused)) void area_same(const struct area *a,
                                              const char *what)
{
    if (memcmp(a->copy, a->p, a->bytes))
        fail_msg("%s: changed its input", what);
    area_check(a, what);
}

static __attribute__((unused)) void area_free(struct area *a)
{
    free(a->base);
    free(a->copy);
}

/* ---- comparisons -------------------------------------------------------- */

static __attribute__((unused)) void near(const char *what, size_t i, size_t n,
                                         double got, double want, double bound)
{
    if (isnan(want) && isnan(got))
        return;
    if (isinf(want) && got == want)
        return;
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: [%zu of %zu] is %.9g, expected %.9g +- %.3g (seed %llu)",
                 what, i, n, got, want, bound, (unsigned long long)seed);
}

static __attribute__((unused)) void same_bits(const char *what, const float *a,
                                              const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a))
            fail_msg("%s: [%zu of %zu] %.9g and %.9g differ in bits (seed "
                     "%llu)",
                     what, i, n, (double)a[i], (double)b[i],
                     (unsigned long long)seed);
}

/* Distance from the truth in f32's units of the last place at that value. */
static __attribute__((unused)) double ulps(float got, double want)
{
    double unit;
    int e;

    if (fabs(want) >= 0x1.ffffffp127) /* rounds to infinity */
        return isinf(got) && (got > 0) == (want > 0) ? 0 : INFINITY;
    frexp(want, &e);
    unit = ldexp(1, e - 24 < -149 ? -149 : e - 24);
    return fabs((double)got - want) / unit;
}

#endif
