/* Arenas, arrays, hash tables, names in messages, whole writes. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/hashmap.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "file/fs.h"

/* ---- arena ---- */

static void arena_memory_stays(void **state)
{
    enum { N = 3000 };
    static unsigned char *p[N];
    static size_t n[N];
    struct arena a = {0};
    for (size_t i = 0; i < N; i++) {
        size_t align = (size_t)1 << i % 5;
        n[i] = i % 1000 == 999 ? 3000000 : i * 37 % 500;
        p[i] = arena_alloc(&a, n[i], align);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % align, 0);
        memset(p[i], (int)(i % 251), n[i]);
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < n[i]; k += 1 + n[i] / 100)
            assert_int_equal(p[i][k], i % 251);
    const char *s = arena_copy(&a, "a\0b", 3);
    assert_memory_equal(s, "a\0b", 4);
    assert_string_equal(arena_copy(&a, NULL, 0), "");
    assert_null(arena_alloc(&a, SIZE_MAX, 1));
    assert_null(arena_alloc(&a, SIZE_MAX - 8, 1));
    assert_null(arena_copy(&a, "", SIZE_MAX));
    assert_memory_equal(s, "a\0b", 4);
    arena_free(&a);
    assert_null(a.blocks);
    arena_free(&a);
}

/* ---- arrays ---- */

static void arrays_grow(void **state)
{
    struct qwick_err e = {0};
    int *v = NULL;
    size_t cap = 0, moves = 0;
    for (size_t n = 0; n < 100000; n++) {
        size_t before = cap;
        assert_int_equal(ARRAY_RESERVE(v, cap, n + 1, &e), 0);
        assert_true(cap > n);
        assert_true(cap == before || cap >= 2 * before);
        moves += cap != before;
        v[n] = (int)n;
    }
    assert_true(moves < 16);
    for (size_t n = 0; n < 100000; n++)
        assert_int_equal(v[n], n);
    /* many at once */
    assert_int_equal(ARRAY_RESERVE(v, cap, 1000000, &e), 0);
    assert_int_equal(cap, 1000000);
    assert_int_equal(v[99999], 99999);
    free(v);
}

static void arrays_have_a_maximum(void **state)
{
    struct qwick_err e = {0};
    uint64_t *v = NULL;
    size_t cap = 0;
    assert_int_equal(array_grow(&v, &cap, 5, sizeof *v, 7, &e), 0);
    assert_true(cap >= 5 && cap <= 7);
    v[4] = 4;
    uint64_t *old = v;
    size_t old_cap = cap;
    assert_int_equal(array_grow(&v, &cap, 8, sizeof *v, 7, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_int_equal(array_grow(&v, &cap, SIZE_MAX / 8 + 1, sizeof *v, 0, &e),
                     -1);
    assert_int_equal(array_grow(&v, &cap, SIZE_MAX, sizeof *v, 0, NULL), -1);
    assert_ptr_equal(v, old);
    assert_int_equal(cap, old_cap);
    assert_int_equal(array_grow(&v, &cap, 7, sizeof *v, 7, &e), 0);
    assert_int_equal(cap, 7);
    assert_int_equal(v[4], 4);
    free(v);
}

/* ---- hash tables ---- */

/* Index of key among keys, or HASHMAP_NONE. */
static uint32_t find(const struct hashmap *m, const uint64_t *keys,
                     uint64_t hash, uint64_t key)
{
    uint32_t at = hashmap_slot(m, hash), i;
    while ((i = hashmap_next(m, hash, &at)) != HASHMAP_NONE)
        if (keys[i] == key)
            break;
    return i;
}

static uint64_t good_hash(uint64_t key)
{
    return hash_bytes(1, &key, sizeof key);
}

static uint64_t bad_hash(uint64_t key)
{
    return key % 7 << 32 | 5;
}

static void tables_find_what_they_hold(void **state)
{
    static uint64_t (*const hash[])(uint64_t) = {good_hash, bad_hash};
    static const size_t sizes[] = {0, 1, 15, 16, 1000, 3, 700};
    struct qwick_err e;
    for (int k = 0; k < 2; k++) {
        struct hashmap m = {0};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            static uint64_t keys[1000];
            size_t n = sizes[s];
            assert_int_equal(hashmap_init(&m, n, n, &e), 0);
            for (size_t i = 0; i < n; i++) {
                keys[i] = i * 3;
                uint64_t h = hash[k](keys[i]);
                assert_true(find(&m, keys, h, keys[i]) == HASHMAP_NONE);
                hashmap_put(&m, h, (uint32_t)i);
            }
            for (uint64_t key = 0; key < 3 * n + 3; key++)
                assert_int_equal(find(&m, keys, hash[k](key), key),
                                 key % 3 == 0 && key < 3 * n ? key / 3
                                                             : HASHMAP_NONE);
        }
        hashmap_free(&m);
        assert_null(m.slots);
    }
}

/* Indices larger than the number of entries, and impossible tables. */
static void tables_hold_any_index(void **state)
{
    static const uint32_t index[] = {0, 1, 15, 16, 0x1FFFFF, 0x3FFFFFFE};
    struct qwick_err e = {0};
    struct hashmap m = {0};
    for (size_t i = 0; i < sizeof index / sizeof *index; i++) {
        assert_int_equal(hashmap_init(&m, 1, index[i], &e), 0);
        for (uint64_t h = 0; h < 20; h++) {
            hashmap_init(&m, 1, index[i], &e);
            hashmap_put(&m, good_hash(h), index[i]);
            uint32_t at = hashmap_slot(&m, good_hash(h));
            assert_int_equal(hashmap_next(&m, good_hash(h), &at), index[i]);
            assert_true(hashmap_next(&m, good_hash(h), &at) == HASHMAP_NONE);
        }
    }
    assert_int_equal(hashmap_init(&m, SIZE_MAX, 1, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MEMORY);
    assert_int_equal(hashmap_init(&m, 1, UINT32_MAX, &e), -1);
    hashmap_free(&m);
}

/* ---- text ---- */

static void valid_prefixes(void **state)
{
    static const char *const good[] = {"a", "\xC3\xA9", "\xE4\xB8\xAD",
                                       "\xF0\x9F\x98\x80", "\x7F"};
    static const char *const bad[] = {
        "\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
        "\xC3", "\xE4\xB8", "\xFF"};
    for (uint64_t round = 0; round < 5000; round++) {
        char text[200];
        size_t n = 0, n_good = (size_t)(rng_uniform(1, round) * 40);
        for (size_t i = 0; i < n_good; i++) {
            /* also long runs of ASCII */
            double x = rng_uniform(2, round * 64 + i);
            const char *c = good[round % 2 && x < 0.8 ? 0 : (size_t)(x * 5)];
            memcpy(text + n, c, strlen(c));
            n += strlen(c);
        }
        assert_int_equal(utf8_valid(text, n), n);
        const char *c = bad[round % 7];
        memcpy(text + n, c, strlen(c));
        assert_int_equal(utf8_valid(text, n + strlen(c)), n);
    }
    assert_int_equal(utf8_valid(NULL, 0), 0);
}

static void names_in_messages(void **state)
{
    char out[ERR_SHOWN], text[1000];
    assert_string_equal(err_show(out, "plain \xC3\xA9", 8), "plain \xC3\xA9");
    assert_string_equal(err_show(out, "a\nb\0\x1F\x7F", 6),
                        "a\\x0ab\\x00\\x1f\\x7f");
    assert_string_equal(err_show(out, "a\xE4\xB8z\xFF", 5),
                        "a\xEF\xBF\xBDz\xEF\xBF\xBD");
    assert_string_equal(err_show(out, "", 0), "");
    /* whole characters of every length, cut at every byte */
    static const char *const units[] = {"x", "\xC3\xA9", "\xE4\xB8\xAD",
                                        "\xF0\x9F\x98\x80"};
    for (size_t k = 0; k < 4; k++)
        for (size_t shift = 0; shift < 5; shift++) {
            size_t n = shift;
            memset(text, 'y', shift);
            for (; n + 4 < sizeof text; n += strlen(units[k]))
                memcpy(text + n, units[k], strlen(units[k]));
            size_t len = strlen(err_show(out, text, n));
            assert_true(len < ERR_SHOWN && len > ERR_SHOWN - 9);
            assert_memory_equal(out, text, len - 3);
            assert_int_equal(utf8_valid(out, len), len);
            assert_string_equal(out + len - 3, "...");
        }
}

/* ---- writing ---- */

struct reader {
    int fd;
    size_t n;
    uint64_t sum;
};

static void *read_slowly(void *ctx)
{
    struct reader *r = ctx;
    unsigned char buf[3000];
    ssize_t k;
    while ((k = read(r->fd, buf, sizeof buf)) > 0)
        for (ssize_t i = 0; i < k; i++)
            r->sum = r->sum * 31 + buf[i], r->n++;
    return NULL;
}

static void on_signal(int signal)
{
    (void)signal;
}

/* A pipe accepts few bytes at a time, and signals interrupt the write. */
static void writes_are_whole(void **state)
{
    enum { N = 1 << 20 };
    unsigned char *data = malloc(N);
    assert_non_null(data);
    uint64_t sum = 0;
    for (size_t i = 0; i < N; i++) {
        data[i] = (unsigned char)(i * 7 % 253);
        sum = sum * 31 + data[i];
    }
    int fds[2];
    struct reader r = {0};
    pthread_t thread;
    struct sigaction act = {.sa_handler = on_signal}, old;
    assert_int_equal(pipe(fds), 0);
    sigaction(SIGALRM, &act, &old);
    r.fd = fds[0];
    sigset_t alarm_set, before;
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_set, &before);
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &r), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    ualarm(500, 500);
    int rc = write_all(fds[1], data, N);
    ualarm(0, 0);
    close(fds[1]);
    pthread_join(thread, NULL);
    close(fds[0]);
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(rc, 0);
    assert_int_equal(r.n, N);
    assert_true(r.sum == sum);

    char path[] = "/tmp/test_containers.XXXXXX", got[8];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write_all_at(fd, "cd", 2, 4), 0);
    assert_int_equal(write_all_at(fd, "ab", 2, 2), 0);
    assert_int_equal(write_all(fd, "xy", 2), 0);
    assert_int_equal(pread(fd, got, 8, 0), 6);
    assert_memory_equal(got, "xyabcd", 6);
    close(fd);
    assert_int_equal(write_all(fd, "", 0), 0);
    assert_int_equal(write_all(fd, "a", 1), -1);
    assert_int_equal(errno, EBADF);
    fd = open("/dev/full", O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, data, N), -1);
    assert_int_equal(errno, ENOSPC);
    close(fd);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_memory_stays),
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(arrays_have_a_maximum),
        cmocka_unit_test(tables_find_what_they_hold),
        cmocka_unit_test(tables_hold_any_index),
        cmocka_unit_test(valid_prefixes),
        cmocka_unit_test(names_in_messages),
        cmocka_unit_test(writes_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
