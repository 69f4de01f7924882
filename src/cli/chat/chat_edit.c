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

static void bell(struct chat_edit *e)
{
    e->event = CHAT_EDIT_BELL;
}

/* ---- changes of the text ---- */

/* Replace n_old bytes from byte `at` on by s[0..n), and put the cursor behind
 * them. Returns false, with the text unchanged, if the new one is too long. */
static bool replace(struct chat_edit *e, size_t at, size_t n_old, const char *s,
                    size_t n)
{
    struct buf *b = &e->text;
    size_t rest = b->len - at - n_old;
    if (n > CHAT_EDIT_MAX - (b->len - n_old) || buf_reserve(b, n + 1)) {
        bell(e);
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
    return replace(e, 0, e->text.len, s, n);
}

bool chat_edit_insert(struct chat_edit *e, const char *s, size_t n)
{
    struct buf clean = {0};
    size_t k = 0;
    bool good = !utf8_sanitize(&clean, s, n);
    for (size_t i = 0; good && i < clean.len; i++)
        if (clean.data[i])
            clean.data[k++] = clean.data[i];
    good = good && replace(e, e->cursor, 0, clean.data, k);
    if (!good)
        bell(e);
    buf_free(&clean);
    return good;
}

static void erase(struct chat_edit *e, size_t from, size_t to)
{
    if (from == to)
        bell(e);
    else
        replace(e, from, to - from, NULL, 0);
}

/* Erase, and keep the text for Ctrl-Y. */
static void kill_text(struct chat_edit *e, size_t from, size_t to)
{
    e->killed.len = 0;
    if (from == to || buf_append(&e->killed, e->text.data + from, to - from))
        bell(e);
    else
        erase(e, from, to);
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

static size_t next(const struct chat_edit *e, size_t at)
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

static size_t previous(const struct chat_edit *e, size_t at)
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

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* Whether a byte is a part of a word: a letter, a digit, or not ASCII. */
static bool in_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z') || (unsigned char)c >= 0x80;
}

static bool in_argument(char c)
{
    return !is_space(c);
}

static size_t word_begin(const struct chat_edit *e, bool (*in)(char c))
{
    size_t at = e->cursor;
    while (at > 0 && !in(e->text.data[at - 1]))
        at--;
    while (at > 0 && in(e->text.data[at - 1]))
        at--;
    return at;
}

static size_t word_end(const struct chat_edit *e)
{
    size_t at = e->cursor;
    while (at < e->text.len && !in_word(e->text.data[at]))
        at++;
    while (at < e->text.len && in_word(e->text.data[at]))
        at++;
    return at;
}

/* ---- the history ---- */

static void show_entry(struct chat_edit *e, size_t i)
{
    const struct buf *b = &e->text, *old = &e->typed;
    if (e->shown == e->n_history && i != e->shown) {
        e->typed.len = 0;
        if (buf_append(&e->typed, b->data ? b->data : "", b->len)) {
            bell(e);
            return;
        }
    }
    bool typed = i == e->n_history;
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
static void search(struct chat_edit *e, size_t i, size_t step)
{
    const struct buf *p = &e->pattern;
    for (; i < e->n_history; i += step) {
        const struct chat_edit_entry *h = &e->history[i];
        const char *at = memmem(h->text, h->n, p->data ? p->data : "", p->len);
        if (!at || !p->len)
            continue;
        show_entry(e, i);
        e->cursor = (size_t)(at - h->text);
        return;
    }
    bell(e);
}

static void begin_search(struct chat_edit *e)
{
    e->origin.len = e->pattern.len = 0;
    if (buf_append(&e->origin, e->text.data ? e->text.data : "", e->text.len)) {
        bell(e);
        return;
    }
    e->origin_shown = e->shown;
    e->origin_cursor = e->cursor;
    e->searching = true;
}

static void cancel_search(struct chat_edit *e)
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
        search(e, (found ? e->shown : e->n_history) - 1, SIZE_MAX);
    } else if (*key == FORWARD) {
        search(e, e->shown + 1, 1);
    } else if (*key == CANCEL) {
        cancel_search(e);
    } else if (*key == '\b' || *key == 127) {
        while (p->len && ((unsigned char)p->data[--p->len] & 0xc0) == 0x80)
            ;
        search(e, e->n_history - 1, SIZE_MAX);
    } else if ((unsigned char)*key >= 32) {
        if (utf8_sanitize(p, key, n))
            bell(e);
        search(e, found ? e->shown : e->n_history - 1, SIZE_MAX);
    } else {
        e->searching = false;
        return false;
    }
    return true;
}

/* ---- functions of keys ---- */

static void key_line_begin(struct chat_edit *e)
{
    e->cursor = line_begin(e, e->cursor);
}

static void key_line_end(struct chat_edit *e)
{
    e->cursor = line_end(e, e->cursor);
}

static void key_text_begin(struct chat_edit *e)
{
    e->cursor = 0;
}

static void key_text_end(struct chat_edit *e)
{
    e->cursor = e->text.len;
}

static void key_left(struct chat_edit *e)
{
    e->cursor = previous(e, e->cursor);
}

static void key_right(struct chat_edit *e)
{
    e->cursor = next(e, e->cursor);
}

static void key_word_left(struct chat_edit *e)
{
    e->cursor = word_begin(e, in_word);
}

static void key_word_right(struct chat_edit *e)
{
    e->cursor = word_end(e);
}

/* Put the cursor into the line that begins at `begin`, in its old column. */
static void go_to_line(struct chat_edit *e, size_t begin)
{
    size_t end = line_end(e, begin), at = line_begin(e, e->cursor);
    size_t old = e->cursor;
    for (e->cursor = begin; at < old && e->cursor < end; at = next(e, at))
        e->cursor = next(e, e->cursor);
}

/* In a text of several lines that the user has written or changed, the arrows
 * move the cursor; elsewhere they show the history. */
static void key_up(struct chat_edit *e)
{
    size_t begin = line_begin(e, e->cursor);
    if (begin && !e->browsing)
        go_to_line(e, line_begin(e, begin - 1));
    else if (e->shown)
        show_entry(e, e->shown - 1);
    else
        bell(e);
}

static void key_down(struct chat_edit *e)
{
    size_t end = line_end(e, e->cursor);
    if (end < e->text.len && !e->browsing)
        go_to_line(e, end + 1);
    else if (e->shown < e->n_history)
        show_entry(e, e->shown + 1);
    else
        bell(e);
}

static void key_backspace(struct chat_edit *e)
{
    erase(e, previous(e, e->cursor), e->cursor);
}

static void key_delete(struct chat_edit *e)
{
    erase(e, e->cursor, next(e, e->cursor));
}

static void key_delete_or_end(struct chat_edit *e)
{
    if (e->text.len)
        key_delete(e);
    else
        e->event = CHAT_EDIT_END;
}

/* At the end of a line, its newline is killed. */
static void key_kill_end(struct chat_edit *e)
{
    size_t end = line_end(e, e->cursor);
    kill_text(e, e->cursor, end > e->cursor ? end : next(e, end));
}

static void key_kill_begin(struct chat_edit *e)
{
    kill_text(e, line_begin(e, e->cursor), e->cursor);
}

static void key_kill_argument(struct chat_edit *e)
{
    kill_text(e, word_begin(e, in_argument), e->cursor);
}

static void key_kill_word(struct chat_edit *e)
{
    kill_text(e, word_begin(e, in_word), e->cursor);
}

static void key_kill_next_word(struct chat_edit *e)
{
    kill_text(e, e->cursor, word_end(e));
}

static void key_yank(struct chat_edit *e)
{
    if (e->killed.len)
        replace(e, e->cursor, 0, e->killed.data, e->killed.len);
    else
        bell(e);
}

/* Swap the characters before and after the cursor; at the end of the text, the
 * last two. */
static void key_swap(struct chat_edit *e)
{
    size_t end = next(e, e->cursor), middle = previous(e, end);
    size_t begin = previous(e, middle);
    struct buf b = {0};
    const char *s = e->text.data;
    if (begin == middle || buf_append(&b, s + middle, end - middle) ||
        buf_append(&b, s + begin, middle - begin))
        bell(e);
    else
        replace(e, begin, end - begin, b.data, b.len);
    buf_free(&b);
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

static void key_enter(struct chat_edit *e)
{
    e->cursor = e->text.len;
    e->event = CHAT_EDIT_ENTER;
}

static void key_complete(struct chat_edit *e)
{
    e->event = CHAT_EDIT_COMPLETE;
}

static void key_clear(struct chat_edit *e)
{
    e->event = CHAT_EDIT_CLEAR;
}

/* ---- keys ---- */

typedef void (*key_fn)(struct chat_edit *e);

/* The function of a key; NULL: it has none. */
static key_fn function_of(const char *key, size_t n)
{
    static const struct {
        const char *key;
        key_fn fn;
    } keys[] = {
        {"\001", key_line_begin},
        {"\033[H", key_line_begin},
        {"\033OH", key_line_begin},
        {"\033[1~", key_line_begin},
        {"\033[7~", key_line_begin},
        {"\005", key_line_end},
        {"\033[F", key_line_end},
        {"\033OF", key_line_end},
        {"\033[4~", key_line_end},
        {"\033[8~", key_line_end},
        {"\033<", key_text_begin},
        {"\033>", key_text_end},
        {"\002", key_left},
        {"\033[D", key_left},
        {"\033OD", key_left},
        {"\006", key_right},
        {"\033[C", key_right},
        {"\033OC", key_right},
        {"\033b", key_word_left},
        {"\033[1;5D", key_word_left},
        {"\033[1;3D", key_word_left},
        {"\033f", key_word_right},
        {"\033[1;5C", key_word_right},
        {"\033[1;3C", key_word_right},
        {"\020", key_up},
        {"\033[A", key_up},
        {"\033OA", key_up},
        {"\016", key_down},
        {"\033[B", key_down},
        {"\033OB", key_down},
        {"\010", key_backspace},
        {"\177", key_backspace},
        {"\033[3~", key_delete},
        {"\004", key_delete_or_end},
        {"\013", key_kill_end},
        {"\025", key_kill_begin},
        {"\027", key_kill_argument},
        {"\033\177", key_kill_word},
        {"\033\010", key_kill_word},
        {"\033d", key_kill_next_word},
        {"\031", key_yank},
        {"\024", key_swap},
        {"\026", key_quote},
        {"\022", begin_search},
        {"\r", key_enter},
        {"\n", key_enter},
        {"\t", key_complete},
        {"\014", key_clear},
        {"\033[200~", key_paste},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (strlen(keys[i].key) == n && memcmp(keys[i].key, key, n) == 0)
            return keys[i].fn;
    return NULL;
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
    key_fn fn = function_of(key, n);
    if (e->quoted && fn != key_paste) {
        e->quoted = false;
        n = *key == ESC ? 1 : n;
        chat_edit_insert(e, *key == '\r' ? "\n" : key, n);
        return n;
    }
    e->quoted = false;
    if (e->searching && search_key(e, key, n))
        return n;
    if (fn)
        fn(e);
    else if ((unsigned char)*key >= 32)
        chat_edit_insert(e, key, n);
    else
        bell(e);
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
