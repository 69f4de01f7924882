/* Grammars in the form of Lark: texts that they admit, and what is refused. */
#include "test.h"

#include <string.h>

#include "base/buf.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/lark/lark.h"

static struct automaton *compile(const char *text, struct qwick_err *e)
{
    struct grammar *g;
    struct automaton *a = NULL;
    assert_int_equal(grammar_create(&g, "G", e), 0);
    uint32_t root = lark_compile(g, text, strlen(text));
    if (!grammar_error(g, e) && !grammar_finish(g, root, e))
        automaton_create(&a, g, e);
    grammar_free(g);
    return a;
}

static bool matches(struct automaton *a, const char *s)
{
    uint32_t state = automaton_start(a);
    for (; *s && state != AUTOMATON_DEAD; s++)
        state = automaton_advance(a, state, (unsigned char)*s);
    return state != AUTOMATON_DEAD && automaton_accepts(a, state);
}

enum { MAX_TEXTS = 10 };

static const struct {
    const char *grammar;
    const char *good[MAX_TEXTS], *bad[MAX_TEXTS];
} texts[] = {
    /* comments, lines, modifiers, priorities and aliases */
    {"// a comment\n\nstart: a b? # another\n    | \"x\" -> y  // more\n"
     "    | \"z\"\n?a.2: \"a\"\n!b: \"b\" -> bee\n",
     {"a", "ab", "x", "z"},
     {"", "b", "xy", "#"}},
    {"start: (\n  \"a\" // c\n  | \"b\"\n)+ [\"c\" |\n \"d\"]",
     {"a", "bac", "abd"},
     {"", "c", "acd"}},
    /* the empty alternative, and rules before their definition */
    {"start: | a\na:\n  | \"b\" a", {"", "b", "bb"}, {"a"}},
    {"start: \"\"", {""}, {"a"}},
    /* repetitions */
    {"start: \"a\"~2 \"b\" ~ 1..2 \"c\"{2} \"d\"{1,} \"e\"{,1}",
     {"aabccd", "aabbccdde"},
     {"abccd", "aabcd", "aabccdee"}},
    {"start: (\"a\" | \"b\"~2)*", {"", "abb", "bba"}, {"b", "aba"}},
    /* strings and ranges */
    {"start: \"\\n\\t\\\\\\\"\\x41\\u00e9\\U0001F600\" \"a\"..\"c\" "
     "\"\\u00e9\"..\"\\u00eb\"",
     {"\n\t\\\"A\xC3\xA9\xF0\x9F\x98\x80"
      "b\xC3\xAA"},
     {"\n\t\\\"A\xC3\xA9\xF0\x9F\x98\x80"
      "d\xC3\xAA"}},
    {"start: \"aB1\xC3\xA9\"i",
     {"Ab1\xC3\xA9", "aB1\xC3\xA9"},
     {"ab1\xC3\x89"}},
    /* regular expressions */
    {"start: /a+\\/[\\/b]\\d/ | /[^x]y/ | /\\u{e9}/u",
     {"aa//1", "a/b2", "zy", "\xC3\xA9"},
     {"a/c1", "xy"}},
    {"start: /[a-c]x\xC3\xA9(?<n>)[^q-s]/i \".\" /./ /./s /[.]\\./s",
     {"AX\xC3\xA9T.a\n..", "bx\xC3\xA9\xC3\xA9.a\r.."},
     {"dx\xC3\xA9T.aa..", "ax\xC3\xA9T.\na..", "ax\xC3\xA9T.aaa.",
      "ax\xC3\x89T.aa..", "ax\xC3\xA9R.aa.."}},
    {"start: /[z-\xC3\xA9][^-z]\\w/i",
     {"Z1_", "\xC3\xA8\xC3\xA9z"},
     {"Y1_", "Z-_", "ZZ_", "Zz_"}},
    /* terminals in terminals, and what is ignored */
    {"start: A \",\" A\nA: B+ | \"x\" B\nB: \"b\"\n%ignore \" \"\n"
     "%ignore /\\t*/",
     {"b,b", "bb , xb \t ", "b  ,b"},
     {" b,b", "b b,b", "x b,b"}},
    {"start: \"a\"\n%ignore WS\nWS: \" \"+", {"a", "a  "}, {" a"}},
    {"start: \"%ignore\"", {"%ignore"}, {"%ignore "}},
    /* rules that begin with themselves */
    {"start: sum\n?sum: product | sum \"+\" product -> add\n"
     "    | sum \"-\" product\nproduct: NUM | product \"*\" NUM\n"
     "NUM: \"0\"..\"9\"+",
     {"1", "1+2*3-4", "12*3*4+5"},
     {"", "+1", "1+", "1**2"}},
    /* imports */
    {"%llguidance {}\n%import common.INT\n%import common.WS_INLINE -> WS\n"
     "%import common (SIGNED_NUMBER, ESCAPED_STRING)\n%ignore WS\n"
     "start: INT ESCAPED_STRING SIGNED_NUMBER",
     {"12\"a\\\"b\" -1.5e+3", "1 \"\" 5.", "1\"\\\\\".5E1"},
     {"12\"a\\\"-1", "1\"\n\"5", "1\"\"1.5.2"}},
    {"%import common.C_COMMENT\n%import common.CNAME\n"
     "start: C_COMMENT CNAME",
     {"/**/a", "/* * / ** */_a1"},
     {"/*/a", "/* */ */a", "/**/1"}},
    {"%import common (SH_COMMENT, CPP_COMMENT, SQL_COMMENT, NEWLINE, WORD)\n"
     "%import common.HEXDIGIT\n%import common.SIGNED_FLOAT\n"
     "start: SH_COMMENT NEWLINE CPP_COMMENT NEWLINE SQL_COMMENT NEWLINE WORD "
     "HEXDIGIT SIGNED_FLOAT",
     {"#a\n//b\r\n\n--c\nxY9+1e5", "#\n//\n--\naA-1.0"},
     {"#a//b\n--c\nxy9+1.0", "#\n//\n--\nxG+1.0", "#\n//\n--\naA1"}},
    /* schemas */
    {"start: \"<\" %json {\"enum\": [\"}\", \"\\\"\"]} /x/\n"
     "a: \"unused\"",
     {"<\"}\"x", "<\"\\\"\"x"},
     {"<}x", "<1x"}},
};

static void admits_texts(void **state)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct qwick_err e;
        struct automaton *a = compile(texts[i].grammar, &e);
        if (!a)
            fail_msg("row %zu: %s", i, e.msg);
        for (size_t k = 0; k < MAX_TEXTS && texts[i].good[k]; k++)
            if (!matches(a, texts[i].good[k]))
                fail_msg("row %zu refuses %s", i, texts[i].good[k]);
        for (size_t k = 0; k < MAX_TEXTS && texts[i].bad[k]; k++)
            if (matches(a, texts[i].bad[k]))
                fail_msg("row %zu admits %s", i, texts[i].bad[k]);
        automaton_free(a);
    }
}

static const struct {
    const char *grammar, *message;
} refused[] = {
    {"", "G: has no rule \"start\""},
    {"START: \"a\"", "G: has no rule \"start\""},
    {"start: a\n  | \"\xC3\xA9\" b\na: \"a\"",
     "G: line 2, column 9: \"b\" is not defined"},
    {"start: \"a\"\nstart: \"b\"",
     "line 2, column 1: \"start\" is defined twice"},
    {"start: A\nA: b\nb: \"c\"",
     "line 2, column 4: a terminal cannot refer to the rule \"b\""},
    {"start: a\na: b \"x\"\nb: a \"y\" | \"z\"", "begins with itself"},
    {"start: start \"a\"", "no text can match"},
    {"start: \"x\" start", "no text can match"},
    {"start: (\"a\"\n\n", "line 1, column 8: the group has no \")\""},
    {"start: [\"a\"", "the group has no \"]\""},
    {"start: \"a\" )", "line 1, column 12: expected an item or the end"},
    {"start: \"a\" = \"b\"", "expected an item or the end"},
    {"start \"a\"", "line 1, column 7: expected \":\""},
    {"= \"a\"", "expected a rule, a terminal or a directive"},
    {"start: \"a", "line 1, column 8: the string has no closing quote"},
    {"start: \"a\nb\"", "the string has no closing quote"},
    {"start: \"\\q\"", "line 1, column 9: unknown escape"},
    {"start: \"\\uD800\"", "not a code point"},
    {"start: \"\\u12\"", "needs 4 hexadecimal digits"},
    {"start: \"c\"..\"a\"", "backwards"},
    {"start: \"ab\"..\"c\"", "between two characters"},
    {"start: \"a\"..c", "expected a string after"},
    {"start: /a", "no closing \"/\""},
    {"start: /a(/", "line 1, column 8: character "},
    {"start: /a/x", "line 1, column 11: the flag \"x\""},
    {"start: /\\x41/i", "with the flag \"i\""},
    {"start: /a\\", "no closing \"/\""},
    {"start: \"a\"~3..2", "maximum below its minimum"},
    {"start: \"a\"~", "expected a number after \"~\""},
    {"start: \"a\"~1..", "expected a number after \"..\""},
    {"start: \"a\"{}", "expected a number of repetitions"},
    {"start: \"a\"~4294967295", "too large"},
    {"start: \"a\" ->", "expected a name after \"->\""},
    {"start: a{\"x\"}\na{b}: b", "line 1, column 8: templates are not"},
    {"start: \"x\"\na{b}: b", "line 2, column 2: templates are not"},
    {"start[capture]: \"x\"", "attributes of rules are not supported"},
    {"start.x: \"x\"", "expected a priority"},
    {"start: A & B", "the operator \"&\" is not supported"},
    {"start: ~A", "the operator \"~\" is not supported"},
    {"start: <think>", "references to tokens are not supported"},
    {"start: %regex {}", "only %json is supported"},
    {"start: %json 5", "expected a JSON object after %json"},
    {"start: %json {\"a\"", "expected a JSON object after %json"},
    {"start: \"x\"\n | %json {\"type\": \"q\"}",
     "G: line 2, column 4: #/type: "},
#define SLOW(more) "%json {\"pattern\": \"^(a?){1000}a{1000}$\"} " more
    {"start: " SLOW(SLOW(SLOW(SLOW(SLOW(SLOW(SLOW(SLOW("")))))))),
     "it takes too many steps"},
    {"start: A\nA: %json {}", "a terminal cannot have %json"},
    {"%declare A\nstart: A", "line 1, column 1: the directive \"%declare\""},
    {"%llguidance {\"a\":1}\nstart: \"a\"", "\"%llguidance\" is not"},
    {"%import python.NAME\nstart: NAME", "only terminals of \"common\""},
    {"%import common.NO\nstart: NO", "line 1, column 16: \"common\" has no"},
    {"%import common.INT -> int\nstart: int", "name of a terminal"},
    {"%import common.INT\nINT: \"5\"\nstart: INT", "defined twice"},
    {"%import common (INT\nstart: INT", "expected \")\""},
    {"start: \"a\"\n%ignore a\na: \"b\"", "cannot refer to the rule \"a\""},
    {"start: \"\xFF\"", "line 1, column 9: is not valid UTF-8"},
};

static void refuses_grammars(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct qwick_err e = {0};
        if (compile(refused[i].grammar, &e))
            fail_msg("row %zu is not refused", i);
        if (!strstr(e.msg, refused[i].message))
            fail_msg("row %zu: %s", i, e.msg);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
    }
}

/* Text of n copies of a part after a start. */
static struct automaton *compile_long(const char *start, const char *part,
                                      size_t n, struct qwick_err *e)
{
    struct buf b = {0};
    assert_int_equal(buf_puts(&b, start), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_puts(&b, part), 0);
    struct automaton *a = compile(b.data, e);
    buf_free(&b);
    return a;
}

/* Hostile grammars end soon, with an error or without. */
static void bounds_work(void **state)
{
    static const struct {
        const char *start, *part;
    } rows[] = {
        {"start: ", "("},
        {"start: ", "["},
        {"start: ", "/a/ "},
        {"start: ", "\"a\"~2 "},
        {"start: \"a\"", "?"},
        {"start: \"a\"", "~9"},
        {"start: \"a\"", "\n  | \"b\""},
        {"start: ", "x "},
        {"start: ", "%json {} "},
        {"start: %json ", "["},
        {"start: %json {", "\"{"},
        {"", "%ignore \" \"\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qwick_err e;
        automaton_free(compile_long(rows[i].start, rows[i].part, 60000, &e));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(admits_texts),
        cmocka_unit_test(refuses_grammars),
        cmocka_unit_test(bounds_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
