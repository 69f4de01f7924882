#include "cli/store/log_db.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/buf.h"
#include "cli/io/state_file.h"
#include "cli/store/sqlite.h"
#include "text/unicode.h"

/* The schema's number (user_version), and whose file it is (application_id). */
enum { SCHEMA = 1, OURS = 0x7177696b }; /* "qwik" */

/* Wait so long for other processes. A change takes a few milliseconds. */
enum { BUSY_MS = 10000 };

struct log_db {
    sqlite3 *db;
    char *path;
    int64_t max_bytes;
};

/* ---- columns ---- */

enum kind { KIND_INT, KIND_REAL, KIND_TEXT, KIND_JSON };

static const struct column {
    const char *name;
    enum kind kind;
    size_t offset;
} columns[] = {
#define COLUMN(kind, name) {#name, KIND_##kind, offsetof(struct log_row, name)},
    LOG_COLUMNS(COLUMN)
#undef COLUMN
};

enum { N_COLUMNS = sizeof(columns) / sizeof(*columns) };

#define TEXT_AT(row, c) \
    ((const struct log_text *)((const char *)(row) + (c)->offset))
#define INT_AT(row, c)  ((const int64_t *)((const char *)(row) + (c)->offset))
#define REAL_AT(row, c) ((const double *)((const char *)(row) + (c)->offset))

static bool column_is_text(const struct column *c)
{
    return c->kind == KIND_TEXT || c->kind == KIND_JSON;
}

struct log_text log_text(const char *s)
{
    return (struct log_text){s, s ? strlen(s) : 0};
}

void log_row_json(struct json_writer *w, const struct log_row *row)
{
    for (const struct column *c = columns; c < columns + N_COLUMNS; c++)
        if (c->kind == KIND_INT)
            jw_int(w, c->name, *INT_AT(row, c));
        else if (c->kind == KIND_REAL)
            jw_double(w, c->name, *REAL_AT(row, c));
        else if (!TEXT_AT(row, c)->s)
            jw_null(w, c->name);
        else if (c->kind == KIND_JSON)
            jw_raw(w, c->name, TEXT_AT(row, c)->s, TEXT_AT(row, c)->n);
        else
            jw_string(w, c->name, TEXT_AT(row, c)->s, TEXT_AT(row, c)->n);
}

/* Append the names of the columns from the first one on, or what stands in
 * place of each. */
static void put_columns(struct buf *sql, size_t first, const char *in_place)
{
    for (size_t i = first; i < N_COLUMNS; i++)
        buf_printf(sql, "%s%s", i > first ? "," : "",
                   in_place ? in_place : columns[i].name);
}

/* ---- statements ---- */

static int db_fail(const struct log_db *l, struct qwick_err *e)
{
    if (sqlite.errcode(l->db) == SQLITE_NOMEM)
        return err_oom(e, 0);
    return err_set(e, QWICK_ERR_RUNTIME, "%s: %s", l->path,
                   sqlite.errmsg(l->db));
}

static int db_exec(struct log_db *l, const char *sql, struct qwick_err *e)
{
    return sqlite.exec(l->db, sql, NULL, NULL, NULL) ? db_fail(l, e) : 0;
}

/* Take back a change that failed. */
static void db_rollback(struct log_db *l)
{
    if (!sqlite.get_autocommit(l->db))
        sqlite.exec(l->db, "ROLLBACK", NULL, NULL, NULL);
}

static int db_prepare(struct log_db *l, sqlite3_stmt **s, struct buf *sql,
                      struct qwick_err *e)
{
    *s = NULL;
    int rc = sql->failed ? err_oom(e, sql->len)
             : sqlite.prepare_v2(l->db, sql->data, -1, s, NULL) ? db_fail(l, e)
                                                                : 0;
    buf_free(sql);
    return rc;
}

/* Read the number that a statement gives. */
static int db_number(struct log_db *l, const char *text, int64_t *out,
                     struct qwick_err *e)
{
    struct buf sql = {0};
    sqlite3_stmt *s;
    buf_puts(&sql, text);
    if (db_prepare(l, &s, &sql, e))
        return -1;
    int rc = sqlite.step(s) == SQLITE_ROW ? 0 : db_fail(l, e);
    if (!rc)
        *out = sqlite.column_int64(s, 0);
    sqlite.finalize(s);
    return rc;
}

static int bind_text(sqlite3_stmt *s, int at, struct log_text t)
{
    return t.s && t.n <= INT32_MAX
               ? sqlite.bind_text(s, at, t.s, (int)t.n, SQLITE_STATIC)
               : 0; /* NULL */
}

/* ---- opening ---- */

/* SQL: log_has(text, word), where the word is folded. */
static void sql_has(sqlite3_context *ctx, int n, sqlite3_value **v)
{
    struct buf text = {0};
    (void)n;
    const char *s = (const char *)sqlite.value_text(v[0]);
    const char *word = (const char *)sqlite.value_text(v[1]);
    size_t k = (size_t)sqlite.value_bytes(v[1]);
    if (s && unicode_fold(&text, s, (size_t)sqlite.value_bytes(v[0])))
        sqlite.result_error_nomem(ctx);
    else
        sqlite.result_int(ctx, s && word && text.len &&
                                   memmem(text.data, text.len, word, k));
    buf_free(&text);
}

/* Look whether the file is a log that we can use. *empty: it is to become one.
 * Call it in a transaction: another process may be making the log. */
static int check_schema(struct log_db *l, bool *empty, struct qwick_err *e)
{
    int64_t whose, version, tables;
    if (db_number(l, "PRAGMA application_id", &whose, e) ||
        db_number(l, "PRAGMA user_version", &version, e) ||
        db_number(l, "SELECT count(*) FROM sqlite_master", &tables, e))
        return -1;
    *empty = !whose && !version && !tables;
    if (*empty || (whose == OURS && version == SCHEMA))
        return 0;
    if (whose == OURS && version > SCHEMA)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: was written by a newer qwick (schema %lld, this "
                       "one has %d)",
                       l->path, (long long)version, SCHEMA);
    return err_set(e, QWICK_ERR_RUNTIME, "%s: is no log of qwick", l->path);
}

/* The same file may become a log in another process meanwhile. */
static int create_schema(struct log_db *l, struct qwick_err *e)
{
    static const char *const types[] = {"INTEGER", "REAL", "TEXT", "TEXT"};
    struct buf sql = {0};
    bool empty = true;
    buf_puts(&sql,
             "CREATE TABLE answers (id INTEGER PRIMARY KEY AUTOINCREMENT");
    for (size_t i = 1; i < N_COLUMNS; i++)
        buf_printf(&sql, ", %s %s", columns[i].name, types[columns[i].kind]);
    buf_printf(&sql, "); PRAGMA application_id=%d; PRAGMA user_version=%d",
               OURS, SCHEMA);
    int rc = sql.failed
                 ? err_oom(e, 0)
                 : db_exec(l, "PRAGMA auto_vacuum=FULL; BEGIN IMMEDIATE", e) ||
                       check_schema(l, &empty, e) ||
                       (empty && db_exec(l, sql.data, e)) ||
                       db_exec(l, "COMMIT", e);
    db_rollback(l);
    buf_free(&sql);
    return rc ? -1 : 0;
}

/* Our journal is emptied after each change: one that keeps its contents keeps
 * what was removed. A log with another kind of journal is another program's
 * doing. */
static int use_journal(struct log_db *l, struct qwick_err *e)
{
    static const char mode[] = "truncate";
    struct buf sql = {0};
    sqlite3_stmt *s;
    buf_printf(&sql, "PRAGMA journal_mode=%s", mode);
    if (db_prepare(l, &s, &sql, e))
        return -1;
    const char *now = NULL;
    int rc = sqlite.step(s) == SQLITE_ROW ? 0 : db_fail(l, e);
    if (!rc)
        now = (const char *)sqlite.column_text(s, 0);
    if (!rc && (!now || strcmp(now, mode) != 0))
        rc = err_set(e, QWICK_ERR_RUNTIME, "%s: its journal is %s, not %s",
                     l->path, now ? now : "unknown", mode);
    sqlite.finalize(s);
    return rc;
}

/* Set up the connection. The file's contents are not trusted. */
static int set_up(struct log_db *l, struct qwick_err *e)
{
    int rc = sqlite.busy_timeout(l->db, BUSY_MS) ||
             sqlite.db_config(l->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL) ||
             sqlite.create_function_v2(l->db, "log_has", 2, SQLITE_UTF8, NULL,
                                       sql_has, NULL, NULL, NULL);
    return rc ? db_fail(l, e)
              : db_exec(l,
                        "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; "
                        "PRAGMA secure_delete=ON; PRAGMA temp_store=MEMORY",
                        e);
}

/* Open or make a file that only its owner can read. Returns as state_open. */
static int own_file(const char *path, int flags, struct qwick_err *e)
{
    int fd = state_open(path, flags, e);
    if (fd < 0)
        return fd;
    if (fchmod(fd, 0600)) { /* of another owner, or read-only */
        err_errno(e, path, "cannot keep it from others");
        close(fd);
        return -1;
    }
    close(fd);
    return 0;
}

static int own_files(const char *path, bool create, struct qwick_err *e)
{
    struct buf journal = {0};
    int flags = create ? O_RDWR | O_CREAT : O_RDONLY, rc;
    if (buf_printf(&journal, "%s-journal", path))
        return err_oom(e, 0);
    rc = create ? state_make_dir(path, e) : 0;
    if (!rc)
        rc = own_file(path, flags, e);
    if (!rc && create)
        rc = own_file(journal.data, flags, e);
    buf_free(&journal);
    return rc;
}

static int log_open(struct log_db **out, const char *path, bool create,
                    struct qwick_err *e)
{
    bool empty = false;
    *out = NULL;
    if (sqlite_load(e))
        return -1;
    int rc = own_files(path, create, e);
    if (rc)
        return rc == -2 ? 0 : -1;
    struct log_db *l = calloc(1, sizeof(*l));
    if (!l || !(l->path = strdup(path))) {
        free(l);
        return err_oom(e, sizeof(*l));
    }
    rc = sqlite.open_v2(path, &l->db, SQLITE_OPEN_READWRITE, NULL)
             ? l->db ? db_fail(l, e) : err_oom(e, 0)
             : set_up(l, e) || db_exec(l, "BEGIN", e) ||
                   check_schema(l, &empty, e) || db_exec(l, "COMMIT", e) ||
                   use_journal(l, e) ||
                   (empty && create && create_schema(l, e));
    if (rc || (empty && !create)) {
        log_db_close(l);
        return rc ? -1 : 0;
    }
    *out = l;
    return 0;
}

int log_db_open(struct log_db **out, const char *path, struct qwick_err *e)
{
    return log_open(out, path, false, e);
}

int log_db_create(struct log_db **out, const char *path, int64_t max_bytes,
                  struct qwick_err *e)
{
    if (log_open(out, path, true, e))
        return -1;
    (*out)->max_bytes = max_bytes;
    return 0;
}

void log_db_close(struct log_db *l)
{
    if (!l)
        return;
    sqlite.close(l->db);
    free(l->path);
    free(l);
}

/* ---- adding ---- */

static int64_t row_bytes(const struct log_row *row)
{
    int64_t n = 20 * N_COLUMNS; /* more than numbers and lengths take */
    for (const struct column *c = columns; c < columns + N_COLUMNS; c++)
        if (column_is_text(c))
            n += (int64_t)TEXT_AT(row, c)->n;
    return n;
}

/* Remove the oldest rows until one of n bytes fits. Pages that are free are
 * used before the file grows. */
static int make_room(struct log_db *l, int64_t n, struct qwick_err *e)
{
    int64_t page, pages, unused;
    if (db_number(l, "PRAGMA page_size", &page, e))
        return -1;
    n += n / 64 + 8 * page; /* pages' heads, and pages that are partly full */
    if (n > l->max_bytes / 2)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s: an answer of %lld bytes with its prompt is too "
                       "long for a log of %lld bytes",
                       l->path, (long long)n, (long long)l->max_bytes);
    for (;;) {
        if (db_number(l, "PRAGMA page_count", &pages, e) ||
            db_number(l, "PRAGMA freelist_count", &unused, e))
            return -1;
        if ((pages - unused) * page + n <= l->max_bytes)
            return 0;
        if (db_exec(l,
                    "DELETE FROM answers "
                    "WHERE id = (SELECT min(id) FROM answers)",
                    e))
            return -1;
        if (!sqlite.changes(l->db))
            return 0; /* the row fits, as nothing else is there */
    }
}

static int insert_row(struct log_db *l, const struct log_row *row,
                      struct qwick_err *e)
{
    struct buf sql = {0};
    sqlite3_stmt *s;
    int bad = 0;
    buf_puts(&sql, "INSERT INTO answers (");
    put_columns(&sql, 1, NULL);
    buf_puts(&sql, ") VALUES (");
    put_columns(&sql, 1, "?");
    buf_puts(&sql, ")");
    if (db_prepare(l, &s, &sql, e))
        return -1;
    for (int i = 1; i < N_COLUMNS; i++) {
        const struct column *c = &columns[i];
        bad =
            bad ||
            (c->kind == KIND_INT    ? sqlite.bind_int64(s, i, *INT_AT(row, c))
             : c->kind == KIND_REAL ? sqlite.bind_double(s, i, *REAL_AT(row, c))
                                    : bind_text(s, i, *TEXT_AT(row, c)));
    }
    bad = bad || sqlite.step(s) != SQLITE_DONE;
    int rc = bad ? db_fail(l, e) : 0;
    sqlite.finalize(s);
    return rc;
}

/* The current time in UTC, with the form of column time. */
static void time_text(char *out, size_t size)
{
    time_t now = time(NULL);
    struct tm tm;
    if (!gmtime_r(&now, &tm) || !strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &tm))
        *out = 0;
}

int log_db_add(struct log_db *l, const struct log_row *row, struct qwick_err *e)
{
    struct log_row whole = *row;
    char when[32];
    time_text(when, sizeof(when));
    whole.time = log_text(when);
    int rc = db_exec(l, "BEGIN IMMEDIATE", e) ||
             make_room(l, row_bytes(&whole), e) || insert_row(l, &whole, e) ||
             db_exec(l, "COMMIT", e);
    db_rollback(l);
    return rc ? -1 : 0;
}

/* ---- reading and removing ---- */

/* Append the conditions of a query. */
static void put_where(struct buf *sql, const struct log_query *q)
{
    buf_puts(sql, " WHERE 1");
    if (q->id)
        buf_printf(sql, " AND id = %lld", (long long)q->id);
    if (q->conversation)
        buf_puts(sql, " AND conversation = ?1");
    for (size_t i = 0; i < q->n_words; i++)
        buf_printf(sql, " AND (log_has(prompt, ?%zu) OR log_has(answer, ?%zu))",
                   i + 2, i + 2);
}

/* Bind the values of put_where. The words are folded in one buffer. */
static int bind_where(struct log_db *l, sqlite3_stmt *s,
                      const struct log_query *q, struct qwick_err *e)
{
    struct buf word = {0};
    int bad = 0;
    if (q->conversation)
        bad = bind_text(s, 1, log_text(q->conversation));
    for (size_t i = 0; i < q->n_words && !bad; i++) {
        word.len = 0;
        if (unicode_fold(&word, q->words[i], strlen(q->words[i]))) {
            buf_free(&word);
            return err_oom(e, 0);
        }
        bad = sqlite.bind_text(s, (int)i + 2, buf_text(&word), (int)word.len,
                               SQLITE_TRANSIENT);
    }
    buf_free(&word);
    return bad ? db_fail(l, e) : 0;
}

static void read_row(sqlite3_stmt *s, struct log_row *row)
{
    *row = (struct log_row){0};
    for (int i = 0; i < N_COLUMNS; i++) {
        const struct column *c = &columns[i];
        char *at = (char *)row + c->offset;
        if (c->kind == KIND_INT)
            *(int64_t *)at = sqlite.column_int64(s, i);
        else if (c->kind == KIND_REAL)
            *(double *)at = sqlite.column_double(s, i);
        else if (sqlite.column_type(s, i) != SQLITE_NULL)
            *(struct log_text *)at =
                (struct log_text){(const char *)sqlite.column_text(s, i),
                                  (size_t)sqlite.column_bytes(s, i)};
    }
}

/* Let the texts of a row outlive its statement: copy them to *texts, each with a
 * NUL behind it. */
static int keep_texts(struct log_row *row, struct buf *texts,
                      struct qwick_err *e)
{
    size_t n = 0;
    for (const struct column *c = columns; c < columns + N_COLUMNS; c++)
        if (column_is_text(c))
            n += TEXT_AT(row, c)->n + 1;
    texts->len = 0;
    if (buf_reserve(texts, n))
        return err_oom(e, n);
    for (const struct column *c = columns; c < columns + N_COLUMNS; c++) {
        struct log_text *t = (struct log_text *)((char *)row + c->offset);
        if (!column_is_text(c) || !t->s)
            continue;
        const char *at = texts->data + texts->len;
        buf_append(texts, t->s, t->n);
        buf_putc(texts, 0);
        t->s = at;
    }
    return 0;
}

/* Read the row of an id. *found: it is there. */
static int read_id(struct log_db *l, int64_t id, struct log_row *row,
                   struct buf *texts, bool *found, struct qwick_err *e)
{
    struct buf sql = {0};
    sqlite3_stmt *s;
    buf_puts(&sql, "SELECT ");
    put_columns(&sql, 0, NULL);
    buf_printf(&sql, " FROM answers WHERE id = %lld", (long long)id);
    if (db_prepare(l, &s, &sql, e))
        return -1;
    int got = sqlite.step(s), rc = 0;
    *found = got == SQLITE_ROW;
    if (*found) {
        read_row(s, row);
        rc = keep_texts(row, texts, e);
    } else if (got != SQLITE_DONE) {
        rc = db_fail(l, e);
    }
    sqlite.finalize(s);
    return rc;
}

struct ids {
    int64_t *v; /* [n], the newest first */
    size_t n, cap;
};

static int find_ids(struct log_db *l, const struct log_query *q,
                    struct ids *out, struct qwick_err *e)
{
    struct buf sql = {0};
    sqlite3_stmt *s;
    int got = SQLITE_DONE;
    buf_puts(&sql, "SELECT id FROM answers");
    put_where(&sql, q);
    buf_printf(&sql, " ORDER BY id DESC LIMIT %lld",
               q->last ? (long long)q->last : -1);
    if (db_prepare(l, &s, &sql, e))
        return -1;
    int rc = bind_where(l, s, q, e);
    while (!rc && (got = sqlite.step(s)) == SQLITE_ROW) {
        rc = ARRAY_RESERVE(out->v, out->cap, out->n + 1, e);
        if (!rc)
            out->v[out->n++] = sqlite.column_int64(s, 0);
    }
    if (!rc && got != SQLITE_DONE)
        rc = db_fail(l, e);
    sqlite.finalize(s);
    return rc ? -1 : 0;
}

/* A statement that has not ended keeps others from adding rows, so none is open
 * while fn runs: it may wait for a pager. */
int log_db_each(struct log_db *l, const struct log_query *q,
                int (*fn)(void *ctx, const struct log_row *row), void *ctx,
                struct qwick_err *e)
{
    struct ids ids = {0};
    struct buf texts = {0};
    struct log_row row;
    bool found;
    int rc = find_ids(l, q, &ids, e), stop = 0;
    for (size_t i = ids.n; i-- > 0 && !rc && !stop;) {
        rc = read_id(l, ids.v[i], &row, &texts, &found, e);
        if (!rc && found)
            stop = fn(ctx, &row);
    }
    buf_free(&texts);
    free(ids.v);
    return rc;
}

int log_db_remove(struct log_db *l, const struct log_query *q, int64_t *n,
                  struct qwick_err *e)
{
    const struct log_query which = {.id = q->id,
                                    .conversation = q->conversation};
    struct buf sql = {0};
    sqlite3_stmt *s;
    *n = 0;
    buf_puts(&sql, "DELETE FROM answers");
    put_where(&sql, &which);
    if (db_prepare(l, &s, &sql, e))
        return -1;
    int rc = bind_where(l, s, &which, e);
    if (!rc && sqlite.step(s) != SQLITE_DONE)
        rc = db_fail(l, e);
    if (!rc)
        *n = sqlite.changes(l->db);
    sqlite.finalize(s);
    return rc;
}
