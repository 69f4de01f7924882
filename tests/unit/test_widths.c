/* Widths under a budget: what is measured is what the result loses, what sets
 * save is divided among items, and the choice is never worse than one width for
 * all. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/widths.h"
#include "lcg.h"
#include "qwick_tools.h"

/* ---- fitting ------------------------------------------------------------- */

enum { N_WIDTHS = 6, LAYERS = 4, ROLES = 3, ITEMS = LAYERS * ROLES };

static void make_items(struct widths_item *items)
{
    static size_t matrix[1];
    for (size_t i = 0; i < ITEMS; i++)
        items[i] = (struct widths_item){
            .ref = {.id = (enum weight_id)(WEIGHT_Q_PROJ + i % ROLES),
                    .layer = i / ROLES},
            .group = i / ROLES,
            .matrices = matrix,
            .n_matrices = 1};
}

static void sums_come_back(void **state)
{
    struct widths_item items[ITEMS];
    struct widths_set sets[LAYERS + ROLES];
    double x[ITEMS], truth[ITEMS];
    (void)state;
    make_items(items);
    for (size_t i = 0; i < LAYERS + ROLES; i++)
        sets[i] = i < LAYERS
                      ? (struct widths_set){SET_GROUP, i, 0}
                      : (struct widths_set){SET_ROLE,
                                            WEIGHT_Q_PROJ + i - LAYERS, 0};
    /* what a layer and a role do to a loss, and shares that know nothing */
    for (size_t i = 0; i < ITEMS; i++) {
        truth[i] = (double)(1 + i / ROLES) * (double)(1 + 2 * (i % ROLES));
        x[i] = 1;
        sets[i / ROLES].total += truth[i];
        sets[LAYERS + i % ROLES].total += 0.7 * truth[i]; /* interactions */
    }
    widths_fit(x, items, ITEMS, sets, LAYERS + ROLES);
    for (size_t i = 0; i < ITEMS; i++)
        assert_true(fabs(x[i] - truth[i]) < 1e-6 * truth[i]);
}

/* Noise may make a total negative: no item then gains by losing bits. */
static void negative_totals_are_raised(void **state)
{
    struct widths_item items[ITEMS];
    struct widths_set sets[LAYERS];
    double x[ITEMS];
    (void)state;
    make_items(items);
    for (size_t i = 0; i < ITEMS; i++)
        x[i] = 1;
    for (size_t i = 0; i < LAYERS; i++)
        sets[i] = (struct widths_set){SET_GROUP, i, i ? 1 : -1};
    widths_fit(x, items, ITEMS, sets, LAYERS);
    for (size_t i = 0; i < ITEMS; i++)
        assert_true(x[i] > 0 && (i / ROLES == 0) == (x[i] < 0.1));
}

static void losses_fall_with_bits(void **state)
{
    struct widths_item m = {.up = 0.3, .down = 2};
    (void)state;
    for (size_t b = 0; b < N_WIDTHS; b++)
        m.share[b] = pow(4, -(double)b);
    for (size_t base = 0; base < N_WIDTHS; base++) {
        const struct widths_range r = {
            base ? base - 1 : 0, base,
            base + 1 < N_WIDTHS ? base + 1 : base};
        widths_set_losses(&m, N_WIDTHS, &r);
        for (size_t b = 1; b < N_WIDTHS; b++)
            if (b <= base || base + 1 < N_WIDTHS)
                assert_true(m.choices[b].loss < m.choices[b - 1].loss);
        if (base + 1 < N_WIDTHS)
            assert_true(fabs(m.choices[base].loss - m.choices[base + 1].loss -
                             0.3) < 1e-9);
        if (base)
            assert_true(fabs(m.choices[base - 1].loss - m.choices[base].loss -
                             2) < 1e-9);
    }
}

/* ---- measuring ----------------------------------------------------------- */

static struct qwick_engine *open_exact(const char *path)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_err e;
    o.model = path;
    o.exact = true;
    assert_ok(qwick_engine_open(&eng, &o, &e), &e);
    return eng;
}

/* The tokens of texts that are measured: all fit. */
enum { MAX_TEXTS = 64, MAX_PIECE = 256 };

/* The mean divergence of a result from its source over the beginnings of texts,
 * and the number of tokens in *n_measured. */
static double divergence_of(const char *result, const char *src,
                            const struct calibration_text *texts, size_t n,
                            size_t *n_measured)
{
    static struct qwick_token_loss losses[MAX_TEXTS][MAX_PIECE];
    struct qwick_compare_item items[MAX_TEXTS];
    struct qwick_engine *eng = open_exact(result), *source = open_exact(src);
    struct qwick_err e;
    double sum = 0;
    size_t n_items = 0;
    assert_true(n <= MAX_TEXTS);
    for (size_t i = 0; i < n; i++)
        if (texts[i].n > 1) {
            items[n_items] = (struct qwick_compare_item){
                .tokens = texts[i].tokens,
                .n = texts[i].n < MAX_PIECE ? texts[i].n : MAX_PIECE,
                .n_given = 1,
                .losses = losses[n_items]};
            n_items++;
        }
    assert_ok(qwick_compare(eng, source, items, n_items, NULL, &e), &e);
    *n_measured = 0;
    for (size_t i = 0; i < n_items; i++)
        for (size_t k = 1; k < items[i].n; k++, ++*n_measured)
            sum += losses[i][k].kl;
    qwick_engine_close(eng);
    qwick_engine_close(source);
    return sum / (double)*n_measured;
}

static void on_width(void *ctx, const struct qwick_width *width)
{
    size_t *n = ctx;
    *n += width->n_weights;
    assert_true(width->bits >= 2 && width->bits <= 16 && width->loss >= 0);
}

/* Measured in memory, and in the file that comes of it. */
static void check_result(const char *src, enum qwick_quantize_format format,
                         double bpw)
{
    static char dir[] = "build/test_widths.XXXXXX";
    struct qwick_quantize_options o = qwick_quantize_defaults();
    struct qwick_quantize_report r;
    struct calibration *c;
    struct qwick_err e;
    char path[64], remove[96];
    size_t n_texts, n, n_weights = 0;
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/%s", dir,
             format == QWICK_QUANTIZE_GGUF ? "to.gguf" : "to");
    o.format = format;
    o.calibrate_self = 1;
    o.bpw = bpw;
    o.on_width = on_width;
    o.on_width_ctx = &n_weights;
    assert_ok(qwick_quantize(src, path, &o, &r, &e), &e);
    o.bpw = 0;
    assert_ok(calibration_open(&c, src, &o, &e), &e);
    const struct calibration_text *texts = calibration_texts(c, &n_texts);
    double kl = divergence_of(path, src, texts, n_texts, &n);
    assert_int_equal(r.n_measured, n);
    print_message("%s, %g bits: KL %.6f, in the file %.6f; %d bits for all: "
                  "%.6f\n",
                  src ? src : "demo", bpw, r.kl, kl, r.uniform_bits,
                  r.uniform_kl);
    assert_true(fabs(r.kl - kl) <= 1e-9 * kl);
    assert_true(r.kl <= r.uniform_kl);
    assert_true(n_weights > 0 && n_weights <= r.n_params);
    calibration_close(c);
    snprintf(remove, sizeof remove, "rm -r %s", dir);
    assert_int_equal(system(remove), 0);
}

static void measured_is_what_comes(void **state)
{
    static const char moe[] = "tests/golden/models/moe";
    (void)state;
    check_result(NULL, QWICK_QUANTIZE_MLX, 3.6);
    check_result(NULL, QWICK_QUANTIZE_GGUF, 3.7);
    check_result(moe, QWICK_QUANTIZE_MLX, 6.6);
    check_result(moe, QWICK_QUANTIZE_GGUF, 8.6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_come_back),
        cmocka_unit_test(negative_totals_are_raised),
        cmocka_unit_test(losses_fall_with_bits),
        cmocka_unit_test(measured_is_what_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
