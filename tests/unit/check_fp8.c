/* Products of FP8 weights, on every level of this CPU, against the scalar
 * reference. check_table.h has the options. */
#include "check_table.h"

/* How scales are shared: rows and columns of a block; 0: all. */
static const struct {
    const char *name;
    size_t rows, cols;
    bool mx; /* MXFP8: columns by 32 */
} forms[] = {{"blocks of 128", 128, 128, false},
             {"blocks of 3 x 32", 3, 32, false},
             {"by row", 1, 0, false},
             {"by tensor", 0, 0, false},
             {"MXFP8", 1, 32, true}};

enum { N_FORMS = sizeof forms / sizeof *forms };

enum scales { USUAL, EXTREME, N_SCALES };

struct product {
    struct area q, x, y, y2;
    struct fp8 w;
    float *scales;
    unsigned char *mx;
    size_t rows, cols, tokens, ldx, ldy;
    float largest; /* of finite scales */
    bool infinite; /* a scale is */
};

/* ---- inputs -------------------------------------------------------------- */

/* Scales that products must survive: results may be NaN or infinite, the same
 * as those of the reference. */
static float extreme_scale(void)
{
    static const float values[] = {0,         1e-40f, 0x1p-149f, INFINITY,
                                   -INFINITY, NAN,    1e30f,     -0.5f};
    return values[below(sizeof values / sizeof *values)];
}

/* Set the scales of all blocks. A matrix whose first rows are not there begins
 * inside a block. */
static void make_scales(struct product *p, size_t form, enum scales kind)
{
    struct fp8 *w = &p->w;
    size_t all = p->rows + p->cols + 1000;

    w->rows = forms[form].rows ? forms[form].rows : all;
    w->cols = forms[form].cols ? forms[form].cols : p->cols + below(2);
    w->first = below(w->rows < 300 ? w->rows : 300);
    w->ld = (p->cols + w->cols - 1) / (w->cols ? w->cols : 1) + below(3);
    if (!w->cols)
        w->cols = 1;
    if (forms[form].mx)
        w->first = 0;
    size_t n = ((w->first + p->rows) / w->rows + 1) * w->ld;

    p->mx = must(malloc(n + 1));
    p->scales = must(malloc((n + 1) * sizeof *p->scales));
    for (size_t i = 0; i < n; i++) {
        float s = (float)exp2(-12 * uniform());

        p->mx[i] = (unsigned char)(kind == EXTREME && uniform() < 0.3
                                       ? below(4)   ? below(4)
                                         : below(2) ? 150
                                                    : 255
                                       : 115 + below(12));
        if (forms[form].mx)
            s = p->mx[i] == 255 ? NAN : ldexpf(1, p->mx[i] - 127);
        else if (kind == EXTREME && uniform() < 0.3)
            s = extreme_scale();
        if (isfinite(s) && fabsf(s) > p->largest)
            p->largest = fabsf(s);
        p->infinite = p->infinite || isinf(s);
        p->scales[i] = s;
    }
    w->scales = p->scales;
    if (forms[form].mx) {
        w->mx = p->mx;
        w->mx_stride = w->ld;
    }
}

/* Codes: all 256 if `nan`, otherwise without NaN. */
static struct product product_new(size_t rows, size_t cols, size_t tokens,
                                  size_t form, enum scales scales, bool nan)
{
    size_t spare = below(4);
    struct product p = {.rows = rows,
                        .cols = cols,
                        .tokens = tokens,
                        .ldx = cols + spare,
                        .ldy = rows + spare};
    size_t stride = cols + spare;

    p.q = area_new(rows * stride, below(70));
    p.x = area_new(tokens * p.ldx * sizeof(float), 4 * below(3));
    p.y = area_new(tokens * p.ldy * sizeof(float), 4 * below(3));
    p.y2 = area_new(tokens * p.ldy * sizeof(float), 0);
    fill(p.x.p, tokens * p.ldx, (enum kind)below(N_KINDS), 1e15f);
    for (size_t t = 0; t < tokens; t++) /* gaps must not matter */
        memset((float *)p.x.p + t * p.ldx + cols, 0xff, spare * sizeof(float));
    for (size_t r = 0; r < rows; r++)
        for (size_t k = 0; k < cols; k++) {
            unsigned char c = (unsigned char)below(256);

            if ((c & 0x7f) == 0x7f && !(nan && below(4) == 0))
                c ^= 0x40;
            ((unsigned char *)p.q.p)[r * stride + k] = c;
        }
    area_keep(&p.q);
    area_keep(&p.x);
    p.w.q = p.q.p;
    p.w.q_stride = stride;
    make_scales(&p, form, scales);
    return p;
}

static void product_free(struct product *p)
{
    area_free(&p->q);
    area_free(&p->x);
    area_free(&p->y);
    area_free(&p->y2);
    free(p->scales);
    free(p->mx);
}

/* The product's weights from a row on. */
static struct fp8 from_row(const struct product *p, size_t r)
{
    struct fp8 w = p->w;

    w.q += r * w.q_stride;
    if (w.mx)
        w.mx += r * w.mx_stride;
    else
        w.first += r;
    return w;
}

static void check_gaps(const struct product *p, const char *what)
{
    const float *y = p->y.p;

    area_check(&p->y, what);
    area_same(&p->q, what);
    area_same(&p->x, what);
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t r = p->rows; r < p->ldy; r++)
            if (!isnan(y[t * p->ldy + r]))
                fail_msg("%s: wrote between tokens", what);
}

/* Compare a result with the reference's. With an infinite scale it is infinite
 * or NaN: that depends on which of its terms have which sign, and on whether a
 * term or their sum is multiplied by the scale. */
static void compare(const struct product *p, const char *what, size_t r,
                    size_t t, float want, double bound)
{
    size_t at = t * p->ldy + r;
    float got = ((const float *)p->y.p)[at];

    if (!p->infinite || isfinite(got) || isfinite(want))
        near(what, at, p->tokens * p->ldy, (double)got, (double)want, bound);
}

/* Call run(k, p, what) for products of many sizes and all forms. */
static void each_product(const struct kernels *k, size_t tokens_step,
                         void (*run)(const struct kernels *k, struct product *p,
                                     const char *what))
{
    char what[128];

    for (size_t i = 0; i < N_SIZES; i++)
        for (size_t form = 0; form < N_FORMS; form++) {
            size_t cols = size_at(i), rows = 1 + below(cols > 100 ? 40 : 19);

            if (forms[form].mx)
                cols = (cols + 31) / 32 * 32;
            size_t tokens = 1 + below(9) * (below(4) ? 1 : tokens_step);
            enum scales scales = (enum scales)below(N_SCALES);
            bool nan = below(3) == 0;
            struct product p =
                product_new(rows, cols, tokens, form, scales, nan);

            snprintf(what, sizeof what,
                     "%zu rows, %zu cols, %zu tokens, %s, scales %d, nan %d",
                     rows, cols, tokens, forms[form].name, scales, nan);
            run(k, &p, what);
            product_free(&p);
        }
    /* several blocks of rows; more columns than are prepared at a time */
    for (size_t form = 0; form < N_FORMS; form++) {
        struct product a = product_new(300, 160, 5, form, USUAL, false);
        struct product b = product_new(3, 33024, 3, form, USUAL, false);

        run(k, &a, "300 rows, 160 cols");
        run(k, &b, "3 rows, 33024 cols");
        product_free(&a);
        product_free(&b);
    }
}

/* ---- widening ------------------------------------------------------------ */

/* The value of a code, from the definition. */
static double code_value(unsigned c)
{
    double sign = c & 0x80 ? -1 : 1;
    int e = (int)(c >> 3 & 15), m = (int)(c & 7);

    if (e == 15 && m == 7)
        return NAN;
    return sign * (e ? exp2(e - 7) * (1 + m / 8.0) : exp2(-6) * m / 8.0);
}

static void to_f32_case(const struct kernels *k, struct product *p,
                        const char *what)
{
    struct area out = area_new(p->rows * p->cols * sizeof(float), 4);
    float *got = out.p;

    k->fp8_to_f32(got, &p->w, p->rows, p->cols);
    area_check(&out, what);
    area_same(&p->q, what);
    for (size_t r = 0; r < p->rows; r++)
        for (size_t i = 0; i < p->cols; i++) {
            unsigned c = p->w.q[r * p->w.q_stride + i];
            float scale = p->scales[(p->w.first + r) / p->w.rows * p->w.ld +
                                    i / p->w.cols];
            float want = (float)code_value(c) * scale;
            size_t at = r * p->cols + i;

            if (isnan(want) ? !isnan(got[at])
                            : memcmp(&got[at], &want, sizeof want))
                fail_msg("%s: code %u times %g is %g, not %g", what, c,
                         (double)scale, (double)got[at], (double)want);
        }
    area_free(&out);
}

static void check_to_f32(const struct kernels *k, enum dtype type)
{
    (void)type;
    each_product(k, 1, to_f32_case);
}

/* ---- products in f32 ----------------------------------------------------- */

/* The magnitude of the terms of one result. */
static double magnitude(const struct product *p, const float *row, size_t t)
{
    const float *x = (const float *)p->x.p + t * p->ldx;
    double mag = 0;

    for (size_t i = 0; i < p->cols; i++)
        mag += fabs((double)row[i] * (double)x[i]);
    return mag;
}

/* Each row and token alone has the same bits as in the whole call, also if a
 * call begins inside a block. */
static void matmul_order(const struct kernels *k, struct product *p,
                         const char *what)
{
    float *y = p->y.p, *alone = p->y2.p;
    const float *x = p->x.p;

    for (size_t t = 0; t < p->tokens; t++)
        k->matmul_f32_fp8(alone + t * p->ldy, 1, &p->w, x + t * p->ldx, 12345,
                          p->rows, p->cols, 1, product_work());
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
    for (size_t r = 0; r < p->rows; r++) {
        struct fp8 w = from_row(p, r);

        k->matmul_f32_fp8(alone + r, p->ldy, &w, x, p->ldx, 1, p->cols,
                          p->tokens, product_work());
    }
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
}

static void matmul_case(const struct kernels *k, struct product *p,
                        const char *what)
{
    float *y = p->y.p, *want = p->y2.p;
    float *row = must(malloc((p->cols + 1) * sizeof *row));
    /* in at least 32 sums, which are added up in six steps at most, once for
     * each run of columns; the scale; the reference's rounding */
    double additions = ceil((double)p->cols / 32) + 6 + 2;
    /* an activation times a scale, or times a code that was divided by 256, may
     * be subnormal */
    double tiny = (double)p->cols * 512 * TINY * fmax(1, (double)p->largest);

    k->matmul_f32_fp8(y, p->ldy, &p->w, p->x.p, p->ldx, p->rows, p->cols,
                      p->tokens, product_work());
    check_gaps(p, what);
    ref->matmul_f32_fp8(want, p->ldy, &p->w, p->x.p, p->ldx, p->rows, p->cols,
                        p->tokens, product_work());
    for (size_t r = 0; r < p->rows; r++) {
        struct fp8 w = from_row(p, r);

        ref->fp8_to_f32(row, &w, 1, p->cols);
        for (size_t t = 0; t < p->tokens; t++)
            compare(p, what, r, t, want[t * p->ldy + r],
                    additions * U * magnitude(p, row, t) + tiny);
    }
    free(row);
    matmul_order(k, p, what);
}

static void check_matmul(const struct kernels *k, enum dtype type)
{
    (void)type;
    each_product(k, 1, matmul_case);
    for (size_t none = 0; none < 3; none++) { /* no columns, rows or tokens */
        struct product p = product_new(3, 8, 4, 0, USUAL, false);
        float *y = p.y.p;

        k->matmul_f32_fp8(y, p.ldy, &p.w, p.x.p, p.ldx, none == 0 ? 0 : 3,
                          none == 1 ? 0 : 8, none == 2 ? 0 : 4, product_work());
        for (size_t t = 0; t < 4; t++)
            for (size_t r = 0; r < 3; r++)
                if (none == 1 ? y[t * p.ldy + r] != 0
                              : !isnan(y[t * p.ldy + r]))
                    fail_msg("empty product %zu", none);
        product_free(&p);
    }
}

/* ---- products in bf16 ---------------------------------------------------- */

static struct area bf16_of(const float *x, size_t n, size_t offset)
{
    struct area a = area_new(n * 2, offset);

    ref->from_f32[DT_BF16](a.p, x, n);
    area_keep(&a);
    return a;
}

/* The amount that bf16 products may lose of one term, since they take subnormal
 * operands as 0; *mag gets the magnitude of the rest. */
static double bf16_term(float w, float x, double *mag)
{
    double m = fabs((double)w * (double)x);

    if (fabsf(x) < FLT_MIN)
        return m;
    *mag += m;
    return 0;
}

static void gemm_bf16_order(const struct kernels *k, struct product *p,
                            const struct area *x, const char *what)
{
    float *y = p->y.p, *alone = p->y2.p;

    k->gemm_bf16_fp8(y, p->ldy, &p->w, x->p, p->ldx, p->rows, p->cols,
                     p->tokens, false, product_work());
    for (size_t r = 0; r < p->rows; r++) {
        struct fp8 w = from_row(p, r);

        k->gemm_bf16_fp8(alone + r, p->ldy, &w, x->p, p->ldx, 1, p->cols,
                         p->tokens, false, product_work());
    }
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
}

static void gemm_bf16_case(const struct kernels *k, struct product *p,
                           const char *what)
{
    float *y = p->y.p, *want = p->y2.p;
    float *wf = must(malloc((p->cols + 1) * sizeof *wf));
    float *xf = must(malloc((p->tokens * p->ldx + 1) * sizeof *xf));
    struct area x = bf16_of(p->x.p, p->tokens * p->ldx, below(5));
    bool add = below(2);

    ref->to_f32[DT_BF16](xf, x.p, p->tokens * p->ldx);
    for (size_t t = 0; add && t < p->tokens; t++)
        fill(y + t * p->ldy, p->rows, NORMAL, 1);
    ref->matmul_f32_fp8(want, p->ldy, &p->w, xf, p->ldx, p->rows, p->cols,
                        p->tokens, product_work());
    for (size_t t = 0; add && t < p->tokens; t++)
        for (size_t r = 0; r < p->rows; r++)
            want[t * p->ldy + r] += y[t * p->ldy + r];
    float *before = must(malloc(p->y.bytes + 1));
    memcpy(before, y, p->y.bytes);
    k->gemm_bf16_fp8(y, p->ldy, &p->w, x.p, p->ldx, p->rows, p->cols, p->tokens,
                     add, product_work());
    check_gaps(p, what);
    area_same(&x, what);
    /* a sum before its scale, and a term, may be flushed to 0 */
    double tiny =
        (2 * (double)p->cols + 1) * FLT_MIN * fmax(1, (double)p->largest);
    for (size_t r = 0; r < p->rows; r++) {
        struct fp8 w = from_row(p, r);

        ref->fp8_to_f32(wf, &w, 1, p->cols);
        for (size_t t = 0; t < p->tokens; t++) {
            size_t at = t * p->ldy + r;
            double mag = add ? fabs((double)before[at]) : 0, lost = 0;

            for (size_t i = 0; i < p->cols; i++)
                lost += bf16_term(wf[i], xf[t * p->ldx + i], &mag);
            /* products are exact; each addition rounds, each scale, and the
             * reference */
            compare(p, what, r, t, want[at],
                    (2 * (double)p->cols + 4) * U * mag + lost + tiny);
        }
    }
    gemm_bf16_order(k, p, &x, what);
    area_free(&x);
    free(before);
    free(wf);
    free(xf);
}

static void check_gemm_bf16(const struct kernels *k, enum dtype type)
{
    (void)type;
    if (!k->gemm_bf16_fp8) {
        printf("    none on this level\n");
        return;
    }
    each_product(k, 9, gemm_bf16_case);
}

/* ---- benches ------------------------------------------------------------- */

/* Weights that do not fit the caches, as decode has them, then prefill. */
static void bench_products(const struct kernels *k, bool bf16)
{
    static const size_t tokens[] = {1, 2, 3, 4, 8, 16, 64, 512};

    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        size_t n = tokens[i], cols = 2048, rows = n > 16 ? 6144 : 98304;
        size_t ldx = bf16 ? gemm_bf16_ldx(cols) : cols;
        struct product p = product_new(rows, cols, n, 0, USUAL, false);
        struct area x = area_new(n * ldx * 2, 0);
        char shape[64];
        double ms;

        memset(x.p, 0, n * ldx * 2);
        if (bf16)
            TIME(ms, k->gemm_bf16_fp8(p.y.p, p.ldy, &p.w, x.p, ldx, rows, cols,
                                      n, false, product_work()));
        else
            TIME(ms, k->matmul_f32_fp8(p.y.p, p.ldy, &p.w, p.x.p, p.ldx, rows,
                                       cols, n, product_work()));
        snprintf(shape, sizeof shape, "%zu x %zu, %zu tokens", rows, cols, n);
        if (n > 16)
            bench_line(benched, shape, ms, 2.0 * (double)(rows * cols * n),
                       "GFLOP/s");
        else
            bench_line(benched, shape, ms, (double)(rows * cols), "GB/s");
        area_free(&x);
        product_free(&p);
    }
}

static void bench_matmul(const struct kernels *k, enum dtype type)
{
    (void)type;
    if (k->level != ISA_REF)
        bench_products(k, false);
}

static void bench_gemm_bf16(const struct kernels *k, enum dtype type)
{
    (void)type;
    if (k->gemm_bf16_fp8)
        bench_products(k, true);
}

/* ---- main ---------------------------------------------------------------- */

static const struct check_row rows[] = {
    {"fp8_to_f32", DT_F8_E4M3, DT_F8_E4M3, check_to_f32, NULL},
    {"matmul_f32_fp8", DT_F8_E4M3, DT_F8_E4M3, check_matmul, bench_matmul},
    {"gemm_bf16_fp8", DT_F8_E4M3, DT_F8_E4M3, check_gemm_bf16, bench_gemm_bf16},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "fp8", rows, sizeof rows / sizeof *rows, NULL,
                      0);
}
