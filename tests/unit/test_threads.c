/* Engines in several threads, and in a child process. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines.h"
#include "qwick.h"
#include "own_sampling.h"

enum { N_THREADS = 3, N_TOKENS = 24 };

static const char question[] = "list all listening tcp ports";

/* A sampled answer of an engine, as ids [N_TOKENS]. Returns -1 on failure. */
static int answer(struct qwick_engine *eng, int32_t *ids)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_session *ses = NULL;
    struct qwick_chat *chat = NULL;
    struct qwick_result r = {0};
    int32_t *prompt = NULL;
    size_t n;
    o.max_tokens = N_TOKENS;
    o.ignore_eos = true;
    own_sampling(&o)->seed = 5;
    int bad =
        qwick_chat_create(&chat, NULL) ||
        qwick_chat_add(chat, "user", question, sizeof question - 1, NULL) ||
        qwick_chat_encode(chat, eng, NULL, NULL, 0, &prompt, &n, &o.in_think,
                          NULL) ||
        qwick_session_create(&ses, eng, 0, NULL) ||
        qwick_generate(ses, prompt, n, &o, &r, NULL) || r.n_tokens != N_TOKENS;
    if (!bad)
        memcpy(ids, r.tokens, N_TOKENS * sizeof *ids);
    qwick_result_free(&r);
    qwick_session_free(ses);
    qwick_chat_free(chat);
    free(prompt);
    return bad ? -1 : 0;
}

static struct qwick_engine *open_engine(void)
{
    struct qwick_engine_options o = qwick_engine_defaults();
    struct qwick_engine *eng;
    o.threads = 2;
    return qwick_engine_open(&eng, &o, NULL) ? NULL : eng;
}

struct job {
    struct qwick_engine *eng;
    int32_t ids[N_TOKENS];
    int failed;
};

static void *work(void *arg)
{
    struct job *j = arg;
    for (int i = 0; i < 3 && !j->failed; i++)
        j->failed = answer(j->eng, j->ids);
    return NULL;
}

static void threads_have_an_engine_each(void **state)
{
    struct job jobs[N_THREADS] = {0};
    pthread_t threads[N_THREADS];
    int32_t want[N_TOKENS];
    for (int i = 0; i < N_THREADS; i++)
        assert_non_null(jobs[i].eng = open_engine());
    assert_int_equal(answer(jobs[0].eng, want), 0);
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(jobs[i].failed, 0);
        assert_memory_equal(jobs[i].ids, want, sizeof want);
    }
    /* closing one engine does not affect the others; this one was used by
       another thread than the one that opened it */
    qwick_engine_close(jobs[0].eng);
    assert_int_equal(answer(jobs[1].eng, jobs[1].ids), 0);
    assert_memory_equal(jobs[1].ids, want, sizeof want);
    for (int i = 1; i < N_THREADS; i++)
        qwick_engine_close(jobs[i].eng);
}

static void a_child_opens_its_own_engine(void **state)
{
    struct qwick_engine *eng = open_engine();
    int32_t want[N_TOKENS], ids[N_TOKENS];
    int status;
    assert_non_null(eng);
    assert_int_equal(answer(eng, want), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct qwick_engine *own = open_engine();
        alarm(60); /* in case it waits forever for missing threads */
        if (!own || answer(own, ids) || memcmp(ids, want, sizeof want))
            _exit(1);
        qwick_engine_close(own);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    /* the parent's engine still works */
    assert_int_equal(answer(eng, ids), 0);
    assert_memory_equal(ids, want, sizeof want);
    qwick_engine_close(eng);
}

struct called {
    pthread_mutex_t lock;
    pthread_t by[8];
    size_t n;
};

static void note_call(void *ctx)
{
    struct called *c = ctx;
    pthread_mutex_lock(&c->lock);
    if (c->n < 8)
        c->by[c->n] = pthread_self();
    c->n++;
    pthread_mutex_unlock(&c->lock);
}

static void each_thread_is_called_once(void **state)
{
    for (int n = 1; n <= 3; n++) {
        struct called c = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct qwick_engine *eng = engine_with(.threads = n);
        size_t n_mine = 0;
        qwick_engine_each_thread(eng, note_call, &c);
        assert_int_equal(c.n, n);
        for (size_t i = 0; i < c.n; i++) {
            n_mine += pthread_equal(c.by[i], pthread_self()) != 0;
            for (size_t k = 0; k < i; k++)
                assert_false(pthread_equal(c.by[i], c.by[k]));
        }
        assert_int_equal(n_mine, 1);
        qwick_engine_close(eng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_have_an_engine_each),
        cmocka_unit_test(a_child_opens_its_own_engine),
        cmocka_unit_test(each_thread_is_called_once),
    };
    cmocka_set_test_filter(getenv("TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
