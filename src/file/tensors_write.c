#include "file/tensors_write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "file/fs.h"
#include "file/save.h"

/* What is first written by whole windows of the file, of the size of a huge
 * page, Linux's page cache keeps in such pages, where the file system can: who
 * maps the file then has few page faults and reads it faster. */
enum { WINDOW = 2 << 20 };

/* Windows that are filled at the same time, at most: pieces come nearly in the
 * order of the file, some of each of a job's tensors. */
enum { MAX_FILLING = 16 };

struct st_writer {
    char *path;
    struct save file;
    struct piece {
        struct st_piece p;
        size_t left; /* bytes that have not come */
    } * pieces;
    size_t n, at;
    size_t n_head;       /* bytes before the data */
    unsigned char *hold; /* [WINDOW] bytes that no call has written yet */
    size_t held, pos;    /* how many; where they belong in the file */
    /* Of a large file, guarded by lock: windows behind the header, and how many
     * of them have memory. */
    size_t size, n_filling;
    struct window *windows;
    pthread_mutex_t lock;
};

/* A window that threads fill by pieces. */
struct window {
    unsigned char *data; /* [WINDOW], or NULL */
    size_t missing;      /* bytes */
    bool direct;         /* its pieces go straight to the file */
};

static int err_write(const struct st_writer *w, int err, struct qwick_err *e)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: cannot write: %s", w->path,
                   strerror(err));
}

static int flush(struct st_writer *w, struct qwick_err *e)
{
    if (write_all(w->file.fd, w->hold, w->held))
        return err_write(w, errno, e);
    w->pos += w->held;
    w->held = 0;
    return 0;
}

static int tensors_put(struct st_writer *w, const void *data, size_t n,
                       struct qwick_err *e)
{
    const unsigned char *p = data;
    while (n > 0) {
        size_t room = WINDOW - (w->pos + w->held) % WINDOW;
        size_t k = n < room ? n : room;
        memcpy(w->hold + w->held, p, k);
        w->held += k;
        p += k;
        n -= k;
        if (k == room && flush(w, e))
            return -1;
    }
    return 0;
}

/* Write what the caller gave in advance, up to the next tensor that it did
 * not. */
static int put_given(struct st_writer *w, struct qwick_err *e)
{
    for (; w->at < w->n; w->at++) {
        struct piece *p = &w->pieces[w->at];
        if (p->left > 0 && !p->p.data)
            return 0;
        if (tensors_put(w, p->p.data, p->left, e))
            return -1;
        p->left = 0;
    }
    return 0;
}

static int set_pieces(struct st_writer *w, const struct st_piece *pieces,
                      size_t n, struct qwick_err *e)
{
    w->n = n;
    w->pieces = calloc(n ? n : 1, sizeof *w->pieces);
    w->hold = malloc(WINDOW);
    if (!w->path || !w->pieces || !w->hold)
        return err_oom(e, n * sizeof *w->pieces + WINDOW);
    for (size_t i = 0; i < n; i++)
        w->pieces[i] = (struct piece){pieces[i], pieces[i].size};
    return 0;
}

/* Where a file system cannot reserve, the disk fills up while writing. */
static int reserve(struct st_writer *w, struct qwick_err *e)
{
    const struct piece *last = w->n > 0 ? &w->pieces[w->n - 1] : NULL;
    size_t size = w->n_head;
    if (last && (size_add(size, last->p.begin, &size) ||
                 size_add(size, last->p.size, &size) ||
                 size_add(size, last->p.pad, &size)))
        size = SIZE_MAX;
    if (size > INT64_MAX)
        return err_write(w, EFBIG, e);
    w->size = size;
    w->windows = calloc(size / WINDOW + 1, sizeof *w->windows);
    if (!w->windows)
        return err_oom(e, (size / WINDOW + 1) * sizeof *w->windows);
    int rc;
    do
        rc = fallocate(w->file.fd, 0, 0, (off_t)size);
    while (rc && errno == EINTR);
    return rc && errno != EOPNOTSUPP && errno != ENOSYS
               ? err_set(e, QWICK_ERR_RUNTIME,
                         "%s: cannot reserve %zu bytes: %s", w->path, size,
                         strerror(errno))
               : 0;
}

static int write_at(struct st_writer *w, const unsigned char *p, size_t n,
                    size_t at, struct qwick_err *e)
{
    return write_all_at(w->file.fd, p, n, at) ? err_write(w, errno, e) : 0;
}

/* Where window i begins, behind the header, and its bytes. */
static size_t window_begin(const struct st_writer *w, size_t i)
{
    return i * WINDOW > w->n_head ? i * WINDOW : w->n_head;
}

static size_t window_bytes(const struct st_writer *w, size_t i)
{
    size_t end = w->size - i * WINDOW < WINDOW ? w->size : (i + 1) * WINDOW;
    return end - window_begin(w, i);
}

/* The memory that pieces of window i go to; NULL: straight to the file. */
static unsigned char *window_data(struct st_writer *w, size_t i)
{
    struct window *to = &w->windows[i];
    pthread_mutex_lock(&w->lock);
    if (!to->data && !to->direct) {
        if (w->n_filling < MAX_FILLING)
            to->data = malloc(WINDOW);
        to->direct = !to->data;
        to->missing = window_bytes(w, i);
        w->n_filling += !to->direct;
    }
    unsigned char *data = to->data;
    pthread_mutex_unlock(&w->lock);
    return data;
}

/* n bytes more of window i are in its memory: write it when it is whole. */
static int window_fill(struct st_writer *w, size_t i, size_t n,
                       struct qwick_err *e)
{
    struct window *of = &w->windows[i];
    pthread_mutex_lock(&w->lock);
    of->missing -= n;
    bool whole = of->missing == 0;
    w->n_filling -= whole;
    pthread_mutex_unlock(&w->lock);
    if (!whole)
        return 0;
    int rc = write_at(w, of->data, window_bytes(w, i), window_begin(w, i), e);
    free(of->data);
    of->data = NULL; /* nobody writes to it again */
    return rc;
}

/* Bytes [at, at + n) of the file, behind the header. */
static int write_windows(struct st_writer *w, const unsigned char *p, size_t n,
                         size_t at, struct qwick_err *e)
{
    while (n > 0) {
        size_t i = at / WINDOW, room = (i + 1) * WINDOW - at;
        size_t k = n < room ? n : room;
        unsigned char *data = window_data(w, i);
        if (data)
            memcpy(data + (at - window_begin(w, i)), p, k);
        if (data ? window_fill(w, i, k, e) : write_at(w, p, k, at, e))
            return -1;
        p += k;
        at += k;
        n -= k;
    }
    return 0;
}

int st_writer_begin(struct st_writer **out, const char *path, const void *head,
                    size_t n_head, const struct st_piece *pieces, size_t n,
                    bool large, struct qwick_err *e)
{
    *out = NULL;
    struct st_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_oom(e, sizeof *w);
    w->file = (struct save)SAVE_NONE;
    pthread_mutex_init(&w->lock, NULL);
    w->path = strdup(path);
    w->n_head = n_head;
    if (set_pieces(w, pieces, n, e) ||
        save_begin(&w->file, w->path, SAVE_SHARED, e) ||
        tensors_put(w, head, n_head, e) || put_given(w, e) ||
        (large && (reserve(w, e) || flush(w, e)))) {
        st_writer_abort(w);
        return -1;
    }
    *out = w;
    return 0;
}

int st_writer_at(struct st_writer *w, size_t tensor, size_t offset,
                 const void *data, size_t n_bytes, struct qwick_err *e)
{
    static const unsigned char zeros[ST_MAX_PAD];
    const unsigned char *p = data;
    if (tensor >= w->n || offset > w->pieces[tensor].p.size ||
        n_bytes > w->pieces[tensor].p.size - offset)
        return err_usage(e,
                         "%s: bytes %zu to %zu of tensor %zu: the header has "
                         "no room for them",
                         w->path, offset, offset + n_bytes, tensor);
    struct piece *t = &w->pieces[tensor];
    size_t at = w->n_head + t->p.begin + offset;
    bool last = offset + n_bytes == t->p.size;
    if (write_windows(w, p, n_bytes, at, e) ||
        (last && write_windows(w, zeros, t->p.pad, at + n_bytes, e)))
        return -1;
    __atomic_fetch_sub(&t->left, n_bytes, __ATOMIC_RELAXED);
    return 0;
}

int st_writer_data(struct st_writer *w, const void *data, size_t n_bytes,
                   struct qwick_err *e)
{
    const unsigned char *p = data;
    while (n_bytes > 0) {
        if (w->at == w->n)
            return err_usage(e, "%s: %zu bytes more than the header has",
                             w->path, n_bytes);
        struct piece *t = &w->pieces[w->at];
        size_t k = n_bytes < t->left ? n_bytes : t->left;
        if (tensors_put(w, p, k, e))
            return -1;
        p += k;
        n_bytes -= k;
        t->left -= k;
        if (t->left == 0 && put_given(w, e))
            return -1;
    }
    return 0;
}

int st_writer_close(struct st_writer *w, struct qwick_err *e)
{
    size_t missing = 0;
    int rc;
    for (size_t i = w->at; i < w->n; i++)
        missing += w->pieces[i].left;
    if (missing > 0)
        rc = err_usage(e, "%s: %zu bytes of data did not come", w->path,
                       missing);
    else
        rc = flush(w, e) || save_commit(&w->file, e) ? -1 : 0;
    st_writer_abort(w);
    return rc;
}

void st_writer_abort(struct st_writer *w)
{
    if (!w)
        return;
    save_abort(&w->file);
    free(w->path);
    free(w->pieces);
    free(w->hold);
    for (size_t i = 0; w->windows && i <= w->size / WINDOW; i++)
        free(w->windows[i].data);
    free(w->windows);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
