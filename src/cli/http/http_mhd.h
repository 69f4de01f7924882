/* libmicrohttpd, loaded at run time, because only serve needs it. */
#ifndef CLI_HTTP_MHD_H
#define CLI_HTTP_MHD_H

#include <microhttpd.h>

#include "base/err.h"

/* The functions of libmicrohttpd that we use: F(name without MHD_). */
#define MHD_FUNCTIONS(F)             \
    F(start_daemon)                  \
    F(stop_daemon)                   \
    F(quiesce_daemon)                \
    F(get_fdset2)                    \
    F(run_from_select)               \
    F(get_connection_info)           \
    F(get_connection_values)         \
    F(suspend_connection)            \
    F(resume_connection)             \
    F(create_response_from_buffer)   \
    F(create_response_from_callback) \
    F(add_response_header)           \
    F(queue_response)                \
    F(destroy_response)              \
    F(get_reason_phrase_for)

struct mhd_functions {
#define MHD_POINTER(name) __typeof__(MHD_##name) *name;
    MHD_FUNCTIONS(MHD_POINTER)
#undef MHD_POINTER
};

/* Set by http_mhd_load. */
extern struct mhd_functions mhd;

/* Load the library, unless it is loaded. Returns 0, or -1 with *e set. Not
 * thread-safe. */
int http_mhd_load(struct qwick_err *e);

#endif
