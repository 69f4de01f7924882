/* The bounds that the project documents, and goldens through an engine. */
#ifndef TEST_GOLDEN_RUN_H
#define TEST_GOLDEN_RUN_H

#include "base/cpu.h"
#include "engines.h"
#include "golden.h"
#include "own_sampling.h"

/* Relative errors of logits. With --exact activations, cache and sums are
 * float32. By default activations are rounded to bf16, and on quantized weights
 * to int8 in groups. */
#define EXACT_BOUND     2e-5
#define FLOAT_BOUND     1.2e-2
#define QUANTIZED_BOUND 4e-2

/* The error of the golden's logits on a level; NULL: the CPU's best. */
static inline double golden_error_on(const struct golden *g, bool exact,
                                     const char *isa)
{
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = g->dir, .exact = exact, .isa = isa, .threads = 2);
    float *got = malloc(g->n * g->vocab_size * sizeof *got);
    if (all_logits(eng, g, got, &e))
        fail_msg("%s: %s", g->dir, e.msg);
    double error = golden_error(g, got);
    free(got);
    qwick_engine_close(eng);
    return error;
}

/* Print both errors on a level, and return whether they are in the bounds. */
static inline bool golden_errors_fit(const struct golden *g, const char *name,
                                     enum isa isa, double default_bound)
{
    double exact = golden_error_on(g, true, isa_name(isa));
    double fast = golden_error_on(g, false, isa_name(isa));
    bool fit = exact <= EXACT_BOUND && fast <= default_bound;
    printf("%-10s %-24s exact %.2e  default %.2e%s\n", isa_name(isa), name,
           exact, fast, fit ? "" : "  TOO LARGE");
    return fit;
}

/* Return whether greedy search finds the golden's ids. */
static inline bool golden_greedy_matches(const struct golden *g,
                                         const char *isa)
{
    struct qwick_result r;
    struct qwick_err e;
    struct qwick_engine *eng =
        engine_with(.model = g->dir, .exact = true, .isa = isa, .threads = 2);
    struct qwick_session *s = open_session(eng);
    struct qwick_generate_options o = qwick_generate_defaults();
    own_sampling(&o)->temperature = 0;
    o.max_tokens = N_GREEDY;
    o.ignore_eos = true;
    if (qwick_generate(s, g->ids, g->n, &o, &r, &e))
        fail_msg("%s: %s", g->dir, e.msg);
    assert_int_equal(r.n_tokens, N_GREEDY);
    assert_int_equal(r.finish, QWICK_FINISH_LENGTH);
    bool match = !memcmp(r.tokens, g->greedy, sizeof g->greedy);
    qwick_result_free(&r);
    qwick_session_free(s);
    qwick_engine_close(eng);
    return match;
}

/* Call fn for each level that this CPU has, and say which ones it lacks. */
static inline void each_isa(void (*fn)(enum isa isa, void *ctx), void *ctx)
{
    for (int l = 0; l < ISA_COUNT; l++) {
        if (cpu_has((enum isa)l))
            fn((enum isa)l, ctx);
        else
            printf("SKIP %s: this CPU does not have it\n",
                   isa_name((enum isa)l));
    }
}

#endif
