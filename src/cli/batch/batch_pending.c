#include "cli/batch/batch_pending.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/fs.h"

enum { CHUNK = 1 << 20 };

static int cannot(const char *path, const char *what, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: %s: %s", path, what,
                   strerror(errno));
}

int pending_copy_line(const char *path, int fd, uint64_t at, struct buf *out,
                      struct qwick_err *e)
{
    char part[4096];
    for (;;) {
        ssize_t k = pread(fd, part, sizeof(part), (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot read: %s", path,
                           k ? strerror(errno) : "it became shorter meanwhile");
        const char *nl = memchr(part, '\n', (size_t)k);
        size_t n = nl ? (size_t)(nl - part) + 1 : (size_t)k;
        if (buf_append(out, part, n))
            return err_oom(e, n);
        if (nl)
            return 0;
        at += n;
    }
}

/* Create the new version with the permissions of the output. */
static int create(const struct batch_out *o, struct pending_file *p,
                  struct qwick_err *e)
{
    struct stat st;
    if (asprintf(&p->temp, "%s.tmp", o->pending) < 0) {
        p->temp = NULL;
        return err_oom(e, strlen(o->pending));
    }
    unlink(p->temp); /* left by a killed run; we hold the lock of the output */
    p->fd = open(p->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (p->fd < 0)
        return cannot(p->temp, "create", e);
    if (!fstat(o->fd, &st) && fchmod(p->fd, st.st_mode & 0666))
        return cannot(p->temp, "cannot set its rights", e);
    return 0;
}

static int flush(struct pending_file *p, struct qwick_err *e)
{
    if (p->buf.len && write_all(p->fd, p->buf.data, p->buf.len))
        return cannot(p->temp, "write error", e);
    p->buf.len = 0;
    return 0;
}

int pending_add(struct batch_out *o, struct pending_file *p, const char *s,
                size_t n, struct qwick_err *e)
{
    if (n == 0)
        return 0;
    if (p->fd < 0 && create(o, p, e))
        return -1;
    if (buf_append(&p->buf, s, n))
        return err_oom(e, n);
    p->n_bytes += n;
    return p->buf.len >= CHUNK ? flush(p, e) : 0;
}

int pending_commit(struct batch_out *o, struct pending_file *p,
                   struct qwick_err *e)
{
    if (p->fd < 0) {
        if (unlink(o->pending) && errno != ENOENT)
            return cannot(o->pending, "cannot be removed", e);
        return 0;
    }
    if (flush(p, e))
        return -1;
    if (sync_open(p->fd))
        return cannot(p->temp, "write error", e);
    if (rename(p->temp, o->pending))
        return cannot(o->pending, "cannot be replaced", e);
    if (o->pending_fd >= 0)
        close(o->pending_fd);
    o->pending_fd = p->fd;
    p->fd = -1;
    pending_abort(p);
    /* Only now is the new name on the disk. */
    return sync_parent(o->pending)
               ? cannot(o->pending, "its directory cannot be synced", e)
               : 0;
}

void pending_abort(struct pending_file *p)
{
    if (p->fd >= 0) {
        unlink(p->temp);
        close(p->fd);
    }
    free(p->temp);
    buf_free(&p->buf);
    *p = (struct pending_file){.fd = -1};
}
