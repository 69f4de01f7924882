/* Recorded checksums: names of blobs, links, and files that changed. */
#include "test.h"

#include "file/blob_sum.h"
#include "tempdir.h"

/* Of "abc"; the third one is what git hash-object prints. */
#define SHA256_ABC \
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define GIT_ABC "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"

static void expect_none(const char *name)
{
    struct blob_sum s;
    memset(&s, 1, sizeof s);
    blob_sum_find(&s, temp_path(name));
    if (s.known)
        fail_msg("%s: has the checksum %s", name, s.hex);
}

static void expect_sum(const char *name, const char *hex, bool is_git)
{
    struct blob_sum s;
    blob_sum_find(&s, temp_path(name));
    if (!s.known)
        fail_msg("%s: has no checksum", name);
    assert_string_equal(s.hex, hex);
    assert_int_equal(s.is_git, is_git);
}

static void names_of_blobs(void **state)
{
    temp_put("blobs/" SHA256_ABC, "abc");
    temp_put("blobs/" GIT_ABC, "abc");
    temp_put("blobs/sha256-" SHA256_ABC, "abc");
    expect_sum("blobs/" SHA256_ABC, SHA256_ABC, false);
    expect_sum("blobs/" GIT_ABC, GIT_ABC, true);
    expect_sum("blobs/sha256-" SHA256_ABC, SHA256_ABC, false);
}

static void links_to_blobs(void **state)
{
    temp_put("blobs/" SHA256_ABC, "abc");
    temp_put("snapshots/1/", NULL);
    assert_int_equal(symlink("../../blobs/" SHA256_ABC,
                             temp_path("snapshots/1/model.safetensors")),
                     0);
    assert_int_equal(symlink("model.safetensors",
                             temp_path("snapshots/1/again.safetensors")),
                     0);
    expect_sum("snapshots/1/model.safetensors", SHA256_ABC, false);
    expect_sum("snapshots/1/again.safetensors", SHA256_ABC, false);
    assert_int_equal(
        symlink("../../blobs/missing", temp_path("snapshots/1/dangling")), 0);
    expect_none("snapshots/1/dangling");
}

static void other_names_have_none(void **state)
{
    static const char *const names[] = {
        "blobs/sha256-" GIT_ABC,           /* too short for SHA-256 */
        "blobs/" SHA256_ABC "0",           /* a digit too many */
        "blobs/" SHA256_ABC ".incomplete", /* a download that goes on */
        "blobs/"
        "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
        "blobs/sha256-",
        "blobs/model.safetensors",
        "myblobs/" SHA256_ABC, /* another directory */
        SHA256_ABC,
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        temp_put(names[i], "abc");
        expect_none(names[i]);
    }
    expect_none("missing");
}

static int never(void *ctx, size_t done)
{
    *(size_t *)ctx = done;
    return 0;
}

static int at_once(void *ctx, size_t done)
{
    (void)ctx;
    (void)done;
    return 1;
}

static void computed_sums(void **state)
{
    struct blob_sum sum = {.known = true};
    struct qwick_err e;
    size_t done = 0;
    char hex[65];
    temp_put("file", "abc");
    assert_int_equal(
        blob_sum_compute(&sum, temp_path("file"), hex, never, &done, &e), 0);
    assert_string_equal(hex, SHA256_ABC);
    assert_int_equal(done, 3);
    sum.is_git = true;
    assert_int_equal(
        blob_sum_compute(&sum, temp_path("file"), hex, never, &done, &e), 0);
    assert_string_equal(hex, GIT_ABC);
    assert_int_equal(
        blob_sum_compute(&sum, temp_path("file"), hex, at_once, NULL, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_INTERRUPTED);
    assert_int_equal(
        blob_sum_compute(&sum, temp_path("missing"), hex, never, &done, &e),
        -1);
    assert_non_null(strstr(e.msg, "missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names_of_blobs, fresh),
        cmocka_unit_test_setup(links_to_blobs, fresh),
        cmocka_unit_test_setup(other_names_have_none, fresh),
        cmocka_unit_test_setup(computed_sums, fresh),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
