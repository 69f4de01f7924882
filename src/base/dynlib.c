#include "base/dynlib.h"

/* The Makefile compiles this file twice: a static program has the second
 * object. */
#ifdef QWICK_STATIC

bool dynlib_can_load(void)
{
    return false;
}

int dynlib_load(const struct dynlib *l, void *functions, struct qwick_err *e)
{
    (void)functions;
    return err_set(e, QWICK_ERR_RUNTIME,
                   "%s: this build has no %s: it is static, and cannot load %s",
                   l->verb, l->part, l->file);
}

#else

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

bool dynlib_can_load(void)
{
    return true;
}

void *dynlib_open(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

void dynlib_close(void *lib)
{
    dlclose(lib);
}

/* ISO C cannot cast void * to a function pointer; POSIX gives them the same
 * representation. */
bool dynlib_symbol(void *fn, void *lib, const char *name)
{
    void *p = dlsym(lib, name);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

/* Returns whether the library has all functions. */
static bool find_all(const struct dynlib *l, void *lib, char *pointers)
{
    for (size_t i = 0; i < l->n_names; i++)
        if (!dynlib_symbol(pointers + i * sizeof(void *), lib, l->names[i]))
            return false;
    return true;
}

int dynlib_load(const struct dynlib *l, void *functions, struct qwick_err *e)
{
    size_t size = l->n_names * sizeof(void *);
    void *lib = dynlib_open(l->file);
    if (!lib)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s needs the library %s (package %s)", l->user, l->file,
                       l->package);
    char *found = malloc(size);
    int rc = !found ? err_oom(e, size)
             : find_all(l, lib, found)
                 ? 0
                 : err_set(e, QWICK_ERR_RUNTIME,
                           "%s is too old for %s; install package %s", l->file,
                           l->user, l->since);
    if (rc)
        dynlib_close(lib);
    else
        memcpy(functions, found, size);
    free(found);
    return rc;
}

#endif
