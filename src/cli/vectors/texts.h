/* The texts that embed and rerank read: arguments, files, or lines. */
#ifndef CLI_TEXTS_H
#define CLI_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/io/lines.h"
#include "cli/opt/common.h"
#include "cli/opt/opt.h"
#include "file/json.h"
#include "qwick.h"

enum texts_form {
    TEXTS_WHOLE, /* each argument or file is a text */
    TEXTS_LINES, /* each line is a text */
    TEXTS_JSONL, /* each line is an object with a "text" */
    TEXTS_IDS    /* each line of --prompt-ids is a sequence */
};

struct texts_item {
    const char *where; /* "FILE: line N", or "argument 2", for messages */
    const char *file;  /* name of the file if the text is a whole file, else
                          NULL */
    const struct line *line; /* which is the text; NULL: it is none */
    size_t number;     /* number of the text, from 1 */
    const char *text;  /* UTF-8; invalid bytes have become U+FFFD */
    size_t n;
    bool is_ids; /* the text is the ids of --prompt-ids, or it is missing and
                    the object has "prompt_ids" */
    const struct json_value *value; /* the line's object, or NULL */
    const char *id;                 /* the object's "id" as JSON, or NULL */
    const char *error;              /* why the line gives no text, or NULL */
};

struct texts {
    const struct opt_parsed *p; /* its arguments, --file and --input have the
                                   texts; without them standard input */
    /* Callbacks. They return 0 to go on, or an exit status. */
    int (*take)(void *ctx, const struct texts_item *item);
    int (*wait)(void *ctx); /* called before a wait for input; may be NULL */
    const struct qwick_info *ids_of; /* objects may have "prompt_ids" in place
                                        of "text", ids of this model; NULL:
                                        they may not */
};

/* Hand out all texts. One final newline of an argument, of a whole file or of
 * standard input is dropped, and so is a carriage return at the end of a line.
 * An empty file is a warning. Returns 0, or an exit status after printing a
 * message. */
int texts_run(const struct texts *t, void *ctx);

/* Check the arguments and files that texts come from. Returns -1 to go on, or
 * an exit status after printing a message. */
int texts_check(struct opt_parsed *p);

/* Return the number of texts that texts_run will hand out; 0 if unknown. Reads
 * regular files to count their lines. */
uint64_t texts_total(const struct texts *t);

/* Return the form that the options name. */
enum texts_form texts_form(const struct args *a);

/* Read the ids of an item, which has some: each is in the vocabulary, and all
 * fit the context. n_first NULL: a sequence has no segments; otherwise it gets
 * the number of ids before "|", or in the first of two arrays, 0 without them.
 * Returns 0, or -1 with *e set. */
int texts_ids(const struct texts *t, const struct texts_item *item,
              int32_t **ids, size_t *n, size_t *n_first, struct qwick_err *e);

#endif
