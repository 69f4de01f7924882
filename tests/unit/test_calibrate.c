/* Calibration: moments against direct sums, with any number of threads; error
 * feedback against rounding to nearest; the inputs of models. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "convert/calibrate.h"
#include "engine/core/engine.h"
#include "lcg.h"
#include "model/affine.h"
#include "model/lora.h"
#include "qwick_tools.h"

enum { ROWS = 700, MAX_COLS = 640 };

/* A number in [-1, 1). */
static float draw(void)
{
    return (float)(2 * uniform() - 1);
}

/* ---- moments ------------------------------------------------------------- */

struct batch {
    struct moments *m;
    struct moments_room room;
    const float *x;
    const uint32_t *rows;
    size_t n, cols;
};

static void add_body(void *ctx, struct par_team *team, int tid, int n_threads)
{
    const struct batch *b = ctx;
    moments_add(b->m, &b->room, b->x, b->cols, b->rows, b->n, team, tid,
                n_threads);
}

/* Correlated values: each column shares something with the one before it. */
static float *make_inputs(size_t cols)
{
    float *x = malloc(ROWS * cols * sizeof *x);
    assert_non_null(x);
    below_state = 5;
    for (size_t i = 0; i < ROWS * cols; i++) {
        float own = draw();
        size_t c = i % cols;
        x[i] = (c ? 0.8f * x[i - 1] : 0) + own * (float)(1 + c % 7);
    }
    return x;
}

/* Add all rows: some by their numbers, the others in order. */
static void collect(struct moments *m, const float *x, size_t cols,
                    size_t block, int n_threads)
{
    static uint32_t rows[100];
    struct par_pool *pool = par_create(n_threads);
    struct qwick_err e;
    struct batch b = {.m = m, .x = x, .rows = rows, .n = 100, .cols = cols};
    for (uint32_t i = 0; i < 100; i++)
        rows[i] = 99 - i;
    assert_ok(moments_init(m, cols, block, &e), &e);
    assert_ok(moments_room_init(&b.room, kernels_best(), cols, n_threads, &e),
              &e);
    par_run(pool, add_body, &b);
    b.rows = NULL;
    for (size_t at = 100; at < ROWS; at += b.n) {
        b.n = ROWS - at < 301 ? ROWS - at : 301;
        b.x = x + at * cols;
        par_run(pool, add_body, &b);
    }
    moments_room_free(&b.room);
    par_free(pool);
    assert_int_equal(m->n_tokens, ROWS);
}

/* H_ij with the addition to the diagonal of the block at `at`. */
static double direct(const float *x, size_t cols, size_t at, size_t w, size_t i,
                     size_t j)
{
    double sum = 0, mean = 0;
    for (size_t t = 0; t < ROWS; t++) {
        sum += (double)x[t * cols + i] * (double)x[t * cols + j];
        for (size_t c = at; i == j && c < at + w; c++)
            mean += (double)x[t * cols + c] * (double)x[t * cols + c];
    }
    return sum / ROWS + mean / ROWS / (double)w * 0.01;
}

/* Element (p, q), places in the order of a block, of (U + I) D (U + I)^T. */
static double product(const float *f, size_t w, size_t p, size_t q)
{
    double sum = 0;
    for (size_t j = p > q ? p : q; j < w; j++) {
        double a = p == j ? 1 : (double)f[j * w + p];
        double b = q == j ? 1 : (double)f[j * w + q];
        sum += a * b * (double)f[j * w + j];
    }
    return sum;
}

static const struct {
    size_t cols, block;
} shapes[] = {{1, 1}, {7, 7}, {64, 64}, {130, 130}, {320, 320}, {640, 256}};

static void sums_are_direct_ones(void **state)
{
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        size_t cols = shapes[s].cols, w;
        float *x = make_inputs(cols);
        struct moments m;
        struct qwick_err e;
        collect(&m, x, cols, shapes[s].block, 2);
        assert_ok(moments_finish(&m, kernels_best(), 0.01, &e), &e);
        for (size_t at = 0; at < cols && m.block > 1; at += w) {
            const float *f = moments_factor(&m, at, &w);
            for (size_t k = 0; k < 60; k++) {
                size_t p = k * 7 % w, q = k * 13 % w;
                size_t i = m.order[at + p], j = m.order[at + q];
                double want = direct(x, cols, at, w, i, j);
                double scale = sqrt(direct(x, cols, at, w, i, i) *
                                    direct(x, cols, at, w, j, j));
                /* sums of 640 products in f32, eliminated 640 times */
                assert_true(fabs(product(f, w, p, q) - want) < 1e-4 * scale);
                assert_true(i >= at && i < at + w);
            }
        }
        moments_free(&m);
        free(x);
    }
}

static void threads_do_not_matter(void **state)
{
    float *x = make_inputs(MAX_COLS);
    struct moments a, b;
    struct qwick_err e;
    collect(&a, x, MAX_COLS, 256, 1);
    assert_ok(moments_finish(&a, kernels_best(), 0.01, &e), &e);
    size_t n = moments_floats(MAX_COLS, 256);
    for (int n_threads = 2; n_threads < 5; n_threads++) {
        collect(&b, x, MAX_COLS, 256, n_threads);
        assert_ok(moments_finish(&b, kernels_best(), 0.01, &e), &e);
        assert_memory_equal(a.factor, b.factor, n * sizeof *a.factor);
        assert_memory_equal(a.diagonal, b.diagonal,
                            MAX_COLS * sizeof *a.diagonal);
        assert_memory_equal(a.order, b.order, MAX_COLS * sizeof *a.order);
        moments_free(&b);
    }
    moments_free(&a);
    free(x);
}

/* The columns of each group come one after the other. */
static void groups_stay_together(void **state)
{
    float *x = make_inputs(MAX_COLS);
    struct moments m;
    struct qwick_err e;
    collect(&m, x, MAX_COLS, MAX_COLS, 1);
    assert_ok(moments_finish(&m, kernels_best(), 0.01, &e), &e);
    for (size_t unit = 32; unit <= 256; unit *= 2)
        for (size_t i = 0; i < MAX_COLS; i++)
            assert_int_equal(m.order[i] / unit,
                             m.order[i / unit * unit] / unit);
    moments_free(&m);
    free(x);
}

/* ---- feedback ------------------------------------------------------------ */

struct rounding {
    struct affine_format f;
    float scales[FEEDBACK_ROWS][MAX_COLS / 32];
    float biases[FEEDBACK_ROWS][MAX_COLS / 32];
};

static int fit(void *ctx, size_t row, size_t col, const float *x,
               const float *h, float *step, float *base)
{
    struct rounding *r = ctx;
    size_t g = col / r->f.group, bad;
    if (affine_scales(&r->f, &r->scales[row][g], &r->biases[row][g], x, h,
                      r->f.group, &bad))
        return -1;
    for (size_t i = 0; i < r->f.group; i++) {
        step[i] = r->scales[row][g];
        base[i] = r->biases[row][g];
    }
    return 0;
}

static void read_steps(void *ctx, size_t row, size_t col, float *step,
                       float *base)
{
    const struct rounding *r = ctx;
    for (size_t i = 0; i < r->f.group; i++) {
        step[i] = r->scales[row][col / r->f.group];
        base[i] = r->biases[row][col / r->f.group];
    }
}

static void write_steps(void *ctx, size_t row, size_t col, float *step,
                        float *base, bool keep)
{
    struct rounding *r = ctx;
    if (keep) {
        r->scales[row][col / r->f.group] = *step;
        r->biases[row][col / r->f.group] = *base;
    }
}

/* The error of n rows w as the codes have them. */
static double error_of(const struct rounding *r, const struct moments *m,
                       const float *w, const unsigned char *codes, size_t n)
{
    double sum = 0;
    float d[MAX_COLS];
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < m->cols; c++) {
            size_t g = c / r->f.group;
            assert_true(codes[i * m->cols + c] < 1 << r->f.bits);
            d[c] = w[i * m->cols + c] -
                   (r->biases[i][g] +
                    (float)codes[i * m->cols + c] * r->scales[i][g]);
        }
        sum += moments_error(m, d, 1);
    }
    return sum;
}

/* Codes of the same search without feedback. */
static void round_nearest(struct rounding *r, const struct moments *m,
                          const float *w, unsigned char *codes, size_t n)
{
    float step[128], base[128];
    _Alignas(64) float x[128], h[128];
    size_t group = r->f.group;
    for (size_t i = 0; i < n * m->cols; i += group) {
        memcpy(x, w + i, group * sizeof *x);
        memcpy(h, m->diagonal + i % m->cols, group * sizeof *h);
        assert_int_equal(fit(r, i / m->cols, i % m->cols, x, h, step, base), 0);
        for (size_t j = 0; j < group; j++) {
            float q = rintf((x[j] - base[j]) / step[j]);
            codes[i + j] = (unsigned char)fminf(fmaxf(q, 0),
                                                (float)((1 << r->f.bits) - 1));
        }
    }
}

static void feedback_is_better(void **state)
{
    enum { N = 13 };
    static float w[FEEDBACK_ROWS * MAX_COLS];
    static unsigned char codes[FEEDBACK_ROWS * MAX_COLS];
    static struct rounding r;
    float *x = make_inputs(MAX_COLS);
    struct moments m;
    struct feedback_room room;
    struct qwick_err e;
    below_state = 9;
    for (size_t i = 0; i < N * MAX_COLS; i++)
        w[i] = draw();
    for (size_t block = 256; block <= MAX_COLS; block += 384) {
        collect(&m, x, MAX_COLS, block, 2);
        assert_ok(moments_finish(&m, kernels_best(), 0.01, &e), &e);
        assert_ok(feedback_room_init(&room, block, &e), &e);
        for (int bits = 2; bits <= 6; bits++)
            for (size_t group = 32; group <= 128; group *= 2) {
                const struct grid g = {.high = (1 << bits) - 1};
                r.f = (struct affine_format){bits, group, DT_F32, AFFINE_LSQ,
                                             kernels_best()};
                struct feedback f = {.m = &m,
                                     .k = r.f.k,
                                     .g = &g,
                                     .room = &room,
                                     .unit = group,
                                     .fit = fit,
                                     .ctx = &r,
                                     .w = w,
                                     .codes = codes,
                                     .n = N};
                round_nearest(&r, &m, w, codes, N);
                double nearest = error_of(&r, &m, w, codes, N);
                assert_int_equal(feedback_codes(&f), 0);
                double feedback = error_of(&r, &m, w, codes, N);
                assert_true(feedback < 0.8 * nearest);
                f.read = read_steps;
                assert_int_equal(feedback_codes(&f), 0);
                double descent = error_of(&r, &m, w, codes, N);
                assert_true(descent < feedback);
                f.write = write_steps;
                f.group = group;
                assert_int_equal(feedback_codes(&f), 0);
                assert_true(error_of(&r, &m, w, codes, N) < descent);
            }
        feedback_room_free(&room);
        moments_free(&m);
    }
    free(x);
}

/* After the descent, no other value of a code is better. */
static void no_neighbour_is_better(void **state)
{
    enum { COLS = 64, N = 3 };
    static struct rounding r;
    static float w[N * COLS];
    unsigned char codes[N * COLS];
    float *x = make_inputs(COLS);
    struct moments m;
    struct feedback_room room;
    struct qwick_err e;
    below_state = 3;
    for (size_t i = 0; i < N * COLS; i++)
        w[i] = draw();
    collect(&m, x, COLS, COLS, 1);
    assert_ok(moments_finish(&m, kernels_best(), 0.01, &e), &e);
    assert_ok(feedback_room_init(&room, COLS, &e), &e);
    for (int bits = 2; bits <= 4; bits++) {
        const struct grid g = {.high = (1 << bits) - 1};
        r.f = (struct affine_format){bits, 32, DT_F32, AFFINE_LSQ,
                                     kernels_best()};
        const struct feedback f = {.m = &m,
                                   .k = r.f.k,
                                   .g = &g,
                                   .room = &room,
                                   .unit = 32,
                                   .fit = fit,
                                   .ctx = &r,
                                   .w = w,
                                   .codes = codes,
                                   .n = N,
                                   .read = read_steps};
        assert_int_equal(feedback_codes(&f), 0);
        double best = error_of(&r, &m, w, codes, N);
        for (size_t i = 0; i < N * COLS; i++)
            for (int q = 0; q <= g.high; q++) {
                unsigned char was = codes[i];
                codes[i] = (unsigned char)q;
                /* sums of 64 products in f32 */
                assert_true(error_of(&r, &m, w, codes, N) > best * (1 - 1e-5));
                codes[i] = was;
            }
    }
    feedback_room_free(&room);
    moments_free(&m);
    free(x);
}

/* Threads divide the rows: those that are rounded beside a row do not change
 * it. */
static void rows_are_independent(void **state)
{
    enum { N = 5 };
    static struct rounding all, one;
    static float w[N * MAX_COLS];
    static unsigned char codes[N * MAX_COLS], own[MAX_COLS];
    const struct grid g = {.high = 7};
    float *x = make_inputs(MAX_COLS);
    struct moments m;
    struct feedback_room room;
    struct qwick_err e;
    below_state = 7;
    for (size_t i = 0; i < N * MAX_COLS; i++)
        w[i] = draw();
    collect(&m, x, MAX_COLS, 256, 2);
    assert_ok(moments_finish(&m, kernels_best(), 0.01, &e), &e);
    assert_ok(feedback_room_init(&room, 256, &e), &e);
    all.f = one.f =
        (struct affine_format){3, 64, DT_F32, AFFINE_LSQ, kernels_best()};
    const struct feedback f = {.m = &m,
                               .k = all.f.k,
                               .g = &g,
                               .room = &room,
                               .unit = 64,
                               .fit = fit,
                               .ctx = &all,
                               .w = w,
                               .codes = codes,
                               .n = N,
                               .read = read_steps,
                               .write = write_steps,
                               .group = 64};
    assert_int_equal(feedback_codes(&f), 0);
    for (size_t i = 0; i < N; i++) {
        const struct feedback single = {.m = &m,
                                        .k = all.f.k,
                                        .g = &g,
                                        .room = &room,
                                        .unit = 64,
                                        .fit = fit,
                                        .ctx = &one,
                                        .w = w + i * MAX_COLS,
                                        .codes = own,
                                        .n = 1,
                                        .read = read_steps,
                                        .write = write_steps,
                                        .group = 64};
        assert_int_equal(feedback_codes(&single), 0);
        assert_memory_equal(own, codes + i * MAX_COLS, MAX_COLS);
        assert_memory_equal(one.scales[0], all.scales[i], sizeof all.scales[i]);
    }
    feedback_room_free(&room);
    moments_free(&m);
    free(x);
}

/* Inputs that do not depend on each other leave nothing to make up for: then
 * the codes are the nearest ones. */
static void feedback_without_cause(void **state)
{
    enum { COLS = 64 };
    float x[ROWS * COLS] = {0};
    static struct rounding r;
    _Alignas(64) float w[COLS];
    unsigned char got[COLS], want[COLS];
    const struct grid g = {.high = 7};
    struct moments m;
    struct feedback_room room;
    struct qwick_err e;
    for (size_t t = 0; t < ROWS; t++)
        x[t * COLS + t % COLS] = 1 + (float)(t % COLS);
    for (size_t i = 0; i < COLS; i++)
        w[i] = draw();
    collect(&m, x, COLS, COLS, 1);
    assert_ok(moments_finish(&m, kernels_best(), 0.01, &e), &e);
    assert_ok(feedback_room_init(&room, COLS, &e), &e);
    r.f = (struct affine_format){3, 32, DT_F32, AFFINE_LSQ, kernels_best()};
    const struct feedback f = {.m = &m,
                               .k = r.f.k,
                               .g = &g,
                               .room = &room,
                               .unit = 32,
                               .fit = fit,
                               .ctx = &r,
                               .w = w,
                               .codes = got,
                               .n = 1,
                               .read = read_steps};
    round_nearest(&r, &m, w, want, 1);
    assert_int_equal(feedback_codes(&f), 0);
    assert_memory_equal(got, want, COLS);
    feedback_room_free(&room);
    moments_free(&m);
}

/* ---- models -------------------------------------------------------------- */

static struct calibration *calibrate(const char *model, int samples,
                                     int threads)
{
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct calibration *c;
    struct qwick_err e;
    o.calibrate_self = samples;
    o.threads = threads;
    assert_ok(calibration_open(&c, model, &o, &e), &e);
    return c;
}

static const struct moments *need(const struct calibration *c, const char *name,
                                  size_t expert)
{
    const struct moments *m = calibration_find(c, name, expert);
    if (!m)
        fail_msg("no moments of %s", name);
    return m;
}

#define LAYER "model.layers.1."

static void inputs_of_a_model(void **state)
{
    struct calibration *a = calibrate(NULL, 2, 1), *b = calibrate(NULL, 2, 2);
    static const char *const names[] = {
        "model.embed_tokens.weight", LAYER "self_attn.q_proj.weight",
        LAYER "self_attn.o_proj.weight", LAYER "mlp.gate_proj.weight",
        LAYER "mlp.down_proj.weight"};
    size_t n_texts, n = 0;
    const struct calibration_text *texts = calibration_texts(a, &n_texts);
    for (size_t i = 0; i < n_texts; i++)
        n += texts[i].n;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct moments *p = need(a, names[i], 0),
                             *q = need(b, names[i], 0);
        size_t floats = moments_floats(p->cols, p->block);
        assert_int_equal(p->n_tokens, n);
        assert_memory_equal(p->factor, q->factor, floats * sizeof *p->factor);
    }
    assert_ptr_equal(need(a, names[1], 0),
                     need(a, LAYER "self_attn.v_proj.weight", 0));
    assert_ptr_equal(need(a, names[3], 0),
                     need(a, LAYER "mlp.up_proj.weight", 0));
    assert_null(calibration_find(a, "model.norm.weight", 0));
    assert_null(calibration_find(a, "model.layers.99.mlp.up_proj.weight", 0));
    calibration_close(a);
    calibration_close(b);
}

/* Add what the rows of w do with columns i and j. */
static double read_pair(const struct matrix *w, const float *norm, size_t i,
                        size_t j)
{
    static float row[MAX_COLS];
    double sum = 0;
    assert_true(w->cols <= MAX_COLS);
    for (size_t r = 0; r < w->rows; r++) {
        w->ops->to_f32(kernels_best(), row, w, r, 1);
        sum += (double)(row[i] * norm[i]) * (double)(row[j] * norm[j]);
    }
    return sum;
}

static void readers_of_an_embedding(void **state)
{
    struct calibration *c = calibrate(NULL, 1, 2);
    struct qwick_engine *eng = calibration_engine(c);
    const struct layer *l = &eng->model.layers[0];
    size_t cols = eng->model.embed.cols;
    struct moments_room room;
    struct moments m;
    struct qwick_err e;
    assert_ok(moments_init(&m, cols, cols, &e), &e);
    assert_ok(moments_room_init(&room, kernels_best(), cols,
                                par_threads(eng->pool), &e),
              &e);
    assert_ok(moments_of_readers(&m, &room, eng->pool, l, &e), &e);
    for (size_t i = 0; i < cols; i += 37)
        for (size_t j = 0; j <= i; j += 19) {
            double want = read_pair(&l->attn.q_proj, l->input_norm, i, j) +
                          read_pair(&l->attn.k_proj, l->input_norm, i, j) +
                          read_pair(&l->attn.v_proj, l->input_norm, i, j) +
                          read_pair(&l->mlp.gate_proj, l->post_norm, i, j) +
                          read_pair(&l->mlp.up_proj, l->post_norm, i, j);
            float scale = sqrtf(m.diagonal[i] * m.diagonal[j]);
            /* sums of 2,560 products in f32 */
            assert_true(fabs((double)m.factor[i * cols + j] - want) <
                        1e-5 * (double)scale);
        }
    moments_room_free(&room);
    moments_free(&m);
    calibration_close(c);
}

/* Experts have the tokens that chose them, and those with few of them share
 * moments. */
static void inputs_of_experts(void **state)
{
    struct calibration *c = calibrate("tests/golden/models/moe", 1, 2);
    const struct moments *shared = NULL;
    size_t n_own = 0, n_shared = 0;
    for (size_t i = 0; i < 64; i++) {
        char name[80];
        snprintf(name, sizeof name, LAYER "mlp.experts.%zu.up_proj.weight", i);
        const struct moments *m = calibration_find(c, name, 0);
        if (!m)
            break;
        assert_true(m->n_tokens >= 64);
        if (shared == m)
            n_shared++;
        else
            n_own++;
        shared = m->n_tokens > 512 ? m : shared;
    }
    assert_true(n_own > 0);
    print_message("%zu of their own, %zu shared\n", n_own, n_shared);
    calibration_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_direct_ones),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(groups_stay_together),
        cmocka_unit_test(feedback_is_better),
        cmocka_unit_test(no_neighbour_is_better),
        cmocka_unit_test(rows_are_independent),
        cmocka_unit_test(feedback_without_cause),
        cmocka_unit_test(inputs_of_a_model),
        cmocka_unit_test(readers_of_an_embedding),
        cmocka_unit_test(inputs_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
