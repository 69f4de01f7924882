#include "cli/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/utf8.h"
#include "cli/out.h"
#include "file/map.h"

bool stdin_is_source(void)
{
    struct stat st;
    int flags = fcntl(STDIN_FILENO, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY)
        return false;
    if (fstat(STDIN_FILENO, &st) || S_ISDIR(st.st_mode))
        return false;
    return !isatty(STDIN_FILENO);
}

bool stdin_has_data(void)
{
    char c;
    if (!stdin_is_source())
        return false;
    for (;;) {
        ssize_t k = read(STDIN_FILENO, &c, 1);
        if (k >= 0)
            return k > 0;
        if (errno == EAGAIN) {
            struct pollfd pf = {.fd = STDIN_FILENO, .events = POLLIN};
            poll(&pf, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
}

/* Print a hint if no input comes: the program would seem to hang. */
static void hint_silent_stdin(void)
{
    struct pollfd pf = {.fd = STDIN_FILENO, .events = POLLIN};
    if (err_is_tty() && poll(&pf, 1, 2000) == 0)
        msg_hint("waiting for standard input; --no-stdin does without it");
}

int prompt_read(const char *path, char **data, size_t *n, struct qwick_err *e)
{
    if (strcmp(path, "-") == 0)
        hint_silent_stdin();
    return map_read_all(path, PROMPT_MAX, data, n, e);
}

/* Append a part after a blank line, with its name (NULL: none) above it. */
static int add_part(struct buf *out, const char *name, const char *s, size_t n,
                    struct qwick_err *e)
{
    int bad = 0;
    if (n == 0)
        return 0;
    if (out->len)
        bad |= buf_puts(out, "\n\n");
    if (name) {
        bad |= utf8_sanitize(out, name, strlen(name));
        bad |= buf_puts(out, ":\n");
    }
    return utf8_sanitize(out, s, n) || bad ? err_oom(e, n) : 0;
}

static int add_file(struct buf *out, const char *path, const char *name,
                    struct qwick_err *e)
{
    char *data;
    size_t n;
    if (prompt_read(path, &data, &n, e))
        return -1;
    if (n && data[n - 1] == '\n')
        n--;
    int r = add_part(out, name, data, n, e);
    free(data);
    return r;
}

int prompt_compose(struct buf *out, const struct opt_texts *files, bool names,
                   const char *text, bool no_stdin, struct qwick_err *e)
{
    bool placed = false;
    for (size_t i = 0; i < files->n; i++) {
        const char *path = files->v[i];
        bool dash = strcmp(path, "-") == 0;
        if (dash) {
            placed = true;
            /* a closed standard input counts as empty; a terminal is read,
             * since the user named it */
            if (!stdin_is_source() && !isatty(STDIN_FILENO))
                continue;
        }
        if (add_file(out, path, names ? (dash ? "stdin" : path) : NULL, e))
            return -1;
    }
    if (!placed && !no_stdin && stdin_is_source() &&
        add_file(out, "-", NULL, e))
        return -1;
    return text ? add_part(out, NULL, text, strlen(text), e) : 0;
}

int prompt_bytes(struct buf *out, const struct opt_texts *files,
                 const char *text, bool *found, struct qwick_err *e)
{
    static const char *dash[] = {"-"};
    const struct opt_texts only_stdin = {dash, 1};
    *found = true;
    if (text)
        return buf_puts(out, text) ? err_oom(e, strlen(text)) : 0;
    if (!files->n) {
        *found = stdin_is_source();
        if (!*found)
            return 0;
        files = &only_stdin;
    }
    for (size_t i = 0; i < files->n; i++) {
        char *data;
        size_t n;
        if (prompt_read(files->v[i], &data, &n, e))
            return -1;
        int r = buf_append(out, data, n);
        free(data);
        if (r)
            return err_oom(e, n);
    }
    return 0;
}

int prompt_ids(const char *where, const char *s, size_t n, bool none_ok,
               int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    size_t cap = 0, len = 0, i = 0;
    int32_t *v = NULL;
    bool comma = false;
    *ids = NULL;
    *n_ids = 0;
    for (;;) {
        while (i < n &&
               (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r'))
            i++;
        if (i == n)
            break;
        if (s[i] == ',' && len && !comma) {
            comma = true;
            i++;
            continue;
        }
        int64_t x = 0;
        size_t start = i;
        while (i < n && s[i] >= '0' && s[i] <= '9' && x <= INT32_MAX)
            x = x * 10 + (s[i++] - '0');
        if (x > INT32_MAX) {
            err_set(e, QWICK_ERR_USAGE, "%s: token %zu: id is larger than %d",
                    where, len + 1, INT32_MAX);
            goto fail;
        }
        if (i == start || (i < n && !strchr(", \t\r\n", s[i])) ||
            (i < n && !s[i])) {
            size_t k = 0;
            while (start + k < n && k < 20 && s[start + k] &&
                   !strchr(", \t\r\n", s[start + k]))
                k++;
            err_set(e, QWICK_ERR_USAGE,
                    "%s: token %zu: \"%.*s\" is not a token id", where, len + 1,
                    (int)k, s + start);
            goto fail;
        }
        if (ARRAY_RESERVE(v, cap, len + 1, e))
            goto fail;
        v[len++] = (int32_t)x;
        comma = false;
    }
    if (comma) {
        err_set(e, QWICK_ERR_USAGE, "%s: ends in a comma", where);
        goto fail;
    }
    if (!len && !none_ok) {
        err_set(e, QWICK_ERR_USAGE, "%s: no token ids", where);
        goto fail;
    }
    *ids = v;
    *n_ids = len;
    return 0;
fail:
    free(v);
    return -1;
}

enum overflow overflow_parse(const char *name)
{
    if (name && strcmp(name, "head") == 0)
        return OVERFLOW_HEAD;
    if (name && strcmp(name, "tail") == 0)
        return OVERFLOW_TAIL;
    if (name && strcmp(name, "middle") == 0)
        return OVERFLOW_MIDDLE;
    return OVERFLOW_ERROR;
}

size_t overflow_cut(enum overflow how, int32_t *ids, size_t n, size_t keep)
{
    if (keep >= n)
        return n;
    size_t head = how == OVERFLOW_TAIL     ? 0
                  : how == OVERFLOW_MIDDLE ? keep - keep / 2
                                           : keep;
    memmove(ids + head, ids + n - (keep - head), (keep - head) * sizeof(*ids));
    return keep;
}

size_t prompt_enough(size_t limit)
{
    const size_t least = (size_t)1 << 20; /* a tenth of a second */
    return limit < least / 4 ? least : limit < SIZE_MAX / 4 ? 4 * limit : 0;
}

int prompt_too_long(size_t n_ids, size_t limit, const char *hint,
                    struct qwick_err *e)
{
    size_t enough = prompt_enough(limit);
    bool more = enough && n_ids > enough;
    return err_set(e, QWICK_ERR_CONTEXT,
                   "prompt: %s%zu tokens do not fit the context of %zu%s",
                   more ? "more than " : "", more ? enough : n_ids, limit,
                   hint);
}
