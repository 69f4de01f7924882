/* What a model has lost against a reference, as facts. */
#ifndef CLI_LOSS_ROWS_H
#define CLI_LOSS_ROWS_H

#include "base/buf.h"
#include "file/json_writer.h"
#include "qwick_tools.h"

/* Write the summary as members of the object that w has open. */
void losses_json(struct json_writer *w, const struct qwick_loss_summary *s);
/* Append lines of a name and a value; an interval's ends are columns of their
 * own. Tabs separate them. */
int losses_lines(struct buf *b, const struct qwick_loss_summary *s);

#endif
