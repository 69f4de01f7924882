#include "cli/io/out.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "cli/io/escape.h"
#include "cli/io/signals.h"
#include "cli/io/term.h"

static bool be_quiet, be_verbose, out_failed, out_tty, err_tty;

void out_init(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            continue;
        /* open it in the wrong direction on purpose: reading or writing it
         * fails with EBADF, like a closed descriptor */
        int flags = fd == 0 ? O_WRONLY : O_RDONLY;
        if (open("/dev/null", flags) < 0 && open("/", O_RDONLY) < 0)
            break;
    }
    out_tty = isatty(STDOUT_FILENO);
    err_tty = isatty(STDERR_FILENO);
}

bool out_is_tty(void)
{
    return out_tty;
}

bool err_is_tty(void)
{
    return err_tty;
}

/* Bytes that a pipe takes without blocking once poll reports it writable. */
#define SAFE_CHUNK 512

int fd_write(int fd, const void *p, size_t n)
{
    const char *s = p;
    while (n) {
        size_t chunk = n;
        if (*signals_flag()) {
            /* asked to stop: do not wait for a reader that no longer reads */
            struct pollfd pf = {.fd = fd, .events = POLLOUT};
            int r = poll(&pf, 1, 500);
            if (tcgetpgrp(fd) == getpgrp())
                tcflow(fd, TCOON); /* Ctrl-S may have stopped the terminal */
            if (r == 0) {
                errno = EINTR;
                return -1;
            }
            if (r < 0 && errno != EINTR)
                return -1;
            if (chunk > SAFE_CHUNK)
                chunk = SAFE_CHUNK;
        }
        ssize_t k = write(fd, s, chunk);
        if (k < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                struct pollfd pf = {.fd = fd, .events = POLLOUT};
                poll(&pf, 1, -1);
                continue;
            }
            return -1;
        }
        s += k;
        n -= (size_t)k;
    }
    return 0;
}

static void report_write(int err)
{
    if (out_failed)
        return;
    out_failed = true;
    msg_error("stdout: write error: %s", strerror(err));
}

int out_escape(struct buf *out, const char *s, size_t n)
{
    return escape_append(out, s, n, ESCAPE_TEXT, "\n\t");
}

/* Write to a terminal: like fd_write, with escapes. */
static int tty_write(int fd, const char *s, size_t n, enum escape_kind kind)
{
    struct buf b = {0};
    int r = escape_append(&b, s, n, kind, "\n\t"), err = ENOMEM;
    if (r == 0 && b.len) {
        r = fd_write(fd, b.data, b.len);
        err = errno;
    }
    buf_free(&b);
    errno = err;
    return r;
}

void err_write_text(const char *s, size_t n)
{
    tty_write(STDERR_FILENO, s, n, ESCAPE_TEXT);
}

/* Handle the result of a write to stdout. */
static int written(int failed)
{
    if (!failed)
        return 0;
    if (errno == EPIPE)
        signals_die(SIGPIPE);
    if (errno == EINTR)
        out_failed = true; /* the reader stopped and we were asked to stop:
                              print no message */
    else
        report_write(errno);
    return -1;
}

static int out_write_kind(const void *p, size_t n, enum escape_kind kind)
{
    if (out_failed)
        return -1;
    return written(out_tty ? tty_write(STDOUT_FILENO, p, n, kind)
                           : fd_write(STDOUT_FILENO, p, n));
}

int out_write(const void *p, size_t n)
{
    return out_write_kind(p, n, ESCAPE_TEXT);
}

int out_write_names(const void *p, size_t n)
{
    return out_write_kind(p, n, ESCAPE_NAME);
}

int out_write_styled(const void *p, size_t n)
{
    return out_failed ? -1 : written(fd_write(STDOUT_FILENO, p, n));
}

int out_print(struct buf *b, int (*write)(const void *, size_t))
{
    int status = b->failed                ? msg_oom()
                 : write(b->data, b->len) ? (int)QWICK_ERR_RUNTIME
                                          : 0;
    buf_free(b);
    return status;
}

int out_check(void)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY)
        return 0;
    report_write(EBADF);
    return -1;
}

int out_close(int status)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return status ? status : out_failed;
    /* network file systems report a full disk only here */
    if (close(STDOUT_FILENO) && errno != EINTR)
        report_write(errno);
    return status ? status : out_failed;
}

/* ---- messages ---- */

void msg_level(bool quiet, bool verbose)
{
    be_quiet = quiet;
    be_verbose = verbose;
}

bool msg_quiet(void)
{
    return be_quiet;
}

/* The message with question marks for all bytes that would need an escape. */
static void say_without_memory(const char *prefix, char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] < 0x20 || text[i] >= 0x7f)
            text[i] = '?';
    fd_write(STDERR_FILENO, prefix, strlen(prefix));
    fd_write(STDERR_FILENO, text, len);
    fd_write(STDERR_FILENO, "\n", 1);
}

/* Turn the last blank before each `columns` of a message into a line end, so
 * that a terminal breaks no word. A character counts as one column. */
static void wrap_words(struct buf *b, size_t columns)
{
    size_t blank = 0, used = 0; /* offset of the line's last blank; columns */
    for (size_t i = 0; i < b->len; i++) {
        used += (b->data[i] & 0xc0) != 0x80;
        if (b->data[i] == ' ')
            blank = i;
        if (used > columns && blank) {
            b->data[blank] = '\n';
            i = blank;
            blank = used = 0;
        }
    }
}

static void say(const char *prefix, const char *keep, bool wraps,
                const char *fmt, va_list ap)
{
    char text[2048];
    struct buf b = {0};
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    if (n < 0)
        return;
    size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    len = utf8_complete(text, len);
    size_t columns = wraps && err_tty ? term_columns(STDERR_FILENO) : 0;
    bool bad =
        buf_puts(&b, prefix) || escape_append(&b, text, len, ESCAPE_NAME, keep);
    if (!bad && columns)
        wrap_words(&b, columns);
    if (!bad && buf_putc(&b, '\n') == 0)
        fd_write(STDERR_FILENO, b.data, b.len);
    else
        say_without_memory(prefix, text, len);
    buf_free(&b);
}

void msg_say(enum msg_kind kind, const char *fmt, ...)
{
    static const char *const prefixes[] = {
        [MSG_ERROR] = "qwick: ",        [MSG_WARNING] = "qwick: warning: ",
        [MSG_NOTICE] = "qwick: note: ", [MSG_HINT] = "qwick: note: ",
        [MSG_NOTE] = "qwick: ",         [MSG_PLAIN] = "",
    };
    bool always = kind == MSG_ERROR || kind == MSG_PLAIN;
    va_list ap;
    if ((kind == MSG_NOTE ? !be_verbose : !always && be_quiet) ||
        (kind == MSG_HINT && !err_tty))
        return;
    va_start(ap, fmt);
    say(prefixes[kind], kind == MSG_PLAIN ? "\n" : "", !always, fmt, ap);
    va_end(ap);
}

int msg_stop(enum qwick_err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("qwick: ", "", false, fmt, ap);
    va_end(ap);
    return (int)code;
}

int msg_errno(const char *path, const char *what)
{
    return msg_failure("%s: %s: %s", path, what, strerror(errno));
}

int msg_usage(const char *verb, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return msg_refuse("%s (see qwick%s%s --help)", text, verb ? " " : "",
                      verb ? verb : "");
}

int msg_fail(const struct qwick_err *e)
{
    return msg_stop(e->code == QWICK_OK ? QWICK_ERR_RUNTIME : e->code, "%s",
                    e->msg);
}

int msg_oom(void)
{
    return msg_stop(QWICK_ERR_MEMORY, "out of memory");
}
