/* Principal components: against axes that are known, and signs and ties. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/vectors/pca.h"
#include "lcg.h"
#include "test.h"

enum { N = 300, DIM = 37 };

static double from_minus_1_to_1(void)
{
    return 2 * uniform() - 1;
}

/* Vectors with variances of 9, 4 and small ones along orthonormal axes, which
 * are given in axes [2, DIM], around a mean that is not 0. */
static void make_cloud(float *x, double *axes)
{
    double *u = axes, *v = axes + DIM, uu = 0, uv = 0, vv = 0;
    below_state = 5;
    for (size_t k = 0; k < DIM; k++) {
        u[k] = from_minus_1_to_1();
        v[k] = from_minus_1_to_1();
        /* the largest component of an axis, which decides its sign, is clear */
        u[k] += k == 3 ? 3 : 0;
        v[k] -= k == 20 ? 3 : 0;
        uu += u[k] * u[k];
        uv += u[k] * v[k];
    }
    for (size_t k = 0; k < DIM; k++) {
        v[k] -= uv / uu * u[k];
        u[k] /= sqrt(uu);
        vv += v[k] * v[k];
    }
    for (size_t k = 0; k < DIM; k++)
        v[k] /= sqrt(vv);
    for (size_t i = 0; i < N; i++) {
        double a = 3 * from_minus_1_to_1(), b = 2 * from_minus_1_to_1();
        for (size_t k = 0; k < DIM; k++)
            x[i * DIM + k] =
                (float)(5 + a * u[k] + b * v[k] + 0.01 * from_minus_1_to_1());
    }
}

/* The place of a vector along an axis, but for the mean; the largest component
 * of the axis counts as positive. */
static double along(const float *row, const double *axis)
{
    double sum = 0;
    size_t most = 0;
    for (size_t k = 0; k < DIM; k++) {
        sum += (double)row[k] * axis[k];
        if (fabs(axis[k]) > fabs(axis[most]))
            most = k;
    }
    return axis[most] < 0 ? -sum : sum;
}

static void axes_of_a_cloud_are_found(void **state)
{
    static float x[N * DIM];
    double axes[2 * DIM];
    struct pca r;
    struct qwick_err e;
    make_cloud(x, axes);
    assert_ok(pca_find(x, N, DIM, &r, &e), &e);
    for (size_t a = 0; a < PCA_AXES; a++) {
        double mean = 0;
        for (size_t i = 0; i < N; i++)
            mean += along(x + i * DIM, axes + a * DIM) / N;
        /* the noise of 0.01 in each number, and the correlation that 300 drawn
           numbers have by chance, turn the axes by a few hundredths */
        for (size_t i = 0; i < N; i++) {
            double want = along(x + i * DIM, axes + a * DIM) - mean;
            if (fabs(r.at[i * PCA_AXES + a] - want) > 0.4)
                fail_msg("axis %zu, vector %zu: %g, not %g", a, i,
                         r.at[i * PCA_AXES + a], want);
        }
    }
    assert_true(r.share[0] > r.share[1] && r.share[1] > 0.2);
    assert_true(r.share[0] + r.share[1] > 0.99 &&
                r.share[0] + r.share[1] <= 1 + 1e-12);
    /* places along two axes are not correlated */
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < N; i++) {
        ab += r.at[2 * i] * r.at[2 * i + 1];
        aa += r.at[2 * i] * r.at[2 * i];
        bb += r.at[2 * i + 1] * r.at[2 * i + 1];
    }
    assert_true(fabs(ab) < 1e-5 * sqrt(aa * bb));
    free(r.at);
}

static void equal_vectors_give_equal_maps(void **state)
{
    static float x[N * DIM];
    double axes[2 * DIM];
    struct pca a, b;
    struct qwick_err e;
    make_cloud(x, axes);
    assert_ok(pca_find(x, N, DIM, &a, &e), &e);
    assert_ok(pca_find(x, N, DIM, &b, &e), &e);
    assert_memory_equal(a.at, b.at, N * PCA_AXES * sizeof(*a.at));
    free(b.at);
    /* mirrored vectors have mirrored places, whose axes get the same signs */
    for (size_t i = 0; i < N * DIM; i++)
        x[i] = -x[i];
    assert_ok(pca_find(x, N, DIM, &b, &e), &e);
    for (size_t i = 0; i < N * PCA_AXES; i++)
        assert_true(fabs(a.at[i] + b.at[i]) < 1e-4);
    free(a.at);
    free(b.at);
}

static void no_variance_gives_zeros(void **state)
{
    const float same[] = {1, 2, 3, 1, 2, 3, 1, 2, 3},
                line[] = {0, 0, 3, 4, 6, 8};
    struct pca r;
    struct qwick_err e;
    for (size_t n = 0; n <= 3; n++) {
        assert_ok(pca_find(same, n, 3, &r, &e), &e);
        assert_true(r.share[0] == 0 && r.share[1] == 0);
        for (size_t i = 0; i < n * PCA_AXES; i++)
            assert_true(r.at[i] == 0);
        free(r.at);
    }
    assert_ok(pca_find(line, 3, 2, &r, &e), &e);
    assert_true(fabs(r.at[0] + 5) < 1e-9 && fabs(r.at[4] - 5) < 1e-9);
    assert_true(r.at[1] == 0 && r.at[3] == 0 && r.share[1] == 0);
    free(r.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_of_a_cloud_are_found),
        cmocka_unit_test(equal_vectors_give_equal_maps),
        cmocka_unit_test(no_variance_gives_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
