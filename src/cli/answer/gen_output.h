/* What generate does with one answer: its options, its output, and whether the
 * answer is good enough for exit status 0. */
#ifndef CLI_GEN_OUTPUT_H
#define CLI_GEN_OUTPUT_H

#include "cli/answer/emit.h"
#include "cli/answer/gen_job.h"
#include "cli/report/profile.h"
#include "qwick.h"

/* An answer while it is generated. It stays where it is: o points to st and
 * sampling. */
struct gen_output {
    struct gen_job *j;
    struct emit st;
    struct qwick_generate_options o;
    struct qwick_sampling sampling; /* of o */
    const size_t *sample; /* its number with --samples; NULL: the only answer */
};

/* Set the options and the output of an answer with the seed. Returns 0, or an
 * exit status after printing a message. Call gen_output_free in both cases. */
int gen_output_begin(struct gen_output *x, struct gen_job *j,
                     const struct qwick_sampling *sampling, uint64_t seed,
                     const size_t *sample);

/* End the output of an answer, except for its JSON: write text that was held
 * back. Corrects r->finish if -x ended the answer. Returns an exit status. */
int gen_output_end(struct gen_output *x, struct qwick_result *r);

/* With --json and --jsonl: print the object of the answer. pr NULL: no profile.
 * Returns an exit status, after printing a message if it is not 0. */
int gen_output_json(struct gen_output *x, const struct qwick_result *r,
                    const struct profile *pr);

/* Warn when an answer is cut or empty, or lacks what the options demand.
 * Returns an exit status. */
int gen_output_status(const struct gen_output *x, const struct qwick_result *r);

/* With -v: print how long the answer took. */
void gen_note_timing(const struct qwick_result *r);

void gen_output_free(struct gen_output *x);

/* Return the sampling values of the run. The seed is the one of --seed, or
 * random. */
struct qwick_sampling gen_sampling(const struct gen_job *j);

#endif
