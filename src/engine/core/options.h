/* Options of programs that were compiled with another version of qwick.h. */
#ifndef ENGINE_OPTIONS_H
#define ENGINE_OPTIONS_H

#include <stddef.h>

#include "base/err.h"

/* Copy the defaults, a struct of `known` bytes, to the caller's struct of
 * `size` bytes. A smaller struct gets a part of them; in a larger one, the
 * bytes that this version does not know become zero. */
void options_init(void *o, size_t size, const void *defaults, size_t known);

/* Copy the options *given, which a program passed to a public function, to
 * *out, a struct of `size` bytes that holds the defaults. Both structs begin
 * with their size. Options that an older program does not know keep their
 * defaults. given NULL: all options keep their defaults. QWICK_ERR_USAGE if
 * *given has no size, or if an option that this version does not know is not
 * zero. what: the name of the options for the message. */
int options_read(void *out, size_t size, const void *given, const char *what,
                 struct qwick_err *e);

#endif
