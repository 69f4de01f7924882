/* "models rm". */
#ifndef CLI_MODELS_REMOVE_H
#define CLI_MODELS_REMOVE_H

#include "cli/opt/opt.h"

/* Remove the models that args[1..] name. Returns the exit status after printing
 * messages. */
int models_remove(struct opt_parsed *p);

#endif
