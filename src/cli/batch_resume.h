/* What an earlier run of a batch has written to its output. */
#ifndef CLI_BATCH_RESUME_H
#define CLI_BATCH_RESUME_H

#include "cli/batch_out.h"

/* Read the open output and its pending file: note their answers, remove a last
 * line that was cut off. What is no output of a batch is left alone,
 * QWICK_ERR_USAGE; so is a file that another process is writing. Nothing to do
 * for pipes and devices. */
int batch_resume(struct batch_out *o, int in_fd, struct qwick_err *e);

#endif
