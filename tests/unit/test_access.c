/* The rules about Host, Origin and keys. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/http/access.h"
#include "tempdir.h"
#include "test.h"

#define KEY   "sk-0123456789abcdef"
#define OTHER "another-key-0123456789"

static const char *const hosts[] = {"box", "box.example"};
static const char *const origins[] = {"https://app.example:8443", "null"};

/* Bind to these addresses on paper. */
static size_t bind_to(struct listener *l, const char *const *texts)
{
    size_t n = 0;
    struct qwick_err e;

    for (; texts[n]; n++) {
        l[n] = (struct listener){.fd = -1};
        assert_ok(listen_parse(texts[n], &l[n].a, &e), &e);
    }
    return n;
}

static const char *write_file(const char *name, const char *text, mode_t mode)
{
    const char *path = temp_path(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void test_hosts(void **state)
{
    static const char *const bound[] = {"127.0.0.1:80", "192.168.1.2:80",
                                        "[fd00::1]:80", "[::]:80",
                                        "unix:x",       NULL};
    static const struct {
        const char *host;
        int status;
    } rows[] = {
        {NULL, 0},
        {"localhost", 0},
        {"LocalHost:8080", 0},
        {"127.0.0.1", 0},
        {"127.9.9.9:1", 0},
        {"[::1]", 0},
        {"[::1]:8080", 0},
        {"192.168.1.2", 0},
        {"192.168.1.2:99", 0},
        {"[fd00::1]:80", 0},
        {"[FD00:0::1]", 0},
        {"BOX:80", 0},
        {"box.example", 0},
        {"", 403},
        {":80", 403},
        {"evil.example", 403},
        {"localhost.evil.example", 403},
        {"127.0.0.1.evil.example", 403},
        {"evil.example:127.0.0.1", 403},
        {"evil.example@localhost", 403},
        {"localhost@evil.example", 403},
        {"localhost:80:80", 403},
        {"localhost:8x", 403},
        {"localhost.", 403},
        {"localhost, evil.example", 403},
        {"192.168.1.3", 403},
        {"0.0.0.0", 403},
        {"[::]:80", 403},
        {"[::1", 403},
        {"[::1]x", 403},
        {"127.1", 403},
        {"2130706433", 403},
        {"boxes", 403},
        {"bo", 403},
    };
    struct listener l[8];
    struct access_options o = {.hosts = {(const char **)hosts, 2},
                               .no_auth = true,
                               .bound = l,
                               .n_bound = bind_to(l, bound)};
    struct access *a;
    struct qwick_err e;

    assert_ok(access_open(&a, &o, &e), &e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct access_head h = {.method = "GET", .host = rows[i].host};
        struct access_answer r = access_check(a, &h);

        if (r.status != rows[i].status)
            fail_msg("Host %s: %d", rows[i].host, r.status);
    }
    access_close(a);
}

static void test_origins(void **state)
{
    static const struct {
        const char *method, *origin, *site;
        int status;
        bool echoed;
    } rows[] = {
        {"POST", "https://app.example:8443", NULL, 0, true},
        {"POST", "https://app.example:8443", "cross-site", 0, true},
        {"OPTIONS", "https://app.example:8443", NULL, 204, true},
        {"POST", "null", NULL, 0, true},
        {"POST", "https://app.example", NULL, 403, false},
        {"POST", "http://app.example:8443", NULL, 403, false},
        {"POST", "https://APP.example:8443", NULL, 403, false},
        {"POST", "https://app.example:8443/", NULL, 403, false},
        {"POST", "", NULL, 403, false},
        {"POST", "http://localhost", NULL, 403, false},
        {"POST", "http://127.0.0.1:8080", "same-origin", 403, false},
        {"OPTIONS", "https://evil.example", NULL, 403, false},
        {"OPTIONS", NULL, NULL, 0, false},
        {"GET", NULL, "cross-site", 403, false},
        {"GET", NULL, "Cross-Site", 403, false},
        {"GET", NULL, "same-origin", 0, false},
        {"GET", NULL, "none", 0, false},
    };
    struct access_options o = {.origins = {(const char **)origins, 2}};
    struct access *a;
    struct qwick_err e;

    assert_ok(access_open(&a, &o, &e), &e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct access_head h = {.method = rows[i].method,
                                .host = "localhost",
                                .origin = rows[i].origin,
                                .fetch_site = rows[i].site};
        struct access_answer r = access_check(a, &h);

        if (r.status != rows[i].status || (r.origin != NULL) != rows[i].echoed)
            fail_msg("row %zu: %d %s", i, r.status, r.origin);
        if (r.origin)
            assert_string_equal(r.origin, rows[i].origin);
        assert_int_equal(r.why != NULL, r.status == 403);
    }
    access_close(a);
    o.origins.n = 0;
    assert_ok(access_open(&a, &o, &e), &e);
    assert_int_equal(access_check(a, &(struct access_head){.method = "GET",
                                                           .origin = "null"})
                         .status,
                     403);
    access_close(a);
}

static int key_status(const struct access *a, const char *authorization,
                      const char *api_key)
{
    struct access_head h = {.method = "POST",
                            .host = "localhost",
                            .authorization = authorization,
                            .api_key = api_key};

    return access_check(a, &h).status;
}

static void test_keys(void **state)
{
    struct access_options o = {0};
    struct access_head open = {.method = "GET", .open = true};
    struct access *a;
    struct qwick_err e;
    char longer[600];

    o.key_file = write_file("keys", "\n" KEY "\r\n\n  \n" OTHER, 0600);
    assert_ok(access_open(&a, &o, &e), &e);
    assert_int_equal(key_status(a, "Bearer " KEY, NULL), 0);
    assert_int_equal(key_status(a, "bearer   " KEY, NULL), 0);
    assert_int_equal(key_status(a, NULL, OTHER), 0);
    assert_int_equal(key_status(a, "Bearer wrong", OTHER), 0);
    assert_int_equal(key_status(a, NULL, NULL), 401);
    assert_int_equal(key_status(a, "", ""), 401);
    assert_int_equal(key_status(a, KEY, NULL), 401);
    assert_int_equal(key_status(a, "Basic " KEY, NULL), 401);
    assert_int_equal(key_status(a, "Bearer " KEY "x", NULL), 401);
    assert_int_equal(key_status(a, "Bearer sk-0123456789abcde", NULL), 401);
    assert_int_equal(key_status(a, "Bearer", NULL), 401);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(key_status(a, NULL, longer), 401);
    assert_int_equal(access_check(a, &open).status, 0);

    /* read again: a bad file changes nothing */
    write_file("keys", "", 0600);
    assert_int_equal(access_reload(a, &e), -1);
    assert_int_equal(key_status(a, NULL, KEY), 0);
    write_file("keys", "a-third-key-0123456789\n", 0604);
    assert_int_equal(access_reload(a, &e), -1);
    assert_int_equal(unlink(o.key_file), 0);
    assert_int_equal(access_reload(a, &e), -1);
    assert_int_equal(key_status(a, NULL, KEY), 0);
    write_file("keys", "a-third-key-0123456789\n", 0600);
    assert_ok(access_reload(a, &e), &e);
    assert_int_equal(key_status(a, NULL, KEY), 401);
    assert_int_equal(key_status(a, NULL, "a-third-key-0123456789"), 0);
    access_close(a);
}

/* A preflight has no key. The key is needed with an allowed origin, too. */
static void test_keys_and_origins(void **state)
{
    struct access_options o = {.origins = {(const char **)origins, 2}};
    struct access_head h = {.method = "OPTIONS", .origin = origins[0]};
    struct access *a;
    struct qwick_err e;

    o.key_file = write_file("keys", KEY, 0600);
    assert_ok(access_open(&a, &o, &e), &e);
    assert_int_equal(access_check(a, &h).status, 204);
    h.method = "POST";
    assert_int_equal(access_check(a, &h).status, 401);
    assert_string_equal(access_check(a, &h).origin, origins[0]);
    access_close(a);
}

static void test_options(void **state)
{
    static const struct {
        const char *bound;
        bool key, no_auth, host;
        const char *why; /* NULL: fine */
    } rows[] = {
        {"127.0.0.1:1", false, false, false, NULL},
        {"unix:x", false, false, false, NULL},
        {"[::1]:1", false, false, false, NULL},
        {"192.168.1.2:1", false, false, false, "--api-key-file"},
        {"192.168.1.2:1", true, false, false, NULL},
        {"192.168.1.2:1", false, true, false, NULL},
        {"0.0.0.0:1", true, false, false, "--allow-host"},
        {"[::]:1", false, true, false, "--allow-host"},
        {"0.0.0.0:1", true, false, true, NULL},
        {"0.0.0.0:1", false, false, true, "--api-key-file"},
    };
    static const struct {
        const char *text, *why;
        mode_t mode;
    } files[] = {
        {KEY "\n", NULL, 0640},
        {KEY "\n", "other users", 0644},
        {KEY "\n", "other users", 0602},
        {"", "has no key", 0600},
        {"\n \r\n", "has no key", 0600},
        {KEY "\nshort\n", "line 2", 0600},
        {"a key with blanks 0123\n", "line 1", 0600},
        {"0123456789abcde\xc3\xa9\n", "line 1", 0600},
    };
    struct access *a;
    struct qwick_err e;
    struct listener l[1];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const bound[] = {rows[i].bound, NULL};
        struct access_options o = {.bound = l,
                                   .n_bound = bind_to(l, bound),
                                   .no_auth = rows[i].no_auth};

        if (rows[i].key)
            o.key_file = write_file("keys", KEY "\n", 0600);
        if (rows[i].host)
            o.hosts = (struct strings){(const char **)hosts, 1};
        assert_int_equal(access_open(&a, &o, &e), rows[i].why ? -1 : 0);
        if (rows[i].why)
            assert_non_null(strstr(e.msg, rows[i].why));
        access_close(a);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct access_options o = {0};

        o.key_file = write_file("keys", files[i].text, files[i].mode);
        assert_int_equal(access_open(&a, &o, &e), files[i].why ? -1 : 0);
        if (files[i].why) {
            assert_int_equal(e.code, QWICK_ERR_USAGE);
            assert_non_null(strstr(e.msg, files[i].why));
            assert_null(strstr(e.msg, "0123456789"));
        }
        access_close(a);
    }
    assert_true(access_is_name_list("authorization, x-stainless-os"));
    assert_false(access_is_name_list("a\r\nb"));
    assert_false(access_is_name_list(""));
    assert_false(access_is_name_list(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test_setup(test_keys, fresh),
        cmocka_unit_test_setup(test_keys_and_origins, fresh),
        cmocka_unit_test_setup(test_options, fresh),
    };

    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
