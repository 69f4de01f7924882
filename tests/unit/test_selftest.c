/* The self-test: it passes on every kind of model, and finds kernels that are
 * wrong, files that changed, and limits of time and memory. */
#include "test.h"

#include <math.h>
#include <stdatomic.h>

#include "engines.h"
#include "fake_memory.h"
#include "kernel/kernel.h"
#include "qwick_tools.h"
#include "tempdir.h"

#define GOLDEN "tests/golden/models/"

/* ---- running it --------------------------------------------------------- */

/* The rows of one self-test. */
static struct {
    size_t n, n_begun;
    struct {
        char name[64], detail[512];
        enum qwick_selftest_result result;
    } rows[64];
} seen;

static void on_begin(void *ctx, const char *name)
{
    (void)ctx;
    assert_int_equal(seen.n_begun, seen.n);
    snprintf(seen.rows[seen.n_begun++].name, 64, "%s", name);
}

static int on_done(void *ctx, const struct qwick_selftest_check *c)
{
    (void)ctx;
    assert_string_equal(c->name, seen.rows[seen.n].name);
    assert_true(c->ms >= 0);
    snprintf(seen.rows[seen.n].detail, sizeof seen.rows->detail, "%s",
             c->detail);
    seen.rows[seen.n++].result = c->result;
    return ctx && seen.n == 2;
}

static struct qwick_engine *open_engine(const char *model)
{
    return engine_with(.model = model, .threads = 2);
}

static struct qwick_selftest_options options(void)
{
    struct qwick_selftest_options o = qwick_selftest_defaults();
    memset(&seen, 0, sizeof seen);
    o.time_ms = 0;
    o.begin = on_begin;
    o.done = on_done;
    return o;
}

/* Run all checks on a model and compare the counts with the rows. */
static struct qwick_selftest_report test_with(const char *model,
                                              struct qwick_selftest_options o)
{
    struct qwick_engine *eng = open_engine(model);
    struct qwick_selftest_report r;
    struct qwick_err e;
    size_t n[4] = {0};
    if (qwick_selftest(eng, &o, &r, &e))
        fail_msg("%s: %s", model, e.msg);
    qwick_engine_close(eng);
    for (size_t i = 0; i < seen.n; i++)
        n[seen.rows[i].result]++;
    assert_int_equal(n[QWICK_SELFTEST_PASS], r.n_pass);
    assert_int_equal(n[QWICK_SELFTEST_FAIL], r.n_fail);
    assert_int_equal(n[QWICK_SELFTEST_SKIP], r.n_skip);
    assert_int_equal(n[QWICK_SELFTEST_CUT], r.n_cut);
    assert_in_range(r.n_tokens, 8, 200);
    return r;
}

/* Return the row of a check. */
static size_t row(const char *name)
{
    for (size_t i = 0; i < seen.n; i++)
        if (!strcmp(seen.rows[i].name, name))
            return i;
    fail_msg("no check %s", name);
    return 0;
}

static void expect(const char *name, enum qwick_selftest_result result,
                   const char *detail)
{
    size_t i = row(name);
    if (seen.rows[i].result != result || !strstr(seen.rows[i].detail, detail))
        fail_msg("%s: result %d, \"%s\"", name, seen.rows[i].result,
                 seen.rows[i].detail);
}

static void expect_no_failure(const char *model)
{
    for (size_t i = 0; i < seen.n; i++)
        if (seen.rows[i].result == QWICK_SELFTEST_FAIL ||
            seen.rows[i].result == QWICK_SELFTEST_CUT)
            fail_msg("%s: %s: %s", model, seen.rows[i].name,
                     seen.rows[i].detail);
}

/* ---- models ------------------------------------------------------------- */

static void every_kind_of_model_passes(void **state)
{
    static const char *const models[] = {
        GOLDEN "tied-bf16",
        GOLDEN "mlx4",
        GOLDEN "gemma3-gqa",
        GOLDEN "moe",
        GOLDEN "qwen35-tied",
        GOLDEN "qwen35-moe",
        GOLDEN "../families/qwen3next-odd",
        "tests/golden/gguf/tiny-dense-Q4_K_S.gguf",
        "tests/golden/gguf/tiny-moe-Q4_K_S.gguf",
        "tests/golden/gguf/qwen35-moe.gguf",
    };
    size_t n_levels = 0;
    while (kernels_level(n_levels))
        n_levels++;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        test_with(models[i], options());
        expect_no_failure(models[i]);
        assert_int_equal(seen.n, 5 + 2 * n_levels);
        expect("files", QWICK_SELFTEST_SKIP, "no checksum is recorded for");
        expect("ref, exact", QWICK_SELFTEST_PASS, "the reference");
        expect("ref, default", QWICK_SELFTEST_PASS, "differs from ref by");
    }
}

/* ---- kernels that are wrong --------------------------------------------- */

/* The table of the highest level. Tests change it and restore it. */
static struct kernels *best_table(void)
{
    return (struct kernels *)(uintptr_t)kernels_best();
}

static struct kernels saved;
static float factor;
static atomic_int calls;

static void wrong_swiglu(float *out, const float *gate, const float *up,
                         size_t n)
{
    saved.swiglu(out, gate, up, n);
    for (size_t i = 0; i < n; i++)
        out[i] *= factor;
}

/* Each 7th call differs from the others. */
static void fickle_swiglu(float *out, const float *gate, const float *up,
                          size_t n)
{
    saved.swiglu(out, gate, up, n);
    if (atomic_fetch_add(&calls, 1) % 7 == 0)
        for (size_t i = 0; i < n; i++)
            out[i] *= 1 + 1e-5f;
}

static int save_table(void **state)
{
    saved = *best_table();
    return 0;
}

static int restore_table(void **state)
{
    *best_table() = saved;
    return 0;
}

static void wrong_level(const char *model, float by, bool fails_by_default,
                        const char *detail)
{
    char name[64];
    factor = by;
    best_table()->swiglu = wrong_swiglu;
    struct qwick_selftest_report r = test_with(model, options());
    assert_int_equal(r.n_fail, fails_by_default ? 2 : 1);
    snprintf(name, sizeof name, "%s, exact", saved.name);
    expect(name, QWICK_SELFTEST_FAIL, "differs from ref by");
    snprintf(name, sizeof name, "%s, default", saved.name);
    if (fails_by_default)
        expect(name, QWICK_SELFTEST_FAIL, detail);
    /* the levels below are right */
    expect("ref, exact", QWICK_SELFTEST_PASS, "");
}

static void a_wrong_kernel_of_one_level(void **state)
{
    if (kernels_best() == kernels_ref())
        skip();
    /* beyond the bound of exact mode only */
    wrong_level(GOLDEN "tied-bf16", 1 + 1e-3f, false, "differs from ref by");
    wrong_level(GOLDEN "tied-bf16", 1.1f, true, "differs from ref by");
    wrong_level(GOLDEN "moe", 1.1f, true, "(median of 32 positions)");
    wrong_level(GOLDEN "qwen35-tied", 1.1f, true, "(median of 32 positions)");
    wrong_level(GOLDEN "tied-bf16", NAN, true, "nan");
    wrong_level(GOLDEN "moe", NAN, true, "nan");
}

/* The last call, in the last row's check, gives no numbers. */
static int last_call;

static void last_is_nan(float *out, const float *gate, const float *up,
                        size_t n)
{
    saved.swiglu(out, gate, up, n);
    if (atomic_fetch_add(&calls, 1) + 1 == last_call)
        for (size_t i = 0; i < n; i++)
            out[i] = NAN;
}

/* The median over positions would hide it. */
static void one_position_without_numbers(void **state)
{
    best_table()->swiglu = last_is_nan;
    last_call = 0;
    atomic_store(&calls, 0);
    test_with(GOLDEN "moe", options());
    expect_no_failure("moe");
    last_call = atomic_exchange(&calls, 0);
    struct qwick_selftest_report r = test_with(GOLDEN "moe", options());
    assert_int_equal(r.n_fail, 1);
    assert_int_equal(seen.rows[seen.n - 1].result, QWICK_SELFTEST_FAIL);
    assert_non_null(strstr(seen.rows[seen.n - 1].detail, "nan"));
}

static void a_wrong_reference(void **state)
{
    if (kernels_best() == kernels_ref())
        skip();
    struct kernels *ref = (struct kernels *)(uintptr_t)kernels_ref();
    struct kernels ref_saved = *ref;
    factor = NAN;
    ref->swiglu = wrong_swiglu;
    struct qwick_selftest_report r = test_with(GOLDEN "tied-bf16", options());
    *ref = ref_saved;
    expect("ref, exact", QWICK_SELFTEST_FAIL, "not finite");
    assert_true(r.n_fail > 1);
}

static void a_kernel_that_changes_its_mind(void **state)
{
    best_table()->swiglu = fickle_swiglu;
    struct qwick_selftest_report r = test_with(GOLDEN "tied-bf16", options());
    expect("cached", QWICK_SELFTEST_FAIL, "logits differ, by up to");
    expect("threads", QWICK_SELFTEST_FAIL, "logits differ, by up to");
    expect("batch", QWICK_SELFTEST_FAIL, "logits differ, by up to");
    assert_true(r.n_fail >= 3);
}

/* ---- files -------------------------------------------------------------- */

/* Copy a file into blobs under its checksum, and link to it. */
static void add_blob(const char *name, const char *hex)
{
    char path[1024];
    snprintf(path, sizeof path, GOLDEN "tied-bf16/%s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static unsigned char data[1 << 20];
    size_t n = fread(data, 1, sizeof data, f);
    assert_true(n > 0 && n < sizeof data);
    fclose(f);
    char blob[200], link[256], at[256];
    snprintf(blob, sizeof blob, "hub/blobs/%s", hex);
    temp_put(blob, "");
    temp_write(blob, data, n);
    snprintf(link, sizeof link, "../../blobs/%s", hex);
    snprintf(at, sizeof at, "hub/snapshots/1/%s", name);
    assert_int_equal(symlink(link, temp_path(at)), 0);
}

/* The checksums of the golden's files, by sha256sum and git hash-object. */
#define WEIGHTS_SUM \
    "02546690a33fc8e27063f2534e1f248b970a5d09b82dc5b51cd379fb6c88586f"
#define CONFIG_SUM "27ce0037f603b4b1a519b5c061edcb74332e7107"

static void files_that_changed(void **state)
{
    temp_put("hub/snapshots/1/", NULL);
    add_blob("model.safetensors", WEIGHTS_SUM);
    add_blob("config.json", CONFIG_SUM);
    test_with(temp_path("hub/snapshots/1"), options());
    expect("files", QWICK_SELFTEST_PASS, "2 files, ");
    expect_no_failure("hub");

    temp_put("hub/snapshots/1/README.md", "text");
    test_with(temp_path("hub/snapshots/1"), options());
    expect("files", QWICK_SELFTEST_PASS, "no checksum is recorded for 1 files");

    /* the last byte of the weights: one value of the last tensor */
    FILE *f = fopen(temp_path("hub/blobs/" WEIGHTS_SUM), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_END), 0);
    fputc(c ^ 1, f);
    fclose(f);
    struct qwick_selftest_report r =
        test_with(temp_path("hub/snapshots/1"), options());
    assert_int_equal(r.n_fail, 1);
    expect("files", QWICK_SELFTEST_FAIL,
           "1 of 2 files differ from their checksums: model.safetensors");
}

/* ---- limits ------------------------------------------------------------- */

static void time_cuts_checks(void **state)
{
    struct qwick_selftest_options o = options();
    o.time_ms = 1e-6;
    struct qwick_selftest_report r = test_with(GOLDEN "tied-bf16", o);
    assert_int_equal(r.n_cut, seen.n);
    expect("threads", QWICK_SELFTEST_CUT, "its time is over");
    expect("ref, exact", QWICK_SELFTEST_CUT, "its time is over");
}

static void memory_cuts_checks(void **state)
{
    struct qwick_selftest_options o = options();
    fake_kb = 1;
    struct qwick_selftest_report r = test_with(GOLDEN "tied-bf16", o);
    fake_kb = 0;
    assert_int_equal(r.n_fail, 0);
    assert_int_equal(r.n_pass, 0);
    expect("cached", QWICK_SELFTEST_CUT, "available");
    expect("ref, exact", QWICK_SELFTEST_CUT, "available");
    expect("ref, default", QWICK_SELFTEST_CUT, "no level ended in exact mode");
}

static void a_flag_stops_it(void **state)
{
    static const volatile int flag = 1;
    struct qwick_selftest_options o = options();
    struct qwick_engine *eng = open_engine(GOLDEN "tied-bf16");
    struct qwick_selftest_report r;
    struct qwick_err e;
    o.interrupt = &flag;
    assert_int_equal(qwick_selftest(eng, &o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(seen.n, 0);
    /* so does the function that gets the results */
    o = options();
    o.ctx = &o;
    assert_int_equal(qwick_selftest(eng, &o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(seen.n, 2);
    o = options();
    o.time_ms = -1;
    assert_int_equal(qwick_selftest(eng, &o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    o.time_ms = NAN;
    assert_int_equal(qwick_selftest(eng, &o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_int_equal(seen.n, 0);
    /* all options may be missing */
    assert_int_equal(qwick_selftest(eng, NULL, &r, &e), 0);
    assert_int_equal(r.n_fail, 0);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_model_passes),
        cmocka_unit_test_setup_teardown(a_wrong_kernel_of_one_level, save_table,
                                        restore_table),
        cmocka_unit_test_setup_teardown(one_position_without_numbers,
                                        save_table, restore_table),
        cmocka_unit_test_setup_teardown(a_wrong_reference, save_table,
                                        restore_table),
        cmocka_unit_test_setup_teardown(a_kernel_that_changes_its_mind,
                                        save_table, restore_table),
        cmocka_unit_test_setup(files_that_changed, fresh),
        cmocka_unit_test(time_cuts_checks),
        cmocka_unit_test(memory_cuts_checks),
        cmocka_unit_test(a_flag_stops_it),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
