/* GGUF files of every type of blocks: their logits against the weights as
 * ggml's reference dequantizes them and a forward pass in float64, on every
 * level of kernels that this CPU has. Prints the measured errors. */
#include "test.h"

#include "engine/core/engine.h"
#include "golden_run.h"

static const char *const types[] = {
    "F16",  "Q8_0",   "Q4_0",   "Q4_1",   "Q5_0", "Q5_1",  "IQ4_NL",
    "Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_XS"};

/* The types whose goldens transformers made. */
static const char *const low_bit[] = {"MXFP4",   "NVFP4",  "IQ3_XXS", "IQ3_S",
                                      "IQ2_XXS", "IQ2_XS", "IQ2_S",   "IQ1_S",
                                      "IQ1_M",   "TQ1_0",  "TQ2_0"};

/* Qwen3.5, in the float types of the checkpoints that they were made from. */
static const char *const qwen35[] = {"qwen35-f16-long", "qwen35-moe",
                                     "qwen35-tied", "qwen35-wrapped-untied"};

/* Their logits are right only if each token takes the reference's experts. */
static const char *const mixtures[] = {"tiny-moe-Q4_K_S", "tiny-moe-Q6_K",
                                       "tiny-moe-Q8_0"};

/* The golden of tests/golden/gguf/NAME.gguf. */
static void open_golden(struct golden *g, const char *name)
{
    char path[192];
    snprintf(g->dir, sizeof g->dir, "tests/golden/gguf/%s.gguf", name);
    snprintf(path, sizeof path, "tests/golden/gguf/%s.expected.safetensors",
             name);
    assert_int_equal(golden_read(g, path), 0);
}

static void errors_of(const char *name, enum isa isa)
{
    struct golden g;
    open_golden(&g, name);
    bool is_float = strstr(name, "-F16") || strstr(name, "gemma3") ||
                    strstr(name, "qwen35");
    double bound = is_float ? FLOAT_BOUND : QUANTIZED_BOUND;
    assert_true(golden_errors_fit(&g, name, isa, bound));
    golden_close(&g);
}

/* The logits of steps of one token each, which other kernels compute than those
 * of a whole prompt. */
static void steps_of(const char *name, enum isa isa, bool exact)
{
    struct golden g;
    struct qwick_err e;
    open_golden(&g, name);
    struct qwick_engine *eng =
        engine_with(.model = g.dir, .exact = exact, .isa = isa_name(isa),
                    .threads = 2);
    struct qwick_session *s = open_session(eng);
    float *got = malloc(g.n * g.vocab_size * sizeof *got);
    for (size_t i = 0; i < g.n; i++) {
        assert_ok(qwick_session_sync(s, g.ids, i + 1, &e), &e);
        memcpy(got + i * g.vocab_size, qwick_session_logits(s),
               g.vocab_size * sizeof *got);
    }
    double error = golden_error(&g, got);
    printf("%-10s %-24s steps, %s %.2e\n", isa_name(isa), name,
           exact ? "exact" : "default", error);
    assert_true(error <= (exact ? EXACT_BOUND : QUANTIZED_BOUND));
    free(got);
    qwick_session_free(s);
    qwick_engine_close(eng);
    golden_close(&g);
}

static void logits_of_isa(enum isa isa, void *ctx)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char name[64];
        snprintf(name, sizeof name, "tiny-dense-%s", types[i]);
        errors_of(name, isa);
    }
    for (size_t i = 0; i < sizeof low_bit / sizeof *low_bit; i++) {
        char name[64];
        snprintf(name, sizeof name, "qwen3-%s", low_bit[i]);
        errors_of(name, isa);
        steps_of(name, isa, false);
        steps_of(name, isa, true);
    }
    errors_of("gemma3-tied", isa);
    for (size_t i = 0; i < sizeof qwen35 / sizeof *qwen35; i++)
        errors_of(qwen35[i], isa);
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
        errors_of(mixtures[i], isa);
}

static void logits_match_every_isa(void **state)
{
    each_isa(logits_of_isa, NULL);
}

/* Routers are F32 in files whose other matrices are BF16. */
static void router_leaves_bf16_products(void **state)
{
    struct qwick_engine *eng =
        engine_with(.model = "tests/golden/gguf/qwen35-moe.gguf");
    assert_int_equal(eng->model.layers[0].experts.router.dtype, DT_F32);
    assert_int_equal(eng->model.dense_bf16, eng->model.k->tune.bf16);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_match_every_isa),
        cmocka_unit_test(router_leaves_bf16_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
