/* The safetensors container, and checkpoints split over several.
 *
 * Format: u64 little-endian header length N, N bytes of JSON {name: {"dtype",
 * "shape", "data_offsets": [begin, end)}, "__metadata__"?}, then the data that
 * the offsets count from. Everything is checked when opened: N <= 100,000,000,
 * offsets inside the file, without overlap, hole or tail, shape times dtype
 * equal to the bytes, no repeated names. */
#ifndef FILE_SAFETENSORS_H
#define FILE_SAFETENSORS_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/checkpoint.h"
#include "file/tensors.h"

/* Open all weights of a checkpoint: those of its GGUF file; else the shards of
 * model.safetensors.index.json if it exists (each shard must exist, hold the
 * tensors that the index places in it, and be named without a path); else
 * model.safetensors; else every
 * *.safetensors in name order. A tensor name in two shards is an error. No
 * descriptor stays open. Without any weights, the error lists the files that
 * were looked for. */
int st_open(struct st_set **out, const struct checkpoint *ck,
            struct qwick_err *e);
/* One file, by path (for tests and tools). */
int st_open_file(struct st_set **out, const char *path, struct qwick_err *e);

/* ---- writing small files (results, tests) ---- */

struct st_out_tensor {
    const char *name;
    enum dtype dtype;
    size_t rank;
    size_t shape[ST_MAX_RANK];
    const void *data; /* NULL: written later with st_writer_data */
};

struct st_writer;
/* Begin PATH.tmp.<process id> with the header of all tensors, in the order
 * given. If PATH is not a regular file (/dev/stdout, a pipe, a symbolic link),
 * it is written in place. The tensors' data must stay until close; the array
 * need not. */
int st_writer_open(struct st_writer **out, const char *path,
                   const struct st_out_tensor *tensors, size_t n,
                   struct qwick_err *e);
/* Append data bytes, in the order of the header. */
int st_writer_data(struct st_writer *w, const void *data, size_t n_bytes,
                   struct qwick_err *e);
/* Check that all bytes came, fsync, rename to PATH, and free w. */
int st_writer_close(struct st_writer *w, struct qwick_err *e);
/* Remove the unfinished file and free w (NULL allowed). */
void st_writer_abort(struct st_writer *w);

/* ---- writing large files ---- */

/* Begin a file of a checkpoint: "__metadata__" says {"format": format}, and all
 * data comes by st_writer_at (the tensors' data is NULL). If the file system
 * can, it reserves the whole size now, so that a full disk is an error here.
 * path must be new or a regular file. */
int st_writer_open_large(struct st_writer **out, const char *path,
                         const char *format,
                         const struct st_out_tensor *tensors, size_t n,
                         struct qwick_err *e);
/* Write bytes [offset, offset + n_bytes) of the tensor with this index. Each
 * byte is written once, in any order; several threads may call this at a time.
 * Bytes are collected in windows of 2 MiB, which take up to 32 MiB of memory,
 * the less the closer the calls are to the order of the file. */
int st_writer_at(struct st_writer *w, size_t tensor, size_t offset,
                 const void *data, size_t n_bytes, struct qwick_err *e);

#endif
