/* Options that shape an answer: its length, its sampling, how it ends. */
#ifndef CLI_ANSWER_OPTS_H
#define CLI_ANSWER_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Check the value of --loop-guard. Returns -1 to go on, or
 * exit status 2 after printing a message. */
int answer_check(const struct opt_parsed *p);

/* Return the mode of --think. */
enum qwick_think answer_think(const struct args *a);

/* Return the sampling values of an answer: those of the options, and the
 * checkpoint's defaults for all others. The seed is 0; the caller sets it. */
struct qwick_sampling answer_sampling(const struct opt_parsed *p,
                                      const struct qwick_engine *eng,
                                      bool think_off);

/* Return the seed of sample i: the seed itself for sample 0, else one of 53
 * bits that is derived from both. Every JSON reader represents it exactly. */
uint64_t answer_seed(uint64_t seed, uint64_t i);

/* Return whether an answer is empty or has only white space. */
bool answer_is_empty(const struct qwick_result *r);

/* Return whether an answer was cut: neither the model nor a stop string ended
 * it. */
bool answer_is_cut(enum qwick_finish why);

/* Drop --think and --think-budget, which have no effect WHY. Scripts give them
 * to any model, so --think off and auto are silent and the others a warning.
 * because: see opt_no_effect. */
void answer_drop_think(struct opt_parsed *p, enum opt_id because,
                       const char *why);
/* Drop those that have no effect with this model in a chat. */
void answer_drop_think_of(struct opt_parsed *p,
                          const struct qwick_engine *eng);

/* If the model has no chat template, refuse the options that need one and warn
 * that prompts are raw. Returns -1 if it has a template, 0 if prompts are raw,
 * or exit status 2 after printing a message. */
int answer_choose_raw(struct opt_parsed *p, const enum opt_id *need,
                      const struct qwick_engine *eng);

/* Refuse a model whose generation_config.json asks for what we do not have.
 * Returns 0, or the exit status after printing a message. */
int answer_check_generation(const struct opt_parsed *p,
                            const struct qwick_engine *eng);

/* Set *bias to the values of --logit-bias, [logit_bias.n] of the options;
 * free it with free(). Returns 0, or an exit status after printing a
 * message. */
int answer_read_bias(const struct opt_parsed *p, struct qwick_bias **bias);

/* Set length, think budget, stop strings, loop guard, timeout and
 * log-probabilities of *o from the options. With --raw, the prompt is a text to
 * be continued, so the loop guard needs its option. *o borrows the strings. */
void answer_options(struct qwick_generate_options *o,
                    const struct opt_parsed *p);

#endif
