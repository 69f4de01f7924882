/* The safetensors container, and checkpoints that are split over several files.
 *
 * A file is: the header's length N (u64, little-endian); N bytes of JSON {name:
 * {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__"?}; then the
 * data, from whose start the offsets count. Everything is checked on opening: N
 * <= 100,000,000; offsets lie inside the file and leave no overlap, hole or
 * tail; shape times dtype equals the bytes; no name is repeated. */
#ifndef FILE_SAFETENSORS_H
#define FILE_SAFETENSORS_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/checkpoint.h"
#include "file/tensors.h"

/* Open all weights of a checkpoint. Uses the first of these that exists:
 *   its GGUF file
 *   the shards that model.safetensors.index.json lists. Each shard must exist,
 *       hold the tensors that the index places in it, and be named without a
 *       path.
 *   model.safetensors
 *   every *.safetensors, in order of names
 * A tensor name in two shards is an error. No descriptor stays open. If there
 * are no weights, the error lists the files that were looked for. */
int st_open(struct st_set **out, const struct checkpoint *ck,
            struct qwick_err *e);
/* Open one file, given by its path (for tests and tools). */
int st_open_file(struct st_set **out, const char *path, struct qwick_err *e);

/* ---- writing small files (results, tests) ---- */

struct st_out_tensor {
    const char *name;
    enum dtype dtype;
    size_t rank;
    size_t shape[ST_MAX_RANK];
    const void *data; /* NULL: st_writer_data or st_writer_at supplies them
                         later */
};

struct st_writer;
/* Begin a file: write the header of all tensors, in the order given, to
 * PATH.tmp.<process id>. If PATH exists and is not a regular file (/dev/stdout,
 * a pipe, a symbolic link), it is written directly. The tensors' data must stay
 * valid until st_writer_close; the array need not. */
int st_writer_open(struct st_writer **out, const char *path,
                   const struct st_out_tensor *tensors, size_t n,
                   struct qwick_err *e);
/* Append bytes of data, in the order of the header. */
int st_writer_data(struct st_writer *w, const void *data, size_t n_bytes,
                   struct qwick_err *e);
/* Check that all bytes have come, sync the file, rename it to PATH, and free
 * w. */
int st_writer_close(struct st_writer *w, struct qwick_err *e);
/* Remove the unfinished file and free w (may be NULL). */
void st_writer_abort(struct st_writer *w);

/* ---- writing large files ---- */

/* Begin a file of a checkpoint. Its "__metadata__" is {"format": format}. All
 * data come through st_writer_at; data of the tensors is NULL. Reserves the
 * whole size now if the file system can, so that a full disk is an error here.
 * path must be new or a regular file. */
int st_writer_open_large(struct st_writer **out, const char *path,
                         const char *format,
                         const struct st_out_tensor *tensors, size_t n,
                         struct qwick_err *e);
/* Write bytes [offset, offset + n_bytes) of the tensor with this index. Each
 * byte is written once, in any order; several threads may call this at the same
 * time. Bytes are collected in windows of 2 MiB, which take up to 32 MiB of
 * memory. The closer the calls are to the order of the file, the less memory
 * they take. */
int st_writer_at(struct st_writer *w, size_t tensor, size_t offset,
                 const void *data, size_t n_bytes, struct qwick_err *e);

#endif
