/* Layers with a sliding window release pages that no later token attends to. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engines.h"
#include "qwick_tools.h"
#include "session_pages.h"
#include "tempdir.h"

enum { WINDOW = 100, N = 1500 };

/* ---- the cache ---------------------------------------------------------- */

/* Layers 0, 1 and 3 have a window. A layer takes two pages of the system. */
static struct config some_config(struct layer_config *layers)
{
    for (size_t i = 0; i < 4; i++)
        layers[i] = (struct layer_config){.slot = i,
                                          .window = i == 2   ? NO_WINDOW
                                                    : i == 3 ? WINDOW
                                                             : WINDOW / 2};
    return (struct config){
        .n_layers = 4, .n_kv_heads = 1, .head_dim = 16, .layers = layers};
}

static struct kv_cache filled(const struct config *c, size_t n)
{
    struct kv_cache kv;
    assert_int_equal(kv_init(&kv, kv_kind(QWICK_KV_F32), c, NULL), 0);
    assert_int_equal(kv_reserve(&kv, n, NULL), 0);
    for (size_t i = 0; i < kv.n_pages; i++)
        memset(kv.pages[i]->data, (int)i + 1, kv.page_bytes);
    kv.n = n;
    return kv;
}

/* Whether a layer's part of a page has the data of filled(). Otherwise checks
 * that it is zeros. */
static bool is_whole(const struct kv_cache *kv, size_t page, size_t layer)
{
    size_t bytes = kv->page_bytes / kv->n_layers;
    const unsigned char *p = kv->pages[page]->data + layer * bytes;
    bool whole = p[0] != 0;
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(p[i], whole ? (int)page + 1 : 0);
    return whole;
}

static void old_pages_are_released(void **state)
{
    struct layer_config layers[4];
    struct config c = some_config(layers);
    /* the next token sees positions 541 to 640 */
    struct kv_cache kv = filled(&c, 640);
    size_t all = kv.n_pages * kv.page_bytes;
    assert_int_equal(kv_bytes(&kv), all);
    kv.pages[3]->refs++; /* shared with another owner */
    kv_release(&kv, 0);
    for (size_t i = 0; i < kv.n_pages; i++)
        for (size_t l = 0; l < 4; l++)
            assert_int_equal(is_whole(&kv, i, l), i >= 8 || i == 3 || l == 2);
    assert_int_equal(kv_bytes(&kv), all - 7 * (kv.page_bytes / 4 * 3));
    kv.pages[3]->refs--;
    kv_free(&kv);
    /* `slack` keeps this many positions more */
    kv = filled(&c, 640);
    kv_release(&kv, 64);
    assert_true(is_whole(&kv, 7, 0) && !is_whole(&kv, 6, 0));
    kv_free(&kv);
    /* without windows nothing happens */
    c.layers = NULL;
    kv = filled(&c, 640);
    kv_release(&kv, 0);
    assert_true(is_whole(&kv, 0, 0));
    assert_int_equal(kv_usable(&kv, 1), 1);
    kv_free(&kv);
}

static void a_sequence_goes_back_as_far_as_keys_are_there(void **state)
{
    struct layer_config layers[4];
    struct config c = some_config(layers);
    struct kv_cache kv = filled(&c, 640), other;
    kv_release(&kv, 0); /* pages 0 to 7 */
    for (size_t n = 0; n <= 640; n++)
        assert_int_equal(kv_usable(&kv, n), n >= 512 + WINDOW - 1 ? n : 0);
    other = kv_like(&kv);
    assert_int_equal(kv_share(&other, &kv, 620, NULL), 0);
    assert_int_equal(other.n, 620);
    kv_free(&other);
    other = kv_like(&kv);
    assert_int_equal(kv_share(&other, &kv, 600, NULL), 0);
    assert_int_equal(other.n, 0);
    kv_free(&other);
    kv_truncate(&kv, 611);
    assert_int_equal(kv.n, 611);
    kv_truncate(&kv, 610);
    assert_int_equal(kv.n, 0);
    /* the pages fill again */
    assert_int_equal(kv_reserve(&kv, 640, NULL), 0);
    kv.n = 640;
    assert_int_equal(kv_usable(&kv, 100), 100);
    kv_release(&kv, 0);
    assert_int_equal(kv_usable(&kv, 100), 0);
    kv_free(&kv);
}

/* ---- sessions ----------------------------------------------------------- */

static struct qwick_engine *open_engine(size_t chunk, const char *cache)
{
    struct qwick_engine *eng =
        engine_with(.model = "tests/golden/models/tied-bf16", .exact = true,
                    .threads = 2, .prefill_chunk = chunk,
                    .prefix_cache_bytes = cache ? 64 << 20 : 0,
                    .prefix_cache_disk = cache != NULL,
                    .prefix_cache_dir = cache);
    /* all layers except the second one */
    struct config *c = &eng->model.config;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].window = i == 1 ? NO_WINDOW : WINDOW;
    return eng;
}

static size_t n_warnings;
static char warning[256];

static void count_warning(void *ctx, enum qwick_log_level level,
                          const char *line)
{
    (void)ctx;
    if (level != QWICK_LOG_WARNING)
        return;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static void warnings_to(struct qwick_engine *eng)
{
    eng->log = count_warning;
    n_warnings = 0;
}

/* Evaluate everything in one pass: nothing is released before it has ended. */
static struct qwick_session *whole(struct qwick_engine *eng, const int32_t *ids,
                                   size_t n)
{
    struct qwick_session *s = open_session(eng);
    assert_true(eng->model.chunk >= n);
    sync_to(s, ids, n);
    for (size_t i = 0; i < s->kv.n_pages; i++)
        assert_false(s->kv.pages[i]->released);
    return s;
}

static void released_pages_change_no_result(void **state)
{
    struct qwick_engine *big = open_engine(2 * N, NULL);
    struct qwick_engine *eng = open_engine(64, NULL);
    int32_t *ids = new_ids(N, 1);
    struct qwick_session *want = whole(big, ids, N), *s = open_session(eng),
                         *fork;
    struct qwick_err e;
    sync_to(s, ids, N - 10);
    for (size_t i = N - 10; i < N; i++)
        assert_int_equal(qwick_session_decode(s, ids[i], &e), 0);
    same_logits(s, want);
    size_t gone = n_released(s);
    assert_true(gone > (N - WINDOW - KV_SLACK) / KV_BLOCK - 2);
    assert_int_equal(qwick_session_kv_bytes(s),
                     s->kv.n_pages * s->kv.page_bytes -
                         gone * s->kv.page_bytes / 3 * 2);
    /* a fork continues on its own */
    assert_int_equal(qwick_session_fork(&fork, s, &e), 0);
    assert_int_equal(qwick_session_decode(fork, 5, &e), 0);
    assert_int_equal(qwick_session_decode(s, 5, &e), 0);
    same_logits(fork, s);
    /* roll back a few tokens, and continue */
    assert_int_equal(qwick_session_rollback(s, N - 200, &e), 0);
    sync_to(s, ids, N);
    assert_int_equal(s->n_cached, N - 200);
    same_logits(s, want);
    /* too far back: an error, and nothing changes */
    assert_int_equal(qwick_session_rollback(s, 700, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, "to 700 of 1500 tokens"));
    same_logits(s, want);
    assert_int_equal(s->kv.n, N);
    /* sync evaluates the tokens again instead */
    struct qwick_session *half = whole(big, ids, 700);
    sync_to(s, ids, 700);
    assert_int_equal(s->n_cached, 0);
    same_logits(s, half);
    sync_to(s, ids, N);
    assert_int_equal(s->n_cached, 700);
    same_logits(s, want);
    qwick_session_free(half);
    qwick_session_free(fork);
    qwick_session_free(s);
    qwick_session_free(want);
    qwick_engine_close(eng);
    qwick_engine_close(big);
    free(ids);
}

static void saved_sessions_go_on(void **state)
{
    struct qwick_engine *big = open_engine(2 * N, NULL);
    struct qwick_engine *eng = open_engine(64, NULL);
    int32_t *ids = new_ids(N, 1);
    struct qwick_session *want = whole(big, ids, N), *s = open_session(eng), *t;
    struct qwick_err e;
    temp_clear();
    sync_to(s, ids, N);
    /* save a session that rolled back after it had released pages */
    assert_int_equal(qwick_session_rollback(s, N - 200, &e), 0);
    assert_ok(qwick_session_save(s, temp_path("s"), &e) ||
                  qwick_session_load(&t, eng, temp_path("s"), 0, &e),
              &e);
    assert_int_equal(qwick_session_rollback(t, N - 300, &e), -1);
    sync_to(t, ids, N);
    assert_int_equal(t->n_cached, N - 200);
    same_logits(t, want);
    qwick_session_free(t);
    qwick_session_free(s);
    qwick_session_free(want);
    qwick_engine_close(eng);
    qwick_engine_close(big);
    free(ids);
}

/* With a prefix cache, sessions keep the pages that it gets after the prompt, so
 * it has all of a prompt longer than the window, and a cached part gives the
 * same results as a new one. */
static void prefixes_stay_whole(void **state)
{
    temp_clear();
    struct qwick_engine *big = open_engine(2 * N, NULL);
    struct qwick_engine *eng = open_engine(64, temp_path("cache"));
    int32_t *ids = new_ids(N, 1);
    struct qwick_session *want = whole(big, ids, N),
                         *half = whole(big, ids, 700), *s;
    struct qwick_err e;
    const size_t steps[] = {200, N};
    for (size_t i = 0; i < 2; i++) {
        s = open_session(eng);
        sync_to(s, ids, steps[i]);
        assert_int_equal(s->n_cached, i ? 192 : 0);
        assert_ok(qwick_session_store(s, steps[i], &e), &e);
        qwick_session_free(s);
    }
    for (size_t i = 0; i < 4; i++) {
        bool disk = i >= 2, all = i % 2;
        struct qwick_engine *later =
            disk ? open_engine(64, temp_path("cache")) : eng;
        s = open_session(later);
        sync_to(s, ids, all ? N : 700);
        assert_int_equal(s->n_cached, all ? N / KV_BLOCK * KV_BLOCK : 699);
        same_logits(s, all ? want : half);
        qwick_session_free(s);
        if (disk)
            qwick_engine_close(later);
    }
    qwick_session_free(half);
    qwick_session_free(want);
    qwick_engine_close(eng);
    qwick_engine_close(big);
    free(ids);
}

/* A loaded session has no keys of old windows, so that it cannot be stored. */
static void loaded_sessions_are_not_stored(void **state)
{
    temp_clear();
    struct qwick_engine *eng = open_engine(64, temp_path("cache"));
    int32_t *ids = new_ids(N, 1);
    struct qwick_session *s = open_session(eng), *t;
    struct qwick_err e;
    warnings_to(eng);
    sync_to(s, ids, N);
    assert_ok(qwick_session_save(s, temp_path("s"), &e) ||
                  qwick_session_load(&t, eng, temp_path("s"), 0, &e),
              &e);
    for (int i = 0; i < 2; i++)
        assert_int_equal(qwick_session_store(t, N, &e), 0);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "before the sliding window: not stored"));
    qwick_session_free(t);
    qwick_session_free(s);
    qwick_engine_close(eng);
    free(ids);
}

/* Two of three layers attend only to the window. */
static void costs_know_windows(void **state)
{
    struct qwick_engine *eng = open_engine(64, NULL);
    double layer = (double)qwick_engine_info(eng)->kv_token_bytes / 3;
    const struct {
        size_t pos, n;
        double positions;
    } rows[] = {{0, 0, 0},
                {0, 1, 3},
                {0, 50, 150},
                {99, 1, 300},
                {100, 1, 301},
                {1000, 1, 1001 + 2 * 100},
                {1000, 8, 1008 + 2 * 107}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(fabs(qwick_forward_kv_bytes(eng, rows[i].pos, rows[i].n) -
                         layer * rows[i].positions) < 1);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_pages_are_released),
        cmocka_unit_test(a_sequence_goes_back_as_far_as_keys_are_there),
        cmocka_unit_test(released_pages_change_no_result),
        cmocka_unit_test(saved_sessions_go_on),
        cmocka_unit_test(prefixes_stay_whole),
        cmocka_unit_test(loaded_sessions_are_not_stored),
        cmocka_unit_test(costs_know_windows),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
