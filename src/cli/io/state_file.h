/* Files that qwick keeps for the user between runs, in $XDG_STATE_HOME/qwick,
 * and files with conversations. */
#ifndef CLI_STATE_FILE_H
#define CLI_STATE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Append "DIR/qwick/NAME", where DIR is the value of the variable, or what is
 * `below` $HOME. Appends nothing if neither has an absolute path. Returns 0, or
 * -1 when out of memory. */
int xdg_path(struct buf *out, const char *variable, const char *below,
             const char *name);
/* Do so for $XDG_STATE_HOME and ~/.local/state. */
int state_path(struct buf *out, const char *name);

/* Make the directories above a path of state_path; only the owner may use new
 * directories. Returns 0, or -1 with *e set. */
int state_make_dir(const char *path, struct qwick_err *e);

/* Open a file of the state that exists or, with O_CREAT, is made with mode
 * 0600. A file that is not regular, belongs to another user (except root), or
 * that others may write to, is refused. Returns the descriptor; -1 with *e set;
 * or -2 if the file does not exist. */
int state_open(const char *path, int flags, struct qwick_err *e);

/* The conversation that --keep keeps, and the log, which has a directory of its
 * own: the sandbox allows directories, not files. */
#define STATE_LAST "last.json"
#define STATE_LOG  "log/log.db"
/* The directory of conversations by name. */
#define STATE_CONVERSATIONS "conversations/"

/* Append the path of a file of the state. Returns 0, or -1 with *e set, also if
 * there is no place for it. option: for messages. */
int state_need_path(struct buf *out, const char *name, const char *option,
                    struct qwick_err *e);

/* Return whether a conversation can have this name: 1 to 64 ASCII letters, digits,
 * ".", "_" and "-", not "." at the beginning. */
enum { STATE_NAME_MAX = 64 };
bool state_is_name(const char *name);

/* Append the path of the conversation with this name. Returns as
 * state_need_path. */
int state_conversation_path(struct buf *out, const char *name,
                            struct qwick_err *e);

#endif
