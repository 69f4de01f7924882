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
    struct hashmap map; /* has room for map_cap names */
    size_t map_cap;
    uint64_t seed; /* random, so that nobody can craft a file with collisions */
};

void name_table_free(struct name_table *t);

/* Set *index to the index of s[0..n) in names. Returns -1 if it is not
 * there. */
int name_table_find(const struct name_table *t, const char *s, size_t n,
                    size_t *index);

/* Add s[0..n), which must outlive the table, unless it is there. Sets *index to
 * its index. Returns 1 if s was new, 0 if it was there, -1 when memory ran
 * out. */
int name_table_add(struct name_table *t, const char *s, size_t n,
                   size_t *index);

#endif
