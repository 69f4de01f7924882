/* Writing a file of tensors: a header, and then the tensors' bytes. The
 * containers (safetensors.h, gguf_write.h) make the header. */
#ifndef FILE_TENSORS_WRITE_H
#define FILE_TENSORS_WRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/tensors.h"

struct st_out_tensor {
    const char *name;
    enum dtype dtype;
    size_t rank;
    size_t shape[ST_MAX_RANK]; /* the last dimension is contiguous */
    const void *data; /* NULL: st_writer_data or st_writer_at supplies them
                         later */
};

struct st_writer;

/* Append bytes of data, in the order of the header. */
int st_writer_data(struct st_writer *w, const void *data, size_t n_bytes,
                   struct qwick_err *e);
/* Write bytes [offset, offset + n_bytes) of the tensor with this index, in a
 * large file. Each byte is written once, in any order; several threads may call
 * this at the same time. Bytes are collected in windows of 2 MiB, which take up
 * to 32 MiB of memory. The closer the calls are to the order of the file, the
 * less memory they take. */
int st_writer_at(struct st_writer *w, size_t tensor, size_t offset,
                 const void *data, size_t n_bytes, struct qwick_err *e);
/* Check that all bytes have come, give the file its name (save_commit), and free
 * w. */
int st_writer_close(struct st_writer *w, struct qwick_err *e);
/* Remove the unfinished file and free w (may be NULL). */
void st_writer_abort(struct st_writer *w);

/* ---- for containers ------------------------------------------------------ */

/* Maximum number of zero bytes after a tensor. */
enum { ST_MAX_PAD = 64 };

/* A tensor's place in the data. Each tensor begins where the one before it
 * ends. */
struct st_piece {
    const void *data; /* NULL: comes later; always NULL in large files */
    size_t begin, size;
    size_t pad; /* zero bytes after it; only in large files */
};

/* Begin to replace the file at path, as SAVE_SHARED of save.h, with these bytes.
 * large: reserve the whole size now if the file system
 * can, so that a full disk is an error here; path must be new or a regular
 * file. The pieces' data must stay valid until st_writer_close; the array need
 * not. */
int st_writer_begin(struct st_writer **out, const char *path, const void *head,
                    size_t n_head, const struct st_piece *pieces, size_t n,
                    bool large, struct qwick_err *e);

#endif
