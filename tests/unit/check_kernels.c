/* Every kernel of every level of this CPU, against the scalar reference or
 * against double arithmetic in this file.
 *
 *   check_kernels [--seed N] [--filter TEXT] [--bench]
 *
 * The seed can also come from QWICK_TEST_SEED. --filter runs the tests whose
 * name contains TEXT. --bench times the kernels instead of checking them. */
#include "check.h"

#include "kernel/gemm.h"

/* ---- the tests ---------------------------------------------------------- */

struct test {
    char name[48];
    const struct kernels *k;
    enum dtype type;
    void (*check)(const struct kernels *k, enum dtype type);
    void (*bench)(const struct kernels *k, enum dtype type);
};

struct product {
    struct area w, x, y, y2;
    size_t rows, cols, tokens, stride, ldx, ldy;
};

/* Operands of a product with spare columns and the given misalignments. */
static struct product product_new(size_t rows, size_t cols, size_t tokens,
                                  size_t spare, size_t w_offset, enum kind kind,
                                  enum dtype type)
{
    struct product p = {.rows = rows,
                        .cols = cols,
                        .tokens = tokens,
                        .stride = cols + spare,
                        .ldx = cols + 2 * spare,
                        .ldy = rows + spare};
    size_t bytes = dtype_bytes(type), nw = rows * p.stride;
    float *f = must(malloc(nw * sizeof *f));

    p.w = area_new(nw * bytes, w_offset);
    p.x = area_new(tokens * p.ldx * sizeof(float), 4 * (spare & 1));
    p.y = area_new(tokens * p.ldy * sizeof(float), 4 * (spare & 1));
    p.y2 = area_new(tokens * p.ldy * sizeof(float), 0);
    fill(f, nw, kind, type == DT_F16 ? 6e4f : 1e15f);
    ref->from_f32[type](p.w.p, f, nw);
    fill(p.x.p, tokens * p.ldx, kind, 1e15f);
    /* the gaps between rows must not affect results: fill them with NaN */
    for (size_t r = 0; r < rows; r++)
        memset((char *)p.w.p + (r * p.stride + cols) * bytes, 0xff,
               spare * bytes);
    for (size_t t = 0; t < tokens; t++)
        memset((float *)p.x.p + t * p.ldx + cols, 0xff,
               2 * spare * sizeof(float));
    area_keep(&p.w);
    area_keep(&p.x);
    free(f);
    return p;
}

static void product_free(struct product *p)
{
    area_free(&p->w);
    area_free(&p->x);
    area_free(&p->y);
    area_free(&p->y2);
}

/* Check that y is the product, within the rounding of `additions` additions and
 * of the reference, and that nothing else was written. */
static void product_check(struct product *p, enum dtype type, double additions,
                          const char *what)
{
    float *y = p->y.p, *x = p->x.p, *want = p->y2.p;
    float *row = must(malloc((p->cols + 1) * sizeof *row));

    ref->matmul_f32[type](want, p->ldy, p->w.p, p->stride, x, p->ldx, p->rows,
                          p->cols, p->tokens, product_work());
    area_check(&p->y, what);
    area_same(&p->w, what);
    area_same(&p->x, what);
    for (size_t r = 0; r < p->rows; r++) {
        ref->to_f32[type](
            row, (char *)p->w.p + r * p->stride * dtype_bytes(type), p->cols);
        for (size_t t = 0; t < p->tokens; t++) {
            double mag = 0;

            for (size_t i = 0; i < p->cols; i++)
                mag += fabs((double)row[i] * (double)x[t * p->ldx + i]);
            near(what, t * p->ldy + r, p->tokens * p->ldy,
                 (double)y[t * p->ldy + r], (double)want[t * p->ldy + r],
                 additions * U * mag + (double)p->cols * TINY);
        }
    }
    /* nothing between the tokens' outputs was written */
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t r = p->rows; r < p->ldy; r++)
            if (!isnan(y[t * p->ldy + r]))
                fail_msg("%s: wrote between tokens", what);
    free(row);
}

static void matmul_case(const struct kernels *k, enum dtype type,
                        struct product *p, const char *what)
{
    k->matmul_f32[type](p->y.p, p->ldy, p->w.p, p->stride, p->x.p, p->ldx,
                        p->rows, p->cols, p->tokens, product_work());
    /* additions: in 32 lanes, then five foldings, then the reference's
     * rounding */
    product_check(p, type, ceil((double)p->cols / 32) + 6, what);
}

/* Each row and token alone has the same bits as in the whole call. */
static void matmul_order(const struct kernels *k, enum dtype type,
                         struct product *p, const char *what)
{
    float *y = p->y.p, *alone = p->y2.p;
    size_t bytes = dtype_bytes(type);

    for (size_t t = 0; t < p->tokens; t++)
        k->matmul_f32[type](alone + t * p->ldy, 1, p->w.p, p->stride,
                            (float *)p->x.p + t * p->ldx, 12345, p->rows,
                            p->cols, 1, product_work());
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
    for (size_t r = 0; r < p->rows; r++)
        k->matmul_f32[type](
            alone + r, p->ldy, (char *)p->w.p + r * p->stride * bytes,
            p->stride, p->x.p, p->ldx, 1, p->cols, p->tokens, product_work());
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
}

/* AVX-512's products have the same order of sums as AVX2's, so equal values.
 * (Zeros may differ in sign: the levels fill up short vectors differently.) */
static void matmul_levels(const struct kernels *k, enum dtype type,
                          struct product *p, const char *what)
{
    const struct kernels *avx2 = kernels_get(ISA_AVX2);
    const float *y = p->y.p;
    float *want = p->y2.p;

    if (k->level < ISA_AVX512)
        return;
    avx2->matmul_f32[type](want, p->ldy, p->w.p, p->stride, p->x.p, p->ldx,
                           p->rows, p->cols, p->tokens, product_work());
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t r = 0; r < p->rows; r++)
            near(what, t * p->ldy + r, p->tokens * p->ldy,
                 (double)y[t * p->ldy + r], (double)want[t * p->ldy + r], 0);
}

static void check_matmul(const struct kernels *k, enum dtype type)
{
    char what[96];

    for (size_t i = 0; i < N_SIZES; i++) {
        size_t cols = size_at(i);

        for (size_t tokens = 1; tokens <= 9; tokens += cols > 100 ? 3 : 1) {
            size_t rows = 1 + below(cols > 100 ? 13 : 19);
            size_t spare = below(4);
            enum kind kind = (enum kind)below(N_KINDS);
            /* stored tensors may have any alignment */
            struct product p =
                product_new(rows, cols, tokens, spare, below(5), kind, type);

            snprintf(what, sizeof what, "%zu rows, %zu cols, %zu tokens, %s",
                     rows, cols, tokens, kind_names[kind]);
            matmul_case(k, type, &p, what);
            matmul_order(k, type, &p, what);
            matmul_levels(k, type, &p, what);
            product_free(&p);
        }
    }
    /* many tokens: several blocks of rows and of tokens */
    for (size_t tokens = 10; tokens < 200; tokens = tokens * 3 + 1) {
        struct product p = product_new(101, 1056, tokens, 1, 2, NORMAL, type);

        snprintf(what, sizeof what, "101 rows, 1056 cols, %zu tokens", tokens);
        k->matmul_f32[type](p.y.p, p.ldy, p.w.p, p.stride, p.x.p, p.ldx, p.rows,
                            p.cols, p.tokens, product_work());
        area_check(&p.y, what);
        matmul_order(k, type, &p, what);
        product_free(&p);
    }
    /* no columns, no rows, no tokens */
    for (size_t none = 0; none < 3; none++) {
        struct product p = product_new(3, 8, 4, 0, 0, NORMAL, type);
        float *y = p.y.p;

        k->matmul_f32[type](y, p.ldy, p.w.p, p.stride, p.x.p, p.ldx,
                            none == 0 ? 0 : 3, none == 1 ? 0 : 8,
                            none == 2 ? 0 : 4, product_work());
        for (size_t j = 0; j < 12; j++)
            if (none == 1 ? y[j] != 0 : !isnan(y[j]))
                fail_msg("empty product %zu", none);
        product_free(&p);
    }
}

static void run_gemm_f32(const struct kernels *k, enum dtype type,
                         struct product *p, float *y, size_t row, size_t rows,
                         size_t token, size_t tokens, float *work)
{
    k->gemm_f32[type](y + token * p->ldy + row, p->ldy,
                      (float *)p->x.p + token * p->ldx, p->ldx,
                      (char *)p->w.p + row * p->stride * dtype_bytes(type),
                      p->stride, tokens, rows, p->cols, work);
}

/* Each row alone has the same bits as in the whole call. So has each token, if
 * the columns fit the small kernel's memory at once: alone, or with the fewest
 * tokens that take the large kernel. */
static void gemm_f32_order(const struct kernels *k, enum dtype type,
                           struct product *p, const char *what, float *work)
{
    float *y = p->y.p, *alone = p->y2.p;
    size_t some = p->tokens > GEMM_F32_SMALL_M ? GEMM_F32_SMALL_M + 1 : 1;

    for (size_t t = 0;
         t < p->tokens && p->cols <= KERNEL_WORK / GEMM_F32_SMALL_M / 2; t++) {
        size_t last = p->tokens - some, from = t < last ? t : last;

        run_gemm_f32(k, type, p, alone, 0, p->rows, from, some, work);
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
    }
    for (size_t r = 0; r < p->rows; r++)
        run_gemm_f32(k, type, p, alone, r, 1, 0, p->tokens, work);
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
}

static void check_gemm_f32(const struct kernels *k, enum dtype type)
{
    /* tokens, rows, columns, around the sizes of tiles, panels and blocks */
    static const size_t shapes[][3] = {
        {1, 1, 1},      {6, 16, 8},     {7, 17, 9},    {5, 15, 7},
        {13, 33, 65},   {12, 128, 256}, {19, 40, 257}, {3, 300, 31},
        {31, 5, 1023},  {48, 48, 600},  {49, 24, 272}, {97, 9, 33},
        {8, 12, 128},   {8, 24, 129},   {16, 25, 144}, {48, 11, 2700},
        {9, 37, 256},   {41, 13, 385},  {47, 26, 127}, {4, 300, 1040},
        {33, 14, 6600}, {3, 513, 16},   {2, 545, 25},  {6, 0, 3},
        {2, 3, 0}};
    float *work = must(aligned_alloc(64, KERNEL_WORK * sizeof *work));
    char what[96];

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t m = shapes[s][0], n = shapes[s][1], kk = shapes[s][2];
            struct product p = product_new(n, kk, m, below(3), below(5),
                                           (enum kind)kind, type);

            snprintf(what, sizeof what, "m %zu n %zu k %zu, %s", m, n, kk,
                     kind_names[kind]);
            for (size_t i = 0; i < KERNEL_WORK; i++)
                work[i] = NAN; /* old contents must not matter */
            run_gemm_f32(k, type, &p, p.y.p, 0, n, 0, m, work);
            /* in any order: at most k additions, and the reference's
             * rounding */
            product_check(&p, type, (double)kk + 1, what);
            if (kind == NORMAL)
                gemm_f32_order(k, type, &p, what, work);
            product_free(&p);
        }
    free(work);
}

/* ---- products of bf16 ---------------------------------------------------- */

/* x of a product in bf16, with the gaps of x. */
static struct area bf16_x(const struct product *p)
{
    size_t n = p->tokens * p->ldx;
    struct area x = area_new(n * 2, below(5));

    ref->from_f32[DT_BF16](x.p, p->x.p, n);
    area_keep(&x);
    return x;
}

/* Set y before the call: numbers if the product is added to them, else NaN. */
static void bf16_y(const struct product *p, float *y, bool add, enum kind kind)
{
    for (size_t t = 0; add && t < p->tokens; t++)
        fill(y + t * p->ldy, p->rows, kind, 1e15f);
}

/* The amount that vdpbf16ps and tdpbf16ps may lose of one product, since they
 * take subnormal operands as 0; *mag gets the magnitude of the rest. */
static double bf16_term(float w, float x, double *mag)
{
    double m = fabs((double)w * (double)x);

    if (fabsf(w) < FLT_MIN || fabsf(x) < FLT_MIN)
        return m;
    *mag += m;
    return 0;
}

static void gemm_bf16_case(const struct kernels *k, const struct product *p,
                           const struct area *x, bool add, enum kind kind,
                           const char *what)
{
    float *y = p->y.p, *want = p->y2.p;
    float *wf = must(malloc(p->rows * p->stride * sizeof *wf));
    float *xf = must(malloc(p->tokens * p->ldx * sizeof *xf));

    bf16_y(p, want, add, kind);
    for (size_t t = 0; t < p->tokens; t++)
        memcpy(y + t * p->ldy, want + t * p->ldy, p->rows * sizeof *y);
    ref->to_f32[DT_BF16](wf, p->w.p, p->rows * p->stride);
    ref->to_f32[DT_BF16](xf, x->p, p->tokens * p->ldx);
    k->gemm_bf16(y, p->ldy, p->w.p, p->stride, x->p, p->ldx, p->rows, p->cols,
                 p->tokens, add, product_work());
    area_check(&p->y, what);
    area_same(&p->w, what);
    area_same(x, what);
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t r = 0; r < p->rows; r++) {
            double mag = add ? fabs((double)want[t * p->ldy + r]) : 0, lost = 0;

            for (size_t i = 0; i < p->cols; i++)
                lost +=
                    bf16_term(wf[r * p->stride + i], xf[t * p->ldx + i], &mag);
            ref->gemm_bf16(want + t * p->ldy + r, 1,
                           (char *)p->w.p + r * p->stride * 2, p->stride,
                           (char *)x->p + t * p->ldx * 2, p->ldx, 1, p->cols, 1,
                           add, product_work());
            /* products are exact; each addition rounds, and can flush the
             * product and the sum to 0; then the reference's rounding */
            near(what, t * p->ldy + r, p->tokens * p->ldy,
                 (double)y[t * p->ldy + r], (double)want[t * p->ldy + r],
                 ((double)p->cols + 2) * U * mag + lost +
                     (2 * (double)p->cols + 1) * FLT_MIN);
        }
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t r = p->rows; r < p->ldy; r++)
            if (!isnan(y[t * p->ldy + r]))
                fail_msg("%s: wrote between tokens", what);
    free(wf);
    free(xf);
}

/* Each row alone has the same bits as in the whole call. Each token has the
 * same bits among any other tokens, at any place, as long as their number is
 * the same. */
static void gemm_bf16_order(const struct kernels *k, const struct product *p,
                            const struct area *x, const char *what)
{
    float *y = p->y.p, *alone = p->y2.p;

    k->gemm_bf16(y, p->ldy, p->w.p, p->stride, x->p, p->ldx, p->rows, p->cols,
                 p->tokens, false, product_work());
    for (size_t i = 0; i < 3; i++) {
        size_t t = below(p->tokens);

        k->gemm_bf16(alone, p->ldy, p->w.p, p->stride,
                     (char *)x->p + t * p->ldx * 2, 0, p->rows, p->cols,
                     p->tokens, false, product_work());
        for (size_t j = 0; j < p->tokens; j++)
            same_bits(what, y + t * p->ldy, alone + j * p->ldy, p->rows);
    }
    for (size_t r = 0; r < p->rows; r++)
        k->gemm_bf16(alone + r, p->ldy, (char *)p->w.p + r * p->stride * 2,
                     p->stride, x->p, p->ldx, 1, p->cols, p->tokens, false,
                     product_work());
    for (size_t t = 0; t < p->tokens; t++)
        same_bits(what, y + t * p->ldy, alone + t * p->ldy, p->rows);
}

/* A NaN affects only its own token or row, even in the spare lanes of the last
 * vectors and pairs. */
static void gemm_bf16_nan(const struct kernels *k, size_t tokens)
{
    struct product p = product_new(67, 301, tokens, 1, 2, NORMAL, DT_BF16);
    struct area x = bf16_x(&p);
    float *y = p.y.p;

    memset((char *)x.p + (5 * p.ldx + 300) * 2, 0xff, 2);
    memset((char *)p.w.p + 65 * p.stride * 2, 0xff, 2);
    k->gemm_bf16(y, p.ldy, p.w.p, p.stride, x.p, p.ldx, p.rows, p.cols,
                 p.tokens, false, product_work());
    for (size_t t = 0; t < p.tokens; t++)
        for (size_t r = 0; r < p.rows; r++)
            if (!isnan(y[t * p.ldy + r]) != (t != 5 && r != 65))
                fail_msg("NaN in token 5 and row 65: token %zu row %zu is %g",
                         t, r, (double)y[t * p.ldy + r]);
    area_free(&x);
    product_free(&p);
}

static void check_gemm_bf16(const struct kernels *k, enum dtype type)
{
    char what[96];

    if (!k->gemm_bf16)
        return;
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t cols = size_at(i);

        for (size_t tokens = 1; tokens <= 13; tokens += cols > 100 ? 4 : 1) {
            size_t rows = 1 + below(cols > 100 ? 70 : 150);
            bool add = below(2);
            enum kind kind = (enum kind)below(N_KINDS);
            struct product p =
                product_new(rows, cols, tokens, below(4), below(5), kind, type);
            struct area x = bf16_x(&p);

            snprintf(what, sizeof what, "%zu rows, %zu cols, %zu tokens, %s%s",
                     rows, cols, tokens, kind_names[kind], add ? ", add" : "");
            gemm_bf16_case(k, &p, &x, add, kind, what);
            if (below(4) == 0)
                gemm_bf16_order(k, &p, &x, what);
            area_free(&x);
            product_free(&p);
        }
    }
    /* few tokens, for which weights are used in place, up to numbers for which
     * they are packed; several blocks of columns and rows */
    for (size_t tokens = 1; tokens <= 70; tokens++) {
        static const size_t widths[] = {31,   33,   256,  513,  1024,
                                        1025, 1091, 3072, 3073, 4129};
        size_t cols = widths[below(sizeof widths / sizeof *widths)];
        size_t rows = 1 + below(cols > 1000 ? 40 : 290);
        bool add = below(2);
        struct product p =
            product_new(rows, cols, tokens, below(4), below(5), NORMAL, type);
        struct area x = bf16_x(&p);

        snprintf(what, sizeof what, "%zu rows, %zu cols, %zu tokens%s", rows,
                 cols, tokens, add ? ", add" : "");
        gemm_bf16_case(k, &p, &x, add, NORMAL, what);
        gemm_bf16_order(k, &p, &x, what);
        area_free(&x);
        product_free(&p);
    }
    /* several panels, blocks of columns and sweeps over tokens */
    for (size_t tokens = 127; tokens < 600; tokens += 401) {
        struct product p = product_new(131, 515, tokens, 1, 1, NORMAL, type);
        struct area x = bf16_x(&p);

        gemm_bf16_case(k, &p, &x, true, NORMAL, "131 rows, 515 cols");
        gemm_bf16_order(k, &p, &x, "131 rows, 515 cols");
        area_free(&x);
        product_free(&p);
    }
    gemm_bf16_nan(k, 14);
    gemm_bf16_nan(k, 62);
    /* no columns, no rows, no tokens */
    for (size_t none = 0; none < 3; none++)
        for (int add = 0; add < 2; add++) {
            struct product p = product_new(3, 512, 4, 0, 0, NORMAL, type);
            float *y = p.y.p;

            k->gemm_bf16(y, p.ldy, none == 0 ? NULL : p.w.p, p.stride, p.w.p,
                         p.ldx, none == 0 ? 0 : 3, none == 1 ? 0 : 512,
                         none == 2 ? 0 : 4, add, product_work());
            for (size_t j = 0; j < 12; j++)
                if (none == 1 && !add ? y[j] != 0 : !isnan(y[j]))
                    fail_msg("empty product %zu", none);
            product_free(&p);
        }
}

static void check_to_f32(const struct kernels *k, enum dtype type)
{
    enum { ALL = 65536 };
    uint16_t *all = must(malloc(ALL * sizeof *all));
    float *got = must(malloc(ALL * sizeof *got));

    for (size_t i = 0; i < ALL; i++)
        all[i] = (uint16_t)i;
    k->to_f32[type](got, all, ALL);
    for (size_t i = 0; i < ALL; i++) {
        bool bf = type == DT_BF16;
        int bits = bf ? 7 : 10, bias = bf ? 127 : 15;
        int e = (int)(i >> bits) & (bf ? 255 : 31);
        int fraction = (int)i & ((1 << bits) - 1);
        double want = e == 0 ? ldexp(fraction, 1 - bias - bits)
                             : ldexp(fraction + (1 << bits), e - bias - bits);

        if (e == (bf ? 255 : 31))
            want = fraction ? (double)NAN : (double)INFINITY;
        if (i & 0x8000)
            want = -want;
        if (isnan(want)
                ? !isnan(got[i])
                : (double)got[i] != want || !signbit(got[i]) != !signbit(want))
            fail_msg("pattern %04zx is %.9g, expected %.9g", i, (double)got[i],
                     want);
    }
    free(all);
    free(got);
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t n = size_at(i);
        struct area in = area_new(2 * n, 1 + below(4));
        struct area out = area_new(4 * n, 4 * below(3));
        float *want = must(malloc(4 * n));

        for (size_t j = 0; j < 2 * n; j++)
            ((unsigned char *)in.p)[j] = (unsigned char)below(256);
        area_keep(&in);
        k->to_f32[type](out.p, in.p, n);
        ref->to_f32[type](want, in.p, n);
        area_check(&out, "to_f32");
        area_same(&in, "to_f32");
        for (size_t j = 0; j < n; j++)
            if (!isnan(want[j]))
                same_bits("to_f32", (float *)out.p + j, want + j, 1);
        free(want);
        area_free(&in);
        area_free(&out);
    }
}

/* Check rounding against the nearest 16-bit value, found among neighbours in
 * double. */
static void check_from_f32(const struct kernels *k, enum dtype type)
{
    enum { FINITE_F16 = 0x7c00, FINITE_BF16 = 0x7f80, PER = 7 };
    size_t n_finite = type == DT_F16 ? FINITE_F16 : FINITE_BF16;
    float *in = must(malloc(n_finite * PER * 2 * sizeof *in));
    uint16_t *want = must(malloc(n_finite * PER * 2 * sizeof *want));
    uint16_t *got = must(malloc(n_finite * PER * 2 * sizeof *got));
    size_t n = 0;

    /* each finite value, the midpoint to the next one, and the floats next to
     * it */
    for (size_t h = 0; h < n_finite; h++) {
        uint16_t p = (uint16_t)h, q = (uint16_t)(h + 1);
        float a, b, mid;

        ref->to_f32[type](&a, &p, 1);
        if (h + 1 < n_finite)
            ref->to_f32[type](&b, &q, 1);
        else
            b = a + (a - (h & 1 ? nextafterf(a, 0) : a));
        if (h + 1 == n_finite) /* the value after the largest one, if there were
                                  one */
            b = type == DT_F16 ? 65536.0f : INFINITY;
        mid = isinf(b) ? 0x1.ffp127f : (float)(((double)a + (double)b) / 2);
        for (int s = 0; s < 2; s++) {
            uint16_t sign = s ? 0x8000 : 0;
            float f = s ? -1.0f : 1.0f;
            uint16_t lo = sign | p, hi = sign | q;

            in[n] = f * a, want[n++] = lo;
            in[n] = f * nextafterf(a, INFINITY);
            want[n] = (double)nextafterf(a, INFINITY) > (double)mid ? hi : lo;
            n++;
            in[n] = f * nextafterf(mid, 0), want[n++] = lo;
            in[n] = f * mid, want[n++] = h & 1 ? hi : lo;
            in[n] = f * nextafterf(mid, INFINITY), want[n++] = hi;
            in[n] = f * INFINITY, want[n++] = (uint16_t)(sign | n_finite);
            in[n] = f * FLT_MAX, want[n++] = (uint16_t)(sign | n_finite);
        }
    }
    k->from_f32[type](got, in, n);
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%.9g (%a) becomes %04x, expected %04x", (double)in[i],
                     (double)in[i], got[i], want[i]);
    free(in);
    free(want);
    free(got);
    for (size_t i = 0; i < N_SIZES; i++) {
        size_t len = size_at(i);
        struct area from = area_new(4 * len, 4 * below(3));
        struct area out = area_new(2 * len, 1 + below(4));
        struct area expect = area_new(2 * len, 0);

        /* random bits, including both kinds of NaN */
        for (size_t j = 0; j < 4 * len; j++)
            ((unsigned char *)from.p)[j] = (unsigned char)below(256);
        ((float *)from.p)[below(len)] = NAN;
        area_keep(&from);
        k->from_f32[type](out.p, from.p, len);
        ref->from_f32[type](expect.p, from.p, len);
        area_check(&out, "from_f32");
        area_same(&from, "from_f32");
        if (memcmp(out.p, expect.p, 2 * len))
            fail_msg("from_f32: %zu values differ from the reference", len);
        area_free(&from);
        area_free(&out);
        area_free(&expect);
    }
}

static void check_rmsnorm(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t s = 0; s < N_SIZES; s++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t d = size_at(s), rows = 1 + below(4), n = rows * d;
            struct area x = area_new(4 * n, 4 * below(3));
            struct area w = area_new(4 * d, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *wp = w.p, *op = out.p;

            fill(x.p, n, (enum kind)kind, 1e30f);
            fill(w.p, d, NORMAL, 0);
            area_keep(&x);
            area_keep(&w);
            k->rmsnorm(op, x.p, wp, rows, d, 1e-6f);
            ref->rmsnorm(want, x.p, wp, rows, d, 1e-6f);
            area_check(&out, "rmsnorm");
            area_same(&x, "rmsnorm");
            area_same(&w, "rmsnorm");
            /* roundings: the factor, two products, the reference */
            for (size_t i = 0; i < n; i++)
                near(kind_names[kind], i, n, (double)op[i], (double)want[i],
                     4.01 * U * fabs((double)want[i]) +
                         TINY * (2 + fabs((double)wp[i % d])));
            /* single rows, and in place */
            for (size_t r = 0; r < rows; r++)
                k->rmsnorm(want + r * d, (float *)x.p + r * d, wp, 1, d, 1e-6f);
            same_bits("rmsnorm, rows alone", op, want, n);
            k->rmsnorm(x.p, x.p, wp, rows, d, 1e-6f);
            same_bits("rmsnorm in place", op, x.p, n);
            free(want);
            area_free(&x);
            area_free(&w);
            area_free(&out);
        }
}

static void check_rope(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t h = 1; h <= 67; h++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t d = 2 * h, rows = 1 + below(5), n = rows * d;
            struct area x = area_new(4 * n, 4 * below(3));
            struct area cs = area_new(4 * h, 4 * below(3));
            struct area sn = area_new(4 * h, 4 * below(3));
            float *in = must(malloc(4 * n)), *want = must(malloc(4 * n));
            float *c = cs.p, *s = sn.p, *xp = x.p;

            fill(xp, n, (enum kind)kind, 1e30f);
            memcpy(in, xp, 4 * n);
            memcpy(want, xp, 4 * n);
            for (size_t i = 0; i < h; i++) {
                double angle = 100 * uniform();

                c[i] = (float)cos(angle);
                s[i] = (float)sin(angle);
            }
            area_keep(&cs);
            area_keep(&sn);
            k->rope(xp, rows, d, c, s);
            ref->rope(want, rows, d, c, s);
            area_check(&x, "rope");
            area_same(&cs, "rope");
            area_same(&sn, "rope");
            for (size_t i = 0; i < n; i++) {
                size_t j = i % h, a = i / d * d + j;
                bool second = i % d >= h;
                double mag =
                    fabs((double)in[a] * (double)(second ? s[j] : c[j])) +
                    fabs((double)in[a + h] * (double)(second ? c[j] : s[j]));

                /* roundings: a product, a fused sum, the reference */
                near("rope", i, n, (double)xp[i], (double)want[i],
                     3.01 * U * mag + 3 * TINY);
            }
            free(in);
            free(want);
            area_free(&x);
            area_free(&cs);
            area_free(&sn);
        }
}

typedef void (*glu_fn)(float *out, const float *gate, const float *up,
                       size_t n);

/* silu(gate) * up or gelu(gate) * up. exponent(z): minus the argument of the
 * exponential. relative(z): the bound of the relative error, in units U. If the
 * exponential overflows, the result is 0, and the true value is below
 * `tail` * exp(-88.5) * up. */
static void check_glu(const char *name, glu_fn glu, glu_fn right,
                      double (*exponent)(double z),
                      double (*relative)(double z), double tail)
{
    static const float edges[] = {0,     -0.0f,  88,        89,      -88,
                                  -89,   -103,   -104,      -200,    200,
                                  -9.9f, -10.1f, 9.9f,      -0.75f,  1e-20f,
                                  1e30f, -1e30f, -INFINITY, INFINITY};
    enum { N_EDGES = sizeof edges / sizeof *edges };

    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area g = area_new(4 * n, 4 * below(3));
            struct area up = area_new(4 * n, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *gp = g.p, *op = out.p;
            float *upp = up.p;

            fill(gp, n, (enum kind)kind, 1e30f);
            fill(upp, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; kind == MIXED && i < n; i += 3)
                gp[i] = edges[below(N_EDGES)];
            /* all over the range in which results neither vanish nor equal
             * gate * up */
            for (size_t i = 1; kind == NORMAL && i < n; i += 2)
                gp[i] = 110 * ((float)below(1 << 20) * 0x1p-19f - 1);
            for (size_t i = 2; kind == NORMAL && i < n; i += 4)
                gp[i] *= 4;
            area_keep(&g);
            area_keep(&up);
            glu(op, gp, upp, n);
            right(want, gp, upp, n);
            area_check(&out, name);
            area_same(&g, name);
            area_same(&up, name);
            for (size_t i = 0; i < n; i++) {
                double z = (double)gp[i];
                double slack = exponent(z) < -88.5 ? tail * exp(-88.5) : TINY;

                if (gp[i] == -INFINITY) /* 0 times infinity */
                    continue;
                near(kind_names[kind], i, n, (double)op[i], (double)want[i],
                     relative(z) * U * fabs((double)want[i]) +
                         slack * fabs((double)upp[i]) + 2 * TINY);
            }
            /* an element's value does not depend on its place */
            for (size_t i = 0; i < n; i += 5) {
                float one;

                glu(&one, gp + i, upp + i, 1);
                same_bits("alone", &one, op + i, 1);
            }
            glu(gp, gp, upp, n);
            same_bits("in place", gp, op, n);
            free(want);
            area_free(&g);
            area_free(&up);
            area_free(&out);
        }
}

static double silu_exponent(double z)
{
    return z;
}

/* exp within two units (4 u), then a sum, a quotient, a product, and the
 * reference's rounding. */
static double silu_error(double z)
{
    (void)z;
    return 8.01;
}

static void check_swiglu(const struct kernels *k, enum dtype type)
{
    (void)type;
    check_glu("swiglu", k->swiglu, ref->swiglu, silu_exponent, silu_error, 89);
}

static double gelu_exponent(double z)
{
    return 2 * GELU_SCALE * (z + GELU_CUBE * z * z * z);
}

/* As silu's; and 2 u itself is off by five roundings (of both constants, z^2,
 * the sum and the product), which the exponential makes relative errors of. It
 * counts by its share of 1 + exp(-2 u). */
static double gelu_error(double z)
{
    double u2 = fmin(fmax(gelu_exponent(z), -1000), 1000);
    return 8.01 + 5.01 * fabs(u2) / (1 + exp(u2));
}

static void check_geglu(const struct kernels *k, enum dtype type)
{
    (void)type;
    check_glu("geglu", k->geglu, ref->geglu, gelu_exponent, gelu_error, 11);
}

static void check_sigmoid_glu(const struct kernels *k, enum dtype type)
{
    (void)type;
    check_glu("glu", k->glu, ref->glu, silu_exponent, silu_error, 1);
}

static void check_add_scale(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area x = area_new(4 * n, 4 * below(3));
            struct area y = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n));

            fill(x.p, n, (enum kind)kind, 1e30f);
            fill(y.p, n, (enum kind)kind, 1e30f);
            area_keep(&y);
            memcpy(want, x.p, 4 * n);
            /* one operation each, so equal bits */
            k->add(x.p, y.p, n);
            ref->add(want, y.p, n);
            same_bits("add", x.p, want, n);
            k->scale(x.p, 0.3f, n);
            ref->scale(want, 0.3f, n);
            same_bits("scale", x.p, want, n);
            area_check(&x, "add and scale");
            area_same(&y, "add");
            free(want);
            area_free(&x);
            area_free(&y);
        }
}

static void check_max(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area x = area_new(4 * n, 4 * below(3));
            float *p = x.p, want;

            fill(p, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; kind == MIXED && i < n; i++)
                if (below(3) == 0)
                    p[i] = below(2) ? -INFINITY : NAN;
            for (size_t i = 0; kind == ZEROS && i < n; i++)
                p[i] = -1 - p[i]; /* all negative, so that a zeroed lane would
                                     be larger */
            area_keep(&x);
            want = ref->max(p, n);
            if (k->max(p, n) != want)
                fail_msg("max of %zu is %.9g, expected %.9g", n,
                         (double)k->max(p, n), (double)want);
            for (size_t i = 0; i < n; i++)
                p[i] = NAN;
            if (k->max(p, n) != -INFINITY)
                fail_msg("max of %zu NaN", n);
            p[n - 1] = 3;
            if (k->max(p, n) != 3)
                fail_msg("max at the end of %zu", n);
            area_free(&x);
        }
}

/* exp itself, against double, over all magnitudes. */
static void check_exp(const struct kernels *k, enum dtype type)
{
    enum { N = 4096 };
    static const float edges[] = {
        0,           -0.0f,       88.72283f,   88.72284f,  89,
        100,         FLT_MAX,     INFINITY,    -87.33654f, -87.3366f,
        -103.27892f, -103.97207f, -103.97209f, -104,       -105,
        -150,        -FLT_MAX,    -INFINITY,   1e-45f,     -1e-45f};
    enum { N_EDGES = sizeof edges / sizeof *edges };
    float x[N], out[N];
    double worst = 0;
    uint32_t bits = 0;
    /* floats with |x| < 128, in steps of an odd number */
    const uint32_t end = 0x43000000, step = 1999;

    (void)type;
    for (bool more = true; more;) {
        size_t n = 0;

        while (n + 2 <= N && bits < end) {
            float f;

            memcpy(&f, &bits, sizeof f);
            x[n++] = f;
            x[n++] = -f;
            bits += step;
        }
        more = n == N;
        for (size_t i = 0; i < N_EDGES && n < N; i++)
            x[n++] = edges[i];
        k->exp_sum(out, x, n, 0, 1);
        for (size_t i = 0; i < n; i++) {
            double off = ulps(out[i], exp((double)x[i]));

            if (!(off <= 2))
                fail_msg("exp(%.9g) is %.9g, off by %.3g units", (double)x[i],
                         (double)out[i], off);
            worst = off > worst ? off : worst;
        }
    }
    x[0] = NAN;
    k->exp_sum(out, x, 1, 0, 1);
    if (!isnan(out[0]))
        fail_msg("exp(NaN) is %.9g", (double)out[0]);
    printf("    exp: at most %.3f units in the last place off\n", worst);
}

static void check_exp_sum(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t t = 0; t < N_SIZES; t++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            size_t n = size_at(t);
            struct area x = area_new(4 * n, 4 * below(3));
            struct area out = area_new(4 * n, 4 * below(3));
            float *want = must(malloc(4 * n)), *xp = x.p, *op = out.p;
            float shift, scale = kind == NORMAL ? 0 : (float)(2 * uniform());
            double sum, own = 0, mag = 0;

            fill(xp, n, (enum kind)kind, 1e30f);
            for (size_t i = 0; i < n; i++)
                if (kind == NORMAL && below(4) == 0)
                    xp[i] = -INFINITY;
            shift = ref->max(xp, n);
            shift = shift == -INFINITY ? 0 : shift;
            area_keep(&x);
            sum = k->exp_sum(op, xp, n, shift, scale);
            ref->exp_sum(want, xp, n, shift, scale);
            area_check(&out, "exp_sum");
            area_same(&x, "exp_sum");
            for (size_t i = 0; i < n; i++) {
                if (xp[i] == -INFINITY && op[i] != 0)
                    fail_msg("exp_sum of -inf is %.9g", (double)op[i]);
                /* exp within two units, and the reference's rounding */
                near("exp_sum", i, n, (double)op[i], (double)want[i],
                     5 * U * (double)want[i] + 2 * TINY);
                own += (double)op[i];
                mag += fabs((double)op[i]);
            }
            near("sum of exp_sum", 0, n, sum, own,
                 2 * (double)n * 0x1p-53 * mag);
            if (k->exp_sum(NULL, xp, n, shift, scale) != sum ||
                k->exp_sum(xp, xp, n, shift, scale) != sum)
                fail_msg("exp_sum of %zu: sum depends on out", n);
            same_bits("exp_sum in place", xp, op, n);
            free(want);
            area_free(&x);
            area_free(&out);
        }
}

/* ---- attention ---------------------------------------------------------- */

struct attention {
    size_t n, d, ldq;
    struct area q, k, v, acc, m, l, scratch;
    int *lo, *hi;
    enum dtype type;
};

/* Whether to test attn_tile in place of attn_block. */
static bool by_tiles;

static struct attention attention_new(size_t n, size_t d, enum kind kind,
                                      enum dtype type)
{
    struct attention a = {.n = n, .d = d, .ldq = d + below(4), .type = type};
    size_t nk = KV_BLOCK * d, bytes = dtype_bytes(type);
    float *f = must(malloc(nk * sizeof *f));
    double scale = 3 / sqrt((double)d);
    int first = KV_BLOCK, last = 0;

    a.q = area_new(4 * n * a.ldq, 4 * below(3));
    a.k = area_new(bytes * nk, bytes * below(3));
    a.v = area_new(bytes * nk, bytes * below(3));
    a.acc = area_new(4 * n * d, 4 * below(3));
    a.m = area_new(4 * n, 4 * below(3));
    a.l = area_new(4 * n, 4 * below(3));
    a.scratch = area_new(
        4 * (by_tiles ? attn_tile_scratch(n, d) : attn_scratch(n, d)), 0);
    a.lo = must(malloc(n * sizeof *a.lo));
    a.hi = must(malloc(n * sizeof *a.hi));
    fill(a.q.p, n * a.ldq, kind, 1e4f);
    for (size_t i = 0; i < n * a.ldq; i++)
        ((float *)a.q.p)[i] *= (float)scale;
    for (size_t i = 0; i < n; i++) {
        /* full, empty, or cut at one end or both; lo > hi means empty */
        a.lo[i] = below(2) ? 0 : (int)below(KV_BLOCK + 1);
        a.hi[i] = below(2) ? KV_BLOCK : (int)below(KV_BLOCK + 1);
        if (a.lo[i] < a.hi[i]) {
            first = a.lo[i] < first ? a.lo[i] : first;
            last = a.hi[i] > last ? a.hi[i] : last;
        }
    }
    fill(f, nk, kind, 1e4f);
    ref->from_f32[type](a.k.p, f, nk);
    fill(f, nk, kind, 1e4f);
    ref->from_f32[type](a.v.p, f, nk);
    /* no row attends to these positions: set all bits, which is NaN */
    for (size_t j = 0; j < KV_BLOCK; j++)
        if ((int)j < first || (int)j >= last) {
            memset((char *)a.k.p + j * d * bytes, 0xff, d * bytes);
            memset((char *)a.v.p + j * d * bytes, 0xff, d * bytes);
        }
    /* half of the rows have attended to a block before */
    for (size_t i = 0; i < n; i++) {
        bool fresh = below(2);

        ((float *)a.m.p)[i] = fresh ? -INFINITY : (float)(4 * uniform() - 2);
        ((float *)a.l.p)[i] = fresh ? 0 : (float)(1 + uniform());
        for (size_t e = 0; e < d; e++)
            ((float *)a.acc.p)[i * d + e] =
                fresh ? 0 : (float)(uniform() - 0.5);
    }
    area_keep(&a.q);
    area_keep(&a.k);
    area_keep(&a.v);
    area_keep(&a.acc); /* kept as the state before the call */
    area_keep(&a.m);
    area_keep(&a.l);
    free(f);
    return a;
}

static void attention_free(struct attention *a)
{
    area_free(&a->q);
    area_free(&a->k);
    area_free(&a->v);
    area_free(&a->acc);
    area_free(&a->m);
    area_free(&a->l);
    area_free(&a->scratch);
    free(a->lo);
    free(a->hi);
}

/* Run rows [i, i + n) on new copies of the state. */
static void attention_call(const struct kernels *k, const struct attention *a,
                           size_t i, size_t n, float *m, float *l, float *acc)
{
    struct attn_rows rows = {.q = (const float *)a->q.p + i * a->ldq,
                             .ldq = a->ldq,
                             .n = n,
                             .lo = a->lo + i,
                             .hi = a->hi + i,
                             .m = m,
                             .l = l,
                             .acc = acc};

    memcpy(m, a->m.copy + 4 * i, 4 * n);
    memcpy(l, a->l.copy + 4 * i, 4 * n);
    memcpy(acc, a->acc.copy + 4 * i * a->d, 4 * n * a->d);
    (by_tiles ? k->attn_tile : k->attn_block)[a->type](&rows, a->k.p, a->v.p,
                                                       a->d, a->scratch.p);
}

/* Compare with double arithmetic. A score has an error of ds = (d / 8 + 5) u
 * sum |q k| (8 lanes or more; attn_tile has one, so d in place of d / 8), and
 * so has the maximum. Then exp(s - m) has a relative error of 2 ds + u |s - m|
 * + 4 u; attn_tile may flush results below exp(-87) to 0. The sums over the
 * block add 64 u. */
static void attention_near(const struct attention *a, const char *what)
{
    const float *q = a->q.p, *m = a->m.p, *l = a->l.p, *acc = a->acc.p;
    float *kf = must(malloc(4 * KV_BLOCK * a->d));
    float *vf = must(malloc(4 * KV_BLOCK * a->d));
    double *p = must(malloc(KV_BLOCK * sizeof *p));
    double *off = must(malloc(KV_BLOCK * sizeof *off));

    ref->to_f32[a->type](kf, a->k.p, KV_BLOCK * a->d);
    ref->to_f32[a->type](vf, a->v.p, KV_BLOCK * a->d);
    for (size_t i = 0; i < a->n; i++) {
        float m0, l0;
        double top, ds = 0, keep, keep_off, sum, sum_off;

        memcpy(&m0, a->m.copy + 4 * i, 4);
        memcpy(&l0, a->l.copy + 4 * i, 4);
        if (a->lo[i] >= a->hi[i]) {
            if (memcmp(&m0, m + i, 4) || memcmp(&l0, l + i, 4) ||
                memcmp(a->acc.copy + 4 * i * a->d, acc + i * a->d, 4 * a->d))
                fail_msg("%s: a row without positions changed", what);
            continue;
        }
        top = (double)m0;
        for (size_t j = (size_t)a->lo[i]; j < (size_t)a->hi[i]; j++) {
            double dot = 0, mag = 0, x;

            for (size_t e = 0; e < a->d; e++) {
                x = (double)q[i * a->ldq + e] * (double)kf[j * a->d + e];
                dot += x;
                mag += fabs(x);
            }
            p[j] = dot;
            top = dot > top ? dot : top;
            x = ceil((double)a->d / (by_tiles ? 1 : 8)) + 5;
            x = x * U * mag + (double)a->d * TINY;
            ds = x > ds ? x : ds;
        }
        keep = exp((double)m0 - top);
        keep_off = keep * expm1(ds + U * fabs(top - (double)m0) + 6 * U);
        if (m0 == -INFINITY)
            keep_off = 0;
        sum = keep * (double)l0;
        sum_off = keep_off * (double)l0;
        for (size_t j = (size_t)a->lo[i]; j < (size_t)a->hi[i]; j++) {
            double s = p[j];

            p[j] = exp(s - top);
            off[j] = p[j] * expm1(2 * ds + U * (top - s + 2 * ds) + 4 * U) +
                     64 * TINY;
            if (by_tiles && top - s > 87 - 2 * ds && off[j] < p[j])
                off[j] = p[j];
            sum += p[j];
            sum_off += off[j];
        }
        near(what, i, a->n, (double)m[i], top, ds + U * fabs(top));
        near(what, i, a->n, (double)l[i], sum, sum_off + 66 * U * sum);
        for (size_t e = 0; e < a->d; e++) {
            float a0;
            double want, bound, mag;

            memcpy(&a0, a->acc.copy + 4 * (i * a->d + e), 4);
            want = keep * (double)a0;
            bound = keep_off * fabs((double)a0);
            mag = fabs(want);
            for (size_t j = (size_t)a->lo[i]; j < (size_t)a->hi[i]; j++) {
                double v = (double)vf[j * a->d + e];

                want += p[j] * v;
                mag += fabs(p[j] * v);
                bound += off[j] * fabs(v);
            }
            near(what, i * a->d + e, a->n * a->d, (double)acc[i * a->d + e],
                 want, bound + 66 * U * mag + 64 * TINY);
        }
    }
    free(kf);
    free(vf);
    free(p);
    free(off);
}

static void check_attn(const struct kernels *k, enum dtype type)
{
    static const size_t dims[] = {1,  2,  7,   8,   9,   15,  16,
                                  17, 31, 32,  33,  63,  64,  65,
                                  80, 96, 127, 128, 129, 256, 257};
    static const size_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 64, 97};
    char what[96];

    for (size_t di = 0; di < sizeof dims / sizeof *dims; di++)
        for (size_t ci = 0; ci < sizeof counts / sizeof *counts; ci++) {
            enum kind kind = (enum kind)below(N_KINDS);
            struct attention a =
                attention_new(counts[ci], dims[di], kind, type);
            size_t n = a.n, d = a.d;
            float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
            float *acc = must(malloc(4 * n * d));

            snprintf(what, sizeof what, "%zu rows, head_dim %zu, %s", n, d,
                     kind_names[kind]);
            attention_call(k, &a, 0, n, a.m.p, a.l.p, a.acc.p);
            area_check(&a.m, what);
            area_check(&a.l, what);
            area_check(&a.acc, what);
            area_check(&a.scratch, what);
            area_same(&a.q, what);
            area_same(&a.k, what);
            area_same(&a.v, what);
            attention_near(&a, what);
            /* single rows, and all rows except the first */
            for (size_t i = 0; i < n; i++)
                attention_call(k, &a, i, 1, m + i, l + i, acc + i * d);
            same_bits(what, m, a.m.p, n);
            same_bits(what, l, a.l.p, n);
            same_bits(what, acc, a.acc.p, n * d);
            if (n > 1) {
                attention_call(k, &a, 1, n - 1, m + 1, l + 1, acc + d);
                same_bits(what, m, a.m.p, n);
                same_bits(what, l, a.l.p, n);
                same_bits(what, acc, a.acc.p, n * d);
            }
            free(m);
            free(l);
            free(acc);
            attention_free(&a);
        }
}

/* Compare values that should be equal: bit by bit, except for attn_tile. It
 * uses another order of sums if a value is not finite, and then differs by a
 * few roundings of 24 products or 64 exponentials. */
static void same_beside(const char *what, const float *a, const float *b,
                        size_t n)
{
    if (!by_tiles) {
        same_bits(what, a, b, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(a[i]))) && a[i] != b[i])
            fail_msg("%s: %g for %g", what, (double)b[i], (double)a[i]);
}

/* An infinite or NaN value affects exactly the rows that attend to its
 * position, not their neighbours. */
static void check_attn_mask(const struct kernels *k, enum dtype type)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    for (size_t n = 1; n <= 20; n++)
        for (size_t b = 0; b < 3; b++) {
            size_t d = 24, at = 17;
            struct attention a = attention_new(n, d, NORMAL, type);
            float *f = must(malloc(4 * KV_BLOCK * d));
            float *m = must(malloc(4 * n)), *l = must(malloc(4 * n));
            float *acc = must(malloc(4 * n * d));

            for (size_t i = 0; i < n; i++) {
                a.lo[i] = below(3) ? 0 : (int)at + 1;
                a.hi[i] = below(2) ? (int)at + 1 + (int)below(9) : (int)at;
            }
            fill(f, KV_BLOCK * d, NORMAL, 0);
            ref->from_f32[type](a.k.p, f, KV_BLOCK * d);
            fill(f, KV_BLOCK * d, NORMAL, 0);
            ref->from_f32[type](a.v.p, f, KV_BLOCK * d);
            attention_call(k, &a, 0, n, m, l, acc);
            ref->to_f32[type](f, a.k.p, KV_BLOCK * d);
            for (size_t e = 0; e < d; e++)
                f[at * d + e] = bad[b];
            ref->from_f32[type](a.k.p, f, KV_BLOCK * d);
            ref->to_f32[type](f, a.v.p, KV_BLOCK * d);
            for (size_t e = 0; e < d; e++)
                f[at * d + e] = bad[b];
            ref->from_f32[type](a.v.p, f, KV_BLOCK * d);
            attention_call(k, &a, 0, n, a.m.p, a.l.p, a.acc.p);
            for (size_t i = 0; i < n; i++) {
                const float *li = (const float *)a.l.p + i;
                const float *ai = (const float *)a.acc.p + i * d;

                if (a.lo[i] <= (int)at && a.hi[i] > (int)at) {
                    if (b == 0 && !(isnan(*li) && isnan(ai[0])))
                        fail_msg("NaN was lost (%zu rows)", n);
                    continue;
                }
                same_beside("m beside a bad value", m + i,
                            (const float *)a.m.p + i, 1);
                same_beside("l beside a bad value", l + i, li, 1);
                same_beside("acc beside a bad value", acc + i * d, ai, d);
            }
            free(f);
            free(m);
            free(l);
            free(acc);
            attention_free(&a);
        }
}

/* Scores that are all -INFINITY have no weight, in this block and after the
 * next. */
static void check_attn_inf(const struct kernels *k, enum dtype type)
{
    float q[8], m = -INFINITY, l = 0, acc[8] = {0}, f[KV_BLOCK * 8];
    struct area kv = area_new(sizeof f, 0);
    struct area scratch = area_new(4 * attn_tile_scratch(1, 8), 0);
    void (*attn)(const struct attn_rows *, const void *, const void *, size_t,
                 float *) = (by_tiles ? k->attn_tile : k->attn_block)[type];
    int lo = 0, hi = 5;
    struct attn_rows rows = {.q = q,
                             .ldq = 8,
                             .n = 1,
                             .lo = &lo,
                             .hi = &hi,
                             .m = &m,
                             .l = &l,
                             .acc = acc};

    for (int i = 0; i < 8; i++)
        q[i] = -1;
    for (int i = 0; i < KV_BLOCK * 8; i++)
        f[i] = INFINITY;
    ref->from_f32[type](kv.p, f, KV_BLOCK * 8);
    /* f has finite numbers for the values; keys are infinite */
    for (int i = 0; i < KV_BLOCK * 8; i++)
        f[i] = 1;
    {
        struct area v = area_new(sizeof f, 0);

        ref->from_f32[type](v.p, f, KV_BLOCK * 8);
        attn(&rows, kv.p, v.p, 8, scratch.p);
        if (m != -INFINITY || l != 0 || acc[0] != 0)
            fail_msg("scores of -inf: m %g, l %g, acc %g", (double)m, (double)l,
                     (double)acc[0]);
        attn(&rows, v.p, v.p, 8, scratch.p);
        if (m != -8 || l != 5 || acc[7] != 5)
            fail_msg("after scores of -inf: m %g, l %g, acc %g", (double)m,
                     (double)l, (double)acc[7]);
        area_free(&v);
    }
    area_free(&kv);
    area_free(&scratch);
}

static void check_attn_all(const struct kernels *k, enum dtype type)
{
    check_attn(k, type);
    check_attn_mask(k, type);
    check_attn_inf(k, type);
}

static void check_attn_tile(const struct kernels *k, enum dtype type)
{
    by_tiles = true;
    check_attn_all(k, type);
    by_tiles = false;
}

/* ---- measuring kernels -------------------------------------------------- */

static void check_read_sum(const struct kernels *k, enum dtype type)
{
    (void)type;
    for (size_t t = 0; t < N_SIZES; t++) {
        size_t n = size_at(t);
        struct area a = area_new(n, below(9));
        uint64_t want = 0;

        for (size_t i = 0; i < n; i++)
            ((unsigned char *)a.p)[i] = (unsigned char)below(256);
        area_keep(&a);
        for (size_t i = 0; i < n; i++)
            want += (uint64_t)((unsigned char *)a.p)[i] << i % 8 * 8;
        if (k->read_sum(a.p, n) != want)
            fail_msg("read_sum of %zu bytes", n);
        area_same(&a, "read_sum");
        area_free(&a);
    }
}

static void check_peak(const struct kernels *k, enum dtype type)
{
    float sink = NAN;
    double ops = k->peak_flops(2, &sink);

    (void)type;
    if (!(ops > 1.9e7 && ops < 2.1e7) || !isfinite(sink))
        fail_msg("peak_flops says %g operations", ops);
}

static void check_peak_bf16(const struct kernels *k, enum dtype type)
{
    float sink = NAN;
    double ops;

    (void)type;
    if (!k->peak_bf16)
        return;
    ops = k->peak_bf16(2, &sink);
    if (!(ops > 1.9e7 && ops < 2.1e7) || !isfinite(sink))
        fail_msg("peak_bf16 says %g operations", ops);
}

/* Every level has every kernel, its own or another level's, except the kernels
 * of avx512bf16 and amx, which lower levels lack. */
static void check_table(const struct kernels *k, enum dtype type)
{
    const unsigned char *p = (const unsigned char *)k;

    (void)type;
    for (size_t i = offsetof(struct kernels, matmul_f32); i < sizeof *k;
         i += sizeof(void (*)(void))) {
        void (*fn)(void);

        if (k->level < ISA_AMX &&
            (i == offsetof(struct kernels, gemm_bf16_affine) ||
             (i >= offsetof(struct kernels, gemm_bf16_blocks) &&
              i < offsetof(struct kernels, gemm_bf16_blocks) +
                      sizeof k->gemm_bf16_blocks)))
            continue;
        if (k->level < ISA_AVX512BF16 &&
            (i == offsetof(struct kernels, gemm_bf16) ||
             i == offsetof(struct kernels, peak_bf16) ||
             (i >= offsetof(struct kernels, attn_blocks_bf16) &&
              i < offsetof(struct kernels, attn_blocks_bf16) +
                      sizeof k->attn_blocks_bf16)))
            continue;
        memcpy(&fn, p + i, sizeof fn);
        if (!fn)
            fail_msg("entry at byte %zu is NULL", i);
    }
}

/* ---- OpenBLAS ----------------------------------------------------------- */

static void check_blas(void **state)
{
    enum { M = 37, N = 65, K = 130 };
    float *a, *b, *c, *want;
    const char *before = getenv("OPENBLAS_CORETYPE");

    (void)state;
    if (!gemm_blas_load(kernels_best())) {
        printf("    SKIP: libopenblas.so.0 is not here\n");
        skip();
    }
    if (getenv("OPENBLAS_CORETYPE") != before)
        fail_msg("the environment changed");
    a = must(malloc(sizeof *a * M * K));
    b = must(malloc(sizeof *b * N * K));
    c = must(malloc(sizeof *c * M * N));
    want = must(malloc(sizeof *want * M * N));
    fill(a, M * K, NORMAL, 0);
    fill(b, N * K, NORMAL, 0);
    for (size_t i = 0; i < M * N; i++)
        c[i] = NAN; /* must not affect the result, although beta * c is 0 *
                       NaN */
    gemm_blas_nt(c, N, a, K, b, K, M, N, K);
    ref->gemm_f32[DT_F32](want, N, a, K, b, K, M, N, K, NULL);
    for (size_t i = 0; i < M * N; i++) {
        double mag = 0;

        for (size_t p = 0; p < K; p++)
            mag += fabs((double)a[i / N * K + p] * (double)b[i % N * K + p]);
        near("sgemm", i, M * N, (double)c[i], (double)want[i],
             (K + 1) * U * mag);
    }
    free(a);
    free(b);
    free(c);
    free(want);
}

/* ---- benches ------------------------------------------------------------ */

/* Repeat body, and return the ms per call of the fastest of five rounds. */
#define TIME(ms, body)                                                    \
    do {                                                                  \
        size_t reps_ = 1;                                                 \
        (ms) = INFINITY;                                                  \
        for (int round_ = 0; round_ < 5;) {                               \
            double t0_ = clock_ms(), t_;                                  \
            for (size_t r_ = 0; r_ < reps_; r_++) {                       \
                body;                                                     \
            }                                                             \
            t_ = clock_ms() - t0_;                                        \
            if (t_ < 10) {                                                \
                reps_ *= 2;                                               \
                continue;                                                 \
            }                                                             \
            round_++;                                                     \
            (ms) = t_ / (double)reps_ < (ms) ? t_ / (double)reps_ : (ms); \
        }                                                                 \
    } while (0)

static void bench_line(const struct test *t, const char *shape, double ms,
                       double amount, const char *unit)
{
    printf("%-28s %-30s %12.3f us %10.2f %s\n", t->name, shape, ms * 1e3,
           amount / ms * 1e-6, unit);
    fflush(stdout);
}

static const struct test *benched;

static void bench_matmul(const struct kernels *k, enum dtype type)
{
    static const size_t tokens[] = {1, 2, 4, 8, 64, 256};
    static const size_t shapes[][2] = {{3072, 1024}, {1024, 3072}};

    for (size_t s = 0; s < 2; s++)
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
            struct product p = product_new(shapes[s][0], shapes[s][1],
                                           tokens[i], 0, 0, NORMAL, type);
            char shape[64];
            double ms;

            TIME(ms, k->matmul_f32[type](p.y.p, p.ldy, p.w.p, p.stride, p.x.p,
                                         p.ldx, p.rows, p.cols, p.tokens,
                                         product_work()));
            snprintf(shape, sizeof shape, "%zu x %zu, %zu tokens", p.rows,
                     p.cols, p.tokens);
            bench_line(benched, shape, ms,
                       2.0 * (double)(p.rows * p.cols * p.tokens), "GFLOP/s");
            product_free(&p);
            if (k->level == ISA_REF && i == 2)
                break;
        }
}

static void bench_gemm_f32_with(const struct kernels *k, enum dtype type,
                                bool blas)
{
    static const size_t shapes[][3] = {{64, 1024, 1024},
                                       {512, 160, 1024},
                                       {512, 1024, 1024},
                                       {512, 512, 3072}};
    float *work = must(aligned_alloc(64, KERNEL_WORK * sizeof *work));

    for (size_t s = 0; s < 4; s++) {
        size_t m = shapes[s][0], n = shapes[s][1], kk = shapes[s][2];
        struct product p = product_new(n, kk, m, 0, 0, NORMAL, type);
        char shape[64];
        double ms;

        TIME(ms, blas ? gemm_blas_nt(p.y.p, n, p.x.p, kk, p.w.p, kk, m, n, kk)
                      : run_gemm_f32(k, type, &p, p.y.p, 0, n, 0, m, work));
        snprintf(shape, sizeof shape, "%zu x %zu x %zu", m, n, kk);
        bench_line(benched, shape, ms, 2.0 * (double)(m * n * kk), "GFLOP/s");
        product_free(&p);
        if (!blas && k->level == ISA_REF)
            break;
    }
    free(work);
}

static void bench_gemm_f32(const struct kernels *k, enum dtype type)
{
    bench_gemm_f32_with(k, type, false);
}

/* Time few tokens and more weights than caches hold. The limit is memory or
 * arithmetic; both are measured next to the product, each the best of a few
 * runs. */
static void bench_gemm_bf16_few(const struct kernels *k)
{
    static const size_t tokens[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
    enum { BYTES = 256 << 20, ROUNDS = 4 };
    struct area w = area_new(BYTES, 0);

    memset(w.p, 0x3c, BYTES);
    for (size_t i = 0; i < 2 * sizeof tokens / sizeof *tokens; i++) {
        size_t cols = i % 2 ? 3072 : 1024, rows = BYTES / 2 / cols, n;
        size_t ldx = gemm_bf16_ldx(cols), part = 4096;
        double read = INFINITY, product = INFINITY, peak = INFINITY, ops = 0;
        volatile unsigned long long got;
        struct area x, y;
        char shape[64];
        float sink;

        n = tokens[i / 2];
        x = area_new(n * ldx * 2, 0);
        y = area_new(n * part * sizeof(float), 0);
        memset(x.p, 0x3c, n * ldx * 2);
        for (int round = 0; round < ROUNDS; round++) {
            double t[4];

            t[0] = clock_ms();
            got = k->read_sum(w.p, BYTES);
            t[1] = clock_ms();
            for (size_t r = 0; r < rows; r += part)
                k->gemm_bf16(y.p, part, (char *)w.p + r * cols * 2, cols, x.p,
                             ldx, rows - r < part ? rows - r : part, cols, n,
                             false, product_work());
            t[2] = clock_ms();
            ops = k->peak_bf16(20, &sink);
            t[3] = clock_ms();
            read = fmin(read, t[1] - t[0]);
            product = fmin(product, t[2] - t[1]);
            peak = fmin(peak, t[3] - t[2]);
        }
        (void)got;
        snprintf(shape, sizeof shape, "%zu cols, %zu tokens, memory", cols, n);
        bench_line(benched, shape, product, BYTES, "GB/s");
        printf("%59s %.0f%% of read_sum, %.0f%% of peak_bf16\n", "",
               100 * read / product,
               100 * (2.0 * (double)(rows * cols * n) / product) /
                   (ops / peak));
        area_free(&x);
        area_free(&y);
    }
    area_free(&w);
}

/* The products of Qwen3-0.6B: q, k and v; o; gate and up; down. */
static void bench_gemm_bf16(const struct kernels *k, enum dtype type)
{
    static const size_t tokens[] = {8, 32, 128, 512, 2048};
    static const size_t shapes[][2] = {
        {4096, 1024}, {1024, 2048}, {6144, 1024}, {1024, 3072}};

    for (size_t i = 0; i < 4 * sizeof tokens / sizeof *tokens; i++) {
        size_t rows = shapes[i % 4][0], cols = shapes[i % 4][1],
               n = tokens[i / 4], ldx = gemm_bf16_ldx(cols);
        struct product p;
        struct area x;
        char shape[64];
        double ms;

        if (!k->gemm_bf16 || k->level == ISA_REF)
            return;
        if (i == 0)
            bench_gemm_bf16_few(k);
        p = product_new(rows, cols, n, 0, 0, NORMAL, type);
        x = area_new(n * ldx * 2, 0);
        for (size_t t = 0; t < n; t++)
            k->from_f32[DT_BF16]((char *)x.p + t * ldx * 2,
                                 (float *)p.x.p + t * cols, cols);
        TIME(ms, k->gemm_bf16(p.y.p, p.ldy, p.w.p, p.stride, x.p, ldx, rows,
                              cols, n, false, product_work()));
        snprintf(shape, sizeof shape, "%zu x %zu, %zu tokens", rows, cols, n);
        bench_line(benched, shape, ms, 2.0 * (double)(rows * cols * n),
                   "GFLOP/s");
        area_free(&x);
        product_free(&p);
    }
}

static void bench_blas(const struct kernels *k, enum dtype type)
{
    (void)type;
    if (gemm_blas_load(kernels_best()))
        bench_gemm_f32_with(k, DT_F32, true);
}

static void bench_convert(const struct kernels *k, enum dtype type, bool to)
{
    enum { N = 65536 };
    struct area h = area_new(2 * N, 0), f = area_new(4 * N, 0);
    double ms;

    fill(f.p, N, NORMAL, 0);
    ref->from_f32[type](h.p, f.p, N);
    if (to)
        TIME(ms, k->to_f32[type](f.p, h.p, N));
    else
        TIME(ms, k->from_f32[type](h.p, f.p, N));
    bench_line(benched, "65536", ms, 6 * N, "GB/s");
    area_free(&h);
    area_free(&f);
}

static void bench_to_f32(const struct kernels *k, enum dtype type)
{
    bench_convert(k, type, true);
}

static void bench_from_f32(const struct kernels *k, enum dtype type)
{
    bench_convert(k, type, false);
}

enum row_op {
    ROW_RMSNORM,
    ROW_ROPE,
    ROW_SWIGLU,
    ROW_GEGLU,
    ROW_GLU,
    ROW_ADD,
    ROW_MAX,
    ROW_EXP
};

static void bench_rows(const struct kernels *k, enum row_op op)
{
    enum { N = 3072 };
    struct area x = area_new(4 * N, 0), y = area_new(4 * N, 0),
                z = area_new(4 * N, 0);
    double ms = 0;

    fill(x.p, N, NORMAL, 0);
    fill(y.p, N, NORMAL, 0);
    switch (op) {
    case ROW_RMSNORM:
        TIME(ms, k->rmsnorm(z.p, x.p, y.p, 1, N, 1e-6f));
        break;
    case ROW_ROPE: /* rotate by 0, so that values do not change */
        memset(y.p, 0, 4 * N);
        for (int i = 0; i < 64; i++)
            ((float *)y.p)[i] = 1;
        TIME(ms, k->rope(x.p, N / 128, 128, y.p, (float *)y.p + 64));
        break;
    case ROW_SWIGLU:
        TIME(ms, k->swiglu(z.p, x.p, y.p, N));
        break;
    case ROW_GEGLU:
        TIME(ms, k->geglu(z.p, x.p, y.p, N));
        break;
    case ROW_GLU:
        TIME(ms, k->glu(z.p, x.p, y.p, N));
        break;
    case ROW_ADD:
        memset(y.p, 0, 4 * N);
        TIME(ms, k->add(x.p, y.p, N));
        break;
    case ROW_MAX: {
        volatile float got;

        TIME(ms, got = k->max(x.p, N));
        (void)got;
        break;
    }
    case ROW_EXP: {
        volatile double got;

        TIME(ms, got = k->exp_sum(z.p, x.p, N, 2, 1));
        (void)got;
        break;
    }
    }
    bench_line(benched, "3072", ms, N, "G/s");
    area_free(&x);
    area_free(&y);
    area_free(&z);
}

#define BENCH_ROWS(name, op)                                           \
    static void bench_##name(const struct kernels *k, enum dtype type) \
    {                                                                  \
        (void)type;                                                    \
        bench_rows(k, op);                                             \
    }

BENCH_ROWS(rmsnorm, ROW_RMSNORM)
BENCH_ROWS(rope, ROW_ROPE)
BENCH_ROWS(swiglu, ROW_SWIGLU)
BENCH_ROWS(geglu, ROW_GEGLU)
BENCH_ROWS(glu, ROW_GLU)
BENCH_ROWS(add, ROW_ADD)
BENCH_ROWS(max, ROW_MAX)
BENCH_ROWS(exp, ROW_EXP)

static void bench_attn(const struct kernels *k, enum dtype type)
{
    static const size_t counts[] = {1, 2, 4, 8, 512};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t n = counts[i], d = 128;
        struct attention a = attention_new(n, d, NORMAL, type);
        struct attn_rows rows = {.q = a.q.p,
                                 .ldq = a.ldq,
                                 .n = n,
                                 .lo = a.lo,
                                 .hi = a.hi,
                                 .m = a.m.p,
                                 .l = a.l.p,
                                 .acc = a.acc.p};
        float *f = must(malloc(4 * KV_BLOCK * d));
        char shape[64];
        double ms;

        for (size_t j = 0; j < n; j++) {
            a.lo[j] = 0;
            a.hi[j] = KV_BLOCK;
        }
        fill(f, KV_BLOCK * d, NORMAL, 0);
        ref->from_f32[type](a.k.p, f, KV_BLOCK * d);
        ref->from_f32[type](a.v.p, f, KV_BLOCK * d);
        TIME(ms, (by_tiles ? k->attn_tile : k->attn_block)[type](
                     &rows, a.k.p, a.v.p, d, a.scratch.p));
        snprintf(shape, sizeof shape, "%zu rows, head_dim %zu", n, d);
        bench_line(benched, shape, ms, 4.0 * (double)(n * KV_BLOCK * d),
                   "GFLOP/s");
        free(f);
        attention_free(&a);
    }
}

static void bench_attn_tile(const struct kernels *k, enum dtype type)
{
    by_tiles = true;
    bench_attn(k, type);
    by_tiles = false;
}

static void bench_read_sum(const struct kernels *k, enum dtype type)
{
    size_t n = (size_t)256 << 20;
    struct area a = area_new(n, 0);
    volatile unsigned long long got;
    double ms;

    (void)type;
    TIME(ms, got = k->read_sum(a.p, n));
    (void)got;
    bench_line(benched, "256 MiB", ms, (double)n, "GB/s");
    area_free(&a);
}

static void bench_peak(const struct kernels *k, enum dtype type)
{
    float sink;
    double ms, ops = 0;

    (void)type;
    TIME(ms, ops = k->peak_flops(10, &sink));
    bench_line(benched, "", ms, ops, "GFLOP/s");
}

static void bench_peak_bf16(const struct kernels *k, enum dtype type)
{
    float sink;
    double ms, ops = 0;

    (void)type;
    if (!k->peak_bf16)
        return;
    TIME(ms, ops = k->peak_bf16(10, &sink));
    bench_line(benched, "", ms, ops, "GFLOP/s");
}

/* ---- main --------------------------------------------------------------- */

static void run_check(void **state)
{
    const struct test *t = *state;

    t->check(t->k, t->type);
}

static void run_missing(void **state)
{
    const char *name = *state;

    printf("    SKIP: this CPU has no %s\n", name);
    skip();
}

static const struct {
    const char *name;
    enum dtype first, last;
    void (*check)(const struct kernels *k, enum dtype type);
    void (*bench)(const struct kernels *k, enum dtype type);
} all[] = {
    {"table", DT_F32, DT_F32, check_table, NULL},
    {"matmul_f32", DT_F32, DT_BF16, check_matmul, bench_matmul},
    {"gemm_bf16", DT_BF16, DT_BF16, check_gemm_bf16, bench_gemm_bf16},
    {"gemm_f32", DT_F32, DT_BF16, check_gemm_f32, bench_gemm_f32},
    {"to_f32", DT_F16, DT_BF16, check_to_f32, bench_to_f32},
    {"from_f32", DT_F16, DT_BF16, check_from_f32, bench_from_f32},
    {"rmsnorm", DT_F32, DT_F32, check_rmsnorm, bench_rmsnorm},
    {"rope", DT_F32, DT_F32, check_rope, bench_rope},
    {"swiglu", DT_F32, DT_F32, check_swiglu, bench_swiglu},
    {"geglu", DT_F32, DT_F32, check_geglu, bench_geglu},
    {"glu", DT_F32, DT_F32, check_sigmoid_glu, bench_glu},
    {"add_scale", DT_F32, DT_F32, check_add_scale, bench_add},
    {"max", DT_F32, DT_F32, check_max, bench_max},
    {"exp", DT_F32, DT_F32, check_exp, NULL},
    {"exp_sum", DT_F32, DT_F32, check_exp_sum, bench_exp},
    {"attn_block", DT_F32, DT_BF16, check_attn_all, bench_attn},
    {"attn_tile", DT_F32, DT_BF16, check_attn_tile, bench_attn_tile},
    {"read_sum", DT_F32, DT_F32, check_read_sum, bench_read_sum},
    {"peak_flops", DT_F32, DT_F32, check_peak, bench_peak},
    {"peak_bf16", DT_BF16, DT_BF16, check_peak_bf16, bench_peak_bf16},
};

enum { N_ALL = sizeof all / sizeof *all, MAX_TESTS = N_ALL * ISA_COUNT * 3 };

static struct test tests[MAX_TESTS];
static struct CMUnitTest units[MAX_TESTS + ISA_COUNT + 1];

static int usage(void)
{
    fprintf(stderr, "usage: check_kernels [--seed N] [--filter TEXT] "
                    "[--bench]\n");
    return 2;
}

int main(int argc, char **argv)
{
    const char *env = getenv("QWICK_TEST_SEED"), *filter = "";
    size_t n_tests = 0, n_units = 0;
    bool bench = false;

    if (env && *env)
        seed = strtoull(env, NULL, 0);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench"))
            bench = true;
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--filter") && i + 1 < argc)
            filter = argv[++i];
        else
            return usage();
    }
    printf("seed %llu\n", (unsigned long long)seed);
    ref = kernels_get(ISA_REF);
    for (int l = 0; l < ISA_COUNT; l++) {
        enum isa level = (enum isa)l;
        const struct kernels *k = kernels_get(level);

        if (!k) {
            units[n_units++] = (struct CMUnitTest){
                .name = isa_name(level),
                .test_func = run_missing,
                .initial_state = (void *)(uintptr_t)isa_name(level)};
            continue;
        }
        for (size_t i = 0; i < N_ALL; i++)
            for (int type = (int)all[i].first; type <= (int)all[i].last;
                 type++) {
                struct test *t = &tests[n_tests];
                const char *sep = all[i].last == all[i].first ? "" : "_";

                snprintf(t->name, sizeof t->name, "%s/%s%s%s", isa_name(level),
                         all[i].name, sep,
                         *sep ? dtype_name((enum dtype)type) : "");
                if (!strstr(t->name, filter))
                    continue;
                t->k = k;
                t->type = (enum dtype)type;
                t->check = all[i].check;
                t->bench = all[i].bench;
                n_tests++;
                units[n_units++] = (struct CMUnitTest){.name = t->name,
                                                       .test_func = run_check,
                                                       .initial_state = t};
            }
    }
    if (!bench) {
        if (strstr("openblas", filter))
            units[n_units++] = (struct CMUnitTest){.name = "openblas",
                                                   .test_func = check_blas};
        return _cmocka_run_group_tests("kernels", units, n_units, NULL, NULL);
    }
    for (size_t i = 0; i < n_tests; i++)
        if (tests[i].bench) {
            benched = &tests[i];
            tests[i].bench(tests[i].k, tests[i].type);
        }
    if (strstr("openblas", filter)) {
        struct test blas = {.name = "openblas"};

        benched = &blas;
        bench_blas(ref, DT_F32);
    }
    return 0;
}
