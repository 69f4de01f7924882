/* The text of a progress line. The command line is not a library, so its file
 * and the functions that it needs are compiled into the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli/progress.c"
#include "cli/term.c"

int fd_write(int fd, const void *s, size_t n)
{
    (void)fd;
    (void)s;
    (void)n;
    return 0;
}

bool msg_quiet(void)
{
    return true;
}

static const char *format(uint64_t done, uint64_t total, double left)
{
    static char out[100];
    progress_format(out, sizeof out, "texts", done, total, left);
    return out;
}

static void test_format(void **state)
{
    (void)state;
    assert_string_equal(format(17, 200, -1), "17 of 200 texts");
    assert_string_equal(format(17, 0, -1), "17 texts");
    assert_string_equal(format(0, 200, 3.4), "0 of 200 texts, 3 s left");
    assert_string_equal(format(17, 200, 119), "17 of 200 texts, 119 s left");
    assert_string_equal(format(17, 200, 120), "17 of 200 texts, 2 min left");
    assert_string_equal(format(17, 200, 7199), "17 of 200 texts, 120 min left");
    assert_string_equal(format(17, 200, 7200), "17 of 200 texts, 2.0 h left");
    /* a text that does not fit is cut */
    char small[9];
    progress_format(small, sizeof small, "texts", 17, 200, 3);
    assert_string_equal(small, "17 of 20");
}

static void test_left(void **state)
{
    (void)state;
    assert_true(progress_left(10, 0, 0, 100) < 0);
    assert_true(progress_left(10, 5, 0, 4) < 0);
    assert_true(progress_left(10, 50, 0, 100) == 10);
    assert_true(progress_left(10, 100, 0, 100) == 0);
    /* 40 of the 50 came from an earlier run */
    assert_true(progress_left(10, 50, 40, 100) == 50);
    assert_true(progress_left(10, 40, 40, 100) < 0);
}

static size_t fit(const char *s, size_t columns)
{
    return progress_fit(s, strlen(s), columns);
}

static void test_fit(void **state)
{
    (void)state;
    assert_int_equal(fit("abc", 5), 3);
    assert_int_equal(fit("abc", 3), 3);
    assert_int_equal(fit("abc", 2), 2);
    assert_int_equal(fit("abc", 0), 0);
    assert_int_equal(fit("", 3), 0);
    /* never inside a character */
    assert_int_equal(fit("\xc3\xa9\xc3\xa9", 1), 2);
    assert_int_equal(fit("\xc3\xa9\xc3\xa9", 2), 4);
    /* wide ones */
    assert_int_equal(fit("\xe6\x97\xa5\xe6\x9c\xac", 3), 3);
    assert_int_equal(fit("\xe6\x97\xa5\xe6\x9c\xac", 4), 6);
    assert_int_equal(fit("\xf0\x9f\x98\x80!", 2), 4);
    /* bytes that are not UTF-8 */
    assert_int_equal(fit("\xff\xff", 1), 1);
}

static void test_columns(void **state)
{
    (void)state;
    assert_int_equal(setenv("COLUMNS", "37", 1), 0);
    assert_int_equal(term_columns(-1), 37);
    const char *bad[] = {"", "0", "-5", "x", "99999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv("COLUMNS", bad[i], 1);
        assert_int_equal(term_columns(-1), 80);
    }
    unsetenv("COLUMNS");
    assert_int_equal(term_columns(-1), 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
