/* The scheduler with a toy task. Sharing passes and pages, waiting, cutting and
 * preemption do not change outputs: each run gets the same as alone. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "engine/runs/runs.h"
#include "engines.h"

#define SMALL "tests/golden/models/tied-bf16"
/* Sequences of more than ORIGINAL tokens rotate all keys by other
 * frequencies. */
#define LONGROPE "tests/golden/families/phi3-crossing"

enum { VOCAB = 320, N_RUNS = 12, LONGEST = 200, ORIGINAL = 64 };

static struct qwick_engine *open_model(const char *model, size_t chunk)
{
    struct qwick_engine *eng =
        engine_with(.model = model, .exact = true, .threads = 2,
                    .prefill_chunk = chunk);
    assert_int_equal(eng->model.config.vocab_size, VOCAB);
    return eng;
}

static struct qwick_engine *open_engine(size_t chunk)
{
    return open_model(SMALL, chunk);
}

struct text {
    int32_t ids[LONGEST];
    size_t n;
    float *rows; /* [n, VOCAB] outputs of the text alone */
};

struct toy {
    struct run run; /* must be first */
    const struct text *text;
    size_t n_rows; /* outputs seen */
    int ended;     /* 1: normally; 2: out of memory; 3: its deadline passed */
};

/* State of the task. */
struct work {
    struct toy toys[N_RUNS];
    size_t order[N_RUNS], n_ended;
    struct qwick_err why; /* of the last run that failed */
};

static int keep_row(void *ctx, size_t pos, const float *logits)
{
    struct text *t = ctx;
    memcpy(t->rows + pos * VOCAB, logits, VOCAB * sizeof *logits);
    return 0;
}

/* Make texts of different lengths that share their first `common` tokens. */
static struct text *make_texts(size_t common)
{
    struct qwick_engine *eng = open_engine(0);
    struct text *all = calloc(N_RUNS, sizeof *all);
    uint32_t x = 7;
    struct qwick_session *s = open_session(eng);
    for (size_t i = 0; i < N_RUNS; i++) {
        struct text *t = &all[i];
        t->n = common + 1 + (i + 1) * 37 % (LONGEST - common);
        for (size_t k = 0; k < t->n; k++) {
            x = x * 1664525u + 1013904223u;
            t->ids[k] =
                i && k < common ? all[0].ids[k] : (int32_t)((x >> 16) % VOCAB);
        }
        t->ids[common] = (int32_t)i; /* the first token that differs */
        t->rows = malloc(t->n * VOCAB * sizeof *t->rows);
        assert_int_equal(
            qwick_session_all_logits(s, t->ids, t->n, keep_row, t, NULL), 0);
    }
    qwick_session_free(s);
    qwick_engine_close(eng);
    return all;
}

static void free_texts(struct text *all)
{
    for (size_t i = 0; i < N_RUNS; i++)
        free(all[i].rows);
    free(all);
}

/* ---- tasks -------------------------------------------------------------- */

static int row(struct runs *s, struct run *r, size_t i, const float *logits,
               struct qwick_err *e)
{
    struct toy *t = (struct toy *)r;
    (void)s;
    (void)e;
    assert_memory_equal(logits, t->text->rows + i * VOCAB,
                        VOCAB * sizeof *logits);
    t->n_rows++;
    return 0;
}

static int ended(struct runs *s, struct run *r, struct qwick_err *e)
{
    struct work *w = s->ctx;
    struct toy *t = (struct toy *)r;
    (void)e;
    for (size_t i = 0; i < s->n_live; i++)
        assert_ptr_not_equal(s->live[i], r);
    if (!t->ended)
        t->ended = 1;
    w->order[w->n_ended++] = (size_t)(t - w->toys);
    return 0;
}

static void fail_run(struct runs *s, struct run *r, const struct qwick_err *why)
{
    struct work *w = s->ctx;
    ((struct toy *)r)->ended = why ? 2 : 3;
    if (why)
        w->why = *why;
}

/* Extend a run by one token of its text, as decoding does. */
static int one_more(struct runs *s, struct run *r, bool *again,
                    struct qwick_err *e)
{
    const struct toy *t = (struct toy *)r;
    (void)s;
    (void)e;
    *again = r->n < t->text->n;
    r->n += *again;
    return 0;
}

static void release(struct runs *s, struct run *r)
{
    (void)s;
    assert_null(r->session);
}

#define TASK                                                              \
    .output = QWICK_LOGITS, .row = row, .ended = ended, .fail = fail_run, \
    .release = release
static const struct run_task all_rows = {TASK, .rows = QWICK_ROWS_ALL};
static const struct run_task last_row = {TASK, .rows = QWICK_ROWS_LAST};
static const struct run_task reusing = {TASK, .rows = QWICK_ROWS_LAST,
                                        .reuse = true};
static const struct run_task sharing = {TASK, .rows = QWICK_ROWS_LAST,
                                        .share = true};
static const struct run_task decoding = {TASK, .rows = QWICK_ROWS_LAST,
                                         .share = true, .preempt = true,
                                         .done = one_more};

static struct work *queue_all(struct runs *s, const struct text *texts)
{
    struct work *w = s->ctx;
    *w = (struct work){0};
    for (size_t i = 0; i < N_RUNS; i++) {
        struct toy *t = &w->toys[i];
        t->text = &texts[i];
        t->run.tokens = texts[i].ids;
        t->run.n = t->run.n_final = texts[i].n;
        t->run.first = texts[i].n / 3;
        runs_push_back(s, &t->run);
    }
    return w;
}

/* Run all texts, and check that each gets all the outputs that its task
 * wants. */
static void run_texts(struct runs *s, const struct text *texts)
{
    struct qwick_err e;
    const struct work *w = queue_all(s, texts);
    assert_ok(runs_all(s, &e), &e);
    assert_int_equal(w->n_ended, N_RUNS);
    for (size_t i = 0; i < N_RUNS; i++) {
        const struct toy *t = &w->toys[i];
        assert_int_equal(t->ended, 1);
        assert_int_equal(t->n_rows, s->task->rows == QWICK_ROWS_ALL
                                        ? t->run.n - t->run.first
                                        : 1);
    }
}

static void open_runs(struct runs *s, struct qwick_engine *eng,
                      const struct run_task *task, struct work *w,
                      size_t max_live)
{
    assert_int_equal(runs_open(s, eng, task, w, 0, max_live, NULL), 0);
}

static size_t total_of(const struct text *texts)
{
    size_t n = 0;
    for (size_t i = 0; i < N_RUNS; i++)
        n += texts[i].n;
    return n;
}

/* ---- tests -------------------------------------------------------------- */

static void outputs_are_those_alone(void **state)
{
    static const struct run_task *const tasks[] = {&all_rows, &last_row,
                                                   &reusing, &sharing};
    static const size_t chunks[] = {1, 50, 512}, lives[] = {1, 5, 64};
    struct text *texts = make_texts(100);
    for (size_t k = 0; k < 3; k++) {
        struct qwick_engine *eng = open_engine(chunks[k]);
        for (size_t t = 0; t < 4; t++) {
            struct work w;
            struct runs s;
            open_runs(&s, eng, tasks[t], &w, lives[(k + t) % 3]);
            run_texts(&s, texts);
            assert_int_equal(s.n_evaluated + s.n_shared, total_of(texts));
            run_texts(&s, texts);
            assert_int_equal(s.n_evaluated + s.n_shared, 2 * total_of(texts));
            runs_close(&s);
        }
        qwick_engine_close(eng);
    }
    free_texts(texts);
}

static void passes_keep_to_the_chunk(void **state)
{
    enum { CHUNK = 50 };
    struct qwick_engine *eng = open_engine(CHUNK);
    struct text *texts = make_texts(0);
    struct work w;
    struct runs s;
    open_runs(&s, eng, &last_row, &w, 64);
    queue_all(&s, texts);
    uint64_t before = 0;
    while (runs_pending(&s)) {
        assert_int_equal(runs_step(&s, NULL), 0);
        assert_in_range(s.n_evaluated - before, 1, CHUNK);
        before = s.n_evaluated;
    }
    /* full passes: runs end in order, with as few passes as possible */
    assert_int_equal(s.n_passes, (total_of(texts) + CHUNK - 1) / CHUNK);
    for (size_t i = 0; i < N_RUNS; i++)
        assert_int_equal(w.order[i], i);
    runs_close(&s);
    free_texts(texts);
    qwick_engine_close(eng);
}

static void common_beginnings_are_evaluated_once(void **state)
{
    enum { COMMON = 100 };
    struct qwick_engine *eng = open_engine(2048); /* a pass for all */
    struct text *texts = make_texts(COMMON);
    struct work w;
    struct runs s;
    /* take the beginning from the session of the first run, while it is live */
    open_runs(&s, eng, &decoding, &w, N_RUNS);
    queue_all(&s, texts);
    for (size_t i = 0; i < N_RUNS; i++)
        w.toys[i].run.n = COMMON + 1;
    assert_int_equal(runs_all(&s, NULL), 0);
    assert_int_equal(s.n_shared, (N_RUNS - 1) * COMMON);
    assert_int_equal(s.n_evaluated + s.n_shared, total_of(texts));
    runs_close(&s);
    /* one after the other, each with the session that the previous run left */
    open_runs(&s, eng, &reusing, &w, 1);
    run_texts(&s, texts);
    assert_int_equal(s.n_shared, (N_RUNS - 1) * COMMON);
    /* the same texts again: all tokens except the last, which has an output */
    runs_close(&s);
    open_runs(&s, eng, &reusing, &w, N_RUNS);
    run_texts(&s, texts);
    uint64_t evaluated = s.n_evaluated;
    run_texts(&s, texts);
    assert_int_equal(s.n_evaluated - evaluated, N_RUNS);
    runs_close(&s);
    free_texts(texts);
    qwick_engine_close(eng);
}

/* The base is evaluated before the first run, and stays when runs begin
 * differently. */
static void a_base_is_evaluated_once(void **state)
{
    enum { COMMON = 100 };
    static const size_t lives[] = {1, N_RUNS};
    struct qwick_engine *eng = open_engine(30); /* the base needs four passes */
    struct text *texts = make_texts(COMMON), *others = make_texts(0);
    for (size_t k = 0; k < 2; k++) {
        struct work w;
        struct runs s;
        open_runs(&s, eng, &reusing, &w, lives[k]);
        assert_int_equal(runs_set_base(&s, texts[0].ids, COMMON, NULL), 0);
        assert_int_equal(s.n_evaluated, COMMON);
        assert_int_equal(s.n_passes, 4);
        run_texts(&s, texts);
        assert_int_equal(s.n_shared, N_RUNS * COMMON);
        assert_int_equal(s.n_evaluated + s.n_shared, COMMON + total_of(texts));
        run_texts(&s, others);
        uint64_t shared = s.n_shared;
        run_texts(&s, texts);
        assert_true(s.n_shared - shared >= N_RUNS * COMMON);
        runs_close(&s);
    }
    free_texts(texts);
    free_texts(others);
    qwick_engine_close(eng);
}

static void short_memory_preempts(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct text *texts = make_texts(0);
    size_t page = eng->info.kv_token_bytes * KV_BLOCK;
    for (size_t pages = 4; pages < 9; pages += 3) {
        struct work w;
        struct runs s;
        open_runs(&s, eng, &decoding, &w, 6);
        s.kv_bytes = pages * page;
        queue_all(&s, texts);
        /* they grow beyond their expected length */
        for (size_t i = 0; i < N_RUNS; i++)
            w.toys[i].run.n = w.toys[i].run.n_final = 1;
        while (runs_pending(&s)) {
            size_t used = 0;
            assert_int_equal(runs_step(&s, NULL), 0);
            for (size_t i = 0; i < s.n_live; i++)
                if (s.live[i]->session)
                    used += qwick_session_kv_bytes(s.live[i]->session);
            assert_true(used <= s.kv_bytes);
        }
        for (size_t i = 0; i < N_RUNS; i++) {
            assert_int_equal(w.toys[i].ended, 1);
            assert_int_equal(w.toys[i].n_rows, texts[i].n);
        }
        assert_true(s.n_preempted > 0);
        runs_close(&s);
    }
    free_texts(texts);
    qwick_engine_close(eng);
}

static void a_run_fails_by_itself(void **state)
{
    struct qwick_engine *eng = open_engine(16);
    struct text *texts = make_texts(0);
    size_t page = eng->info.kv_token_bytes * KV_BLOCK, n_failed = 0;
    struct work w;
    struct runs s;
    open_runs(&s, eng, &decoding, &w, 4);
    s.kv_bytes = 2 * page;
    queue_all(&s, texts);
    w.toys[0].run.deadline_ms = 1;
    assert_int_equal(runs_all(&s, NULL), 0);
    assert_int_equal(w.n_ended, N_RUNS);
    assert_int_equal(w.toys[0].ended, 3);
    for (size_t i = 1; i < N_RUNS; i++) {
        bool fits = texts[i].n <= 2 * KV_BLOCK;
        assert_int_equal(w.toys[i].ended, fits ? 1 : 2);
        n_failed += !fits;
    }
    assert_true(n_failed > 0);
    assert_int_equal(w.why.code, QWICK_ERR_MEMORY);
    runs_close(&s);
    free_texts(texts);
    qwick_engine_close(eng);
}

static void interruption_changes_nothing(void **state)
{
    struct qwick_engine *eng = open_engine(16);
    struct text *texts = make_texts(0);
    volatile int flag = 0;
    struct qwick_err e;
    struct work w;
    struct runs s;
    open_runs(&s, eng, &last_row, &w, 4);
    s.interrupt = &flag;
    queue_all(&s, texts);
    while (runs_pending(&s)) {
        uint64_t evaluated = s.n_evaluated;
        flag = 1;
        assert_int_equal(runs_step(&s, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
        assert_int_equal(s.n_evaluated, evaluated);
        flag = 0;
        assert_int_equal(runs_step(&s, &e), 0);
    }
    assert_int_equal(w.n_ended, N_RUNS);
    /* runs that have not ended are released */
    queue_all(&s, texts);
    assert_int_equal(runs_step(&s, &e), 0);
    flag = 1;
    assert_int_equal(runs_all(&s, &e), -1);
    assert_false(runs_pending(&s));
    flag = 0;
    run_texts(&s, texts);
    queue_all(&s, texts);
    runs_close(&s);
    free_texts(texts);
    qwick_engine_close(eng);
}

/* Two runs with a common beginning. Only the second, of more than ORIGINAL
 * tokens, rotates its keys by the frequencies of long sequences. */
struct crossing {
    struct qwick_engine *eng;
    struct text texts[2];
    struct work work;
    struct runs runs;
};

enum { CROSSING_COMMON = 50, SHORT = 60, LONG = 90 };

static void open_crossing(struct crossing *c, const struct run_task *task)
{
    static const size_t lengths[] = {SHORT, LONG};
    *c = (struct crossing){.eng = open_model(LONGROPE, 0)};
    for (size_t i = 0; i < 2; i++) {
        struct qwick_session *s = open_session(c->eng);
        struct text *t = &c->texts[i];
        t->n = lengths[i];
        some_ids(t->ids, t->n, 3);
        t->ids[CROSSING_COMMON] = (int32_t)i;
        t->rows = malloc(t->n * VOCAB * sizeof *t->rows);
        assert_int_equal(
            qwick_session_all_logits(s, t->ids, t->n, keep_row, t, NULL), 0);
        qwick_session_free(s);
    }
    open_runs(&c->runs, c->eng, task, &c->work, 2);
}

static void push_crossing(struct crossing *c, size_t i)
{
    struct toy *t = &c->work.toys[i];
    *t = (struct toy){.text = &c->texts[i]};
    t->run.tokens = c->texts[i].ids;
    t->run.n = t->run.n_final = c->texts[i].n;
    runs_push_back(&c->runs, &t->run);
}

static void close_crossing(struct crossing *c)
{
    runs_close(&c->runs);
    for (size_t i = 0; i < 2; i++)
        free(c->texts[i].rows);
    qwick_engine_close(c->eng);
}

/* A run takes no session with keys of other frequencies: not from the base,
 * and not from the run before it. */
static void keys_of_other_frequencies_are_not_reused(void **state)
{
    for (size_t first = 0; first < 2; first++) {
        struct crossing c;
        open_crossing(&c, &reusing);
        push_crossing(&c, first);
        assert_int_equal(runs_all(&c.runs, NULL), 0);
        push_crossing(&c, !first);
        assert_int_equal(runs_all(&c.runs, NULL), 0);
        assert_int_equal(c.runs.n_shared, 0);
        assert_int_equal(c.runs.n_evaluated, SHORT + LONG);
        push_crossing(&c, !first);
        assert_int_equal(runs_all(&c.runs, NULL), 0);
        assert_int_equal(c.runs.n_shared, (first ? SHORT : LONG) - 1);
        close_crossing(&c);
    }
    struct crossing c;
    open_crossing(&c, &reusing);
    assert_int_equal(
        runs_set_base(&c.runs, c.texts[0].ids, CROSSING_COMMON, NULL), 0);
    push_crossing(&c, 1);
    assert_int_equal(runs_all(&c.runs, NULL), 0);
    assert_int_equal(c.runs.n_shared, 0);
    push_crossing(&c, 0);
    assert_int_equal(runs_all(&c.runs, NULL), 0);
    assert_int_equal(c.runs.n_shared, CROSSING_COMMON);
    close_crossing(&c);
}

/* Of two live runs, the second neither finds keys of other frequencies nor
 * waits for them. */
static void keys_of_other_frequencies_are_not_shared(void **state)
{
    for (size_t first = 0; first < 2; first++) {
        const struct qwick_session *from;
        struct crossing c;
        open_crossing(&c, &decoding);
        push_crossing(&c, first);
        push_crossing(&c, !first);
        struct toy *a = &c.work.toys[first], *b = &c.work.toys[!first];
        a->run.n -= 5; /* it goes on after the first pass */
        assert_int_equal(runs_step(&c.runs, NULL), 0);
        assert_int_equal(a->n_rows, 1);
        assert_int_equal(b->n_rows, 1);
        assert_int_equal(runs_find(&c.runs, &b->run, &from), 0);
        assert_null(from);
        assert_int_equal(runs_all(&c.runs, NULL), 0);
        assert_int_equal(a->ended, 1);
        assert_int_equal(b->ended, 1);
        assert_int_equal(c.runs.n_shared, 0);
        close_crossing(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_those_alone),
        cmocka_unit_test(passes_keep_to_the_chunk),
        cmocka_unit_test(common_beginnings_are_evaluated_once),
        cmocka_unit_test(a_base_is_evaluated_once),
        cmocka_unit_test(short_memory_preempts),
        cmocka_unit_test(a_run_fails_by_itself),
        cmocka_unit_test(interruption_changes_nothing),
        cmocka_unit_test(keys_of_other_frequencies_are_not_reused),
        cmocka_unit_test(keys_of_other_frequencies_are_not_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
