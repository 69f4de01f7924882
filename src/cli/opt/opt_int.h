/* Functions that parsing, --help and the table share. */
#ifndef CLI_OPT_INT_H
#define CLI_OPT_INT_H

#include "cli/opt/opt.h"

/* Return the row of the heading of --help above a row. */
const struct opt *opt_heading(const struct opt *o);

/* Write the range of a number as text: "1..100". Unless full is set, a range
 * without a meaningful maximum becomes "1 or more". Empty if there is no range to
 * show. */
void opt_range_text(const struct opt *o, bool full, char *out, size_t n);

/* Return whether an option needs a value on the command line. */
bool opt_takes_value(const struct opt *o);

/* Parse a value and store it at dst. name: the option as the user wrote it. Returns
 * -1 to go on, or exit status 2 or 5 after printing a message. */
int opt_set_value(const struct verb *v, const struct opt *o, const char *name,
                  const char *value, void *dst);

/* Free the memory of a value. */
void opt_value_free(enum opt_type type, void *value);

#endif
