/* The line that a user edits: what each key does to it, the history, and the
 * search in the history. Nothing here reads or draws; chat_line.c does. */
#ifndef CLI_CHAT_EDIT_H
#define CLI_CHAT_EDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Maximum bytes of a line (longer texts belong in a file), and lines of the
 * history. */
enum { CHAT_EDIT_MAX = 1 << 20, CHAT_EDIT_HISTORY = 2000 };

/* What the caller must do after a key. */
enum chat_edit_event {
    CHAT_EDIT_NOTHING,
    CHAT_EDIT_ENTER,    /* the line is complete */
    CHAT_EDIT_END,      /* Ctrl-D in an empty line */
    CHAT_EDIT_COMPLETE, /* Tab */
    CHAT_EDIT_CLEAR,    /* clear the screen */
    CHAT_EDIT_TOO_LONG, /* a paste of paste_length bytes is dropped */
    CHAT_EDIT_BELL      /* the key has no effect */
};

struct chat_edit_entry;

/* All zeros: an empty line and an empty history. */
struct chat_edit {
    struct buf text;     /* UTF-8 without NUL; may have newlines */
    size_t cursor;       /* a byte of the text; text.len: behind it */
    size_t paste_length; /* in bytes, with CR LF as one */
    bool searching;      /* the text is the entry that was found */
    struct buf pattern;  /* of the search */

    /* The state. */
    enum chat_edit_event event;
    bool quoted;   /* the next character is text, whatever it is */
    bool pasting;  /* until the mark of the end */
    size_t n_mark; /* bytes of that mark that came last */
    char last_pasted;
    struct buf pasted, killed;
    struct chat_edit_entry *history;
    size_t n_history, cap_history;
    size_t shown;      /* the entry whose text is edited; n_history: none */
    bool browsing;     /* the text is as the history has it */
    struct buf typed;  /* while an entry is shown: the user's line */
    struct buf origin; /* while searching: the text before */
    size_t origin_shown, origin_cursor;
};

/* Begin an empty line. */
void chat_edit_begin(struct chat_edit *e);

/* Do what the first key in in[0..n) says, n > 0. Returns how many bytes it has;
 * 0: more bytes must come first. Sets *event. Without memory the key has no
 * effect. */
size_t chat_edit_feed(struct chat_edit *e, const char *in, size_t n,
                      enum chat_edit_event *event);

/* Insert a text at the cursor; bytes that are not UTF-8 become U+FFFD, and NULs
 * are left out. Returns false if it does not fit. */
bool chat_edit_insert(struct chat_edit *e, const char *s, size_t n);

/* Add a text to the history, without NULs, unless its last entry is the same.
 * Without memory, nothing is added. */
void chat_edit_remember(struct chat_edit *e, const char *s, size_t n);

void chat_edit_free(struct chat_edit *e);

#endif
