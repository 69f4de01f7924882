/* Options of programs that were compiled with an older or a newer header. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/core/options.h"
#include "qwick_tools.h"

/* Options of three versions of a header. */
struct old {
    size_t size;
    int a;
};
struct present {
    size_t size;
    int a, b;
};
struct newer {
    size_t size;
    int a, b, c, d;
};

static void read_them(const void *given, struct present *o)
{
    struct qwick_err e;
    *o = (struct present){sizeof *o, 10, 20};
    assert_ok(options_read(o, sizeof *o, given, "test", &e), &e);
    assert_int_equal(o->size, sizeof *o);
}

static void older_and_newer_structs_are_read(void **state)
{
    struct present o;
    read_them(NULL, &o);
    assert_true(o.a == 10 && o.b == 20);
    read_them(&(struct present){sizeof o, 1, 2}, &o);
    assert_true(o.a == 1 && o.b == 2);
    read_them(&(struct old){offsetof(struct old, a) + sizeof(int), 1}, &o);
    assert_true(o.a == 1 && o.b == 20);
    read_them(&(struct newer){sizeof(struct newer), 1, 2, 0, 0}, &o);
    assert_true(o.a == 1 && o.b == 2);
}

static void refused(const void *given, const char *what)
{
    struct present o = {sizeof o, 10, 20};
    struct qwick_err e;
    assert_int_equal(options_read(&o, sizeof o, given, "test", &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_non_null(strstr(e.msg, "test options"));
    if (!strstr(e.msg, what))
        fail_msg("no \"%s\" in: %s", what, e.msg);
    assert_true(o.a == 10 && o.b == 20);
}

static void unset_sizes_and_unknown_options_are_refused(void **state)
{
    refused(&(struct present){0, 1, 2}, "size is 0");
    refused(&(struct present){1, 1, 2}, "size is 1");
    refused(&(struct present){SIZE_MAX, 1, 2}, "begin with the defaults");
    refused(&(struct newer){sizeof(struct newer), 1, 2, 0, 5},
            "version " QWICK_VERSION " knows");
}

/* Call each function that takes options with a size that was never set. */
static void functions_check_the_size(void **state)
{
    struct qwick_engine *eng, *none;
    struct qwick_session *s;
    struct qwick_chat *c;
    struct qwick_batch *b, *no_batch;
    struct qwick_embedder *m;
    struct qwick_reranker *r;
    struct qwick_result result;
    struct qwick_sampler *sam;
    struct qwick_err e;
    int32_t *ids, one = 1;
    size_t n, window, stride;
    char *text;
    bool in_think;
    assert_int_equal(qwick_engine_open(&eng, NULL, &e), 0);
    assert_int_equal(qwick_session_create(&s, eng, 64, &e), 0);
    assert_int_equal(qwick_batch_create(&b, eng, NULL, &e), 0);
    assert_int_equal(qwick_chat_create(&c, &e), 0);
    struct qwick_engine_options engine = {0};
    struct qwick_chat_options chat = {0};
    struct qwick_generate_options gen = {0};
    struct qwick_sampling sampling = {0};
    struct qwick_batch_options batch = {0};
    struct qwick_score_options wrong = {0};
    struct qwick_embed_options embed = {0};
    struct qwick_rerank_options rerank = {0};
    struct qwick_quantize_options quant = {0};
    struct qwick_selftest_options selftest = {0};
    struct qwick_selftest_report report;
    struct qwick_plan_options plan = {0};
    struct qwick_plan planned;
    struct qwick_score_item score = {0};
    struct qwick_choose_item choose = {0};
    struct qwick_answer answer = {&one, 1};
#define REFUSED(call, what)                                         \
    do {                                                            \
        e = (struct qwick_err){0};                                  \
        assert_int_equal(call, -1);                                 \
        assert_int_equal(e.code, QWICK_ERR_USAGE);                  \
        assert_non_null(strstr(e.msg, what " options: size is 0")); \
    } while (0)
    REFUSED(qwick_engine_open(&none, &engine, &e), "engine");
    REFUSED(qwick_chat_render(c, eng, &chat, &text, &n, &e), "chat");
    REFUSED(qwick_chat_encode(c, eng, &chat, NULL, 0, &ids, &n, &in_think, &e),
            "chat");
    REFUSED(qwick_chat_sync(c, s, &chat, &in_think, &e), "chat");
    REFUSED(qwick_chat_generate(c, s, &chat, NULL, &result, &e), "chat");
    REFUSED(qwick_chat_generate(c, s, NULL, &gen, &result, &e), "generate");
    REFUSED(qwick_generate(s, &one, 1, &gen, &result, &e), "generate");
    REFUSED(qwick_batch_add(b, &one, 1, &gen, NULL, &e), "generate");
    REFUSED(qwick_batch_create(&no_batch, eng, &batch, &e), "batch");
    REFUSED(qwick_score(eng, &score, 0, &wrong, &e), "score");
    REFUSED(qwick_score_windows(eng, &wrong, &window, &stride, &e), "score");
    REFUSED(qwick_choose(eng, &choose, 0, &answer, 1, &wrong, &e), "score");
    REFUSED(qwick_embedder_create(&m, eng, &embed, &e), "embed");
    REFUSED(qwick_reranker_create(&r, eng, "a", 1, &rerank, &e), "rerank");
    REFUSED(qwick_quantize(NULL, "/nonexistent/q", &quant, NULL, &e),
            "quantize");
    REFUSED(qwick_selftest(eng, &selftest, &report, &e), "selftest");
    REFUSED(qwick_plan_make(eng, &plan, &planned, &e), "plan");
    gen = qwick_generate_defaults();
    gen.sampling = &sampling;
    REFUSED(qwick_generate(s, &one, 1, &gen, &result, &e), "sampling");
    REFUSED(qwick_batch_add(b, &one, 1, &gen, NULL, &e), "sampling");
    REFUSED(qwick_sampler_create(&sam, eng, &sampling, &e), "sampling");
    REFUSED(qwick_check_generation(eng, &sampling, &e), "sampling");
    qwick_result_free(&result);
    qwick_batch_free(b);
    qwick_chat_free(c);
    qwick_session_free(s);
    qwick_engine_close(eng);
}

/* The defaults never write beyond the caller's struct. */
static void defaults_stay_within_the_callers_struct(void **state)
{
    unsigned char room[2 * sizeof(struct qwick_embed_options)];
    struct qwick_embed_options o;
    size_t known = sizeof o, old = offsetof(struct qwick_embed_options, dim);
    memset(room, 0xa5, sizeof room);
    qwick_embed_options_init((void *)room, old);
    for (size_t i = old; i < sizeof room; i++)
        assert_int_equal(room[i], 0xa5);
    qwick_embed_options_init((void *)room, known + 8);
    memcpy(&o, room, known);
    assert_int_equal(o.size, known + 8);
    assert_true(o.normalize);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(room[known + i], 0);
    assert_int_equal(room[known + 8], 0xa5);
}

/* An option that an older program lacks has its default, not zero. */
static void missing_options_have_their_defaults(void **state)
{
    struct qwick_engine *eng;
    struct qwick_embedder *m;
    struct qwick_embed_options o = qwick_embed_defaults();
    struct qwick_err e;
    const int32_t ids[] = {1, 2, 3};
    o.size = offsetof(struct qwick_embed_options, normalize);
    o.normalize = false; /* beyond the size: not read */
    assert_int_equal(qwick_engine_open(&eng, NULL, &e), 0);
    assert_int_equal(qwick_embedder_create(&m, eng, &o, &e), 0);
    size_t d = qwick_embedder_dim(m);
    float *v = malloc(d * sizeof *v);
    double sum = 0;
    struct qwick_embed_item item = {ids, 3, v};
    assert_non_null(v);
    assert_int_equal(qwick_embed(m, &item, 1, &e), 0);
    for (size_t i = 0; i < d; i++)
        sum += (double)v[i] * (double)v[i];
    assert_true(fabs(sum - 1) < 1e-5); /* d roundings of 2^-24 each */
    free(v);
    qwick_embedder_free(m);
    qwick_engine_close(eng);
}

/* A later member of the sampling values breaks no program: one that lacks it
 * gets its default, one that has it is refused only if it sets it. */
static void sampling_values_may_grow(void **state)
{
    struct qwick_engine *eng;
    struct qwick_sampler *sam;
    struct qwick_err e;
    struct {
        struct qwick_sampling o;
        uint64_t later;
    } newer;
    unsigned char room[sizeof newer + 8];
    const size_t old = offsetof(struct qwick_sampling, repeat_penalty);
    assert_int_equal(qwick_engine_open(&eng, NULL, &e), 0);
    qwick_sampling_init(&newer.o, sizeof newer);
    assert_int_equal(newer.later, 0);
    assert_true(newer.o.temperature == 1 && newer.o.repeat_penalty == 1);
    assert_int_equal(qwick_sampler_create(&sam, eng, &newer.o, &e), 0);
    qwick_sampler_free(sam);
    newer.later = 1;
    assert_int_equal(qwick_sampler_create(&sam, eng, &newer.o, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    /* An older struct ends before the penalties: 0 would be refused. */
    newer.o = qwick_sampling_neutral();
    newer.o.size = old;
    newer.o.repeat_penalty = 0;
    assert_int_equal(qwick_sampler_create(&sam, eng, &newer.o, &e), 0);
    qwick_sampler_free(sam);
    memset(room, 0xa5, sizeof room);
    qwick_sampling_read(eng, true, (void *)room, old);
    for (size_t i = old; i < sizeof room; i++)
        assert_int_equal(room[i], 0xa5);
    qwick_engine_close(eng);
}

static void the_version_is_the_headers(void **state)
{
    assert_string_equal(qwick_version(), QWICK_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_and_newer_structs_are_read),
        cmocka_unit_test(unset_sizes_and_unknown_options_are_refused),
        cmocka_unit_test(functions_check_the_size),
        cmocka_unit_test(defaults_stay_within_the_callers_struct),
        cmocka_unit_test(missing_options_have_their_defaults),
        cmocka_unit_test(sampling_values_may_grow),
        cmocka_unit_test(the_version_is_the_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
