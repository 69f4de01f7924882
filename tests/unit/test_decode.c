/* The decode loop with a toy model. Its state is the list of evaluated tokens;
 * its logits favour the last token plus one. */
#include "test.h"

#include <string.h>

#include "engine/generate/decode.h"

enum { VOCAB = 10, CAP = 8 };

struct toy {
    int32_t tokens[CAP];
    size_t n;       /* evaluated */
    size_t overrun; /* calls beyond CAP */
    float logits[VOCAB];
    int32_t seen[32]; /* tokens that on_token got */
    size_t n_seen;
    bool never_ends; /* on_token overrules every end */
    int stop_after;  /* on_token ends the answer after so many tokens; 0:
                        never */
    int fail_at;     /* forward fails at this call; 0: never */
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
    if (t->fail_at && pos >= (size_t)t->fail_at)
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

/* Run the loop after the prompt 0, 1; the likeliest next token is 2. */
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
    const int32_t stop[] = {9, 5, 4};
    enum qwick_finish why;
    struct toy t = {0};
    assert_int_equal(run(&t, 0, stop, 3, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_STOP);
    assert_int_equal(t.n_seen, 3);
    assert_int_equal(t.seen[2], 4);
    /* all tokens except the last were evaluated */
    assert_int_equal(t.n, 4);
}

static void budget_counts_tokens_seen(void **state)
{
    enum qwick_finish why;
    for (size_t budget = 1; budget <= 5; budget++) {
        struct toy t = {0};
        assert_int_equal(run(&t, budget, NULL, 0, &why, NULL), 0);
        assert_int_equal(why, QWICK_FINISH_LENGTH);
        assert_int_equal(t.n_seen, budget);
        assert_int_equal(t.n, 2 + budget - 1);
    }
    /* the finish reason of a stop id has priority over the budget */
    const int32_t stop = 3;
    struct toy t = {0};
    assert_int_equal(run(&t, 2, &stop, 1, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_STOP);
}

static void a_full_state_ends_it(void **state)
{
    enum qwick_finish why;
    struct toy t = {0};
    assert_int_equal(run(&t, 0, NULL, 0, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_CONTEXT);
    assert_int_equal(t.n, CAP);
    assert_int_equal(t.n_seen, CAP - 2 + 1); /* the last token needs no
                                                position */
    assert_int_equal(t.overrun, 0);
}

/* Going on beyond the end of the state is an error, and the model is not
 * called. */
static void overflow_is_an_error(void **state)
{
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

/* ---- guesses ------------------------------------------------------------- */

enum { STRIDE = VOCAB + 3, MOST = 6 };

/* A guess has `len` tokens. The first `right` of them are right. */
struct guesser {
    struct toy toy;
    size_t len, right;
    size_t budget;       /* budget of the run */
    const int32_t *stop; /* [n_stop] */
    size_t n_stop;
    float rows[1 + MOST][STRIDE];
    size_t n_passes, n_drafted, n_kept; /* counted by forward_all and keep */
    bool fail_guess;
};

static int guess(void *ctx, int32_t *drafts, size_t max, size_t *n,
                 struct qwick_err *e)
{
    struct guesser *g = ctx;
    int32_t last = g->toy.seen[g->toy.n_seen - 1];
    assert_in_range(max, 1, MOST);
    if (g->fail_guess)
        return err_set(e, QWICK_ERR_MEMORY, "guess: failed");
    *n = g->len < max ? g->len : max;
    for (size_t i = 0; i < *n; i++)
        drafts[i] = (last + 1 + (int32_t)i + (i >= g->right)) % VOCAB;
    return 0;
}

static int forward_all(void *state, const int32_t *tokens, size_t n, size_t pos,
                       const float **rows, struct qwick_err *e)
{
    struct guesser *g = state;
    struct toy *t = &g->toy;
    assert_in_range(n, 2, 1 + MOST);
    assert_int_equal(pos, t->n);
    assert_int_equal(tokens[0], t->seen[t->n_seen - 1]);
    /* no guess beyond the limits is evaluated */
    assert_true(pos + n <= CAP);
    if (g->budget)
        assert_true(t->n_seen + n <= g->budget);
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < g->n_stop; j++)
            assert_int_not_equal(tokens[i], g->stop[j]);
    g->n_passes++;
    g->n_drafted += n - 1;
    if (t->fail_at && pos >= (size_t)t->fail_at)
        return err_set(e, QWICK_ERR_RUNTIME, "toy: failed");
    memset(g->rows, 0, sizeof g->rows);
    for (size_t i = 0; i < n; i++) {
        t->tokens[t->n++] = tokens[i];
        g->rows[i][(tokens[i] + 1) % VOCAB] = 1;
        g->rows[i][VOCAB] = 9; /* beyond the row: must not be read */
    }
    *rows = g->rows[0];
    return 0;
}

static void keep(void *state, size_t n)
{
    struct guesser *g = state;
    assert_in_range(n, 1, g->toy.n - 1);
    g->toy.n = n;
    g->n_kept++;
}

static int guesser_forward(void *state, int32_t token, size_t pos,
                           const float **logits, struct qwick_err *e)
{
    struct guesser *g = state;
    g->n_passes++;
    return forward(&g->toy, token, pos, logits, e);
}

/* The state holds the chosen tokens, and perhaps guesses after them. */
static int guesser_see(void *ctx, int32_t id, size_t pos, bool *end,
                       enum qwick_finish *why, struct qwick_err *e)
{
    struct guesser *g = ctx;
    struct toy *t = &g->toy;
    size_t n = t->n;
    assert_in_range(pos, 2, n);
    assert_int_equal(t->tokens[pos - 1],
                     t->n_seen ? t->seen[t->n_seen - 1] : 1);
    t->n = pos;
    int rc = see(t, id, pos, end, why, e);
    t->n = n;
    return rc;
}

static int run_guesses(struct guesser *g, struct decode_draft *d,
                       enum qwick_finish *why, struct qwick_err *e)
{
    int32_t room[1 + MOST];
    struct toy *t = &g->toy;
    *d = (struct decode_draft){.guess = guess,
                               .forward_all = forward_all,
                               .keep = keep,
                               .stride = STRIDE,
                               .tokens = room,
                               .max = MOST};
    struct decode_loop l = {.rules = {g->stop, g->n_stop, g->budget, CAP},
                            .forward = guesser_forward,
                            .state = g,
                            .select = greedy,
                            .on_token = guesser_see,
                            .ctx = g,
                            .draft = d};
    t->tokens[1] = 1;
    t->n = 2;
    return decode_run(&l, favour(t, 2), t->n, why, e);
}

/* Check for one kind of end that guesses change nothing. */
static void compare(const struct toy *setup, size_t budget, const int32_t *stop,
                    size_t n_stop)
{
    struct toy plain = *setup;
    enum qwick_finish why, why_too;
    struct qwick_err e = {0}, e_too = {0};
    int rc = run(&plain, budget, stop, n_stop, &why, &e);
    for (size_t len = 0; len <= MOST; len++) {
        for (size_t right = 0; right <= len; right++) {
            struct guesser g = {.toy = *setup,
                                .len = len,
                                .right = right,
                                .budget = setup->never_ends ? 0 : budget,
                                .stop = stop,
                                .n_stop = n_stop};
            struct decode_draft d;
            why = why_too = QWICK_FINISH_LOOP;
            plain = *setup;
            run(&plain, budget, stop, n_stop, &why, &e);
            assert_int_equal(run_guesses(&g, &d, &why_too, &e_too), rc);
            assert_int_equal(why_too, why);
            assert_int_equal(e_too.code, e.code);
            assert_string_equal(e_too.msg, e.msg);
            assert_int_equal(g.toy.n_seen, plain.n_seen);
            assert_memory_equal(g.toy.seen, plain.seen, sizeof plain.seen);
            assert_int_equal(g.toy.n, plain.n);
            assert_memory_equal(g.toy.tokens, plain.tokens,
                                plain.n * sizeof *plain.tokens);
            assert_int_equal(g.toy.overrun, 0);
            if (!setup->fail_at)
                assert_int_equal(d.n_drafted, g.n_drafted);
            assert_true(d.n_accepted <= d.n_drafted);
            assert_true(right || !d.n_accepted);
            /* a pass gives one token plus the accepted guesses */
            if (rc == 0)
                assert_int_equal(g.n_passes + d.n_accepted, plain.n_seen - 1);
        }
    }
}

static void guesses_change_nothing(void **state)
{
    const int32_t stop[] = {9, 5, 4};
    const struct toy plain = {0};
    compare(&plain, 0, NULL, 0);
    for (size_t n = 1; n <= 3; n++)
        compare(&plain, 0, stop, n);
    for (size_t budget = 1; budget <= 8; budget++) {
        compare(&plain, budget, NULL, 0);
        compare(&plain, budget, stop, 2);
    }
    /* ends and failures at every place within a run of guesses */
    for (int i = 1; i <= 8; i++) {
        const struct toy ends = {.stop_after = i};
        compare(&ends, 0, NULL, 0);
    }
    const struct toy never = {.never_ends = true};
    compare(&never, 0, NULL, 0);
}

/* A pass that fails leaves the tokens that were chosen before it. */
static void guesses_and_failures(void **state)
{
    /* later tokens may be in the last pass */
    for (int at = 2; at <= 5; at++) {
        for (size_t right = 0; right <= 3; right++) {
            struct guesser g = {
                .toy = {.fail_at = at}, .len = 3, .right = right};
            struct decode_draft d;
            enum qwick_finish why;
            struct qwick_err e;
            assert_int_equal(run_guesses(&g, &d, &why, &e), -1);
            assert_string_equal(e.msg, "toy: failed");
            assert_true(g.toy.n >= (size_t)at);
            assert_int_equal(g.toy.n, 2 + g.toy.n_seen - 1);
            for (int32_t i = 0; i < (int32_t)g.toy.n; i++)
                assert_int_equal(g.toy.tokens[i], i);
        }
    }
    struct guesser g = {.fail_guess = true};
    struct decode_draft d;
    enum qwick_finish why;
    struct qwick_err e;
    assert_int_equal(run_guesses(&g, &d, &why, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_int_equal(g.toy.n, 2);
}

/* If all guesses are right, two passes replace six. */
static void right_guesses_save_passes(void **state)
{
    struct guesser g = {.len = 2, .right = 2};
    struct decode_draft d;
    enum qwick_finish why;
    assert_int_equal(run_guesses(&g, &d, &why, NULL), 0);
    assert_int_equal(why, QWICK_FINISH_CONTEXT);
    assert_int_equal(g.toy.n, CAP);
    assert_int_equal(g.n_passes, 2);
    assert_int_equal(d.n_passes, 2);
    assert_int_equal(d.n_drafted, 4);
    assert_int_equal(d.n_accepted, 4);
    assert_int_equal(g.n_kept, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_at_the_first_stop_id_which_is_seen),
        cmocka_unit_test(budget_counts_tokens_seen),
        cmocka_unit_test(a_full_state_ends_it),
        cmocka_unit_test(overflow_is_an_error),
        cmocka_unit_test(callbacks_end_and_fail_it),
        cmocka_unit_test(guesses_change_nothing),
        cmocka_unit_test(guesses_and_failures),
        cmocka_unit_test(right_guesses_save_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
