/* Lines of files and of standard input. A reader never waits for more input
 * than it needs, and a caught signal ends its wait. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/opt.h"

/* ---- one descriptor ---- */

struct lines {
    const char *name; /* for messages; borrowed */
    int fd;           /* the caller closes it */
    struct buf in;
    size_t start;   /* of in: first byte that was not handed out */
    size_t scanned; /* of in: no newline stands between start and here */
    bool eof;
    uint64_t number; /* of the line handed out last; before the first one 0, or
                        what the caller has set */
    uint64_t consumed; /* bytes of the lines handed out, with their ends */
};

enum lines_status { LINES_GOT, LINES_WAIT, LINES_END, LINES_FAILED };

void lines_init(struct lines *l, const char *name, int fd);
void lines_free(struct lines *l);

/* The next line without its end, valid until the next call. Waits up to
 * timeout_ms for input, -1 for any time. Returns LINES_WAIT when nothing came
 * in that time or when a signal was caught, and LINES_FAILED with *e set when
 * the descriptor cannot be read or the line is longer than PROMPT_MAX. *torn:
 * the input ends without a newline. */
enum lines_status lines_next(struct lines *l, int timeout_ms, const char **text,
                             size_t *n, bool *torn, struct qwick_err *e);

/* The number of lines from where a descriptor stands, which does not move.
 * Lines with nothing but blanks count if blank is set. 0: the descriptor is no
 * regular file, or too long to be read just for that. */
uint64_t lines_count(int fd, bool blank);

/* ---- all files of a verb ---- */

struct line {
    const char *where; /* "FILE: line N", for messages */
    const char *text;  /* [n] without its end; valid during the call */
    size_t n;
};

/* Both return 0 to go on, or the exit status that ends the run. */
struct lines_handler {
    int (*line)(void *ctx, const struct line *l);
    /* No more input is there at the moment. Lines that were kept for a joint
     * answer are answered here. NULL: nothing is kept. */
    int (*wait)(void *ctx);
};

/* Hand out the lines of all files in turn, or of standard input when there are
 * none. Returns 0 or an exit status, whose message is printed. A caught signal
 * ends the run with exit status 1 and no message. */
int lines_run(const struct opt_texts *files, const struct lines_handler *h,
              void *ctx);

/* The number of lines of all files, as lines_count. 0 when it is not known of
 * one of them. */
uint64_t lines_total(const struct opt_texts *files, bool blank);

#endif
