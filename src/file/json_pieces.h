/* Rewrites a JSON object that comes in pieces as json_dump_python writes the
 * whole: what is written is the beginning of that text. */
#ifndef FILE_JSON_PIECES_H
#define FILE_JSON_PIECES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* All zeros is the start. */
struct json_pieces {
    struct buf unit; /* an escape, a number or a word that has not ended */
    size_t depth;
    bool in_string;
    bool ended; /* the object has its end, or the text is no JSON: nothing more
                   is written */
};

/* Read a byte of the object, and append to out what is certain. Text that is no
 * JSON may be found only by a parser. Returns 0, or -1 when out of memory. */
int json_pieces_feed(struct json_pieces *p, struct buf *out, char byte);

void json_pieces_free(struct json_pieces *p);

#endif
