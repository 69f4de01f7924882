/* A list of strings. */
#ifndef CLI_STRINGS_H
#define CLI_STRINGS_H

#include <stddef.h>

struct strings {
    const char **v; /* [n] */
    size_t n;
};

#endif
