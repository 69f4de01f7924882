/* The kernels for GGUF's blocks: the reference against goldens, bit by bit, and
 * all levels of this CPU against the reference. check_table.h has the options.
 * Runs from the project's root. */
#include "check_table.h"

#include <unistd.h>

#include "kernel/blocks.h"

/* ---- types -------------------------------------------------------------- */

/* Offsets of a block's f16 numbers (-1: no second one) and of its codes. A
 * block with all codes at their lowest value is the part of its elements that
 * does not depend on codes, since kernels may treat codes as unsigned. The
 * types IQ2 and IQ3 have no such codes: `times` the smallest magnitude of the
 * grid is IQ_OFFSET. */
static const struct {
    int half[2];
    struct {
        size_t at, n;
    } codes[2];
    float times; /* 0: 1 */
} parts[DT_N_BLOCKS] = {
    [DT_Q4_0 - DT_BLOCKS] = {{0, -1}, {{2, 16}}},
    [DT_Q4_1 - DT_BLOCKS] = {{0, 2}, {{4, 16}}},
    [DT_Q5_0 - DT_BLOCKS] = {{0, -1}, {{2, 20}}},
    [DT_Q5_1 - DT_BLOCKS] = {{0, 2}, {{4, 20}}},
    [DT_Q8_0 - DT_BLOCKS] = {{0, -1}, {{2, 32}}},
    [DT_IQ4_NL - DT_BLOCKS] = {{0, -1}, {{2, 16}}},
    [DT_Q2_K - DT_BLOCKS] = {{80, 82}, {{16, 64}}},
    [DT_Q3_K - DT_BLOCKS] = {{108, -1}, {{0, 96}}},
    [DT_MXFP4 - DT_BLOCKS] = {{-1, -1}, {{1, 16}}},
    [DT_Q4_K - DT_BLOCKS] = {{0, 2}, {{16, 128}}},
    [DT_Q5_K - DT_BLOCKS] = {{0, 2}, {{16, 160}}},
    [DT_Q6_K - DT_BLOCKS] = {{208, -1}, {{0, 192}}},
    [DT_IQ4_XS - DT_BLOCKS] = {{0, -1}, {{8, 128}}},
    [DT_NVFP4 - DT_BLOCKS] = {{-1, -1}, {{4, 32}}},
    [DT_IQ3_XXS - DT_BLOCKS] = {{0, -1}, {{2, 96}}, IQ_OFFSET / 4},
    [DT_IQ3_S - DT_BLOCKS] = {{0, -1}, {{2, 104}}, IQ_OFFSET},
    [DT_IQ2_XXS - DT_BLOCKS] = {{0, -1}, {{2, 64}}, IQ_OFFSET / 8},
    [DT_IQ2_XS - DT_BLOCKS] = {{0, -1}, {{2, 64}}, IQ_OFFSET / 8},
    [DT_IQ2_S - DT_BLOCKS] = {{0, -1}, {{2, 72}}, IQ_OFFSET / 8},
    [DT_IQ1_S - DT_BLOCKS] = {{0, -1}, {{2, 48}}},
    [DT_IQ1_M - DT_BLOCKS] = {{-1, -1}, {{0, 48}}},
    [DT_TQ1_0 - DT_BLOCKS] = {{52, -1}, {{0, 52}}},
    [DT_TQ2_0 - DT_BLOCKS] = {{64, -1}, {{0, 64}}},
};

/* The lowest codes that byte i of a block may hold, which is v now. */
static unsigned char lowest(enum dtype type, size_t i, unsigned char v)
{
    switch (type) {
    case DT_Q8_0:
        return 0x80;
    case DT_MXFP4:
    case DT_NVFP4:
        return 0xff;
    case DT_IQ2_XXS: /* the top four bits of numbers of 32 bits are scales */
        return (i - 2) % 8 == 7 ? v & 0xf0 : 0;
    case DT_IQ3_XXS:
        return i >= 66 && (i - 66) % 4 == 3 ? v & 0xf0 : 0;
    case DT_IQ1_S: /* with minus an eighth; three bits are a scale */
        return i < 34 ? 0 : i % 2 ? (v & 0x70) | 0x80 : 0;
    case DT_IQ1_M:
        return i < 32 ? 0 : 0x88;
    default:
        return 0;
    }
}

static enum dtype type_at(size_t i)
{
    return (enum dtype)(DT_BLOCKS + i % DT_N_BLOCKS);
}

/* ---- goldens ------------------------------------------------------------ */

static size_t unhex(unsigned char *out, size_t max, const char *s)
{
    size_t n = 0;
    unsigned v;

    while (n < max && sscanf(s + 2 * n, "%2x", &v) == 1)
        out[n++] = (unsigned char)v;
    return n;
}

static void check_goldens(const struct kernels *k, enum dtype unused)
{
    static const char path[] = "tests/golden/gguf/blocks.txt";
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0, n_lines[DT_N_BLOCKS] = {0};

    if (!f)
        fail_msg("%s: cannot open", path);
    while (getline(&line, &cap, f) > 0) {
        char *name = strtok(line, " "), *block = strtok(NULL, " ");
        char *values = strtok(NULL, " \n");
        unsigned char bytes[256];
        float want[SUPER], got[SUPER];
        int type = DT_BLOCKS;

        assert_non_null(values);
        while (type < DT_COUNT && strcmp(dtype_name((enum dtype)type), name))
            type++;
        assert_true(type < DT_COUNT);
        size_t n = dtype_block((enum dtype)type);
        assert_int_equal(unhex(bytes, sizeof bytes, block),
                         dtype_bytes((enum dtype)type));
        assert_int_equal(unhex((unsigned char *)want, sizeof want, values),
                         n * sizeof *want);
        ref->blocks_to_f32[type - DT_BLOCKS](got, bytes, n);
        same_bits(name, got, want, n);
        n_lines[type - DT_BLOCKS]++;
    }
    for (size_t i = 0; i < DT_N_BLOCKS; i++)
        assert_true(n_lines[i] >= 2);
    free(line);
    fclose(f);
}

/* ---- random weights ----------------------------------------------------- */

/* Codes and scales: random; all bits set; the lowest signed byte. */
enum fill { ANY_BYTES, ONES, LOWEST, N_FILLS };

struct weights {
    unsigned char *base, *copy, *p; /* p ends at an inaccessible page */
    size_t mapped, bytes, rows, cols, stride;
    enum dtype type;
    /* f32 [rows, cols]: elements, and their parts without codes */
    float *v, *rest;
};

static void put_half(unsigned char *p, float f)
{
    ref->from_f32[DT_F16](p, &f, 1);
}

static void put_blocks(unsigned char *p, enum dtype type, size_t n,
                       enum fill fill)
{
    size_t size = dtype_bytes(type);

    for (size_t b = 0; b < n; b++, p += size) {
        for (size_t i = 0; i < size; i++)
            p[i] = fill == ONES     ? 0xff
                   : fill == LOWEST ? 0x80
                                    : (unsigned char)below(256);
        for (int i = 0; i < 2; i++)
            if (parts[type - DT_BLOCKS].half[i] >= 0)
                put_half(p + parts[type - DT_BLOCKS].half[i],
                         below(20)  ? (float)(uniform() - 0.5) / 16
                         : below(2) ? 0.0f
                                    : 0x1p-24f);
        if (type == DT_MXFP4) /* subnormal if 0 or 1 */
            p[0] = (unsigned char)(below(20) ? 110 + below(24) : below(2));
        for (size_t i = 0; type == DT_IQ1_M && i < 4; i++) { /* d's nibbles */
            unsigned char *to = p + 49 + 2 * i;
            *to =
                (unsigned char)((*to & 15) | (i == 3 ? 0x20 : below(16) << 4));
        }
    }
}

static struct weights weights_new(enum dtype type, size_t rows, size_t cols)
{
    struct weights w = {.type = type, .rows = rows, .cols = cols};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t row_bytes = cols / dtype_block(type) * dtype_bytes(type);
    float times = parts[type - DT_BLOCKS].times;

    w.stride = row_bytes + (below(2) ? 0 : below(9));
    w.bytes = (rows - 1) * w.stride + row_bytes;
    w.mapped = (w.bytes + page - 1) / page * page + page;
    w.base = mmap(NULL, w.mapped, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w.base == MAP_FAILED ||
        mprotect(w.base + w.mapped - page, page, PROT_NONE))
        fail_msg("out of memory");
    w.p = w.base + w.mapped - page - w.bytes;
    w.v = must(malloc(rows * cols * sizeof *w.v));
    w.rest = must(malloc(rows * cols * sizeof *w.rest));
    for (size_t r = 0; r < rows; r++)
        put_blocks(w.p + r * w.stride, type, cols / dtype_block(type),
                   below(3) ? ANY_BYTES : (enum fill)below(N_FILLS));
    w.copy = must(malloc(w.bytes));
    memcpy(w.copy, w.p, w.bytes);
    for (size_t r = 0; r < rows; r++) {
        unsigned char *row = w.p + r * w.stride;

        ref->blocks_to_f32[type - DT_BLOCKS](w.v + r * cols, row, cols);
        for (size_t b = 0; b < cols / dtype_block(type); b++)
            for (int i = 0; i < 2; i++)
                for (size_t k = 0; k < parts[type - DT_BLOCKS].codes[i].n;
                     k++) {
                    size_t at = parts[type - DT_BLOCKS].codes[i].at + k;
                    unsigned char *p = row + b * dtype_bytes(type) + at;
                    *p = lowest(type, at, *p);
                }
        ref->blocks_to_f32[type - DT_BLOCKS](w.rest + r * cols, row, cols);
        for (size_t c = 0; times != 0 && c < cols; c++)
            w.rest[r * cols + c] *= times;
    }
    memcpy(w.p, w.copy, w.bytes);
    return w;
}

static void weights_free(struct weights *w, const char *what)
{
    if (memcmp(w->p, w->copy, w->bytes))
        fail_msg("%s: changed its weights", what);
    munmap(w->base, w->mapped);
    free(w->copy);
    free(w->v);
    free(w->rest);
}

/* ---- to_f32 ------------------------------------------------------------- */

static void check_to_f32(const struct kernels *k, enum dtype unused)
{
    char what[96];

    for (size_t i = 0; i < 8 * DT_N_BLOCKS; i++) {
        enum dtype type = type_at(i);
        size_t cols = (1 + below(9)) * dtype_block(type);
        struct weights w = weights_new(type, 1 + below(3), cols);
        struct area out = area_new(cols * sizeof(float), 4 * below(16));

        snprintf(what, sizeof what, "%s to_f32 %s, %zu columns", k->name,
                 dtype_name(type), cols);
        for (size_t r = 0; r < w.rows; r++) {
            k->blocks_to_f32[type - DT_BLOCKS](out.p, w.p + r * w.stride, cols);
            area_check(&out, what);
            same_bits(what, out.p, w.v + r * cols, cols);
        }
        area_free(&out);
        weights_free(&w, what);
    }
}

/* ---- gemm_q8 ------------------------------------------------------------ */

static float *work(void)
{
    static float *memory;

    if (!memory) {
        size_t n = (KERNEL_WORK + KERNEL_BLOCKS_WORK) * sizeof(float);

        memory = must(aligned_alloc(64, n));
        memset(memory, 0xff, n);
    }
    return memory;
}

/* Activations: random, or all at the limit. */
static struct q8 activations_new(size_t cols, size_t tokens)
{
    struct q8 x = {.ldq = (cols + 63) / 64 * 64 + 64 * below(2),
                   .ldg = cols / 32 + below(4),
                   .group = 32,
                   .paired = below(2)};

    x.q = must(aligned_alloc(64, tokens * x.ldq));
    x.scale = must(malloc(tokens * x.ldg * sizeof *x.scale));
    x.sum = must(malloc(tokens * x.ldg * sizeof *x.sum));
    memset(x.q, 0, tokens * x.ldq);
    for (size_t t = 0; t < tokens; t++) {
        bool any = below(3);
        int top = below(2) ? 127 : -127;

        for (size_t g = 0; g < cols / 32; g++) {
            int total = 0;

            for (size_t c = 32 * g; c < 32 * g + 32; c++) {
                int v = any ? (int)below(255) - 127 : top;

                x.q[t * x.ldq + c] = (int8_t)v;
                total += v;
            }
            x.scale[t * x.ldg + g] = x.paired && g % 2
                                         ? x.scale[t * x.ldg + g - 1]
                                         : (float)uniform();
            x.sum[t * x.ldg + g] = x.scale[t * x.ldg + g] * (float)total;
        }
    }
    return x;
}

static void activations_free(struct q8 *x)
{
    free(x->q);
    free(x->scale);
    free(x->sum);
}

/* Compare each value with a sum in double. An element is the sum of a part that
 * depends on its code and the rest; kernels may sum these separately. Only f32
 * arithmetic rounds. Each part has four roundings: two products of scales, the
 * product with the integer sum, and its addition. There are at least eight
 * lanes, so the longest path has an eighth of the columns, and three foldings
 * of lanes. */
static void gemm_values(const char *what, const struct weights *w,
                        const struct q8 *x, const float *y, size_t ldy,
                        size_t tokens, const float *old)
{
    double depth = (double)w->cols / 8 + 16;

    for (size_t t = 0; t < tokens; t++)
        for (size_t r = 0; r < w->rows; r++) {
            double want = old ? (double)old[t * ldy + r] : 0, mag = fabs(want);

            for (size_t c = 0; c < w->cols; c++) {
                double v = (double)w->v[r * w->cols + c],
                       rest = (double)w->rest[r * w->cols + c];
                double a = (double)x->scale[t * x->ldg + c / 32] *
                           x->q[t * x->ldq + c];

                want += v * a;
                mag += (fabs(v - rest) + 2 * fabs(rest)) * fabs(a);
            }
            near(what, t * ldy + r, tokens * ldy, (double)y[t * ldy + r], want,
                 depth * U * mag + 1e-30);
        }
}

static void gemm_case(const struct kernels *k, enum dtype type, size_t rows,
                      size_t cols, size_t tokens, bool add)
{
    char what[128];
    size_t ldy = rows + below(4);
    struct weights w = weights_new(type, rows, cols);
    struct q8 x = activations_new(cols, tokens);
    struct area y =
        area_new(((tokens - 1) * ldy + rows) * sizeof(float), 4 * below(16));
    float *old = must(calloc(tokens * ldy, sizeof *old)), *v = y.p;
    float *some = must(calloc(tokens * ldy, sizeof *some));
    size_t r = below(rows), n = 1 + below(rows - r);

    snprintf(what, sizeof what,
             "%s gemm_q8 %s: %zu rows, %zu cols, %zu tokens%s", k->name,
             dtype_name(type), rows, cols, tokens, add ? ", add" : "");
    for (size_t t = 0; add && t < tokens; t++) {
        fill(old + t * ldy, rows, NORMAL, 0);
        memcpy(v + t * ldy, old + t * ldy, rows * sizeof *v);
        memcpy(some + t * ldy, old + t * ldy + r, n * sizeof *v);
    }
    /* two kernels give the same bits; the record of a core chooses one */
    struct core_choices choices = kernels_core()->choices;
    choices.q8_0_once = (uint32_t)below(2);
    choices.permute_pairs = (uint32_t)below(2);
    choices.blocks_batch_max = below(2) ? 48 : 1; /* on any core */
    kernels_choose(&choices);
    k->gemm_q8_blocks[type - DT_BLOCKS](v, ldy, w.p, w.stride, &x, rows, cols,
                                        tokens, add, work());
    area_check(&y, what);
    gemm_values(what, &w, &x, v, ldy, tokens, add ? old : NULL);
    /* other rows do not change a value, nor does the other kernel */
    choices.q8_0_once = !choices.q8_0_once;
    choices.permute_pairs = !choices.permute_pairs;
    kernels_choose(&choices);
    k->gemm_q8_blocks[type - DT_BLOCKS](some, ldy, w.p + r * w.stride, w.stride,
                                        &x, n, cols, tokens, add, work());
    for (size_t t = 0; t < tokens; t++)
        same_bits(what, some + t * ldy, v + t * ldy + r, n);
    free(old);
    free(some);
    area_free(&y);
    activations_free(&x);
    weights_free(&w, what);
}

static void check_gemm(const struct kernels *k, enum dtype unused)
{
    static const size_t tokens[] = {1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 65, 130};
    size_t limit = k->level == ISA_REF ? 100000 : 1000000;

    for (size_t i = 0; i < 40 * DT_N_BLOCKS; i++) {
        enum dtype type = type_at(i);
        size_t block = dtype_block(type), t = tokens[below(13)];
        size_t cols = (1 + below(below(4) ? 5 : 2400 / block)) * block;
        size_t rows = 1 + below(below(4) ? 20 : 140);

        while (rows > 1 && rows * cols * t > limit)
            rows /= 2;
        gemm_case(k, type, rows, cols, t, i % 3 == 0);
    }
    /* longer than a part of a row, and more tokens than sums have room for */
    for (size_t i = 0; i < DT_N_BLOCKS; i++)
        gemm_case(k, type_at(i), 2, 16384 + 768, 3, i % 2);
    gemm_case(k, DT_Q6_K, 9, 512, 2051, false);
}

/* Every scale of MXFP4: normal and subnormal ones are exact, and the last one
 * is NaN, which no product loses. */
static void check_e8m0(const struct kernels *k, enum dtype unused)
{
    enum { COLS = 96, TOKENS = 7 };
    for (int e = 0; e < 256; e++) {
        unsigned char blocks[COLS / 32 * sizeof(struct mxfp4)] = {0};
        float out[COLS], y[TOKENS], want = e < 255 ? ldexpf(1, e - 128) : NAN;
        for (size_t b = 0; b < COLS / 32; b++) {
            blocks[b * sizeof(struct mxfp4)] = 128;
            memset(blocks + b * sizeof(struct mxfp4) + 1, 0x9a, 16);
        }
        blocks[sizeof(struct mxfp4)] = (unsigned char)e;
        blocks[sizeof(struct mxfp4) + 1] = 0x91;
        k->blocks_to_f32[DT_MXFP4 - DT_BLOCKS](out, blocks, COLS);
        assert_true(e < 255 ? out[32] == want && out[48] == -want
                            : isnan(out[32]) && isnan(out[48]));
        assert_true(out[0] == -2 && out[16] == -1 && out[80] == -1);
        /* the products of codes and 2^112 are finite, those of more need not */
        for (size_t n = 1; n <= TOKENS && (e < 240 || e == 255); n++) {
            struct q8 x = activations_new(COLS, n);
            k->gemm_q8_blocks[DT_MXFP4 - DT_BLOCKS](
                y, 1, blocks, sizeof blocks, &x, 1, COLS, n, false, work());
            for (size_t t = 0; t < n; t++)
                assert_int_equal(isnan(y[t]) != 0, e == 255);
            activations_free(&x);
        }
    }
}

/* ---- gemm_bf16 ---------------------------------------------------------- */

/* Compare with gemm_bf16 on the widened and rounded weights, bit by bit, for
 * numbers of tokens that gemm_bf16 treats as many. Subnormal weights count as
 * 0, because the CPU's rounding to bf16 flushes them. */
static void bf16_case(const struct kernels *k, enum dtype type, size_t rows,
                      size_t cols, size_t tokens, bool add)
{
    enum { MANY = 65 };
    char what[128];
    size_t ldy = rows + below(4), ldx = (cols + below(3)), n = rows * cols;
    size_t all = tokens > MANY ? tokens : MANY;
    struct weights w = weights_new(type, rows, cols);
    struct area y =
        area_new(((tokens - 1) * ldy + rows) * sizeof(float), 4 * below(16));
    float *want = must(calloc(all * ldy, sizeof *want)), *v = y.p;
    float *x32 = must(calloc(all * ldx, sizeof *x32));
    uint16_t *x = must(aligned_alloc(64, (all * ldx * 2 + 63) / 64 * 64));
    uint16_t *dense = must(aligned_alloc(64, (n * 2 + 63) / 64 * 64));

    snprintf(what, sizeof what,
             "%s gemm_bf16 %s: %zu rows, %zu cols, %zu tokens%s", k->name,
             dtype_name(type), rows, cols, tokens, add ? ", add" : "");
    fill(x32, tokens * ldx, NORMAL, 0);
    ref->from_f32[DT_BF16](x, x32, all * ldx);
    for (size_t i = 0; i < n; i++)
        if (fabsf(w.v[i]) < FLT_MIN)
            w.v[i] = 0;
    ref->from_f32[DT_BF16](dense, w.v, n);
    for (size_t t = 0; add && t < tokens; t++) {
        fill(want + t * ldy, rows, NORMAL, 0);
        memcpy(v + t * ldy, want + t * ldy, rows * sizeof *v);
    }
    k->gemm_bf16(want, ldy, dense, cols, x, ldx, rows, cols, all, add, work());
    k->gemm_bf16_blocks[type - DT_BLOCKS](v, ldy, w.p, w.stride, x, ldx, rows,
                                          cols, tokens, add, work());
    area_check(&y, what);
    for (size_t t = 0; t < tokens; t++)
        same_bits(what, v + t * ldy, want + t * ldy, rows);
    free(want);
    free(x32);
    free(x);
    free(dense);
    area_free(&y);
    weights_free(&w, what);
}

static void check_bf16(const struct kernels *k, enum dtype unused)
{
    static const size_t tokens[] = {1, 16, 31, 33, 64, 65, 130};

    for (size_t i = 0; i < 12 * DT_N_BLOCKS; i++) {
        enum dtype type = type_at(i);
        size_t block = dtype_block(type);

        if (k->gemm_bf16_blocks[type - DT_BLOCKS])
            bf16_case(k, type, 1 + below(below(3) ? 40 : 300),
                      (1 + below(below(3) ? 4 : 1300 / block)) * block,
                      tokens[below(7)], i % 3 == 0);
    }
}

/* ---- main --------------------------------------------------------------- */

static const struct check_row rows[] = {
    {"blocks_to_f32", DT_F32, DT_F32, check_to_f32, NULL},
    {"e8m0", DT_F32, DT_F32, check_e8m0, NULL},
    {"gemm_q8_blocks", DT_F32, DT_F32, check_gemm, NULL},
    {"gemm_bf16_blocks", DT_F32, DT_F32, check_bf16, NULL},
};
static const struct check_row once[] = {
    {"goldens", DT_F32, DT_F32, check_goldens, NULL},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "kernels for blocks", rows,
                      sizeof rows / sizeof *rows, once,
                      sizeof once / sizeof *once);
}
