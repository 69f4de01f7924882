/* Calls of tools as a grammar: texts that it admits and refuses, and random
 * texts of it, which the reader of calls must read as the schemas admit. The
 * command line is not a library, so its files are compiled into the test. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/key.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "file/json_writer.h"
#include "text/chat/call_forms.h"
#include "text/chat/tool_calls.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/tools/tools_grammar.h"

static struct automaton *compile_with(const char *tools,
                                      const struct tools_options *o,
                                      struct qwick_err *e)
{
    struct automaton *a = NULL;
    struct grammar *g;
    uint32_t root;
    if (grammar_create(&g, "G", e))
        return NULL;
    if (!tools_compile(g, tools, strlen(tools), o, &root, e) &&
        !grammar_finish(g, root, e))
        automaton_create(&a, g, e);
    grammar_free(g);
    return a;
}

static struct automaton *compile(const char *tools, const char *form,
                                 const char *tool, struct qwick_err *e)
{
    const struct tools_options o = {.form = call_form_named(form),
                                    .tool = tool};
    return compile_with(tools, &o, e);
}

static struct automaton *must_compile(const char *tools, const char *form,
                                      const char *tool)
{
    struct qwick_err e;
    struct automaton *a = compile(tools, form, tool, &e);
    if (!a)
        fail_msg("%s: %s", tools, e.msg);
    return a;
}

static uint32_t walk_on(struct automaton *a, uint32_t state, const char *s,
                        size_t n)
{
    for (size_t i = 0; i < n && state != AUTOMATON_DEAD; i++)
        state = automaton_advance(a, state, (unsigned char)s[i]);
    return state;
}

static bool matches(struct automaton *a, const char *text)
{
    uint32_t s = walk_on(a, automaton_start(a), text, strlen(text));
    return s != AUTOMATON_DEAD && automaton_accepts(a, s);
}

/* ---- texts ---- */

#define TOOL(name, schema)                                  \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name \
    "\",\"parameters\":" schema "}}"
#define OBJECT(props, more) \
    "{\"type\":\"object\",\"properties\":{" props "}" more "}"

#define JSON(name, args)                                         \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args \
    "}\n</tool_call>"
#define XML(name, args) \
    "<tool_call>\n<function=" name ">\n" args "</function>\n</tool_call>"
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

#define TWO                                                            \
    "[" TOOL("get", OBJECT("\"city\":{\"type\":\"string\"},\"days\":{" \
                           "\"type\":\"integer\",\"maximum\":9}",      \
                           ",\"required\":[\"city\"]")) ",{\"name\":\"now\"}]"

enum { MAX_TEXTS = 12 };

static const struct {
    const char *tools;
    const char *form;
    const char *tool; /* NULL: any number of any tools */
    const char *good[MAX_TEXTS], *bad[MAX_TEXTS];
} texts[] = {
    {TWO,
     "qwen",
     NULL,
     {JSON("now", "{}"), JSON("get", "{\"city\": \"a\"}"),
      JSON("get", "{\"city\": \"</tool_call>\", \"days\": 9}") "\n" JSON("now",
                                                                         "{}")},
     {"", "x", JSON("now", "{\"a\": 1}"), JSON("get", "{}"),
      JSON("get", "{\"city\": 5}"),
      JSON("get", "{\"city\": \"a\", \"days\": 10}"),
      JSON("get", "{\"city\": \"a\", \"other\": 1}"), JSON("no", "{}"),
      JSON("now", "{}") "\n", JSON("now", "{}") JSON("now", "{}"),
      XML("now", "")}},
    {TWO,
     "qwen",
     "now",
     {JSON("now", "{}")},
     {JSON("get", "{\"city\": \"a\"}"),
      JSON("now", "{}") "\n" JSON("now", "{}")}},
    {TWO,
     "qwen-coder",
     NULL,
     {XML("now", ""), XML("get", P("city", "a")),
      XML("get", P("city", "5") P("days", "9")) "\n" XML("now", ""),
      XML("get", P("city", "")), XML("get", P("city", "\n a \n")),
      XML("get", P("city", "<parameter=x> </p> </function </tool_call>"))},
     {XML("get", ""), XML("get", P("days", "9")),
      XML("get", P("city", "a") P("days", "x")),
      XML("get", P("city", "a") P("days", "10")),
      XML("get", P("city", "a</parameter>b")),
      XML("get", P("city", "a</function>b")),
      XML("get", P("city", "a") P("b", "c")),
      XML("get", P("days", "9") P("city", "a")), JSON("now", "{}"),
      XML("get", P("city", "a") P("city", "a"))}},
    /* an open object, and one that says so */
    {"[" TOOL("f", "{}") "," TOOL("g", "{\"type\":\"object\"}") "," TOOL(
         "h", OBJECT("\"a\":{}", ",\"additionalProperties\":true")) "]",
     "qwen",
     NULL,
     {JSON("f", "{}"), JSON("f", "{\"a\": [1, null]}"), JSON("g", "{\"a\": 1}"),
      JSON("h", "{\"a\": 1, \"b\": 2}"), JSON("h", "{\"b\": 2}")},
     {JSON("f", "[]"), JSON("f", "null"), JSON("f", "{\"a\":1}")}},
    /* parameters that the reader takes for another type */
    {"[" TOOL("f", OBJECT("\"a\":{\"type\":[\"string\",\"null\",\"number\","
                          "\"boolean\"]},\"b\":{},\"c\":{\"enum\":[\"5\",6,"
                          "\"x\",null]}",
                          "")) "]",
     "qwen-coder",
     "f",
     {XML("f", P("a", "x") P("b", "5") P("c", "6")),
      XML("f", P("a", "null") P("b", "[1]") P("c", "x")),
      XML("f", P("a", "-1.5e+9") P("b", "null") P("c", "null")),
      XML("f", P("a", "5 apples")),
      XML("f", P("a", "true") P("b", "{\"a\": 1}"))},
     {XML("f", P("a", "None")), XML("f", P("a", " 5")),
      XML("f", P("a", "True")), XML("f", P("b", "[")), XML("f", P("b", " {a")),
      XML("f", P("c", "5")), XML("f", P("c", "\"x\""))}},
    /* references, and limits of strings */
    {"[" TOOL(
         "f",
         OBJECT("\"a\":{\"$ref\":\"#/$defs/n\"},\"b\":{\"allOf\":[{"
                "\"$ref\":\"#/$defs/s\"}]},\"c\":{\"anyOf\":[{"
                "\"type\":\"integer\"},{\"type\":\"null\"}]}",
                ",\"$defs\":{\"n\":{\"type\":\"integer\"},\"s\":{"
                "\"type\":\"string\",\"minLength\":2,\"maxLength\":3}}")) "]",
     "qwen-coder",
     "f",
     {XML("f", P("a", "5") P("b", "55") P("c", "7")),
      XML("f", P("b", "\xC3\xA4\"\\") P("c", "null"))},
     {XML("f", P("a", "x")), XML("f", P("a", "\"5\"")), XML("f", P("b", "5")),
      XML("f", P("b", "5555")), XML("f", P("c", "x"))}},
    {"[" TOOL("f",
              OBJECT("\"a\":{\"pattern\":\"^[a-z<]+$\",\"type\":\"string\"},"
                     "\"b\":{\"const\":\"</parameter>\"},\"c\":{\"type\":"
                     "\"integer\",\"enum\":[1,2.0]}",
                     "")) "]",
     "qwen-coder",
     "f",
     {XML("f", P("a", "ab<") P("c", "1")), XML("f", "")},
     {XML("f", P("a", "A")), XML("f", P("b", "</parameter>")),
      XML("f", P("c", "2.0"))}},
};

static void admits_calls(void **state)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct automaton *a =
            must_compile(texts[i].tools, texts[i].form, texts[i].tool);
        for (size_t k = 0; k < MAX_TEXTS && texts[i].good[k]; k++)
            if (!matches(a, texts[i].good[k]))
                fail_msg("row %zu refuses %s", i, texts[i].good[k]);
        for (size_t k = 0; k < MAX_TEXTS && texts[i].bad[k]; k++)
            if (matches(a, texts[i].bad[k]))
                fail_msg("row %zu admits %s", i, texts[i].bad[k]);
        automaton_free(a);
    }
}

/* ---- refused definitions ---- */

static const struct {
    const char *tools;
    const char *form;
    const char *tool, *message;
} refused[] = {
    {"[", "qwen", NULL, "G: the tools: "},
    {"[]", "qwen", NULL, "G: the tools must be an array, not empty"},
    {"{}", "qwen", NULL, "G: the tools must be an array"},
    {"[1]", "qwen", NULL, "G: tool 1: name: must be a string"},
    {"[{\"name\":\"a\"},{\"name\":\"a\"}]", "qwen", NULL,
     "G: tool 2: there is another tool \"a\""},
    {TWO, "qwen", "Get",
     "G: there is no tool \"Get\"; the tools are: get, now"},
    {"[" TOOL("f", "{\"requird\":[]}") "]", "qwen", NULL,
     "G: tool \"f\": parameters: #/requird: is no keyword"},
    {"[" TOOL("f", "5") "]", "qwen", NULL,
     "G: tool \"f\": parameters: #: a schema must be an object"},
    {"[" TOOL("f", "{\"type\":\"string\"}") "]", "qwen", NULL,
     "G: no text can match"},
    {"[" TOOL("f", "{\"type\":\"string\"}") "]", "qwen-coder", NULL,
     "G: no text can match"},
    {"[{\"name\":\"a>b\"}]", "qwen-coder", NULL,
     "G: the calls of this model cannot have the name \"a>b\""},
    {"[" TOOL("f", OBJECT("\"a>\":{}", "")) "]", "qwen-coder", NULL,
     "parameters: #: the calls of this model cannot have the parameter \"a>\""},
    {"[" TOOL("f", OBJECT("\"a b\":{}", "")) "]", "gemma", NULL,
     "the calls of this model cannot have a member \"a b\": a name has no"},
    {"[{\"name\":\"a{b\"}]", "gemma", NULL,
     "G: the calls of this model cannot have the name \"a{b\""},
    {"[" TOOL("f", "{\"enum\":[{}]}") "]", "qwen-coder", NULL,
     "parameters: #/enum/0: const and enum of all arguments"},
    {"[" TOOL("f", OBJECT("\"a\":{\"type\":\"string\",\"pattern\":\"^(xx)*$\","
                          "\"minLength\":60000}",
                          "")) "]",
     "qwen-coder", NULL, "tool \"f\": parameters: "},
};

/* The text of a parameter may be long, and its characters are counted. */
static void counts_characters(void **state)
{
    struct automaton *a = must_compile(
        "[" TOOL("f", OBJECT("\"a\":{\"type\":\"string\",\"minLength\":59999,"
                             "\"maxLength\":60000}",
                             "")) "]",
        "qwen-coder", "f");
    for (size_t n = 59998; n <= 60001; n++) {
        static const char call[] = XML("f", P("a", "@"));
        const char *at = strchr(call, '@');
        struct buf b = {0};
        buf_append(&b, call, (size_t)(at - call));
        for (size_t i = 0; i < n; i++)
            buf_puts(&b, i % 2 ? "<" : "\xC3\xA9");
        buf_puts(&b, at + 1);
        if (matches(a, b.data) != (n == 59999 || n == 60000))
            fail_msg("%zu characters", n);
        buf_free(&b);
    }
    automaton_free(a);
}

static void refuses_definitions(void **state)
{
    struct qwick_err e;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct automaton *a =
            compile(refused[i].tools, refused[i].form, refused[i].tool, &e);
        if (a)
            fail_msg("row %zu is not refused", i);
        if (!strstr(e.msg, refused[i].message))
            fail_msg("row %zu: %s", i, e.msg);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
    }
    /* the same name is fine where JSON has it */
    automaton_free(must_compile("[{\"name\":\"a>b\"}]", "qwen", NULL));
}

/* One such schema compiles, many of them would take minutes. */
static void limits_the_work_of_all_tools(void **state)
{
    struct buf tools = {0};
    struct qwick_err e;
    (void)state;
    for (int i = 0; i < 100; i++) {
        buf_printf(&tools,
                   "%c{\"name\":\"f%d\",\"parameters\":{\"properties\":"
                   "{\"a\":{\"pattern\":\"^(a?){1000}a{1000}$\"}}}}",
                   i ? ',' : '[', i);
        if (i == 0) {
            assert_int_equal(buf_putc(&tools, ']'), 0);
            automaton_free(must_compile(tools.data, "qwen", NULL));
            tools.len--;
        }
    }
    assert_int_equal(buf_putc(&tools, ']'), 0);
    assert_null(compile(tools.data, "qwen", NULL, &e));
    assert_non_null(strstr(e.msg, "it takes too many steps"));
    buf_free(&tools);
}

/* ---- random calls ---- */

static const char rich[] = "[" TOOL(
    "f",
    OBJECT("\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\","
           "\"minimum\":-5,\"maximum\":1000},\"n\":{\"type\":\"number\"},"
           "\"b\":{\"type\":\"boolean\"},\"sn\":{\"type\":[\"string\","
           "\"null\"]},\"any\":{},\"e\":{\"enum\":[\"a\",\"5\",5,true,"
           "\"true\",null,[1,\"x\"],{\"k\":\"v\"}]},\"u\":{\"anyOf\":[{"
           "\"type\":\"integer\",\"minimum\":5},{\"type\":\"string\","
           "\"minLength\":1}]},\"r\":{\"$ref\":\"#/$defs/p\"},\"l\":{"
           "\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/p\"},"
           "\"maxItems\":2},\"m\":{\"type\":\"string\",\"maxLength\":6},"
           "\"no\":{\"not\":{\"const\":\"no\"},\"type\":\"string\"},"
           "\"mix\":{\"type\":[\"object\",\"array\",\"string\",\"boolean\"],"
           "\"additionalProperties\":false,\"maxItems\":0}",
           ",\"required\":[\"s\",\"u\"],\"$defs\":{\"p\":{\"type\":"
           "\"object\",\"properties\":{\"x\":{\"type\":\"integer\"},"
           "\"y\":{\"type\":\"string\",\"maxLength\":3}},\"required\":["
           "\"x\"],\"additionalProperties\":false}}")) "," TOOL("g",
                                                                "{"
                                                                "\"anyOf\":["
                                                                "{\"properties"
                                                                "\":{\"a\":{"
                                                                "\"type\":"
                                                                "\"string\"}},"
                                                                "\"required\":["
                                                                "\"a\"],"
                                                                "\"additionalPr"
                                                                "operties\":"
                                                                "false},{"
                                                                "\"properties\""
                                                                ":{\"b\":{"
                                                                "\"const\":"
                                                                "\"z\"}},"
                                                                "\"required\":["
                                                                "\"b\"],"
                                                                "\"additionalPr"
                                                                "operties\":"
                                                                "false}]}") "]";

/* Append a chunk of text, or else a byte, that the automaton admits. Returns
 * the state after it. */
static uint32_t extend(struct automaton *a, uint32_t s, struct buf *out,
                       uint64_t seed, uint64_t *draws)
{
    static const char *const chunks[] = {
        "\n</parameter>\n",
        "\n</parameter>\n",
        "</parameter>",
        "</function>",
        "</arg_value>\n",
        "\n</tool_call>",
        "</function>\n</tool_call>",
        "<parameter=x>",
        "null",
        "None",
        "true",
        "5",
        " ",
        "\n",
        "[",
        "{\"a\": 1}",
        "\"",
        "\"}",
        "a",
        "\xC3\xA4",
        "\\n",
        "no",
    };
    const size_t n_chunks = sizeof chunks / sizeof *chunks;
    unsigned char bytes[256];
    size_t n = 0;
    for (int i = 0; i < 4; i++) {
        size_t k = (size_t)(rng_uniform(seed, (*draws)++) * (double)n_chunks);
        uint32_t next = walk_on(a, s, chunks[k], strlen(chunks[k]));
        if (next == AUTOMATON_DEAD)
            continue;
        assert_int_equal(buf_puts(out, chunks[k]), 0);
        return next;
    }
    memset(bytes, 0, sizeof bytes);
    automaton_bytes(a, s, bytes);
    for (size_t i = 0; i < 256; i++)
        n += bytes[i] != 0;
    assert_true(n > 0);
    size_t k = (size_t)(rng_uniform(seed, (*draws)++) * (double)n), at = 0;
    while (!bytes[at] || k-- > 0)
        at++;
    assert_int_equal(buf_putc(out, (char)at), 0);
    return automaton_advance(a, s, (unsigned char)at);
}

/* Make a random text, or none if it becomes too long. */
static bool make_text(struct automaton *a, struct buf *out, uint64_t seed)
{
    uint64_t draws = 0;
    uint32_t s = automaton_start(a);
    while (!automaton_accepts(a, s) && out->len < 4000)
        s = extend(a, s, out, seed, &draws);
    return automaton_accepts(a, s);
}

/* What the reader reads from a call is what the JSON form of the call says. */
static void check_call(const struct json_value *tools,
                       const struct call_form *form, struct automaton *json,
                       const struct buf *text)
{
    struct tool_calls c = {.tools = tools, .form = form};
    struct buf again = {0};
    assert_int_equal(tool_calls_feed(&c, text->data, text->len), 0);
    assert_int_equal(tool_calls_end(&c), 0);
    /* a grammar does not know which keys an object without names has */
    if (c.error.len && strstr(c.error.data, "repeated key")) {
        tool_calls_free(&c);
        return;
    }
    if (c.error.len)
        fail_msg("%s: %.*s", c.error.data, (int)text->len, text->data);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.text.len, 0);
    assert_int_equal(buf_printf(&again, JSON("%s", "%s"), c.v[0].name,
                                c.v[0].arguments.data),
                     0);
    if (!matches(json, again.data))
        fail_msg("%.*s is read as %s", (int)text->len, text->data, again.data);
    buf_free(&again);
    tool_calls_free(&c);
}

static void reads_what_it_writes(void **state)
{
    static const char *const names[] = {"f", "g"};
    struct json_doc *doc;
    size_t n_texts = 0, n_all = 0;
    assert_int_equal(
        json_parse(&doc, "tools", rich, strlen(rich), QWICK_ERR_USAGE, NULL),
        0);
    for (size_t i = 0; i < 2; i++) {
        struct automaton *json = must_compile(rich, "qwen", names[i]);
        const struct call_form *form;
        for (size_t k = 0; (form = call_form_at(k)) != NULL; k++) {
            struct automaton *a = must_compile(rich, form->name, names[i]);
            for (uint64_t seed = 0; seed < 300; seed++) {
                struct buf text = {0};
                n_all++;
                if (make_text(a, &text, seed)) {
                    check_call(json_root(doc), form, json, &text);
                    n_texts++;
                }
                buf_free(&text);
            }
            automaton_free(a);
        }
        automaton_free(json);
    }
    json_free(doc);
    print_message("%zu of %zu texts ended\n", n_texts, n_all);
    assert_true(n_texts > n_all * 3 / 4);
}

/* ---- text with calls or without ---- */

/* The last warning, and how many there were. */
struct told {
    struct qwick_err last;
    int n;
};

static void tell(void *ctx, const char *text)
{
    struct told *t = ctx;
    err_usage(&t->last, "%s", text);
    t->n++;
}

static struct automaton *compile_auto(const char *tools, const char *form,
                                      struct told *told, struct qwick_err *e)
{
    const struct tools_options o = {.form = call_form_named(form),
                                    .optional = true,
                                    .warn = tell,
                                    .warn_ctx = told};
    *told = (struct told){0};
    return compile_with(tools, &o, e);
}

/* Whether a text can still become one that the automaton accepts. */
static bool begins_text(struct automaton *a, const char *s, size_t n)
{
    return walk_on(a, automaton_start(a), s, n) != AUTOMATON_DEAD;
}

/* The reader finds one call in a text, and this text beside it. */
static void check_text(const struct json_value *tools,
                       const struct call_form *form, const char *text, size_t n,
                       const char *beside)
{
    struct tool_calls c = {.tools = tools, .form = form};
    assert_int_equal(tool_calls_feed(&c, text, n) || tool_calls_end(&c), 0);
    if (!c.error.len || !strstr(c.error.data, "repeated key")) {
        assert_true(c.n >= 1);
        assert_string_equal(c.text.data ? c.text.data : "", beside);
    }
    tool_calls_free(&c);
}

/* In a form, text is free up to the mark of a call. Then the text is one that
 * the calls of the form are, and free again only where calls have an end. */
static void check_free_text(const struct json_value *tools,
                            const struct call_form *form, uint64_t seed)
{
    struct qwick_err e;
    struct told told;
    struct buf call = {0}, text = {0};
    struct automaton *all = must_compile(rich, form->name, NULL);
    struct automaton *a = compile_auto(rich, form->name, &told, &e);
    const char *mark = form->open ? form->open : "{\"name\":";
    assert_non_null(a);
    assert_int_equal(told.n, 0);
    assert_true(matches(a, "") && matches(a, "some \xFF text\n{\"a\": 5}"));
    for (uint64_t more = seed; !make_text(all, &call, more); more += 1000)
        call.len = 0;
    assert_int_equal(buf_printf(&text, "%s%s",
                                form->open ? "I \xFFlook.\n" : " \n",
                                call.data),
                     0);
    assert_true(matches(a, call.data) && matches(a, text.data));
    check_text(tools, form, text.data, text.len,
               form->open ? "I \xFFlook." : "");
    /* inside the call the text can neither end nor be anything else */
    for (size_t i = 1; i < call.len; i++) {
        uint32_t s = walk_on(a, automaton_start(a), call.data, i);
        bool in_call = i >= strlen(mark);
        assert_int_equal(automaton_accepts(a, s), !in_call);
        assert_int_equal(automaton_advance(a, s, 0xFF) != AUTOMATON_DEAD,
                         !in_call);
    }
    assert_int_equal(buf_puts(&text, "\nso be it"), 0);
    assert_int_equal(matches(a, text.data), form->close != NULL);
    text.len = 0;
    assert_int_equal(buf_printf(&text, "%sno such call", mark), 0);
    assert_false(begins_text(a, text.data, text.len));
    automaton_free(all);
    automaton_free(a);
    buf_free(&call);
    buf_free(&text);
}

static void admits_free_text(void **state)
{
    struct json_doc *doc;
    const struct call_form *form;
    assert_int_equal(
        json_parse(&doc, "tools", rich, strlen(rich), QWICK_ERR_USAGE, NULL),
        0);
    for (size_t k = 0; (form = call_form_at(k)) != NULL; k++)
        for (uint64_t seed = 0; seed < 20; seed++)
            check_free_text(json_root(doc), form, seed);
    json_free(doc);
}

static void admits_calls_in_text(void **state)
{
    static const struct {
        const char *form;
        const char *good[MAX_TEXTS], *bad[MAX_TEXTS];
    } rows[] = {
        {"qwen",
         {"<tool_call", "a <tool_<tool_cal", JSON("now", "{}") "<tool_call",
          JSON("now", "{}") " and\n" JSON("get", "{\"city\": \"a\"}") ".",
          JSON("now", "{}") JSON("now", "{}"), "</tool_call>",
          &XML("", "")[11]},
         {"<tool_call>", "a" JSON("now", "{\"a\": 1}"), JSON("no", "{}"),
          "<tool_<tool_call>a", XML("now", ""),
          JSON("now", "{}") JSON("get", "{}")}},
        {"qwen-coder",
         {XML("now", "") "x" XML("get", P("city", "a")), "<function=get>"},
         {JSON("now", "{}"), XML("get", "")}},
        {"mistral",
         {"a[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": "
          "\"now\", \"arguments\": {}}]"},
         {"[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": "
                          "{}}]a"}},
        {"mistral-args",
         {"a[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get[ARGS]{\"city\": \"a\"}"},
         {"[TOOL_CALLS]now[ARGS]{}a", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]"}},
        {"llama",
         {"{", "{\"answer\": 5}", "{\"names\": 5}", "{\"type\": \"object\"}",
          "a {\"name\": 5}", "{\n  \"name\": \"now\", \"parameters\": {}}",
          "{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}"},
         {"{\"name\": 5}", "{\"name\": \"no\", \"parameters\": {}}",
          "{\"name\": \"now\", \"parameters\": {}} ",
          "{\"type\": \"function\", \"a\": 1}", "{\"type\": \"function\", "}},
    };
    struct told told;
    struct qwick_err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct automaton *a = compile_auto(TWO, rows[i].form, &told, &e);
        assert_non_null(a);
        for (size_t k = 0; k < MAX_TEXTS && rows[i].good[k]; k++)
            if (!matches(a, rows[i].good[k]))
                fail_msg("row %zu refuses %s", i, rows[i].good[k]);
        for (size_t k = 0; k < MAX_TEXTS && rows[i].bad[k]; k++)
            if (matches(a, rows[i].bad[k]))
                fail_msg("row %zu admits %s", i, rows[i].bad[k]);
        automaton_free(a);
    }
}

#define BAD_REF OBJECT("\"a\":{\"$ref\":\"#/no\"}", "")

/* A definition that cannot be held fails only if it is strict. */
static void warns_of_definitions(void **state)
{
    static const struct {
        const char *tools, *form;
        const char *warning, *good, *bad;
    } rows[] = {
        {"[" TOOL("f", BAD_REF) ",{\"name\":\"now\"}]", "qwen",
         "not checked: #/properties/a/$ref: ",
         JSON("f", "{\"a\": [1], \"b\": {}}"), JSON("now", "{\"a\": 1}")},
        {"[" TOOL("f", BAD_REF) ",{\"name\":\"now\"}]", "qwen-coder",
         "its arguments are not checked: ", XML("f", P("a", "[1") P("b", "")),
         XML("now", P("a", "1"))},
        {"[" TOOL("f", "{\"type\":\"string\"}") "]", "qwen",
         "tool \"f\": its arguments are not checked: no text can match", JSON("f", "{}"),
         JSON("f", "5")},
        {"[{\"name\":\"a>b\"},{\"name\":\"now\"}]", "qwen-coder",
         "cannot have the name \"a>b\"", XML("now", ""), XML("a>b", "")},
        {"[{\"name\":\"now\"},1]", "qwen", "tool 2: name: must be",
         JSON("now", "{}"), JSON("", "{}")},
        {"[{\"name\":\"now\"}," TOOL("now", BAD_REF) "]", "qwen",
         "there is another tool \"now\"", JSON("now", "{}"),
         JSON("now", "{\"a\": 1}")},
        {"[1]", "qwen", "tool 1: name: must be", "<tool_call", "<tool_call>"},
    };
    struct told told;
    struct qwick_err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct automaton *a =
            compile_auto(rows[i].tools, rows[i].form, &told, &e);
        if (!a)
            fail_msg("row %zu: %s", i, e.msg);
        assert_int_equal(told.n, 1);
        if (!strstr(told.last.msg, rows[i].warning))
            fail_msg("row %zu: %s", i, told.last.msg);
        assert_true(matches(a, "text") && matches(a, rows[i].good));
        assert_false(matches(a, rows[i].bad));
        automaton_free(a);
    }
    static const char *const strict[] = {
        "[{\"name\":\"f\",\"strict\":true,\"parameters\":" BAD_REF "}]",
        "[{\"name\":\"f\",\"strict\":true,\"parameters\":"
        "{\"type\":\"string\"}}]",
        "[{\"name\":5,\"strict\":true}]",
    };
    for (size_t i = 0; i < sizeof strict / sizeof *strict; i++) {
        assert_null(compile_auto(strict[i], "qwen", &told, &e));
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        assert_int_equal(told.n, 0);
    }
}

/* Definitions that are too many or too large are held not at all, unless one of
 * them is strict. */
static void leaves_unchecked(void **state)
{
    struct buf many = {0};
    struct qwick_err e;
    struct tools_options o = {.form = call_form_named("qwen"),
                              .optional = true};
    assert_int_equal(buf_putc(&many, '['), 0);
    for (int i = 0; i <= TOOLS_MAX; i++)
        buf_printf(&many, "{\"name\":\"f%d\",\"strict\":%s},", i,
                   i ? "false" : "null ");
    many.data[many.len - 1] = ']';
    assert_null(compile_with(many.data, &o, &e));
    o.unchecked = true;
    struct automaton *a = compile_with(many.data, &o, &e);
    assert_non_null(a);
    assert_true(matches(a, JSON("no", "\xFF")));
    automaton_free(a);
    memcpy(strstr(many.data, "null "), "true ", 5);
    assert_null(compile_with(many.data, &o, &e));
    buf_free(&many);
    /* a schema that can be held is not, unless it is strict */
    a = compile_with(TWO, &o, &e);
    assert_non_null(a);
    assert_true(matches(a, JSON("get", "{\"city\": 5}")));
    assert_false(matches(a, JSON("get", "5")));
    automaton_free(a);
    a = compile_with("[{\"name\":\"get\",\"strict\":true,\"parameters\":"
                     "{\"properties\":{\"city\":{\"type\":\"string\"}}}}]",
                     &o, &e);
    assert_non_null(a);
    assert_false(matches(a, JSON("get", "{\"city\": 5}")));
    automaton_free(a);
}

/* ---- texts without calls, and the form ---- */

static struct automaton *compile_no_call(const struct call_form *form)
{
    struct qwick_err e;
    struct automaton *a = NULL;
    struct grammar *g;
    assert_int_equal(grammar_create(&g, "G", NULL), 0);
    uint32_t root = grammar_rule(g, "root", 4);
    grammar_define(g, root, tools_no_call(g, form));
    assert_ok(grammar_finish(g, root, &e) || automaton_create(&a, g, &e), &e);
    grammar_free(g);
    return a;
}

static void admits_no_call(void **state)
{
    static const char *const good[] = {"",
                                       "a",
                                       "<tool_call",
                                       "<<tool_cal>",
                                       "<tool_<tool_call",
                                       "</tool_call>",
                                       "\xC3\xA4\xF0\x9F\x98\x80\n\"<",
                                       "<tool_calls>"};
    static const char *const bad[] = {"<tool_call>", "<<tool_call>",
                                      "a <tool_<tool_call>b", "\xFF"};
    struct automaton *a = compile_no_call(call_form_at(0));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!matches(a, good[i]))
            fail_msg("refuses %s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (matches(a, bad[i]))
            fail_msg("admits %s", bad[i]);
    automaton_free(a);
}

/* In each form: no tag, wherever it begins, and everything else. */
static void admits_no_call_of_a_form(void **state)
{
    const struct call_form *form;
    for (size_t k = 0; (form = call_form_at(k)) != NULL; k++) {
        struct automaton *a = compile_no_call(form);
        struct buf b = {0};
        for (size_t cut = 0; form->open && cut <= strlen(form->open); cut++) {
            b.len = 0;
            assert_int_equal(
                buf_append(&b, form->open, cut) || buf_puts(&b, form->open), 0);
            assert_false(matches(a, b.data));
            b.data[b.len - 1] = '!';
            if (cut < strlen(form->open) && utf8_valid(b.data, b.len) == b.len)
                assert_true(matches(a, b.data));
        }
        if (!form->open) {
            assert_false(matches(a, " \n{\"name\": 1"));
            assert_true(matches(a, " a {\"name\": 1}\xC3\xA4"));
        }
        buf_free(&b);
        automaton_free(a);
    }
}

static void finds_forms(void **state)
{
    static const struct {
        const char *prompt;
        const char *form; /* NULL: none */
    } rows[] = {
        {"", NULL},
        {"within <tool_call></tool_call> tags", NULL},
        {"<tool_call>", NULL},
        {"<tool_call>\n<func", NULL},
        {"<tool_call>\n <function=", "qwen-coder"},
        {"<tool_call></tool_call> <tool_call>\n{\"name\": x}\n</tool_call>",
         "qwen"},
        {"<tool_call>{} <tool_call><function=f>", "qwen-coder"},
        {"<tool_call><function=f> <tool_call>{", "qwen"},
        /* the form that prints the call of f wins over what only talks */
        {"<tool_call>{\"name\": \"f\", \"arguments\": {}} <tool_call>\n{",
         "exaone"},
        {"<tool_call>f\n<arg_key>a</arg_key> <tool_call>\n{", "glm"},
        {"{\"name\": \"f\", \"parameters\": {}}", "llama"},
        {"{\"name\": \"f\", \"arguments\": {}}", NULL},
        {"{\"name\": \"g\", \"parameters\": {}}", NULL},
        {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}", "mistral"},
        {"[TOOL_CALLS]  [{\"name\"", "mistral"},
        {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": ", "mistral-spaced"},
        {"[TOOL_CALLS]f[CALL_ID]123[ARGS]{}", "mistral-args"},
        {"answer with <|tool_call|> and a list", "granite"},
        {"<|tool_call|>{}<|/tool_call|>", "phi"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct call_form *form =
            call_form_find(rows[i].prompt, strlen(rows[i].prompt), "f");
        assert_ptr_equal(form, call_form_named(rows[i].form));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_calls),
        cmocka_unit_test(refuses_definitions),
        cmocka_unit_test(counts_characters),
        cmocka_unit_test(limits_the_work_of_all_tools),
        cmocka_unit_test(reads_what_it_writes),
        cmocka_unit_test(admits_free_text),
        cmocka_unit_test(admits_calls_in_text),
        cmocka_unit_test(warns_of_definitions),
        cmocka_unit_test(leaves_unchecked),
        cmocka_unit_test(admits_no_call),
        cmocka_unit_test(admits_no_call_of_a_form),
        cmocka_unit_test(finds_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
