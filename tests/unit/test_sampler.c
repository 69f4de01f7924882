/* Sampling against a plain second implementation, which sorts everything,
 * computes in double, and goes through candidates by id. */
#include "test.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "engine/generate/sampler.h"

enum { QWEN3_VOCAB = 151936 };

/* Relative error of the sampler's float32 exponentials. (x - max) / temperature
 * is rounded to float32. At -40, where the result is 4e-18 of the largest, this
 * error is 40 * 2^-24 = 2.4e-6; smaller results do not matter. */
#define SLACK 5e-6

static struct qwick_sampling neutral(void)
{
    return (struct qwick_sampling){
        .temperature = 1, .top_p = 1, .repeat_penalty = 1};
}

static const struct kernels *best(void)
{
    return kernels_get(cpu_best());
}

static struct sampler *make(const struct qwick_sampling *o, size_t n,
                            const unsigned char *blocked)
{
    struct sampler *s;
    struct qwick_err e;
    assert_ok(sampler_create(&s, o, n, blocked, best(), &e), &e);
    return s;
}

static int32_t draw(struct sampler *s, const float *x)
{
    int32_t id = -1;
    struct qwick_err e;
    assert_ok(sampler_draw(s, x, &id, &e), &e);
    return id;
}

static int32_t greedy_of(const float *x, size_t n, const unsigned char *blocked)
{
    struct qwick_sampling o = neutral();
    o.temperature = 0;
    struct sampler *s = make(&o, n, blocked);
    int32_t id = draw(s, x);
    sampler_free(s);
    return id;
}

/* ---- random logits ---- */

static uint64_t counter;

static double uniform(void)
{
    return rng_uniform(99, counter++);
}

static double normal(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

enum shape { SMOOTH, TIES, FLAT, PEAKED, FEW_VALUES, N_SHAPES };

static float *logits_of(size_t n, enum shape shape)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) {
        double v = 3 * normal();
        if (shape == TIES)
            v = round(2 * v) / 2;
        if (shape == FLAT)
            v = 5 + 1e-3 * v;
        if (shape == FEW_VALUES)
            v = uniform() < 0.5 ? -0.0 : uniform() < 0.5 ? 0.0 : -1.0;
        x[i] = (float)v;
    }
    if (shape == PEAKED)
        x[(size_t)(uniform() * (double)n)] = 30;
    return x;
}

/* ---- the second implementation ---- */

struct candidate {
    int32_t id;
    float x;
    double p; /* relative to the likeliest */
};

static int by_value(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->x != b->x)
        return a->x > b->x ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static int by_id(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    return a->id < b->id ? -1 : 1;
}

/* All ids that may be drawn, best first. */
static struct candidate *sorted(const float *x, size_t n,
                                const unsigned char *blocked, size_t *m)
{
    struct candidate *c = malloc(n * sizeof *c);
    assert_non_null(c);
    *m = 0;
    for (size_t i = 0; i < n; i++)
        if (!blocked || !blocked[i])
            c[(*m)++] = (struct candidate){(int32_t)i, x[i], 0};
    qsort(c, *m, sizeof *c, by_value);
    return c;
}

/* Write the ids that pass the filters to out, by id. *clear is false if a cut
 * is so near a value that rounding decides. */
static size_t survivors(const struct candidate *all, size_t n,
                        const struct qwick_sampling *o, struct candidate *out,
                        bool *clear)
{
    *clear = true;
    size_t m = n;
    if (o->top_k > 0 && (size_t)o->top_k < m) {
        m = (size_t)o->top_k;
        while (m < n && all[m].x == all[m - 1].x)
            m++;
    }
    double total = 0;
    for (size_t i = 0; i < m; i++) {
        out[i] = all[i];
        out[i].p =
            exp(((double)all[i].x - (double)all[0].x) / (double)o->temperature);
        total += out[i].p;
    }
    if (o->top_p < 1) {
        double sum = 0, p = (double)o->top_p * total;
        size_t k = 0;
        while (k < m && (k == 0 || sum < p)) {
            sum += out[k++].p;
            if (fabs(sum - p) <= SLACK * total && k < m)
                *clear = false;
        }
        m = k;
    }
    if (o->min_p > 0) {
        size_t k = 0;
        for (size_t i = 0; i < m; i++) {
            double d = out[i].p - (double)o->min_p;
            if (out[i].x != all[0].x && fabs(d) <= SLACK * (double)o->min_p)
                *clear = false;
            if (out[i].x == all[0].x || d >= 0)
                out[k++] = out[i];
        }
        m = k;
    }
    qsort(out, m, sizeof *out, by_id);
    return m;
}

/* Whether the random number u selects this id among the survivors. */
static bool picks(const struct candidate *c, size_t n, double u, int32_t id)
{
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++)
        total += c[i].p;
    for (size_t i = 0; i < n; i++) {
        double from = sum;
        sum += c[i].p;
        if (c[i].id == id)
            return u * total >= from - SLACK * total &&
                   u * total <= sum + SLACK * total;
    }
    return false;
}

static size_t n_checked, n_unclear;

static void compare(const float *x, size_t n, const unsigned char *blocked,
                    const struct candidate *all, size_t m,
                    const struct qwick_sampling *o, int draws)
{
    struct candidate *kept = malloc(m * sizeof *kept);
    assert_non_null(kept);
    bool clear;
    size_t k = survivors(all, m, o, kept, &clear);
    struct sampler *s = make(o, n, blocked);
    for (int i = 0; i < draws; i++) {
        int32_t id = draw(s, x);
        assert_true(id >= 0 && (size_t)id < n);
        assert_true(!blocked || !blocked[id]);
        if (clear && !picks(kept, k, rng_uniform(o->seed, (uint64_t)i), id))
            fail_msg("n %zu k %d p %g min %g T %g seed %llu draw %d: id %d, "
                     "%zu candidates",
                     n, o->top_k, (double)o->top_p, (double)o->min_p,
                     (double)o->temperature, (unsigned long long)o->seed, i, id,
                     k);
    }
    n_checked++;
    n_unclear += !clear;
    sampler_free(s);
    free(kept);
}

static void draws_equal_the_plain_way(void **state)
{
    static const size_t sizes[] = {5, 6, 7, 31, 64, 257, 1000, 5000};
    static const int ks[] = {0, 1, 2, 5, 20, 50, 4999, 5000, 1 << 30};
    static const float ps[] = {1, 0, 1e-7f, 0.1f, 0.5f, 0.8f, 0.95f, 0.999999f};
    static const float mins[] = {0, 1e-6f, 0.05f, 0.5f, 0.999f, 1};
    static const float ts[] = {1, 0.6f, 0.7f, 1.5f, 0.05f, 1e-5f, 100};
#define PICK(a) a[(size_t)(uniform() * (double)(sizeof a / sizeof *a))]
    counter = 0;
    n_checked = n_unclear = 0;
    for (int round = 0; round < 400; round++) {
        size_t n = PICK(sizes), m;
        float *x = logits_of(n, (enum shape)(round % N_SHAPES));
        unsigned char *blocked = NULL;
        if (round % 3 > 0) {
            /* some tokens are blocked, or nearly all, as under a constraint */
            double share = round % 3 == 1 ? 0.3 : 0.995;
            blocked = calloc(n, 1);
            for (size_t i = 0; i + 1 < n; i++)
                blocked[i] = uniform() < share;
        }
        struct candidate *all = sorted(x, n, blocked, &m);
        for (int k = 0; k < 8; k++) {
            struct qwick_sampling o = neutral();
            o.seed = (uint64_t)(uniform() * 1e15);
            o.temperature = PICK(ts);
            /* half of the time a single filter */
            int which = (int)(uniform() * 6);
            if (which == 0 || which > 2)
                o.top_k = PICK(ks);
            if (which == 1 || which > 2)
                o.top_p = PICK(ps);
            if (which == 2 || which > 2)
                o.min_p = PICK(mins);
            compare(x, n, blocked, all, m, &o, 8);
        }
        free(all);
        free(x);
        free(blocked);
    }
    assert_true(n_unclear * 4 < n_checked);
}

static void draws_of_a_whole_vocabulary(void **state)
{
    size_t n = QWEN3_VOCAB, m;
    static const struct {
        float t;
        int k;
        float p, min;
    } rows[] = {{0.6f, 20, 0.95f, 0},  {0.7f, 20, 0.8f, 0},   {1, 0, 1, 0},
                {1, 0, 0.9f, 0},       {1, 1, 1, 0},          {1, 0, 0, 0},
                {1, 0, 0.999999f, 0},  {1, 0, 1e-7f, 0},      {1, 100000, 1, 0},
                {1, 0, 1, 0.02f},      {1e-5f, 0, 0.9f, 0},   {100, 0, 0.5f, 0},
                {1, 1000, 0.9f, 0.1f}, {1, QWEN3_VOCAB, 1, 0}};
    unsigned char *blocked = calloc(n, 1);
    for (size_t i = 151669; i < n; i++)
        blocked[i] = 1;
    counter = 1000000;
    for (int shape = 0; shape <= N_SHAPES; shape++) {
        float *x = logits_of(n, (enum shape)(shape % N_SHAPES));
        if (shape == N_SHAPES) /* what a constraint leaves: 8 tokens */
            for (size_t i = 0; i < n; i++)
                blocked[i] = i % 20000 != 77;
        x[151900] = 1000; /* padding is never drawn, even with the largest
                             logit */
        struct candidate *all = sorted(x, n, blocked, &m);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct qwick_sampling o = neutral();
            o.seed = i;
            o.temperature = rows[i].t;
            o.top_k = rows[i].k;
            o.top_p = rows[i].p;
            o.min_p = rows[i].min;
            compare(x, n, blocked, all, m, &o, 4);
        }
        free(all);
        free(x);
    }
    free(blocked);
}

/* ---- single rules ---- */

static void greedy_takes_the_lowest_id_among_equals(void **state)
{
    const float x[] = {-1, 2, 2, 1, 2, -5};
    const unsigned char blocked[] = {0, 1, 0, 0, 0, 0};
    assert_int_equal(greedy_of(x, 6, NULL), 1);
    assert_int_equal(greedy_of(x, 6, blocked), 2);
    const float low[] = {-FLT_MAX, -FLT_MAX};
    assert_int_equal(greedy_of(low, 2, NULL), 0);
    const float zeros[] = {-0.0f, 0.0f};
    assert_int_equal(greedy_of(zeros, 2, NULL), 0);
    const float one[] = {-3};
    assert_int_equal(greedy_of(one, 1, NULL), 0);
    for (size_t n = 1; n < 200; n++) {
        float *y = logits_of(n, TIES);
        size_t want = 0;
        for (size_t i = 1; i < n; i++)
            if (y[i] > y[want])
                want = i;
        assert_int_equal(greedy_of(y, n, NULL), want);
        free(y);
    }
}

/* The set of ids that are ever drawn, as bits. */
static unsigned drawn(const struct qwick_sampling *o, const float *x, size_t n)
{
    struct sampler *s = make(o, n, NULL);
    unsigned set = 0;
    for (int i = 0; i < 3000; i++)
        set |= 1u << (unsigned)draw(s, x);
    sampler_free(s);
    return set;
}

static void filters_keep_what_they_promise(void **state)
{
    /* probabilities 0.4 0.2 0.2 0.1 0.1 */
    static const struct {
        int top_k;
        float top_p, min_p, temperature;
        unsigned kept; /* ids, as bits */
    } rows[] = {
        {0, 1, 0, 1, 31},
        {1, 1, 0, 1, 1},
        {2, 1, 0, 1, 7}, /* the second has an equal value */
        {4, 1, 0, 1, 31},
        {0, 0.3f, 0, 1, 1}, /* the first crosses */
        /* the second crosses; its equal with the higher id goes */
        {0, 0.5f, 0, 1, 3},
        {0, 0.7f, 0, 1, 7},
        {0, 0.85f, 0, 1, 15},
        {0, 0, 0, 1, 1},
        {0, 1, 0.3f, 1, 7},
        {0, 1, 0.6f, 1, 1},
        {0, 1, 1, 1, 1},
        {0, 1, 0.2f, 1, 31},
        /* top-p counts the rest after top-k: 0.5 0.25 0.25 */
        {2, 0.45f, 0, 1, 1},
        {0, 0.45f, 0, 1, 3},
        /* temperature comes first: at 0.5 the weights are 16 4 4 1 1 of 26 */
        {0, 0.6f, 0, 0.5f, 1},
        {0, 1, 0.3f, 0.5f, 1}, /* 4 of 16 is less */
        {0, 1, 0.45f, 2, 31},  /* 1 of 2 is more */
    };
    const float x[5] = {logf(4), logf(2), logf(2), logf(1), logf(1)};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qwick_sampling o = neutral();
        o.top_k = rows[i].top_k;
        o.top_p = rows[i].top_p;
        o.min_p = rows[i].min_p;
        o.temperature = rows[i].temperature;
        unsigned kept = drawn(&o, x, 5);
        if (kept != rows[i].kept)
            fail_msg("row %zu keeps %#x, expected %#x", i, kept, rows[i].kept);
    }
    struct qwick_sampling o = neutral();
    o.top_p = 0.6f;
    assert_true(drawn(&o, x, 5) > 1);
}

static void frequencies_are_the_probabilities(void **state)
{
    const float x[5] = {logf(4), logf(2), logf(2), logf(1), logf(1)};
    enum { N = 100000 };
    struct qwick_sampling o = neutral();
    o.seed = 5;
    struct sampler *s = make(&o, 5, NULL);
    double count[5] = {0}, chi = 0;
    static const double want[5] = {0.4, 0.2, 0.2, 0.1, 0.1};
    for (int i = 0; i < N; i++)
        count[draw(s, x)]++;
    for (int i = 0; i < 5; i++)
        chi +=
            (count[i] - want[i] * N) * (count[i] - want[i] * N) / (want[i] * N);
    assert_true(chi < 24); /* four degrees of freedom: 1 in 10,000 */
    sampler_free(s);
}

/* HF's repetition penalty over prompt and answer, and OpenAI's two penalties
 * over the answer, compared with simple counting. */
static void penalties_follow_their_sources(void **state)
{
    enum { N = 50, PROMPT = 12, DRAWS = 120 };
    static const float rows[][3] = {{1.3f, 0, 0},      {0.7f, 0, 0},
                                    {1, 0.5f, 0},      {1, 0, 0.3f},
                                    {1, -0.5f, -0.1f}, {1.1f, 0.7f, 0.2f}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        counter = 500 * r;
        float *x = logits_of(N, r % 2 ? TIES : SMOOTH);
        struct qwick_sampling o = neutral();
        o.temperature = 0;
        o.repeat_penalty = rows[r][0];
        o.presence_penalty = rows[r][1];
        o.frequency_penalty = rows[r][2];
        struct sampler *s = make(&o, N, NULL);
        bool seen[N] = {false};
        int count[N] = {0};
        for (int i = 0; i < PROMPT; i++) {
            int32_t id = (int32_t)(uniform() * N);
            seen[id] = true;
            sampler_see_prompt(s, id);
            sampler_see_prompt(s, id); /* repeated calls do not matter */
        }
        for (int d = 0; d < DRAWS; d++) {
            int want = 0;
            float y[N];
            for (int i = 0; i < N; i++) {
                y[i] = x[i];
                if (seen[i])
                    y[i] = y[i] < 0 ? y[i] * o.repeat_penalty
                                    : y[i] / o.repeat_penalty;
                if (count[i])
                    y[i] -= o.presence_penalty +
                            o.frequency_penalty * (float)count[i];
                if (y[i] > y[want])
                    want = i;
            }
            int32_t id = draw(s, x);
            assert_int_equal(id, want);
            seen[id] = true;
            count[id]++;
        }
        sampler_free(s);
        free(x);
    }
}

/* Penalties come before the temperature: a difference of 1 becomes a factor of
 * e^(1/T). */
static void penalties_come_before_temperature(void **state)
{
    const float x[2] = {1, 1};
    struct qwick_sampling o = neutral();
    o.temperature = 0.2f;
    o.repeat_penalty = 2; /* 1 and 0.5: odds e^2.5 */
    o.seed = 3;
    double want = 1 / (1 + exp(-2.5));
    int first = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        o.seed = seed;
        struct sampler *s = make(&o, 2, NULL);
        sampler_see_prompt(s, 1);
        first += draw(s, x) == 0;
        sampler_free(s);
    }
    assert_true(fabs(first / 20000.0 - want) <
                5 * sqrt(want * (1 - want) / 20000));
}

static void a_draw_depends_on_seed_and_number_alone(void **state)
{
    size_t n = 1000;
    counter = 77;
    float *a = logits_of(n, SMOOTH), *b = logits_of(n, FLAT);
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct qwick_sampling o = neutral();
        o.seed = seed;
        struct sampler *s = make(&o, n, NULL), *t = make(&o, n, NULL);
        for (int i = 0; i < 5; i++) {
            (void)draw(s, a);
            (void)draw(t, b);
        }
        assert_int_equal(draw(s, b), draw(t, b));
        sampler_free(s);
        sampler_free(t);
    }
    /* the logits are not changed, and two samplers with one seed always
     * agree */
    float *copy = malloc(n * sizeof *copy);
    memcpy(copy, a, n * sizeof *copy);
    struct qwick_sampling o = neutral();
    o.seed = 9;
    o.repeat_penalty = 1.2f;
    o.top_p = 0.9f;
    struct sampler *s = make(&o, n, NULL), *t = make(&o, n, NULL);
    int differs = 0;
    for (int i = 0; i < 50; i++) {
        int32_t id = draw(s, a);
        assert_int_equal(id, draw(t, a));
        differs += id != greedy_of(a, n, NULL);
    }
    assert_true(differs > 10);
    assert_memory_equal(copy, a, n * sizeof *copy);
    sampler_free(s);
    sampler_free(t);
    free(copy);
    free(a);
    free(b);
}

static void levels_draw_the_same_ids_nearly_always(void **state)
{
    size_t n = 5000;
    counter = 5;
    float *x = logits_of(n, SMOOTH);
    struct qwick_sampling o = neutral();
    o.top_p = 0.95f;
    struct sampler *ref, *s = make(&o, n, NULL);
    assert_int_equal(
        sampler_create(&ref, &o, n, NULL, kernels_get(ISA_REF), NULL), 0);
    int same = 0;
    for (int i = 0; i < 200; i++)
        same += draw(ref, x) == draw(s, x);
    assert_true(same >= 198);
    sampler_free(ref);
    sampler_free(s);
    free(x);
}

/* Ids that may not begin an answer: the first token, and stop ids before a
 * minimum of tokens, with those of the prompt or without. */
static void the_start_of_an_answer(void **state)
{
    float x[200] = {0};
    x[150] = 3;
    x[7] = 2;
    x[8] = 1;
    static const int32_t first[] = {150, 8}, stops[] = {7, 199};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct qwick_sampling o = neutral();
        o.temperature = greedy ? 0 : 0.01f;
        struct sampler *s = make(&o, 200, NULL);
        sampler_set_start(s, &(struct sampler_start){first, stops, 2, 2, 0, 0});
        assert_int_equal(draw(s, x), 7);
        assert_int_equal(draw(s, x), 150);
        sampler_undo(s, 150);
        sampler_undo(s, 7);
        assert_int_equal(draw(s, x), 7);
        sampler_free(s);
        x[150] = 0;
        s = make(&o, 200, NULL);
        sampler_set_start(s, &(struct sampler_start){first, stops, 0, 2, 2, 0});
        assert_int_equal(draw(s, x), 8);
        assert_int_equal(draw(s, x), 8);
        assert_int_equal(draw(s, x), 7);
        sampler_free(s);
        s = make(&o, 200, NULL);
        sampler_set_start(s, &(struct sampler_start){first, stops, 0, 2, 1, 5});
        for (int i = 0; i < 3; i++)
            sampler_see_prompt(s, 9);
        assert_int_equal(draw(s, x), 8);
        assert_int_equal(draw(s, x), 8);
        assert_int_equal(draw(s, x), 7);
        sampler_free(s);
        x[150] = 3;
    }
}

static void what_is_not_finite_is_an_error(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 8, 9, 33, 1000};
    const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        float *x = logits_of(n, SMOOTH);
        for (int t = 0; t < 2; t++) {
            struct qwick_sampling o = neutral();
            o.temperature = (float)t;
            struct sampler *s = make(&o, n, NULL);
            for (size_t at = 0; at<n; at += n> 40 ? 111 : 1) {
                for (int b = 0; b < 4; b++) {
                    struct qwick_err e = {0};
                    float keep = x[at];
                    int32_t id = -7;
                    x[at] = bad[b];
                    assert_int_equal(sampler_draw(s, x, &id, &e), -1);
                    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
                    assert_non_null(strstr(e.msg, "not finite"));
                    x[at] = keep;
                }
            }
            (void)draw(s, x);
            sampler_free(s);
        }
        free(x);
    }
}

static void blocked_ids_are_never_drawn(void **state)
{
    float x[40];
    unsigned char blocked[40];
    struct qwick_err e = {0};
    int32_t id;
    for (int only = 0; only < 40; only++) {
        for (int i = 0; i < 40; i++) {
            x[i] = i == only ? -1e30f : 1e30f;
            blocked[i] = i != only;
        }
        for (int t = 0; t < 4; t++) {
            struct qwick_sampling o = neutral();
            o.temperature = t == 0 ? 0 : 1;
            o.top_k = t == 2 ? 3 : 0;
            o.top_p = t == 3 ? 0.5f : 1;
            struct sampler *s = make(&o, 40, blocked);
            for (int i = 0; i < 5; i++)
                assert_int_equal(draw(s, x), only);
            sampler_free(s);
        }
    }
    memset(blocked, 1, sizeof blocked);
    struct qwick_sampling o = neutral();
    struct sampler *s = make(&o, 40, blocked);
    assert_int_equal(sampler_draw(s, x, &id, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "no token"));
    sampler_free(s);
}

static void extreme_logits_stay_in_range(void **state)
{
    const float x[6] = {FLT_MAX, -FLT_MAX, FLT_MAX, 0, FLT_MIN, 1e-45f};
    static const float ts[] = {0, 1e-6f, 1e-3f, 1,
                               (float)QWICK_TEMPERATURE_MAX};
    for (size_t i = 0; i < sizeof ts / sizeof *ts; i++) {
        for (int k = 0; k < 4; k++) {
            struct qwick_sampling o = neutral();
            o.temperature = ts[i];
            o.top_k = k;
            o.top_p = k % 2 ? 0.9f : 1;
            o.min_p = k > 1 ? 0.1f : 0;
            struct sampler *s = make(&o, 6, NULL);
            for (int d = 0; d < 20; d++) {
                int32_t id = draw(s, x);
                assert_true(id == 0 || id == 2);
            }
            sampler_free(s);
        }
    }
    /* penalties that make all logits infinite must not cause an access out of
     * bounds */
    struct qwick_sampling o = neutral();
    o.repeat_penalty = (float)QWICK_REPEAT_PENALTY_MIN;
    struct sampler *s = make(&o, 6, NULL);
    for (int32_t id = 0; id < 6; id++)
        sampler_see_prompt(s, id);
    for (int d = 0; d < 10; d++) {
        int32_t id = 0;
        if (!sampler_draw(s, x, &id, NULL))
            assert_true(id >= 0 && id < 6);
    }
    sampler_free(s);
}

static void logprobs_are_a_log_softmax(void **state)
{
    static const size_t sizes[] = {1, 2, 9, 1000, 20000};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int shape = 0; shape < N_SHAPES; shape++) {
            size_t n = sizes[k], m;
            float *x = logits_of(n, (enum shape)shape);
            /* logprobs are taken before sampling: penalties and blocks have no
             * effect */
            unsigned char *blocked = calloc(n, 1);
            blocked[n - 1] = n > 1;
            struct qwick_sampling o = neutral();
            o.temperature = 0.3f;
            o.top_k = 1;
            struct sampler *s = make(&o, n, blocked);
            struct candidate *all = sorted(x, n, NULL, &m);
            struct qwick_logprob *top = calloc(n, sizeof *top);
            double sum = 0, total = 0;
            for (size_t i = 0; i < n; i++)
                sum += exp((double)x[i] - (double)all[0].x);
            double log_sum = (double)all[0].x + log(sum);
            int32_t id = (int32_t)(n / 2);
            float lp;
            sampler_logprobs(s, x, top, n, id, &lp);
            assert_true(fabs((double)lp - ((double)x[id] - log_sum)) < 1e-5);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(top[i].id, all[i].id);
                assert_true(fabs((double)top[i].logprob -
                                 ((double)all[i].x - log_sum)) < 1e-5);
                total += exp((double)top[i].logprob);
            }
            assert_true(fabs(total - 1) < 1e-5);
            size_t few = n < 5 ? n : 5;
            struct qwick_logprob some[5];
            sampler_logprobs(s, x, some, few, id, &lp);
            for (size_t i = 0; i < few; i++)
                assert_int_equal(some[i].id, all[i].id);
            free(top);
            free(all);
            sampler_free(s);
            free(blocked);
            free(x);
        }
    }
}

static void top_is_the_head_of_a_sort(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 10, 100, 999, 20000};
    static const size_t tops[] = {0, 1, 2, 3, 10, 64, 1000, 1u << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int shape = 0; shape < N_SHAPES; shape++) {
            size_t n = sizes[k], m;
            float *x = logits_of(n, (enum shape)shape);
            struct candidate *all = sorted(x, n, NULL, &m);
            for (size_t t = 0; t < sizeof tops / sizeof *tops; t++) {
                size_t want = tops[t] < n ? tops[t] : n;
                int32_t *ids = malloc((want + 1) * sizeof *ids);
                ids[want] = -77;
                assert_int_equal(sampler_top(x, n, ids, tops[t]), want);
                for (size_t i = 0; i < want; i++)
                    assert_int_equal(ids[i], all[i].id);
                assert_int_equal(ids[want], -77);
                free(ids);
            }
            free(all);
            free(x);
        }
    }
}

static void range_is(struct qwick_sampling o, const char *name)
{
    struct sampler *s = (void *)1;
    struct qwick_err e = {0};
    int rc = sampler_create(&s, &o, 10, NULL, best(), &e);
    if (!name) {
        assert_int_equal(rc, 0);
        sampler_free(s);
        return;
    }
    assert_int_equal(rc, -1);
    assert_null(s);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, name));
}

static void options_have_ranges(void **state)
{
    struct qwick_sampling o;
#define TRY(field, value, name) \
    (o = neutral(), o.field = value, range_is(o, name))
    TRY(temperature, 0, NULL);
    TRY(temperature, -0.1f, "temperature");
    TRY(temperature, NAN, "temperature");
    TRY(temperature, INFINITY, "temperature");
    TRY(temperature, QWICK_TEMPERATURE_MAX, NULL);
    TRY(temperature, 100.1f, "temperature");
    TRY(top_k, -1, "top_k");
    TRY(top_k, INT32_MAX, NULL);
    TRY(top_p, 0, NULL);
    TRY(top_p, 1.01f, "top_p");
    TRY(top_p, -0.01f, "top_p");
    TRY(top_p, NAN, "top_p");
    TRY(min_p, 1, NULL);
    TRY(min_p, 1.5f, "min_p");
    TRY(min_p, NAN, "min_p");
    TRY(repeat_penalty, 0, "repeat_penalty");
    TRY(repeat_penalty, (float)QWICK_REPEAT_PENALTY_MIN, NULL);
    TRY(repeat_penalty, 0.0099f, "repeat_penalty");
    TRY(repeat_penalty, 100.1f, "repeat_penalty");
    TRY(repeat_penalty, -1, "repeat_penalty");
    TRY(repeat_penalty, NAN, "repeat_penalty");
    TRY(repeat_penalty, INFINITY, "repeat_penalty");
    TRY(presence_penalty, -2, NULL);
    TRY(presence_penalty, 2.01f, "presence_penalty");
    TRY(presence_penalty, NAN, "presence_penalty");
    TRY(frequency_penalty, INFINITY, "frequency_penalty");
    TRY(frequency_penalty, NAN, "frequency_penalty");
    sampler_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_equal_the_plain_way),
        cmocka_unit_test(draws_of_a_whole_vocabulary),
        cmocka_unit_test(greedy_takes_the_lowest_id_among_equals),
        cmocka_unit_test(filters_keep_what_they_promise),
        cmocka_unit_test(frequencies_are_the_probabilities),
        cmocka_unit_test(penalties_follow_their_sources),
        cmocka_unit_test(penalties_come_before_temperature),
        cmocka_unit_test(a_draw_depends_on_seed_and_number_alone),
        cmocka_unit_test(levels_draw_the_same_ids_nearly_always),
        cmocka_unit_test(the_start_of_an_answer),
        cmocka_unit_test(what_is_not_finite_is_an_error),
        cmocka_unit_test(blocked_ids_are_never_drawn),
        cmocka_unit_test(extreme_logits_stay_in_range),
        cmocka_unit_test(logprobs_are_a_log_softmax),
        cmocka_unit_test(top_is_the_head_of_a_sort),
        cmocka_unit_test(options_have_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
