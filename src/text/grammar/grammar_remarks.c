/* Remarks: what a compiler says about its input besides the grammar. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_int.h"

/* Return whether one of the lines is line[0..n), which ends with a newline. */
static bool has_line(const struct buf *lines, const char *line, size_t n)
{
    for (size_t i = 0; i < lines->len;) {
        const char *end = memchr(lines->data + i, '\n', lines->len - i);
        size_t len = (size_t)(end - (lines->data + i)) + 1;
        if (len == n && memcmp(lines->data + i, line, n) == 0)
            return true;
        i += len;
    }
    return false;
}

void grammar_remark(struct grammar *g, enum grammar_remark kind,
                    const char *fmt, ...)
{
    struct buf *lines = &g->remarks[kind].lines;
    size_t limit =
        kind == GRAMMAR_PROBLEM ? GRAMMAR_MAX_PROBLEMS : GRAMMAR_MAX_NAMES;
    char line[sizeof g->err.msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t len = strlen(line);
    line[len++] = '\n';
    if (g->remarks[kind].n < limit) {
        if (has_line(lines, line, len))
            return;
        if (buf_append(lines, line, len))
            grammar_oom(g, len);
    }
    g->remarks[kind].n++;
}

const char *grammar_remarks(const struct grammar *g, enum grammar_remark kind,
                            size_t *n)
{
    *n = g->remarks[kind].n;
    return buf_text(&g->remarks[kind].lines);
}

int grammar_problems(const struct grammar *g, struct qwick_err *e)
{
    enum { ROOM_FOR_REST = 32 }; /* "; and N more" */
    size_t n, shown = 0;
    struct qwick_err all;
    const char *line = grammar_remarks(g, GRAMMAR_PROBLEM, &n);
    if (n == 0)
        return 0;
    err_usage(&all, "%s: ", g->name);
    for (size_t at = strlen(all.msg); *line; shown++) {
        size_t len = strcspn(line, "\n");
        if (shown && at + len + ROOM_FOR_REST > sizeof all.msg)
            break;
        at += (size_t)snprintf(all.msg + at, sizeof all.msg - at, "%s%.*s",
                               shown ? "; " : "", (int)len, line);
        if (at >= sizeof all.msg)
            at = sizeof all.msg - 1;
        line += len + 1;
    }
    size_t used = strlen(all.msg);
    if (shown < n && used + ROOM_FOR_REST < sizeof all.msg)
        (void)snprintf(all.msg + used, sizeof all.msg - used, "; and %zu more",
                       n - shown);
    if (e)
        *e = all;
    return -1;
}
