#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#undef err_set
#undef err_incomplete
#undef err_oom
#undef err_errno

static void err_vset(struct qwick_err *e, enum qwick_err_code code,
                     const char *fmt, va_list ap)
{
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    e->code = code;
    e->kind = QWICK_KIND_NONE;
    if (n < 0)
        snprintf(e->msg, sizeof e->msg, "error message could not be made");
    else if ((size_t)n >= sizeof e->msg)
        e->msg[utf8_complete(e->msg, sizeof e->msg - 1)] = '\0';
}

int err_set(struct qwick_err *e, enum qwick_err_code code, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, code, fmt, ap);
    va_end(ap);
    return -1;
}

int err_incomplete(struct qwick_err *e, const char *fmt, ...)
{
    if (!e)
        return -1;
    va_list ap;
    va_start(ap, fmt);
    err_vset(e, QWICK_ERR_MODEL, fmt, ap);
    va_end(ap);
    e->kind = QWICK_KIND_INCOMPLETE;
    size_t n = strlen(e->msg);
    (void)snprintf(e->msg + n, sizeof e->msg - n, ": " ERR_INCOMPLETE_HINT);
    return -1;
}

const char *err_without_name(const struct qwick_err *e, const char *name)
{
    size_t n = strlen(name);
    const char *rest = e->msg + n;
    if (strncmp(e->msg, name, n) != 0)
        return e->msg;
    if (rest[0] == ':' && rest[1] == ' ')
        return rest + 2;
    return *rest == '/' ? rest + 1 : e->msg;
}

int err_oom(struct qwick_err *e, size_t n_bytes)
{
    return err_set(e, QWICK_ERR_MEMORY, "out of memory: %zu bytes", n_bytes);
}

int err_errno(struct qwick_err *e, const char *path, const char *what)
{
    return err_set(e, QWICK_ERR_RUNTIME, "%s: %s: %s", path, what,
                   strerror(errno));
}

/* Write the first character of s[0..n), n > 0, to out as messages show it.
 * *used: its length in s. Returns the length written. */
static size_t show_one(char out[4], const char *s, size_t n, size_t *used)
{
    static const char hex[] = "0123456789abcdef";
    size_t bad = 1, k = utf8_decode(s, n, NULL, &bad);
    unsigned char c = (unsigned char)*s;
    *used = k ? k : bad;
    if (k == 0) {
        memcpy(out, "\xEF\xBF\xBD", 3);
        return 3;
    }
    if (c < 0x20 || c == 0x7F) {
        memcpy(out, "\\x", 2);
        out[2] = hex[c >> 4];
        out[3] = hex[c & 15];
        return 4;
    }
    memcpy(out, s, k);
    return k;
}

const char *err_show(char out[ERR_SHOWN], const char *s, size_t n)
{
    static const char dots[] = "...";
    size_t at = 0;
    while (n > 0) {
        char c[4];
        size_t used, k = show_one(c, s, n, &used);
        if (at + k + sizeof dots > ERR_SHOWN) {
            memcpy(out + at, dots, sizeof dots - 1);
            at += sizeof dots - 1;
            break;
        }
        memcpy(out + at, c, k);
        at += k;
        s += used;
        n -= used;
    }
    out[at] = '\0';
    return out;
}
