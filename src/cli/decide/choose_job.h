/* A run of choose: its arguments and its state. */
#ifndef CLI_CHOOSE_JOB_H
#define CLI_CHOOSE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/answer/gen_job.h"
#include "cli/decide/choose_out.h"
#include "cli/input/source_files.h"
#include "cli/io/records.h"
#include "qwick.h"

/* What choose prints for its records. */
enum choose_form {
    CHOOSE_ONE,   /* there are none: the answers to one prompt */
    CHOOSE_JSONL, /* an object for each */
    CHOOSE_TABS,  /* a label for each, and its probability */
    CHOOSE_CSV    /* rows */
};

/* A record of a group. */
struct choose_prompt {
    int32_t *ids; /* NULL: a bad record, or a blank line */
    size_t n_ids;
    struct buf columns; /* of the input, as the form prints them */
};

struct choose_job {
    struct gen_job g;
    struct args *a; /* of g.p */
    enum choose_form form;
    const char *const *texts;  /* [n_answers] */
    size_t n_answers, longest; /* in tokens */
    struct qwick_answer *answers;
    struct choice *choices;
    double *logprobs; /* [RECORDS_GROUP, n_answers], a row per prompt */
    struct qwick_score_options o;

    /* Records. */
    struct source_files input;
    struct choose_prompt *prompts; /* [RECORDS_GROUP] */
    size_t n_prompts;
    size_t n_bad;   /* records whose errors were printed */
    bool any_below; /* a label is below --threshold */
};

/* Open the model, encode the answers and enter the sandbox. Returns 0, or an
 * exit status after printing a message. */
int choose_open(struct choose_job *j, struct qwick_err *e);

/* Return the context's limit. */
size_t choose_context(const struct choose_job *j);

/* If the template opened a think block, close it: the reply must begin with the
 * answer. Returns 0, or -1 with *e set. */
int choose_close_thinking(const struct qwick_engine *eng, int32_t **ids,
                          size_t *n_ids, struct qwick_err *e);

/* The smallest probability that gives exit status 0. */
double choose_threshold(const struct choose_job *j);

/* Return the answer to report, and set its probability. With --yes the
 * probability is that of yes, and the answer is yes if it reaches the
 * threshold, else no. */
const char *choose_verdict(const struct choose_job *j, double *probability);

/* Refuse options of records. Sets the form, and --input-format to the form of
 * the records. Returns -1 to go on, or exit status 2 after printing a
 * message. */
int choose_check_records(struct opt_parsed *p, enum choose_form *form);

/* Answer the records. Returns an exit status. */
int choose_records(struct choose_job *j, struct qwick_err *e);

/* Free what choose_records has made. */
void choose_free_records(struct choose_job *j);

#endif
