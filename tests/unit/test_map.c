/* Mapping and reading files, and refusing other things. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file/map.h"
#include "tempdir.h"

static char path[128], other[128];

static int setup(void **state)
{
    if (temp_setup(state))
        return -1;
    snprintf(path, sizeof path, "%s", temp_path("f"));
    snprintf(other, sizeof other, "%s", temp_path("g"));
    return 0;
}

static void refused(const char *p, const char *why)
{
    struct qwick_err e = {0};
    struct map m;
    assert_int_equal(map_open(&m, p, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_MODEL);
    assert_null(m.data);
    assert_int_equal(m.size, 0);
    if (strncmp(e.msg, p, strlen(p)) != 0 || !strstr(e.msg, why))
        fail_msg("%s", e.msg);
    assert_int_equal(map_open(&m, p, NULL), -1);
    map_close(&m);
}

/* Map the file of the tests, which has n bytes. */
static struct map mapped(size_t n)
{
    struct qwick_err e;
    struct map m;
    assert_ok(map_open(&m, path, &e), &e);
    assert_int_equal(m.size, n);
    return m;
}

static void test_regular(void **state)
{
    struct qwick_err e;
    put_file(path, "abc\0def", 7);
    struct map m = mapped(7);
    assert_memory_equal(m.data, "abc\0def", 7);

    /* A link maps the same file. */
    struct map l;
    assert_int_equal(symlink("f", other), 0);
    assert_int_equal(map_open(&l, other, &e), 0);
    assert_memory_equal(l.data, m.data, 7);
    map_close(&l);
    assert_null(l.data);

    /* Replacing or removing the path does not change the mapping. */
    unlink(other);
    put_file(other, "new one", 7);
    assert_int_equal(rename(other, path), 0);
    assert_memory_equal(m.data, "abc\0def", 7);
    unlink(path);
    assert_memory_equal(m.data, "abc\0def", 7);
    map_close(&m);
    map_close(&m);
    map_close(NULL);
}

static void test_empty(void **state)
{
    put_file(path, "", 0);
    struct map m = mapped(0);
    assert_non_null(m.data);
    assert_false(m.mapped);
    map_close(&m);
}

static void test_refused(void **state)
{
    refused(temp_dir, "is a directory");
    refused("/dev/null", "is a character device");
    refused("/dev/zero", "is a character device");
    refused(path, "No such file or directory");
    refused("", "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(path, "is a FIFO"); /* without waiting for a writer */
    unlink(path);

    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(s >= 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%.100s", path);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    refused(path, "is a socket");
    close(s);
    unlink(path);

    assert_int_equal(symlink("nowhere", path), 0);
    refused(path, "No such file");
    unlink(path);
    assert_int_equal(symlink("f", path), 0);
    refused(path, "symbolic links");
    unlink(path);
    put_file(path, "x", 1);
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        refused(path, "Permission denied");
    }
}

/* A sparse file of 8 TB: mapping it must not read it. */
static void test_sparse(void **state)
{
    struct qwick_err e = {0};
    struct map m;
    put_file(path, "head", 4);
    if (truncate(path, (off_t)8 << 40)) {
        print_message("SKIP: no 8 TB sparse files here: %s\n", strerror(errno));
        skip();
    }
    if (map_open(&m, path, &e)) {
        assert_int_equal(e.code, QWICK_ERR_MEMORY);
        assert_non_null(strstr(e.msg, "8796093022208 bytes"));
    } else {
        assert_true(m.size == (size_t)8 << 40);
        assert_memory_equal(m.data, "head", 5);
    }
    map_close(&m);
    /* More than the address space. */
    if (truncate(path, (off_t)1 << 62) == 0) {
        assert_int_equal(map_open(&m, path, &e), -1);
        assert_int_equal(e.code, QWICK_ERR_MEMORY);
        assert_int_equal(e.kind, QWICK_KIND_ADDRESS_SPACE);
        assert_non_null(strstr(e.msg, path));
        assert_non_null(strstr(e.msg, "4611686018427387904 bytes"));
    }
}

static void test_no_descriptors_kept(void **state)
{
    struct map m[64];
    put_file(path, "x", 1);
    int before = dup(0);
    assert_true(before >= 0);
    close(before);
    for (int i = 0; i < 64; i++)
        assert_int_equal(map_open(&m[i], path, NULL), 0);
    refused("/dev/null", "device");
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
    for (int i = 0; i < 64; i++)
        map_close(&m[i]);
}

/* ---- map_read_all -------------------------------------------------------- */

static void test_read(void **state)
{
    static const size_t sizes[] = {0,     1,     2,      65535,
                                   65536, 65537, 131072, 300001};
    struct qwick_err e = {0};
    char *data;
    size_t n;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t k = sizes[i];
        char *want = malloc(k + 1);
        assert_non_null(want);
        for (size_t j = 0; j < k; j++)
            want[j] = (char)(j * 31);
        put_file(path, want, k);
        assert_int_equal(map_read_all(path, 1 << 20, &data, &n, &e), 0);
        assert_int_equal(n, k);
        assert_memory_equal(data, want, k);
        assert_int_equal(data[n], 0);
        free(data);
        /* Exactly max bytes are accepted, one more is not. */
        assert_int_equal(map_read_all(path, k, &data, &n, &e), 0);
        assert_int_equal(n, k);
        free(data);
        assert_int_equal(map_read_all(path, SIZE_MAX, &data, &n, &e), 0);
        free(data);
        if (k > 0) {
            assert_int_equal(map_read_all(path, k - 1, &data, &n, &e), -1);
            assert_null(data);
            assert_int_equal(n, 0);
            assert_int_equal(e.code, QWICK_ERR_RUNTIME);
            assert_non_null(strstr(e.msg, path));
            assert_non_null(strstr(e.msg, "larger than the limit"));
        }
        free(want);
    }
    assert_int_equal(map_read_all(temp_dir, 10, &data, &n, &e), -1);
    assert_non_null(strstr(e.msg, "is a directory"));
    assert_int_equal(map_read_all("/nonexistent/x", 10, &data, &n, &e), -1);
    assert_string_equal(e.msg, "/nonexistent/x: cannot open: No such file or "
                               "directory");
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    /* Files of /proc say size 0. */
    assert_int_equal(map_read_all("/proc/self/status", 1 << 20, &data, &n, &e),
                     0);
    assert_true(n > 100);
    free(data);
    assert_int_equal(map_read_all("/dev/zero", 100000, &data, &n, &e), -1);
    assert_non_null(strstr(e.msg, "larger than the limit of 100000 bytes"));
}

/* Call map_read_all with fd as standard input. */
static int read_stdin(int fd, size_t max, char **data, size_t *n,
                      struct qwick_err *e)
{
    int saved = dup(STDIN_FILENO);
    assert_true(saved >= 0);
    if (fd >= 0)
        assert_true(dup2(fd, STDIN_FILENO) >= 0);
    else
        close(STDIN_FILENO);
    int rc = map_read_all("-", max, data, n, e);
    assert_true(dup2(saved, STDIN_FILENO) >= 0);
    close(saved);
    return rc;
}

static void test_stdin(void **state)
{
    struct qwick_err e = {0};
    char *data;
    size_t n;
    /* A pipe with small, late writes; the reading end does not block. */
    for (int nonblock = 0; nonblock < 2; nonblock++) {
        int p[2];
        assert_int_equal(pipe(p), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(p[0]);
            for (int i = 0; i < 40; i++) {
                usleep(500);
                if (write(p[1], "part", 4) != 4)
                    _exit(1);
            }
            _exit(0);
        }
        close(p[1]);
        if (nonblock)
            assert_int_equal(fcntl(p[0], F_SETFL, O_NONBLOCK), 0);
        assert_int_equal(read_stdin(p[0], 1000, &data, &n, &e), 0);
        assert_int_equal(n, 160);
        assert_memory_equal(data, "partpart", 8);
        free(data);
        close(p[0]);
        int status;
        assert_true(waitpid(child, &status, 0) == child && status == 0);
    }
    assert_int_equal(read_stdin(-1, 1000, &data, &n, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "standard input"));
    int fd = open(temp_dir, O_RDONLY);
    assert_int_equal(read_stdin(fd, 1000, &data, &n, &e), -1);
    assert_string_equal(e.msg, "standard input: is a directory");
    close(fd);
    fd = open("/dev/null", O_RDONLY);
    assert_int_equal(read_stdin(fd, 1000, &data, &n, &e), 0);
    assert_int_equal(n, 0);
    assert_string_equal(data, "");
    free(data);
    close(fd);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, temp_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_regular), TEST(test_empty), TEST(test_refused),
        TEST(test_sparse),  TEST(test_read),  TEST(test_no_descriptors_kept),
        TEST(test_stdin),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
