/* Sessions of models with recurrent layers. With exact, results equal bit by
 * bit those of one evaluation from the start, for every way in which a context
 * can arise. */
#include "test.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/cache/prefix.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"
#include "model/pass.h"
#include "own_sampling.h"
#include "qwick.h"
#include "tempdir.h"

#define MODELS "tests/golden/models/"

static char next_dir[PATH_MAX], short_dir[PATH_MAX]; /* see setup */
static const char *const models[] = {MODELS "qwen35-tied", MODELS "qwen35-moe",
                                     next_dir, short_dir};
enum { N_MODELS = 4, N = 700, VOCAB = 320 };

/* Write a golden of another family with a longer context. */
static int lengthen(char *dir, const char *golden)
{
    static const char from[] = "\"max_position_embeddings\": 512";
    static const char to[] = "\"max_position_embeddings\": 999";
    char path[128], weights[PATH_MAX], *config;
    size_t n;
    snprintf(dir, PATH_MAX, "%s", temp_path(golden));
    snprintf(path, sizeof path, "tests/golden/families/%s/model.safetensors",
             golden);
    if (mkdir(dir, 0700) || !realpath(path, weights))
        return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", golden);
    if (symlink(weights, temp_path(path)))
        return -1;
    snprintf(path, sizeof path, "tests/golden/families/%s/config.json", golden);
    if (map_read_all(path, 1 << 20, &config, &n, NULL))
        return -1;
    memcpy(strstr(config, from), to, strlen(to));
    snprintf(path, sizeof path, "%s/config.json", golden);
    temp_write(path, config, n);
    free(config);
    return 0;
}

/* The models stay beside the directory of the tests. */
static char models_dir[sizeof temp_dir];

static int setup(void **state)
{
    if (temp_setup(state) || lengthen(next_dir, "qwen3next-odd") ||
        lengthen(short_dir, "lfm2-long"))
        return -1;
    memcpy(models_dir, temp_dir, sizeof temp_dir);
    return temp_setup(state);
}

static int teardown(void **state)
{
    int rc = temp_teardown(state);
    memcpy(temp_dir, models_dir, sizeof temp_dir);
    return temp_teardown(state) || rc ? -1 : 0;
}

static struct qwick_engine *open_with(const char *model, int threads,
                                      size_t chunk, const char *cache)
{
    struct qwick_engine *eng =
        engine_with(.model = model, .exact = true, .threads = threads,
                    .prefill_chunk = chunk,
                    .prefix_cache_bytes = cache ? 64 << 20 : 0,
                    .prefix_cache_disk = cache && *cache,
                    .prefix_cache_dir = cache);
    assert_true(delta_channels(&eng->model.config.delta) > 0);
    return eng;
}

/* Ids without a period, which begin with `first`. */
static int32_t *ids_from(size_t n, int32_t first)
{
    int32_t *ids = malloc(n * sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * i * 31 + i * 7 + (size_t)first) % VOCAB);
    return ids;
}

static void decode(struct qwick_session *s, int32_t id)
{
    struct qwick_err e;
    assert_ok(qwick_session_decode(s, id, &e), &e);
}

/* ---- what is right ------------------------------------------------------ */

/* Logits after each token of ids[0..n), from one pass. */
struct truth {
    int32_t *ids;
    float *rows;
};

static int keep_row(void *ctx, size_t pos, const float *logits)
{
    memcpy((float *)ctx + pos * VOCAB, logits, VOCAB * sizeof *logits);
    return 0;
}

static struct truth truth_of(const char *model, size_t n, int32_t first)
{
    struct truth t = {ids_from(n, first), malloc(n * VOCAB * sizeof(float))};
    struct qwick_engine *eng = open_with(model, 1, n, NULL);
    struct qwick_session *s = open_session(eng);
    struct qwick_err e;
    assert_non_null(t.rows);
    assert_ok(qwick_session_all_logits(s, t.ids, n, keep_row, t.rows, &e), &e);
    qwick_session_free(s);
    qwick_engine_close(eng);
    return t;
}

static void truth_free(struct truth *t)
{
    free(t->ids);
    free(t->rows);
}

/* The session has the first n tokens and their logits. */
static void check_is(const struct qwick_session *s, const struct truth *t,
                     size_t n)
{
    assert_int_equal(s->kv.n, n);
    assert_memory_equal(s->tokens, t->ids, n * sizeof *t->ids);
    assert_non_null(s->logits);
    assert_memory_equal(s->logits, t->rows + (n - 1) * VOCAB,
                        VOCAB * sizeof(float));
}

/* ---- tests -------------------------------------------------------------- */

static void chunks_steps_and_threads_agree(void **state)
{
    static const size_t chunks[] = {1, 7, 31, 32, 33, 64, 100, 512};
    for (int m = 0; m < N_MODELS; m++) {
        struct truth t = truth_of(models[m], N, 3);
        float *rows = malloc(N * VOCAB * sizeof *rows);
        assert_non_null(rows);
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
            struct qwick_engine *eng =
                open_with(models[m], 1 + (int)i % 3, chunks[i], NULL);
            struct qwick_session *s = open_session(eng);
            assert_int_equal(
                qwick_session_all_logits(s, t.ids, N, keep_row, rows, NULL), 0);
            assert_memory_equal(rows, t.rows, N * VOCAB * sizeof *rows);
            sync_to(s, t.ids, 45);
            for (size_t n = 45; n < 200; n++) {
                check_is(s, &t, n);
                decode(s, t.ids[n]);
            }
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
        free(rows);
        truth_free(&t);
    }
}

static void a_session_goes_back_to_any_length(void **state)
{
    struct truth t = truth_of(models[0], N, 3);
    struct qwick_engine *eng = open_with(models[0], 2, 100, NULL);
    struct qwick_session *s = NULL;
    struct qwick_err e;
    for (size_t n = 330; n > 0; n = n > 250 ? n - 1 : n > 30 ? n - 29 : n / 2) {
        qwick_session_free(s);
        s = open_session(eng);
        sync_to(s, t.ids, 330);
        check_is(s, &t, 330);
        size_t usable = kv_usable(&s->kv, n);
        /* blocks of the live state, a snapshot after 256 tokens, and one
         * at the end of the prompt's last full page */
        size_t want = n >= 288 ? n : n >= 256 ? 256 : 0;
        if (n >= 320)
            want = n;
        assert_int_equal(usable, want);
        int rc = qwick_session_rollback(s, n, &e);
        assert_int_equal(rc, usable == n ? 0 : -1);
        if (rc) {
            assert_int_equal(e.code, QWICK_ERR_USAGE);
            assert_non_null(strstr(e.msg, "states of the recurrent"));
            check_is(s, &t, 330);
            sync_to(s, t.ids, n);
            assert_int_equal(s->n_cached, want);
            check_is(s, &t, n);
        } else {
            assert_int_equal(s->kv.n, n);
            decode(s, t.ids[n]);
            check_is(s, &t, n + 1);
        }
    }
    /* other tokens, and back */
    struct truth other = truth_of(models[0], N, 5);
    sync_to(s, other.ids, N);
    check_is(s, &other, N);
    sync_to(s, t.ids, N);
    check_is(s, &t, N);
    truth_free(&other);
    qwick_session_free(s);
    qwick_engine_close(eng);
    truth_free(&t);
}

static void forks_go_on_by_themselves(void **state)
{
    struct truth t = truth_of(models[0], N, 3);
    struct qwick_engine *eng = open_with(models[0], 2, 512, NULL);
    for (size_t n = 1; n<400; n += n> 29 && n < 35 ? 1 : 14) {
        struct qwick_session *s = open_session(eng), *a, *b;
        sync_to(s, t.ids, n);
        assert_int_equal(qwick_session_fork(&a, s, NULL), 0);
        decode(s, (t.ids[n] + 1) % VOCAB);
        assert_int_equal(qwick_session_fork(&b, a, NULL), 0);
        check_is(a, &t, n);
        decode(a, (t.ids[n] + 2) % VOCAB);
        check_is(b, &t, n);
        qwick_session_free(s);
        sync_to(b, t.ids, n + 40);
        assert_int_equal(b->n_cached, n);
        check_is(b, &t, n + 40);
        sync_to(a, t.ids, n + 40);
        assert_int_equal(a->n_cached, n);
        check_is(a, &t, n + 40);
        /* a fork of a session that goes back to a snapshot */
        assert_int_equal(qwick_session_fork(&s, a, NULL), 0);
        sync_to(s, t.ids, n > 1 ? n - 1 : 1);
        check_is(s, &t, n > 1 ? n - 1 : 1);
        check_is(a, &t, n + 40);
        qwick_session_free(s);
        qwick_session_free(a);
        qwick_session_free(b);
    }
    qwick_engine_close(eng);
    truth_free(&t);
}

/* Three sessions of different lengths, some in prefill and some decoding. */
static void joint_steps_equal_single_ones(void **state)
{
    static const size_t begin[] = {0, 70, 255}, n[] = {90, 1, 33};
    for (int m = 0; m < N_MODELS; m++) {
        for (int threads = 1; threads < 4; threads++) {
            struct qwick_engine *eng = open_with(models[m], threads, 512, NULL);
            struct qwick_step steps[3];
            struct truth t[3];
            for (int i = 0; i < 3; i++) {
                t[i] = truth_of(models[m], N, i);
                steps[i] =
                    (struct qwick_step){open_session(eng), t[i].ids + begin[i],
                                        n[i], QWICK_ROWS_LAST};
                if (begin[i])
                    sync_to(steps[i].session, t[i].ids, begin[i]);
            }
            for (int k = 0; k < 40; k++) {
                assert_int_equal(
                    qwick_engine_step(eng, steps, 3, QWICK_LOGITS, NULL), 0);
                for (int i = 0; i < 3; i++) {
                    size_t at = (size_t)(steps[i].tokens - t[i].ids);
                    check_is(steps[i].session, &t[i], at + steps[i].n);
                    steps[i].tokens += steps[i].n;
                    steps[i].n = k % 5 == i ? 17 : 1;
                }
            }
            for (int i = 0; i < 3; i++) {
                qwick_session_free(steps[i].session);
                truth_free(&t[i]);
            }
            qwick_engine_close(eng);
        }
    }
}

static void prefixes_are_found_in_memory(void **state)
{
    /* tokens that a prompt reuses after a prompt of `had` tokens, of which
     * `common` are equal: up to a page with a snapshot, which is every fourth
     * page and the last full one */
    static const struct {
        size_t had, common, want;
    } rows[] = {{700, 700, 640}, {700, 699, 640}, {700, 640, 512},
                {700, 641, 640}, {700, 600, 512}, {700, 300, 256},
                {700, 256, 0},   {700, 257, 256}, {100, 100, 64},
                {100, 65, 64},   {100, 64, 0},    {63, 63, 0}};
    for (int m = 0; m < N_MODELS; m++) {
        struct truth t = truth_of(models[m], N, 3);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct qwick_engine *eng = open_with(models[m], 2, 512, "");
            struct qwick_session *s = open_session(eng);
            sync_to(s, t.ids, rows[i].had);
            check_is(s, &t, rows[i].had);
            qwick_session_free(s);
            s = open_session(eng);
            sync_to(s, t.ids, rows[i].common);
            assert_int_equal(s->n_cached, rows[i].want);
            check_is(s, &t, rows[i].common);
            for (size_t n = rows[i].common; n < N && n < 350; n++)
                decode(s, t.ids[n]);
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
        truth_free(&t);
    }
}

static void prefixes_are_found_on_disk(void **state)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct truth t = truth_of(models[m], N, 3);
        struct qwick_err e;
        temp_clear();
        struct qwick_engine *eng =
            open_with(models[m], 2, 512, temp_path("cache"));
        /* the second entry goes on where the first one ends */
        static const size_t stored[] = {300, N};
        for (size_t i = 0; i < 2; i++) {
            struct qwick_session *s = open_session(eng);
            sync_to(s, t.ids, stored[i]);
            assert_ok(qwick_session_store(s, stored[i], &e), &e);
            qwick_session_free(s);
        }
        qwick_engine_close(eng);
        static const size_t asked[][2] = {{N, 640},   {641, 640}, {640, 512},
                                          {300, 256}, {256, 0},   {50, 0}};
        for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
            size_t n = asked[i][0];
            eng = open_with(models[m], 2, 512, temp_path("cache"));
            struct qwick_session *s = open_session(eng);
            sync_to(s, t.ids, n);
            /* of an entry only the last snapshot that matches is read */
            assert_int_equal(s->n_cached, asked[i][1]);
            check_is(s, &t, n);
            for (size_t k = n; k < N; k++)
                decode(s, t.ids[k]);
            check_is(s, &t, N);
            qwick_session_free(s);
            /* part of the context is there already */
            s = open_session(eng);
            sync_to(s, t.ids, 70);
            sync_to(s, t.ids, n);
            check_is(s, &t, n);
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
        truth_free(&t);
    }
}

static void saved_sessions_go_on(void **state)
{
    static const size_t lengths[] = {1,  31, 32,  33,  63,  64,
                                     65, 96, 255, 256, 300, 600};
    for (int m = 0; m < N_MODELS; m++) {
        struct truth t = truth_of(models[m], N, 3);
        struct qwick_engine *eng = open_with(models[m], 2, 512, NULL);
        struct qwick_err e;
        temp_clear();
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t n = lengths[i];
            struct qwick_session *s = open_session(eng), *l;
            sync_to(s, t.ids, n);
            assert_ok(qwick_session_save(s, temp_path("s"), &e) ||
                          qwick_session_load(&l, eng, temp_path("s"), 0, &e),
                      &e);
            check_is(l, &t, n);
            for (size_t k = n; k < n + 70; k++)
                decode(l, t.ids[k]);
            check_is(l, &t, n + 70);
            qwick_session_free(l);
            /* the loaded one can go back to a snapshot, too */
            assert_ok(qwick_session_load(&l, eng, temp_path("s"), 0, &e), &e);
            assert_int_equal(kv_usable(&l->kv, n > 256 ? 256 : 0),
                             n > 256 ? 256 : 0);
            sync_to(l, t.ids, n > 200 ? n - 100 : 1);
            check_is(l, &t, n > 200 ? n - 100 : 1);
            qwick_session_free(l);
            /* a session whose live state is not loaded yet */
            size_t to = n / 256 * 256;
            if (to) {
                assert_int_equal(qwick_session_rollback(s, to, &e), 0);
                assert_ok(
                    qwick_session_save(s, temp_path("s"), &e) ||
                        qwick_session_load(&l, eng, temp_path("s"), 0, &e),
                    &e);
                assert_int_equal(l->kv.n, to);
                decode(l, t.ids[to]);
                check_is(l, &t, to + 1);
                qwick_session_free(l);
            }
            qwick_session_free(s);
        }
        qwick_engine_close(eng);
        truth_free(&t);
    }
}

/* ---- interruption ------------------------------------------------------- */

static const struct arch *real_arch;
static volatile int stop_flag;
static size_t stop_layer;

/* Raise the flag while a layer is computed. */
static void stopping_layer(struct worker *w, size_t i, size_t n)
{
    if (w->tid == 0 && i == stop_layer)
        stop_flag = 1;
    real_arch->layer(w, i, n);
}

static struct arch stopping(struct qwick_engine *eng)
{
    struct arch a = *(real_arch = eng->model.config.arch);
    a.layer = stopping_layer;
    return a;
}

static void interrupted_passes_leave_a_usable_context(void **state)
{
    static const size_t begin[] = {0, 1, 40, 64, 270, 512};
    static const size_t more[] = {1, 33, 64, 150};
    for (int m = 0; m < N_MODELS; m++) {
        struct truth t = truth_of(models[m], N, 3);
        struct qwick_engine *eng = open_with(models[m], 2, 512, NULL);
        struct arch arch = stopping(eng);
        struct qwick_err e;
        size_t n_lost = 0;
        for (size_t i = 0; i < 6 * 4; i++) {
            size_t n = begin[i / 4], end = n + more[i % 4];
            for (stop_layer = 0; stop_layer < 4; stop_layer++) {
                struct qwick_session *s = open_session(eng);
                if (n)
                    sync_to(s, t.ids, n);
                eng->model.config.arch = &arch;
                qwick_session_interrupt(s, &stop_flag);
                int rc = qwick_session_sync(s, t.ids, end, &e);
                eng->model.config.arch = real_arch;
                /* the flag comes too late for the last layer's poll, or not */
                stop_flag = 0;
                if (rc) {
                    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
                    assert_true(s->kv.n <= n);
                    assert_null(s->logits);
                    n_lost += s->kv.n < n;
                    if (end / DELTA_BLOCK < n / DELTA_BLOCK + 2)
                        assert_int_equal(s->kv.n, n);
                }
                sync_to(s, t.ids, end);
                check_is(s, &t, end);
                qwick_session_free(s);
            }
        }
        assert_true(n_lost > 0);
        qwick_engine_close(eng);
        truth_free(&t);
    }
}

/* ---- whole tasks -------------------------------------------------------- */

enum { N_PROMPTS = 6, N_ANSWER = 50 };

static struct qwick_generate_options greedy(void)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    o.max_tokens = N_ANSWER;
    o.ignore_eos = true;
    own_sampling(&o)->temperature = 0;
    return o;
}

struct answer {
    int32_t ids[N_ANSWER];
    size_t n;
};

static int keep_answer(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *e)
{
    struct answer *a = tag;
    (void)ctx;
    if (e)
        fail_msg("%s", e->msg);
    a->n = r->n_tokens;
    memcpy(a->ids, r->tokens, r->n_tokens * sizeof *a->ids);
    return 0;
}

static struct answer single(struct qwick_engine *eng, const int32_t *prompt,
                            size_t n, size_t lookup,
                            struct qwick_lookup *counts)
{
    struct qwick_session *s = open_session(eng);
    struct qwick_generate_options o = greedy();
    struct qwick_result r;
    struct qwick_err e;
    struct answer a;
    o.lookup = lookup;
    assert_ok(qwick_generate(s, prompt, n, &o, &r, &e), &e);
    keep_answer(NULL, &a, &r, NULL);
    if (counts)
        *counts = r.lookup;
    qwick_result_free(&r);
    qwick_session_free(s);
    return a;
}

static void batches_equal_single_answers(void **state)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct qwick_engine *eng = open_with(models[m], 2, 100, NULL);
        struct answer want[N_PROMPTS], got[N_PROMPTS];
        int32_t *prompts[N_PROMPTS];
        size_t n[N_PROMPTS];
        for (size_t i = 0; i < N_PROMPTS; i++) {
            /* the prompts have 300 tokens in common, two more 20 others */
            n[i] = 350 + i * 13;
            prompts[i] = ids_from(n[i], 3);
            for (size_t k = i < 4 ? 300 : 320; k < n[i]; k++)
                prompts[i][k] = (int32_t)((k * 17 + i * 5) % VOCAB);
            want[i] = single(eng, prompts[i], n[i], 0, NULL);
            assert_int_equal(want[i].n, N_ANSWER);
        }
        qwick_engine_close(eng);
        for (int cached = 0; cached < 2; cached++) {
            for (size_t limit = 0; limit < 2; limit++) {
                eng = open_with(models[m], 2, 100, cached ? "" : NULL);
                struct qwick_batch_options bo = qwick_batch_defaults();
                struct qwick_generate_options o = greedy();
                struct qwick_batch *b;
                struct qwick_err e;
                bo.done = keep_answer;
                if (limit) {
                    /* room for two sequences: others are preempted or wait */
                    struct kv_cache kv;
                    assert_int_equal(
                        kv_init(&kv, eng->kv, &eng->model.config, NULL),
                        0);
                    bo.kv_bytes = 2 * kv_sequence_bytes(&kv, 500);
                    kv_free(&kv);
                }
                assert_ok(qwick_batch_create(&b, eng, &bo, &e), &e);
                for (size_t i = 0; i < N_PROMPTS; i++)
                    assert_int_equal(
                        qwick_batch_add(b, prompts[i], n[i], &o, &got[i], NULL),
                        0);
                assert_ok(qwick_batch_run(b, &e), &e);
                for (size_t i = 0; i < N_PROMPTS; i++)
                    assert_memory_equal(&got[i], &want[i], sizeof *got);
                struct qwick_batch_stats stats;
                qwick_batch_stats_read(b, &stats, sizeof stats);
                /* all others take four pages and more from the first one */
                if (!limit || cached)
                    assert_true(stats.n_shared >= (N_PROMPTS - 1) * 256);
                qwick_batch_free(b);
                qwick_engine_close(eng);
            }
        }
        for (size_t i = 0; i < N_PROMPTS; i++)
            free(prompts[i]);
    }
}

/* A run asks another one for a snapshot where they part. */
static void runs_share_up_to_their_last_common_page(void **state)
{
    struct qwick_engine *eng = open_with(models[0], 2, 512, NULL);
    struct qwick_batch_options bo = qwick_batch_defaults();
    struct qwick_generate_options o = greedy();
    struct qwick_batch_stats stats;
    struct qwick_batch *b;
    struct answer got[3], want;
    int32_t *prompt = ids_from(400, 3);
    o.max_tokens = 3; /* the first one must not end before the others look */
    bo.done = keep_answer;
    assert_int_equal(qwick_batch_create(&b, eng, &bo, NULL), 0);
    for (int32_t i = 0; i < 3; i++) {
        prompt[200] = i;
        assert_int_equal(qwick_batch_add(b, prompt, 400, &o, &got[i], NULL), 0);
    }
    assert_int_equal(qwick_batch_run(b, NULL), 0);
    qwick_batch_stats_read(b, &stats, sizeof stats);
    assert_int_equal(stats.n_shared, 2 * 192);
    qwick_batch_free(b);
    want = single(eng, prompt, 400, 0, NULL);
    assert_int_equal(got[2].ids[0], want.ids[0]);
    free(prompt);
    qwick_engine_close(eng);
}

static int keep_cached(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *e)
{
    (void)ctx;
    *(size_t *)tag = r->n_cached;
    if (e)
        fail_msg("%s", e->msg);
    return 0;
}

/* Answer a prompt in a batch of its own. Returns the number of cached tokens. */
static size_t cached_of(struct qwick_engine *eng, const int32_t *prompt,
                        size_t n)
{
    struct qwick_batch_options bo = qwick_batch_defaults();
    struct qwick_generate_options o = greedy();
    struct qwick_batch *b;
    struct qwick_err e;
    size_t n_cached = SIZE_MAX;
    bo.done = keep_cached;
    o.max_tokens = 3;
    assert_ok(qwick_batch_create(&b, eng, &bo, &e), &e);
    assert_ok(qwick_batch_add(b, prompt, n, &o, &n_cached, &e), &e);
    assert_ok(qwick_batch_run(b, &e), &e);
    qwick_batch_free(b);
    return n_cached;
}

/* Give a prompt other tokens from `at` on. */
static int32_t *parted_at(const int32_t *ids, size_t n, size_t at, int32_t with)
{
    int32_t *out = malloc(n * sizeof *out);
    assert_non_null(out);
    memcpy(out, ids, n * sizeof *out);
    for (size_t i = at; i < n; i++)
        out[i] = (ids[i] + with) % VOCAB;
    return out;
}

/* A template drops the last tokens of the last prompt, and they cross the end
 * of a page. Where prompts parted once, the next one finds a state. */
static void turns_go_on_where_they_part(void **state)
{
    enum { TURN = 3330, EDIT = 1000, NEXT = 3400 };
    struct qwick_engine *eng = open_with(models[0], 2, 512, "");
    int32_t *first = ids_from(NEXT, 3);
    assert_int_equal(cached_of(eng, first, TURN), 0);
    for (size_t i = 0; i < 3; i++) {
        /* 3,328 is the end of a page */
        static const size_t at[] = {TURN - 3, EDIT, EDIT};
        int32_t *next = parted_at(first, NEXT, at[i], (int32_t)i + 1);
        size_t n = cached_of(eng, next, NEXT);
        if (i == 1)
            assert_true(n < EDIT / 64 * 64); /* nobody knew */
        else
            assert_int_equal(n, at[i] / 64 * 64);
        struct answer want, got = single(eng, next, NEXT, 0, NULL);
        struct qwick_engine *alone = open_with(models[0], 2, 512, NULL);
        want = single(alone, next, NEXT, 0, NULL);
        assert_memory_equal(&got, &want, sizeof got);
        qwick_engine_close(alone);
        free(next);
    }
    free(first);
    qwick_engine_close(eng);
}

/* What the cache in memory has survives the engine. */
static void conversations_outlive_the_engine(void **state)
{
    enum { N_TURN = 700 };
    temp_clear();
    int32_t *one = ids_from(N_TURN, 3), *two = ids_from(N_TURN, 77);
    struct qwick_engine *eng = open_with(models[0], 2, 512, temp_path("cache"));
    struct qwick_err e;
    volatile int flag = 1;
    assert_int_equal(cached_of(eng, one, N_TURN - 100), 0);
    assert_int_equal(cached_of(eng, two, N_TURN), 0);
    /* a turn goes on after it was written */
    assert_ok(qwick_engine_store_prefixes(eng, 0, NULL, &e), &e);
    assert_true(cached_of(eng, one, N_TURN) >= 576);
    assert_ok(qwick_engine_store_prefixes(eng, 0, &flag, &e), &e);
    qwick_engine_close(eng);

    eng = open_with(models[0], 2, 512, temp_path("cache"));
    assert_int_equal(cached_of(eng, one, N_TURN), 576);
    assert_int_equal(cached_of(eng, two, N_TURN), 640);
    assert_ok(qwick_engine_store_prefixes(eng, 0, NULL, &e), &e);
    qwick_engine_close(eng);

    eng = open_with(models[0], 2, 512, temp_path("cache"));
    assert_int_equal(cached_of(eng, one, N_TURN), 640);
    qwick_engine_close(eng);
    free(one);
    free(two);
}

/* The flag stops a step in the middle; the batch then goes on. */
static void an_interrupted_batch_goes_on(void **state)
{
    struct qwick_engine *eng = open_with(models[0], 2, 100, NULL);
    struct arch arch = stopping(eng);
    struct answer want[3], got[3];
    int32_t *prompt[3];
    for (int32_t i = 0; i < 3; i++) {
        prompt[i] = ids_from(150, i);
        want[i] = single(eng, prompt[i], 150, 0, NULL);
    }
    struct qwick_batch_options bo = qwick_batch_defaults();
    struct qwick_generate_options o = greedy();
    struct qwick_batch *b;
    struct qwick_err e;
    bo.done = keep_answer;
    bo.interrupt = &stop_flag;
    assert_int_equal(qwick_batch_create(&b, eng, &bo, NULL), 0);
    for (int32_t i = 0; i < 3; i++)
        assert_int_equal(qwick_batch_add(b, prompt[i], 150, &o, &got[i], NULL),
                         0);
    struct qwick_batch_stats stats;
    do {
        stop_layer = 2;
        eng->model.config.arch = &arch;
        assert_int_equal(qwick_batch_step(b, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
        stop_flag = 0;
        eng->model.config.arch = real_arch;
        assert_ok(qwick_batch_step(b, &e), &e);
        qwick_batch_stats_read(b, &stats, sizeof stats);
    } while (stats.n_live + stats.n_waiting);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(&got[i], &want[i], sizeof *got);
        free(prompt[i]);
    }
    qwick_batch_free(b);
    qwick_engine_close(eng);
}

/* As many guesses as lookup makes, some of them right, at every place of a
 * block. */
static void guesses_are_forgotten(void **state)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct truth t = truth_of(models[m], N, 3);
        struct qwick_engine *eng = open_with(models[m], 2, 512, NULL);
        struct qwick_session *s = open_session(eng);
        float *rows = malloc((1 + DELTA_BLOCK) * VOCAB * sizeof *rows);
        assert_non_null(rows);
        sync_to(s, t.ids, 60);
        for (size_t n = 60, step = 0; n < 400; step++) {
            int32_t ids[1 + DELTA_BLOCK];
            size_t n_ids = 2 + step * 7 % DELTA_BLOCK, n_right = step % n_ids;
            if (step % 3 == 0)
                n_ids = 1 + DELTA_BLOCK;
            memcpy(ids, t.ids + n, n_ids * sizeof *ids);
            for (size_t i = 1 + n_right; i < n_ids; i++)
                ids[i] = (ids[i] + 1) % VOCAB;
            assert_int_equal(
                session_decode_all(s, ids, n_ids, n_ids, rows, NULL), 0);
            for (size_t i = 0; i <= n_right && i < n_ids; i++)
                assert_memory_equal(rows + i * VOCAB, t.rows + (n + i) * VOCAB,
                                    VOCAB * sizeof *rows);
            n += n_right < n_ids ? 1 + n_right : n_ids;
            session_keep(s, n);
            check_is(s, &t, n);
        }
        free(rows);
        qwick_session_free(s);
        qwick_engine_close(eng);
        truth_free(&t);
    }
}

static void lookup_changes_no_answer(void **state)
{
    for (int m = 0; m < N_MODELS; m++) {
        struct qwick_engine *eng = open_with(models[m], 2, 512, NULL);
        size_t n_drafted = 0;
        /* as if weights were large: then guesses cost little */
        eng->model.weights.n_bytes <<= 30;
        for (size_t k = 0; k < 40; k++) {
            int32_t *ids = ids_from(400, 3);
            size_t n = 100 + k;
            /* repeated, so that there are guesses, most of them wrong */
            for (size_t i = 0; i < n; i++)
                ids[i] = ids[i % 23];
            struct qwick_lookup counts;
            struct answer want = single(eng, ids, n, 0, NULL),
                          got = single(eng, ids, n, QWICK_LOOKUP_MAX, &counts);
            assert_memory_equal(&got, &want, sizeof got);
            n_drafted += counts.n_drafted;
            free(ids);
        }
        assert_true(n_drafted > 0);
        qwick_engine_close(eng);
    }
}

static void choices_equal_single_evaluations(void **state)
{
    struct qwick_engine *eng = open_with(models[0], 2, 100, NULL);
    struct truth t = truth_of(models[0], 300, 3);
    int32_t answers[3][4] = {{1, 2, 3, 4}, {1, 2, 9, 7}, {5, 6, 7, 8}};
    struct qwick_answer a[3];
    struct qwick_choose_item items[4];
    double logprobs[4][3];
    for (size_t i = 0; i < 3; i++)
        a[i] = (struct qwick_answer){.tokens = answers[i], .n = 4};
    for (size_t i = 0; i < 4; i++)
        items[i] = (struct qwick_choose_item){
            .prompt = t.ids, .n = 270 + i, .logprobs = logprobs[i]};
    struct qwick_err e;
    assert_ok(qwick_choose(eng, items, 4, a, 3, NULL, &e), &e);
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++) {
            int32_t ids[300];
            double got[300];
            memcpy(ids, t.ids, sizeof ids);
            memcpy(ids + 270 + i, answers[k], sizeof answers[k]);
            struct qwick_score_item score = {.tokens = ids,
                                             .n = 274 + i,
                                             .n_given = 270 + i,
                                             .logprobs = got};
            assert_ok(qwick_score(eng, &score, 1, NULL, &e), &e);
            double sum = 0;
            for (size_t j = 0; j < 4; j++)
                sum += got[270 + i + j];
            assert_true(sum == logprobs[i][k]);
        }
    }
    truth_free(&t);
    qwick_engine_close(eng);
}

/* ---- a budget too small for a snapshot ------------------------------------
 */

static size_t n_notes;
static char note[256];

static void count_note(void *ctx, enum qwick_log_level level, const char *line)
{
    (void)ctx;
    if (level != QWICK_LOG_NOTE || strncmp(line, "prefix cache: ", 14) != 0)
        return;
    n_notes++;
    snprintf(note, sizeof note, "%s", line);
}

/* A note says so once, with the bytes that are enough. */
static void small_budgets_are_noted(void **state)
{
    size_t needed = 0;
    int32_t *ids = ids_from(400, 3);
    for (int enough = 0; enough < 2; enough++) {
        char want[96];
        n_notes = 0;
        struct qwick_engine *eng =
            engine_with(.model = models[0],
                        .prefix_cache_bytes = enough ? needed : 20000,
                        .log = count_note);
        struct qwick_session *s = open_session(eng);
        sync_to(s, ids, 300);
        sync_to(s, ids + 50, 300);
        assert_int_equal(n_notes, !enough);
        assert_int_equal(prefix_bytes(eng->prefix), enough ? needed : 0);
        /* four pages, the last one with a snapshot */
        needed = 4 * s->kv.page_bytes + state_snapshot_bytes(&s->kv.state);
        snprintf(want, sizeof want,
                 "takes %.3g MB of memory, the limit is 0.02",
                 (double)needed / 1e6);
        assert_true(enough || strstr(note, want));
        qwick_session_free(s);
        qwick_engine_close(eng);
    }
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_steps_and_threads_agree),
        cmocka_unit_test(a_session_goes_back_to_any_length),
        cmocka_unit_test(forks_go_on_by_themselves),
        cmocka_unit_test(joint_steps_equal_single_ones),
        cmocka_unit_test(prefixes_are_found_in_memory),
        cmocka_unit_test(prefixes_are_found_on_disk),
        cmocka_unit_test(saved_sessions_go_on),
        cmocka_unit_test(interrupted_passes_leave_a_usable_context),
        cmocka_unit_test(batches_equal_single_answers),
        cmocka_unit_test(runs_share_up_to_their_last_common_page),
        cmocka_unit_test(turns_go_on_where_they_part),
        cmocka_unit_test(conversations_outlive_the_engine),
        cmocka_unit_test(an_interrupted_batch_goes_on),
        cmocka_unit_test(guesses_are_forgotten),
        cmocka_unit_test(lookup_changes_no_answer),
        cmocka_unit_test(choices_equal_single_evaluations),
        cmocka_unit_test(small_budgets_are_noted),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
