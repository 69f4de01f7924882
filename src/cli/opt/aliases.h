/* The user's own names of models: the file "aliases" in the directory of the
 * configuration, with lines NAME = MODEL. An alias may name another alias. */
#ifndef CLI_ALIASES_H
#define CLI_ALIASES_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct alias {
    const char *name, *model;
    size_t line;
};

/* The aliases of a file. All zeros is none. */
struct aliases {
    char *path; /* NULL: there is no place for the file */
    char *text; /* holds the strings of v */
    struct alias *v;
    size_t n, cap;
};

/* Read the aliases. A missing file has none. Returns 0, or -1 with *e set: a
 * line is malformed, or names an alias again. Call aliases_free in any case. */
int aliases_read(struct aliases *a, struct qwick_err *e);
void aliases_free(struct aliases *a);

/* Return the alias of this name, or NULL. */
const struct alias *aliases_find(const struct aliases *a, const char *name);

/* Follow the alias `name` until its model is no alias. *model is borrowed;
 * NULL: name is no alias. Returns 0, or -1 with *e set if aliases lead back to
 * one of them. */
int aliases_follow(const struct aliases *a, const char *name,
                   const char **model, struct qwick_err *e);

/* Make `name` an alias of a model, or with model NULL, remove it. The file is
 * replaced in one step, and its other lines stay as they are. A path becomes
 * absolute. Returns 0, or -1 with *e set. */
int aliases_set(const char *name, const char *model, struct qwick_err *e);

#endif
