/* Checks of documents against schemas: each keyword, which failure is named,
 * and bounded work. */
#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/schema/schema.h"
#include "text/schema/schema_validator.h"

enum { MAX_DOCS = 12 };

static const struct documents {
    const char *schema;
    const char *valid[MAX_DOCS], *invalid[MAX_DOCS];
} documents[] = {
    {"true", {"1", "{}"}, {""}},
    {"{\"type\":[\"integer\",\"null\"]}",
     {"1", "1.0", "null"},
     {"1.5", "\"\""}},
    {"{\"enum\":[1,{\"a\":[1,2]}]}",
     {"1", "1.0", "{\"a\":[1.0,2]}"},
     {"2", "{\"a\":[2,1]}", "{}"}},
    {"{\"const\":{\"a\":1,\"b\":2}}", {"{\"b\":2,\"a\":1}"}, {"{\"a\":1}"}},
    {"{\"minimum\":0,\"exclusiveMaximum\":10,\"multipleOf\":2}",
     {"0", "8", "4.0", "\"x\""},
     {"-2", "10", "3"}},
    {"{\"minLength\":2,\"maxLength\":3,\"pattern\":\"^a\"}",
     {"\"ab\"", "\"a\\u00e4\\ud83d\\ude00\"", "1"},
     {"\"a\"", "\"abcd\"", "\"ba\""}},
    {"{\"format\":\"date\"}", {"\"2024-02-29\"", "1"}, {"\"2023-02-29\""}},
    {"{\"prefixItems\":[{\"type\":\"null\"}],\"items\":{\"type\":\"number\"},"
     "\"minItems\":1,\"maxItems\":3}",
     {"[null]", "[null,1,2]", "{}"},
     {"[]", "[1]", "[null,null]", "[null,1,2,3]"}},
    {"{\"uniqueItems\":true}",
     {"[]", "[1,2]", "[1,true]", "[[1],[2]]", "[{\"a\":1},{\"b\":1}]",
      "[0,false]"},
     {"[1,1.0]", "[[1,{}],[1.0,{}]]", "[{\"a\":1,\"b\":2},{\"b\":2,\"a\":1}]"}},
    {"{\"contains\":{\"const\":1}}", {"[2,1]", "1"}, {"[]", "[2]"}},
    {"{\"contains\":{\"const\":1},\"minContains\":2,\"maxContains\":3}",
     {"[1,2,1]", "[1,1,1]"},
     {"[1]", "[1,1,1,1]"}},
    {"{\"contains\":{\"const\":1},\"minContains\":0,\"maxContains\":1}",
     {"[]", "[1]"},
     {"[1,1]"}},
    {"{\"minContains\":2}", {"[]"}, {""}},
    {"{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"b\"],"
     "\"patternProperties\":{\"^x\":{\"type\":\"number\"}},"
     "\"additionalProperties\":{\"type\":\"string\"}}",
     {"{\"b\":\"\"}", "{\"a\":null,\"b\":\"\",\"x1\":2}", "[]"},
     {"{}", "{\"b\":1}", "{\"b\":\"\",\"a\":\"\"}", "{\"b\":\"\",\"x\":\"\"}"}},
    {"{\"minProperties\":1,\"maxProperties\":2}",
     {"{\"a\":1}", "{\"a\":1,\"b\":1}", "[]"},
     {"{}", "{\"a\":1,\"b\":1,\"c\":1}"}},
    {"{\"propertyNames\":{\"maxLength\":1}}",
     {"{}", "{\"a\":1}"},
     {"{\"ab\":1}"}},
    {"{\"dependentRequired\":{\"a\":[\"b\",\"c\"]}}",
     {"{}", "{\"b\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "1"},
     {"{\"a\":1,\"b\":1}"}},
    {"{\"dependentSchemas\":{\"a\":{\"required\":[\"b\"]}}}",
     {"{}", "{\"a\":1,\"b\":1}", "[\"a\"]"},
     {"{\"a\":1}"}},
    {"{\"allOf\":[{\"minimum\":1},{\"maximum\":2}]}", {"1", "2"}, {"0", "3"}},
    {"{\"anyOf\":[{\"minimum\":3},{\"maximum\":1}]}", {"1", "3"}, {"2"}},
    {"{\"oneOf\":[{\"minimum\":1},{\"maximum\":2}]}", {"0", "3"}, {"1", "2"}},
    {"{\"not\":{\"type\":\"object\",\"required\":[\"a\"]}}",
     {"1", "{}"},
     {"{\"a\":1}"}},
    {"{\"not\":{\"enum\":[1,\"a\"]}}", {"2"}, {"1.0", "\"a\""}},
    {"{\"if\":{\"type\":\"number\"},\"then\":{\"minimum\":1},\"else\":{"
     "\"type\":"
     "\"string\"}}",
     {"1", "\"\""},
     {"0", "null"}},
    {"{\"then\":false,\"else\":false}", {"1"}, {""}},
    {"{\"$ref\":\"#/$defs/a\",\"maximum\":2,\"$defs\":{\"a\":{\"minimum\":1}}}",
     {"1", "2"},
     {"0", "3"}},
    {"{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}",
     {"[]", "[[],[[]]]"},
     {"[[1]]"}},
    /* what counts as evaluated */
    {"{\"properties\":{\"a\":true},\"patternProperties\":{\"^x\":true},"
     "\"unevaluatedProperties\":{\"type\":\"null\"}}",
     {"{\"a\":1,\"x\":1,\"b\":null}"},
     {"{\"b\":1}"}},
    {"{\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}}},"
     "{\"required\":[\"b\"],\"properties\":{\"b\":true}}],"
     "\"unevaluatedProperties\":false}",
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":1}"},
     {"{\"a\":2,\"b\":1}", "{\"c\":1}", "{\"b\":1,\"a\":2}"}},
    {"{\"oneOf\":[{\"required\":[\"a\"],\"properties\":{\"a\":true}},"
     "{\"required\":[\"b\"],\"properties\":{\"b\":true}}],"
     "\"unevaluatedProperties\":false}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{\"a\":1,\"c\":1}", "{\"a\":1,\"b\":1}"}},
    {"{\"if\":{\"required\":[\"a\"],\"properties\":{\"a\":true}},"
     "\"else\":{\"properties\":{\"b\":true}},\"unevaluatedProperties\":false}",
     {"{\"a\":1}", "{\"b\":1}"},
     {"{\"a\":1,\"b\":1}"}},
    {"{\"not\":{\"not\":{\"properties\":{\"a\":true}}},"
     "\"unevaluatedProperties\":false}",
     {"{}"},
     {"{\"a\":1}"}},
    {"{\"dependentSchemas\":{\"a\":{\"properties\":{\"a\":true,\"b\":true}}},"
     "\"unevaluatedProperties\":false}",
     {"{\"a\":1,\"b\":1}"},
     {"{\"b\":1}"}},
    {"{\"$ref\":\"#/$defs/a\",\"unevaluatedProperties\":false,"
     "\"$defs\":{\"a\":{\"allOf\":[{\"properties\":{\"a\":true}}]}}}",
     {"{\"a\":1}"},
     {"{\"b\":1}"}},
    {"{\"allOf\":[{\"unevaluatedProperties\":true}],"
     "\"unevaluatedProperties\":false}",
     {"{\"a\":1}"},
     {"1.x"}},
    {"{\"properties\":{\"a\":true},\"allOf\":[{\"unevaluatedProperties\":false}"
     "]}",
     {"{}"},
     {"{\"a\":1}"}},
    {"{\"prefixItems\":[true],\"contains\":{\"const\":2},"
     "\"unevaluatedItems\":{\"type\":\"null\"}}",
     {"[1,2]", "[2,null]", "[1,2,null,2]"},
     {"[1,2,3]", "[1]"}},
    {"{\"anyOf\":[{\"prefixItems\":[true,true]},{\"items\":{\"const\":1}}],"
     "\"unevaluatedItems\":false}",
     {"[1,1,1]", "[2,3]"},
     {"[2,3,4]"}},
};

static struct schema_validator *validator_of(const char *schema)
{
    struct schema_validator *v;
    struct qwick_err e;
    assert_ok(schema_validator_create(&v, schema, strlen(schema), NULL, &e),
              &e);
    return v;
}

static void check_documents(void **state)
{
    struct qwick_err e;
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        const struct documents *d = &documents[i];
        struct schema_validator *v = validator_of(d->schema);
        for (size_t k = 0; k < MAX_DOCS && d->valid[k]; k++)
            if (schema_validator_check(v, d->valid[k], strlen(d->valid[k]),
                                       &e) != 1)
                fail_msg("%s: %s: %s", d->schema, d->valid[k], e.msg);
        for (size_t k = 0; k < MAX_DOCS && d->invalid[k]; k++)
            if (schema_validator_check(v, d->invalid[k], strlen(d->invalid[k]),
                                       &e) != 0)
                fail_msg("%s admits %s", d->schema, d->invalid[k]);
        schema_validator_free(v);
    }
}

/* ---- which failure is named ---------------------------------------------- */

static const struct failure {
    const char *schema, *doc, *message;
} failures[] = {
    {"false", "1", "the document violates #"},
    {"{\"uniqueItems\":true}", "[1,1]", "the document violates #/uniqueItems"},
    {"{\"properties\":{\"a/b\":{\"items\":{\"type\":\"null\"}}}}",
     "{\"a/b\":[null,1]}", "/a~1b/1 violates #/properties/a~1b/items/type"},
    {"{\"anyOf\":[{\"minimum\":2},{\"maximum\":0}]}", "1",
     "the document violates #/anyOf"},
    {"{\"allOf\":[{\"minimum\":2},{\"maximum\":0}]}", "1",
     "the document violates #/allOf/0/minimum"},
    {"{\"propertyNames\":{\"maxLength\":1}}", "{\"ab\":1}",
     "the document violates #/propertyNames"},
    {"{\"if\":{\"minimum\":1},\"then\":{\"maximum\":2}}", "3",
     "the document violates #/then/maximum"},
    {"{\"exclusiveMinimum\":1}", "1",
     "the document violates #/exclusiveMinimum"},
    {"{\"exclusiveMaximum\":0.1}", "0.1",
     "the document violates #/exclusiveMaximum"},
    {"{\"multipleOf\":3}", "4", "the document violates #/multipleOf"},
    {"true", "[1", NULL},
};

static void names_failures(void **state)
{
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        const struct failure *f = &failures[i];
        struct schema_validator *v = validator_of(f->schema);
        struct qwick_err e = {0};
        assert_int_equal(schema_validator_check(v, f->doc, strlen(f->doc), &e),
                         0);
        if (f->message)
            assert_string_equal(e.msg, f->message);
        else
            assert_non_null(strstr(e.msg, "offset"));
        schema_validator_free(v);
    }
}

/* ---- lenient schemas ----------------------------------------------------- */

static struct grammar *grammar_of(const char *schema, bool lenient,
                                  struct qwick_err *e)
{
    struct schema_options o = {.lenient = lenient, .where = "W: "};
    struct grammar *g = NULL;
    uint32_t root;
    assert_ok(grammar_create(&g, "S", e), e);
    if (schema_compile(g, schema, strlen(schema), &o, &root, e) == 0 &&
        grammar_finish(g, root, e) == 0)
        return g;
    grammar_free(g);
    return NULL;
}

static bool grammar_admits(const struct grammar *g, const char *doc)
{
    struct automaton *a;
    struct qwick_err e;
    assert_ok(automaton_create(&a, g, &e), &e);
    uint32_t state = automaton_start(a);
    for (; *doc && state != AUTOMATON_DEAD; doc++)
        state = automaton_advance(a, state, (unsigned char)*doc);
    bool ok = state != AUTOMATON_DEAD && automaton_accepts(a, state);
    automaton_free(a);
    return ok;
}

/* A pattern whose automaton has 2^18 states. */
#define LARGE "\"pattern\":\"^(a|b)*a(a|b){17}$\""

static void weakens_by_name(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{"
        "\"type\":\"string\"," LARGE "}},\"additionalProperties\":false}";
    struct qwick_err e;
    size_t n;
    assert_null(grammar_of(schema, false, &e));
    assert_non_null(strstr(e.msg, "#/properties/a/pattern"));
    struct grammar *g = grammar_of(schema, true, &e);
    assert_non_null(g);
    assert_string_equal(grammar_remarks(g, GRAMMAR_WEAKENED, &n),
                        "W: #/properties/a/pattern\n");
    assert_int_equal(n, 1);
    assert_true(grammar_admits(g, "{\"a\":\"aaaaaaaaaaaaaaaaaa\"}"));
    assert_true(grammar_admits(g, "{\"a\":\"b\"}"));
    assert_false(grammar_admits(g, "{\"a\":1}"));
    grammar_free(g);
}

/* What cannot be held is left out where that admits more, and else with all
 * that depends on it. The check knows it. */
static void weakens_to_supersets(void **state)
{
    static const struct {
        const char *schema; /* %s: LARGE */
        const char *valid, *invalid;
    } cases[] = {
        {"{%s}", "\"aaaaaaaaaaaaaaaaaaaa\"", "\"b\""},
        {"{\"not\":{\"type\":\"string\",%s}}", "\"b\"",
         "\"aaaaaaaaaaaaaaaaaaaa\""},
        {"{\"if\":{%s},\"then\":{\"type\":\"number\"}}", "\"b\"",
         "\"aaaaaaaaaaaaaaaaaaaa\""},
        {"{\"oneOf\":[{\"type\":\"string\"},{%s}]}", "\"b\"",
         "\"aaaaaaaaaaaaaaaaaaaa\""},
        {"{\"not\":{\"multipleOf\":123457},\"type\":\"integer\"}", "1",
         "246914"},
        {"{\"required\":[\"p\",\"q\"],\"properties\":{\"p\":{\"$ref\":"
         "\"#/$defs/c\"},\"q\":{\"$ref\":\"#/$defs/c\","
         "\"unevaluatedProperties\":false}},\"$defs\":{\"c\":{\"if\":{"
         "\"properties\":{\"a\":true}}}}}",
         "{\"p\":{},\"q\":{\"a\":1}}", "{\"p\":{},\"q\":{\"b\":1}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char schema[300];
        struct qwick_err e;
        size_t n;
        const char *at = strstr(cases[i].schema, "%s");
        size_t before =
            at ? (size_t)(at - cases[i].schema) : strlen(cases[i].schema);
        snprintf(schema, sizeof schema, "%.*s%s%s", (int)before,
                 cases[i].schema, at ? LARGE : "", at ? at + 2 : "");
        assert_null(grammar_of(schema, false, &e));
        struct grammar *g = grammar_of(schema, true, &e);
        if (!g)
            fail_msg("%s: %s", schema, e.msg);
        grammar_remarks(g, GRAMMAR_WEAKENED, &n);
        assert_true(n > 0);
        struct schema_validator *v = validator_of(schema);
        const char *docs[] = {cases[i].invalid, cases[i].valid};
        for (int k = 0; k < 2; k++) {
            if (!grammar_admits(g, docs[k]))
                fail_msg("%s: no superset: %s", schema, docs[k]);
            assert_int_equal(
                schema_validator_check(v, docs[k], strlen(docs[k]), &e), k);
        }
        schema_validator_free(v);
        grammar_free(g);
    }
}

/* What a schema demands wrongly is no matter of leniency. */
static void refuses_errors(void **state)
{
    struct qwick_err e;
    assert_null(grammar_of("{\"minimum\":\"1\"}", true, &e));
    assert_null(grammar_of("{\"$ref\":\"#/a\"}", true, &e));
    /* neither held nor checked */
    static const char twice[] = "{\"multipleOf\":12345.678901}";
    struct schema_validator *v;
    assert_int_equal(
        schema_validator_create(&v, twice, strlen(twice), NULL, &e), -1);
    assert_non_null(strstr(e.msg, "can neither be held nor checked"));
}

/* ---- limits -------------------------------------------------------------- */

/* Each level doubles the work. */
static void bounds_work(void **state)
{
    const char *schema = "{\"$defs\":{\"a\":{\"items\":{\"anyOf\":[{\"$ref\":"
                         "\"#/$defs/a\",\"not\":"
                         "{}},{\"$ref\":\"#/$defs/"
                         "a\",\"maxItems\":1}]}}},\"$ref\":\"#/$defs/a\"}";
    struct schema_validator *v = validator_of(schema);
    struct buf doc = {0};
    struct qwick_err e;
    for (size_t i = 0; i < 400; i++)
        assert_int_equal(buf_putc(&doc, '['), 0);
    for (size_t i = 0; i < 400; i++)
        assert_int_equal(buf_putc(&doc, ']'), 0);
    assert_int_equal(schema_validator_check(v, doc.data, doc.len, &e), -1);
    assert_non_null(strstr(e.msg, "steps"));
    buf_free(&doc);
    schema_validator_free(v);
}

static void refuses_loops(void **state)
{
    static const char *const schemas[] = {
        "{\"not\":{\"$ref\":\"#\"}}",
        "{\"if\":{\"$ref\":\"#\"}}",
        "{\"dependentSchemas\":{\"a\":{\"$ref\":\"#\"}}}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct schema_validator *v;
        struct qwick_err e;
        assert_int_equal(schema_validator_create(&v, schemas[i],
                                                 strlen(schemas[i]), NULL, &e),
                         -1);
        assert_non_null(strstr(e.msg, "refers to itself"));
        assert_null(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_documents),
        cmocka_unit_test(names_failures),
        cmocka_unit_test(weakens_by_name),
        cmocka_unit_test(weakens_to_supersets),
        cmocka_unit_test(refuses_errors),
        cmocka_unit_test(bounds_work),
        cmocka_unit_test(refuses_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
