#include "cli/chat/chat_history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/io/out.h"
#include "cli/io/state_file.h"
#include "file/fs.h"
#include "file/json.h"
#include "file/save.h"

/* Read the last bytes of the file, at most twice the limit: a file that is
 * larger was not written by us. */
static int read_end(int fd, const char *path, struct buf *out,
                    struct qwick_err *e)
{
    struct stat st;
    if (fstat(fd, &st))
        return err_errno(e, path, "cannot read");
    off_t most = 2 * CHAT_HISTORY_MAX;
    off_t at = st.st_size > most ? st.st_size - most : 0;
    size_t left = (size_t)(st.st_size - at);
    if (buf_reserve(out, left))
        return err_oom(e, left);
    while (out->len < left) {
        ssize_t k = pread(fd, out->data + out->len, left - out->len,
                          at + (off_t)out->len);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return err_errno(e, path, "cannot read");
        if (k == 0)
            break;
        out->len += (size_t)k;
    }
    return 0;
}

/* Hand out a line if it is a JSON string. */
static void hand_out(const char *line, size_t n,
                     void (*entry)(void *ctx, const char *text, size_t n),
                     void *ctx)
{
    struct json_doc *doc;
    if (n < 2 || *line != '"' ||
        json_parse(&doc, "history", line, n, QWICK_ERR_RUNTIME, NULL))
        return;
    const struct json_value *v = json_root(doc);
    if (json_is(v, JSON_STRING) && v->len)
        entry(ctx, v->str, v->len);
    json_free(doc);
}

int chat_history_load(const char *path,
                      void (*entry)(void *ctx, const char *text, size_t n),
                      void *ctx, struct qwick_err *e)
{
    struct buf b = {0};
    int fd = state_open(path, O_RDONLY, e);
    if (fd < 0)
        return fd == -2 ? 0 : -1;
    int rc = read_end(fd, path, &b, e);
    close(fd);
    for (size_t at = 0; !rc && at < b.len;) {
        const char *line = b.data + at, *end = memchr(line, '\n', b.len - at);
        size_t n = end ? (size_t)(end - line) : b.len - at;
        hand_out(line, n, entry, ctx);
        at += n + 1;
    }
    buf_free(&b);
    return rc;
}

/* Open the file that is at path now, and lock it. Another chat may replace the
 * file while this one waits for the lock. */
static int open_locked(const char *path, struct qwick_err *e)
{
    for (;;) {
        struct stat mine, now;
        int fd = state_open(path, O_RDWR | O_APPEND | O_CREAT, e);
        if (fd < 0)
            return -1;
        int r;
        do
            r = flock(fd, LOCK_EX);
        while (r && errno == EINTR);
        if (r || fstat(fd, &mine)) {
            err_errno(e, path, "cannot lock");
            close(fd);
            return -1;
        }
        if (stat(path, &now) == 0 && now.st_ino == mine.st_ino &&
            now.st_dev == mine.st_dev)
            return fd;
        close(fd);
    }
}

/* Replace the file by its newer half. */
static int history_shorten(int fd, const char *path, struct qwick_err *e)
{
    struct buf b = {0};
    int rc = read_end(fd, path, &b, e);
    if (!rc && b.len > CHAT_HISTORY_MAX / 2) {
        size_t from = b.len - CHAT_HISTORY_MAX / 2;
        const char *end = memchr(b.data + from, '\n', b.len - from);
        from = end ? (size_t)(end - b.data) + 1 : b.len;
        rc = save_put(path, SAVE_PRIVATE, b.data + from, b.len - from, e);
    }
    buf_free(&b);
    return rc;
}

int chat_history_add(const char *path, const char *text, size_t n,
                     struct qwick_err *e)
{
    struct buf line = {0};
    struct stat st;
    if (!n || n > CHAT_HISTORY_ENTRY_MAX)
        return 0;
    if (buf_json_string(&line, text, n) || buf_putc(&line, '\n')) {
        buf_free(&line);
        return err_oom(e, n);
    }
    int fd = state_make_dir(path, e) ? -1 : open_locked(path, e), rc = -1;
    if (fd >= 0) {
        rc = write_all(fd, line.data, line.len)
                 ? err_errno(e, path, "cannot write")
                 : 0;
        if (!rc && !fstat(fd, &st) && (size_t)st.st_size > CHAT_HISTORY_MAX)
            rc = history_shorten(fd, path, e);
        close(fd);
    }
    buf_free(&line);
    return rc;
}
