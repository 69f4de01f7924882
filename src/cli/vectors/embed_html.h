/* The page of `embed --html`: a map of the texts. */
#ifndef CLI_EMBED_HTML_H
#define CLI_EMBED_HTML_H

#include <stddef.h>

#include "cli/vectors/texts.h"
#include "qwick.h"

/* Most texts of a map. A page with more points is slow, and nobody can tell
 * them apart. */
enum { EMBED_MAP_MAX = 5000 };

/* The texts of a map, and their vectors. */
struct embed_map {
    size_t dim, n, cap;
    float *rows;  /* [n, dim] */
    char **names; /* [n] what shows when the pointer is over a point */
    size_t cap_names;
};

/* Make the name of a text: its id or its place, and its beginning. Returns NULL
 * when out of memory. */
char *embed_map_name(const struct texts_item *item);
/* Add a text with its vector [dim]. Takes the name. Returns 0, or -1 with *e
 * set. */
int embed_map_add(struct embed_map *m, const float *row, char *name,
                  struct qwick_err *e);
/* Write the page. Returns 0, or an exit status after printing a message. */
int embed_map_write(const struct embed_map *m, const struct qwick_engine *eng,
                    const char *path);
void embed_map_free(struct embed_map *m);

#endif
