/* A table from names in a file to the order in which they were added. */
#ifndef FILE_NAME_TABLE_H
#define FILE_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hashmap.h"

struct name {
    const char *s; /* borrowed; may hold NUL */
    size_t n;
};

/* Zero-initialise to start empty. */
struct name_table {
    struct name *names; /* [n] */
    size_t n, cap;
    struct hashmap map; /* of room for map_cap */
    size_t map_cap;
    uint64_t seed; /* random, so that a file cannot be made to collide */
};

void name_table_free(struct name_table *t);

/* Set *index to the place of s[0..n) in names. -1 when it is not there. */
int name_table_find(const struct name_table *t, const char *s, size_t n,
                    size_t *index);

/* Add s[0..n), which must outlive the table, unless it is there. Sets *index to
 * its place. Returns 1 when s was new, 0 when it was there, -1 out of memory.
 */
int name_table_add(struct name_table *t, const char *s, size_t n,
                   size_t *index);

#endif
