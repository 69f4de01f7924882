/* Reads lines of files and of standard input. A reader never waits for more
 * input than it needs, and a caught signal ends its wait. */
#ifndef CLI_LINES_H
#define CLI_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/io/strings.h"

/* ---- one descriptor ---- */

struct lines {
    const char *name; /* for messages; borrowed */
    int fd;           /* the caller closes it */
    struct buf in;
    size_t start;   /* offset in `in` of the first byte that was not handed
                       out */
    size_t scanned; /* offset in `in`: there is no newline from start to here */
    bool eof;
    uint64_t number;   /* number of the line that was handed out last; before
                          the first line it is 0, or a value that the caller
                          set */
    uint64_t consumed; /* bytes of the lines handed out, including line ends */
};

enum lines_status { LINES_GOT, LINES_WAIT, LINES_END, LINES_FAILED };

void lines_init(struct lines *l, const char *name, int fd);
void lines_free(struct lines *l);

/* Get the next line without its line end, and the first one without a byte
 * order mark, valid until the next call. Waits up to timeout_ms for input (-1:
 * without limit). Returns LINES_WAIT when no input came in that time, or a
 * signal was caught. Returns LINES_FAILED with *e set when the descriptor
 * cannot be read, or the line is longer than PROMPT_MAX. *torn is set to
 * whether the input ended without a newline. */
enum lines_status lines_next(struct lines *l, int timeout_ms, const char **text,
                             size_t *n, bool *torn, struct qwick_err *e);

/* Return whether a line has only blanks, tabs and carriage returns. */
bool line_is_blank(const char *text, size_t n);

/* Find the next line that is not blank, without handing it out. Waits for it.
 * Returns LINES_WAIT when a signal may have come. */
enum lines_status lines_peek(struct lines *l, const char **text, size_t *n,
                             struct qwick_err *e);

/* Count the lines that were not handed out; see lines_total. */
uint64_t lines_left(const struct lines *l, bool blank);

/* ---- all files of a verb ---- */

struct line {
    const char *where; /* "FILE: line N", for messages */
    const char *file;  /* NULL: standard input */
    uint64_t number;   /* in its file, from 1 */
    const char *text;  /* [n] without its line end; valid during the call */
    size_t n;
    const char
        *error; /* why a record of another form is bad; NULL: it is not */
    bool blank; /* a blank line that has an answer of its own */
};

/* Callbacks. They return 0 to go on, or the exit status that ends the run. */
struct lines_handler {
    int (*line)(void *ctx, const struct line *l);
    /* Called before a wait for input. The handler answers the lines that it has
     * kept for a joint pass. NULL: it keeps none. */
    int (*wait)(void *ctx);
};

/* Hand out the lines of all files in turn, or of standard input when no file is
 * given. Returns 0, or an exit status after printing a message. A caught signal
 * ends the run with exit status 1 and no message. */
int lines_run(const struct strings *files, const struct lines_handler *h,
              void *ctx);

/* Count the lines of all files. Blank lines count only if `blank` is set. Returns
 * 0 if a file is not a regular file, or is too large to be read just for
 * counting. */
uint64_t lines_total(const struct strings *files, bool blank);

#endif
