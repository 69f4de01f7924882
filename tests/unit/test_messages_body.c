/* Bodies of Anthropic's Messages: the records that they become. */
#include "test.h"

#include "body_record.h"
#include "cli/serve/messages.h"

static int read_answered(struct body_reader *x)
{
    return messages_read_body(x, false, true);
}

static int read_without_budget(struct body_reader *x)
{
    return messages_read_body(x, false, false);
}

static int read_counted(struct body_reader *x)
{
    return messages_read_body(x, true, true);
}

static void expect(const char *body, int (*read)(struct body_reader *x),
                   const char *want)
{
    struct body_reader x;
    struct buf got = body_record(body, &x, read);
    assert_string_equal(buf_text(&got), want);
    buf_free(&got);
}

#define ASK       "{\"role\":\"user\",\"content\":\"?\"}"
#define MESSAGES  "\"messages\":[" ASK "]"
#define LENGTH    "\"max_tokens\":5"
#define BODY(...) "{" LENGTH "," MESSAGES "," __VA_ARGS__ "}"
#define REST                                                \
    "\"messages\":[{\"role\":\"user\",\"content\":\"?\"}]," \
    "\"continue_final_message\":true}"
#define OFF "\"think\":\"off\",\"template_args\":{},"

static void members_become_those_of_records(void **state)
{
    static const struct {
        const char *body, *want;
    } rows[] = {
        {BODY("\"stop_sequences\":[\"a\"],\"top_k\":3"),
         "{" LENGTH ",\"stop\":[\"a\"],\"top_k\":3," OFF REST},
        {BODY("\"model\":\"m\",\"metadata\":{},\"mcp_servers\":[],\"x\":1"),
         "{" LENGTH "," OFF REST},
        {BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":7}"),
         "{" LENGTH ",\"think\":\"on\",\"think_budget\":7,"
         "\"template_args\":{}," REST},
        {BODY("\"thinking\":{\"type\":\"adaptive\",\"budget_tokens\":7},"
              "\"output_config\":{\"effort\":\"max\"}"),
         "{" LENGTH ",\"think\":\"auto\","
         "\"template_args\":{\"reasoning_effort\":\"high\"}," REST},
        {BODY("\"output_config\":{\"effort\":\"low\",\"format\":{"
              "\"type\":\"json_schema\",\"schema\":{\"enum\":[1]}}}"),
         "{" LENGTH ",\"json_schema\":{\"enum\": [1]}," OFF REST},
        {BODY("\"tools\":[{\"name\":\"f\",\"input_schema\":{},"
              "\"cache_control\":{}},{\"type\":\"bash_1\",\"name\":\"b\"}],"
              "\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\","
              "\"disable_parallel_tool_use\":true}"),
         "{" LENGTH ",\"tools\":[{\"type\":\"function\",\"function\":{"
         "\"name\":\"f\",\"parameters\":{}}}],\"parallel_tool_calls\":false,"
         "\"tool_choice\":{\"type\":\"function\",\"function\":{"
         "\"name\":\"f\"}}," OFF REST},
        {BODY("\"tool_choice\":{\"type\":\"any\"}"),
         "{" LENGTH ",\"tool_choice\":\"required\"," OFF REST},
        {"{" MESSAGES "}", "max_tokens|max_tokens: must be an integer, is "
                           "missing"},
        {"{" LENGTH "}", "messages|messages: must be an array, is missing"},
        {BODY("\"container\":\"c\""), "container|container: is not supported"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        expect(rows[i].body, read_answered, rows[i].want);
    expect("{" MESSAGES "}", read_counted, "{" OFF REST);
    expect(BODY("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":7}"),
           read_without_budget,
           "{" LENGTH ",\"think\":\"on\",\"template_args\":{}," REST);
}

static void blocks_become_messages(void **state)
{
    static const struct {
        const char *members, *want;
    } rows[] = {
        {"\"system\":\"s\",\"messages\":[" ASK "]",
         "{\"role\":\"system\",\"content\":\"s\"},"
         "{\"role\":\"user\",\"content\":\"?\"}"},
        {"\"system\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"text\",\"text\":\"\"},"
         "{\"type\":\"text\",\"text\":\"b\"}],\"messages\":[" ASK "," ASK "]",
         "{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
         "{\"type\":\"text\",\"text\":\"b\"}]},"
         "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"?\"},"
         "{\"type\":\"text\",\"text\":\"?\"}]}"},
        {"\"messages\":[" ASK ",{\"role\":\"assistant\",\"content\":["
         "{\"type\":\"thinking\",\"thinking\":\"h\",\"signature\":\"x\"},"
         "{\"type\":\"redacted_thinking\",\"data\":\"x\"},"
         "{\"type\":\"thinking\",\"thinking\":\"m\"},"
         "{\"type\":\"tool_use\",\"id\":\"i\",\"name\":\"f\"}]},"
         "{\"role\":\"user\",\"content\":["
         "{\"type\":\"tool_result\",\"tool_use_id\":\"i\","
         "\"is_error\":true,\"content\":\"r\"},"
         "{\"type\":\"text\",\"text\":\"t\"},"
         "{\"type\":\"tool_result\",\"tool_use_id\":\"k\"}]}]",
         "{\"role\":\"user\",\"content\":\"?\"},"
         "{\"role\":\"assistant\",\"content\":\"\","
         "\"reasoning_content\":\"hm\",\"tool_calls\":[{\"id\":\"i\","
         "\"type\":\"function\",\"function\":{\"name\":\"f\","
         "\"arguments\":{}}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"i\","
         "\"content\":\"Error: r\"},"
         "{\"role\":\"user\",\"content\":\"t\"},"
         "{\"role\":\"tool\",\"tool_call_id\":\"k\",\"content\":\"\"}"},
        /* what the assistant has begun goes on, even nothing */
        {"\"messages\":[" ASK ",{\"role\":\"assistant\",\"content\":[]}]",
         "{\"role\":\"user\",\"content\":\"?\"},"
         "{\"role\":\"assistant\",\"content\":\"\"}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf body = {0}, want = {0};
        buf_printf(&body, "{%s}", rows[i].members);
        buf_printf(&want,
                   "{" OFF "\"messages\":[%s],\"continue_final_message\":true}",
                   rows[i].want);
        expect(body.data, read_counted, want.data);
        buf_free(&body);
        buf_free(&want);
    }
}

static void faults_name_their_place(void **state)
{
    static const struct {
        const char *messages, *want;
    } rows[] = {
        {"[" ASK ",{\"role\":\"user\",\"content\":[{\"type\":\"text\","
         "\"text\":\"a\"},{\"type\":\"image\"}]}]",
         "messages[1].content[1]|messages[1].content[1]: type: \"image\" is "
         "not supported here"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\","
         "\"tool_use_id\":\"a\",\"content\":[{\"type\":\"image\"}]}]}]",
         "messages[0].content[0].content[0]|messages[0].content[0].content[0]: "
         "type: \"image\" is not supported here"},
        {"[{\"role\":\"user\",\"content\":[]}]",
         "messages[0].content|messages[0].content: has no block"},
        {"[{\"role\":\"x\"}]",
         "messages[0]|messages[0]: role: must be \"user\", \"assistant\" or "
         "\"system\""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf body = {0};
        buf_printf(&body, "{\"messages\":%s}", rows[i].messages);
        expect(body.data, read_counted, rows[i].want);
        buf_free(&body);
    }
}

static void members_have_their_own_names(void **state)
{
    assert_string_equal(messages_member_name("stop"), "stop_sequences");
    assert_string_equal(messages_member_name("think_budget"), "thinking");
    assert_string_equal(messages_member_name("top_k"), "top_k");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_become_those_of_records),
        cmocka_unit_test(blocks_become_messages),
        cmocka_unit_test(faults_name_their_place),
        cmocka_unit_test(members_have_their_own_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
