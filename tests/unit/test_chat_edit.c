/* The line editor of chat: keys, the history, what Tab adds, and what is drawn.
 * The command line is not a library, so its files are compiled into the test.
 */
#include "test.h"

#include <locale.h>

#include "base/rng.h"
#include "cli/chat/chat_command.c"
#include "cli/chat/chat_complete.c"
#include "cli/chat/chat_draw.c"
#include "cli/chat/chat_edit.c"
#include "cli/io/escape.c"
#include "tempdir.h"

/* ---- keys ---- */

/* Give an editor keys, `piece` bytes at a time. Returns the last event that is
 * not CHAT_EDIT_NOTHING. */
static enum chat_edit_event type(struct chat_edit *e, const char *keys,
                                 size_t n, size_t piece)
{
    enum chat_edit_event last = CHAT_EDIT_NOTHING, event;
    size_t at = 0, end = 0;
    while (end < n) {
        end = n - end < piece ? n : end + piece;
        size_t used;
        while (at < end &&
               (used = chat_edit_feed(e, keys + at, end - at, &event)) > 0) {
            at += used;
            assert_true(at <= end);
            last = event != CHAT_EDIT_NOTHING ? event : last;
        }
    }
    return last;
}

static const struct {
    const char *keys, *text;
    size_t cursor;
    enum chat_edit_event event;
} rows[] = {
    {"abc", "abc", 3, CHAT_EDIT_NOTHING},
    {"abc\001X", "Xabc", 1, CHAT_EDIT_NOTHING},
    {"abc\033[HX\033[FY", "XabcY", 5, CHAT_EDIT_NOTHING},
    {"abc\002\002X\006Y", "aXbYc", 4, CHAT_EDIT_NOTHING},
    {"abc\033[D\033OD\033[CX", "abXc", 3, CHAT_EDIT_NOTHING},
    {"abc\002\010\177", "c", 0, CHAT_EDIT_NOTHING},
    {"\177", "", 0, CHAT_EDIT_BELL},
    {"abc\002\004\004", "ab", 2, CHAT_EDIT_BELL},
    {"abc\001\033[3~", "bc", 0, CHAT_EDIT_NOTHING},
    {"\004", "", 0, CHAT_EDIT_END},
    {"one two-three\033bX", "one two-Xthree", 9, CHAT_EDIT_NOTHING},
    {"one two\001\033fX\033[1;5CY", "oneX twoY", 9, CHAT_EDIT_NOTHING},
    {"one two-three\027", "one ", 4, CHAT_EDIT_NOTHING},
    {"one two-three\033\177", "one two-", 8, CHAT_EDIT_NOTHING},
    {"one two\001\033d\031\031", "oneone two", 6, CHAT_EDIT_NOTHING},
    {"one two\033b\013\001\031", "twoone ", 3, CHAT_EDIT_NOTHING},
    {"one two\033b\025", "two", 0, CHAT_EDIT_NOTHING},
    {"\031", "", 0, CHAT_EDIT_BELL},
    {"abc\024", "acb", 3, CHAT_EDIT_NOTHING},
    {"abc\001\006\024", "bac", 2, CHAT_EDIT_NOTHING},
    {"a\024", "a", 1, CHAT_EDIT_BELL},
    {"a\026\033b\026\r", "a\033b\n", 4, CHAT_EDIT_NOTHING},
    {"ab\033xc\033[99z\033[[A\033OPd", "abcd", 4, CHAT_EDIT_BELL},
    {"a\033[\001b", "ba", 1, CHAT_EDIT_BELL},
    {"a\rb", "ab", 2, CHAT_EDIT_ENTER},
    {"/a\t", "/a", 2, CHAT_EDIT_COMPLETE},
    {"a\014", "a", 1, CHAT_EDIT_CLEAR},
    /* Alt-Enter, as terminals send it */
    {"a\033\rb\033\nc", "a\nb\nc", 5, CHAT_EDIT_NOTHING},
    {"a\033[13;3ub\033[27;3;13~\033[13;2uc", "a\nb\n\nc", 6, CHAT_EDIT_NOTHING},
    {"ac\002\033\rb", "a\nbc", 3, CHAT_EDIT_NOTHING},
    /* characters of several bytes or code points; a byte that is no UTF-8 */
    {"a\xe6\x97\xa5\177", "a", 1, CHAT_EDIT_NOTHING},
    {"ae\xcc\x81\002X", "aXe\xcc\x81", 2, CHAT_EDIT_NOTHING},
    {"ae\xcc\x81\177", "a", 1, CHAT_EDIT_NOTHING},
    {"a\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7\177", "a", 1,
     CHAT_EDIT_NOTHING},
    {"\xff"
     "a",
     "\xef\xbf\xbd"
     "a",
     4, CHAT_EDIT_NOTHING},
    /* pastes, and lines in them */
    {"a\033[200~one\rtwo\r\nthree\n\r\n\033[201~b", "aone\ntwo\nthreeb", 15,
     CHAT_EDIT_NOTHING},
    {"\033[200~\033[20\033[A\001\033[201~", "\033[20\033[A\001", 8,
     CHAT_EDIT_NOTHING},
    {"\033[200~ab\nc\nde\033[201~\033[A\001X\033[BY", "ab\nXc\ndYe", 8,
     CHAT_EDIT_NOTHING},
    {"\033[200~ab\ncd\033[201~\001\010X", "abXcd", 3, CHAT_EDIT_NOTHING},
    {"\033[200~ab\ncd\033[201~\033<\013\013", "cd", 0, CHAT_EDIT_NOTHING},
    {"\026\033[200~a\033[201~", "a", 1, CHAT_EDIT_NOTHING},
};

static void test_keys(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t piece = 1; piece < 5; piece++) {
            struct chat_edit e = {0};
            chat_edit_begin(&e);
            assert_int_equal(
                type(&e, rows[i].keys, strlen(rows[i].keys), piece),
                rows[i].event);
            assert_string_equal(e.text.data ? e.text.data : "", rows[i].text);
            assert_int_equal(e.cursor, rows[i].cursor);
            chat_edit_free(&e);
        }
    }
}

static void check(struct chat_edit *e, const char *keys, const char *text)
{
    type(e, keys, strlen(keys), 1);
    assert_string_equal(e->text.data, text);
}

static void test_history(void **state)
{
    struct chat_edit e = {0};
    const char *const entries[] = {"one", "two\nlines", "two\nlines", "three"};
    for (size_t i = 0; i < 4; i++)
        chat_edit_remember(&e, entries[i], strlen(entries[i]));
    chat_edit_remember(&e, "n\0ul", 4);
    assert_int_equal(e.n_history, 4);
    chat_edit_begin(&e);
    check(&e, "mine\033[A", "nul");
    check(&e, "\033[A\020", "two\nlines");
    check(&e, "\033[A\033[A", "one"); /* no further */
    check(&e, "\033[B\033[B", "three");
    check(&e, "\033[B\033[B\033[B", "mine");
    /* in a changed text of two lines, the arrow moves the cursor */
    check(&e, "\020\020\020!\033[A?", "two?\nlines!");
    chat_edit_begin(&e);
    /* searching: on, back, forward, a shorter pattern */
    check(&e, "x\022e", "three");
    check(&e, "\022", "two\nlines");
    assert_true(e.searching);
    assert_int_equal(e.cursor, 7);
    check(&e, "\022", "one");
    check(&e, "\023", "two\nlines");
    check(&e, "q", "two\nlines"); /* nothing has eq */
    check(&e, "\177", "three");
    check(&e, "\177on", "one");
    check(&e, "\007", "x");
    assert_false(e.searching);
    assert_int_equal(e.cursor, 1);
    /* another key takes the entry */
    check(&e, "\022tw\001X", "Xtwo\nlines");
    assert_false(e.searching);
    chat_edit_begin(&e);
    type(&e, "\022\022\177\022q", 5, 1);
    assert_int_equal(type(&e, "\r", 1, 1), CHAT_EDIT_ENTER);
    /* the oldest entries go */
    for (int i = 0; i < CHAT_EDIT_HISTORY; i++) {
        char text[20];
        snprintf(text, sizeof text, "entry %d", i);
        chat_edit_remember(&e, text, strlen(text));
    }
    assert_int_equal(e.n_history, CHAT_EDIT_HISTORY);
    assert_memory_equal(e.history[0].text, "entry 0", 7);
    chat_edit_free(&e);
}

static void test_too_long(void **state)
{
    struct chat_edit e = {0};
    size_t n = CHAT_EDIT_MAX;
    char *s = malloc(n + 20);
    assert_non_null(s);
    memcpy(s, "\033[200~", 6);
    memset(s + 6, 'a', n + 1);
    memcpy(s + 6 + n + 1, "\033[201~", 6);
    chat_edit_begin(&e);
    assert_int_equal(type(&e, s, n + 13, 4096), CHAT_EDIT_TOO_LONG);
    assert_int_equal(e.paste_length, n + 1);
    assert_int_equal(e.text.len, 0);
    memcpy(s + 6 + n, "\033[201~", 6);
    assert_int_equal(type(&e, s, n + 12, 4096), CHAT_EDIT_NOTHING);
    assert_int_equal(e.text.len, n);
    assert_int_equal(type(&e, "b", 1, 1), CHAT_EDIT_BELL);
    assert_int_equal(type(&e, "\033[200~b\033[201~", 13, 13),
                     CHAT_EDIT_TOO_LONG);
    assert_int_equal(e.text.len, n);
    chat_edit_free(&e);
    free(s);
}

/* ---- drawing ---- */

/* Check that a drawing fits a window, and return it without the sequences
 * before and after its rows. */
static const char *drawn(struct chat_draw *d, const struct chat_edit *e,
                         const char *prompt, size_t rows_, size_t columns)
{
    static struct buf out;
    struct chat_view v = {prompt,    e->text.data, strlen(prompt), e->text.len,
                          e->cursor, rows_,        columns};
    out.len = 0;
    assert_int_equal(chat_draw(d, &v, &out), 0);
    char *begin = strstr(out.data, "\033[J");
    assert_non_null(begin);
    begin += 3;
    char *end = strrchr(begin, '\r'), *up;
    assert_non_null(end);
    *end = 0;
    up = strrchr(begin, '\033');
    if (up)
        *up = 0;
    /* no row is wider than the window, and there are not too many */
    size_t n_rows = 1, col = 0;
    for (const char *s = begin; *s;) {
        uint32_t cp;
        size_t k = utf8_decode(s, strlen(s), &cp, NULL);
        assert_true(k > 0);
        if (*s == '\r') {
            n_rows++;
            col = 0;
            k = 2;
        } else {
            assert_false(escape_needs(cp, ESCAPE_TEXT));
            col += chat_columns(cp);
        }
        assert_true(col <= columns);
        s += k;
    }
    assert_true(n_rows <= rows_);
    assert_true(d->row < n_rows);
    return begin;
}

static void test_draw(void **state)
{
    struct chat_edit e = {0};
    struct chat_draw d = {0};
    chat_edit_begin(&e);
    assert_string_equal(drawn(&d, &e, "> ", 3, 5), "> ");
    type(&e, "abc", 3, 3);
    /* a full row: the cursor is on the next one */
    assert_string_equal(drawn(&d, &e, "> ", 3, 5), "> abc\r\n");
    type(&e, "d\033[200~\nef\033[201~", 16, 16);
    assert_string_equal(drawn(&d, &e, "> ", 3, 5), "> abc\r\nd\r\nef");
    assert_int_equal(d.row, 2);
    /* the rows around the cursor */
    assert_string_equal(drawn(&d, &e, "> ", 2, 5), "d\r\nef");
    type(&e, "\033<", 2, 2);
    assert_string_equal(drawn(&d, &e, "> ", 2, 5), "> abc\r\nd");
    assert_string_equal(drawn(&d, &e, "> ", 1, 1), "a");
    assert_string_equal(drawn(&d, &e, "> ", 9, 9), "> abcd\r\nef");
    /* wide and joined characters, escapes over two rows */
    chat_edit_begin(&e);
    type(&e,
         "ab\xe6\x97\xa5"
         "e\xcc\x81\026\001",
         11, 11);
    d = (struct chat_draw){0};
    assert_string_equal(drawn(&d, &e, "", 9, 3), "ab\r\n\xe6\x97\xa5"
                                                 "e\xcc\x81\r\n\\x0\r\n1");
    assert_string_equal(drawn(&d, &e, "", 9, 1),
                        "a\r\nb\r\n?\r\ne\xcc\x81\r\n\\\r\nx\r\n0\r\n1\r\n");
    chat_edit_free(&e);
}

static size_t below(uint64_t seed, uint64_t *counter, size_t n)
{
    return (size_t)(rng_uniform(seed, (*counter)++) * (double)n);
}

/* Random keys in windows of random sizes: the text stays whole, drawings fit.
 */
static void test_random(void **state)
{
    static const char *const pieces[] = {
        "\033[A",       "\033[B",    "\033[C",       "\033[D",       "\033",
        "\033[",        "\033[200~", "\033[201~",    "\022",         "\023",
        "\026",         "\031",      "\027",         "\r",           "word ",
        "\xe6\x97\xa5", "\xcc\x81",  "\xe2\x80\x8d", "\xe2\x80\xae", "\xff",
    };
    const size_t n_pieces = sizeof pieces / sizeof *pieces;
    const char *env = getenv("QWICK_TEST_SEED");
    const uint64_t seed = env ? strtoull(env, NULL, 10) : 1;
    printf("seed %llu\n", (unsigned long long)seed);
    uint64_t counter = 0;
    struct chat_edit e = {0};
    struct chat_draw d = {0};
    char in[4096];
    size_t n = 0;
    chat_edit_begin(&e);
    for (int i = 0; i < 100000; i++) {
        enum chat_edit_event event;
        size_t pick = below(seed, &counter, 2 * n_pieces), used;
        if (pick < n_pieces) {
            memcpy(in + n, pieces[pick], strlen(pieces[pick]));
            n += strlen(pieces[pick]);
        } else {
            in[n++] = (char)below(seed, &counter, 256);
        }
        while (n && (used = chat_edit_feed(&e, in, n, &event)) > 0) {
            n -= used;
            memmove(in, in + used, n);
            if (event == CHAT_EDIT_ENTER) {
                chat_edit_remember(&e, e.text.data, e.text.len);
                chat_edit_begin(&e);
            }
        }
        assert_true(n < 128);
        assert_true(e.cursor <= e.text.len);
        if (!e.text.len)
            continue;
        assert_int_equal(utf8_valid(e.text.data, e.text.len), e.text.len);
        assert_int_equal(utf8_valid(e.text.data, e.cursor), e.cursor);
        assert_null(memchr(e.text.data, 0, e.text.len));
        drawn(&d, &e, ">>> ", 1 + below(seed, &counter, 9),
              1 + below(seed, &counter, 30));
        if (e.text.len > 500)
            chat_edit_begin(&e);
    }
    chat_edit_free(&e);
}

/* ---- what Tab adds ---- */

/* Words of a command: names with control characters are left out. */
static int some_words(struct buf *out, const char *words, size_t n)
{
    if (n)
        return strncmp(words, "top", 3) == 0 ? buf_puts(out, "on\noff\n") : 0;
    return buf_puts(out, "org/one\norg/two\ntop k\nbad\033[2J\n"
                         "\xe2\x80\xaexy\n");
}

static void check_complete(const char *line, const char *insert,
                           const char *list)
{
    static const struct chat_command commands[] = {
        {.name = "save"},
        {.name = "stats"},
        {.name = "system"},
        {.name = "use", .words = some_words},
        {0}};
    struct buf in = {0}, all = {0};
    assert_int_equal(buf_puts(&in, "") || buf_puts(&all, ""), 0);
    assert_int_equal(chat_complete(commands, line, strlen(line), &in, &all), 0);
    assert_string_equal(in.data, insert);
    assert_string_equal(all.data, list);
    buf_free(&in);
    buf_free(&all);
}

/* Two files whose names begin with e and an accent. */
#define E_FILES    \
    "e\xcc\x80"    \
    "2  e\xcc\x81" \
    "1"

static void test_complete(void **state)
{
    static const struct {
        const char *line, *insert, *list;
    } cases[] = {
        {"", "", ""},
        {"sa", "", ""},
        {"/sa", "ve ", ""},
        {"/s", "", "save  stats  system\n"},
        {"/x", "", ""},
        {"/read a ", "", "a b.txt  a\"q  " E_FILES "  sub/\n"},
        {"/read a\\", "", ""},
        {"/read a\\ ", "b.txt ", ""},
        {"/read ~/a\\ b", ".txt ", ""},
        {"/read \"a ", "b.txt\" ", ""},
        {"/read \"~/a ", "b.txt\" ", ""},
        {"/read a\\\"", "q ", ""},
        {"/read \"a\\\"", "q\" ", ""},
        {"/read e", "", E_FILES "\n"},
        {"/read su", "b/", ""},
        {"/read sub/", "one ", ""},
        {"/read x", "", ""}, /* names that need escapes */
        {"/read .h", "idden ", ""},
        {"/read none/", "", ""},
        {"/use ", "", "org/one  org/two  top k\n"},
        {"/use o", "rg/", ""},
        {"/use org/t", "wo ", ""},
        {"/use \"top", " k\" ", ""},
        {"/use t", "op\\ k ", ""},
        {"/use top o", "", "off  on\n"},
        {"/use top of", "f ", ""},
        {"/use b", "", ""}, /* its name needs an escape */
        {"/use a", "", ""}, /* no name of a file */
        {"/use ./a", "", "a b.txt  a\"q\n"},
    };
    static const char *const names[] = {
        "a b.txt",
        "a\"q",
        "e\xcc\x81"
        "1",
        "e\xcc\x80"
        "2",
        "x\033[2Jy",
        "x\xe2\x80\xaey",
        "x\xe2\x80\x8ey",
        "x\xff",
        "x\n",
        ".hidden",
        "sub/",
        "sub/one",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *path = temp_path(names[i]);
        FILE *f = NULL;
        assert_true(strchr(names[i], '/') && !strstr(names[i], "one")
                        ? mkdir(path, 0700) == 0
                        : (f = fopen(path, "w")) != NULL);
        if (f)
            fclose(f);
    }
    assert_int_equal(chdir(temp_dir), 0);
    setenv("HOME", temp_dir, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_complete(cases[i].line, cases[i].insert, cases[i].list);
    assert_int_equal(chdir("/"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_draw),
        cmocka_unit_test(test_random),
        cmocka_unit_test_setup_teardown(test_complete, temp_setup,
                                        temp_teardown),
    };
    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests_name("chat edit", tests, NULL, NULL);
}
