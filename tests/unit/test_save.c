/* Files that are replaced: their rights, links, devices, full disks. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/save.h"
#include "tempdir.h"

static struct qwick_err e;

static void has(const char *path, const char *want, mode_t mode)
{
    char got[64] = "";
    struct stat st;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, got, sizeof got - 1);
    close(fd);
    assert_int_equal(n, strlen(want));
    assert_string_equal(got, want);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, mode);
}

static mode_t mode_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_mode & 0777;
}

static void modes(void **state)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0666, 0400, 0755, 0700};
    const char *path = temp_path("f");
    umask(027);
    assert_ok(save_put(path, SAVE_SHARED, "new", 3, &e), &e);
    has(path, "new", 0640);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct save s;
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_ok(save_begin(&s, path, SAVE_SHARED, &e), &e);
        /* never more than the result has */
        assert_int_equal(mode_of(s.fd) & ~modes[i], 0);
        assert_ok(save_write(&s, "a", 1, &e), &e);
        assert_ok(save_write(&s, "b", 1, &e), &e);
        assert_ok(save_commit(&s, &e), &e);
        has(path, "ab", modes[i]);
    }
    assert_int_equal(chmod(path, 0644), 0);
    assert_ok(save_put(path, SAVE_PRIVATE, "p", 1, &e), &e);
    has(path, "p", 0600);
    assert_ok(save_put(temp_path("g"), SAVE_PRIVATE, "q", 1, &e), &e);
    has(temp_path("g"), "q", 0600);
    assert_int_equal(entries(temp_dir), 2);
    umask(022);
}

/* A group that we may not set must not be replaced by another one that can
 * read. */
static void owners(void **state)
{
    struct stat st;
    const char *path = temp_path("f");
    if (geteuid() != 0) {
        print_message("SKIP: needs root\n");
        skip();
    }
    put_file(path, "old", 3);
    assert_int_equal(chown(path, 1234, 4321), 0);
    assert_int_equal(chmod(path, 0660), 0);
    assert_ok(save_put(path, SAVE_SHARED, "new", 3, &e), &e);
    has(path, "new", 0660);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 1234);
    assert_int_equal(st.st_gid, 4321);
    /* as a user who is in none of the file's groups */
    assert_int_equal(chmod(temp_dir, 0777), 0);
    assert_int_equal(seteuid(1235), 0);
    int rc = save_put(path, SAVE_SHARED, "other", 5, &e);
    assert_int_equal(seteuid(0), 0);
    assert_ok(rc, &e);
    has(path, "other", 0600);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 1235);
}

static void links(void **state)
{
    struct save s;
    struct stat st;
    int in_place;
    mkdir(temp_path("d"), 0700);
    put_file(temp_path("d/f"), "old", 3);
    assert_int_equal(chmod(temp_path("d/f"), 0604), 0);
    assert_int_equal(symlink("d/f", temp_path("one")), 0);
    assert_int_equal(symlink(temp_path("one"), temp_path("two")), 0);
    assert_ok(save_put(temp_path("two"), SAVE_SHARED, "new", 3, &e), &e);
    has(temp_path("d/f"), "new", 0604);
    assert_int_equal(lstat(temp_path("two"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(entries(temp_path("d")), 1);
    /* a file that does not exist yet */
    assert_int_equal(symlink("d/g", temp_path("new")), 0);
    assert_ok(save_put(temp_path("new"), SAVE_SHARED, "x", 1, &e), &e);
    has(temp_path("d/g"), "x", 0644);
    char *target = save_target(temp_path("two"), &in_place, &e);
    assert_string_equal(target, temp_path("d/f"));
    assert_false(in_place);
    free(target);
    /* private files follow none */
    assert_int_equal(save_begin(&s, temp_path("two"), SAVE_PRIVATE, &e), -1);
    assert_non_null(strstr(e.msg, "is a symbolic link"));
    has(temp_path("d/f"), "new", 0604);
    /* a circle */
    assert_int_equal(symlink("b", temp_path("a")), 0);
    assert_int_equal(symlink("a", temp_path("b")), 0);
    assert_int_equal(save_begin(&s, temp_path("a"), SAVE_SHARED, &e), -1);
    assert_non_null(strstr(e.msg, strerror(ELOOP)));
    assert_int_equal(save_check(temp_path("a"), &e), -1);
}

static void *read_fifo(void *path)
{
    static char got[16];
    int fd = open(path, O_RDONLY);
    size_t n = 0;
    for (ssize_t k; n < sizeof got && (k = read(fd, got + n, 16 - n)) > 0;)
        n += (size_t)k;
    close(fd);
    got[n] = 0;
    return got;
}

/* Devices, FIFOs and descriptors stay what they are. */
static void in_place(void **state)
{
    struct save s;
    struct stat st;
    void *got;
    pthread_t reader;
    char *fifo = strdup(temp_path("fifo"));
    char proc[64];
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_fifo, fifo), 0);
    assert_ok(save_put(fifo, SAVE_SHARED, "piped", 5, &e), &e);
    pthread_join(reader, &got);
    assert_string_equal(got, "piped");
    assert_int_equal(lstat(fifo, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_ok(save_put("/dev/null", SAVE_SHARED, "x", 1, &e), &e);
    assert_ok(save_check("/dev/null", &e), &e);
    assert_int_equal(save_begin(&s, fifo, SAVE_PRIVATE, &e), -1);
    assert_non_null(strstr(e.msg, "not a regular file"));
    free(fifo);

    int fd = open(temp_path("f"), O_RDWR | O_CREAT, 0600);
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    assert_ok(save_put(proc, SAVE_SHARED, "same", 4, &e), &e);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 4);
    assert_int_equal(st.st_nlink, 1);
    close(fd);

    assert_int_equal(save_begin(&s, temp_dir, SAVE_SHARED, &e), -1);
    assert_non_null(strstr(e.msg, "cannot create: Is a directory"));
    assert_int_equal(save_check(temp_dir, &e), -1);
    assert_int_equal(entries(temp_dir), 2);
}

/* On each failure the old file stays, and nothing else does. */
static void failures(void **state)
{
    struct save s;
    struct rlimit old, small = {8, 8};
    char *path = strdup(temp_path("f"));
    char *name = malloc(300);
    assert_non_null(name);
    memset(name, 'n', 299);
    name[299] = 0;
    put_file(path, "old", 3);
    assert_int_equal(chmod(path, 0600), 0);
    /* a full disk, as a limit on the size of files */
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small.rlim_max = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(save_put(path, SAVE_SHARED, "longer than 8", 13, &e), -1);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_non_null(strstr(e.msg, "cannot write: File too large"));
    has(path, "old", 0600);
    /* given up */
    assert_ok(save_begin(&s, path, SAVE_SHARED, &e), &e);
    assert_ok(save_write(&s, "new", 3, &e), &e);
    save_abort(&s);
    save_abort(&s);
    has(path, "old", 0600);
    /* the name has become a directory meanwhile */
    assert_ok(save_begin(&s, path, SAVE_SHARED, &e), &e);
    unlink(path);
    mkdir(path, 0700);
    assert_int_equal(save_commit(&s, &e), -1);
    assert_non_null(strstr(e.msg, "f: cannot write: Is a directory"));
    rmdir(path);
    assert_int_equal(save_put(temp_path("no/f"), SAVE_SHARED, "", 0, &e), -1);
    assert_non_null(strstr(e.msg, "cannot create: No such file"));
    assert_int_equal(save_put(temp_path(name), SAVE_SHARED, "", 0, &e), -1);
    assert_non_null(strstr(e.msg, strerror(ENAMETOOLONG)));
    assert_int_equal(save_put(temp_path("f/"), SAVE_SHARED, "", 0, &e), -1);
    assert_int_equal(save_check(temp_path("no/f"), &e), -1);
    assert_ok(save_check(path, &e), &e);
    assert_ok(save_check("relative", &e), &e);
    assert_int_equal(entries(temp_dir), 0);
    free(name);
    free(path);
}

#define IN_DIRECTORY(f) \
    cmocka_unit_test_setup_teardown(f, temp_setup, temp_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(modes),    IN_DIRECTORY(owners),   IN_DIRECTORY(links),
        IN_DIRECTORY(in_place), IN_DIRECTORY(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
