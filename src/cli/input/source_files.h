/* The records of all files of a verb, one file after the other. */
#ifndef CLI_SOURCE_FILES_H
#define CLI_SOURCE_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "cli/input/source.h"

/* A run over the files of --input, or over standard input. */
struct source_files {
    const struct opt_parsed *p;
    const char *format;   /* of --input-format */
    struct source source; /* of the open file */
    struct lines in;
    size_t next; /* number of the files opened so far */
};

/* Open the first file, read the header of a table, and check the template.
 * Returns 0, or an exit status after printing a message. Call
 * source_files_free in any case. */
int source_files_open(struct source_files *f, const struct opt_parsed *p,
                      const char *format);
void source_files_free(struct source_files *f);

/* Hand out the records of all files to h, as lines_run does: each becomes a
 * line of JSON. take is called before each of them: the record is as it stands
 * in f->source. Returns 0, or an exit status after printing a message. */
int source_files_run(struct source_files *f,
                     int (*take)(void *ctx, const struct source_record *r),
                     void *ctx, const struct lines_handler *h, void *h_ctx);

#endif
