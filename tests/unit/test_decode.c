/* The decode loop with a toy in place of a model: its state is the tokens it
 * was given, its logits favour the last token plus one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "engine/decode.h"

enum { VOCAB = 10, CAP = 8 };

struct toy {
    int32_t tokens[CAP];
    size_t n;       /* evaluated */
    size_t overrun; /* calls beyond CAP */
    float logits[VOCAB];
    int32_t seen[32]; /* by on_token */
    size_t n_seen;
    bool never_ends; /* on_token overrules every end */
    int stop_after;  /* on_token ends, 0: never */
    int fail_at;     /* forward fails, 0: never */
};

static const float *favour(struct toy *t, int32_t id)
{
    memset(t->logits, 0, sizeof t->logits);
    t->logits[id] = 1;
    return t->logits;
}

static int forward(void *state, int32_t token, size_t pos, const float **logits,
                   struct qwick_err *e)
{
    struct toy *t = state;
    assert_int_equal(pos, t->n);
    if (t->fail_at && pos == (size_t)t->fail_at)
        return err_set(e, QWICK_ERR_RUNTIME, "toy: failed");
    if (pos >= CAP) {
        t->overrun++;
        return err_set(e, QWICK_ERR_CONTEXT, "toy: overrun");
    }
    t->tokens[t->n++] = token;
    *logits = favour(t, (token + 1) % VOCAB);
    return 0;
}

static int greedy(void *ctx, const float *logits, int32_t *id,
                  struct qwick_err *e)
{
    (void)ctx;
    (void)e;
    *id = 0;
    for (int32_t i = 1; i < VOCAB; i++)
        if (logits[i] > logits[*id])
            *id = i;
    return 0;
}

static int see(void *ctx, int32_t id, size_t pos, bool *end,
               enum qwick_finish *why, struct qwick_err *e)
{
    struct toy *t = ctx;
    (void)e;
    assert_int_equal(pos, t->n);
    t->seen[t->n_seen++] = id;
    if (t->never_ends)
        *end = false;
    if (t->stop_after && t->n_seen >= (size_t)t->stop_after) {
        *end = true;
        *why = QWICK_FINISH_INTERRUPTED;
    }
    return 0;
}

/* Two tokens, 0 and 1, are the prompt; 2 is likeliest. */
static int run(struct toy *t, size_t budget, const int32_t *stop, size_t n_stop,
               enum qwick_finish *why, struct qwick_err *e)
{
    struct decode_loop l = {.rules = {stop, n_stop, budget, CAP},
                            .forward = forward,
                            .state = t,
                            .select = greedy,
                            .on_token = see,
                            .ctx = t};
    t->tokens[1] = 1;
    t->n = 2;
    return decode_run(&l, favour(t, 2), t->n, why, e);
}

static void ends_at_the_first_stop_id_which_is_seen(void **state)
{
    (void)state;
    const int32_t stop[] = {9, 5, 4};
    enum qwick_finish why;
    struct toy t = {0};
    assert_int_equal(run(&t, 0, stop, 3, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_STOP);
    assert_int_equal(t.n_seen, 3);
    assert_int_equal(t.seen[2], 4);
    /* all but the newest token were evaluated */
    assert_int_equal(t.n, 4);
}

static void budget_counts_tokens_seen(void **state)
{
    (void)state;
    enum qwick_finish why;
    for (size_t budget = 1; budget <= 5; budget++) {
        struct toy t = {0};
        assert_int_equal(run(&t, budget, NULL, 0, &why, NULL), 0);
        assert_int_equal(why, QWICK_FINISH_LENGTH);
        assert_int_equal(t.n_seen, budget);
        assert_int_equal(t.n, 2 + budget - 1);
    }
    /* a stop id says more than the budget that ends with it */
    const int32_t stop = 3;
    struct toy t = {0};
    assert_int_equal(run(&t, 2, &stop, 1, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_STOP);
}

static void a_full_state_ends_it(void **state)
{
    (void)state;
    enum qwick_finish why;
    struct toy t = {0};
    assert_int_equal(run(&t, 0, NULL, 0, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_CONTEXT);
    assert_int_equal(t.n, CAP);
    assert_int_equal(t.n_seen, CAP - 2 + 1); /* the last needs no place */
    assert_int_equal(t.overrun, 0);
}

/* Going on beyond the state's end is an error before the model is asked. */
static void overflow_is_an_error(void **state)
{
    (void)state;
    enum qwick_finish why;
    struct qwick_err e;
    struct toy t = {.never_ends = true};
    assert_int_equal(run(&t, 0, NULL, 0, &why, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_non_null(strstr(e.msg, "full with 8 tokens"));
    assert_int_equal(t.n, CAP);
    assert_int_equal(t.overrun, 0);
    for (int32_t i = 0; i < CAP; i++)
        assert_int_equal(t.tokens[i], i);
}

static void callbacks_end_and_fail_it(void **state)
{
    (void)state;
    enum qwick_finish why;
    struct qwick_err e;
    struct toy t = {.stop_after = 2};
    assert_int_equal(run(&t, 0, NULL, 0, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_INTERRUPTED);
    assert_int_equal(t.n_seen, 2);
    struct toy bad = {.fail_at = 4};
    assert_int_equal(run(&bad, 0, NULL, 0, &why, &e), -1);
    assert_string_equal(e.msg, "toy: failed");
    assert_int_equal(bad.n, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_at_the_first_stop_id_which_is_seen),
        cmocka_unit_test(budget_counts_tokens_seen),
        cmocka_unit_test(a_full_state_ends_it),
        cmocka_unit_test(overflow_is_an_error),
        cmocka_unit_test(callbacks_end_and_fail_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
