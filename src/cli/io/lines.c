#include "cli/io/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/io/out.h"
#include "cli/io/prompt.h"
#include "cli/io/signals.h"

enum { CHUNK = 65536 };

void lines_init(struct lines *l, const char *name, int fd)
{
    *l = (struct lines){.name = name, .fd = fd, .in = {.max = PROMPT_MAX}};
}

void lines_free(struct lines *l)
{
    buf_free(&l->in);
}

/* Skip a byte order mark at the beginning of the descriptor. *text is the first
 * line that was not handed out. */
static void skip_mark(const struct lines *l, const char **text, size_t *n)
{
    static const char mark[] = "\xEF\xBB\xBF";
    if (l->consumed || *n < 3 || memcmp(*text, mark, 3) != 0)
        return;
    *text += 3;
    *n -= 3;
}

/* Hand out [start, end); `extra` bytes of line end follow it. */
static void hand_out(struct lines *l, size_t end, size_t extra,
                     const char **text, size_t *n)
{
    *text = l->in.data + l->start;
    *n = end - l->start;
    skip_mark(l, text, n);
    l->number++;
    l->consumed += end - l->start + extra;
    l->start = l->scanned = end + extra;
}

/* Hand out the next line if the buffer has all of it. */
static bool lines_take(struct lines *l, const char **text, size_t *n)
{
    if (l->scanned == l->in.len)
        return false;
    const char *nl =
        memchr(l->in.data + l->scanned, '\n', l->in.len - l->scanned);
    if (!nl) {
        l->scanned = l->in.len;
        return false;
    }
    hand_out(l, (size_t)(nl - l->in.data), 1, text, n);
    return true;
}

/* Drop the lines that were handed out from the buffer. */
static void compact(struct lines *l)
{
    if (l->start == 0)
        return;
    l->in.len -= l->start;
    memmove(l->in.data, l->in.data + l->start, l->in.len);
    l->scanned -= l->start;
    l->start = 0;
}

static int too_long(const struct lines *l, struct qwick_err *e)
{
    if (l->in.len <= l->in.max - CHUNK)
        return err_oom(e, l->in.len + CHUNK);
    return err_set(e, QWICK_ERR_RUNTIME,
                   "%s: line %llu: longer than the limit of %zu bytes", l->name,
                   (unsigned long long)l->number + 1, l->in.max);
}

/* Returns 1 after a read or at the end of the input, 0 when no input came, -1
 * on failure. */
static int read_some(struct lines *l, int timeout_ms, struct qwick_err *e)
{
    bool first = l->fd == STDIN_FILENO && !l->consumed && !l->in.len;
    off_t at = first ? stdin_offset() : 0;
    int r = first && timeout_ms < 0
                ? prompt_poll(true, "waiting for records on standard input; "
                                    "-i FILE reads a file")
                : signals_poll(l->fd, POLLIN, timeout_ms);
    if (r == 0 || (r < 0 && errno == EINTR))
        return 0;
    if (r < 0)
        return err_errno(e, l->name, "cannot read");
    compact(l);
    if (buf_reserve(&l->in, CHUNK))
        return too_long(l, e);
    ssize_t k = read(l->fd, l->in.data + l->in.len, CHUNK);
    if (k < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (k < 0)
        return err_errno(e, l->name, "cannot read");
    l->in.len += (size_t)k;
    l->eof = k == 0;
    if (k > 0)
        stdin_warn_rest(at, "");
    return 1;
}

enum lines_status lines_next(struct lines *l, int timeout_ms, const char **text,
                             size_t *n, bool *torn, struct qwick_err *e)
{
    *torn = false;
    while (!lines_take(l, text, n)) {
        if (l->eof) {
            if (l->start == l->in.len)
                return LINES_END;
            *torn = true;
            hand_out(l, l->in.len, 0, text, n);
            return LINES_GOT;
        }
        int r = read_some(l, timeout_ms, e);
        if (r < 0)
            return LINES_FAILED;
        if (r == 0)
            return LINES_WAIT;
    }
    return LINES_GOT;
}

bool line_is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return false;
    return true;
}

enum lines_status lines_peek(struct lines *l, const char **text, size_t *n,
                             struct qwick_err *e)
{
    size_t at = 0; /* the beginning of a line, counted from l->start */
    for (;;) {
        size_t have = l->in.len - l->start - at;
        const char *s = have ? l->in.data + l->start + at : "";
        const char *nl = memchr(s, '\n', have);
        if (nl || (l->eof && have)) {
            *text = s;
            size_t len = *n = nl ? (size_t)(nl - s) : have;
            if (at == 0)
                skip_mark(l, text, n);
            if (!line_is_blank(*text, *n))
                return LINES_GOT;
            at += len + (nl != NULL);
            continue;
        }
        if (l->eof)
            return LINES_END;
        int r = read_some(l, -1, e);
        if (r <= 0)
            return r ? LINES_FAILED : LINES_WAIT;
    }
}

/* ---- all files ---------------------------------------------------------- */

static int run_lines(const char *name, int fd, const struct lines_handler *h,
                     void *ctx)
{
    struct lines l;
    struct qwick_err e = {0};
    enum lines_status got;
    bool waits = false; /* the handler was told that no input is available */
    int status = 0;
    lines_init(&l, name, fd);
    do {
        const char *text;
        size_t n;
        bool torn;
        got = lines_next(&l, waits ? -1 : 0, &text, &n, &torn, &e);
        if (got == LINES_FAILED) {
            status = e.code == QWICK_ERR_MEMORY ? msg_oom() : msg_fail(&e);
        } else if (got == LINES_GOT) {
            char where[512];
            snprintf(where, sizeof(where), "%.400s: line %llu", name,
                     (unsigned long long)l.number);
            const struct line line = {.where = where,
                                      .file = fd == STDIN_FILENO ? NULL : name,
                                      .number = l.number,
                                      .text = text,
                                      .n = n};
            status = h->line(ctx, &line);
        } else if (got == LINES_WAIT && !waits && h->wait && !*signals_flag()) {
            status = h->wait(ctx);
        }
        if (!status && *signals_flag())
            status = QWICK_ERR_RUNTIME;
        waits = got == LINES_WAIT;
    } while (!status && got != LINES_END);
    lines_free(&l);
    return status;
}

/* Open a path; "-" is standard input. To count lines, pass O_NONBLOCK: opening
 * a pipe must not wait for its writer, which is needed later. */
static int open_lines(const char *path, int flags)
{
    return strcmp(path, "-") == 0 ? STDIN_FILENO
                                  : open(path, O_RDONLY | O_CLOEXEC | flags);
}

static void close_lines(int fd)
{
    if (fd > STDIN_FILENO)
        close(fd);
}

int lines_run(const struct strings *files, const struct lines_handler *h,
              void *ctx)
{
    int status = 0;
    if (!files->n)
        return run_lines("stdin", STDIN_FILENO, h, ctx);
    for (size_t i = 0; i < files->n && !status; i++) {
        const char *path = files->v[i];
        int fd = open_lines(path, 0);
        if (fd < 0)
            return msg_errno(path, "open");
        status = run_lines(fd == STDIN_FILENO ? "stdin" : path, fd, h, ctx);
        close_lines(fd);
    }
    return status;
}

/* ---- how many ----------------------------------------------------------- */

/* Counting reads gigabytes per second, so this much takes less than a
 * second. */
#define COUNT_MAX ((off_t)1 << 30)

/* Count from an offset on; negative: the descriptor has none. */
static uint64_t count_from(int fd, off_t at, bool blank)
{
    struct stat st;
    uint64_t n = 0;
    bool any = false, text = false; /* whether the current line has any bytes,
                                       any text */
    if (at < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
        st.st_size - at > COUNT_MAX)
        return 0;
    for (;;) {
        char part[CHUNK];
        ssize_t k = pread(fd, part, sizeof(part), at);
        if (k <= 0)
            return n + (any && (text || blank));
        at += k;
        for (const char *s = part, *end = part + k; s < end; s++) {
            if (*s == '\n') {
                n += text || blank;
                any = text = false;
                continue;
            }
            any = true;
            text |= *s != ' ' && *s != '\t' && *s != '\r';
        }
    }
}

/* Count the lines from the descriptor's offset on, without moving the offset. */
static uint64_t lines_count(int fd, bool blank)
{
    return count_from(fd, lseek(fd, 0, SEEK_CUR), blank);
}

uint64_t lines_left(const struct lines *l, bool blank)
{
    off_t at = lseek(l->fd, 0, SEEK_CUR);
    size_t held = l->in.len - l->start;
    return at < 0 ? 0 : count_from(l->fd, at - (off_t)held, blank);
}

uint64_t lines_total(const struct strings *files, bool blank)
{
    uint64_t sum = files->n ? 0 : lines_count(STDIN_FILENO, blank);
    for (size_t i = 0; i < files->n; i++) {
        int fd = open_lines(files->v[i], O_NONBLOCK);
        uint64_t n = fd < 0 ? 0 : lines_count(fd, blank);
        close_lines(fd);
        if (n == 0)
            return 0;
        sum += n;
    }
    return sum;
}
