#include "text/deadline.h"

#include "base/clock.h"

static _Thread_local double deadline_ms;

void text_set_deadline(double ms)
{
    deadline_ms = ms;
}

int text_check_deadline(const char *what, struct qwick_err *e)
{
    return deadline_ms > 0 && clock_ms() >= deadline_ms
               ? err_usage(e, "%s takes too long", what)
               : 0;
}
