/* The input of batch. It has one of several forms, and each is a row of a
 * table. Whatever the form is, a record becomes a line of JSON, which
 * request.h of answer describes. */
#ifndef CLI_BATCH_SOURCE_H
#define CLI_BATCH_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "cli/batch/batch_form.h"
#include "cli/batch/openai_request.h"
#include "file/csv.h"
#include "cli/io/lines.h"
#include "cli/io/prompt.h"
#include "cli/opt/opt.h"
#include "cli/opt/preset.h"

struct batch_source;

/* A record as it stands in the input. */
struct batch_record {
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
    const struct output_form *out; /* of the answers, unless --text is given */
    const struct csv_dialect *csv; /* of tables; NULL: records are lines */
    bool keeps_blank;              /* a blank line has an answer */
    bool no_template;              /* -T and --prompt-template do not apply */
    /* Prepare the run: read the header, check the template. NULL: nothing to
       do. */
    int (*begin)(struct batch_source *s, struct qwick_err *e);
    /* Set *v, *n bytes, to the value that s->record gives to a template's
       field. Returns 0, 1 if it gives none, or -1 with *e set. */
    int (*value)(const struct batch_source *s,
                 const struct template_part *field, const char **v, size_t *n,
                 struct qwick_err *e);
    /* Append the JSON of s->record to *json. After a failure, *json may have an
       object with the record's id. */
    int (*translate)(struct batch_source *s, struct buf *json,
                     struct qwick_err *e);
};

/* The state of the input. */
struct batch_source {
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
    const struct batch_record *record; /* that is translated */
    const struct json_value *value;    /* its JSON, with a template */
    bool no_json; /* the form is unknown, and the first record is no object */
    struct prompt_faults faults; /* of records that are no JSON */
};

/* Begin to read. format: of --input-format; NULL: the first record tells the
 * form. A table's header is read now, from lines that may still have to come.
 * Returns 0, or -1 with *e set. Call source_free in any case. */
int source_open(struct batch_source *s, struct lines *in, const char *format,
                const struct opt_parsed *p, struct qwick_err *e);
void source_free(struct batch_source *s);

/* Find out the form from the first record, unless it is known. Waits for the
 * record. Returns 0, or -1 with *e set. */
int source_detect(struct batch_source *s, struct qwick_err *e);

/* Get the next record, as lines_next does. */
enum lines_status source_next(struct batch_source *s, int timeout_ms,
                              struct batch_record *r, struct qwick_err *e);

/* Set *json to the record's JSON, [n] bytes that stay valid until the next
 * call. Returns 0, or -1 with *e set; then *json is an object with the record's
 * id, or *n is 0. */
int source_translate(struct batch_source *s, const struct batch_record *r,
                     const char **json, size_t *n, struct qwick_err *e);

/* Count the records that are left, for progress. 0: unknown. */
uint64_t source_count(const struct batch_source *s);

#endif
