/* Output directories that appear complete or not at all, the leftovers of dead
 * processes, and large files that are written in pieces. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/par.h"
#include "file/fs.h"
#include "file/outdir.h"
#include "file/safetensors.h"
#include "tempdir.h"

static void large_writer(void **state)
{
    const struct st_out_tensor t[] = {{"a", DT_U8, 1, {10}, NULL},
                                      {"b", DT_U8, 1, {0}, NULL},
                                      {"c", DT_U8, 1, {4}, NULL}};
    const char *path = temp_path("w.safetensors");
    struct st_writer *w;
    struct st_set *set;
    struct qwick_err e;
    assert_ok(st_writer_open_large(&w, path, "a\"b", t, 3, &e), &e);
    assert_int_equal(st_writer_at(w, 3, 0, "x", 1, &e), -1);
    assert_int_equal(st_writer_at(w, 0, 9, "xy", 2, &e), -1);
    assert_int_equal(st_writer_at(w, 0, SIZE_MAX, "xy", 2, &e), -1);
    assert_int_equal(st_writer_at(w, 1, 0, "x", 1, &e), -1);
    assert_int_equal(e.code, QWICK_ERR_USAGE);
    assert_ok(st_writer_at(w, 2, 0, "wxyz", 4, &e), &e);
    assert_ok(st_writer_at(w, 0, 6, "6789", 4, &e), &e);
    assert_ok(st_writer_at(w, 0, 0, "012345", 6, &e), &e);
    assert_false(exists(path));
    assert_ok(st_writer_close(w, &e), &e);
    assert_ok(st_open_file(&set, path, &e), &e);
    assert_memory_equal(st_find(set, "a")->data, "0123456789", 10);
    assert_memory_equal(st_find(set, "c")->data, "wxyz", 4);
    st_close(set);
    assert_ok(st_writer_open_large(&w, path, "mlx", t, 3, &e), &e);
    assert_ok(st_writer_at(w, 0, 0, "012345", 6, &e), &e);
    assert_int_equal(st_writer_close(w, &e), -1);
    assert_non_null(strstr(e.msg, "8 bytes of data did not come"));
    assert_ok(st_writer_open_large(&w, path, "mlx", t, 0, &e), &e);
    assert_ok(st_writer_close(w, &e), &e);
    assert_ok(st_open_file(&set, path, &e), &e);
    assert_int_equal(st_count(set), 0);
    st_close(set);
    unlink(path);
    assert_int_equal(entries(temp_dir), 0);
}

/* The test pattern: bytes of a tensor from `at` on. */
static void pattern(unsigned char *out, size_t tensor, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)((at + i) * 2654435761u >> 16 ^ tensor);
}

enum { WIDE = 11000003, PART = 99991, PARTS = (WIDE + PART - 1) / PART };

struct pieces {
    struct st_writer *w;
    size_t order[4 * PARTS], n;
    int failed;
};

static void write_pieces(void *ctx, struct par_team *team, int tid,
                         int n_threads)
{
    struct pieces *p = ctx;
    unsigned char *bytes = malloc(PART);
    size_t begin, end;
    (void)tid;
    (void)n_threads;
    assert_non_null(bytes);
    while (par_next(team, p->n, 1, &begin, &end)) {
        size_t tensor = p->order[begin] / PARTS;
        size_t at = p->order[begin] % PARTS * PART;
        size_t n = WIDE - at < PART ? WIDE - at : PART;
        pattern(bytes, tensor, at, n);
        if (st_writer_at(p->w, tensor, at, bytes, n, NULL))
            __atomic_store_n(&p->failed, 1, __ATOMIC_RELAXED);
    }
    free(bytes);
}

/* Three threads write pieces in any order, from more parts of the file than the
 * writer collects in memory at a time. */
static void large_writer_in_pieces(void **state)
{
    const struct st_out_tensor t[] = {{"a", DT_U8, 1, {WIDE}, NULL},
                                      {"b", DT_U8, 1, {WIDE}, NULL},
                                      {"c", DT_U8, 1, {WIDE}, NULL},
                                      {"d", DT_U8, 1, {WIDE}, NULL}};
    const char *path = temp_path("w.safetensors");
    unsigned char *want = malloc(WIDE);
    struct pieces p = {.n = 4 * PARTS};
    struct par_pool *pool = par_create(3);
    struct st_set *set;
    struct qwick_err e;
    assert_non_null(want);
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        for (size_t i = 0; i < p.n; i++)
            p.order[i] = shuffled ? i * 211 % p.n : i; /* 211: coprime */
        assert_ok(st_writer_open_large(&p.w, path, "mlx", t, 4, &e), &e);
        par_run(pool, write_pieces, &p);
        assert_int_equal(p.failed, 0);
        assert_ok(st_writer_close(p.w, &e), &e);
        assert_ok(st_open_file(&set, path, &e), &e);
        for (size_t i = 0; i < 4; i++) {
            pattern(want, i, 0, WIDE);
            assert_memory_equal(st_find(set, t[i].name)->data, want, WIDE);
        }
        st_close(set);
    }
    /* abort in the middle */
    assert_ok(st_writer_open_large(&p.w, path, "mlx", t, 4, &e), &e);
    p.n = 50;
    par_run(pool, write_pieces, &p);
    st_writer_abort(p.w);
    par_free(pool);
    free(want);
    unlink(path);
    assert_int_equal(entries(temp_dir), 0);
}

/* State of the replaced renames below. */
static int exchange_fails;  /* errno for renameat2; 0: it works */
static const char *watched; /* path that must exist after every rename, or
                               NULL */
static int n_gaps;

static int renamed(long rc)
{
    int err = errno;
    n_gaps += watched && !exists(watched);
    errno = err;
    return (int)rc;
}

/* These replace the C library's functions. */
int rename(const char *from, const char *to)
{
    return renamed(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to,
              unsigned flags)
{
    if (exchange_fails) {
        errno = exchange_fails;
        return -1;
    }
    return renamed(syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
}

static void put_checkpoint(const char *name, const char *mark)
{
    char path[600];
    mkdir(temp_path(name), 0777);
    snprintf(path, sizeof path, "%s/config.json", name);
    put_file(temp_path(path), mark, strlen(mark));
    snprintf(path, sizeof path, "%s/weights", name);
    put_file(temp_path(path), mark, strlen(mark));
}

static void check_checkpoint(const char *name, const char *mark)
{
    char path[600], text[16] = "";
    snprintf(path, sizeof path, "%s/config.json", name);
    FILE *f = fopen(temp_path(path), "rb");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, sizeof text - 1, f), strlen(mark));
    fclose(f);
    assert_string_equal(text, mark);
}

/* A replaced directory exists at every moment, if the file system supports
 * that, and no other files are left. */
static void replaced_at_once(void **state)
{
    static const int errors[] = {0, EINVAL, ENOSYS, ENOTSUP};
    struct outdir *d;
    struct qwick_err e;
    char path[200];
    put_checkpoint("d", "old");
    snprintf(path, sizeof path, "%s/d", temp_dir);
    watched = path;
    if (syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, path,
                RENAME_EXCHANGE)) {
        print_message("SKIP: no RENAME_EXCHANGE here: %s\n", strerror(errno));
        watched = NULL;
        skip();
    }
    for (size_t i = 0; i < 4; i++) {
        exchange_fails = errors[i];
        n_gaps = 0;
        assert_ok(outdir_open(&d, path, true, NULL, &e), &e);
        assert_ok(outdir_write(d, "config.json", "new", 3, &e), &e);
        assert_ok(outdir_commit(d, &e), &e);
        check_checkpoint("d", "new");
        assert_int_equal(entries(path), 1);
        assert_int_equal(entries(temp_dir), 1);
        assert_int_equal(n_gaps, i ? 1 : 0); /* documented */
        put_checkpoint("d", "old");
    }
    /* if the file system refuses the exchange, that is an error */
    exchange_fails = EACCES;
    assert_ok(outdir_open(&d, path, true, NULL, &e), &e);
    assert_int_equal(outdir_commit(d, &e), -1);
    assert_non_null(strstr(e.msg, "Permission denied"));
    check_checkpoint("d", "old");
    assert_int_equal(entries(temp_dir), 1);
    exchange_fails = 0;
    watched = NULL;
}

/* The mark of this process. Arguments that are not NULL replace its fields. */
static const char *mark_of(const char *host, const char *boot, const char *pid,
                           const char *start)
{
    static char name[200];
    char mark[LEFTOVER_MARK], *field[5], *rest = mark;
    leftover_mark(mark);
    for (int i = 0; i < 5; i++)
        field[i] = strsep(&rest, "-");
    snprintf(name, sizeof name, "%s-%s-%s-%s-%s", host ? host : field[0],
             boot ? boot : field[1], pid ? pid : field[2],
             start ? start : field[3], field[4]);
    return name;
}

static void leftovers_of_dead_processes_go(void **state)
{
    char mine[LEFTOVER_MARK], dead[32], name[300];
    int status, hold[2];
    struct outdir *d;
    struct qwick_err e;
    leftover_mark(mine);
    assert_false(leftover_dead(mine));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    snprintf(dead, sizeof dead, "%ld", (long)pid);
    const struct {
        const char *mark;
        bool stays;
    } cases[] = {
        {strdup(mark_of(NULL, NULL, dead, NULL)), false},
        {strdup(mark_of(NULL, "0000abcd", NULL, NULL)),
         false},                                               /* before boot */
        {strdup(mark_of(NULL, NULL, NULL, "1234567")), false}, /* pid reused */
        {strdup(mine), true},
        {strdup(mark_of("01234567", NULL, dead, NULL)),
         true}, /* another host */
        {strdup(mark_of(NULL, NULL, "0", NULL)), true},
        {strdup(mark_of(NULL, NULL, "-5", NULL)), true},
        {strdup("abcdef"), true}, /* not one of our names */
        {strdup(""), true},
    };
    size_t n = sizeof cases / sizeof *cases, stay = 0;
    for (size_t i = 0; i < n; i++) {
        static const char *const kinds[] = {"tmp", "old"};
        for (size_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "d.%s-%s", kinds[k], cases[i].mark);
            put_checkpoint(name, "x");
            stay += cases[i].stays;
        }
    }
    /* a leftover of another PATH; a file */
    snprintf(name, sizeof name, "dd.tmp-%s", cases[0].mark);
    put_checkpoint(name, "x");
    snprintf(name, sizeof name, "d.tmp-%s0", cases[0].mark);
    put_file(temp_path(name), "x", 1);
    put_checkpoint("d", "old");
    assert_ok(outdir_open(&d, temp_path("d"), true, NULL, &e), &e);
    outdir_abort(d);
    assert_int_equal(entries(temp_dir), stay + 3);
    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "d.tmp-%s", cases[i].mark);
        assert_int_equal(exists(temp_path(name)), cases[i].stays);
    }
    /* a leftover that a process has locked, although its id looks dead */
    snprintf(name, sizeof name, "d.tmp-%s", cases[0].mark);
    put_checkpoint(name, "x");
    int fd = open(temp_path(name), O_RDONLY);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    assert_ok(outdir_open(&d, temp_path("d"), true, NULL, &e), &e);
    outdir_abort(d);
    assert_true(exists(temp_path(name)));
    close(fd);
    assert_ok(outdir_open(&d, temp_path("d"), true, NULL, &e), &e);
    outdir_abort(d);
    assert_false(exists(temp_path(name)));

    /* killed between the two steps: the old directory is restored */
    remove_tree(temp_path("d"));
    snprintf(name, sizeof name, "d.old-%s", cases[0].mark);
    put_checkpoint(name, "old");
    assert_int_equal(outdir_open(&d, temp_path("d"), false, NULL, &e), -1);
    assert_non_null(strstr(e.msg, "is there and not empty"));
    check_checkpoint("d", "old");
    assert_false(exists(temp_path(name)));

    /* a real process: its leftover stays while it runs, and is removed after a
     * kill */
    assert_int_equal(pipe(hold), 0);
    size_t before = entries(temp_dir);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (outdir_open(&d, temp_path("d"), true, NULL, &e) ||
            outdir_write(d, "weights", "x", 1, &e) ||
            write(hold[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    char c;
    assert_int_equal(read(hold[0], &c, 1), 1);
    for (int alive = 1; alive >= 0; alive--) {
        assert_ok(outdir_open(&d, temp_path("d"), true, NULL, &e), &e);
        outdir_abort(d);
        assert_int_equal(entries(temp_dir), before + (size_t)alive);
        kill(pid, SIGKILL);
        if (alive)
            assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    close(hold[0]);
    close(hold[1]);
    for (size_t i = 0; i < n; i++)
        free((char *)(uintptr_t)cases[i].mark);
}

/* Cleaning up needs no descriptor and no memory. */
static void removed_without_descriptors(void **state)
{
    struct outdir *d;
    struct qwick_err e;
    struct rlimit was, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    for (int how = 0; how < 2; how++) {
        assert_ok(outdir_open(&d, temp_path("d"), false, NULL, &e), &e);
        for (int i = 0; i < 300; i++) {
            char name[64];
            snprintf(name, sizeof name, "a-file-of-a-checkpoint-%d", i);
            assert_ok(outdir_write(d, name, "x", 1, &e), &e);
        }
        few = was;
        few.rlim_cur = 3;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        if (how)
            outdir_abandon();
        else
            outdir_abort(d);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
        assert_int_equal(entries(temp_dir), 0);
        if (how)
            outdir_abort(d);
    }
    /* outdir_abandon leaves a finished directory */
    assert_ok(outdir_open(&d, temp_path("d"), false, NULL, &e), &e);
    assert_ok(outdir_write(d, "f", "x", 1, &e), &e);
    assert_ok(outdir_commit(d, &e), &e);
    outdir_abandon();
    assert_true(exists(temp_path("d/f")));
}

/* Files that appear at PATH while we write are not lost. */
static void directory_that_changed(void **state)
{
    struct outdir *d;
    struct qwick_err e;
    mkdir(temp_path("d"), 0777);
    for (int replace = 0; replace <= 1; replace++) {
        assert_ok(outdir_open(&d, temp_path("d"), replace, NULL, &e), &e);
        assert_ok(outdir_write(d, "f", "new", 3, &e), &e);
        assert_int_equal(outdir_write(d, "f", "new", 3, &e), -1);
        put_file(temp_path("d/f"), "old", 3);
        assert_int_equal(outdir_commit(d, &e), -1);
        assert_true(exists(temp_path("d/f")));
        assert_int_equal(entries(temp_dir), 1);
        unlink(temp_path("d/f"));
    }
    struct stat st, other;
    assert_ok(outdir_open(&d, temp_path("d"), false, NULL, &e), &e);
    assert_ok(outdir_commit(d, &e), &e);
    mkdir(temp_path("e"), 0777);
    assert_int_equal(stat(temp_path("d"), &st), 0);
    assert_int_equal(stat(temp_path("e"), &other), 0);
    assert_int_equal(st.st_mode, other.st_mode);
    rmdir(temp_path("d"));
    rmdir(temp_path("e"));
    outdir_abort(NULL);
}

#define IN_DIRECTORY(f) \
    cmocka_unit_test_setup_teardown(f, temp_setup, temp_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(large_writer),
        IN_DIRECTORY(large_writer_in_pieces),
        IN_DIRECTORY(directory_that_changed),
        IN_DIRECTORY(replaced_at_once),
        IN_DIRECTORY(leftovers_of_dead_processes_go),
        IN_DIRECTORY(removed_without_descriptors),
    };
    return cmocka_run_group_tests_name("outdir", tests, NULL, NULL);
}
