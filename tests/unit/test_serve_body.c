/* Bodies of the endpoints that no record of batch describes. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "cli/serve/body.h"

static struct json_doc *parse(const char *text)
{
    struct json_doc *doc;
    struct qwick_err e;
    assert_ok(json_parse(&doc, "body", text, strlen(text), QWICK_ERR_USAGE, &e),
              &e);
    return doc;
}

static void base64_of_all_lengths(void **state)
{
    /* the vectors of RFC 4648, section 10, and bytes above 127 */
    static const struct {
        const char *bytes, *text;
    } rows[] = {{"", ""},
                {"f", "Zg=="},
                {"fo", "Zm8="},
                {"foo", "Zm9v"},
                {"foob", "Zm9vYg=="},
                {"fooba", "Zm9vYmE="},
                {"foobar", "Zm9vYmFy"},
                {"\xff\xfe\xfd\xfb", "//79+w=="}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf b = {0};
        assert_int_equal(
            base64_append(&b, rows[i].bytes, strlen(rows[i].bytes)), 0);
        assert_string_equal(buf_text(&b), rows[i].text);
        buf_free(&b);
    }
    const float numbers[] = {1, -2.5f};
    struct buf b = {0};
    assert_int_equal(base64_append(&b, numbers, sizeof(numbers)), 0);
    assert_string_equal(b.data, "AACAPwAAIMA=");
    buf_free(&b);
}

static void inputs_have_four_forms(void **state)
{
    static const struct {
        const char *body;
        size_t n, n_first; /* bytes or ids of the first input */
    } rows[] = {
        {"{\"input\": \"ab\"}", 1, 2},
        {"{\"input\": [\"abc\", \"d\"]}", 2, 3},
        {"{\"input\": [5, 6, 7, 8]}", 1, 4},
        {"{\"input\": [[1], [2, 3], \"mixed\"]}", 3, 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct json_doc *doc = parse(rows[i].body);
        struct body_inputs in;
        struct serve_error e = {0};
        assert_int_equal(body_inputs(json_root(doc), "input", &in, &e), 0);
        assert_int_equal(in.n, rows[i].n);
        assert_int_equal(in.items[0].len, rows[i].n_first);
        json_free(doc);
    }
}

static void bad_inputs_are_refused(void **state)
{
    static const char *const bodies[] = {
        "{}",
        "{\"input\": null}",
        "{\"input\": 5}",
        "{\"input\": {}}",
        "{\"input\": \"\"}",
        "{\"input\": []}",
        "{\"input\": [\"a\", \"\"]}",
        "{\"input\": [[1], []]}",
        "{\"input\": [\"a\", 5]}",
        "{\"input\": [true]}",
        "{\"input\": [\"a\", null]}",
    };
    struct body_inputs in;
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        struct json_doc *doc = parse(bodies[i]);
        struct serve_error e = {0};
        assert_int_equal(body_inputs(json_root(doc), "input", &in, &e), -1);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, "input");
        assert_int_equal(strncmp(e.e.msg, "input: ", 7), 0);
        json_free(doc);
    }
}

static void at_most_2048_inputs(void **state)
{
    struct body_inputs in;
    for (size_t n = 2048; n <= 2049; n++) {
        struct buf b = {0};
        struct serve_error e = {0};
        buf_puts(&b, "{\"input\": [");
        for (size_t i = 0; i < n; i++)
            buf_puts(&b, i ? ",\"a\"" : "\"a\"");
        buf_puts(&b, "]}");
        struct json_doc *doc = parse(b.data);
        assert_int_equal(body_inputs(json_root(doc), "input", &in, &e),
                         n == 2048 ? 0 : -1);
        if (n == 2049)
            assert_non_null(strstr(e.e.msg, "2049"));
        json_free(doc);
        buf_free(&b);
    }
}

static void ids_are_in_the_vocabulary(void **state)
{
    static const char *const bad[] = {
        "{\"input\": [-1]}", "{\"input\": [1, 100]}", "{\"input\": [1.5]}",
        "{\"input\": [1, \"a\"]}", "{\"input\": [1e3]}"};
    struct json_doc *doc = parse("{\"input\": [0, 99]}");
    struct body_inputs in;
    struct serve_error e = {0};
    int32_t *ids;
    size_t n;
    assert_int_equal(body_inputs(json_root(doc), "input", &in, &e), 0);
    assert_int_equal(body_ids(&in, 0, 100, &ids, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], 99);
    free(ids);
    json_free(doc);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        doc = parse(bad[i]);
        assert_int_equal(body_inputs(json_root(doc), "input", &in, &e), 0);
        assert_int_equal(body_ids(&in, 0, 100, &ids, &n, &e), -1);
        assert_int_equal(e.status, 400);
        assert_string_equal(e.param, "input");
        json_free(doc);
    }
}

static void members_have_their_types(void **state)
{
    struct json_doc *doc = parse(
        "{\"t\": true, \"f\": false, \"z\": null, \"i\": 7, \"s\": \"x\"}");
    const struct json_value *v = json_root(doc);
    struct serve_error e = {0};
    bool b = true;
    int64_t i = 3;
    assert_int_equal(body_bool(v, "f", &b, &e), 0);
    assert_false(b);
    assert_int_equal(body_bool(v, "t", &b, &e), 0);
    assert_true(b);
    assert_int_equal(body_bool(v, "z", &b, &e), 0);
    assert_false(b);
    assert_int_equal(body_bool(v, "s", &b, &e), -1);
    assert_string_equal(e.param, "s");
    assert_int_equal(body_int(v, "absent", 1, 9, &i, &e), 0);
    assert_int_equal(i, 3);
    assert_int_equal(body_int(v, "z", 1, 9, &i, &e), 0);
    assert_int_equal(i, 3);
    assert_int_equal(body_int(v, "i", 1, 7, &i, &e), 0);
    assert_int_equal(i, 7);
    assert_int_equal(body_int(v, "i", 1, 6, &i, &e), -1);
    assert_string_equal(e.param, "i");
    assert_int_equal(body_int(v, "t", 0, 6, &i, &e), -1);
    json_free(doc);
}

/* Statuses of the library's errors. */
static void faults_have_statuses(void **state)
{
    static const struct {
        enum qwick_err_code code;
        int status;
    } rows[] = {{QWICK_ERR_USAGE, 400},
                {QWICK_ERR_CONTEXT, 400},
                {QWICK_ERR_MODEL, 400},
                {QWICK_ERR_MEMORY, 503},
                {QWICK_ERR_RUNTIME, 500}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct serve_error e;
        struct qwick_err why;
        err_set(&why, rows[i].code, "why");
        assert_int_equal(body_fault(&e, "input", &why), -1);
        assert_int_equal(e.status, rows[i].status);
        assert_string_equal(e.param, rows[i].status == 400 ? "input" : "");
        assert_string_equal(
            e.code ? e.code : "",
            rows[i].code == QWICK_ERR_CONTEXT ? "context_length_exceeded" : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_of_all_lengths),
        cmocka_unit_test(inputs_have_four_forms),
        cmocka_unit_test(bad_inputs_are_refused),
        cmocka_unit_test(at_most_2048_inputs),
        cmocka_unit_test(ids_are_in_the_vocabulary),
        cmocka_unit_test(members_have_their_types),
        cmocka_unit_test(faults_have_statuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
