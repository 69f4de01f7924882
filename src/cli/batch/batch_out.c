/* Write the output: places, lines whose turn has come, the file. */
#include "cli/batch/batch_out.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

/* Sync answers to the disk at least this often. If the machine crashes, the
 * answers since the last sync are lost. A crash of the program loses none. */
#define SYNC_MS 5000

static int out_fail(struct batch_out *o, struct qwick_err *e)
{
    o->failed = true;
    return err_errno(e, o->file.path, "write error");
}

static int write_ready(struct batch_out *o, struct qwick_err *e)
{
    if (o->ready.len == 0)
        return 0;
    bool file = o->file.path;
    progress_output(file ? o->file.fd : STDOUT_FILENO);
    if (file ? fd_write(o->file.fd, o->ready.data, o->ready.len)
             : out_write(o->ready.data, o->ready.len)) {
        if (file)
            return out_fail(o, e);
        o->failed = true; /* out_write printed the message */
        return err_set(e, QWICK_ERR_RUNTIME, "stdout: write error");
    }
    o->ready.len = 0;
    return 0;
}

int batch_out_sync(struct batch_out *o, struct qwick_err *e)
{
    if (write_ready(o, e))
        return -1;
    o->synced_ms = clock_ms();
    /* devices and pipes cannot be synced */
    return fdatasync(o->file.fd) && errno != EINVAL && errno != EROFS
               ? out_fail(o, e)
               : 0;
}

int batch_out_flush(struct batch_out *o, struct qwick_err *e)
{
    return o->file.path && clock_ms() - o->synced_ms >= SYNC_MS
               ? batch_out_sync(o, e)
               : write_ready(o, e);
}

int batch_out_close(struct batch_out *o, struct qwick_err *e)
{
    int r = 0;
    if (!o->failed)
        r = o->file.fd >= 0 ? batch_out_sync(o, e) : write_ready(o, e);
    if (o->file.fd >= 0 && close(o->file.fd) && errno != EINTR && !o->failed)
        r = out_fail(o, e);
    if (o->pending.fd >= 0)
        close(o->pending.fd);
    for (size_t i = 0; i < o->n_slots; i++)
        free(batch_out_slot(o, o->base + i)->text);
    free(o->slots);
    free(o->file.v);
    free(o->pending.v);
    free(o->file.path);
    free(o->pending.path);
    buf_free(&o->ready);
    *o = (struct batch_out)BATCH_OUT_NONE;
    return r;
}

/* ---- places ------------------------------------------------------------- */

struct out_slot *batch_out_slot(const struct batch_out *o, uint64_t place)
{
    return &o->slots[place % o->cap_slots];
}

int batch_out_place(struct batch_out *o, uint64_t *place, struct qwick_err *e)
{
    if (o->n_slots == o->cap_slots) {
        size_t cap = o->cap_slots ? 2 * o->cap_slots : 64;
        struct out_slot *v = calloc(cap, sizeof(*v));
        if (!v)
            return err_oom(e, cap * sizeof(*v));
        for (uint64_t p = o->base; p < o->base + o->n_slots; p++)
            v[p % cap] = *batch_out_slot(o, p);
        free(o->slots);
        o->slots = v;
        o->cap_slots = cap;
    }
    *place = o->base + o->n_slots++;
    *batch_out_slot(o, *place) = (struct out_slot){0};
    return 0;
}

int batch_out_put(struct batch_out *o, uint64_t place, struct buf *b,
                  struct qwick_err *e)
{
    struct out_slot *s = batch_out_slot(o, place);
    if (o->unordered && buf_append(&o->ready, b->data, b->len))
        return err_oom(e, b->len);
    s->text = buf_take(b, &s->n);
    if (o->unordered)
        s->n = 0; /* its place needs no more output */
    /* move the lines whose turn has come */
    while (o->n_slots > 0 && (s = batch_out_slot(o, o->base))->text) {
        if (buf_append(&o->ready, s->text, s->n))
            return err_oom(e, s->n);
        free(s->text);
        *s = (struct out_slot){0};
        o->n_slots--;
        o->base++;
    }
    return 0;
}
