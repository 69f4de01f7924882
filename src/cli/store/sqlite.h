/* libsqlite3, loaded at run time, because only the log needs it. */
#ifndef CLI_SQLITE_H
#define CLI_SQLITE_H

#include <sqlite3.h>

#include "base/err.h"

/* The functions of libsqlite3 that we use: F(name without sqlite3_). */
#define SQLITE_FUNCTIONS(F) \
    F(open_v2)              \
    F(close)                \
    F(db_config)            \
    F(busy_timeout)         \
    F(create_function_v2)   \
    F(errcode)              \
    F(errmsg)               \
    F(exec)                 \
    F(prepare_v2)           \
    F(step)                 \
    F(finalize)             \
    F(bind_text)            \
    F(bind_int64)           \
    F(bind_double)          \
    F(column_type)          \
    F(column_text)          \
    F(column_bytes)         \
    F(column_int64)         \
    F(column_double)        \
    F(changes)              \
    F(get_autocommit)       \
    F(value_text)           \
    F(value_bytes)          \
    F(result_int)           \
    F(result_error_nomem)

struct sqlite_functions {
#define SQLITE_POINTER(name) __typeof__(sqlite3_##name) *name;
    SQLITE_FUNCTIONS(SQLITE_POINTER)
#undef SQLITE_POINTER
};

/* Set by sqlite_load. */
extern struct sqlite_functions sqlite;

/* Load the library, unless it is loaded. Returns 0, or -1 with *e set. Not
 * thread-safe. */
int sqlite_load(struct qwick_err *e);

#endif
