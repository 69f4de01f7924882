/* The records of batch and choose. They have one of several forms, and each is
 * a row of a table. Whatever the form is, a record becomes a line of JSON,
 * which request.h of answer describes. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/input/openai_request.h"
#include "cli/io/lines.h"
#include "cli/io/prompt.h"
#include "cli/opt/opt.h"
#include "cli/opt/preset.h"
#include "file/csv.h"

struct source;

/* A record as it stands in the input. */
struct source_record {
    const char *text; /* [n] its lines, without the last line end; valid until
                         the next call */
    size_t n;
    uint64_t line; /* number of its first line */
    bool blank;    /* a blank line of a form in which each line has an answer */
    struct qwick_err why; /* code not 0: the record is malformed */
};

/* A form. */
struct input_form {
    const char *name;              /* of --input-format */
    const struct csv_dialect *csv; /* of tables; NULL: records are lines */
    bool keeps_blank;              /* a blank line has an answer */
    bool is_openai; /* OpenAI's batch format: -T and --prompt-template do not
                       apply, and answers have a form of their own */
    /* Prepare the run: read the header, check the template. NULL: nothing to
       do. */
    int (*begin)(struct source *s, struct qwick_err *e);
    /* Set *v, *n bytes, to the value that s->record gives to a template's
       field. Returns 0, 1 if it gives none, or -1 with *e set. */
    int (*value)(const struct source *s, const struct template_part *field,
                 const char **v, size_t *n, struct qwick_err *e);
    /* Append the JSON of s->record to *json. After a failure, *json may have an
       object with the record's id. */
    int (*translate)(struct source *s, struct buf *json, struct qwick_err *e);
};

/* The state of the input. */
struct source {
    const struct input_form *form; /* NULL: not known yet */
    struct lines *in;              /* borrowed, as are the next two */
    const struct opt_parsed *p;
    struct prompt_template t; /* of the options; that of none is {} */
    struct csv csv;           /* the current record of a table */
    struct csv header;        /* the names of its columns */
    struct body_reader openai;
    struct buf raw;  /* the lines of the record that is being read */
    uint64_t line;   /* the number of the first of them */
    struct buf json; /* the translated record */
    struct buf cell; /* the last value of source_put_columns */
    const struct source_record *record; /* that is translated */
    const struct json_value *value;     /* its JSON, with a template */
    bool no_json; /* the form is unknown, and the first record is no object */
    struct prompt_faults faults; /* of records that are no JSON */
};

/* Begin to read. format: of --input-format; NULL: the first record tells the
 * form. A table's header is read now, from lines that may still have to come.
 * Returns 0, or -1 with *e set. Call source_free in any case. */
int source_open(struct source *s, struct lines *in, const char *format,
                const struct opt_parsed *p, struct qwick_err *e);
/* Warn that the first record of the input `name` is no JSON object. */
void source_warn_no_json(const char *name);
void source_free(struct source *s);

/* Find out the form from the first record, unless it is known. Waits for the
 * record. Returns 0, or -1 with *e set. */
int source_detect(struct source *s, struct qwick_err *e);

/* Get the next record, as lines_next does. */
enum lines_status source_next(struct source *s, int timeout_ms,
                              struct source_record *r, struct qwick_err *e);

/* Set *json to the record's JSON, [n] bytes that stay valid until the next
 * call. Returns 0, or -1 with *e set; then *json is an object with the record's
 * id, or *n is 0. */
int source_translate(struct source *s, const struct source_record *r,
                     const char **json, size_t *n, struct qwick_err *e);

/* Append the input's columns of a record, or if r is NULL, their names. put
 * writes each of them, after the character `before` and in front of `after`; a
 * NUL stands for nothing. A table has its own columns, lines have the column
 * "input", and JSON has "id". A value that could not be read is empty. Returns
 * 0, or -1 when out of memory. */
int source_put_columns(struct source *s, const struct source_record *r,
                       void (*put)(struct buf *out, const char *text, size_t n),
                       char before, char after, struct buf *out);

/* Refuse an input with a column of one of the names, which end with NULL: the
 * option adds columns of these names. Returns 0, or -1 with *e set. */
int source_check_columns(struct source *s, const char *option,
                         const char *const *names, struct qwick_err *e);

/* Count the records that are left, for progress. 0: unknown. */
uint64_t source_count(const struct source *s);

#endif
