/* What the files of the safetensors reader share. */
#ifndef FILE_SAFETENSORS_INT_H
#define FILE_SAFETENSORS_INT_H

#include <stdbool.h>

#include "file/map.h"
#include "file/safetensors.h"

/* Returns whether the tensor `name` belongs to the set. */
typedef bool (*st_keep_fn)(void *ctx, const char *name, size_t n);

/* Read the header of a shard, and add those of its tensors to the set that keep
 * (NULL: all) accepts. The shard is the set's last one (st_set_shard), and m
 * its mapping; path is for messages. Returns 0, or -1 with *e set. */
int st_read_shard(struct st_set *set, const struct map *m, const char *path,
                  st_keep_fn keep, void *ctx, struct qwick_err *e);

#endif
