#include "cli/log/log_print.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cli/io/out.h"
#include "cli/io/term.h"

/* Columns of a line that goes to no terminal. */
enum { FILE_COLUMNS = 120 };

static size_t line_columns(void)
{
    size_t n = out_is_tty() ? term_columns(STDOUT_FILENO) : FILE_COLUMNS;
    return n > 1 ? n - 1 : 1; /* terminals wrap after the last one */
}

void log_put_line(struct buf *out, const char *s, size_t n, size_t columns)
{
    const size_t start = out->len;
    size_t used = 0, fits = start; /* the length that leaves room for "..." */
    bool blank = true;             /* no blanks at the beginning */
    while (n) {
        size_t k = utf8_decode(s, n, NULL, NULL), wide;
        bool space = *s == ' ' || (*s >= '\t' && *s <= '\r');
        k = k ? k : 1;
        wide = k > 1 ? 2 : 1; /* at most */
        if (!(space && blank)) {
            if (used + wide > columns) {
                out->len = fits;
                buf_puts(out, columns > 3 ? "..." : "");
                return;
            }
            buf_append(out, space ? " " : s, k);
            used += wide;
            if (used + 3 <= columns)
                fits = out->len;
        }
        blank = space;
        s += k;
        n -= k;
    }
    while (out->len > start && out->data[out->len - 1] == ' ')
        out->data[--out->len] = 0;
}

void log_put_time(struct buf *out, const char *text)
{
    struct tm tm = {0};
    char when[32] = "?";
    time_t t;
    if (text && strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm) &&
        (t = timegm(&tm)) != (time_t)-1 && localtime_r(&t, &tm))
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
    buf_printf(out, "%-16s", when);
}

/* The text of a member; another program may have taken it away. */
static const char *shown(struct log_text t)
{
    return t.s ? t.s : "?";
}

int log_print_row(void *ctx, const struct log_row *row)
{
    enum { MODEL = 20, LEAST = 20 };
    struct buf b = {0}, name = {0};
    size_t columns = line_columns(), used;
    const char *model = shown(row->model);
    const char *slash = strrchr(model, '/');
    buf_printf(&b, "%6lld  ", (long long)row->id);
    log_put_time(&b, row->time.s);
    if (slash && slash[1])
        model = slash + 1;
    log_put_line(&name, model, strlen(model), MODEL);
    buf_printf(&b, "  %-*s  ", MODEL, buf_text(&name));
    buf_free(&name);
    if (row->conversation.s)
        buf_printf(&b, "[%s] ", row->conversation.s);
    used = b.len;
    log_put_line(&b, row->prompt.s, row->prompt.n,
                 columns > used + LEAST ? columns - used : LEAST);
    buf_putc(&b, '\n');
    return *(int *)ctx = out_print(&b, out_write_names);
}

static void put_part(struct buf *b, const char *name, struct log_text t)
{
    if (!t.s)
        return;
    buf_printf(b, "\n[%s]\n", name);
    buf_append(b, t.s, t.n);
    if (t.n && t.s[t.n - 1] != '\n')
        buf_putc(b, '\n');
}

int log_print_whole(void *ctx, const struct log_row *row)
{
    struct buf b = {0};
    buf_printf(&b, "answer %lld, ", (long long)row->id);
    log_put_time(&b, row->time.s);
    buf_printf(&b, ", %s\nmodel: %s\n", shown(row->verb), shown(row->model));
    if (row->conversation.s)
        buf_printf(&b, "conversation: %s\n", row->conversation.s);
    buf_printf(&b,
               "tokens: %lld of the prompt (%lld cached) in %.0f ms, %lld of "
               "the answer, %.0f ms in all\n",
               (long long)row->prompt_tokens, (long long)row->cached_tokens,
               row->prefill_ms, (long long)row->completion_tokens,
               row->total_ms);
    buf_printf(&b, "finish reason: %s\nseed: %lld\noptions: %s\n",
               shown(row->finish_reason), (long long)row->seed,
               shown(row->options));
    put_part(&b, "system", row->system);
    put_part(&b, "prompt", row->prompt);
    put_part(&b, "thinking", row->thinking);
    put_part(&b, "answer", row->answer);
    return *(int *)ctx = out_print(&b, out_write);
}

int log_print_json(void *ctx, const struct log_row *row)
{
    struct buf b = {0};
    struct json_writer w = jw_line(&b);
    log_row_json(&w, row);
    jw_end_line(&w);
    return *(int *)ctx = out_print(&b, out_write);
}
