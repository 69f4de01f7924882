/* Completion scripts for shells, made from the tables of verbs and options. A
 * script is a text in src/cli/completion/ with a line "@TABLES@", which the
 * tables replace. */
#ifndef CLI_COMPLETION_H
#define CLI_COMPLETION_H

#include <stdbool.h>

#include "base/buf.h"
#include "cli/opt/opt.h"

struct completion_shell {
    const char *name; /* "bash" */
    const char *script, *script_end;
    void (*put_tables)(struct buf *out);
};

/* The shells, with an entry without a name at the end. */
extern const struct completion_shell completion_shells[];

/* Append the shell's script. */
void completion_put(struct buf *out, const struct completion_shell *shell);

/* The tables of each shell. */
void completion_bash(struct buf *out);
void completion_zsh(struct buf *out);
void completion_fish(struct buf *out);

/* ---- for the tables -------------------------------------------------------
 */

/* Append how an option's value is completed, as words with blanks between them:
 *   file dir   names of files or directories
 *   model      a model's name, a directory or a GGUF file
 *   verb       a verb
 *   =WORD      the word itself
 *   -          nothing: only the user knows the text
 *   ?          the value is optional, and stands behind "="
 * A flag has no words. The words come from the placeholder of the value (arg)
 * and from choices. */
void completion_option(struct buf *out, const struct opt *o);

/* Append how the first argument of a verb is completed. */
void completion_argument(struct buf *out, const struct verb *v);

/* Append text in single quotes, as all three shells read it. */
void completion_quote(struct buf *out, const char *text);

#endif
