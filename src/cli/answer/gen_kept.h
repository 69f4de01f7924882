/* The conversation that a one-shot command keeps, and that --continue goes on
 * with: $XDG_STATE_HOME/qwick/last.json. */
#ifndef CLI_GEN_KEPT_H
#define CLI_GEN_KEPT_H

#include "cli/answer/gen_job.h"
#include "qwick.h"

/* Refuse --keep when the session of --session has no messages. Returns -1 to go on,
 * or exit status 2 after printing a message. */
int gen_kept_check_session(const struct gen_job *j);

/* With --keep or --continue: make the directory of the file, before any work is
 * done. Returns 0, or an exit status after printing a message. */
int gen_kept_prepare(const struct gen_job *j);

/* Open the file of --continue for reading, to see that there is one and that it
 * is the user's own. Sets *path, which the caller frees. Returns 0, or an exit
 * status after printing a message. */
int gen_kept_find(char **path);

/* On a terminal, say which conversation goes on. */
void gen_kept_hint(const struct qwick_chat *c);

/* Write the whole conversation of a run, with its answer, as JSON. *json is
 * NULL if it is not known: the prompt is no chat, or continues a session that
 * has no messages. The caller frees it. Returns 0, or -1 with *e set. */
int gen_kept_json(const struct gen_job *j, const struct qwick_result *r,
                  char **json, size_t *n, struct qwick_err *e);

/* Keep the conversation json[0..n) for --continue. Returns an exit status,
 * after printing a message if it is not 0. */
int gen_kept_write(const char *json, size_t n);

#endif
