/* Layers with other numbers of KV heads and another head_dim: their places in
 * the cache, and equal bits in whatever way a sequence is computed, kept and
 * taken up again. test_geometry.c compares them with a reference. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engines.h"
#include "other_heads.h"
#include "own_sampling.h"
#include "qwick_tools.h"
#include "session_pages.h"
#include "tempdir.h"

enum { WINDOW = 100, N = 21 * KV_BLOCK, VOCAB = 320 };

/* ---- the cache ---------------------------------------------------------- */

/* Layer 1 has no keys, layers 0 and 3 a window. */
static const struct layer_config four_layers[4] = {
    {.window = WINDOW, .n_kv_heads = 3, .head_dim = 40},
    {.window = NO_WINDOW, .recurrent = true},
    {.window = NO_WINDOW, .slot = 1, .n_kv_heads = 1, .head_dim = 512},
    {.window = 2 * WINDOW, .slot = 2, .n_kv_heads = 16, .head_dim = 256}};

static struct config four_config(struct layer_config *layers)
{
    memcpy(layers, four_layers, sizeof four_layers);
    return (struct config){.n_layers = 4,
                           .n_kv_heads = 3,
                           .head_dim = 40,
                           .layers = layers,
                           .delta = {1, 1, 4, 4, 2}};
}

static const enum qwick_kv kvs[] = {QWICK_KV_F16, QWICK_KV_F32, QWICK_KV_Q8,
                                    QWICK_KV_Q4};
enum { N_KVS = sizeof kvs / sizeof *kvs };

static size_t run_bytes(enum qwick_kv kv, size_t layer)
{
    size_t d = four_layers[layer].head_dim, groups = (d + 31) / 32;
    return KV_BLOCK * (kv == QWICK_KV_F32   ? 4 * d
                       : kv == QWICK_KV_F16 ? 2 * d
                       : kv == QWICK_KV_Q8  ? d + 4 * groups
                                            : d / 2 + 2 * groups);
}

/* The runs follow each other without gaps and cover the page. */
static void pages_hold_the_runs_of_all_layers(void **state)
{
    for (size_t t = 0; t < N_KVS; t++) {
        struct layer_config layers[4];
        struct config c = four_config(layers);
        struct kv_cache kv, copy;
        size_t at = 0, read = 0;
        assert_int_equal(kv_init(&kv, kv_kind(kvs[t]), &c, NULL), 0);
        assert_int_equal(kv_reserve(&kv, 100, NULL), 0);
        for (size_t i = 0; i < 4; i++) {
            size_t run = i == 1 ? 0 : run_bytes(kvs[t], i);
            size_t seen = i == 0 ? 107 : i == 2 ? 1008 : 207;
            read += run / KV_BLOCK * 2 * layers[i].n_kv_heads * seen;
            for (size_t h = 0; h < layers[i].n_kv_heads; h++) {
                assert_ptr_equal(kv_keys(&kv, 1, i, h), kv.pages[1]->data + at);
                assert_ptr_equal(kv_values(&kv, 1, i, h),
                                 kv_keys(&kv, 1, i, h) + run);
                at += 2 * run;
            }
        }
        assert_int_equal(kv.page_bytes, at);
        assert_int_equal(kv_position_bytes(&kv), at / KV_BLOCK);
        assert_int_equal((size_t)kv_read_bytes(&kv, 1000, 8), read);
        copy = kv_like(&kv);
        kv_free(&kv);
        assert_int_equal(kv_position_bytes(&copy), at / KV_BLOCK);
        kv_free(&copy);
    }
}

/* A copy of a page has the first positions of each run, and zeros. */
static void check_copy(enum qwick_kv kind)
{
    enum { USED = 5 };
    struct layer_config layers[4];
    struct config c = four_config(layers);
    struct kv_cache kv;
    assert_int_equal(kv_init(&kv, kv_kind(kind), &c, NULL), 0);
    struct kv_page *page = kv_page_new(&kv), *copy;
    for (size_t i = 0; i < kv.page_bytes; i++)
        page->data[i] = (unsigned char)(i % 255 + 1);
    copy = kv_page_copy(&kv, page, USED);
    size_t at = 0;
    for (size_t i = 0; i < 4; i++)
        for (size_t run = 0; run < 2 * layers[i].n_kv_heads; run++) {
            size_t d = layers[i].head_dim, groups = (d + 31) / 32;
            size_t row = kind == QWICK_KV_Q8 ? d : d / 2;
            size_t scales = (kind == QWICK_KV_Q8 ? 4 : 2) * groups;
            for (size_t k = 0; k < KV_BLOCK * row; k++, at++)
                assert_int_equal(copy->data[at],
                                 k < USED * row ? page->data[at] : 0);
            for (size_t k = 0; k < KV_BLOCK * scales; k++, at++)
                assert_int_equal(copy->data[at],
                                 k < USED * scales ? page->data[at] : 0);
        }
    assert_int_equal(at, kv.page_bytes);
    kv_page_drop(&kv, page);
    kv_page_drop(&kv, copy);
    kv_free(&kv);
}

static void a_copy_has_the_used_positions(void **state)
{
    check_copy(QWICK_KV_Q8);
    check_copy(QWICK_KV_Q4);
}

/* Released pages lose the whole system pages of window layers only. */
static void window_layers_are_released(void **state)
{
    struct layer_config layers[4];
    struct config c = four_config(layers);
    struct kv_cache kv;
    size_t system = 4096, at = 0;
    c.delta = (struct delta_config){0};
    layers[1] = (struct layer_config){
        .window = NO_WINDOW, .n_kv_heads = 1, .head_dim = 100};
    assert_int_equal(kv_init(&kv, kv_kind(QWICK_KV_F32), &c, NULL), 0);
    assert_int_equal(kv_reserve(&kv, 1024, NULL), 0);
    memset(kv.pages[0]->data, 1, kv.page_bytes);
    kv.n = 1024;
    size_t before = kv_bytes(&kv), gone = 0;
    kv_release(&kv, 0);
    for (size_t i = 0; i < 4; i++) {
        size_t end = at + 2 * layers[i].n_kv_heads * KV_BLOCK *
                              layers[i].head_dim * sizeof(float);
        bool window = layers[i].window != NO_WINDOW;
        for (size_t k = at; k < end; k++) {
            bool inner =
                k / system * system >= at && (k / system + 1) * system <= end;
            assert_int_equal(kv.pages[0]->data[k], window && inner ? 0 : 1);
        }
        gone += window ? end - at : 0;
        at = end;
    }
    assert_true(kv.n_visited > 5);
    assert_int_equal(kv_bytes(&kv), before - kv.n_visited * gone);
    kv_free(&kv);
}

static void sizes_are_checked(void **state)
{
    struct layer_config layers[4];
    struct config c = four_config(layers);
    struct kv_cache kv;
    struct qwick_err e;
    layers[2].head_dim = SIZE_MAX / 4;
    assert_int_equal(kv_init(&kv, kv_kind(QWICK_KV_F32), &c, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_non_null(strstr(e.msg, "4 layers, one of 1 heads of"));
    kv_free(&kv);
}

/* ---- sessions ----------------------------------------------------------- */

/* Layers 1 and 4 have other heads. In the first and the last shape layers 1 and
 * 3 have a window, in the second one 0, 2 and 4 are recurrent, and in the third
 * one all query heads share a KV head beside layers with a KV head for each.
 * The first and the third one have sinks. In the last one layers 5 to 8 read
 * the keys of earlier ones, and values of layers 1 and 3 come from keys. */
static const struct geometry shapes[] = {
    {.n_layers = 5,
     .d_model = 32,
     .d_ff = 48,
     .n_kv_heads = 2,
     .group = 4,
     .head_dim = 16,
     .other_kv_heads = 4,
     .other_head_dim = 40,
     .vocab_size = VOCAB,
     .window = WINDOW,
     .sinks = true,
     .dtype = DT_BF16},
    {.n_layers = 5,
     .d_model = 32,
     .d_ff = 48,
     .n_kv_heads = 2,
     .group = 2,
     .head_dim = 16,
     .other_kv_heads = 1,
     .other_head_dim = 24,
     .vocab_size = VOCAB,
     .qwen35 = true,
     .n_lin_heads = 2,
     .lin_group = 1,
     .d_k = 8,
     .d_v = 8,
     .conv = 3,
     .n_rot = 8,
     .dtype = DT_BF16},
    {.n_layers = 3,
     .d_model = 16,
     .d_ff = 24,
     .n_kv_heads = 128,
     .group = 1,
     .head_dim = 2,
     .other_kv_heads = 1,
     .other_head_dim = 4,
     .vocab_size = VOCAB,
     .sinks = true,
     .dtype = DT_F32},
    {.n_layers = 9,
     .d_model = 32,
     .d_ff = 48,
     .n_kv_heads = 2,
     .group = 4,
     .head_dim = 16,
     .other_kv_heads = 1,
     .other_head_dim = 40,
     .vocab_size = VOCAB,
     .window = WINDOW,
     .v_from_k = true,
     .v_norm = true,
     .n_shared = 4,
     .dtype = DT_BF16},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* With f32, the engines are exact: any passes give equal bits. With others,
 * equal passes do: of whole pages, so that they go on where a page ends. */

static void write_shape(size_t i)
{
    temp_clear();
    seed = i;
    draws = 0;
    struct ref_model *m = ref_create(&shapes[i]);
    ref_write(m);
    ref_free(m);
    other_heads = &shapes[i];
}

/* chunk: of exact engines. cache: a directory, or NULL. */
static struct qwick_engine *open_engine(enum qwick_kv kv, int threads,
                                        size_t chunk, const char *cache)
{
    bool exact = kv == QWICK_KV_F32;
    return engine_with(.model = temp_dir, .exact = exact, .kv = kv,
                       .threads = threads,
                       .prefill_chunk = exact ? chunk : KV_BLOCK,
                       .prefix_cache_bytes = cache ? 64 << 20 : 0,
                       .prefix_cache_disk = cache != NULL,
                       .prefix_cache_dir = cache);
}

/* All tokens on one thread: in one pass if the engine is exact. */
static struct qwick_session *whole(struct qwick_engine *eng, const int32_t *ids)
{
    struct qwick_session *s = open_session(eng);
    assert_true(!eng->model.exact || eng->model.chunk >= N);
    sync_to(s, ids, N);
    return s;
}

static void decode(struct qwick_session *s, int32_t id)
{
    struct qwick_err e;
    assert_ok(qwick_session_decode(s, id, &e), &e);
}

/* Passes of other lengths, decode, forks, files, and going back. */
static void go_on_from_the_cache(struct qwick_engine *eng,
                                 struct qwick_session *want, const int32_t *ids)
{
    struct qwick_session *s = open_session(eng), *fork, *loaded;
    struct qwick_err e;
    bool exact = eng->model.exact, windows = other_heads->window;
    size_t n = exact ? N - 10 : N;
    sync_to(s, ids, n);
    for (; n < N; n++)
        decode(s, ids[n]);
    same_logits(s, want);
    assert_true(!windows || n_released(s) > 0);
    if (exact) /* go back, or evaluate again */
        sync_to(s, ids, N - 200);
    else
        assert_ok(qwick_session_rollback(s, N - KV_BLOCK, &e), &e);
    sync_to(s, ids, N);
    same_logits(s, want);
    assert_ok(qwick_session_fork(&fork, s, &e) ||
                  qwick_session_save(s, temp_path("s"), &e) ||
                  qwick_session_load(&loaded, eng, temp_path("s"), 0, &e),
              &e);
    decode(s, 7);
    decode(fork, 7);
    decode(loaded, 7);
    same_logits(fork, s);
    same_logits(loaded, s);
    qwick_session_free(loaded);
    qwick_session_free(fork);
    qwick_session_free(s);
}

static void results_do_not_depend_on_the_way(void **state)
{
    int32_t *ids = new_ids(N, 1);
    for (size_t i = 0; i < N_SHAPES; i++) {
        write_shape(i);
        for (size_t k = 0; k < 3; k++) {
            struct qwick_engine *one = open_engine(kvs[k], 1, N, NULL);
            struct qwick_engine *many = open_engine(kvs[k], 3, 64, NULL);
            struct qwick_session *want = whole(one, ids);
            go_on_from_the_cache(many, want, ids);
            qwick_session_free(want);
            qwick_engine_close(many);
            qwick_engine_close(one);
        }
    }
    free(ids);
}

/* From the memory of the engine that stored them, and from the disk. */
enum { STORED = 16 * KV_BLOCK };

static void prefixes_go_on(void **state)
{
    int32_t *ids = new_ids(N, 2);
    for (size_t i = 0; i < N_SHAPES; i++) {
        write_shape(i);
        for (size_t k = 0; k < 3; k++) {
            struct qwick_engine *one = open_engine(kvs[k], 1, N, NULL);
            struct qwick_engine *eng =
                open_engine(kvs[k], 2, 64, temp_path("cache"));
            struct qwick_session *want = whole(one, ids),
                                 *s = open_session(eng);
            struct qwick_err e;
            sync_to(s, ids, STORED);
            assert_ok(qwick_session_store(s, STORED, &e), &e);
            qwick_session_free(s);
            for (int disk = 0; disk < 2; disk++) {
                s = open_session(eng);
                sync_to(s, ids, N);
                assert_int_equal(s->n_cached, STORED);
                same_logits(s, want);
                qwick_session_free(s);
                qwick_engine_close(eng);
                if (!disk)
                    eng = open_engine(kvs[k], 1, 256, temp_path("cache"));
            }
            qwick_session_free(want);
            qwick_engine_close(one);
        }
    }
    free(ids);
}

enum { N_PROMPTS = 5, N_ANSWER = 12 };

static int keep_answer(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *e)
{
    int32_t *answer = tag;
    (void)ctx;
    if (e)
        fail_msg("%s", e->msg);
    assert_int_equal(r->n_tokens, N_ANSWER);
    memcpy(answer, r->tokens, N_ANSWER * sizeof *answer);
    return 0;
}

/* Prompts of many lengths with a common beginning, in one batch and alone. */
static void batches_equal_single_answers(void **state)
{
    int32_t *ids = new_ids(400, 3), want[N_PROMPTS][N_ANSWER],
            got[N_PROMPTS][N_ANSWER];
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_batch_options bo = qwick_batch_defaults();
    bo.done = keep_answer;
    o.max_tokens = N_ANSWER;
    o.ignore_eos = true;
    own_sampling(&o)->temperature = 0;
    for (size_t i = 0; i < N_SHAPES; i++) {
        write_shape(i);
        struct qwick_engine *eng = open_engine(QWICK_KV_F32, 3, 100, NULL);
        struct qwick_batch *b;
        struct qwick_err e;
        assert_ok(qwick_batch_create(&b, eng, &bo, &e), &e);
        for (size_t p = 0; p < N_PROMPTS; p++) {
            struct qwick_session *s = open_session(eng);
            struct qwick_result r;
            size_t n = 150 + 60 * p;
            assert_ok(qwick_generate(s, ids, n, &o, &r, &e), &e);
            keep_answer(NULL, want[p], &r, NULL);
            qwick_result_free(&r);
            qwick_session_free(s);
            assert_ok(qwick_batch_add(b, ids, n, &o, got[p], &e), &e);
        }
        assert_ok(qwick_batch_run(b, &e), &e);
        assert_memory_equal(got, want, sizeof got);
        qwick_batch_free(b);
        qwick_engine_close(eng);
    }
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_hold_the_runs_of_all_layers),
        cmocka_unit_test(a_copy_has_the_used_positions),
        cmocka_unit_test(window_layers_are_released),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(results_do_not_depend_on_the_way),
        cmocka_unit_test(prefixes_go_on),
        cmocka_unit_test(batches_equal_single_answers),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
