/* The stored tensors ("st") of a checkpoint, whatever container they are in:
 * safetensors (safetensors.h) or GGUF (gguf.h). */
#ifndef FILE_TENSORS_H
#define FILE_TENSORS_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/map.h"

struct arena;

#define ST_MAX_RANK 8

struct st_tensor {
    const char *name; /* decoded; may hold NUL, hence name_len */
    size_t name_len;
    enum dtype dtype;
    size_t rank;
    size_t shape[ST_MAX_RANK]; /* elements; the last one is contiguous */
    const unsigned char *data; /* any alignment */
    size_t n_bytes;
    const char *file; /* name of the shard */
};

struct st_set;

/* Unmap the files and free the set, when no other reference is left. */
void st_close(struct st_set *set);

size_t st_count(const struct st_set *set);
/* The i-th in order of shard and offset. */
const struct st_tensor *st_at(const struct st_set *set, size_t i);
/* NULL when there is none; constant time. */
const struct st_tensor *st_find(const struct st_set *set, const char *name);

/* The identity of the i-th file when it was mapped, and its name; NULL if there
 * are no more than i files. */
const struct map_id *st_file_id(const struct st_set *set, size_t i,
                                const char **name);

/* Sum of the sizes of the mapped files. */
size_t st_file_bytes(const struct st_set *set);

/* ---- for containers ------------------------------------------------------ */

/* An empty set, with one reference. */
int st_set_new(struct st_set **out, struct qwick_err *e);
/* One reference more. Returns set. */
struct st_set *st_set_share(struct st_set *set);

/* Memory for names, freed with the set. */
struct arena *st_set_text(struct st_set *set);

/* Add a file. The set takes over *map, whatever happens, and copies name. The
 * tensors that st_set_add adds from now on belong to this file. */
int st_set_shard(struct st_set *set, const char *name, struct map *map,
                 struct qwick_err *e);
/* Add *t, whose name is in st_set_text; its member file is ignored. path: of
 * the shard, for messages. A name that the set has already is an error. */
int st_set_add(struct st_set *set, const struct st_tensor *t, const char *path,
               struct qwick_err *e);
/* Say where the data of tensor i is. */
void st_set_data(struct st_set *set, size_t i, const unsigned char *data);
/* Look up a name that may hold NUL. */
const struct st_tensor *st_find_n(const struct st_set *set, const char *name,
                                  size_t n);

#endif
