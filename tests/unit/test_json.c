/* JSON: accepted texts, refused texts with the offsets of their faults, trees,
 * numbers, and the dump, which must equal Python's. */
#include "test.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "file/json.h"

struct text {
    const char *s;
    size_t n;
};
/* A text with its length, since it may contain NUL. */
#define T(s)             \
    {                    \
        s, sizeof(s) - 1 \
    }

static const struct text accepted[] = {
    /* structure */
    T("[]"),
    T("{}"),
    T("[[]]"),
    T("[{}]"),
    T("[[],[[]]]"),
    T("{\"a\":{}}"),
    T("[1,2,3]"),
    T("{\"a\":1,\"b\":[2]}"),
    T("{\"\":0}"),
    T("{\"a\":1,\"A\":2}"),
    T("[null,true,false]"),
    /* a value alone, white space */
    T("null"),
    T("true"),
    T("false"),
    T("\"\""),
    T("\"x\""),
    T("0"),
    T("-1"),
    T(" \t\r\n[ \t\r\n] \t\r\n"),
    T("{ \"a\" :\n1 ,\t\"b\"\r:2 }"),
    T("12 "),
    T(" 12"),
    /* numbers */
    T("[0]"),
    T("[-0]"),
    T("[1.5]"),
    T("[-0.0]"),
    T("[1e5]"),
    T("[1E5]"),
    T("[1e+5]"),
    T("[1e-5]"),
    T("[0e0]"),
    T("[0.0000001]"),
    T("[1e400]"),
    T("[-1e-999]"),
    T("[123456789012345678901234567890123456789]"),
    T("[1.234567890123456789012345678901234567890]"),
    T("1e00009"),
    /* strings and escapes */
    T("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]"),
    T("[\"\\u0041\\u00e9\\u20AC\"]"),
    T("[\"\\u0000\"]"),
    T("[\"\\ud83d\\ude00\"]"),
    T("[\"\\uD83D\\uDE00\"]"),
    T("[\"\\udbff\\udfff\"]"),
    T("[\"\\ufffe\\uffff\\ufdd0\"]"),
    T("[\"\\\\ud800\"]"),
    T("[\"\\\\\\\\u\"]"),
    T("[\"\x7f\"]"),
    T("[\"/* no comment */ // none\"]"),
    T("[\"'\"]"),
    T("{\"\\u0061\":1,\"\\u0062\":2}"),
    /* UTF-8 */
    T("[\"\xc2\x80\xdf\xbf\"]"),
    T("[\"\xe0\xa0\x80\xed\x9f\xbf\"]"),
    T("[\"\xee\x80\x80\xef\xbf\xbf\"]"),
    T("[\"\xf0\x90\x80\x80\"]"),
    T("[\"\xf4\x8f\xbf\xbf\"]"),
    T("{\"\xe2\x82\xac\":\"\xf0\x9f\x98\x80\"}"),
    T("[\"\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf\"]"),
    /* byte order mark */
    T("\xef\xbb\xbf{}"),
    T("\xef\xbb\xbf [1]"),
};

static const struct text refused[] = {
    /* nothing, or too little */
    T(""),
    T(" "),
    T("\n"),
    T("\xef\xbb\xbf"),
    T("["),
    T("{"),
    T("[1"),
    T("[1,"),
    T("{\"a\""),
    T("{\"a\":"),
    T("{\"a\":1"),
    T("{\"a\":1,"),
    T("\""),
    T("\"a"),
    T("[\"a"),
    T("[\"a\\"),
    T("n"),
    T("nul"),
    T("tru"),
    T("fals"),
    T("[[]"),
    T("{\"a\":[}"),
    /* structure */
    T("]"),
    T("}"),
    T("[}"),
    T("{]"),
    T("[1}"),
    T("{\"a\":1]"),
    T("[1,]"),
    T("[,1]"),
    T("[1,,2]"),
    T("[,]"),
    T("{,}"),
    T("{\"a\":1,}"),
    T("{\"a\":1,,\"b\":2}"),
    T("{\"a\" 1}"),
    T("{\"a\"::1}"),
    T("{\"a\",1}"),
    T("{\"a\":1 \"b\":2}"),
    T("{1:2}"),
    T("{null:1}"),
    T("{a:1}"),
    T("{'a':1}"),
    T("{[]:1}"),
    T("{\"a\"}"),
    T("[1 2]"),
    T("[\"a\":1]"),
    T(":"),
    T(","),
    T("[1:2]"),
    T("{\"a\":1:2}"),
    /* after the value */
    T("1 2"),
    T("[] []"),
    T("{}{}"),
    T("[]]"),
    T("{}}"),
    T("[]x"),
    T("[],"),
    T("null null"),
    T("\"a\"\"b\""),
    T("[1]\xc2\xa0"),
    T("1]"),
    T("[]\0"),
    T("{}#"),
    T("truefalse"),
    T("[]1"),
    T("[] \"a"),
    T("1 \"a"),
    T("{}\""),
    T("null \"\\"),
    T("[] nul"),
    T("[] -"),
    T("\"a\" 1."),
    T("\"a\"\""),
    /* comments and other white space */
    T("//x\n1"),
    T("1//x"),
    T("/**/1"),
    T("[1/**/]"),
    T("[1//\n]"),
    T("# x\n1"),
    T("[\v1]"),
    T("[1\f]"),
    T("[\xc2\xa0"
      "1]"),
    T("\0[]"),
    T("[\0]"),
    T("[1\0,2]"),
    T("[\xe2\x80\xa8]"),
    /* words */
    T("True"),
    T("NULL"),
    T("nulll"),
    T("NaN"),
    T("Infinity"),
    T("-Infinity"),
    T("inf"),
    T("undefined"),
    T("[nan]"),
    T("[tru]"),
    T("x"),
    /* numbers */
    T("01"),
    T("-01"),
    T("[01]"),
    T("00"),
    T("-"),
    T("[-]"),
    T("+1"),
    T("[+1]"),
    T("--1"),
    T("1."),
    T("[1.]"),
    T(".5"),
    T("[.5]"),
    T("-.5"),
    T("1.e5"),
    T("1e"),
    T("[1e]"),
    T("1e+"),
    T("1e1.5"),
    T("1E-"),
    T("0x10"),
    T("1_000"),
    T("1,000"),
    T("[1.2.3]"),
    T("[1-2]"),
    T("[0b1]"),
    T("[1f]"),
    T("[1a]"),
    T("[\xef\xbc\x91]"),
    T("[- 1]"),
    T("[1 .5]"),
    T("[1e 5]"),
    /* strings and escapes */
    T("'a'"),
    T("[\"\n\"]"),
    T("[\"\t\"]"),
    T("[\"\0\"]"),
    T("[\"\x1f\"]"),
    T("[\"\v\"]"),
    T("[\"\\x41\"]"),
    T("[\"\\a\"]"),
    T("[\"\\0\"]"),
    T("[\"\\'\"]"),
    T("[\"\\\n\"]"),
    T("[\"\\u\"]"),
    T("[\"\\u1\"]"),
    T("[\"\\u12\"]"),
    T("[\"\\u123\"]"),
    T("[\"\\u123g\"]"),
    T("[\"\\u+123\"]"),
    T("[\"\\U0041\"]"),
    T("[\"\\u{41}\"]"),
    T("[\\u0041]"),
    T("[\\n]"),
    T("[\"\\\"]"),
    T("[\"a\"b]"),
    T("{\"a\n\":1}"),
    T("{\"\\x\":1}"),
    /* surrogates */
    T("[\"\\ud800\"]"),
    T("[\"\\udbff\"]"),
    T("[\"\\udc00\"]"),
    T("[\"\\uDFFF\"]"),
    T("[\"\\ud83dx\"]"),
    T("[\"\\ud83d\\n\"]"),
    T("[\"\\ud83d\\ud83d\"]"),
    T("[\"\\ud83d\\u0041\"]"),
    T("[\"\\ude00\\ud83d\"]"),
    T("[\"\\ud83d\\ud83d\\ude00\"]"),
    T("[\"\\ud83d\\ude0\"]"),
    T("[\"\\ud83d\\\\ude00\"]"),
    T("[\"\\\\\\ud800\"]"),
    T("{\"\\ud800\":1}"),
    T("[\"\\ud83d"),
    /* UTF-8 */
    T("[\"\x80\"]"),
    T("[\"\xbf\"]"),
    T("[\"\xc0\x80\"]"),
    T("[\"\xc1\xbf\"]"),
    T("[\"\xc2\"]"),
    T("[\"\xc2\x41\"]"),
    T("[\"\xe0\x80\x80\"]"),
    T("[\"\xe0\x9f\xbf\"]"),
    T("[\"\xe2\x82\"]"),
    T("[\"\xed\xa0\x80\"]"),
    T("[\"\xed\xbf\xbf\"]"),
    T("[\"\xed\xa0\xbd\xed\xb8\x80\"]"),
    T("[\"\xf0\x80\x80\x80\"]"),
    T("[\"\xf0\x8f\xbf\xbf\"]"),
    T("[\"\xf0\x9f\x98\"]"),
    T("[\"\xf4\x90\x80\x80\"]"),
    T("[\"\xf5\x80\x80\x80\"]"),
    T("[\"\xf8\x88\x80\x80\x80\"]"),
    T("[\"\xfe\"]"),
    T("[\"\xff\"]"),
    T("\xff"),
    T("[\xc3\xa9]"),
    T("{\"\xff\":1}"),
    T("\xe2\x82"),
    /* byte order marks, UTF-16, UTF-32 */
    T("\xef\xbb\xbf\xef\xbb\xbf[]"),
    T("[\xef\xbb\xbf]"),
    T("[]\xef\xbb\xbf"),
    T("\xef\xbb[]"),
    T("\xff\xfe[\0]\0"),
    T("\xfe\xff\0[\0]"),
    T("[\0]\0"),
    T("\0[\0]"),
    T("\xff\xfe\0\0[\0\0\0]\0\0\0"),
};

static int nothing(void *ctx)
{
    (void)ctx;
    return 0;
}

static const struct json_handler ignore_all = {.null = nothing};

/* A copy of exactly the text's size, so that reading beyond it is detected. */
static char *exact(const struct text *t)
{
    char *p = malloc(t->n ? t->n : 1);
    assert_non_null(p);
    if (t->n > 0)
        memcpy(p, t->s, t->n);
    return p;
}

static void test_accept(void **state)
{
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        struct qwick_err e = {0};
        struct json_doc *doc;
        char *s = exact(&accepted[i]);
        int tree = json_parse(&doc, "t", s, accepted[i].n, QWICK_ERR_MODEL, &e);
        if (tree)
            fail_msg("refused: %s: %s", accepted[i].s, e.msg);
        json_free(doc);
        assert_int_equal(json_events("t", s, accepted[i].n, QWICK_ERR_MODEL,
                                     &ignore_all, NULL, &e),
                         0);
        free(s);
    }
}

static void test_refuse(void **state)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct qwick_err e = {0};
        struct json_doc *doc;
        size_t offset;
        char *s = exact(&refused[i]);
        if (!json_parse(&doc, "a.json", s, refused[i].n, QWICK_ERR_USAGE, &e))
            fail_msg("case %zu accepted: %s", i, refused[i].s);
        assert_null(doc);
        assert_int_equal(e.code, QWICK_ERR_USAGE);
        if (sscanf(e.msg, "a.json: offset %zu: ", &offset) != 1 ||
            offset > refused[i].n || strchr(e.msg, '\n'))
            fail_msg("case %zu: message: %s", i, e.msg);
        assert_int_equal(json_events("t", s, refused[i].n, QWICK_ERR_MODEL,
                                     &ignore_all, NULL, &e),
                         -1);
        assert_int_equal(e.code, QWICK_ERR_MODEL);
        assert_int_equal(json_events("t", s, refused[i].n, QWICK_ERR_MODEL,
                                     &ignore_all, NULL, NULL),
                         -1);
        free(s);
    }
}

/* All prefixes of a document with everything in it are refused. */
static void test_prefixes(void **state)
{
    static const char s[] = "{\"k\\u00e9\":[1.5e-3,true,null,{\"\xc3\xa9\":"
                            "\"\\ud83d\\ude00\\n\"},-0,[]]}";
    struct json_doc *doc;
    for (size_t n = 0; n < sizeof s - 1; n++) {
        struct text t = {s, n};
        char *p = exact(&t);
        assert_int_equal(json_parse(&doc, "t", p, n, QWICK_ERR_MODEL, NULL),
                         -1);
        free(p);
    }
    assert_int_equal(
        json_parse(&doc, "t", s, sizeof s - 1, QWICK_ERR_MODEL, NULL), 0);
    json_free(doc);
}

/* Strings are read in words of eight bytes: put faults and characters on their
 * edges, in plain text and after characters that are read one by one. */
static void test_word_edges(void **state)
{
    static const struct {
        struct text t;
        bool ok;
    } pieces[] = {
        {T("\xe2\x82\xac"), true},
        {T("\xc3\xa9"), true},
        {T("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"), true},
        {T("\\ud83d\\ude00"), true},
        {T("\xf0\x9f\x98\x80"), true},
        {T("\\\\\\\\"), true},
        {T("\x7f"), true},
        {T("\xc3"), false},
        {T("\xa9"), false},
        {T("\xc0\x80"), false},
        {T("\xc1\xbf"), false},
        {T("\xc3\xa9\xa9"), false},
        {T("\xe2\x82"), false},
        {T("\\ud83d\\ude0"), false},
        {T("\\ud83d"), false},
        {T("\\udc00"), false},
        {T("\x0b"), false},
        {T("\x0c"), false},
        {T("\x1f"), false},
        {T("\0"), false},
        {T("\xff"), false},
    };
    static const struct text heads[] = {T(""), T("\xe2\x82\xac"), T("\\n")};
    for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
        for (size_t i = 0; i < 3 * 20 * 20; i++) {
            struct buf b = {0};
            const struct text *head = &heads[i % 3];
            struct json_doc *doc;
            buf_putc(&b, '"');
            buf_append(&b, head->s, head->n);
            buf_printf(&b, "%.*s", (int)(i / 3 % 20), "xxxxxxxxxxxxxxxxxxxx");
            buf_append(&b, pieces[k].t.s, pieces[k].t.n);
            buf_printf(&b, "%.*s\"", (int)(i / 60), "xxxxxxxxxxxxxxxxxxxx");
            struct text t = {b.data, b.len};
            char *s = exact(&t);
            if (json_parse(&doc, "t", s, b.len, QWICK_ERR_MODEL, NULL) !=
                (pieces[k].ok ? 0 : -1))
                fail_msg("piece %zu at %zu", k, i);
            json_free(doc);
            free(s);
            buf_free(&b);
        }
    }
}

static void test_offsets(void **state)
{
    static const struct {
        const char *s, *msg;
    } cases[] = {
        {"\xff\xfe[\1", "t: offset 0: UTF-16 is not supported, JSON is UTF-8"},
        {"[\"ab\xff\"]", "t: offset 4: invalid UTF-8"},
        {"\xef\xbb\xbf[\"\xff\"]", "t: offset 5: invalid UTF-8"},
        {"[\"\\ud800\"]", "t: offset 2: lone surrogate in a \\u escape"},
        {"[\v]", "t: offset 1: invalid control character"},
        {"[1] x", "t: offset 4: text after the value"},
        {"[1] \xe2\x82\xac", "t: offset 4: text after the value"},
        {"[1\xff]", "t: offset 2: invalid UTF-8"},
        {"[\"a\nb\"]", "t: offset 3: invalid control character"},
        {"[\"\\u12x4\"]", "t: offset 2: invalid escape"},
        {"[\"\\", "t: offset 3: the text ends too early"},
        {"[\"ab", "t: offset 4: the text ends too early"},
        {" ", "t: offset 1: the text ends too early"},
        {"[1,]", "t: offset 3: expected a value"},
        {"[tru]", "t: offset 1: expected a value"},
        {"[1 2]", "t: offset 3: expected , or ]"},
        {"[01]", "t: offset 2: expected , or ]"},
        {"{\"a\":1 2}", "t: offset 7: expected , or }"},
        {"{\"a\":1,}", "t: offset 7: expected a key, a string"},
        {"{1:2}", "t: offset 1: expected a key, a string"},
        {"{\"a\" 1}", "t: offset 5: expected a colon after a key"},
        {"[-x]", "t: offset 2: expected a digit"},
        {"[1.]", "t: offset 3: expected a digit"},
        {"[1e+]", "t: offset 4: expected a digit"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "t: offset 13: repeated key \"a\""},
        {"{\"a\\\\\":1, \"a\\u005c\":3}",
         "t: offset 10: repeated key \"a\\\\\""},
        {"\xef\xbb\xbf{\"a\":1,\"\\\"\":2,\"\\u0022\":3}",
         "t: offset 17: repeated key \"\\\"\""},
        {"{\"a\":{\"x\":1,\"x\":1}}", "t: offset 12: repeated key \"x\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwick_err e = {0};
        struct json_doc *doc;
        assert_int_equal(json_parse(&doc, "t", cases[i].s, strlen(cases[i].s),
                                    QWICK_ERR_MODEL, &e),
                         -1);
        assert_string_equal(e.msg, cases[i].msg);
    }
}

static char *repeat(const char *piece, size_t times, const char *head,
                    const char *tail, size_t *n)
{
    size_t k = strlen(piece), h = strlen(head), t = strlen(tail);
    *n = h + k * times + t;
    char *s = malloc(*n + 1);
    assert_non_null(s);
    memcpy(s, head, h);
    for (size_t i = 0; i < times; i++)
        memcpy(s + h + i * k, piece, k);
    memcpy(s + h + k * times, tail, t + 1);
    return s;
}

static char *nested(size_t depth, size_t *n)
{
    *n = 2 * depth;
    char *s = malloc(*n + 1);
    assert_non_null(s);
    memset(s, '[', depth);
    memset(s + depth, ']', depth + 1);
    return s;
}

static void test_depth(void **state)
{
    struct qwick_err e = {0};
    struct json_doc *doc;
    size_t n;
    char *s = nested(JSON_MAX_DEPTH, &n);
    assert_int_equal(json_parse(&doc, "t", s, n, QWICK_ERR_MODEL, &e), 0);
    struct buf out = {0};
    assert_int_equal(json_dump_python(&out, json_root(doc)), 0);
    assert_int_equal(out.len, n);
    assert_memory_equal(out.data, s, n);
    buf_free(&out);
    json_free(doc);
    free(s);

    s = nested(JSON_MAX_DEPTH + 1, &n);
    assert_int_equal(json_parse(&doc, "t", s, n, QWICK_ERR_MODEL, &e), -1);
    assert_string_equal(e.msg, "t: offset 512: nested deeper than 512 levels");
    free(s);

    const char *deep[] = {"[", "{\"a\":", "[{\"\":"};
    for (size_t i = 0; i < 3; i++) {
        s = repeat(deep[i], 100000, "", "", &n);
        assert_int_equal(json_parse(&doc, "t", s, n, QWICK_ERR_MODEL, &e), -1);
        assert_non_null(strstr(e.msg, "nested deeper"));
        assert_int_equal(
            json_events("t", s, n, QWICK_ERR_MODEL, &ignore_all, NULL, &e), -1);
        assert_non_null(strstr(e.msg, "nested deeper"));
        free(s);
    }
    /* Wide is not deep. */
    s = repeat("[],{},", 100000, "[", "0]", &n);
    assert_int_equal(json_parse(&doc, "t", s, n, QWICK_ERR_MODEL, &e), 0);
    assert_int_equal(json_root(doc)->len, 200001);
    json_free(doc);
    free(s);
}

static struct json_doc *must_parse(const char *s, size_t n)
{
    struct qwick_err e = {0};
    struct json_doc *doc;
    assert_ok(json_parse(&doc, "t", s, n, QWICK_ERR_MODEL, &e), &e);
    return doc;
}

static void test_tree(void **state)
{
    static const char s[] =
        "{\"null\":null,\"t\":true,\"f\":false,\"n\":-12.50e3,"
        "\"s\":\"a\\u0000b\\ud83d\\ude00\",\"a\":[1,[],\"x\",{}],"
        "\"o\":{\"k\":{\"z\":1}},\"nul\\u0000key\":7,\"\":8}";
    struct json_doc *doc = must_parse(s, sizeof s - 1);
    const struct json_value *v, *r = json_root(doc);
    assert_int_equal(r->type, JSON_OBJECT);
    assert_int_equal(r->len, 9);
    assert_string_equal(r->keys[0].str, "null");
    assert_string_equal(r->keys[8].str, "");
    assert_true(json_is(json_get(r, "null"), JSON_NULL));
    assert_true(json_get(r, "t")->boolean);
    assert_false(json_get(r, "f")->boolean);
    assert_true(json_is(json_get(r, "f"), JSON_BOOL));
    v = json_get(r, "n");
    assert_int_equal(v->type, JSON_NUMBER);
    assert_string_equal(v->str, "-12.50e3");
    assert_int_equal(v->len, 8);
    v = json_get(r, "s");
    assert_int_equal(v->len, 7);
    assert_memory_equal(v->str, "a\0b\xf0\x9f\x98\x80", 8);
    v = json_get(r, "a");
    assert_int_equal(v->len, 4);
    assert_true(json_is(&v->items[0], JSON_NUMBER));
    assert_int_equal(v->items[1].type, JSON_ARRAY);
    assert_int_equal(v->items[1].len, 0);
    assert_true(json_equals(&v->items[2], "x"));
    assert_false(json_equals(&v->items[2], "xy"));
    assert_int_equal(v->items[3].type, JSON_OBJECT);
    assert_null(json_get(&v->items[3], "x"));
    v = json_get(json_get(json_get(r, "o"), "k"), "z");
    assert_string_equal(v->str, "1");
    assert_null(json_get(r, "nul"));
    assert_string_equal(json_get_n(r, "nul\0key", 7)->str, "7");
    assert_string_equal(json_get(r, "")->str, "8");
    assert_null(json_get(r, "missing"));
    assert_null(json_get(json_get(r, "missing"), "x"));
    assert_null(json_get(json_get(r, "a"), "x"));
    assert_false(json_is(NULL, JSON_NULL));
    assert_false(json_equals(NULL, ""));
    assert_false(json_equals(json_get(r, "s"), "a"));
    json_free(doc);
    json_free(NULL);

    doc = must_parse("-7", 2);
    assert_string_equal(json_root(doc)->str, "-7");
    json_free(doc);
}

static void test_repeated_keys(void **state)
{
    struct qwick_err e = {0};
    struct json_doc *doc;
    /* Different objects may have equal keys. */
    doc = must_parse("[{\"a\":1},{\"a\":{\"a\":2}}]", 23);
    json_free(doc);
    /* NUL takes part in the comparison. */
    static const char z[] = "{\"a\\u0000b\":1,\"a\\u0000c\":2,\"a\":3}";
    doc = must_parse(z, sizeof z - 1);
    json_free(doc);
    /* A repeated key that only the table of large objects finds. */
    for (size_t keys = 2; keys < 200; keys += 7) {
        for (size_t other = 0; other < keys; other += 5) {
            struct buf b = {0};
            assert_int_equal(buf_putc(&b, '{'), 0);
            for (size_t i = 0; i < keys; i++)
                assert_int_equal(buf_printf(&b, "\"k%zu\":[{\"k1\":0}],", i),
                                 0);
            assert_int_equal(buf_printf(&b, "\"k%zu\":0}", other), 0);
            assert_int_equal(
                json_parse(&doc, "t", b.data, b.len, QWICK_ERR_MODEL, &e), -1);
            char want[40];
            snprintf(want, sizeof want, "repeated key \"k%zu\"", other);
            assert_non_null(strstr(e.msg, want));
            buf_free(&b);
        }
    }
    /* json_events leaves repeated keys to the handler. */
    assert_int_equal(json_events("t", "{\"a\":1,\"a\":2}", 13, QWICK_ERR_MODEL,
                                 &ignore_all, NULL, &e),
                     0);
    /* A huge key is cut in the message. */
    struct buf b = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(buf_puts(&b, i ? ",\"" : "{\""), 0);
        for (int k = 0; k < 5000; k++)
            assert_int_equal(buf_puts(&b, "\xe2\x82\xac"), 0);
        assert_int_equal(buf_puts(&b, i ? "\":1}" : "\":1"), 0);
    }
    assert_int_equal(json_parse(&doc, "t", b.data, b.len, QWICK_ERR_MODEL, &e),
                     -1);
    assert_non_null(strstr(e.msg, "t: offset 15006: repeated key"));
    buf_free(&b);
}

/* So large that a parser with quadratic time exceeds the time limit of this
 * file. */
static void test_large(void **state)
{
    enum { KEYS = 1000000 };
    struct buf b = {0};
    struct json_doc *doc;
    assert_int_equal(buf_putc(&b, '{'), 0);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(buf_printf(&b, "%s\"key number %d\":{\"v\":%d}",
                                    i ? "," : "", i, i),
                         0);
    assert_int_equal(buf_putc(&b, '}'), 0);
    doc = must_parse(b.data, b.len);
    assert_int_equal(json_root(doc)->len, KEYS);
    assert_string_equal(
        json_get(json_get(json_root(doc), "key number 999999"), "v")->str,
        "999999");
    json_free(doc);
    buf_free(&b);

    size_t n;
    const struct {
        const char *piece;
        size_t times, len;
    } strings[] = {
        {"abcdefgh", 1 << 20, 8u << 20},     {"\\n\\u00e9", 1 << 20, 3u << 20},
        {"\\ud83d\\ude00", 700000, 2800000}, {"\xe2\x82\xac", 2800000, 8400000},
        {"\\\\", 4 << 20, 4u << 20},
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        char *s = repeat(strings[i].piece, strings[i].times, "[\"", "\"]", &n);
        doc = must_parse(s, n);
        assert_int_equal(json_root(doc)->items[0].len, strings[i].len);
        json_free(doc);
        /* Without its end: also in linear time, with an error. */
        struct qwick_err e = {0};
        assert_int_equal(json_parse(&doc, "t", s, n - 2, QWICK_ERR_MODEL, &e),
                         -1);
        free(s);
    }
}

/* ---- events -------------------------------------------------------------- */

struct trace {
    struct buf b;
    int stop_after;
};

static int note(struct trace *t, const char *what, const char *s, size_t n)
{
    assert_int_equal(buf_puts(&t->b, what), 0);
    assert_int_equal(buf_append(&t->b, s, n), 0);
    assert_int_equal(buf_putc(&t->b, ' '), 0);
    return --t->stop_after == 0 ? -1 : 0;
}

static int t_null(void *c)
{
    return note(c, "null", "", 0);
}
static int t_boolean(void *c, bool v)
{
    return note(c, v ? "true" : "false", "", 0);
}
static int t_number(void *c, const char *s, size_t n)
{
    return note(c, "#", s, n);
}
static int t_string(void *c, const char *s, size_t n)
{
    return note(c, "=", s, n);
}
static int t_key(void *c, const char *s, size_t n)
{
    return note(c, ".", s, n);
}
static int t_begin_object(void *c)
{
    return note(c, "{", "", 0);
}
static int t_end_object(void *c)
{
    return note(c, "}", "", 0);
}
static int t_begin_array(void *c)
{
    return note(c, "[", "", 0);
}
static int t_end_array(void *c)
{
    return note(c, "]", "", 0);
}

static void test_events(void **state)
{
    static const struct json_handler all = {
        .null = t_null,
        .boolean = t_boolean,
        .number = t_number,
        .string = t_string,
        .begin_object = t_begin_object,
        .key = t_key,
        .end_object = t_end_object,
        .begin_array = t_begin_array,
        .end_array = t_end_array,
    };
    static const char s[] = "\xef\xbb\xbf{\"a\":[1,-2.50E+3,\"x\\ty\"],"
                            "\"\\u0062\":{},\"c\":null,\"d\":[true,false]} ";
    static const char want[] = "{ .a [ #1 #-2.50E+3 =x\ty ] .b { } .c null .d "
                               "[ true false ] } ";
    struct trace t = {0};
    struct qwick_err e = {0};
    assert_int_equal(
        json_events("t", s, sizeof s - 1, QWICK_ERR_MODEL, &all, &t, &e), 0);
    assert_string_equal(t.b.data, want);
    buf_free(&t.b);

    /* Stopped after each event in turn: -1, the handler's error stays. */
    int n_events = 0;
    for (const char *p = want; *p; p++)
        n_events += *p == ' ';
    for (int i = 1; i <= n_events; i++) {
        t = (struct trace){.stop_after = i};
        e = (struct qwick_err){.code = QWICK_ERR_CONTEXT, .msg = "mine"};
        assert_int_equal(
            json_events("t", s, sizeof s - 1, QWICK_ERR_MODEL, &all, &t, &e),
            -1);
        assert_int_equal(e.code, QWICK_ERR_CONTEXT);
        assert_string_equal(e.msg, "mine");
        buf_free(&t.b);
    }
    /* A number at the end of the text is complete only there. */
    t = (struct trace){0};
    assert_int_equal(json_events("t", "42", 2, QWICK_ERR_MODEL, &all, &t, &e),
                     0);
    assert_string_equal(t.b.data, "#42 ");
    buf_free(&t.b);
    t = (struct trace){.stop_after = 1};
    assert_int_equal(json_events("t", "42", 2, QWICK_ERR_MODEL, &all, &t, &e),
                     -1);
    buf_free(&t.b);
}

/* Parts of a text that the tree leaves out. */
static void test_around(void **state)
{
    static const char s[] = "\xef\xbb\xbf{\"a\":{\"x\":1,\xff},\"b\":[[1]],"
                            "\"c\":[1]}";
    const char *a = strchr(s, 'a') + 3, *b = strstr(s, "[[");
    const struct json_gap gaps[2] = {
        {(size_t)(a - s), (size_t)(b - 5 - s)},
        {(size_t)(b - s), (size_t)(b + 5 - s)},
    };
    struct json_doc *doc;
    struct qwick_err e = {0};
    assert_int_equal(json_parse_around(&doc, "t", s, sizeof s - 1, gaps, 2,
                                       QWICK_ERR_MODEL, &e),
                     0);
    struct buf out = {0};
    assert_int_equal(json_dump_python(&out, json_root(doc)), 0);
    assert_string_equal(out.data, "{\"a\": {}, \"b\": [], \"c\": [1]}");
    buf_free(&out);
    json_free(doc);

    /* With only the first part left out: faults after it, even a repeated key,
     * have offsets in the whole text. */
    static const char bad[][40] = {"{\"a\":{\xff},\"b\":01}",
                                   "{\"a\":{\xff},\"a\":[]}",
                                   "{\"a\":{\xff},\"b\":\"\xff\"}"};
    static const char *const why[] = {"t: offset 14: ", "t: offset 9: repeated",
                                      "t: offset 14: invalid UTF-8"};
    const struct json_gap gap = {5, 8};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(json_parse_around(&doc, "t", bad[i], strlen(bad[i]),
                                           &gap, 1, QWICK_ERR_MODEL, &e),
                         -1);
        assert_null(doc);
        if (strncmp(e.msg, why[i], strlen(why[i])) != 0)
            fail_msg("%s", e.msg);
    }
}

static void test_check(void **state)
{
    struct qwick_err e = {0};
    size_t at;
    assert_int_equal(
        json_check("t", "{\"a\":1,\"a\":2}", 13, QWICK_ERR_MODEL, &at, &e), 0);
    assert_int_equal(
        json_check("t", "[1,\"\xff\"]", 7, QWICK_ERR_MODEL, &at, &e), -1);
    assert_int_equal(at, 4);
    assert_string_equal(e.msg, "t: offset 4: invalid UTF-8");
}

/* ---- numbers ------------------------------------------------------------- */

static int read_int(const char *s, int64_t min, int64_t max, int64_t *out)
{
    struct json_doc *doc = must_parse(s, strlen(s));
    int rc = json_int(json_root(doc), min, max, out);
    json_free(doc);
    return rc;
}

static int read_real(const char *s, double *out)
{
    struct json_doc *doc = must_parse(s, strlen(s));
    int rc = json_double(json_root(doc), out);
    json_free(doc);
    return rc;
}

static void test_int(void **state)
{
    static const struct {
        const char *s;
        int64_t v;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"1", 1},
        {"-1", -1},
        {"40960", 40960},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"-9223372036854775807", -INT64_MAX},
    };
    static const char *const bad[] = {
        "1.0",
        "1e3",
        "1E0",
        "-0.0",
        "0e0",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "18446744073709551617",
        "36893488147419103233",
        "100000000000000000000000000000000000001",
        "1e400",
        "\"1\"",
        "null",
        "true",
        "[1]",
        "{}",
        "[]",
    };
    int64_t v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        v = 99;
        assert_int_equal(read_int(good[i].s, INT64_MIN, INT64_MAX, &v), 0);
        assert_true(v == good[i].v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        v = 99;
        assert_int_equal(read_int(bad[i], INT64_MIN, INT64_MAX, &v), -1);
        assert_true(v == 99);
    }
    assert_int_equal(read_int("5", 1, 5, &v), 0);
    assert_int_equal(read_int("6", 1, 5, &v), -1);
    assert_int_equal(read_int("0", 1, 5, &v), -1);
    assert_int_equal(read_int("4294967297", 0, UINT32_MAX, &v), -1);
    assert_int_equal(json_int(NULL, 0, 1, &v), -1);
}

static void check_doubles(void)
{
    static const struct {
        const char *s;
        double v;
    } good[] = {
        {"0", 0},
        {"1.5", 1.5},
        {"-2.25", -2.25},
        {"1e6", 1e6},
        {"1e-06", 1e-6},
        {"1000000", 1e6},
        {"0.1", 0.1},
        {"5e-324", 5e-324},
        {"1.7976931348623157e308", 1.7976931348623157e308},
        {"1e-999", 0},
        {"123456789012345678901234567890", 1.2345678901234568e29},
    };
    static const char *const bad[] = {"1e400", "-1e400", "1e309", "\"1.5\"",
                                      "null",  "[1.5]",  "true"};
    double v;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(read_real(good[i].s, &v), 0);
        assert_true(v == good[i].v);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(read_real(bad[i], &v), -1);
    assert_int_equal(json_double(NULL, &v), -1);
}

/* ---- Python's dumps ------------------------------------------------------ */

static void check_dump(const char *s, const char *want)
{
    struct json_doc *doc = must_parse(s, strlen(s));
    struct buf b = {0};
    assert_int_equal(json_dump_python(&b, json_root(doc)), 0);
    assert_string_equal(b.data, want);
    buf_free(&b);
    json_free(doc);
}

/* The expected texts are from CPython 3.11: json.dumps(json.loads(s),
 * ensure_ascii=False). */
static void check_dumps(void)
{
    check_dump("{\"b\":[1,2,{}],\"a\":{\"c\":null,\"d\":[]}}",
               "{\"b\": [1, 2, {}], \"a\": {\"c\": null, \"d\": []}}");
    check_dump("[true,false,\"\"]", "[true, false, \"\"]");
    check_dump(
        "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\\\/\\u007f"
        "\"",
        "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\/\x7f\"");
    check_dump("\"\\u00e9\\u2028\\ud83d\\ude00<>&'\"",
               "\"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80<>&'\"");
    check_dump("{\"k\\n\":\"\xe4\xbd\xa0\"}", "{\"k\\n\": \"\xe4\xbd\xa0\"}");
    check_dump("[0,-0,1,-17,123456789012345678901234567890]",
               "[0, 0, 1, -17, 123456789012345678901234567890]");
    check_dump("[0.0,-0.0,2.0,1.50,0e0,1e0,-1E2]",
               "[0.0, -0.0, 2.0, 1.5, 0.0, 1.0, -100.0]");
    check_dump("[1e15,1e16,123456789012345680.0,9999999999999998.0,1e22,1e23]",
               "[1000000000000000.0, 1e+16, 1.2345678901234568e+17, "
               "9999999999999998.0, 1e+22, 1e+23]");
    check_dump("[0.0001,0.00001,0.00012345,1e-7,1.5e-10,1e100,1e-100]",
               "[0.0001, 1e-05, 0.00012345, 1e-07, 1.5e-10, 1e+100, 1e-100]");
    check_dump("[1e400,-1e400,1e-400]", "[Infinity, -Infinity, 0.0]");
    check_dump("[0.1,0.30000000000000004,3.141592653589793,100.0,12345.678]",
               "[0.1, 0.30000000000000004, 3.141592653589793, 100.0, "
               "12345.678]");
    check_dump("[5e-324,2.2250738585072014e-308,1.7976931348623157e308]",
               "[5e-324, 2.2250738585072014e-308, 1.7976931348623157e+308]");
    check_dump("[2.2250738585072011e-308,1.5e-323,9.007199254740993e15]",
               "[2.225073858507201e-308, 1.5e-323, 9007199254740992.0]");
    /* 2**-44, 2**89 and 2**-1022 times 4: the nearest 16 digits do not read
     * back equal, the next larger 16 may. */
    check_dump("[5.684341886080801486968994140625e-14,"
               "618970019642690137449562112.0,8.9002954340288055e-308]",
               "[5.684341886080802e-14, 6.189700196426902e+26, "
               "8.900295434028806e-308]");
}

static void test_double(void **state)
{
    check_doubles();
}

static void test_dump(void **state)
{
    check_dumps();
    /* Out of room: nothing is left behind. */
    struct json_doc *doc = must_parse("[1,{\"a\":\"bcdefgh\"},2.5]", 23);
    for (size_t max = 1; max < 30; max++) {
        struct buf b = {.max = max};
        assert_int_equal(buf_putc(&b, '!'), 0);
        if (json_dump_python(&b, json_root(doc))) {
            assert_int_equal(b.len, 1);
            assert_string_equal(b.data, "!");
        } else {
            assert_string_equal(b.data, "![1, {\"a\": \"bcdefgh\"}, 2.5]");
        }
        buf_free(&b);
    }
    json_free(doc);
}

/* Doubles with random bits survive, in at most 17 digits. */
static void test_dump_round_trip(void **state)
{
    uint64_t x = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        uint64_t bits = i % 4 == 0   ? x & 0x7ff0000000000000u
                        : i % 7 == 0 ? x & 0x000fffffffffffffu
                                     : x;
        double v, back;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        char s[64];
        snprintf(s, sizeof s, "%.20e", v);
        struct json_doc *doc = must_parse(s, strlen(s));
        struct buf b = {0};
        assert_int_equal(json_dump_python(&b, json_root(doc)), 0);
        json_free(doc);
        assert_int_equal(read_real(b.data, &back), 0);
        if (back != v)
            fail_msg("%s came back as %s", s, b.data);
        size_t digits = 0;
        bool lead = true;
        for (const char *p = b.data; *p && *p != 'e'; p++) {
            lead = lead && (*p < '1' || *p > '9');
            digits += !lead && *p >= '0' && *p <= '9';
        }
        assert_true(digits <= 17 + 1);
        buf_free(&b);
    }
}

static void test_locale(void **state)
{
    static const char *const commas[] = {"de_DE.UTF-8", "de_DE.utf8", "de_DE",
                                         "fr_FR.UTF-8", "fr_FR.utf8"};
    const char *have = NULL;
    for (size_t i = 0; i < sizeof commas / sizeof *commas && !have; i++)
        have = setlocale(LC_ALL, commas[i]);
    /* Not installed: compile a locale if its source is here. */
    char dir[] = "/tmp/qwick-locale-XXXXXX", command[256];
    bool made = !have && mkdtemp(dir);
    if (made) {
        snprintf(command, sizeof command,
                 "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >%s/log 2>&1", dir,
                 dir);
        setenv("LOCPATH", dir, 1);
        if (system(command) == 0)
            have = setlocale(LC_ALL, "de_DE.UTF-8");
        unsetenv("LOCPATH");
        snprintf(command, sizeof command, "rm -r %s", dir);
        assert_int_equal(system(command), 0);
    }
    if (!have) {
        print_message("SKIP: no locale with a decimal comma can be had\n");
        skip();
    }
    assert_string_equal(localeconv()->decimal_point, ",");
    check_doubles();
    check_dumps();
    setlocale(LC_ALL, "C");
}

/* What Python's json module writes: words for numbers, only where a value may
 * stand. */
static void test_python(void **state)
{
    static const char text[] =
        "{\"NaN\": [NaN,-Infinity , Infinity], \"b\\\"\": "
        "\"x: NaN,\", \"c\":NaN\n}";
    struct json_doc *doc;
    struct qwick_err e;
    struct buf out = {0};
    double d;
    int64_t i;
    assert_int_equal(
        json_parse(&doc, "f", text, sizeof text - 1, QWICK_ERR_MODEL, &e), -1);
    assert_ok(json_parse_python(&doc, "f", text, sizeof text - 1,
                                QWICK_ERR_MODEL, &e),
              &e);
    assert_int_equal(json_dump_python(&out, json_root(doc)), 0);
    assert_string_equal(out.data,
                        "{\"NaN\": [NaN, -Infinity, Infinity], \"b\\\"\": "
                        "\"x: NaN,\", \"c\": NaN}");
    const struct json_value *list = json_get(json_root(doc), "NaN");
    for (size_t k = 0; k < list->len; k++) {
        assert_int_equal(json_double(&list->items[k], &d), -1);
        assert_int_equal(json_int(&list->items[k], INT64_MIN, INT64_MAX, &i),
                         -1);
    }
    json_free(doc);
    buf_free(&out);
    assert_int_equal(json_parse_python(&doc, "f",
                                       "\xef\xbb\xbf"
                                       "-Infinity",
                                       12, QWICK_ERR_MODEL, &e),
                     0);
    assert_string_equal(json_root(doc)->str, "-Infinity");
    json_free(doc);
    assert_int_equal(
        json_parse_python(&doc, "f", "NaN", 3, QWICK_ERR_MODEL, &e), 0);
    assert_string_equal(json_root(doc)->str, "NaN");
    json_free(doc);
    static const char *const bad[] = {
        "{NaN:1}",    "[1NaN]", "[NaN1]",  "[-NaN]",       "[nan]",
        "[Inf]",      "[+NaN]", "[1 NaN]", "[NaN NaN]",    "NaN}",
        "[\"a\"NaN]", "[NaN",   "NaN NaN", "[--Infinity]", "\"NaN",
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        if (!json_parse_python(&doc, "f", bad[k], strlen(bad[k]),
                               QWICK_ERR_MODEL, &e))
            fail_msg("accepted: %s", bad[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accept),   cmocka_unit_test(test_refuse),
        cmocka_unit_test(test_prefixes), cmocka_unit_test(test_word_edges),
        cmocka_unit_test(test_offsets),  cmocka_unit_test(test_depth),
        cmocka_unit_test(test_tree),     cmocka_unit_test(test_repeated_keys),
        cmocka_unit_test(test_large),    cmocka_unit_test(test_events),
        cmocka_unit_test(test_around),   cmocka_unit_test(test_check),
        cmocka_unit_test(test_int),      cmocka_unit_test(test_double),
        cmocka_unit_test(test_dump),     cmocka_unit_test(test_dump_round_trip),
        cmocka_unit_test(test_locale),   cmocka_unit_test(test_python),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
