#include "cli/chat/chat_edit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "cli/chat/chat_draw.h"

struct chat_edit_entry {
    char *text;
    size_t n;
};

enum { ESC = 27, KEY_BYTES = 64 };

static const char paste_end[] = "\033[201~";
enum { N_PASTE_END = sizeof(paste_end) - 1 };

static void edit_bell(struct chat_edit *e)
{
    e->event = CHAT_EDIT_BELL;
}

/* ---- changes of the text ---- */

/* Replace n_old bytes from byte `at` on by s[0..n), and put the cursor behind
 * them. Returns false, with the text unchanged, if the new one is too long. */
static bool edit_replace(struct chat_edit *e, size_t at, size_t n_old,
                         const char *s, size_t n)
{
    struct buf *b = &e->text;
    size_t rest = b->len - at - n_old;
    if (n > CHAT_EDIT_MAX - (b->len - n_old) || buf_reserve(b, n + 1)) {
        edit_bell(e);
        return false;
    }
    memmove(b->data + at + n, b->data + at + n_old, rest);
    if (n)
        memcpy(b->data + at, s, n);
    b->len = at + n + rest;
    b->data[b->len] = 0;
    e->cursor = at + n;
    e->browsing = false;
    return true;
}

static bool set_text(struct chat_edit *e, const char *s, size_t n)
{
    return edit_replace(e, 0, e->text.len, s, n);
}

bool chat_edit_insert(struct chat_edit *e, const char *s, size_t n)
{
    struct buf clean = {0};
    size_t k = 0;
    bool good = !utf8_sanitize(&clean, s, n);
    for (size_t i = 0; good && i < clean.len; i++)
        if (clean.data[i])
            clean.data[k++] = clean.data[i];
    good = good && edit_replace(e, e->cursor, 0, clean.data, k);
    if (!good)
        edit_bell(e);
    buf_free(&clean);
    return good;
}

/* Erase the text between two places. keep: Ctrl-Y inserts it again. */
static void edit_erase(struct chat_edit *e, size_t a, size_t b, bool keep)
{
    size_t from = a < b ? a : b, n = a < b ? b - a : a - b;
    if (keep)
        e->killed.len = 0;
    if (!n || (keep && buf_append(&e->killed, e->text.data + from, n)))
        edit_bell(e);
    else
        edit_replace(e, from, n, NULL, 0);
}

/* ---- places in the text ---- */

/* Decode the character at a byte; 0 at the end. */
static size_t char_at(const struct chat_edit *e, size_t at, uint32_t *cp)
{
    *cp = 0;
    return at < e->text.len
               ? utf8_decode(e->text.data + at, e->text.len - at, cp, NULL)
               : 0;
}

/* Whether the character b is drawn in the cell of a, which is before it. */
static bool joins(uint32_t a, uint32_t b)
{
    enum { ZERO_WIDTH_JOINER = 0x200d };
    return a != '\n' && b != 0 &&
           (a == ZERO_WIDTH_JOINER || chat_columns(b) == 0);
}

static size_t char_next(const struct chat_edit *e, size_t at)
{
    uint32_t a, b;
    size_t n = char_at(e, at, &a);
    while (n) {
        at += n;
        n = char_at(e, at, &b);
        if (!joins(a, b))
            break;
        a = b;
    }
    return at;
}

static size_t char_previous(const struct chat_edit *e, size_t at)
{
    uint32_t a, b = 0;
    while (at > 0) {
        size_t before = at - 1;
        while (before && ((unsigned char)e->text.data[before] & 0xc0) == 0x80)
            before--;
        char_at(e, before, &a);
        if (b && !joins(a, b))
            break;
        at = before;
        b = a;
    }
    return at;
}

static size_t line_begin(const struct chat_edit *e, size_t at)
{
    while (at > 0 && e->text.data[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const struct chat_edit *e, size_t at)
{
    while (at < e->text.len && e->text.data[at] != '\n')
        at++;
    return at;
}

static bool in_argument(char c)
{
    return c != ' ' && c != '\t' && c != '\n';
}

/* Whether a byte is a part of a word: a letter, a digit, or not ASCII. */
static bool in_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static size_t begin_of(const struct chat_edit *e, size_t at, bool (*in)(char c))
{
    while (at > 0 && !in(e->text.data[at - 1]))
        at--;
    while (at > 0 && in(e->text.data[at - 1]))
        at--;
    return at;
}

static size_t argument_begin(const struct chat_edit *e, size_t at)
{
    return begin_of(e, at, in_argument);
}

static size_t word_begin(const struct chat_edit *e, size_t at)
{
    return begin_of(e, at, in_word);
}

static size_t word_end(const struct chat_edit *e, size_t at)
{
    while (at < e->text.len && !in_word(e->text.data[at]))
        at++;
    while (at < e->text.len && in_word(e->text.data[at]))
        at++;
    return at;
}

static size_t text_begin(const struct chat_edit *e, size_t at)
{
    (void)e, (void)at;
    return 0;
}

static size_t text_end(const struct chat_edit *e, size_t at)
{
    (void)at;
    return e->text.len;
}

/* At the end of a line, the end of its newline. */
static size_t line_rest(const struct chat_edit *e, size_t at)
{
    size_t end = line_end(e, at);
    return end > at ? end : char_next(e, end);
}

/* ---- the history ---- */

/* Replace *to by the text. Returns false without memory. */
static bool copy_text(struct chat_edit *e, struct buf *to)
{
    to->len = 0;
    bool good = !buf_append(to, e->text.data, e->text.len);
    if (!good)
        edit_bell(e);
    return good;
}

static void history_show(struct chat_edit *e, size_t i)
{
    const struct buf *old = &e->typed;
    bool typed = i == e->n_history;
    if (e->shown == e->n_history && !typed && !copy_text(e, &e->typed))
        return;
    if (typed ? set_text(e, old->data, old->len)
              : set_text(e, e->history[i].text, e->history[i].n)) {
        e->shown = i;
        e->browsing = !typed;
    }
}

void chat_edit_remember(struct chat_edit *e, const char *s, size_t n)
{
    const struct chat_edit_entry *last =
        e->n_history ? &e->history[e->n_history - 1] : NULL;
    if (!n || (last && last->n == n && memcmp(last->text, s, n) == 0) ||
        ARRAY_RESERVE(e->history, e->cap_history, e->n_history + 1, NULL))
        return;
    char *text = malloc(n);
    if (!text)
        return;
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i])
            text[k++] = s[i];
    if (e->n_history == CHAT_EDIT_HISTORY) {
        free(e->history[0].text);
        memmove(e->history, e->history + 1,
                (--e->n_history) * sizeof(*e->history));
    }
    e->history[e->n_history++] = (struct chat_edit_entry){text, k};
    e->shown = e->n_history;
}

/* Show the next entry from i on, in steps of 1 or -1, that has the pattern. */
static void history_search(struct chat_edit *e, size_t i, size_t step)
{
    const struct buf *p = &e->pattern;
    for (; i < e->n_history; i += step) {
        const struct chat_edit_entry *h = &e->history[i];
        const char *at = memmem(h->text, h->n, buf_text(p), p->len);
        if (!at || !p->len)
            continue;
        history_show(e, i);
        e->cursor = (size_t)(at - h->text);
        return;
    }
    edit_bell(e);
}

static void history_search_begin(struct chat_edit *e)
{
    e->pattern.len = 0;
    if (!copy_text(e, &e->origin))
        return;
    e->origin_shown = e->shown;
    e->origin_cursor = e->cursor;
    e->searching = true;
}

static void history_search_cancel(struct chat_edit *e)
{
    if (set_text(e, e->origin.data, e->origin.len)) {
        e->shown = e->origin_shown;
        e->cursor = e->origin_cursor;
    }
    e->searching = false;
}

/* A key of a search. Returns false if it ends the search and is an ordinary
 * key. */
static bool search_key(struct chat_edit *e, const char *key, size_t n)
{
    enum { AGAIN = 'R' & 31, FORWARD = 'S' & 31, CANCEL = 'G' & 31 };
    bool found = e->shown < e->n_history;
    struct buf *p = &e->pattern;
    if (*key == AGAIN) {
        history_search(e, (found ? e->shown : e->n_history) - 1, SIZE_MAX);
    } else if (*key == FORWARD) {
        history_search(e, e->shown + 1, 1);
    } else if (*key == CANCEL) {
        history_search_cancel(e);
    } else if (*key == '\b' || *key == 127) {
        while (p->len && ((unsigned char)p->data[--p->len] & 0xc0) == 0x80)
            ;
        history_search(e, e->n_history - 1, SIZE_MAX);
    } else if ((unsigned char)*key >= 32) {
        if (utf8_sanitize(p, key, n))
            edit_bell(e);
        history_search(e, found ? e->shown : e->n_history - 1, SIZE_MAX);
    } else {
        e->searching = false;
        return false;
    }
    return true;
}

/* ---- functions of keys ---- */

/* Put the cursor into the line that begins at `begin`, in its old column. */
static void go_to_line(struct chat_edit *e, size_t begin)
{
    size_t end = line_end(e, begin), at = line_begin(e, e->cursor);
    size_t old = e->cursor;
    for (e->cursor = begin; at < old && e->cursor < end; at = char_next(e, at))
        e->cursor = char_next(e, e->cursor);
}

/* In a text of several lines that the user has written or changed, the arrows
 * move the cursor; elsewhere they show the history. */
static void key_up(struct chat_edit *e)
{
    size_t begin = line_begin(e, e->cursor);
    if (begin && !e->browsing)
        go_to_line(e, line_begin(e, begin - 1));
    else if (e->shown)
        history_show(e, e->shown - 1);
    else
        edit_bell(e);
}

static void key_down(struct chat_edit *e)
{
    size_t end = line_end(e, e->cursor);
    if (end < e->text.len && !e->browsing)
        go_to_line(e, end + 1);
    else if (e->shown < e->n_history)
        history_show(e, e->shown + 1);
    else
        edit_bell(e);
}

static void key_delete_or_end(struct chat_edit *e)
{
    if (e->text.len)
        edit_erase(e, e->cursor, char_next(e, e->cursor), false);
    else
        e->event = CHAT_EDIT_END;
}

static void key_yank(struct chat_edit *e)
{
    if (e->killed.len)
        edit_replace(e, e->cursor, 0, e->killed.data, e->killed.len);
    else
        edit_bell(e);
}

/* Swap the characters before and after the cursor; at the end of the text, the
 * last two. */
static void key_swap(struct chat_edit *e)
{
    size_t end = char_next(e, e->cursor), middle = char_previous(e, end);
    size_t begin = char_previous(e, middle);
    struct buf b = {0};
    const char *s = e->text.data;
    if (begin == middle || buf_append(&b, s + middle, end - middle) ||
        buf_append(&b, s + begin, middle - begin))
        edit_bell(e);
    else
        edit_replace(e, begin, end - begin, b.data, b.len);
    buf_free(&b);
}

static void key_newline(struct chat_edit *e)
{
    edit_replace(e, e->cursor, 0, "\n", 1);
}

static void key_quote(struct chat_edit *e)
{
    e->quoted = true;
}

static void key_paste(struct chat_edit *e)
{
    e->pasting = true;
    e->pasted.len = e->paste_length = e->n_mark = 0;
    e->last_pasted = 0;
}

/* ---- keys ---- */

/* A row says what its keys do: to the text between the cursor and a place, or
 * by a function. */
struct edit_key {
    const char *keys[5]; /* as terminals send them */
    size_t (*move)(const struct chat_edit *e, size_t at); /* the cursor there */
    size_t (*erase)(const struct chat_edit *e, size_t at); /* up to there */
    size_t (*kill)(const struct chat_edit *e, size_t at);  /* for Ctrl-Y, too */
    void (*call)(struct chat_edit *e);
    enum chat_edit_event event; /* for the caller */
};

static const struct edit_key edit_keys[] = {
    {{"\001", "\033[H", "\033OH", "\033[1~", "\033[7~"}, .move = line_begin},
    {{"\005", "\033[F", "\033OF", "\033[4~", "\033[8~"}, .move = line_end},
    {{"\033<"}, .move = text_begin},
    {{"\033>"}, .move = text_end},
    {{"\002", "\033[D", "\033OD"}, .move = char_previous},
    {{"\006", "\033[C", "\033OC"}, .move = char_next},
    {{"\033b", "\033[1;5D", "\033[1;3D"}, .move = word_begin},
    {{"\033f", "\033[1;5C", "\033[1;3C"}, .move = word_end},
    {{"\020", "\033[A", "\033OA"}, .call = key_up},
    {{"\016", "\033[B", "\033OB"}, .call = key_down},
    {{"\010", "\177"}, .erase = char_previous},
    {{"\033[3~"}, .erase = char_next},
    {{"\004"}, .call = key_delete_or_end},
    {{"\013"}, .kill = line_rest},
    {{"\025"}, .kill = line_begin},
    {{"\027"}, .kill = argument_begin},
    {{"\033\177", "\033\010"}, .kill = word_begin},
    {{"\033d"}, .kill = word_end},
    {{"\031"}, .call = key_yank},
    {{"\024"}, .call = key_swap},
    {{"\026"}, .call = key_quote},
    {{"\022"}, .call = history_search_begin},
    {{"\r", "\n"}, .move = text_end, .event = CHAT_EDIT_ENTER},
    /* Alt-Enter, and Alt or Shift with Enter where terminals tell them apart */
    {{"\033\r", "\033\n"}, .call = key_newline},
    {{"\033[13;3u", "\033[27;3;13~", "\033[13;2u", "\033[27;2;13~"},
     .call = key_newline},
    {{"\t"}, .event = CHAT_EDIT_COMPLETE},
    {{"\014"}, .event = CHAT_EDIT_CLEAR},
    {{"\033[200~"}, .call = key_paste},
};

/* The row of a key; NULL: it has none. */
static const struct edit_key *edit_key_find(const char *key, size_t n)
{
    for (size_t i = 0; i < sizeof(edit_keys) / sizeof(*edit_keys); i++) {
        const char *const *k = edit_keys[i].keys;
        for (size_t m = 0; m < 5 && k[m]; m++)
            if (strlen(k[m]) == n && memcmp(k[m], key, n) == 0)
                return &edit_keys[i];
    }
    return NULL;
}

static void edit_key_do(struct chat_edit *e, const struct edit_key *k)
{
    size_t at = e->cursor;
    e->event = k->event;
    if (k->move)
        e->cursor = k->move(e, at);
    if (k->erase)
        edit_erase(e, at, k->erase(e, at), false);
    if (k->kill)
        edit_erase(e, at, k->kill(e, at), true);
    if (k->call)
        k->call(e);
}

/* The length of the character at in[0..n); 0: it is not complete. */
static size_t char_length(const char *in, size_t n)
{
    size_t bad = 0;
    if (!n || !utf8_complete(in, n))
        return 0;
    size_t k = utf8_decode(in, n, NULL, &bad);
    return k ? k : bad;
}

/* The length of the key at in[0..n), n > 0; 0: it is not complete. Terminals
 * send ESC before the character of a key with Alt, and sequences of ECMA-48 for
 * keys without a character. */
static size_t key_length(const char *in, size_t n)
{
    if (*in != ESC)
        return char_length(in, n);
    if (n < 2 || in[1] == ESC)
        return n < 2 ? 0 : 1;
    if (in[1] == 'O')
        return n < 3 ? 0 : (unsigned char)in[2] < 32 ? 2 : 3;
    if (in[1] != '[') {
        size_t k = char_length(in + 1, n - 1);
        return k ? 1 + k : 0;
    }
    size_t k = 2;
    if (n > k && in[k] == '[') /* F1 to F5 of the Linux console */
        k++;
    while (k < n && k < KEY_BYTES && in[k] >= 0x20 && in[k] <= 0x3f)
        k++;
    if (k == n)
        return 0;
    return in[k] >= 0x40 && in[k] <= 0x7e ? k + 1 : k;
}

/* ---- pastes ---- */

/* Insert the paste. Newlines at its end are left out: Enter sends the message,
 * the paste does not. */
static void end_paste(struct chat_edit *e)
{
    struct buf *b = &e->pasted;
    e->pasting = false;
    e->paste_length -= N_PASTE_END;
    if (e->paste_length <= CHAT_EDIT_MAX) {
        b->len -= N_PASTE_END;
        while (b->len && b->data[b->len - 1] == '\n')
            b->len--;
        if (!b->len || chat_edit_insert(e, b->data, b->len))
            return;
    }
    e->event = CHAT_EDIT_TOO_LONG;
}

/* Take bytes of a paste up to its mark, with CR and CR LF as newlines. Returns
 * their number. */
static size_t take_paste(struct chat_edit *e, const char *in, size_t n)
{
    size_t i = 0;
    while (i < n && e->pasting) {
        char c = in[i++], last = e->last_pasted;
        bool pair = (c == '\n' && last == '\r') || (c == '\r' && last == '\n');
        e->n_mark = c == paste_end[e->n_mark] ? e->n_mark + 1 : c == ESC;
        e->last_pasted = pair ? 0 : c;
        e->paste_length += !pair;
        if (!pair && e->pasted.len < CHAT_EDIT_MAX + N_PASTE_END &&
            buf_putc(&e->pasted, c == '\r' ? '\n' : c))
            e->paste_length = CHAT_EDIT_MAX + N_PASTE_END; /* no memory */
        if (e->n_mark == N_PASTE_END)
            end_paste(e);
    }
    return i;
}

/* ---- from outside ---- */

/* Do what a key says. Returns the number of bytes that were used: of a quoted
 * key only the first character is. */
static size_t do_key(struct chat_edit *e, const char *key, size_t n)
{
    const struct edit_key *k = edit_key_find(key, n);
    if (e->quoted && (!k || k->call != key_paste)) {
        e->quoted = false;
        n = *key == ESC ? 1 : n;
        chat_edit_insert(e, *key == '\r' ? "\n" : key, n);
        return n;
    }
    e->quoted = false;
    if (e->searching && search_key(e, key, n))
        return n;
    if (k)
        edit_key_do(e, k);
    else if ((unsigned char)*key >= 32)
        chat_edit_insert(e, key, n);
    else
        edit_bell(e);
    return n;
}

size_t chat_edit_feed(struct chat_edit *e, const char *in, size_t n,
                      enum chat_edit_event *event)
{
    e->event = CHAT_EDIT_NOTHING;
    if (e->pasting) {
        n = take_paste(e, in, n);
    } else {
        n = key_length(in, n);
        n = n ? do_key(e, in, n) : 0;
    }
    *event = e->event;
    return n;
}

void chat_edit_begin(struct chat_edit *e)
{
    e->text.len = e->cursor = 0;
    e->shown = e->n_history;
    e->searching = e->quoted = e->pasting = e->browsing = false;
}

void chat_edit_free(struct chat_edit *e)
{
    for (size_t i = 0; i < e->n_history; i++)
        free(e->history[i].text);
    free(e->history);
    buf_free(&e->text);
    buf_free(&e->pattern);
    buf_free(&e->pasted);
    buf_free(&e->killed);
    buf_free(&e->typed);
    buf_free(&e->origin);
    *e = (struct chat_edit){0};
}
