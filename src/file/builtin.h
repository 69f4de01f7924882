/* The demo model's files, part of this binary's read-only data. */
#ifndef FILE_BUILTIN_H
#define FILE_BUILTIN_H

#include <stddef.h>

struct builtin_file {
    const char *name;
    const unsigned char *data; /* weights start at a page boundary */
    size_t size;
};

/* Get the i-th file; names are sorted bytewise. Returns 0, or -1 if there are
 * fewer files. */
int builtin_at(size_t i, struct builtin_file *out);
/* Get the file of this name. Returns -1 if there is none. */
int builtin_find(const char *name, struct builtin_file *out);

#endif
