/* Removing a snapshot, or one GGUF file of it, from the local Hugging Face
 * cache (hub_cache.h). No symbolic link is followed below the directory of the
 * repository: links are removed, but not their targets.
 *
 * The order of the steps makes a crash harmless. First the references go; the
 * snapshot is still whole. Then one rename moves it, or the file by whose name
 * it is found, into the directory .removed-SNAPSHOT of the repository, where no
 * program looks for models. Only then blobs are deleted, and that directory
 * last. The next removal in the repository deletes what is in such
 * directories. */
#ifndef FILE_HUB_REMOVE_H
#define FILE_HUB_REMOVE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct hub_target {
    char *repo;     /* the directory models--ORG--NAME */
    char *snapshot; /* NULL: only leftovers, and references to nothing */
    char *file;     /* a GGUF file in the snapshot, or its first part; NULL: the
                       whole snapshot */
    bool all;       /* all snapshots */
};

void hub_target_free(struct hub_target *t);

/* Return whether an interrupted removal has left something in the repository at
 * this path. */
bool hub_has_leftovers(const char *repo);

/* Lock the repository. Count the files and the bytes that would be freed. The
 * target is borrowed. Returns 0, or -1 with *e set: a download runs, a
 * directory cannot be written, or nothing is there to remove. */
struct hub_removal;
int hub_removal_open(struct hub_removal **out, const struct hub_target *t,
                     size_t *n_files, size_t *n_bytes, struct qwick_err *e);

/* Remove it. *n_bytes: the bytes that were freed, also after a failure. */
int hub_removal_run(struct hub_removal *r, size_t *n_bytes,
                    struct qwick_err *e);

void hub_removal_close(struct hub_removal *r);

#endif
