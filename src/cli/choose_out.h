/* What choose prints: the answers with their probabilities. */
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
    size_t i;           /* its place on the command line */
};

/* Probabilities of n answers from their log-probabilities, which they have the
 * share of that they have among each other. Sorted, likeliest first; in_order:
 * as they were given. */
void choices_make(struct choice *c, const char *const *answers,
                  const double *logprobs, size_t n, bool in_order);

/* The likeliest. */
const struct choice *choices_best(const struct choice *c, size_t n);

/* Append lines "answer<TAB>probability<TAB>logprob"; tabs and line ends in an
 * answer as \t, \n, \r. -1: out of memory. */
int choices_put_lines(struct buf *b, const struct choice *c, size_t n);

/* Write the members "answer" and "probability", as they are given, and
 * "answers", all n of them. */
void choices_put_json(struct json_writer *w, const struct choice *c, size_t n,
                      const char *answer, double probability);

#endif
