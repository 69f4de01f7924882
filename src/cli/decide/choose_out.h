/* The output of choose: answers with their probabilities. */
#ifndef CLI_CHOOSE_OUT_H
#define CLI_CHOOSE_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "file/json_writer.h"

struct choice {
    const char *answer; /* borrowed */
    double logprob;
    double probability; /* sums to 1 over the answers */
    size_t i;           /* index of the answer on the command line */
};

/* Fill c[0..n) from the answers and their log-probabilities. Probabilities are
 * scaled to sum to 1. The most likely answer comes first; with in_order the
 * answers keep the order of the command line. */
void choices_make(struct choice *c, const char *const *answers,
                  const double *logprobs, size_t n, bool in_order);

/* Return the most likely of n answers. */
const struct choice *choices_best(const struct choice *c, size_t n);

/* Append "answer<TAB>probability". Tabs and line ends in the answer become \t,
 * \n, \r. answer NULL: none. */
void choice_put_line(struct buf *b, const char *answer, double probability);

/* Append lines "answer<TAB>probability<TAB>logprob". They begin
 * with choice_put_line. */
void choices_put_lines(struct buf *b, const struct choice *c, size_t n);

/* Write the members "answer" and "probability" with the values of the last two
 * arguments, and "answers" with c[0..n). answer NULL: null. */
void choices_put_json(struct json_writer *w, const struct choice *c, size_t n,
                      const char *answer, double probability);

#endif
