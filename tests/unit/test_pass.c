/* Ragged passes: joint evaluation equals single evaluation, bit by bit with
 * --exact at every level. It does not depend on the other sequences of the
 * pass, the number of threads, or the split of a long context. */
#include "test.h"

#include "base/cpu.h"
#include "engine/core/engine.h"
#include "engines.h"
#include "golden.h"
#include "own_sampling.h"

static struct qwick_engine *open_engine(const char *model, int level,
                                        bool exact, int threads,
                                        enum qwick_kv kv)
{
    return engine_with(.model = model, .isa = isa_name((enum isa)level),
                       .exact = exact, .threads = threads, .kv = kv);
}

/* One checkpoint for each kind of weights. */
static const char *const models[] = {
    "tests/golden/models/tied-bf16",  "tests/golden/models/attention-bias",
    "tests/golden/models/f16",        "tests/golden/models/moe",
    "tests/golden/models/mlx4",       "tests/golden/models/mlx8",
    "tests/golden/models/gemma3-gqa",
};
/* Its last layers have no keys of their own. */
#define SHARED_KEYS "tests/golden/families/gemma4-e2b"
enum { N_MODELS = sizeof models / sizeof *models, N_SEQ = 7 };

/* Lengths of the prompts, and the sizes of the steps into which they are cut,
 * in turn. */
static const size_t lengths[N_SEQ] = {1, 5, 64, 65, 70, 100, 129};
static const size_t pieces[] = {1, 3, 1, 17, 64, 2};

/* Feed all sequences together, each in its own pieces. out [N_SEQ, vocab_size]
 * gets the logits of the last token of each. */
static void feed_jointly(struct qwick_engine *eng, struct qwick_session **s,
                         int32_t *const *ids, float *out)
{
    size_t vocab_size = qwick_engine_info(eng)->vocab_size;
    size_t turn = 0;
    for (bool more = true; more; turn++) {
        struct qwick_step steps[N_SEQ];
        size_t who[N_SEQ], n = 0;
        more = false;
        for (size_t i = 0; i < N_SEQ; i++) {
            size_t at = qwick_session_length(s[i]), rest = lengths[i] - at;
            size_t piece = pieces[(turn + i) % 6];
            if (!rest || (turn + i) % 4 == 3) {
                more = more || rest;
                continue; /* not every sequence is in every pass */
            }
            piece = piece < rest ? piece : rest;
            steps[n] = (struct qwick_step){
                s[i], ids[i] + at, piece,
                piece == rest ? QWICK_ROWS_LAST
                              : (turn % 2 ? QWICK_ROWS_NONE : QWICK_ROWS_ALL)};
            who[n++] = i;
            more = more || piece < rest;
        }
        assert_int_equal(qwick_engine_step(eng, steps, n, QWICK_LOGITS, NULL),
                         0);
        for (size_t i = 0; i < n; i++) {
            size_t rows;
            const float *all = qwick_session_rows(steps[i].session, &rows);
            size_t want = steps[i].rows == QWICK_ROWS_ALL    ? steps[i].n
                          : steps[i].rows == QWICK_ROWS_LAST ? 1
                                                             : 0;
            assert_int_equal(rows, want);
            assert_true((all != NULL) == (want > 0));
            if (steps[i].rows == QWICK_ROWS_LAST)
                memcpy(out + who[i] * vocab_size,
                       qwick_session_logits(steps[i].session),
                       vocab_size * sizeof *out);
        }
    }
}

static void check_joint(const char *model, int level, bool exact, int threads,
                        double bound)
{
    struct qwick_engine *eng =
        open_engine(model, level, exact, threads, QWICK_KV_DEFAULT);
    size_t vocab_size = qwick_engine_info(eng)->vocab_size;
    struct qwick_session *s[N_SEQ], *alone = open_session(eng);
    int32_t *ids[N_SEQ];
    float *out = malloc(N_SEQ * vocab_size * sizeof *out);
    for (size_t i = 0; i < N_SEQ; i++) {
        s[i] = open_session(eng);
        ids[i] = new_ids(lengths[i], (uint32_t)i + 1);
    }
    feed_jointly(eng, s, ids, out);
    for (size_t i = 0; i < N_SEQ; i++) {
        const float *got = out + i * vocab_size;
        assert_int_equal(qwick_session_sync(alone, ids[i], lengths[i], NULL),
                         0);
        const float *want = qwick_session_logits(alone);
        if (exact)
            assert_memory_equal(got, want, vocab_size * sizeof *out);
        else
            assert_true(relative_error(got, want, vocab_size) <= bound);
    }
    for (size_t i = 0; i < N_SEQ; i++) {
        qwick_session_free(s[i]);
        free(ids[i]);
    }
    qwick_session_free(alone);
    qwick_engine_close(eng);
    free(out);
}

static void joint_steps_equal_single_ones(void **state)
{
    for (int l = 0; l < ISA_COUNT; l++) {
        for (size_t m = 0; m < N_MODELS && cpu_has((enum isa)l); m++) {
            bool quantized = m >= 4;
            check_joint(models[m], l, true, 1 + (l + (int)m) % 4, 0);
            /* in default mode each side is within the bound of the goldens */
            check_joint(models[m], l, false, 2,
                        2 * (quantized ? 4e-2 : 1.2e-2));
        }
        if (cpu_has((enum isa)l))
            check_joint(SHARED_KEYS, l, true, 1 + l % 3, 0);
    }
}

/* Sequences of one pass, and the logits that are wanted of each. */
enum { N_SPANS = 4 };

/* Evaluate the sequences' first halves, and then the rest in a pass that wants
 * these rows. out [N_SPANS, vocab_size] gets the last logits of those that have
 * some, and `after` those of a decode step of all. */
static void step_with_rows(struct qwick_engine *eng,
                           const enum qwick_rows *rows, int32_t *const *ids,
                           const size_t *n, float *out, float *after)
{
    size_t vocab_size = qwick_engine_info(eng)->vocab_size;
    struct qwick_step steps[N_SPANS];
    for (size_t i = 0; i < N_SPANS; i++) {
        struct qwick_session *s = open_session(eng);
        sync_to(s, ids[i], n[i] / 2);
        steps[i] = (struct qwick_step){s, ids[i] + n[i] / 2, n[i] - n[i] / 2,
                                       rows[i]};
    }
    assert_int_equal(
        qwick_engine_step(eng, steps, N_SPANS, QWICK_LOGITS, NULL), 0);
    for (size_t i = 0; i < N_SPANS; i++)
        if (rows[i] != QWICK_ROWS_NONE)
            memcpy(out + i * vocab_size,
                   qwick_session_logits(steps[i].session),
                   vocab_size * sizeof *out);
    for (size_t i = 0; i < N_SPANS; i++) {
        steps[i].tokens = ids[i];
        steps[i].n = 1;
        steps[i].rows = QWICK_ROWS_LAST;
    }
    assert_int_equal(
        qwick_engine_step(eng, steps, N_SPANS, QWICK_LOGITS, NULL), 0);
    for (size_t i = 0; i < N_SPANS; i++) {
        memcpy(after + i * vocab_size, qwick_session_logits(steps[i].session),
               vocab_size * sizeof *after);
        qwick_session_free(steps[i].session);
    }
}

/* Layers after the last one with keys of its own take only tokens whose logits
 * are wanted. The results are those of a pass that wants all. */
static void wanted_rows_do_not_change_results(void **state)
{
    static const enum qwick_rows wanted[][N_SPANS] = {
        {QWICK_ROWS_ALL, QWICK_ROWS_ALL, QWICK_ROWS_ALL, QWICK_ROWS_ALL},
        {QWICK_ROWS_LAST, QWICK_ROWS_LAST, QWICK_ROWS_LAST, QWICK_ROWS_LAST},
        {QWICK_ROWS_NONE, QWICK_ROWS_LAST, QWICK_ROWS_ALL, QWICK_ROWS_NONE},
        {QWICK_ROWS_NONE, QWICK_ROWS_NONE, QWICK_ROWS_NONE, QWICK_ROWS_LAST},
        {QWICK_ROWS_NONE, QWICK_ROWS_NONE, QWICK_ROWS_NONE, QWICK_ROWS_NONE}};
    enum { N_WANTED = sizeof wanted / sizeof *wanted };
    static const size_t prompts[N_SPANS] = {60, 150, 33, 7},
                        steps[N_SPANS] = {2, 2, 2, 2};
    int32_t *ids[N_SPANS];
    for (size_t i = 0; i < N_SPANS; i++)
        ids[i] = new_ids(prompts[i], (uint32_t)i + 1);
    for (int c = 0; c < 8; c++) {
        bool exact = c % 2, single = c / 2 % 2;
        struct qwick_engine *eng =
            open_engine(SHARED_KEYS, (int)cpu_best(), exact, c < 4 ? 1 : 3,
                        QWICK_KV_DEFAULT);
        size_t v = qwick_engine_info(eng)->vocab_size;
        float *got = malloc(4 * N_SPANS * v * sizeof *got);
        float *all[] = {got, got + N_SPANS * v};
        float *part[] = {got + 2 * N_SPANS * v, got + 3 * N_SPANS * v};
        assert_true(eng->model.last_stored + 1 < eng->model.config.n_layers);
        for (size_t k = 0; k < N_WANTED; k++) {
            step_with_rows(eng, wanted[k], ids, single ? steps : prompts,
                           k ? part[0] : all[0], k ? part[1] : all[1]);
            for (size_t i = 0; k && i < N_SPANS; i++)
                for (int j = wanted[k][i] == QWICK_ROWS_NONE; j < 2; j++) {
                    const float *a = part[j] + i * v, *b = all[j] + i * v;
                    if (exact)
                        assert_memory_equal(a, b, v * sizeof *a);
                    else /* each is within the bound of the goldens */
                        assert_true(relative_error(a, b, v) <= 2 * 1.2e-2);
                }
        }
        free(got);
        qwick_engine_close(eng);
    }
    for (size_t i = 0; i < N_SPANS; i++)
        free(ids[i]);
}

/* Threads share heads, and the segments of a long context. This gives the same
 * bits as one thread, which processes segments in order, and as prefill. */
static void long_contexts_split_alike(void **state)
{
    size_t n = ATTN_SEGMENT + 300;
    int32_t *ids = new_ids(n, 5);
    for (int l = 1; l < ISA_COUNT; l++) {
        if (!cpu_has((enum isa)l))
            continue;
        float *want = NULL;
        for (int threads = 1; threads <= 5; threads++) {
            struct qwick_engine *eng =
                open_engine(models[0], l, true, threads, QWICK_KV_DEFAULT);
            struct qwick_session *s = open_session(eng), *p = open_session(eng);
            size_t bytes = qwick_engine_info(eng)->vocab_size * sizeof(float);
            assert_int_equal(scratch_splits(&eng->model), threads > 1);
            assert_int_equal(qwick_session_sync(s, ids, n - 3, NULL), 0);
            for (size_t i = n - 3; i < n; i++)
                assert_int_equal(qwick_session_decode(s, ids[i], NULL), 0);
            assert_int_equal(qwick_session_sync(p, ids, n, NULL), 0);
            assert_memory_equal(qwick_session_logits(s),
                                qwick_session_logits(p), bytes);
            if (!want) {
                want = malloc(bytes);
                memcpy(want, qwick_session_logits(s), bytes);
            }
            assert_memory_equal(qwick_session_logits(s), want, bytes);
            qwick_session_free(s);
            qwick_session_free(p);
            qwick_engine_close(eng);
        }
        free(want);
    }
    free(ids);
}

static void forks_live_on_their_own(void **state)
{
    size_t n = 200;
    int32_t *ids = new_ids(n, 7), *other = new_ids(n, 8);
    struct qwick_engine *eng =
        open_engine(NULL, (int)cpu_best(), true, 2, QWICK_KV_DEFAULT);
    size_t bytes = qwick_engine_info(eng)->vocab_size * sizeof(float);
    const size_t at[] = {0, 1, 63, 64, 65, 128, 130};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct qwick_session *s = open_session(eng), *f, *fresh;
        fresh = open_session(eng);
        if (at[i])
            assert_int_equal(qwick_session_sync(s, ids, at[i], NULL), 0);
        assert_int_equal(qwick_session_fork(&f, s, NULL), 0);
        assert_int_equal(qwick_session_length(f), at[i]);
        if (at[i])
            assert_memory_equal(qwick_session_logits(f),
                                qwick_session_logits(s), bytes);
        /* the fork continues differently, then the first session continues */
        memcpy(other, ids, at[i] * sizeof *ids);
        assert_int_equal(qwick_session_sync(f, other, n, NULL), 0);
        assert_int_equal(qwick_session_sync(s, ids, n, NULL), 0);
        assert_int_equal(qwick_session_sync(fresh, ids, n, NULL), 0);
        assert_memory_equal(qwick_session_logits(s),
                            qwick_session_logits(fresh), bytes);
        assert_int_equal(qwick_session_rollback(fresh, 0, NULL), 0);
        assert_int_equal(qwick_session_sync(fresh, other, n, NULL), 0);
        assert_memory_equal(qwick_session_logits(f),
                            qwick_session_logits(fresh), bytes);
        /* a session that writes to a shared page after a rollback gets its own
         * copy */
        struct qwick_session *g;
        assert_int_equal(qwick_session_fork(&g, f, NULL), 0);
        assert_int_equal(qwick_session_rollback(g, 70, NULL), 0);
        assert_int_equal(qwick_session_sync(g, ids, 100, NULL), 0);
        assert_int_equal(qwick_session_decode(f, 3, NULL), 0);
        assert_int_equal(qwick_session_decode(fresh, 3, NULL), 0);
        assert_memory_equal(qwick_session_logits(f),
                            qwick_session_logits(fresh), bytes);
        qwick_session_free(s);
        qwick_session_free(f);
        qwick_session_free(g);
        qwick_session_free(fresh);
    }
    qwick_engine_close(eng);
    free(ids);
    free(other);
}

/* The head multiplied by the hidden state gives the logits. */
static void hidden_states_are_what_the_head_reads(void **state)
{
    struct qwick_engine *eng =
        open_engine(models[2], (int)cpu_best(), true, 2, QWICK_KV_DEFAULT);
    const struct model *m = &eng->model;
    struct qwick_session *s = open_session(eng);
    int32_t *ids = new_ids(20, 9);
    struct qwick_step step = {s, ids, 20, QWICK_ROWS_LAST};
    assert_int_equal(
        qwick_engine_step(eng, &step, 1,
                          (enum qwick_output)(QWICK_LOGITS | QWICK_HIDDEN),
                          NULL),
        0);
    float *want = malloc(m->config.vocab_size * sizeof *want);
    m->k->matmul_f32[m->head.dtype](
        want, m->config.vocab_size, matrix_row(&m->head, 0, 0), m->head.cols,
        qwick_session_hidden(s), m->head.cols, m->head.rows, m->head.cols, 1,
        eng->scratch->threads[0].work);
    assert_memory_equal(want, qwick_session_logits(s),
                        m->config.vocab_size * sizeof *want);
    qwick_session_free(s);
    qwick_engine_close(eng);
    free(want);
    free(ids);
}

/* Logits of n tokens, of each position. */
static float *rows_of(struct qwick_engine *eng, const int32_t *ids, size_t n)
{
    size_t vocab_size = eng->model.config.vocab_size;
    float *out = malloc(n * vocab_size * sizeof *out);
    struct qwick_session *s = open_session(eng);
    struct qwick_step step = {s, ids, n, QWICK_ROWS_ALL};
    size_t rows;
    assert_int_equal(qwick_engine_step(eng, &step, 1, QWICK_LOGITS, NULL), 0);
    memcpy(out, qwick_session_rows(s, &rows), n * vocab_size * sizeof *out);
    assert_int_equal(rows, n);
    qwick_session_free(s);
    return out;
}

/* All threads have part in the cap, of one sequence and of several. */
static void a_cap_applies_to_all_logits(void **state)
{
    enum { N = 30 };
    int32_t *ids[N_SEQ];
    for (int threads = 1; threads <= 3; threads += 2) {
        struct qwick_engine *eng = open_engine(
            models[0], (int)cpu_best(), true, threads, QWICK_KV_DEFAULT);
        size_t n = eng->model.config.vocab_size;
        float *joint[2], *rows[2];
        for (size_t i = 0; i < N_SEQ; i++)
            ids[i] = new_ids(lengths[i], (uint32_t)i + 1);
        for (int c = 0; c < 2; c++) {
            struct qwick_session *s[N_SEQ];
            eng->model.config.logit_cap = c ? 0.7f : 0;
            joint[c] = malloc(N_SEQ * n * sizeof(float));
            for (size_t i = 0; i < N_SEQ; i++)
                s[i] = open_session(eng);
            feed_jointly(eng, s, ids, joint[c]);
            for (size_t i = 0; i < N_SEQ; i++)
                qwick_session_free(s[i]);
            rows[c] = rows_of(eng, ids[3], N);
        }
        eng->model.k->cap(joint[0], 0.7f, N_SEQ * n);
        eng->model.k->cap(rows[0], 0.7f, N * n);
        assert_memory_equal(joint[1], joint[0], N_SEQ * n * sizeof(float));
        assert_memory_equal(rows[1], rows[0], N * n * sizeof(float));
        for (int c = 0; c < 2; c++) {
            free(joint[c]);
            free(rows[c]);
        }
        for (size_t i = 0; i < N_SEQ; i++)
            free(ids[i]);
        qwick_engine_close(eng);
    }
}

/* Many ids have logits equal to the cap: the lowest one is the answer. */
static void equal_logits_rank_by_id(void **state)
{
    struct qwick_engine *eng = open_engine(models[0], (int)cpu_best(), true, 2,
                                           QWICK_KV_DEFAULT);
    int32_t *ids = new_ids(20, 3);
    const float cap = 1e-3f;
    struct qwick_session *s = open_session(eng);
    struct qwick_generate_options o = qwick_generate_defaults();
    struct qwick_result r;
    struct qwick_err e;
    int32_t first = -1;
    size_t n_equal = 0;
    eng->model.config.logit_cap = cap;
    sync_to(s, ids, 20);
    for (size_t i = eng->model.config.vocab_size; i-- > 0;)
        if (qwick_session_logits(s)[i] == cap) {
            first = (int32_t)i;
            n_equal++;
        }
    assert_true(n_equal > 10);
    own_sampling(&o)->temperature = 0;
    o.max_tokens = 1;
    o.ignore_eos = true;
    assert_ok(qwick_generate(s, ids, 20, &o, &r, &e), &e);
    assert_int_equal(r.tokens[0], first);
    qwick_result_free(&r);
    qwick_session_free(s);
    qwick_engine_close(eng);
    free(ids);
}

static void joint_steps_refuse_what_cannot_be(void **state)
{
    struct qwick_engine *eng =
        open_engine(models[0], (int)cpu_best(), true, 2, QWICK_KV_DEFAULT);
    struct qwick_session *s = open_session(eng), *small;
    struct qwick_err e;
    int32_t ids[] = {1, 2, 3, 4, 5, 6}, bad[] = {1, 320};
    assert_int_equal(qwick_session_create(&small, eng, 4, NULL), 0);
    struct qwick_step twice[] = {{s, ids, 1, QWICK_ROWS_LAST},
                                 {s, ids, 1, QWICK_ROWS_LAST}};
    assert_int_equal(qwick_engine_step(eng, twice, 2, QWICK_LOGITS, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    struct qwick_step wrong[] = {{s, ids, 2, QWICK_ROWS_LAST},
                                 {small, bad, 2, QWICK_ROWS_LAST}};
    assert_int_equal(qwick_engine_step(eng, wrong, 2, QWICK_LOGITS, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    struct qwick_step full[] = {{s, ids, 2, QWICK_ROWS_LAST},
                                {small, ids, 5, QWICK_ROWS_LAST}};
    assert_int_equal(qwick_engine_step(eng, full, 2, QWICK_LOGITS, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_CONTEXT);
    assert_int_equal(qwick_session_length(s), 0);
    volatile int flag = 1;
    qwick_session_interrupt(s, &flag);
    full[1].n = 4;
    assert_int_equal(qwick_engine_step(eng, full, 2, QWICK_LOGITS, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(qwick_session_length(s) + qwick_session_length(small), 0);
    flag = 0;
    assert_int_equal(qwick_engine_step(eng, full, 2, QWICK_LOGITS, &e), 0);
    assert_int_equal(qwick_session_length(small), 4);
    qwick_session_free(s);
    qwick_session_free(small);
    qwick_engine_close(eng);
}

/* The error of a kind of cache on the dense goldens is within its bound. */
static void cache_keeps_its_error(enum qwick_kv kv, double bound)
{
    double worst = 0;
    for (int l = 0; l < ISA_COUNT; l++)
        for (size_t i = 0; i < N_DENSE && cpu_has((enum isa)l); i++) {
            struct golden g;
            struct qwick_err e;
            assert_int_equal(golden_open(&g, dense_models[i]), 0);
            struct qwick_engine *eng =
                open_engine(g.dir, l, false, 2, kv);
            float *got = malloc(g.n * g.vocab_size * sizeof *got);
            assert_ok(all_logits(eng, &g, got, &e), &e);
            double error = relative_error(got, g.logits, g.n * g.vocab_size);
            worst = error > worst ? error : worst;
            assert_true(error <= bound);
            free(got);
            qwick_engine_close(eng);
            golden_close(&g);
        }
    printf("--kv %s: error at most %.2e on the dense goldens\n",
           qwick_kv_name(kv), worst);
}

/* Keys and values in int8, in groups of 32, have errors of up to 1/254 of the
 * group's largest number, or 2e-3 to 4e-3 of their norm. Their effect on the
 * logits of these models stays below 2e-2, the documented error of --kv q8. */
static void int8_cache_keeps_its_error(void **state)
{
    cache_keeps_its_error(QWICK_KV_Q8, 2e-2);
}

/* With 4 bits the error of normal numbers is 13 times as large as with int8:
 * 7.7e-2 of their norm, not 5.9e-3. So is the bound. */
static void q4_cache_keeps_its_error(void **state)
{
    cache_keeps_its_error(QWICK_KV_Q4, 13 * 2e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_steps_equal_single_ones),
        cmocka_unit_test(wanted_rows_do_not_change_results),
        cmocka_unit_test(long_contexts_split_alike),
        cmocka_unit_test(forks_live_on_their_own),
        cmocka_unit_test(hidden_states_are_what_the_head_reads),
        cmocka_unit_test(a_cap_applies_to_all_logits),
        cmocka_unit_test(equal_logits_rank_by_id),
        cmocka_unit_test(joint_steps_refuse_what_cannot_be),
        cmocka_unit_test(int8_cache_keeps_its_error),
        cmocka_unit_test(q4_cache_keeps_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
