/* quantize --report: what the result has lost against its source. */
#ifndef CLI_QUANTIZE_REPORT_H
#define CLI_QUANTIZE_REPORT_H

#include <stddef.h>

#include "cli/answer/score_text.h"
#include "cli/input/against.h"
#include "cli/opt/opt.h"
#include "file/json_writer.h"

struct quantize_report {
    struct opt_parsed *p;
    struct against against; /* the source is the reference */
    struct score_text *texts; /* [n_texts] */
    size_t n_texts, cap_texts;
    struct qwick_loss_summary losses;
};

/* Functions return an exit status after printing a message. */

/* Before the work, after open_model_find: open the source and read the texts of
 * --report, so that what is wrong with them ends the run at once. */
int quantize_report_open(struct quantize_report *r, struct opt_parsed *p);
/* After it: compare the result with the source. */
int quantize_report_run(struct quantize_report *r);
/* Write the member "report" of the object that w has open. */
void quantize_report_json(const struct quantize_report *r,
                          struct json_writer *w);
/* Print the sizes of what was written, and the losses, as lines. */
int quantize_report_print(const struct quantize_report *r,
                          const struct qwick_quantize_report *sizes);
void quantize_report_close(struct quantize_report *r);

#endif
