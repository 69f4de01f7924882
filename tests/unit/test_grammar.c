/* Grammars, regular expressions and the automaton that runs them, compared with
 * matchers of another kind: the C library's, and matchers written by hand. */
#include "test.h"

#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "text/grammar/automaton.h"
#include "text/grammar/choices.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/grammar.h"
#include "text/grammar/regex.h"

/* Random numbers below n, equal in each run. */
static uint32_t below_state = 7;
static uint32_t below(uint32_t n)
{
    below_state = below_state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(below_state >> 4) * n) >> 28);
}

static struct grammar *new_grammar(void)
{
    struct grammar *g;
    assert_int_equal(grammar_create(&g, "G", NULL), 0);
    return g;
}

/* The automaton of a grammar whose root is a rule with this node. Frees g. */
static struct automaton *run_node(struct grammar *g, uint32_t node)
{
    struct qwick_err e = {0};
    struct automaton *a;
    uint32_t root = grammar_rule(g, "root", 4);
    grammar_define(g, root, node);
    assert_ok(grammar_finish(g, root, &e) || automaton_create(&a, g, &e), &e);
    grammar_free(g);
    return a;
}

static struct automaton *run_regex(const char *re, enum regex_mode mode)
{
    struct grammar *g = new_grammar();
    uint32_t node = regex_compile(g, NULL, re, strlen(re), mode);
    return run_node(g, node);
}

static bool matches(struct automaton *a, const char *p, size_t n)
{
    uint32_t s = automaton_start(a);
    for (size_t i = 0; i < n && s != AUTOMATON_DEAD; i++)
        s = automaton_advance(a, s, (unsigned char)p[i]);
    assert_int_equal(automaton_error(a, NULL), 0);
    return s != AUTOMATON_DEAD && automaton_accepts(a, s);
}

static bool matches_text(struct automaton *a, const char *text)
{
    return matches(a, text, strlen(text));
}

/* ---- regular expressions ---- */

/* Append a random expression in the syntax that POSIX shares. */
static void random_regex(struct buf *out, int depth)
{
    static const char *const atoms[] = {"a",    "b",     "c",      "[ab]",
                                        "[^a]", "[a-c]", "[^b-c]", "."};
    static const char *const repeats[] = {"*",     "+",     "?",   "{2}",
                                          "{1,3}", "{0,2}", "{2,}"};
    uint32_t n = 1 + below(3);
    for (uint32_t i = 0; i < n; i++) {
        if (depth > 0 && below(3) == 0) {
            buf_putc(out, '(');
            random_regex(out, depth - 1);
            if (below(2)) {
                buf_putc(out, '|');
                random_regex(out, depth - 1);
            }
            buf_putc(out, ')');
        } else {
            buf_puts(out, atoms[below(8)]);
        }
        if (below(3) == 0)
            buf_puts(out, repeats[below(7)]);
    }
}

static void test_regex_as_posix(void **state)
{
    struct buf re = {0};
    size_t n_match = 0, n_all = 0;
    for (int round = 0; round < 1500; round++) {
        char posix[1024];
        regex_t other;
        re.len = 0;
        random_regex(&re, 3);
        if (re.len > 500)
            continue;
        snprintf(posix, sizeof posix, "^(%s)$", re.data);
        assert_int_equal(regcomp(&other, posix, REG_EXTENDED | REG_NOSUB), 0);
        struct automaton *a = run_regex(re.data, REGEX_WHOLE);
        for (int i = 0; i < 40; i++) {
            char text[16];
            size_t n = below(7);
            for (size_t k = 0; k < n; k++)
                text[k] = "aaabbcd"[below(7)];
            text[n] = 0;
            bool want = regexec(&other, text, 0, NULL, 0) == 0;
            if (matches_text(a, text) != want)
                fail_msg("\"%s\" and \"%s\": want %d", re.data, text, want);
            n_match += want;
            n_all++;
        }
        automaton_free(a);
        regfree(&other);
    }
    buf_free(&re);
    /* both answers occur often */
    assert_true(n_match * 20 > n_all && n_match < n_all / 2);
}

struct regex_case {
    const char *re;
    const char *yes[4], *no[6];
};

/* Check the row's texts with its automaton, and free that. */
static void check_case(struct automaton *a, const struct regex_case *row)
{
    for (size_t k = 0; k < 4 && row->yes[k]; k++)
        if (!matches_text(a, row->yes[k]))
            fail_msg("\"%s\" must match \"%s\"", row->re, row->yes[k]);
    for (size_t k = 0; k < 6 && row->no[k]; k++)
        if (matches_text(a, row->no[k]))
            fail_msg("\"%s\" must not match \"%s\"", row->re, row->no[k]);
    automaton_free(a);
}

static void check_cases(const struct regex_case *rows, size_t n,
                        enum regex_mode mode)
{
    for (size_t i = 0; i < n; i++)
        check_case(run_regex(rows[i].re, mode), &rows[i]);
}

static void test_regex_syntax(void **state)
{
    static const struct regex_case rows[] = {
        {"^abc$", {"abc"}, {"", "ab", "abcd", "^abc$"}},
        {"a|", {"a", ""}, {"|", "aa"}},
        {"", {""}, {"a"}},
        {"\\d{3}-\\D", {"123-x", "000-\xC3\xA9"}, {"12-x", "123-4"}},
        {"\\w+\\s\\S\\W", {"a_9 x-", "Z\xE2\x80\xA8x "}, {"- x-", "a xx"}},
        {"[\\d\\-x]+", {"1-x"}, {"", "y"}},
        {"[^]", {"a", "\n"}, {"", "ab"}},
        {"[a-]", {"a", "-"}, {"b"}},
        {"[\\b\\n]", {"\b", "\n"}, {"b", "n"}},
        {"\\x41\\u00e9\\u{1F600}\\t\\cA",
         {"A\xC3\xA9\xF0\x9F\x98\x80\t\x01"},
         {"a\xC3\xA9\xF0\x9F\x98\x80\t\x01"}},
        {"\\uD83D\\uDE00", {"\xF0\x9F\x98\x80"}, {""}},
        {".", {"a", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"\n", "\xC3", "", "\r"}},
        {"[\xC3\xA9-\xE2\x82\xAC]",
         {"\xC3\xA9", "\xE0\xA4\x80", "\xE2\x82\xAC"},
         {"\xC3\xA8", "\xE2\x82\xAD", "e"}},
        {"a*?b+?c??d{2}?", {"bdd", "aabbcdd"}, {"cdd", "bd"}},
        {"(?:ab)+(?<name>c)", {"abc", "ababc"}, {"c", "ab"}},
        {"a{2,3}", {"aa", "aaa"}, {"a", "aaaa"}},
        {"a{,3}", {"a{,3}"}, {"a", "aaa"}},
        {"x{0}", {""}, {"x"}},
        {"(a*)*b", {"b", "aab"}, {"a"}},
        {"(a?){3}", {"", "a", "aaa"}, {"aaaa"}},
        {"\\.\\*\\\\\\/", {".*\\/"}, {"x*\\/"}},
        {"\\p{L}\\pN[^\\p{Lu}]", {"a1b", "\xC3\x89\xD9\xA1 "}, {"1ab", "a1B"}},
        {"\\p{Script=Greek}+|\\p{sc=Han}",
         {"\xCE\xB1\xCE\xB2", "\xE6\xBC\xA2"},
         {"a", "\xE6\xBC\xA2\xE6\xBC\xA2"}},
        {"\\P{Letter}[\\P{gc=Nd}\\d]", {"11", "-a"}, {"a1", "1\xD9\xA1"}},
        {"^a|b$", {"a", "b"}, {"ab"}},
    };
    check_cases(rows, sizeof rows / sizeof *rows, REGEX_WHOLE);
}

/* Repetitions that are counted: long ones, also inside each other. */
static void test_counted(void **state)
{
    static const struct {
        const char *re, *unit; /* the text has n units */
        size_t yes[4], no[4];  /* 0 ends them */
    } rows[] = {
        {"[ab]{40}", "a", {40}, {1, 39, 41}},
        {"[ab]{40,50}", "b", {40, 45, 50}, {39, 51}},
        {"x?(ab?){40,}", "a", {40, 41, 1000}, {1, 39}},
        {"(\xC3\xA9|a){33,35}", "\xC3\xA9", {33, 34, 35}, {32, 36}},
        {"(a{40}b?){35,36}", "a", {1400, 1440}, {1399, 1401, 1439, 1441}},
        {"(a|aa){40,41}", "a", {40, 60, 82}, {39, 83}},
        {"a{0,70}a{32}", "a", {32, 50, 102}, {31, 103}},
        {"((a{32,33}){32,}b?){33}", "a", {33792, 33793, 40000}, {33791, 1}},
        {"(a?){40,50}", "a", {1, 40, 50}, {51}},
        {"((a?){50}b){40}|a{7}", "a", {7}, {40, 50}},
        {"[ab]{300000,1000000}", "a", {300000, 1000000}, {299999, 1000001}},
        {"[ab]{4294967290,}|a", "a", {1}, {2, 100}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct automaton *a = run_regex(rows[i].re, REGEX_WHOLE);
        for (size_t k = 0; k < 8; k++) {
            size_t n = k < 4 ? rows[i].yes[k] : rows[i].no[k - 4];
            struct buf text = {0};
            for (size_t unit = 0; unit < n; unit++)
                buf_puts(&text, rows[i].unit);
            if (n && matches(a, text.data, text.len) != (k < 4))
                fail_msg("%s: %zu times", rows[i].re, n);
            buf_free(&text);
        }
        automaton_free(a);
    }
}

static void test_regex_search(void **state)
{
    static const struct regex_case rows[] = {
        {"b", {"b", "abc", "\nb\n"}, {"", "ac"}},
        {"^b", {"b", "bc"}, {"ab", ""}},
        {"b$", {"b", "ab"}, {"bc"}},
        {"^b$", {"b"}, {"ab", "bc"}},
        {"^a|b$", {"ax", "xb", "a"}, {"xa", "bx"}},
        {"", {"", "x"}, {0}},
    };
    check_cases(rows, sizeof rows / sizeof *rows, REGEX_SEARCH);
}

static void assert_refused(const char *re, size_t n, const char *why)
{
    struct grammar *g = new_grammar();
    struct qwick_err e = {0};
    regex_compile(g, NULL, re, n, REGEX_WHOLE);
    assert_int_equal(grammar_error(g, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\": \"%s\" lacks \"%s\"", re, e.msg, why);
    grammar_free(g);
}

static void test_regex_refused(void **state)
{
    static const struct {
        const char *re, *why;
    } rows[] = {{"ab(", "character 3: the group has no \")\""},
                {"a)b", "character 2: \")\" without \"(\""},
                {"a[b", "character 2: the class has no \"]\""},
                {"*a", "character 1: there is nothing to repeat"},
                {"a**", "cannot be repeated"},
                {"a*+", "possessive"},
                {"(a)\\1", "character 4: back references"},
                {"\\k<a>", "back references"},
                {"(?<=b)", "lookbehind"},
                {"(?<!b)", "lookbehind"},
                {"(?i)a", "this kind of group"},
                {"\\p{Lx}", "character 1: no Unicode property"},
                {"a\\p", "character 2: the property has no name"},
                {"[\\p{L", "character 2: the property has no name"},
                {"[b-a]", "backwards"},
                {"x[]a]", "character 2: the class is empty"},
                {"[\\d-x]\\q", "unknown escape"},
                {"a{3,2}", "maximum below"},
                {"a{4294967295}", "too large"},
                {"a{99999999999999999999}", "too large"},
                {"\\u12", "hexadecimal"},
                {"\\u{110000}", "not a code point"},
                {"\\uD800", "not a code point"},
                {"a\\", "ends after"},
                {"[[:alpha:]]", "POSIX"},
                {"\xFF", "not valid UTF-8"},
                {"\xC3\xA9(", "character 2:"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_refused(rows[i].re, strlen(rows[i].re), rows[i].why);
}

/* ---- choices ---- */

static void test_choices(void **state)
{
    struct grammar *g = new_grammar();
    const char list[] = "yes,yes please,a\\,b,c\\\\, d";
    struct automaton *a = run_node(g, choices_compile(g, list, strlen(list)));
    assert_true(matches_text(a, "yes"));
    assert_true(matches_text(a, "yes please"));
    assert_true(matches_text(a, "a,b"));
    assert_true(matches_text(a, "c\\"));
    assert_true(matches_text(a, " d"));
    assert_false(matches_text(a, "d"));
    assert_false(matches_text(a, "yes "));
    assert_false(matches_text(a, ""));
    automaton_free(a);
    g = new_grammar();
    choices_compile(g, "a,,b", 4);
    struct qwick_err e = {0};
    assert_int_equal(grammar_error(g, &e), -1);
    assert_string_equal(e.msg, "G: text 2 is empty");
    grammar_free(g);
}

/* ---- GBNF ---- */

static struct automaton *run_gbnf(const char *text)
{
    struct qwick_err e = {0};
    struct grammar *g = new_grammar();
    struct automaton *a;
    uint32_t root = gbnf_compile(g, text, strlen(text));
    assert_ok(grammar_finish(g, root, &e) || automaton_create(&a, g, &e), &e);
    grammar_free(g);
    return a;
}

static void test_gbnf_syntax(void **state)
{
    static const struct regex_case rows[] = {
        {"root ::= \"a\" b? # comment\nb::=\"\\\"\\x41\\u00e9\\U0001F600\\n\"",
         {"a", "a\"A\xC3\xA9\xF0\x9F\x98\x80\n"},
         {"", "b"}},
        {"\n# c\n\nx-1 ::= [^\\]\\-a-c]+\r\nroot ::= x-1{2,3} | x-1{5}  |\n "
         "\"]\"\n\n",
         {"xy", "]", "\xC3\xA9\xC3\xA9"},
         {"a", "", "x", "b-"}},
        {"root ::= (\n \"a\" # c\n | \"b\"\n \"c\"* )+ .",
         {"a\n", "bccx", "abc?"},
         {"a", "c?", ""}},
        {"root ::= \"\" | [a-]", {"", "a", "-"}, {"b"}},
        {"root ::= \"a\"{0,2} \"b\"{1,}", {"b", "aabb"}, {"a", "aaab"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_case(run_gbnf(rows[i].re), &rows[i]);
}

static void test_gbnf_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "G: has no rule \"root\""},
        {"a ::= \"b\"\n", "G: has no rule \"root\""},
        {"root ::= a", "rule \"a\" is not defined"},
        {"root ::= root \"a\" | \"b\"", "rule \"root\" begins with itself"},
        {"root ::= \"a\"\nroot ::= \"b\"",
         "line 2: rule \"root\" is defined twice"},
        {"root ::= \"a", "line 1: the literal has no closing quote"},
        {"\n\nroot ::= [a", "line 3: the class has no \"]\""},
        {"root ::= (\"a\"\n\n", "line 1: the group has no \")\""},
        {"root ::= \"a\" )", "\")\" without \"(\""},
        {"root ::= \"a\"\n | \"b\"", "line 2: expected the name of a rule"},
        {"root = \"a\"", "expected \"::=\""},
        {"root ::= \"a\"{,2}", "expected a number"},
        {"root ::= \"a\"{3,2}", "maximum below"},
        {"root ::= \"a\"{4294967295}", "too large"},
        {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\uD800\"", "not a code point"},
        {"root ::= [z-a]", "backwards"},
        {"root ::= <think>", "tokens are not supported"},
        {"root ::= \"\xFF\"", "not valid UTF-8"},
        {"root ::= \"x\" root", "no text can match"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar *g = new_grammar();
        struct qwick_err e = {0};
        uint32_t root = gbnf_compile(g, rows[i].text, strlen(rows[i].text));
        if (!grammar_finish(g, root, &e))
            fail_msg("\"%s\" is accepted", rows[i].text);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        if (!strstr(e.msg, rows[i].why))
            fail_msg("\"%s\": \"%s\" lacks \"%s\"", rows[i].text, e.msg,
                     rows[i].why);
        grammar_free(g);
    }
}

/* A tokenizer of 5000 tokens that has the texts "<a>" and "<b>". */
static int32_t find_token(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    return n == 3 && !memcmp(text, "<a>", n)   ? 7
           : n == 3 && !memcmp(text, "<b>", n) ? 4999
                                               : -1;
}

/* Tokens are bytes that UTF-8 does not have, and a code in order of their
 * first use; 0: a token that is not named. */
static void test_gbnf_tokens(void **state)
{
#define T(code) "\xFF\x00" code
    static const char text[] =
        "root ::= <a> !<[7]>{2} \"x\" <[12]> | <b>? !<b> [^a]";
    static const struct {
        const char *p;
        size_t n;
        bool good;
    } rows[] = {
        {T("\1") T("\0") T("\2") "x" T("\2"), 13, true},
        {T("\1") T("\0") T("\1") "x" T("\2"), 13, false},
        {T("\1") T("\0") "x" T("\2"), 10, false},
        {T("\3") T("\1") "b", 7, true},
        {T("\0") "b", 4, true},
        {T("\3") "b", 4, false},
        {"\xFF\x01\x03"
         "b",
         4, true},
        {T("\0") "a", 4, false},
        {T("\0") T("\0"), 6, false},
    };
    struct qwick_err e = {0};
    struct grammar *g = new_grammar();
    struct automaton *a;
    size_t n;
    grammar_set_tokens(g, 5000, find_token, NULL);
    uint32_t root = gbnf_compile(g, text, strlen(text));
    assert_ok(grammar_finish(g, root, &e) || automaton_create(&a, g, &e), &e);
    const int32_t *ids = grammar_tokens(g, &n);
    assert_int_equal(n, 3);
    assert_true(ids[0] == 7 && ids[1] == 12 && ids[2] == 4999);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t s = automaton_start(a);
        for (size_t k = 0; k < rows[i].n && s != AUTOMATON_DEAD; k++)
            s = automaton_advance(a, s, (unsigned char)rows[i].p[k]);
        if ((s != AUTOMATON_DEAD && automaton_accepts(a, s)) != rows[i].good)
            fail_msg("row %zu", i);
    }
    automaton_free(a);
    grammar_free(g);
#undef T
}

static void test_gbnf_tokens_refused(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"root ::= \"a\"\nb ::= <c>", "line 2: the model has no token \"<c>\""},
        {"root ::= <[5000]>", "line 1: the model has no token <[5000]>"},
        {"root ::= <[99999999999999999999]>", "no token <[99999999999999"},
        {"root ::= <[-1]>", "no token \"<[-1]>\""},
        {"root ::= <[]>", "no token \"<[]>\""},
        {"root ::= <a", "line 1: the token has no \">\""},
        {"root ::= !\"a\"", "line 1: expected a token after \"!\""},
        {"root ::= !<[9]> \"a\" <[9]>", "line 1: <[9]> ends answers"},
    };
    const int32_t end = 9;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar *g = new_grammar();
        struct qwick_err e = {0};
        grammar_set_tokens(g, 5000, find_token, NULL);
        grammar_set_ends(g, &end, 1);
        gbnf_compile(g, rows[i].text, strlen(rows[i].text));
        assert_int_equal(grammar_error(g, &e), -1);
        if (!strstr(e.msg, rows[i].why))
            fail_msg("\"%s\": %s", rows[i].text, e.msg);
        grammar_free(g);
    }
    struct buf many = {0};
    struct grammar *g = new_grammar();
    struct qwick_err e = {0};
    grammar_set_tokens(g, 5000, find_token, NULL);
    buf_puts(&many, "root ::=");
    for (int i = 0; i <= GRAMMAR_MAX_TOKENS; i++)
        buf_printf(&many, " <[%d]>", i);
    gbnf_compile(g, many.data, many.len);
    assert_int_equal(grammar_error(g, &e), -1);
    assert_string_equal(e.msg, "G: names more than 1000 tokens");
    buf_free(&many);
    grammar_free(g);
}

/* A text that two states admit together. */
static void test_union(void **state)
{
    struct automaton *a =
        run_gbnf("root ::= \"ab\" | \"bb\"* \"c\" | \"d\" root");
    uint32_t s = automaton_start(a);
    uint32_t x = automaton_advance(a, s, 'a'), y = automaton_advance(a, s, 'b');
    uint32_t both = automaton_union(a, x, y);
    assert_int_equal(automaton_union(a, x, AUTOMATON_DEAD), x);
    assert_int_equal(automaton_union(a, AUTOMATON_DEAD, y), y);
    assert_int_equal(automaton_union(a, x, x), x);
    assert_false(automaton_accepts(a, both));
    both = automaton_advance(a, both, 'b');
    assert_true(automaton_accepts(a, both));
    assert_true(automaton_accepts(a, automaton_advance(a, both, 'c')));
    assert_int_equal(automaton_advance(a, both, 'd'), AUTOMATON_DEAD);
    assert_false(automaton_accepts(a, automaton_union(a, s, y)));
    automaton_free(a);
}

/* Random grammars without left recursion, with up to four rules: each
 * alternative begins with a letter. A matcher by dynamic programming over the
 * parts of the text tells what they match. */
enum { RULES = 4, ALTS = 3, PARTS = 3, TEXT = 7 };

struct tiny {
    int part[RULES][ALTS][PARTS]; /* a letter, -1 - rule, or 0: no part */
};

static void write_tiny(const struct tiny *t, struct buf *out)
{
    for (int r = 0; r < RULES; r++) {
        if (r)
            buf_printf(out, "r%d ::= ", r);
        else
            buf_puts(out, "root ::= ");
        for (int a = 0; a < ALTS; a++) {
            if (a)
                buf_puts(out, " | ");
            buf_puts(out, "\"\" "); /* an alternative may have no part */
            for (int p = 0; p < PARTS; p++) {
                int v = t->part[r][a][p];
                if (v > 0)
                    buf_printf(out, "\"%c\" ", v);
                else if (v < 0 && v != -1)
                    buf_printf(out, "r%d ", -1 - v);
                else if (v < 0)
                    buf_puts(out, "root ");
            }
        }
        buf_putc(out, '\n');
    }
}

/* Whether parts from p on of an alternative match text[i..j). yes: the parts of
 * the text that the rules are known to match. */
static bool parts_match(const struct tiny *t, const char *text,
                        bool yes[RULES][TEXT + 1][TEXT + 1], int r, int a,
                        int p, int i, int j)
{
    if (p == PARTS)
        return i == j;
    int v = t->part[r][a][p];
    if (v == 0)
        return parts_match(t, text, yes, r, a, p + 1, i, j);
    if (v > 0)
        return i < j && text[i] == v &&
               parts_match(t, text, yes, r, a, p + 1, i + 1, j);
    for (int k = i; k <= j; k++)
        if (yes[-1 - v][i][k] && parts_match(t, text, yes, r, a, p + 1, k, j))
            return true;
    return false;
}

static bool tiny_matches(const struct tiny *t, const char *text, int n)
{
    bool yes[RULES][TEXT + 1][TEXT + 1] = {0}, more = true;
    while (more) {
        more = false;
        for (int r = 0; r < RULES; r++)
            for (int a = 0; a < ALTS; a++)
                for (int i = 0; i <= n; i++)
                    for (int j = i; j <= n; j++)
                        if (!yes[r][i][j] &&
                            parts_match(t, text, yes, r, a, 0, i, j))
                            more = yes[r][i][j] = true;
    }
    return yes[0][0][n];
}

static void test_random_grammars(void **state)
{
    size_t n_match = 0, n_all = 0;
    struct buf text = {0};
    for (int round = 0; round < 400; round++) {
        struct tiny t = {0};
        for (int r = 0; r < RULES; r++)
            for (int a = 0; a < ALTS; a++) {
                bool empty = a == 2 && below(3) == 0;
                t.part[r][a][0] = empty ? 0 : "ab"[below(2)];
                for (int p = 1; p < PARTS && !empty; p++)
                    t.part[r][a][p] = below(4) == 0   ? 0
                                      : below(3) == 0 ? "ab"[below(2)]
                                      : a == 0        ? 0
                                                      : -1 - (int)below(RULES);
            }
        text.len = 0;
        write_tiny(&t, &text);
        struct automaton *a = run_gbnf(text.data);
        for (int i = 0; i < 1 << TEXT; i++) {
            char s[TEXT];
            int n = 1 + (int)below(TEXT);
            for (int k = 0; k < n; k++)
                s[k] = i >> k & 1 ? 'a' : 'b';
            bool want = tiny_matches(&t, s, n);
            if (matches(a, s, (size_t)n) != want)
                fail_msg("want %d for \"%.*s\" in\n%s", want, n, s, text.data);
            n_match += want;
            n_all++;
        }
        automaton_free(a);
    }
    buf_free(&text);
    assert_true(n_match * 20 > n_all && n_match * 20 < n_all * 19);
}

/* ---- recursion ---- */

/* root ::= "(" root ")" root | "[" root "]" root | "" */
static struct automaton *brackets(void)
{
    struct grammar *g = new_grammar();
    uint32_t root = grammar_rule(g, "nest", 4), r = grammar_ref(g, root);
    const uint32_t round[] = {grammar_bytes(g, "(", 1), r,
                              grammar_bytes(g, ")", 1), r};
    const uint32_t square[] = {grammar_bytes(g, "[", 1), r,
                               grammar_bytes(g, "]", 1), r};
    const uint32_t all[] = {grammar_seq(g, round, 4), grammar_seq(g, square, 4),
                            GRAMMAR_EMPTY};
    grammar_define(g, root, grammar_alt(g, all, 3));
    return run_node(g, r);
}

static bool balanced(const char *p, size_t n)
{
    char stack[64];
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '(' || p[i] == '[')
            stack[depth++] = p[i];
        else if (depth == 0 || stack[--depth] != (p[i] == ')' ? '(' : '['))
            return false;
    }
    return depth == 0;
}

static void test_brackets(void **state)
{
    struct automaton *a = brackets();
    size_t n_match = 0;
    for (int i = 0; i < 100000; i++) {
        char text[16];
        size_t n = below(9);
        for (size_t k = 0; k < n; k++)
            text[k] = "()[]"[below(4)];
        bool want = balanced(text, n);
        assert_int_equal(matches(a, text, n), want);
        n_match += want;
    }
    assert_true(n_match > 1000);
    automaton_free(a);
}

/* Deep texts work, and tidying keeps the states that are held. */
static void test_depth_and_tidy(void **state)
{
    struct automaton *a = brackets();
    enum { DEPTH = 100000 };
    uint32_t s = automaton_start(a), held[2];
    for (int i = 0; i < DEPTH; i++)
        s = automaton_advance(a, s, (unsigned char)(i % 3 ? '(' : '['));
    assert_int_equal(automaton_error(a, NULL), 0);
    size_t before = automaton_bytes_used(a);
    held[0] = s;
    held[1] = automaton_advance(a, automaton_start(a), '[');
    assert_int_equal(automaton_tidy(a, held, 2, NULL), 0);
    assert_true(automaton_bytes_used(a) <= before);
    assert_int_not_equal(held[0], AUTOMATON_DEAD);
    for (int i = DEPTH; i-- > 0;) {
        assert_int_equal(
            automaton_advance(a, held[0], (unsigned char)(i % 3 ? ']' : ')')),
            AUTOMATON_DEAD);
        held[0] =
            automaton_advance(a, held[0], (unsigned char)(i % 3 ? ')' : ']'));
    }
    assert_true(automaton_accepts(a, held[0]));
    assert_true(automaton_accepts(a, automaton_advance(a, held[1], ']')));
    assert_true(automaton_accepts(a, automaton_start(a)));
    /* no state is held: little memory is left */
    held[0] = automaton_start(a);
    assert_int_equal(automaton_tidy(a, held, 1, NULL), 0);
    assert_true(automaton_bytes_used(a) < 100000);
    assert_true(matches_text(a, "([])[]"));
    automaton_free(a);
}

/* A list that recurs at its end needs no deeper frames: its states repeat. */
static void test_tail_calls(void **state)
{
    struct grammar *g = new_grammar();
    uint32_t list = grammar_rule(g, "list", 4);
    uint32_t item = grammar_bytes(g, "a,", 2);
    grammar_define(
        g, list,
        grammar_alt2(g, item, grammar_seq2(g, item, grammar_ref(g, list))));
    struct automaton *a = run_node(g, grammar_ref(g, list));
    uint32_t s = automaton_start(a), again;
    for (int i = 0; i < 4; i++)
        s = automaton_advance(a, s, (unsigned char)"a,"[i % 2]);
    again = s;
    for (int i = 0; i < 1000; i++)
        again = automaton_advance(a, again, (unsigned char)"a,"[i % 2]);
    assert_int_equal(s, again);
    automaton_free(a);
}

/* Parts in any order, compared with counts of the parts in all texts of up to 5
 * of them. The last letter is `other`. */
static void test_once(void **state)
{
    static const struct {
        bool required[3];
        bool other;
        uint32_t min, max;
    } rows[] = {
        {{0}, false, 0, GRAMMAR_UNBOUNDED},
        {{true, false, true}, false, 0, GRAMMAR_UNBOUNDED},
        {{false, true, false}, true, 0, GRAMMAR_UNBOUNDED},
        {{false, true, false}, true, 3, 4},
        {{true, true, false}, true, 0, 2},
        {{0}, true, 4, GRAMMAR_UNBOUNDED},
        {{0}, false, 2, 2},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct grammar *g = new_grammar();
        const uint32_t parts[] = {grammar_bytes(g, "a", 1),
                                  grammar_bytes(g, "b", 1),
                                  grammar_bytes(g, "c", 1)};
        const struct grammar_once o = {
            .parts = parts,
            .required = rows[r].required,
            .n = 3,
            .other = rows[r].other ? grammar_bytes(g, "x", 1) : GRAMMAR_NOTHING,
            .comma = grammar_bytes(g, ",", 1),
            .min = rows[r].min,
            .max = rows[r].max};
        struct automaton *a = run_node(g, grammar_once(g, &o));
        for (uint32_t code = 4; code < 4 * 4 * 4 * 4 * 4 * 4; code++) {
            uint32_t n = 0, counts[4] = {0};
            char text[16];
            uint32_t rest = code;
            for (; rest >= 4; rest /= 4) {
                text[2 * n] = "abcx"[rest % 4];
                text[2 * n++ + 1] = ',';
                counts[rest % 4]++;
            }
            bool good = n >= rows[r].min && n <= rows[r].max &&
                        (rows[r].other || counts[3] == 0);
            for (size_t i = 0; i < 3; i++)
                good &= counts[i] <= 1 && counts[i] >= rows[r].required[i];
            if (rest == 1 && matches(a, text, 2 * n - 1) != good)
                fail_msg("row %zu: %.*s", r, (int)(2 * n - 1), text);
        }
        automaton_free(a);
    }
}

/* Many parts, with counts and other parts in any order inside of them, in a
 * repetition, and with tidying between the bytes. */
static void test_many_once(void **state)
{
    enum { N = 200 };
    struct grammar *g = new_grammar();
    uint32_t parts[N], order[N], comma = grammar_bytes(g, ",", 1);
    const uint32_t inner[] = {grammar_bytes(g, "p", 1),
                              grammar_bytes(g, "q", 1)};
    uint32_t xs = grammar_repeat(g, grammar_bytes(g, "x", 1), 40, 60);
    for (uint32_t i = 0; i < N; i++) {
        char text[8];
        int n = snprintf(text, sizeof text, "%u=", i);
        const uint32_t nodes[] = {
            grammar_bytes(g, text, (size_t)n), xs,
            grammar_once(g, &(struct grammar_once){.parts = inner,
                                                   .n = 2,
                                                   .comma = comma,
                                                   .max = GRAMMAR_UNBOUNDED})};
        parts[i] = grammar_seq(g, nodes, 3);
        order[i] = i;
    }
    uint32_t all = grammar_seq2(
        g,
        grammar_once(g, &(struct grammar_once){.parts = parts,
                                               .n = N,
                                               .comma = comma,
                                               .min = N,
                                               .max = GRAMMAR_UNBOUNDED}),
        grammar_bytes(g, ";", 1));
    struct automaton *a = run_node(g, grammar_repeat(g, all, 0, 40));
    struct buf text = {0};
    for (uint32_t i = N; i-- > 0;) {
        uint32_t k = below(i + 1), x = order[k];
        order[k] = order[i];
        buf_printf(&text, "%u=%.*s%s%s", x, 45,
                   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
                   below(2) ? "q,p" : "p", i ? "," : ";");
    }
    uint32_t s = automaton_start(a);
    for (size_t i = 0; i < text.len; i++) {
        assert_int_not_equal(s, AUTOMATON_DEAD);
        assert_true(automaton_accepts(a, s) == (i == 0));
        s = automaton_advance(a, s, (unsigned char)text.data[i]);
        if (i % 500 == 0)
            assert_int_equal(automaton_tidy(a, &s, 1, NULL), 0);
    }
    assert_true(automaton_accepts(a, s));
    assert_false(matches(a, text.data, text.len - 1));
    size_t half = text.len;
    assert_int_equal(buf_reserve(&text, half), 0);
    assert_int_equal(buf_append(&text, text.data, half), 0);
    assert_true(matches(a, text.data, text.len));
    assert_false(matches_text(a, "0=;"));
    automaton_free(a);
    buf_free(&text);
}

/* Parts that no text matches: the grammar admits nothing if they are needed. */
static void test_dead_once(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        struct grammar *g = new_grammar();
        uint32_t dead = grammar_rule(g, "dead", 4);
        uint32_t loop[] = {grammar_bytes(g, "x", 1), grammar_ref(g, dead)};
        grammar_define(g, dead, grammar_seq(g, loop, 2));
        const uint32_t parts[] = {grammar_bytes(g, "a", 1),
                                  grammar_ref(g, dead)};
        const bool required[] = {false, kind == 1};
        uint32_t root = grammar_rule(g, "root", 4);
        struct qwick_err e;
        grammar_define(
            g, root,
            grammar_once(g, &(struct grammar_once){
                                .parts = parts,
                                .required = required,
                                .n = 2,
                                .comma = grammar_bytes(g, ",", 1),
                                .other = kind == 3 ? grammar_bytes(g, "o", 1)
                                                   : GRAMMAR_NOTHING,
                                .min = kind < 2 ? 0 : 2,
                                .max = GRAMMAR_UNBOUNDED}));
        bool good = kind == 0 || kind == 3;
        assert_int_equal(grammar_finish(g, root, &e), good ? 0 : -1);
        grammar_free(g);
    }
}

/* Ambiguous calls do not multiply: S ::= "a" S "b" | "a" S "c" | "" */
static void test_ambiguity(void **state)
{
    struct grammar *g = new_grammar();
    uint32_t rule = grammar_rule(g, "s", 1), r = grammar_ref(g, rule);
    uint32_t a_byte = grammar_bytes(g, "a", 1);
    const uint32_t b[] = {a_byte, r, grammar_bytes(g, "b", 1)};
    const uint32_t c[] = {a_byte, r, grammar_bytes(g, "c", 1)};
    const uint32_t all[] = {grammar_seq(g, b, 3), grammar_seq(g, c, 3),
                            GRAMMAR_EMPTY};
    grammar_define(g, rule, grammar_alt(g, all, 3));
    struct automaton *a = run_node(g, r);
    char text[2000];
    for (int i = 0; i < 1000; i++) {
        text[i] = 'a';
        text[1999 - i] = "bc"[below(2)];
    }
    assert_true(matches(a, text, 2000));
    assert_false(matches(a, text, 1999));
    assert_true(automaton_bytes_used(a) < 1 << 20);
    automaton_free(a);
}

/* ---- groups ---- */

/* A state admits a byte if one of its groups admits it. */
static void test_groups(void **state)
{
    struct automaton *a = brackets();
    uint32_t s = automaton_start(a);
    struct automaton_group group;
    s = automaton_advance(a, s, '(');
    s = automaton_advance(a, s, '[');
    assert_int_equal(automaton_groups(a, s), 2);
    unsigned char all[256], bytes[256], sum[256] = {0};
    automaton_bytes(a, s, all);
    for (size_t i = 0; i < 2; i++) {
        automaton_group(a, s, i, &group);
        automaton_bytes(a, group.local, bytes);
        for (size_t k = 0; k < 256; k++)
            sum[k] |= bytes[k];
        assert_false(automaton_accepts(a, group.local));
    }
    assert_memory_equal(all, sum, 256);
    automaton_free(a);
}

/* ---- grammars that are refused ---- */

static void assert_unfinished(struct grammar *g, uint32_t root, const char *why)
{
    struct qwick_err e = {0};
    assert_int_equal(grammar_finish(g, root, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    if (!strstr(e.msg, why))
        fail_msg("\"%s\" lacks \"%s\"", e.msg, why);
    grammar_free(g);
}

static void test_refused(void **state)
{
    struct grammar *g = new_grammar();
    uint32_t a = grammar_rule(g, "a", 1), b = grammar_rule(g, "b", 1);
    grammar_define(g, a, grammar_ref(g, b));
    assert_unfinished(g, a, "G: rule \"b\" is not defined");

    g = new_grammar();
    a = grammar_rule(g, "a", 1);
    grammar_define(g, a,
                   grammar_alt2(g,
                                grammar_seq2(g, grammar_ref(g, a),
                                             grammar_bytes(g, "x", 1)),
                                grammar_bytes(g, "y", 1)));
    assert_unfinished(g, a, "rule \"a\" begins with itself");

    /* after a rule that may be empty */
    g = new_grammar();
    a = grammar_rule(g, "a", 1);
    b = grammar_rule(g, "b", 1);
    grammar_define(g, b, grammar_repeat(g, grammar_bytes(g, "x", 1), 0, 5));
    const uint32_t seq[] = {grammar_ref(g, b), grammar_ref(g, a),
                            grammar_bytes(g, "z", 1)};
    grammar_define(
        g, a,
        grammar_alt2(g, grammar_seq(g, seq, 3), grammar_bytes(g, "y", 1)));
    assert_unfinished(g, a, "rule \"a\" begins with itself");

    /* never ends */
    g = new_grammar();
    a = grammar_rule(g, "a", 1);
    grammar_define(
        g, a, grammar_seq2(g, grammar_bytes(g, "x", 1), grammar_ref(g, a)));
    assert_unfinished(g, a, "G: no text can match");

    g = new_grammar();
    a = grammar_rule(g, "a", 1);
    grammar_define(g, a, GRAMMAR_NOTHING);
    assert_unfinished(g, a, "G: no text can match");
}

/* Alternatives that never end are left out. */
static void test_dead_alternatives(void **state)
{
    struct grammar *g = new_grammar();
    uint32_t bad = grammar_rule(g, "bad", 3);
    grammar_define(
        g, bad, grammar_seq2(g, grammar_bytes(g, "x", 1), grammar_ref(g, bad)));
    const uint32_t all[] = {
        grammar_bytes(g, "a", 1),
        grammar_seq2(g, grammar_bytes(g, "b", 1), grammar_ref(g, bad)),
        grammar_seq2(g, grammar_repeat(g, grammar_ref(g, bad), 0, 3),
                     grammar_bytes(g, "c", 1))};
    struct automaton *a = run_node(g, grammar_alt(g, all, 3));
    unsigned char bytes[256];
    automaton_bytes(a, automaton_start(a), bytes);
    assert_true(bytes['a'] && bytes['c']);
    assert_false(bytes['b'] || bytes['x']);
    automaton_free(a);
}

/* ---- hostile input ---- */

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* 10,000 rules that only refer to the next one, and each to the next two. */
static void test_long_chains(void **state)
{
    enum { N = 10000 };
    for (int twice = 0; twice < 2; twice++) {
        struct grammar *g = new_grammar();
        uint32_t rule[N + 2], node;
        for (int i = 0; i < N + 2; i++)
            rule[i] = grammar_new_rule(g, "r", 1);
        for (int i = 0; i < N; i++) {
            node = grammar_ref(g, rule[i + 1]);
            if (twice)
                node = grammar_alt2(g, node, grammar_ref(g, rule[i + 2]));
            grammar_define(g, rule[i], node);
        }
        grammar_define(g, rule[N], grammar_bytes(g, "a", 1));
        grammar_define(g, rule[N + 1], grammar_bytes(g, "b", 1));
        struct automaton *a = run_node(g, grammar_ref(g, rule[0]));
        assert_true(matches_text(a, "a"));
        assert_int_equal(matches_text(a, "b"), twice);
        automaton_free(a);
    }
}

/* Each input ends with an error, or works, within seconds. */
static void test_hostile_regex(void **state)
{
    struct buf re = {0};
    struct qwick_err e;
    double start = seconds();
    for (int kind = 0; kind < 6; kind++) {
        static const char *const parts[] = {
            "a", "(a|b|", "((a{9}){9}){9}", "[a-z]{9}", "(", "a|b*|"};
        struct grammar *g = new_grammar();
        struct automaton *a = NULL;
        re.len = 0;
        while (re.len < 1 << 20)
            buf_puts(&re, parts[kind]);
        uint32_t node = regex_compile(g, NULL, re.data, re.len, REGEX_WHOLE);
        uint32_t root = grammar_rule(g, "root", 4);
        grammar_define(g, root, node);
        e = (struct qwick_err){0};
        if (!grammar_finish(g, root, &e) && !automaton_create(&a, g, &e))
            matches_text(a, "ababab");
        else
            assert_int_equal(e.code, QWICK_ERR_USAGE);
        automaton_free(a);
        grammar_free(g);
    }
    buf_free(&re);
    assert_true(seconds() - start < 20); /* sanitizers included */
}

/* Alternatives become a tree over their first bytes, so that a text is at few
 * places. Those that begin with something else are a place each. */
static void test_many_alternatives(void **state)
{
    static const struct {
        const char *begin, *part, *more, *end; /* part: of alternative 0 */
        const char *yes, *no;
        enum { CHOICES, REGEX, GBNF } kind;
    } rows[] = {
        {"", "w%d", ",w%d", "", "w69999", "w70000", CHOICES},
        {"", "w%d", "|w%d", "", "w12345", "w", REGEX},
        {"", "w%d[xy]?", "|w%d[xy]?", "", "w69999y", "w70000y", REGEX},
        {"", "[vw]%d", "|[vw]%d", "", "v69999", "w70000", REGEX},
        {"root ::= ", "\"w%d\"", " | \"w%d\"", "", "w69999", "w70000", GBNF},
        {"root ::= (", "\"w%d\"", " | \"w%d\"", ") [0-9] \"x\"", "w699990x",
         "w69999", GBNF},
        /* one begins another, and some are equal */
        {"", "a|ab|abc|b|bc|a|abd|aaaa|w%d", "|x%d", "", "abc", "aba", REGEX},
        {"root ::= ", "\"\" | \"a\" [x] | \"a\" [y] | \"a\" | \"w%d\"",
         " | \"a\" [x]", "", "ay", "axy", GBNF},
    };
    double start = seconds();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct grammar *g = new_grammar();
        struct buf text = {0};
        struct automaton *a;
        buf_puts(&text, rows[i].begin);
        for (int k = 0; k < 70000; k++)
            buf_printf(&text, k ? rows[i].more : rows[i].part, k);
        buf_puts(&text, rows[i].end);
        if (rows[i].kind == GBNF) {
            uint32_t root = gbnf_compile(g, text.data, text.len);
            assert_int_equal(grammar_finish(g, root, NULL), 0);
            assert_int_equal(automaton_create(&a, g, NULL), 0);
            grammar_free(g);
        } else {
            a = run_node(g, rows[i].kind == CHOICES
                                ? choices_compile(g, text.data, text.len)
                                : regex_compile(g, NULL, text.data, text.len,
                                                REGEX_WHOLE));
        }
        if (!matches_text(a, rows[i].yes) || matches_text(a, rows[i].no))
            fail_msg("row %zu", i);
        automaton_free(a);
        buf_free(&text);
    }
    assert_true(seconds() - start < 20);
}

/* The automaton of (a|b)*a(a|b){n} has 2^n states: memory stays bounded. */
static void test_many_states(void **state)
{
    struct automaton *a = run_regex("(a|b)*a(a|b){40}", REGEX_WHOLE);
    uint32_t s = automaton_start(a);
    size_t n_tidied = 0;
    for (int i = 0; i < 300000; i++) {
        s = automaton_advance(a, s, (unsigned char)"ab"[below(2)]);
        assert_int_not_equal(s, AUTOMATON_DEAD);
        if (automaton_bytes_used(a) > 1 << 20) {
            assert_int_equal(automaton_tidy(a, &s, 1, NULL), 0);
            n_tidied++;
        }
    }
    assert_true(n_tidied > 3);
    automaton_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex_as_posix),
        cmocka_unit_test(test_regex_syntax),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_regex_search),
        cmocka_unit_test(test_regex_refused),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_gbnf_syntax),
        cmocka_unit_test(test_gbnf_refused),
        cmocka_unit_test(test_gbnf_tokens),
        cmocka_unit_test(test_gbnf_tokens_refused),
        cmocka_unit_test(test_union),
        cmocka_unit_test(test_random_grammars),
        cmocka_unit_test(test_brackets),
        cmocka_unit_test(test_depth_and_tidy),
        cmocka_unit_test(test_tail_calls),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_many_once),
        cmocka_unit_test(test_dead_once),
        cmocka_unit_test(test_ambiguity),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_dead_alternatives),
        cmocka_unit_test(test_long_chains),
        cmocka_unit_test(test_hostile_regex),
        cmocka_unit_test(test_many_alternatives),
        cmocka_unit_test(test_many_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
