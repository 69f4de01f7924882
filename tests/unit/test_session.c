/* Sessions: the contents of the cache after each call. Different ways to the
 * same tokens must give the same numbers, bit by bit with --exact. Saved and
 * loaded sessions are bit-equal in every mode. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "base/cpu.h"
#include "base/flag.h"
#include "base/hash.h"
#include "engine/cache/kv_file.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"
#include "tempdir.h"

#define YARN  "tests/golden/models/yarn"
#define WIDE  "tests/golden/models/head128-untied-bf16"
#define OTHER "tests/golden/models/tied-bf16"

static struct qwick_engine *open_engine(const char *model, bool exact,
                                        enum qwick_kv kv)
{
    return engine_with(.model = model, .exact = exact, .kv = kv, .threads = 2,
                       .prefill_chunk = 48);
}

static void assert_context(const struct qwick_session *s, const int32_t *ids,
                           size_t n)
{
    size_t have;
    const int32_t *tokens = qwick_session_tokens(s, &have);
    assert_int_equal(have, n);
    assert_int_equal(qwick_session_length(s), n);
    if (n)
        assert_memory_equal(tokens, ids, n * sizeof *ids);
}

static void assert_same_logits(const struct qwick_session *a,
                               const struct qwick_session *b)
{
    const float *x = qwick_session_logits(a), *y = qwick_session_logits(b);
    assert_non_null(x);
    assert_non_null(y);
    assert_memory_equal(x, y,
                        qwick_engine_info(a->eng)->vocab_size * sizeof *x);
}

/* Compare a session with the context ids[0..n) with a new session of the same
 * context: the logits, and the logits of later tokens. */
static void assert_as_fresh(struct qwick_session *s, const int32_t *ids,
                            size_t n)
{
    struct qwick_session *fresh = open_session(s->eng);
    assert_context(s, ids, n);
    assert_int_equal(qwick_session_sync(fresh, ids, n, NULL), 0);
    assert_same_logits(s, fresh);
    for (int32_t t = 3; t < 6; t++) {
        assert_int_equal(qwick_session_decode(s, t, NULL), 0);
        assert_int_equal(qwick_session_decode(fresh, t, NULL), 0);
        assert_same_logits(s, fresh);
    }
    qwick_session_free(fresh);
}

/* ---- invariants --------------------------------------------------------- */

static void the_cache_has_what_the_header_says(void **state)
{
    int32_t ids[140];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng);
    some_ids(ids, 140, 1);
    assert_context(s, ids, 0);
    assert_null(qwick_session_logits(s));
    assert_int_equal(qwick_session_sync(s, ids, 130, NULL), 0);
    assert_context(s, ids, 130);
    assert_int_equal(qwick_session_cached(s), 0);
    assert_int_equal(qwick_session_decode(s, ids[130], NULL), 0);
    assert_context(s, ids, 131);
    assert_non_null(qwick_session_logits(s));

    /* sync to the same tokens again: only the last token is evaluated */
    assert_int_equal(qwick_session_sync(s, ids, 131, NULL), 0);
    assert_int_equal(qwick_session_cached(s), 130);
    assert_int_equal(qwick_session_sync(s, ids, 128, NULL), 0);
    assert_context(s, ids, 128);
    assert_int_equal(qwick_session_cached(s), 127);

    assert_int_equal(qwick_session_rollback(s, 128, NULL), 0);
    assert_non_null(qwick_session_logits(s));
    assert_int_equal(qwick_session_rollback(s, 100, NULL), 0);
    assert_context(s, ids, 100);
    assert_null(qwick_session_logits(s));
    assert_int_equal(qwick_session_reuse(s, ids, 70, NULL), 0);
    assert_context(s, ids, 70);
    assert_int_equal(qwick_session_reuse(s, ids, 0, NULL), 0);
    assert_context(s, ids, 0);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

/* The cache has all tokens except the last drawn one. */
static void a_generation_leaves_the_newest_token_out(void **state)
{
    int32_t ids[140];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng);
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_result r;
    some_ids(ids, 100, 2);
    o.max_tokens = 30;
    o.ignore_eos = true;
    assert_int_equal(qwick_generate(s, ids, 100, &o, &r, NULL), 0);
    assert_int_equal(r.n_tokens, 30);
    memcpy(ids + 100, r.tokens, 30 * sizeof *ids);
    assert_context(s, ids, 129);
    qwick_result_free(&r);
    assert_int_equal(qwick_session_decode(s, ids[129], NULL), 0);
    assert_as_fresh(s, ids, 130);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void errors_change_nothing(void **state)
{
    int32_t ids[130], bad[2] = {1, 99999};
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s, *t;
    struct qwick_err e;
    some_ids(ids, 130, 3);
    assert_int_equal(qwick_session_create(&s, eng, 129, NULL), 0);
    assert_int_equal(qwick_session_sync(s, ids, 129, NULL), 0);
    t = open_session(eng);
    assert_int_equal(qwick_session_sync(t, ids, 129, NULL), 0);

    assert_int_equal(qwick_session_decode(s, 5, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_int_equal(qwick_session_sync(s, ids, 130, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_int_equal(qwick_session_reuse(s, ids, 130, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    const struct qwick_step step = {s, ids, 1, QWICK_ROWS_LAST};
    assert_int_equal(qwick_engine_step(eng, &step, 1, QWICK_LOGITS, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_int_equal(qwick_session_sync(s, bad, 2, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(qwick_session_sync(s, ids, 0, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(qwick_session_rollback(s, 130, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_context(s, ids, 129);
    assert_same_logits(s, t);

    assert_int_equal(qwick_session_rollback(s, 100, NULL), 0);
    assert_int_equal(qwick_session_decode(s, 99999, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_context(s, ids, 100);
    qwick_session_free(s);
    qwick_session_free(t);
    qwick_engine_close(eng);
}

struct stop {
    volatile int flag;
    size_t after;
};

static void stop_after(void *ctx, size_t done, size_t total)
{
    struct stop *stop = ctx;
    (void)total;
    if (done >= stop->after)
        stop->flag = 1;
}

static void an_interrupted_sync_leaves_a_prefix(void **state)
{
    int32_t ids[200];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    some_ids(ids, 200, 4);
    for (size_t after = 0; after < 200; after += 48) {
        struct qwick_session *s = open_session(eng);
        struct stop stop = {after == 0, after};
        struct qwick_err e;
        qwick_session_interrupt(s, &stop.flag);
        qwick_session_progress(s, stop_after, &stop);
        assert_int_equal(qwick_session_sync(s, ids, 200, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
        assert_context(s, ids, after);
        assert_null(qwick_session_logits(s));
        qwick_session_interrupt(s, NULL);
        assert_int_equal(qwick_session_sync(s, ids, 200, NULL), 0);
        assert_int_equal(qwick_session_cached(s), after);
        assert_as_fresh(s, ids, 200);
        qwick_session_free(s);
    }
    qwick_engine_close(eng);
}

struct reports {
    size_t calls, done, total;
};

static void count_report(void *ctx, size_t done, size_t total)
{
    struct reports *r = ctx;
    assert_true(done > r->done || (r->calls == 0 && done > 0));
    assert_true(done <= total);
    *r = (struct reports){r->calls + 1, done, total};
}

static void a_prefill_reports_each_layer(void **state)
{
    int32_t ids[200];
    struct qwick_engine *eng = open_engine(WIDE, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng);
    const size_t n_layers = qwick_engine_info(eng)->n_layers, n_passes = 5;
    struct reports r = {0};
    some_ids(ids, 200, 4);
    qwick_session_progress(s, count_report, &r);
    assert_int_equal(qwick_session_sync(s, ids, 200, NULL), 0);
    assert_int_equal(r.calls, n_passes * n_layers);
    assert_int_equal(r.done, 200);
    assert_int_equal(r.total, 200);
    /* only new tokens count */
    r = (struct reports){0};
    assert_int_equal(qwick_session_rollback(s, 150, NULL), 0);
    assert_int_equal(qwick_session_sync(s, ids, 200, NULL), 0);
    assert_int_equal(r.done, 50);
    assert_int_equal(r.total, 50);
    /* tokens that are generated are no prefill */
    r = (struct reports){0};
    assert_int_equal(qwick_session_decode(s, 1, NULL), 0);
    assert_int_equal(r.calls, 0);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void *set_flag(void *flag)
{
    flag_set(flag, 1);
    return NULL;
}

/* For the thread sanitizer: the flag is the only thing that threads share
 * here. */
static void interrupted_by_another_thread(void **state)
{
    int32_t ids[200];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    some_ids(ids, 200, 4);
    for (int i = 0; i < 20; i++) {
        struct qwick_session *s = open_session(eng);
        volatile int flag = 0;
        pthread_t thread;
        struct qwick_err e = {0};
        qwick_session_interrupt(s, &flag);
        assert_int_equal(pthread_create(&thread, NULL, set_flag, (void *)&flag),
                         0);
        int rc = qwick_session_sync(s, ids, 200, &e);
        assert_true(rc == 0 || e.code == QWICK_ERR_INTERRUPTED);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(qwick_session_sync(s, ids + 1, 199, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
        qwick_session_free(s);
    }
    qwick_engine_close(eng);
}

/* ---- equivalences ------------------------------------------------------- */

static void rollback_and_on_is_as_fresh(void **state)
{
    static const size_t to[] = {0, 1, 63, 64, 65, 127, 128, 150};
    int32_t ids[160], more[160];
    static const char *const models[] = {YARN, WIDE, "tests/golden/models/moe",
                                         "tests/golden/models/gemma3-gqa"};
    for (int m = 0; m < 4; m++) {
        struct qwick_engine *eng =
            open_engine(models[m], true, QWICK_KV_DEFAULT);
        some_ids(ids, 160, 5);
        for (size_t i = 0; i < sizeof to / sizeof *to; i++) {
            struct qwick_session *s = open_session(eng);
            assert_int_equal(qwick_session_sync(s, ids, 160, NULL), 0);
            assert_int_equal(qwick_session_rollback(s, to[i], NULL), 0);
            some_ids(more, 160, 6);
            memcpy(more, ids, to[i] * sizeof *ids);
            assert_int_equal(qwick_session_decode(s, more[to[i]], NULL), 0);
            assert_int_equal(qwick_session_sync(s, more, 155, NULL), 0);
            assert_int_equal(qwick_session_cached(s), to[i] + 1);
            assert_as_fresh(s, more, 155);
            qwick_session_free(s);
        }
        qwick_engine_close(eng);
    }
}

/* Either session may continue first, and the fork may be at any place in a
 * page. */
static void forked_is_as_fresh(void **state)
{
    static const size_t at[] = {1, 64, 100, 128};
    int32_t a[160], b[160];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct qwick_session *s = open_session(eng), *f;
        some_ids(a, 160, 7);
        some_ids(b, 160, 8);
        memcpy(b, a, at[i] * sizeof *a);
        assert_int_equal(qwick_session_sync(s, a, at[i], NULL), 0);
        assert_int_equal(qwick_session_fork(&f, s, NULL), 0);
        assert_same_logits(s, f);
        struct qwick_session *first = i % 2 ? s : f;
        int32_t *x = i % 2 ? a : b, *y = i % 2 ? b : a;
        assert_int_equal(qwick_session_sync(first, x, 150, NULL), 0);
        assert_int_equal(qwick_session_sync(i % 2 ? f : s, y, 140, NULL), 0);
        assert_as_fresh(first, x, 150);
        assert_as_fresh(i % 2 ? f : s, y, 140);
        qwick_session_free(s);
        qwick_session_free(f);
    }
    qwick_engine_close(eng);
}

/* ---- files -------------------------------------------------------------- */

static void loaded_is_as_live(void **state)
{
    static const size_t sizes[] = {0, 1, 64, 100, 192};
    static const struct {
        bool exact;
        enum qwick_kv kv;
    } modes[] = {{true, QWICK_KV_DEFAULT},
                 {false, QWICK_KV_DEFAULT},
                 {false, QWICK_KV_F32},
                 {false, QWICK_KV_Q8},
                 {false, QWICK_KV_Q4}};
    int32_t ids[200];
    some_ids(ids, 200, 9);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        /* a second engine stands for another process */
        struct qwick_engine *a = open_engine(WIDE, modes[m].exact, modes[m].kv);
        struct qwick_engine *b = open_engine(WIDE, modes[m].exact, modes[m].kv);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct qwick_session *live = open_session(a), *s;
            struct qwick_err e;
            size_t n = sizes[i];
            if (n)
                assert_int_equal(qwick_session_sync(live, ids, n, NULL), 0);
            /* its note, of n bytes */
            assert_int_equal(
                qwick_session_set_note(live, (const char *)ids, n, NULL), 0);
            assert_ok(qwick_session_save(live, temp_path("s"), &e), &e);
            assert_ok(qwick_session_load(&s, b, temp_path("s"), 0, &e), &e);
            assert_context(s, ids, n);
            size_t n_note = 1;
            const char *note = qwick_session_note(s, &n_note);
            assert_int_equal(n_note, n);
            if (n)
                assert_memory_equal(note, ids, n);
            else
                assert_null(note);
            if (n)
                assert_same_logits(live, s);
            else
                assert_null(qwick_session_logits(s));
            for (int32_t t = 10; t < 80; t++) {
                assert_int_equal(qwick_session_decode(live, t, NULL), 0);
                assert_int_equal(qwick_session_decode(s, t, NULL), 0);
                assert_same_logits(live, s);
            }
            qwick_session_free(s);
            qwick_session_free(live);
        }
        qwick_engine_close(a);
        qwick_engine_close(b);
    }
}

/* Data after the used positions is not written to the file. */
static void the_file_depends_on_the_context_alone(void **state)
{
    int32_t ids[150];
    size_t n[2];
    char *data[2];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng);
    some_ids(ids, 150, 10);
    assert_int_equal(qwick_session_sync(s, ids, 70, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(qwick_session_save(s, temp_path("s"), NULL), 0);
        assert_int_equal(
            map_read_all(temp_path("s"), 1 << 30, &data[i], &n[i], NULL), 0);
        assert_int_equal(qwick_session_sync(s, ids, 150, NULL), 0);
        assert_int_equal(qwick_session_sync(s, ids, 70, NULL), 0);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(data[0], data[1], n[0]);
    free(data[0]);
    free(data[1]);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void saving_fails_cleanly(void **state)
{
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng), *t;
    struct qwick_err e;
    int32_t ids[3] = {1, 2, 3};
    assert_int_equal(qwick_session_sync(s, ids, 3, NULL), 0);
    assert_int_equal(qwick_session_save(s, temp_path("no/s"), &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "no/s: cannot create: No such file"));
    assert_int_equal(qwick_session_save(s, "/dev/null", &e), -1);
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_int_equal(qwick_session_save(s, temp_dir, &e), -1);
    /* a link may belong to another user: neither it nor its target changes */
    const char *const targets[] = {"real", "nowhere"};
    temp_write("real", "old", 3);
    for (size_t i = 0; i < 2; i++) {
        char to[8], data[4];
        assert_int_equal(symlink(targets[i], temp_path("link")), 0);
        assert_int_equal(qwick_session_save(s, temp_path("link"), &e), -1);
        assert_non_null(
            strstr(e.msg, "link: cannot write: is a symbolic link"));
        assert_int_equal(readlink(temp_path("link"), to, sizeof to),
                         strlen(targets[i]));
        assert_int_equal(access(temp_path("nowhere"), F_OK), -1);
        FILE *f = fopen(temp_path("real"), "rb");
        assert_non_null(f);
        assert_int_equal(fread(data, 1, 4, f), 3);
        fclose(f);
        temp_remove("link");
    }
    /* a file of another kind is not replaced */
    assert_int_equal(qwick_session_check_file(temp_path("real"), &e), -1);
    assert_int_equal(qwick_session_save(s, temp_path("real"), &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, "neither a session nor empty"));
    temp_write("real", "", 0);
    assert_int_equal(qwick_session_check_file(temp_path("real"), &e), 0);
    assert_int_equal(qwick_session_save(s, temp_path("real"), &e), 0);
    assert_int_equal(qwick_session_save(s, temp_path("real"), &e), 0);
    /* but reading through the user's own link is allowed */
    assert_int_equal(qwick_session_save(s, temp_path("s"), NULL), 0);
    assert_int_equal(symlink("s", temp_path("link")), 0);
    assert_int_equal(qwick_session_load(&t, eng, temp_path("link"), 0, NULL),
                     0);
    assert_context(t, ids, 3);
    qwick_session_free(t);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void refuse(struct qwick_engine *eng, const char *path, size_t n_ctx,
                   enum qwick_err_code code, const char *why)
{
    struct qwick_session *s;
    struct qwick_err e;
    assert_int_equal(qwick_session_load(&s, eng, path, n_ctx, &e), -1);
    assert_null(s);
    if (e.code != code || !strstr(e.msg, why) || strchr(e.msg, '\n'))
        fail_msg("code %d, %s; expected %d, %s", e.code, e.msg, code, why);
}

static void other_engines_are_refused(void **state)
{
    int32_t ids[100];
    struct qwick_engine *exact = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_engine *f32 = open_engine(YARN, false, QWICK_KV_F32);
    struct qwick_engine *f16 = open_engine(YARN, false, QWICK_KV_F16);
    struct qwick_engine *other = open_engine(OTHER, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(exact);
    const char *path = temp_path("s");
    some_ids(ids, 100, 11);
    assert_int_equal(qwick_session_sync(s, ids, 100, NULL), 0);
    assert_int_equal(qwick_session_save(s, path, NULL), 0);
    refuse(other, path, 0, QWICK_ERR_USAGE, "was saved with another model");
    refuse(f16, path, 0, QWICK_ERR_USAGE,
           "was saved with a KV cache in f32, this one is in f16");
    refuse(exact, path, 99, QWICK_ERR_CONTEXT,
           "its 100 tokens do not fit the context of 99");
    refuse(exact, temp_path("none"), 0, QWICK_ERR_RUNTIME, "No such file");
    refuse(exact, temp_dir, 0, QWICK_ERR_RUNTIME, "not a regular file");
    refuse(exact, "/dev/null", 0, QWICK_ERR_RUNTIME, "not a regular file");
    refuse(exact, "tests/golden/README.md", 0, QWICK_ERR_RUNTIME,
           "is not a saved session");
    qwick_session_free(s);
    /* an exact session can be continued without --exact, but not the reverse */
    assert_int_equal(qwick_session_load(&s, f32, path, 0, NULL), 0);
    assert_context(s, ids, 100);
    assert_int_equal(qwick_session_save(s, path, NULL), 0);
    refuse(exact, path, 0, QWICK_ERR_USAGE, "was saved in default mode");
    qwick_session_free(s);
    qwick_engine_close(f32);
    qwick_engine_close(f16);
    qwick_engine_close(other);
    if (cpu_best() != ISA_REF) {
        struct qwick_engine *ref =
            engine_with(.model = YARN, .exact = true, .isa = "ref");
        s = open_session(ref);
        assert_int_equal(qwick_session_sync(s, ids, 5, NULL), 0);
        assert_int_equal(qwick_session_save(s, path, NULL), 0);
        refuse(exact, path, 0, QWICK_ERR_USAGE,
               "was saved in exact mode on ref kernels, this is exact on ");
        qwick_session_free(s);
        qwick_engine_close(ref);
    }
    qwick_engine_close(exact);
}

/* Files that another user could have written are refused. */
static void files_of_others_are_refused(void **state)
{
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng);
    const char *path = temp_path("s");
    assert_int_equal(qwick_session_save(s, path, NULL), 0);
    qwick_session_free(s);
    static const mode_t fine[] = {0400, 0600, 0644, 0444};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(chmod(path, fine[i]), 0);
        assert_int_equal(qwick_session_load(&s, eng, path, 0, NULL), 0);
        qwick_session_free(s);
    }
    assert_int_equal(chmod(path, 0620), 0);
    refuse(eng, path, 0, QWICK_ERR_RUNTIME,
           "s: its group may write to it (mode 620)");
    assert_int_equal(chmod(path, 0606), 0);
    refuse(eng, path, 0, QWICK_ERR_RUNTIME,
           "s: everybody may write to it (mode 606)");
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0) { /* only root can change the owner of a file */
        assert_int_equal(chown(path, 12345, (gid_t)-1), 0);
        refuse(eng, path, 0, QWICK_ERR_RUNTIME,
               "s: belongs to user 12345, this is user 0");
    }
    qwick_engine_close(eng);
}

/* Save a session, and read the file into memory. */
static struct qwick_engine *saved(char **data, size_t *n)
{
    int32_t ids[70];
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng);
    some_ids(ids, 70, 12);
    assert_int_equal(qwick_session_sync(s, ids, 70, NULL), 0);
    assert_int_equal(qwick_session_set_note(s, "a note", 6, NULL), 0);
    assert_int_equal(qwick_session_save(s, temp_path("s"), NULL), 0);
    assert_int_equal(map_read_all(temp_path("s"), 1 << 30, data, n, NULL), 0);
    qwick_session_free(s);
    return eng;
}

static void damage_is_found(void **state)
{
    char *data;
    size_t n;
    struct qwick_engine *eng = saved(&data, &n);
    struct kv_file_head h;
    struct qwick_session *s;
    struct qwick_err e;
    memcpy(&h, data, sizeof h);
    size_t tables =
        sizeof h + 70 * 4 + h.n_pages * 8 + h.n_logits * 4 + h.n_note;
    size_t pages = n - h.n_pages * h.page_bytes;
    /* flip a bit: at every byte of head and tables, at some bytes of pages */
    for (size_t i = 0; i < n; i += i < tables ? 1 : 997) {
        if (i >= tables && i < pages)
            continue;
        data[i] ^= (char)(1 << i % 8);
        temp_write("d", data, n);
        data[i] ^= (char)(1 << i % 8);
        assert_int_equal(qwick_session_load(&s, eng, temp_path("d"), 0, &e),
                         -1);
        assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    }
    for (size_t i = 0; i < n; i += i < tables ? 13 : 1009) {
        temp_write("d", data, i);
        assert_int_equal(qwick_session_load(&s, eng, temp_path("d"), 0, &e),
                         -1);
        assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    }
    temp_write("d", data, n);
    assert_int_equal(qwick_session_load(&s, eng, temp_path("d"), 0, NULL), 0);
    qwick_session_free(s);
    /* one byte too many */
    char *longer = realloc(data, n + 1);
    longer[n] = 0;
    temp_write("d", longer, n + 1);
    refuse(eng, temp_path("d"), 0, QWICK_ERR_RUNTIME, "bytes, should have");
    free(longer);
    qwick_engine_close(eng);
}

/* Heads with false fields and correct checksums. */
static void lies_are_found(void **state)
{
    static const uint64_t values[] = {
        0,
        1,
        2,
        63,
        64,
        65,
        71,
        127,
        4096,
        INT32_MAX,
        UINT32_MAX,
        1ull << 32,
        1ull << 33,
        1ull << 61,
        1ull << 62,
        INT64_MAX,
        1ull << 63,
        UINT64_MAX,
        UINT64_MAX - 63,
    };
    static const struct {
        size_t at, width;
    } fields[] = {
#define FIELD(f) \
    {offsetof(struct kv_file_head, f), sizeof(((struct kv_file_head *)0)->f)}
        FIELD(version),    FIELD(kind),     FIELD(block),       FIELD(n_layers),
        FIELD(n_kv_heads), FIELD(head_dim), FIELD(page_bytes),  FIELD(n_tokens),
        FIELD(first_page), FIELD(n_pages),  FIELD(n_logits),    FIELD(n_bytes),
        FIELD(model[0]),   FIELD(model[1]), FIELD(state_bytes), FIELD(n_states),
        FIELD(live_bytes), FIELD(n_note),
    };
    char *data;
    size_t n;
    struct qwick_engine *eng = saved(&data, &n);
    struct kv_file_head h, good;
    memcpy(&good, data, sizeof good);
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            struct qwick_session *s;
            struct qwick_err e;
            h = good;
            memcpy((char *)&h + fields[f].at, &values[i], fields[f].width);
            if (!memcmp(&h, &good, sizeof h))
                continue;
            h.head_hash =
                hash_bytes(1, &h, offsetof(struct kv_file_head, head_hash));
            memcpy(data, &h, sizeof h);
            temp_write("d", data, n);
            assert_int_equal(qwick_session_load(&s, eng, temp_path("d"), 0, &e),
                             -1);
        }
    }
    /* text without NUL, and ids outside of every vocabulary */
    h = good;
    memset(h.model_name, 'x', sizeof h.model_name);
    h.head_hash = hash_bytes(1, &h, offsetof(struct kv_file_head, head_hash));
    memcpy(data, &h, sizeof h);
    temp_write("d", data, n);
    refuse(eng, temp_path("d"), 0, QWICK_ERR_RUNTIME, "makes no sense");
    static const int32_t ids[] = {-1, 320, INT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        const char *tables = data + sizeof h;
        h = good;
        memcpy(data + sizeof h + 4 * 69, &ids[i], 4);
        uint64_t x = hash_bytes(2, tables, 70 * 4);
        x = hash_bytes(x, tables + 70 * 4, h.n_pages * 8);
        x = hash_bytes(x, tables + 70 * 4 + h.n_pages * 8, h.n_logits * 4);
        h.table_hash = hash_bytes(
            x, tables + 70 * 4 + h.n_pages * 8 + h.n_logits * 4, h.n_note);
        h.head_hash =
            hash_bytes(1, &h, offsetof(struct kv_file_head, head_hash));
        memcpy(data, &h, sizeof h);
        temp_write("d", data, n);
        refuse(eng, temp_path("d"), 0, QWICK_ERR_RUNTIME, "is out of range");
    }
    free(data);
    qwick_engine_close(eng);
}

/* ---- fingerprints ------------------------------------------------------- */

static void copy_file(const char *dir, const char *name, size_t flip)
{
    char from[256], *data;
    size_t n;
    snprintf(from, sizeof from, "%s/%s", dir, name);
    assert_int_equal(map_read_all(from, 1 << 30, &data, &n, NULL), 0);
    if (flip)
        data[n - flip] ^= 1;
    temp_write(name, data, n);
    free(data);
}

static struct fingerprint print_of(const char *model)
{
    struct qwick_engine *eng = open_engine(model, true, QWICK_KV_DEFAULT);
    struct fingerprint p;
    assert_int_equal(engine_fingerprint(eng, 0, &p, NULL), 0);
    qwick_engine_close(eng);
    return p;
}

static void fingerprints_tell_models_apart(void **state)
{
    struct fingerprint a = print_of(YARN), b;
    copy_file(YARN, "config.json", 0);
    copy_file(YARN, "model.safetensors", 0);
    b = print_of(temp_dir);
    assert_memory_equal(a.model, b.model, sizeof a.model);
    assert_true(a.files != b.files);
    /* the last byte of the last tensor */
    copy_file(YARN, "model.safetensors", 1);
    b = print_of(temp_dir);
    assert_true(a.model[0] != b.model[0] && a.model[1] != b.model[1]);
    /* another number in the configuration */
    copy_file(YARN, "model.safetensors", 0);
    char *data, *at;
    size_t n;
    assert_int_equal(
        map_read_all(YARN "/config.json", 1 << 20, &data, &n, NULL), 0);
    at = strstr(data, "\"rms_norm_eps\": 1e-0");
    assert_non_null(at);
    at[strlen("\"rms_norm_eps\": 1e-0")]--;
    temp_write("config.json", data, n);
    free(data);
    b = print_of(temp_dir);
    assert_true(a.model[0] != b.model[0] && a.model[1] != b.model[1]);
    /* other models have other hashes */
    b = print_of(OTHER);
    assert_true(a.model[0] != b.model[0]);
}

/* Set a field, and check whether the fingerprint is another one. */
#define CHANGED(FIELD, VALUE)                                   \
    do {                                                        \
        __typeof__(FIELD) old = FIELD;                          \
        struct fingerprint b;                                   \
        FIELD = VALUE;                                          \
        eng->fingerprint = (struct fingerprint){0};             \
        assert_int_equal(engine_fingerprint(eng, 0, &b, NULL), 0); \
        assert_true(a.model[0] != b.model[0]);                  \
        assert_true(a.model[1] != b.model[1]);                  \
        FIELD = old;                                            \
    } while (0)

/* Numbers that keys or logits depend on, and that no tensor shows. */
static void fingerprints_have_all_of_the_config(void **state)
{
    struct fingerprint a = print_of(YARN), same;
    struct qwick_engine *eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    struct config *c = &eng->model.config;
    CHANGED(c->embed_scale, 12);
    CHANGED(c->residual_scale, 0.5f);
    CHANGED(c->logit_scale, 0.5f);
    CHANGED(c->logit_cap, 30);
    CHANGED(c->ropes[0].n_rot, c->ropes[0].n_rot / 2);
    CHANGED(c->ropes[0].interleaved, true);
    CHANGED(c->ropes[0].low_freq, 1);
    CHANGED(c->ropes[0].high_freq, 4);
    CHANGED(c->ropes[0].q_beta, 0.1);
    for (size_t i = 0; i < c->n_layers; i++) {
        struct layer_config *l = &c->layers[i];
        CHANGED(l->n_kv_heads, 2 * l->n_kv_heads);
        CHANGED(l->head_dim, 2 * l->head_dim);
        CHANGED(l->score_scale, 1);
        CHANGED(l->rope, NO_ROPE);
        CHANGED(l->window, 7);
    }
    eng->fingerprint = (struct fingerprint){0};
    assert_int_equal(engine_fingerprint(eng, 0, &same, NULL), 0);
    assert_memory_equal(&a, &same, sizeof a);
    qwick_engine_close(eng);
}

/* ---- small stacks ------------------------------------------------------- */

/* Run fn on a thread with a stack of 128 KiB, as a host program may have. An
 * overflow ends the program. */
static void on_a_small_stack(void *(*fn)(void *), void *ctx)
{
    pthread_attr_t attr;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstacksize(&attr, 128 << 10), 0);
    assert_int_equal(pthread_attr_setguardsize(&attr, 1 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attr, fn, ctx), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

/* Passes of all lengths for which kernels differ. *session becomes NULL if one
 * fails. */
static void *sync_lengths(void *session)
{
    static const size_t lengths[] = {1, 2, 5, 20, 48};
    struct qwick_session **s = session;
    int32_t ids[48];
    some_ids(ids, 48, 4);
    for (size_t i = 0; *s && i < sizeof lengths / sizeof *lengths; i++)
        if (qwick_session_rollback(*s, 0, NULL) ||
            qwick_session_sync(*s, ids, lengths[i], NULL) ||
            qwick_session_decode(*s, 1, NULL))
            *s = NULL;
    return NULL;
}

static void small_stacks_suffice(void **state)
{
    static const char *const models[] = {OTHER, "tests/golden/models/f16",
                                         "tests/golden/models/mlx4",
                                         "tests/golden/models/mlx8"};
#ifdef __SANITIZE_ADDRESS__
    printf("SKIP: the address sanitizer adds to frames\n");
    skip();
#endif
    for (int l = 0; l < ISA_COUNT; l++)
        for (size_t i = 0; i < 8 && cpu_has((enum isa)l); i++) {
            struct qwick_engine *eng =
                engine_with(.model = models[i / 2],
                            .isa = isa_name((enum isa)l), .exact = i % 2,
                            .threads = 1);
            struct qwick_session *s = open_session(eng), *done = s;
            on_a_small_stack(sync_lengths, &done);
            assert_ptr_equal(done, s);
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
}

/* Write the n bytes of the weights, with this modification time. in_place: into
 * the existing file. */
static void put_weights(const char *data, size_t n, time_t mtime, bool in_place)
{
    const char *path = temp_path("model.safetensors");
    usleep(20000); /* ticks of the file system's clock are up to 10 ms */
    if (!in_place)
        unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, n, 0), n);
    const struct timespec times[2] = {{mtime, 0}, {mtime, 0}};
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
}

/* A session belongs to the contents of the weights. It accepts the same
 * files, and other files with the same bytes at any path. One
 * changed bit between the pieces of the fingerprint is found with any file
 * times. */
static void sessions_know_their_weights(void **state)
{
    int32_t ids[70];
    char *data, *session = strdup(temp_path("s"));
    size_t n;
    struct qwick_session *s;
    struct fingerprint a, b;
    some_ids(ids, 70, 13);
    copy_file(YARN, "config.json", 0);
    assert_int_equal(
        map_read_all(YARN "/model.safetensors", 1 << 30, &data, &n, NULL), 0);
    put_weights(data, n, 1000, false);
    struct qwick_engine *eng = open_engine(temp_dir, true, QWICK_KV_DEFAULT);
    s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, 70, NULL), 0);
    assert_int_equal(qwick_session_save(s, session, NULL), 0);
    qwick_session_free(s);
    qwick_engine_close(eng);
    a = print_of(temp_dir);
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int old_time = 0; old_time < 2; old_time++) {
            data[n / 2] ^= 1;
            put_weights(data, n, old_time ? 1000 : 2000, in_place);
            b = print_of(temp_dir);
            assert_memory_equal(a.model, b.model, sizeof a.model);
            assert_true(a.files != b.files);
            eng = open_engine(temp_dir, true, QWICK_KV_DEFAULT);
            refuse(eng, session, 0, QWICK_ERR_USAGE,
                   "s: was saved with other weights of ");
            qwick_engine_close(eng);
            /* the old bytes, in a file with other times, or in another file */
            data[n / 2] ^= 1;
            put_weights(data, n, old_time ? 1000 : 2000, in_place);
            eng = open_engine(temp_dir, true, QWICK_KV_DEFAULT);
            assert_int_equal(qwick_session_load(&s, eng, session, 0, NULL), 0);
            assert_context(s, ids, 70);
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
    }
    /* a copy of the checkpoint elsewhere */
    eng = open_engine(YARN, true, QWICK_KV_DEFAULT);
    assert_int_equal(qwick_session_load(&s, eng, session, 0, NULL), 0);
    /* a session saved from there can be loaded at both places */
    assert_int_equal(qwick_session_save(s, session, NULL), 0);
    qwick_session_free(s);
    qwick_engine_close(eng);
    eng = open_engine(temp_dir, true, QWICK_KV_DEFAULT);
    assert_int_equal(qwick_session_load(&s, eng, session, 0, NULL), 0);
    qwick_session_free(s);
    qwick_engine_close(eng);
    free(data);
    free(session);
}

static int clear(void **state)
{
    temp_clear();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cache_has_what_the_header_says),
        cmocka_unit_test(a_generation_leaves_the_newest_token_out),
        cmocka_unit_test(errors_change_nothing),
        cmocka_unit_test(an_interrupted_sync_leaves_a_prefix),
        cmocka_unit_test(a_prefill_reports_each_layer),
        cmocka_unit_test(interrupted_by_another_thread),
        cmocka_unit_test(rollback_and_on_is_as_fresh),
        cmocka_unit_test(forked_is_as_fresh),
        cmocka_unit_test_teardown(loaded_is_as_live, clear),
        cmocka_unit_test_teardown(the_file_depends_on_the_context_alone, clear),
        cmocka_unit_test_teardown(saving_fails_cleanly, clear),
        cmocka_unit_test_teardown(other_engines_are_refused, clear),
        cmocka_unit_test_teardown(files_of_others_are_refused, clear),
        cmocka_unit_test_teardown(damage_is_found, clear),
        cmocka_unit_test_teardown(lies_are_found, clear),
        cmocka_unit_test_teardown(fingerprints_tell_models_apart, clear),
        cmocka_unit_test(fingerprints_have_all_of_the_config),
        cmocka_unit_test(small_stacks_suffice),
        cmocka_unit_test_teardown(sessions_know_their_weights, clear),
    };
    cmocka_set_test_filter(getenv("TEST_FILTER"));
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
