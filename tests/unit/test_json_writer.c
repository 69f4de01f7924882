/* The JSON writer of all verbs. The command line is not a library, so its file
 * is compiled into the test. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "file/json_writer.h"

static void commas_stand_between_values(void **state)
{
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    jw_object(&w, NULL);
    jw_array(&w, "empty");
    jw_end_array(&w);
    jw_object(&w, "none");
    jw_end_object(&w);
    jw_array(&w, "list");
    jw_int(&w, NULL, -1);
    jw_array(&w, NULL);
    jw_end_array(&w);
    jw_object(&w, NULL);
    jw_null(&w, "a");
    jw_bool(&w, "b", true);
    jw_end_object(&w);
    jw_bool(&w, NULL, false);
    jw_end_array(&w);
    jw_uint(&w, "last", UINT64_MAX);
    assert_int_equal(jw_end_line(&w), 0);
    jw_object(&w, NULL);
    jw_array(&w, "open");
    jw_object(&w, NULL);
    jw_known_uint(&w, "n", 0);
    jw_known_double(&w, "x", 1234.56, 3);
    jw_known_double(&w, "y", 0, 3);
    assert_int_equal(jw_end_line(&w), 0); /* it closes all that is open */
    assert_string_equal(b.data, "{\"empty\":[],\"none\":{},\"list\":[-1,[],"
                                "{\"a\":null,\"b\":true},false],"
                                "\"last\":18446744073709551615}\n"
                                "{\"open\":[{\"n\":null,\"x\":1.23e+03,"
                                "\"y\":null}]}\n");
    buf_free(&b);
}

static void values_are_escaped(void **state)
{
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    jw_array(&w, NULL);
    jw_string(&w, NULL, "a\0\"\n\xff", 5);
    jw_cstr(&w, NULL, NULL);
    jw_double(&w, NULL, 0.1);
    jw_double(&w, NULL, NAN);
    jw_double(&w, NULL, INFINITY);
    jw_object(&w, NULL);
    jw_cstr(&w, "x\"", "");
    jw_key(&w, "k\0\\", 3);
    jw_cstr(&w, NULL, "v");
    jw_end_object(&w);
    jw_end_array(&w);
    assert_int_equal(jw_status(&w), 0);
    assert_string_equal(b.data,
                        "[\"a\\u0000\\\"\\n\xef\xbf\xbd\",null,0.1,null,"
                        "null,{\"x\\\"\":\"\",\"k\\u0000\\\\\":\"v\"}]");
    buf_free(&b);
}

/* Floats have the fewest digits that give them back, and any float comes back.
 */
static void floats_read_back_equal(void **state)
{
    const float few[] = {0, -1.5f, 0.1f, 1.0f / 3, 16777216, 1e-45f, NAN};
    struct buf b = {0};
    struct json_writer w = json_writer(&b);
    jw_floats(&w, NULL, few, sizeof(few) / sizeof(*few));
    assert_int_equal(jw_status(&w), 0);
    assert_string_equal(b.data,
                        "[0,-1.5,0.1,0.33333334,16777216,1.4013e-45,null]");
    uint32_t x = 1;
    for (size_t i = 0; i < 100000; i++) {
        float v, back;
        x = x * 1664525u + 1013904223u;
        memcpy(&v, &x, sizeof v);
        if (!isfinite(v))
            continue;
        b.len = 0;
        assert_int_equal(buf_json_float(&b, v), 0);
        back = strtof(b.data, NULL);
        assert_memory_equal(&back, &v, sizeof v);
    }
    buf_free(&b);
}

static void raw_values_and_pieces_join(void **state)
{
    struct buf items = {0}, b = {0};
    for (int i = 0; i < 2; i++) { /* each time a new writer continues the
                                     text */
        struct json_writer w = json_writer(&items);
        jw_object(&w, NULL);
        jw_int(&w, "i", i);
        jw_end_object(&w);
    }
    struct json_writer w = json_writer(&b);
    jw_object(&w, NULL);
    jw_raw(&w, "absent", NULL, 0);
    jw_array(&w, "items");
    jw_raw(&w, NULL, NULL, 0);
    jw_raw(&w, NULL, items.data, items.len);
    jw_int(&w, NULL, 2);
    jw_end_array(&w);
    jw_raw(&w, "n", "1.50", 4);
    jw_end_object(&w);
    assert_string_equal(b.data,
                        "{\"items\":[{\"i\":0},{\"i\":1},2],\"n\":1.50}");
    buf_free(&items);
    buf_free(&b);
}

static void a_failure_stays(void **state)
{
    for (size_t max = 1; max < 40; max++) {
        struct buf b = {.max = max};
        struct json_writer w = json_writer(&b);
        jw_object(&w, NULL);
        jw_cstr(&w, "key", "a value");
        jw_double(&w, "number", 1.25);
        size_t before = b.len;
        bool failed = jw_status(&w) != 0;
        jw_end_object(&w);
        assert_int_equal(jw_status(&w) != 0, failed || b.len == before);
        if (failed)
            assert_int_equal(b.len, before);
        else if (!jw_status(&w))
            assert_string_equal(b.data,
                                "{\"key\":\"a value\",\"number\":1.25}");
        buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_stand_between_values),
        cmocka_unit_test(values_are_escaped),
        cmocka_unit_test(floats_read_back_equal),
        cmocka_unit_test(raw_values_and_pieces_join),
        cmocka_unit_test(a_failure_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
