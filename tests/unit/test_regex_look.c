/* Regular expressions with parts that only an automaton holds: lookahead, and
 * assertions inside. */
#include "test.h"

#include <string.h>

#include "base/buf.h"
#include "text/grammar/automaton.h"
#include "text/grammar/grammar.h"
#include "text/grammar/regex.h"

/* The automaton of an expression, or NULL with *e set. */
static struct automaton *run(const char *re, enum regex_mode mode,
                             struct qwick_err *e)
{
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    assert_int_equal(grammar_create(&g, "G", e), 0);
    uint32_t node = regex_compile(g, NULL, re, strlen(re), mode);
    uint32_t root = grammar_rule(g, "root", 4);
    grammar_define(g, root, node);
    if (grammar_finish(g, root, e) == 0)
        automaton_create(&a, g, e);
    grammar_free(g);
    return a;
}

static bool matches(struct automaton *a, const char *text)
{
    uint32_t s = automaton_start(a);
    for (const char *p = text; *p && s != AUTOMATON_DEAD; p++)
        s = automaton_advance(a, s, (unsigned char)*p);
    assert_int_equal(automaton_error(a, NULL), 0);
    return s != AUTOMATON_DEAD && automaton_accepts(a, s);
}

struct row {
    const char *re;
    const char *yes[4], *no[5];
};

static void check(const struct row *rows, size_t n, enum regex_mode mode)
{
    for (size_t i = 0; i < n; i++) {
        struct qwick_err e = {0};
        struct automaton *a = run(rows[i].re, mode, &e);
        if (!a)
            fail_msg("\"%s\": %s", rows[i].re, e.msg);
        for (size_t k = 0; k < 4 && rows[i].yes[k]; k++)
            if (!matches(a, rows[i].yes[k]))
                fail_msg("\"%s\" must match \"%s\"", rows[i].re,
                         rows[i].yes[k]);
        for (size_t k = 0; k < 5 && rows[i].no[k]; k++)
            if (matches(a, rows[i].no[k]))
                fail_msg("\"%s\" must not match \"%s\"", rows[i].re,
                         rows[i].no[k]);
        automaton_free(a);
    }
}

static void matches_whole_texts(void **state)
{
    static const struct row rows[] = {
        {"(?!abc)[a-c]{3}", {"abb", "cba"}, {"abc", "ab"}},
        {"(?=.*[0-9])(?=.*[A-Z]).{4,}",
         {"a1Bc", "ZZZ9"},
         {"abcd", "1B", "A11"}},
        {"((?!ab).)*", {"", "ba", "acb"}, {"ab", "xaby"}},
        {"(a(?=b)|b(?=a|$))*", {"", "ab", "abab", "b"}, {"a", "aab", "ba"}},
        {"(?!(?!a)).b", {"ab"}, {"bb", "a"}},
        {"(?=(?=a)..)...", {"abc"}, {"bbc", "ab"}},
        {"(?=)a(?!)|c", {"c"}, {"a"}},
        {"a*(?=b)b?", {"b", "aab"}, {"", "a"}},
        {"(^a|b)c$", {"ac", "bc"}, {"c", "cc"}},
        {"(^|x)a($|y)", {"a", "xay", "ay"}, {"x", "yax"}},
        {"(a|^b)+", {"b", "baa", "aa"}, {"ab", "bb"}},
        {"(a$|b)+", {"ba", "a", "bb"}, {"ab"}},
        {"(foo\\b.?)+", {"foo", "foo foo", "foo-"}, {"foofoo", "foox"}},
        {"a\\Bb\\b-?", {"ab", "ab-"}, {"a", "b"}},
        {"\\B", {""}, {"a"}},
        {"(?!\\bif\\b)\\w+", {"iff", "x"}, {"if", ""}},
        {"(?!.*\xC3\xA9)[\xC3\xA0-\xC3\xBF]+",
         {"\xC3\xA8", "\xC3\xA8\xC3\xAA"},
         {"\xC3\xA8\xC3\xA9", "e"}},
    };
    check(rows, sizeof rows / sizeof *rows, REGEX_WHOLE);
}

static void searches(void **state)
{
    static const struct row rows[] = {
        {"^$|(^(?:\\S+\\s+){0,2}\\S+$)",
         {"", "a", "a b", "a  b c"},
         {" a", "a b c d", " "}},
        {"^([^,]|$)", {"", "a", "a,"}, {",", ",a"}},
        {"(^a)|(b$)", {"a", "ax", "xb"}, {"xa", "bx", ""}},
        {"^(?![ \\t]*\\(default)",
         {"", "(defaul"},
         {"(default", " \t(default)"}},
        {"\\bcat\\b", {"cat", "a cat.", "cat-cat"}, {"cats", "tomcat", "ca"}},
        {"a(?=b)", {"ab", "xxaby"}, {"a", "ba", "ac"}},
        {"a(?!b)", {"a", "aba", "ac"}, {"ab", "b"}},
        {"^(?!.*--)[a-z-]+$", {"a", "a-b", "-"}, {"a--b", "--", ""}},
        {"(?!.*\\bfoo\\b)^.*$", {"", "afoo"}, {"foo", "a foo b"}},
        {"a(?=$)b?", {"a", "xa"}, {"ab", ""}},
    };
    check(rows, sizeof rows / sizeof *rows, REGEX_SEARCH);
}

/* Texts that no text can match end in an error, and so do expressions whose
 * automaton is too large. */
static void refuses(void **state)
{
    static const struct {
        const char *re, *message;
    } rows[] = {
        {"a(?=b)", "G: no text can match"},
        {"a^b", "G: no text can match"},
        {"a\\bb", "G: no text can match"},
        {"(?<!a)b", "G: character 1: lookbehind is not supported"},
        {"(?=a", "G: character 1: the group has no"},
        {"(?!b)(a|b)*a(a|b){30}", "G: the expression "},
        {"((?=(a|b)*a(a|b){18}c).)*", "G: the expression "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qwick_err e = {0};
        if (run(rows[i].re, REGEX_WHOLE, &e))
            fail_msg("\"%s\" is accepted", rows[i].re);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        if (strncmp(e.msg, rows[i].message, strlen(rows[i].message)) != 0)
            fail_msg("\"%s\": %s", rows[i].re, e.msg);
    }
}

/* Many alternatives that are searched for are one small automaton each. */
static void searches_for_many_words(void **state)
{
    struct qwick_err e = {0};
    struct buf re = {0};
    buf_puts(&re, "(zz$)");
    for (int i = 0; i < 300; i++) {
        char word[] = {'|', (char)('a' + i % 26), (char)('a' + i / 26),
                       '-', (char)('a' + i % 7),  0};
        assert_int_equal(buf_puts(&re, word), 0);
    }
    struct automaton *a = run(re.data, REGEX_SEARCH, &e);
    assert_ok(a == NULL, &e);
    assert_true(matches(a, "xxba-bxx"));
    assert_true(matches(a, "xxzz"));
    assert_false(matches(a, "xxzzx"));
    automaton_free(a);
    buf_free(&re);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_whole_texts),
        cmocka_unit_test(searches),
        cmocka_unit_test(refuses),
        cmocka_unit_test(searches_for_many_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
