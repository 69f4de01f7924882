/* OpenBLAS, loaded at run time. No other file uses BLAS. */
#include "kernel/gemm.h"

/* A static program cannot load it; the Makefile compiles this file twice. */
#ifdef QWICK_STATIC

bool gemm_blas_load(const struct kernels *k)
{
    (void)k;
    return false;
}

bool gemm_blas_loaded(void)
{
    return false;
}

/* Nobody calls this. */
void gemm_blas_nt(float *c, size_t ldc, const float *a, size_t lda,
                  const float *b, size_t ldb, size_t m, size_t n, size_t k)
{
    (void)c, (void)ldc, (void)a, (void)lda, (void)b, (void)ldb;
    (void)m, (void)n, (void)k;
}

#else

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/dynlib.h"

/* Constants of cblas.h, so that the build needs no BLAS header. */
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n,
                         int k, float alpha, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c,
                         int ldc);
typedef void (*set_threads_fn)(int n);

static sgemm_fn blas_sgemm;

/* A variable that is set while the library loads, because its constructor reads
 * the environment. It is restored afterwards, because child processes must not
 * see the change. */
struct saved_env {
    const char *name;
    char *value; /* NULL: the variable was not set */
    bool changed;
};

static void env_set(struct saved_env *s, const char *name, const char *value)
{
    const char *old = getenv(name);

    s->name = name;
    s->value = NULL;
    s->changed = false;
    if (old) {
        s->value = strdup(old);
        if (!s->value)
            return; /* we could not restore it, so do not change it */
    }
    s->changed = setenv(name, value, 1) == 0;
}

static void env_restore(struct saved_env *s)
{
    if (s->changed && s->value)
        setenv(s->name, s->value, 1);
    else if (s->changed)
        unsetenv(s->name);
    free(s->value);
}

static void *open_library(const char *coretype)
{
    struct saved_env threads, core = {0};
    const char *user = getenv("OPENBLAS_CORETYPE");
    void *lib;

    if ((!user || !*user) && coretype)
        env_set(&core, "OPENBLAS_CORETYPE", coretype);
    /* otherwise a build with its own threads starts them when it loads */
    env_set(&threads, "OPENBLAS_NUM_THREADS", "1");
    lib = dynlib_open("libopenblas.so.0");
    env_restore(&threads);
    env_restore(&core);
    return lib;
}

static void load_library(const char *coretype)
{
    void *lib = open_library(coretype);
    set_threads_fn set_threads;
    sgemm_fn sgemm;
    int omp_threads = omp_get_max_threads();

    if (!lib)
        return;
    if (!dynlib_symbol(&sgemm, lib, "cblas_sgemm") ||
        !dynlib_symbol(&set_threads, lib, "openblas_set_num_threads")) {
        dynlib_close(lib);
        return;
    }
    set_threads(1);
    omp_set_num_threads(omp_threads); /* the OpenMP build changes it */
    blas_sgemm = sgemm;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool gemm_blas_load(const struct kernels *k)
{
    static bool tried;
    bool loaded;

    pthread_mutex_lock(&lock);
    if (!tried)
        load_library(k->tune.blas_coretype);
    tried = true;
    loaded = blas_sgemm != NULL;
    pthread_mutex_unlock(&lock);
    return loaded;
}

bool gemm_blas_loaded(void)
{
    bool loaded;

    pthread_mutex_lock(&lock);
    loaded = blas_sgemm != NULL;
    pthread_mutex_unlock(&lock);
    return loaded;
}

void gemm_blas_nt(float *c, size_t ldc, const float *a, size_t lda,
                  const float *b, size_t ldb, size_t m, size_t n, size_t k)
{
    /* Outside of a parallel region, and in a team of one thread, the OpenMP
     * build uses omp_get_max_threads() threads in spite of
     * openblas_set_num_threads. */
    int omp_threads = omp_in_parallel() ? 1 : omp_get_max_threads();

    if (m == 0 || n == 0)
        return;
    if (omp_threads != 1)
        omp_set_num_threads(1);
    blas_sgemm(ROW_MAJOR, NO_TRANS, TRANS, (int)m, (int)n, (int)k, 1, a,
               (int)lda, b, (int)ldb, 0, c, (int)ldc);
    if (omp_threads != 1)
        omp_set_num_threads(omp_threads);
}

#endif
