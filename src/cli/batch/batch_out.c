#include "cli/batch/batch_out.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/batch/batch_pending.h"
#include "cli/batch/batch_resume.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

/* Sync answers to the disk at least this often. If the machine crashes, the
 * answers since the last sync are lost. A crash of the program loses none. */
#define SYNC_MS 5000

static int fail(struct batch_out *o, const char *what, struct qwick_err *e)
{
    o->failed = true;
    return err_set(e, QWICK_ERR_RUNTIME, "%s: %s: %s", o->path, what,
                   strerror(errno));
}

/* Refuse to read the output file as input: the run would never end. */
static int check_same(int in_fd, int out_fd, const char *name,
                      struct qwick_err *e)
{
    struct stat in, out;
    if (fstat(in_fd, &in) || fstat(out_fd, &out) || !S_ISREG(in.st_mode) ||
        in.st_dev != out.st_dev || in.st_ino != out.st_ino)
        return 0;
    return err_set(e, QWICK_ERR_USAGE, "%s: is the input as well", name);
}

int batch_out_open(struct batch_out *o, const char *path, bool unordered,
                   int in_fd, struct qwick_err *e)
{
    *o = (struct batch_out){.path = path,
                            .fd = -1,
                            .pending_fd = -1,
                            .unordered = unordered,
                            .synced_ms = clock_ms()};
    if (!path)
        return check_same(in_fd, STDOUT_FILENO, "stdout", e);
    struct stat st;
    bool stream = !stat(path, &st) && !S_ISREG(st.st_mode);
    int flags = stream ? O_WRONLY : O_RDWR | O_CREAT;
    o->fd = open(path, flags | O_APPEND | O_CLOEXEC, 0666);
    if (o->fd < 0)
        return fail(o, "open", e);
    if (check_same(in_fd, o->fd, path, e))
        return -1;
    return batch_resume(o, in_fd, e);
}

static int write_out(struct batch_out *o, struct qwick_err *e)
{
    if (o->ready.len == 0)
        return 0;
    progress_output(o->path ? o->fd : STDOUT_FILENO);
    int r = o->path ? fd_write(o->fd, o->ready.data, o->ready.len)
                    : out_write(o->ready.data, o->ready.len);
    if (r && o->path)
        return fail(o, "write error", e);
    if (r) { /* out_write printed the message */
        o->failed = true;
        return err_set(e, QWICK_ERR_RUNTIME, "stdout: write error");
    }
    o->ready.len = 0;
    return 0;
}

int batch_out_flush(struct batch_out *o, struct qwick_err *e)
{
    if (write_out(o, e))
        return -1;
    if (!o->path || clock_ms() - o->synced_ms < SYNC_MS)
        return 0;
    o->synced_ms = clock_ms();
    /* devices and pipes cannot be synced */
    if (fdatasync(o->fd) && errno != EINVAL && errno != EROFS)
        return fail(o, "write error", e);
    return 0;
}

int batch_out_close(struct batch_out *o, struct qwick_err *e)
{
    int r = o->failed ? 0 : write_out(o, e);
    if (o->fd >= 0) {
        if (!r && !o->failed && fdatasync(o->fd) && errno != EINVAL &&
            errno != EROFS)
            r = fail(o, "write error", e);
        if (close(o->fd) && errno != EINTR && !r && !o->failed)
            r = fail(o, "write error", e);
    }
    for (size_t i = 0; i < o->n_slots; i++)
        free(o->slots[(o->first + i) % o->cap_slots].text);
    free(o->slots);
    free(o->done.v);
    free(o->held.v);
    if (o->pending_fd >= 0)
        close(o->pending_fd);
    free(o->pending);
    buf_free(&o->ready);
    *o = (struct batch_out){.fd = -1, .pending_fd = -1};
    return r;
}

static struct out_slot *slot(struct batch_out *o, uint64_t place)
{
    return &o->slots[(o->first + (size_t)(place - o->base)) % o->cap_slots];
}

static int grow_slots(struct batch_out *o, struct qwick_err *e)
{
    size_t cap = o->cap_slots ? 2 * o->cap_slots : 64;
    struct out_slot *v = calloc(cap, sizeof(*v));
    if (!v)
        return err_oom(e, cap * sizeof(*v));
    for (size_t i = 0; i < o->n_slots; i++)
        v[i] = o->slots[(o->first + i) % o->cap_slots];
    free(o->slots);
    o->slots = v;
    o->cap_slots = cap;
    o->first = 0;
    return 0;
}

int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e)
{
    if (o->n_slots == o->cap_slots && grow_slots(o, e))
        return -1;
    *place = o->base + o->n_slots++;
    *slot(o, *place) = (struct out_slot){0};
    return 0;
}

size_t batch_out_open_places(const struct batch_out *o)
{
    return o->n_slots;
}

/* Move the lines whose turn has come to the output buffer. */
static int collect(struct batch_out *o, struct qwick_err *e)
{
    while (o->n_slots > 0) {
        struct out_slot *s = &o->slots[o->first];
        if (!s->text)
            return 0;
        if (buf_append(&o->ready, s->text, s->n))
            return err_oom(e, s->n);
        free(s->text);
        *s = (struct out_slot){0};
        o->first = (o->first + 1) % o->cap_slots;
        o->n_slots--;
        o->base++;
    }
    return 0;
}

int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e)
{
    struct out_slot *s = slot(o, place);
    if (o->unordered && buf_append(&o->ready, b->data, b->len))
        return err_oom(e, b->len);
    s->text = buf_take(b, &s->n);
    if (o->unordered)
        s->n = 0; /* its place needs no more output */
    return collect(o, e);
}

int batch_out_put_held(struct batch_out *o, struct answered *held,
                       struct qwick_err *e)
{
    struct buf line = {0};
    uint64_t place;
    int rc = -1;
    if (!pending_copy_line(o->pending, o->pending_fd, held->at, &line, e) &&
        !batch_out_place(o, &place, e)) {
        o->n_errors += held->error;
        o->n_incomplete += held->incomplete;
        o->n_broken += held->broken;
        held->used = true;
        rc = batch_out_put(o, place, &line, e);
    }
    buf_free(&line);
    return rc;
}

/* ---- the end ------------------------------------------------------------ */

static bool is_unread(const struct answered *a)
{
    return !a->used && !a->stale;
}

/* Append the held lines that this run did not use to the output. */
static int release_unread(struct batch_out *o, struct qwick_err *e)
{
    for (size_t i = 0; i < o->held.n; i++)
        if (is_unread(&o->held.v[i]) &&
            (pending_copy_line(o->pending, o->pending_fd, o->held.v[i].at,
                               &o->ready, e) ||
             write_out(o, e)))
            return -1;
    return 0;
}

/* Keep the held lines that this run did not use in the pending file. */
static int hold_unread(struct batch_out *o, struct pending_file *p, size_t *n,
                       struct qwick_err *e)
{
    struct buf line = {0};
    int rc = 0;
    for (size_t i = 0; i < o->held.n && !rc; i++) {
        if (!is_unread(&o->held.v[i]))
            continue;
        line.len = 0;
        rc = pending_copy_line(o->pending, o->pending_fd, o->held.v[i].at,
                               &line, e) ||
                     pending_add(o, p, line.data, line.len, e)
                 ? -1
                 : 0;
        ++*n;
    }
    buf_free(&line);
    return rc;
}

/* Hold the finished answers whose turn has not come. p NULL: only count
 * them. */
static int hold_slots(struct batch_out *o, struct pending_file *p, size_t *n,
                      struct qwick_err *e)
{
    for (size_t i = 0; i < o->n_slots; i++) {
        const struct out_slot *s = &o->slots[(o->first + i) % o->cap_slots];
        if (!s->n)
            continue;
        if (p && pending_add(o, p, s->text, s->n, e))
            return -1;
        ++*n;
    }
    return 0;
}

/* Write the lines whose turn has come, and sync them before the pending file
 * changes. */
static int finish_output(struct batch_out *o, bool release, struct qwick_err *e)
{
    if (o->failed)
        return 0;
    if (write_out(o, e) || (release && release_unread(o, e)))
        return -1;
    if (fdatasync(o->fd) && errno != EINVAL && errno != EROFS)
        return fail(o, "write error", e);
    return 0;
}

int batch_out_end(struct batch_out *o, bool complete, size_t *n_held,
                  size_t *n_lost, struct qwick_err *e)
{
    struct pending_file p = {.fd = -1};
    bool release = complete && o->redo;
    size_t n = 0;
    *n_held = *n_lost = 0;
    if (!o->pending)
        return hold_slots(o, NULL, n_lost, e);
    int rc = finish_output(o, release, e);
    if (rc)
        e = NULL; /* *e keeps the first error */
    /* Also hold lines whose write failed. If a part of them did reach the
     * output, the next run finds a line twice or cuts it off. */
    if (hold_slots(o, &p, &n, e) ||
        (!(release && !rc) && hold_unread(o, &p, &n, e)) ||
        (o->failed && pending_add(o, &p, o->ready.data, o->ready.len, e)) ||
        pending_commit(o, &p, e))
        rc = -1;
    else
        *n_held = n;
    pending_abort(&p);
    return rc;
}
