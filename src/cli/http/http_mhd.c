#include "cli/http/http_mhd.h"

#include "base/dynlib.h"

struct mhd_functions mhd;

#define NAME(name) "MHD_" #name,
static const char *const names[] = {MHD_FUNCTIONS(NAME)};
#undef NAME
_Static_assert(sizeof(mhd) == sizeof(names), "a function for each name");

int http_mhd_load(struct qwick_err *e)
{
    static const struct dynlib library = {
        .file = "libmicrohttpd.so.12",
        .package = "libmicrohttpd12",
        .since = "libmicrohttpd12 0.9.75 or later",
        .user = "serve",
        .verb = "serve",
        .part = "server",
        .names = names,
        .n_names = sizeof(names) / sizeof(*names)};
    return mhd.start_daemon ? 0 : dynlib_load(&library, &mhd, e);
}
