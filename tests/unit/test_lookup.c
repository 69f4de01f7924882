/* Prompt lookup: the index and the value of guesses, tested on token sequences
 * without a model; then whole generations, with and without lookup. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cpu.h"
#include "engine/core/engine.h"
#include "engine/generate/lookup.h"
#include "engines.h"
#include "file/json.h"
#include "file/map.h"
#include "jsonl.h"
#include "lcg.h"
#include "own_sampling.h"

static int32_t *random_ids(size_t n, uint32_t n_ids)
{
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)below(n_ids);
    return ids;
}

static struct lookup *open_lookup(size_t max, double row_cost)
{
    struct lookup *l;
    assert_int_equal(lookup_create(&l, max, row_cost, NULL), 0);
    return l;
}

static void add(struct lookup *l, const int32_t *ids, size_t n)
{
    assert_int_equal(lookup_add(l, ids, n, NULL), 0);
}

/* ---- the index ---------------------------------------------------------- */

/* With a row cost of 0, everything found is handed out. */
static void assert_guess(const int32_t *ids, size_t n, size_t max,
                         const int32_t *want, size_t n_want)
{
    int32_t got[LOOKUP_MAX];
    struct lookup *l = open_lookup(LOOKUP_MAX, 0);
    add(l, ids, n);
    assert_int_equal(lookup_guess(l, got, max), n_want);
    assert_memory_equal(got, want, n_want * sizeof *got);
    lookup_free(l);
}
#define IDS(...)                    \
    (const int32_t[]){__VA_ARGS__}, \
        sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void finds_what_followed(void **state)
{
    /* a match needs two tokens */
    assert_guess(IDS(1), 3, NULL, 0);
    assert_guess(IDS(1, 2), 3, NULL, 0);
    assert_guess(IDS(1, 2, 3), 3, NULL, 0);
    assert_guess(IDS(1, 2, 3, 9, 2), 3, NULL, 0);
    assert_guess(IDS(1, 2, 3, 4, 5, 1, 2), 3, IDS(3, 4, 5));
    assert_guess(IDS(1, 2, 3, 4, 5, 1, 2), 1, IDS(3));
    assert_guess(IDS(1, 2, 3, 4, 5, 1, 2), 0, NULL, 0);
    /* the latest match, unless an earlier one is longer */
    assert_guess(IDS(7, 1, 2, 3, 9, 1, 2, 4, 1, 2), 1, IDS(4));
    assert_guess(IDS(7, 1, 2, 3, 9, 1, 2, 4, 7, 1, 2), 1, IDS(3));
    /* a repetition continues */
    assert_guess(IDS(5, 5, 5), 6, IDS(5, 5, 5, 5, 5, 5));
    assert_guess(IDS(1, 2, 3, 1, 2, 3, 1, 2), 7, IDS(3, 1, 2, 3, 1, 2, 3));
    /* ids of any value */
    assert_guess(IDS(0, INT32_MAX, -1, 0, INT32_MAX), 1, IDS(-1));
}

/* Pairs with equal hashes but different tokens do not match. */
static void collisions_are_no_matches(void **state)
{
    int32_t got[LOOKUP_MAX];
    struct lookup *l = open_lookup(LOOKUP_MAX, 0);
    for (int32_t i = 0; i < 3000; i++) {
        add(l, (const int32_t[]){1000 + i, 7}, 2);
        assert_int_equal(lookup_guess(l, got, 4), 0);
    }
    lookup_free(l);
}

/* The longest match by a full search. *follows: whether `id` follows one of the
 * longest matches. */
static size_t longest(const int32_t *ids, size_t n, int32_t id, bool *follows)
{
    size_t best = 0;
    *follows = false;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t k = 0;
        while (k <= i && k < 32 && ids[i - k] == ids[n - 1 - k])
            k++;
        if (k > best) {
            best = k;
            *follows = false;
        }
        if (k == best && ids[i + 1] == id)
            *follows = true;
    }
    return best;
}

/* The context and the index grow by single tokens and by runs. */
static void guesses_are_the_longest_match(void **state)
{
    enum { N = 3000 };
    for (uint32_t n_ids = 24; n_ids <= 96; n_ids *= 2) {
        int32_t *ids = random_ids(N, n_ids), got[LOOKUP_MAX];
        struct lookup *l = open_lookup(LOOKUP_MAX, 0);
        size_t n = 0, found = 0, at;
        bool follows;
        while (n < N) {
            size_t m = 1 + below(9);
            if (n > 50 && below(3) == 0) {
                /* repeat an earlier passage */
                at = below((uint32_t)(n - 20));
                for (size_t i = 0; i < 15 && n + i < N; i++)
                    ids[n + i] = ids[at + i];
            }
            m = m < N - n ? m : N - n;
            add(l, ids + n, m);
            n += m;
            size_t k = lookup_guess(l, got, 5);
            size_t best = longest(ids, n, got[0], &follows);
            /* with 24 ids, a pair occurs about 5 times in 3000 tokens: fewer
             * than the places that a search tries */
            assert_int_equal(k, best >= 2 ? 5 : 0);
            if (k) {
                assert_true(follows);
                found++;
            }
        }
        assert_true(found > 100);
        lookup_free(l);
        free(ids);
    }
}

/* ---- what guesses are worth ---------------------------------------------- */

/* A run whose answer is known in advance. */
struct replay {
    double time; /* in passes of one token */
    size_t n_passes, n_drafted, n_accepted;
    size_t n_tokens;
};

static struct replay replay(struct lookup *l, double row_cost,
                            const int32_t *ids, size_t n)
{
    struct replay r = {0};
    int32_t drafts[LOOKUP_MAX];
    add(l, ids, 1);
    for (size_t i = 1; i < n;) {
        size_t k = lookup_guess(l, drafts, n - i - 1), m = 0;
        while (m < k && drafts[m] == ids[i + m])
            m++;
        r.time += k ? 1 + row_cost * (double)(k + 1) : 1;
        r.n_passes += k > 0;
        r.n_drafted += k;
        r.n_accepted += m;
        r.n_tokens += m + 1;
        add(l, ids + i, m + 1);
        i += m + 1;
    }
    return r;
}

static const double costs[] = {0.01, 0.06, 0.12, 0.2, 0.36, 0.4};
enum { N_COSTS = sizeof costs / sizeof *costs };

static void nothing_repeats_nothing_is_guessed(void **state)
{
    int32_t *ids = malloc(5000 * sizeof *ids);
    for (int32_t i = 0; i < 5000; i++)
        ids[i] = i;
    for (size_t c = 0; c < N_COSTS; c++) {
        struct lookup *l = open_lookup(16, costs[c]);
        struct replay r = replay(l, costs[c], ids, 5000);
        assert_int_equal(r.n_drafted, 0);
        lookup_free(l);
    }
    free(ids);
}

/* The text is already in the context, except for a few tokens. */
static void copies_are_fast(void **state)
{
    enum { N = 2000 };
    /* Speed-up of an exact copy, and of a copy with faults. The bounds are the
     * results of this sequence, cut to two digits: a weaker policy is below
     * them. */
    static const double least[N_COSTS][2] = {
        {14, 7.2}, {8.2, 4.9}, {5.5, 3.6}, {3.8, 2.8}, {2.3, 1.7}, {2.1, 1.5}};
    below_state = 1;
    int32_t *ids = random_ids(N, 100000), *faulty = random_ids(N, 100000);
    for (size_t i = 0; i < N; i++)
        if (i % 40)
            faulty[i] = ids[i];
    for (size_t c = 0; c < N_COSTS; c++) {
        for (size_t f = 0; f < 2; f++) {
            struct lookup *l = open_lookup(16, costs[c]);
            add(l, ids, N);
            struct replay r = replay(l, costs[c], f ? faulty : ids, N);
            assert_true((double)r.n_tokens / r.time >= least[c][f]);
            lookup_free(l);
        }
    }
    free(ids);
    free(faulty);
}

/* Misleading text: the guessed token comes in `right` of `of` cases; after it,
 * another token makes the context match again. */
static double mislead(double cost, size_t max, uint32_t n_ids, uint32_t right,
                      uint32_t of, size_t *n_drafted, size_t *n_passes)
{
    struct lookup *l = open_lookup(max, cost), *shadow = open_lookup(max, 0);
    int32_t drafts[LOOKUP_MAX], first[LOOKUP_MAX], id;
    double lost = 0;
    *n_drafted = *n_passes = 0;
    for (size_t i = 0; i < 5000; i++) {
        size_t k = lookup_guess(l, drafts, max), m = 0;
        size_t known = lookup_guess(shadow, first, max);
        lost += k ? cost * (double)(k + 1) : 0;
        *n_drafted += k;
        ++*n_passes;
        for (;;) {
            bool come_true = below(of) < right;
            id = (int32_t)below(n_ids);
            if (m < known)
                id = come_true ? first[m] : (first[m] + 1) % (int32_t)n_ids;
            add(l, &id, 1);
            add(shadow, &id, 1);
            if (m >= k || id != drafts[m])
                break;
            m++;
            lost -= 1;
        }
    }
    lookup_free(l);
    lookup_free(shadow);
    return lost;
}

/* For any text, guessing costs at most one pass plus 1% of all passes. */
static void loss_is_limited(void **state)
{
    static const uint32_t rates[][2] = {{0, 1}, {1, 10}, {1, 4}, {1, 3},
                                        {1, 2}, {2, 3},  {9, 10}};
    static const size_t most[] = {1, 4, 16, 64};
    below_state = 2;
    size_t drafted = 0;
    for (size_t c = 0; c < N_COSTS; c++) {
        for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
            for (size_t m = 0; m < 4; m++) {
                size_t n_drafted, n_passes;
                double lost = mislead(costs[c], most[m], 5, rates[r][0],
                                      rates[r][1], &n_drafted, &n_passes);
                /* 1e-6: sums of thousands of terms in double */
                assert_true(lost <= 1 + 0.01 * (double)n_passes + 1e-6);
                drafted += n_drafted;
                /* if no guess is right, the policy learns it */
                if (rates[r][0] == 0)
                    assert_true(lost <= 0.005 * (double)n_passes);
            }
        }
    }
    assert_true(drafted > 10000);
}

/* After the policy gave up, unrequested guesses notice that the text repeats
 * itself again. */
static void it_comes_back(void **state)
{
    enum { N = 400 };
    below_state = 3;
    int32_t *ids = random_ids(N, 100000), drafts[LOOKUP_MAX];
    for (size_t c = 0; c < N_COSTS; c++) {
        size_t n_drafted, n_passes, i;
        struct lookup *l = open_lookup(16, costs[c]);
        add(l, ids, N);
        /* mislead it until it gives up: each pair occurred before, the next
         * token is new */
        for (int32_t k = 0; k < 500; k++) {
            const int32_t pair[] = {ids[k % N], ids[(k + 1) % N], 200000 + k};
            for (size_t j = 0; j < 3; j++) {
                add(l, &pair[j], 1);
                n_drafted = lookup_guess(l, drafts, 16);
                if (k >= 400 && costs[c] >= 0.12)
                    assert_int_equal(n_drafted, 0);
            }
        }
        /* a copy: it guesses again within 20 tokens */
        for (i = 100; i < 120; i++) {
            add(l, &ids[i], 1);
            if ((n_passes = lookup_guess(l, drafts, 16)) != 0)
                break;
        }
        assert_true(i < 120);
        assert_int_equal(drafts[0], ids[i + 1]);
        lookup_free(l);
    }
    free(ids);
}

static void the_same_tokens_give_the_same_guesses(void **state)
{
    enum { N = 4000 };
    below_state = 4;
    int32_t *ids = random_ids(N, 8), a[LOOKUP_MAX], b[LOOKUP_MAX];
    struct lookup *x = open_lookup(8, 0.06), *y = open_lookup(8, 0.06);
    size_t sum = 0;
    for (size_t i = 0; i < N; i++) {
        add(x, &ids[i], 1);
        add(y, &ids[i], 1);
        size_t n = lookup_guess(x, a, 8);
        assert_int_equal(lookup_guess(y, b, 8), n);
        assert_memory_equal(a, b, n * sizeof *a);
        assert_true(n <= 8);
        sum += n;
    }
    assert_true(sum > 0);
    lookup_free(x);
    lookup_free(y);
    free(ids);
}

/* ---- generations --------------------------------------------------------- */

static struct qwick_engine *open_engine(const char *model, enum isa level,
                                        bool exact, int threads)
{
    return engine_with(.model = model, .isa = isa_name(level), .exact = exact,
                       .threads = threads);
}

/* All visible results of one generation. */
struct outcome {
    struct qwick_result r;
    struct qwick_err e;
    int rc;
    struct buf events;
    size_t n_events;
    int32_t *context;
    size_t n_context;
    float *logits, *next; /* [vocab_size] at the end; after one more token */
};

/* How the callback watches a generation, and ends it after so many tokens. */
struct watch {
    struct outcome *out;
    size_t stop_after, interrupt_after;
    volatile int flag;
};

static int on_token(void *ctx, const struct qwick_token_event *ev)
{
    struct watch *w = ctx;
    struct buf *b = &w->out->events;
    int bad = buf_printf(b, "%d %d \"", ev->id, (int)ev->channel);
    bad |= buf_append(b, ev->text, ev->n_text);
    bad |= buf_printf(b, "\" %a", (double)ev->logprob);
    for (size_t i = 0; i < ev->n_top; i++)
        bad |=
            buf_printf(b, " %d:%a", ev->top[i].id, (double)ev->top[i].logprob);
    assert_int_equal(bad | buf_putc(b, '\n'), 0);
    w->out->n_events++;
    if (w->interrupt_after == w->out->n_events)
        w->flag = 1;
    return w->stop_after == w->out->n_events;
}

static float *copy_logits(const struct qwick_session *s)
{
    size_t n = qwick_engine_info(s->eng)->vocab_size * sizeof(float);
    float *copy = malloc(n);
    assert_non_null(qwick_session_logits(s));
    memcpy(copy, qwick_session_logits(s), n);
    return copy;
}

static struct outcome generate(struct qwick_engine *eng, size_t n_ctx,
                               const int32_t *ids, size_t n,
                               struct qwick_generate_options o, struct watch w)
{
    struct outcome out = {0};
    struct qwick_session *s;
    assert_int_equal(qwick_session_create(&s, eng, n_ctx, NULL), 0);
    w.out = &out;
    o.on_token = on_token;
    o.on_token_ctx = &w;
    qwick_session_interrupt(s, &w.flag);
    out.rc = qwick_generate(s, ids, n, &o, &out.r, &out.e);
    qwick_session_interrupt(s, NULL);
    const int32_t *tokens = qwick_session_tokens(s, &out.n_context);
    out.context = malloc((out.n_context + 1) * sizeof *tokens);
    memcpy(out.context, tokens, out.n_context * sizeof *tokens);
    out.logits = copy_logits(s);
    size_t n_rows;
    assert_ptr_equal(qwick_session_rows(s, &n_rows), qwick_session_logits(s));
    assert_int_equal(n_rows, 1);
    if (out.n_context < qwick_session_n_ctx(s)) {
        assert_int_equal(qwick_session_decode(s, 5, NULL), 0);
        out.next = copy_logits(s);
    }
    qwick_session_free(s);
    return out;
}

static void free_outcome(struct outcome *o)
{
    qwick_result_free(&o->r);
    buf_free(&o->events);
    free(o->context);
    free(o->logits);
    free(o->next);
}

/* Check that lookup changes nothing. Returns the number of accepted guesses. */
static size_t compare(struct qwick_engine *eng, size_t n_ctx,
                      const int32_t *ids, size_t n,
                      struct qwick_generate_options o, struct watch w)
{
    size_t bytes = qwick_engine_info(eng)->vocab_size * sizeof(float);
    o.lookup = 0;
    struct outcome a = generate(eng, n_ctx, ids, n, o, w);
    o.lookup = 1 + below(16);
    struct outcome b = generate(eng, n_ctx, ids, n, o, w);
    assert_int_equal(a.rc, 0);
    assert_int_equal(b.rc, 0);
    assert_int_equal(b.r.n_tokens, a.r.n_tokens);
    assert_memory_equal(b.r.tokens, a.r.tokens,
                        a.r.n_tokens * sizeof *a.r.tokens);
    assert_int_equal(b.r.finish, a.r.finish);
    assert_string_equal(b.r.text, a.r.text);
    assert_int_equal(!b.r.thinking, !a.r.thinking);
    if (a.r.thinking)
        assert_string_equal(b.r.thinking, a.r.thinking);
    assert_int_equal(b.events.len, a.events.len);
    assert_memory_equal(b.events.data, a.events.data, a.events.len);
    assert_int_equal(b.n_context, a.n_context);
    assert_int_equal(a.n_context, n + a.r.n_tokens - 1);
    assert_memory_equal(b.context, a.context, a.n_context * sizeof *a.context);
    assert_memory_equal(b.logits, a.logits, bytes);
    assert_int_equal(!b.next, !a.next);
    if (a.next)
        assert_memory_equal(b.next, a.next, bytes);
    assert_int_equal(a.r.lookup.max, 0);
    assert_int_equal(b.r.lookup.max, o.lookup);
    assert_true(b.r.lookup.n_accepted <= b.r.lookup.n_drafted);
    assert_true(b.r.lookup.n_drafted <= o.lookup * b.r.lookup.n_passes);
    size_t kept = b.r.lookup.n_accepted;
    free_outcome(&a);
    free_outcome(&b);
    return kept;
}

/* Ways to choose tokens. Some lead to text that repeats itself. */
static struct qwick_generate_options option_set(size_t i)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    o.ignore_eos = true;
    o.split_thinking = false;
    o.max_tokens = 50;
    own_sampling(&o)->temperature = i < 3 ? 0 : i < 6 ? 0.3f : 0.9f;
    own_sampling(&o)->seed = i;
    switch (i % 3) {
    case 0:
        /* a negative penalty favours repetition */
        own_sampling(&o)->frequency_penalty = -0.5f;
        break;
    case 1:
        o.logprobs = 3;
        o.split_thinking = true;
        break;
    case 2:
        own_sampling(&o)->repeat_penalty = 0.8f;
        own_sampling(&o)->presence_penalty = -0.1f;
        own_sampling(&o)->frequency_penalty = 0.02f;
        own_sampling(&o)->top_p = 0.9f;
        own_sampling(&o)->top_k = 30;
        break;
    }
    return o;
}
enum { N_OPTIONS = 9 };

static const char *const small_models[] = {
    "tests/golden/models/yarn", "tests/golden/models/head128-untied-bf16",
    "tests/golden/models/f32", "tests/golden/models/mlx4"};

/* Prompts for the small models, some of which repeat themselves. */
static void small_prompt(int32_t *ids, size_t n, size_t i)
{
    for (size_t j = 0; j < n; j++)
        ids[j] = i % 2 && j >= 7 ? ids[j - 7] : (int32_t)below(320);
}

static void exact_is_the_same_at_every_level(void **state)
{
    int32_t ids[80];
    below_state = 5;
    for (int l = 0; l < ISA_COUNT; l++) {
        size_t kept = 0;
        /* two models per level, alternating */
        size_t m = (size_t)l % 2, n_options = l == ISA_REF ? 3 : N_OPTIONS;
        for (; m < 4 && cpu_has((enum isa)l); m += 2) {
            struct qwick_engine *eng =
                open_engine(small_models[m], (enum isa)l, true, 1 + (int)m / 2);
            for (size_t i = 0; i < n_options; i++) {
                /* pages of the cache end at 64 tokens */
                size_t n = 10 + below(70);
                small_prompt(ids, n, i + m);
                kept +=
                    compare(eng, 0, ids, n, option_set(i), (struct watch){0});
            }
            qwick_engine_close(eng);
        }
        /* scalar kernels gain nothing from joint passes, so they guess
         * nothing */
        if (cpu_has((enum isa)l) && l != ISA_REF)
            assert_true(kept > 100);
        else
            assert_int_equal(kept, 0);
    }
}

/* Guesses of a mixture of experts, whose rows go to different experts. */
static void exact_is_the_same_for_experts(void **state)
{
    int32_t ids[80];
    below_state = 6;
    for (int l = 0; l < ISA_COUNT; l++) {
        if (!cpu_has((enum isa)l))
            continue;
        struct qwick_engine *eng =
            open_engine("tests/golden/models/moe", (enum isa)l, true, 2);
        for (size_t i = 0; i < 3; i++) {
            size_t n = 10 + below(70);
            small_prompt(ids, n, i + 1);
            compare(eng, 0, ids, n, option_set(i), (struct watch){0});
        }
        qwick_engine_close(eng);
    }
}

/* A joint pass equals single passes, no matter how many of its tokens are
 * kept. */
static void rows_are_those_of_single_steps(void **state)
{
    enum { N = 9, AT = 60 };
    int32_t ids[AT + N + 1];
    below_state = 6;
    small_prompt(ids, AT + N + 1, 0);
    for (int l = 0; l < ISA_COUNT; l++) {
        for (size_t m = 0; m < 4 && cpu_has((enum isa)l); m++) {
            struct qwick_engine *eng =
                open_engine(small_models[m], (enum isa)l, true, 2);
            size_t vocab_size = qwick_engine_info(eng)->vocab_size;
            size_t bytes = vocab_size * sizeof(float);
            float *rows = malloc(N * bytes), *row[N + 1];
            struct qwick_session *s, *t;
            assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
            assert_int_equal(qwick_session_sync(s, ids, AT, NULL), 0);
            for (size_t i = 0; i < N + 1; i++) {
                assert_int_equal(qwick_session_decode(s, ids[AT + i], NULL), 0);
                row[i] = copy_logits(s);
            }
            assert_int_equal(qwick_session_create(&t, eng, 0, NULL), 0);
            assert_int_equal(qwick_session_sync(t, ids, AT, NULL), 0);
            for (size_t keep = 1; keep <= N; keep++) {
                assert_int_equal(qwick_session_rollback(t, AT, NULL), 0);
                assert_int_equal(
                    session_decode_all(t, ids + AT, N, N, rows, NULL), 0);
                for (size_t i = 0; i < N; i++)
                    assert_memory_equal(rows + i * vocab_size, row[i], bytes);
                session_keep(t, AT + keep);
                size_t n_rows;
                assert_ptr_equal(qwick_session_rows(t, &n_rows), rows);
                assert_int_equal(n_rows, keep);
                assert_memory_equal(t->logits, row[keep - 1], bytes);
                session_own_logits(t);
                memset(rows, 0, N * bytes);
                assert_memory_equal(t->logits, row[keep - 1], bytes);
                assert_int_equal(qwick_session_length(t), AT + keep);
                assert_int_equal(qwick_session_decode(t, ids[AT + keep], NULL),
                                 0);
                assert_memory_equal(t->logits, row[keep], bytes);
            }
            qwick_session_free(t);
            for (size_t i = 0; i < N + 1; i++)
                free(row[i]);
            free(rows);
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
    }
}

static void joint_passes_have_limits(void **state)
{
    const int32_t ids[] = {1, 2, 3, 99999};
    struct qwick_engine *eng = open_engine(small_models[0], ISA_REF, true, 1);
    size_t vocab_size = qwick_engine_info(eng)->vocab_size;
    float *rows = malloc(3 * vocab_size * sizeof *rows);
    struct qwick_session *s;
    struct qwick_err e;
    assert_int_equal(qwick_session_create(&s, eng, 5, NULL), 0);
    assert_int_equal(qwick_session_sync(s, ids, 3, NULL), 0);
    assert_int_equal(session_decode_all(s, ids, 3, 3, rows, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_int_equal(session_decode_all(s, ids + 2, 2, 3, rows, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(qwick_session_length(s), 3);
    assert_non_null(qwick_session_logits(s));
    assert_int_equal(session_decode_all(s, ids, 2, 3, rows, &e), 0);
    qwick_session_free(s);
    free(rows);
    qwick_engine_close(eng);
}

/* An answer may end at any place within a run of guesses. */
static void every_end_is_the_same(void **state)
{
    enum { N = 40 };
    int32_t ids[N];
    below_state = 7;
    struct qwick_engine *eng =
        open_engine(small_models[0], cpu_best(), true, 1);
    struct qwick_generate_options o = option_set(0);
    size_t kept = 0;
    small_prompt(ids, N, 1);
    for (size_t i = 1; i <= 40; i++) {
        struct watch none = {0}, stop = {.stop_after = i},
                     flag = {.interrupt_after = i};
        o.max_tokens = i;
        kept += compare(eng, 0, ids, N, o, none);
        o.max_tokens = 0;
        kept += compare(eng, N + i, ids, N, o, none);
        kept += compare(eng, N + 60, ids, N, o, stop);
        kept += compare(eng, N + 60, ids, N, o, flag);
        o.loop_guard = 3 + i;
        kept += compare(eng, N + 60, ids, N, o, none);
        o.loop_guard = 0;
    }
    /* With the reference kernels each token of a pass costs as much as a pass
       of its own. Guesses save nothing, so none are made. */
    if (cpu_best() == ISA_REF)
        assert_int_equal(kept, 0);
    else
        assert_true(kept > 1000);
    qwick_engine_close(eng);
}

/* ---- the demo model ------------------------------------------------------ */

enum { N_DEMO = 60, MOST_IDS = 400 };

static size_t append_ids(const struct jsonl *in, const char *key, int32_t *ids)
{
    struct ids list = ids_of(json_get(in->root, key));
    memcpy(ids, list.v, list.n * sizeof *ids);
    free(list.v);
    return list.n;
}

/* Prompt i of the golden answers. twice: the prompt, its answer, and the prompt
 * again, so that the answer occurred before. */
static size_t demo_prompt(size_t i, bool twice, int32_t ids[MOST_IDS])
{
    struct jsonl in = jsonl_open("tests/golden/demo_visible.jsonl");
    while (jsonl_next(&in) && i--)
        ;
    size_t n = append_ids(&in, "prompt_ids", ids);
    if (twice) {
        n += append_ids(&in, "ids", ids + n);
        ids[n++] = 198; /* a newline */
        n += append_ids(&in, "prompt_ids", ids + n);
    }
    jsonl_close(&in);
    return n;
}

static void answers_of_the_demo_are_the_same(void **state)
{
    int32_t ids[MOST_IDS];
    below_state = 8;
    struct qwick_engine *eng = open_engine(NULL, cpu_best(), true, 1);
    size_t kept = 0;
    for (size_t i = 0; i < N_DEMO; i += 2) {
        struct qwick_generate_options o = option_set(i % N_OPTIONS);
        size_t n = demo_prompt(i, i % 8 != 0, ids);
        o.max_tokens = 60;
        o.ignore_eos = i % 3;
        o.split_thinking = true;
        o.in_think = i % 5 == 4;
        kept += compare(eng, 0, ids, n, o, (struct watch){0});
    }
    assert_true(kept > 50);
    qwick_engine_close(eng);
}

/* No text comes after a stop string, even in the middle of a run of guesses. */
static void stop_strings_end_it(void **state)
{
    static const char *const stops[] = {"e",   "com", "ver", "al",   "mse",
                                        "lco", "ral", "sev", " sev", "comsev"};
    const char raw[] = "Hello";
    int32_t *ids;
    size_t n, kept = 0;
    below_state = 9;
    struct qwick_engine *eng = open_engine(NULL, cpu_best(), true, 1);
    struct qwick_generate_options o = option_set(0);
    assert_int_equal(
        qwick_tokenize(eng, raw, strlen(raw), true, &ids, &n, NULL), 0);
    o.max_tokens = 60;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        o.stop = &stops[i];
        o.n_stop = 1;
        kept += compare(eng, 0, ids, n, o, (struct watch){0});
    }
    /* late stop strings, from tokens that a loop repeats */
    struct qwick_generate_options all = option_set(0);
    all.max_tokens = 60;
    struct outcome a = generate(eng, 0, ids, n, all, (struct watch){0});
    for (size_t at = 5; at + 12 < a.r.n_text; at += 15) {
        char stop[64];
        const char *list = stop;
        size_t len = at < 40 ? at : 40;
        memcpy(stop, a.r.text + at - len + 10, len);
        stop[len] = 0;
        o.stop = &list;
        kept += compare(eng, 0, ids, n, o, (struct watch){0});
    }
    assert_true(kept > 30);
    free_outcome(&a);
    free(ids);
    qwick_engine_close(eng);
}

static double rms(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)n);
}

/* Two greedy answers are equal up to position i. Returns the true difference of
 * the logits of their tokens at i, relative to the rms of the logits. */
static double gap(struct qwick_engine *exact, int32_t *ids, size_t n,
                  const struct qwick_result *a, const struct qwick_result *b,
                  size_t i)
{
    struct qwick_session *s = open_session(exact);
    memcpy(ids + n, a->tokens, i * sizeof *ids);
    assert_int_equal(qwick_session_sync(s, ids, n + i, NULL), 0);
    const float *x = qwick_session_logits(s);
    double d = fabs((double)x[a->tokens[i]] - (double)x[b->tokens[i]]);
    d /= rms(x, qwick_engine_info(exact)->vocab_size);
    qwick_session_free(s);
    return d;
}

/* Sanitizers make a model ten times slower: they see the best level only. */
#ifdef __SANITIZE_ADDRESS__
enum { FIRST_LEVEL = 2 };
#else
enum { FIRST_LEVEL = 0 };
#endif

/* In default mode, a pass of several tokens may round differently from single
 * passes. Each has an error within 1.2e-2 (dense) of the norm of all logits. If
 * errors are spread evenly, the difference of two logits of one run has a mean
 * error of 1.2e-2 sqrt(2) rms; six times that is not a coincidence. So answers
 * may differ only where the true logits of the two tokens are nearer than
 * this. */
static void default_mode_parts_at_near_ties(void **state)
{
    int32_t ids[MOST_IDS];
    const double near = 6 * 1.2e-2 * sqrt(2);
    below_state = 10;
    struct qwick_engine *exact = open_engine(NULL, cpu_best(), true, 1);
    for (size_t j = FIRST_LEVEL; j < 3; j++) {
        const enum isa levels[] = {ISA_AVX2, ISA_AVX512, cpu_best()};
        const enum isa l = levels[j];
        if (!cpu_has(l))
            continue;
        struct qwick_engine *eng = open_engine(NULL, l, false, 1);
        size_t compared = 0, parted = 0, kept = 0;
        double widest = 0;
        for (size_t i = 0; i < N_DEMO; i += 3) {
            struct qwick_generate_options o = option_set(1);
            size_t n = demo_prompt(i, i % 4, ids), at = 0;
            o.max_tokens = 60;
            struct outcome a = generate(eng, 0, ids, n, o, (struct watch){0});
            o.lookup = 16;
            struct outcome b = generate(eng, 0, ids, n, o, (struct watch){0});
            size_t len =
                a.r.n_tokens < b.r.n_tokens ? a.r.n_tokens : b.r.n_tokens;
            while (at < len && a.r.tokens[at] == b.r.tokens[at])
                at++;
            compared += at;
            kept += b.r.lookup.n_accepted;
            if (at < len) {
                double d = gap(exact, ids, n, &a.r, &b.r, at);
                widest = d > widest ? d : widest;
                parted++;
                assert_true(d <= near);
            }
            free_outcome(&a);
            free_outcome(&b);
        }
        print_message(
            "%s: %zu guesses kept; %zu of %d answers part, %zu tokens "
            "before that are equal; widest gap %.4f of the logits' "
            "rms\n",
            isa_name(l), kept, parted, N_DEMO / 3, compared, widest);
        assert_true(kept > 50);
        qwick_engine_close(eng);
    }
    qwick_engine_close(exact);
}

/* ---- times, options ------------------------------------------------------ */

static void each_token_has_its_time(void **state)
{
    int32_t ids[40];
    below_state = 11;
    struct qwick_engine *eng =
        open_engine(small_models[0], cpu_best(), true, 1);
    small_prompt(ids, 40, 1);
    for (size_t n = 1; n <= 60; n += n < 12 ? 1 : 8) {
        struct qwick_generate_options o = option_set(0);
        o.max_tokens = n;
        o.lookup = 16;
        o.profile = true;
        struct outcome out = generate(eng, 0, ids, 40, o, (struct watch){0});
        const struct qwick_result *r = &out.r;
        size_t changes = n > 1;
        double sum = 0;
        assert_int_equal(r->n_per_token, n - 1);
        for (size_t i = 0; i + 1 < n; i++) {
            assert_true(r->per_token_ms[i] >= 0);
            assert_true(r->sample_ms[i] >= 0);
            assert_true(r->sample_ms[i] <= r->per_token_ms[i]);
            sum += r->per_token_ms[i];
            if (i && r->per_token_ms[i] != r->per_token_ms[i - 1])
                changes++;
        }
        /* the tokens of a pass have equal times */
        size_t n_passes = n - 1 - r->lookup.n_accepted;
        assert_true(changes <= n_passes);
        /* and different passes hardly ever have equal times */
        assert_true(changes >= n_passes / 2);
        /* 1e-6: sums of doubles */
        assert_true(sum <= r->total_ms - r->prefill_ms + 1e-6);
        if (n > 50)
            assert_true(r->lookup.n_accepted > 10);
        free_outcome(&out);
    }
    qwick_engine_close(eng);
}

/* No pass with guesses exceeds the engine's chunk. */
static void chunks_limit_guesses(void **state)
{
    int32_t ids[40];
    below_state = 12;
    small_prompt(ids, 40, 1);
    for (size_t chunk = 1; chunk <= 4; chunk++) {
        struct qwick_engine *eng =
            engine_with(.model = small_models[0], .exact = true, .threads = 1,
                        .prefill_chunk = chunk);
        struct qwick_generate_options o = option_set(0);
        o.lookup = 16;
        struct outcome out = generate(eng, 0, ids, 40, o, (struct watch){0});
        const struct qwick_lookup *l = &out.r.lookup;
        assert_int_equal(l->max, 16);
        assert_true(l->n_drafted <= (chunk - 1) * l->n_passes);
        assert_int_equal(l->n_passes > 0, chunk > 1);
        free_outcome(&out);
        qwick_engine_close(eng);
    }
}

static int on_done(void *ctx, void *tag, struct qwick_result *r,
                   const struct qwick_err *e)
{
    (void)tag;
    assert_null(e);
    *(struct qwick_result *)ctx = *r;
    *r = (struct qwick_result){0};
    return 0;
}

static void options_are_checked(void **state)
{
    const int32_t ids[] = {1, 2, 3};
    struct qwick_engine *eng =
        open_engine(small_models[0], cpu_best(), true, 1);
    struct qwick_result r;
    struct qwick_err e;
    struct qwick_generate_options o = option_set(0);
    struct qwick_session *s = open_session(eng);
    o.lookup = QWICK_LOOKUP_MAX + 1;
    assert_int_equal(qwick_generate(s, ids, 3, &o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, "at most 64, is 65"));
    qwick_result_free(&r);
    o.lookup = QWICK_LOOKUP_MAX;
    assert_int_equal(qwick_generate(s, ids, 3, &o, &r, &e), 0);
    assert_int_equal(r.lookup.max, QWICK_LOOKUP_MAX);
    size_t n = r.n_tokens;
    qwick_result_free(&r);
    qwick_session_free(s);

    /* a batch does not allow lookup */
    struct qwick_batch_options bo = {
        .size = sizeof(bo), .done = on_done, .done_ctx = &r};
    struct qwick_batch *b;
    assert_int_equal(qwick_batch_create(&b, eng, &bo, NULL), 0);
    assert_int_equal(qwick_batch_add(b, ids, 3, &o, NULL, NULL), 0);
    assert_int_equal(qwick_batch_run(b, NULL), 0);
    assert_int_equal(r.lookup.max, 0);
    assert_int_equal(r.n_tokens, n);
    qwick_result_free(&r);
    qwick_batch_free(b);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_followed),
        cmocka_unit_test(collisions_are_no_matches),
        cmocka_unit_test(guesses_are_the_longest_match),
        cmocka_unit_test(nothing_repeats_nothing_is_guessed),
        cmocka_unit_test(copies_are_fast),
        cmocka_unit_test(loss_is_limited),
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(the_same_tokens_give_the_same_guesses),
        cmocka_unit_test(rows_are_those_of_single_steps),
        cmocka_unit_test(joint_passes_have_limits),
        cmocka_unit_test(exact_is_the_same_at_every_level),
        cmocka_unit_test(exact_is_the_same_for_experts),
        cmocka_unit_test(every_end_is_the_same),
        cmocka_unit_test(answers_of_the_demo_are_the_same),
        cmocka_unit_test(stop_strings_end_it),
        cmocka_unit_test(default_mode_parts_at_near_ties),
        cmocka_unit_test(each_token_has_its_time),
        cmocka_unit_test(chunks_limit_guesses),
        cmocka_unit_test(options_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
