/* The files of a model. They are in a directory, in one GGUF file, in the local
 * Hugging Face cache, or inside this binary. The network is never used. */
#ifndef FILE_CHECKPOINT_H
#define FILE_CHECKPOINT_H

#include <stdbool.h>

#include "base/err.h"
#include "file/map.h"

struct checkpoint;
struct gguf;

/* Open the checkpoint that spec names (find_model says how it is found); NULL:
 * the demo model inside the binary. Of a directory, this means its checkpoint
 * if it has config.json and weights in safetensors format; else its only GGUF
 * file, or its GGUF file of the type that spec names. If the directory has no
 * such file, the directories in it are searched as well. */
int checkpoint_open(struct checkpoint **out, const char *spec,
                    struct qwick_err *e);
/* Do the same with the place that qwick_model_find found for spec; NULL: search. */
int checkpoint_open_at(struct checkpoint **out, const char *spec,
                       const char *place, struct qwick_err *e);
/* Refuse an empty name. */
int checkpoint_check_name(const char *spec, struct qwick_err *e);
void checkpoint_close(struct checkpoint *ck);

/* checkpoint_name returns the name that the user gave; "qwick-demo" for the
 * demo model. checkpoint_dir returns the directory or the GGUF file; "built-in"
 * for the demo model. Borrowed. */
const char *checkpoint_name(const struct checkpoint *ck);
const char *checkpoint_dir(const struct checkpoint *ck);

/* Return whether it is the demo model inside the binary. */
bool checkpoint_is_builtin(const struct checkpoint *ck);

/* Return the GGUF file, borrowed, or NULL if the checkpoint is not one. A
 * checkpoint that is a GGUF file has no other files. */
const struct gguf *checkpoint_gguf(const struct checkpoint *ck);

/* The directory in a checkpoint where transformers saves named templates. */
#define CHECKPOINT_TEMPLATES "additional_chat_templates/"

/* Map the file `name` that lies directly inside the checkpoint, or is
 * CHECKPOINT_TEMPLATES and the name of a file in there. Another name with a
 * slash or ".." is refused, and so is a pointer that Git LFS has left in place
 * of the file. If there is no such file, returns 0 with *found false. */
int checkpoint_map(const struct checkpoint *ck, const char *name,
                   struct map *out, bool *found, struct qwick_err *e);

/* Do the same for a file that is parsed as a whole and is small in any real
 * checkpoint: more than CHECKPOINT_SMALL bytes are refused. */
#define CHECKPOINT_SMALL ((size_t)16 << 20)
int checkpoint_map_small(const struct checkpoint *ck, const char *name,
                         struct map *out, bool *found, struct qwick_err *e);

/* Do the same as checkpoint_map, and as checkpoint_map_small, for a file in a
 * directory of the checkpoint. Both names must be plain. */
int checkpoint_map_in(const struct checkpoint *ck, const char *dir,
                      const char *name, struct map *out, bool *found,
                      struct qwick_err *e);
int checkpoint_map_small_in(const struct checkpoint *ck, const char *dir,
                            const char *name, struct map *out, bool *found,
                            struct qwick_err *e);

/* Write a file's path for messages to out[n]: "DIR/name", or "built-in/name".
 * For a GGUF file, DIR is the directory that it is in. */
void checkpoint_path(const struct checkpoint *ck, const char *name, char *out,
                     size_t n);

/* List the names in the directory that end in suffix, sorted bytewise. Free the
 * list with checkpoint_list_free. */
int checkpoint_list(const struct checkpoint *ck, const char *suffix,
                    char ***names, size_t *n, struct qwick_err *e);
/* Do the same for CHECKPOINT_TEMPLATES, which may be missing. */
int checkpoint_list_templates(const struct checkpoint *ck, const char *suffix,
                              char ***names, size_t *n, struct qwick_err *e);
void checkpoint_list_free(char **names, size_t n);

#endif
