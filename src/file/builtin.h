/* The demo model's files, which are read-only data of this binary. */
#ifndef FILE_BUILTIN_H
#define FILE_BUILTIN_H

#include <stddef.h>

struct builtin_file {
    const char *name;
    const unsigned char *data; /* weights start at a page boundary */
    size_t size;
};

/* Write file i to *out; files are sorted by name, bytewise. Returns 0, or -1 if
 * there are fewer files. */
int builtin_at(size_t i, struct builtin_file *out);
/* Write the file of this name to *out. Returns 0, or -1 if there is none. */
int builtin_find(const char *name, struct builtin_file *out);

#endif
