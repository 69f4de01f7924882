/* Options that change during a chat. Both processes of a chat keep them: the
 * chat's own checks a change first, then sends it to the process of the model,
 * which does the same. */
#ifndef CLI_CHAT_SET_H
#define CLI_CHAT_SET_H

#include "base/buf.h"
#include "cli/opt/opt.h"

/* The options as the command line and the configuration gave them, and the
 * changes. All zeros: not begun. */
struct chat_settings {
    struct opt_parsed *p;           /* borrowed: with the changes */
    struct opt_parsed *base;        /* without them; NULL: not begun */
    const char *changed[OPT_COUNT]; /* by enum opt_id: the new value, or
                                       chat_unset; NULL: no change */
};

/* As if nothing had set the option. */
extern const char chat_unset[];

/* Begin with the options p. Returns 0, or an exit status after printing a
 * message. Call chat_set_end in any case, before opt_free. */
int chat_set_begin(struct chat_settings *s, struct opt_parsed *p);
void chat_set_end(struct chat_settings *s);

/* Change an option, as if the command line gave the value: the same ranges and
 * relations hold. The value is copied, unless it is chat_unset, or NULL: the
 * option has no change. Returns 0; or after printing a message, an exit status
 * with nothing changed. */
int chat_set_change(struct chat_settings *s, const struct opt *o,
                    const char *value);

/* Return the row of an option that can change. Else print a message and return
 * NULL. command: for the message. */
const struct opt *chat_set_find(const struct opt_parsed *p, const char *command,
                                const char *name);

/* Append a line for an option, or for all that can change if o is NULL. */
void chat_set_put(struct buf *b, const struct opt_parsed *p,
                  const struct opt *o);

/* Append the words that may follow words[0..n) of the argument of /set, each
 * with a newline. Returns 0, or -1 when out of memory. */
int chat_set_words(struct buf *out, const char *words, size_t n);

#endif
