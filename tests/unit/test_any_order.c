/* The search for an order of members that a schema admits, with which suites
 * are run (any_order.h). */
#include "schema_automaton.h"

#include <string.h>

#include "any_order.h"
#include "base/buf.h"
#include "file/json.h"

static const struct {
    const char *schema, *document;
    int found;
    const char *text; /* what is admitted, or the note */
} rows[] = {
    {"{\"properties\":{\"a\":{},\"b\":{},\"c\":{\"properties\":{\"d\":{},"
     "\"e\":{}}}}}",
     "{\"x\":1, \"c\":{\"e\":1,\"d\":2}, \"a\":[1, 2], \"b\":null}", 1,
     "{\"a\":[1,2],\"b\":null,\"c\":{\"d\":2,\"e\":1},\"x\":1}"},
    {"{\"properties\":{\"a\":{}},\"additionalProperties\":false}",
     "{\"b\":1,\"a\":2}", 0, NULL},
    /* an order that only one branch has */
    {"{\"anyOf\":[{\"properties\":{\"a\":{},\"b\":{},\"k\":{\"const\":1}}},"
     "{\"properties\":{\"b\":{},\"a\":{},\"k\":{\"const\":2}}}]}",
     "{\"k\":2,\"a\":0,\"b\":0}", 1, "{\"b\":0,\"a\":0,\"k\":2}"},
    /* names that no schema has: any order of 40 leads on */
    {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
     "{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,"
     "\"j\":1,\"k\":1,\"l\":1,\"m\":1,\"n\":1,\"o\":1,\"p\":1,\"q\":1,\"r\":1,"
     "\"s\":1,\"t\":1,\"u\":1,\"v\":1,\"w\":1,\"x\":1,\"y\":1,\"z\":null}",
     0, NULL},
    /* spellings */
    {"{\"type\":\"integer\"}", "12.0", 1, "12"},
    {"{\"type\":\"integer\"}", "1.2e1", 1, "12"},
    {"{\"type\":\"integer\"}", "1.25e1", 0, NULL},
    {"{\"minimum\":0,\"maximum\":1}", "1e-3", 1, "0.001"},
    {"{\"enum\":[2.0]}", "2", 1, "2.0"},
    {"{\"pattern\":\"^[^a]*$\"}", "\"\\u0041\\n\\u007f\\\"\"", 1, NULL},
    {"{\"items\":{\"type\":\"array\",\"maxItems\":1}}", "[[],[1]]", 1, NULL},
    {"{\"items\":{\"type\":\"array\",\"maxItems\":1}}", "[[],[1,2]]", 0, NULL},
};

static void finds_orders(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qwick_err e = {0};
        struct grammar *g =
            grammar_of(rows[i].schema, strlen(rows[i].schema), 0, &e);
        struct automaton *a;
        struct json_doc *doc;
        struct buf text = {0};
        assert_non_null(g);
        assert_ok(automaton_create(&a, g, &e), &e);
        assert_ok(json_parse(&doc, "document", rows[i].document,
                             strlen(rows[i].document), QWICK_ERR_USAGE, &e),
                  &e);
        int found = any_order_find(a, json_root(doc), false, &text);
        if (found != rows[i].found)
            fail_msg("%s: %d, %s", rows[i].document, found, buf_text(&text));
        if (rows[i].text)
            assert_string_equal(buf_text(&text), rows[i].text);
        assert_int_equal(found && !matches(a, buf_text(&text), text.len), 0);
        buf_free(&text);
        json_free(doc);
        automaton_free(a);
        grammar_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_orders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
