/* The prefix cache: first the trie alone, then cached = recomputed through the
 * engine, in memory and on disk. Numbers are compared bit by bit, with
 * --exact. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/hash.h"
#include "engine/cache/kv_file.h"
#include "engine/cache/prefix.h"
#include "engine/cache/prefix_disk.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "file/map.h"
#include "log_lines.h"
#include "tempdir.h"
#include "qwick_tools.h"

/* ---- faults --------------------------------------------------------------
 *
 * The functions below replace the C library's. Of the calls of the kind
 * `failing`, number `fail_at` fails. */

static atomic_int fail_at;
enum { FAIL_NONE, FAIL_PREAD, FAIL_MALLOC, FAIL_MKDIR, FAIL_FSYNC };
static int failing;

static bool fails(int which)
{
    return failing == which && atomic_fetch_sub(&fail_at, 1) == 1;
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    if (fails(FAIL_PREAD)) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, p, n, at);
}

int mkdir(const char *path, mode_t mode)
{
    if (fails(FAIL_MKDIR)) {
        errno = EROFS;
        return -1;
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* Fails only for directories. */
int fsync(int fd)
{
    struct stat st;
    if (!fstat(fd, &st) && S_ISDIR(st.st_mode) && fails(FAIL_FSYNC)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t n);

void *malloc(size_t n)
{
    if (fails(FAIL_MALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    return __libc_malloc(n);
}
#endif

#define YARN  "tests/golden/models/yarn"
#define WIDE  "tests/golden/models/head128-untied-bf16"
#define MOE   "tests/golden/models/moe"
#define GEMMA "tests/golden/models/gemma3-gqa"
/* Sequences of more than 64 tokens rotate all keys by other frequencies. */
#define LONGROPE "tests/golden/families/phi3-crossing"

/* ---- the trie ----------------------------------------------------------- */

static struct kv_cache some_kv(size_t n)
{
    static const struct config c = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 8};
    struct kv_cache kv;
    assert_int_equal(kv_init(&kv, kv_kind(QWICK_KV_F32), &c, NULL), 0);
    assert_int_equal(kv_reserve(&kv, n, NULL), 0);
    kv.n = n;
    return kv;
}

/* Insert whole pages, as a session does. */
static void put(struct prefix *p, const int32_t *ids, const struct kv_cache *kv)
{
    prefix_insert(p, 0, ids, kv->n / KV_BLOCK * KV_BLOCK, kv);
}

/* Returns the length of the match. If kv is not NULL, checks that the pages
 * belong to kv. */
static size_t find(struct prefix *p, const int32_t *ids, size_t n,
                   const struct kv_cache *kv)
{
    struct kv_page *pages[16];
    size_t n_pages, m = prefix_match(p, 0, ids, n, pages, &n_pages);
    struct kv_cache shape = some_kv(0);
    assert_int_equal(n_pages, (m + KV_BLOCK - 1) / KV_BLOCK);
    for (size_t i = 0; i < n_pages; i++) {
        if (kv)
            assert_ptr_equal(pages[i], kv->pages[i]);
        assert_true(pages[i]->refs >= 2);
        kv_page_drop(&shape, pages[i]);
    }
    kv_free(&shape);
    return m;
}

static void finds_what_was_put_in(void **state)
{
    int32_t a[300], b[300];
    struct kv_cache kv = some_kv(300), other = some_kv(300);
    struct prefix *p;
    some_ids(a, 300, 1);
    assert_int_equal(prefix_create(&p, &kv, 100 * kv.page_bytes, 1, NULL), 0);
    assert_int_equal(find(p, a, 300, NULL), 0);
    put(p, a, &kv);
    /* whole pages only: 256 of 300 */
    assert_int_equal(prefix_bytes(p), 4 * kv.page_bytes);
    for (size_t n = 0; n <= 300; n++)
        assert_int_equal(find(p, a, n, &kv), n < 256 ? n : 256);
    for (size_t i = 0; i < 256; i++) {
        memcpy(b, a, sizeof b);
        b[i] ^= 1;
        assert_int_equal(find(p, b, 300, &kv), i);
    }
    /* existing pages are not stored twice */
    put(p, a, &other);
    assert_int_equal(prefix_bytes(p), 4 * kv.page_bytes);
    assert_int_equal(find(p, a, 256, &kv), 256);
    assert_int_equal(other.pages[0]->refs, 1);
    /* of two nodes with a common beginning, the one with the longer match is
     * found */
    memcpy(b, a, sizeof b);
    b[150] ^= 1;
    put(p, b, &other);
    assert_int_equal(prefix_bytes(p), 6 * kv.page_bytes);
    assert_int_equal(find(p, a, 256, &kv), 256);
    assert_int_equal(find(p, b, 256, NULL), 256);
    /* the trie keeps its pages when the caches are freed */
    kv_free(&kv);
    kv_free(&other);
    assert_int_equal(find(p, a, 256, NULL), 256);
    prefix_free(p);
}

static void the_budget_holds_and_old_leaves_go_first(void **state)
{
    int32_t a[192], b[192], c[64];
    struct kv_cache kv = some_kv(192);
    struct prefix *p;
    some_ids(a, 192, 2);
    some_ids(b, 192, 3);
    some_ids(c, 64, 4);
    assert_int_equal(prefix_create(&p, &kv, 4 * kv.page_bytes + 1, 1, NULL), 0);
    put(p, a, &kv);
    put(p, b, &kv);
    /* a was used longer ago, so only its first page is left */
    assert_int_equal(prefix_bytes(p), 4 * kv.page_bytes);
    assert_int_equal(find(p, b, 192, NULL), 192);
    assert_int_equal(find(p, a, 192, NULL), 64);
    /* now a is newer, and b loses its last page */
    kv.n = 64;
    put(p, c, &kv);
    assert_int_equal(prefix_bytes(p), 4 * kv.page_bytes);
    assert_int_equal(find(p, a, 192, NULL), 64);
    assert_int_equal(find(p, c, 64, NULL), 64);
    assert_int_equal(find(p, b, 192, NULL), 128);
    prefix_free(p);
    /* of a context larger than the budget, the beginning is stored */
    kv.n = 192;
    assert_int_equal(prefix_create(&p, &kv, 2 * kv.page_bytes, 1, NULL), 0);
    assert_int_equal(prefix_insert(p, 0, a, 192, &kv), 0);
    assert_int_equal(find(p, a, 192, &kv), 128);
    prefix_free(p);
    /* a budget too small for a page */
    assert_int_equal(prefix_create(&p, &kv, kv.page_bytes - 1, 1, NULL), 0);
    assert_int_equal(prefix_insert(p, 0, a, 192, &kv), kv.page_bytes);
    assert_int_equal(prefix_budget(p), kv.page_bytes - 1);
    assert_int_equal(find(p, a, 192, NULL), 0);
    assert_int_equal(prefix_bytes(p), 0);
    prefix_free(p);
    kv_free(&kv);
}

/* Compare with a list of all inserted prefixes, with a budget that is never
 * reached. Then check the invariants with a small budget. */
static void random_use_keeps_the_invariants(void **state)
{
    enum { N = 40, LEN = 320 };
    static int32_t ids[N][LEN];
    struct kv_cache kv = some_kv(LEN);
    uint32_t x = 99;
    for (int small = 0; small < 2; small++) {
        struct prefix *p;
        size_t budget = (small ? 7 : 1000) * kv.page_bytes;
        size_t lengths[N] = {0};
        assert_int_equal(prefix_create(&p, &kv, budget, 1, NULL), 0);
        for (size_t i = 0; i < N; i++) {
            some_ids(ids[i], LEN, (uint32_t)i);
            x = x * 1664525u + 1013904223u;
            if (i) /* share a beginning with an earlier one */
                memcpy(ids[i], ids[(x >> 8) % i],
                       (x >> 16) % LEN * sizeof(int32_t));
            /* whole pages, or any number of tokens */
            lengths[i] = (x >> 10) % (LEN + 1);
            if (x >> 31)
                lengths[i] = lengths[i] / KV_BLOCK * KV_BLOCK;
            prefix_insert(p, 0, ids[i], lengths[i], &kv);
            assert_true(prefix_bytes(p) <= budget);
            size_t best = 0;
            for (size_t j = 0; j <= i; j++) {
                size_t m = 0;
                while (m < lengths[j] && ids[i][m] == ids[j][m])
                    m++;
                best = m > best ? m : best;
            }
            size_t got = find(p, ids[i], LEN, NULL);
            if (small)
                assert_true(got <= best && got >= lengths[i]);
            else
                assert_int_equal(got, best);
        }
        prefix_free(p);
    }
    kv.n = 0;
    kv_free(&kv);
}

/* Many sibling pages, as from batches of short prompts. The best one is found
 * in any order of insertion, and dropping some leaves the others in place. */
static void many_siblings_are_told_apart(void **state)
{
    enum { N = 500 };
    static int32_t ids[N][KV_BLOCK];
    struct kv_cache kv = some_kv(KV_BLOCK);
    struct prefix *p;
    uint32_t x = 5;
    assert_int_equal(prefix_create(&p, &kv, N * kv.page_bytes, 1, NULL), 0);
    for (size_t i = 0; i < N; i++) {
        some_ids(ids[i], KV_BLOCK, (uint32_t)i);
        x = x * 1664525u + 1013904223u;
        if (i) /* share a beginning with an earlier one, or equal it */
            memcpy(ids[i], ids[(x >> 8) % i],
                   (x >> 16) % (KV_BLOCK + 1) * sizeof(int32_t));
        put(p, ids[i], &kv);
    }
    size_t all = prefix_bytes(p) / kv.page_bytes;
    assert_true(all > N / 2 && all < N);
    for (size_t left = all; left > 0; left /= 2) {
        size_t found = 0;
        prefix_shrink(p, left * kv.page_bytes);
        assert_int_equal(prefix_bytes(p), left * kv.page_bytes);
        for (size_t i = 0; i < N; i++) {
            bool again = false;
            for (size_t j = 0; j < i && !again; j++)
                again = !memcmp(ids[i], ids[j], sizeof ids[i]);
            found += !again &&
                     prefix_match(p, 0, ids[i], KV_BLOCK, NULL, NULL) == KV_BLOCK;
        }
        assert_int_equal(found, left);
        if (left < all)
            continue;
        for (size_t i = 0; i < N; i++) {
            int32_t q[KV_BLOCK];
            size_t best = 0;
            memcpy(q, ids[i], sizeof q);
            q[i % KV_BLOCK] = (int32_t)(i * 7 % 320);
            for (size_t j = 0; j < N; j++) {
                size_t m = 0;
                while (m < KV_BLOCK && q[m] == ids[j][m])
                    m++;
                best = m > best ? m : best;
            }
            size_t n = 1 + i * 13 % KV_BLOCK;
            assert_int_equal(find(p, q, KV_BLOCK, NULL), best);
            assert_int_equal(find(p, q, n, NULL), best < n ? best : n);
        }
    }
    prefix_shrink(p, 0);
    assert_int_equal(prefix_bytes(p), 0);
    assert_int_equal(find(p, ids[0], KV_BLOCK, NULL), 0);
    assert_int_equal(kv.pages[0]->refs, 1);
    prefix_free(p);
    kv_free(&kv);
}

/* Sequences that end within a page are stored up to the last token, and only
 * once. A longer sequence replaces its beginning. */
static void ends_within_a_page_are_kept(void **state)
{
    int32_t a[200], b[200];
    struct kv_cache kv = some_kv(200), other = some_kv(200);
    struct prefix *p;
    some_ids(a, 200, 23);
    memcpy(b, a, sizeof b);
    b[90] ^= 1;
    assert_int_equal(prefix_create(&p, &kv, 100 * kv.page_bytes, 1, NULL), 0);
    prefix_insert(p, 0, a, 100, &kv);
    assert_int_equal(prefix_bytes(p), 2 * kv.page_bytes);
    for (size_t n = 0; n <= 200; n++)
        assert_int_equal(find(p, a, n, &kv), n < 100 ? n : 100);
    assert_int_equal(find(p, b, 200, &kv), 90);
    for (int32_t t = 0; t < 320; t++) { /* beyond the end, nothing matches */
        int32_t c[128];
        memcpy(c, a, 100 * sizeof *c);
        for (size_t i = 100; i < 128; i++)
            c[i] = t;
        assert_int_equal(find(p, c, 128, &kv), 100);
    }
    /* a part of an existing sequence, or all of it: nothing new */
    prefix_insert(p, 0, a, 80, &other);
    prefix_insert(p, 0, a, 100, &other);
    assert_int_equal(prefix_bytes(p), 2 * kv.page_bytes);
    assert_int_equal(other.pages[1]->refs, 1);
    /* a sibling */
    prefix_insert(p, 0, b, 91, &other);
    assert_int_equal(prefix_bytes(p), 3 * kv.page_bytes);
    assert_int_equal(find(p, a, 200, &kv), 100);
    assert_int_equal(find(p, b, 200, NULL), 91);
    /* it grows within its page, then beyond; the old page is freed */
    prefix_insert(p, 0, a, 110, &other);
    assert_int_equal(prefix_bytes(p), 3 * kv.page_bytes);
    assert_int_equal(kv.pages[1]->refs, 1);
    assert_int_equal(find(p, a, 200, NULL), 110);
    prefix_insert(p, 0, a, 200, &kv);
    assert_int_equal(prefix_bytes(p), 5 * kv.page_bytes);
    assert_int_equal(find(p, a, 200, &kv), 200);
    assert_int_equal(find(p, b, 200, NULL), 91);
    /* they are dropped like other pages */
    for (size_t left = 5; left-- > 0;) {
        prefix_shrink(p, left * kv.page_bytes);
        assert_int_equal(prefix_bytes(p), left * kv.page_bytes);
        size_t n = find(p, a, 200, NULL);
        assert_true(n <= left * KV_BLOCK);
    }
    prefix_free(p);
    kv_free(&kv);
    kv_free(&other);
}

/* Asking for the length of a match takes no references, and does not count as a
 * use. */
static void looking_leaves_no_trace(void **state)
{
    int32_t a[64], b[64], c[64];
    struct kv_cache kv = some_kv(64);
    struct prefix *p;
    some_ids(a, 64, 20);
    some_ids(b, 64, 21);
    some_ids(c, 64, 22);
    assert_int_equal(prefix_create(&p, &kv, 2 * kv.page_bytes, 1, NULL), 0);
    put(p, a, &kv);
    put(p, b, &kv);
    size_t refs = kv.pages[0]->refs;
    assert_int_equal(prefix_match(p, 0, a, 64, NULL, NULL), 64);
    assert_int_equal(prefix_match(p, 0, a, 9, NULL, NULL), 9);
    assert_int_equal(kv.pages[0]->refs, refs);
    put(p, c, &kv); /* a is still the oldest */
    assert_int_equal(find(p, a, 64, NULL), 0);
    assert_int_equal(find(p, b, 64, NULL), 64);
    prefix_free(p);
    kv_free(&kv);
}

/* ---- through the engine ------------------------------------------------- */

struct mode {
    const char *model;
    size_t bytes;    /* in memory */
    const char *dir; /* on disk, or NULL */
    size_t disk_bytes;
    bool fast;
    int threads; /* 0: 2 */
};

static struct qwick_engine *open_engine(struct mode m)
{
    forget_warnings();
    return engine_with(.model = m.model, .exact = !m.fast,
                       .threads = m.threads ? m.threads : 2,
                       .prefill_chunk = 50, .prefix_cache_bytes = m.bytes,
                       .prefix_cache_disk = m.dir != NULL,
                       .prefix_cache_dir = m.dir,
                       .prefix_cache_disk_bytes = m.disk_bytes,
                       .log = keep_warning);
}

/* Sync a new session, and check that the logits equal those of an engine
 * without caches. Returns the number of cached tokens. */
static size_t check(struct qwick_engine *eng, struct qwick_engine *plain,
                    const int32_t *ids, size_t n)
{
    struct qwick_session *s, *want;
    size_t size = qwick_engine_info(eng)->vocab_size * sizeof(float);
    struct qwick_err e;
    assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
    assert_int_equal(qwick_session_create(&want, plain, 0, NULL), 0);
    assert_ok(qwick_session_sync(s, ids, n, &e), &e);
    assert_int_equal(qwick_session_sync(want, ids, n, NULL), 0);
    assert_int_equal(qwick_session_length(s), n);
    assert_memory_equal(qwick_session_logits(s), qwick_session_logits(want),
                        size);
    /* and of later tokens, which write into a partly matching page */
    for (int32_t t = 0; t < 3; t++) {
        assert_int_equal(qwick_session_decode(s, t, NULL), 0);
        assert_int_equal(qwick_session_decode(want, t, NULL), 0);
        assert_memory_equal(qwick_session_logits(s), qwick_session_logits(want),
                            size);
    }
    assert_ok(qwick_session_store(s, n, &e), &e);
    size_t cached = qwick_session_cached(s);
    qwick_session_free(s);
    qwick_session_free(want);
    return cached;
}

static void cached_in_memory_is_as_recomputed(void **state)
{
    static const char *const models[] = {YARN, WIDE, MOE, GEMMA};
    int32_t a[250], b[250];
    for (size_t m = 0; m < 4; m++) {
        struct qwick_engine *plain =
            open_engine((struct mode){.model = models[m]});
        struct qwick_engine *eng =
            open_engine((struct mode){models[m], .bytes = 64 << 20});
        some_ids(a, 250, 5);
        some_ids(b, 250, 6);
        assert_int_equal(check(eng, plain, a, 250), 0);
        /* 192 tokens are stored as whole pages, the rest is not */
        assert_int_equal(check(eng, plain, a, 250), 192);
        assert_int_equal(check(eng, plain, a, 193), 192);
        /* the last token is always evaluated */
        assert_int_equal(check(eng, plain, a, 192), 191);
        assert_int_equal(check(eng, plain, a, 128), 127);
        assert_int_equal(check(eng, plain, a, 65), 64);
        assert_int_equal(check(eng, plain, a, 1), 0);
        /* a sequence that differs in the middle of a page */
        for (size_t i = 1; i < 192; i += 19) {
            memcpy(b, a, i * sizeof *a);
            b[i] = a[i] ^ 1;
            assert_int_equal(check(eng, plain, b, 230), i);
            assert_int_equal(check(eng, plain, a, 250), 192);
        }
        qwick_engine_close(eng);
        qwick_engine_close(plain);
    }
}

/* A session that shares pages rolls back and writes something else. */
static void shared_pages_are_never_written(void **state)
{
    int32_t a[200], b[200];
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    struct qwick_engine *eng =
        open_engine((struct mode){YARN, .bytes = 64 << 20});
    some_ids(a, 200, 7);
    some_ids(b, 200, 8);
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, a, 200, NULL), 0);
    for (size_t to = 0; to < 192; to += 37) {
        assert_int_equal(qwick_session_rollback(s, to, NULL), 0);
        for (size_t i = to; i < 200; i++)
            assert_int_equal(qwick_session_decode(s, b[i], NULL), 0);
        assert_int_equal(check(eng, plain, a, 200), 192);
        assert_int_equal(qwick_session_sync(s, a, 200, NULL), 0);
        assert_int_equal(qwick_session_cached(s), 192);
    }
    qwick_session_free(s);
    qwick_engine_close(eng);
    qwick_engine_close(plain);
}

/* The caches have keys of sequences up to the original length only, in memory
 * and on disk. */
static void keys_of_long_rope_are_not_kept(void **state)
{
    int32_t a[100];
    struct mode modes[] = {{LONGROPE, .bytes = 64 << 20},
                           {LONGROPE, .dir = temp_dir}};
    struct qwick_engine *plain = open_engine((struct mode){.model = LONGROPE});
    some_ids(a, 100, 10);
    for (size_t i = 0; i < 2; i++) {
        struct qwick_engine *eng = open_engine(modes[i]);
        assert_int_equal(check(eng, plain, a, 100), 0);
        assert_int_equal(check(eng, plain, a, 60), 0);
        assert_int_equal(check(eng, plain, a, 100), 0);
        assert_int_equal(check(eng, plain, a, 64), 0);
        /* a prompt of 64 tokens is short, and its page in memory; it is stored
           when it has 67 */
        assert_int_equal(check(eng, plain, a, 64), modes[i].bytes ? 63 : 0);
        assert_int_equal(check(eng, plain, a, 100), 0);
        qwick_engine_close(eng);
    }
    qwick_engine_close(plain);
}

/* With a budget that is always too small, and prompts that share beginnings. */
static void eviction_does_not_change_results(void **state)
{
    enum { N = 6 };
    int32_t ids[N][200];
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    size_t page = qwick_engine_info(plain)->kv_token_bytes * KV_BLOCK;
    struct qwick_engine *eng =
        open_engine((struct mode){YARN, .bytes = 4 * page});
    uint32_t x = 1;
    for (size_t i = 0; i < N; i++) {
        some_ids(ids[i], 200, (uint32_t)i);
        memcpy(ids[i], ids[0], i * 30 * sizeof(int32_t));
    }
    for (int i = 0; i < 30; i++) {
        x = x * 1664525u + 1013904223u;
        (void)check(eng, plain, ids[(x >> 16) % N], 130 + (x >> 8) % 70);
        assert_true(prefix_bytes(eng->prefix) <= 4 * page);
    }
    qwick_engine_close(eng);
    qwick_engine_close(plain);
}

/* For callers that evaluate with joint steps. */
static void reuse_and_publish_serve_joint_steps(void **state)
{
    int32_t a[200];
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    struct qwick_engine *eng =
        open_engine((struct mode){YARN, .bytes = 64 << 20});
    some_ids(a, 200, 9);
    for (int i = 0; i < 2; i++) {
        struct qwick_session *s = open_session(eng);
        assert_int_equal(qwick_session_reuse(s, a, 199, NULL), 0);
        size_t n = qwick_session_length(s);
        assert_int_equal(n, i ? 192 : 0);
        assert_null(qwick_session_logits(s));
        const struct qwick_step step = {s, a + n, 200 - n, QWICK_ROWS_NONE};
        assert_int_equal(qwick_engine_step(eng, &step, 1, QWICK_LOGITS, NULL),
                         0);
        qwick_session_publish(s);
        qwick_session_free(s);
    }
    assert_int_equal(check(eng, plain, a, 200), 192);
    qwick_engine_close(eng);
    qwick_engine_close(plain);
}

/* ---- on disk ------------------------------------------------------------ */

static struct qwick_cache_entry *list(size_t *n)
{
    struct qwick_cache_entry *v;
    struct qwick_err e;
    assert_ok(qwick_cache_list(temp_dir, &v, n, &e), &e);
    return v;
}

static size_t disk_bytes(void)
{
    size_t n, sum = 0;
    struct qwick_cache_entry *v = list(&n);
    for (size_t i = 0; i < n; i++)
        sum += v[i].n_bytes;
    qwick_cache_list_free(v, n);
    return sum;
}

/* Like check, in a new engine, which stands for a new run. */
static size_t check_run(struct mode m, struct qwick_engine *plain,
                        const int32_t *ids, size_t n, bool warns)
{
    struct qwick_engine *eng = open_engine(m);
    size_t cached = check(eng, plain, ids, n);
    const char *line = warning(0);
    if (warns) {
        assert_non_null(line);
        assert_non_null(strstr(line, "prefix cache: "));
        assert_null(warning(1));
    } else if (line) {
        fail_msg("%s", line);
    }
    qwick_engine_close(eng);
    return cached;
}

static void cached_on_disk_is_as_recomputed(void **state)
{
    static const char *const models[] = {YARN, WIDE, MOE, GEMMA};
    int32_t a[250], b[250], c[250];
    for (size_t m = 0; m < 4; m++) {
        struct mode disk = {models[m], .dir = temp_dir};
        struct mode both = {models[m], .dir = temp_dir, .bytes = 1 << 20};
        struct qwick_engine *plain =
            open_engine((struct mode){.model = models[m]});
        some_ids(a, 250, 10);
        memcpy(b, a, sizeof b);
        some_ids(b + 150, 100, 11);
        memcpy(c, b, sizeof c);
        some_ids(c + 240, 10, 12);
        assert_int_equal(check_run(disk, plain, a, 250, false), 0);
        assert_int_equal(check_run(disk, plain, a, 250, false), 192);
        assert_int_equal(check_run(both, plain, a, 250, false), 192);
        assert_int_equal(check_run(disk, plain, a, 192, false), 191);
        assert_int_equal(check_run(disk, plain, a, 100, false), 99);
        /* differs in the third page; this page becomes an entry */
        assert_int_equal(check_run(disk, plain, b, 250, false), 150);
        assert_int_equal(check_run(disk, plain, b, 250, false), 192);
        assert_int_equal(check_run(disk, plain, c, 250, false), 192);
        assert_int_equal(check_run(disk, plain, a, 250, false), 192);
        size_t n;
        struct qwick_cache_entry *v = list(&n);
        assert_int_equal(n, 2 * (m + 1));
        for (size_t i = 0; i < 2; i++) {
            assert_string_equal(v[i].model, models[m]);
            assert_int_equal(v[i].n_tokens, 192);
            assert_true(v[i].exact && !v[i].damaged);
            assert_string_equal(v[i].kv, "f32");
            /* the latest run used only the first entry */
            assert_int_equal(v[i].first, i ? 128 : 0);
        }
        qwick_cache_list_free(v, n);
        qwick_engine_close(plain);
    }
}

/* Tokens that a new session takes from the cache on disk. */
static size_t cached_in(struct qwick_engine *eng, const int32_t *ids, size_t n)
{
    struct qwick_session *s = open_session(eng);
    sync_to(s, ids, n);
    size_t cached = qwick_session_cached(s);
    qwick_session_free(s);
    return cached;
}

/* What was used last goes to disk first, as far as it fits. */
static void the_trie_is_written_by_last_use(void **state)
{
    enum { N_IDS = 200 };
    int32_t ids[4][N_IDS];
    struct qwick_err e;
    volatile int stop = 1;
    for (uint32_t i = 0; i < 4; i++)
        some_ids(ids[i], N_IDS, 40 + i);
    memcpy(ids[3], ids[2], 70 * sizeof **ids); /* shares a page */
    struct qwick_engine *eng = open_engine(
        (struct mode){.model = YARN, .bytes = 64 << 20, .dir = temp_dir});
    size_t page = eng->model.config.n_layers * 2 * KV_BLOCK * sizeof(float) *
                  eng->model.config.n_kv_heads * eng->model.config.head_dim;
    qwick_engine_close(eng);
    /* room for the three pages of two and the two pages of another one */
    struct mode m = {.model = YARN,
                     .bytes = 64 << 20,
                     .dir = temp_dir,
                     .disk_bytes = 9 * page};
    eng = open_engine(m);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(cached_in(eng, ids[i], N_IDS), i == 3 ? 70 : 0);
    assert_int_equal(cached_in(eng, ids[1], N_IDS), 192);
    assert_ok(qwick_engine_store_prefixes(eng, 0, &stop, &e), &e);
    assert_ok(qwick_engine_store_prefixes(eng, 1e-9, NULL, &e), &e);
    struct qwick_engine *later = open_engine(m);
    assert_int_equal(cached_in(later, ids[1], N_IDS), 0);
    qwick_engine_close(later);
    assert_ok(qwick_engine_store_prefixes(eng, 0, NULL, &e), &e);
    qwick_engine_close(eng);

    /* the two pages of one path were used longest ago; the page that it shares
     * with another one counts as used when that was */
    size_t n_removed;
    assert_int_equal(qwick_cache_gc(temp_dir, 9 * page, &n_removed, NULL, &e),
                     0);
    assert_int_equal(n_removed, 0);
    assert_int_equal(qwick_cache_gc(temp_dir, 7 * page, NULL, NULL, &e), 0);
    later = open_engine(m);
    assert_int_equal(cached_in(later, ids[1], N_IDS), 192);
    assert_int_equal(cached_in(later, ids[3], N_IDS), 192);
    assert_int_equal(cached_in(later, ids[2], N_IDS), 70);
    assert_int_equal(cached_in(later, ids[0], N_IDS), 0);
    qwick_engine_close(later);
}

/* Different models, modes and KV types do not share entries. */
static void what_differs_is_apart(void **state)
{
    int32_t ids[100];
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    struct qwick_engine *other = open_engine((struct mode){.model = WIDE});
    some_ids(ids, 100, 13);
    assert_int_equal(
        check_run((struct mode){YARN, .dir = temp_dir}, plain, ids, 100, false),
        0);
    assert_int_equal(
        check_run((struct mode){WIDE, .dir = temp_dir}, other, ids, 100, false),
        0);
    struct qwick_engine *fast =
        open_engine((struct mode){YARN, .dir = temp_dir, .fast = true});
    for (int i = 0; i < 2; i++) {
        struct qwick_session *s = open_session(fast);
        assert_int_equal(qwick_session_sync(s, ids, 100, NULL), 0);
        assert_int_equal(qwick_session_cached(s), i ? 64 : 0);
        assert_int_equal(qwick_session_store(s, 100, NULL), 0);
        qwick_session_free(s);
    }
    qwick_engine_close(fast);
    assert_int_equal(
        check_run((struct mode){YARN, .dir = temp_dir}, plain, ids, 100, false),
        64);
    qwick_engine_close(plain);
    qwick_engine_close(other);
}

static void copy_model(const char *to)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    assert_true(!mkdir(to, 0700) || errno == EEXIST);
    for (size_t i = 0; i < 2; i++) {
        char from[256], path[1024], *data;
        size_t n;
        snprintf(from, sizeof from, "%s/%s", YARN, names[i]);
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        assert_int_equal(map_read_all(from, 1 << 30, &data, &n, NULL), 0);
        put_file(path, data, n);
        free(data);
    }
}

/* Change one byte of a file in place. keep_time: restore the modification
 * time. */
static void flip_in_place(const char *path, size_t at, bool keep_time)
{
    struct stat st;
    unsigned char c;
    usleep(20000); /* ticks of the file system's clock are up to 10 ms */
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &c, 1, (off_t)at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (keep_time)
        assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(close(fd), 0);
}

/* After an edit while the engine is open, we do not know which weights were
 * used. */
static void changed_in_use(const char *model, const char *path,
                           const int32_t *ids)
{
    struct mode m = {model, .dir = temp_dir};
    struct qwick_engine *eng = open_engine(m);
    struct qwick_err e;
    struct stat st;
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, 100, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    flip_in_place(path, (size_t)st.st_size / 2, true);
    assert_int_equal(qwick_session_store(s, 100, &e), -1);
    assert_non_null(strstr(e.msg, "was changed while it was in use"));
    assert_int_equal(qwick_session_save(s, temp_path("s"), &e), -1);
    assert_non_null(strstr(e.msg, "was changed while it was in use"));
    assert_int_equal(access(temp_path("s"), F_OK), -1);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

/* A change of one byte in the middle of the weights, which the fingerprint does
 * not read. */
static void a_model_that_changes_is_noticed(void **state)
{
    int32_t ids[100];
    char model[256], path[512], *data;
    size_t n;
    some_ids(ids, 100, 14);
    snprintf(model, sizeof model, "%s", temp_path("model"));
    copy_model(model);
    struct mode m = {model, .dir = temp_dir};
    struct qwick_engine *plain = open_engine((struct mode){.model = model});
    assert_int_equal(check_run(m, plain, ids, 100, false), 0);
    assert_int_equal(check_run(m, plain, ids, 100, false), 64);
    qwick_engine_close(plain);
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    assert_int_equal(map_read_all(path, 1 << 30, &data, &n, NULL), 0);
    data[n / 2] ^= 1;
    put_file(path, data, n);
    free(data);
    for (int i = 0; i < 2; i++) {
        plain = open_engine((struct mode){.model = model});
        assert_int_equal(check_run(m, plain, ids, 100, false), 0);
        assert_int_equal(check_run(m, plain, ids, 100, false), 64);
        qwick_engine_close(plain);
        if (!i)
            flip_in_place(path, n / 2, true);
    }
    ids[0] ^= 1; /* nothing is cached */
    changed_in_use(model, path, ids);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", model);
    unlink(path);
    rmdir(model);
}

/* The path of the only entry. */
static char *entry_path(void)
{
    size_t n;
    struct qwick_cache_entry *v = list(&n);
    assert_int_equal(n, 1);
    char *path = strdup(v[0].path);
    qwick_cache_list_free(v, n);
    return path;
}

static void damaged_entries_are_ignored_and_rebuilt(void **state)
{
    int32_t ids[200];
    struct mode m = {YARN, .dir = temp_dir};
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    struct kv_file_head h;
    char *data;
    size_t n;
    some_ids(ids, 200, 15);
    assert_int_equal(check_run(m, plain, ids, 200, false), 0);
    char *path = entry_path();
    assert_int_equal(map_read_all(path, 1 << 30, &data, &n, NULL), 0);
    memcpy(&h, data, sizeof h);
    size_t tables = sizeof h + h.n_tokens * 4 + h.n_pages * 8;
    size_t pages = n - h.n_pages * h.page_bytes;
    for (size_t i = 0; i < n; i += i < tables ? 41 : 4999) {
        if (i >= tables && i < pages)
            i = pages;
        data[i] ^= 0x10;
        put_file(path, data, n);
        data[i] ^= 0x10;
        /* pages before the damage are good */
        size_t good = i < pages ? 0 : (i - pages) / h.page_bytes * KV_BLOCK;
        assert_int_equal(check_run(m, plain, ids, 200, true), good);
        assert_int_equal(check_run(m, plain, ids, 200, false), 192);
        qwick_cache_gc(temp_dir, 0, NULL, NULL, NULL);
        assert_int_equal(check_run(m, plain, ids, 200, false), 0);
    }
    for (size_t i = 0; i < n; i += i < tables ? 97 : 6007) {
        put_file(path, data, i);
        assert_int_equal(check_run(m, plain, ids, 200, true), 0);
        assert_int_equal(check_run(m, plain, ids, 200, false), 192);
    }
    /* an entry whose head names another place, model or class than its file
     * name */
    uint64_t *const fields[] = {&h.first_page, &h.model[0], &h.files,
                                &h.page_bytes, &h.head_dim};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        uint64_t old = *fields[i];
        *fields[i] ^= 1;
        h.head_hash =
            hash_bytes(1, &h, offsetof(struct kv_file_head, head_hash));
        memcpy(data, &h, sizeof h);
        put_file(path, data, n);
        assert_int_equal(check_run(m, plain, ids, 200, true), 0);
        assert_int_equal(check_run(m, plain, ids, 200, false), 192);
        *fields[i] = old;
    }
    /* a directory in place of an entry stays, with a warning */
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    struct qwick_engine *eng = open_engine(m);
    struct qwick_err e;
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, 200, NULL), 0);
    assert_int_equal(qwick_session_cached(s), 0);
    assert_non_null(warning(0));
    assert_int_equal(qwick_session_store(s, 200, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    qwick_session_free(s);
    qwick_engine_close(eng);
    rmdir(path);
    free(path);
    free(data);
    qwick_engine_close(plain);
}

/* An entry is not damaged because a read fails or memory is short. */
static void faults_do_not_remove_entries(void **state)
{
    int32_t ids[200];
    struct mode m = {YARN, .dir = temp_dir, .threads = 1};
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    const struct config *c = &plain->model.config;
    struct kv_cache shape;
    struct kv_page *pages[4];
    size_t n_pages;
    assert_int_equal(kv_init(&shape, plain->kv, c, NULL), 0);
    some_ids(ids, 200, 21);
    assert_int_equal(check_run(m, plain, ids, 200, false), 0);
    char *path = entry_path();
    for (int kind = FAIL_PREAD; kind <= FAIL_MALLOC; kind++) {
#ifdef __SANITIZE_ADDRESS__
        if (kind == FAIL_MALLOC)
            break;
#endif
        int n = 0, left;
        do { /* until each call has failed once */
            struct qwick_engine *eng = open_engine(m);
            struct qwick_err bad = {0};
            fail_at = ++n;
            failing = kind;
            size_t found = prefix_disk_find(eng->disks[0], ids, 200, 0, pages,
                                            &n_pages, NULL, &bad);
            left = fail_at;
            failing = FAIL_NONE;
            if (left <= 0 && found < 192 && kind == FAIL_PREAD)
                assert_non_null(strstr(bad.msg, "Input/output error"));
            while (n_pages > 0)
                kv_page_drop(&shape, pages[--n_pages]);
            qwick_engine_close(eng);
            assert_int_equal(access(path, F_OK), 0);
        } while (left <= 0);
        assert_true(n > 4);
        assert_int_equal(check_run(m, plain, ids, 200, false), 192);
    }
    free(path);
    kv_free(&shape);
    qwick_engine_close(plain);
}

static void the_disk_budget_holds(void **state)
{
    int32_t ids[200];
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    size_t page = qwick_engine_info(plain)->kv_token_bytes * KV_BLOCK;
    size_t entry = 3 * page + KV_FILE_ALIGN;
    struct mode m = {YARN, .dir = temp_dir, .disk_bytes = 3 * entry};
    for (uint32_t i = 0; i < 5; i++) {
        some_ids(ids, 200, 100 + i);
        assert_int_equal(check_run(m, plain, ids, 200, false), 0);
        assert_int_equal(disk_bytes(), (i < 3 ? i + 1 : 3) * entry);
    }
    /* 2, 3 and 4 are stored; using 2 makes 3 the oldest */
    some_ids(ids, 200, 102);
    assert_int_equal(check_run(m, plain, ids, 200, false), 192);
    some_ids(ids, 200, 105);
    assert_int_equal(check_run(m, plain, ids, 200, false), 0);
    some_ids(ids, 200, 103);
    struct mode look = {YARN, .dir = temp_dir, .disk_bytes = 1};
    assert_int_equal(check_run(look, plain, ids, 200, true), 0);
    some_ids(ids, 200, 102);
    assert_int_equal(check_run(look, plain, ids, 200, false), 192);
    /* an engine warns once */
    struct qwick_engine *eng = open_engine(look);
    for (uint32_t i = 0; i < 2; i++) {
        some_ids(ids, 200, 200 + i);
        check(eng, plain, ids, 200);
    }
    assert_non_null(warning(0));
    assert_null(warning(1));
    qwick_engine_close(eng);
    qwick_engine_close(plain);
}

/* An entry is removed before the entries that it depends on. */
static void collection_takes_ends_first(void **state)
{
    int32_t ids[200];
    struct mode m = {YARN, .dir = temp_dir};
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    size_t page = qwick_engine_info(plain)->kv_token_bytes * KV_BLOCK, n, bytes;
    some_ids(ids, 200, 16);
    assert_int_equal(check_run(m, plain, ids, 70, false), 0);
    assert_int_equal(check_run(m, plain, ids, 130, false), 64);
    assert_int_equal(check_run(m, plain, ids, 200, false), 128);
    assert_int_equal(disk_bytes(), 3 * (page + KV_FILE_ALIGN));
    struct mode look = {YARN, .dir = temp_dir, .disk_bytes = 1};
    for (size_t left = 3; left-- > 0;) {
        assert_int_equal(qwick_cache_gc(temp_dir, left * (page + KV_FILE_ALIGN),
                                        &n, &bytes, NULL),
                         0);
        assert_int_equal(n, 1);
        assert_int_equal(bytes, page + KV_FILE_ALIGN);
        assert_int_equal(check_run(look, plain, ids, 200, true), left * 64);
    }
    qwick_engine_close(plain);
}

/* Other programs' files are never removed, and our temporary files only when
 * they are old. */
static void collection_spares_what_is_not_ours(void **state)
{
    static const char *const names[] = {
        "notes.txt",
        "000000-0123456789abcdef.kv.bak",
        "000000-0123456789abcdeg.kv",
        "000000-0123456789abcdef.kv.tmp-0123456789abcdef",
        "000001-0123456789abcdef.kv.tmp-0123456789abcdef",
        "000001-0123456789abcdef.kv",
    };
    char dir[1024], path[2048];
    size_t n, gone = 0;
    mkdir(temp_path("prefix-1"), 0700);
    snprintf(dir, sizeof dir, "%s",
             temp_path("prefix-1/00112233445566778899aabbccddeeff"));
    assert_int_equal(mkdir(dir, 0700), 0);
    for (size_t i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        put_file(path, "x", 1);
        const struct timespec old[2] = {{1, 0}, {1, 0}};
        if (i == 4)
            assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    struct qwick_cache_entry *v = list(&n);
    assert_int_equal(n, 1);
    assert_true(v[0].damaged);
    qwick_cache_list_free(v, n);
    assert_int_equal(qwick_cache_gc(temp_dir, 1, &n, NULL, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(qwick_cache_gc(temp_dir, 0, &n, NULL, NULL), 0);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        gone += unlink(path) != 0;
    }
    assert_int_equal(gone, 3);
    rmdir(dir);
}

static void a_directory_that_cannot_be_had_is_no_failure(void **state)
{
    int32_t ids[100];
    some_ids(ids, 100, 17);
    struct qwick_engine *eng =
        open_engine((struct mode){YARN, .dir = temp_path("file")});
    struct qwick_err e;
    temp_write("file", "x", 1);
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_session_sync(s, ids, 100, NULL), 0);
    assert_null(warning(0));
    /* less than a page: nothing to write */
    assert_int_equal(qwick_session_store(s, 63, NULL), 0);
    assert_int_equal(qwick_session_store(s, 100, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "cannot create: Not a directory"));
    qwick_session_free(s);
    qwick_engine_close(eng);
    /* a directory that cannot be used gives a warning at the start */
    eng = open_engine((struct mode){YARN, .dir = temp_path("file")});
    assert_non_null(strstr(warning(0), "file: is not a directory; not used"));
    qwick_engine_close(eng);
    temp_remove("file");
    /* parents are created, and only their owner can read them */
    char *dir = strdup(temp_path("a/b"));
    eng = open_engine((struct mode){YARN, .dir = dir});
    assert_int_equal(qwick_session_create(&s, eng, 0, NULL), 0);
    assert_int_equal(qwick_session_sync(s, ids, 100, NULL), 0);
    assert_int_equal(qwick_session_store(s, 100, NULL), 0);
    struct stat st;
    assert_int_equal(stat(temp_path("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(qwick_cache_gc(dir, 0, NULL, NULL, NULL), 0);
    rmdir(temp_path("a/b/prefix-1"));
    rmdir(dir);
    assert_int_equal(rmdir(temp_path("a")), 0);
    free(dir);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

/* Check a run whose prefix cache is refused for this reason. */
static void refused(struct mode m, struct qwick_engine *plain,
                    const int32_t *ids, const char *why)
{
    struct qwick_engine *eng = open_engine(m);
    assert_int_equal(check(eng, plain, ids, 200), 0);
    const char *line = warning(0);
    if (!line || !strstr(line, why))
        fail_msg("%s; expected %s", line ? line : "none", why);
    assert_null(warning(1));
    qwick_engine_close(eng);
}

/* Directories and files that other users may have written are refused. */
static void what_others_could_write_is_refused(void **state)
{
    int32_t ids[200];
    char class[1024];
    struct qwick_engine *plain = open_engine((struct mode){.model = YARN});
    struct mode m = {YARN, .dir = temp_dir};
    some_ids(ids, 200, 22);
    assert_int_equal(check_run(m, plain, ids, 200, false), 0);
    char *path = entry_path(), *root = strdup(temp_path("prefix-1"));
    snprintf(class, sizeof class, "%.*s", (int)(strrchr(path, '/') - path),
             path);
    const struct {
        const char *path;
        mode_t refused[2], fine[2];
    } cases[] = {
        {path, {0660, 0606}, {0640, 0444}},
        {class, {0770, 0707}, {0750, 0755}},
        {root, {0770, 0707}, {0750, 0755}},
        {temp_dir, {0707, 0777}, {0775, 01777}},
    };
    for (size_t i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            assert_int_equal(chmod(cases[i].path, cases[i].fine[k]), 0);
            assert_int_equal(check_run(m, plain, ids, 200, false), 192);
            assert_int_equal(chmod(cases[i].path, cases[i].refused[k]), 0);
            refused(m, plain, ids, "may write to it (mode ");
            /* an entry is replaced by our own; a directory stays refused */
            if (i == 0)
                assert_int_equal(check_run(m, plain, ids, 200, false), 192);
        }
        assert_int_equal(chmod(cases[i].path, i ? 0700 : 0600), 0);
        if (geteuid() != 0) /* only root can change the owner of a file */
            continue;
        assert_int_equal(chown(cases[i].path, 12345, (gid_t)-1), 0);
        refused(m, plain, ids, "belongs to user 12345, this is user 0");
        assert_int_equal(chown(cases[i].path, 0, (gid_t)-1), 0);
        assert_int_equal(check_run(m, plain, ids, 200, false), 192);
    }
    /* links in place of the directories that we make */
    char *moved = strdup(temp_path("moved"));
    const char *const links[] = {path, class, root};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(rename(links[i], moved), 0);
        assert_int_equal(symlink(moved, links[i]), 0);
        refused(m, plain, ids, "symbolic link");
        unlink(links[i]);
        assert_int_equal(rename(moved, links[i]), 0);
        assert_int_equal(check_run(m, plain, ids, 200, false), 192);
    }
    free(moved);
    free(path);
    free(root);
    qwick_engine_close(plain);
}

/* Failures of mkdir, and of fsync of a directory, are reported. */
static void faults_of_directories_are_told(void **state)
{
    int32_t ids[100];
    struct qwick_err e;
    some_ids(ids, 100, 23);
    for (int kind = FAIL_MKDIR; kind <= FAIL_FSYNC; kind++) {
        int n = 0, left;
        do {
            char *dir = strdup(temp_path("a/b"));
            struct qwick_engine *eng =
                open_engine((struct mode){YARN, .dir = dir});
            struct qwick_session *s = open_session(eng);
            assert_int_equal(qwick_session_sync(s, ids, 100, NULL), 0);
            fail_at = ++n;
            failing = kind;
            int rc = qwick_session_store(s, 100, &e);
            left = fail_at;
            failing = FAIL_NONE;
            /* if the directory exists, mkdir may fail */
            if (left <= 0 && (kind == FAIL_FSYNC || rc))
                assert_int_equal(rc, -1);
            if (rc)
                assert_non_null(strstr(e.msg, kind == FAIL_MKDIR
                                                  ? "Read-only file system"
                                                  : "Input/output error"));
            else
                assert_true(left > 0 || (kind == FAIL_MKDIR && n < 3));
            qwick_session_free(s);
            qwick_engine_close(eng);
            qwick_cache_gc(dir, 0, NULL, NULL, NULL);
            rmdir(temp_path("a/b/prefix-1"));
            rmdir(dir);
            rmdir(temp_path("a"));
            free(dir);
        } while (left <= 0);
        assert_true(n >= 5); /* mkdir of a, b, prefix-1 and the class; the
                                entry */
    }
}

static int clear(void **state)
{
    qwick_cache_gc(temp_dir, 0, NULL, NULL, NULL);
    rmdir(temp_path("prefix-1"));
    temp_clear();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_put_in),
        cmocka_unit_test(the_budget_holds_and_old_leaves_go_first),
        cmocka_unit_test(random_use_keeps_the_invariants),
        cmocka_unit_test(many_siblings_are_told_apart),
        cmocka_unit_test(ends_within_a_page_are_kept),
        cmocka_unit_test(looking_leaves_no_trace),
        cmocka_unit_test(cached_in_memory_is_as_recomputed),
        cmocka_unit_test(shared_pages_are_never_written),
        cmocka_unit_test_teardown(keys_of_long_rope_are_not_kept, clear),
        cmocka_unit_test(eviction_does_not_change_results),
        cmocka_unit_test(reuse_and_publish_serve_joint_steps),
        cmocka_unit_test_teardown(cached_on_disk_is_as_recomputed, clear),
        cmocka_unit_test_teardown(what_differs_is_apart, clear),
        cmocka_unit_test_teardown(a_model_that_changes_is_noticed, clear),
        cmocka_unit_test_teardown(damaged_entries_are_ignored_and_rebuilt,
                                  clear),
        cmocka_unit_test_teardown(faults_do_not_remove_entries, clear),
        cmocka_unit_test_teardown(the_disk_budget_holds, clear),
        cmocka_unit_test_teardown(the_trie_is_written_by_last_use, clear),
        cmocka_unit_test_teardown(collection_takes_ends_first, clear),
        cmocka_unit_test_teardown(collection_spares_what_is_not_ours, clear),
        cmocka_unit_test_teardown(what_others_could_write_is_refused, clear),
        cmocka_unit_test_teardown(faults_of_directories_are_told, clear),
        cmocka_unit_test_teardown(a_directory_that_cannot_be_had_is_no_failure,
                                  clear),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
