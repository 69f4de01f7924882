/* Records of CSV and TSV. The command line is not a library, so its file is
 * compiled into the test. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/csv.h"

/* Read a whole text, and write its records to out: [field] for each field, and
 * a newline after each record; "!FAULT" for a malformed one. Lines come in
 * memory of the exact size. */
static void read_all(const struct csv_dialect *dialect, const char *text,
                     size_t n, struct buf *out)
{
    struct csv c = {.dialect = dialect};
    struct qwick_err e;
    size_t at = 0;
    while (at < n) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - text) - at : n - at;
        char *line = malloc(len ? len : 1);
        assert_non_null(line);
        memcpy(line, text + at, len);
        at += len + (nl != NULL);
        int rc = csv_line(&c, line, len, &e);
        free(line);
        if (!rc && c.open && at >= n)
            rc = csv_open_end(&c, &e);
        if (c.open)
            continue;
        if (rc) {
            assert_int_equal(e.code, QWICK_ERR_USAGE);
            buf_printf(out, "!%s\n", e.msg);
            continue;
        }
        for (size_t i = 0; i < c.n; i++) {
            assert_int_equal(csv_value(&c, i)[c.v[i].n], 0);
            buf_putc(out, '[');
            buf_append(out, csv_value(&c, i), c.v[i].n);
            buf_putc(out, ']');
        }
        buf_putc(out, '\n');
    }
    csv_free(&c);
}

struct sample {
    const char *text, *records;
};

static void check(const struct csv_dialect *dialect, const struct sample *v,
                  size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct buf out = {0};
        read_all(dialect, v[i].text, strlen(v[i].text), &out);
        if (strcmp(out.data ? out.data : "", v[i].records) != 0)
            fail_msg("%s\ngives\n%s\nnot\n%s", v[i].text, out.data,
                     v[i].records);
        buf_free(&out);
    }
}

#define CHECK_ALL(dialect, v) check((dialect), (v), sizeof(v) / sizeof(*(v)))

static void records_of_rfc_4180(void **state)
{
    static const struct sample v[] = {
        /* 1, 2: records on lines, with or without the last line end */
        {"aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n",
         "[aaa][bbb][ccc]\n[zzz][yyy][xxx]\n"},
        {"aaa,bbb,ccc\r\nzzz,yyy,xxx", "[aaa][bbb][ccc]\n[zzz][yyy][xxx]\n"},
        {"a,b\nc,d\n", "[a][b]\n[c][d]\n"},
        /* 4: blanks belong to fields; empty fields, at the ends too */
        {" a , b ", "[ a ][ b ]\n"},
        {",,", "[][][]\n"},
        {",\r\n", "[][]\n"},
        {"a", "[a]\n"},
        {"\n", "[]\n"},
        /* 5, 6: quotes, line ends and commas in quotes */
        {"\"aaa\",\"bbb\",\"ccc\"\r\nzzz,yyy,xxx",
         "[aaa][bbb][ccc]\n[zzz][yyy][xxx]\n"},
        {"\"aaa\",\"b\r\nbb\",\"ccc\"\r\nz", "[aaa][b\r\nbb][ccc]\n[z]\n"},
        {"\"a\n\n\nb\"\n", "[a\n\n\nb]\n"},
        {"\"a,b\",c", "[a,b][c]\n"},
        {"\"\",\"\"\r\n", "[][]\n"},
        {"a,\"\n\"", "[a][\n]\n"},
        {"\"x\r\"", "[x\r]\n"},
        /* 7: two quotes are one */
        {"\"aaa\",\"b\"\"bb\",\"ccc\"", "[aaa][b\"bb][ccc]\n"},
        {"\"\"\"\"", "[\"]\n"},
        {"\"\"\"a\"\"\",b", "[\"a\"][b]\n"},
        {"\"a\"\"\n\"\"b\"", "[a\"\n\"b]\n"},
    };
    CHECK_ALL(&csv_comma, v);
}

static void malformed_records_are_refused(void **state)
{
    static const struct sample v[] = {
        {"a,b\"c\nd", "!column 2: has a quote, so that the whole field needs "
                      "quotes\n[d]\n"},
        {"a, \"b\"\nd", "!column 2: has a quote, so that the whole field needs "
                        "quotes\n[d]\n"},
        {"\"a\"b\nd", "!column 1: has text after the closing quote\n[d]\n"},
        {"\"a\" ,b\nd", "!column 1: has text after the closing quote\n[d]\n"},
        {"\"a\r\nb\"x,y\nd",
         "!column 1: has text after the closing quote\n[d]\n"},
        {"a,\"b\nc\nd\n", "!column 2: has no closing quote\n"},
        {"\"", "!column 1: has no closing quote\n"},
        {"\"\"\"", "!column 1: has no closing quote\n"},
        {"a\rb,c", "!column 1: has a carriage return outside quotes\n"},
        {"a,b\r\r\n", "!column 2: has a carriage return outside quotes\n"},
        {"\"a\"\r\r\n", "!column 1: has text after the closing quote\n"},
    };
    CHECK_ALL(&csv_comma, v);
}

static void tables_with_tabs(void **state)
{
    static const struct sample v[] = {
        {"a\tb,c\n", "[a][b,c]\n"},
        {"5\" disk\tHe said \"no\".\n", "[5\" disk][He said \"no\".]\n"},
        {"\"a\tb\"\tc\n", "[a\tb][c]\n"},
        {"\"a\nb\"\t\"\"\"\"\n", "[a\nb][\"]\n"},
        {"\"No\", he said\tx\n",
         "!column 1: has text after the closing quote\n"},
    };
    CHECK_ALL(&csv_tab, v);
}

static void bytes_of_any_kind(void **state)
{
    struct buf out = {0};
    const char text[] = "a\0b,\"\0\",\xff\xfe\n";
    read_all(&csv_comma, text, sizeof(text) - 1, &out);
    const char want[] = "[a\0b][\0][\xff\xfe]\n";
    assert_int_equal(out.len, sizeof(want) - 1);
    assert_memory_equal(out.data, want, out.len);
    buf_free(&out);
}

/* Any fields are written with quotes where they need them, and read back. */
static void what_is_written_is_read(void **state)
{
    static const char alphabet[] = "a,\"\n\r\t";
    uint32_t seed = 12345;
    for (int round = 0; round < 2000; round++) {
        struct buf text = {0}, want = {0}, got = {0}, value = {0};
        for (int record = 0; record < 3; record++) {
            for (int field = 0; field < 3; field++) {
                buf_puts(&text, field ? "," : "");
                buf_putc(&want, '[');
                value.len = 0;
                for (seed = seed * 1664525 + 1013904223; seed >> 29;) {
                    char c = alphabet[(seed >> 16) % 6];
                    buf_putc(&want, c);
                    buf_putc(&value, c);
                    seed = seed * 1664525 + 1013904223;
                }
                (round & 1 ? csv_put : csv_put_quoted)(&text, value.data,
                                                       value.len);
                buf_putc(&want, ']');
            }
            buf_puts(&text, record & 1 ? "\r\n" : "\n");
            buf_putc(&want, '\n');
        }
        read_all(&csv_comma, text.data, text.len, &got);
        if (got.len != want.len || memcmp(got.data, want.data, got.len) != 0)
            fail_msg("round %d: %s gives %s, not %s", round, text.data,
                     got.data, want.data);
        buf_free(&text);
        buf_free(&want);
        buf_free(&got);
        buf_free(&value);
    }
}

static void quotes_only_where_needed(void **state)
{
    static const struct {
        const char *value, *field;
    } v[] = {
        {"", ""},           {" a; b\t", " a; b\t"}, {"a,b", "\"a,b\""},
        {"\"", "\"\"\"\""}, {"a\nb", "\"a\nb\""},   {"a\r", "\"a\r\""},
    };
    for (size_t i = 0; i < sizeof(v) / sizeof(*v); i++) {
        struct buf out = {0};
        csv_put(&out, v[i].value, strlen(v[i].value));
        assert_string_equal(buf_text(&out), v[i].field);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_of_rfc_4180),
        cmocka_unit_test(malformed_records_are_refused),
        cmocka_unit_test(tables_with_tabs),
        cmocka_unit_test(bytes_of_any_kind),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(quotes_only_where_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
