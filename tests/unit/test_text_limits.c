/* Limits of time and memory for what strangers send: JSON, templates and texts.
 * The errors are QWICK_ERR_USAGE. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "engines.h"
#include "file/json.h"
#include "text/template/template.h"

/* A time that passes before the first look at the clock. */
#define AT_ONCE 1e-9
#define HOUR_MS 3.6e6

static struct qwick_engine *eng;

static int setup(void **state)
{
    eng = engine_with(.threads = 1);
    return 0;
}

static int teardown(void **state)
{
    qwick_engine_close(eng);
    return 0;
}

static char *repeat(const char *s, size_t n_bytes)
{
    size_t k = strlen(s), n = n_bytes / k;
    char *p = malloc(n * k + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        memcpy(p + i * k, s, k);
    p[n * k] = '\0';
    return p;
}

static void is_refused(int rc, const struct qwick_err *e, const char *why)
{
    assert_int_equal(rc, -1);
    if (e->code != QWICK_ERR_USAGE || !strstr(e->msg, why))
        fail_msg("code %d: %s", (int)e->code, e->msg);
}

/* ---- texts -------------------------------------------------------------- */

static void tokenizing_ends_in_time(void **state)
{
    /* long words, short ones, added tokens, and one to be normalised */
    static const char *const units[] = {"=", "a b ", "<|im_end|>",
                                        "e\xCC\x81\xCC\xA3"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char *text = repeat(units[i], 3 << 20);
        size_t n = strlen(text), n_ids, n_plain;
        int32_t *ids, *plain;
        struct qwick_err e;
        qwick_text_timeout(AT_ONCE);
        is_refused(qwick_tokenize(eng, text, n, true, &ids, &n_ids, &e), &e,
                   "takes too long");
        assert_null(ids);
        assert_int_equal(n_ids, 0);
        /* time enough changes nothing */
        qwick_text_timeout(HOUR_MS);
        assert_ok(qwick_tokenize(eng, text, n, true, &ids, &n_ids, &e), &e);
        qwick_text_timeout(0);
        assert_ok(qwick_tokenize(eng, text, n, true, &plain, &n_plain, &e), &e);
        assert_int_equal(n_ids, n_plain);
        assert_memory_equal(ids, plain, n_ids * sizeof *ids);
        free(ids);
        free(plain);
        free(text);
    }
}

static void vectors_have_the_limit(void **state)
{
    char *text = repeat("word ", 1 << 20);
    const struct qwick_embed_text t = {
        .text = text, .n_text = strlen(text), .truncate = true};
    struct qwick_embedder *m;
    struct qwick_err e;
    int32_t *ids;
    size_t n;
    assert_ok(qwick_embedder_create(&m, eng, NULL, &e), &e);
    qwick_text_timeout(AT_ONCE);
    is_refused(qwick_embed_encode(m, &t, &ids, &n, NULL, &e), &e,
               "takes too long");
    qwick_text_timeout(0);
    qwick_embedder_free(m);
    free(text);
}

/* ---- chats -------------------------------------------------------------- */

static int encode_chat(const char *text, double timeout_ms, size_t max_bytes,
                       struct qwick_err *e)
{
    struct qwick_chat_options o = qwick_chat_defaults();
    struct qwick_chat *chat;
    int32_t *ids;
    size_t n;
    bool in_think;
    o.max_bytes = max_bytes;
    assert_int_equal(qwick_chat_create(&chat, NULL), 0);
    assert_int_equal(qwick_chat_add(chat, "user", text, strlen(text), NULL), 0);
    qwick_text_timeout(timeout_ms);
    int rc = qwick_chat_encode(chat, eng, &o, NULL, 0, &ids, &n, &in_think, e);
    qwick_text_timeout(0);
    qwick_chat_free(chat);
    free(ids);
    return rc;
}

static void chats_have_limits(void **state)
{
    char *text = repeat("word ", 1 << 20);
    struct qwick_err e;
    is_refused(encode_chat(text, AT_ONCE, 0, &e), &e, "takes too long");
    is_refused(encode_chat(text, 0, 1 << 20, &e), &e, "exceeds a bound");
    is_refused(encode_chat(text, HOUR_MS, 4 << 20, &e), &e, "exceeds a bound");
    assert_ok(encode_chat(text, HOUR_MS, 64 << 20, &e), &e);
    free(text);
}

/* ---- templates ---------------------------------------------------------- */

static int render(const char *source, size_t max_bytes, struct qwick_err *e)
{
    struct template *t;
    struct template_result r;
    assert_ok(template_open(&t, "t", source, strlen(source), e), e);
    int rc = template_render_within(&r, t, NULL, 0, NULL, max_bytes, e);
    template_result_free(&r);
    template_close(t);
    return rc;
}

static void templates_have_limits(void **state)
{
    static const char loop[] = "{% for i in range(90000) %}{% for j in "
                               "range(90000) %}{% if i == j %}{% endif %}"
                               "{% endfor %}{% endfor %}";
    struct qwick_err e;
    double start = clock_ms();
    qwick_text_timeout(20);
    is_refused(render(loop, 0, &e), &e, "t: line 1: rendering takes too long");
    qwick_text_timeout(0);
    assert_true(clock_ms() - start < 2000);
    is_refused(render(loop, 64 << 20, &e), &e, "exceeds a bound");
    is_refused(render("{{ ('a' * 3000000) | length }}", 1 << 20, &e), &e,
               "exceeds a bound");
    is_refused(render("{% for i in range(300) %}{{ 'x' * 1000 }}{% endfor %}",
                      1 << 20, &e),
               &e, "exceeds a bound: bytes of text");
    assert_ok(render("{% for i in range(100) %}{{ 'x' * 1000 }}{% endfor %}",
                     1 << 20, &e),
              &e);
}

/* ---- JSON --------------------------------------------------------------- */

static void trees_have_a_limit(void **state)
{
    static const char *const units[] = {"1,", "\"a\",", "[],", "{\"a\":{}},"};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        char *items = repeat(units[i], 1 << 20);
        struct buf text = {0};
        struct json_doc *doc;
        struct qwick_err e;
        assert_int_equal(buf_printf(&text, "[%s1]", items), 0);
        is_refused(json_parse_within(&doc, "t", text.data, text.len, 4 << 20,
                                     QWICK_ERR_USAGE, &e),
                   &e, "t: its values need more than 4 MiB of memory");
        assert_null(doc);
        assert_ok(json_parse_within(&doc, "t", text.data, text.len, 128 << 20,
                                    QWICK_ERR_USAGE, &e),
                  &e);
        json_free(doc);
        buf_free(&text);
        free(items);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenizing_ends_in_time),
        cmocka_unit_test(vectors_have_the_limit),
        cmocka_unit_test(chats_have_limits),
        cmocka_unit_test(templates_have_limits),
        cmocka_unit_test(trees_have_a_limit),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
