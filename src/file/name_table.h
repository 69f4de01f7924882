/* A table that numbers names of a file in the order in which they were
 * added. */
#ifndef FILE_NAME_TABLE_H
#define FILE_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hashmap.h"

struct name {
    const char *s; /* borrowed; may hold NUL */
    size_t n;
};

/* A table. A struct of all zeros is empty. */
struct name_table {
    struct name *names; /* [n] */
    size_t n, cap;
    struct hashmap map; /* has room for map_cap names */
    size_t map_cap;
    uint64_t seed; /* random, so that nobody can craft a file with collisions */
};

void name_table_free(struct name_table *t);

/* Set *index to the index of s[0..n) in names. Returns 0, or -1 if the table
 * lacks the name. */
int name_table_find(const struct name_table *t, const char *s, size_t n,
                    size_t *index);

/* Set *index to the index of s[0..n), after adding it if the table lacks it. s
 * must outlive the table. Returns 1 if s was added, 0 if the table had it, -1
 * when out of memory. */
int name_table_add(struct name_table *t, const char *s, size_t n,
                   size_t *index);

#endif
