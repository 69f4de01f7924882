/* The demo model's files, part of this binary's read-only data. */
#ifndef FILE_BUILTIN_H
#define FILE_BUILTIN_H

#include <stddef.h>

struct builtin_file {
    const char *name;
    const unsigned char *data; /* weights start on a page */
    size_t size;
};

/* The i-th file, names sorted bytewise; 0, or -1 from the end on. */
int builtin_at(size_t i, struct builtin_file *out);
/* The file of that name; -1 when there is none. */
int builtin_find(const char *name, struct builtin_file *out);

#endif
