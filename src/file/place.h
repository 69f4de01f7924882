/* Directories that environment variables name. */
#ifndef FILE_PLACE_H
#define FILE_PLACE_H

#include <stdlib.h>

#include "base/buf.h"

struct place {
    const char *variable; /* NULL: below is the whole path */
    const char *below;    /* appended to the variable's value */
};

/* Write the path to *out. Returns 1; 0 if the variable is unset or empty; -1 if
 * memory ran out. */
static inline int place_path(const struct place *p, struct buf *out)
{
    const char *v = p->variable ? getenv(p->variable) : "";
    out->len = 0;
    if (!v || (p->variable && !*v))
        return 0;
    return buf_puts(out, v) || buf_puts(out, p->below) ? -1 : 1;
}

#endif
