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
#include "file/tensors_write.h"

/* Open all weights of a checkpoint. Uses the first of these that exists:
 *   its GGUF file
 *   the shards that model.safetensors.index.json lists. Each shard must exist,
 *       hold the tensors that the index places in it, and be named without a
 *       path. What the index places in another shard is ignored.
 *   model.safetensors
 *   every *.safetensors, in order of names
 * Any other tensor name in two shards is an error. No descriptor stays open. If
 * there are no weights, the error lists the files that were looked for. */
int st_open(struct st_set **out, const struct checkpoint *ck,
            struct qwick_err *e);
/* Open the file `name` in the directory `dir` of a checkpoint. If there is no
 * such file, returns 0 with *found false, and *out is NULL. */
int st_open_in(struct st_set **out, const struct checkpoint *ck,
               const char *dir, const char *name, bool *found,
               struct qwick_err *e);
/* Open one file, given by its path (for tests and tools). */
int st_open_file(struct st_set **out, const char *path, struct qwick_err *e);

/* ---- writing: tensors_write.h -------------------------------------------- */

/* Begin a small file (a result, or a test's): write the header of all tensors,
 * in the order given. Their data must stay valid until st_writer_close; the
 * array need not. */
int st_writer_open(struct st_writer **out, const char *path,
                   const struct st_out_tensor *tensors, size_t n,
                   struct qwick_err *e);
/* Begin a large file of a checkpoint. Its "__metadata__" is {"format": format}.
 * All data come through st_writer_at; data of the tensors is NULL. */
int st_writer_open_large(struct st_writer **out, const char *path,
                         const char *format,
                         const struct st_out_tensor *tensors, size_t n,
                         struct qwick_err *e);

#endif
