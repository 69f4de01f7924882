/* Batches against single sequences: with exact, the same ids and texts whatever
 * runs beside them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "engine/batch.h"
#include "file/json.h"
#include "file/map.h"

enum { N_DEMO = 60 };

/* What a request shall give, and what it gave. */
struct answer {
    int32_t *prompt, *ids;
    size_t n_prompt, n_ids, n_cached;
    char *text;
    struct qwick_generate_options o;
    size_t n_done;
    struct qwick_result r;
    struct qwick_err e;
};

static struct qwick_engine *open_engine(const char *isa, bool exact,
                                        int threads, size_t chunk)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    struct qwick_err e;
    o.exact = exact;
    o.isa = isa;
    o.threads = threads;
    o.prefill_chunk = chunk;
    if (qwick_engine_open(&eng, &o, &e))
        fail_msg("%s", e.msg);
    return eng;
}

static int on_done(void *ctx, void *tag, struct qwick_result *r,
                   const struct qwick_err *e)
{
    struct answer *a = tag;
    (void)ctx;
    a->n_done++;
    a->r = *r;
    *r = (struct qwick_result){0};
    a->e = e ? *e : (struct qwick_err){0};
    return 0;
}

static struct qwick_batch *open_batch(struct qwick_engine *eng,
                                      size_t max_batch, size_t n_ctx,
                                      size_t kv_bytes)
{
    struct qwick_batch_options o = {.max_batch = max_batch,
                                    .n_ctx = n_ctx,
                                    .kv_bytes = kv_bytes,
                                    .done = on_done};
    struct qwick_batch *b;
    struct qwick_err e;
    if (qwick_batch_create(&b, eng, &o, &e))
        fail_msg("%s", e.msg);
    return b;
}

static void add(struct qwick_batch *b, struct answer *a)
{
    struct qwick_err e;
    a->n_done = 0;
    if (qwick_batch_add(b, a->prompt, a->n_prompt, &a->o, a, &e))
        fail_msg("%s", e.msg);
}

static void run(struct qwick_batch *b)
{
    struct qwick_err e;
    if (qwick_batch_run(b, &e))
        fail_msg("%s", e.msg);
}

static void check(struct answer *a)
{
    assert_int_equal(a->n_done, 1);
    if (a->e.code)
        fail_msg("%s", a->e.msg);
    assert_int_equal(a->r.n_prompt, a->n_prompt);
    assert_int_equal(a->r.seed, a->o.sampling.seed);
    assert_int_equal(a->r.n_tokens, a->n_ids);
    assert_memory_equal(a->r.tokens, a->ids, a->n_ids * sizeof *a->ids);
    assert_string_equal(a->r.text, a->text);
    a->n_cached = a->r.n_cached;
    qwick_result_free(&a->r);
}

static int32_t *ids_of(const struct json_value *v, size_t *n)
{
    int32_t *ids = malloc(v->len * sizeof *ids);
    *n = v->len;
    for (size_t i = 0; i < v->len; i++) {
        int64_t id;
        assert_int_equal(json_int(&v->items[i], 0, 1 << 30, &id), 0);
        ids[i] = (int32_t)id;
    }
    return ids;
}

/* The 60 golden answers of the demo model: greedy, at most 60 tokens. */
static struct answer *demo_answers(void)
{
    struct answer *all = calloc(N_DEMO, sizeof *all);
    struct map map;
    assert_int_equal(map_open(&map, "tests/golden/demo_visible.jsonl", NULL),
                     0);
    const char *p = (const char *)map.data, *end = p + map.size;
    for (size_t i = 0; i < N_DEMO; i++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        struct json_doc *doc;
        assert_non_null(nl);
        assert_int_equal(json_parse(&doc, "demo", p, (size_t)(nl - p),
                                    QWICK_ERR_RUNTIME, NULL),
                         0);
        const struct json_value *v = json_root(doc);
        all[i].prompt = ids_of(json_get(v, "prompt_ids"), &all[i].n_prompt);
        all[i].ids = ids_of(json_get(v, "ids"), &all[i].n_ids);
        all[i].text = strdup(json_get(v, "text")->str);
        all[i].o = qwick_generate_defaults();
        all[i].o.sampling.temperature = 0;
        all[i].o.max_tokens = 60;
        json_free(doc);
        p = nl + 1;
    }
    map_close(&map);
    return all;
}

static void free_answers(struct answer *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(all[i].prompt);
        free(all[i].ids);
        free(all[i].text);
    }
    free(all);
}

/* Numbers below n, from a fixed seed. */
static size_t below(size_t n)
{
    static uint32_t x = 2463534242u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return x % n;
}

static void shuffle(size_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    for (size_t i = n; i-- > 1;) {
        size_t j = below(i + 1), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

/* In a random order, the later half coming while others run. */
static void run_shuffled(struct qwick_batch *b, struct answer *all, size_t n)
{
    size_t order[256];
    struct qwick_err e;
    shuffle(order, n);
    for (size_t i = 0; i < n; i++) {
        add(b, &all[order[i]]);
        if (i >= n / 2 && qwick_batch_step(b, &e))
            fail_msg("%s", e.msg);
    }
    run(b);
    for (size_t i = 0; i < n; i++)
        check(&all[i]);
}

static void batches_give_the_golden_answers(void **state)
{
    (void)state;
    struct answer *all = demo_answers();
    const size_t max[] = {1, 3, 16}, chunks[] = {0, 7};
    for (size_t c = 0; c < 2; c++) {
        struct qwick_engine *eng =
            open_engine(NULL, true, 1 + (int)c, chunks[c]);
        for (size_t i = 0; i < 3; i++) {
            struct qwick_batch *b = open_batch(eng, max[i], 0, 0);
            run_shuffled(b, all, N_DEMO);
            struct qwick_batch_stats s = qwick_batch_stats(b);
            printf("chunk %zu, %zu at once: %llu passes, %llu evaluated, "
                   "%llu shared, %llu generated\n",
                   chunks[c], max[i], (unsigned long long)s.n_passes,
                   (unsigned long long)s.n_evaluated,
                   (unsigned long long)s.n_shared,
                   (unsigned long long)s.n_generated);
            assert_int_equal(s.n_live + s.n_waiting, 0);
            qwick_batch_free(b);
        }
        qwick_engine_close(eng);
    }
    free_answers(all, N_DEMO);
}

/* Make what one sequence by itself gives the answer to expect. */
static void expect_single(struct qwick_engine *eng, struct answer *a,
                          size_t n_ctx)
{
    struct qwick_session *s;
    struct qwick_result r;
    struct qwick_err e;
    assert_int_equal(qwick_session_create(&s, eng, n_ctx, NULL), 0);
    if (qwick_generate(s, a->prompt, a->n_prompt, &a->o, &r, &e))
        fail_msg("%s", e.msg);
    qwick_session_free(s);
    free(a->ids);
    free(a->text);
    a->ids = r.tokens;
    a->n_ids = r.n_tokens;
    a->text = r.text;
    r.tokens = NULL;
    r.text = NULL;
    qwick_result_free(&r);
}

static void sampled_answers_are_those_of_single_runs(void **state)
{
    (void)state;
    static const char *const stop[] = {"e", "-l"};
    for (int l = ISA_AVX2; l < ISA_COUNT; l++) {
        if (!cpu_has((enum isa)l)) {
            printf("SKIP %s: this CPU does not have it\n",
                   isa_name((enum isa)l));
            continue;
        }
        struct qwick_engine *eng =
            open_engine(isa_name((enum isa)l), true, 1, 64);
        struct answer *all = demo_answers();
        for (size_t i = 0; i < N_DEMO; i++) {
            struct qwick_generate_options *o = &all[i].o;
            o->sampling.temperature = (float)(i % 4) * 0.6f;
            o->sampling.top_k = i % 3 ? 20 : 0;
            o->sampling.top_p = i % 5 ? 0.9f : 1;
            o->sampling.repeat_penalty = i % 7 ? 1 : 1.3f;
            o->sampling.presence_penalty = i % 6 ? 0 : 0.5f;
            o->sampling.seed = i * 77;
            o->max_tokens = 1 + i % 50;
            o->ignore_eos = i % 4 == 1;
            o->stop = stop;
            o->n_stop = i % 8 ? 0 : 2;
            expect_single(eng, &all[i], 0);
        }
        struct qwick_batch *b = open_batch(eng, 5, 0, 0);
        run_shuffled(b, all, N_DEMO);
        qwick_batch_free(b);
        free_answers(all, N_DEMO);
        qwick_engine_close(eng);
    }
}

/* n samples of one prompt: it is evaluated once, and its last token by each. */
static void identical_prompts_are_computed_once(void **state)
{
    (void)state;
    enum { N = 12 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *demo = demo_answers(), all[N];
    size_t cached = 0;
    for (size_t i = 0; i < N; i++) {
        all[i] = demo[0];
        all[i].ids = NULL;
        all[i].text = NULL;
        all[i].o.sampling.temperature = 1;
        all[i].o.sampling.seed = i;
        all[i].o.max_tokens = 20;
        expect_single(eng, &all[i], 0);
    }
    struct qwick_batch *b = open_batch(eng, 4, 0, 0);
    for (size_t i = 0; i < N; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < N; i++) {
        check(&all[i]);
        assert_true(i == 0 || all[i].n_cached == demo[0].n_prompt - 1);
        cached += all[i].n_cached;
    }
    struct qwick_batch_stats s = qwick_batch_stats(b);
    size_t fed = 0; /* every token drawn but the last */
    for (size_t i = 0; i < N; i++)
        fed += all[i].n_ids - 1;
    assert_int_equal(s.n_evaluated, demo[0].n_prompt + N - 1 + fed);
    assert_int_equal(s.n_shared, cached);
    qwick_batch_free(b);
    for (size_t i = 0; i < N; i++) {
        free(all[i].ids);
        free(all[i].text);
    }
    free_answers(demo, N_DEMO);
    qwick_engine_close(eng);
}

/* Prompts that begin with the same 300 tokens: those are evaluated once. */
static void a_common_beginning_is_computed_once(void **state)
{
    (void)state;
    enum { N = 20, SHARED = 300 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 128);
    struct answer *all = demo_answers();
    size_t tails = 0, fed = 0;
    for (size_t i = 0; i < N; i++) {
        size_t n = SHARED + 1 + all[i].n_prompt;
        int32_t *ids = malloc(n * sizeof *ids);
        for (size_t k = 0; k < SHARED; k++)
            ids[k] = (int32_t)(k * 7919 % 320);
        ids[SHARED] = (int32_t)(400 + i); /* and no more in common */
        memcpy(ids + SHARED + 1, all[i].prompt, all[i].n_prompt * sizeof *ids);
        free(all[i].prompt);
        all[i].prompt = ids;
        all[i].n_prompt = n;
        all[i].o.max_tokens = 12;
        expect_single(eng, &all[i], 0);
        tails += n - SHARED;
        fed += all[i].n_ids - 1;
    }
    struct qwick_batch *b = open_batch(eng, 6, 0, 0);
    for (size_t i = 0; i < N; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < N; i++) {
        check(&all[i]);
        assert_int_equal(all[i].n_cached, i == 0 ? 0 : SHARED);
    }
    assert_int_equal(qwick_batch_stats(b).n_evaluated, SHARED + tails + fed);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

/* Sequences that grow beyond what was expected of them and of the memory: some
 * wait, some start again, all end as alone. One that cannot even be alone fails
 * without harm to others. */
static void short_memory_means_fewer_at_once(void **state)
{
    (void)state;
    enum { N = 3, CTX = 600 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK;
    for (size_t i = 0; i < N; i++) {
        all[i].o.max_tokens = 0;
        all[i].o.ignore_eos = true;
        all[i].o.sampling.temperature = 1;
        all[i].o.sampling.seed = i;
        expect_single(eng, &all[i], CTX);
        assert_int_equal(all[i].n_ids + all[i].n_prompt, CTX + 1);
    }
    /* nine pages are expected of each, ten needed */
    struct qwick_batch *b = open_batch(eng, 4, CTX, 19 * page);
    for (size_t i = 0; i < N; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < N; i++)
        check(&all[i]);
    struct qwick_batch_stats s = qwick_batch_stats(b);
    printf("preempted %llu times\n", (unsigned long long)s.n_preempted);
    assert_true(s.n_preempted > 0);
    qwick_batch_free(b);
    /* two pages: short answers only, one at a time */
    b = open_batch(eng, 4, CTX, 2 * page);
    struct answer *big = &all[0];
    add(b, &all[N]);
    add(b, big);
    add(b, &all[N + 1]);
    run(b);
    assert_int_equal(big->n_done, 1);
    assert_int_equal(big->e.code, QWICK_ERR_MEMORY);
    assert_int_equal(big->r.n_tokens + big->n_prompt, 2 * KV_BLOCK + 1);
    qwick_result_free(&big->r);
    check(&all[N]);
    check(&all[N + 1]);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

static void bad_requests_fail_alone(void **state)
{
    (void)state;
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    struct qwick_batch *b = open_batch(eng, 2, 100, 0);
    struct qwick_err e;
    int32_t *many = calloc(101, sizeof *many), bad = 1 << 20;
    assert_int_equal(qwick_batch_add(b, many, 0, &all[0].o, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(qwick_batch_add(b, many, 101, &all[0].o, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_string_equal(e.msg,
                        "prompt: 101 tokens do not fit the context of 100");
    assert_int_equal(qwick_batch_add(b, &bad, 1, &all[0].o, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    all[1].o.sampling.temperature = -1;
    all[2].o.loop_guard = 2;
    for (size_t i = 0; i < 5; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < 5; i++) {
        if (i != 1 && i != 2) {
            check(&all[i]);
            continue;
        }
        assert_int_equal(all[i].n_done, 1);
        assert_int_equal(all[i].e.code, QWICK_ERR_USAGE);
        assert_int_equal(all[i].r.n_tokens, 0);
        qwick_result_free(&all[i].r);
    }
    assert_int_equal(qwick_batch_step(b, NULL), 0); /* nothing to do */
    qwick_batch_free(b);
    struct qwick_batch_options o = {.n_ctx = 1 << 20};
    assert_int_equal(qwick_batch_create(&b, eng, &o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_null(b);
    free(many);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

static int stop_at_second(void *ctx, void *tag, struct qwick_result *r,
                          const struct qwick_err *e)
{
    size_t *n = ctx;
    (void)tag;
    (void)r;
    (void)e;
    return ++*n == 2;
}

static void stopped_interrupted_and_dropped(void **state)
{
    (void)state;
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    volatile int flag = 0;
    size_t n = 0;
    struct qwick_batch_options o = {.max_batch = 4,
                                    .done = stop_at_second,
                                    .done_ctx = &n,
                                    .interrupt = &flag};
    struct qwick_batch *b;
    struct qwick_err e;
    assert_int_equal(qwick_batch_create(&b, eng, &o, NULL), 0);
    for (size_t i = 0; i < 20; i++)
        add(b, &all[i]);
    assert_int_equal(qwick_batch_run(b, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_true(n >= 2);
    size_t before = n;
    flag = 1;
    assert_int_equal(qwick_batch_run(b, &e), -1);
    assert_string_equal(e.msg, SESSION_INTERRUPTED);
    assert_int_equal(n, before);
    flag = 0;
    assert_int_equal(qwick_batch_run(b, &e), 0);
    assert_int_equal(n, 20);
    for (size_t i = 0; i < 20; i++)
        add(b, &all[i]);
    assert_int_equal(qwick_batch_step(b, NULL), 0);
    assert_int_equal(qwick_batch_stats(b).n_live, 4);
    assert_int_equal(qwick_batch_stats(b).n_waiting, 16);
    qwick_batch_free(b); /* live and waiting ones */
    qwick_batch_free(NULL);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

/* Passes hold at most the chunk, and decoding goes on beside a long prompt. */
static void long_prompts_do_not_hold_others(void **state)
{
    (void)state;
    struct qwick_engine *eng = open_engine(NULL, true, 1, 32);
    struct answer *all = demo_answers();
    struct qwick_batch *b = open_batch(eng, 4, 0, 0);
    size_t n = 800;
    struct answer big = {.n_prompt = n, .o = all[0].o};
    big.prompt = malloc(n * sizeof *big.prompt);
    for (size_t i = 0; i < n; i++)
        big.prompt[i] = (int32_t)(i * 7919 % 320);
    big.o.max_tokens = 1;
    for (size_t i = 0; i < 3; i++)
        add(b, &all[i]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(qwick_batch_step(b, NULL), 0);
    add(b, &big);
    struct qwick_batch_stats before = qwick_batch_stats(b), s;
    while (!big.n_done) {
        assert_int_equal(qwick_batch_step(b, NULL), 0);
        s = qwick_batch_stats(b);
        assert_true(s.n_evaluated - before.n_evaluated <= 32);
        before = s;
    }
    for (size_t i = 0; i < 3; i++)
        check(&all[i]); /* they were done before */
    qwick_result_free(&big.r);
    free(big.prompt);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_give_the_golden_answers),
        cmocka_unit_test(sampled_answers_are_those_of_single_runs),
        cmocka_unit_test(identical_prompts_are_computed_once),
        cmocka_unit_test(a_common_beginning_is_computed_once),
        cmocka_unit_test(short_memory_means_fewer_at_once),
        cmocka_unit_test(bad_requests_fail_alone),
        cmocka_unit_test(stopped_interrupted_and_dropped),
        cmocka_unit_test(long_prompts_do_not_hold_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
