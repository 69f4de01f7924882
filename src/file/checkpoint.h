/* Where a model's files are: a directory, the local Hugging Face cache, or
 * inside this binary. Never the network. */
#ifndef FILE_CHECKPOINT_H
#define FILE_CHECKPOINT_H

#include <stdbool.h>

#include "base/err.h"
#include "file/map.h"

struct checkpoint;

/* spec: a directory; or a hub id "org/name" (optionally "org/name@revision"),
 * looked up in $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub as models--org--name/snapshots/<refs/main>; or NULL
 * for the demo model inside the binary. A directory of that name wins over a
 * hub id. The error of a miss says where was looked and how to download. */
int checkpoint_open(struct checkpoint **out, const char *spec,
                    struct qwick_err *e);
void checkpoint_close(struct checkpoint *ck);

/* What the user called it ("qwick-demo" when built in); the directory
 * ("built-in"). Borrowed. */
const char *checkpoint_name(const struct checkpoint *ck);
const char *checkpoint_dir(const struct checkpoint *ck);

/* Map the file of that name directly inside the checkpoint. Names with a slash
 * or ".." are refused, and so are pointers that Git LFS leaves in place of a
 * file. *found is false, and 0 returned, when there is none. */
int checkpoint_map(const struct checkpoint *ck, const char *name,
                   struct map *out, bool *found, struct qwick_err *e);

/* The same for a file that is parsed as a whole and small in any checkpoint:
 * one of more than CHECKPOINT_SMALL bytes is refused. */
#define CHECKPOINT_SMALL ((size_t)16 << 20)
int checkpoint_map_small(const struct checkpoint *ck, const char *name,
                         struct map *out, bool *found, struct qwick_err *e);

/* Path for messages: "DIR/name"; built in: "built-in/name". Into out[n]. */
void checkpoint_path(const struct checkpoint *ck, const char *name, char *out,
                     size_t n);

/* Names in the directory that end in suffix, sorted bytewise; each and the
 * array are malloc'ed. */
int checkpoint_list(const struct checkpoint *ck, const char *suffix,
                    char ***names, size_t *n, struct qwick_err *e);
void checkpoint_list_free(char **names, size_t n);

#endif
