/* The entries of a directory. */
#ifndef FILE_DIR_LIST_H
#define FILE_DIR_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct dir_entry {
    char *name;
    bool is_dir; /* or a symbolic link to a directory */
};

struct dir_list {
    struct dir_entry *v; /* [n] by name, bytewise */
    size_t n, cap;
};

/* Read the entries of the directory at path, except hidden ones (their names
 * begin with "."), in *l. max: stop after so many entries, in the order of the
 * file system. Returns 0, or -1 with *e set and *l empty. The code is
 * QWICK_ERR_MEMORY, or QWICK_ERR_MODEL if the directory cannot be read; errno
 * says why then. */
int dir_list_read(struct dir_list *l, const char *path, size_t max,
                  struct qwick_err *e);
void dir_list_free(struct dir_list *l);

/* Set *e for a directory at path that cannot be listed for reason err, a value
 * of errno. The code is `code`, or QWICK_ERR_MEMORY for ENOMEM. Returns -1 with
 * errno set to err. */
int dir_list_fail(const char *path, int err, int code, struct qwick_err *e);

/* Return whether the list has an entry of this name. */
bool dir_list_has(const struct dir_list *l, const char *name);

/* Return whether s ends in `end`. */
bool ends_in(const char *s, const char *end);

#endif
