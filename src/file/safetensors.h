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
#include <stdint.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/checkpoint.h"

#define ST_MAX_RANK 8

struct st_tensor {
    const char *name; /* decoded; may hold NUL, hence name_len */
    size_t name_len;
    enum dtype dtype;
    size_t rank;
    size_t shape[ST_MAX_RANK];
    const unsigned char *data; /* any alignment */
    size_t n_bytes;
    const char *file; /* name of the shard */
};

struct st_set;

/* Open all weights of a checkpoint: the shards of model.safetensors.index.json
 * when it is there (each exists, holds the tensors that the index places in it,
 * has no path parts); else model.safetensors; else every *.safetensors in name
 * order. A tensor name in two shards is an error. Descriptors are not kept
 * open. No weights at all: an error that says which files were looked for. */
int st_open(struct st_set **out, const struct checkpoint *ck,
            struct qwick_err *e);
/* One file, by path (for tests and tools). */
int st_open_file(struct st_set **out, const char *path, struct qwick_err *e);
void st_close(struct st_set *set);

size_t st_count(const struct st_set *set);
/* The i-th in order of shard and offset. */
const struct st_tensor *st_at(const struct st_set *set, size_t i);
/* NULL when there is none; constant time. */
const struct st_tensor *st_find(const struct st_set *set, const char *name);

/* Identity of the i-th file when it was mapped, and its name; NULL from the end
 * on. */
const struct map_id *st_file_id(const struct st_set *set, size_t i,
                                const char **name);

/* Sum of the sizes of the mapped files. */
size_t st_file_bytes(const struct st_set *set);

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
 * given. What is no regular file (/dev/stdout, a pipe, a symbolic link) is
 * written in place. tensors' data must stay until close, tensors need not. */
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

/* The same for a checkpoint: "__metadata__" says {"format": format}, the file's
 * whole size is reserved at once where the file system can, so that a full disk
 * shows here, and every tensor (data NULL) comes by st_writer_at. path must be
 * new or a regular file. */
int st_writer_open_large(struct st_writer **out, const char *path,
                         const char *format,
                         const struct st_out_tensor *tensors, size_t n,
                         struct qwick_err *e);
/* Write bytes [offset, offset + n_bytes) of the tensor of that index, each byte
 * once, in any order; several threads may call it at a time. The file gets them
 * by windows of 2 MiB, which takes up to 32 MiB of memory; in the order of the
 * file the least. */
int st_writer_at(struct st_writer *w, size_t tensor, size_t offset,
                 const void *data, size_t n_bytes, struct qwick_err *e);

#endif
