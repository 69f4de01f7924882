/* Draft models: the value of guesses, without a model; the distribution of
 * draws; then whole answers, with and without a draft model. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "chi_square.h"
#include "draft_pairs.h"
#include "engine/core/engine.h"
#include "engine/generate/draft_budget.h"
#include "engine/generate/sampler.h"
#include "engines.h"
#include "kernel/kernel.h"
#include "own_sampling.h"

/* ---- the budget --------------------------------------------------------- */

/* What a simulated answer of n tokens costs, in passes with one token, if each
 * guess is right with this probability. */
struct simulated {
    double time;
    size_t n_guesses, n_last; /* guesses; of these, in the last tenth */
};

static struct simulated simulate(struct draft_budget *a, size_t n, double p)
{
    struct simulated r = {0};
    for (size_t i = 0; i < n; i++) {
        size_t right = 0;
        r.time += 1;
        if (!budget_plan(a, 1, 16))
            continue;
        do {
            r.time += a->step;
        } while (budget_take(a, p) && budget_more(a));
        size_t made = a->n;
        r.time += a->row * (double)made + 0.03;
        while (right < made && uniform() < p)
            right++;
        budget_settle(a, right, false);
        r.n_guesses += made;
        if (i >= n - n / 10)
            r.n_last += made;
        i += right;
    }
    return r;
}

static const double costs[][2] = {{0.05, 0.06}, {0.1, 0.06}, {0.3, 0.06},
                                  {0.3, 0.2},   {0.7, 0.36}, {1, 0.4},
                                  {0.1, 1}};
enum { N_COSTS = sizeof costs / sizeof *costs };

static void right_guesses_are_fast(void **state)
{
    below_state = 1;
    for (size_t i = 0; i < 4; i++) {
        struct draft_budget a;
        double step = costs[i][0], row = costs[i][1];
        budget_open(&a, step, row, 0, 1);
        struct simulated r = simulate(&a, 2000, 0.95);
        /* the best constant number of guesses */
        double best = 1, tokens = 1, q = 1;
        for (size_t k = 1; k <= 16; k++) {
            q *= 0.95;
            tokens += q;
            double rate = tokens / (1.03 + (step + row) * (double)k);
            best = rate > best ? rate : best;
        }
        print_message("step %g, row %g: %.2f times as fast, at best %.2f\n",
                      step, row, 2000 / r.time, best);
        /* 10%: learning, and chance */
        assert_true(2000 / r.time > 0.9 * best);
        assert_true(2000 / r.time > 1.2);
    }
}

/* Guesses that do not pay cost at most the opening budget and 1%. */
static void loss_is_limited(void **state)
{
    static const double rates[] = {0, 0.1, 0.3, 0.5};
    below_state = 2;
    for (size_t i = 0; i < N_COSTS; i++) {
        for (size_t k = 0; k < 4; k++) {
            for (size_t n = 10; n <= 10000; n *= 10) {
                struct draft_budget a;
                budget_open(&a, costs[i][0], costs[i][1], 0.01, 1);
                struct simulated r = simulate(&a, n, rates[k]);
                /* 1e-6: sums of doubles */
                assert_true(r.time <= (double)n * 1.01 + 2.01 + 1e-6);
            }
        }
    }
}

/* After bad guesses it tries again, and draws on good ones. */
static void it_comes_back(void **state)
{
    below_state = 3;
    struct draft_budget a;
    budget_open(&a, 0.2, 0.06, 0.01, 1);
    struct simulated bad = simulate(&a, 2000, 0);
    struct simulated good = simulate(&a, 4000, 0.95);
    assert_true(bad.n_last < 20);
    assert_true(good.n_last > 200);
    assert_true(good.time < 3000);
}

/* What the draft model lacks counts against the budget. */
static void long_prompts_cost(void **state)
{
    struct draft_budget a;
    budget_open(&a, 0.1, 0.06, 0.01, 1);
    size_t n = budget_affords(&a);
    assert_true(n > 100 && n < 200);
    assert_false(budget_plan(&a, n + 10, 16));
    assert_true(budget_plan(&a, n, 16));
    budget_settle(&a, 0, false);
    assert_true(a.balance < 0.5);
    assert_false(budget_plan(&a, 1, 16));
}

/* ---- the sampler --------------------------------------------------------- */

enum { VOCAB = 200, DRAWS = 12000 };

/* Compare counts with expected probabilities; cells with few expected counts
 * are joined. */
static void check_counts(const double *count, const double *p, size_t n,
                         double total)
{
    double chi = 0, rest = 0, rest_p = 0, df = -1;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == 0)
            assert_true(count[i] == 0);
        if (p[i] * total < 8) {
            rest += count[i];
            rest_p += p[i];
            continue;
        }
        double d = count[i] - p[i] * total;
        chi += d * d / (p[i] * total);
        df++;
    }
    if (rest_p * total >= 8) {
        double d = rest - rest_p * total;
        chi += d * d / (rest_p * total);
        df++;
    }
    print_message("chi-square %.1f, %g degrees of freedom\n", chi, df);
    if (df > 0)
        assert_true(chi <= most_chi(df));
}

static void random_logits(float *x, float scale)
{
    for (size_t i = 0; i < VOCAB; i++)
        x[i] = scale * (float)(uniform() + uniform() + uniform() - 1.5);
}

enum { N_SETTINGS = 5 };

static struct qwick_sampling setting(size_t i)
{
    static const struct {
        int top_k;
        float temperature, top_p, min_p, repeat, presence, frequency;
    } rows[N_SETTINGS] = {
        {0, 1, 1, 0, 1, 0, 0},
        {20, 0.7f, 1, 0, 1, 0, 0},
        {0, 1, 0.8f, 0, 1, 0, 0},
        {0, 1.5f, 1, 0.05f, 1, 0, 0},
        {40, 1, 0.9f, 0, 1.3f, 0.5f, 0.2f},
    };
    struct qwick_sampling o = qwick_sampling_neutral();
    o.top_k = rows[i].top_k;
    o.temperature = rows[i].temperature;
    o.top_p = rows[i].top_p;
    o.min_p = rows[i].min_p;
    o.repeat_penalty = rows[i].repeat;
    o.presence_penalty = rows[i].presence;
    o.frequency_penalty = rows[i].frequency;
    return o;
}

/* Draws with a guess have the distribution of draws without one, for guesses
 * from near and from far. */
static void guesses_keep_the_distribution(void **state)
{
    static const float far[] = {0, 0.3f, 2, 8};
    const struct kernels *k = kernels_get(cpu_best());
    uint64_t allowed[(VOCAB + 63) / 64];
    below_state = 4;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        for (size_t f = 0; f < 4; f++) {
            struct qwick_sampling o = setting(i);
            struct sampler *s;
            float p[VOCAB], q[VOCAB], noise[VOCAB], spread[VOCAB];
            double want[VOCAB], count[VOCAB] = {0}, sure;
            size_t right = 0;
            int32_t id, guess;
            random_logits(p, 6);
            random_logits(noise, far[f]);
            for (size_t j = 0; j < VOCAB; j++)
                q[j] = p[j] + noise[j];
            memset(allowed, 0xff, sizeof allowed);
            allowed[1] = i % 2 ? 0x0f0f : allowed[1];
            /* the distribution of the target */
            assert_int_equal(sampler_create(&s, &o, VOCAB, NULL, k, NULL), 0);
            sampler_set_allowed(s, allowed);
            for (int32_t j = 0; j < 30; j += 3)
                sampler_accept(s, j);
            assert_int_equal(sampler_guess(s, p, 0.5, &id, &sure, spread, NULL),
                             0);
            for (size_t j = 0; j < VOCAB; j++)
                want[j] = (double)spread[j];
            sampler_free(s);
            for (uint64_t d = 0; d < DRAWS; d++) {
                o.seed = d;
                assert_int_equal(sampler_create(&s, &o, VOCAB, NULL, k, NULL),
                                 0);
                sampler_set_allowed(s, allowed);
                for (int32_t j = 0; j < 30; j += 3)
                    sampler_accept(s, j);
                double u = rng_uniform(d ^ 0x1234567, 0);
                assert_int_equal(
                    sampler_guess(s, q, u, &guess, &sure, spread, NULL), 0);
                assert_true(spread[guess] > 0);
                assert_int_equal(
                    sampler_draw_guess(s, p, guess, spread, &id, NULL), 0);
                count[id]++;
                right += id == guess;
                sampler_free(s);
            }
            print_message("setting %zu, noise %g: %zu%% right, ", i,
                          (double)far[f], right * 100 / DRAWS);
            check_counts(count, want, VOCAB, DRAWS);
            if (f == 0)
                assert_int_equal(right, DRAWS);
            if (f == 1)
                assert_true(right > DRAWS / 2);
        }
    }
}

/* sampler_undo restores everything that a draw depends on. */
static void undo_restores(void **state)
{
    const struct kernels *k = kernels_get(cpu_best());
    struct qwick_sampling o = setting(4);
    struct sampler *s, *fresh;
    float x[VOCAB];
    below_state = 5;
    random_logits(x, 3);
    for (uint64_t seed = 0; seed < 200; seed++) {
        int32_t ids[20], a, b;
        size_t n = 1 + below(20), keep = below((uint32_t)n);
        o.seed = seed;
        assert_int_equal(sampler_create(&s, &o, VOCAB, NULL, k, NULL), 0);
        assert_int_equal(sampler_create(&fresh, &o, VOCAB, NULL, k, NULL), 0);
        sampler_see_prompt(s, 3);
        sampler_see_prompt(fresh, 3);
        for (size_t i = 0; i < n; i++)
            sampler_accept(s, ids[i] = (int32_t)below(10));
        for (size_t i = n; i-- > keep;)
            sampler_undo(s, ids[i]);
        for (size_t i = 0; i < keep; i++)
            sampler_accept(fresh, ids[i]);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(sampler_draw(s, x, &a, NULL), 0);
            assert_int_equal(sampler_draw(fresh, x, &b, NULL), 0);
            assert_int_equal(a, b);
        }
        sampler_free(s);
        sampler_free(fresh);
    }
}

/* ---- answers --------------------------------------------------------------
 */


/* With the reference kernels a further token costs as much as another pass, so
 * nothing is ever guessed. */
static void skip_without_guesses(void)
{
    if (kernels_best()->tune.row_cost > 0)
        return;
    print_message("SKIP: guesses never pay with the kernels of this CPU\n");
    skip();
}

static struct {
    size_t n_warnings;
    char last[1100];
} logged;

static void log_line(void *ctx, enum qwick_log_level level, const char *line)
{
    (void)ctx;
    if (level != QWICK_LOG_WARNING)
        return;
    logged.n_warnings++;
    snprintf(logged.last, sizeof logged.last, "%s", line);
}

static struct qwick_engine *open_engine(const char *model, bool exact)
{
    return engine_with(.model = model, .exact = exact, .threads = 1,
                       .log = log_line);
}

/* A draft model whose guesses are worth while. */
static struct qwick_engine *open_draft(const char *model, bool exact)
{
    struct qwick_engine *eng = open_engine(model, exact);
    eng->model.step_time = 1;
    return eng;
}

static struct qwick_result answer(struct qwick_session *s, const int32_t *ids,
                                  size_t n, struct qwick_generate_options o,
                                  struct qwick_engine *draft)
{
    struct qwick_result r;
    struct qwick_err e;
    o.draft = draft;
    assert_ok(qwick_generate(s, ids, n, &o, &r, &e), &e);
    return r;
}

static struct qwick_generate_options option_set(size_t i)
{
    struct qwick_generate_options o = draft_options(i, 40);
    if (i == 5)
        o.lookup = 8;
    return o;
}

static void exact_is_the_same(void **state)
{
    int32_t ids[200];
    skip_without_guesses();
    below_state = 6;
    for (size_t k = 0; k < N_PAIRS; k++) {
        struct qwick_engine *eng = open_engine(pairs[k].target, true);
        struct qwick_engine *draft =
            open_draft(pairs[k].draft, pairs[k].draft_exact);
        size_t drafted = 0, accepted = 0, tokens = 0;
        struct qwick_session *plain, *s;
        assert_int_equal(qwick_session_create(&plain, eng, 0, NULL), 0);
        assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
        for (size_t i = 0; i < N_OPTIONS; i++) {
            /* pages of the cache end at 64 tokens; some answers go on after
               the one before */
            size_t n = 20 + below(150), n_a, n_b;
            random_prompt(ids, n);
            struct qwick_result a = answer(plain, ids, n, option_set(i), NULL);
            struct qwick_result b = answer(s, ids, n, option_set(i), draft);
            assert_int_equal(b.n_tokens, a.n_tokens);
            assert_memory_equal(b.tokens, a.tokens,
                                a.n_tokens * sizeof *a.tokens);
            assert_int_equal(b.finish, a.finish);
            const int32_t *x = qwick_session_tokens(plain, &n_a);
            const int32_t *y = qwick_session_tokens(s, &n_b);
            assert_int_equal(n_b, n_a);
            assert_memory_equal(y, x, n_a * sizeof *x);
            assert_memory_equal(
                qwick_session_logits(s), qwick_session_logits(plain),
                qwick_engine_info(eng)->vocab_size * sizeof(float));
            assert_false(a.draft.on);
            assert_true(b.draft.on);
            assert_true(b.draft.n_accepted <= b.draft.n_drafted);
            drafted += b.draft.n_drafted;
            accepted += b.draft.n_accepted + b.lookup.n_accepted;
            tokens += b.n_tokens;
            qwick_result_free(&a);
            qwick_result_free(&b);
        }
        print_message("%s by %s: %zu tokens, %zu guesses, %zu right\n",
                      pairs[k].target, pairs[k].draft, tokens, drafted,
                      accepted);
        assert_true(drafted > 0);
        if (pairs[k].good)
            assert_true(accepted > tokens / 8);
        qwick_session_free(plain);
        qwick_session_free(s);
        qwick_engine_close(eng);
        qwick_engine_close(draft);
    }
    assert_int_equal(logged.n_warnings, 0);
}

enum { CROSSING = 40 };

struct logprobs {
    float v[CROSSING];
    size_t n;
};

static int keep_logprob(void *ctx, const struct qwick_token_event *ev)
{
    struct logprobs *l = ctx;
    l->v[l->n++] = ev->logprob;
    return 0;
}

/* Answer a prompt that repeats itself. */
static struct qwick_result answer_crossing(struct qwick_engine *eng, size_t n,
                                           size_t lookup,
                                           struct qwick_engine *draft,
                                           struct logprobs *l)
{
    int32_t ids[CROSSING + 22];
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_session *s = open_session(eng);
    some_ids(ids, n, 5);
    for (size_t i = 6; i < n; i++)
        ids[i] = ids[i - 6];
    own_sampling(&o)->temperature = 0;
    o.ignore_eos = true;
    o.max_tokens = CROSSING;
    o.lookup = lookup;
    o.logprobs = 1;
    o.on_token = keep_logprob;
    o.on_token_ctx = l;
    l->n = 0;
    struct qwick_result r = answer(s, ids, n, o, draft);
    assert_int_equal(r.n_tokens, CROSSING);
    assert_int_equal(l->n, CROSSING);
    qwick_session_free(s);
    return r;
}

/* Beyond 64 tokens all keys of the model change. A guess there does not change
 * the logits of the tokens before it. */
static void guesses_do_not_change_the_rope(void **state)
{
    struct qwick_engine *eng = open_engine(FAMILY "phi3-crossing", true);
    struct qwick_engine *draft = open_draft(FAMILY "phi3-crossing", true);
    size_t looked_up = 0, drafted = 0;
    eng->model.row_cost = 0.01; /* so that guesses pay with any kernels */
    for (size_t n = CROSSING; n < CROSSING + 22; n++) {
        struct logprobs plain, guessed;
        struct qwick_result a = answer_crossing(eng, n, 0, NULL, &plain);
        for (int k = 0; k < 2; k++) {
            struct qwick_result b = answer_crossing(
                eng, n, k ? 0 : 8, k ? draft : NULL, &guessed);
            assert_memory_equal(b.tokens, a.tokens,
                                CROSSING * sizeof *a.tokens);
            assert_memory_equal(guessed.v, plain.v, sizeof plain.v);
            looked_up += b.lookup.n_accepted;
            drafted += b.draft.n_accepted;
            qwick_result_free(&b);
        }
        qwick_result_free(&a);
    }
    print_message("right: %zu looked up, %zu drafted\n", looked_up, drafted);
    assert_true(looked_up > 20);
    assert_true(drafted > 20);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* Sampled answers of the default mode have the same distribution with and
 * without a draft model, stop ids included. */
static void answers_keep_the_distribution(void **state)
{
    /* how much the weights of the draft model differ */
    static const float noise[] = {0, 0.7f, 2};
    int32_t ids[20];
    skip_without_guesses();
    for (size_t k = 0; k < 3; k++) {
        static struct answer_counts t;
        struct qwick_generate_options o = counted_options();
        struct qwick_engine *eng = open_engine(GOLDEN "yarn", false);
        struct qwick_engine *draft = open_draft(GOLDEN "yarn", false);
        size_t drafted = 0, accepted = 0;
        double chi, df;
        memset(&t, 0, sizeof t);
        below_state = 7;
        add_noise(draft, noise[k]);
        random_prompt(ids, 20);
        /* a likely token stops the answer */
        struct qwick_session *s = open_session(eng);
        struct qwick_generate_options greedy = o;
        own_sampling(&greedy)->temperature = 0;
        struct qwick_result r = answer(s, ids, 20, greedy, NULL);
        eng->model.config.stop_ids[0] = r.tokens[1];
        eng->model.config.n_stop_ids = 1;
        qwick_result_free(&r);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            own_sampling(&o)->seed = seed;
            for (int with = 0; with < 2; with++) {
                r = answer(s, ids, 20, o, with ? draft : NULL);
                count_answer(&t, &r, with);
                drafted += r.draft.n_drafted;
                accepted += r.draft.n_accepted;
                qwick_result_free(&r);
                /* the random numbers of one seed must not meet */
                own_sampling(&o)->seed += (uint64_t)1 << 40;
            }
        }
        chi = chi_of_two(t.a, t.b, t.n, &df);
        print_message(
            "noise %g: %zu guesses, %zu right; %zu answers, chi-square "
            "%.1f, %g degrees of freedom\n",
            (double)noise[k], drafted, accepted, t.n, chi, df);
        assert_true(drafted > SEEDS / 2);
        assert_true(k || accepted > drafted * 9 / 10);
        assert_true(!k || (accepted > drafted / 4 && accepted < drafted));
        assert_true(df > 10);
        assert_true(chi <= most_chi(df));
        qwick_session_free(s);
        qwick_engine_close(eng);
        qwick_engine_close(draft);
    }
}

/* The same seed gives the same answer in default mode. */
static void seeds_give_equal_answers(void **state)
{
    int32_t ids[100];
    below_state = 8;
    random_prompt(ids, 100);
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", false);
    struct qwick_engine *draft = open_draft(GOLDEN "mlx4", false);
    struct qwick_result r[2];
    for (size_t k = 0; k < 2; k++) {
        struct qwick_session *s = open_session(eng);
        r[k] = answer(s, ids, 100, option_set(2), draft);
        qwick_session_free(s);
    }
    assert_int_equal(r[0].n_tokens, r[1].n_tokens);
    assert_memory_equal(r[0].tokens, r[1].tokens,
                        r[0].n_tokens * sizeof *r[0].tokens);
    assert_int_equal(r[0].draft.n_drafted, r[1].draft.n_drafted);
    qwick_result_free(&r[0]);
    qwick_result_free(&r[1]);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* A draft model that cannot afford a long prompt, or has a shorter context,
 * sees the end of the text. */
static void windows_slide(void **state)
{
    enum { N = 900 };
    int32_t ids[N];
    skip_without_guesses();
    below_state = 9;
    random_prompt(ids, N);
    for (int k = 0; k < 2; k++) {
        struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
        struct qwick_engine *draft =
            open_draft(k ? GOLDEN "yarn" : GOLDEN "f32", true);
        struct qwick_session *plain, *s;
        struct qwick_generate_options o = option_set(0);
        o.max_tokens = 400;
        if (k == 0)
            draft->model.step_time = 0.1 * model_step_time(&eng->model);
        assert_int_equal(qwick_session_create(&plain, eng, 0, NULL), 0);
        assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
        struct qwick_result a = answer(plain, ids, N, o, NULL);
        struct qwick_result b = answer(s, ids, N, o, draft);
        assert_int_equal(a.n_tokens, b.n_tokens);
        assert_memory_equal(a.tokens, b.tokens, a.n_tokens * sizeof *a.tokens);
        assert_true(b.draft.n_drafted > 0);
        assert_non_null(s->draft);
        assert_true(s->draft_start > 0);
        assert_true(s->draft->kv.n <= s->draft->limit);
        assert_true(s->draft->kv.n >= 32);
        qwick_result_free(&a);
        qwick_result_free(&b);
        qwick_session_free(plain);
        qwick_session_free(s);
        qwick_engine_close(eng);
        qwick_engine_close(draft);
    }
}

/* A draft model that fails costs a warning, not the answer. */
static void failures_are_survived(void **state)
{
    int32_t ids[30];
    skip_without_guesses();
    below_state = 10;
    random_prompt(ids, 30);
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
    struct qwick_engine *draft = open_draft(GOLDEN "f32", true);
    struct qwick_session *s = open_session(eng);
    struct qwick_result a = answer(s, ids, 30, option_set(4), NULL);
    draft->model.norm[0] = NAN;
    logged.n_warnings = 0;
    struct qwick_result b = answer(s, ids, 30, option_set(4), draft);
    assert_int_equal(logged.n_warnings, 1);
    assert_non_null(strstr(logged.last, "draft: logits: not finite"));
    assert_non_null(strstr(logged.last, "going on without it"));
    assert_int_equal(a.n_tokens, b.n_tokens);
    assert_memory_equal(a.tokens, b.tokens, a.n_tokens * sizeof *a.tokens);
    assert_int_equal(b.draft.n_drafted, 0);
    qwick_result_free(&a);
    qwick_result_free(&b);
    logged.n_warnings = 0;
    qwick_session_free(s);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* Guesses follow a constraint, which is then where it was. */
static void constraints_hold(void **state)
{
    int32_t *ids;
    size_t n, accepted = 0;
    skip_without_guesses();
    struct qwick_engine *eng = open_engine(NULL, true);
    struct qwick_engine *draft = open_draft(NULL, true);
    struct qwick_constraint *c = regex(eng, "[a-z]{2,5}( [0-9]{1,3}){3,6}");
    struct qwick_session *s = open_session(eng);
    assert_int_equal(
        qwick_tokenize(eng, "some numbers: ", 14, false, &ids, &n, NULL), 0);
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct qwick_generate_options o = qwick_generate_defaults();
        own_sampling(&o)->temperature = seed ? 1 : 0;
        own_sampling(&o)->seed = seed;
        o.constraint = c;
        o.max_tokens = 60;
        struct qwick_result a = answer(s, ids, n, o, NULL);
        struct qwick_result b = answer(s, ids, n, o, draft);
        assert_string_equal(a.text, b.text);
        assert_int_equal(a.finish, b.finish);
        accepted += b.draft.n_accepted;
        qwick_result_free(&a);
        qwick_result_free(&b);
    }
    assert_true(accepted > 20);
    free(ids);
    qwick_session_free(s);
    qwick_constraint_free(c);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

static int refused(struct qwick_engine *eng, struct qwick_engine *draft,
                   const char *why)
{
    struct qwick_err e;
    assert_int_equal(qwick_draft_check(eng, draft, &e), -1);
    if (!strstr(e.msg, why))
        fail_msg("%s", e.msg);
    return (int)e.code;
}

static void other_tokens_are_refused(void **state)
{
    struct qwick_engine *demo = open_engine(NULL, true);
    struct qwick_engine *small = open_engine(GOLDEN "yarn", true);
    struct qwick_engine *large = open_engine(GOLDEN "gemma3-gqa", true);
    struct qwick_engine *same = open_engine("models/demo", true);
    assert_int_equal(refused(demo, demo, "cannot draft for itself"),
                     QWICK_ERR_USAGE);
    assert_int_equal(refused(demo, small, "it has no tokenizer"),
                     QWICK_ERR_MODEL);
    assert_int_equal(refused(small, demo, "only it has a tokenizer"),
                     QWICK_ERR_MODEL);
    assert_int_equal(refused(small, large, "the same size"), QWICK_ERR_MODEL);
    struct qwick_engine *only = engine_with(.tokenizer_only = true);
    assert_int_equal(refused(demo, only, "for its tokenizer only"),
                     QWICK_ERR_USAGE);
    assert_int_equal(qwick_draft_check(demo, same, NULL), 0);
    /* a generation checks as well */
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_result r;
    struct qwick_err e;
    const int32_t id = 1;
    struct qwick_session *s = open_session(demo);
    o.draft = small;
    assert_int_equal(qwick_generate(s, &id, 1, &o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    qwick_result_free(&r);
    qwick_session_free(s);
    qwick_engine_close(demo);
    qwick_engine_close(only);
    qwick_engine_close(small);
    qwick_engine_close(large);
    qwick_engine_close(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_guesses_are_fast),
        cmocka_unit_test(loss_is_limited),
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(long_prompts_cost),
        cmocka_unit_test(guesses_keep_the_distribution),
        cmocka_unit_test(undo_restores),
        cmocka_unit_test(exact_is_the_same),
        cmocka_unit_test(guesses_do_not_change_the_rope),
        cmocka_unit_test(answers_keep_the_distribution),
        cmocka_unit_test(seeds_give_equal_answers),
        cmocka_unit_test(windows_slide),
        cmocka_unit_test(failures_are_survived),
        cmocka_unit_test(constraints_hold),
        cmocka_unit_test(other_tokens_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
