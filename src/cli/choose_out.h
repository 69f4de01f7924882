/* The output of choose: answers with their probabilities. */
#ifndef CLI_CHOOSE_OUT_H
#define CLI_CHOOSE_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "cli/json_writer.h"

struct choice {
    const char *answer; /* borrowed */
    double logprob;
    double probability; /* among the answers */
    size_t i;           /* its index on the command line */
};

/* Fill c[0..n) from the answers and their log-probabilities. Probabilities are
 * scaled to sum to 1. The likeliest answer comes first, or with in_order the
 * answers keep the order of the command line. */
void choices_make(struct choice *c, const char *const *answers,
                  const double *logprobs, size_t n, bool in_order);

/* The likeliest of n answers. */
const struct choice *choices_best(const struct choice *c, size_t n);

/* Append lines "answer<TAB>probability<TAB>logprob"; tabs and line ends in an
 * answer become \t, \n, \r. Returns -1 when memory ran out. */
int choices_put_lines(struct buf *b, const struct choice *c, size_t n);

/* Write the members "answer" and "probability" from the last two arguments, and
 * "answers" from c[0..n). */
void choices_put_json(struct json_writer *w, const struct choice *c, size_t n,
                      const char *answer, double probability);

#endif
