/* Conversations by name: files with messages in the state directory, which
 * generate and chat go on with (--conversation). A file is an object with
 * "model", the name of the model that gave its last answer, and the members of
 * a chat, as qwick_chat_add_json reads them. */
#ifndef CLI_CONVERSATION_STORE_H
#define CLI_CONVERSATION_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cli/opt/opt.h"

/* Check the name of --conversation, if it is given. Returns -1 to go on, or
 * exit status 2 after printing a message. */
int conversation_check(struct opt_parsed *p);

/* Check it for generate and chat, and turn the prefix cache on, unless a
 * setting turns it off: the next command then finds the answer there. */
int conversation_check_answer(struct opt_parsed *p);

/* Keep other processes from the conversation until *fd is closed, or this
 * process ends. Makes the directory. *fd stays -1 if the file system has no
 * locks. Returns 0, or -1 with *e set, also if another process has the
 * conversation. */
int conversation_lock(const char *name, int *fd, struct qwick_err *e);

/* Find the file, which must be the user's own. *path stays NULL if there is no
 * such conversation; the caller frees it. *model: see above; malloc'ed, NULL if
 * unknown. model NULL: it is not needed. */
int conversation_find(const char *name, char **path, char **model,
                      struct qwick_err *e);

/* Print a note if another model than the last one goes on. */
void conversation_note_model(const char *name, const char *last,
                             const char *now);

/* Replace the file. json[0..n): what qwick_chat_json gives. */
int conversation_write(const char *name, const char *model, const char *json,
                       size_t n, struct qwick_err *e);

/* Remove the conversation. Returns 1 if there is none. */
int conversation_remove(const char *name, struct qwick_err *e);

struct conversation {
    const char *name, *model; /* model NULL: unknown */
    size_t n_messages;
    int64_t time; /* of the last answer, in seconds since 1970 */
};

/* Call fn for each conversation, by name. A file that cannot be read is a
 * warning. */
int conversation_each(int (*fn)(void *ctx, const struct conversation *c),
                      void *ctx, struct qwick_err *e);

#endif
