/* Threads call the text functions of an engine while another thread answers
 * with it. All results equal those of an engine with a single thread.
 * `make check-races` runs this under the thread sanitizer. */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "engines.h"

/* Rounds of a thread with text functions, and of the thread with answers. */
enum { N_TEXT_THREADS = 2, N_TEXT_ROUNDS = 12, N_ANSWER_ROUNDS = 3 };

struct work {
    struct qwick_engine *eng;
    uint64_t hash; /* of all results */
    struct qwick_err e;
};

static void add_hash(struct work *w, const void *p, size_t n)
{
    w->hash = hash_bytes(w->hash, p, n);
}

static uint32_t next(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 16) % n;
}

/* Words of several scripts, control tokens, and bytes that are not UTF-8. */
static int make_text(struct buf *out, uint32_t seed)
{
    static const uint32_t bases[] = {'a', 'A', 0xE0, 0x3B1, 0x4E00, 0x1F600};
    int rc = 0;
    for (size_t i = 0; i < 600; i++) {
        uint32_t base = bases[next(&seed, 6)];
        char u[4];
        for (size_t len = 1 + next(&seed, 9); len; len--)
            rc |= buf_append(out, u, utf8_encode(base + next(&seed, 26), u));
        rc |= buf_putc(out, ' ');
        if (next(&seed, 40) == 0)
            rc |= buf_puts(out, "<|im_end|>");
        if (next(&seed, 40) == 0)
            rc |= buf_putc(out, (char)(0x80 + next(&seed, 64)));
    }
    return rc;
}

static int tokens_round(struct work *w, uint32_t seed)
{
    struct buf text = {0};
    int32_t *ids = NULL;
    size_t n, n_back, n_one;
    char *back = NULL, *one = NULL;
    int rc = make_text(&text, seed) ||
             qwick_tokenize(w->eng, text.data, text.len, seed & 1, &ids, &n,
                            &w->e) ||
             qwick_detokenize(w->eng, ids, n, false, &back, &n_back, &w->e) ||
             qwick_token_text(w->eng, (int32_t)(seed * 37 % 6000), true, &one,
                              &n_one, &w->e);
    if (!rc) {
        add_hash(w, ids, n * sizeof *ids);
        add_hash(w, back, n_back);
        add_hash(w, one, n_one);
    }
    free(ids);
    free(back);
    free(one);
    buf_free(&text);
    return rc;
}

static int chat_round(struct work *w, uint32_t seed)
{
    char ask[64];
    struct qwick_chat *chat = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n, n_text;
    bool in_think;
    int len = snprintf(ask, sizeof ask, "list files newer than %u days", seed);
    int rc = qwick_chat_create(&chat, &w->e) ||
             qwick_chat_add(chat, "user", ask, (size_t)len, &w->e) ||
             qwick_chat_render(chat, w->eng, NULL, &text, &n_text, &w->e) ||
             qwick_chat_encode(chat, w->eng, NULL, "ls", 2, &ids, &n, &in_think,
                               &w->e);
    if (!rc) {
        add_hash(w, text, n_text);
        add_hash(w, ids, n * sizeof *ids);
    }
    free(text);
    free(ids);
    qwick_chat_free(chat);
    return rc;
}

static const struct {
    enum qwick_constraint_kind kind;
    const char *text;
} constraints[] = {
    {QWICK_CONSTRAINT_REGEX, "[^\"]*x?[a-y]{2,9}"},
    {QWICK_CONSTRAINT_REGEX, "[^\"\\\\]{3,}"},
    {QWICK_CONSTRAINT_CHOICES, "yes,no,perhaps"},
    {QWICK_CONSTRAINT_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},"
     "\"b\":{\"type\":\"number\"}},\"required\":[\"a\"]}"},
    {QWICK_CONSTRAINT_GBNF, "root ::= [^!]+ | \"!\" root"},
};
enum { N_CONSTRAINTS = sizeof constraints / sizeof *constraints };

static struct qwick_constraint *compile(struct work *w, size_t i)
{
    struct qwick_constraint_options o = qwick_constraint_defaults();
    struct qwick_constraint *c;
    o.kind = constraints[i].kind;
    o.text = constraints[i].text;
    o.n_text = strlen(o.text);
    return qwick_constraint_create(&c, w->eng, &o, &w->e) ? NULL : c;
}

static void *text_thread(void *ctx)
{
    struct work *w = ctx;
    int rc = 0;
    for (uint32_t i = 1; i <= N_TEXT_ROUNDS && !rc; i++) {
        struct qwick_constraint *c = compile(w, i % N_CONSTRAINTS);
        rc = !c || tokens_round(w, i) || chat_round(w, i);
        qwick_constraint_free(c);
    }
    return NULL;
}

static int keep_answer(void *ctx, void *tag, struct qwick_result *r,
                       const struct qwick_err *e)
{
    struct work *w = ctx;
    if (e)
        w->e = *e;
    add_hash(w, r->tokens, r->n_tokens * sizeof *r->tokens);
    add_hash(w, r->text, r->n_text);
    return 0;
}

/* Answer under each of the constraints at once. */
static void answer_round(struct work *w, int32_t *prompt, size_t n)
{
    struct qwick_batch_options bo = qwick_batch_defaults();
    struct qwick_constraint *c[N_CONSTRAINTS] = {0};
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_sampling s = qwick_sampling_neutral();
    struct qwick_batch *b = NULL;
    bo.done = keep_answer;
    bo.done_ctx = w;
    o.max_tokens = 12;
    o.sampling = &s;
    int rc = qwick_batch_create(&b, w->eng, &bo, &w->e);
    for (size_t i = 0; i < N_CONSTRAINTS && !rc; i++) {
        s.seed = i;
        o.constraint = c[i] = compile(w, i);
        rc = !c[i] || qwick_batch_add(b, prompt, n, &o, NULL, &w->e);
    }
    if (!rc)
        rc = qwick_batch_run(b, &w->e);
    qwick_batch_free(b);
    for (size_t i = 0; i < N_CONSTRAINTS; i++)
        qwick_constraint_free(c[i]);
}

static void *answer_thread(void *ctx)
{
    struct work *w = ctx;
    int32_t *ids;
    size_t n;
    if (qwick_tokenize(w->eng, "list files", 10, false, &ids, &n, &w->e))
        return NULL;
    for (size_t i = 0; i < N_ANSWER_ROUNDS && !w->e.code; i++)
        answer_round(w, ids, n);
    free(ids);
    return NULL;
}

static struct qwick_engine *open_engine(void)
{
    return engine_with(.exact = true, .threads = 1);
}

static void text_functions_run_beside_answers(void **state)
{
    struct qwick_engine *eng = open_engine();
    struct work text = {.eng = eng}, answers = {.eng = eng};
    text_thread(&text);
    answer_thread(&answers);
    qwick_engine_close(eng);
    if (text.e.code || answers.e.code)
        fail_msg("%s%s", text.e.msg, answers.e.msg);

    /* an engine that has not spelled or cached anything yet */
    eng = open_engine();
    struct work many[N_TEXT_THREADS + 1] = {0};
    pthread_t threads[N_TEXT_THREADS + 1];
    for (size_t i = 0; i <= N_TEXT_THREADS; i++) {
        many[i].eng = eng;
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i ? text_thread : answer_thread,
                                        &many[i]),
                         0);
    }
    for (size_t i = 0; i <= N_TEXT_THREADS; i++)
        pthread_join(threads[i], NULL);
    qwick_engine_close(eng);
    for (size_t i = 0; i <= N_TEXT_THREADS; i++) {
        if (many[i].e.code)
            fail_msg("%s", many[i].e.msg);
        assert_true(many[i].hash == (i ? text.hash : answers.hash));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_functions_run_beside_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
