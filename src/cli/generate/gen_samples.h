/* Several answers of generate to one prompt. */
#ifndef CLI_GEN_SAMPLES_H
#define CLI_GEN_SAMPLES_H

#include "cli/answer/gen_job.h"

/* Give the answers of --samples to the encoded prompt. They share passes, and
 * the prompt is evaluated once. Sample i has the seed answer_seed(seed, i).
 * Closes the session. Returns an exit status. */
int gen_samples(struct gen_job *j, const struct qwick_sampling *sampling);

#endif
