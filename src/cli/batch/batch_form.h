/* The output of batch. A line has one of several forms, and each is a row:
 * qwick's objects, OpenAI's batch format, texts, and CSV. */
#ifndef CLI_BATCH_FORM_H
#define CLI_BATCH_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/answer/answer_json.h"
#include "file/json_writer.h"
#include "file/json.h"
#include "qwick.h"

/* Length of a key as text: eight and sixteen hexadecimal digits with a "-"
 * between them. */
#define BATCH_KEY_LEN 25

/* Write the key of an answer: the run's part, and that of the record. */
void batch_key_write(char out[BATCH_KEY_LEN + 1], uint32_t run,
                     uint64_t record);
/* Read such a key, BATCH_KEY_LEN bytes. Returns false if it is none. */
bool batch_key_read(const char *key, uint32_t *run, uint64_t *record);

/* What identifies a line. */
struct batch_line {
    uint64_t line;        /* number of the record's line */
    const struct buf *id; /* the record's id as JSON; empty: none */
    const size_t *index;  /* number of the sample; NULL: the only one */
    const struct buf *columns; /* of the input, for CSV, each with a comma */
    char key[BATCH_KEY_LEN + 1];
};

/* The content of an answer's line. */
struct batch_answer {
    struct json_answer a;
    bool skipped;    /* the record is a blank line: nothing was generated */
    bool incomplete; /* it falls short of its constraint, tools or --extract */
};

/* A line that was read again. Values are borrowed from the parsed line. */
struct batch_read {
    int64_t line, index;
    bool has_index, error, incomplete, skipped;
    const struct json_value *id;    /* NULL: none */
    const char *key;                /* [BATCH_KEY_LEN]; NULL: none */
    const char *finish;             /* why the answer ended, in qwick's words,
                                       or "length" for each kind of cut; NULL:
                                       unknown */
    const struct json_value *text;  /* NULL: none */
    const struct json_value *calls; /* an array of tool calls; NULL: none */
};

/* A form. */
struct output_form {
    const char *name; /* for messages */
    const char *head; /* the beginning of each line; NULL: lines cannot be read
                         again, so that a run cannot be continued */
    size_t max_samples; /* of a record */
    bool no_tools;      /* a line has no place for tool calls */
    bool ends_nul;      /* a line ends with NUL, not with a newline */
    const char *const *columns; /* names of the columns that CSV has after those
                                   of the input, with NULL at the end; NULL: it
                                   is no CSV */
    bool prints_errors; /* errors go to stderr, since a line has no place for
                           them */
    /* Write a line without its end. */
    void (*answer)(struct json_writer *w, const struct batch_line *l,
                   const struct batch_answer *a);
    void (*error)(struct json_writer *w, const struct batch_line *l,
                  const struct qwick_err *why);
    /* Append a token to the items of logprobs, of which n_top of each token's
       candidates are shown. NULL: a line has no logprobs. Returns 0, or -1 when
       out of memory. */
    int (*token)(struct buf *items, const struct qwick_engine *eng,
                 const struct qwick_token_event *ev);
    /* Read a line; false: it is not of this form. */
    bool (*read)(const struct json_value *v, struct batch_read *r);
};

extern const struct output_form form_jsonl, form_openai, form_text,
    form_text_null, form_csv;

/* The forms whose lines can be read again, with NULL at the end. */
extern const struct output_form *const readable_forms[];

#endif
