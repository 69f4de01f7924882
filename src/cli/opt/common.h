/* Checks of options and arguments that several verbs share. */
#ifndef CLI_COMMON_H
#define CLI_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/opt/opt.h"
#include "qwick.h"

/* Exit statuses that enum qwick_err_code does not have. */
enum {
    EXIT_INCOMPLETE = 6, /* --require-answer and the answer is cut or empty; a
                            constraint and the answer is cut; --extract and it
                            has no complete code block; a tool call that is
                            malformed or cut; selftest and a check is cut */
    EXIT_BELOW = 10      /* choose: not likely enough, or the answer is no */
};

/* Check what all verbs have in common, set the level of messages, resolve an alias
 * of -m, and copy --cache-dir and --profile-file to the flags that they turn on.
 * Returns -1 to go on, or exit status 2 after printing a message. */
int common_check(struct opt_parsed *p);

/* If the value of an option is an alias of a model, replace it by what it means.
 * *where becomes the alias and its place, or NULL. Both strings live as long as p.
 * *is_name: whether the model does not come from the command line, where a path
 * wins over an alias. Returns -1 to go on, or an exit status after printing a
 * message. */
int common_resolve_alias(struct opt_parsed *p, enum opt_id option,
                         const char **where, bool *is_name);

/* Return the length of the name in NAME=VALUE; 0: it has none. */
size_t common_arg_name(const char *arg);

/* Refuse an option that colours stdout, if it is given and stdout gets no
 * colours: the terminal does not show them, or it is no terminal and --color
 * always is not given. Returns -1 to go on, or exit status 2 after printing a
 * message. */
int common_check_colours(struct opt_parsed *p, enum opt_id option);

/* If the demo model answers and stderr is a terminal, print a hint about it. */
void common_hint_demo(const struct opt_parsed *p);

/* If the only argument is the name of a regular file, warn that the name is
 * used as text, and that -f reads files. After "--" an argument is text anyway.
 */
void common_warn_file(const struct opt_parsed *p);

/* Refuse several arguments where one text is read (hint ends the message), or
 * an argument beside --prompt. If one of them is a file, the message suggests
 * -f for each file. Returns exit status 2. */
int common_refuse_words(const struct opt_parsed *p, const char *what,
                        const char *hint);

/* Check the options of records, --input, --lines and --jsonl. Records without a
 * form are those of --jsonl: this sets jsonl. Returns -1 to go on, or exit
 * status 2 after printing a message. */
int common_check_records(struct opt_parsed *p);

/* What the arguments of a verb are. */
enum text_args {
    TEXT_ONE,  /* one text */
    TEXT_MANY, /* texts */
    TEXT_IDS   /* token ids, which are no names of files */
};

/* Check the arguments and sources of a verb that reads texts from its
 * arguments, from the files of -f, from standard input, or as records. `what`
 * is the name of its texts ("text", "chat"). An argument that is a regular
 * file's name is refused, because a number about the name is never wanted. An
 * argument "-" means standard input and is removed from *p. Returns -1 to go
 * on, or exit status 2 after printing a message. */
int common_check_text(struct opt_parsed *p, const char *what, enum text_args kind);

/* Check a verb that takes no arguments. Returns -1 to go on, or exit status 2 after
 * printing a message. */
int common_check_no_args(struct opt_parsed *p);

/* Print that a verb has no text to read. Returns exit status 2. */
int common_no_input(const struct verb *v);

#endif
