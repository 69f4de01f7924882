/* Each allocation of the library fails in turn: the error has the code for
 * memory, nothing leaks, and afterwards everything works.
 *
 * The linker sends the library's calls of the allocator to the functions below
 * (--wrap, see the Makefile). Calls by other libraries do not fail here;
 * tests/cli/faults.bats is about them. We note what the library allocates and
 * does not free; with SAN=1, LeakSanitizer looks for leaks of all kinds, too.
 */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "own_sampling.h"
#include "qwick.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
enum { SANITIZED = 1 };
static int leaks(void)
{
    return __lsan_do_recoverable_leak_check();
}
#else
enum { SANITIZED = 0 };
static int leaks(void)
{
    return 0;
}
#endif

void *__real_malloc(size_t n);
void *__real_calloc(size_t k, size_t n);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void __wrap_free(void *p);

/* ---- what is allocated ----------------------------------------------------
 */

/* The addresses that this run has allocated and not freed: a hash table in
 * which 0 is an empty place and 1 a removed address. */
enum { PLACES = 1 << 16 };

static uintptr_t live[PLACES];
static size_t n_live, n_noted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The place of an address, or the empty place where its search ends. */
static size_t place(uintptr_t at)
{
    size_t i = (size_t)(at >> 4) * 0x9e3779b1u % PLACES;
    while (live[i] && live[i] != at)
        i = (i + 1) % PLACES;
    return i;
}

static void *note(void *p)
{
    pthread_mutex_lock(&lock);
    size_t i = place((uintptr_t)p);
    if (p && !live[i] && ++n_noted < PLACES / 2) {
        live[i] = (uintptr_t)p;
        n_live++;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void forget(void *p)
{
    pthread_mutex_lock(&lock);
    size_t i = place((uintptr_t)p);
    if (p && live[i]) {
        live[i] = 1;
        n_live--;
    }
    pthread_mutex_unlock(&lock);
}

static void forget_all(void)
{
    memset(live, 0, sizeof live);
    n_live = n_noted = 0;
}

static size_t n_calls, fail_at;
static bool fail_later; /* all later calls fail, too */

static bool fails(void)
{
    size_t n = __atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED);
    return fail_at && (n == fail_at || (n > fail_at && fail_later));
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : note(__real_malloc(n));
}

void *__wrap_calloc(size_t k, size_t n)
{
    return fails() ? NULL : note(__real_calloc(k, n));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    /* before, because another thread may get the address at once */
    forget(p);
    return note(__real_realloc(p, n));
}

void __wrap_free(void *p)
{
    forget(p);
    __real_free(p);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : note(__real_aligned_alloc(align, n));
}

/* ---- what the library does ----------------------------------------------- */

/* What a task gives: two runs without a fault give equal results. */
struct outcome {
    size_t n_results;
    uint64_t hash;
    bool partial; /* a sequence of a batch failed */
};

/* Add a result; their order does not matter. */
static void take(struct outcome *o, const int32_t *tokens, size_t n)
{
    uint64_t h = n + 1;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint64_t)(tokens[i] + 1)) * 0x100000001b3u;
    o->n_results++;
    o->hash += h;
}

static int on_batch(void *ctx, void *tag, struct qwick_result *r,
                    const struct qwick_err *e)
{
    struct outcome *o = ctx;
    (void)tag;
    if (e) {
        /* the sequence failed, and the others go on */
        assert_int_equal(e->code, QWICK_ERR_MEMORY);
        o->partial = true;
        return 0;
    }
    take(o, r->tokens, r->n_tokens);
    return 0;
}

static const int32_t ids[] = {5, 6, 7, 8, 9, 10, 11};

static struct qwick_generate_options short_answer(void)
{
    struct qwick_generate_options g = qwick_generate_defaults();
    own_sampling(&g)->temperature = 1;
    own_sampling(&g)->seed = 3;
    g.max_tokens = 4;
    g.ignore_eos = true;
    return g;
}

static int run_open(struct qwick_engine *eng, struct outcome *o,
                    struct qwick_err *e)
{
    (void)eng;
    (void)e;
    o->n_results++;
    return 0;
}

static int run_generate(struct qwick_engine *eng, struct outcome *o,
                        struct qwick_err *e)
{
    struct qwick_generate_options g = short_answer();
    struct qwick_session *s = NULL, *fork = NULL;
    struct qwick_result r = {0};
    int rc = -1;
    if (qwick_session_create(&s, eng, 0, e))
        return -1;
    if (!qwick_session_sync(s, ids, 7, e) && !qwick_session_fork(&fork, s, e) &&
        !qwick_generate(fork, ids, 7, &g, &r, e)) {
        take(o, r.tokens, r.n_tokens);
        rc = 0;
    }
    qwick_result_free(&r);
    qwick_session_free(fork);
    qwick_session_free(s);
    return rc;
}

static int run_batch(struct qwick_engine *eng, struct outcome *o,
                     struct qwick_err *e)
{
    struct qwick_batch_options bo = {
        .size = sizeof(bo), .max_batch = 2, .done = on_batch, .done_ctx = o};
    struct qwick_generate_options g = short_answer();
    struct qwick_batch *b = NULL;
    int rc = -1;
    if (qwick_batch_create(&b, eng, &bo, e))
        return -1;
    if (!qwick_batch_add(b, ids, 7, &g, NULL, e) &&
        !qwick_batch_add(b, ids, 3, &g, NULL, e) &&
        !qwick_batch_add(b, ids + 1, 5, &g, NULL, e))
        rc = qwick_batch_run(b, e);
    qwick_batch_free(b);
    return rc;
}

static int run_text(struct qwick_engine *eng, struct outcome *o,
                    struct qwick_err *e)
{
    static const char text[] = "list all files, äöü 😀";
    int32_t *out = NULL;
    char *back = NULL;
    size_t n = 0, n_back = 0;
    int rc = qwick_tokenize(eng, text, strlen(text), true, &out, &n, e);
    if (!rc) {
        take(o, out, n);
        rc = qwick_detokenize(eng, out, n, false, &back, &n_back, e);
    }
    if (!rc)
        assert_memory_equal(back, text, strlen(text));
    free(out);
    free(back);
    return rc;
}

/* A chat of which each message needs another form for AGENTS. */
static int run_chat(struct qwick_engine *eng, struct outcome *o,
                    struct qwick_err *e)
{
    static const char json[] =
        "[{\"role\":\"system\",\"content\":\"s\"},"
        "{\"role\":\"developer\",\"content\":\"d\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
        "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"k\\\":1}\"}}]},"
        "{\"role\":\"system\",\"content\":\"t\"}]";
    struct qwick_chat *c = NULL;
    int32_t *out = NULL;
    size_t n = 0;
    bool in_think;
    int rc = qwick_chat_create(&c, e) ||
             qwick_chat_add_json(c, json, sizeof json - 1, e) ||
             qwick_chat_encode(c, eng, NULL, NULL, 0, &out, &n, &in_think, e);
    if (!rc)
        take(o, out, n);
    free(out);
    qwick_chat_free(c);
    return rc;
}

#define AGENTS "tests/data/agents.jinja"

struct task {
    const char *model; /* NULL: the built-in one */
    int (*run)(struct qwick_engine *eng, struct outcome *o,
               struct qwick_err *e);
    const char *chat_template; /* NULL: the model's */
};

static int perform(const struct task *t, struct outcome *o, struct qwick_err *e)
{
    struct qwick_engine_options options = qwick_engine_defaults();
    struct qwick_engine *eng = NULL;
    options.model = t->model;
    options.chat_template = t->chat_template;
    options.threads = 1;
    options.exact = true;
    if (qwick_engine_open(&eng, &options, e)) {
        assert_null(eng);
        return -1;
    }
    int rc = t->run(eng, o, e);
    qwick_engine_close(eng);
    return rc;
}

/* ---- the sweep ----------------------------------------------------------- */

/* Fail allocation n of a task. */
static void disturb(const struct task *t, size_t n, bool later,
                    const struct outcome *want)
{
    struct outcome o = {0};
    struct qwick_err e = {0};
    forget_all();
    n_calls = 0;
    fail_at = n;
    fail_later = later;
    int rc = perform(t, &o, &e);
    fail_at = 0;
    if (rc && e.code != QWICK_ERR_MEMORY)
        fail_msg("allocation %zu: code %d: %s", n, (int)e.code, e.msg);
    if (rc && !strstr(e.msg, "memory"))
        fail_msg("allocation %zu: %s", n, e.msg);
    if (!rc && !o.partial &&
        (o.hash != want->hash || o.n_results != want->n_results))
        fail_msg("allocation %zu: another result", n);
    if (n_live || leaks())
        fail_msg("allocation %zu: %zu are not freed", n, n_live);
}

static void sweep(const struct task *t)
{
    struct outcome want = {0}, again = {0};
    struct qwick_err e;
    /* what stays for the life of the process is allocated the first time */
    assert_ok(perform(t, &again, &e), &e);
    n_calls = 0;
    assert_ok(perform(t, &want, &e), &e);
    size_t total = n_calls;
    assert_true(total > 20 && n_noted < PLACES / 2);
    /* the check for leaks takes long */
    size_t step = SANITIZED && !getenv("QWICK_FAULTS") ? 7 : 1;
    for (size_t n = 1; n <= total; n += step) {
        disturb(t, n, false, &want);
        disturb(t, n, true, &want);
    }
    again = (struct outcome){0};
    assert_int_equal(perform(t, &again, &e), 0);
    assert_true(again.hash == want.hash && again.n_results == want.n_results);
    print_message("    %zu allocations\n", total);
}

#define MODELS "tests/golden/models/"

static void engines(void **state)
{
    static const char *const models[] = {NULL,
                                         MODELS "tied-bf16",
                                         MODELS "sharded-bf16",
                                         MODELS "mlx4",
                                         MODELS "moe",
                                         MODELS "qwen35-tied",
                                         MODELS "gemma3-gqa"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        sweep(&(struct task){models[i], run_open, NULL});
}

static void generation(void **state)
{
    sweep(&(struct task){MODELS "tied-bf16", run_generate, NULL});
    sweep(&(struct task){MODELS "qwen35-tied", run_generate, NULL});
}

static void batches(void **state)
{
    sweep(&(struct task){MODELS "tied-bf16", run_batch, NULL});
}

static void texts(void **state)
{
    sweep(&(struct task){NULL, run_text, NULL});
}

static void chats(void **state)
{
    sweep(&(struct task){NULL, run_chat, AGENTS});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines), cmocka_unit_test(generation),
        cmocka_unit_test(batches), cmocka_unit_test(texts),
        cmocka_unit_test(chats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
