/* Plans: memory against what sessions really take, and the system's facts. */
#include "test.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "fake_memory.h"
#include "qwick_tools.h"

#define GOLDEN "tests/golden/models/"

static struct qwick_engine *open_engine(const char *model, bool exact)
{
    return engine_with(.model = model, .exact = exact, .threads = 2,
                       .prefill_chunk = 32);
}

/* Read a model's weights, so that they are in memory. */
static void read_weights(const char *model)
{
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char piece[4096];
    while (fread(piece, 1, sizeof piece, f) > 0)
        ;
    fclose(f);
}

static struct qwick_plan plan_of(struct qwick_engine *eng, size_t n_prompt,
                                 size_t n_answer)
{
    struct qwick_plan_options o = qwick_plan_defaults();
    struct qwick_plan p;
    struct qwick_err e;
    o.n_prompt = n_prompt;
    o.n_answer = n_answer;
    o.no_speed = true;
    assert_ok(qwick_plan_make(eng, &o, &p, &e), &e);
    return p;
}

/* Evaluate a prompt and an answer of any tokens. */
static struct qwick_session *run(struct qwick_engine *eng, size_t n_prompt,
                                 size_t n_answer)
{
    struct qwick_err e;
    int32_t ids[1000];
    assert_true(n_prompt <= 1000);
    for (size_t i = 0; i < n_prompt; i++)
        ids[i] = (int32_t)(i * 31 % eng->info.vocab_size);
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, n_prompt, &e), 0);
    for (size_t i = 0; i < n_answer; i++)
        assert_int_equal(qwick_session_decode(s, (int32_t)(i % 5), &e), 0);
    return s;
}

/* Return the size of an allocation, and add to *rounding the bytes by which it
 * may have been rounded up: to a page, a large one to 2 MiB. */
static size_t allocated(void *p, size_t *rounding)
{
    size_t n = malloc_usable_size(p), huge = (size_t)2 << 20;
    *rounding += n < 2 * huge ? 4096 + 64 : huge;
    return n;
}

static void plans_are_what_sessions_take(void **state)
{
    static const struct {
        const char *model;
        bool grows; /* its memory grows with each token */
    } models[] = {
        {GOLDEN "tied-bf16", true},   {GOLDEN "mlx4", true},
        {GOLDEN "moe", true},         {GOLDEN "gemma3-gqa", false},
        {GOLDEN "qwen35-moe", false}, {GOLDEN "../families/qwen3next-odd", false},
    };
    static const size_t lengths[][2] = {{1, 1}, {20, 5}, {33, 40}, {120, 8}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        read_weights(models[i].model);
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            size_t n = lengths[j][0], m = lengths[j][1];
            struct qwick_engine *eng = open_engine(models[i].model, j & 1);
            struct qwick_plan p = plan_of(eng, n, m);
            struct qwick_session *s = run(eng, n, m);
            size_t kv = qwick_session_kv_bytes(s), rounding = 0;
            size_t scratch = allocated(eng->scratch->shared, &rounding) +
                             allocated(eng->scratch->private, &rounding);
            if (models[i].grows)
                assert_int_equal(p.kv_bytes, kv);
            assert_in_range(kv, 1, p.kv_bytes);
            assert_in_range(scratch - p.scratch_bytes, 0, rounding);
            assert_int_equal(p.needed_bytes,
                             p.kv_bytes + p.scratch_bytes + p.sampling_bytes);
            assert_int_equal(p.weight_bytes, eng->info.weight_bytes);
            assert_int_equal(p.resident_bytes, p.weight_bytes);
            qwick_session_free(s);
            qwick_engine_close(eng);
        }
    }
}

static void little_memory(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", false);
    struct qwick_plan_options o = qwick_plan_defaults();
    struct qwick_plan p;
    struct qwick_err e;
    p = plan_of(eng, 50, 10);
    assert_true(p.fits);
    size_t need = p.needed_bytes;
    /* one kB too little; nothing is measured then */
    fake_kb = need / 1024;
    o.n_prompt = 50;
    o.n_answer = 10;
    assert_int_equal(qwick_plan_make(eng, &o, &p, &e), 0);
    assert_false(p.fits);
    assert_int_equal(p.needed_bytes, need);
    assert_int_equal(p.available_bytes, fake_kb * 1024);
    assert_int_equal(p.source, QWICK_PLAN_NONE);
    fake_kb++;
    p = plan_of(eng, 50, 10);
    assert_true(p.fits);
    /* the weights do not fit beside it */
    assert_true(p.disk_bytes > 0);
    fake_kb = 0;
    p = plan_of(eng, 50, 10);
    assert_true(p.disk_bytes == 0);
    qwick_engine_close(eng);
}

static void lengths_and_the_context(void **state)
{
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16", false);
    struct qwick_plan_options o = qwick_plan_defaults();
    static const volatile int flag = 1;
    struct qwick_plan p;
    struct qwick_err e;
    size_t most = eng->info.n_ctx_max;
    p = plan_of(eng, most, 10);
    assert_int_equal(p.n_answer, 0);
    assert_int_equal(p.kv_bytes, p.kv_full_bytes);
    o.no_speed = true;
    o.n_prompt = most + 1;
    assert_int_equal(qwick_plan_make(eng, &o, &p, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    o.n_prompt = 0;
    o.n_ctx = 1;
    assert_int_equal(qwick_plan_make(eng, &o, &p, &e), 0);
    assert_int_equal(p.n_prompt, 1);
    o.n_ctx = most + 1;
    assert_int_equal(qwick_plan_make(eng, &o, &p, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    o = qwick_plan_defaults();
    o.interrupt = &flag;
    assert_int_equal(qwick_plan_make(eng, &o, &p, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    /* all options may be missing */
    assert_int_equal(qwick_plan_make(eng, NULL, &p, &e), 0);
    assert_int_not_equal(p.source, QWICK_PLAN_NONE);
    assert_true(p.first_token_s > 0 && p.token_s > 0);
    assert_true(p.cores >= 1 && p.cores <= p.cpus_affinity);
    assert_true(p.cpus_affinity <= p.cpus_online);
    qwick_engine_close(eng);
}

static void pages_in_memory(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 5000 * page, bytes;
    unsigned char *p = mmap(NULL, n, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    (void)madvise(p, n, MADV_NOHUGEPAGE);
    assert_true(os_resident_bytes(p, n, &bytes));
    assert_int_equal(bytes, 0);
    p[0] = p[3 * page] = p[4999 * page] = 1;
    assert_true(os_resident_bytes(p, n, &bytes));
    assert_int_equal(bytes, 3 * page);
    /* parts of pages */
    assert_true(os_resident_bytes(p + 100, page, &bytes));
    assert_int_equal(bytes, page - 100);
    assert_true(os_resident_bytes(p + 3 * page + 7, 9, &bytes));
    assert_int_equal(bytes, 9);
    assert_true(os_resident_bytes(p, 0, &bytes));
    assert_int_equal(bytes, 0);
    munmap(p, n);
    assert_false(os_resident_bytes(p, n, &bytes));
}

static void private_memory(void **state)
{
    size_t n = (size_t)32 << 20, before = os_private_bytes();
    if (!before)
        skip();
    unsigned char *p = malloc(n);
    assert_non_null(p);
    memset(p, 1, n);
    size_t grown = os_private_bytes() - before;
    assert_in_range(grown, n, n + n / 8);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_what_sessions_take),
        cmocka_unit_test(little_memory),
        cmocka_unit_test(lengths_and_the_context),
        cmocka_unit_test(pages_in_memory),
        cmocka_unit_test(private_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
