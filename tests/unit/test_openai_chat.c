/* OpenAI's chat completions: what becomes of a body, and the JSON of chunks. */
#include "test.h"

#include <string.h>

#include "body_record.h"
#include "cli/answer/openai_body.h"
#include "cli/answer/openai_chat.h"

/* ---- bodies ---- */

static void bodies_become_records(void **state)
{
#define MESSAGES  "\"messages\":[{\"role\":\"user\",\"content\":\"?\"}]"
#define BODY(...) "{" MESSAGES "," __VA_ARGS__ "}"
#define RECORD_(...)                                            \
    "{\"messages\":[{\"role\": \"user\", \"content\": \"?\"}]," \
    "\"continue_final_message\":true," __VA_ARGS__ "}"
#define NO_ARGS "\"template_args\":{}"
    static const struct {
        const char *body, *want;
    } rows[] = {
        {BODY("\"max_tokens\":5,\"max_completion_tokens\":5"),
         RECORD_("\"max_tokens\":5," NO_ARGS)},
        {BODY("\"repetition_penalty\":2,\"top_k\":3"),
         RECORD_("\"repeat_penalty\":2,\"top_k\":3," NO_ARGS)},
        {BODY("\"user\":1,\"store\":true,\"unknown\":[1],\"seed\":null"),
         RECORD_(NO_ARGS)},
        {BODY("\"reasoning_effort\":\"none\""),
         RECORD_("\"think\":false," NO_ARGS)},
        {BODY("\"reasoning_effort\":\"low\""),
         RECORD_("\"template_args\":{\"reasoning_effort\":\"low\"}")},
        {BODY("\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{"
              "\"enable_thinking\":true,\"x\":[1]}"),
         RECORD_("\"think\":true,\"template_args\":{\"x\":[1]}")},
        {BODY("\"logprobs\":true,\"top_logprobs\":2"),
         RECORD_("\"logprobs\":2," NO_ARGS)},
        {BODY("\"logprobs\":false,\"top_logprobs\":0"), RECORD_(NO_ARGS)},
        {BODY("\"response_format\":{\"type\":\"json_object\"}"),
         RECORD_("\"json_schema\":{\"type\":\"object\"}," NO_ARGS)},
        {BODY("\"tools\":[{\"type\":\"web_search\"},{\"function\":1}]"),
         RECORD_("\"tools\":[{\"function\": 1}]," NO_ARGS)},
        {BODY("\"n\":8"), RECORD_("\"n\":8," NO_ARGS)},
        {BODY("\"n\":9"), "n|n: must be an integer from 1 to 8"},
        {BODY("\"stream\":1"), "stream|stream: must be true or false"},
        {BODY("\"modalities\":[\"text\",\"audio\"]"),
         "modalities|modalities: only [\"text\"] is supported"},
        {BODY("\"functions\":[{}]"),
         "functions|functions: is not supported; use tools"},
        {"{}", "messages|messages: must be an array, is missing"},
        {"{\"messages\":[]}", "messages|messages: has no message"},
    };
    struct body_reader x;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf got = body_record(rows[i].body, &x, openai_read_body);
        assert_string_equal(buf_text(&got), rows[i].want);
        assert_false(x.stream || x.include_usage);
        buf_free(&got);
    }
    struct buf got = body_record(BODY("\"stream\":true,\"stream_options\":{"
                                      "\"include_usage\":true}"),
                                 &x, openai_read_body);
    assert_true(x.stream && x.include_usage);
    buf_free(&got);
}

/* A fault is reported with the name that the client has written. */
static void members_have_their_own_names(void **state)
{
    assert_string_equal(openai_member_name("repeat_penalty"),
                        "repetition_penalty");
    assert_string_equal(openai_member_name("json_schema"), "response_format");
    assert_string_equal(openai_member_name("think"), "chat_template_kwargs");
    assert_string_equal(openai_member_name("seed"), "seed");
}

/* ---- chunks ---- */

static const struct openai_head head = {
    .id = "i", .model = "m", .created = 7, .live = true};

#define CHUNK(delta, logprobs, finish)                                  \
    "{\"id\":\"i\",\"object\":\"chat.completion.chunk\",\"created\":7," \
    "\"model\":\"m\",\"system_fingerprint\":\"qwick-" QWICK_VERSION     \
    "\",\"choices\":[{\"index\":1,\"delta\":{" delta                    \
    "},\"logprobs\":" logprobs ",\"finish_reason\":" finish "}]}"

static void check_chunk(struct openai_delta d, const char *want)
{
    struct buf b = {0};
    d.index = 1;
    assert_int_equal(openai_chunk(&b, &head, &d), 0);
    assert_string_equal(buf_text(&b), want);
    buf_free(&b);
}

static void chunks_have_openai_form(void **state)
{
    struct buf items = {0};
    assert_int_equal(buf_puts(&items, "{\"token\":\"a\"}"), 0);
    check_chunk(
        (struct openai_delta){.role = true},
        CHUNK("\"role\":\"assistant\",\"content\":\"\"", "null", "null"));
    check_chunk((struct openai_delta){.thinking = "hm", .n_thinking = 1},
                CHUNK("\"reasoning_content\":\"h\",\"reasoning\":\"h\"", "null",
                      "null"));
    check_chunk(
        (struct openai_delta){.text = "a\n", .n_text = 2, .logprobs = &items},
        CHUNK("\"content\":\"a\\n\"",
              "{\"content\":[{\"token\":\"a\"}],\"refusal\":null}", "null"));
    check_chunk((struct openai_delta){.finish = "stop"},
                CHUNK("", "null", "\"stop\""));
    buf_free(&items);
}

static void calls_come_in_two_chunks(void **state)
{
    static const char answer[] =
        "<tool_call>{\"name\":\"now\",\"arguments\":{\"x\":1}}</tool_call>";
    static const char tools[] = "[{\"function\":{\"name\":\"now\"}}]";
    struct json_doc *doc;
    struct qwick_err e;
    assert_ok(
        json_parse(&doc, "tools", tools, strlen(tools), QWICK_ERR_USAGE, &e),
        &e);
    struct tool_calls c = {.tools = json_root(doc),
                           .form = call_form_named("qwen")};
    assert_int_equal(tool_calls_feed(&c, answer, strlen(answer)), 0);
    assert_int_equal(tool_calls_end_without_cut(&c, false), 0);
    assert_string_equal(openai_finish(QWICK_FINISH_STOP, &c), "tool_calls");
    assert_string_equal(openai_finish(QWICK_FINISH_LENGTH, &c), "length");
    struct buf id = {0};
    struct json_writer w = json_writer(&id);
    jw_object(&w, NULL);
    tool_calls_write_id(&w, &c, 0);
    jw_end_object(&w);
    struct buf want = {0};
    assert_int_equal(
        buf_printf(&want,
                   CHUNK("\"tool_calls\":[{\"index\":0,%.*s,\"type\":"
                         "\"function\",\"function\":{\"name\":\"now\","
                         "\"arguments\":\"\"}}]",
                         "null", "null"),
                   (int)id.len - 2, id.data + 1),
        0);
    check_chunk((struct openai_delta){.calls = &c}, buf_text(&want));
    check_chunk((struct openai_delta){.calls = &c,
                                      .arguments = "{\"x\": 1}",
                                      .n_arguments = 8},
                CHUNK("\"tool_calls\":[{\"index\":0,\"function\":{"
                      "\"arguments\":\"{\\\"x\\\": 1}\"}}]",
                      "null", "null"));
    buf_free(&want);
    buf_free(&id);
    tool_calls_free(&c);
    json_free(doc);
}

static void usage_has_a_chunk_without_choices(void **state)
{
    struct buf b = {0};
    const struct openai_usage usage = {.n_prompt = 3,
                                       .n_tokens = 4,
                                       .details = true,
                                       .n_cached = 2,
                                       .n_thinking = 1};
    assert_int_equal(openai_usage_chunk(&b, &head, &usage), 0);
    const char *choices = strstr(buf_text(&b), "\"choices\"");
    assert_non_null(choices);
    assert_string_equal(
        choices,
        "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,"
        "\"total_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":2},"
        "\"completion_tokens_details\":{\"reasoning_tokens\":1}}}");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_records),
        cmocka_unit_test(members_have_their_own_names),
        cmocka_unit_test(chunks_have_openai_form),
        cmocka_unit_test(calls_come_in_two_chunks),
        cmocka_unit_test(usage_has_a_chunk_without_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
