/* Prints an answer token by token, as text or as JSON events. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/answer/answer_json.h"
#include "cli/answer/answer_opts.h"
#include "cli/answer/gen_output.h"
#include "cli/io/out.h"
#include "cli/io/progress.h"

static void emit_oom(struct gen_output *x)
{
    if (!x->status)
        x->status = msg_oom();
}

void emit_restore(void)
{
    ssize_t r = write(STDERR_FILENO, "\033[0m", 4);
    (void)r;
}

static void to_stdout(struct gen_output *x, const char *s, size_t n)
{
    if (n == 0 || x->status)
        return;
    if (x->hold && buf_append(&x->held, s, n)) {
        emit_oom(x);
        return;
    }
    if (!x->hold &&
        (x->j->p->a.confidence ? out_write_styled(s, n) : out_write(s, n))) {
        x->status = QWICK_ERR_RUNTIME;
        return;
    }
    x->wrote = true;
    x->last = s[n - 1];
}

/* ---- text ---- */

/* Queue a token for its colour. */
static int queue_token(struct gen_output *x, const struct qwick_token_event *ev)
{
    char *piece;
    size_t n;
    if (qwick_token_text(x->j->eng, ev->id, true, &piece, &n, NULL))
        return -1;
    int r = paint_token(&x->paint, piece, n, (double)ev->logprob / -M_LN2);
    free(piece);
    return r;
}

/* Write text of the model to stdout. */
static void text_to_stdout(struct gen_output *x, const char *s, size_t n)
{
    if (!x->j->p->a.confidence) {
        to_stdout(x, s, n);
        return;
    }
    x->event.len = 0;
    if (paint_text(&x->paint, s, n, &x->event)) {
        emit_oom(x);
        return;
    }
    to_stdout(x, x->event.data, x->event.len);
    x->last = s[n - 1]; /* not of the escape sequence */
}

/* End the thinking on stderr: reset the colour, and begin a new line for the
 * answer. */
static void end_thinking(struct gen_output *x)
{
    if (!x->thinking)
        return;
    if (x->dim)
        fd_write(STDERR_FILENO, "\033[0m", 4);
    fd_write(STDERR_FILENO, "\n\n", x->last_thinking == '\n' ? 1 : 2);
    x->thinking = false;
}

static void emit_thinking(struct gen_output *x, const char *s, size_t n)
{
    const struct args *a = &x->j->p->a;
    if (n == 0)
        return;
    if (x->j->think_fd && fd_write(x->j->think_fd, s, n)) {
        if (!x->status)
            msg_errno(a->think_file, "write error");
        x->status = QWICK_ERR_RUNTIME;
        return;
    }
    if (!x->text)
        return;
    if (a->show_thinking) {
        text_to_stdout(x, s, n);
        x->had_thinking = true;
    } else if (x->shows_thinking) {
        if (!x->thinking && x->dim)
            fd_write(STDERR_FILENO, "\033[2m", 4);
        x->thinking = true;
        x->last_thinking = s[n - 1];
        err_write_text(s, n);
    }
}

/* With -x, print the code block once, when it is closed; else print the text.
 */
static void emit_text(struct gen_output *x, const char *s, size_t n)
{
    const struct code_block *c = &x->block;
    bool extract = x->j->p->a.extract;
    if (extract ? x->printed || c->state != CODE_BLOCK_CLOSED : n == 0)
        return;
    end_thinking(x);
    if (extract) {
        to_stdout(x, c->content.data, c->content.len);
        x->printed = true;
        return;
    }
    if (x->had_thinking)
        to_stdout(x, "\n\n", x->last == '\n' ? 1 : 2);
    x->had_thinking = false;
    text_to_stdout(x, s, n);
}

/* Read more of the answer's text for its code block and its tool calls. */
static void read_text(struct gen_output *x, const char *s, size_t n)
{
    x->n_read += n;
    if ((x->j->p->a.extract && code_block_feed(&x->block, s, n)) ||
        (x->calls.tools && tool_calls_feed(&x->calls, s, n)))
        emit_oom(x);
}

/* ---- events of --jsonl ---- */

static void begin_event(struct json_writer *w, const char *name,
                        const size_t *sample)
{
    jw_object(w, NULL);
    jw_cstr(w, "event", name);
    if (sample)
        jw_uint(w, "sample", *sample);
}

/* Print the event of a token, or of the text that was held back because it
 * could have been a part of a call (ev NULL: without text there is none). Then
 * print the events of calls. The calls had n_text bytes and n_calls calls
 * before. */
static void emit_event(struct gen_output *x, const struct qwick_token_event *ev,
                       size_t n_text, size_t n_calls)
{
    const struct tool_calls *c = &x->calls;
    bool thinking = ev && ev->channel == QWICK_THINKING;
    const char *text = c->text.data ? c->text.data + n_text : "";
    size_t n = c->text.len - n_text; /* the text that is certain now */
    if (ev && !c->tools) {
        text = ev->text;
        n = thinking ? 0 : ev->n_text;
    }
    x->event.len = 0;
    struct json_writer w = json_writer(&x->event);
    if (ev || n) {
        begin_event(&w, ev ? "token" : "text", x->sample);
        if (ev)
            jw_int(&w, "id", ev->id);
        jw_string(&w, "text", text, n);
        if (thinking)
            jw_string(&w, "thinking", ev->text, ev->n_text);
        if (ev && ev->forced)
            jw_bool(&w, "forced", true);
        if (ev && x->j->p->a.logprobs)
            json_logprob(&w, x->j->eng, ev);
        jw_end_line(&w);
    }
    for (size_t i = n_calls; i < c->n; i++) {
        begin_event(&w, "tool_call", x->sample);
        jw_uint(&w, "index", i);
        tool_calls_write(&w, "tool_call", c, i);
        jw_end_line(&w);
    }
    if (jw_status(&w))
        emit_oom(x);
    to_stdout(x, x->event.data, x->event.len);
}

/* ---- tokens and the end ---- */

/* Whether the answer is over because its code block is closed. */
static bool block_ended(const struct gen_output *x)
{
    return x->may_end && x->block.state == CODE_BLOCK_CLOSED;
}

int emit_token(void *ctx, const struct qwick_token_event *ev)
{
    struct gen_output *x = ctx;
    const struct args *a = &x->j->p->a;
    size_t n_text = x->calls.text.len, n_calls = x->calls.n;
    bool is_text = ev->channel == QWICK_TEXT;
    progress_stop();
    if ((a->logprobs && json_logprobs(&x->items, x->j->eng, ev)) ||
        (a->confidence && (is_text || a->show_thinking) && !ev->form &&
         queue_token(x, ev)))
        emit_oom(x);
    if (is_text)
        read_text(x, ev->text, ev->n_text);
    else
        emit_thinking(x, ev->text, ev->n_text);
    if (a->jsonl)
        emit_event(x, ev, n_text, n_calls);
    else if (x->text && is_text)
        emit_text(x, ev->text, ev->n_text);
    return x->status != 0 || block_ended(x);
}

/* End the output. null: with a NUL byte instead of a newline. */
static int emit_end(struct gen_output *x, const struct qwick_result *r,
                    bool null)
{
    const struct args *a = &x->j->p->a;
    size_t n_text = x->calls.text.len, n_calls = x->calls.n;
    size_t n = r->n_text > x->n_read ? r->n_text - x->n_read : 0;
    const char *rest = n ? r->text + x->n_read : "";
    progress_stop();
    read_text(x, rest, n);
    if ((a->extract && code_block_end(&x->block, !answer_is_cut(r->finish))) ||
        (x->calls.tools && tool_calls_end(&x->calls)))
        emit_oom(x);
    if (a->jsonl && x->calls.tools)
        emit_event(x, NULL, n_text, n_calls);
    if (!x->text)
        return x->status;
    emit_text(x, rest, n);
    end_thinking(x);
    if (null)
        to_stdout(x, "", 1);
    else if (!a->no_newline && x->wrote && x->last != '\n')
        to_stdout(x, "\n", 1);
    return x->status;
}

int gen_output_end(struct gen_output *x, struct qwick_result *r)
{
    if (block_ended(x)) /* its end acts as a stop string */
        r->finish = QWICK_FINISH_STOP_STRING;
    int status = emit_end(x, r, x->j->p->a.null);
    if (!status &&
        constraint_verdict(x->j->constraint, constraint_is_text(x->j->kind), r,
                           &x->schema, &x->why_invalid))
        status = msg_fail(&x->why_invalid);
    return status;
}

int gen_output_fail(struct gen_output *x)
{
    /* the text of --prefill may have opened a code block */
    const struct qwick_result none = {.finish = QWICK_FINISH_INTERRUPTED};
    return emit_end(x, &none, false); /* there is no text to end */
}

void gen_output_release(struct gen_output *x)
{
    x->hold = false;
    if (x->held.len)
        to_stdout(x, x->held.data, x->held.len);
    buf_free(&x->held);
}
