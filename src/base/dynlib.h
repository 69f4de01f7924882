/* Shared libraries that are loaded when they are needed: programs that do not
 * use them run without them. A program that is linked statically cannot load
 * any (make static). */
#ifndef BASE_DYNLIB_H
#define BASE_DYNLIB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* A library and the functions that we use of it. */
struct dynlib {
    const char *file;         /* "libsqlite3.so.0" */
    const char *package;      /* of Debian: "libsqlite3-0" */
    const char *since;        /* what to install if it is too old */
    const char *user;         /* what needs it: "the log" */
    const char *verb;         /* the verb of that name: "log" */
    const char *part;         /* of qwick that is missing without it: "log" */
    const char *const *names; /* of functions */
    size_t n_names;
};

/* Return whether this program can load libraries. */
bool dynlib_can_load(void);

/* Not in a static program.
 * Return a handle of the library for dynlib_symbol, or NULL if there is none.
 */
void *dynlib_open(const char *file);
void dynlib_close(void *lib);

/* Store the address of a function in the function pointer at fn; NULL if the
 * library has no such function. Returns whether it has. */
bool dynlib_symbol(void *fn, void *lib, const char *name);

/* Load the library, and store the addresses of its functions in a struct that
 * consists of n_names function pointers. Returns 0, or -1 with *e set and the
 * struct unchanged. */
int dynlib_load(const struct dynlib *l, void *functions, struct qwick_err *e);

#endif
