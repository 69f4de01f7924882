#include "cli/store/sqlite.h"

#include "base/dynlib.h"

struct sqlite_functions sqlite;

#define NAME(name) "sqlite3_" #name,
static const char *const names[] = {SQLITE_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(sizeof(sqlite) == sizeof(names), "a function for each name");

int sqlite_load(struct qwick_err *e)
{
    static const struct dynlib library = {.file = "libsqlite3.so.0",
                                          .package = "libsqlite3-0",
                                          .since = "libsqlite3-0",
                                          .user = "the log",
                                          .verb = "log",
                                          .part = "log",
                                          .names = names,
                                          .n_names =
                                              sizeof(names) / sizeof(*names)};
    return sqlite.open_v2 ? 0 : dynlib_load(&library, &sqlite, e);
}
