/* The text of a progress line. The command line is not a library, so its file
 * and the functions that it needs are compiled into the test. */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* The test drives the clock, and the ticker, which gets no thread. */
static double now_ms;
static double test_clock(void)
{
    return now_ms;
}

static int no_thread(void *(*fn)(void *))
{
    (void)fn;
    return 1;
}

#define clock_ms                   test_clock
#define pthread_create(t, a, f, x) no_thread(f)
#define isatty(fd)                 1
#include "cli/io/progress.c"
#include "cli/io/term.c"

static char screen[300]; /* the last line that was drawn; "": it is erased */

int fd_write(int fd, const void *s, size_t n)
{
    (void)fd;
    assert_true(n < sizeof screen);
    snprintf(screen, sizeof screen, "%.*s", (int)n, (const char *)s);
    char *end = strstr(screen, "\033[K");
    assert_non_null(end);
    *end = 0;
    return 0;
}

bool msg_quiet(void)
{
    return false;
}

static const char *format(uint64_t done, uint64_t total, double left)
{
    static char out[100];
    progress_format(out, sizeof out, "texts", done, total, left);
    return out;
}

static void test_format(void **state)
{
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

/* ---- the clock ---- */

/* Let seconds go by, in steps of the ticker. Check that the line is another one
 * after each second. */
static void pass_time(double seconds)
{
    char before[sizeof screen];
    for (double end = now_ms + seconds * 1000; now_ms < end;) {
        snprintf(before, sizeof before, "%s", screen);
        for (int i = 0; i < 4; i++) {
            now_ms += EVERY_MS;
            go_on();
        }
        if (strcmp(before, screen) == 0)
            fail_msg("the line stays %s", screen);
    }
}

static void shows(const char *line)
{
    assert_string_equal(screen, line);
}

static void test_prefill(void **state)
{
    setenv("TERM", "xterm", 1);
    setenv("COLUMNS", "80", 1);
    now_ms = 5000;
    *screen = 0;
    progress_start("prompt");
    progress_items("tokens", 0, 0, 1000, 0);
    shows(""); /* not in the first second */
    pass_time(3);
    shows("\rprompt: 0 of 1000 tokens, 3 s so far");
    /* 10 layers of 5 s each, after weights were read for 10 s */
    pass_time(12);
    for (size_t layer = 1; layer < 10; layer++) {
        progress_step(NULL, 100 * layer, 1000);
        pass_time(1);
        if (layer == 1)
            shows("\rprompt: 100 of 1000 tokens, 2 min left, 16 s so far");
        if (layer == 3)
            shows("\rprompt: 300 of 1000 tokens, 34 s left");
        pass_time(4);
    }
    /* the last one takes longer than the others */
    pass_time(3);
    shows("\rprompt: 900 of 1000 tokens, 63 s so far");
    progress_stop();
    shows("\r");
    /* the next run begins anew */
    progress_start("prompt");
    progress_items("tokens", 0, 0, 50, 0);
    pass_time(2);
    shows("\rprompt: 0 of 50 tokens, 2 s so far");
    progress_stop();
}

static void test_items(void **state)
{
    now_ms = 5000;
    progress_start("rerank");
    progress_items("documents", 0, 3, 3, 0);
    now_ms += 4000;
    progress_step(NULL, 50, 300); /* half of the first */
    shows("\rrerank: 0 of 3 documents, 20 s left");
    pass_time(2);
    shows("\rrerank: 0 of 3 documents, 18 s left");
    progress_stop();
    /* of a single one, the tokens */
    progress_start("rerank");
    progress_items("documents", 0, 1, 1, 0);
    pass_time(2);
    shows("\rrerank: 0 of 1 documents, 2 s so far");
    now_ms += 2000;
    progress_step(NULL, 50, 300);
    shows("\rrerank: 50 of 300 tokens, 20 s left");
    pass_time(1);
    progress_step(NULL, 100, 300);
    shows("\rrerank: 100 of 300 tokens, 4 s left");
    /* a text of its own does not go on */
    progress_show("x");
    now_ms += 1000;
    go_on();
    shows("\rrerank: x");
    progress_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),  cmocka_unit_test(test_left),
        cmocka_unit_test(test_fit),     cmocka_unit_test(test_columns),
        cmocka_unit_test(test_prefill), cmocka_unit_test(test_items),
    };
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}
