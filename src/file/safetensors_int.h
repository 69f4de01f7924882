/* A function that the files of the safetensors reader share. */
#ifndef FILE_SAFETENSORS_INT_H
#define FILE_SAFETENSORS_INT_H

#include "file/map.h"
#include "file/safetensors.h"

/* Read the header of a shard, and add its tensors to the set. The shard is the
 * set's last one (st_set_shard), and m its mapping; path is for messages.
 * Returns 0, or -1 with *e set. */
int st_read_shard(struct st_set *set, const struct map *m, const char *path,
                  struct qwick_err *e);

#endif
