/* Batches against single sequences: with exact, ids and texts do not depend on
 * the rest of the batch. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "engine/cache/kv_file.h"
#include "engine/cache/prefix.h"
#include "engine/tasks/batch.h"
#include "engines.h"
#include "file/json.h"
#include "file/map.h"
#include "jsonl.h"
#include "log_lines.h"
#include "own_sampling.h"
#include "tempdir.h"
#include "qwick_tools.h"

enum { N_DEMO = 60 };

/* The expected and the actual result of a request. */
struct answer {
    int32_t *prompt, *ids;
    size_t n_prompt, n_ids, n_cached;
    char *text;
    struct qwick_generate_options o;
    size_t n_done;
    struct qwick_result r;
    struct qwick_err e;
};

/* The model of engines, NULL: the built-in one. Tests that compute the expected
 * answers run on two of its eight layers, which takes a third of the time. */
static const char *model;
static char two_layers[64];

static int make_two_layers(void)
{
    static const char *const files[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    static const char config[] =
        "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],"
        "\"vocab_size\":6144,\"hidden_size\":256,\"intermediate_size\":768,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":8,"
        "\"num_key_value_heads\":4,\"head_dim\":64,\"hidden_act\":\"silu\","
        "\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,"
        "\"max_position_embeddings\":2048,\"tie_word_embeddings\":true,"
        "\"attention_bias\":false,\"eos_token_id\":6137}";
    char path[128];
    snprintf(two_layers, sizeof two_layers, "/tmp/qwick-test-XXXXXX");
    if (!mkdtemp(two_layers))
        return -1;
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "models/demo/%s", files[i]);
        char *from = realpath(path, NULL);
        snprintf(path, sizeof path, "%s/%s", two_layers, files[i]);
        int bad = !from || symlink(from, path);
        free(from);
        if (bad)
            return -1;
    }
    snprintf(path, sizeof path, "%s/config.json", two_layers);
    put_file(path, config, sizeof config - 1);
    return 0;
}

static int use_two_layers(void **state)
{
    model = two_layers;
    return 0;
}

static int use_all_layers(void **state)
{
    model = NULL;
    return 0;
}

static struct qwick_engine *open_engine(const char *isa, bool exact,
                                        int threads, size_t chunk)
{
    forget_warnings();
    return engine_with(.model = model, .exact = exact, .isa = isa,
                       .threads = threads, .prefill_chunk = chunk,
                       .log = keep_warning);
}

/* Open an exact engine with a prefix cache in memory, and on disk if dir is not
 * NULL. */
static struct qwick_engine *open_cached(size_t bytes, const char *dir,
                                        size_t disk_bytes)
{
    forget_warnings();
    return engine_with(.model = model, .exact = true, .threads = 1,
                       .prefix_cache_bytes = bytes,
                       .prefix_cache_disk = dir != NULL,
                       .prefix_cache_dir = dir,
                       .prefix_cache_disk_bytes = disk_bytes,
                       .log = keep_warning);
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
    struct qwick_batch_options o = {.size = sizeof(o),
                                    .max_batch = max_batch,
                                    .n_ctx = n_ctx,
                                    .kv_bytes = kv_bytes,
                                    .done = on_done};
    struct qwick_batch *b;
    struct qwick_err e;
    assert_ok(qwick_batch_create(&b, eng, &o, &e), &e);
    return b;
}

static void add(struct qwick_batch *b, struct answer *a)
{
    struct qwick_err e;
    a->n_done = 0;
    assert_ok(qwick_batch_add(b, a->prompt, a->n_prompt, &a->o, a, &e), &e);
}

static void run(struct qwick_batch *b)
{
    struct qwick_err e;
    assert_ok(qwick_batch_run(b, &e), &e);
}

static void check(struct answer *a)
{
    assert_int_equal(a->n_done, 1);
    if (a->e.code)
        fail_msg("%s", a->e.msg);
    assert_int_equal(a->r.n_prompt, a->n_prompt);
    assert_int_equal(a->r.seed, a->o.sampling->seed);
    assert_int_equal(a->r.n_tokens, a->n_ids);
    assert_memory_equal(a->r.tokens, a->ids, a->n_ids * sizeof *a->ids);
    assert_string_equal(a->r.text, a->text);
    a->n_cached = a->r.n_cached;
    qwick_result_free(&a->r);
}

/* The 60 golden answers of the demo model: greedy, at most 60 tokens. */
static struct answer *demo_answers(void)
{
    struct answer *all = calloc(N_DEMO, sizeof *all);
    struct jsonl in = jsonl_open("tests/golden/demo_visible.jsonl");
    for (size_t i = 0; jsonl_next(&in); i++) {
        struct ids prompt = ids_of(json_get(in.root, "prompt_ids"));
        struct ids ids = ids_of(json_get(in.root, "ids"));
        assert_true(i < N_DEMO);
        all[i].prompt = prompt.v;
        all[i].n_prompt = prompt.n;
        all[i].ids = ids.v;
        all[i].n_ids = ids.n;
        all[i].text = strdup(json_get(in.root, "text")->str);
        all[i].o = qwick_generate_defaults();
        own_sampling(&all[i].o)->temperature = 0;
        all[i].o.max_tokens = 60;
    }
    assert_int_equal(in.n_lines, N_DEMO);
    jsonl_close(&in);
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

/* Add requests in random order, the second half while others run. */
static void run_shuffled(struct qwick_batch *b, struct answer *all, size_t n)
{
    size_t order[256];
    struct qwick_err e;
    shuffle(order, n);
    for (size_t i = 0; i < n; i++) {
        add(b, &all[order[i]]);
        if (i >= n / 2)
            assert_ok(qwick_batch_step(b, &e), &e);
    }
    run(b);
    for (size_t i = 0; i < n; i++)
        check(&all[i]);
}

static void batches_give_the_golden_answers(void **state)
{
    struct answer *all = demo_answers();
    const size_t max[] = {1, 3, 16}, chunks[] = {0, 7};
    for (size_t c = 0; c < 2; c++) {
        struct qwick_engine *eng =
            open_engine(NULL, true, 1 + (int)c, chunks[c]);
        for (size_t i = c ? 2 : 0; i < 3; i++) {
            struct qwick_batch *b = open_batch(eng, max[i], 0, 0);
            run_shuffled(b, all, N_DEMO);
            struct qwick_batch_stats s = qwick_batch_get_stats(b);
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

/* Expect the answer that a single sequence gives. */
static void expect_single(struct qwick_engine *eng, struct answer *a,
                          size_t n_ctx)
{
    struct qwick_session *s;
    struct qwick_result r;
    struct qwick_err e;
    assert_int_equal(qwick_session_create(&s, eng, n_ctx, NULL), 0);
    assert_ok(qwick_generate(s, a->prompt, a->n_prompt, &a->o, &r, &e), &e);
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
    enum { N = 16 };
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
        for (size_t i = 0; i < N; i++) {
            struct qwick_generate_options *o = &all[i].o;
            own_sampling(o)->temperature = (float)(i % 4) * 0.6f;
            own_sampling(o)->top_k = i % 3 ? 20 : 0;
            own_sampling(o)->top_p = i % 5 ? 0.9f : 1;
            own_sampling(o)->repeat_penalty = i % 7 ? 1 : 1.3f;
            own_sampling(o)->presence_penalty = i % 6 ? 0 : 0.5f;
            own_sampling(o)->seed = i * 77;
            o->max_tokens = 1 + i % 50;
            o->ignore_eos = i % 4 == 1;
            o->stop = stop;
            o->n_stop = i % 8 ? 0 : 2;
            expect_single(eng, &all[i], 0);
        }
        struct qwick_batch *b = open_batch(eng, 5, 0, 0);
        run_shuffled(b, all, N);
        qwick_batch_free(b);
        free_answers(all, N_DEMO);
        qwick_engine_close(eng);
    }
}

/* n samples of one prompt: the prompt is evaluated once, except its last token,
 * which each sample evaluates. */
static void identical_prompts_are_computed_once(void **state)
{
    enum { N = 12 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *demo = demo_answers(), all[N];
    size_t cached = 0;
    for (size_t i = 0; i < N; i++) {
        all[i] = demo[0];
        all[i].ids = NULL;
        all[i].text = NULL;
        own_sampling(&all[i].o)->temperature = 1;
        own_sampling(&all[i].o)->seed = i;
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
    struct qwick_batch_stats s = qwick_batch_get_stats(b);
    size_t fed = 0; /* all drawn tokens except the last */
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

/* Put n tokens of a document before the prompt, then a token that no other
 * prompt has. */
static void put_before(struct answer *a, size_t n, size_t which)
{
    size_t sum = n + 1 + a->n_prompt;
    int32_t *ids = malloc(sum * sizeof *ids);
    for (size_t k = 0; k < n; k++)
        ids[k] = (int32_t)(k * 7919 % 320);
    ids[n] = (int32_t)(400 + which);
    memcpy(ids + n + 1, a->prompt, a->n_prompt * sizeof *ids);
    free(a->prompt);
    a->prompt = ids;
    a->n_prompt = sum;
}

/* Prompts that begin with the same 300 tokens: these are evaluated once. */
static void a_common_beginning_is_computed_once(void **state)
{
    enum { N = 20, SHARED = 300 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 128);
    struct answer *all = demo_answers();
    size_t tails = 0, fed = 0;
    for (size_t i = 0; i < N; i++) {
        put_before(&all[i], SHARED, i);
        all[i].o.max_tokens = 12;
        expect_single(eng, &all[i], 0);
        tails += all[i].n_prompt - SHARED;
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
    assert_int_equal(qwick_batch_get_stats(b).n_evaluated,
                     SHARED + tails + fed);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

/* Sequences that grow beyond their expected length and the memory: some wait,
 * some start again, and all end with the same answers as alone. One that does
 * not fit even alone fails, without harm to others. */
static void short_memory_means_fewer_at_once(void **state)
{
    enum { N = 3, CTX = 600 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK;
    for (size_t i = 0; i < N; i++) {
        all[i].o.max_tokens = 0;
        all[i].o.ignore_eos = true;
        own_sampling(&all[i].o)->temperature = 1;
        own_sampling(&all[i].o)->seed = i;
        expect_single(eng, &all[i], CTX);
        assert_int_equal(all[i].n_ids + all[i].n_prompt, CTX + 1);
    }
    expect_single(eng, &all[N], 0);
    expect_single(eng, &all[N + 1], 0);
    /* each sequence is expected to need nine pages, but needs ten */
    struct qwick_batch *b = open_batch(eng, 4, CTX, 19 * page);
    for (size_t i = 0; i < N; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < N; i++)
        check(&all[i]);
    struct qwick_batch_stats s = qwick_batch_get_stats(b);
    printf("preempted %llu times\n", (unsigned long long)s.n_preempted);
    assert_true(s.n_preempted > 0);
    qwick_batch_free(b);
    /* two pages: enough for one short answer at a time */
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
    own_sampling(&all[1].o)->temperature = -1;
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
    struct qwick_batch_options o = {.size = sizeof(o), .n_ctx = 1 << 20};
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
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    volatile int flag = 0;
    size_t n = 0;
    struct qwick_batch_options o = {.size = sizeof(o),
                                    .max_batch = 4,
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
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(n, before);
    flag = 0;
    assert_int_equal(qwick_batch_run(b, &e), 0);
    assert_int_equal(n, 20);
    for (size_t i = 0; i < 20; i++)
        add(b, &all[i]);
    assert_int_equal(qwick_batch_step(b, NULL), 0);
    assert_int_equal(qwick_batch_get_stats(b).n_live, 4);
    assert_int_equal(qwick_batch_get_stats(b).n_waiting, 16);
    qwick_batch_free(b); /* frees live and waiting requests */
    qwick_batch_free(NULL);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

/* ---- cancelling --------------------------------------------------------- */

/* Cancels `victim` when its own answer gets its third token. */
struct canceller {
    struct qwick_batch *b;
    void *victim;
    size_t n;
};

static int cancel_at_third(void *ctx, const struct qwick_token_event *ev)
{
    struct canceller *c = ctx;
    (void)ev;
    if (++c->n == 3)
        assert_int_equal(qwick_batch_cancel(c->b, c->victim, NULL), 0);
    return 0;
}

/* Check that it ended once, as cancelled, with the first n tokens of its
 * answer. */
static void check_cancelled(struct answer *a, size_t n)
{
    assert_int_equal(a->n_done, 1);
    assert_int_equal(a->e.code, 0);
    assert_int_equal(a->r.finish, QWICK_FINISH_CANCELLED);
    assert_int_equal(a->r.n_prompt, a->n_prompt);
    assert_int_equal(a->r.n_tokens, n);
    if (n)
        assert_memory_equal(a->r.tokens, a->ids, n * sizeof *a->ids);
    assert_non_null(a->r.text);
    assert_memory_equal(a->r.text, a->text, a->r.n_text);
    assert_true(n > 0 || a->r.n_text == 0);
    qwick_result_free(&a->r);
}

static void cancelled_requests_end_and_others_do_not_notice(void **state)
{
    enum { N = 8 };
    struct qwick_engine *eng = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    struct qwick_batch *b = open_batch(eng, 3, 0, 0);
    struct qwick_err e;
    /* cancel waiting requests: in the middle and at the end of the queue */
    for (size_t i = 0; i < N; i++)
        add(b, &all[i]);
    assert_int_equal(qwick_batch_cancel(b, &all[4], NULL), 0);
    assert_int_equal(qwick_batch_cancel(b, &all[N - 1], NULL), 0);
    assert_int_equal(qwick_batch_step(b, NULL), 0);
    check_cancelled(&all[4], 0);
    check_cancelled(&all[N - 1], 0);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(qwick_batch_waits(b, &all[i]),
                         i >= 3 && i != 4 && i != N - 1);
    add(b, &all[N]); /* the end of the queue is still valid */
    run(b);
    for (size_t i = 0; i <= N; i++)
        if (i != 4 && i != N - 1)
            check(&all[i]);
    /* cancel a live request by the callback of another, and one by its own */
    assert_true(all[0].n_ids > 4 && all[1].n_ids > 4);
    struct canceller other = {.b = b, .victim = &all[0]};
    struct canceller own = {.b = b, .victim = &all[1]};
    all[1].o.on_token = cancel_at_third;
    all[1].o.on_token_ctx = &own;
    all[2].o.on_token = cancel_at_third;
    all[2].o.on_token_ctx = &other;
    for (size_t i = 0; i < 4; i++)
        add(b, &all[i]);
    run(b);
    check_cancelled(&all[0], 3);
    check_cancelled(&all[1], 3);
    check(&all[2]);
    check(&all[3]);
    /* also while the interrupt flag is set */
    volatile int flag = 0;
    b->runs.interrupt = &flag;
    add(b, &all[5]);
    assert_int_equal(qwick_batch_step(b, NULL), 0);
    flag = 1;
    assert_int_equal(qwick_batch_step(b, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(all[5].n_done, 0);
    assert_int_equal(qwick_batch_cancel(b, &all[5], NULL), 0);
    assert_int_equal(qwick_batch_step(b, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    check_cancelled(&all[5], all[5].r.n_tokens);
    b->runs.interrupt = NULL;
    /* no request has this tag any more */
    assert_int_equal(qwick_batch_cancel(b, &all[0], &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    struct qwick_batch_stats s = qwick_batch_get_stats(b);
    assert_int_equal(s.n_live + s.n_waiting, 0);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

/* Passes hold at most the chunk, and decoding goes on beside a long prompt. */
static void long_prompts_do_not_hold_others(void **state)
{
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
    struct qwick_batch_stats before = qwick_batch_get_stats(b), s;
    while (!big.n_done) {
        assert_int_equal(qwick_batch_step(b, NULL), 0);
        s = qwick_batch_get_stats(b);
        assert_true(s.n_evaluated - before.n_evaluated <= 32);
        before = s;
    }
    for (size_t i = 0; i < 3; i++)
        check(&all[i]); /* they ended before the long one */
    qwick_result_free(&big.r);
    free(big.prompt);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(eng);
}

/* ---- prefix caches ------------------------------------------------------ */

/* Answers of 12 tokens to prompts that begin with the same 300 tokens, computed
 * by an engine without caches. */
enum { N_DOC = 300, DOC_PAGES = N_DOC / KV_BLOCK * KV_BLOCK };

static struct answer *document_answers(size_t n)
{
    struct qwick_engine *plain = open_engine(NULL, true, 1, 0);
    struct answer *all = demo_answers();
    for (size_t i = 0; i < n; i++) {
        put_before(&all[i], N_DOC, i);
        all[i].o.max_tokens = 12;
        expect_single(plain, &all[i], 0);
    }
    qwick_engine_close(plain);
    return all;
}

/* Run one batch of all[0..n), and check it. */
static void run_all(struct qwick_engine *eng, struct answer *all, size_t n,
                    size_t max_batch)
{
    struct qwick_batch *b = open_batch(eng, max_batch, 0, 0);
    for (size_t i = 0; i < n; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < n; i++)
        check(&all[i]);
    qwick_batch_free(b);
}

/* Batches and sessions find pages of earlier sequences in one cache. */
static void batches_and_sessions_share_one_cache(void **state)
{
    enum { N = 6 };
    struct answer *all = document_answers(N);
    struct qwick_engine *eng = open_cached(64 << 20, NULL, 0);
    struct qwick_session *s;
    /* one after the other: each finds the pages of the first */
    run_all(eng, all, N, 1);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(all[i].n_cached, i == 0 ? 0 : N_DOC);
    /* another batch: finds every token, even of short prompts */
    run_all(eng, all, N, 2);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(all[i].n_cached, all[i].n_prompt - 1);
    struct answer same[] = {all[N], all[N]};
    run_all(eng, same, 2, 1);
    assert_true(same[0].n_cached < same[0].n_prompt - 1);
    assert_int_equal(same[1].n_cached, same[1].n_prompt - 1);
    /* a session finds a batch's pages */
    assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
    assert_int_equal(
        qwick_session_sync(s, all[0].prompt, all[0].n_prompt, NULL), 0);
    assert_true(qwick_session_cached(s) >= N_DOC);
    qwick_session_free(s);
    qwick_engine_close(eng);
    /* a batch finds a session's pages */
    eng = open_cached(64 << 20, NULL, 0);
    assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
    assert_int_equal(
        qwick_session_sync(s, all[1].prompt, all[1].n_prompt, NULL), 0);
    qwick_session_free(s);
    run_all(eng, all, 1, 1);
    size_t whole = all[1].n_prompt / KV_BLOCK * KV_BLOCK;
    assert_int_equal(all[0].n_cached, whole < N_DOC ? whole : N_DOC);
    qwick_engine_close(eng);
    free_answers(all, N_DEMO);
}

/* A prompt is published with its first token, not at the end of its answer:
 * meanwhile all engine functions can use it. */
static void prompts_are_published_when_they_are_evaluated(void **state)
{
    struct answer *all = document_answers(1);
    struct qwick_engine *eng = open_cached(64 << 20, NULL, 0);
    struct qwick_batch *b = open_batch(eng, 2, 0, 0);
    all[0].o.ignore_eos = true;
    add(b, &all[0]);
    while (qwick_batch_get_stats(b).n_generated == 0)
        assert_int_equal(qwick_batch_step(b, NULL), 0);
    assert_int_equal(qwick_batch_get_stats(b).n_live, 1);
    struct qwick_session *s = open_session(eng);
    assert_int_equal(
        qwick_session_sync(s, all[0].prompt, all[0].n_prompt, NULL), 0);
    assert_true(qwick_session_cached(s) >= DOC_PAGES);
    qwick_session_free(s);
    qwick_batch_free(b);
    qwick_engine_close(eng);
    free_answers(all, N_DEMO);
}

/* With hits, dropped pages and hardly any room, answers stay the same, and the
 * budget holds. */
static void caches_do_not_change_answers(void **state)
{
    enum { N = 12 };
    struct answer *all = document_answers(N);
    struct qwick_engine *probe = open_cached(0, NULL, 0);
    size_t page = qwick_engine_info(probe)->kv_token_bytes * KV_BLOCK;
    const size_t budgets[] = {1, page, 3 * page, 7 * page, 1 << 30};
    qwick_engine_close(probe);
    for (size_t k = 0; k < 5; k++) {
        struct qwick_engine *eng =
            open_cached(budgets[k], k % 2 ? temp_dir : NULL, 0);
        struct qwick_batch *b = open_batch(eng, 5, 0, k == 3 ? 20 * page : 0);
        run_shuffled(b, all, N);
        assert_true(prefix_bytes(eng->prefix) <= budgets[k]);
        /* when memory is short, half of the cache is given back at a time */
        size_t before = prefix_bytes(eng->prefix);
        assert_int_equal(runs_give_back(&b->runs), before > 0);
        assert_int_equal(prefix_bytes(eng->prefix), before / page / 2 * page);
        while (runs_give_back(&b->runs))
            ;
        assert_int_equal(prefix_bytes(eng->prefix), 0);
        run_shuffled(b, all, 7);
        qwick_batch_free(b);
        qwick_engine_close(eng);
    }
    free_answers(all, N_DEMO);
}

/* A preempted sequence finds the keys and values of its prompt in the cache. */
static void preempted_sequences_begin_in_the_cache(void **state)
{
    enum { N = 3, CTX = 700 };
    struct qwick_engine *plain = open_engine(NULL, true, 1, 0);
    struct qwick_engine *eng = open_cached(1 << 30, NULL, 0);
    struct answer *all = demo_answers();
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK;
    for (size_t i = 0; i < N; i++) {
        put_before(&all[i], 64 + i, i);
        all[i].prompt[0] += (int32_t)i; /* nothing in common */
        all[i].o.max_tokens = 0;
        all[i].o.ignore_eos = true;
        own_sampling(&all[i].o)->temperature = 1;
        own_sampling(&all[i].o)->seed = i;
        expect_single(plain, &all[i], CTX);
    }
    /* each sequence is expected to need ten pages, but needs eleven; half a
     * page counts for the cache */
    struct qwick_batch *b = open_batch(eng, 4, CTX, 20 * page);
    size_t evaluated = 0;
    for (size_t i = 0; i < N; i++) {
        add(b, &all[i]);
        evaluated += CTX; /* the last drawn token is not evaluated */
    }
    run(b);
    for (size_t i = 0; i < N; i++) {
        check(&all[i]);
        assert_int_equal(all[i].n_cached, 0);
    }
    struct qwick_batch_stats s = qwick_batch_get_stats(b);
    assert_true(s.n_preempted > 0);
    assert_true(s.n_shared >= s.n_preempted * KV_BLOCK);
    assert_true(s.n_evaluated + s.n_shared > evaluated);
    qwick_batch_free(b);
    free_answers(all, N_DEMO);
    qwick_engine_close(plain);
    qwick_engine_close(eng);
}

/* ---- on disk */

static size_t n_entries(size_t *n_bytes)
{
    struct qwick_cache_entry *v;
    size_t n;
    assert_int_equal(qwick_cache_list(temp_dir, &v, &n, NULL), 0);
    for (size_t i = *n_bytes = 0; i < n; i++) {
        assert_false(v[i].damaged);
        *n_bytes += v[i].n_bytes;
    }
    qwick_cache_list_free(v, n);
    return n;
}

static void assert_entries(size_t n, size_t n_pages)
{
    struct qwick_engine *eng = open_cached(0, NULL, 0);
    size_t page = qwick_engine_info(eng)->kv_token_bytes * KV_BLOCK, bytes;
    qwick_engine_close(eng);
    assert_int_equal(n_entries(&bytes), n);
    assert_int_equal(bytes, n * KV_FILE_ALIGN + n_pages * page);
}

/* Run all[0..n) in a new engine. Its option says that all prompts begin with
 * the first n_common tokens of the first one. */
static void disk_run(struct answer *all, size_t n, size_t n_common)
{
    struct qwick_engine *eng = open_cached(64 << 20, temp_dir, 0);
    struct qwick_batch_options o = {.size = sizeof(o),
                                    .max_batch = 3,
                                    .done = on_done,
                                    .common = all[0].prompt,
                                    .n_common = n_common};
    struct qwick_batch *b;
    assert_int_equal(qwick_batch_create(&b, eng, &o, NULL), 0);
    for (size_t i = 0; i < n; i++)
        add(b, &all[i]);
    run(b);
    for (size_t i = 0; i < n; i++)
        check(&all[i]);
    if (warning(0))
        fail_msg("%s", warning(0));
    qwick_batch_free(b);
    qwick_engine_close(eng);
}

/* The common beginning of prompts goes to disk, the rest does not. */
static void the_next_run_begins_where_prompts_part(void **state)
{
    enum { N = 8 };
    struct answer *all = document_answers(N);
    /* a single prompt shares nothing */
    disk_run(all, 1, 0);
    assert_entries(0, 0);
    disk_run(all, N, 0);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(all[i].n_cached, i == 0 ? 0 : N_DOC);
    assert_entries(1, N_DOC / KV_BLOCK);
    for (size_t k = 0; k < 2; k++) {
        disk_run(all + 1 + k, N - 2, 0);
        for (size_t i = 0; i < N - 2; i++)
            assert_int_equal(all[1 + k + i].n_cached,
                             i == 0 ? DOC_PAGES : N_DOC);
        assert_entries(1, N_DOC / KV_BLOCK);
    }
    /* a session also reads it */
    struct qwick_engine *eng = open_cached(0, temp_dir, 0);
    struct qwick_session *s = open_session(eng);
    assert_int_equal(
        qwick_session_sync(s, all[0].prompt, all[0].n_prompt, NULL), 0);
    assert_int_equal(qwick_session_cached(s), DOC_PAGES);
    /* a batch reads everything that a session stored */
    assert_int_equal(qwick_session_store(s, all[0].n_prompt, NULL), 0);
    size_t whole = all[0].n_prompt / KV_BLOCK * KV_BLOCK;
    qwick_session_free(s);
    qwick_engine_close(eng);
    disk_run(all, 1, 0);
    assert_int_equal(all[0].n_cached,
                     whole < all[0].n_prompt ? whole : all[0].n_prompt - 1);
    free_answers(all, N_DEMO);
}

/* A run that knows the common beginning stores it with the first prompt that
 * has it, and later a longer one if prompts share more. */
static void what_a_run_is_told_serves_a_single_prompt(void **state)
{
    enum { N = 4 };
    struct answer *all = document_answers(N);
    disk_run(all, 1, 140);
    assert_entries(1, 2);
    disk_run(all + 1, 1, N_DOC);
    assert_int_equal(all[1].n_cached, 128);
    assert_entries(2, N_DOC / KV_BLOCK);
    qwick_cache_gc(temp_dir, 0, NULL, NULL, NULL);
    disk_run(all, N, 70);
    assert_entries(2, N_DOC / KV_BLOCK);
    /* prompts that begin differently, even the first one, change nothing */
    qwick_cache_gc(temp_dir, 0, NULL, NULL, NULL);
    struct qwick_engine *eng = open_cached(0, temp_dir, 0);
    struct qwick_batch_options o = {.size = sizeof(o),
                                    .max_batch = 1,
                                    .done = on_done,
                                    .common = all[0].prompt,
                                    .n_common = 200};
    struct qwick_batch *b;
    assert_int_equal(qwick_batch_create(&b, eng, &o, NULL), 0);
    for (size_t i = 0; i < N; i++) {
        add(b, &all[N + i]);
        add(b, &all[N - 1 - i]);
    }
    run(b);
    for (size_t i = 0; i < 2 * N; i++)
        check(&all[i]);
    assert_entries(2, N_DOC / KV_BLOCK);
    qwick_batch_free(b);
    qwick_engine_close(eng);
    free_answers(all, N_DEMO);
}

/* Samples of one prompt, and repeated prompts, do not count as sharing. If many
 * prompts differ from the first one at different tokens, at most the first one
 * is stored. */
static void entries_are_bounded_by_one_prompt(void **state)
{
    struct answer *all = document_answers(1), same[5];
    for (size_t i = 0; i < 5; i++)
        same[i] = all[0];
    disk_run(same, 5, 0);
    assert_int_equal(same[4].n_cached, all[0].n_prompt - 1);
    assert_entries(0, 0);
    struct qwick_engine *plain = open_engine(NULL, true, 1, 0);
    size_t pages = 5 * (N_DEMO - 1) / KV_BLOCK, bytes, n = 0;
    for (size_t i = 1; i < N_DEMO; i++) {
        /* each shares a little more with the first prompt than its
         * predecessor */
        put_before(&all[i], 5 * i, i);
        all[i].o.max_tokens = 1;
        expect_single(plain, &all[i], 0);
    }
    qwick_engine_close(plain);
    for (int k = 0; k < 2; k++) {
        disk_run(all, N_DEMO, 0);
        assert_int_equal(all[0].n_cached, k ? pages * KV_BLOCK : 0);
        n = n ? n : n_entries(&bytes);
        assert_in_range(n, 1, pages);
        assert_entries(n, pages);
    }
    free_answers(all, N_DEMO);
}

static char *only_entry(void)
{
    struct qwick_cache_entry *v;
    size_t n;
    assert_int_equal(qwick_cache_list(temp_dir, &v, &n, NULL), 0);
    assert_int_equal(n, 1);
    char *path = strdup(v[0].path);
    qwick_cache_list_free(v, n);
    return path;
}

static void damaged_entries_are_told_once_and_replaced(void **state)
{
    enum { N = 4 };
    struct answer *all = document_answers(N);
    char *data;
    size_t n;
    disk_run(all, N, 0);
    char *path = only_entry();
    assert_int_equal(map_read_all(path, 1 << 30, &data, &n, NULL), 0);
    const size_t at[] = {0, 300, n / 2, n - 1};
    for (size_t i = 0; i < 4; i++) {
        data[at[i]] ^= 1;
        put_file(path, data, n);
        data[at[i]] ^= 1;
        struct qwick_engine *eng = open_cached(0, temp_dir, 0);
        run_all(eng, all, N, 2);
        assert_true(all[0].n_cached < DOC_PAGES);
        assert_non_null(strstr(warning(0), "ignored"));
        assert_null(warning(1));
        qwick_engine_close(eng);
        disk_run(all, N, 0);
        assert_int_equal(all[0].n_cached, DOC_PAGES);
    }
    free(data);
    free(path);
    free_answers(all, N_DEMO);
}

static void a_disk_that_cannot_be_had_costs_one_warning(void **state)
{
    enum { N = 4 };
    struct answer *all = document_answers(N);
    temp_write("file", "x", 1);
    struct qwick_engine *eng = open_cached(0, temp_path("file"), 0);
    struct qwick_batch *b = open_batch(eng, 2, 0, 0);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < N; i++)
            add(b, &all[i]);
        run(b);
        for (size_t i = 0; i < N; i++)
            check(&all[i]);
    }
    assert_non_null(strstr(warning(0), "is not a directory"));
    assert_null(warning(1));
    qwick_batch_free(b);
    qwick_engine_close(eng);
    temp_remove("file");
    /* a cache too small for one entry stays empty, and says why once */
    eng = open_cached(0, temp_dir, 1);
    run_all(eng, all, N, 2);
    assert_non_null(strstr(warning(0), "not stored"));
    assert_null(warning(1));
    qwick_engine_close(eng);
    assert_entries(0, 0);
    free_answers(all, N_DEMO);
}

static int clear(void **state)
{
    qwick_cache_gc(temp_dir, 0, NULL, NULL, NULL);
    rmdir(temp_path("prefix-1"));
    temp_clear();
    return use_all_layers(state);
}

static int setup(void **state)
{
    return make_two_layers() ? -1 : temp_setup(state);
}

static int teardown(void **state)
{
    remove_tree(two_layers);
    return temp_teardown(state);
}

#define TWO_LAYERS(TEST, TEARDOWN) \
    cmocka_unit_test_setup_teardown(TEST, use_two_layers, TEARDOWN)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_give_the_golden_answers),
        cmocka_unit_test(sampled_answers_are_those_of_single_runs),
        cmocka_unit_test(identical_prompts_are_computed_once),
        TWO_LAYERS(a_common_beginning_is_computed_once, use_all_layers),
        TWO_LAYERS(short_memory_means_fewer_at_once, use_all_layers),
        cmocka_unit_test(bad_requests_fail_alone),
        cmocka_unit_test(stopped_interrupted_and_dropped),
        cmocka_unit_test(cancelled_requests_end_and_others_do_not_notice),
        cmocka_unit_test(long_prompts_do_not_hold_others),
        cmocka_unit_test(batches_and_sessions_share_one_cache),
        cmocka_unit_test(prompts_are_published_when_they_are_evaluated),
        TWO_LAYERS(caches_do_not_change_answers, clear),
        TWO_LAYERS(preempted_sequences_begin_in_the_cache, use_all_layers),
        TWO_LAYERS(the_next_run_begins_where_prompts_part, clear),
        cmocka_unit_test_teardown(what_a_run_is_told_serves_a_single_prompt,
                                  clear),
        TWO_LAYERS(entries_are_bounded_by_one_prompt, clear),
        TWO_LAYERS(damaged_entries_are_told_once_and_replaced, clear),
        TWO_LAYERS(a_disk_that_cannot_be_had_costs_one_warning, clear),
    };
    cmocka_set_test_filter(getenv("TEST_FILTER"));
    return cmocka_run_group_tests(tests, setup, teardown);
}
