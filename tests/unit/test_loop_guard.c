/* The loop guard: where it ends an answer, compared with its definition. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/core/engine.h"
#include "engine/generate/generate.h"
#include "engines.h"
#include "own_sampling.h"

enum { VOCAB = 6144, MAX_IDS = 4000 };

static struct qwick_engine *open_engine(void)
{
    struct qwick_engine *eng = engine_with(.threads = 1);
    assert_int_equal(qwick_engine_info(eng)->vocab_size, VOCAB);
    return eng;
}

/* Answer with these ids, [n], whatever the model would say. Returns after how
 * many tokens the guard ended the answer; 0: it did not. */
static size_t answer(const struct qwick_engine *eng, const int32_t *ids,
                     size_t n, size_t guard)
{
    static const int32_t prompt[] = {1};
    struct qwick_generate_options o = qwick_generate_defaults();
    struct generation g;
    struct qwick_result r;
    float *logits = calloc(VOCAB, sizeof *logits);
    bool ended = false;
    int32_t id;
    size_t i;
    assert_non_null(logits);
    o.sampling = NULL;
    own_sampling(&o)->temperature = 0;
    o.loop_guard = guard;
    assert_int_equal(
        generation_begin(&g, eng, prompt, 1, &o, MAX_IDS + 2, &r, NULL), 0);
    for (i = 0; i < n && !ended; i++) {
        logits[ids[i]] = 100;
        assert_int_equal(generation_draw(&g, logits, NULL, &id, NULL), 0);
        assert_int_equal(id, ids[i]);
        logits[ids[i]] = 0;
        assert_int_equal(generation_emit(&g, id, 1 + i, &ended, NULL), 0);
    }
    if (ended)
        assert_int_equal(r.finish, QWICK_FINISH_LOOP);
    generation_free(&g);
    qwick_result_free(&r);
    free(logits);
    return ended ? i : 0;
}

/* The definition: the first place where the last `guard` ids have a period of
 * at most a third of them. */
static size_t expected(const int32_t *ids, size_t n, size_t guard)
{
    for (size_t end = guard; end <= n; end++)
        for (size_t period = 1; period <= guard / 3; period++) {
            const int32_t *w = ids + end - guard;
            if (memcmp(w, w + period, (guard - period) * sizeof *w) == 0)
                return end;
        }
    return 0;
}

/* Ids of a small alphabet: noise, then a sequence of `period` ids without
 * end. */
static void fill(int32_t *ids, size_t n, size_t start, size_t period,
                 uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = i < start + period ? 10 + (int32_t)(rng_uniform(seed, i) * 3)
                                    : ids[i - period];
}

static void ends_where_the_definition_says(void **state)
{
    static const size_t guards[] = {3, 4, 5, 8, 16, 47, 48, 49, 60, 100, 600};
    struct qwick_engine *eng = open_engine();
    int32_t ids[MAX_IDS];
    size_t n_loops = 0, n_none = 0;
    for (uint64_t seed = 0; seed < 66; seed++) {
        size_t guard = guards[seed % (sizeof guards / sizeof *guards)];
        /* periods up to the longest that counts, and beyond */
        size_t most = guard / 3 + 2;
        size_t period =
            1 + (size_t)(rng_uniform(seed, 1u << 20) * (double)most);
        size_t start = (size_t)(rng_uniform(seed, 2u << 20) * 200);
        size_t n = start + 2 * guard + 3;
        fill(ids, n, start, period, seed);
        size_t want = expected(ids, n, guard);
        size_t got = answer(eng, ids, n, guard);
        if (got != want)
            fail_msg("seed %d, guard %zu, period %zu: ended after %zu, not %zu",
                     (int)seed, guard, period, got, want);
        n_loops += want > 0;
        n_none += want == 0;
    }
    assert_true(n_loops > 20 && n_none > 3);
    qwick_engine_close(eng);
}

/* The longest repetitions in texts of people: 325 tokens. */
static void the_default_spares_normal_text(void **state)
{
    struct qwick_engine *eng = open_engine();
    int32_t ids[MAX_IDS];
    for (size_t period = 1; period <= 108; period++) {
        for (size_t i = 0; i < 1000; i++)
            ids[i] = 10 + (int32_t)i; /* all differ */
        for (size_t i = 300 + period; i < 625; i++)
            ids[i] = ids[i - period];
        assert_int_equal(answer(eng, ids, 1000, QWICK_LOOP_GUARD_DEFAULT), 0);
    }
    /* and ends the repetition of a paragraph */
    for (size_t i = 0; i < 1000; i++)
        ids[i] = 10 + (int32_t)(i % 200);
    assert_int_equal(answer(eng, ids, 1000, QWICK_LOOP_GUARD_DEFAULT), 600);
    for (size_t i = 0; i < 1000; i++)
        ids[i] = 10 + (int32_t)(i % 201);
    assert_int_equal(answer(eng, ids, 1000, QWICK_LOOP_GUARD_DEFAULT), 0);
    qwick_engine_close(eng);
}

static void the_library_has_no_guard_by_default(void **state)
{
    assert_int_equal(qwick_generate_defaults().loop_guard, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_where_the_definition_says),
        cmocka_unit_test(the_default_spares_normal_text),
        cmocka_unit_test(the_library_has_no_guard_by_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
