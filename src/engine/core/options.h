/* Options of programs that were compiled with another version of qwick.h. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include <stddef.h>

#include "base/err.h"

/* Copy the options *given of a public function to *out, a struct of `size`
 * bytes that holds the defaults. Both begin with their size. Options that an
 * older program does not know keep their defaults; given NULL keeps all. A size
 * that was never set, or an option that this version does not know and that is
 * not zero: QWICK_ERR_USAGE. what: the options' name for the message. */
int options_read(void *out, size_t size, const void *given, const char *what,
                 struct qwick_err *e);

#endif
