#include "cli/io/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"
#include "cli/io/signals.h"
#include "cli/io/units.h"
#include "file/map.h"

enum { CHUNK = 65536 };

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

/* Until when waits for standard input may last, a time of clock_ms; 0: without
 * limit. */
static double deadline;
static double deadline_seconds; /* the option's value, for the message */

void prompt_timeout(double seconds, double start_ms)
{
    deadline_seconds = seconds;
    deadline = seconds > 0 ? start_ms + 1000 * seconds : 0;
}

/* The milliseconds until a time, for poll. 0: without limit. */
static int ms_until(double at)
{
    double ms = at - clock_ms();
    return at == 0 ? -1 : ms <= 0 ? 0 : ms < 60000 ? (int)ms + 1 : 60000;
}

int prompt_poll(bool first, const char *hint)
{
    double due = first ? clock_ms() + (err_is_tty() ? 2000 : 5000) : 0;
    for (;;) {
        double until =
            due != 0 && (deadline == 0 || due < deadline) ? due : deadline;
        int r = signals_poll(STDIN_FILENO, POLLIN, ms_until(until));
        if (r)
            return r;
        if (deadline != 0 && clock_ms() >= deadline)
            return 0;
        if (due == 0 || clock_ms() < due)
            continue;
        due = 0;
        progress_clear();
        msg_say(err_is_tty() ? MSG_HINT : MSG_WARNING, "%s", hint);
    }
}

#define WAITING "waiting for standard input; --no-stdin does without it"

bool stdin_has_data(void)
{
    char c;
    if (!stdin_is_source())
        return false;
    for (bool first = true;; first = false) {
        int r = prompt_poll(first, WAITING);
        ssize_t k = r > 0 ? read(STDIN_FILENO, &c, 1) : r;
        if (k >= 0)
            return k > 0;
        if ((errno != EINTR && errno != EAGAIN) || *signals_flag())
            return false;
    }
}

off_t stdin_offset(void)
{
    struct stat st;
    off_t at = fstat(STDIN_FILENO, &st) || !S_ISREG(st.st_mode)
                   ? 0
                   : lseek(STDIN_FILENO, 0, SEEK_CUR);
    return at > 0 ? at : 0;
}

void stdin_warn_rest(off_t at, const char *hint)
{
    if (at <= 0)
        return;
    progress_clear();
    msg_warn("standard input: took the rest of its file, from byte %lld on%s",
             (long long)at, hint);
}

static int stdin_failed(int r, struct qwick_err *e)
{
    if (r == 0)
        return err_set(e, QWICK_ERR_RUNTIME,
                       "standard input: has not ended in the %g seconds of "
                       "--timeout",
                       deadline_seconds);
    return err_set(e, QWICK_ERR_RUNTIME, "standard input: cannot read: %s",
                   strerror(errno));
}

static int stdin_too_large(const struct buf *b, struct qwick_err *e)
{
    return b->len > b->max - CHUNK
               ? err_set(e, QWICK_ERR_RUNTIME,
                         "standard input: larger than the limit of %zu bytes",
                         b->max)
               : err_oom(e, CHUNK);
}

/* Read standard input to its end. named: the user has named it. */
static int read_stdin(bool named, char **data, size_t *n, struct qwick_err *e)
{
    struct buf b = {.max = PROMPT_MAX};
    off_t at = stdin_offset();
    for (;;) {
        if (buf_reserve(&b, CHUNK)) {
            stdin_too_large(&b, e);
            break;
        }
        int r = prompt_poll(b.len == 0,
                            named ? "waiting for standard input" : WAITING);
        ssize_t k =
            r > 0 ? read(STDIN_FILENO, b.data + b.len, CHUNK) : (ssize_t)r;
        bool again = k < 0 && (errno == EINTR || errno == EAGAIN);
        if (again && !*signals_flag())
            continue;
        if (k < 0 || r == 0) {
            stdin_failed(r, e);
            break;
        }
        if (k == 0) {
            if (b.len)
                stdin_warn_rest(at, named ? ""
                                          : "; in a loop that reads the file, "
                                            "use --no-stdin");
            *data = buf_take(&b, n);
            return 0;
        }
        b.len += (size_t)k;
    }
    buf_free(&b);
    return -1;
}

const char *prompt_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int prompt_read(const char *path, char **data, size_t *n, struct qwick_err *e)
{
    *data = NULL;
    *n = 0;
    return strcmp(path, "-") == 0 ? read_stdin(true, data, n, e)
                                  : map_read_all(path, PROMPT_MAX, data, n, e);
}

/* ---- faults of texts ---------------------------------------------------- */

void prompt_count_faults(struct prompt_faults *f, const char *s, size_t n)
{
    const char *end = s + n;
    for (const char *nul = s; n && (nul = memchr(nul, 0, (size_t)(end - nul)));
         nul++)
        f->n_nul++;
    while (s < end) {
        size_t bad = 0;
        s += utf8_valid(s, (size_t)(end - s));
        if (s < end && !utf8_decode(s, (size_t)(end - s), NULL, &bad))
            f->n_bad += bad;
        s += bad;
    }
}

int prompt_clean(struct buf *out, struct prompt_faults *f, const char *s,
                 size_t n)
{
    prompt_count_faults(f, s, n);
    return utf8_sanitize(out, s, n);
}

void prompt_warn_faults(const struct prompt_faults *f, const char *what)
{
    char bad[80] = "", nul[40] = "";
    if (f->n_bad)
        snprintf(bad, sizeof(bad), "%llu %s not UTF-8, replaced by U+FFFD",
                 (unsigned long long)f->n_bad,
                 plural(f->n_bad, "byte is", "bytes are"));
    if (f->n_nul)
        snprintf(nul, sizeof(nul), "%s%llu %s NUL", f->n_bad ? "; " : "",
                 (unsigned long long)f->n_nul,
                 plural(f->n_nul, "byte is", "bytes are"));
    if (f->n_bad || f->n_nul)
        msg_warn("%s: %s%s", what, bad, nul);
}

/* ---- texts -------------------------------------------------------------- */

size_t prompt_unix_text(char *s, size_t n)
{
    static const char bom[] = "\xEF\xBB\xBF";
    size_t at = n >= 3 && memcmp(s, bom, 3) == 0 ? 3 : 0, to = 0;
    for (; at < n; at++)
        if (s[at] != '\r' || at + 1 == n || s[at + 1] != '\n')
            s[to++] = s[at];
    return to;
}

void prompt_warn_empty(const char *path)
{
    progress_clear();
    msg_warn("%s: is empty", prompt_name(path));
}

size_t prompt_drop_newline(const char *s, size_t n)
{
    return n - (n && s[n - 1] == '\n');
}

/* Bring the bytes of a file or of standard input into the form of a part. */
static size_t part_of(char *s, size_t n, bool exact)
{
    if (!exact)
        n = prompt_unix_text(s, n);
    return prompt_drop_newline(s, n);
}

/* The prompt that is being composed. */
struct composing {
    const struct prompt_sources *s;
    struct prompt_faults *f;
    struct buf *out;
    struct buf empty; /* sources that are empty: texts, each with a NUL */
};

/* Append a part after a blank line, with its name (NULL: none) above it. */
static int add_part(struct composing *c, const char *name, const char *s,
                    size_t n, struct qwick_err *e)
{
    struct buf *out = c->out;
    int bad = 0;
    if (n == 0)
        return 0;
    if (out->len)
        bad |= buf_puts(out, "\n\n");
    if (name) {
        bad |= utf8_sanitize(out, name, strlen(name));
        bad |= buf_puts(out, ":\n");
    }
    return prompt_clean(out, c->f, s, n) || bad ? err_oom(e, n) : 0;
}

/* The source `name` is empty. */
static int note_empty(struct composing *c, const char *name, const char *what,
                      const char *hint, struct qwick_err *e)
{
    if (c->s->refuse_empty)
        return err_usage(
            e, "%s: is %s, so that an answer would be about nothing%s", name,
            what, hint);
    int bad = buf_printf(&c->empty, "%s: is %s%s", name, what, hint);
    return bad || buf_putc(&c->empty, 0) ? err_oom(e, 1) : 0;
}

static void warn_empty(const struct composing *c)
{
    for (size_t i = 0; i < c->empty.len; i += strlen(c->empty.data + i) + 1)
        msg_warn("%s", c->empty.data + i);
}

static int add_file(struct composing *c, const char *path, const char *name,
                    struct qwick_err *e)
{
    char *data = NULL;
    size_t n = 0;
    bool dash = strcmp(path, "-") == 0;
    /* a closed standard input counts as empty; a terminal is read, since the
     * user named it */
    if ((!dash || stdin_is_source() || isatty(STDIN_FILENO)) &&
        prompt_read(path, &data, &n, e))
        return -1;
    size_t len = data ? part_of(data, n, c->s->exact) : 0;
    bool empty = c->s->refuse_empty ? !len : !n;
    int r = empty ? note_empty(c, prompt_name(path), "empty", "", e)
                  : add_part(c, c->s->names ? name : NULL, data, len, e);
    free(data);
    return r;
}

/* Add a standard input that the user has not named. */
static int add_stdin(struct composing *c, struct qwick_err *e)
{
    struct stat st;
    char *data;
    size_t n;
    if (fstat(STDIN_FILENO, &st))
        st.st_mode = 0;
    bool file = S_ISREG(st.st_mode), pipe = S_ISFIFO(st.st_mode);
    off_t at = stdin_offset();
    if (read_stdin(false, &data, &n, e))
        return -1;
    size_t len = n ? part_of(data, n, c->s->exact) : 0;
    bool empty = c->s->refuse_empty ? !len : !n;
    int r = 0;
    if (empty && (file || pipe))
        r = note_empty(c, "standard input",
                       pipe     ? "an empty pipe"
                       : at > 0 ? "at the end of its file"
                                : "an empty file",
                       "; --no-stdin leaves it out", e);
    if (!r && !empty)
        r = add_part(c, NULL, data, len, e);
    free(data);
    return r;
}

int prompt_compose(struct buf *out, const struct prompt_sources *s,
                   struct prompt_faults *f, struct qwick_err *e)
{
    struct composing c = {.s = s, .f = f, .out = out};
    bool placed = false;
    int r = 0;
    for (size_t i = 0; i < s->files->n && !r; i++) {
        bool dash = strcmp(s->files->v[i], "-") == 0;
        placed |= dash;
        r = add_file(&c, s->files->v[i], dash ? "stdin" : s->files->v[i], e);
    }
    if (!r && !placed && !s->no_stdin && stdin_is_source())
        r = add_stdin(&c, e);
    if (!r && s->text)
        r = add_part(&c, NULL, s->text,
                     prompt_drop_newline(s->text, strlen(s->text)), e);
    if (!r && (out->len || s->others))
        warn_empty(&c);
    buf_free(&c.empty);
    return r;
}

int prompt_system(struct buf *out, const char *text, const char *path,
                  bool exact, struct prompt_faults *f, struct qwick_err *e)
{
    char *data = NULL;
    size_t n = text ? strlen(text) : 0;
    if (!text && !path)
        return 0;
    if (!text) {
        if (prompt_read(path, &data, &n, e))
            return -1;
        n = part_of(data, n, exact);
    }
    int bad = buf_reserve(out, 0) || prompt_clean(out, f,
                                                  data   ? data
                                                  : text ? text
                                                         : "",
                                                  n);
    free(data);
    return bad ? err_oom(e, n) : 0;
}

int prompt_bytes(struct buf *out, const struct strings *files, const char *text,
                 bool *found, struct qwick_err *e)
{
    static const char *dash[] = {"-"};
    const struct strings only_stdin = {dash, 1};
    *found = true;
    if (text)
        return buf_puts(out, text) ? err_oom(e, strlen(text)) : 0;
    bool named = files->n;
    if (!named)
        files = &only_stdin;
    *found = named || stdin_is_source();
    for (size_t i = 0; i < files->n && *found; i++) {
        char *data;
        size_t n;
        if (prompt_read(files->v[i], &data, &n, e))
            return -1;
        int r = buf_append(out, data, n);
        free(data);
        if (r)
            return err_oom(e, n);
        if (n == 0 && files->n > 1)
            prompt_warn_empty(files->v[i]);
    }
    *found = named || out->len;
    return 0;
}

static bool is_between(char c)
{
    return c && strchr(" \t\r\n,", c);
}

/* Read the id at s[0..n), which is the item `number`. *used: its length. */
static int read_id(const char *where, size_t number, const char *s, size_t n,
                   int32_t *id, size_t *used, struct qwick_err *e)
{
    int64_t x = 0;
    size_t i = 0, k = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9' && x <= INT32_MAX)
        x = x * 10 + (s[i++] - '0');
    if (x > INT32_MAX)
        return err_usage(e, "%s: token %zu: id is larger than %d", where,
                         number, INT32_MAX);
    *id = (int32_t)x;
    *used = i;
    if (i && (i == n || is_between(s[i])))
        return 0;
    while (k < n && k < 20 && s[k] && !is_between(s[k]))
        k++;
    return err_usage(e, "%s: token %zu: \"%.*s\" is not a token id", where,
                     number, (int)k, s);
}

int prompt_ids(const char *where, const char *s, size_t n, bool none_ok,
               int32_t **ids, size_t *n_ids, struct qwick_err *e)
{
    size_t cap = 0, len = 0, used = 1;
    int32_t *v = NULL;
    bool comma = false;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i += used) {
        used = 1;
        if (s[i] == ',' && len && !comma) {
            comma = true;
        } else if (s[i] == ',' || !is_between(s[i])) {
            rc = ARRAY_RESERVE(v, cap, len + 1, e) ||
                 read_id(where, len + 1, s + i, n - i, &v[len], &used, e);
            len++;
            comma = false;
        }
    }
    if (!rc && comma)
        rc = err_usage(e, "%s: ends in a comma", where);
    if (!rc && !len && !none_ok)
        rc = err_usage(e, "%s: no token ids", where);
    if (rc) {
        free(v);
        v = NULL;
        len = 0;
    }
    *ids = v;
    *n_ids = len;
    return rc ? -1 : 0;
}

int prompt_check_ids(const int32_t *ids, size_t n, size_t vocab_size,
                     struct qwick_err *e)
{
    for (size_t i = 0; i < n; i++)
        if ((size_t)ids[i] >= vocab_size)
            return err_usage(e,
                             "--prompt-ids: token %zu: id %d is not below the "
                             "vocabulary's %zu",
                             i + 1, ids[i], vocab_size);
    return 0;
}

enum overflow overflow_parse(const char *name)
{
    static const char *const names[] = {[OVERFLOW_HEAD] = "head",
                                        [OVERFLOW_TAIL] = "tail",
                                        [OVERFLOW_MIDDLE] = "middle"};
    enum overflow how = name ? OVERFLOW_MIDDLE : OVERFLOW_ERROR;
    while (how && strcmp(name, names[how]) != 0)
        how--;
    return how;
}

size_t overflow_head(enum overflow how, size_t keep)
{
    return how == OVERFLOW_TAIL     ? 0
           : how == OVERFLOW_MIDDLE ? keep - keep / 2
                                    : keep;
}

size_t overflow_cut(enum overflow how, int32_t *ids, size_t n, size_t keep)
{
    size_t head = overflow_head(how, keep);
    if (keep >= n)
        return n;
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
