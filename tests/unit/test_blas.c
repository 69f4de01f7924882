/* When is OpenBLAS loaded? Loading it writes the environment, which may happen
 * only in qwick_engine_open. */
#include "test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engines.h"

#define MODEL "tests/golden/models/tied-bf16"

enum { N_IDS = 100, LARGE_CHUNK = 1 << 16 };

/* Replaces the C library's functions; counts writes. */
static size_t writes;

int setenv(const char *name, const char *value, int replace)
{
    static int (*real)(const char *, const char *, int);
    writes++;
    if (!real) {
        void *p = dlsym(RTLD_NEXT, "setenv");
        memcpy(&real, &p, sizeof real);
    }
    return real(name, value, replace);
}

/* An engine at the reference level, which uses OpenBLAS for long prefills. */
static struct qwick_engine *open_engine(size_t chunk)
{
    return engine_with(.model = MODEL, .isa = "ref", .threads = 2,
                       .prefill_chunk = chunk);
}

/* Evaluate a prompt, with OpenBLAS declared faster. Returns which products were
 * used. */
static enum products prefill(struct qwick_engine *eng)
{
    int32_t ids[N_IDS];
    for (size_t i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)(i * 37 % 320);
    eng->model.blas_min_flops = 0;
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, N_IDS, NULL), 0);
    qwick_session_free(s);
    return model_products(&eng->model, N_IDS, false);
}

static void a_pass_leaves_the_environment_alone(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    /* passes of this model are too small for OpenBLAS */
    assert_int_equal(writes, 0);
    assert_int_not_equal(prefill(eng), PRODUCTS_BLAS);
    assert_int_equal(writes, 0);
    qwick_engine_close(eng);
}

static void opening_loads_it(void **state)
{
    assert_int_equal(unsetenv("OPENBLAS_NUM_THREADS"), 0);
    writes = 0;
    struct qwick_engine *eng = open_engine(LARGE_CHUNK);
    size_t at_open = writes;
    assert_true(at_open > 0);
    assert_null(getenv("OPENBLAS_NUM_THREADS"));
    enum products used = prefill(eng);
    assert_int_equal(writes, at_open);
    if (used != PRODUCTS_BLAS)
        printf("    SKIP: no OpenBLAS here\n");
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_leaves_the_environment_alone),
        cmocka_unit_test(opening_loads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
