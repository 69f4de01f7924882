/* Logits and greedy ids of small checkpoints of every kind against float32
 * transformers, on every level of this CPU. The bounds are the documented ones:
 * 2e-5 with --exact, where activations, cache and sums are float32; 1.2e-2 by
 * default, which leaves room for rounding activations to bf16; and 4e-2 on
 * quantized weights, whose activations are rounded to int8 in groups. The test
 * prints the measured errors. */
#include "test.h"

#include "base/cpu.h"
#include "engines.h"
#include "golden.h"
#include "own_sampling.h"

#define EXACT_BOUND     2e-5
#define FAST_BOUND      1.2e-2
#define QUANTIZED_BOUND 4e-2

static struct qwick_engine *open_model(const char *dir, bool exact,
                                       const char *isa, int threads)
{
    return engine_with(.model = dir, .exact = exact, .isa = isa,
                       .threads = threads);
}

static double error_of(const struct golden *g, bool exact, const char *isa)
{
    struct qwick_engine *eng = open_model(g->dir, exact, isa, 2);
    struct qwick_err e;
    float *got = malloc(g->n * g->vocab_size * sizeof *got);
    if (all_logits(eng, g, got, &e))
        fail_msg("%s: %s", g->dir, e.msg);
    double error = golden_error(g, got);
    free(got);
    qwick_engine_close(eng);
    return error;
}

static void logits_of_isa(enum isa isa, const char *const *models, size_t n,
                          double bound)
{
    for (size_t i = 0; i < n; i++) {
        struct golden g;
        assert_int_equal(golden_open(&g, models[i]), 0);
        double exact = error_of(&g, true, isa_name(isa));
        double fast = error_of(&g, false, isa_name(isa));
        printf("%-10s %-20s exact %.2e  default %.2e\n", isa_name(isa),
               models[i], exact, fast);
        assert_true(exact <= EXACT_BOUND);
        assert_true(fast <= bound);
        golden_close(&g);
    }
}

static void every_isa(const char *const *models, size_t n, double bound)
{
    for (int l = 0; l < ISA_COUNT; l++) {
        if (cpu_has((enum isa)l))
            logits_of_isa((enum isa)l, models, n, bound);
        else
            printf("SKIP %s: this CPU does not have it\n",
                   isa_name((enum isa)l));
    }
}

static void logits_match_every_isa(void **state)
{
    every_isa(dense_models, N_DENSE, FAST_BOUND);
}

static void expert_logits_match_every_isa(void **state)
{
    every_isa(moe_models, N_MOE, FAST_BOUND);
}

static void recurrent_logits_match_every_isa(void **state)
{
    every_isa(recurrent_models, N_RECURRENT, FAST_BOUND);
}

static void quantized_logits_match_every_isa(void **state)
{
    every_isa(quantized_models, N_QUANTIZED, QUANTIZED_BOUND);
}

static void greedy_ids_of(const char *name, const char *isa)
{
    struct golden g;
    struct qwick_result r;
    struct qwick_err e;
    assert_int_equal(golden_open(&g, name), 0);
    struct qwick_engine *eng = open_model(g.dir, true, isa, 2);
    struct qwick_session *s = open_session(eng);
    struct qwick_generate_options o = qwick_generate_defaults();
    own_sampling(&o)->temperature = 0;
    o.max_tokens = N_GREEDY;
    o.ignore_eos = true;
    if (qwick_generate(s, g.ids, g.n, &o, &r, &e))
        fail_msg("%s: %s", g.dir, e.msg);
    assert_int_equal(r.n_tokens, N_GREEDY);
    assert_memory_equal(r.tokens, g.greedy, sizeof g.greedy);
    assert_int_equal(r.finish, QWICK_FINISH_LENGTH);
    qwick_result_free(&r);
    qwick_session_free(s);
    qwick_engine_close(eng);
    golden_close(&g);
}

static void greedy_ids_match(void **state)
{
    for (size_t i = 0; i < N_DENSE; i++)
        greedy_ids_of(dense_models[i], NULL);
    for (size_t i = 0; i < N_RECURRENT; i++)
        greedy_ids_of(recurrent_models[i], NULL);
    for (size_t i = 0; i < N_MOE; i++)
        for (int l = 0; l < ISA_COUNT; l++)
            if (cpu_has((enum isa)l))
                greedy_ids_of(moe_models[i], isa_name((enum isa)l));
}

static void quantized_greedy_ids_match(void **state)
{
    for (size_t i = 0; i < N_QUANTIZED; i++)
        for (int l = 0; l < ISA_COUNT; l++)
            if (cpu_has((enum isa)l))
                greedy_ids_of(quantized_models[i], isa_name((enum isa)l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_match_every_isa),
        cmocka_unit_test(expert_logits_match_every_isa),
        cmocka_unit_test(recurrent_logits_match_every_isa),
        cmocka_unit_test(quantized_logits_match_every_isa),
        cmocka_unit_test(greedy_ids_match),
        cmocka_unit_test(quantized_greedy_ids_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
