/* The warnings of a test's engines: set options' log to keep_warning. */
#ifndef TESTS_LOG_LINES_H
#define TESTS_LOG_LINES_H

#include <stdio.h>

#include "qwick.h"

static struct {
    char line[8][1024];
    size_t n;
} warnings;

static inline void keep_warning(void *ctx, enum qwick_log_level level,
                                const char *line)
{
    (void)ctx;
    if (level == QWICK_LOG_WARNING && warnings.n < 8)
        snprintf(warnings.line[warnings.n++], sizeof *warnings.line, "%s",
                 line);
}

/* The i-th warning since the last call of forget_warnings; NULL: none. */
static inline const char *warning(size_t i)
{
    return i < warnings.n ? warnings.line[i] : NULL;
}

static inline void forget_warnings(void)
{
    warnings.n = 0;
}

#endif
