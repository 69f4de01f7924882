/* Reads the output of an earlier run of batch. */
#ifndef CLI_BATCH_RESUME_H
#define CLI_BATCH_RESUME_H

#include "cli/batch/batch_out.h"

/* Note the answers in the open output and in its pending file, and remove an
 * incomplete last line. A file that batch did not write, or that another
 * process is writing, is left unchanged: QWICK_ERR_USAGE. Does nothing for
 * pipes and devices. Returns 0, or -1 with *e set. */
int batch_resume(struct batch_out *o, int in_fd, struct qwick_err *e);

#endif
