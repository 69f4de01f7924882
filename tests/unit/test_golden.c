/* Logits and greedy ids of small checkpoints of every kind against float32
 * transformers, on every level of this CPU. Prints the measured errors. */
#include "test.h"

#include "golden_run.h"

struct models {
    const char *const *names;
    size_t n;
    double bound;
};

static void logits_of_isa(enum isa isa, void *ctx)
{
    const struct models *m = ctx;
    for (size_t i = 0; i < m->n; i++) {
        struct golden g;
        assert_int_equal(golden_open(&g, m->names[i]), 0);
        assert_true(golden_errors_fit(&g, m->names[i], isa, m->bound));
        golden_close(&g);
    }
}

static void logits_match_every_isa(void **state)
{
    each_isa(logits_of_isa,
             &(struct models){dense_models, N_DENSE, FLOAT_BOUND});
}

static void expert_logits_match_every_isa(void **state)
{
    each_isa(logits_of_isa, &(struct models){moe_models, N_MOE, FLOAT_BOUND});
}

static void recurrent_logits_match_every_isa(void **state)
{
    each_isa(logits_of_isa,
             &(struct models){recurrent_models, N_RECURRENT, FLOAT_BOUND});
}

static void quantized_logits_match_every_isa(void **state)
{
    each_isa(logits_of_isa,
             &(struct models){quantized_models, N_QUANTIZED, QUANTIZED_BOUND});
}

static void greedy_ids_of(const char *name, const char *isa)
{
    struct golden g;
    assert_int_equal(golden_open(&g, name), 0);
    assert_true(golden_greedy_matches(&g, isa));
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
