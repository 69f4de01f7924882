#include "cli/answer/emit.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/answer/answer_json.h"
#include "cli/answer/answer_opts.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

static void to_stderr(const char *s, size_t n)
{
    /* a failure cannot be reported: this is stderr */
    fd_write(STDERR_FILENO, s, n);
}

void emit_restore(void)
{
    ssize_t r = write(STDERR_FILENO, "\033[0m", 4);
    (void)r;
}

static void to_stdout(struct emit *st, const char *s, size_t n)
{
    if (n == 0 || st->status)
        return;
    if (st->hold && buf_append(&st->held, s, n)) {
        st->status = msg_oom();
        return;
    }
    if (!st->hold &&
        (st->coloured ? out_write_styled(s, n) : out_write(s, n))) {
        st->status = QWICK_ERR_RUNTIME;
        return;
    }
    st->wrote = true;
    st->last = s[n - 1];
}

/* Queue a token for its colour. */
static int queue_token(struct emit *st, const struct qwick_token_event *ev)
{
    char *piece;
    size_t n;
    if (qwick_detokenize(st->eng, &ev->id, 1, true, &piece, &n, NULL))
        return -1;
    int r = paint_token(&st->paint, piece, n, (double)ev->logprob / -M_LN2);
    free(piece);
    return r;
}

/* Write text of the model to stdout. */
static void text_to_stdout(struct emit *st, const char *s, size_t n)
{
    if (!st->coloured) {
        to_stdout(st, s, n);
        return;
    }
    st->event.len = 0;
    if (paint_text(&st->paint, s, n, &st->event)) {
        st->status = st->status ? st->status : msg_oom();
        return;
    }
    to_stdout(st, st->event.data, st->event.len);
    st->last = s[n - 1]; /* not of the escape sequence */
}

/* End the thinking on stderr: reset the colour, and begin a new line for the
 * answer. */
static void end_thinking(struct emit *st)
{
    if (!st->thinking)
        return;
    if (st->dim)
        to_stderr("\033[0m", 4);
    to_stderr("\n\n", st->last_thinking == '\n' ? 1 : 2);
    st->thinking = false;
}

static void put_thinking(struct emit *st, const char *s, size_t n)
{
    if (n == 0)
        return;
    if (st->think_fd >= 0 && fd_write(st->think_fd, s, n)) {
        if (!st->status)
            msg_error("%s: write error: %s", st->think_file, strerror(errno));
        st->status = QWICK_ERR_RUNTIME;
        return;
    }
    if (st->mode != EMIT_TEXT)
        return;
    if (st->show_thinking) {
        text_to_stdout(st, s, n);
        st->had_thinking = true;
    } else if (st->think_fd < 0 && st->stderr_tty && !msg_quiet()) {
        if (!st->thinking && st->dim)
            to_stderr("\033[2m", 4);
        st->thinking = true;
        st->last_thinking = s[n - 1];
        err_write_text(s, n);
    }
}

static void put_text(struct emit *st, const char *s, size_t n)
{
    if (n == 0)
        return;
    end_thinking(st);
    if (st->had_thinking) {
        to_stdout(st, "\n\n", st->last == '\n' ? 1 : 2);
        st->had_thinking = false;
    }
    text_to_stdout(st, s, n);
    st->n_text += n;
}

/* Print the code block once, when it is closed. */
static void print_block(struct emit *st)
{
    const struct code_block *c = &st->block;
    if (st->mode != EMIT_TEXT || st->printed || c->state != CODE_BLOCK_CLOSED)
        return;
    end_thinking(st);
    to_stdout(st, c->content.data, c->content.len);
    st->printed = true;
}

/* Read more of the answer's text, and print the code block if it ends there. */
static void put_block(struct emit *st, const char *s, size_t n)
{
    st->n_block += n;
    if (code_block_feed(&st->block, s, n) && !st->status)
        st->status = msg_oom();
    print_block(st);
}

/* Read the rest of the answer's text, whose end may close the block. */
static void end_block(struct emit *st, const struct qwick_result *r)
{
    if (r->n_text > st->n_block)
        put_block(st, r->text + st->n_block, r->n_text - st->n_block);
    if (code_block_end(&st->block, !answer_is_cut(r->finish)) && !st->status)
        st->status = msg_oom();
    print_block(st);
}

/* Read more of the answer's text for its tool calls. Returns 0, or -1 when out
 * of memory. */
static int read_calls(struct emit *st, const char *s, size_t n)
{
    st->n_calls += n;
    return tool_calls_feed(&st->calls, s, n);
}

/* Begin an event's object. sample: NULL without --samples. */
static void begin_event(struct json_writer *w, const char *name,
                        const size_t *sample)
{
    jw_object(w, NULL);
    jw_cstr(w, "event", name);
    if (sample)
        jw_uint(w, "sample", *sample);
}

/* Append the events of the calls from the first on. */
static void call_events(struct json_writer *w, const struct tool_calls *c,
                        size_t first, const size_t *sample)
{
    for (size_t i = first; i < c->n; i++) {
        begin_event(w, "tool_call", sample);
        jw_uint(w, "index", i);
        tool_calls_write(w, "tool_call", c, i);
        jw_end_line(w);
    }
}

static int put_event(struct emit *st, const struct qwick_token_event *ev)
{
    struct buf *b = &st->event;
    struct tool_calls *c = &st->calls;
    bool thinking = ev->channel == QWICK_THINKING;
    const char *text = ev->text;
    size_t n = thinking ? 0 : ev->n_text, old = c->text.len, n_calls = c->n;
    if (c->tools) { /* the text that is certain now */
        if (read_calls(st, text, n))
            return -1;
        text = c->text.data ? c->text.data + old : "";
        n = c->text.len - old;
    }
    b->len = 0;
    struct json_writer w = json_writer(b);
    begin_event(&w, "token", st->sample);
    jw_int(&w, "id", ev->id);
    jw_string(&w, "text", text, n);
    if (thinking)
        jw_string(&w, "thinking", ev->text, ev->n_text);
    if (ev->forced)
        jw_bool(&w, "forced", true);
    if (st->logprobs)
        json_logprob(&w, st->eng, ev);
    jw_end_line(&w);
    call_events(&w, c, n_calls, st->sample);
    if (jw_status(&w))
        return -1;
    if (!thinking)
        st->n_text += ev->n_text;
    to_stdout(st, b->data, b->len);
    return 0;
}

/* Read the rest of the answer for its tool calls. With --jsonl, text that was
 * held back because it could have been a part of a call gets an event. */
static int end_calls(struct emit *st, const struct qwick_result *r)
{
    struct tool_calls *c = &st->calls;
    size_t old = c->text.len, n_calls = c->n;
    if ((r->n_text > st->n_calls &&
         read_calls(st, r->text + st->n_calls, r->n_text - st->n_calls)) ||
        tool_calls_end(c))
        return -1;
    if (st->mode != EMIT_JSONL)
        return 0;
    st->event.len = 0;
    struct json_writer w = json_writer(&st->event);
    if (c->text.len > old) {
        begin_event(&w, "text", st->sample);
        jw_string(&w, "text", c->text.data + old, c->text.len - old);
        jw_end_line(&w);
    }
    call_events(&w, c, n_calls, st->sample);
    if (jw_status(&w))
        return -1;
    to_stdout(st, st->event.data, st->event.len);
    return 0;
}

int emit_token(void *ctx, const struct qwick_token_event *ev)
{
    struct emit *st = ctx;
    int bad = 0;
    progress_stop();
    if (st->logprobs)
        bad |= json_logprobs(&st->items, st->eng, ev);
    if (st->coloured && (ev->channel == QWICK_TEXT || st->show_thinking))
        bad |= queue_token(st, ev);
    if (ev->channel == QWICK_THINKING)
        put_thinking(st, ev->text, ev->n_text);
    if (st->mode == EMIT_JSONL)
        bad |= put_event(st, ev);
    else if (st->mode == EMIT_TEXT && ev->channel == QWICK_TEXT && !st->extract)
        put_text(st, ev->text, ev->n_text);
    if (st->extract && ev->channel == QWICK_TEXT)
        put_block(st, ev->text, ev->n_text);
    if (bad && !st->status)
        st->status = msg_oom();
    return st->status != 0 || emit_has_ended(st);
}

bool emit_has_ended(const struct emit *st)
{
    return st->may_end && st->block.state == CODE_BLOCK_CLOSED;
}

void emit_end(struct emit *st, const struct qwick_result *r)
{
    progress_stop();
    if (st->extract)
        end_block(st, r);
    if (st->calls.tools && end_calls(st, r) && !st->status)
        st->status = msg_oom();
    if (st->mode != EMIT_TEXT)
        return;
    if (!st->extract && r->n_text > st->n_text)
        put_text(st, r->text + st->n_text, r->n_text - st->n_text);
    end_thinking(st);
    if (st->null)
        to_stdout(st, "", 1);
    else if (!st->no_newline && st->wrote && st->last != '\n')
        to_stdout(st, "\n", 1);
}

void emit_release(struct emit *st)
{
    st->hold = false;
    if (st->held.len)
        to_stdout(st, st->held.data, st->held.len);
    buf_free(&st->held);
}

void emit_free(struct emit *st)
{
    buf_free(&st->held);
    buf_free(&st->items);
    buf_free(&st->event);
    paint_free(&st->paint);
    code_block_free(&st->block);
    tool_calls_free(&st->calls);
}
