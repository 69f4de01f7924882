/* The index that embed --index appends to. */
#ifndef CLI_EMBED_INDEX_H
#define CLI_EMBED_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/opt/opt.h"
#include "cli/vectors/texts.h"
#include "qwick_tools.h"

struct embed_index {
    const char *dir;        /* NULL: there is no index, and all functions do
                               nothing */
    struct qwick_index *ix; /* NULL: it is not open */
    uint64_t n_new, n_replaced, n_same; /* texts */
    double committed_ms;                /* time of the last commit */
};

/* Functions that return int return 0, or an exit status after printing a
 * message. */

/* Make the directory of --index, unless it is there. Call this before the
 * sandbox. */
int embed_index_make_dir(const char *dir);

/* Open the index for vectors of an embedder. */
int embed_index_open(struct embed_index *x, const struct opt_parsed *p,
                     const struct qwick_embedder *m);

/* Append the id of a text: that of its record, else the name of its file, its
 * line, or the argument itself. Returns 0, or -1 when out of memory. */
int embed_index_id(struct buf *out, const struct texts_item *item);

/* Set *has to whether the index has this text with this id, and count it
 * then. */
int embed_index_has(struct embed_index *x, const struct qwick_index_row *row,
                    bool *has);

/* Add a vector. A row that the index has already is only counted. */
int embed_index_put(struct embed_index *x, const struct qwick_index_row *row,
                    const float *vector);

/* Write what was added to the disk: at once, or if the last time is a second
 * ago. */
int embed_index_commit(struct embed_index *x, bool at_once);

/* Say what has changed. */
void embed_index_report(const struct embed_index *x);
void embed_index_close(struct embed_index *x);

/* Set what a later run finds the model by: its name, or the path in *path,
 * malloc'ed. The result is borrowed from both; NULL: the demo model. Returns 0,
 * or -1 when out of memory. */
int embed_index_model(const struct opt_parsed *p, const char **name,
                      char **path);

#endif
