#include "cli/chat_line.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/utf8.h"
#include "cli/out.h"
#include "cli/signals.h"

/* Maximum characters of a paste. The editor draws all of the line for each key,
 * so longer texts are slow; they belong in a file. */
enum { PASTE_MAX = 65536, HISTORY_LINES = 2000 };

struct chat_line {
    EditLine *el;
    HistoryW *history;
    const char *const *words;
    const char *prompt;
    bool brackets; /* the terminal can bracket pastes */
    bool editing;  /* the terminal is set up for the line */
    char in[4096]; /* [n_in] bytes that were read and are not used yet */
    size_t n_in;
    bool ended;                 /* standard input has ended */
    enum chat_line_status stop; /* why a line ended without a newline */
};

/* For signal handlers. */
static struct termios saved;
static volatile sig_atomic_t is_saved, has_brackets;

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";

void chat_line_restore(void)
{
    static const char plain[] = "\033[0m";
    if (!is_saved)
        return;
    tcsetattr(STDIN_FILENO, TCSANOW, &saved);
    if (has_brackets) {
        ssize_t r = write(STDOUT_FILENO, paste_off, sizeof(paste_off) - 1);
        r += write(STDOUT_FILENO, plain, sizeof(plain) - 1);
        (void)r;
    }
}

/* ---- the terminal ---- */

static void put(struct chat_line *l, const char *s)
{
    if (l->brackets)
        fd_write(STDOUT_FILENO, s, strlen(s));
}

/* Set the terminal up for editing, or back. */
static void enter(struct chat_line *l)
{
    el_set(l->el, EL_PREP_TERM, 1);
    put(l, paste_on);
}

static void leave(struct chat_line *l)
{
    put(l, paste_off);
    el_set(l->el, EL_PREP_TERM, 0);
}

/* Stop as the shell's job control asks. Meanwhile the terminal has the settings
 * that it had before the chat. Afterwards draw the line again. */
static void suspend(struct chat_line *l)
{
    leave(l);
    signals_watch(false);
    raise(SIGTSTP);
    signals_watch(true);
    enter(l);
    el_set(l->el, EL_REFRESH);
}

static void on_signal(struct chat_line *l, int sig)
{
    if (sig == SIGTSTP)
        suspend(l);
    if (sig == SIGWINCH)
        el_resize(l->el);
    if (sig == SIGCONT) { /* after a SIGSTOP, which no program can catch */
        leave(l);
        enter(l);
        el_set(l->el, EL_REFRESH);
    }
}

/* ---- reading ---- */

/* Take a character from the bytes that were read. A byte that is not UTF-8
 * becomes U+FFFD. Returns false if the bytes do not have a whole one. */
static bool take(struct chat_line *l, wchar_t *out)
{
    uint32_t cp;
    size_t bad, n;
    if (!l->n_in || (!l->ended && utf8_complete(l->in, l->n_in) == 0))
        return false;
    n = utf8_decode(l->in, l->n_in, &cp, &bad);
    *out = n ? (wchar_t)cp : 0xfffd;
    n = n ? n : bad;
    l->n_in -= n;
    memmove(l->in, l->in + n, l->n_in);
    return true;
}

/* End the line because of a signal. */
static int stop(struct chat_line *l)
{
    const LineInfoW *line = el_wline(l->el);
    l->stop = *signals_flag() != SIGINT       ? CHAT_LINE_STOPPED
              : line->lastchar > line->buffer ? CHAT_LINE_INTERRUPTED
                                              : CHAT_LINE_INTERRUPTED_EMPTY;
    l->n_in = 0;
    errno = EINTR;
    return -1;
}

/* libedit's function for the next character: 1, 0 at the end, or -1. */
static int read_char(EditLine *el, wchar_t *out)
{
    struct chat_line *l;
    el_wget(el, EL_CLIENTDATA, &l);
    if (!l->editing)
        put(l, paste_on);
    l->editing = true;
    while (!take(l, out)) {
        int sig;
        if (l->ended)
            return 0;
        int r = signals_poll(STDIN_FILENO, POLLIN, -1);
        if (*signals_flag())
            return stop(l);
        while ((sig = signals_watched()) != 0)
            on_signal(l, sig);
        if (r < 0)
            continue;
        ssize_t k =
            read(STDIN_FILENO, l->in + l->n_in, sizeof(l->in) - l->n_in);
        if (k > 0)
            l->n_in += (size_t)k;
        else if (k == 0 || (errno != EINTR && errno != EAGAIN))
            l->ended = true; /* a hangup reads as an error */
    }
    return 1;
}

/* ---- functions for keys ---- */

/* Read a paste up to its end mark, and change its line ends to newlines. NULL:
 * it was not read to its end. *n counts all its characters; those beyond
 * PASTE_MAX are not kept. */
static wchar_t *read_paste(EditLine *el, size_t *n)
{
    static const wchar_t end[] = L"\033[201~";
    const size_t n_end = sizeof(end) / sizeof(*end) - 1;
    wchar_t *text = malloc((PASTE_MAX + 8) * sizeof(*text)), c, last = 0;
    size_t at_end = 0;
    *n = 0;
    while (at_end < n_end) {
        if (!text || el_wgetc(el, &c) != 1) {
            free(text);
            return NULL;
        }
        at_end = c == end[at_end] ? at_end + 1 : c == end[0];
        bool pair = (c == '\n' && last == '\r') || (c == '\r' && last == '\n');
        last = pair ? 0 : c;
        if (c == 0 || pair)
            continue;
        if (*n < PASTE_MAX + n_end)
            text[*n] = c == '\r' ? '\n' : c;
        ++*n;
    }
    *n -= n_end;
    while (*n && *n <= PASTE_MAX && text[*n - 1] == '\n')
        --*n; /* Enter sends the message, the paste does not */
    text[*n <= PASTE_MAX ? *n : 0] = 0;
    return text;
}

static unsigned char paste(EditLine *el, int ch)
{
    size_t n;
    wchar_t *text = read_paste(el, &n);
    (void)ch;
    if (!text)
        return CC_ERROR;
    if (n > PASTE_MAX) {
        fd_write(STDOUT_FILENO, "\r\n", 2);
        msg_error("the paste has %zu characters, at most %d fit a line; /read "
                  "takes a file",
                  n, PASTE_MAX);
    }
    int bad = n && *text ? el_winsertstr(el, text) : 0;
    free(text);
    return bad ? CC_ERROR : n > PASTE_MAX ? CC_REDISPLAY : CC_REFRESH;
}

/* The beginning that all words with this beginning share. Returns the number of
 * these words. */
static size_t common_word(const char *const *words, const char *begin,
                          char *out, size_t size)
{
    size_t n = strlen(begin), found = 0;
    for (; *words; words++) {
        if (strncmp(*words, begin, n) != 0)
            continue;
        if (!found++) {
            snprintf(out, size, "%s", *words);
            continue;
        }
        size_t k = 0;
        while (out[k] && out[k] == (*words)[k])
            k++;
        out[k] = 0;
    }
    return found;
}

static unsigned char complete(EditLine *el, int ch)
{
    struct chat_line *l;
    const LineInfo *line = el_line(el);
    size_t n = (size_t)(line->cursor - line->buffer);
    char begin[40], word[40];
    el_wget(el, EL_CLIENTDATA, &l);
    if (!n || line->buffer[0] != '/' || line->cursor != line->lastchar)
        return CC_ERROR;
    if (memchr(line->buffer, ' ', n))
        return _el_fn_complete(el, ch);
    if (n >= sizeof(begin))
        return CC_ERROR;
    memcpy(begin, line->buffer + 1, n - 1);
    begin[n - 1] = 0;
    size_t found = common_word(l->words, begin, word, sizeof(word));
    if (!found || (found > 1 && strlen(word) == n - 1))
        return CC_ERROR;
    if (el_insertstr(el, word + n - 1) || (found == 1 && el_insertstr(el, " ")))
        return CC_ERROR;
    return CC_REFRESH;
}

/* ---- setting up ---- */

static char *show_prompt(EditLine *el)
{
    struct chat_line *l;
    el_wget(el, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt;
}

/* Keys that people know from other programs and that libedit leaves without a
 * function. */
static void bind_keys(struct chat_line *l)
{
    static const char *const keys[][2] = {
        {"^I", "qwick-complete"},      {"^R", "em-inc-search-prev"},
        {"^W", "ed-delete-prev-word"}, {"\\e[3~", "ed-delete-next-char"},
        {"\\e[1~", "ed-move-to-beg"},  {"\\e[4~", "ed-move-to-end"},
        {"\\e[1;5C", "em-next-word"},  {"\\e[1;5D", "ed-prev-word"},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        el_set(l->el, EL_BIND, keys[i][0], keys[i][1], NULL);
}

static void set_up(struct chat_line *l)
{
    const char *term = getenv("TERM"), *editor = NULL;
    HistEventW event;
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, show_prompt);
    el_set(l->el, EL_GETCFN, read_char);
    el_set(l->el, EL_EDITOR, "emacs");
    /* with el_set, libedit would copy the strings and lose the copies */
    el_wset(l->el, EL_ADDFN, L"qwick-paste", L"insert a paste", paste);
    el_wset(l->el, EL_ADDFN, L"qwick-complete", L"complete a command",
            complete);
    history_w(l->history, &event, H_SETSIZE, HISTORY_LINES);
    history_w(l->history, &event, H_SETUNIQUE, 1);
    el_wset(l->el, EL_HIST, history_w, l->history);
    bind_keys(l);
    el_source(l->el, NULL); /* the user's own keys: ~/.editrc */
    el_get(l->el, EL_EDITOR, &editor);
    /* in vi's mode Escape is a key of its own */
    l->brackets = term && *term && strcmp(term, "dumb") != 0 && editor &&
                  strcmp(editor, "emacs") == 0;
    if (l->brackets)
        el_set(l->el, EL_BIND, "\\e[200~", "qwick-paste", NULL);
}

int chat_line_open(struct chat_line **out, const char *const *words,
                   struct qwick_err *e)
{
    struct chat_line *l = calloc(1, sizeof(*l));
    *out = NULL;
    if (!l)
        return err_oom(e, sizeof(*l));
    /* libedit draws characters by the locale. Ours are UTF-8 in any locale. */
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        setlocale(LC_CTYPE, "");
    is_saved = tcgetattr(STDIN_FILENO, &saved) == 0;
    l->words = words;
    l->prompt = "";
    l->history = history_winit();
    l->el = l->history ? el_init("qwick", stdin, stdout, stderr) : NULL;
    if (!l->el) {
        chat_line_close(l);
        return err_set(e, QWICK_ERR_RUNTIME,
                       "terminal: libedit cannot edit lines on it");
    }
    set_up(l);
    has_brackets = l->brackets;
    *out = l;
    return 0;
}

void chat_line_close(struct chat_line *l)
{
    if (!l)
        return;
    if (l->el)
        el_end(l->el);
    if (l->history)
        history_wend(l->history);
    free(l);
    is_saved = has_brackets = 0;
}

/* ---- lines ---- */

/* Append a line as UTF-8. */
static int to_utf8(struct buf *out, const wchar_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char bytes[4];
        uint32_t cp = (uint32_t)s[i];
        bool valid = cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff);
        if (buf_append(out, bytes, utf8_encode(valid ? cp : 0xfffd, bytes)))
            return -1;
    }
    return 0;
}

enum chat_line_status chat_line_read(struct chat_line *l, const char *prompt,
                                     struct buf *out)
{
    int n = 0;
    out->len = 0;
    l->prompt = prompt;
    l->stop = CHAT_LINE_END;
    signals_watch(true);
    const wchar_t *line = el_wgets(l->el, &n);
    put(l, paste_off);
    l->editing = false;
    signals_watch(false);
    if (!line || n <= 0 || l->stop != CHAT_LINE_END) {
        el_reset(l->el);
        return l->stop;
    }
    if (line[n - 1] == '\n')
        n--;
    return to_utf8(out, line, (size_t)n) || buf_append(out, "", 0)
               ? CHAT_LINE_FAILED
               : CHAT_LINE_GOT;
}

void chat_line_remember(void *ctx, const char *text, size_t n)
{
    struct chat_line *l = ctx;
    HistEventW event;
    wchar_t *wide = malloc((n + 1) * sizeof(*wide));
    size_t k = 0;
    if (!wide)
        return;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t bad, len = utf8_decode(text + i, n - i, &cp, &bad);
        wide[k++] = len ? (wchar_t)cp : 0xfffd;
        i += len ? len : bad;
    }
    wide[k] = 0;
    history_w(l->history, &event, H_ENTER, wide);
    free(wide);
}
