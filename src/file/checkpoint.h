/* A model's files: in a directory, in one GGUF file, in the local Hugging Face
 * cache, or inside this binary. The network is never used. */
#ifndef FILE_CHECKPOINT_H
#define FILE_CHECKPOINT_H

#include <stdbool.h>

#include "base/err.h"
#include "file/map.h"

struct checkpoint;
struct gguf;

/* spec: a directory; or a GGUF file; or a hub id "org/name" (optionally
 * "org/name@revision"), looked up in $HF_HUB_CACHE, $HF_HOME/hub,
 * $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub as models--org--name/snapshots/<refs/main>; or NULL
 * for the demo model inside the binary. A directory of that name wins over a
 * hub id. If nothing is found, the error lists the places searched and how to
 * download. */
int checkpoint_open(struct checkpoint **out, const char *spec,
                    struct qwick_err *e);
void checkpoint_close(struct checkpoint *ck);

/* The name that the user gave ("qwick-demo" when built in), and the directory
 * or the GGUF file ("built-in"). Borrowed. */
const char *checkpoint_name(const struct checkpoint *ck);
const char *checkpoint_dir(const struct checkpoint *ck);

/* The GGUF file, or NULL when the checkpoint is none. It holds all there is:
 * such a checkpoint has no other files. Borrowed. */
const struct gguf *checkpoint_gguf(const struct checkpoint *ck);

/* Map the file of that name directly inside the checkpoint. Names with a slash
 * or ".." are refused, and so are the pointers that Git LFS leaves in place of
 * files. When there is no such file, *found is false and the result 0. */
int checkpoint_map(const struct checkpoint *ck, const char *name,
                   struct map *out, bool *found, struct qwick_err *e);

/* checkpoint_map for a file that is parsed as a whole and is small in any real
 * checkpoint: a file of more than CHECKPOINT_SMALL bytes is refused. */
#define CHECKPOINT_SMALL ((size_t)16 << 20)
int checkpoint_map_small(const struct checkpoint *ck, const char *name,
                         struct map *out, bool *found, struct qwick_err *e);

/* Write the path for messages to out[n]: "DIR/name", or "built-in/name". Of a
 * GGUF file, DIR is the directory that it is in. */
void checkpoint_path(const struct checkpoint *ck, const char *name, char *out,
                     size_t n);

/* List the names in the directory that end in suffix, sorted bytewise. Free the
 * list with checkpoint_list_free. */
int checkpoint_list(const struct checkpoint *ck, const char *suffix,
                    char ***names, size_t *n, struct qwick_err *e);
void checkpoint_list_free(char **names, size_t n);

#endif
