#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "cli/http/http_mhd.h"

#define LIBRARY "libmicrohttpd.so.12"
#define PACKAGE "libmicrohttpd12"

struct mhd_functions mhd;

/* Store the address of a symbol in the function pointer at fn. POSIX gives both
 * kinds of pointers the same representation. */
static bool find_symbol(void *fn, void *lib, const char *name)
{
    void *p = dlsym(lib, name);

    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

int http_mhd_load(struct qwick_err *e)
{
    struct mhd_functions f;
    void *lib;
    bool found = true;

    if (mhd.start_daemon)
        return 0;
    lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "serve needs the library %s (package %s)", LIBRARY,
                       PACKAGE);
#define FIND(name) found = find_symbol(&f.name, lib, "MHD_" #name) && found;
    MHD_FUNCTIONS(FIND)
#undef FIND
    if (!found) {
        dlclose(lib);
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s is too old; install package %s 0.9.75 or later",
                       LIBRARY, PACKAGE);
    }
    mhd = f;
    return 0;
}
