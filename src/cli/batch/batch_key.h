/* Keys of answers: hashes of everything that decides an answer. A later run
 * finds by them what it need not answer again. */
#ifndef CLI_BATCH_KEY_H
#define CLI_BATCH_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct batch_job;
struct request;

/* Set the key of the run from the model, the form of the answers, and the
 * options that all answers share. Returns 0, or -1 with *e set. */
int batch_key_open(struct batch_job *j, struct qwick_err *e);

/* Return the key of sample i: a hash of the run's key, the ids of the prompt,
 * and the options that change the answer. The seed counts only if the answer is
 * sampled. All random seeds count as the same value. */
uint64_t batch_key_of_sample(const struct request *r, const struct batch_job *j,
                             size_t i);
/* Return the key of a line that is not a valid record. */
uint64_t batch_key_of_line(const struct batch_job *j, const char *text,
                           size_t n);

#endif
