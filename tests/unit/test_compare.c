/* What a model has lost against a reference: the divergence of two rows, its
 * means with their intervals, and whole models. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/par.h"
#include "engine/core/engine.h"
#include "engine/tasks/divergence.h"
#include "engines.h"
#include "lcg.h"
#include "qwick_tools.h"

#define SMALL "tests/golden/models/tied-bf16"
#define OTHER "tests/golden/models/mlx8"

/* ---- rows --------------------------------------------------------------- */

/* By the definition, in long double: sum of R ln(R / P). */
static double direct(const float *p, const float *r, size_t n)
{
    long double sum_p = 0, sum_r = 0, kl = 0, max_p = -INFINITY, max_r = max_p;
    for (size_t i = 0; i < n; i++) {
        max_p = fmaxl(max_p, p[i]);
        max_r = fmaxl(max_r, r[i]);
    }
    for (size_t i = 0; i < n; i++) {
        sum_p += expl(p[i] - max_p);
        sum_r += expl(r[i] - max_r);
    }
    for (size_t i = 0; i < n; i++) {
        long double log_p = p[i] - max_p - logl(sum_p);
        long double log_r = r[i] - max_r - logl(sum_r);
        kl += expl(log_r) * (log_r - log_p);
    }
    return (double)kl;
}

static float *random_row(size_t n, float scale, float offset)
{
    float *row = malloc(n * sizeof *row);
    for (size_t i = 0; i < n; i++)
        row[i] = offset + scale * (float)(uniform() + uniform() - 1);
    return row;
}

static void rows_by_the_definition(void **state)
{
    const float scales[] = {0.001f, 1, 30, 3000};
    const size_t sizes[] = {1, 2, 7, 63, 4095, 4096, 4097, 20011, 300007};
    struct par_pool *pool = par_create(2);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (size_t s = 0; s < 4; s++) {
            size_t n = sizes[k];
            below_state = (uint32_t)(k * 4 + s);
            float *p = random_row(n, scales[s], 1000);
            float *r = random_row(n, scales[s], -20);
            struct divergence d = divergence(p, r, n, NULL);
            double want = direct(p, r, n), top = fmax(1, want);
            /* sums of n products in double, of at most the logits' range */
            assert_true(fabs(d.kl - want) <=
                        1e-16 * ((double)n + 64) * (4 * scales[s] + 1) * top);
            assert_true(d.kl >= 0);
            struct divergence two = divergence(p, r, n, pool);
            assert_true(two.kl == d.kl && two.same_top == d.same_top);
            assert_true(divergence(p, p, n, pool).kl == 0);
            assert_true(divergence(r, r, n, NULL).same_top);
            free(p);
            free(r);
        }
    par_free(pool);
}

static void extreme_rows(void **state)
{
    const float big[] = {3e38f, -3e38f, 0}, other[] = {-3e38f, 3e38f, 0};
    const float none[] = {1, -INFINITY, 2}, some[] = {1, 0, 2};
    const float equal[] = {5, 5, 5}, tiny[] = {1e-40f, 0, -1e-40f};
    assert_true(divergence(big, big, 3, NULL).kl == 0);
    struct divergence d = divergence(other, big, 3, NULL);
    assert_true(d.kl >= 5.9e38 && isfinite(d.kl) && !d.same_top);
    /* an id that only P excludes costs everything, one that only R excludes a
     * part, and one that both exclude nothing */
    assert_true(divergence(none, some, 3, NULL).kl == INFINITY);
    assert_true(fabs(divergence(some, none, 3, NULL).kl -
                     log1p(exp(-1) / (1 + exp(1)))) < 1e-15);
    assert_true(divergence(none, none, 3, NULL).kl == 0);
    /* of equal logits the first one is the top */
    assert_false(divergence(equal, some, 3, NULL).same_top);
    assert_true(divergence(equal, tiny, 3, NULL).same_top);
    assert_true(divergence(equal, tiny, 3, NULL).kl < 1e-15);
}

/* ---- means and intervals ------------------------------------------------ */

static struct qwick_loss_summary summary_of(const struct qwick_losses *l)
{
    struct qwick_loss_summary s;
    struct qwick_err e;
    assert_ok(qwick_losses_summary(l, &s, &e), &e);
    return s;
}

static struct qwick_losses *new_losses(void)
{
    struct qwick_losses *l;
    struct qwick_err e;
    assert_ok(qwick_losses_create(&l, &e), &e);
    return l;
}

static void means_of_tokens(void **state)
{
    enum { N = 1000 };
    struct qwick_token_loss v[N];
    struct qwick_losses *l = new_losses();
    struct qwick_loss_summary s = summary_of(l);
    struct qwick_err e;
    assert_true(s.n_tokens == 0 && isnan(s.kl.value) && isnan(s.kl_max));
    for (int i = 0; i < N; i++)
        v[i] = (struct qwick_token_loss){i + 1, -2, -1.5, i % 4 != 0};
    assert_ok(qwick_losses_add(l, v, 3, &e), &e);
    s = summary_of(l);
    assert_true(s.n_blocks == 1 && s.kl.value == 2 && isnan(s.kl.low) &&
                isnan(s.ratio.high) && s.kl_p99 == 3);
    assert_ok(qwick_losses_add(l, v, 0, &e), &e);
    assert_ok(qwick_losses_add(l, v + 3, N - 3, &e), &e);
    s = summary_of(l);
    assert_int_equal(s.n_tokens, N);
    assert_int_equal(s.n_blocks, 1 + 8);
    assert_true(s.kl.value == 500.5 && s.kl_p99 == 990 && s.kl_max == 1000);
    assert_true(s.agreement.value == 0.75);
    assert_true(fabs(s.perplexity.value - exp(2)) < 1e-12);
    assert_true(fabs(s.reference_perplexity.value - exp(1.5)) < 1e-12);
    assert_true(fabs(s.ratio.value - exp(0.5)) < 1e-12);
    assert_true(fabs(s.ratio.low - exp(0.5)) < 1e-9); /* all are the same */
    assert_true(s.kl.low < 500.5 && s.kl.low >= 0 && s.kl.high > 500.5);
    assert_true(s.agreement.low > 0.7 && s.agreement.high <= 1);
    qwick_losses_free(l);
}

/* Texts whose tokens share a part of their loss. */
static void add_text(struct qwick_losses *l, size_t n)
{
    struct qwick_token_loss v[300];
    struct qwick_err e;
    double shared = uniform();
    for (size_t i = 0; i < n; i++) {
        double kl = shared * (0.5 + uniform());
        v[i] = (struct qwick_token_loss){kl, -1 - kl, -1, uniform() < 0.8};
    }
    assert_ok(qwick_losses_add(l, v, n, &e), &e);
}

static void intervals_cover_the_mean(void **state)
{
    enum { ROUNDS = 1000 };
    int kl = 0, same = 0, ratio = 0;
    below_state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct qwick_losses *l = new_losses();
        for (int i = 0; i < 30; i++)
            add_text(l, 20 + below(100));
        struct qwick_loss_summary s = summary_of(l);
        kl += s.kl.low <= 0.5 && 0.5 <= s.kl.high;
        same += s.agreement.low <= 0.8 && 0.8 <= s.agreement.high;
        ratio += s.ratio.low <= exp(0.5) && exp(0.5) <= s.ratio.high;
        qwick_losses_free(l);
    }
    /* 95% of the rounds, within four standard deviations (0.7% each), and
     * another 2% because 30 blocks are few */
    assert_in_range(kl, 0.90 * ROUNDS, 0.98 * ROUNDS);
    assert_in_range(same, 0.90 * ROUNDS, 0.98 * ROUNDS);
    assert_in_range(ratio, 0.90 * ROUNDS, 0.98 * ROUNDS);
}

/* ---- models ------------------------------------------------------------- */

enum { N_ITEMS = 7 };

static void make_items(struct qwick_compare_item *items, size_t most)
{
    for (size_t i = 0; i < N_ITEMS; i++) {
        size_t n = i == 3 ? 0 : 1 + i * most / N_ITEMS;
        int32_t *ids = calloc(n + 1, sizeof *ids);
        for (size_t k = 0; k < n; k++)
            ids[k] = (int32_t)below(256);
        items[i] = (struct qwick_compare_item){
            ids, n, i == 5 ? 9 : 0,
            calloc(n + 1, sizeof(struct qwick_token_loss))};
    }
}

static void free_items(struct qwick_compare_item *items)
{
    for (size_t i = 0; i < N_ITEMS; i++) {
        free((void *)(uintptr_t)items[i].tokens);
        free(items[i].losses);
    }
}

static size_t first_of(const struct qwick_compare_item *it)
{
    return it->n_given ? it->n_given : 1;
}

/* Logits after tokens [0, n). */
static const float *logits_of(struct qwick_session *s, const int32_t *ids,
                              size_t n)
{
    sync_to(s, ids, n);
    return qwick_session_logits(s);
}

static void models_equal_their_sessions(void **state)
{
    struct qwick_engine *a = engine_with(.model = OTHER, .exact = true,
                                         .threads = 2, .prefill_chunk = 7);
    struct qwick_engine *b =
        engine_with(.model = SMALL, .exact = true, .threads = 1);
    const struct qwick_score_options o = {
        .size = sizeof o, .window = 16, .stride = 5};
    struct qwick_compare_item items[N_ITEMS];
    struct qwick_err e;
    size_t n_ids = a->model.config.vocab_size;
    below_state = 2;
    assert_int_equal(n_ids, b->model.config.vocab_size);
    make_items(items, 60);
    assert_ok(qwick_compare(a, b, items, N_ITEMS, &o, &e), &e);
    struct qwick_session *s = open_session(a), *t = open_session(b);
    for (size_t i = 0; i < N_ITEMS; i++)
        for (size_t k = first_of(&items[i]); k < items[i].n; k++) {
            const struct qwick_token_loss *got = &items[i].losses[k];
            /* windows of 16 tokens that move by 5 */
            size_t begin = k < 16 ? 0 : (k - 16) / 5 * 5 + 5;
            begin = begin + 16 > items[i].n && begin ? items[i].n - 16 : begin;
            const int32_t *ids = items[i].tokens + begin;
            const float *p = logits_of(s, ids, k - begin);
            const float *r = logits_of(t, ids, k - begin);
            struct divergence d = divergence(p, r, n_ids, NULL);
            assert_true(got->kl == d.kl && got->same_top == d.same_top);
            assert_true(got->kl > 0 && got->logprob != got->reference);
        }
    qwick_session_free(s);
    qwick_session_free(t);
    free_items(items);
    qwick_engine_close(a);
    qwick_engine_close(b);
}

static void a_model_equals_itself(void **state)
{
    struct qwick_engine *a = engine_with(.threads = 2);
    struct qwick_engine *b = engine_with(.threads = 1);
    struct qwick_compare_item items[N_ITEMS];
    struct qwick_losses *l = new_losses();
    const struct qwick_score_options o = {
        .size = sizeof o, .window = 64, .stride = 16};
    struct qwick_err e;
    make_items(items, 200);
    assert_ok(qwick_compare(a, b, items, N_ITEMS, &o, &e), &e);
    for (size_t i = 0; i < N_ITEMS; i++)
        if (first_of(&items[i]) < items[i].n)
            assert_ok(qwick_losses_add(l, items[i].losses + first_of(&items[i]),
                                       items[i].n - first_of(&items[i]), &e),
                      &e);
    struct qwick_loss_summary s = summary_of(l);
    assert_true(s.kl.value == 0 && s.kl.high == 0 && s.kl_max == 0);
    assert_true(s.agreement.value == 1 && s.agreement.low == 1);
    assert_true(s.ratio.value == 1 && s.ratio.low == 1 && s.ratio.high == 1);
    assert_true(s.perplexity.value == s.reference_perplexity.value);
    /* and the same engine twice */
    assert_ok(qwick_compare(a, a, items, N_ITEMS, &o, &e), &e);
    for (size_t i = 0; i < N_ITEMS; i++)
        for (size_t k = first_of(&items[i]); k < items[i].n; k++)
            assert_true(items[i].losses[k].kl == 0);
    free_items(items);
    qwick_losses_free(l);
    qwick_engine_close(a);
    qwick_engine_close(b);
}

static void compare_refuses(void **state)
{
    struct qwick_engine *demo = engine_with(.threads = 1);
    struct qwick_engine *small = engine_with(.model = SMALL, .threads = 1);
    struct qwick_score_options o = {.size = sizeof o, .window = 1};
    struct qwick_compare_item items[N_ITEMS];
    struct qwick_err e;
    make_items(items, 40);
    assert_int_equal(qwick_compare(demo, small, items, N_ITEMS, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, "vocabularies of 6144 and"));
    assert_int_equal(qwick_compare(demo, demo, items, N_ITEMS, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    o.window = 0;
    volatile int stop = 1;
    o.interrupt = &stop;
    assert_int_equal(qwick_compare(demo, demo, items, N_ITEMS, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    free_items(items);
    qwick_engine_close(demo);
    qwick_engine_close(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_by_the_definition),
        cmocka_unit_test(extreme_rows),
        cmocka_unit_test(means_of_tokens),
        cmocka_unit_test(intervals_cover_the_mean),
        cmocka_unit_test(models_equal_their_sessions),
        cmocka_unit_test(a_model_equals_itself),
        cmocka_unit_test(compare_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
