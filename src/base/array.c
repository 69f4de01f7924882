#include "base/array.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

/* An array of LARGE_BYTES or more grows by an eighth: realloc moves its pages,
 * and does not copy them. */
enum { MIN_BYTES = 2048, LARGE_BYTES = 8 << 20 };

int array_grow(void *p, size_t *cap, size_t need, size_t size, size_t max,
               struct qwick_err *e)
{
    size_t n, bytes;
    void *old, *v;
    if (need <= *cap)
        return 0;
    if (max == 0)
        max = SIZE_MAX;
    if (need > max || size_mul(need, size, &bytes))
        return err_oom(e, SIZE_MAX);
    bool large = *cap >= LARGE_BYTES / size;
    if (size_add(*cap, large ? *cap / 8 : *cap, &n) || n > max)
        n = max;
    if (n < MIN_BYTES / size && MIN_BYTES / size <= max)
        n = MIN_BYTES / size;
    if (n < need || size_mul(n, size, &bytes))
        n = need;
    bytes = n * size;
    /* Copy by memcpy, because the caller's pointer has another type than void
     * *. */
    memcpy(&old, p, sizeof old);
    v = realloc(old, bytes);
    if (!v)
        return err_oom(e, bytes);
    memcpy(p, &v, sizeof v);
    *cap = n;
    return 0;
}
