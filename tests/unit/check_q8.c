/* The kernels for quantized weights and activations, at every level of this
 * CPU, against arithmetic in this file; conversions also against the reference,
 * bit by bit. check_table.h has the options. */
#include "check_table.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- memory next to inaccessible pages -------------------------- */

/* The place of an operand: HEAP is misaligned, between guards; LAST ends at an
 * inaccessible page; FIRST begins right after one. */
enum place { HEAP, LAST, FIRST, N_PLACES };

static const char *const place_names[N_PLACES] = {"heap", "end of page",
                                                  "start of page"};

struct edge {
    struct area area; /* of HEAP */
    enum place place;
    unsigned char *base, *copy;
    size_t bytes, mapped;
    void *p;
};

static struct edge edge_new(size_t bytes, enum place place, size_t offset)
{
    struct edge e = {.place = place, .bytes = bytes};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (bytes + page) / page * page;

    if (place == HEAP) {
        e.area = area_new(bytes, offset);
        e.p = e.area.p;
        return e;
    }
    e.mapped = body + 2 * page;
    e.base =
        mmap(NULL, e.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (e.base == MAP_FAILED ||
        mprotect(e.base + page, body, PROT_READ | PROT_WRITE))
        fail_msg("out of memory");
    memset(e.base + page, 0xff, body);
    e.p = e.base + page + (place == LAST ? body - bytes : 0);
    return e;
}

static void edge_keep(struct edge *e)
{
    free(e->copy);
    e->copy = must(malloc(e->bytes + 1));
    memcpy(e->copy, e->p, e->bytes);
}

/* Check the guards, and the rest of the page that contains the operand. */
static void edge_check(const struct edge *e, const char *what)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (e->place == HEAP) {
        area_check(&e->area, what);
        return;
    }
    for (unsigned char *p = e->base + page; p < e->base + e->mapped - page; p++)
        if ((p < (unsigned char *)e->p ||
             p >= (unsigned char *)e->p + e->bytes) &&
            *p != 0xff)
            fail_msg("%s: wrote outside of its output", what);
}

static void edge_same(const struct edge *e, const char *what)
{
    if (memcmp(e->copy, e->p, e->bytes))
        fail_msg("%s: changed its input", what);
    edge_check(e, what);
}

static void edge_free(struct edge *e)
{
    if (e->place == HEAP)
        area_free(&e->area);
    else
        munmap(e->base, e->mapped);
    free(e->copy);
}

/* ---- quantized weights -------------------------------------------------- */

static const int all_bits[] = {2, 3, 4, 5, 6, 8};
static const size_t all_groups[] = {32, 64, 128};

enum { N_BITS = 6, N_GROUPS = 3 };

/* The factor of NVFP4's scales. */
#define NVFP4_BY 0.0625f

/* Codes: random; all at the maximum, so that sums of products may overflow;
 * mostly zero. */
enum codes { RANDOM_CODES, TOP_CODES, SPARSE_CODES, N_CODES };

enum numbers { NORMAL_NUMBERS, ZERO_NUMBERS, TINY_NUMBERS, N_NUMBERS };

/* Biases: of the type of the scales; of F32; zero points of the groups, or one
 * zero point. */
enum biases { SAME_TYPE, WIDE_BIASES, ZERO_POINTS, ONE_ZERO, N_BIASES };

struct weights {
    struct affine a;
    struct edge q, scales, biases;
    size_t rows, cols, groups; /* groups of a row */
    /* the numbers that they contain */
    unsigned char *code; /* [rows, cols] */
    float *s, *b;        /* [rows, groups] */
};

/* A stored number, decoded by its definition. */
static float number_of(const unsigned char *p, enum dtype type)
{
    uint32_t word;
    uint16_t half;
    float f;
    int e;

    if (type == DT_F32) {
        memcpy(&f, p, 4);
        return f;
    }
    if (type == DT_U8) /* half of E8M0 */
        return ldexpf(1, *p - 128);
    if (type == DT_F8_E4M3)
        return (*p & 0x80 ? -1.0f : 1.0f) * NVFP4_BY *
               (*p & 0x78 ? ldexpf((float)(8 + (*p & 7)), (*p >> 3 & 15) - 10)
                          : ldexpf((float)(*p & 7), -9));
    memcpy(&half, p, 2);
    if (type == DT_BF16) {
        word = (uint32_t)half << 16;
        memcpy(&f, &word, 4);
        return f;
    }
    e = half >> 10 & 31;
    f = e ? ldexpf((float)(1024 + (half & 1023)), e - 25)
          : ldexpf((float)(half & 1023), -24);
    return half >> 15 ? -f : f;
}

static void put_numbers(unsigned char *p, size_t n, enum numbers kind,
                        enum dtype type, double size)
{
    for (size_t i = 0; i < n; i++) {
        float f = (float)((2 * uniform() - 1) * size);

        if (kind == ZERO_NUMBERS && below(2))
            f = below(2) ? 0.0f : -0.0f;
        if (kind == TINY_NUMBERS)
            f *= type == DT_F16 ? 0x1p-14f : 0x1p-120f;
        if (type == DT_U8)
            p[i] = (unsigned char)(kind == TINY_NUMBERS ? below(3)
                                                        : 115 + below(12));
        else if (type == DT_F8_E4M3)
            p[i] = (unsigned char)(below(0x7f) | below(2) << 7);
        else
            ref->from_f32[type](p + i * dtype_bytes(type), &f, 1);
    }
}

/* Twice the value of an E2M1 number, which has a sign, two bits of exponent and
 * one of mantissa, plus 12. */
static unsigned e2m1_code(unsigned code)
{
    unsigned e = code >> 1 & 3, m = code & 1;
    unsigned twice = e ? (2 + m) << (e - 1) : m;

    return code >> 3 ? 12 - twice : 12 + twice;
}

/* Store a code bit by bit, by the definition of the format. */
static void put_code(unsigned char *row, size_t k, int bits, unsigned code)
{
    for (size_t i = 0; i < (size_t)bits; i++) {
        size_t at = k * (size_t)bits + i;

        row[at / 8] = (unsigned char)((row[at / 8] & ~(1u << at % 8)) |
                                      (code >> i & 1) << at % 8);
    }
}

static bool is_e2m1(enum dtype type)
{
    return type == DT_U8 || type == DT_F8_E4M3;
}

static struct weights weights_new(size_t rows, size_t cols, int bits,
                                  size_t group, enum dtype type, bool is_signed,
                                  enum codes codes, enum numbers numbers,
                                  enum biases biases, enum place place)
{
    struct weights w = {.rows = rows, .cols = cols, .groups = cols / group};
    size_t row_bytes = cols * (size_t)bits / 8;
    size_t q_spare = below(3) ? 0 : 1 + below(9);
    size_t s_spare = below(3) ? 0 : 1 + below(9);
    size_t b_spare = below(3) ? 0 : 1 + below(9);
    enum dtype b_type = biases == WIDE_BIASES   ? DT_F32
                        : biases == ZERO_POINTS ? DT_U8
                                                : type;
    unsigned top = (1u << bits) - 1;
    unsigned char *q, *s, *b;

    if (is_e2m1(type))
        b_type = DT_U8;

    w.a = (struct affine){.codes = is_e2m1(type) ? AFFINE_E2M1
                                   : is_signed   ? AFFINE_SIGNED
                                                 : AFFINE_UNSIGNED,
                          .by = NVFP4_BY,
                          .q_stride = row_bytes + q_spare,
                          .s_stride = w.groups * dtype_bytes(type) + s_spare,
                          .s_type = type,
                          .b_stride = w.groups * dtype_bytes(b_type) + b_spare,
                          .b_type = b_type,
                          .bits = bits,
                          .group = group};
    if (is_e2m1(type) || biases == ONE_ZERO)
        w.a.zero = is_e2m1(type) ? 12 : (int)(1 + below(256));
    /* no bytes after the last row */
    w.q = edge_new(rows ? rows * w.a.q_stride - q_spare : 0, place, below(70));
    w.scales =
        edge_new(rows ? rows * w.a.s_stride - s_spare : 0, place, below(9));
    w.biases =
        edge_new(rows ? rows * w.a.b_stride - b_spare : 0, place, below(9));
    w.code = must(malloc(rows * cols + 1));
    w.s = must(malloc(rows * w.groups * sizeof(float) + 1));
    w.b = must(malloc(rows * w.groups * sizeof(float) + 1));
    w.a.q = q = w.q.p;
    w.a.scales = s = w.scales.p;
    w.a.biases = b = w.biases.p;
    for (size_t r = 0; r < rows; r++) {
        for (size_t k = 0; k < cols; k++) {
            unsigned code = (unsigned)below(top + 1);

            if (codes == TOP_CODES)
                code = top;
            if (codes == SPARSE_CODES && below(8))
                code = 0;
            w.code[r * cols + k] =
                (unsigned char)(is_e2m1(type) ? e2m1_code(code) : code);
            put_code(q + r * w.a.q_stride, k, bits,
                     is_signed ? code ^ 0x80 : code);
        }
        put_numbers(s + r * w.a.s_stride, w.groups, numbers, type,
                    2.0 / (top + 1));
        if (b_type == DT_U8)
            for (size_t g = 0; g < w.groups; g++)
                b[r * w.a.b_stride + g] = (unsigned char)below(256);
        else
            put_numbers(b + r * w.a.b_stride, w.groups, numbers, b_type, 1);
        for (size_t g = 0; g < w.groups; g++) {
            const unsigned char *bias =
                b + r * w.a.b_stride + g * dtype_bytes(b_type);
            float scale =
                number_of(s + r * w.a.s_stride + g * dtype_bytes(type), type);

            w.s[r * w.groups + g] = scale;
            w.b[r * w.groups + g] = w.a.zero          ? (float)-w.a.zero * scale
                                    : b_type == DT_U8 ? (float)-*bias * scale
                                                      : number_of(bias, b_type);
        }
    }
    if (w.a.zero) {
        w.a.biases = s;
        w.a.b_stride = w.a.s_stride;
        w.a.b_type = type;
    }
    edge_keep(&w.q);
    edge_keep(&w.scales);
    edge_keep(&w.biases);
    return w;
}

static void weights_same(const struct weights *w, const char *what)
{
    edge_same(&w->q, what);
    edge_same(&w->scales, what);
    edge_same(&w->biases, what);
}

static void weights_free(struct weights *w)
{
    edge_free(&w->q);
    edge_free(&w->scales);
    edge_free(&w->biases);
    free(w->code);
    free(w->s);
    free(w->b);
}

/* The struct of the rows from r on. */
static struct affine from_row(const struct weights *w, size_t r)
{
    struct affine a = w->a;

    a.q += r * a.q_stride;
    a.scales += r * a.s_stride;
    a.biases += r * a.b_stride;
    return a;
}

/* ---- shapes ------------------------------------------------------------- */

struct shape {
    size_t rows, cols, tokens, group;
    int bits;
    enum dtype type;
    bool is_signed;
    enum place place;
    char what[128];
};

static const size_t token_counts[] = {1, 2, 3, 4,  5,  6,   7,
                                      8, 9, 1, 16, 33, 100, 513};

enum { N_TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts };

static void as_mxfp4(struct shape *s)
{
    s->bits = 4;
    s->group = 32;
    s->type = DT_U8;
}

static void as_nvfp4(struct shape *s)
{
    s->bits = 4;
    s->group = 16;
    s->type = DT_F8_E4M3;
}

/* Case i of a sweep over all formats, of at most work products. */
static struct shape shape_at(size_t i, size_t tokens, size_t work)
{
    struct shape s = {.tokens = tokens,
                      .bits = all_bits[i % N_BITS],
                      .group = all_groups[i / N_BITS % N_GROUPS],
                      .type = (enum dtype)(i / N_BITS / N_GROUPS % DT_N_FLOAT),
                      .place = (enum place)below(N_PLACES)};
    if (i % 10 == 9)
        as_mxfp4(&s);
    if (i % 10 == 7)
        as_nvfp4(&s);
    s.is_signed = s.bits == 8 && below(2);
    /* columns come by 32 at least */
    size_t unit = s.group < 32 ? 32 : s.group, max_groups = 3072 / unit;

    s.rows = below(8) ? 1 + below(70) : 129;
    s.cols = (1 + below(below(3) ? 6 : max_groups)) * unit;
    while (s.rows * s.cols * s.tokens > work && (s.rows > 1 || s.cols > unit))
        if (s.cols > unit && below(2))
            s.cols = (s.cols / unit + 1) / 2 * unit;
        else
            s.rows = (s.rows + 1) / 2;
    snprintf(s.what, sizeof s.what,
             "%d bits%s, group %zu, %s: %zu rows, %zu cols, %zu tokens, %s",
             s.bits, s.is_signed ? " signed" : "", s.group, dtype_name(s.type),
             s.rows, s.cols, s.tokens, place_names[s.place]);
    return s;
}

static size_t sweeps(const struct kernels *k)
{
    const size_t all = (size_t)N_BITS * N_GROUPS * DT_N_FLOAT;

    return (k->level == ISA_REF ? 2 : 6) * all / sweep_step();
}

static size_t work_of(const struct kernels *k, size_t i)
{
    return k->level == ISA_REF ? 300000 : i % 97 == 13 ? 20000000 : 1500000;
}

static struct weights shape_weights(const struct shape *s)
{
    return weights_new(s->rows, s->cols, s->bits, s->group, s->type,
                       s->is_signed, (enum codes)below(N_CODES),
                       (enum numbers)(below(3) ? 0 : below(N_NUMBERS)),
                       (enum biases)below(N_BIASES), s->place);
}

/* ---- affine_to_f32 ------------------------------------------------------ */

static void check_to_f32(const struct kernels *k, enum dtype type)
{
    for (size_t i = 0; i < sweeps(k); i++) {
        struct shape s = shape_at(i, 1, 40000);
        struct weights w = shape_weights(&s);
        size_t n = s.rows * s.cols;
        struct edge out = edge_new(n * 4, s.place, 4 * below(16));
        struct edge want = edge_new(n * 4, HEAP, 0);
        float *o = out.p, *by_ref = want.p;

        k->affine_to_f32(o, &w.a, s.rows, s.cols);
        ref->affine_to_f32(by_ref, &w.a, s.rows, s.cols);
        edge_check(&out, s.what);
        weights_same(&w, s.what);
        same_bits(s.what, o, by_ref, n);
        for (size_t j = 0; j < n; j++) {
            size_t g = j / s.cols * w.groups + j % s.cols / s.group;
            volatile float product = (float)w.code[j] * w.s[g];
            float sum = product + w.b[g];

            if (w.a.codes == AFFINE_E2M1)
                sum = (float)(w.code[j] - 12) * w.s[g];

            same_bits(s.what, o + j, &sum, 1);
        }
        edge_free(&out);
        edge_free(&want);
        weights_free(&w);
    }
}

/* ---- matmul_f32_affine --------------------------------------------------- */

struct floats {
    struct edge x, y, alone;
    size_t ldx, ldy;
};

static struct floats floats_new(const struct shape *s)
{
    enum kind kind = (enum kind)below(N_KINDS);
    struct floats f = {.ldx = s->cols + below(4), .ldy = s->rows + below(4)};
    float *x;

    f.x = edge_new(((s->tokens - 1) * f.ldx + s->cols) * 4, s->place,
                   4 * below(16));
    f.y = edge_new(((s->tokens - 1) * f.ldy + s->rows) * 4, s->place,
                   4 * below(16));
    f.alone = edge_new(s->tokens * f.ldy * 4, HEAP, 0);
    x = f.x.p;
    for (size_t t = 0; t < s->tokens; t++)
        fill(x + t * f.ldx, s->cols, kind, 1e15f);
    edge_keep(&f.x);
    return f;
}

static void floats_free(struct floats *f)
{
    edge_free(&f->x);
    edge_free(&f->y);
    edge_free(&f->alone);
}

/* Check that nothing was written between the tokens' outputs. */
static void gaps_same(const float *y, size_t ldy, const struct shape *s)
{
    for (size_t t = 0; t + 1 < s->tokens; t++)
        for (size_t r = s->rows; r < ldy; r++)
            if (!isnan(y[t * ldy + r]))
                fail_msg("%s: wrote between tokens", s->what);
}

/* Compare each value with a sum in double. A level may round q * scale + bias
 * to f32 (two roundings, at most 2 u (|q scale| + |bias|)), or sum q * x and x
 * per group and then multiply. It uses at least eight lanes, so the longest
 * path has an eighth of the columns, three foldings of lanes and two products.
 * The reference rounds once. */
static void affine_values(const struct kernels *k, const struct shape *s,
                          const struct weights *w, const struct floats *f)
{
    const float *x = f->x.p, *y = f->y.p;
    double depth = k->level == ISA_REF ? 1.001 : (double)s->cols / 8 + 8;
    double *row = must(malloc(s->cols * sizeof *row));
    double *size = must(malloc(s->cols * sizeof *size));

    for (size_t r = 0; r < s->rows; r++) {
        for (size_t c = 0; c < s->cols; c++) {
            size_t g = r * w->groups + c / s->group;
            double product = (double)w->code[r * s->cols + c] * (double)w->s[g];

            row[c] = product + (double)w->b[g];
            size[c] = fabs(product) + fabs((double)w->b[g]);
        }
        for (size_t t = 0; t < s->tokens; t++) {
            double want = 0, mag = 0, tiny = 0;

            for (size_t c = 0; c < s->cols; c++) {
                double v = (double)x[t * f->ldx + c];

                want += row[c] * v;
                mag += size[c] * fabs(v);
                tiny += 2 + 2 * fabs(v);
            }
            if (k->level == ISA_REF) /* double's sum is off by far less */
                mag = fabs(want) + (double)s->cols * 0x1p-28 * mag;
            near(s->what, t * f->ldy + r, s->tokens * f->ldy,
                 (double)y[t * f->ldy + r], want,
                 depth * U * mag + tiny * TINY);
        }
    }
    free(row);
    free(size);
}

/* Each row and token alone has the same bits as in the whole call. */
static void affine_order(const struct kernels *k, const struct shape *s,
                         const struct weights *w, const struct floats *f)
{
    const float *x = f->x.p, *y = f->y.p;
    float *alone = f->alone.p;

    for (size_t t = 0; t < s->tokens; t++) {
        k->matmul_f32_affine(alone, s->rows, &w->a, x + t * f->ldx, f->ldx,
                             s->rows, s->cols, 1, product_work());
        same_bits(s->what, y + t * f->ldy, alone, s->rows);
    }
    for (size_t r = 0; r < s->rows; r++) {
        struct affine one = from_row(w, r);

        k->matmul_f32_affine(alone, 1, &one, x, f->ldx, 1, s->cols, s->tokens,
                             product_work());
        for (size_t t = 0; t < s->tokens; t++)
            same_bits(s->what, y + t * f->ldy + r, alone + t, 1);
    }
}

static void check_matmul_affine(const struct kernels *k, enum dtype type)
{
    for (size_t i = 0; i < sweeps(k); i++) {
        struct shape s =
            shape_at(i, token_counts[below(N_TOKEN_COUNTS)], work_of(k, i));
        struct weights w = shape_weights(&s);
        struct floats f = floats_new(&s);

        k->matmul_f32_affine(f.y.p, f.ldy, &w.a, f.x.p, f.ldx, s.rows, s.cols,
                             s.tokens, product_work());
        edge_check(&f.y, s.what);
        edge_same(&f.x, s.what);
        weights_same(&w, s.what);
        gaps_same(f.y.p, f.ldy, &s);
        affine_values(k, &s, &w, &f);
        affine_order(k, &s, &w, &f);
        floats_free(&f);
        weights_free(&w);
    }
}

/* ---- gemm_bf16_affine --------------------------------------------------- */

/* Compare with gemm_bf16 on the widened and rounded weights, bit by bit, for
 * numbers of tokens that gemm_bf16 treats as many. Subnormal weights count as
 * 0, because the CPU's rounding to bf16 flushes them. */
static void affine_bf16_case(const struct kernels *k, const struct shape *s,
                             bool add)
{
    enum { MANY = 65 };
    struct weights w = shape_weights(s);
    struct floats f = floats_new(s);
    size_t tokens = s->tokens > MANY ? s->tokens : MANY;
    struct edge x = edge_new(tokens * f.ldx * 2, HEAP, 0);
    struct edge dense = edge_new(s->rows * s->cols * 2, HEAP, 0);
    float *row = must(malloc(s->cols * sizeof *row));
    float *want = must(calloc(tokens * f.ldy, sizeof *want)), *y = f.y.p;

    memset(x.p, 0, tokens * f.ldx * 2);
    for (size_t t = 0; t < s->tokens; t++)
        ref->from_f32[DT_BF16]((char *)x.p + t * f.ldx * 2,
                               (float *)f.x.p + t * f.ldx, s->cols);
    for (size_t r = 0; r < s->rows; r++) {
        struct affine one = from_row(&w, r);

        ref->affine_to_f32(row, &one, 1, s->cols);
        for (size_t c = 0; c < s->cols; c++)
            row[c] = fabsf(row[c]) < FLT_MIN ? 0 : row[c];
        ref->from_f32[DT_BF16]((char *)dense.p + r * s->cols * 2, row, s->cols);
    }
    for (size_t t = 0; add && t < s->tokens; t++) {
        fill(want + t * f.ldy, s->rows, NORMAL, 0);
        memcpy(y + t * f.ldy, want + t * f.ldy, s->rows * sizeof *y);
    }
    k->gemm_bf16(want, f.ldy, dense.p, s->cols, x.p, f.ldx, s->rows, s->cols,
                 tokens, add, product_work());
    k->gemm_bf16_affine(y, f.ldy, &w.a, x.p, f.ldx, s->rows, s->cols, s->tokens,
                        add, product_work());
    edge_check(&f.y, s->what);
    weights_same(&w, s->what);
    gaps_same(y, f.ldy, s);
    for (size_t t = 0; t < s->tokens; t++)
        same_bits(s->what, y + t * f.ldy, want + t * f.ldy, s->rows);
    free(row);
    free(want);
    edge_free(&x);
    edge_free(&dense);
    floats_free(&f);
    weights_free(&w);
}

static void check_gemm_bf16_affine(const struct kernels *k, enum dtype type)
{
    if (!k->gemm_bf16_affine)
        return;
    for (size_t i = 0; i < sweeps(k); i++) {
        struct shape s =
            shape_at(i, token_counts[below(N_TOKEN_COUNTS)], work_of(k, i));

        affine_bf16_case(k, &s, i % 3 == 1);
    }
}

/* ---- to_q8, to_kv_i8 ---------------------------------------------------- */

enum extreme { NOTHING, SPECIAL, TIES, N_EXTREMES };

/* Fill values to round: the kinds of fill, NaN and infinities, and values
 * halfway between two integers. */
static void fill_rounded(float *x, size_t n, enum extreme extreme)
{
    static const float special[] = {NAN, INFINITY, -INFINITY, -0.0f};

    fill(x, n, (enum kind)below(N_KINDS), 1e30f);
    for (size_t i = 0; extreme == SPECIAL && i < 1 + n / 100; i++)
        x[below(n)] = special[below(4)];
    if (extreme != TIES)
        return;
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)below(254) - 126.5f;
        if (i % 32 == 0)
            x[i] = 127;
    }
}

static float top_of(const float *x, size_t n)
{
    float top = 0;

    for (size_t i = 0; i < n; i++) {
        if (isnan(x[i]))
            return NAN;
        if (fabsf(x[i]) > top)
            top = fabsf(x[i]);
    }
    return top;
}

/* Compare one group with its definition; `top` is the largest magnitude of the
 * values that are rounded with the same scale. x * 127 / top is rounded twice
 * before it becomes an integer, with an error of at most 2.01 u 127. If 127 /
 * top exceeds f32, the values are so small that only their signs count. */
static void rounded_group(const char *what, const int8_t *q, float scale,
                          const float *x, size_t n, float top)
{
    float want = top / 127;

    if (!isnan(want) || !isnan(scale))
        same_bits(what, &scale, &want, 1);
    for (size_t i = 0; i < n; i++) {
        double v = isnan(top) || top <= 0 || isinf(top)
                       ? 0
                       : (double)x[i] * 127 / (double)top;

        if (q[i] == -128)
            fail_msg("%s: -128", what);
        if (isinf(127 / top) && top > 0)
            v = v > 0 ? 127 : v < 0 ? -127 : 0;
        near(what, i, n, q[i], v, isinf(127 / top) ? 0 : 0.5 + 2.01 * U * 127);
    }
}

/* The x.sum that belongs to x.scale and x.q. */
static float sum_of(const int8_t *q, float scale, size_t n)
{
    int total = 0;

    for (size_t i = 0; i < n; i++)
        total += q[i];
    return scale * (float)total;
}

struct rounded {
    struct q8 x;
    struct edge q, scale, sum;
};

static struct rounded rounded_new(size_t cols, size_t tokens, size_t group,
                                  enum place place)
{
    struct rounded r = {.x.group = group};

    r.x.ldq = (cols + 63) / 64 * 64 + 64 * below(3);
    r.x.ldg = cols / group + below(4);
    r.q = edge_new(tokens * r.x.ldq, place, 0);
    r.scale = edge_new(((tokens - 1) * r.x.ldg + cols / group) * 4, place,
                       4 * below(16));
    r.sum = edge_new(r.scale.bytes, place, 4 * below(16));
    r.x.q = r.q.p;
    r.x.scale = r.scale.p;
    r.x.sum = r.sum.p;
    return r;
}

static void rounded_free(struct rounded *r)
{
    edge_free(&r->q);
    edge_free(&r->scale);
    edge_free(&r->sum);
}

static void to_q8_case(const struct kernels *k, const struct shape *s,
                       enum extreme extreme)
{
    struct rounded r = rounded_new(s->cols, s->tokens, s->group, s->place);
    struct rounded by_ref = rounded_new(s->cols, s->tokens, s->group, HEAP);
    size_t ldx = s->cols + below(4), n_groups = s->cols / s->group;
    bool paired = r.x.paired = by_ref.x.paired = below(2);
    struct edge x = edge_new(((s->tokens - 1) * ldx + s->cols) * 4, s->place,
                             4 * below(16));

    for (size_t t = 0; t < s->tokens; t++)
        fill_rounded((float *)x.p + t * ldx, s->cols, extreme);
    edge_keep(&x);
    k->to_q8(&r.x, x.p, ldx, s->cols, s->tokens);
    ref->to_q8(&by_ref.x, x.p, ldx, s->cols, s->tokens);
    edge_same(&x, s->what);
    edge_check(&r.q, s->what);
    edge_check(&r.scale, s->what);
    edge_check(&r.sum, s->what);
    for (size_t t = 0; t < s->tokens; t++) {
        const int8_t *q = r.x.q + t * r.x.ldq;
        const float *scale = r.x.scale + t * r.x.ldg;
        const float *sum = r.x.sum + t * r.x.ldg;

        for (size_t g = 0; g < n_groups; g++) {
            float want = sum_of(q + g * s->group, scale[g], s->group);

            const float *xt = (float *)x.p + t * ldx;
            size_t first = paired ? g & ~(size_t)1 : g;
            size_t n = paired && first + 1 < n_groups ? 2 : 1;

            rounded_group(s->what, q + g * s->group, scale[g],
                          xt + g * s->group, s->group,
                          top_of(xt + first * s->group, n * s->group));
            if (!isnan(want) || !isnan(sum[g]))
                near(s->what, g, n_groups, (double)sum[g], (double)want, 0);
        }
        if (memcmp(q, by_ref.x.q + t * by_ref.x.ldq, s->cols))
            fail_msg("%s: not the reference's integers", s->what);
        for (size_t c = s->cols; c < r.x.ldq; c++)
            if (q[c])
                fail_msg("%s: not 0 behind the columns", s->what);
        for (size_t g = n_groups; t + 1 < s->tokens && g < r.x.ldg; g++)
            if (!isnan(scale[g]) || !isnan(sum[g]))
                fail_msg("%s: wrote between tokens", s->what);
    }
    edge_free(&x);
    rounded_free(&r);
    rounded_free(&by_ref);
}

static void check_to_q8(const struct kernels *k, enum dtype type)
{
    for (size_t i = 0; i < sweeps(k); i++) {
        struct shape s =
            shape_at(i, token_counts[below(N_TOKEN_COUNTS - 1)], 200000);

        to_q8_case(k, &s, (enum extreme)below(N_EXTREMES));
    }
}

static void check_to_kv_i8(const struct kernels *k, enum dtype type)
{
    char what[64];

    for (size_t i = 0; i < 8 * N_SIZES; i++) {
        size_t n = size_at(i % N_SIZES), groups = kv_i8_groups(n);
        enum place place = (enum place)below(N_PLACES);
        struct edge x = edge_new(n * 4, place, 4 * below(16));
        struct edge q = edge_new(n, place, below(64));
        struct edge scales = edge_new(groups * 4, place, 4 * below(16));
        struct edge by_ref = edge_new(n, HEAP, 0);
        struct edge ref_scales = edge_new(groups * 4, HEAP, 0);
        const float *s = scales.p;

        snprintf(what, sizeof what, "%zu values, %s", n, place_names[place]);
        fill_rounded(x.p, n, (enum extreme)below(N_EXTREMES));
        edge_keep(&x);
        k->to_kv_i8(q.p, scales.p, x.p, n);
        ref->to_kv_i8(by_ref.p, ref_scales.p, x.p, n);
        edge_same(&x, what);
        edge_check(&q, what);
        edge_check(&scales, what);
        for (size_t g = 0; g < groups; g++) {
            size_t at = g * KV_I8_GROUP;

            size_t m = n - at < KV_I8_GROUP ? n - at : KV_I8_GROUP;
            const float *from = (float *)x.p + at;

            rounded_group(what, (int8_t *)q.p + at, s[g], from, m,
                          top_of(from, m));
        }
        if (memcmp(q.p, by_ref.p, n))
            fail_msg("%s: not the reference's integers", what);
        edge_free(&x);
        edge_free(&q);
        edge_free(&scales);
        edge_free(&by_ref);
        edge_free(&ref_scales);
    }
}

/* ---- gemm_q8_affine ------------------------------------------------------ */

/* Activations: random; all at the limit, with one sign or alternating signs;
 * zeros. */
enum signs { ANY, ALL_TOP, ALL_BOTTOM, ALTERNATING, NO_VALUES, N_SIGNS };

static struct rounded activations_new(const struct shape *s)
{
    struct rounded r = rounded_new(s->cols, s->tokens, s->group, s->place);

    memset(r.x.q, 0, r.q.bytes);
    for (size_t t = 0; t < s->tokens; t++) {
        enum signs signs = (enum signs)(below(2) ? 0 : below(N_SIGNS));
        double size = below(6) ? 1 : exp2(200 * uniform() - 140);

        for (size_t c = 0; c < s->cols; c++)
            r.x.q[t * r.x.ldq + c] =
                (int8_t)(signs == ANY         ? (int)below(255) - 127
                         : signs == NO_VALUES ? 0
                         : signs == ALL_TOP || (signs == ALTERNATING && c % 2)
                             ? 127
                             : -127);
        for (size_t g = 0; g < s->cols / s->group; g++) {
            float *scale = r.x.scale + t * r.x.ldg + g;

            *scale = signs == NO_VALUES ? 0 : (float)(uniform() * size);
            r.x.sum[t * r.x.ldg + g] =
                sum_of(r.x.q + t * r.x.ldq + g * s->group, *scale, s->group);
        }
    }
    edge_keep(&r.q);
    edge_keep(&r.scale);
    edge_keep(&r.sum);
    return r;
}

struct sums {
    struct edge y, before, alone;
    size_t ldy;
};

/* Integer sums are exact, so only f32 arithmetic rounds. Each term has three
 * roundings: the product of the group's scales, and two products with sums. The
 * longest path has at most two additions per group, three foldings of lanes,
 * and the addition of the old y. The sum of activations is rounded once more;
 * MXFP4's definition has no such sum. A level may keep integer sums separate by
 * lanes, so the bound uses their magnitudes, not the magnitude of their sum. */
static void q8_values(const struct kernels *k, const struct shape *s,
                      const struct weights *w, const struct rounded *r,
                      const struct sums *sums, bool add)
{
    const float *y = sums->y.p, *before = sums->before.p;
    double depth =
        k->level == ISA_REF ? 1.001 : 2 * (double)w->groups + 3 + 3 + 1;

    for (size_t row = 0; row < s->rows; row++)
        for (size_t t = 0; t < s->tokens; t++) {
            const size_t at = t * sums->ldy + row;
            double want = add ? (double)before[at] : 0, mag = fabs(want);
            double tiny = 1;

            for (size_t g = 0; g < w->groups; g++) {
                const unsigned char *c = w->code + row * s->cols + g * s->group;
                const int8_t *q = r->x.q + t * r->x.ldq + g * s->group;
                double both = (double)w->s[row * w->groups + g] *
                              (double)r->x.scale[t * r->x.ldg + g];
                double bias = (double)w->b[row * w->groups + g] *
                              (double)r->x.sum[t * r->x.ldg + g];
                int dot = 0, size = 0, total = 0;

                for (size_t i = 0; i < s->group; i++) {
                    dot += c[i] * q[i];
                    size += c[i] * abs(q[i]);
                    total += q[i];
                }
                if (is_e2m1(s->type))
                    bias = -12 * both * total;
                want += both * dot + bias;
                mag += fabs(both) * size + fabs(bias);
                tiny += 4 + size; /* the product of scales may be subnormal */
            }
            if (k->level == ISA_REF) /* double's sum is off by far less */
                mag = fabs(want) + (double)w->groups * 0x1p-27 * mag;
            near(s->what, at, s->tokens * sums->ldy, (double)y[at], want,
                 depth * U * mag + tiny * TINY);
        }
}

/* Each row alone has the same bits as in the whole call. */
static void q8_order(const struct kernels *k, const struct shape *s,
                     const struct weights *w, const struct rounded *r,
                     const struct sums *sums, bool add)
{
    const float *y = sums->y.p, *before = sums->before.p;
    float *alone = sums->alone.p;

    for (size_t row = 0; row < s->rows; row++) {
        struct affine one = from_row(w, row);

        for (size_t t = 0; t < s->tokens; t++)
            alone[t] = before[t * sums->ldy + row];
        k->gemm_q8_affine(alone, 1, &one, &r->x, 1, s->cols, s->tokens, add,
                          product_work());
        for (size_t t = 0; t < s->tokens; t++)
            same_bits(s->what, y + t * sums->ldy + row, alone + t, 1);
    }
    /* and calls of some of the rows */
    for (size_t row = 0, n; row < s->rows; row += n) {
        struct affine some = from_row(w, row);

        n = 1 + below(s->rows - row);
        memcpy(alone, before, sums->before.bytes);
        k->gemm_q8_affine(alone + row, sums->ldy, &some, &r->x, n, s->cols,
                          s->tokens, add, product_work());
        for (size_t t = 0; t < s->tokens; t++)
            same_bits(s->what, y + t * sums->ldy + row,
                      alone + t * sums->ldy + row, n);
    }
}

/* Below AVX-512, a few tokens together have the same bits as each token alone,
 * if their columns are rearranged at once. */
static void q8_tokens(const struct kernels *k, const struct shape *s,
                      const struct weights *w, const struct rounded *r,
                      const struct sums *sums, bool add)
{
    const size_t panels = w->a.bits > 4 ? kernel_core.avx_panels8_min
                                        : kernel_core.avx_panels4_min;
    float *alone = sums->alone.p;

    if (!x86_from(k, ISA_AVX2) || k->level >= ISA_AVX512 ||
        s->tokens >= panels || s->cols > 2048)
        return;
    for (size_t t = 0; t < s->tokens; t++) {
        struct q8 one = r->x;

        one.q += t * one.ldq;
        one.scale += t * one.ldg;
        one.sum += t * one.ldg;
        memcpy(alone, (const float *)sums->before.p + t * sums->ldy,
               s->rows * sizeof *alone);
        k->gemm_q8_affine(alone, sums->ldy, &w->a, &one, s->rows, s->cols, 1,
                          add, product_work());
        same_bits(s->what, (const float *)sums->y.p + t * sums->ldy, alone,
                  s->rows);
    }
}

/* The levels above avx512 do the same sums as avx512: with few tokens because
 * they use its kernel, with more because their kernels have its order. On ARM,
 * all levels have the order of neon. */
static void q8_levels(const struct kernels *k, const struct shape *s,
                      const struct weights *w, const struct rounded *r,
                      const struct sums *sums, bool add)
{
    const enum isa with = k->level >= ISA_NEON ? ISA_NEON : ISA_AVX512;
    const struct kernels *other = kernels_get(with);
    float *y = sums->alone.p;

    if (k->level <= with)
        return;
    memcpy(y, sums->before.p, sums->before.bytes);
    other->gemm_q8_affine(y, sums->ldy, &w->a, &r->x, s->rows, s->cols,
                          s->tokens, add, product_work());
    for (size_t t = 0; t < s->tokens; t++)
        same_bits(s->what, (float *)sums->y.p + t * sums->ldy,
                  y + t * sums->ldy, s->rows);
}

/* Blocks of rows that are multiplied from registers, in place of panels, change
 * no bit. */
static void q8_batch(const struct kernels *k, const struct shape *s,
                     const struct weights *w, const struct rounded *r,
                     const struct sums *sums, bool add)
{
    struct core_choices c = kernel_core;
    const struct core_choices before = kernel_core;
    float *y = sums->alone.p;

    if (!x86_from(k, ISA_AVX512) || s->tokens < c.q8_panels_min)
        return;
    c.q8_batch_max = 1;
    kernels_choose(&c);
    memcpy(y, sums->before.p, sums->before.bytes);
    k->gemm_q8_affine(y, sums->ldy, &w->a, &r->x, s->rows, s->cols, s->tokens,
                      add, product_work());
    kernels_choose(&before);
    for (size_t t = 0; t < s->tokens; t++)
        same_bits(s->what, (float *)sums->y.p + t * sums->ldy,
                  y + t * sums->ldy, s->rows);
}

static void gemm_q8_case(const struct kernels *k, const struct shape *s)
{
    struct weights w = shape_weights(s);
    struct rounded r = activations_new(s);
    struct sums sums = {.ldy = s->rows + below(4)};
    size_t n = (s->tokens - 1) * sums.ldy + s->rows;
    bool add = below(2);

    sums.y = edge_new(n * 4, s->place, 4 * below(16));
    sums.before = edge_new(n * 4, HEAP, 0);
    sums.alone = edge_new(n * 4, HEAP, 0);
    for (size_t t = 0; add && t < s->tokens; t++)
        fill((float *)sums.y.p + t * sums.ldy, s->rows, NORMAL, 0);
    memcpy(sums.before.p, sums.y.p, n * 4);
    k->gemm_q8_affine(sums.y.p, sums.ldy, &w.a, &r.x, s->rows, s->cols,
                      s->tokens, add, product_work());
    edge_check(&sums.y, s->what);
    edge_same(&r.q, s->what);
    edge_same(&r.scale, s->what);
    edge_same(&r.sum, s->what);
    weights_same(&w, s->what);
    gaps_same(sums.y.p, sums.ldy, s);
    q8_values(k, s, &w, &r, &sums, add);
    q8_order(k, s, &w, &r, &sums, add);
    q8_tokens(k, s, &w, &r, &sums, add);
    q8_levels(k, s, &w, &r, &sums, add);
    q8_batch(k, s, &w, &r, &sums, add);
    edge_free(&sums.y);
    edge_free(&sums.before);
    edge_free(&sums.alone);
    rounded_free(&r);
    weights_free(&w);
}

static void check_gemm_q8_affine(const struct kernels *k, enum dtype type)
{
    for (size_t i = 0; i < sweeps(k); i++) {
        struct shape s =
            shape_at(i, token_counts[below(N_TOKEN_COUNTS)], work_of(k, i));

        gemm_q8_case(k, &s);
    }
    /* more rows than a block has, and as many tokens as a prefill */
    for (size_t i = 0; k->level != ISA_REF && i < 2 * N_BITS; i++) {
        struct shape s = shape_at(i * 7, i < N_BITS ? 65 : 1, 1);

        s.rows = 300 + below(40);
        s.cols = 6 * s.group;
        gemm_q8_case(k, &s);
    }
    /* ends of blocks of rows and of tiles of tokens */
    for (size_t i = 0; k->level != ISA_REF && i < 24 * N_GROUPS; i++) {
        static const size_t rows[] = {15, 16, 17, 63, 64, 65, 79, 80, 129};
        static const size_t tokens[] = {4,  5,  7,  8,  9,  12,
                                        16, 17, 24, 31, 32, 33};
        struct shape s = shape_at((i / 24 + i % 3 * N_GROUPS) * N_BITS,
                                  tokens[i % 12], 1);

        s.bits = i / 12 % 2 ? 4 : 8;
        s.is_signed = s.bits == 8 && i % 3 == 0;
        s.rows = rows[below(sizeof rows / sizeof *rows)];
        s.cols = (1 + below(40)) * s.group;
        gemm_q8_case(k, &s);
        s.cols = s.cols / s.group * 32;
        as_mxfp4(&s);
        s.is_signed = false;
        gemm_q8_case(k, &s);
        as_nvfp4(&s);
        gemm_q8_case(k, &s);
    }
    /* rows too long for the buffers on the kernels' stacks */
    for (size_t i = 0; k->level != ISA_REF && i < N_GROUPS; i++) {
        struct shape s = shape_at(i * N_BITS, 8, 1);

        s.bits = 4;
        s.is_signed = false;
        s.rows = 3;
        s.cols = 130 * 128 + s.group;
        gemm_q8_case(k, &s);
        /* the same for memory of the caller, and more groups than fit it */
        s.tokens = 37;
        s.cols = (i ? 700 : 2049) * s.group;
        gemm_q8_case(k, &s);
        as_mxfp4(&s);
        gemm_q8_case(k, &s);
        as_nvfp4(&s);
        gemm_q8_case(k, &s);
    }
}

/* ---- nothing to do ------------------------------------------------------ */

static void check_empty(const struct kernels *k, enum dtype type)
{
    for (size_t i = 0; i < N_BITS * 3; i++) {
        size_t none = i / N_BITS, tokens = none == 2 ? 0 : 3;
        size_t rows = none == 1 ? 0 : 5, cols = none == 0 ? 0 : 64;
        struct weights w =
            weights_new(rows, cols, all_bits[i % N_BITS], 64, DT_F32, false,
                        RANDOM_CODES, NORMAL_NUMBERS, SAME_TYPE, LAST);
        struct rounded r = rounded_new(64, 3, 64, HEAP);
        struct edge x = edge_new(64 * 3 * 4, HEAP, 0);
        float y[15];

        fill(x.p, 64 * 3, NORMAL, 0);
        ref->to_q8(&r.x, x.p, 64, 64, 3);
        for (int way = 0; way < 3; way++) {
            for (size_t j = 0; j < 15; j++)
                y[j] = 2;
            if (way == 0)
                k->matmul_f32_affine(y, 5, &w.a, x.p, 64, rows, cols, tokens,
                                     product_work());
            else
                k->gemm_q8_affine(y, 5, &w.a, &r.x, rows, cols, tokens,
                                  way == 2, product_work());
            /* no columns: an empty sum */
            for (size_t j = 0; j < 15; j++)
                near("empty product", j, 15, (double)y[j],
                     none == 0 && way != 2 ? 0 : 2, 0);
        }
        if (none < 2) {
            y[0] = 2;
            k->affine_to_f32(y, &w.a, rows, cols);
            assert_true(y[0] == 2);
        }
        edge_free(&x);
        rounded_free(&r);
        weights_free(&w);
    }
}

static void check_peak(const struct kernels *k, enum dtype type)
{
    float sink = NAN;
    double ops = k->peak_q8(1, &sink);

    assert_true(ops >= 0.9e7 && ops <= 1.1e7);
    assert_true(sink == sink);
}

/* ---- cpuid -------------------------------------------------------------- */

/* Run each kind of product once. */
static void run_products(const struct kernels *k)
{
    enum { ROWS = 5, COLS = 64, TOKENS = 3 };
    struct weights w =
        weights_new(ROWS, COLS, 4, 64, DT_BF16, false, RANDOM_CODES,
                    NORMAL_NUMBERS, SAME_TYPE, HEAP);
    struct rounded r = rounded_new(COLS, TOKENS, 64, HEAP);
    float x[TOKENS * COLS], y[TOKENS * ROWS], wide[ROWS * COLS];

    fill(x, TOKENS * COLS, NORMAL, 0);
    k->affine_to_f32(wide, &w.a, ROWS, COLS);
    k->matmul_f32_affine(y, ROWS, &w.a, x, COLS, ROWS, COLS, TOKENS,
                         product_work());
    k->to_q8(&r.x, x, COLS, COLS, TOKENS);
    k->gemm_q8_affine(y, ROWS, &w.a, &r.x, ROWS, COLS, TOKENS, false,
                      product_work());
    rounded_free(&r);
    weights_free(&w);
}

/* Kernels must not use cpuid: the tables ask it once. In a virtual machine each
 * cpuid exits to the host, which takes tens of microseconds, more than a small
 * product. This test makes cpuid a fault, in a child process. */
#ifndef SYS_arch_prctl /* only x86 has it */
#define SYS_arch_prctl (-1)
#endif
static void check_no_cpuid(const struct kernels *k, enum dtype type)
{
    enum { SET_CPUID = 0x1012, CANNOT = 77 }; /* arch_prctl(2) */
    pid_t pid;
    int status;

    fflush(stdout);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (prctl(PR_SET_DUMPABLE, 0) || syscall(SYS_arch_prctl, SET_CPUID, 0))
            _exit(CANNOT);
        run_products(k);
        _exit(kernels_get(k->level) == k ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
        printf("    SKIP: cpuid cannot be made a fault here\n");
        skip();
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- main --------------------------------------------------------------- */

static const struct check_row rows[] = {
    {"affine_to_f32", DT_F32, DT_F32, check_to_f32, NULL},
    {"matmul_f32_affine", DT_F32, DT_F32, check_matmul_affine, NULL},
    {"to_q8", DT_F32, DT_F32, check_to_q8, NULL},
    {"to_kv_i8", DT_F32, DT_F32, check_to_kv_i8, NULL},
    {"gemm_q8_affine", DT_F32, DT_F32, check_gemm_q8_affine, NULL},
    {"gemm_bf16_affine", DT_F32, DT_F32, check_gemm_bf16_affine, NULL},
    {"empty", DT_F32, DT_F32, check_empty, NULL},
    {"peak_q8", DT_F32, DT_F32, check_peak, NULL},
    {"no_cpuid", DT_F32, DT_F32, check_no_cpuid, NULL},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "quantized kernels", rows,
                      sizeof rows / sizeof *rows, NULL, 0);
}
