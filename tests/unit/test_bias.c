/* The bias of tokens in generations: single ones, batches, and with guesses
 * (test_batch_speculative.c has more of those). With exact, all give the same
 * answers as a loop of one's own that adds the numbers itself. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engines.h"

#define MODEL "tests/golden/models/yarn"

enum { N_PROMPT = 20, N_ANSWER = 40, VOCAB = 320 };

static struct qwick_engine *eng, *draft;
static int32_t prompt[N_PROMPT];

static int open_engines(void **state)
{
    eng = engine_with(.model = MODEL, .exact = true, .threads = 1);
    draft = engine_with(.model = MODEL, .exact = true, .threads = 1);
    some_ids(prompt, N_PROMPT, 9);
    return 0;
}

static int close_engines(void **state)
{
    qwick_engine_close(eng);
    qwick_engine_close(draft);
    return 0;
}

static struct qwick_sampling sampling_of(float temperature)
{
    struct qwick_sampling s = qwick_sampling_neutral();
    s.temperature = temperature;
    s.top_k = temperature > 0 ? 50 : 0;
    s.top_p = temperature > 0 ? 0.95f : 1;
    s.repeat_penalty = 1.2f;
    s.seed = 4;
    return s;
}

static struct qwick_generate_options options_of(const struct qwick_sampling *s,
                                                const struct qwick_bias *bias,
                                                size_t n_bias)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    o.sampling = s;
    o.max_tokens = N_ANSWER;
    o.ignore_eos = true;
    o.bias = bias;
    o.n_bias = n_bias;
    return o;
}

static void generate(const struct qwick_generate_options *o,
                     struct qwick_result *r)
{
    struct qwick_session *s = open_session(eng);
    struct qwick_err e;
    assert_ok(qwick_generate(s, prompt, N_PROMPT, o, r, &e), &e);
    assert_int_equal(r->n_tokens, N_ANSWER);
    qwick_session_free(s);
}

struct numbers {
    const struct qwick_bias *v;
    size_t n;
};

static int add_numbers(void *ctx, float *logits, size_t vocab_size)
{
    const struct numbers *b = ctx;
    const struct qwick_info *info = qwick_engine_info(eng);
    (void)vocab_size;
    for (size_t i = 0; i < b->n; i++)
        logits[b->v[i].id] += b->v[i].bias;
    for (size_t i = 0; i < info->n_stop_ids; i++) /* as with ignore_eos */
        logits[info->stop_ids[i]] = -INFINITY;
    return 0;
}

/* A loop of one's own. */
static void plain_loop(const struct qwick_sampling *o,
                       const struct qwick_bias *bias, size_t n_bias,
                       int32_t *ids)
{
    struct numbers numbers = {bias, n_bias};
    struct qwick_session *s = open_session(eng);
    struct qwick_sampler *sampler;
    struct qwick_err e;
    assert_ok(qwick_sampler_create(&sampler, eng, o, &e), &e);
    qwick_sampler_bias(sampler, add_numbers, &numbers);
    assert_ok(qwick_sampler_accept_prompt(sampler, prompt, N_PROMPT, &e), &e);
    sync_to(s, prompt, N_PROMPT);
    for (size_t i = 0; i < N_ANSWER; i++) {
        assert_ok(
            qwick_sampler_draw(sampler, qwick_session_logits(s), &ids[i], &e),
            &e);
        assert_ok(qwick_sampler_accept(sampler, ids[i], &e), &e);
        assert_ok(qwick_session_decode(s, ids[i], &e), &e);
    }
    qwick_sampler_free(sampler);
    qwick_session_free(s);
}

static int keep_result(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *e)
{
    (void)ctx;
    if (e)
        fail_msg("%s", e->msg);
    *(struct qwick_result *)tag = *r;
    *r = (struct qwick_result){0};
    return 0;
}

static void is_answer(struct qwick_result *r, const int32_t *ids)
{
    assert_int_equal(r->n_tokens, N_ANSWER);
    assert_memory_equal(r->tokens, ids, N_ANSWER * sizeof *ids);
    qwick_result_free(r);
}

/* Answer in a batch, beside an answer without a bias. */
static void in_a_batch(const struct qwick_generate_options *o,
                       const int32_t *ids)
{
    struct qwick_batch_options bo = qwick_batch_defaults();
    struct qwick_generate_options other = *o;
    struct qwick_result r = {0}, r_other = {0};
    struct qwick_batch *b;
    struct qwick_err e;
    bo.done = keep_result;
    other.n_bias = 0;
    assert_ok(qwick_batch_create(&b, eng, &bo, &e), &e);
    assert_ok(qwick_batch_add(b, prompt, N_PROMPT, &other, &r_other, &e), &e);
    assert_ok(qwick_batch_add(b, prompt, N_PROMPT, o, &r, &e), &e);
    assert_ok(qwick_batch_run(b, &e), &e);
    qwick_batch_free(b);
    assert_true(memcmp(r_other.tokens, ids, N_ANSWER * sizeof *ids) != 0);
    qwick_result_free(&r_other);
    is_answer(&r, ids);
}

static void every_way_adds_the_numbers(void **state)
{
    static const float temperatures[] = {0, 1.3f};
    for (size_t t = 0; t < 2; t++) {
        struct qwick_sampling s = sampling_of(temperatures[t]);
        struct qwick_generate_options o = options_of(&s, NULL, 0);
        struct qwick_result r;
        int32_t ids[N_ANSWER];
        generate(&o, &r);
        /* forbid a token of the answer, raise others; one has two numbers */
        const struct qwick_bias bias[] = {{r.tokens[0], -100},
                                          {77, 1.5f},
                                          {8, 2},
                                          {r.tokens[3], -3.5f},
                                          {77, 0.75f}};
        int32_t forbidden = r.tokens[0];
        qwick_result_free(&r);
        plain_loop(&s, bias, 5, ids);
        for (size_t i = 0; i < N_ANSWER; i++)
            assert_true(ids[i] != forbidden);
        o = options_of(&s, bias, 5);
        generate(&o, &r);
        is_answer(&r, ids);
        o.lookup = 8;
        generate(&o, &r);
        is_answer(&r, ids);
        o.lookup = 0;
        in_a_batch(&o, ids);
        o.draft = draft;
        generate(&o, &r);
        is_answer(&r, ids);
        in_a_batch(&o, ids);
    }
}

static void a_hundred_decides(void **state)
{
    struct qwick_sampling s = sampling_of(1);
    const struct qwick_bias only = {5, 100};
    struct qwick_generate_options o = options_of(&s, &only, 1);
    struct qwick_result r;
    generate(&o, &r);
    for (size_t i = 0; i < N_ANSWER; i++)
        assert_int_equal(r.tokens[i], 5);
    qwick_result_free(&r);
}

static void what_is_out_of_range_is_refused(void **state)
{
    static const struct {
        struct qwick_bias bias;
        const char *message;
    } rows[] = {
        {{-1, 1}, "bias: token id -1 is out of range, the vocabulary has 320"},
        {{VOCAB, 1},
         "bias: token id 320 is out of range, the vocabulary has 320"},
        {{3, 100.5f}, "bias: of token 3 must be from -100 to 100, is 100.5"},
        {{3, -INFINITY}, "bias: of token 3 must be from -100 to 100, is -inf"},
        {{3, NAN}, "bias: of token 3 must be from -100 to 100, is nan"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qwick_sampling s = sampling_of(0);
        struct qwick_generate_options o = options_of(&s, &rows[i].bias, 1);
        struct qwick_session *ses = open_session(eng);
        struct qwick_result r;
        struct qwick_err e;
        assert_int_equal(qwick_generate(ses, prompt, N_PROMPT, &o, &r, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        assert_string_equal(e.msg, rows[i].message);
        qwick_result_free(&r);
        qwick_session_free(ses);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_adds_the_numbers),
        cmocka_unit_test(a_hundred_decides),
        cmocka_unit_test(what_is_out_of_range_is_refused),
    };
    return cmocka_run_group_tests(tests, open_engines, close_engines);
}
