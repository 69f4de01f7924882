/* Characters that must not reach a terminal as they are: control characters,
 * which could act on it, and controls of the direction of text, which show a
 * text in another order than it has. They become \xNN, one for each byte. */
#ifndef CLI_ESCAPE_H
#define CLI_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What a text is. Arabic and Hebrew texts use the marks of a direction, but no
 * name needs them. */
enum escape_kind {
    ESCAPE_TEXT, /* an answer, or another text of a model or of a user */
    ESCAPE_NAME  /* names of files and models, and messages with them */
};

/* Return whether a character needs an escape. */
bool escape_needs(uint32_t cp, enum escape_kind kind);

/* Return whether a name needs no escape. */
bool escape_is_plain(const char *name);

/* Append s[0..n) with escapes for these characters, except the ASCII ones in
 * `keep`, and for bytes that are not UTF-8. Returns 0, or -1 when out of
 * memory. */
int escape_append(struct buf *out, const char *s, size_t n,
                  enum escape_kind kind, const char *keep);

/* Append s[0..n) with a backslash and letters[i] for the character special[i],
 * and if `controls` is set, \xNN for other control bytes. */
void escape_letters(struct buf *out, const char *s, size_t n,
                    const char *special, const char *letters, bool controls);

#endif
