/* Finding the model that -m names. */
#ifndef FILE_FIND_MODEL_H
#define FILE_FIND_MODEL_H

#include "base/err.h"

/* Find the model that spec names: the first of these that exists.
 *   the directory or file at this path
 *   "DIRECTORY:TYPE", for a directory with GGUF files
 *   a hub id "org/name", "org/name@revision" or "org/name:TYPE" in the Hugging
 *       Face cache
 *   a name that means exactly one model in the stores of this machine
 *       (stores_find)
 * Writes the directory or file to *path, malloc'ed, and ":TYPE" without the
 * colon to *type, borrowed from spec, NULL if there is none. If nothing is
 * found, the error names the places that were searched, and how to download a
 * model. */
int find_model(char **path, const char **type, const char *spec,
               struct qwick_err *e);

#endif
