/* The predicted memory of KV caches, on a simulated machine with little memory;
 * and how often the available memory is read. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/os.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "fake_memory.h"
#include "own_sampling.h"

#define MODEL "tests/golden/models/tied-bf16"

static struct qwick_engine *open_engine(void)
{
    return engine_with(.model = MODEL, .threads = 2);
}

enum { N = 16, PROMPT = 5 };

struct sessions {
    struct qwick_engine *eng;
    struct qwick_session *s[N];
    int32_t ids[PROMPT];
    struct qwick_step steps[N];
};

/* Open N sessions with a step of n tokens each. */
static struct sessions open_sessions(size_t n)
{
    struct sessions all = {.eng = open_engine(), .ids = {1, 2, 3, 4, 5}};
    for (size_t i = 0; i < N; i++) {
        all.s[i] = open_session(all.eng);
        all.steps[i] = (struct qwick_step){all.s[i], NULL, n, QWICK_ROWS_LAST};
    }
    return all;
}

static int step(struct sessions *all, size_t n, struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        all->steps[i].tokens = all->ids;
    return qwick_engine_step(all->eng, all->steps, n, QWICK_LOGITS, e);
}

static void close_sessions(struct sessions *all)
{
    for (size_t i = 0; i < N; i++)
        qwick_session_free(all->s[i]);
    qwick_engine_close(all->eng);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    while ((text = strstr(text, word))) {
        n++;
        text++;
    }
    return n;
}

/* With memory for three and a half pages, each of four sequences fits alone,
 * but not together. */
static void joint_steps_add_up(void **state)
{
    struct sessions all = open_sessions(PROMPT);
    size_t page = all.s[0]->kv.page_bytes;
    struct qwick_err e;
    char want[64];
    fake_kb = (3 * page + page / 2) / 1024;
    assert_int_equal(step(&all, 4, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    snprintf(want, sizeof want, "out of memory: %zu bytes", 4 * page);
    assert_memory_equal(e.msg, want, strlen(want));
    assert_int_equal(count(e.msg, "out of memory"), 1);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(qwick_session_length(all.s[i]), 0);
        assert_int_equal(qwick_session_kv_bytes(all.s[i]), 0);
    }
    assert_int_equal(step(&all, 3, &e), 0);
    /* pages that they already have need no new memory */
    fake_kb = 1;
    assert_int_equal(step(&all, 3, &e), 0);
    fake_kb = 0;
    close_sessions(&all);
}

static void one_sequence_names_its_bytes(void **state)
{
    struct sessions all = open_sessions(PROMPT);
    struct qwick_err e;
    char want[64];
    fake_kb = all.s[0]->kv.page_bytes / 1024 - 1;
    assert_int_equal(qwick_session_sync(all.s[0], all.ids, PROMPT, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    snprintf(want, sizeof want, "out of memory: %zu bytes",
             all.s[0]->kv.page_bytes);
    assert_memory_equal(e.msg, want, strlen(want));
    assert_int_equal(count(e.msg, "out of memory"), 1);
    fake_kb = 0;
    close_sessions(&all);
}

/* A shared page is copied before it is written, which needs memory. */
static void shared_pages_count(void **state)
{
    struct qwick_engine *eng = open_engine();
    struct qwick_session *s, *f;
    int32_t ids[3 * KV_BLOCK];
    for (size_t i = 0; i < 3 * KV_BLOCK; i++)
        ids[i] = (int32_t)(i % 300);
    assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
    assert_int_equal(kv_missing_pages(&s->kv, 0), 0);
    assert_int_equal(kv_missing_pages(&s->kv, 1), 1);
    assert_int_equal(kv_missing_pages(&s->kv, KV_BLOCK), 1);
    assert_int_equal(kv_missing_pages(&s->kv, KV_BLOCK + 1), 2);
    assert_int_equal(qwick_session_sync(s, ids, 2 * KV_BLOCK, NULL), 0);
    assert_int_equal(qwick_session_fork(&f, s, NULL), 0);
    assert_int_equal(kv_missing_pages(&f->kv, 2 * KV_BLOCK), 0);
    assert_int_equal(kv_missing_pages(&f->kv, 3 * KV_BLOCK), 1);
    assert_int_equal(qwick_session_rollback(f, 10, NULL), 0);
    assert_int_equal(kv_missing_pages(&f->kv, 11), 1);
    assert_int_equal(kv_missing_pages(&f->kv, 3 * KV_BLOCK), 3);
    assert_int_equal(qwick_session_sync(f, ids + 1, 3 * KV_BLOCK - 1, NULL), 0);
    assert_int_equal(kv_missing_pages(&f->kv, 3 * KV_BLOCK), 0);
    qwick_session_free(s);
    qwick_session_free(f);
    qwick_engine_close(eng);
}

/* 16 sequences that fill a page each read the memory once, not once per
 * sequence and step. */
static void steps_seldom_ask(void **state)
{
    struct sessions all = open_sessions(1);
    readings = 0;
    for (size_t i = 0; i < KV_BLOCK; i++)
        assert_int_equal(step(&all, N, NULL), 0);
    assert_true(readings <= 1);
    close_sessions(&all);
}

static int note_end(void *ctx, void *tag, struct qwick_result *r,
                    const struct qwick_err *e)
{
    (void)tag;
    (void)r;
    *(size_t *)ctx += !e;
    return 0;
}

/* One reading is used for all admissions of some time. */
static void admissions_seldom_ask(void **state)
{
    enum { SEQUENCES = 64 };
    struct qwick_engine *eng = open_engine();
    size_t done = 0;
    struct qwick_batch_options o = {
        .size = sizeof(o), .max_batch = 8, .done = note_end, .done_ctx = &done};
    struct qwick_generate_options g = qwick_generate_defaults();
    struct qwick_batch *b;
    int32_t ids[] = {1, 2, 3};
    own_sampling(&g)->temperature = 0;
    g.max_tokens = 2;
    g.ignore_eos = true;
    assert_int_equal(qwick_batch_create(&b, eng, &o, NULL), 0);
    for (size_t i = 0; i < SEQUENCES; i++)
        assert_int_equal(qwick_batch_add(b, ids, 3, &g, NULL, NULL), 0);
    readings = 0;
    double start = clock_ms();
    assert_int_equal(qwick_batch_run(b, NULL), 0);
    double most = 2 + (clock_ms() - start) / MEMORY_AGE_MS;
    assert_int_equal(done, SEQUENCES);
    if (most < SEQUENCES / 2)
        assert_true((double)readings <= most);
    else
        printf("    SKIP: too slow here to tell\n");
    qwick_batch_free(b);
    qwick_engine_close(eng);
}

/* Each group on the way to the root may limit the memory. Cached files of a group
 * count as available. */
static void groups_limit_memory(void **state)
{
#define MEMINFO {"/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:  1000 kB\n"}
#define ROOT    "/sys/fs/cgroup"
    const struct {
        size_t bytes;
        struct fake_file files[10];
    } cases[] = {
        {1000 << 10, {MEMINFO}},
        {0, {{"/proc/meminfo", "MemTotal: 9 kB\n"}}},
        /* version 2: the parent's limit, and the root has none */
        {100000 + 1000 + 2000,
         {MEMINFO,
          {"/proc/self/cgroup", "0::/a/b\n"},
          {ROOT "/a/b/memory.max", "max\n"},
          {ROOT "/a/b/memory.current", "400000\n"},
          {ROOT "/a/memory.max", "600000\n"},
          {ROOT "/a/memory.current", "500000\n"},
          {ROOT "/a/memory.stat", "file 7\ninactive_file 1000\n"
                                  "active_file 2000\nanon 1\n"}}},
        /* no more than the limit, and no memory.stat */
        {500,
         {MEMINFO,
          {"/proc/self/cgroup", "0::/a\n"},
          {ROOT "/a/memory.max", "500\n"},
          {ROOT "/a/memory.current", "400\n"},
          {ROOT "/a/memory.stat", "active_file 2000\n"}}},
        {100,
         {MEMINFO,
          {"/proc/self/cgroup", "0::/a\n"},
          {ROOT "/a/memory.max", "500\n"},
          {ROOT "/a/memory.current", "400\n"}}},
        /* a limit above the machine's memory */
        {1000 << 10,
         {MEMINFO,
          {"/proc/self/cgroup", "0::/a\n"},
          {ROOT "/a/memory.max", "2000000\n"},
          {ROOT "/a/memory.current", "100\n"}}},
        /* version 1 names its hierarchy */
        {300 + 5 + 6,
         {MEMINFO,
          {"/proc/self/cgroup", "5:cpuset,cpu:/c\n4:memory:/m\n0::/\n"},
          {ROOT "/memory/m/memory.limit_in_bytes", "800\n"},
          {ROOT "/memory/m/memory.usage_in_bytes", "500\n"},
          {ROOT "/memory/m/memory.stat",
           "active_file 1\ntotal_active_file 5\ntotal_inactive_file 6\n"}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_files = cases[i].files;
        assert_int_equal(os_available_memory(), cases[i].bytes);
    }
    fake_files = NULL;
}

/* In a process that may open no files, the available memory is still known, and
 * it is not the one of the start. Later tests would not see fake_kb. */
static void held_files_need_no_open(void **state)
{
    /* a CPU keeps pages at hand that do not count as available, and whose use
       changes nothing: up to an eighth of the memory */
    enum { TAKEN = 128 << 20, MOST = 32 };
    char *p[MOST];
    size_t n = 0, after;
    fake_kb = 0;
    os_hold_memory_files();
    readings = 0;
    size_t before = os_available_memory();
    do {
        p[n] = malloc(TAKEN);
        assert_non_null(p[n]);
        memset(p[n++], 1, TAKEN);
        after = os_available_memory();
    } while (after == before && n < MOST);
    while (n > 0)
        free(p[--n]);
    assert_int_equal(readings, 0);
    assert_true(before > 0);
    assert_true(after > 0);
    assert_int_not_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_steps_add_up),
        cmocka_unit_test(one_sequence_names_its_bytes),
        cmocka_unit_test(shared_pages_count),
        cmocka_unit_test(steps_seldom_ask),
        cmocka_unit_test(admissions_seldom_ask),
        cmocka_unit_test(groups_limit_memory),
        cmocka_unit_test(held_files_need_no_open), /* the last one */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
