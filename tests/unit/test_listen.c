/* Addresses of --listen, and their sockets. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/http/listen.h"
#include "tempdir.h"
#include "test.h"

static void test_addresses(void **state)
{
    static const struct {
        const char *text, *shown; /* shown NULL: refused */
        bool local, wildcard;
    } rows[] = {
        {"127.0.0.1:8080", "http://127.0.0.1:8080", true, false},
        {"127.1.2.3:1", "http://127.1.2.3:1", true, false},
        {"localhost:80", "http://127.0.0.1:80", true, false},
        {"8080", "http://127.0.0.1:8080", true, false},
        {"0", "http://127.0.0.1:0", true, false},
        {"[::1]:8080", "http://[::1]:8080", true, false},
        {"[::]:65535", "http://[::]:65535", false, true},
        {"0.0.0.0:80", "http://0.0.0.0:80", false, true},
        {"192.168.1.2:80", "http://192.168.1.2:80", false, false},
        {"[fe80::1]:80", "http://[fe80::1]:80", false, false},
        {"unix:/run/x", "unix:/run/x", true, false},
        {"unix:x", "unix:x", true, false},
        {"fd:systemd", "fd:systemd", false, false},
        {"", NULL, false, false},
        {"127.0.0.1", NULL, false, false},
        {"127.0.0.1:", NULL, false, false},
        {"127.0.0.1:65536", NULL, false, false},
        {"127.0.0.1:100000", NULL, false, false},
        {"127.0.0.1:-1", NULL, false, false},
        {"127.0.0.1: 1", NULL, false, false},
        {"127.0.0.1:8a", NULL, false, false},
        {"127.1:80", NULL, false, false},
        {":80", NULL, false, false},
        {"::1:80", NULL, false, false},
        {"[::1]", NULL, false, false},
        {"[]:80", NULL, false, false},
        {"[:80", NULL, false, false},
        {"[127.0.0.1]:80", NULL, false, false},
        {"example.com:80", NULL, false, false},
        {"http://127.0.0.1:80", NULL, false, false},
        {"unix:", NULL, false, false},
        {"fd:3", NULL, false, false},
    };
    struct listen_addr a;
    struct qwick_err e;
    char path[200] = "unix:";

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int r = listen_parse(rows[i].text, &a, &e);

        if ((r == 0) != (rows[i].shown != NULL))
            fail_msg("%s: %d", rows[i].text, r);
        if (r != 0) {
            assert_int_equal(e.code, QWICK_ERR_USAGE);
            continue;
        }
        assert_string_equal(LISTEN_SHOW(&a), rows[i].shown);
        assert_int_equal(listen_is_local(&a), rows[i].local);
        assert_int_equal(listen_is_wildcard(&a), rows[i].wildcard);
    }
    memset(path + 5, 'x', 107);
    assert_int_equal(listen_parse(path, &a, &e), 0);
    path[5 + 107] = 'x';
    assert_int_equal(listen_parse(path, &a, &e), -1);
}

static int open_text(struct listeners *l, const char *text, struct qwick_err *e)
{
    struct listen_addr a;

    assert_int_equal(listen_parse(text, &a, e), 0);
    return listen_open(l, &a, 1, e);
}

static void test_tcp(void **state)
{
    struct listeners first, second;
    struct qwick_err e;
    const char *shown;

    assert_ok(open_text(&first, "127.0.0.1:0", &e), &e);
    shown = LISTEN_SHOW(&first.v[0].a);
    assert_string_not_equal(shown, "http://127.0.0.1:0");
    assert_true(fcntl(first.v[0].fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(first.v[0].fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(open_text(&second, shown + strlen("http://"), &e), -1);
    assert_int_equal(e.code, QWICK_ERR_RUNTIME);
    assert_non_null(strstr(e.msg, "another program listens there"));
    listen_close(&first);
}

/* A value of --listen for a path in temp_dir. */
static const char *unix_text(const char *name)
{
    static char text[120];

    snprintf(text, sizeof text, "unix:%s/%s", temp_dir, name);
    return text;
}

static void test_unix(void **state)
{
    struct listeners l, other;
    struct qwick_err e;
    struct stat st;
    const char *text, *path;
    FILE *f;

    text = unix_text("s");
    path = text + strlen("unix:");
    assert_ok(open_text(&l, text, &e), &e);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* one that is in use */
    assert_int_equal(open_text(&other, text, &e), -1);
    assert_non_null(strstr(e.msg, "another program listens there"));
    assert_int_equal(stat(path, &st), 0);
    /* one that is left of a killed process */
    close(l.v[0].fd);
    l.v[0].unlink = false;
    l.v[0].fd = -1;
    listen_close(&l);
    assert_ok(open_text(&l, text, &e), &e);
    listen_close(&l);
    assert_int_equal(stat(path, &st), -1);
    /* a file */
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(open_text(&l, text, &e), -1);
    assert_non_null(strstr(e.msg, "no socket"));
    assert_int_equal(unlink(path), 0);
    /* a link to a dead socket is not followed */
    assert_int_equal(symlink("nothing", path), 0);
    assert_int_equal(open_text(&l, text, &e), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(open_text(&l, unix_text("none/s"), &e), -1);
}

/* In a child, which has descriptors 3 and 4 as systemd hands them over. Returns
 * the exit status: 0, or the number of the check that failed. */
static int systemd_child(int tcp, int local)
{
    struct listeners l;
    struct qwick_err e;
    char pid[24];

    if (dup2(tcp, 10) < 0 || dup2(local, 11) < 0 || dup2(10, 3) < 0 ||
        dup2(11, 4) < 0)
        return 1;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    if (open_text(&l, "fd:systemd", &e) != -1)
        return 2;
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_PID", "1", 1);
    if (open_text(&l, "fd:systemd", &e) != -1)
        return 3; /* meant for another process */
    snprintf(pid, sizeof pid, "%d", getpid());
    setenv("LISTEN_PID", pid, 1);
    if (open_text(&l, "fd:systemd", &e) != 0 || l.n != 2)
        return 4;
    if (l.v[0].a.kind != LISTEN_TCP || l.v[1].a.kind != LISTEN_UNIX)
        return 5;
    if (l.v[0].fd != 3 || !(fcntl(3, F_GETFD) & FD_CLOEXEC) ||
        !(fcntl(4, F_GETFL) & O_NONBLOCK))
        return 6;
    listen_close(&l);
    if (dup2(open("/dev/null", O_RDONLY), 3) != 3)
        return 7;
    setenv("LISTEN_FDS", "1", 1);
    if (open_text(&l, "fd:systemd", &e) != -1 || !strstr(e.msg, "descriptor 3"))
        return 8;
    return 0;
}

static void test_systemd(void **state)
{
    struct listeners tcp, local;
    struct qwick_err e;
    struct stat st;
    int status;
    pid_t child;

    assert_ok(open_text(&tcp, "127.0.0.1:0", &e), &e);
    assert_ok(open_text(&local, unix_text("s"), &e), &e);
    child = fork();
    if (child == 0)
        _exit(systemd_child(tcp.v[0].fd, local.v[0].fd));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(WIFEXITED(status));
    /* the path is systemd's */
    assert_int_equal(stat(local.v[0].a.path, &st), 0);
    listen_close(&tcp);
    listen_close(&local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_tcp),
        cmocka_unit_test_setup(test_unix, fresh),
        cmocka_unit_test_setup(test_systemd, fresh),
    };

    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
