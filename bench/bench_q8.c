/* Speed of products with quantized weights on one thread. gemm_q8_affine is
 * compared with reading the same memory (a few tokens), or with its
 * multiply-adds on registers only (many tokens).
 *
 *   bench_q8 [--isa LEVEL] [--bits B] [--group G] [--cols N] [--tokens T]
 *            [--exact | --type TYPE]
 *
 * Pin it to a core (taskset -c 0). Without options: the best level, all widths,
 * groups of 64, 1024, 2048 and 3072 columns, 1 and 512 tokens. --exact times
 * matmul_f32_affine. --type times gemm_q8_blocks, for example with Q4_K.
 *
 * Slices of the weights that take a fraction of a millisecond alternate with
 * slices of the limit. The fastest quarter of each counts; the median is also
 * printed. The two differ if the machine is not quiet. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum {
    POOL = 288 << 20, /* bytes of codes: more than any cache */
    MANY = 32,        /* from this number of tokens on, arithmetic is the
                         limit */
    SLICE = 2 << 20,  /* at most, 0.05 ms at 40 GB/s */
    MAX_GROUPS = 1024
};

struct options {
    enum isa level;
    size_t bits, group, cols, tokens; /* 0: all usual values */
    bool exact;
    enum dtype type; /* of blocks; DT_COUNT: affine codes */
};

struct job {
    const struct kernels *k;
    struct affine w;
    struct q8 x;
    float *x32, *y, *work;
    const unsigned char *pool;
    size_t rows, cols, tokens; /* of a slice */
    size_t slices;
    bool exact;
    enum dtype type; /* of blocks; DT_COUNT: affine codes */
};

static void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "bench_q8: out of memory\n");
        exit(1);
    }
    return p;
}

static void *lines(size_t bytes)
{
    return must(aligned_alloc(64, (bytes + 63) / 64 * 64));
}

/* ---- one line ---- */

static volatile unsigned long long read_sink;

/* Measure the machine's limit, in place of slice i. */
static double limit_ms(const struct job *j, size_t i, double *work)
{
    double t0 = clock_ms();
    float sink;

    if (j->tokens < MANY) {
        *work = SLICE;
        read_sink =
            j->k->read_sum(j->pool + i * SLICE, SLICE, kernel_core.sweep_l2);
    } else if (j->exact) {
        *work = j->k->peak_flops(5, &sink);
    } else {
        *work = j->k->peak_q8(10, &sink);
    }
    return clock_ms() - t0;
}

/* Time slice i. *work: its bytes or operations. */
static double slice_ms(const struct job *j, size_t i, double *work)
{
    struct affine w = j->w;
    double t0 = clock_ms();

    w.q += i * j->rows * w.q_stride;
    if (j->type < DT_COUNT) {
        j->k->gemm_q8_blocks[j->type - DT_BLOCKS](
            j->y, j->rows, w.q, w.q_stride, &j->x, j->rows, j->cols, j->tokens,
            false, j->work);
        *work = j->tokens < MANY ? (double)(j->rows * w.q_stride)
                                 : 2.0 * (double)j->rows * (double)j->cols *
                                       (double)j->tokens;
        return clock_ms() - t0;
    }
    w.scales += i * j->rows * w.s_stride;
    w.biases += i * j->rows * w.b_stride;
    if (j->exact)
        j->k->matmul_f32_affine(j->y, j->rows, &w, j->x32, j->cols, j->rows,
                                j->cols, j->tokens, j->work);
    else
        j->k->gemm_q8_affine(j->y, j->rows, &w, &j->x, j->rows, j->cols,
                             j->tokens, false, j->work);
    if (j->tokens < MANY)
        *work =
            (double)j->rows * (double)(w.q_stride + w.s_stride + w.b_stride);
    else
        *work = 2.0 * (double)j->rows * (double)j->cols * (double)j->tokens;
    return clock_ms() - t0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const struct job *j)
{
    const char *unit = j->tokens < MANY ? "GB/s" : "Gop/s";
    double *limit = must(calloc(j->slices, sizeof *limit));
    double *speed = must(calloc(j->slices, sizeof *speed));
    size_t q = j->slices * 3 / 4, m = j->slices / 2;

    for (size_t i = 0; i < j->slices; i++) {
        double work, ms = limit_ms(j, i, &work);

        limit[i] = work / ms / 1e6;
        ms = slice_ms(j, (i + j->slices / 2) % j->slices, &work);
        speed[i] = work / ms / 1e6;
    }
    qsort(limit, j->slices, sizeof *limit, by_value);
    qsort(speed, j->slices, sizeof *speed, by_value);
    if (j->type < DT_COUNT)
        printf("%3zu tokens  %s", j->tokens, dtype_name(j->type));
    else
        printf("%3zu tokens  %d bits  group %3zu", j->tokens, j->w.bits,
               j->w.group);
    printf("  cols %4zu  %6.1f of %6.1f %s "
           "%5.1f%%  (median %.1f of %.1f, %.1f%%)\n",
           j->cols, speed[q], limit[q], unit, 100 * speed[q] / limit[q],
           speed[m], limit[m], 100 * speed[m] / limit[m]);
    fflush(stdout);
    free(limit);
    free(speed);
}

/* Run all slices of the pool. */
static void run(struct job *j, int bits, size_t group, size_t cols,
                size_t tokens)
{
    const size_t groups = cols / group;

    j->w.bits = bits;
    j->w.group = j->x.group = group;
    j->w.q_stride = cols * (size_t)bits / 8;
    j->w.s_stride = j->w.b_stride = groups * dtype_bytes(j->w.s_type);
    if (j->type < DT_COUNT)
        j->w.q_stride = cols / dtype_block(j->type) * dtype_bytes(j->type);
    j->cols = cols;
    j->tokens = tokens;
    j->rows = tokens < MANY ? SLICE / j->w.q_stride : GEMM_Q8_ROWS;
    j->slices = POOL / SLICE;
    j->x.ldq = (cols + 63) / 64 * 64;
    j->x.ldg = groups;
    /* as the model rounds for these types (format_blocks.c) */
    j->x.paired = j->type == DT_Q3_K || j->type == DT_Q6_K;
    j->x.q = lines(j->x.ldq * tokens);
    j->x.scale = lines(groups * tokens * sizeof *j->x.scale);
    j->x.sum = lines(groups * tokens * sizeof *j->x.sum);
    j->x32 = lines(cols * tokens * sizeof *j->x32);
    j->y = lines(j->rows * tokens * sizeof *j->y);
    for (size_t i = 0; i < cols * tokens; i++)
        j->x32[i] = (float)rng_uniform(1, i) - 0.5f;
    j->k->to_q8(&j->x, j->x32, cols, cols, tokens);
    memset(j->y, 0, j->rows * tokens * sizeof *j->y);
    measure(j);
    free(j->x.q);
    free(j->x.scale);
    free(j->x.sum);
    free(j->x32);
    free(j->y);
}

/* ---- options ---- */

static int usage(void)
{
    fprintf(stderr, "Usage: bench_q8 [--isa LEVEL] [--bits 2|3|4|5|6|8] "
                    "[--group 32|64|128]\n"
                    "                [--cols N] [--tokens T] "
                    "[--exact | --type TYPE]\n");
    return 2;
}

/* Find a type of blocks by its name. */
static bool parse_type(enum dtype *out, const char *name)
{
    for (int t = DT_BLOCKS; t < DT_COUNT; t++)
        if (!strcmp(dtype_name((enum dtype)t), name)) {
            *out = (enum dtype)t;
            return true;
        }
    return false;
}

static bool parse(struct options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"isa", required_argument, NULL, 'i'},
        {"bits", required_argument, NULL, 'b'},
        {"group", required_argument, NULL, 'g'},
        {"cols", required_argument, NULL, 'c'},
        {"tokens", required_argument, NULL, 't'},
        {"exact", no_argument, NULL, 'e'},
        {"type", required_argument, NULL, 'y'},
        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        size_t v = optarg ? strtoul(optarg, NULL, 10) : 0;

        if (c == 'i' && isa_parse(optarg, &o->level) < 0)
            return false;
        if (c == 'y') {
            if (!parse_type(&o->type, optarg))
                return false;
            continue;
        }
        if (c == '?' || (c != 'i' && c != 'e' && v == 0))
            return false;
        *(c == 'b'   ? &o->bits
          : c == 'g' ? &o->group
          : c == 'c' ? &o->cols
                     : &o->tokens) = c == 'i' || c == 'e' ? o->tokens : v;
        o->exact |= c == 'e';
    }
    return optind == argc && o->bits <= 8 && o->bits != 1 && o->bits != 7 &&
           (o->group == 32 || o->group == 64 || o->group == 128) &&
           o->cols % o->group == 0 && o->cols / o->group <= MAX_GROUPS &&
           o->tokens <= 1 << 14 &&
           (o->type == DT_COUNT ||
            (!o->exact && o->cols % dtype_block(o->type) == 0));
}

int main(int argc, char **argv)
{
    static const size_t all_bits[] = {8, 4, 2, 3, 5, 6};
    static const size_t all_cols[] = {1024, 2048, 3072};
    struct options o = {.level = cpu_best(), .group = 64, .type = DT_COUNT};
    struct job j = {.w.s_type = DT_BF16, .w.b_type = DT_BF16};
    unsigned char *pool, *numbers;

    if (!parse(&o, argc, argv))
        return usage();
    j.k = kernels_get(o.level);
    if (!j.k) {
        fprintf(stderr, "bench_q8: this CPU lacks %s\n", isa_name(o.level));
        return 1;
    }
    j.exact = o.exact;
    j.type = o.type;
    if (o.type < DT_COUNT) { /* one line for each number of columns */
        o.bits = 8;
        o.group = 32;
    }
    j.work = lines((KERNEL_WORK + KERNEL_BLOCKS_WORK) * sizeof *j.work);
    pool = lines(POOL);
    numbers = lines(POOL);
    for (size_t i = 0; i < POOL / 8; i++) {
        uint64_t v = i * 0x9e3779b97f4a7c15u;

        v ^= v >> 29;
        memcpy(pool + 8 * i, &v, 8);
    }
    for (size_t i = 0; i < POOL / 2; i++) {
        uint16_t v = (uint16_t)(0x3c00 + i % 97); /* small positive bf16 */

        memcpy(numbers + 2 * i, &v, 2);
    }
    /* scales of usual size: subnormal products take long */
    for (size_t i = 0; o.type == DT_MXFP4 && i < POOL; i += 17)
        pool[i] = 120;
    j.w.q = j.pool = pool;
    j.w.scales = numbers;
    j.w.biases = numbers + POOL / 2;
    printf("%s\n", isa_name(o.level));
    for (size_t t = 0; t < 2; t++)
        for (size_t b = 0; b < sizeof all_bits / sizeof *all_bits; b++)
            for (size_t c = 0; c < sizeof all_cols / sizeof *all_cols; c++) {
                if ((o.bits && o.bits != all_bits[b]) || (o.cols && c > 0) ||
                    (o.tokens && t > 0))
                    continue;
                run(&j, (int)all_bits[b], o.group,
                    o.cols ? o.cols : all_cols[c],
                    o.tokens ? o.tokens
                    : t      ? 512
                             : 1);
            }
    free(pool);
    free(numbers);
    free(j.work);
    return 0;
}
