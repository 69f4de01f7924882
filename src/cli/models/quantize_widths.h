/* The widths that quantize --bpw and --target choose, as a table. */
#ifndef CLI_QUANTIZE_WIDTHS_H
#define CLI_QUANTIZE_WIDTHS_H

#include <stddef.h>

#include "file/json_writer.h"
#include "qwick_tools.h"

struct quantize_widths {
    struct qwick_width *v; /* [n] own their names */
    size_t n, cap;
    bool failed; /* out of memory */
};

/* A qwick_width_fn: keep a choice. ctx: a struct quantize_widths. */
void quantize_widths_add(void *ctx, const struct qwick_width *width);
/* Write the members "budget" and "widths" of the object that w has open.
 * common_bits: of most weights. */
void quantize_widths_json(const struct quantize_widths *t,
                          const struct qwick_quantize_report *r,
                          int common_bits, struct json_writer *w);
/* Print the table. Returns an exit status. */
int quantize_widths_print(const struct quantize_widths *t,
                          const struct qwick_quantize_report *r);
void quantize_widths_free(struct quantize_widths *t);

#endif
