/* Lines for people: what the engine tells the program's log. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/core/engine.h"

/* If memory is short, the line is dropped. */
static void log_line(const struct qwick_engine *eng, enum qwick_log_level level,
                     const char *fmt, va_list ap)
{
    char *line;
    if (!eng->log || vasprintf(&line, fmt, ap) < 0)
        return;
    eng->log(eng->log_ctx, level, line);
    free(line);
}

void engine_note(const struct qwick_engine *eng, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_line(eng, QWICK_LOG_NOTE, fmt, ap);
    va_end(ap);
}

void engine_warn(const struct qwick_engine *eng, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_line(eng, QWICK_LOG_WARNING, fmt, ap);
    va_end(ap);
}
