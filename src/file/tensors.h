/* The stored tensors ("st") of a checkpoint. Two containers fill such a set:
 * safetensors (safetensors.h) and GGUF (gguf.h). */
#ifndef FILE_TENSORS_H
#define FILE_TENSORS_H

#include <stddef.h>

#include "base/dtype.h"
#include "base/err.h"
#include "file/map.h"

struct arena;

#define ST_MAX_RANK 8

struct st_tensor {
    const char *name; /* decoded; may hold NUL, so it has a length */
    size_t name_len;
    enum dtype dtype;
    size_t rank;
    size_t shape[ST_MAX_RANK]; /* elements per dimension; the last dimension is
                                  contiguous */
    const unsigned char *data; /* any alignment */
    size_t n_bytes;
    const char *file; /* name of the shard */
};

struct st_set;

/* Drop a reference. The last one unmaps the files and frees the set. */
void st_close(struct st_set *set);

size_t st_count(const struct st_set *set);
/* Return tensor i, in order of shard and offset. */
const struct st_tensor *st_at(const struct st_set *set, size_t i);
/* Return the tensor of this name, or NULL. Takes constant time. */
const struct st_tensor *st_find(const struct st_set *set, const char *name);

/* Return the identity that file i had when it was mapped, and set *name to its
 * name. NULL if there is no file i. */
const struct map_id *st_file_id(const struct st_set *set, size_t i,
                                const char **name);

/* Return file i as it is mapped, or NULL if there is no file i. */
const struct map *st_map(const struct st_set *set, size_t i);

/* Return the sum of the sizes of the mapped files. */
size_t st_file_bytes(const struct st_set *set);

/* ---- for containers ------------------------------------------------------ */

/* Create an empty set with one reference. */
int st_set_new(struct st_set **out, struct qwick_err *e);
/* Add a reference. Returns set. */
struct st_set *st_set_share(struct st_set *set);

/* Return memory for names, which is freed with the set. */
struct arena *st_set_text(struct st_set *set);

/* Add a file. The set owns *map from now on, even on failure, and copies name.
 * All tensors that st_set_add adds afterwards belong to this file. */
int st_set_shard(struct st_set *set, const char *name, struct map *map,
                 struct qwick_err *e);
/* Add a copy of *t, whose name must be in st_set_text; t->file is ignored. path
 * is the shard's, for messages. A name that the set already has is an error. */
int st_set_add(struct st_set *set, const struct st_tensor *t, const char *path,
               struct qwick_err *e);
/* Set where the data of tensor i are. */
void st_set_data(struct st_set *set, size_t i, const unsigned char *data);
/* Return the tensor of a name that may hold NUL, or NULL. */
const struct st_tensor *st_find_n(const struct st_set *set, const char *name,
                                  size_t n);

#endif
