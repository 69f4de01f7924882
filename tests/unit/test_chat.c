/* The chat template of Qwen3 through the interpreter: goldens, which parts are
 * the template's own, errors. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "demo_template.h"
#include "qwick.h"
#include "text/chat/chat_fit.h"
#include "text/chat/conversation.h"

#define GOLDENS "tests/golden/text/chat.jsonl"

static struct chat_template *qwen3;

static struct chat_template *open_text(const char *text, size_t n)
{
    const struct chat_template_settings none = {0};
    struct chat_template *f;
    struct qwick_err e;
    assert_ok(chat_template_open(&f, "t", text, n, NULL, &none, &e), &e);
    return f;
}

static int open_qwen3(void **state)
{
    char *text = demo_template();
    qwen3 = open_text(text, strlen(text));
    free(text);
    return 0;
}

static int close_qwen3(void **state)
{
    chat_template_close(qwen3);
    return 0;
}

static enum chat_bool to_chat_bool(const struct json_value *v)
{
    if (!json_is(v, JSON_BOOL))
        return CHAT_UNSET;
    return v->boolean ? CHAT_TRUE : CHAT_FALSE;
}

/* Render {"messages", "tools"?, "add_generation_prompt"?, "enable_thinking"?}
 * without the checks of a conversation, which refuses some values. */
static int render_object(struct chat_prompt *p, const struct json_value *v,
                         struct qwick_err *e)
{
    const struct json_value *add = json_get(v, "add_generation_prompt");
    const struct json_value *tools = json_get(v, "tools");
    const struct chat_source in = {
        .messages = *json_get(v, "messages"),
        .tools = json_is(tools, JSON_ARRAY) ? tools : NULL,
        .add_generation_prompt = json_is(add, JSON_BOOL) && add->boolean,
        .enable_thinking = to_chat_bool(json_get(v, "enable_thinking")),
    };
    return chat_template_render_as_is(p, qwen3, &in, e);
}

static struct json_doc *parse(const char *text, size_t n)
{
    struct qwick_err e;
    struct json_doc *doc = NULL;
    if (json_parse(&doc, "test", text, n, QWICK_ERR_USAGE, &e))
        fail_msg("%s in %.200s", e.msg, text);
    return doc;
}

static void check_pieces(const struct chat_prompt *p)
{
    size_t end = 0;
    for (size_t i = 0; i < p->n_pieces; i++) {
        assert_true(p->pieces[i].begin < p->pieces[i].end);
        assert_true(i == 0 || p->pieces[i].begin > end);
        end = p->pieces[i].end;
    }
    assert_true(end <= p->text.len);
}

static void test_goldens(void **state)
{
    char *line = NULL;
    size_t cap = 0, n_lines = 0;
    ssize_t n;
    FILE *f = fopen(GOLDENS, "r");
    assert_non_null(f);
    while ((n = getline(&line, &cap, f)) > 0) {
        struct qwick_err e;
        struct chat_prompt p;
        struct json_doc *doc = parse(line, (size_t)n);
        const struct json_value *want = json_get(json_root(doc), "text");
        assert_true(json_is(want, JSON_STRING));
        if (render_object(&p, json_root(doc), &e))
            fail_msg("line %zu: %s", n_lines + 1, e.msg);
        if (p.text.len != want->len ||
            memcmp(p.text.data, want->str, want->len) != 0)
            fail_msg("line %zu (%s): got\n%s\nwant\n%s", n_lines + 1,
                     json_get(json_root(doc), "note")->str, p.text.data,
                     want->str);
        check_pieces(&p);
        assert_false(p.in_think);
        chat_prompt_free(&p);
        json_free(doc);
        n_lines++;
    }
    free(line);
    fclose(f);
    assert_int_equal(n_lines, 29);
}

/* Everything from outside consists of '~', which the template never writes. So
 * the pieces must cover exactly the other bytes. */
static void test_pieces_cover_own_text_only(void **state)
{
    static const char *const cases[] = {
        "{\"messages\":[{\"role\":\"user\",\"content\":\"~~\"}],"
        "\"add_generation_prompt\":true,\"enable_thinking\":false}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"~\"},"
        "{\"role\":\"user\",\"content\":\"\"},"
        "{\"role\":\"system\",\"content\":\"~\"},"
        "{\"role\":\"assistant\",\"content\":\"~\","
        "\"reasoning_content\":\"~\"}],\"add_generation_prompt\":true}",
        "{\"messages\":[{\"role\":\"system\",\"content\":\"~\"},"
        "{\"role\":\"user\",\"content\":\"~\"},"
        "{\"role\":\"assistant\",\"content\":\"~\",\"tool_calls\":["
        "{\"name\":\"~\",\"arguments\":\"~\"},"
        "{\"function\":{\"name\":\"~\",\"arguments\":\"~\"}}]},"
        "{\"role\":\"tool\",\"content\":\"~\"},"
        "{\"role\":\"tool\",\"content\":\"~\"},"
        "{\"role\":\"assistant\",\"content\":"
        "\"<think>\\n~\\n</think>\\n\\n~\"}]}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwick_err e;
        struct chat_prompt p;
        struct json_doc *doc = parse(cases[i], strlen(cases[i]));
        assert_ok(render_object(&p, json_root(doc), &e), &e);
        check_pieces(&p);
        size_t at = 0, n_data = 0;
        for (size_t k = 0; k < p.text.len; k++) {
            while (at < p.n_pieces && p.pieces[at].end <= k)
                at++;
            bool own = at < p.n_pieces && p.pieces[at].begin <= k;
            bool data = p.text.data[k] == '~';
            n_data += data;
            if (own == data)
                fail_msg("case %zu: byte %zu of\n%s", i, k, p.text.data);
        }
        assert_true(n_data > 0);
        chat_prompt_free(&p);
        json_free(doc);
    }
}

static void assert_outside_pieces(const struct chat_prompt *p,
                                  const char *needle)
{
    const char *at = strstr(p->text.data, needle);
    assert_non_null(at);
    size_t begin = (size_t)(at - p->text.data), end = begin + strlen(needle);
    for (size_t i = 0; i < p->n_pieces; i++)
        assert_true(p->pieces[i].end <= begin || p->pieces[i].begin >= end);
}

/* Text from outside that looks like control tokens is never the template's. */
static void test_pieces_leave_out_injected_tokens(void **state)
{
    static const char text[] =
        "{\"tools\":[{\"name\":\"<|im_end|>t\"}],\"messages\":["
        "{\"role\":\"system\",\"content\":\"<|im_end|>s\"},"
        "{\"role\":\"user\",\"content\":\"<|im_start|>x\"},"
        "{\"role\":\"assistant\",\"reasoning_content\":\"</think>r\","
        "\"content\":\"<think>c\",\"tool_calls\":[{\"name\":\"</tool_call>n\","
        "\"arguments\":{\"k\":\"</tool_call>a\"}}]},"
        "{\"role\":\"tool\",\"content\":\"</tool_response>o\"}]}";
    static const char *const needles[] = {
        "<|im_end|>t", "<|im_end|>s",   "<|im_start|>x", "</think>r",
        "<think>c",    "</tool_call>n", "</tool_call>a", "</tool_response>o"};
    struct qwick_err e;
    struct chat_prompt p;
    struct json_doc *doc = parse(text, sizeof text - 1);
    assert_ok(render_object(&p, json_root(doc), &e), &e);
    check_pieces(&p);
    for (size_t i = 0; i < sizeof needles / sizeof *needles; i++)
        assert_outside_pieces(&p, needles[i]);
    chat_prompt_free(&p);
    json_free(doc);
}

/* A think block that is opened by content does not count, and one that content
 * seems to close stays the template's. */
static void test_in_think_looks_at_own_text(void **state)
{
    static const char text[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"<think>\"},"
        "{\"role\":\"assistant\",\"content\":\"x\","
        "\"reasoning_content\":\"<think>\"}]}";
    struct qwick_err e;
    struct chat_prompt p;
    struct json_doc *doc = parse(text, sizeof text - 1);
    assert_int_equal(render_object(&p, json_root(doc), &e), 0);
    assert_false(p.in_think);
    chat_prompt_free(&p);
    json_free(doc);
}

static void check_render(const char *json, const char *want, size_t n_want)
{
    struct qwick_err e;
    struct chat_prompt p;
    struct json_doc *doc = parse(json, strlen(json));
    if (render_object(&p, json_root(doc), &e))
        fail_msg("%s: %s", json, e.msg);
    if (p.text.len != n_want ||
        (n_want && memcmp(p.text.data, want, n_want) != 0))
        fail_msg("%s: got\n%s\nwant\n%s", json, p.text.data, want);
    chat_prompt_free(&p);
    json_free(doc);
}

/* The expected texts come from Jinja2 3.1.6 with the settings and the tojson of
 * transformers. */
static void test_jinja_details(void **state)
{
#define CHECK(json, want) check_render(json, want, sizeof(want) - 1)
    /* content that is not a string counts as empty */
    CHECK("{\"messages\":[{\"role\":\"user\",\"content\":[\"x\"]},"
          "{\"role\":\"assistant\"}]}",
          "<|im_start|>user\n<|im_end|>\n"
          "<|im_start|>assistant\n<|im_end|>\n");
    /* unknown roles print nothing */
    CHECK("{\"messages\":[{\"role\":\"developer\",\"content\":\"x\"}]}", "");
    /* a string reasoning_content, even empty, keeps content whole */
    CHECK("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
          "{\"role\":\"assistant\",\"reasoning_content\":\"\","
          "\"content\":\"\\n<think>a</think>b\"}]}",
          "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
          "</think>\n\n<think>a</think>b<|im_end|>\n");
    /* several blocks: reasoning from the first, answer after the last */
    CHECK("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
          "{\"role\":\"assistant\",\"content\":"
          "\"x<think>\\n\\na\\n</think>b</think>\\nc\\n\"}]}",
          "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\na\n"
          "</think>\n\nc\n<|im_end|>\n");
    /* the newline before a call asks for content, not for printed content */
    CHECK("{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
          "{\"role\":\"assistant\",\"content\":\"\\n\",\"tool_calls\":["
          "{\"function\":{},\"name\":\"f\",\"arguments\":{\"a\":2.0}}]}]}",
          "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
          "</think>\n\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
          "{\"a\": 2.0}}\n</tool_call><|im_end|>\n");
    /* falsy tool_calls, values of all types as arguments and names */
    CHECK("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":0},"
          "{\"role\":\"assistant\",\"tool_calls\":[{\"arguments\":null},"
          "{\"name\":null,\"arguments\":true},"
          "{\"name\":false,\"arguments\":[]},"
          "{\"name\":1.50,\"arguments\":\"\\u0000\"}]}]}",
          "<|im_start|>assistant\n<|im_end|>\n<|im_start|>assistant\n"
          "<tool_call>\n{\"name\": \"\", \"arguments\": null}\n</tool_call>\n"
          "<tool_call>\n{\"name\": \"None\", \"arguments\": true}\n"
          "</tool_call>\n"
          "<tool_call>\n{\"name\": \"False\", \"arguments\": []}\n"
          "</tool_call>\n"
          "<tool_call>\n{\"name\": \"1.5\", \"arguments\": \0}\n"
          "</tool_call><|im_end|>\n");
    CHECK("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
          "{\"name\":[],\"arguments\":{}}]}]}",
          "<|im_start|>assistant\n<tool_call>\n{\"name\": \"[]\", "
          "\"arguments\": {}}\n</tool_call><|im_end|>\n");
    /* no tools at all */
    CHECK("{\"tools\":[],\"messages\":[{\"role\":\"user\"}]}",
          "<|im_start|>user\n<|im_end|>\n");
    CHECK("{\"tools\":null,\"messages\":[{\"role\":\"user\"}]}",
          "<|im_start|>user\n<|im_end|>\n");
#undef CHECK
}

static void test_errors_name_the_line(void **state)
{
    static const char no_arguments[] =
        "t: line 66: tojson: a undefined value cannot be JSON";
    static const struct {
        const char *json, *msg;
    } cases[] = {
        {"{\"messages\":[{\"role\":\"system\",\"content\":null}]}",
         "t: line 14: + does not take a string and a none"},
        {"{\"messages\":[{\"role\":\"system\"}],\"tools\":[1]}",
         "t: line 4: 'content' is undefined"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":true}]}",
         "t: line 53: a boolean cannot be iterated"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[3]}]}",
         no_arguments},
        {"{\"messages\":[{\"role\":\"user\"},{\"role\":\"assistant\","
         "\"tool_calls\":[{\"arguments\":1},{\"function\":\"f\"}]}]}",
         no_arguments},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":["
         "{\"name\":\"f\"}]}]}",
         no_arguments},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwick_err e = {0};
        struct chat_prompt p;
        struct json_doc *doc = parse(cases[i].json, strlen(cases[i].json));
        if (!render_object(&p, json_root(doc), &e))
            fail_msg("accepted: %s", cases[i].json);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        assert_string_equal(e.msg, cases[i].msg);
        chat_prompt_free(&p);
        assert_int_equal(render_object(&p, json_root(doc), NULL), -1);
        chat_prompt_free(&p);
        json_free(doc);
    }
    chat_prompt_free(NULL);
}

/* ---- random conversations ---- */

struct source {
    uint64_t seed, counter;
};

static size_t pick(struct source *s, size_t n)
{
    return (size_t)(rng_uniform(s->seed, s->counter++) * (double)n);
}

static void put_value(struct buf *b, struct source *s, int depth);

static void put_string(struct buf *b, struct source *s)
{
    static const char *const parts[] = {"<think>",
                                        "</think>",
                                        "\n",
                                        "a",
                                        " ",
                                        "\n\n",
                                        "</tool_response>",
                                        "<|im_end|>",
                                        "\xc3\xa4",
                                        "\"",
                                        "<tool_response>",
                                        "<|im_start|>x",
                                        "\xf0\x9f\x98\x80"};
    struct buf text = {0};
    for (size_t n = pick(s, 5); n > 0; n--)
        assert_int_equal(
            buf_puts(&text, parts[pick(s, sizeof parts / sizeof *parts)]), 0);
    assert_int_equal(buf_json_string(b, text.data, text.len), 0);
    buf_free(&text);
}

static void put_object(struct buf *b, struct source *s, int depth)
{
    static const char *const keys[] = {"content",    "reasoning_content",
                                       "tool_calls", "function",
                                       "name",       "arguments"};
    static const char *const roles[] = {
        "\"user\"",   "\"assistant\"", "\"assistant\"", "\"tool\"",
        "\"system\"", "\"odd\"",       "null"};
    buf_puts(b, "{\"role\":");
    buf_puts(b, roles[pick(s, pick(s, 8) ? 5 : 7)]);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!pick(s, 3))
            continue;
        buf_printf(b, ",\"%s\":", keys[i]);
        if (i < 2 && pick(s, 8)) {
            put_string(b, s);
        } else if (i == 2 && depth > 0 && pick(s, 8)) {
            buf_puts(b, "[");
            put_object(b, s, depth - 1);
            buf_puts(b, "]");
        } else {
            put_value(b, s, depth - 1);
        }
    }
    buf_puts(b, "}");
}

static void put_value(struct buf *b, struct source *s, int depth)
{
    static const char *const scalars[] = {"null", "true", "false", "0",
                                          "-0.0", "7",    "1e30"};
    size_t kind = pick(s, depth > 0 ? 4 : 2);
    if (kind == 0) {
        buf_puts(b, scalars[pick(s, sizeof scalars / sizeof *scalars)]);
    } else if (kind == 1) {
        put_string(b, s);
    } else if (kind == 2) {
        put_object(b, s, depth - 1);
    } else {
        buf_puts(b, "[");
        for (size_t n = pick(s, 3), i = 0; i < n; i++) {
            buf_puts(b, i ? "," : "");
            put_value(b, s, depth - 1);
        }
        buf_puts(b, "]");
    }
}

static void test_random_conversations(void **state)
{
    struct source s = {20260101, 0};
    size_t n_good = 0;
    for (int round = 0; round < 20000; round++) {
        struct qwick_err e = {0};
        struct chat_prompt p;
        struct buf b = {0};
        buf_puts(&b, "{\"messages\":[");
        for (size_t n = pick(&s, 5), i = 0; i < n; i++) {
            buf_puts(&b, i ? "," : "");
            if (pick(&s, 50))
                put_object(&b, &s, 3);
            else
                put_value(&b, &s, 3);
        }
        buf_puts(&b, "],\"add_generation_prompt\":");
        buf_puts(&b, pick(&s, 2) ? "true" : "false");
        if (pick(&s, 2)) {
            buf_puts(&b, ",\"enable_thinking\":");
            if (pick(&s, 8))
                buf_puts(&b, pick(&s, 2) ? "true" : "false");
            else
                put_value(&b, &s, 0);
        }
        if (!pick(&s, 3)) {
            buf_puts(&b, ",\"tools\":");
            put_value(&b, &s, 2);
        }
        assert_int_equal(buf_puts(&b, "}"), 0);

        struct json_doc *doc = parse(b.data, b.len);
        const struct chat_values v = chat_values_of(json_root(doc));
        struct qwick_chat *c;
        struct chat_source in;
        assert_int_equal(qwick_chat_create(&c, &e), 0);
        memset(&p, 0, sizeof p);
        if (chat_add_values(c, &v, &e) ||
            conversation_source(c, true, CHAT_UNSET, &in, &e) ||
            chat_template_render(&p, qwen3, &in, &e)) {
            assert_int_equal(e.code, QWICK_ERR_USAGE);
            assert_true(strncmp(e.msg, "chat: ", 6) == 0 ||
                        strncmp(e.msg, "t: line ", 8) == 0);
        } else {
            check_pieces(&p);
            n_good++;
        }
        chat_prompt_free(&p);
        qwick_chat_free(c);
        json_free(doc);
        buf_free(&b);
    }
    /* The generator must reach past the checks often enough to mean much. */
    assert_in_range(n_good, 5000, 19000);
}

static void check_name(const char *text, size_t n, const char *name)
{
    struct chat_template *f = open_text(text, n);
    assert_string_equal(chat_template_name(f), name);
    chat_template_close(f);
}

static void test_names(void **state)
{
    char *own = demo_template(), *text;
    size_t n = strlen(own);
    assert_true(asprintf(&text, " \n%s\r\n", own) > 0);
    check_name(own, n, "qwen3");
    check_name(text, n + 4, "qwen3");
    text[n / 2] ^= 1;
    check_name(text, n + 4, "jinja");
    check_name(own, n - 1, "jinja");
    check_name("{{ x }}", 7, "jinja");
    free(own);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_pieces_cover_own_text_only),
        cmocka_unit_test(test_pieces_leave_out_injected_tokens),
        cmocka_unit_test(test_in_think_looks_at_own_text),
        cmocka_unit_test(test_jinja_details),
        cmocka_unit_test(test_errors_name_the_line),
        cmocka_unit_test(test_random_conversations),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, open_qwen3, close_qwen3);
}
