/* The sandbox: after the model is open, a verb that needs nothing but its
 * declared files gives up all other rights for the rest of the process. A defect
 * in a parser, kernel or template that a hostile file or prompt exploits can
 * then neither open files nor use the network nor start programs.
 *
 * Two parts of Linux enforce it. seccomp filters system calls by number and
 * plain arguments; Landlock restricts which files open(2) and its like may
 * reach. Files that are open stay usable.
 *
 * Rows of the option table with an access other than OPT_NO_ACCESS declare the
 * files. */
#ifndef CLI_SANDBOX_H
#define CLI_SANDBOX_H

#include <stddef.h>

#include "cli/opt.h"
#include "qwick.h"

struct common_args;

/* Begin the sandbox, unless --no-sandbox is given or this is a build with
 * sanitizers. p has the options of the verb, and c its common arguments. eng and
 * draft (NULL: none) are all engines that the verb will use: their threads are
 * restricted, too. No other thread may run yet, so call this before
 * progress_start. n_tokens is the length of the longest prompt, SIZE_MAX if it
 * is unknown: OpenBLAS is loaded now if such a prompt needs it.
 *
 * What the kernel lacks is left out, with a note. Returns 0, or an exit status
 * after printing a message when out of memory. */
int sandbox_enter(const struct opt_parsed *p, const struct common_args *c,
                  const struct qwick_engine *eng,
                  const struct qwick_engine *draft, size_t n_tokens);

#endif
