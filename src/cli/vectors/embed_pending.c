#include "cli/vectors/embed_pending.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "file/fs.h"
#include "qwick.h"

/* The file has a header, then rows: a text's key and its vector, in the
 * machine's byte order, since the next run is on this machine. */
#define MAGIC "qwick embed 1\n"
struct header {
    char magic[16];
    uint64_t dim;
    unsigned __int128 run;
} __attribute__((packed));

struct pending_row {
    unsigned __int128 text;
    uint64_t at; /* offset of the vector in the file */
};

static size_t row_bytes(const struct embed_pending *p)
{
    return sizeof(unsigned __int128) + p->dim * sizeof(float);
}

static int by_text(const void *a, const void *b)
{
    const struct pending_row *x = a, *y = b;
    return (x->text > y->text) - (x->text < y->text);
}

/* Read the keys of all complete rows. An incomplete last row is ignored. */
static int read_rows(struct embed_pending *p, uint64_t size)
{
    p->n_rows = (size_t)((size - sizeof(struct header)) / row_bytes(p));
    p->rows = calloc(p->n_rows + 1, sizeof(*p->rows));
    if (!p->rows)
        return msg_oom();
    for (size_t i = 0; i < p->n_rows; i++) {
        uint64_t at = sizeof(struct header) + (uint64_t)i * row_bytes(p);
        if (read_all_at(p->fd, &p->rows[i].text, sizeof(p->rows[i].text), at))
            return msg_errno(p->path, "cannot read");
        p->rows[i].at = at + sizeof(p->rows[i].text);
    }
    uint64_t end = sizeof(struct header) + (uint64_t)p->n_rows * row_bytes(p);
    if (ftruncate(p->fd, (off_t)end))
        return msg_errno(p->path, "cannot be cut");
    if (p->n_rows)
        qsort(p->rows, p->n_rows, sizeof(*p->rows), by_text);
    return 0;
}

static int start_new(struct embed_pending *p, const struct header *h)
{
    if (ftruncate(p->fd, 0))
        return msg_errno(p->path, "cannot be emptied");
    if (write_all(p->fd, h, sizeof(*h)))
        return msg_errno(p->path, "write error");
    return 0;
}

/* Check the header. A file with only a part of our header was cut off before
 * its first row, so it is valid and empty. */
static int check(struct embed_pending *p, const struct header *want, bool redo)
{
    struct header h = {0};
    struct stat st;
    if (fstat(p->fd, &st))
        return msg_errno(p->path, "cannot read");
    uint64_t size = (uint64_t)st.st_size;
    size_t n = size < sizeof(h) ? (size_t)size : sizeof(h);
    size_t n_magic = n < sizeof(h.magic) ? n : sizeof(h.magic);
    if (!S_ISREG(st.st_mode) || read_all_at(p->fd, &h, n, 0) ||
        memcmp(h.magic, want->magic, n_magic) != 0)
        return msg_refuse("%s: was not written by qwick embed; left alone",
                          p->path);
    if (n < sizeof(h))
        return start_new(p, want);
    if (h.dim == want->dim && h.run == want->run)
        return read_rows(p, size);
    if (redo)
        return start_new(p, want);
    return msg_refuse(
        "%s: has vectors of an unfinished run with another model, or with "
        "another --exact, --kv, --dim or --no-normalize; left alone "
        "(--redo drops them)",
        p->path);
}

int embed_pending_open(struct embed_pending *p, const char *output,
                       const struct key *run, size_t dim, bool redo)
{
    struct header h = {.magic = MAGIC, .dim = dim, .run = run->h};
    struct stat st;
    *p = (struct embed_pending){.fd = -1, .dim = dim};
    if (!output || (!lstat(output, &st) && !S_ISREG(st.st_mode)))
        return 0;
    if (asprintf(&p->path, "%s.pending", output) < 0) {
        p->path = NULL;
        return msg_oom();
    }
    p->fd =
        open(p->path,
             O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
             0666);
    if (p->fd < 0)
        return msg_errno(p->path, "open");
    bool locked = flock(p->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    int status =
        locked ? msg_refuse("%s: another qwick embed is writing it", p->path)
               : check(p, &h, redo);
    if (status) { /* leave the file unchanged */
        close(p->fd);
        p->fd = -1;
    }
    return status;
}

bool embed_pending_get(const struct embed_pending *p, const struct key *text,
                       float *row)
{
    const struct pending_row want = {.text = text->h};
    const struct pending_row *r =
        p->n_rows ? bsearch(&want, p->rows, p->n_rows, sizeof(want), by_text)
                  : NULL;
    return r && !read_all_at(p->fd, row, p->dim * sizeof(*row), r->at);
}

/* Stop storing vectors. The stored ones stay for the next run. */
static void give_up(struct embed_pending *p, const char *why)
{
    progress_clear();
    msg_warn("%s: %s; if this run is interrupted, it starts again", p->path,
             why);
    p->out.len = 0;
    p->n_added = SIZE_MAX;
}

void embed_pending_flush(struct embed_pending *p)
{
    if (p->fd < 0 || p->n_added == SIZE_MAX || p->out.len == 0)
        return;
    if (write_all(p->fd, p->out.data, p->out.len))
        give_up(p, strerror(errno));
    p->out.len = 0;
}

void embed_pending_put(struct embed_pending *p, const struct key *text,
                       const float *row)
{
    if (p->fd < 0 || p->n_added == SIZE_MAX)
        return;
    if (buf_append(&p->out, &text->h, sizeof(text->h)) ||
        buf_append(&p->out, row, p->dim * sizeof(*row))) {
        give_up(p, "out of memory");
        return;
    }
    p->n_added++;
}

size_t embed_pending_close(struct embed_pending *p, bool done)
{
    size_t n = 0;
    if (p->fd >= 0) {
        if (!done)
            embed_pending_flush(p);
        n = done ? 0 : p->n_rows + (p->n_added == SIZE_MAX ? 0 : p->n_added);
        if (n == 0)
            unlink(p->path);
        close(p->fd);
    }
    free(p->path);
    free(p->rows);
    buf_free(&p->out);
    *p = (struct embed_pending){.fd = -1};
    return n;
}
