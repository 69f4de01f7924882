/* The log of answers: its limit, what removal leaves, files that are no log,
 * and processes that write at the same time. */
#include <fcntl.h>
#include <sys/wait.h>

#include "cli/store/log_db.h"
#include "cli/store/sqlite.h"
#include "lcg.h"
#include "tempdir.h"
#include "test.h"

static bool no_library(void)
{
    struct qwick_err e;
    if (!sqlite_load(&e))
        return false;
    printf("SKIP: %s\n", e.msg);
    return true;
}

static struct log_db *log_made(const char *path, int64_t max)
{
    struct log_db *l;
    struct qwick_err e;
    assert_ok(log_db_create(&l, path, max, &e), &e);
    return l;
}

static void add(struct log_db *l, const char *prompt, const char *answer)
{
    const struct log_row row = {.verb = log_text("generate"),
                                .prompt = log_text(prompt),
                                .answer = log_text(answer)};
    struct qwick_err e;
    assert_ok(log_db_add(l, &row, &e), &e);
}

static size_t file_size(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

struct ids {
    int64_t v[300];
    size_t n;
    char prompt[100];
};

static int note_id(void *ctx, const struct log_row *row)
{
    struct ids *ids = ctx;
    assert_true(ids->n < 300);
    ids->v[ids->n++] = row->id;
    snprintf(ids->prompt, sizeof ids->prompt, "%s",
             row->prompt.s ? row->prompt.s : "");
    return 0;
}

static struct ids ids_of(struct log_db *l, struct log_query q)
{
    struct ids ids = {0};
    struct qwick_err e;
    assert_ok(log_db_each(l, &q, note_id, &ids, &e), &e);
    return ids;
}

/* ---- the limit ---- */

static void oldest_go(void **state)
{
    enum { MAX = 300000, ROWS = 200, MOST = 20000 };
    static char text[MOST + 1];
    const char *path = temp_path("log.db");
    if (no_library())
        return;
    struct log_db *l = log_made(path, MAX);
    for (int i = 1; i <= ROWS; i++) {
        size_t n = below(MOST);
        memset(text, 'a' + i % 26, n);
        text[n] = 0;
        add(l, "p", text);
        assert_true(file_size(path) <= MAX);
    }
    struct ids ids = ids_of(l, (struct log_query){0});
    /* many rows are left, they are the newest, and no id comes again */
    assert_true(ids.n > 10 && ids.n < ROWS);
    assert_true(file_size(path) > MAX / 2);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.v[i], ROWS - (int64_t)ids.n + 1 + (int64_t)i);
    log_db_close(l);
}

static void too_long(void **state)
{
    static char text[200001];
    struct qwick_err e;
    if (no_library())
        return;
    struct log_db *l = log_made(temp_path("log.db"), 300000);
    add(l, "p", "a");
    memset(text, 'x', sizeof text - 1);
    const struct log_row row = {.answer = log_text(text)};
    assert_int_equal(log_db_add(l, &row, &e), -1);
    assert_non_null(strstr(e.msg, "too long for a log of 300000 bytes"));
    /* nothing else went, and the log goes on */
    add(l, "p", "b");
    assert_int_equal(ids_of(l, (struct log_query){0}).n, 2);
    log_db_close(l);
}

/* ---- removal ---- */

static bool file_has(const char *path, const char *text)
{
    size_t n = file_size(path), k = strlen(text);
    char *data = malloc(n + 1);
    int fd = open(path, O_RDONLY);
    assert_non_null(data);
    assert_int_equal(read(fd, data, n), n);
    close(fd);
    bool has = memmem(data, n, text, k) != NULL;
    free(data);
    return has;
}

/* Texts in one page, and in many. */
static void removed_text_is_gone(void **state)
{
    static char large[50001];
    const char *path = temp_path("log.db"),
               *journal = temp_path("log.db-journal");
    static const char secret[] = "the secret word";
    struct qwick_err e;
    int64_t n;
    if (no_library())
        return;
    memset(large, '.', sizeof large - 1);
    memcpy(large + 40000, secret, sizeof secret - 1);
    struct log_db *l = log_made(path, LOG_MAX_BYTES);
    add(l, "before", "a");
    add(l, secret, secret);
    add(l, "between", large);
    add(l, "after", "a");
    assert_true(file_has(path, secret));
    for (int64_t id = 2; id <= 3; id++) {
        assert_ok(log_db_remove(l, &(struct log_query){.id = id}, &n, &e), &e);
        assert_int_equal(n, 1);
    }
    assert_ok(log_db_remove(l, &(struct log_query){.id = 2}, &n, &e), &e);
    assert_int_equal(n, 0);
    for (int open = 1; open >= 0; open--) {
        assert_false(file_has(path, "secret"));
        assert_int_equal(file_size(journal), 0);
        assert_int_equal(ids_of(l, (struct log_query){0}).n, 2);
        if (open)
            log_db_close(l);
        if (open)
            l = log_made(path, LOG_MAX_BYTES);
    }
    /* the file gives back what it does not need */
    assert_true(file_size(path) < 40000);
    assert_ok(log_db_remove(l, &(struct log_query){0}, &n, &e), &e);
    assert_int_equal(n, 2);
    log_db_close(l);
}

/* ---- search ---- */

static void search(void **state)
{
    static const struct {
        const char *words[3];
        int64_t ids[4];
    } rows[] = {
        {{"GREP"}, {1}},
        {{"don't"}, {2}},
        {{"\"quoted\""}, {2}},
        {{"re-run"}, {3}},
        {{"run"}, {3}},
        {{"%"}, {3}},
        {{"_"}, {0}},
        {{"ärger"}, {4}},
        {{"STRASSE"}, {4}},
        {{"\xe4\xbd\xa0\xe5\xa5\xbd"}, {5}}, /* inside a Chinese sentence */
        {{"the", "word"}, {1, 2}},           /* one in each text */
        {{"the word"}, {1}},
        {{"the", "nothing"}, {0}},
        {{"' OR 1"}, {0}},
    };
    if (no_library())
        return;
    struct log_db *l = log_made(temp_path("log.db"), LOG_MAX_BYTES);
    add(l, "the word", "grep -r word .");
    add(l, "the", "I don't know a \"quoted\" word");
    add(l, "100% of re-run", "");
    add(l,
        "\xc3\x84RGER in der Stra\xc3\x9f"
        "e",
        "");
    add(l, "\xe6\x88\x91\xe8\xaf\xb4\xe4\xbd\xa0\xe5\xa5\xbd\xe5\x90\x97", "");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0, want = 0;
        while (n < 3 && rows[i].words[n])
            n++;
        while (rows[i].ids[want])
            want++;
        struct ids ids =
            ids_of(l, (struct log_query){.words = rows[i].words, .n_words = n});
        assert_int_equal(ids.n, want);
        for (size_t k = 0; k < want; k++)
            assert_int_equal(ids.v[k], rows[i].ids[k]);
    }
    struct ids ids = ids_of(l, (struct log_query){.last = 2});
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.v[0], 4);
    log_db_close(l);
}

/* ---- files ---- */

static void modes(void **state)
{
    static const char *const names[] = {"qwick/log/log.db",
                                        "qwick/log/log.db-journal"};
    struct stat st;
    struct log_db *l;
    struct qwick_err e;
    if (no_library())
        return;
    mode_t mask = umask(0);
    assert_ok(log_db_open(&l, temp_path(names[0]), &e), &e);
    assert_null(l);
    assert_int_equal(access(temp_path("qwick"), F_OK), -1);
    for (int again = 0; again < 2; again++) {
        l = log_made(temp_path(names[0]), LOG_MAX_BYTES);
        add(l, "a", "b");
        log_db_close(l);
        for (size_t i = 0; i < 2; i++) {
            assert_int_equal(stat(temp_path(names[i]), &st), 0);
            assert_int_equal(st.st_mode & 07777, 0600);
            chmod(temp_path(names[i]), 0644); /* the next run corrects it */
        }
        assert_int_equal(stat(temp_path("qwick/log"), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0700);
    }
    umask(mask);
    chmod(temp_path(names[0]), 0666); /* others may have written to it */
    assert_int_equal(log_db_create(&l, temp_path(names[0]), 1, &e), -1);
}

/* Run SQL on a file with a connection of its own. */
static void change(const char *path, const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite.open_v2(path, &db,
                                    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                                    NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite.exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite.close(db);
}

static void refused(const char *path, const char *why)
{
    size_t n = file_size(path);
    char *before = malloc(n), *after = malloc(n);
    struct log_db *l;
    struct qwick_err e;
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, before, n), n);
    for (int create = 0; create < 2; create++) {
        int rc = create ? log_db_create(&l, path, LOG_MAX_BYTES, &e)
                        : log_db_open(&l, path, &e);
        assert_int_equal(rc, -1);
        assert_null(l);
        assert_non_null(strstr(e.msg, why));
    }
    assert_int_equal(file_size(path), n);
    assert_int_equal(pread(fd, after, n, 0), n);
    assert_memory_equal(before, after, n);
    close(fd);
    free(before);
    free(after);
}

static void other_files(void **state)
{
    const char *path = temp_path("log.db");
    struct qwick_err e;
    struct log_db *l;
    if (no_library())
        return;
    put_file(path, "this text is no database, whatever its name says", 48);
    refused(path, "file is not a database");
    unlink(path);
    change(path, "CREATE TABLE answers (a); PRAGMA user_version=1");
    refused(path, "is no log of qwick");
    unlink(path);
    add(l = log_made(path, LOG_MAX_BYTES), "a", "b");
    log_db_close(l);
    change(path, "PRAGMA user_version=2");
    refused(path, "was written by a newer qwick (schema 2, this one has 1)");
    change(path, "PRAGMA user_version=1");
    change(path, "PRAGMA journal_mode=WAL");
    log_db_close(log_made(path, LOG_MAX_BYTES)); /* it is changed back */
    /* an empty file becomes a log */
    put_file(path, "", 0);
    assert_ok(log_db_open(&l, path, &e), &e);
    assert_null(l);
    add(l = log_made(path, LOG_MAX_BYTES), "a", "b");
    log_db_close(l);
}

/* A log whose pages are damaged: an error, and no crash. */
static void damaged(void **state)
{
    const char *path = temp_path("log.db");
    static char text[20000];
    struct qwick_err e = {0};
    struct log_db *l;
    struct ids ids = {0};
    char noise[4096];
    if (no_library())
        return;
    memset(text, 't', sizeof text - 1);
    l = log_made(path, LOG_MAX_BYTES);
    for (int i = 0; i < 20; i++)
        add(l, "p", text);
    log_db_close(l);
    size_t pages = file_size(path) / sizeof noise;
    int fd = open(path, O_RDWR);
    for (size_t i = 1; i < pages; i++) {
        for (size_t k = 0; k < sizeof noise; k++)
            noise[k] = (char)below(256);
        assert_int_equal(
            pwrite(fd, noise, sizeof noise, (off_t)(i * sizeof noise)),
            sizeof noise);
    }
    close(fd);
    if (!log_db_create(&l, path, LOG_MAX_BYTES, &e)) {
        assert_int_equal(
            log_db_each(l, &(struct log_query){0}, note_id, &ids, &e), -1);
        const struct log_row row = {.answer = log_text("a")};
        assert_int_equal(log_db_add(l, &row, &e), -1);
        log_db_close(l);
    }
    assert_string_equal(err_without_name(&e, path),
                        "database disk image is malformed");
}

/* ---- processes ---- */

struct reader {
    const char *path;
    size_t n;
};

/* A reader that waits, for a pager perhaps. */
static int add_meanwhile(void *ctx, const struct log_row *row)
{
    struct reader *r = ctx;
    struct log_db *l = log_made(r->path, LOG_MAX_BYTES);
    assert_string_equal(row->prompt.s, "one");
    add(l, "two", "meanwhile");
    log_db_close(l);
    r->n++;
    return 0;
}

static void reading_keeps_nobody_from_adding(void **state)
{
    struct reader r = {.path = temp_path("log.db")};
    struct qwick_err e;
    if (no_library())
        return;
    struct log_db *l = log_made(r.path, LOG_MAX_BYTES);
    add(l, "one", "a");
    add(l, "one", "b");
    assert_ok(log_db_each(l, &(struct log_query){0}, add_meanwhile, &r, &e), &e);
    assert_int_equal(r.n, 2);
    log_db_close(l);
}

static void several_processes(void **state)
{
    enum { PROCESSES = 4, EACH = 25 };
    const char *path = temp_path("log.db");
    struct qwick_err e;
    int status;
    if (no_library())
        return;
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            struct log_db *l;
            const struct log_row row = {.prompt = log_text("p")};
            int bad = log_db_create(&l, path, LOG_MAX_BYTES, &e);
            for (int k = 0; k < EACH && !bad; k++)
                bad = log_db_add(l, &row, &e);
            if (bad)
                fprintf(stderr, "%s\n", e.msg);
            _exit(bad != 0);
        }
    for (int i = 0; i < PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    struct log_db *l = log_made(path, LOG_MAX_BYTES);
    assert_int_equal(ids_of(l, (struct log_query){0}).n, PROCESSES * EACH);
    log_db_close(l);
}

#define FRESH(f) cmocka_unit_test_setup(f, fresh)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FRESH(oldest_go),
        FRESH(too_long),
        FRESH(removed_text_is_gone),
        FRESH(search),
        FRESH(modes),
        FRESH(other_files),
        FRESH(damaged),
        FRESH(reading_keeps_nobody_from_adding),
        FRESH(several_processes),
    };
    return cmocka_run_group_tests(tests, temp_setup, temp_teardown);
}
