/* White space in the documents of a schema: compact, indented, spaced, and as
 * the model writes it. */
#include "schema_automaton.h"

#include <string.h>

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"},\"b\":"
    "{\"const\":{\"c\":[1,{}]}}},\"additionalProperties\":false}";

enum { MAX_DOCS = 16 };

static const struct {
    int indent;
    const char *valid[MAX_DOCS], *invalid[MAX_DOCS];
} rows[] = {
    {0,
     {"{}", "{\"a\":[1,{\"x\":[]}]}", "{\"b\":{\"c\":[1,{}]}}"},
     {"{\"a\": []}", "{ }", "{\"b\":{\"c\":[1, {}]}}", "{\n\"a\":[]\n}"}},
    {2,
     {"{}", "{\n  \"a\": []\n}",
      "{\n  \"a\": [\n    1,\n    {\n      \"x\": []\n    }\n  ]\n}",
      "{\n  \"b\": {\n    \"c\": [\n      1,\n      {}\n    ]\n  }\n}",
      "{\n  \"a\": [],\n  \"b\": {\n    \"c\": [\n      1,\n      {}\n    "
      "]\n  }\n}"},
     {"{\"a\":[]}", "{\n}", "{\n  \"a\": [ ]\n}", "{\n \"a\": []\n}",
      "{\n  \"a\":[]\n}", "{\n  \"a\": [\n  1\n  ]\n}"}},
    {SCHEMA_FREE,
     {"{}", "{\"a\":[1,{\"x\":[]}]}", "{\"b\":{\"c\":[1,{}]}}",
      "{\"a\": [1, {\"x\": []}], \"b\": {\"c\": [1, {}]}}",
      "{ \"a\": [ 1, 2 ] }",
      "{\n  \"a\": [\n    1,\n    {\n      \"x\": []\n    }\n  ]\n}",
      "{\n\t\"b\": {\n\t\t\"c\": [\n\t\t\t1,\n\t\t\t{}\n\t\t]\n\t}\n}",
      "{\n\"a\":[1,\n2]\n}"},
     {" {}", "{} ", "{ }", "{  \"a\": []}", "{\"a\" : []}", "{\"a\":  []}",
      "{\"a\":\n[]}", "{\"a\": [1 , 2]}", "{\n\n\"a\": []}", "{\n \t\"a\": []}",
      "{\"a\": [ ]}", "{\"a\": [1,\r\n2]}",
      /* 65 blanks */
      "{\n                                                                 "
      "\"a\":[]}"}},
};

static struct automaton *compile(int indent)
{
    struct qwick_err e = {0};
    struct automaton *a = NULL;
    struct grammar *g = grammar_of(schema, sizeof schema - 1, indent, &e);
    if (!g || automaton_create(&a, g, &e))
        fail_msg("%s", e.msg);
    grammar_free(g);
    return a;
}

static void admits_white_space(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct automaton *a = compile(rows[i].indent);
        for (const char *const *doc = rows[i].valid; *doc; doc++)
            if (!matches(a, *doc, strlen(*doc)))
                fail_msg("indent %d: does not admit %s", rows[i].indent, *doc);
        for (const char *const *doc = rows[i].invalid; *doc; doc++)
            if (matches(a, *doc, strlen(*doc)))
                fail_msg("indent %d: admits %s", rows[i].indent, *doc);
        automaton_free(a);
    }
}

/* Nesting ends with an indent, and not with free white space. */
static void nests(void **state)
{
    char doc[2 * 200 + 1];
    memset(doc, '[', 200);
    memset(doc + 200, ']', 200);
    struct qwick_err e = {0};
    struct automaton *a = NULL;
    struct grammar *g = grammar_of("{}", 2, SCHEMA_FREE, &e);
    assert_non_null(g);
    assert_ok(automaton_create(&a, g, &e), &e);
    assert_true(matches(a, doc, 400));
    automaton_free(a);
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_white_space),
        cmocka_unit_test(nests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
