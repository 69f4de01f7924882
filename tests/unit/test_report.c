/* The printers of reports. The command line is not a library, so their files
 * are compiled into the test. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file/json_writer.h"
#include "cli/io/units.c"
#include "cli/report/report.c"
#include "cli/report/scale.c"

static const struct fact facts[] = {
    CELL("name", "name", "name", "Name", -6, AS_TEXT("a\"b")),
    CELL("n", "tokens", "n", "Tokens", 3, AS_COUNT(7)),
    FACT("part", AS_REAL(0.125, 0, 0)),
    CELL(NULL, "percent", "part", "Part", 6, AS_PERCENT(0.125)),
    CELL("rate", "rate", "rate", "Rate", 6, AS_REAL(1.25, 1, 4),
         .unit = "GB/s"),
    CELL("unit", "unit", "unit", NULL, -5, AS_WORD("GB/s")),
    CELL(NULL, NULL, "least, most", "Least to most", 0, AS_RANGE(0.5, 1)),
    FACT("memory_bytes", AS_BYTES(1190000000)),
    FACT("known", AS_COUNT(0), .unknown = true),
    FACT("guess", AS_ESTIMATE(12.3456, 3)),
    FACT("none", AS_TEXT(NULL)),
    FACT("ok", AS_BOOL(true)),
};
enum { N = sizeof facts / sizeof *facts };

static void expect_table(enum report_format form, const char *text)
{
    struct buf b = {0};
    assert_int_equal(report_row(&b, facts, N, form, true), 0);
    assert_int_equal(report_row(&b, facts, N, form, false), 0);
    assert_string_equal(b.data, text);
    buf_free(&b);
}

static void tables_have_the_columns_of_their_format(void **state)
{
    expect_table(REPORT_TEXT, "name     n   part   rate unit \n"
                              "a\"b      7  12.5%    1.2 GB/s \n");
    expect_table(REPORT_MD,
                 "| name | n | part | rate | least, most |\n"
                 "|---|---:|---:|---:|---:|\n"
                 "| a\"b | 7 | 12.5% | 1.2 GB/s | 50.0%, 100.0% |\n");
    expect_table(REPORT_CSV, "name,tokens,percent,rate,unit\n"
                             "\"a\"\"b\",7,12.500,1.2500,GB/s\n");
    expect_table(REPORT_HTML,
                 "<th scope=\"col\">Name</th><th scope=\"col\">Tokens</th>"
                 "<th scope=\"col\">Part</th><th scope=\"col\">Rate</th>"
                 "<th scope=\"col\">Least to most</th>"
                 "<td>a\"b</td><td>7</td><td>12.5%</td><td>1.25 GB/s</td>"
                 "<td>50.0 to 100.0%</td>");
}

static void objects_and_lines_have_all_facts(void **state)
{
    struct buf b = {0};
    struct json_writer w = jw_line(&b);
    report_json(&w, facts, N);
    assert_int_equal(jw_end_line(&w), 0);
    assert_string_equal(b.data, "{\"name\":\"a\\\"b\",\"n\":7,\"part\":0.125,"
                                "\"rate\":1.25,\"unit\":\"GB/s\","
                                "\"memory_bytes\":1190000000,\"known\":null,"
                                "\"guess\":12.3,\"none\":null,\"ok\":true}\n");
    b.len = 0;
    assert_int_equal(report_lines(&b, facts + 7, 1), 0);
    assert_int_equal(report_lines(&b, facts + 10, 2), 0);
    assert_string_equal(b.data, "memory bytes       1190000000 (1.19 GB)\n"
                                "none               -\n"
                                "ok                 yes\n");
    buf_free(&b);
}

static void columns_are_as_wide_as_their_cells(void **state)
{
    struct report_table t = {0};
    struct buf b = {0};
    const struct fact rows[][3] = {
        {CELL(NULL, NULL, "name", NULL, -1,
              AS_NAME("\xC3\xBC"
                      "ber")),
         CELL(NULL, NULL, "speed", NULL, 1, AS_ESTIMATE(0.0, 3)),
         CELL(NULL, NULL, "runs", NULL, -1, AS_TEXT("yes"))},
        {CELL(NULL, NULL, "name", NULL, -1, AS_NAME("a\nlong one")),
         CELL(NULL, NULL, "speed", NULL, 1, AS_ESTIMATE(123456.7, 3)),
         CELL(NULL, NULL, "runs", NULL, -1, AS_TEXT("no"))},
    };
    int bad =
        report_table_add(&t, rows[0], 3) | report_table_add(&t, rows[1], 3);
    assert_int_equal(report_table_put(&b, &t, bad), 0);
    assert_string_equal(b.data, "name            speed  runs\n"
                                "\xC3\xBC"
                                "ber                -  yes\n"
                                "\"a\\nlong one\"  123457  no\n");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_have_the_columns_of_their_format),
        cmocka_unit_test(objects_and_lines_have_all_facts),
        cmocka_unit_test(columns_are_as_wide_as_their_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
