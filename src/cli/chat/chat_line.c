#include "cli/chat/chat_line.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cli/chat/chat_complete.h"
#include "cli/chat/chat_draw.h"
#include "cli/chat/chat_edit.h"
#include "cli/io/out.h"
#include "cli/io/signals.h"
#include "cli/io/term.h"

struct chat_line {
    struct chat_edit edit;
    struct chat_draw draw;
    struct buf out; /* what is written next */
    const struct chat_command *rows;
    const char *prompt;
    bool moves;    /* the terminal can move its cursor */
    char in[4096]; /* [n_in] bytes that were read and are not used yet */
    size_t n_in;
};

/* For signal handlers. */
static struct termios saved;
static volatile sig_atomic_t is_changed, can_escape;

/* Turn marks of pastes on, or everything to what terminals do by default: no
 * marks, lines that wrap, no colour. */
static const char paste_on[] = "\033[?2004h", plain[] = "\033[?2004l",
                  restore[] = "\033[?2004l\033[?7h\033[0m";

void chat_line_restore(void)
{
    if (is_changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    if (can_escape) {
        ssize_t r = write(STDOUT_FILENO, restore, sizeof(restore) - 1);
        (void)r;
    }
}

/* ---- the terminal ---- */

static void line_put(const char *s)
{
    fd_write(STDOUT_FILENO, s, strlen(s));
}

/* Set the terminal up for editing: each byte comes at once, nothing is echoed.
 * The keys of signals, such as Ctrl-C, stay. */
static void terminal_enter(const struct chat_line *l)
{
    struct termios t = saved;
    if (!l->moves)
        return;
    t.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | ISTRIP | IXON);
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL | IEXTEN);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    is_changed = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &t);
    line_put(paste_on);
}

static void terminal_leave(void)
{
    if (!is_changed)
        return;
    line_put(plain);
    tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    is_changed = 0;
}

/* ---- drawing ---- */

/* Draw the line. whole: all its rows, with the cursor at the end. */
static void line_draw(struct chat_line *l, bool whole)
{
    const struct chat_edit *e = &l->edit;
    struct buf prompt = {0};
    struct chat_view v = {.text = e->text.data,
                          .n_text = e->text.len,
                          .cursor = whole ? e->text.len : e->cursor,
                          .rows = whole ? SIZE_MAX : term_rows(STDOUT_FILENO),
                          .columns = term_columns(STDOUT_FILENO)};
    int bad = e->searching && !whole
                  ? buf_printf(&prompt, "search \"%s\": ",
                               e->pattern.len ? e->pattern.data : "")
                  : buf_puts(&prompt, l->prompt);
    v.prompt = prompt.data;
    v.n_prompt = prompt.len;
    l->out.len = 0;
    l->out.failed = false;
    if (!l->moves)
        line_put(l->prompt);
    else if (!bad && !chat_draw(&l->draw, &v, &l->out))
        fd_write(STDOUT_FILENO, l->out.data, l->out.len);
    buf_free(&prompt);
}

/* Leave the drawing as it is and go to a new line, where the next drawing
 * begins. */
static void end_drawing(struct chat_line *l)
{
    if (l->moves) {
        line_draw(l, true);
        line_put("\r\n");
    }
    l->draw = (struct chat_draw){0};
}

/* ---- signals ---- */

/* Stop as the shell's job control asks. Meanwhile the terminal has the settings
 * that it had before the chat. */
static void line_suspend(struct chat_line *l)
{
    end_drawing(l);
    terminal_leave();
    signals_watch(false);
    raise(SIGTSTP);
    signals_watch(true);
    if (!*signals_flag()) /* a job that is killed may be in the background */
        terminal_enter(l);
}

static void on_signal(struct chat_line *l, int sig)
{
    if (sig == SIGTSTP)
        line_suspend(l);
    if (sig == SIGCONT) { /* after a SIGSTOP, which no program can catch */
        terminal_enter(l);
        l->draw = (struct chat_draw){0};
    }
    if (!*signals_flag() && (l->moves || sig != SIGWINCH))
        line_draw(l, false);
}

/* ---- keys ---- */

static void line_complete(struct chat_line *l)
{
    struct chat_edit *e = &l->edit;
    struct buf insert = {0}, list = {0};
    bool at_end = e->cursor == e->text.len;
    if (at_end &&
        !chat_complete(l->rows, e->text.data, e->text.len, &insert, &list)) {
        if (insert.len)
            chat_edit_insert(e, insert.data, insert.len);
        if (list.len) {
            end_drawing(l);
            fd_write(STDOUT_FILENO, list.data, list.len);
        }
    }
    if (!insert.len && !list.len)
        line_put("\a");
    buf_free(&insert);
    buf_free(&list);
}

static void on_event(struct chat_line *l, enum chat_edit_event event)
{
    if (event == CHAT_EDIT_BELL)
        line_put("\a");
    if (event == CHAT_EDIT_COMPLETE)
        line_complete(l);
    if (event == CHAT_EDIT_CLEAR) {
        line_put("\033[H\033[2J");
        l->draw.row = 0;
    }
    if (event == CHAT_EDIT_TOO_LONG) {
        end_drawing(l);
        msg_error("the paste has %zu bytes, at most %d fit a line; /read takes "
                  "a file",
                  l->edit.paste_length, CHAT_EDIT_MAX);
    }
}

/* On a terminal that cannot move its cursor, the system edits lines. Returns
 * the number of bytes that were used. */
static size_t feed_plain(struct chat_line *l, enum chat_edit_event *event)
{
    const char *newline = memchr(l->in, '\n', l->n_in);
    size_t n = newline ? (size_t)(newline - l->in) : l->n_in;
    *event = newline ? CHAT_EDIT_ENTER : CHAT_EDIT_NOTHING;
    chat_edit_insert(&l->edit, l->in, n);
    return n + (newline != NULL);
}

/* Use the bytes that were read, up to the end of the line. Returns true if it
 * is complete, or ends the chat. */
static bool use_input(struct chat_line *l, enum chat_edit_event *event)
{
    size_t at = 0, n;
    bool done = false;
    while (at < l->n_in && !done) {
        n = l->moves ? chat_edit_feed(&l->edit, l->in + at, l->n_in - at, event)
                     : feed_plain(l, event);
        if (!n)
            break;
        at += n;
        done = *event == CHAT_EDIT_ENTER || *event == CHAT_EDIT_END;
        on_event(l, *event);
    }
    l->n_in -= at;
    memmove(l->in, l->in + at, l->n_in);
    if (at && !done && l->moves && !l->edit.pasting)
        line_draw(l, false);
    return done;
}

/* Wait for input, and read what is there. Returns false if there will be none,
 * or a signal asks to stop. */
static bool read_input(struct chat_line *l)
{
    int sig, r = signals_poll(STDIN_FILENO, POLLIN, -1);
    if (*signals_flag())
        return false;
    while ((sig = signals_watched()) != 0)
        on_signal(l, sig);
    if (r < 0)
        return true;
    ssize_t k = read(STDIN_FILENO, l->in + l->n_in, sizeof(l->in) - l->n_in);
    if (k > 0)
        l->n_in += (size_t)k;
    /* a hangup reads as an error */
    return k > 0 || (k < 0 && (errno == EINTR || errno == EAGAIN));
}

/* ---- from outside ---- */

int chat_line_open(struct chat_line **out, const struct chat_command *rows,
                   struct qwick_err *e)
{
    struct chat_line *l = calloc(1, sizeof(*l));
    *out = NULL;
    if (!l)
        return err_oom(e, sizeof(*l));
    /* The widths of characters are the locale's. Ours are UTF-8 in any locale.
     */
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        setlocale(LC_CTYPE, "");
    l->rows = rows;
    l->moves = term_moves();
    can_escape = l->moves;
    if (tcgetattr(STDIN_FILENO, &saved)) {
        free(l);
        return err_set(e, QWICK_ERR_RUNTIME, "terminal: %s", strerror(errno));
    }
    *out = l;
    return 0;
}

void chat_line_close(struct chat_line *l)
{
    if (!l)
        return;
    can_escape = 0;
    chat_edit_free(&l->edit);
    buf_free(&l->out);
    free(l);
}

/* Why a line ended without Enter. */
static enum chat_line_status why_ended(struct chat_line *l)
{
    int sig = *signals_flag();
    if (sig)
        l->n_in = 0;
    return !sig               ? CHAT_LINE_END
           : sig != SIGINT    ? CHAT_LINE_STOPPED
           : l->edit.text.len ? CHAT_LINE_INTERRUPTED
                              : CHAT_LINE_INTERRUPTED_EMPTY;
}

enum chat_line_status chat_line_read(struct chat_line *l, const char *prompt,
                                     struct buf *out)
{
    const struct chat_edit *e = &l->edit;
    enum chat_edit_event event = CHAT_EDIT_NOTHING;
    bool done = false;
    l->prompt = prompt;
    l->draw = (struct chat_draw){0};
    chat_edit_begin(&l->edit);
    signals_watch(true);
    line_draw(l, false);
    terminal_enter(l);
    while (!(done = use_input(l, &event)) && read_input(l))
        ;
    signals_watch(false);
    bool entered = done && event == CHAT_EDIT_ENTER;
    if (entered)
        end_drawing(l);
    else if (is_changed)
        line_draw(l, true);
    terminal_leave();
    if (!entered)
        return why_ended(l);
    out->len = 0;
    return buf_append(out, buf_text(&e->text), e->text.len) ? CHAT_LINE_FAILED
                                                            : CHAT_LINE_GOT;
}

void chat_line_remember(void *ctx, const char *text, size_t n)
{
    struct chat_line *l = ctx;
    chat_edit_remember(&l->edit, text, n);
}
