/* Many texts, one after the other: arguments, files, standard input, lines. */
#ifndef CLI_TEXTS_H
#define CLI_TEXTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt.h"
#include "file/json.h"
#include "qwick.h"

enum texts_form {
    TEXTS_WHOLE, /* an argument or a file is a text */
    TEXTS_LINES, /* a line is one */
    TEXTS_JSONL  /* a line is an object with a "text" */
};

struct texts_item {
    const char *where; /* "FILE: line N", or "argument 2", for messages */
    const char *file;  /* of a whole file, else NULL */
    size_t number;     /* of the text, from 1 */
    const char *text;  /* UTF-8: what was not has become U+FFFD */
    size_t n;
    const struct json_value *value; /* the object, or NULL: none was given */
    const char *id;                 /* its "id" as JSON, or NULL */
    const char *error;              /* why this line gives no text, or NULL */
};

struct texts {
    const struct verb *verb;
    enum texts_form form;
    const char *const *args; /* [n_args] texts; or files, in their order; or
                                standard input */
    size_t n_args;
    const struct opt_texts *files;
    /* Both return 0 to go on, or an exit status. */
    int (*take)(void *ctx, const struct texts_item *item);
    int (*wait)(void *ctx); /* no more input is there at the moment; or NULL */
};

/* Hand out all texts. One final newline of a whole file or of standard input is
 * dropped, and the carriage return at the end of a line. Returns 0 or an exit
 * status, the message having been printed. */
int texts_run(const struct texts *t, void *ctx);

/* How many texts texts_run is going to hand out; 0: nobody knows. Reads regular
 * files for it. */
uint64_t texts_total(const struct texts *t);

/* The form that --lines and --jsonl (bool options of the verb) ask for, and
 * whether arguments and files go with it: *form is set and -1 returned, or the
 * exit status with the message printed. An argument "-" alone is standard
 * input: *p is changed. */
int texts_form(struct opt_parsed *p, bool lines, bool jsonl,
               enum texts_form *form);

#endif
