/* Measuring the choices between kernels: qwick_tuning_measure.
 *
 * A trial sets one choice to one of its variants and times the products that the
 * choice concerns, each as the model would compute it. Weights are slices of a
 * pool that is larger than caches, in the shape of Qwen3-0.6B's gate_proj. One
 * thread computes. Rounds interleave the variants, so that a change of the
 * machine's speed hits all of them. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/core/engine.h"
#include "engine/core/tuning.h"
#include "kernel/blocks.h"
#include "kernel/gemm.h"
#include "model/scratch.h"
#include "qwick_tools.h"

enum {
    ROWS = 3072,
    COLS = 1024,
    GROUP = 64,
    BLOCK_GROUP = 32, /* of activations, for blocks */
    MAX_TOKENS = 256,
    POOL = 192 << 20, /* bytes */
    READ = 4 << 20,   /* bytes of a measurement of bandwidth */
    PANEL_ROWS = 160, /* widened for OpenBLAS at a time */
    MAX_PRODUCTS = 12,
    MAX_VARIANTS = 6,
    PEAK_REPS = 10 /* 1e8 operations */
};

/* The units whose peaks are limits. */
enum unit { UNIT_F32, UNIT_BF16, UNIT_Q8, N_UNITS };

/* Weights and the choice between their products. F32: bf16 weights whose
 * activations are not rounded. BLOCKS: Q4_K. BLOCKS8: Q8_0, 32 bytes after the
 * start of a line, as in most files. GRIDS: IQ2_S. */
enum kind { F32, FLOATS, AFFINE4, AFFINE8, BLOCKS, BLOCKS8, GRIDS, N_KINDS };

struct product {
    enum kind kind;
    size_t n; /* tokens */
};

/* The products that show the effect of a choice. */
struct subject {
    const char *name; /* of the knob */
    struct product products[MAX_PRODUCTS];
    const char *with; /* another choice without whose value this one has no
                         effect; NULL: none */
    uint32_t value;
};

/* One token of each kind, and n tokens of both widths of affine weights. */
#define DECODE {F32, 1}, {AFFINE8, 1}, {AFFINE4, 1}, {BLOCKS, 1}
#define BOTH(n) {AFFINE4, n}, {AFFINE8, n}

static const struct subject subjects[] = {
    {.name = "sweep_ahead", .products = {DECODE}},
    {.name = "sweep_l2", .products = {DECODE}},
    {.name = "blas", .products = {{F32, 128}, {F32, 256}}},
    {.name = "blas_min",
     .products = {{F32, 32}, {F32, 64}, {F32, 96}},
     .with = "blas",
     .value = 1},
    {.name = "gemm_f32_min",
     .products = {{F32, 8}, {F32, 12}, {F32, 16}, {F32, 24}},
     .with = "blas",
     .value = 0},
    {.name = "avx_panels4_min",
     .products = {{AFFINE4, 5}, {AFFINE4, 6}, {AFFINE4, 8}, {AFFINE4, 12}}},
    {.name = "avx_panels8_min",
     .products = {{AFFINE8, 5}, {AFFINE8, 6}, {AFFINE8, 8}, {AFFINE8, 12},
                  {AFFINE8, 16}}},
    {.name = "gemm_f32_avx512_min",
     .products = {{F32, 8}, {F32, 12}, {F32, 16}, {F32, 24}, {F32, 32},
                  {F32, 40}}},
    {.name = "q8_panels_min",
     .products = {BOTH(3), BOTH(4), BOTH(5), BOTH(6), BOTH(8)},
     .with = "q8_batch_max",
     .value = 1},
    {.name = "q8_batch_min",
     .products = {BOTH(4), BOTH(5), BOTH(6)},
     .with = "q8_batch_max",
     .value = 32},
    {.name = "q8_batch_max",
     .products = {BOTH(20), BOTH(28), BOTH(36), BOTH(44), BOTH(56)}},
    {.name = "blocks_panels_min",
     .products = {{BLOCKS, 5}, {BLOCKS, 6}, {BLOCKS, 7}, {BLOCKS, 8},
                  {BLOCKS8, 5}, {BLOCKS8, 6}, {BLOCKS8, 7}, {BLOCKS8, 8}},
     .with = "blocks_batch_max",
     .value = 1},
    {.name = "blocks_batch_max",
     .products = {{BLOCKS, 6}, {BLOCKS, 12}, {BLOCKS, 20}, {BLOCKS, 28},
                  {BLOCKS, 40}, {BLOCKS8, 6}, {BLOCKS8, 12}, {BLOCKS8, 20},
                  {BLOCKS8, 28}, {BLOCKS8, 40}}},
    {.name = "q8_0_once", .products = {{BLOCKS8, 1}}},
    {.name = "permute_pairs", .products = {{GRIDS, 1}, {GRIDS, 4}}},
    {.name = "bf16", .products = {{FLOATS, 128}, {FLOATS, 256}}},
    {.name = "bf16_min",
     .products = {{FLOATS, 2}, {FLOATS, 3}},
     .with = "bf16",
     .value = 1},
    {.name = "bf16_rows_max",
     .products = {{FLOATS, 4}, {FLOATS, 5}, {FLOATS, 6}},
     .with = "bf16",
     .value = 1},
    {.name = "bf16_strips_max",
     .products = {{FLOATS, 20}, {FLOATS, 28}, {FLOATS, 36}, {FLOATS, 44}},
     .with = "bf16",
     .value = 1},
    {.name = "bf16_strips_l2",
     .products = {{FLOATS, 7}, {FLOATS, 8}, {FLOATS, 12}, {FLOATS, 16},
                  {FLOATS, 32}},
     .with = "bf16",
     .value = 1},
    {.name = "bf16_panel_cols",
     .products = {{FLOATS, 64}, {FLOATS, 128}, {FLOATS, 256}},
     .with = "bf16",
     .value = 1},
    {.name = "amx_rows_max", .products = {{FLOATS, 2}, {FLOATS, 3}, {FLOATS, 4}}},
    {.name = "amx_few_max",
     .products = {{FLOATS, 40}, {FLOATS, 56}, {FLOATS, 64}}},
    {.name = "amx_vnni_max", .products = {BOTH(6), BOTH(10), BOTH(14)}},
    {.name = "amx_affine_bf16_min",
     .products = {{AFFINE4, 64}, {AFFINE4, 128}, {AFFINE4, 192}}},
    {.name = "amx_blocks_bf16_min",
     .products = {{BLOCKS, 32}, {BLOCKS, 48}, {BLOCKS, 64}}},
    {.name = "arm_panels_min",
     .products = {BOTH(2), BOTH(3), BOTH(4), {BLOCKS, 2}, {BLOCKS, 3},
                  {BLOCKS8, 2}, {BLOCKS8, 3}}},
};

struct tuner {
    const struct kernels *k;
    unsigned char *pool;
    size_t at; /* of the next slice */
    float *x, *y, *work, *panel;
    uint16_t *x16;
    struct q8 x8, xb; /* for affine weights, for blocks */
    unsigned long long sink; /* keeps the compiler from dropping reads */
};

/* ---- memory ------------------------------------------------------------- */

static size_t ld(size_t n)
{
    return scratch_ld(n);
}

static void *lines(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static bool q8_alloc(struct q8 *q, size_t group)
{
    *q = (struct q8){.ldq = COLS, .ldg = COLS / group, .group = group};
    q->q = lines(MAX_TOKENS * q->ldq);
    q->scale = lines(MAX_TOKENS * q->ldg * sizeof *q->scale);
    q->sum = lines(MAX_TOKENS * q->ldg * sizeof *q->sum);
    return q->q && q->scale && q->sum;
}

static void q8_free(struct q8 *q)
{
    free(q->q);
    free(q->scale);
    free(q->sum);
}

static int tuner_alloc(struct tuner *t, struct qwick_err *e)
{
    size_t x = MAX_TOKENS * ld(COLS), y = MAX_TOKENS * ld(ROWS);
    size_t x16 = MAX_TOKENS * gemm_bf16_ldx(COLS);
    t->pool = lines(POOL);
    t->x = lines(x * sizeof *t->x);
    t->y = lines(y * sizeof *t->y);
    t->x16 = lines(x16 * sizeof *t->x16);
    t->panel = lines(PANEL_ROWS * COLS * sizeof *t->panel);
    t->work = lines((KERNEL_WORK + KERNEL_BLOCKS_WORK) * sizeof *t->work);
    bool ok = q8_alloc(&t->x8, GROUP) && q8_alloc(&t->xb, BLOCK_GROUP);
    if (!ok || !t->pool || !t->x || !t->y || !t->x16 || !t->panel || !t->work)
        return err_oom(e, POOL);
    /* Small positive numbers, as codes, bf16, and scales of blocks in f16. */
    for (size_t i = 0; i < POOL / 2; i++) {
        uint16_t v = (uint16_t)(0x3c00 + i % 97);
        memcpy(t->pool + 2 * i, &v, 2);
    }
    for (size_t i = 0; i < x; i++)
        t->x[i] = (float)(i % 13) - 6;
    for (size_t i = 0; i < x16; i++)
        t->x16[i] = (uint16_t)(0x3f80 + i % 5);
    t->k->to_q8(&t->x8, t->x, ld(COLS), COLS, MAX_TOKENS);
    t->k->to_q8(&t->xb, t->x, ld(COLS), COLS, MAX_TOKENS);
    return 0;
}

static void tuner_free(struct tuner *t)
{
    free(t->pool);
    free(t->x);
    free(t->y);
    free(t->x16);
    free(t->panel);
    free(t->work);
    q8_free(&t->x8);
    q8_free(&t->xb);
}

/* ---- products ----------------------------------------------------------- */

/* The type of blocks of a kind, or DT_COUNT. */
static enum dtype block_type(enum kind kind)
{
    return kind == BLOCKS    ? DT_Q4_K
           : kind == BLOCKS8 ? DT_Q8_0
           : kind == GRIDS   ? DT_IQ2_S
                             : DT_COUNT;
}

/* Bytes of the codes or numbers of a row. */
static size_t row_bytes(enum kind kind)
{
    const size_t bytes[N_KINDS] = {
        [F32] = 2 * COLS,
        [FLOATS] = 2 * COLS,
        [AFFINE4] = COLS / 2,
        [AFFINE8] = COLS};
    enum dtype type = block_type(kind);
    return type < DT_COUNT ? COLS / dtype_block(type) * dtype_bytes(type)
                           : bytes[kind];
}

static bool is_affine(enum kind kind)
{
    return kind == AFFINE4 || kind == AFFINE8;
}

/* Bytes of the weights of a product. */
static size_t slice_bytes(enum kind kind)
{
    size_t numbers = is_affine(kind) ? 2 * 2 * (COLS / GROUP) : 0;
    return ROWS * (row_bytes(kind) + numbers);
}

/* The next n bytes of the pool. */
static const unsigned char *take(struct tuner *t, size_t n)
{
    if (POOL - t->at < n)
        t->at = 0;
    const unsigned char *p = t->pool + t->at;
    t->at += (n + 63) / 64 * 64;
    return p;
}

static void run_blas(struct tuner *t, const unsigned char *w, size_t n)
{
    for (size_t r = 0, rows; r < ROWS; r += rows) {
        rows = ROWS - r < PANEL_ROWS ? ROWS - r : PANEL_ROWS;
        t->k->to_f32[DT_BF16](t->panel, w + r * 2 * COLS, rows * COLS);
        gemm_blas_nt(t->y + r, ld(ROWS), t->x, ld(COLS), t->panel, COLS, n,
                     rows, COLS);
    }
}

static void run_floats(struct tuner *t, const struct product *p)
{
    const struct kernels *k = t->k;
    const struct kernel_tuning *tune = &k->tune;
    const unsigned char *w = take(t, slice_bytes(p->kind));
    if (p->kind == FLOATS && tune->bf16 && p->n >= tune->bf16_min_tokens)
        k->gemm_bf16(t->y, ld(ROWS), w, COLS, t->x16, gemm_bf16_ldx(COLS), ROWS,
                     COLS, p->n, false, t->work);
    else if (tune->blas && p->n >= tune->blas_min_tokens && gemm_blas_load(k))
        run_blas(t, w, p->n);
    else if (tune->gemm_f32 && p->n >= (tune->blas ? tune->blas_min_tokens
                                                   : tune->gemm_f32_min_tokens))
        k->gemm_f32[DT_BF16](t->y, ld(ROWS), t->x, ld(COLS), w, COLS, p->n,
                             ROWS, COLS, t->work);
    else
        k->matmul_f32[DT_BF16](t->y, ld(ROWS), w, COLS, t->x, ld(COLS), ROWS,
                               COLS, p->n, t->work);
}

static void run_affine(struct tuner *t, const struct product *p)
{
    const struct kernels *k = t->k;
    struct affine w = {.q = take(t, slice_bytes(p->kind)),
                       .q_stride = row_bytes(p->kind),
                       .s_stride = 2 * (COLS / GROUP),
                       .s_type = DT_BF16,
                       .b_stride = 2 * (COLS / GROUP),
                       .b_type = DT_BF16,
                       .bits = p->kind == AFFINE4 ? 4 : 8,
                       .group = GROUP};
    w.scales = w.q + ROWS * w.q_stride;
    w.biases = w.scales + ROWS * w.s_stride;
    if (k->gemm_bf16_affine && p->n >= k->tune.affine_bf16_min_tokens)
        k->gemm_bf16_affine(t->y, ld(ROWS), &w, t->x16, gemm_bf16_ldx(COLS),
                            ROWS, COLS, p->n, false, t->work);
    else
        k->gemm_q8_affine(t->y, ld(ROWS), &w, &t->x8, ROWS, COLS, p->n, false,
                          t->work);
}

static void run_blocks(struct tuner *t, const struct product *p)
{
    const struct kernels *k = t->k;
    const size_t stride = row_bytes(p->kind);
    const size_t i = block_type(p->kind) - DT_BLOCKS;
    const size_t skip = p->kind == BLOCKS8 ? 32 : 0;
    const unsigned char *w = take(t, slice_bytes(p->kind) + skip) + skip;
    if (k->gemm_bf16_blocks[i] && p->n >= k->tune.blocks_bf16_min_tokens)
        k->gemm_bf16_blocks[i](t->y, ld(ROWS), w, stride, t->x16,
                               gemm_bf16_ldx(COLS), ROWS, COLS, p->n, false,
                               t->work);
    else
        k->gemm_q8_blocks[i](t->y, ld(ROWS), w, stride, &t->xb, ROWS, COLS,
                             p->n, false, t->work);
}

static double time_product(struct tuner *t, const struct product *p)
{
    double start = clock_ms();
    if (block_type(p->kind) < DT_COUNT)
        run_blocks(t, p);
    else if (is_affine(p->kind))
        run_affine(t, p);
    else
        run_floats(t, p);
    return clock_ms() - start;
}

/* ---- limits ------------------------------------------------------------- */

/* Rates per millisecond: of reading memory that is in no cache, and of the
 * operations of each unit; 0: the level lacks the unit. */
struct limits {
    double read, peaks[N_UNITS];
};

static double peak(double (*flops_of)(size_t, float *))
{
    double start = clock_ms();
    float sink;
    if (!flops_of)
        return 0;
    double flops = flops_of(PEAK_REPS, &sink);
    return flops / (clock_ms() - start);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static struct limits measure_limits(struct tuner *t)
{
    struct limits l = {.peaks = {[UNIT_F32] = peak(t->k->peak_flops),
                                 [UNIT_BF16] = peak(t->k->peak_bf16),
                                 [UNIT_Q8] = peak(t->k->peak_q8)}};
    const unsigned char *p = take(t, 2 * READ);
    for (int to_l2 = 0; to_l2 < 2; to_l2++) {
        double start = clock_ms();
        t->sink += t->k->read_sum(p + to_l2 * READ, READ, to_l2);
        l.read = larger(l.read, READ / (clock_ms() - start));
    }
    return l;
}

/* The peak of the fastest unit that can do a product. It is the same for all
 * variants. */
static double peak_of(const struct limits *l, enum kind kind)
{
    const double *p = l->peaks;
    if (kind == F32)
        return p[UNIT_F32];
    return larger(p[kind == FLOATS ? UNIT_F32 : UNIT_Q8], p[UNIT_BF16]);
}

/* The least time in milliseconds that a product can take. */
static double least_ms(const struct limits *l, const struct product *p)
{
    double rate = peak_of(l, p->kind);
    double memory = (double)slice_bytes(p->kind) / l->read;
    double flops = 2.0 * ROWS * COLS * (double)p->n;
    return larger(memory, rate > 0 ? flops / rate : 0);
}

/* ---- trials ------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Times of one choice: [variant][product][round]; and limits [round]. */
struct times {
    double *ms;
    struct limits *limits;
    size_t n_products, reps;
};

static double *times_at(const struct times *m, size_t variant, size_t product)
{
    return m->ms + (variant * m->n_products + product) * m->reps;
}

static const struct core_knob *knob_named(const char *name)
{
    const struct core_knob *k;
    for (size_t i = 0; (k = core_knob(i)) != NULL; i++)
        if (!strcmp(k->name, name))
            break;
    return k;
}

static void time_round(struct tuner *t, const struct tuning *own,
                       const struct core_knob *knob, const struct subject *s,
                       const struct times *m, size_t round)
{
    for (size_t i = 0; i < knob->n_variants; i++) {
        /* another variant begins each round */
        size_t v = (i + round) % knob->n_variants;
        struct core_choices c = own->choices;
        if (s->with)
            core_set(&c, knob_named(s->with), s->value);
        core_set(&c, knob, knob->variants[v]);
        kernels_choose(&c);
        for (size_t j = 0; j < m->n_products; j++)
            times_at(m, v, j)[round] = time_product(t, &s->products[j]);
    }
    m->limits[round] = measure_limits(t);
}

/* The median over the rounds of the rate at an offset. */
static double median_limit(const struct times *m, double *work, size_t offset)
{
    for (size_t r = 0; r < m->reps; r++)
        memcpy(&work[r], (const char *)&m->limits[r] + offset, sizeof *work);
    return median(work, m->reps);
}

static struct limits median_limits(const struct times *m, double *work)
{
    struct limits l = {
        .read = median_limit(m, work, offsetof(struct limits, read))};
    for (size_t i = 0; i < N_UNITS; i++)
        l.peaks[i] = median_limit(
            m, work, offsetof(struct limits, peaks) + i * sizeof *work);
    return l;
}

static void report(const struct tuning *own, const struct core_knob *knob,
                   const struct subject *s, const struct times *m,
                   const struct limits *limits, qwick_tuning_fn fn, void *ctx)
{
    struct qwick_tuning_trial trials[MAX_VARIANTS];
    size_t best = 0;
    for (size_t v = 0; v < knob->n_variants; v++) {
        double share = 0;
        for (size_t i = 0; i < m->n_products; i++)
            share += least_ms(limits, &s->products[i]) /
                     median(times_at(m, v, i), m->reps);
        trials[v] = (struct qwick_tuning_trial){
            .name = knob->name,
            .value = knob->variants[v],
            .share = share / (double)m->n_products,
            .chosen = knob->variants[v] == core_get(&own->choices, knob)};
        best = trials[v].share > trials[best].share ? v : best;
    }
    trials[best].best = true;
    fn(ctx, trials, knob->n_variants);
}

static int measure_knob(struct tuner *t, const struct tuning *own,
                        const struct core_knob *knob, const struct subject *s,
                        size_t reps, qwick_tuning_fn fn, void *ctx,
                        struct qwick_err *e)
{
    struct times m = {.reps = reps, .n_products = 1}; /* at least */
    while (m.n_products < MAX_PRODUCTS && s->products[m.n_products].n)
        m.n_products++;
    size_t n = knob->n_variants * m.n_products * reps;
    m.ms = calloc(n, sizeof *m.ms);
    m.limits = calloc(reps, sizeof *m.limits);
    double *work = calloc(reps, sizeof *work);
    int rc = m.ms && m.limits && work ? 0 : err_oom(e, n * sizeof *m.ms);
    if (!rc) {
        time_round(t, own, knob, s, &m, 0); /* warms up */
        for (size_t r = 0; r < reps; r++)
            time_round(t, own, knob, s, &m, r);
        struct limits limits = median_limits(&m, work);
        report(own, knob, s, &m, &limits, fn, ctx);
    }
    free(m.ms);
    free(m.limits);
    free(work);
    return rc;
}

int qwick_tuning_measure(struct qwick_engine *eng, size_t reps,
                         qwick_tuning_fn fn, void *ctx, struct qwick_err *e)
{
    struct tuner t = {.k = eng->model.k};
    const size_t n = sizeof subjects / sizeof *subjects;
    if (!eng->tuning || !reps)
        return err_set(e, QWICK_ERR_USAGE,
                       "tuning: needs an engine with weights and at least one "
                       "round");
    int rc = tuner_alloc(&t, e);
    for (size_t i = 0; i < n && !rc; i++) {
        const struct core_knob *knob = knob_named(subjects[i].name);
        if (knob && kernels_use(t.k, knob))
            rc = measure_knob(&t, eng->tuning, knob, &subjects[i], reps, fn,
                              ctx, e);
    }
    kernels_choose(&eng->tuning->choices);
    tuner_free(&t);
    return rc;
}
