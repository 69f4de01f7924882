#include "cli/serve/body.h"
#include "cli/serve/endpoints.h"

_Static_assert(sizeof(_Atomic int) == sizeof(int),
               "the library reads the flag as an int");

const volatile int *slice_interrupt(const struct serve_call *c)
{
    return (const volatile int *)&c->stop;
}

void slice_layer(void *ctx, size_t n_done, size_t n_total)
{
    (void)n_done;
    (void)n_total;
    serve_batch_layer(ctx);
}

int slice_fault(struct serve_error *e, const struct qwick_err *why)
{
    return why->code == QWICK_ERR_INTERRUPTED ? 1 : body_fault(e, NULL, why);
}
