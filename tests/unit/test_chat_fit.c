/* Messages of OpenAI's form and the templates that take a part of it: each
 * template here has one property. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "demo_template.h"
#include "qwick.h"
#include "text/chat/chat_templates.h"
#include "text/chat/conversation.h"

/* Prints the text of the messages, or what failed. */
static void render(const struct chat_template *f, const char *json, bool follows,
                   struct buf *out)
{
    struct qwick_chat *c;
    struct chat_source in;
    struct chat_prompt p = {0};
    struct qwick_err e = {0};
    out->len = 0;
    assert_int_equal(qwick_chat_create(&c, &e), 0);
    if (qwick_chat_add_json(c, json, strlen(json), &e))
        fail_msg("%s: %s", json, e.msg);
    assert_int_equal(conversation_source(c, false, CHAT_UNSET, &in, &e), 0);
    in.follows = follows;
    int rc = chat_template_render(&p, f, &in, &e);
    assert_int_equal(rc ? buf_printf(out, "error %d: %s", (int)e.code, e.msg)
                        : buf_append(out, p.text.data, p.text.len),
                     0);
    assert_int_equal(buf_reserve(out, 0), 0);
    chat_prompt_free(&p);
    qwick_chat_free(c);
}

static struct chat_template *open_form(const char *source)
{
    const struct chat_template_settings none = {0};
    char *demo = source ? NULL : demo_template();
    struct chat_template *f;
    struct qwick_err e;
    source = source ? source : demo;
    if (chat_template_open(&f, "t", source, strlen(source), NULL, &none, &e))
        fail_msg("%s: %s", source, e.msg);
    free(demo);
    return f;
}

struct fit_case {
    const char *source; /* NULL: the demo model's template */
    const char *json, *want;
};

static void check_cases(const struct fit_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct chat_template *f = open_form(cases[i].source);
        struct buf got = {0};
        for (int again = 0; again < 2; again++) {
            render(f, cases[i].json, false, &got);
            if (strncmp(got.data, cases[i].want, strlen(cases[i].want)) != 0 ||
                (got.len != strlen(cases[i].want) &&
                 strncmp(got.data, "error", 5) != 0))
                fail_msg("%s\nwith %s:\ngot  %s\nwant %s",
                         cases[i].source ? cases[i].source : "demo",
                         cases[i].json, got.data, cases[i].want);
        }
        buf_free(&got);
        chat_template_close(f);
    }
}

#define CHECK_CASES(cases) check_cases(cases, sizeof(cases) / sizeof *(cases))

/* ---- content as a list of parts ---- */

#define MESSAGES(body) \
    "{% for m in messages %}[{{ m.role }}]" body "{% endfor %}"
#define ITERATES                                    \
    "{% if m.content is string %}{{ m.content }}"   \
    "{% else %}{% for p in m.content %}<{{ p.text " \
    "}}>{% endfor %}{% endif %}"
#define LIST \
    "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]"

static void lists_go_to_templates_that_iterate(void **state)
{
    static const char all[] = "[{\"role\":\"system\",\"content\":" LIST "},"
                              "{\"role\":\"user\",\"content\":" LIST "},"
                              "{\"role\":\"assistant\",\"content\":" LIST "},"
                              "{\"role\":\"user\",\"content\":\"c\"}]";
    static const char joined[] = "[system]a\nb[user]a\nb[assistant]a\nb[user]c";
    static const struct fit_case cases[] = {
        {MESSAGES(ITERATES), all,
         "[system]<a><b>[user]<a><b>[assistant]<a><b>[user]c"},
        /* a list would fail, or be printed as Python or JSON prints it */
        {MESSAGES("{{ '' + m.content }}"), all, joined},
        {MESSAGES("{{ m.content }}"), all, joined},
        {MESSAGES("{{ m.content | trim }}"), all, joined},
        {MESSAGES("{{ m.content if m.content is string else '' }}"), all,
         joined},
        {MESSAGES("{{ m.content | tojson }}"), all,
         "[system]\"a\\nb\"[user]\"a\\nb\"[assistant]\"a\\nb\"[user]\"c\""},
        /* each role has its own answer */
        {MESSAGES("{% if m.role == 'user' %}" ITERATES
                  "{% else %}{{ m.content | trim }}{% endif %}"),
         all, "[system]a\nb[user]<a><b>[assistant]a\nb[user]c"},
        {MESSAGES("{% if m.role == 'tool' %}" ITERATES "{% endif %}"),
         "[{\"role\":\"tool\",\"content\":" LIST "}]", "[tool]<a><b>"},
        {MESSAGES("{% if m.role == 'tool' %}{% for p in m.content %}{{ p }}"
                  "{% endfor %}{% endif %}"),
         "[{\"role\":\"tool\",\"content\":" LIST "}]", "[tool]a\nb"},
        {MESSAGES(ITERATES), "[{\"role\":\"user\",\"content\":[]}]", "[user]"},
        {MESSAGES(ITERATES), "[{\"role\":\"developer\",\"content\":" LIST "}]",
         "[system]<a><b>"},
        {MESSAGES(ITERATES), "[{\"role\":\"other\",\"content\":" LIST "}]",
         "[other]a\nb"},
        {NULL, "[{\"role\":\"user\",\"content\":" LIST "}]",
         "<|im_start|>user\na\nb<|im_end|>\n"},
    };
    CHECK_CASES(cases);
}

/* ---- thinking ---- */

/* A template with the thinking of a call, and one that takes no content beside
 * it. */
#define THINKS(key)                                                 \
    "{% for m in messages %}[{{ m.role }}]"                         \
    "{% if m." key " %}({{ m." key " }}){% endif %}{{ m.content }}" \
    "{{ '+call' if m.tool_calls }}{% endfor %}"
#define ALONE                                                         \
    "{% for m in messages %}{% if m.tool_calls and m.content and "    \
    "m.thinking %}{{ raise_exception('both') }}{% endif %}{% endfor " \
    "%}" THINKS("thinking")
#define THOUGHT(key, content)                                           \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","   \
    "\"content\":\"" content "\",\"" key "\":\"why\",\"tool_calls\":[{" \
    "\"name\":\"f\",\"arguments\":{}}]}]"

static void thinking_is_where_the_template_reads_it(void **state)
{
    static const struct fit_case cases[] = {
        {THINKS("reasoning_content"), THOUGHT("reasoning_content", "a"),
         "[user]q[assistant](why)a+call"},
        {THINKS("reasoning_content"), THOUGHT("reasoning", "a"),
         "[user]q[assistant](why)a+call"},
        {THINKS("thinking"), THOUGHT("reasoning_content", ""),
         "[user]q[assistant](why)+call"},
        {THINKS("reasoning"), THOUGHT("thinking", "a"),
         "[user]q[assistant](why)a+call"},
        {ALONE, THOUGHT("reasoning_content", ""),
         "[user]q[assistant](why)+call"},
        {ALONE, THOUGHT("thinking", "a"), "[user]q[assistant](why\n\na)+call"},
        {MESSAGES("{{ m.content }}"), THOUGHT("thinking", "a"),
         "[user]q[assistant]a"},
        /* other messages, and no thinking */
        {THINKS("thinking"),
         "[{\"role\":\"user\",\"content\":\"q\",\"reasoning\":\"x\"},"
         "{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":\"\"},"
         "{\"role\":\"assistant\",\"content\":\"b\",\"reasoning\":\"y\"}]",
         "[user]q[assistant]a[assistant](y)b"},
    };
    CHECK_CASES(cases);
}

/* ---- tool calls ---- */

#define CALLS(arguments)                                     \
    MESSAGES("{{ m.content + '' }}"                          \
             "{% for c in m.tool_calls or [] %}"             \
             "{% set c = c.function if c.function else c %}" \
             "{% set a = c.arguments %}(" arguments "){% endfor %}")
#define CALL(arguments)                                                        \
    "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":" \
    "{\"name\":\"f\",\"arguments\":" arguments "}}]}]"
#define TEXT   "\"{\\\"k\\\":  \\\"v\\\", \\\"n\\\": [1.50, null]}\""
#define OBJECT "{\"k\":  \"v\", \"n\": [1.50, null]}"

#define ARGS_ITERATE "{% for k, v in a.items() %}{{ k }}={{ v }};{% endfor %}"
#define ARGS_JSON    "{{ a | tojson }}"
#define ARGS_JOIN    "{{ '' + a }}"
#define ARGS_PRINT   "{{ a }}"
#define ARGS_BOTH    "{{ a if a is string else a | tojson }}"
#define ARGS_REFUSE                                        \
    "{% if a is not mapping %}{{ raise_exception('no') }}" \
    "{% endif %}" ARGS_ITERATE
#define ARGS_DROP "{% if a is mapping %}" ARGS_ITERATE "{% endif %}"

static void arguments_are_what_the_template_takes(void **state)
{
    static const char iterated[] = "[assistant](k=v;n=[1.5, None];)";
    static const char once[] =
        "[assistant]({\"k\": \"v\", \"n\": [1.5, null]})";
    static const char as_given[] =
        "[assistant]({\"k\":  \"v\", \"n\": [1.50, null]})";
    static const char dumped[] =
        "[assistant]({\"k\": \"v\", \"n\": [1.5, null]})";
    static const struct fit_case cases[] = {
        {CALLS(ARGS_ITERATE), CALL(TEXT), iterated},
        {CALLS(ARGS_ITERATE), CALL(OBJECT), iterated},
        {CALLS(ARGS_REFUSE), CALL(TEXT), iterated},
        {CALLS(ARGS_DROP), CALL(TEXT), iterated},
        {CALLS(ARGS_JSON), CALL(TEXT), once},
        {CALLS(ARGS_JSON), CALL(OBJECT), once},
        /* text stays as the model wrote it */
        {CALLS(ARGS_JOIN), CALL(TEXT), as_given},
        {CALLS(ARGS_PRINT), CALL(TEXT), as_given},
        {CALLS(ARGS_BOTH), CALL(TEXT), as_given},
        {CALLS(ARGS_JOIN), CALL(OBJECT), dumped},
        {CALLS(ARGS_PRINT), CALL(OBJECT), dumped},
        {CALLS(ARGS_BOTH), CALL(OBJECT), once},
        /* no arguments, and texts that are no object */
        {CALLS(ARGS_ITERATE), CALL("\"\""), "[assistant]()"},
        {CALLS(ARGS_ITERATE), CALL("\" \\n\""), "[assistant]()"},
        {CALLS(ARGS_JSON), CALL("\"[1]\""), "[assistant](\"[1]\")"},
        {CALLS(ARGS_JSON), CALL("\"{\""), "[assistant](\"{\")"},
        {CALLS(ARGS_ITERATE), CALL("\"{\""), "error 2: t: line 1: "},
        {CALLS(ARGS_JSON), CALL("7"), "[assistant](7)"},
        /* without "function" */
        {CALLS(ARGS_ITERATE),
         "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{"
         "\"name\":\"f\",\"arguments\":" TEXT "}]}]",
         iterated},
    };
    CHECK_CASES(cases);
}

static void no_content_beside_calls_is_empty(void **state)
{
#define CALLED "\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"{}\"}]}]"
    static const struct fit_case cases[] = {
        {CALLS(ARGS_JSON), "[{\"role\":\"assistant\",\"content\":null," CALLED,
         "[assistant]({})"},
        {CALLS(ARGS_JSON), "[{\"role\":\"assistant\"," CALLED,
         "[assistant]({})"},
        {MESSAGES("{{ m.content is none }}"),
         "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}]",
         "[assistant]True"},
        /* members that are not used, as client libraries write them */
        {MESSAGES("{{ m.tool_calls is defined }}{{ m.function_call is defined }}"),
         "[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":null,"
         "\"function_call\":null},{\"role\":\"assistant\",\"content\":\"a\","
         "\"tool_calls\":[]}]",
         "[assistant]FalseFalse[assistant]FalseFalse"},
        /* no arguments at all */
        {CALLS(ARGS_PRINT), CALL("\"\""), "[assistant]({})"},
        {CALLS(ARGS_BOTH), CALL("\" \""), "[assistant]({})"},
        {CALLS(ARGS_ITERATE), CALL("\"\""), "[assistant]()"},
    };
    CHECK_CASES(cases);
}

/* Claude Code's header of each request would spoil every prefix cache. */
static void a_header_of_billing_is_left_out(void **state)
{
#define BILLING "x-anthropic-billing-header: cc_version=1; cch=0a1b;"
#define ALL     MESSAGES("{{ m.content }}")
    static const struct fit_case cases[] = {
        {ALL,
         "[{\"role\":\"system\",\"content\":\"" BILLING "\\n\\nBe brief.\"}]",
         "[system]Be brief."},
        {ALL,
         "[{\"role\":\"system\",\"content\":\"" BILLING
         "\"},{\"role\":\"user\",\"content\":\"" BILLING "\"}]",
         "[user]" BILLING},
        {ALL,
         "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"" BILLING
         "\"},{\"type\":\"text\",\"text\":\"Be brief.\"}]}]",
         "[system]Be brief."},
        {MESSAGES("{% for p in m.content %}<{{ p.text }}>{% endfor %}"),
         "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"" BILLING
         "\"},{\"type\":\"text\",\"text\":\"Be brief.\"}]}]",
         "[system]<Be brief.>"},
    };
    CHECK_CASES(cases);
}

/* ---- system messages ---- */

#define ONLY_FIRST                                                        \
    "{% for m in messages %}{% if m.role == 'system' and not loop.first " \
    "%}{{ raise_exception('only first') }}{% endif %}"                    \
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
#define DROPS                                                     \
    "{% if messages[0].role == 'system' %}[system]{{ messages[0]" \
    ".content }}{% endif %}{% for m in messages %}"               \
    "{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}"    \
    "{% endif %}{% endfor %}"
#define LAST_WINS                                                         \
    "{% set ns = namespace(s='') %}{% for m in messages %}"               \
    "{% if m.role == 'system' %}{% set ns.s = m.content %}{% endif %}"    \
    "{% endfor %}[system]{{ ns.s }}{% for m in messages %}"               \
    "{% if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endif %}" \
    "{% endfor %}"
#define MESSAGE(role, content) \
    "{\"role\":\"" role "\",\"content\":\"" content "\"}"

static void system_messages_go_where_the_template_takes_them(void **state)
{
    static const char leading[] = "[" MESSAGE("system", "a") "," MESSAGE(
        "developer", "b") ","
                          "{\"role\":\"system\",\"content\":" LIST "}," MESSAGE(
                              "system", "") "," MESSAGE("user", "q") "]";
    static const char later[] =
        "[" MESSAGE("system", "a") "," MESSAGE("user", "q") "," MESSAGE(
            "developer", "b") "," MESSAGE("user", "r") "," MESSAGE("system",
                                                                   "c") "]";
    static const char late[] =
        "[" MESSAGE("user", "q") "," MESSAGE("system", "b") "]";
    static const char joined[] = "[system]a\n\nb\n\nc[user]q[user]r";
    static const struct fit_case cases[] = {
        {MESSAGES("{{ m.content }}"), leading, "[system]a\n\nb\n\na\nb[user]q"},
        {ONLY_FIRST, leading, "[system]a\n\nb\n\na\nb[user]q"},
        {MESSAGES("{{ m.content }}"), later,
         "[system]a[user]q[system]b[user]r[system]c"},
        {ONLY_FIRST, later, joined},
        {DROPS, later, joined},
        {LAST_WINS, later, joined},
        {MESSAGES("{{ m.content }}"), late, "[user]q[system]b"},
        {ONLY_FIRST, late, "[system]b[user]q"},
        {NULL, late,
         "<|im_start|>user\nq<|im_end|>\n<|im_start|>system\nb<|im_end|>\n"},
        {MESSAGES("{% if m.role == 'system' %}{{ raise_exception('none') }}"
                  "{% endif %}"),
         late, "error 2: t: line 1: the template refuses the chat: none"},
    };
    CHECK_CASES(cases);
}

/* Before the messages there are others, which are not known. */
static void no_system_message_moves_out_of_the_chat(void **state)
{
    static const char late[] =
        "[" MESSAGE("user", "q") "," MESSAGE("system", "b") "]";
    struct buf got = {0};
    struct chat_template *f = open_form(ONLY_FIRST);
    render(f, late, true, &got);
    assert_string_equal(got.data,
                        "error 2: chat: messages: the template takes a system "
                        "message only at the start of a chat");
    chat_template_close(f);
    f = open_form(MESSAGES("{{ m.content }}"));
    render(f, late, true, &got);
    assert_string_equal(got.data, "[user]q[system]b");
    chat_template_close(f);
    buf_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_go_to_templates_that_iterate),
        cmocka_unit_test(arguments_are_what_the_template_takes),
        cmocka_unit_test(thinking_is_where_the_template_reads_it),
        cmocka_unit_test(no_content_beside_calls_is_empty),
        cmocka_unit_test(a_header_of_billing_is_left_out),
        cmocka_unit_test(system_messages_go_where_the_template_takes_them),
        cmocka_unit_test(no_system_message_moves_out_of_the_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
