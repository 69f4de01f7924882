#include "cli/vectors/vectors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "file/fs.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "floats are written as they are in memory");

/* Bytes per write. */
enum { CHUNK = 1 << 20 };

enum vectors_format vectors_format(const char *name)
{
    if (!name || strcmp(name, "jsonl") == 0)
        return VECTORS_JSONL;
    return strcmp(name, "tsv") == 0   ? VECTORS_TSV
           : strcmp(name, "f32") == 0 ? VECTORS_F32
                                      : VECTORS_NPY;
}

static int write_bytes(struct vectors *v, const char *p, size_t n)
{
    progress_output(v->path ? v->file.fd : STDOUT_FILENO);
    if (!v->path)
        return out_write(p, n) ? (int)QWICK_ERR_RUNTIME : 0;
    struct qwick_err e;
    return msg_result(save_write(&v->file, p, n, &e), &e);
}

/* ---- formats ------------------------------------------------------------ */

enum { NPY_HEADER = 128 };

/* Make the header. Its length does not depend on n, so that finish_npy can
 * rewrite it. */
static void npy_header(char out[NPY_HEADER], size_t n, size_t dim)
{
    int k = snprintf(out, NPY_HEADER,
                     "\x93NUMPY\x01%c%c%c{'descr': '<f4', 'fortran_order': "
                     "False, 'shape': (%zu, %zu), }",
                     0, NPY_HEADER - 10, 0, n, dim);
    memset(out + k, ' ', (size_t)(NPY_HEADER - k));
    out[NPY_HEADER - 1] = '\n';
}

int vectors_open(struct vectors *v, enum vectors_format format,
                 const char *path, size_t dim)
{
    *v = (struct vectors){
        .format = format, .path = path, .dim = dim, .file = SAVE_NONE};
    struct qwick_err e;
    int status = 0;
    if (path)
        status = msg_result(save_begin(&v->file, path, SAVE_SHARED, &e), &e);
    else if (out_check())
        status = QWICK_ERR_RUNTIME;
    if (status || format != VECTORS_NPY)
        return status;
    v->hold = !v->file.temp;
    char head[NPY_HEADER];
    npy_header(head, 0, dim);
    return buf_append(&v->buf, head, sizeof head) ? msg_oom() : 0;
}

int vectors_flush(struct vectors *v)
{
    int status = 0;
    if (!v->hold && v->buf.len) {
        status = write_bytes(v, v->buf.data, v->buf.len);
        v->buf.len = 0;
    }
    return status;
}

static int added(struct vectors *v, int bad)
{
    if (bad)
        return msg_oom();
    return v->buf.len >= CHUNK ? vectors_flush(v) : 0;
}

int vectors_line(struct vectors *v, const char *s, size_t n)
{
    return added(v, buf_append(&v->buf, s, n));
}

int vectors_put(struct vectors *v, const float *x)
{
    int bad = 0;
    v->n++;
    if (v->format != VECTORS_TSV)
        return added(v, buf_append(&v->buf, x, v->dim * sizeof *x));
    for (size_t i = 0; i < v->dim && !bad; i++) {
        bad |= i ? buf_putc(&v->buf, '\t') : 0;
        bad |= buf_json_float(&v->buf, x[i]);
    }
    return added(v, bad | buf_putc(&v->buf, '\n'));
}

/* Write the final header: only now is the number of vectors known. */
static int finish_npy(struct vectors *v)
{
    char head[NPY_HEADER];
    npy_header(head, v->n, v->dim);
    if (v->hold) {
        memcpy(v->buf.data, head, sizeof head);
        return 0;
    }
    if (write_all_at(v->file.fd, head, sizeof head, 0))
        return msg_errno(v->path, "cannot write");
    return 0;
}

int vectors_close(struct vectors *v)
{
    int status = vectors_flush(v);
    if (!status && v->format == VECTORS_NPY)
        status = finish_npy(v);
    v->hold = false;
    if (!status)
        status = vectors_flush(v);
    if (status || !v->path)
        return status;
    struct qwick_err e;
    return msg_result(save_commit(&v->file, &e), &e);
}

void vectors_abort(struct vectors *v)
{
    save_abort(&v->file);
    buf_free(&v->buf);
    *v = (struct vectors){.file = SAVE_NONE};
}
