/* Products of f32 and of bf16, on every level of this CPU and with OpenBLAS,
 * against the scalar reference or against double arithmetic in this file.
 * check_table.h has the options. */
#include "check_table.h"

#include "kernel/gemm.h"

/* ---- products of f32 ----------------------------------------------------- */

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

    if (!x86_from(k, ISA_AVX512))
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

/* Take either way of prefetching strips, and any depth of panels, whatever the
 * core's record says: they have other blocks of columns. */
static void choose_strips(void)
{
    struct core_choices c = kernels_core()->choices;

    c.bf16_strips_l2 = (uint32_t)below(2);
    c.bf16_panel_cols = 64 + (uint32_t)below(CORE_BF16_PANEL_LIMIT - 63);
    kernels_choose(&c);
}

static void check_gemm_bf16(const struct kernels *k, enum dtype type)
{
    char what[96];

    if (!k->gemm_bf16)
        return;
    for (size_t i = 0; i < N_SIZES; i += sweep_step()) {
        size_t cols = size_at(i);

        for (size_t tokens = 1; tokens <= 13; tokens += cols > 100 ? 4 : 1) {
            size_t rows = 1 + below(cols > 100 ? 70 : 150);
            bool add = below(2);
            enum kind kind = (enum kind)below(N_KINDS);
            struct product p =
                product_new(rows, cols, tokens, below(4), below(5), kind, type);
            struct area x = bf16_x(&p);

            choose_strips();
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
    for (size_t tokens = 1; tokens <= 70; tokens += sweep_step()) {
        static const size_t widths[] = {31,   33,   256,  513,  1024,
                                        1025, 1091, 3072, 3073, 4129};
        size_t cols = widths[below(sizeof widths / sizeof *widths)];
        size_t rows = 1 + below(cols > 1000 ? 40 : 290);
        bool add = below(2);
        struct product p =
            product_new(rows, cols, tokens, below(4), below(5), NORMAL, type);
        struct area x = bf16_x(&p);

        choose_strips();
        snprintf(what, sizeof what, "%zu rows, %zu cols, %zu tokens%s", rows,
                 cols, tokens, add ? ", add" : "");
        gemm_bf16_case(k, &p, &x, add, NORMAL, what);
        gemm_bf16_order(k, &p, &x, what);
        area_free(&x);
        product_free(&p);
    }
    /* several panels, blocks of columns and sweeps over tokens */
    for (size_t tokens = 127; tokens < 600; tokens += 401 * sweep_step()) {
        struct product p = product_new(131, 515, tokens, 1, 1, NORMAL, type);
        struct area x = bf16_x(&p);

        gemm_bf16_case(k, &p, &x, true, NORMAL, "131 rows, 515 cols");
        gemm_bf16_order(k, &p, &x, "131 rows, 515 cols");
        area_free(&x);
        product_free(&p);
    }
    for (int i = 0; i < 4; i++) {
        choose_strips();
        gemm_bf16_nan(k, 14);
    }
    kernels_choose(&kernels_core()->choices);
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

/* ---- OpenBLAS ----------------------------------------------------------- */

static void check_blas(const struct kernels *k, enum dtype type)
{
    enum { M = 37, N = 65, K = 130 };
    float *a, *b, *c, *want;
    const char *before = getenv("OPENBLAS_CORETYPE");

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
            got = k->read_sum(w.p, BYTES, kernel_core.sweep_l2);
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
    if (gemm_blas_load(kernels_best()))
        bench_gemm_f32_with(k, DT_F32, true);
}

/* ---- main --------------------------------------------------------------- */

static const struct check_row rows[] = {
    {"matmul_f32", DT_F32, DT_BF16, check_matmul, bench_matmul},
    {"gemm_bf16", DT_BF16, DT_BF16, check_gemm_bf16, bench_gemm_bf16},
    {"gemm_f32", DT_F32, DT_BF16, check_gemm_f32, bench_gemm_f32},
};

static const struct check_row once[] = {
    {"openblas", DT_F32, DT_F32, check_blas, bench_blas},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, "products", rows, sizeof rows / sizeof *rows,
                      once, sizeof once / sizeof *once);
}
