/* What a model has lost against a reference, over texts: score --against and
 * quantize --report. */
#ifndef CLI_AGAINST_H
#define CLI_AGAINST_H

#include <stddef.h>

#include "cli/answer/score_text.h"
#include "file/json_writer.h"
#include "qwick_tools.h"

struct against {
    struct qwick_engine *eng;
    struct qwick_engine *reference; /* NULL: there is none */
    struct qwick_losses *sum;       /* of all texts */
    struct qwick_compare_item *items; /* [n_items] of the current texts */
    size_t n_items, n_texts;
};

/* Compare texts in joint passes, and add their losses to the sum. against_drop
 * frees the current texts; call it between two groups, also after an error. */
int against_compare(struct against *x, const struct score_text *texts, size_t n,
                    const struct qwick_score_options *o, struct qwick_err *e);
void against_drop(struct against *x);
/* Write the losses of current text i as members of an object. */
int against_put_text(const struct against *x, size_t i, struct json_writer *w,
                     struct qwick_err *e);

/* Print the losses of all texts, as one object or as lines. Returns an exit
 * status. */
int against_print(const struct against *x, const struct qwick_score_options *o,
                  bool json);
void against_close(struct against *x);

#endif
