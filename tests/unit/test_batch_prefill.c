/* Prompts of a batch on small models, with and without recurrent layers: they
 * are cancelled in a pass, shared by samples, or too long for the memory. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tasks/batch.h"
#include "engines.h"
#include "own_sampling.h"

#define ATTENTION "tests/golden/models/tied-bf16"
#define RECURRENT "tests/golden/models/qwen35-tied"

static const char *const models[] = {ATTENTION, RECURRENT};

enum { CHUNK = 256, CACHE_BYTES = 64 << 20 };

/* A request, and what became of it. */
struct request {
    int32_t *prompt;
    size_t n_prompt;
    struct qwick_generate_options o;
    struct qwick_result expected, r; /* r.tokens NULL: it has not ended */
    struct qwick_err e;
    size_t n_done;
};

/* Cancels requests at a layer of a pass, or sets the interrupt flag. */
struct canceller {
    struct qwick_batch *b;
    const struct request *victims[2];
    size_t at_layer; /* 0: never */
    size_t n_layers; /* that this pass has reported */
    volatile int flag;
    bool interrupts;
};

static void on_layer(void *ctx)
{
    struct canceller *c = ctx;
    if (++c->n_layers != c->at_layer)
        return;
    for (size_t i = 0; i < 2 && c->victims[i]; i++)
        assert_int_equal(qwick_batch_cancel(c->b, c->victims[i], NULL), 0);
    c->flag = c->interrupts;
}

static int on_done(void *ctx, void *tag, struct qwick_result *r,
                   const struct qwick_err *e)
{
    struct request *q = tag;
    (void)ctx;
    q->n_done++;
    q->r = *r;
    *r = (struct qwick_result){0};
    q->e = e ? *e : (struct qwick_err){0};
    return 0;
}

static struct qwick_engine *open_engine(const char *dir, size_t cache)
{
    return engine_with(.model = dir, .exact = true, .threads = 2,
                       .prefill_chunk = CHUNK, .prefix_cache_bytes = cache);
}

static struct qwick_batch *open_batch(struct qwick_engine *eng,
                                      struct canceller *c, size_t kv_bytes)
{
    struct qwick_batch_options o = {.size = sizeof o,
                                    .max_batch = 8,
                                    .kv_bytes = kv_bytes,
                                    .done = on_done,
                                    .on_layer = c ? on_layer : NULL,
                                    .on_layer_ctx = c,
                                    .interrupt = c ? &c->flag : NULL};
    struct qwick_batch *b;
    struct qwick_err e;
    assert_ok(qwick_batch_create(&b, eng, &o, &e), &e);
    if (c)
        c->b = b;
    return b;
}

/* Make a request, with the answer that it gets alone. */
static struct request *new_request(const char *dir, size_t n_prompt,
                                   size_t n_tokens, uint32_t seed)
{
    struct qwick_engine *eng = open_engine(dir, 0);
    struct qwick_session *s = open_session(eng);
    struct request *q = calloc(1, sizeof *q);
    struct qwick_err e;
    q->prompt = new_ids(n_prompt, seed);
    q->n_prompt = n_prompt;
    q->o = qwick_generate_defaults();
    q->o.max_tokens = n_tokens;
    q->o.ignore_eos = true;
    own_sampling(&q->o)->temperature = 1;
    own_sampling(&q->o)->seed = seed;
    assert_ok(qwick_generate(s, q->prompt, n_prompt, &q->o, &q->expected, &e),
              &e);
    qwick_session_free(s);
    qwick_engine_close(eng);
    return q;
}

static void free_request(struct request *q)
{
    qwick_result_free(&q->expected);
    qwick_result_free(&q->r);
    free(q->prompt);
    free(q);
}

static void add(struct qwick_batch *b, struct request *q)
{
    struct qwick_err e;
    q->n_done = 0;
    qwick_result_free(&q->r);
    assert_ok(qwick_batch_add(b, q->prompt, q->n_prompt, &q->o, q, &e), &e);
}

static void step(struct qwick_batch *b)
{
    struct qwick_err e;
    assert_ok(qwick_batch_step(b, &e), &e);
}

static void finish(struct qwick_batch *b)
{
    struct qwick_err e;
    assert_ok(qwick_batch_run(b, &e), &e);
}

static void check(const struct request *q)
{
    assert_int_equal(q->n_done, 1);
    if (q->e.code)
        fail_msg("%s", q->e.msg);
    assert_int_equal(q->r.n_tokens, q->expected.n_tokens);
    assert_memory_equal(q->r.tokens, q->expected.tokens,
                        q->r.n_tokens * sizeof *q->r.tokens);
    assert_string_equal(q->r.text, q->expected.text);
}

static void check_cancelled(const struct request *q)
{
    assert_int_equal(q->n_done, 1);
    assert_int_equal(q->e.code, 0);
    assert_int_equal(q->r.finish, QWICK_FINISH_CANCELLED);
}

/* Run a step in which the canceller acts at a layer. Returns whether the step
 * has completed a pass. */
static bool step_with(struct canceller *c, size_t at_layer,
                      const struct request *first, const struct request *second)
{
    uint64_t n = qwick_batch_get_stats(c->b).n_passes;
    c->victims[0] = first;
    c->victims[1] = second;
    c->at_layer = at_layer;
    c->n_layers = 0;
    step(c->b);
    assert_true(c->n_layers >= at_layer);
    c->at_layer = 0;
    return qwick_batch_get_stats(c->b).n_passes > n;
}

/* ---- tests -------------------------------------------------------------- */

/* A long prompt is cancelled in its third pass, beside an answer. The pass
 * stops after that layer, and a later request finds what the first ones have
 * evaluated. */
static void a_cancelled_prefill_stops_at_the_layer(void **state)
{
    for (size_t m = 0; m < 2; m++) {
        struct request *big = new_request(models[m], 1000, 5, 1);
        struct request *other = new_request(models[m], 20, 40, 2);
        struct qwick_engine *eng = open_engine(models[m], CACHE_BYTES);
        struct canceller c = {0};
        struct qwick_batch *b = open_batch(eng, &c, 0);
        add(b, other);
        step(b);
        add(b, big);
        step(b);
        step(b); /* more than CHUNK tokens: a state has its first snapshot */
        uint64_t n = qwick_batch_get_stats(b).n_evaluated;
        assert_false(step_with(&c, 1, big, NULL));
        assert_int_equal(c.n_layers, 1);
        check_cancelled(big);
        assert_int_equal(big->r.n_tokens, 0);
        assert_int_equal(other->n_done, 0);
        assert_int_equal(qwick_batch_get_stats(b).n_evaluated, n);
        add(b, big);
        finish(b);
        check(big);
        check(other);
        printf("%s: %zu of the next request's tokens were cached\n", models[m],
               big->r.n_cached);
        assert_true(big->r.n_cached >= CHUNK);
        qwick_batch_free(b);
        qwick_engine_close(eng);
        free_request(big);
        free_request(other);
    }
}

/* Two prompts share a pass over three layers. */
static void a_pass_goes_on_if_that_is_less_work(void **state)
{
    static const struct {
        size_t n[2];     /* tokens of the cancelled and of the other prompt */
        size_t at_layer; /* of three */
        bool goes_on;
    } cases[] = {
        {{100, 100}, 1, false}, /* saves two layers, repeats one */
        {{100, 100}, 2, true},  {{120, 60}, 2, false}, {{119, 60}, 2, true},
        {{20, 100}, 1, true},   {{63, 5}, 2, true}, /* five tokens take as long
                                                       as 32 */
        {{64, 5}, 2, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request *left = new_request(ATTENTION, cases[i].n[0], 5, 3);
        struct request *other = new_request(ATTENTION, cases[i].n[1], 5, 4);
        struct qwick_engine *eng = open_engine(ATTENTION, 0);
        struct canceller c = {0};
        struct qwick_batch *b = open_batch(eng, &c, 0);
        add(b, left);
        add(b, other);
        assert_int_equal(step_with(&c, cases[i].at_layer, left, NULL),
                         cases[i].goes_on);
        finish(b);
        check(other);
        check_cancelled(left);
        qwick_batch_free(b);
        qwick_engine_close(eng);
        free_request(left);
        free_request(other);
    }
}

/* A pass without prompts stops only if nobody needs it. */
static void decode_passes_go_on(void **state)
{
    struct request *all[3];
    struct qwick_engine *eng = open_engine(ATTENTION, 0);
    struct canceller c = {0};
    struct qwick_batch *b = open_batch(eng, &c, 0);
    for (size_t i = 0; i < 3; i++) {
        all[i] = new_request(ATTENTION, 10, 20, (uint32_t)i);
        add(b, all[i]);
    }
    step(b);
    assert_true(step_with(&c, 1, all[0], all[1]));
    assert_int_equal(all[0]->n_done, 0);
    step(b);
    check_cancelled(all[0]);
    check_cancelled(all[1]);
    assert_int_equal(all[0]->r.n_tokens, 2);
    assert_false(step_with(&c, 1, all[2], NULL));
    check_cancelled(all[2]);
    assert_int_equal(all[2]->r.n_tokens, 3);
    assert_int_equal(qwick_batch_get_stats(b).n_live, 0);
    qwick_batch_free(b);
    qwick_engine_close(eng);
    for (size_t i = 0; i < 3; i++)
        free_request(all[i]);
}

/* With recurrent layers a prompt of a stopped pass goes back to a snapshot, or
 * to its beginning. That counts as work. */
static void recurrent_states_that_would_be_lost_count(void **state)
{
    for (size_t m = 0; m < 2; m++) {
        struct request *answer = new_request(models[m], 10, 20, 10);
        struct request *other = new_request(models[m], 400, 5, 5);
        struct request *left = new_request(models[m], 300, 5, 6);
        struct qwick_engine *eng = open_engine(models[m], 0);
        struct canceller c = {0};
        struct qwick_batch *b = open_batch(eng, &c, 0);
        add(b, answer);
        step(b);
        add(b, other);
        add(b, left);
        step(b); /* 255 tokens of `other`, one too few for a snapshot */
        /* a token of the answer, 145 of `other` and 110 of `left` */
        bool goes_on = step_with(&c, 1, left, NULL);
        assert_int_equal(goes_on, models[m] == models[1]);
        finish(b);
        check_cancelled(left);
        check(other);
        check(answer);
        qwick_batch_free(b);
        qwick_engine_close(eng);
        free_request(answer);
        free_request(other);
        free_request(left);
    }
}

static void the_interrupt_flag_still_stops_a_pass(void **state)
{
    struct request *q = new_request(ATTENTION, 400, 5, 7);
    struct qwick_engine *eng = open_engine(ATTENTION, 0);
    struct canceller c = {.interrupts = true, .at_layer = 1};
    struct qwick_batch *b = open_batch(eng, &c, 0);
    struct qwick_err e;
    add(b, q);
    assert_int_equal(qwick_batch_step(b, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(c.n_layers, 1);
    assert_int_equal(q->n_done, 0);
    c.flag = 0;
    finish(b);
    check(q);
    qwick_batch_free(b);
    qwick_engine_close(eng);
    free_request(q);
}

/* n samples of a prompt evaluate it once; each evaluates its last token, which
 * gives the outputs that it draws from. Fair passes change nothing of this. */
static void samples_share_a_prefill(void **state)
{
    enum { N = 8, PROMPT = 633, TOKENS = 5 };
    for (size_t k = 0; k < 4; k++) {
        size_t m = k / 2;
        struct qwick_engine *eng = open_engine(models[m], 0);
        struct qwick_batch *b = open_batch(eng, NULL, 0);
        struct request *all[N];
        b->runs.fair.on = k % 2;
        for (size_t i = 0; i < N; i++) {
            all[i] = new_request(models[m], PROMPT, TOKENS, 8);
            own_sampling(&all[i]->o)->seed = i ? 100 + i : 8;
            add(b, all[i]);
        }
        finish(b);
        for (size_t i = 0; i < N; i++) {
            assert_int_equal(all[i]->n_done, 1);
            assert_int_equal(all[i]->r.n_tokens, TOKENS);
            assert_int_equal(all[i]->r.n_cached, i ? PROMPT - 1 : 0);
        }
        check(all[0]);
        assert_int_equal(qwick_batch_get_stats(b).n_evaluated,
                         PROMPT + N - 1 + N * (TOKENS - 1));
        qwick_batch_free(b);
        qwick_engine_close(eng);
        for (size_t i = 0; i < N; i++)
            free_request(all[i]);
    }
}

static void a_prompt_that_never_fits_is_refused(void **state)
{
    struct request *q = new_request(ATTENTION, 3 * KV_BLOCK, 1, 9);
    struct qwick_engine *eng = open_engine(ATTENTION, 0);
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK;
    struct qwick_batch *b = open_batch(eng, NULL, 3 * page - 1);
    struct qwick_err e;
    char expected[128];
    assert_int_equal(qwick_batch_add(b, q->prompt, q->n_prompt, &q->o, q, &e),
                     -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_int_equal(e.kind, QWICK_KIND_LIMIT);
    snprintf(
        expected, sizeof expected,
        "prompt: the KV cache of %d tokens needs %zu bytes, all caches may "
        "have %zu",
        3 * KV_BLOCK, 3 * page, 3 * page - 1);
    assert_string_equal(e.msg, expected);
    assert_int_equal(qwick_batch_get_stats(b).n_waiting, 0);
    qwick_batch_free(b);
    b = open_batch(eng, NULL, 3 * page);
    add(b, q);
    finish(b);
    check(q);
    qwick_batch_free(b);
    qwick_engine_close(eng);
    free_request(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_prefill_stops_at_the_layer),
        cmocka_unit_test(a_pass_goes_on_if_that_is_less_work),
        cmocka_unit_test(decode_passes_go_on),
        cmocka_unit_test(recurrent_states_that_would_be_lost_count),
        cmocka_unit_test(the_interrupt_flag_still_stops_a_pass),
        cmocka_unit_test(samples_share_a_prefill),
        cmocka_unit_test(a_prompt_that_never_fits_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
