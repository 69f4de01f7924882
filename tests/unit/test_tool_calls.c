/* Tool calls in answers. The command line is not a library, so its files are
 * compiled into the test. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "file/json_writer.h"
#include "base/key.h"
#include "text/chat/tool_calls.h"

static const char definitions[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"max\":{\"type\":\"number\"},\"wet\":{\"type\":\"boolean\"},"
    "\"at\":{\"type\":[\"string\",\"null\"]},"
    "\"list\":{\"type\":\"array\"},\"map\":{\"type\":\"object\"},"
    "\"any\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},"
    "\"one\":{\"enum\":[1,2]},\"free\":{}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

static struct json_doc *doc;

static int setup(void **state)
{
    return json_parse(&doc, "tools", definitions, strlen(definitions),
                      QWICK_ERR_USAGE, NULL);
}

static int teardown(void **state)
{
    json_free(doc);
    return 0;
}

/* Print calls as "TEXT|NAME ARGUMENTS|…|!ERROR". */
static char *show(const struct tool_calls *c)
{
    struct buf b = {0};
    assert_int_equal(buf_append(&b, c->text.data, c->text.len), 0);
    for (size_t i = 0; i < c->n; i++)
        assert_int_equal(
            buf_printf(&b, "|%s %s", c->v[i].name, c->v[i].arguments.data), 0);
    if (c->error.len)
        assert_int_equal(buf_printf(&b, "|!%s", c->error.data), 0);
    assert_int_equal(buf_putc(&b, '\0'), 0);
    return buf_take(&b, &(size_t){0});
}

/* Read text[0..n) in pieces that end at cut, or of one byte if cut > n. */
static char *read_form(const char *form, const char *text, size_t n, size_t cut)
{
    struct tool_calls c = {.tools = json_root(doc),
                           .form = call_form_named(form)};
    if (cut > n) {
        for (size_t i = 0; i < n; i++)
            assert_int_equal(tool_calls_feed(&c, text + i, 1), 0);
    } else {
        assert_int_equal(tool_calls_feed(&c, text, cut), 0);
        assert_int_equal(tool_calls_feed(&c, text + cut, n - cut), 0);
    }
    assert_int_equal(tool_calls_end(&c), 0);
    char *shown = show(&c);
    tool_calls_free(&c);
    return shown;
}

static char *read_in_pieces(const char *text, size_t n, size_t cut)
{
    return read_form("qwen", text, n, cut);
}

#define CALL(body)    "<tool_call>" body "</tool_call>"
#define NOW           CALL("\n{\"name\": \"now\", \"arguments\": {}}\n")
#define WEATHER(args) CALL("\n<function=weather>\n" args "</function>\n")
#define P(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"

static const struct {
    const char *text, *want;
} cases[] = {
    {"", ""},
    {" plain <text> \n", " plain <text> \n"},
    {NOW, "|now {}"},
    {"a\n" NOW, "a|now {}"},
    {NOW "\n\n" NOW "\n", "|now {}|now {}"},
    {"a " NOW " b\n" NOW "c ", "a\nb\nc |now {}|now {}"},
    {"<<tool_call" NOW, "<<tool_call|now {}"},
    {"<tool_cal>\n<tool_calls>", "<tool_cal>\n<tool_calls>"},
    {"</tool_call>", "</tool_call>"},
    {CALL("{\"arguments\":{\"city\":\"</tool_call>\\\"\\\\\"},"
          "\"name\":\"weather\"}"),
     "|weather {\"city\": \"</tool_call>\\\"\\\\\"}"},
    {CALL("{\"name\":\"weather\",\"arguments\":{\"days\":1.50,\"city\":\"\xc3"
          "\xbc\",\"n\":12345678901234567890}}"),
     "|weather {\"days\": 1.5, \"city\": \"\xc3\xbc\", \"n\": "
     "12345678901234567890}"},
    /* Qwen3-Coder's form: the schema gives the types */
    {WEATHER(""), "|weather {}"},
    {WEATHER(P("city", "Bern") P("days", "2")),
     "|weather {\"city\": \"Bern\", \"days\": 2}"},
    {WEATHER(P("city", "5") P("max", "5") P("wet", "True")),
     "|weather {\"city\": \"5\", \"max\": 5, \"wet\": true}"},
    {WEATHER(P("wet", "false") P("at", "None") P("any", "null")),
     "|weather {\"wet\": false, \"at\": null, \"any\": null}"},
    {WEATHER(P("at", "None ") P("any", "7") P("one", "2")),
     "|weather {\"at\": null, \"any\": 7, \"one\": 2}"},
    {WEATHER(P("list", "[1, \"a\"]") P("map", "{\"a\": [null]}")),
     "|weather {\"list\": [1, \"a\"], \"map\": {\"a\": [null]}}"},
    {WEATHER(P("free", "{\"a\": 1}") P("other", "7")),
     "|weather {\"free\": {\"a\": 1}, \"other\": \"7\"}"},
    {WEATHER(P("city", "a\n\n b \n") P("at", "")),
     "|weather {\"city\": \"a\\n\\n b \\n\", \"at\": \"\"}"},
    {WEATHER(P("city", "</parameter></tool_call>\n</parameter>x")),
     "|weather {\"city\": \"</parameter></tool_call>\\n</parameter>x\"}"},
    {CALL("<function=weather><parameter=city>Bern</parameter></function>"),
     "|weather {\"city\": \"Bern\"}"},
    {CALL("<function=weather><parameter=city>\n</parameter></function>"),
     "|weather {\"city\": \"\"}"},
    /* bad calls stay in the text */
    {"a\n" CALL("{}") "b",
     "a\n<tool_call>{}</tool_call>b|!tool call 1: it has no name"},
    {NOW CALL("[]") NOW,
     "<tool_call>[]</tool_call>|now {}|now {}|!tool call 2: "
     "the list has no call"},
    {CALL("{\"name\": \"rm\", \"arguments\": {}}"),
     "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>|!tool call "
     "1: there is no tool \"rm\""},
    {CALL("{\"name\": \"now\\u0000\", \"arguments\": {}}"),
     "<tool_call>{\"name\": \"now\\u0000\", \"arguments\": {}}</tool_call>|!"
     "tool call 1: there is no tool \"now\""},
    {CALL("{\"name\": \"now\", \"arguments\": \"{}\"}"),
     "<tool_call>{\"name\": \"now\", \"arguments\": \"{}\"}</tool_call>|!tool "
     "call 1: its arguments are no object"},
    {CALL("{\"name\": \"now\"") " x",
     "<tool_call>{\"name\": \"now\"</tool_call> x|!tool call 1: JSON: offset "
     "14: the text ends too early"},
    {CALL("<function=now><parameter=a>\n</function>"),
     "<tool_call><function=now><parameter=a>\n</function></tool_call>|!tool "
     "call 1: a parameter has no end: <parameter=a>\n</function></tool_call>"},
    {CALL("<function=now></function>x</function>"),
     "<tool_call><function=now></function>x</function></tool_call>|!tool call "
     "1: \"</function>\" is expected, not: </function>x</function>"
     "</tool_call>"},
    {CALL("<function=now>x</function>"),
     "<tool_call><function=now>x</function></tool_call>|!tool call 1: "
     "\"</function>\" is expected, not: x</function></tool_call>"},
    {WEATHER(P("days", "2.5")),
     "<tool_call>\n<function=weather>\n<parameter=days>\n2.5\n</parameter>\n"
     "</function>\n</tool_call>|!tool call 1: parameter \"days\": must be an "
     "integer"},
    {WEATHER(P("days", "2") P("days", "2")),
     "<tool_call>\n<function=weather>\n<parameter=days>\n2\n</parameter>\n"
     "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>|!tool call "
     "1: parameter \"days\" occurs twice"},
    /* cut calls */
    {"a <tool_call>", "a <tool_call>|!tool call 1: it is cut"},
    {NOW "<tool_call>{\"name\": \"</tool_call>",
     "<tool_call>{\"name\": \"</tool_call>|now {}|!tool call 2: it is cut"},
    {"<tool_call><function=now></function></tool_cal",
     "<tool_call><function=now></function></tool_cal|!tool call 1: it is cut"},
};

enum { N_CASES = sizeof(cases) / sizeof(*cases) };

/* Whole texts, every cut into two pieces, and byte by byte. */
static void calls_in_any_pieces(void **state)
{
    for (size_t i = 0; i < N_CASES; i++) {
        size_t n = strlen(cases[i].text);
        for (size_t cut = 0; cut <= n + 1; cut++) {
            char *got = read_in_pieces(cases[i].text, n, cut);
            if (strcmp(got, cases[i].want) != 0)
                fail_msg("case %zu, cut at %zu:\n%s\nnot\n%s", i, cut, got,
                         cases[i].want);
            free(got);
        }
    }
}

/* ---- the forms of other families ---- */

#define DS(word) "<\xEF\xBD\x9Ctool\xE2\x96\x81" word "\xEF\xBD\x9C>"
#define GAP      "\xE2\x96\x81"
#define DS_CALL(name, args)                                            \
    DS("call" GAP "begin")                                             \
    "function" DS("sep") name "\n```json\n" args "\n```" DS("call" GAP \
                                                            "end")
#define DS_CALLS(body) DS("calls" GAP "begin") body DS("calls" GAP "end")

#define Q(text)     "<|\"|>" text "<|\"|>"
#define GEMMA(call) "<|tool_call>call:" call "<tool_call|>"

static const struct {
    const char *form, *text, *want;
} other[] = {
    {"exaone", CALL("{\"name\": \"now\", \"arguments\": {}}") "\nx",
     "x|now {}"},
    {"qwen-coder", NOW, "|now {}"},
    {"seed",
     "<seed:tool_call>\n<function=weather>\n<parameter=city>\na\n</parameter>\n"
     "<parameter=days>2</parameter>\n</function>\n</seed:tool_call>",
     "|weather {\"city\": \"\\na\\n\", \"days\": 2}"},
    {"glm",
     CALL(
         "weather\n<arg_key>city</arg_key>\n<arg_value></tool_call></arg_value>"
         "\n<arg_key>days</arg_key><arg_value>2</arg_value>\n"),
     "|weather {\"city\": \"</tool_call>\", \"days\": 2}"},
    {"glm", "a" CALL("now") CALL("now\n") "b", "a\nb|now {}|now {}"},
    {"glm", CALL("now\n<arg_key>a</arg_key>x"),
     CALL("now\n<arg_key>a</arg_key>x") "|!tool call 1: it is cut"},
    {"glm", CALL("now x"),
     CALL("now x") "|!tool call 1: there is no tool "
                   "\"now x\""},
    {"llama", " {\"name\": \"now\", \"parameters\": {}}\n", "|now {}"},
    {"llama", "{ \"type\":\"function\", \"name\":\"now\",\"parameters\":{}}",
     "|now {}"},
    {"llama", "x {\"name\": \"now\", \"parameters\": {}}",
     "x {\"name\": \"now\", \"parameters\": {}}"},
    {"llama", "{\"names\": []}", "{\"names\": []}"},
    {"llama", "{\"name\": 5}", "{\"name\": 5}"},
    {"llama", "{", "{"},
    {"llama", "{\"name\": \"now\", \"para",
     "{\"name\": \"now\", \"para|!tool call 1: JSON: offset 21: the text ends "
     "too early"},
    {"llama", "{\"name\": \"now\", \"parameters\": {}}; {}",
     "{\"name\": \"now\", \"parameters\": {}}; {}|!tool call 1: JSON: offset "
     "33: text after the value"},
    {"mistral",
     "a[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{},\"id\":\"123456789\"}, "
     "{\"name\":\"weather\",\"arguments\":{\"city\":\"]\"}}]",
     "a|now {}|weather {\"city\": \"]\"}"},
    {"mistral-spaced", "[TOOL_CALLS] [{\"name\":\"now\",\"arguments\":{}}]",
     "|now {}"},
    {"mistral",
     "[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}},{\"name\":\"rm\"}]",
     "[TOOL_CALLS][{\"name\":\"now\",\"arguments\":{}},{\"name\":\"rm\"}]|!"
     "tool call 1: there is no tool \"rm\""},
    {"mistral-args",
     "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]weather[CALL_ID]a1[ARGS]{\"city\": "
     "\"}[TOOL_CALLS]\"}",
     "|now {}|weather {\"city\": \"}[TOOL_CALLS]\"}"},
    {"mistral-args", "[TOOL_CALLS]now{}",
     "[TOOL_CALLS]now{}|!tool call 1: there is no tool \"now{}\""},
    {"mistral-args", "[TOOL_CALLS]now[ARGS]{} x",
     "[TOOL_CALLS]now[ARGS]{} x|!tool call 1: text follows the call: x"},
    {"gemma",
     "a" GEMMA("weather{at:" Q("7") ",city:" Q(
         "\"<tool_call|>,}") ",days:2,"
                             "list:[1.50," Q(
                                 "x") ",[],{}],map:{a:{b:null}},wet:true}")
         GEMMA("now{}") "\nb",
     "a\nb|weather {\"at\": \"7\", \"city\": \"\\\"<tool_call|>,}\", \"days\": "
     "2, \"list\": [1.5, \"x\", [], {}], \"map\": {\"a\": {\"b\": null}}, "
     "\"wet\": true}|now {}"},
    {"gemma", GEMMA(" now { a : None, " Q("b:") ":\"x, y\" , c : False } "),
     "|now {\"a\": null, \"b:\": \"x, y\", \"c\": false}"},
    {"gemma", GEMMA("now{a:x}"),
     GEMMA("now{a:x}") "|!tool call 1: JSON: offset 5: expected a value"},
    {"gemma", GEMMA("now{a:1"),
     GEMMA(
         "now{a:1") "|!tool call 1: JSON: offset 6: expected , or }"},
    {"gemma", GEMMA("now{a:1]}"), GEMMA("now{a:1]}") "|!tool call 1: JSON: offset 6: expected , or }"},
    {"gemma", GEMMA("now{}}"), GEMMA("now{}}") "|!tool call 1: \"<tool_call|>\" is expected, not: }<tool_call|>"},
    {"gemma", "<|tool_call>call:now{a:<|\"|><tool_call|>",
     "<|tool_call>call:now{a:<|\"|><tool_call|>|!tool call 1: it is cut"},
    {"harmony",
     "a <|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
     "a|now {}"},
    {"harmony",
     "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>\n"
     "{\"city\":\"<|channel|>\"}",
     "|weather {\"city\": \"<|channel|>\"}"},
    {"harmony", "<|channel|>commentary to=python <|constrain|>json<|message|>x",
     "<|channel|>commentary to=python <|constrain|>json<|message|>x|!tool call "
     "1: \"<|channel|>commentary to=functions.\" is expected, not: "
     "<|channel|>commentary to=python <|constrain|>json<|message|>"},
    {"granite", "<|tool_call|>[{\"name\": \"now\", \"arguments\": {}}]",
     "|now {}"},
    {"granite", "<|tool_call|>[]",
     "<|tool_call|>[]|!tool call 1: the list has no call"},
    {"phi",
     "<|tool_call|>[{\"name\":\"now\",\"arguments\":{}}]<|/tool_call|> x",
     "x|now {}"},
    {"deepseek",
     "a" DS_CALLS(
         DS_CALL("now", "{}") "\n" DS_CALL("weather", "{\"days\": 1}")) "b",
     "a\nb|now {}|weather {\"days\": 1}"},
    {NULL, NOW, NOW},
};

static void forms_in_any_pieces(void **state)
{
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        size_t n = strlen(other[i].text);
        for (size_t cut = 0; cut <= n + 1; cut++) {
            char *got = read_form(other[i].form, other[i].text, n, cut);
            if (strcmp(got, other[i].want) != 0)
                fail_msg("case %zu, cut at %zu:\n%s\nnot\n%s", i, cut, got,
                         other[i].want);
            free(got);
        }
    }
}

/* ---- calls that are certain from their beginning ---- */

/* What was known of calls after some bytes. */
struct known {
    size_t n;
    char *name[4];
    struct buf arguments[4];
};

/* Compare what is known now with what was known before it: calls only grow. */
static void check_growth(struct known *k, const struct tool_calls *c)
{
    bool whole = true;
    const struct tool_call *call;
    size_t i = 0;
    for (; (call = tool_calls_at(c, i, &whole)); i++) {
        assert_true(i < 4);
        struct buf *before = &k->arguments[i];
        if (i == k->n) {
            k->name[i] = strdup(call->name);
            k->n++;
        }
        assert_string_equal(k->name[i], call->name);
        assert_true(before->len <= call->arguments.len);
        if (before->len)
            assert_memory_equal(before->data, call->arguments.data,
                                before->len);
        before->len = 0;
        assert_int_equal(
            buf_append(before, call->arguments.data, call->arguments.len), 0);
        assert_true(whole || !tool_calls_at(c, i + 1, &(bool){false}));
    }
    assert_true(i >= k->n);
}

/* Read a text byte by byte. In the end the calls are those of a reader that
 * knows only whole calls; a malformed one whose beginning was known is cut.
 * Returns the bytes of arguments that were known before their call was whole.
 */
static size_t check_certain(const char *form, const char *text)
{
    struct tool_calls c = {.tools = json_root(doc),
                           .form = call_form_named(form),
                           .certain = true};
    struct known k = {0};
    size_t n = strlen(text), early = 0;
    char *want = read_form(form, text, n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tool_calls_feed(&c, text + i, 1), 0);
        check_growth(&k, &c);
        if (c.begun.n && early < c.begun.v[0].arguments.len)
            early = c.begun.v[0].arguments.len;
    }
    assert_int_equal(tool_calls_end_without_cut(&c, false), 0);
    check_growth(&k, &c);
    if (c.cut) {
        assert_true(strstr(want, "|!tool call") != NULL);
    } else {
        char *got = show(&c);
        assert_string_equal(got, want);
        assert_int_equal(k.n, c.n);
        free(got);
    }
    for (size_t i = 0; i < k.n; i++) {
        free(k.name[i]);
        buf_free(&k.arguments[i]);
    }
    free(want);
    tool_calls_free(&c);
    return early;
}

static void certain_calls_only_grow(void **state)
{
    for (size_t i = 0; i < N_CASES; i++)
        check_certain("qwen", cases[i].text);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        check_certain(other[i].form, other[i].text);
    /* an object that is not the arguments says nothing */
    check_certain("qwen", CALL("{\"name\": \"weather\", \"x\": {\"a\": 1}, "
                               "\"arguments\": {\"b\": 2}}"));
    /* nor does a name of no tool */
    struct tool_calls c = {
        .tools = json_root(doc), .form = call_form_at(0), .certain = true};
    static const char text[] = CALL("{\"name\": \"rm\", \"arguments\": {\"a\"");
    assert_int_equal(tool_calls_feed(&c, text, strlen(text) - 12), 0);
    assert_null(tool_calls_at(&c, 0, &(bool){false}));
    tool_calls_free(&c);
}

/* Write a call as each form has it, and look how early its arguments are known.
 */
static void every_form_says_its_calls_early(void **state)
{
    static const char arguments[] =
        "{\"city\" : \"a\\u00e9\\ud83d\\ude00\\/\\n\x7f\", "
        "\"list\":[1.50,true, "
        "{}],\"map\":{\"a\" :[ ] }}";
    static const char all[] =
        "{\"city\": \"a\xc3\xa9\xf0\x9f\x98\x80/\\n\x7f\", "
        "\"list\": [1.5, true, {}], \"map\": {\"a\": []}}";
    const struct call_form *f;
    for (size_t i = 0; (f = call_form_at(i)); i++) {
        bool object = f->kind == CALL_OBJECT;
        bool json = object || f->kind == CALL_NAMED;
        const char *const parts[] = {f->begin,
                                     f->pre,
                                     object ? "\"weather\"" : "weather",
                                     f->mid,
                                     json                   ? arguments
                                     : f->kind == CALL_BARE ? "{}"
                                                            : "",
                                     f->post,
                                     f->end};
        struct buf text = {0};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            assert_int_equal(buf_puts(&text, parts[k] ? parts[k] : ""), 0);
        size_t early = check_certain(f->name, buf_text(&text));
        if (early != (json ? strlen(all) : 0))
            fail_msg("form %s: %zu bytes are known early", f->name, early);
        buf_free(&text);
    }
}

/* With `one`, the second call of a block is not known before its end. */
static void one_call_begins(void **state)
{
    static const char text[] =
        "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}}, {\"name\": "
        "\"weather\", \"arguments\": {\"city\": \"Be";
    for (int one = 0; one < 2; one++) {
        struct tool_calls c = {.tools = json_root(doc),
                               .form = call_form_named("mistral"),
                               .certain = true,
                               .one = one};
        bool whole;
        assert_int_equal(tool_calls_feed(&c, text, strlen(text)), 0);
        assert_string_equal(buf_text(&tool_calls_at(&c, 0, &whole)->arguments),
                            "{}");
        assert_int_equal(whole, !one);
        const struct tool_call *second = tool_calls_at(&c, 1, &whole);
        assert_int_equal(second != NULL, !one);
        if (second) {
            assert_string_equal(buf_text(&second->arguments),
                                "{\"city\": \"Be");
            assert_false(whole);
        }
        /* what is cut is no call, but stays known */
        assert_int_equal(tool_calls_end_without_cut(&c, true), 0);
        assert_true(c.cut && c.n == 0 && c.text.len == 0);
        assert_non_null(tool_calls_at(&c, 0, &whole));
        tool_calls_free(&c);
    }
}

/* A call that turns out malformed after its beginning ends the answer. */
static void a_broken_call_is_cut(void **state)
{
    static const char text[] =
        "a<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1}]"
        "</tool_call>" NOW "b";
    struct tool_calls c = {
        .tools = json_root(doc), .form = call_form_at(0), .certain = true};
    bool whole;
    assert_int_equal(tool_calls_feed(&c, text, strlen(text)), 0);
    assert_int_equal(tool_calls_end_without_cut(&c, false), 0);
    assert_true(c.cut && c.n == 0);
    assert_string_equal(c.text.data, "a");
    assert_string_equal(buf_text(&tool_calls_at(&c, 0, &whole)->arguments),
                        "{\"a\": 1}");
    assert_false(whole);
    tool_calls_free(&c);
}

/* Text is given as soon as it cannot be a part of a call, and so are calls. */
static void nothing_is_held_longer_than_needed(void **state)
{
    struct tool_calls c = {.tools = json_root(doc), .form = call_form_at(0)};
    assert_int_equal(tool_calls_feed(&c, "ab <", 4), 0);
    assert_string_equal(c.text.data, "ab");
    assert_int_equal(tool_calls_feed(&c, "b", 1), 0);
    assert_string_equal(c.text.data, "ab <b");
    assert_int_equal(tool_calls_feed(&c, NOW, strlen(NOW)), 0);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.held.len, 0);
    tool_calls_free(&c);
}

static void calls_have_openai_form(void **state)
{
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    struct tool_calls c = {
        .tools = json_root(doc), .form = call_form_at(0), .id = 1};
    assert_int_equal(tool_calls_feed(&c, NOW NOW, 2 * strlen(NOW)), 0);
    jw_array(&w, NULL);
    tool_calls_write(&w, NULL, &c, 0);
    tool_calls_write(&w, NULL, &c, 1);
    jw_end_array(&w);
    assert_int_equal(jw_status(&w), 0);
    const char *second = strstr(b.data, ",{");
    assert_non_null(second);
    const char rest[] = ",\"type\":\"function\",\"function\":{\"name\":\"now\","
                        "\"arguments\":\"{}\"}}";
    assert_non_null(strstr(b.data, rest));
    assert_non_null(strstr(second, rest));
    /* ids differ */
    assert_memory_equal(b.data, "[{\"id\":\"call_", 13);
    assert_memory_not_equal(b.data + 8, second + 8, 21);
    tool_calls_free(&c);
    buf_free(&b);
}

/* Any bytes end in a result, which does not depend on the pieces, and text is
 * lost only around calls. */
static void random_parts_are_bounded(void **state)
{
    static const char *const parts[] = {
        "<tool_call>",
        "</tool_call>",
        "<function=",
        "weather>",
        "now>",
        "</function>",
        "<parameter=",
        "days>",
        "city>",
        "</parameter>",
        "{\"name\":",
        "\"now\"",
        "\"weather\"",
        ",\"arguments\":",
        "{}}",
        "{\"days\":1}}",
        "\"",
        "\\",
        "{",
        "}",
        "\n",
        " ",
        "\xff",
        "<",
        "1",
        NOW,
        "x",
        "\n</parameter>\n",
        "[TOOL_CALLS]",
        "[ARGS]",
        "[",
        "]",
        "<|tool_call|>",
        "<|/tool_call|>",
        "{\"name\": \"now\", \"parameters\": {}}",
        "{\"name\": \"now\", \"arguments\": {}}",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "<|tool_call>call:now",
        "<tool_call|>",
        Q("a"),
        "<|\"|>",
        ",",
        ":",
        "<|channel|>commentary to=functions.",
        " <|constrain|>json<|message|>",
        DS("calls" GAP "begin"),
        DS("calls" GAP "end"),
        DS_CALL("now", "{}"),
        "now"};
    uint64_t seed = 99;
    size_t n_calls = 0, n_forms = 0;
    while (call_form_at(n_forms))
        n_forms++;
    for (int round = 0; round < 30000; round++) {
        struct buf b = {0};
        for (int k = 0; k < 12; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            assert_int_equal(
                buf_puts(
                    &b, parts[(seed >> 33) % (sizeof(parts) / sizeof(*parts))]),
                0);
        }
        const struct call_form *form = call_form_at((size_t)round % n_forms);
        char *whole = read_form(form->name, b.data, b.len, b.len);
        char *bytes = read_form(form->name, b.data, b.len, b.len + 1);
        assert_string_equal(whole, bytes);
        n_calls += strstr(whole, "|now {}") != NULL;
        if (form->open && !strstr(b.data, form->open))
            assert_string_equal(whole, b.data);
        free(whole);
        free(bytes);
        buf_free(&b);
    }
    assert_true(n_calls > 1000);
}

/* An answer that is cut anywhere in a call shows nothing of the call. */
static void cut_calls_leave_no_text(void **state)
{
    static const struct {
        const char *form, *text;
        size_t n_before; /* bytes before the call */
    } rows[] = {
        {"qwen", "a <tool_call>\n{\"name\":\"now\"", 2},
        {"qwen", "<tool_call><function=now><parameter=a>", 0},
        {"llama", "{\"name\":\"now\",\"parameters\":{", 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t n = rows[i].n_before + 1; n < strlen(rows[i].text); n++) {
            struct tool_calls c = {.tools = json_root(doc),
                                   .form = call_form_named(rows[i].form)};
            assert_int_equal(tool_calls_feed(&c, rows[i].text, n), 0);
            assert_int_equal(tool_calls_end_without_cut(&c, true), 0);
            assert_true(c.cut && c.n == 0);
            assert_true(c.text.len <= rows[i].n_before);
            tool_calls_free(&c);
        }
    struct tool_calls c = {.tools = json_root(doc),
                           .form = call_form_named("qwen")};
    assert_int_equal(tool_calls_feed(&c, "a <", 3), 0);
    assert_int_equal(tool_calls_end_without_cut(&c, false), 0);
    assert_true(!c.cut && c.text.len == 3);
    tool_calls_free(&c);
}

static void large_calls(void **state)
{
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, "<tool_call><function=weather>"), 0);
    for (int i = 0; i < 300; i++)
        assert_int_equal(
            buf_printf(&b, "<parameter=p%d>\n%d\n</parameter>\n", i, i), 0);
    assert_int_equal(buf_puts(&b, "</function></tool_call>"), 0);
    char *got = read_in_pieces(b.data, b.len, 0);
    assert_non_null(strstr(got, "|!tool call 1: it has too many parameters"));
    free(got);
    b.len = 0;
    assert_int_equal(
        buf_puts(&b, "<tool_call>{\"name\":\"now\",\"arguments\":"), 0);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(buf_puts(&b, "{\"a\":"), 0);
    assert_int_equal(buf_puts(&b, "</tool_call>"), 0);
    got = read_in_pieces(b.data, b.len, 0);
    assert_non_null(strstr(got, "|!tool call 1: JSON: "));
    free(got);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_in_any_pieces),
        cmocka_unit_test(forms_in_any_pieces),
        cmocka_unit_test(certain_calls_only_grow),
        cmocka_unit_test(every_form_says_its_calls_early),
        cmocka_unit_test(one_call_begins),
        cmocka_unit_test(a_broken_call_is_cut),
        cmocka_unit_test(nothing_is_held_longer_than_needed),
        cmocka_unit_test(calls_have_openai_form),
        cmocka_unit_test(random_parts_are_bounded),
        cmocka_unit_test(cut_calls_leave_no_text),
        cmocka_unit_test(large_calls),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
