/* Text encoders from each container: hidden states and scores against
 * transformers on each level of this CPU, and equal results from any number of
 * threads and in a batch of unequal texts. tests/golden/families/README.md
 * describes the goldens. */
#include "test.h"

#include "base/cpu.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "golden.h"
#include "model/scratch.h"

#define FAMILIES "tests/golden/families/"

/* Of hidden states, as for logits. */
#define EXACT_BOUND 2e-5
#define FLOAT_BOUND 1.2e-2

static const char *const goldens[] = {"bert-cls", "xlmr", "xlmr-rerank",
                                      "modernbert", "embeddinggemma"};
enum { N_GOLDENS = sizeof goldens / sizeof *goldens, MAX_TEXTS = 8 };

struct expected {
    int32_t *ids;
    size_t n, d;
    float *hidden; /* [n, d]; NULL: none */
    float score;
    bool has_score;
};

static struct expected read_expected(const char *name)
{
    struct expected x = {0};
    struct st_set *set;
    struct qwick_err e;
    char path[192];
    snprintf(path, sizeof path, FAMILIES "%s/expected.safetensors", name);
    assert_ok(st_open_file(&set, path, &e), &e);
    const struct st_tensor *ids = st_find(set, "input_ids");
    const struct st_tensor *hidden = st_find(set, "hidden");
    const struct st_tensor *score = st_find(set, "score");
    x.n = ids->shape[0];
    x.ids = malloc(x.n * sizeof *x.ids);
    for (size_t i = 0; i < x.n; i++)
        x.ids[i] = golden_i64(ids->data, i);
    if (hidden) {
        x.d = hidden->shape[1];
        x.hidden = malloc(hidden->n_bytes);
        memcpy(x.hidden, hidden->data, hidden->n_bytes);
    }
    x.has_score = score;
    if (score)
        memcpy(&x.score, score->data, sizeof x.score);
    st_close(set);
    return x;
}

static void free_expected(struct expected *x)
{
    free(x->ids);
    free(x->hidden);
}

/* One pass over texts: out gets the hidden states of the rows of each. */
static void encode(struct qwick_engine *eng, const struct span *texts, size_t n,
                   float *out)
{
    const struct model *m = &eng->model;
    struct kv_cache kv[MAX_TEXTS];
    struct span spans[MAX_TEXTS];
    struct scratch *s;
    struct qwick_err e;
    size_t total = 0, longest = 0;
    for (size_t i = 0; i < n; i++) {
        assert_ok(kv_init(&kv[i], eng->kv_dtype, &m->config, &e), &e);
        assert_ok(kv_reserve(&kv[i], texts[i].n, &e), &e);
        spans[i] = texts[i];
        spans[i].kv = &kv[i];
        total += texts[i].n;
        longest = texts[i].n > longest ? texts[i].n : longest;
    }
    assert_ok(scratch_create(&s, m, &e), &e);
    assert_ok(scratch_reserve(s, m, total, longest, &e), &e);
    const struct pass_io io = {.spans = spans, .n_spans = n, .hidden = out};
    assert_int_equal(model_forward(m, s, &io), 0);
    for (size_t i = 0; i < n; i++)
        kv_free(&kv[i]);
    scratch_free(s);
}

static float *hidden_of(struct qwick_engine *eng, const int32_t *ids, size_t n)
{
    float *out = malloc(n * eng->model.config.d_model * sizeof *out);
    const struct span text = {.tokens = ids, .n = n, .rows = ROWS_ALL};
    encode(eng, &text, 1, out);
    return out;
}

/* The logit of a cross-encoder, from the first token's state. */
static float score_of(struct qwick_engine *eng, const struct expected *x,
                      enum span_rows rows)
{
    const struct model *m = &eng->model;
    size_t d = m->config.d_model;
    float *states = malloc(x->n * d * sizeof *states), *row = malloc(d * 4);
    const struct span text = {.tokens = x->ids, .n = x->n, .rows = rows};
    struct scratch *s;
    struct qwick_err e;
    double sum;
    encode(eng, &text, 1, states);
    assert_ok(scratch_create(&s, m, &e), &e);
    assert_ok(scratch_reserve(s, m, 1, 1, &e), &e);
    model_class_input(m, s, states);
    sum = m->class_bias ? (double)m->class_bias[0] : 0;
    m->classes.ops->to_f32(m->k, row, &m->classes, 0, 1);
    for (size_t i = 0; i < d; i++)
        sum += (double)row[i] * (double)states[i];
    scratch_free(s);
    free(states);
    free(row);
    return (float)sum;
}

static struct qwick_engine *open_encoder(const char *name, const char *form,
                                         enum isa isa, bool exact, int threads)
{
    char path[128];
    snprintf(path, sizeof path, FAMILIES "%s%s", name, form);
    return engine_with(.model = path, .isa = isa_name(isa), .exact = exact,
                       .threads = threads);
}

static void check_numbers(const char *name, const char *form, enum isa isa,
                          bool exact)
{
    double bound = exact ? EXACT_BOUND : FLOAT_BOUND, error;
    struct expected x = read_expected(name);
    struct qwick_engine *eng = open_encoder(name, form, isa, exact, 2);
    assert_true(eng->model.config.bidirectional);
    if (x.has_score) {
        float got = score_of(eng, &x, ROWS_FIRST);
        error = fabs((double)got - (double)x.score) / fabs((double)x.score);
    } else {
        float *got = hidden_of(eng, x.ids, x.n);
        error = relative_error(got, x.hidden, x.n * x.d);
        free(got);
    }
    printf("%s%s %s%s: %.3g\n", name, form, isa_name(isa),
           exact ? " exact" : "", error);
    assert_true(error <= bound);
    qwick_engine_close(eng);
    free_expected(&x);
}

static void states_match_every_isa(void **state)
{
    for (int isa = 0; isa < ISA_COUNT; isa++)
        for (size_t i = 0; i < N_GOLDENS && cpu_has((enum isa)isa); i++)
            for (int exact = 0; exact < 2; exact++) {
                check_numbers(goldens[i], "", (enum isa)isa, exact);
                check_numbers(goldens[i], ".gguf", (enum isa)isa, exact);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_match_every_isa),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
