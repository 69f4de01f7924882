/* The log of answers, for verbs that answer: what they write to it. A failure
 * is a warning, and the answer stands. */
#ifndef CLI_ANSWER_LOG_H
#define CLI_ANSWER_LOG_H

#include "cli/answer/gen_job.h"
#include "cli/store/log_db.h"
#include "qwick.h"

/* Drop log = on of all verbs for chat and batch: it means single answers, and
 * log = all these, too. Returns -1 to go on, or exit status 2 after printing a
 * message. */
int answer_log_check(struct opt_parsed *p);

/* With --log, open the log as j->log, before the sandbox. If that fails, the
 * option is dropped after a warning. */
void answer_log_open(struct gen_job *j);

/* Set what the row has of an answer. */
void answer_log_result(struct log_row *row, const struct qwick_result *r);

/* Set the prompt and the system prompt of a row to those of a conversation,
 * which ends with them or with the answer to them. */
void answer_log_chat(struct log_row *row, const struct qwick_chat *c);

/* Add a row with the verb, the conversation and the options of the run. After a
 * failure, no other one is tried. sampling NULL: unknown. */
void answer_log_add(struct gen_job *j, struct log_row *row,
                    const struct qwick_sampling *sampling);

/* Add the answer of a job with one prompt. */
void answer_log_job(struct gen_job *j, const struct qwick_sampling *sampling,
                    const struct qwick_result *r);

#endif
