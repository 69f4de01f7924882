/* Fair passes: which share of time long prompts, short ones and answers get.
 * The clock of the scheduler is one that the passes move, by the costs of
 * machines and models of many kinds. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/tasks/batch.h"
#include "engines.h"
#include "own_sampling.h"

#define MODEL "tests/golden/models/qwen35-tied"

enum { N_LAYERS = 4, CHUNK = 512, LONG = 3900, MAX_ANSWER = 20000 };

/* Milliseconds of a pass: the time to read the weights and that of its tokens.
 * A token of a prompt after pos others takes token * (1 + depth * pos). Those
 * that decode are free. */
struct machine {
    const char *name;
    double weights, token, depth;
};

static const struct machine machines[] = {
    {"bf16 and fast products", 42, 0.5, 0},
    {"4 bits and fast products", 12.7, 0.55, 0},
    {"bf16, slow products", 45, 4.6, 0},
    {"4 bits, slow products", 14, 2.7, 0},
    {"a long context", 12.7, 0.55, 0.001},
    {"a large model", 110, 9, 0},
};

/* Time moves after each layer, except the last, by an equal part of the pass.
 */
struct simulation {
    const struct machine *machine;
    struct qwick_batch *b;
    size_t n_layers;    /* that the pass has reported */
    double pass_ms;     /* of the pass */
    double longest_ms;  /* longest pass */
    size_t most_tokens; /* most tokens of prompts in a pass */
    struct request *watched[2];
};

static double now_ms;

static double read_clock(void)
{
    return now_ms;
}

static double cost_of_pass(const struct machine *m, const struct runs *s)
{
    double ms = m->weights;
    for (size_t i = s->n_decoding; i < s->n_steps; i++) {
        double pos = (double)s->steps[i].session->kv.n;
        double n = (double)s->steps[i].n;
        ms += n * m->token * (1 + m->depth * (pos + n / 2));
    }
    return ms;
}

static void on_layer(void *ctx)
{
    struct simulation *c = ctx;
    const struct runs *s = &c->b->runs;
    if (++c->n_layers == 1) {
        size_t n = 0;
        for (size_t i = s->n_decoding; i < s->n_steps; i++)
            n += s->steps[i].n;
        c->pass_ms = cost_of_pass(c->machine, s);
        c->most_tokens = n > c->most_tokens ? n : c->most_tokens;
        if (c->pass_ms > c->longest_ms)
            c->longest_ms = c->pass_ms;
    }
    now_ms += c->pass_ms / (N_LAYERS - 1);
}

/* A request, and when things happened to it. */
struct request {
    int32_t prompt[LONG];
    size_t n_prompt;
    struct qwick_generate_options o;
    double added_ms, first_ms; /* first_ms 0: it has no token yet */
    size_t n_tokens;
    bool ended;
    struct qwick_result r;
    /* The longest time in which none of its tokens were evaluated. */
    double rested_ms;
    size_t n_before;
    double moved_ms;
};

static int on_token(void *ctx, const struct qwick_token_event *ev)
{
    struct request *q = ctx;
    (void)ev;
    if (q->n_tokens++ == 0)
        q->first_ms = now_ms;
    return 0;
}

static int on_done(void *ctx, void *tag, struct qwick_result *r,
                   const struct qwick_err *e)
{
    struct request *q = tag;
    (void)ctx;
    if (e)
        fail_msg("%s", e->msg);
    q->ended = true;
    q->r = *r;
    *r = (struct qwick_result){0};
    return 0;
}

static void free_requests(struct request *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        qwick_result_free(&all[i].r);
    free(all);
}

static struct qwick_engine *open_engine(void)
{
    return engine_with(.model = MODEL, .exact = true, .threads = 1,
                       .prefill_chunk = CHUNK);
}

static void open_batch(struct simulation *c, struct qwick_engine *eng,
                       const struct machine *m)
{
    struct qwick_batch_options o = {.size = sizeof o,
                                    .max_batch = 8,
                                    .fair = true,
                                    .done = on_done,
                                    .on_layer = on_layer,
                                    .on_layer_ctx = c};
    struct qwick_err e;
    *c = (struct simulation){.machine = m};
    assert_ok(qwick_batch_create(&c->b, eng, &o, &e), &e);
    c->b->runs.fair.clock = read_clock;
    now_ms = 1;
}

static void add(struct simulation *c, struct request *q, size_t n_prompt,
                size_t n_tokens, uint32_t seed)
{
    struct qwick_err e;
    some_ids(q->prompt, n_prompt, seed);
    q->n_prompt = n_prompt;
    q->o = qwick_generate_defaults();
    q->o.max_tokens = n_tokens;
    q->o.ignore_eos = true;
    q->o.on_token = on_token;
    q->o.on_token_ctx = q;
    own_sampling(&q->o)->temperature = 0;
    qwick_result_free(&q->r);
    q->n_tokens = 0;
    q->first_ms = 0;
    q->ended = false;
    q->added_ms = q->moved_ms = now_ms;
    q->rested_ms = 0;
    q->n_before = 0;
    assert_ok(qwick_batch_add(c->b, q->prompt, n_prompt, &q->o, q, &e), &e);
}

/* Return how many of the request's tokens are evaluated. */
static size_t n_evaluated(const struct simulation *c, const struct request *q)
{
    const struct runs *s = &c->b->runs;
    for (size_t i = 0; i < s->n_live; i++)
        if (((struct seq *)s->live[i])->tag == q && s->live[i]->session)
            return s->live[i]->session->kv.n;
    return 0;
}

/* See whether a prompt has rested in a pass that began at this time. */
static void watch(struct simulation *c, struct request *q, double before)
{
    size_t n = n_evaluated(c, q);
    if (q->n_tokens || n == q->n_before)
        return;
    if (before - q->moved_ms > q->rested_ms)
        q->rested_ms = before - q->moved_ms;
    q->moved_ms = now_ms;
    q->n_before = n;
}

static void step(struct simulation *c)
{
    struct qwick_err e;
    double before = now_ms;
    c->n_layers = 0;
    assert_true(qwick_batch_get_stats(c->b).n_passes < 5000);
    assert_ok(qwick_batch_step(c->b, &e), &e);
    for (size_t i = 0; i < 2 && c->watched[i]; i++)
        watch(c, c->watched[i], before);
}

/* Return the time until the first token of a prompt alone. */
static double time_alone(struct qwick_engine *eng, const struct machine *m,
                         size_t n_prompt)
{
    struct simulation c;
    struct request *q = calloc(1, sizeof *q);
    open_batch(&c, eng, m);
    add(&c, q, n_prompt, 1, 1);
    while (!q->ended)
        step(&c);
    double ms = q->first_ms - q->added_ms;
    qwick_batch_free(c.b);
    free_requests(q, 1);
    return ms;
}

/* Add an answer that does not end, and let it begin. */
static void add_answer(struct simulation *c, struct request *q)
{
    add(c, q, 20, MAX_ANSWER, 2);
    for (int i = 0; i < 5; i++)
        step(c);
    assert_true(q->n_tokens > 0);
}

/* ---- tests -------------------------------------------------------------- */

/* Beside a long prompt an answer keeps half of its rate, and the prompt 40% of
 * its own. */
static void an_answer_and_a_long_prompt_share_time(void **state)
{
    struct qwick_engine *eng = open_engine();
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        const struct machine *machine = &machines[m];
        double alone = time_alone(eng, machine, LONG);
        struct request *answer = calloc(1, sizeof *answer);
        struct request *big = calloc(1, sizeof *big);
        struct simulation c;
        open_batch(&c, eng, machine);
        add_answer(&c, answer);
        double start = now_ms;
        size_t n = answer->n_tokens;
        c.watched[0] = big;
        add(&c, big, LONG, 1, 3);
        while (!big->ended)
            step(&c);
        double ms = now_ms - start;
        double rate = (double)(answer->n_tokens - n) * machine->weights / ms;
        printf("%s: prompt %.0f%% and answer %.0f%% of their rates, rest of "
               "%.0f ms, passes of %.0f ms\n",
               machine->name, 100 * alone / ms, 100 * rate, big->rested_ms,
               c.longest_ms);
        assert_true(rate >= 0.5);
        assert_true(alone / ms >= 0.4);
        assert_true(big->rested_ms <= 1000);
        assert_false(answer->ended);
        qwick_batch_free(c.b);
        free_requests(answer, 1);
        free_requests(big, 1);
    }
    qwick_engine_close(eng);
}

/* A short prompt that arrives during a long one, with and without an answer
 * beside them: its first token comes within twice its time alone and a pass.
 * The long one never rests for more than a second. */
static void short_prompts_do_not_wait_for_long_ones(void **state)
{
    static const size_t lengths[] = {10, 100, 300, 512};
    struct qwick_engine *eng = open_engine();
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        for (size_t i = 0; i < 8; i++) {
            const struct machine *machine = &machines[m];
            size_t n = lengths[i % 4];
            double alone = time_alone(eng, machine, n);
            struct request *all = calloc(3, sizeof *all);
            struct simulation c;
            open_batch(&c, eng, machine);
            if (i >= 4)
                add_answer(&c, &all[0]);
            c.watched[0] = &all[1];
            add(&c, &all[1], LONG, 1, 3);
            for (int k = 0; k < 6; k++)
                step(&c);
            add(&c, &all[2], n, 1, 4);
            while (!all[2].ended)
                step(&c);
            double ms = all[2].first_ms - all[2].added_ms;
            assert_int_equal(all[1].n_tokens, 0);
            while (!all[1].ended)
                step(&c);
            if (ms > 2 * alone || all[1].rested_ms > 1000)
                fail_msg("%s, %zu tokens: %.0f ms, alone %.0f; the long prompt "
                         "rested for %.0f",
                         machine->name, n, ms, alone, all[1].rested_ms);
            qwick_batch_free(c.b);
            free_requests(all, 3);
        }
    }
    qwick_engine_close(eng);
}

/* Short prompts keep coming, and a long one still goes on, though slowly if
 * they alone take more than a second. */
static void a_long_prompt_never_rests(void **state)
{
    struct qwick_engine *eng = open_engine();
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        struct request *all = calloc(3, sizeof *all);
        struct simulation c;
        open_batch(&c, eng, &machines[m]);
        c.watched[0] = &all[0];
        add(&c, &all[0], LONG, 1, 3);
        step(&c);
        for (uint32_t i = 0; !all[0].ended; i++) {
            struct request *q = &all[1 + i % 2];
            if (i < 2 || q->ended)
                add(&c, q, 200, 1, 5 + i);
            step(&c);
        }
        double ms = all[0].first_ms - all[0].added_ms;
        double rate = time_alone(eng, &machines[m], LONG) / ms;
        printf("%s: rest of %.0f ms, %.0f%% of its rate\n", machines[m].name,
               all[0].rested_ms, 100 * rate);
        assert_true(rate > 0.05);
        assert_true(all[0].rested_ms <= 1000);
        qwick_batch_free(c.b);
        free_requests(all, 3);
    }
    qwick_engine_close(eng);
}

/* Two long prompts: the one with fewer tokens left goes first, and neither
 * rests. */
static void long_prompts_take_turns(void **state)
{
    struct qwick_engine *eng = open_engine();
    struct request *all = calloc(2, sizeof *all);
    struct simulation c;
    open_batch(&c, eng, &machines[2]);
    c.watched[0] = &all[0];
    c.watched[1] = &all[1];
    add(&c, &all[0], LONG, 1, 3);
    step(&c);
    add(&c, &all[1], 1000, 1, 4);
    while (!all[0].ended)
        step(&c);
    assert_true(all[1].first_ms < all[0].first_ms);
    assert_true(all[0].rested_ms <= 1000 && all[1].rested_ms <= 1000);
    qwick_batch_free(c.b);
    free_requests(all, 2);
    qwick_engine_close(eng);
}

/* Without a long prompt passes take all they can. */
static void short_prompts_alone_fill_passes(void **state)
{
    struct qwick_engine *eng = open_engine();
    struct request *all = calloc(6, sizeof *all);
    struct simulation c;
    open_batch(&c, eng, &machines[5]);
    add_answer(&c, &all[0]);
    uint64_t n = qwick_batch_get_stats(c.b).n_passes;
    for (uint32_t i = 1; i < 6; i++)
        add(&c, &all[i], 400, 1, 10 + i);
    for (size_t i = 1; i < 6; i++)
        while (!all[i].ended)
            step(&c);
    assert_int_equal(qwick_batch_get_stats(c.b).n_passes - n, 4);
    assert_int_equal(c.most_tokens, CHUNK - 1);
    qwick_batch_free(c.b);
    free_requests(all, 6);
    qwick_engine_close(eng);
}

/* With exact, answers are those of a batch that is not fair. */
static void answers_do_not_depend_on_shares(void **state)
{
    static const size_t n_prompt[] = {20, LONG, 300}, n_tokens[] = {30, 3, 8};
    struct qwick_engine *eng = open_engine();
    struct request *all[2];
    for (size_t fair = 0; fair < 2; fair++) {
        struct simulation c;
        all[fair] = calloc(3, sizeof **all);
        open_batch(&c, eng, &machines[4]);
        c.b->runs.fair.on = fair;
        for (uint32_t i = 0; i < 3; i++) {
            add(&c, &all[fair][i], n_prompt[i], n_tokens[i], 20 + i);
            step(&c);
        }
        while (runs_pending(&c.b->runs))
            step(&c);
        qwick_batch_free(c.b);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(all[0][i].r.n_tokens, n_tokens[i]);
        assert_int_equal(all[1][i].r.n_tokens, n_tokens[i]);
        assert_memory_equal(all[0][i].r.tokens, all[1][i].r.tokens,
                            n_tokens[i] * sizeof(int32_t));
    }
    assert_true(all[0][1].first_ms < all[0][2].first_ms);
    assert_true(all[1][1].first_ms > all[1][2].first_ms);
    free_requests(all[0], 3);
    free_requests(all[1], 3);
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_and_a_long_prompt_share_time),
        cmocka_unit_test(short_prompts_do_not_wait_for_long_ones),
        cmocka_unit_test(a_long_prompt_never_rests),
        cmocka_unit_test(long_prompts_take_turns),
        cmocka_unit_test(short_prompts_alone_fill_passes),
        cmocka_unit_test(answers_do_not_depend_on_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
