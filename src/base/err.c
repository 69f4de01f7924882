#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

int err_set(struct qwick_err *e, enum qwick_err_code code, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    e->code = code;
    if (n < 0)
        snprintf(e->msg, sizeof e->msg, "error message could not be made");
    else if ((size_t)n >= sizeof e->msg)
        e->msg[utf8_complete(e->msg, sizeof e->msg - 1)] = '\0';
    return -1;
}

int err_oom(struct qwick_err *e, size_t n_bytes)
{
    return err_set(e, QWICK_ERR_MEMORY, "out of memory: %zu bytes", n_bytes);
}
