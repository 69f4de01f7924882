/* Lines of a descriptor, read without waiting for more than there is. */
#ifndef CLI_BATCH_LINES_H
#define CLI_BATCH_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/opt.h"

struct lines {
    const char *name; /* for messages */
    int fd;
    struct buf in;
    size_t start, scanned; /* of in: first byte not handed out, not looked at */
    bool eof;
    uint64_t number;   /* of the line handed out last; before the first one 0,
                          or what the caller has set */
    uint64_t consumed; /* bytes of the lines handed out, their ends included */
};

enum lines_status { LINES_GOT, LINES_WAIT, LINES_END, LINES_FAILED };

void lines_init(struct lines *l, const char *name, int fd);
void lines_free(struct lines *l);

/* The next line without its end, valid until the next call. Waits up to
 * timeout_ms (-1: any time) for input; then, or once a signal was caught, says
 * LINES_WAIT. *torn: no newline ends it, the input does. */
enum lines_status lines_next(struct lines *l, int timeout_ms, const char **text,
                             size_t *n, bool *torn, struct qwick_err *e);

/* Lines of what a descriptor has from where it stands, which does not move; 0:
 * it is no regular file, or too long to be read just for that. blank: those
 * without more than blanks count, too. */
uint64_t lines_count(int fd, bool blank);

/* The same for files, or for standard input when there are none; 0 when that is
 * not known of one of them. */
uint64_t lines_total(const struct opt_texts *files, bool blank);

#endif
