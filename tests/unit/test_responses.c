/* Bodies of /v1/responses: the record that they become. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "cli/io/out.h"
#include "cli/serve/responses.h"

/* Read a body. *record gets the record, or the message of an error after "! "
 * and the member at fault. */
static void read_body(const char *body, struct responses *o, struct buf *record)
{
    struct request_context context = {.input = "test", .unit = "body"};
    struct body_reader x = {.warn = &context, .number = 1};
    struct json_writer w = json_writer(record);
    struct json_doc *doc;
    struct qwick_err e;
    assert_ok(json_parse(&doc, "body", body, strlen(body), QWICK_ERR_USAGE, &e),
              &e);
    body_begin(&x, json_root(doc), &w, &e);
    jw_object(&w, NULL);
    int rc = responses_read_body(o, &x);
    jw_end_object(&w);
    assert_int_equal(jw_status(&w), 0);
    if (rc) {
        record->len = 0;
        buf_printf(record, "! %s: %s", x.fault, e.msg);
    }
    json_free(doc);
    buf_free(&context.unknown);
}

static void bodies_become_records(void **state)
{
#define INPUT(ITEMS) "{\"input\": [" ITEMS "]}"
#define MESSAGES(M)  "{\"messages\":[" M "],\"template_args\":{}}"
#define CALL(ID)                                                        \
    "{\"type\": \"function_call\", \"call_id\": \"" ID "\", \"name\": " \
    "\"f\", \"arguments\": \"{}\"}"
#define CALLED(ID)                                                     \
    "{\"id\":\"" ID "\",\"type\":\"function\",\"function\":{\"name\":" \
    "\"f\",\"arguments\":\"{}\"}}"
#define RESULT(ID) \
    "{\"type\": \"function_call_output\", \"call_id\": \"" ID "\", "
    static const struct {
        const char *body, *record;
    } rows[] = {
        {"{\"input\": \"a\"}",
         MESSAGES("{\"role\":\"user\",\"content\":\"a\"}")},
        {"{\"input\": \"a\", \"instructions\": \"\"}",
         MESSAGES("{\"role\":\"system\",\"content\":\"\"},"
                  "{\"role\":\"user\",\"content\":\"a\"}")},
        /* an answer's items, whatever their order; two answers with a result
           between them */
        {INPUT("{\"type\": \"reasoning\", \"summary\": []}," CALL(
             "1") ","
                  "{\"role\": \"assistant\", \"content\": \"t\"}," CALL(
                      "2") "," RESULT("1") "\"output\": \"x\"}," CALL("3")),
         MESSAGES("{\"role\":\"assistant\",\"content\":\"t\",\"tool_calls\":"
                  "[" CALLED("1") "," CALLED(
                      "2") "]},"
                           "{\"role\":\"tool\",\"tool_call_id\":\"1\","
                           "\"content\":\"x\"},"
                           "{\"role\":\"assistant\",\"content\":\"\",\"tool_"
                           "calls\":[" CALLED("3") "]}")},
        /* texts of several parts and items */
        {INPUT("{\"type\": \"reasoning\", \"summary\": [{\"type\": "
               "\"summary_text\", \"text\": \"s\"}], \"content\": [{\"type\": "
               "\"reasoning_text\", \"text\": \"p\"}, {\"type\": "
               "\"reasoning_text\", \"text\": \"q\"}]},"
               "{\"role\": \"assistant\", \"content\": \"a\"},"
               "{\"role\": \"assistant\", \"content\": [{\"type\": "
               "\"output_text\", \"text\": \"b\"}]}"),
         MESSAGES("{\"role\":\"assistant\",\"content\":\"a\\nb\","
                  "\"reasoning_content\":\"p\\n\\nq\"}")},
        {INPUT(RESULT("1") "\"output\": []}"),
         MESSAGES(
             "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"\"}")},
        {"{\"input\": \"a\", \"reasoning\": {\"effort\": \"none\"}}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
         "\"think\":false,\"template_args\":{}}"},
        {"{\"input\": \"a\", \"tools\": [{\"type\": \"namespace\", \"name\": "
         "\"n__\", \"tools\": [{\"type\": \"function\", \"name\": \"_f\", "
         "\"strict\": true, \"description\": null}]}, {\"type\": \"x\"}]}",
         "{\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"n__f\","
         "\"strict\":true}}],\"messages\":[{\"role\":\"user\",\"content\":"
         "\"a\"}],\"template_args\":{}}"},
        {INPUT("{\"role\": \"user\", \"content\": [{\"type\": "
               "\"input_image\"}]}"),
         "! input: input: item 0: content: parts of type \"input_image\" are "
         "not supported"},
        {INPUT(CALL("1") ", {\"type\": \"function_call_output\"}"),
         "! input: input: item 1: call_id: must be a string, is missing"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct responses *o = calloc(1, sizeof(*o));
        struct buf record = {0};
        read_body(rows[i].body, o, &record);
        assert_string_equal(buf_text(&record), rows[i].record);
        buf_free(&record);
        responses_free(o);
    }
}

static void functions_of_namespaces_are_remembered(void **state)
{
    struct responses *o = calloc(1, sizeof(*o));
    struct buf record = {0};
    read_body(
        "{\"input\": \"a\", \"reasoning\": {\"summary\": \"auto\"}, "
        "\"tools\": [{\"type\": \"function\", \"name\": \"g\"}, "
        "{\"type\": \"namespace\", \"name\": \"n\", \"tools\": [{\"type\": "
        "\"function\", \"name\": \"f\"}]}]}",
        o, &record);
    assert_true(o->summary);
    assert_int_equal(o->n_tools, 1);
    assert_string_equal(o->tools[0].flat, "n__f");
    assert_string_equal(o->tools[0].space, "n");
    assert_string_equal(o->tools[0].name, "f");
    buf_free(&record);
    responses_free(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_records),
        cmocka_unit_test(functions_of_namespaces_are_remembered),
    };
    msg_level(true, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
