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
    size_t i;           /* its position on the command line */
};

/* Fill c[0..n) from the answers and their log-probabilities; probabilities are
 * scaled to sum to 1. The likeliest answer comes first; in_order: the answers
 * stay in the order of the command line. */
void choices_make(struct choice *c, const char *const *answers,
                  const double *logprobs, size_t n, bool in_order);

/* The likeliest of n answers. */
const struct choice *choices_best(const struct choice *c, size_t n);

/* Append lines "answer<TAB>probability<TAB>logprob"; tabs and line ends in an
 * answer as \t, \n, \r. -1: out of memory. */
int choices_put_lines(struct buf *b, const struct choice *c, size_t n);

/* Write the members "answer" and "probability", as they are given, and
 * "answers", all n of them. */
void choices_put_json(struct json_writer *w, const struct choice *c, size_t n,
                      const char *answer, double probability);

#endif
