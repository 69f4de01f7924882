/* score and choose, compared with a model that evaluates one token at a time.
 * With --exact all results are equal bit by bit: sharing passes, cutting texts
 * and forking sessions must not change them. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"

#define SMALL "tests/golden/models/tied-bf16"
#define YARN  "tests/golden/models/yarn"

static const struct qwick_score_options plain = {.size = sizeof plain};

static struct qwick_engine *open_engine(const char *model, size_t chunk,
                                        bool exact)
{
    return engine_with(.model = model, .exact = exact, .threads = model ? 1 : 2,
                       .prefill_chunk = chunk);
}

/* The log-probability by the library's kernel, so equal bit by bit. */
static double logprob(const struct qwick_engine *eng, const float *logits,
                      int32_t id)
{
    const struct kernels *k = eng->model.k;
    size_t n = eng->model.config.vocab_size;
    float max = k->max(logits, n);
    double sum = k->exp_sum(NULL, logits, n, max, 1.0f);
    return fmin((double)logits[id] - ((double)max + log(sum)), 0);
}

/* The log-probability by libm, in double. */
static double true_logprob(const float *logits, size_t n, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

/* The log-probability of id after before[0..n), evaluated alone. */
static double alone(struct qwick_engine *eng, const int32_t *before, size_t n,
                    int32_t id)
{
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, before, n, NULL), 0);
    double lp = logprob(eng, qwick_session_logits(s), id);
    qwick_session_free(s);
    return lp;
}

/* ---- score -------------------------------------------------------------- */

static void tokens_have_the_models_logprobs(void **state)
{
    const char *models[] = {SMALL, YARN, "tests/golden/models/moe",
                            "tests/golden/models/gemma3-gqa", NULL};
    for (size_t m = 0; m < 5; m++) {
        struct qwick_engine *eng = open_engine(models[m], 0, true);
        eng->model.config.logit_cap = m == 1 ? 0.5f : 0;
        size_t n = 40, vocab_size = eng->model.config.vocab_size;
        int32_t *ids = new_ids(n, 7);
        double got[40];
        struct qwick_score_item it = {ids, n, 0, got, 0};
        struct qwick_err e;
        assert_ok(qwick_score(eng, &it, 1, &plain, &e), &e);
        assert_int_equal(it.n_windows, 1);
        assert_true(got[0] == 0);
        struct qwick_session *s = open_session(eng);
        for (size_t i = 0; i + 1 < n; i++) {
            assert_int_equal(qwick_session_decode(s, ids[i], NULL), 0);
            const float *logits = qwick_session_logits(s);
            assert_true(got[i + 1] == logprob(eng, logits, ids[i + 1]));
            /* the kernels' exp has a relative error of 2^-21, and so have its
             * sums */
            assert_true(fabs(got[i + 1] - true_logprob(logits, vocab_size,
                                                       ids[i + 1])) <= 1e-6);
        }
        qwick_session_free(s);
        free(ids);
        qwick_engine_close(eng);
    }
}

/* Items of many lengths, with and without context. */
static struct qwick_score_item *some_items(size_t n)
{
    struct qwick_score_item *items = calloc(n, sizeof *items);
    for (size_t i = 0; i < n; i++) {
        size_t len = (i * 29) % 83; /* 0 too */
        items[i].tokens = new_ids(len, (uint32_t)i);
        items[i].n = len;
        items[i].n_given = i % 3 ? len * (i % 5) / 4 : 0; /* all of it too */
        items[i].logprobs = calloc(len + 1, sizeof(double));
    }
    return items;
}

static void free_items(struct qwick_score_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)items[i].tokens);
        free(items[i].logprobs);
    }
    free(items);
}

/* Events of some texts, checked against rows that one session computes. */
struct events {
    struct qwick_engine *eng;
    const struct qwick_score_item *items;
    const float *rows; /* of item 0: [n, vocab_size], after each token */
    size_t n, n_top;
    size_t stop_at; /* 0: never */
};

static int on_score(void *ctx, const struct qwick_score_event *ev)
{
    struct events *x = ctx;
    const struct qwick_score_item *it = &x->items[ev->item];
    size_t size = x->eng->model.config.vocab_size, rank = 1;
    assert_true(ev->index >= qwick_score_first(it) && ev->index < it->n);
    assert_true(ev->logprob == it->logprobs[ev->index]);
    assert_int_equal(ev->n_top, x->n_top < size ? x->n_top : size);
    for (size_t i = 1; i < ev->n_top; i++)
        assert_true(ev->top[i - 1].logprob >= ev->top[i].logprob);
    if (ev->item == 0) {
        const float *row = x->rows + (ev->index - 1) * size;
        for (size_t i = 0; i < size; i++)
            rank += row[i] > row[it->tokens[ev->index]];
        assert_int_equal(ev->rank, rank);
        for (size_t i = 0; i < ev->n_top; i++)
            assert_true(ev->top[i].logprob ==
                        (float)logprob(x->eng, row, ev->top[i].id));
        if (rank <= ev->n_top)
            assert_true(ev->top[rank - 1].logprob == (float)ev->logprob);
    }
    return ++x->n == x->stop_at;
}

static void each_scored_token_has_an_event(void **state)
{
    enum { N = 40 };
    struct qwick_engine *eng = open_engine(SMALL, 16, true);
    size_t size = eng->model.config.vocab_size, n_scored = 0;
    struct qwick_score_item *items = some_items(8);
    int32_t *ids = new_ids(N, 7);
    float *rows = malloc(N * size * sizeof *rows);
    struct qwick_score_options o = {.size = sizeof o, .on_score = on_score};
    struct qwick_err e;
    free((void *)(uintptr_t)items[0].tokens);
    free(items[0].logprobs);
    items[0] = (struct qwick_score_item){
        .tokens = ids, .n = N, .logprobs = calloc(N, sizeof(double))};
    struct qwick_session *s = open_session(eng);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(qwick_session_decode(s, ids[i], NULL), 0);
        memcpy(rows + i * size, qwick_session_logits(s), size * sizeof *rows);
    }
    for (size_t i = 0; i < 8; i++)
        if (items[i].n > qwick_score_first(&items[i]))
            n_scored += items[i].n - qwick_score_first(&items[i]);
    const size_t tops[] = {0, 5, SIZE_MAX};
    for (size_t t = 0; t < 3; t++) {
        struct events x = {eng, items, rows, 0, tops[t], 0};
        o.on_score_ctx = &x;
        o.top = tops[t];
        assert_ok(qwick_score(eng, items, 8, &o, &e), &e);
        assert_int_equal(x.n, n_scored);
    }
    struct events x = {eng, items, rows, 0, SIZE_MAX, 3};
    o.on_score_ctx = &x;
    assert_int_equal(qwick_score(eng, items, 8, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(x.n, 3);
    qwick_session_free(s);
    free(rows);
    free_items(items, 8);
    qwick_engine_close(eng);
}

static void a_batch_equals_its_texts_alone(void **state)
{
    const size_t n = 90, chunks[] = {1, 7, 64, 512};
    struct qwick_score_options o = {
        .size = sizeof(o), .window = 50, .stride = 20};
    struct qwick_err e;
    for (size_t c = 0; c < 4; c++) {
        struct qwick_engine *eng = open_engine(SMALL, chunks[c], true);
        struct qwick_score_item *many = some_items(n), *one = some_items(n);
        assert_ok(qwick_score(eng, many, n, &o, &e), &e);
        for (size_t i = 0; i < n; i++) {
            assert_ok(qwick_score(eng, &one[i], 1, &o, &e), &e);
            assert_int_equal(one[i].n_windows, many[i].n_windows);
            assert_memory_equal(one[i].logprobs, many[i].logprobs,
                                one[i].n * sizeof(double));
        }
        free_items(many, n);
        free_items(one, n);
        qwick_engine_close(eng);
    }
}

/* The header's promise: find the window that scores token t by moving from the
 * first window on, and compute t's probability in this window alone. */
static void windows_by_brute_force(void **state)
{
    const struct {
        size_t n, given, window, stride;
    } cases[] = {
        {70, 0, 16, 5},  {70, 3, 16, 5},   {70, 15, 16, 15}, {70, 16, 16, 5},
        {70, 40, 16, 7}, {70, 69, 16, 15}, {70, 0, 2, 1},    {17, 0, 16, 1},
        {16, 0, 16, 8},  {70, 0, 16, 0},   {70, 68, 16, 15}, {70, 0, 70, 1},
        {70, 0, 69, 68},
    };
    struct qwick_engine *eng = open_engine(SMALL, 9, true);
    int32_t *ids = new_ids(70, 3);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double got[70];
        size_t n = cases[c].n, window = cases[c].window;
        size_t stride = cases[c].stride ? cases[c].stride : window / 2;
        size_t first = cases[c].given ? cases[c].given : 1, n_windows = 1;
        struct qwick_score_options o = {
            .size = sizeof(o), .window = window, .stride = cases[c].stride};
        struct qwick_score_item it = {ids, n, cases[c].given, got, 0};
        struct qwick_err e;
        assert_ok(qwick_score(eng, &it, 1, &o, &e), &e);
        size_t end = first < window ? window : first + stride;
        for (size_t t = 0; t < n; t++) {
            if (t < first) {
                assert_true(got[t] == 0);
                continue;
            }
            if (t >= end) {
                end += stride;
                n_windows++;
            }
            size_t last = end < n ? end : n;
            size_t begin = last > window ? last - window : 0;
            assert_true(t - begin >=
                        (t < window && end == window ? 1 : window - stride));
            assert_true(got[t] == alone(eng, ids + begin, t - begin, ids[t]));
        }
        assert_int_equal(it.n_windows, n_windows);
    }
    free(ids);
    qwick_engine_close(eng);
}

static void context_is_read_not_scored(void **state)
{
    struct qwick_engine *eng = open_engine(NULL, 0, true);
    int32_t *ids = new_ids(60, 5);
    double whole[60], part[60];
    struct qwick_score_item a = {ids, 60, 0, whole, 0};
    struct qwick_score_item b = {ids, 60, 25, part, 0};
    struct qwick_err e;
    assert_ok(qwick_score(eng, &a, 1, &plain, &e), &e);
    assert_ok(qwick_score(eng, &b, 1, &plain, &e), &e);
    for (size_t i = 0; i < 60; i++)
        assert_true(part[i] == (i < 25 ? 0 : whole[i]));
    assert_int_equal(qwick_score_first(&a), 1);
    assert_int_equal(qwick_score_first(&b), 25);
    free(ids);
    qwick_engine_close(eng);
}

struct nll {
    const int32_t *ids;
    size_t n, vocab_size;
    double sum;
};

static int add_row(void *ctx, size_t pos, const float *logits)
{
    struct nll *x = ctx;
    if (pos + 1 < x->n)
        x->sum -= true_logprob(logits, x->vocab_size, x->ids[pos + 1]);
    return 0;
}

/* Two scorers of one engine take turns, with windows. */
static void steps_take_turns(void **state)
{
    struct qwick_engine *eng = open_engine(SMALL, 8, true);
    struct qwick_score_options o = plain;
    struct qwick_scorer *s[2];
    enum { N = 100 };
    double want[N], got[2][N];
    int32_t *ids = new_ids(N, 3);
    bool more[2] = {true, true};
    size_t n_steps = 0;
    o.window = 40;
    struct qwick_score_item it[] = {
        {ids, N, 0, got[0], 0}, {ids, N, 0, got[1], 0}, {ids, N, 0, want, 0}};
    assert_int_equal(qwick_score(eng, &it[2], 1, &o, NULL), 0);
    for (size_t k = 0; k < 2; k++)
        assert_int_equal(qwick_scorer_create(&s[k], eng, &it[k], 1, &o, NULL),
                         0);
    while (more[0] || more[1])
        for (size_t k = 0; k < 2; k++, n_steps++)
            if (more[k])
                assert_int_equal(qwick_scorer_step(s[k], &more[k], NULL), 0);
    assert_true(n_steps > 20);
    for (size_t k = 0; k < 2; k++) {
        assert_memory_equal(got[k], want, sizeof(want));
        assert_int_equal(it[k].n_windows, it[2].n_windows);
        qwick_scorer_free(s[k]);
    }
    free(ids);
    qwick_engine_close(eng);
}

static void perplexity_of_a_text(void **state)
{
    struct qwick_engine *eng = open_engine(NULL, 0, true);
    char *text;
    size_t n_text, n;
    int32_t *ids;
    struct qwick_err e;
    assert_ok(map_read_all("bench/heldout.jsonl", 1 << 20, &text, &n_text, &e),
              &e);
    assert_ok(qwick_tokenize(eng, text, 6000, true, &ids, &n, &e), &e);
    if (n > 1500)
        n = 1500;
    double *lp = calloc(n, sizeof *lp), sum = 0;
    struct qwick_score_item it = {ids, n, 0, lp, 0};
    struct nll x = {ids, n, eng->model.config.vocab_size, 0};
    assert_ok(qwick_score(eng, &it, 1, &plain, &e), &e);
    for (size_t i = 0; i < n; i++)
        sum -= lp[i];
    struct qwick_session *s = open_session(eng);
    assert_ok(qwick_session_all_logits(s, ids, n, add_row, &x, &e), &e);
    double want = exp(x.sum / (double)(n - 1));
    /* the loss of each token has an error of at most 1e-6, and so has the
     * mean */
    assert_true(fabs(exp(sum / (double)(n - 1)) / want - 1) <= 1e-6);
    qwick_session_free(s);
    free(lp);
    free(ids);
    free(text);
    qwick_engine_close(eng);
}

static void score_refuses(void **state)
{
    const struct {
        struct qwick_score_options o;
        const char *what;
        enum qwick_err_code code;
    } bad[] = {
        {{.size = sizeof plain, .window = 1}, "at least 2", QWICK_ERR_USAGE},
        {{.size = sizeof plain, .window = 8, .stride = 8},
         "stride",
         QWICK_ERR_USAGE},
        {{.size = sizeof plain, .n_ctx = 8, .window = 9},
         "the context has 8",
         QWICK_ERR_USAGE},
        {{.size = sizeof plain, .n_ctx = 1 << 30},
         "maximum",
         QWICK_ERR_CONTEXT},
    };
    struct qwick_engine *eng = open_engine(SMALL, 0, true);
    int32_t ids[3] = {1, 2, 1 << 30};
    double lp[3];
    struct qwick_score_item it = {ids, 2, 0, lp, 0};
    struct qwick_err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(qwick_score(eng, &it, 1, &bad[i].o, &e), -1);
        assert_int_equal(e.code, bad[i].code);
        assert_non_null(strstr(e.msg, bad[i].what));
    }
    it.n = 3;
    assert_int_equal(qwick_score(eng, &it, 1, &plain, &e), -1);
    assert_non_null(strstr(e.msg, "out of range"));
    it.n = 2;
    it.n_given = 3;
    assert_int_equal(qwick_score(eng, &it, 1, &plain, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(qwick_score(eng, NULL, 0, &plain, &e), 0);
    volatile int flag = 1;
    struct qwick_score_options o = {.size = sizeof(o), .interrupt = &flag};
    it.n_given = 0;
    assert_int_equal(qwick_score(eng, &it, 1, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    qwick_engine_close(eng);
}

/* ---- choose ------------------------------------------------------------- */

enum { MOST = 8 };

/* Common beginnings, answers that are beginnings of others, and a long answer
 * that shares nothing. */
static const int32_t answer_ids[][MOST] = {
    {5, 6, 7, 8},
    {5, 6, 7},
    {5, 6, 9, 10, 11},
    {5},
    {12},
    {12, 13, 14},
    {15, 16, 17, 18, 19, 20, 21},
    {5, 6, 7, 8, 1},
    {12, 13, 15},
    {5, 6, 9, 10, 12, 3, 4, 2},
};
static const size_t answer_lens[] = {4, 3, 5, 1, 1, 3, 7, 5, 3, 8};
enum { ANSWERS = sizeof answer_lens / sizeof *answer_lens };

static void make_answers(struct qwick_answer *a)
{
    for (size_t i = 0; i < ANSWERS; i++)
        a[i] = (struct qwick_answer){answer_ids[i], answer_lens[i]};
}

/* Evaluate the whole sequence again for each token of each answer. */
static double brute_force(struct qwick_engine *eng, const int32_t *prompt,
                          size_t n, const struct qwick_answer *a)
{
    int32_t *ids = malloc((n + a->n) * sizeof *ids);
    double sum = 0;
    memcpy(ids, prompt, n * sizeof *ids);
    memcpy(ids + n, a->tokens, a->n * sizeof *ids);
    for (size_t k = 0; k < a->n; k++)
        sum += alone(eng, ids, n + k, a->tokens[k]);
    free(ids);
    return sum;
}

static void answers_by_brute_force(void **state)
{
    const size_t chunks[] = {1, 5, 512};
    const size_t lens[] = {1, 2, 20, 63, 64, 65, 130};
    enum { PROMPTS = sizeof lens / sizeof *lens };
    struct qwick_answer answers[ANSWERS];
    struct qwick_err e;
    make_answers(answers);
    /* the second time all prompts share a beginning of more than a page */
    for (size_t c = 0; c < 6; c++) {
        struct qwick_engine *eng =
            open_engine(c == 2 ? YARN : SMALL, chunks[c / 2], true);
        struct qwick_choose_item items[PROMPTS];
        double got[PROMPTS][ANSWERS], single[ANSWERS];
        for (size_t i = 0; i < PROMPTS; i++) {
            size_t begin = c % 2 ? 70 : 0;
            int32_t *ids = new_ids(begin + lens[i], c % 2 ? 1 : (uint32_t)i);
            ids[begin + lens[i] - 1] = (int32_t)i;
            items[i] = (struct qwick_choose_item){ids, begin + lens[i], got[i]};
        }
        assert_ok(
            qwick_choose(eng, items, PROMPTS, answers, ANSWERS, &plain, &e),
            &e);
        for (size_t i = 0; i < PROMPTS; i++) {
            struct qwick_choose_item it = items[i];
            it.logprobs = single;
            assert_ok(qwick_choose(eng, &it, 1, answers, ANSWERS, &plain, &e),
                      &e);
            assert_memory_equal(single, got[i], sizeof single);
            for (size_t a = 0; a < ANSWERS; a++)
                assert_true(single[a] ==
                            brute_force(eng, it.prompt, it.n, &answers[a]));
            free((void *)(uintptr_t)it.prompt);
        }
        qwick_engine_close(eng);
    }
}

static void probabilities_of_all_tokens_add_up(void **state)
{
    struct qwick_engine *eng = open_engine(SMALL, 0, true);
    size_t n = eng->model.config.vocab_size;
    struct qwick_answer *answers = calloc(n, sizeof *answers);
    int32_t *ids = calloc(n, sizeof *ids), *prompt = new_ids(9, 2);
    double *lp = calloc(n, sizeof *lp), sum = 0;
    struct qwick_choose_item it = {prompt, 9, lp};
    struct qwick_err e;
    for (size_t i = 0; i < n; i++) {
        ids[i] = (int32_t)i;
        answers[i] = (struct qwick_answer){&ids[i], 1};
    }
    assert_ok(qwick_choose(eng, &it, 1, answers, n, &plain, &e), &e);
    for (size_t i = 0; i < n; i++)
        sum += exp(lp[i]);
    assert_true(fabs(sum - 1) <= 1e-6); /* exp of the kernels: 2^-21 */
    free(answers);
    free(ids);
    free(prompt);
    free(lp);
    qwick_engine_close(eng);
}

static void choose_refuses(void **state)
{
    struct qwick_engine *eng = open_engine(SMALL, 0, true);
    int32_t ids[4] = {1, 2, 3, 1 << 30};
    double lp[2];
    struct qwick_choose_item it = {ids, 3, lp};
    struct qwick_answer two[2] = {{ids, 2}, {ids + 1, 2}};
    struct qwick_err e;
    const struct {
        struct qwick_answer other;
        const char *what;
    } bad[] = {
        {{ids, 2}, "same tokens as answer 1"},
        {{ids, 0}, "no tokens"},
        {{ids + 2, 2}, "out of range"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct qwick_answer a[2] = {{ids, 2}, bad[i].other};
        assert_int_equal(qwick_choose(eng, &it, 1, a, 2, &plain, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        assert_non_null(strstr(e.msg, bad[i].what));
    }
    assert_int_equal(qwick_choose(eng, &it, 1, two, 0, &plain, &e), -1);
    /* the last token of an answer needs no position */
    struct qwick_score_options o = {.size = sizeof(o), .n_ctx = 4};
    assert_ok(qwick_choose(eng, &it, 1, two, 2, &o, &e), &e);
    o.n_ctx = 3;
    assert_int_equal(qwick_choose(eng, &it, 1, two, 2, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    it.n = 0;
    assert_int_equal(qwick_choose(eng, &it, 1, two, 2, &plain, &e), -1);
    it.n = 4;
    assert_int_equal(qwick_choose(eng, &it, 1, two, 2, &plain, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    it.n = 3;
    volatile int flag = 1;
    o = (struct qwick_score_options){.size = sizeof(struct qwick_score_options),
                                     .interrupt = &flag};
    assert_int_equal(qwick_choose(eng, &it, 1, two, 2, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_ok(qwick_choose(eng, NULL, 0, two, 2, &plain, &e), &e);
    qwick_engine_close(eng);
}

/* ---- the default mode --------------------------------------------------- */

struct seen {
    size_t done, total, calls;
};

static void on_progress(void *ctx, size_t done, size_t total)
{
    struct seen *s = ctx;
    assert_true(done >= s->done && done <= total);
    *s = (struct seen){done, total, s->calls + 1};
}

static void default_mode_is_close(void **state)
{
    struct qwick_engine *fast = open_engine(NULL, 0, false);
    struct qwick_engine *exact = open_engine(NULL, 0, true);
    const size_t n = 70;
    struct qwick_score_item *a = some_items(n), *b = some_items(n);
    struct seen seen = {0};
    struct qwick_score_options o = {
        .size = sizeof(o), .progress = on_progress, .progress_ctx = &seen};
    struct qwick_err e;
    double x = 0, y = 0;
    size_t count = 0;
    assert_ok(qwick_score(fast, a, n, &o, &e), &e);
    assert_ok(qwick_score(exact, b, n, &plain, &e), &e);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = qwick_score_first(&a[i]); k < a[i].n; k++) {
            assert_true(isfinite(a[i].logprobs[k]));
            x -= a[i].logprobs[k];
            y -= b[i].logprobs[k];
            count++;
        }
    }
    assert_int_equal(seen.done, count);
    assert_int_equal(seen.total, count);
    /* logits have errors of up to 1.2e-2 of their norm, independent over
     * thousands of tokens; the mean loss changes by far less */
    assert_true(fabs(x - y) / y <= 1.2e-2);
    free_items(a, n);
    free_items(b, n);
    qwick_engine_close(fast);
    qwick_engine_close(exact);
}

/* One long prompt: the report moves within its pass. */
static void a_prompt_reports_its_layers(void **state)
{
    struct qwick_engine *eng = open_engine(NULL, 0, true);
    const size_t n_layers = qwick_engine_info(eng)->n_layers;
    struct seen seen = {0};
    struct qwick_score_options o = {
        .size = sizeof(o), .progress = on_progress, .progress_ctx = &seen};
    int32_t prompt[100], one = 3, other = 4;
    double logprobs[2];
    struct qwick_answer answers[] = {{&one, 1}, {&other, 1}};
    struct qwick_choose_item item = {prompt, 100, logprobs};
    struct qwick_err e;
    for (int32_t i = 0; i < 100; i++)
        prompt[i] = 10 + i;
    assert_ok(qwick_choose(eng, &item, 1, answers, 2, &o, &e), &e);
    assert_true(seen.calls >= n_layers);
    assert_int_equal(seen.done, 100);
    assert_int_equal(seen.total, 100);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_have_the_models_logprobs),
        cmocka_unit_test(each_scored_token_has_an_event),
        cmocka_unit_test(a_batch_equals_its_texts_alone),
        cmocka_unit_test(windows_by_brute_force),
        cmocka_unit_test(context_is_read_not_scored),
        cmocka_unit_test(steps_take_turns),
        cmocka_unit_test(perplexity_of_a_text),
        cmocka_unit_test(score_refuses),
        cmocka_unit_test(answers_by_brute_force),
        cmocka_unit_test(probabilities_of_all_tokens_add_up),
        cmocka_unit_test(choose_refuses),
        cmocka_unit_test(default_mode_is_close),
        cmocka_unit_test(a_prompt_reports_its_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
