#include "cli/store/sqlite.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#define LIBRARY "libsqlite3.so.0"
#define PACKAGE "libsqlite3-0"

struct sqlite_functions sqlite;

/* Store the address of a symbol in the function pointer at fn. POSIX gives both
 * kinds of pointers the same representation. */
static bool sqlite_find(void *fn, void *lib, const char *name)
{
    void *p = dlsym(lib, name);
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

int sqlite_load(struct qwick_err *e)
{
    struct sqlite_functions f;
    bool found = true;
    if (sqlite.open_v2)
        return 0;
    void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "the log needs the library %s (package %s)", LIBRARY,
                       PACKAGE);
#define FIND(name) found = sqlite_find(&f.name, lib, "sqlite3_" #name) && found;
    SQLITE_FUNCTIONS(FIND)
#undef FIND
    if (!found) {
        dlclose(lib);
        return err_set(e, QWICK_ERR_RUNTIME,
                       "%s is too old for the log; install package %s", LIBRARY,
                       PACKAGE);
    }
    sqlite = f;
    return 0;
}
