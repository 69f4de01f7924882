/* GGUF files of every type of blocks: their logits against the weights as
 * ggml's reference dequantizes them and a forward pass in float64, on every
 * level of kernels that this CPU has. The bounds are the project's: see
 * test_golden.c. What is measured is printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>

#include "base/cpu.h"
#include "engine/core/engine.h"
#include "golden.h"

#define EXACT_BOUND     2e-5
#define FLOAT_BOUND     1.2e-2
#define QUANTIZED_BOUND 4e-2

static const char *const types[] = {
    "F16",  "Q8_0",   "Q4_0",   "Q4_1",   "Q5_0", "Q5_1",  "IQ4_NL",
    "Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ4_XS"};

/* Qwen3.5, in the float types of the checkpoints that they were made from. */
static const char *const qwen35[] = {"qwen35-f16-long", "qwen35-moe",
                                     "qwen35-tied", "qwen35-wrapped-untied"};

/* The golden of tests/golden/gguf/NAME.gguf. */
static void open_golden(struct golden *g, const char *name)
{
    char path[192];
    snprintf(g->dir, sizeof g->dir, "tests/golden/gguf/%s.gguf", name);
    snprintf(path, sizeof path, "tests/golden/gguf/%s.expected.safetensors",
             name);
    assert_int_equal(golden_read(g, path), 0);
}

/* Logits at all positions, malloc'ed. */
static float *logits_of(const struct golden *g, bool exact, const char *isa)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_err e;
    o.model = g->dir;
    o.exact = exact;
    o.isa = isa;
    o.threads = 2;
    if (qwick_engine_open(&eng, &o, &e)) {
        fail_msg("%s", e.msg);
        return NULL;
    }
    float *got = malloc(g->n * g->vocab_size * sizeof *got);
    if (all_logits(eng, g, got, &e))
        fail_msg("%s: %s", g->dir, e.msg);
    qwick_engine_close(eng);
    return got;
}

static double error_of(const struct golden *g, bool exact, const char *isa)
{
    float *got = logits_of(g, exact, isa);
    double error = golden_error(g, got);
    free(got);
    return error;
}

static void check(const char *name, enum isa isa)
{
    struct golden g;
    open_golden(&g, name);
    bool is_float = strstr(name, "-F16") || strstr(name, "gemma3") ||
                    strstr(name, "qwen35");
    double exact = error_of(&g, true, isa_name(isa));
    double fast = error_of(&g, false, isa_name(isa));
    printf("%-10s %-20s exact %.2e  default %.2e\n", isa_name(isa), name, exact,
           fast);
    assert_true(exact <= EXACT_BOUND);
    assert_true(fast <= (is_float ? FLOAT_BOUND : QUANTIZED_BOUND));
    golden_close(&g);
}

/* ---- mixtures of experts --------------------------------------------------
 *
 * Rounding what the router reads may exchange two experts with nearly equal
 * scores, and with random weights another expert gives other logits. So the
 * bound holds with the experts that --exact takes. By itself the default mode
 * may take others only where they nearly tie. */

enum { MOST_CHOICES = 4096, N_LAYERS = 2, N_EXPERTS = 4, N_ACTIVE = 2 };

/* Two experts nearly tie below this difference of the logarithms of their
 * probabilities. Activations rounded to int8 give these an error of 1.1e-2
 * here (root of the mean square), and their differences one of 1.6e-2: six of
 * those. */
#define NEAR_TIE 0.1

/* The router's probabilities and choices for each token and layer. */
struct choices {
    size_t n; /* tokens */
    struct {
        float p[N_EXPERTS];
        uint32_t expert[N_ACTIVE];
    } of[MOST_CHOICES];           /* [layers * n] */
    const struct choices *replay; /* take these experts; NULL: its own */
};

static void on_choice(void *ctx, size_t layer, size_t token, const float *p,
                      uint32_t *expert)
{
    struct choices *c = ctx;
    size_t at = layer * c->n + token;
    memcpy(c->of[at].p, p, sizeof c->of[at].p);
    memcpy(c->of[at].expert, expert, sizeof c->of[at].expert);
    if (c->replay)
        memcpy(expert, c->replay->of[at].expert, N_ACTIVE * sizeof *expert);
}

/* Logits at all positions in one pass, malloc'ed. */
static float *mixture_logits(const struct golden *g, bool exact,
                             const char *isa, struct choices *c)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_session *s;
    struct qwick_err e;
    o.model = g->dir;
    o.exact = exact;
    o.isa = isa;
    o.threads = 2;
    if (qwick_engine_open(&eng, &o, &e) ||
        qwick_session_create(&s, eng, 0, &e)) {
        fail_msg("%s", e.msg);
        return NULL;
    }
    const struct config *config = &eng->model.config;
    assert_int_equal(config->n_layers, N_LAYERS);
    assert_int_equal(config->layers[0].n_experts, N_EXPERTS);
    assert_int_equal(config->layers[0].n_active, N_ACTIVE);
    assert_true(N_LAYERS * g->n <= MOST_CHOICES);
    c->n = g->n;
    const struct expert_watch watch = {on_choice, c};
    const struct span span = {&s->kv, g->ids, g->n, WANT_ALL};
    float *got = malloc(g->n * g->vocab_size * sizeof *got);
    const struct pass_io io = {
        .spans = &span, .n_spans = 1, .logits = got, .watch = &watch};
    assert_int_equal(kv_reserve(&s->kv, g->n, &e), 0);
    assert_int_equal(scratch_reserve(eng->scratch, &eng->model, g->n, g->n, &e),
                     0);
    assert_int_equal(model_forward(&eng->model, eng->scratch, &io), 0);
    qwick_session_free(s);
    qwick_engine_close(eng);
    return got;
}

static bool has(const uint32_t *experts, uint32_t e)
{
    for (size_t i = 0; i < N_ACTIVE; i++)
        if (experts[i] == e)
            return true;
    return false;
}

/* How far from a tie the experts were that one of the two choices has and the
 * other has not, by want's probabilities; -1: the choices are equal. */
static double margin(const struct choices *want, const struct choices *got,
                     size_t at)
{
    double most = -1;
    for (uint32_t in = 0; in < N_EXPERTS; in++)
        for (uint32_t out = 0; out < N_EXPERTS; out++) {
            const float *p = want->of[at].p;
            if (!has(want->of[at].expert, in) || has(got->of[at].expert, in) ||
                has(want->of[at].expert, out) || !has(got->of[at].expert, out))
                continue;
            double d = log((double)p[in] / (double)p[out]);
            most = d > most ? d : most;
        }
    return most;
}

static double error_of_rows(const struct golden *g, float *got)
{
    double error = golden_error(g, got);
    free(got);
    return error;
}

static void check_mixture(const char *name, enum isa isa)
{
    static struct choices want, got;
    struct golden g;
    open_golden(&g, name);
    size_t n_others = 0;
    double widest = 0;
    got.replay = &want;
    double exact =
        error_of_rows(&g, mixture_logits(&g, true, isa_name(isa), &want));
    double fast =
        error_of_rows(&g, mixture_logits(&g, false, isa_name(isa), &got));
    for (size_t at = 0; at < N_LAYERS * g.n; at++) {
        double m = margin(&want, &got, at);
        n_others += m >= 0;
        widest = m > widest ? m : widest;
    }
    printf("%-10s %-20s exact %.2e  default %.2e; of %zu choices %zu differ, "
           "by at most %.1e\n",
           isa_name(isa), name, exact, fast, N_LAYERS * g.n, n_others, widest);
    assert_true(exact <= EXACT_BOUND);
    assert_true(fast <= QUANTIZED_BOUND);
    assert_true(widest <= NEAR_TIE);
    golden_close(&g);
}

static void logits_match_every_isa(void **state)
{
    (void)state;
    for (int l = 0; l < ISA_COUNT; l++) {
        if (!cpu_has((enum isa)l)) {
            printf("SKIP %s: this CPU does not have it\n",
                   isa_name((enum isa)l));
            continue;
        }
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            char name[64];
            snprintf(name, sizeof name, "tiny-dense-%s", types[i]);
            check(name, (enum isa)l);
        }
        check("gemma3-tied", (enum isa)l);
        for (size_t i = 0; i < sizeof qwen35 / sizeof *qwen35; i++)
            check(qwen35[i], (enum isa)l);
        check_mixture("tiny-moe-Q4_K_S", (enum isa)l);
        check_mixture("tiny-moe-Q6_K", (enum isa)l);
        check_mixture("tiny-moe-Q8_0", (enum isa)l);
    }
}

/* Routers are F32 in files whose other matrices are BF16. */
static void router_leaves_bf16_products(void **state)
{
    (void)state;
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_err e;
    o.model = "tests/golden/gguf/qwen35-moe.gguf";
    assert_int_equal(qwick_engine_open(&eng, &o, &e), 0);
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
