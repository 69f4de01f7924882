/* Decoding allocates nothing: this program counts its own allocations. */
#include "test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/core/engine.h"
#include "engines.h"
#include "model/kv_cache.h"
#include "qwick.h"

#if defined(__SANITIZE_ADDRESS__)
enum { COUNTED = 0 };
static size_t n_allocations;
#else
enum { COUNTED = 1 };
static size_t n_allocations; /* of all threads */

static void count(void)
{
    __atomic_fetch_add(&n_allocations, 1, __ATOMIC_RELAXED);
}

/* glibc's internal names of malloc and its like */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    count();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count();
    return __libc_memalign(align, n);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t from)
{
    count();
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, from);
}
#endif

static int skip_without_counts(void)
{
    if (COUNTED)
        return 0;
    print_message("SKIP: sanitizers have allocators of their own\n");
    return 1;
}

static void count_decoding(const char *model, bool exact, int threads)
{
    struct qwick_engine *eng =
        engine_with(.model = model, .exact = exact, .threads = threads);
    struct qwick_session *s = open_session(eng);
    struct qwick_err e;
    int32_t ids[KV_BLOCK + 2];
    for (int i = 0; i < KV_BLOCK + 2; i++)
        ids[i] = 100 + i;
    assert_int_equal(qwick_session_sync(s, ids, KV_BLOCK + 1, &e), 0);
    assert_int_equal(qwick_session_decode(s, 7, &e), 0);
    /* up to the end of the second page */
    size_t before = n_allocations;
    for (int i = KV_BLOCK + 2; i < 2 * KV_BLOCK; i++)
        assert_int_equal(qwick_session_decode(s, i, &e), 0);
    assert_int_equal(n_allocations - before, 0);
    /* the next token needs a page: this shows that allocations are counted */
    assert_int_equal(qwick_session_decode(s, 7, &e), 0);
    assert_true(n_allocations > before);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

static void decode_allocates_nothing(void **state)
{
    /* the demo model, and one with recurrent layers */
    static const char *const models[] = {NULL,
                                         "tests/golden/models/qwen35-tied"};
    if (skip_without_counts())
        return;
    for (size_t i = 0; i < 2; i++)
        for (int exact = 0; exact < 2; exact++)
            for (int threads = 1; threads <= 3; threads += 2)
                count_decoding(models[i], exact != 0, threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
