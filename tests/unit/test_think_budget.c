/* Think budgets: where thinking ends, what is forced, and that answers do not
 * depend on how their tokens were evaluated. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/engine.h"
#include "engine/generate/generate.h"
#include "engines.h"
#include "own_sampling.h"

static const char sentence[] =
    "Considering the limited time by the user, I have to give the solution "
    "based on the thinking directly now.";

/* A chat of the demo model whose prompt ends in an open think block. */
static const int32_t prompt[] = {6136, 885, 198, 492,  865, 6137, 198,
                                 6136, 570, 334, 1120, 198, 6142, 492};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_TOKENS = 60 };

static struct qwick_engine *open_engine(size_t prefix_bytes)
{
    return engine_with(.exact = true, .threads = 1,
                       .prefix_cache_bytes = prefix_bytes);
}

/* Options of an answer that goes on until it has N_TOKENS tokens. */
static struct qwick_generate_options options(int64_t budget)
{
    struct qwick_generate_options o = qwick_generate_defaults();
    o.in_think = true;
    o.ignore_eos = true;
    o.max_tokens = N_TOKENS;
    own_sampling(&o)->temperature = 1.2f;
    own_sampling(&o)->repeat_penalty = 1.1f;
    own_sampling(&o)->seed = 7;
    o.limit_thinking = budget >= 0;
    o.think_budget = budget >= 0 ? (size_t)budget : 0;
    return o;
}

static struct qwick_result generate(struct qwick_engine *eng,
                                    const int32_t *ids, size_t n,
                                    const struct qwick_generate_options *o)
{
    struct qwick_result r;
    struct qwick_err e;
    struct qwick_session *s = open_session(eng);
    assert_ok(qwick_generate(s, ids, n, o, &r, &e), &e);
    qwick_session_free(s);
    return r;
}

static void assert_same(const struct qwick_result *a,
                        const struct qwick_result *b)
{
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n_forced, b->n_forced);
    assert_string_equal(a->text, b->text);
    assert_int_equal(!a->thinking, !b->thinking);
    if (a->thinking)
        assert_string_equal(a->thinking, b->thinking);
}

/* The ids that a budget forces. */
static int32_t *forced_ids(const struct qwick_engine *eng, size_t *n)
{
    char text[200] = "\n\n";
    int32_t *ids;
    strcat(text, sentence);
    strcat(text, "\n</think>");
    assert_int_equal(
        qwick_tokenize(eng, text, strlen(text), true, &ids, n, NULL), 0);
    return ids;
}

/* ---- counting ------------------------------------------------------------ */

enum { OPEN = 6142, CLOSE = 6143 };

static void thinking_tokens_count(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct think_budget b;
    int32_t id, all[100];
    size_t n;
    assert_int_equal(think_budget_begin(&b, eng, 3, false, false, NULL), 0);
    /* tokens of the text, and those that open and close, do not count */
    const int32_t ids[] = {5, 6, 7, 8, OPEN, 5, 6, CLOSE, 9, 9, 9, OPEN};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        assert_false(think_budget_accept(&b, ids[i]));
        assert_int_equal(think_budget_forced(&b, &id, 1), 0);
    }
    assert_false(think_budget_accept(&b, 5));
    n = think_budget_forced(&b, all, 100);
    assert_true(n > 2);
    assert_int_equal(all[n - 1], CLOSE);
    assert_int_equal(think_budget_forced(&b, all, 2), 2);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(think_budget_forced(&b, &id, 1), 1);
        assert_int_equal(id, b.ids[i]);
        assert_int_equal(think_budget_accept(&b, id), i == n - 1);
    }
    /* the answer goes on */
    assert_int_equal(think_budget_forced(&b, &id, 1), 0);
    assert_false(think_budget_accept(&b, 5));
    assert_int_equal(think_budget_forced(&b, &id, 1), 0);
    think_budget_free(&b);
    qwick_engine_close(eng);
}

/* ---- answers ------------------------------------------------------------- */

struct events {
    size_t n, n_forced, n_forced_text;
};

static int on_token(void *ctx, const struct qwick_token_event *ev)
{
    struct events *v = ctx;
    v->n++;
    v->n_forced += ev->forced;
    v->n_forced_text += ev->forced && ev->channel == QWICK_TEXT;
    assert_true(ev->logprob < 0); /* also of forced tokens */
    return 0;
}

static void budgets_force_the_end(void **state)
{
    static const size_t budgets[] = {0, 1, 7};
    struct qwick_engine *eng = open_engine(0);
    struct qwick_generate_options o = options(-1);
    struct qwick_result all = generate(eng, prompt, N_PROMPT, &o);
    size_t n_forced;
    int32_t *forced = forced_ids(eng, &n_forced);
    assert_int_equal(all.n_forced, 0);
    assert_string_equal(all.text, ""); /* all of it is thinking */
    for (size_t i = 0; i < 3; i++) {
        size_t n = budgets[i];
        struct events v = {0};
        o = options((int64_t)n);
        o.logprobs = 1;
        o.on_token = on_token;
        o.on_token_ctx = &v;
        struct qwick_result r = generate(eng, prompt, N_PROMPT, &o);
        assert_int_equal(r.n_tokens, N_TOKENS);
        assert_memory_equal(r.tokens, all.tokens, n * sizeof *r.tokens);
        assert_memory_equal(r.tokens + n, forced, n_forced * sizeof *forced);
        assert_int_equal(r.n_forced, n_forced);
        /* one pass evaluates them */
        assert_int_equal(r.lookup.n_passes, 1);
        assert_true(r.lookup.n_accepted >= n_forced - 1);
        assert_int_equal(v.n, N_TOKENS);
        assert_int_equal(v.n_forced, n_forced);
        assert_int_equal(v.n_forced_text, 0);
        assert_null(strstr(r.text, sentence));
        assert_true(r.n_text > 0);
        size_t end = r.n_thinking - strlen(sentence);
        assert_string_equal(r.thinking + end, sentence);
        assert_int_equal(n == 0, end == 0);
        qwick_result_free(&r);
    }
    free(forced);
    qwick_result_free(&all);
    qwick_engine_close(eng);
}

/* The forced tokens are evaluated like any others: what follows them is what
 * follows the same tokens in a prompt. */
static void forced_tokens_are_in_the_context(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct qwick_generate_options o = options(5);
    int32_t ids[N_PROMPT + N_TOKENS];
    o.sampling = NULL;
    own_sampling(&o)->temperature = 0;
    struct qwick_result r = generate(eng, prompt, N_PROMPT, &o);
    size_t n = 5 + r.n_forced;
    memcpy(ids, prompt, sizeof prompt);
    memcpy(ids + N_PROMPT, r.tokens, n * sizeof *ids);
    o.in_think = false;
    o.limit_thinking = false;
    o.max_tokens = N_TOKENS - n;
    struct qwick_result rest = generate(eng, ids, N_PROMPT + n, &o);
    assert_int_equal(rest.n_tokens, N_TOKENS - n);
    assert_memory_equal(rest.tokens, r.tokens + n, rest.n_tokens * sizeof *ids);
    qwick_result_free(&rest);
    qwick_result_free(&r);
    qwick_engine_close(eng);
}

/* An answer ends in the middle of the forced tokens, at a length and at the end
 * of the context. */
static void limits_come_first(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct qwick_generate_options o = options(3);
    struct qwick_session *s;
    struct qwick_result r;
    o.max_tokens = 9;
    r = generate(eng, prompt, N_PROMPT, &o);
    assert_int_equal(r.finish, QWICK_FINISH_LENGTH);
    assert_int_equal(r.n_tokens, 9);
    assert_int_equal(r.n_forced, 6);
    assert_string_equal(r.text, "");
    qwick_result_free(&r);
    o.max_tokens = 0;
    assert_int_equal(qwick_session_create(&s, eng, N_PROMPT + 8, NULL), 0);
    assert_int_equal(qwick_generate(s, prompt, N_PROMPT, &o, &r, NULL), 0);
    assert_int_equal(r.finish, QWICK_FINISH_CONTEXT);
    assert_int_equal(r.n_tokens, 9);
    assert_int_equal(r.n_forced, 6);
    qwick_result_free(&r);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

/* ---- one answer from given logits ---------------------------------------- */

enum { VOCAB = 6144 };

/* An answer whose logits the test makes. */
struct by_hand {
    struct generation g;
    struct qwick_generate_options o;
    struct qwick_result r;
    float logits[VOCAB];
};

static void begin(struct by_hand *h, struct qwick_engine *eng,
                  const struct qwick_generate_options *o)
{
    h->o = *o;
    assert_int_equal(qwick_engine_info(eng)->vocab_size, VOCAB);
    assert_int_equal(generation_begin(&h->g, eng, prompt, N_PROMPT, &h->o, 1000,
                                      &h->r, NULL),
                     0);
    for (size_t i = 0; i < VOCAB; i++)
        h->logits[i] = (float)(i * 37 % 64) * 0.1f;
    h->logits[OPEN] = -1e9f;
}

static void end(struct by_hand *h)
{
    generation_free(&h->g);
    qwick_result_free(&h->r);
}

/* The next token, with a logit of `likely` that is larger than all others;
 * -1: as they are. */
static int32_t next(struct by_hand *h, int32_t likely, bool *ended)
{
    int32_t id;
    float old = likely < 0 ? 0 : h->logits[likely];
    if (likely >= 0)
        h->logits[likely] = 100;
    assert_int_equal(generation_draw(&h->g, h->logits, NULL, &id, NULL), 0);
    if (likely >= 0)
        h->logits[likely] = old;
    assert_int_equal(
        generation_emit(&h->g, id, N_PROMPT + h->r.n_tokens, ended, NULL), 0);
    return id;
}

/* A forced token that equals the thinking before it is not a loop. */
static void forced_tokens_are_no_loop(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct qwick_generate_options o = options(2);
    struct by_hand *h = calloc(1, sizeof *h);
    bool ended;
    assert_non_null(h);
    o.sampling = NULL;
    own_sampling(&o)->temperature = 0;
    o.loop_guard = 3;
    begin(h, eng, &o);
    int32_t first = h->g.budget.ids[0];
    for (size_t i = 0; i < 2 + h->g.budget.n_ids; i++) {
        int32_t id = next(h, first, &ended);
        assert_int_equal(id, i < 2 ? first : h->g.budget.ids[i - 2]);
        assert_false(ended);
    }
    /* drawn tokens are */
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(next(h, first, &ended), first);
        assert_int_equal(ended, i == 2);
    }
    assert_int_equal(h->r.finish, QWICK_FINISH_LOOP);
    end(h);
    free(h);
    qwick_engine_close(eng);
}

static void no_second_block_is_opened(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct qwick_generate_options o = options(1);
    struct by_hand *h = calloc(1, sizeof *h);
    bool ended;
    assert_non_null(h);
    begin(h, eng, &o);
    /* until the end is forced, a block may be opened again */
    assert_int_equal(next(h, CLOSE, &ended), CLOSE);
    assert_int_equal(next(h, OPEN, &ended), OPEN);
    assert_int_equal(next(h, 9, &ended), 9);
    for (size_t i = 0; i < h->g.budget.n_ids; i++)
        assert_int_equal(next(h, OPEN, &ended), h->g.budget.ids[i]);
    for (size_t i = 0; i < 5; i++)
        assert_int_not_equal(next(h, OPEN, &ended), OPEN);
    end(h);
    free(h);
    qwick_engine_close(eng);
}

/* A token is drawn with the same random number with a budget as without. */
static void draws_keep_their_random_numbers(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct qwick_generate_options o = options(-1);
    struct by_hand *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    size_t n_same = 0;
    bool ended;
    assert_non_null(a);
    assert_non_null(b);
    *own_sampling(&o) = qwick_sampling_neutral();
    begin(a, eng, &o);
    o.limit_thinking = true;
    o.think_budget = 4;
    begin(b, eng, &o);
    for (size_t i = 0; i < 60; i++) {
        int32_t want = next(a, -1, &ended), got = next(b, -1, &ended);
        if (i < 4 || i >= 4 + b->g.budget.n_ids)
            assert_int_equal(got, want);
        n_same += got == want;
    }
    assert_int_equal(n_same, 60 - b->r.n_forced);
    end(a);
    end(b);
    free(a);
    free(b);
    qwick_engine_close(eng);
}

/* ---- equivalences -------------------------------------------------------- */

enum { N_ANSWERS = 8 };

/* Options that differ in budget, sampling and constraint. */
static struct qwick_generate_options mixed(size_t i, struct qwick_constraint *c)
{
    struct qwick_generate_options o = options((int64_t)(i * 3) - 3);
    own_sampling(&o)->seed = i;
    own_sampling(&o)->temperature = (float)(i % 3) * 0.7f;
    if (i % 4 == 2) {
        o.ignore_eos = false;
        o.constraint = c;
    }
    return o;
}

static struct qwick_constraint *constraint(struct qwick_engine *eng)
{
    struct qwick_constraint_options o = qwick_constraint_defaults();
    struct qwick_constraint *c;
    o.text = "(ab|cd){3}";
    o.n_text = strlen(o.text);
    assert_int_equal(qwick_constraint_create(&c, eng, &o, NULL), 0);
    return c;
}

static void lookup_changes_nothing(void **state)
{
    struct qwick_engine *eng = open_engine(0);
    struct qwick_constraint *c = constraint(eng);
    for (size_t i = 0; i < N_ANSWERS; i++) {
        struct qwick_generate_options o = mixed(i, c);
        struct qwick_result a = generate(eng, prompt, N_PROMPT, &o);
        o.lookup = 3 + i;
        struct qwick_result b = generate(eng, prompt, N_PROMPT, &o);
        assert_same(&a, &b);
        if (i % 4 == 2) {
            assert_int_equal(a.finish, QWICK_FINISH_STOP);
            assert_int_equal(a.n_text, 6);
            assert_non_null(strstr(a.thinking, sentence));
        }
        qwick_result_free(&a);
        qwick_result_free(&b);
    }
    qwick_constraint_free(c);
    qwick_engine_close(eng);
}

static int on_done(void *ctx, void *tag, struct qwick_result *r,
                   const struct qwick_err *e)
{
    struct qwick_result *out = tag;
    (void)ctx;
    assert_null(e);
    *out = *r;
    *r = (struct qwick_result){0};
    return 0;
}

static void batches_are_as_single(void **state)
{
    struct qwick_engine *eng = open_engine((size_t)1 << 20);
    struct qwick_constraint *c = constraint(eng);
    struct qwick_batch_options bo = qwick_batch_defaults();
    struct qwick_batch *b;
    struct qwick_result got[N_ANSWERS] = {0};
    bo.max_batch = 3;
    bo.done = on_done;
    assert_int_equal(qwick_batch_create(&b, eng, &bo, NULL), 0);
    for (size_t i = 0; i < N_ANSWERS; i++) {
        struct qwick_generate_options o = mixed(i, c);
        assert_int_equal(
            qwick_batch_add(b, prompt, N_PROMPT, &o, &got[i], NULL), 0);
    }
    assert_int_equal(qwick_batch_run(b, NULL), 0);
    qwick_batch_free(b);
    for (size_t i = 0; i < N_ANSWERS; i++) {
        struct qwick_generate_options o = mixed(i, c);
        struct qwick_result want = generate(eng, prompt, N_PROMPT, &o);
        assert_same(&got[i], &want);
        assert_int_equal(i > 0, want.n_forced > 0);
        qwick_result_free(&want);
        qwick_result_free(&got[i]);
    }
    qwick_constraint_free(c);
    qwick_engine_close(eng);
}

/* ---- errors -------------------------------------------------------------- */

static void fails(struct qwick_engine *eng,
                  const struct qwick_generate_options *o, const char *why)
{
    const int32_t ids[] = {1, 2};
    struct qwick_result r;
    struct qwick_err e;
    struct qwick_session *s = open_session(eng);
    assert_int_equal(qwick_generate(s, ids, 2, o, &r, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_string_equal(e.msg, why);
    qwick_result_free(&r);
    qwick_session_free(s);
}

static void models_without_thinking_are_refused(void **state)
{
    struct qwick_generate_options o = options(4);
    struct qwick_engine *eng = open_engine(0);
    o.split_thinking = false;
    fails(eng, &o, "think budget: has no effect without split_thinking");
    qwick_engine_close(eng);
    /* has no tokenizer */
    eng = engine_with(.model = "tests/golden/models/f32");
    o.split_thinking = true;
    fails(eng, &o,
          "think budget: the model has no token that closes a think block");
    qwick_engine_close(eng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_tokens_count),
        cmocka_unit_test(budgets_force_the_end),
        cmocka_unit_test(forced_tokens_are_in_the_context),
        cmocka_unit_test(limits_come_first),
        cmocka_unit_test(forced_tokens_are_no_loop),
        cmocka_unit_test(no_second_block_is_opened),
        cmocka_unit_test(draws_keep_their_random_numbers),
        cmocka_unit_test(lookup_changes_nothing),
        cmocka_unit_test(batches_are_as_single),
        cmocka_unit_test(models_without_thinking_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
