/* Draft models in batches: answers against those of single sequences, with and
 * without a draft model. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chi_square.h"
#include "draft_pairs.h"
#include "engine/generate/draft_budget.h"
#include "engine/tasks/batch.h"
#include "engines.h"
#include "log_lines.h"
#include "own_sampling.h"

/* ---- the budget --------------------------------------------------------- */

enum { MOST = 16, TOKENS = 400 };

/* How many of n answers draft, or go on: as many as want to if so many do. */
static size_t agree(struct draft_budget *a, const bool *going, size_t n)
{
    size_t drafting = n, wanted;
    for (;; drafting = wanted) {
        wanted = 0;
        for (size_t i = 0; i < n; i++) {
            budget_share(&a[i], n, drafting);
            wanted += going ? going[i] && budget_pays(&a[i])
                            : budget_wants(&a[i], 1, 16);
        }
        if (wanted == drafting || wanted == 0)
            return wanted;
    }
}

/* The time of n answers that share all passes, as a multiple of the time
 * without guesses for as many tokens. Guesses are right with probability p. */
static double simulate(size_t n, double step, double row, double p)
{
    struct draft_budget a[MOST];
    double back = 0.3 * step, time = 0;
    size_t tokens = 0;
    for (size_t i = 0; i < n; i++)
        budget_open(&a[i], step, row, back, 1);
    while (tokens < n * TOKENS) {
        bool going[MOST];
        size_t made[MOST] = {0}, n_rows = n, n_going = agree(a, NULL, n);
        for (size_t i = 0; i < n; i++)
            going[i] = budget_plan(&a[i], 1, 16);
        bool any = n_going > 0;
        while (n_going) {
            time += step + back * (double)(n_going - 1);
            for (size_t i = 0; i < n; i++)
                going[i] = going[i] && budget_take(&a[i], p);
            agree(a, going, n);
            n_going = 0;
            for (size_t i = 0; i < n; i++) {
                going[i] = going[i] && budget_more(&a[i]);
                n_going += going[i];
            }
        }
        for (size_t i = 0; i < n; i++) {
            made[i] = a[i].n;
            n_rows += made[i];
        }
        time += 1 + row * (double)(n_rows - 1) + (any ? 0.03 : 0);
        for (size_t i = 0; i < n; i++) {
            size_t right = 0;
            while (right < made[i] && uniform() < p)
                right++;
            budget_settle(&a[i], right, false);
            tokens += 1 + right;
        }
    }
    return time / ((1 + row * (double)(n - 1)) * (double)tokens / (double)n);
}

static void the_account_knows_the_batch(void **state)
{
    static const double costs[][2] = {
        {0.05, 0.02}, {0.2, 0.06}, {0.3, 0.06}, {0.3, 0.2}, {0.7, 0.36}};
    static const size_t sizes[] = {1, 2, 4, 8, 16};
    below_state = 1;
    for (size_t c = 0; c < 5; c++) {
        for (size_t k = 0; k < 5; k++) {
            size_t n = sizes[k];
            double good = simulate(n, costs[c][0], costs[c][1], 0.95);
            double bad = simulate(n, costs[c][0], costs[c][1], 0.2);
            print_message("step %g, row %g, %zu answers: time %.2f if right, "
                          "%.3f if wrong\n",
                          costs[c][0], costs[c][1], n, good, bad);
            /* two passes, and 1% */
            assert_true(bad <= 1.01 + 2.5 / TOKENS);
            assert_true(good <= 1.01 + 2.5 / TOKENS);
            if (n <= 2 && costs[c][1] < 0.1)
                assert_true(good < 0.75);
        }
    }
    /* alone, nothing changes */
    struct draft_budget a;
    budget_open(&a, 0.3, 0.06, 0.01, 1);
    struct draft_budget b = a;
    budget_share(&b, 8, 3);
    assert_true(b.step > 0.3 && b.row > 0.06 && b.back > 0.01);
    budget_share(&b, 1, 1);
    assert_true(b.step == a.step && b.row == a.row && b.back == a.back);
}

/* ---- answers ------------------------------------------------------------- */

enum { N = 12 };

/* A request and its answers. */
struct request {
    int32_t *ids;
    size_t n;
    struct qwick_generate_options o;
    struct qwick_result want, got;
    size_t n_done;
    struct qwick_err e;
};

/* Threads of engines: one, unless a test is about threads. On a busy machine,
 * they wait for each other. */
static int n_threads = 1;

static struct qwick_engine *open_chunk(const char *model, bool exact,
                                       size_t chunk)
{
    struct qwick_engine *eng =
        engine_with(.model = model, .exact = exact, .threads = n_threads,
                    .prefill_chunk = chunk, .log = keep_warning);
    /* so that guesses pay, with any kernels and in large batches */
    eng->model.row_cost = 0.01;
    return eng;
}

static struct qwick_engine *open_engine(const char *model, bool exact)
{
    return open_chunk(model, exact, 0);
}

static struct qwick_engine *open_draft(const char *model, bool exact)
{
    struct qwick_engine *eng = open_engine(model, exact);
    eng->model.step_time = 1;
    return eng;
}

static void random_requests(struct request *r, size_t n)
{
    static const struct qwick_bias bias[] = {{9, 3}, {40, -100}, {41, -2.5f}};
    memset(r, 0, n * sizeof *r);
    for (size_t i = 0; i < n; i++) {
        r[i].n = 1 + below(150);
        r[i].ids = malloc(r[i].n * sizeof *r[i].ids);
        random_prompt(r[i].ids, r[i].n);
        r[i].o = draft_options(i, 5 + i * 7 % 40);
        r[i].o.bias = bias;
        r[i].o.n_bias = i % 3 ? 0 : sizeof bias / sizeof *bias;
    }
}

/* Set the expected answers: those of single sequences. */
static void expect(struct qwick_engine *eng, struct request *r, size_t n,
                   size_t n_ctx, struct qwick_engine *draft)
{
    for (size_t i = 0; i < n; i++) {
        struct qwick_generate_options o = r[i].o;
        struct qwick_session *s;
        struct qwick_err e;
        o.draft = draft;
        assert_int_equal(qwick_session_create(&s, eng, n_ctx, NULL), 0);
        assert_ok(qwick_generate(s, r[i].ids, r[i].n, &o, &r[i].want, &e), &e);
        qwick_session_free(s);
    }
}

static int on_done(void *ctx, void *tag, struct qwick_result *got,
                   const struct qwick_err *e)
{
    struct request *r = tag;
    (void)ctx;
    r->n_done++;
    r->got = *got;
    *got = (struct qwick_result){0};
    r->e = e ? *e : (struct qwick_err){0};
    return 0;
}

static struct qwick_batch *open_batch(struct qwick_engine *eng, size_t max,
                                      size_t n_ctx, size_t kv_bytes)
{
    struct qwick_batch_options o = qwick_batch_defaults();
    struct qwick_batch *b;
    struct qwick_err e;
    o.max_batch = max;
    o.n_ctx = n_ctx;
    o.kv_bytes = kv_bytes;
    o.done = on_done;
    assert_ok(qwick_batch_create(&b, eng, &o, &e), &e);
    return b;
}

static void add(struct qwick_batch *b, struct request *r,
                struct qwick_engine *draft)
{
    struct qwick_err e;
    r->o.draft = draft;
    r->n_done = 0;
    assert_ok(qwick_batch_add(b, r->ids, r->n, &r->o, r, &e), &e);
}

static void run(struct qwick_batch *b)
{
    struct qwick_err e;
    assert_ok(qwick_batch_run(b, &e), &e);
}

/* Guesses of draft models. */
static struct {
    size_t drafted, accepted, passes;
} counts;

static void check(struct request *r)
{
    const struct qwick_result *a = &r->want, *b = &r->got;
    assert_int_equal(r->n_done, 1);
    if (r->e.code)
        fail_msg("%s", r->e.msg);
    assert_int_equal(b->n_tokens, a->n_tokens);
    assert_memory_equal(b->tokens, a->tokens, a->n_tokens * sizeof *a->tokens);
    assert_string_equal(b->text, a->text);
    assert_int_equal(b->finish, a->finish);
    assert_int_equal(b->n_forced, a->n_forced);
    assert_true(b->draft.on == (r->o.draft != NULL));
    assert_true(b->draft.n_accepted <= b->draft.n_drafted);
    assert_true(b->draft.n_passes <= b->draft.n_drafted);
    counts.drafted += b->draft.n_drafted;
    counts.accepted += b->draft.n_accepted;
    counts.passes += b->draft.n_passes;
    qwick_result_free(&r->got);
}

/* Answer all requests in a batch, of which the second half comes while others
 * run, and compare. */
static void run_and_check(struct qwick_engine *eng, struct request *r, size_t n,
                          size_t max, size_t n_ctx, struct qwick_engine *draft)
{
    struct qwick_batch *b = open_batch(eng, max, n_ctx, 0);
    memset(&counts, 0, sizeof counts);
    for (size_t i = 0; i < n; i++) {
        add(b, &r[i], draft);
        if (i >= n / 2)
            assert_int_equal(qwick_batch_step(b, NULL), 0);
    }
    run(b);
    for (size_t i = 0; i < n; i++)
        check(&r[i]);
    qwick_batch_free(b);
}

static void free_requests(struct request *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(r[i].ids);
        qwick_result_free(&r[i].want);
    }
}

static void exact_is_the_same(void **state)
{
    static const size_t sizes[] = {1, 3, 8};
    below_state = 2;
    for (size_t k = 0; k < N_PAIRS; k++) {
        /* a chunk of 40 limits guesses */
        n_threads = k == 1 ? 2 : 1;
        struct qwick_engine *eng = open_chunk(pairs[k].target, true,
                                              k % 2 ? 40 : 0);
        struct qwick_engine *draft =
            open_draft(pairs[k].draft, pairs[k].draft_exact);
        n_threads = 1;
        struct request r[N];
        forget_warnings();
        random_requests(r, N);
        expect(eng, r, N, 0, NULL);
        for (size_t i = 0; i < 3; i++) {
            run_and_check(eng, r, N, sizes[i], 0, draft);
            print_message("%s by %s, %zu at once: %zu guesses, %zu right\n",
                          pairs[k].target, pairs[k].draft, sizes[i],
                          counts.drafted, counts.accepted);
            assert_true(counts.drafted > 0);
            assert_true(!pairs[k].good ||
                        counts.accepted > counts.drafted / 2);
        }
        assert_null(warning(0));
        free_requests(r, N);
        qwick_engine_close(eng);
        qwick_engine_close(draft);
    }
}

/* In default mode, the guesses of a request alone in its batch are those of a
 * single sequence, and so is the answer. */
static void alone_is_single(void **state)
{
    below_state = 3;
    for (int k = 0; k < 2; k++) {
        struct qwick_engine *eng = open_engine(GOLDEN "yarn", false);
        struct qwick_engine *draft = open_draft(GOLDEN "yarn", false);
        struct request r[N];
        for (size_t i = 0; k && i < draft->model.config.d_model; i++)
            draft->model.norm[i] *= 1 + 0.7f * ((float)uniform() - 0.5f);
        random_requests(r, N);
        expect(eng, r, N, 0, draft);
        memset(&counts, 0, sizeof counts);
        for (size_t i = 0; i < N; i++) {
            /* later requests of a batch know more about guesses */
            struct qwick_batch *b = open_batch(eng, 1, 0, 0);
            add(b, &r[i], draft);
            run(b);
            qwick_batch_free(b);
            const struct qwick_draft *x = &r[i].want.draft;
            const struct qwick_draft *y = &r[i].got.draft;
            assert_int_equal(y->n_drafted, x->n_drafted);
            assert_int_equal(y->n_accepted, x->n_accepted);
            assert_int_equal(y->n_passes, x->n_passes);
            check(&r[i]);
        }
        assert_true(counts.accepted > 20);
        assert_true(!k || counts.accepted < counts.drafted);
        free_requests(r, N);
        qwick_engine_close(eng);
        qwick_engine_close(draft);
    }
}

/* Answers know what earlier ones have learned: wrong guesses cost a batch no
 * more than one answer. */
static void bad_guesses_end(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
    struct qwick_engine *draft = open_draft(GOLDEN "f32", true);
    size_t first, later = 0;
    struct request r[N];
    below_state = 11;
    draft->model.step_time = 0.3 * model_step_time(&eng->model);
    random_requests(r, N);
    for (size_t i = 0; i < N; i++)
        r[i].o.max_tokens = 20;
    expect(eng, r, N, 0, NULL);
    struct qwick_batch *b = open_batch(eng, 1, 0, 0);
    for (size_t i = 0; i < N; i++)
        add(b, &r[i], draft);
    run(b);
    first = r[0].got.draft.n_drafted;
    for (size_t i = 0; i < N; i++) {
        later += i ? r[i].got.draft.n_drafted : 0;
        check(&r[i]);
    }
    print_message("%zu guesses, then %zu\n", first, later);
    assert_true(first > 0);
    assert_true(later <= first + N);
    qwick_batch_free(b);
    free_requests(r, N);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* ---- distributions ------------------------------------------------------- */

/* Sampled answers of the default mode have the same distribution in a batch
 * with a draft model as without one. */
static void batches_keep_the_distribution(void **state)
{
    static struct request r[SEEDS];
    static struct answer_counts t;
    double chi, df;
    struct qwick_engine *eng = open_engine(GOLDEN "yarn", false);
    struct qwick_engine *draft = open_draft(GOLDEN "yarn", false);
    int32_t ids[20];
    below_state = 4;
    add_noise(draft, 0.7f);
    random_prompt(ids, 20);
    memset(&counts, 0, sizeof counts);
    for (int with = 0; with < 2; with++) {
        struct qwick_batch *b = open_batch(eng, 7, 0, 0);
        for (size_t i = 0; i < SEEDS; i++) {
            struct qwick_generate_options o = counted_options();
            own_sampling(&o)->seed = i + ((uint64_t)with << 40);
            r[i] = (struct request){.ids = ids, .n = 20, .o = o};
            add(b, &r[i], with ? draft : NULL);
        }
        run(b);
        for (size_t i = 0; i < SEEDS; i++) {
            count_answer(&t, &r[i].got, with);
            counts.drafted += r[i].got.draft.n_drafted;
            counts.accepted += r[i].got.draft.n_accepted;
            qwick_result_free(&r[i].got);
        }
        qwick_batch_free(b);
    }
    chi = chi_of_two(t.a, t.b, t.n, &df);
    print_message("%zu guesses, %zu right; %zu answers, chi-square %.1f, %g "
                  "degrees of freedom\n",
                  counts.drafted, counts.accepted, t.n, chi, df);
    assert_true(counts.drafted > SEEDS / 2);
    assert_true(counts.accepted > counts.drafted / 4);
    assert_true(counts.accepted < counts.drafted);
    assert_true(df > 10);
    assert_true(chi <= most_chi(df));
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* ---- ends of answers ----------------------------------------------------- */

static const char *const texts[] = {
    "list large files", "what is rsync?",   "say hello",
    "count the lines",  "make an archive",  "some numbers: ",
    "show disk usage",  "find old logs",    "kill a process",
    "copy a directory", "rename all files", "who am i?"};

/* Constraints, stop strings, the think budget, log-probabilities, stop ids and
 * the end of the context end answers as without guesses. */
static void answers_end_as_without(void **state)
{
    static const char *const stop[] = {"e", "-l"};
    struct qwick_engine *eng = open_engine(NULL, true);
    struct qwick_engine *draft = open_draft("models/demo", true);
    struct qwick_constraint *c[] = {
        regex(eng, "[a-z]{2,5}( [0-9]{1,3}){3,6}"),
        regex(eng, "the answer is always (yes|no), of course")};
    struct request r[3 * N] = {0};
    for (size_t i = 0; i < 3 * N; i++) {
        struct qwick_generate_options *o = &r[i].o;
        assert_int_equal(qwick_tokenize(eng, texts[i % N], strlen(texts[i % N]),
                                        false, &r[i].ids, &r[i].n, NULL),
                         0);
        *o = qwick_generate_defaults();
        own_sampling(o)->temperature = i % 3 ? 1 : 0;
        own_sampling(o)->seed = i;
        o->max_tokens = i % 5 == 4 ? 0 : 1 + i;
        if (i % 4 == 0) {
            o->constraint = c[i % 8 == 0];
        } else if (i % 4 == 1) {
            o->stop = stop;
            o->n_stop = 2;
        } else if (i % 4 == 2) {
            o->limit_thinking = true;
            o->in_think = i % 8 == 2;
            o->think_budget = i / 2;
        } else {
            o->loop_guard = 9;
            o->logprobs = 3;
        }
        r[i].o.ignore_eos = i % 4 == 3;
    }
    expect(eng, r, 3 * N, 80, NULL);
    for (size_t max = 1; max <= 9; max += 4) {
        run_and_check(eng, r, 3 * N, max, 80, draft);
        print_message("%zu at once: %zu guesses, %zu right\n", max,
                      counts.drafted, counts.accepted);
        assert_true(counts.accepted > 100);
        assert_true(counts.passes < counts.accepted);
    }
    free_requests(r, 3 * N);
    qwick_constraint_free(c[0]);
    qwick_constraint_free(c[1]);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* ---- memory -------------------------------------------------------------- */

/* The caches of the draft models count as the sequences' memory. When that is
 * short, sequences begin again, or go on without guesses. */
static void short_memory_ends_guesses_first(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
    struct qwick_engine *draft = open_draft(GOLDEN "f16", true);
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK;
    size_t small = qwick_engine_info(draft)->kv_token_bytes * KV_BLOCK;
    enum { CTX = 300 };
    struct request r[N];
    below_state = 5;
    random_requests(r, N);
    for (size_t i = 0; i < N; i++) {
        r[i].n = r[i].n < 40 ? r[i].n : 40;
        r[i].o.max_tokens = 0;
        r[i].o.ignore_eos = true;
    }
    expect(eng, r, N, CTX, NULL);
    /* all of two; one and its draft model; one alone, with a draft model for
       its beginning */
    const size_t limits[] = {2 * 5 * (page + small), 5 * (page + small),
                             5 * page};
    for (size_t k = 0; k < 3; k++) {
        struct qwick_batch *b = open_batch(eng, 4, CTX, limits[k]);
        forget_warnings();
        memset(&counts, 0, sizeof counts);
        for (size_t i = 0; i < N; i++)
            add(b, &r[i], draft);
        size_t most = 0;
        while (runs_pending(&b->runs)) {
            size_t used = 0;
            assert_int_equal(qwick_batch_step(b, NULL), 0);
            for (size_t i = 0; i < b->runs.n_live; i++) {
                const struct qwick_session *s = b->runs.live[i]->session;
                used += s ? kv_fair_bytes(&s->kv) : 0;
                used += s && s->draft ? kv_fair_bytes(&s->draft->kv) : 0;
            }
            most = used > most ? used : most;
        }
        for (size_t i = 0; i < N; i++)
            check(&r[i]);
        print_message("limit %zu: %zu used, %zu guesses, preempted %llu "
                      "times, %s\n",
                      limits[k], most, counts.drafted,
                      (unsigned long long)b->runs.n_preempted,
                      warning(0) ? warning(0) : "no warning");
        assert_true(most <= limits[k] + small);
        assert_true(k == 2 || counts.drafted > 0);
        qwick_batch_free(b);
    }
    free_requests(r, N);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* A sequence that grows beyond its expected length takes the memory of its
 * draft model. */
static void long_answers_take_the_memory(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
    struct qwick_engine *draft = open_draft(GOLDEN "tied-bf16", true);
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK;
    struct request r[4];
    below_state = 10;
    random_requests(r, 4);
    for (size_t i = 0; i < 4; i++) {
        r[i].n = r[i].n < 20 ? r[i].n : 20;
        r[i].o.max_tokens = 0;
        r[i].o.ignore_eos = true;
    }
    expect(eng, r, 4, 620, NULL);
    /* it is expected to need 9 pages, of its own and of the draft model, and
       needs 10 */
    struct qwick_batch *b = open_batch(eng, 2, 620, 18 * page);
    forget_warnings();
    memset(&counts, 0, sizeof counts);
    for (size_t i = 0; i < 4; i++)
        add(b, &r[i], draft);
    run(b);
    for (size_t i = 0; i < 4; i++)
        check(&r[i]);
    assert_true(counts.accepted > 100);
    assert_non_null(strstr(warning(0), "draft: memory is short"));
    assert_null(warning(1));
    qwick_batch_free(b);
    free_requests(r, 4);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* Sequences that grow beyond their expected length are preempted, and answer
 * the same afterwards. */
static void preempted_sequences_guess_again(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
    struct qwick_engine *draft = open_draft(GOLDEN "f16", true);
    struct request r[N];
    below_state = 6;
    random_requests(r, N);
    for (size_t i = 0; i < N; i++)
        r[i].o.max_tokens = 100;
    expect(eng, r, N, 0, NULL);
    struct qwick_batch *b = open_batch(eng, 4, 0, 0);
    memset(&counts, 0, sizeof counts);
    for (size_t i = 0; i < N; i++)
        add(b, &r[i], draft);
    for (size_t k = 0; runs_pending(&b->runs); k++) {
        assert_int_equal(qwick_batch_step(b, NULL), 0);
        if (k % 9 || b->runs.n_live < 2)
            continue;
        /* the scheduler does the same when memory is short */
        struct run *last = b->runs.live[--b->runs.n_live];
        qwick_session_free(last->session);
        last->session = NULL;
        last->n_guess = 0;
        runs_push_front(&b->runs, last);
    }
    for (size_t i = 0; i < N; i++)
        check(&r[i]);
    print_message("%zu guesses, %zu right\n", counts.drafted, counts.accepted);
    assert_true(counts.drafted > 0);
    qwick_batch_free(b);
    free_requests(r, N);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

/* ---- failures and interrupts --------------------------------------------- */

/* A flag that is raised after each third time that a batch has guessed. */
static volatile int flag;
static size_t n_guessed;

static void guess_and_raise(struct runs *s)
{
    batch_guess(s);
    flag = ++n_guessed % 3 == 0;
}

/* After an interrupt, a batch goes on with the guesses that it had: the default
 * mode draws the same tokens. */
static void interrupts_change_nothing(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "yarn", false);
    struct qwick_engine *draft = open_draft(GOLDEN "yarn", false);
    struct request r[N];
    size_t n_interrupts = 0;
    below_state = 7;
    random_requests(r, N);
    for (size_t k = 0; k < 2; k++) {
        struct qwick_batch *b = open_batch(eng, 3, 0, 0);
        struct run_task task = *b->runs.task;
        task.guess = guess_and_raise;
        if (k) {
            b->runs.task = &task;
            b->runs.interrupt = &flag;
        }
        memset(&counts, 0, sizeof counts);
        for (size_t i = 0; i < N; i++)
            add(b, &r[i], draft);
        while (runs_pending(&b->runs)) {
            struct qwick_err e;
            if (qwick_batch_step(b, &e)) {
                assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
                flag = 0;
                n_interrupts++;
            }
        }
        for (size_t i = 0; i < N; i++) {
            if (k == 0) {
                r[i].want = r[i].got;
                r[i].got = (struct qwick_result){0};
            } else {
                check(&r[i]);
            }
        }
        qwick_batch_free(b);
    }
    assert_true(n_interrupts > 5);
    assert_true(counts.accepted > 20);
    free_requests(r, N);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

static void failures_are_survived(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", true);
    struct qwick_engine *draft = open_draft(GOLDEN "f32", true);
    struct qwick_engine *other = open_draft(GOLDEN "gemma3-gqa", true);
    struct qwick_engine *second = open_draft(GOLDEN "tied-bf16", true);
    struct request r[N];
    below_state = 8;
    random_requests(r, N);
    expect(eng, r, N, 0, NULL);
    /* a draft model whose tokens differ is an error of its request; two draft
       models guess in the same passes */
    struct qwick_batch *b = open_batch(eng, 4, 0, 0);
    for (size_t i = 0; i < N; i++)
        add(b, &r[i], i == 3 ? other : i % 3 ? draft : second);
    run(b);
    assert_int_equal(r[3].e.code, QWICK_ERR_MODEL);
    assert_int_equal(r[3].got.n_tokens, 0);
    qwick_result_free(&r[3].got);
    size_t by_second = 0;
    for (size_t i = 0; i < N; i++) {
        if (i == 3)
            continue;
        by_second += i % 3 ? 0 : r[i].got.draft.n_accepted;
        check(&r[i]);
    }
    assert_true(by_second > 20);
    qwick_batch_free(b);
    /* one that fails costs a warning for each answer, not the answer */
    draft->model.norm[0] = NAN;
    forget_warnings();
    run_and_check(eng, r, 4, 4, 0, draft);
    assert_non_null(strstr(warning(0), "draft: logits: not finite"));
    assert_non_null(strstr(warning(3), "going on without it"));
    assert_null(warning(4));
    assert_int_equal(counts.drafted, 0);
    free_requests(r, N);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
    qwick_engine_close(other);
    qwick_engine_close(second);
}

struct canceller {
    struct qwick_batch *b;
    struct request *victim;
    size_t n;
};

static int cancel_at_seventh(void *ctx, const struct qwick_token_event *ev)
{
    struct canceller *c = ctx;
    (void)ev;
    if (++c->n == 7)
        assert_int_equal(qwick_batch_cancel(c->b, c->victim, NULL), 0);
    return 0;
}

/* A request that is cancelled keeps the tokens of its pass, and a callback can
 * stop an answer amid the guesses of its pass. */
static void cancelled_amid_guesses(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "yarn", true);
    struct qwick_engine *draft = open_draft(GOLDEN "yarn", true);
    struct request r[N];
    below_state = 9;
    random_requests(r, N);
    for (size_t i = 0; i < N; i++) {
        r[i].o.ignore_eos = true;
        r[i].o.max_tokens = 40;
    }
    expect(eng, r, N, 0, NULL);
    struct qwick_batch *b = open_batch(eng, 4, 0, 0);
    struct canceller c = {.b = b, .victim = &r[1]};
    r[1].o.on_token = cancel_at_seventh;
    r[1].o.on_token_ctx = &c;
    for (size_t i = 0; i < N; i++)
        add(b, &r[i], draft);
    run(b);
    const struct qwick_result *got = &r[1].got;
    assert_int_equal(got->finish, QWICK_FINISH_CANCELLED);
    assert_true(got->draft.n_accepted > 0);
    assert_true(got->n_tokens >= 7 && got->n_tokens < 40);
    assert_memory_equal(got->tokens, r[1].want.tokens,
                        got->n_tokens * sizeof *got->tokens);
    qwick_result_free(&r[1].got);
    for (size_t i = 0; i < N; i++)
        if (i != 1)
            check(&r[i]);
    qwick_batch_free(b);
    free_requests(r, N);
    qwick_engine_close(eng);
    qwick_engine_close(draft);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_account_knows_the_batch),
        cmocka_unit_test(exact_is_the_same),
        cmocka_unit_test(alone_is_single),
        cmocka_unit_test(bad_guesses_end),
        cmocka_unit_test(batches_keep_the_distribution),
        cmocka_unit_test(answers_end_as_without),
        cmocka_unit_test(short_memory_ends_guesses_first),
        cmocka_unit_test(long_answers_take_the_memory),
        cmocka_unit_test(preempted_sequences_guess_again),
        cmocka_unit_test(interrupts_change_nothing),
        cmocka_unit_test(failures_are_survived),
        cmocka_unit_test(cancelled_amid_guesses),
    };
    cmocka_set_test_filter(getenv("TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
