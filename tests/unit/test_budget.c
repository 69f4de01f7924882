/* Choosing widths under a budget, against all selections. */
#include "test.h"

#include <math.h>
#include <string.h>

#include "convert/budget.h"
#include "lcg.h"

enum { MAX_ITEMS = 6, CHOICES = 4 };

static double loss_of(const struct budget_choice *c, const size_t *chosen,
                      size_t n, size_t *bytes)
{
    double loss = 0;
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        loss += c[i * CHOICES + chosen[i]].loss;
        *bytes += c[i * CHOICES + chosen[i]].bytes;
    }
    return loss;
}

/* The least loss of all selections within the limit; INFINITY: none fits. */
static double best_of(const struct budget_choice *c, size_t n, size_t limit)
{
    double best = INFINITY;
    size_t total = 1;
    for (size_t i = 0; i < n; i++)
        total *= CHOICES;
    for (size_t k = 0; k < total; k++) {
        size_t chosen[MAX_ITEMS], bytes, rest = k;
        for (size_t i = 0; i < n; i++, rest /= CHOICES)
            chosen[i] = rest % CHOICES;
        double loss = loss_of(c, chosen, n, &bytes);
        if (bytes <= limit && loss < best)
            best = loss;
    }
    return best;
}

/* The largest loss that one change of a choice can save. */
static double largest_step(const struct budget_choice *c, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t a = 0; a < CHOICES; a++)
            for (size_t b = 0; b < CHOICES; b++)
                most = fmax(most,
                            c[i * CHOICES + a].loss - c[i * CHOICES + b].loss);
    return most;
}

/* Widths: more bytes, less loss, convex. random: anything. */
static void make(struct budget_choice *c, size_t n, bool random)
{
    for (size_t i = 0; i < n; i++) {
        size_t unit = 1 + below(50);
        double scale = uniform() * uniform();
        for (size_t k = 0; k < CHOICES; k++)
            c[i * CHOICES + k] =
                random ? (struct budget_choice){below(200), uniform()}
                       : (struct budget_choice){unit * (k + 2),
                                                scale * pow(4, -(double)k)};
    }
}

static void by_all_selections(void **state)
{
    struct budget_choice c[MAX_ITEMS * CHOICES];
    size_t chosen[MAX_ITEMS], bytes, n_best = 0, n_fit = 0;
    struct qwick_err e;
    below_state = 1;
    for (int round = 0; round < 600; round++) {
        size_t n = 1 + below(MAX_ITEMS), limit = below(150 * (uint32_t)n);
        make(c, n, round % 3 == 0);
        double best = best_of(c, n, limit);
        if (best == INFINITY) {
            assert_int_equal(budget_choose(chosen, c, n, CHOICES, limit, &e),
                             -1);
            assert_int_equal(e.code, QWICK_ERR_USAGE);
            continue;
        }
        assert_ok(budget_choose(chosen, c, n, CHOICES, limit, &e), &e);
        double loss = loss_of(c, chosen, n, &bytes);
        assert_true(bytes <= limit);
        assert_true(loss >= best && loss <= best + largest_step(c, n));
        n_fit++;
        n_best += loss <= best * (1 + 1e-12);
    }
    /* where a step does not fit, it may miss the best selection */
    assert_true(n_fit > 300 && n_best * 10 > n_fit * 7);
}

static void the_corners_are_the_best(void **state)
{
    struct budget_choice c[MAX_ITEMS * CHOICES];
    size_t chosen[MAX_ITEMS], bytes;
    struct qwick_err e;
    below_state = 2;
    for (int round = 0; round < 100; round++) {
        make(c, MAX_ITEMS, false);
        /* a limit that some selection of the greedy order fills */
        assert_ok(budget_choose(chosen, c, MAX_ITEMS, CHOICES,
                                600 + below(600), &e),
                  &e);
        double loss = loss_of(c, chosen, MAX_ITEMS, &bytes);
        assert_ok(budget_choose(chosen, c, MAX_ITEMS, CHOICES, SIZE_MAX, &e),
                  &e);
        for (size_t i = 0; i < MAX_ITEMS; i++)
            assert_int_equal(chosen[i], CHOICES - 1);
        assert_true(loss >= loss_of(c, chosen, MAX_ITEMS, &bytes));
    }
}

static void bytes_that_save_nothing_stay(void **state)
{
    const struct budget_choice c[] = {
        {10, 1}, {20, 1}, {30, 1}, {40, 2}, /* more is no better */
        {10, 1}, {20, 0.9}, {30, 0}, {40, 0}, /* 20 is above the hull */
    };
    size_t chosen[2];
    struct qwick_err e;
    assert_ok(budget_choose(chosen, c, 2, CHOICES, 1000, &e), &e);
    assert_true(chosen[0] == 0 && chosen[1] == 2);
    assert_ok(budget_choose(chosen, c, 2, CHOICES, 35, &e), &e);
    assert_true(chosen[0] == 0 && chosen[1] == 1);
    assert_ok(budget_choose(chosen, c, 0, CHOICES, 0, &e), &e);
    assert_int_equal(budget_choose(chosen, c, 2, CHOICES, 19, &e), -1);
    assert_string_equal(e.msg, "the matrices need at least 20 bytes, and 19 "
                               "are left for them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_all_selections),
        cmocka_unit_test(the_corners_are_the_best),
        cmocka_unit_test(bytes_that_save_nothing_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
