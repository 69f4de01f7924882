/* The log of answers: an SQLite database in the state directory.
 *
 * It has one table, answers, with a row for each answer. Several processes may
 * use it at once. Its file and its journal have mode 0600. Removed texts are
 * overwritten (secure_delete), and the journal is empty between changes.
 * When a new answer does not fit, the oldest ones go.
 *
 * A file that is not a log, is damaged or comes from a newer qwick is not
 * changed. */
#ifndef CLI_LOG_DB_H
#define CLI_LOG_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "file/json_writer.h"

/* Most bytes of the log's file. */
#define LOG_MAX_BYTES 256000000

/* The columns of a row, in the order of the table: small ones first, because
 * SQLite reads a row from its beginning. INT: int64_t. REAL: double. TEXT and
 * JSON: struct log_text. */
#define LOG_COLUMNS(X)                                                       \
    X(INT, id)             /* ascends, and is never used again */            \
    X(TEXT, time)          /* when the answer ended: 2026-11-22T10:30:00Z */ \
    X(TEXT, verb)          /* generate, chat or batch */                     \
    X(TEXT, model)         /* as JSON output names it */                     \
    X(TEXT, conversation)  /* the name of --conversation */                  \
    X(TEXT, finish_reason) /* as in JSON output */                           \
    X(INT, messages)       /* of the chat, with the prompt; 0: no chat */    \
    X(INT, prompt_tokens)                                                    \
    X(INT, cached_tokens) /* of the prompt, not evaluated again */           \
    X(INT, completion_tokens)                                                \
    X(INT, seed)                                                             \
    X(REAL, prefill_ms)                                                      \
    X(REAL, total_ms)                                                        \
    X(JSON, options) /* options that were set, and the sampling */           \
    X(TEXT, prompt)  /* the last message of the user, or the text */         \
    X(TEXT, answer)                                                          \
    X(TEXT, thinking)                                                        \
    X(TEXT, system)

struct log_text {
    const char *s; /* NULL: none */
    size_t n;
};

#define LOG_C_INT  int64_t
#define LOG_C_REAL double
#define LOG_C_TEXT struct log_text
#define LOG_C_JSON struct log_text

struct log_row {
#define LOG_MEMBER(kind, name) LOG_C_##kind name;
    LOG_COLUMNS(LOG_MEMBER)
#undef LOG_MEMBER
};

struct log_text log_text(const char *s);

/* Write the members of a row's object. A missing text is null. */
void log_row_json(struct json_writer *w, const struct log_row *row);

struct log_db;

/* Open the log to read it; *out is NULL if there is none. All functions here
 * return 0, or -1 with *e set. */
int log_db_open(struct log_db **out, const char *path, struct qwick_err *e);
/* Open it to add rows, and make it if there is none. max_bytes: of the file. */
int log_db_create(struct log_db **out, const char *path, int64_t max_bytes,
                  struct qwick_err *e);
void log_db_close(struct log_db *l);

/* Add a row, with the next id and the current time. */
int log_db_add(struct log_db *l, const struct log_row *row,
               struct qwick_err *e);

/* Conditions that choose rows. Zeros: all rows. */
struct log_query {
    int64_t id;
    const char *conversation;
    const char *const *words; /* each is in the prompt or in the answer, in
                                 upper or lower case */
    size_t n_words;
    int64_t last; /* of these, only so many of the newest; 0: all */
};

/* Call fn for each row, the oldest first, until it returns other than 0. The
 * texts are valid during the call. */
int log_db_each(struct log_db *l, const struct log_query *q,
                int (*fn)(void *ctx, const struct log_row *row), void *ctx,
                struct qwick_err *e);

/* Remove rows; words and last have no effect. *n: how many there were. */
int log_db_remove(struct log_db *l, const struct log_query *q, int64_t *n,
                  struct qwick_err *e);

#endif
